//! Whether axes are turned in one pass or in two: pure.
//!
//! One pass moves every byte once in and once out, in runs that are as short as the memory is small. Two passes move all of
//! it twice, in long runs. Where a disk is bound by requests a second, as those of clouds are, two take half as long; a disk
//! that answers half a million of them is better off with one. What a request costs depends on all else that is under way,
//! and a write costs other than a read: so nothing is computed from costs. A little of each way is done, and timed.

/// How often all elements are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passes {
    One,
    Two,
}

/// How it is decided.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// It is said: by tests, for each way.
    #[cfg_attr(not(test), allow(dead_code))]
    Said(Passes),
    /// By a trial of each way, where both can be.
    Tried(fn(Trial, Trial) -> Passes),
}

/// Some of the work that was done, of one pass or of the first of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    pub(super) elements: usize,
    pub(super) seconds: f64,
}

/// What both passes take, where the first takes 1: the second turns nothing. In twelve runs by hand over a square of 4 GiB, on
/// two cores beside other work, 1.35 to 1.87, half of them below 1.45. One pass took 1.9 to 3.9 in the same rounds.
const BOTH: f64 = 1.5;
/// Budgets that the data has to be larger than: a trial of less would be much of the work.
const MANY: u64 = 4;

/// Whether data of so many bytes is large enough for a trial in a budget.
pub(super) fn is_large(bytes: u64, budget: u64) -> bool {
    bytes / MANY >= budget
}

/// One pass or two, by what was seen of the one and of the first of the two.
pub(super) fn choose(one: Trial, first: Trial) -> Passes {
    let each = |trial: Trial| trial.seconds / trial.elements.max(1) as f64;
    if each(one) > BOTH * each(first) { Passes::Two } else { Passes::One }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_chosen() {
        let trial = |elements, seconds| Trial { elements, seconds };
        // A disk of a cloud, where one pass over a square of 4 GiB takes 14 s and two 6 and 3.
        assert_eq!(choose(trial(28 << 20, 0.37), trial(27 << 20, 0.16)), Passes::Two);
        // A disk of one's own: the processor is what one waits for.
        assert_eq!(choose(trial(28 << 20, 0.13), trial(27 << 20, 0.10)), Passes::One);
        // Per element: the tiles of one may be smaller than the slabs of the other.
        assert_eq!(choose(trial(1 << 20, 0.1), trial(4 << 20, 0.1)), Passes::Two);
        assert_eq!(choose(trial(4 << 20, 0.1), trial(1 << 20, 0.1)), Passes::One);
        assert!(is_large(1 << 30, 1 << 28) && !is_large((1 << 30) - 1, 1 << 28));
    }
}
