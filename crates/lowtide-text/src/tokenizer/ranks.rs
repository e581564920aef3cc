//! The words of a vocabulary and their ranks: bytes to id, id to bytes.

/// No id.
pub(super) const NONE: u32 = u32::MAX;

/// Words by id, and ids by word.
#[derive(Debug)]
pub(super) struct Ranks {
    words: Vec<u8>,
    /// Word `id` is `words[ends[id]..ends[id + 1]]`.
    ends: Vec<u32>,
    /// Ids of the words of two bytes, which is where every merge begins.
    pairs: Vec<u32>,
    singles: [u32; 256],
    /// Open addressing, at most half full.
    slots: Vec<Slot>,
    longest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The upper half of the hash: a word that is not here is told from it without a look at `words`.
    tag: u32,
    id: u32,
}

impl Ranks {
    /// The words by id; an empty word is an id that no text becomes.
    pub(super) fn new(list: &[Vec<u8>]) -> Self {
        let mut ranks = Self {
            words: list.concat(),
            ends: vec![0],
            pairs: vec![NONE; 1 << 16],
            singles: [NONE; 256],
            slots: vec![Slot { tag: 0, id: NONE }; (list.len() * 2).next_power_of_two()],
            longest: list.iter().map(Vec::len).max().unwrap_or(0),
        };
        let mut end = 0;
        for (word, id) in list.iter().zip(0..) {
            end += u32::try_from(word.len()).unwrap_or(0);
            ranks.ends.push(end);
            match word[..] {
                [] => {}
                [byte] => ranks.singles[usize::from(byte)] = id,
                [a, b] => ranks.pairs[pair(a, b)] = id,
                _ => {
                    let (mut at, tag) = ranks.place(word);
                    while ranks.slots[at].id != NONE {
                        at = (at + 1) & (ranks.slots.len() - 1);
                    }
                    ranks.slots[at] = Slot { tag, id };
                }
            }
        }
        ranks
    }

    /// The id of a byte, of which every vocabulary has all.
    pub(super) fn single(&self, byte: u8) -> u32 {
        self.singles[usize::from(byte)]
    }

    /// The id of a word of two bytes, or `NONE`.
    #[inline]
    pub(super) fn pair(&self, a: u8, b: u8) -> u32 {
        self.pairs[pair(a, b)]
    }

    /// The id of a word, or `NONE`.
    #[inline]
    pub(super) fn get(&self, word: &[u8]) -> u32 {
        match *word {
            [] => NONE,
            [byte] => self.single(byte),
            [a, b] => self.pair(a, b),
            _ if word.len() > self.longest => NONE,
            _ => {
                let (mut at, tag) = self.place(word);
                loop {
                    let slot = self.slots[at];
                    if slot.id == NONE || (slot.tag == tag && self.word(slot.id) == word) {
                        return slot.id;
                    }
                    at = (at + 1) & (self.slots.len() - 1);
                }
            }
        }
    }

    /// The bytes of an id; empty where it has none.
    pub(super) fn word(&self, id: u32) -> &[u8] {
        let id = id as usize;
        match self.ends.get(id..).and_then(<[u32]>::first_chunk) {
            Some(&[start, end]) => &self.words[start as usize..end as usize],
            None => &[],
        }
    }

    /// How many ids there are, those without a word included.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.ends.len() - 1).unwrap_or(u32::MAX)
    }

    /// Bytes that it holds.
    pub(super) fn memory(&self) -> u64 {
        (self.words.capacity()
            + (self.ends.capacity() + self.pairs.capacity()) * 4
            + self.slots.capacity() * 8) as u64
    }

    #[inline]
    fn place(&self, word: &[u8]) -> (usize, u32) {
        let hash = hash(word);
        #[expect(clippy::cast_possible_truncation, reason = "both halves of a hash")]
        (hash as usize & (self.slots.len() - 1), (hash >> 32) as u32)
    }
}

fn pair(a: u8, b: u8) -> usize {
    usize::from(a) << 8 | usize::from(b)
}

/// A hash of a few bytes. Nobody can make collisions that matter: the table is filled with the vocabulary, not with text.
#[inline]
fn hash(word: &[u8]) -> u64 {
    let (eights, rest) = word.as_chunks::<8>();
    let mut hash = word.len() as u64;
    for &eight in eights {
        hash = mix(hash, u64::from_le_bytes(eight));
    }
    let tail = match rest.len() {
        0 => return hash ^ (hash >> 29),
        // The last eight bytes, some of them for the second time: the length tells them apart.
        _ if !eights.is_empty() => u64::from_le_bytes(*word.last_chunk().unwrap_or(&[0; 8])),
        _ => rest.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)),
    };
    let hash = mix(hash, tail);
    hash ^ (hash >> 29)
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9E37_79B9_7F4A_7C15) * 0xA24B_AED4_963E_E407;
    #[expect(clippy::cast_possible_truncation, reason = "both halves, folded")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn words_are_found_and_others_are_not() {
        let mut list: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        list.push(Vec::new());
        list.extend((0..4000u32).map(|i| i.wrapping_mul(2_654_435_761).to_string().into_bytes()));
        list.extend([b"ab".to_vec(), b"ab\0".to_vec(), b"ab\0\0".to_vec(), vec![b'x'; 1000]]);
        let ranks = Ranks::new(&list);
        let oracle: BTreeMap<&[u8], u32> = list.iter().map(Vec::as_slice).zip(0..).collect();
        for (word, id) in list.iter().zip(0..) {
            assert_eq!(ranks.word(id), word);
            if !word.is_empty() {
                assert_eq!(ranks.get(word), oracle[&word[..]]);
            }
        }
        for word in [&b"ab\0\0\0"[..], b"zz", &[b'x'; 999], &[b'x'; 1001], b"", b"12345678901"] {
            assert_eq!(ranks.get(word), NONE, "{word:?}");
        }
        assert_eq!(ranks.word(ranks.len()), b"");
        assert_eq!(ranks.word(u32::MAX), b"");
    }
}
