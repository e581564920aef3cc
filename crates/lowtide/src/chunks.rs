//! Rows of one array or several, a chunk at a time, in file order or shuffled.
//!
//! A [`Chunks`] is an iterator whose whole state is one number: how many rows all ranks have taken. What is
//! read when is decided in `reader.rs`; here chunks are handed out one by one, in exact order. The first
//! one is read in the caller's own thread; after it a thread of its own reads while the caller works. After the
//! last chunk it can begin again, with the next epoch.

use crate::array::Array;
use crate::batch::Batch;
use crate::budget::human;
use crate::choose::{Choice, Visit};
use crate::data::same_data;
use crate::door::{BUDGET, Words};
use crate::error::{Error, Result};
use crate::format::Order as AxisOrder;
use crate::iteration::{Again, Span, Standing};
use crate::order::{Blocks, LastStep, Mix, Permutation, Sequential, Shard, Steps};
use crate::plan::Interrupt;
use crate::pool::Block;
use crate::prefetch::{Pace, Prefetch, Produce};
use crate::reader::{Group, Pass, Reader, Spec, chunk_bytes, mix_room, planned_row_bytes};
use crate::resident;
use crate::store::Access;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The block of `blocks="auto"`: from here on our disk, with many in flight, reads at three quarters of its
/// sequential rate or more. A constant, because the order must not depend on how fast a disk was today.
const BLOCK_BYTES: u64 = 128 << 10;

/// Which shuffled pass, and which part of it.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    /// Another seed, another order.
    pub seed: u64,
    /// Another pass, another order.
    pub epoch: u64,
    /// How many rows of the pass have been taken already, by all ranks together: where the first iteration begins.
    pub start: u64,
    /// What the next iteration gives.
    pub again: Again,
    /// Which rank this is, and of how many.
    pub shard: Shard,
    /// What happens to the rows that do not fill a step.
    pub last: LastStep,
    /// Rows anywhere, or whole blocks of them.
    pub blocks: BlockWish,
}

/// What is shuffled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockWish {
    /// Rows: every order is as likely as any other.
    #[default]
    Exact,
    /// Blocks of a size that a disk reads well, mixed as far as the budget allows.
    Auto,
    /// Blocks of so many rows, mixed as far as the budget allows.
    Rows(u64),
    /// Exactly this.
    Mix(Mix),
}

impl Default for Shuffle {
    fn default() -> Self {
        Self {
            seed: 0,
            epoch: 0,
            start: 0,
            again: Again::default(),
            shard: Shard::default(),
            last: LastStep::Split,
            blocks: BlockWish::Exact,
        }
    }
}

