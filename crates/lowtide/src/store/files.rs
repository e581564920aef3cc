//! Many files end to end, as one stream of bytes.
//!
//! [`Files`] knows where each file's part of the stream begins and keeps some of them open; a [`FilesStore`]
//! reads from the stream by any way of access. Reads are handed on file by file, in the order of the stream,
//! so that a look-ahead over the whole of it opens each file once.

use super::deep::{Deep, Piece};
use super::direct::DirectFile;
use super::{
    Access, AdviseStore, Cache, Cost, Gap, Hints, LONG, Made, MapStore, Model, Read, ReadStore, RemapStore,
    Source, Store, window_for,
};
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::sys;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
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
    /// Where each part ends in the stream.
    ends: Vec<u64>,
    /// How many files are kept open.
    most: usize,
    open: Mutex<Open>,
}

/// The files that are open, and what was seen of the others.
#[derive(Debug, Default)]
struct Open {
    files: HashMap<usize, (u64, Arc<OpenFile>)>,
    /// Device and inode of every file that was ever open: a file put in its place is other data.
    seen: HashMap<usize, (u64, u64)>,
    clock: u64,
}

impl Open {
    /// Takes the file out that was not used for longest.
    fn oldest(&mut self) -> Option<Arc<OpenFile>> {
        let oldest = self.files.iter().min_by_key(|(_, (used, _))| *used).map(|(&i, _)| i)?;
        self.files.remove(&oldest).map(|(_, file)| file)
    }
}

/// One open file and the stores over it.
#[derive(Debug)]
struct OpenFile {
    source: Arc<Source>,
    direct: Mutex<Option<Arc<DirectFile>>>,
    stores: Made,
}

/// Descriptors of one open file: its own, and one for unbuffered reads.
const DESCRIPTORS: u64 = 2;
/// More than this many open files gain nothing.
const MOST: u64 = 1024;

impl Files {
    /// Of these parts; empty ones are fine.
    ///
    /// # Errors
    /// [`Error::Argument`] where they have more bytes than 63 bits can count.
    pub fn new(parts: Vec<Part>) -> Result<Self> {
        let mut end = 0_u64;
        let mut ends = Vec::with_capacity(parts.len());
        for part in &parts {
            end = part
                .bytes
                .end
                .checked_sub(part.bytes.start)
                .and_then(|len| end.checked_add(len))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| {
                    Error::argument("the files together have more bytes than 63 bits can count", "")
                })?;
            ends.push(end);
        }
        // Half of what the process may open is for others.
        let most = sys::descriptor_limit() / 2 / DESCRIPTORS;
        let most = usize::try_from(most.clamp(1, MOST)).unwrap_or(1);
        Ok(Self { parts, ends, most, open: Mutex::default() })
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
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether the stream has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many files each of so many threads may hold open at once.
    pub(super) fn at_once(&self, threads: usize) -> usize {
        (self.most / threads.max(1)).max(1)
    }

    /// The open file at `index`; the one that was not used for longest is closed for it.
    fn file(&self, index: usize) -> Result<Arc<OpenFile>> {
        let known = sys::locked(&self.open, |open| {
            open.clock += 1;
            let (used, file) = open.files.get_mut(&index)?;
            *used = open.clock;
            Some(file.clone())
        });
        if let Some(file) = known {
            return Ok(file);
        }
        let source = self.opened(|| Source::open(&self.parts[index].path))?;
        let meta = source.file().metadata().map_err(|e| Error::io(source.path(), "look at the file", e))?;
        let identity = (meta.dev(), meta.ino());
        let file = Arc::new(OpenFile {
            source: Arc::new(source),
            direct: Mutex::default(),
            stores: Made::default(),
        });
        let (seen, closed) = sys::locked(&self.open, |open| {
            let seen = *open.seen.entry(index).or_insert(identity);
            let closed = if open.files.len() >= self.most { open.oldest() } else { None };
            open.files.insert(index, (open.clock, file.clone()));
            (seen, closed)
        });
        drop(closed); // unmapped and closed outside the lock
        if seen != identity {
            sys::locked(&self.open, |open| open.files.remove(&index));
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

    /// The file at `index`, for unbuffered reads.
    pub(super) fn direct(&self, index: usize) -> Result<Arc<DirectFile>> {
        let file = self.file(index)?;
        if let Some(direct) = sys::locked(&file.direct, |direct| direct.clone()) {
            return Ok(direct);
        }
        let direct = Arc::new(self.opened(|| DirectFile::new(file.source.clone()))?);
        Ok(sys::locked(&file.direct, |known| known.get_or_insert(direct).clone()))
    }

    /// What `open` opens. Where others left the process no descriptor for it, files that were not used for
    /// longest are closed until there is one.
    pub(super) fn opened<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match open() {
                Err(e) if e.is_for_want_of_descriptors() => {
                    if sys::locked(&self.open, Open::oldest).is_none() {
                        return Err(e);
                    }
                }
                done => return done,
            }
        }
    }

