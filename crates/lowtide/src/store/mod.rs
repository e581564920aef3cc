//! How bytes come in: *source* × *way*.
//!
//! A [`Source`] is which bytes there are: one file, many end to end, or objects in a store. A [`Way`] is how they come. A
//! [`Store`] is one of each, made by [`open`], and has two methods: it tells its [`Nature`] as data, and it
//! fulfils many reads at once into buffers that it does not own. It decides nothing: which rows, in which
//! order, merged how and by how many threads is decided to the left of it, and what came of it goes back as
//! a [`Report`]. Every way over every source passes the one suite in [`conformance`], and a store of your
//! own can run it too.
//!
//! | way | bytes come by | mapped pages | a file cut under us |
//! |---|---|---|---|
//! | [`Way::Map`] | one map, held | all that was touched | an error, by the handler in [`sigbus`] |
//! | [`Way::Remap`] | a new map for every window | one window | the same |
//! | [`Way::Advise`] | one map, dropped behind the reader | one window | the same |
//! | [`Way::Read`] | positioned reads: see [`Manner`] | none | an error: the read comes back short |
//! | [`Way::Direct`] | unbuffered reads, many in flight | none | the same |
//! | [`Way::Range`] | range requests to an object store, many in flight | none | a replaced object is an error |

mod casting;
pub mod conformance;
pub mod local_cache;
mod made;
#[cfg(feature = "remote")]
mod remote;
#[cfg(not(feature = "remote"))]
#[path = "remote_off.rs"]
mod remote;
mod resident;
pub mod sigbus;
mod source;
mod way;

pub(crate) use casting::{AsType, Casting, Places};
pub use local_cache::LocalCache;
pub(crate) use made::Made;
pub use remote::{Object, Storage};
pub(crate) use remote::{SCRATCH, Upload};
pub(crate) use resident::Resident;
use source::DirectFile;
pub(crate) use source::Original;
pub(crate) use source::{Check, One, is_web, unknown, unknown_scheme};
pub use source::{Files, ObjectPart, Objects, OneFile, Part, Source, is_url};
pub(crate) use way::write_deep;
pub use way::{
    Cached, DirectStore, Engine, RangeStore, ReadStore, Version, WINDOWS, open, open_file, window_for,
};

pub use crate::options::{Access, Cache, Way};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sys;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Of any type, whole elements fit in so many bytes.
const ELEMENTS: usize = 64;

/// One read: these bytes of the file, into this buffer.
#[derive(Debug)]
pub struct Read<'a> {
    /// The first byte.
    pub offset: u64,
    /// Where the bytes go; its length is the read's length.
    pub into: &'a mut [u8],
}

impl<'a> Read<'a> {
    /// The same in pieces of `len` bytes, and a shorter one at the end.
    pub(crate) fn pieces(self, len: usize) -> impl Iterator<Item = Read<'a>> {
        let offsets = (self.offset..).step_by(len);
        self.into.chunks_mut(len).zip(offsets).map(|(into, offset)| Read { offset, into })
    }

    /// The same in pieces of about `len` bytes, which end where a page of memory does, as far as no element is cut in two;
    /// what is left of less than a page goes with the last. Memory that lies in its page as the bytes do in the file's
    /// ([`lead`](crate::budget::pool::lead)) is cut where an unbuffered read needs no copy.
    pub(crate) fn paged(self, len: usize) -> impl Iterator<Item = Read<'a>> {
        let (page, mut rest) = (sys::page(), Some(self));
        std::iter::from_fn(move || {
            let read = rest.take().filter(|read| !read.into.is_empty())?;
            let cut = len.saturating_sub(read.into.as_ptr().addr() % page / ELEMENTS * ELEMENTS);
            if read.into.len() < cut.saturating_add(page) {
                return Some(read);
            }
            let (piece, others) = read.split(cut.max(ELEMENTS));
            rest = Some(others);
            Some(piece)
        })
    }

    /// So many bytes of it, and the others.
    pub(crate) fn split(self, at: usize) -> (Self, Self) {
        let (into, others) = self.into.split_at_mut(at);
        let read = Read { offset: self.offset, into };
        let offset = read.end();
        (read, Read { offset, into: others })
    }

    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.into.len() as u64)
    }

    /// That it asks for bytes past the end, which is at `found`.
    pub(crate) fn cut(&self, path: &Path, found: u64) -> Error {
        Error::Truncated { path: path.to_owned(), offset: self.offset, end: self.end(), found }
    }

    /// The same read, for as long as this one is not used.
    pub(crate) fn again(&mut self) -> Read<'_> {
        Read { offset: self.offset, into: &mut *self.into }
    }

    /// The part that lies in `range`; empty where nothing does.
    pub(crate) fn clip<'b>(&'b mut self, range: &Range<u64>) -> Read<'b> {
        let from = range.start.clamp(self.offset, self.end());
        let to = range.end.clamp(from, self.end());
        // Both are distances inside the buffer.
        let at = |offset: u64| usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
        let (from_at, to_at) = (at(from), at(to));
        Read { offset: from, into: &mut self.into[from_at..to_at] }
    }
}

