//! Which bytes there are: one file, or many end to end.

mod file;
mod files;

pub use file::OneFile;
pub use files::{Files, Part};

use crate::error::{Error, Result};
use crate::sys;
use std::fs::Metadata;
use std::path::Path;
use std::sync::Arc;

/// Where bytes are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In one file, which stays open.
    File(Arc<OneFile>),
    /// In many, opened as they are needed.
    Files(Arc<Files>),
}

impl Source {
    /// How many bytes there are, headers included where it is one file.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Files(files) => files.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many of them are in the page cache, where that can be known.
    pub fn cached(&self) -> Option<u64> {
        match self {
            Self::File(file) => sys::cached_estimate(&**file, file.len()).ok(),
            Self::Files(files) => files.cached_estimate().ok(),
        }
    }

    /// The file, or the first of many.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Files(files) => files.path(),
        }
    }

    /// The open file that holds the first byte, for those who want to ask the kernel about it.
    ///
    /// # Errors
    /// What the system says, such as that it is not there any more.
    pub fn first(&self) -> Result<Arc<OneFile>> {
        match self {
            Self::File(file) => Ok(file.clone()),
            Self::Files(files) => files.open(0),
        }
    }

    /// Every file, as it is now.
    ///
    /// # Errors
    /// What the system says, such as that one is not there any more.
    pub(crate) fn each_file(&self, f: &mut dyn FnMut(&Path, &Metadata)) -> Result<()> {
        let mut tell = |path: &Path, meta: std::io::Result<Metadata>| {
            f(path, &meta.map_err(|error| Error::io(path, "look at the file", error))?);
            Ok(())
        };
        match self {
            Self::File(file) => tell(file.path(), file.file().metadata()),
            Self::Files(files) => {
                files.parts().iter().try_for_each(|part| tell(&part.path, std::fs::metadata(&part.path)))
            }
        }
    }
}
