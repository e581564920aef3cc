//! Pages of which parts come at different times, held until they are whole.
//!
//! A run of a tile rarely begins and ends where a page does. Its neighbour, one tile later, would find the other half of
//! that page on the disk, and the kernel would have to read it before it could go on: one read a run, each waited for
//! alone. So the ends of runs wait here for what is missing. Every byte comes once. Where there is no room for more, the
//! page that has waited longest is written as far as it is there: that is only slower.

use crate::budget::pool::Block;
use crate::error::Result;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Who writes bytes at a place.
type Write<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// The pages that wait. Places are bytes of the file.
pub(super) struct Edges {
    page: usize,
    memory: Block,
    free: Vec<usize>,
    waiting: HashMap<u64, Waiting>,
    /// Pages in the order in which they came; some are whole by now.
    order: VecDeque<u64>,
}

/// A page that is not whole.
struct Waiting {
    slot: usize,
    parts: Vec<Range<usize>>,
}

impl Edges {
    /// As many as `memory` has room for.
    pub(super) fn new(memory: Block, page: usize) -> Self {
        let free = (0..memory.len() / page).rev().collect();
        Self { page, memory, free, waiting: HashMap::new(), order: VecDeque::new() }
    }

    /// Writes whole pages, and keeps the ends.
    pub(super) fn put(&mut self, mut at: u64, mut bytes: &[u8], write: Write<'_>) -> Result<()> {
        let page = self.page as u64;
        if self.free.is_empty() && self.waiting.is_empty() {
            return write(at, bytes);
        }
        let inside = usize::try_from(at % page).unwrap_or(0);
        if inside > 0 || bytes.len() < self.page {
            let len = bytes.len().min(self.page - inside);
            self.hold(at / page, inside, &bytes[..len], write)?;
            (at, bytes) = (at + len as u64, &bytes[len..]);
        }
        let whole = bytes.len() / self.page * self.page;
        if whole > 0 {
            write(at, &bytes[..whole])?;
        }
        if whole < bytes.len() {
            self.hold((at + whole as u64) / page, 0, &bytes[whole..], write)?;
        }
        Ok(())
    }

    fn hold(&mut self, number: u64, at: usize, bytes: &[u8], write: Write<'_>) -> Result<()> {
        if !self.waiting.contains_key(&number) {
            while self.free.is_empty() {
                match self.order.pop_front() {
                    Some(oldest) => self.let_go(oldest, write)?,
                    None => return write(number * self.page as u64 + at as u64, bytes),
                }
            }
            let slot = self.free.pop().unwrap_or(0);
            self.waiting.insert(number, Waiting { slot, parts: Vec::with_capacity(2) });
            self.order.push_back(number);
        }
        let Some(waiting) = self.waiting.get_mut(&number) else { return Ok(()) };
        let start = waiting.slot * self.page + at;
        self.memory[start..start + bytes.len()].copy_from_slice(bytes);
        let (mut from, mut to) = (at, at + bytes.len());
        waiting.parts.retain(|part| {
            let touches = part.end == from || part.start == to;
            if touches {
                (from, to) = (from.min(part.start), to.max(part.end));
            }
            !touches
        });
        waiting.parts.push(from..to);
        if (from, to) == (0, self.page) {
            self.let_go(number, write)?;
        }
        // Those that became whole are taken out of the list now and then.
        if self.order.len() > 4 * self.waiting.len() + 1024 {
            self.order.retain(|number| self.waiting.contains_key(number));
        }
        Ok(())
    }

    /// Writes what there is of a page.
    fn let_go(&mut self, number: u64, write: Write<'_>) -> Result<()> {
        let Some(Waiting { slot, parts }) = self.waiting.remove(&number) else { return Ok(()) };
        self.free.push(slot);
        for part in parts {
            let start = slot * self.page;
            let bytes = &self.memory[start + part.start..start + part.end];
            write(number * self.page as u64 + part.start as u64, bytes)?;
        }
        Ok(())
    }

    /// Writes all that there is.
    pub(super) fn finish(&mut self, write: Write<'_>) -> Result<()> {
        let mut left: Vec<u64> = self.waiting.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().try_for_each(|number| self.let_go(number, write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use proptest::prelude::*;

    proptest! {
        /// Runs that come in any order are all there in the end, each byte once; and with room enough, in whole pages.
        #[test]
        fn all_of_it_is_written_once(
            cuts in prop::collection::btree_set(1_usize..4000, 0..60), slots in 0_usize..12, seed: u64, skew in 0_usize..64,
        ) {
            let cuts: Vec<usize> = [0].into_iter().chain(cuts).chain([4000]).collect();
            let mut runs: Vec<Range<usize>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let mut random = seed | 1;
            for i in (1..runs.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                runs.swap(i, usize::try_from(random >> 33).unwrap() % (i + 1));
            }
            let content: Vec<u8> = (0..4000_usize).map(|n| ((n * 7 + n / 251) % 256).try_into().unwrap()).collect();
            let mut file = vec![None; 4000 + skew];
            let mut whole = 0;
            let memory = Block::for_caller(&Budget::new(1 << 20).unwrap(), slots * 64).unwrap();
            let mut edges = Edges::new(memory, 64);
            let mut write = |at: u64, bytes: &[u8]| {
                let at = usize::try_from(at).unwrap();
                whole += usize::from(at.is_multiple_of(64) && bytes.len().is_multiple_of(64));
                for (place, byte) in file[at..at + bytes.len()].iter_mut().zip(bytes) {
                    assert!(place.replace(*byte).is_none(), "written twice");
                }
                Ok(())
            };
            let pieces = runs.len();
            for run in runs {
                edges.put((run.start + skew) as u64, &content[run], &mut write).unwrap();
            }
            edges.finish(&mut write).unwrap();
            let got: Vec<u8> = file[skew..].iter().map(|byte| byte.unwrap()).collect();
            prop_assert_eq!(got, content);
            prop_assert!(slots < 12 || pieces > 20 || whole > 0);
        }
    }
}
