//! Which pass over the rows of some arrays, and whether it fits.

use crate::array::Array;
use crate::budget::pool::Block;
use crate::door::{BUDGET, Words};
use crate::engine::fill::planned_row_bytes;
use crate::engine::job::Pass;
use crate::engine::shares;
use crate::engine::tuning::REMOTE_BLOCK;
use crate::error::{Error, Result};
use crate::iteration::Again;
use crate::order::{Blocks, LastStep, Mix, Permutation, Shard, Steps};
use crate::size::human;
use std::path::Path;
use std::sync::Arc;

/// The block of `blocks="auto"`: from here on our disk, with many in flight, reads at three quarters of its
/// sequential rate or more. A constant, because the order must not depend on how fast a disk was today.
const BLOCK_BYTES: u64 = 128 << 10;

/// Which shuffled pass, and which part of it.
#[derive(Clone, Debug)]
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
    /// A folder in which the rows are sorted first: the same rows in the same order, from a file that is larger than
    /// memory at the price of two reads and one write of it.
    pub scratch: Option<Arc<Path>>,
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
            scratch: None,
        }
    }
}

/// The order of a shuffled pass.
pub(crate) fn pass(arrays: &[Array], shuffle: &Shuffle) -> Result<Pass> {
    let (rows, &Shuffle { seed, epoch, .. }) = (arrays.first().map_or(0, Array::rows), shuffle);
    if shuffle.blocks != BlockWish::Exact
        && let Some(array) = arrays.iter().find(|array| array.part().is_dealt())
    {
        return Err(Error::argument(
            format!(
                "{}: the rows of this part were dealt one by one: it has no blocks",
                array.path().display()
            ),
            "leave blocks out, or split with seed=None, into parts whose rows are neighbours",
        ));
    }
    if shuffle.scratch.is_some() && shuffle.blocks != BlockWish::Exact {
        return Err(Error::argument(
            "scratch= and blocks= exclude each other: blocks come as quickly as a disk reads without it",
            "scratch= for an exact shuffle, or blocks= for one that mixes blocks",
        ));
    }
    let Some(mix) = mix(arrays, rows, shuffle.blocks)? else {
        return Ok(Pass::Exact(Permutation::new(rows, seed, epoch)));
    };
    let order = Blocks::new(rows, seed, epoch, mix);
    mix_fits(arrays, mix, order.largest_mix())?;
    Ok(Pass::Blocks(order))
}

/// The blocks that are meant; none in an exact shuffle.
pub(crate) fn mix(arrays: &[Array], rows: u64, wish: BlockWish) -> Result<Option<Mix>> {
    Ok(Some(match wish {
        BlockWish::Exact => return Ok(None),
        BlockWish::Mix(mix) => mix,
        BlockWish::Auto => {
            let (row, room) = rooms(arrays);
            let remote = arrays.iter().any(Array::is_remote);
            Mix::choose(row, rows, room, if remote { REMOTE_BLOCK } else { BLOCK_BYTES })
        }
        BlockWish::Rows(block_rows) => {
            let (row, room) = rooms(arrays);
            let fitting = (room / row).saturating_sub(rows % block_rows.max(1));
            Mix::new(block_rows, (fitting / block_rows.max(1)).max(1))?
        }
    }))
}

/// Refuses what cannot be mixed inside the budget: so many rows at most are in a mix.
pub(crate) fn mix_fits(arrays: &[Array], mix: Mix, largest: u64) -> Result<()> {
    for array in arrays {
        let needs = largest.saturating_mul(planned_row_bytes(array.row_bytes()));
        if needs > shares::mix(array.budget().limit()) {
            return Err(Error::Budget {
                what: format!("mixing {} blocks of {} rows", mix.buffer_blocks, mix.block_rows).into(),
                needs: (needs / 5).saturating_mul(16),
                limit: array.budget().limit(),
                hint: Words::from("smaller blocks, or a larger ") + BUDGET,
            });
        }
    }
    Ok(())
}

/// What one row of all arrays takes while it waits, and what they may take together.
fn rooms(arrays: &[Array]) -> (u64, u64) {
    let rooms = arrays.iter().map(|array| {
        let sharing = arrays.iter().filter(|a| a.budget().is(array.budget())).count() as u64;
        (planned_row_bytes(array.row_bytes()), shares::mix(array.budget().limit()) / sharing)
    });
    // The array that fits fewest rows decides.
    rooms.min_by_key(|(row, room)| room / row).unwrap_or((1, 0))
}

/// The same in the words of an array: what a loader calls `batch_size` is its `rows`.
pub(crate) fn of_rows(error: Error) -> Error {
    error.renamed(&[("batch_size", "rows")])
}

pub(crate) fn at_least_one(rows: usize) -> Result<u64> {
    match rows {
        0 => Err(Error::argument("a chunk of 0 rows has no end", "give the number of rows in a chunk")),
        rows => Ok(rows as u64),
    }
}

/// Refuses what would never give a chunk. Where there are no rows, that is as it should be.
pub(crate) fn never_empty(whole: &Steps, rows: u64, shuffle: &Shuffle) -> Result<()> {
    if whole.count() > 0 || rows == 0 {
        return Ok(());
    }
    let step = shuffle.shard.step_words(whole.batch(), "chunk", "chunks");
    Err(Error::argument(
        format!("{step} is never full: there are {rows} rows"),
        "fewer rows in a chunk, or drop_last=False",
    ))
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
    let needs = Block::cost(array.input().rows.bytes(rows));
    if needs > limit && array.input().rows.bytes(rows) > 0 {
        // A block is larger than its chunk, by its size class: a division would promise too much.
        let (mut most, mut too_many) = (0, rows);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            let fits = Block::cost(array.input().rows.bytes(middle)) <= limit;
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
        let needs = Block::cost(array.input().rows.bytes(asked));
        return Err(Error::Budget { what: what.into(), needs, limit, hint: Words::from(hint) + BUDGET });
    }
    Ok(())
}
