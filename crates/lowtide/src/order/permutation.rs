//! A shuffled epoch: every row once, in an order that looks random and is a function of the seed and
//! the epoch.
//!
//! Below 65,536 rows it is a Fisher–Yates table, drawn without bias: at most 128 KiB, and *every* order
//! is possible, which matters where there are few. From there up it is a [Feistel network](super::feistel),
//! computed per position: 10^13 rows cost the same memory as 10^5.

use super::feistel::Feistel;
use super::hash::Bits;
use super::{Order, check_bounds};
use std::fmt;

/// Names our keys apart from all other uses of BLAKE3. Changing it changes every shuffle.
const PURPOSE: &str = "lowtide order permutation v1";

/// Every row once, shuffled.
#[derive(Clone)]
pub struct Permutation {
    len: u64,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Table(Box<[u16]>),
    Computed(Feistel),
}

impl Permutation {
    /// The order of `len` rows in this epoch under this seed.
    ///
    /// Orders of different seeds, epochs or lengths have nothing to do with each other.
    pub fn new(len: u64, seed: u64, epoch: u64) -> Self {
        Self::draw(len, &mut Bits::new(PURPOSE, &[len, seed, epoch]))
    }

    /// The order of `len` rows that these bits give.
    pub(super) fn draw(len: u64, bits: &mut Bits) -> Self {
        // A length that fits in 16 bits is a length below 65,536.
        let kind = match u16::try_from(len) {
            Ok(len) => Kind::Table(table(len, bits)),
            Err(_) => Kind::Computed(Feistel::new(len, bits)),
        };
        Self { len, kind }
    }

    /// Replaces positions, all of them below the length, by their rows.
    #[expect(clippy::cast_possible_truncation, reason = "a table has at most 65,535 rows")]
    pub(super) fn replace(&self, positions: &mut [u64]) {
        match &self.kind {
            Kind::Table(rows) => {
                for position in positions {
                    *position = u64::from(rows[*position as usize]);
                }
            }
            Kind::Computed(feistel) => feistel.replace(positions),
        }
    }

    /// The row at `position`, or `None` past the end. For many, [`fill`](Order::fill) is several times
    /// faster.
    pub fn get(&self, position: u64) -> Option<u64> {
        match &self.kind {
            Kind::Table(rows) => rows.get(usize::try_from(position).ok()?).copied().map(u64::from),
            Kind::Computed(feistel) => (position < self.len).then(|| feistel.get(position)),
        }
    }
}

/// The way back: from a row to the position that it stands at.
#[derive(Clone, Debug)]
pub struct Inverse(Permutation);

impl Permutation {
    /// The permutation that undoes this one, at the same cost.
    #[expect(clippy::cast_possible_truncation, reason = "a table has at most 65,535 rows")]
    pub fn inverse(&self) -> Inverse {
        let kind = match &self.kind {
            Kind::Table(rows) => {
                let mut positions = vec![0; rows.len()].into_boxed_slice();
                for (position, &row) in rows.iter().enumerate() {
                    positions[usize::from(row)] = position as u16;
                }
                Kind::Table(positions)
            }
            Kind::Computed(feistel) => Kind::Computed(feistel.clone()),
        };
        Inverse(Self { len: self.len, kind })
    }
}

impl Order for Inverse {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        match &self.0.kind {
            Kind::Table(_) => self.0.fill(start, out),
            Kind::Computed(feistel) => {
                check_bounds(self.0.len, start, out.len());
                feistel.fill_back(start, out);
            }
        }
    }
}

/// Fisher and Yates' shuffle.
#[expect(clippy::cast_possible_truncation, reason = "what is below a usize is a usize")]
pub(super) fn table(len: u16, bits: &mut Bits) -> Box<[u16]> {
    let mut rows: Box<[u16]> = (0..len).collect();
    for last in (1..rows.len()).rev() {
        rows.swap(last, bits.below(last as u64 + 1) as usize);
    }
    rows
}

impl Order for Permutation {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        check_bounds(self.len, start, out.len());
        match &self.kind {
            Kind::Table(rows) => {
                let start = usize::try_from(start).expect("a table has at most 65,535 rows");
                for (row, &from) in out.iter_mut().zip(&rows[start..]) {
                    *row = u64::from(from);
                }
            }
            Kind::Computed(feistel) => feistel.fill(start, out),
        }
    }
}

impl fmt::Debug for Permutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permutation").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
