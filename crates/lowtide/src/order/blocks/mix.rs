//! How large the blocks are and how many are mixed: the two numbers between speed and randomness.

use crate::error::{Error, Result};
use std::num::NonZeroU64;

/// The sizes of a block shuffle.
///
/// Larger blocks read faster, more blocks mix better, and their product has to be held in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Consecutive rows that are read together.
    pub block_rows: NonZeroU64,
    /// Blocks, at most, whose rows are shuffled together.
    pub buffer_blocks: NonZeroU64,
}

impl Mix {
    /// Blocks of `block_rows`, `buffer_blocks` of them at a time.
    ///
    /// # Errors
    /// [`Error::Argument`] where one of them is 0.
    pub fn new(block_rows: u64, buffer_blocks: u64) -> Result<Self> {
        let Some(block_rows) = NonZeroU64::new(block_rows) else {
            return Err(Error::argument(
                "a block of 0 rows holds nothing",
                "give the number of rows in a block",
            ));
        };
        let Some(buffer_blocks) = NonZeroU64::new(buffer_blocks) else {
            return Err(Error::argument(
                "0 blocks cannot be mixed",
                "give the number of blocks to hold in memory",
            ));
        };
        Ok(Self { block_rows, buffer_blocks })
    }

    /// The sizes for `len` rows of `row_bytes` each: the smallest block that a disk reads as fast as it can,
    /// and as many blocks as fit.
    ///
    /// `request_bytes` is the size of such a read: what the disk could have transferred in the time that
    /// a request takes, latency × bandwidth. `budget_bytes` is what the rows of one mix may take, with those
    /// that fill no block. Where the budget does not hold two such blocks they are made smaller, so that
    /// a mix fits in any budget that two rows fit in.
    pub fn choose(row_bytes: u64, len: u64, budget_bytes: u64, request_bytes: u64) -> Self {
        let row_bytes = row_bytes.max(1);
        let fitting = budget_bytes / row_bytes;
        // Two, because nearly a block of rows may be left over and join a mix.
        let block_rows = at_least_one(request_bytes.div_ceil(row_bytes).min(fitting / 2).min(len));
        let buffer_blocks = at_least_one(fitting.saturating_sub(len % block_rows) / block_rows);
        Self { block_rows, buffer_blocks }
    }
}

fn at_least_one(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap_or(NonZeroU64::MIN)
}
