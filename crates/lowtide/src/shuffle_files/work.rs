//! The two passes over the rows, and how far they are: after a kill, the next call goes on from what was written down.

use super::pages::{Output, Sheet};
use super::{ShuffleFiles, SortStep, Sorting};
use crate::array::Array;
use crate::engine::job::{Job, Pass};
use crate::error::{Error, Result};
use crate::format::{self, Order as AxisOrder};
use crate::interrupt::Interrupt;
use crate::order::{LastStep, Order as _, Permutation, Shard};
use crate::sort::plan::{Layout, Share, Work, bucket_rows, space};
use crate::sort::{
    Folder, Runs, Scratch, Sorted, State, Task, Whose, distribute, has_room, shares, too_large,
};
use crate::sys::{self, crew};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is written down: what a kill loses at most. Each time costs some 20 ms of syncing.
const CHECKPOINT: Duration = Duration::from_secs(2);

/// The work, as far as it is.
pub(super) struct Files<'f> {
    done: Done<'f>,
    task: Task,
    runs: Runs,
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
        (self.state.next + self.state.buckets.saturating_mul(self.state.batch).min(rows)) * self.row
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
        let most = bucket_rows(rows, &shares, sys::page() as u64);
        let headers = headers(shuffle)?;
        let row_bytes: Vec<usize> = arrays.iter().map(Array::row_bytes).collect();
        let holds = |state: &State| {
            let (run_rows, new_rows) = (state.next, state.buckets.saturating_mul(state.batch).min(rows));
            row_bytes.iter().zip(&headers).enumerate().all(|(index, (&row, header))| {
                let bytes = |rows: u64| rows.saturating_mul(row as u64);
                folder.has(index, "runs", bytes(run_rows))
                    && folder.has(index, "new", bytes(new_rows).saturating_add(header.len() as u64))
            })
        };
        let state = state.filter(|state| state.batch <= most && state.fits(rows) && holds(state));
        let state = match state {
            Some(state) => state,
            None => folder.begin(print, most)?,
        };
        let (batch, empty) = (state.batch, rows == 0 || shares.iter().all(|share| share.row == 0));
        let steps = Shard::ALONE.steps(rows, 0, batch, LastStep::Split)?;
        let work = Work { rows, steps: steps.count(), batch };
        let layout = Layout::new(work, &shares).ok_or_else(|| too_large(&shares))?;
        let layout = Layout { bucket_steps: 1, buckets: if empty { 0 } else { steps.count() }, ..layout };
        let order = Permutation::new(rows, shuffle.seed, shuffle.epoch);
        let job = Job { inputs, pass: Pass::Exact(order.clone()), steps, ahead: 0 };
        let task = Task::new(Arc::new(job), order, 0, layout);
        let output = |(index, (header, &row)): (usize, (Vec<u8>, &usize))| {
            let file = Scratch::named(&folder.file(index, "new"), Whose::Everybodys)?;
            Ok(Output { align: file.align(), file, header, row })
        };
        let outputs =
            headers.into_iter().zip(&row_bytes).enumerate().map(output).collect::<Result<Vec<_>>>()?;
        let runs = reserve(folder, &task, &outputs, &state)?;
        let row = row_bytes.iter().map(|&row| row as u64).sum();
        Ok(Self {
            done: Done { folder, state, saved: Instant::now(), row, failed: false },
            task,
            runs,
            outputs,
        })
    }

    /// Bytes that were written.
    pub(super) fn written(&self) -> u64 {
        self.done.bytes(self.task.order.len())
    }

    /// The rest of it. `unchanged` is asked once all rows were read.
    pub(super) fn run(
        mut self,
        unchanged: &dyn Fn() -> Result<()>,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (rows, before) = (self.task.order.len(), self.written());
        let total = 2 * rows * self.done.row;
        let mut tell = |step, written| progress(Sorting { step, written, total, before, passes: 2 });
        tell(SortStep::Runs, before);
        if self.task.layout.buckets == 0 {
            self.outputs.iter().try_for_each(Output::only_header)?;
        } else {
            self.sort(&mut tell, interrupt)?;
            unchanged()?;
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

    /// The second pass.
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
        let (rows, batch) = (task.order.len(), done.state.batch);
        let begin = done.state.buckets;
        let heads = outputs.iter().map(|output| output.head((begin * batch).min(rows)));
        let heads: Vec<Vec<u8>> = heads.collect::<Result<_>>()?;
        let mut sorted = Sorted::new(task, runs)?;
        sorted.skip(task, begin)?;
        let mut free = vec![sheets(task, outputs)?, sheets(task, outputs)?];
        let mut full: Option<Vec<Sheet>> = None;
        for bucket in begin..=task.layout.buckets {
            let mut filling = if bucket < task.layout.buckets { free.pop() } else { None };
            let take = || {
                let Some(sheets) = &mut filling else { return Ok(()) };
                let rows = task.job.step_rows(bucket);
                let places = sheets.iter_mut().zip(&*outputs);
                let mut into: Vec<Vec<&mut [u8]>> =
                    places.map(|(sheet, output)| vec![sheet.turn(output, bucket * batch, rows)]).collect();
                sorted.take(task, bucket, &mut into, interrupt)
            };
            let write = || {
                let mut sheets = full.iter().flatten().zip(&*outputs);
                sheets.try_for_each(|(sheet, output)| sheet.write(output, interrupt))
            };
            let (filled, written) = crew::both(take, write);
            written.unwrap_or(Err(Error::Interrupted))?;
            if full.is_some() {
                done.state.buckets = bucket;
                tell(SortStep::Rows, done.bytes(rows));
                if done.is_due() {
                    done.save(outputs.iter().map(|output| &output.file))?;
                }
            }
            filled.unwrap_or(Err(Error::Interrupted))?;
            for (index, sheet) in filling.iter_mut().flatten().enumerate() {
                match &full {
                    Some(last) => sheet.begin_with(last[index].end_from(sheet.first)),
                    None => sheet.begin_with(&heads[index]),
                }
            }
            free.extend(full.take());
            full = filling;
        }
        Ok(())
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

/// Bytes of one bucket in one run, in so many times the budget.
pub(super) fn piece(arrays: &[Array], times: u64) -> u64 {
    let inputs: Vec<_> = arrays.iter().map(Array::input).collect();
    let (rows, mut shares) = (arrays.first().map_or(0, Array::rows), shares(&inputs));
    for share in &mut shares {
        share.limit = share.limit.saturating_mul(times);
    }
    let batch = bucket_rows(rows, &shares, sys::page() as u64);
    let layout = Layout::new(Work { rows, steps: rows.div_ceil(batch.max(1)), batch }, &shares);
    let row: u64 = shares.iter().map(|share| share.row).max().unwrap_or(0);
    // At least a row: it lies together.
    let bytes = |layout: Layout| {
        u128::from(layout.run_rows) * u128::from(batch) * u128::from(row) / u128::from(rows.max(1))
    };
    layout.map_or(0, |layout| u64::try_from(bytes(layout)).unwrap_or(u64::MAX).max(row))
}

/// Takes the space for all of it, and takes up the runs that there are.
fn reserve(folder: &Folder, task: &Task, outputs: &[Output], state: &State) -> Result<Runs> {
    let rows = task.order.len();
    let runs = task.layout.runs(rows) + state.first.len() as u64 + 1;
    let files: Vec<Scratch> = (0..outputs.len())
        .map(|index| Scratch::named(&folder.file(index, "runs"), Whose::Mine))
        .collect::<Result<_>>()?;
    let mut sizes = Vec::new();
    for (file, output) in files.iter().zip(outputs) {
        sizes.push((file, space(rows, output.row as u64, runs, file.align())));
        sizes.push((&output.file, output.len(rows).next_multiple_of(output.file.align())));
    }
    let missing = sizes.iter().map(|(file, size)| size.saturating_sub(file.held())).sum();
    has_room(folder.path(), missing)?;
    sizes.into_iter().try_for_each(|(file, size)| file.reserve(size))?;
    let mut runs = Runs::over(files);
    let row_bytes: Vec<usize> = outputs.iter().map(|output| output.row).collect();
    runs.resume(&state.first, state.next, &row_bytes);
    Ok(runs)
}

/// Memory for a bucket of all files.
fn sheets(task: &Task, outputs: &[Output]) -> Result<Vec<Sheet>> {
    let largest = task.job.steps.range(0).map_or(0, |rows| rows.end - rows.start);
    let sheets = outputs.iter().zip(&task.job.inputs);
    sheets.map(|(output, input)| output.sheet(input.budget(), largest)).collect()
}
