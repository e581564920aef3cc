//! Blocks of remote objects on a local disk, shared by the processes of a machine.
//!
//! A cache is a folder that Lowtide alone makes and marks: `data`, set aside to its full size when it is made, so that
//! it cannot grow and a full disk is met at the start, in slots of 4 MiB; and `index`. Whole blocks go in, any bytes come
//! out, by [`Cached`](super::Cached).
//!
//! * **Readers take no lock.** Every filling of a slot has a *stamp*, a random number. A reader sees it before and after
//!   it reads the slot; a writer takes it away before its first byte and puts a new one there after its last. What was
//!   read under one stamp is of one filling. The first time that a process reads 64 KiB of a filling, it looks at their
//!   checksum too: that is what tells of a power failure, of a damaged disk, and of anybody's damage to the index.
//! * **Writers hold a lock on their slot**, which the kernel lets go of with them. A writer that was killed leaves a slot
//!   without a stamp, which is an empty one. There is nothing to recover.
//! * **Nothing waits.** A lock that cannot be had means that a block is not stored; a block that is not there is fetched.
//!   A failing disk is a warning, once.
//! * **Nothing else is touched.** A folder with anything else in it is refused, and three names are all that is ever
//!   unlinked, by [`LocalCache::remove`].

mod clock;
mod folder;
pub mod layout;
mod table;

pub use layout::{Counts, Geometry};

use super::{Cache, DirectStore, Engine, OneFile, ReadStore, Source, Store};
use crate::budget::{Budget, Lease};
use crate::error::{Error, Result};
use crate::sys::{self, Wait};
use clock::Picked;
use layout::{Brief, Entry, Key, Record, SLOT, UNITS};
use rustix::fs::Advice;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime};
pub(super) use table::settle;
use table::{Desk, Table};

/// How often what was counted goes to the others.
const TELL: Duration = Duration::from_secs(2);
/// Slots that others may just be filling, behind the hand: looked at again.
const RECENT: u64 = 256;

/// A folder of blocks.
#[derive(Debug)]
pub struct LocalCache {
    dir: PathBuf,
    geometry: Geometry,
    table: Table,
    data: File,
    source: Arc<OneFile>,
    finder: Mutex<Finder>,
    fetching: Mutex<Fetching>,
    behind: Mutex<VecDeque<Behind>>,
    ways: Mutex<Vec<Used>>,
    mine: Mine,
    trouble: Mutex<Option<String>>,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    /// Of this filling.
    pub(super) stamp: u64,
    /// Which units this process has seen to be right.
    pub(super) checked: u64,
}

impl Place {
    /// Where in `data` an offset of the block is.
    pub(super) fn at(&self, offset: u64) -> u64 {
        u64::from(self.slot) * SLOT + offset
    }
}

/// Which slot may hold a block: a hint, since others fill them.
#[derive(Debug, Default)]
struct Finder {
    slots: HashMap<Brief, u32>,
    /// As far as the clock's hand was when records were last looked at.
    seen: u64,
}

/// Blocks that a thread of this process is fetching, and the [`sys::generation`] it belongs to.
#[derive(Debug, Default)]
struct Fetching {
    generation: u64,
    keys: HashSet<Key>,
}

/// A slot whose pages are on their way to the disk, and are dropped when they are there.
#[derive(Debug)]
struct Behind {
    slot: u32,
    len: u64,
    _pages: Lease,
}

/// A way in which `data` is read, as long as it is.
#[derive(Debug)]
struct Used {
    cache: Cache,
    budget: Budget,
    way: Weak<dyn Store>,
}

/// What this process counted since it last told.
#[derive(Debug)]
struct Mine {
    generation: AtomicU64,
    hit_bytes: AtomicU64,
    fetched_bytes: AtomicU64,
    stored: AtomicU64,
    evicted: AtomicU64,
    told: Mutex<Instant>,
}

