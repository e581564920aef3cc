//! Random bits from numbers: how a seed and an epoch become keys.
//!
//! Adding the epoch to the seed would make seed s, epoch 1 the same as seed s + 1, epoch 0, and any
//! home-made mixing has to be argued. BLAKE3 needs no argument: its output for different input is
//! unrelated, it is specified for good and on every platform, and it costs a microsecond an epoch.

/// An endless stream of random bits that is a function of its purpose and its numbers.
pub(super) struct Bits {
    source: blake3::OutputReader,
    block: [u8; BLOCK],
    used: usize,
}

/// BLAKE3 makes its output in blocks of this size and throws away the rest of a block not asked for.
const BLOCK: usize = 64;

impl Bits {
    /// The stream for `numbers`. Two purposes share nothing, whatever their numbers: a `purpose` is a
    /// constant of the program, never changed once released.
    pub fn new(purpose: &'static str, numbers: &[u64]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        for number in numbers {
            hasher.update(&number.to_le_bytes());
        }
        Self::of(&hasher)
    }

    /// The stream for `number` under a key, itself drawn from [`Bits`]: for streams that are made by the
    /// million. It takes 0.23 µs to its first number, [`new`](Self::new) 0.68 (EPYC at 2.4 GHz, a busy machine).
    pub fn keyed(key: &[u8; 32], number: u64) -> Self {
        Self::of(blake3::Hasher::new_keyed(key).update(&number.to_le_bytes()))
    }

    fn of(hasher: &blake3::Hasher) -> Self {
        Self { source: hasher.finalize_xof(), block: [0; BLOCK], used: BLOCK }
    }

    /// A key for [`keyed`](Self::keyed).
    pub fn key(&mut self) -> [u8; 32] {
        let mut key = [0; 32];
        for bytes in key.chunks_exact_mut(8) {
            bytes.copy_from_slice(&self.next().to_le_bytes());
        }
        key
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        if self.used == BLOCK {
            self.source.fill(&mut self.block);
            self.used = 0;
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.block[self.used..self.used + 8]);
        self.used += 8;
        u64::from_le_bytes(bytes)
    }

    /// A number below `bound`, which is at least 1, each exactly equally likely.
    ///
    /// Lemire's multiplication: the high half of `bits × bound` is the draw, and the few values of the
    /// low half that would make some draws likelier than others are drawn again.
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "no number is below 0");
        let surplus = bound.wrapping_neg() % bound;
        loop {
            let bits = self.next();
            if bits.wrapping_mul(bound) >= surplus {
                return ((u128::from(bits) * u128::from(bound)) >> 64) as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_never_changes() {
        let mut bits = Bits::new("lowtide test", &[1, 2]);
        let got: Vec<u64> = (0..10).map(|_| bits.next()).collect();
        // The same bytes, asked for in one go from the hash itself.
        let mut bytes = [0; 80];
        let mut oracle = blake3::Hasher::new_derive_key("lowtide test");
        oracle.update(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).finalize_xof().fill(&mut bytes);
        let expected: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|b| b.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
            .collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn keyed_streams_never_change() {
        let key = Bits::new("lowtide test", &[1, 2]).key();
        let mut whole = [0; 32];
        let mut oracle = blake3::Hasher::new_derive_key("lowtide test");
        oracle.update(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).finalize_xof().fill(&mut whole);
        assert_eq!(key, whole);
        let hash = blake3::keyed_hash(&key, &[7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Bits::keyed(&key, 7).key(), *hash.as_bytes());
    }

    #[test]
    fn draws_stay_below_their_bound() {
        let mut bits = Bits::new("lowtide test", &[3]);
        for bound in [1, 2, 3, 1 << 32, (1 << 63) + 1, u64::MAX] {
            assert!((0..1_000).all(|_| bits.below(bound) < bound), "{bound}");
        }
    }

    /// With a bound of 3/4 of 2^64 a third of the numbers would be twice as likely without the second
    /// draw: 50% instead of 33% below a third of the bound.
    #[test]
    fn draws_are_not_biased() {
        let bound = 3 << 62;
        let mut bits = Bits::new("lowtide test", &[4]);
        let low = (0..100_000).filter(|_| bits.below(bound).is_multiple_of(3)).count();
        // Binomial(100,000, 1/3): standard deviation 149; five of them, one false alarm in 1.7 million.
        assert!(low.abs_diff(33_333) < 5 * 149, "{low}");
    }
}
