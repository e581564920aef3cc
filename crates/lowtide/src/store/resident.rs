//! Bytes that are held in memory: as a store like any other.

use super::{Cost, How, Nature, Read, Report, Store};
use crate::budget::pool::Block;
use crate::error::Result;
use crate::sys;
use std::path::PathBuf;

/// All bytes of something, in a block.
#[derive(Debug)]
pub(crate) struct Resident {
    /// Where they came from, for messages.
    pub(crate) path: PathBuf,
    pub(crate) block: Block,
}

/// A row costs a miss of the processor's cache.
const HELD: Cost = Cost { request: 100.0, byte: 0.1, waits: false };

impl Store for Resident {
    fn nature(&self) -> Nature {
        Nature::plain(HELD, sys::cores().min(2))
    }

    fn read(&self, reads: &mut [Read<'_>], _how: How<'_>) -> Result<Report> {
        for read in reads {
            let bytes = usize::try_from(read.offset).ok().zip(usize::try_from(read.end()).ok());
            let bytes = bytes.and_then(|(offset, end)| self.block.get(offset..end));
            let bytes = bytes.ok_or_else(|| read.cut(&self.path, self.block.len() as u64))?;
            read.into.copy_from_slice(bytes);
        }
        Ok(Report::default())
    }
}
