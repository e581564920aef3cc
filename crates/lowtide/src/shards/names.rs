//! From what a user names to the files to look at: files, folders, globs, Megatron's prefixes.
//!
//! Every name keeps its place; a folder and a glob are sorted by the bytes of their names. Nothing is
//! opened here. A folder gives the files that are called like token files and nothing else, not what lies
//! in folders inside it; what lies beside token files (indexes, `meta.pkl`, checksums) is passed over.

use super::TokenWish;
use super::detect::{Candidate, Sibling};
use super::shelf::{self, Place};
use crate::door::Words;
use crate::error::{Error, Result};
use crate::format::{Dialect, Foreign, Wanted};
use crate::store::{Storage, is_url, is_web};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What lies beside token files and is matched by a careless glob.
const BESIDE: [&str; 18] = [
    "idx",
    "index",
    "metadata",
    "loss",
    "lowtide-documents",
    "gz",
    "csv",
    "json",
    "jsonl",
    "txt",
    "md",
    "yaml",
    "yml",
    "log",
    "lock",
    "tmp",
    "pkl",
    "py",
];

/// Words in file names that say which part of a dataset it is.
const TRAIN: [&str; 2] = ["train", "training"];
const HELD_OUT: [&str; 7] = ["val", "valid", "validation", "test", "eval", "dev", "heldout"];

/// What one name stands for.
pub(super) struct Named {
    pub files: Vec<Candidate>,
    /// Whether the user chose every file by its own name: then they may be of several dialects.
    pub each_by_name: bool,
    pub warning: Option<Words>,
}

/// Everything that `names` stand for, in their order.
pub(super) fn expand(names: &[PathBuf], wish: &TokenWish) -> Result<Vec<Named>> {
    // Where both files of a pair are named (by a shell's glob, say), they are one.
    let pairs: HashSet<&Path> = names.iter().filter(|name| has(name, "bin")).map(PathBuf::as_path).collect();
    let twice = |name: &PathBuf| has(name, "idx") && pairs.contains(name.with_extension("bin").as_path());
    names.iter().filter(|name| !twice(name)).map(|name| one(name, wish)).collect()
}

fn has(path: &Path, extension: &str) -> bool {
    path.extension() == Some(OsStr::new(extension))
}

fn one(name: &Path, wish: &TokenWish) -> Result<Named> {
    match shelf::place(name, &wish.storage())? {
        Place::Folder => {
            if shelf::is_file(&suffixed(name, ".idx"), &wish.storage()) {
                return Err(Error::argument(
                    format!(
                        "{}: this is a folder, and {}.idx makes it a prefix of Megatron's too",
                        name.display(),
                        name.display()
                    ),
                    "name the folder with a / at its end, or the .idx",
                ));
            }
            folder(name, wish)
        }
        Place::File => Ok(Named { files: vec![file(name, wish)?], each_by_name: true, warning: None }),
        Place::Missing(error) => missing(name, wish, error),
    }
}

/// A file, by its own name.
fn file(name: &Path, wish: &TokenWish) -> Result<Candidate> {
    if has(name, "idx") {
        if wish.dialect.is_some_and(|dialect| dialect != Dialect::Megatron) {
            return Err(Error::argument(
                format!("{}: an index holds no tokens", name.display()),
                "name the .bin beside it",
            ));
        }
        return Ok(pair(name));
    }
    let stem = name.file_stem().map(Path::new);
    let of = |extension| has(name, extension) && stem.is_some_and(|stem| has(stem, "ds"));
    if of("index") || of("metadata") {
        return Err(Error::argument(
            format!("{}: datatrove's tokens are not in this file", name.display()),
            format!("name {}", name.with_extension("").display()),
        ));
    }
    Ok(Candidate { path: name.to_owned(), index: Sibling::Unknown, dialect: None })
}

/// Megatron's pair, by its index.
fn pair(index: &Path) -> Candidate {
    let (path, dialect) = (index.with_extension("bin"), Some(Dialect::Megatron));
    Candidate { path, index: Sibling::Present, dialect }
}

