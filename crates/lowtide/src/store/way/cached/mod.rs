//! Remote objects, through a cache on a local disk.
//!
//! Reads are cut into blocks of 4 MiB. Those that are in the cache come from its file, through the page cache or around
//! it; the others are fetched, all of a call together, delivered, and stored. Any store can be behind it: what it reads
//! is the bytes of one version of an object, or of several end to end, which do not change.
//!
//! Bytes of the cache are given out when the stamp of their slot is the same before and after they were read, and their
//! checksum has been seen to be right: the first time that this process reads 64 KiB of a slot, it reads all of them
//! and looks. Anything else is a miss, and fetched.

mod plan;

use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::Result;
use crate::store::local_cache::layout::{Key, SLOT, UNIT, UNITS, sums, unit_mask};
use crate::store::local_cache::{Admit, Begun, LocalCache, Place, settle};
use crate::store::{Cache, How, Manner, Nature, Read, Report, Store};
use crate::sys::{self, crew};
use plan::{Grid, Missing, Part, Piece, Spot, by_block, is_worth_it, parts, pieces};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of one version of a remote object.
#[derive(Clone, Debug)]
pub struct Version {
    hash: [u8; 32],
    label: String,
    len: u64,
}

impl Version {
    /// By the object's address, what tells this version of it from all others (its `ETag`), and which bytes of it.
    pub fn new(address: &str, etag: &str, bytes: Range<u64>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in [address, etag] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        hasher.update(&bytes.start.to_le_bytes()).update(&bytes.end.to_le_bytes());
        let len = bytes.end.saturating_sub(bytes.start);
        Self { hash: *hasher.finalize().as_bytes(), label: shown(address), len }
    }

    /// The object's address, without what may be secret in it.
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// An address for people: a query can be a signature, and what stands before an @ a password.
fn shown(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
        }
        None => address.to_owned(),
    }
}

/// Reads objects through a local cache.
#[derive(Debug)]
pub struct Cached {
    inner: Arc<dyn Store>,
    cache: Arc<LocalCache>,
    /// What is behind it, end to end.
    versions: Vec<Version>,
    grid: Grid,
    wish: Cache,
    budget: Budget,
    /// `data` of the cache.
    disk: Arc<dyn Store>,
    /// Where blocks were, when they were last looked for.
    places: Mutex<HashMap<u64, Place, Plain>>,
    /// How many of the last reads were not there, of 256.
    missing: AtomicU32,
}

/// Block numbers are spread well enough by a multiplication; what the standard library does against hostile keys would
/// cost a tenth of a small read.
#[derive(Clone, Copy, Debug, Default)]
struct Spread(u64);
type Plain = BuildHasherDefault<Spread>;

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// With more misses than this among the last reads, of 256, it is like what is behind it; with fewer like the disk.
const OFTEN: u32 = 64;

impl Cached {
    /// Over a store that reads these very versions, end to end, and fails where one is gone.
    pub fn new(
        inner: Arc<dyn Store>,
        cache: Arc<LocalCache>,
        versions: Vec<Version>,
        wish: Cache,
        budget: &Budget,
    ) -> Self {
        let cached = Self {
            inner,
            disk: cache.way(wish, budget),
            cache,
            grid: Grid::new(versions.iter().map(|version| version.len)),
            versions,
            wish,
            budget: budget.clone(),
            places: Mutex::default(),
            missing: AtomicU32::new(256),
        };
        // A sample: a terabyte has a quarter of a million blocks.
        let blocks = cached.grid.blocks();
        let sample = (0..blocks).step_by(usize::try_from(blocks / 1024).unwrap_or(usize::MAX).max(1));
        let (held, looked) = cached.count_held(sample);
        if held >= looked - looked / 10 {
            cached.missing.store(0, Ordering::Relaxed);
        }
        cached
    }

    /// How many blocks are in the cache, of how many.
    pub fn held(&self) -> (u64, u64) {
        self.count_held(0..self.grid.blocks())
    }

    fn count_held(&self, blocks: impl Iterator<Item = u64>) -> (u64, u64) {
        self.cache.look_around();
        blocks.fold((0, 0), |(held, looked), block| {
            (held + u64::from(self.cache.may_hold(&self.key(block))), looked + 1)
        })
    }

