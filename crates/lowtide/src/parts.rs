//! Parts of an array, and of several with the same rows: how rows are divided among them.

use crate::array::Array;
use crate::error::{Error, Result};
use crate::order::Cut;
use crate::zip::Zip;
use std::ops::Range;

/// How large the parts of a split are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Shares of the rows, which make 1 together.
    Shares(Vec<f64>),
    /// Numbers of rows, which are all of them together.
    Rows(Vec<u64>),
}

impl Sizes {
    /// The rows of each part of so many, one part after another: every row is in exactly one.
    ///
    /// # Errors
    /// [`Error::Argument`] where they are not all rows together, or where a part with a share would get none.
    pub fn ranges(&self, rows: u64) -> Result<Vec<Range<u64>>> {
        let ends = match self {
            Self::Shares(shares) => share_ends(shares, rows)?,
            Self::Rows(parts) => row_ends(parts, rows)?,
        };
        let ranges: Vec<Range<u64>> = std::iter::once(0)
            .chain(ends.iter().copied())
            .zip(ends.iter().copied())
            .map(|(a, b)| a..b)
            .collect();
        if let Self::Shares(shares) = self
            && rows > 0
            && let Some((share, _)) =
                shares.iter().zip(&ranges).find(|(share, part)| **share > 0.0 && part.is_empty())
        {
            return Err(Error::argument(
                format!("a part with a share of {share} of {rows} rows has none of them"),
                "give the sizes of the parts as numbers of rows",
            ));
        }
        Ok(ranges)
    }
}

fn row_ends(parts: &[u64], rows: u64) -> Result<Vec<u64>> {
    let mut sum = 0_u64;
    let ends: Option<Vec<u64>> = parts
        .iter()
        .map(|&part| {
            sum = sum.checked_add(part)?;
            Some(sum)
        })
        .collect();
    match ends {
        Some(ends) if ends.last() == Some(&rows) => Ok(ends),
        _ => Err(Error::argument(
            format!("parts of {parts:?} rows are not all of {rows}"),
            "the sizes of the parts add up to the number of rows",
        )),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a number of rows, clamped
fn share_ends(shares: &[f64], rows: u64) -> Result<Vec<u64>> {
    let wrong =
        |what: String| Error::argument(what, "shares such as 0.9, or [0.8, 0.1, 0.1], which make 1 together");
    if let Some(share) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(wrong(format!("a part cannot have a share of {share} of the rows")));
    }
    let total: f64 = shares.iter().sum();
    if (total - 1.0).abs() > 1e-9 {
        return Err(wrong(format!("the shares {shares:?} make {total} together, not 1")));
    }
    let mut sum = 0.0;
    let end = |share: &f64| {
        sum += share;
        // To the nearest row: 0.29 of 100 rows are 29, though the product is less.
        ((sum * rows as f64).round() as u64).min(rows)
    };
    let mut ends: Vec<u64> = shares.iter().map(end).collect();
    if let Some(last) = ends.last_mut() {
        *last = rows;
    }
    Ok(ends)
}

impl Array {
    /// All rows in several parts: every row is in exactly one. With a seed they are dealt, so that every split is as
    /// likely as any other: the parts follow each other in the order of a shuffled pass of that seed, and each has its
    /// rows in that order. Without one they are ranges of rows that are neighbours.
    ///
    /// ```no_run
    /// use lowtide::Sizes;
    /// let array = lowtide::open("rows.npy")?;
    /// let parts = array.split(&Sizes::Shares(vec![0.9, 0.1]), Some(0))?;
    /// assert_eq!(parts[0].rows() + parts[1].rows(), array.rows());
    /// # Ok::<(), lowtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes that are not all rows together.
    pub fn split(&self, sizes: &Sizes, seed: Option<u64>) -> Result<Vec<Self>> {
        sizes.ranges(self.rows())?.into_iter().map(|rows| self.cut(&Cut { seed, rows })).collect()
    }
}

impl Zip {
    /// The same rows of all arrays.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are no such rows.
    pub fn cut(&self, cut: &Cut) -> Result<Self> {
        Self::new(self.arrays().iter().map(|array| array.cut(cut)).collect::<Result<_>>()?)
    }

    /// [`Array::split`], of all arrays alike: rows that belong together stay together.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes that are not all rows together.
    pub fn split(&self, sizes: &Sizes, seed: Option<u64>) -> Result<Vec<Self>> {
        sizes.ranges(self.rows())?.into_iter().map(|rows| self.cut(&Cut { seed, rows })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_row_is_in_one_part(rows in 0u64..1 << 53, weights in prop::collection::vec(0u32..1000, 1..9)) {
            prop_assume!(weights.iter().any(|&w| w > 0));
            let total = f64::from(weights.iter().sum::<u32>());
            let shares: Vec<f64> = weights.iter().map(|&w| f64::from(w) / total).collect();
            match Sizes::Shares(shares.clone()).ranges(rows) {
                Err(_) => prop_assert!(rows < 1 << 14, "only a few rows cannot be shared"),
                Ok(parts) => {
                    prop_assert_eq!(parts.len(), weights.len());
                    prop_assert_eq!(parts[0].start, 0);
                    prop_assert_eq!(parts.last().unwrap().end, rows);
                    prop_assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
                    for (part, share) in parts.iter().zip(&shares) {
                        let exact = share * rows as f64;
                        prop_assert!((exact - (part.end - part.start) as f64).abs() <= 1.0 + rows as f64 * 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_are_what_they_say() {
        let shares = |shares: &[f64], rows| Sizes::Shares(shares.to_vec()).ranges(rows);
        assert_eq!(shares(&[0.29, 0.71], 100).unwrap(), [0..29, 29..100]);
        assert_eq!(shares(&[1.0, 0.0], 7).unwrap(), [0..7, 7..7]);
        assert_eq!(shares(&[0.9, 0.1], 0).unwrap(), [0..0, 0..0]);
        for wrong in [&[0.9][..], &[0.9, 0.2], &[1.5, -0.5], &[f64::NAN, 1.0], &[]] {
            assert!(shares(wrong, 100).is_err(), "{wrong:?}");
        }
        assert!(shares(&[0.999, 0.001], 10).is_err(), "an empty part that nobody asked for");
        let rows = |parts: &[u64], rows| Sizes::Rows(parts.to_vec()).ranges(rows);
        assert_eq!(rows(&[3, 0, 4], 7).unwrap(), [0..3, 3..3, 3..7]);
        for wrong in [&[3, 3][..], &[8], &[], &[u64::MAX, 8]] {
            assert!(rows(wrong, 7).is_err(), "{wrong:?}");
        }
    }
}
