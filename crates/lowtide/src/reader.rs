//! Reads the coming chunks of an iteration, group by group.
//!
//! A group is as many chunks as the budget allows: their rows are read in the order in which they lie in
//! the file, and each goes to its place in its chunk. The first group is one chunk, so that it comes at
//! once; the next ones grow. In a block shuffle a group is a mix, so that every block is read once; a chunk
//! that lies across two mixes waits, half filled, for the second.

use crate::array::Array;
use crate::batch::Batch;
use crate::budget::Lease;
use crate::choose::{self, Choice, Trial, Visit};
use crate::error::{Error, Result};
use crate::format::Order as AxisOrder;
use crate::order::{Blocks, Draws, Order, Permutation, Sequential, Steps};
use crate::plan::{self, Interrupt};
use crate::pool::Block;
use crate::prefetch::Produce;
use crate::store::{Access, Cache, Gap, Read, Store, WINDOWS, window_for};
use crate::sys::{self, crew};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rows of this size and more gain nothing from being read in file order: each is a long read by itself.
pub(crate) const LARGE_ROW: usize = 64 << 10;
/// Bytes to read ahead in file order from a disk: enough to keep it busy. From memory nothing is read ahead:
/// one chunk's memory, used again and again, stays in the processor's cache, and that is worth twice what a
/// second thread is (measured: 8 GB/s ahead, 15 GB/s at once).
const AHEAD_COLD: u64 = 32 << 20;
/// The same for rows drawn at random from memory: they are read ahead by a second thread, and must still be in
/// the processor's cache when the caller takes them.
const AHEAD_WARM: u64 = 1 << 20;
/// Of a file in memory no more is read ahead than this part of it, whatever the budget: one row in eight is wanted of
/// every sweep then, and more gained nothing (one run beside other work, not kept, 256 MiB in rows of 512 bytes, a quarter:
/// 748,000 rows a second, an eighth: 716,000, all of it: 238,000; 1 GiB, an eighth: 593,000, all that the budget holds:
/// 413,000). What has to come from a disk each time is another matter: there every sweep less is a pass less.
const SWEEPS: u64 = 8;
/// But this much: it still fits in the processor's cache.
const LEAST_SWEEP: u64 = 4 << 20;
/// Threads' stacks, lists of requests, rings: some megabytes that are nobody's block. They are left room for.
const UNCOUNTED: u64 = 6 << 20;
/// The same for each thread that reads: its stack, and what the system's allocator keeps for it.
const THREAD: u64 = 256 << 10;
/// A look-ahead of fewer chunks than this gains nothing from being sorted.
const SORTED: u64 = 16;
/// How long a choice of `auto` holds: what is in memory changes while we read.
const CHOOSE_AGAIN: Duration = Duration::from_millis(250);
/// What planning one row takes: its number, and where it goes.
const PLAN_BYTES: u64 = (size_of::<Read<'_>>() + size_of::<u64>()) as u64;

/// What planning a row ahead takes: its number and its place, and its place again while they are made.
const PLANNED_BYTES: u64 = (size_of::<(u64, u32)>() + size_of::<u32>()) as u64;

/// Fewer rows than this are computed before another thread has come.
const FILL_ALONE: usize = 8192;

/// Which rows, when.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// In file order.
    Sequential(Sequential),
    /// Every row anywhere.
    Exact(Permutation),
    /// Whole blocks, mixed.
    Blocks(Blocks),
    /// Any row, again and again.
    Draws(Draws),
}

impl Pass {
    pub(crate) fn order(&self) -> &dyn Order {
        match self {
            Self::Sequential(order) => order,
            Self::Exact(order) => order,
            Self::Blocks(order) => order,
            Self::Draws(order) => order,
        }
    }

    pub(crate) fn visit(&self) -> Visit {
        match self {
            Self::Sequential(_) => Visit::Sequential,
            Self::Exact(_) => Visit::Shuffled,
            Self::Blocks(_) => Visit::Blocks,
            Self::Draws(_) => Visit::Random,
        }
    }
}

/// Which rows of which arrays: all that a reader needs to know, and that never changes.
#[derive(Debug)]
pub(crate) struct Spec {
    pub(crate) arrays: Vec<Array>,
    pub(crate) pass: Pass,
    pub(crate) steps: Steps,
    /// How many chunks may be read before they are asked for.
    pub(crate) ahead: u64,
}

impl Spec {
    fn step_rows(&self, step: u64) -> usize {
        self.steps.range(step).map_or(0, |r| usize::try_from(r.end - r.start).unwrap_or(0))
    }

