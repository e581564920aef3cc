//! Unbuffered reads, many in flight: cold data larger than memory. The page cache is left alone.
//!
//! Reads are cut into aligned pieces that go through bounce buffers of the budget (where they are not aligned
//! as they are), up to [`DEPTH`] at a time, by io_uring or, where that is refused (containers, old kernels), by a pool of threads. What
//! somebody has in the page cache is read from the disk all the same: a read through the page cache could
//! hit a page that read-ahead has marked, and start more of it. Where the filesystem cannot read unbuffered,
//! [`DirectStore::new`] says so.

use super::deep::{DEPTH, Engine, Piece, Rings};
use super::uring::Ring;
use crate::budget::Budget;
use crate::budget::pool::{Block, Half};
use crate::door::ACCESS;
use crate::error::{Error, Result};
use crate::store::{Cost, DirectFile, Files, How, Nature, OneFile, Read, Report, Source, Store};
use crate::sys::{self, crew};
use std::sync::Mutex;

/// Threads where there is no ring.
const THREADS: usize = 16;
/// The largest piece, with room for both its ends to be aligned: what the engine cuts long reads into is one request. Of a
/// virtual disk it is requests that cost, and the pieces of memory that each goes to: 512 KiB at a time and the odd end
/// of each megabyte by itself gave 2.1 GB/s, a megabyte 2.7.
const LARGEST: usize = (1 << 20) + (8 << 10);
/// Bounce buffers of one ring, where the budget allows.
const BOUNCE: usize = 4 << 20;
/// Rings for each core: while what came through one is scattered, the others keep the disk busy. A virtual disk may tell what
/// is done only when nothing is left to do: all of them come back together then, and the shorter a call is, the sooner the
/// disk has the next one. Four brought blocks of 121 KiB at 2.7 GB/s where two brought 2.35 (2026-11-19, by hand, one after the
/// other).
const RINGS: usize = 4;
/// Files up to this size keep no descriptor but their own.
const SMALL: u64 = 4 << 20;
/// Less than this makes no sense.
const SMALLEST_BOUNCE: usize = 128 << 10;

/// The least that pieces of this alignment can go through: both ends of one may have to be aligned. Where the kernel
/// does not say what it needs, that is a page, and on aarch64 a page may be 64 KiB.
fn smallest_bounce(align: usize) -> usize {
    SMALLEST_BOUNCE.max(4 * align)
}

/// What all of these pieces can be read with.
fn widest(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().map(|piece| piece.align).max().unwrap_or(1)
}

/// What to expect before anything was read: 70,000 requests a second, or 2 GB/s.
const PRIOR: Cost = Cost { request: 14_000.0, byte: 0.5, waits: true };

/// Whether a file is not kept open: it is read in a few requests, and there may be thousands of them.
fn is_small(file: &OneFile) -> bool {
    file.len() <= SMALL
}

/// Reads with `O_DIRECT`.
#[derive(Debug)]
pub struct DirectStore {
    source: Source,
    /// Of requests that need no copy.
    align: usize,
    engine: Engine,
    budget: Budget,
    rings: Rings,
    /// Half of a ring's buffer, for the next one.
    spare: Mutex<Option<Half>>,
}

impl DirectStore {
    /// Over one file, or many, whose requests are in flight together.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the filesystem cannot read unbuffered, [`Error::Budget`] where there is
    /// no room for bounce buffers. Of many files only the first is looked at; the others are opened when they
    /// are read.
    pub fn new(source: &Source, budget: &Budget, engine: Engine) -> Result<Self> {
        let align = match source {
            Source::File(file) => DirectFile::open(file)?.align,
            Source::Files(files) => {
                if files.count() > 0 {
                    let first = files.open(0)?;
                    files.opened(|| first.direct())?;
                }
                1 // a whole sector could end in another file
            }
            Source::Objects(_) => return Err(source.no_file()),
        };
        if budget.limit() < 4 * SMALLEST_BOUNCE as u64 {
            return Err(Error::Budget {
                what: ACCESS.is("direct").into(),
                needs: 4 * SMALLEST_BOUNCE as u64,
                limit: budget.limit(),
                hint: ACCESS.is("read") + " works in any budget",
            });
        }
        let (rings, spare) = (Rings::default(), Mutex::default());
        Ok(Self { source: source.clone(), align, engine, budget: budget.clone(), rings, spare })
    }

