//! The next thing is made while the caller works with the last one.
//!
//! A [`Prefetch`] owns a thread that calls a function again and again, one result ahead of the caller, or
//! only when it is asked: see [`Pace`]. Dropping it stops the thread and waits for it, so that nothing it was reading into outlives it. The
//! thread ends by itself when nobody takes its results for a while, and starts again on demand. A forked
//! child has no such thread: it finds out and makes its own. Where the system has no threads left (`ulimit -u`, the pids of
//! a container), the caller makes each thing himself.

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sys;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the caller looks for a signal while it waits.
const LOOK: Duration = Duration::from_millis(100);
/// A thread that nobody wants anything of for so long ends.
const IDLE: Duration = Duration::from_secs(5);

/// When work on the next thing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as the last one is taken: the caller has work of its own to do meanwhile.
    Ahead,
    /// When the caller asks for it: then all memory is free for it.
    OnDemand,
}

/// Makes the next thing, or says that there is none. Asks `Interrupt` now and then whether to go on.
pub trait Produce: Send + 'static {
    /// What is made.
    type Item: Send + 'static;

    /// The next one; `None` at the end. After an error it may be asked again.
    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Self::Item>>;
}

/// A producer that works one step ahead.
pub struct Prefetch<P: Produce> {
    shared: Arc<Shared<P>>,
    thread: Option<JoinHandle<()>>,
    generation: u64,
    /// What the thread said as it panicked: the producer is gone with it.
    panicked: Option<String>,
}

struct Shared<P: Produce> {
    desk: Mutex<Desk<P>>,
    changed: Condvar,
    stop: AtomicBool,
}

/// What the two sides pass to each other.
struct Desk<P: Produce> {
    /// The producer, while no thread has it.
    producer: Option<P>,
    /// What is ready: at most one, `Some(None)` at the end.
    #[allow(clippy::option_option)] // "not yet", "the end" and "here": an enum would only rename them
    ready: Option<Option<Result<P::Item>>>,
    /// Whether the next one is to be made.
    wanted: bool,
}

impl<P: Produce> std::fmt::Debug for Prefetch<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prefetch").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl<P: Produce> Prefetch<P> {
    /// Nothing starts before the first thing is asked for.
    pub fn new(producer: P) -> Self {
        let desk = Desk { producer: Some(producer), ready: None, wanted: false };
        let shared = Shared { desk: Mutex::new(desk), changed: Condvar::new(), stop: AtomicBool::new(false) };
        Self { shared: Arc::new(shared), thread: None, generation: sys::generation(), panicked: None }
    }

    /// Whether this process is a fork of the one that made it: then it cannot be used.
    pub fn is_parents(&self) -> bool {
        self.generation != sys::generation()
    }

    /// Begins with the first thing, which nobody waits for yet; whether there is a thread for it.
    pub fn begin(&mut self) -> bool {
        self.start();
        self.thread.is_some()
    }

    /// The next thing; work on the one after it begins at the `pace`.
    pub fn next(&mut self, pace: Pace, interrupt: Interrupt<'_>) -> Option<Result<P::Item>> {
        loop {
            if let Some(message) = &self.panicked {
                let what = format!("a reading thread of Lowtide panicked: {message}");
                return Some(Err(Error::Bug { what }));
            }
            let mut desk = self.shared.desk.lock().unwrap_or_else(PoisonError::into_inner);
            desk.wanted = desk.ready.is_none() || pace == Pace::Ahead;
            if let Some(ready) = desk.ready.take() {
                // After an error nothing is tried again before the caller asks: the world may have changed by then.
                let more = matches!(ready, Some(Ok(_))) && pace == Pace::Ahead;
                drop(desk);
                self.shared.changed.notify_all();
                if more {
                    self.start();
                }
                return ready;
            }
            if desk.producer.is_some() {
                drop(desk);
                self.start();
                if self.thread.is_none() {
                    return self.make_here(interrupt);
                }
                continue;
            }
            self.shared.changed.notify_all();
            let waited = self.shared.changed.wait_timeout(desk, LOOK);
            let empty = waited.unwrap_or_else(PoisonError::into_inner).0.ready.is_none();
            if empty {
                if let Err(error) = interrupt() {
                    return Some(Err(error));
                }
                // Whoever ended without a word has panicked: say so instead of waiting for ever.
                if self.thread.as_ref().is_none_or(JoinHandle::is_finished) && self.is_abandoned() {
                    let panic = self.thread.take().and_then(|thread| thread.join().err());
                    self.panicked = Some(panic.map_or_else(|| "no message".into(), message));
                }
            }
        }
    }

    /// Whether the thread ended with the producer in its hands.
    fn is_abandoned(&self) -> bool {
        let desk = self.shared.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.producer.is_none() && desk.ready.is_none()
    }

    /// Gives the producer to a thread, if it is at home. Where none can be started, it stays there.
    fn start(&mut self) {
        let Some(producer) = self.producer(Option::take) else { return };
        if let Some(old) = self.thread.take() {
            let _ = old.join(); // it put the producer back as its last act
        }
        // What a thread is to have is lost where there is none.
        let door = Arc::new(Mutex::new(Some(producer)));
        let take = |door: &Mutex<Option<P>>| door.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (shared, behind) = (self.shared.clone(), door.clone());
        let work = move || take(&behind).into_iter().for_each(|producer| shared.work(producer));
        match std::thread::Builder::new().name("lowtide-read".into()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => self.producer(|home| *home = take(&door)),
        }
    }

    /// The next thing, by the caller himself.
    fn make_here(&mut self, interrupt: Interrupt<'_>) -> Option<Result<P::Item>> {
        let mut producer = self.producer(Option::take)?;
        let made = producer.produce(interrupt);
        self.producer(|home| *home = Some(producer));
        made
    }

    fn producer<T>(&self, ask: impl FnOnce(&mut Option<P>) -> T) -> T {
        ask(&mut self.shared.desk.lock().unwrap_or_else(PoisonError::into_inner).producer)
    }
}

