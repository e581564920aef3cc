//! The two well-known fixes, made to keep their promise: a map that never shows more than one window.
//!
//! One fault can map 2 MiB, so counting rows bounds nothing. These stores walk the sorted reads through
//! windows of address range, aligned to 2 MiB, and take each window away before the next one: `remap`
//! by unmapping it, `advise` by `MADV_DONTNEED`. At most [`WINDOWS`] of them exist at once.

use super::map::{MAPPED, Mapping, Renew, inside};
use super::{Cost, Read, Source, Store};
use crate::error::{Error, Result};
use crate::sys;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// How many windows of one store may be in use at once, by as many threads.
pub const WINDOWS: u64 = 2;

/// `advise` keeps its map, and page tables stay when pages go: 2 MiB of them for 1 GiB walked. After so
/// many bytes the file is mapped anew, which frees them.
const WALKED: u64 = 4 << 30;

/// The window for a budget: an eighth of it, in whole 2 MiB.
///
/// # Errors
/// [`Error::Budget`] where an eighth is less than 2 MiB.
pub fn window_for(budget: u64) -> Result<u64> {
    match budget / 8 / sys::HUGE * sys::HUGE {
        0 => Err(Error::Budget {
            what: "mapped access".into(),
            needs: 8 * sys::HUGE,
            limit: budget,
            hint: "one page fault can map 2 MiB; access=\"read\" works in any budget".into(),
        }),
        window => Ok(window),
    }
}

/// Hands out the right to have a window open.
#[derive(Debug)]
struct Turns {
    free: Mutex<u64>,
    freed: Condvar,
}

impl Turns {
    fn new() -> Self {
        Self { free: Mutex::new(WINDOWS), freed: Condvar::new() }
    }

    fn take<T>(&self, f: impl FnOnce() -> T) -> T {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        let answer = f();
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
        answer
    }
}

/// Walks `reads` window by window. `f` gets each window's range of the file and the reads that touch it.
fn walk(
    source: &Source,
    window: u64,
    reads: &mut [Read<'_>],
    mut f: impl FnMut(Range<u64>, &mut [Read<'_>]) -> Result<()>,
) -> Result<()> {
    inside(source, reads)?;
    if !reads.is_sorted_by_key(|r| r.offset) {
        reads.sort_unstable_by_key(|r| r.offset);
    }
    let mut first = 0;
    let mut from = 0;
    while first < reads.len() {
        if reads[first].end() <= from || reads[first].into.is_empty() {
            first += 1;
            continue;
        }
        let start = reads[first].offset.max(from) / sys::HUGE * sys::HUGE;
        let end = start.saturating_add(window);
        let touched = first + reads[first..].partition_point(|r| r.offset < end);
        // The last window ends with the file: pages behind it would only be an invitation to SIGBUS.
        f(start..end.min(source.len()), &mut reads[first..touched])?;
        from = end;
    }
    Ok(())
}

/// Maps each window anew.
#[derive(Debug)]
pub struct RemapStore {
    source: Arc<Source>,
    window: u64,
    turns: Turns,
}

impl RemapStore {
    /// With windows of `window` bytes, a multiple of 2 MiB; see [`window_for`].
    pub fn new(source: Arc<Source>, window: u64) -> Self {
        Self { source, window: window.max(sys::HUGE) / sys::HUGE * sys::HUGE, turns: Turns::new() }
    }
}

impl Store for RemapStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        walk(&self.source, self.window, reads, |range, touched| {
            self.turns.take(|| {
                let mapping = Mapping::new(&self.source, range.clone())?;
                for read in &mut *touched {
                    mapping.copy(read, &range);
                }
                mapping.check(0, touched)
            })
        })
    }

    fn cost(&self) -> Cost {
        MAPPED
    }
}

/// Keeps one map and drops its pages behind the reader.
#[derive(Debug)]
pub struct AdviseStore {
    mapping: Mapping,
    source: Arc<Source>,
    window: u64,
    turns: Turns,
    walked: AtomicU64,
}

impl AdviseStore {
    /// With windows of `window` bytes, a multiple of 2 MiB; see [`window_for`].
    pub fn new(source: &Arc<Source>, window: u64) -> Result<Self> {
        Ok(Self {
            mapping: Mapping::new(source, 0..source.len())?,
            source: source.clone(),
            window: window.max(sys::HUGE) / sys::HUGE * sys::HUGE,
            turns: Turns::new(),
            walked: AtomicU64::new(0),
        })
    }
}

impl Store for AdviseStore {
    fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
        self.mapping.renew(Renew::IfHit)?;
        walk(&self.source, self.window, reads, |range, touched| {
            self.turns.take(|| {
                let before = self.mapping.hits();
                for read in &mut *touched {
                    self.mapping.copy(read, &range);
                }
                self.mapping.drop_pages(range.clone());
                self.mapping.check(before, touched)
            })?;
            if self.walked.fetch_add(range.end - range.start, Ordering::Relaxed) >= WALKED {
                self.walked.store(0, Ordering::Relaxed);
                self.mapping.renew(Renew::Always)?;
            }
            Ok(())
        })
    }

    fn cost(&self) -> Cost {
        MAPPED
    }
}
