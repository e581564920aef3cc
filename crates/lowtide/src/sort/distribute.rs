//! The first pass: rows in file order become runs on the disk, each sorted by bucket.
//!
//! Which bucket a row belongs to is computed, so the place of every row in its run is known before the run is read:
//! what is read is scattered straight to where it is written from. One run is filled while the last one is written.
//! After an error it goes on with the run that failed.

use super::plan::{KEPT_BYTES, Layout, space};
use super::scratch::{Scratch, has_room};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::door::{BUDGET, Words};
use crate::engine::ahead::Ahead;
use crate::engine::job::{Job, Pass};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::order::{Inverse, LastStep, Order, Permutation, Sequential, Shard};
use crate::sys::crew;
use crate::sys::far::Far;
use crate::sys::{self, locked};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

/// Rows whose positions one thread computes at once.
const STRETCH: usize = 1024;
/// Stands for a bucket of others: another rank's, or what was taken before.
const NOBODY: u32 = u32::MAX;
/// The least bytes of a run, where the budget has more: of smaller ones there would be too many.
const LEAST: usize = 128 << 10;

/// What is sorted, and how.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) job: Arc<Job>,
    pub(crate) order: Permutation,
    inverse: Inverse,
    /// Steps before this one were taken already.
    pub(crate) first_step: u64,
    pub(crate) layout: Layout,
}

impl Task {
    pub(crate) fn new(job: Arc<Job>, order: Permutation, first_step: u64, layout: Layout) -> Self {
        let inverse = order.inverse();
        Self { job, order, inverse, first_step, layout }
    }

    /// How many rows go into runs.
    pub(crate) fn rows(&self) -> u64 {
        self.job.steps.taken(self.first_step, u64::MAX)
    }

    /// Which bucket the row at a position belongs to.
    fn bucket(&self, position: u64) -> u32 {
        let step = self.job.steps.step_of(position).and_then(|step| step.checked_sub(self.first_step));
        step.and_then(|step| u32::try_from(step / self.layout.bucket_steps).ok()).unwrap_or(NOBODY)
    }

    /// The steps of a bucket.
    pub(crate) fn steps(&self, bucket: u64) -> Range<u64> {
        let first = self.first_step + bucket * self.layout.bucket_steps;
        first..(first + self.layout.bucket_steps).min(self.job.steps.count())
    }

    /// The buckets of `rows`, computed by several threads where they are many.
    fn buckets(&self, rows: Range<u64>) -> Vec<u32> {
        let count = usize::try_from(rows.end - rows.start).unwrap_or(0);
        let mut buckets = vec![NOBODY; count];
        let parts = (rows.start..).step_by(STRETCH).zip(buckets.chunks_mut(STRETCH));
        let helpers = if count < 2 * STRETCH { 0 } else { sys::cores() - 1 };
        let parts = Mutex::new(parts);
        crew::together(helpers, &|| {
            let mut positions = [0; STRETCH];
            while let Some((start, part)) = locked(&parts, Iterator::next) {
                let positions = &mut positions[..part.len()];
                self.inverse.fill(start, positions);
                for (bucket, &mut position) in part.iter_mut().zip(positions) {
                    *bucket = self.bucket(position);
                }
            }
        });
        buckets
    }

    /// Counts the rows of each bucket among some rows.
    pub(super) fn count(&self, rows: Range<u64>, counts: &mut [u32]) {
        let mut positions = [0; STRETCH];
        let mut start = rows.start;
        while start < rows.end {
            let some = usize::try_from(rows.end - start).map_or(STRETCH, |rows| rows.min(STRETCH));
            let positions = &mut positions[..some];
            self.inverse.fill(start, positions);
            for &mut position in positions {
                // Nobody's are in no run.
                counts.get_mut(self.bucket(position) as usize).into_iter().for_each(|count| *count += 1);
            }
            start += some as u64;
        }
    }
}

/// Where the runs are.
#[derive(Debug)]
pub(crate) struct Runs {
    /// The first row of the file that each run may have.
    pub(crate) first: Vec<u64>,
    /// For every input, its file and where in it each run begins.
    pub(crate) files: Vec<(Arc<Scratch>, Vec<u64>)>,
    /// The first free byte of each file.
    ends: Vec<u64>,
    /// The first row that is in no run yet.
    next: u64,
}

