//! A file that a reader sees as it was or as it becomes, never in part.

use super::draft;
use crate::error::{Error, Result};
use crate::options::Existing;
use rustix::fs::CWD;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes `bytes` under another name beside `path`, syncs, renames, and syncs the folder.
///
/// # Errors
/// [`Error::Io`] as the system has it; `path` is then what it was.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = create_beside(path).and_then(|(mut file, temporary)| {
        let written = (|| {
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, path)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        written
    });
    written.map_err(|error| Error::io(path, "write the file", error))?;
    sync_folder(path);
    Ok(())
}

/// Gives a file that is synced its name, and syncs the folder.
///
/// # Errors
/// [`Error::Io`] as the system has it.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|error| Error::io(to, "give the file its name", error))?;
    sync_folder(to);
    Ok(())
}

/// Gives a file that is synced its name, with the permissions of the one that it replaces, and syncs the folder.
///
/// # Errors
/// [`Error::Io`] as the system has it, also where something has the name by now and is not to be replaced.
pub(crate) fn name_as(from: &Path, to: &Path, existing: Existing) -> Result<()> {
    if let Ok(old) = std::fs::symlink_metadata(to)
        && old.is_file()
    {
        let _ = std::fs::set_permissions(from, old.permissions());
    }
    draft::name_as((CWD, from), (CWD, to), existing).map_err(|error| {
        Error::io(to, "give the file its name", error)
            .with_hint("what was written is whole: take away what has the name, and run this again")
    })?;
    sync_folder(to);
    Ok(())
}

/// Syncs the folder that `path` is in. Some filesystems cannot; the file itself is safe by then.
pub fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// A new file of a name that nobody has: several processes may write the same one.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    let mut tries = 0..100;
    loop {
        let n = tries.next().unwrap_or(0);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{n}.tmp", std::process::id()));
        let temporary = PathBuf::from(name);
        match File::create_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !tries.is_empty() => {}
            created => return created.map(|file| (file, temporary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::replace;
    use std::fs;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let missing = folder.path().join("no/such");
        assert!(replace(&missing, b"").unwrap_err().to_string().contains("cannot write the file"));
    }
}
