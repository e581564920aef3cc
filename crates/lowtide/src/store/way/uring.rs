//! A ring of io_uring with its buffer: many reads in flight, none left behind.
//!
//! Reads go to the ring's own buffer, or straight to memory that [`Ring::run`] borrows; and it does not return, not even
//! by a panic, before the kernel has finished with every request. So no read can ever land in memory that is someone
//! else's. Writes come straight from memory that [`Ring::write`] borrows, for as long.

use super::deep::{DEPTH, Piece};
use crate::budget::pool::Half;
use crate::error::Result;
use io_uring::{IoUring, Probe, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A ring, and the memory that its reads go to.
pub(super) struct Ring {
    queue: IoUring,
    bounce: Option<Half>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

/// Requests in the kernel's hands. Dropping it waits for them.
struct Flight<'a> {
    ring: &'a mut IoUring,
    count: usize,
}

/// Longer requests than this take a while to copy.
const SHORT: usize = 16 << 10;
/// So few short requests are somebody who waits for them.
const FEW: usize = 32;
/// How long to stay awake for them: a core of a virtual machine that sleeps takes up to 100 µs to wake, as long as the
/// disk.
const AWAKE: Duration = Duration::from_micros(200);

impl Flight<'_> {
    /// Whether `want` completions have come, and all was submitted.
    fn has(&mut self, want: usize) -> bool {
        self.ring.submission().is_empty() && self.ring.completion().len() >= want
    }

    /// Submits, and waits for `want` completions.
    fn wait(&mut self, want: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(want) {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => Err(e),
            _ => Ok(()),
        }
    }

    /// Submits, and looks for `want` completions for a while without a rest.
    fn stay_awake(&mut self, want: usize) {
        let began = Instant::now();
        let submitted = self.ring.submit().is_ok();
        while submitted && !self.has(want) && began.elapsed() < AWAKE {
            (0..20).for_each(|_| std::hint::spin_loop());
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        loop {
            self.count -= self.ring.completion().count().min(self.count);
            // What could not be submitted is not in the kernel's hands. It goes with the ring, which is not used again.
            if self.count <= self.ring.submission().len() {
                return;
            }
            // Whatever it answers, the completions decide when it is over. A sandbox may refuse it by now.
            if self.ring.submit_and_wait(1).is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

impl Ring {
    /// Whether this process may use io_uring and it can read (Linux 5.6).
    pub fn works() -> bool {
        IoUring::new(1).is_ok_and(|ring| {
            let mut probe = Probe::new();
            ring.submitter().register_probe(&mut probe).is_ok()
                && probe.is_supported(opcode::Read::CODE)
                && ring.submit().is_ok()
        })
    }

    /// Without a buffer for pieces that are all read straight.
    pub fn new(bounce: Option<Half>) -> io::Result<Self> {
        Ok(Self { queue: IoUring::new(u32::try_from(DEPTH).unwrap_or(64))?, bounce })
    }

    /// Bytes of its buffer.
    pub fn bounce_len(&self) -> usize {
        self.bounce.as_ref().map_or(0, |bounce| bounce.len())
    }

    /// Reads every piece. They are cut so that `slot` bytes hold any of them.
    ///
    /// # Panics
    /// Where a slot is larger than the buffer: before anything is read.
    pub fn run(&mut self, slot: usize, pieces: &mut [Piece<'_>]) -> Result<()> {
        let bounces = !pieces.iter().all(Piece::is_straight);
        let slots = if bounces { (self.bounce_len() / slot.max(1)).min(DEPTH) } else { DEPTH };
        assert!(slots > 0, "a slot of {slot} bytes in a buffer of {}", self.bounce_len());
        let start = self.bounce.as_ref().map_or(std::ptr::null_mut(), Half::as_ptr);
        let mut free: Vec<usize> = (0..slots).collect();
        let mut holds = vec![0; slots];
        let mut flight = Flight { ring: &mut self.queue, count: 0 };
        let (mut next, mut error) = (0, None);
        let copies = slot > SHORT && bounces;
        let longest = pieces.iter().map(|piece| piece.place().1).max().unwrap_or(0);
        let few = longest <= SHORT && pieces.len() <= FEW;
        while error.is_none() && next < pieces.len() || flight.count > 0 {
            while error.is_none() && next < pieces.len() {
                let Some(at) = free.pop() else { break };
                let piece = &mut pieces[next];
                let read = request(piece, start.wrapping_add(at * slot), slot).user_data(at as u64);
                // SAFETY: the file is open as long as its piece is there, longer than this call. Slot `at` lies inside
                // the bounce buffer (there are `slots` of `slot` bytes, and `len` is at most `slot`) and is unused until
                // `flight` has seen the completion: `flight` waits for it even when dropped early. A straight piece's
                // own bytes, which are exactly `len`, are borrowed by `pieces` for longer than that, and nobody looks
                // at them before. The queue has room: it is as deep as there are slots.
                if unsafe { flight.ring.submission().push(&read) }.is_err() {
                    free.push(at);
                    break;
                }
                holds[at] = next;
                next += 1;
                flight.count += 1;
                // The kernel sends what is submitted together when it has all of it, after 6 µs for each: with half of
                // them the disk can begin.
                if few && next == pieces.len() / 2 {
                    let _ = flight.ring.submit();
                }
            }
            // Who has work to do with each as it comes wakes for each; others once, for all: every wake costs some µs.
            let want = if next < pieces.len() || copies { 1 } else { flight.count };
            if few {
                flight.stay_awake(want);
            }
            if !(few && flight.has(want)) {
                // Where nothing more can be submitted, what was is waited for when `flight` is dropped.
                flight.wait(want).map_err(|e| pieces[0].failed(e))?;
            }
            while let Some(done) = flight.ring.completion().next() {
                flight.count -= 1;
                let at = usize::try_from(done.user_data()).unwrap_or(0);
                free.push(at);
                let piece = &mut pieces[holds[at]];
                let bounce = self.bounce.as_deref().unwrap_or_default();
                let answer = settle(piece, done.result(), bounce.get(at * slot..(at + 1) * slot));
                if let Err(e) = answer {
                    error.get_or_insert(e);
                }
            }
        }
        drop(flight);
        error.map_or(Ok(()), Err)
    }

    /// Writes bytes at their offsets of a file.
    ///
    /// # Errors
    /// The first, as the system has it. Which of the others are written is not known then.
    pub fn write(&mut self, file: &File, pieces: &[(u64, &[u8])]) -> io::Result<()> {
        let mut flight = Flight { ring: &mut self.queue, count: 0 };
        let (mut next, mut error) = (0, None);
        while error.is_none() && next < pieces.len() || flight.count > 0 {
            while error.is_none() && next < pieces.len() && flight.count < DEPTH {
                let (offset, bytes) = pieces[next];
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let write = opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), len);
                let write = write.offset(offset).build().user_data(next as u64);
                // SAFETY: file and bytes are borrowed for longer than this call, and `flight` does not end, not even by a
                // panic, before the kernel has finished with them.
                if unsafe { flight.ring.submission().push(&write) }.is_err() {
                    break;
                }
                next += 1;
                flight.count += 1;
            }
            // Half of them are always on their way, and who writes wakes for the other half together.
            let want = if next < pieces.len() { flight.count.div_ceil(2) } else { flight.count };
            flight.wait(want)?;
            while let Some(done) = flight.ring.completion().next() {
                flight.count -= 1;
                let (offset, bytes) = pieces[usize::try_from(done.user_data()).unwrap_or(0)];
                let answer = match usize::try_from(done.result()) {
                    Ok(written) if written == bytes.len() => Ok(()),
                    Err(_) if !passes(done.result()) => Err(io::Error::from_raw_os_error(-done.result())),
                    // A part of it, or a signal: an ordinary write settles it, or says what is wrong.
                    _ => file.write_all_at(bytes, offset),
                };
                if let Err(e) = answer {
                    error.get_or_insert(e);
                }
            }
        }
        drop(flight);
        error.map_or(Ok(()), Err)
    }
}

/// The request for a piece: straight to its place, or into a slot of so many bytes of the buffer.
fn request(piece: &mut Piece<'_>, place: *mut u8, slot: usize) -> io_uring::squeue::Entry {
    let (offset, len) = piece.place();
    let (into, room) = if piece.is_straight() { (piece.read.into.as_mut_ptr(), len) } else { (place, slot) };
    let len = u32::try_from(len.min(room)).unwrap_or(u32::MAX);
    opcode::Read::new(types::Fd(piece.file.as_raw_fd()), into, len).offset(offset).build()
}

/// Whether an ordinary call settles what the ring could not do: a signal, a kernel short of memory, or one that may start no
/// thread for what would wait, because the process has all that it may have.
fn passes(answer: i32) -> bool {
    matches!(-answer, libc::EINTR | libc::EAGAIN | libc::ECANCELED)
}

/// What became of a piece: the kernel's answer, and its slot of the buffer if it has one.
fn settle(piece: &mut Piece<'_>, answer: i32, slot: Option<&[u8]>) -> Result<()> {
    match usize::try_from(answer) {
        Ok(got) => piece.take(slot.unwrap_or_default(), got),
        Err(_) if passes(answer) => piece.take(&[], 0),
        Err(_) => Err(piece.failed(io::Error::from_raw_os_error(-answer))),
    }
}