/// No such file: a prefix, a glob, or a mistake.
fn missing(name: &Path, wish: &TokenWish, error: Error) -> Result<Named> {
    if is_url(name) && is_surely_glob(name) {
        return glob(name, wish); // one listing
    }
    let index = suffixed(name, ".idx");
    if wish.dialect.is_none_or(|dialect| dialect == Dialect::Megatron)
        && shelf::is_file(&index, &wish.storage())
    {
        return Ok(Named { files: vec![pair(&index)], each_by_name: true, warning: None });
    }
    if is_glob(name) {
        return glob(name, wish);
    }
    let data = suffixed(name, ".bin");
    Err(if shelf::is_file(&data, &wish.storage()) {
        error.with_hint(format!("there is {}", data.display()))
    } else {
        error
    })
}

/// Whether a name that is no file's may be a glob.
pub(super) fn is_glob(name: &Path) -> bool {
    !is_web(name) && has_any(name, b"*?[")
}

/// Whether an address is one even before anybody looks for an object of that name: `a[1].npy` may well be one.
pub(super) fn is_surely_glob(name: &Path) -> bool {
    !is_web(name) && has_any(name, b"*?")
}

fn has_any(name: &Path, bytes: &[u8]) -> bool {
    name.as_os_str().as_bytes().iter().any(|byte| bytes.contains(byte))
}

/// The files of arrays that one name stands for: itself, or those in a folder or of a glob. `raw` ones have no header.
pub(super) fn arrays(name: &Path, raw: bool, storage: &Storage) -> Result<Vec<PathBuf>> {
    match shelf::place(name, storage) {
        Ok(Place::Folder) => array_folder(name, raw, storage),
        Ok(Place::Missing(_)) if is_glob(name) => {
            let found = shelf::matching(name, storage)?;
            let files: Vec<PathBuf> = found.iter().filter(|path| !path.is_dir()).cloned().collect();
            if files.is_empty() {
                return Err(Error::argument(format!("{}: only folders match", name.display()), ""));
            }
            Ok(files)
        }
        _ => Ok(vec![name.to_owned()]), // what is wrong with it is said when it is opened
    }
}

fn array_folder(path: &Path, raw: bool, storage: &Storage) -> Result<Vec<PathBuf>> {
    if let Some(kind) = foreign_folder(path, storage) {
        return Err(kind.refused(path, Wanted::Array));
    }
    let (names, folders) = shelf::listed(path, storage)?;
    let extensions: &[&str] = if raw { &["bin", "raw", "dat"] } else { &["npy"] };
    let of = |name: &&OsString| extensions.iter().any(|end| has(Path::new(name), end));
    let chosen: Vec<&OsString> = names.iter().filter(of).collect();
    if chosen.is_empty() {
        let ends: Vec<String> = extensions.iter().map(|end| format!(".{end}")).collect();
        let inside = if folders { ", and folders inside it are not searched" } else { "" };
        let tokens = names.iter().any(|name| has(Path::new(name), "bin") || has(Path::new(name), "ds"));
        let tokens = if tokens && !raw { "; token files are for lowtide.tokens" } else { "" };
        return Err(Error::argument(
            format!("{}: no files of an array in this folder", path.display()),
            format!("they end in {}{inside}; a glob finds others{tokens}", ends.join(" or ")),
        ));
    }
    refuse_mixed_parts(path, &chosen, "array")?;
    Ok(chosen.into_iter().map(|name| path.join(name)).collect())
}

fn suffixed(name: &Path, suffix: &str) -> PathBuf {
    let mut whole = name.as_os_str().to_owned();
    whole.push(suffix);
    whole.into()
}

/// The kind of a folder that is neither an array nor tokens, as far as the names in it tell.
pub(crate) fn foreign_folder(path: &Path, storage: &Storage) -> Option<Foreign> {
    let names: Vec<OsString> = if is_url(path) {
        shelf::listed(path, storage).ok()?.0
    } else {
        path.read_dir().ok()?.flatten().map(|entry| entry.file_name()).collect()
    };
    Foreign::of_folder(names.iter().map(OsString::as_os_str))
}

