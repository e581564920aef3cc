//! The second pass: bucket after bucket, a piece from every run, each row to its place in its chunk.
//!
//! Which rows a bucket has, and which run has each, is computed again: a run holds rows and nothing else. Pieces of a
//! run lie in it in the order of their buckets, so all that is kept of a run is how far it was taken.

use super::distribute::{Runs, Task, distribute};
use super::next::NextEpoch;
use super::pieces::{self, memory};
use super::plan::{self, Part};
use crate::budget::Lease;
use crate::budget::pool::Block;
use crate::engine::choose::Choice;
use crate::engine::fill::fill_rows;
use crate::engine::group::Group;
use crate::engine::job::Input;
use crate::engine::lane::Lane;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::{Cache, Way};
use crate::prefetch::Produce;
use crate::sys::far::Far;
use crate::sys::{self, crew, locked};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Fewer rows than this are sorted before another thread has come.
const ALONE: usize = 8192;

/// The rows of a bucket as they lie in the runs.
#[derive(Debug)]
struct Bucket {
    /// Run by run, in the order of rows: the number of the row from the run's first on in the upper half, its place in
    /// the bucket in the lower.
    keys: Block,
    /// How many of them each run has.
    counts: Vec<usize>,
}

/// The runs, and how far each was taken.
#[derive(Debug)]
pub(crate) struct Sorted {
    runs: Runs,
    /// Rows that were taken of each run.
    taken: Vec<u64>,
    /// How the files of the inputs are read.
    lanes: Vec<Arc<Lane>>,
    pub(crate) way: Way,
    /// The bucket that comes next, where it was planned while the last one was read.
    planned: Option<Bucket>,
    /// No bucket from this one on is taken.
    until: u64,
}

/// Sorts, and then reads bucket by bucket.
#[derive(Debug)]
pub(crate) struct Gather {
    task: Arc<Task>,
    folder: PathBuf,
    /// An earlier epoch has begun to make the runs.
    begun: Option<NextEpoch>,
    /// Where runs are written, and then read.
    runs: Option<Runs>,
    sorted: Option<Sorted>,
    next: u64,
    why: String,
    /// Stacks and lists that are nobody's block: free slabs make way for them.
    uncounted: Option<Lease>,
}

impl Produce for Gather {
    type Item = Group;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if self.next >= self.task.layout.buckets {
            return None;
        }
        Some(self.bucket(interrupt))
    }
}

impl Gather {
    pub(crate) fn new(task: Arc<Task>, folder: PathBuf, why: String) -> Self {
        Self { task, folder, begun: None, runs: None, sorted: None, next: 0, why, uncounted: None }
    }

    /// The same, of which the runs are being made, or were.
    pub(crate) fn after(self, begun: NextEpoch) -> Self {
        Self { begun: Some(begun), ..self }
    }

    fn bucket(&mut self, interrupt: Interrupt<'_>) -> Result<Group> {
        let began = Instant::now();
        let budget = self.task.job.inputs[0].budget();
        self.uncounted = self.uncounted.take().or_else(|| budget.lease(plan::uncounted(budget.limit())));
        let closed = || self.task.job.inputs.iter().try_for_each(|input| input.data.stop(interrupt));
        if self.sorted.is_none() {
            if let Some(begun) = &mut self.begun {
                self.runs = begun.runs(&closed)?;
                self.begun = None;
            }
            let mut runs = match self.runs.take() {
                Some(runs) => runs,
                None => Runs::new(&self.task, &self.folder)?,
            };
            if let Err(error) = distribute(&self.task, &mut runs, &mut |_| Ok(()), &closed) {
                // It goes on with the run that failed; what was closed is not gone on with.
                self.runs = (!matches!(error, Error::Closed { .. })).then_some(runs);
                return Err(error);
            }
            self.sorted = Some(Sorted::new(&self.task, runs)?);
        }
        let Some(sorted) = &mut self.sorted else { return Err(Error::Interrupted) };
        let (task, next) = (&self.task, self.next);
        let mut chunks = chunks(task, next)?;
        let mut into: Vec<Vec<&mut [u8]>> = task.job.inputs.iter().map(|_| Vec::new()).collect();
        for blocks in &mut chunks {
            for (into, block) in into.iter_mut().zip(blocks) {
                into.push(block);
            }
        }
        sorted.take(task, next, &mut into, &closed)?;
        let (way, why) = (sorted.way, self.why.clone());
        let choice = Choice::certain(way, Cache::Drop, why);
        self.next += 1;
        if self.next == task.layout.buckets {
            (self.sorted, self.uncounted) = (None, None); // space is free as soon as nothing is left to read
        }
        Ok(Group { chunks, choice, took: began.elapsed() })
    }
}

