//! Batches of windows of tokens, epoch after epoch, under any number of ranks.
//!
//! A [`Loader`] is one global stream of windows that does not depend on the number of ranks, and a position in
//! it: that is its whole state. Windows are read ahead, raw, by a thread of [`Chunks`]; they are widened where
//! they are taken, so that what waits is small and what is handed over is still in the caller's cache.

use crate::array::Array;
use crate::batch::Batch;
use crate::chunks::Chunks;
use crate::engine::bytes::same_data;
use crate::engine::job::Pass;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::iteration::{Again, Span, Standing};
use crate::options::Access;
use crate::order::{Draws, LastStep, Permutation, Sequential, Shard, Steps, Turn, Windows};
use crate::shuffle::{Many, Shuffle, fits};
use crate::tokens::{Tokens, widen_windows};
use crate::widen::Token;
use std::fmt;
use std::str::FromStr;

/// Which windows, in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WindowOrder {
    /// Independent draws, nanoGPT's: draw k is a function of the seed and k.
    WithReplacement,
    /// Every window of an epoch once, in a permuted order.
    #[default]
    Shuffled,
    /// Every window of an epoch once, in file order.
    Sequential,
}

impl WindowOrder {
    const ALL: [Self; 3] = [Self::WithReplacement, Self::Shuffled, Self::Sequential];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WithReplacement => "with_replacement",
            Self::Shuffled => "shuffled",
            Self::Sequential => "sequential",
        }
    }
}

impl fmt::Display for WindowOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WindowOrder {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == word).ok_or_else(|| {
            Error::argument(
                format!("order={word:?} is not known"),
                "one of \"shuffled\", \"sequential\", \"with_replacement\"",
            )
        })
    }
}

/// What a loader gives.
#[derive(Clone, Copy, Debug)]
pub struct LoaderOptions {
    /// Windows in a batch of one rank.
    pub batch_size: usize,
    /// Tokens in x, and in y.
    pub block_size: usize,
    /// Which windows, in which order.
    pub order: WindowOrder,
    /// Another seed, another order.
    pub seed: u64,
    /// The epoch with which the first iteration begins.
    pub epoch: u64,
    /// How many epochs one iteration goes through; `None` is endless.
    pub epochs: Option<u64>,
    /// What the next iteration gives.
    pub again: Again,
    /// Which rank this is, and of how many.
    pub shard: Shard,
    /// Which of this rank's batches, where several readers share them: all, if it is the only one.
    pub turn: Turn,
    /// What happens to the windows that do not fill a step.
    pub last: LastStep,
    /// How many batches are read before they are asked for; `None` is as many as are good.
    pub prefetch: Option<u64>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 12,
            block_size: 1024,
            order: WindowOrder::default(),
            seed: 0,
            epoch: 0,
            epochs: Some(1),
            again: Again::default(),
            shard: Shard::default(),
            turn: Turn::ALL,
            last: LastStep::Drop,
            prefetch: None,
        }
    }
}

/// Where a loader stands, as the caller saw it: all that is needed to go on, under any number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderState {
    /// Which windows, in which order.
    pub order: WindowOrder,
    /// The seed.
    pub seed: u64,
    /// The epoch; after its last batch, the next one that is gone through.
    pub epoch: u64,
    /// Windows that all ranks together have taken of this epoch.
    pub position: u64,
    /// Whose turn it was, where several readers share a rank's batches.
    pub turn: Turn,
    /// Tokens in a window: the windows of an epoch depend on it.
    pub block_size: u64,
    /// Which data it was: see [`Tokens::fingerprint`].
    pub fingerprint: String,
}

/// Batches of windows.
///
/// ```no_run
/// use lowtide::{Loader, LoaderOptions};
/// let tokens = lowtide::tokens("train.bin")?;
/// let mut loader = Loader::new(&tokens, LoaderOptions { batch_size: 12, ..Default::default() })?;
/// while let Some(batch) = loader.next_batch::<i64>(&|| Ok(())) {
///     let (x, y) = batch?;
/// }
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Debug)]
pub struct Loader {
    tokens: Tokens,
    options: LoaderOptions,
    epoch: u64,
    /// Which steps of `epoch` are taken, and how many there are in all turns.
    turn: Turn,
    steps: u64,
    /// The windows of `epoch` that are still to come.
    chunks: Chunks,
    standing: Standing,
}

