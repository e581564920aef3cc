//! All bytes of a file, in order, through the engine: at the speed of the disk, inside the budget, and without leaving it
//! in the page cache.

use super::Wish;
use lowtide::format::{Dtype, Kind};
use lowtide::widen::widen;
use lowtide::{Error, Interrupt, Options, Result};
use std::path::Path;

/// What is looked at at once, at most and at least: whole numbers of any width. From a disk pieces of 1 MiB came at 1.0
/// GB/s where larger ones came at 2.0.
const PIECE: (usize, usize) = (64 << 10, 4 << 20);
/// How many ids are compared at once.
const AT_ONCE: usize = 1024;

/// Hands out the pieces of a file with their offsets. What cannot be read is the answer, in words: the disk's errors, and
/// a file that is cut meanwhile.
pub fn each_piece(
    path: &Path,
    wish: &Wish,
    interrupt: Interrupt<'_>,
    look: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Option<String>> {
    let bytes = wish.options(Options::new()).dtype(Dtype::native(Kind::UInt8)).offset(0).open(path)?;
    let mut offset = 0;
    let share = usize::try_from(bytes.budget().limit() / 32).unwrap_or(usize::MAX);
    let piece = share.clamp(PIECE.0, PIECE.1) / PIECE.0 * PIECE.0;
    let mut chunks = bytes.chunks(piece)?;
    while let Some(chunk) = chunks.next_chunk(interrupt) {
        match chunk {
            Ok(chunk) => {
                interrupt()?;
                look(offset, chunk.bytes())?;
                offset += chunk.bytes().len() as u64;
            }
            Err(error @ (Error::Io { .. } | Error::Truncated { .. })) => {
                return Ok(Some(format!("it cannot be read at byte {offset}: {error}")));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Which ids a file may have, and where they are in it.
pub struct Ids {
    pub first: u64,
    pub end: u64,
    pub dtype: Dtype,
    pub vocabulary: u64,
}

impl Ids {
    /// What is said of the first id in `bytes` that is none. They begin at `offset` of the file.
    pub fn outside(&self, offset: u64, bytes: &[u8]) -> Option<String> {
        let width = self.dtype.itemsize();
        let at =
            |place: u64| usize::try_from(place.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let (from, to) = (at(self.first), at(self.end));
        // Whole numbers, also behind a header of an odd length: what lies across two pieces is left out then.
        let inside = (offset + from as u64).saturating_sub(self.first) % width as u64;
        let from = (from + (width - usize::try_from(inside).unwrap_or(0)) % width).min(to);
        let tokens = &bytes[from..from + (to - from) / width * width];
        let mut ids = [0_i64; AT_ONCE];
        for (piece, part) in (0..).zip(tokens.chunks(ids.len() * width)) {
            let ids = &mut ids[..part.len() / width];
            let wrong = match widen(self.dtype, part, ids) {
                // Below 0 or above, in one comparison: an id has no sign.
                Ok(()) if ids.iter().fold(0, |most, &id| most.max(id.cast_unsigned())) < self.vocabulary => {
                    continue;
                }
                Ok(()) => ids.iter().position(|&id| id.cast_unsigned() >= self.vocabulary),
                Err(_) => None, // above 2^63
            };
            let place = offset + (from + piece * AT_ONCE * width + wrong.unwrap_or(0) * width) as u64;
            let id = wrong.map_or("an id above 2^63".to_owned(), |index| format!("the id {}", ids[index]));
            return Some(format!("at byte {place}: {id}, the vocabulary has {}", self.vocabulary));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_id_outside_is_found_wherever_it_lies() {
        for (dtype, width) in [("uint16", 2_u64), (">u4", 4), ("int32", 4), ("int64", 8), ("uint64", 8)] {
            let dtype: Dtype = dtype.parse().unwrap();
            for header in [0, 10, 1024] {
                for wrong in [0_u64, 1, 4095, 4096, 9_999] {
                    let mut bytes = vec![0xFF; usize::try_from(header).unwrap()];
                    for token in 0..10_000 {
                        let id: u64 = if token == wrong { 300 } else { token % 300 };
                        let cell = if dtype.numpy_str().starts_with('>') {
                            id.to_be_bytes()
                        } else {
                            id.to_le_bytes()
                        };
                        let width = usize::try_from(width).unwrap();
                        let cell = if dtype.numpy_str().starts_with('>') {
                            &cell[8 - width..]
                        } else {
                            &cell[..width]
                        };
                        bytes.extend(cell);
                    }
                    bytes.extend([0xFF; 5]); // behind the tokens
                    let ids = Ids { first: header, end: header + 10_000 * width, dtype, vocabulary: 300 };
                    let mut found = None;
                    for (piece, part) in (0_u64..).zip(bytes.chunks(4096)) {
                        found = found.or(ids.outside(piece * 4096, part));
                    }
                    let place = header + wrong * width;
                    // A number that lies across two pieces is not looked at: real pieces are a megabyte, and headers
                    // a multiple of every width.
                    if header % width == 0 {
                        assert_eq!(
                            found,
                            Some(format!("at byte {place}: the id 300, the vocabulary has 300"))
                        );
                    }
                    let fine = Ids { vocabulary: 301, ..ids };
                    for (piece, part) in (0_u64..).zip(bytes.chunks(4096)) {
                        assert_eq!(fine.outside(piece * 4096, part), None, "{dtype} {header} {wrong}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_a_sign_is_no_id() {
        let ids = Ids { first: 0, end: 8, dtype: "int32".parse().unwrap(), vocabulary: 10 };
        let bytes: Vec<u8> = [3_i32, -1].iter().flat_map(|id| id.to_le_bytes()).collect();
        assert_eq!(ids.outside(0, &bytes).unwrap(), "at byte 4: the id -1, the vocabulary has 10");
        let ids = Ids { first: 0, end: 8, dtype: "uint64".parse().unwrap(), vocabulary: 10 };
        assert!(ids.outside(0, &u64::MAX.to_le_bytes()).unwrap().contains("above 2^63"));
    }
}
