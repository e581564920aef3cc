//! An unnamed file for runs: written in order past the page cache, read in pieces, and gone with whoever has it.
//!
//! It never has a name that a kill could leave behind: `O_TMPFILE`, or, where the filesystem has none, a name that is
//! taken away at once. Whoever drops it gives its space back then, even where a forked child still has it open.

use crate::engine::bytes::LetGo;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::size::human;
use crate::store::OneFile;
use crate::sys;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What is written at once: a disk shares it among its queues, and somebody is asked after each whether to go on.
const WRITE: usize = 8 << 20;

/// An unnamed file.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: File,
    /// The same file without the page cache, where the filesystem can.
    direct: Option<File>,
    align: u64,
    folder: PathBuf,
    generation: u64,
    stays: Stays,
}

/// Who may read a file that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Mine,
    Everybodys,
}

/// What is left when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stays {
    Nothing,
    /// A file that has a name, for the next run to go on with.
    Named,
}

impl Scratch {
    /// A new one in a folder.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let wrong = |error: io::Error| {
            Error::io(folder, "make a scratch file in the folder", error)
                .with_hint("scratch= names a folder that can be written to")
        };
        Ok(Self::over(unnamed(folder).map_err(wrong)?, folder, Stays::Nothing))
    }

    /// One of a name, which stays: made, or taken up again.
    pub(crate) fn named(path: &Path, whose: Whose) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = match whose {
            Whose::Mine => Mode::RUSR | Mode::WUSR,
            Whose::Everybodys => Mode::from_raw_mode(0o666), // as the umask has it
        };
        let file = rustix::fs::open(path, flags, mode);
        let file = file.map_err(|error| Error::io(path, "make the file", error))?;
        Ok(Self::over(File::from(file), path, Stays::Named))
    }

    /// Device and inode.
    pub(crate) fn id(&self) -> Result<(u64, u64)> {
        let meta = self.file.metadata().map_err(|error| self.wrong(error))?;
        Ok((meta.dev(), meta.ino()))
    }

    fn over(file: File, folder: &Path, stays: Stays) -> Self {
        let align = sys::direct_alignment(&file);
        let direct = align.and_then(|_| sys::reopen(&file, OFlags::RDWR | OFlags::DIRECT).ok());
        let align = align.unwrap_or(1).max(sys::page()) as u64;
        Self { file, direct, align, folder: folder.to_owned(), generation: sys::generation(), stays }
    }

    /// What it takes on the disk now.
    pub(crate) fn held(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.blocks() * 512)
    }

    /// Waits until all that was written is on the disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| self.wrong(error))
    }

    /// Cuts it to its length.
    pub(crate) fn cut(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.wrong(error))
    }

    /// Every run begins at a multiple of this.
    pub(crate) fn align(&self) -> u64 {
        self.align
    }

    /// Takes its space now, so that a full disk is an error before anything is written.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        if self.stays == Stays::Nothing {
            has_room(&self.folder, bytes)?;
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Err(self.full(bytes)),
            // The filesystem cannot: then the writes themselves say so.
            Err(_) => self.file.set_len(bytes).map_err(|error| self.wrong(error)),
        }
    }

    /// Writes whole pages at an aligned offset, from memory that is aligned as well.
    pub(crate) fn write(&self, bytes: &[u8], offset: u64, interrupt: Interrupt<'_>) -> Result<()> {
        let mut at = offset;
        for part in bytes.chunks(WRITE) {
            interrupt()?;
            self.put(part, at).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => self.full(bytes.len() as u64),
                _ => self.wrong(error),
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            match direct.write_all_at(bytes, offset) {
                // Memory or an offset that this device does not like: through the page cache.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                answer => return answer,
            }
        }
        self.file.write_all_at(bytes, offset)?;
        // What was written leaves the page cache as soon as it is on the disk.
        let len = bytes.len() as u64;
        let _ = sys::write_back(&self.file, offset, len, sys::Wait::Yes);
        let _ = rustix::fs::fadvise(&self.file, offset, NonZero::new(len), Advice::DontNeed);
        Ok(())
    }

    /// The same file, to be read.
    pub(crate) fn source(&self) -> Result<OneFile> {
        let file = sys::reopen(&self.file, OFlags::RDONLY).or_else(|_| self.file.try_clone());
        file.and_then(|file| OneFile::over(file, &self.folder)).map_err(|error| self.wrong(error))
    }

    fn full(&self, needs: u64) -> Error {
        no_room(&self.folder, needs, room(&self.folder).unwrap_or(0))
    }

    fn wrong(&self, error: io::Error) -> Error {
        Error::io(&self.folder, "write to a scratch file in the folder", error)
    }
}

