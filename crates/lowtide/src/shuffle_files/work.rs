//! The passes over the rows, and how far they are: after a kill, the next call goes on from what was written down.
//!
//! Where there are two, runs are in files of their own. Where they are merged, there are three, and no more room is
//! taken: the first runs are in the new files, merged ones are in the other files, and the last pass writes over the first.

use super::pages::{self, Output, Sheet};
use super::planned::Planned;
use super::{ShuffleFiles, SortStep, Sorting};
use crate::array::Array;
use crate::engine::job::{Job, Pass};
use crate::error::Result;
use crate::format::{self, Order as AxisOrder};
use crate::interrupt::Interrupt;
use crate::order::{LastStep, Order as _, Permutation, Shard};
use crate::sort::passes::most_merged;
use crate::sort::plan::{Layout, Share, Work, space};
use crate::sort::{
    Folder, Merge, Runs, Scratch, Sorted, State, Task, Whose, distribute, has_room, shares, stretches,
    too_large,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is written down: what a kill loses at most. Each time costs some 20 ms of syncing.
const CHECKPOINT: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(2) };

/// The work, as far as it is.
pub(super) struct Files<'f> {
    done: Done<'f>,
    task: Task,
    /// What the first pass writes.
    runs: Runs,
    /// Files for merged runs, which have their rows and nothing between them; none where two passes are made.
    merged: Vec<Output>,
    outputs: Vec<Output>,
}

/// What was done, and when that was written down.
struct Done<'f> {
    folder: &'f Folder,
    state: State,
    saved: Instant,
    /// Bytes of a row in all files.
    row: u64,
    /// The disk has failed to take something: it says so once, so nothing is written down from then on.
    failed: bool,
}

impl Done<'_> {
    /// Bytes that were written, of so many rows.
    fn bytes(&self, rows: u64) -> u64 {
        let State { next, merged, buckets, batch, .. } = self.state;
        (next + merged + buckets.saturating_mul(batch).min(rows)) * self.row
    }

    /// What it goes on with.
    fn step(&self, rows: u64) -> SortStep {
        match &self.state {
            state if state.next < rows => SortStep::Runs,
            state if state.passes() > 2 && state.merged < rows => SortStep::Merging,
            _ => SortStep::Rows,
        }
    }

    /// Writes down how far it is, once these are on the disk for sure.
    fn save<'a>(&mut self, files: impl IntoIterator<Item = &'a Scratch>) -> Result<()> {
        if self.failed || self.state.next == 0 {
            return Ok(());
        }
        self.failed = true;
        files.into_iter().try_for_each(Scratch::sync)?;
        self.failed = false;
        self.saved = Instant::now();
        self.folder.save(&self.state)
    }

    fn is_due(&self) -> bool {
        self.saved.elapsed() >= CHECKPOINT
    }
}

