//! Rows of one array or several, a chunk at a time, in file order or shuffled.
//!
//! A [`Chunks`] is an iterator whose whole state is one number: how many rows all ranks have taken. For a
//! shuffled pass over small rows it looks ahead over as many coming chunks as the budget allows, so that
//! their rows can be read in the order in which they lie in the file; chunks are handed out one by one,
//! in exact order. The look-ahead starts with one chunk and grows: the first one does not wait for all of
//! it. From the second group on a thread of its own reads while the caller works.

use crate::array::Array;
use crate::batch::Batch;
use crate::choose::{self, Choice, Trial, Visit};
use crate::error::{Error, Result};
use crate::format::Order as AxisOrder;
use crate::order::{LastStep, Order, Permutation, Sequential, Shard, Steps};
use crate::plan::{self, Interrupt};
use crate::pool::Block;
use crate::prefetch::{Pace, Prefetch, Produce};
use crate::store::{Access, Read, Store, WINDOWS, window_for};
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows of this size and more gain nothing from being read in file order: each is a long read by itself.
const LARGE_ROW: usize = 64 << 10;
/// Bytes to read ahead in file order: from a disk enough to keep it busy, from memory what stays in cache.
const AHEAD_COLD: u64 = 32 << 20;
/// See [`AHEAD_COLD`].
const AHEAD_WARM: u64 = 8 << 20;
/// How long a choice of `auto` holds: what is in memory changes while we read.
const CHOOSE_AGAIN: Duration = Duration::from_millis(250);
/// What planning one row takes: its number, and where it goes.
const PLAN_BYTES: u64 = (size_of::<Read<'_>>() + size_of::<u64>()) as u64;

/// Which shuffled pass, and which part of it.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    /// Another seed, another order.
    pub seed: u64,
    /// Another pass, another order.
    pub epoch: u64,
    /// How many rows of the pass have been taken already, by all ranks together.
    pub start: u64,
    /// Which rank this is, and of how many.
    pub shard: Shard,
    /// What happens to the rows that do not fill a step.
    pub last: LastStep,
}

impl Default for Shuffle {
    fn default() -> Self {
        Self { seed: 0, epoch: 0, start: 0, shard: Shard::default(), last: LastStep::Split }
    }
}

/// Where a pass stands, as the caller saw it: all that is needed to go on, under any number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The seed of the order.
    pub seed: u64,
    /// The pass; after the last chunk, the next one.
    pub epoch: u64,
    /// Rows taken by all ranks together in this pass.
    pub position: u64,
    /// Which data it was: see [`Array::fingerprint`].
    pub fingerprint: String,
}

/// Several arrays with the same rows: their chunks come together.
#[derive(Clone, Debug)]
pub struct Zip {
    arrays: Vec<Array>,
}

impl Zip {
    /// Arrays of equally many rows.
    ///
    /// # Errors
    /// [`Error::Argument`] where their lengths differ, or there is none.
    pub fn new(arrays: Vec<Array>) -> Result<Self> {
        let Some(first) = arrays.first() else {
            return Err(Error::argument("zip needs at least one array", ""));
        };
        if let Some(array) = arrays.iter().find(|a| a.shape().is_empty()) {
            return Err(Error::argument(format!("{}: a single element has no rows", array.path().display()), ""));
        }
        if let Some(other) = arrays.iter().find(|a| a.rows() != first.rows()) {
            return Err(Error::argument(
                format!(
                    "the arrays have different lengths: {} has {} rows, {} has {}",
                    first.path().display(),
                    first.rows(),
                    other.path().display(),
                    other.rows()
                ),
                "zip takes arrays whose rows belong together",
            ));
        }
        Ok(Self { arrays })
    }

    /// One array by itself.
    pub(crate) fn one(array: &Array) -> Self {
        Self { arrays: vec![array.clone()] }
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.arrays.first().map_or(0, Array::rows)
    }