/// Puts reads in the order of the file, in which most come.
pub(crate) fn sort(reads: &mut [Read<'_>]) {
    if !reads.is_sorted_by_key(|r| r.offset) {
        reads.sort_unstable_by_key(|r| r.offset);
    }
}

/// What a read costs, in nanoseconds: the plan merges neighbours where that is cheaper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Of one more request, whatever its size.
    pub request: f64,
    /// Of one more byte in a request.
    pub byte: f64,
    /// Whether requests wait for a disk now.
    pub waits: bool,
}

/// What a store is like: all that a decision about it needs to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nature {
    /// What to expect before anything was read.
    pub prior: Cost,
    /// Whether costs change with what is in memory, and are to be learned: those of a map do not.
    pub learns: bool,
    /// Offsets and lengths of requests that need no copy are multiples of this.
    pub align: u64,
    /// Aligned requests may reach up to here: the end of the bytes.
    pub end: u64,
    /// How many threads read from memory side by side to good effect.
    pub hands: usize,
    /// The same where a disk has to be waited for.
    pub waiting: usize,
    /// So many requests one thread has in flight by itself: a second one would only have to be woken.
    pub in_flight: usize,
    /// Whether many reads can be in flight together: see [`Manner::Together`].
    pub together: bool,
    /// Whether what is read may stay in the page cache, so that streams and asking ahead of time serve it.
    pub keeps: bool,
    /// Of a store that puts what comes straight into many places: the largest request that it likes. It is told which
    /// reads each request is for ([`How::extents`]), and measures by itself what requests cost.
    pub extent: Option<usize>,
}

impl Nature {
    /// Of a store that makes its reads one after the other, wherever they are, by so many threads to good effect, and
    /// whose costs do not change.
    pub fn plain(prior: Cost, threads: usize) -> Self {
        Self {
            prior,
            learns: false,
            align: 1,
            end: u64::MAX,
            hands: threads,
            waiting: threads,
            in_flight: 0,
            together: false,
            keeps: false,
            extent: None,
        }
    }
}

/// One request to a store: bytes of the file, and which of the sorted reads it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The bytes of the file.
    pub bytes: Range<u64>,
    /// The reads, by their index.
    pub reads: Range<usize>,
}

/// Who is asked whether to go on, while a store waits for long.
#[derive(Clone, Copy, Default)]
pub struct Stop<'a>(pub Option<Interrupt<'a>>);

impl<'a> Stop<'a> {
    /// The question; where nobody has one, the answer is yes.
    pub fn asked(self) -> Interrupt<'a> {
        self.0.unwrap_or(&|| Ok(()))
    }
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(asked)" } else { "Stop" })
    }
}

