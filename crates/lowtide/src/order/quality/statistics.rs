//! From counts to one number with a known distribution.
//!
//! Every statistic ends as a z: under the hypothesis that the permutation is random it is standard
//! normal, or near enough at the counts used here. |z| ≥ [`LIMIT`] has a probability of 5.7 × 10^-7, so
//! that a test of a hundred statistics cries wolf on one set of seeds in 17,000. The seeds are fixed: a test
//! that passes goes on passing until the code changes.

/// The false-alarm rate of one statistic is P(|z| ≥ 5) = 5.7 × 10^-7.
pub const LIMIT: f64 = 5.0;

/// A named statistic.
#[derive(Clone, Debug)]
pub struct Score {
    pub name: String,
    pub z: f64,
}

impl Score {
    pub fn new(name: impl Into<String>, z: f64) -> Self {
        Self { name: name.into(), z }
    }

    pub fn alarms(&self) -> bool {
        self.z.is_nan() || self.z.abs() >= LIMIT
    }
}

/// The score of a count that is Poisson, or binomial with a small p, and whose mean is large.
pub fn count(seen: u64, mean: f64) -> f64 {
    (seen as f64 - mean) / mean.sqrt()
}

/// The score of counts that should be equal, of independent draws.
pub fn uniform(counts: &[u64]) -> f64 {
    uniform_with(counts, counts.len() - 1, 1.0)
}

/// The score of counts that should be equal, of draws without replacement from `len` rows: the more of
/// the rows are drawn, the smoother the counts.
pub fn uniform_of_drawn(counts: &[u64], len: u64) -> f64 {
    let drawn = counts.iter().sum::<u64>();
    uniform_with(counts, counts.len() - 1, (len - 1) as f64 / (len - drawn) as f64)
}

/// The score of how often each of `side` rows was seen at each of `side` positions, over many
/// permutations: counts with equal sums of lines and of columns.
pub fn uniform_square(counts: &[u64], side: usize) -> f64 {
    uniform_with(counts, (side - 1).pow(2), (side - 1) as f64 / side as f64)
}

fn uniform_with(counts: &[u64], degrees: usize, scale: f64) -> f64 {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    z(scale * chi_square(counts.iter().map(|&seen| (seen, mean))), degrees)
}

/// The score of many counts, each of which should be Poisson with mean 1: by the shape of their
/// histogram (0, 1, 2, 3, 4, more), and by their sum.
pub fn poisson_of_one(name: &str, counts: &[u64]) -> [Score; 2] {
    let mut histogram = [0; 6];
    for &seen in counts {
        histogram[seen.min(5) as usize] += 1;
    }
    let mut shares =
        [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 0.0].map(|share| share / std::f64::consts::E);
    shares[5] = 1.0 - shares.iter().sum::<f64>();
    let expected = shares.map(|share| share * counts.len() as f64);
    [
        Score::new(format!("{name}, histogram"), z(chi_square(histogram.into_iter().zip(expected)), 5)),
        Score::new(format!("{name}, sum"), count(counts.iter().sum(), counts.len() as f64)),
    ]
}

fn chi_square(cells: impl Iterator<Item = (u64, f64)>) -> f64 {
    cells.map(|(seen, mean)| (seen as f64 - mean).powi(2) / mean).sum()
}

/// Wilson and Hilferty: the cube root of a chi-square is nearly normal.
fn z(chi_square: f64, degrees: usize) -> f64 {
    let spread = 2.0 / (9.0 * degrees as f64);
    ((chi_square / degrees as f64).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// The score of the correlation between pairs of rows of an order of `len`. For independent rows the
/// coefficient has mean 0 and standard deviation 1/√count.
pub fn correlation(pairs: impl Iterator<Item = (u64, u64)>, len: u64) -> f64 {
    // The mean and the variance of a row are known, not estimated.
    let mean = (len - 1) as f64 / 2.0;
    let variance = (len as f64).powi(2) / 12.0;
    let (mut sum, mut pairs_seen) = (0.0, 0_u64);
    for (one, other) in pairs {
        sum += (one as f64 - mean) * (other as f64 - mean) / variance;
        pairs_seen += 1;
    }
    sum / (pairs_seen as f64).sqrt()
}

/// Which of `buckets` equal parts of `0..len` a row is in.
pub fn bucket(row: u64, len: u64, buckets: usize) -> usize {
    (u128::from(row) * buckets as u128 / u128::from(len)) as usize
}

#[test]
fn known_quantiles() {
    // Upper 0.1% points of chi-square, from a table: z = 3.090.
    for (degrees, point) in [(5, 20.515), (63, 103.442), (100, 149.449)] {
        let z = z(point, degrees);
        assert!((z - 3.090).abs() < 0.05, "{degrees}: {z}");
    }
    // A mean of 100 and a count of 150 is five standard deviations.
    assert!((count(150, 100.0) - 5.0).abs() < 1e-12);
}

#[test]
fn a_count_that_is_no_number_alarms() {
    assert!(Score::new("", f64::NAN).alarms());
    assert!(Score::new("", -5.1).alarms());
    assert!(!Score::new("", 4.9).alarms());
}
