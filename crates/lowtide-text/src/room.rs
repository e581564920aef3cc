//! How one budget is divided: the tokenizer, what each thread holds, loads of text and tokens, and what reading takes.
//! Pure, with a property that the parts never exceed the whole.

use crate::deal::SPOOLS;
use crate::says::{BUDGET, THREADS};
use crate::tokenizer::Memory;
use lowtide::door::Words;
use lowtide::{Error, Result};

/// Stacks, buffers of files, what unpacking takes, and what the allocator keeps besides.
const FIXED: u64 = 12 << 20;
/// The buffer of a file that grows.
const FILE: u64 = 256 << 10;
/// The smallest load that is worth handing to another thread, and the largest that stays in its cache.
const LEAST: u64 = 16 << 10;
const MOST: u64 = 1 << 20;

/// The parts of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How many loads there are, and the text of one.
    pub loads: usize,
    pub load: usize,
    /// The largest piece of text that cannot be cut.
    pub piece: usize,
    /// What a line of JSON may take, and what unpacking may take.
    pub line: u64,
    /// What a page of a table may take, packed and unpacked. Three are held at a time: words, the last one, the next.
    pub page: u64,
    /// What dealing documents may take.
    pub deal: u64,
}

/// What one byte of text takes in a load: itself, again while it is cut, and a token of `width` at worst.
const fn in_load(width: usize) -> u64 {
    2 + width as u64
}

impl Room {
    /// `memory` is the tokenizer's, and what else is held all the time.
    pub fn new(budget: u64, threads: usize, width: usize, memory: Memory, deals: bool) -> Result<Self> {
        let loads = 2 * threads as u64 + 2;
        let spools = if deals { SPOOLS as u64 * FILE } else { 0 };
        let fixed = FIXED + memory.held + memory.thread * threads as u64 + spools;
        let each = loads * in_load(width) + memory.byte * threads as u64;
        let least = fixed + 4 * LEAST * each;
        if budget < least {
            return Err(Error::Budget {
                what: format!("preparing tokens with {threads} threads").into(),
                needs: least,
                limit: budget,
                hint: Words::from("a larger ") + BUDGET + ", or fewer " + THREADS,
            });
        }
        let rest = budget - fixed;
        let load = (rest / 4 / each).clamp(LEAST, MOST);
        // One piece that cannot be cut at a time is planned for; it takes a load's and a thread's share.
        let piece = (rest / 4 / (in_load(width) + memory.byte)).max(load);
        let line = (rest / 8 / 2).clamp(LEAST, 64 << 20);
        Ok(Self {
            loads: usize::try_from(loads).unwrap_or(2),
            load: usize::try_from(load).unwrap_or(0),
            piece: usize::try_from(piece).unwrap_or(0),
            line,
            page: rest / 4 / 3,
            deal: rest / 2,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FIXED, Room, in_load};
    use crate::tokenizer::Memory;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_never_exceed_the_whole(
            budget in 0_u64..8 << 30, threads in 1_usize..200, wide: bool, held in 0_u64..100 << 20,
            byte in 4_u64..400, deals: bool,
        ) {
            let width = if wide { 4 } else { 2 };
            let memory = Memory { held, thread: 1 << 20, byte };
            let Ok(room) = Room::new(budget, threads, width, memory, deals) else { return Ok(()) };
            let loads = room.loads as u64 * room.load as u64 * in_load(width);
            let ids = byte * (threads * room.load) as u64;
            let piece = room.piece as u64 * (in_load(width) + byte);
            let fixed = FIXED + held + (threads << 20) as u64;
            // While text is read: loads, one large piece, and a line that is being parsed, twice, or pages of a table.
            prop_assert!(fixed + loads + ids + piece + (2 * room.line).max(3 * room.page) <= budget);
            // While documents are dealt there are no loads any more.
            prop_assert!(fixed + room.deal <= budget);
        }
    }
}
