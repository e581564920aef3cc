//! Reads the coming chunks of a job, group by group.
//!
//! A group is as many chunks as the budget allows: their rows are read in the order in which they lie in
//! the file, and each goes to its place in its chunk. The first group is one chunk, so that it comes at
//! once; the next ones grow. In a block shuffle a group is a mix, so that every block is read once; a chunk
//! that lies across two mixes waits, half filled, for the second.
//!
//! What a group does is decided once, before it: see [`Outlook`].

use super::choose::{Choice, Sure, Visit};
use super::fetch::Fetch;
use super::fill::{Planned, Positions};
use super::job::{Input, Job};
use super::lane::Clock;
use super::outlook::Outlook;
use super::seen::Trial;
use super::tactics::Gap;
use super::tuning::{CHOOSE_AGAIN, GROWTH_UNSORTED};
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::prefetch::Produce;
use crate::sys::crew;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Chunks that were read together, in order: of each, a block for every input.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) chunks: VecDeque<Vec<Block>>,
    /// How they were read.
    pub(crate) choice: Choice,
    /// How long that took.
    pub(crate) took: Duration,
}

/// Where a reader stands.
#[derive(Debug, Default)]
struct Cursor {
    /// The first step that is not read yet.
    next: u64,
    /// The memory of step `next` where some of it is read already, and the position up to which it is.
    half: Option<(Vec<Block>, u64)>,
    /// How many chunks the last group held.
    ahead: u64,
    /// Steps before this one are read one at a time: one of them failed.
    alone: u64,
}

/// What the pass has learned.
#[derive(Debug)]
struct Seen {
    choices: Vec<Choice>,
    /// When that was; `None` where a sweep has brought the file in since, so that another one may be better now.
    chosen: Option<Duration>,
    /// Bytes of the last group.
    last: usize,
    /// Whether a group of several chunks has been read: if that did not bring the file in, another will not either.
    swept: bool,
}

/// Reads the coming chunks.
#[derive(Debug)]
pub(crate) struct Reader {
    job: Arc<Job>,
    cursor: Cursor,
    seen: Seen,
    /// The rows of the next group, where they were planned while the last one was read.
    planned: Option<Planned>,
    /// Whether the caller works on one group while the next is read: then they share the budget.
    overlap: Arc<AtomicBool>,
    clock: Clock,
}

impl Produce for Reader {
    type Item = Group;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if self.cursor.next >= self.job.steps.count() {
            return None;
        }
        let most = if self.cursor.next < self.cursor.alone { 1 } else { u64::MAX };
        // A network that was waited for in vain would be waited for again.
        let passing = |error: &Error| {
            matches!(error, Error::Interrupted | Error::Closed { .. }) || error.is_unreachable()
        };
        let mut answer = self.read_group(most, Gap::Lost, interrupt);
        if answer.as_ref().is_err_and(|error| !passing(error)) && self.cursor.ahead > 1 {
            // One of many chunks failed: read them one by one, so that the error comes with its own chunk.
            self.cursor.alone = self.cursor.next + self.cursor.ahead;
            answer = self.read_group(1, Gap::Lost, interrupt);
        }
        if answer.as_ref().is_err_and(|error| !passing(error)) {
            // And what lies between its rows may be what cannot be read.
            answer = self.read_group(1, Gap::Avoided, interrupt);
        }
        if let Ok(group) = &answer {
            self.cursor.next += group.chunks.len() as u64;
        } else {
            self.cursor.ahead = 0;
        }
        Some(answer)
    }
}

impl Reader {
    pub(crate) fn new(job: Arc<Job>, next: u64, overlap: Arc<AtomicBool>, clock: Clock) -> Result<Self> {
        let choices = job.choose()?;
        // What an earlier pass learned of the page cache may be hours old: this one begins with what the kernel says now.
        for (input, choice) in job.inputs.iter().zip(&choices) {
            if let (Some(found), Ok(lane)) = (choice.found, input.lane(choice)) {
                lane.found(found);
            }
        }
        let seen = Seen { choices, chosen: Some(clock.now()), last: 0, swept: false };
        Ok(Self { job, cursor: Cursor { next, ..Cursor::default() }, seen, planned: None, overlap, clock })
    }

    /// How chunks are read, as far as that is known (of the first input).
    pub(crate) fn choice(&self) -> Result<&Choice> {
        self.seen.choices.first().ok_or_else(no_inputs)
    }

    /// Whether the next chunk is best read by the caller itself: the first one, so that a short look starts no
    /// thread, and chunks in file order that come from memory.
    pub(crate) fn is_quick(&self) -> bool {
        self.cursor.next == 0 || self.job.path() == Visit::Sequential && !self.waits()
    }

    /// Whether a disk has to be waited for.
    fn waits(&self) -> bool {
        let waits = |(input, choice): (&Input, _)| input.lane(choice).is_ok_and(|lane| lane.cost().waits);
        self.job.inputs.iter().zip(&self.seen.choices).any(waits)
    }

