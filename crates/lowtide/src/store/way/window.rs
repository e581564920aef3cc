//! The two well-known fixes, made to keep their promise: a map that never shows more than one window.
//!
//! One fault can map 2 MiB, so counting rows bounds nothing. These stores walk the sorted reads through
//! windows of address range, aligned to 2 MiB, and take each window away before the next one: `remap`
//! by unmapping it, `advise` by `MADV_DONTNEED`. At most [`WINDOWS`] of them exist at once. Where the page
//! cache is to be left as found, windows that are not in it are read instead.

use super::map::{self, Mapping, inside};
use super::read::ReadStore;
use crate::door::{ACCESS, Words};
use crate::error::{Error, Result};
use crate::store::{Cache, How, Nature, OneFile, Read, Report, Store, sort};
use crate::sys;
use crate::sys::far::Far;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many windows of one store may be in use at once, by as many threads.
pub const WINDOWS: u64 = 2;

/// `advise` keeps its map, and page tables stay when pages go: 2 MiB of them for 1 GiB walked. After so
/// many bytes the file is mapped anew, which frees them.
const WALKED: u64 = 4 << 30;

/// Larger windows gain nothing: mapping 8 MiB and letting go of it takes two calls, reading from it hundreds
/// of faults.
const LARGEST: u64 = 8 << 20;

/// The window for a budget: an eighth of it at most, in whole 2 MiB.
///
/// # Errors
/// [`Error::Budget`] where an eighth is less than 2 MiB.
pub fn window_for(budget: u64) -> Result<u64> {
    match (budget / 8).min(LARGEST) / sys::HUGE * sys::HUGE {
        0 => Err(Error::Budget {
            what: "mapped access".into(),
            needs: 8 * sys::HUGE,
            limit: budget,
            hint: Words::from("one page fault can map 2 MiB; ") + ACCESS.is("read") + " works in any budget",
        }),
        window => Ok(window),
    }
}

/// Hands out the right to have a window open.
///
/// The process is part of the count: a thread that had a window open when another one forked does not
/// exist in the child, and would never give it back. Without a lock, which the child could find locked.
#[derive(Debug, Default)]
struct Turns {
    /// The process id in the upper half, its open windows in the lower.
    open: AtomicU64,
}

impl Turns {
    fn take<T>(&self, f: impl FnOnce() -> T) -> T {
        let process = u64::from(std::process::id()) << 32;
        let one_more = |open: u64| match if open >> 32 == process >> 32 { open } else { process } {
            open if open & 0xFFFF_FFFF < WINDOWS => Some(open + 1),
            _ => None,
        };
        while self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            std::thread::sleep(WAIT);
        }
        let answer = f();
        self.open.fetch_sub(1, Ordering::AcqRel);
        answer
    }
}

/// How often a thread looks for its turn: short against the walk through a window, some 100 µs and more.
const WAIT: Duration = Duration::from_micros(50);

/// Walks `reads` window by window. `f` gets each window's range of the file and the reads that touch it.
fn walk(
    source: &OneFile,
    window: u64,
    reads: &mut [Read<'_>],
    mut f: impl FnMut(Range<u64>, &mut [Read<'_>]) -> Result<()>,
) -> Result<()> {
    inside(source, reads)?;
    sort(reads);
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

/// Reads through windows.
#[derive(Debug)]
pub(super) struct WindowStore {
    source: Arc<OneFile>,
    window: u64,
    turns: Turns,
    /// Where windows are parts of one map, whose pages are dropped behind the reader; else each is mapped anew.
    held: Option<Mapping>,
    /// Bytes that went by since it was mapped.
    walked: AtomicU64,
    /// Where the page cache keeps only what was there before us. A fault reads around itself, as far as the device's
    /// read_ahead_kb says and past the window's end, and whose pages those are cannot be told afterwards. So only
    /// windows that are cached whole are looked at through the map; the others are read, without a trace.
    around: Option<ReadStore>,
}

impl WindowStore {
    /// Maps each window anew: of `window` bytes, a multiple of 2 MiB; see [`window_for`].
    pub(super) fn remap(source: &Arc<OneFile>, window: u64, cache: Cache) -> Self {
        let around = (cache == Cache::Drop).then(|| ReadStore::new(source.clone(), cache));
        let (source, turns, walked) = (source.clone(), Turns::default(), AtomicU64::new(0));
        Self { source, window, turns, held: None, walked, around }
    }

    /// Keeps one map and drops its pages behind the reader.
    pub(super) fn advise(source: &Arc<OneFile>, window: u64, cache: Cache) -> Result<Self> {
        let held = Some(Mapping::new(source, 0..source.len())?);
        Ok(Self { held, ..Self::remap(source, window, cache) })
    }

    /// Reads what lies in one window.
    fn read_window(&self, range: &Range<u64>, touched: &mut [Read<'_>], far: Option<&Far>) -> Result<()> {
        let len = range.end - range.start;
        let cached = || sys::cached_bytes(&*self.source, range.start, len).is_ok_and(|cached| cached >= len);
        match (&self.around, &self.held) {
            (Some(around), _) if !cached() => touched
                .iter_mut()
                .try_for_each(|read| around.read(&mut [read.clip(range)], How::default()).map(drop)),
            (_, Some(held)) => {
                let answer = held.read(touched, range, far);
                held.drop_pages(range.clone());
                answer
            }
            (_, None) => Mapping::new(&self.source, range.clone())?.read(touched, range, far),
        }
    }

    /// Frees the page tables now and then.
    fn walked(&self, bytes: u64) -> Result<()> {
        if let Some(held) = &self.held
            && self.walked.fetch_add(bytes, Ordering::Relaxed) >= WALKED
        {
            self.walked.store(0, Ordering::Relaxed);
            held.renew()?;
        }
        Ok(())
    }
}

impl Store for WindowStore {
    fn nature(&self) -> Nature {
        nature()
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        let far = how.far.then(Far::default);
        self.held.as_ref().map_or(Ok(()), Mapping::renew_if_hit)?;
        walk(&self.source, self.window, reads, |range, touched| {
            self.turns.take(|| self.read_window(&range, touched, far.as_ref()))?;
            self.walked(range.end - range.start)
        })?;
        Ok(Report::default())
    }
}

/// What reading through windows is like: as many threads as there may be windows.
pub(super) fn nature() -> Nature {
    Nature::plain(map::MAPPED, sys::cores().min(usize::try_from(WINDOWS).unwrap_or(1)))
}