/// Memory for the steps of a bucket, a block for each input. Where others hold the budget, it is the caller's already.
fn chunks(task: &Task, bucket: u64) -> Result<VecDeque<Vec<Block>>> {
    let chunk = |step| {
        let rows = task.job.step_rows(step) as u64;
        let block = |input: &Input| memory(input.budget(), input.rows.bytes(rows));
        task.job.inputs.iter().map(block).collect()
    };
    task.steps(bucket).map(chunk).collect()
}

impl Sorted {
    pub(crate) fn new(task: &Task, runs: Runs) -> Result<Self> {
        let (way, lanes) = pieces::lanes(task, &runs)?;
        Ok(Self {
            taken: vec![0; runs.first.len()],
            lanes,
            way,
            runs,
            planned: None,
            until: task.layout.buckets,
        })
    }

    /// Turns to one bucket alone, of which others know how many rows stand before it in every run, and how many up to
    /// its end.
    pub(crate) fn only(&mut self, task: &Task, bucket: u64, rows: &[Range<u64>]) -> Result<()> {
        let planned = self.plan(task, bucket)?;
        let same =
            |(rows, &count): (&Range<u64>, &usize)| rows.end.checked_sub(rows.start) == Some(count as u64);
        if rows.len() != planned.counts.len() || !rows.iter().zip(&planned.counts).all(same) {
            return Err(Error::Bug {
                what: format!("the runs have other rows of bucket {bucket} than they should"),
            });
        }
        self.taken = rows.iter().map(|rows| rows.start).collect();
        (self.planned, self.until) = (Some(planned), bucket + 1);
        Ok(())
    }

    /// Goes past the buckets before this one: they were taken before.
    pub(crate) fn skip(&mut self, task: &Task, bucket: u64, interrupt: Interrupt<'_>) -> Result<()> {
        for earlier in 0..bucket {
            interrupt()?;
            let counts = self.plan(task, earlier)?.counts;
            self.taken.iter_mut().zip(counts).for_each(|(taken, count)| *taken += count as u64);
        }
        Ok(())
    }

    /// Reads the next bucket into memory for its steps, a list for every input, while the one after it is planned.
    pub(crate) fn take(
        &mut self,
        task: &Task,
        number: u64,
        into: &mut [Vec<&mut [u8]>],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let bucket = match self.planned.take() {
            Some(bucket) => bucket,
            None => self.plan(task, number)?,
        };
        let read = || self.read(task, &bucket, into, interrupt);
        let plan = || (number + 1 < self.until).then(|| self.plan(task, number + 1));
        let (read, plan) = crew::both(read, plan);
        if let Err(error) = read.unwrap_or(Err(Error::Interrupted)) {
            self.planned = Some(bucket);
            return Err(error);
        }
        self.planned = plan.flatten().and_then(Result::ok); // else it is planned when its turn comes
        self.taken.iter_mut().zip(&bucket.counts).for_each(|(taken, &count)| *taken += count as u64);
        Ok(())
    }

