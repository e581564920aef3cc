//! Two passes in units that several machines share: runs first, then buckets.
//!
//! All of them see the folder beside the result. One process has it ([`Shared`]): it makes the files in their full size,
//! hands out units, and notes which are done. Where every run and every bucket lies is arithmetic, so whoever has a unit
//! ([`Unit`]) writes to its own place, syncs, and needs nothing but the plan; doing it again, or twice at once, writes
//! the same bytes to the same place. No two units write to the same page: machines do not see each other's.

use super::pages::Output;
use super::work::headers;
use super::{ShuffleFiles, Shuffled};
use crate::array::Array;
use crate::engine::job::{Job, Pass};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::order::{LastStep, Order as _, Permutation, Shard};
use crate::selection::Axis;
use crate::sort::plan::{Layout, Share, Work, bucket_rows};
use crate::sort::{Folder, Runs, Scratch, Sorted, Task, Whose, distribute_one, has_room, shares, too_large};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one unit writes begins and ends at multiples of this: the largest page that Linux has, on any machine.
const APART: u64 = 64 << 10;
/// How often it is written down which units are done.
const CHECKPOINT: Duration = Duration::from_secs(2);
/// Another number than that of the state of one machine alone: neither goes on with the other's.
const VERSION: u32 = 1001;

/// How the work is divided: what whoever has a unit of it must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Plan {
    version: u32,
    /// Stands for what is shuffled, and for how it is divided.
    print: String,
    folder: PathBuf,
    /// The files that are read: their type, size, first and last bytes.
    inputs: Vec<String>,
    rows: u64,
    /// Rows of a run, and of a bucket.
    run_rows: u64,
    batch: u64,
    runs: u64,
    buckets: u64,
}

/// How far it is.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    plan: Plan,
    /// Which runs and buckets are done.
    runs: Vec<Range<u64>>,
    buckets: Vec<Range<u64>>,
    /// The new files are whole, and have only to get their names.
    whole: Option<Vec<(u64, u64)>>,
}

/// A piece of the work that can be done by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Some rows, sorted by where they go. All of them come before the first bucket.
    Run(u64),
    /// A stretch of the new files.
    Bucket(u64),
}

impl Plan {
    fn new(shuffle: &ShuffleFiles, folder: &Folder, print: &str) -> Result<Self> {
        let inputs: Vec<_> = shuffle.arrays.iter().map(Array::input).collect();
        let shares: Vec<Share> = shares(&inputs);
        let rows = shuffle.arrays[0].rows();
        let most = bucket_rows(rows, &shares, APART);
        // A bucket of whole pages begins where the header ends on one: few rows of the one before are read again.
        let whole = shares.iter().map(|share| APART / gcd(APART, share.row.max(1))).max().unwrap_or(1);
        let batch = if most > whole { most / whole * whole } else { most };
        let work = Work { rows, steps: rows.div_ceil(batch), batch };
        let layout = Layout::new(work, &shares).ok_or_else(|| too_large(&shares))?;
        let empty = rows == 0 || shares.iter().all(|share| share.row == 0);
        let (runs, buckets) = if empty { (0, 0) } else { (rows.div_ceil(layout.run_rows), work.steps) };
        let run_rows = layout.run_rows;
        let mut hash = blake3::Hasher::new();
        hash.update(print.as_bytes());
        for number in [u64::from(VERSION), run_rows, batch] {
            hash.update(&number.to_le_bytes());
        }
        let path = folder.path();
        Ok(Self {
            version: VERSION,
            print: hash.finalize().to_hex()[..16].to_owned(),
            folder: std::path::absolute(path)
                .map_err(|error| Error::io(path, "find the folder of it", error))?,
            inputs: shuffle.arrays.iter().map(Array::fingerprint).collect::<Result<_>>()?,
            rows,
            run_rows,
            batch,
            runs,
            buckets,
        })
    }

