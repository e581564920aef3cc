//! `auto`: which way of access, what happens to the page cache, and why. A pure function of the facts.

use super::tuning::{LARGE_ROW, SMALL_ROW};
use crate::options::{Access, Cache, CacheWish, Way};
use crate::size::human;
use crate::store::window_for;
use crate::sys::{Warmth, warmth};

/// In which order rows are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[allow(clippy::struct_excessive_bools)] // facts, each by itself
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
    /// Whether the bytes are in an object store.
    pub remote: bool,
    /// Whether those come through a cache on a local disk.
    pub cached_locally: bool,
}

/// A way of access, what happens to the page cache, and the reason, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// How bytes come.
    pub way: Way,
    /// What happens to what we bring in.
    pub cache: Cache,
    /// Whether it was certain, or is to be tried.
    pub sure: Sure,
    /// How much of the file the page cache had then, of what comes through there; `None` where that is unknown.
    pub found: Option<Warmth>,
    /// Another one, for the first chunk of a pass.
    pub first: Option<Box<Choice>>,
    /// For people.
    pub why: String,
}

impl Choice {
    /// What needs no further thought.
    pub(crate) fn certain(way: Way, cache: Cache, why: impl Into<String>) -> Self {
        Self { way, cache, sure: Sure::Certain, found: None, first: None, why: why.into() }
    }

    /// Says more about it.
    pub(crate) fn also(&mut self, said: &str) {
        self.why = format!("{}; {said}", self.why);
    }

    /// What is chosen for the first chunk of a pass.
    #[must_use]
    pub fn at_first(&self) -> Self {
        self.first.as_deref().unwrap_or(self).clone()
    }
}

/// How sure a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sure {
    /// The facts decide.
    Certain,
    /// `advise` or `read`, whichever proves faster: see `engine/seen`.
    Trial,
}

impl Facts {
    /// The choice for these facts.
    pub fn choose(&self) -> Choice {
        let (cache, because) = self.cache();
        if self.remote {
            let why = "the data is in an object store, and comes by range requests";
            return if self.cached_locally {
                Choice::certain(Way::Range, cache, format!("{why} through the local cache"))
            } else {
                Choice::certain(Way::Range, Cache::Drop, why)
            };
        }
        let (way, sure, why) = match self.access.way() {
            None if self.is_for_trial() => (
                Way::Advise,
                Sure::Trial,
                "the file is in the page cache, and small rows come through a bounded mapped window or by reads, whichever proves faster".into(),
            ),
            None => {
                let (way, why) = self.automatic(cache);
                (way, Sure::Certain, why)
            }
            Some(way) => (way, Sure::Certain, format!("access={:?} was asked for", self.access.name())),
        };
        // A held map keeps its pages from being dropped; unbuffered reads bring nothing in.
        let cache = match way {
            Way::Map => Cache::Keep,
            Way::Direct => Cache::Drop,
            _ => cache,
        };
        let said = self.access != Access::Auto || self.cache != CacheWish::Auto || way == Way::Direct;
        let why = if said { why } else { format!("{why}; {because}") };
        let found = self.cached.filter(|_| way == Way::Read).map(|cached| warmth(cached, self.len));
        Choice { way, cache, sure, found, first: self.first(way, cache), why }
    }

    fn cache(&self) -> (Cache, String) {
        let (len, room) = (human(self.len), human(self.room / 2));
        match self.cache {
            CacheWish::Keep => (Cache::Keep, String::new()),
            CacheWish::Drop => (Cache::Drop, String::new()),
            CacheWish::Auto if self.len <= self.room / 2 => {
                (Cache::Keep, format!("the page cache may keep it: {len} fit in half the room, {room}"))
            }
            CacheWish::Auto => {
                let why = format!("{len} do not fit in half the room, {room}");
                (Cache::Drop, format!("the page cache is left as found: {why}"))
            }
        }
    }

    /// How much of the file is in memory already; cold where that is unknown.
    fn warmth(&self) -> Warmth {
        self.cached.map_or(Warmth::Cold, |cached| warmth(cached, self.len))
    }

    /// The first sweep behind the first chunk of a shuffled pass brings the file in. Rows of a first chunk that came
    /// through the page cache would be single pages all over it, and where read-ahead meets one it makes no large
    /// folios any more: every later sweep through a map took five times as long.
    fn first(&self, way: Way, cache: Cache) -> Option<Box<Choice>> {
        let brings_in = way == Way::Read && cache == Cache::Keep && self.warmth() < Warmth::Half;
        let small = self.visit == Visit::Shuffled && self.row < LARGE_ROW as u64;
        let why = format!(
            "{}, and the first chunk leaves no single pages in the way of the sweep that brings it in",
            self.memory()
        );
        (self.access == Access::Auto && self.direct && brings_in && small)
            .then(|| Box::new(Choice::certain(Way::Direct, Cache::Drop, why)))
    }

