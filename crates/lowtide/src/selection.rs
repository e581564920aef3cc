//! Which elements of an array: one entry for each axis, as NumPy's basic indexing, and one list.
//!
//! Pure arithmetic: a selection and a shape become the byte offsets of contiguous runs, in the order in
//! which they stand in the answer. Nothing here knows about files.

use crate::error::{Error, Result};

/// What is taken of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// `count` of them from `start` on, `step` apart (which may be negative).
    Range {
        /// The first.
        start: usize,
        /// From one to the next.
        step: isize,
        /// How many.
        count: usize,
    },
    /// These, in this order, any of them more than once.
    List(Vec<usize>),
}

impl Axis {
    /// All of an axis of size `n`.
    pub fn all(n: usize) -> Self {
        Self::Range { start: 0, step: 1, count: n }
    }

    /// These, in this order; as a range where they are evenly apart, of which longer runs can be read.
    pub fn list(list: Vec<usize>) -> Self {
        let apart = |from: usize, to: usize| to.cast_signed().wrapping_sub(from.cast_signed());
        match *list {
            [] => Self::Range { start: 0, step: 1, count: 0 },
            [start] => Self::Range { start, step: 1, count: 1 },
            [start, second, ..]
                if start != second && list.windows(2).all(|w| apart(w[0], w[1]) == apart(start, second)) =>
            {
                Self::Range { start, step: apart(start, second), count: list.len() }
            }
            _ => Self::List(list),
        }
    }

    /// How many are taken.
    pub fn count(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len(),
        }
    }

    /// The place of the one at `i`.
    pub(crate) fn get(&self, i: usize) -> usize {
        match self {
            // Inside the axis for every i < count: `check` saw the first and the last.
            Self::Range { start, step, .. } => start.wrapping_add_signed(step.wrapping_mul(i.cast_signed())),
            Self::List(list) => list[i],
        }
    }

    /// Refuses what lies outside an axis of size `n`.
    pub(crate) fn check(&self, axis: usize, n: usize) -> Result<()> {
        let outside = |index: i128| Error::Index { index, axis, size: n as u64 };
        match self {
            Self::Range { count: 0, .. } => Ok(()),
            Self::Range { start, step, count } => {
                let last = *start as i128 + *step as i128 * (*count as i128 - 1);
                match [*start as i128, last].into_iter().find(|&i| i < 0 || i >= n as i128) {
                    Some(index) => Err(outside(index)),
                    None => Ok(()),
                }
            }
            Self::List(list) => match list.iter().find(|&&i| i >= n) {
                Some(&index) => Err(outside(index as i128)),
                None => Ok(()),
            },
        }
    }
}

/// The contiguous runs that make up a selection, all of one length.
#[derive(Debug)]
pub struct Runs<'a> {
    /// Axes that are walked, each with its stride in bytes; the ones to the right are part of a run.
    outer: Vec<(&'a Axis, u64)>,
    /// Where the first run would start if the outer axes added nothing.
    base: u64,
    /// Bytes of one run.
    len: usize,
    /// How many runs.
    count: u64,
}

impl<'a> Runs<'a> {
    /// The runs of `axes` (one for each axis, each inside it) of a C-ordered array of `shape` that begins at
    /// byte `base`.
    pub fn new(axes: &'a [Axis], shape: &[usize], itemsize: usize, base: u64) -> Result<Self> {
        debug_assert_eq!(axes.len(), shape.len());
        let too_large =
            || Error::argument("the selection is too large: its size does not fit in 63 bits", "");
        let count =
            axes.iter().try_fold(1u64, |n, a| n.checked_mul(a.count() as u64)).ok_or_else(too_large)?;
        if count.checked_mul(itemsize as u64).is_none_or(|bytes| i64::try_from(bytes).is_err()) {
            return Err(too_large());
        }
        let mut runs = Self { outer: Vec::new(), base, len: itemsize, count };
        let mut stride = itemsize as u64;
        let mut inside = true; // still in the part that is contiguous in the file
        for (axis, &n) in axes.iter().zip(shape).rev() {
            match axis {
                Axis::Range { start, step, count } if inside && (*step == 1 || *count == 1) => {
                    runs.base += *start as u64 * stride;
                    runs.len *= count;
                    inside = *count == n;
                }
                other => {
                    runs.outer.push((other, stride));
                    inside = false;
                }
            }
            stride = stride.saturating_mul(n as u64);
        }
        runs.outer.reverse();
        if runs.len > 0 {
            runs.count /= (runs.len / itemsize) as u64;
        }
        Ok(runs)
    }

    /// Bytes of one run: 0 where nothing is selected.
    pub fn run_len(&self) -> usize {
        if self.count == 0 { 0 } else { self.len }
    }

    /// How many runs.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The byte at which run `i` starts, for every i in order.
    pub fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let mut at = vec![0; self.outer.len()];
        (0..self.count).map(move |i| {
            if i > 0 {
                for (digit, (axis, _)) in at.iter_mut().zip(&self.outer).rev() {
                    *digit += 1;
                    if *digit < axis.count() {
                        break;
                    }
                    *digit = 0;
                }
            }
            let places = at.iter().zip(&self.outer);
            self.base + places.map(|(&digit, (axis, stride))| axis.get(digit) as u64 * stride).sum::<u64>()
        })
    }
}
