//! `auto`: which way of access, what happens to the page cache, and why. A pure function of the facts.

use crate::array::Array;
use crate::budget::human;
use crate::door::CACHE;
use crate::error::{Error, Result};
use crate::meter;
use crate::reader::LARGE_ROW;
use crate::store::{Access, Cache, sigbus, window_for};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What the caller wants of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheWish {
    /// Keep while the file fits in half the room, else drop.
    #[default]
    Auto,
    /// As the kernel likes.
    Keep,
    /// What we bring in goes; what was there before us stays.
    Drop,
}

impl CacheWish {
    const ALL: [Self; 3] = [Self::Auto, Self::Keep, Self::Drop];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Keep => "keep",
            Self::Drop => "drop",
        }
    }
}

impl fmt::Display for CacheWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheWish {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|c| c.name() == word).ok_or_else(|| {
            Error::argument(
                CACHE.is(word.to_owned()) + " is not known",
                "one of \"auto\", \"keep\", \"drop\"",
            )
        })
    }
}

/// In which order rows are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// As they lie in the file.
    Sequential,
    /// Shuffled, with look-ahead.
    Shuffled,
    /// Whole blocks, shuffled.
    Blocks,
    /// As somebody asks for them.
    Random,
}

/// What the choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// What was asked for.
    pub access: Access,
    /// What was asked for.
    pub cache: CacheWish,
    /// The order of rows.
    pub visit: Visit,
    /// Bytes of one row.
    pub row: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Bytes of it in the page cache, if that can be known.
    pub cached: Option<u64>,
    /// Memory that this process can still have, page cache that can be reclaimed included.
    pub room: u64,
    /// Our own limit.
    pub budget: u64,
    /// Whether the filesystem can read unbuffered.
    pub direct: bool,
    /// Whether our SIGBUS handler is in place.
    pub guarded: bool,
}

/// A way of access, what happens to the page cache, and the reason, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Access::Auto`].
    pub access: Access,
    /// What happens to what we bring in.
    pub cache: Cache,
    /// Whether it was certain, or is to be tried.
    pub sure: Sure,
    /// For people.
    pub why: String,
}

/// How sure a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// The facts decide.
    Certain,
    /// `advise` or `read`, whichever proves faster: see [`Trial`].
    Trial,
}

/// Smaller rows than this are served faster from a mapped window than by a read each (BENCHMARKS.md).
const SMALL_ROW: u64 = 16 << 10;

impl Facts {
    /// The facts about an array, as they are now.
    pub fn of(array: &Array, visit: Visit) -> Result<Self> {
        let origin = array.data().origin()?;
        Ok(Self {
            access: array.access(),
            cache: array.cache(),
            visit,
            row: array.row_bytes() as u64,
            len: origin.len(),
            cached: origin.cached(),
            room: meter::room().bytes,
            budget: array.budget().limit(),
            direct: array.access() == Access::Auto && array.store(Access::Direct, Cache::Drop).is_ok(),
            guarded: sigbus::in_place(),
        })
    }

    /// The choice for these facts.
    pub fn choose(&self) -> Choice {
        let (cache, because) = self.cache();
        let (access, sure, why) = match self.access {
            Access::Auto if self.is_for_trial() => (
                Access::Advise,
                Sure::Trial,
                "the file is in the page cache, and small rows come through a bounded mapped window or by reads, whichever proves faster".into(),
            ),
            Access::Auto => {
                let (access, why) = self.automatic(cache);
                (access, Sure::Certain, why)
            }
            manual => (manual, Sure::Certain, format!("access={:?} was asked for", manual.name())),
        };
        // A held map keeps its pages from being dropped; unbuffered reads bring nothing in.
        let cache = match access {
            Access::Map => Cache::Keep,
            Access::Direct => Cache::Drop,
            _ => cache,
        };
        let said = self.access != Access::Auto || self.cache != CacheWish::Auto || access == Access::Direct;
        let why = if said { why } else { format!("{why}; {because}") };
        Choice { access, cache, sure, why }
    }

    fn cache(&self) -> (Cache, String) {
        match self.cache {
            CacheWish::Keep => (Cache::Keep, String::new()),
            CacheWish::Drop => (Cache::Drop, String::new()),
            CacheWish::Auto if self.len <= self.room / 2 => (
                Cache::Keep,
                format!(
                    "the page cache may keep it: {} fit in half the room, {}",
                    human(self.len),
                    human(self.room / 2)
                ),
            ),
            CacheWish::Auto => (
                Cache::Drop,
                format!(
                    "the page cache is left as found: {} do not fit in half the room, {}",
                    human(self.len),
                    human(self.room / 2)
                ),
            ),
        }
    }

