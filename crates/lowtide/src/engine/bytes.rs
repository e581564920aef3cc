//! Opened bytes, and the ways to them: the only place where facts are gathered before a decision.
//!
//! One file, or the data of many end to end; how the caller wants them read, and the budget. Several arrays
//! can be views of the same bytes. Closing it closes all of them.

use super::choose::{Choice, Facts, Visit};
use super::lane::{Clock, Lane};
use super::seen::Trial;
use crate::budget::{Budget, pool};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::{Access, Cache, CacheWish, Way, Wish};
use crate::store::{self, AsType, Made, Source, Store, sigbus, window_for};
use crate::{meter, sys};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// What bytes are made of: files, or a disk that is simulated, which has a machine of its own around it.
pub(crate) trait Supply: Send + Sync + fmt::Debug {
    /// A way to the bytes.
    fn open(&self, way: Way, cache: Cache, budget: &Budget) -> Result<Arc<dyn Store>>;
    /// How many there are.
    fn len(&self) -> u64;
    /// About how many of them are in the page cache, where that can be known.
    fn cached(&self) -> Option<u64>;
    /// Memory that this process can still have, page cache that can be reclaimed included.
    fn room(&self) -> u64 {
        meter::room().bytes
    }
    /// Whether a map of them is answered for.
    fn is_guarded(&self) -> bool {
        sigbus::in_place()
    }
    /// What time it is where they are.
    fn clock(&self) -> Clock {
        Clock::default()
    }
    /// The files, where it is files.
    fn source(&self) -> Option<&Source>;
}

impl Supply for Source {
    fn open(&self, way: Way, cache: Cache, budget: &Budget) -> Result<Arc<dyn Store>> {
        store::open(self, way, cache, budget)
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn cached(&self) -> Option<u64> {
        self.cached()
    }

    fn source(&self) -> Option<&Source> {
        Some(self)
    }
}

/// How many files are looked into for a fingerprint.
const PRINTED: usize = 16;

/// Opened bytes.
#[derive(Debug)]
pub(crate) struct Data {
    /// The file, or the first of many.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) cache: CacheWish,
    pub(crate) budget: Budget,
    opened: Mutex<Option<Arc<Opened>>>,
    /// What was found of two ways to small rows of so many bytes, in an order.
    trials: Mutex<HashMap<(Visit, usize), Trial>>,
    fingerprint: OnceLock<String>,
}

/// What belongs to opened bytes and has to go with them: space on a disk.
pub(crate) trait LetGo: Send + Sync + fmt::Debug {
    /// Gives it back now.
    fn let_go(&self);
}

/// Which way to opened bytes, `None` for that of rows which somebody asks for; and what their elements become on it.
type Which = (Option<(Way, Cache)>, Option<AsType>);

/// What `close` lets go.
#[derive(Debug)]
struct Opened {
    supply: Box<dyn Supply>,
    /// What others have made of them.
    made: Mutex<Vec<Weak<dyn LetGo>>>,
    lanes: Made<Which, Lane>,
}

impl Data {
    /// The bytes of some files, to be read as `wish` says. Mapped access is refused where the budget has no room for a
    /// window: now, not at the first row.
    pub(crate) fn open(source: Source, wish: Wish) -> Result<Arc<Self>> {
        let path = source.path().to_owned();
        Self::over(Box::new(source), path, wish)
    }

    pub(crate) fn over(supply: Box<dyn Supply>, path: PathBuf, wish: Wish) -> Result<Arc<Self>> {
        let Wish { access, cache, budget } = wish;
        let budget = budget.unwrap_or_else(|| Budget::default_for(supply.room()));
        access.fits(supply.source().is_some_and(Source::is_remote))?;
        if access.way().is_some_and(Way::has_windows) {
            window_for(budget.limit())?;
        }
        let opened = Opened { supply, made: Mutex::default(), lanes: Made::default() };
        let opened = Mutex::new(Some(Arc::new(opened)));
        let (trials, fingerprint) = (Mutex::default(), OnceLock::new());
        Ok(Arc::new(Self { path, access, cache, budget, opened, trials, fingerprint }))
    }

    /// Where the bytes are.
    pub(crate) fn source(&self) -> Result<Source> {
        let nothing = || Error::unsupported("there is no file behind this", "");
        self.opened()?.supply.source().cloned().ok_or_else(nothing)
    }

