//! Reads the coming chunks of a job, group by group.
//!
//! A group is as many chunks as the budget allows: their rows are read in the order in which they lie in
//! the file, and each goes to its place in its chunk. The first group is one chunk, so that it comes at
//! once; the next ones grow. In a block shuffle a group is a mix, so that every block is read once; a chunk
//! that lies across two mixes waits, half filled, for the second.
//!
//! What a group does is decided once, before it: see [`Outlook`].

use super::choose::{Choice, Sure, Visit};
use super::fetch::{fetch, fetch_parts};
use super::job::{Input, Job, Pass};
use super::lane::{Clock, Lane};
use super::seen::Trial;
use super::shares::Shares;
use super::tactics::{Gap, threads};
use super::tuning::{
    AHEAD_COLD, AHEAD_WARM, CHOOSE_AGAIN, FILL_ALONE, GROWTH, GROWTH_UNSORTED, LARGE_ROW, LEAST_SWEEP,
    PLAN_RUNS, SWEEPS,
};
use crate::budget::Lease;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Cache;
use crate::order::{Mixes, Order, Through};
use crate::prefetch::Produce;
use crate::store::{Cost, Read, WINDOWS, window_for};
use crate::sys::{self, crew};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What planning one row takes: its number, and where it goes.
const PLAN_BYTES: u64 = (size_of::<Read<'_>>() + size_of::<u64>()) as u64;
/// What planning a row ahead takes: its number and its place, and its place again while they are made.
const PLANNED_BYTES: u64 = (size_of::<(u64, u32)>() + size_of::<u32>()) as u64;

/// What a row takes while it waits, beside its bytes.
pub(crate) fn planned_row_bytes(row: usize) -> u64 {
    row as u64 + PLAN_BYTES
}

/// Chunks that were read together, in order: of each, a block for every input.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) chunks: VecDeque<Vec<Block>>,
    /// How they were read.
    pub(crate) choice: Choice,
    /// How long that took.
    pub(crate) took: Duration,
}

/// The rows of a group in the order in which they lie in the file, each with its index among the group's positions.
#[derive(Debug)]
struct Planned {
    spans: Vec<Range<u64>>,
    rows: Vec<(u64, u32)>,
    _memory: Lease,
}

/// How one input is read in a group: asked once, so that all of the group sees the same answer.
#[derive(Debug)]
struct Outlook {
    lane: Arc<Lane>,
    cost: Cost,
    /// Bytes that may be mapped at once.
    windows: u64,
    /// What is read comes from a disk and may stay in the page cache: later groups will find it there.
    brings_in: bool,
    /// So many chunks, read at once, keep whoever reads them busy; `None` where more is always better, because
    /// they are sorted.
    enough: Option<u64>,
    /// What of the budget is for chunks.
    room: u64,
    /// What planning a row takes; nothing where chunks are long reads in file order.
    plan: u64,
    care: Care,
}

impl Outlook {
    fn new(input: &Input, choice: &Choice, visit: Visit, care: Care) -> Result<Self> {
        let lane = input.lane(choice.way, choice.cache)?;
        let (cost, nature, limit) = (lane.cost(), lane.nature(), input.budget().limit());
        let windows = if choice.way.has_windows() { window_for(limit).unwrap_or(0) * WINDOWS } else { 0 };
        let sorted =
            !matches!(visit, Visit::Sequential | Visit::Random) && input.rows.row_bytes() < LARGE_ROW;
        let enough = (!sorted).then_some(match visit {
            // As much as there is room for: it takes hundreds of megabytes in flight to fill a network.
            Visit::Sequential if nature.extent.is_some() => u64::MAX,
            _ if cost.waits => AHEAD_COLD,
            Visit::Random => AHEAD_WARM,
            _ => 0,
        });
        let room = Shares::new(limit, windows, threads(&nature, cost, usize::MAX)).ahead;
        let brings_in = choice.cache == Cache::Keep && cost.waits;
        let plan = if visit == Visit::Sequential && input.rows.is_dense() { 0 } else { PLAN_BYTES };
        Ok(Self { lane, cost, windows, brings_in, enough, room, plan, care })
    }