impl Runs {
    /// Files in a folder with room for all of it, and no runs yet.
    pub(crate) fn new(task: &Task, folder: &Path) -> Result<Self> {
        let (rows, runs) = (task.rows(), task.layout.runs(task.rows()) + 1);
        let files: Vec<Scratch> =
            task.job.inputs.iter().map(|_| Scratch::create(folder)).collect::<Result<_>>()?;
        let needs = |file: &Scratch, row: usize| space(rows, row as u64, runs, file.align());
        let rows_of = || task.job.inputs.iter().map(|input| input.rows.row_bytes());
        has_room(folder, files.iter().zip(rows_of()).map(|(file, row)| needs(file, row)).sum())?;
        for (file, row) in files.iter().zip(rows_of()) {
            file.reserve(needs(file, row))?;
        }
        let runs = Self::over(files);
        for (input, (file, _)) in task.job.inputs.iter().zip(&runs.files) {
            let weak: Weak<Scratch> = Arc::downgrade(file);
            input.data.goes_with(weak)?;
        }
        Ok(runs)
    }

    /// Files that have room for them, and no runs yet.
    pub(crate) fn over(files: Vec<Scratch>) -> Self {
        let ends = vec![0; files.len()];
        let files = files.into_iter().map(|file| (Arc::new(file), Vec::new())).collect();
        Self { first: Vec::new(), files, ends, next: 0 }
    }

    /// Files with runs that were written before: the first row of each, and for every file where it begins there.
    pub(crate) fn placed(files: Vec<Scratch>, first: Vec<u64>, starts: Vec<Vec<u64>>, next: u64) -> Self {
        let mut runs = Self::over(files);
        runs.files.iter_mut().zip(starts).for_each(|((_, all), starts)| *all = starts);
        Self { first, next, ..runs }
    }

    /// Runs that were written before, of all rows from each `first` up to the next one, and up to `next`.
    pub(crate) fn resume(&mut self, first: &[u64], next: u64, rows: &[usize]) {
        for (at, &begin) in first.iter().enumerate() {
            let count = first.get(at + 1).copied().unwrap_or(next) - begin;
            for (((file, starts), end), &row) in self.files.iter_mut().zip(&mut self.ends).zip(rows) {
                starts.push(*end);
                *end += (count * row as u64).next_multiple_of(file.align());
            }
        }
        self.first = first.to_vec();
        self.next = next;
    }

    /// The first row that is in no run yet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Takes a run's place, and says where its buffers go.
    fn place(&mut self, run: &Run) -> Vec<u64> {
        self.first.push(run.rows.start);
        self.next = run.rows.end;
        let places = self.ends.clone();
        for (((file, starts), end), buffer) in self.files.iter_mut().zip(&mut self.ends).zip(&run.buffers) {
            starts.push(*end);
            *end += buffer.written(run.kept.len(), file.align()) as u64;
        }
        places
    }

    /// Forgets the last run: it could not be written.
    fn take_back(&mut self) {
        self.next = self.first.pop().unwrap_or(self.next);
        for ((_, starts), end) in self.files.iter_mut().zip(&mut self.ends) {
            *end = starts.pop().unwrap_or(*end);
        }
    }
}

/// The rows of one input in a run.
#[derive(Debug)]
struct Buffer {
    block: Block,
    row: usize,
}

impl Buffer {
    /// Bytes that are written of so many rows: whole pages.
    fn written(&self, rows: usize, align: u64) -> usize {
        let align = usize::try_from(align).unwrap_or(1);
        (rows * self.row).next_multiple_of(align).min(self.block.len())
    }
}

/// A run that is filled, or written.
#[derive(Debug, Default)]
struct Run {
    /// The rows of the file that it was made of; not all of them need be in it.
    rows: Range<u64>,
    /// Those that are: their numbers from the first on, and their buckets, then their places.
    kept: Vec<(u32, u32)>,
    buffers: Vec<Buffer>,
    /// How many rows it has room for.
    room: usize,
    /// How many of its rows stand before those of each bucket.
    begins: Vec<u32>,
}

