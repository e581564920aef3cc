//! A part of an array's rows: from the number of a row in the part to its number in the array.
//!
//! A part is a range of rows, or what was *dealt*: positions `lo..hi` of the keyed permutation that a shuffled
//! pass of the same seed goes through first. Parts of parts are parts. Like an order it is arithmetic: no memory that
//! grows with the rows, and any of them is found at once.

use super::{Order, Permutation, check_bounds};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Which rows of an array.
#[derive(Clone, PartialEq, Eq)]
pub struct Part {
    /// The rows of the array from which it was dealt, or which it is.
    range: Range<u64>,
    /// How it was dealt, if it was: each from what the one before gave.
    deals: Vec<Deal>,
}

/// Positions of a permutation.
#[derive(Clone)]
struct Deal {
    order: Arc<Permutation>,
    seed: u64,
    positions: Range<u64>,
}

impl PartialEq for Deal {
    fn eq(&self, other: &Self) -> bool {
        (self.order.len(), self.seed, &self.positions) == (other.order.len(), other.seed, &other.positions)
    }
}

impl Eq for Deal {}

/// One step on the way from all rows to a part: rows of what was there before, dealt first where there is a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// By which permutation; `None` leaves the rows in their order.
    pub seed: Option<u64>,
    /// Which of them.
    pub rows: Range<u64>,
}

impl Part {
    /// All of so many rows.
    pub fn whole(rows: u64) -> Self {
        Self { range: 0..rows, deals: Vec::new() }
    }

    /// Some of its rows.
    ///
    /// # Errors
    /// [`Error::Argument`] where it has no such rows.
    pub fn cut(&self, cut: &Cut) -> Result<Self> {
        let Cut { seed, rows } = cut;
        if rows.start > rows.end || rows.end > self.len() {
            return Err(Error::argument(
                format!("rows {}..{} are not rows of {}", rows.start, rows.end, self.len()),
                "a part is cut out of the rows that there are",
            ));
        }
        let mut part = self.clone();
        match (seed, part.deals.last_mut()) {
            (Some(seed), _) => {
                let order = Arc::new(Permutation::new(self.len(), *seed, 0));
                part.deals.push(Deal { order, seed: *seed, positions: rows.clone() });
            }
            (None, Some(last)) => last.positions = within(&last.positions, rows),
            (None, None) => part.range = within(&part.range, rows),
        }
        Ok(part)
    }

    /// How it was cut out of all rows, for whoever wants to do it again.
    pub fn cuts(&self) -> impl Iterator<Item = Cut> + '_ {
        let deals = self.deals.iter().map(|deal| Cut { seed: Some(deal.seed), rows: deal.positions.clone() });
        std::iter::once(Cut { seed: None, rows: self.range.clone() }).chain(deals)
    }

    /// The rows from which it was dealt, or which it is.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Whether its rows lie anywhere.
    pub fn is_dealt(&self) -> bool {
        !self.deals.is_empty()
    }

    /// The rows from which it was dealt, as a part.
    #[must_use]
    pub fn undealt(&self) -> Self {
        Self { range: self.range(), deals: Vec::new() }
    }

    /// Replaces numbers in the part, all of them below its length, by numbers in its [`range`](Self::range).
    pub fn replace(&self, numbers: &mut [u64]) {
        for deal in self.deals.iter().rev() {
            for number in &mut *numbers {
                *number += deal.positions.start;
            }
            deal.order.replace(numbers);
        }
    }
}

/// Part of a range, counted from its beginning.
fn within(range: &Range<u64>, part: &Range<u64>) -> Range<u64> {
    range.start + part.start..range.start + part.end
}

/// The rows of the part, in its own order.
impl Order for Part {
    fn len(&self) -> u64 {
        let last = self.deals.last().map_or(&self.range, |deal| &deal.positions);
        last.end - last.start
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        check_bounds(self.len(), start, out.len());
        for (row, number) in out.iter_mut().zip(start..) {
            *row = number;
        }
        self.replace(out);
        for row in out {
            *row += self.range.start;
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.cuts()).finish()
    }
}

/// An order of the rows of a dealt part: numbers in its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through<'a> {
    pub(crate) order: &'a dyn Order,
    pub(crate) part: &'a Part,
}

impl Order for Through<'_> {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        self.order.fill(start, out);
        self.part.replace(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::conformance;
    use proptest::prelude::*;

    fn rows(part: &Part) -> Vec<u64> {
        let mut rows = vec![0; usize::try_from(part.len()).unwrap()];
        part.fill(0, &mut rows);
        rows
    }

    fn cut(lo: u64, hi: u64, seed: Option<u64>) -> Cut {
        Cut { seed, rows: lo..hi }
    }

    proptest! {
        /// Against lists that are written down: a cut takes of the list, a deal shuffles it first.
        #[test]
        fn a_part_of_a_part_is_a_part(
            len in 0u64..300, cuts in prop::collection::vec((0u64..300, 0u64..300, prop::option::of(0u64..4)), 0..5),
        ) {
            let mut part = Part::whole(len);
            let mut expected: Vec<u64> = (0..len).collect();
            for (a, b, seed) in cuts {
                let there = expected.len() as u64;
                let (lo, hi) = (a.min(b).min(there), a.max(b).min(there));
                if let Some(seed) = seed {
                    let order = Permutation::new(there, seed, 0);
                    expected = (0..there)
                        .map(|i| expected[usize::try_from(order.get(i).unwrap()).unwrap()])
                        .collect();
                }
                expected = expected[usize::try_from(lo).unwrap()..usize::try_from(hi).unwrap()].to_vec();
                part = part.cut(&cut(lo, hi, seed)).unwrap();
                prop_assert_eq!(&rows(&part), &expected);
                conformance::check(&part);
            }
            // By its own account it can be made again.
            let again = part.cuts().try_fold(Part::whole(len), |part, cut| part.cut(&cut)).unwrap();
            prop_assert_eq!(&again, &part);
            prop_assert_eq!(rows(&again), expected);
        }
    }

    #[test]
    fn what_is_dealt_is_disjoint_and_complete() {
        for len in [2, 65_535, 65_536, 65_537, 200_001] {
            let at = len / 10 * 9;
            let parts =
                [(0, at), (at, len)].map(|(lo, hi)| Part::whole(len).cut(&cut(lo, hi, Some(7))).unwrap());
            let mut all = parts.iter().flat_map(rows).collect::<Vec<_>>();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_cut_out() {
        let part = Part::whole(10).cut(&cut(2, 8, None)).unwrap();
        assert!(part.cut(&cut(0, 7, None)).is_err());
        assert!(part.cut(&Cut { seed: Some(1), rows: Range { start: 3, end: 2 } }).is_err());
        assert!(part.cut(&cut(6, 6, None)).unwrap().is_empty());
    }
}
