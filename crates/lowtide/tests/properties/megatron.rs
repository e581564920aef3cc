//! What must hold for any bytes at all that are opened as Megatron's index.
//!
//! One definition for all who ask: the fuzz target, the stored corpus in `cargo test`, and proptest.

use super::message;
use lowtide::format::megatron::{HEADER_LEN, Index, is_megatron};
use std::ops::Range;
use std::path::Path;

/// Panics if the parser does something wrong with an index of these bytes, or with one that begins with
/// them and is far larger.
pub fn check(bytes: &[u8]) {
    let (path, own) = (Path::new("some.idx"), bytes.len() as u64);
    for index_len in [own + 1, 1 << 40, i64::MAX as u64, u64::MAX] {
        if let Err(error) = Index::parse(path, bytes, index_len) {
            message::check(&error, "some.idx");
        }
    }
    let index = match Index::parse(path, bytes, own) {
        Ok(index) => index,
        Err(error) => return message::check(&error, "some.idx"),
    };
    assert!(is_megatron(bytes));
    let plain = Plain::read(bytes, &index);
    let read = |offset: u64, out: &mut [u8]| {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&bytes[start..start + out.len()]); // panics outside the file
        Ok(())
    };
    let checked = index.check_documents(path, &read);
    let last = plain.documents.last().and_then(|&last| usize::try_from(last).ok());
    let whole = plain.documents[0] == 0 && last == Some(plain.lengths.len());
    assert_eq!(checked.is_ok(), whole, "{checked:?}");
    let ends = (0..plain.lengths.len()).filter_map(|i| plain.sequence(i, u64::MAX)).map(|bytes| bytes.end);
    let most = ends.max().unwrap_or(0);
    for data_len in [0, most / 2, most, most + 1, i64::MAX as u64] {
        let last = plain.lengths.len().checked_sub(1);
        let covered = last.map_or(Some(0), |last| plain.sequence(last, data_len).map(|bytes| bytes.end));
        assert_eq!(index.covered(path, &read, data_len).ok(), covered);
        for i in 0..index.documents {
            let document = index.document(path, &read, i, data_len);
            let expected = plain.document(usize::try_from(i).unwrap(), data_len);
            assert_eq!(document.as_ref().ok(), expected.as_ref(), "document {i} of {data_len} bytes");
            if let Err(error) = document {
                message::check(&error, "some.idx");
            }
        }
    }
}

/// The arrays as they stand in the file, each held whole.
struct Plain {
    lengths: Vec<i32>,
    pointers: Vec<i64>,
    documents: Vec<i64>,
    width: u64,
}

impl Plain {
    fn read(bytes: &[u8], index: &Index) -> Self {
        let sequences = usize::try_from(index.sequences).unwrap();
        let (lengths, rest) = bytes[HEADER_LEN..].split_at(4 * sequences);
        let (pointers, rest) = rest.split_at(8 * sequences);
        let documents = &rest[..8 * (usize::try_from(index.documents).unwrap() + 1)];
        assert!([0, sequences].contains(&(rest.len() - documents.len())), "modes or nothing");
        let longs =
            |bytes: &[u8]| bytes.chunks(8).map(|long| i64::from_le_bytes(long.try_into().unwrap())).collect();
        Self {
            lengths: lengths.chunks(4).map(|int| i32::from_le_bytes(int.try_into().unwrap())).collect(),
            pointers: longs(pointers),
            documents: longs(documents),
            width: index.dtype.itemsize() as u64,
        }
    }

    /// The bytes of a sequence, if it can be one.
    fn sequence(&self, i: usize, data_len: u64) -> Option<Range<u64>> {
        let start = u64::try_from(self.pointers[i]).ok()?;
        let end = start + u64::try_from(self.lengths[i]).ok()? * self.width;
        (start.is_multiple_of(self.width) && end <= data_len).then_some(start..end)
    }

    /// The tokens of a document, if it can be one.
    fn document(&self, i: usize, data_len: u64) -> Option<Range<u64>> {
        let first = usize::try_from(self.documents[i]).ok()?;
        let end = usize::try_from(self.documents[i + 1]).ok()?;
        if first > end || end > self.lengths.len() {
            return None;
        }
        let parts: Vec<Range<u64>> =
            (first..end).map(|sequence| self.sequence(sequence, data_len)).collect::<Option<_>>()?;
        let bytes = match (parts.first(), parts.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ if first < self.lengths.len() => {
                let at = self.sequence(first, data_len)?.start;
                at..at
            }
            _ => {
                let last = self.lengths.len().checked_sub(1);
                let at = last.map_or(Some(0), |last| self.sequence(last, data_len).map(|bytes| bytes.end))?;
                at..at
            }
        };
        let follow = parts.windows(2).all(|pair| pair[0].end == pair[1].start);
        follow.then_some(bytes.start / self.width..bytes.end / self.width)
    }
}
