//! An object that is being written: bytes in their order, parts of them on their way, whole or not at all.
//!
//! Bytes are collected into parts, and full ones are sent while the next is filled; all of them lie inside the budget,
//! which says how many are in flight. The head of a file may be known only at its end, as that of `.npy` is: then the first
//! part waits until the end, and all others are sent before it. Nothing is needed on a disk. What fits into one part is
//! sent at once. Dropped before [`finish`](Upload::finish), it leaves nothing.

use super::parts::{MOST_PARTS, Sizes};
use super::runtime::{handle, wait};
use super::target::{All, Target};
use super::{CONNECTION, Stop, Storage};
use crate::budget::pool::Block;
use crate::budget::{Budget, Lease};
use crate::door::{BUDGET, Words};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Existing;
use crate::sys;
use bytes::Bytes;
use object_store::MultipartId;
use object_store::multipart::PartId;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// For whoever has to convert what is written: it is leased here.
pub(crate) const SCRATCH: u64 = 1 << 20;
/// So many parts are in flight at most, and one for each of so many bytes of memory.
const FLIGHTS: (u64, u64) = (16, 16 << 20);
/// How long the memory of a part that was sent may still be in use by its connection.
const LETTING_GO: Duration = Duration::from_secs(5);

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Upload {
    target: Arc<Target>,
    stop: Stop,
    sizes: Sizes,
    flights: usize,
    /// A budget of its own, of what is leased of the caller's.
    memory: Budget,
    _lease: Lease,
    /// Bytes at the beginning that come last.
    head: usize,
    /// The first part, where those are in it.
    held: Option<Block>,
    filling: Option<Block>,
    filled: usize,
    /// Bytes that were taken, the head's included.
    at: u64,
    /// The part that is being filled.
    index: usize,
    id: Option<MultipartId>,
    /// Not touched by a forked child: the tasks are its parent's.
    flying: JoinSet<Result<(usize, PartId)>>,
    sent: BTreeMap<usize, PartId>,
    /// All of a small one, once it is complete.
    whole: Option<Bytes>,
    broken: bool,
    generation: u64,
}

/// A part that is full, as the crate takes it.
struct Full {
    block: Block,
    len: usize,
}

impl AsRef<[u8]> for Full {
    fn as_ref(&self) -> &[u8] {
        &self.block[..self.len]
    }
}

impl Upload {
    /// The least memory that anything can be written in.
    pub(crate) fn least() -> u64 {
        Sizes::least_room() + SCRATCH + CONNECTION
    }