/// Where a pass stands, as the caller saw it: all that is needed to go on, under any number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// `"sequential"` or `"shuffled"`.
    pub order: String,
    /// The seed of the order.
    pub seed: u64,
    /// The pass; after the last chunk, the next one.
    pub epoch: u64,
    /// Rows taken by all ranks together in this pass.
    pub position: u64,
    /// Which data it was: see [`Array::fingerprint`].
    pub fingerprint: String,
    /// The blocks of a block shuffle: they depend on the budget, and the order on them.
    pub mix: Option<Mix>,
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
            return Err(Error::argument(
                format!("{}: a single element has no rows", array.path().display()),
                "",
            ));
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
        self.arrays.iter().try_for_each(|array| fits(array, Many::Rows(rows)))?;
        Chunks::with(
            self.in_rows(Some(rows))?,
            Shuffle::default(),
            Pass::Sequential(Sequential::new(self.rows())),
            steps,
        )
    }

    /// Every row exactly once, in the order of a keyed permutation, `rows` at a time.
    pub fn shuffled(&self, rows: usize, shuffle: Shuffle) -> Result<Chunks> {
        let whole = shuffle.shard.steps(self.rows(), 0, at_least_one(rows)?, shuffle.last)?;
        never_empty(&whole, self.rows(), &shuffle)?;
        let steps = whole.restart(self.rows(), shuffle.start)?;
        self.arrays.iter().try_for_each(|array| fits(array, Many::Rows(rows)))?;
        Chunks::with(self.in_rows(None)?, shuffle, self.pass(&shuffle)?, steps)
    }

    /// The arrays, those held in memory of whose files a pass would read every page many times: files in Fortran order,
    /// in chunks of so many rows (`None`: shuffled).
    fn in_rows(&self, rows: Option<usize>) -> Result<Vec<Array>> {
        let in_rows = |array: &Array| {
            let run = rows.map_or(0, |rows| rows.saturating_mul(array.dtype().itemsize()));
            let whole = rows.is_some_and(|rows| rows as u64 >= array.rows());
            if array.layout().order == AxisOrder::C || run >= SHORTEST_RUN || whole {
                return Ok(array.clone());
            }
            if let Some(held) = resident::hold(array)? {
                return Ok(held);
            }
            let Some(rows) = rows else {
                let what = "a shuffled pass over a Fortran-ordered file would read every page once a row";
                return Err(resident::refused(array, what, "chunks() reads it in file order; "));
            };
            // A chunk is one short run in every column.
            let what = format!(
                "the file is in Fortran order, so that chunks of {rows} rows are runs of {run} bytes: a pass would \
                 read the file {} times over",
                4096 / run.max(1)
            );
            let enough = SHORTEST_RUN / array.dtype().itemsize();
            Err(resident::refused(array, &what, &format!("take chunks of {enough} rows or more; ")))
        };
        self.arrays.iter().map(in_rows).collect()
    }
}

impl Zip {
    /// The order of a shuffled pass.
    fn pass(&self, shuffle: &Shuffle) -> Result<Pass> {
        let rows = self.rows();
        let mix = match shuffle.blocks {
            BlockWish::Exact => return Ok(Pass::Exact(Permutation::new(rows, shuffle.seed, shuffle.epoch))),
            BlockWish::Mix(mix) => mix,
            BlockWish::Auto => {
                let (row, room) = self.rooms();
                Mix::choose(row, rows, room, BLOCK_BYTES)
            }
            BlockWish::Rows(block_rows) => {
                let (row, room) = self.rooms();
                let fitting = (room / row).saturating_sub(rows % block_rows.max(1));
                Mix::new(block_rows, (fitting / block_rows.max(1)).max(1))?
            }
        };
        let order = Blocks::new(rows, shuffle.seed, shuffle.epoch, mix);
        for array in &self.arrays {
            let needs = order.largest_mix().saturating_mul(planned_row_bytes(array.row_bytes()));
            if needs > mix_room(array.budget().limit()) {
                return Err(Error::Budget {
                    what: format!("mixing {} blocks of {} rows", mix.buffer_blocks, mix.block_rows).into(),
                    needs: (needs / 6).saturating_mul(16),
                    limit: array.budget().limit(),
                    hint: Words::from("smaller blocks, or a larger ") + BUDGET,
                });
            }
        }
        Ok(Pass::Blocks(order))
    }

    /// What one row of all arrays takes while it waits, and what they may take together.
    fn rooms(&self) -> (u64, u64) {
        let rooms = self.arrays.iter().map(|array| {
            let sharing = self.arrays.iter().filter(|a| a.budget().is(array.budget())).count() as u64;
            (planned_row_bytes(array.row_bytes()), mix_room(array.budget().limit()) / sharing)
        });
        // The array that fits fewest rows decides.
        rooms.min_by_key(|(row, room)| room / row).unwrap_or((1, 0))
    }
}

fn at_least_one(rows: usize) -> Result<u64> {
    match rows {
        0 => Err(Error::argument("a chunk of 0 rows has no end", "give the number of rows in a chunk")),
        rows => Ok(rows as u64),
    }
}

