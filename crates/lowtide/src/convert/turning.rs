//! An array whose axes are written the other way round: tile after tile is read, turned and written.
//!
//! In: an array, and a writer of its shape. Out: its elements, each where the other order has it; in two passes, of which
//! the first leaves it in its strip (see `pieces`), where one would ask for too many short runs. Three hands work at once:
//! one reads the next tile, one turns this one part by part, one writes the parts. With two cores, which the kernel's own
//! work keeps busy, one pass over a square matrix of 4 GiB took 9.5 to 10.9 s by hand, and 10.3 to 10.9 where one hand
//! turned and wrote. Memory is the budget's: two tiles, the pages that wait for their other half, two parts on their way.

use super::passes::{self, How, Passes, Trial};
use super::pieces::Pieces;
use super::plan::Plan;
use super::strips::Strips;
use super::tiles::{self, Grow, Tile};
use super::writing::{Memory, Part, Parts, side_by_side, written};
use super::{Loss, Work, turn};
use crate::budget::pool::Block;
use crate::error::Result;
use crate::format::Order;
use crate::interrupt::Interrupt;
use crate::options::{Cache, Way};
use crate::selection::Axis;
use crate::sys;
use crate::write::Writer;
use std::time::Instant;

/// Bytes of the input's runs, at least, in what is turned at once: two lines of the cache.
const RUN: usize = 128;
/// Tiles and slabs that are turned to see which way is faster: while one is written, the next is read.
const TRIAL: usize = 2;

/// An array whose axes are turned.
struct Turning<'w, 'a> {
    work: &'w mut Work<'a>,
    writer: &'w mut Writer,
    plan: Plan,
    /// Bytes of the budget.
    limit: usize,
    /// The tile that is turned, and the one that is read.
    blocks: (Block, Block),
    /// What is turned before it is cast.
    turned: Block,
    interrupt: Interrupt<'w>,
}

/// The hand that turns.
struct Hand<'w, 'a> {
    work: &'w mut Work<'a>,
    plan: &'w Plan,
    /// Where its parts go: into these, or, without them, where they belong.
    pieces: Option<&'w Pieces>,
    turned: &'w mut Block,
    parts: Parts,
    interrupt: Interrupt<'w>,
}

/// Writes all elements with the axes the other way round.
pub(super) fn turn(
    work: &mut Work<'_>,
    writer: &mut Writer,
    order: Order,
    how: How,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let array = work.array;
    let limit = usize::try_from(array.budget().limit()).unwrap_or(usize::MAX);
    let mut axes: Vec<usize> = (0..array.shape().len()).filter(|&axis| array.shape()[axis] > 1).collect();
    if order == Order::Fortran {
        axes.reverse();
    }
    let shape = axes.iter().map(|&axis| array.shape()[axis]).collect();
    let (item, width) = (array.dtype().itemsize(), work.dtype.itemsize());
    let mut plan = Plan::new((axes, shape), (item, width), limit, (writer.data_at(), sys::page()));
    let strips = strips(work, writer, &plan, how)?;
    let pieces = plan.pieces.take().filter(|_| strips.is_some());
    plan.pieces.clone_from(&pieces);
    let turned = work.block(if work.cast.is_copy() { 0 } else { plan.most * item })?;
    // Both tiles before anything is read: what reads takes what is left, and does with less.
    let room = plan.largest();
    let blocks = (work.block(room)?, work.block(if plan.size == plan.shape { 0 } else { room })?);
    let mut turning = Turning { work, writer, plan, limit, blocks, turned, interrupt };
    let (Some(pieces), Some(strips)) = (pieces, strips) else { return turning.tiles(usize::MAX).map(drop) };
    let (passes, done) = match how {
        How::Said(passes) => (passes, 0),
        How::Tried(choose) => (turning.choose(choose, &pieces)?, TRIAL),
    };
    if passes == Passes::One {
        turning.begin(passes); // all of it: the slabs of the trial were written over its tiles
        return turning.tiles(usize::MAX).map(drop);
    }
    if done == 0 {
        turning.begin(passes);
    }
    turning.slabs(&pieces, done, usize::MAX)?;
    let Turning { work, writer, plan, blocks: (from, other), turned, .. } = turning;
    drop(turned);
    let other = if other.is_empty() { work.block(room)? } else { other };
    let memory = Memory::new(work, limit, plan.most * width)?;
    written(writer, work.array.budget(), memory, interrupt, |parts| {
        strips.run(work, &pieces, (from, other), (&parts, plan.most), interrupt)
    })
}

