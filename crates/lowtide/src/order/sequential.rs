//! File order: row i stands at position i.

use super::{Order, check_bounds};

/// Rows in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequential {
    len: u64,
}

impl Sequential {
    /// The order of `len` rows.
    pub fn new(len: u64) -> Self {
        Self { len }
    }
}

impl Order for Sequential {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        check_bounds(self.len, start, out.len());
        for (row, position) in out.iter_mut().zip(start..) {
            *row = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::conformance;

    #[test]
    fn conforms() {
        for len in [0, 1, 2, 7, 4_096, 100_003] {
            conformance::check_each_row_once(&Sequential::new(len));
        }
        conformance::check(&Sequential::new(1 << 63));
        conformance::check(&Sequential::new(u64::MAX));
    }

    #[test]
    #[should_panic(expected = "2 positions from 9 are out of bounds for an order of 10")]
    fn the_end_is_the_end() {
        Sequential::new(10).fill(9, &mut [0; 2]);
    }
}
