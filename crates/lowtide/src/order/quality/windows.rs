//! How random independent draws and the cuts of epochs are, and bad ones to show that the tests can fail.
//!
//! Some 750 statistics at a false-alarm rate of 5.7 × 10^-7 each: all of them together cry wolf on one set of
//! seeds in 2,300, and the seeds are fixed.

use super::*;
use crate::order::draws::{ROUNDS, philox};
use crate::order::{Draws, Windows};

/// A seed has two halves here, so that neighbours in both are compared as those of seed and epoch are.
fn draws(starts: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    Box::new(Draws::new(starts, seed << 32 | epoch))
}

/// Draws by some function of k and a key, without the second attempt: none of the lengths here needs it.
struct By<F> {
    bits: F,
    starts: u64,
}

impl<F> std::fmt::Debug for By<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("By")
    }
}

impl<F: Fn(u64) -> u64 + Send + Sync> Order for By<F> {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        for (row, k) in out.iter_mut().zip(start..) {
            *row = ((u128::from((self.bits)(k)) * u128::from(self.starts)) >> 64) as u64;
        }
    }
}

/// The generator with another number of rounds.
fn philox_of<const N: usize>(starts: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    let key = Bits::new("lowtide test draws", &[starts, seed, epoch]).next();
    Box::new(By { starts, bits: move |k| philox::<N>(k, 0, key) })
}

/// The draws that one writes first: mix the seed plus k.
fn added_seed(starts: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    Box::new(By { starts, bits: move |k| philox::<ROUNDS>(seed + epoch + k, 0, 0) })
}

/// Multiples of an odd number: as even as can be, and not random at all.
fn weyl(starts: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    let key = Bits::new("lowtide test draws", &[starts, seed, epoch]).next();
    Box::new(By { starts, bits: move |k: u64| k.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(key) })
}

fn steps(pairs: impl Iterator<Item = (u64, u64)>, starts: u64) -> f64 {
    let mut steps = [0; 256];
    for (one, other) in pairs {
        steps[bucket((other + (starts - one)) % starts, starts, 256)] += 1;
    }
    uniform(&steps)
}

/// How draws cover the starts, alone and in twos and threes, and how they depend on earlier ones.
fn sequence(make: Make, starts: u64) -> Vec<Score> {
    const COUNT: u64 = 1 << 20;
    let mut scores = Vec::new();
    for (seed, from) in [(0, 0), (1, 0), (2, 1 << 40), (3, (1 << 63) - 7)] {
        let order = make(starts, seed, 0);
        let first = rows(&*order, from, COUNT);
        for (name, tuple, side) in [("cover", 1, 4_096), ("pairs", 2, 64), ("triples", 3, 16)] {
            let mut counts = vec![0; usize::pow(side, tuple)];
            for rows in first.chunks_exact(tuple as usize) {
                counts[rows.iter().fold(0, |at, &row| at * side + bucket(row, starts, side))] += 1;
            }
            scores.push(Score::new(name, uniform(&counts)));
        }
        for lag in [1, 2, 12, 4_096, 1 << 32] {
            let later = rows(&*order, from + lag, COUNT);
            let pairs = || first.iter().copied().zip(later.iter().copied());
            scores.push(Score::new(format!("correlation at lag {lag}"), correlation(pairs(), starts)));
            scores.push(Score::new(format!("steps at lag {lag}"), steps(pairs(), starts)));
        }
    }
    scores
}

/// How draws change with each bit of their number: a counter's high bits hardly ever change by themselves.
fn bits_of_number(make: Make, starts: u64) -> Vec<Score> {
    let order = make(starts, 9, 0);
    let draw = |k| rows(&*order, k, 1)[0];
    let score = |bit: u32| {
        let pairs = (0..20_000).map(|k| (draw(k), draw(k ^ 1 << bit)));
        Score::new(format!("steps by bit {bit}"), steps(pairs, starts))
    };
    (0..63).map(score).collect()
}

/// How often draws are equal, among n of them from n(n − 1)/2 starts: Poisson with mean 1. A shuffle has
/// none, an even spread has none.
fn repeats(make: Make) -> Vec<Score> {
    const COUNT: u64 = 2_000;
    let count = |seed| {
        let mut rows = rows(&*make(COUNT * (COUNT - 1) / 2, seed, 0), 0, COUNT);
        rows.sort_unstable();
        rows.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64
    };
    let counts: Vec<u64> = (0..1_000).map(count).collect();
    poisson_of_one("repeats", &counts).into()
}

/// Whether draws of a seed are those of the next, some draws later.
fn shifts(make: Make, starts: u64) -> Vec<Score> {
    const COUNT: u64 = 1 << 16;
    let mut scores = Vec::new();
    for (name, seed, epoch) in [("seed", 6, 0), ("half seed", 5, 1)] {
        let (one, other) = (make(starts, 5, 0), make(starts, seed, epoch));
        for (here, there) in [(0, 0), (1, 0), (0, 1), (1 << 32, 0)] {
            let (one, other) = (rows(&*one, here, COUNT), rows(&*other, there, COUNT));
            let pairs = || one.iter().copied().zip(other.iter().copied());
            let name = |what| format!("{what} from {here} to {there} of the next {name}");
            scores.push(Score::new(name("steps"), steps(pairs(), starts)));
            scores.push(Score::new(name("correlation"), correlation(pairs(), starts)));
        }
    }
    scores
}

