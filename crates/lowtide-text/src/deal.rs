//! Documents in another order, exactly and out of core.
//!
//! A document's place is that of its key, a hash of its number. While documents come, each is appended to the spool
//! of its key's first bits; then spool after spool is sorted by its keys and dealt to the shards. A spool that does
//! not fit in the room is spooled again by the next bits. So every document is written once more and read once more,
//! whatever there is of them, and the order is a uniform one of all orders.

use crate::shards::Out;
use crate::split::Shuffle;
use crate::state::{State, Work};
use lowtide::store::Cache;
use lowtide::write::Append;
use lowtide::{Error, Result};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bits of a key that choose a spool.
const BITS: u32 = 6;
/// Spools at once: each has an open file and its buffer.
pub const SPOOLS: usize = 1 << BITS;
/// Bytes before a document's tokens: its key, its number, and how many bytes follow.
pub const HEAD: usize = 24;
/// A document up to this size is written with its head at once.
const SMALL: usize = 1 << 20;
/// How much of a document that is dealt from its file is read at once.
const COPY: usize = 1 << 20;
/// Bytes that may be dirty in all spools together: each alone may have many times its share.
const DIRTY: u64 = 24 << 20;
/// What the order of one document takes.
pub const ENTRY: u64 = size_of::<Entry>() as u64;

/// Takes documents, and puts each into its spool.
pub struct Spools {
    shuffle: Shuffle,
    files: Vec<Append>,
    /// Bytes since the spools were written back.
    dirty: u64,
    key: u64,
    number: u64,
    /// The document so far, while it is small.
    small: Vec<u8>,
    /// Where its head is, and how much of it is behind it, once it is large.
    large: Option<(u64, u64)>,
}

fn name(spool: usize) -> String {
    format!("spool-{spool:02}")
}

fn spool_of(key: u64, depth: u32) -> usize {
    let bits = key.checked_shl(depth * BITS).unwrap_or(0) >> (64 - BITS);
    usize::try_from(bits).unwrap_or(0)
}

impl Spools {
    pub fn new(work: &Work, shuffle: Shuffle, cache: Cache) -> Result<Self> {
        let files = (0..SPOOLS).map(|spool| Append::create(&work.part(&name(spool)), cache));
        Ok(Self::over(shuffle, files.collect::<Result<_>>()?))
    }

    pub fn resume(work: &Work, shuffle: Shuffle, cache: Cache, state: &State) -> Result<Self> {
        let files = (0..SPOOLS).zip(&state.spools);
        let files = files.map(|(spool, &len)| Append::reopen(&work.part(&name(spool)), len, cache));
        Ok(Self::over(shuffle, files.collect::<Result<_>>()?))
    }

    fn over(shuffle: Shuffle, files: Vec<Append>) -> Self {
        Self { shuffle, files, dirty: 0, key: 0, number: 0, small: Vec::new(), large: None }
    }

    fn file(&mut self) -> &mut Append {
        &mut self.files[spool_of(self.key, 0)]
    }
}

/// Writes files back when much of them is dirty.
fn settle(files: &mut [Append], dirty: &mut u64) -> Result<()> {
    if *dirty < DIRTY {
        return Ok(());
    }
    *dirty = 0;
    files.iter_mut().try_for_each(Append::settle)
}

fn head(key: u64, number: u64, len: u64) -> Vec<u8> {
    [key, number, len].map(u64::to_le_bytes).concat()
}

impl Out for Spools {
    fn begin(&mut self, document: u64) -> Result<()> {
        (self.number, self.key) = (document, self.shuffle.key(document));
        self.small.clear();
        self.large = None;
        Ok(())
    }

    fn write(&mut self, tokens: &[u8]) -> Result<()> {
        if let Some((_, len)) = &mut self.large {
            *len += tokens.len() as u64;
            return self.file().write(tokens);
        }
        self.small.extend_from_slice(tokens);
        if self.small.len() > SMALL {
            let small = std::mem::take(&mut self.small);
            let head = head(self.key, self.number, 0); // its length is written over it at the end
            let file = self.file();
            let at = file.len();
            file.write(&head)?;
            file.write(&small)?;
            self.large = Some((at, small.len() as u64));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if let Some((at, len)) = self.large.take() {
            let head = head(self.key, self.number, len);
            return self.file().write_at(at, &head);
        }
        let head = head(self.key, self.number, self.small.len() as u64);
        let small = std::mem::take(&mut self.small);
        self.file().write(&head)?;
        self.file().write(&small)?;
        self.dirty += (head.len() + small.len()) as u64;
        self.small = small; // kept for its memory
        settle(&mut self.files, &mut self.dirty)
    }

    fn abort(&mut self) -> Result<()> {
        self.small.clear();
        self.large.take().map_or(Ok(()), |(at, _)| self.file().truncate(at))
    }

    fn sync(&mut self, state: &mut State) -> Result<()> {
        self.files.iter_mut().try_for_each(Append::sync)?;
        state.spools = self.files.iter().map(Append::len).collect();
        Ok(())
    }
}

/// A document of a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: u64,
    number: u64,
    at: u64,
    len: u64,
}

