//! How a sort on disk is laid out, and what it costs: pure arithmetic.
//!
//! Rows are read in file order and written in *runs*, each sorted by *bucket*: the stretch of the shuffled order that a
//! row belongs to. Then bucket after bucket is gathered, a piece from every run. A run and a bucket are each as large
//! as the budget allows two of: one is filled while the other is written, or taken.

use crate::budget::pool::Block;
use crate::engine::tuning::{THREAD, UNCOUNTED};
use std::ops::Range;

/// What a row costs in a run beside its bytes: its number, and where it goes.
pub(crate) const KEPT_BYTES: u64 = size_of::<(u32, u32)>() as u64;
/// What a row costs in a bucket beside its bytes: its key; and its number and its key while the next bucket is planned.
pub(crate) const PLACED_BYTES: u64 = 3 * size_of::<u64>() as u64;
/// What is read of a bucket at once, while the rows of another such part go to their places.
const BOUNCE: u64 = 8 << 20;
/// Shorter pieces of a run than this cost a disk more in requests than in bytes: 14 µs against 0.5 ns a byte.
pub(crate) const SHORT: u64 = 32 << 10;
/// What is read of a file at once.
const PIECE: u64 = 1 << 20;

/// One of the inputs that are sorted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Bytes of its rows.
    pub(crate) row: u64,
    /// Its budget, divided among those that share it.
    pub(crate) limit: u64,
}

/// What is to be sorted: so many rows of this rank, delivered in steps of `batch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) rows: u64,
    pub(crate) steps: u64,
    pub(crate) batch: u64,
}

/// How large runs and buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rows in a run, at most.
    pub(crate) run_rows: u64,
    /// Steps in a bucket.
    pub(crate) bucket_steps: u64,
    /// How many buckets there are.
    pub(crate) buckets: u64,
    /// Rows that are read at once.
    pub(crate) piece_rows: u64,
    /// How many such pieces are read ahead.
    pub(crate) ahead: u64,
}

/// What one run or one bucket may take of a budget: twice that, and six sixteenths for whoever reads and writes them.
pub(crate) fn share(limit: u64) -> u64 {
    (limit - uncounted(limit)) / 16 * 5
}

/// What is nobody's block: stacks, lists, and what the system's allocator keeps for each thread.
pub(crate) fn uncounted(limit: u64) -> u64 {
    (UNCOUNTED + 4 * THREAD).min(limit / 6)
}

/// Bytes of a buffer for parts of a bucket: two of them are in use.
pub(crate) fn bounce(limit: u64, row: u64, align: u64) -> usize {
    let least = row.saturating_add(2 * align).next_multiple_of(align);
    usize::try_from((limit / 32).min(BOUNCE).next_multiple_of(align).max(least)).unwrap_or(usize::MAX)
}

/// Bytes of a file that are read at once, with whole rows in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// From one page to another.
    pub(crate) bytes: Range<u64>,
    /// Bytes before the first row.
    pub(crate) lead: usize,
    /// How many rows.
    pub(crate) rows: usize,
}

/// What is read together.
pub(crate) type Part = Vec<Extent>;

/// Cuts the pieces of a bucket, each so many rows from some byte on, into parts that fit a buffer of `room` bytes, which
/// holds any row and the pages that it touches.
pub(crate) fn parts(
    pieces: impl Iterator<Item = (u64, usize)>,
    row: u64,
    room: u64,
    align: u64,
) -> Vec<Part> {
    let (mut parts, mut free) = (Vec::<Part>::new(), 0);
    for (mut start, mut rows) in pieces {
        while rows > 0 {
            let first = start / align * align;
            let fits =
                |free: u64| (free.saturating_sub(start - first) / align * align).saturating_sub(align) / row;
            if fits(free) == 0 {
                parts.push(Part::new());
                free = room;
            }
            let taken = usize::try_from(fits(free)).unwrap_or(usize::MAX).clamp(1, rows);
            let end = start + taken as u64 * row;
            let bytes = first..end.next_multiple_of(align);
            free = free.saturating_sub(bytes.end - bytes.start);
            let lead = usize::try_from(start - first).unwrap_or(0);
            parts
                .last_mut()
                .into_iter()
                .for_each(|part| part.push(Extent { bytes: bytes.clone(), lead, rows: taken }));
            (start, rows) = (end, rows - taken);
        }
    }
    parts
}

impl Layout {
    /// `None` where not even one row fits in a run: rows of that size are read as quickly one by one.
    pub(crate) fn new(work: Work, inputs: &[Share]) -> Option<Self> {
        Self::divided(work, inputs, inputs)
    }

    /// The same, with other shares for reading runs than for making them.
    pub(crate) fn divided(work: Work, reading: &[Share], making: &[Share]) -> Option<Self> {
        let least = |inputs: &[Share], of: &dyn Fn(&Share, bool) -> u64| {
            inputs.iter().enumerate().map(|(index, input)| of(input, index == 0)).min()
        };
        let run_rows = least(making, &|input, first| {
            share(input.limit) / (input.row + if first { KEPT_BYTES } else { 0 }).max(1)
        })?;
        let batch = work.batch.min(work.rows).max(1);
        let bucket_steps = least(reading, &|input, first| {
            let bytes = usize::try_from(input.row.saturating_mul(batch)).unwrap_or(usize::MAX);
            let plan = if first { batch.saturating_mul(PLACED_BYTES) } else { 0 };
            share(input.limit) / Block::cost(bytes).saturating_add(plan).max(1)
        })?;
        // A place in a bucket and a slot in a run are 32-bit numbers.
        let most = u64::from(u32::MAX);
        if batch > most || run_rows == 0 {
            return None;
        }
        let bucket_steps = bucket_steps.min(most / batch).min(work.steps).max(1);
        let piece = |input: &Share, _| (input.limit / 128).min(PIECE) / input.row.max(1);
        let piece_rows = least(making, &piece)?.clamp(1, run_rows);
        let ahead = least(making, &|input, _| {
            let bytes = usize::try_from(input.row.saturating_mul(piece_rows)).unwrap_or(usize::MAX);
            input.limit / 8 / Block::cost(bytes).max(1)
        })?;
        Some(Self {
            run_rows: run_rows.min(most).min(work.rows.max(1)),
            bucket_steps,
            buckets: work.steps.div_ceil(bucket_steps),
            piece_rows,
            ahead: ahead.max(2),
        })
    }

