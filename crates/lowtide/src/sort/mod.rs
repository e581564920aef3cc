//! Shuffled rows of files that are larger than memory, by sorting them on a disk first.
//!
//! A row read by itself costs a request; rows that are sorted cost two reads and one write of the whole, in order. Row i
//! goes to position π⁻¹(i) of the very permutation that a pass without a scratch folder goes through, so both give the
//! same rows in the same order. [`plan`] is the arithmetic; [`distribute`] reads the file once and writes runs into
//! [`scratch`] files; [`gather`] reads those, and makes groups of chunks as the engine's reader does. Where epoch follows
//! epoch, [`next`] sorts one while another is taken. Of files, where the budget is small for them, [`merge`] makes fewer
//! and longer runs in between; [`passes`] says when.

mod distribute;
mod gather;
mod merge;
mod next;
pub(crate) mod passes;
mod pieces;
pub(crate) mod plan;
mod scratch;
mod work;
mod woven;

pub(crate) use distribute::{Runs, Task, distribute, distribute_one};
pub(crate) use gather::Sorted;
pub(crate) use merge::Merge;
pub(crate) use next::NextEpoch;
pub(crate) use scratch::{Scratch, Whose, has_room};
pub(crate) use work::{Folder, State};
pub(crate) use woven::stretches;

use crate::budget::pool::Block;
use crate::door::{BUDGET, Words};
use crate::engine::ahead::Ahead;
use crate::engine::choose::{Choice, Visit};
use crate::engine::group::no_inputs;
use crate::engine::job::{Input, Job, Pass};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::order::{Order, Permutation};
use crate::prefetch::{Pace, Prefetch};
use crate::size::human;
use crate::sys;
use gather::Gather;
use plan::{Layout, Share, Work, space};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which part of a budget some work has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Portion {
    /// All of it: nothing else is done.
    All,
    /// Reading runs, while others are made.
    Read,
    /// Making runs, while others are read.
    Made,
}

/// The chunks of a job: as they are read, or sorted on a disk first.
#[derive(Debug)]
pub(crate) enum Coming {
    Read(Box<Ahead>),
    Sorted(Box<SortedFirst>),
}

impl Coming {
    /// Sorted in `scratch` first, where that is named and there is something to sort; `reading` says whether others will
    /// be sorted meanwhile.
    pub(crate) fn new(job: Job, scratch: Option<&Path>, reading: Portion) -> Result<Self> {
        let Some(folder) = scratch else { return Ok(Self::Read(Box::new(Ahead::new(job)?))) };
        match SortedFirst::new(job, folder, reading)? {
            Ok(sorted) => Ok(Self::Sorted(Box::new(sorted))),
            Err(job) => Ok(Self::Read(Box::new(Ahead::new(job)?))),
        }
    }

    pub(crate) fn job(&self) -> &Job {
        match self {
            Self::Read(ahead) => ahead.job(),
            Self::Sorted(sorted) => &sorted.job,
        }
    }

    /// How the last chunk was read; before the first, how it will be.
    pub(crate) fn choice(&self) -> &Choice {
        match self {
            Self::Read(ahead) => ahead.choice(),
            Self::Sorted(sorted) => &sorted.choice,
        }
    }

    /// What is not wrong, but may not be what was meant.
    pub(crate) fn warning(&self) -> Option<String> {
        match self {
            Self::Sorted(sorted) if scratch::is_memory(&sorted.folder) => Some(format!(
                "scratch={:?} is in memory (tmpfs), not on a disk: what is sorted there is no smaller than the rows, and \
                 counts as memory of this process's container",
                sorted.folder.display().to_string()
            )),
            _ => None,
        }
    }

    /// Whether this is the time to begin with the next epoch.
    pub(crate) fn can_go_ahead(&self) -> bool {
        matches!(self, Self::Sorted(sorted) if sorted.reading == Portion::Read && sorted.next.is_none())
    }

