//! Where names are looked up: on this machine, or in an object store. Nothing else in `shards/` asks which.

use super::names::is_surely_glob;
use crate::error::{Error, Result};
use crate::store::{Storage, is_url, is_web, unknown};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Place {
    File,
    Folder,
    /// Nothing of that name: what opening it would say.
    Missing(Error),
}

/// What a name stands for.
///
/// # Errors
/// Where that cannot be known: a folder that may not be entered, a server that does not answer.
pub(super) fn place(name: &Path, storage: &Storage) -> Result<Place> {
    if is_url(name) {
        return remote_place(name, storage);
    }
    match name.metadata() {
        Ok(meta) if meta.is_dir() => Ok(Place::Folder),
        Ok(_) => Ok(Place::File),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let missing = || Error::io(name, "open the file", error);
            Ok(Place::Missing(unknown(name).unwrap_or_else(missing)))
        }
        Err(error) => Err(Error::io(name, "look at the file", error)),
    }
}

/// An object, or what is before the `/` in some. A key that ends with one is never an object for us.
fn remote_place(name: &Path, storage: &Storage) -> Result<Place> {
    if name.as_os_str().as_bytes().ends_with(b"/") {
        return Ok(if storage.is_folder(name)? { Place::Folder } else { Place::Missing(nothing_in(name)) });
    }
    if is_surely_glob(name) {
        return Ok(Place::Missing(nothing_in(name))); // a listing tells, and costs the same
    }
    match storage.open(name) {
        Ok(_) => Ok(Place::File),
        Err(error @ Error::Io { .. }) if is_not_found(&error) => {
            let folder = !is_web(name) && storage.is_folder(name).unwrap_or(false);
            Ok(if folder { Place::Folder } else { Place::Missing(error) })
        }
        Err(error) => Err(error),
    }
}

fn nothing_in(name: &Path) -> Error {
    Error::io(name, "list the folder", io::Error::new(io::ErrorKind::NotFound, "there are no objects in it"))
}

/// Whether an error says that there is no such file.
pub(super) fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

/// Whether there is a file of that name.
pub(super) fn is_file(name: &Path, storage: &Storage) -> bool {
    if is_url(name) { storage.is_object(name) } else { name.is_file() }
}

/// Whether there is a folder of that name.
pub(super) fn is_folder(name: &Path, storage: &Storage) -> bool {
    matches!(place(name, storage), Ok(Place::Folder))
}

/// The names of the files in a folder, sorted, and whether there are folders in it. Hidden ones are left out.
pub(super) fn listed(path: &Path, storage: &Storage) -> Result<(Vec<OsString>, bool)> {
    if is_url(path) {
        let listing = storage.list(path)?;
        let shown = |name: &&String| !name.starts_with('.');
        return Ok((listing.files.iter().filter(shown).map(OsString::from).collect(), listing.folders));
    }
    let failed = |error| Error::io(path, "list the folder", error);
    let (mut names, mut folders) = (Vec::new(), false);
    for entry in path.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        // A link may lead to a file: a download cache is full of those.
        if entry.file_type().map_err(failed)?.is_dir() {
            folders = true;
        } else {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok((names, folders))
}

/// What a glob matches, sorted: at least one name.
pub(super) fn matching(pattern: &Path, storage: &Storage) -> Result<Vec<PathBuf>> {
    let wrong = |what: &str, hint: &str| {
        Err(Error::argument(format!("{}: {what}", pattern.display()), hint.to_owned()))
    };
    let Some(text) = pattern.to_str() else {
        return wrong("a glob must be UTF-8", "name the files instead");
    };
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let mut found = Vec::new();
    if is_url(pattern) {
        let whole = match glob::Pattern::new(text) {
            Ok(whole) => whole,
            Err(error) => return wrong(&format!("not a glob: {}", error.msg), ""),
        };
        found = candidates(text, storage)?;
        found.retain(|name| name.to_str().is_some_and(|name| whole.matches_with(name, options)));
    } else {
        let paths = match glob::glob_with(text, options) {
            Ok(paths) => paths,
            Err(error) => return wrong(&format!("not a glob: {}", error.msg), ""),
        };
        for path in paths {
            // A folder that cannot be read must not silently lose its shards.
            found.push(path.map_err(|error| {
                let path = error.path().to_owned();
                Error::io(&path, "list the folder", error)
            })?);
        }
    }
    if found.is_empty() {
        return wrong("no file matches", "");
    }
    found.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    Ok(found)
}

/// The addresses that a glob could match: one listing of the folder before its first wildcard, as deep as it has to be.
fn candidates(pattern: &str, storage: &Storage) -> Result<Vec<PathBuf>> {
    let first = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let folder = pattern[..first].rfind('/').map_or("", |slash| &pattern[..=slash]);
    if pattern[first..].contains('/') {
        return storage.below(Path::new(folder));
    }
    let listing = storage.list(Path::new(folder))?;
    Ok(listing.files.iter().map(|name| PathBuf::from(format!("{folder}{name}"))).collect())
}