    /// The file that holds byte `at` of the stream.
    fn holder(&self, at: u64) -> usize {
        self.ends.partition_point(|&end| end <= at)
    }

    /// Where the part at `index` begins in the stream.
    fn start(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Reads of the stream as reads of the files, in their order.
    pub(super) fn split<'a>(&self, reads: &'a mut [Read<'_>]) -> Result<Vec<(usize, Vec<Read<'a>>)>> {
        if let Some(read) = reads.iter().find(|read| read.end() > self.len() && !read.into.is_empty()) {
            let (path, found) = (self.parts.last().map(|part| part.path.clone()), self.len());
            let path = path.unwrap_or_default();
            return Err(Error::Truncated { path, offset: read.offset, end: read.end(), found });
        }
        if !reads.is_sorted_by_key(|read| read.offset) {
            reads.sort_unstable_by_key(|read| read.offset);
        }
        let mut groups: Vec<(usize, Vec<Read<'a>>)> = Vec::new();
        for read in reads {
            let (mut at, mut into) = (read.offset, &mut *read.into);
            while !into.is_empty() {
                let index = self.holder(at);
                let left = usize::try_from(self.ends[index] - at).unwrap_or(usize::MAX);
                let (mine, rest) = into.split_at_mut(left.min(into.len()));
                let offset = self.parts[index].bytes.start + (at - self.start(index));
                (at, into) = (at + mine.len() as u64, rest);
                let piece = Read { offset, into: mine };
                // A read that crosses into the next file may be followed by one that does not.
                match groups.iter_mut().rev().take(2).find(|(i, _)| *i == index) {
                    Some((_, reads)) => reads.push(piece),
                    None => groups.push((index, vec![piece])),
                }
            }
        }
        Ok(groups)
    }

    /// The byte ranges of the files under some ranges of the stream.
    fn split_ranges(&self, ranges: &[Range<u64>]) -> Vec<(usize, Vec<Range<u64>>)> {
        let mut groups: Vec<(usize, Vec<Range<u64>>)> = Vec::new();
        for range in ranges {
            let mut at = range.start;
            while at < range.end.min(self.len()) {
                let index = self.holder(at);
                let end = range.end.min(self.ends[index]);
                let shift = |at: u64| self.parts[index].bytes.start + (at - self.start(index));
                if groups.last().is_none_or(|(i, _)| *i != index) {
                    groups.push((index, Vec::new()));
                }
                if let Some((_, ranges)) = groups.last_mut() {
                    ranges.push(shift(at)..shift(end));
                }
                at = end;
            }
        }
        groups
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
            let failed = |e| Error::io(file.source.path(), "ask for what is in the page cache", e);
            cached += sys::cached_estimate(&*file.source, file.source.len()).map_err(failed)?;
            bytes += file.source.len();
        }
        let share = cached as f64 / bytes.max(1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a length
        Ok((share * self.len() as f64) as u64)
    }

    /// The open file at `index`, for those who want to ask the kernel about it.
    ///
    /// # Errors
    /// What the system says, such as that it is not there any more.
    pub fn source(&self, index: usize) -> Result<Arc<Source>> {
        Ok(self.file(index)?.source.clone())
    }

    /// The first file, for messages.
    pub fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |part| &part.path)
    }
}

