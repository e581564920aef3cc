//! An opened file: what all stores of one object share.

use crate::door::{ACCESS, CACHE};
use crate::error::{Error, Result};
use crate::store::Read;
use crate::sys;
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A regular file, opened for reading, and its size when it was opened.
#[derive(Debug)]
pub struct OneFile {
    path: PathBuf,
    file: File,
    len: u64,
    direct: OnceLock<DirectFile>,
}

impl OneFile {
    /// Opens a file. Directories, FIFOs and other things that are not files are refused without waiting.
    pub fn open(path: &Path) -> Result<Self> {
        // NONBLOCK: opening a FIFO would wait for a writer before we could see that it is one.
        let file = opened(path, OFlags::NONBLOCK | OFlags::NOCTTY).map_err(|e| refused(path, e))?;
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
        Ok(Self { path: path.to_owned(), file, len: meta.len(), direct: OnceLock::new() })
    }

    /// A regular file that is open already, of no name or of another.
    pub(crate) fn over(file: File, path: &Path) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Self { path: path.to_owned(), file, len, direct: OnceLock::new() })
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
        opened(Path::new(&format!("/proc/self/fd/{}", self.file.as_raw_fd())), flags)
    }

    /// The same file again, for reads of one kind: what the kernel reads ahead, it decides by the descriptor.
    pub(in crate::store) fn reopen_for(&self, reads: Advice) -> io::Result<File> {
        let file = self.reopen(OFlags::empty())?;
        let _ = rustix::fs::fadvise(&file, 0, None, reads);
        Ok(file)
    }

    /// The same file, opened for unbuffered reads when the first one comes: arrays whose rows come through the page cache
    /// ask only whether they could come around it, and descriptors are few.
    pub(in crate::store) fn direct(&self) -> Result<&DirectFile> {
        if let Some(direct) = self.direct.get() {
            return Ok(direct);
        }
        let direct = DirectFile::open(self)?;
        Ok(self.direct.get_or_init(|| direct))
    }

    /// Its size now.
    pub fn len_now(&self) -> Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| Error::io(&self.path, "look at the file", e))
    }

    /// Reads exactly these bytes, with one ordinary read.
    pub(crate) fn read_exact(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.cut_now(&Read { offset, into }),
            _ => Error::io(&self.path, "read the file", error),
        })
    }

    /// That `read` asks for bytes past the end, which is now at `found`.
    pub fn cut(&self, read: &Read<'_>, found: u64) -> Error {
        read.cut(&self.path, found)
    }

    /// Refuses a read that ends, widened to `align`, where the kernel would only say "invalid argument".
    pub(in crate::store) fn check_end(&self, read: &Read<'_>, align: usize) -> Result<()> {
        match i64::try_from(read.end().saturating_add(align as u64)) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.cut_now(read)),
        }
    }

    /// That it asks for bytes past the end as it is now.
    pub(in crate::store) fn cut_now(&self, read: &Read<'_>) -> Error {
        self.len_now().map_or_else(|error| error, |found| self.cut(read, found))
    }
}

fn opened(path: &Path, flags: OFlags) -> io::Result<File> {
    let open = |more| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags | more, Mode::empty());
    // NOATIME: a sixth of what reading a small row costs is looking whether its time should be written. It is refused
    // on files that are not ours.
    Ok(open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?.into())
}

/// A file opened for unbuffered reads.
#[derive(Debug)]
pub(in crate::store) struct DirectFile {
    pub(in crate::store) file: File,
    /// Of offsets and lengths that it can read.
    pub(in crate::store) align: usize,
}

impl DirectFile {
    pub(in crate::store) fn open(source: &OneFile) -> Result<Self> {
        let unsupported = |why: &str| {
            Error::unsupported(
                format!("{}: unbuffered reads are not possible here: {why}", source.path().display()),
                ACCESS.is("read")
                    + " with "
                    + CACHE.is("drop")
                    + " is the next best way, and what "
                    + ACCESS.is("auto")
                    + " takes",
            )
        };
        let file = source.reopen(OFlags::DIRECT).map_err(|e| {
            let refused = unsupported(&format!("opening with O_DIRECT gave: {e}"));
            let e = Error::io(source.path(), "open the file", e);
            if e.is_for_want_of_descriptors() { e } else { refused }
        })?;
        let align =
            sys::direct_alignment(&file).ok_or_else(|| unsupported("the filesystem says so (statx)"))?;
        Ok(Self { file, align })
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
