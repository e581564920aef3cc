//! Which positions a rank takes, and when: one stream of positions, cut into steps, each step cut into
//! one batch a rank.
//!
//! The stream does not depend on the number of ranks, so neither does the state of a run: it is the
//! position that all ranks together have reached, and it loads under any number of them. With B rows a
//! batch and W ranks, a step is G = B × W positions. A run of 4 ranks × 8 rows and one of 2 × 16 see the
//! same rows at the same step.
//!
//! ```text
//!  start                                            len
//!  │ rank 0 │ rank 1 │ rank 0 │ rank 1 │rank 0│rank 1│
//!  └───── step 0 ────┴───── step 1 ────┴─── last ────┘
//! ```

use crate::door::{BATCH_SIZE, Words};
use crate::error::{Error, Result};
use std::ops::Range;

/// One of the processes that share an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    rank: u64,
    world_size: u64,
}

/// What becomes of the positions after the last full step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStep {
    /// They are left out: fewer than G.
    Drop,
    /// They are dealt out evenly, so that all ranks have equally many steps; refused when there are
    /// fewer of them than ranks.
    Split,
}

impl Default for Shard {
    fn default() -> Self {
        Self::ALONE
    }
}

impl Shard {
    /// The only process.
    pub const ALONE: Self = Self { rank: 0, world_size: 1 };

    /// Rank `rank` of `world_size`, counted from 0.
    pub fn new(rank: u64, world_size: u64) -> Result<Self> {
        if world_size == 0 {
            return Err(Error::argument("world_size is 0", "it counts all ranks, this one included"));
        }
        if rank >= world_size {
            return Err(Error::argument(
                format!("rank {rank} is out of range for a world_size of {world_size}"),
                "ranks are counted from 0",
            ));
        }
        Ok(Self { rank, world_size })
    }

    /// Which one this is.
    pub fn rank(self) -> u64 {
        self.rank
    }

    /// How many there are.
    pub fn world_size(self) -> u64 {
        self.world_size
    }

    /// The words for a step in which each rank takes one `share` (several are `shares`) of so many.
    pub(crate) fn step_words(self, of: u64, share: &str, shares: &str) -> String {
        match self.world_size {
            1 => format!("a {share} of {of}"),
            ranks => format!("a step of {ranks} ranks with {shares} of {of}"),
        }
    }

    /// The steps of this rank over positions `start..len`, `batch` rows a step.
    pub fn steps(self, len: u64, start: u64, batch: u64, last: LastStep) -> Result<Steps> {
        if batch == 0 {
            return Err(Error::argument("batch_size is 0", ""));
        }
        if start > len {
            return Err(Error::argument(
                format!("the position to start from is {start}, there are only {len}"),
                "is the state from another dataset?",
            ));
        }
        let Some(global) = batch.checked_mul(self.world_size) else {
            return Err(Error::argument(
                format!("batch_size {batch} × world_size {} does not fit in 64 bits", self.world_size),
                "",
            ));
        };
        let rest = (len - start) % global;
        let count = (len - start) / global + u64::from(last == LastStep::Split && rest > 0);
        if last == LastStep::Split && rest > 0 && rest < self.world_size {
            return Err(Error::argument(
                format!(
                    "the last step is enough for {rest} of {} ranks, so that the others would have one batch fewer",
                    self.world_size
                ),
                Words::from("drop the last step (drop_last=True), or choose another number for ")
                    + BATCH_SIZE,
            ));
        }
        let (shard, turn) = (self, Turn::ALL);
        Ok(Steps { shard, start, len, batch, global, head: count, each: 0, total: count, count, last, turn })
    }
}

/// All steps of one rank: checked once, so that no question about them can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    shard: Shard,
    start: u64,
    len: u64,
    batch: u64,
    /// The positions of a full step, over all ranks.
    global: u64,
    /// Steps of the first epoch, in all turns.
    head: u64,
    /// Steps of each epoch after it.
    each: u64,
    /// Steps of all turns.
    total: u64,
    /// Steps of this turn.
    count: u64,
    last: LastStep,
    turn: Turn,
}

/// Several readers of one rank take its steps in turns, as the workers of torch's `DataLoader` do: step
/// `first`, and every `of`-th after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    first: u64,
    of: u64,
}

