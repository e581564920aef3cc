//! Rows a second of the orders, on one core: `cargo bench -p lowtide --bench order`.
//!
//! The floor is 20 million, for draws 50 million. Plain timing, best of several: what disturbs a run only makes it slower.

use lowtide::order::{Draws, Order, Permutation, Sequential};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROWS: u64 = 8_000_000;
const REPEATS: usize = 7;

fn main() {
    println!("{:<32} {:>15} {:>8} {:>12}", "order", "len", "fill of", "M rows/s");
    for len in [65_535, 65_536, 65_537, 8_388_608, 1_000_000_007, (1 << 40) + 1, 1 << 63] {
        for batch in [12, 4_096] {
            report("permutation", &Permutation::new(len, 1, 2), batch);
        }
    }
    for starts in [1_000_003, 1 << 40] {
        for batch in [12, 4_096] {
            report(&format!("draws from {starts}"), &Draws::new(starts, 1), batch);
        }
    }
    report("sequential", &Sequential::new(1 << 40), 4_096);

    let order = Permutation::new(1_000_000_007, 1, 2);
    let alone = best(|| {
        for position in 0..ROWS {
            black_box(order.get(black_box(position)));
        }
    });
    println!("{:<32} {:>15} {:>8} {:>12.1}", "permutation, one by one", order.len(), 1, rate(alone));
    for len in [65_535, 1 << 40] {
        let make = best(|| drop(black_box(Permutation::new(black_box(len), 1, 2))));
        println!("making a permutation of {len}: {make:?}");
    }
}

/// Fills `batch` rows at a time, from the start of the order and again.
fn report(name: &str, order: &dyn Order, batch: usize) {
    let mut rows = vec![0; batch];
    let last = order.len() - batch as u64;
    let time = best(|| {
        let mut start = 0;
        for _ in 0..ROWS / batch as u64 {
            order.fill(start, black_box(&mut rows));
            start = if start + batch as u64 > last { 0 } else { start + batch as u64 };
        }
    });
    println!("{name:<32} {:>15} {batch:>8} {:>12.1}", order.len(), rate(time));
}

fn best(mut work: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    std::iter::repeat_n((), REPEATS).map(time).min().unwrap_or_default()
}

fn rate(time: Duration) -> f64 {
    ROWS as f64 / time.as_secs_f64() / 1e6
}
