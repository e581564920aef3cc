//! Unbuffered reads, many in flight: cold data larger than memory. The page cache is left alone.
//!
//! Reads are cut into aligned pieces that go through bounce buffers of the budget (where they are not aligned
//! as they are), up to [`DEPTH`] at a time, by io_uring or, where that is refused (containers, old kernels), by a pool of threads. What
//! somebody has in the page cache is read from the disk all the same: a read through the page cache could
//! hit a page that read-ahead has marked, and start more of it. Where the filesystem cannot read unbuffered,
//! [`DirectStore::new`] says so.

use super::model::Model;
use super::uring::{Ring, Way};
use super::{Cost, Read, Source, Store};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::pool::Block;
use crate::sys;
use rustix::fs::OFlags;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Requests in flight in one ring: 32 gave 67,000 a second, 128 gave 74,000, two rings of 64 twice that.
pub const DEPTH: usize = 64;
/// Threads where there is no ring.
const THREADS: usize = 16;
/// The largest piece: 16 of them in flight fill our disk.
const LARGEST: usize = 512 << 10;
/// Bounce buffers of one ring, where the budget allows.
const BOUNCE: usize = 4 << 20;
/// Rings for each core: while what came through one is scattered, the others keep the disk busy.
const RINGS: usize = 2;
/// Less than this makes no sense.
const SMALLEST_BOUNCE: usize = 128 << 10;
/// What to expect before anything was read: 70,000 requests a second, or 2 GB/s.
const PRIOR: Cost = Cost { request: 14_000.0, byte: 0.5 };

/// How requests reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// io_uring. Linux 5.6.
    Uring,
    /// Threads that each wait for one read.
    Threads,
}

impl Engine {
    /// io_uring if this process may use it. Asked anew each time: seccomp can change its answer.
    pub fn available() -> Self {
        if Ring::works() { Self::Uring } else { Self::Threads }
    }
}

/// Reads with `O_DIRECT`.
#[derive(Debug)]
pub struct DirectStore {
    source: Arc<Source>,
    file: File,
    align: usize,
    engine: Engine,
    budget: Budget,
    /// Rings at rest, and the [`sys::generation`] they belong to: a child must not touch its parent's.
    rings: Mutex<(u64, Vec<Ring>)>,
    model: Model,
}

impl DirectStore {
    /// Over an open file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the filesystem cannot read unbuffered, [`Error::Budget`] where there is
    /// no room for bounce buffers.
    pub fn new(source: Arc<Source>, budget: &Budget, engine: Engine) -> Result<Self> {
        let unsupported = |why: &str| {
            Error::unsupported(
                format!("{}: unbuffered reads are not possible here: {why}", source.path().display()),
                "access=\"read\" with cache=\"drop\" is the next best way, and what access=\"auto\" takes",
            )
        };
        if budget.limit() < 4 * SMALLEST_BOUNCE as u64 {
            return Err(Error::Budget {
                what: "access=\"direct\"".into(),
                needs: 4 * SMALLEST_BOUNCE as u64,
                limit: budget.limit(),
                hint: "access=\"read\" works in any budget".into(),
            });
        }
        let file = source.reopen(OFlags::DIRECT);
        let file = file.map_err(|e| unsupported(&format!("opening with O_DIRECT gave: {e}")))?;
        let align =
            sys::direct_alignment(&file).ok_or_else(|| unsupported("the filesystem says so (statx)"))?;
        Ok(Self {
            source,
            file,
            align,
            engine,
            budget: budget.clone(),
            rings: Mutex::default(),
            model: Model::new(PRIOR),
        })
    }

    /// How requests reach the kernel.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Memory for pieces in flight: as much as the budget gives.
    fn bounce(&self) -> Result<Block> {
        let fair = usize::try_from(self.budget.limit() / 16).unwrap_or(BOUNCE);
        let mut len = BOUNCE.min(fair).max(SMALLEST_BOUNCE);
        loop {
            if let Some(block) = Block::counted(&self.budget, len)? {
                return Ok(block);
            }
            if len <= SMALLEST_BOUNCE {
                // Everything is in use, and a read must come through all the same: an uncounted 128 KiB.
                return Block::for_caller(&self.budget, len);
            }
            len = (len / 2).max(SMALLEST_BOUNCE);
        }
    }

