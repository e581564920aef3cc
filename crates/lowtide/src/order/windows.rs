//! Where the windows of an epoch begin: one cut of the token stream, another one each epoch.
//!
//! A window of block size T is T + 1 tokens, the last T of which are targets. Windows of one epoch lie T
//! apart, so that each token is a target at most once; from epoch to epoch they all move by a phase φ, so that
//! a model sees each token after other contexts.
//!
//! ```text
//!  0    φ     φ + T   φ + 2T             φ + KT      N
//!  │....│ window 0      .                  .....│....│
//!  │....│......│ window 1                  .....│....│
//!  └─ 0 ≤ φ < N − KT                            └ last target of window K − 1
//! ```
//!
//! K = ⌊(N − T) / T⌋ does not depend on the epoch: an epoch has a length that can be counted on, whatever φ.
//! That leaves φ a range of N − KT, which is at least T, so that every token takes part in some epoch, and less
//! than 2T, so that fewer than 2T are not targets in any one.
//!
//! In which order the windows come is for an [`Order`](super::Order) of K rows to say.

use super::hash::Bits;
use crate::error::{Error, Result};

/// Names our phases apart from all other uses of BLAKE3. Changing it moves every epoch.
const PURPOSE: &str = "lowtide order windows v1";

/// The windows of one epoch.
///
/// ```
/// use lowtide::order::Windows;
///
/// let windows = Windows::new(/* tokens */ 1_000_000, /* block */ 1_024, /* seed */ 42, /* epoch */ 0)?;
/// assert_eq!(windows.count(), 975);
/// assert_eq!(windows.start(7), windows.phase() + 7 * 1_024); // 1,025 tokens from here
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    block: u64,
    count: u64,
    phase: u64,
}

impl Windows {
    /// The windows of `block` + 1 tokens in a stream of `tokens`, in this epoch under this seed.
    ///
    /// # Errors
    /// [`Error::Argument`] where there would be none: `block` is 0, or `tokens` are fewer than two blocks.
    pub fn new(tokens: u64, block: u64, seed: u64, epoch: u64) -> Result<Self> {
        if block == 0 {
            return Err(Error::argument("block_size is 0", "a window has at least one token and its target"));
        }
        // Two blocks at least: less one for the phase to move in, that is K.
        let count = (tokens / block).saturating_sub(1);
        if count == 0 {
            return Err(too_short(tokens, block));
        }
        // count × block ≤ tokens − block, so that nothing overflows, here and in `start`.
        let phase = Bits::new(PURPOSE, &[tokens, block, seed, epoch]).below(tokens - count * block);
        Ok(Self { block, count, phase })
    }

    /// K, how many windows there are: at least 1, and the same in every epoch.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// φ, where the first window begins.
    pub fn phase(&self) -> u64 {
        self.phase
    }

    /// T, how far apart windows are: a window has one token more.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// The first token of window `k`.
    ///
    /// # Panics
    ///
    /// If `k` is not below [`count`](Self::count): it comes from an order of that many rows.
    pub fn start(&self, k: u64) -> u64 {
        assert!(k < self.count, "window {k} is out of bounds for an epoch of {}", self.count);
        self.phase + k * self.block
    }
}

