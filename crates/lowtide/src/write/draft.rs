//! A file under another name until it is whole, and its writer's lock.
//!
//! The other name is a fixed one, hidden beside the file: `rows.npy` is `.rows.npy.lowtide` while it is being made. So
//! what a killed writer left is found and taken away by the next, and two writers of one file meet: the second finds the
//! first one's lock, which the kernel gives back when a process dies. Everything goes by the folder's descriptor: a
//! folder that is renamed meanwhile takes its files along.

use super::wrong;
use crate::error::{Error, Result};
use crate::options::Existing;
use crate::sys;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that has no name yet. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Draft {
    target: PathBuf,
    folder: OwnedFd,
    name: OsString,
    part: OsString,
    /// Open for its lock; whoever writes has a clone.
    file: File,
    /// What a forked child has is its parent's.
    generation: u64,
    /// Whether the part is left as it is: it has its name, or somebody may want it.
    left: bool,
}

impl Draft {
    /// Takes the other name of `target`, and the lock. What a killed writer left there is still in it.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; that of `EBUSY` where another writer has the file.
    pub(super) fn begin(target: &Path) -> Result<Self> {
        let cannot = |error: Errno| wrong(target, "make the file", error.into());
        let (folder, name) = split(target)?;
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, OFlags::RDONLY | directory, Mode::empty())
            // A folder that can be written to and not listed.
            .or_else(|_| rustix::fs::open(folder, OFlags::PATH | directory, Mode::empty()))
            .map_err(cannot)?;
        let part = part_name(name);
        // Not to wait for the other end of a pipe; a link leads to what is not ours.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for _ in 0..100 {
            let file =
                rustix::fs::openat(&folder, &part, flags, Mode::from_raw_mode(0o666)).map_err(cannot)?;
            // A filesystem without locks has writers that do not meet.
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            if locked == Err(Errno::WOULDBLOCK) {
                let hint = "another writer, of this process or of another, is at it";
                return Err(cannot(Errno::BUSY).with_hint(hint));
            }
            let ours = rustix::fs::fstat(&file).map_err(cannot)?;
            let named = rustix::fs::statat(&folder, &part, AtFlags::SYMLINK_NOFOLLOW);
            // Between opening and locking, the other writer may have given its file its name.
            if !named.is_ok_and(|named| (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)) {
                continue;
            }
            let file = File::from(file);
            if !file.metadata().is_ok_and(|meta| meta.is_file()) || ours.st_nlink != 1 {
                let hint = format!("{} is in the way, and no writer made it", part.display());
                return Err(cannot(Errno::EXIST).with_hint(hint));
            }
            let (target, name) = (target.to_owned(), name.to_owned());
            let generation = sys::generation();
            return Ok(Self { target, folder, name, part, file, generation, left: false });
        }
        Err(cannot(Errno::BUSY).with_hint("other writers take its place again and again"))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether `file` has the name that this one is to have: asked of the folder, which may be called otherwise by now.
    ///
    /// # Errors
    /// As the system has it, also where nothing has that name.
    pub(super) fn is_beside(&self, file: &File) -> std::io::Result<bool> {
        let ours = rustix::fs::fstat(file)?;
        let named = rustix::fs::statat(&self.folder, &self.name, AtFlags::empty())?;
        Ok((ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino))
    }

    /// Whether this process began it.
    pub(super) fn is_ours(&self) -> bool {
        self.generation == sys::generation()
    }

    /// The permissions of a file that is about to be replaced, for the one that replaces it.
    pub(super) fn take_permissions(&self) {
        if let Ok(old) = std::fs::symlink_metadata(&self.target).map(|meta| meta.permissions()) {
            let _ = self.file.set_permissions(old);
        }
    }

    /// Gives the file, which is synced, its name, and syncs the folder.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it. Where something has the name by now, the part is left.
    pub(super) fn name(&mut self, existing: Existing) -> Result<()> {
        let Self { folder, part, name, .. } = &*self;
        let renamed = name_as((folder, part), (folder, name), existing);
        if let Err(error) = renamed {
            let told = wrong(&self.target, "give the file its name", error.into());
            if error == Errno::EXIST || error == Errno::ISDIR {
                let hint = format!("what was written is whole, as {}", part.display());
                self.left = true;
                return Err(told.with_hint(hint));
            }
            return Err(told);
        }
        self.left = true;
        // Some filesystems cannot; the file itself is safe by then.
        let _ = rustix::fs::fsync(&self.folder);
        Ok(())
    }

    /// Syncs the folder, for a part that must be found after a crash.
    pub(super) fn sync_folder(&self) {
        let _ = rustix::fs::fsync(&self.folder);
    }

    /// Leaves the part where it is.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// Takes the part away.
    pub(super) fn take_away(&mut self) {
        self.left = true;
        let _ = rustix::fs::unlinkat(&self.folder, &self.part, AtFlags::empty());
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // The lock is given up afterwards: nobody takes for a writer's what is about to go.
        if !self.left && self.is_ours() {
            self.take_away();
        }
    }
}

