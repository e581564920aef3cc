//! An iterator that several threads may use, one at a time, and that a forked child may find in use.

use crate::error::unlocked;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How often a thread asks for the iterator while another one has it, and for signals.
const TURN: Duration = Duration::from_micros(50);
const SIGNALS: Duration = Duration::from_millis(100);

/// Something that is used by one thread at a time.
pub struct Turns<T> {
    inner: Mutex<T>,
    /// The process in which a thread has `inner` locked, or 0. After a fork that thread may not exist.
    holder: AtomicU32,
}

impl<T: Send> Turns<T> {
    pub fn new(inner: T) -> Self {
        Self { inner: Mutex::new(inner), holder: AtomicU32::new(0) }
    }

    /// Runs `f` on it. The lock is taken without the interpreter's, so that whoever holds it can come back to
    /// the interpreter; and it is asked for again and again, to look for signals meanwhile.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl Send + FnOnce(&mut T, lowtide::Interrupt<'_>) -> lowtide::Result<R>,
    ) -> PyResult<R> {
        let process = std::process::id();
        let orphan = AtomicBool::new(false);
        let answer = unlocked(py, |interrupt| {
            let mut asked = Instant::now();
            let mut inner = loop {
                if let Some(inner) = self.lock(process) {
                    break inner;
                }
                if ![0, process].contains(&self.holder.load(Ordering::Acquire)) {
                    orphan.store(true, Ordering::Relaxed);
                    return Err(lowtide::Error::Interrupted);
                }
                std::thread::sleep(TURN);
                if asked.elapsed() > SIGNALS {
                    interrupt()?;
                    asked = Instant::now();
                }
            };
            let answer = f(&mut inner, interrupt);
            let _gate = lowtide::sys::fork_gate();
            self.holder.store(0, Ordering::Release);
            drop(inner);
            answer
        });
        if orphan.into_inner() {
            return Err(PyRuntimeError::new_err(
                "another thread was inside this iterator when the process was forked, so that it cannot be used here\n\
                 hint: make a new one, and load the state that the parent's state_dict() gives",
            ));
        }
        answer
    }

    /// It, if no thread has it. Nobody forks between the lock and the note of who has it.
    fn lock(&self, process: u32) -> Option<MutexGuard<'_, T>> {
        let _gate = lowtide::sys::fork_gate();
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(inner)) => inner.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.holder.store(process, Ordering::Release);
        Some(inner)
    }
}