/// Where φ falls in its range, over seeds, over epochs, and from one epoch to the next.
fn phases(tokens: u64, block: u64) -> Vec<Score> {
    const RUNS: u64 = 20_000;
    let range = tokens - (tokens - block) / block * block;
    let phase = |seed, epoch| Windows::new(tokens, block, seed, epoch).unwrap().phase();
    let cells = usize::try_from(range).unwrap_or(64).min(64);
    let mut counts = [vec![0; cells], vec![0; cells], vec![0; cells]];
    for run in 0..RUNS {
        let (here, next) = (phase(7, run), phase(7, run + 1));
        counts[0][bucket(phase(run, 0), range, cells)] += 1;
        counts[1][bucket(here, range, cells)] += 1;
        counts[2][bucket((next + (range - here)) % range, range, cells)] += 1;
    }
    let names = ["phases over seeds", "phases over epochs", "moves from epoch to epoch"];
    names.iter().zip(counts).map(|(name, counts)| Score::new(*name, uniform_in(&counts, range))).collect()
}

/// The cells of a range that they do not divide differ by one value: at most one in 1,000 here, or none.
fn uniform_in(counts: &[u64], range: u64) -> f64 {
    let cells = counts.len() as u64;
    assert!(range.is_multiple_of(cells) || range / cells > 1_000, "{range} is not cut evenly into {cells}");
    uniform(counts)
}

const STARTS: [u64; 5] = [4_096, 1_000_003, 1_000_000_007, (1 << 40) + 1, 1 << 62];

#[test]
#[ignore = "statistics of millions of rows: make test-all runs it"]
fn draws_are_independent() {
    for starts in STARTS {
        // Cells of 4,096 are not all equal in 1,000,003: by half a percent, 0.04 of a standard deviation of the score.
        assert_random(starts, &sequence(draws, starts));
        assert_random(starts, &bits_of_number(draws, starts));
    }
    assert_random(0, &repeats(draws));
}

#[test]
fn draws_of_seeds_are_unrelated() {
    for starts in STARTS {
        assert_random(starts, &landing(draws, starts));
        assert_random(starts, &shifts(draws, starts));
    }
}

#[test]
fn cuts_fall_everywhere() {
    for (tokens, block) in [
        (2 * 7, 7),
        (2 * 63 + 1, 63),
        (1 << 20, 1_024),
        (1 << 30, 1 << 20),
        ((1 << 40) + 12_345, (1 << 20) + 7),
        (u64::MAX, 1 << 50),
        ((1 << 63) - 2, (1 << 62) - 1),
    ] {
        assert_random(tokens, &phases(tokens, block));
    }
}

/// The control: each statistic sees the flaw that it is there for.
#[test]
#[ignore = "statistics of millions of rows: make test-all runs it"]
fn bad_draws_are_caught() {
    fn shuffle(starts: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
        Box::new(Permutation::new(starts, seed, epoch))
    }
    #[track_caller]
    fn assert_caught(scores: &[Score], by: &str) {
        assert!(scores.iter().any(|score| score.alarms() && score.name.starts_with(by)), "{by}: {scores:?}");
    }
    assert_caught(&sequence(weyl, 1_000_003), "cover");
    assert_caught(&sequence(weyl, 1_000_003), "pairs");
    assert_caught(&sequence(weyl, 1_000_003), "triples");
    assert_caught(&sequence(weyl, 1_000_003), "steps at lag 1");
    assert_caught(&sequence(weyl, 1_000_003), "correlation at lag 1");
    assert_caught(&bits_of_number(weyl, 1_000_003), "steps by bit 62");
    assert_caught(&sequence(philox_of::<3>, 4_096), "triples");
    assert_caught(&bits_of_number(philox_of::<3>, 4_096), "steps by bit 0");
    assert_caught(&repeats(weyl), "repeats, sum");
    assert_caught(&repeats(shuffle), "repeats, histogram");
    assert_caught(&shifts(added_seed, 1_000_003), "steps from 1 to 0 of the next seed");
    assert_caught(&shifts(added_seed, 1_000_003), "correlation from 1 to 0 of the next half seed");
}

/// For the comment at `draws::ROUNDS`: `cargo test --release rounds_of_draws -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
fn rounds_of_draws_compared() {
    let generators: [(usize, Make); 7] = [
        (1, philox_of::<1>),
        (2, philox_of::<2>),
        (3, philox_of::<3>),
        (4, philox_of::<4>),
        (5, philox_of::<5>),
        (6, philox_of::<6>),
        (10, philox_of::<10>),
    ];
    for (rounds, make) in generators {
        for starts in [4_096, (1 << 40) + 1] {
            for scores in [sequence(make, starts), bits_of_number(make, starts)] {
                let worst = scores.iter().max_by(|a, b| a.z.abs().total_cmp(&b.z.abs())).unwrap();
                println!("{rounds:>2} rounds, {starts}: {:>12.1} {}", worst.z, worst.name);
            }
        }
    }
}