/// Gives a file another name, whatever or only if nothing has it.
pub(super) fn name_as<F: AsFd>(
    (folder, from): (F, impl AsRef<Path>),
    (to_folder, to): (F, impl AsRef<Path>),
    existing: Existing,
) -> rustix::io::Result<()> {
    let (folder, to_folder, from, to) = (folder.as_fd(), to_folder.as_fd(), from.as_ref(), to.as_ref());
    let replace = || rustix::fs::renameat(folder, from, to_folder, to);
    if existing == Existing::Replace {
        return replace();
    }
    match rustix::fs::renameat_with(folder, from, to_folder, to, RenameFlags::NOREPLACE) {
        // Not on every filesystem.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match rustix::fs::statat(to_folder, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(_) => replace(),
            }
        }
        renamed => renamed,
    }
}

/// The folder that a file is in, and its name there.
fn split(target: &Path) -> Result<(&Path, &OsStr)> {
    let Some(name) = target.file_name() else {
        return Err(Error::argument(format!("{:?} is no name of a file", target.display().to_string()), ""));
    };
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name))
}

/// What a file is called until it is whole.
fn part_name(name: &OsStr) -> OsString {
    hidden(name, ".lowtide")
}

/// A hidden name that goes with a file's.
pub(crate) fn hidden(name: &OsStr, ending: &str) -> OsString {
    /// What most filesystems allow.
    const LONGEST: usize = 255;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(ending);
    if hidden.len() > LONGEST {
        hidden = format!(".{}{ending}", &blake3::hash(name.as_bytes()).to_hex()[..32]).into();
    }
    hidden
}

/// Where the part of a file would be.
pub(super) fn part_path(target: &Path) -> Option<PathBuf> {
    let (folder, name) = split(target).ok()?;
    Some(folder.join(part_name(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_draft_gets_its_name_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        drop(Draft::begin(&target).unwrap());
        assert!(names(folder.path()).is_empty());
        let mut draft = Draft::begin(&target).unwrap();
        draft.file().write_all(b"new").unwrap();
        assert_eq!(names(folder.path()), [".a.lowtide"]);
        draft.name(Existing::Refuse).unwrap();
        drop(draft);
        assert_eq!((names(folder.path()), fs::read(&target).unwrap()), (vec!["a".into()], b"new".into()));
    }

    #[test]
    fn a_second_writer_is_told_and_a_killed_one_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let first = Draft::begin(&target).unwrap();
        let told = Draft::begin(&target).unwrap_err().to_string();
        assert!(told.contains("another writer, of this process or of another"), "{told}");
        drop(first);
        fs::write(folder.path().join(".a.lowtide"), b"half").unwrap(); // what a killed one leaves
        drop(Draft::begin(&target).unwrap());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_appeared_meanwhile_is_not_replaced_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        let mut draft = Draft::begin(&target).unwrap();
        draft.file().write_all(b"ours").unwrap();
        fs::write(&target, b"theirs").unwrap();
        let told = draft.name(Existing::Refuse).unwrap_err().to_string();
        assert!(told.contains("hint: what was written is whole, as .a.lowtide"), "{told}");
        drop(draft);
        assert_eq!(fs::read(&target).unwrap(), b"theirs");
        assert_eq!(fs::read(folder.path().join(".a.lowtide")).unwrap(), b"ours");
        let mut again = Draft::begin(&target).unwrap();
        again.name(Existing::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"ours");
    }

    #[test]
    fn a_folder_that_moves_takes_its_files_along() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::create_dir(&old).unwrap();
        let mut draft = Draft::begin(&old.join("a")).unwrap();
        fs::rename(&old, &new).unwrap();
        draft.name(Existing::Refuse).unwrap();
        assert_eq!(names(&new), ["a"]);
        let mut draft = Draft::begin(&new.join("b")).unwrap();
        fs::remove_dir_all(&new).unwrap();
        let told = draft.name(Existing::Refuse).unwrap_err().to_string();
        assert!(told.contains("cannot give the file its name: No such file"), "{told}");
    }

    #[test]
    fn what_is_in_the_way_and_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (target, part) = (folder.path().join("a"), folder.path().join(".a.lowtide"));
        let other = folder.path().join("precious");
        fs::write(&other, b"precious").unwrap();
        symlink(&other, &part).unwrap();
        assert!(Draft::begin(&target).is_err());
        fs::remove_file(&part).unwrap();
        fs::hard_link(&other, &part).unwrap();
        assert!(Draft::begin(&target).unwrap_err().to_string().contains("no writer made it"));
        fs::remove_file(&part).unwrap();
        fs::create_dir(&part).unwrap();
        assert!(Draft::begin(&target).is_err());
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }

    #[test]
    fn a_long_name_has_a_short_part() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("x".repeat(255));
        Draft::begin(&target).unwrap().name(Existing::Refuse).unwrap();
        assert!(target.exists());
    }
}
