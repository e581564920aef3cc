//! How many requests are in flight, and what they cost, by those that were made: pure state.
//!
//! Sixteen at first. A call that kept all of them busy is measured; with twice as many the next one is, and that stays
//! only if it was worth it. A server that says "slow down" is obeyed at once: half as many, and no more for a while.

use crate::store::Cost;
use std::time::Duration;

/// At first, and at most. Ten gigabits a second from servers of 90 MB/s a connection need some thirty.
const FIRST: usize = 16;
const MOST: usize = 64;
/// More in flight stay if they bring so much more.
const WORTH: f64 = 1.15;
/// After so many calls that gained nothing, or a server that said "slow down", more are tried again.
const REST: u32 = 64;
/// Until it is measured: the first byte after 30 ms, and then 90 MB/s a connection.
const LATENCY: f64 = 30e6;
const BYTE: f64 = 1e9 / 90e6;
/// What is measured of one request weighs so much.
const WEIGHT: f64 = 0.1;
/// A gap between two rows is read and thrown away if it is shorter than what a connection brings while the first byte of
/// another request is waited for; between these, in bytes.
const GAP: (f64, f64) = (64e3, 4e6);
/// Ranges are no smaller and no larger.
const EXTENT: (u64, u64) = (1 << 20, 16 << 20);
/// What a connection holds of a body that nobody took yet: hyper's buffer grows to 400 KiB.
pub(crate) const CONNECTION: u64 = 512 << 10;

/// How many in flight, and what they cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    now: usize,
    /// What is known to be worth it, and its bytes a second.
    settled: (usize, f64),
    resting: u32,
    /// Nanoseconds to the first byte, and of a byte in one connection.
    latency: f64,
    byte: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { now: FIRST, settled: (FIRST, 0.0), resting: 0, latency: LATENCY, byte: BYTE }
    }
}

impl Pace {
    /// How many, inside a budget of `limit` bytes: what their connections hold is a quarter of it at most.
    pub(crate) fn in_flight(&self, limit: u64) -> usize {
        let fits = usize::try_from(limit / 4 / CONNECTION).unwrap_or(usize::MAX);
        self.now.min(fits).max(1)
    }

    /// The largest range: half of the budget is in flight.
    pub(crate) fn extent(&self, limit: u64) -> usize {
        let extent = (limit / (2 * self.in_flight(limit) as u64)).clamp(EXTENT.0, EXTENT.1);
        usize::try_from(extent).unwrap_or(usize::MAX)
    }

    /// What a request and a byte cost, while so many are in flight. Money is on the same side as time: fewer requests.
    pub(crate) fn cost(&self, in_flight: usize) -> Cost {
        let byte = self.byte / in_flight as f64;
        let gap = (self.latency / self.byte).clamp(GAP.0, GAP.1);
        Cost { request: gap * byte, byte, waits: true }
    }

    /// One request brought `bytes`: the first after `first`, all after `all`.
    pub(crate) fn saw(&mut self, bytes: u64, first: Duration, all: Duration) {
        let nanos = |time: Duration| time.as_secs_f64() * 1e9;
        self.latency += (nanos(first) - self.latency) * WEIGHT;
        if bytes >= EXTENT.0 {
            let byte = nanos(all.saturating_sub(first)) / bytes as f64;
            self.byte += (byte.clamp(0.05, 1e4) - self.byte) * WEIGHT;
        }
    }

    /// A call with `requests` brought `bytes` in that time.
    pub(crate) fn finished(&mut self, requests: usize, bytes: u64, took: Duration) {
        if requests < self.now || took.is_zero() {
            return; // not all of them were busy
        }
        let rate = bytes as f64 / took.as_secs_f64();
        let (settled, best) = self.settled;
        if self.now > settled && rate < best * WORTH {
            (self.now, self.resting) = (settled, REST);
        } else if self.resting > 0 {
            self.resting -= 1;
        } else {
            self.settled = (self.now, rate);
            self.now = (self.now * 2).min(MOST);
        }
    }

    /// The server said "slow down".
    pub(crate) fn throttled(&mut self) {
        self.now = (self.now / 2).max(1);
        (self.settled, self.resting) = ((self.now, 0.0), REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(pace: &mut Pace, count: usize, rate: impl Fn(usize) -> f64) {
        for _ in 0..count {
            let bytes = 100 << 20;
            pace.finished(64, bytes, Duration::from_secs_f64(bytes as f64 / rate(pace.now)));
        }
    }

    #[test]
    fn more_are_in_flight_while_that_brings_more() {
        let mut grows = Pace::default();
        calls(&mut grows, 10, |now| now as f64 * 85e6);
        assert_eq!(grows.now, MOST);
        let mut stays = Pace::default();
        calls(&mut stays, 10, |_| 1e9);
        assert_eq!(stays.now, FIRST);
        let mut idle = Pace::default();
        (0..10).for_each(|_| idle.finished(3, 1 << 30, Duration::from_millis(1)));
        assert_eq!(idle.now, FIRST);
    }

    #[test]
    fn a_server_that_says_slow_down_is_obeyed() {
        let mut pace = Pace::default();
        (0..10).for_each(|_| pace.throttled());
        assert_eq!(pace.now, 1);
        calls(&mut pace, 64, |now| now as f64 * 85e6);
        assert_eq!(pace.now, 1, "not at once again");
        calls(&mut pace, 20, |now| now as f64 * 85e6);
        assert_eq!(pace.now, MOST);
    }

    #[test]
    fn what_is_in_flight_fits_the_budget() {
        for limit in [1, 1 << 20, 16 << 20, 256 << 20, 8 << 30] {
            for now in [1, FIRST, MOST] {
                let pace = Pace { now, ..Pace::default() };
                let (in_flight, extent) = (pace.in_flight(limit), pace.extent(limit) as u64);
                assert!(in_flight == 1 || in_flight as u64 * CONNECTION <= limit / 4);
                assert!(extent == EXTENT.0 || in_flight as u64 * extent <= limit / 2);
            }
        }
        assert_eq!(Pace::default().extent(256 << 20), 8 << 20);
    }

    #[test]
    fn gaps_follow_what_is_measured() {
        let gap = |pace: Pace| {
            let cost = pace.cost(16);
            cost.request / cost.byte
        };
        assert!((2.6e6..2.8e6).contains(&gap(Pace::default())));
        let mut near = Pace::default();
        (0..100).for_each(|_| near.saw(8 << 20, Duration::from_millis(1), Duration::from_millis(20)));
        assert!(gap(near) < 600e3);
        let mut far = Pace::default();
        (0..100).for_each(|_| far.saw(8 << 20, Duration::from_millis(300), Duration::from_millis(400)));
        assert!((gap(far) - 4e6).abs() < 1.0);
    }
}