/// Is told now and then how many bytes were dealt; an error ends the work.
pub type Beat<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Deals all spools to `out`, inside `room` bytes.
pub fn deal(work: &Work, cache: Cache, room: u64, out: &mut dyn Out, beat: Beat<'_>) -> Result<()> {
    let mut dealer = Dealer { work, cache, room, out, beat, dealt: 0, buffer: Vec::new() };
    (0..SPOOLS).try_for_each(|spool| dealer.deal(&work.part(&name(spool)), 1))
}

struct Dealer<'a> {
    work: &'a Work,
    cache: Cache,
    room: u64,
    out: &'a mut dyn Out,
    beat: Beat<'a>,
    dealt: u64,
    buffer: Vec<u8>,
}

impl Dealer<'_> {
    fn deal(&mut self, path: &Path, depth: u32) -> Result<()> {
        let spool = Spool::open(path)?;
        let documents = spool.count()?;
        // Its documents in memory, their order, and their order again while it is sorted.
        if spool.len + 2 * ENTRY * documents > self.room && documents > 1 && depth * BITS < 64 {
            return self.spread(&spool, depth);
        }
        let mut entries = Vec::with_capacity(usize::try_from(documents).unwrap_or(0));
        spool.each(|entry| {
            entries.push(entry);
            Ok(())
        })?;
        entries.sort_unstable();
        let whole = spool.len <= self.room;
        if whole {
            self.buffer.resize(usize::try_from(spool.len).unwrap_or(0), 0);
            spool.read(0, &mut self.buffer)?;
        }
        for entry in entries {
            self.dealt += entry.len;
            (self.beat)(self.dealt)?;
            self.out.begin(entry.number)?;
            if whole {
                let at = usize::try_from(entry.at).unwrap_or(0);
                let len = usize::try_from(entry.len).unwrap_or(0);
                self.out.write(&self.buffer[at..at + len])?;
            } else {
                spool.copy(entry, &mut self.buffer, |bytes| self.out.write(bytes))?;
            }
            self.out.end()?;
        }
        spool.forget(self.cache);
        Ok(())
    }

    /// Spools a spool again, by the next bits, and deals those.
    fn spread(&mut self, spool: &Spool, depth: u32) -> Result<()> {
        let path = |sub: usize| self.work.part(&format!("again-{depth}-{sub:02}"));
        let files = (0..SPOOLS).map(|sub| Append::create(&path(sub), self.cache));
        let mut files = files.collect::<Result<Vec<_>>>()?;
        let paths: Vec<PathBuf> = (0..SPOOLS).map(path).collect();
        let mut dirty = 0;
        spool.each(|entry| {
            (self.beat)(self.dealt)?;
            let file = &mut files[spool_of(entry.key, depth)];
            file.write(&head(entry.key, entry.number, entry.len))?;
            spool.copy(entry, &mut self.buffer, |bytes| file.write(bytes))?;
            dirty += HEAD as u64 + entry.len;
            settle(&mut files, &mut dirty)
        })?;
        files.iter_mut().try_for_each(Append::sync)?;
        drop(files);
        spool.forget(self.cache);
        for path in paths {
            self.deal(&path, depth + 1)?;
            fs::remove_file(&path).map_err(|error| Error::io(&path, "remove the file", error))?;
        }
        Ok(())
    }
}

/// A spool that is read.
struct Spool {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Spool {
    fn open(path: &Path) -> Result<Self> {
        let wrong = |error| Error::io(path, "open the file", error);
        let file = File::open(path).map_err(wrong)?;
        let len = file.metadata().map_err(wrong)?.len();
        Ok(Self { path: path.to_owned(), file, len })
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, at).map_err(|error| Error::io(&self.path, "read the file", error))
    }

    /// Lets the page cache have its memory back, where that was asked for: nobody reads this again.
    fn forget(&self, cache: Cache) {
        if cache == Cache::Drop {
            let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn count(&self) -> Result<u64> {
        let mut documents = 0;
        self.each(|_| {
            documents += 1;
            Ok(())
        })?;
        Ok(documents)
    }

    /// Goes through the heads of all documents.
    fn each(&self, mut f: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        let (mut next, mut head) = (0, [0; HEAD]);
        while next < self.len {
            self.read(next, &mut head)?;
            let field = |i: usize| {
                let bytes = head[i * 8..].first_chunk().copied().unwrap_or_default();
                u64::from_le_bytes(bytes)
            };
            let at = next + HEAD as u64;
            let entry = Entry { key: field(0), number: field(1), at, len: field(2) };
            next =
                at.checked_add(entry.len).filter(|&end| end <= self.len).ok_or_else(|| Error::Truncated {
                    path: self.path.clone(),
                    offset: at,
                    end: at.saturating_add(entry.len),
                    found: self.len,
                })?;
            f(entry)?;
        }
        Ok(())
    }

    /// Gives the tokens of a document piece by piece.
    fn copy(&self, entry: Entry, buffer: &mut Vec<u8>, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut at, end) = (entry.at, entry.at + entry.len);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(COPY);
            buffer.resize(len.max(buffer.len()), 0);
            self.read(at, &mut buffer[..len])?;
            f(&buffer[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}
