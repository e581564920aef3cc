//! Many files end to end, as one stream of bytes.
//!
//! [`Files`] knows where each file's part of the stream begins, and keeps some of them open, with what ways of
//! access have made for them. Reads are handed on file by file, in the order of the stream, so that a
//! look-ahead over the whole of it opens each file once.

use super::OneFile;
use super::joined::Joined;
use crate::error::{Error, Result};
use crate::store::{Cache, Made, Read, Store, Way};
use crate::sys;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What one file adds to the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file.
    pub path: PathBuf,
    /// Which bytes of it.
    pub bytes: Range<u64>,
}

/// Files, end to end.
#[derive(Debug)]
pub struct Files {
    parts: Vec<Part>,
    pub(in crate::store) joined: Joined,
    /// How many files are kept open.
    pub(in crate::store) most: usize,
    kept: Mutex<Open>,
}

/// The files that are open, and what was seen of the others.
#[derive(Debug, Default)]
struct Open {
    files: HashMap<usize, (u64, Arc<Kept>)>,
    /// Device and inode of every file that was ever open: a file put in its place is other data.
    seen: HashMap<usize, (u64, u64)>,
    clock: u64,
}

impl Open {
    /// Takes the file out that was not used for longest.
    fn oldest(&mut self) -> Option<Arc<Kept>> {
        let oldest = self.files.iter().min_by_key(|(_, (used, _))| *used).map(|(&i, _)| i)?;
        self.files.remove(&oldest).map(|(_, file)| file)
    }
}

/// An open file, and what ways of access keep with it for as long as it is open.
#[derive(Debug)]
pub(in crate::store) struct Kept {
    pub(in crate::store) file: Arc<OneFile>,
    pub(in crate::store) stores: Made<(Way, Cache), dyn Store>,
}

/// Descriptors of one open file: its own, and one for unbuffered reads.
const DESCRIPTORS: u64 = 2;
/// More than this many open files gain nothing.
const MOST: u64 = 1024;
/// How long somebody waits for descriptors that others hold, in milliseconds: two or three seconds in all.
const PAUSES: [u64; 5] = [1, 10, 100, 500, 1000];

impl Files {
    /// Of these parts; empty ones are fine.
    ///
    /// # Errors
    /// [`Error::Argument`] where they have more bytes than 63 bits can count.
    pub fn new(parts: Vec<Part>) -> Result<Self> {
        let joined = Joined::new(parts.iter().map(|part| &part.bytes))?;
        // Half of what the process may still open is for others.
        let most = sys::descriptors_left() / 2 / DESCRIPTORS;
        let most = usize::try_from(most.clamp(1, MOST)).unwrap_or(1);
        Ok(Self { parts, joined, most, kept: Mutex::default() })
    }

    /// How many files.
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of the stream.
    pub fn len(&self) -> u64 {
        self.joined.len()
    }

    /// Whether the stream has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs `read`, which may hold so many files open at once, one of so many threads that do. Where the others hold
    /// what descriptors there are, it is run again, file by file, when they are done: nothing may be held between.
    pub(in crate::store) fn read_by<T>(
        &self,
        threads: usize,
        mut read: impl FnMut(usize) -> Result<T>,
    ) -> Result<T> {
        static TURN: AtomicU32 = AtomicU32::new(0);
        let mut at_once = (self.most / threads.max(1)).max(1);
        for pause in PAUSES {
            match read(at_once) {
                Err(e) if e.is_for_want_of_descriptors() => {
                    // Not all at the same time again.
                    let turn = TURN.fetch_add(1, Ordering::Relaxed) % 4;
                    std::thread::sleep(Duration::from_millis(pause + pause * u64::from(turn) / 4));
                    at_once = 1;
                }
                done => return done,
            }
        }
        read(1)
    }

