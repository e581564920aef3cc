//! The index of a cache, as the processes of a machine share it.
//!
//! Records are read through a map, because readers look at them before and after every read: a system call each would
//! cost as much as a small read itself. Everything is *written* with positioned writes: a map that can only be read
//! can do no harm, and where somebody cuts the file under it, the handler of SIGBUS gives zeros, which mean "nothing".
//! Where another handler has been put over ours, records are read with system calls.
//!
//! Locks are the kernel's (open file descriptions'), each with a descriptor of its own, and never waited for longer than a
//! moment: who is killed lets go of them, and who is stopped holds up nobody.

use super::layout::{COUNTS_AT, Counts, ENTRY, Entry, Geometry, HAND_AT, RECORD, Record};
use crate::error::{Error, Result};
use crate::store::sigbus::{self, Guard};
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

/// The header and the records, mapped for reading.
#[derive(Debug)]
pub(super) struct Table {
    index: File,
    geometry: Geometry,
    start: *const u64,
    len: usize,
    /// Whether a fault would be answered.
    guarded: AtomicBool,
    guard: Option<Guard>,
}

// SAFETY: the map is only read, and what it shows may change at any time by anybody: see `word`.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    pub(super) fn new(index: File, geometry: Geometry, path: &Path) -> Result<Self> {
        sigbus::install(path)?;
        let len = usize::try_from(geometry.records_end()).unwrap_or(usize::MAX);
        // SAFETY: a new read-only mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &index, 0)
        };
        let start = start.map_err(|error| Error::io(path, "map the index of the cache", error))?;
        let guard = Some(Guard::new(start as usize, len));
        let table =
            Self { index, geometry, start: start.cast(), len, guarded: AtomicBool::new(false), guard };
        table.look_around();
        Ok(table)
    }

    /// Looks whether the map is still guarded. Before the records are looked at for a while.
    pub(super) fn look_around(&self) {
        self.guarded.store(sigbus::in_place(), Ordering::Relaxed);
    }

    /// A number of the header or of a record; 0 where it cannot be read.
    fn word(&self, at: u64) -> u64 {
        let index = usize::try_from(at / 8).unwrap_or(usize::MAX);
        if self.guarded.load(Ordering::Relaxed) && index < self.len / 8 {
            // SAFETY: aligned, inside the map, which lives as long as we do; faults are answered. Other processes write
            // there, so it is read once and as it is; a number that is half of one and half of another is no stamp that
            // anybody waits for, as all go through 0.
            let word = unsafe { self.start.add(index).read_volatile() };
            fence(Ordering::Acquire);
            return u64::from_le(word);
        }
        let mut word = [0; 8];
        match self.index.read_exact_at(&mut word, at) {
            Ok(()) => u64::from_le_bytes(word),
            Err(_) => 0,
        }
    }

    fn words(&self, at: u64) -> [u64; 4] {
        [self.word(at), self.word(at + 8), self.word(at + 16), self.word(at + 24)]
    }

    /// Which filling of a slot there is. Before a read of the slot, and after it and a [`settle`].
    pub(super) fn stamp(&self, slot: u32) -> u64 {
        self.word(Geometry::record_at(slot))
    }

    pub(super) fn record(&self, slot: u32) -> Record {
        Record::from_words(self.words(Geometry::record_at(slot)))
    }

    pub(super) fn is_touched(&self, slot: u32) -> bool {
        self.word(Geometry::record_at(slot) + Record::TOUCHED_AT) & 0xFF != 0
    }

    /// Sets the clock's bit of a slot, or takes it away. It may go wrong: it is only a hint.
    pub(super) fn touch(&self, slot: u32, touched: bool) {
        let at = Geometry::record_at(slot) + Record::TOUCHED_AT;
        let _ = self.index.write_all_at(&[u8::from(touched)], at);
    }

    pub(super) fn hand(&self) -> u64 {
        self.word(HAND_AT)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts::from_words(self.words(COUNTS_AT))
    }

    /// What a slot holds, if the index makes sense there.
    pub(super) fn entry(&self, slot: u32) -> Option<Entry> {
        let mut bytes = [0; ENTRY];
        self.index.read_exact_at(&mut bytes, self.geometry.entry_at(slot)).ok()?;
        Entry::from_bytes(&bytes)
    }

    pub(super) fn write_record(&self, slot: u32, record: Record) -> io::Result<()> {
        fence(Ordering::SeqCst);
        self.index.write_all_at(&record.to_bytes(), Geometry::record_at(slot))?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    pub(super) fn write_entry(&self, slot: u32, entry: &Entry) -> io::Result<()> {
        self.index.write_all_at(&entry.to_bytes(), self.geometry.entry_at(slot))
    }

    /// Forgets what all slots hold.
    pub(super) fn forget_all(&self) -> io::Result<()> {
        let zeros = [0; 4096];
        let end = Geometry::record_at(0) + self.geometry.slots * RECORD;
        let mut at = Geometry::record_at(0);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            self.index.write_all_at(&zeros[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }

    /// A descriptor of its own for locks: they belong to the open file description, so that threads and forked children
    /// that share a descriptor would not keep each other out.
    pub(super) fn desk(&self) -> io::Result<Desk> {
        let path = format!("/proc/self/fd/{}", self.index.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Desk(File::from(rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?)))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: mapped in `new` with this very length, and owned by us alone.
        let _ = unsafe { rustix::mm::munmap(self.start.cast_mut().cast(), self.len) };
    }
}

/// What was read before this is read before stamps are looked at after it: once for many of them.
pub(in crate::store) fn settle() {
    fence(Ordering::SeqCst);
}

/// Locks of the header and of slots.
#[derive(Debug)]
pub(super) struct Desk(File);

impl Desk {
    /// Tries for the header. Whoever has it has it for microseconds, or was put aside by a busy machine meanwhile: that is
    /// waited for, but not for ever. A process that was stopped holds up nobody for longer.
    pub(super) fn lock_header(&self) -> bool {
        const PATIENCE: Duration = Duration::from_millis(300);
        let (began, mut rest) = (Instant::now(), Duration::from_micros(50));
        while !self.lock(0, libc::F_WRLCK) {
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(rest);
            rest = (rest * 2).min(Duration::from_millis(2));
        }
        true
    }

    pub(super) fn unlock_header(&self) {
        self.lock(0, libc::F_UNLCK);
    }

    /// Tries for a slot.
    pub(super) fn lock_slot(&self, slot: u32) -> bool {
        self.lock(Geometry::record_at(slot), libc::F_WRLCK)
    }

    /// Under the lock of the header.
    pub(super) fn set_hand(&self, hand: u64) -> io::Result<()> {
        self.0.write_all_at(&hand.to_le_bytes(), HAND_AT)
    }

    /// Under the lock of the header.
    pub(super) fn set_counts(&self, counts: Counts) -> io::Result<()> {
        self.0.write_all_at(&counts.to_bytes(), COUNTS_AT)
    }

    fn lock(&self, at: u64, kind: libc::c_int) -> bool {
        // SAFETY: a zeroed flock is a valid one.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::c_short::try_from(kind).unwrap_or_default();
        lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
        lock.l_start = libc::off_t::try_from(at).unwrap_or(libc::off_t::MAX);
        lock.l_len = 1;
        // SAFETY: an open descriptor and a live value; the call does not wait.
        unsafe { libc::fcntl(self.raw(), libc::F_OFD_SETLK, &raw const lock) == 0 }
    }

    fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Not only by closing: a child that was forked meanwhile has the same open file description.
        // SAFETY: a zeroed flock is a valid one, and means the whole file here; an open descriptor.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::c_short::try_from(libc::F_UNLCK).unwrap_or_default();
            libc::fcntl(self.raw(), libc::F_OFD_SETLK, &raw const lock);
        }
    }
}
