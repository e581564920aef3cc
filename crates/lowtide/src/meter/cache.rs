//! How much of a file sits in the page cache.
//!
//! The kernel answers `cachestat` (Linux 6.5) in a quarter of a millisecond for 2 GB, and before that
//! `mincore` on a map. Both answer only for files that the caller owns or may write, because the page
//! cache tells what others read: `cachestat` then says `EPERM`, while `mincore` *lies* and calls every
//! page resident. So ownership is asked first, and where it is missing the answer is
//! [`Resident::Unknown`] with the reason, never a guess.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much of a file, or of a range of it, is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// So many bytes, in whole pages: the last page counts in full.
    Bytes(u64),
    /// Nobody may know, and why.
    Unknown(&'static str),
}

impl Resident {
    /// The number, where there is one.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Unknown(_) => None,
        }
    }
}

const NOT_YOURS: &str = "not your file";
const GONE: &str = "no such file";
const REFUSED: &str = "the file cannot be opened";
const NO_ANSWER: &str = "this kernel or filesystem does not tell";

/// The page cache of the file at `path`.
pub fn of_path(path: &Path) -> Resident {
    match File::open(path) {
        Ok(file) => of_file(file.as_fd()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Resident::Unknown(GONE),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Resident::Unknown(NOT_YOURS),
        Err(_) => Resident::Unknown(REFUSED),
    }
}

/// The page cache of an open file.
pub fn of_file(file: BorrowedFd<'_>) -> Resident {
    of_range(file, 0..u64::MAX)
}

/// The page cache of the pages that hold a range of an open file; a page that is partly covered counts
/// in full.
pub fn of_range(file: BorrowedFd<'_>, range: Range<u64>) -> Resident {
    static CACHESTAT: AtomicBool = AtomicBool::new(true);
    let Ok(size) = rustix::fs::fstat(file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0)) else {
        return Resident::Unknown(REFUSED);
    };
    let range = range.start..range.end.min(size);
    if range.is_empty() {
        return Resident::Bytes(0);
    }
    if CACHESTAT.load(Ordering::Relaxed) {
        match cachestat(file, &range) {
            Ok(bytes) => return Resident::Bytes(bytes),
            Err(rustix::io::Errno::PERM | rustix::io::Errno::ACCESS) => return Resident::Unknown(NOT_YOURS),
            // Before 6.5; a container's seccomp filter may say so too.
            Err(rustix::io::Errno::NOSYS) => CACHESTAT.store(false, Ordering::Relaxed),
            Err(_) => {}
        }
    }
    mincore(file, &range)
}

/// The system call, which libc does not know yet. Its number is the same on every architecture but Alpha.
fn cachestat(file: BorrowedFd<'_>, range: &Range<u64>) -> rustix::io::Result<u64> {
    const NUMBER: libc::c_long = 451;
    #[repr(C)]
    struct Span {
        offset: u64,
        length: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Answer {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let page = rustix::param::page_size() as u64;
    let span = Span { offset: range.start, length: range.end - range.start };
    let mut answer = Answer::default();
    // SAFETY: the kernel reads `span` and writes `answer`, both laid out as in linux/mman.h and alive
    // for the call; the descriptor is open because it is borrowed.
    let result = unsafe {
        libc::syscall(NUMBER, file.as_raw_fd(), &raw const span, &raw mut answer, 0 as libc::c_uint)
    };
    if result == 0 {
        Ok(answer.cached.saturating_mul(page))
    } else {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        Err(rustix::io::Errno::from_raw_os_error(code))
    }
}

/// The older way: map the range, touching nothing, and ask which pages are there. It walks the range in
/// stretches, so that the answer's one byte a page has room on the stack: sampling allocates nothing.
fn mincore(file: BorrowedFd<'_>, range: &Range<u64>) -> Resident {
    let mut pages = [0_u8; 16 << 10];
    if !may_know(file) {
        return Resident::Unknown(NOT_YOURS);
    }
    let page = rustix::param::page_size() as u64;
    let stretch = pages.len() as u64 * page;
    let mut resident = 0;
    let mut start = range.start / page * page;
    while start < range.end {
        let length = stretch.min(range.end - start);
        let Some(present) = mincore_stretch(file, start, length, page, &mut pages) else {
            return Resident::Unknown(NO_ANSWER);
        };
        resident += present * page;
        start += stretch;
    }
    Resident::Bytes(resident)
}

/// How many pages of one stretch are present.
fn mincore_stretch(
    file: BorrowedFd<'_>,
    start: u64,
    length: u64,
    page: u64,
    pages: &mut [u8],
) -> Option<u64> {
    let length = usize::try_from(length).ok()?;
    let count = length.div_ceil(usize::try_from(page).ok()?);
    let pages = pages.get_mut(..count)?;
    let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new map at an address of the kernel's choice, which nothing reads through.
    let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, start) };
    let map = map.ok()?;
    // SAFETY: `map` is the map just made, `length` long, and `pages` has one byte for each of its pages.
    let result = unsafe { libc::mincore(map, length, pages.as_mut_ptr()) };
    // SAFETY: nothing points into the map, which we made above.
    unsafe { rustix::mm::munmap(map, length) }.ok()?;
    (result == 0).then(|| pages.iter().map(|present| u64::from(present & 1)).sum())
}

