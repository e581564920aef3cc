//! Many small reads become few large ones.
//!
//! In: reads in any order, each with its place in somebody's buffer. They are sorted by offset, and
//! neighbours are merged while reading the gap between them is cheaper than one more request, by the
//! store's own cost. Merged reads go through a scratch buffer of the budget and are scattered from
//! there; all others go straight to their place. Deciding is a pure function, [`extents`].

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::pool::Block;
use crate::store::{Cost, Gap, Hints, LONG, Read, Store};
use crate::sys::crew;
use crate::sys::far::Far;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The scratch for merged reads from memory: it must stay in a core's cache to be scattered from cheaply.
const SCRATCH_WARM: usize = 256 << 10;
/// The scratch for merged reads from a disk: so much is in flight at once.
const SCRATCH_COLD: usize = 4 << 20;
/// The largest merged request from a disk: with whole pages at both ends the smallest scratch holds it.
const CAP: u64 = SCRATCH_WARM as u64 - (8 << 10);
/// And from memory: what is scattered has to stay in the core's nearest caches. Sweeps of merged requests of 64
/// KiB took 0.8 of the time of those of 512 KiB.
const CAP_WARM: u64 = 64 << 10;
/// The most requests in one call to the store, and their bytes: bounds how long nobody looks for a signal.
const CALL: (usize, usize) = (4096, 32 << 20);
/// Longer reads are cut: a megabyte from a disk takes a thousand times as long as asking for it.
const PIECE: usize = 1 << 20;
/// From memory 20 µs of copying, against 0.3 µs for asking: two threads share a chunk of 2 MiB evenly.
const PIECE_WARM: usize = 256 << 10;
/// Parts for each thread.
const PARTS: usize = 4;
/// Below this many nanoseconds of expected work, waking a thread (5 µs, and 20 until it runs) gains too little.
const ALONE: f64 = 50_000.0;
/// So many reads are quickly looked through for any that could be merged.
const FEW: usize = 64;
/// What touching a row in memory costs at least, in nanoseconds, whatever a store says of its requests.
const TOUCH: f64 = 100.0;
/// Copying one byte out of the scratch, in nanoseconds: 10 GB/s, in cache.
const SCATTER: f64 = 0.1;
/// From so many bytes on, the first are out of the processor's caches before somebody looks at them.
const FAR: usize = 16 << 20;
/// How often somebody is asked whether to go on.
const ASK: Duration = Duration::from_millis(50);

/// Asked every now and then during long work; an error ends the work and is passed on.
pub type Interrupt<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// One request to a store: bytes of the file, and which of the sorted reads it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The bytes of the file.
    pub bytes: Range<u64>,
    /// The reads, by their index.
    pub reads: Range<usize>,
}

impl Extent {
    /// Whether it has to be scattered: one read goes straight to its place.
    fn is_merged(&self) -> bool {
        self.reads.len() > 1
    }

    fn len(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(usize::MAX)
    }
}

/// Groups reads, given by their byte ranges sorted by start, into requests. Lazily: memory does not grow.
pub fn extents(
    sorted: impl ExactSizeIterator<Item = Range<u64>>,
    cost: Cost,
) -> impl Iterator<Item = Extent> {
    let mut sorted = sorted.enumerate().peekable();
    let cap = if cost.waits { CAP } else { CAP_WARM };
    std::iter::from_fn(move || {
        let (index, bytes) = sorted.next()?;
        let mut extent = Extent { bytes, reads: index..index + 1 };
        let mut scatter_first = (extent.bytes.end - extent.bytes.start) as f64 * SCATTER;
        while let Some((_, next)) = sorted.peek() {
            let end = extent.bytes.end.max(next.end);
            let gap = next.start.saturating_sub(extent.bytes.end) as f64;
            let overlap = extent.bytes.end.min(next.end).saturating_sub(next.start) as f64;
            let extra =
                (gap - overlap) * cost.byte + (next.end - next.start) as f64 * SCATTER + scatter_first;
            // Where requests cost nothing there is no scratch to merge in, whatever two reads have in common.
            if extra >= cost.request || cost.request <= 0.0 {
                break;
            }
            if end - extent.bytes.start > cap {
                // The next extent goes on where this one ends: a gap that is cheap to read is cheaper still when it
                // does not make the kernel think that we jump about. As far as the cap: a scratch holds no more.
                let capped = next.start.min(extent.bytes.start.saturating_add(cap));
                extent.bytes.end = extent.bytes.end.max(capped);
                break;
            }
            scatter_first = 0.0;
            extent.bytes.end = end;
            extent.reads.end += 1;
            sorted.next();
        }
        Some(extent)
    })
}

