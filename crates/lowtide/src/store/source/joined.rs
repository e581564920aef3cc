//! Where each of several pieces lies in the stream that they are end to end: pure arithmetic.

use crate::error::{Error, Result};
use crate::store::{Read, sort};
use std::ops::Range;
use std::path::Path;

/// Pieces of files or objects, end to end.
#[derive(Debug)]
pub(in crate::store) struct Joined {
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

    /// Where a byte of the stream is in its own file.
    pub(super) fn place(&self, at: u64) -> u64 {
        let one = at..at.saturating_add(1);
        self.pieces(one).next().map_or(at, |(_, bytes)| bytes.start)
    }

    /// Which pieces a range of the stream touches, and which bytes of their files that is.
    pub(in crate::store) fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<u64>)> {
        let (mut at, end) = (range.start, range.end.min(self.len()));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let index = self.ends.partition_point(|&end| end <= at);
            let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
            let (first, len) = (self.firsts[index] + (at - start), end.min(self.ends[index]) - at);
            at += len;
            Some((index, first..first + len))
        })
    }

    /// Refuses a read that asks for bytes past the end, which is that of `path`.
    pub(super) fn check(&self, path: &Path, reads: &[Read<'_>]) -> Result<()> {
        let past = reads.iter().find(|read| read.end() > self.len() && !read.into.is_empty());
        past.map_or(Ok(()), |read| Err(read.cut(path, self.len())))
    }

    /// Reads of the stream, none of them past its end, as reads of the files, in their order.
    pub(super) fn split<'a>(&self, reads: &'a mut [Read<'_>]) -> Vec<(usize, Vec<Read<'a>>)> {
        sort(reads);
        let mut groups: Vec<(usize, Vec<Read<'a>>)> = Vec::new();
        for read in reads {
            let pieces = self.pieces(read.offset..read.end());
            let mut rest = &mut *read.into;
            for (index, bytes) in pieces {
                let len = usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX);
                let (into, others) = rest.split_at_mut(len);
                rest = others;
                let piece = Read { offset: bytes.start, into };
                // A read that crosses into the next file may be followed by one that does not.
                match groups.iter_mut().rev().take(2).find(|(i, _)| *i == index) {
                    Some((_, reads)) => reads.push(piece),
                    None => groups.push((index, vec![piece])),
                }
            }
        }
        groups
    }
}
