//! How large the parts of an object are that is being written: pure.
//!
//! Stores take 10,000 parts at most, and parts of 5 MiB at least but for the last. A part is in memory until the server
//! has it, because it may have to be sent again. So parts are small as long as they can be, many of them in flight, and
//! grow with the object: twice as large after every thousand, up to what the memory holds two of.

use crate::budget::pool::Block;

/// S3's bounds, which the others' are not below.
pub(super) const MOST_PARTS: usize = 10_000;
const LEAST: u64 = 5 << 20;
/// What S3's own clients use.
const USUAL: u64 = 8 << 20;
/// So many parts, and the next are twice as large.
const STEP: usize = 1_000;

/// The sizes of the parts of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    first: u64,
    most: u64,
}

impl Sizes {
    /// In so much memory, of an object of `total` bytes or one that grows.
    ///
    /// # Errors
    /// How much memory is needed, where that is more.
    pub(super) fn new(room: u64, total: Option<u64>) -> Result<Self, u64> {
        if room < Self::least_room() {
            return Err(Self::least_room());
        }
        // One is held until the end, one is filled, one is on its way.
        let held = USUAL.min(room / 3);
        let most = whole((room - held) / 2).max(LEAST);
        let first = USUAL.min(most);
        let Some(total) = total else { return Ok(Self { first, most }) };
        let even = total.div_ceil(MOST_PARTS as u64);
        let even = Block::cost(usize::try_from(even).unwrap_or(usize::MAX)).max(first);
        if even > most {
            return Err(even.saturating_mul(2).saturating_add(USUAL));
        }
        Ok(Self { first: even, most: even })
    }

    /// The least memory that anything can be written in.
    pub(super) fn least_room() -> u64 {
        3 * LEAST
    }

    /// Bytes of a part; of the last it is what there may be.
    pub(super) fn of(self, index: usize) -> usize {
        let doubled = u32::try_from(index / STEP).unwrap_or(u32::MAX).min(30);
        let size = self.first.saturating_mul(1 << doubled).min(self.most.max(self.first));
        usize::try_from(size).unwrap_or(usize::MAX)
    }
}

/// The largest size up to this that wastes nothing of what a block takes.
fn whole(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 16).max(1 << 16);
    bytes / step * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reach(sizes: Sizes) -> u64 {
        (0..MOST_PARTS).map(|index| sizes.of(index) as u64).sum()
    }

    #[test]
    fn parts_grow_with_the_object_and_stay_in_the_memory() {
        let sizes = Sizes::new(192 << 20, None).unwrap();
        assert_eq!([0, 999, 1000, 2000].map(|index| sizes.of(index) >> 20), [8, 8, 16, 32]);
        assert_eq!(sizes.of(MOST_PARTS - 1) >> 20, 88);
        assert!(reach(sizes) > 630 << 30, "{}", reach(sizes) >> 30);
        let large = Sizes::new(4 << 30, None).unwrap();
        assert!(reach(large) > 5 << 40, "{}", reach(large) >> 30);
    }

    #[test]
    fn what_is_known_is_cut_evenly_or_refused() {
        let even = |room: u64, total: u64| Sizes::new(room, Some(total)).map(|sizes| sizes.of(0) as u64);
        assert_eq!(even(192 << 20, 1), Ok(8 << 20));
        assert_eq!(even(192 << 20, 80_000 << 20), Ok(8 << 20));
        assert_eq!(even(192 << 20, 160_000 << 20), Ok(16 << 20));
        assert!(even(192 << 20, 5 << 40).unwrap_err() > 1 << 30);
        assert_eq!(even(2 << 30, 5 << 40).map(|size| size * 10_000 >= 5 << 40), Ok(true));
        assert_eq!(Sizes::new((15 << 20) - 1, None), Err(15 << 20));
    }

    proptest! {
        /// Parts fit into the memory, none is too small, and all of what is known fits into them.
        #[test]
        fn parts_are_within_bounds(room in (15_u64 << 20)..(8 << 30), total in prop::option::of(0_u64..(6 << 40)), index in 0..MOST_PARTS) {
            match Sizes::new(room, total) {
                Ok(sizes) => {
                    let size = sizes.of(index) as u64;
                    prop_assert!(size >= LEAST);
                    prop_assert!(2 * Block::cost(sizes.of(index)) + Block::cost(sizes.of(0)).min(USUAL) <= room);
                    if let Some(total) = total {
                        prop_assert!(size * MOST_PARTS as u64 >= total);
                    }
                }
                Err(needs) => {
                    prop_assert!(needs > room);
                    prop_assert!(Sizes::new(needs, total).is_ok());
                }
            }
        }
    }
}
