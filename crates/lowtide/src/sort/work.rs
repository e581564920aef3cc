//! The folder in which files are sorted until they are whole: a lock, and a state that says how far it is.

use crate::error::{Error, Result};
use crate::write::{hidden, replace, sync_folder};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const VERSION: u32 = 2;

/// How far the sorting is: what is on the disk for sure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// What is sorted, and how: of something else nothing is taken up.
    print: String,
    /// Rows of a bucket.
    pub(crate) batch: u64,
    /// How many runs are merged into one before they are gathered; 1 where they are gathered as they are.
    pub(crate) each: u64,
    /// The first row of each run.
    pub(crate) first: Vec<u64>,
    /// The first row that is in no run yet.
    pub(crate) next: u64,
    /// Rows that are in merged runs.
    pub(crate) merged: u64,
    /// Buckets that are in the new files.
    pub(crate) buckets: u64,
    /// The new files are whole, and have only to get their names: device and inode of each.
    pub(crate) whole: Option<Vec<(u64, u64)>>,
}

/// A folder that nobody else has.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked, until it is closed.
    lock: OwnedFd,
}

/// Where the state is.
const STATE: &str = "state.json";

impl Folder {
    /// The one beside a file that is to be made; made, if there is none.
    pub(crate) fn beside(output: &Path) -> Result<Self> {
        let name = output.file_name().ok_or_else(|| {
            Error::argument(format!("{}: a folder, not a file", output.display()), "name the file to write")
        })?;
        let path = output.with_file_name(hidden(name, ".shuffling"));
        let busy = |hint| {
            let error = io::Error::from_raw_os_error(libc::EBUSY);
            Error::io(output, "write the file", error).with_hint(hint)
        };
        for _ in 0..100 {
            match fs::create_dir(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io(&path, "make the folder", error));
                }
                _ => {}
            }
            // A link leads to what is not ours.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = match rustix::fs::open(&path, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    let hint = "what has this name is in the way, and no shuffle made it";
                    return Err(Error::io(&path, "open the folder", error).with_hint(hint));
                }
                Ok(lock) => lock,
            };
            // A filesystem without locks has shuffles that do not meet.
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
                return Err(busy(
                    "another process is shuffling into it: wait for it, or stop it and run this again",
                ));
            }
            let ours = rustix::fs::fstat(&lock);
            let ours = ours.map_err(|error| Error::io(&path, "look at the folder", error))?;
            // Between opening and locking, the other shuffle may have taken it away.
            if fs::symlink_metadata(&path)
                .is_ok_and(|named| (named.dev(), named.ino()) == (ours.st_dev, ours.st_ino))
            {
                return Ok(Self { path, lock });
            }
        }
        Err(busy("other shuffles take its place again and again"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn file(&self, index: usize, what: &str) -> PathBuf {
        self.path.join(format!("{index}.{what}"))
    }

    /// Whether a file in it is there, with at least so many bytes, and is nobody else's.
    pub(crate) fn has(&self, index: usize, what: &str, bytes: u64) -> bool {
        let meta = fs::symlink_metadata(self.file(index, what));
        meta.is_ok_and(|meta| meta.is_file() && meta.nlink() == 1 && meta.len() >= bytes)
    }

    /// Whether there is something to go on with.
    pub(crate) fn has_state(&self) -> bool {
        self.path.join(STATE).exists()
    }

    /// What an earlier call has done of the same.
    pub(crate) fn state(&self, print: &str) -> Option<State> {
        self.load::<State>().filter(|state| state.version == VERSION && state.print == print)
    }

    /// What an earlier call has written down, if it is this.
    pub(crate) fn load<T: for<'de> Deserialize<'de>>(&self) -> Option<T> {
        let path = self.path.join(STATE);
        // A pipe of that name would have us wait for ever.
        if !fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file()) {
            return None;
        }
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok())
    }

    /// Takes away what is in it, and begins.
    pub(crate) fn begin(&self, print: String, batch: u64, each: u64) -> Result<State> {
        self.empty()?;
        Ok(State { version: VERSION, print, batch, each, ..State::default() })
    }

    pub(crate) fn save(&self, state: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(state).map_err(|error| Error::Bug { what: error.to_string() })?;
        replace(&self.path.join(STATE), &text)
    }

    /// Makes sure that what was saved last is what the next call finds, even where the power fails, on filesystems that can.
    pub(crate) fn sync(&self) -> Result<()> {
        match rustix::fs::fsync(&self.lock) {
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
            Err(error) => Err(Error::io(&self.path, "sync the folder", error)),
        }
    }

    /// Nobody goes on with it.
    pub(crate) fn forget(&self) -> Result<()> {
        match fs::remove_file(self.path.join(STATE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(&self.path, "empty the folder", error))
            }
            _ => Ok(()),
        }
    }

    /// Takes away what is ours in it: the state first, so that nobody goes on with half of it.
    pub(crate) fn empty(&self) -> Result<()> {
        self.forget()?;
        let wrong = |error| Error::io(&self.path, "empty the folder", error);
        for entry in fs::read_dir(&self.path).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            if is_ours(&entry.file_name()) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Takes all of it away. Where somebody has put something of his own into it, that stays, and so does the folder.
    pub(crate) fn remove(self) -> Result<()> {
        self.empty()?;
        match fs::remove_dir(&self.path) {
            Err(error) if error.raw_os_error() != Some(libc::ENOTEMPTY) => {
                return Err(Error::io(&self.path, "remove the folder", error));
            }
            _ => sync_folder(&self.path),
        }
        Ok(())
    }
}

