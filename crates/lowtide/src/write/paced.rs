//! A file that is written at any place, with few dirty pages.
//!
//! What a program writes stays in the page cache, dirty, until the kernel gets round to it: gigabytes of it, which
//! a cgroup counts and, on some filesystems, cannot take back. So what is dirty is known here, range by range. Once
//! it makes up a window, writing it back is started, and waited for two windows later: at most three windows and a
//! piece are dirty. Under `drop` they leave the page cache too; and what is written in order, a window of it or more, does not
//! come there at all: it goes past (`past`).

use super::past::Past;
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Cache;
use crate::sys;
use rustix::fs::FallocateFlags;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is written to the file at once, and with it how far a window can be exceeded.
const PIECE: usize = 1 << 20;
/// What is written back at once where the budget has room: a multiple of [`sys::HUGE`], so that whole folios can be
/// dropped.
pub(super) const WINDOW: u64 = 8 << 20;
const _: () = assert!(WINDOW.is_multiple_of(sys::HUGE) && WINDOW >= PIECE as u64);
/// How many windows are dirty at most, the piece included.
pub(super) const WINDOWS: u64 = 4;
/// How much room the disk keeps ahead of a file that grows: as much as there is already, from this on to that.
const LEAST_AHEAD: u64 = 16 << 20;
const MOST_AHEAD: u64 = 256 << 20;
/// More ranges than this are sent on their way, waited for and dropped together. A table that is turned writes hundreds
/// of short ones a window, and three calls for each took longer than the disk.
const FEW: usize = 16;
/// How long nobody is asked whether to go on: asking takes Python's lock.
const ASK: Duration = Duration::from_millis(50);

/// From a byte to a byte: whole pages.
type Range = std::ops::Range<u64>;

/// A file that is written at any place, with few dirty pages.
#[derive(Debug)]
pub(super) struct Paced {
    file: File,
    path: PathBuf,
    cache: Cache,
    window: u64,
    /// What was written and is not on its way: start and end, none touching another.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
    /// What is on its way to the disk, the oldest first.
    going: VecDeque<Vec<Range>>,
    /// Whether this file's pages, all of them, came from us.
    all_ours: bool,
    /// Whether the filesystem holds pages, dirty or not yet confirmed, until it is synced.
    network: bool,
    /// Whether the system lost something of ours: it says so once, and would not at the end.
    lost: bool,
    asked: Instant,
    room: Room,
    /// Where buffers for what goes past the page cache come from; `None` where nothing may.
    buffers: Option<Budget>,
    /// What goes past the page cache, from the first stretch on.
    past: Option<Past>,
    /// One past what was last written.
    last: u64,
}

/// Where the disk keeps room for what will be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The file does not grow: where it can be kept, it was kept before.
    Known,
    /// The file grows: up to there.
    Ahead(u64),
    /// The disk keeps none ahead, or will not.
    Nowhere,
}

impl Paced {
    /// Over a file that was opened, of which we made every byte or not.
    pub(super) fn new(file: File, path: &Path, cache: Cache, window: u64, all_ours: bool) -> Self {
        let network = sys::is_network(&file);
        Self {
            file,
            path: path.to_owned(),
            cache,
            window,
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
            going: VecDeque::new(),
            all_ours,
            network,
            lost: false,
            asked: Instant::now(),
            room: Room::Known,
            buffers: None,
            past: None,
            last: 0,
        }
    }

    /// What is written in order may go past the page cache where that is to keep nothing, through two windows of memory
    /// that are leased already.
    pub(super) fn go_past(&mut self, budget: &Budget) {
        if !self.network && self.window >= PIECE as u64 {
            self.buffers = Some(budget.clone());
        }
    }