fn too_short(tokens: u64, block: u64) -> Error {
    if tokens < 2 {
        return Error::argument(
            format!("there is no window of block_size {block} in a stream of {tokens} tokens"),
            "a window has at least one token and its target; is this the right file?",
        );
    }
    let fits = tokens / 2;
    if tokens <= block {
        return Error::argument(
            format!("windows of block_size {block} have one token more, and there are only {tokens} tokens"),
            format!("block_size {fits} or less fits"),
        );
    }
    Error::argument(
        format!(
            "an epoch needs two blocks of tokens, 2 × {block} at this block_size, and there are {tokens}"
        ),
        format!("block_size {fits} or less fits; order=\"with_replacement\" takes up to {}", tokens - 1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What must hold of any windows; `u128` shows overflow instead of wrapping.
    fn check(tokens: u64, block: u64, seed: u64, epoch: u64) {
        let windows = Windows::new(tokens, block, seed, epoch).unwrap();
        let [n, t, k, phase] = [tokens, block, windows.count(), windows.phase()].map(u128::from);
        assert_eq!(windows.block(), block);
        assert_eq!(k, (n - t) / t, "K = ⌊(N − T) / T⌋");
        assert!(phase < n - k * t, "the phase is in its range");
        assert!(n - k * t >= t, "every cut is possible");
        assert!(n - k * t < 2 * t, "fewer than 2T tokens are no targets");
        for window in [0, k / 2, k - 1] {
            let start = windows.start(u64::try_from(window).unwrap());
            assert_eq!(u128::from(start), phase + window * t);
            assert!(u128::from(start) + t < n, "the last target is inside the stream");
        }
        let other = Windows::new(tokens, block, seed ^ epoch ^ 1, epoch.wrapping_add(1)).unwrap();
        assert_eq!(other.count(), windows.count());
    }

    proptest! {
        #[test]
        fn each_token_is_a_target_at_most_once(
            block in 1_u64..60, more in 0_u64..600, seed: u64, epoch: u64,
        ) {
            let tokens = 2 * block + more;
            let windows = Windows::new(tokens, block, seed, epoch).unwrap();
            let mut targets = vec![0; usize::try_from(tokens).unwrap()];
            for window in 0..windows.count() {
                let start = usize::try_from(windows.start(window)).unwrap();
                for target in &mut targets[start + 1..][..usize::try_from(block).unwrap()] {
                    *target += 1;
                }
            }
            prop_assert!(targets.iter().all(|&times| times <= 1));
            prop_assert!((targets.iter().filter(|&&times| times == 0).count() as u64) < 2 * block);
            check(tokens, block, seed, epoch);
        }

        #[test]
        fn at_any_size(bits in 1..=64_u32, of_block in 0..64_u32, raw: [u64; 2], seed: u64, epoch: u64) {
            let tokens = (raw[0] >> (64 - bits)).max(2);
            let block = (raw[1] >> of_block) % (tokens / 2) + 1;
            check(tokens, block, seed, epoch);
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        for tokens in [i64::MAX as u64, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX] {
            for block in [1, 2, 1_024, (1 << 32) + 1, tokens / 3, tokens / 2] {
                for epoch in [0, 1, u64::MAX] {
                    check(tokens, block, epoch, epoch);
                }
            }
        }
    }

    #[test]
    fn by_hand() {
        // 2 tokens: one is the input, the other its target, and nothing can move.
        let least = Windows::new(2, 1, 3, 4).unwrap();
        assert_eq!((least.count(), least.phase(), least.start(0)), (1, 0, 0));
        // Two blocks exactly: one window, at any of T places.
        let phases: Vec<u64> = (0..200).map(|epoch| Windows::new(8, 4, 0, epoch).unwrap().phase()).collect();
        assert!((0..4).all(|phase| phases.contains(&phase)) && phases.iter().all(|&phase| phase < 4));
    }

    #[test]
    fn no_windows_are_refused() {
        for (tokens, block, message) in [
            (9, 0, "block_size is 0\nhint: a window has at least one token and its target"),
            (
                1,
                8,
                "there is no window of block_size 8 in a stream of 1 tokens\n\
                 hint: a window has at least one token and its target; is this the right file?",
            ),
            (
                1_000,
                1_024,
                "windows of block_size 1024 have one token more, and there are only 1000 tokens\n\
                 hint: block_size 500 or less fits",
            ),
            (
                2_047,
                1_024,
                "an epoch needs two blocks of tokens, 2 × 1024 at this block_size, and there are 2047\n\
                 hint: block_size 1023 or less fits; order=\"with_replacement\" takes up to 2046",
            ),
        ] {
            let error = Windows::new(tokens, block, 0, 0).unwrap_err();
            assert!(matches!(error, Error::Argument { .. }), "{error:?}");
            assert_eq!(error.to_string(), message);
        }
        assert!(Windows::new(u64::MAX, u64::MAX, 0, 0).is_err());
        assert!(Windows::new(0, u64::MAX, 0, 0).is_err());
        // What the hint offers is accepted.
        for tokens in 2..100 {
            Windows::new(tokens, tokens / 2, 0, 0).unwrap();
            Windows::new(tokens, tokens / 2 + 1, 0, 0).unwrap_err();
        }
    }

    #[test]
    #[should_panic(expected = "window 2 is out of bounds for an epoch of 2")]
    fn the_end_is_the_end() {
        Windows::new(30, 10, 0, 0).unwrap().start(2);
    }

    /// These values are part of the interface: a saved state counts on them. If this fails, every epoch ever
    /// resumed has moved; do not update the numbers, find out why. They were computed by another program,
    /// `tests/reference/windows.py`.
    #[test]
    fn the_same_forever() {
        let cases: &[(u64, u64, u64, u64, u64, u64)] = &[
            (2, 1, 0, 0, 1, 0),
            (2_048, 1_024, 0, 0, 1, 527),
            (2_048, 1_024, 0, 1, 1, 916),
            (2_048, 1_024, 1, 0, 1, 217),
            (1_000_000, 1_024, 42, 7, 975, 888),
            (4_294_967_296, 1_024, 1_337, 3, 4_194_303, 828),
            (9_035_582_489, 1_024, u64::MAX, u64::MAX, 8_823_810, 574),
            (10_000_000_000_001, 8_192, 2_026, 11, 1_220_703_124, 5_418),
            (1 << 63, 1 << 62, 5, 6, 1, 1_462_333_036_776_714_402),
            (u64::MAX, (1 << 63) - 1, 0, 0, 1, 8_728_241_388_460_047_713),
            (u64::MAX, 3, 0, 0, 6_148_914_691_236_517_204, 1),
        ];
        for &(tokens, block, seed, epoch, count, phase) in cases {
            let windows = Windows::new(tokens, block, seed, epoch).unwrap();
            assert_eq!(
                (windows.count(), windows.phase()),
                (count, phase),
                "({tokens}, {block}, {seed}, {epoch})"
            );
        }
    }
}
