//! What a piece of rows gives, and how pieces are joined: pure arithmetic, column by column.
//!
//! Sums of floats keep the rounding errors of joining aside (Neumaier); means and squared distances are joined by the
//! formula of Chan, Golub and `LeVeque`. Pieces are joined in the order of the rows, so the answer does not depend on who
//! was first.

use super::kernel::{self, Ordered as _, Vectors};
use crate::format::Kind;

/// What is asked of the elements of every column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their sum, in double precision.
    Sum,
    /// The sum of whole numbers, in 64 bits, as it wraps.
    WholeSum,
    /// Their mean, and the squares of their distances from it.
    Moments,
    /// The least; a NaN where there is one.
    Least,
    /// The greatest; a NaN where there is one.
    Greatest,
}

/// The answer, an entry for every column.
#[derive(Clone, Debug, PartialEq)]
pub enum Folded {
    /// Sums.
    Sum(Vec<f64>),
    /// Sums of whole numbers; of those with a sign, their bits.
    WholeSum(Vec<u64>),
    /// Means, and sums of squared distances from them.
    Moments(Vec<f64>, Vec<f64>),
    /// Elements, as the array has them.
    Extreme(Vec<u8>),
}

/// What some rows give: how many they are, and a value for every column.
#[derive(Clone, Debug)]
pub(super) struct Part {
    rows: f64,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// Sums, and what rounding took from them.
    Sum(Vec<f64>, Vec<f64>),
    Whole(Vec<u64>),
    /// Means, and squared distances from them.
    Moments(Vec<f64>, Vec<f64>),
    Extreme(Vec<u8>),
}

/// Says something of the type of a kind.
macro_rules! by_kind {
    ($kind:expr, $type:ident => $say:expr, else $other:expr) => {{
        macro_rules! say {
            ($known:ident) => {{
                type $type = $known;
                $say
            }};
        }
        match $kind {
            Kind::UInt8 => say!(u8),
            Kind::UInt16 => say!(u16),
            Kind::UInt32 => say!(u32),
            Kind::UInt64 => say!(u64),
            Kind::Int8 => say!(i8),
            Kind::Int16 => say!(i16),
            Kind::Int32 => say!(i32),
            Kind::Int64 => say!(i64),
            Kind::Float32 => say!(f32),
            Kind::Float64 => say!(f64),
            _ => $other,
        }
    }};
}

/// Whether a fold is possible for native elements of a kind.
pub(super) fn is_possible(fold: Fold, kind: Kind) -> bool {
    let is_float = matches!(kind, Kind::Float32 | Kind::Float64);
    by_kind!(kind, T => size_of::<T>() > 0, else false) && !(fold == Fold::WholeSum && is_float)
}

/// A fold of elements of some kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) fold: Fold,
    pub(super) kind: Kind,
    pub(super) vectors: Vectors,
}

impl Task {
    pub(super) fn new(fold: Fold, kind: Kind) -> Self {
        Self { fold, kind, vectors: Vectors::best() }
    }

    /// What whole rows of so many columns give.
    #[allow(clippy::cast_precision_loss)] // rows of a piece
    pub(super) fn part(self, raw: &[u8], width: usize) -> Part {
        let rows = (raw.len() / self.kind.itemsize() / width) as f64;
        let value = match self.fold {
            Fold::Sum => Value::Sum(self.sums(raw, width), vec![0.0; width]),
            Fold::WholeSum => {
                let mut sums = vec![0; width];
                by_kind!(self.kind, T => kernel::add_whole::<T>(self.vectors, raw, &mut sums), else {});
                Value::Whole(sums)
            }
            Fold::Moments => {
                let means: Vec<f64> = self.sums(raw, width).into_iter().map(|sum| sum / rows).collect();
                let mut squares = vec![0.0; width];
                by_kind!(self.kind, T => kernel::add_squares::<T>(self.vectors, raw, &means, &mut squares), else {});
                Value::Moments(means, squares)
            }
            Fold::Least => {
                let mut best = by_kind!(self.kind, T => T::GREATEST.to_ne_bytes().repeat(width), else vec![]);
                self.improve(raw, &mut best);
                Value::Extreme(best)
            }
            Fold::Greatest => {
                let mut best = by_kind!(self.kind, T => T::LEAST.to_ne_bytes().repeat(width), else vec![]);
                self.improve(raw, &mut best);
                Value::Extreme(best)
            }
        };
        Part { rows, value }
    }

