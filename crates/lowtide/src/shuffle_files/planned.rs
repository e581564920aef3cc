//! How files are shuffled in a budget: what is decided before anything is read. Pure, but for what an array knows.

use crate::array::Array;
use crate::sort::passes::merged;
use crate::sort::plan::{Layout, Share, Work, bucket_rows};
use crate::sort::shares;
use crate::sys;

/// How files are shuffled.
pub(super) struct Planned {
    /// Rows of a bucket.
    pub(super) batch: u64,
    /// How many runs are merged into one before they are gathered; 1 where two passes are made.
    pub(super) each: u64,
    /// Bytes of one bucket in one run, as the first pass writes it.
    pub(super) piece: u64,
}

impl Planned {
    /// In so many times the budget; `None` where a row is too large for it.
    pub(super) fn of(arrays: &[Array], times: u64) -> Option<Self> {
        let inputs: Vec<_> = arrays.iter().map(Array::input).collect();
        let (rows, mut shares): (u64, Vec<Share>) = (arrays.first().map_or(0, Array::rows), shares(&inputs));
        for share in &mut shares {
            share.limit = share.limit.saturating_mul(times);
        }
        let batch = bucket_rows(rows, &shares, sys::page() as u64);
        let work = Work { rows, steps: rows.div_ceil(batch), batch };
        let run_rows = Layout::new(work, &shares)?.run_rows;
        let row: u64 = shares.iter().map(|share| share.row).max().unwrap_or(0);
        let bytes = u128::from(run_rows) * u128::from(batch) * u128::from(row) / u128::from(rows.max(1));
        // At least a row: it lies together.
        let piece = u64::try_from(bytes).unwrap_or(u64::MAX).max(row);
        Some(Self { batch, each: merged(work, run_rows, &shares), piece })
    }
}
