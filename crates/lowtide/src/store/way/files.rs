//! A way of access over many files end to end: reads are handed on to the stores of the files, each made when
//! the file is opened and gone when it is closed. Unbuffered reads have a store of their own
//! ([`DirectStore`](super::DirectStore)), because they are in flight together.

use super::deep::{Deep, Piece};
use super::streams::{STREAMS, Streams};
use super::{ReadStore, map, open_file, read, window, window_for};
use crate::budget::Budget;
use crate::error::Result;
use crate::store::{Cache, Files, How, Manner, Nature, Read, Report, Store, Way};
use crate::sys;
use std::sync::Arc;

/// A store over many files.
#[derive(Debug)]
pub(super) struct FilesStore {
    files: Arc<Files>,
    way: Way,
    cache: Cache,
    budget: Budget,
    deep: Arc<Deep>,
    streams: Arc<Streams>,
    warm: bool,
}

impl FilesStore {
    pub(super) fn new(files: Arc<Files>, way: Way, cache: Cache, budget: &Budget) -> Result<Self> {
        if way.has_windows() {
            window_for(budget.limit())?;
        }
        let warm = files.cached_estimate().is_ok_and(|cached| sys::is_warm(cached, files.len()));
        // Where descriptors are few, they are for files.
        let streams = Arc::new(Streams::new(STREAMS.min(files.most / 8)));
        Ok(Self { files, way, cache, budget: budget.clone(), deep: Arc::default(), streams, warm })
    }

    /// The store over one file.
    fn store(&self, index: usize) -> Result<Arc<dyn Store>> {
        let (kept, way, cache) = (self.files.file(index)?, self.way, self.cache);
        kept.stores.get((way, cache), || match way {
            Way::Read => {
                let (deep, streams) = (self.deep.clone(), self.streams.clone());
                Ok(Arc::new(ReadStore::part(kept.file.clone(), cache, deep, streams)))
            }
            way => open_file(&kept.file, way, cache, &self.budget),
        })
    }

    /// Reads of so many files at once. `None` where that cannot be: they may have been read in part.
    fn read_together(&self, groups: &mut [(usize, Vec<Read<'_>>)], at_once: usize) -> Result<Option<Report>> {
        let mut report = Report::default();
        for group in groups.chunks_mut(at_once) {
            let open: Vec<_> =
                group.iter().map(|(index, _)| self.files.open(*index)).collect::<Result<_>>()?;
            let pieces = group.iter_mut().zip(&open).flat_map(|((_, reads), file)| {
                reads.iter_mut().map(|read| Piece::buffered(file, read.again()))
            });
            let Some(part) = self.deep.read(pieces.collect())? else { return Ok(None) };
            report += part;
        }
        Ok(Some(report))
    }
}

impl Store for FilesStore {
    fn nature(&self) -> Nature {
        match self.way {
            Way::Map => map::nature(),
            Way::Remap | Way::Advise => window::nature(),
            Way::Read | Way::Direct | Way::Range => read::nature(self.warm, self.cache, &self.deep),
        }
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        for (index, bytes) in how.coming.iter().flat_map(|range| self.files.joined.pieces(range.clone())) {
            // A file that cannot be opened will say so when it is read.
            if let Ok(store) = self.store(index) {
                store.read(&mut [], How { coming: &[bytes], ..how })?;
            }
        }
        let mut groups = self.files.split(reads)?;
        let together = how.manner == Manner::Together && self.way == Way::Read && self.cache == Cache::Keep;
        self.files.read_by(self.nature().waiting, |at_once| {
            if together && let Some(report) = self.read_together(&mut groups, at_once)? {
                return Ok(report);
            }
            let mut report = Report::default();
            for (index, reads) in &mut groups {
                report += self.store(*index)?.read(reads, How { coming: &[], ..how })?;
            }
            Ok(report)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::store::{Manner, Part, Source};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_of_the_stream_are_reads_of_the_files(
            sizes in prop::collection::vec((0usize..5, 0usize..40, 0usize..5), 1..12),
            reads in prop::collection::vec((0usize..400, 0usize..60), 0..20),
            way in prop::sample::select(vec![Way::Map, Way::Remap, Way::Advise, Way::Read]),
            manner in prop::sample::select(vec![Manner::OneByOne, Manner::Together, Manner::Stream]),
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
            let mut files = Files::new(parts).unwrap();
            files.most = 2;
            let files = Arc::new(files);
            prop_assert_eq!(files.len(), stream.len() as u64);
            let budget = Budget::new(64 << 20).unwrap();
            let source = Source::Files(files.clone());
            let over = |way| crate::store::open(&source, way, Cache::Keep, &budget);
            let mut stores = vec![over(Way::Read).unwrap(), over(way).unwrap()];
            // Some filesystems cannot, and emulated kernels: the conformance suite says so there.
            match over(Way::Direct) {
                Err(Error::Unsupported { .. }) => {}
                store => stores.push(store.unwrap()),
            }
            let inside: Vec<(usize, usize)> = reads.iter().map(|&(at, len)| {
                let at = at.min(stream.len());
                (at, len.min(stream.len() - at))
            }).collect();
            for store in stores {
                let mut out: Vec<Vec<u8>> = inside.iter().map(|&(_, len)| vec![0; len]).collect();
                let mut wanted: Vec<Read<'_>> = inside.iter().zip(&mut out)
                    .map(|(&(at, _), into)| Read { offset: at as u64, into }).collect();
                store.read(&mut wanted, How { manner, ..How::default() }).unwrap();
                for (&(at, len), out) in inside.iter().zip(&out) {
                    prop_assert_eq!(&out[..], &stream[at..at + len]);
                }
                prop_assert!(files.open_now() <= 2);
            }
            // One byte past the end is an error that names a file.
            let mut one = [0];
            let past = Read { offset: stream.len() as u64, into: &mut one };
            let is_cut =
                matches!(over(Way::Read).unwrap().read(&mut [past], How::default()), Err(Error::Truncated { .. }));
            prop_assert!(is_cut);
        }
    }
}
