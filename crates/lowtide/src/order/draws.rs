//! Independent draws with replacement: nanoGPT's order, made so that it can be entered anywhere.
//!
//! Draw k is a function of the seed and of k, so that a run resumes at draw 10^12 as fast as at the first, and
//! ranks need not agree on anything but k. The bits come from [`philox`], keyed by the seed; the few that
//! would make some starts likelier than others are replaced by those of the next attempt, which a second
//! counter counts.

use super::hash::Bits;
use super::{Order, check_bounds};
use std::fmt;

/// Names our keys apart from all other uses of BLAKE3. Changing it changes every draw.
const PURPOSE: &str = "lowtide order draws v1";

/// Each position draws one of `starts` rows, all equally likely, whatever the others drew. There is no end:
/// [`len`](Order::len) is `u64::MAX`.
///
/// For windows of T + 1 of N tokens there are N − T starts.
///
/// ```
/// use lowtide::order::{Draws, Order};
///
/// let draws = Draws::new(/* starts */ 1_000_000, /* seed */ 42);
/// let mut starts = [0; 12];
/// draws.fill(12 * 1_000_000_000, &mut starts); // batch 10^9, at once
/// assert!(starts.iter().all(|&start| start < 1_000_000));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    starts: u64,
    /// 2^64 modulo `starts`: how many of the 2^64 values are too many.
    surplus: u64,
    key: u64,
    /// Which draw stands at position 0.
    first: u64,
}

impl Draws {
    /// Draws from `0..starts` under this seed. From 0 starts there are no draws: the order is empty.
    ///
    /// Draws of different seeds, or from different numbers of starts, have nothing to do with each other.
    pub fn new(starts: u64, seed: u64) -> Self {
        let surplus = starts.wrapping_neg().checked_rem(starts).unwrap_or(0);
        Self { starts, surplus, key: Bits::new(PURPOSE, &[starts, seed]).next(), first: 0 }
    }

