//! The one suite that every store passes, and that a store of your own can run.
//!
//! ```
//! use lowtide::store::{Cache, OneFile, ReadStore, conformance};
//! use std::sync::Arc;
//!
//! conformance::run(&|path| Ok(Arc::new(ReadStore::new(Arc::new(OneFile::open(path)?), Cache::Keep))));
//! ```
//!
//! Each check is a function of its own and panics where the store is wrong, saying how.

#![allow(clippy::missing_panics_doc)] // said once, above

use super::{Extent, How, Manner, Read, Store};
use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Opens a store of the kind under test.
pub type Open<'a> = &'a (dyn Fn(&Path) -> Result<Arc<dyn Store>> + Sync);

/// What every store can pass, and then some more.
fn run_all(more: &[fn(Open<'_>)], open: Open<'_>) {
    let any: [fn(Open<'_>); 5] = [exact_bytes, odd_sizes, zero_length_file, past_the_end, forked];
    any.iter().chain(more).for_each(|check| check(open));
}

/// Runs every check.
///
/// # Panics
/// Where the store is wrong.
pub fn run(open: Open<'_>) {
    run_lazy(open);
    replaced(open);
    refused(open);
}

/// Runs every check that a store can pass which opens its files when they are first read: it cannot know that another
/// one was put in their place before.
///
/// # Panics
/// Where the store is wrong.
pub fn run_lazy(open: Open<'_>) {
    run_all(&[concurrent_readers, cut_before_reading, cut_and_put_back, cut_while_reading, grown], open);
}

/// Runs every check that a store of objects can pass: an object is replaced as a whole, never cut.
///
/// # Panics
/// Where the store is wrong.
pub fn run_objects(open: Open<'_>) {
    run_all(&[few_concurrent_readers, scattered], open);
}

/// Runs every check that a store can pass which answers for bytes that never change, such as one version of a remote
/// object: what it holds of them it may give out, whatever becomes of the file. (Of a file that is cut while it is read,
/// zeros may come for a moment, and it may hold those.)
///
/// # Panics
/// Where the store is wrong.
pub fn run_unchanging(open: Open<'_>) {
    run_all(&[concurrent_readers, grown, replaced, refused], open);
}

/// Many reads that one request serves, overlapping and with gaps between them, all in their places.
pub fn scattered(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(1 << 20);
    let store = open(&path).expect("opens");
    let mut draw = draws(7);
    for _ in 0..20 {
        let mut ranges: Vec<(u64, usize)> = (0..200).map(|_| (draw((1 << 20) - 3_000), 3_000)).collect();
        ranges.sort_unstable();
        let extents: Vec<Extent> = (0..200)
            .step_by(50)
            .map(|at| Extent { bytes: ranges[at].0..ranges[at + 49].0 + 3_000, reads: at..at + 50 })
            .collect();
        expect_as(&*store, &bytes, &ranges, How { extents: &extents, ..How::default() });
    }
}

/// A folder that goes away with its contents.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("lowtide-conformance-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    /// A file of `len` bytes that differ from their neighbours, and its path.
    fn file(&self, len: usize) -> (PathBuf, Vec<u8>) {
        let bytes = pattern(len);
        let path = self.0.join("data");
        File::create(&path).and_then(|mut f| f.write_all(&bytes)).expect("a file to read");
        (path, bytes)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Bytes in which every aligned and unaligned run is different from its surroundings.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ (i >> 12 & 0xFF) as u8)
        .collect()
}

fn read_all(store: &dyn Store, ranges: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
    read_as(store, ranges, How::default())
}

fn read_as(store: &dyn Store, ranges: &[(u64, usize)], how: How<'_>) -> Result<Vec<Vec<u8>>> {
    let mut out: Vec<Vec<u8>> = ranges.iter().map(|&(_, len)| vec![0xA5; len]).collect();
    let mut reads: Vec<Read<'_>> =
        ranges.iter().zip(&mut out).map(|(&(offset, _), into)| Read { offset, into }).collect();
    let report = store.read(&mut reads, how)?;
    assert!(report.missed <= report.looked, "an honest {report:?}");
    Ok(out)
}

#[track_caller]
fn expect(store: &dyn Store, bytes: &[u8], ranges: &[(u64, usize)]) {
    // However they are to be made, and whatever is said to come next: their bytes are the same.
    let next = [0..4096, 10..bytes.len() as u64];
    for (manner, far, coming) in [
        (Manner::OneByOne, false, &[][..]),
        (Manner::FromMemory, true, &[]),
        (Manner::Together, false, &next),
        (Manner::Stream, true, &[]),
    ] {
        expect_as(store, bytes, ranges, How { manner, far, coming, ..How::default() });
    }
}

#[track_caller]
fn expect_as(store: &dyn Store, bytes: &[u8], ranges: &[(u64, usize)], how: How<'_>) {
    let got = read_as(store, ranges, how).expect("reads inside the file succeed");
    for (&(offset, len), got) in ranges.iter().zip(&got) {
        let at = usize::try_from(offset).expect("small test file");
        assert!(got == &bytes[at..at + len], "wrong bytes for {offset}..{}", at + len);
    }
}

#[track_caller]
fn expect_cut(answer: Result<Vec<Vec<u8>>>, when: &str) {
    match answer {
        Err(Error::Truncated { .. }) => {}
        Err(other) => panic!("{when}: the error should be Truncated, not: {other}"),
        Ok(_) => panic!("{when}: a read past the end succeeded"),
    }
}

/// A generator for reads; the suite needs variety, not quality.
fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below.max(1)
    }
}

/// Every byte where it belongs: one read, many, unaligned, overlapping, empty, unsorted, in one call.
pub fn exact_bytes(open: Open<'_>) {
    let folder = Folder::new();
    // Several windows of the smallest size, and not a multiple of anything.
    let (path, bytes) = folder.file((9 << 20) + 4321);
    let store = open(&path).expect("opens");
    let len = bytes.len() as u64;
    expect(&*store, &bytes, &[(0, bytes.len())]);
    expect(&*store, &bytes, &[]);
    expect(&*store, &bytes, &[(0, 0), (len, 0), (5, 0)]);
    expect(
        &*store,
        &bytes,
        &[(len - 1, 1), (0, 1), (4095, 2), (4096, 4096), (1, 8191), (2 << 20, 1), ((2 << 20) - 1, 2)],
    );
    expect(
        &*store,
        &bytes,
        &[(100, 5_000_000), (200, 10), (4_900_000, 10), (100, 5_000_000), (3_000_000, 6_000_000)],
    );
    let mut draw = draws(1);
    for round in 0..20 {
        let ranges: Vec<(u64, usize)> = (0..500)
            .map(|_| {
                let size = draw(if round % 5 == 0 { 100_000 } else { 3_000 });
                (draw(len - size), usize::try_from(size).expect("small"))
            })
            .collect();
        expect(&*store, &bytes, &ranges);
    }
}

/// Files whose sizes sit at and around pages and large folios, read whole and at both ends.
pub fn odd_sizes(open: Open<'_>) {
    for len in [1, 511, 512, 513, 4095, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1] {
        let folder = Folder::new();
        let (path, bytes) = folder.file(len);
        let store = open(&path).expect("opens");
        expect(&*store, &bytes, &[(0, len), (len as u64 - 1, 1), (0, 1)]);
        expect_cut(read_all(&*store, &[(len as u64, 1)]), "one byte behind the end");
    }
}

/// A file of no bytes opens; nothing can be read from it, and nothing is.
pub fn zero_length_file(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(0);
    let store = open(&path).expect("an empty file opens");
    expect(&*store, &bytes, &[(0, 0)]);
    expect_cut(read_all(&*store, &[(0, 1)]), "one byte of an empty file");
}

/// A read past the end is an error, wherever it starts, and leaves the store usable.
pub fn past_the_end(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(10_000);
    let store = open(&path).expect("opens");
    for range in
        [(9_999, 2), (10_000, 1), (0, 10_001), (1 << 40, 10), (u64::MAX - 20, 10), (i64::MAX as u64, 10)]
    {
        expect_cut(read_all(&*store, &[(0, 10), range]), &format!("{range:?} of 10,000 bytes"));
    }
    expect(&*store, &bytes, &[(0, 10_000)]);
}

/// Eight threads on one store each see their own bytes.
pub fn concurrent_readers(open: Open<'_>) {
    concurrent(open, 20, 100);
}

/// The same with fewer reads: each is a request to a server.
fn few_concurrent_readers(open: Open<'_>) {
    concurrent(open, 3, 20);
}

fn concurrent(open: Open<'_>, rounds: usize, reads: usize) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(7 << 20);
    let store = open(&path).expect("opens");
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (store, bytes) = (&store, &bytes);
            scope.spawn(move || {
                let mut draw = draws(seed);
                for _ in 0..rounds {
                    let ranges: Vec<(u64, usize)> =
                        (0..reads).map(|_| (draw((7 << 20) - 5_000), 5_000)).collect();
                    expect(&**store, bytes, &ranges);
                }
            });
        }
    });
}

