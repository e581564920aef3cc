//! How bytes come: a file a way, and the one place where a store is made.

mod cached;
mod deep;
mod direct;
mod files;
mod map;
#[cfg(feature = "remote")]
mod range;
#[cfg(not(feature = "remote"))]
#[path = "range_off.rs"]
mod range;
mod read;
mod streams;
mod uring;
mod window;

pub use cached::{Cached, Version};
pub use deep::Engine;
pub(crate) use deep::write as write_deep;
pub use direct::DirectStore;
use range::Looked;
pub use range::RangeStore;
pub use read::ReadStore;
pub use window::{WINDOWS, window_for};

use super::{Cache, OneFile, Source, Store, Way};
use crate::budget::Budget;
use crate::error::{Error, Result};
use files::FilesStore;
use map::MapStore;
use std::sync::Arc;
use window::WindowStore;

/// A way of access over a source.
///
/// # Errors
/// [`Error::Unsupported`](crate::Error::Unsupported) where the filesystem cannot do it,
/// [`Error::Budget`](crate::Error::Budget) where there is no room for a window or for bounce buffers.
pub fn open(source: &Source, way: Way, cache: Cache, budget: &Budget) -> Result<Arc<dyn Store>> {
    match source {
        Source::File(file) => open_file(file, way, cache, budget),
        Source::Objects(objects) => {
            let ranges = Arc::new(RangeStore::new(objects.clone(), budget));
            Ok(match objects.cache() {
                Some(local) => {
                    let versions = objects.versions();
                    let cached = Cached::new(ranges.clone(), local.clone(), versions, cache, budget);
                    Arc::new(Looked { ranges, cached: Arc::new(cached) })
                }
                None => ranges,
            })
        }
        Source::Files(_) if way == Way::Direct => {
            Ok(Arc::new(DirectStore::new(source, budget, Engine::available())?))
        }
        Source::Files(files) => Ok(Arc::new(FilesStore::new(files.clone(), way, cache, budget)?)),
    }
}

/// A way of access over one file.
///
/// # Errors
/// As [`open`].
pub fn open_file(file: &Arc<OneFile>, way: Way, cache: Cache, budget: &Budget) -> Result<Arc<dyn Store>> {
    let window = || window_for(budget.limit());
    Ok(match way {
        Way::Map => Arc::new(MapStore::new(file)?),
        Way::Remap => Arc::new(WindowStore::remap(file, window()?, cache)),
        Way::Advise => Arc::new(WindowStore::advise(file, window()?, cache)?),
        Way::Read => Arc::new(ReadStore::new(file.clone(), cache)),
        Way::Range => {
            return Err(Error::argument(
                format!(
                    "{}: access=\"range\" is for object stores, and this is a file",
                    file.path().display()
                ),
                "access=\"read\", or leave it out",
            ));
        }
        Way::Direct => Arc::new(DirectStore::new(&Source::File(file.clone()), budget, Engine::available())?),
    })
}