    /// Rows one after another, `rows` at a time, in file order.
    pub fn chunks(&self, rows: usize) -> Result<Chunks> {
        let steps = Shard::default().steps(self.rows(), 0, at_least_one(rows)?, LastStep::Split)?;
        Chunks::new(&self.arrays, Pass::Sequential, steps, rows)
    }

    /// Every row exactly once, in the order of a keyed permutation, `rows` at a time.
    pub fn shuffled(&self, rows: usize, shuffle: Shuffle) -> Result<Chunks> {
        let steps = shuffle.shard.steps(self.rows(), shuffle.start, at_least_one(rows)?, shuffle.last)?;
        for array in &self.arrays {
            if array.layout().order == AxisOrder::Fortran {
                return Err(Error::unsupported(
                    format!("{}: a shuffled pass over a Fortran-ordered file would read every page once a row", array.path().display()),
                    "chunks() reads it in file order; or write it once in C order: np.save(new, np.ascontiguousarray(old))",
                ));
            }
        }
        let pass = Pass::Shuffled { order: Permutation::new(self.rows(), shuffle.seed, shuffle.epoch), shuffle };
        Chunks::new(&self.arrays, pass, steps, rows)
    }
}

fn at_least_one(rows: usize) -> Result<u64> {
    match rows {
        0 => Err(Error::argument("a chunk of 0 rows has no end", "give the number of rows in a chunk")),
        rows => Ok(rows as u64),
    }
}

/// Which rows, when.
#[derive(Debug)]
enum Pass {
    Sequential,
    Shuffled { order: Permutation, shuffle: Shuffle },
}

/// Which rows of which arrays: all that a reader needs to know, and that never changes.
#[derive(Debug)]
struct Spec {
    arrays: Vec<Array>,
    pass: Pass,
    steps: Steps,
}

impl Spec {
    fn step_rows(&self, step: u64) -> usize {
        self.steps.range(step).map_or(0, |r| usize::try_from(r.end - r.start).unwrap_or(0))
    }

    fn visit(&self) -> Visit {
        match self.pass {
            Pass::Sequential => Visit::Sequential,
            Pass::Shuffled { .. } => Visit::Shuffled,
        }
    }

    /// How each array is read now.
    fn choose(&self) -> Result<Vec<Choice>> {
        self.arrays.iter().map(|array| choose::access(array, self.visit())).collect()
    }
}

/// Chunks that were read together, in order.
#[derive(Debug)]
struct Group {
    chunks: VecDeque<Vec<Batch>>,
    choice: Choice,
    /// How long reading it took.
    took: Duration,
}

/// Reads the coming chunks, group by group.
#[derive(Debug)]
struct Reader {
    spec: Arc<Spec>,
    choices: Vec<Choice>,
    chosen: Instant,
    /// The first step that is not read yet.
    next: u64,
    /// How many chunks the last group held.
    ahead: u64,
    /// Whether the caller works on one group while the next is read: then they share the budget.
    pace: Arc<AtomicBool>,
    trial: Trial,
}

impl Produce for Reader {
    type Item = Group;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if self.next >= self.spec.steps.count() {
            return None;
        }
        let answer = match self.read_group(interrupt) {
            // One of many chunks failed: read them one by one, so that the error comes with its own chunk.
            Err(error) if self.ahead > 1 && !matches!(error, Error::Interrupted | Error::Closed { .. }) => {
                self.ahead = 0;
                self.read_group(interrupt)
            }
            answer => answer,
        };
        if let Ok(group) = &answer {
            self.next += group.chunks.len() as u64;
        } else {
            self.ahead = 0;
        }
        Some(answer)
    }
}

impl Reader {
    fn new(spec: Arc<Spec>, choices: Vec<Choice>, next: u64, pace: Arc<AtomicBool>) -> Self {
        Self { spec, choices, chosen: Instant::now(), next, ahead: 0, pace, trial: Trial::default() }
    }

