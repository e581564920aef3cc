//! Pieces that were seen lately, and their ids: text repeats itself, and a merge costs many times a look here.
//!
//! Of fixed size. A piece has one place; the later one takes it.

/// Places: half a MiB, a part of a core's second cache. Chosen, not measured.
const PLACES: usize = 1 << 14;
/// The longest piece that is kept: its bytes and its length are one `u128`.
pub(super) const LONGEST: usize = 15;
/// The most ids of a piece that is kept.
const MOST: usize = 3;

#[derive(Clone, Copy)]
struct Place {
    piece: u128,
    ids: [u32; MOST],
    count: u32,
}

pub(super) struct Memo {
    places: Box<[Place]>,
}

/// A piece as a number.
#[derive(Clone, Copy)]
pub(super) struct Key(u128);

impl Key {
    /// The piece that begins at `start`, of at most `LONGEST` bytes.
    #[inline]
    pub(super) fn new(text: &[u8], start: usize, end: usize) -> Self {
        let len = end - start;
        let bytes = match text.get(start..start + 16) {
            Some(sixteen) => {
                let all = u128::from_le_bytes(sixteen.try_into().unwrap_or([0; 16]));
                all & ((1 << (len * 8)) - 1)
            }
            None => text[start..end].iter().rev().fold(0, |all, &byte| all << 8 | u128::from(byte)),
        };
        Self(bytes | (len as u128) << 120)
    }

    #[inline]
    fn place(self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "both halves; then fewer bits than any usize")]
        let place = {
            let (low, high) = (self.0 as u64, (self.0 >> 64) as u64);
            let hash = (low ^ high.rotate_left(23)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (hash >> (64 - PLACES.trailing_zeros())) as usize
        };
        place
    }
}

impl Memo {
    pub(super) const BYTES: usize = PLACES * size_of::<Place>();

    pub(super) fn new() -> Self {
        Self { places: vec![Place { piece: 0, ids: [0; MOST], count: 0 }; PLACES].into() }
    }

    /// Appends the ids of the piece, if they are known.
    #[inline]
    pub(super) fn get(&self, key: Key, ids: &mut Vec<u32>) -> bool {
        let place = &self.places[key.place()];
        if place.piece != key.0 {
            return false;
        }
        if place.count == 1 {
            ids.push(place.ids[0]);
        } else {
            ids.extend_from_slice(&place.ids[..place.count as usize]);
        }
        true
    }

    /// Keeps the ids of a piece, if they are few.
    #[inline]
    pub(super) fn put(&mut self, key: Key, ids: &[u32]) {
        if ids.len() <= MOST {
            let place = &mut self.places[key.place()];
            place.piece = key.0;
            place.ids[..ids.len()].copy_from_slice(ids);
            #[expect(clippy::cast_possible_truncation, reason = "at most three")]
            let count = ids.len() as u32;
            place.count = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_differ_have_keys_that_differ() {
        let text = b"ab\0\0abc\0 and then some more bytes";
        let mut keys = std::collections::HashMap::new();
        for start in 0..text.len() {
            for end in start + 1..=text.len().min(start + LONGEST) {
                let piece = &text[start..end];
                assert_eq!(*keys.entry(Key::new(text, start, end).0).or_insert(piece), piece);
            }
        }
    }

    #[test]
    fn what_was_kept_comes_back_and_nothing_else() {
        let mut memo = Memo::new();
        let key = Key::new(b"hello", 0, 5);
        let mut ids = vec![7];
        assert!(!memo.get(key, &mut ids));
        memo.put(key, &[1, 2, 3]);
        assert!(memo.get(key, &mut ids));
        assert_eq!(ids, [7, 1, 2, 3]);
        memo.put(Key::new(b"many", 0, 4), &[1, 2, 3, 4]);
        assert!(!memo.get(Key::new(b"many", 0, 4), &mut ids));
    }
}
