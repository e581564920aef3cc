//! Whether axes are turned in one pass or in two: pure.
//!
//! One pass moves every byte once in and once out, in runs that are as short as the memory is small. Two passes move all of
//! it twice, in long runs. Disks of clouds are bound by requests a second, 20 to 45 thousand of any size up to 32 KiB, and
//! there two passes take half as long; a disk of one's own that answers half a million is better off with one.

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

/// What a disk takes, in nanoseconds: for a short request, whatever its size, and for a byte of a long one. Writes are taken
/// to cost what reads do: the disks that count requests count both alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Costs {
    pub(super) request: f64,
    pub(super) byte: f64,
}

/// Budgets that the data has to be larger than: less is done before a choice pays.
const MANY: u64 = 4;

/// Whether data of so many bytes is large enough for two passes in a budget.
pub(super) fn is_large(bytes: u64, budget: u64) -> bool {
    bytes / MANY >= budget
}

impl Costs {
    /// From some long reads and some short ones: what each asked for, and how long it took, in nanoseconds. Of each kind the
    /// fastest counts: what others do at the same time, and what is done for the first time, only makes them slower.
    pub(super) fn seen(long: &[(Load, f64)], short: &[(Load, f64)]) -> Self {
        let byte = long.iter().map(|(load, took)| took / load.bytes);
        let request = short.iter().map(|(load, took)| took / load.requests);
        Self { request: request.fold(f64::INFINITY, f64::min), byte: byte.fold(f64::INFINITY, f64::min) }
    }

    /// How long a disk takes for all of it: it is bound by requests or by bytes.
    fn of(self, loads: &[Load]) -> f64 {
        loads.iter().map(|load| (self.request * load.requests).max(self.byte * load.bytes)).sum()
    }
}

/// One pass or two, where both can be.
pub(super) fn choose(costs: Costs, one: &[Load], two: &[Load]) -> Passes {
    if costs.of(one) > costs.of(two) { Passes::Two } else { Passes::One }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    /// A square of 4 GiB in 256 MiB: runs of 7 KiB are read and of 32 KiB written, or 512 KiB at a time.
    fn square(costs: Costs) -> Passes {
        let bytes = 4096.0 * MIB;
        let load = |run: f64| Load { requests: bytes / run, bytes };
        choose(costs, &[load(7168.0), load(32768.0)], &[load(524_288.0); 4])
    }

    #[test]
    fn short_requests_are_avoided_where_they_are_dear() {
        // A disk of a cloud: 50,000 requests a second as long as it is fresh, 30,000 later; 1.8 GB/s.
        assert_eq!(square(Costs { request: 20_000.0, byte: 0.55 }), Passes::Two);
        assert_eq!(square(Costs { request: 33_000.0, byte: 0.55 }), Passes::Two);
        // A disk of one's own: 500,000, and 3 GB/s.
        assert_eq!(square(Costs { request: 2_000.0, byte: 0.33 }), Passes::One);
        // An input in memory.
        assert_eq!(square(Costs { request: 1_500.0, byte: 0.1 }), Passes::One);
        // A disk that turns: half a megabyte is a short request there, too, but a longer one.
        assert_eq!(square(Costs { request: 5e6, byte: 5.0 }), Passes::Two);
        // Runs that are long already.
        let long = Load { requests: 1e9 / 524_288.0, bytes: 1e9 };
        assert_eq!(choose(Costs { request: 20_000.0, byte: 0.55 }, &[long; 2], &[long; 4]), Passes::One);
    }

    #[test]
    fn the_fastest_reads_say_what_a_disk_takes() {
        let long = Load { requests: 112.0, bytes: 56.0 * MIB };
        let short = Load { requests: 1000.0, bytes: 7.0 * MIB };
        let costs = Costs::seen(&[(long, 90.0 * MIB), (long, 28.0 * MIB)], &[(short, 2e7), (short, 3e7)]);
        assert!((costs.byte - 0.5).abs() < 1e-9 && (costs.request - 20_000.0).abs() < 1e-3, "{costs:?}");
        assert!(is_large(1 << 30, 1 << 28) && !is_large((1 << 30) - 1, 1 << 28));
    }
}