    /// Reads the next chunk, and as many after it as the look-ahead allows.
    fn read_group(&mut self, interrupt: Interrupt<'_>) -> Result<Group> {
        let spec = self.spec.clone();
        if self.chosen.elapsed() > CHOOSE_AGAIN && spec.arrays.iter().any(|a| a.access() == Access::Auto) {
            self.choices = spec.choose()?; // the file may be in memory by now
            self.chosen = Instant::now();
        }
        let automatic = spec.arrays[0].access() == Access::Auto;
        if automatic && spec.arrays.len() == 1 {
            self.trial.decide(&mut self.choices[0]);
        }
        let began = Instant::now();
        let wanted = self.look_ahead()?.min(spec.steps.count() - self.next).max(1);
        self.ahead = wanted;
        let mut memory: Vec<Vec<Block>> = Vec::new();
        for step in self.next..self.next + wanted {
            match self.blocks(step, wanted)? {
                Some(blocks) => memory.push(blocks),
                None => break,
            }
        }
        if memory.is_empty() {
            // Someone else holds the budget. One chunk is the caller's as soon as it is read: it needs none.
            memory.extend(self.blocks(self.next, 1)?);
        }
        self.ahead = memory.len() as u64;
        for (index, (array, choice)) in spec.arrays.iter().zip(&self.choices).enumerate() {
            let out = memory.iter_mut().map(|blocks| &mut *blocks[index]);
            let store = array.store(choice.access, choice.cache)?;
            self.read_array(array, &*store, out, interrupt)?;
        }
        let mut chunks = VecDeque::with_capacity(memory.len());
        for (step, blocks) in (self.next..).zip(memory) {
            let rows = spec.step_rows(step);
            let batches = blocks.into_iter().zip(&spec.arrays).map(|(block, array)| {
                let mut shape = array.shape().to_vec();
                shape[0] = rows;
                Batch::new(block, array.dtype(), shape, array.layout().order)
            });
            chunks.push_back(batches.collect());
        }
        let took = began.elapsed();
        self.trial.note(&self.choices[0], chunks.len(), took);
        Ok(Group { chunks, choice: self.choices[0].clone(), took })
    }

    /// How many chunks to read at once. While the caller works on one group and the next is being read, they
    /// share the budget; otherwise a group may have all of it.
    fn look_ahead(&self) -> Result<u64> {
        let rows = self.spec.step_rows(self.next) as u64;
        let mut most = u64::MAX;
        let mut sorted = false;
        for (array, choice) in self.spec.arrays.iter().zip(&self.choices) {
            let budget = array.budget();
            let windows = match choice.access {
                Access::Remap | Access::Advise => window_for(budget.limit())? * WINDOWS,
                _ => 0,
            };
            // An eighth stays free: for scratch, for a second iterator, for the chunk in the caller's hand.
            let room = (budget.limit() / 8 * 7).saturating_sub(windows);
            let groups = 1 + u64::from(self.pace.load(Ordering::Relaxed));
            let room = (room / groups).min(budget.available().saturating_sub(windows));
            // Arrays that share a budget share its room.
            let sharing = self.spec.arrays.iter().filter(|a| a.budget().is(budget)).count() as u64;
            let chunk = Block::cost(chunk_bytes(array, rows)).saturating_add(rows * PLAN_BYTES).max(1);
            most = most.min(room / sharing / chunk);
            if self.spec.visit() == Visit::Sequential || array.row_bytes() >= LARGE_ROW {
                // Nothing is gained by sorting: enough to keep the store's threads busy.
                let store = array.store(choice.access, choice.cache)?;
                let busy = if store.cost().waits() { AHEAD_COLD } else { AHEAD_WARM };
                most = most.min(busy / chunk);
            } else {
                sorted = true;
            }
        }
        // From one chunk, which comes at once, to all there is room for, in three steps.
        let growth = if sorted { 8 } else { 4 };
        Ok(most.min(self.ahead * growth).max(1))
    }