    /// In which order rows are visited. What is read ahead is sorted; without look-ahead there is nothing to sort.
    pub(crate) fn visit(&self) -> Visit {
        match self.pass.visit() {
            Visit::Shuffled if self.ahead < SORTED => Visit::Random,
            visit => visit,
        }
    }

    /// How each array is read now.
    pub(crate) fn choose(&self) -> Result<Vec<Choice>> {
        self.arrays.iter().map(|array| choose::access(array, self.visit())).collect()
    }
}

/// What the blocks of a mix may take of a budget: two groups, and a quarter for what reads them.
pub(crate) fn mix_room(budget: u64) -> u64 {
    budget / 16 * 6
}

/// What a row takes while it waits, beside its bytes.
pub(crate) fn planned_row_bytes(row: usize) -> u64 {
    row as u64 + PLAN_BYTES
}

/// Chunks that were read together, in order.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) chunks: VecDeque<Vec<Batch>>,
    pub(crate) choice: Choice,
    /// How long reading it took.
    pub(crate) took: Duration,
}

/// The rows of a group in the order in which they lie in the file, each with its index among the group's positions.
#[derive(Debug)]
struct Planned {
    spans: Vec<Range<u64>>,
    rows: Vec<(u64, u32)>,
    _memory: Lease,
}

/// Reads the coming chunks.
#[derive(Debug)]
pub(crate) struct Reader {
    spec: Arc<Spec>,
    choices: Vec<Choice>,
    chosen: Instant,
    /// The first step that is not read yet.
    next: u64,
    /// The memory of step `next` where some of it is read already, and the position up to which it is.
    half: Option<(Vec<Block>, u64)>,
    /// The rows of the next group, where they were planned while the last one was read.
    planned: Option<Planned>,
    /// How many chunks the last group held.
    ahead: u64,
    /// Steps before this one are read one at a time: one of them failed.
    alone: u64,
    /// Whether a group of several chunks has been read: if that did not bring the file in, another will not either.
    swept: bool,
    /// Whether the caller works on one group while the next is read: then they share the budget.
    overlap: Arc<AtomicBool>,
    trial: Trial,
}

impl Produce for Reader {
    type Item = Group;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        if self.next >= self.spec.steps.count() {
            return None;
        }
        let most = if self.next < self.alone { 1 } else { u64::MAX };
        let answer = match self.read_group(most, interrupt) {
            // One of many chunks failed: read them one by one, so that the error comes with its own chunk.
            Err(error) if self.ahead > 1 && !matches!(error, Error::Interrupted | Error::Closed { .. }) => {
                self.alone = self.next + self.ahead;
                self.read_group(1, interrupt)
            }
            answer => answer,
        };
        if let Ok(group) = &answer {
            self.next += group.chunks.len() as u64;
        } else {
            self.ahead = 0;
        }
        Some(answer)
    }
}

impl Reader {
    pub(crate) fn new(spec: Arc<Spec>, choices: Vec<Choice>, next: u64, overlap: Arc<AtomicBool>) -> Self {
        let chosen = Instant::now();
        Self {
            spec,
            choices,
            chosen,
            next,
            half: None,
            planned: None,
            ahead: 0,
            alone: 0,
            swept: false,
            overlap,
            trial: Trial::default(),
        }
    }

    /// Whether the next chunk is best read by the caller itself: the first one, so that a short look starts no
    /// thread, and chunks in file order that come from memory.
    pub(crate) fn is_quick(&self) -> bool {
        self.next == 0 || self.spec.pass.visit() == Visit::Sequential && !self.waits()
    }

    /// Whether a disk has to be waited for.
    fn waits(&self) -> bool {
        self.spec.arrays.iter().zip(&self.choices).any(|(array, choice)| {
            array.store(choice.access, choice.cache).is_ok_and(|store| store.cost().waits)
        })
    }

    /// Reads the next chunk, and as many after it as the look-ahead allows, `most` at most. What was half read before
    /// is lost where that fails, and read again.
    fn read_group(&mut self, most: u64, interrupt: Interrupt<'_>) -> Result<Group> {
        let began = Instant::now();
        self.choose_again()?;
        let start = self.spec.steps.range(self.next).map_or(0, |range| range.start);
        let (half, mut from) = self.half.take().map_or((None, start), |(half, until)| (Some(half), until));
        let mut memory = self.memory(half, from, most)?;
        loop {
            let planned = self.planned.take();
            let (until, next_plan) = self.read_memory(&mut memory, from, planned.as_ref(), interrupt)?;
            self.planned = next_plan;
            let last = self.next + memory.len() as u64 - 1;
            if self.spec.steps.range(last).is_none_or(|range| range.end <= until) {
                break;
            }
            // The last one goes on in the next mix: now where it is the only one, else with the next group.
            match (memory.pop(), memory.is_empty()) {
                (Some(half), true) => (memory, from) = (vec![half], until),
                (half, _) => {
                    self.half = half.map(|half| (half, until));
                    break;
                }
            }
        }
        let chunks: VecDeque<_> =
            (self.next..).zip(memory).map(|(step, blocks)| self.batches(step, blocks)).collect();
        self.swept |= chunks.len() > 1;
        let took = began.elapsed();
        self.trial.note(&self.choices[0], chunks.len(), took);
        Ok(Group { chunks, choice: self.choices[0].clone(), took })
    }