impl<'f> Files<'f> {
    /// Begins, or goes on from a state that an earlier call has left; where what it speaks of is not there, it begins.
    pub(super) fn new(
        shuffle: &ShuffleFiles,
        folder: &'f Folder,
        state: Option<State>,
        print: String,
    ) -> Result<Self> {
        let arrays = &shuffle.arrays;
        let inputs: Vec<_> = arrays.iter().map(Array::input).collect();
        let shares: Vec<Share> = shares(&inputs);
        let rows = arrays[0].rows();
        let planned = Planned::of(arrays, 1).ok_or_else(|| too_large(&shares))?;
        let headers = headers(shuffle)?;
        let row_bytes: Vec<usize> = arrays.iter().map(Array::row_bytes).collect();
        let state = state.filter(|state| {
            state.fits(rows) && can_go_on(state, &planned, &shares, rows) && {
                let needs = |(row, header): (&usize, &Vec<u8>)| needs(state, rows, *row, header.len());
                let mut files = row_bytes.iter().zip(&headers).map(needs).enumerate();
                files.all(|(index, (runs, new))| {
                    folder.has(index, "runs", runs) && folder.has(index, "new", new)
                })
            }
        });
        let state = match state {
            Some(state) => state,
            None => folder.begin(print, planned.batch, planned.each)?,
        };
        let (batch, empty) = (state.batch, rows == 0 || shares.iter().all(|share| share.row == 0));
        let steps = Shard::ALONE.steps(rows, 0, batch, LastStep::Split)?;
        let work = Work { rows, steps: steps.count(), batch };
        let layout = Layout::new(work, &shares).ok_or_else(|| too_large(&shares))?;
        let buckets = if empty { 0 } else { steps.count() };
        // Of all that are merged into one, the number of a row has 32 bits.
        let run_rows = layout.run_rows.min(u64::from(u32::MAX) / state.each).max(1);
        let layout = Layout { bucket_steps: 1, buckets, run_rows, ..layout };
        let order = Permutation::new(rows, shuffle.seed, shuffle.epoch);
        let job = Job { inputs, pass: Pass::Exact(order.clone()), steps, ahead: 0 };
        let task = Task::new(Arc::new(job), order, 0, layout);
        let output = |(index, (header, &row)): (usize, (Vec<u8>, &usize))| {
            let file = Scratch::named(&folder.file(index, "new"), Whose::Everybodys)?;
            Ok(Output { align: file.align(), file, header, row })
        };
        let outputs =
            headers.into_iter().zip(&row_bytes).enumerate().map(output).collect::<Result<Vec<_>>>()?;
        let (runs, merged) = reserve(folder, &task, &outputs, &state)?;
        let row = row_bytes.iter().map(|&row| row as u64).sum();
        Ok(Self {
            done: Done { folder, state, saved: Instant::now(), row, failed: false },
            task,
            runs,
            merged,
            outputs,
        })
    }

    /// Bytes that were written.
    pub(super) fn written(&self) -> u64 {
        self.done.bytes(self.task.order.len())
    }

    /// How often all rows are read and written.
    pub(super) fn passes(&self) -> u32 {
        self.done.state.passes()
    }

    /// The rest of it. `unchanged` is asked once all rows were read.
    pub(super) fn run(
        mut self,
        unchanged: &dyn Fn() -> Result<()>,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (rows, before, passes) = (self.task.order.len(), self.written(), self.passes());
        let total = u64::from(passes) * rows * self.done.row;
        let mut tell = |step, written| progress(Sorting { step, written, total, before, passes });
        tell(self.done.step(rows), before);
        if self.task.layout.buckets == 0 {
            self.outputs.iter().try_for_each(Output::only_header)?;
        } else {
            self.sort(&mut tell, interrupt)?;
            unchanged()?;
            self.merge(&mut tell, interrupt)?;
            self.write(&mut tell, interrupt)?;
        }
        for output in &self.outputs {
            output.file.cut(output.len(rows))?;
            output.file.sync()?;
        }
        let ids = self.outputs.iter().map(|output| output.file.id());
        self.done.state.whole = Some(ids.collect::<Result<_>>()?);
        self.done.folder.save(&self.done.state)
    }

    /// The first pass.
    fn sort(&mut self, tell: &mut dyn FnMut(SortStep, u64), interrupt: Interrupt<'_>) -> Result<()> {
        let (rows, done) = (self.task.order.len(), &mut self.done);
        if done.state.next == rows {
            return Ok(());
        }
        let mut written = |runs: &Runs| {
            done.state.first.clone_from(&runs.first);
            done.state.next = runs.next();
            tell(SortStep::Runs, done.bytes(rows));
            if done.is_due() { done.save(runs.files.iter().map(|(file, _)| &**file)) } else { Ok(()) }
        };
        let sorted = distribute(&self.task, &mut self.runs, &mut written, interrupt);
        let saved = self.done.save(self.runs.files.iter().map(|(file, _)| &**file));
        sorted.and(saved)
    }