    fn file(&self, index: usize, what: &str) -> PathBuf {
        self.folder.join(format!("{index}.{}.{what}", self.print))
    }

    /// The rows of a run.
    fn run(&self, number: u64) -> Range<u64> {
        let first = number * self.run_rows;
        first..(first + self.run_rows).min(self.rows)
    }

    /// Where a run begins in the file of an input with rows of so many bytes.
    fn place(&self, number: u64, row: u64) -> u64 {
        number * (self.run_rows * row).next_multiple_of(APART)
    }

    /// Bytes of the table of a run: how many of its rows stand before each bucket, and all of them.
    fn table(&self) -> u64 {
        (4 * (self.buckets + 1)).next_multiple_of(APART)
    }

    /// Bytes of all files, with their paths.
    fn sizes(&self, outputs: &[(Vec<u8>, u64)]) -> Vec<(PathBuf, u64)> {
        let mut sizes = vec![(self.file(0, "tables"), self.runs * self.table())];
        for (index, (header, row)) in outputs.iter().enumerate() {
            sizes.push((self.file(index, "runs"), self.place(self.runs, *row)));
            let len = header.len() as u64 + self.rows * row;
            sizes.push((self.file(index, "new"), len.next_multiple_of(APART)));
        }
        sizes
    }

    fn task(&self, shuffle: &ShuffleFiles) -> Result<Task> {
        let inputs: Vec<_> = shuffle.arrays.iter().map(Array::input).collect();
        let shares: Vec<Share> = shares(&inputs);
        let steps = Shard::ALONE.steps(self.rows, 0, self.batch, LastStep::Split)?;
        let work = Work { rows: self.rows, steps: steps.count(), batch: self.batch };
        let layout = Layout::new(work, &shares).ok_or_else(|| too_large(&shares))?;
        let layout = Layout { run_rows: self.run_rows, bucket_steps: 1, buckets: self.buckets, ..layout };
        let order = Permutation::new(self.rows, shuffle.seed, shuffle.epoch);
        let job = Job { inputs, pass: Pass::Exact(order.clone()), steps, ahead: 0 };
        Ok(Task::new(Arc::new(job), order, 0, layout))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A shuffle of files in units, for the one who has the folder; until it is dropped nobody else has.
#[derive(Debug)]
pub struct Shared {
    shuffle: ShuffleFiles,
    folder: Folder,
    /// Stands for what is shuffled.
    print: String,
    plan: Plan,
    /// Which runs and buckets are done.
    runs: Vec<bool>,
    buckets: Vec<bool>,
    whole: Option<Vec<(u64, u64)>>,
    saved: Instant,
    before: u64,
}

impl Shared {
    /// Takes the folder, and up what is there of the same work.
    ///
    /// # Errors
    /// As [`ShuffleFiles::run`].
    pub fn begin(shuffle: ShuffleFiles) -> Result<Self> {
        shuffle.check()?;
        let first =
            shuffle.outputs.first().ok_or_else(|| Error::argument("there is nothing to shuffle", ""))?;
        let (folder, print) = (Folder::beside(first)?, shuffle.print()?);
        match Self::plan(&shuffle, &folder, &print) {
            Ok((plan, state)) => Ok(Self::over(shuffle, folder, print, plan, state)),
            Err(error) => {
                if !folder.has_state() {
                    folder.remove()?; // refused before anything was done
                }
                Err(error)
            }
        }
    }

    fn plan(shuffle: &ShuffleFiles, folder: &Folder, print: &str) -> Result<(Plan, Option<State>)> {
        let plan = Plan::new(shuffle, folder, print)?;
        let state = folder.load::<State>().filter(|state| state.plan == plan);
        let names: Vec<PathBuf> = (0..shuffle.outputs.len()).map(|index| plan.file(index, "new")).collect();
        if state.as_ref().is_some_and(|state| shuffle.is_whole(&names, state.whole.as_ref())) {
            return Ok((plan, state));
        }
        shuffle.outputs.iter().try_for_each(|output| shuffle.may_write(output))?;
        let rows = shuffle.arrays.iter().map(|array| array.row_bytes() as u64);
        let sizes = plan.sizes(&headers(shuffle)?.into_iter().zip(rows).collect::<Vec<_>>());
        let is_there = |(path, size): &(PathBuf, u64)| {
            std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() >= *size)
        };
        if let Some(state) = state.filter(|state| state.whole.is_none() && sizes.iter().all(is_there)) {
            return Ok((plan, Some(state)));
        }
        folder.empty()?;
        has_room(folder.path(), sizes.iter().map(|(_, size)| size).sum())?;
        for (path, size) in &sizes {
            let whose = if path.extension().is_some_and(|what| what == "new") {
                Whose::Everybodys
            } else {
                Whose::Mine
            };
            let file = Scratch::named(path, whose)?;
            if *size > 0 {
                file.reserve(*size)?;
            }
        }
        folder.save(&State { plan: plan.clone(), runs: Vec::new(), buckets: Vec::new(), whole: None })?;
        Ok((plan, None))
    }

    fn over(shuffle: ShuffleFiles, folder: Folder, print: String, plan: Plan, state: Option<State>) -> Self {
        let flags = |count: u64, done: Option<&Vec<Range<u64>>>| {
            let mut flags = vec![false; usize::try_from(count).unwrap_or(0)];
            // Somebody may have written into it.
            for number in done.into_iter().flatten().flat_map(|range| range.start..range.end.min(count)) {
                if let Some(flag) = usize::try_from(number).ok().and_then(|at| flags.get_mut(at)) {
                    *flag = true;
                }
            }
            flags
        };
        let runs = flags(plan.runs, state.as_ref().map(|state| &state.runs));
        let buckets = flags(plan.buckets, state.as_ref().map(|state| &state.buckets));
        let whole = state.and_then(|state| state.whole);
        let mut this =
            Self { shuffle, folder, print, plan, runs, buckets, whole, saved: Instant::now(), before: 0 };
        this.before = this.written();
        this
    }

    /// What whoever has a unit must know, as text.
    ///
    /// # Errors
    /// None that can happen.
    pub fn described(&self) -> Result<String> {
        serde_json::to_string(&self.plan).map_err(|error| Error::Bug { what: error.to_string() })
    }

    /// The units that are not done, of this pass; the next one begins when there are none.
    pub fn to_do(&self) -> Vec<Unit> {
        fn missing(done: &[bool]) -> impl Iterator<Item = u64> {
            (0..).zip(done).filter(|(_, done)| !**done).map(|(number, _)| number)
        }
        if self.whole.is_some() {
            return Vec::new();
        }
        let runs: Vec<Unit> = missing(&self.runs).map(Unit::Run).collect();
        if runs.is_empty() { missing(&self.buckets).map(Unit::Bucket).collect() } else { runs }
    }

    /// Bytes that were written, of twice the data.
    pub fn written(&self) -> u64 {
        if self.whole.is_some() {
            return self.total();
        }
        let row: u64 = self.shuffle.arrays.iter().map(|array| array.row_bytes() as u64).sum();
        let rows = |done: &[bool], each: u64| {
            let of = |(number, done): (u64, &bool)| {
                if *done { each.min(self.plan.rows.saturating_sub(number * each)) } else { 0 }
            };
            (0..).zip(done).map(of).sum::<u64>()
        };
        (rows(&self.runs, self.plan.run_rows) + rows(&self.buckets, self.plan.batch)) * row
    }

    /// Twice the data.
    pub fn total(&self) -> u64 {
        self.shuffle.arrays.iter().map(|array| 2 * array.nbytes()).sum()
    }

    /// What an earlier call had written.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Notes that a unit is done.
    ///
    /// # Errors
    /// [`Error::Io`] where that cannot be written down; [`Error::Format`] where the last run is done, and a file that was
    /// read has changed meanwhile.
    pub fn done(&mut self, unit: Unit) -> Result<()> {
        let (flags, number) = match unit {
            Unit::Run(number) => (&mut self.runs, number),
            Unit::Bucket(number) => (&mut self.buckets, number),
        };
        usize::try_from(number)
            .ok()
            .and_then(|at| flags.get_mut(at))
            .into_iter()
            .for_each(|flag| *flag = true);
        if matches!(unit, Unit::Run(_)) && self.runs.iter().all(|done| *done) {
            self.shuffle.unchanged(&self.folder, &self.print)?;
            return self.save();
        }
        if self.saved.elapsed() >= CHECKPOINT { self.save() } else { Ok(()) }
    }

    /// Writes down which units are done. Each was synced by whoever did it.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn save(&mut self) -> Result<()> {
        self.saved = Instant::now();
        let state = State {
            plan: self.plan.clone(),
            runs: ranges(&self.runs),
            buckets: ranges(&self.buckets),
            whole: self.whole.clone(),
        };
        self.folder.save(&state)
    }

