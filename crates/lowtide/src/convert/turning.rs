//! An array whose axes are written the other way round: tile after tile is read, turned and written.
//!
//! In: an array, and a writer of its shape. Out: its elements, each where the other order has it. Three hands work at once:
//! one reads the next tile, one turns this one part by part, one writes the parts. With two cores, which the kernel's own
//! work keeps busy, a square matrix of 4 GiB took 9.5 to 10.9 s by hand, and 10.3 to 10.9 where one hand turned and wrote.
//! Memory is the budget's: two tiles, the pages that wait in [`Edges`], and two parts on their way.

use super::edges::Edges;
use super::tiles::{self, Cut, Grow, Tile};
use super::{Loss, PIECE, Work, turn};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::format::Order;
use crate::interrupt::Interrupt;
use crate::selection::Axis;
use crate::sys;
use crate::write::{Scattered, Writer};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{ScopedJoinHandle, scope};

/// Bytes of the input's runs, at least, in what is turned at once: two lines of the cache.
const RUN: usize = 128;
/// Parts that are on their way from the hand that turns to the one that writes, and back.
const PARTS: usize = 2;
/// Bytes that are written together, where the budget has room.
const BUFFER: usize = 8 << 20;

/// Part of a tile as the output has it, in a block that goes back.
struct Part {
    tile: Tile,
    block: Block,
}

/// The hand that turns.
struct Turning<'w, 'a> {
    work: &'w mut Work<'a>,
    /// The array's axes in the order of the output, those of size 1 left out, and their sizes.
    axes: Vec<usize>,
    shape: Vec<usize>,
    /// Elements of a part, at most.
    most: usize,
    /// What is turned before it is cast.
    turned: Block,
    parts: SyncSender<Part>,
    free: Receiver<Block>,
}

/// The hand that writes.
struct Writing<'w> {
    out: Scattered<'w>,
    /// Where the elements begin in the file.
    first: u64,
    edges: Edges,
    /// As the output has its axes.
    shape: Vec<usize>,
    /// Bytes of an element.
    width: usize,
}

/// Writes all elements with the axes the other way round.
pub(super) fn turn(
    work: &mut Work<'_>,
    writer: &mut Writer,
    order: Order,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let array = work.array;
    let (item, width) = (array.dtype().itemsize(), work.dtype.itemsize());
    // The axes of the output, the slowest first; those of size 1 are nowhere.
    let mut axes: Vec<usize> = (0..array.shape().len()).filter(|&axis| array.shape()[axis] > 1).collect();
    if order == Order::Fortran {
        axes.reverse();
    }
    let shape: Vec<usize> = axes.iter().map(|&axis| array.shape()[axis]).collect();
    // The writer has a quarter of it at most, and what reads and merges needs an eighth.
    let limit = usize::try_from(array.budget().limit()).unwrap_or(usize::MAX);
    let (room, page) = (limit / 32 * 7, sys::page());
    let held = limit / 8 / page;
    // Both ends of every run wait.
    let mut size = tiles::sizes(&shape, room / item, Grow::Even { runs: held / 2 });
    let first = writer.data_at();
    let cut = tiles::at_pages(&shape, &mut size, width, first, page);
    let most = (PIECE.min(room / 6) / item.max(width)).max(1);
    let edges = Edges::new(work.block(held * page)?, page);
    let turned = work.block(if work.cast.is_copy() { 0 } else { most * item })?;
    let (parts, coming) = sync_channel(PARTS);
    let (give_back, free) = channel();
    for _ in 0..PARTS {
        let _ = give_back.send(work.block(most * width)?); // the receiver is here
    }
    // Both tiles before anything is read: what reads takes what is left, and does with less.
    let largest = size.iter().product::<usize>() * item;
    let from = work.block(largest)?;
    let other = work.block(if size == shape { 0 } else { largest })?;
    let buffer = buffer(array.budget(), page)?;
    let writing = Writing { first, out: Scattered::new(writer, buffer), edges, shape: shape.clone(), width };
    let mut turning = Turning { work, axes, shape, most, turned, parts, free };
    scope(|scope| {
        // Both channels end with the hand that writes: nobody waits for one that gave up.
        let writing = scope.spawn(move || writing.run(coming, &give_back, interrupt));
        let turned = turning.tiles(&size, cut, (from, other), interrupt);
        drop(turning); // no part comes any more
        join(writing, "writing").and(turned)
    })
}

