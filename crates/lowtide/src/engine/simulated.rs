//! A disk in memory: a page cache, a disk of given latency, bandwidth, depth and faults, and a clock that only they
//! move, all from one seed. The engine runs on it as it is, so that what `auto` decides can be judged in
//! simulated time, and what it does after an error by the thousand.

mod ranks;
mod tests;

use super::ahead::Ahead;
use super::bytes::{Data, Supply};
use super::job::{Input, Job, Pass};
use super::lane::Clock;
use super::rows::Rows;
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::options::{Access, Cache, CacheWish, Way, Wish};
use crate::order::{LastStep, Shard};
use crate::store::{Cost, How, Manner, Nature, Read, Report, Source, Store, window_for};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;
/// What one fault brings in.
const AROUND: u64 = 128 << 10;
/// What the kernel has read beyond the end of a stream: twice what it has where nobody said that it is one.
const BEYOND: u64 = 256 << 10;
/// Requests that a deep queue holds.
const DEPTH: u64 = 64;

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Of one request, in nanoseconds.
    pub(super) latency: u64,
    /// Bytes in a microsecond.
    pub(super) bandwidth: u64,
    /// How many requests it works on at once.
    pub(super) depth: u64,
    /// Whether a request that goes on where the last one ended finds the head in its place.
    pub(super) seeks: bool,
}

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// These bytes can never be read.
    pub(super) bad: Option<Range<u64>>,
    /// One call in so many fails, by its number.
    pub(super) one_in: Option<u64>,
    /// The file ends here by the time that it is read.
    pub(super) cut: Option<u64>,
    /// Unbuffered reads are refused: a sandbox, another filesystem.
    pub(super) no_direct: bool,
}

/// A file on a disk that is not there.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) len: u64,
    pub(super) speed: Speed,
    /// Bytes of page cache there is room for.
    pub(super) room: u64,
    pub(super) faults: Faults,
    /// Where somebody looks only at the ends of so many bytes each, which are aligned.
    pub(super) grain: Option<u64>,
    clock: Arc<AtomicU64>,
    cache: Arc<Mutex<PageCache>>,
    calls: Arc<AtomicU64>,
    /// Where the last request ended.
    head: Arc<AtomicU64>,
    /// Where the last stream ended.
    streamed: Arc<AtomicU64>,
    /// Until when it has work.
    busy: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct PageCache {
    pages: HashSet<u64>,
    oldest: VecDeque<u64>,
    /// Pages that were asked for ahead of time, and when all of them will be there.
    asked: HashSet<u64>,
    there: u64,
}