/// Whether a block is stored where another has to make way for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Always.
    Always,
    /// One in eight. An epoch over more than the cache holds would push every block out before it is wanted again, and
    /// write all day; so most of what is there stays.
    Seldom,
}

/// What there is to say about a cache.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How it is divided.
    pub geometry: Geometry,
    /// What its files take on the disk, the folder included.
    pub on_disk: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was read through it since it was made.
    pub counts: Counts,
    /// The objects in it: address, blocks, bytes; those with most bytes first.
    pub objects: Vec<Held>,
    /// The number of the user whose folder it is.
    pub owner: u32,
}

/// What a cache holds of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its address, as it was given.
    pub label: String,
    /// How many blocks.
    pub blocks: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl LocalCache {
    /// Opens the cache in `dir`, or makes one there: `size` is what it takes on the disk, now and always.
    ///
    /// # Errors
    /// [`Error::Argument`] where the folder holds anything else, or a cache of another size; [`Error::Io`] where the disk
    /// has no room; [`Error::Unsupported`] where the filesystem cannot set room aside, or is on a server.
    pub fn open(dir: impl AsRef<Path>, size: u64) -> Result<Arc<Self>> {
        Self::open_with(dir.as_ref(), Some(size))
    }

    /// Opens a cache that there is.
    ///
    /// # Errors
    /// As [`LocalCache::open`], and where there is none.
    pub fn open_existing(dir: impl AsRef<Path>) -> Result<Arc<Self>> {
        Self::open_with(dir.as_ref(), None)
    }

    fn open_with(dir: &Path, size: Option<u64>) -> Result<Arc<Self>> {
        let folder::Folder { geometry, index, data } = folder::open(dir, size)?;
        let cache = Self {
            table: Table::new(index, geometry, &dir.join(folder::INDEX))?,
            source: Arc::new(OneFile::open(&dir.join(folder::DATA))?),
            dir: dir.to_owned(),
            geometry,
            data,
            finder: Mutex::default(),
            fetching: Mutex::default(),
            behind: Mutex::default(),
            ways: Mutex::default(),
            mine: Mine::new(),
            trouble: Mutex::default(),
        };
        cache.refresh();
        Ok(Arc::new(cache))
    }

    /// Takes the cache in `dir` away, and the folder with it where nothing else is in it; says whether it was. Who reads
    /// from it goes on.
    ///
    /// # Errors
    /// [`Error::Argument`] where the folder is no cache.
    pub fn remove(dir: impl AsRef<Path>) -> Result<bool> {
        folder::remove(dir.as_ref())
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// How many bytes of objects it can hold.
    pub fn capacity(&self) -> u64 {
        self.geometry.data_len()
    }

    /// What went wrong when something was to be stored or read, the first time. Everything is read all the same.
    pub fn trouble(&self) -> Option<String> {
        sys::locked(&self.trouble, |trouble| trouble.clone())
    }

    pub(super) fn warn(&self, what: &str, error: &dyn std::fmt::Display) {
        let text = format!("{}: cannot {what}: {error}; reading goes on without", self.dir.display());
        let first = sys::locked(&self.trouble, |trouble| {
            let first = trouble.is_none();
            trouble.get_or_insert_with(|| text.clone());
            first
        });
        if first {
            log::warn!("{text}");
        }
    }

    /// Empties it. Who reads from it goes on, and fetches again.
    ///
    /// # Errors
    /// What the system says.
    pub fn clear(&self) -> Result<()> {
        let cannot = |error| Error::io(&self.dir.join(folder::INDEX), "empty the cache", error);
        self.table.forget_all().map_err(cannot)?;
        sys::locked(&self.finder, |finder| finder.slots.clear());
        Ok(())
    }

    /// What there is to say about it.
    pub fn facts(&self) -> Facts {
        self.table.look_around();
        let mut objects: HashMap<[u8; 32], Held> = HashMap::new();
        let (mut blocks, mut bytes) = (0, 0);
        for slot in self.slots() {
            let Some(entry) = self.table.entry(slot).filter(|entry| entry.stamp == self.table.stamp(slot))
            else {
                continue;
            };
            blocks += 1;
            bytes += u64::from(entry.len);
            let none = Held { label: entry.label, blocks: 0, bytes: 0 };
            let held = objects.entry(entry.key.object).or_insert(none);
            held.blocks += 1;
            held.bytes += u64::from(entry.len);
        }
        let mut objects: Vec<Held> = objects.into_values().collect();
        objects.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
        let paths = [folder::MARK, folder::DATA, folder::INDEX].map(|name| self.dir.join(name));
        let meta = |path: &PathBuf| std::fs::symlink_metadata(path).ok();
        let on_disk = paths.iter().chain([&self.dir]).filter_map(meta).map(|meta| meta.blocks() * 512).sum();
        let owner = meta(&self.dir).map_or(0, |meta| meta.uid());
        let counts = self.table.counts().plus(self.mine.now());
        Facts { geometry: self.geometry, on_disk, blocks, bytes, counts, objects, owner }
    }

    fn slots(&self) -> impl Iterator<Item = u32> {
        0..u32::try_from(self.geometry.slots).unwrap_or(u32::MAX)
    }

    /// The way in which `data` is read.
    pub(super) fn way(&self, cache: Cache, budget: &Budget) -> Arc<dyn Store> {
        let same = |used: &&Used| used.cache == cache && used.budget.is(budget);
        if let Some(way) = sys::locked(&self.ways, |ways| ways.iter().find(same)?.way.upgrade()) {
            return way;
        }
        let direct = || DirectStore::new(&Source::File(self.source.clone()), budget, Engine::available());
        let way: Arc<dyn Store> = match cache {
            Cache::Drop => match direct() {
                Ok(direct) => Arc::new(direct),
                Err(_) => Arc::new(ReadStore::new(self.source.clone(), cache)),
            },
            Cache::Keep => Arc::new(ReadStore::new(self.source.clone(), cache)),
        };
        let used = Used { cache, budget: budget.clone(), way: Arc::downgrade(&way) };
        sys::locked(&self.ways, |ways| {
            ways.retain(|used| used.way.strong_count() > 0);
            ways.push(used);
        });
        way
    }

    /// Before some reads: see [`Table::look_around`].
    pub(super) fn look_around(&self) {
        self.table.look_around();
    }

    /// Whether a place still holds what it held: after a read from it, and [`settle`].
    pub(super) fn holds(&self, place: &Place) -> bool {
        self.table.stamp(place.slot) == place.stamp
    }

    /// Tells the clock that a slot was read.
    pub(super) fn touch(&self, place: &Place) {
        if !self.table.is_touched(place.slot) {
            self.table.touch(place.slot, true);
        }
    }

    /// The checksums of a place, as long as it holds this block.
    pub(super) fn sums(&self, place: &Place, key: &Key) -> Option<[u32; UNITS]> {
        let entry = self.table.entry(place.slot)?;
        (entry.stamp == place.stamp && entry.key == *key).then_some(entry.sums)
    }

    /// Whether a block seems to be there: nobody looks whether it is well.
    pub(super) fn may_hold(&self, key: &Key) -> bool {
        let brief = key.brief();
        let slot = sys::locked(&self.finder, |finder| finder.slots.get(&brief).copied());
        slot.is_some_and(|slot| self.table.record(slot).brief == brief)
    }

    /// Where a block of `len` bytes is.
    pub(super) fn find(&self, key: &Key, len: u64) -> Option<Place> {
        self.known(key, len).or_else(|| self.refresh().then(|| self.known(key, len))?)
    }

    /// The same without looking for what others have stored.
    fn known(&self, key: &Key, len: u64) -> Option<Place> {
        let brief = key.brief();
        let slot = sys::locked(&self.finder, |finder| finder.slots.get(&brief).copied())?;
        let record = self.table.record(slot);
        let entry = (record.brief == brief && record.stamp != 0).then(|| self.table.entry(slot)).flatten();
        let entry = entry.filter(|entry| entry.key == *key && entry.stamp == record.stamp);
        match entry {
            Some(entry) if u64::from(entry.len) == len => {
                Some(Place { slot, stamp: record.stamp, checked: 0 })
            }
            _ => {
                sys::locked(&self.finder, |finder| finder.slots.remove(&brief));
                None
            }
        }
    }

    /// Takes note of the slots that were filled since it last did; says whether there were any.
    fn refresh(&self) -> bool {
        let (hand, slots) = (self.table.hand(), self.geometry.slots);
        let (seen, known) = sys::locked(&self.finder, |finder| (finder.seen, finder.slots.len() as u64));
        // A list that has grown past the slots holds many that are gone.
        let again = known > 2 * slots;
        if hand == seen && !again {
            return false;
        }
        let all = again || hand < seen || hand - seen >= slots;
        let range = if all { 0..slots } else { seen..hand };
        let mut found = Vec::new();
        for at in range {
            let slot = u32::try_from(at % slots).unwrap_or(0);
            let record = self.table.record(slot);
            if record.stamp != 0 {
                found.push((record.brief, slot));
            }
        }
        // What is being filled now is looked at again.
        let filling = |at: &u64| self.table.stamp(u32::try_from(at % slots).unwrap_or(0)) == 0;
        let filled =
            (hand.saturating_sub(RECENT.min(slots)).max(if all { 0 } else { seen })..hand).find(filling);
        sys::locked(&self.finder, |finder| {
            if again {
                finder.slots.clear();
            }
            finder.slots.extend(found);
            finder.seen = filled.unwrap_or(hand);
        });
        true
    }

    /// Stores a block that lies in pieces of memory, and says where; nothing where it was not stored.
    pub(super) fn store(
        &self,
        key: &Key,
        label: &str,
        parts: &[&[u8]],
        admit: Admit,
        (cache, budget): (Cache, &Budget),
    ) -> Option<Place> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).ok().filter(|&len| len > 0 && u64::from(len) <= SLOT)?;
        let sums = layout::sums(parts.iter().copied());
        let stored = self.claim(key, u64::from(len), admit).and_then(|claim| {
            let Claim::Slot { slot, evicts, desk } = claim else { return Ok(claim.place()) };
            let stamp = new_stamp(key);
            let entry = Entry { key: *key, stamp, len, sums, label: label.to_owned() };
            self.table.write_record(slot, Record::default())?;
            self.write(slot, parts, u64::from(len), cache, budget)?;
            self.table.write_entry(slot, &entry)?;
            // As one that was read: where all others were, it would be the first to make way, for the very next block.
            self.table.write_record(slot, Record { stamp, brief: key.brief(), touched: true })?;
            drop(desk);
            self.mine.add(Counts { stored: 1, evicted: u64::from(evicts), ..Counts::default() });
            Ok(Some(Place { slot, stamp, checked: u64::MAX }))
        });
        match stored {
            Ok(Some(place)) => {
                sys::locked(&self.finder, |finder| finder.slots.insert(key.brief(), place.slot));
                Some(place)
            }
            Ok(None) => None,
            Err(error) => {
                self.warn("store a block in the cache", &error);
                None
            }
        }
    }

    /// Takes a slot for a block, and holds it.
    fn claim(&self, key: &Key, len: u64, admit: Admit) -> io::Result<Claim> {
        let desk = self.table.desk()?;
        if !desk.lock_header() {
            return Ok(Claim::Nothing);
        }
        // Another process may have been faster.
        if let Some(place) = self.find(key, len) {
            return Ok(Claim::There(place));
        }
        let (hand, slots) = (self.table.hand(), self.geometry.slots);
        let next = self.table.record(u32::try_from(hand % slots).unwrap_or(0));
        if admit == Admit::Seldom && next.stamp != 0 && !new_stamp(key).is_multiple_of(8) {
            return Ok(Claim::Nothing);
        }
        let look = |slot| self.table.record(slot);
        let pass = |slot| self.table.touch(slot, false);
        let picked = clock::pick(hand, slots, look, pass, |slot| desk.lock_slot(slot));
        let Some(Picked { slot, hand, evicts }) = picked else { return Ok(Claim::Nothing) };
        desk.set_hand(hand)?;
        desk.unlock_header();
        Ok(Claim::Slot { slot, evicts, desk })
    }

    /// Writes a slot's bytes. Where the page cache is to be left alone, they are leased from the budget until they are on
    /// the disk, or written a little at a time.
    fn write(&self, slot: u32, parts: &[&[u8]], len: u64, cache: Cache, budget: &Budget) -> io::Result<()> {
        let start = u64::from(slot) * SLOT;
        if cache == Cache::Keep {
            return self.write_parts(start, parts, |_, _| ());
        }
        let lease = || budget.lease(SLOT);
        let lease = lease().or_else(|| {
            self.drop_behind(0);
            lease()
        });
        let Some(pages) = lease else {
            return self.write_parts(start, parts, |at, len| self.drop_pages(at, len));
        };
        self.write_parts(start, parts, |_, _| ())?;
        let _ = sys::write_back(&self.data, start, len, Wait::No);
        sys::locked(&self.behind, |behind| behind.push_back(Behind { slot, len, _pages: pages }));
        self.drop_behind(usize::try_from(budget.limit() / 16 / SLOT).unwrap_or(usize::MAX));
        Ok(())
    }

    fn write_parts(&self, start: u64, parts: &[&[u8]], wrote: impl Fn(u64, u64)) -> io::Result<()> {
        /// So much is written before it is dropped, where there is no room for more.
        const LITTLE: usize = 256 << 10;
        let mut at = start;
        for part in parts.iter().flat_map(|part| part.chunks(LITTLE)) {
            self.data.write_all_at(part, at)?;
            wrote(at, part.len() as u64);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Waits for all but `most` slots that are on their way to the disk, and drops their pages.
    fn drop_behind(&self, most: usize) {
        let next = || {
            sys::locked(&self.behind, |behind| (behind.len() > most).then(|| behind.pop_front()).flatten())
        };
        while let Some(Behind { slot, len, _pages }) = next() {
            self.drop_pages(u64::from(slot) * SLOT, len);
        }
    }

    fn drop_pages(&self, at: u64, len: u64) {
        let _ = sys::write_back(&self.data, at, len, Wait::Yes);
        let _ = rustix::fs::fadvise(&self.data, at, NonZeroU64::new(len), Advice::DontNeed);
    }

    /// Which of these blocks this thread is to fetch: no other thread of the process is at them.
    pub(super) fn begin(&self, keys: impl Iterator<Item = Key>) -> (Begun<'_>, Vec<Key>) {
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        sys::locked(&self.fetching, |fetching| {
            if fetching.generation != sys::generation() {
                *fetching = Fetching { generation: sys::generation(), ..Fetching::default() };
            }
            for key in keys {
                if fetching.keys.insert(key) { mine.push(key) } else { theirs.push(key) }
            }
        });
        (Begun { cache: self, keys: mine, generation: sys::generation() }, theirs)
    }

    /// Waits until another thread is done with a block, whatever came of it.
    pub(super) fn wait_for(&self, key: &Key) {
        let is_there = || {
            sys::locked(&self.fetching, |fetching| {
                fetching.generation == sys::generation() && fetching.keys.contains(key)
            })
        };
        let mut rest = Duration::from_micros(50);
        while is_there() {
            std::thread::sleep(rest);
            rest = (rest * 2).min(Duration::from_millis(2));
        }
    }

    /// Takes note of what was read, and tells the others now and then.
    pub(super) fn count(&self, hit_bytes: u64, fetched_bytes: u64) {
        self.mine.add(Counts { hit_bytes, fetched_bytes, ..Counts::default() });
        let due = sys::locked(&self.mine.told, |told| {
            let due = told.elapsed() >= TELL;
            if due {
                *told = Instant::now();
            }
            due
        });
        if due {
            self.tell();
        }
    }

    fn tell(&self) {
        if self.mine.now() == Counts::default() {
            return;
        }
        let Ok(desk) = self.table.desk() else { return };
        if desk.lock_header() {
            let sum = self.table.counts().plus(self.mine.take());
            let _ = desk.set_counts(sum); // counts are for people
        }
    }
}

impl Drop for LocalCache {
    fn drop(&mut self) {
        self.table.look_around();
        self.drop_behind(0);
        self.tell();
    }
}

/// What came of asking for a slot.
enum Claim {
    /// It is ours, as long as the lock lives.
    Slot { slot: u32, evicts: bool, desk: Desk },
    /// The block is there already.
    There(Place),
    /// Not now.
    Nothing,
}

impl Claim {
    fn place(self) -> Option<Place> {
        match self {
            Self::There(place) => Some(place),
            _ => None,
        }
    }
}

/// Blocks that this thread is fetching. When it is dropped, others may.
#[derive(Debug)]
pub(super) struct Begun<'c> {
    cache: &'c LocalCache,
    keys: Vec<Key>,
    generation: u64,
}

