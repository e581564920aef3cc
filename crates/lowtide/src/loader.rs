//! Batches of windows of tokens, epoch after epoch, under any number of ranks.
//!
//! A [`Loader`] is one global stream of windows that does not depend on the number of ranks, and a position in
//! it: that is its whole state. Windows are read ahead, raw, by a thread of the engine, from one epoch of an iteration
//! into the next; they are widened where they are taken, so that what waits is small and what is handed over is still
//! in the caller's cache.

use crate::batch::Batch;
use crate::budget::pool::Block;
use crate::engine::ahead::Ahead;
use crate::engine::bytes::same_data;
use crate::engine::job::{Job, Pass};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::iteration::{Again, Span, Standing};
use crate::options::Access;
use crate::order::{LastStep, Mix, Shard, Steps, Stream, Turn, Within};
use crate::shuffle::{BlockWish, Many, fits, mix, mix_fits};
use crate::tokens::{Tokens, widen_windows};
use crate::widen::Token;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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
    /// Windows anywhere, or whole blocks of neighbours: for a shuffled order.
    pub blocks: BlockWish,
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
            blocks: BlockWish::Exact,
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
    /// The blocks of a block shuffle: they depend on the budget, and the order on them.
    pub mix: Option<Mix>,
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
    /// Where the reading of this iteration began.
    epoch: u64,
    turn: Turn,
    /// The windows of this iteration that are still to come.
    ahead: Ahead,
    standing: Standing,
}

impl Loader {
    /// A loader that stands at the beginning of its first epoch.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are too few tokens for one step, or too few windows in the last one for
    /// every rank to have a batch; [`Error::Budget`] where a batch, or what is mixed, does not fit.
    pub fn new(tokens: &Tokens, options: LoaderOptions) -> Result<Self> {
        if options.epochs == Some(0) {
            return Err(Error::argument("epochs is 0", "None goes on for ever"));
        }
        if options.blocks != BlockWish::Exact && options.order != WindowOrder::Shuffled {
            return Err(Error::argument(
                format!("blocks= is for order=\"shuffled\", this is order=\"{}\"", options.order),
                "leave blocks out",
            ));
        }
        let options = settled(tokens, options)?;
        never_empty(tokens, &options)?;
        let LoaderOptions { epoch, turn, .. } = options;
        let ahead = open(tokens, &options, (epoch, 0), turn)?;
        Ok(Self { tokens: tokens.clone(), options, epoch, turn, ahead, standing: Standing::Ready })
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
        self.ahead.choice().way.into()
    }

    /// Why that one.
    pub fn why(&self) -> &str {
        &self.ahead.choice().why
    }

    /// How many batches one whole iteration has; `None` where it is endless.
    pub fn len(&self) -> Result<Option<u64>> {
        let Some(epochs) = self.options.epochs else { return Ok(None) };
        let windows = stream(&self.tokens, &self.options)?.count();
        let one = steps(&self.options, windows, 0)?.taking(self.options.turn);
        Ok(Some(match self.options.turn {
            Turn::ALL => one.count().saturating_mul(epochs),
            _ => one.through(epochs)?.count(),
        }))
    }

