//! What was learned of reads, from the reads that are made anyway: pure state.
//!
//! Time is taken to be `requests × request + bytes × byte`. Every fetch reports how many of each it made and how
//! long it took; a least-squares fit with forgetting keeps the two costs current. So a file that warms up, a disk
//! that slows down and a faster disk than ours are all noticed within a few calls, and nothing is read only to
//! measure.

use super::tuning::{DOUBTFUL, FADING, FAR_BEHIND, FEW_MISSES, MEMORY, SEEN, SLOW, TRY_AGAIN};
use crate::store::{Cost, Report, Way};
use crate::sys::Warmth;
use std::time::Duration;

/// Costs that follow what is measured.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    cost: Cost,
    /// Sums over past calls: n·n, n·b, b·b, n·t, b·t (n requests, b bytes, t nanoseconds), each call
    /// scaled so that long and short ones weigh the same.
    sums: [f64; 5],
    /// The share of reads that had to wait for a disk, where the store can tell.
    missed: Option<f64>,
}

impl Costs {
    /// Starts with what is to be expected.
    pub fn new(prior: Cost) -> Self {
        // The prior counts as two calls: one of a thousand small requests, one of a few large ones. Without it
        // calls of one shape only could not tell the two costs apart.
        let mut costs = Self { cost: prior, sums: [0.0; 5], missed: None };
        for (n, b) in [(1000.0, 4e6), (16.0, 16e6)] {
            costs.observe(n, b, n * prior.request + b * prior.byte);
        }
        costs
    }

    /// What reads cost now. Whether they wait for a disk is told by what was missed in memory, where the store
    /// knows. Time alone is a poor witness: on a busy machine reads from memory take as long as those of a deep
    /// queue from a disk.
    pub fn now(&self) -> Cost {
        let waits = self.missed.map_or(self.cost.request > SLOW, |missed| missed > FEW_MISSES);
        Cost { waits, ..self.cost }
    }

    /// The share of reads that had to wait for a disk, or all of them where that is unknown.
    pub fn missing(&self) -> f64 {
        self.missed.unwrap_or(1.0)
    }

    /// Takes into account how many of some reads had to wait for a disk.
    pub fn saw(&mut self, Report { looked, missed }: Report) {
        if looked > 0 {
            let weight = (looked as f64 / SEEN).min(1.0);
            let before = self.missed.unwrap_or(f64::from(u8::from(self.cost.request > SLOW)));
            self.missed = Some(before + (missed as f64 / looked as f64 - before) * weight);
        }
    }

    /// Takes into account how much of the file the page cache has: with half of it, what the reads themselves miss says
    /// more.
    pub fn found(&mut self, warmth: Warmth) {
        match warmth {
            Warmth::Cold => self.missed = Some(1.0),
            Warmth::Half => {}
            Warmth::Warm | Warmth::Whole => self.missed = Some(0.0),
        }
    }

    /// Takes into account how long so many requests for so many bytes took.
    pub fn learn(&mut self, requests: usize, bytes: usize, took: Duration) {
        if requests > 0 {
            self.sums.iter_mut().for_each(|sum| *sum *= MEMORY);
            self.observe(requests as f64, bytes as f64, took.as_secs_f64() * 1e9);
            self.solve();
        }
    }

    fn observe(&mut self, n: f64, b: f64, t: f64) {
        let scale = 1.0 / t.max(1.0).powi(2); // relative errors count alike
        for (sum, product) in self.sums.iter_mut().zip([n * n, n * b, b * b, n * t, b * t]) {
            *sum += product * scale;
        }
    }

    /// The least-squares answer, kept positive: what cannot be told apart keeps its old proportion.
    fn solve(&mut self) {
        let [nn, nb, bb, nt, bt] = self.sums;
        let determinant = nn * bb - nb * nb;
        if determinant > 1e-6 * nn * bb {
            let request = (nt * bb - bt * nb) / determinant;
            let byte = (bt * nn - nt * nb) / determinant;
            if request > 0.0 && byte > 0.0 {
                self.cost = Cost { request, byte, ..self.cost };
                return;
            }
        }
        // One kind of call only: scale both costs by how far off they are.
        let Cost { request, byte, .. } = self.cost;
        let expected = nn * request * request + 2.0 * nb * request * byte + bb * byte * byte;
        let seen = nt * request + bt * byte;
        if expected > 0.0 && seen > 0.0 {
            let factor = (seen / expected).clamp(0.5, 2.0);
            self.cost = Cost { request: request * factor, byte: byte * factor, ..self.cost };
        }
    }
}