impl LetGo for Scratch {
    fn let_go(&self) {
        // A forked child has it open too, and would keep its space; and a child does not take it from its parent.
        if self.stays == Stays::Nothing && self.generation == sys::generation() {
            let _ = self.file.set_len(0);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Refuses what the folder's filesystem has no room for.
pub(crate) fn has_room(folder: &Path, needs: u64) -> Result<()> {
    let wrong = |error| {
        Error::io(folder, "look at the folder", error)
            .with_hint("scratch= names a folder that can be written to")
    };
    if !std::fs::metadata(folder).map_err(wrong)?.is_dir() {
        return Err(wrong(rustix::io::Errno::NOTDIR.into()));
    }
    let room = room(folder).map_err(wrong)?;
    if needs > room { Err(no_room(folder, needs, room)) } else { Ok(()) }
}

/// Whether what is written to a folder stays in memory.
pub(crate) fn is_memory(folder: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(folder).is_ok_and(|stat| [TMPFS, RAMFS].contains(&stat.f_type))
}

/// Bytes that are free for us on the filesystem of a folder.
fn room(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn no_room(folder: &Path, needs: u64, room: u64) -> Error {
    let full = io::Error::from_raw_os_error(libc::ENOSPC);
    Error::io(folder, "sort rows in the folder", full).with_hint(format!(
        "{} of scratch space are needed, {} are free there; name a folder on another disk",
        human(needs),
        human(room)
    ))
}

/// A file without a name, to be read and written.
fn unnamed(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(File::from(file)),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
            named_for_a_moment(folder, flags | OFlags::CREATE | OFlags::EXCL, mode)
        }
        Err(error) => Err(error.into()),
    }
}

/// The same where the filesystem has no such files: its name goes before anything is written.
fn named_for_a_moment(folder: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let mut tries = 0..100;
    loop {
        let n = tries.next().unwrap_or(0);
        let path = folder.join(format!(".lowtide-{}-{n}.tmp", std::process::id()));
        match rustix::fs::open(&path, flags, mode) {
            Err(rustix::io::Errno::EXIST) if !tries.is_empty() => {}
            Err(error) => return Err(error.into()),
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(File::from(file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::budget::pool::Block;

    #[test]
    fn what_is_written_is_read_and_nothing_has_a_name() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let budget = Budget::new(64 << 20).unwrap();
        let mut block = Block::for_caller(&budget, 12 << 20).unwrap();
        for (byte, n) in block.iter_mut().zip(0_u64..) {
            *byte = (n % 251) as u8;
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let file = named_for_a_moment(folder.path(), flags, Mode::RUSR | Mode::WUSR).unwrap();
        let mut buffered = Scratch::over(file, folder.path(), Stays::Nothing);
        buffered.direct = None;
        for scratch in [Scratch::create(folder.path()).unwrap(), buffered] {
            scratch.reserve(24 << 20).unwrap();
            scratch.write(&block, 12 << 20, &|| Ok(())).unwrap();
            let (source, mut back) = (scratch.source().unwrap(), vec![0; 12 << 20]);
            source.read_exact(12 << 20, &mut back).unwrap();
            assert!(back == *block);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            if let Ok(cached) = sys::cached_bytes(&scratch.file, 0, 0) {
                assert!(cached <= 13 << 20, "only what this test has read: {cached}");
            }
            drop(scratch);
            assert_eq!(source.len_now().unwrap(), 0, "its space is given back, though somebody has it open");
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let says = |error: Error| error.to_string();
        assert!(says(has_room(folder.path(), u64::MAX).unwrap_err()).contains("are needed"));
        let missing = folder.path().join("no");
        assert!(says(Scratch::create(&missing).unwrap_err()).contains("scratch= names a folder"));
        let file = folder.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(says(has_room(&file, 1).unwrap_err()).contains("Not a directory"));
        let scratch = Scratch::create(folder.path()).unwrap();
        assert!(says(scratch.reserve(1 << 60).unwrap_err()).contains("are needed"));
    }
}