    /// Which rows a bucket has, in the order in which they lie in the runs.
    fn plan(&self, task: &Task, number: u64) -> Result<Bucket> {
        let steps = task.steps(number);
        let count = usize::try_from(task.job.steps.taken(steps.start, steps.end)).unwrap_or(usize::MAX);
        let numbers = || memory(task.job.inputs[0].budget(), count * size_of::<u64>());
        let (mut rows, mut keys) = (numbers()?, numbers()?);
        fill_rows(&task.order, steps.filter_map(|step| task.job.steps.range(step)), rows.elements_mut());
        let (rows, first) = (rows.elements::<u64>(), &*self.runs.first);
        // By counting: where each run's rows begin among the keys.
        let run_of = |row: u64| first.partition_point(|&first| first <= row).saturating_sub(1);
        let mut counts = vec![0_usize; first.len()];
        for &row in rows {
            counts[run_of(row)] += 1;
        }
        let mut begins = counts.clone();
        let mut begin = 0;
        for begins in &mut begins {
            (*begins, begin) = (begin, begin + *begins);
        }
        for (place, &row) in (0_u64..).zip(rows) {
            let run = run_of(row);
            keys.elements_mut()[begins[run]] = (row - first[run]) << 32 | place;
            begins[run] += 1;
        }
        let mut rest = keys.elements_mut::<u64>();
        let parts = counts.iter().map(|&count| {
            let (part, others) = std::mem::take(&mut rest).split_at_mut(count);
            rest = others;
            part
        });
        let parts = Mutex::new(parts.collect::<Vec<_>>().into_iter());
        crew::together(if count < ALONE { 0 } else { sys::cores() - 1 }, &|| {
            while let Some(part) = locked(&parts, Iterator::next) {
                part.sort_unstable();
            }
        });
        drop(parts);
        Ok(Bucket { keys, counts })
    }

    /// Reads a bucket: one part of it while the rows of the last part go to their places.
    fn read(
        &self,
        task: &Task,
        bucket: &Bucket,
        into: &mut [Vec<&mut [u8]>],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let batch = usize::try_from(task.job.steps.batch()).unwrap_or(usize::MAX);
        let lanes = self.lanes.iter().zip(&self.runs.files);
        for ((input, into), (lane, (file, starts))) in task.job.inputs.iter().zip(into).zip(lanes) {
            let row = input.rows.row_bytes();
            if row == 0 {
                continue; // there is nothing of it in the runs
            }
            let begins = starts.iter().zip(&self.taken).map(|(start, taken)| start + taken * row as u64);
            let pieces = begins.zip(bucket.counts.iter().copied());
            let mut keys = bucket.keys.elements::<u64>();
            let mut place = |part: &Part, from: &Block| {
                keys = scatter(part, from, row, keys, (&mut *into, batch));
            };
            pieces::take((lane, input, file.align()), pieces, &mut place, interrupt)?;
        }
        Ok(())
    }
}

/// Copies the rows of a part to their places in chunks of `batch` rows; gives the keys that are left.
fn scatter<'k>(
    part: &Part,
    from: &Block,
    row: usize,
    mut keys: &'k [u64],
    (into, batch): (&mut [&mut [u8]], usize),
) -> &'k [u64] {
    let far = Far::default();
    let mut rest = &**from;
    for extent in part {
        let len = usize::try_from(extent.bytes.end - extent.bytes.start).unwrap_or(usize::MAX);
        let (bytes, others) = rest.split_at(len);
        rest = others;
        let (mine, left) = keys.split_at(extent.rows);
        keys = left;
        for (from, key) in bytes[extent.lead..].chunks_exact(row).zip(mine) {
            #[expect(clippy::cast_possible_truncation, reason = "the lower half of it is wanted")]
            let place = *key as u32 as usize;
            let (chunk, at) = (place / batch, place % batch * row);
            far.copy(from, &mut into[chunk][at..at + row]);
        }
    }
    keys
}