impl Loader {
    /// A loader that stands at the beginning of its first epoch.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are too few tokens for one step, or too few windows in the last one for
    /// every rank to have a batch; [`Error::Budget`] where a batch does not fit.
    pub fn new(tokens: &Tokens, options: LoaderOptions) -> Result<Self> {
        if options.epochs == Some(0) {
            return Err(Error::argument("epochs is 0", "None goes on for ever"));
        }
        never_empty(tokens, &options)?;
        let LoaderOptions { epoch, turn, .. } = options;
        let (chunks, steps) = open_epoch(tokens, &options, epoch, 0, turn)?;
        Ok(Self { tokens: tokens.clone(), options, epoch, turn, steps, chunks, standing: Standing::Ready })
    }

    /// What it gives.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The tokens that it reads.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// The way of access that is taken now.
    pub fn access(&self) -> Access {
        self.chunks.access()
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        self.chunks.why()
    }

    /// How many batches one whole iteration has; `None` where it is endless.
    pub fn len(&self) -> Result<Option<u64>> {
        let windows = epoch_len(&self.tokens, &self.options)?;
        let steps = steps(&self.options, windows, 0)?.taking(self.options.turn).count();
        Ok(self.options.epochs.map(|epochs| steps.saturating_mul(epochs)))
    }

    /// Whether an iteration has no batches: never, [`new`](Self::new) refuses that.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Begins an iteration: with the next epochs after the end of one, and where it was left if it was left half
    /// way; with [`Again::SameEpoch`] from the beginning. Directly after [`load`](Self::load), with what was loaded.
    ///
    /// # Errors
    /// Where an epoch cannot be opened any more, because the tokens were closed.
    pub fn begin(&mut self) -> Result<()> {
        let span = self.options.span();
        if span.goes_on(self.standing) {
            return Ok(());
        }
        let (epoch, turn) = match self.options.again {
            Again::NextEpoch if self.chunks.remaining() == 0 => (span.after(self.epoch), self.next_turn()),
            Again::NextEpoch => (self.epoch, self.turn), // it was loaded as one that is over
            Again::SameEpoch => (span.first, self.options.turn),
        };
        self.open(epoch, turn)?;
        self.standing = Standing::Ready;
        Ok(())
    }

