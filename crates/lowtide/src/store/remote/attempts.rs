//! How often a request is made again, and when there is no hope: the same for what is read and what is written.

use super::client::Client;
use super::pace::Pace;
use super::runtime::rest;
use super::trouble::Trouble;
use crate::error::Result;
use crate::sys;
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

/// A body that moves more slowly than this is asked for, or sent, again: 256 KiB/s, but never before [`PATIENCE`].
pub(super) const SLOWEST: u64 = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(30);
/// Rests between attempts, from the first to the longest.
const RESTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));
/// So many attempts reach a server that never answered, and so many get an answer that is none.
const HOPES: u32 = 3;

/// How long one attempt to move so many bytes may take.
pub(super) fn patience(bytes: u64) -> Duration {
    PATIENCE.max(Duration::from_secs(bytes / SLOWEST))
}

/// Attempts at one thing.
pub(super) struct Attempts<'a> {
    client: &'a Client,
    url: &'a Path,
    what: &'static str,
    timeout: Duration,
    began: Instant,
    made: u32,
    /// Since something came.
    in_vain: u32,
    came: u64,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(client: &'a Client, url: &'a Path, what: &'static str, timeout: Duration) -> Self {
        Self { client, url, what, timeout, began: Instant::now(), made: 0, in_vain: 0, came: 0 }
    }

    /// How much time there is.
    pub(super) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }

    /// One has failed: rests before the next. `progress` is a number that grows with what came: as long as it does, there
    /// is hope.
    ///
    /// # Errors
    /// Where another one would be no use, or there is no time left for it.
    pub(super) async fn failed(&mut self, trouble: Trouble, progress: u64) -> Result<()> {
        self.made += 1;
        self.in_vain = if progress > self.came { 1 } else { self.in_vain + 1 };
        self.came = progress;
        if trouble.is_throttled() {
            sys::locked(&self.client.pace, Pace::throttled);
        }
        let hopeless = match &trouble {
            Trouble::Final(_) => true,
            Trouble::Unreached(_) => !self.client.was_reached() && self.in_vain >= HOPES,
            Trouble::Nonsense(_) | Trouble::Refused(_) => self.in_vain >= HOPES,
            _ => false,
        };
        let pause = pause(self.in_vain, &trouble, self.began);
        if hopeless || self.began.elapsed() + pause >= self.timeout {
            return Err(trouble.given_up(self.url, self.what, self.made, self.began.elapsed()));
        }
        log::info!("{}: {trouble:?}: another attempt in {:.1} s", self.url.display(), pause.as_secs_f64());
        rest(pause).await;
        Ok(())
    }
}

/// Makes attempts until one succeeds, another one would be no use, or there is no time left.
pub(super) async fn attempts<T>(
    client: &Client,
    url: &Path,
    what: &'static str,
    timeout: Duration,
    progress: &Cell<u64>,
    mut attempt: impl AsyncFnMut(Duration) -> Result<T, Trouble>,
) -> Result<T> {
    let mut attempts = Attempts { came: progress.get(), ..Attempts::new(client, url, what, timeout) };
    loop {
        match attempt(attempts.left()).await {
            Ok(answer) => {
                client.answered();
                return Ok(answer);
            }
            Err(trouble) => attempts.failed(trouble, progress.get()).await?,
        }
    }
}

/// How long to rest: twice as long each time, as the server says where it does, and not all at the same time.
fn pause(in_vain: u32, trouble: &Trouble, began: Instant) -> Duration {
    let doubled = RESTS.0 * 2_u32.saturating_pow(in_vain.saturating_sub(1)).min(1 << 10);
    let said = if let Trouble::Throttled(_, Some(said)) = trouble { *said } else { Duration::ZERO };
    let spread = f64::from(began.elapsed().subsec_nanos() % 1000) / 1000.0;
    said.max(doubled.min(RESTS.1).mul_f64(0.75 + spread / 2.0))
}