    fn choose_again(&mut self) -> Result<()> {
        let automatic = |array: &Array| array.access() == Access::Auto;
        if self.chosen.elapsed() > CHOOSE_AGAIN && self.spec.arrays.iter().any(automatic) {
            self.choices = self.spec.choose()?; // the file may be in memory by now
            self.chosen = Instant::now();
        }
        if let [array] = &*self.spec.arrays
            && automatic(array)
        {
            self.trial.decide(&mut self.choices[0]);
        }
        Ok(())
    }

    /// Memory for the steps to read at once, a block for each array: what is half read first.
    fn memory(&mut self, half: Option<Vec<Block>>, from: u64, most: u64) -> Result<Vec<Vec<Block>>> {
        let wanted = self.look_ahead(from)?.min(self.spec.steps.count() - self.next).min(most).max(1);
        let mut memory: Vec<Vec<Block>> = half.into_iter().collect();
        self.ahead = wanted;
        for step in self.next + memory.len() as u64..self.next + wanted {
            match self.blocks(step, wanted)? {
                Some(blocks) => memory.push(blocks),
                None => break,
            }
        }
        if memory.is_empty() {
            // Someone else holds the budget. One chunk is the caller's as soon as it is read: it needs none.
            memory.extend(self.blocks(self.next, 1)?);
        }
        self.ahead = memory.len() as u64;
        Ok(memory)
    }

    /// How many chunks to read at once. While the caller works on one group and the next is being read, they
    /// share the budget; otherwise a group may have all of it.
    fn look_ahead(&self, from: u64) -> Result<u64> {
        let rows = self.spec.step_rows(self.next) as u64;
        let mut most = u64::MAX;
        let mut growth = 4;
        for (array, choice) in self.spec.arrays.iter().zip(&self.choices) {
            let budget = array.budget();
            let windows = windows(array, choice);
            // An eighth stays free: for scratch, for a second iterator, for the chunk in the caller's hand.
            let store = array.store(choice.access, choice.cache)?;
            let uncounted = UNCOUNTED + THREAD * store.threads(usize::MAX) as u64;
            let room = (budget.limit() / 8 * 7).saturating_sub(windows + uncounted.min(budget.limit() / 6));
            let groups = 1 + u64::from(self.overlap.load(Ordering::Relaxed));
            let room = (room / groups).min(budget.available().saturating_sub(windows));
            // Arrays that share a budget share its room.
            let sharing = self.spec.arrays.iter().filter(|a| a.budget().is(budget)).count() as u64;
            let chunk = Block::cost(chunk_bytes(array, rows)).saturating_add(rows * PLAN_BYTES).max(1);
            most = most.min(room / sharing / chunk);
            let visit = self.spec.visit();
            if matches!(visit, Visit::Sequential | Visit::Random) || array.row_bytes() >= LARGE_ROW {
                // Nothing is gained by sorting: enough to keep the store's threads busy.
                let waits = store.cost().waits;
                let busy = match visit {
                    _ if waits => AHEAD_COLD,
                    Visit::Random => AHEAD_WARM,
                    _ => 0,
                };
                most = most.min(busy / chunk);
            } else {
                // From one chunk, which comes at once, to all there is room for. Where the page cache may keep what
                // is read, without steps between: the first sweep brings the whole file in.
                growth = if brings_in(choice, &*store) { u64::MAX } else { 8 };
                if !store.cost().waits || brings_in(choice, &*store) {
                    let all = array.rows().saturating_mul(array.stride());
                    most = most.min((all / SWEEPS).max(LEAST_SWEEP) / chunk);
                }
            }
        }
        if let Pass::Blocks(order) = &self.spec.pass {
            // To the end of the mix, and no further: the chunk that crosses it is read in two halves.
            let end = order.mix_range(from).end;
            let crossing = |step: &u64| self.spec.steps.range(*step).is_some_and(|range| range.start < end);
            return Ok((self.next..self.spec.steps.count()).take_while(crossing).count() as u64);
        }
        // One group is in the caller's hands while the next is read.
        Ok(most.min(self.ahead.saturating_mul(growth)).min(self.spec.ahead / 2).max(1))
    }