fn folder(path: &Path, wish: &TokenWish) -> Result<Named> {
    let (names, folders) = shelf::listed(path, &wish.storage())?;
    let extensions: &[&str] = wish.dialect.map_or(&["bin", "npy", "ds"], Dialect::extensions);
    let chosen: Vec<&OsString> =
        names.iter().filter(|name| extensions.iter().any(|end| has(Path::new(name), end))).collect();
    if chosen.is_empty() {
        if let Some(kind) = foreign_folder(path, &wish.storage()) {
            return Err(kind.refused(path, Wanted::Tokens));
        }
        let ends: Vec<String> = extensions.iter().map(|end| format!(".{end}")).collect();
        let inside = if folders { ", and folders inside it are not searched" } else { "" };
        return Err(Error::argument(
            format!("{}: no token files in this folder", path.display()),
            format!("they end in {}{inside}; a glob finds others", ends.join(" or ")),
        ));
    }
    refuse_mixed_parts(path, &chosen, "stream")?;
    let sibling = |name: &OsStr, end: &str| {
        names.binary_search(&Path::new(name).with_extension(end).into_os_string()).is_ok()
    };
    let alone = names.iter().find(|name| has(Path::new(name), "idx") && !sibling(name, "bin"));
    let warning =
        alone.map(|name| Words::from(format!("{}: there is no .bin beside it", path.join(name).display())));
    let files = chosen.into_iter().map(|name| {
        let index = if sibling(name, "idx") { Sibling::Present } else { Sibling::Absent };
        Candidate { path: path.join(name), index, dialect: None }
    });
    Ok(Named { files: files.collect(), each_by_name: false, warning })
}

/// nanoGPT, llm.c and build-nanogpt keep training and validation files in one folder: as one stream they
/// would be trained on and then measured with.
fn refuse_mixed_parts(path: &Path, names: &[&OsString], what: &str) -> Result<()> {
    let part = |words: &[&str]| {
        names.iter().find(|name| {
            let stem = Path::new(name).file_stem().unwrap_or_default().as_bytes().to_ascii_lowercase();
            stem.split(|byte| !byte.is_ascii_alphabetic())
                .any(|piece| words.iter().any(|word| word.as_bytes() == piece))
        })
    };
    match (part(&TRAIN), part(&HELD_OUT)) {
        (Some(train), Some(held_out)) if train != held_out => Err(Error::argument(
            format!(
                "{}: the folder holds {} and {}, which are not meant as one {what}",
                path.display(),
                train.display(),
                held_out.display()
            ),
            format!("name the files, or a glob such as {:?}", path.join("*train*").display().to_string()),
        )),
        _ => Ok(()),
    }
}

fn glob(pattern: &Path, wish: &TokenWish) -> Result<Named> {
    let found = shelf::matching(pattern, &wish.storage())?;
    let matched = |path: &Path| found.binary_search_by(|one| one.as_os_str().cmp(path.as_os_str())).is_ok();
    let beside = |path: &Path| BESIDE.iter().any(|end| has(path, end));
    let mut files = Vec::new();
    for path in &found {
        if has(path, "idx") && !matched(&path.with_extension("bin")) && shelf::is_file(path, &wish.storage())
        {
            files.push(file(path, wish)?);
        } else if !beside(path) && !path.is_dir() {
            let index = if has(path, "bin") && matched(&path.with_extension("idx")) {
                Sibling::Present
            } else {
                Sibling::Unknown
            };
            files.push(Candidate { path: path.clone(), index, dialect: None });
        }
    }
    if files.is_empty() {
        let (pattern, example) = (pattern.display(), found[0].display());
        return Err(Error::argument(
            format!("{pattern}: no token files among what matches, such as {example}"),
            "",
        ));
    }
    Ok(Named { files, each_by_name: false, warning: None })
}