    /// Gives the new files their names, once all units are done, and takes the folder away.
    ///
    /// # Errors
    /// [`Error::Io`] where a file has the name by now, and as the system has it.
    pub fn finish(mut self) -> Result<Shuffled> {
        if !self.to_do().is_empty() {
            return Err(Error::Bug { what: "a shuffle was to be finished before all of it was done".into() });
        }
        let (shuffle, plan) = (&self.shuffle, &self.plan);
        let names: Vec<PathBuf> = (0..shuffle.outputs.len()).map(|index| plan.file(index, "new")).collect();
        if self.whole.is_none() {
            let mut ids = Vec::new();
            for ((path, header), array) in names.iter().zip(headers(shuffle)?).zip(&shuffle.arrays) {
                let file = Scratch::named(path, Whose::Everybodys)?;
                if plan.buckets == 0 {
                    file.write(&header, 0, &|| Ok(()))?;
                }
                file.cut(header.len() as u64 + array.nbytes())?;
                file.sync()?;
                ids.push(file.id()?);
            }
            self.whole = Some(ids);
            self.save()?;
        }
        self.shuffle.name(&names)?;
        let Self { shuffle, folder, plan, before, .. } = self;
        folder.remove()?;
        let bytes = shuffle.arrays.iter().map(Array::nbytes).sum();
        Ok(Shuffled { files: shuffle.outputs, rows: plan.rows, bytes, passes: 2, before })
    }
}

