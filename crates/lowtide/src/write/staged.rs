//! Whole files of this machine into an object store, for work whose state lies beside what it makes.
//!
//! A shuffle, or tokens of a text, are made in a folder on a local disk, as ever: killed, the next call goes on. What is
//! whole is sent, each file as one upload, the one that says that all are there last. What was sent is written down with
//! the tag that the store gave it, so that nothing is sent twice. The folder is ours alone, below one that the caller names
//! or the system's for temporary files; it stays when something fails, and goes when all is there.

use super::{replace, wrong};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::door::{BUDGET, OVERWRITE, Words};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Existing;
use crate::store::{Storage, Upload};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is read of a file at once.
const PIECE: usize = 1 << 20;
/// What was sent.
const SENT: &str = "sent.json";

/// How an object store is reached, and where files are made that go there.
#[derive(Clone, Debug, Default)]
pub struct Far {
    /// How it is reached.
    pub storage: Storage,
    /// A folder of this machine to work in; the system's for temporary files, if not said.
    pub work: Option<PathBuf>,
}

/// A folder in which files are made that go to an object store.
#[derive(Debug)]
pub struct Staged {
    folder: PathBuf,
    storage: Storage,
    /// What is being sent lies in it.
    budget: Budget,
    _lock: File,
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Nobodys,
    /// An earlier call has sent it.
    Ours,
    Others,
}

/// What was made, and what was sent of it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Journal {
    /// Stands for what was made.
    made: Option<String>,
    /// By address: the file as it was, and the object as it became.
    sent: BTreeMap<String, Sent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sent {
    bytes: u64,
    modified: (i64, i64),
    /// Nothing, while it is being sent.
    object: String,
}

