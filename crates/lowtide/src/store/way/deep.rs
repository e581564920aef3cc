//! Many reads in flight: the pieces that a ring of io_uring reads, and rings that wait for the next ones.

use super::uring::Ring;
use crate::error::{Error, Result};
use crate::store::{DirectFile, OneFile, Read, Report};
use crate::sys;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests in flight in one ring: 32 gave 67,000 a second, 128 gave 74,000, two rings of 64 twice that.
pub const DEPTH: usize = 64;

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

/// Of shorter reads the two ends that are no whole sectors would cost more than copying all of it.
const STRAIGHT: usize = 64 << 10;

/// A read, or a part of one, and the file it is of.
pub(super) struct Piece<'a> {
    pub(super) source: &'a OneFile,
    /// The source, or the same file opened for unbuffered reads.
    pub(super) file: &'a File,
    /// Of offsets and lengths that `file` can read.
    pub(super) align: usize,
    pub(super) read: Read<'a>,
}

impl<'a> Piece<'a> {
    /// A read through the page cache: straight to its place, whatever that is.
    pub(super) fn buffered(source: &'a OneFile, read: Read<'a>) -> Self {
        Self { source, file: source.file(), align: 1, read }
    }

    /// A read around it.
    pub(super) fn unbuffered(source: &'a OneFile, direct: &'a DirectFile, read: Read<'a>) -> Self {
        Self { source, file: &direct.file, align: direct.align, read }
    }

    /// Bytes between the aligned offset and the read's.
    fn lead(&self) -> usize {
        usize::try_from(self.read.offset % self.align as u64).unwrap_or(0)
    }

    /// The aligned offset, and the bytes from there to the aligned end.
    pub(super) fn place(&self) -> (u64, usize) {
        let lead = self.lead();
        (self.read.offset - lead as u64, (lead + self.read.into.len()).next_multiple_of(self.align))
    }

    /// Whether its bytes go to their place at once: offset, length and memory as the disk wants them need no bounce buffer.
    pub(super) fn is_straight(&self) -> bool {
        let Read { into, .. } = &self.read;
        self.lead() == 0
            && into.len().is_multiple_of(self.align)
            && into.as_ptr().addr().is_multiple_of(self.align)
    }

    /// What its offset and its memory begin with where they do: whole sectors, and whole pages. To memory that is no whole
    /// page a virtual disk wrote at two thirds of the rate, sectors or not.
    fn whole(&self) -> usize {
        self.align.max(sys::page())
    }

    /// Whether most of it could go to its place at once: memory that lies as the bytes do.
    pub(super) fn has_straight_part(&self) -> bool {
        let (Read { offset, into }, whole) = (&self.read, self.whole());
        let ahead = usize::try_from(offset % whole as u64).unwrap_or(0);
        into.len() >= STRAIGHT && into.as_ptr().addr() % whole == ahead && !self.is_straight()
    }

    /// What of it goes straight to its place, and the two ends, which do not; all of it where nothing does.
    pub(super) fn straightened(self) -> impl Iterator<Item = Self> {
        let (divides, whole) = (self.has_straight_part(), self.whole());
        let Self { source, file, align, read } = self;
        let head = if divides { read.offset.next_multiple_of(whole as u64) - read.offset } else { 0 };
        let head = usize::try_from(head).unwrap_or(usize::MAX).min(read.into.len());
        let (head, rest) = read.split(head);
        let body = if divides { rest.into.len() / whole * whole } else { rest.into.len() };
        let (body, tail) = rest.split(body);
        let parts = [head, body, tail].into_iter().filter(|part| !part.into.is_empty());
        parts.map(move |read| Self { source, file, align, read })
    }

    /// In pieces of at most `longest` bytes, of about the same size: a short one at the end would be a request, too.
    pub(super) fn cut(self, longest: usize) -> impl Iterator<Item = Self> {
        let whole = self.whole();
        let Self { source, file, align, read } = self;
        let count = read.into.len().div_ceil(longest);
        let even = read.into.len().div_ceil(count).next_multiple_of(whole).min(longest);
        read.pieces(even).map(move |read| Self { source, file, align, read })
    }

    /// That it can be read at all: see [`OneFile::check_end`].
    pub(super) fn check_end(&self) -> Result<()> {
        self.source.check_end(&self.read, self.align)
    }

    /// What the system said instead of reading it.
    pub(super) fn failed(&self, error: io::Error) -> Error {
        Error::io(self.source.path(), "read the file", error)
    }