    /// Whether nearly all of the file is in memory already.
    fn is_warm(&self) -> bool {
        self.cached.is_some_and(|cached| cached >= self.len / 10 * 9)
    }

    /// Whether a pass reads every byte once, in large requests: then nothing is gained by bringing it in.
    fn is_read_once(&self) -> bool {
        match self.visit {
            Visit::Sequential | Visit::Blocks => true,
            Visit::Shuffled => self.row >= LARGE_ROW as u64,
            Visit::Random => false,
        }
    }

    /// Whether small rows of a file in memory are read ahead, and a mapped window is possible.
    fn is_for_trial(&self) -> bool {
        self.is_warm()
            && matches!(self.visit, Visit::Shuffled | Visit::Blocks)
            && self.row < SMALL_ROW
            && self.guarded
            && window_for(self.budget).is_ok()
    }

    fn automatic(&self, cache: Cache) -> (Access, String) {
        if self.is_warm() {
            return (Access::Read, "the file is in the page cache, and reads copy from there".into());
        }
        let memory = match self.cached {
            Some(_) => "the file is not in memory",
            // The kernel tells only its owner, or not at all.
            None => "whether the file is in memory is unknown",
        };
        match cache {
            Cache::Keep if self.is_read_once() && self.direct => (
                Access::Direct,
                format!("{memory}, and a deep queue of unbuffered reads is the fastest way through it"),
            ),
            Cache::Keep => (Access::Read, format!("{memory}, and many reads at once bring it in")),
            Cache::Drop if self.direct => (
                Access::Direct,
                format!(
                    "{} are too large to keep in memory, and unbuffered reads leave the page cache alone",
                    human(self.len)
                ),
            ),
            Cache::Drop => (
                Access::Read,
                "the file is too large to keep in memory, and this filesystem has no unbuffered reads".into(),
            ),
        }
    }
}

/// The choice for an iteration over `array`, or for rows that somebody asks for.
pub fn access(array: &Array, visit: Visit) -> Result<Choice> {
    if let Some(choice) = array.resident() {
        return Ok(choice.clone());
    }
    let choice = Facts::of(array, visit)?.choose();
    array.store(choice.access, choice.cache)?; // fails now where it cannot be
    log::debug!("{}: access {} because {}", array.path().display(), choice.access, choice.why);
    Ok(choice)
}

/// Reads gain less than this from groups of eight times the size.
const FAR_BEHIND: f64 = 4.0;

/// Small rows of a file in memory: through a mapped window or by reads? That depends on how the kernel holds
/// the file (pages of 4 KiB or folios of up to 2 MiB), which it does not tell. So both are tried on groups
/// that are read anyway, and the faster one is taken; the other one is tried again now and then.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial {
    /// Chunks a second of `advise` and `read`, and in groups of how many chunks that was.
    known: [(f64, usize); 2],
    /// The chunks of the last group.
    last: usize,
    groups: u64,
}

impl Trial {
    const CANDIDATES: [Access; 2] = [Access::Advise, Access::Read];
    /// How often the slower one is tried again.
    const AGAIN: u64 = 40;

    /// Replaces a choice between the two by what has proved faster.
    pub fn decide(&mut self, choice: &mut Choice) {
        if choice.sure == Sure::Certain {
            return;
        }
        self.groups += 1;
        // What a small group showed says nothing about one of twice its size: there is more to gain from sorting.
        // But it is the map that gains: reads that are left far behind will not catch up.
        let [(advise, _), (read, tried)] = self.known;
        let hopeless = tried > 0 && read * FAR_BEHIND < advise;
        let unknown = self.known.iter().position(|&(_, chunks)| chunks * 2 <= self.last);
        let unknown = unknown.filter(|&i| !(hopeless && Self::CANDIDATES[i] == Access::Read));
        let faster = usize::from(self.known[1].0 > self.known[0].0);
        let pick =
            unknown.unwrap_or(if self.groups.is_multiple_of(Self::AGAIN) { 1 - faster } else { faster });
        choice.access = Self::CANDIDATES[pick];
    }