    /// Memory for one step: counted while it waits, the caller's at once where nothing else is read ahead.
    fn blocks(&self, step: u64, wanted: u64) -> Result<Option<Vec<Block>>> {
        let rows = self.spec.step_rows(step) as u64;
        let mut blocks = Vec::with_capacity(self.spec.arrays.len());
        for array in &self.spec.arrays {
            let (budget, len) = (array.budget(), chunk_bytes(array, rows));
            if wanted == 1 {
                blocks.push(Block::for_caller(budget, len)?);
            } else {
                match Block::counted(budget, len)? {
                    Some(block) => blocks.push(block),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(blocks))
    }

    /// Reads one array's part of the coming steps into `out`, one buffer a step.
    fn read_array<'a>(
        &self,
        array: &Array,
        store: &dyn Store,
        out: impl ExactSizeIterator<Item = &'a mut [u8]>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let row = array.row_bytes();
        let ranges = (self.next..).map_while(|step| self.spec.steps.range(step));
        if row == 0 {
            return Ok(());
        }
        let stop = || if array.is_closed() { Err(Error::Closed { path: array.path().to_owned() }) } else { interrupt() };
        let mut reads = Vec::new();
        match &self.spec.pass {
            Pass::Sequential if array.layout().order == AxisOrder::Fortran => {
                return ranges.zip(out).try_for_each(|(range, out)| array.rows_into(range, store, out, &stop));
            }
            Pass::Sequential => {
                let offset = |range: Range<u64>| array.layout().offset + range.start * row as u64;
                reads.extend(ranges.map(offset).zip(out).map(|(offset, into)| Read { offset, into }));
            }
            Pass::Shuffled { order, .. } => {
                let total: u64 = ranges.clone().take(out.len()).map(|r| r.end - r.start).sum();
                // Where the budget is in others' hands the plan of a single chunk is made all the same.
                let _plan = array.budget().lease(total * PLAN_BYTES);
                reads.reserve_exact(usize::try_from(total).unwrap_or(0));
                let mut rows = Vec::new();
                for (range, out) in ranges.zip(out) {
                    rows.resize(usize::try_from(range.end - range.start).unwrap_or(0), 0);
                    order.fill(range.start, &mut rows);
                    let offset = |&n: &u64| array.layout().offset + n * row as u64;
                    let places = out.chunks_exact_mut(row);
                    reads.extend(rows.iter().map(offset).zip(places).map(|(offset, into)| Read { offset, into }));
                }
                return plan::fetch(store, array.budget(), &mut reads, &stop);
            }
        }
        plan::fetch(store, array.budget(), &mut reads, &stop)
    }
}

/// One chunk: a batch of each array, and which positions of the pass it is.
#[derive(Debug)]
pub struct Chunk {
    batches: Vec<Batch>,
    positions: Range<u64>,
}

impl Chunk {
    /// The batches, one for each array.
    pub fn into_batches(self) -> Vec<Batch> {
        self.batches
    }

    /// Which positions of the pass these are; [`Chunks::rows_at`] says which rows.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }
}

/// The batch of the first array, which is often the only one.
impl Deref for Chunk {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batches[0]
    }
}

/// Chunks of rows. Stopping half way is fine: dropping it lets everything go.
#[derive(Debug)]
pub struct Chunks {
    spec: Arc<Spec>,
    /// Steps that were delivered.
    delivered: u64,
    /// Chunks that are read and not yet delivered: the ones from `delivered` on.
    ready: VecDeque<Vec<Batch>>,
    reading: Reading,
    choice: Choice,
    pace: Arc<AtomicBool>,
    /// When the last group was handed over, and how long reading it had taken.
    handed: (Instant, Duration),
}

/// Who reads.
#[derive(Debug)]
enum Reading {
    /// The caller's own thread: the first chunk, so that a short look starts nothing.
    Here(Reader),
    /// A thread of its own, a group ahead.
    Ahead(Prefetch<Reader>),
    /// Nobody, for the moment that it takes to change hands.
    Nobody,
}

