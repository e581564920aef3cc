//! Pieces of runs, read part by part: one part while the rows of the last one go to their places.

use super::distribute::{Runs, Task};
use super::plan::{Extent, Part, bounce, parts};
use super::scratch::Scratch;
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::engine::bytes::Data;
use crate::engine::fetch::Fetch;
use crate::engine::job::Input;
use crate::engine::lane::Lane;
use crate::engine::tactics::Gap;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::{Access, Cache, CacheWish, Way, Wish};
use crate::store::{Read, Source};
use crate::sys::crew;
use std::sync::Arc;

/// How the files of runs are read: past the page cache, for nobody reads a run twice.
pub(super) fn lanes(task: &Task, runs: &Runs) -> Result<(Way, Vec<Arc<Lane>>)> {
    let open = |((file, _), input): (&(Arc<Scratch>, Vec<u64>), &Input)| {
        let budget = Some(input.budget().clone());
        let wish = Wish { access: Access::Auto, cache: CacheWish::Drop, budget };
        Data::open(Source::File(Arc::new(file.source()?)), wish)
    };
    let data: Vec<Arc<Data>> = runs.files.iter().zip(&task.job.inputs).map(open).collect::<Result<_>>()?;
    let lanes = |way| data.iter().map(|data| data.lane(way, Cache::Drop, None)).collect::<Result<Vec<_>>>();
    match lanes(Way::Direct) {
        Ok(lanes) => Ok((Way::Direct, lanes)),
        Err(_) => Ok((Way::Read, lanes(Way::Read)?)),
    }
}

/// Memory of the budget; where others hold it, what is not counted.
pub(super) fn memory(budget: &Budget, len: usize) -> Result<Block> {
    match Block::counted(budget, len)? {
        Some(block) => Ok(block),
        None => Block::for_caller(budget, len),
    }
}

/// Reads pieces of an input's runs, each so many rows from some byte on. `place` is told of every part with what was
/// read of it, in order.
pub(super) fn take(
    (lane, input, align): (&Lane, &Input, u64),
    pieces: impl Iterator<Item = (u64, usize)>,
    place: &mut (dyn FnMut(&Part, &Block) + Send),
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let row = input.rows.row_bytes() as u64;
    let bounce = bounce(input.budget().limit(), row, align);
    let parts = parts(pieces, row, bounce as u64, align);
    let (mut one, mut other) = (memory(input.budget(), bounce)?, memory(input.budget(), bounce)?);
    let mut last: Option<&Part> = None;
    for part in parts.iter().map(Some).chain([None]) {
        let read = || part.map_or(Ok(()), |part| read(lane, input, part, &mut one, interrupt));
        let put = || last.into_iter().for_each(|part| place(part, &other));
        let (read, placed) = crew::both(read, put);
        read.unwrap_or(Err(Error::Interrupted))?;
        placed.ok_or(Error::Interrupted)?;
        last = part;
        std::mem::swap(&mut one, &mut other);
    }
    Ok(())
}

/// Reads a part, extent after extent.
fn read(lane: &Lane, input: &Input, part: &Part, into: &mut Block, interrupt: Interrupt<'_>) -> Result<()> {
    let mut rest = &mut **into;
    let read = |extent: &Extent| {
        let len = usize::try_from(extent.bytes.end - extent.bytes.start).unwrap_or(usize::MAX);
        let (into, others) = std::mem::take(&mut rest).split_at_mut(len);
        rest = others;
        Read { offset: extent.bytes.start, into }
    };
    let mut reads: Vec<Read<'_>> = part.iter().map(read).collect();
    Fetch { lane, budget: input.budget(), gap: Gap::Avoided, interrupt }.reads(&mut reads)
}
