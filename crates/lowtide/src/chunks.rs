//! Rows of one array or several, a chunk at a time, in file order or shuffled.
//!
//! A [`Chunks`] is an iterator whose whole state is one number: how many rows all ranks have taken. For a
//! shuffled pass over small rows it looks ahead over as many coming chunks as the budget allows, so that
//! their rows can be read in the order in which they lie in the file; chunks are handed out one by one,
//! in exact order. The look-ahead starts small and doubles: the first chunk does not wait for all of it.

use crate::array::Array;
use crate::batch::Batch;
use crate::choose;
use crate::error::{Error, Result};
use crate::format::Order as AxisOrder;
use crate::order::{LastStep, Order, Permutation, Sequential, Shard, Steps};
use crate::plan::{self, Interrupt};
use crate::pool::Block;
use crate::store::{Access, Read, WINDOWS, window_for};
use std::collections::VecDeque;
use std::ops::{Deref, Range};

/// Rows of this size and more gain nothing from being read in file order: each is a long read by itself.
const LARGE_ROW: usize = 64 << 10;
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

/// One array of an iteration, and the way of access that was chosen for it.
#[derive(Debug)]
struct Part {
    array: Array,
    access: Access,
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
    parts: Vec<Part>,
    pass: Pass,
    steps: Steps,
    /// Steps that were delivered.
    delivered: u64,
    /// Chunks that are read and not yet delivered: the ones from `delivered` on.
    ready: VecDeque<Vec<Batch>>,
    /// How many chunks the last look-ahead held.
    ahead: u64,
    why: String,
}

impl Chunks {
    fn new(arrays: &[Array], pass: Pass, steps: Steps, rows: usize) -> Result<Self> {
        let shuffled = matches!(pass, Pass::Shuffled { .. });
        let mut parts = Vec::with_capacity(arrays.len());
        let mut why = String::new();
        for array in arrays {
            fits(array, rows)?;
            let choice = choose::access(array, shuffled)?;
            if parts.is_empty() {
                why = choice.why;
            }
            parts.push(Part { array: array.clone(), access: choice.access });
        }
        Ok(Self { parts, pass, steps, delivered: 0, ready: VecDeque::new(), ahead: 0, why })
    }

    /// The way of access that was taken (of the first array, where there are several).
    pub fn access(&self) -> Access {
        self.parts[0].access
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// How many chunks are left.
    pub fn remaining(&self) -> u64 {
        self.steps.count() - self.delivered
    }

    /// The rows at some positions of this pass.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<u64> {
        let mut rows = vec![0; usize::try_from(positions.end.saturating_sub(positions.start)).unwrap_or(0)];
        match &self.pass {
            Pass::Sequential => Sequential::new(self.parts[0].array.rows()).fill(positions.start, &mut rows),
            Pass::Shuffled { order, .. } => order.fill(positions.start, &mut rows),
        }
        rows
    }

    /// Where the pass stands, as the caller saw it: chunks that are only read do not count.
    pub fn state(&self) -> Result<State> {
        let (seed, epoch) = match &self.pass {
            Pass::Sequential => (0, 0),
            Pass::Shuffled { shuffle, .. } => (shuffle.seed, shuffle.epoch),
        };
        let mut fingerprint = Vec::new();
        for part in &self.parts {
            fingerprint.push(part.array.fingerprint()?);
        }
        let done = self.delivered == self.steps.count();
        let position = match self.delivered {
            _ if done => 0,
            0 => self.steps.start(),
            n => self.steps.position_after(n - 1),
        };
        Ok(State { seed, epoch: epoch + u64::from(done), position, fingerprint: fingerprint.join("-") })
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
        let rows = self.parts[0].array.rows();
        self.steps = self.steps.restart(rows, state.position)?;
        if let Pass::Shuffled { order, shuffle } = &mut self.pass {
            *order = Permutation::new(rows, state.seed, state.epoch);
            *shuffle = Shuffle { seed: state.seed, epoch: state.epoch, start: state.position, ..*shuffle };
        }
        self.ready.clear();
        (self.delivered, self.ahead) = (0, 0);
        Ok(())
    }

