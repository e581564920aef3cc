//! Rows of one array or several, a chunk at a time, in file order or shuffled.
//!
//! A [`Chunks`] is an iterator whose whole state is one number: how many rows all ranks have taken. What is
//! read when is decided in the engine; here chunks are handed out, and after the last one it can begin again,
//! with the next epoch.

use crate::array::Array;
use crate::batch::Batch;
use crate::budget::pool::Block;
use crate::engine::bytes::same_data;
use crate::engine::choose::Visit;
use crate::engine::job::{Job, Pass, Place};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::iteration::{Again, Span, Standing};
use crate::options::Access;
use crate::order::{Mix, Shard, Steps};
use crate::shuffle::{BlockWish, Shuffle, never_empty, of_rows, pass};
use crate::sort::{Coming, Portion};
use std::ops::{Deref, Range};

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
    arrays: Vec<Array>,
    coming: Coming,
    /// Which pass it is in now.
    shuffle: Shuffle,
    /// The epoch with which the first iteration began.
    first: u64,
    standing: Standing,
}

/// What is to be read, with as much look-ahead as the budget allows.
fn job(arrays: &[Array], pass: Pass, steps: Steps) -> Job {
    let input = if matches!(pass, Pass::Sequential(_)) { Array::input } else { Array::input_ahead };
    Job { inputs: arrays.iter().map(input).collect(), pass, steps, ahead: u64::MAX }
}

impl Chunks {
    /// Any rows of some arrays in any order.
    pub(crate) fn new(arrays: Vec<Array>, shuffle: Shuffle, pass: Pass, steps: Steps) -> Result<Self> {
        let (job, first) = (job(&arrays, pass, steps), shuffle.epoch);
        let coming = Coming::new(job, shuffle.scratch.as_deref(), Portion::All)?;
        Ok(Self { arrays, coming, first, shuffle, standing: Standing::Ready })
    }

    /// Goes to another place of another pass; the iteration has the same first epoch.
    fn reopen(&mut self, shuffle: Shuffle) -> Result<()> {
        let job = self.other_job(&shuffle)?;
        // Who begins a second epoch is taken to begin a third, which is sorted meanwhile.
        let several = shuffle.again == Again::NextEpoch && shuffle.epoch != self.first;
        let reading = if several { Portion::Read } else { Portion::All };
        self.coming = Coming::new(job, shuffle.scratch.as_deref(), reading)?;
        (self.shuffle, self.standing) = (shuffle, Standing::Ready);
        Ok(())
    }

    /// The same for another pass, or another place of it.
    fn other_job(&self, shuffle: &Shuffle) -> Result<Job> {
        let pass = match &self.job().pass {
            Pass::Sequential(order) => Pass::Sequential(*order),
            _ => pass(&self.arrays, shuffle)?,
        };
        Ok(job(&self.arrays, pass, self.steps(shuffle)?))
    }

    /// The steps from where a pass begins, by its ranks.
    fn steps(&self, Shuffle { shard, start, last, .. }: &Shuffle) -> Result<Steps> {
        shard.steps(self.rows(), *start, self.batch_rows(), *last).map_err(of_rows)
    }

    /// An epoch from its beginning.
    fn whole(&self, epoch: u64) -> Shuffle {
        Shuffle { epoch, start: 0, ..self.shuffle.clone() }
    }

    /// The pass from where it stands, as the caller saw it.
    fn rest(&self) -> Shuffle {
        let (epoch, start) = self.place();
        Shuffle { epoch, start, ..self.shuffle.clone() }
    }

    fn job(&self) -> &Job {
        self.coming.job()
    }

    fn span(&self) -> Span {
        Span { first: self.first, epochs: Some(1), again: self.shuffle.again }
    }

    /// The rows that there are.
    fn rows(&self) -> u64 {
        self.arrays.first().map_or(0, Array::rows)
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
        let begun = self.coming.next_epoch();
        self.reopen(self.whole(epoch))?;
        if let Some(begun) = begun {
            self.coming.go_on_with(begun);
        }
        Ok(())
    }

    /// Begins to sort the next epoch, where this one is sorted and others came before it.
    fn go_ahead(&mut self) {
        if !self.coming.can_go_ahead() {
            return;
        }
        let next = self.whole(self.span().after(self.shuffle.epoch));
        // What is wrong with it is said when it is begun.
        if let Ok(job) = self.other_job(&next) {
            self.coming.go_ahead(job);
        }
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
        Ok(self.job().steps.restart(self.rows(), 0)?.count())
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
        &self.arrays
    }

    /// Rows in a chunk.
    pub fn batch_rows(&self) -> u64 {
        self.job().steps.batch()
    }

    /// The way of access that is taken now (of the first array, where there are several).
    pub fn access(&self) -> Access {
        self.coming.choice().way.into()
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        &self.coming.choice().why
    }

    /// What is not wrong, but may not be what was meant: a scratch folder that is in memory.
    pub fn warning(&self) -> Option<String> {
        self.coming.warning()
    }

