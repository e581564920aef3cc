//! The two threads that wait for a network, and the caller who waits for them.
//!
//! They are made when they are first needed. A forked child has none of its parent's threads: it makes its own, and does
//! not touch what its parent left it. The caller's own thread polls its work and copies what comes into place, so that
//! those two have nothing to do but wait; it looks for a signal twenty times a second.

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sys;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// How often somebody who waits looks for a signal.
const LOOK: Duration = Duration::from_millis(50);
/// Who waits for a network is hardly ever busy.
const THREADS: usize = 2;

/// The [`sys::generation`] that it belongs to, and the runtime.
static RUNTIME: Mutex<Option<(u64, Arc<Runtime>)>> = Mutex::new(None);

fn runtime() -> Result<Arc<Runtime>> {
    let known = || {
        sys::locked(&RUNTIME, |known| match known.take() {
            Some((generation, runtime)) if generation == sys::generation() => {
                *known = Some((generation, runtime.clone()));
                Some(runtime)
            }
            parents => {
                std::mem::forget(parents); // its threads are not here: nobody could end them
                None
            }
        })
    };
    if let Some(runtime) = known() {
        return Ok(runtime);
    }
    let new = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(4) // they look names up
        .thread_keep_alive(Duration::from_secs(5))
        .thread_name("lowtide-net")
        .enable_all()
        .build()
        .map_err(|error| Error::io(Path::new(""), "start threads that wait for the network", error))?;
    let new = Arc::new(new);
    // Two threads may have made one at the same time: the first stays.
    let mut mine = Some(new.clone());
    let first = sys::locked(&RUNTIME, |known| {
        let (_, first) = known.get_or_insert_with(|| (sys::generation(), new.clone()));
        if Arc::ptr_eq(first, &new) {
            mine = None;
        }
        first.clone()
    });
    drop(new);
    if let Some(Ok(spare)) = mine.map(Arc::try_unwrap) {
        spare.shutdown_background();
    }
    Ok(first)
}

/// Waits for `work` in the caller's thread.
///
/// # Errors
/// What it says; what `stop` says, in the middle of it; [`Error::Interrupted`] in a child that was forked meanwhile.
pub(super) fn wait<T: Send, F: Future<Output = Result<T>>>(
    stop: Interrupt<'_>,
    work: impl FnOnce() -> F + Send,
) -> Result<T> {
    stop()?;
    let runtime = runtime()?;
    let generation = sys::generation();
    let here = move || {
        runtime.block_on(async {
            let mut work = pin!(work());
            loop {
                if let Ok(answer) = tokio::time::timeout(LOOK, &mut work).await {
                    return answer;
                }
                if sys::generation() != generation {
                    return Err(Error::Interrupted);
                }
                stop()?;
            }
        })
    };
    if Handle::try_current().is_err() {
        return here();
    }
    // Somebody calls us from a runtime of his own, which lets nobody wait in its threads.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, here);
        let thread = thread.map_err(|e| Error::no_thread("lowtide-remote".as_ref(), "start a thread", e))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Where work goes on by itself while nobody waits for it.
///
/// # Errors
/// [`Error::Io`] where the system has no threads left.
pub(super) fn handle() -> Result<Handle> {
    Ok(runtime()?.handle().clone())
}

/// A rest between two attempts.
pub(super) async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}

/// What comes of `work` within some time; `None` where nothing has.
pub(super) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    tokio::time::timeout(time, work).await.ok()
}