/// The eight bytes at a multiple of eight.
pub(super) fn word(at: u64) -> [u8; 8] {
    (at / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

/// Of every `grain` bytes, the first eight and the last: whoever looks at no others saves most of the time that a simulation
/// takes.
fn fill_ends(offset: u64, into: &mut [u8], grain: u64) {
    let end = offset + into.len() as u64;
    let step = usize::try_from(grain).unwrap();
    let ends = (offset / grain * grain..end).step_by(step).flat_map(|at| [at, at + grain - 8]);
    for at in ends.filter(|&at| at >= offset && at + 8 <= end) {
        let from = usize::try_from(at - offset).unwrap();
        into[from..from + 8].copy_from_slice(&word(at));
    }
}

fn fill(offset: u64, into: &mut [u8]) {
    let (mut at, mut rest) = (offset, into);
    if at.is_multiple_of(8) {
        let (words, tail) = rest.as_chunks_mut::<8>();
        words.iter_mut().zip((at..).step_by(8)).for_each(|(into, at)| *into = word(at));
        (at, rest) = (at + words.len() as u64 * 8, tail);
    }
    while !rest.is_empty() {
        let skip = usize::try_from(at % 8).unwrap_or(0);
        let some = (8 - skip).min(rest.len());
        rest[..some].copy_from_slice(&word(at)[skip..skip + some]);
        (at, rest) = (at + some as u64, &mut rest[some..]);
    }
}

impl Disk {
    pub(super) fn new(len: u64, speed: Speed, room: u64) -> Self {
        let (clock, cache, calls) = (Arc::default(), Arc::default(), Arc::default());
        let (head, streamed, busy) = (Arc::default(), Arc::default(), Arc::default());
        let (faults, grain) = (Faults::default(), None);
        Self { len, speed, room, faults, grain, clock, cache, calls, head, streamed, busy }
    }

    /// With so many tenths of the file in the page cache, in stretches of 256 KiB.
    pub(super) fn warmed(self, tenths: u64) -> Self {
        {
            let mut cache = self.cache.lock().unwrap();
            (0..self.len.div_ceil(PAGE)).filter(|page| page / 64 % 10 < tenths).for_each(|page| {
                cache.pages.insert(page);
                cache.oldest.push_back(page);
            });
        }
        self
    }

    /// Nothing of it is in the page cache any more.
    pub(super) fn forget(&self) {
        *self.cache.lock().unwrap() = PageCache::default();
    }

    /// The same disk, as it was before anybody read from it.
    pub(super) fn fresh(&self) -> Self {
        let cache = self.cache.lock().unwrap();
        let (pages, oldest) = (cache.pages.clone(), cache.oldest.clone());
        let cache = PageCache { pages, oldest, ..PageCache::default() };
        Self {
            cache: Arc::new(Mutex::new(cache)),
            clock: Arc::default(),
            calls: Arc::default(),
            head: Arc::default(),
            streamed: Arc::default(),
            busy: Arc::default(),
            ..self.clone()
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    fn pass(&self, nanos: u64) {
        self.clock.fetch_add(nanos, Ordering::Relaxed);
    }

    fn bring_in(&self, cache: &mut PageCache, page: u64) {
        if cache.pages.insert(page) {
            cache.oldest.push_back(page);
        }
        while cache.pages.len() as u64 * PAGE > self.room {
            let Some(oldest) = cache.oldest.pop_front() else { break };
            cache.pages.remove(&oldest);
        }
    }

    /// Whether the head is not there yet.
    fn moves(&self, bytes: &Range<u64>) -> bool {
        let near = 0..=64 * PAGE; // read-ahead, and the track that passes by
        let last = self.head.swap(bytes.end, Ordering::Relaxed);
        !self.speed.seeks || !bytes.start.checked_sub(last).is_some_and(|gap| near.contains(&gap))
    }

    /// Time for so many requests in flight, `depth` at a time.
    fn transfer(&self, requests: u64, bytes: u64, depth: u64) -> u64 {
        let Speed { latency, bandwidth, depth: most, .. } = self.speed;
        let together = depth.min(most).min(requests).max(1);
        (requests * latency / together).max(latency * u64::from(requests > 0)).max(bytes * 1000 / bandwidth)
    }

    /// When they are done, if they are asked for now. It is one disk: what somebody asked for ahead of time takes its
    /// share of the bandwidth and of the requests that it works on at once; only the answers are waited for together.
    fn done(&self, requests: u64, bytes: u64, depth: u64) -> u64 {
        let (now, Speed { latency, bandwidth, depth: most, .. }) = (self.now(), self.speed);
        if requests == 0 && bytes == 0 {
            return now;
        }
        let work = (requests * latency / most).max(bytes * 1000 / bandwidth);
        let busy = self.busy.load(Ordering::Relaxed).max(now) + work;
        self.busy.store(busy, Ordering::Relaxed);
        busy.max(now + self.transfer(requests, bytes, depth))
    }

    /// Waits for them.
    fn wait(&self, requests: u64, bytes: u64, depth: u64) {
        self.pass(self.done(requests, bytes, depth) - self.now());
    }
}

fn pages(read: &Read<'_>) -> Range<u64> {
    read.offset / PAGE..read.end().div_ceil(PAGE)
}

/// One way over the disk.
#[derive(Debug)]
struct Simulated {
    disk: Disk,
    way: Way,
    cache: Cache,
    warm: bool,
}

impl Simulated {
    /// What goes wrong now.
    fn fault(&self, reads: &[Read<'_>]) -> Result<()> {
        let Faults { bad, one_in, cut, .. } = &self.disk.faults;
        let call = self.disk.calls.fetch_add(1, Ordering::Relaxed);
        let hit = |read: &&Read<'_>| {
            bad.as_ref().is_some_and(|bad| read.offset < bad.end && read.end() > bad.start)
        };
        let failed = reads.iter().any(|read| hit(&read))
            || one_in
                .is_some_and(|n| (call + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 0xFFFF < 0xFFFF / n);
        if failed && !reads.is_empty() {
            return Err(Error::io("simulated".as_ref(), "read the file", std::io::Error::other("a fault")));
        }
        let found = cut.unwrap_or(self.disk.len);
        match reads.iter().find(|read| read.end() > found && !read.into.is_empty()) {
            Some(read) => Err(Error::Truncated {
                path: "simulated".into(),
                offset: read.offset,
                end: read.end(),
                found,
            }),
            None => Ok(()),
        }
    }

    /// Reads through the page cache, `depth` misses at a time, each of whole pages.
    fn buffered(&self, reads: &[Read<'_>], depth: u64, touch: u64) -> Report {
        let mut cache = self.disk.cache.lock().unwrap();
        let (mut missed, mut moves, mut bytes, mut copied) = (0, 0, 0, 0);
        for read in reads {
            if pages(read).any(|page| cache.asked.contains(&page)) {
                self.disk.pass(cache.there.saturating_sub(self.disk.now()));
                cache.asked.clear();
            }
            let absent: Vec<u64> = pages(read).filter(|page| !cache.pages.contains(page)).collect();
            missed += usize::from(!absent.is_empty());
            moves += u64::from(!absent.is_empty() && self.disk.moves(&(read.offset..read.end())));
            bytes += absent.len() as u64 * PAGE;
            copied += read.into.len() as u64;
            if self.cache == Cache::Keep {
                for page in absent {
                    self.disk.bring_in(&mut cache, page);
                }
            }
        }
        self.disk.wait(moves, bytes, depth);
        self.disk.pass(reads.len() as u64 * touch + copied / 12);
        Report { looked: reads.len(), missed }
    }

    /// What is asked for ahead of time comes in while others are read, all of it in flight together.
    fn ask_for(&self, coming: &[Range<u64>]) {
        let mut cache = self.disk.cache.lock().unwrap();
        let (mut moves, mut bytes) = (0, 0);
        for range in coming {
            let pages = range.start / PAGE..range.end.div_ceil(PAGE);
            let absent: Vec<u64> = pages.filter(|page| !cache.pages.contains(page)).collect();
            moves += u64::from(!absent.is_empty() && self.disk.moves(range));
            bytes += absent.len() as u64 * PAGE;
            for page in absent {
                self.disk.bring_in(&mut cache, page);
                cache.asked.insert(page);
            }
        }
        cache.there = cache.there.max(self.disk.done(moves, bytes, DEPTH));
    }

    /// Everything from the first read to the last, and from where the last stream ended if that was near.
    fn stream(&self, reads: &[Read<'_>]) -> Report {
        let (Some(first), Some(last)) = (reads.first(), reads.last()) else { return Report::default() };
        let mut cache = self.disk.cache.lock().unwrap();
        let before = self.disk.streamed.swap(last.end(), Ordering::Relaxed);
        let near = first.offset.checked_sub(before).is_some_and(|gap| gap <= BEYOND);
        let start = if near { before / PAGE } else { pages(first).start };
        let all: Vec<u64> = (start..pages(last).end).collect();
        let absent: Vec<u64> = all.into_iter().filter(|page| !cache.pages.contains(page)).collect();
        let bytes = absent.len() as u64 * PAGE;
        let missed = if absent.is_empty() { 0 } else { reads.len() };
        let moves = u64::from(missed > 0 && self.disk.moves(&(first.offset..last.end())));
        for page in absent {
            self.disk.bring_in(&mut cache, page);
        }
        let copied: u64 = reads.iter().map(|read| read.into.len() as u64).sum();
        self.disk.wait(moves, bytes, 1);
        self.disk.pass(copied / 12 + reads.len() as u64 * 300);
        Report { looked: reads.len(), missed }
    }

    /// Faults, one after the other, each of which reads around itself.
    fn mapped(&self, reads: &[Read<'_>]) {
        let mut cache = self.disk.cache.lock().unwrap();
        let mut nanos = 0;
        for read in reads {
            for page in pages(read) {
                if cache.pages.contains(&page) {
                    nanos += 100;
                    continue;
                }
                let around = page / (AROUND / PAGE) * (AROUND / PAGE);
                let moves = self.disk.moves(&(around * PAGE..around * PAGE + AROUND));
                self.disk.wait(moves.into(), AROUND, 1);
                nanos += 500;
                let around = around..(around + AROUND / PAGE).min(self.disk.len.div_ceil(PAGE));
                around.for_each(|page| self.disk.bring_in(&mut cache, page));
            }
            nanos += read.into.len() as u64 / 10;
        }
        self.disk.pass(nanos);
    }
}

impl Store for Simulated {
    fn nature(&self) -> Nature {
        let keeps = self.way == Way::Read && self.cache == Cache::Keep;
        let cold = Cost { request: 15_000.0, byte: 0.5, waits: true };
        let (prior, learns) = match self.way {
            Way::Map | Way::Remap | Way::Advise => (Cost { request: 0.0, byte: 0.1, waits: false }, false),
            Way::Read if self.warm => (Cost { request: 800.0, byte: 0.08, waits: false }, true),
            Way::Read | Way::Direct | Way::Range => (cold, true),
        };
        // One thread: what others would do at once is in the model of the disk.
        let (align, end) = (if self.way == Way::Direct { 512 } else { 1 }, self.disk.len);
        Nature { learns, align, end, in_flight: 64, together: keeps, keeps, ..Nature::plain(prior, 1) }
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        self.fault(reads)?;
        if self.way == Way::Read && self.cache == Cache::Keep {
            self.ask_for(how.coming);
        }
        for read in &mut *reads {
            match self.disk.grain {
                Some(grain) => fill_ends(read.offset, read.into, grain),
                None => fill(read.offset, read.into),
            }
        }
        Ok(match (self.way, how.manner) {
            (Way::Map | Way::Remap | Way::Advise, _) => {
                self.mapped(reads);
                Report::default()
            }
            (Way::Read, Manner::Stream) => self.stream(reads),
            (Way::Read, Manner::Together) => self.buffered(reads, DEPTH, 1000),
            // What is dropped has a thread for each read in flight.
            (Way::Read, _) if self.cache == Cache::Drop => self.buffered(reads, 16, 1500),
            (Way::Read, _) => self.buffered(reads, 1, 800),
            (Way::Direct | Way::Range, _) => {
                let moves =
                    reads.iter().filter(|read| self.disk.moves(&(read.offset..read.end()))).count() as u64;
                let bytes: u64 = reads.iter().map(|read| read.into.len() as u64).sum();
                self.disk.wait(moves, bytes, DEPTH);
                self.disk.pass(reads.len() as u64 * 1000);
                Report::default()
            }
        })
    }
}

impl Supply for Disk {
    fn open(&self, way: Way, cache: Cache, budget: &Budget) -> Result<Arc<dyn Store>> {
        if way == Way::Direct && self.faults.no_direct {
            return Err(Error::unsupported("simulated: unbuffered reads are refused", ""));
        }
        if way.has_windows() {
            window_for(budget.limit())?;
        }
        let warm = self.cached().is_some_and(|cached| crate::sys::is_warm(cached, self.len));
        Ok(Arc::new(Simulated { disk: self.clone(), way, cache, warm }))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn cached(&self) -> Option<u64> {
        Some(self.cache.lock().unwrap().pages.len() as u64 * PAGE)
    }

    fn room(&self) -> u64 {
        self.room
    }

    fn is_guarded(&self) -> bool {
        true
    }

    fn clock(&self) -> Clock {
        Clock::Counted(self.clock.clone())
    }

    fn source(&self) -> Option<&Source> {
        None
    }
}

/// What is asked of the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) access: Access,
    pub(super) budget: u64,
    pub(super) row: usize,
    pub(super) chunk: usize,
}

/// The bytes of a disk, opened.
pub(super) fn opened(disk: &Disk, Ask { access, budget, .. }: Ask) -> Result<Arc<Data>> {
    let wish = Wish { access, cache: CacheWish::Auto, budget: Some(Budget::new(budget)?) };
    Data::over(Box::new(disk.clone()), "simulated".into(), wish)
}

/// The chunks of a pass over all rows of a disk.
pub(super) fn chunks(disk: &Disk, ask: Ask, pass: Pass, shard: Shard) -> Result<Ahead> {
    chunks_of(opened(disk, ask)?, disk.len, ask, pass, shard)
}

/// The chunks of a pass over all rows of so many bytes.
pub(super) fn chunks_of(data: Arc<Data>, len: u64, ask: Ask, pass: Pass, shard: Shard) -> Result<Ahead> {
    let Ask { row, chunk, .. } = ask;
    let count = len / row as u64;
    let rows = Rows::whole(0, row as u64, row, count);
    let input = Input { rows, dealt: None, data, as_type: None, at_last: None, held: None };
    let steps = shard.steps(count, 0, chunk as u64, LastStep::Split)?;
    Ahead::new(Job { inputs: vec![input], pass, steps, ahead: u64::MAX })
}
