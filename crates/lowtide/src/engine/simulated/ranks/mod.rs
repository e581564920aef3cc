//! Many ranks that read one dataset in an object store, in virtual time.
//!
//! What each rank asks for is not assumed: the engine runs for it, as it is, over bytes that are not there, and what it
//! asks a store for is written down ([`requests`]). Then all ranks make their requests to one store ([`Store`]): a first
//! byte after some time, a rate for each connection and for each rank's network, and for each prefix of names so many
//! requests a second; the rest are told to come again, as S3 does with 503. Nobody sleeps: time is what the events say.

mod tests;

use super::super::ahead::Ahead;
use super::super::bytes::{Data, Supply};
use super::super::job::{Input, Job, Pass};
use super::super::lane::Clock;
use super::super::rows::Rows;
use crate::budget::Budget;
use crate::error::Result;
use crate::options::{Access, Cache, CacheWish, Way, Wish};
use crate::order::{LastStep, Shard, Stream, Within};
use crate::store::{self, Cost, How, Nature, Read, Report, Source};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// A dataset of token files, and what each rank wants of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) shards: u64,
    /// Tokens of a shard, two bytes each.
    pub(super) shard_tokens: u64,
    pub(super) ranks: u64,
    pub(super) batch: u64,
    pub(super) block: u64,
    pub(super) within: Within,
    pub(super) budget: u64,
}

/// A request: which shard, and how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) shard: u64,
    /// Where in the dataset.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Chunks that are read together, and what is asked for.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) chunks: u64,
    pub(super) requests: Vec<Request>,
}

/// Bytes that are not there: what is asked for is written down.
#[derive(Clone, Debug)]
struct Asked {
    len: u64,
    reads: Arc<Mutex<Vec<(u64, u64)>>>,
    clock: Arc<AtomicU64>,
}

/// Requests that a rank has in flight at first, and at most.
pub(super) const IN_FLIGHT: (u64, u64) = (16, 64);
/// First byte of a request, and bytes a second of a connection.
pub(super) const FIRST_BYTE: u64 = 30_000_000;
pub(super) const CONNECTION: u64 = 90_000_000;

impl store::Store for Asked {
    fn nature(&self) -> Nature {
        // Of so many that are in flight together, each costs its share of the time.
        let together = IN_FLIGHT.0 as f64;
        let (request, byte) = (FIRST_BYTE as f64 / together, 1e9 / CONNECTION as f64 / together);
        let prior = Cost { request, byte, waits: true };
        Nature { end: self.len, in_flight: 64, ..Nature::plain(prior, 1) }
    }

    fn read(&self, reads: &mut [Read<'_>], _: How<'_>) -> Result<Report> {
        let mut asked = self.reads.lock().unwrap();
        asked.extend(reads.iter().map(|read| (read.offset, read.into.len() as u64)));
        self.clock.fetch_add(FIRST_BYTE, Ordering::Relaxed);
        Ok(Report::default())
    }
}

impl Supply for Asked {
    fn open(&self, _: Way, _: Cache, _: &Budget) -> Result<Arc<dyn store::Store>> {
        Ok(Arc::new(self.clone()))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn cached(&self) -> Option<u64> {
        Some(0)
    }

    fn room(&self) -> u64 {
        64 << 30
    }

    fn is_guarded(&self) -> bool {
        true
    }

    fn clock(&self) -> Clock {
        Clock::Counted(self.clock.clone())
    }

    fn source(&self) -> Option<&Source> {
        None
    }
}

impl World {
    pub(super) fn shard_bytes(&self) -> u64 {
        2 * self.shard_tokens
    }

    pub(super) fn window_bytes(&self) -> u64 {
        2 * (self.block + 1)
    }

    /// The largest range of one request: as many of them as are in flight take half of the budget.
    fn extent(&self) -> u64 {
        (self.budget / (2 * IN_FLIGHT.0)).clamp(1 << 20, 16 << 20)
    }

    /// What a rank asks for until it has so many chunks, or some more, in whole groups.
    pub(super) fn requests(&self, rank: u64, chunks: u64) -> Result<Vec<Group>> {
        let tokens = self.shards * self.shard_tokens;
        let asked = Asked { len: 2 * tokens, reads: Arc::default(), clock: Arc::default() };
        let budget = Some(Budget::new(self.budget)?);
        let wish = Wish { access: Access::Direct, cache: CacheWish::Drop, budget };
        let data = Data::over(Box::new(asked.clone()), "s3://bucket/tokens".into(), wish)?;
        // Windows that begin at any token, as those of `Tokens` do.
        let len = usize::try_from(self.window_bytes()).unwrap_or(usize::MAX);
        let rows = Rows::whole(0, 2, len, tokens - self.block);
        let input = Input { rows, dealt: None, data, as_type: None, at_last: None, held: None };
        let stream = Stream::new(tokens, self.block, 0, self.within)?;
        let steps = Shard::new(rank, self.ranks)?.steps(stream.count(), 0, self.batch, LastStep::Drop)?;
        let job = Job { inputs: vec![input], pass: Pass::Windows(Arc::new(stream)), steps, ahead: chunks };
        let mut ahead = Ahead::new(job)?.alone();
        let mut groups: Vec<Group> = Vec::new();
        loop {
            ahead.next(&|| Ok(())).transpose()?;
            let reads = std::mem::take(&mut *asked.reads.lock().unwrap());
            match groups.last_mut() {
                // It was there already.
                Some(last) if reads.is_empty() => last.chunks += 1,
                // The last group is counted to its end: it was read as a whole.
                Some(_) if ahead.taken() > chunks => break,
                _ => groups.push(Group { chunks: 1, requests: self.ranges(reads) }),
            }
        }
        Ok(groups)
    }

