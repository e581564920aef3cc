//! Opening again what was open elsewhere: by a name that may mean other bytes by now.
//!
//! An array that is sent to another process goes as its path and what its file was. What must be the same there is
//! the content: the header, the size, and the first and last 4 KiB. The time, the inode and the device need not be: the
//! other process may be on another machine, with a copy of the file.

use crate::array::Array;
use crate::engine::bytes::Data;
use crate::error::{Error, Result};
use crate::format::{Container, Layout, npy, shape_text};
use crate::open::{Options, absolute, whole};
use crate::shards::{self, ArrayFile, hex, read_head};
use crate::store::{One, Storage, is_url};
use std::path::{Path, PathBuf};

/// What an array's file was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Was {
    /// What its bytes meant.
    pub layout: Layout,
    /// How many there were, where that is known.
    pub len: Option<u64>,
    /// [`Array::fingerprint`], where that is known.
    pub fingerprint: Option<String>,
}

impl Options {
    /// Opens an array again, if it is the one that it was. The layout is the old one's.
    ///
    /// # Errors
    /// [`Error::Format`] where the file is another one: it says what has changed.
    pub fn open_again(mut self, path: impl AsRef<Path>, was: &Was) -> Result<Array> {
        let path = absolute(path.as_ref());
        let storage = self.begin([&path])?;
        let source = One::open(&path, &storage)?;
        if let Some(len) = was.len {
            same_len(&path, len, source.len())?;
        }
        let layout = same_layout(&source, &was.layout)?;
        let array = Array::over(Data::open(whole(source, &storage)?, self.wish)?, layout);
        same_print(&path, was.fingerprint.as_deref(), || array.fingerprint())?;
        Ok(array)
    }

    /// Opens several files again as one array, if they are what they were.
    ///
    /// # Errors
    /// [`Error::Format`] for the first that is another one: it says what has changed.
    pub fn open_all_again(mut self, files: Vec<ArrayFile>, fingerprint: Option<&str>) -> Result<Array> {
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
        let storage = self.begin(&paths)?;
        same_sizes(files.iter().map(|file| (&file.path, file.len)), &storage)?;
        let remote = paths.iter().all(|path| is_url(path));
        for file in files.iter().filter(|_| !remote) {
            same_layout(&One::open(&file.path, &storage)?, &file.layout)?;
        }
        // Objects are looked at when they are first read.
        let unseen: Vec<bool> = files
            .iter()
            .map(|file| remote && matches!(file.layout.container, Container::Npy { .. }))
            .collect();
        let array = self.join(files, &unseen)?;
        same_print(array.path(), fingerprint, || array.fingerprint())?;
        Ok(array)
    }
}

/// The layout of a file, if it is what it was.
fn same_layout(source: &One, was: &Layout) -> Result<Layout> {
    let Layout { container, dtype, shape, order, offset } = was.clone();
    match container {
        Container::Raw => Layout::new(source.path(), container, dtype, shape, order, offset, source.len()),
        Container::Npy { .. } => same_header(source, was),
    }
}

/// That files have the sizes that they had, before any of them is looked into.
///
/// # Errors
/// [`Error::Format`] for the first that has not, [`Error::Io`] for the first that is not there.
pub fn same_sizes<'a>(files: impl IntoIterator<Item = (&'a PathBuf, u64)>, storage: &Storage) -> Result<()> {
    let files: Vec<_> = files.into_iter().collect();
    let paths: Vec<PathBuf> = files.iter().map(|(path, _)| (*path).clone()).collect();
    shards::list_parent(&paths, storage);
    files.into_iter().try_for_each(|(path, len)| {
        let now = if is_url(path) {
            storage.open(path)?.len()
        } else {
            std::fs::metadata(path).map_err(|e| Error::io(path, "open the file", e))?.len()
        };
        same_len(path, len, now)
    })
}

/// That what is open now has the fingerprint of what was open then, where that is known.
///
/// # Errors
/// [`Error::Format`] where it has not.
pub fn same_print(path: &Path, was: Option<&str>, now: impl FnOnce() -> Result<String>) -> Result<()> {
    match was {
        Some(was) if now()? != was => Err(changed(
            path,
            "the first and last 4 KiB that it had",
            "other bytes, in a file of the same size".into(),
        )),
        _ => Ok(()),
    }
}

fn same_len(path: &Path, was: u64, now: u64) -> Result<()> {
    if was == now { Ok(()) } else { Err(changed(path, &format!("{was} bytes"), format!("{now} bytes"))) }
}

fn same_header(source: &One, was: &Layout) -> Result<Layout> {
    let head = read_head(source)?;
    let expected = text(was);
    if !npy::is_npy(&head) {
        return Err(changed(source.path(), &expected, format!("no .npy header but bytes {}", hex(&head))));
    }
    let now = npy::parse(source.path(), &head, source.len())?;
    let same = Layout { container: was.container, ..now.clone() } == *was;
    if same {
        return Ok(now);
    }
    Err(changed(source.path(), &expected, text(&now)))
}

/// A header in words.
fn text(layout: &Layout) -> String {
    let Layout { dtype, shape, order, offset, .. } = layout;
    format!("a .npy header of {} {dtype} in {order:?} order from byte {offset} on", shape_text(shape))
}

fn changed(path: &Path, expected: &str, found: String) -> Error {
    Error::Format {
        path: path.to_owned(),
        offset: 0,
        expected: format!("{expected}, as when this was pickled"),
        found,
        hint: "the file has been replaced or written to since, or is another one here: open it by its path"
            .into(),
    }
}
