//! Which documents are for validation, and in which order documents are dealt: functions of a seed and a document's
//! number in the input, so that neither threads nor a kill can change them.

use lowtide::order::{Inverse, Order as _, Permutation};

/// Never changed once released: the same seed gives the same split for good.
const SPLIT: &str = "lowtide 2026-11-16 prepare: which documents are for validation";
const ORDER: &str = "lowtide 2026-11-16 prepare: in which order documents are dealt";

/// Which stream a document goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Train,
    Val,
}

impl Part {
    pub const ALL: [Self; 2] = [Self::Train, Self::Val];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
    }

    pub const fn index(self) -> usize {
        match self {
            Self::Train => 0,
            Self::Val => 1,
        }
    }
}

/// Deals documents to the streams.
#[derive(Clone, Copy, Debug)]
pub enum Splitter {
    /// Some to each.
    Share {
        key: [u8; 32],
        /// A document is for validation where its hash is below this.
        below: u64,
    },
    /// All to one.
    Only(Part),
}

impl Splitter {
    /// `val` is the share of documents for validation, from 0 up to, but not including, 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the product is in 0..2^64
    pub fn new(seed: u64, val: f64) -> Self {
        match (val * 2_f64.powi(64)) as u64 {
            0 => Self::Only(Part::Train),
            below => Self::Share { key: key(SPLIT, seed), below },
        }
    }

    pub fn part(&self, document: u64) -> Part {
        match self {
            Self::Only(part) => *part,
            Self::Share { key, below } if hash(key, document) < *below => Part::Val,
            Self::Share { .. } => Part::Train,
        }
    }
}

/// Puts documents in another order.
#[derive(Clone, Debug)]
pub enum Shuffle {
    /// By a hash of their numbers, of which there may be any.
    Hashed([u8; 32]),
    /// By their positions in a permutation of all of them, in the upper bits of a key.
    Permuted { positions: Box<Inverse>, shift: u32 },
}

impl Shuffle {
    pub fn new(seed: u64) -> Self {
        Self::Hashed(key(ORDER, seed))
    }

    /// In the order of a permutation.
    pub fn permuted(order: &Permutation) -> Self {
        let shift = order.len().saturating_sub(1).leading_zeros().min(63);
        Self::Permuted { positions: Box::new(order.inverse()), shift }
    }

    /// Documents are sorted by this, and by their number where two are equal.
    pub fn key(&self, document: u64) -> u64 {
        match self {
            Self::Hashed(key) => hash(key, document),
            Self::Permuted { positions, shift } => {
                let mut position = [0];
                positions.fill(document, &mut position);
                position[0] << shift
            }
        }
    }
}

fn key(purpose: &'static str, seed: u64) -> [u8; 32] {
    *blake3::Hasher::new_derive_key(purpose).update(&seed.to_le_bytes()).finalize().as_bytes()
}

fn hash(key: &[u8; 32], document: u64) -> u64 {
    let hash = blake3::keyed_hash(key, &document.to_le_bytes());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().unwrap_or(&[0; 8]))
}

#[cfg(test)]
mod tests {
    use super::{Part, Shuffle, Splitter};

    #[test]
    fn the_share_is_what_was_asked_for() {
        for val in [0.0, 0.0005, 0.1, 0.5] {
            let splitter = Splitter::new(7, val);
            let n = (0..100_000).filter(|&n| splitter.part(n) == Part::Val).count() as f64;
            let (mean, spread) = (val * 1e5, (val * (1.0 - val) * 1e5).sqrt());
            assert!((n - mean).abs() <= 5.0 * spread, "{val}: {n}");
        }
    }

    #[test]
    fn seeds_are_unrelated_and_stay_what_they_are() {
        let keys = |seed| (0..1000).map(|n| Shuffle::new(seed).key(n)).collect::<Vec<_>>();
        assert_ne!(keys(0), keys(1));
        let part = |seed| (0..64).map(|n| Splitter::new(seed, 0.5).part(n).index()).collect::<Vec<_>>();
        assert_ne!(part(0), part(1));
        // Golden: another value here would deal another validation set to everybody.
        assert_eq!(Shuffle::new(0).key(0), GOLDEN);
    }

    const GOLDEN: u64 = 6_954_141_714_486_931_432;
}