    /// What came of it: `got` bytes from the aligned offset on, in `slot`, or in their place where it is straight.
    pub(super) fn take(&mut self, slot: &[u8], got: usize) -> Result<()> {
        let (lead, straight) = (self.lead(), self.is_straight());
        let Read { offset, into } = &mut self.read;
        if got < lead + into.len() {
            // Short: the end of the file, or a signal. An ordinary read tells which.
            return self.source.read_exact(*offset, into);
        }
        if !straight {
            into.copy_from_slice(&slot[lead..lead + into.len()]);
        }
        Ok(())
    }

    /// Reads it by itself, through `slot`.
    pub(super) fn read_alone(&mut self, slot: &mut [u8]) -> Result<()> {
        let (offset, span) = self.place();
        let straight = self.is_straight();
        loop {
            let into = if straight { &mut *self.read.into } else { &mut slot[..span] };
            match self.file.read_at(into, offset) {
                Ok(got) => return self.take(slot, got),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
    }
}

/// Rings at rest, and the [`sys::generation`] they belong to: a child must not touch its parent's.
#[derive(Debug, Default)]
pub(super) struct Rings(Mutex<(u64, Vec<Ring>)>);

impl Rings {
    /// One of them, if there is one.
    pub(super) fn take(&self) -> Option<Ring> {
        sys::locked(&self.0, |(generation, rings)| {
            if *generation != sys::generation() {
                std::mem::forget(std::mem::take(rings)); // the parent's: not even closing them is ours
                *generation = sys::generation();
            }
            rings.pop()
        })
    }

    /// Keeps one for the next time.
    pub(super) fn put(&self, ring: Ring) {
        sys::locked(&self.0, |(_, rings)| rings.push(ring));
    }
}

/// One read in so many is asked whether its bytes are in memory: the question costs a tenth of the read.
pub(super) const ASKED: usize = 8;

/// Reads through the page cache that are in flight together.
///
/// Asking for all of them ahead of time (`FADV_WILLNEED`) reached a third of what the disk can do: a thread still had to
/// sleep for each.
#[derive(Debug, Default)]
pub(super) struct Deep {
    /// Whether there is a ring, once somebody has asked. Not a lock that is held meanwhile: a child forked then would wait
    /// for it. No ring is used where the filesystem cannot tell what is in memory: such a one has threads wait for it in the
    /// kernel, too.
    works: AtomicBool,
    asked: AtomicBool,
}

/// The rings of them all: a ring is a descriptor, and there may be thousands of files.
static RINGS: Rings = Rings(Mutex::new((0, Vec::new())));

/// Writes bytes at their offsets of a file: many in flight, where there is a ring.
///
/// # Errors
/// The first, as the system has it. Which of the others are written is not known then.
pub(crate) fn write(file: &File, pieces: &[(u64, &[u8])]) -> io::Result<()> {
    let made = || if Ring::works() { Ring::new(None).ok() } else { None };
    let Some(mut ring) = RINGS.take().or_else(made) else {
        return pieces.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset));
    };
    ring.write(file, pieces)?;
    RINGS.put(ring);
    Ok(())
}

impl Deep {
    /// Whether there is a ring for it.
    pub(super) fn works(&self) -> bool {
        if !self.asked.load(Ordering::Acquire) {
            self.learn(Ring::works());
        }
        self.works.load(Ordering::Relaxed)
    }

    fn learn(&self, works: bool) {
        self.works.store(works, Ordering::Relaxed);
        self.asked.store(true, Ordering::Release);
    }

    /// Reads every piece, and says how many were in memory. `None` where no ring is to be had.
    pub(super) fn read(&self, mut pieces: Vec<Piece<'_>>) -> Result<Option<Report>> {
        pieces.retain(|piece| !piece.read.into.is_empty());
        pieces.iter().try_for_each(Piece::check_end)?;
        if pieces.is_empty() {
            return Ok(Some(Report::default()));
        }
        if !self.works() {
            return Ok(None);
        }
        let Some(mut ring) = RINGS.take().or_else(|| Ring::new(None).ok()) else {
            self.learn(false);
            return Ok(None);
        };
        let (mut number, mut report) = (0, Report::default());
        pieces.retain_mut(|Piece { file, read, .. }| {
            number += 1;
            if number % ASKED != 1 {
                return true;
            }
            let answer = sys::read_cached(*file, read.into, read.offset);
            if answer.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EOPNOTSUPP)) {
                self.learn(false);
            }
            let there = answer.is_ok_and(|got| got == read.into.len());
            report += Report { looked: 1, missed: usize::from(!there) };
            !there
        });
        if !self.works() {
            return Ok(None);
        }
        let longest = pieces.iter().map(|piece| piece.read.into.len()).max().unwrap_or(0);
        ring.run(longest, &mut pieces)?;
        RINGS.put(ring);
        Ok(Some(report))
    }
}