impl Turn {
    /// One reader takes all steps.
    pub const ALL: Self = Self { first: 0, of: 1 };

    /// Step `first` and every `of`-th after it.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `first` is below `of`.
    pub fn new(first: u64, of: u64) -> Result<Self> {
        if first < of {
            Ok(Self { first, of })
        } else {
            Err(Error::argument(format!("turn {first} of {of} does not exist"), "they are counted from 0"))
        }
    }

    /// The first step of this turn.
    pub fn first(self) -> u64 {
        self.first
    }

    /// How many turns there are.
    pub fn of(self) -> u64 {
        self.of
    }

    /// The turn in the next epoch, after one of `steps` steps: the readers go on in the same order.
    #[must_use]
    pub fn after(self, steps: u64) -> Self {
        Self { first: (self.first + self.of - steps % self.of) % self.of, of: self.of }
    }
}

impl Steps {
    /// The same through so many epochs, this one included: position p of the next one is `len` + p, and so on. No step
    /// reaches from one epoch into another. Fewer epochs, where their positions could not be counted.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step of a whole epoch.
    pub fn through(self, epochs: u64) -> Result<Self> {
        let each = self.restart(self.len, 0)?.total;
        let more = epochs.min(u64::MAX / self.len.max(1)).saturating_sub(1);
        let total = self.head.saturating_add(each.saturating_mul(more));
        Ok(Self { each, total, ..self }.taking(self.turn))
    }

    /// Only the steps of one turn.
    #[must_use]
    pub fn taking(self, turn: Turn) -> Self {
        Self { turn, count: self.total.saturating_sub(turn.first).div_ceil(turn.of), ..self }
    }

    /// How many steps there are in all turns together.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many steps there are: the same on every rank.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The same rank and batch over positions `start..len`.
    pub fn restart(&self, len: u64, start: u64) -> Result<Self> {
        self.shard.steps(len, start, self.batch, self.last)
    }

    /// Positions that one rank takes in a full step.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// The first position.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The positions that this rank takes at `step`, never empty; `None` after the last step.
    pub fn range(&self, step: u64) -> Option<Range<u64>> {
        if step >= self.count {
            return None;
        }
        let (epoch, first) = self.place(self.turn.first + step * self.turn.of);
        let there = (self.len - first).min(self.global);
        let first = epoch * self.len + first;
        Some(if there == self.global {
            let first = first + self.shard.rank * self.batch;
            first..first + self.batch
        } else {
            first + self.share(there, self.shard.rank)..first + self.share(there, self.shard.rank + 1)
        })
    }

    /// Where step `step` of all turns begins: how many epochs on, and the position in that one.
    fn place(&self, step: u64) -> (u64, u64) {
        match step.checked_sub(self.head) {
            Some(behind) if self.each > 0 => (1 + behind / self.each, behind % self.each * self.global),
            _ => (0, self.start + step * self.global),
        }
    }

    /// The step in which this rank takes a position of one epoch, if it does: the inverse of [`range`](Self::range).
    #[inline]
    pub(crate) fn step_of(&self, position: u64) -> Option<u64> {
        let from = position.checked_sub(self.start)?;
        let (round, within) = (from / self.global, from % self.global);
        let turns = round.checked_sub(self.turn.first)?;
        let step = if self.turn.of == 1 { turns } else { turns / self.turn.of };
        if step >= self.count || (self.turn.of > 1 && !turns.is_multiple_of(self.turn.of)) {
            return None;
        }
        let first = self.shard.rank * self.batch;
        // Only the last step is ever short, and dealt out in other shares.
        let full = step + 1 < self.count || (self.len - (position - within)) >= self.global;
        let mine = if full {
            within >= first && within - first < self.batch
        } else {
            self.range(step).is_some_and(|range| range.contains(&position))
        };
        mine.then_some(step)
    }

    /// How many positions this rank takes from step `from` on, up to step `to`; `u64::MAX` where they cannot be counted:
    /// epochs without end are 2^64 steps.
    pub(crate) fn taken(&self, from: u64, to: u64) -> u64 {
        let to = to.min(self.count);
        let last = to.checked_sub(1).filter(|&last| last >= from).and_then(|last| self.range(last));
        last.map_or(0, |last| {
            (to - 1 - from).saturating_mul(self.batch).saturating_add(last.end - last.start)
        })
    }

