//! How bytes come in.
//!
//! A [`Store`] fulfils many reads at once into buffers that it does not own. That is all: which rows,
//! in which order and merged how is decided to the left of it ([`crate::plan`]), and what the bytes
//! mean is decided in [`crate::format`]. Every store passes the one suite in [`conformance`], and a
//! store of your own can run it too.
//!
//! | store | bytes come by | mapped pages | a file cut under us |
//! |---|---|---|---|
//! | [`MapStore`] | one map, held | all that was touched | an error, by the handler in [`sigbus`] |
//! | [`RemapStore`] | a new map for every window | one window | the same |
//! | [`AdviseStore`] | one map, dropped behind the reader | one window | the same |
//! | [`ReadStore`] | positioned reads | none | an error: the read comes back short |
//! | [`DirectStore`] | unbuffered reads, many in flight | none | the same |
//!
//! [`FilesStore`] makes one store of many files, end to end.

pub mod conformance;
mod deep;
mod direct;
mod files;
mod map;
mod model;
mod read;
pub mod sigbus;
mod source;
mod uring;
mod window;

pub use deep::Engine;
pub use direct::DirectStore;
pub use files::{Files, FilesStore, Part};
pub use map::MapStore;
pub use model::Model;
pub use read::ReadStore;
pub use source::Source;
pub use window::{AdviseStore, RemapStore, WINDOWS, window_for};

use crate::door::ACCESS;
use crate::error::{Error, Result};
use crate::sys;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One read: these bytes of the file, into this buffer.
#[derive(Debug)]
pub struct Read<'a> {
    /// The first byte.
    pub offset: u64,
    /// Where the bytes go; its length is the read's length.
    pub into: &'a mut [u8],
}

impl Read<'_> {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.into.len() as u64)
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

/// Longer reads than this are work for a processor, too, and not only for a disk.
pub(crate) const LONG: usize = 64 << 10;

/// What a read costs in a store, in nanoseconds: the plan merges neighbours where that is cheaper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Of one more request, whatever its size.
    pub request: f64,
    /// Of one more byte in a request.
    pub byte: f64,
    /// Whether requests wait for a disk now.
    pub waits: bool,
}

/// A way for bytes to come in.
pub trait Store: Send + Sync + fmt::Debug {
    /// Fulfils every read, or fails; after a failure the buffers' contents are unspecified.
    ///
    /// Reads may come in any order, overlap in the file, or be empty; sorted by offset they cost least.
    ///
    /// # Errors
    /// [`Error::Truncated`] for a read past the end of the file as it is now.
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()>;

    /// The same, with more said about the reads.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn read_hinted(&self, reads: &mut [Read<'_>], _hints: Hints) -> Result<()> {
        self.read_many(reads)
    }

    /// Told which bytes will be read next, while others are being read: the time to ask a disk for them.
    fn prepare(&self, _coming: &[Range<u64>]) {}

    /// The bytes to ask for in place of `bytes`, never past the end of the file: a disk reads whole sectors, and
    /// cutting them costs a copy.
    fn whole(&self, bytes: Range<u64>) -> Range<u64> {
        bytes
    }

    /// What one more request and one more byte cost here, with as many threads as [`threads`](Self::threads).
    fn cost(&self) -> Cost;

    /// How many threads may call `read_many` at once to good effect, for so many requests in all.
    fn threads(&self, requests: usize) -> usize;

    /// Told after each piece of work how many requests and bytes it was and how long it took, so that the
    /// next answer of [`cost`](Self::cost) can be better.
    fn learn(&self, _requests: usize, _bytes: usize, _took: Duration) {}
}

/// What the bytes between two reads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// Read for nothing.
    #[default]
    Lost,
    /// Wanted soon, and kept in the page cache until then: reading them costs nothing that would not be due later, and
    /// a stream through the file serves whoever comes after better than reads by themselves.
    Wanted,
}

/// What is known of some reads beyond themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// What lies between them.
    pub gap: Gap,
    /// Nobody looks at what was read for a while: copies may go around the processor's caches.
    pub far: bool,
}

/// What happens to pages of the file that we bring into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// They stay, as the kernel likes.
    Keep,
    /// They go; what was there before us stays.
    Drop,
}

/// A store, and what it was made for.
type For = (Access, Cache, Arc<dyn Store>);

/// The stores over one thing, each made on first use.
#[derive(Debug, Default)]
pub(crate) struct Made(Mutex<Vec<For>>);

impl Made {
    /// The store for a way of access; made by `make` where there is none yet.
    pub(crate) fn get(
        &self,
        access: Access,
        cache: Cache,
        make: impl FnOnce() -> Result<Arc<dyn Store>>,
    ) -> Result<Arc<dyn Store>> {
        let known = |stores: &mut Vec<For>| {
            stores.iter().find(|(a, c, _)| (*a, *c) == (access, cache)).map(|(.., store)| store.clone())
        };
        if let Some(store) = sys::locked(&self.0, known) {
            return Ok(store);
        }
        let store = make()?;
        // Two threads may have made one at the same time: the first stays.
        Ok(sys::locked(&self.0, |stores| {
            known(stores).unwrap_or_else(|| {
                stores.push((access, cache, store.clone()));
                store
            })
        }))
    }
}

/// The ways of access, as users name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// One memory map, held: what `np.memmap` does, and what grows.
    Map,
    /// A new map for every window of the file it walks: nanoGPT's fix.
    Remap,
    /// One map, its pages dropped behind the reader: the other well-known fix.
    Advise,
    /// Positioned reads: no map at all.
    Read,
    /// Unbuffered reads, many in flight, the page cache left alone.
    Direct,
    /// Chosen for each iteration, with a reason.
    #[default]
    Auto,
}

impl Access {
    /// Every way that reads by itself, that is all but `Auto`.
    pub const MANUAL: [Self; 5] = [Self::Map, Self::Remap, Self::Advise, Self::Read, Self::Direct];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Remap => "remap",
            Self::Advise => "advise",
            Self::Read => "read",
            Self::Direct => "direct",
            Self::Auto => "auto",
        }
    }

    /// Whether it looks at the file through a memory map, and so can be hit by SIGBUS.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Map | Self::Remap | Self::Advise)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Access {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::MANUAL.into_iter().chain([Self::Auto]).find(|a| a.name() == word).ok_or_else(|| {
            Error::argument(
                ACCESS.is(word.to_owned()) + " is not a way of access",
                "one of \"auto\", \"map\", \"remap\", \"advise\", \"read\", \"direct\"",
            )
        })
    }
}