    /// Begins with the next epoch, where that can be done well; where it cannot, nobody asks again.
    pub(crate) fn go_ahead(&mut self, job: Job) {
        let Self::Sorted(sorted) = self else { return };
        sorted.next = NextEpoch::begin(job, &sorted.folder);
        match &sorted.next {
            Some(next) => sorted.choice.why += &meanwhile(next),
            None => sorted.reading = Portion::All,
        }
    }

    /// What was begun.
    pub(crate) fn next_epoch(&mut self) -> Option<NextEpoch> {
        match self {
            Self::Sorted(sorted) => sorted.next.take(),
            Self::Read(_) => None,
        }
    }

    /// Goes through an epoch that was begun before.
    pub(crate) fn go_on_with(&mut self, next: NextEpoch) {
        if let Self::Sorted(sorted) = self {
            sorted.job = next.task().job.clone();
            let why = sorted.why.clone();
            sorted.gather =
                Prefetch::new(Gather::new(next.task().clone(), sorted.folder.clone(), why).after(next));
        }
    }

    /// Gives scratch space back now; what is not yet taken is sorted again, should somebody ask for it. Whether there is
    /// any.
    pub(crate) fn let_go(&mut self) -> bool {
        let Self::Sorted(sorted) = self else { return false };
        sorted.ready.clear();
        sorted.begin();
        sorted.choice.why.clone_from(&sorted.why); // nothing is done beside it now
        true
    }

    /// How many chunks were taken.
    pub(crate) fn taken(&self) -> u64 {
        match self {
            Self::Read(ahead) => ahead.taken(),
            Self::Sorted(sorted) => sorted.taken,
        }
    }

    /// The next chunk, a block for every input; `None` after the last. After an error the next call tries again.
    pub(crate) fn next(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Vec<Block>>> {
        match self {
            Self::Read(ahead) => ahead.next(interrupt),
            Self::Sorted(sorted) => sorted.next(interrupt),
        }
    }
}

/// Chunks of rows that are sorted in a scratch folder first: when the first of them is asked for.
#[derive(Debug)]
pub(crate) struct SortedFirst {
    job: Arc<Job>,
    folder: PathBuf,
    taken: u64,
    ready: VecDeque<Vec<Block>>,
    gather: Prefetch<Gather>,
    choice: Choice,
    /// What is done, whatever is done beside it.
    why: String,
    /// Which part of the budget it reads with.
    reading: Portion,
    next: Option<NextEpoch>,
}

impl SortedFirst {
    /// Gives the job back where there is nothing to sort: no rows, rows of no bytes, or rows of which none fits in a
    /// run; those come as quickly one by one.
    fn new(job: Job, folder: &Path, reading: Portion) -> Result<std::result::Result<Self, Job>> {
        let Some((order, layout)) = layout(&job, 0, reading, Portion::All) else { return Ok(Err(job)) };
        let first = job.inputs.first().ok_or_else(no_inputs)?.choose(Visit::Sequential)?;
        let job = Arc::new(job);
        let task = Arc::new(Task::new(job.clone(), order, 0, layout));
        scratch::has_room(folder, needs(&task))?;
        let why = why(&task, folder, &first);
        let choice = Choice { why: why.clone(), ..first };
        let (folder, ready) = (folder.to_owned(), VecDeque::new());
        let gather = Prefetch::new(Gather::new(task, folder.clone(), why.clone()));
        Ok(Ok(Self { job, folder, taken: 0, ready, gather, choice, why, reading, next: None }))
    }

