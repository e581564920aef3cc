//! Sums, means and extremes of all rows, column by column, in one pass inside the budget.
//!
//! Rows go through in pieces that stay in a core's cache: whoever reads a piece folds it at once. From the page cache
//! every core reads pieces of its own; from a disk, and where rows are not in file order, chunks come as they always do,
//! read ahead, and their pieces are shared among the cores. What a piece gives does not depend on which of the two it
//! was, and pieces are joined in their order.

mod kernel;
mod total;

pub use total::{Fold, Folded};

use crate::array::Array;
use crate::budget::pool::Block;
use crate::engine::choose::Visit;
use crate::engine::lane::{Asked, Lane};
use crate::error::{Error, Result};
use crate::format::{Dtype, Order};
use crate::interrupt::Interrupt;
use crate::options::Way;
use crate::order::Cut;
use crate::store::{How, Read};
use crate::sys::{self, crew};
use std::sync::{Arc, Mutex};
use total::{Part, Task, is_possible};

/// Columns that are folded at once: rows of fewer are taken several at a time, so that vectors are full.
const COLUMNS: usize = 64;
/// Rows of a piece at least: joining two pieces takes as long as some rows.
const LEAST_ROWS: usize = 8;
/// Bytes that are shared out at once: the cores meet after them.
const STEP: usize = 16 << 20;
/// How often it is found out again whether the file is in memory.
const CHANGES: usize = 4;

/// How rows are cut.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    /// Elements of a row.
    columns: usize,
    /// Rows that are taken as one.
    together: usize,
    /// Bytes of a row.
    row: usize,
    /// Rows of a piece, and pieces of a step.
    piece: usize,
    pieces: usize,
}

impl Cuts {
    fn width(&self) -> usize {
        self.columns * self.together
    }

    fn step(&self) -> usize {
        self.piece * self.pieces
    }
}

impl Array {
    /// Folds all rows, in pieces of about so many bytes; an entry of the answer for every element of a row. `None` where
    /// that is not possible: for files in Fortran order, for elements that are not native integers or floats of 32 or 64
    /// bits (see [`astype`](Self::astype)), and where there are none.
    ///
    /// # Errors
    /// Where rows cannot be read, or a row does not fit in the budget.
    pub fn fold(&self, fold: Fold, piece: usize, interrupt: Interrupt<'_>) -> Result<Option<Folded>> {
        let kind = self.dtype().kind();
        let columns = self.row_bytes() / kind.itemsize();
        let native = self.dtype() == Dtype::native(kind) && is_possible(fold, kind);
        if !native || self.shape().is_empty() || self.rows() == 0 || columns == 0 || self.order() != Order::C
        {
            return Ok(None);
        }
        let (row, limit) = (self.row_bytes(), self.budget().limit());
        let together = (COLUMNS / columns).max(1);
        let fitting = usize::try_from(limit / 32).unwrap_or(usize::MAX) / row;
        let rows = (piece / row).max(LEAST_ROWS).min(fitting) / together;
        let piece = rows.max(1) * together;
        let step = STEP.min(usize::try_from(limit / 8).unwrap_or(STEP));
        let pieces = (step / (piece * row)).clamp(1, 64);
        let cuts = Cuts { columns, together, row, piece, pieces };
        // A sum and what it lost, of every piece of a step and of all of them.
        let Some(_parts) = self.budget().lease(16 * cuts.width() as u64 * (pieces as u64 + 1)) else {
            return Ok(None);
        };
        Folding { array: self, task: Task::new(fold, kind), cuts, all: None, next: 0, interrupt }
            .run()
            .map(Some)
    }
}

/// A pass over all rows.
struct Folding<'a> {
    array: &'a Array,
    task: Task,
    cuts: Cuts,
    all: Option<Part>,
    /// The first row that is not folded yet.
    next: u64,
    interrupt: Interrupt<'a>,
}

