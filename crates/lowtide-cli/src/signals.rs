//! Being asked to end while something of ours lies about: noted, so that whoever made it removes it first.

use std::sync::atomic::{AtomicI32, Ordering};

static ASKED: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(number: libc::c_int) {
    ASKED.store(number, Ordering::Relaxed);
}

/// From now on Ctrl-C, `kill` and a closed terminal are only noted: the work looks at [`asked`] and ends.
pub fn catch() {
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores one atomic number, which is async-signal-safe, and lives for ever.
        unsafe { libc::signal(number, note as *const () as libc::sighandler_t) };
    }
}

/// The signal that asked us to end, if one did.
pub fn asked() -> Option<i32> {
    Some(ASKED.load(Ordering::Relaxed)).filter(|&number| number != 0)
}
