//! How one budget is divided. Everything is leased from it in the end, and a lease that does not fit is refused; here
//! is what everybody plans with, so that nobody has to be.

use super::tuning::{SCRATCH_COLD, THREAD, UNCOUNTED};

/// The parts of one budget while a pass reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Mapped pages.
    pub(crate) windows: u64,
    /// What is nobody's block: stacks, lists, rings.
    pub(crate) uncounted: u64,
    /// Chunks that are read before they are asked for.
    pub(crate) ahead: u64,
    /// Free: for scratch and bounce buffers, for a second iterator, for the chunk in the caller's hand.
    pub(crate) free: u64,
}

impl Shares {
    /// Of a budget of `limit` bytes, with so many bytes of windows and so many threads.
    pub(crate) fn new(limit: u64, windows: u64, threads: usize) -> Self {
        let free = limit - limit / 8 * 7;
        let windows = windows.min(limit - free);
        let uncounted = (UNCOUNTED + THREAD * threads as u64).min(limit / 6).min(limit - free - windows);
        Self { windows, uncounted, ahead: limit - free - windows - uncounted, free }
    }
}

/// What each of so many threads may take to merge reads from a disk in: half of what is free, together.
pub(crate) fn scratch(limit: u64, threads: usize) -> usize {
    usize::try_from(limit / 16 / threads.max(1) as u64).unwrap_or(usize::MAX).min(SCRATCH_COLD)
}

/// What the blocks of a mix may take: two groups of them, whose batches may be a fifth larger in memory than their rows,
/// and a quarter for what reads them.
pub(crate) fn mix(limit: u64) -> u64 {
    limit / 16 * 5
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DirectStore, WINDOWS, window_for};
    use proptest::prelude::*;

    proptest! {
        /// Whatever the budget, the way and the machine: the parts never exceed it.
        #[test]
        fn the_parts_never_exceed_the_budget(
            limit in prop_oneof![1u64..64 << 20, 1u64..1 << 50, Just(u64::MAX / 2)],
            mapped: bool,
            threads in 1usize..512,
        ) {
            let windows = if mapped { window_for(limit).map_or(0, |window| window * WINDOWS) } else { 0 };
            let Shares { windows: mapped, uncounted, ahead, free } = Shares::new(limit, windows, threads);
            prop_assert_eq!(mapped, windows, "windows are never planned smaller than they are");
            prop_assert_eq!(windows + uncounted + ahead + free, limit);
            // What reads them comes out of what is free: a scratch for each thread, a bounce buffer for each ring.
            let rings = DirectStore::rings(limit);
            let reading = scratch(limit, threads) as u64 * threads as u64
                + DirectStore::bounce_share(limit) as u64 * rings as u64;
            prop_assert!(reading <= free, "{} of {}", reading, free);
            prop_assert!(2 * mix(limit) + free <= limit);
            prop_assert!(limit < 1 << 20 || ahead >= limit / 3, "most of it is for rows");
        }
    }
}
