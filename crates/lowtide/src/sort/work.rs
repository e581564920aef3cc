//! The folder in which files are sorted until they are whole: a lock, and a state that says how far it is.

use crate::error::{Error, Result};
use crate::write::{replace, sync_folder};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// How far the sorting is: what is on the disk for sure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// What is sorted, and how: of something else nothing is taken up.
    print: String,
    /// Rows of a bucket.
    pub(crate) batch: u64,
    /// The first row of each run.
    pub(crate) first: Vec<u64>,
    /// The first row that is in no run yet.
    pub(crate) next: u64,
    /// Buckets that are in the new files.
    pub(crate) buckets: u64,
    /// The new files are whole, and have only to get their names.
    pub(crate) whole: bool,
}

/// A folder that nobody else has.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked, until it is closed.
    _lock: File,
}

impl Folder {
    /// The one beside a file that is to be made; made, if there is none.
    pub(crate) fn beside(output: &Path) -> Result<Self> {
        let name = output.file_name().ok_or_else(|| {
            Error::argument(format!("{}: a folder, not a file", output.display()), "name the file to write")
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".shuffling");
        let path = output.with_file_name(hidden);
        let wrong = |error| Error::io(&path, "make the folder", error);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong(error)),
            _ => {}
        }
        let lock = File::open(&path).map_err(wrong)?;
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::io(output, "write the file", io::Error::from_raw_os_error(libc::EBUSY))
                .with_hint(
                    "another process is shuffling into it: wait for it, or stop it and run this again",
                ));
        }
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn file(&self, index: usize, what: &str) -> PathBuf {
        self.path.join(format!("{index}.{what}"))
    }

    /// Whether there is something to go on with.
    pub(crate) fn has_state(&self) -> bool {
        self.path.join("state.json").exists()
    }

    /// What an earlier call has done of the same; of anything else all is taken away.
    pub(crate) fn state(&self, print: &str) -> Option<State> {
        let text = fs::read(self.path.join("state.json")).ok();
        let state: Option<State> = text.and_then(|text| serde_json::from_slice(&text).ok());
        state.filter(|state| state.version == VERSION && state.print == print && state.is_sound())
    }

    /// Takes away what is in it, and begins.
    pub(crate) fn begin(&self, print: String, batch: u64) -> Result<State> {
        let wrong = |error| Error::io(&self.path, "empty the folder", error);
        for entry in fs::read_dir(&self.path).map_err(wrong)? {
            fs::remove_file(entry.map_err(wrong)?.path()).map_err(wrong)?;
        }
        Ok(State { version: VERSION, print, batch, ..State::default() })
    }

    pub(crate) fn save(&self, state: &State) -> Result<()> {
        let text = serde_json::to_vec(state).map_err(|error| Error::Bug { what: error.to_string() })?;
        replace(&self.path.join("state.json"), &text)
    }

    /// Takes all of it away: the state last, so that a kill in the middle is noticed.
    pub(crate) fn remove(self, files: usize) -> Result<()> {
        for index in 0..files {
            let _ = fs::remove_file(self.file(index, "runs"));
        }
        fs::remove_dir_all(&self.path).map_err(|error| Error::io(&self.path, "remove the folder", error))?;
        sync_folder(&self.path);
        Ok(())
    }
}

impl State {
    /// Whether it can be what it says: somebody may have written into it.
    fn is_sound(&self) -> bool {
        let ordered = self.first.is_sorted_by(|a, b| a < b);
        let last = self.first.last().is_none_or(|&last| last < self.next);
        self.batch > 0 && ordered && last && self.first.first().is_none_or(|&first| first == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_taken_up_only_by_the_same_work_and_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.npy");
        let work = Folder::beside(&output).unwrap();
        assert_eq!(work.state("a"), None);
        let mut state = work.begin("a".into(), 10).unwrap();
        (state.first, state.next) = (vec![0, 20], 35);
        work.save(&state).unwrap();
        assert!(Folder::beside(&output).unwrap_err().to_string().contains("another process is shuffling"));
        drop(work);
        let work = Folder::beside(&output).unwrap();
        assert_eq!((work.state("a"), work.state("b")), (Some(state.clone()), None));
        for lie in [vec![0, 40], vec![5], vec![0, 20, 20]] {
            work.save(&State { first: lie, ..state.clone() }).unwrap();
            assert_eq!(work.state("a"), None);
        }
        work.remove(1).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
