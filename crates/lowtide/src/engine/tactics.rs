//! How a fetch and each of its calls are made: pure functions of what a store is like and what its reads cost now.
//!
//! They are asked again for every call, so that a file which warms up in the middle of a group is noticed.

use super::tuning::{ALONE, ASK, CALL, LONG, MANY, PARTS, PIECE, SCRATCH_COLD, TOUCH, WORTH_WAITING};
use crate::store::{Cost, Manner, Nature};
use std::ops::Range;
use std::time::Duration;

/// What the bytes between two reads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Read for nothing.
    #[default]
    Lost,
    /// Wanted soon, and kept in the page cache until then: reading them costs nothing that would not be due later, and
    /// a stream through the file serves whoever comes after better than reads by themselves.
    Wanted,
    /// Not to be touched: it may be what cannot be read. Nothing is merged.
    Avoided,
}

/// How a fetch is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tactics {
    /// By how many threads.
    pub(crate) threads: usize,
    /// In parts of how many reads.
    pub(crate) share: usize,
}

/// Who reads: `count` reads of so many `bytes`.
pub(crate) fn share(nature: &Nature, cost: Cost, (count, bytes): (usize, usize), gap: Gap) -> Tactics {
    let expected = count as f64 * cost.request.max(TOUCH) + bytes as f64 * cost.byte;
    // A stream and long requests are shared by as many as help, however few they are: there is copying to do.
    let shared = gap == Gap::Wanted || bytes / count.max(1) >= LONG;
    let requests = if shared { usize::MAX } else { count };
    let threads = if expected < ALONE { 1 } else { threads(nature, cost, requests).clamp(1, count.max(1)) };
    // More parts than threads: who comes late or is slow does fewer of them. From a disk no smaller ones than are to
    // be in flight at once; and a stream through the file is one part.
    let parts_each = if gap == Gap::Wanted { 1 } else { PARTS };
    let least = if cost.waits { count.saturating_mul(SCRATCH_COLD) / bytes.max(1) } else { 1 };
    let share = count.div_ceil(threads * parts_each).max(least).min(count.div_ceil(threads));
    Tactics { threads, share: share.max(1) }
}

/// How many threads make so many requests to good effect.
pub(crate) fn threads(nature: &Nature, cost: Cost, requests: usize) -> usize {
    // What goes around the page cache is always in flight; what goes through it only where a disk is waited for.
    let flies = cost.waits || !nature.keeps;
    match (flies && requests <= nature.in_flight, cost.waits) {
        (true, _) => 1,
        (false, true) => nature.waiting,
        (false, false) => nature.hands,
    }
}

/// How much belongs in a call. 4,096 cold faults can take a minute, so calls grow while they are short; and beyond that
/// where larger ones bring more in the same time, because each waits for a disk that is far away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    requests: usize,
    bytes: usize,
    /// Bytes a second from which on a call that is not short is worth its size.
    worth: f64,
}

impl Reach {
    /// With so many requests every fetch begins, whatever those before it came to: others may be shorter, or cold.
    const FEW: usize = CALL.0 / 16;
    /// Bytes shrink with the requests: sixteen threads of 32 MiB each took seconds on a busy machine. But a part of what a
    /// disk is to have in flight at once is one call: with half of it, a disk that answers after 30 ms was waited for three
    /// times where twice were enough.
    pub(crate) const LEAST: usize = SCRATCH_COLD;

