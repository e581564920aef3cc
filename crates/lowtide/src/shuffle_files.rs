//! Files whose rows are those of others in shuffled order: what `shuffled(seed)` gives, written down.
//!
//! Two reads and two writes of the data. All that is written stays in a folder beside the result until that is whole:
//! the runs, the new files, and a state that says how far both are. Killed at any moment, the next call goes on. What
//! comes out is a function of the rows and the seed alone, so it is the same, byte for byte.

use crate::array::Array;
use crate::budget::pool::Block;
use crate::engine::job::{Job, Pass};
use crate::error::{Error, Result};
use crate::format::{self, Order as AxisOrder};
use crate::interrupt::Interrupt;
use crate::order::{LastStep, Order as _, Permutation, Shard};
use crate::sort::plan::{Layout, Share, Work, bucket_rows, space};
use crate::sort::{Folder, Runs, Scratch, Sorted, State, Task, distribute, has_room, shares, too_large};
use crate::sys::{self, crew};
use crate::write::Existing;
use crate::zip::Zip;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the state is written down: what a kill loses at most. Each time costs some 20 ms of syncing.
const CHECKPOINT: Duration = Duration::from_secs(2);

/// Rows of some files, to be written in shuffled order.
#[derive(Clone, Debug)]
pub struct ShuffleFiles {
    /// The files, all of them by the same permutation. Everything stays inside the budget that they were opened with.
    pub arrays: Vec<Array>,
    /// What to write, a file for each, all in one folder: `.npy` by its name, else rows and nothing before them.
    pub outputs: Vec<PathBuf>,
    /// Another seed, another order: that of a [`Shuffle`](crate::Shuffle).
    pub seed: u64,
    /// Another epoch, another order.
    pub epoch: u64,
    /// What happens to files that are there already.
    pub existing: Existing,
}

/// How far a shuffle of files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// What is being written.
    pub step: SortStep,
    /// Bytes that were written, in runs and in the new files.
    pub written: u64,
    /// How many there will be: twice the data.
    pub total: u64,
    /// How many of them an earlier call has written, which was killed.
    pub before: u64,
}

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortStep {
    /// Runs: rows, sorted by where they go.
    Runs,
    /// The new files.
    Rows,
}

/// What a shuffle of files has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shuffled {
    /// The new files.
    pub files: Vec<PathBuf>,
    /// Rows of each.
    pub rows: u64,
    /// Bytes of all rows.
    pub bytes: u64,
    /// How many of twice as many bytes an earlier call had written.
    pub before: u64,
}

impl ShuffleFiles {
    /// Does it, or goes on with it.
    ///
    /// # Errors
    /// [`Error::Argument`] where the arrays do not have the same rows, [`Error::Io`] where a file is there already, the
    /// disk has no room, or something cannot be read or written.
    pub fn run(&self, progress: &mut dyn FnMut(Sorting), interrupt: Interrupt<'_>) -> Result<Shuffled> {
        self.check()?;
        let first = self.outputs.first().ok_or_else(|| Error::argument("there is nothing to shuffle", ""))?;
        let (folder, print) = (Folder::beside(first)?, self.print()?);
        let answer = self.run_in(&folder, print, progress, interrupt);
        if answer.is_ok() || !folder.has_state() {
            folder.remove(self.outputs.len())?; // whole, or refused before anything was done
        }
        answer
    }