    /// What came of a piece: `got` bytes from the aligned offset on, in `slot`.
    fn take(&self, read: &mut Read<'_>, slot: &[u8], got: usize) -> Result<()> {
        let lead = self.lead(read);
        if got >= lead + read.into.len() {
            read.into.copy_from_slice(&slot[lead..lead + read.into.len()]);
            return Ok(());
        }
        // Short: the end of the file, or a signal. An ordinary read tells which.
        match self.source.file().read_exact_at(read.into, read.offset) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Err(self.source.cut(read, self.source.len_now()?))
            }
            Err(e) => Err(Error::io(self.source.path(), "read the file", e)),
        }
    }

    /// Bytes between the aligned offset and the read's.
    fn lead(&self, read: &Read<'_>) -> usize {
        usize::try_from(read.offset % self.align as u64).unwrap_or(0)
    }

    /// Bytes from the aligned offset to the aligned end.
    fn span(&self, read: &Read<'_>) -> usize {
        (self.lead(read) + read.into.len()).next_multiple_of(self.align)
    }

    /// Offset, length and memory as the disk wants them need no bounce buffer.
    fn way(&self, read: &Read<'_>) -> Way {
        let aligned = self.lead(read) == 0
            && read.into.len().is_multiple_of(self.align)
            && read.into.as_ptr().addr().is_multiple_of(self.align);
        if aligned { Way::Straight } else { Way::Bounce }
    }

    /// Cuts reads into pieces that fit in a slot of `slot` bytes.
    fn cut<'a>(&self, reads: &'a mut [Read<'_>], slot: usize) -> Result<Vec<Read<'a>>> {
        let longest = slot - 2 * self.align; // both ends may have to be aligned
        let mut pieces = Vec::with_capacity(reads.len());
        for read in reads {
            if i64::try_from(read.end().saturating_add(self.align as u64)).is_err() {
                return Err(self.source.cut(read, self.source.len_now()?));
            }
            let mut offset = read.offset;
            for into in read.into.chunks_mut(longest) {
                let piece = Read { offset, into };
                offset = piece.end();
                pieces.push(piece);
            }
        }
        Ok(pieces)
    }

    /// The largest slot that `bounce` bytes should be divided into: at least four in flight.
    fn slot(&self, bounce: usize) -> usize {
        (bounce / 4).min(LARGEST).max(4 * self.align).min(bounce) / self.align * self.align
    }

    fn by_ring(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let rest = sys::locked(&self.rings, |(generation, rings)| {
            if *generation != sys::generation() {
                std::mem::forget(std::mem::take(rings)); // the parent's: not even closing them is ours
                *generation = sys::generation();
            }
            rings.pop()
        });
        let mut ring = match rest {
            Some(ring) => ring,
            None => Ring::new(DEPTH, self.bounce()?)
                .map_err(|e| Error::io(self.source.path(), "set io_uring up", e))?,
        };
        let mut pieces = self.cut(reads, self.slot(ring.bounce_len()))?;
        let slot = pieces.iter().map(|p| self.span(p)).max().unwrap_or(self.align);
        let failed = |e| Error::io(self.source.path(), "read the file", e);
        ring.run(
            &self.file,
            slot,
            &mut pieces,
            |piece| (piece.offset - self.lead(piece) as u64, self.span(piece), self.way(piece)),
            |piece, bytes, got| self.take(piece, bytes, got),
            failed,
        )?;
        sys::locked(&self.rings, |(_, rings)| rings.push(ring));
        Ok(())
    }

    fn by_threads(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let mut bounce = self.bounce()?;
        let mut pieces = self.cut(reads, self.slot(bounce.len()))?;
        let slot = pieces.iter().map(|p| self.span(p)).max().unwrap_or(self.align);
        let threads = THREADS.min(bounce.len() / slot).clamp(1, pieces.len().max(1));
        let share = pieces.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let workers: Vec<_> = pieces
                .chunks_mut(share)
                .zip(bounce.chunks_exact_mut(slot))
                .map(|(pieces, slot)| {
                    scope.spawn(move || pieces.iter_mut().try_for_each(|p| self.read_one(p, slot)))
                })
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().try_for_each(join)
        })
    }

    fn read_one(&self, piece: &mut Read<'_>, slot: &mut [u8]) -> Result<()> {
        let (offset, span) = (piece.offset - self.lead(piece) as u64, self.span(piece));
        loop {
            match self.file.read_at(&mut slot[..span], offset) {
                Ok(got) => return self.take(piece, slot, got),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io(self.source.path(), "read the file", e)),
            }
        }
    }
}

impl Store for DirectStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        match self.engine {
            Engine::Uring => self.by_ring(reads),
            Engine::Threads => self.by_threads(reads),
        }
    }

    fn whole(&self, bytes: Range<u64>) -> Range<u64> {
        let align = self.align as u64;
        let whole = bytes.start / align * align..bytes.end.next_multiple_of(align);
        if whole.end <= self.source.len() { whole } else { bytes }
    }

    fn cost(&self) -> Cost {
        self.model.cost()
    }

    fn threads(&self) -> usize {
        match self.engine {
            Engine::Uring => sys::cores().min(2) * RINGS,
            Engine::Threads => 1, // `read_many` has its own
        }
    }

    fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        self.model.learn(requests, bytes, took);
    }
}