    /// Memory for one step: counted while it waits, the caller's at once where nothing else is read ahead.
    fn blocks(&self, step: u64, wanted: u64) -> Result<Option<Vec<Block>>> {
        let rows = self.spec.step_rows(step) as u64;
        let mut blocks = Vec::with_capacity(self.spec.arrays.len());
        for array in &self.spec.arrays {
            let (budget, len) = (array.budget(), chunk_bytes(array, rows));
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

    fn batches(&self, step: u64, blocks: Vec<Block>) -> Vec<Batch> {
        let batch = |(block, array): (Block, &Array)| {
            let mut shape = array.shape().to_vec();
            shape[0] = self.spec.step_rows(step);
            Batch::new(block, array.dtype(), shape, array.layout().order)
        };
        blocks.into_iter().zip(&self.spec.arrays).map(batch).collect()
    }

    /// Fills the memory of the coming steps, from position `from` up to the one that is returned. While a disk is
    /// waited for, the rows of the mix behind it are planned.
    fn read_memory(
        &self,
        memory: &mut [Vec<Block>],
        from: u64,
        planned: Option<&Planned>,
        interrupt: Interrupt<'_>,
    ) -> Result<(u64, Option<Planned>)> {
        let Pass::Blocks(order) = &self.spec.pass else {
            return self.read_arrays(memory, from..u64::MAX, None, interrupt).map(|()| (u64::MAX, None));
        };
        let until = order.mix_range(from).end;
        let next = self.next + memory.len() as u64;
        let mut read = || self.read_arrays(memory, from..until, planned, interrupt);
        if !self.waits() {
            return read().map(|()| (until, None));
        }
        let (read, plan) = crew::both(read, || self.plan(order, next, until));
        read.unwrap_or(Err(Error::Interrupted))?; // forked in the middle of it
        Ok((until, plan.flatten()))
    }

    /// Plans the mix that begins at position `from`, in step `next` or the one before it.
    fn plan(&self, order: &Blocks, next: u64, from: u64) -> Option<Planned> {
        let crosses = self.spec.steps.range(next - 1).is_some_and(|range| range.end > from);
        let part = from..order.mix_range(from).end;
        let spans: Vec<_> = self.spans(next - u64::from(crosses), part).collect();
        let count = spans.iter().map(|span| span.end - span.start).sum::<u64>();
        let large = self.spec.arrays.iter().any(|array| array.row_bytes() >= LARGE_ROW);
        if large || count == 0 || u32::try_from(count).is_err() {
            return None;
        }
        let memory = self.spec.arrays[0].budget().lease(count * PLANNED_BYTES)?;
        let rows = order.in_file_order(&spans);
        Some(Planned { spans, rows, _memory: memory })
    }

    /// The positions of `part` in the steps from `next` on, step by step.
    fn spans(&self, next: u64, part: Range<u64>) -> impl Iterator<Item = Range<u64>> + Clone {
        (next..)
            .map_while(|step| self.spec.steps.range(step))
            .take_while(move |range| range.start < part.end)
            .map(move |range| range.start.max(part.start)..range.end.min(part.end))
            .filter(|span| !span.is_empty())
    }

    fn read_arrays(
        &self,
        memory: &mut [Vec<Block>],
        part: Range<u64>,
        planned: Option<&Planned>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        for (index, (array, choice)) in self.spec.arrays.iter().zip(&self.choices).enumerate() {
            // Mapped pages count too: free slabs make way for them.
            let _windows = array.budget().lease(windows(array, choice));
            let out = memory.iter_mut().map(|blocks| &mut *blocks[index]);
            let stop = || {
                if array.is_closed() {
                    Err(Error::Closed { path: array.path().to_owned() })
                } else {
                    interrupt()
                }
            };
            self.read_array(array, choice, part.clone(), planned, out, &stop)?;
        }
        Ok(())
    }

    /// Where the next group comes from.
    fn store(&self, array: &Array, choice: &Choice) -> Result<Arc<dyn Store>> {
        let store = array.store(choice.access, choice.cache)?;
        if self.next == 0
            && brings_in(choice, &*store)
            && array.access() == Access::Auto
            && self.spec.pass.visit() == Visit::Shuffled
            && array.row_bytes() < LARGE_ROW
        {
            // The first sweep behind this chunk brings the file in. Rows of a first chunk that came through the page
            // cache would be single pages all over it, and where read-ahead meets one it makes no large folios
            // any more: every later sweep through a map took five times as long.
            return array.store(Access::Direct, Cache::Drop).or(Ok(store));
        }
        Ok(store)
    }

    /// What lies between the rows of the next group. The first sweep of a pass through a file that may stay in memory
    /// brings all of it in where that takes less time than the rows to come one by one: plain streams, for which the
    /// kernel makes large requests and large folios, and it is those that later sweeps through a map are fast with.
    fn gap(&self, array: &Array, choice: &Choice, store: &dyn Store) -> Gap {
        let wanted = match self.spec.visit() {
            Visit::Sequential => true,
            Visit::Shuffled => {
                let to_come = (self.spec.steps.count() - self.next).saturating_mul(self.spec.steps.batch());
                let (all, cost) = (array.rows().saturating_mul(array.stride()), store.cost());
                self.ahead > 1 && !self.swept && to_come as f64 * cost.request > all as f64 * cost.byte
            }
            Visit::Blocks | Visit::Random => false,
        };
        if brings_in(choice, store) && wanted { Gap::Wanted } else { Gap::Lost }
    }

    /// Reads one array's rows of the coming steps into `out`, one buffer a step: those at positions in `part`.
    fn read_array<'a>(
        &self,
        array: &Array,
        choice: &Choice,
        part: Range<u64>,
        planned: Option<&Planned>,
        out: impl ExactSizeIterator<Item = &'a mut [u8]>,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let row = array.row_bytes();
        if row == 0 {
            return Ok(());
        }
        let store = &*self.store(array, choice)?;
        let gap = self.gap(array, choice, store);
        let ranges = (self.next..).map_while(|step| self.spec.steps.range(step));
        let mut reads = Vec::new();
        let stride = array.stride();
        if let Pass::Sequential(_) = self.spec.pass
            && stride == row as u64
        {
            if array.layout().order == AxisOrder::Fortran {
                return ranges
                    .zip(out)
                    .try_for_each(|(range, out)| array.rows_into(range, store, out, interrupt));
            }
            let offset = |range: Range<u64>| array.layout().offset + range.start * stride;
            reads.extend(ranges.map(offset).zip(out).map(|(offset, into)| Read { offset, into }));
            return plan::fetch(store, array.budget(), &mut reads, gap, interrupt);
        }
        let total: u64 = ranges.clone().take(out.len()).map(|r| r.end - r.start).sum();
        // Where the budget is in others' hands the plan of a single chunk is made all the same.
        let _plan = array.budget().lease(total * PLAN_BYTES);
        let end = ranges.clone().take(out.len()).last().map_or(0, |range| range.end);
        let spans = self.spans(self.next, part.start..part.end.min(end));
        let offset = |n: u64| array.layout().offset + n * stride;
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
                Read { offset: offset(n), into }
            };
            let work = (planned.rows.len(), planned.rows.len() * row);
            let parts = |share| {
                planned.rows.chunks(share).map(move |rows| rows.iter().map(&mut read).collect::<Vec<_>>())
            };
            return plan::fetch_parts(store, array.budget(), work, parts, gap, interrupt);
        }
        let rows = rows_at(self.spec.pass.order(), spans);
        reads.reserve_exact(rows.len());
        reads.extend(places.zip(rows).map(|(into, n)| Read { offset: offset(n), into }));
        plan::fetch(store, array.budget(), &mut reads, gap, interrupt)
    }
}