/// Refuses what would never give a chunk. Where there are no rows, that is as it should be.
fn never_empty(whole: &Steps, rows: u64, shuffle: &Shuffle) -> Result<()> {
    if whole.count() > 0 || rows == 0 {
        return Ok(());
    }
    let step = shuffle.shard.step_words(whole.batch(), "chunk", "chunks");
    Err(Error::argument(
        format!("{step} is never full: there are {rows} rows"),
        "fewer rows in a chunk, or drop_last=False",
    ))
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
    /// Which pass it is in now.
    shuffle: Shuffle,
    /// The epoch with which the first iteration began.
    first: u64,
    standing: Standing,
    /// Steps that were delivered.
    delivered: u64,
    /// Chunks that are read and not yet delivered: the ones from `delivered` on.
    ready: VecDeque<Vec<Batch>>,
    reading: Reading,
    choice: Choice,
    overlap: Arc<AtomicBool>,
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
    fn with(arrays: Vec<Array>, shuffle: Shuffle, pass: Pass, steps: Steps) -> Result<Self> {
        Self::of(Spec { arrays, pass, steps, ahead: u64::MAX }, shuffle)
    }

    /// Any rows in any order: what a loader of windows makes.
    pub(crate) fn of(spec: Spec, shuffle: Shuffle) -> Result<Self> {
        let spec = Arc::new(spec);
        let choices = spec.choose()?;
        let choice = choices[0].clone();
        let overlap = Arc::new(AtomicBool::new(true));
        let reading = Reading::Here(Reader::new(spec.clone(), choices, 0, overlap.clone()));
        let handed = (Instant::now(), Duration::ZERO);
        Ok(Self {
            spec,
            shuffle,
            first: shuffle.epoch,
            standing: Standing::Ready,
            delivered: 0,
            ready: VecDeque::new(),
            reading,
            choice,
            overlap,
            handed,
        })
    }

    /// Goes to another place of another pass; the iteration has the same first epoch.
    fn reopen(&mut self, shuffle: Shuffle, steps: Steps) -> Result<()> {
        let zip = Zip { arrays: self.spec.arrays.clone() };
        let pass = match &self.spec.pass {
            Pass::Sequential(order) => Pass::Sequential(*order),
            _ => zip.pass(&shuffle)?,
        };
        let first = self.first;
        *self = Self { first, ..Self::with(zip.arrays, shuffle, pass, steps)? };
        Ok(())
    }

    fn span(&self) -> Span {
        Span { first: self.first, epochs: Some(1), again: self.shuffle.again }
    }

    /// The rows that there are.
    fn rows(&self) -> u64 {
        self.spec.arrays.first().map_or(0, Array::rows)
    }

    /// Begins an iteration: with the next epoch after the end of one, and where it was left if it was left half
    /// way; with [`Again::SameEpoch`] from the beginning. Directly after [`load`](Self::load), with what was loaded.
    /// In file order every epoch is the same.
    ///
    /// # Errors
    /// Where the files cannot be read any more, because an array was closed.
    pub fn begin(&mut self) -> Result<()> {
        let span = self.span();
        if span.goes_on(self.standing) {
            return Ok(());
        }
        let epoch = match self.shuffle.again {
            Again::NextEpoch if self.remaining() == 0 => span.after(self.shuffle.epoch),
            Again::NextEpoch => self.shuffle.epoch, // it was loaded as one that is over
            Again::SameEpoch => span.first,
        };
        let steps = self.spec.steps.restart(self.rows(), 0)?;
        self.reopen(Shuffle { epoch, start: 0, ..self.shuffle }, steps)
    }

    /// Whether an iteration is under way, or over.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// How many chunks a whole iteration has.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step.
    pub fn len(&self) -> Result<u64> {
        Ok(self.spec.steps.restart(self.rows(), 0)?.count())
    }

    /// Whether a whole iteration has no chunks: only where there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Which pass it is in now.
    pub fn shuffle(&self) -> &Shuffle {
        &self.shuffle
    }

    /// The epoch with which the first iteration began.
    pub fn first_epoch(&self) -> u64 {
        self.first
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.spec.arrays
    }

    /// Rows in a chunk.
    pub fn batch_rows(&self) -> u64 {
        self.spec.steps.batch()
    }

    /// The way of access that is taken now (of the first array, where there are several).
    pub fn access(&self) -> Access {
        self.choice.access
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        &self.choice.why
    }

    /// How many chunks are left of this iteration.
    pub fn remaining(&self) -> u64 {
        self.spec.steps.count() - self.delivered
    }

    /// The position that all ranks together have reached, as the caller saw it.
    pub(crate) fn position(&self) -> u64 {
        match self.delivered {
            0 => self.spec.steps.start(),
            n => self.spec.steps.position_after(n - 1),
        }
    }

    /// The rows at some positions of this pass.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<u64> {
        let mut rows = vec![0; usize::try_from(positions.end.saturating_sub(positions.start)).unwrap_or(0)];
        self.spec.pass.order().fill(positions.start, &mut rows);
        rows
    }

    /// The epoch, and how many of its rows all ranks together have taken, as the caller saw it.
    pub fn place(&self) -> (u64, u64) {
        match self.remaining() {
            0 => (self.span().after(self.shuffle.epoch), 0),
            _ => (self.shuffle.epoch, self.position()),
        }
    }

    /// Where the pass stands, as the caller saw it: chunks that are only read do not count.
    pub fn state(&self) -> Result<State> {
        let fingerprints: Vec<String> =
            self.spec.arrays.iter().map(Array::fingerprint).collect::<Result<_>>()?;
        let (epoch, position) = self.place();
        Ok(State {
            order: self.order().into(),
            seed: self.shuffle.seed,
            epoch,
            position,
            fingerprint: fingerprints.join("-"),
            mix: self.mix(),
        })
    }

    /// Goes on from where a state was taken, with this iterator's rank and chunk size: the next iteration begins
    /// there.
    ///
    /// # Errors
    /// [`Error::Argument`] where the state is of other data, or cannot be of this pass.
    pub fn load(&mut self, state: &State) -> Result<()> {
        self.load_as(state, Standing::Ready)
    }

    /// The same for a copy of an iterator that stands like this.
    pub fn load_as(&mut self, state: &State, standing: Standing) -> Result<()> {
        same_data(&self.state()?.fingerprint, &state.fingerprint)?;
        let order = self.order();
        if state.order != order {
            return Err(Error::argument(
                format!("the state is of a {} pass, this one is {order}", state.order),
                "chunks() and shuffled() each load their own",
            ));
        }
        let State { seed, epoch, position, .. } = *state;
        let blocks = state.mix.map_or(BlockWish::Exact, BlockWish::Mix);
        let steps = self.spec.steps;
        self.stand_at(Shuffle { seed, blocks, ..self.shuffle }, &steps, (epoch, position))?;
        self.standing = standing;
        Ok(())
    }

    /// Goes to a place of an epoch: with the ranks and the chunks of some steps.
    fn stand_at(&mut self, shuffle: Shuffle, steps: &Steps, (epoch, start): (u64, u64)) -> Result<()> {
        let rows = self.rows();
        match steps.restart(rows, start)? {
            // What is left of its epoch does not fill a step of these ranks: the epoch is over.
            rest if rest.count() == 0 => {
                let epoch = self.span().after(epoch);
                self.reopen(Shuffle { epoch, start: 0, ..shuffle }, steps.restart(rows, 0)?)
            }
            rest => self.reopen(Shuffle { epoch, start, ..shuffle }, rest),
        }
    }

    /// Goes on as another rank from where the pass stands: all ranks have taken as much of it.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step.
    pub fn set_shard(&mut self, shard: Shard) -> Result<()> {
        if shard == self.shuffle.shard {
            return Ok(());
        }
        let shuffle = Shuffle { shard, ..self.shuffle };
        let whole = shard.steps(self.rows(), 0, self.batch_rows(), shuffle.last)?;
        never_empty(&whole, self.rows(), &shuffle)?;
        let (place, standing) = (self.place(), self.standing);
        self.stand_at(shuffle, &whole, place)?;
        self.standing = standing;
        Ok(())
    }

    /// Which rank this is, and of how many.
    pub fn shard(&self) -> Shard {
        self.shuffle.shard
    }

    /// The seed of a shuffled pass.
    pub fn seed(&self) -> u64 {
        self.shuffle.seed
    }

    /// The word for the order of rows.
    pub fn order(&self) -> &'static str {
        if self.spec.pass.visit() == Visit::Sequential { "sequential" } else { "shuffled" }
    }

    /// The blocks of a block shuffle.
    pub fn mix(&self) -> Option<Mix> {
        match &self.spec.pass {
            Pass::Blocks(order) => Some(order.mix()),
            _ => None,
        }
    }

    /// How far the shares of classes in a chunk spread if the file is sorted by class, against a perfect
    /// shuffle: a ratio of standard deviations. 1 is perfect, and an exact shuffle is.
    pub fn predicted_spread(&self) -> f64 {
        match &self.spec.pass {
            Pass::Blocks(order) => order.predicted_spread(self.spec.steps.batch()),
            _ => 1.0,
        }
    }

    /// The next chunk, or `None` after the last, until [`begin`](Self::begin) is called. `interrupt` is asked during
    /// long reads and waits.
    ///
    /// After an error the iterator stands where it was: the next call tries the same chunk again.
    pub fn next_chunk(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Chunk>> {
        let positions = match self.standing {
            Standing::Over => None,
            Standing::Ready | Standing::UnderWay => self.spec.steps.range(self.delivered),
        };
        let Some(positions) = positions else {
            self.standing = Standing::Over;
            return None;
        };
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
        self.standing = if self.remaining() == 0 { Standing::Over } else { Standing::UnderWay };
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
            self.reading =
                Reading::Here(Reader::new(self.spec.clone(), choices, self.delivered, self.overlap.clone()));
        }
        if let Reading::Here(reader) = &mut self.reading {
            if self.spec.ahead == 0 || reader.is_quick() {
                return reader.produce(interrupt);
            }
            if let Reading::Here(reader) = std::mem::replace(&mut self.reading, Reading::Nobody) {
                self.reading = Reading::Ahead(Prefetch::new(reader));
            }
        }
        // A caller who takes chunks much faster than they can be read gains nothing from reading ahead, and much
        // from larger groups: fewer sweeps over the file.
        let (handed, took) = self.handed;
        let overlap = self.spec.pass.visit() != Visit::Shuffled || handed.elapsed() * 4 > took;
        self.overlap.store(overlap, Ordering::Relaxed);
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

/// What is taken at once, and how many of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Many {
    /// A chunk of rows; there are never more than the array has.
    Rows(usize),
    /// A batch of windows of so many tokens, however many windows there are: the batch is what was asked for.
    Windows { batch: usize, block: usize },
}

