//! That a permutation is a bijection, and the same one forever. How random it is: `order::quality`.

use super::*;
use crate::order::conformance;
use std::collections::HashSet;

#[test]
fn every_length_up_to_4096() {
    for len in 0..=4_096 {
        conformance::check_each_row_once(&Permutation::new(len, 1, len));
    }
}

#[test]
fn powers_of_two_and_their_neighbours() {
    for k in 0..=24 {
        for len in [(1 << k) - 1, 1 << k, (1 << k) + 1] {
            conformance::check_each_row_once(&Permutation::new(len, k, 0));
        }
    }
}

#[test]
fn other_awkward_lengths() {
    let primes = [65_519, 65_521, 65_539, 65_543, 99_991, 1_000_003, 2_097_143];
    let squares =
        [256 * 257 - 1, 256 * 257, 256 * 257 + 1, 257 * 257 - 1, 257 * 257, 257 * 257 + 1, 1_002_001];
    for len in (65_530..65_545).chain(primes).chain(squares) {
        conformance::check_each_row_once(&Permutation::new(len, 3, 2));
    }
}

/// Too long to walk: neighbours and far positions land inside and apart. `feistel::tests` undoes them.
#[test]
fn samples_up_to_the_largest_length() {
    let lengths = (25..=48).chain([62, 63]).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1]);
    for len in lengths.chain([u64::MAX]) {
        let order = Permutation::new(len, 5, 6);
        conformance::check(&order);
        let mut bits = Bits::new("lowtide test samples", &[len]);
        let positions: HashSet<u64> = (0..2_000).flat_map(|at| [at, len - 1 - at, bits.below(len)]).collect();
        let rows: HashSet<u64> = positions.iter().map(|&position| order.get(position).unwrap()).collect();
        assert!(rows.iter().all(|&row| row < len), "{len}");
        assert_eq!(rows.len(), positions.len(), "{len}: two positions hold the same row");
    }
}

/// There and back again, and the way back is an order like any other.
#[test]
fn the_inverse_undoes_it() {
    let small = [0, 1, 2, 3, 255, 256, 65_535, 65_536, 65_537, 257 * 257 + 1, 1_000_003];
    for len in small {
        conformance::check_each_row_once(&Permutation::new(len, 7, len).inverse());
    }
    for len in small.into_iter().chain([(1 << 40) + 1, (1 << 63) - 1, u64::MAX]) {
        let (order, mut bits) = (Permutation::new(len, 7, len), Bits::new("lowtide test inverse", &[len]));
        let inverse = order.inverse();
        let (mut positions, window) = ([0; 100], usize::try_from(len.min(100)).unwrap());
        let positions = &mut positions[..window];
        for start in [0, len - window as u64, bits.below((len - window as u64).max(1))] {
            inverse.fill(start, positions);
            for (&position, row) in positions.iter().zip(start..) {
                assert_eq!(order.get(position), Some(row), "{len}");
            }
        }
    }
}

#[test]
fn past_the_end_is_none() {
    for len in [0, 1, 10, 65_535, 65_536, 1 << 40, u64::MAX] {
        let order = Permutation::new(len, 0, 0);
        assert_eq!(order.get(len), None);
        assert_eq!(order.get(u64::MAX), None);
        assert_eq!(order.get(len.wrapping_sub(1)).is_some(), len > 0);
    }
}

#[test]
#[should_panic(expected = "2 positions from 65535 are out of bounds for an order of 65536")]
fn filling_past_the_end_panics() {
    Permutation::new(65_536, 0, 0).fill(65_535, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "out of bounds")]
fn filling_past_the_largest_number_panics() {
    Permutation::new(u64::MAX, 0, 0).fill(u64::MAX, &mut [0; 2]);
}

/// These values are part of the interface: a saved state counts on them. If this fails, every shuffle
/// ever resumed has changed; do not update the numbers, find out why. They were computed by another
/// program, `tests/reference/permutation.py`.
#[test]
fn the_same_forever() {
    let cases: &[(u64, u64, u64, u64, [u64; 6])] = &[
        (6, 0, 0, 0, [4, 0, 2, 5, 3, 1]),
        (6, 0, 1, 0, [1, 4, 3, 2, 0, 5]),
        (6, 1, 0, 0, [3, 0, 2, 4, 1, 5]),
        (100, 42, 7, 94, [21, 59, 55, 89, 93, 58]),
        (65_535, 0, 0, 0, [49_040, 37_136, 10_674, 25_508, 38_095, 52_166]),
        (65_535, u64::MAX, u64::MAX, 65_529, [7_891, 63_358, 18_709, 41_307, 56_602, 32_620]),
        (65_536, 0, 0, 0, [40_975, 8_022, 10_700, 65_422, 15_522, 43_325]),
        (65_536, 0, 1, 0, [37_642, 23_397, 24_934, 22_432, 20_429, 23_901]),
        (65_536, 1, 0, 0, [55_921, 59_190, 44_082, 29_199, 58_277, 21_375]),
        (65_537, 1_337, 3, 65_531, [16_357, 9_286, 54_529, 29_898, 6_284, 17_036]),
        (8_388_608, 42, 0, 4_194_301, [6_254_713, 835_043, 3_661_925, 7_576_593, 7_347_561, 7_942_494]),
        (
            1_000_000_007,
            2_026,
            9,
            999_999_999,
            [503_293_646, 376_104_203, 902_248_020, 533_588_246, 914_695_052, 199_657_262],
        ),
        (
            (1 << 40) + 1,
            u64::MAX,
            1,
            1 << 39,
            [
                650_450_848_385,
                807_455_725_048,
                784_660_897_018,
                972_786_629_728,
                67_057_225_735,
                855_316_356_402,
            ],
        ),
        (
            1 << 63,
            1 << 63,
            1 << 32,
            (1 << 63) - 6,
            [
                1_694_384_699_242_492_139,
                6_176_882_657_658_642_246,
                8_018_313_737_280_881_766,
                2_100_117_986_653_985_390,
                7_890_752_328_515_441_701,
                5_751_904_383_720_164_574,
            ],
        ),
        (
            u64::MAX,
            0,
            0,
            u64::MAX - 6,
            [
                4_933_715_542_768_390_626,
                18_290_048_107_299_055_423,
                28_896_443_718_002_609,
                476_189_987_387_529_753,
                7_896_176_200_266_866_192,
                6_150_228_187_679_399_542,
            ],
        ),
    ];
    for &(len, seed, epoch, start, expected) in cases {
        let mut rows = [0; 6];
        Permutation::new(len, seed, epoch).fill(start, &mut rows);
        assert_eq!(rows, expected, "({len}, {seed}, {epoch}) from {start}");
    }
}