    /// Begins an object of `total` bytes, where that is known, of which the first `head` come last.
    ///
    /// # Errors
    /// [`Error::Io`] where there is one already that is not to be replaced, and as the server has it; [`Error::Budget`].
    pub(crate) fn begin(
        storage: &Storage,
        url: &Path,
        existing: Existing,
        budget: &Budget,
        head: usize,
        total: Option<u64>,
    ) -> Result<Self> {
        let (client, key) = storage.client(url)?;
        if key.as_ref().is_empty() || url.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::argument(
                format!("{}: the address names no object", url.display()),
                "such as s3://bucket/rows.npy",
            ));
        }
        let Memory { lease, flights, sizes, parts } = memory(budget, total)?;
        let memory = Budget::new(parts)?;
        let stop = storage.stop.clone();
        let target = wait(&*stop, || Target::new(url, client, key, existing))?;
        Ok(Self {
            target: Arc::new(target),
            stop,
            sizes,
            flights,
            memory,
            _lease: lease,
            head,
            held: None,
            filling: None,
            filled: head,
            at: head as u64,
            index: 0,
            id: None,
            flying: JoinSet::new(),
            sent: BTreeMap::new(),
            whole: None,
            broken: false,
            generation: sys::generation(),
        })
    }

    /// Where the next byte goes.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Whether this process began it.
    pub(crate) fn is_ours(&self) -> bool {
        self.generation == sys::generation()
    }

    /// Goes back to `at`, where a write ended in the middle.
    ///
    /// # Errors
    /// [`Error::Argument`] where bytes behind it are on their way.
    pub(crate) fn back_to(&mut self, at: u64) -> Result<()> {
        let more = self.at.checked_sub(at).and_then(|more| usize::try_from(more).ok());
        match more.and_then(|more| self.filled.checked_sub(more)) {
            Some(filled) if self.whole.is_none() => {
                (self.filled, self.at) = (filled, at);
                Ok(())
            }
            _ => Err(Error::argument(
                format!("{}: a part of rows that failed was sent already", self.target.url.display()),
                "an object is written in order: begin again",
            )),
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::Io`] as the server has it: then the upload is given up. What `interrupt` says.
    pub(crate) fn write(&mut self, mut bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        if self.broken || self.whole.is_some() {
            return Err(Error::Closed { path: self.target.url.clone() });
        }
        while !bytes.is_empty() {
            let size = self.sizes.of(self.index);
            if self.filled == size {
                self.next(interrupt)?;
                continue;
            }
            let block = match self.filling.take() {
                Some(block) => block,
                None => self.block(size, interrupt)?,
            };
            let block = self.filling.insert(block);
            let (now, later) = bytes.split_at(bytes.len().min(size - self.filled));
            block[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            self.at += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// The part is full, and more comes.
    fn next(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        if self.index + 1 >= MOST_PARTS {
            self.give_up();
            return Err(Error::Budget {
                what: format!("{}: an object of more than {} bytes", self.target.url.display(), self.at)
                    .into(),
                needs: 2 * self.memory.limit(),
                limit: self.memory.limit(),
                hint: Words::from(
                    "parts are as large as memory allows, and there are 10,000 at most: a larger ",
                ) + BUDGET,
            });
        }
        if self.id.is_none() {
            self.id = Some(wait(interrupt, || self.target.begin())?);
        }
        self.take_answers(interrupt, self.flights.saturating_sub(1))?;
        let block = self.filling.take().ok_or_else(bug)?;
        if self.index == 0 && self.head > 0 {
            self.held = Some(block);
        } else {
            self.send(self.index, block, self.filled)?;
        }
        (self.index, self.filled) = (self.index + 1, 0);
        Ok(())
    }

    fn send(&mut self, index: usize, block: Block, len: usize) -> Result<()> {
        let id = self.id.clone().ok_or_else(bug)?;
        let part = Bytes::from_owner(Full { block, len });
        self.flying.spawn_on(self.target.clone().send(id, index, part), &handle()?);
        Ok(())
    }

    /// Memory for a part: where there is none, one that was sent gives it back.
    fn block(&mut self, size: usize, interrupt: Interrupt<'_>) -> Result<Block> {
        let mut alone: Option<Instant> = None;
        loop {
            if let Some(block) = Block::counted(&self.memory, size)? {
                return Ok(block);
            }
            if !self.flying.is_empty() {
                self.take_answers(interrupt, self.flying.len() - 1)?;
                continue;
            }
            // A connection that was given up holds what it was sending a little longer.
            if alone.get_or_insert_with(Instant::now).elapsed() > LETTING_GO {
                return Err(Error::Budget {
                    what: "writing an object".into(),
                    needs: Block::cost(size),
                    limit: self.memory.available(),
                    hint: Words::from("a larger ") + BUDGET,
                });
            }
            interrupt()?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no more than so many are in flight.
    fn take_answers(&mut self, interrupt: Interrupt<'_>, most: usize) -> Result<()> {
        while self.flying.len() > most {
            let flying = &mut self.flying;
            let answer = wait(interrupt, move || async move { Ok(flying.join_next().await) })?;
            match answer {
                Some(Ok(Ok((index, part)))) => drop(self.sent.insert(index, part)),
                Some(Ok(Err(error))) => {
                    self.give_up();
                    return Err(error);
                }
                Some(Err(_)) => {
                    self.give_up();
                    return Err(Error::Bug { what: "a part that was being sent broke".into() });
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Waits until the server has all full parts but the one that is held.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn settle(&mut self) -> Result<()> {
        let stop = self.stop.clone();
        self.take_answers(&*stop, 0)
    }

    /// Makes it an object, with this head; gives its tag. Where the server fails now, it may be tried again.
    ///
    /// # Errors
    /// [`Error::Io`] as the server has it, and where an object appeared meanwhile.
    pub(crate) fn finish(&mut self, head: &[u8]) -> Result<Option<String>> {
        if self.broken {
            return Err(Error::Closed { path: self.target.url.clone() });
        }
        let stop = self.stop.clone();
        if let (None, None) = (&self.id, &self.whole) {
            let mut block = match self.filling.take() {
                Some(block) => block,
                None => self.block(self.filled.max(1), &*stop)?,
            };
            block[..head.len()].copy_from_slice(head);
            self.whole = Some(Bytes::from_owner(Full { block, len: self.filled }));
        }
        let all = match (&self.id, &self.whole) {
            (Some(id), _) => {
                let id = id.clone();
                if let Some(mut block) = self.held.take() {
                    block[..head.len()].copy_from_slice(head);
                    self.send(0, block, self.sizes.of(0))?;
                }
                if let Some(block) = self.filling.take().filter(|_| self.filled > 0) {
                    self.send(self.index, block, self.filled)?;
                }
                self.take_answers(&*stop, 0)?;
                All::Parts(id, self.sent.values().cloned().collect())
            }
            (None, Some(whole)) => All::Bytes(whole.clone()),
            (None, None) => return Err(bug()),
        };
        let (target, len) = (self.target.clone(), self.at);
        let tag = wait(&*stop, || target.finish(all, len))?;
        (self.id, self.whole, self.broken) = (None, None, true);
        Ok(tag)
    }

    /// Gives it up: parts that the server has are forgotten there.
    fn give_up(&mut self) {
        self.broken = true;
        (self.filling, self.held, self.whole) = (None, None, None);
        if !self.is_ours() {
            return;
        }
        let (id, flying, target) = (self.id.take(), &mut self.flying, self.target.clone());
        // Parts that arrive behind the goodbye would stay: none is on its way any more then.
        let _ = wait(&|| Ok(()), move || async move {
            flying.shutdown().await;
            if let Some(id) = id {
                target.give_up(id).await;
            }
            Ok(())
        });
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(std::mem::take(&mut self.flying)); // the tasks are the parent's, and so is the upload
        } else if self.id.is_some() || !self.flying.is_empty() {
            self.give_up();
        }
    }
}

/// What is leased of a budget, how much of it is for parts, how many are in flight, and how large they are.
struct Memory {
    lease: Lease,
    parts: u64,
    flights: usize,
    sizes: Sizes,
}

fn memory(budget: &Budget, total: Option<u64>) -> Result<Memory> {
    let available = budget.available();
    // Whoever reads what is written, from the same budget, has the rest.
    let share = (available / 4 * 3).max(Upload::least()).min(available);
    let flights = (share / FLIGHTS.1).clamp(1, FLIGHTS.0);
    let others = SCRATCH + flights * CONNECTION;
    let too_little = |needs: u64| Error::Budget {
        what: "writing an object".into(),
        needs,
        limit: budget.limit().min(available),
        hint: Words::from("parts of it are in memory until the server has them: a larger ") + BUDGET,
    };
    let parts = share.saturating_sub(others);
    let sizes = Sizes::new(parts, total);
    let whole = share == available;
    let sizes = sizes.map_err(|needs| {
        let needs = needs.saturating_add(others);
        too_little(if whole { needs } else { (needs / 3).saturating_mul(4).saturating_add(4) })
    })?;
    let lease = budget.lease(share).ok_or_else(|| too_little(share))?;
    Ok(Memory { lease, parts, flights: usize::try_from(flights).unwrap_or(1), sizes })
}

fn bug() -> Error {
    Error::Bug { what: "an upload lost its place".into() }
}
