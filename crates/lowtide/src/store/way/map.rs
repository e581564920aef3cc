//! One memory map, held: what `np.memmap` does. Touched pages stay mapped, so RssFile grows.

use crate::door::ACCESS;
use crate::error::{Error, Result};
use crate::store::sigbus::{self, Guard};
use crate::store::{Cost, How, Nature, OneFile, Read, Report, Store};
use crate::sys;
use crate::sys::far::Far;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A part of a file in our address space, read-only, its SIGBUS answered.
///
/// The address is congruent to the offset modulo 2 MiB. Then a fault, which can map a whole large
/// folio, never maps pages of two neighbouring 2 MiB pieces, and dropping whole pieces drops all of it.
#[derive(Debug)]
pub(super) struct Mapping {
    source: Arc<OneFile>,
    /// The file's bytes that are mapped.
    range: Range<u64>,
    start: *mut c_void,
    guard: Guard,
    /// Hits of the guard that have been answered by mapping the file anew.
    answered: AtomicU32,
    /// What was reserved to be able to align. It goes after the guard: then the addresses can become someone else's.
    _reserved: Reserved,
}

/// Addresses, and how many: unmapped with all that was mapped there.
#[derive(Debug)]
struct Reserved(*mut c_void, usize);

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: our own reservation, with the map inside it; nothing points there any more.
        let _ = unsafe { rustix::mm::munmap(self.0, self.1) };
    }
}

// SAFETY: the mapping is read-only memory; all mutable state is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `range`, which starts at a multiple of 2 MiB. An empty range maps nothing.
    pub(super) fn new(source: &Arc<OneFile>, range: Range<u64>) -> Result<Self> {
        let failed = |e| {
            Error::io(source.path(), "map the file", e).with_hint(
                ACCESS.is("read") + " needs no address space; ulimit -v may be too small for a map",
            )
        };
        sigbus::install(source.path())?;
        let len = usize::try_from(range.end - range.start).map_err(|_| failed(rustix::io::Errno::NOMEM))?;
        let huge = usize::try_from(sys::HUGE).unwrap_or(2 << 20);
        let whole = len.checked_add(huge).ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        // SAFETY: reserves addresses of the kernel's choice, with no access to them.
        let reserved = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)
        }
        .map_err(failed)?;
        let start = reserved.wrapping_byte_add(reserved.align_offset(huge));
        let mapping = Self {
            source: source.clone(),
            range,
            start,
            guard: Guard::new(start as usize, len),
            answered: AtomicU32::new(0),
            _reserved: Reserved(reserved, whole),
        };
        mapping.map_file().map_err(failed)?;
        Ok(mapping)
    }

    fn len(&self) -> usize {
        usize::try_from(self.range.end - self.range.start).unwrap_or(0)
    }

    /// Maps the file over our reserved addresses, in one step: readers in other threads only fault again.
    fn map_file(&self) -> rustix::io::Result<()> {
        if self.range.is_empty() {
            return Ok(());
        }
        // SAFETY: FIXED, but inside addresses that we reserved for this and that nobody else uses.
        unsafe {
            let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
            rustix::mm::mmap(
                self.start,
                self.len(),
                ProtFlags::READ,
                flags,
                self.source.file(),
                self.range.start,
            )?;
            // Bounds no memory; keeps someone's dataset out of their core dump. Fails on old kernels: fine.
            let _ = rustix::mm::madvise(self.start, self.len(), Advice::LinuxDontDump);
        }
        Ok(())
    }

    /// Copies what of `reads` lies in `window`, and makes sure that no fault was answered with zeros meanwhile.
    pub(super) fn read(&self, reads: &mut [Read<'_>], window: &Range<u64>, far: Option<&Far>) -> Result<()> {
        let before = self.guard.hits();
        let seen = window.start.max(self.range.start)..window.end.min(self.range.end);
        for read in &mut *reads {
            let Read { offset, into } = read.clip(&seen);
            if into.is_empty() {
                continue;
            }
            // It fits in usize: a distance inside the mapping.
            let at = usize::try_from(offset - self.range.start).unwrap_or(usize::MAX);
            // SAFETY: the source lies inside the live mapping, where the guard answers faults; the file may change
            // under us as under any map, but a byte copy gives it no meaning. The buffer is not part of the map.
            unsafe {
                let source = self.start.cast::<u8>().add(at);
                match far {
                    Some(far) => far.copy_from(source, into),
                    None => std::ptr::copy_nonoverlapping(source, into.as_mut_ptr(), into.len()),
                }
            }
        }
        if self.guard.hits() == before {
            return Ok(());
        }
        // Bytes behind a cut came out as zeros.
        let now = self.source.len_now()?;
        // The file may have grown back between the fault and here: then the first read stands for all.
        let read = reads.iter().find(|r| r.end() > now).or(reads.first());
        Err(read.map_or_else(
            || Error::io(self.source.path(), "read the map", rustix::io::Errno::IO),
            |r| self.source.cut(r, now),
        ))
    }

    /// Maps the file again if a fault was answered with zeros since the last time.
    pub(super) fn renew_if_hit(&self) -> Result<()> {
        let hits = self.guard.hits();
        if self.answered.swap(hits, Ordering::AcqRel) == hits { Ok(()) } else { self.renew() }
    }

    /// Maps the file again, in any case: frees the page tables.
    pub(super) fn renew(&self) -> Result<()> {
        self.map_file().map_err(|e| Error::io(self.source.path(), "map the file again", e))
    }

    /// Takes the pages of `range` of the file out of our address space. They stay in the page cache.
    pub(super) fn drop_pages(&self, range: Range<u64>) {
        let from = range.start.max(self.range.start);
        let to = range.end.min(self.range.end);
        if from < to {
            // SAFETY: inside our own mapping; a dropped page of a file comes back by a fault, unchanged.
            unsafe {
                let at = |distance: u64| usize::try_from(distance).unwrap_or(0);
                let start = self.start.byte_add(at(from - self.range.start));
                let _ = rustix::mm::madvise(start, at(to - from), Advice::LinuxDontNeed);
            }
        }
    }
}

/// Reads through one map of the whole file.
#[derive(Debug)]
pub struct MapStore {
    mapping: Mapping,
}

impl MapStore {
    /// Maps the whole file.
    pub fn new(source: &Arc<OneFile>) -> Result<Self> {
        Ok(Self { mapping: Mapping::new(source, 0..source.len())? })
    }
}

impl Store for MapStore {
    fn nature(&self) -> Nature {
        nature()
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        inside(&self.mapping.source, reads)?;
        self.mapping.renew_if_hit()?;
        self.mapping.read(reads, &(0..u64::MAX), how.far.then(Far::default).as_ref())?;
        Ok(Report::default())
    }
}

/// A mapped row costs a fault or nothing; reading a gap saves neither. So nothing is ever merged.
pub(super) const MAPPED: Cost = Cost { request: 0.0, byte: 0.1, waits: false };

/// What reading through a map is like: as many threads as there are cores.
pub(super) fn nature() -> Nature {
    Nature::plain(MAPPED, sys::cores())
}

/// Refuses what lies past the end now, or past what was mapped when the file was opened: cheaper than a fault, and with
/// a better message.
pub(super) fn inside(source: &OneFile, reads: &[Read<'_>]) -> Result<()> {
    let now = source.len_now()?;
    let past = |end: u64| reads.iter().find(|r| r.end() > end && !r.into.is_empty());
    match past(now).map(|read| (read, now)).or_else(|| Some((past(source.len())?, source.len()))) {
        Some((read, end)) => Err(source.cut(read, end)),
        None => Ok(()),
    }
}
