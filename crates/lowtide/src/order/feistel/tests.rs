//! That the network is a bijection, shown by undoing it: at lengths too large to walk, and with code
//! that shares only the hash with what it checks.

use super::*;

fn feistel(len: u64, seed: u64) -> Feistel {
    Feistel::new(len, &mut Bits::new("lowtide test feistel", &[len, seed]))
}

/// The position that lands on `row`: the rounds backwards, and the walk too.
fn inverse(feistel: &Feistel, row: u64) -> u64 {
    let (height, width) = (feistel.height, feistel.width);
    let (mut line, mut column) = (row / width, row % width);
    loop {
        for (round, &key) in feistel.keys.iter().enumerate().rev() {
            if round % 2 == 0 {
                line = (line + height - distance(column, key, height)) % height;
            } else {
                column = (column + width - distance(line, key, width)) % width;
            }
        }
        let cell = u128::from(line) * u128::from(width) + u128::from(column);
        if cell < u128::from(feistel.len) {
            return u64::try_from(cell).unwrap();
        }
    }
}

/// Lengths at which something is about to happen: a power of two, a square, a product of neighbours,
/// and one to either side.
fn awkward_lengths() -> Vec<u64> {
    let mut lengths = vec![2_147_483_647, 1_000_000_007, (1 << 61) - 1, u64::MAX - 1, u64::MAX];
    for k in 16..64 {
        let root = (1_u64 << k).isqrt();
        for center in [1 << k, root * root, root * (root + 1), (root + 1) * (root + 1)] {
            lengths.extend([center - 1, center, center + 1]);
        }
    }
    lengths
}

#[test]
fn the_grid_is_tight() {
    for len in awkward_lengths() {
        let Feistel { height, width, .. } = feistel(len, 0);
        let cells = u128::from(height) * u128::from(width);
        assert!(cells >= u128::from(len), "{len}: {height} × {width} cells are too few");
        assert!(cells - u128::from(len) < u128::from(height), "{len}: {height} × {width} cells are too many");
        assert!(height.abs_diff(width) <= 1, "{len}: {height} × {width} is not square");
        assert!(height <= 1 << 32, "{len}: {height} lines");
    }
}

/// A function that an inverse undoes from both sides is a bijection, as far as it was looked at.
#[test]
fn it_can_be_undone() {
    for len in awkward_lengths() {
        for seed in 0..3 {
            let feistel = feistel(len, seed);
            let mut bits = Bits::new("lowtide test samples", &[len, seed]);
            let ends = [0, 1, 2, len / 2, len - 3, len - 2, len - 1];
            for position in ends.into_iter().chain((0..200).map(|_| bits.below(len))) {
                let row = feistel.get(position);
                assert!(row < len, "{len}: position {position} lands on {row}");
                assert_eq!(inverse(&feistel, row), position, "{len}: the position of {row}");
                assert_eq!(feistel.get(inverse(&feistel, position)), position, "{len}: row {position}");
            }
        }
    }
}

/// Positions that walk are one in 256 at 65,537, and rarer with every larger length: at these
/// lengths the samples above may never meet one.
#[test]
fn walking_can_be_undone() {
    for len in [65_537, 65_537 + 255, 66_050, 100_003, (1 << 20) + 1] {
        let feistel = feistel(len, 7);
        let mut walked = 0;
        for position in 0..len {
            let (mut line, mut column) = ([position / feistel.width], [position % feistel.width]);
            feistel.rounds(&mut line, &mut column);
            if feistel.cell(line[0], column[0]) >= len {
                walked += 1;
                assert_eq!(inverse(&feistel, feistel.get(position)), position);
            }
        }
        // Exactly as many positions leave as there are cells too many, less those that stay outside.
        let surplus = feistel.height * feistel.width - len;
        assert!(walked <= surplus, "{len}: {walked} walk, {surplus} cells are outside");
        assert!(walked * 10 >= surplus * 9, "{len}: {walked} walk, {surplus} cells are outside");
    }
}

#[test]
fn one_by_one_is_the_same_as_many() {
    for len in [65_536, 65_537, 1_000_003, (1 << 40) + 1, 1 << 63, u64::MAX] {
        let feistel = feistel(len, 1);
        for start in [0, 1, feistel.width - 3, len / 2, len - 100] {
            let mut rows = [0; 100];
            feistel.fill(start, &mut rows);
            assert!(rows.iter().zip(start..).all(|(&row, at)| row == feistel.get(at)), "{len} from {start}");
        }
        let mut bits = Bits::new("lowtide test samples", &[len]);
        let scattered: [u64; 99] = std::array::from_fn(|_| bits.below(len));
        let mut rows = scattered;
        feistel.replace(&mut rows);
        assert_eq!(rows, scattered.map(|position| feistel.get(position)), "{len}");
    }
}