/// Where whole pages wait for others, to be written together: only where what reads has its room all the same.
fn buffer(budget: &Budget, page: usize) -> Result<Option<Block>> {
    let (limit, len) = (budget.limit(), usize::try_from(budget.limit() / 32).unwrap_or(BUFFER).min(BUFFER));
    let len = len / page * page;
    if budget.available() < Block::cost(len) + limit / 16 {
        return Ok(None);
    }
    Block::counted(budget, len)
}

impl Writing<'_> {
    /// Writes part after part, each run where it belongs, and gives their blocks back.
    fn run(
        mut self,
        coming: Receiver<Part>,
        give_back: &Sender<Block>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (first, width, out) = (self.first, self.width, &mut self.out);
        let mut put = |at: u64, bytes: &[u8]| out.put(at - first, bytes, interrupt);
        for Part { tile, block } in coming {
            let (len, runs) = tile.runs(&self.shape);
            for (bytes, at) in block[..tile.len() * width].chunks_exact(len * width).zip(runs) {
                self.edges.put(first + at * width as u64, bytes, &mut put)?;
            }
            let _ = give_back.send(block); // whoever turns may have ended with an error
        }
        self.edges.finish(&mut put)?;
        self.out.finish(interrupt)
    }
}

impl Turning<'_, '_> {
    /// Turns tile after tile; while one is turned, the next is read.
    fn tiles(
        &mut self,
        size: &[usize],
        cut: Cut,
        (mut from, mut other): (Block, Block),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (array, item) = (self.work.array, self.work.array.dtype().itemsize());
        let mut coming = tiles::tiles_from(&Tile::whole(&self.shape), size, cut);
        let Some(mut tile) = coming.next() else { return Ok(()) };
        array.select_into(self.selected(&tile), &mut from[..tile.len() * item], interrupt)?;
        for next in coming {
            let (wanted, into) = (self.selected(&next), &mut other[..next.len() * item]);
            scope(|scope| {
                let reading = scope.spawn(|| array.select_into(wanted, into, interrupt));
                let turned = self.tile(&tile, &from, interrupt);
                let read = join(reading, "reading");
                turned.and(read)
            })?;
            std::mem::swap(&mut from, &mut other);
            tile = next;
        }
        self.tile(&tile, &from, interrupt)
    }

    /// Turns what was read of a tile, part by part.
    fn tile(&mut self, tile: &Tile, from: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let work = &mut *self.work;
        let (item, width) = (work.array.dtype().itemsize(), work.dtype.itemsize());
        let from = &from[..tile.len() * item];
        let sizes = tiles::sizes(&tile.size, self.most, Grow::Output { least: RUN.div_ceil(item) });
        for part in tiles::tiles(tile, &sizes) {
            let count = part.len();
            let Ok(mut block) = self.free.recv() else { return Ok(()) }; // writing ended, and says why
            let made = &mut block[..count * width];
            if work.cast.is_copy() {
                turn::turn(item, tile, &part, from, made);
            } else {
                let turned = &mut self.turned[..count * item];
                turn::turn(item, tile, &part, from, turned);
                if let (Err(lost), Loss::Refused) = (work.cast.run(turned, made), work.loss) {
                    let mut index = vec![0; work.array.shape().len()];
                    for (&axis, at) in self.axes.iter().zip(part.index(lost)) {
                        index[axis] = at;
                    }
                    return Err(work.lost(&index, &turned[lost * item..(lost + 1) * item]));
                }
            }
            if self.parts.send(Part { tile: part, block }).is_err() {
                return Ok(()); // likewise
            }
            work.step((count * width) as u64, interrupt)?;
        }
        Ok(())
    }

    /// The tile as the array's own axes have it.
    fn selected(&self, tile: &Tile) -> Vec<Axis> {
        let mut selected: Vec<Axis> = self.work.array.shape().iter().map(|&n| Axis::all(n)).collect();
        for (at, &axis) in self.axes.iter().enumerate() {
            let range = tile.range(at);
            selected[axis] = Axis::Range { start: range.start, step: 1, count: range.len() };
        }
        selected
    }
}

/// What a hand ended with.
fn join(hand: ScopedJoinHandle<'_, Result<()>>, what: &str) -> Result<()> {
    hand.join().unwrap_or_else(|_| Err(Error::Bug { what: format!("{what} broke") }))
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
        };
        let error = turn(&mut work, &mut writer, Order::Fortran, &|| Ok(())).unwrap_err();
        assert!(error.to_string().contains("are not in the array"), "{error}");
        assert!(work.done < work.total);
    }
}
