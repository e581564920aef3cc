//! The few raw system calls, each with the kernel that brought it, and what must hold across a fork.
//!
//! Everything here is a thin, safe face on something unsafe. Nothing here knows about arrays.

pub mod crew;
pub mod far;

use rustix::fs::{Mode, OFlags};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What one page fault can map at once, and what `FADV_DONTNEED` needs to drop a large folio whole.
pub const HUGE: u64 = 2 << 20;

/// The size of a page.
pub fn page() -> usize {
    rustix::param::page_size()
}

/// Bytes that are free for us on the filesystem of a file.
pub fn free_space(file: &std::fs::File) -> std::io::Result<u64> {
    let stat = rustix::fs::fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The cores we may run on: a container's, not the machine's.
///
/// Asked once in a process: the standard library reads five files of the cgroup for its answer, 30 µs, which
/// is a third of the time that a chunk takes to copy.
pub fn cores() -> usize {
    /// The generation in the upper half, its cores in the lower.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let process = generation() << 32;
    let known = KNOWN.load(Ordering::Relaxed);
    if known & 0xFFFF_FFFF != 0 && known >> 32 == process >> 32 {
        return usize::try_from(known & 0xFFFF_FFFF).unwrap_or(1);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    KNOWN.store(process | cores as u64 & 0xFFFF_FFFF, Ordering::Relaxed);
    cores
}

/// How much of a file the page cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warmth {
    /// Less than half of it.
    Cold,
    /// Half of it, and more: most reads do not wait for a disk.
    Half,
    /// Nine tenths, and more: it counts as being in memory. With less, too many reads wait for a disk.
    Warm,
    /// All but a hundredth: faults, each of which waits for its disk alone, are not to be feared.
    Whole,
}

/// How warm a file of `len` bytes is, of which `cached` are in the page cache.
pub fn warmth(cached: u64, len: u64) -> Warmth {
    match cached {
        _ if cached >= len / 100 * 99 => Warmth::Whole,
        _ if cached >= len / 10 * 9 => Warmth::Warm,
        _ if cached >= len / 2 => Warmth::Half,
        _ => Warmth::Cold,
    }
}

/// Whether a file of `len` bytes is in memory, by what the page cache has of it.
pub fn is_warm(cached: u64, len: u64) -> bool {
    warmth(cached, len) >= Warmth::Warm
}

/// How many descriptors this process may have open.
pub fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many of them are not open now.
pub fn descriptors_left() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    descriptor_limit().saturating_sub(open as u64)
}

/// What `cachestat` fills in: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cache: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn cachestat(file: &impl AsRawFd, offset: u64, len: u64) -> io::Result<CacheStat> {
    #[repr(C)]
    struct Range {
        off: u64,
        len: u64,
    }
    const CACHESTAT: libc::c_long = 451; // the same number on every architecture
    let range = Range { off: offset, len };
    let mut stat = CacheStat::default();
    // SAFETY: both pointers are to live values of the layout that the kernel documents; flags must be 0.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut stat, 0) };
    if answer == 0 { Ok(stat) } else { Err(io::Error::last_os_error()) }
}

/// How many bytes of `offset..offset + len` are in the page cache (`len` 0: to the end). Linux 6.5.
///
/// # Errors
/// `EPERM` on a file that we can read but do not own, `ENOSYS` on an older kernel.
pub fn cached_bytes(file: &impl AsRawFd, offset: u64, len: u64) -> io::Result<u64> {
    cachestat(file, offset, len).map(|stat| stat.cache.saturating_mul(page() as u64))
}

/// How many bytes of a file are in the page cache, and how many of them the disk does not have yet. Linux 6.5.
///
/// # Errors
/// As [`cached_bytes`].
pub fn cached_and_dirty(file: &impl AsRawFd) -> io::Result<(u64, u64)> {
    let stat = cachestat(file, 0, 0)?;
    let bytes = |pages: u64| pages.saturating_mul(page() as u64);
    Ok((bytes(stat.cache), bytes(stat.dirty.saturating_add(stat.writeback))))
}

