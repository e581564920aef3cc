//! Every tuned constant of the engine, where it came from, and how they hang together.
//!
//! What a way of access needs to do its own work (how deep a ring is, how large a bounce buffer) stands with it
//! in `store/way/`. Runs that are named are in `bench/runs/`; where none is, the figure is from a run by hand on
//! the machine described there.

use std::time::Duration;

/// Rows of this size and more gain nothing from being read in file order: each is a long read by itself.
pub(crate) const LARGE_ROW: usize = 64 << 10;
/// Longer reads than this are work for a processor, too, and not only for a disk.
pub(crate) const LONG: usize = 64 << 10;
/// Smaller rows than this are served faster from a mapped window than by a read each (BENCHMARKS.md).
pub(crate) const SMALL_ROW: u64 = 16 << 10;

// How far ahead.

/// Bytes to read ahead in file order from a disk: enough to keep it busy. From memory nothing is read ahead:
/// one chunk's memory, used again and again, stays in the processor's cache, and that is worth twice what a
/// second thread is (measured: 8 GB/s ahead, 15 GB/s at once).
pub(crate) const AHEAD_COLD: u64 = 32 << 20;
/// The same for rows drawn at random from memory: they are read ahead by a second thread, and must still be in
/// the processor's cache when the caller takes them.
pub(crate) const AHEAD_WARM: u64 = 1 << 20;
/// Of a file in memory no more is read ahead than this part of it, whatever the budget: one row in eight is wanted of
/// every sweep then, and more gained nothing (one run beside other work, not kept, 256 MiB in rows of 512 bytes, a quarter:
/// 748,000 rows a second, an eighth: 716,000, all of it: 238,000; 1 GiB, an eighth: 593,000, all that the budget holds:
/// 413,000). What has to come from a disk each time is another matter: there every sweep less is a pass less.
pub(crate) const SWEEPS: u64 = 8;
/// But this much: it still fits in the processor's cache.
pub(crate) const LEAST_SWEEP: u64 = 4 << 20;
/// A look-ahead of fewer chunks than this gains nothing from being sorted.
pub(crate) const SORTED: u64 = 16;
/// By how much a group of chunks outgrows the one before it: the first is one chunk, which comes at once.
pub(crate) const GROWTH: u64 = 8;
/// The same where nothing is sorted.
pub(crate) const GROWTH_UNSORTED: u64 = 4;
/// How long a choice of `auto` holds: what is in memory changes while we read.
pub(crate) const CHOOSE_AGAIN: Duration = Duration::from_millis(250);
/// A caller who takes a group in less than this part of the time that reading it took gains nothing from reading
/// ahead, and much from larger groups.
pub(crate) const HURRY: u32 = 4;
/// Fewer rows than this are computed before another thread has come.
pub(crate) const FILL_ALONE: usize = 8192;
/// Runs of a selection or of columns that are planned at once: 1.5 MiB of plan.
pub(crate) const PLAN_RUNS: usize = 1 << 16;

/// The block of `blocks="auto"` where rows are in an object store: with 16 in flight and 30 ms to the first byte, 1 MiB each
/// is 500 MB/s; larger ones would be fewer in a mix, and mix worse.
pub(crate) const REMOTE_BLOCK: u64 = 1 << 20;

// Few requests.

/// Long merged reads around the page cache are widened to this: behind each other in a scratch, all of them begin on a
/// page then. A virtual disk wrote to memory that is no whole page at two thirds of the rate (2026-11-19, by hand).
pub(crate) const WHOLE: u64 = 4 << 10;
/// The scratch for merged reads from memory: it must stay in a core's cache to be scattered from cheaply.
pub(crate) const SCRATCH_WARM: usize = 256 << 10;
/// The scratch for merged reads from a disk: so much is in flight at once.
pub(crate) const SCRATCH_COLD: usize = 4 << 20;
/// The largest merged request from a disk: with whole pages at both ends the smallest scratch holds it.
pub(crate) const CAP: u64 = SCRATCH_WARM as u64 - (8 << 10);
/// And from memory: what is scattered has to stay in the core's nearest caches. Sweeps of merged requests of 64
/// KiB took 0.8 of the time of those of 512 KiB.
pub(crate) const CAP_WARM: u64 = 64 << 10;
/// The most requests in one call to the store, and their bytes: bounds how long nobody looks for a signal.
pub(crate) const CALL: (usize, usize) = (4096, 32 << 20);
/// A call of twice the size that is not short has to bring so much more in the same time: from a disk that answers after 30
/// ms it brings nearly twice as much, from one that is busy all the time as much as before.
pub(crate) const WORTH_WAITING: f64 = 1.3;
/// Longer reads are cut: a megabyte from a disk takes a thousand times as long as asking for it.
pub(crate) const PIECE: usize = 1 << 20;
/// From memory 20 µs of copying, against 0.3 µs for asking: two threads share a chunk of 2 MiB evenly.
pub(crate) const PIECE_WARM: usize = 256 << 10;
/// So many reads are quickly looked through for any that could be merged.
pub(crate) const FEW: usize = 64;
/// Copying one byte out of the scratch, in nanoseconds: 10 GB/s, in cache.
pub(crate) const SCATTER: f64 = 0.1;
/// From so many bytes on, the first are out of the processor's caches before somebody looks at them.
pub(crate) const FAR: usize = 16 << 20;