impl Begun<'_> {
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    /// One of them is done.
    pub(super) fn done(&self, key: &Key) {
        sys::locked(&self.cache.fetching, |fetching| {
            if fetching.generation == self.generation {
                fetching.keys.remove(key);
            }
        });
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        sys::locked(&self.cache.fetching, |fetching| {
            if fetching.generation == self.generation {
                for key in &self.keys {
                    fetching.keys.remove(key);
                }
            }
        });
    }
}

impl Mine {
    fn new() -> Self {
        Self {
            generation: AtomicU64::new(sys::generation()),
            hit_bytes: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            told: Mutex::new(Instant::now()),
        }
    }

    fn each(&self) -> [&AtomicU64; 4] {
        [&self.hit_bytes, &self.fetched_bytes, &self.stored, &self.evicted]
    }

    fn add(&self, counts: Counts) {
        if self.generation.swap(sys::generation(), Ordering::Relaxed) != sys::generation() {
            self.take(); // a child's parent counts for itself
        }
        let words = [counts.hit_bytes, counts.fetched_bytes, counts.stored, counts.evicted];
        for (sum, word) in self.each().into_iter().zip(words) {
            sum.fetch_add(word, Ordering::Relaxed);
        }
    }

    fn now(&self) -> Counts {
        if self.generation.load(Ordering::Relaxed) != sys::generation() {
            return Counts::default();
        }
        Counts::from_words(self.each().map(|sum| sum.load(Ordering::Relaxed)))
    }

    fn take(&self) -> Counts {
        Counts::from_words(self.each().map(|sum| sum.swap(0, Ordering::Relaxed)))
    }
}

/// A number that no other filling of a slot has had, whatever happened to the index: with a number that counts on, a
/// reader could take one filling for another after somebody damaged the count.
fn new_stamp(key: &Key) -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.object).update(&key.block.to_le_bytes());
    hasher.update(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes()).update(&sys::generation().to_le_bytes());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    hasher.update(&now.as_nanos().to_le_bytes());
    hasher.update(&(&raw const COUNT).addr().to_le_bytes()); // of a process in another container, too
    let mut word = [0; 8];
    hasher.finalize_xof().fill(&mut word);
    u64::from_le_bytes(word).max(1)
}
