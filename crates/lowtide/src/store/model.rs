//! What reads cost, learned from the reads that are made anyway.
//!
//! Time is taken to be `requests × request + bytes × byte`. Every call of the plan reports how many of
//! each it made and how long it took; a least-squares fit with forgetting keeps the two costs current. So
//! a file that warms up, a disk that slows down and a faster disk than ours are all noticed within a few
//! calls, and nothing is read only to measure.

use super::Cost;
use crate::sys;
use std::sync::Mutex;
use std::time::Duration;

/// After so many calls an observation weighs a third of a new one.
const MEMORY: f64 = 0.95;

/// Costs that follow what is measured.
#[derive(Debug)]
pub struct Model(Mutex<Fit>);

#[derive(Clone, Copy, Debug)]
struct Fit {
    cost: Cost,
    /// Sums over past calls: n·n, n·b, b·b, n·t, b·t (n requests, b bytes, t nanoseconds), each call
    /// scaled so that long and short ones weigh the same.
    sums: [f64; 5],
    /// The share of reads that had to wait for a disk, where the store can tell.
    missed: Option<f64>,
}

/// So many reads outweigh what was seen of misses before them.
const SEEN: f64 = 32.0;
/// Requests that cost more nanoseconds than this wait for a disk: memory answers within microseconds.
const SLOW: f64 = 5_000.0;
/// With fewer misses than this, reads come from memory.
const FEW: f64 = 0.1;

impl Model {
    /// Starts with what is to be expected.
    pub fn new(prior: Cost) -> Self {
        // The prior counts as two calls: one of a thousand small requests, one of a few large ones. Without it
        // calls of one shape only could not tell the two costs apart.
        let mut fit = Fit { cost: prior, sums: [0.0; 5], missed: None };
        fit.add(1000.0, 4e6, prior);
        fit.add(16.0, 16e6, prior);
        Self(Mutex::new(fit))
    }

    /// What reads cost now. Whether they wait for a disk is told by what was missed in memory, where the store
    /// knows. Time alone is a poor witness: on a busy machine reads from memory take as long as those of a deep
    /// queue from a disk.
    pub fn cost(&self) -> Cost {
        sys::locked(&self.0, |fit| {
            let waits = fit.missed.map_or(fit.cost.request > SLOW, |missed| missed > FEW);
            Cost { waits, ..fit.cost }
        })
    }

    /// Takes into account how many of some reads had to wait for a disk.
    pub fn saw(&self, reads: usize, missed: usize) {
        if reads > 0 {
            sys::locked(&self.0, |fit| {
                let weight = (reads as f64 / SEEN).min(1.0);
                let before = fit.missed.unwrap_or(f64::from(u8::from(fit.cost.request > SLOW)));
                fit.missed = Some(before + (missed as f64 / reads as f64 - before) * weight);
            });
        }
    }

    /// Takes a call into account.
    pub fn learn(&self, requests: usize, bytes: usize, took: Duration) {
        if requests > 0 {
            sys::locked(&self.0, |fit| {
                fit.sums.iter_mut().for_each(|sum| *sum *= MEMORY);
                fit.observe(requests as f64, bytes as f64, took.as_secs_f64() * 1e9);
                fit.solve();
            });
        }
    }
}

impl Fit {
    fn add(&mut self, n: f64, b: f64, cost: Cost) {
        self.observe(n, b, n * cost.request + b * cost.byte);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds calls of a world with true costs, and returns what the model thinks.
    fn after(calls: usize, prior: Cost, truth: Cost, shapes: &[(usize, usize)]) -> Cost {
        let model = Model::new(prior);
        for i in 0..calls {
            let (requests, bytes) = shapes[i % shapes.len()];
            let noise = 1.0 + 0.1 * ((i * 7919 % 13) as f64 / 6.0 - 1.0);
            let nanos = (requests as f64 * truth.request + bytes as f64 * truth.byte) * noise;
            model.learn(requests, bytes, Duration::from_secs_f64(nanos * 1e-9));
        }
        model.cost()
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
        let model = Model::new(Cost { request: 1500.0, byte: 0.08, waits: false });
        for i in 0..1000usize {
            let took = Duration::from_nanos((i as u64 * 7919) % 1_000_003);
            model.learn(i % 50, (i * i * 31) % 1_000_000, took);
            let Cost { request, byte, .. } = model.cost();
            assert!(request > 0.0 && byte > 0.0 && request.is_finite() && byte.is_finite());
        }
    }
}
