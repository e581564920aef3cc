//! The hand that writes: parts of an output come in blocks, each run of them goes where it belongs.
//!
//! In: parts, made by whoever turns or puts in order. Out: whole pages for the file, in the order in which they come, and
//! the blocks, which go back. Both channels end with this hand: nobody waits for one that gave up.

use super::edges::Edges;
use super::{PIECE, Work};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sys;
use crate::write::{Scattered, Writer};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, ScopedJoinHandle, scope};

/// Parts that are on their way from the hand that makes them to the one that writes, and back.
const PARTS: usize = 2;
/// Bytes that are written together, where the budget has room.
const BUFFER: usize = 8 << 20;

/// Part of the output: runs of one length, one behind the other in a block that goes back.
pub(super) struct Part {
    pub(super) block: Block,
    /// Bytes of a run.
    pub(super) run: usize,
    /// How many bytes behind the first element each begins.
    pub(super) starts: Vec<u64>,
}

/// What a hand has that makes parts.
pub(super) struct Parts {
    parts: SyncSender<Part>,
    free: Receiver<Block>,
}

impl Parts {
    /// Room for a part; `None` where writing ended, and says why.
    pub(super) fn room(&self) -> Option<Block> {
        self.free.recv().ok()
    }

    /// Has a part written; `None` likewise.
    pub(super) fn send(&self, part: Part) -> Option<()> {
        self.parts.send(part).ok()
    }
}

/// The memory of this hand, which is the budget's.
pub(super) struct Memory {
    edges: Block,
    parts: Vec<Block>,
}

impl Memory {
    /// Pages that may wait in a budget for their other half.
    pub(super) fn held(limit: usize) -> usize {
        limit / 8 / sys::page()
    }

    /// Bytes of a part, at most, of tiles of `room` bytes.
    pub(super) fn part(room: usize) -> usize {
        PIECE.min(room / 6)
    }

    /// For parts of so many bytes.
    pub(super) fn new(work: &Work<'_>, limit: usize, part: usize) -> Result<Self> {
        let edges = work.block(Self::held(limit) * sys::page())?;
        let parts = (0..PARTS).map(|_| work.block(part)).collect::<Result<_>>()?;
        Ok(Self { edges, parts })
    }
}

/// Writes the parts that `make` makes, while it makes them.
pub(super) fn written(
    writer: &mut Writer,
    budget: &Budget,
    memory: Memory,
    interrupt: Interrupt<'_>,
    make: impl FnOnce(Parts) -> Result<()>,
) -> Result<()> {
    let (parts, coming) = sync_channel(PARTS);
    let (give_back, free) = channel();
    for block in memory.parts {
        let _ = give_back.send(block); // the receiver is here
    }
    let (first, path) = (writer.data_at(), writer.path().to_owned());
    let out = Scattered::new(writer, buffer(budget, sys::page())?);
    let writing = Writing { first, out, edges: Edges::new(memory.edges, sys::page()) };
    scope(|scope| {
        let write = move || writing.run(coming, &give_back, interrupt);
        let writing = Builder::new().name("lowtide-write".into()).spawn_scoped(scope, write);
        let writing = writing.map_err(|e| Error::no_thread(&path, "start a thread to write from", e))?;
        let answer = make(Parts { parts, free }); // and no part comes any more
        ended(writing, "writing").and(answer)
    })
}

/// Makes parts while what comes next is read; one after the other where no thread is to be had.
pub(super) fn side_by_side(
    make: impl FnOnce() -> Result<()>,
    read: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let todo = Mutex::new(Some(read));
    let read = || sys::locked(&todo, Option::take).map_or(Ok(()), |read| read());
    scope(|scope| {
        let reading = Builder::new().name("lowtide-read".into()).spawn_scoped(scope, read);
        let answer = make();
        answer.and(reading.map_or_else(|_| read(), |reading| ended(reading, "reading")))
    })
}

/// What a hand ended with.
fn ended(hand: ScopedJoinHandle<'_, Result<()>>, what: &str) -> Result<()> {
    hand.join().unwrap_or_else(|_| Err(Error::Bug { what: format!("{what} broke") }))
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

struct Writing<'w> {
    out: Scattered<'w>,
    /// Where the elements begin in the file.
    first: u64,
    edges: Edges,
}

impl Writing<'_> {
    /// Writes part after part, each run where it belongs, and gives their blocks back.
    fn run(
        mut self,
        coming: Receiver<Part>,
        give_back: &Sender<Block>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (first, out) = (self.first, &mut self.out);
        let mut put = |at: u64, bytes: &[u8]| out.put(at - first, bytes, interrupt);
        for Part { block, run, starts } in coming {
            for (bytes, at) in block.chunks_exact(run).zip(starts) {
                self.edges.put(first + at, bytes, &mut put)?;
            }
            let _ = give_back.send(block); // whoever makes parts may have ended with an error
        }
        self.edges.finish(&mut put)?;
        self.out.finish(interrupt)
    }
}