/// Whether `mincore` tells us the truth: the kernel's own test is "owns it or may write it" (5.2).
fn may_know(file: BorrowedFd<'_>) -> bool {
    let me = rustix::process::geteuid();
    let owns = rustix::fs::fstat(file).is_ok_and(|stat| stat.st_uid == me.as_raw());
    // Through /proc, because the question is about the file and not about this descriptor, which may
    // be open for reading only.
    owns || me.is_root() || {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::access(path.as_str(), rustix::fs::Access::WRITE_OK).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

    use rustix::fs::{Advice, fadvise};

    const MIB: u64 = 1 << 20;

    /// A file of 8 MiB, on disk and not in the cache.
    fn cold() -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 8 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        file
    }

    fn on_tmpfs(file: &tempfile::NamedTempFile) -> bool {
        const TMPFS: rustix::fs::FsWord = 0x0102_1994;
        let found = rustix::fs::fstatfs(file).unwrap().f_type;
        if found == TMPFS {
            eprintln!("skipped: the temporary folder is a tmpfs, whose pages cannot leave the cache");
        }
        found == TMPFS
    }

    #[test]
    fn both_ways_count_exactly_what_was_read() {
        let file = cold();
        if on_tmpfs(&file) {
            return;
        }
        assert_eq!(of_file(file.as_fd()), Resident::Bytes(0));
        file.as_file().read_exact_at(&mut vec![0; 1 << 20], 3 * MIB).unwrap();
        let page = rustix::param::page_size() as u64;
        let (whole, part) = (0..8 * MIB, 3 * MIB + page..3 * MIB + 2 * page);
        for (name, ask) in [("cachestat", of_range as fn(_, _) -> _), ("mincore", |f, r| mincore(f, &r))] {
            assert_eq!(ask(file.as_fd(), whole.clone()), Resident::Bytes(MIB), "{name}");
            assert_eq!(ask(file.as_fd(), part.clone()), Resident::Bytes(page), "{name}");
            assert_eq!(ask(file.as_fd(), 0..3 * MIB), Resident::Bytes(0), "{name}");
            // One byte of a page is in that page.
            assert_eq!(ask(file.as_fd(), 3 * MIB..3 * MIB + 1), Resident::Bytes(page), "{name}");
        }
        assert_eq!(of_path(file.path()), Resident::Bytes(MIB));
    }

    #[test]
    fn nothing_is_cached_past_the_end_or_of_an_empty_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of_file(file.as_fd()), Resident::Bytes(0));
        assert_eq!(of_range(file.as_fd(), 100..200), Resident::Bytes(0));
        assert_eq!(of_path(Path::new("/nonexistent")), Resident::Unknown(GONE));
    }

    /// Root may ask about every file, so the question is put again by this test binary as `nobody`.
    #[test]
    fn a_file_of_somebody_else_is_unknown() {
        use std::os::unix::process::CommandExt as _;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become somebody else");
            return;
        }
        let file = cold();
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).unwrap();
        let answer = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "meter::cache::tests::asked_as_nobody", "--ignored", "--nocapture"])
            .env("LOWTIDE_TEST_FILE", file.path())
            .uid(65534)
            .gid(65534)
            .output();
        match answer {
            Err(error) => eprintln!("skipped: nobody cannot run this test binary: {error}"),
            Ok(answer) => assert!(
                answer.status.success() && String::from_utf8_lossy(&answer.stdout).contains("1 passed"),
                "{}{}",
                String::from_utf8_lossy(&answer.stdout),
                String::from_utf8_lossy(&answer.stderr)
            ),
        }
    }

    #[test]
    #[ignore = "the other half of a_file_of_somebody_else_is_unknown"]
    fn asked_as_nobody() {
        let Some(path) = std::env::var_os("LOWTIDE_TEST_FILE") else { return };
        let file = File::open(&path).unwrap();
        assert_eq!(of_file(file.as_fd()), Resident::Unknown(NOT_YOURS));
        assert_eq!(mincore(file.as_fd(), &(0..8 * MIB)), Resident::Unknown(NOT_YOURS));
    }
}
