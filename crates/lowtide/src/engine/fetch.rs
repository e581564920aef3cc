//! Reads, by several threads where that is worth it.
//!
//! Sorted reads go to a store call by call. Merged ones go through a scratch buffer of the budget and are
//! scattered from there; all others go straight to their place. What is merged is decided in
//! [`plan`](super::plan), who reads and how in [`tactics`].

use super::lane::{Asked, Lane};
use super::plan::{Extent, extents, next_call, parts, ranges};
use super::shares;
use super::tactics::{self, Gap, Reach, Tactics};
use super::tuning::{ASK, FAR, FEW, PIECE, PIECE_WARM, SCRATCH_WARM};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::store::{Cost, How, Manner, Nature, Places, Read, Stop, sort};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Where bytes are fetched from, and how: what all reads of a fetch have in common.
#[derive(Clone, Copy)]
pub(crate) struct Fetch<'a> {
    pub(crate) lane: &'a Lane,
    pub(crate) budget: &'a Budget,
    pub(crate) gap: Gap,
    pub(crate) interrupt: Interrupt<'a>,
}

impl Fetch<'_> {
    /// Fulfils `reads`, with several threads where that is worth it. They are left in some other order.
    pub(crate) fn reads(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let extent = self.lane.nature().extent;
        let piece = extent.unwrap_or(if self.lane.cost().waits { PIECE } else { PIECE_WARM });
        if reads.iter().all(|r| r.into.len() <= piece) {
            return self.short(reads);
        }
        // Long reads in pieces: so that threads can share them, and so that they can be interrupted.
        let reads = reads.iter_mut().map(Read::again);
        let mut pieces: Vec<_> = match extent {
            Some(extent) => reads.flat_map(|read| read.pieces(extent)).collect(),
            None => reads.flat_map(|read| read.paged(piece)).collect(),
        };
        self.short(&mut pieces)
    }

    fn short(&self, reads: &mut [Read<'_>]) -> Result<()> {
        let work = (reads.len(), reads.iter().map(|read| read.into.len()).sum());
        self.parts(work, |share| parts(reads, share).into_iter())
    }

    /// The same for reads that are made part by part, when a thread takes them: `count` of them with so many `bytes`.
    /// `parts` is told how many belong in one.
    pub(crate) fn parts<'b, P: AsMut<[Read<'b>]>, I: Iterator<Item = P> + Send>(
        &self,
        (count, bytes): (usize, usize),
        parts: impl FnOnce(usize) -> I,
    ) -> Result<()> {
        let Self { lane, gap, .. } = *self;
        let (nature, mut cost) = (lane.nature(), lane.cost());
        if let Some(extent) = nature.extent {
            return parts(count.max(1)).try_for_each(|mut part| self.ranges(part.as_mut(), extent));
        }
        let Tactics { threads, share } = tactics::share(&nature, cost, (count, bytes), gap);
        match gap {
            Gap::Wanted => cost.byte = 0.0,
            Gap::Avoided => cost.request = 0.0, // then nothing is worth merging
            Gap::Lost => {}
        }
        let parts = Mutex::new(parts(share));
        let began = lane.now();
        let answer = Mutex::new((0, 0, 0, Ok(())));
        let stop = AtomicBool::new(false);
        let ask = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { (self.interrupt)() };
        let fetch = Fetch { interrupt: &ask, ..*self };
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let hand = || Hand::new(&fetch, nature, cost, bytes >= FAR);
        lane.together(threads, hand, |hand| {
            let result = hand.call(next);
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(Some((reads, requests, bytes))) => {
                    answer.0 += reads;
                    answer.1 += requests;
                    answer.2 += bytes;
                }
                Ok(None) => {
                    lane.reached(hand.reach);
                    return false;
                }
                // The first error that is not only another thread's stop.
                Err(error) if matches!(answer.3, Ok(()) | Err(Error::Interrupted)) => {
                    answer.3 = Err(error);
                }
                Err(_) => {}
            }
            answer.3.is_ok()
        });
        let (done, requests, bytes, answer) = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
        answer?;
        if done < count {
            return Err(Error::Interrupted); // forked in the middle of it: the others are in another process
        }
        lane.learn(requests, bytes, lane.now().saturating_sub(began));
        Ok(())
    }

    /// All at once, by a store that has many requests in flight by itself, and looks for signals while it waits.
    fn ranges(&self, reads: &mut [Read<'_>], extent: usize) -> Result<()> {
        (self.interrupt)()?;
        sort(reads);
        let mut cost = self.lane.cost();
        if self.gap == Gap::Avoided {
            cost.request = 0.0; // then nothing is worth merging
        }
        // What is empty needs no request.
        let empty = reads.iter().take_while(|read| read.into.is_empty()).count();
        let reads = &mut reads[empty..];
        let extents: Vec<Extent> = ranges(reads.iter().map(|r| r.offset..r.end()), cost, extent).collect();
        let stop = Stop(Some(self.interrupt));
        let how = How { manner: Manner::Together, extents: &extents, stop, ..How::default() };
        self.lane.read(reads, how, Asked::Now)
    }
}