    /// Reads the next chunk, and as many after it as the look-ahead allows, `most` at most. What was half read before
    /// is lost where that fails, and read again.
    fn read_group(&mut self, most: u64, gap: Gap, interrupt: Interrupt<'_>) -> Result<Group> {
        let began = self.clock.now();
        let outlook = self.outlook(gap)?;
        let (mut memory, mut from) = self.memory(&outlook, most)?;
        loop {
            let until;
            (until, self.planned) = self.read_memory(&outlook, &mut memory, from, interrupt)?;
            let last = self.cursor.next + memory.len() as u64 - 1;
            if self.job.steps.range(last).is_none_or(|range| range.end <= until) {
                break;
            }
            // The last one goes on in the next mix: now where it is the only one, else with the next group.
            match (memory.pop(), memory.is_empty()) {
                (Some(half), true) => (memory, from) = (vec![half], until),
                (half, _) => {
                    self.cursor.half = half.map(|half| (half, until));
                    break;
                }
            }
        }
        let chunks = VecDeque::from(memory);
        let took = self.clock.now().saturating_sub(began);
        if chunks.len() > 1 && !self.seen.swept {
            self.seen.swept = true;
            self.seen.chosen = self.seen.chosen.filter(|_| !outlook.iter().any(|outlook| outlook.brings_in));
        }
        self.seen.last = chunks.iter().flatten().map(|block| block.len()).sum();
        if let [Outlook { choice, .. }] = &*outlook
            && choice.sure == Sure::Trial
        {
            self.trial(|trial| trial.note(choice.way, self.seen.last, took));
        }
        let choice = outlook.into_iter().next().ok_or_else(no_inputs)?.choice;
        Ok(Group { chunks, choice, took })
    }

    /// How the next group is read. What is in memory changes while we read, so a choice does not hold for long.
    fn outlook(&mut self, gap: Gap) -> Result<Vec<Outlook>> {
        let automatic = self.job.inputs.iter().any(Input::is_automatic);
        let now = self.clock.now();
        if automatic && self.seen.chosen.is_none_or(|chosen| now.saturating_sub(chosen) > CHOOSE_AGAIN) {
            self.seen.choices = self.job.choose()?;
            self.seen.chosen = Some(now);
        }
        let (first, visit) = (self.cursor.next == 0, self.job.visit());
        let choice = |choice: &Choice| if first { choice.at_first() } else { choice.clone() };
        let mut choices: Vec<Choice> = self.seen.choices.iter().map(choice).collect();
        if let [choice] = &mut *choices
            && automatic
            && choice.sure == Sure::Trial
        {
            choice.way = self.trial(|trial| trial.decide(self.seen.last)).unwrap_or(choice.way);
        }
        let outlook = |(input, choice)| Outlook::new(input, choice, visit, gap);
        self.job.inputs.iter().zip(choices).map(outlook).collect()
    }

    /// What was found of such rows of its one input, in this pass or in an earlier one.
    fn trial<T>(&self, ask: impl FnOnce(&mut Trial) -> T) -> Option<T> {
        let [input] = &*self.job.inputs else { return None };
        Some(input.data.trial((self.job.visit(), input.rows.row_bytes()), ask))
    }

    /// Memory for the steps to read at once, a block for each input, and the position to go on from: what is half read
    /// first.
    fn memory(&mut self, outlook: &[Outlook], most: u64) -> Result<(Vec<Vec<Block>>, u64)> {
        let next = self.cursor.next;
        let start = self.job.steps.range(next).map_or(0, |range| range.start);
        let (mut memory, from) = match self.cursor.half.take() {
            Some((half, until)) => (vec![half], until),
            None => (Vec::new(), start),
        };
        let wanted = self.look_ahead(outlook, from).min(self.job.steps.count() - next).min(most).max(1);
        self.cursor.ahead = wanted;
        for step in next + memory.len() as u64..next + wanted {
            match self.blocks(step, wanted, outlook)? {
                Some(blocks) => memory.push(blocks),
                None => break,
            }
        }
        if memory.is_empty() {
            // Someone else holds the budget. One chunk is the caller's as soon as it is read: it needs none.
            memory.extend(self.blocks(next, 1, outlook)?);
        }
        self.cursor.ahead = memory.len() as u64;
        Ok((memory, from))
    }

    /// How many chunks to read at once.
    fn look_ahead(&self, outlook: &[Outlook], from: u64) -> u64 {
        let (inputs, next) = (&self.job.inputs, self.cursor.next);
        if let Some(order) = self.job.pass.mixes() {
            // To the end of the mix, and no further: the chunk that crosses it is read in two halves.
            let end = order.mix_range(from).end;
            let crossing = |step: &u64| self.job.steps.range(*step).is_some_and(|range| range.start < end);
            return (next..self.job.steps.count()).take_while(crossing).count() as u64;
        }
        let rows = self.job.step_rows(next) as u64;
        let groups = 1 + u64::from(self.overlap.load(Ordering::Relaxed));
        let most =
            |(input, outlook): (&Input, &Outlook)| outlook.most(input, rows, groups, input.sharing(inputs));
        let most = inputs.iter().zip(outlook).map(most);
        let growth = outlook.iter().map(Outlook::growth).max().unwrap_or(GROWTH_UNSORTED);
        // One group is in the caller's hands while the next is read.
        most.min().unwrap_or(1).min(self.cursor.ahead.saturating_mul(growth)).min(self.job.ahead / 2).max(1)
    }