/// A file that was cut after opening: what is left can be read, what is gone is an error.
pub fn cut_before_reading(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(5 << 20);
    let store = open(&path).expect("opens");
    expect(&*store, &bytes, &[(0, 5 << 20)]);
    File::options().write(true).open(&path).and_then(|f| f.set_len(1_000_000)).expect("cut");
    expect_cut(read_all(&*store, &[(0, 10), (4 << 20, 4096)]), "after the cut");
    expect(&*store, &bytes, &[(0, 1_000_000)]);
    // Put back: the same store reads it again, and no zeros are left over from the cut.
    fs::OpenOptions::new().write(true).open(&path).and_then(|mut f| f.write_all(&bytes)).expect("rewritten");
    expect(&*store, &bytes, &[(0, 5 << 20)]);
}

/// A file that is cut when it is first read, and put back after: it is as it was.
pub fn cut_and_put_back(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(3 << 20);
    let store = open(&path).expect("opens");
    for left in [0, 10_000] {
        File::options().write(true).open(&path).and_then(|f| f.set_len(left)).expect("cut");
        expect_cut(read_all(&*store, &[((3 << 20) - 500, 500)]), "after the cut");
        File::options().write(true).open(&path).and_then(|mut f| f.write_all(&bytes)).expect("put back");
        expect(&*store, &bytes, &[(0, 3 << 20)]);
    }
}

