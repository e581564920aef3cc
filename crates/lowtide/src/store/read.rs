//! Positioned reads: no map, no SIGBUS, RssFile stays where it is.

use super::model::Model;
use super::{Cache, Cost, Read, Source, Store};
use crate::error::{Error, Result};
use crate::sys;
use rustix::fs::Advice;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Warm, a small read costs a microsecond or two, and 12 GB/s after that.
const WARM: Cost = Cost { request: 1500.0, byte: 0.08 };
/// Cold, with many in flight, our disk gave 70,000 requests a second, or 2 GB/s.
const COLD: Cost = Cost { request: 15_000.0, byte: 0.5 };
/// Threads that wait for the disk: enough to keep it busy, few enough to start quickly.
const WAITING: usize = 16;

/// Reads with `pread`.
#[derive(Debug)]
pub struct ReadStore {
    source: Arc<Source>,
    /// How the page cache is left as found, if it is: one of the constants below.
    drop: AtomicU8,
    model: Model,
}

/// The page cache may keep what we read.
const KEEP: u8 = 0;
/// `RWF_DONTCACHE`: the kernel drops what it brought in for us, and nothing else.
const DONTCACHE: u8 = 1;
/// Older kernels: drop what cachestat says was not there before.
const EVICT: u8 = 2;

impl ReadStore {
    /// Over an open file.
    pub fn new(source: Arc<Source>, cache: Cache) -> Self {
        let len = source.len();
        let warm = sys::cached_estimate(&*source, len).is_ok_and(|cached| cached >= len / 2);
        let drop = AtomicU8::new(if cache == Cache::Drop { DONTCACHE } else { KEEP });
        Self { source, drop, model: Model::new(if warm { WARM } else { COLD }) }
    }

    /// One read from where the kernel has it, all of it or an error.
    fn read(&self, read: &mut Read<'_>) -> Result<()> {
        if i64::try_from(read.end()).is_err() {
            return Err(self.source.cut(read, self.source.len_now()?)); // the kernel would say "invalid argument"
        }
        let absent = self.drop.load(Ordering::Relaxed) == EVICT && self.is_absent(read);
        let mut done = 0;
        while done < read.into.len() {
            match self.read_some(&mut read.into[done..], read.offset + done as u64) {
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
        Ok(())
    }

    fn read_some(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.drop.load(Ordering::Relaxed) {
            DONTCACHE => sys::read_uncached(&*self.source, into, offset),
            _ => self.source.file().read_at(into, offset),
        }
    }

    /// The kernel or the filesystem has no `RWF_DONTCACHE`: from now on, do what it does by hand.
    fn without_dontcache(&self, read: &mut Read<'_>) -> Result<()> {
        sys::cached_bytes(&*self.source, 0, 1).map_err(|e| {
            Error::io(self.source.path(), "leave the page cache as found", e).with_hint(
                "this kernel cannot say what was cached before; access=\"direct\" goes around the page cache, cache=\"keep\" through it",
            )
        })?;
        self.drop.store(EVICT, Ordering::Relaxed);
        self.read(read)
    }

    /// Whether reads wait for a disk.
    fn waits(&self) -> bool {
        self.model.cost().waits()
    }

    fn is_absent(&self, read: &Read<'_>) -> bool {
        let (start, end) = pages(read);
        sys::cached_bytes(&*self.source, start, end - start).is_ok_and(|cached| cached == 0)
    }
}

/// The whole pages that a read touches.
fn pages(read: &Read<'_>) -> (u64, u64) {
    let page = sys::page() as u64;
    (read.offset / page * page, read.end().next_multiple_of(page))
}

impl Store for ReadStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        if self.drop.load(Ordering::Relaxed) == KEEP && self.waits() {
            // All of them at once to the disk: that is a deep queue too, and the pages may stay. In pieces of
            // 2 MiB at most: longer ones were slower (2 MiB: 2.6 GB/s, 8 MiB: 1.4).
            for read in reads.iter().filter(|read| !read.into.is_empty()) {
                for offset in (read.offset..read.end()).step_by(2 << 20) {
                    let len = NonZeroU64::new((read.end() - offset).min(2 << 20));
                    let _ = rustix::fs::fadvise(self.source.file(), offset, len, Advice::WillNeed);
                }
            }
        }
        reads.iter_mut().filter(|read| !read.into.is_empty()).try_for_each(|read| self.read(read))
    }

    fn cost(&self) -> Cost {
        self.model.cost()
    }

    fn threads(&self) -> usize {
        // What is dropped cannot be asked for ahead of time: then many threads make the queue.
        if self.drop.load(Ordering::Relaxed) != KEEP && self.waits() { WAITING } else { sys::cores() }
    }

    fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        self.model.learn(requests, bytes, took);
    }
}