    fn sums(self, raw: &[u8], width: usize) -> Vec<f64> {
        let mut sums = vec![0.0; width];
        by_kind!(self.kind, T => kernel::add::<T>(self.vectors, raw, &mut sums), else {});
        sums
    }

    fn improve(self, raw: &[u8], best: &mut [u8]) {
        if self.fold == Fold::Least {
            by_kind!(self.kind, T => kernel::least::<T>(self.vectors, raw, best), else {});
        } else {
            by_kind!(self.kind, T => kernel::greatest::<T>(self.vectors, raw, best), else {});
        }
    }

    /// Joins to the one what the rows behind it give.
    pub(super) fn join(self, all: &mut Part, next: Part) {
        match (&mut all.value, next.value) {
            (Value::Sum(whole, lost), Value::Sum(more, more_lost)) => {
                for (((sum, lost), part), part_lost) in whole.iter_mut().zip(lost).zip(more).zip(more_lost) {
                    let new = *sum + part;
                    *lost += part_lost
                        + if sum.abs() >= part.abs() { (*sum - new) + part } else { (part - new) + *sum };
                    *sum = new;
                }
            }
            (Value::Whole(sums), Value::Whole(more)) => {
                sums.iter_mut().zip(more).for_each(|(sum, part)| *sum = sum.wrapping_add(part));
            }
            (Value::Moments(means, squares), Value::Moments(more, more_squares)) => {
                let rows = all.rows + next.rows;
                let (share, weight) = (next.rows / rows, all.rows / rows * next.rows);
                for (((mean, square), part), part_square) in
                    means.iter_mut().zip(squares).zip(more).zip(more_squares)
                {
                    let away = part - *mean;
                    *mean += away * share;
                    *square += part_square + away * away * weight;
                }
            }
            (Value::Extreme(best), Value::Extreme(more)) => self.improve(&more, best),
            _ => {} // of one fold they are of one kind
        }
        all.rows += next.rows;
    }

    /// Columns that are the same one again and again, every so many of them, as one.
    pub(super) fn narrowed(self, part: &Part, width: usize) -> Part {
        let item = self.kind.itemsize();
        let groups = |n: usize| n / width;
        let count = match &part.value {
            Value::Sum(sums, _) | Value::Moments(sums, _) => groups(sums.len()),
            Value::Whole(sums) => groups(sums.len()),
            Value::Extreme(best) => groups(best.len() / item),
        };
        let one = |group: usize| {
            let of = group * width..(group + 1) * width;
            let value = match &part.value {
                Value::Sum(sums, lost) => Value::Sum(sums[of.clone()].to_vec(), lost[of].to_vec()),
                Value::Whole(sums) => Value::Whole(sums[of].to_vec()),
                Value::Moments(means, squares) => {
                    Value::Moments(means[of.clone()].to_vec(), squares[of].to_vec())
                }
                Value::Extreme(best) => Value::Extreme(best[of.start * item..of.end * item].to_vec()),
            };
            Part { rows: part.rows, value }
        };
        let mut all = one(0);
        (1..count).for_each(|group| self.join(&mut all, one(group)));
        all
    }
}

impl Part {
    /// The answer.
    pub(super) fn finish(self) -> Folded {
        match self.value {
            Value::Sum(sums, lost) => {
                let exact = |(sum, lost): (f64, f64)| if lost.is_finite() { sum + lost } else { sum };
                Folded::Sum(sums.into_iter().zip(lost).map(exact).collect())
            }
            Value::Whole(sums) => Folded::WholeSum(sums),
            Value::Moments(means, squares) => Folded::Moments(means, squares),
            Value::Extreme(best) => Folded::Extreme(best),
        }
    }
}