    /// By what a block is known.
    fn key(&self, block: u64) -> Key {
        let (part, inside, _) = self.grid.part_of(block);
        Key { object: self.versions[part].hash, block: inside }
    }

    /// Whether all that can be read through it fits in the cache.
    fn fits(&self) -> bool {
        self.grid.len() <= self.cache.capacity()
    }

    /// Where the blocks of some pieces are, as far as that is known or can be found.
    fn places(&self, pieces: &[Piece<'_>]) -> Vec<Option<Place>> {
        let mut found: Vec<Option<Place>> = Vec::with_capacity(pieces.len());
        sys::locked(&self.places, |places| {
            found.extend(pieces.iter().map(|piece| places.get(&piece.spot.block).copied()));
        });
        let mut last: Option<(u64, Option<Place>)> = None;
        for (place, piece) in found.iter_mut().zip(pieces) {
            if place.is_some_and(|place| self.cache.holds(&place)) {
                continue;
            }
            *place = match last {
                Some((block, place)) if block == piece.spot.block => place,
                _ => {
                    let place = self.cache.find(&self.key(piece.spot.block), piece.spot.len);
                    self.remember(piece.spot.block, place);
                    place
                }
            };
            last = Some((piece.spot.block, *place));
        }
        found
    }

    fn remember(&self, block: u64, place: Option<Place>) {
        sys::locked(&self.places, |places| match place {
            Some(place) => places.insert(block, place),
            None => places.remove(&block),
        });
    }

    /// Units of a filling that were seen to be right.
    fn checked(&self, block: u64, stamp: u64, mask: u64) {
        sys::locked(&self.places, |places| {
            if let Some(place) = places.get_mut(&block).filter(|place| place.stamp == stamp) {
                place.checked |= mask;
            }
        });
    }

    /// Reads what is in the cache, and gives back the pieces that are not.
    fn read_held<'a>(&self, mut pieces: Vec<Piece<'a>>, how: How<'_>, report: &mut Report) -> Vec<Piece<'a>> {
        let places = self.places(&pieces);
        let coming = self.coming(how.coming);
        let how = manner(how, how.manner, &coming);
        let (mut straight, mut to_check) = (Vec::with_capacity(pieces.len()), Vec::new());
        for (number, (piece, place)) in pieces.iter_mut().zip(&places).enumerate() {
            let Some(place) = place else { continue };
            let (start, end) = piece.inside();
            if unit_mask(start, end) & !place.checked == 0 {
                straight.push(Read { offset: place.at(start), into: &mut *piece.read.into });
            } else {
                to_check.push((number, piece));
            }
        }
        let mut bad = vec![false; places.len()];
        if !straight.is_empty() || !coming.is_empty() {
            match self.disk.read(&mut straight, how) {
                Ok(cost) => *report += cost,
                Err(error) => {
                    self.cache.warn("read the cache", &error);
                    bad.fill(true);
                }
            }
        }
        drop(straight);
        self.check(to_check, &places, how, &mut bad, report);
        settle();
        let mut hit = 0;
        let mut last = None;
        let mut number = 0;
        pieces.retain(|piece| {
            let (place, bad) = (places[number], bad[number]);
            number += 1;
            let Some(place) = place else { return true };
            let gone = bad || !self.cache.holds(&place);
            if gone {
                self.remember(piece.spot.block, None);
                return true;
            }
            if last != Some(place.slot) {
                self.cache.touch(&place);
                last = Some(place.slot);
            }
            hit += piece.read.into.len() as u64;
            false
        });
        self.cache.count(hit, 0);
        pieces
    }

    /// What comes next, as far as it is on the disk.
    fn coming(&self, coming: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut there = Vec::new();
        sys::locked(&self.places, |places| {
            for bytes in coming {
                let (mut at, end) = (bytes.start, bytes.end.min(self.grid.len()));
                while at < end {
                    let spot = self.grid.at(at);
                    let next = (spot.start + spot.len).min(end);
                    if let Some(place) = places.get(&spot.block) {
                        there.push(place.at(at - spot.start)..place.at(next - spot.start));
                    }
                    at = next;
                }
            }
        });
        there
    }

    /// Reads pieces whose checksums this process has not seen to be right: whole units straight to their place, parts of
    /// units by way of the whole unit.
    fn check(
        &self,
        mut pieces: Vec<(usize, &mut Piece<'_>)>,
        places: &[Option<Place>],
        how: How<'_>,
        bad: &mut [bool],
        report: &mut Report,
    ) {
        if pieces.is_empty() {
            return;
        }
        let spots: HashMap<usize, Spot> =
            pieces.iter().map(|(number, piece)| (*number, piece.spot)).collect();
        let of = |number: usize| places[number].zip(spots.get(&number).copied());
        let (mut whole, mut partial) = (Vec::new(), Vec::new());
        for (number, piece) in &mut pieces {
            parts(*number, piece, &mut whole, &mut partial);
        }
        let mut right = Right { cached: self, last: None };
        let mut reads: Vec<Read<'_>> = whole
            .iter_mut()
            .filter_map(|part| Some(Read { offset: of(part.piece)?.0.at(part.start), into: &mut *part.into }))
            .collect();
        let how = manner(how, how.manner, &[]);
        match self.disk.read(&mut reads, how) {
            Ok(cost) => *report += cost,
            Err(error) => {
                self.cache.warn("read the cache", &error);
                for (number, _) in &pieces {
                    bad[*number] = true;
                }
                return;
            }
        }
        drop(reads);
        for part in &whole {
            let unit_len = usize::try_from(UNIT).unwrap_or(usize::MAX);
            let units = part.into.chunks(unit_len).zip(part.unit()..);
            let is = of(part.piece).is_some_and(|(place, spot)| right.are(spot.block, &place, units.clone()));
            bad[part.piece] |= !is;
        }
        if let Err(error) = self.check_partial(partial, &of, how, bad, &mut right, report) {
            self.cache.warn("read the cache", &error);
            for (number, _) in &pieces {
                bad[*number] = true;
            }
        }
    }

    /// Parts of units, by way of whole ones: as many at once as there is room for.
    fn check_partial(
        &self,
        mut partial: Vec<Part<'_>>,
        of: &dyn Fn(usize) -> Option<(Place, Spot)>,
        how: How<'_>,
        bad: &mut [bool],
        right: &mut Right<'_>,
        report: &mut Report,
    ) -> Result<()> {
        let unit_len = usize::try_from(UNIT).unwrap_or(usize::MAX);
        let at = |part: &Part<'_>| of(part.piece).map(|(place, _)| place.at(part.start) / UNIT);
        partial.sort_by_key(at);
        let mut room = self.room(partial.len())?;
        while !partial.is_empty() {
            // Several parts of one unit come from one read of it.
            let (mut reads, mut served) = (Vec::new(), Vec::new());
            let mut free = room.chunks_exact_mut(unit_len);
            for (number, part) in partial.iter().enumerate() {
                let Some((place, spot)) = of(part.piece) else { continue };
                if number > 0 && at(part) == at(&partial[number - 1]) {
                    served.push(served.last().copied().unwrap_or(0));
                    continue;
                }
                let Some(into) = free.next() else { break };
                let start = part.start / UNIT * UNIT;
                let len = usize::try_from((spot.len - start).min(UNIT)).unwrap_or(0);
                served.push(reads.len());
                reads.push(Read { offset: place.at(start), into: &mut into[..len] });
            }
            *report += self.disk.read(&mut reads, how)?;
            for (part, read) in partial.drain(..served.len()).zip(served) {
                let Some((place, spot)) = of(part.piece) else { continue };
                let unit = &*reads[read].into;
                if right.are(spot.block, &place, std::iter::once((unit, part.unit()))) {
                    let from = usize::try_from(part.start % UNIT).unwrap_or(usize::MAX);
                    part.into.copy_from_slice(&unit[from..from + part.into.len()]);
                } else {
                    bad[part.piece] = true;
                }
            }
        }
        Ok(())
    }

    /// Memory for so many units, or for fewer of them.
    fn room(&self, units: usize) -> Result<Room> {
        let unit_len = usize::try_from(UNIT).unwrap_or(usize::MAX);
        let mut wanted = units.clamp(1, UNITS);
        while wanted > 0 {
            if let Some(block) = Block::counted(&self.budget, wanted * unit_len)? {
                return Ok(Room::Counted(block));
            }
            wanted /= 2;
        }
        Ok(Room::Least(vec![0; unit_len])) // everything is in use, and a read must come through all the same
    }

    /// Fetches what is not in the cache.
    fn fetch(&self, pieces: Vec<Piece<'_>>, how: How<'_>, report: &mut Report) -> Result<()> {
        let missing = by_block(pieces);
        let (begun, theirs) = self.cache.begin(missing.iter().map(|missing| self.key(missing.spot.block)));
        let (mut mine, others): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|missing| begun.contains(&self.key(missing.spot.block)));
        while !mine.is_empty() {
            mine = self.fetch_some(mine, &begun, how, report)?;
        }
        drop(begun);
        if others.is_empty() {
            return Ok(());
        }
        // Only now, when nobody waits for us: two who wait for each other would do so for ever.
        for key in &theirs {
            self.cache.wait_for(key);
        }
        let pieces = others.into_iter().flat_map(|missing| missing.pieces).collect();
        let mut left = self.read_held(pieces, manner(how, how.manner, &[]), report);
        let mut reads: Vec<Read<'_>> = left.iter_mut().map(|piece| piece.read.again()).collect();
        self.ask_inner(&mut reads, how, report)
    }

    /// Fetches as many blocks as there is room for, together. Gives back the others.
    fn fetch_some<'a>(
        &self,
        mut missing: Vec<Missing<'a>>,
        begun: &Begun<'_>,
        how: How<'_>,
        report: &mut Report,
    ) -> Result<Vec<Missing<'a>>> {
        let most = (self.budget.limit() / 8).max(SLOT);
        let (mut fetches, mut taken) = (Vec::new(), 0);
        let mut rest = Vec::new();
        for block in missing.drain(..) {
            let len = block.spot.len;
            let worth = self.fits() || is_worth_it(block.wanted(), len);
            let buffer = |len: u64| Block::counted(&self.budget, usize::try_from(len).unwrap_or(usize::MAX));
            let tiled = block.is_tiled();
            let as_it_comes = if tiled && block.pieces.len() <= 2 {
                Fetch::Tiled(block)
            } else if !worth {
                Fetch::Wanted(block)
            } else if taken + len > most {
                rest.push(block);
                continue;
            } else if let Some(buffer) = buffer(len)? {
                taken += len;
                Fetch::Whole(block, buffer)
            } else if taken > 0 {
                rest.push(block);
                continue;
            } else if tiled {
                Fetch::Tiled(block)
            } else {
                Fetch::Wanted(block) // no room for a block: then only what is wanted of it
            };
            fetches.push(as_it_comes);
        }
        let mut reads: Vec<Read<'_>> = Vec::new();
        for fetch in &mut fetches {
            match fetch {
                Fetch::Whole(missing, buffer) => {
                    reads.push(Read { offset: missing.spot.start, into: buffer });
                }
                Fetch::Tiled(missing) | Fetch::Wanted(missing) => {
                    reads.extend(missing.pieces.iter_mut().map(|piece| piece.read.again()));
                }
            }
        }
        self.ask_inner(&mut reads, how, report)?;
        drop(reads);
        // Copies and checksums are work for a processor: whoever has time helps.
        let helpers = (sys::cores() - 1).min(fetches.len().saturating_sub(1));
        crew::each(helpers, fetches.into_iter(), |fetch| self.keep(fetch, begun));
        Ok(rest)
    }

    /// Delivers a block and stores it.
    fn keep(&self, fetch: Fetch<'_>, begun: &Begun<'_>) {
        let admit = if self.fits() { Admit::Always } else { Admit::Seldom };
        let store = |block: u64, bytes: &[&[u8]]| {
            let key = self.key(block);
            let label = &self.versions[self.grid.part_of(block).0].label;
            let place = self.cache.store(&key, label, bytes, admit, (self.wish, &self.budget));
            if place.is_some() {
                self.remember(block, place);
            }
            begun.done(&key);
        };
        match fetch {
            Fetch::Wanted(missing) => begun.done(&self.key(missing.spot.block)),
            Fetch::Tiled(missing) => {
                let bytes: Vec<&[u8]> = missing.pieces.iter().map(|piece| &*piece.read.into).collect();
                store(missing.spot.block, &bytes);
            }
            Fetch::Whole(missing, buffer) => {
                for piece in missing.pieces {
                    let (start, end) = piece.inside();
                    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
                    piece.read.into.copy_from_slice(&buffer[at(start)..at(end)]);
                }
                store(missing.spot.block, &[&buffer]);
            }
        }
    }

    fn ask_inner(&self, reads: &mut [Read<'_>], how: How<'_>, report: &mut Report) -> Result<()> {
        if reads.is_empty() {
            return Ok(());
        }
        let cost = self.inner.read(reads, manner(how, Manner::Together, &[]))?;
        // Whoever does not look has waited.
        let waited = Report { looked: reads.len(), missed: reads.len() };
        *report += if cost == Report::default() { waited } else { cost };
        self.cache.count(0, reads.iter().map(|read| read.into.len() as u64).sum());
        Ok(())
    }
}