/// What a panic said.
fn message(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "no message".into(), |text| (*text).into()),
    }
}

impl<P: Produce> Shared<P> {
    fn work(&self, mut producer: P) {
        let go_on = || if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        loop {
            let made = producer.produce(&go_on);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let last = !matches!(made, Some(Ok(_)));
            let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
            desk.ready = Some(made);
            desk.wanted = false;
            if last {
                desk.producer = Some(producer); // at the end, or at an error: the caller decides
                self.changed.notify_all();
                return;
            }
            self.changed.notify_all();
            let rest = |desk: &mut Desk<P>| !desk.wanted && !self.stop.load(Ordering::Relaxed);
            let (mut desk, wait) =
                self.changed.wait_timeout_while(desk, IDLE, rest).unwrap_or_else(PoisonError::into_inner);
            if wait.timed_out() {
                desk.producer = Some(producer);
                return;
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl<P: Produce> Drop for Prefetch<P> {
    fn drop(&mut self) {
        if self.is_parents() {
            // Its thread is in another process, and its lock may be held by it for ever.
            std::mem::forget(std::mem::replace(&mut self.shared, Arc::new(Shared::nothing())));
            std::mem::forget(self.thread.take());
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The flag may have been set between the thread's look and its wait: tell it until it hears.
            while !thread.is_finished() {
                self.shared.changed.notify_all();
                std::thread::park_timeout(Duration::from_micros(200));
            }
            let _ = thread.join();
        }
    }
}

impl<P: Produce> Shared<P> {
    fn nothing() -> Self {
        let desk = Desk { producer: None, ready: None, wanted: false };
        Self { desk: Mutex::new(desk), changed: Condvar::new(), stop: AtomicBool::new(true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Counts up to `end`, fails once at `fails_at`, and counts how often it was asked.
    struct Count {
        next: u64,
        end: u64,
        fails_at: Option<u64>,
        asked: Arc<AtomicU64>,
    }

    impl Produce for Count {
        type Item = u64;

        fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<u64>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = interrupt() {
                return Some(Err(error));
            }
            if self.fails_at == Some(self.next) {
                self.fails_at = None;
                return Some(Err(Error::argument("once", "")));
            }
            (self.next < self.end).then(|| {
                self.next += 1;
                Ok(self.next - 1)
            })
        }
    }

    fn count(end: u64, fails_at: Option<u64>) -> (Prefetch<Count>, Arc<AtomicU64>) {
        let asked = Arc::new(AtomicU64::new(0));
        (Prefetch::new(Count { next: 0, end, fails_at, asked: asked.clone() }), asked)
    }

    #[test]
    fn everything_comes_once_and_in_order_and_the_end_stays_the_end() {
        let (mut prefetch, _) = count(1000, None);
        for i in 0..1000 {
            assert_eq!(prefetch.next(Pace::Ahead, &|| Ok(())).unwrap().unwrap(), i);
        }
        assert!(prefetch.next(Pace::Ahead, &|| Ok(())).is_none());
        assert!(prefetch.next(Pace::Ahead, &|| Ok(())).is_none());
    }

    #[test]
    fn an_error_comes_where_it_happened_and_work_goes_on_after_it() {
        let (mut prefetch, _) = count(5, Some(2));
        let mut seen = Vec::new();
        while let Some(answer) = prefetch.next(Pace::Ahead, &|| Ok(())) {
            seen.push(answer.ok());
        }
        assert_eq!(seen, [Some(0), Some(1), None, Some(2), Some(3), Some(4)]);
    }

    #[test]
    fn on_demand_nothing_is_made_that_nobody_asked_for() {
        let (mut prefetch, asked) = count(100, None);
        for i in 0..50 {
            assert_eq!(prefetch.next(Pace::OnDemand, &|| Ok(())).unwrap().unwrap(), i);
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(asked.load(Ordering::Relaxed), i + 1);
        }
        for i in 50..100 {
            let pace = if i % 3 == 0 { Pace::Ahead } else { Pace::OnDemand };
            assert_eq!(prefetch.next(pace, &|| Ok(())).unwrap().unwrap(), i);
        }
        assert!(prefetch.next(Pace::OnDemand, &|| Ok(())).is_none());
    }

    #[test]
    fn it_is_never_more_than_two_ahead() {
        let (mut prefetch, asked) = count(1000, None);
        for i in 0..50 {
            prefetch.next(Pace::Ahead, &|| Ok(()));
            std::thread::sleep(Duration::from_millis(1));
            assert!(asked.load(Ordering::Relaxed) <= i + 2, "one taken, one ready");
        }
    }

    #[test]
    fn ten_thousand_early_stops_leave_no_thread() {
        let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
        let before = threads();
        for i in 0..10_000u64 {
            let (mut prefetch, _) = count(100, None);
            for _ in 0..i % 4 {
                prefetch.next(Pace::Ahead, &|| Ok(()));
            }
        }
        // Other tests run beside this one: allow for their threads, not for ten thousand.
        assert!(threads() < before + 100);
    }

    #[test]
    fn a_panic_is_a_bug_of_ours_and_says_what_it_said_as_often_as_asked() {
        struct Broken(u64);
        impl Produce for Broken {
            type Item = u64;
            fn produce(&mut self, _: Interrupt<'_>) -> Option<Result<u64>> {
                self.0 += 1;
                assert!(self.0 < 3, "row {} is not there", self.0);
                Some(Ok(self.0))
            }
        }
        let mut prefetch = Prefetch::new(Broken(0));
        for i in 1..3 {
            assert_eq!(prefetch.next(Pace::Ahead, &|| Ok(())).unwrap().unwrap(), i);
        }
        for _ in 0..2 {
            let error = prefetch.next(Pace::Ahead, &|| Ok(())).unwrap().unwrap_err();
            assert!(matches!(error, Error::Bug { .. }));
            assert_eq!(
                error.to_string(),
                "a reading thread of Lowtide panicked: row 3 is not there\n\
                 hint: this is a bug in Lowtide, please report it with this message"
            );
        }
    }

    #[test]
    fn waiting_can_be_interrupted() {
        struct Slow;
        impl Produce for Slow {
            type Item = ();
            fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<()>> {
                loop {
                    std::thread::sleep(Duration::from_millis(5));
                    if let Err(error) = interrupt() {
                        return Some(Err(error));
                    }
                }
            }
        }
        let mut prefetch = Prefetch::new(Slow);
        let answer = prefetch.next(Pace::Ahead, &|| Err(Error::argument("Ctrl-C", "")));
        assert!(matches!(answer, Some(Err(Error::Argument { .. }))));
    }
}
