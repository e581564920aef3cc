//! How random a shuffle is: the statistics that a random permutation passes, on ours, and on bad ones
//! to show that the tests can fail.
//!
//! What a random permutation does is the oracle; see [`statistics`] for the threshold and its
//! false-alarm rate.

#![allow(clippy::cast_possible_truncation)] // rows as indexes, in lengths that were walked

mod statistics;
mod windows;

use super::blocks::SMALL_ROUNDS;
use super::feistel::Feistel;
use super::hash::Bits;
use super::{Blocks, Mix, Order, Permutation, Sequential};
use statistics::{
    Score, bucket, correlation, count, poisson_of_one, uniform, uniform_of_drawn, uniform_square,
};

/// Makes the order of a length, a seed and an epoch.
type Make = fn(u64, u64, u64) -> Box<dyn Order>;

fn ours(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    Box::new(Permutation::new(len, seed, epoch))
}

/// The network with another number of rounds.
fn rounds<const N: usize>(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    Box::new(Feistel::<N>::new(len, &mut Bits::new("lowtide test rounds", &[len, seed, epoch])))
}

impl<const N: usize> Order for Feistel<N> {
    fn len(&self) -> u64 {
        self.len()
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        Feistel::fill(self, start, out);
    }
}

/// The shuffle that one writes first: `position × step + offset` modulo a prime length.
#[derive(Debug)]
struct Affine {
    len: u64,
    step: u64,
    offset: u64,
}

fn affine(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    let mut bits = Bits::new("lowtide test affine", &[len, seed, epoch]);
    Box::new(Affine { len, step: 1 + bits.below(len - 1), offset: bits.below(len) })
}

/// No shuffle at all.
fn sequential(len: u64, _seed: u64, _epoch: u64) -> Box<dyn Order> {
    Box::new(Sequential::new(len))
}

/// Our own permutation with the key that one writes first.
fn added_key(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    ours(len, seed + epoch, 0)
}

impl Order for Affine {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        for (row, position) in out.iter_mut().zip(start..) {
            let product = u128::from(position) * u128::from(self.step) + u128::from(self.offset);
            *row = (product % u128::from(self.len)) as u64;
        }
    }
}

/// A table drawn as one does without thinking: swap each row with any other.
#[derive(Debug)]
struct Table(Vec<u64>);

fn careless_table(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
    let mut bits = Bits::new("lowtide test table", &[len, seed, epoch]);
    let mut rows: Vec<u64> = (0..len).collect();
    for at in 0..rows.len() {
        rows.swap(at, bits.below(len) as usize);
    }
    Box::new(Table(rows))
}

impl Order for Table {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        out.copy_from_slice(&self.0[start as usize..][..out.len()]);
    }
}

fn rows(order: &dyn Order, start: u64, count: u64) -> Vec<u64> {
    let mut rows = vec![0; count as usize];
    order.fill(start, &mut rows);
    rows
}

/// The network's grid at this length: a lag at which it would show.
fn width(len: u64) -> u64 {
    len.div_ceil((len - 1).isqrt() + 1)
}

/// Where given positions land, over many seeds, and over many epochs of one seed.
fn landing(make: Make, len: u64) -> Vec<Score> {
    let positions = [0, 1, width(len), len / 2, len - 1];
    let mut counts = [[[0; 64]; 5]; 2];
    for run in 0..10_000 {
        for (counts, (seed, epoch)) in counts.iter_mut().zip([(run, 0), (7, run)]) {
            let order = make(len, seed, epoch);
            for (counts, position) in counts.iter_mut().zip(positions) {
                counts[bucket(rows(&*order, position, 1)[0], len, 64)] += 1;
            }
        }
    }
    let scores = ["seeds", "epochs"].iter().zip(&counts).flat_map(|(over, counts)| {
        positions.iter().zip(counts).map(move |(position, counts)| {
            Score::new(format!("landing of {position} over {over}"), uniform(counts))
        })
    });
    scores.collect()
}

/// How much of an epoch to look at. A quarter at most: rows of one permutation are not quite
/// independent, and in all of it that would show.
fn stretch(len: u64) -> u64 {
    (len / 4).min(1 << 20)
}

