//! Folders that `lowtide prepare` has made: which files a split is, and what the manifest says of them.

use super::{TokenFile, TokenWish, names, shelf};
use crate::door::{FORMAT, SPLIT, Words};
use crate::error::{Error, Result};
use crate::format::manifest::{self, Manifest};
use crate::store::{One, Storage, is_url};
use std::collections::HashMap;
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
    pub fn find(names: &mut Vec<PathBuf>, split: Option<&str>, storage: &Storage) -> Result<Option<Self>> {
        if let [folder] = &**names
            && (!is_url(folder) || shelf::is_folder(folder, storage))
            && shelf::is_file(&folder.join(manifest::NAME), storage)
        {
            let folder = folder.clone();
            let manifest = load_from(&folder, storage)?;
            let split = manifest.split(split)?;
            *names = split.shards.iter().map(|shard| folder.join(&shard.file.file)).collect();
            let split = Some(split.name.clone());
            return Ok(Some(Self { folder, manifest, split }));
        }
        // What is a folder is in no folder of files.
        let folder = matches!(&**names, [one] if is_url(one) && shelf::is_folder(one, storage));
        let found = if folder { None } else { of_files(names, storage) };
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

    /// That files have the sizes that the manifest has for them: bare tokens do not say how many there should be, and half
    /// a copy would be trained on as if it were all.
    ///
    /// # Errors
    /// [`Error::Format`] with the first that has not.
    pub fn check_sizes(&self, files: &[TokenFile]) -> Result<()> {
        let shards = self.manifest.splits.iter().flat_map(|split| &split.shards);
        let sizes: HashMap<&str, u64> = shards.map(|shard| (&*shard.file.file, shard.file.bytes)).collect();
        let size = |path: &Path| {
            let name = path.file_name().filter(|_| path.parent() == Some(&self.folder))?;
            sizes.get(name.to_str()?).copied()
        };
        let Some((file, said)) =
            files.iter().find_map(|file| Some((file, size(&file.path).filter(|&said| said != file.len)?)))
        else {
            return Ok(());
        };
        Err(Error::Format {
            path: file.path.clone(),
            offset: said.min(file.len),
            expected: format!("{said} bytes, as {} has it", manifest::NAME),
            found: format!("{} bytes", file.len),
            hint: Words::from("half a copy? copy or prepare it again; ")
                + FORMAT.is(file.dialect.name())
                + " reads it as it is",
        })
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
fn of_files(paths: &[PathBuf], storage: &Storage) -> Option<Prepared> {
    let folder = paths.first()?.parent()?;
    let manifest = load_from(folder, storage).ok()?;
    // Globs and Megatron's prefixes mean files too.
    let meant =
        names::expand(paths, &TokenWish { storage: Some(storage.clone()), ..TokenWish::default() }).ok()?;
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

/// The manifest of a folder on this machine.
///
/// # Errors
/// [`Error::Io`] where there is none, [`Error::Format`] where it is damaged.
pub fn load(folder: &Path) -> Result<Manifest> {
    load_from(folder, &Storage::default())
}

/// The manifest of a folder, wherever it is.
///
/// # Errors
/// [`Error::Io`] where there is none, [`Error::Format`] where it is damaged.
pub fn load_from(folder: &Path, storage: &Storage) -> Result<Manifest> {
    let path = folder.join(manifest::NAME);
    // A pipe of that name is refused without waiting for a writer.
    let source = One::open(&path, storage).map_err(|error| match error {
        Error::Io { path, source, hint, .. } => Error::Io { path, what: "read the manifest", source, hint },
        Error::Unsupported { .. } => {
            Error::io(&path, "read the manifest", std::io::Error::other("it is no file"))
        }
        other => other,
    })?;
    let mut bytes = vec![0; usize::try_from(source.len().min(manifest::MAX_LEN)).unwrap_or(0)];
    source.read_exact(0, &mut bytes)?;
    Manifest::parse(&path, &bytes)
}