    /// What is known of the file in memory, where that is not most of it. Opening it alone brings in its beginning.
    fn memory(&self) -> &'static str {
        match self.cached {
            Some(cached) if cached > self.len / 100 => "part of the file is in memory",
            Some(_) => "the file is not in memory",
            // The kernel tells only its owner, or not at all.
            None => "whether the file is in memory is unknown",
        }
    }

    /// Whether a pass reads every byte once, in large requests: then nothing is gained by bringing it in.
    fn is_read_once(&self) -> bool {
        match self.visit {
            Visit::Sequential | Visit::Blocks => true,
            Visit::Shuffled => self.row >= LARGE_ROW as u64,
            Visit::Random => false,
        }
    }

    /// Whether small rows of a file in memory are read ahead, and a mapped window is possible. All of it has to be
    /// there: a fault waits for its disk alone.
    fn is_for_trial(&self) -> bool {
        self.warmth() == Warmth::Whole
            && matches!(self.visit, Visit::Shuffled | Visit::Blocks)
            && self.row < SMALL_ROW
            && self.guarded
            && window_for(self.budget).is_ok()
    }

    fn automatic(&self, cache: Cache) -> (Way, String) {
        if self.warmth() >= Warmth::Warm {
            return (Way::Read, "the file is in the page cache, and reads copy from there".into());
        }
        let memory = self.memory();
        match cache {
            Cache::Keep if self.warmth() >= Warmth::Half && self.is_read_once() => {
                (Way::Read, "most of the file is in the page cache, and reads bring in the rest".into())
            }
            Cache::Keep if self.is_read_once() && self.direct => (
                Way::Direct,
                format!("{memory}, and a deep queue of unbuffered reads is the fastest way through it"),
            ),
            Cache::Keep => (Way::Read, format!("{memory}, and many reads at once bring it in")),
            Cache::Drop if self.direct => (
                Way::Direct,
                format!(
                    "{} are too large to keep in memory, and unbuffered reads leave the page cache alone",
                    human(self.len)
                ),
            ),
            Cache::Drop => (
                Way::Read,
                "the file is too large to keep in memory, and this filesystem has no unbuffered reads".into(),
            ),
        }
    }
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
            remote: false,
            cached_locally: false,
        }
    }

    #[test]
    fn the_choice_follows_the_facts() {
        let of = |facts: Facts| {
            let choice = facts.choose();
            assert!(!choice.why.is_empty());
            (choice.way, choice.cache)
        };
        let warm = Facts { cached: Some(4 * GIB), ..facts() };
        let tight = Facts { room: GIB, ..facts() };
        assert_eq!(of(facts()), (Way::Read, Cache::Keep));
        for visit in [Visit::Sequential, Visit::Blocks] {
            assert_eq!(of(Facts { visit, ..facts() }), (Way::Direct, Cache::Drop));
        }
        assert_eq!(of(Facts { row: 64 << 10, ..facts() }), (Way::Direct, Cache::Drop));
        assert_eq!(of(Facts { row: 64 << 10, visit: Visit::Random, ..facts() }), (Way::Read, Cache::Keep));
        assert_eq!(of(warm), (Way::Advise, Cache::Keep));
        assert_eq!(of(Facts { guarded: false, ..warm }), (Way::Read, Cache::Keep));
        assert_eq!(of(Facts { budget: 1 << 20, ..warm }), (Way::Read, Cache::Keep));
        assert_eq!(of(Facts { row: 1 << 20, ..warm }), (Way::Read, Cache::Keep));
        assert_eq!(of(Facts { visit: Visit::Sequential, ..warm }), (Way::Read, Cache::Keep));
        assert_eq!(of(tight), (Way::Direct, Cache::Drop));
        assert_eq!(of(Facts { direct: false, ..tight }), (Way::Read, Cache::Drop));
        assert_eq!(of(Facts { cached: None, ..tight }), (Way::Direct, Cache::Drop));
        assert_eq!(of(Facts { cache: CacheWish::Drop, ..facts() }), (Way::Direct, Cache::Drop));
        assert_eq!(of(Facts { access: Access::Map, ..tight }), (Way::Map, Cache::Keep));
        assert_eq!(
            of(Facts { access: Access::Advise, cache: CacheWish::Drop, ..facts() }),
            (Way::Advise, Cache::Drop)
        );
    }

    #[test]
    fn the_first_chunk_of_a_sweep_that_brings_the_file_in_goes_around_the_page_cache() {
        let first = |facts: Facts| facts.choose().at_first().way;
        assert_eq!(first(facts()), Way::Direct);
        assert!(facts().choose().at_first().why.starts_with("the file is not in memory"));
        assert_eq!(first(Facts { direct: false, ..facts() }), Way::Read);
        assert_eq!(first(Facts { cached: Some(3 * GIB), ..facts() }), Way::Read, "most of it is there");
        assert_eq!(first(Facts { visit: Visit::Random, ..facts() }), Way::Read);
        assert_eq!(first(Facts { access: Access::Read, ..facts() }), Way::Read, "as was asked for");
    }

    #[test]
    fn a_part_that_is_in_memory_is_not_denied() {
        for (quarters, visit) in
            [(1, Visit::Sequential), (1, Visit::Shuffled), (3, Visit::Shuffled), (3, Visit::Random)]
        {
            let choice = Facts { cached: Some(quarters * GIB), visit, ..facts() }.choose();
            for why in [&choice.why, &choice.at_first().why] {
                assert!(why.starts_with("part of the file is in memory, and"), "{quarters} of 4: {why}");
            }
        }
        let header = Facts { cached: Some(128 << 10), ..facts() }.choose().why;
        assert!(header.starts_with("the file is not in memory, and"), "{header}");
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
