//! Reads, by several threads where that is worth it.
//!
//! Sorted reads go to a store call by call. Merged ones go through a scratch buffer of the budget and are
//! scattered from there; all others go straight to their place. What is merged is decided in
//! [`plan`](super::plan), who reads and how in [`tactics`].

use super::lane::{Asked, Lane};
use super::plan::{Extent, extents, is_sorted, next_call, parts, ranges};
use super::shares;
use super::tactics::{self, Gap, Reach, Tactics};
use super::tuning::{ASK, FAR, FEW, PIECE, PIECE_WARM, SCRATCH_WARM};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::store::{AsType, Cost, FarConverter, How, Manner, Nature, Read, Stop};
use crate::sys::crew;
use crate::sys::far::Far;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Fulfils `reads` through `store`, with several threads where that is worth it. They are left in some
/// other order.
pub fn fetch(
    lane: &Lane,
    budget: &Budget,
    reads: &mut [Read<'_>],
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let piece = match lane.nature().extent {
        Some(extent) => extent,
        None if lane.cost().waits => PIECE,
        None => PIECE_WARM,
    };
    if reads.iter().any(|r| r.into.len() > piece) {
        // Long reads in pieces: so that threads can share them, and so that they can be interrupted.
        let mut pieces: Vec<_> = reads.iter_mut().flat_map(|read| read.again().pieces(piece)).collect();
        return fetch_short(lane, budget, &mut pieces, gap, interrupt);
    }
    fetch_short(lane, budget, reads, gap, interrupt)
}

fn fetch_short(
    lane: &Lane,
    budget: &Budget,
    reads: &mut [Read<'_>],
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let work = (reads.len(), reads.iter().map(|read| read.into.len()).sum());
    fetch_parts(lane, budget, work, |share| parts(reads, share).into_iter(), gap, interrupt)
}

/// The same for reads that are made part by part, when a thread takes them: `count` of them with so many `bytes`.
/// `parts` is told how many belong in one.
pub fn fetch_parts<'b, P: AsMut<[Read<'b>]>, I: Iterator<Item = P> + Send>(
    lane: &Lane,
    budget: &Budget,
    (count, bytes): (usize, usize),
    parts: impl FnOnce(usize) -> I,
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let (nature, mut cost) = (lane.nature(), lane.cost());
    if let Some(extent) = nature.extent {
        return parts(count.max(1))
            .try_for_each(|mut part| fetch_ranges(lane, part.as_mut(), extent, gap, interrupt));
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
    let ask = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { interrupt() };
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    crew::together(threads - 1, &|| {
        let far = bytes >= FAR;
        let mut hand = Hand {
            lane,
            nature,
            gap,
            far,
            ahead: Asked::Now,
            scratch: None,
            reach: lane.reach(),
            asked: Instant::now(),
        };
        while let Some(mut part) = next() {
            let part = part.as_mut();
            if !is_sorted(part) {
                part.sort_unstable_by_key(|r| r.offset);
            }
            let (done, result) = (part.len(), hand.fetch(budget, part, cost, &ask));
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok((requests, bytes)) => {
                    answer.0 += done;
                    answer.1 += requests;
                    answer.2 += bytes;
                }
                // The first error that is not only another thread's stop.
                Err(error) if matches!(answer.3, Ok(()) | Err(Error::Interrupted)) => answer.3 = Err(error),
                Err(_) => {}
            }
            if answer.3.is_err() {
                return;
            }
        }
        lane.reached(hand.reach);
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
fn fetch_ranges(
    lane: &Lane,
    reads: &mut [Read<'_>],
    extent: usize,
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    interrupt()?;
    if !is_sorted(reads) {
        reads.sort_unstable_by_key(|r| r.offset);
    }
    let mut cost = lane.cost();
    if gap == Gap::Avoided {
        cost.request = 0.0; // then nothing is worth merging
    }
    // What is empty needs no request.
    let empty = reads.iter().take_while(|read| read.into.is_empty()).count();
    let reads = &mut reads[empty..];
    let extents: Vec<Extent> = ranges(reads.iter().map(|r| r.offset..r.end()), cost, extent).collect();
    let how =
        How { manner: Manner::Together, extents: &extents, stop: Stop(Some(interrupt)), ..How::default() };
    lane.read(reads, how, Asked::Now)
}

/// What one thread keeps from part to part.
struct Hand<'l> {
    lane: &'l Lane,
    nature: Nature,
    gap: Gap,
    far: bool,
    /// Whether the disk was asked for the call that comes next.
    ahead: Asked,
    scratch: Option<Block>,
    reach: Reach,
    /// When somebody was last asked whether to go on.
    asked: Instant,
}

impl Hand<'_> {
    /// One part: sorted reads, call by call. Says how many requests and bytes that were.
    fn fetch(
        &mut self,
        budget: &Budget,
        reads: &mut [Read<'_>],
        mut cost: Cost,
        interrupt: Interrupt<'_>,
    ) -> Result<(usize, usize)> {
        let merges = |reads: &[Read<'_>]| {
            extents(reads.iter().map(|r| r.offset..r.end()), cost).any(|e| e.is_merged())
        };
        if self.scratch.is_none()
            && reads.len() > 1
            && cost.request > 0.0
            && (reads.len() > FEW || merges(reads))
        {
            self.scratch = scratch(budget, &self.nature, cost)?;
        }
        if self.scratch.is_none() {
            cost.request = 0.0; // nothing can be merged without a scratch
        }
        let mut scratch = self.scratch.take();
        let room = scratch.as_deref().map_or(0, <[u8]>::len);
        let (mut done, mut sum) = (0, (0, 0));
        let mut call = next_call(&self.nature, reads, cost, self.reach.most(), room);
        let first = self.coming(&call);
        if !first.is_empty() {
            self.lane.read(&mut [], How { coming: &first, ..How::default() }, Asked::Now)?;
        }
        self.ahead = if first.is_empty() { Asked::Now } else { Asked::Ahead };
        while done < reads.len() {
            let rest = &mut reads[done..];
            let size = call.last().map_or(rest.len(), |last| last.reads.end);
            let next = next_call(&self.nature, &rest[size..], cost, self.reach.most(), room);
            let started = self.lane.now();
            let (requests, bytes) = (call.len(), call.iter().map(Extent::len).sum::<usize>());
            sum = (sum.0 + requests, sum.1 + bytes);
            self.fetch_call(scratch.as_deref_mut().unwrap_or_default(), rest, &call, &next)?;
            done += size;
            call = next;
            self.reach.took((requests, bytes), self.lane.now().saturating_sub(started));
            if self.asked.elapsed() >= ASK {
                interrupt()?;
                self.asked = Instant::now();
            }
        }
        self.scratch = scratch;
        Ok(sum)
    }

    /// What the store is told of a call that comes next.
    fn coming(&self, call: &[Extent]) -> Vec<Range<u64>> {
        tactics::coming(&self.nature, self.lane.cost(), self.gap, call.iter().map(|extent| &extent.bytes))
    }

    /// One call to the store, and the scatter after it.
    fn fetch_call(
        &mut self,
        scratch: &mut [u8],
        rest: &mut [Read<'_>],
        call: &[Extent],
        next: &[Extent],
    ) -> Result<()> {
        let longest = call.iter().map(Extent::len).max().unwrap_or(0);
        let manner = tactics::manner(&self.nature, self.lane.cost(), self.gap, (call.len(), longest));
        let coming = self.coming(next);
        let how = How { manner, far: self.far, coming: &coming, ..How::default() };
        let asked =
            std::mem::replace(&mut self.ahead, if coming.is_empty() { Asked::Now } else { Asked::Ahead });
        if call.iter().all(|extent| !extent.is_merged()) {
            return self.lane.read(&mut rest[..call.len()], how, asked);
        }
        if let Some(as_type) = self.lane.as_type() {
            return self.fetch_as(as_type, scratch, rest, call, (how, asked));
        }
        let mut requests = Vec::with_capacity(call.len());
        let mut merged = Vec::new();
        let (mut free, mut used) = (&mut *scratch, 0);
        let mut reads = &mut *rest;
        for extent in call {
            let (mine, others) = reads.split_at_mut(extent.reads.len());
            reads = others;
            match mine {
                [one] => requests.push(Read { offset: one.offset, into: &mut *one.into }),
                many => {
                    let (into, left) = free.split_at_mut(extent.len());
                    free = left;
                    requests.push(Read { offset: extent.bytes.start, into });
                    merged.push((used, extent.bytes.start, many));
                    used += extent.len();
                }
            }
        }
        self.lane.read(&mut requests, how, asked)?;
        let far = self.far.then(Far::default);
        for (at, start, many) in merged {
            for read in many {
                let from = at + usize::try_from(read.offset - start).unwrap_or(usize::MAX);
                let from = &scratch[from..from + read.into.len()];
                match &far {
                    Some(far) => far.copy(from, read.into),
                    None => read.into.copy_from_slice(from),
                }
            }
        }
        Ok(())
    }
}

impl Hand<'_> {
    /// The same where elements are converted: after the scatter, so that only those are which are wanted.
    fn fetch_as(
        &self,
        as_type: AsType,
        scratch: &mut [u8],
        rest: &mut [Read<'_>],
        call: &[Extent],
        (how, asked): (How<'_>, Asked),
    ) -> Result<()> {
        let raw_len = |len| as_type.cast.raw_len(len);
        let mut requests = Vec::with_capacity(call.len());
        let (mut free, mut reads) = (&mut *scratch, &mut *rest);
        for extent in call {
            let (mine, others) = reads.split_at_mut(extent.reads.len());
            reads = others;
            let offset = as_type.in_file(extent.bytes.start);
            if let [one] = mine {
                let start = one.into.len() - raw_len(one.into.len());
                requests.push(Read { offset, into: &mut one.into[start..] });
            } else {
                let (into, left) = free.split_at_mut(raw_len(extent.len()));
                free = left;
                requests.push(Read { offset, into });
            }
        }
        let coming = as_type.all_in_file(how.coming);
        self.lane.read_raw(&mut requests, How { coming: &coming, far: false, ..how }, asked)?;
        let mut converter = as_type.cast.converter();
        let mut far = self.far.then(|| FarConverter::new(as_type.cast));
        let mut used = 0;
        for extent in call {
            match &mut rest[extent.reads.clone()] {
                [one] => converter.convert_at_end(one.into),
                many => {
                    for read in many {
                        let before = usize::try_from(read.offset - extent.bytes.start).unwrap_or(usize::MAX);
                        let from = &scratch[used + raw_len(before)..][..raw_len(read.into.len())];
                        match &mut far {
                            Some(far) => far.convert(from, read.into),
                            None => converter.convert(from, read.into),
                        }
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
            fetch(&store.lane(), &Budget::new(budget).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
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
        fetch(&store.lane(), &Budget::new(16 << 20).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
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
        fetch(&store.lane(), &Budget::new(1000).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
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
        let budget = Budget::new(1 << 20).unwrap();
        let answer =
            fetch(&store.lane(), &budget, &mut [Read { offset: 0, into: &mut out }], Gap::Lost, &stop);
        assert!(matches!(answer, Err(Error::Argument { .. })));
        assert!(store.asked.lock().unwrap().len() < 800, "long before the end");
    }
}