/// The rows at some spans of positions, computed by several threads where they are many: a row takes 15 ns.
fn rows_at(order: &dyn Order, spans: impl Iterator<Item = Range<u64>> + Clone) -> Vec<u64> {
    let count = |span: &Range<u64>| usize::try_from(span.end - span.start).unwrap_or(0);
    let mut rows = vec![0; spans.clone().map(|span| count(&span)).sum()];
    let helpers = if rows.len() < FILL_ALONE { 0 } else { sys::cores() - 1 };
    let mut rest = &mut *rows;
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
    rows
}

/// Whether what is read comes from a disk and may stay in the page cache.
fn brings_in(choice: &Choice, store: &dyn Store) -> bool {
    choice.cache == Cache::Keep && store.cost().waits
}

/// Bytes that a mapped way of access may have mapped at once.
fn windows(array: &Array, choice: &Choice) -> u64 {
    match choice.access {
        Access::Remap | Access::Advise => window_for(array.budget().limit()).unwrap_or(0) * WINDOWS,
        _ => 0,
    }
}

/// Bytes of `rows` rows; `usize::MAX` where that overflows, which then fits no budget.
pub(crate) fn chunk_bytes(array: &Array, rows: u64) -> usize {
    usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(array.row_bytes())).unwrap_or(usize::MAX)
}
