//! Folders that `lowtide prepare` has made: which files a split is, and what the manifest says of them.

use super::{TokenWish, names};
use crate::door::SPLIT;
use crate::error::{Error, Result};
use crate::format::manifest::{self, Manifest};
use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A manifest, and which of its splits is meant.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The folder that it is of.
    pub folder: PathBuf,
    /// What it says.
    pub manifest: Manifest,
    /// The split that was opened; `None` for files of several.
    pub split: Option<String>,
}

impl Prepared {
    /// What is known of `names`: a folder with a manifest means the files of a split, `train` where none is named,
    /// which take its place; its files bring what the manifest says. Anything else is left as it is.
    ///
    /// # Errors
    /// [`Error::Argument`] for a split that is not there, [`Error::Format`] for a folder whose manifest is damaged.
    pub fn find(names: &mut Vec<PathBuf>, split: Option<&str>) -> Result<Option<Self>> {
        if let [folder] = &**names
            && folder.join(manifest::NAME).is_file()
        {
            let folder = folder.clone();
            let manifest = load(&folder)?;
            let split = manifest.split(split)?;
            *names = split.shards.iter().map(|shard| folder.join(&shard.file.file)).collect();
            let split = Some(split.name.clone());
            return Ok(Some(Self { folder, manifest, split }));
        }
        let found = of_files(names);
        match split {
            Some(name) if found.as_ref().is_none_or(|found| found.split.as_deref() != Some(name)) => {
                Err(Error::argument(
                    SPLIT.is(name.to_owned()) + " is for a folder that lowtide prepare has made",
                    "name the folder alone",
                ))
            }
            _ => Ok(found),
        }
    }

    /// The documents of the split, as they were counted when it was made.
    pub fn documents(&self) -> Option<u64> {
        let split = self.manifest.split(Some(self.split.as_deref()?)).ok()?;
        Some(split.documents)
    }

    /// The tokens of the split likewise.
    pub fn tokens(&self) -> Option<u64> {
        let split = self.manifest.split(Some(self.split.as_deref()?)).ok()?;
        Some(split.tokens)
    }
}

/// The manifest that all of these files are of, if they are of one. A damaged one says nothing: the files were named
/// by themselves.
fn of_files(paths: &[PathBuf]) -> Option<Prepared> {
    let folder = paths.first()?.parent()?;
    let manifest = load(folder).ok()?;
    // Globs and Megatron's prefixes mean files too.
    let meant = names::expand(paths, &TokenWish::default()).ok()?;
    let paths: Vec<PathBuf> = meant.into_iter().flat_map(|one| one.files).map(|file| file.path).collect();
    let files: HashMap<&str, &str> = manifest
        .splits
        .iter()
        .flat_map(|split| split.shards.iter().map(|shard| (&*shard.file.file, &*split.name)))
        .collect();
    let split = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        files.get(name).copied().filter(|_| path.parent() == Some(folder))
    };
    let splits = paths.iter().map(split).collect::<Option<Vec<_>>>()?;
    let same = splits.windows(2).all(|pair| pair[0] == pair[1]);
    let split = splits.first().filter(|_| same).map(|&name| name.to_owned());
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