/// The output as the second of two passes reads it; `None` where one is as good, or two cannot be. What stays in the page
/// cache is put together by the kernel, objects have costs of their own, and what is in memory has none.
fn strips(work: &Work<'_>, writer: &Writer, plan: &Plan, how: How) -> Result<Option<Strips>> {
    match how {
        _ if plan.pieces.is_none() => return Ok(None),
        How::Said(Passes::One) => return Ok(None),
        How::Said(Passes::Two) => return Strips::new(work, writer).map(Some),
        How::Tried(_) => {}
    }
    let is_large = passes::is_large(work.total, work.array.budget().limit());
    if !is_large || writer.cache() != Some(Cache::Drop) || work.array.is_remote() {
        return Ok(None);
    }
    Ok(Some(Strips::new(work, writer)?).filter(|strips| strips.way() == Way::Direct))
}

/// A tile as the array's own axes have it.
fn selected(work: &Work<'_>, plan: &Plan, tile: &Tile) -> Vec<Axis> {
    let mut selected: Vec<Axis> = work.array.shape().iter().map(|&n| Axis::all(n)).collect();
    for (at, &axis) in plan.axes.iter().enumerate() {
        let range = tile.range(at);
        selected[axis] = Axis::Range { start: range.start, step: 1, count: range.len() };
    }
    selected
}

impl Turning<'_, '_> {
    /// Does a little of both ways. Of the first of two passes it can be gone on with.
    fn choose(&mut self, choose: fn(Trial, Trial) -> Passes, pieces: &Pieces) -> Result<Passes> {
        self.begin(Passes::One);
        let one = self.tiles(TRIAL)?;
        self.begin(Passes::Two);
        let first = self.slabs(pieces, 0, TRIAL)?;
        let passes = choose(one, first);
        log::debug!("{}: {passes:?}, because of {one:?} and {first:?}", self.work.array.path().display());
        Ok(passes)
    }

    /// Nothing is written yet, of so many passes.
    fn begin(&mut self, passes: Passes) {
        self.work.done = 0;
        self.work.passes = if passes == Passes::Two { 2 } else { 1 };
    }

    /// Turns the first tiles, or all.
    fn tiles(&mut self, count: usize) -> Result<Trial> {
        let tiles = self.plan.tiles().take(count);
        self.all(tiles, None)
    }

    /// Turns some slabs into pieces.
    fn slabs(&mut self, pieces: &Pieces, from: usize, count: usize) -> Result<Trial> {
        self.all(pieces.slabs().skip(from).take(count), Some(pieces))
    }

    /// Turns tile after tile while others are read and written.
    fn all(&mut self, tiles: impl Iterator<Item = Tile>, pieces: Option<&Pieces>) -> Result<Trial> {
        let Self { work, writer, plan, limit, blocks, turned, interrupt } = self;
        let (began, before, width) = (Instant::now(), work.done, work.dtype.itemsize());
        let memory = Memory::new(work, *limit, plan.most * width)?;
        let budget = work.array.budget().clone();
        written(writer, &budget, memory, *interrupt, |parts| {
            Hand { work, plan, pieces, turned, parts, interrupt: *interrupt }.tiles(tiles, blocks)
        })?;
        let elements = usize::try_from((work.done - before) / width as u64).unwrap_or(usize::MAX);
        Ok(Trial { elements, seconds: began.elapsed().as_secs_f64() })
    }
}