    /// Whether an iteration is under way, or over.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Goes on as another rank from where the state stands: all ranks have taken as much of the stream.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn set_shard(&mut self, shard: Shard) -> Result<()> {
        if shard == self.options.shard {
            return Ok(());
        }
        let options = LoaderOptions { shard, ..self.options };
        never_empty(&self.tokens, &options)?;
        let (epoch, position) = self.place();
        let turn = if self.chunks.remaining() == 0 { self.next_turn() } else { self.turn };
        self.stand_at(options, epoch, position, turn)
    }

    /// The next batch, x and y; `None` at the end of the iteration, until [`begin`](Self::begin) is called.
    ///
    /// After an error the loader stands where it was: the next call tries the same batch again.
    pub fn next_batch<T: Token>(&mut self, interrupt: Interrupt<'_>) -> Option<Result<(Batch, Batch)>> {
        let raw = match self.next_raw(interrupt)? {
            Ok(raw) => raw,
            Err(error) => return Some(Err(error)),
        };
        let shape = vec![raw.rows(), self.options.block_size];
        let budget = self.tokens.budget();
        let pair = Batch::blank::<T>(budget, shape.clone()).and_then(|mut x| {
            let mut y = Batch::blank::<T>(budget, shape)?;
            self.widen::<T>(&raw, x.as_mut_slice(), y.as_mut_slice())?;
            Ok((x, y))
        });
        Some(pair)
    }

    /// The same into the caller's own memory; says how many windows there were, fewer than `batch_size` only in
    /// a last step that is split.
    pub fn next_batch_into<T: Token>(
        &mut self,
        x: &mut [T],
        y: &mut [T],
        interrupt: Interrupt<'_>,
    ) -> Option<Result<usize>> {
        let wanted = self.options.batch_size.checked_mul(self.options.block_size);
        if wanted != Some(x.len()) || wanted != Some(y.len()) {
            return Some(Err(Error::argument("x and y must have room for one whole batch", "")));
        }
        let raw = match self.next_raw(interrupt)? {
            Ok(raw) => raw,
            Err(error) => return Some(Err(error)),
        };
        let tokens = raw.rows() * self.options.block_size;
        Some(self.widen(&raw, &mut x[..tokens], &mut y[..tokens]).map(|()| raw.rows()))
    }

    fn widen<T: Token>(&self, raw: &Batch, x: &mut [T], y: &mut [T]) -> Result<()> {
        widen_windows(raw.dtype(), raw.bytes(), self.options.block_size, x, y)
    }

    /// The next windows as they stand in the files.
    fn next_raw(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Batch>> {
        let span = self.options.span();
        if self.standing == Standing::Over {
            return None;
        }
        while self.chunks.remaining() == 0 {
            if span.ends_with(self.epoch) {
                self.standing = Standing::Over;
                return None;
            }
            if let Err(error) = self.open(span.after(self.epoch), self.next_turn()) {
                return Some(Err(error));
            }
        }
        match self.chunks.next_chunk(interrupt)? {
            Ok(chunk) => {
                let last = self.chunks.remaining() == 0 && span.ends_with(self.epoch);
                self.standing = if last { Standing::Over } else { Standing::UnderWay };
                chunk.into_batches().pop().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Goes to the beginning of an epoch.
    fn open(&mut self, epoch: u64, turn: Turn) -> Result<()> {
        (self.chunks, self.steps) = open_epoch(&self.tokens, &self.options, epoch, 0, turn)?;
        (self.epoch, self.turn) = (epoch, turn);
        Ok(())
    }

    /// Whose turn it is after this epoch.
    fn next_turn(&self) -> Turn {
        self.turn.after(self.steps)
    }

    /// The epoch, and how many of its windows all ranks together have taken, as the caller saw it.
    pub fn place(&self) -> (u64, u64) {
        match self.chunks.remaining() {
            0 => (self.options.span().after(self.epoch), 0),
            _ => (self.epoch, self.chunks.position()),
        }
    }

    /// Where it stands, as the caller saw it.
    pub fn state(&self) -> Result<LoaderState> {
        let done = self.chunks.remaining() == 0;
        let LoaderOptions { order, seed, block_size, .. } = self.options;
        let (epoch, position) = self.place();
        Ok(LoaderState {
            order,
            seed,
            epoch,
            position,
            turn: if done { self.next_turn() } else { self.turn },
            block_size: block_size as u64,
            fingerprint: self.tokens.fingerprint()?,
        })
    }

    /// Goes on from where a state was taken, with this loader's ranks and batch size: the next iteration begins
    /// there.
    ///
    /// # Errors
    /// [`Error::Argument`] where the state is of other data or other windows.
    pub fn load(&mut self, state: &LoaderState) -> Result<()> {
        self.load_as(state, Standing::Ready)
    }

    /// The same for a copy of a loader that stands like this.
    pub fn load_as(&mut self, state: &LoaderState, standing: Standing) -> Result<()> {
        same_data(&self.tokens.fingerprint()?, &state.fingerprint)?;
        let LoaderOptions { order, block_size, .. } = self.options;
        if (state.order, state.block_size) != (order, block_size as u64) {
            return Err(Error::argument(
                format!(
                    "the state is of {} windows of {} tokens, this loader's are {order} and of {block_size}",
                    state.order, state.block_size
                ),
                "make the loader with the order and the block_size of the state",
            ));
        }
        let options = LoaderOptions { seed: state.seed, ..self.options };
        if state.turn.of() != options.turn.of() {
            return Err(Error::argument(
                format!(
                    "the state is one of {} readers that share the batches, this loader is one of {}",
                    state.turn.of(),
                    options.turn.of()
                ),
                "as many workers as there were",
            ));
        }
        self.stand_at(options, state.epoch, state.position, state.turn)?;
        self.standing = standing;
        Ok(())
    }

    /// Goes to a place of an epoch, with other options.
    fn stand_at(&mut self, options: LoaderOptions, epoch: u64, position: u64, turn: Turn) -> Result<()> {
        let open = |epoch, position| open_epoch(&self.tokens, &options, epoch, position, turn);
        let (mut epoch, (mut chunks, mut steps)) = (epoch, open(epoch, position)?);
        if steps == 0 {
            // What is left of its epoch does not fill a step of these ranks: the epoch is over.
            epoch = options.span().after(epoch);
            (chunks, steps) = open(epoch, 0)?;
        }
        (self.options, self.epoch, self.turn) = (options, epoch, turn);
        (self.chunks, self.steps) = (chunks, steps);
        Ok(())
    }
}

impl LoaderOptions {
    fn span(&self) -> Span {
        Span { first: self.epoch, epochs: self.epochs, again: self.again }
    }
}

/// How many windows an epoch has, the same in every one.
fn epoch_len(tokens: &Tokens, options: &LoaderOptions) -> Result<u64> {
    let (len, block) = (tokens.len(), options.block_size as u64);
    match Windows::new(len, block, options.seed, 0) {
        Ok(windows) => Ok(windows.count()),
        // One window fits, if not a whole epoch's phases: enough to draw from.
        Err(_) if options.order == WindowOrder::WithReplacement && block > 0 && len > block => Ok(1),
        Err(error) => Err(error),
    }
}

/// Refuses what would never give a batch.
fn never_empty(tokens: &Tokens, options: &LoaderOptions) -> Result<()> {
    let windows = epoch_len(tokens, options)?;
    if steps(options, windows, 0)?.total() > 0 {
        return Ok(());
    }
    let step = options.shard.step_words(options.batch_size as u64, "batch", "batches");
    Err(Error::argument(
        format!("{step} is never full: an epoch has {windows} windows of {} tokens", options.block_size),
        "a smaller batch_size or block_size, or drop_last=False",
    ))
}

fn steps(options: &LoaderOptions, windows: u64, position: u64) -> Result<Steps> {
    options.shard.steps(windows, position, options.batch_size as u64, options.last)
}

/// The windows of an epoch from a position on, and the steps that there are in all turns.
fn open_epoch(
    tokens: &Tokens,
    options: &LoaderOptions,
    epoch: u64,
    position: u64,
    turn: Turn,
) -> Result<(Chunks, u64)> {
    let (len, block) = (tokens.len(), options.block_size as u64);
    let count = epoch_len(tokens, options)?;
    let view = |first: u64, stride: u64, rows: u64| -> Result<Array> {
        let too_many = |_| Error::argument("there are more windows than this machine can count", "");
        let rows = usize::try_from(rows).map_err(too_many)?;
        Ok(tokens.array().overlapping(first, stride, options.block_size + 1, rows))
    };
    let (array, pass) = match options.order {
        WindowOrder::WithReplacement => {
            let draws = Draws::new(len - block, options.seed).from(epoch.wrapping_mul(count));
            (view(0, 1, len - block)?, Pass::Draws(draws))
        }
        WindowOrder::Shuffled => {
            let windows = Windows::new(len, block, options.seed, epoch)?;
            let order = Permutation::new(count, options.seed, epoch);
            (view(windows.phase(), block, count)?, Pass::Exact(order))
        }
        WindowOrder::Sequential => {
            let windows = Windows::new(len, block, options.seed, epoch)?;
            (view(windows.phase(), block, count)?, Pass::Sequential(Sequential::new(count)))
        }
    };
    fits(&array, Many::Windows { batch: options.batch_size, block: options.block_size })?;
    let steps = steps(options, count, position)?;
    let ahead = options.prefetch.unwrap_or(u64::MAX);
    let chunks = Chunks::new(vec![array], Shuffle::default(), pass, steps.taking(turn), ahead)?;
    Ok((chunks, steps.total()))
}
