//! The folder of a cache: made, recognised, refused, taken away.
//!
//! Its mark comes first, so that a kill at any moment leaves a folder that is known to be ours; whatever is missing is
//! made when it is opened the next time. All that is ever unlinked are three names, in a folder with our mark.

use super::layout::{Geometry, HEADER, LONGEST_MARK, MAGIC};
use crate::error::{Error, Result};
use crate::size::human;
use crate::sys;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const MARK: &str = "CACHEDIR.TAG";
pub(super) const DATA: &str = "data";
pub(super) const INDEX: &str = "index";
/// Making a folder takes milliseconds, and some seconds where a filesystem has to write zeros.
const PATIENCE: Duration = Duration::from_secs(60);

/// An opened folder.
pub(super) struct Folder {
    pub(super) geometry: Geometry,
    pub(super) index: File,
    pub(super) data: File,
}

/// Opens a cache, or makes one of `size` bytes where the folder is empty or does not exist. Without a size none is made.
pub(super) fn open(dir: &Path, size: Option<u64>) -> Result<Folder> {
    let wanted = size.map(Geometry::of).transpose()?;
    let made = wanted.is_some() && make(dir)?;
    let lock = lock(dir)?;
    let result = (|| {
        let (geometry, fresh) = match (look(dir)?, wanted) {
            (Some(geometry), None) => (geometry, false),
            (Some(geometry), Some(wanted)) if geometry == wanted => (geometry, false),
            (Some(geometry), Some(wanted)) => return Err(another_size(dir, geometry, wanted)),
            (None, Some(wanted)) => (wanted, true),
            (None, None) => return Err(not_a_cache(dir)),
        };
        if fresh {
            if sys::is_network(&lock) {
                return Err(Error::unsupported(
                    format!("{}: a local cache on a server's filesystem", dir.display()),
                    "its files are shared by the processes of one machine: name a folder on a local disk",
                ));
            }
            mark(dir, &geometry).map_err(|error| Error::io(dir, "mark the cache", error))?;
        }
        let folder = whole(dir, geometry);
        if folder.is_err() && fresh {
            take_away(dir);
        }
        folder
    })();
    if result.is_err() && made {
        let _ = fs::remove_dir(dir); // only where it is empty
    }
    result
}

/// Unlinks a cache, and its folder where nothing else is in it. Says whether it was.
pub(super) fn remove(dir: &Path) -> Result<bool> {
    let _lock = lock(dir)?;
    if look(dir)?.is_none() {
        return Err(not_a_cache(dir));
    }
    take_away(dir);
    Ok(fs::remove_dir(dir).is_ok())
}

/// The mark goes last: as long as it is there, the others are ours.
fn take_away(dir: &Path) {
    for name in [DATA, INDEX, MARK] {
        let _ = fs::remove_file(dir.join(name));
    }
}

/// Makes the folder, for its owner alone: what is in it may be private. Not those above it: where a disk is not mounted,
/// its cache is not to fill another one.
fn make(dir: &Path) -> Result<bool> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            let missing = error.kind() == io::ErrorKind::NotFound;
            let error = Error::io(dir, "make the folder of the cache", error);
            Err(if missing { error.with_hint("make the folder above it first") } else { error })
        }
    }
}

/// What makes a cache. It is no flag at a shell: there is only a cache that was made.
const NEEDS_SIZE: &str = "a cache is made where a size is given with the folder: local_cache_size=\"50GB\"";

/// One process at a time looks at a folder and makes what is missing. Reading and storing need no such lock.
fn lock(dir: &Path) -> Result<File> {
    let cannot = |error: io::Error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let error = Error::io(dir, "open the cache", error);
        if missing { error.with_hint(NEEDS_SIZE) } else { error }
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| cannot(e.into()))?);
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => {
                return Err(cannot(error.into()).with_hint("another process has been making it for a minute"));
            }
        }
    }
}