    /// Memory for one step: counted while it waits, the caller's at once where nothing else is read ahead.
    fn blocks(&self, step: u64, wanted: u64, outlook: &[Outlook]) -> Result<Option<Vec<Block>>> {
        let rows = self.job.step_rows(step) as u64;
        let first = self.job.steps.range(step).map_or(0, |range| range.start);
        let block = |(input, outlook): (&Input, &Outlook)| {
            let (budget, len) = (input.budget(), input.rows.bytes(rows));
            let lead = if outlook.straight { input.data.lead(input.rows.offset(first), len) } else { 0 };
            match wanted {
                1 => Some(Block::for_caller_at(budget, len, lead)),
                _ => Block::counted_at(budget, len, lead).transpose(),
            }
        };
        self.job.inputs.iter().zip(outlook).map(block).collect::<Option<_>>().transpose()
    }

    /// Fills the memory of the coming steps, from position `from` up to the one that is returned. While a disk is
    /// waited for, the rows of the mix behind it are planned.
    fn read_memory(
        &self,
        outlook: &[Outlook],
        memory: &mut [Vec<Block>],
        from: u64,
        interrupt: Interrupt<'_>,
    ) -> Result<(u64, Option<Planned>)> {
        let (job, mixes) = (&*self.job, self.job.pass.mixes());
        let until = mixes.map_or(u64::MAX, |order| order.mix_range(from).end);
        let last = self.cursor.next + memory.len() as u64 - 1;
        let waits = outlook.iter().any(|outlook| outlook.cost.waits);
        let positions = Positions { job, next: self.cursor.next, part: from..until };
        // Nobody has planned the first one. Its parts would be of unequal size, and what of one does not fit in a call
        // would wait for the disk once more.
        let whole = waits && job.steps.range(last).is_none_or(|range| range.end >= until);
        let first = mixes.filter(|_| whole && self.planned.is_none()).and_then(|order| positions.plan(order));
        let planned = self.planned.as_ref().or(first.as_ref());
        let mut read = || {
            for (index, (input, outlook)) in job.inputs.iter().zip(outlook).enumerate() {
                // Mapped pages count too: free slabs make way for them.
                let _windows = input.budget().lease(outlook.windows);
                let out = memory.iter_mut().map(|blocks| &mut *blocks[index]);
                let stop = || input.data.stop(interrupt);
                let (lane, budget, gap) = (&*outlook.lane, input.budget(), self.gap(input, outlook));
                let fetch = Fetch { lane, budget, gap, interrupt: &stop };
                positions.fill(input, &fetch, planned, out)?;
            }
            Ok(())
        };
        let Some(order) = mixes.filter(|_| waits) else {
            return read().map(|()| (until, None));
        };
        let plan = || {
            // The last step may go on there.
            let crosses = job.steps.range(last).is_some_and(|range| range.end > until);
            let (next, part) = (last + u64::from(!crosses), until..order.mix_range(until).end);
            Positions { job, next, part }.plan(order)
        };
        let (read, plan) = crew::both(read, plan);
        read.unwrap_or(Err(Error::Interrupted))?; // forked in the middle of it
        Ok((until, plan.flatten()))
    }

    /// What lies between the rows of the next group. The first sweep of a pass through a file that may stay in memory
    /// brings all of it in where that takes less time than the rows to come one by one: plain streams, for which the
    /// kernel makes large requests and large folios, and it is those that later sweeps through a map are fast with.
    fn gap(&self, input: &Input, outlook: &Outlook) -> Gap {
        let wanted = match self.job.visit() {
            Visit::Sequential => true,
            Visit::Shuffled => {
                let steps = self.job.steps;
                let to_come = (steps.count() - self.cursor.next).saturating_mul(steps.batch());
                // Of a file that is half in memory only the rest has to come.
                let (all, cost) = (input.rows.span() as f64 * outlook.lane.missing(), outlook.cost);
                self.cursor.ahead > 1 && !self.seen.swept && to_come as f64 * cost.request > all * cost.byte
            }
            Visit::Blocks | Visit::Random => false,
        };
        match outlook.gap {
            Gap::Lost if outlook.brings_in && wanted => Gap::Wanted,
            gap => gap,
        }
    }
}

/// A job has at least one input: `zip` refuses none.
pub(crate) fn no_inputs() -> Error {
    Error::Bug { what: "rows of no array at all were to be read".into() }
}
