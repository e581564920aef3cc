//! Watching from a thread of its own, beside the work that is watched.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::files::Files;
use super::recording::Recording;
use super::sampler::{Interval, Sampler};
use super::series::Sample;
use super::tree::Root;
use super::verdict::Verdict;
use crate::error::{Error, Result};

/// Watches a process tree until it is stopped.
///
/// ```
/// use lowtide::meter::{Files, Interval, Meter, Root};
///
/// let files = Files::new(&["auto".to_owned()]);
/// let meter = Meter::start(Root::Process(std::process::id()), files, Interval::Auto)?;
/// // … the work …
/// let recording = meter.stop(vec!["my work".to_owned()], None)?;
/// assert_eq!(recording.verdict.word.as_str(), "unknown"); // too short to tell
/// assert!(recording.peaks.anon > 0);
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Debug)]
pub struct Meter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

#[derive(Debug)]
struct Shared {
    /// Taken away when the meter stops.
    sampler: Mutex<Option<Sampler>>,
    wake: Condvar,
}

impl Shared {
    fn sampler(&self) -> MutexGuard<'_, Option<Sampler>> {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    /// Starts to watch; the first sample has been taken when this returns.
    pub fn start(root: Root, files: Files, interval: Interval) -> Result<Self> {
        let mut sampler = Sampler::new(root, files, interval)?;
        sampler.sample();
        sampler.look_around();
        let shared = Arc::new(Shared { sampler: Mutex::new(Some(sampler)), wake: Condvar::new() });
        let thread = std::thread::Builder::new().name("lowtide-meter".to_owned());
        let inside = Arc::clone(&shared);
        let thread = thread.spawn(move || watch(&inside)).map_err(|source| {
            Error::no_thread("/proc/self".as_ref(), "start a thread to watch from", source)
        })?;
        Ok(Self { shared, thread: Some(thread), process: std::process::id() })
    }

    /// The verdict if the run ended now.
    pub fn so_far(&self) -> Option<Verdict> {
        self.shared.sampler().as_ref().map(Recording::so_far)
    }

    /// The last sample.
    pub fn latest(&self) -> Option<Sample> {
        self.shared.sampler().as_ref().map(|sampler| *sampler.latest())
    }

    /// Stops, and judges what was seen. Growth of up to `tolerance` bytes counts as none; `None` leaves
    /// that to the verdict.
    pub fn stop(mut self, command: Vec<String>, tolerance: Option<u64>) -> Result<Recording> {
        self.check_process()?;
        let sampler = self.shared.sampler().take();
        self.join();
        // It is there: only stopping takes it, and stopping takes the meter itself.
        let sampler = sampler.ok_or_else(|| Error::argument("this meter has been stopped", ""))?;
        Ok(Recording::new(sampler, command, None, tolerance))
    }

    /// After a fork the thread is the parent's, and so may be the lock.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::argument(
            format!("this meter was started by process {}", self.process),
            "a child of a fork is watched by its parent; start a meter of its own for its own figures",
        ))
    }

    fn join(&mut self) {
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its samples are still good.
            let _ = thread.join();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if self.check_process().is_ok() {
            self.shared.sampler().take();
            self.join();
        } else {
            // Joining would wait for a thread that this process does not have.
            std::mem::forget(self.thread.take());
        }
    }
}

fn watch(shared: &Shared) {
    let mut guard = shared.sampler();
    while let Some(sampler) = guard.as_mut() {
        let pause = sampler.pause();
        guard = shared.wake.wait_timeout(guard, pause).unwrap_or_else(PoisonError::into_inner).0;
        if let Some(sampler) = guard.as_mut() {
            sampler.sample();
            sampler.look_around();
        }
    }
}
