//! Positioned reads: no map, no SIGBUS, RssFile stays where it is.

use super::deep::{ASKED, DEPTH, Deep, Piece};
use super::model::Model;
use super::{Cache, Cost, Gap, Hints, LONG, Read, Source, Store};
use crate::door::{ACCESS, CACHE, Words};
use crate::error::{Error, Result};
use crate::sys;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Warm, a small read costs most of a microsecond, and 12 GB/s after that.
const WARM: Cost = Cost { request: 800.0, byte: 0.08, waits: false };
/// Cold, with many in flight, our disk gave 70,000 requests a second, or 2 GB/s.
const COLD: Cost = Cost { request: 15_000.0, byte: 0.5, waits: true };
/// Threads that wait for the disk: enough to keep it busy, few enough to start quickly.
const WAITING: usize = 16;

/// Reads with `pread`.
#[derive(Debug)]
pub struct ReadStore {
    source: Arc<Source>,
    /// A [`Manner`].
    manner: AtomicU8,
    model: Arc<Model>,
    deep: Arc<Deep>,
    streams: Mutex<Vec<Stream>>,
    spare: Spare,
    /// How many streams are kept open.
    most_streams: usize,
}

/// So many reads in a call are worth a descriptor of their own.
const MANY: usize = 64;

/// Descriptors for threads that read from memory side by side: one for all of them costs each a tenth, because they
/// count who uses it in one place. The first of them has the file's own.
#[derive(Debug, Default)]
struct Spare {
    taken: AtomicBool,
    files: Mutex<Vec<File>>,
}

impl Spare {
    /// Lends a thread one for a while.
    fn with<T>(&self, source: &Source, read: impl FnOnce(&File) -> T) -> T {
        if !self.taken.swap(true, Ordering::Relaxed) {
            let answer = read(source.file());
            self.taken.store(false, Ordering::Relaxed);
            return answer;
        }
        let spare = sys::locked(&self.files, Vec::pop).or_else(|| source.reopen_for(Advice::Random).ok());
        let answer = read(spare.as_ref().unwrap_or(source.file()));
        if let Some(spare) = spare {
            sys::locked(&self.files, |files| files.push(spare));
        }
        answer
    }
}

/// What to ask the kernel with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Nothing,
    WhetherCached,
    /// It was asked, and the answer was no.
    Waited,
}

/// A descriptor of its own for one thread that goes through the file, and where it has got to: the kernel
/// keeps its read-ahead by descriptor, and two threads on one would spoil it for each other.
#[derive(Debug)]
struct Stream {
    file: File,
    at: u64,
}

impl Stream {
    fn is_continued_at(&self, offset: u64) -> bool {
        offset.checked_sub(self.at).is_some_and(|gap| gap <= CONTINUES)
    }
}

/// Threads that bring a file in.
const STREAMING: usize = 4;
/// How many streams of one file are kept open.
const STREAMS: usize = 8;
/// Reads that begin no further than this behind the end of a stream continue it.
const CONTINUES: u64 = 4 << 20;

/// How the page cache is treated. It changes where the kernel or the filesystem refuses the better way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Manner {
    /// It may keep what we read.
    Keep,
    /// The same, on a filesystem that cannot tell what came from memory (`RWF_NOWAIT`).
    KeepUntold,
    /// `RWF_DONTCACHE`: the kernel drops what it brought in for us, and nothing else.
    DontCache,
    /// Older kernels: drop what cachestat says was not there before.
    Evict,
}

impl Manner {
    const ALL: [Self; 4] = [Self::Keep, Self::KeepUntold, Self::DontCache, Self::Evict];
}

impl ReadStore {
    /// Over an open file.
    pub fn new(source: Arc<Source>, cache: Cache) -> Self {
        let len = source.len();
        let warm = sys::cached_estimate(&*source, len).is_ok_and(|cached| cached >= len / 2);
        Self {
            most_streams: STREAMS,
            ..Self::part(source, cache, Arc::new(Self::model(warm)), Arc::default())
        }
    }

    /// Over one file of many, which learn together and keep no second descriptor open.
    pub(super) fn part(source: Arc<Source>, cache: Cache, model: Arc<Model>, deep: Arc<Deep>) -> Self {
        let manner = if cache == Cache::Drop { Manner::DontCache } else { Manner::Keep };
        let manner = AtomicU8::new(manner as u8);
        Self {
            source,
            manner,
            model,
            deep,
            streams: Mutex::default(),
            spare: Spare::default(),
            most_streams: 0,
        }
    }

    /// What to expect of a file that is in memory, or is not.
    pub(super) fn model(warm: bool) -> Model {
        Model::new(if warm { WARM } else { COLD })
    }

    fn cache(&self) -> Cache {
        match self.manner() {
            Manner::Keep | Manner::KeepUntold => Cache::Keep,
            Manner::DontCache | Manner::Evict => Cache::Drop,
        }
    }

