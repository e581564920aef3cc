//! What is written in order goes past the page cache: whole pages, one buffer while the next one is filled.
//!
//! A virtual disk takes 4.4 GB/s from huge pages; through the page cache it was 3.0 to 3.4, and 0.4 to 0.8 where the memory
//! of the page cache had been given back to the host (2026-11-19, by hand). Nothing of it is ever dirty. What could not be
//! written is kept, and tried again before anything else: whoever makes room on a full disk loses nothing.

use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::sys;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// A stretch of the file that is written past the page cache.
#[derive(Debug)]
pub(super) struct Past {
    page: usize,
    filled: Filled,
    /// The other buffer, where the thread does not have it.
    free: Option<Block>,
    /// The other buffer, where it could not be written.
    stuck: Option<Filled>,
    /// Where the other buffer belongs that is on its way, or stuck.
    going: Range<u64>,
    hand: Hand,
}

/// Bytes for a place of the file.
#[derive(Debug)]
struct Filled {
    block: Block,
    used: usize,
    at: u64,
}

/// The thread that writes. Dropping it waits for what is on its way.
#[derive(Debug)]
struct Hand {
    to: Option<Sender<Filled>>,
    back: Receiver<(Filled, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
    generation: u64,
}

impl Past {
    /// With two buffers of so many bytes. `None` where the filesystem cannot do it, or no thread is to be had.
    pub(super) fn new(file: &File, len: usize, budget: &Budget) -> Option<Self> {
        let page = sys::direct_alignment(file)?.max(sys::page());
        let file = sys::reopen(file, OFlags::RDWR | OFlags::DIRECT).ok()?;
        // They are leased with all that the writer has.
        let block = || Block::for_caller(budget, len / page * page).ok();
        let (block, other) = (block()?, block()?);
        let aligned = [&block, &other].iter().all(|block| block.as_ptr().addr().is_multiple_of(page));
        if block.is_empty() || !aligned {
            return None;
        }
        let filled = Filled { block, used: 0, at: 0 };
        Some(Self { page, filled, free: Some(other), stuck: None, going: 0..0, hand: Hand::new(file)? })
    }

    /// Bytes of a page.
    pub(super) fn page(&self) -> u64 {
        self.page as u64
    }

    /// Where what comes next belongs.
    pub(super) fn end(&self) -> u64 {
        self.filled.at + self.filled.used as u64
    }

    /// Whether some of these bytes are on their way.
    pub(super) fn is_writing(&self, bytes: &Range<u64>) -> bool {
        bytes.start < self.going.end && self.going.start < bytes.end
    }

    /// Goes back to a place that still waits, and says whether it does.
    pub(super) fn back_to(&mut self, at: u64) -> bool {
        let used = at.checked_sub(self.filled.at).and_then(|used| usize::try_from(used).ok());
        used.filter(|&used| used <= self.filled.used).map(|used| self.filled.used = used).is_some()
    }

    /// Begins at the first byte of a page, where nothing waits.
    pub(super) fn begin(&mut self, at: u64) {
        (self.filled.at, self.filled.used) = (at, 0);
    }

    /// Takes as many of these bytes as there is room for, and says how many.
    ///
    /// # Errors
    /// As the system has it, of what was taken before: that is kept, and none of these are taken.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.filled.used == self.filled.block.len() {
            self.send()?;
        }
        let Filled { block, used, .. } = &mut self.filled;
        let taken = bytes.len().min(block.len() - *used);
        block[*used..*used + taken].copy_from_slice(&bytes[..taken]);
        *used += taken;
        Ok(taken)
    }

    /// Sends whole pages on their way, and gives what is left of a page, with its place: then nothing waits.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn end_here(&mut self) -> io::Result<(u64, Vec<u8>)> {
        let (used, whole) = (self.filled.used, self.filled.used / self.page * self.page);
        let (place, rest) = (self.filled.at + whole as u64, self.filled.block[whole..used].to_vec());
        if whole > 0 {
            self.filled.used = whole;
            self.send().inspect_err(|_| self.filled.used = used)?;
        }
        self.begin(place);
        Ok((place, rest))
    }

    /// Waits for what is on its way.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if let Some(stuck) = self.stuck.take() {
            self.hand.give(stuck)?;
        }
        if self.free.is_none() {
            let (filled, answer) = self.hand.back.recv().map_err(|_| broke())?;
            match answer {
                Ok(()) => (self.free, self.going) = (Some(filled.block), 0..0),
                Err(_) => self.stuck = Some(filled),
            }
            return answer;
        }
        Ok(())
    }

    /// All that was taken and not written, each with its place, for whoever writes it in another way.
    pub(super) fn into_parts(mut self) -> Vec<(u64, Vec<u8>)> {
        let stuck = self.stuck.take();
        let parts = stuck.iter().chain([&self.filled]);
        parts.map(|filled| (filled.at, filled.block[..filled.used].to_vec())).collect()
    }

    /// Writes to another file from now on.
    #[cfg(test)]
    pub(super) fn write_to(&mut self, file: &File) {
        let old = self.hand.thread.take();
        self.hand.to = None;
        old.map(JoinHandle::join);
        // What was on its way came back.
        if let Ok((filled, answer)) = self.hand.back.try_recv() {
            match answer {
                Ok(()) => (self.free, self.going) = (Some(filled.block), 0..0),
                Err(_) => self.stuck = Some(filled),
            }
        }
        self.hand = Hand::new(file.try_clone().unwrap()).unwrap();
    }

    /// Sends what is filled on its way, once the other buffer is free.
    fn send(&mut self) -> io::Result<()> {
        self.settle()?;
        let Some(block) = self.free.take() else { return Ok(()) }; // settled
        let next = Filled { block, used: 0, at: self.end() };
        let filled = std::mem::replace(&mut self.filled, next);
        self.going = filled.at..self.filled.at;
        self.hand.give(filled)
    }
}

fn broke() -> io::Error {
    io::Error::other("the thread that writes broke")
}

impl Hand {
    fn new(file: File) -> Option<Self> {
        let (to, coming) = channel::<Filled>();
        let (done, back) = channel();
        let write = move || {
            for filled in coming {
                let answer = file.write_all_at(&filled.block[..filled.used], filled.at);
                if done.send((filled, answer)).is_err() {
                    break; // nobody waits for it any more
                }
            }
        };
        let thread = Builder::new().name("lowtide-write".into()).spawn(write).ok()?;
        Some(Self { to: Some(to), back, thread: Some(thread), generation: sys::generation() })
    }

    fn give(&self, filled: Filled) -> io::Result<()> {
        let given = self.to.as_ref().map(|to| to.send(filled));
        given.and_then(Result::ok).ok_or_else(broke)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.to = None;
        let Some(thread) = self.thread.take() else { return };
        // In a forked child there is no such thread: its parent has it.
        if self.generation == sys::generation() {
            let _ = thread.join();
        }
    }
}
