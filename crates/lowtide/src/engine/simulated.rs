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
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: u64 = 4096;
/// Requests that a deep queue holds.
const DEPTH: u64 = 64;
/// Processors that copy side by side, and hands that read from memory.
const CORES: usize = 2;
/// Hands that wait for a disk: streams through the page cache or rings, and those of what is to be dropped, of which each
/// makes one read at a time.
const WAITING: (usize, usize) = (4, 16);

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
    /// What the kernel reads around a fault. In a stream it asks for twice as much at a time.
    pub(super) ahead: u64,
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
    /// Another file is in its place by then.
    pub(super) replaced: bool,
    /// From which call on it is cut or replaced.
    pub(super) from: u64,
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
    /// Until when it has work.
    busy: Arc<AtomicU64>,
    /// Until when its processors have.
    worked: Arc<AtomicU64>,
    /// Until when some hand is in the middle of a call.
    called: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Default)]
struct PageCache {
    /// From when on each page is there, if the disk was asked for it.
    there: Vec<Option<u64>>,
    /// Those that are, in the order in which they came.
    oldest: VecDeque<u64>,
    /// Where streams ended, the one that was not used for longest first.
    streams: Vec<u64>,
}

impl PageCache {
    fn there(&self, page: u64) -> Option<u64> {
        *self.there.get(usize::try_from(page).unwrap())?
    }

    fn set(&mut self, page: u64, there: Option<u64>) {
        let at = usize::try_from(page).unwrap();
        if at >= self.there.len() {
            self.there.resize(at + 1, None);
        }
        self.there[at] = there;
    }
}