/// Fulfils `reads` through `store`, with several threads where that is worth it. They are left in some
/// other order.
pub fn fetch(
    store: &dyn Store,
    budget: &Budget,
    reads: &mut [Read<'_>],
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let cost = store.cost();
    let bytes: usize = reads.iter().map(|r| r.into.len()).sum();
    let piece = if cost.waits { PIECE } else { PIECE_WARM };
    if reads.iter().any(|r| r.into.len() > piece) {
        // Long reads in pieces: so that threads can share them, and so that they can be interrupted.
        let mut pieces = Vec::with_capacity(reads.len() + bytes / piece);
        for read in reads {
            let mut offset = read.offset;
            for into in read.into.chunks_mut(piece) {
                pieces.push(Read { offset, into });
                offset += piece as u64;
            }
        }
        let work = (pieces.len(), bytes);
        return fetch_parts(
            store,
            budget,
            work,
            |share| parts(&mut pieces, share).into_iter(),
            gap,
            interrupt,
        );
    }
    let work = (reads.len(), bytes);
    fetch_parts(store, budget, work, |share| parts(reads, share).into_iter(), gap, interrupt)
}

/// The same for reads that are made part by part, when a thread takes them: `count` of them with so many `bytes`.
/// `parts` is told how many belong in one.
pub fn fetch_parts<'b, P: AsMut<[Read<'b>]>, I: Iterator<Item = P> + Send>(
    store: &dyn Store,
    budget: &Budget,
    (count, bytes): (usize, usize),
    parts: impl FnOnce(usize) -> I,
    gap: Gap,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let mut cost = store.cost();
    let expected = count as f64 * cost.request.max(TOUCH) + bytes as f64 * cost.byte;
    // A stream and long requests are shared by as many as help, however few they are: there is copying to do.
    let shared = gap == Gap::Wanted || bytes / count.max(1) >= LONG;
    let requests = if shared { usize::MAX } else { count };
    let threads = if expected < ALONE { 1 } else { store.threads(requests).clamp(1, count.max(1)) };
    let hints = Hints { gap, far: bytes >= FAR };
    if gap == Gap::Wanted {
        cost.byte = 0.0;
    }
    // More parts than threads: who comes late or is slow does fewer of them. From a disk no smaller ones than are to
    // be in flight at once; and a stream through the file is one part.
    let parts_each = if gap == Gap::Wanted { 1 } else { PARTS };
    let least = if cost.waits { count.saturating_mul(SCRATCH_COLD) / bytes.max(1) } else { 1 };
    let share = count.div_ceil(threads * parts_each).max(least).min(count.div_ceil(threads));
    let parts = Mutex::new(parts(share.max(1)));
    let began = Instant::now();
    let answer = Mutex::new((0, 0, 0, Ok(())));
    let stop = AtomicBool::new(false);
    let ask = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { interrupt() };
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    crew::together(threads - 1, &|| {
        let mut hand = Hand { hints, scratch: None, most: CALL.0 / 16, asked: Instant::now() };
        while let Some(mut part) = next() {
            let part = part.as_mut();
            if !is_sorted(part) {
                part.sort_unstable_by_key(|r| r.offset);
            }
            let (done, result) = (part.len(), hand.fetch(store, budget, part, cost, &ask));
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok((requests, bytes)) => {
                    answer.0 += done;
                    answer.1 += requests;
                    answer.2 += bytes;
                }
                // The first error that is not only another thread's stop.
                Err(error) if matches!(answer.3, Ok(()) | Err(Error::Interrupted)) => answer.3 = Err(error),
                Err(_) => {}
            }
            if answer.3.is_err() {
                return;
            }
        }
    });
    let (done, requests, bytes, answer) = answer.into_inner().unwrap_or_else(PoisonError::into_inner);
    answer?;
    if done < count {
        return Err(Error::Interrupted); // forked in the middle of it: the others are in another process
    }
    store.learn(requests, bytes, began.elapsed());
    Ok(())
}