    /// The most rings that read at once.
    pub(crate) const RINGS_AT_MOST: usize = 2 * RINGS;

    /// How many rings read at once in a budget. Fewer with buffers in huge pages beat more without: a virtual disk wrote
    /// 1.2 GB/s to buffers of a mebibyte and 2.8 to those of two. But two at least: a thread by itself makes 74,000 requests
    /// a second, whatever a disk can do.
    pub(crate) fn rings(limit: u64) -> usize {
        let most = (sys::cores() * RINGS).min(Self::RINGS_AT_MOST);
        match usize::try_from(limit / 16 / sys::HUGE) {
            Ok(huge @ 1..) => most.min(huge.max(2)),
            _ => most,
        }
    }

    /// What a ring's bounce buffer may take of a budget: a sixteenth for all of them.
    pub(crate) fn bounce_share(limit: u64) -> usize {
        usize::try_from(limit / 16 / Self::rings(limit) as u64).unwrap_or(BOUNCE).min(BOUNCE)
    }

    /// How requests reach the kernel.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Memory for a ring's pieces in flight. Where its share is less than a huge page, and two of them are not, two rings
    /// have halves of one.
    fn half(&self, align: usize) -> Result<Half> {
        let (smallest, share) = (smallest_bounce(align), Self::bounce_share(self.budget.limit()));
        let kept = sys::locked(&self.spare, Option::take).filter(|half| half.len() >= smallest);
        if let Some(half) = kept {
            return Ok(half);
        }
        let two = (share as u64) < sys::HUGE && 2 * share as u64 >= sys::HUGE;
        let whole = Half::whole(self.bounce(if two { 2 * share } else { share }, align)?);
        if !two || whole.len() < 2 * smallest {
            return Ok(whole);
        }
        let [half, other] = whole.split();
        sys::locked(&self.spare, |kept| *kept = Some(other));
        Ok(half)
    }

    /// Memory for pieces in flight: `len`, or as much as the budget gives.
    fn bounce(&self, len: usize, align: usize) -> Result<Block> {
        let smallest = smallest_bounce(align);
        let mut len = len.max(smallest);
        loop {
            if let Some(block) = Block::counted(&self.budget, len)? {
                return Ok(block);
            }
            if len <= smallest {
                // Everything is in use, and a read must come through all the same: mostly an uncounted 128 KiB.
                return Block::for_caller(&self.budget, len);
            }
            len = (len / 2).max(smallest);
        }
    }

    /// Cuts pieces so that each fits in a slot of a buffer of `bounce` bytes, of which there are `slots` at least; says how
    /// large a slot is.
    fn cut(mut pieces: Vec<Piece<'_>>, bounce: usize, slots: usize) -> Result<(Vec<Piece<'_>>, usize)> {
        pieces.iter().try_for_each(Piece::check_end)?;
        let align = widest(&pieces);
        // Both ends of a piece may have to be aligned.
        let largest = (bounce / slots).min(LARGEST).max(4 * align).min(bounce) / align * align;
        let (longest, longest_straight) = (largest - 2 * align, LARGEST / align * align);
        let most = |piece: &Piece<'_>| if piece.is_straight() { longest_straight } else { longest };
        if pieces.iter().any(|piece| piece.has_straight_part() || piece.read.into.len() > most(piece)) {
            let parts = pieces.into_iter().flat_map(Piece::straightened);
            pieces = parts.map(|part| (most(&part), part)).flat_map(|(most, part)| part.cut(most)).collect();
        }
        let bounced = pieces.iter().filter(|piece| !piece.is_straight());
        let slot = bounced.map(|piece| piece.place().1).max().unwrap_or(align);
        // In no more pages than it needs, where there is room for that: the kernel takes hold of each by itself.
        let paged = slot.next_multiple_of(sys::page());
        let slot = if bounce / paged >= pieces.len().min(DEPTH) { paged } else { slot };
        Ok((pieces, slot))
    }