    /// The open file at `index`; the one that was not used for longest is closed for it.
    pub(in crate::store) fn file(&self, index: usize) -> Result<Arc<Kept>> {
        let known = sys::locked(&self.kept, |open| {
            open.clock += 1;
            let (used, file) = open.files.get_mut(&index)?;
            *used = open.clock;
            Some(file.clone())
        });
        if let Some(file) = known {
            return Ok(file);
        }
        let file = self.opened(|| OneFile::open(&self.parts[index].path))?;
        let meta = file.file().metadata().map_err(|e| Error::io(file.path(), "look at the file", e))?;
        let identity = (meta.dev(), meta.ino());
        // One that is shorter now than it was may be in the middle of being put back: it is looked at again next time.
        let is_whole = file.len() >= self.parts[index].bytes.end;
        let file = Arc::new(Kept { file: Arc::new(file), stores: Made::default() });
        let (seen, closed) = sys::locked(&self.kept, |open| {
            let seen = *open.seen.entry(index).or_insert(identity);
            let closed = if is_whole && open.files.len() >= self.most { open.oldest() } else { None };
            if is_whole {
                open.files.insert(index, (open.clock, file.clone()));
            }
            (seen, closed)
        });
        drop(closed); // unmapped and closed outside the lock
        if seen != identity {
            sys::locked(&self.kept, |open| open.files.remove(&index));
            return Err(Error::Format {
                path: self.parts[index].path.clone(),
                offset: 0,
                expected: "the file that was there before".into(),
                found: "another one in its place".into(),
                hint: "open the files again".into(),
            });
        }
        Ok(file)
    }

    /// What `open` opens. Where others left the process no descriptor for it, files that were not used for
    /// longest are closed until there is one.
    pub(in crate::store) fn opened<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match open() {
                Err(e) if e.is_for_want_of_descriptors() => {
                    if sys::locked(&self.kept, Open::oldest).is_none() {
                        return Err(e);
                    }
                }
                done => return done,
            }
        }
    }

    /// Reads of the stream as reads of the files, in their order.
    pub(in crate::store) fn split<'a>(
        &self,
        reads: &'a mut [Read<'_>],
    ) -> Result<Vec<(usize, Vec<Read<'a>>)>> {
        let last = self.parts.last().map_or(Path::new(""), |part| &part.path);
        self.joined.check(last, reads)?;
        Ok(self.joined.split(reads))
    }

    /// About how many bytes of the stream are in the page cache, from a sample of the files.
    ///
    /// # Errors
    /// As [`sys::cached_bytes`]; an error of the system where a file cannot be opened.
    pub fn cached_estimate(&self) -> Result<u64> {
        const FILES: usize = 16;
        let step = self.parts.len().div_ceil(FILES).max(1);
        let (mut cached, mut bytes) = (0_u64, 0_u64);
        for index in (0..self.parts.len()).step_by(step) {
            let file = self.file(index)?;
            let failed = |e| Error::io(file.file.path(), "ask for what is in the page cache", e);
            cached += sys::cached_estimate(&*file.file, file.file.len()).map_err(failed)?;
            bytes += file.file.len();
        }
        let share = cached as f64 / bytes.max(1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a length
        Ok((share * self.len() as f64) as u64)
    }

    /// The open file at `index`, for those who want to ask the kernel about it.
    ///
    /// # Errors
    /// What the system says, such as that it is not there any more.
    pub fn open(&self, index: usize) -> Result<Arc<OneFile>> {
        Ok(self.file(index)?.file.clone())
    }

    /// The first file, for messages.
    pub fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |part| &part.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    impl Files {
        /// How many files are open now.
        pub(in crate::store) fn open_now(&self) -> usize {
            sys::locked(&self.kept, |open| open.files.len())
        }
    }

    #[test]
    fn a_file_that_was_cut_when_it_was_opened_again_is_looked_at_anew() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, [7; 100]).unwrap();
            Part { path, bytes: 10..100 }
        };
        let files = Files { most: 1, ..Files::new(vec![part("a"), part("b")]).unwrap() };
        let len = |index| files.open(index).unwrap().len();
        assert_eq!((len(0), len(1)), (100, 100)); // the second closes the first
        for left in [0, 99] {
            fs::write(folder.path().join("a"), vec![7; left]).unwrap();
            assert_eq!(len(0), left as u64);
            fs::write(folder.path().join("a"), [7; 100]).unwrap();
            assert_eq!((len(0), len(1)), (100, 100));
        }
    }
}
