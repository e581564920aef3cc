//! Whether runs are merged into longer ones before they are gathered, and how many into one: pure.
//!
//! Two passes read a piece of every run for every bucket. Where the budget is small for the data there are many of both,
//! and pieces are short. A pass in between makes one run of several: it moves all of the data once more, and takes a piece
//! of each of those runs for every stretch that it writes. As many are merged as make the pieces of the last pass long,
//! and no more than the root of their number: then both passes have as many pieces.

use super::plan::{SHORT, Share, Work, uncounted};

/// What a request costs, in picoseconds: as in [`SHORT`].
const REQUEST: u128 = 14_000_000;
/// What a byte costs that is read, put in order and written once more, in picoseconds: 2 GiB took 3 s, in a dozen runs by
/// hand on two cores beside other work. Two passes with pieces of 7.4 KB took as long as three.
const BYTE: u128 = 1_400;

/// How many runs are merged into one: at most as many as a budget has room to count the rows of, bucket by bucket.
pub(crate) fn most_merged(limit: u64, buckets: u64) -> u64 {
    let room = limit.saturating_sub(uncounted(limit)) / 8;
    room / buckets.saturating_mul(size_of::<u32>() as u64).max(1)
}

/// How many runs of `run_rows` are best merged into one before they are gathered in buckets, of which each is a step;
/// 1 where two passes take no longer.
pub(crate) fn merged(work: Work, run_rows: u64, inputs: &[Share]) -> u64 {
    let (rows, buckets, run_rows) = (work.rows, work.steps, run_rows.max(1));
    let runs = rows.div_ceil(run_rows);
    // The number of a row in its run has 32 bits.
    let limit = inputs.first().map_or(0, |input| input.limit);
    let most = most_merged(limit, buckets).min(u64::from(u32::MAX) / run_rows).min(runs);
    if most < 2 {
        return 1;
    }
    let row = inputs.iter().map(|input| input.row).max().unwrap_or(0);
    let piece = u128::from(run_rows) * u128::from(work.batch) * u128::from(row) / u128::from(rows);
    let long = u64::try_from(u128::from(SHORT).div_ceil(piece.max(1))).unwrap_or(u64::MAX);
    let groups = runs.div_ceil(long.min(runs.isqrt()).clamp(2, most));
    let each = runs.div_ceil(groups); // no last one of a few runs
    let files = inputs.iter().filter(|input| input.row > 0).count() as u128;
    // A piece has a row at least.
    let requests = |pieces: u128| pieces.min(u128::from(rows)) * files;
    let pieces = |of: u64| requests(u128::from(of) * u128::from(buckets));
    let bytes: u128 = inputs.iter().map(|input| u128::from(input.row) * u128::from(rows)).sum();
    let two = pieces(runs) * REQUEST;
    let three = (pieces(groups) + pieces(each)) * REQUEST + bytes * BYTE;
    if three < two { each } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Layout, bounce, bucket_rows};
    use super::*;
    use crate::budget::pool::Block;
    use proptest::prelude::*;

    /// Of a file, how many runs there are and how many are merged, and bytes of a piece in two passes.
    fn planned(bytes: u64, row: u64, limit: u64) -> (u64, u64, u64) {
        let (rows, inputs) = (bytes / row, [Share { row, limit }]);
        let batch = bucket_rows(rows, &inputs, 4096);
        let work = Work { rows, steps: rows.div_ceil(batch), batch };
        let layout = Layout::new(work, &inputs).unwrap();
        let piece = layout.run_rows * batch * row / rows;
        (layout.runs(rows), merged(work, layout.run_rows, &inputs), piece)
    }

    #[test]
    fn a_third_pass_is_made_where_pieces_are_short_and_no_sooner() {
        // Pieces of 8 KB, of which four become one, cost as much as all of it costs to be moved once more.
        for limit in (2..60).map(|n| n << 20) {
            let (runs, each, piece) = planned(2 << 30, 512, limit);
            match piece {
                ..7_000 => assert!(each > 1, "{limit}: {piece}"),
                9_001.. => assert_eq!(each, 1, "{limit}: {piece}"),
                _ => {}
            }
            assert!(
                each == 1
                    || piece * each > SHORT / 10 * 9
                    || each.abs_diff(runs.isqrt()) <= 1
                    || limit < 4 << 20
            );
        }
        let (runs, each, piece) = planned(2 << 30, 512, 16 << 20);
        assert_eq!((runs, each, piece), (500, 5, 7447));
    }

    #[test]
    fn where_it_helps_nothing_there_is_none() {
        let inputs = [Share { row: 512, limit: 1 << 20 }];
        let work = |rows, batch: u64| Work { rows, steps: rows.div_ceil(batch), batch };
        assert_eq!(merged(work(1 << 20, 400), 500, &inputs), 10, "more could not be counted");
        assert_eq!(merged(work(1 << 40, 400), 500, &inputs), 1, "nor two");
        assert_eq!(merged(work(0, 1), 500, &inputs), 1);
        assert_eq!(
            merged(work(1 << 40, 1 << 30), 1 << 31, &[Share { row: 1, limit: 1 << 40 }]),
            1,
            "32 bits"
        );
        assert_eq!(merged(work(1 << 22, 400), 500, &[Share { row: 0, limit: 1 << 20 }]), 1, "no bytes");
        // A row is a piece by itself: large ones are.
        assert_eq!(planned(1 << 32, 1 << 20, 16 << 20).1, 1);
    }

    proptest! {
        #[test]
        fn what_is_merged_can_be_counted_and_costs_less(
            rows in 1_u64..1 << 44,
            row in prop_oneof![0_u64..40, 1_u64..100_000],
            other in 0_u64..100,
            limit in 1_u64..1 << 36,
        ) {
            let inputs = [Share { row, limit }, Share { row: other, limit }];
            let batch = bucket_rows(rows, &inputs, 4096);
            let work = Work { rows, steps: rows.div_ceil(batch), batch };
            let Some(layout) = Layout::new(work, &inputs) else { return Ok(()) };
            let each = merged(work, layout.run_rows, &inputs);
            let runs = layout.runs(rows);
            prop_assert!(each >= 1 && each <= runs.max(1));
            if each > 1 {
                prop_assert!(each <= most_merged(limit, work.steps));
                prop_assert!(u32::try_from(each.checked_mul(layout.run_rows).unwrap()).is_ok());
                prop_assert!(runs.div_ceil(each) + each < runs + 1, "{each} of {runs}");
            }
        }

        /// What is written and what is made, parts of what is read, and counts: all of it at once.
        #[test]
        fn what_the_pass_in_between_holds_fits_the_budget(
            rows in 1_u64..1 << 36,
            row in 1_u64..30_000,
            limit in 1_u64 << 20..1 << 36,
        ) {
            let inputs = [Share { row, limit }];
            let batch = bucket_rows(rows, &inputs, 4096);
            let work = Work { rows, steps: rows.div_ceil(batch), batch };
            let layout = Layout::new(work, &inputs).unwrap();
            let each = merged(work, layout.run_rows, &inputs);
            let cost = |bytes: u64| Block::cost(usize::try_from(bytes).unwrap());
            let sheet = cost((batch * row).next_multiple_of(4096) + 4096);
            let part = cost(bounce(limit, row, 4096) as u64);
            let held = 2 * sheet + 2 * part + cost(each * work.steps * 4);
            prop_assert!(each == 1 || held + uncounted(limit) <= limit, "{held} of {limit}");
        }
    }
}