/// Whether a shuffle makes files of this name.
fn is_ours(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let numbered = [".runs", ".new", ".tables"].iter().find_map(|ending| name.strip_suffix(ending));
    // A number; and where several machines are at work, what it is they sort.
    let is_number = |name: &str| {
        let (number, print) = name.split_once('.').unwrap_or((name, ""));
        number.bytes().all(|byte| byte.is_ascii_digit()) && print.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    name.starts_with(STATE) || numbered.is_some_and(is_number)
}

impl State {
    /// How often all rows are read and written.
    pub(crate) fn passes(&self) -> u32 {
        if self.each > 1 { 3 } else { 2 }
    }

    /// Whether it can be what it says, of so many rows: somebody may have written into it.
    pub(crate) fn fits(&self, rows: u64) -> bool {
        let ordered = self.first.is_sorted_by(|a, b| a < b);
        let begins = self.first.first().map_or(self.next == 0, |&first| first == 0);
        let last = self.first.last().is_none_or(|&last| last < self.next);
        let sound = self.batch > 0 && self.each > 0 && ordered && begins && last && self.next <= rows;
        // Runs are merged once all rows are in them, and new files are written once all are merged.
        let merging = self.merged == 0 || self.each > 1 && self.next == rows && self.merged <= rows;
        let ready = self.next == rows && (self.each == 1 || self.merged == rows);
        let writing = self.buckets == 0 || ready && self.buckets <= rows.div_ceil(self.batch.max(1));
        sound && merging && writing && self.is_numbered()
    }

    /// Whether the number of a row in a run that is gathered has 32 bits.
    fn is_numbered(&self) -> bool {
        let each = usize::try_from(self.each).unwrap_or(usize::MAX).max(1);
        let begins = self.first.iter().step_by(each).copied();
        let ends = begins.clone().skip(1).chain([self.next]);
        begins
            .zip(ends)
            .all(|(begin, end)| end.checked_sub(begin).is_some_and(|rows| u32::try_from(rows).is_ok()))
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
        let mut state = work.begin("a".into(), 10, 1).unwrap();
        (state.first, state.next) = (vec![0, 20], 35);
        work.save(&state).unwrap();
        assert!(Folder::beside(&output).unwrap_err().to_string().contains("another process is shuffling"));
        drop(work);
        let work = Folder::beside(&output).unwrap();
        assert_eq!((work.state("a"), work.state("b")), (Some(state.clone()), None));
        assert!(state.fits(35) && state.fits(100) && !state.fits(30));
        for lie in [vec![0, 40], vec![5], vec![0, 20, 20], vec![]] {
            assert!(!State { first: lie, ..state.clone() }.fits(100));
        }
        assert!(State { buckets: 4, ..state.clone() }.fits(35), "the fourth bucket has five rows");
        assert!(!State { buckets: 5, ..state.clone() }.fits(35));
        assert!(!State { buckets: 1, ..state.clone() }.fits(100), "not all rows are in runs");
        assert!(!State { batch: 0, ..state.clone() }.fits(100));
        assert!(!State { each: 0, ..state.clone() }.fits(100));
        assert!(!State { merged: 1, ..state.clone() }.fits(35), "nothing is merged");
        let three = State { each: 2, merged: 35, ..state.clone() };
        assert_eq!((state.passes(), three.passes()), (2, 3));
        assert!(three.fits(35) && State { buckets: 4, ..three.clone() }.fits(35));
        assert!(!three.fits(100), "not all rows are in runs");
        assert!(!State { merged: 36, ..three.clone() }.fits(35));
        assert!(!State { merged: 34, buckets: 1, ..three.clone() }.fits(35), "not all of them are merged");
        let far = State { first: vec![0, 1 << 31, 1 << 32], next: 3 << 31, ..state.clone() };
        assert!(far.fits(far.next) && !State { each: 2, ..far.clone() }.fits(far.next), "more than 32 bits");
        assert!(!State { each: u64::MAX, ..far.clone() }.fits(far.next));
        fs::write(work.path().join("0.runs"), b"1234").unwrap();
        assert!(work.has(0, "runs", 4) && !work.has(0, "runs", 5) && !work.has(0, "new", 0));
        work.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (output, dear) = (folder.path().join("out.npy"), folder.path().join("dear"));
        fs::create_dir(&dear).unwrap();
        fs::write(dear.join("0.runs"), b"mine").unwrap();
        std::os::unix::fs::symlink(&dear, folder.path().join(".out.npy.shuffling")).unwrap();
        let told = Folder::beside(&output).unwrap_err().to_string();
        assert!(told.contains("is in the way"), "{told}");
        assert_eq!(fs::read(dear.join("0.runs")).unwrap(), b"mine");
        fs::remove_file(folder.path().join(".out.npy.shuffling")).unwrap();
        let work = Folder::beside(&output).unwrap();
        for name in ["notes", "x.runs", "3.new", "state.json.7-0.tmp"] {
            fs::write(work.path().join(name), b"").unwrap();
        }
        let path = work.path().to_owned();
        work.begin("a".into(), 1, 1).unwrap();
        work.remove().unwrap();
        let mut left: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["notes", "x.runs"]);
    }
}