/// Refuses what cannot fit before anything is read.
pub(crate) fn fits(array: &Array, many: Many) -> Result<()> {
    let limit = array.budget().limit();
    let asked = match many {
        Many::Rows(rows) => (rows as u64).min(array.rows()),
        Many::Windows { batch, .. } => batch as u64,
    };
    let rows = asked.min(array.rows());
    let needs = Block::cost(chunk_bytes(array, rows));
    if needs > limit && chunk_bytes(array, rows) > 0 {
        // A block is larger than its chunk, by its size class: a division would promise too much.
        let (mut most, mut too_many) = (0, rows);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            let fits = Block::cost(chunk_bytes(array, middle)) <= limit;
            *(if fits { &mut most } else { &mut too_many }) = middle;
        }
        let (what, one, those) = match many {
            Many::Rows(_) => (format!("a chunk of {rows} rows"), "row", format!("chunks of {most} rows")),
            Many::Windows { batch, block } => (
                format!("a batch of {batch} windows of {block} tokens"),
                "window",
                format!("batches of {most} windows"),
            ),
        };
        let hint = if most == 0 {
            format!("one {one} takes {}; open with a larger ", human(array.row_bytes() as u64))
        } else {
            format!("{those} fit, or open with a larger ")
        };
        let needs = Block::cost(chunk_bytes(array, asked));
        return Err(Error::Budget { what: what.into(), needs, limit, hint: Words::from(hint) + BUDGET });
    }
    Ok(())
}

/// An eighth of a page: below it a pass over a Fortran-ordered file reads it more than eight times.
const SHORTEST_RUN: usize = 512;