    /// How many chunks are left of this iteration.
    pub fn remaining(&self) -> u64 {
        self.job().steps.count() - self.coming.taken()
    }

    /// The position that all ranks together have reached, as the caller saw it.
    pub(crate) fn position(&self) -> u64 {
        match self.coming.taken() {
            0 => self.job().steps.start(),
            n => self.job().steps.position_after(n - 1),
        }
    }

    /// The rows at some positions of this pass.
    pub fn rows_at(&self, positions: Range<u64>) -> Vec<u64> {
        let mut rows = vec![0; usize::try_from(positions.end.saturating_sub(positions.start)).unwrap_or(0)];
        self.job().pass.order().fill(positions.start, &mut rows);
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
        let fingerprints: Vec<String> = self.arrays.iter().map(Array::fingerprint).collect::<Result<_>>()?;
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
        let State { seed, epoch, position: start, .. } = *state;
        let blocks = state.mix.map_or(BlockWish::Exact, BlockWish::Mix);
        self.stand_at(Shuffle { seed, epoch, start, blocks, ..self.shuffle.clone() }, standing)
    }

    /// Goes to where a pass begins.
    fn stand_at(&mut self, mut shuffle: Shuffle, standing: Standing) -> Result<()> {
        if self.steps(&shuffle)?.count() == 0 {
            // What is left of its epoch does not fill a step of these ranks: the epoch is over.
            (shuffle.epoch, shuffle.start) = (self.span().after(shuffle.epoch), 0);
        }
        self.reopen(shuffle)?;
        self.standing = standing;
        Ok(())
    }

    /// Goes on as another rank from where the pass stands: all ranks have taken as much of it.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step.
    pub fn set_shard(&mut self, shard: Shard) -> Result<()> {
        if shard == self.shuffle.shard {
            return Ok(());
        }
        let whole = self.steps(&Shuffle { shard, ..self.whole(self.shuffle.epoch) })?;
        let rest = Shuffle { shard, ..self.rest() };
        never_empty(&whole, self.rows(), &rest)?;
        self.stand_at(rest, self.standing)
    }

    /// Lets go of what was read ahead, and of the space in a scratch folder, at once. It stands where it stood: whoever
    /// goes on has that read, or sorted, again.
    ///
    /// # Errors
    /// As the files have it, which are looked at again.
    pub fn let_go(&mut self) -> Result<()> {
        if self.coming.let_go() || self.arrays.iter().any(Array::is_closed) {
            return Ok(());
        }
        self.stand_at(self.rest(), self.standing)
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
        if self.job().pass.visit() == Visit::Sequential { "sequential" } else { "shuffled" }
    }

    /// The blocks of a block shuffle.
    pub fn mix(&self) -> Option<Mix> {
        self.job().pass.mix()
    }

    /// How far the shares of classes in a chunk spread if the file is sorted by class, against a perfect
    /// shuffle: a ratio of standard deviations. 1 is perfect, and an exact shuffle is.
    pub fn predicted_spread(&self) -> f64 {
        match &self.job().pass {
            Pass::Blocks(order) => order.predicted_spread(self.job().steps.batch()),
            _ => 1.0,
        }
    }

    /// The next chunk, or `None` after the last, until [`begin`](Self::begin) is called. `interrupt` is asked during
    /// long reads and waits.
    ///
    /// After an error the iterator stands where it was: the next call tries the same chunk again.
    pub fn next_chunk(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Chunk>> {
        let over = self.standing == Standing::Over;
        let Some(positions) = self.job().steps.range(self.coming.taken()).filter(|_| !over) else {
            self.standing = Standing::Over;
            return None;
        };
        self.chunk_at(positions, interrupt).transpose()
    }

    fn chunk_at(&mut self, positions: Range<u64>, interrupt: Interrupt<'_>) -> Result<Option<Chunk>> {
        let rows = usize::try_from(positions.end - positions.start).unwrap_or(0);
        // Before the chunk is taken: what fails here is tried again.
        let places: Vec<_> =
            self.job().inputs.iter().map(|input| input.place(rows)).collect::<Result<_>>()?;
        let Some(blocks) = self.coming.next(interrupt).transpose()? else { return Ok(None) };
        let batch = |((block, place), array): ((Block, Option<Place>), &Array)| {
            let mut shape = array.shape().to_vec();
            shape[0] = rows;
            let block = match place {
                Some((cast, mut place)) => {
                    cast.convert_together(&block, &mut place);
                    place
                }
                None => block,
            };
            Batch::new(block, array.dtype(), shape, array.order()).deliver()
        };
        let batches = blocks.into_iter().zip(places).zip(&self.arrays).map(batch).collect();
        self.go_ahead();
        self.standing = if self.remaining() == 0 { Standing::Over } else { Standing::UnderWay };
        Ok(Some(Chunk { batches, positions }))
    }
}

impl Iterator for Chunks {
    type Item = Result<Chunk>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_chunk(&|| Ok(()))
    }
}