    /// Reads as requests: what touches or overlaps is one, up to the largest, and none crosses from one shard to the
    /// next.
    fn ranges(&self, mut reads: Vec<(u64, u64)>) -> Vec<Request> {
        reads.sort_unstable();
        let (most, shard) = (self.extent(), self.shard_bytes());
        let mut all: Vec<Request> = Vec::new();
        for (mut offset, len) in reads {
            let end = offset + len;
            while offset < end {
                let until = end.min((offset / shard + 1) * shard);
                match all.last_mut() {
                    Some(last)
                        if last.offset + last.bytes >= offset
                            && last.shard == offset / shard
                            && until - last.offset <= most =>
                    {
                        last.bytes = last.bytes.max(until - last.offset);
                    }
                    _ => all.push(Request { shard: offset / shard, offset, bytes: until - offset }),
                }
                offset = until;
            }
        }
        all
    }
}

/// What a store allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Prefixes that shards are dealt to.
    pub(super) prefixes: u64,
    /// Requests a second of each.
    pub(super) rate: u64,
    /// Requests that may come at once, after a rest.
    pub(super) burst: u64,
    /// Bytes a second of the network of one rank.
    pub(super) network: u64,
}

impl Limits {
    pub(super) const S3: Self = Self { prefixes: 1, rate: 5_500, burst: 550, network: 1_500_000_000 };
}

/// How a dataset is opened, before the first window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// A `lowtide.json` of so many bytes says all.
    Manifest(u64),
    /// A list of the names, a thousand at a time.
    Listing,
    /// And the header of every shard.
    Headers,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// When each rank had opened the dataset, and had its first batch, in nanoseconds.
    pub(super) opened: Vec<u64>,
    pub(super) first: Vec<u64>,
    /// When the last one had all that was to be read.
    pub(super) end: u64,
    /// Requests that were served, for each second and prefix.
    pub(super) served: BTreeMap<(u64, u64), u64>,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Requests that were told to come again.
    pub(super) refused: u64,
}

impl Outcome {
    /// The most requests that a prefix served in a second.
    pub(super) fn peak(&self) -> u64 {
        self.served.values().copied().max().unwrap_or(0)
    }
}

/// One rank: what it waits for, and how many requests it makes at once.
struct Rank {
    /// What is asked for, batch of requests after batch: a batch begins when the last is there.
    batches: VecDeque<Vec<Ask>>,
    waiting: VecDeque<Ask>,
    flying: u64,
    most: f64,
    halved: u64,
    network_free: u64,
    done: usize,
    /// How many batches are for opening.
    opening: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    prefix: u64,
    bytes: u64,
    tries: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request comes to the store.
    Arrives,
    /// It was told to come again.
    Refused,
    /// All of it is there.
    Served,
}

/// A store in virtual time.
pub(super) struct Store {
    limits: Limits,
    /// Requests that each prefix would serve now, and when that was.
    allowed: Vec<(f64, u64)>,
    random: u64,
}

impl Store {
    pub(super) fn new(limits: Limits) -> Self {
        let allowed = vec![(limits.burst as f64, 0); usize::try_from(limits.prefixes).unwrap()];
        Self { limits, allowed, random: 0x1234_5678_9ABC_DEF1 }
    }

