//! Where each of several pieces lies in the stream that they are end to end: pure arithmetic.

use crate::error::{Error, Result};
use crate::store::Read;
use std::ops::Range;

/// Pieces of files or objects, end to end.
#[derive(Debug)]
pub(super) struct Joined {
    /// The first byte of each piece in its own file.
    firsts: Vec<u64>,
    /// Where each piece ends in the stream.
    ends: Vec<u64>,
}

impl Joined {
    /// Of these bytes of each file; empty ones are fine.
    ///
    /// # Errors
    /// [`Error::Argument`] where they have more bytes than 63 bits can count.
    pub(super) fn new<'a>(pieces: impl ExactSizeIterator<Item = &'a Range<u64>>) -> Result<Self> {
        let mut end = 0_u64;
        let (mut firsts, mut ends) = (Vec::with_capacity(pieces.len()), Vec::with_capacity(pieces.len()));
        for bytes in pieces {
            end = bytes
                .end
                .checked_sub(bytes.start)
                .and_then(|len| end.checked_add(len))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| {
                    Error::argument("the files together have more bytes than 63 bits can count", "")
                })?;
            firsts.push(bytes.start);
            ends.push(end);
        }
        Ok(Self { firsts, ends })
    }

    /// Bytes of the stream.
    pub(super) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The piece that holds byte `at` of the stream.
    fn holder(&self, at: u64) -> usize {
        self.ends.partition_point(|&end| end <= at)
    }

    /// Where byte `at` of the stream, which piece `index` holds, lies in its file.
    fn in_file(&self, index: usize, at: u64) -> u64 {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.firsts[index] + (at - start)
    }

    /// The first read that asks for bytes past the end.
    pub(super) fn past_the_end<'r, 'a>(&self, reads: &'r [Read<'a>]) -> Option<&'r Read<'a>> {
        reads.iter().find(|read| read.end() > self.len() && !read.into.is_empty())
    }

    /// Reads of the stream, none of them past its end, as reads of the files, in their order.
    pub(super) fn split<'a>(&self, reads: &'a mut [Read<'_>]) -> Vec<(usize, Vec<Read<'a>>)> {
        if !reads.is_sorted_by_key(|read| read.offset) {
            reads.sort_unstable_by_key(|read| read.offset);
        }
        let mut groups: Vec<(usize, Vec<Read<'a>>)> = Vec::new();
        for read in reads {
            let (mut at, mut into) = (read.offset, &mut *read.into);
            while !into.is_empty() {
                let index = self.holder(at);
                let left = usize::try_from(self.ends[index] - at).unwrap_or(usize::MAX);
                let (mine, rest) = into.split_at_mut(left.min(into.len()));
                let offset = self.in_file(index, at);
                (at, into) = (at + mine.len() as u64, rest);
                let piece = Read { offset, into: mine };
                // A read that crosses into the next file may be followed by one that does not.
                match groups.iter_mut().rev().take(2).find(|(i, _)| *i == index) {
                    Some((_, reads)) => reads.push(piece),
                    None => groups.push((index, vec![piece])),
                }
            }
        }
        groups
    }

    /// The byte ranges of the files under some ranges of the stream.
    pub(super) fn split_ranges(&self, ranges: &[Range<u64>]) -> Vec<(usize, Vec<Range<u64>>)> {
        let mut groups: Vec<(usize, Vec<Range<u64>>)> = Vec::new();
        for range in ranges {
            let mut at = range.start;
            while at < range.end.min(self.len()) {
                let index = self.holder(at);
                let end = range.end.min(self.ends[index]);
                let first = self.in_file(index, at);
                if groups.last().is_none_or(|(i, _)| *i != index) {
                    groups.push((index, Vec::new()));
                }
                if let Some((_, ranges)) = groups.last_mut() {
                    ranges.push(first..first + (end - at));
                }
                at = end;
            }
        }
        groups
    }
}
