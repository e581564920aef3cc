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
    goes_through: bool,
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
    back: Option<Receiver<(Filled, io::Result<()>)>>,
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
        let hand = Hand::new(file)?;
        Some(Self { page, filled, free: Some(other), stuck: None, going: 0..0, hand, goes_through: false })
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

    /// Forgets what lies behind the end of what counts: an append that failed left it.
    pub(super) fn cut(&mut self, end: u64) {
        let _ = self.settle(); // what could not be written is tried again, as far as it counts
        let (page, rest) =
            (self.page, |at: u64| usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
        if let Some(stuck) = &mut self.stuck {
            stuck.used = stuck.used.min(rest(stuck.at)).next_multiple_of(page);
        }
        self.filled.used = self.filled.used.min(rest(self.filled.at));
    }

    /// Goes through the page cache from now on, by this descriptor: the device does not like memory or places so, or a
    /// sandbox forbids it by now.
    pub(super) fn go_through(&mut self, file: File) -> io::Result<()> {
        let hand = Hand::new(file).ok_or_else(broke)?;
        let _ = self.settle(); // nothing is on its way then, and what could not be written is here
        self.hand = hand;
        self.goes_through = true;
        Ok(())
    }

    /// Whether it does.
    pub(super) fn goes_through(&self) -> bool {
        self.goes_through
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
            let (filled, answer) = self.hand.take()?;
            match answer {
                Ok(()) => (self.free, self.going) = (Some(filled.block), 0..0),
                Err(_) => self.stuck = Some(filled),
            }
            return answer;
        }
        Ok(())
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
        Some(Self { to: Some(to), back: Some(back), thread: Some(thread), generation: sys::generation() })
    }

    fn give(&self, filled: Filled) -> io::Result<()> {
        let given = self.to.as_ref().map(|to| to.send(filled));
        given.and_then(Result::ok).ok_or_else(broke)
    }

    fn take(&self) -> io::Result<(Filled, io::Result<()>)> {
        let taken = self.back.as_ref().map(Receiver::recv);
        taken.and_then(Result::ok).ok_or_else(broke)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let (to, back, thread) = (self.to.take(), self.back.take(), self.thread.take());
        if self.generation != sys::generation() {
            // A forked child: the thread is its parent's, and may have held a lock of these when it was forked.
            std::mem::forget((to, back, thread));
            return;
        }
        drop(to);
        thread.map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 300_000;

    /// Over a file on a disk, with buffers of a mebibyte; `None` where it cannot be.
    fn past(folder: &tempfile::TempDir) -> Option<(File, Past)> {
        let path = folder.path().join("file");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let past = Past::new(&file, 1 << 20, &Budget::new(64 << 20).unwrap())?;
        Some((file, past))
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| u8::try_from(n % 253).unwrap()).collect()
    }

    /// A descriptor that cannot be written to stands for a full disk.
    fn lame(folder: &tempfile::TempDir) -> Hand {
        Hand::new(File::open(folder.path().join("file")).unwrap()).unwrap()
    }

    fn take(past: &mut Past, mut bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len();
        while !bytes.is_empty() {
            bytes = &bytes[past.take(bytes)?..];
        }
        Ok(len)
    }

    #[test]
    fn what_could_not_be_written_is_kept_and_tried_again() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Some((file, mut past)) = past(&folder) else { return };
        let (all, mut failed) = (content(12 * PIECE), 0);
        for (number, piece) in all.chunks(PIECE).enumerate() {
            if number == 5 {
                past.settle().unwrap();
                past.hand = lame(&folder);
            }
            let at = past.end();
            let left = |past: &Past| &piece[usize::try_from(past.end() - at).unwrap()..];
            loop {
                let left = left(&past);
                let Err(error) = take(&mut past, left) else { break };
                assert_eq!(error.raw_os_error(), Some(libc::EBADF));
                failed += 1;
                if failed == 3 {
                    past.hand = Hand::new(file.try_clone().unwrap()).unwrap();
                }
            }
        }
        assert_eq!(failed, 3);
        let (at, rest) = past.end_here().unwrap();
        past.settle().unwrap();
        assert_eq!(past.end(), at);
        file.write_all_at(&rest, at).unwrap();
        assert!(std::fs::read(folder.path().join("file")).unwrap() == all);
    }

    #[test]
    fn what_does_not_count_is_forgotten_and_stands_in_nobodys_way() {
        for end in [0, 1, 500_000, 1 << 20, (1 << 20) + 5000, 3 << 19, 2 << 20, 5 << 19] {
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let Some((file, mut past)) = past(&folder) else { return };
            let all = content(5 << 19);
            past.hand = lame(&folder);
            // One buffer is stuck, the other one waits.
            assert_eq!(take(&mut past, &all[..2 << 20]).unwrap(), 2 << 20);
            assert!(take(&mut past, &all[2 << 20..]).is_err());
            past.cut(end as u64);
            assert_eq!(past.stuck.as_ref().is_some_and(|stuck| stuck.used > 0), end > 0);
            past.hand = Hand::new(file.try_clone().unwrap()).unwrap();
            let (at, rest) = past.end_here().unwrap();
            past.settle().unwrap();
            if !rest.is_empty() {
                file.write_all_at(&rest, at).unwrap();
            }
            file.set_len(end.min(2 << 20) as u64).unwrap();
            assert!(std::fs::read(folder.path().join("file")).unwrap() == all[..end.min(2 << 20)], "{end}");
        }
    }
}
