//! Which row of which run stands where in a run that is made of several: pure.
//!
//! It has bucket after bucket, and of each the rows of the first run, then those of the second, and so on: what the first
//! pass would have written, had its memory been as many times as large.

use std::ops::Range;

/// The order of rows in a run that is made of several.
#[derive(Clone, Copy, Debug)]
pub(super) struct Woven<'t> {
    /// For each run, and there for each bucket, how many rows stand up to the end of what that run has of that bucket.
    ends: &'t [u32],
    buckets: usize,
}

/// Makes ends of counts: of how many rows each run has of each bucket. How many there are of all.
pub(super) fn add_up(counts: &mut [u32], buckets: usize) -> u64 {
    let (runs, mut all) = (counts.len() / buckets.max(1), 0_u32);
    for bucket in 0..buckets {
        for run in 0..runs {
            let count = &mut counts[run * buckets + bucket];
            all += *count;
            *count = all;
        }
    }
    u64::from(all)
}

impl<'t> Woven<'t> {
    pub(super) fn new(ends: &'t [u32], buckets: usize) -> Self {
        Self { ends, buckets }
    }

    pub(super) fn runs(self) -> usize {
        self.ends.len() / self.buckets.max(1)
    }

    fn of(self, run: usize) -> &'t [u32] {
        &self.ends[run * self.buckets..][..self.buckets]
    }

    /// The rows of a run that stand in a stretch of the new one, in the order of both: how many from which place of the
    /// stretch on.
    pub(super) fn places(
        self,
        run: usize,
        stretch: Range<u64>,
    ) -> impl Iterator<Item = (usize, usize)> + use<'t> {
        let (mine, last) = (self.of(run), self.of(self.runs() - 1));
        let before = run.checked_sub(1).map(|before| self.of(before));
        let begin = move |bucket: usize| match before {
            Some(before) => before[bucket],
            None => bucket.checked_sub(1).map_or(0, |bucket| last[bucket]),
        };
        let first = last.partition_point(|&end| u64::from(end) <= stretch.start);
        (first..self.buckets)
            .map(move |bucket| (u64::from(begin(bucket)), u64::from(mine[bucket])))
            .take_while(move |&(begin, _)| begin < stretch.end)
            .filter_map(move |(begin, end)| {
                let (from, to) = (begin.max(stretch.start), end.min(stretch.end));
                let rows = to.checked_sub(from).filter(|&rows| rows > 0)?;
                Some((usize::try_from(from - stretch.start).ok()?, usize::try_from(rows).ok()?))
            })
    }

    /// How many rows of a run stand in a stretch.
    pub(super) fn rows(self, run: usize, stretch: Range<u64>) -> usize {
        self.places(run, stretch).map(|(_, rows)| rows).sum()
    }
}

/// Cuts the rows of runs, from row `from` on, into stretches of `room` at most, of one run each. A run has the rows from
/// its first up to the next one's, or to `end`.
pub(crate) fn stretches(first: Vec<u64>, end: u64, from: u64, room: u64) -> impl Iterator<Item = Range<u64>> {
    let mut begin = from;
    std::iter::from_fn(move || {
        let next = first.partition_point(|&first| first <= begin);
        let last = first.get(next).copied().unwrap_or(end).min(end);
        let stretch = begin..begin.saturating_add(room.max(1)).min(last);
        begin = stretch.end;
        (!stretch.is_empty()).then_some(stretch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// By sorting: rows of some buckets, cut into runs.
        #[test]
        fn every_row_has_the_place_that_sorting_gives_it(
            buckets in prop::collection::vec(0_usize..7, 1..200),
            cuts in prop::collection::vec(1_usize..60, 1..6),
            room in 1_u64..70,
        ) {
            const BUCKETS: usize = 7;
            let mut runs: Vec<Vec<usize>> = Vec::new(); // rows, sorted by bucket
            let mut row = 0_usize;
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let end = row.saturating_add(cut).min(buckets.len());
                let mut run: Vec<usize> = (row..end).collect();
                run.sort_by_key(|&row| buckets[row]);
                runs.push(run);
                row = end;
            }
            let mut want: Vec<usize> = (0..buckets.len()).collect();
            want.sort_by_key(|&row| buckets[row]);
            let mut counts = vec![0_u32; runs.len() * BUCKETS];
            for (run, rows) in runs.iter().enumerate() {
                for &row in rows {
                    counts[run * BUCKETS + buckets[row]] += 1;
                }
            }
            prop_assert_eq!(add_up(&mut counts, BUCKETS), buckets.len() as u64);
            let woven = Woven::new(&counts, BUCKETS);
            let mut taken = vec![0; runs.len()];
            let mut got = Vec::new();
            for stretch in stretches(vec![0], buckets.len() as u64, 0, room) {
                let mut here = vec![usize::MAX; usize::try_from(stretch.end - stretch.start).unwrap()];
                for (run, taken) in taken.iter_mut().enumerate() {
                    prop_assert_eq!(*taken, woven.rows(run, 0..stretch.start));
                    for (place, rows) in woven.places(run, stretch.clone()) {
                        here[place..place + rows].copy_from_slice(&runs[run][*taken..*taken + rows]);
                        *taken += rows;
                    }
                }
                got.extend(here);
            }
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn stretches_end_where_runs_do() {
        let all = |from, room| stretches(vec![0, 10, 25], 30, from, room).collect::<Vec<_>>();
        assert_eq!(all(0, 8), [0..8, 8..10, 10..18, 18..25, 25..30]);
        assert_eq!(all(12, 100), [12..25, 25..30]);
        assert_eq!(all(30, 8), []);
        assert_eq!(all(29, 0).len(), 1);
    }
}