/// What a call asks of a disk, and how long the disk needs if it does nothing else.
#[derive(Clone, Copy, Default)]
struct Work {
    requests: u64,
    bytes: u64,
    alone: u64,
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
        let (head, busy) = (Arc::default(), Arc::default());
        let (worked, called) = (Arc::default(), Arc::default());
        let (faults, grain) = (Faults::default(), None);
        Self { len, speed, room, faults, grain, clock, cache, calls, head, busy, worked, called }
    }

    /// With so many tenths of the file in the page cache, in stretches of 256 KiB.
    pub(super) fn warmed(self, tenths: u64) -> Self {
        {
            let mut cache = self.cache.lock().unwrap();
            (0..self.len.div_ceil(PAGE)).filter(|page| page / 64 % 10 < tenths).for_each(|page| {
                cache.set(page, Some(0));
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
        let Self { len, speed, room, .. } = *self;
        let (faults, grain) = (self.faults.clone(), self.grain);
        let cache = Arc::new(Mutex::new(self.cache.lock().unwrap().clone()));
        Self { faults, grain, cache, ..Self::new(len, speed, room) }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Brings in pages that are not there: they will be then.
    fn bring_in(&self, cache: &mut PageCache, pages: &[u64], there: u64) {
        for &page in pages {
            cache.set(page, Some(there));
            cache.oldest.push_back(page);
            while cache.oldest.len() as u64 * PAGE > self.room {
                let Some(oldest) = cache.oldest.pop_front() else { break };
                cache.set(oldest, None);
            }
        }
    }

    /// Whether the head is not there yet.
    fn moves(&self, bytes: &Range<u64>) -> bool {
        let near = 0..=64 * PAGE; // read-ahead, and the track that passes by
        let last = self.head.swap(bytes.end, Ordering::Relaxed);
        !self.speed.seeks || !bytes.start.checked_sub(last).is_some_and(|gap| near.contains(&gap))
    }

    /// So many requests in flight, `depth` at a time.
    fn work(&self, requests: u64, bytes: u64, depth: u64) -> Work {
        let Speed { latency, bandwidth, depth: most, .. } = self.speed;
        let together = depth.min(most).min(requests).max(1);
        let alone = (requests * latency / together).max(latency * u64::from(requests > 0));
        Work { requests, bytes, alone: alone.max(bytes * 1000 / bandwidth) }
    }

    /// One request after the other. Where another hand is in the middle of a call, the head goes there between any two.
    fn one_by_one(&self, requests: impl Iterator<Item = Range<u64>>) -> Work {
        let shared = self.called.load(Ordering::Relaxed) > self.now();
        requests.fold(Work::default(), |sum, bytes| {
            let moves = self.moves(&bytes) || shared;
            let one = self.work(moves.into(), bytes.end - bytes.start, 1);
            let (requests, bytes) = (sum.requests + one.requests, sum.bytes + one.bytes);
            Work { requests, bytes, alone: sum.alone + one.alone }
        })
    }

    /// When it is done, if it is asked for now. It is one disk: whoever asks for something, ahead of time or side by side
    /// with others, takes a share of the bandwidth and of the requests that it works on at once; only the answers are
    /// waited for together.
    fn done(&self, Work { requests, bytes, alone }: Work) -> u64 {
        let (now, Speed { latency, bandwidth, depth, .. }) = (self.now(), self.speed);
        if requests == 0 && bytes == 0 {
            return now;
        }
        let work = (requests * latency / depth).max(bytes * 1000 / bandwidth);
        let busy = self.busy.load(Ordering::Relaxed).max(now) + work;
        self.busy.store(busy, Ordering::Relaxed);
        busy.max(now + alone)
    }

    /// Waits until then, and keeps a processor busy for so many nanoseconds: hands share processors as they share the disk.
    fn pass(&self, until: u64, nanos: u64) {
        let now = self.now();
        let worked = self.worked.load(Ordering::Relaxed).max(now) + nanos / CORES as u64;
        self.worked.store(worked, Ordering::Relaxed);
        let end = worked.max(until.max(now) + nanos);
        self.called.fetch_max(end, Ordering::Relaxed);
        self.clock.store(end, Ordering::Relaxed);
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
        let Faults { bad, one_in, cut, replaced, from, .. } = &self.disk.faults;
        let call = self.disk.calls.fetch_add(1, Ordering::Relaxed);
        if *replaced && call >= *from && !reads.is_empty() {
            let (expected, found) = ("the file that was there before".into(), "another one".into());
            return Err(Error::Format {
                path: "simulated".into(),
                offset: 0,
                expected,
                found,
                hint: "".into(),
            });
        }
        let hit = |read: &&Read<'_>| {
            bad.as_ref().is_some_and(|bad| read.offset < bad.end && read.end() > bad.start)
        };
        let failed = reads.iter().any(|read| hit(&read))
            || one_in
                .is_some_and(|n| (call + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & 0xFFFF < 0xFFFF / n);
        if failed && !reads.is_empty() {
            return Err(Error::io("simulated".as_ref(), "read the file", std::io::Error::other("a fault")));
        }
        let found = cut.filter(|_| call >= *from).unwrap_or(self.disk.len);
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
        const MINE: u64 = u64::MAX; // asked for by this very call
        let (disk, now) = (&self.disk, self.disk.now());
        let mut cache = disk.cache.lock().unwrap();
        let (mut missed, mut until, mut copied) = (0, now, 0);
        let (mut asked, mut brought) = (Vec::new(), Vec::new());
        for read in reads {
            let (mut absent, mut waits) = (0, false);
            for page in pages(read) {
                match cache.there(page) {
                    Some(MINE) => {}
                    Some(there) => (waits, until) = (waits || there > now, until.max(there)),
                    None => {
                        absent += 1;
                        if self.cache == Cache::Keep {
                            cache.set(page, Some(MINE));
                            brought.push(page);
                        }
                    }
                }
            }
            missed += usize::from(absent > 0 || waits);
            copied += read.into.len() as u64;
            if absent > 0 {
                asked.push((read.offset, absent * PAGE));
            }
        }
        let bytes = asked.iter().map(|(_, bytes)| bytes).sum();
        let asked = asked.iter().map(|(offset, bytes)| *offset..offset + bytes);
        let work = match depth {
            1 => disk.one_by_one(asked),
            _ => disk.work(asked.filter(|bytes| disk.moves(bytes)).count() as u64, bytes, depth),
        };
        let until = until.max(disk.done(work));
        disk.bring_in(&mut cache, &brought, until);
        disk.pass(until, reads.len() as u64 * touch + copied / 12);
        Report { looked: reads.len(), missed }
    }

    /// What is asked for ahead of time comes in while others are read, all of it in flight together.
    fn ask_for(&self, coming: &[Range<u64>]) {
        let mut cache = self.disk.cache.lock().unwrap();
        let (mut moves, mut all) = (0, Vec::new());
        for range in coming {
            let pages = range.start / PAGE..range.end.div_ceil(PAGE);
            let before = all.len();
            all.extend(pages.filter(|&page| cache.there(page).is_none()));
            moves += u64::from(all.len() > before && self.disk.moves(range));
        }
        all.dedup();
        let there = self.disk.done(self.disk.work(moves, all.len() as u64 * PAGE, DEPTH));
        self.disk.bring_in(&mut cache, &all, there);
    }

    /// Everything from the first read to the last, and from where a stream ended if that was near.
    fn stream(&self, reads: &[Read<'_>]) -> Report {
        let (Some(first), Some(last)) = (reads.first(), reads.last()) else { return Report::default() };
        let (disk, began) = (&self.disk, self.disk.now());
        let mut cache = disk.cache.lock().unwrap();
        let near = |&end: &u64| first.offset.checked_sub(end).is_some_and(|gap| gap <= 2 * disk.speed.ahead);
        let continued = cache.streams.iter().position(near).map(|at| cache.streams.remove(at));
        let start = continued.map_or(pages(first).start, |end| end / PAGE);
        if cache.streams.len() == WAITING.0 {
            cache.streams.remove(0);
        }
        cache.streams.push(last.end());
        let all = start..pages(last).end;
        let until = all.clone().filter_map(|page| cache.there(page)).max().unwrap_or(0);
        let absent: Vec<u64> = all.filter(|&page| cache.there(page).is_none()).collect();
        let ahead = 2 * disk.speed.ahead;
        let pieces = absent.chunks(usize::try_from(ahead / PAGE).unwrap());
        let pieces = pieces.map(|pages| pages[0] * PAGE..(pages[0] + pages.len() as u64) * PAGE);
        let until = until.max(disk.done(disk.one_by_one(pieces)));
        disk.bring_in(&mut cache, &absent, until);
        let copied: u64 = reads.iter().map(|read| read.into.len() as u64).sum();
        disk.pass(until, copied / 12 + reads.len() as u64 * 300);
        let took = Duration::from_nanos(disk.now() - began);
        Report::by_rate(reads.len(), last.end() - first.offset, took)
    }

    /// Faults, one after the other, each of which reads around itself.
    fn mapped(&self, reads: &[Read<'_>]) {
        let disk = &self.disk;
        let mut cache = disk.cache.lock().unwrap();
        let (mut nanos, mut until, mut faults, mut brought) = (0, 0, Vec::new(), Vec::new());
        for read in reads {
            for page in pages(read) {
                if let Some(there) = cache.there(page) {
                    (nanos, until) = (nanos + 100, until.max(there));
                    continue;
                }
                let ahead = disk.speed.ahead / PAGE;
                let around = page / ahead * ahead;
                let around = around..(around + ahead).min(disk.len.div_ceil(PAGE));
                nanos += 500;
                faults.push(around.start * PAGE..around.end * PAGE);
                let absent = around.filter(|&page| cache.there(page).is_none());
                let absent: Vec<u64> = absent.collect();
                disk.bring_in(&mut cache, &absent, 0);
                brought.extend(absent);
            }
            nanos += read.into.len() as u64 / 10;
        }
        let until = until.max(disk.done(disk.one_by_one(faults.into_iter())));
        for page in brought {
            if cache.there(page).is_some() {
                cache.set(page, Some(until));
            }
        }
        disk.pass(until, nanos);
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
        // What the real ones say of themselves, on a machine of so many cores.
        let (align, end) = (if self.way == Way::Direct { 512 } else { 1 }, self.disk.len);
        let (waiting, in_flight) = match self.way {
            Way::Map | Way::Remap | Way::Advise => (CORES, 0),
            Way::Read if !keeps => (WAITING.1, 0),
            Way::Read | Way::Direct | Way::Range => (WAITING.0, 64),
        };
        let hands = if self.way == Way::Direct { waiting } else { CORES };
        Nature {
            learns,
            align,
            end,
            hands,
            in_flight,
            together: keeps,
            keeps,
            ..Nature::plain(prior, waiting)
        }
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
            (Way::Read, _) if self.cache == Cache::Drop => self.buffered(reads, 1, 1500),
            (Way::Read, _) => self.buffered(reads, 1, 800),
            (Way::Direct | Way::Range, _) => {
                let moves =
                    reads.iter().filter(|read| self.disk.moves(&(read.offset..read.end()))).count() as u64;
                let bytes: u64 = reads.iter().map(|read| read.into.len() as u64).sum();
                let until = self.disk.done(self.disk.work(moves, bytes, DEPTH));
                self.disk.pass(until, reads.len() as u64 * 1000);
                Report::from_disk(reads.len())
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
        Some(self.cache.lock().unwrap().oldest.len() as u64 * PAGE)
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
pub(super) fn opened(disk: &Disk, ask: Ask) -> Result<Arc<Data>> {
    opened_in(disk, ask.access, Budget::new(ask.budget)?)
}

/// The same inside a budget whose memory was used before: to touch new memory takes longer than all else here.
pub(super) fn opened_in(disk: &Disk, access: Access, budget: Budget) -> Result<Arc<Data>> {
    let wish = Wish { access, cache: CacheWish::Auto, budget: Some(budget) };
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