/// Small rows of a file in memory: through a mapped window or by reads? That depends on how the kernel holds
/// the file (pages of 4 KiB or folios of up to 2 MiB), which it does not tell. So both are tried on groups
/// that are read anyway, and the faster one is taken; the other one is tried again now and then. Later passes go on
/// with what was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trial {
    /// Of `advise` and of `read`.
    known: [Tried; 2],
    groups: u64,
}

/// How fast one of them is.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    /// Bytes a second: the best of late. Other work on the machine makes a group slower, and nothing makes it faster.
    rate: f64,
    /// In groups of so many bytes.
    bytes: usize,
    /// How many of that size there were.
    times: u32,
}

impl Tried {
    fn note(&mut self, bytes: usize, rate: f64) {
        if bytes > 2 * self.bytes {
            *self = Self { rate, bytes, times: 1 };
            return;
        }
        let bytes = bytes.max(self.bytes / 2);
        *self = Self { rate: rate.max(self.rate * FADING), bytes, times: self.times + 1 };
    }
}

impl Trial {
    /// What it is between.
    pub const CANDIDATES: [Way; 2] = [Way::Advise, Way::Read];

    /// The one that has proved faster, or is to be tried, after a group of so many bytes.
    pub fn decide(&mut self, last: usize) -> Way {
        self.groups += 1;
        let [advise, read] = self.known;
        // What a small group showed says nothing about one of twice its size: there is more to gain from sorting.
        // But it is the map that gains: reads that are left far behind will not catch up.
        let hopeless = read.times > 0 && read.rate * FAR_BEHIND < advise.rate;
        let unknown = self.known.iter().position(|tried| tried.bytes * 2 <= last);
        let unknown = unknown.filter(|&i| !(hopeless && Self::CANDIDATES[i] == Way::Read));
        let faster = usize::from(read.rate > advise.rate);
        // One group may have been unlucky; two were not. Asked of the map only, which mostly is the faster one: reads are
        // not worth another group.
        let doubtful = faster == 1 && advise.times == 1 && advise.rate * DOUBTFUL > read.rate;
        let again = doubtful || self.groups.is_multiple_of(TRY_AGAIN);
        Self::CANDIDATES[unknown.unwrap_or(if again { 1 - faster } else { faster })]
    }

