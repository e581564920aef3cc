//! Folders that `lowtide prepare` has made: which files a split is, and what the manifest says of them.

use super::manifest::{self, Manifest};
use crate::error::{Error, Result};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A manifest, and which of its splits is meant.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The folder that it is of.
    pub folder: PathBuf,
    /// What it says.
    pub manifest: Manifest,
    /// The split that was opened.
    pub split: String,
}

impl Prepared {
    /// What is known of `names`: a folder with a manifest means the files of a split, `train` where none is named,
    /// which take its place; one of its files brings what the manifest says. Anything else is left as it is.
    ///
    /// # Errors
    /// [`Error::Argument`] for a split that is not there, [`Error::Format`] for a folder whose manifest is damaged.
    pub fn find(names: &mut Vec<PathBuf>, split: Option<&str>) -> Result<Option<Self>> {
        let found = match &**names {
            [folder] if folder.join(manifest::NAME).is_file() => {
                let folder = folder.clone();
                let manifest = load(&folder)?;
                let split = manifest.split(split)?;
                *names = split.shards.iter().map(|shard| folder.join(&shard.file.file)).collect();
                let split = split.name.clone();
                return Ok(Some(Self { folder, manifest, split }));
            }
            [first, ..] => of_file(first),
            [] => None,
        };
        match split {
            Some(name) if found.as_ref().is_none_or(|found| found.split != name) => Err(Error::argument(
                format!("split={name:?} is for a folder that lowtide prepare has made"),
                "name the folder",
            )),
            _ => Ok(found),
        }
    }
}

/// The manifest that a file is of, if it is of one. A damaged one says nothing: the file was named by itself.
fn of_file(path: &Path) -> Option<Prepared> {
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    let manifest = load(folder).ok()?;
    let split = manifest.split_of(name)?.name.clone();
    Some(Prepared { folder: folder.to_owned(), manifest, split })
}

/// The manifest of a folder.
///
/// # Errors
/// [`Error::Io`] where there is none, [`Error::Format`] where it is damaged.
pub fn load(folder: &Path) -> Result<Manifest> {
    let path = folder.join(manifest::NAME);
    let wrong = |error| Error::io(&path, "read the manifest", error);
    // A pipe of that name would have us wait for ever.
    if !std::fs::metadata(&path).map_err(wrong)?.is_file() {
        return Err(wrong(std::io::Error::other("it is no file")));
    }
    let file = std::fs::File::open(&path).map_err(wrong)?;
    let mut bytes = Vec::new();
    file.take(manifest::MAX_LEN).read_to_end(&mut bytes).map_err(wrong)?;
    Manifest::parse(&path, &bytes)
}
