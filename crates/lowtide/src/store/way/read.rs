//! Positioned reads: no map, no SIGBUS, RssFile stays where it is.

use super::deep::{ASKED, DEPTH, Deep, Piece};
use super::streams::{BEGINS, STREAMS, Streams, Taken};
use crate::door::{ACCESS, CACHE, Words};
use crate::error::{Error, Result};
use crate::store::{Cache, Cost, How, Manner, Nature, OneFile, Read, Report, Store};
use crate::sys;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Warm, a small read costs most of a microsecond, and 12 GB/s after that.
const WARM: Cost = Cost { request: 800.0, byte: 0.08, waits: false };
/// Cold, with many in flight, our disk gave 70,000 requests a second, or 2 GB/s.
const COLD: Cost = Cost { request: 15_000.0, byte: 0.5, waits: true };
/// Threads that wait for the disk: enough to keep it busy, few enough to start quickly.
const WAITING: usize = 16;

/// Reads with `pread`.
#[derive(Debug)]
pub struct ReadStore {
    source: Arc<OneFile>,
    cache: Cache,
    /// Whether the kernel or the filesystem refused the read that does it best: `RWF_NOWAIT`, which tells what came from
    /// memory, or `RWF_DONTCACHE`, which drops what it brought in for us and nothing else. Without the one nothing is told;
    /// without the other, what cachestat says was not there before is dropped by hand.
    refused: AtomicBool,
    deep: Arc<Deep>,
    streams: Arc<Streams>,
    /// Where it is the only file: one of many keeps no further descriptors.
    spare: Option<Spare>,
    /// Whether the file was in memory when it was opened.
    warm: bool,
}

/// Descriptors for threads that read from memory side by side: one for all of them costs each a tenth, because they
/// count who uses it in one place. The first of them has the file's own.
#[derive(Debug, Default)]
struct Spare {
    taken: AtomicBool,
    files: Mutex<Vec<File>>,
}

