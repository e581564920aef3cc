//! That a block shuffle is a bijection made of whole blocks, and the same one forever. How random it is:
//! `spread::tests`, and `order::quality`.

use super::*;
use crate::order::conformance;
use std::collections::{BTreeMap, BTreeSet};

fn blocks(len: u64, seed: u64, epoch: u64, (block_rows, buffer_blocks): (u64, u64)) -> Blocks {
    Blocks::new(len, seed, epoch, Mix::new(block_rows, buffer_blocks).unwrap())
}

fn rows(order: &dyn Order, positions: Range<u64>) -> Vec<u64> {
    let mut rows = vec![u64::MAX; usize::try_from(positions.end - positions.start).unwrap()];
    order.fill(positions.start, &mut rows);
    rows
}

#[test]
fn every_small_length() {
    for len in (0..=40).chain(62..=66).chain(126..=130) {
        for block_rows in [1, 2, 3, 7, 8, 64, 130, 131] {
            for buffer_blocks in [1, 2, 5, 200] {
                conformance::check_each_row_once(&blocks(len, len, block_rows, (block_rows, buffer_blocks)));
            }
        }
    }
}

/// Multiples of a block and of a mix, and their neighbours; mixes around the sizes at which their shuffle
/// is of another kind; blocks that are more than a table holds.
#[test]
fn awkward_lengths() {
    let sizes =
        [(1, 1), (1, 1_000), (255, 1), (16, 16), (257, 1), (512, 128), (65_535, 1), (65_536, 2), (9_999, 7)];
    for (block_rows, buffer_blocks) in sizes {
        let mix = block_rows * buffer_blocks;
        for center in [block_rows, mix, 3 * block_rows, 2 * mix, 3 * mix + block_rows] {
            for len in [center - 1, center, center + 1] {
                conformance::check_each_row_once(&blocks(len, 1, 2, (block_rows, buffer_blocks)));
            }
        }
    }
    for len in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1_000_003] {
        for size in
            [(1, 1), (1, 64), (3, 50_000), (8, 1_000), (512, 256), (512, 3_000), (1 << 19, 1), (1 << 21, 9)]
        {
            conformance::check_each_row_once(&blocks(len, 3, 4, size));
        }
    }
}

/// What is sorted without comparisons is what sorting gives, for a whole mix and for some spans of it.
#[test]
fn the_rows_of_a_mix_in_file_order() {
    for len in [0, 1, 5, 64, 1000, 4097] {
        for size in [(1, 1), (1, 40), (3, 5), (7, 100), (64, 3), (500, 4), (5000, 2)] {
            for seed in 0..5 {
                let order = blocks(len, seed, 3, size);
                let mut at = 0;
                while at < len {
                    let mix = order.mix_range(at);
                    let third = (mix.end - mix.start) / 3;
                    let whole = vec![mix.clone()];
                    let some = vec![mix.start + third / 2..mix.start + third, mix.end - third..mix.end];
                    for spans in [whole, some] {
                        let spans: Vec<_> = spans.into_iter().filter(|span| !span.is_empty()).collect();
                        let found = spans.iter().flat_map(|span| rows(&order, span.clone()));
                        let mut expected: Vec<(u64, u32)> = found.zip(0..).collect();
                        expected.sort_unstable();
                        assert_eq!(order.in_file_order(&spans), expected, "{order:?} {spans:?}");
                    }
                    at = mix.end;
                }
            }
        }
    }
}