    /// A number below 1,024.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.random >> 54
    }

    fn allows(&mut self, prefix: u64, now: u64) -> bool {
        let Limits { rate, burst, .. } = self.limits;
        let (allowed, last) = &mut self.allowed[usize::try_from(prefix).unwrap()];
        *allowed = (*allowed + (now - *last) as f64 * 1e-9 * rate as f64).min(burst as f64);
        *last = now;
        if *allowed < 1.0 {
            return false;
        }
        *allowed -= 1.0;
        true
    }

    /// Ranks that open the dataset, and then read their groups.
    fn ranks(&self, shards: u64, opening: Opening, groups: &[Vec<Group>]) -> Vec<Rank> {
        let prefixes = self.limits.prefixes;
        let ask = |shard: u64, bytes| Ask { prefix: shard % prefixes, bytes, tries: 0 };
        let listing = || (0..shards.div_ceil(1000)).map(|_| vec![ask(0, 300 << 10)]).collect::<Vec<_>>();
        let batches: Vec<Vec<Ask>> = match opening {
            Opening::Manifest(bytes) => vec![vec![ask(0, bytes)]],
            Opening::Listing => listing(),
            Opening::Headers => {
                let headers = (0..shards).map(|shard| ask(shard, 1024)).collect();
                listing().into_iter().chain([headers]).collect()
            }
        };
        let rank = |groups: &Vec<Group>| {
            let reads = groups.iter().map(|group| {
                group.requests.iter().map(|request| ask(request.shard, request.bytes)).collect::<Vec<_>>()
            });
            let (waiting, opening) = (VecDeque::new(), batches.len());
            let batches = batches.iter().cloned().chain(reads).collect();
            let most = IN_FLIGHT.0 as f64;
            Rank { batches, waiting, flying: 0, most, halved: 0, network_free: 0, done: 0, opening }
        };
        groups.iter().map(rank).collect()
    }

    /// All ranks open the dataset and read their groups, as fast as they can. All begin at once.
    pub(super) fn serve(&mut self, shards: u64, opening: Opening, groups: &[Vec<Group>]) -> Outcome {
        let mut ranks = self.ranks(shards, opening, groups);
        let mut events = Events::default();
        let mut outcome =
            Outcome { opened: vec![0; ranks.len()], first: vec![0; ranks.len()], ..Outcome::default() };
        for (number, rank) in ranks.iter_mut().enumerate() {
            rank.waiting = rank.batches.pop_front().unwrap_or_default().into();
            rank.go(number, 0, &mut events);
        }
        while let Some((now, event, number, ask)) = events.next() {
            let rank = &mut ranks[number];
            match event {
                Event::Arrives if self.allows(ask.prefix, now) => {
                    *outcome.served.entry((now / SECOND, ask.prefix)).or_default() += 1;
                    outcome.requests += 1;
                    outcome.bytes += ask.bytes;
                    events.add(rank.there(ask.bytes, now, self.limits.network), Event::Served, number, ask);
                }
                Event::Arrives => {
                    outcome.refused += 1;
                    events.add(now + FIRST_BYTE, Event::Refused, number, ask);
                }
                Event::Refused => {
                    rank.fewer(now);
                    // The object_store crate waits 100 ms, then twice as long each time, up to 15 s, more or less.
                    let wait = (SECOND / 10) << ask.tries.min(8);
                    let wait = wait.min(15 * SECOND) / 1024 * (512 + self.draw());
                    let again = Ask { tries: ask.tries + 1, ..ask };
                    events.add(now + wait, Event::Arrives, number, again);
                }
                Event::Served => {
                    rank.served(number, now, &mut outcome);
                    rank.go(number, now, &mut events);
                }
            }
        }
        outcome
    }
}

impl Rank {
    /// Makes as many requests as it may.
    fn go(&mut self, number: usize, now: u64, events: &mut Events) {
        while (self.flying as f64) < self.most.floor()
            && let Some(ask) = self.waiting.pop_front()
        {
            self.flying += 1;
            events.add(now, Event::Arrives, number, ask);
        }
    }

    /// When all bytes of a request that is served now are there: by its connection, and by the network.
    fn there(&mut self, bytes: u64, now: u64, network: u64) -> u64 {
        let nanos = |rate: u64| bytes * SECOND / rate;
        let first = now + FIRST_BYTE;
        self.network_free = self.network_free.max(first) + nanos(network);
        (first + nanos(CONNECTION)).max(self.network_free)
    }

    /// Half as many at once, but not for each of those that were refused together.
    fn fewer(&mut self, now: u64) {
        if now >= self.halved + SECOND / 10 {
            (self.most, self.halved) = ((self.most / 2.0).max(1.0), now);
        }
    }

    /// One request less is in flight; where it was the last of its batch, the next batch waits.
    fn served(&mut self, number: usize, now: u64, outcome: &mut Outcome) {
        self.most = (self.most + 1.0 / self.most).min(IN_FLIGHT.1 as f64);
        self.flying -= 1;
        while self.flying == 0 && self.waiting.is_empty() {
            self.done += 1;
            if self.done == self.opening {
                outcome.opened[number] = now;
            } else if self.done == self.opening + 1 {
                outcome.first[number] = now;
            }
            outcome.end = outcome.end.max(now);
            match self.batches.pop_front() {
                Some(next) => self.waiting = next.into(),
                None => break,
            }
        }
    }
}

/// What happens when, in order.
#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<Happens>>,
    count: u64,
}

/// When, which of those that happen then, what, and to whom.
type Happens = (u64, u64, Event, usize, Ask);

impl Events {
    fn add(&mut self, when: u64, event: Event, rank: usize, ask: Ask) {
        self.count += 1;
        self.heap.push(Reverse((when, self.count, event, rank, ask)));
    }

    fn next(&mut self) -> Option<(u64, Event, usize, Ask)> {
        let Reverse((when, _, event, rank, ask)) = self.heap.pop()?;
        Some((when, event, rank, ask))
    }
}