/// What one thread keeps from call to call.
struct Hand<'f, P> {
    fetch: &'f Fetch<'f>,
    nature: Nature,
    cost: Cost,
    far: bool,
    /// The part that it is at, how many of its reads are done, and the call that comes next.
    part: Option<(P, usize, Vec<Extent>)>,
    /// Whether the disk was asked for the call that comes next.
    ahead: Asked,
    scratch: Option<Block>,
    reach: Reach,
    /// When somebody was last asked whether to go on.
    asked: Instant,
}

impl<'f, 'b, P: AsMut<[Read<'b>]>> Hand<'f, P> {
    fn new(fetch: &'f Fetch<'f>, nature: Nature, cost: Cost, far: bool) -> Self {
        let (reach, asked) = (fetch.lane.reach(), Instant::now());
        Self { fetch, nature, cost, far, part: None, ahead: Asked::Now, scratch: None, reach, asked }
    }

    /// Makes the next call, of the next part where the last one is done. Says how many reads, requests and bytes that
    /// were; nothing where nothing is left.
    fn call(&mut self, next: impl Fn() -> Option<P>) -> Result<Option<(usize, usize, usize)>> {
        let (mut part, done, call) = match self.part.take() {
            Some(part) => part,
            None => match next() {
                Some(part) => self.begin(part)?,
                None => return Ok(None),
            },
        };
        let (lane, mut scratch) = (self.fetch.lane, self.scratch.take());
        let rest = &mut part.as_mut()[done..];
        let size = call.last().map_or(rest.len(), |last| last.reads.end);
        let coming = self.next_call(&rest[size..], scratch.as_deref());
        let started = lane.now();
        let (requests, bytes) = (call.len(), call.iter().map(Extent::len).sum::<usize>());
        self.fetch_call(scratch.as_deref_mut().unwrap_or_default(), rest, &call, &coming)?;
        self.scratch = scratch;
        self.part = (size < rest.len()).then_some((part, done + size, coming));
        self.reach.took((requests, bytes), lane.now().saturating_sub(started));
        if self.asked.elapsed() >= ASK {
            (self.fetch.interrupt)()?;
            self.asked = Instant::now();
        }
        Ok(Some((size, requests, bytes)))
    }

    /// A part: its reads are sorted, and its first call is planned.
    fn begin(&mut self, mut part: P) -> Result<(P, usize, Vec<Extent>)> {
        let (lane, cost, reads) = (self.fetch.lane, self.cost, part.as_mut());
        sort(reads);
        let merges = || extents(reads.iter().map(|r| r.offset..r.end()), cost).any(|e| e.is_merged());
        if self.scratch.is_none() && reads.len() > 1 && cost.request > 0.0 && (reads.len() > FEW || merges())
        {
            self.scratch = scratch(self.fetch.budget, &self.nature, cost)?;
        }
        let call = self.next_call(reads, self.scratch.as_deref());
        let first = self.coming(&call);
        if !first.is_empty() {
            lane.read(&mut [], How { coming: &first, ..How::default() }, Asked::Now)?;
        }
        self.ahead = if first.is_empty() { Asked::Now } else { Asked::Ahead };
        Ok((part, 0, call))
    }

    /// The first call of these reads. Nothing can be merged without a scratch.
    fn next_call(&self, reads: &[Read<'_>], scratch: Option<&[u8]>) -> Vec<Extent> {
        let request = if scratch.is_some() { self.cost.request } else { 0.0 };
        let (cost, room) = (Cost { request, ..self.cost }, scratch.map_or(0, <[u8]>::len));
        next_call(&self.nature, reads, cost, self.reach.most(), room)
    }

    /// What the store is told of a call that comes next.
    fn coming(&self, call: &[Extent]) -> Vec<Range<u64>> {
        let Fetch { lane, gap, .. } = *self.fetch;
        tactics::coming(&self.nature, lane.cost(), gap, call.iter().map(|extent| &extent.bytes))
    }

    /// One call to the store, and the scatter after it. Elements are converted then, so that only those are which are
    /// wanted.
    fn fetch_call(
        &mut self,
        scratch: &mut [u8],
        rest: &mut [Read<'_>],
        call: &[Extent],
        next: &[Extent],
    ) -> Result<()> {
        let Fetch { lane, gap, .. } = *self.fetch;
        let longest = call.iter().map(Extent::len).max().unwrap_or(0);
        let manner = tactics::manner(&self.nature, lane.cost(), gap, (call.len(), longest));
        let coming = self.coming(next);
        let how = How { manner, far: self.far, coming: &coming, ..How::default() };
        let asked =
            std::mem::replace(&mut self.ahead, if coming.is_empty() { Asked::Now } else { Asked::Ahead });
        if call.iter().all(|extent| !extent.is_merged()) {
            return lane.read(&mut rest[..call.len()], how, asked);
        }
        let as_type = lane.as_type();
        let raw_len = |len| as_type.map_or(len, |as_type| as_type.cast.raw_len(len));
        let mut requests = Vec::with_capacity(call.len());
        let (mut free, mut reads) = (&mut *scratch, &mut *rest);
        for extent in call {
            let (mine, others) = reads.split_at_mut(extent.reads.len());
            reads = others;
            let start = extent.bytes.start;
            let offset = as_type.map_or(start, |as_type| as_type.in_file(start));
            if let [one] = mine {
                let lead = one.into.len() - raw_len(one.into.len());
                requests.push(Read { offset, into: &mut one.into[lead..] });
            } else {
                let (into, left) = free.split_at_mut(raw_len(extent.len()));
                free = left;
                requests.push(Read { offset, into });
            }
        }
        lane.read_raw(&mut requests, how, asked)?;
        let mut places = Places::new(as_type.map(|as_type| as_type.cast), self.far);
        let mut used = 0;
        for extent in call {
            match &mut rest[extent.reads.clone()] {
                [one] => places.take_end(one.into),
                many => {
                    for read in many {
                        let before = usize::try_from(read.offset - extent.bytes.start).unwrap_or(usize::MAX);
                        let from = &scratch[used + raw_len(before)..][..raw_len(read.into.len())];
                        places.take(from, read.into);
                    }
                    used += raw_len(extent.len());
                }
            }
        }
        Ok(())
    }
}

/// Memory to merge reads in: from a disk as much as is to be in flight, if the budget has it.
fn scratch(budget: &Budget, nature: &Nature, cost: Cost) -> Result<Option<Block>> {
    if cost.waits {
        let fair = shares::scratch(budget.limit(), tactics::threads(nature, cost, usize::MAX));
        let large = Block::counted(budget, fair)?;
        if large.as_ref().is_some_and(|block| block.len() >= SCRATCH_WARM) {
            return Ok(large);
        }
    }
    Block::counted(budget, SCRATCH_WARM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lane::Clock;
    use crate::engine::tuning::CAP;
    use crate::store::{Report, Store};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A store of numbers: byte i of the file is a function of i. Remembers what was asked of it.
    #[derive(Clone, Debug)]
    struct Numbers {
        len: u64,
        cost: Cost,
        asked: Arc<Mutex<Vec<Range<u64>>>>,
    }

    fn byte(i: u64) -> u8 {
        (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    impl Store for Numbers {
        fn nature(&self) -> Nature {
            Nature { end: self.len, ..Nature::plain(self.cost, 3) }
        }

        fn read(&self, reads: &mut [Read<'_>], _how: How<'_>) -> Result<Report> {
            for read in reads {
                assert!(read.end() <= self.len, "never past the end");
                self.asked.lock().unwrap().push(read.offset..read.end());
                for (i, b) in read.into.iter_mut().enumerate() {
                    *b = byte(read.offset + i as u64);
                }
            }
            Ok(Report::default())
        }
    }

    impl Numbers {
        fn lane(&self) -> Lane {
            Lane::new(Arc::new(self.clone()), Clock::default())
        }

        fn fetch(&self, budget: u64, reads: &mut [Read<'_>]) {
            let (lane, budget) = (&self.lane(), &Budget::new(budget).unwrap());
            Fetch { lane, budget, gap: Gap::Lost, interrupt: &|| Ok(()) }.reads(reads).unwrap();
        }
    }

    proptest! {
        #[test]
        fn every_read_arrives_in_its_place_within_the_models_bound(
            starts in prop::collection::vec(0u64..200_000, 0..400),
            len in 0usize..3000,
            request in prop::sample::select(vec![0.0, 100.0, 500.0, 100_000.0]),
            per_byte in prop::sample::select(vec![0.01, 0.1, 0.5, 50.0]),
            budget in prop::sample::select(vec![1u64 << 10, 64 << 20]),
        ) {
            let cost = Cost { request, byte: per_byte, waits: request > 5_000.0 };
            let store = Numbers { len: 203_000, cost, asked: Arc::default() };
            let mut out: Vec<Vec<u8>> = starts.iter().map(|_| vec![0; len]).collect();
            let mut reads: Vec<Read<'_>> =
                starts.iter().zip(&mut out).map(|(&offset, into)| Read { offset, into }).collect();
            store.fetch(budget, &mut reads);
            for (&start, out) in starts.iter().zip(&out) {
                for (i, &b) in out.iter().enumerate() {
                    prop_assert_eq!(b, byte(start + i as u64));
                }
            }
            // Merging never costs more than reading each by itself would have.
            let asked = store.asked.lock().unwrap();
            let model = |requests: usize, bytes: u64| requests as f64 * request + bytes as f64 * cost.byte;
            let bytes: u64 = asked.iter().map(|r| r.end - r.start).sum();
            prop_assert!(
                model(asked.len(), bytes) <= model(starts.len(), (starts.len() * len) as u64) + 1e-6
            );
        }
    }

    #[test]
    fn no_request_outgrows_its_scratch_however_dear_requests_are() {
        let cost = Cost { request: 1e9, byte: 0.1, waits: true };
        let store = Numbers { len: 64 << 20, cost, asked: Arc::default() };
        let mut out = vec![[0; 100]; 30];
        let starts: Vec<u64> = (0..10).flat_map(|i| [0, 100, 1 << 20].map(|at| at + (i << 22))).collect();
        let mut reads: Vec<_> =
            starts.iter().zip(&mut out).map(|(&offset, into)| Read { offset, into }).collect();
        store.fetch(16 << 20, &mut reads);
        assert!(store.asked.lock().unwrap().iter().all(|asked| asked.end - asked.start <= CAP));
        assert!(out.iter().zip(&starts).all(|(out, start)| out[99] == byte(start + 99)));
    }

    #[test]
    fn what_overlaps_is_read_twice_where_there_is_no_scratch() {
        let store = Numbers {
            len: 1000,
            cost: Cost { request: 500.0, byte: 0.5, waits: false },
            asked: Arc::default(),
        };
        let mut out = vec![[0; 100]; 3];
        let mut reads: Vec<_> = out.iter_mut().map(|into| Read { offset: 7, into }).collect();
        store.fetch(1000, &mut reads);
        assert!(out.iter().all(|out| out[99] == byte(106)));
    }

    #[test]
    fn long_work_can_be_interrupted() {
        let store = Numbers {
            len: 1 << 30,
            cost: Cost { request: 0.0, byte: 0.1, waits: false },
            asked: Arc::default(),
        };
        let mut out = vec![0; 200 << 20];
        let stop = || Err(Error::argument("stopped", ""));
        let (lane, budget) = (&store.lane(), &Budget::new(1 << 20).unwrap());
        let fetch = Fetch { lane, budget, gap: Gap::Lost, interrupt: &stop };
        let answer = fetch.reads(&mut [Read { offset: 0, into: &mut out }]);
        assert!(matches!(answer, Err(Error::Argument { .. })));
        assert!(store.asked.lock().unwrap().len() < 800, "long before the end");
    }
}