    /// How many runs there are, at most one more than needed.
    pub(crate) fn runs(&self, rows: u64) -> u64 {
        rows.div_ceil(self.run_rows)
    }
}

/// Rows of a bucket that is written as one piece, wherever it begins on a page.
pub(crate) fn bucket_rows(rows: u64, inputs: &[Share], align: u64) -> u64 {
    let fits = |(index, input): (usize, &Share)| {
        let plan = if index == 0 { PLACED_BYTES } else { 0 };
        // A block is up to an eighth larger than what it holds.
        share(input.limit).saturating_sub(3 * align) / (input.row + input.row.div_ceil(8) + plan).max(1)
    };
    let most = inputs.iter().enumerate().map(fits).min().unwrap_or(0);
    most.clamp(1, rows.clamp(1, u64::from(u32::MAX)))
}

/// Bytes of the runs of one input on the disk: each begins where the disk likes it.
pub(crate) fn space(rows: u64, row: u64, runs: u64, align: u64) -> u64 {
    (rows.saturating_mul(row) / align).saturating_add(runs + 1).saturating_mul(align)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the rows and the budget: two runs, or two buckets, and what is read ahead leave an eighth free.
        #[test]
        fn what_is_held_at_once_fits_the_budget(
            rows in 1_u64..1 << 40,
            row in prop_oneof![1_u64..5_000, 1_u64..1 << 26],
            batch in 1_u64..100_000,
            limit in prop_oneof![1_u64..1 << 24, 1_u64..1 << 40],
        ) {
            let work = Work { rows, steps: rows.div_ceil(batch), batch };
            let Some(layout) = Layout::new(work, &[Share { row, limit }]) else {
                prop_assert!(row + KEPT_BYTES > share(limit), "only a row that is too large is refused");
                return Ok(());
            };
            let bytes = |rows: u64| usize::try_from(rows * row).unwrap();
            let run = Block::cost(bytes(layout.run_rows)).max(layout.run_rows * row);
            // A block is up to an eighth larger than what it holds; a small one up to a page, or twice.
            let run = run.min(layout.run_rows * row / 8 * 9 + 256);
            prop_assert!(2 * run <= limit / 16 * 12 + 512, "two runs take {} of {}", 2 * run, limit);
            let chunk = Block::cost(bytes(batch.min(rows))) + batch.min(rows) * PLACED_BYTES;
            prop_assert!(layout.bucket_steps == 1 || layout.bucket_steps * chunk <= share(limit));
            prop_assert!(layout.buckets * layout.bucket_steps >= work.steps);
            prop_assert!((layout.buckets - 1) * layout.bucket_steps < work.steps);
            prop_assert!(layout.run_rows > 0 && layout.piece_rows > 0 && layout.piece_rows <= layout.run_rows.max(rows));
            let pieces = layout.ahead * Block::cost(bytes(layout.piece_rows));
            prop_assert!(layout.ahead == 2 || pieces <= limit / 8);
        }
    }

    proptest! {
        #[test]
        fn parts_hold_every_row_once_and_fit(
            pieces in prop::collection::vec((0_u64..50_000, 0_usize..300), 0..20),
            row in prop_oneof![1_u64..40, 1_u64..20_000],
            limit in 1_u64..1 << 22,
        ) {
            let align = 4096;
            let room = bounce(limit, row, align) as u64;
            // Piece behind piece, as in runs.
            let mut end = 0;
            let pieces: Vec<(u64, usize)> = pieces.into_iter().map(|(gap, rows)| {
                let start = end + gap;
                end = start + rows as u64 * row;
                (start, rows)
            }).collect();
            let mut expected = pieces.iter().flat_map(|&(start, rows)| (0..rows as u64).map(move |n| start + n * row));
            for part in parts(pieces.iter().copied(), row, room, align) {
                prop_assert!(part.iter().map(|extent| extent.bytes.end - extent.bytes.start).sum::<u64>() <= room);
                for Extent { bytes, lead, rows } in part {
                    prop_assert!(bytes.start % align == 0 && bytes.end % align == 0 && (lead as u64) < align);
                    for n in 0..rows as u64 {
                        let at = bytes.start + lead as u64 + n * row;
                        prop_assert_eq!(Some(at), expected.next());
                        prop_assert!(at + row <= bytes.end);
                    }
                }
            }
            prop_assert_eq!(expected.next(), None);
        }
    }

    #[test]
    fn a_gigabyte_in_a_budget_of_64_mib() {
        let work = Work { rows: 1 << 21, steps: 512, batch: 4096 };
        let layout = Layout::new(work, &[Share { row: 512, limit: 64 << 20 }]).unwrap();
        assert_eq!(layout.runs(work.rows), 59);
        assert_eq!((layout.bucket_steps, layout.buckets), (8, 64));
        // Labels beside them share the budget, and the rows decide.
        let shares = [Share { row: 512, limit: 32 << 20 }, Share { row: 8, limit: 32 << 20 }];
        assert_eq!(Layout::new(work, &shares).unwrap().runs(work.rows), 125);
    }
}