/// How reads of ours are made for reads of the caller's. What was said of those one by one is not said of ours.
#[allow(clippy::needless_update)] // whatever else can be said
fn manner<'a>(how: How<'a>, manner: Manner, coming: &'a [Range<u64>]) -> How<'a> {
    How { manner, far: how.far, coming, extents: &[], stop: how.stop }
}

/// How a block is fetched.
enum Fetch<'a> {
    /// All of it is wanted, and goes straight to its place, in a request or two: each read is one.
    Tiled(Missing<'a>),
    /// All of it, by way of memory of ours.
    Whole(Missing<'a>, Block),
    /// Only what is wanted, and it is not stored.
    Wanted(Missing<'a>),
}

/// Memory that units are read into.
enum Room {
    Counted(Block),
    Least(Vec<u8>),
}

impl std::ops::Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Counted(block) => block,
            Self::Least(bytes) => bytes,
        }
    }
}

impl std::ops::DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Counted(block) => block,
            Self::Least(bytes) => bytes,
        }
    }
}

/// Looks at checksums, and remembers those of the last block.
struct Right<'c> {
    cached: &'c Cached,
    last: Option<(u64, Option<[u32; UNITS]>)>,
}

impl Right<'_> {
    /// Whether units of a block are what was stored there; takes note of it where they are.
    fn are<'u>(&mut self, block: u64, place: &Place, units: impl Iterator<Item = (&'u [u8], usize)>) -> bool {
        let expected = match self.last {
            Some((stamp, expected)) if stamp == place.stamp => expected,
            _ => self.cached.cache.sums(place, &self.cached.key(block)),
        };
        self.last = Some((place.stamp, expected));
        let Some(expected) = expected else { return false };
        let mut mask = 0;
        for (bytes, unit) in units {
            if sums([bytes])[0] != expected[unit] {
                return false;
            }
            mask |= 1 << unit;
        }
        self.cached.checked(block, place.stamp, mask);
        true
    }
}

