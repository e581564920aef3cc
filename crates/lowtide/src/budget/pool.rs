//! Memory for batches and read buffers, recycled newest first.
//!
//! The first touch of new memory costs several times the copy that fills it (FACTS: seven times), so a
//! block that the caller drops goes back to the free slabs of its budget and is the next one handed
//! out, while it is still in the processor's cache. Free slabs count against the budget and make way
//! when it is needed for something else.

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::format::Element;
use crate::sys;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::alloc::{self, Layout};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// Every slab is aligned for vector code, and for unbuffered reads where it is mapped.
const ALIGN: usize = 64;
/// What the kernel's huge pages hold.
const HUGE: usize = 2 << 20;
const _: () = assert!(HUGE as u64 == sys::HUGE);
/// Blocks from this size on that are no whole huge pages are cut from some, several together; each goes by itself, though
/// the system may get back what a huge page has of one only when it is short of memory. A virtual disk wrote 1.3 GB/s
/// to memory in pages of 4 KiB and 3.9 to huge ones (2026-11-19, by hand): chunks of 1 MiB came at half the rate of those
/// of 2 MiB.
const CUT: usize = 128 << 10;
/// What they are cut from, at most; and at most this part of what a budget has.
const CUT_FROM: usize = 8 * HUGE;
const CUT_SHARE: u64 = 8;
/// Blocks from this size on begin where their bytes in the file do in their page: both ends of shorter ones, read by themselves,
/// take longer than a copy (chunks of 256 KiB: 2.4 GB/s through a buffer, 3.0 without).
const LED: usize = 256 << 10;

/// A piece of memory, always initialised (it begins as zeros).
#[derive(Debug)]
pub(crate) struct Slab {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a slab is plain owned memory; nothing about it is tied to a thread.
unsafe impl Send for Slab {}
// SAFETY: shared access only reads; writing needs `&mut`.
unsafe impl Sync for Slab {}

impl Slab {
    /// The capacity that a request is rounded up to, so that requests of about one size share slabs.
    fn class(len: usize) -> Option<usize> {
        Self::class_for(len, sys::page())
    }

    /// From a page on, whole pages: the rest of one would be ours as well, and not be counted. Pages are 4 KiB on
    /// x86-64, and up to 64 KiB on aarch64.
    fn class_for(len: usize, page: usize) -> Option<usize> {
        if len < page {
            return Some(len.max(ALIGN).next_power_of_two());
        }
        // An eighth at most is wasted, or a page: a group is thousands of small batches, and twice the memory for each
        // would be half as many.
        let step = (len.checked_next_power_of_two()? / 16).max(page);
        len.checked_next_multiple_of(step)
    }

    /// The same for bytes that begin so many behind the beginning of a page: with one page more.
    fn class_at(len: usize, lead: usize) -> Option<usize> {
        match lead {
            0 => Self::class(len),
            _ if lead >= sys::page() => None,
            _ => Self::class(len.max(sys::page()))?.checked_add(sys::page()),
        }
    }

    /// From a page on a slab is a mapping of its own: dropping it really gives the memory back to the system. The
    /// system's allocator keeps what it is given back, in a heap for each thread: a budget of 48 MiB became 60.
    fn is_mapped(capacity: usize) -> bool {
        capacity >= sys::page()
    }