/// How a stretch of the epoch covers the rows, and how rows depend on the row before, on the one
/// before that, and on the one a line of the network's grid earlier.
fn neighbours(make: Make, len: u64) -> Vec<Score> {
    let mut scores = Vec::new();
    let stretch = stretch(len);
    for seed in 0..3 {
        let order = make(len, seed, 0);
        let first = rows(&*order, 0, stretch);
        let mut covered = [0; 256];
        for &row in &first {
            covered[bucket(row, len, 256)] += 1;
        }
        scores.push(Score::new("cover", uniform_of_drawn(&covered, len)));
        for lag in [1, 2, width(len)] {
            let later = rows(&*order, lag, stretch);
            let pairs = || first.iter().copied().zip(later.iter().copied());
            scores.push(Score::new(format!("correlation at lag {lag}"), correlation(pairs(), len)));
            // The steps of a random walk on a circle are independent, though the pairs overlap.
            let mut steps = [0; 256];
            for (row, later) in pairs() {
                steps[bucket((later + (len - row)) % len, len, 256)] += 1;
            }
            scores.push(Score::new(format!("steps at lag {lag}"), uniform(&steps)));
        }
        let mut squares = vec![0; 32 * 32];
        for pair in first.chunks_exact(2) {
            squares[bucket(pair[0], len, 32) * 32 + bucket(pair[1], len, 32)] += 1;
        }
        scores.push(Score::new("pairs", uniform(&squares)));
    }
    scores
}

/// On how many positions whole epochs agree, with each other and with the file's order: for two
/// unrelated permutations, Poisson with mean 1.
fn agreement(make: Make, len: u64) -> Vec<Score> {
    let agree = |one: &[u64], other: &[u64]| one.iter().zip(other).filter(|(a, b)| a == b).count() as u64;
    let identity: Vec<u64> = (0..len).collect();
    let mut counts: [Vec<u64>; 4] = Default::default();
    for seed in 0..400 {
        // Three permutations that a careless key would make the same or alike.
        let of = |seed, epoch| rows(&*make(len, seed, epoch), 0, len);
        let (here, next_seed, next_epoch) = (of(seed, 0), of(seed + 1, 0), of(seed, 1));
        counts[0].push(agree(&here, &identity));
        counts[1].push(agree(&here, &next_seed));
        counts[2].push(agree(&here, &next_epoch));
        counts[3].push(agree(&next_epoch, &next_seed));
    }
    let names = ["fixed points", "(s, 0) and (s+1, 0)", "(s, 0) and (s, 1)", "(s, 1) and (s+1, 0)"];
    names.iter().zip(&counts).flat_map(|(name, counts)| poisson_of_one(name, counts)).collect()
}

/// Whether rows of neighbouring seeds and epochs depend on each other without agreeing.
fn relation(make: Make, len: u64) -> Vec<Score> {
    let mut scores = Vec::new();
    let of = |seed, epoch| rows(&*make(len, seed, epoch), 0, stretch(len));
    for (name, one, other) in [
        ("(s, 0) to (s+1, 0)", of(5, 0), of(6, 0)),
        ("(s, 0) to (s, 1)", of(5, 0), of(5, 1)),
        ("(s, 1) to (s+1, 0)", of(5, 1), of(6, 0)),
        ("(0, e) to (e, 0)", of(0, 9), of(9, 0)),
    ] {
        let pairs = || one.iter().copied().zip(other.iter().copied());
        let mut steps = [0; 256];
        for (row, other) in pairs() {
            steps[bucket((other + (len - row)) % len, len, 256)] += 1;
        }
        scores.push(Score::new(format!("steps from {name}"), uniform(&steps)));
        scores.push(Score::new(format!("correlation from {name}"), correlation(pairs(), len)));
    }
    scores
}

/// The network's own weakness: pairs of cells on one line (or column) that meet, or keep their distance,
/// more often than chance has it. It is what tells few rounds from random (Patarin). Whole epochs of a
/// square length, summed.
fn structure(make: Make, side: u64, epochs: u64) -> Vec<Score> {
    const NAMES: [&str; 3] = ["meet on a line", "meet on a column", "keep their distance"];
    let len = side * side;
    let mut met = [[0_u64; 3]; 2];
    for epoch in 0..epochs {
        let mut seen = vec![[[0_u16; 3]; 2]; len as usize];
        for (position, row) in (0..).zip(rows(&*make(len, 11, epoch), 0, len)) {
            let (from, to) = ([position / side, position % side], [row / side, row % side]);
            for stays in [0, 1] {
                let moves = 1 - stays;
                let values = [to[0], to[1], (to[moves] + side - from[moves]) % side];
                for (relation, value) in values.into_iter().enumerate() {
                    let seen = &mut seen[(from[stays] * side + value) as usize][stays][relation];
                    met[stays][relation] += u64::from(*seen);
                    *seen += 1;
                }
            }
        }
    }
    // Of the other cells, side − 1 share a given cell's line, and side lie at a given other distance.
    let chances = [side - 1, side - 1, side].map(|cells| cells as f64 / (len - 1) as f64);
    let pairs = (epochs * side * (side * (side - 1) / 2)) as f64;
    let scores = ["line", "column"].iter().zip(met).flat_map(|(stays, met)| {
        (0..3).map(move |relation| {
            let name = format!("pairs of a {stays} {}", NAMES[relation]);
            Score::new(name, count(met[relation], pairs * chances[relation]))
        })
    });
    scores.collect()
}

