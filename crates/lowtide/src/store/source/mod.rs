//! Which bytes there are: one file, many end to end, or objects in a store.

mod file;
mod files;
mod joined;
mod objects;
mod one;
mod url;

pub(in crate::store) use file::DirectFile;
pub use file::OneFile;
pub use files::{Files, Part};
pub(crate) use objects::Check;
#[cfg(feature = "remote")]
pub(in crate::store) use objects::Wanted;
pub use objects::{ObjectPart, Objects};
pub(crate) use one::One;
pub use url::is_url;
#[cfg(feature = "remote")]
pub(crate) use url::scheme;
pub(crate) use url::{is_web, unknown, unknown_scheme};

use crate::error::{Error, Result};
use crate::store::LocalCache;
use crate::sys;
use std::fs::Metadata;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Where bytes are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In one file, which stays open.
    File(Arc<OneFile>),
    /// In many, opened as they are needed.
    Files(Arc<Files>),
    /// In an object store, in one object or many.
    Objects(Arc<Objects>),
}

impl Source {
    /// How many bytes there are, headers included where it is one file.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Files(files) => files.len(),
            Self::Objects(objects) => objects.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where one of them is in its own file or object.
    pub(crate) fn place(&self, at: u64) -> u64 {
        match self {
            Self::Files(files) => files.joined.place(at),
            Self::File(_) | Self::Objects(_) => at,
        }
    }

    /// About how many of them are in the page cache, where that can be known.
    pub fn cached(&self) -> Option<u64> {
        match self {
            Self::File(file) => sys::cached_estimate(&**file, file.len()).ok(),
            Self::Files(files) => files.cached_estimate().ok(),
            Self::Objects(_) => None,
        }
    }

    /// The file, or the first of many.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Files(files) => files.path(),
            Self::Objects(objects) => objects.path(),
        }
    }

    /// How many bytes each file or object adds to them, in order.
    pub(crate) fn lens(&self) -> Vec<u64> {
        let len = |bytes: &Range<u64>| bytes.end - bytes.start;
        match self {
            Self::File(file) => vec![file.len()],
            Self::Files(files) => files.parts().iter().map(|part| len(&part.bytes)).collect(),
            Self::Objects(objects) => objects.parts().iter().map(|part| len(&part.bytes)).collect(),
        }
    }

    /// One of those files or objects.
    pub(crate) fn one(&self, index: usize) -> Result<One> {
        Ok(match self {
            Self::File(file) => One::File(file.clone()),
            Self::Files(files) => One::File(files.open(index)?),
            Self::Objects(objects) => One::Object(objects.parts()[index].object.clone()),
        })
    }

    /// The open file that holds the first byte, for those who want to ask the kernel about it.
    ///
    /// # Errors
    /// What the system says, such as that it is not there any more.
    pub fn first(&self) -> Result<Arc<OneFile>> {
        match self {
            Self::File(file) => Ok(file.clone()),
            Self::Files(files) => files.open(0),
            Self::Objects(_) => Err(self.no_file()),
        }
    }

    /// The cache on a local disk that they come through.
    pub fn local_cache(&self) -> Option<&Arc<LocalCache>> {
        match self {
            Self::Objects(objects) => objects.cache(),
            _ => None,
        }
    }

    /// Whether they are in an object store.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Objects(_))
    }

    pub(in crate::store) fn no_file(&self) -> Error {
        Error::unsupported(
            format!("{}: this is in an object store, and no file of this machine", self.path().display()),
            "a local copy can be asked for",
        )
    }

    /// Every file and every object that is read here, as it is now.
    ///
    /// # Errors
    /// What the system says, such as that one is not there any more.
    pub(crate) fn each_original(&self, f: &mut dyn FnMut(&Path, Original)) -> Result<()> {
        let mut file = |path: &Path, meta: std::io::Result<Metadata>| {
            f(path, Original::File(meta.map_err(|error| Error::io(path, "look at the file", error))?));
            Ok(())
        };
        match self {
            Self::File(one) => file(one.path(), one.file().metadata()),
            Self::Files(files) => {
                files.parts().iter().try_for_each(|part| file(&part.path, std::fs::metadata(&part.path)))
            }
            Self::Objects(objects) => {
                let all = objects.parts().iter().map(|part| &part.object);
                all.for_each(|object| f(object.path(), Original::Object(object.identity())));
                Ok(())
            }
        }
    }
}

/// What tells a version of a file or of an object from all others.
#[derive(Debug)]
pub(crate) enum Original {
    /// What the system says of it.
    File(Metadata),
    /// Its address, its size, and what the store marks it with.
    Object(String),
}