    /// Has the disk keep room ahead of what is written: a file that grows is written as fast then as one whose size was
    /// known. What is left over goes when the file is cut to its size.
    pub(super) fn reserve_ahead(&mut self) {
        self.room = Room::Ahead(0);
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn cache(&self) -> Cache {
        self.cache
    }

    /// From now on nothing stays in the page cache, and what was left there goes.
    pub(super) fn drop_from_now_on(&mut self) {
        self.cache = Cache::Drop;
        if self.all_ours {
            self.forget(0..u64::MAX);
        }
    }

    /// Writes at a place.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it, such as a full disk: a part may be written then. What `interrupt` says.
    pub(super) fn write_at(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let (mut at, mut rest) = (at, bytes);
        // What waits ends where something else begins.
        if self.past.as_ref().is_some_and(|past| past.end() != at) {
            self.end_past(interrupt)?;
        }
        if self.goes_past(at, bytes.len())? {
            (at, rest) = self.write_past(at, rest, interrupt)?;
        }
        let end = at + rest.len() as u64;
        self.through(at, rest, interrupt)?;
        self.last = end;
        Ok(())
    }

    /// The same through the page cache.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub(super) fn write_through(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        self.past_is_there()?;
        self.through(at, bytes, interrupt)
    }

    /// Whether bytes for `at` go past the page cache: those that follow what was written last, and long ones; but not the
    /// beginning of a file, for which no buffers need be made.
    fn goes_past(&mut self, at: u64, len: usize) -> Result<bool> {
        let begins = if self.room == Room::Known { self.window } else { self.window.max(LEAST_AHEAD) };
        if self.cache == Cache::Keep || at < begins || !(at == self.last || len >= PIECE) {
            return Ok(false);
        }
        if self.room == Room::Nowhere && self.past.is_none() {
            return Ok(false);
        }
        if let (None, Some(budget)) = (&self.past, self.buffers.take()) {
            self.past = Past::new(&self.file, usize::try_from(self.window).unwrap_or(PIECE), &budget);
            self.settle()?; // two windows of what may be dirty are buffers now
        }
        Ok(self.past.as_ref().is_some_and(|past| !past.goes_through()))
    }

