//! One opened thing with bytes at offsets, a file or an object: what whoever looks at heads and indexes needs of it.

use super::{OneFile, is_url, unknown};
use crate::error::Result;
use crate::store::{Object, Storage};
use std::path::Path;
use std::sync::Arc;

impl Storage {
    /// The first bytes of a file or an object, `most` of them at most, and how many it has.
    ///
    /// # Errors
    /// As the system has them: no such file, permission denied.
    pub fn head(&self, path: &Path, most: usize) -> Result<(Vec<u8>, u64)> {
        let one = One::open(path, self)?;
        let mut bytes = vec![0; usize::try_from(one.len()).unwrap_or(usize::MAX).min(most)];
        one.read_exact(0, &mut bytes)?;
        Ok((bytes, one.len()))
    }

    /// What tells the object at an address, as it was when it was first looked at, from others in its place.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub fn version(&self, url: &Path) -> Result<String> {
        Ok(self.open(url)?.identity())
    }
}

/// A file or an object.
#[derive(Clone, Debug)]
pub(crate) enum One {
    File(Arc<OneFile>),
    Object(Arc<Object>),
}

impl One {
    /// Opens what a name stands for.
    ///
    /// # Errors
    /// As the system has them: no such file, permission denied.
    pub(crate) fn open(path: &Path, storage: &Storage) -> Result<Self> {
        if is_url(path) {
            return storage.open(path).map(Self::Object);
        }
        // A file may be called like an address.
        let file = OneFile::open(path).map_err(|error| unknown(path).unwrap_or(error))?;
        Ok(Self::File(Arc::new(file)))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Object(object) => object.path(),
        }
    }

    /// Its size when it was opened.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.len(),
        }
    }

    /// Reads exactly these bytes.
    pub(crate) fn read_exact(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        match self {
            Self::File(file) => file.read_exact(offset, into),
            Self::Object(object) => object.read_exact(offset, into),
        }
    }
}