    fn manner(&self) -> Manner {
        Manner::ALL[usize::from(self.manner.load(Ordering::Relaxed))]
    }

    fn change(&self, manner: Manner) {
        self.manner.store(manner as u8, Ordering::Relaxed);
    }

    /// A stream that has got as far as `offset`, or one that is free, or a new one.
    fn stream(&self, offset: u64) -> io::Result<File> {
        let mine = sys::locked(&self.streams, |streams| {
            let near = streams.iter().position(|stream| stream.is_continued_at(offset));
            let full = !streams.is_empty() && streams.len() >= self.most_streams;
            let any = near.or(full.then_some(0));
            any.map(|i| streams.remove(i))
        });
        mine.map_or_else(|| self.source.reopen_for(Advice::Sequential), |stream| Ok(stream.file))
    }

    /// All reads in flight together. `false` where that cannot be.
    fn read_deep(&self, reads: &mut [Read<'_>]) -> Result<bool> {
        let pieces = reads.iter_mut().map(|read| Piece::buffered(&self.source, read.again()));
        self.deep.read(pieces.collect(), &self.model)
    }

    /// One read from where the kernel has it, all of it or an error. Says whether it had to wait for a disk.
    fn read(&self, read: &mut Read<'_>, ask: Ask) -> Result<Ask> {
        self.read_from(self.source.file(), read, ask)
    }

    fn read_from(&self, file: &File, read: &mut Read<'_>, mut ask: Ask) -> Result<Ask> {
        if i64::try_from(read.end()).is_err() {
            return Err(self.source.cut(read, self.source.len_now()?)); // the kernel would say "invalid argument"
        }
        let absent = self.manner() == Manner::Evict && self.is_absent(read);
        let mut done = 0;
        while done < read.into.len() {
            match self.read_some(file, &mut read.into[done..], read.offset + done as u64, &mut ask) {
                Ok(0) => return Err(self.source.cut(read, self.source.len_now()?)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return self.without_dontcache(read),
                Err(e) => return Err(Error::io(self.source.path(), "read the file", e)),
            }
        }
        if absent {
            let (start, end) = pages(read);
            let _ = rustix::fs::fadvise(
                self.source.file(),
                start,
                NonZeroU64::new(end - start),
                Advice::DontNeed,
            );
        }
        Ok(ask)
    }

    fn read_one_by_one(&self, file: &File, reads: &mut [Read<'_>]) -> Result<()> {
        let (mut count, mut missed) = (0, 0);
        for (i, read) in reads.iter_mut().filter(|read| !read.into.is_empty()).enumerate() {
            if i % ASKED == 0 {
                count += 1;
                missed += usize::from(self.read_from(file, read, Ask::WhetherCached)? == Ask::Waited);
            } else {
                self.read_from(file, read, Ask::Nothing)?;
            }
        }
        if self.manner() == Manner::Keep {
            self.model.saw(count, missed);
        }
        Ok(())
    }

    fn read_some(&self, file: &File, into: &mut [u8], offset: u64, ask: &mut Ask) -> io::Result<usize> {
        match self.manner() {
            Manner::DontCache => sys::read_uncached(file, into, offset),
            Manner::Keep if *ask == Ask::WhetherCached => match sys::read_cached(file, into, offset) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    *ask = Ask::Waited;
                    file.read_at(into, offset)
                }
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    self.change(Manner::KeepUntold);
                    file.read_at(into, offset)
                }
                answer => answer,
            },
            _ => file.read_at(into, offset),
        }
    }

    /// The kernel or the filesystem has no `RWF_DONTCACHE`: from now on, do what it does by hand.
    fn without_dontcache(&self, read: &mut Read<'_>) -> Result<Ask> {
        sys::cached_bytes(&*self.source, 0, 1).map_err(|e| {
            Error::io(self.source.path(), "leave the page cache as found", e).with_hint(
                Words::from("this kernel cannot say what was cached before; ")
                    + ACCESS.is("direct")
                    + " goes around the page cache, "
                    + CACHE.is("keep")
                    + " through it",
            )
        })?;
        self.change(Manner::Evict);
        self.read(read, Ask::Nothing)
    }

    fn is_absent(&self, read: &Read<'_>) -> bool {
        let (start, end) = pages(read);
        sys::cached_bytes(&*self.source, start, end - start).is_ok_and(|cached| cached == 0)
    }
}

/// How many threads make so many requests to good effect. What is to be dropped takes one for each read that is to be
/// in flight. Otherwise a few streams, each of which waits for its own read-ahead now and then, or a few rings; and a
/// ring has a few requests in flight by itself.
pub(super) fn threads(requests: usize, waits: bool, cache: Cache, deep: &Deep) -> usize {
    match (waits, cache) {
        (false, _) => sys::cores(),
        (true, Cache::Keep) if requests <= DEPTH && deep.works() => 1,
        (true, Cache::Keep) => sys::cores().max(STREAMING),
        (true, Cache::Drop) => WAITING,
    }
}

