//! Chunks one by one, in exact order, while the next group of them is being read.
//!
//! The first chunk is read in the caller's own thread, so that a short look starts nothing; after it a thread of its
//! own reads while the caller works.

use super::choose::{Choice, Visit};
use super::group::{Group, Reader, no_inputs};
use super::job::Job;
use super::lane::Clock;
use super::tuning::HURRY;
use crate::budget::pool::Block;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::prefetch::{Pace, Prefetch, Produce};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The chunks of a job.
#[derive(Debug)]
pub(crate) struct Ahead {
    job: Arc<Job>,
    /// How many were taken.
    taken: u64,
    /// Chunks that are read and not yet taken.
    ready: VecDeque<Vec<Block>>,
    reading: Reading,
    choice: Choice,
    overlap: Arc<AtomicBool>,
    /// When the last group was handed over, and how long reading it had taken.
    handed: (Duration, Duration),
    clock: Clock,
    /// No thread of its own: the caller's reads everything.
    alone: bool,
}

/// Who reads.
#[derive(Debug)]
enum Reading {
    /// The caller's own thread.
    Here(Reader),
    /// A thread of its own, a group ahead.
    Ahead(Prefetch<Reader>),
    /// Nobody, for the moment that it takes to change hands.
    Nobody,
}

impl Ahead {
    pub(crate) fn new(job: Job) -> Result<Self> {
        let job = Arc::new(job);
        let clock = job.inputs.first().ok_or_else(no_inputs)?.data.clock()?;
        let overlap = Arc::new(AtomicBool::new(true));
        let reader = Reader::new(job.clone(), 0, overlap.clone(), clock.clone())?;
        let (choice, handed) = (reader.choice()?.clone(), (clock.now(), Duration::ZERO));
        let (ready, reading) = (VecDeque::new(), Reading::Here(reader));
        Ok(Self { job, taken: 0, ready, reading, choice, overlap, handed, clock, alone: false })
    }

    /// In the caller's own thread, who does nothing but read: then what is simulated does not depend on who was first.
    #[cfg(test)]
    pub(crate) fn alone(mut self) -> Self {
        self.overlap.store(false, Ordering::Relaxed);
        self.alone = true;
        self
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// How the last chunk was read; before the first, how it will be.
    pub(crate) fn choice(&self) -> &Choice {
        &self.choice
    }

    /// How many chunks were taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The next chunk, a block for every input; `None` after the last. After an error the next call tries the same
    /// chunk again.
    pub(crate) fn next(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Vec<Block>>> {
        if let Some(Err(error)) =
            self.job.inputs.iter().map(|input| input.data.stop(&|| Ok(()))).find(Result::is_err)
        {
            self.ready.clear();
            return Some(Err(error));
        }
        if self.ready.is_empty() {
            match self.next_group(interrupt)? {
                Ok(group) => {
                    self.ready = group.chunks;
                    self.choice = group.choice;
                    self.handed = (self.clock.now(), group.took);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let blocks = self.ready.pop_front()?;
        self.taken += 1;
        Some(Ok(blocks))
    }

    fn next_group(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if let Reading::Ahead(prefetch) = &self.reading
            && prefetch.is_parents()
        {
            // A forked child: the reading thread is not here. What was read is; go on behind it.
            let (job, overlap, clock) = (self.job.clone(), self.overlap.clone(), self.clock.clone());
            match Reader::new(job, self.taken, overlap, clock) {
                Ok(reader) => self.reading = Reading::Here(reader),
                Err(error) => return Some(Err(error)),
            }
        }
        if let Reading::Here(reader) = &mut self.reading {
            if self.alone || self.job.ahead == 0 || reader.is_quick() {
                return reader.produce(interrupt);
            }
            if let Reading::Here(reader) = std::mem::replace(&mut self.reading, Reading::Nobody) {
                self.reading = Reading::Ahead(Prefetch::new(reader));
            }
        }
        // A caller who takes chunks much faster than they can be read gains nothing from reading ahead, and much
        // from larger groups: fewer sweeps over the file.
        let (handed, took) = self.handed;
        let worked = self.clock.now().saturating_sub(handed);
        let overlap = self.job.path() != Visit::Shuffled || worked * HURRY > took;
        self.overlap.store(overlap, Ordering::Relaxed);
        let pace = if overlap { Pace::Ahead } else { Pace::OnDemand };
        match &mut self.reading {
            Reading::Ahead(prefetch) => prefetch.next(pace, interrupt),
            Reading::Here(_) | Reading::Nobody => None,
        }
    }
}