/// About how many bytes of a file of `len` bytes are in the page cache, from a sample of it.
///
/// Where the kernel holds a file in single pages, asking about a gigabyte takes milliseconds: too much for a
/// question that is asked before every pass.
///
/// # Errors
/// As [`cached_bytes`].
pub fn cached_estimate(file: &impl AsRawFd, len: u64) -> io::Result<u64> {
    const STRIPES: u64 = 64;
    const STRIPE: u64 = 1 << 20;
    if len <= 2 * STRIPES * STRIPE {
        return cached_bytes(file, 0, 0);
    }
    let stride = len / STRIPES;
    let sampled = (0..STRIPES).map(|i| cached_bytes(file, i * stride, STRIPE)).sum::<io::Result<u64>>()?;
    Ok(sampled / STRIPES * (len / STRIPE))
}

/// Reads at an offset without leaving in the page cache what was not there before. Linux 6.14, and not on
/// every filesystem.
///
/// # Errors
/// `EOPNOTSUPP` where the filesystem or the kernel cannot.
pub fn read_uncached(file: &impl AsRawFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    read_flagged(file, into, offset, libc::RWF_DONTCACHE)
}

/// Reads at an offset what is in the page cache; what is not is brought in meanwhile. Linux 4.14.
///
/// # Errors
/// `EAGAIN` where nothing of it is there, `EOPNOTSUPP` where the filesystem or the kernel cannot tell.
pub fn read_cached(file: &impl AsRawFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    read_flagged(file, into, offset, libc::RWF_NOWAIT)
}

fn read_flagged(file: &impl AsRawFd, into: &mut [u8], offset: u64, flags: i32) -> io::Result<usize> {
    let at = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: one vector over a live buffer of exactly that length, which we may write.
    let got = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, at, flags) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// The same file with other flags: through the descriptor, not the path, which may mean another file by now.
///
/// # Errors
/// As the system has it: without `/proc`, say.
pub fn reopen(file: &impl AsRawFd, flags: OFlags) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(File::from(rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty())?))
}

/// What unbuffered reads need: the alignment of file offsets and of memory. Linux 6.1 tells; before that a
/// page is safe. `None` where the filesystem cannot do them.
pub fn direct_alignment(file: &impl AsRawFd) -> Option<usize> {
    // SAFETY: an all-zero statx is a valid value to be overwritten.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: an open descriptor, an empty path as AT_EMPTY_PATH wants it, and a live value to fill.
    let answer =
        unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_DIOALIGN, &raw mut stat) };
    if answer != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Some(page());
    }
    let align = stat.stx_dio_offset_align.max(stat.stx_dio_mem_align).max(512) as usize;
    (stat.stx_dio_offset_align > 0 && align.is_power_of_two() && align <= 1 << 20).then_some(align)
}

/// Whether [`write_back`] waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until the range is on its way.
    No,
    /// Until all of it is there.
    Yes,
}