/// What the folder's mark says; nothing where it is empty. Anything else is refused.
fn look(dir: &Path) -> Result<Option<Geometry>> {
    let path = dir.join(MARK);
    let mut mark = Vec::new();
    match File::open(&path) {
        Ok(file) => {
            file.take(LONGEST_MARK as u64)
                .read_to_end(&mut mark)
                .map_err(|error| Error::io(&path, "read the mark of the cache", error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(&path, "read the mark of the cache", error)),
    }
    if let Some(geometry) = Geometry::from_mark(&path, &mark) {
        return geometry.map(Some);
    }
    // A mark without a letter is one that was killed before its first write.
    let listed = fs::read_dir(dir).map_err(|error| Error::io(dir, "list the folder", error))?;
    let mut names: Vec<OsString> = listed.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.retain(|name| name != MARK || !mark.is_empty());
    names.sort();
    match names.first() {
        None => Ok(None),
        Some(name) => Err(Error::argument(
            format!(
                "{}: not a local cache, and not empty: it holds {}{}",
                dir.display(),
                name.display(),
                if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() }
            ),
            "name a folder that does not exist yet: a cache has one of its own",
        )),
    }
}

fn not_a_cache(dir: &Path) -> Error {
    Error::argument(format!("{}: an empty folder, and not a local cache", dir.display()), NEEDS_SIZE)
}

fn another_size(dir: &Path, has: Geometry, wanted: Geometry) -> Error {
    Error::argument(
        format!(
            "{}: this cache has {} ({} bytes), and {} ({} bytes) was asked for",
            dir.display(),
            human(has.size),
            has.size,
            human(wanted.size),
            wanted.size
        ),
        format!(
            "give it the size that it has, or take it away first: lowtide cache {} --remove",
            dir.display()
        ),
    )
}

/// Writes the mark, on the disk before anything else is made.
fn mark(dir: &Path, geometry: &Geometry) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(rustix::fs::open(dir.join(MARK), flags, Mode::from_raw_mode(0o600))?);
    file.write_all(geometry.mark().as_bytes())?;
    file.sync_all()?;
    File::open(dir)?.sync_all()
}

/// The two files, as they should be. What is whole already is only looked at.
fn whole(dir: &Path, geometry: Geometry) -> Result<Folder> {
    let open = |name: &str| {
        let path = dir.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let cannot = |error: io::Error| Error::io(&path, "open the cache", error);
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
        let file = File::from(file.map_err(|error| cannot(error.into()))?);
        let regular = file.metadata().map_err(cannot)?.is_file();
        if regular { Ok(file) } else { Err(cannot(rustix::io::Errno::INVAL.into())) }
    };
    let index = open(INDEX)?;
    reserve(&index, &dir.join(INDEX), geometry.index_len(), geometry.size)?;
    head(&index, &geometry).map_err(|error| Error::io(&dir.join(INDEX), "write the index", error))?;
    let data = open(DATA)?;
    reserve(&data, &dir.join(DATA), geometry.data_len(), geometry.size)?;
    Ok(Folder { geometry, index, data })
}

/// Gives a file its size, and all the room on the disk that it will ever take.
fn reserve(file: &File, path: &Path, len: u64, size: u64) -> Result<()> {
    let cannot = |error| Error::io(path, "look at the cache", error);
    let meta = file.metadata().map_err(cannot)?;
    if meta.len() > len {
        file.set_len(len).map_err(cannot)?;
    }
    if meta.len() == len && meta.blocks().saturating_mul(512) >= len {
        return Ok(());
    }
    let full = |error: rustix::io::Errno, free: u64| {
        Error::io(path, "set room aside for the cache", error).with_hint(format!(
            "it takes {}; {} are free on this disk",
            human(size),
            human(free)
        ))
    };
    let free = || sys::free_space(file).unwrap_or(0);
    // Asked before: a filesystem would fill itself up, and everybody on it would notice, before it said no.
    let (wanted, free_now) = (len.saturating_sub(meta.blocks().saturating_mul(512)), free());
    if wanted > free_now {
        return Err(full(rustix::io::Errno::NOSPC, free_now));
    }
    loop {
        return match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error @ (rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS)) => {
                Err(Error::unsupported(
                    format!("{}: this filesystem cannot set room aside ({error})", path.display()),
                    "a local cache takes all of its room at the start: name a folder on another disk",
                ))
            }
            Err(error) => Err(full(error, free())),
        };
    }
}

/// Writes the header, where it is not there or is damaged: then no record is believed either.
fn head(index: &File, geometry: &Geometry) -> io::Result<()> {
    let mut head = [0; 40];
    index.read_exact_at(&mut head, 0)?;
    let expected = [&MAGIC[..], &geometry.slots.to_le_bytes()].concat();
    if head[..] == expected[..] {
        return Ok(());
    }
    let zeros = [0; 4096];
    for at in (0..geometry.records_end()).step_by(zeros.len()) {
        index.write_all_at(&zeros, at)?;
    }
    debug_assert!(geometry.records_end().is_multiple_of(HEADER));
    index.write_all_at(&expected, 0)
}
