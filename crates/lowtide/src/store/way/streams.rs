//! Descriptors that go through a file from one place on: a stream each.
//!
//! The kernel keeps its read-ahead by descriptor, and two threads on one would spoil it for each other. So every thread
//! that brings a file in has a stream, and goes on with the one that has got to where it reads next. How the pages come
//! is how they stay: the kernel begins with single pages and makes the folios of each further piece four times as large,
//! as long as a stream goes on. Later passes, through a map above all, are glad of large ones. So a stream begins with huge
//! ones where it can: see [`sys::begin_huge`].

use crate::store::OneFile;
use crate::sys;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, Weak};

/// How many streams are kept open.
pub(super) const STREAMS: usize = 8;
/// Reads that begin no further than this behind the end of a stream continue it.
const CONTINUES: u64 = 4 << 20;
/// Where a stream cannot begin with huge folios, it begins with a read of this size. The kernel's first piece follows from
/// it, and its folios are the smallest: behind a first read of a megabyte, the first 14 MiB of each of 64 files came in
/// small ones, and a shuffled pass through a map took twice as many faults and half as long again.
pub(super) const BEGINS: usize = 16 << 10;

/// A descriptor of its own for one thread that goes through a file, and where it has got to.
#[derive(Debug)]
struct Stream {
    of: Weak<OneFile>,
    file: File,
    at: u64,
}

/// The streams of one file, or of many.
#[derive(Debug)]
pub(super) struct Streams {
    open: Mutex<Vec<Stream>>,
    /// How many are kept open while nobody reads from them.
    most: usize,
}

/// What to read from.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) file: File,
    /// It has read nothing yet that lies just before.
    pub(super) begins: bool,
}

impl Streams {
    pub(super) fn new(most: usize) -> Self {
        Self { open: Mutex::default(), most }
    }

    /// A stream that has got as far as `offset`, or else a new one.
    pub(super) fn take(&self, source: &Arc<OneFile>, offset: u64) -> io::Result<Taken> {
        let continued = |stream: &Stream| {
            std::ptr::eq(stream.of.as_ptr(), Arc::as_ptr(source))
                && offset.checked_sub(stream.at).is_some_and(|gap| gap <= CONTINUES)
        };
        let mine = sys::locked(&self.open, |open| {
            let near = open.iter().position(continued);
            near.map(|i| open.remove(i))
        });
        match mine {
            Some(stream) => Ok(Taken { file: stream.file, begins: false }),
            None => Ok(Taken { file: source.reopen_for(Advice::Sequential)?, begins: true }),
        }
    }

    /// Keeps one that has got to `at`; the one that was not used for longest goes for it.
    pub(super) fn put(&self, source: &Arc<OneFile>, file: File, at: u64) {
        if self.most == 0 || at >= source.len() {
            return;
        }
        let closed = sys::locked(&self.open, |open| {
            let full = open.len() >= self.most;
            let oldest = full.then(|| open.remove(0));
            open.push(Stream { of: Arc::downgrade(source), file, at });
            oldest
        });
        drop(closed); // outside the lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_continued_by_who_reads_on_in_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let source = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![0; 32 << 20]).unwrap();
            Arc::new(OneFile::open(&path).unwrap())
        };
        let (a, b) = (source("a"), source("b"));
        let streams = Streams::new(2);
        let begins = |source, offset| streams.take(source, offset).unwrap().begins;
        let read = |source, from: u64, to| {
            let taken = streams.take(source, from).unwrap();
            streams.put(source, taken.file, to);
        };
        assert!(begins(&a, 0));
        read(&a, 0, 1 << 20);
        assert!(begins(&b, 1 << 20), "of another file");
        assert!(begins(&a, 0), "behind it");
        assert!(begins(&a, 6 << 20), "far ahead of it");
        assert!(!begins(&a, 1 << 20));
        assert!(begins(&a, 1 << 20), "two threads never have the same one");
        for (file, end) in [(&a, 1), (&b, 2), (&b, 20)] {
            read(file, 0, end << 20);
        }
        assert!(begins(&a, 1 << 20), "no more than two are kept");
        assert!(!begins(&b, 2 << 20));
        read(&a, 0, 32 << 20);
        assert!(begins(&a, 32 << 20), "nothing is left to read there");
    }
}