// Who, and how often somebody is asked.

/// Parts for each thread.
pub(crate) const PARTS: usize = 4;
/// Below this many nanoseconds of expected work, waking a thread (5 µs, and 20 until it runs) gains too little.
pub(crate) const ALONE: f64 = 50_000.0;
/// What touching a row in memory costs at least, in nanoseconds, whatever a store says of its requests.
pub(crate) const TOUCH: f64 = 100.0;
/// So many reads in a call are worth a descriptor of their own, where threads read from memory side by side.
pub(crate) const MANY: usize = 64;
/// How often somebody is asked whether to go on.
pub(crate) const ASK: Duration = Duration::from_millis(50);

// What was seen.

/// An observation of a call weighs so much less with every call after it: a third after twenty.
pub(crate) const MEMORY: f64 = 0.95;
/// So many reads outweigh what was seen of misses before them.
pub(crate) const SEEN: f64 = 32.0;
/// Requests that cost more nanoseconds than this wait for a disk: memory answers within microseconds.
pub(crate) const SLOW: f64 = 5_000.0;
/// With fewer misses than this, reads come from memory.
pub(crate) const FEW_MISSES: f64 = 0.1;
/// Reads gain less than this from groups of eight times the size.
pub(crate) const FAR_BEHIND: f64 = 4.0;
/// How often the slower of two ways is tried again, in groups.
pub(crate) const TRY_AGAIN: u64 = 40;
/// What is left of a rate after each group that was slower: a way that has become half as fast is believed to be after
/// four. One group in twenty came at a third of its rate where other programs ran (2026-11-18, by hand), and reads were
/// taken for the rest of the pass then, at half the rate.
pub(crate) const FADING: f64 = 0.8;
/// A map that was slower in its first group by less than this is tried once more.
pub(crate) const DOUBTFUL: f64 = 3.0;

// Windows that somebody will ask for.

/// So many batches are read together before they are asked for. From memory the taker needs as long for one as the
/// reader, some 16 µs for 12 × 1024, so a group must be long against the 50 to 100 µs that waking a thread takes: with
/// groups of 16 the median of a batch was 32 µs, with 64 it is 27 (six turns, 2026-11-17).
pub(crate) const FORESEEN: usize = 64;
/// Their part of the budget: one in so many.
pub(crate) const FORESEEN_SHARE: u64 = 8;

// Memory that is nobody's block.

/// Threads' stacks, lists of requests, rings: some megabytes that are nobody's block. They are left room for.
pub(crate) const UNCOUNTED: u64 = 6 << 20;
/// The same for each thread that reads: its stack, and what the system's allocator keeps for it.
pub(crate) const THREAD: u64 = 256 << 10;

// How they hang together.
const _: () = {
    assert!(
        CAP + (8 << 10) <= SCRATCH_WARM as u64,
        "a merged request, widened to whole pages, fits any scratch"
    );
    assert!(CAP_WARM <= CAP && SCRATCH_WARM <= SCRATCH_COLD);
    assert!(PIECE_WARM <= PIECE && PIECE <= CALL.1, "a piece fits in a call");
    assert!(LONG <= PIECE_WARM, "what is cut is long");
    assert!(SMALL_ROW <= LARGE_ROW as u64);
    assert!(LEAST_SWEEP >= AHEAD_WARM && AHEAD_COLD >= SCRATCH_COLD as u64);
    assert!(FEW <= MANY, "who has a descriptor of his own has looked for a scratch");
    assert!(GROWTH_UNSORTED <= GROWTH);
};