/// Every order of a few rows, equally often over many seeds.
fn every_order(make: Make, len: u64) -> Vec<Score> {
    let orders: u64 = (1..=len).product();
    let mut counts = vec![0; orders as usize];
    for seed in 0..orders * 200 {
        // The factorial number system: how many of the later rows are smaller, digit by digit.
        let rows = rows(&*make(len, seed, 0), 0, len);
        let number = (0..rows.len()).fold(0, |number, at| {
            let smaller = rows[at..].iter().filter(|&&row| row < rows[at]).count();
            number * (rows.len() - at) + smaller
        });
        counts[number] += 1;
    }
    vec![Score::new(format!("orders of {len}"), uniform(&counts))]
}

/// Every row at every position, and after every other row, equally often over many seeds.
fn every_place(make: Make, side: u64) -> Vec<Score> {
    let width = side as usize;
    let (mut places, mut successors) = (vec![0; width * width], vec![0; width * width]);
    for seed in 0..20_000 {
        let rows = rows(&*make(side, seed, 0), 0, side);
        for (position, &row) in rows.iter().enumerate() {
            places[position * width + row as usize] += 1;
        }
        // One pair an order, so that they are independent.
        let at = seed as usize % (width - 1);
        successors[rows[at] as usize * width + rows[at + 1] as usize] += 1;
    }
    // A row does not follow itself.
    let successors: Vec<u64> =
        (0..width * width).filter(|at| at / width != at % width).map(|at| successors[at]).collect();
    vec![
        Score::new(format!("places of {side}"), uniform_square(&places, width)),
        Score::new(format!("successors of {side}"), uniform(&successors)),
    ]
}

#[track_caller]
fn assert_random(len: u64, scores: &[Score]) {
    let alarms: Vec<&Score> = scores.iter().filter(|score| score.alarms()).collect();
    assert!(alarms.is_empty(), "{len} rows: {alarms:?}");
}

/// Lengths of the computed kind: the smallest, one that walks, and the large.
const LENGTHS: [u64; 7] = [65_536, 65_537, 1_000_003, 8_388_608, 1_000_000_007, (1 << 40) + 1, 1 << 63];

#[test]
fn positions_land_everywhere() {
    for len in LENGTHS.into_iter().chain([1_009]) {
        assert_random(len, &landing(ours, len));
    }
}

#[test]
fn neighbours_are_unrelated() {
    for len in LENGTHS.into_iter().chain([65_535]) {
        assert_random(len, &neighbours(ours, len));
    }
}

#[test]
#[ignore = "statistics of millions of rows: make test-all runs it"]
fn seeds_and_epochs_are_unrelated() {
    for len in LENGTHS.into_iter().chain([65_535]) {
        assert_random(len, &relation(ours, len));
    }
    for len in [1_009, 65_535, 65_536, 65_537] {
        assert_random(len, &agreement(ours, len));
    }
}

#[test]
fn the_grid_does_not_show() {
    assert_random(256 * 256, &structure(ours, 256, 400));
    assert_random(1_024 * 1_024, &structure(ours, 1_024, 15));
}

#[test]
fn few_rows_have_all_their_orders() {
    for len in 2..=6 {
        assert_random(len, &every_order(ours, len));
    }
    for len in [13, 64] {
        assert_random(len, &every_place(ours, len));
    }
}

/// The network inside small mixes, from the smallest it is used for.
#[test]
fn small_networks_are_random() {
    for len in [256, 257, 1_009, 65_535] {
        assert_random(len, &landing(rounds::<SMALL_ROUNDS>, len));
        assert_random(len, &agreement(rounds::<SMALL_ROUNDS>, len));
    }
    assert_random(16 * 16, &structure(rounds::<SMALL_ROUNDS>, 16, 40_000));
    assert_random(64 * 64, &structure(rounds::<SMALL_ROUNDS>, 64, 2_500));
}