    fn next(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Vec<Block>>> {
        if let Some(error) = self.job.inputs.iter().find_map(|input| input.data.stop(&|| Ok(())).err()) {
            self.ready.clear();
            self.begin(); // its space is given back now
            return Some(Err(error));
        }
        if self.gather.is_parents() && self.ready.is_empty() {
            // A forked child: the sorting thread is not here, and the runs are the parent's. What was read is here; the
            // rest of the pass is sorted again.
            self.begin();
        }
        if self.ready.is_empty() {
            match self.gather.next(Pace::Ahead, interrupt)? {
                Ok(group) => {
                    (self.ready, self.choice) = (group.chunks, group.choice);
                    self.choice.why += &self.next.as_ref().map_or_else(String::new, meanwhile);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let blocks = self.ready.pop_front()?;
        self.taken += 1;
        Some(Ok(blocks))
    }

    /// Begins with the chunk that comes next.
    fn begin(&mut self) {
        self.next = None;
        if let Some((order, layout)) = layout(&self.job, self.taken, self.reading, Portion::All) {
            let task = Arc::new(Task::new(self.job.clone(), order, self.taken, layout));
            self.gather = Prefetch::new(Gather::new(task, self.folder.clone(), self.why.clone()));
        }
    }
}

/// What is done beside.
fn meanwhile(next: &NextEpoch) -> String {
    format!("; the next epoch is sorted meanwhile, in {} more of it", human(next.bytes()))
}

/// The order of a job's rows, and how they are sorted from step `first` on, with these parts of the budget for reading and
/// for making runs; `None` where there is nothing to sort.
fn layout(job: &Job, first: u64, reading: Portion, making: Portion) -> Option<(Permutation, Layout)> {
    let Pass::Exact(order) = &job.pass else { return None };
    let shares = shares(&job.inputs);
    let steps = &job.steps;
    let (rows, count) = (steps.taken(first, u64::MAX), steps.count().saturating_sub(first));
    if rows == 0 || shares.iter().any(|share| share.row == 0) {
        return None;
    }
    let part = |portion: Portion| shares.iter().map(|&share| portion.of(share)).collect::<Vec<_>>();
    let work = Work { rows, steps: count, batch: steps.batch() };
    Some((order.clone(), Layout::divided(work, &part(reading), &part(making))?))
}

/// Rows and budgets of inputs, each budget divided among those that share it.
pub(crate) fn shares(inputs: &[Input]) -> Vec<Share> {
    let share = |input: &Input| {
        let sharing = inputs.iter().filter(|other| other.budget().is(input.budget())).count() as u64;
        Share { row: input.rows.row_bytes() as u64, limit: input.budget().limit() / sharing.max(1) }
    };
    inputs.iter().map(share).collect()
}

/// That a row is too large for a run.
pub(crate) fn too_large(shares: &[Share]) -> Error {
    let largest = shares.iter().max_by_key(|share| share.row);
    let (row, limit) = largest.map_or((0, 0), |share| (share.row, share.limit));
    Error::Budget {
        what: "sorting rows of this size".into(),
        needs: row.saturating_mul(4).saturating_add(1 << 20),
        limit,
        hint: Words::from("take a larger ") + BUDGET,
    }
}

/// Bytes of scratch space.
fn needs(task: &Task) -> u64 {
    let (rows, runs) = (task.rows(), task.layout.runs(task.rows()) + 1);
    let one = |input: &Input| space(rows, input.rows.row_bytes() as u64, runs, sys::page() as u64);
    task.job.inputs.iter().map(one).sum()
}

/// Bytes of so many rows of all inputs.
fn bytes(task: &Task, rows: u64) -> u64 {
    task.job.inputs.iter().map(|input| input.rows.bytes(rows) as u64).sum()
}

/// About how many bytes of a run are in one bucket.
fn piece(task: &Task) -> u64 {
    bytes(task, task.rows()) / task.layout.runs(task.rows()).max(1) / task.layout.buckets.max(1)
}

/// What is done, and what it costs, in words.
fn why(task: &Task, folder: &Path, first: &Choice) -> String {
    let (all, mine) = (bytes(task, task.order.len()), bytes(task, task.rows()));
    let (runs, buckets, piece) = (task.layout.runs(task.rows()), task.layout.buckets, piece(task));
    let sizes = match piece {
        // One row of few: there is nothing to be sorted.
        _ if piece >= plan::SHORT || runs <= 1 || buckets <= 1 => "all of it in large requests".to_owned(),
        _ => format!(
            "there in pieces of {} only: a larger budget makes them longer, and it faster",
            human(piece)
        ),
    };
    format!(
        "rows are sorted in {} first: {} are read and {} written there before the first chunk comes, and read again \
         while chunks are taken, {sizes} ({runs} runs, {buckets} buckets); {}",
        folder.display(),
        human(all),
        human(mine),
        first.why
    )
}