    /// Remembers how fast a group of so many bytes was that was read from memory: a cold one would speak against reads
    /// for ever.
    pub fn note(&mut self, way: Way, bytes: usize, took: Duration) {
        if let Some(i) = Self::CANDIDATES.iter().position(|&candidate| candidate == way) {
            self.known[i].note(bytes, bytes as f64 / took.as_secs_f64().max(1e-9));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proved_faster_is_taken_whatever_the_size_of_the_groups() {
        for (sizes, read, faster) in [
            (vec![1, 1, 8, 64, 100], 2.0, Way::Read),
            (vec![1, 4, 4, 4], 2.0, Way::Read),
            (vec![1, 8, 64, 64], 0.5, Way::Advise),
            (vec![1, 8, 64, 100], 0.1, Way::Advise),
        ] {
            let mut trial = Trial::default();
            let (mut taken, mut last) = (Vec::new(), 0);
            for chunks in sizes.iter().copied().chain(std::iter::repeat_n(*sizes.last().unwrap(), 30)) {
                let way = trial.decide(last);
                let rate = if way == Way::Read { read } else { 1.0 };
                trial.note(way, chunks, Duration::from_secs_f64(chunks as f64 / rate));
                taken.push(way);
                last = chunks;
            }
            assert!(taken[sizes.len() + 2..].iter().all(|&way| way == faster), "{taken:?}");
            assert_eq!(trial.decide(0), faster, "the next pass begins with it");
        }
    }

    /// Rates of groups of one file, on two cores on which four programs ran.
    #[test]
    fn a_group_that_was_unlucky_decides_nothing() {
        for unlucky in 0..12 {
            let (mut trial, mut slow, mut last) = (Trial::default(), 0, 0);
            for (n, chunks) in [1, 8].into_iter().chain(std::iter::repeat_n(60, 20)).enumerate() {
                let way = trial.decide(last);
                slow += usize::from(way == Way::Read);
                let rate = if way == Way::Read { 400.0 } else { 600.0 };
                let rate = if n == unlucky { rate / 3.0 } else { rate };
                trial.note(way, chunks, Duration::from_secs_f64(chunks as f64 / rate));
                last = chunks;
            }
            assert!(slow <= 4, "group {unlucky}: {slow} of 22 by reads");
        }
    }

    #[test]
    fn what_becomes_slower_is_left() {
        let mut trial = Trial::default();
        let mut ways = Vec::new();
        for n in 0..60 {
            let way = trial.decide(60);
            let rate = if way == Way::Read || n > 20 { 400.0 } else { 600.0 };
            let rate = if way == Way::Advise && n > 20 { 100.0 } else { rate };
            trial.note(way, 60, Duration::from_secs_f64(60.0 / rate));
            ways.push(way);
        }
        assert!(ways[5..20].iter().all(|&way| way == Way::Advise), "{ways:?}");
        assert!(ways[26..39].iter().all(|&way| way == Way::Read), "{ways:?}");
    }

    #[test]
    fn a_file_that_is_brought_in_is_noticed() {
        let mut costs = Costs::new(Cost { request: 15_000.0, byte: 0.5, waits: true });
        assert!(costs.now().waits);
        costs.saw(Report { looked: 512, missed: 500 });
        assert!(costs.now().waits);
        costs.saw(Report { looked: 512, missed: 3 });
        assert!(!costs.now().waits);
        costs.saw(Report { looked: 1, missed: 1 });
        assert!(!costs.now().waits, "one stranger is no trend");
        (0..8).for_each(|_| costs.saw(Report { looked: 1, missed: 1 }));
        assert!(costs.now().waits);
    }

    #[test]
    fn what_comes_from_a_disk_is_waited_for_however_quickly_it_comes() {
        let mut costs = Costs::new(Cost { request: 14_000.0, byte: 0.5, waits: true });
        for _ in 0..100 {
            costs.saw(Report::from_disk(4));
            costs.learn(4, 4 << 20, Duration::from_micros(900));
            costs.learn(64, 256 << 10, Duration::from_micros(150)); // requests cost next to nothing
            assert!(costs.now().waits, "{costs:?}");
        }
        assert!(costs.now().request < SLOW, "{costs:?}");
    }

    /// Feeds calls of a world with true costs, and returns what the model thinks.
    fn after(calls: usize, prior: Cost, truth: Cost, shapes: &[(usize, usize)]) -> Cost {
        let mut model = Costs::new(prior);
        for i in 0..calls {
            let (requests, bytes) = shapes[i % shapes.len()];
            let noise = 1.0 + 0.1 * ((i * 7919 % 13) as f64 / 6.0 - 1.0);
            let nanos = (requests as f64 * truth.request + bytes as f64 * truth.byte) * noise;
            model.learn(requests, bytes, Duration::from_secs_f64(nanos * 1e-9));
        }
        model.now()
    }

    #[test]
    fn mixed_calls_tell_both_costs() {
        let truth = Cost { request: 13_000.0, byte: 0.4, waits: true };
        let cost = after(
            60,
            Cost { request: 1500.0, byte: 0.08, waits: false },
            truth,
            &[(4096, 16 << 20), (64, 32 << 20)],
        );
        assert!((cost.request / truth.request - 1.0).abs() < 0.3, "{cost:?}");
        assert!((cost.byte / truth.byte - 1.0).abs() < 0.3, "{cost:?}");
    }

    #[test]
    fn a_disk_that_turns_into_memory_is_noticed() {
        let warm = Cost { request: 1500.0, byte: 0.08, waits: false };
        let cost = after(80, Cost { request: 15_000.0, byte: 0.5, waits: true }, warm, &[(4096, 8 << 20)]);
        let time = |c: Cost| 4096.0 * c.request + 8_388_608.0 * c.byte;
        assert!((time(cost) / time(warm) - 1.0).abs() < 0.3, "{cost:?}");
    }

    #[test]
    fn costs_stay_positive_whatever_comes() {
        let mut model = Costs::new(Cost { request: 1500.0, byte: 0.08, waits: false });
        for i in 0..1000usize {
            let took = Duration::from_nanos((i as u64 * 7919) % 1_000_003);
            model.learn(i % 50, (i * i * 31) % 1_000_000, took);
            let Cost { request, byte, .. } = model.now();
            assert!(request > 0.0 && byte > 0.0 && request.is_finite() && byte.is_finite());
        }
    }
}