impl Hand<'_, '_> {
    /// Turns tile after tile; while one is turned, the next is read.
    fn tiles(
        &mut self,
        mut coming: impl Iterator<Item = Tile>,
        (from, other): &mut (Block, Block),
    ) -> Result<()> {
        let (array, item, interrupt) = (self.work.array, self.work.array.dtype().itemsize(), self.interrupt);
        let Some(mut tile) = coming.next() else { return Ok(()) };
        let wanted = selected(self.work, self.plan, &tile);
        array.select_into(wanted, &mut from[..tile.len() * item], interrupt)?;
        for next in coming {
            let wanted = selected(self.work, self.plan, &next);
            let into = &mut other[..next.len() * item];
            side_by_side(|| self.tile(&tile, from), || array.select_into(wanted, into, interrupt))?;
            std::mem::swap(from, other);
            tile = next;
        }
        self.tile(&tile, from)
    }

    /// Turns what was read of a tile, where all of it belongs together or piece by piece.
    fn tile(&mut self, tile: &Tile, from: &[u8]) -> Result<()> {
        let from = &from[..tile.len() * self.work.array.dtype().itemsize()];
        let Some(pieces) = self.pieces else {
            return self.piece(tile, (tile, None), from);
        };
        pieces.of(tile).try_for_each(|(piece, at)| self.piece(tile, (&piece, Some(at)), from))
    }

    /// Turns a piece of a tile, part by part. It lies together from element `at` of the output on, or is where it belongs.
    fn piece(&mut self, tile: &Tile, (piece, at): (&Tile, Option<u64>), from: &[u8]) -> Result<()> {
        let work = &mut *self.work;
        let (item, width) = (work.array.dtype().itemsize(), work.dtype.itemsize());
        let sizes = tiles::sizes(&piece.size, self.plan.most, Grow::Output { least: RUN.div_ceil(item) });
        for part in tiles::tiles(piece, &sizes) {
            let count = part.len();
            let Some(mut block) = self.parts.room() else { return Ok(()) }; // writing ended, and says why
            let made = &mut block[..count * width];
            if work.cast.is_copy() {
                turn::turn(item, tile, &part, from, made);
            } else {
                let turned = &mut self.turned[..count * item];
                turn::turn(item, tile, &part, from, turned);
                if let (Err(lost), Loss::Refused) = (work.cast.run(turned, made), work.loss) {
                    let mut index = vec![0; work.array.shape().len()];
                    for (&axis, at) in self.plan.axes.iter().zip(part.index(lost)) {
                        index[axis] = at;
                    }
                    return Err(work.lost(&index, &turned[lost * item..(lost + 1) * item]));
                }
            }
            let (len, runs) = match at {
                None => part.runs(&self.plan.shape),
                Some(_) => part.within(piece).runs(&piece.size),
            };
            let starts = runs.map(|run| (at.unwrap_or(0) + run) * width as u64).collect();
            if self.parts.send(Part { block, run: len * width, starts }).is_none() {
                return Ok(()); // likewise
            }
            work.step((count * width) as u64, self.interrupt)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Checked;
    use super::*;
    use crate::budget::Budget;
    use crate::open::Options;
    use crate::write::WriteOptions;

    /// Whoever turns must not wait for blocks that a writer who gave up will never give back.
    #[test]
    fn a_writer_that_fails_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, made) = (folder.path().join("f.bin"), folder.path().join("small.npy"));
        std::fs::write(&path, vec![1; 1024 * 512 * 4]).unwrap();
        let dtype = crate::format::Dtype::parse("<f4").unwrap();
        let options = Options::new().budget(Budget::new(4 << 20).unwrap()).dtype(dtype);
        let array = options.shape(&[1024, 512]).unwrap().open(&path).unwrap();
        // Too small for all but the first elements: what is written behind them is refused.
        let mut writer = WriteOptions::new().create(&made, dtype, &[Some(16), Some(16)]).unwrap();
        let mut work = Work {
            array: &array,
            cast: Checked::new(dtype, dtype),
            dtype,
            loss: Loss::Refused,
            done: 0,
            total: 1024 * 512 * 4,
            progress: &mut |_, _| {},
            told: None,
            passes: 1,
            shown: 0,
        };
        let error =
            turn(&mut work, &mut writer, Order::Fortran, How::Tried(passes::choose), &|| Ok(())).unwrap_err();
        assert!(error.to_string().contains("are not in the array"), "{error}");
        assert!(work.done < work.total);
    }
}