impl Folding<'_> {
    fn run(mut self) -> Result<Folded> {
        // Rows at the end that are too few to be taken together are folded by themselves.
        let whole = self.array.rows() - self.array.rows() % self.cuts.together as u64;
        for _ in 0..CHANGES {
            let Some(lane) = self.lane()? else { break };
            self.by_chunks(whole, Some(&lane))?;
            self.in_memory(whole, &lane)?;
        }
        self.by_chunks(whole, None)?;
        let mut all = self.all.take().map(|all| self.task.narrowed(&all, self.cuts.columns));
        if self.next < self.array.rows() {
            self.cuts = Cuts { together: 1, ..self.cuts };
            self.by_chunks(self.array.rows(), None)?;
            match (&mut all, self.all) {
                (Some(all), Some(last)) => self.task.join(all, last),
                (all, last) => *all = last.or(all.take()),
            }
        }
        let none = || Error::Bug { what: "no rows at all were folded".into() };
        Ok(all.ok_or_else(none)?.finish())
    }

    fn join(&mut self, parts: Vec<Part>, rows: u64) {
        for part in parts {
            match &mut self.all {
                Some(all) => self.task.join(all, part),
                None => self.all = Some(part),
            }
        }
        self.next += rows;
    }

    /// The rows up to `end`, as chunks; with a lane, only until they are seen to come from memory.
    fn by_chunks(&mut self, end: u64, until_warm: Option<&Lane>) -> Result<()> {
        if self.next >= end {
            return Ok(());
        }
        let (task, width) = (self.task, self.cuts.width());
        let rest = self.array.cut(&Cut { seed: None, rows: self.next..end })?;
        let mut chunks =
            rest.chunks(self.cuts.step().min(usize::try_from(end - self.next).unwrap_or(usize::MAX)))?;
        while let Some(chunk) = chunks.next_chunk(self.interrupt) {
            let chunk = chunk?;
            let pieces: Vec<&[u8]> = chunk.bytes().chunks(self.cuts.piece * self.cuts.row).collect();
            let parts = shared(pieces.len(), &|| Some(()), &|(), piece| Ok(task.part(pieces[piece], width)))?;
            self.join(parts, (chunk.bytes().len() / self.cuts.row) as u64);
            if until_warm.is_some_and(|lane| !lane.cost().waits) {
                break;
            }
        }
        Ok(())
    }

    /// The way through the page cache, where that is taken and the rows lie there one after another.
    fn lane(&self) -> Result<Option<Arc<Lane>>> {
        let input = self.array.input();
        if input.dealt.is_some() || input.held.is_some() {
            return Ok(None);
        }
        let choice = input.choose(Visit::Sequential)?;
        if choice.way == Way::Read { input.lane(&choice).map(Some) } else { Ok(None) }
    }

    /// The rows up to `end`, as long as they come from memory: every core reads pieces of its own.
    fn in_memory(&mut self, end: u64, lane: &Lane) -> Result<()> {
        let (task, width, cuts, budget) = (self.task, self.cuts.width(), self.cuts, self.array.budget());
        let rows = self.array.input().rows;
        while self.next < end && !lane.cost().waits {
            self.array.data().stop(self.interrupt)?;
            let until = end.min(self.next + cuts.step() as u64);
            let count =
                usize::try_from((until - self.next).div_ceil(cuts.piece as u64)).unwrap_or(usize::MAX);
            let memory = || Block::counted(budget, cuts.piece * cuts.row).ok().flatten();
            let Some(first) = memory() else { return Ok(()) };
            let first = Mutex::new(Some(first));
            let memory = || sys::locked(&first, Option::take).or_else(memory);
            let read = |memory: &mut Block, piece: usize| {
                let start = self.next + (piece * cuts.piece) as u64;
                let len = usize::try_from(until - start).unwrap_or(usize::MAX).min(cuts.piece) * cuts.row;
                let into = &mut memory[..len];
                lane.read(&mut [Read { offset: rows.offset(start), into }], How::default(), Asked::Now)?;
                Ok(task.part(&memory[..len], width))
            };
            let parts = shared(count, &memory, &read)?;
            self.join(parts, until - self.next);
        }
        Ok(())
    }
}

/// Makes `count` things on all cores, in order. Every core has something of its own to make them with; one that gets
/// nothing makes none.
fn shared<M, T: Send>(
    count: usize,
    own: &(dyn Fn() -> Option<M> + Sync),
    make: &(dyn Fn(&mut M, usize) -> Result<T> + Sync),
) -> Result<Vec<T>> {
    let next = Mutex::new(0..count);
    let done = Mutex::new(Vec::with_capacity(count));
    crew::together((sys::cores() - 1).min(count.saturating_sub(1)), &|| {
        let Some(mut own) = own() else { return };
        while let Some(index) = sys::locked(&next, Iterator::next) {
            let thing = make(&mut own, index);
            sys::locked(&done, |done| done.push((index, thing)));
        }
    });
    let mut done = sys::locked(&done, std::mem::take);
    if done.len() < count {
        return Err(Error::Interrupted); // forked in the middle of it: the others are in another process
    }
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, thing)| thing).collect()
}

#[cfg(test)]
mod tests;
