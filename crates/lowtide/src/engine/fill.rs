//! Fills the memory of coming chunks: positions of a pass become row numbers, those become reads, and each read has its
//! place in a chunk. What is read how is decided before, in [`group`](super::group).

use super::fetch::Fetch;
use super::job::{Input, Job, Pass};
use super::rows::Rows;
use super::tuning::{FILL_ALONE, LARGE_ROW, PLAN_RUNS};
use crate::budget::Lease;
use crate::error::Result;
use crate::order::{Mixes, Order, Through};
use crate::store::Read;
use crate::sys::{self, crew};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What planning one row takes: its number, and where it goes.
pub(super) const PLAN_BYTES: u64 = (size_of::<Read<'_>>() + size_of::<u64>()) as u64;
/// What planning a row ahead takes: its number and its place, and its place again while they are made.
const PLANNED_BYTES: u64 = (size_of::<(u64, u32)>() + size_of::<u32>()) as u64;

/// What a row takes while it waits, beside its bytes.
pub(crate) fn planned_row_bytes(row: usize) -> u64 {
    row as u64 + PLAN_BYTES
}

/// The rows of a group in the order in which they lie in the file, each with its index among the group's positions.
#[derive(Debug)]
pub(super) struct Planned {
    spans: Vec<Range<u64>>,
    rows: Vec<(u64, u32)>,
    _memory: Lease,
}

/// Positions that are read together: those of `part` in the steps from `next` on.
#[derive(Debug)]
pub(super) struct Positions<'j> {
    pub(super) job: &'j Job,
    pub(super) next: u64,
    pub(super) part: Range<u64>,
}

impl Positions<'_> {
    /// Which positions the steps are.
    fn steps(&self) -> impl Iterator<Item = Range<u64>> + Clone + use<> {
        let steps = self.job.steps;
        (self.next..).map_while(move |step| steps.range(step))
    }

    /// Those before `end`, step by step.
    fn spans(&self, end: u64) -> impl Iterator<Item = Range<u64>> + Clone {
        let part = self.part.start..self.part.end.min(end);
        self.steps()
            .take_while(move |range| range.start < part.end)
            .map(move |range| range.start.max(part.start)..range.end.min(part.end))
            .filter(|span| !span.is_empty())
    }

    /// Which rows they are, in the order of the file, where that is worth knowing before they are read.
    pub(super) fn plan(&self, order: &dyn Mixes) -> Option<Planned> {
        let spans: Vec<_> = self.spans(u64::MAX).collect();
        let count = spans.iter().map(|span| span.end - span.start).sum::<u64>();
        let large = self.job.inputs.iter().any(|input| input.rows.row_bytes() >= LARGE_ROW);
        if large || count == 0 || u32::try_from(count).is_err() {
            return None;
        }
        let memory = self.job.inputs[0].budget().lease(count * PLANNED_BYTES)?;
        let rows = order.in_file_order(&spans);
        Some(Planned { spans, rows, _memory: memory })
    }

    /// Reads one input's rows into `out`, one buffer a step.
    pub(super) fn fill<'a>(
        &self,
        input: &Input,
        fetch: &Fetch<'_>,
        planned: Option<&Planned>,
        out: impl ExactSizeIterator<Item = &'a mut [u8]>,
    ) -> Result<()> {
        let rows = &input.rows;
        let row = rows.row_bytes();
        if row == 0 {
            return Ok(());
        }
        let ranges = self.steps();
        if let Pass::Sequential(_) = self.job.pass
            && input.dealt.is_none()
            && rows.is_dense()
        {
            return read_runs(rows, fetch, ranges.zip(out));
        }
        let total: u64 = ranges.clone().take(out.len()).map(|r| r.end - r.start).sum();
        // Where the budget is in others' hands the plan of a single chunk is made all the same.
        let _plan = fetch.budget.lease(total * PLAN_BYTES);
        let end = ranges.clone().take(out.len()).last().map_or(0, |range| range.end);
        let (spans, part) = (self.spans(end), &self.part);
        let places = ranges.zip(out).flat_map(|(range, out)| {
            let at = |position: u64| {
                usize::try_from(position.clamp(range.start, range.end) - range.start).unwrap_or(0)
            };
            out[at(part.start) * row..at(part.end) * row].chunks_exact_mut(row)
        });
        if let Some(planned) = planned
            && spans.clone().eq(planned.spans.iter().cloned())
        {
            // Part by part, when somebody is ready to read them: meanwhile others are being read.
            let mut places: Vec<&mut [u8]> = places.collect();
            let mut read = |&(n, place): &(u64, u32)| {
                let into = places.get_mut(place as usize).map(std::mem::take).unwrap_or_default();
                Read { offset: rows.offset(n), into }
            };
            let work = (planned.rows.len(), planned.rows.len() * row);
            let parts = |share| {
                planned.rows.chunks(share).map(move |rows| rows.iter().map(&mut read).collect::<Vec<_>>())
            };
            return fetch.parts(work, parts);
        }
        let order = self.job.pass.order();
        let numbers = match &input.dealt {
            Some(part) => rows_at(&Through { order, part }, spans),
            None => rows_at(order, spans),
        };
        let mut reads = Vec::with_capacity(numbers.len());
        reads.extend(places.zip(numbers).map(|(into, n)| Read { offset: rows.offset(n), into }));
        fetch.reads(&mut reads)
    }
}

/// Rows in file order: a chunk is one long read, or one for each column.
fn read_runs<'a>(
    rows: &Rows,
    fetch: &Fetch<'_>,
    chunks: impl Iterator<Item = (Range<u64>, &'a mut [u8])>,
) -> Result<()> {
    let mut reads = Vec::new();
    for (range, mut out) in chunks {
        for (offset, len) in rows.runs(&range) {
            let (into, rest) = out.split_at_mut(len.min(out.len()));
            out = rest;
            reads.push(Read { offset, into });
            if reads.len() == PLAN_RUNS {
                fetch.reads(&mut reads)?;
                reads.clear();
            }
        }
    }
    fetch.reads(&mut reads)
}

/// The rows at some spans of positions.
fn rows_at(order: &dyn Order, spans: impl Iterator<Item = Range<u64>> + Clone) -> Vec<u64> {
    let count = |span: Range<u64>| usize::try_from(span.end - span.start).unwrap_or(0);
    let mut rows = vec![0; spans.clone().map(count).sum()];
    fill_rows(order, spans, &mut rows);
    rows
}

/// Writes the rows at some spans of positions, computed by several threads where they are many: a row takes 15 ns.
pub(crate) fn fill_rows(order: &dyn Order, spans: impl Iterator<Item = Range<u64>>, rows: &mut [u64]) {
    let count = |span: &Range<u64>| usize::try_from(span.end - span.start).unwrap_or(0);
    let helpers = if rows.len() < FILL_ALONE { 0 } else { sys::cores() - 1 };
    let mut rest = rows;
    let parts = spans.map(|span| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(count(&span));
        rest = others;
        (span.start, part)
    });
    let parts = Mutex::new(parts.collect::<Vec<_>>().into_iter());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    crew::together(helpers, &|| {
        while let Some((start, part)) = next() {
            order.fill(start, part);
        }
    });
}