impl Run {
    /// A run of so many rows, in memory that `block` gives; `None` where it gives none.
    fn new(
        task: &Task,
        runs: &Runs,
        room: usize,
        block: impl Fn(&Budget, usize) -> Result<Option<Block>>,
    ) -> Result<Option<Self>> {
        let mut buffers = Vec::new();
        for (input, (file, _)) in task.job.inputs.iter().zip(&runs.files) {
            let (row, align) = (input.rows.row_bytes(), usize::try_from(file.align()).unwrap_or(1));
            let Some(bytes) = row.checked_mul(room).and_then(|bytes| bytes.checked_next_multiple_of(align))
            else {
                return Ok(None);
            };
            match block(input.budget(), bytes)? {
                Some(block) => buffers.push(Buffer { block, row }),
                None => return Ok(None),
            }
        }
        Ok(Some(Self { buffers, room, ..Self::default() }))
    }

    /// Decides which rows it holds, from row `next` on, and where.
    fn plan(&mut self, task: &Task, next: u64) {
        let rows = task.order.len();
        let most = rows.min(next.saturating_add(u64::from(u32::MAX)));
        self.kept.clear();
        self.kept.reserve_exact(self.room);
        let mut counts = vec![0_u32; usize::try_from(task.layout.buckets).unwrap_or(0)];
        let mut row = next;
        // Of so many rows about one is kept; with ranks, not all are.
        let thin = (task.order.len() / task.rows().max(1)).max(1);
        while row < most && self.kept.len() < self.room {
            let missing = (self.room - self.kept.len()) as u64;
            let part = missing.saturating_mul(thin).clamp(64, 64 * STRETCH as u64).min(most - row);
            let buckets = task.buckets(row..row + part);
            let mut taken = 0;
            for bucket in buckets {
                if bucket != NOBODY {
                    if self.kept.len() == self.room {
                        break;
                    }
                    #[expect(clippy::cast_possible_truncation, reason = "most is 32 bits behind next")]
                    self.kept.push(((row - next + taken) as u32, bucket));
                    counts[bucket as usize] += 1;
                }
                taken += 1;
            }
            row += taken;
        }
        self.rows = next..row;
        let mut place = 0;
        for count in &mut counts {
            (*count, place) = (place, place + *count);
        }
        self.begins.clone_from(&counts);
        for (_, bucket) in &mut self.kept {
            let place = &mut counts[*bucket as usize];
            *bucket = *place;
            *place += 1;
        }
    }

    /// Reads its rows, each to its place.
    fn fill(&mut self, reading: &mut Reading, interrupt: Interrupt<'_>) -> Result<()> {
        let far = Far::default();
        let mut kept = &*self.kept;
        while let Some(&(first, _)) = kept.first() {
            let piece = reading.at(self.rows.start + u64::from(first), interrupt)?;
            let here = kept.partition_point(|&(row, _)| self.rows.start + u64::from(row) < piece.rows.end);
            let (mine, rest) = kept.split_at(here);
            kept = rest;
            for (buffer, block) in self.buffers.iter_mut().zip(&piece.blocks) {
                let Buffer { block: into, row: len } = buffer;
                for &(row, place) in mine {
                    let at =
                        usize::try_from(self.rows.start + u64::from(row) - piece.rows.start).unwrap_or(0);
                    let place = place as usize * *len;
                    far.copy(&block[at * *len..][..*len], &mut into[place..place + *len]);
                }
            }
        }
        Ok(())
    }

    fn write(
        &self,
        files: &[(Arc<Scratch>, Vec<u64>)],
        places: &[u64],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        for ((buffer, (file, _)), &place) in self.buffers.iter().zip(files).zip(places) {
            file.write(&buffer.block[..buffer.written(self.kept.len(), file.align())], place, interrupt)?;
        }
        Ok(())
    }
}

/// Rows in file order, as the engine reads them.
struct Reading {
    ahead: Ahead,
    piece: Piece,
}

/// Rows that follow each other, a block for each input.
#[derive(Default)]
struct Piece {
    rows: Range<u64>,
    blocks: Vec<Block>,
}

impl Reading {
    fn of(task: &Task, rows: Range<u64>) -> Result<Self> {
        let row = rows.start;
        let steps = Shard::ALONE.steps(rows.end, row, task.layout.piece_rows, LastStep::Split)?;
        let pass = Pass::Sequential(Sequential::new(task.order.len()));
        let inputs = task.job.inputs.clone();
        let ahead = Ahead::new(Job { inputs, pass, steps, ahead: task.layout.ahead })?;
        Ok(Self { ahead, piece: Piece { rows: row..row, blocks: Vec::new() } })
    }