/// The whole pages that a read touches.
fn pages(read: &Read<'_>) -> (u64, u64) {
    let page = sys::page() as u64;
    (read.offset / page * page, read.end().next_multiple_of(page))
}

impl Store for ReadStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        // Long ones were asked for ahead of time.
        if reads.len() > 1
            && reads.iter().all(|read| read.into.len() < LONG)
            && self.manner() == Manner::Keep
            && self.model.cost().waits
            && self.read_deep(reads)?
        {
            return Ok(());
        }
        if reads.len() < MANY || self.most_streams == 0 || self.model.cost().waits {
            return self.read_one_by_one(self.source.file(), reads);
        }
        self.spare.with(&self.source, |file| self.read_one_by_one(file, reads))
    }

    /// A stream goes through a descriptor with read-ahead: large requests, and large folios, which later passes
    /// through a map are glad of.
    fn read_hinted(&self, reads: &mut [Read<'_>], hints: Hints) -> Result<()> {
        let (Some(first), Some(last)) = (reads.first().map(|r| r.offset), reads.last().map(Read::end)) else {
            return Ok(());
        };
        if self.cache() == Cache::Drop || hints.gap == Gap::Lost {
            return self.read_many(reads);
        }
        // Where no descriptor is left, one more is not worth an error.
        let Ok(file) = self.stream(first) else { return self.read_many(reads) };
        let began = Instant::now();
        let answer =
            reads.iter_mut().try_for_each(|read| self.read_from(&file, read, Ask::Nothing).map(drop));
        // Read-ahead may bring in what a read then finds in memory: here only the rate tells.
        let memory = Duration::from_nanos(last.saturating_sub(first) / 4 + 5_000 * reads.len() as u64);
        self.model.saw(reads.len(), if began.elapsed() > memory { reads.len() } else { 0 });
        if self.most_streams > 0 && last < self.source.len() {
            sys::locked(&self.streams, |streams| streams.push(Stream { file, at: last }));
        }
        answer
    }

    fn prepare(&self, coming: &[Range<u64>]) {
        // What is asked for ahead of time could not be told from what others have cached, so not where it is to be
        // dropped.
        if self.cache() == Cache::Drop || !self.model.cost().waits {
            return;
        }
        let deep = self.deep.works();
        // All of them at once to the disk: that is a deep queue too, and the pages may stay. In pieces of 2 MiB at
        // most: longer ones were slower (2 MiB: 2.6 GB/s, 8 MiB: 1.4).
        for bytes in coming.iter().filter(|bytes| !deep || bytes.end - bytes.start >= LONG as u64) {
            for offset in bytes.clone().step_by(2 << 20) {
                let len = NonZeroU64::new((bytes.end - offset).min(2 << 20));
                let _ = rustix::fs::fadvise(self.source.file(), offset, len, Advice::WillNeed);
            }
        }
    }

    fn cost(&self) -> Cost {
        self.model.cost()
    }

    fn threads(&self, requests: usize) -> usize {
        threads(requests, self.model.cost().waits, self.cache(), &self.deep)
    }

    fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        self.model.learn(requests, bytes, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance;

    /// As if nothing were ever in memory.
    #[derive(Debug)]
    struct Cold(ReadStore);

    impl Store for Cold {
        fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
            assert!(self.0.read_deep(reads)?, "this test needs io_uring");
            Ok(())
        }

        fn cost(&self) -> Cost {
            COLD
        }

        fn threads(&self, _requests: usize) -> usize {
            4
        }
    }

    #[test]
    fn reads_in_flight_together_are_reads() {
        conformance::run(&|path| {
            Ok(Arc::new(Cold(ReadStore::new(Arc::new(Source::open(path)?), Cache::Keep))))
        });
    }

    /// A file that nobody has read goes through the ring at first, and is noticed when it is in memory.
    #[test]
    fn a_file_that_is_brought_in_is_read_from_memory_then() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file.as_file().sync_all().unwrap();
        rustix::fs::fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        let source = Arc::new(Source::open(file.path()).unwrap());
        if sys::cached_bytes(&*source, 0, 4 << 20).ok() != Some(0) {
            return; // a filesystem that lives in memory
        }
        let store = ReadStore::new(source, Cache::Keep);
        for round in 0..4 {
            assert_eq!(store.cost().waits, round < 2, "round {round}");
            let mut out = vec![[0; 4]; 4096];
            let place = |i: usize| i * 797 % (1 << 20);
            let mut reads: Vec<_> = (out.iter_mut().enumerate())
                .map(|(i, into)| Read { offset: place(i) as u64 * 4, into })
                .collect();
            store.read_many(&mut reads).unwrap();
            assert!(out.iter().enumerate().all(|(i, out)| u32::from_le_bytes(*out) as usize == place(i)));
        }
        assert!(!store.cost().waits);
    }
}
