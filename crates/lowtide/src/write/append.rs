//! A file that grows at its end, with few dirty pages: a buffer before [`Paced`].

use super::paced::{Paced, WINDOW};
use crate::error::{Error, Result};
use crate::options::Cache;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What is written to the file at once.
const BUFFER: usize = 256 << 10;

/// To read and to write, without following a link.
fn options() -> OpenOptions {
    #[expect(clippy::cast_possible_wrap, reason = "one bit of flags, as the standard library wants them")]
    const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(NOFOLLOW);
    options
}

/// A file that grows at its end.
#[derive(Debug)]
pub struct Append {
    file: Paced,
    buffer: Vec<u8>,
    /// Bytes in the file, without those in the buffer.
    written: u64,
}

impl Append {
    /// A new, empty file; one of that name is replaced. A link of that name is an error: what it leads to is not ours.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn create(path: &Path, cache: Cache) -> Result<Self> {
        let file = options().create(true).truncate(true).open(path);
        let file = file.map_err(|error| Error::io(path, "make the file", error))?;
        Ok(Self { file: Paced::new(file, path, cache, WINDOW, true), buffer: Vec::new(), written: 0 })
    }

    /// Goes on with a file at its first `len` bytes; what is behind them goes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Truncated`] where the file is shorter.
    pub fn reopen(path: &Path, len: u64, cache: Cache) -> Result<Self> {
        let wrong = |error| Error::io(path, "go on with the file", error);
        let file = options().open(path).map_err(wrong)?;
        let found = file.metadata().map_err(wrong)?.len();
        if found < len {
            return Err(Error::Truncated { path: path.to_owned(), offset: 0, end: len, found });
        }
        file.set_len(len).map_err(wrong)?;
        Ok(Self { file: Paced::new(file, path, cache, WINDOW, false), buffer: Vec::new(), written: len })
    }

    /// The file's name now.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// How many bytes there are.
    pub fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it, such as a full disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() <= BUFFER {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.flush()?;
        if bytes.len() >= BUFFER {
            return self.put(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes over bytes that are there already: a header that is known last.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Argument`] past the end.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(Error::argument("writing over what is not there yet", ""));
        }
        self.flush()?;
        self.file.write_at(offset, bytes, &|| Ok(()))
    }

    /// Gives up what is behind the first `len` bytes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Argument`] past the end.
    pub fn truncate(&mut self, len: u64) -> Result<()> {
        if len > self.len() {
            return Err(Error::argument("a file that grows is not made longer by cutting it", ""));
        }
        if len >= self.written {
            self.buffer.truncate(usize::try_from(len - self.written).unwrap_or(0));
            return Ok(());
        }
        self.buffer.clear();
        let cut = self.file.file().set_len(len);
        cut.map_err(|error| Error::io(self.path(), "write the file", error))?;
        self.written = len;
        Ok(())
    }

    /// Waits until all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.file.sync()
    }

    /// Has what is dirty written back, and waits: for many files that grow at once, each of them slowly. Where the disk
    /// holds it for sure is another matter: see [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn settle(&mut self) -> Result<()> {
        self.flush()?;
        self.file.settle()
    }

    /// Syncs, and gives the file its name.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn finish(mut self, name: &Path) -> Result<()> {
        self.sync()?;
        super::rename(self.path(), name)
    }

    fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let put = self.put(&buffer);
        self.buffer = buffer; // kept for its memory
        if put.is_ok() {
            self.buffer.clear();
        }
        put
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        // At its place: what an error left half written is written over by the next try.
        self.file.write_at(self.written, bytes, &|| Ok(()))?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Append, WINDOW};
    use crate::store::Cache;
    use crate::sys;
    use std::fs::{self, File};

    #[test]
    fn grows_is_cut_and_is_taken_up_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, name) = (folder.path().join("part"), folder.path().join("whole"));
        let mut append = Append::create(&path, Cache::Keep).unwrap();
        let piece: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for _ in 0..10 {
            append.write(&piece).unwrap();
        }
        append.truncate(950_000).unwrap(); // in the buffer
        append.truncate(450_000).unwrap(); // in the file
        append.write_at(0, b"head").unwrap();
        append.sync().unwrap();
        append.write(b"lost").unwrap();
        drop(append);
        let mut append = Append::reopen(&path, 450_000, Cache::Keep).unwrap();
        append.write(b"tail").unwrap();
        assert!(append.write_at(450_002, b"tail").is_err() && append.truncate(450_005).is_err());
        append.finish(&name).unwrap();
        let mut expected = piece.repeat(5);
        expected.truncate(450_000);
        expected[..4].copy_from_slice(b"head");
        expected.extend(b"tail");
        assert!(!path.exists() && fs::read(&name).unwrap() == expected);
        assert!(Append::reopen(&name, 1 << 40, Cache::Keep).unwrap_err().to_string().contains("was cut"));
    }

    #[test]
    fn dirty_pages_stay_few_and_the_cache_is_left() {
        // Not on tmpfs, where pages are the file.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("large");
        let mut append = Append::create(&path, Cache::Drop).unwrap();
        let (piece, mut most) = (vec![7; 1 << 20], 0);
        for _ in 0..16 * (WINDOW >> 20) {
            append.write(&piece).unwrap();
            let cached = File::open(&path).and_then(|file| sys::cached_bytes(&file, 0, 0));
            let Ok(cached) = cached else { return }; // an old kernel does not tell
            most = cached.max(most);
        }
        assert!(most <= 4 * WINDOW, "{most} bytes were in the page cache");
        append.sync().unwrap();
        assert_eq!(File::open(&path).and_then(|file| sys::cached_bytes(&file, 0, 0)).unwrap(), 0);
    }
}
