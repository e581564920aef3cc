//! Which bytes row n is: pure geometry.

use std::ops::Range;

/// Rows of equal length, each in one piece or, where the first axis varies fastest, in a column after another.
///
/// Overlapping windows of tokens are rows whose stride is less than their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// The first byte of row 0.
    pub(crate) first: u64,
    /// From one row to the next.
    pub(crate) stride: u64,
    /// Bytes of a piece of a row.
    pub(crate) len: usize,
    /// How many rows.
    pub(crate) count: u64,
    /// How many pieces a row has; 1 where it is whole.
    pub(crate) columns: u64,
    /// From one piece of a row to the next.
    pub(crate) apart: u64,
}

impl Rows {
    /// Rows in one piece.
    pub(crate) fn whole(first: u64, stride: u64, len: usize, count: u64) -> Self {
        Self { first, stride, len, count, columns: 1, apart: 0 }
    }

    /// Bytes of a row. A caller who asks for more than memory can count gets no budget for it.
    pub(crate) fn row_bytes(&self) -> usize {
        usize::try_from(self.columns).unwrap_or(usize::MAX).saturating_mul(self.len)
    }

    /// Bytes of `rows` rows; `usize::MAX` where that overflows, which then fits no budget.
    pub(crate) fn bytes(&self, rows: u64) -> usize {
        usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(self.row_bytes())
    }

    /// Where a row in one piece begins.
    pub(crate) fn offset(&self, row: u64) -> u64 {
        self.first + row * self.stride
    }

    /// Whether row follows row without a gap, so that many are one read.
    pub(crate) fn is_dense(&self) -> bool {
        self.stride == self.len as u64
    }

    /// Bytes of the file from the first row to the last.
    pub(crate) fn span(&self) -> u64 {
        self.count.saturating_mul(self.stride).saturating_mul(self.columns)
    }

    /// The runs of bytes that rows which follow each other are, where they are dense: one, or one a column.
    pub(crate) fn runs(&self, rows: &Range<u64>) -> impl Iterator<Item = (u64, usize)> + use<> {
        let len = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX).saturating_mul(self.len);
        let (first, apart) = (self.offset(rows.start), self.apart);
        (0..self.columns).map(move |column| (first + column * apart, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against numbers written down one by one: byte i of the file is the number i.
        #[test]
        fn runs_are_the_bytes_of_the_rows(
            first in 0u64..50, len in 1usize..5, count in 1u64..20, columns in 1u64..6, cut in (0u64..20, 0u64..20),
        ) {
            let (lo, hi) = (cut.0.min(cut.1).min(count), cut.0.max(cut.1).min(count));
            let rows = Rows { first, stride: len as u64, len, count, columns, apart: count * len as u64 };
            let mut expected = Vec::new();
            for column in 0..columns {
                for row in lo..hi {
                    for byte in 0..len as u64 {
                        expected.push(first + column * count * len as u64 + row * len as u64 + byte);
                    }
                }
            }
            let got: Vec<u64> = rows.runs(&(lo..hi)).flat_map(|(at, len)| at..at + len as u64).collect();
            prop_assert_eq!(got.len(), rows.bytes(hi - lo));
            prop_assert_eq!(got, expected);
        }
    }

    #[test]
    fn what_cannot_be_counted_fits_nothing() {
        let rows = Rows { columns: u64::MAX, ..Rows::whole(0, 8, 8, 10) };
        assert_eq!(rows.row_bytes(), usize::MAX);
        assert_eq!(rows.bytes(2), usize::MAX);
        assert_eq!(Rows::whole(0, u64::MAX, 8, u64::MAX).span(), u64::MAX);
    }
}