    /// Calls of so many bytes at first: as those before them came to.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { requests: Self::FEW, bytes, worth: 0.0 }
    }

    /// Requests and bytes in the next call, at most.
    pub(crate) fn most(self) -> (usize, usize) {
        (self.requests, self.bytes)
    }

    /// Takes into account how long a call of so many requests and bytes took.
    pub(crate) fn took(&mut self, (requests, bytes): (usize, usize), took: Duration) {
        let rate = bytes as f64 / took.as_secs_f64().max(1e-9);
        // A call that was smaller anyway, the last of many, says nothing about larger ones.
        let full = (requests * 2 > self.requests, bytes * 2 > self.bytes);
        let judged = full.0 || full.1;
        match took {
            _ if took > ASK => self.shrink(),
            _ if judged && took < ASK / 4 => self.grow(full),
            _ if judged && rate > self.worth => {
                self.grow(full);
                self.worth = rate * WORTH_WAITING;
            }
            // That it became larger has brought nothing: back, and no more of it.
            _ if judged && self.worth.is_finite() && self.bytes < CALL.1 => self.shrink(),
            _ => {}
        }
    }

    fn grow(&mut self, (requests, bytes): (bool, bool)) {
        if requests {
            self.requests = (self.requests * 2).min(CALL.0);
        }
        if bytes {
            self.bytes = (self.bytes * 2).min(CALL.1);
        }
    }

    fn shrink(&mut self) {
        (self.requests, self.bytes) = ((self.requests / 2).max(1), (self.bytes / 2).max(PIECE));
        self.worth = f64::INFINITY;
    }
}

/// In which manner a call of so many requests is made, the longest of so many bytes.
pub(crate) fn manner(nature: &Nature, cost: Cost, gap: Gap, (count, longest): (usize, usize)) -> Manner {
    if gap == Gap::Wanted && nature.keeps {
        Manner::Stream
    } else if cost.waits && nature.together && count > 1 && longest < LONG {
        Manner::Together // long ones were asked for ahead of time
    } else if !cost.waits && count >= MANY {
        Manner::FromMemory
    } else {
        Manner::OneByOne
    }
}

