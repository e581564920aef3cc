//! The prediction against what is measured on rows sorted by class, and wrong predictions against it too.

use crate::order::{Blocks, Mix, Order, Permutation, Sequential};

const CLASSES: u64 = 10;
const EPOCHS: u64 = 12;

/// How far a measured spread may be from the predicted one. The largest standard error of the cases below,
/// √(2 / degrees of freedom) of a variance, is 0.9%: that of 16 mixes.
const TOLERANCE: f64 = 0.02;

/// The standard deviation of the classes' counts in a batch over that of a perfect shuffle, in all full
/// batches of some epochs. Knows nothing of blocks.
fn measured(order: impl Fn(u64) -> Box<dyn Order>, batch: u64) -> f64 {
    let (mut sum, mut counts) = (0.0, 0.0);
    for order in (0..EPOCHS).map(order) {
        let len = order.len();
        // Of class c are the rows from the first with row × 10 / len = c on.
        let first = |class: u64| (class * len).div_ceil(CLASSES);
        let share = |class: u64| (first(class + 1) - first(class)) as f64 / len as f64;
        let left = (len - batch) as f64 / (len - 1) as f64;
        let mut rows = vec![0; usize::try_from(batch).unwrap()];
        for start in (0..=len - batch).step_by(rows.len()) {
            order.fill(start, &mut rows);
            let mut seen = [0_u32; 10];
            for &row in &rows {
                seen[usize::try_from(row * CLASSES / len).unwrap()] += 1;
            }
            for (class, seen) in (0..).zip(seen) {
                let mean = batch as f64 * share(class);
                sum += (f64::from(seen) - mean).powi(2) / (mean * (1.0 - share(class)) * left);
                counts += 1.0;
            }
        }
    }
    (sum / counts).sqrt()
}

fn blocks(len: u64, seed: u64, (block_rows, buffer_blocks): (u64, u64)) -> Blocks {
    Blocks::new(len, seed, 0, Mix::new(block_rows, buffer_blocks).unwrap())
}

fn agrees(measured: f64, predicted: f64) -> bool {
    (measured / predicted - 1.0).abs() < TOLERANCE
}

/// What the rule of thumb says.
fn rough(batch: u64, buffer_blocks: u64) -> f64 {
    (1.0 + (batch - 1) as f64 / buffer_blocks as f64).sqrt()
}

/// The control of the measurement itself: 1 for a perfect shuffle, and √1,024 = 32 for none.
#[test]
fn known_spreads_are_measured() {
    let perfect = measured(|seed| Box::new(Permutation::new(1 << 20, seed, 0)), 1_024);
    assert!((perfect - 1.0).abs() < 0.01, "{perfect}");
    let none = measured(|_| Box::new(Sequential::new(1 << 20)), 1_024);
    assert!((none / 32.0 - 1.0).abs() < 0.01, "{none}");
}

#[test]
#[ignore = "statistics of millions of rows: make test-all runs it"]
fn the_spread_is_as_predicted() {
    for (len, batch, size) in [
        // From poor to good, and perfect.
        (1 << 20, 1_024, (64, 64)),
        (1 << 20, 1_024, (64, 256)),
        (1 << 20, 1_024, (64, 1_024)),
        (1 << 20, 1_024, (64, 20_000)),
        (1 << 20, 1_024, (1, 1_000)),
        // Half of the data is a mix.
        (1 << 20, 1_024, (64, 8_192)),
        // A batch is a mix, a little more than one, or four.
        (1 << 20, 1_024, (16, 64)),
        (1 << 20, 1_024, (15, 64)),
        (1 << 20, 1_024, (16, 16)),
        // Nothing divides anything.
        (1_000_003, 1_024, (100, 7)),
        (1_000_003, 1_024, (100, 77)),
        (1_000_003, 1_000, (200, 50)),
        (1_000_003, 33, (100, 7)),
    ] {
        let measured = measured(|seed| Box::new(blocks(len, seed, size)), batch);
        let predicted = blocks(len, 0, size).predicted_spread(batch);
        println!(
            "{len:>8} rows, batches of {batch:>5}, {size:?}: measured {measured:.3}, predicted {predicted:.3}"
        );
        assert!(agrees(measured, predicted), "{len} {batch} {size:?}: {measured}, not {predicted}");
        // The control: half as many blocks, or twice, would be told apart, but for batches of whole mixes.
        if predicted > 1.0 && size.0 * size.1 > batch {
            for wrong in [size.1 / 2, size.1 * 2] {
                let wrong = blocks(len, 0, (size.0, wrong)).predicted_spread(batch);
                assert!(!agrees(measured, wrong), "{len} {batch} {size:?}: {measured} is {wrong} too");
            }
        }
    }
}

/// That the corrections matter: the rule of thumb is wrong where a mix is much of the data, and where
/// a batch is much of a mix.
#[test]
fn the_rule_of_thumb_is_not_enough() {
    for size in [(64, 8_192), (15, 64), (16, 16)] {
        let measured = measured(|seed| Box::new(blocks(1 << 20, seed, size)), 1_024);
        assert!(!agrees(measured, rough(1_024, size.1)), "{size:?}: {measured}");
    }
    // Far from both it is right.
    let predicted = blocks(1 << 40, 0, (512, 256)).predicted_spread(1_024);
    assert!((predicted / rough(1_024, 256) - 1.0).abs() < 0.002, "{predicted}");
}

/// More than a thousand mixes are not all looked at: what is left out makes no difference.
#[test]
fn the_length_hardly_matters() {
    for batch in [100, 1_024, 5_000] {
        let [some, many] = [1 << 22, 1 << 40].map(|len| blocks(len, 0, (16, 61)).predicted_spread(batch));
        assert!((some / many - 1.0).abs() < 0.005, "{batch}: {some} and {many}");
    }
}

#[test]
fn edges() {
    for len in [0, 1, 2, 10, 1_000] {
        for size in [(1, 1), (1, 3), (3, 1), (4, 4), (2_000, 1)] {
            let order = blocks(len, 0, size);
            for batch in [0, 1, 2, len / 2, len.saturating_sub(1), len, len + 1, u64::MAX] {
                let spread = order.predicted_spread(batch);
                assert!(spread.is_finite() && spread >= 0.0, "{len} {size:?} {batch}: {spread}");
                // Single rows and the whole epoch cannot be unevenly mixed, nor single-row blocks.
                if batch <= 1 || batch >= len || size.0 == 1 {
                    assert!((spread - 1.0).abs() < 1e-6, "{len} {size:?} {batch}: {spread}");
                }
            }
        }
    }
}
