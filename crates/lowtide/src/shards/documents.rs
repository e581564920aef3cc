//! Where documents begin and end in a stream of tokens, without holding them all in memory.
//!
//! Some dialects keep an index beside the tokens: its entries are read one at a time, when asked for.
//! For the others the stream is scanned once for its end-of-text token; what is kept is how many
//! documents begin in each block of 1 Mi tokens (8 bytes a block: 8 MB for 10^12 tokens), and asking
//! for a document scans one block again, or two. That little can be remembered beside the file.
//!
//! A document never crosses shards: where a shard ends, so does its last document, even where the writer
//! cut one in two to fill shards evenly, as llm.c's does. nanoGPT's token ends a document and is its last;
//! llm.c's begins one and is its first. What stands before the first token, or after the last, is a
//! document too.

mod index;
mod marks;
mod remember;
mod scan;

pub use scan::{BLOCK, BUFFER};

use super::TokenFile;
use crate::error::{Error, Result};
use crate::format::{Dtype, ReadAt};
use crate::interrupt::Interrupt;
use crate::store::Storage;
use index::Indexed;
use scan::Scanned;
use std::ops::Range;
use std::path::PathBuf;

/// Where documents begin and end.
#[derive(Debug)]
pub struct Documents(How);

#[derive(Debug)]
enum How {
    Indexed(Indexed),
    Scanned(Scanned),
}

/// Blocks at the beginning of a stream that are scanned for whoever looks there: some 10 ms from memory.
const FRONT: usize = 4;

/// Where the first documents begin and end.
#[derive(Debug)]
pub(crate) struct Front(Scanned);

impl Front {
    /// The tokens of document `i`, if it ends at the beginning of the stream.
    pub fn range(&self, i: u64, read: ReadAt<'_>) -> Result<Option<Range<u64>>> {
        if self.0.knows(i) { self.0.range(i, read).map(Some) } else { Ok(None) }
    }
}

impl Documents {
    /// From the index files beside the tokens, for the dialects that have them; `None` where no file has
    /// one. Every index is opened once and its totals are checked; entries are checked when they are read.
    ///
    /// # Errors
    /// [`Error::Format`] for an index that is damaged, [`Error::Argument`] where only some of the files have
    /// one.
    pub fn from_index(files: &[TokenFile]) -> Result<Option<Self>> {
        Self::from_index_in(files, &Storage::default())
    }

    /// The same of files that are in an object store.
    ///
    /// # Errors
    /// As [`from_index`](Self::from_index).
    pub fn from_index_in(files: &[TokenFile], storage: &Storage) -> Result<Option<Self>> {
        Ok(Indexed::open(files, storage)?.map(|indexed| Self(How::Indexed(indexed))))
    }

    /// By an end-of-text token, in [`BUFFER`] bytes of memory and one pass over the stream.
    ///
    /// `read` reads bytes of the concatenated tokens of all files (headers are not counted); `interrupt` is
    /// asked every now and then, and `progress` told how many tokens are done.
    ///
    /// # Errors
    /// [`Error::Argument`] for a token that the files' type cannot hold, and whatever the callbacks say.
    pub fn scan(
        files: &[TokenFile],
        end_of_text: u64,
        read: ReadAt<'_>,
        interrupt: Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<Self> {
        Ok(Self(How::Scanned(Scanned::scan(BLOCK, files, end_of_text, read, interrupt, progress)?)))
    }

    /// The same for the first few blocks of the stream: whoever looks at its beginning needs no pass over all of it.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub(crate) fn scan_front(files: &[TokenFile], end_of_text: u64, read: ReadAt<'_>) -> Result<Front> {
        Scanned::scan_front(BLOCK, FRONT, files, end_of_text, read).map(Front)
    }

    /// That files of this type can hold this token.
    pub(crate) fn check_end_of_text(token: u64, dtype: Dtype) -> Result<()> {
        marks::Mark::new(token, dtype).map(|_| ())
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        match &self.0 {
            How::Indexed(indexed) => indexed.len(),
            How::Scanned(scanned) => scanned.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of document `i` in the concatenated stream. `read` is as for [`scan`](Self::scan), and not
    /// asked where the files have indexes.
    ///
    /// # Errors
    /// [`Error::Index`] for a document that is not there, [`Error::Format`] for an entry that cannot be, and
    /// for a file that has changed since it was scanned.
    pub fn range(&self, i: u64, read: ReadAt<'_>) -> Result<Range<u64>> {
        let size = self.len();
        if i >= size {
            return Err(Error::Index { index: i.into(), axis: 0, size });
        }
        match &self.0 {
            How::Indexed(indexed) => indexed.range(i),
            How::Scanned(scanned) => scanned.range(i, read),
        }
    }

    /// Remembers what a scan found in `NAME.lowtide-documents` beside the first file, and says where. The
    /// file appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Argument`] for documents that have an index of their own, [`Error::Format`] where a file has
    /// changed since it was scanned, [`Error::Io`] where nothing can be written.
    pub fn save(&self, files: &[TokenFile]) -> Result<PathBuf> {
        match &self.0 {
            How::Indexed(_) => Err(Error::argument("these documents have an index already", "")),
            How::Scanned(scanned) => remember::save(scanned, files),
        }
    }

    /// What an earlier scan found, if it was of these very files (by name, size and time of change) and for
    /// this token. What is stale or damaged is as good as absent.
    pub fn load(files: &[TokenFile], end_of_text: u64) -> Option<Self> {
        remember::load(files, end_of_text).map(|scanned| Self(How::Scanned(scanned)))
    }
}

#[cfg(test)]
mod tests;
