//! Which rows, when: from a position in an epoch to a row number.
//!
//! A position comes in, a row number goes out. An order is pure arithmetic: it does no I/O, holds no
//! state but what it was made from, and needs no memory that grows with the data. Seeking is therefore
//! free, and so is resuming: the position is the whole state.
//!
//! [`Sequential`], [`Permutation`] and [`Blocks`] say which row stands at a position, [`Draws`] draws one;
//! [`Windows`] says where a row of tokens begins, and [`Stream`] where those of all epochs do, end to end; [`Part`] says
//! which rows are meant at all, [`shard`] which positions a rank takes. Every order passes [`conformance`].
//!
//! ```
//! use lowtide::order::{Order, Permutation};
//!
//! let epoch = Permutation::new(1_000_000_000_000, /* seed */ 42, /* epoch */ 0);
//! let mut rows = [0; 4];
//! epoch.fill(999_999_999_000, &mut rows); // far into the epoch, at once
//! assert_eq!(epoch.get(999_999_999_003), Some(rows[3]));
//! ```
//!
//! What an order gives for a seed is stable forever, across versions and platforms: a saved position
//! would mean something else otherwise. The golden values in the tests hold it in place.

mod blocks;
pub mod conformance;
mod draws;
mod feistel;
mod hash;
mod part;
mod permutation;
#[cfg(test)]
mod quality;
mod sequential;
pub mod shard;
mod stream;
mod windows;

pub(crate) use blocks::Mixes;
pub use blocks::{Blocks, Mix};
pub use draws::Draws;
pub(crate) use part::Through;
pub use part::{Cut, Part};
pub use permutation::{Inverse, Permutation};
pub use sequential::Sequential;
pub use shard::{LastStep, Shard, Steps, Turn};
pub use stream::{Stream, Within};
pub use windows::Windows;

use std::fmt::Debug;

/// A sequence of row numbers that can be entered anywhere.
///
/// Not to be confused with [`format::Order`](crate::format::Order), the order of axes in memory.
pub trait Order: Debug + Send + Sync {
    /// How many positions there are.
    fn len(&self) -> u64;

    /// Writes the rows at positions `start`, `start + 1`, … into `out`.
    ///
    /// # Panics
    ///
    /// If `start + out.len()` is past [`len`](Self::len): positions come from [`Steps`], which never
    /// goes there.
    fn fill(&self, start: u64, out: &mut [u64]);

    /// Whether there are no positions at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The one bounds check of every [`Order::fill`].
#[track_caller]
fn check_bounds(len: u64, start: u64, count: usize) {
    let end = u64::try_from(count).ok().and_then(|count| start.checked_add(count));
    assert!(
        end.is_some_and(|end| end <= len),
        "{count} positions from {start} are out of bounds for an order of {len}"
    );
}
