//! A store, and what was learned of it.

use super::seen::Costs;
use super::tactics::Reach;
use crate::budget::Budget;
use crate::error::Result;
use crate::store::{AsType, Casting, Cost, How, Nature, Read, Report, Store};
use crate::sys::{self, Warmth, crew};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What time it is: by the wall, or by a disk that is simulated.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// Since some moment.
    Wall(Instant),
    /// Nanoseconds, counted by whoever makes time pass.
    #[cfg_attr(not(test), allow(dead_code))]
    Counted(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Self {
        Self::Wall(Instant::now())
    }
}

impl Clock {
    pub(crate) fn now(&self) -> Duration {
        match self {
            Self::Wall(since) => since.elapsed(),
            Self::Counted(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }
}

/// Whether a disk was asked for some reads before they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// With the call before.
    Ahead,
    /// Now.
    Now,
}

/// A store, and what its reads cost as far as that is known. All that read from the same bytes in the same way learn
/// together.
#[derive(Debug)]
pub(crate) struct Lane {
    store: Arc<dyn Store>,
    /// What the store was like when it was opened.
    at_first: Nature,
    /// What was learned; nothing while the store measures by itself.
    costs: Mutex<Option<Costs>>,
    /// Bytes of a call, as the last ones came to.
    call: AtomicUsize,
    clock: Clock,
    /// Where elements are converted: the store of what is in the file.
    raw: Option<(AsType, Arc<dyn Store>)>,
}

impl Lane {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let at_first = store.nature();
        let costs = Mutex::new(at_first.extent.is_none().then(|| Costs::new(at_first.prior)));
        Self { store, at_first, costs, call: AtomicUsize::new(Reach::LEAST), clock, raw: None }
    }

    /// A way to its elements as another type.
    pub(crate) fn casting(&self, as_type: AsType, budget: &Budget) -> Self {
        let store = Casting { store: self.store.clone(), as_type, budget: budget.clone() };
        let grows = as_type.cast.from().itemsize() <= as_type.cast.to().itemsize();
        let raw = grows.then(|| (as_type, self.store.clone()));
        Self { raw, ..Self::new(Arc::new(store), self.clock.clone()) }
    }

    /// What its elements become, where they are no larger before that: see [`Lane::read_raw`].
    pub(crate) fn as_type(&self) -> Option<AsType> {
        self.raw.as_ref().map(|(as_type, _)| *as_type)
    }

    pub(crate) fn nature(&self) -> Nature {
        self.store.nature()
    }

    /// What reads cost now.
    pub(crate) fn cost(&self) -> Cost {
        // A store may measure by itself, as long as it has requests of its own to make. It is asked before the lock: it has
        // one of its own.
        let now = if self.at_first.extent.is_some() { self.store.nature() } else { self.at_first };
        if now.extent.is_some() || !now.learns {
            return now.prior; // those of a map, of bytes held in memory, never change
        }
        sys::locked(&self.costs, |costs| costs.get_or_insert_with(|| Costs::new(now.prior)).now())
    }

    /// About how much of the bytes a disk has to be asked for.
    pub(crate) fn missing(&self) -> f64 {
        sys::locked(&self.costs, |costs| costs.as_ref().map_or(1.0, Costs::missing))
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Has something done by so many hands side by side, call by call, each until a call of its own says that nothing is
    /// left. Where time is counted, each has its own: whoever is furthest behind makes the next call, so that what comes
    /// of it does not depend on who comes first.
    pub(crate) fn together<H>(
        &self,
        hands: usize,
        hand: impl Fn() -> H + Sync,
        call: impl Fn(&mut H) -> bool + Sync,
    ) {
        let Clock::Counted(clock) = &self.clock else {
            return crew::together(hands - 1, &|| {
                let mut hand = hand();
                while call(&mut hand) {}
            });
        };
        let mut end = clock.load(Ordering::Relaxed);
        let mut hands: Vec<_> = (0..hands).map(|_| (end, hand())).collect();
        while let Some(at) = (0..hands.len()).min_by_key(|&at| hands[at].0) {
            clock.store(hands[at].0, Ordering::Relaxed);
            let more = call(&mut hands[at].1);
            hands[at].0 = clock.load(Ordering::Relaxed);
            if !more {
                end = end.max(hands.remove(at).0);
            }
        }
        clock.store(end, Ordering::Relaxed);
    }

    /// How much to ask for at once, at first.
    pub(crate) fn reach(&self) -> Reach {
        Reach::new(self.call.load(Ordering::Relaxed))
    }

    /// Remembers how much was asked for at once in the end.
    pub(crate) fn reached(&self, reach: Reach) {
        self.call.store(reach.most().1, Ordering::Relaxed);
    }

    /// Reads, and remembers what is reported: of reads that a disk was asked for ahead of time, by their rate.
    pub(crate) fn read(&self, reads: &mut [Read<'_>], how: How<'_>, asked: Asked) -> Result<()> {
        self.read_by(&*self.store, reads, how, asked)
    }

    /// Reads what is in the file, for whoever converts it himself: merged reads, of which not all is wanted.
    pub(crate) fn read_raw(&self, reads: &mut [Read<'_>], how: How<'_>, asked: Asked) -> Result<()> {
        let Some((as_type, store)) = &self.raw else { return self.read(reads, how, asked) };
        let coming = as_type.all_in_file(how.coming);
        // Around the processor's caches go the elements that are made of it.
        self.read_by(&**store, reads, How { coming: &coming, far: false, ..how }, asked)
    }

    fn read_by(&self, store: &dyn Store, reads: &mut [Read<'_>], how: How<'_>, asked: Asked) -> Result<()> {
        let began = self.now();
        let mut report = store.read(reads, how)?;
        if asked == Asked::Ahead && report.looked > 0 {
            let bytes = reads.iter().map(|read| read.into.len() as u64).sum();
            report = Report::by_rate(reads.len(), bytes, self.now().saturating_sub(began));
        }
        if report != Report::default() {
            self.update(|costs| costs.saw(report));
        }
        Ok(())
    }

    /// Takes into account how much of the file the page cache has.
    pub(crate) fn found(&self, warmth: Warmth) {
        self.update(|costs| costs.found(warmth));
    }

    /// Takes into account how long so many requests for so many bytes took.
    pub(crate) fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        self.update(|costs| costs.learn(requests, bytes, took));
    }

    fn update(&self, learn: impl FnOnce(&mut Costs)) {
        sys::locked(&self.costs, |costs| costs.as_mut().map(learn));
    }
}