    /// The pass in between, where there is one. Once it is over, that is written down before anything else is done: the
    /// last pass writes over what this one has read.
    fn merge(&mut self, tell: &mut dyn FnMut(SortStep, u64), interrupt: Interrupt<'_>) -> Result<()> {
        if self.done.state.passes() < 3 {
            return Ok(());
        }
        let runs = std::mem::replace(&mut self.runs, Runs::over(Vec::new()));
        let each = usize::try_from(self.done.state.each).unwrap_or(usize::MAX);
        let (task, merged, done) = (&self.task, &self.merged, &mut self.done);
        let (rows, begin, batch) = (task.order.len(), done.state.merged, done.state.batch);
        let first: Vec<u64> = runs.first.iter().step_by(each).copied().collect();
        if begin < rows {
            let mut merge = Merge::new(task, runs, each)?;
            let stretches = stretches(first.clone(), rows, begin, batch);
            let mut make =
                |rows: &Range<u64>, into: &mut [&mut [u8]]| merge.take(task, rows, into, interrupt);
            let mut written = |end| {
                done.state.merged = end;
                tell(SortStep::Merging, done.bytes(rows));
                if done.is_due() { done.save(merged.iter().map(|output| &output.file)) } else { Ok(()) }
            };
            let sheets = [sheets(task, merged)?, sheets(task, merged)?];
            let answer = pages::write(merged, sheets, stretches, &mut make, &mut written, interrupt);
            let saved = done.save(merged.iter().map(|output| &output.file));
            answer.and(saved)?;
            done.folder.sync()?;
        }
        let starts = self.merged.iter().map(|output| first.iter().map(|&row| output.at(row)).collect());
        let starts = starts.collect();
        let files = std::mem::take(&mut self.merged).into_iter().map(|output| output.file).collect();
        self.runs = Runs::placed(files, first, starts, rows);
        Ok(())
    }

    /// The last pass.
    fn write(&mut self, tell: &mut dyn FnMut(SortStep, u64), interrupt: Interrupt<'_>) -> Result<()> {
        let runs = std::mem::replace(&mut self.runs, Runs::over(Vec::new()));
        let written = self.write_buckets(runs, tell, interrupt);
        if written.is_err() {
            let _ = self.done.save(self.outputs.iter().map(|output| &output.file)); // the error counts
        }
        written
    }

