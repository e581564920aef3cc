//! The opened bytes behind an array or a stream of tokens, and the ways of reading them.
//!
//! One file, or the data of many end to end; how the caller wants them read, and the budget. Several arrays
//! can be views of the same bytes. Closing it closes all of them.

use crate::budget::Budget;
use crate::choose::{CacheWish, Choice};
use crate::door::{ACCESS, CACHE};
use crate::error::{Error, Result};
use crate::format::Dtype;
use crate::plan::Interrupt;
use crate::store::{
    Access, AdviseStore, Cache, DirectStore, Engine, Files, FilesStore, Made, MapStore, ReadStore,
    RemapStore, Source, Store, window_for,
};
use crate::{meter, sys};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// In one file, which stays open.
    File(Arc<Source>),
    /// In many, opened as they are needed.
    Files(Arc<Files>),
}

impl Origin {
    /// How many bytes there are, headers included where it is one file.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(source) => source.len(),
            Self::Files(files) => files.len(),
        }
    }

    /// About how many of them are in the page cache, where that can be known.
    pub(crate) fn cached(&self) -> Option<u64> {
        match self {
            Self::File(source) => sys::cached_estimate(&**source, source.len()).ok(),
            Self::Files(files) => files.cached_estimate().ok(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::File(source) => source.path(),
            Self::Files(files) => files.path(),
        }
    }

    /// The element type, the sizes in order, and the first and last 4 KiB of at most [`PRINTED`] files.
    fn fingerprint(&self, dtype: Dtype) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(dtype.numpy_str().as_bytes());
        let print = |hasher: &mut blake3::Hasher, source: &Source| {
            let part = usize::try_from(source.len()).unwrap_or(usize::MAX).min(4096);
            let mut bytes = vec![0; part];
            [0, source.len() - part as u64].into_iter().try_for_each(|offset| {
                source.read_exact(offset, &mut bytes)?;
                hasher.update(&bytes);
                Ok(())
            })
        };
        match self {
            Self::File(source) => {
                hasher.update(&source.len().to_le_bytes());
                print(&mut hasher, source)?;
            }
            Self::Files(files) => {
                for part in files.parts() {
                    hasher.update(&(part.bytes.end - part.bytes.start).to_le_bytes());
                }
                // Evenly over all of them, the first and the last included.
                let last = files.count().saturating_sub(1);
                let mut chosen: Vec<usize> = (0..PRINTED).map(|i| i * last / (PRINTED - 1)).collect();
                chosen.dedup();
                chosen.truncate(files.count());
                for index in chosen {
                    print(&mut hasher, &*files.source(index)?)?;
                }
            }
        }
        Ok(hasher.finalize().to_hex()[..32].to_owned())
    }
}

/// How many files are looked into for a fingerprint.
const PRINTED: usize = 16;

/// Opened bytes.
pub(crate) struct Data {
    path: PathBuf,
    access: Access,
    cache: CacheWish,
    budget: Budget,
    opened: Mutex<Option<Arc<Opened>>>,
    fingerprint: OnceLock<String>,
}

/// What `close` lets go.
#[derive(Debug)]
struct Opened {
    origin: Origin,
    stores: Made,
    /// The one for rows that somebody asks for.
    random: Mutex<Option<Arc<dyn Store>>>,
}

/// How the caller wants bytes to be read, whatever they mean: what all options have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) access: Access,
    pub(crate) cache: CacheWish,
    pub(crate) budget: Option<Budget>,
}

impl Wish {
    /// That the way of access can do what is wished of the page cache: before any file is touched.
    pub(crate) fn check(&self) -> Result<()> {
        if self.access == Access::Map && self.cache == CacheWish::Drop {
            return Err(Error::argument(
                ACCESS.is("map")
                    + " holds its pages, and what is mapped cannot be dropped from the page cache",
                ACCESS.is("advise") + " or \"remap\" with " + CACHE.is("drop") + " let go of both",
            ));
        }
        Ok(())
    }