    /// The same draws from number `first` on: position k is draw `first` + k, modulo 2^64.
    #[must_use]
    pub fn from(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// Draw `k`, by Lemire's multiplication as in [`Bits::below`].
    #[inline]
    fn draw(&self, k: u64) -> u64 {
        self.attempt(k, 0).unwrap_or_else(|| self.draw_again(k))
    }

    #[cold]
    fn draw_again(&self, k: u64) -> u64 {
        let mut attempt = 1;
        loop {
            if let Some(row) = self.attempt(k, attempt) {
                return row;
            }
            attempt += 1;
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
    fn attempt(&self, k: u64, attempt: u64) -> Option<u64> {
        let product = u128::from(philox::<ROUNDS>(k, attempt, self.key)) * u128::from(self.starts);
        (product as u64 >= self.surplus).then_some((product >> 64) as u64)
    }
}

impl Order for Draws {
    fn len(&self) -> u64 {
        if self.starts == 0 { 0 } else { u64::MAX }
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        check_bounds(self.len(), start, out.len());
        let mut k = self.first.wrapping_add(start);
        for row in out {
            *row = self.draw(k);
            k = k.wrapping_add(1);
        }
    }
}

impl fmt::Debug for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draws").field("starts", &self.starts).finish_non_exhaustive()
    }
}

/// The number of rounds of [`philox`]: the authors' own, who found six to pass every test of `BigCrush` and
/// advise ten. `quality::windows::rounds_of_draws_compared` sees up to three, by a |z| of 13,655, 2,856 and 875;
/// from four rounds up it stays below 5, as for random numbers.
pub(super) const ROUNDS: usize = 10;

/// Philox2x64 (Salmon, Moraes, Dror and Shaw, *Parallel Random Numbers: As Easy as 1, 2, 3*, SC 2011), the
/// first of its two words.
///
/// Chosen because it is made for this: a bijection of two counters under a key, whose outputs for
/// counters and keys that are neighbours pass `BigCrush`, with published test vectors; cuRAND, torch and
/// NumPy have its siblings. One multiplication a round, so that a draw takes some 10 ns at most
/// (`benches/order.rs`).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
pub(super) fn philox<const ROUNDS: usize>(k: u64, attempt: u64, key: u64) -> u64 {
    const MULTIPLIER: u64 = 0xD2B7_4407_B1CE_6E93;
    const KEY_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
    let (mut one, mut other, mut key) = (k, attempt, key);
    for _ in 0..ROUNDS {
        let product = u128::from(one) * u128::from(MULTIPLIER);
        (one, other) = ((product >> 64) as u64 ^ key ^ other, product as u64);
        key = key.wrapping_add(KEY_STEP);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::conformance;

    fn rows(draws: Draws, start: u64, count: usize) -> Vec<u64> {
        let mut rows = vec![0; count];
        draws.fill(start, &mut rows);
        rows
    }

    #[test]
    fn conforms() {
        for starts in [0, 1, 2, 3, 1_000_003, 1 << 40, (1 << 63) + 1, 3 << 62, u64::MAX] {
            conformance::check(&Draws::new(starts, starts ^ 5));
        }
    }

    #[test]
    fn draws_are_below_starts() {
        for starts in [1, 2, 3, 1 << 32, (1 << 63) + 1, u64::MAX] {
            assert!(rows(Draws::new(starts, 1), 0, 1_000).iter().all(|&row| row < starts), "{starts}");
        }
    }

    #[test]
    #[should_panic(expected = "1 positions from 0 are out of bounds for an order of 0")]
    fn from_nothing_nothing_is_drawn() {
        Draws::new(0, 0).fill(0, &mut [0]);
    }

    /// The authors' test vectors (`kat_vectors` of Random123).
    #[test]
    fn philox_is_philox() {
        assert_eq!(philox::<10>(0, 0, 0), 0xCA00_A045_9843_D731);
        assert_eq!(philox::<10>(u64::MAX, u64::MAX, u64::MAX), 0x65B0_21D6_0CD8_310F);
        let pi = [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0];
        assert_eq!(philox::<10>(pi[0], pi[1], pi[2]), 0x0A5E_742C_2997_341C);
        assert_eq!(philox::<7>(pi[0], pi[1], pi[2]), 0x98ED_1534_392B_F372);
    }

    /// With 3/4 of 2^64 starts a quarter of the bits are drawn again; without that, half of the draws and not
    /// a third would be multiples of 3.
    #[test]
    fn draws_are_not_biased() {
        let third =
            rows(Draws::new(3 << 62, 4), 0, 100_000).iter().filter(|row| row.is_multiple_of(3)).count();
        // Binomial(100,000, 1/3): standard deviation 149; five of them, one false alarm in 1.7 million.
        assert!(third.abs_diff(33_333) < 5 * 149, "{third}");
    }

    /// These values are part of the interface: a saved state counts on them. If this fails, every run ever
    /// resumed has changed; do not update the numbers, find out why. They were computed by another program,
    /// `tests/reference/windows.py`.
    #[test]
    fn the_same_forever() {
        let cases: &[(u64, u64, u64, [u64; 4])] = &[
            (1, 0, 0, [0, 0, 0, 0]),
            (6, 0, 0, [5, 3, 3, 1]),
            (6, 1, 0, [3, 2, 5, 1]),
            (7, 0, 0, [0, 4, 4, 1]),
            (1_000_000, 42, 0, [38_083, 929_754, 203_949, 999_123]),
            (1_000_000, 42, 12_000_000_000, [634_845, 98_364, 926_371, 187_205]),
            (
                9_035_581_465,
                1_337,
                999_999_999_999,
                [1_822_480_335, 1_704_514_720, 2_859_114_457, 372_746_556],
            ),
            (
                (1 << 40) + 1,
                u64::MAX,
                1 << 39,
                [581_782_072_120, 727_356_940_335, 648_784_828_408, 1_013_732_208_231],
            ),
            (
                (1 << 63) + 1,
                0,
                0,
                [
                    65_023_219_427_374_864,
                    7_904_961_067_427_254_730,
                    1_914_545_171_916_294_353,
                    1_441_535_022_920_593_377,
                ],
            ),
            (
                3 << 62,
                1 << 63,
                1 << 63,
                [
                    9_841_945_219_733_055_934,
                    3_475_146_146_335_784_601,
                    1_020_510_168_742_205_825,
                    1_498_959_625_932_029_405,
                ],
            ),
            (
                u64::MAX,
                2_026,
                u64::MAX - 4,
                [
                    10_245_081_746_151_277_290,
                    4_913_828_778_436_896_848,
                    12_662_881_382_095_348_726,
                    12_647_454_749_581_070_613,
                ],
            ),
        ];
        for &(starts, seed, start, expected) in cases {
            assert_eq!(rows(Draws::new(starts, seed), start, 4), expected, "({starts}, {seed}) from {start}");
        }
    }
}