#[test]
fn up_to_the_largest_numbers() {
    for len in [(1 << 40) + 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
        for block_rows in [1, 1_000, 1 << 32, len / 2, len - 1, len, u64::MAX] {
            for buffer_blocks in [1, 1_000, 1 << 32, u64::MAX] {
                let order = blocks(len, 5, 6, (block_rows, buffer_blocks));
                conformance::check(&order);
                let ends = [0, len / 2, len - 1];
                let found: BTreeSet<u64> = ends.iter().map(|&at| rows(&order, at..at + 1)[0]).collect();
                assert!(found.len() == 3 && found.iter().all(|&row| row < len), "{order:?}: {found:?}");
                for position in ends {
                    assert!(order.mix_range(position).contains(&position), "{order:?}");
                }
                assert!(
                    order.predicted_spread(1_024) >= 0.99,
                    "{order:?}: {}",
                    order.predicted_spread(1_024)
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "2 positions from 99 are out of bounds for an order of 100")]
fn filling_past_the_end_panics() {
    blocks(100, 0, 0, (8, 2)).fill(99, &mut [0; 2]);
}

#[test]
fn sizes_of_nothing_are_refused() {
    assert_eq!(
        Mix::new(0, 1).unwrap_err().to_string(),
        "a block of 0 rows holds nothing\nhint: give the number of rows in a block"
    );
    assert_eq!(
        Mix::new(1, 0).unwrap_err().to_string(),
        "0 blocks cannot be mixed\nhint: give the number of blocks to hold in memory"
    );
}

/// The whole order again, by lists instead of arithmetic: deal the shuffled blocks, append the rest to its
/// mix, shuffle each.
fn by_lists(order: &Blocks) -> Vec<u64> {
    let block_rows = order.mix.block_rows.get();
    let count = order.len / block_rows;
    let shuffled = rows(&order.shuffled, 0..count);
    let mut undealt = shuffled.iter();
    let mut all = Vec::new();
    for number in 0..order.mixes {
        let share = count / order.mixes + u64::from(number < count % order.mixes);
        let dealt = undealt.by_ref().take(usize::try_from(share).unwrap());
        let mut mix: Vec<u64> = dealt
            .flat_map(|block| (0..block_rows).map(move |row| order.head + block * block_rows + row))
            .collect();
        if number == order.takes_rest {
            mix.extend((0..order.head).chain(order.head + count * block_rows..order.len));
        }
        let mut at = vec![0; mix.len()];
        Inner::draw(mix.len() as u64, &mut Bits::keyed(&order.key, number)).fill(0, &mut at);
        all.extend(at.into_iter().map(|at| mix[usize::try_from(at).unwrap()]));
    }
    assert_eq!(undealt.next(), None);
    all
}

#[test]
fn arithmetic_agrees_with_lists() {
    for len in [0, 1, 9, 10, 11, 99, 100, 101, 1_234, 70_001] {
        for size in [(1, 1), (1, 7), (10, 1), (10, 3), (33, 4), (100, 100), (700, 90)] {
            for epoch in 0..5 {
                let order = blocks(len, 8, epoch, size);
                assert!(rows(&order, 0..len) == by_lists(&order), "{order:?}");
            }
        }
    }
}

/// The ranges follow each other without a gap, each fits what was asked for, and each holds whole blocks.
#[test]
fn a_mix_is_whole_blocks_and_perhaps_the_rest() {
    for (len, size) in [
        (0, (5, 5)),
        (3, (5, 5)),
        (1_000, (10, 10)),
        (1_009, (10, 7)),
        (100_003, (64, 33)),
        (100_003, (1, 9_000)),
    ] {
        let mut over_epochs = 0;
        for epoch in 0..10 {
            let order = blocks(len, 1, epoch, size);
            let (mut position, mut mixes, mut with_rest, mut largest, mut counts) =
                (0, 0, 0, 0, BTreeSet::new());
            while position < len {
                let range = order.mix_range(position);
                assert_eq!(range.start, position, "{order:?}");
                for within in [range.start, u64::midpoint(range.start, range.end), range.end - 1] {
                    assert_eq!(order.mix_range(within), range, "{order:?}");
                }
                let mut blocks = BTreeMap::<u64, u64>::new();
                let mut rest = 0;
                for row in rows(&order, range.clone()) {
                    if row < order.head || row >= len - order.tail {
                        rest += 1;
                    } else {
                        *blocks.entry((row - order.head) / size.0).or_default() += 1;
                    }
                }
                assert!(blocks.values().all(|&rows| rows == size.0), "{order:?}: a block was cut");
                assert!(blocks.len() as u64 <= size.1, "{order:?}: {} blocks", blocks.len());
                assert!(rest == 0 || rest == len % size.0, "{order:?}: the rest was cut");
                with_rest += u64::from(rest > 0);
                counts.insert(blocks.len());
                largest = largest.max(range.end - range.start);
                (position, mixes) = (range.end, mixes + 1);
            }
            assert_eq!(position, len);
            assert_eq!(
                mixes,
                (len / size.0).div_ceil(size.1).max(u64::from(len > 0)),
                "{order:?}: more than needed"
            );
            assert_eq!(with_rest, u64::from(len % size.0 > 0), "{order:?}");
            assert!(largest <= order.largest_mix(), "{order:?}");
            over_epochs = over_epochs.max(largest);
            assert!(
                counts.last().unwrap_or(&0) - counts.first().unwrap_or(&0) <= 1,
                "{order:?}: dealt unevenly"
            );
            assert_eq!(order.mix_range(len), len..len);
            assert_eq!(order.mix_range(u64::MAX), len..len);
        }
        assert_eq!(over_epochs, blocks(len, 1, 0, size).largest_mix(), "{len} {size:?}");
    }
}

/// 109 rows in blocks of 10: nine are left over. Each mix takes them equally often, and each cut of the nine
/// into head and tail is as likely.
#[test]
fn the_rest_is_everywhere() {
    let (mut takes, mut heads) = ([0_u32; 5], [0_u32; 10]);
    for epoch in 0..5_000 {
        let order = blocks(109, 3, epoch, (10, 2));
        takes[usize::try_from(order.takes_rest).unwrap()] += 1;
        heads[usize::try_from(order.head).unwrap()] += 1;
    }
    // Binomial(5,000, 1/5) has a standard deviation of 28, Binomial(5,000, 1/10) one of 21; five of them.
    assert!(takes.iter().all(|seen| seen.abs_diff(1_000) < 141), "{takes:?}");
    assert!(heads.iter().all(|seen| seen.abs_diff(500) < 106), "{heads:?}");
}

/// Whatever is different, the order is another: of 10,000 rows, two unrelated orders agree on one.
#[test]
fn nothing_is_shared() {
    let orders = [
        blocks(10_000, 1, 1, (10, 100)),
        blocks(10_000, 2, 1, (10, 100)),
        blocks(10_000, 1, 2, (10, 100)),
        blocks(10_000, 2, 0, (10, 100)),
        blocks(10_000, 1, 1, (10, 99)),
        blocks(10_000, 1, 1, (100, 10)),
        blocks(10_001, 1, 1, (10, 100)),
    ];
    let orders = orders.map(|order| rows(&order, 0..10_000));
    for (at, one) in orders.iter().enumerate() {
        for other in &orders[..at] {
            let agree = one.iter().zip(other).filter(|(a, b)| a == b).count();
            // Poisson with mean 1, 21 pairs: more than 8 happens to one set of orders in 40,000.
            assert!(agree <= 8, "{agree} rows of 10,000");
        }
    }
    // Nor do two mixes of one order.
    let order = blocks(10_000, 1, 1, (100, 10));
    let within = |number: u64| {
        let mut at = [0; 1_000];
        Inner::draw(1_000, &mut Bits::keyed(&order.key, number)).fill(0, &mut at);
        at
    };
    assert!(within(0).iter().zip(within(1)).filter(|(a, b)| **a == *b).count() <= 8);
}

/// These values are part of the interface: a saved state counts on them. If this fails, every block
/// shuffle ever resumed has changed; do not update the numbers, find out why. They were computed by another
/// program, in Python, with the `blake3` package.
#[test]
fn the_same_forever() {
    type Case = (u64, u64, u64, (u64, u64), u64, &'static [u64]);
    let cases: &[Case] = &[
        (10, 0, 0, (3, 2), 0, &[9, 2, 1, 3, 7, 8]),
        (10, 0, 1, (3, 2), 0, &[7, 2, 3, 9, 8, 0]),
        (10, 1, 0, (3, 2), 0, &[2, 1, 3, 4, 5, 6]),
        (5, 7, 7, (8, 8), 0, &[4, 2, 3, 0, 1]),
        (1_000, 42, 7, (7, 5), 496, &[30, 577, 51, 988, 33, 50]),
        (100_003, 0, 0, (64, 33), 50_000, &[82_331, 13_197, 51_688, 45_272, 38_257, 13_222]),
        (
            8_388_609,
            42,
            3,
            (512, 1_024),
            4_194_301,
            &[2_509_149, 7_662_093, 6_279_358, 434_026, 5_641_285, 342_333],
        ),
        (
            8_388_609,
            42,
            3,
            (512, 127),
            4_193_000,
            &[619_189, 5_709_735, 1_043_026, 7_328_081, 4_472_674, 5_996_701],
        ),
        (
            1_000_000_007,
            2_026,
            9,
            (128, 4_096),
            999_999_999,
            &[137_465_565, 144_093_736, 924_545_138, 26_239_726, 924_852_504, 587_099_144],
        ),
        (
            1_099_511_627_777,
            u64::MAX,
            1,
            (1_000, 60),
            549_755_813_888,
            &[
                582_995_860_822,
                209_220_565_505,
                659_425_953_327,
                144_735_696_025,
                235_392_569_381,
                877_564_102_592,
            ],
        ),
        (
            9_223_372_036_854_775_808,
            9_223_372_036_854_775_808,
            4_294_967_296,
            (1_048_576, 4_096),
            9_223_372_036_854_775_802,
            &[
                5_932_875_233_339_908_183,
                5_040_390_034_687_041_074,
                4_201_057_513_650_653_685,
                8_188_674_557_223_053_510,
                2_956_289_149_858_884_551,
                4_045_161_180_454_064_693,
            ],
        ),
        (
            u64::MAX,
            0,
            0,
            (3, u64::MAX),
            18_446_744_073_709_551_609,
            &[
                12_264_200_147_052_664_044,
                18_198_910_887_112_475_572,
                2_223_834_831_212_582_450,
                17_114_464_333_701_624_129,
                15_505_419_462_145_011_545,
                14_228_410_266_539_844_325,
            ],
        ),
    ];
    for &(len, seed, epoch, size, start, expected) in cases {
        let end = start + expected.len() as u64;
        let got = rows(&blocks(len, seed, epoch, size), start..end);
        assert_eq!(got, expected, "({len}, {seed}, {epoch}, {size:?}) from {start}");
    }
}

#[test]
fn chosen_sizes() {
    let chosen = |row, len, budget, request| {
        let Mix { block_rows, buffer_blocks } = Mix::choose(row, len, budget, request);
        (block_rows.get(), buffer_blocks.get())
    };
    // 512-byte rows, 64 KiB to a request, 64 MiB: a thousand blocks of 128 rows.
    assert_eq!(chosen(512, 1 << 30, 64 << 20, 64 << 10), (128, 1_024));
    // The rows that fill no block need room too.
    assert_eq!(chosen(512, (1 << 30) + 1, 64 << 20, 64 << 10), (128, 1_023));
    // A block is at least what was asked for.
    assert_eq!(chosen(100, 41 << 24, 1 << 20, 4_096), (41, 255));
    // A row that is larger than a request is a block.
    assert_eq!(chosen(1 << 20, 1_000, 64 << 20, 64 << 10), (1, 64));
    // A budget of less than two blocks: smaller blocks.
    assert_eq!(chosen(1_000, 1_000_000, 10_000, 64 << 10), (5, 2));
    // Everything fits: one mix, a perfect shuffle.
    for len in [1, 5, 127, 128, 129, 1_000] {
        let mix = Mix::choose(512, len, 512 * len.max(2), 64 << 10);
        assert_eq!(Blocks::new(len, 0, 0, mix).mix_range(0), 0..len, "{len}");
    }
    // No room, no rows, no bytes: still sizes.
    assert_eq!(chosen(512, 100, 0, 64 << 10), (1, 1));
    assert_eq!(chosen(512, 0, 1 << 20, 64 << 10), (1, 2_048));
    assert_eq!(chosen(0, 10, 1 << 20, 0), (1, 1 << 20));
    assert_eq!(chosen(u64::MAX, u64::MAX, u64::MAX, u64::MAX), (1, 1));
}

/// Whatever is asked for, the largest mix fits the budget, if two rows do.
#[test]
fn chosen_sizes_fit() {
    for row_bytes in [1, 3, 512, 5_000] {
        for len in [1, 10, 1_000, 4_097, 100_003] {
            for budget in [2 * row_bytes, 7 * row_bytes, 10_000, 100_000, 1 << 24] {
                for request in [0, 1, 4_096, 1 << 18, u64::MAX] {
                    let mix = Mix::choose(row_bytes, len, budget, request);
                    for epoch in 0..3 {
                        let bytes = Blocks::new(len, 0, epoch, mix).largest_mix() * row_bytes;
                        assert!(
                            bytes <= budget.max(2 * row_bytes),
                            "{row_bytes} {len} {budget} {request}: {mix:?}"
                        );
                    }
                }
            }
        }
    }
}

/// `cargo test --release blocks::tests::rows_a_second -- --ignored --nocapture`. The floor is 20 million
/// for mixes of half a million rows, 5 million for small ones, in fills of 4,096.
#[test]
#[ignore = "a measurement, not a test"]
fn rows_a_second() {
    const SIZES: [(u64, u64); 10] = [
        (512, 1_024),
        (128, 4_096),
        (1_000, 64),
        (64, 64),
        (16, 63),
        (16, 16),
        (15, 17),
        (10, 10),
        (1, 2),
        (1, 1),
    ];
    for size in SIZES {
        for (batch, total) in [(12, 240_000), (4_096, 4_096_000)] {
            for len in [8_388_608, 1 << 40] {
                let order = blocks(len, 1, 2, size);
                let mut rows = vec![0; batch];
                let time = |()| {
                    let start = std::time::Instant::now();
                    for at in (0..total).step_by(batch) {
                        order.fill(at, std::hint::black_box(&mut rows));
                    }
                    start.elapsed()
                };
                let best = std::iter::repeat_n((), 7).map(time).min().unwrap();
                let rate = total as f64 / best.as_secs_f64() / 1e6;
                println!("{size:?} of {len:>13}, fills of {batch:>5}: {rate:>6.1} M rows/s");
            }
        }
    }
}
