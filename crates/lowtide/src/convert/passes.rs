//! Whether axes are turned in one pass or in two: pure.
//!
//! One pass moves every byte once in and once out, in runs that are as short as the memory is small. Two passes move all of
//! it twice, in long runs. Disks of clouds are bound by requests a second, 20 to 45 thousand of any size up to 32 KiB, and
//! there two passes take half as long; a disk of one's own that answers half a million is better off with one.

use std::ops::Add;

/// How often all elements are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passes {
    One,
    Two,
}

/// What a way asks of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) requests: f64,
    pub(super) bytes: f64,
}

impl Add for Load {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, bytes: self.bytes + other.bytes }
    }
}

/// What a disk takes for it, in nanoseconds. Writes are taken to cost what reads do: the disks that count requests count
/// both alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    pub(super) request: f64,
    pub(super) byte: f64,
}

/// By how much one pass has to be slower before two are made: what was measured is a moment of a disk that others use too.
const CLEARLY: f64 = 1.25;
/// Budgets that the data has to be larger than: less is done before a choice pays.
const MANY: u64 = 4;

/// Whether data of so many bytes is large enough for two passes in a budget.
pub(super) fn is_large(bytes: u64, budget: u64) -> bool {
    bytes / MANY >= budget
}

impl Costs {
    /// From long reads and from short ones: what each asked for, and how long it took, in nanoseconds.
    pub(super) fn seen(long: (Load, f64), short: (Load, f64)) -> Self {
        let byte = long.1 / long.0.bytes.max(1.0);
        let request = (short.1 - byte * short.0.bytes) / short.0.requests.max(1.0);
        Self { request: request.max(0.0), byte }
    }

    /// How long a disk takes for all of it.
    fn of(self, load: Load) -> f64 {
        self.request * load.requests + self.byte * load.bytes
    }
}

/// One pass or two, where both can be.
pub(super) fn choose(costs: Costs, one: Load, two: Load) -> Passes {
    if costs.of(one) > CLEARLY * costs.of(two) { Passes::Two } else { Passes::One }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    /// A square of 4 GiB in 256 MiB: runs of 7 KiB are read and of 32 KiB written, or 600 KiB at a time.
    fn square(costs: Costs) -> Passes {
        let bytes = 8192.0 * MIB;
        let one = Load { requests: 4096.0 * MIB / 7168.0 + 4096.0 * MIB / 32768.0, bytes };
        choose(costs, one, Load { requests: 4.0 * 4096.0 * 2.0, bytes: 2.0 * bytes })
    }

    #[test]
    fn short_requests_are_avoided_where_they_are_dear() {
        // A disk of a cloud: 30,000 requests a second, 1.8 GB/s.
        assert_eq!(square(Costs { request: 30_000.0, byte: 0.55 }), Passes::Two);
        // A disk of one's own: 500,000, and 3 GB/s.
        assert_eq!(square(Costs { request: 2_000.0, byte: 0.33 }), Passes::One);
        // An input in memory.
        assert_eq!(square(Costs { request: 800.0, byte: 0.1 }), Passes::One);
        // A disk that turns.
        assert_eq!(square(Costs { request: 5e6, byte: 5.0 }), Passes::Two);
        // Runs that are long already.
        let (one, two) = (Load { requests: 8192.0, bytes: 1e9 }, Load { requests: 8192.0, bytes: 2e9 });
        assert_eq!(choose(Costs { request: 30_000.0, byte: 0.55 }, one, two), Passes::One);
    }

    #[test]
    fn costs_are_those_of_both_kinds_of_reads() {
        let long = Load { requests: 56.0, bytes: 56.0 * MIB };
        let short = Load { requests: 1000.0, bytes: 7.0 * MIB };
        let costs = Costs::seen((long, 28.0 * MIB), (short, 3.5 * MIB + 3e7));
        assert!((costs.byte - 0.5).abs() < 1e-9 && (costs.request - 30_000.0).abs() < 1e-3, "{costs:?}");
        // Short reads that were faster than long ones: a disk that was busy, or a cache.
        assert!(Costs::seen((long, 28.0 * MIB), (short, 1e6)).request.abs() < 1e-9);
        assert!(is_large(1 << 30, 1 << 28) && !is_large((1 << 30) - 1, 1 << 28));
    }
}
