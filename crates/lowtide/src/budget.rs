//! Every byte that we hold, counted.
//!
//! A [`Budget`] belongs to one opened object and all that is made from it, or to several if the caller
//! passes the same one. Read buffers, look-ahead, queued batches, mapped windows and free slabs are
//! leased from it; a delivered batch is the caller's and is not counted. Leasing never waits: what does
//! not fit is planned smaller, or refused where it cannot be smaller.

use crate::door::{BUDGET, Words};
use crate::error::{Error, Result};
use crate::sys;
use pool::FreeSlabs;
use std::sync::{Arc, Mutex};

pub mod pool;

pub use crate::size::human;

/// The largest default: more gains little (BENCHMARKS.md) and neighbours notice.
const DEFAULT_LIMIT: u64 = 256 << 20;

/// A limit in bytes, and what is in use of it. Clones share one limit.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    state: Mutex<State>,
}

/// What is in use. Free slabs are in `used` too: they are memory that we hold.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) used: u64,
    pub(crate) free: FreeSlabs,
    /// See [`sys::generation`]: in a forked child the leases of its parent's threads are nobody's.
    generation: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Result<Self> {
        if limit == 0 {
            return Err(Error::argument(
                "a budget of 0 bytes has no room for anything",
                Words::from("try ") + BUDGET.is("64MiB"),
            ));
        }
        Ok(Self(Arc::new(Inner { limit, state: Mutex::default() })))
    }

    /// The default: the smaller of 256 MiB and a quarter of the room that this process has.
    pub fn default_for(room: u64) -> Self {
        let limit = DEFAULT_LIMIT.min(room / 4).max(1);
        Self(Arc::new(Inner { limit, state: Mutex::default() }))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// What is in use now, free slabs included.
    pub fn used(&self) -> u64 {
        self.with(|state| state.used)
    }

    /// What a lease could get now: free slabs would make way for it.
    pub fn available(&self) -> u64 {
        self.with(|state| self.0.limit.saturating_sub(state.used - state.free.bytes()))
    }

    /// Whether two handles are the same budget.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Takes `bytes` until the lease is dropped, or nothing where they are not there.
    pub fn lease(&self, bytes: u64) -> Option<Lease> {
        self.with(|state| self.charge(state, bytes)).then(|| Lease {
            budget: self.clone(),
            bytes,
            generation: sys::generation(),
        })
    }

    /// Counts `bytes` as used if they fit, letting go of free slabs to make them fit.
    pub(crate) fn charge(&self, state: &mut State, bytes: u64) -> bool {
        let fits = |state: &State| state.used.checked_add(bytes).is_some_and(|sum| sum <= self.0.limit);
        if bytes > self.0.limit {
            return false;
        }
        while !fits(state) {
            match state.free.pop_oldest() {
                Some(slab) => state.used -= slab.capacity() as u64,
                None => return false,
            }
        }
        state.used += bytes;
        true
    }

    /// Runs `f` on the state, with nobody forking meanwhile.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        sys::locked(&self.0.state, |state| {
            if state.generation != sys::generation() {
                // A forked child starts with nothing in use. Its parent's free slabs are left alone: they are
                // the parent's pages until someone writes to them.
                let old =
                    std::mem::replace(state, State { generation: sys::generation(), ..State::default() });
                std::mem::forget(old.free);
            }
            f(state)
        })
    }

    /// Gives back bytes that were charged in `generation`: in a child of that process they are not counted.
    pub(crate) fn discharge(&self, generation: u64, bytes: u64) {
        self.with(|state| {
            if state.generation == generation {
                state.used -= bytes;
            }
        });
    }
}

/// Bytes taken from a budget, given back when this is dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Budget,
    bytes: u64,
    generation: u64,
}

impl Lease {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of which budget.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.discharge(self.generation, self.bytes);
    }
}

/// Reads a size as people write it: `4096`, `"64MiB"`, `"1.5 GiB"`, `"2GB"`.
///
/// # Errors
/// [`Error::Argument`] where it is no size, is negative, or does not fit in 63 bits.
pub fn parse_size(text: &str) -> Result<u64> {
    let wrong = || {
        let shown: String = text.chars().take(40).collect();
        Error::argument(
            format!("{shown:?} is not a size"),
            "write it like 512MiB, 1.5GiB, 2GB or as a number of bytes",
        )
    };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
    let (number, unit) = (trimmed[..split].trim(), trimmed[split..].to_ascii_lowercase());
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).filter(|&b| i64::try_from(b).is_ok()).ok_or_else(wrong);
    }
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(wrong());
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked: digits only, below 2^63
    if bytes < 9e18 { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64MiB", 64 << 20),
            (" 1.5 GiB ", 3 << 29),
            ("2GB", 2_000_000_000),
            ("2g", 2 << 30),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text).unwrap(), bytes, "{text}");
        }
        for text in [
            "",
            "MiB",
            "-1",
            "1e9",
            "1.2.3GiB",
            "inf",
            "nan",
            "64 MiBs",
            "9999999TiB",
            "99999999999999999999",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1025, "1 KiB"),
            (10_000, "9.77 KiB"),
            (12_000, "11.7 KiB"),
            (958_464, "936 KiB"),
            ((10 << 10) - 4, "10 KiB"),
            ((100 << 10) - 4, "100 KiB"),
            ((1 << 20) - 1, "1 MiB"),
            (1000 << 20, "1000 MiB"),
            (64 << 20, "64 MiB"),
            (12_900_000, "12.3 MiB"),
            (3 << 29, "1.5 GiB"),
            (2_080_000_000, "1.94 GiB"),
            (100 << 30, "100 GiB"),
            (1 << 60, "1 EiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    proptest::proptest! {
        /// Half a unit of the third digit, or of the fourth from 1000 to 1023.
        #[test]
        fn what_is_written_is_read_back_to_three_digits(shift in 0_u32..63, low in proptest::num::u64::ANY) {
            let bytes = (low | 1 << 63) >> (63 - shift);
            let text = human(bytes);
            let digits = text.bytes().filter(u8::is_ascii_digit).count();
            proptest::prop_assert!(digits <= 3 || digits == 4 && !text.contains('.') , "{}", text);
            let back = parse_size(&text.replace("PiB", "TiB").replace("EiB", "TiB")).unwrap() as f64
                * if text.contains("PiB") { 1024.0 } else if text.contains("EiB") { 1024.0 * 1024.0 } else { 1.0 };
            proptest::prop_assert!((back - bytes as f64).abs() <= bytes as f64 * 0.0051, "{} is {}", bytes, text);
        }
    }

    #[test]
    fn a_lease_is_given_back_and_never_exceeds_the_limit() {
        let budget = Budget::new(100).unwrap();
        let first = budget.lease(60).unwrap();
        assert!(budget.lease(41).is_none());
        assert_eq!(budget.clone().available(), 40);
        drop(first);
        assert_eq!(budget.used(), 0);
        assert!(budget.lease(u64::MAX).is_none());
        assert!(budget.lease(100).is_some());
    }
}