    /// Lets go of the files, and of all ways to them.
    pub(crate) fn close(&self) {
        let Some(opened) = sys::locked(&self.opened, Option::take) else { return };
        for made in sys::locked(&opened.made, std::mem::take) {
            if let Some(made) = made.upgrade() {
                made.let_go();
            }
        }
        // A thread that reads ahead holds on to the file until it notices: a moment.
        for _ in 0..2_000 {
            if Arc::strong_count(&opened) == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.opened().is_err()
    }

    /// `interrupt`, and an error once it was closed.
    pub(crate) fn stop(&self, interrupt: Interrupt<'_>) -> Result<()> {
        self.opened()?;
        interrupt()
    }

    /// `made` goes when this is closed, if it is still there.
    pub(crate) fn goes_with(&self, made: Weak<dyn LetGo>) -> Result<()> {
        sys::locked(&self.opened()?.made, |all| {
            all.retain(|made| made.strong_count() > 0);
            all.push(made);
        });
        Ok(())
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let opened = sys::locked(&self.opened, |opened| opened.clone());
        opened.ok_or_else(|| Error::Closed { path: self.path.clone() })
    }

    /// What time it is where the bytes are.
    pub(crate) fn clock(&self) -> Result<Clock> {
        Ok(self.opened()?.supply.clock())
    }

    /// How memory for so many bytes from `offset` on is best placed for unbuffered reads: see [`pool::lead`].
    pub(super) fn lead(&self, offset: u64, len: usize) -> usize {
        let opened = self.opened();
        let place = opened.ok().and_then(|opened| Some(opened.supply.source()?.place(offset)));
        place.map_or(0, |place| pool::lead(place, len))
    }

    /// What is known of two ways to small rows.
    pub(super) fn trial<T>(&self, of: (Visit, usize), ask: impl FnOnce(&mut Trial) -> T) -> T {
        sys::locked(&self.trials, |trials| ask(trials.entry(of).or_default()))
    }

    /// A way to the bytes, made on first use.
    fn known(&self, which: Which, make: impl FnOnce(&dyn Supply) -> Result<Arc<Lane>>) -> Result<Arc<Lane>> {
        let opened = self.opened()?;
        opened.lanes.get(which, || make(&*opened.supply))
    }

    /// A way to the bytes, or to the elements that they become.
    pub(crate) fn lane(&self, way: Way, cache: Cache, as_type: Option<AsType>) -> Result<Arc<Lane>> {
        self.known((Some((way, cache)), as_type), |supply| {
            Ok(Arc::new(match as_type {
                Some(as_type) => self.lane(way, cache, None)?.casting(as_type, &self.budget),
                None => Lane::new(supply.open(way, cache, &self.budget)?, supply.clock()),
            }))
        })
    }

    /// What a choice depends on, as it is now, for rows of so many bytes.
    pub(crate) fn facts(&self, visit: Visit, row: u64) -> Result<Facts> {
        let opened = self.opened()?;
        let source = opened.supply.source();
        let remote = source.is_some_and(Source::is_remote);
        Ok(Facts {
            access: self.access,
            cache: self.cache,
            visit,
            row,
            len: opened.supply.len(),
            cached: opened.supply.cached(),
            room: opened.supply.room(),
            budget: self.budget.limit(),
            direct: self.access == Access::Auto
                && !remote
                && self.lane(Way::Direct, Cache::Drop, None).is_ok(),
            remote,
            cached_locally: source.is_some_and(|source| source.local_cache().is_some()),
            guarded: opened.supply.is_guarded(),
        })
    }

    /// How rows of so many bytes are read now.
    pub(crate) fn choose(&self, visit: Visit, row: u64) -> Result<Choice> {
        let choice = self.facts(visit, row)?.choose();
        self.lane(choice.way, choice.cache, None)?; // fails now where it cannot be
        log::debug!("{}: access {} because {}", self.path.display(), choice.way, choice.why);
        Ok(choice)
    }

    /// The way to rows of so many bytes that somebody asks for, by a choice that is made once.
    pub(crate) fn random(&self, row: u64, as_type: Option<AsType>) -> Result<Arc<Lane>> {
        self.known((None, as_type), |_| {
            let choice = self.choose(Visit::Random, row)?;
            self.lane(choice.way, choice.cache, as_type)
        })
    }

    /// What these bytes are, in a few hexadecimal digits: `what` they mean, the sizes in order, and the first and last
    /// 4 KiB of at most [`PRINTED`] files.
    pub(crate) fn fingerprint(&self, what: &str) -> Result<String> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known.clone());
        }
        let source = self.source()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(what.as_bytes());
        let lens = source.lens();
        for len in &lens {
            hasher.update(&len.to_le_bytes());
        }
        // Evenly over all of them, the first and the last included.
        let last = lens.len().saturating_sub(1);
        let mut printed: Vec<usize> = (0..PRINTED).map(|i| i * last / (PRINTED - 1)).collect();
        printed.dedup();
        printed.truncate(lens.len());
        // Objects as if they were files: a copy on a disk has the same.
        for index in printed {
            let file = source.one(index)?;
            let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX).min(4096)];
            for offset in [0, file.len() - bytes.len() as u64] {
                file.read_exact(offset, &mut bytes)?;
                hasher.update(&bytes);
            }
        }
        let digest = hasher.finalize().to_hex()[..32].to_owned();
        Ok(self.fingerprint.get_or_init(|| digest).clone())
    }
}

/// That a state was taken from this data, by their fingerprints.
pub(crate) fn same_data(own: &str, of_state: &str) -> Result<()> {
    if own == of_state {
        return Ok(());
    }
    Err(Error::argument(
        format!("the state is of other data: its fingerprint is {of_state}, this data's is {own}"),
        "open the files that the state was taken from, in the same order, and take the same part of them",
    ))
}