    /// The next chunk, or `None` after the last. `interrupt` is asked during long reads.
    ///
    /// After an error the iterator stands where it was: the next call tries the same chunk again.
    pub fn next_chunk(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Chunk>> {
        let positions = self.steps.range(self.delivered)?;
        if let Some(part) = self.parts.iter().find(|p| p.array.is_closed()) {
            self.ready.clear();
            return Some(Err(Error::Closed { path: part.array.path().to_owned() }));
        }
        if self.ready.is_empty() {
            if let Err(error) = self.read_ahead(interrupt) {
                return Some(Err(error));
            }
        }
        let batches = self.ready.pop_front()?.into_iter().map(Batch::deliver).collect();
        self.delivered += 1;
        Some(Ok(Chunk { batches, positions }))
    }

    /// Reads the next chunk, and as many after it as the look-ahead allows.
    fn read_ahead(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        let wanted = self.look_ahead().min(self.remaining()).max(1);
        let mut memory: Vec<Vec<Block>> = Vec::new();
        for step in 0..wanted {
            match self.blocks(self.delivered + step, wanted)? {
                Some(blocks) => memory.push(blocks),
                None => break,
            }
        }
        if memory.is_empty() {
            // Someone else holds the budget. One chunk is the caller's as soon as it is read: it needs none.
            memory.extend(self.blocks(self.delivered, 1)?);
        }
        self.ahead = memory.len() as u64;
        for (index, part) in self.parts.iter().enumerate() {
            let out = memory.iter_mut().map(|blocks| &mut *blocks[index]);
            self.read_part(part, out, interrupt)?;
        }
        for (step, blocks) in (self.delivered..).zip(memory) {
            let rows = self.step_rows(step);
            let batches = blocks.into_iter().zip(&self.parts).map(|(block, part)| {
                let array = &part.array;
                let mut shape = array.shape().to_vec();
                shape[0] = rows;
                Batch::new(block, array.dtype(), shape, array.layout().order)
            });
            self.ready.push_back(batches.collect());
        }
        Ok(())
    }

    /// How many chunks to read at once.
    fn look_ahead(&self) -> u64 {
        let small = self.parts.iter().any(|p| p.array.row_bytes() < LARGE_ROW);
        if matches!(self.pass, Pass::Sequential) || !small {
            return 1;
        }
        let rows = self.step_rows(self.delivered) as u64;
        let fits = self.parts.iter().map(|part| {
            let budget = part.array.budget();
            let windows = if matches!(part.access, Access::Remap | Access::Advise) {
                window_for(budget.limit()).unwrap_or(0) * WINDOWS
            } else {
                0
            };
            // An eighth stays free: for a second iterator, for the scratch, and for the chunk in the caller's hand.
            let room = (budget.available() / 8 * 7).saturating_sub(windows);
            // Arrays that share a budget share its room.
            let sharing = self.parts.iter().filter(|p| p.array.budget().is(budget)).count() as u64;
            let chunk = Block::cost(chunk_bytes(&part.array, rows)).saturating_add(rows * PLAN_BYTES);
            room / sharing / chunk.max(1)
        });
        fits.min().unwrap_or(1).min(self.ahead * 2).max(1)
    }

    /// Memory for one step: counted while it waits, the caller's at once where nothing else is read ahead.
    fn blocks(&self, step: u64, wanted: u64) -> Result<Option<Vec<Block>>> {
        let rows = self.step_rows(step) as u64;
        let mut blocks = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (budget, len) = (part.array.budget(), chunk_bytes(&part.array, rows));
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

    fn step_rows(&self, step: u64) -> usize {
        self.steps.range(step).map_or(0, |r| usize::try_from(r.end - r.start).unwrap_or(0))
    }

    /// Reads one array's part of the coming steps into `out`, one buffer a step.
    fn read_part<'a>(
        &self,
        part: &Part,
        out: impl ExactSizeIterator<Item = &'a mut [u8]>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let Part { array, access } = part;
        let row = array.row_bytes();
        let ranges = (self.delivered..).map_while(|step| self.steps.range(step));
        match &self.pass {
            Pass::Sequential => {
                for (range, out) in ranges.zip(out) {
                    array.rows_into(range, *access, out, interrupt)?;
                }
                Ok(())
            }
            Pass::Shuffled { .. } if row == 0 => Ok(()),
            Pass::Shuffled { order, .. } => {
                let total: u64 = ranges.clone().take(out.len()).map(|r| r.end - r.start).sum();
                // Where the budget is in others' hands the plan of a single chunk is made all the same.
                let _plan = array.budget().lease(total * PLAN_BYTES);
                let mut reads = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
                let mut rows = Vec::new();
                for (range, out) in ranges.zip(out) {
                    rows.resize(usize::try_from(range.end - range.start).unwrap_or(0), 0);
                    order.fill(range.start, &mut rows);
                    let offset = |&n: &u64| array.layout().offset + n * row as u64;
                    let places = out.chunks_exact_mut(row);
                    reads.extend(rows.iter().map(offset).zip(places).map(|(offset, into)| Read { offset, into }));
                }
                plan::fetch(&*array.store(*access)?, array.budget(), &mut reads, interrupt)
            }
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
        let most = limit / Block::cost(array.row_bytes()).max(1);
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
