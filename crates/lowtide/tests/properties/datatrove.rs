//! What must hold for any bytes at all that are opened as datatrove's index, or as its metadata.
//!
//! One definition for all who ask: the fuzz target, the stored corpus in `cargo test`, and proptest.

use super::message;
use lowtide::format::datatrove::{Index, metadata};
use std::path::Path;

/// Panics if a parser does something wrong with a file of these bytes.
pub fn check(bytes: &[u8]) {
    check_metadata(bytes);
    check_index(bytes);
}

fn check_metadata(bytes: &[u8]) {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap();
    match metadata(Path::new("some.metadata"), bytes) {
        Ok(None) => assert!(!line.contains(&b'|')),
        Ok(Some(dtype)) => {
            let width = dtype.itemsize();
            let text = String::from_utf8_lossy(line);
            // However many zeros and whatever sign stand before it.
            let word = text.rsplit('|').next().unwrap().trim_end().trim_start_matches('+');
            assert_eq!(word.trim_start_matches('0'), width.to_string(), "{text:?}");
            assert!([2, 4].contains(&width));
        }
        Err(error) => {
            assert!(line.contains(&b'|'), "{error}");
            assert!(!line.ends_with(b"|2") && !line.ends_with(b"|4"), "{error}");
            message::check(&error, "some.metadata");
        }
    }
}

fn check_index(bytes: &[u8]) {
    let path = Path::new("some.index");
    let index = match Index::parse(path, bytes.len() as u64) {
        Ok(index) => index,
        Err(error) => {
            assert!(!bytes.len().is_multiple_of(8));
            return message::check(&error, "some.index");
        }
    };
    let ends: Vec<u64> = bytes.chunks(8).map(|end| u64::from_le_bytes(end.try_into().unwrap())).collect();
    let read = |offset: u64, out: &mut [u8]| {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&bytes[start..start + out.len()]); // panics outside the file
        Ok(())
    };
    let last = ends.last().copied().unwrap_or(0);
    assert_eq!((index.documents, index.tokens(&read).unwrap()), (ends.len() as u64, last));
    for data_len in [0, last, last.wrapping_mul(2), last.wrapping_mul(4), u64::MAX] {
        let fits: Vec<usize> =
            [2, 4].into_iter().filter(|&w| u128::from(last) * w as u128 == u128::from(data_len)).collect();
        let expected = if let [width] = fits[..] { Some(width) } else { None };
        assert_eq!(Index::guess(last, data_len).map(lowtide::format::Dtype::itemsize), expected);
    }
    for tokens in [0, last, u64::MAX] {
        for (i, &end) in ends.iter().enumerate() {
            let start = if i == 0 { 0 } else { ends[i - 1] };
            match index.document(path, &read, i as u64, tokens) {
                Ok(range) => {
                    assert_eq!(range, start..end);
                    assert!(start <= end && end <= tokens);
                }
                Err(error) => {
                    assert!(start > end || end > tokens, "{error}");
                    message::check(&error, "some.index");
                }
            }
        }
    }
}
