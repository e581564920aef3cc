//! The shuffle inside a mix, made anew by every fill that enters the mix.
//!
//! A [`Permutation`](super::Permutation) would be a table below 65,536 rows, and drawing that takes
//! 0.8 ms: more than shuffling the 4,096 rows of a usual fill. So the network goes further down here, with
//! more rounds to make up for its smaller grid, and the table is left to those mixes where it is cheap.

use crate::order::feistel::Feistel;
use crate::order::hash::Bits;
use crate::order::permutation::table;

/// The number of rows from which the network is used. Drawing a table of one row less takes 5 µs.
pub const SMALL: u16 = 256;

/// The number of rounds below 65,536 rows; from there up the usual eight do. Twelve: ten, the fewest that could
/// not be told from random, and two to spare.
///
/// Measured by `quality::rounds_of_small_networks_compared`, which sums over many mixes because a pass over
/// large data has many. The figures are the worst |z| in 300 million rows of mixes of the given size,
/// statistics of pairs of cells; a random permutation stays below 5. What a user could notice (`quality`'s
/// other statistics) stays below 3.5 from four rounds on at all of these sizes.
///
/// | rounds | 64 | 256 | 1,024 | 4,096 |
/// |---|---|---|---|---|
/// | 4 | 9,765 | 11,057 | 11,670 | 11,942 |
/// | 6 | 1,216 | 691 | 364 | 187 |
/// | 8 | 151 | 41 | 9.7 | 4.9 |
/// | 10 | 17.7 | 4.2 | 1.2 | 1.9 |
/// | 12 | 1.1 | 1.0 | 1.5 | 1.4 |
/// | 16 | 1.1 | 2.2 | 0.7 | 1.1 |
pub const SMALL_ROUNDS: usize = 12;

/// A permutation of the rows of one mix.
#[derive(Debug)]
pub enum Inner {
    Table(Box<[u16]>),
    Small(Feistel<SMALL_ROUNDS>),
    Large(Feistel),
}

impl Inner {
    /// The order of `len` rows that these bits give.
    pub fn draw(len: u64, bits: &mut Bits) -> Self {
        match u16::try_from(len) {
            Ok(len) if len < SMALL => Self::Table(table(len, bits)),
            Ok(len) => Self::Small(Feistel::new(u64::from(len), bits)),
            Err(_) => Self::Large(Feistel::new(len, bits)),
        }
    }

    /// Where `start`, `start + 1`, … land; all are below the length.
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        match self {
            Self::Table(rows) => {
                let start = usize::try_from(start).expect("a table has fewer than 256 rows");
                for (row, &from) in out.iter_mut().zip(&rows[start..]) {
                    *row = u64::from(from);
                }
            }
            Self::Small(feistel) => feistel.fill(start, out),
            Self::Large(feistel) => feistel.fill(start, out),
        }
    }
}