impl Staged {
    /// The folder for what goes to `output`, made if there is none.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it, and where another process works in it; [`Error::Budget`] for one in which
    /// nothing can be sent.
    pub fn open(far: &Far, output: &Path, budget: &Budget) -> Result<Self> {
        if budget.limit() < Upload::least() {
            return Err(Error::Budget {
                what: "writing an object".into(),
                needs: Upload::least(),
                limit: budget.limit(),
                hint: Words::from("a larger ") + BUDGET,
            });
        }
        let parent = far.work.clone().unwrap_or_else(std::env::temp_dir);
        fs::create_dir_all(&parent).map_err(|error| wrong(&parent, "make the folder", error))?;
        let print = blake3::hash(output.as_os_str().as_encoded_bytes()).to_hex();
        let folder = parent.join(format!("lowtide-{}", &print[..16]));
        let cannot = |error: Errno, hint: &'static str| {
            Err(Error::io(&folder, "work in the folder", error).with_hint(hint))
        };
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| wrong(&folder, "make the folder", error))?,
        }
        // In a folder for everybody, somebody else may have made it, or a link of the name.
        let meta =
            fs::symlink_metadata(&folder).map_err(|error| wrong(&folder, "look at the folder", error))?;
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return cannot(Errno::PERM, "it is not ours alone: name another folder to work in");
        }
        let lock = File::open(&folder).map_err(|error| wrong(&folder, "open the folder", error))?;
        // A filesystem without locks has processes that do not meet.
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return cannot(Errno::BUSY, "another process is making the same: wait for it, or stop it");
        }
        // Between opening and locking, whoever had it may have taken it away.
        let (ours, named) = (lock.metadata(), fs::symlink_metadata(&folder));
        if !ours
            .is_ok_and(|ours| named.is_ok_and(|named| (ours.dev(), ours.ino()) == (named.dev(), named.ino())))
        {
            return cannot(Errno::BUSY, "another process was just making the same: run it again");
        }
        let files = folder.join("files");
        fs::create_dir_all(&files).map_err(|error| wrong(&files, "make the folder", error))?;
        Ok(Self { folder, storage: far.storage.clone(), budget: budget.clone(), _lock: lock })
    }

    /// Where files are made.
    pub fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Whether this, and no other work, was made here, and these files are there.
    pub fn has_made(&self, print: &str, files: &[PathBuf]) -> bool {
        self.journal().made.as_deref() == Some(print) && files.iter().all(|file| file.is_file())
    }

    /// Remembers what was made.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn note_made(&self, print: &str) -> Result<()> {
        self.save(&Journal { made: Some(print.to_owned()), ..self.journal() })
    }

    fn journal(&self) -> Journal {
        let text = fs::read(self.folder.join(SENT)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn save(&self, journal: &Journal) -> Result<()> {
        let text = serde_json::to_vec(journal).map_err(|error| Error::Bug { what: error.to_string() })?;
        replace(&self.folder.join(SENT), &text)
    }

    fn whose(&self, url: &Path) -> Result<Whose> {
        match self.storage.afresh().open(url) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Whose::Nobodys),
            Err(error) => Err(error),
            Ok(object) => {
                let sent = self.journal().sent.remove(&*url.to_string_lossy());
                let ours = sent.is_some_and(|sent| match &*sent.object {
                    "" => sent.bytes == object.len(), // a kill came before it was written down
                    known => known == object.identity(),
                });
                Ok(if ours { Whose::Ours } else { Whose::Others })
            }
        }
    }

    /// That nobody else's object is at an address.
    ///
    /// # Errors
    /// [`Error::Io`] where there is one that is not to be replaced.
    pub fn may_write(&self, url: &Path, existing: Existing) -> Result<()> {
        if existing == Existing::Replace || self.whose(url)? != Whose::Others {
            return Ok(());
        }
        let error = io::Error::from_raw_os_error(libc::EEXIST);
        let hint = OVERWRITE.on() + " replaces it, once the new one is whole";
        Err(Error::io(url, "write the object", error).with_hint(hint))
    }

    /// An object in a folder that no call of ours has sent, if there is one.
    ///
    /// # Errors
    /// As the store has it.
    pub fn stranger(&self, folder: &Path) -> Result<Option<PathBuf>> {
        let sent = self.journal().sent;
        let listing = match self.storage.afresh().list(folder) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            listing => listing?,
        };
        let urls = listing.files.iter().map(|name| folder.join(name));
        Ok(urls.into_iter().find(|url| !sent.contains_key(&*url.to_string_lossy())))
    }

    /// Copies a small object into a file, where there is one.
    ///
    /// # Errors
    /// As the store and the system have it.
    pub fn fetch(&self, url: &Path, into: &Path) -> Result<bool> {
        /// No manifest is larger.
        const MOST: u64 = 256 << 20;
        let object = match self.storage.afresh().open(url) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
            object => object?,
        };
        let len = usize::try_from(object.len().min(MOST)).unwrap_or(0);
        let mut bytes = vec![0; len];
        object.read_exact(0, &mut bytes)?;
        replace(into, &bytes).map(|()| true)
    }

    /// Sends whole files to their addresses, in this order. `progress` is told how many of how many bytes are there.
    ///
    /// # Errors
    /// As the store has it; what `interrupt` says.
    pub fn send(
        &self,
        files: &[(PathBuf, PathBuf)],
        existing: Existing,
        progress: &mut dyn FnMut(u64, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let mut journal = self.journal();
        let size = |path: &PathBuf| {
            fs::metadata(path).map(|meta| meta.len()).map_err(|error| wrong(path, "look at the file", error))
        };
        let total = files.iter().map(|(file, _)| size(file)).sum::<Result<u64>>()?;
        let mut before = 0;
        for (path, url) in files {
            let file = File::open(path).map_err(|error| wrong(path, "open the file", error))?;
            let meta = file.metadata().map_err(|error| wrong(path, "look at the file", error))?;
            let (bytes, modified) = (meta.len(), (meta.mtime(), meta.mtime_nsec()));
            let known = journal.sent.get(&*url.to_string_lossy());
            let known = known.filter(|sent| (sent.bytes, sent.modified) == (bytes, modified));
            let there = known.is_some_and(|sent| {
                self.storage.afresh().open(url).is_ok_and(|object| object.identity() == sent.object)
            });
            if !there {
                // What an earlier call has sent of something else is ours to replace.
                let ours = existing == Existing::Refuse && self.whose(url)? == Whose::Ours;
                let existing = if ours { Existing::Replace } else { existing };
                let mut tell = |sent: u64| progress(before + sent, total);
                let name = url.to_string_lossy().into_owned();
                journal.sent.insert(name.clone(), Sent { bytes, modified, object: String::new() });
                self.save(&journal)?;
                let upload = Upload::begin(&self.storage, url, existing, &self.budget, 0, Some(bytes))?;
                self.send_one((&file, path), bytes, upload, &mut tell, interrupt)?;
                let object = self.storage.afresh().open(url)?.identity();
                journal.sent.insert(name, Sent { bytes, modified, object });
                self.save(&journal)?;
            }
            before += bytes;
            progress(before, total);
        }
        Ok(())
    }

    fn send_one(
        &self,
        (file, path): (&File, &Path),
        bytes: u64,
        mut upload: Upload,
        progress: &mut dyn FnMut(u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        // The upload leases a piece for whoever prepares what is written.
        let mut piece = Block::for_caller(&self.budget, PIECE)?;
        let mut at = 0;
        while at < bytes {
            interrupt()?;
            let len = usize::try_from(bytes - at).unwrap_or(PIECE).min(PIECE);
            let read = file.read_exact_at(&mut piece[..len], at);
            read.map_err(|error| wrong(path, "read the file", error))?;
            upload.write(&piece[..len], interrupt)?;
            let behind = std::num::NonZeroU64::new(len as u64);
            let _ = rustix::fs::fadvise(file, at, behind, rustix::fs::Advice::DontNeed);
            at += len as u64;
            progress(at);
        }
        upload.finish(&[]).map(drop)
    }

    /// All is there: the folder goes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.folder).map_err(|error| wrong(&self.folder, "remove the folder", error))
    }
}

/// What was refused before anything was done leaves nothing: folders with something in them stay.
impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.files());
        let _ = fs::remove_dir(&self.folder);
    }
}