    /// Writes past the page cache, but for what comes before the first page that is whole. Says what is left, where that
    /// turns out to be impossible.
    fn write_past<'b>(
        &mut self,
        mut at: u64,
        mut bytes: &'b [u8],
        interrupt: Interrupt<'_>,
    ) -> Result<(u64, &'b [u8])> {
        while let (Some(past), false) = (&mut self.past, bytes.is_empty()) {
            if past.end() != at {
                let page = past.page();
                let before = usize::try_from(at.next_multiple_of(page) - at).unwrap_or(0).min(bytes.len());
                past.begin(at.next_multiple_of(page));
                self.through(at, &bytes[..before], interrupt)?;
                (at, bytes) = (at + before as u64, &bytes[before..]);
                continue;
            }
            let piece = &bytes[..bytes.len().min(PIECE)];
            // Where the disk keeps no room ahead, a full one is an error of the very rows that have none.
            if past.goes_through() || !self.has_room(at + piece.len() as u64) {
                self.end_past(interrupt)?;
                break;
            }
            self.ask(interrupt)?;
            let taken = self.by_past(|past| past.take(piece))?.unwrap_or(0);
            (at, bytes) = (at + taken as u64, &bytes[taken..]);
        }
        Ok((at, bytes))
    }

    /// Nothing waits any more to go past the page cache: whole pages are on their way, and what is left goes through it.
    fn end_past(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        let Some((at, rest)) = self.by_past(Past::end_here)? else { return Ok(()) };
        let answer = self.through(at, &rest, interrupt);
        if let (Err(_), Some(past)) = (&answer, &mut self.past) {
            let _ = past.take(&rest); // it waits again, in a buffer that has room
        }
        answer
    }

    /// All that goes past the page cache is in the file.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it: what could not be written is kept, and tried again with the next call.
    fn past_is_there(&mut self) -> Result<()> {
        self.end_past(&|| Ok(()))?;
        self.by_past(Past::settle).map(|_| ())
    }

    /// Does something with what goes past the page cache; `None` where nothing does. Where a device does not like memory or
    /// places so, or a sandbox forbids it by now, what waits goes through.
    fn by_past<T>(&mut self, mut work: impl FnMut(&mut Past) -> io::Result<T>) -> Result<Option<T>> {
        let Some(past) = &mut self.past else { return Ok(None) };
        let mut answer = work(past);
        if let Err(error) = &answer
            && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM | libc::EACCES))
            && !past.goes_through()
        {
            answer = self.file.try_clone().and_then(|file| past.go_through(file)).and_then(|()| work(past));
        }
        answer.map(Some).map_err(|error| self.wrong(error))
    }

    /// Asks now and then whether to go on.
    fn ask(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        if self.asked.elapsed() > ASK {
            interrupt()?;
            self.asked = Instant::now();
        }
        Ok(())
    }

    /// Writes through the page cache: what is on its way past it comes first.
    fn through(&mut self, mut at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let range = at..at + bytes.len() as u64;
        if self.past.as_ref().is_some_and(|past| past.is_writing(&range)) {
            self.by_past(Past::settle)?;
        }
        for piece in bytes.chunks(PIECE.min(usize::try_from(self.window).unwrap_or(PIECE))) {
            self.ask(interrupt)?;
            let end = at + piece.len() as u64;
            self.make_room(end);
            self.mark(at..end);
            self.file.write_all_at(piece, at).map_err(|error| self.wrong(error))?;
            at = end;
            if self.dirty_bytes >= self.window {
                self.start(end)?;
                // Two windows of the memory are buffers, where there are any.
                let most = if self.past.is_some() { 0 } else { 2 };
                while self.going.len() > most {
                    self.settle_oldest()?;
                }
            }
        }
        Ok(())
    }

    /// What comes next of a file that grows goes to its end, behind which an append that failed may have left something.
    pub(super) fn turn_to(&mut self, end: u64) {
        if self.room != Room::Known && self.past.as_ref().is_some_and(|past| past.end() > end) {
            self.forget_behind(end);
        }
    }

    /// Forgets what waits behind the end of what counts: an append that failed left it.
    pub(super) fn forget_behind(&mut self, end: u64) {
        if let Some(past) = &mut self.past {
            past.cut(end);
        }
    }

    /// Ends the file after so many bytes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub(super) fn cut(&mut self, end: u64) -> Result<()> {
        self.forget_behind(end);
        // Twice: a full disk has room again, for what waits in whole pages.
        let cut = |paced: &Self| paced.file.set_len(end).map_err(|error| paced.wrong(error));
        cut(self)?;
        if let Room::Ahead(until) = &mut self.room {
            *until = end.min(*until); // what was kept behind it is anybody's again
        }
        self.past_is_there()?;
        cut(self)
    }

    /// Whether the disk has room for what ends there: that of a file which does not grow was there before.
    fn has_room(&mut self, end: u64) -> bool {
        self.make_room(end);
        match self.room {
            Room::Known => true,
            Room::Ahead(until) => until >= end,
            Room::Nowhere => false,
        }
    }

    /// Keeps the room ahead of a file that grows: a part of what there is already, within bounds.
    fn make_room(&mut self, end: u64) {
        let Room::Ahead(from) = self.room else { return };
        if end <= from || end <= LEAST_AHEAD {
            return;
        }
        let from = if from == 0 { end / LEAST_AHEAD * LEAST_AHEAD } else { from };
        let step = from.clamp(LEAST_AHEAD, MOST_AHEAD);
        // Nobody sees how long a file is that is all ours, and where its end stays where it is, writing is faster.
        let how = if self.all_ours { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        // Asked before: a filesystem would fill itself up before it said no.
        let is_there = sys::free_space(&self.file).ok().is_none_or(|free| free >= step);
        let kept = is_there
            && loop {
                match rustix::fs::fallocate(&self.file, how, from, step) {
                    Err(rustix::io::Errno::INTR) => {}
                    answer => break answer.is_ok(),
                }
            };
        // A disk that has no room for so much may still have room for what comes, and some filesystems cannot.
        self.room = if kept { Room::Ahead(from + step) } else { Room::Nowhere };
    }

    /// Waits until all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it, now or for anything that it could not write since the last time.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.past_is_there()?;
        let synced = self.file.sync_data();
        self.check(synced)?;
        if self.lost {
            let lost = io::Error::other("a part that was written before did not reach the disk");
            return Err(self.wrong(lost));
        }
        self.let_go();
        Ok(())
    }

    /// Has what is dirty written back, and waits. This makes nothing durable: see [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.start(u64::MAX)?;
        while !self.going.is_empty() {
            self.settle_oldest()?;
        }
        Ok(())
    }

    /// Remembers what is dirty, as whole pages.
    fn mark(&mut self, range: Range) {
        let page = sys::page() as u64;
        let (mut start, mut end) = (range.start / page * page, range.end.next_multiple_of(page));
        while let Some((&from, &to)) = self.dirty.range(..=end).next_back().filter(|&(_, &to)| to >= start) {
            self.dirty.remove(&from);
            self.dirty_bytes -= to - from;
            (start, end) = (start.min(from), end.max(to));
        }
        self.dirty.insert(start, end);
        self.dirty_bytes += end - start;
    }

    /// Sends what is dirty on its way, but the end of the range that was last written, at `last`: what is written
    /// next goes on there, and would find half of its first page gone.
    fn start(&mut self, last: u64) -> Result<()> {
        let align = if self.window >= 2 * sys::HUGE { sys::HUGE } else { sys::page() as u64 };
        let mut sent = Vec::with_capacity(self.dirty.len());
        let mut answer = Ok(());
        self.dirty_bytes = 0;
        for (from, to) in std::mem::take(&mut self.dirty) {
            let cut = if (from..=to).contains(&last) { to / align * align } else { to };
            let cut = if cut > from { cut } else { to };
            if cut < to {
                self.dirty.insert(cut, to);
                self.dirty_bytes += to - cut;
            }
            sent.push(from..cut);
        }
        if let (true, [first, .., last]) = (self.all_ours && sent.len() > FEW, &*sent) {
            // The kernel finds what is dirty between them faster than it is called: nobody else's pages are there.
            let span = first.start..last.end;
            sent = Vec::from([span]);
        }
        for range in &sent {
            if !self.network {
                answer = answer.and(self.write_back(range.clone(), sys::Wait::No));
            }
        }
        self.going.push_back(sent);
        answer
    }

    fn settle_oldest(&mut self) -> Result<()> {
        if self.network {
            return self.sync();
        }
        for range in self.going.pop_front().into_iter().flatten() {
            self.write_back(range.clone(), sys::Wait::Yes)?;
            self.forget(range);
        }
        Ok(())
    }

    fn write_back(&mut self, range: Range, wait: sys::Wait) -> Result<()> {
        match sys::write_back(&self.file, range.start, range.end - range.start, wait) {
            // A filesystem that cannot do this writes back by itself.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ESPIPE | libc::EINVAL | libc::ENOSYS)) =>
            {
                Ok(())
            }
            answer => self.check(answer),
        }
    }

    /// Nothing is dirty any more.
    fn let_go(&mut self) {
        let was: Vec<Range> = self.going.drain(..).flatten().collect();
        let dirty = std::mem::take(&mut self.dirty);
        self.dirty_bytes = 0;
        if self.all_ours {
            // Folios that lie across two ranges go too.
            self.forget(0..u64::MAX);
            return;
        }
        was.into_iter()
            .chain(dirty.into_iter().map(|(from, to)| from..to))
            .for_each(|range| self.forget(range));
    }

    /// Lets clean pages go, where that was asked for.
    fn forget(&self, range: Range) {
        if self.cache == Cache::Drop {
            // A length of 0 is all the rest.
            let len = if range.end == u64::MAX { 0 } else { range.end - range.start };
            let len = std::num::NonZero::new(len);
            let _ = rustix::fs::fadvise(&self.file, range.start, len, rustix::fs::Advice::DontNeed);
        }
    }

    /// The system tells of a page that it could not write once, to whoever asks first.
    fn check(&mut self, answer: io::Result<()>) -> Result<()> {
        answer.map_err(|error| {
            self.lost = true;
            self.wrong(error)
        })
    }

    fn wrong(&self, error: io::Error) -> Error {
        super::wrong(&self.path, "write the file", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: u64 = 4096;

    fn paced(folder: &Path, window: u64, cache: Cache) -> Paced {
        let path = folder.join("file");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        Paced::new(file, &path, cache, window, true)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// What is remembered is exactly the pages that were written to, against a set of page numbers.
        #[test]
        fn dirty_pages_are_known(writes in prop::collection::vec((0_u64..1 << 20, 1_u64..40_000), 1..60)) {
            let folder = tempfile::tempdir().unwrap();
            let mut paced = paced(folder.path(), 1 << 40, Cache::Keep);
            let mut pages = std::collections::BTreeSet::new();
            for (at, len) in writes {
                paced.mark(at..at + len);
                pages.extend(at / PAGE..=(at + len - 1) / PAGE);
            }
            let known: Vec<u64> = paced.dirty.iter().flat_map(|(from, to)| from / PAGE..to / PAGE).collect();
            prop_assert_eq!(&known, &pages.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(paced.dirty_bytes, pages.len() as u64 * PAGE);
            for (a, b) in paced.dirty.iter().zip(paced.dirty.iter().skip(1)) {
                prop_assert!(a.1 < b.0, "ranges are apart");
            }
        }

        /// Bytes at any places, in any order and size, against a vector.
        #[test]
        fn bytes_are_where_they_were_put(
            writes in prop::collection::vec((0_usize..300_000, 1_usize..200_000, any::<u8>()), 1..20),
            window in 1_u64..64,
            drops: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let cache = if drops { Cache::Drop } else { Cache::Keep };
            let mut paced = paced(folder.path(), window * PAGE, cache);
            let mut wanted = Vec::new();
            for (at, len, byte) in writes {
                wanted.resize(wanted.len().max(at + len), 0);
                wanted[at..at + len].fill(byte);
                paced.write_at(at as u64, &vec![byte; len], &|| Ok(())).unwrap();
            }
            paced.sync().unwrap();
            prop_assert!(std::fs::read(folder.path().join("file")).unwrap() == wanted);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The same past the page cache: what follows itself, what goes back, what is written over, small pieces and long
        /// ones, with a sync or a look at the file in between, against a vector.
        #[test]
        fn bytes_that_go_past_the_page_cache_are_where_they_were_put(
            first in 0_usize..3 << 20,
            writes in prop::collection::vec(
                (0_u32..12, 0_usize..5 << 20, prop_oneof![0_usize..9000, 0_usize..3 << 20], any::<u8>()),
                1..40,
            ),
            grows: bool,
        ) {
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let mut paced = paced(folder.path(), PIECE as u64, Cache::Drop);
            paced.go_past(&Budget::new(64 << 20).unwrap());
            let (mut wanted, mut at) = (Vec::new(), first);
            if grows {
                paced.reserve_ahead();
                at += usize::try_from(LEAST_AHEAD).unwrap();
            }
            for (kind, place, len, byte) in writes {
                match kind {
                    0 => at = place,
                    1 => paced.sync().unwrap(),
                    2 => paced.write_through(at as u64, &[], &|| Ok(())).unwrap(),
                    // A few rows that were written before, again: they may be waiting, or on their way.
                    3 | 4 => {
                        let (len, at) = (len.min(at), at.saturating_sub(place.min(100_000) + len));
                        let len = if kind == 3 { len.min(700) } else { len };
                        wanted.resize(wanted.len().max(at + len), 0);
                        wanted[at..at + len].fill(!byte);
                        paced.write_at(at as u64, &vec![!byte; len], &|| Ok(())).unwrap();
                    }
                    5 if byte < 30 => {
                        let file = paced.file.try_clone().unwrap();
                        paced.past.as_mut().map_or(Ok(()), |past| past.go_through(file)).unwrap();
                    }
                    _ => {}
                }
                wanted.resize(wanted.len().max(at + len), 0);
                wanted[at..at + len].fill(byte);
                paced.write_at(at as u64, &vec![byte; len], &|| Ok(())).unwrap();
                at += len;
                if kind == 2 {
                    paced.past_is_there().unwrap();
                    // It may be longer: room that is kept for a file that grows.
                    prop_assert!(std::fs::read(paced.path()).unwrap()[..wanted.len()] == wanted);
                }
            }
            paced.cut(wanted.len() as u64).unwrap();
            paced.sync().unwrap();
            prop_assert!(std::fs::read(paced.path()).unwrap() == wanted);
        }
    }

    #[test]
    fn what_goes_past_the_page_cache_leaves_nothing_there_and_what_failed_is_cut() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut paced = paced(folder.path(), WINDOW, Cache::Drop);
        paced.go_past(&Budget::new(64 << 20).unwrap());
        paced.reserve_ahead();
        let piece: Vec<u8> = (0..3_000_001_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
        for n in 0..20 {
            paced.write_at(128 + n * piece.len() as u64, &piece, &|| Ok(())).unwrap();
            if n > 5 {
                let Ok((cached, dirty)) = sys::cached_and_dirty(paced.file()) else { return };
                let direct = paced.past.is_some();
                assert!(
                    !direct || cached <= WINDOWS * WINDOW && dirty <= WINDOWS * WINDOW,
                    "{cached} {dirty}"
                );
            }
        }
        let can = sys::reopen(paced.file(), rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT).is_ok();
        assert_eq!(paced.past.is_some(), can);
        // An append that ends in its middle, and is not tried again.
        let end = 128 + 20 * piece.len() as u64;
        paced.asked = Instant::now().checked_sub(2 * ASK).unwrap();
        let long = vec![1; 20 << 20];
        assert!(paced.write_at(end, &long[..5000], &|| Err(Error::Interrupted)).is_err());
        paced.write_at(end, &long, &|| Ok(())).unwrap();
        paced.cut(end).unwrap();
        paced.sync().unwrap();
        let made = std::fs::read(paced.path()).unwrap();
        assert_eq!(made.len() as u64, end);
        assert!(made[128..].chunks(piece.len()).all(|chunk| chunk == piece));
    }

    #[test]
    fn dirty_pages_stay_few_in_any_order() {
        // Not on tmpfs, where pages are the file.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let window = 256 << 10;
        for cache in [Cache::Keep, Cache::Drop] {
            let mut paced = paced(folder.path(), window, cache);
            paced.file().set_len(16 << 20).unwrap();
            let mut most = (0, 0);
            for i in 0_u64..1024 {
                let at = i * 1_664_525 % 1024 * (16 << 10); // each 16 KiB once, far from the last
                paced.write_at(at + 100, &[7; 9000], &|| Ok(())).unwrap();
                if i % 16 == 0 {
                    let Ok(now) = sys::cached_and_dirty(paced.file()) else { return }; // an old kernel does not tell
                    most = (now.0.max(most.0), now.1.max(most.1));
                }
            }
            assert!(most.1 > 0 && most.1 <= WINDOWS * window, "{cache:?}: {} bytes were dirty", most.1);
            assert!(cache == Cache::Keep || most.0 <= WINDOWS * window, "{} bytes were cached", most.0);
            paced.sync().unwrap();
            let (cached, dirty) = sys::cached_and_dirty(paced.file()).unwrap();
            assert_eq!((dirty, cached == 0), (0, cache == Cache::Drop));
        }
    }

    #[test]
    fn whoever_wants_to_stop_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let mut paced = paced(folder.path(), WINDOW, Cache::Keep);
        paced.asked = Instant::now().checked_sub(2 * ASK).unwrap();
        let error = paced.write_at(0, &[0; 10], &|| Err(Error::Interrupted)).unwrap_err();
        assert!(matches!(error, Error::Interrupted));
    }

    #[test]
    fn what_the_system_lost_is_said_at_the_end_too() {
        let folder = tempfile::tempdir().unwrap();
        let mut paced = paced(folder.path(), WINDOW, Cache::Keep);
        let told = paced.check(Err(io::Error::from_raw_os_error(libc::ENOSPC))).unwrap_err();
        assert!(told.to_string().contains("No space left"), "{told}");
        assert!(paced.sync().unwrap_err().to_string().contains("did not reach the disk"));
    }
}
