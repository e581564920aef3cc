//! A file that is cut under a memory map answers with SIGBUS. Here that becomes an error.
//!
//! The handler covers only address ranges that we registered. A fault there gets a page of zeros so
//! that the copy can finish, and the range remembers that it was hit; the store then fails the batch.
//! A fault anywhere else goes to whoever handled SIGBUS before us. Reads cannot be hit, only maps.

use crate::error::{Error, Result};
use crate::options::Access;
use crate::sys;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Slots for ranges. The handler walks them, so they never move and are never freed.
struct Shelf {
    slots: [Slot; 64],
    next: AtomicPtr<Shelf>,
}

/// One range: `start == 0` is free, `start == 1` is being filled.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    hits: AtomicU32,
}

impl Slot {
    const fn free() -> Self {
        Self { start: AtomicUsize::new(0), end: AtomicUsize::new(0), hits: AtomicU32::new(0) }
    }
}

impl Shelf {
    const fn new() -> Self {
        Self { slots: [const { Slot::free() }; 64], next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This shelf and all after it.
    fn all(&'static self) -> impl Iterator<Item = &'static Shelf> {
        std::iter::successors(Some(self), |shelf| {
            // SAFETY: `next` is null or a leaked box: it lives for ever and is only read.
            unsafe { shelf.next.load(Ordering::Acquire).as_ref() }
        })
    }
}

static SHELVES: Shelf = Shelf::new();
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// A registered address range, let go when dropped. Drop it before the range is unmapped.
#[derive(Debug)]
pub struct Guard(&'static Slot);

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed))
    }
}

impl Guard {
    /// Covers `start..start + len`, which is ours and mapped.
    pub(super) fn new(start: usize, len: usize) -> Self {
        let slot = loop {
            let free = |slot: &&'static Slot| {
                slot.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            };
            if let Some(slot) = SHELVES.all().flat_map(|shelf| &shelf.slots).find(free) {
                break slot;
            }
            let last = SHELVES.all().last().unwrap_or(&SHELVES);
            let shelf = Box::into_raw(Box::new(Shelf::new()));
            if last
                .next
                .compare_exchange(ptr::null_mut(), shelf, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                // SAFETY: another thread was faster, so nobody has seen this box.
                drop(unsafe { Box::from_raw(shelf) });
            }
        };
        slot.hits.store(0, Ordering::Relaxed);
        slot.end.store(start + len, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Self(slot)
    }

    /// How often the range was hit so far.
    pub(super) fn hits(&self) -> u32 {
        self.0.hits.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Release);
    }
}

/// Puts the handler in front of whatever handles SIGBUS now. Once per process; forks inherit it.
pub(super) fn install(path: &Path) -> Result<()> {
    PAGE.store(sys::page(), Ordering::Relaxed);
    let mut failed = None;
    BEFORE.get_or_init(|| {
        arm().unwrap_or_else(|e| {
            failed = Some(e);
            nobody()
        })
    });
    failed.map_or(Ok(()), |e| Err(Error::io(path, "watch for SIGBUS", e)))
}

/// Whether the handler is in place: `faulthandler`, Ray and torch's workers put theirs over it. One that is simply
/// gone, because somebody set the default, is put back.
pub fn in_place() -> bool {
    if BEFORE.get().is_none() {
        return true; // not installed yet: it will be, on top, with the first map
    }
    let mut now = nobody();
    // SAFETY: only looks, into a live value.
    unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut now) };
    now.sa_sigaction == handler() || (now.sa_sigaction == libc::SIG_DFL && arm().is_ok())
}

/// Makes ours the handler; whose it was.
fn arm() -> std::io::Result<libc::sigaction> {
    let mut new = nobody();
    let mut old = new;
    new.sa_sigaction = handler();
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: both pointers are to live values, and the handler is async-signal-safe.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const new, &raw mut old) } {
        0 => Ok(old),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// What is in place where nobody handles a signal.
fn nobody() -> libc::sigaction {
    // SAFETY: a zeroed sigaction is a valid one (no flags, empty mask, default handler).
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn handler() -> libc::sighandler_t {
    on_sigbus as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) as libc::sighandler_t
}

/// Async-signal-safe: atomics and system calls only; errno is put back.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = PAGE.load(Ordering::Relaxed).max(4096);
    for slot in SHELVES.all().flat_map(|shelf| &shelf.slots) {
        let start = slot.start.load(Ordering::Acquire);
        if start > 1 && address >= start && address < slot.end.load(Ordering::Relaxed) {
            // SAFETY: errno is this thread's; the page lies inside a range that is ours, mapped and only read.
            let placed = unsafe {
                let errno = *libc::__errno_location();
                let at = (address & !(page - 1)) as *mut c_void;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let got = libc::mmap(at, page, libc::PROT_READ, flags, -1, 0);
                *libc::__errno_location() = errno;
                got != libc::MAP_FAILED
            };
            if placed {
                slot.hits.fetch_add(1, Ordering::Release);
                return;
            }
        }
    }
    pass_on(signal, info, context);
}

/// Does what would have happened without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get();
    match before.map_or(libc::SIG_DFL, |b| b.sa_sigaction) {
        // SAFETY: putting the default back; returning runs into the same fault again, which then ends the process.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
        // SAFETY: the kernel would have called this very function with these very arguments.
        function => unsafe {
            if before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0) {
                let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(function);
                call(signal, info, context);
            } else {
                let call: extern "C" fn(libc::c_int) = std::mem::transmute(function);
                call(signal);
            }
        },
    }
}

/// Whether a way of access could end in SIGBUS because somebody put a handler over ours.
pub fn unguarded(access: Access) -> bool {
    access.is_mapped() && !in_place()
}