/// A file that is cut and rewritten while we read: right bytes or an error, never a crash.
pub fn cut_while_reading(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(3 << 20);
    let store = open(&path).expect("opens");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().write(true).open(&path).expect("opens for writing");
            while !done.load(Ordering::Relaxed) {
                file.set_len(10_000).expect("cut");
                std::thread::yield_now();
                file.set_len(0).expect("cut");
                std::io::Seek::rewind(&mut file).and_then(|()| file.write_all(&bytes)).expect("rewritten");
            }
        });
        let (mut errors, mut whole) = (0, 0);
        for _ in 0..300 {
            match read_all(&*store, &[(0, 5_000), (1 << 20, 1 << 20), ((3 << 20) - 7, 7)]) {
                // What is read between cut and rewrite may be old, new or nothing; that it comes back is the point.
                Ok(_) => whole += 1,
                Err(Error::Truncated { .. }) => errors += 1,
                Err(other) => panic!("the error should be Truncated, not: {other}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(errors + whole, 300);
    });
    expect(&*store, &bytes, &[(0, 3 << 20)]);
}

/// Bytes that were added after opening are not part of what was opened, and do no harm.
pub fn grown(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(70_001);
    let store = open(&path).expect("opens");
    File::options().append(true).open(&path).and_then(|mut f| f.write_all(&vec![1; 99_999])).expect("grown");
    expect(&*store, &bytes, &[(0, 70_001), (70_000, 1)]);
}

/// A new file renamed over the old one: an open store goes on with the old one.
pub fn replaced(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(200_000);
    let store = open(&path).expect("opens");
    let new = folder.0.join("new");
    fs::write(&new, [9; 100]).and_then(|()| fs::rename(&new, &path)).expect("replaced");
    expect(&*store, &bytes, &[(0, 200_000)]);
    fs::remove_file(&path).expect("removed");
    expect(&*store, &bytes, &[(100_000, 100_000)]);
}

/// What is not a readable file is refused when it is opened, at once and by its reason.
pub fn refused(open: Open<'_>) {
    let folder = Folder::new();
    let kind = |path: &Path| match open(path) {
        Err(Error::Io { source, .. }) => Some(source.kind()),
        Err(Error::Unsupported { .. }) => None,
        Err(other) => panic!("{}: refused with the wrong error: {other}", path.display()),
        Ok(_) => panic!("{}: should be refused", path.display()),
    };
    assert_eq!(kind(&folder.0.join("none")), Some(std::io::ErrorKind::NotFound));
    assert_eq!(kind(&folder.0), Some(std::io::ErrorKind::IsADirectory));
    let fifo = folder.0.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    assert_eq!(kind(&fifo), None, "a FIFO is refused as unsupported, without waiting for a writer");
    let (secret, _) = folder.file(10);
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("chmod");
    let denied = in_child(|| {
        // Root can read everything: become nobody first.
        // SAFETY: changes only the ids of this child process.
        let nobody = unsafe { libc::setgid(65534) == 0 && libc::setuid(65534) == 0 };
        let privileged = !nobody && rustix::process::geteuid().is_root();
        !privileged
            && matches!(open(&secret), Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::PermissionDenied)
    });
    assert!(denied, "a file that may not be read is refused with PermissionDenied");
}

/// A child that was forked after opening and reading reads right, and so does its parent afterwards.
pub fn forked(open: Open<'_>) {
    let folder = Folder::new();
    let (path, bytes) = folder.file(3 << 20);
    let store = open(&path).expect("opens");
    expect(&*store, &bytes, &[(1000, 2 << 20)]);
    let right = in_child(|| {
        read_all(&*store, &[(5, 1 << 20), (2 << 20, 77)])
            .is_ok_and(|got| got[0] == bytes[5..5 + (1 << 20)] && got[1] == bytes[2 << 20..(2 << 20) + 77])
    });
    assert!(right, "the child reads what the parent reads");
    expect(&*store, &bytes, &[(0, 3 << 20)]);
}

/// Whether `f` is true in a forked child. A child that hangs is killed and counts as false.
fn in_child(f: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `f` and leaves by `_exit`: no destructors, no second run of the test harness.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0, "fork works");
        if pid == 0 {
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or(false);
            libc::_exit(i32::from(!answer));
        }
        for _ in 0..3000 {
            let mut status = 0;
            if libc::waitpid(pid, &raw mut status, libc::WNOHANG) == pid {
                return libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
        false
    }
}
