//! Files that a command writes: the old one or the whole new one, never a part.

use lowtide::{Error, Result};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn folder(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Whether `path` could be written, asked before the work that makes its content.
pub fn check(path: &Path) -> Result<()> {
    let wrong = |what: &str, hint: &str| Err(Error::argument(format!("{}: {what}", path.display()), hint));
    if path.is_dir() {
        return wrong("this is a folder", "give the name of a file");
    }
    if !folder(path).is_dir() {
        return wrong("there is no such folder to write into", "make it first, or give another path");
    }
    Ok(())
}

/// Writes to a temporary name beside `path`, syncs, renames, and syncs the folder.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = folder(path);
    let written = || {
        // As any program's file would be: the umask takes its part.
        let permissions = std::fs::Permissions::from_mode(0o666);
        let mut file =
            tempfile::Builder::new().prefix(".lowtide-").permissions(permissions).tempfile_in(&folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)?;
        // Some filesystems cannot sync a folder; the file itself is safe by now.
        let _ = std::fs::File::open(&folder).and_then(|folder| folder.sync_all());
        Ok(())
    };
    written().map_err(|e: std::io::Error| Error::io(path, "write the file", e))
}