/// A store over many files by a way of access other than `direct`: see
/// [`DirectStore::many`](super::DirectStore::many) for that.
#[derive(Debug)]
pub struct FilesStore {
    files: Arc<Files>,
    access: Access,
    cache: Cache,
    budget: Budget,
    model: Arc<Model>,
    deep: Arc<Deep>,
}

impl FilesStore {
    /// Over these files.
    ///
    /// # Errors
    /// [`Error::Budget`] where mapped access has no room for a window.
    pub fn new(files: Arc<Files>, access: Access, cache: Cache, budget: &Budget) -> Result<Self> {
        if matches!(access, Access::Remap | Access::Advise) {
            window_for(budget.limit())?;
        }
        let warm = files.cached_estimate().is_ok_and(|cached| cached >= files.len() / 2);
        Ok(Self {
            files,
            access,
            cache,
            budget: budget.clone(),
            model: Arc::new(ReadStore::model(warm)),
            deep: Arc::default(),
        })
    }

    /// The store over one file.
    fn store(&self, index: usize) -> Result<Arc<dyn Store>> {
        let file = self.files.file(index)?;
        let (source, limit) = (&file.source, self.budget.limit());
        file.stores.get(self.access, self.cache, || {
            Ok(match self.access {
                Access::Map => Arc::new(MapStore::new(source)?),
                Access::Remap => Arc::new(RemapStore::new(source.clone(), window_for(limit)?, self.cache)),
                Access::Advise => Arc::new(AdviseStore::new(source, window_for(limit)?, self.cache)?),
                Access::Read | Access::Direct | Access::Auto => Arc::new(ReadStore::part(
                    source.clone(),
                    self.cache,
                    self.model.clone(),
                    self.deep.clone(),
                )),
            })
        })
    }