impl Store for Cached {
    fn nature(&self) -> Nature {
        let disk = self.disk.nature();
        let often = self.missing.load(Ordering::Relaxed) > OFTEN;
        let like = if often { self.inner.nature() } else { disk };
        // Blocks lie in slots of the same size: what is aligned in one is aligned in the other.
        let align = if often || !self.grid.is_aligned() { 1 } else { disk.align };
        Nature { align, end: self.grid.len(), ..like }
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        let found = self.grid.len();
        if let Some(read) = reads.iter().find(|read| read.end() > found && !read.into.is_empty()) {
            let first = self.versions.first().map_or("", |version| &version.label);
            return Err(read.cut(Path::new(first), found));
        }
        self.cache.look_around();
        let mut report = Report::default();
        let all = pieces(reads, &self.grid);
        let count = all.len();
        let missing = self.read_held(all, how, &mut report);
        if let Some(now) = (256 * missing.len()).checked_div(count) {
            let now = u32::try_from(now).unwrap_or(256);
            let before = self.missing.load(Ordering::Relaxed);
            self.missing.store((before * 7 + now) / 8, Ordering::Relaxed);
        }
        if !missing.is_empty() {
            self.fetch(missing, how, &mut report)?;
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_not_shown() {
        for (address, expected) in [
            ("s3://bucket/a/b.npy", "s3://bucket/a/b.npy"),
            ("https://user:word@host/a?X-Amz-Signature=1#x", "https://host/a"),
            ("https://host", "https://host"),
            ("/a/b", "/a/b"),
        ] {
            assert_eq!(shown(address), expected);
        }
        let key = |address, etag, len| Version::new(address, etag, 0..len).hash;
        assert!(key("ab", "c", 1) != key("a", "bc", 1) && key("a", "b", 1) != key("a", "b", 2));
        assert!(
            key("https://h/a?x", "e", 1) != key("https://h/a?y", "e", 1),
            "another query, another object"
        );
    }
}