/// Starts writing dirty pages of a range to the disk, or waits until they are there. This makes nothing durable:
/// what the disk itself holds back, and the file's size, are a matter of `sync_data`.
///
/// # Errors
/// `ESPIPE` or `EINVAL` where the file has no such pages.
pub fn write_back(file: &impl AsRawFd, offset: u64, len: u64, wait: Wait) -> io::Result<()> {
    let signed = |n| i64::try_from(n).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let flags = match wait {
        Wait::No => libc::SYNC_FILE_RANGE_WRITE,
        Wait::Yes => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: only numbers go in, and an open descriptor; no memory of ours is touched.
    let answer = unsafe { libc::sync_file_range(file.as_raw_fd(), signed(offset)?, signed(len)?, flags) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a file is on a server: written pages are held there until the file is synced.
pub fn is_network(file: &impl AsFd) -> bool {
    /// As `statfs(2)` lists them: NFS, CIFS, SMB 1 and 2, Ceph, AFS, 9P, Lustre.
    const TYPES: [u64; 8] =
        [0x6969, 0xFF53_4D42, 0x517B, 0xFE53_4D42, 0x00C3_6400, 0x5346_414F, 0x0102_1997, 0x0BD0_0BD0];
    filesystem(file).is_ok_and(|found| TYPES.contains(&found))
}

/// The magic number of the filesystem that a file is in.
fn filesystem(file: &impl AsFd) -> io::Result<u64> {
    // Its type has another sign on other architectures; all of them fit in 32 bits.
    #[allow(clippy::cast_sign_loss, clippy::unnecessary_cast, clippy::cast_lossless)]
    Ok(rustix::fs::fstatfs(file)?.f_type as u64 & 0xFFFF_FFFF)
}

/// So many bytes of a stretch in the page cache are strays: nobody reads it from there.
const STRAY: u64 = 64 << 10;

/// Has the kernel bring in what of a file lies around `offset`, as where a page is missing from a map for which huge pages
/// are wanted: 4 MiB from a multiple of [`HUGE`] on, in folios of 2 MiB. Who goes on from there through the same descriptor
/// finds such folios and read-ahead of that size all along, whatever the device's read_ahead_kb (Linux 6.13; before that the
/// first folios).
///
/// # Errors
/// Where this kernel cannot, or `end` of the file is too near, or some of it is there already: nothing is signalled, nothing
/// stays mapped.
pub fn begin_huge(file: &(impl AsFd + AsRawFd), offset: u64, end: u64) -> io::Result<()> {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    /// tmpfs, ramfs, hugetlbfs: where a file has a hole, its pages would be made.
    const IN_MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58F6, 0x9584_58F6];
    let (len, offset) = (page(), offset / HUGE * HUGE);
    let stretch = end.saturating_sub(offset).min(2 * HUGE);
    // With pages of 16 or 64 KiB, huge ones are 32 MiB and more.
    if page() != 4096 || stretch < HUGE || IN_MEMORY.contains(&filesystem(file)?) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // Where a page is there already, of a header that was looked at, the kernel brings in nothing, or single pages. So a few
    // of them are let go, and come again with the rest.
    let mut cached = cached_bytes(file, offset, stretch)?;
    if (1..=STRAY).contains(&cached) {
        rustix::fs::fadvise(file, offset, NonZeroU64::new(stretch), rustix::fs::Advice::DontNeed)?;
        cached = cached_bytes(file, offset, stretch)?;
    }
    if cached > 0 {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    // SAFETY: a map of one page at an address of the kernel's choice, which nobody looks at. To populate it is an error
    // where touching it would be a signal. It is unmapped before anybody else learns of it.
    unsafe {
        let map =
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)?;
        let begun = rustix::mm::madvise(map, len, Advice::LinuxHugepage)
            .and_then(|()| rustix::mm::madvise(map, len, Advice::LinuxPopulateRead));
        let _ = rustix::mm::munmap(map, len);
        Ok(begun?)
    }
}

/// Takes the pages of a shared file mapping out of our address space; they come back when touched.
///
/// # Safety
/// All of `start..start + len` is a shared mapping, and stays one during the call: what was written to a private one,
/// such as the heap, would be lost.
///
/// # Errors
/// What the kernel says, such as `ENOMEM` where nothing is mapped there.
pub unsafe fn drop_mapped(start: usize, len: usize) -> io::Result<()> {
    // SAFETY: for a shared mapping, which the caller promises, this changes no contents: the next touch faults the
    // same bytes in again.
    unsafe { rustix::mm::madvise(start as *mut _, len, rustix::mm::Advice::LinuxDontNeed)? };
    Ok(())
}

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between this process and the one that loaded us: what has threads or rings is
/// rebuilt when it changes.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

static FORK_GATE: RwLock<()> = RwLock::new(());

thread_local! {
    static FORKING: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Held around every use of a lock that a forked child could need.
///
/// A child has only the thread that forked: a lock that another thread held stays locked for ever. So
/// fork waits until nobody is inside such a section, and these sections must be short: no I/O, no wait.
pub fn fork_gate() -> RwLockReadGuard<'static, ()> {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the three functions are `extern "C"`, live for ever, and only take and release one lock.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
    FORK_GATE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` on what a mutex guards, with nobody forking meanwhile. `f` must be short: no I/O, no wait.
pub fn locked<T, R>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
    let _gate = fork_gate();
    f(&mut mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

extern "C" fn before_fork() {
    let guard = FORK_GATE.write().unwrap_or_else(PoisonError::into_inner);
    // A thread that is being torn down has no thread-locals: then the lock is simply let go.
    let _ = FORKING.try_with(|slot| *slot.borrow_mut() = Some(guard));
}

extern "C" fn after_fork() {
    let _ = FORKING.try_with(|slot| slot.borrow_mut().take());
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    after_fork();
}