/// What a disk is asked for ahead of time, of what comes next: all of it, or nothing where it will be in flight
/// together. A stream has its own read-ahead.
pub(crate) fn coming<'a>(
    nature: &Nature,
    cost: Cost,
    gap: Gap,
    next: impl Iterator<Item = &'a Range<u64>> + Clone,
) -> Vec<Range<u64>> {
    if gap == Gap::Wanted || !nature.keeps || !cost.waits {
        return Vec::new();
    }
    let (count, longest) = next.clone().fold((0, 0), |(count, longest), bytes| {
        (count + 1, longest.max(usize::try_from(bytes.end - bytes.start).unwrap_or(usize::MAX)))
    });
    match manner(nature, cost, gap, (count, longest)) {
        Manner::Together => Vec::new(),
        _ => next.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARM: Cost = Cost { request: 800.0, byte: 0.08, waits: false };
    const COLD: Cost = Cost { request: 15_000.0, byte: 0.5, waits: true };

    /// A file through the page cache, with a ring.
    const READS: Nature = Nature {
        prior: COLD,
        learns: true,
        align: 1,
        end: u64::MAX,
        hands: 8,
        waiting: 9,
        in_flight: 64,
        together: true,
        keeps: true,
        extent: None,
    };

    /// The bytes of a call once they have settled, of a disk that answers after so long and then brings so many a second.
    fn settled(latency: Duration, rate: f64) -> usize {
        let mut reach = Reach::new(Reach::LEAST);
        for _ in 0..40 {
            let (_, bytes) = reach.most();
            reach.took((bytes >> 20, bytes), latency + Duration::from_secs_f64(bytes as f64 / rate));
        }
        reach.most().1
    }

    #[test]
    fn calls_grow_where_that_brings_more_and_nowhere_else() {
        let near = Duration::from_micros(100);
        assert_eq!(settled(near, 3e9), CALL.1, "short calls grow");
        assert!(settled(near, 4e8) <= 8 << 20, "calls that only take longer do not");
        assert!(settled(near, 4e7) <= 2 << 20);
        assert_eq!(settled(Duration::from_millis(30), 1e9), CALL.1 / 2, "as much as comes within the time");
        assert_eq!(settled(Duration::from_secs(1), 1e9), PIECE, "somebody looks for signals between calls");
        let mut reach = Reach::new(Reach::LEAST);
        (0..40).for_each(|_| reach.took((12, 24 << 10), Duration::from_micros(20)));
        assert_eq!(reach.most(), (Reach::FEW, Reach::LEAST), "small calls say nothing about large ones");
        (0..40).for_each(|_| reach.took((reach.most().0, 1 << 20), Duration::from_micros(200)));
        assert_eq!(reach.most(), (CALL.0, Reach::LEAST), "nor many about long ones");
    }

    #[test]
    fn a_batch_is_one_thread_and_a_sweep_is_many() {
        assert_eq!(share(&READS, WARM, (12, 24 << 10), Gap::Lost).threads, 1, "not worth waking anybody");
        assert_eq!(
            share(&READS, COLD, (12, 24 << 10), Gap::Lost).threads,
            1,
            "one ring has them all in flight"
        );
        assert_eq!(share(&READS, COLD, (4096, 2 << 20), Gap::Lost).threads, 9);
        assert_eq!(share(&READS, WARM, (4096, 2 << 20), Gap::Lost).threads, 8);
        assert_eq!(share(&READS, COLD, (12, 12 << 20), Gap::Lost).threads, 9, "long ones are copying, too");
        let dropping = Nature { together: false, keeps: false, in_flight: 0, waiting: 16, ..READS };
        assert_eq!(
            share(&dropping, COLD, (12, 24 << 10), Gap::Lost).threads,
            12,
            "a thread for each in flight"
        );
        let unbuffered = Nature { together: false, keeps: false, hands: 4, waiting: 4, ..READS };
        assert_eq!(threads(&unbuffered, WARM, 64), 1, "always in flight");
        assert_eq!(threads(&unbuffered, WARM, 65), 4);
    }

    #[test]
    fn parts_are_shared_by_all_and_a_stream_is_one_each() {
        for (count, bytes) in [(0, 0), (1, 10), (7, 1 << 20), (4096, 2 << 20), (1 << 20, 512 << 20)] {
            for cost in [WARM, COLD] {
                for gap in [Gap::Lost, Gap::Wanted] {
                    let Tactics { threads, share } = share(&READS, cost, (count, bytes), gap);
                    assert!(threads >= 1 && share >= 1);
                    assert!(threads == 1 || count.div_ceil(share) >= threads, "nobody goes without a part");
                    assert!(gap == Gap::Lost || count.div_ceil(share) <= threads.max(1));
                }
            }
        }
    }

    #[test]
    fn the_manner_follows_what_is_in_memory() {
        assert_eq!(manner(&READS, COLD, Gap::Lost, (12, 2048)), Manner::Together);
        assert_eq!(manner(&READS, COLD, Gap::Lost, (1, 2048)), Manner::OneByOne);
        assert_eq!(manner(&READS, COLD, Gap::Lost, (12, LONG)), Manner::OneByOne);
        assert_eq!(manner(&READS, WARM, Gap::Lost, (12, 2048)), Manner::OneByOne);
        assert_eq!(manner(&READS, WARM, Gap::Lost, (MANY, 2048)), Manner::FromMemory);
        assert_eq!(manner(&READS, COLD, Gap::Wanted, (MANY, 2048)), Manner::Stream);
        let dropping = Nature { together: false, keeps: false, ..READS };
        assert_eq!(manner(&dropping, COLD, Gap::Wanted, (MANY, 2048)), Manner::OneByOne);
    }

    #[test]
    fn a_disk_is_asked_ahead_of_time_for_what_cannot_be_in_flight() {
        let next = [0..2048, 10_000..10_000 + LONG as u64];
        assert!(coming(&READS, COLD, Gap::Lost, [0..2048, 4096..6000].iter()).is_empty());
        assert_eq!(
            coming(&READS, COLD, Gap::Lost, next.iter()),
            next,
            "one long read, and they come one by one"
        );
        assert_eq!(coming(&Nature { together: false, ..READS }, COLD, Gap::Lost, next.iter()), next);
        assert!(coming(&READS, WARM, Gap::Lost, next.iter()).is_empty());
        assert!(coming(&READS, COLD, Gap::Wanted, next.iter()).is_empty());
        assert!(coming(&Nature { keeps: false, ..READS }, COLD, Gap::Lost, next.iter()).is_empty());
    }
}