    /// How many of a capacity are best made together, of which so many bytes may be made: the fewest of which the least is
    /// in smaller pages, for the last one may end there.
    fn together(capacity: usize, room: u64) -> usize {
        if capacity < CUT {
            return 1;
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(CUT_FROM);
        let counts = (1..=room / capacity).filter(|count| count * capacity >= HUGE);
        counts.min_by_key(|count| (count * capacity % HUGE / count, *count)).unwrap_or(1)
    }

    /// So many of a capacity, one behind the other where they are several.
    fn several(capacity: usize, count: usize) -> Option<Vec<Self>> {
        if count == 1 {
            return Some(vec![Self::new(capacity)?]);
        }
        let start = map_anonymous(capacity.checked_mul(count)?)?;
        // SAFETY: each lies in the mapping just made.
        let slab = |n| Self { start: unsafe { start.byte_add(n * capacity) }, capacity };
        Some((0..count).map(slab).collect())
    }

    fn new(capacity: usize) -> Option<Self> {
        let start = if Self::is_mapped(capacity) {
            map_anonymous(capacity)?
        } else {
            let layout = Layout::from_size_align(capacity, ALIGN).ok()?;
            // SAFETY: `class` never gives a capacity of 0.
            NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?
        };
        Some(Self { start, capacity })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if Self::is_mapped(self.capacity) {
            // SAFETY: mapped in `new` or `several`, these very bytes among others, and owned by us alone.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.capacity) };
        } else if let Ok(layout) = Layout::from_size_align(self.capacity, ALIGN) {
            // SAFETY: allocated in `new` with this very layout, and owned by us alone.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Anonymous memory; from 2 MiB on aligned to it, so that the kernel can use huge pages: scattering
/// small rows over a large look-ahead is bound by the TLB otherwise.
fn map_anonymous(capacity: usize) -> Option<NonNull<u8>> {
    let slack = if capacity >= HUGE { HUGE } else { 0 };
    let whole = capacity.checked_add(slack)?;
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            whole,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?;
    let lead = if slack == 0 { 0 } else { start.align_offset(HUGE) };
    // SAFETY: lead < slack, so all three parts lie inside the mapping just made; the outer two are unmapped
    // and never used. Advice does not change contents: DONTDUMP keeps data out of core dumps.
    unsafe {
        let kept = start.byte_add(lead);
        if lead > 0 {
            let _ = rustix::mm::munmap(start, lead);
        }
        if slack > lead {
            let _ = rustix::mm::munmap(kept.byte_add(capacity), slack - lead);
        }
        if slack > 0 {
            let _ = rustix::mm::madvise(kept, capacity, Advice::LinuxHugepage);
        }
        let _ = rustix::mm::madvise(kept, capacity, Advice::LinuxDontDump);
        NonNull::new(kept.cast())
    }
}

/// Slabs that nobody uses, by capacity, the newest last.
#[derive(Debug, Default)]
pub(crate) struct FreeSlabs {
    by_class: BTreeMap<usize, Vec<(u64, Slab)>>,
    bytes: u64,
    clock: u64,
}

impl FreeSlabs {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, slab: Slab) {
        self.clock += 1;
        self.bytes += slab.capacity as u64;
        self.by_class.entry(slab.capacity).or_default().push((self.clock, slab));
    }

    fn pop_newest(&mut self, class: usize) -> Option<Slab> {
        let (_, slab) = self.by_class.get_mut(&class)?.pop()?;
        self.bytes -= slab.capacity as u64;
        Some(slab)
    }

    /// The slab that has been free for longest, to make room for something else.
    pub(crate) fn pop_oldest(&mut self) -> Option<Slab> {
        self.by_class.retain(|_, slabs| !slabs.is_empty());
        let (_, slabs) = self.by_class.iter_mut().min_by_key(|(_, slabs)| slabs.first().map(|s| s.0))?;
        let (_, slab) = slabs.remove(0);
        self.bytes -= slab.capacity as u64;
        Some(slab)
    }
}

/// Memory for one batch or one buffer. Dropping it returns it to the free slabs of its budget.
#[derive(Debug)]
pub struct Block {
    /// `None` only while being dropped.
    slab: Option<Slab>,
    /// Bytes of the slab before its own.
    lead: usize,
    len: usize,
    budget: Budget,
    owner: Owner,
    generation: u64,
}

/// Whose bytes they are, and so whether they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Ours: look-ahead, read buffers. Counted.
    Budget,
    /// The caller's: a delivered batch. Not counted.
    Caller,
}

impl Block {
    /// A block for the caller, not counted. What it holds is unspecified (but initialised).
    pub fn for_caller(budget: &Budget, len: usize) -> Result<Self> {
        Self::for_caller_at(budget, len, 0)
    }

    /// The same, `lead` bytes behind the beginning of a page: see [`lead`].
    pub(crate) fn for_caller_at(budget: &Budget, len: usize, lead: usize) -> Result<Self> {
        let class = Slab::class_at(len, lead).ok_or_else(|| out_of_memory(len))?;
        let recycled = budget.with(|state| {
            let slab = state.free.pop_newest(class)?;
            state.used -= slab.capacity as u64;
            Some(slab)
        });
        let slab = recycled.or_else(|| Slab::new(class)).ok_or_else(|| out_of_memory(len))?;
        Ok(Self {
            slab: Some(slab),
            lead,
            len,
            budget: budget.clone(),
            owner: Owner::Caller,
            generation: sys::generation(),
        })
    }

    /// A block of ours, counted; `None` where the budget has no room for it.
    pub fn counted(budget: &Budget, len: usize) -> Result<Option<Self>> {
        Self::counted_at(budget, len, 0)
    }

    /// The same, `lead` bytes behind the beginning of a page: see [`lead`].
    pub(crate) fn counted_at(budget: &Budget, len: usize, lead: usize) -> Result<Option<Self>> {
        let class = Slab::class_at(len, lead).ok_or_else(|| out_of_memory(len))?;
        // A recycled slab is counted already: as a free one.
        let (recycled, count) = budget.with(|state| {
            if let Some(slab) = state.free.pop_newest(class) {
                return (Some(slab), Some(1));
            }
            let room = budget.limit().saturating_sub(state.used - state.free.bytes());
            let counts = [Slab::together(class, room / CUT_SHARE), 1];
            (None, counts.into_iter().find(|count| budget.charge(state, (class * count) as u64)))
        });
        let Some(count) = count else { return Ok(None) };
        let discharge = |count| budget.discharge(sys::generation(), (class * count) as u64);
        let made = || {
            let mut slabs = Slab::several(class, count).or_else(|| {
                discharge(count - 1); // one may still be had
                Slab::several(class, 1)
            });
            if slabs.is_none() {
                discharge(1);
            }
            let slab = slabs.as_mut().and_then(Vec::pop);
            budget.with(|state| slabs.into_iter().flatten().for_each(|slab| state.free.push(slab)));
            slab
        };
        let slab = recycled.or_else(made).ok_or_else(|| out_of_memory(len))?;
        Ok(Some(Self {
            slab: Some(slab),
            lead,
            len,
            budget: budget.clone(),
            owner: Owner::Budget,
            generation: sys::generation(),
        }))
    }

    /// What a counted block of `len` bytes takes from the budget.
    pub fn cost(len: usize) -> u64 {
        Slab::class(len).map_or(u64::MAX, |class| class as u64)
    }

    /// Hands the block to the caller: from now on it is not counted.
    #[must_use]
    pub fn deliver(mut self) -> Self {
        if self.owner == Owner::Budget {
            let capacity = self.slab.as_ref().map_or(0, Slab::capacity) as u64;
            self.budget.discharge(self.generation, capacity);
            self.owner = Owner::Caller;
        }
        self
    }

    /// The bytes as numbers.
    pub(crate) fn elements<T: Element>(&self) -> &[T] {
        // SAFETY: `Element` is sealed: plain numbers, of which every bit pattern is one. Slabs are aligned to 64.
        unsafe { self.align_to::<T>().1 }
    }

    /// The bytes as numbers, to be filled.
    pub(crate) fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: as in `elements`, and whatever number is written there, its bytes are bytes.
        unsafe { self.align_to_mut::<T>().1 }
    }

    /// The first byte, for a foreign owner such as NumPy that keeps this block alive while it looks.
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: `class_at` has made room for the bytes before ours.
        let start = |slab: &Slab| unsafe { slab.start.byte_add(self.lead) };
        self.slab.as_ref().map_or(NonNull::dangling(), start).as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(slab) = self.slab.take() else { return };
        let surplus = self.budget.with(|state| {
            // Ours stays counted as a free slab; the caller's is kept only if there is room for it, and
            // then without pushing out other free slabs: they are as good.
            let fits = match self.owner {
                Owner::Budget if self.generation == sys::generation() => true,
                Owner::Budget | Owner::Caller => {
                    let sum = state.used.saturating_add(slab.capacity as u64);
                    let fits = sum <= self.budget.limit();
                    if fits {
                        state.used = sum;
                    }
                    fits
                }
            };
            if fits {
                state.free.push(slab);
                None
            } else {
                Some(slab)
            }
        });
        drop(surplus); // unmapped outside the lock
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slab holds at least `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), self.len) }
    }
}

/// A block, or one of two halves of one, each with its own user: a huge page is larger than what each of them may take.
#[derive(Debug)]
pub(crate) struct Half {
    block: Arc<Block>,
    bytes: Range<usize>,
}

impl Half {
    pub(crate) fn whole(block: Block) -> Self {
        Self { bytes: 0..block.len(), block: Arc::new(block) }
    }

    /// Both halves of what is not divided yet: whole pages, and what is left.
    pub(crate) fn split(self) -> [Self; 2] {
        let Range { start, end } = self.bytes;
        let middle = start + (end - start) / 2 / sys::page() * sys::page();
        [start..middle, middle..end].map(|bytes| Self { block: self.block.clone(), bytes })
    }

    /// The first byte, for the kernel to write to.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.as_ptr().wrapping_add(self.bytes.start)
    }
}

impl Deref for Half {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: these bytes of the block, which lives as long as this; nobody else has them, and nobody looks at all of it.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.bytes.len()) }
    }
}

/// How far behind the beginning of a page a block begins whose bytes come from byte `offset` of a file: where they lie in
/// their pages as they do in the file, an unbuffered read goes straight to them. (2.8 GB/s through a buffer, 4.0 without,
/// where the disk gave 4.3: what is copied takes from what the disk can write to memory.) 0 where memory is not in huge
/// pages, to which a virtual disk writes three times as fast as to others, or elements would not be aligned any more.
pub(crate) fn lead(offset: u64, len: usize) -> usize {
    let page = sys::page();
    let lead = usize::try_from(offset % page as u64).unwrap_or(0);
    if len >= LED && lead.is_multiple_of(ALIGN) { lead } else { 0 }
}

fn out_of_memory(len: usize) -> Error {
    Error::Memory { needs: len as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_block_comes_back_first() {
        let budget = Budget::new(64 << 20).unwrap();
        let a = Block::for_caller(&budget, 1 << 20).unwrap();
        let b = Block::for_caller(&budget, 1 << 20).unwrap();
        let (a_at, b_at) = (a.as_ptr(), b.as_ptr());
        drop(a);
        drop(b);
        assert_eq!(Block::for_caller(&budget, 1 << 20).unwrap().as_ptr(), b_at);
        let _b = Block::for_caller(&budget, 1 << 20).unwrap();
        assert_eq!(Block::counted(&budget, 1 << 20).unwrap().unwrap().as_ptr(), a_at);
    }

    #[test]
    fn free_slabs_count_and_make_way() {
        let budget = Budget::new(4 << 20).unwrap();
        let blocks: Vec<_> = (0..6).map(|_| Block::for_caller(&budget, 1 << 20).unwrap()).collect();
        assert_eq!(budget.used(), 0, "the caller's blocks are not counted, however many");
        drop(blocks);
        assert_eq!(budget.used(), 4 << 20, "and only as many are kept as fit");
        assert!(budget.lease(3 << 20).is_some());
        let lease = budget.lease(4 << 20).unwrap();
        assert!(Block::counted(&budget, 1).unwrap().is_none());
        drop(lease);
        let held = Block::counted(&budget, 3 << 20).unwrap().unwrap();
        assert!(Block::counted(&budget, 2 << 20).unwrap().is_none());
        let held = held.deliver();
        assert_eq!(budget.used(), 0);
        drop(held);
        assert_eq!(budget.used(), 3 << 20);
    }

    #[test]
    fn halves_are_all_of_a_block_and_give_it_back() {
        let budget = Budget::new(64 << 20).unwrap();
        for len in [(2 << 20) + 12_345, 8192, 100] {
            let mut block = Block::counted(&budget, len).unwrap().unwrap();
            block.iter_mut().zip((0..251).cycle()).for_each(|(byte, number)| *byte = number);
            let (start, used) = (block.as_ptr(), budget.used());
            let [one, other] = Half::whole(block).split();
            assert_eq!((one.as_ptr(), other.as_ptr()), (start, start.wrapping_add(one.len())));
            assert!(one.len() + other.len() == len && one.len().is_multiple_of(sys::page()));
            assert!(one.iter().chain(&*other).copied().eq((0..251).cycle().take(len)));
            drop(one);
            assert_eq!(budget.used(), used);
            let slab = Block::counted(&budget, len).unwrap().unwrap();
            assert_ne!(slab.as_ptr(), start, "the other half is somebody's");
            drop(other);
            assert_eq!(Block::counted(&budget, len).unwrap().unwrap().as_ptr(), start, "used again");
        }
    }

    #[test]
    fn a_block_lies_in_its_page_as_bytes_do_in_a_file() {
        let budget = Budget::new(64 << 20).unwrap();
        for (offset, len, expected) in [
            (128, 2 << 20, 128),
            ((7 << 20) + 64, 5 << 20, 64),
            (100, 4 << 20, 0),
            (128, LED, 128),
            (128, LED - 1, 0),
            (1 << 30, 2 << 20, 0),
        ] {
            let lead = lead(offset, len);
            assert_eq!(lead, expected, "{offset} {len}");
            let before = budget.used();
            let mut block = Block::counted_at(&budget, len, lead).unwrap().unwrap();
            assert_eq!((block.len(), block.as_ptr().addr() % sys::page()), (len, lead));
            block.fill(1);
            assert!(budget.used() - before <= (Block::cost(len) + sys::page() as u64).max(CUT_FROM as u64));
            let at = block.as_ptr();
            drop(block);
            assert_eq!(Block::counted_at(&budget, len, lead).unwrap().unwrap().as_ptr(), at, "used again");
        }
        assert!(Block::for_caller_at(&budget, 10, sys::page()).is_err());
    }

    #[test]
    fn blocks_that_are_no_whole_huge_pages_are_cut_from_some() {
        let page = sys::page();
        for capacity in (1..6000).map(|pages| pages * page) {
            for room in [0, 1 << 20, 3 << 20, 1 << 30] {
                let (count, room) = (Slab::together(capacity, room), usize::try_from(room).unwrap());
                assert!(
                    count == 1 || count * capacity <= room.min(CUT_FROM),
                    "{count} of {capacity} in {room}"
                );
                assert!(count == 1 || (CUT..CUT_FROM).contains(&capacity) && !capacity.is_multiple_of(HUGE));
                // Of what is large enough, three quarters are in huge pages where there is room for it.
                let huge = count * capacity / HUGE * HUGE;
                assert!(
                    !(CUT..=CUT_FROM).contains(&capacity)
                        || room < CUT_FROM
                        || huge * 4 >= count * capacity * 3
                );
            }
        }
        // Each is whole, and goes by itself.
        let budget = Budget::new(128 << 20).unwrap();
        let len = (1 << 20) + 5000;
        let mut blocks: Vec<_> = (0..9).map(|_| Block::counted(&budget, len).unwrap().unwrap()).collect();
        let used = budget.used();
        assert!(used >= 9 * Block::cost(len) && used <= 9 * Block::cost(len) + CUT_FROM as u64);
        blocks.iter_mut().zip(1..).for_each(|(block, number)| block.fill(number));
        blocks.truncate(5);
        let all = budget.lease(budget.available()).unwrap(); // free ones make way
        assert_eq!(budget.used(), budget.limit());
        assert!(blocks.iter().zip(1..).all(|(block, number)| block.iter().all(|&byte| byte == number)));
        drop(all);
        assert_eq!(budget.used(), 5 * Block::cost(len));
        drop(blocks);
        let taken = Block::counted(&budget, 1 << 20).unwrap().unwrap().deliver();
        drop(budget);
        assert!(taken.iter().all(|&byte| byte == 0), "the caller's own, though others of its page are gone");
    }

    /// What is counted is what the kernel gives, whatever its pages are.
    #[test]
    fn slabs_that_are_mapped_are_whole_pages() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for len in (0..24).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1, 5 << bits]) {
                let class = Slab::class_for(len, page).unwrap();
                assert!(
                    class >= len && (class < page || class.is_multiple_of(page)),
                    "{len} is {class} of {page}"
                );
            }
        }
    }

    #[test]
    fn blocks_of_every_size_are_whole() {
        for len in
            [0, 1, 63, 64, 65, 4096, (128 << 10) - 1, 128 << 10, (2 << 20) - 1, (2 << 20) + 1, 40 << 20]
        {
            let budget = Budget::new(1 << 30).unwrap();
            let mut block = Block::for_caller(&budget, len).unwrap();
            assert!(block.iter().all(|&b| b == 0));
            block.fill(7);
            assert_eq!(block.len(), len);
        }
        let budget = Budget::new(1 << 30).unwrap();
        assert!(matches!(Block::for_caller(&budget, usize::MAX), Err(Error::Memory { .. })));
        assert!(matches!(
            Block::for_caller(&budget, 1 << 60),
            Err(Error::Memory { needs: 1_152_921_504_606_846_976 })
        ));
    }
}
