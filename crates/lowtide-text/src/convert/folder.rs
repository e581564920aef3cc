//! A folder of token files that appears whole or not at all.
//!
//! Until it is whole it has another name beside the one it gets: `data` is `.data.lowtide` meanwhile, with the lock of
//! whoever makes it. What a killed process left there is taken away by the next that makes the same folder.

use crate::state::Work;
use lowtide::door::OVERWRITE;
use lowtide::format::manifest::{self, Manifest};
use lowtide::write::{Existing, sync_folder};
use lowtide::{Error, Result};
use rustix::fs::{CWD, FlockOperation, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder that has no name yet. Dropped, it is gone.
pub struct Folder {
    target: PathBuf,
    hidden: PathBuf,
    /// Open for its lock.
    lock: File,
    work: Option<Work>,
}

impl Folder {
    /// Takes the other name of `target`, and the lock.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it: a folder that exists, another process that makes it.
    pub fn begin(target: &Path, existing: Existing) -> Result<Self> {
        let target = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
        check(&target, existing)?;
        let Some(name) = target.file_name() else {
            return Err(Error::argument(format!("{} is no name of a folder", target.display()), ""));
        };
        let mut part = OsString::from(".");
        part.push(name);
        part.push(".lowtide");
        let hidden = target.with_file_name(part);
        let wrong = |error: io::Error| Error::io(&target, "make the folder", error);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(wrong)?;
        }
        for _ in 0..100 {
            match fs::create_dir(&hidden) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made.map_err(wrong)?,
            }
            // What is in it will be removed: that must not be another folder that a link leads to.
            if !fs::symlink_metadata(&hidden).is_ok_and(|meta| meta.is_dir()) {
                let told = wrong(Errno::EXIST.into());
                return Err(
                    told.with_hint(format!("{} is in the way, and we did not make it", hidden.display()))
                );
            }
            let lock = File::open(&hidden).map_err(wrong)?;
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                return Err(wrong(Errno::BUSY.into()).with_hint("another process is making this folder"));
            }
            // Whoever had it may have given it its name since it was opened.
            let ours = lock.metadata().map_err(wrong)?;
            if !fs::symlink_metadata(&hidden)
                .is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino()))
            {
                continue;
            }
            clear(&hidden).map_err(wrong)?;
            let work = Some(Work::fresh(&hidden)?);
            return Ok(Self { target, hidden, lock, work });
        }
        Err(wrong(Errno::BUSY.into()))
    }

    /// Where files are made.
    pub fn work(&self) -> Result<&Work> {
        self.work.as_ref().ok_or_else(|| Error::Closed { path: self.target.clone() })
    }

    /// Gives the folder, with its manifest, its name. One that is replaced goes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn finish(mut self, manifest: &Manifest, existing: Existing) -> Result<PathBuf> {
        if let Some(work) = self.work.take() {
            work.finish(manifest)?;
        }
        let wrong =
            |error: Errno| Error::io(&self.target, "give the folder its name", io::Error::from(error));
        check(&self.target, existing)?;
        // An empty folder of that name makes way by itself.
        match rustix::fs::rename(&self.hidden, &self.target) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if existing == Existing::Replace => {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &self.hidden, CWD, &self.target, flags).map_err(wrong)?;
            }
            renamed => renamed.map_err(wrong)?,
        }
        sync_folder(&self.target);
        Ok(self.target.clone())
    }
}

/// What is left under the other name goes: all of it where it was given up, the old folder where it was replaced.
impl Drop for Folder {
    fn drop(&mut self) {
        let ours = |meta: &fs::Metadata| {
            self.lock.metadata().is_ok_and(|lock| (lock.dev(), lock.ino()) == (meta.dev(), meta.ino()))
        };
        let replaced = |_: &fs::Metadata| fs::symlink_metadata(&self.target).is_ok_and(|meta| ours(&meta));
        if fs::symlink_metadata(&self.hidden).is_ok_and(|meta| ours(&meta) || replaced(&meta)) {
            self.work = None;
            let _ = clear(&self.hidden);
            let _ = fs::remove_dir(&self.hidden);
        }
    }
}

/// That there is no folder of that name, or one that may be replaced: all that is in it is known.
fn check(target: &Path, existing: Existing) -> Result<()> {
    let exists =
        |hint| Err(Error::io(target, "make the folder", io::Error::from(Errno::EXIST)).with_hint(hint));
    let entries = match fs::read_dir(target) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(target, "look at the folder", error)),
    };
    let names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    if names.is_empty() {
        return Ok(());
    }
    if existing == Existing::Refuse {
        return exists(OVERWRITE.on() + " replaces it, once the new one is whole");
    }
    let Ok(old) = lowtide::shards::load_manifest(target) else {
        return exists("it was not made by Lowtide: give another name".into());
    };
    let shards = old.splits.iter().flat_map(|split| &split.shards);
    let files = shards.flat_map(|shard| std::iter::once(&shard.file).chain(&shard.beside));
    let known: Vec<&str> =
        files.map(|file| &*file.file).chain(old.tokenizer.file.as_deref()).chain([manifest::NAME]).collect();
    let ours = |name: &&String| known.contains(&&***name) || name.ends_with(".lowtide-documents");
    match names.iter().find(|name| !ours(name)) {
        Some(name) => exists(format!("it holds {name}, which is not of its manifest: move that away").into()),
        None => Ok(()),
    }
}

/// Takes away the files of a folder that has our name, and of the work folder in it.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            for inner in fs::read_dir(entry.path())? {
                fs::remove_file(inner?.path())?;
            }
            fs::remove_dir(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
