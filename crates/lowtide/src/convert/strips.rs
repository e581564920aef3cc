//! The second of two passes: strip after strip of the output is read, put in order and written where it was.
//!
//! In: an output whose pieces are in their strips, as `turning` has left it. Out: its elements in order. While one strip is
//! put in order and written, the next is read. Where a page belongs to both, the half that is read is not yet written anew.

use super::Work;
use super::pieces::Pieces;
use super::writing::{Part, Parts, side_by_side};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::engine::bytes::Data;
use crate::engine::fetch::Fetch;
use crate::engine::lane::Lane;
use crate::engine::tactics::Gap;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::options::{Access, Cache, CacheWish, Way, Wish};
use crate::store::{Read, Source};
use crate::sys;
use crate::write::Writer;
use std::sync::Arc;

/// The output, to be read while it is written.
pub(super) struct Strips {
    lane: Arc<Lane>,
    budget: Budget,
    way: Way,
    /// Where its elements begin.
    first: u64,
    /// Bytes of one.
    width: usize,
}

/// A strip: its first element, how many it has, and by how many bytes the page that it begins in is before it.
struct Strip {
    at: u64,
    len: usize,
    lead: usize,
}

impl Strips {
    /// Over what is being written.
    pub(super) fn new(work: &Work<'_>, writer: &Writer) -> Result<Self> {
        let (budget, source) = (work.array.budget().clone(), Source::File(Arc::new(writer.source()?)));
        let wish = Wish { access: Access::Auto, cache: CacheWish::Drop, budget: Some(budget.clone()) };
        let data = Data::open(source, wish)?;
        let (way, lane) = match data.lane(Way::Direct, Cache::Drop, None) {
            Ok(lane) => (Way::Direct, lane),
            Err(_) => (Way::Read, data.lane(Way::Read, Cache::Drop, None)?),
        };
        Ok(Self { lane, budget, way, first: writer.data_at(), width: work.dtype.itemsize() })
    }

    /// How it is read.
    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Bytes of memory for a strip of so many: it is read from the start of a page.
    pub(super) fn room(bytes: usize) -> usize {
        bytes + sys::page()
    }

    /// Puts all strips in order, in two blocks that have room for one each.
    pub(super) fn run(
        &self,
        work: &mut Work<'_>,
        pieces: &Pieces,
        (mut from, mut other): (Block, Block),
        (parts, most): (&Parts, usize),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let page = sys::page() as u64;
        let strip = |(at, len)| {
            let lead = (self.first + at * self.width as u64) % page;
            Strip { at, len, lead: usize::try_from(lead).unwrap_or(0) }
        };
        let mut coming = pieces.strips().map(strip);
        let Some(mut strip) = coming.next() else { return Ok(()) };
        self.read(&strip, &mut from, interrupt)?;
        for next in coming {
            let make = || self.strip(work, pieces, (&strip, &from), (parts, most), interrupt);
            side_by_side(make, || self.read(&next, &mut other, interrupt))?;
            std::mem::swap(&mut from, &mut other);
            strip = next;
        }
        self.strip(work, pieces, (&strip, &from), (parts, most), interrupt)
    }

    /// Reads from the start of a page into the start of one: then it need not be copied.
    fn read(&self, strip: &Strip, into: &mut Block, interrupt: Interrupt<'_>) -> Result<()> {
        let offset = self.first + strip.at * self.width as u64 - strip.lead as u64;
        let into = &mut into[..strip.lead + strip.len * self.width];
        let fetch = Fetch { lane: &self.lane, budget: &self.budget, gap: Gap::Avoided, interrupt };
        fetch.reads(&mut [Read { offset, into }])
    }

    /// Puts a strip in order, part by part of at most so many elements.
    fn strip(
        &self,
        work: &mut Work<'_>,
        pieces: &Pieces,
        (strip, from): (&Strip, &Block),
        (parts, most): (&Parts, usize),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let from = &from[strip.lead..strip.lead + strip.len * self.width];
        for first in (0..strip.len).step_by(most) {
            let run = most.min(strip.len - first) * self.width;
            let Some(mut block) = parts.room() else { return Ok(()) }; // writing ended, and says why
            pieces.in_order(strip.len, first, self.width, from, &mut block[..run]);
            let starts = vec![(strip.at + first as u64) * self.width as u64];
            if parts.send(Part { block, run, starts }).is_none() {
                return Ok(()); // likewise
            }
            work.step(run as u64, interrupt)?;
        }
        Ok(())
    }
}