    /// Remembers how fast a group was.
    pub fn note(&mut self, choice: &Choice, chunks: usize, took: Duration) {
        // Only what was read from memory counts: a cold group would speak against reads for ever.
        if let Some(i) = Self::CANDIDATES.iter().position(|&a| a == choice.access)
            && choice.sure == Sure::Trial
        {
            self.known[i] = (chunks as f64 / took.as_secs_f64().max(1e-9), chunks);
            self.last = chunks;
        }
    }
}

/// Whether a mapped way of access could end in SIGBUS because somebody put a handler over ours.
pub fn unguarded(access: Access) -> bool {
    access.is_mapped() && !sigbus::in_place()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn facts() -> Facts {
        Facts {
            access: Access::Auto,
            cache: CacheWish::Auto,
            visit: Visit::Shuffled,
            row: 512,
            len: 4 * GIB,
            cached: Some(0),
            room: 20 * GIB,
            budget: 256 << 20,
            direct: true,
            guarded: true,
        }
    }

    #[test]
    fn what_proved_faster_is_taken_whatever_the_size_of_the_groups() {
        let choice = Facts { cached: Some(4 * GIB), ..facts() }.choose();
        for (sizes, read, faster) in [
            (vec![1, 1, 8, 64, 100], 2.0, Access::Read),
            (vec![1, 4, 4, 4], 2.0, Access::Read),
            (vec![1, 8, 64, 64], 0.5, Access::Advise),
            (vec![1, 8, 64, 100], 0.1, Access::Advise),
        ] {
            let mut trial = Trial::default();
            let mut taken = Vec::new();
            for chunks in sizes.iter().copied().chain(std::iter::repeat_n(*sizes.last().unwrap(), 30)) {
                let mut choice = choice.clone();
                trial.decide(&mut choice);
                let rate = if choice.access == Access::Read { read } else { 1.0 };
                trial.note(&choice, chunks, Duration::from_secs_f64(chunks as f64 / rate));
                taken.push(choice.access);
            }
            assert!(taken[sizes.len() + 2..].iter().all(|&access| access == faster), "{taken:?}");
        }
    }

    #[test]
    fn the_choice_follows_the_facts() {
        let of = |facts: Facts| {
            let choice = facts.choose();
            assert!(!choice.why.is_empty());
            (choice.access, choice.cache)
        };
        let warm = Facts { cached: Some(4 * GIB), ..facts() };
        let tight = Facts { room: GIB, ..facts() };
        assert_eq!(of(facts()), (Access::Read, Cache::Keep));
        for visit in [Visit::Sequential, Visit::Blocks] {
            assert_eq!(of(Facts { visit, ..facts() }), (Access::Direct, Cache::Drop));
        }
        assert_eq!(of(Facts { row: 64 << 10, ..facts() }), (Access::Direct, Cache::Drop));
        assert_eq!(of(Facts { row: 64 << 10, visit: Visit::Random, ..facts() }), (Access::Read, Cache::Keep));
        assert_eq!(of(warm), (Access::Advise, Cache::Keep));
        assert_eq!(of(Facts { guarded: false, ..warm }), (Access::Read, Cache::Keep));
        assert_eq!(of(Facts { budget: 1 << 20, ..warm }), (Access::Read, Cache::Keep));
        assert_eq!(of(Facts { row: 1 << 20, ..warm }), (Access::Read, Cache::Keep));
        assert_eq!(of(Facts { visit: Visit::Sequential, ..warm }), (Access::Read, Cache::Keep));
        assert_eq!(of(tight), (Access::Direct, Cache::Drop));
        assert_eq!(of(Facts { direct: false, ..tight }), (Access::Read, Cache::Drop));
        assert_eq!(of(Facts { cached: None, ..tight }), (Access::Direct, Cache::Drop));
        assert_eq!(of(Facts { cache: CacheWish::Drop, ..facts() }), (Access::Direct, Cache::Drop));
        assert_eq!(of(Facts { access: Access::Map, ..tight }), (Access::Map, Cache::Keep));
        assert_eq!(
            of(Facts { access: Access::Advise, cache: CacheWish::Drop, ..facts() }),
            (Access::Advise, Cache::Drop)
        );
    }

    #[test]
    fn what_is_unknown_is_not_said_to_be_so() {
        for visit in [Visit::Sequential, Visit::Shuffled, Visit::Blocks, Visit::Random] {
            let known = Facts { visit, ..facts() }.choose().why;
            let unknown = Facts { visit, cached: None, ..facts() }.choose().why;
            assert!(known.starts_with("the file is not in memory, and"), "{known}");
            assert!(unknown.starts_with("whether the file is in memory is unknown, and"), "{unknown}");
        }
    }
}
