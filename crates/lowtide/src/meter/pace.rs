//! How often something may be done that costs processor time.
//!
//! What turns out dear on this machine is done less often, so that watching does not become the load.

use std::time::{Duration, Instant};

/// Does something at most every so often, and with at most a share of one core.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) least: Duration,
    /// Of one core.
    pub(super) share: f64,
    /// What one time costs: the last time, or the average over the last few if that was more.
    pub(super) cost: Duration,
    pub(super) last: Option<Instant>,
}

impl Pace {
    pub(super) fn new(least: Duration, share: f64) -> Self {
        Self { least, share, cost: Duration::ZERO, last: None }
    }

    pub(super) fn is_due(&self) -> bool {
        // A little early, so that the next sample at the same interval is not just too soon.
        self.last.is_none_or(|last| last.elapsed() >= self.pause().mul_f64(0.9))
    }

    pub(super) fn spent(&mut self, cost: Duration) {
        // Costs that grow count at once, a single dear time fades.
        self.cost = cost.max((self.cost * 3 + cost) / 4);
        self.last = Some(Instant::now());
    }

    pub(super) fn pause(&self) -> Duration {
        self.least.max(self.cost.div_f64(self.share).min(Duration::from_secs(10)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dear_is_done_less_often_and_what_is_cheap_as_often_as_asked() {
        let mut pace = Pace::new(Duration::from_millis(100), 0.01);
        assert!(pace.is_due(), "the first time is free");
        pace.spent(Duration::from_micros(100));
        assert_eq!(pace.pause(), Duration::from_millis(100));
        assert!(!pace.is_due());
        pace.spent(Duration::from_millis(5));
        assert_eq!(pace.pause(), Duration::from_millis(500), "a hundred times its cost");
        pace.spent(Duration::from_secs(3600));
        assert_eq!(pace.pause(), Duration::from_secs(10), "but it is not forgotten");
        for _ in 0..100 {
            pace.spent(Duration::from_micros(100));
        }
        assert_eq!(pace.pause(), Duration::from_millis(100), "one dear time fades");
    }
}
