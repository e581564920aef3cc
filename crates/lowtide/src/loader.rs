//! Batches of windows of tokens, epoch after epoch, under any number of ranks.
//!
//! A [`Loader`] is one global stream of windows that does not depend on the number of ranks, and a position in
//! it: that is its whole state. Windows are read ahead, raw, by a thread of [`Chunks`]; they are widened where
//! they are taken, so that what waits is small and what is handed over is still in the caller's cache.

use crate::array::Array;
use crate::batch::Batch;
use crate::chunks::{Chunks, Shuffle, fits};
use crate::data::same_data;
use crate::error::{Error, Result};
use crate::order::{Draws, LastStep, Permutation, Sequential, Shard, Steps, Turn, Windows};
use crate::plan::Interrupt;
use crate::reader::{Pass, Spec};
use crate::store::Access;
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
    /// How many epochs one iteration goes through; `None` is endless.
    pub epochs: Option<u64>,
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
            epochs: Some(1),
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
    /// The epoch; after its last batch, the next one.
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
    /// Whether an iteration has come to its end: see [`begin`](Self::begin).
    finished: bool,
}

impl Loader {
    /// A loader that stands at the beginning of epoch 0.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are too few tokens for one step, or too few windows in the last one for
    /// every rank to have a batch; [`Error::Budget`] where a batch does not fit.
    pub fn new(tokens: &Tokens, options: LoaderOptions) -> Result<Self> {
        if options.epochs == Some(0) {
            return Err(Error::argument("epochs is 0", "None goes on for ever"));
        }
        let (chunks, steps) = open_epoch(tokens, &options, 0, 0, options.turn)?;
        never_empty(tokens, &options)?;
        let (tokens, turn) = (tokens.clone(), options.turn);
        Ok(Self { tokens, options, epoch: 0, turn, steps, chunks, finished: false })
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

    /// Begins an iteration where the state stands: after the end of one, the next epochs.
    pub fn begin(&mut self) {
        self.finished = false;
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
        let turn = if epoch == self.epoch { self.turn } else { self.turn.after(self.steps) };
        (self.chunks, self.steps) = open_epoch(&self.tokens, &options, epoch, position, turn)?;
        (self.options, self.epoch, self.turn) = (options, epoch, turn);
        Ok(())
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
        if self.finished {
            return None;
        }
        // A state can stand where nothing but a dropped rest is left of its epoch.
        while self.chunks.remaining() == 0 {
            if let Err(error) = self.next_epoch() {
                return Some(Err(error));
            }
            if self.finished {
                return None;
            }
        }
        match self.chunks.next_chunk(interrupt)? {
            Ok(chunk) => chunk.into_batches().pop().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }

    /// Goes on to the next epoch; the iteration ends where its number is a multiple of `epochs`, so that it
    /// ends there too if it was taken up again in between.
    fn next_epoch(&mut self) -> Result<()> {
        let epoch = self.epoch.wrapping_add(1);
        let turn = self.turn.after(self.steps);
        (self.chunks, self.steps) = open_epoch(&self.tokens, &self.options, epoch, 0, turn)?;
        (self.epoch, self.turn) = (epoch, turn);
        self.finished = self.options.epochs.is_some_and(|epochs| epoch.is_multiple_of(epochs));
        Ok(())
    }

    /// The epoch, and how many of its windows all ranks together have taken, as the caller saw it.
    pub fn place(&self) -> (u64, u64) {
        match self.chunks.remaining() {
            0 => (self.epoch.wrapping_add(1), 0),
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
            turn: if done { self.turn.after(self.steps) } else { self.turn },
            block_size: block_size as u64,
            fingerprint: self.tokens.fingerprint()?,
        })
    }

    /// Goes on from where a state was taken, with this loader's ranks and batch size.
    ///
    /// # Errors
    /// [`Error::Argument`] where the state is of other data or other windows.
    pub fn load(&mut self, state: &LoaderState) -> Result<()> {
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
        let (chunks, steps) = open_epoch(&self.tokens, &options, state.epoch, state.position, state.turn)?;
        (self.options, self.epoch, self.turn, self.steps) = (options, state.epoch, state.turn, steps);
        (self.chunks, self.finished) = (chunks, false);
        Ok(())
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
    let (batch, ranks) = (options.batch_size, options.shard.world_size());
    let step = if ranks == 1 {
        format!("a batch of {batch}")
    } else {
        format!("a step of {ranks} ranks with batches of {batch}")
    };
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
    fits(&array, options.batch_size).map_err(|error| batch_too_large(error, options))?;
    let steps = steps(options, count, position)?;
    let ahead = options.prefetch.unwrap_or(u64::MAX);
    let spec = Spec { arrays: vec![array], pass, steps: steps.taking(turn), ahead };
    Ok((Chunks::of(spec, Shuffle::default())?, steps.total()))
}

/// What [`fits`] says of chunks and rows, in the words of a loader.
fn batch_too_large(error: Error, options: &LoaderOptions) -> Error {
    match error {
        Error::Budget { needs, limit, hint, .. } => Error::Budget {
            what: format!("a batch of {} windows of {} tokens", options.batch_size, options.block_size),
            needs,
            limit,
            hint: hint.replace("chunks of", "batches of").replace("row", "window"),
        },
        error => error,
    }
}