    /// Whether reads of several files wait for a disk, and could do so together.
    fn is_deep(&self, groups: &[(usize, Vec<Read<'_>>)], hints: Hints) -> bool {
        groups.len() > 1
            && groups.iter().flat_map(|(_, reads)| reads).all(|read| read.into.len() < LONG)
            && hints.gap == Gap::Lost
            && self.access == Access::Read
            && self.cache == Cache::Keep
            && self.model.cost().waits
    }

    /// Reads of so many files at once that they can be open together. `false` where that cannot be: they may have been
    /// read in part.
    fn read_deep(&self, groups: &mut [(usize, Vec<Read<'_>>)]) -> Result<bool> {
        for group in groups.chunks_mut(self.files.at_once(self.threads(usize::MAX))) {
            let open: Result<Vec<_>> = group.iter().map(|(index, _)| self.files.source(*index)).collect();
            let open = match open {
                Err(e) if e.is_for_want_of_descriptors() => return Ok(false), // one by one, then
                open => open?,
            };
            let pieces = group.iter_mut().zip(&open).flat_map(|((_, reads), source)| {
                reads.iter_mut().map(|read| Piece::buffered(source, read.again()))
            });
            if !self.deep.read(pieces.collect(), &self.model)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Store for FilesStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.read_hinted(reads, Hints::default())
    }

    fn read_hinted(&self, reads: &mut [Read<'_>], hints: Hints) -> Result<()> {
        let mut groups = self.files.split(reads)?;
        if self.is_deep(&groups, hints) && self.read_deep(&mut groups)? {
            return Ok(());
        }
        for (index, mut reads) in groups {
            self.store(index)?.read_hinted(&mut reads, hints)?;
        }
        Ok(())
    }

    fn prepare(&self, coming: &[Range<u64>]) {
        let asks = self.access == Access::Read && self.cache == Cache::Keep && self.model.cost().waits;
        let short = |bytes: &Range<u64>| bytes.end - bytes.start < LONG as u64;
        if !asks || self.deep.works() && coming.iter().all(short) {
            return; // they would be opened for nothing
        }
        for (index, ranges) in self.files.split_ranges(coming) {
            // A file that cannot be opened will say so when it is read.
            if let Ok(store) = self.store(index) {
                store.prepare(&ranges);
            }
        }
    }

    fn cost(&self) -> Cost {
        match self.access {
            Access::Map | Access::Remap | Access::Advise => super::map::MAPPED,
            Access::Read | Access::Direct | Access::Auto => self.model.cost(),
        }
    }

    fn threads(&self, requests: usize) -> usize {
        match self.access {
            Access::Map | Access::Remap | Access::Advise => sys::cores().min(2),
            Access::Read | Access::Direct | Access::Auto => {
                super::read::threads(requests, self.model.cost().waits, self.cache, &self.deep)
            }
        }
    }

    fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        self.model.learn(requests, bytes, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_of_the_stream_are_reads_of_the_files(
            sizes in prop::collection::vec((0usize..5, 0usize..40, 0usize..5), 1..12),
            reads in prop::collection::vec((0usize..400, 0usize..60), 0..20),
            access in prop::sample::select(vec![Access::Map, Access::Remap, Access::Advise, Access::Read]),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut stream = Vec::new();
            let mut parts = Vec::new();
            for (i, &(head, len, tail)) in sizes.iter().enumerate() {
                let path = folder.path().join(i.to_string());
                let bytes: Vec<u8> =
                    (0..head + len + tail).map(|j| u8::try_from((i * 41 + j * 7) % 251).unwrap()).collect();
                std::fs::write(&path, &bytes).unwrap();
                stream.extend_from_slice(&bytes[head..head + len]);
                parts.push(Part { path, bytes: head as u64..(head + len) as u64 });
            }
            let files = Arc::new(Files { most: 2, ..Files::new(parts).unwrap() });
            prop_assert_eq!(files.len(), stream.len() as u64);
            let budget = Budget::new(64 << 20).unwrap();
            let cold = FilesStore::new(files.clone(), Access::Read, Cache::Keep, &budget).unwrap();
            let mut stores: Vec<Arc<dyn Store>> = vec![
                Arc::new(FilesStore { model: Arc::new(ReadStore::model(false)), ..cold }),
                Arc::new(FilesStore::new(files.clone(), access, Cache::Keep, &budget).unwrap()),
            ];
            // Some filesystems cannot, and emulated kernels: the conformance suite says so there.
            match crate::store::DirectStore::many(files.clone(), &budget, crate::store::Engine::available()) {
                Err(Error::Unsupported { .. }) => {}
                store => stores.push(Arc::new(store.unwrap())),
            }
            let inside: Vec<(usize, usize)> = reads.iter().map(|&(at, len)| {
                let at = at.min(stream.len());
                (at, len.min(stream.len() - at))
            }).collect();
            for store in stores {
                let mut out: Vec<Vec<u8>> = inside.iter().map(|&(_, len)| vec![0; len]).collect();
                let mut wanted: Vec<Read<'_>> = inside.iter().zip(&mut out)
                    .map(|(&(at, _), into)| Read { offset: at as u64, into }).collect();
                store.read_many(&mut wanted).unwrap();
                for (&(at, len), out) in inside.iter().zip(&out) {
                    prop_assert_eq!(&out[..], &stream[at..at + len]);
                }
                prop_assert!(files.open.lock().unwrap().files.len() <= 2);
            }
            // One byte past the end is an error that names a file.
            let mut one = [0];
            let past = Read { offset: stream.len() as u64, into: &mut one };
            let store = FilesStore::new(files.clone(), Access::Read, Cache::Keep, &budget).unwrap();
            let is_cut = matches!(store.read_many(&mut [past]), Err(Error::Truncated { .. }));
            prop_assert!(is_cut);
        }
    }
}