impl Spare {
    /// Lends a thread one for a while.
    fn with<T>(&self, source: &OneFile, read: impl FnOnce(&File) -> T) -> T {
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

/// Threads that bring a file in.
const STREAMING: usize = 4;

impl ReadStore {
    /// Over an open file.
    pub fn new(source: Arc<OneFile>, cache: Cache) -> Self {
        let len = source.len();
        let warm = sys::cached_estimate(&*source, len).is_ok_and(|cached| sys::is_warm(cached, len));
        let streams = Arc::new(Streams::new(STREAMS));
        Self { spare: Some(Spare::default()), warm, ..Self::part(source, cache, Arc::default(), streams) }
    }

    /// Over one file of many, which have a ring and some streams together.
    pub(super) fn part(source: Arc<OneFile>, cache: Cache, deep: Arc<Deep>, streams: Arc<Streams>) -> Self {
        Self { source, cache, refused: AtomicBool::new(false), deep, streams, spare: None, warm: false }
    }

    fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// One read, all of it or an error. Says whether it had to wait for a disk.
    fn read_from(&self, file: &File, read: &mut Read<'_>, mut ask: Ask) -> Result<Ask> {
        self.source.check_end(read, 1)?;
        let refused = self.is_refused();
        let evicts = self.cache == Cache::Drop && refused;
        let absent = evicts.then(|| pages(read)).filter(|&(start, end)| {
            sys::cached_bytes(&*self.source, start, end - start).is_ok_and(|cached| cached == 0)
        });
        let mut done = 0;
        while done < read.into.len() {
            let (into, at) = (&mut read.into[done..], read.offset + done as u64);
            let answer = match (self.cache, ask) {
                _ if refused => file.read_at(into, at),
                (Cache::Drop, _) => sys::read_uncached(file, into, at),
                (Cache::Keep, Ask::WhetherCached) => sys::read_cached(file, into, at),
                (Cache::Keep, _) => file.read_at(into, at),
            };
            match answer {
                Ok(0) => return Err(self.source.cut_now(read)),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && ask == Ask::WhetherCached => {
                    ask = Ask::Waited;
                }
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) && !refused => {
                    self.refuse()?;
                    return self.read_from(file, read, Ask::Nothing);
                }
                Err(e) => return Err(Error::io(self.source.path(), "read the file", e)),
            }
        }
        if let Some((start, end)) = absent {
            let len = NonZeroU64::new(end - start);
            let _ = rustix::fs::fadvise(self.source.file(), start, len, Advice::DontNeed);
        }
        Ok(ask)
    }

    fn read_one_by_one(&self, file: &File, reads: &mut [Read<'_>]) -> Result<Report> {
        let mut report = Report::default();
        for (i, read) in reads.iter_mut().filter(|read| !read.into.is_empty()).enumerate() {
            let ask = if i % ASKED == 0 { Ask::WhetherCached } else { Ask::Nothing };
            let waited = self.read_from(file, read, ask)? == Ask::Waited;
            report += Report { looked: usize::from(ask != Ask::Nothing), missed: usize::from(waited) };
        }
        // Only there was the question asked.
        Ok(if self.cache == Cache::Keep && !self.is_refused() { report } else { Report::default() })
    }

    /// A stream goes through a descriptor with read-ahead: large requests, and large folios, which later passes
    /// through a map are glad of.
    fn read_stream(&self, reads: &mut [Read<'_>]) -> Result<Report> {
        let (Some(first), Some(last)) = (reads.first().map(|r| r.offset), reads.last().map(Read::end)) else {
            return Ok(Report::default());
        };
        // Where no descriptor is left, one more is not worth an error.
        let Ok(Taken { file, begins }) = self.streams.take(&self.source, first) else {
            return self.read_one_by_one(self.source.file(), reads);
        };
        let began = Instant::now();
        if begins
            && sys::begin_huge(&file, first, self.source.len()).is_err()
            && let Some(read) = reads.first_mut()
        {
            let len = read.into.len().min(BEGINS);
            let start = read.offset..read.offset + len as u64;
            self.read_from(&file, &mut read.clip(&start), Ask::Nothing)?; // and again below: 16 KiB
        }
        for read in &mut *reads {
            self.read_from(&file, read, Ask::Nothing)?;
        }
        let report = Report::by_rate(reads.len(), last.saturating_sub(first), began.elapsed());
        self.streams.put(&self.source, file, last);
        Ok(report)
    }

    /// All of them at once to the disk: that is a deep queue too, and the pages may stay. In pieces of 2 MiB at
    /// most: longer ones were slower (2 MiB: 2.6 GB/s, 8 MiB: 1.4).
    fn ask_for(&self, coming: &[Range<u64>]) {
        for bytes in coming {
            for offset in bytes.clone().step_by(2 << 20) {
                let len = NonZeroU64::new((bytes.end - offset).min(2 << 20));
                let _ = rustix::fs::fadvise(self.source.file(), offset, len, Advice::WillNeed);
            }
        }
    }

    /// The kernel or the filesystem cannot read like that: from now on without, and what is to be dropped, by hand.
    fn refuse(&self) -> Result<()> {
        if self.cache == Cache::Drop {
            sys::cached_bytes(&*self.source, 0, 1).map_err(|e| {
                Error::io(self.source.path(), "leave the page cache as found", e).with_hint(
                    Words::from("this kernel cannot say what was cached before; ")
                        + ACCESS.is("direct")
                        + " goes around the page cache, "
                        + CACHE.is("keep")
                        + " through it",
                )
            })?;
        }
        self.refused.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// What positioned reads are like. What is to be dropped takes a thread for each read that is to be in flight.
/// Otherwise a few streams, each of which waits for its own read-ahead now and then, or a few rings; and a ring
/// has a few requests in flight by itself.
pub(super) fn nature(warm: bool, cache: Cache, deep: &Deep) -> Nature {
    let keeps = cache == Cache::Keep;
    let together = keeps && deep.works();
    Nature {
        learns: true,
        waiting: if keeps { sys::cores().max(STREAMING) } else { WAITING },
        in_flight: if together { DEPTH } else { 0 },
        together,
        keeps,
        ..Nature::plain(if warm { WARM } else { COLD }, sys::cores())
    }
}

/// The whole pages that a read touches.
fn pages(read: &Read<'_>) -> (u64, u64) {
    let page = sys::page() as u64;
    (read.offset / page * page, read.end().next_multiple_of(page))
}

impl Store for ReadStore {
    fn nature(&self) -> Nature {
        nature(self.warm, self.cache, &self.deep)
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        if self.cache == Cache::Keep {
            // What is asked for ahead of time could not be told from what others have cached, so not where it is
            // to be dropped.
            self.ask_for(how.coming);
            match how.manner {
                Manner::Stream => return self.read_stream(reads),
                Manner::Together if !self.is_refused() => {
                    let pieces = reads.iter_mut().map(|read| Piece::buffered(&self.source, read.again()));
                    if let Some(report) = self.deep.read(pieces.collect())? {
                        return Ok(report);
                    }
                }
                Manner::FromMemory => {
                    if let Some(spare) = &self.spare {
                        return spare.with(&self.source, |file| self.read_one_by_one(file, reads));
                    }
                }
                _ => {}
            }
        }
        self.read_one_by_one(self.source.file(), reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that nobody has read goes through the ring at first, and is noticed when it is in memory.
    #[test]
    fn what_had_to_wait_for_a_disk_is_reported() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..1_u32 << 20).flat_map(u32::to_le_bytes).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file.as_file().sync_all().unwrap();
        rustix::fs::fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        let source = Arc::new(OneFile::open(file.path()).unwrap());
        if sys::cached_bytes(&*source, 0, 4 << 20).ok() != Some(0) {
            return; // a filesystem that lives in memory
        }
        let store = ReadStore::new(source, Cache::Keep);
        assert!(store.nature().prior.waits);
        for (round, manner) in
            [Manner::Together, Manner::FromMemory, Manner::Together].into_iter().enumerate()
        {
            let mut out = vec![[0; 4]; 4096];
            let place = |i: usize| i * 797 % (1 << 20);
            let mut reads: Vec<_> = (out.iter_mut().enumerate())
                .map(|(i, into)| Read { offset: place(i) as u64 * 4, into })
                .collect();
            let report = store.read(&mut reads, How { manner, ..How::default() }).unwrap();
            assert!(report.looked >= 4096 / ASKED, "{report:?}");
            // Neighbours share a page: not every read of the first round had to wait.
            assert!(
                if round == 0 { report.missed > report.looked / 8 } else { report.missed == 0 },
                "{report:?}"
            );
            assert!(out.iter().enumerate().all(|(i, out)| u32::from_le_bytes(*out) as usize == place(i)));
        }
    }

    /// Faults that touching every page of a file through a map takes, once a stream has brought it in.
    #[cfg(target_arch = "x86_64")]
    fn faults(of: &OneFile) -> i64 {
        use rustix::mm::{MapFlags, ProtFlags};
        let (len, huge) = (usize::try_from(of.len()).unwrap(), usize::try_from(sys::HUGE).unwrap());
        let usage = || {
            // SAFETY: plain numbers, for which zeros are a value; the call fills them in.
            unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
                usage.ru_minflt
            }
        };
        // SAFETY: new maps at addresses of the kernel's choice, the second inside the first; the file is not cut meanwhile.
        unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            let room =
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + huge, ProtFlags::empty(), flags);
            let at = room.unwrap().byte_add(room.unwrap().align_offset(huge));
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let map: *mut u8 =
                rustix::mm::mmap(at, len, ProtFlags::READ, flags, of.file(), 0).unwrap().cast();
            let before = usage();
            (0..len).step_by(4096).for_each(|at| _ = map.add(at).read_volatile());
            let faults = usage() - before;
            rustix::mm::munmap(room.unwrap(), len + huge).unwrap();
            faults
        }
    }

    /// A page of the header that was looked at before would have the kernel bring in single pages behind it.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_stream_brings_in_large_folios_whatever_was_looked_at_before() {
        const LEN: usize = 16 << 20;
        let brought_in = |looks: bool| {
            let mut named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            std::io::Write::write_all(&mut named, &vec![7; LEN]).unwrap();
            named.as_file().sync_all().unwrap();
            rustix::fs::fadvise(named.as_file(), 0, None, Advice::DontNeed).unwrap();
            let source = Arc::new(OneFile::open(named.path()).unwrap());
            if sys::cached_bytes(&*source, 0, LEN as u64).ok() != Some(0) {
                return None; // a filesystem that lives in memory
            }
            let mut out = vec![0; LEN];
            if looks {
                source.read_exact(0, &mut out[..128]).unwrap();
            }
            let store = ReadStore::new(source.clone(), Cache::Keep);
            for read in (Read { offset: 128, into: &mut out[128..] }).pieces(1 << 20) {
                store.read(&mut [read], How { manner: Manner::Stream, ..How::default() }).unwrap();
            }
            assert!(out[128..].iter().all(|&byte| byte == 7));
            Some(faults(&source))
        };
        let (Some(never), Some(looked)) = (brought_in(false), brought_in(true)) else { return };
        // Where the kernel makes no large folios, or maps them piece by piece, there is nothing to lose.
        assert!(looked <= 2 * never + 16, "{never} faults, and {looked} where the header was looked at");
    }

    /// What somebody may have a use for stays where it is, and is not read again.
    #[test]
    fn a_file_that_is_in_memory_stays_there() {
        for (len, keeps) in [(40 << 10, 40 << 10), (8 << 20, 1 << 20)] {
            let mut named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            std::io::Write::write_all(&mut named, &vec![7; len]).unwrap();
            named.as_file().sync_all().unwrap();
            let gone = NonZeroU64::new((len - keeps) as u64);
            if gone.is_some() {
                rustix::fs::fadvise(named.as_file(), keeps as u64, gone, Advice::DontNeed).unwrap();
            }
            let cached = || sys::cached_bytes(named.as_file(), 0, 0).unwrap_or(0);
            let before = cached();
            assert!(sys::begin_huge(named.as_file(), 0, len as u64).is_err(), "{len}");
            assert_eq!(cached(), before);
        }
    }
}