    /// How far the shares of classes in a batch spread if the files are sorted by class, against a perfect shuffle: a
    /// ratio of standard deviations. 1 is perfect, and without blocks it is.
    pub fn predicted_spread(&self) -> f64 {
        match &self.ahead.job().pass {
            Pass::Windows(stream) => stream.predicted_spread(self.options.batch_size as u64),
            _ => 1.0,
        }
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
            Again::NextEpoch if self.remaining() == 0 => (self.next_epoch(), self.next_turn()),
            Again::NextEpoch => (self.epoch, self.turn), // it was loaded as one that is over
            Again::SameEpoch => (span.first, self.options.turn),
        };
        self.ahead = open(&self.tokens, &self.options, (epoch, 0), turn)?;
        (self.epoch, self.turn, self.standing) = (epoch, turn, Standing::Ready);
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
        let turn = if self.remaining() == 0 { self.next_turn() } else { self.turn };
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
        let shape = vec![raw.windows, self.options.block_size];
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
        let tokens = raw.windows * self.options.block_size;
        Some(self.widen(&raw, &mut x[..tokens], &mut y[..tokens]).map(|()| raw.windows))
    }

    fn widen<T: Token>(&self, raw: &Raw, x: &mut [T], y: &mut [T]) -> Result<()> {
        widen_windows(self.tokens.dtype(), &raw.block, self.options.block_size, x, y)
    }

    /// The next windows as they stand in the files.
    fn next_raw(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Raw>> {
        let step = match self.standing {
            Standing::Over => None,
            Standing::Ready | Standing::UnderWay => self.steps().range(self.ahead.taken()),
        };
        let Some(windows) = step else {
            self.standing = Standing::Over;
            return None;
        };
        match self.ahead.next(interrupt)? {
            Ok(mut blocks) => {
                self.standing = if self.remaining() == 0 { Standing::Over } else { Standing::UnderWay };
                let windows = usize::try_from(windows.end - windows.start).unwrap_or(0);
                blocks.pop().map(|block| Ok(Raw { block: block.deliver(), windows }))
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn steps(&self) -> &Steps {
        &self.ahead.job().steps
    }

    /// How many batches are left of this iteration.
    fn remaining(&self) -> u64 {
        self.steps().count() - self.ahead.taken()
    }

    /// The epoch after this iteration's last.
    fn next_epoch(&self) -> u64 {
        let span = self.options.span();
        span.after(self.epoch.wrapping_add(span.left(self.epoch) - 1))
    }

    /// Whose turn it is after this iteration.
    fn next_turn(&self) -> Turn {
        self.turn.after(self.steps().total())
    }

    /// The epoch, and how many of its windows all ranks together have taken, as the caller saw it.
    pub fn place(&self) -> (u64, u64) {
        match (self.remaining(), self.ahead.taken()) {
            (0, _) => (self.next_epoch(), 0),
            (_, 0) => (self.epoch, self.steps().start()),
            (_, taken) => {
                let (epochs, position) = self.steps().place_after(taken - 1);
                (self.epoch.wrapping_add(epochs), position)
            }
        }
    }

    /// Where it stands, as the caller saw it.
    pub fn state(&self) -> Result<LoaderState> {
        let done = self.remaining() == 0;
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
            mix: match self.options.blocks {
                BlockWish::Mix(mix) => Some(mix),
                _ => None,
            },
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
        let blocks = state.mix.map_or(BlockWish::Exact, BlockWish::Mix);
        let options = LoaderOptions { seed: state.seed, blocks, ..self.options };
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
        let windows = stream(&self.tokens, &options)?.count();
        // What is left of its epoch may not fill a step of these ranks: then the epoch is over.
        let (epoch, position) = match steps(&options, windows, position)?.total() {
            0 => (options.span().after(epoch), 0),
            _ => (epoch, position),
        };
        self.ahead = open(&self.tokens, &options, (epoch, position), turn)?;
        (self.options, self.epoch, self.turn) = (options, epoch, turn);
        Ok(())
    }
}

/// Windows of a batch as they stand in the files, end to end.
#[derive(Debug)]
struct Raw {
    block: Block,
    windows: usize,
}

impl LoaderOptions {
    fn span(&self) -> Span {
        Span { first: self.epoch, epochs: self.epochs, again: self.again }
    }

    fn within(&self) -> Within {
        match (self.order, self.blocks) {
            (WindowOrder::WithReplacement, _) => Within::Draws,
            (WindowOrder::Sequential, _) => Within::Sequential,
            (WindowOrder::Shuffled, BlockWish::Mix(mix)) => Within::Blocks(mix),
            (WindowOrder::Shuffled, _) => Within::Shuffled,
        }
    }
}

/// The options with the blocks that they mean: from the budget, which a state need not be loaded under.
fn settled(tokens: &Tokens, options: LoaderOptions) -> Result<LoaderOptions> {
    let windows = stream(tokens, &options)?.count();
    let view = tokens.windows_of(options.block_size);
    let blocks = mix(&[view], windows, options.blocks)?.map_or(BlockWish::Exact, BlockWish::Mix);
    Ok(LoaderOptions { blocks, ..options })
}

/// Where windows begin, epoch after epoch.
fn stream(tokens: &Tokens, options: &LoaderOptions) -> Result<Stream> {
    Stream::new(tokens.len(), options.block_size as u64, options.seed, options.within())
}

/// Refuses what would never give a batch.
fn never_empty(tokens: &Tokens, options: &LoaderOptions) -> Result<()> {
    let windows = stream(tokens, options)?.count();
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

/// The windows from a place of an epoch to the end of its iteration.
fn open(tokens: &Tokens, options: &LoaderOptions, place: (u64, u64), turn: Turn) -> Result<Ahead> {
    let (epoch, position) = place;
    let stream = stream(tokens, options)?.from(epoch);
    let view = tokens.windows_of(options.block_size);
    fits(&view, Many::Windows { batch: options.batch_size, block: options.block_size })?;
    if let (Within::Blocks(mix), Some(largest)) = (stream.within(), stream.largest_mix()) {
        mix_fits(std::slice::from_ref(&view), mix, largest)?;
    }
    let steps = steps(options, stream.count(), position)?.through(options.span().left(epoch))?.taking(turn);
    let (inputs, pass) = (vec![view.input()], Pass::Windows(Arc::new(stream)));
    Ahead::new(Job { inputs, pass, steps, ahead: options.prefetch.unwrap_or(u64::MAX) })
}