    fn write_buckets(
        &mut self,
        runs: Runs,
        tell: &mut dyn FnMut(SortStep, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let Self { done, task, outputs, .. } = self;
        let (task, outputs) = (&*task, &*outputs);
        let (rows, batch, begin) = (task.order.len(), done.state.batch, done.state.buckets);
        let mut sorted = Sorted::new(task, runs)?;
        sorted.skip(task, begin, interrupt)?;
        let buckets = (begin..task.layout.buckets).filter_map(|bucket| task.job.steps.range(bucket));
        let mut make = |rows: &Range<u64>, into: &mut [&mut [u8]]| {
            let mut into: Vec<Vec<&mut [u8]>> = into.iter_mut().map(|into| vec![&mut **into]).collect();
            sorted.take(task, rows.start / batch, &mut into, interrupt)
        };
        let mut written = |end: u64| {
            done.state.buckets = end.div_ceil(batch);
            tell(SortStep::Rows, done.bytes(rows));
            if done.is_due() { done.save(outputs.iter().map(|output| &output.file)) } else { Ok(()) }
        };
        let sheets = [sheets(task, outputs)?, sheets(task, outputs)?];
        pages::write(outputs, sheets, buckets, &mut make, &mut written, interrupt)
    }
}

/// What stands before the rows of each new file.
pub(super) fn headers(shuffle: &ShuffleFiles) -> Result<Vec<Vec<u8>>> {
    let header = |(array, output): (&Array, &std::path::PathBuf)| {
        let npy = output.extension().is_some_and(|extension| extension == "npy");
        if npy { format::npy::header(array.dtype(), array.shape(), AxisOrder::C) } else { Ok(Vec::new()) }
    };
    shuffle.arrays.iter().zip(&shuffle.outputs).map(header).collect()
}

/// Whether this budget has room for what a state speaks of: another one may have begun it. The default follows the room
/// that there is, which is never quite the same, so a little more than is planned goes on, too: out of what is free.
fn can_go_on(state: &State, planned: &Planned, shares: &[Share], rows: u64) -> bool {
    let with_some = |most: u64| most.saturating_add(most / 16);
    let limit = shares.first().map_or(0, |share| share.limit);
    let counted = || state.each <= with_some(most_merged(limit, rows.div_ceil(state.batch)));
    state.batch <= with_some(planned.batch) && (state.each == 1 || counted())
}

/// Bytes that a state says are in the file for runs, and in the new one.
fn needs(state: &State, rows: u64, row: usize, header: usize) -> (u64, u64) {
    let bytes = |rows: u64| rows.saturating_mul(row as u64);
    let new = bytes(state.buckets.saturating_mul(state.batch).min(rows)).saturating_add(header as u64);
    match state.passes() {
        2 => (bytes(state.next), new),
        _ => (bytes(state.merged), new.max(bytes(state.next))),
    }
}

/// Takes the space for all of it, and takes up the runs that there are. Gives them, and files for merged ones.
fn reserve(folder: &Folder, task: &Task, outputs: &[Output], state: &State) -> Result<(Runs, Vec<Output>)> {
    let (rows, in_three) = (task.order.len(), state.passes() > 2);
    let runs = task.layout.runs(rows) + state.first.len() as u64 + 1;
    let named = |what: &str, whose| {
        let named = |index| Scratch::named(&folder.file(index, what), whose);
        (0..outputs.len()).map(named).collect::<Result<Vec<_>>>()
    };
    let files = named("runs", Whose::Mine)?;
    let mut sizes = Vec::new();
    for (file, output) in files.iter().zip(outputs) {
        let runs = space(rows, output.row as u64, runs, file.align());
        let new = output.len(rows).next_multiple_of(output.file.align());
        let merged = (rows * output.row as u64).next_multiple_of(file.align());
        let (other, new) = if in_three { (merged, new.max(runs)) } else { (runs, new) };
        sizes.extend([(file, other), (&output.file, new)]);
    }
    let missing = sizes.iter().map(|(file, size)| size.saturating_sub(file.held())).sum();
    has_room(folder.path(), missing)?;
    sizes.into_iter().try_for_each(|(file, size)| file.reserve(size))?;
    let row_bytes: Vec<usize> = outputs.iter().map(|output| output.row).collect();
    let (first, merged) = if in_three {
        let merged = files.into_iter().zip(&row_bytes);
        let merged = merged.map(|(file, &row)| Output { align: file.align(), file, header: Vec::new(), row });
        (named("new", Whose::Everybodys)?, merged.collect())
    } else {
        (files, Vec::new())
    };
    let mut runs = Runs::over(first);
    runs.resume(&state.first, state.next, &row_bytes);
    Ok((runs, merged))
}

/// Memory for a bucket of all files.
fn sheets(task: &Task, outputs: &[Output]) -> Result<Vec<Sheet>> {
    let largest = task.job.steps.range(0).map_or(0, |rows| rows.end - rows.start);
    let sheets = outputs.iter().zip(&task.job.inputs);
    sheets.map(|(output, input)| output.sheet(input.budget(), largest)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_goes_on_in_a_larger_budget_and_in_one_a_little_smaller() {
        let rows = 10_000_000_000;
        let planned = |limit: u64| {
            let shares = [Share { row: 8, limit }];
            let batch = crate::sort::plan::bucket_rows(rows, &shares, 4096);
            let work = Work { rows, steps: rows.div_ceil(batch), batch };
            let run_rows = Layout::new(work, &shares).unwrap().run_rows;
            let each = crate::sort::passes::merged(work, run_rows, &shares);
            (Planned { batch, each, piece: 0 }, shares)
        };
        let small = planned(64 << 20).0;
        assert!(small.each > 1);
        let mut state = State::default();
        (state.batch, state.each) = (small.batch, small.each);
        let goes_on = |limit| {
            let (planned, shares) = planned(limit);
            can_go_on(&state, &planned, &shares, rows)
        };
        for limit in [64 << 20, 8 << 30, 1 << 40, (64 << 20) - 4096, 63 << 20] {
            assert!(goes_on(limit), "{limit}");
        }
        assert!(!goes_on(48 << 20));
    }
}
