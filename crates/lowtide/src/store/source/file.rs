//! An opened file: what all stores of one object share.

use crate::error::{Error, Result};
use crate::store::Read;
use crate::sys;
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A regular file, opened for reading, and its size when it was opened.
#[derive(Debug)]
pub struct OneFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl OneFile {
    /// Opens a file. Directories, FIFOs and other things that are not files are refused without waiting.
    pub fn open(path: &Path) -> Result<Self> {
        // NONBLOCK: opening a FIFO would wait for a writer before we could see that it is one.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        // NOATIME: a sixth of what reading a small row costs is looking whether its time should be written. It is
        // refused on files that are not ours.
        let file = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(path, flags, Mode::empty()));
        let file = File::from(file.map_err(|e| refused(path, e.into()))?);
        let meta = file.metadata().map_err(|e| Error::io(path, "look at the file", e))?;
        let kind = meta.file_type();
        if kind.is_dir() {
            let source = io::Error::from_raw_os_error(libc::EISDIR);
            return Err(Error::io(path, "open the file", source).with_hint("name a file inside it"));
        }
        if !kind.is_file() {
            return Err(Error::unsupported(
                format!("{}: not a regular file", path.display()),
                "a pipe or a device cannot be read in any order: copy it into a file first",
            ));
        }
        // Without read-ahead, reading brings in what is read and nothing else: we plan our own. More than that: a
        // page that read-ahead has marked starts the next read-ahead when it is read, even through another
        // descriptor, and so on through the whole file.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Self { path: path.to_owned(), file, len: meta.len() })
    }

    /// A regular file that is open already, of no name or of another.
    pub(crate) fn over(file: File, path: &Path) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Self { path: path.to_owned(), file, len })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it was empty when it was opened.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The same file again with other flags: through the descriptor, not the path, which may mean another
    /// file by now.
    pub(in crate::store) fn reopen(&self, flags: OFlags) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
        let file = rustix::fs::open(&path, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(&path, flags, Mode::empty()))?;
        Ok(File::from(file))
    }

    /// The same file again, for reads of one kind: what the kernel reads ahead, it decides by the descriptor.
    pub(in crate::store) fn reopen_for(&self, reads: Advice) -> io::Result<File> {
        let file = self.reopen(OFlags::empty())?;
        let _ = rustix::fs::fadvise(&file, 0, None, reads);
        Ok(file)
    }

    /// Its size now.
    pub fn len_now(&self) -> Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| Error::io(&self.path, "look at the file", e))
    }

    /// Reads exactly these bytes, with one ordinary read.
    pub(crate) fn read_exact(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => match self.len_now() {
                Ok(found) => self.cut(&Read { offset, into }, found),
                Err(error) => error,
            },
            _ => Error::io(&self.path, "read the file", error),
        })
    }

    /// That `read` asks for bytes past the end, which is now at `found`.
    pub fn cut(&self, read: &Read<'_>, found: u64) -> Error {
        Error::Truncated { path: self.path.clone(), offset: read.offset, end: read.end(), found }
    }

    /// Refuses reads past the file's end as it is now: cheaper than a fault, and with a better message.
    pub(in crate::store) fn check(&self, reads: &[Read<'_>]) -> Result<u64> {
        let now = self.len_now()?;
        match reads.iter().find(|r| r.end() > now && !r.into.is_empty()) {
            Some(read) => Err(self.cut(read, now)),
            None => Ok(now),
        }
    }
}

/// That a file cannot be opened, and what to do where there are too many.
fn refused(path: &Path, error: io::Error) -> Error {
    let error = Error::io(path, "open the file", error);
    if !error.is_for_want_of_descriptors() {
        return error;
    }
    error.with_hint(format!(
        "this process may have {} files open, and an array is one of them: close() those that are done with, or raise \
         the limit with ulimit -n",
        sys::descriptor_limit()
    ))
}

impl AsRawFd for OneFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