/// Cuts `reads` into parts of about `share`, each of them a stretch of the file. What is sorted stays so; other
/// parts are sorted by whoever takes them: sorting all at once would keep one thread busy and the rest waiting.
fn parts<'r, 'b>(reads: &'r mut [Read<'b>], share: usize) -> Vec<&'r mut [Read<'b>]> {
    if is_sorted(reads) || reads.len() <= share {
        return reads.chunks_mut(share).collect();
    }
    let ends = deal(reads, reads.len().div_ceil(share));
    if std::iter::once(&0).chain(&ends).zip(&ends).any(|(start, end)| end - start > 4 * share) {
        // All in one corner of the file: stretches of equal length share nothing.
        reads.sort_unstable_by_key(|r| r.offset);
        return reads.chunks_mut(share).collect();
    }
    let (mut rest, mut at, mut parts) = (reads, 0, Vec::with_capacity(ends.len()));
    for end in ends {
        let (part, others) = rest.split_at_mut(end - at);
        (rest, at) = (others, end);
        if !part.is_empty() {
            parts.push(part);
        }
    }
    parts
}

/// Moves reads so that those of each of `stretches` equal stretches of the file come together, in the order
/// of the stretches. Says where each one ends.
fn deal(reads: &mut [Read<'_>], stretches: usize) -> Vec<usize> {
    let offsets = || reads.iter().map(|r| r.offset);
    let (first, last) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
    let length = (last - first) / stretches as u64 + 1;
    let of = |read: &Read<'_>| usize::try_from((read.offset - first) / length).unwrap_or(0);
    let mut counts = vec![0; stretches];
    for read in &*reads {
        counts[of(read)] += 1;
    }
    let ends: Vec<usize> = counts
        .iter()
        .scan(0, |end, count| {
            *end += count;
            Some(*end)
        })
        .collect();
    let mut next: Vec<usize> = ends.iter().zip(&counts).map(|(end, count)| end - count).collect();
    for mine in 0..stretches {
        while next[mine] < ends[mine] {
            // Each swap brings one read to where it belongs.
            let at = next[mine];
            let theirs = of(&reads[at]);
            if theirs != mine {
                reads.swap(at, next[theirs]);
            }
            next[theirs] += 1;
        }
    }
    ends
}

fn is_sorted(reads: &[Read<'_>]) -> bool {
    reads.is_sorted_by_key(|r| r.offset)
}

/// What one thread keeps from part to part.
struct Hand {
    hints: Hints,
    scratch: Option<Block>,
    /// Requests in a call. 4,096 cold faults can take a minute: calls grow only while they are short.
    most: usize,
    /// When somebody was last asked whether to go on.
    asked: Instant,
}

impl Hand {
    /// One part: sorted reads, call by call. Says how many requests and bytes that were.
    fn fetch(
        &mut self,
        store: &dyn Store,
        budget: &Budget,
        reads: &mut [Read<'_>],
        mut cost: Cost,
        interrupt: Interrupt<'_>,
    ) -> Result<(usize, usize)> {
        let merges = |reads: &[Read<'_>]| {
            extents(reads.iter().map(|r| r.offset..r.end()), cost).any(|e| e.is_merged())
        };
        if self.scratch.is_none()
            && reads.len() > 1
            && cost.request > 0.0
            && (reads.len() > FEW || merges(reads))
        {
            self.scratch = scratch(budget, cost)?;
        }
        if self.scratch.is_none() {
            cost.request = 0.0; // nothing can be merged without a scratch
        }
        let scratch: &mut [u8] = self.scratch.as_deref_mut().unwrap_or_default();
        let (mut done, mut sum) = (0, (0, 0));
        let mut call = next_call(store, reads, cost, self.most, scratch.len());
        prepare(store, self.hints, &call);
        while done < reads.len() {
            let rest = &mut reads[done..];
            let size = call.last().map_or(rest.len(), |last| last.reads.end);
            let next = next_call(store, &rest[size..], cost, self.most, scratch.len());
            prepare(store, self.hints, &next);
            let started = Instant::now();
            sum = call.iter().fold(sum, |(n, bytes), extent| (n + 1, bytes + extent.len()));
            fetch_call(store, self.hints, scratch, rest, &call)?;
            done += size;
            call = next;
            match started.elapsed() {
                took if took < ASK / 4 => self.most = (self.most * 2).min(CALL.0),
                took if took > ASK => self.most = (self.most / 2).max(1),
                _ => {}
            }
            if self.asked.elapsed() >= ASK {
                interrupt()?;
                self.asked = Instant::now();
            }
        }
        Ok(sum)
    }
}

/// Tells the store what comes next; in a sweep it knows.
fn prepare(store: &dyn Store, hints: Hints, call: &[Extent]) {
    if hints.gap == Gap::Lost {
        store.prepare(&call.iter().map(|extent| extent.bytes.clone()).collect::<Vec<_>>());
    }
}

/// Memory to merge reads in: from a disk as much as is to be in flight, if the budget has it.
fn scratch(budget: &Budget, cost: Cost) -> Result<Option<Block>> {
    if cost.waits {
        let fair = usize::try_from(budget.limit() / 32).unwrap_or(0);
        let large = Block::counted(budget, SCRATCH_COLD.min(fair))?;
        if large.as_ref().is_some_and(|block| block.len() >= SCRATCH_WARM) {
            return Ok(large);
        }
    }
    Block::counted(budget, SCRATCH_WARM)
}

/// As many extents as fit in one call: `most` of them at most, and merged ones in `room` bytes of scratch.
fn next_call(store: &dyn Store, rest: &[Read<'_>], cost: Cost, most: usize, room: usize) -> Vec<Extent> {
    // Bytes shrink with the requests: sixteen threads of 32 MiB each took seconds on a busy machine.
    let (largest, mut bytes, mut scratch) = ((CALL.1 / CALL.0 * most).max(PIECE), 0, 0);
    let mut call = Vec::new();
    for mut extent in extents(rest.iter().map(|r| r.offset..r.end()), cost) {
        if extent.is_merged() {
            let whole = store.whole(extent.bytes.clone());
            if whole.end - whole.start <= SCRATCH_WARM as u64 {
                extent.bytes = whole;
            }
        }
        bytes += extent.len();
        scratch += if extent.is_merged() { extent.len() } else { 0 };
        if !call.is_empty() && (bytes > largest || scratch > room || call.len() == most) {
            break;
        }
        call.push(extent);
    }
    call
}

/// One call to the store, and the scatter after it.
fn fetch_call(
    store: &dyn Store,
    hints: Hints,
    scratch: &mut [u8],
    rest: &mut [Read<'_>],
    call: &[Extent],
) -> Result<()> {
    if call.iter().all(|extent| !extent.is_merged()) {
        return store.read_hinted(&mut rest[..call.len()], hints);
    }
    let mut requests = Vec::with_capacity(call.len());
    let mut merged = Vec::new();
    let (mut free, mut used) = (&mut *scratch, 0);
    let mut reads = &mut *rest;
    for extent in call {
        let (mine, others) = reads.split_at_mut(extent.reads.len());
        reads = others;
        match mine {
            [one] => requests.push(Read { offset: one.offset, into: &mut *one.into }),
            many => {
                let (into, left) = free.split_at_mut(extent.len());
                free = left;
                requests.push(Read { offset: extent.bytes.start, into });
                merged.push((used, extent.bytes.start, many));
                used += extent.len();
            }
        }
    }
    store.read_hinted(&mut requests, hints)?;
    let far = hints.far.then(Far::default);
    for (at, start, many) in merged {
        for read in many {
            let from = at + usize::try_from(read.offset - start).unwrap_or(usize::MAX);
            let from = &scratch[from..from + read.into.len()];
            match &far {
                Some(far) => far.copy(from, read.into),
                None => read.into.copy_from_slice(from),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A store of numbers: byte i of the file is a function of i. Remembers what was asked of it.
    #[derive(Debug)]
    struct Numbers {
        len: u64,
        cost: Cost,
        asked: Mutex<Vec<Range<u64>>>,
    }

    fn byte(i: u64) -> u8 {
        (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    impl Store for Numbers {
        fn read_many(&self, reads: &mut [Read<'_>]) -> Result<()> {
            for read in reads {
                assert!(read.end() <= self.len, "never past the end");
                self.asked.lock().unwrap().push(read.offset..read.end());
                for (i, b) in read.into.iter_mut().enumerate() {
                    *b = byte(read.offset + i as u64);
                }
            }
            Ok(())
        }

        fn cost(&self) -> Cost {
            self.cost
        }

        fn threads(&self, _requests: usize) -> usize {
            3
        }
    }

    proptest! {
        #[test]
        fn every_read_arrives_in_its_place_within_the_models_bound(
            starts in prop::collection::vec(0u64..200_000, 0..400),
            len in 0usize..3000,
            request in prop::sample::select(vec![0.0, 100.0, 500.0, 100_000.0]),
            per_byte in prop::sample::select(vec![0.01, 0.1, 0.5, 50.0]),
            budget in prop::sample::select(vec![1u64 << 10, 64 << 20]),
        ) {
            let cost = Cost { request, byte: per_byte, waits: request > 5_000.0 };
            let store = Numbers { len: 203_000, cost, asked: Mutex::default() };
            let mut out: Vec<Vec<u8>> = starts.iter().map(|_| vec![0; len]).collect();
            let mut reads: Vec<Read<'_>> =
                starts.iter().zip(&mut out).map(|(&offset, into)| Read { offset, into }).collect();
            fetch(&store, &Budget::new(budget).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
            for (&start, out) in starts.iter().zip(&out) {
                for (i, &b) in out.iter().enumerate() {
                    prop_assert_eq!(b, byte(start + i as u64));
                }
            }
            // Merging never costs more than reading each by itself would have.
            let asked = store.asked.lock().unwrap();
            let model = |requests: usize, bytes: u64| requests as f64 * request + bytes as f64 * cost.byte;
            let bytes: u64 = asked.iter().map(|r| r.end - r.start).sum();
            prop_assert!(
                model(asked.len(), bytes) <= model(starts.len(), (starts.len() * len) as u64) + 1e-6
            );
        }
    }

    #[test]
    fn neighbours_merge_and_strangers_do_not() {
        let cost = Cost { request: 500.0, byte: 0.1, waits: false };
        let of = |ranges: &[Range<u64>]| -> Vec<(usize, usize)> {
            extents(ranges.iter().cloned(), cost).map(|e| (e.reads.start, e.reads.end)).collect()
        };
        assert_eq!(of(&[0..512, 512..1024, 1024..1536]), [(0, 3)]);
        assert_eq!(of(&[0..512, 0..512, 100..200]), [(0, 3)]);
        assert_eq!(of(&[0..512, 1_000_000..1_000_512]), [(0, 1), (1, 2)]);
        assert_eq!(
            of(&[0..(1 << 20), (1 << 20)..(2 << 20)]),
            [(0, 1), (1, 2)],
            "large reads go straight to their place"
        );
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn no_request_outgrows_its_scratch_however_dear_requests_are() {
        let cost = Cost { request: 1e9, byte: 0.1, waits: true };
        let store = Numbers { len: 64 << 20, cost, asked: Mutex::default() };
        let mut out = vec![[0; 100]; 30];
        let starts: Vec<u64> = (0..10).flat_map(|i| [0, 100, 1 << 20].map(|at| at + (i << 22))).collect();
        let mut reads: Vec<_> =
            starts.iter().zip(&mut out).map(|(&offset, into)| Read { offset, into }).collect();
        fetch(&store, &Budget::new(16 << 20).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
        assert!(store.asked.lock().unwrap().iter().all(|asked| asked.end - asked.start <= CAP));
        assert!(out.iter().zip(&starts).all(|(out, start)| out[99] == byte(start + 99)));
    }

    #[test]
    fn what_overlaps_is_read_twice_where_there_is_no_scratch() {
        let store = Numbers {
            len: 1000,
            cost: Cost { request: 500.0, byte: 0.5, waits: false },
            asked: Mutex::default(),
        };
        let mut out = vec![[0; 100]; 3];
        let mut reads: Vec<_> = out.iter_mut().map(|into| Read { offset: 7, into }).collect();
        fetch(&store, &Budget::new(1000).unwrap(), &mut reads, Gap::Lost, &|| Ok(())).unwrap();
        assert!(out.iter().all(|out| out[99] == byte(106)));
    }

    #[test]
    fn long_work_can_be_interrupted() {
        let store = Numbers {
            len: 1 << 30,
            cost: Cost { request: 0.0, byte: 0.1, waits: false },
            asked: Mutex::default(),
        };
        let mut out = vec![0; 200 << 20];
        let stop = || Err(Error::argument("stopped", ""));
        let budget = Budget::new(1 << 20).unwrap();
        let answer = fetch(&store, &budget, &mut [Read { offset: 0, into: &mut out }], Gap::Lost, &stop);
        assert!(matches!(answer, Err(Error::Argument { .. })));
        assert!(store.asked.lock().unwrap().len() < 800, "long before the end");
    }
}