    fn run_in(
        &self,
        folder: &Folder,
        print: String,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<Shuffled> {
        let state = folder.state(&print);
        if !state.as_ref().is_some_and(|state| state.whole) {
            self.outputs.iter().try_for_each(|output| self.may_write(output))?;
        }
        let mut files = Files::new(self, folder, state, print)?;
        let before = files.written();
        let answer = files.run(&mut |at| progress(Sorting { before, ..at }), interrupt);
        if answer.is_err() {
            let _ = files.checkpoint(); // what was done is not lost, where that can be helped
        }
        answer?;
        for (index, output) in self.outputs.iter().enumerate() {
            let made = folder.file(index, "new");
            // One that has its name already got it from an earlier call.
            if made.exists() {
                crate::write::rename(&made, output)?;
            }
        }
        let (rows, bytes) = (self.arrays[0].rows(), self.arrays.iter().map(Array::nbytes).sum());
        Ok(Shuffled { files: self.outputs.clone(), rows, bytes, before })
    }

    /// Bytes that are needed on the disk beside what is there: the new files, and as much again until they are whole.
    pub fn space(&self) -> u64 {
        self.arrays.iter().map(|array| 2 * array.nbytes()).sum()
    }

    fn check(&self) -> Result<()> {
        Zip::new(self.arrays.clone())?;
        if self.arrays.len() != self.outputs.len() {
            return Err(Error::argument(
                format!("{} files are to be made of {}", self.outputs.len(), self.arrays.len()),
                "as many as there are",
            ));
        }
        let folder = self.outputs[0].parent();
        if self.outputs.iter().any(|output| output.parent() != folder) {
            return Err(Error::argument("files that are made together belong in one folder", ""));
        }
        for (at, output) in self.outputs.iter().enumerate() {
            if self.outputs[..at].contains(output) {
                return Err(Error::argument(format!("{} would be made twice", output.display()), ""));
            }
        }
        let fortran = |array: &&Array| array.layout().order == AxisOrder::Fortran;
        if let Some(array) = self.arrays.iter().find(fortran) {
            return Err(Error::unsupported(
                format!("{}: a row of a Fortran-ordered file is all over it", array.path().display()),
                "write it in C order first: np.save(..., np.ascontiguousarray(a)), or chunk by chunk",
            ));
        }
        Ok(())
    }

    fn may_write(&self, output: &Path) -> Result<()> {
        let same = |array: &Array| {
            let (Ok(source), Ok(there)) = (array.source(), std::fs::metadata(output)) else { return false };
            source.file().metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == (there.dev(), there.ino()))
        };
        let refuse = |error, hint: &'static str| {
            let error = std::io::Error::from_raw_os_error(error);
            Err(Error::io(output, "write the file", error).with_hint(hint))
        };
        if self.arrays.iter().any(same) {
            return refuse(libc::EEXIST, "the result takes another name than what it is made of");
        }
        match (std::fs::symlink_metadata(output), self.existing) {
            (Ok(meta), _) if meta.is_dir() => refuse(libc::EISDIR, "name a file in it"),
            (Ok(_), Existing::Refuse) => refuse(libc::EEXIST, "overwrite=True, --overwrite: it is replaced"),
            _ => Ok(()),
        }
    }

    /// Stands for what is made: the files as they are now, the order, and the names.
    fn print(&self) -> Result<String> {
        let mut print = format!("seed {} epoch {}", self.seed, self.epoch);
        for (array, output) in self.arrays.iter().zip(&self.outputs) {
            let meta = array.source()?.file().metadata();
            let meta = meta.map_err(|error| Error::io(array.path(), "look at the file", error))?;
            let (layout, changed) = (array.layout(), (meta.mtime(), meta.mtime_nsec()));
            let _ = write!(
                print,
                "; {} {} {:?} {} {:?} from {} of {} bytes, {} {}.{:09}",
                output.display(),
                layout.dtype.numpy_str(),
                layout.shape,
                layout.offset,
                array.fingerprint()?,
                array.path().display(),
                meta.len(),
                meta.ino(),
                changed.0,
                changed.1,
            );
        }
        Ok(print)
    }
}

/// The work, as far as it is.
struct Files<'f> {
    folder: &'f Folder,
    state: State,
    task: Task,
    runs: Option<Runs>,
    outputs: Vec<Output>,
    saved: Instant,
}

/// A file that is being made.
struct Output {
    file: Scratch,
    /// What stands before the rows.
    header: Vec<u8>,
    row: usize,
}

impl<'f> Files<'f> {
    fn new(shuffle: &ShuffleFiles, folder: &'f Folder, state: Option<State>, print: String) -> Result<Self> {
        let (arrays, align) = (&shuffle.arrays, sys::page() as u64);
        let inputs: Vec<_> = arrays.iter().map(Array::input).collect();
        let shares: Vec<Share> = shares(&inputs);
        let rows = arrays[0].rows();
        let most = bucket_rows(rows, &shares, align);
        let state = match state.filter(|state| state.batch <= most) {
            Some(state) => state,
            None => folder.begin(print, most)?,
        };
        let batch = state.batch;
        let steps = Shard::ALONE.steps(rows, 0, batch, LastStep::Split)?;
        let work = Work { rows, steps: steps.count(), batch };
        let empty = rows == 0 || shares.iter().any(|share| share.row == 0);
        let layout = Layout::new(work, &shares).ok_or_else(|| too_large(&shares))?;
        let layout = Layout { bucket_steps: 1, buckets: if empty { 0 } else { steps.count() }, ..layout };
        let order = Permutation::new(rows, shuffle.seed, shuffle.epoch);
        let job = Job { inputs, pass: Pass::Exact(order.clone()), steps, ahead: 0 };
        let task = Task::new(Arc::new(job), order, 0, layout);
        let mut outputs = Vec::new();
        for (index, (array, output)) in arrays.iter().zip(&shuffle.outputs).enumerate() {
            let npy = output.extension().is_some_and(|extension| extension == "npy");
            let header = if npy {
                format::npy::header(array.dtype(), array.shape(), AxisOrder::C)?
            } else {
                Vec::new()
            };
            let row = array.row_bytes();
            outputs.push((folder.file(index, "new"), header, row));
        }
        if state.whole {
            return Ok(Self { folder, state, task, runs: None, outputs: Vec::new(), saved: Instant::now() });
        }
        let outputs = outputs
            .into_iter()
            .map(|(path, header, row)| Ok(Output { file: Scratch::named(&path)?, header, row }))
            .collect::<Result<Vec<_>>>()?;
        let runs = Self::reserve(folder, &task, &outputs, &state)?;
        Ok(Self { folder, state, task, runs: Some(runs), outputs, saved: Instant::now() })
    }

