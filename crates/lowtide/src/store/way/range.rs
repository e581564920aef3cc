//! Range requests: bytes come from an object store, many requests in flight, straight into their places.
//!
//! Which rows become one request is planned to the left of it ([`Extent`]); here each is made, in the caller's own
//! thread, and what comes is scattered frame by frame: no buffer of its own, whatever the size of a request. What
//! connections hold besides is leased from the budget.

use crate::budget::{Budget, Lease};
use crate::error::{Error, Result};
use crate::store::remote::{CONNECTION, wait_for};
use crate::store::source::Wanted;
use crate::store::{Extent, How, Nature, Object, Objects, Read, Report, Store};
use crate::sys;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;
use std::time::Instant;

/// Reads by range requests.
#[derive(Debug)]
pub struct RangeStore {
    objects: Arc<Objects>,
    budget: Budget,
}

impl RangeStore {
    /// Over objects that were seen; what is in flight lies inside `budget`.
    pub fn new(objects: Arc<Objects>, budget: &Budget) -> Self {
        Self { objects, budget: budget.clone() }
    }

    /// The first object: all of them are in one place, or their places are alike.
    fn first(&self) -> Option<&Object> {
        self.objects.parts().first().map(|part| &*part.object)
    }

    /// How many requests in flight, and what their connections hold.
    fn lease(&self, wanted: usize) -> (usize, Option<Lease>) {
        let mut most = wanted.max(1);
        loop {
            let lease = self.budget.lease(most as u64 * CONNECTION);
            if lease.is_some() || most == 1 {
                return (most, lease); // one is always possible
            }
            most /= 2;
        }
    }

    /// Looks at those whose first byte is asked for, before it is.
    fn check(&self, unchecked: Vec<usize>, how: How<'_>) -> Result<()> {
        if unchecked.is_empty() {
            return Ok(());
        }
        let objects: Vec<&Object> = unchecked.iter().map(|&index| self.objects.object(index)).collect();
        wait_for(how.stop.asked(), || async {
            let mut heads: FuturesUnordered<_> = objects.iter().map(|object| object.fetch_head()).collect();
            while let Some(head) = heads.next().await {
                head?;
            }
            Ok(())
        })?;
        unchecked.into_iter().try_for_each(|index| self.objects.check(index))
    }
}

/// Takes bytes as they come to where they are wanted. Reads are in the order of their first bytes.
struct Scatter<'a, 'b> {
    reads: &'a mut [Read<'b>],
    /// Those before it are done.
    first: usize,
}

impl Scatter<'_, '_> {
    fn take(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        for read in &mut self.reads[self.first..] {
            if read.offset >= end {
                break;
            }
            let part = read.clip(&(at..end));
            if !part.into.is_empty() {
                let from = usize::try_from(part.offset - at).unwrap_or(usize::MAX);
                part.into.copy_from_slice(&bytes[from..from + part.into.len()]);
            }
        }
        while self.reads.get(self.first).is_some_and(|read| read.end() <= end) {
            self.first += 1;
        }
    }
}

impl Store for RangeStore {
    fn nature(&self) -> Nature {
        let (limit, end) = (self.budget.limit(), self.objects.len());
        let pace =
            self.first().map(|object| sys::locked(&object.client().pace, |pace| *pace)).unwrap_or_default();
        let in_flight = pace.in_flight(limit);
        let extent = Some(pace.extent(limit));
        Nature { end, in_flight, together: true, extent, ..Nature::plain(pace.cost(in_flight), 1) }
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        let mut wanted = Vec::new();
        let mut requests = 0;
        if how.extents.is_empty() {
            for read in reads.iter_mut().filter(|read| !read.into.is_empty()) {
                let bytes = read.offset..read.end();
                wanted.extend(self.objects.wanted(&bytes, std::slice::from_mut(read))?);
                requests += 1;
            }
        } else {
            let (mut rest, mut at) = (&mut *reads, 0);
            for Extent { bytes, reads } in how.extents {
                let (mine, others) = rest.split_at_mut(reads.end - at);
                (rest, at) = (others, reads.end);
                wanted.extend(self.objects.wanted(bytes, mine)?);
                requests += 1;
            }
        }
        if wanted.is_empty() {
            return Ok(Report::default());
        }
        self.check(self.objects.unchecked(wanted.iter().map(|piece| piece.index)), how)?;
        let in_flight = self.nature().in_flight.min(wanted.len());
        let (most, _connections) = self.lease(in_flight);
        let bytes: u64 = wanted.iter().map(|piece| piece.bytes.end - piece.bytes.start).sum();
        let (count, began) = (wanted.len(), Instant::now());
        wait_for(how.stop.asked(), || self.fill_all(wanted, most))?;
        if let Some(object) = self.first() {
            sys::locked(&object.client().pace, |pace| pace.finished(count, bytes, began.elapsed()));
        }
        Ok(Report { looked: requests, missed: requests }) // nothing comes from memory here
    }
}

impl RangeStore {
    /// All of them, so many in flight, fewer where the server says "slow down".
    async fn fill_all(&self, wanted: Vec<Wanted<'_>>, most: usize) -> Result<()> {
        let mut flying = FuturesUnordered::new();
        let mut waiting = wanted.into_iter();
        loop {
            let most = most.min(self.nature().in_flight).max(1);
            while flying.len() < most
                && let Some(Wanted { index, bytes, mut reads }) = waiting.next()
            {
                let object = self.objects.object(index);
                flying.push(async move {
                    let mut scatter = Scatter { reads: &mut reads, first: 0 };
                    object.fill(bytes, &mut |at, bytes| scatter.take(at, bytes)).await
                });
            }
            match flying.next().await {
                Some(Ok(())) => {}
                Some(Err(error)) => return Err::<(), Error>(error),
                None => return Ok(()),
            }
        }
    }
}

/// What a cache holds of objects, each of which is looked at before its first byte is given out: whoever filled the cache
/// may have taken them for something else.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) ranges: Arc<RangeStore>,
    pub(super) cached: Arc<dyn Store>,
}

impl Store for Looked {
    fn nature(&self) -> Nature {
        self.cached.nature()
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        self.ranges.check(self.ranges.objects.untouched(reads), how)?;
        self.cached.read(reads, how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever frames a body comes in, and however reads overlap: each gets its bytes.
        #[test]
        fn frames_are_scattered_into_place(
            mut places in prop::collection::vec((0usize..300, 0usize..60), 1..20),
            cuts in prop::collection::vec(1usize..40, 1..40),
        ) {
            places.sort_unstable();
            let body: Vec<u8> = (0..400_u32).map(|i| (i * 7 % 251) as u8).collect();
            let mut out: Vec<Vec<u8>> = places.iter().map(|&(_, len)| vec![0; len]).collect();
            let mut reads: Vec<Read<'_>> = places.iter().zip(&mut out)
                .map(|(&(at, _), into)| Read { offset: at as u64, into }).collect();
            let mut scatter = Scatter { reads: &mut reads, first: 0 };
            let (mut at, mut cuts) = (0, cuts.into_iter().cycle());
            while at < body.len() {
                let end = (at + cuts.next().unwrap()).min(body.len());
                scatter.take(at as u64, &body[at..end]);
                at = end;
            }
            for (&(at, len), out) in places.iter().zip(&out) {
                prop_assert_eq!(&out[..], &body[at..at + len]);
            }
        }
    }
}