    fn read_pieces(&self, mut pieces: Vec<Piece<'_>>) -> Result<()> {
        pieces.retain(|piece| !piece.read.into.is_empty());
        match self.engine {
            _ if pieces.is_empty() => Ok(()),
            Engine::Uring => self.by_ring(pieces),
            Engine::Threads => self.by_threads(pieces),
        }
    }

    fn read_group(&self, files: &Files, group: &mut [(usize, Vec<Read<'_>>)]) -> Result<()> {
        let open: Vec<_> = group.iter().map(|(i, _)| files.open(*i)).collect::<Result<_>>()?;
        let mut pieces = Vec::new();
        for ((_, reads), file) in group.iter_mut().zip(&open) {
            let direct = files.opened(|| file.direct())?;
            pieces.extend(reads.iter_mut().map(|read| Piece::unbuffered(file, direct, read.again())));
        }
        self.read_pieces(pieces)
    }

    fn by_ring(&self, pieces: Vec<Piece<'_>>) -> Result<()> {
        let align = widest(&pieces);
        let failed = |e| Error::io(pieces[0].source.path(), "set io_uring up", e);
        let made = || Ring::new(Some(self.half(align)?)).map_err(failed);
        let mut ring = match self.rings.take().filter(|ring| ring.bounce_len() >= smallest_bounce(align)) {
            Some(ring) => ring,
            None => match &self.source {
                Source::Files(files) => files.opened(made),
                _ => made(),
            }?,
        };
        let (mut pieces, slot) = Self::cut(pieces, ring.bounce_len(), 3)?;
        ring.run(slot, &mut pieces)?;
        if !matches!(&self.source, Source::File(file) if is_small(file)) {
            self.rings.put(ring);
        }
        Ok(())
    }

    fn by_threads(&self, pieces: Vec<Piece<'_>>) -> Result<()> {
        let limit = self.budget.limit();
        let all = (Self::bounce_share(limit) * Self::rings(limit)).min(BOUNCE); // whoever reads has threads of his own
        let mut bounce = self.bounce(all, widest(&pieces))?;
        let (mut pieces, slot) = Self::cut(pieces, bounce.len(), THREADS / 2)?;
        let threads = THREADS.min(bounce.len() / slot).clamp(1, pieces.len().max(1));
        let share = pieces.len().div_ceil(threads).max(1);
        let parts = pieces.chunks_mut(share).zip(bounce.chunks_exact_mut(slot));
        let count = parts.len();
        let answers = crew::each(threads - 1, parts, |(pieces, slot)| {
            pieces.iter_mut().try_for_each(|piece| piece.read_alone(slot))
        });
        if answers.len() < count {
            return Err(Error::Interrupted); // forked in the middle of it: the others are in another process
        }
        answers.into_iter().collect()
    }
}

impl Store for DirectStore {
    fn nature(&self) -> Nature {
        let (threads, in_flight) = match self.engine {
            Engine::Uring => (Self::rings(self.budget.limit()), DEPTH),
            Engine::Threads => (1, 0), // `read` has its own
        };
        let (align, end) = (self.align as u64, self.source.len());
        Nature { learns: true, align, end, in_flight, ..Nature::plain(PRIOR, threads) }
    }

    fn read(&self, reads: &mut [Read<'_>], _how: How<'_>) -> Result<Report> {
        match &self.source {
            Source::File(file) => {
                let direct = if is_small(file) { &DirectFile::open(file)? } else { file.direct()? };
                let pieces = reads.iter_mut().map(|read| Piece::unbuffered(file, direct, read.again()));
                self.read_pieces(pieces.collect())?;
            }
            Source::Files(files) => {
                let mut groups = files.split(reads)?;
                // So many files at once, so that small reads all over them are in flight together.
                files.read_by(self.nature().waiting, |at_once| {
                    groups.chunks_mut(at_once).try_for_each(|group| self.read_group(files, group))
                })?;
            }
            Source::Objects(_) => return Err(self.source.no_file()),
        }
        Ok(Report::from_disk(reads.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Memory that lies in its page as the bytes in theirs is read to without a copy, but for the two ends; other memory
    /// through a buffer. What comes is the same, with a ring and without.
    #[test]
    fn what_can_goes_straight_to_its_place() {
        let mut named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let bytes: Vec<u8> = (0..1_700_003_u32).flat_map(u32::to_le_bytes).collect();
        std::io::Write::write_all(&mut named, &bytes).unwrap();
        let budget = Budget::new(64 << 20).unwrap();
        let source = Source::File(Arc::new(OneFile::open(named.path()).unwrap()));
        for engine in [Engine::Threads, Engine::available()] {
            let store = match DirectStore::new(&source, &budget, engine) {
                Err(Error::Unsupported { what, .. }) => return eprintln!("skipped: {what}"),
                store => store.unwrap(),
            };
            for (offset, len) in
                [(0, 6_800_012), (128, 4 << 20), (64, (2 << 20) + 77), (4032, 3_000_000), (4096, 1 << 20)]
            {
                for lead in [usize::try_from(offset % 4096).unwrap(), 0, 192] {
                    let mut block = Block::for_caller_at(&budget, len, lead).unwrap();
                    assert_eq!(block.as_ptr().addr() % 4096, lead);
                    block.fill(7);
                    for read in (Read { offset, into: &mut block }).paged(1 << 20) {
                        let straight = read.into.as_ptr().addr() as u64 % 4096 == read.offset % 4096;
                        assert_eq!(straight, lead as u64 == offset % 4096, "cut at pages");
                        store.read(&mut [read], How::default()).unwrap();
                    }
                    let start = usize::try_from(offset).unwrap();
                    assert!(block[..] == bytes[start..start + len], "{offset} {len} {lead} {engine:?}");
                    let mut all = vec![Read { offset, into: &mut block }];
                    store.read(&mut all, How::default()).unwrap();
                    assert!(block[..] == bytes[start..start + len]);
                }
            }
            let mut past = Block::for_caller_at(&budget, 1 << 20, 128).unwrap();
            let end = bytes.len() as u64;
            let read = Read { offset: (end - 600_000) / 4096 * 4096 + 128, into: &mut past };
            assert!(matches!(store.read(&mut [read], How::default()), Err(Error::Truncated { .. })));
        }
    }

    /// What a kernel with pages of 64 KiB asks for when it says nothing, and the largest that one may ask for.
    #[test]
    fn wide_alignments_fit_in_small_budgets() {
        let mut named = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..700_001_u32).flat_map(u32::to_le_bytes).collect();
        std::io::Write::write_all(&mut named, &bytes).unwrap();
        for align in [64 << 10, 1 << 20] {
            for engine in [Engine::Threads, Engine::available()] {
                let source = Arc::new(OneFile::open(named.path()).unwrap());
                let file = DirectFile::open(&source);
                if let Err(Error::Unsupported { what, .. }) = file {
                    return eprintln!("skipped: {what}");
                }
                let file = DirectFile { align, ..file.unwrap() };
                let budget = Budget::new(512 << 10).unwrap();
                let store = DirectStore::new(&Source::File(source.clone()), &budget, engine).unwrap();
                let read = |reads: &mut [Read<'_>]| {
                    let pieces = reads.iter_mut().map(|read| Piece::unbuffered(&source, &file, read.again()));
                    store.read_pieces(pieces.collect()).unwrap();
                };
                let (mut first, mut second) = (vec![0; 2_500_000], vec![0; 10]);
                let reads =
                    &mut [Read { offset: 77, into: &mut first }, Read { offset: 1, into: &mut second }];
                read(reads);
                assert!(first == bytes[77..2_500_077] && second == bytes[1..11], "{align} {engine:?}");
                // Memory that lies in its page as the bytes do in theirs, and in what the disk wants, only as chance has it.
                for offset in [128, 4096 + 128, 8192, align as u64 + 4096] {
                    let mut block =
                        Block::for_caller_at(&budget, 1_200_000, (offset % 4096) as usize).unwrap();
                    block.fill(7);
                    read(&mut [Read { offset, into: &mut block }]);
                    let start = usize::try_from(offset).unwrap();
                    assert!(block[..] == bytes[start..start + block.len()], "{offset} {align} {engine:?}");
                }
            }
        }
    }
}