/// How a store that knows several ways of doing it makes its reads. Others do as they always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// One after the other.
    #[default]
    OneByOne,
    /// The same, many of them, and they are expected in memory: threads side by side have descriptors of their own.
    FromMemory,
    /// All of them in flight: a disk is waited for. Where that cannot be, one after the other.
    Together,
    /// As a stream through the file: what lies between them is wanted too.
    Stream,
}

/// How some reads are to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// In which manner.
    pub manner: Manner,
    /// Nobody looks at what was read for a while: copies may go around the processor's caches.
    pub far: bool,
    /// What will be read next: a disk can be asked for it now, where that helps.
    pub coming: &'a [Range<u64>],
    /// Which requests to make, and for which of the reads, which are sorted then: for stores whose [`Nature::extent`]
    /// says so. Where it is empty, each read is a request.
    pub extents: &'a [Extent],
    /// Asked by who waits for longer than a disk takes.
    pub stop: Stop<'a>,
}

/// What came of some reads, beside their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many of them were looked at for whether they came from memory.
    pub looked: usize,
    /// How many of those had to wait for a disk.
    pub missed: usize,
}

impl Report {
    /// Of reads that come from a disk, whatever memory has: however quickly they come, whoever wants the next ones early has
    /// to ask early.
    pub fn from_disk(reads: usize) -> Self {
        Self { looked: reads, missed: reads }
    }

    /// Of reads whose bytes somebody asked the disk for before: each finds them in memory, sooner or later, and only
    /// their rate tells. Memory gives 4 GB/s and more.
    pub fn by_rate(reads: usize, bytes: u64, took: Duration) -> Self {
        let memory = Duration::from_nanos(bytes / 4 + 5_000 * reads as u64);
        Self { looked: reads, missed: if took > memory { reads } else { 0 } }
    }
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.looked += other.looked;
        self.missed += other.missed;
    }
}

/// All bytes of the objects at these addresses, end to end.
///
/// # Errors
/// As the system has them for files: not found, permission denied, timed out.
pub fn objects(storage: &Storage, urls: &[PathBuf]) -> Result<Arc<Objects>> {
    let part = |url: &PathBuf| storage.open(url).map(ObjectPart::whole);
    Ok(Arc::new(Objects::new(urls.iter().map(part).collect::<Result<_>>()?)?.through(storage.cache())))
}

/// A way for bytes to come in.
pub trait Store: Send + Sync + fmt::Debug {
    /// What it is like, now: what a kernel or a filesystem refuses can change it.
    fn nature(&self) -> Nature;

    /// Fulfils every read, or fails; after a failure the buffers' contents are unspecified.
    ///
    /// Reads may come in any order, overlap in the file, or be empty; sorted by offset they cost least.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a read past the end of the file as it is now.
    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_are_all_of_it_end_where_pages_do_and_cut_no_element(
            bytes in 0_usize..400_000,
            first in 0_usize..10_000,
            offset in 0_u64..10_000,
            len in prop::sample::select(vec![64_usize << 10, 256 << 10]),
        ) {
            let (mut memory, page) = (vec![0_u8; first + bytes], sys::page());
            let (mut at, mut end) = (memory.as_ptr().addr() + first, offset);
            let begins = at;
            let pieces: Vec<_> = Read { offset, into: &mut memory[first..] }.paged(len).collect();
            for (number, piece) in pieces.iter().enumerate() {
                prop_assert_eq!((piece.into.as_ptr().addr(), piece.offset), (at, end));
                (at, end) = (at + piece.into.len(), piece.end());
                if number + 1 < pieces.len() {
                    prop_assert!(piece.into.len().is_multiple_of(ELEMENTS) && piece.into.len() <= len);
                    prop_assert_eq!((at - begins % ELEMENTS) % page, 0);
                } else {
                    prop_assert!(!piece.into.is_empty() && piece.into.len() < len + page);
                }
            }
            prop_assert_eq!(end, offset + bytes as u64);
        }
    }
}