    /// How many chunks of so many rows to read at once, of `sharing` inputs that share one budget; while the caller
    /// works on one group and the next is being read, `groups` is two.
    fn most(&self, input: &Input, rows: u64, groups: u64, sharing: u64) -> u64 {
        let room = (self.room / groups).min(input.budget().available().saturating_sub(self.windows));
        let chunk = Block::cost(input.rows.bytes(rows)).saturating_add(rows * self.plan).max(1);
        let most = room / sharing / chunk;
        match self.enough {
            Some(enough) => most.min(enough / chunk),
            // One row in eight is wanted of every sweep through memory: more gains nothing.
            None if !self.cost.waits || self.brings_in => {
                most.min((input.rows.span() / SWEEPS).max(LEAST_SWEEP) / chunk)
            }
            None => most,
        }
    }

    /// From one chunk, which comes at once, to all there is room for. Where the page cache may keep what is read,
    /// without steps between: the first sweep brings the whole file in.
    fn growth(&self) -> u64 {
        match (self.enough, self.brings_in) {
            (Some(_), _) => GROWTH_UNSORTED,
            (None, true) => u64::MAX,
            (None, false) => GROWTH,
        }
    }
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
    chosen: Duration,
    trial: Trial,
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

/// How much is risked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// Neighbours are read together, with what lies between them.
    Quick,
    /// Not a byte that was not asked for.
    Exact,
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
        let mut answer = self.read_group(most, Care::Quick, interrupt);
        if answer.as_ref().is_err_and(|error| !passing(error)) && self.cursor.ahead > 1 {
            // One of many chunks failed: read them one by one, so that the error comes with its own chunk.
            self.cursor.alone = self.cursor.next + self.cursor.ahead;
            answer = self.read_group(1, Care::Quick, interrupt);
        }
        if answer.as_ref().is_err_and(|error| !passing(error)) {
            // And what lies between its rows may be what cannot be read.
            answer = self.read_group(1, Care::Exact, interrupt);
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
    pub(crate) fn new(
        job: Arc<Job>,
        choices: Vec<Choice>,
        next: u64,
        overlap: Arc<AtomicBool>,
        clock: Clock,
    ) -> Self {
        // What an earlier pass learned of the page cache may be hours old: this one begins with what the kernel says now.
        for (input, choice) in job.inputs.iter().zip(&choices) {
            if let (Some(found), Ok(lane)) = (choice.found, input.lane(choice.way, choice.cache)) {
                lane.found(found);
            }
        }
        let seen = Seen { choices, chosen: clock.now(), trial: Trial::default(), swept: false };
        Self { job, cursor: Cursor { next, ..Cursor::default() }, seen, planned: None, overlap, clock }
    }

    /// Whether the next chunk is best read by the caller itself: the first one, so that a short look starts no
    /// thread, and chunks in file order that come from memory.
    pub(crate) fn is_quick(&self) -> bool {
        self.cursor.next == 0 || self.job.path() == Visit::Sequential && !self.waits()
    }

    /// Whether a disk has to be waited for.
    fn waits(&self) -> bool {
        self.job
            .inputs
            .iter()
            .zip(&self.seen.choices)
            .any(|(input, choice)| input.lane(choice.way, choice.cache).is_ok_and(|lane| lane.cost().waits))
    }

    /// Reads the next chunk, and as many after it as the look-ahead allows, `most` at most. What was half read before
    /// is lost where that fails, and read again.
    fn read_group(&mut self, most: u64, care: Care, interrupt: Interrupt<'_>) -> Result<Group> {
        let began = self.clock.now();
        let choices = self.choose()?;
        let outlook = self.outlook(&choices, care)?;
        let start = self.job.steps.range(self.cursor.next).map_or(0, |range| range.start);
        let (half, mut from) =
            self.cursor.half.take().map_or((None, start), |(half, until)| (Some(half), until));
        let mut memory = self.memory(&outlook, half, from, most)?;
        loop {
            let planned = self.planned.take();
            let (until, next_plan) =
                self.read_memory(&outlook, &mut memory, from, planned.as_ref(), interrupt)?;
            self.planned = next_plan;
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
        self.seen.swept |= chunks.len() > 1;
        if let [choice] = &*choices
            && choice.sure == Sure::Trial
        {
            self.seen.trial.note(choice.way, chunks.len(), took);
        }
        let choice = choices.into_iter().next().ok_or_else(no_inputs)?;
        Ok(Group { chunks, choice, took })
    }

    /// How the next group is read. What is in memory changes while we read, so a choice does not hold for long.
    fn choose(&mut self) -> Result<Vec<Choice>> {
        let automatic = self.job.inputs.iter().any(Input::is_automatic);
        if automatic && self.clock.now().saturating_sub(self.seen.chosen) > CHOOSE_AGAIN {
            self.seen.choices = self.job.choose()?;
            self.seen.chosen = self.clock.now();
        }
        let first = self.cursor.next == 0;
        let mut choices: Vec<Choice> = self
            .seen
            .choices
            .iter()
            .map(|choice| if first { choice.at_first() } else { choice.clone() })
            .collect();
        if let [choice] = &mut *choices
            && automatic
            && choice.sure == Sure::Trial
        {
            choice.way = self.seen.trial.decide();
        }
        Ok(choices)
    }

    fn outlook(&self, choices: &[Choice], care: Care) -> Result<Vec<Outlook>> {
        let visit = self.job.visit();
        self.job
            .inputs
            .iter()
            .zip(choices)
            .map(|(input, choice)| Outlook::new(input, choice, visit, care))
            .collect()
    }

    /// Memory for the steps to read at once, a block for each input: what is half read first.
    fn memory(
        &mut self,
        outlook: &[Outlook],
        half: Option<Vec<Block>>,
        from: u64,
        most: u64,
    ) -> Result<Vec<Vec<Block>>> {
        let next = self.cursor.next;
        let wanted = self.look_ahead(outlook, from).min(self.job.steps.count() - next).min(most).max(1);
        let mut memory: Vec<Vec<Block>> = half.into_iter().collect();
        self.cursor.ahead = wanted;
        for step in next + memory.len() as u64..next + wanted {
            match self.blocks(step, wanted)? {
                Some(blocks) => memory.push(blocks),
                None => break,
            }
        }
        if memory.is_empty() {
            // Someone else holds the budget. One chunk is the caller's as soon as it is read: it needs none.
            memory.extend(self.blocks(next, 1)?);
        }
        self.cursor.ahead = memory.len() as u64;
        Ok(memory)
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
        let most = inputs.iter().zip(outlook).map(|(input, outlook)| {
            let sharing = inputs.iter().filter(|other| other.budget().is(input.budget())).count() as u64;
            outlook.most(input, rows, groups, sharing)
        });
        let growth = outlook.iter().map(Outlook::growth).max().unwrap_or(GROWTH_UNSORTED);
        // One group is in the caller's hands while the next is read.
        most.min().unwrap_or(1).min(self.cursor.ahead.saturating_mul(growth)).min(self.job.ahead / 2).max(1)
    }

    /// Memory for one step: counted while it waits, the caller's at once where nothing else is read ahead.
    fn blocks(&self, step: u64, wanted: u64) -> Result<Option<Vec<Block>>> {
        let rows = self.job.step_rows(step) as u64;
        let mut blocks = Vec::with_capacity(self.job.inputs.len());
        for input in &self.job.inputs {
            let (budget, len) = (input.budget(), input.rows.bytes(rows));
            if wanted == 1 {
                blocks.push(Block::for_caller(budget, len)?);
            } else {
                match Block::counted(budget, len)? {
                    Some(block) => blocks.push(block),
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(blocks))
    }

    /// Fills the memory of the coming steps, from position `from` up to the one that is returned. While a disk is
    /// waited for, the rows of the mix behind it are planned.
    fn read_memory(
        &self,
        outlook: &[Outlook],
        memory: &mut [Vec<Block>],
        from: u64,
        planned: Option<&Planned>,
        interrupt: Interrupt<'_>,
    ) -> Result<(u64, Option<Planned>)> {
        let Some(order) = self.job.pass.mixes() else {
            return self
                .read_inputs(outlook, memory, from..u64::MAX, None, interrupt)
                .map(|()| (u64::MAX, None));
        };
        let until = order.mix_range(from).end;
        let next = self.cursor.next + memory.len() as u64;
        let mut read = || self.read_inputs(outlook, memory, from..until, planned, interrupt);
        if !outlook.iter().any(|outlook| outlook.cost.waits) {
            return read().map(|()| (until, None));
        }
        let (read, plan) = crew::both(read, || self.plan(order, next, until));
        read.unwrap_or(Err(Error::Interrupted))?; // forked in the middle of it
        Ok((until, plan.flatten()))
    }

    /// Plans the mix that begins at position `from`, in step `next` or the one before it.
    fn plan(&self, order: &dyn Mixes, next: u64, from: u64) -> Option<Planned> {
        let crosses = self.job.steps.range(next - 1).is_some_and(|range| range.end > from);
        let part = from..order.mix_range(from).end;
        let spans: Vec<_> = self.spans(next - u64::from(crosses), part).collect();
        let count = spans.iter().map(|span| span.end - span.start).sum::<u64>();
        let large = self.job.inputs.iter().any(|input| input.rows.row_bytes() >= LARGE_ROW);
        if large || count == 0 || u32::try_from(count).is_err() {
            return None;
        }
        let memory = self.job.inputs[0].budget().lease(count * PLANNED_BYTES)?;
        let rows = order.in_file_order(&spans);
        Some(Planned { spans, rows, _memory: memory })
    }

    /// The positions of `part` in the steps from `next` on, step by step.
    fn spans(&self, next: u64, part: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone {
        (next..)
            .map_while(|step| self.job.steps.range(step))
            .take_while(move |range| range.start < part.end)
            .map(move |range| range.start.max(part.start)..range.end.min(part.end))
            .filter(|span| !span.is_empty())
    }

    fn read_inputs(
        &self,
        outlook: &[Outlook],
        memory: &mut [Vec<Block>],
        part: Range<u64>,
        planned: Option<&Planned>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        for (index, (input, outlook)) in self.job.inputs.iter().zip(outlook).enumerate() {
            // Mapped pages count too: free slabs make way for them.
            let _windows = input.budget().lease(outlook.windows);
            let out = memory.iter_mut().map(|blocks| &mut *blocks[index]);
            let stop = || input.data.stop(interrupt);
            self.read_input(input, outlook, part.clone(), planned, out, &stop)?;
        }
        Ok(())
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
                let (all, cost) = (input.rows.span(), outlook.cost);
                self.cursor.ahead > 1
                    && !self.seen.swept
                    && to_come as f64 * cost.request > all as f64 * cost.byte
            }
            Visit::Blocks | Visit::Random => false,
        };
        match outlook.care {
            Care::Exact => Gap::Avoided,
            Care::Quick if outlook.brings_in && wanted => Gap::Wanted,
            Care::Quick => Gap::Lost,
        }
    }

    /// Reads one input's rows of the coming steps into `out`, one buffer a step: those at positions in `part`.
    fn read_input<'a>(
        &self,
        input: &Input,
        outlook: &Outlook,
        part: Range<u64>,
        planned: Option<&Planned>,
        out: impl ExactSizeIterator<Item = &'a mut [u8]>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (rows, budget, lane) = (&input.rows, input.budget(), &*outlook.lane);
        let row = rows.row_bytes();
        if row == 0 {
            return Ok(());
        }
        let gap = self.gap(input, outlook);
        let ranges = (self.cursor.next..).map_while(|step| self.job.steps.range(step));
        if let Pass::Sequential(_) = self.job.pass
            && input.dealt.is_none()
            && rows.is_dense()
        {
            return read_runs(input, lane, ranges.zip(out), gap, interrupt);
        }
        let total: u64 = ranges.clone().take(out.len()).map(|r| r.end - r.start).sum();
        // Where the budget is in others' hands the plan of a single chunk is made all the same.
        let _plan = budget.lease(total * PLAN_BYTES);
        let end = ranges.clone().take(out.len()).last().map_or(0, |range| range.end);
        let spans = self.spans(self.cursor.next, part.start..part.end.min(end));
        let places = ranges.zip(out).flat_map(|(range, out)| {
            let at = |position: u64| {
                usize::try_from(position.clamp(range.start, range.end) - range.start).unwrap_or(0)
            };
            out[at(part.start) * row..at(part.end) * row].chunks_exact_mut(row)
        });
        if let Some(planned) = planned
            && spans.clone().eq(planned.spans.iter().cloned())
        {
            // Part by part, when somebody is ready to read them: meanwhile others are being read.
            let mut places: Vec<&mut [u8]> = places.collect();
            let mut read = |&(n, place): &(u64, u32)| {
                let into = places.get_mut(place as usize).map(std::mem::take).unwrap_or_default();
                Read { offset: rows.offset(n), into }
            };
            let work = (planned.rows.len(), planned.rows.len() * row);
            let parts = |share| {
                planned.rows.chunks(share).map(move |rows| rows.iter().map(&mut read).collect::<Vec<_>>())
            };
            return fetch_parts(lane, budget, work, parts, gap, interrupt);
        }
        let order = self.job.pass.order();
        let numbers = match &input.dealt {
            Some(part) => rows_at(&Through { order, part }, spans),
            None => rows_at(order, spans),
        };
        let mut reads = Vec::with_capacity(numbers.len());
        reads.extend(places.zip(numbers).map(|(into, n)| Read { offset: rows.offset(n), into }));
        fetch(lane, budget, &mut reads, gap, interrupt)
    }
}

/// A job has at least one input: `zip` refuses none.
pub(crate) fn no_inputs() -> Error {
    Error::Bug { what: "rows of no array at all were to be read".into() }
}

/// Rows in file order: a chunk is one long read, or one for each column.
fn read_runs<'a>(
    input: &Input,
    lane: &Lane,
    chunks: impl Iterator<Item = (Range<u64>, &'a mut [u8])>,
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let mut reads = Vec::new();
    for (range, mut out) in chunks {
        for (offset, len) in input.rows.runs(&range) {
            let (into, rest) = out.split_at_mut(len.min(out.len()));
            out = rest;
            reads.push(Read { offset, into });
            if reads.len() == PLAN_RUNS {
                fetch(lane, input.budget(), &mut reads, gap, interrupt)?;
                reads.clear();
            }
        }
    }
    fetch(lane, input.budget(), &mut reads, gap, interrupt)
}

/// The rows at some spans of positions.
fn rows_at(order: &dyn Order, spans: impl Iterator<Item = Range<u64>> + Clone) -> Vec<u64> {
    let count = |span: Range<u64>| usize::try_from(span.end - span.start).unwrap_or(0);
    let mut rows = vec![0; spans.clone().map(count).sum()];
    fill_rows(order, spans, &mut rows);
    rows
}

/// Writes the rows at some spans of positions, computed by several threads where they are many: a row takes 15 ns.
pub(crate) fn fill_rows(order: &dyn Order, spans: impl Iterator<Item = Range<u64>>, rows: &mut [u64]) {
    let count = |span: &Range<u64>| usize::try_from(span.end - span.start).unwrap_or(0);
    let helpers = if rows.len() < FILL_ALONE { 0 } else { sys::cores() - 1 };
    let mut rest = rows;
    let parts = spans.map(|span| {
        let (part, others) = std::mem::take(&mut rest).split_at_mut(count(&span));
        rest = others;
        (span.start, part)
    });
    let parts = Mutex::new(parts.collect::<Vec<_>>().into_iter());
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    crew::together(helpers, &|| {
        while let Some((start, part)) = next() {
            order.fill(start, part);
        }
    });
}