    /// Takes the space for all of it, and takes up the runs that there are.
    fn reserve(folder: &Folder, task: &Task, outputs: &[Output], state: &State) -> Result<Runs> {
        let rows = task.order.len();
        let runs = task.layout.runs(rows) + state.first.len() as u64 + 1;
        let files: Vec<Scratch> = (0..outputs.len())
            .map(|index| Scratch::named(&folder.file(index, "runs")))
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

    /// Bytes of a row in all files.
    fn row(&self) -> u64 {
        self.task.job.inputs.iter().map(|input| input.rows.row_bytes() as u64).sum()
    }

    /// Bytes that were written.
    fn written(&self) -> u64 {
        let rows = self.task.order.len();
        (self.state.next + (self.state.buckets * self.state.batch).min(rows)) * self.row()
    }

    fn run(&mut self, progress: &mut dyn FnMut(Sorting), interrupt: Interrupt<'_>) -> Result<()> {
        let total = 2 * self.task.order.len() * self.row();
        let mut tell = |step, written| progress(Sorting { step, written, total, before: 0 });
        if self.state.whole {
            return Ok(());
        }
        tell(SortStep::Runs, self.written());
        let mut runs = self.runs.take().ok_or(Error::Interrupted)?;
        if self.task.layout.buckets > 0 {
            let answer = self.sort(&mut runs, &mut tell, interrupt);
            // Before anybody writes down that they are there.
            runs.files.iter().try_for_each(|(file, _)| file.sync())?;
            answer?;
            self.checkpoint()?;
        }
        self.write(runs, &mut tell, interrupt)?;
        for output in &self.outputs {
            output.file.cut(output.len(self.task.order.len()))?;
            output.file.sync()?;
        }
        self.state.whole = true;
        self.folder.save(&self.state)
    }

    /// The first pass.
    fn sort(
        &mut self,
        runs: &mut Runs,
        tell: &mut dyn FnMut(SortStep, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (row, folder, state, saved) = (self.row(), self.folder, &mut self.state, &mut self.saved);
        let mut written = |runs: &Runs| {
            state.first.clone_from(&runs.first);
            state.next = runs.next();
            tell(SortStep::Runs, state.next * row);
            if saved.elapsed() < CHECKPOINT {
                return Ok(());
            }
            runs.files.iter().try_for_each(|(file, _)| file.sync())?;
            *saved = Instant::now();
            folder.save(state)
        };
        distribute(&self.task, runs, &mut written, interrupt)
    }

    /// Writes down how far it is, once that is on the disk for sure.
    fn checkpoint(&mut self) -> Result<()> {
        self.outputs.iter().try_for_each(|output| output.file.sync())?;
        self.saved = Instant::now();
        self.folder.save(&self.state)
    }

    /// The second pass.
    fn write(
        &mut self,
        runs: Runs,
        tell: &mut dyn FnMut(SortStep, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (buckets, batch) = (self.task.layout.buckets, self.state.batch);
        let largest = self.task.job.steps.range(0).map_or(0, |rows| rows.end - rows.start);
        let heads: Vec<Vec<u8>> = self
            .outputs
            .iter()
            .map(|output| output.head(self.state.buckets * batch))
            .collect::<Result<_>>()?;
        if buckets == 0 {
            return self.outputs.iter().try_for_each(Output::only_header);
        }
        let mut sorted = Sorted::new(&self.task, runs)?;
        sorted.skip(&self.task, self.state.buckets)?;
        let sheets = |_| {
            self.outputs
                .iter()
                .zip(&self.task.job.inputs)
                .map(|(output, input)| output.sheet(input.budget(), largest))
                .collect::<Result<Vec<Sheet>>>()
        };
        let mut free: Vec<Vec<Sheet>> = (0..2).map(sheets).collect::<Result<_>>()?;
        let mut full: Option<Vec<Sheet>> = None;
        for bucket in self.state.buckets..=buckets {
            let (task, outputs) = (&self.task, &self.outputs);
            let mut filling = if bucket < buckets { free.pop() } else { None };
            let take = || {
                let Some(sheets) = &mut filling else { return Ok(()) };
                let rows = task.job.step_rows(bucket);
                let places = sheets.iter_mut().zip(outputs);
                let mut into: Vec<Vec<&mut [u8]>> =
                    places.map(|(sheet, output)| vec![sheet.turn(output, bucket * batch, rows)]).collect();
                sorted.take(task, bucket, &mut into, interrupt)
            };
            let write = || {
                let sheets = full.iter().flatten().zip(outputs);
                sheets.into_iter().try_for_each(|(sheet, output)| sheet.write(output, interrupt))
            };
            let (filled, written) = crew::both(take, write);
            written.unwrap_or(Err(Error::Interrupted))?;
            if full.is_some() {
                self.state.buckets = bucket;
                tell(SortStep::Rows, self.written());
                if self.saved.elapsed() >= CHECKPOINT {
                    self.checkpoint()?;
                }
            }
            filled.unwrap_or(Err(Error::Interrupted))?;
            if let Some(sheets) = &mut filling {
                for (index, sheet) in sheets.iter_mut().enumerate() {
                    match &full {
                        Some(last) => sheet.begin_with(last[index].end_from(sheet.first)),
                        None => sheet.begin_with(&heads[index]),
                    }
                }
            }
            free.extend(full.take());
            full = filling;
        }
        Ok(())
    }
}

impl Output {
    /// Bytes of the whole file.
    fn len(&self, rows: u64) -> u64 {
        self.at(rows)
    }

    /// Where a row begins.
    fn at(&self, row: u64) -> u64 {
        self.header.len() as u64 + row * self.row as u64
    }

    /// What stands on the page of a row before it; whole pages before that are written, if they are the header's.
    fn head(&self, row: u64) -> Result<Vec<u8>> {
        let (at, align) = (self.at(row), self.file.align());
        let first = at / align * align;
        let lead = usize::try_from(at - first).unwrap_or(0);
        if row > 0 {
            let mut head = vec![0; lead];
            self.file.source()?.read_exact(first, &mut head)?;
            return Ok(head);
        }
        let (pages, head) = self.header.split_at(self.header.len() - lead);
        self.file.write(pages, 0, &|| Ok(()))?;
        Ok(head.to_vec())
    }

    fn only_header(&self) -> Result<()> {
        self.file.write(&self.header, 0, &|| Ok(()))
    }

    /// Memory for so many rows, wherever they begin on a page.
    fn sheet(&self, budget: &crate::Budget, rows: u64) -> Result<Sheet> {
        let align = usize::try_from(self.file.align()).unwrap_or(1);
        let len = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(self.row));
        let len = len.and_then(|len| len.checked_next_multiple_of(align)?.checked_add(align));
        let len = len.ok_or(Error::Memory { needs: u64::MAX })?;
        let block = match Block::counted(budget, len)? {
            Some(block) => block,
            None => Block::for_caller(budget, len)?,
        };
        Ok(Sheet { block, first: 0, lead: 0, len: 0 })
    }
}

/// Rows that follow each other in a file, in memory from the page on that the first of them begins on.
struct Sheet {
    block: Block,
    /// Where that page is in the file.
    first: u64,
    /// Bytes before the rows.
    lead: usize,
    /// Bytes of the rows.
    len: usize,
}

impl Sheet {
    /// Turns to other rows: where they go.
    fn turn(&mut self, output: &Output, row: u64, rows: usize) -> &mut [u8] {
        let (at, align) = (output.at(row), output.file.align());
        self.first = at / align * align;
        self.lead = usize::try_from(at - self.first).unwrap_or(0);
        self.len = rows * output.row;
        &mut self.block[self.lead..self.lead + self.len]
    }

    /// What stands before the rows on their first page.
    fn begin_with(&mut self, head: &[u8]) {
        self.block[..self.lead].copy_from_slice(&head[..self.lead]);
    }

    /// What it has from a byte of the file on.
    fn end_from(&self, offset: u64) -> &[u8] {
        let from = usize::try_from(offset - self.first).unwrap_or(usize::MAX);
        &self.block[from..self.lead + self.len]
    }

    /// Writes whole pages; what is behind the rows on the last one is written over by those that follow, or cut.
    fn write(&self, output: &Output, interrupt: Interrupt<'_>) -> Result<()> {
        let align = usize::try_from(output.file.align()).unwrap_or(1);
        let len = (self.lead + self.len).next_multiple_of(align).min(self.block.len());
        output.file.write(&self.block[..len], self.first, interrupt)
    }
}