impl Chunks {
    fn new(arrays: &[Array], pass: Pass, steps: Steps, rows: usize) -> Result<Self> {
        arrays.iter().try_for_each(|array| fits(array, rows))?;
        Self::with(Spec { arrays: arrays.to_vec(), pass, steps })
    }

    fn with(spec: Spec) -> Result<Self> {
        let spec = Arc::new(spec);
        let choices = spec.choose()?;
        let choice = choices[0].clone();
        let pace = Arc::new(AtomicBool::new(true));
        let reading = Reading::Here(Reader::new(spec.clone(), choices, 0, pace.clone()));
        let handed = (Instant::now(), Duration::ZERO);
        Ok(Self { spec, delivered: 0, ready: VecDeque::new(), reading, choice, pace, handed })
    }

    /// The way of access that is taken now (of the first array, where there are several).
    pub fn access(&self) -> Access {
        self.choice.access
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        &self.choice.why
    }

    /// How many chunks are left.
    pub fn remaining(&self) -> u64 {
        self.spec.steps.count() - self.delivered
    }

    /// The rows at some positions of this pass.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<u64> {
        let mut rows = vec![0; usize::try_from(positions.end.saturating_sub(positions.start)).unwrap_or(0)];
        match &self.spec.pass {
            Pass::Sequential => Sequential::new(self.spec.arrays[0].rows()).fill(positions.start, &mut rows),
            Pass::Shuffled { order, .. } => order.fill(positions.start, &mut rows),
        }
        rows
    }

    /// Where the pass stands, as the caller saw it: chunks that are only read do not count.
    pub fn state(&self) -> Result<State> {
        let (seed, epoch) = match &self.spec.pass {
            Pass::Sequential => (0, 0),
            Pass::Shuffled { shuffle, .. } => (shuffle.seed, shuffle.epoch),
        };
        let fingerprints: Vec<String> = self.spec.arrays.iter().map(Array::fingerprint).collect::<Result<_>>()?;
        let steps = &self.spec.steps;
        let done = self.delivered == steps.count();
        let position = match self.delivered {
            _ if done => 0,
            0 => steps.start(),
            n => steps.position_after(n - 1),
        };
        Ok(State { seed, epoch: epoch.wrapping_add(u64::from(done)), position, fingerprint: fingerprints.join("-") })
    }

    /// Goes on from where a state was taken, with this iterator's rank and chunk size.
    ///
    /// # Errors
    /// [`Error::Argument`] where the state is of other data, or cannot be of this pass.
    pub fn load(&mut self, state: &State) -> Result<()> {
        let own = self.state()?.fingerprint;
        if own != state.fingerprint {
            return Err(Error::argument(
                format!("the state is of other data: its fingerprint is {}, this data's is {own}", state.fingerprint),
                "open the files that the state was taken from, in the same order",
            ));
        }
        let rows = self.spec.arrays[0].rows();
        let steps = self.spec.steps.restart(rows, state.position)?;
        let pass = match &self.spec.pass {
            Pass::Sequential => Pass::Sequential,
            Pass::Shuffled { shuffle, .. } => Pass::Shuffled {
                order: Permutation::new(rows, state.seed, state.epoch),
                shuffle: Shuffle { seed: state.seed, epoch: state.epoch, start: state.position, ..*shuffle },
            },
        };
        *self = Self::with(Spec { arrays: self.spec.arrays.clone(), pass, steps })?;
        Ok(())
    }

    /// The next chunk, or `None` after the last. `interrupt` is asked during long reads and waits.
    ///
    /// After an error the iterator stands where it was: the next call tries the same chunk again.
    pub fn next_chunk(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Chunk>> {
        let positions = self.spec.steps.range(self.delivered)?;
        if let Some(array) = self.spec.arrays.iter().find(|a| a.is_closed()) {
            self.ready.clear();
            return Some(Err(Error::Closed { path: array.path().to_owned() }));
        }
        if self.ready.is_empty() {
            match self.next_group(interrupt)? {
                Ok(group) => {
                    self.ready = group.chunks;
                    self.choice = group.choice;
                    self.handed = (Instant::now(), group.took);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let batches = self.ready.pop_front()?.into_iter().map(Batch::deliver).collect();
        self.delivered += 1;
        Some(Ok(Chunk { batches, positions }))
    }

    fn next_group(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if let Reading::Ahead(prefetch) = &self.reading
            && prefetch.is_parents()
        {
            // A forked child: the reading thread is not here. What was read is; go on behind it.
            let choices = match self.spec.choose() {
                Ok(choices) => choices,
                Err(error) => return Some(Err(error)),
            };
            self.reading = Reading::Here(Reader::new(self.spec.clone(), choices, self.delivered, self.pace.clone()));
        }
        if let Reading::Here(reader) = &mut self.reading {
            if self.delivered == 0 || reader.next == 0 {
                return reader.produce(interrupt);
            }
            if let Reading::Here(reader) = std::mem::replace(&mut self.reading, Reading::Nobody) {
                self.reading = Reading::Ahead(Prefetch::new(reader));
            }
        }
        // A caller who takes chunks much faster than they can be read gains nothing from reading ahead, and much
        // from larger groups: fewer sweeps over the file.
        let (handed, took) = self.handed;
        let overlap = self.spec.visit() == Visit::Sequential || handed.elapsed() * 4 > took;
        self.pace.store(overlap, Ordering::Relaxed);
        let pace = if overlap { Pace::Ahead } else { Pace::OnDemand };
        match &mut self.reading {
            Reading::Ahead(prefetch) => prefetch.next(pace, interrupt),
            Reading::Here(_) | Reading::Nobody => None,
        }
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk(&|| Ok(()))
    }
}

/// Bytes of `rows` rows; `usize::MAX` where that overflows, which then fits no budget.
fn chunk_bytes(array: &Array, rows: u64) -> usize {
    usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(array.row_bytes())).unwrap_or(usize::MAX)
}

/// Refuses what cannot fit before anything is read.
fn fits(array: &Array, rows: usize) -> Result<()> {
    let limit = array.budget().limit();
    let rows = (rows as u64).min(array.rows());
    let needs = Block::cost(chunk_bytes(array, rows));
    if needs > limit && chunk_bytes(array, rows) > 0 {
        // A block is larger than its chunk, by its size class: a division would promise too much.
        let (mut most, mut too_many) = (0, rows);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            let fits = Block::cost(chunk_bytes(array, middle)) <= limit;
            *(if fits { &mut most } else { &mut too_many }) = middle;
        }
        let hint = if most == 0 {
            format!("one row takes {}; open with a larger budget=", crate::budget::human(array.row_bytes() as u64))
        } else {
            format!("chunks of {most} rows fit, or open with a larger budget=")
        };
        return Err(Error::Budget { what: format!("a chunk of {rows} rows"), needs, limit, hint });
    }
    // In a Fortran-ordered file a chunk is one short run in every column.
    let run = usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(array.dtype().itemsize());
    if array.layout().order == AxisOrder::Fortran && run < SHORTEST_RUN && rows < array.rows() {
        let enough = SHORTEST_RUN / array.dtype().itemsize();
        return Err(Error::unsupported(
            format!(
                "{}: the file is in Fortran order, so that chunks of {rows} rows are runs of {run} bytes: \
                 a pass would read the file {} times over",
                array.path().display(),
                4096 / run.max(1)
            ),
            format!("take chunks of {enough} rows or more, or write it once in C order: np.save(new, np.ascontiguousarray(old))"),
        ));
    }
    Ok(())
}

/// An eighth of a page: below it a pass over a Fortran-ordered file reads it more than eight times.
const SHORTEST_RUN: usize = 512;