/// Numbers that are set, as ranges.
fn ranges(flags: &[bool]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (number, _) in (0..).zip(flags).filter(|(_, flag)| **flag) {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

impl Unit {
    /// Does a unit of a shuffle, by what [`Shared::described`] has said, and waits until it is on the disk.
    ///
    /// # Errors
    /// [`Error::Format`] where a file is another one on this machine; else as [`ShuffleFiles::run`].
    pub fn work(self, shuffle: &ShuffleFiles, described: &str, interrupt: Interrupt<'_>) -> Result<()> {
        let plan: Plan = serde_json::from_str(described)
            .map_err(|error| Error::argument(format!("this describes no shuffle: {error}"), ""))?;
        for (array, print) in shuffle.arrays.iter().zip(&plan.inputs) {
            if array.fingerprint()? != *print {
                return Err(Error::Format {
                    path: array.path().to_owned(),
                    offset: 0,
                    expected: "the file that the shuffle began with".into(),
                    found: "another one of this name".into(),
                    hint: "every machine must see the same files, and nobody may write to them".into(),
                });
            }
        }
        let task = plan.task(shuffle)?;
        match self {
            Self::Run(number) => sort(&plan, &task, number, interrupt),
            Self::Bucket(number) => write(shuffle, &plan, &task, number, interrupt),
        }
    }
}

/// A file of the folder, which the one who has it has made.
fn there(path: &Path) -> Result<Scratch> {
    let meta = std::fs::symlink_metadata(path).map_err(|error| {
        Error::io(path, "find the file", error)
            .with_hint("every machine must see the folder that the result goes into")
    })?;
    if meta.is_file() {
        return Scratch::named(path, Whose::Mine);
    }
    Err(Error::Bug { what: format!("{} is no file", path.display()) })
}

fn sort(plan: &Plan, task: &Task, number: u64, interrupt: Interrupt<'_>) -> Result<()> {
    let files = (0..task.job.inputs.len()).map(|index| there(&plan.file(index, "runs")));
    let files = files.collect::<Result<Vec<_>>>()?;
    let places = task.job.inputs.iter().map(|input| plan.place(number, input.rows.row_bytes() as u64));
    let places: Vec<u64> = places.collect();
    let rows = plan.run(number);
    let all = u32::try_from(rows.end - rows.start).unwrap_or(u32::MAX);
    let mut begins = distribute_one(task, files, rows, &places, interrupt)?;
    begins.push(all);
    let mut bytes: Vec<u8> = begins.into_iter().flat_map(u32::to_le_bytes).collect();
    bytes.resize(usize::try_from(plan.table()).unwrap_or(0), 0);
    let tables = there(&plan.file(0, "tables"))?;
    tables.write(&bytes, number * plan.table(), interrupt)?;
    tables.sync()
}

fn write(
    shuffle: &ShuffleFiles,
    plan: &Plan,
    task: &Task,
    number: u64,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let mut files = Vec::new();
    let mut starts = Vec::new();
    for (index, input) in task.job.inputs.iter().enumerate() {
        files.push(there(&plan.file(index, "runs"))?);
        starts.push((0..plan.runs).map(|run| plan.place(run, input.rows.row_bytes() as u64)).collect());
    }
    let first = (0..plan.runs).map(|run| plan.run(run).start).collect();
    let mut sorted = Sorted::new(task, Runs::placed(files, first, starts, plan.rows))?;
    let tables = there(&plan.file(0, "tables"))?.source()?;
    let rows = (0..plan.runs).map(|run| {
        let mut two = [0; 8];
        tables.read_exact(run * plan.table() + 4 * number, &mut two)?;
        // Two that follow each other: the later one is in the upper half.
        let two = u64::from_le_bytes(two);
        Ok(two & u64::from(u32::MAX)..two >> 32)
    });
    sorted.only(task, number, &rows.collect::<Result<Vec<_>>>()?)?;
    let (begin, count) = (number * plan.batch, task.job.step_rows(number));
    let mut outputs = Vec::new();
    let mut sheets = Vec::new();
    for (index, (header, array)) in headers(shuffle)?.into_iter().zip(&shuffle.arrays).enumerate() {
        let file = there(&plan.file(index, "new"))?;
        let output = Output { file, header, row: array.row_bytes(), align: APART };
        sheets.push(output.sheet(array.budget(), count as u64)?);
        outputs.push(output);
    }
    let places = sheets.iter_mut().zip(&outputs);
    let mut into: Vec<Vec<&mut [u8]>> =
        places.map(|(sheet, output)| vec![sheet.turn(output, begin, count)]).collect();
    sorted.take(task, number, &mut into, interrupt)?;
    for ((sheet, output), array) in sheets.iter_mut().zip(&outputs).zip(&shuffle.arrays) {
        sheet.begin_with(&edge(output, array, &task.order, sheet.first, begin, interrupt)?);
        if number + 1 == plan.buckets {
            sheet.write(output, interrupt)?;
        } else {
            sheet.write_full(output, interrupt)?;
        }
        output.file.sync()?;
    }
    Ok(())
}

/// What stands in a new file from byte `from` up to the row at position `begin`: rows of the bucket before, straight from
/// where they were.
fn edge(
    output: &Output,
    array: &Array,
    order: &Permutation,
    from: u64,
    begin: u64,
    interrupt: Interrupt<'_>,
) -> Result<Vec<u8>> {
    let (header, row) = (output.header.len() as u64, output.row as u64);
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(output.header.len());
    let mut bytes = output.header[start..].to_vec();
    if row == 0 {
        return Ok(bytes);
    }
    let skipped = from.saturating_sub(header);
    let first = skipped / row;
    let mut rows = vec![0; usize::try_from(begin - first).unwrap_or(0)];
    order.fill(first, &mut rows);
    let numbers = rows.into_iter().map(|row| usize::try_from(row).unwrap_or(usize::MAX));
    let mut axes = vec![Axis::list(numbers.collect())];
    axes.extend(array.shape().iter().skip(1).map(|&size| Axis::all(size)));
    let mut there = vec![0; usize::try_from((begin - first) * row).unwrap_or(0)];
    if !there.is_empty() {
        array.select_into(axes, &mut there, interrupt)?;
    }
    bytes.extend_from_slice(&there[usize::try_from(skipped % row).unwrap_or(0).min(there.len())..]);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Existing;
    use crate::{Budget, CacheWish, Options};

    /// Files of as many rows, each `.npy` or bare bytes, inside one budget.
    fn files(folder: &Path, rows: usize, sizes: &[usize], budget: u64) -> ShuffleFiles {
        let budget = Budget::new(budget).unwrap();
        let open = |(index, &size): (usize, &usize)| {
            let path = folder.join(format!("in{index}"));
            let bytes: Vec<u8> =
                (0..rows * size).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 11).to_le_bytes()[0]).collect();
            std::fs::write(&path, bytes).unwrap();
            let options = Options::new().cache(CacheWish::Drop).budget(budget.clone());
            let options = options.dtype("u1".parse().unwrap());
            options.shape(&[-1, i64::try_from(size).unwrap()]).unwrap().open(&path).unwrap()
        };
        let arrays: Vec<Array> = sizes.iter().enumerate().map(open).collect();
        let outputs = (0..sizes.len()).map(|index| folder.join(["one.npy", "two.bin"][index])).collect();
        ShuffleFiles { arrays, outputs, seed: 5, epoch: 1, existing: Existing::Refuse }
    }

    fn taken(shuffle: &ShuffleFiles) -> Vec<Vec<u8>> {
        shuffle
            .outputs
            .iter()
            .map(|path| {
                let bytes = std::fs::read(path).unwrap();
                std::fs::remove_file(path).unwrap();
                bytes
            })
            .collect()
    }

    #[test]
    fn units_in_any_order_make_what_one_machine_makes() {
        let worlds: [(usize, &[usize], u64); 5] = [
            (200_000, &[24], 4 << 20),
            (30_000, &[648, 7], 8 << 20),
            (9, &[100_003], 2 << 20),
            (5, &[3], 1 << 20),
            (0, &[12], 1 << 20),
        ];
        for (rows, sizes, budget) in worlds {
            // Not on tmpfs, where nothing is written past the page cache.
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let shuffle = files(folder.path(), rows, sizes, budget);
            shuffle.run(&mut |_| {}, &|| Ok(())).unwrap();
            let want = taken(&shuffle);
            let mut shared = Shared::begin(shuffle.clone()).unwrap();
            assert!(Shared::begin(shuffle.clone()).unwrap_err().to_string().contains("another process"));
            let mut number = 7_usize;
            while !shared.to_do().is_empty() {
                let to_do = shared.to_do();
                number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                let unit = to_do[number % to_do.len()];
                let described = shared.described().unwrap();
                unit.work(&shuffle, &described, &|| Ok(())).unwrap();
                if number.is_multiple_of(3) {
                    unit.work(&shuffle, &described, &|| Ok(())).unwrap();
                }
                shared.done(unit).unwrap();
                if number.is_multiple_of(5) {
                    // The one who has the folder dies: what was written down is taken up.
                    shared.save().unwrap();
                    let written = shared.written();
                    drop(shared);
                    shared = Shared::begin(shuffle.clone()).unwrap();
                    assert_eq!((shared.written(), shared.before()), (written, written));
                }
            }
            assert_eq!(shared.written(), shared.total());
            if rows > 100 {
                assert!(shared.plan.runs > 2 && shared.plan.buckets > 2, "{:?}", shared.plan);
            }
            shared.finish().unwrap();
            assert!(taken(&shuffle) == want, "{rows} rows of {sizes:?}");
            assert_eq!(
                std::fs::read_dir(folder.path()).unwrap().count(),
                sizes.len(),
                "only the inputs are left"
            );
        }
    }

    #[test]
    fn rows_without_bytes_take_nothing_from_those_beside_them() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let mut shuffle = files(folder.path(), 30_000, &[24, 1], 2 << 20);
        let alone = ShuffleFiles {
            arrays: vec![shuffle.arrays[0].clone()],
            outputs: vec![shuffle.outputs[0].clone()],
            ..shuffle.clone()
        };
        alone.run(&mut |_| {}, &|| Ok(())).unwrap();
        let want = taken(&alone).remove(0);
        assert!(want.iter().any(|&byte| byte != 0));
        let path = folder.path().join("none.npy");
        let shape = [Some(30_000), Some(0)];
        crate::write::WriteOptions::new()
            .create(&path, "u1".parse().unwrap(), &shape)
            .unwrap()
            .close()
            .unwrap();
        let none = std::fs::read(&path).unwrap();
        let budget = shuffle.arrays[0].budget().clone();
        let open = || Options::new().cache(CacheWish::Drop).budget(budget.clone()).open(&path).unwrap();
        shuffle.outputs[1].set_extension("npy");
        for first in [0, 1] {
            shuffle.arrays[1] = open();
            shuffle.arrays.rotate_left(first);
            shuffle.outputs.rotate_left(first);
            shuffle.run(&mut |_| {}, &|| Ok(())).unwrap();
            let mut made = taken(&shuffle);
            made.rotate_right(first);
            assert!(made[0] == want && made[1] == none, "on one machine, {first}");
            let mut shared = Shared::begin(shuffle.clone()).unwrap();
            while let Some(&unit) = shared.to_do().first() {
                unit.work(&shuffle, &shared.described().unwrap(), &|| Ok(())).unwrap();
                shared.done(unit).unwrap();
            }
            shared.finish().unwrap();
            let mut made = taken(&shuffle);
            made.rotate_right(first);
            assert!(made[0] == want && made[1] == none, "in units, {first}");
            shuffle.arrays.rotate_right(first);
            shuffle.outputs.rotate_right(first);
        }
    }

    #[test]
    fn what_one_machine_began_is_begun_again_and_strangers_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let shuffle = files(folder.path(), 1000, &[64], 1 << 20);
        let shared = Shared::begin(shuffle.clone()).unwrap();
        let described = shared.described().unwrap();
        let other = files(folder.path(), 1001, &[64], 1 << 20);
        let told = Unit::Run(0).work(&other, &described, &|| Ok(())).unwrap_err().to_string();
        assert!(told.contains("the file that the shuffle began with"), "{told}");
        drop(shared);
        let shuffle = files(folder.path(), 1000, &[64], 1 << 20);
        shuffle.run(&mut |_| {}, &|| Ok(())).unwrap(); // takes away what units have left
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let told = Unit::Run(0).work(&shuffle, &described, &|| Ok(())).unwrap_err().to_string();
        assert!(told.contains("every machine must see the folder"), "{told}");
        assert!(Shared::begin(shuffle).unwrap_err().to_string().contains("File exists"));
    }
}