    /// The piece that a row is in, which is this one or a later one.
    fn at(&mut self, row: u64, interrupt: Interrupt<'_>) -> Result<&Piece> {
        let nothing = || Error::Bug { what: "a row behind the last one was to be sorted".into() };
        while self.piece.rows.end <= row {
            self.piece.blocks.clear(); // its memory is the next one's
            let rows = self.ahead.job().steps.range(self.ahead.taken()).ok_or_else(nothing)?;
            self.piece = Piece { blocks: self.ahead.next(interrupt).ok_or_else(nothing)??, rows };
        }
        Ok(&self.piece)
    }
}

/// Memory for two runs, or for one where others hold the budget; then smaller ones. At last one that is not counted: what
/// else was made of an array must not end it.
fn memory(task: &Task, runs: &Runs) -> Result<Vec<Run>> {
    let row: usize = task.job.inputs.iter().map(|input| input.rows.row_bytes()).sum();
    let most = usize::try_from(task.layout.run_rows).unwrap_or(usize::MAX);
    let least = (LEAST / row.max(1)).clamp(1, most);
    let mut room = most;
    while room >= least {
        if let Some(run) = Run::new(task, runs, room, Block::counted)? {
            let second = Run::new(task, runs, room, Block::counted)?;
            return Ok(std::iter::once(run).chain(second).collect());
        }
        room /= 2;
    }
    let uncounted = |budget: &Budget, bytes| Block::for_caller(budget, bytes).map(Some);
    Ok(Run::new(task, runs, least, uncounted)?.into_iter().collect())
}

/// Sorts all rows that are in no run yet. After each run that is on the disk, `written` is told.
pub(crate) fn distribute(
    task: &Task,
    runs: &mut Runs,
    written: &mut dyn FnMut(&Runs) -> Result<()>,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let rows = task.order.len();
    if runs.next >= rows {
        return Ok(());
    }
    let mut free = memory(task, runs)?;
    // The lists of rows; where the budget is in others' hands they are made all the same.
    let listed: usize = free.iter().map(|run| run.room).sum();
    let _lists = task.job.inputs[0].budget().lease(listed as u64 * KEPT_BYTES);
    let mut reading = Reading::of(task, runs.next..rows)?;
    let mut full: Option<(Run, Vec<u64>)> = None;
    loop {
        let mut filling = if runs.next < rows { free.pop() } else { None };
        if filling.is_none() && full.is_none() {
            return Ok(());
        }
        let next = runs.next;
        let take = || {
            filling.as_mut().map_or(Ok(()), |run| {
                run.plan(task, next);
                run.fill(&mut reading, interrupt)
            })
        };
        let write = || full.as_ref().map_or(Ok(()), |(run, at)| run.write(&runs.files, at, interrupt));
        let (filled, on_disk) = crew::both(take, write);
        // What is missing was forked away: the others are in another process.
        if let Err(error) = on_disk.unwrap_or(Err(Error::Interrupted)) {
            runs.take_back();
            return Err(error);
        }
        if full.is_some() {
            written(runs)?;
        }
        filled.unwrap_or(Err(Error::Interrupted))?;
        free.extend(full.take().map(|(run, _)| run));
        full = filling.map(|run| {
            let at = runs.place(&run);
            (run, at)
        });
    }
}

/// Sorts some rows by themselves, as one run, and writes it at its places in files that have room for it. How many of its
/// rows stand before those of each bucket.
pub(crate) fn distribute_one(
    task: &Task,
    files: Vec<Scratch>,
    rows: Range<u64>,
    places: &[u64],
    interrupt: Interrupt<'_>,
) -> Result<Vec<u32>> {
    let runs = Runs::over(files);
    let room = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX);
    let budget = task.job.inputs[0].budget();
    let mut run = Run::new(task, &runs, room, Block::counted)?.ok_or_else(|| Error::Budget {
        what: "sorting rows on the disk".into(),
        needs: task.job.inputs.iter().map(|input| input.rows.bytes(room as u64) as u64).sum(),
        limit: budget.available(),
        hint: Words::from("a larger ") + BUDGET,
    })?;
    let _list = budget.lease(room as u64 * KEPT_BYTES);
    run.plan(task, rows.start);
    run.fill(&mut Reading::of(task, rows)?, interrupt)?;
    run.write(&runs.files, places, interrupt)?;
    runs.files.iter().try_for_each(|(file, _)| file.sync())?;
    Ok(run.begins)
}
