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
    /// Reads in the caller's own thread, until there is a thread for it.
    here: Option<Reader>,
    /// Reads in a thread of its own, a group ahead.
    prefetch: Option<Prefetch<Reader>>,
    choice: Choice,
    overlap: Arc<AtomicBool>,
    /// When the last group was handed over, and how long reading it had taken.
    handed: (Duration, Duration),
    clock: Clock,
    /// No thread of its own: the caller's reads everything.
    alone: bool,
}

impl Ahead {
    pub(crate) fn new(job: Job) -> Result<Self> {
        let job = Arc::new(job);
        let clock = job.inputs.first().ok_or_else(no_inputs)?.data.clock()?;
        let overlap = Arc::new(AtomicBool::new(true));
        let reader = Reader::new(job.clone(), 0, overlap.clone(), clock.clone())?;
        let (choice, handed) = (reader.choice()?.clone(), (clock.now(), Duration::ZERO));
        let (ready, here, prefetch) = (VecDeque::new(), Some(reader), None);
        Ok(Self { job, taken: 0, ready, here, prefetch, choice, overlap, handed, clock, alone: false })
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
        if let Some(error) = self.job.inputs.iter().find_map(|input| input.data.stop(&|| Ok(())).err()) {
            self.ready.clear();
            return Some(Err(error));
        }
        if self.ready.is_empty() {
            match self.next_group(interrupt).transpose()? {
                Ok(Group { chunks, choice, took }) => {
                    (self.ready, self.choice, self.handed) = (chunks, choice, (self.clock.now(), took));
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let blocks = self.ready.pop_front()?;
        self.taken += 1;
        Some(Ok(blocks))
    }

    fn next_group(&mut self, interrupt: Interrupt<'_>) -> Result<Option<Group>> {
        if self.prefetch.as_ref().is_some_and(Prefetch::is_parents) {
            // A forked child: the reading thread is not here. What was read is; go on behind it.
            let (job, overlap, clock) = (self.job.clone(), self.overlap.clone(), self.clock.clone());
            self.here = Some(Reader::new(job, self.taken, overlap, clock)?);
            self.prefetch = None;
        }
        if let Some(reader) = &mut self.here
            && (self.alone || self.job.ahead == 0 || reader.is_quick())
        {
            return reader.produce(interrupt).transpose();
        }
        if let Some(reader) = self.here.take() {
            self.prefetch = Some(Prefetch::new(reader));
        }
        // A caller who takes chunks much faster than they can be read gains nothing from reading ahead, and much
        // from larger groups: fewer sweeps over the file.
        let (handed, took) = self.handed;
        let worked = self.clock.now().saturating_sub(handed);
        let overlap = self.job.path() != Visit::Shuffled || worked * HURRY > took;
        self.overlap.store(overlap, Ordering::Relaxed);
        let pace = if overlap { Pace::Ahead } else { Pace::OnDemand };
        self.prefetch.as_mut().and_then(|prefetch| prefetch.next(pace, interrupt)).transpose()
    }
}