    /// The bytes, to be read like this. Mapped access is refused where the budget has no room for a window:
    /// now, not at the first row.
    pub(crate) fn open(self, origin: Origin) -> Result<Arc<Data>> {
        let Self { access, cache, budget } = self;
        let budget = budget.unwrap_or_else(|| Budget::default_for(meter::room().bytes));
        if matches!(access, Access::Remap | Access::Advise) {
            window_for(budget.limit())?;
        }
        let path = origin.path().to_owned();
        let opened = Opened { origin, stores: Made::default(), random: Mutex::default() };
        let opened = Mutex::new(Some(Arc::new(opened)));
        Ok(Arc::new(Data { path, access, cache, budget, opened, fingerprint: OnceLock::new() }))
    }
}

/// That a state was taken from this data, by their fingerprints.
pub(crate) fn same_data(own: &str, of_state: &str) -> Result<()> {
    if own == of_state {
        return Ok(());
    }
    Err(Error::argument(
        format!("the state is of other data: its fingerprint is {of_state}, this data's is {own}"),
        "open the files that the state was taken from, in the same order",
    ))
}

impl Data {
    /// The file, or the first of many.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn cache(&self) -> CacheWish {
        self.cache
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Where the bytes are.
    pub(crate) fn origin(&self) -> Result<Origin> {
        Ok(self.opened()?.origin.clone())
    }

    /// See [`Array::close`](crate::Array::close).
    pub(crate) fn close(&self) {
        let Some(opened) = sys::locked(&self.opened, Option::take) else { return };
        // A thread that reads ahead holds on to the file until it notices: a moment.
        for _ in 0..2_000 {
            if Arc::strong_count(&opened) == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.opened().is_err()
    }

    /// `interrupt`, and an error once it was closed.
    pub(crate) fn stop(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.opened()?;
        interrupt()
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let opened = sys::locked(&self.opened, |opened| opened.clone());
        opened.ok_or_else(|| Error::Closed { path: self.path.clone() })
    }

    /// The store for a manual way of access, made on first use.
    pub(crate) fn store(&self, access: Access, cache: Cache) -> Result<Arc<dyn Store>> {
        let opened = self.opened()?;
        opened.stores.get(access, cache, || self.make(&opened.origin, access, cache))
    }

    fn make(&self, origin: &Origin, access: Access, cache: Cache) -> Result<Arc<dyn Store>> {
        let (budget, engine) = (&self.budget, Engine::available);
        let source = match origin {
            Origin::File(source) => source,
            Origin::Files(files) if access == Access::Direct => {
                return Ok(Arc::new(DirectStore::many(files.clone(), budget, engine())?));
            }
            Origin::Files(files) => {
                return Ok(Arc::new(FilesStore::new(files.clone(), access, cache, budget)?));
            }
        };
        let window = || window_for(budget.limit());
        Ok(match access {
            Access::Map => Arc::new(MapStore::new(source)?),
            Access::Remap => Arc::new(RemapStore::new(source.clone(), window()?, cache)),
            Access::Advise => Arc::new(AdviseStore::new(source, window()?, cache)?),
            Access::Direct => Arc::new(DirectStore::new(source.clone(), budget, engine())?),
            Access::Read | Access::Auto => Arc::new(ReadStore::new(source.clone(), cache)),
        })
    }

    /// The store for rows that somebody asks for, by a choice that is made once.
    pub(crate) fn random_store(&self, choose: impl FnOnce() -> Result<Choice>) -> Result<Arc<dyn Store>> {
        let opened = self.opened()?;
        if let Some(store) = sys::locked(&opened.random, |known| known.clone()) {
            return Ok(store);
        }
        let choice = choose()?;
        let store = self.store(choice.access, choice.cache)?;
        sys::locked(&opened.random, |known| *known = Some(store.clone()));
        Ok(store)
    }

    /// What these bytes are, in a few hexadecimal digits.
    pub(crate) fn fingerprint(&self, dtype: Dtype) -> Result<String> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        let digest = self.opened()?.origin.fingerprint(dtype)?;
        Ok(self.fingerprint.get_or_init(|| digest).clone())
    }
}
