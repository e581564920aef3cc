//! A pass in between: runs that follow each other become one, which has longer pieces for the last pass.
//!
//! Where every row goes follows from how many rows each run has of each bucket, and that is computed again, a group of
//! runs at a time: a run holds rows and nothing else. Of a stretch of the new run each of the old ones has rows that lie
//! together.

use super::distribute::{Runs, Task};
use super::pieces::{self, memory};
use super::plan::Part;
use super::woven::{Woven, add_up};
use crate::budget::pool::Block;
use crate::engine::lane::Lane;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sys::far::Far;
use crate::sys::{self, crew, locked};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Runs that are merged, so many into one.
#[derive(Debug)]
pub(crate) struct Merge {
    runs: Runs,
    each: usize,
    lanes: Vec<Arc<Lane>>,
    group: Option<Group>,
}

/// Runs that become one.
#[derive(Debug)]
struct Group {
    runs: Range<usize>,
    /// The rows of all of them.
    rows: Range<u64>,
    /// What [`Woven`] is made of.
    ends: Block,
    /// Rows that were taken of each run.
    taken: Vec<u64>,
}

impl Merge {
    pub(crate) fn new(task: &Task, runs: Runs, each: usize) -> Result<Self> {
        let (_, lanes) = pieces::lanes(task, &runs)?;
        Ok(Self { runs, each, lanes, group: None })
    }

    /// Reads a stretch of the new runs, of one of them, into memory for it, a piece for every input. Stretch follows stretch.
    pub(crate) fn take(
        &mut self,
        task: &Task,
        rows: &Range<u64>,
        into: &mut [&mut [u8]],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let group = match self.group.take() {
            Some(group) if group.rows.contains(&rows.start) => group,
            other => {
                drop(other); // its memory is the next one's
                self.count(task, rows.start, interrupt)?
            }
        };
        let group = self.group.insert(group);
        let woven = Woven::new(group.ends.elements(), buckets(task));
        let stretch = rows.start - group.rows.start..rows.end - group.rows.start;
        let counts: Vec<usize> = (0..woven.runs()).map(|run| woven.rows(run, stretch.clone())).collect();
        let lanes = self.lanes.iter().zip(&self.runs.files);
        for ((input, into), (lane, (file, starts))) in task.job.inputs.iter().zip(into).zip(lanes) {
            let row = input.rows.row_bytes();
            if row == 0 {
                continue; // there is nothing of it in the runs
            }
            let begins = starts[group.runs.clone()].iter().zip(&group.taken);
            let begins = begins.map(|(start, taken)| start + taken * row as u64);
            let mut places = (0..woven.runs()).flat_map(|run| woven.places(run, stretch.clone()));
            let mut rest = Some((0, 0));
            let mut place = |part: &Part, from: &Block| {
                rest = rest.and_then(|rest| copy(part, from, row, (&mut places, rest), into));
            };
            let pieces = begins.zip(counts.iter().copied());
            pieces::take((lane, input, file.align()), pieces, &mut place, interrupt)?;
            if rest.is_none_or(|(_, rows)| rows > 0) {
                return Err(Error::Bug { what: "runs have other rows than they should".into() });
            }
        }
        group.taken.iter_mut().zip(counts).for_each(|(taken, count)| *taken += count as u64);
        Ok(())
    }

    /// Counts the rows of the runs that a row is merged with, and goes past those that stand before it.
    fn count(&self, task: &Task, row: u64, interrupt: Interrupt<'_>) -> Result<Group> {
        let (first, buckets) = (&self.runs.first, buckets(task));
        let begin = first.partition_point(|&first| first <= row).saturating_sub(1) / self.each * self.each;
        let runs = begin..begin.saturating_add(self.each).min(first.len());
        let end = |run: usize| first.get(run + 1).copied().unwrap_or(self.runs.next());
        let Some(last) = runs.clone().last() else {
            return Err(Error::Bug { what: "rows of no run were to be merged".into() });
        };
        let rows = first[begin]..end(last);
        if u32::try_from(rows.end - rows.start).is_err() {
            return Err(Error::Bug { what: format!("{} rows were to be in one run", rows.end - rows.start) });
        }
        let len = runs.len().checked_mul(buckets).and_then(|cells| cells.checked_mul(size_of::<u32>()));
        let len = len.ok_or(Error::Memory { needs: u64::MAX })?;
        let mut ends = memory(task.job.inputs[0].budget(), len)?;
        let counts = ends.elements_mut::<u32>();
        counts.fill(0);
        let mut parts = runs.clone().map(|run| first[run]..end(run)).zip(counts.chunks_mut(buckets));
        loop {
            let some: Vec<_> = parts.by_ref().take(sys::cores()).collect();
            if some.is_empty() {
                break;
            }
            let some = Mutex::new(some.into_iter());
            crew::together(sys::cores() - 1, &|| {
                while let Some((rows, counts)) = locked(&some, Iterator::next) {
                    task.count(rows, counts);
                }
            });
            interrupt()?;
        }
        if add_up(counts, buckets) != rows.end - rows.start {
            return Err(Error::Interrupted); // forked in the middle of it: the others count in another process
        }
        let woven = Woven::new(counts, buckets);
        let before = 0..row - rows.start;
        let taken = (0..runs.len()).map(|run| woven.rows(run, before.clone()) as u64).collect();
        Ok(Group { runs, rows, ends, taken })
    }
}

fn buckets(task: &Task) -> usize {
    usize::try_from(task.layout.buckets).unwrap_or(usize::MAX)
}

/// Copies the rows of a part to their places, of which some may be left over from the last part; gives what is left of
/// the last ones, or nothing where there are fewer places than rows.
fn copy(
    part: &Part,
    from: &Block,
    row: usize,
    (places, mut rest): (&mut dyn Iterator<Item = (usize, usize)>, (usize, usize)),
    into: &mut [u8],
) -> Option<(usize, usize)> {
    let far = Far::default();
    let mut bytes = &**from;
    for extent in part {
        let len = usize::try_from(extent.bytes.end - extent.bytes.start).unwrap_or(usize::MAX);
        let (mine, others) = bytes.split_at(len);
        bytes = others;
        let mut mine = &mine[extent.lead..extent.lead + extent.rows * row];
        while !mine.is_empty() {
            if rest.1 == 0 {
                rest = places.next()?;
            }
            let (place, rows) = rest;
            let taken = rows.min(mine.len() / row);
            let (these, others) = mine.split_at(taken * row);
            far.copy(these, &mut into[place * row..(place + taken) * row]);
            (mine, rest) = (others, (place + taken, rows - taken));
        }
    }
    Some(rest)
}