/// What a block shuffle shares with a perfect one: every row may stand anywhere, and epochs are unrelated.
/// How neighbours depend on each other: `blocks::spread`.
#[test]
fn blocks_land_everywhere() {
    fn blocks(len: u64, seed: u64, epoch: u64) -> Box<dyn Order> {
        let mix = Mix::new(50, 20).expect("neither is 0");
        Box::new(Blocks::new(len, seed, epoch, mix))
    }
    for len in [10_007, 10_049] {
        assert_random(len, &landing(blocks, len));
        assert_random(len, &agreement(blocks, len));
    }
}

/// The control: each statistic sees the flaw that it is there for.
#[test]
#[ignore = "statistics of millions of rows: make test-all runs it"]
fn bad_shuffles_are_caught() {
    #[track_caller]
    fn assert_caught(scores: &[Score], by: &str) {
        assert!(scores.iter().any(|score| score.alarms() && score.name.starts_with(by)), "{by}: {scores:?}");
    }
    assert_caught(&landing(sequential, 65_536), "landing of 0 over seeds");
    assert_caught(&landing(sequential, 65_536), "landing of 0 over epochs");
    assert_caught(&neighbours(affine, 1_000_003), "cover");
    assert_caught(&neighbours(affine, 1_000_003), "steps at lag 1");
    assert_caught(&neighbours(affine, 1_000_003), "pairs");
    assert_caught(&neighbours(sequential, 1_000_003), "correlation at lag 1");
    assert_caught(&neighbours(rounds::<2>, 65_536), "steps at lag 256");
    assert_caught(&neighbours(rounds::<2>, (1 << 40) + 1), "steps at lag 1048576");
    assert_caught(&agreement(rounds::<3>, 65_536), "fixed points, histogram");
    assert_caught(&agreement(added_key, 65_537), "(s, 1) and (s+1, 0), sum");
    assert_caught(&relation(added_key, 1_000_003), "steps from (s, 1) to (s+1, 0)");
    assert_caught(&relation(added_key, 1_000_003), "correlation from (0, e) to (e, 0)");
    assert_caught(&structure(sequential, 256, 1), "pairs of a line meet on a column");
    assert_caught(&structure(rounds::<2>, 256, 1), "pairs of a line meet on a line");
    assert_caught(&structure(rounds::<2>, 256, 1), "pairs of a column meet on a line");
    assert_caught(&structure(rounds::<2>, 256, 1), "pairs of a column meet on a column");
    assert_caught(&structure(rounds::<3>, 256, 1), "pairs of a line keep their distance");
    assert_caught(&structure(rounds::<4>, 256, 1), "pairs of a column keep their distance");
    assert_caught(&structure(rounds::<6>, 256, 400), "pairs of a column keep their distance");
    assert_caught(&structure(rounds::<6>, 16, 40_000), "pairs of a column keep their distance");
    assert_caught(&every_order(careless_table, 5), "orders of 5");
    assert_caught(&every_place(careless_table, 13), "places of 13");
    assert_caught(&every_place(sequential, 13), "successors of 13");
}

/// For the comment at `feistel::ROUNDS`: `cargo test --release rounds_compared -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
fn rounds_compared() {
    let networks: [(usize, Make); 8] = [
        (2, rounds::<2>),
        (3, rounds::<3>),
        (4, rounds::<4>),
        (5, rounds::<5>),
        (6, rounds::<6>),
        (7, rounds::<7>),
        (8, rounds::<8>),
        (10, rounds::<10>),
    ];
    for (rounds, make) in networks {
        let general = [landing, neighbours, relation, agreement].map(|test| test(make, 65_536)).concat();
        for scores in [general, structure(make, 256, 1_000)] {
            let worst = scores.iter().max_by(|a, b| a.z.abs().total_cmp(&b.z.abs())).unwrap();
            println!("{rounds:>2} rounds: {:>10.1} {}", worst.z, worst.name);
        }
    }
}

/// For the comment at `blocks::inner::SMALL_ROUNDS`; takes five minutes:
/// `cargo test --release rounds_of_small_networks -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a test"]
fn rounds_of_small_networks_compared() {
    let networks: [(usize, Make); 6] = [
        (4, rounds::<4>),
        (6, rounds::<6>),
        (8, rounds::<8>),
        (10, rounds::<10>),
        (12, rounds::<12>),
        (16, rounds::<16>),
    ];
    for side in [8, 16, 32, 64] {
        for (rounds, make) in networks {
            let general = [landing, agreement].map(|test| test(make, side * side)).concat();
            for scores in [general, structure(make, side, 300_000_000 / (side * side))] {
                let worst = scores.iter().max_by(|a, b| a.z.abs().total_cmp(&b.z.abs())).unwrap();
                println!("{} rows, {rounds:>2} rounds: {:>10.1} {}", side * side, worst.z, worst.name);
            }
        }
    }
}
