//! Which slot makes way: the clock, pure.
//!
//! A hand goes round the slots. One that was read since the hand came by is passed over once; the next one that was not
//! makes way. The hand counts on for ever, so that everybody can see which slots were filled since he last looked.

use super::layout::Record;

/// So many slots that were read are passed over for one block: then the next one makes way whether it was read or not.
/// A cache of terabytes whose every slot was read is not to be gone through for one block.
const LONGEST: u64 = 1024;
/// So many slots that others are filling are passed over.
const BUSY: u64 = 256;

/// What the hand has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picked {
    /// The slot that makes way.
    pub(super) slot: u32,
    /// Where the hand is now: behind it.
    pub(super) hand: u64,
    /// Whether it held something.
    pub(super) evicts: bool,
}

/// Goes on from `hand` through so many slots. `look` says what one holds, `pass` takes its bit away, `take` says whether
/// it could be taken: others may be filling it.
pub(super) fn pick(
    mut hand: u64,
    slots: u64,
    look: impl Fn(u32) -> Record,
    mut pass: impl FnMut(u32),
    mut take: impl FnMut(u32) -> bool,
) -> Option<Picked> {
    let (mut passed, mut busy) = (0, 0);
    while passed <= LONGEST + slots.min(LONGEST) && busy <= BUSY.min(2 * slots) {
        let slot = u32::try_from(hand % slots.max(1)).ok()?;
        hand = hand.wrapping_add(1);
        let record = look(slot);
        if record.stamp != 0 && record.touched && passed < LONGEST {
            pass(slot);
            passed += 1;
            continue;
        }
        if take(slot) {
            return Some(Picked { slot, hand, evicts: record.stamp != 0 });
        }
        busy += 1;
        passed += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    fn record(stamp: u64, touched: bool) -> Record {
        Record { stamp, touched, ..Record::default() }
    }

    proptest! {
        /// The first slot from the hand on that is free and was not read since; what was passed over has lost its bit.
        #[test]
        fn the_next_that_was_not_read_makes_way(
            slots in prop::collection::vec((0u64..3, any::<bool>(), any::<bool>()), 1..40),
            hand in 0u64..1000,
        ) {
            let records = RefCell::new(slots.iter().map(|&(stamp, touched, _)| record(stamp, touched)).collect::<Vec<_>>());
            let count = slots.len() as u64;
            let picked = pick(
                hand,
                count,
                |slot| records.borrow()[slot as usize],
                |slot| records.borrow_mut()[slot as usize].touched = false,
                |slot| !slots[slot as usize].2,
            );
            // The model: at most twice round, in order.
            let expected = (hand..hand + 2 * count).find(|at| {
                let index = usize::try_from(at % count).unwrap();
                let (stamp, touched, taken) = slots[index];
                let second = at - hand >= count;
                !taken && (stamp == 0 || !touched || second)
            });
            prop_assert_eq!(picked.map(|picked| picked.hand - 1), expected);
            if let Some(Picked { slot, hand: now, evicts }) = picked {
                prop_assert_eq!(u64::from(slot), (now - 1) % count);
                prop_assert_eq!(evicts, slots[slot as usize].0 != 0);
            }
        }
    }

    #[test]
    fn a_cache_that_was_read_whole_is_not_gone_through() {
        let mut passed = 0;
        let picked = pick(7, 1 << 30, |_| record(1, true), |_| passed += 1, |_| true).unwrap();
        assert_eq!((picked.slot, passed), (7 + 1024, 1024));
        assert_eq!(pick(7, 100, |_| record(1, false), |_| (), |_| false), None, "all are being filled");
    }
}
