//! Files that a command writes: the old one or the whole new one, never a part.

pub use lowtide::meter::save;

use lowtide::{Error, Result};
use std::path::{Path, PathBuf};

fn folder(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Whether `path` could be written, asked before the work that makes its content.
pub fn check(path: &Path) -> Result<()> {
    let wrong =
        |what: &str, hint: &'static str| Err(Error::argument(format!("{}: {what}", path.display()), hint));
    if path.is_dir() {
        return wrong("this is a folder", "give the name of a file");
    }
    if !folder(path).is_dir() {
        return wrong("there is no such folder to write into", "make it first, or give another path");
    }
    if let Err(error) = rustix::fs::access(folder(path), rustix::fs::Access::WRITE_OK) {
        return wrong(&format!("cannot write into this folder: {}", std::io::Error::from(error)), "");
    }
    Ok(())
}