    /// The position that all ranks together have reached after `step`: what a state holds. In turns, when
    /// every reader has taken as many. Of several epochs, how many were gone through, and the position in the next.
    pub fn place_after(&self, step: u64) -> (u64, u64) {
        let taken = (u128::from(step) + 1).saturating_mul(self.turn.of.into());
        match u64::try_from(taken) {
            Ok(taken) if taken < self.total => self.place(taken),
            _ if self.each > 0 => (1 + (self.total - self.head).div_ceil(self.each), 0),
            _ => (0, self.len.min(self.start.saturating_add(self.total.saturating_mul(self.global)))),
        }
    }

    /// The same in one epoch.
    pub fn position_after(&self, step: u64) -> u64 {
        self.place_after(step).1
    }

    /// Where the share of `rank` begins when `rows` are dealt out evenly.
    fn share(&self, rows: u64, rank: u64) -> u64 {
        let share = u128::from(rows) * u128::from(rank) / u128::from(self.shard.world_size);
        u64::try_from(share).unwrap_or(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::LastStep::{Drop, Split};
    use super::*;
    use proptest::prelude::*;

    /// What every rank takes at `step`, in the order of ranks.
    fn ranges(
        world_size: u64,
        len: u64,
        start: u64,
        batch: u64,
        last: LastStep,
        step: u64,
    ) -> Vec<Range<u64>> {
        let of = |rank| Shard::new(rank, world_size).unwrap().steps(len, start, batch, last).unwrap();
        (0..world_size).map(|rank| of(rank).range(step).unwrap()).collect()
    }

    fn turn_of(steps: &Steps) -> Turn {
        steps.turn
    }

    /// The positions of a step over all ranks, after checking that they lie end to end.
    fn union(ranges: &[Range<u64>]) -> Range<u64> {
        assert!(ranges.iter().all(|range| !range.is_empty()), "{ranges:?}");
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
        ranges[0].start..ranges[ranges.len() - 1].end
    }

    #[test]
    fn by_hand() {
        // 2 ranks × 3 rows over 5..22: two full steps, and five positions left.
        assert_eq!(ranges(2, 22, 5, 3, Split, 0), [5..8, 8..11]);
        assert_eq!(ranges(2, 22, 5, 3, Split, 1), [11..14, 14..17]);
        assert_eq!(ranges(2, 22, 5, 3, Split, 2), [17..19, 19..22]);
        let rank = Shard::new(1, 2).unwrap();
        let (split, drop) = (rank.steps(22, 5, 3, Split).unwrap(), rank.steps(22, 5, 3, Drop).unwrap());
        assert_eq!((split.count(), drop.count()), (3, 2));
        assert_eq!((split.range(3), drop.range(2)), (None, None));
        assert_eq!([0, 1, 2, u64::MAX].map(|step| split.position_after(step)), [11, 17, 22, 22]);
    }

    #[test]
    fn nothing_left_is_no_step() {
        for last in [Drop, Split] {
            for len in [0, 7] {
                let steps = Shard::ALONE.steps(len, len, 4, last).unwrap();
                assert_eq!((steps.count(), steps.range(0)), (0, None));
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let steps = |world_size, len, start, batch| {
            Shard::new(0, world_size).and_then(|shard| shard.steps(len, start, batch, Split))
        };
        for (result, says) in [
            (steps(0, 9, 0, 1), "world_size is 0"),
            (Shard::new(4, 4).and_then(|shard| shard.steps(9, 0, 1, Drop)), "rank 4 is out of range"),
            (steps(1, 9, 0, 0), "batch_size is 0"),
            (steps(1, 9, 10, 1), "the position to start from is 10, there are only 9"),
            (steps(1 << 32, 9, 0, 1 << 32), "does not fit in 64 bits"),
            (steps(4, 18, 0, 4), "the last step is enough for 2 of 4 ranks"),
        ] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let last_rank = Shard::new(u64::MAX - 1, u64::MAX).unwrap().steps(u64::MAX, 0, 1, Split).unwrap();
        assert_eq!(last_rank.range(0), Some(u64::MAX - 1..u64::MAX));
        let steps = Shard::new(2, 3).unwrap().steps(u64::MAX, 1 << 63, u64::MAX / 3, Split).unwrap();
        assert_eq!(steps.count(), 1);
        assert_eq!(steps.range(0).unwrap().end, u64::MAX);
        assert_eq!(steps.position_after(0), u64::MAX);
        assert_eq!(steps.position_after(u64::MAX), u64::MAX);
    }

    /// A stream, a place in it, a batch and a number of ranks.
    fn run() -> impl Strategy<Value = (u64, u64, u64, u64)> {
        (0_u64..3_000).prop_flat_map(|len| (Just(len), 0..=len, 1_u64..40, 1_u64..20))
    }

    proptest! {
        #[test]
        fn turns_together_take_every_step_once_and_go_on_in_order(
            (len, start, batch, world_size) in run(), of in 1_u64..6, epochs in 1_usize..4
        ) {
            let steps = Shard::new(0, world_size).unwrap().steps(len, start, batch, Drop).unwrap();
            // What readers would do who pass the stream of all epochs' steps from hand to hand.
            let mut turns: Vec<Turn> = (0..of).map(|first| Turn::new(first, of).unwrap()).collect();
            let readers = turns.len();
            let mut next = 0;
            for _ in 0..epochs {
                let mut taken = vec![0; readers];
                for (step, reader) in (0..steps.count()).zip((0..readers).cycle().skip(next)) {
                    let mine = steps.taking(turns[reader]);
                    prop_assert_eq!(mine.range(taken[reader]), steps.range(step));
                    taken[reader] += 1;
                }
                next = (next + usize::try_from(steps.count()).unwrap()) % readers;
                for (turn, taken) in turns.iter_mut().zip(taken) {
                    prop_assert_eq!(steps.taking(*turn).count(), taken);
                    // Taking it up again between any two steps goes on exactly there.
                    if taken > 1 {
                        let rest = steps.restart(len, steps.taking(*turn).position_after(0)).unwrap();
                        prop_assert_eq!(rest.taking(*turn).range(0), steps.taking(*turn).range(1));
                    }
                    *turn = turn.after(steps.count());
                }
            }
        }

        /// Against one epoch after the other, each with the turn that the one before it leaves.
        #[test]
        fn epochs_follow_each_other(
            (len, start, batch, world_size) in run(), epochs in 1_u64..5, (first, of) in (0_u64..4, 1_u64..4)
        ) {
            let Ok(mut turn) = Turn::new(first, of) else { return Ok(()) };
            for (rank, last) in [(0, Drop), (world_size - 1, Split)] {
                let steps = |start| Shard::new(rank, world_size).unwrap().steps(len, start, batch, last);
                let (Ok(head), Ok(_)) = (steps(start), steps(0)) else { continue };
                let all = head.through(epochs).unwrap().taking(turn);
                let mut taken = 0;
                for epoch in 0..epochs {
                    let one = steps(if epoch == 0 { start } else { 0 }).unwrap();
                    for step in 0..one.taking(turn).count() {
                        let range = one.taking(turn).range(step).unwrap();
                        prop_assert_eq!(all.range(taken), Some(epoch * len + range.start..epoch * len + range.end));
                        taken += 1;
                        let (passed, position) = all.place_after(taken - 1);
                        let here = head.restart(len, if passed == 0 { start } else { 0 }).unwrap();
                        prop_assert!(passed <= epochs && position <= len && (passed == 0 || here.total() > 0));
                        // Whoever goes on from there with the same turn takes the very next step.
                        if let Some(next) = all.range(taken) {
                            let rest = steps(position).unwrap().through(epochs - passed).unwrap().taking(turn_of(&all));
                            let next = next.start - passed * len..next.end - passed * len;
                            prop_assert_eq!(rest.range(0), Some(next));
                        }
                    }
                    turn = turn.after(one.total());
                }
                prop_assert_eq!(all.range(taken), None);
                prop_assert_eq!(all.count(), taken);
                turn = Turn::new(first, of).unwrap();
            }
        }

        #[test]
        fn every_position_is_taken_once((len, start, batch, world_size) in run()) {
            for last in [Drop, Split] {
                let Ok(steps) = Shard::new(0, world_size).unwrap().steps(len, start, batch, last) else {
                    prop_assert!(last == Split && (len - start) % (batch * world_size) < world_size);
                    continue;
                };
                let mut reached = start;
                for step in 0..steps.count() {
                    let ranges = ranges(world_size, len, start, batch, last, step);
                    let sizes = ranges.iter().map(|range| range.end - range.start);
                    let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
                    prop_assert!(most <= batch && most - least <= 1);
                    let union = union(&ranges);
                    prop_assert_eq!(union.start, reached);
                    reached = union.end;
                    prop_assert_eq!(steps.position_after(step), reached);
                }
                match last {
                    Split => prop_assert_eq!(reached, len),
                    Drop => prop_assert!(len - reached < batch * world_size),
                }
            }
        }

        /// Against the ranges, position by position.
        #[test]
        fn the_step_of_a_position_is_the_one_that_takes_it(
            (len, start, batch, world_size) in run(), rank in 0_u64..20, of in 1_u64..4, drop: bool,
        ) {
            let (shard, last) = (Shard::new(rank % world_size, world_size).unwrap(), if drop { Drop } else { Split });
            let Ok(steps) = shard.steps(len, start, batch, last) else { return Ok(()) };
            let steps = steps.taking(Turn::new(rank % of, of).unwrap());
            let mut expected = vec![None; usize::try_from(len).unwrap()];
            for step in 0..steps.count() {
                for position in steps.range(step).unwrap() {
                    expected[usize::try_from(position).unwrap()] = Some(step);
                }
            }
            for (position, expected) in (0..).zip(&expected) {
                prop_assert_eq!(steps.step_of(position), *expected);
            }
            prop_assert_eq!(steps.step_of(len), None);
            let from = |first: u64| expected.iter().flatten().filter(|&&step| step >= first).count() as u64;
            for first in [0, 1, steps.count() / 2, steps.count(), steps.count() + 1] {
                prop_assert_eq!(steps.taken(first, u64::MAX), from(first));
            }
        }

        #[test]
        fn a_step_does_not_depend_on_the_number_of_ranks(
            (len, start, batch, ranks) in run(), more in 1_u64..8
        ) {
            // G = batch × more × ranks, by few ranks with large batches and by many with small ones.
            for last in [Drop, Split] {
                let few = Shard::new(0, ranks).unwrap().steps(len, start, batch * more, last);
                let many = Shard::new(0, ranks * more).unwrap().steps(len, start, batch, last);
                let (Ok(few), Ok(many)) = (few, many) else { continue };
                prop_assert_eq!(few.count(), many.count());
                for step in 0..few.count() {
                    let few = ranges(ranks, len, start, batch * more, last, step);
                    let many = ranges(ranks * more, len, start, batch, last, step);
                    prop_assert_eq!(union(&few), union(&many));
                }
            }
        }

        #[test]
        fn a_run_goes_on_under_another_number_of_ranks(
            (len, start, batch, ranks) in run(), other_batch in 1_u64..40, other_ranks in 1_u64..20
        ) {
            let steps = Shard::new(0, ranks).unwrap().steps(len, start, batch, Drop).unwrap();
            for step in 0..steps.count() {
                let position = steps.position_after(step);
                prop_assert_eq!(position, union(&ranges(ranks, len, start, batch, Drop, step)).end);
                let other = Shard::new(0, other_ranks).unwrap();
                let Ok(other) = other.steps(len, position, other_batch, Split) else { continue };
                let mut reached = position;
                for step in 0..other.count() {
                    let union = union(&ranges(other_ranks, len, position, other_batch, Split, step));
                    prop_assert_eq!(union.start, reached);
                    reached = union.end;
                }
                prop_assert_eq!(reached, len);
                // The same ranks go on exactly where they would have been.
                let again = Shard::new(0, ranks).unwrap().steps(len, position, batch, Drop).unwrap();
                prop_assert_eq!(again.count(), steps.count() - step - 1);
                prop_assert_eq!(again.range(0), steps.range(step + 1));
            }
        }
    }
}
