//! What the files of a local cache hold: pure, and hostile input.
//!
//! ```text
//! CACHEDIR.TAG   what other programs know as the mark of a cache, and ours: version, size, slot size
//! data           slots of 4 MiB, nothing else
//! index          a header · a record of 32 bytes for each slot · an entry of 512 bytes for each slot
//! ```
//!
//! A record is what readers look at with every read: a *stamp*, which is a random number that means this one filling of
//! the slot, or 0. An entry is what a slot holds, with a checksum for each 64 KiB of it and one of its own. Nothing here
//! is believed without them: bytes that make no sense are no entry, and a block without an entry is a miss.

use crate::error::{Error, Result};
use crate::size::human;
use std::path::Path;

/// The bytes of a slot, and of a block of an object.
pub const SLOT: u64 = 4 << 20;
/// A checksum is of this many bytes, so that a small read need not look at a whole slot.
pub const UNIT: u64 = 64 << 10;
/// Checksums of a slot: their verdicts fit in the bits of one number.
pub const UNITS: usize = 64;
/// The bytes of a record.
pub const RECORD: u64 = 32;
/// The bytes of an entry.
pub const ENTRY: usize = 512;
/// The bytes of the header.
pub const HEADER: u64 = 4096;
/// Where in the header the clock's hand is.
pub const HAND_AT: u64 = 64;
/// Where in the header the counts are.
pub const COUNTS_AT: u64 = 128;
/// What the index begins with.
pub const MAGIC: &[u8; 32] = b"lowtide cache index, version 1\n\n";
/// The mark that programs for backups know (bford.info/cachedir).
const SIGNATURE: &str = "Signature: 8a477f597d28d172789f06886806bc55";
/// The line of the mark that is ours.
const OURS: &str = "# lowtide cache, version ";
/// What this version of Lowtide writes.
const VERSION: u64 = 1;
/// The longest mark that is read.
pub const LONGEST_MARK: usize = 4096;
/// The longest label of an entry.
const LABEL: usize = 184;

const _: () = {
    assert!(UNIT * UNITS as u64 == SLOT && UNITS <= 64);
    assert!(32 + 8 + 8 + 4 + 4 * UNITS + 1 + LABEL <= ENTRY - 4, "an entry holds all that is in it");
    assert!(HEADER.is_multiple_of(RECORD));
};

/// How a cache of one size is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// What all files of it take at most, the folder included.
    pub size: u64,
    /// How many slots there are.
    pub slots: u64,
}

impl Geometry {
    /// The smallest size that makes sense.
    pub const LEAST: u64 = 8 << 20;

    /// Of a size in bytes.
    ///
    /// # Errors
    /// [`Error::Argument`] where it is too small or too large.
    pub fn of(size: u64) -> Result<Self> {
        // The folder, the mark, three ends of the index; and what a filesystem needs to write down where the slots are
        // (ext4 counts that as part of the file: 12 bytes for each piece of it, in whole blocks).
        const AROUND: u64 = 64 << 10;
        const EACH: u64 = SLOT + RECORD + ENTRY as u64 + 64;
        let slots = size.saturating_sub(AROUND) / EACH;
        if size < Self::LEAST || u32::try_from(slots).is_err() {
            return Err(Error::argument(
                format!("a local cache of {} is not possible", human(size)),
                format!("{} is the smallest size; the largest is 16 PiB", human(Self::LEAST)),
            ));
        }
        Ok(Self { size, slots })
    }

    /// The size of `data`.
    pub fn data_len(&self) -> u64 {
        self.slots * SLOT
    }

    /// Where records begin, and the record of a slot.
    pub fn record_at(slot: u32) -> u64 {
        HEADER + u64::from(slot) * RECORD
    }

    /// Where entries begin.
    pub fn records_end(&self) -> u64 {
        (HEADER + self.slots * RECORD).next_multiple_of(HEADER)
    }

    /// The entry of a slot.
    pub fn entry_at(&self, slot: u32) -> u64 {
        self.records_end() + u64::from(slot) * ENTRY as u64
    }

    /// The size of `index`.
    pub fn index_len(&self) -> u64 {
        self.records_end() + self.slots * ENTRY as u64
    }

    /// The mark of a cache of this size.
    pub fn mark(&self) -> String {
        format!(
            "{SIGNATURE}\n{OURS}{VERSION}: size {}, slots of {SLOT}\n# Blocks of remote objects. Lowtide made these files \
             and keeps them at this size: `lowtide cache` shows them, empties them, and takes them away.\n",
            self.size
        )
    }

    /// What a mark says.
    ///
    /// # Errors
    /// `None` where it is not the mark of a cache of ours, a version that is not known, a size that is not possible.
    pub fn from_mark(path: &Path, mark: &[u8]) -> Option<Result<Self>> {
        let text = std::str::from_utf8(mark).ok()?;
        let mut lines = text.lines();
        if lines.next()? != SIGNATURE {
            return None;
        }
        let (version, rest) = lines.next()?.strip_prefix(OURS)?.split_once(": ")?;
        let version: u64 = version.parse().ok()?;
        if version != VERSION {
            return Some(Err(Error::unsupported(
                format!("{}: a local cache of version {version}, and {VERSION} is known", path.display()),
                "another version of Lowtide made it: name another folder",
            )));
        }
        let size = rest.strip_prefix("size ")?.strip_suffix(&format!(", slots of {SLOT}"))?;
        let size: u64 = size.parse().ok()?;
        Some(Self::of(size).map_err(|_| Error::Format {
            path: path.to_owned(),
            offset: SIGNATURE.len() as u64 + 1,
            expected: format!("the size of a cache, {} at least", human(Self::LEAST)),
            found: size.to_string(),
            hint: "take the folder away, and name a size when it is made again".into(),
        }))
    }
}

/// What a slot holds: a block of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// blake3 of the object's address, its `ETag`, and which bytes of it.
    pub object: [u8; 32],
    /// Which of its blocks.
    pub block: u64,
}

impl Key {
    /// What records have of it: enough to find it by, and entries have all.
    pub fn brief(&self) -> Brief {
        let object = self.object.first_chunk().copied().unwrap_or_default();
        Brief { object: u64::from_le_bytes(object), block: self.block }
    }
}

/// A key by which a block is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Brief {
    /// The beginning of the object's hash.
    pub object: u64,
    /// Which of its blocks.
    pub block: u64,
}

/// What readers look at with every read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// This one filling of the slot; 0: there is nothing, or it is being filled.
    pub stamp: u64,
    /// Of which block, to find it by.
    pub brief: Brief,
    /// The clock's bit: it was read since the hand came by.
    pub touched: bool,
}

impl Record {
    /// Where in a record the clock's bit is.
    pub const TOUCHED_AT: u64 = 24;

    /// As it stands in the index.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.brief.object.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.brief.block.to_le_bytes());
        bytes[24] = u8::from(self.touched);
        bytes
    }

    /// What the four numbers of a record mean. Any numbers mean something.
    pub fn from_words([stamp, object, block, touched]: [u64; 4]) -> Self {
        Self { stamp, brief: Brief { object, block }, touched: touched & 0xFF != 0 }
    }
}

/// What a slot holds, and how to know that it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which block of which object.
    pub key: Key,
    /// This filling of the slot.
    pub stamp: u64,
    /// How many bytes of it: the last block of an object is shorter.
    pub len: u32,
    /// The checksum of each unit.
    pub sums: [u32; UNITS],
    /// The object's address, for people.
    pub label: String,
}

impl Entry {
    /// As it stands in the index.
    pub fn to_bytes(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..32].copy_from_slice(&self.key.object);
        bytes[32..40].copy_from_slice(&self.key.block.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.stamp.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.len.to_le_bytes());
        for (into, sum) in bytes[52..].chunks_exact_mut(4).zip(&self.sums) {
            into.copy_from_slice(&sum.to_le_bytes());
        }
        let label = shortened(&self.label);
        let at = 52 + 4 * UNITS;
        bytes[at] = u8::try_from(label.len()).unwrap_or(0);
        bytes[at + 1..at + 1 + label.len()].copy_from_slice(label.as_bytes());
        let own = crc32c::crc32c(&bytes[..ENTRY - 4]);
        bytes[ENTRY - 4..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// What the bytes of an entry say; nothing where they are damaged or were never written.
    pub fn from_bytes(bytes: &[u8; ENTRY]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if number(ENTRY - 4)? != crc32c::crc32c(&bytes[..ENTRY - 4]) {
            return None;
        }
        let key = Key { object: bytes[..32].try_into().ok()?, block: long(32)? };
        let (stamp, len) = (long(40)?, number(48)?);
        if stamp == 0 || len == 0 || u64::from(len) > SLOT {
            return None;
        }
        let mut sums = [0; UNITS];
        for (unit, sum) in sums.iter_mut().enumerate() {
            *sum = number(52 + 4 * unit)?;
        }
        let at = 52 + 4 * UNITS;
        let label = bytes[at + 1..].get(..usize::from(bytes[at]).min(LABEL))?;
        Some(Self { key, stamp, len, sums, label: String::from_utf8_lossy(label).into_owned() })
    }
}

/// A label that fits: the end of an address says more than its beginning.
fn shortened(label: &str) -> String {
    const CUT: &str = "…";
    if label.len() <= LABEL {
        return label.to_owned();
    }
    let from = label.len() - (LABEL - CUT.len());
    let from = (from..=label.len()).find(|&at| label.is_char_boundary(at)).unwrap_or(label.len());
    format!("{CUT}{}", &label[from..])
}

/// The checksums of a block that lies in several pieces of memory, end to end.
pub fn sums<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u32; UNITS] {
    let unit_len = usize::try_from(UNIT).unwrap_or(usize::MAX);
    let (mut sums, mut at) = ([0; UNITS], 0);
    for mut part in parts {
        while !part.is_empty() && at / unit_len < UNITS {
            let (now, rest) = part.split_at(part.len().min(unit_len - at % unit_len));
            let sum = &mut sums[at / unit_len];
            *sum = crc32c::crc32c_append(*sum, now);
            (at, part) = (at + now.len(), rest);
        }
    }
    sums
}

/// The bits of the units that `start..end` of a slot touches.
pub fn unit_mask(start: u64, end: u64) -> u64 {
    if start >= end {
        return 0;
    }
    let (first, last) = (start / UNIT, (end - 1) / UNIT);
    let below = |unit: u64| if unit >= 64 { u64::MAX } else { (1 << unit) - 1 };
    below(last + 1) & !below(first)
}

/// What was read through a cache since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that came from it.
    pub hit_bytes: u64,
    /// Bytes that had to be fetched.
    pub fetched_bytes: u64,
    /// Blocks that were stored.
    pub stored: u64,
    /// Blocks that made way for others.
    pub evicted: u64,
}

impl Counts {
    /// As they stand in the header.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        let words = [self.hit_bytes, self.fetched_bytes, self.stored, self.evicted];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What the header says.
    pub fn from_words([hit_bytes, fetched_bytes, stored, evicted]: [u64; 4]) -> Self {
        Self { hit_bytes, fetched_bytes, stored, evicted }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            hit_bytes: self.hit_bytes.saturating_add(other.hit_bytes),
            fetched_bytes: self.fetched_bytes.saturating_add(other.fetched_bytes),
            stored: self.stored.saturating_add(other.stored),
            evicted: self.evicted.saturating_add(other.evicted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the size: all that is made fits into it, and at most a slot is left over.
        #[test]
        fn the_files_fit_in_the_size(size in prop_oneof![Geometry::LEAST..1 << 32, Geometry::LEAST..1 << 50]) {
            let geometry = Geometry::of(size).unwrap();
            let pages = |len: u64| len.next_multiple_of(4096);
            let used = geometry.data_len() + pages(geometry.index_len()) + 2 * 4096;
            // Two pieces of a file for each slot, 340 of them in a block of the filesystem.
            let written_down = (2 * geometry.slots).div_ceil(340) * 4096 + 2 * 4096;
            prop_assert!(used + written_down <= size);
            prop_assert!(used + geometry.slots * 1024 + SLOT + (128 << 10) > size, "{} of {}", used, size);
            let mark = geometry.mark();
            prop_assert_eq!(Geometry::from_mark(Path::new("x"), mark.as_bytes()).unwrap().unwrap(), geometry);
        }

        #[test]
        fn an_entry_is_read_as_it_was_written(
            object: [u8; 32], block: u64, stamp in 1u64.., len in 1u32..=4 << 20, sum: u32, label in ".{0,300}",
            flip in 0usize..ENTRY * 8,
        ) {
            let entry = Entry { key: Key { object, block }, stamp, len, sums: [sum; UNITS], label };
            let mut bytes = entry.to_bytes();
            let read = Entry::from_bytes(&bytes).unwrap();
            prop_assert_eq!(&Entry { label: shortened(&entry.label), ..entry }, &read);
            prop_assert!(read.label.len() <= LABEL);
            bytes[flip / 8] ^= 1 << (flip % 8);
            prop_assert_eq!(Entry::from_bytes(&bytes), None, "one bit, and it is none");
        }

        #[test]
        fn any_bytes_are_an_entry_or_not(bytes in prop::collection::vec(any::<u8>(), ENTRY)) {
            let bytes: [u8; ENTRY] = bytes.try_into().unwrap();
            prop_assert_eq!(Entry::from_bytes(&bytes), None);
        }

        #[test]
        fn a_block_in_pieces_has_the_sums_of_the_whole(
            len in 0usize..300_000, cuts in prop::collection::vec(0usize..300_000, 0..5),
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(len)).chain([0, len]).collect();
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
            let mut expected = [0; UNITS];
            for (sum, unit) in expected.iter_mut().zip(bytes.chunks(64 << 10)) {
                *sum = crc32c::crc32c(unit);
            }
            prop_assert_eq!(sums(parts), expected);
        }

        #[test]
        fn a_mask_has_the_bits_of_the_units(start in 0u64..=SLOT, len in 0u64..=SLOT) {
            let end = (start + len).min(SLOT);
            let touched = |unit: &u64| start < end && unit * UNIT < end && (unit + 1) * UNIT > start;
            let expected = (0..64).filter(touched).fold(0, |mask, unit| mask | 1 << unit);
            prop_assert_eq!(unit_mask(start, end), expected);
        }
    }

    #[test]
    fn marks_of_others_are_not_ours() {
        for mark in [
            "",
            "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by cargo.\n",
            "Signature: 8a477f597d28d172789f06886806bc55\n# lowtide cache, version x: size 1, slots of 4194304\n",
            "Signature: 8a477f597d28d172789f06886806bc55\n# lowtide cache, version 1: size -1, slots of 4194304\n",
            "# lowtide cache, version 1: size 9999999, slots of 4194304\n",
        ] {
            assert!(Geometry::from_mark(Path::new("x"), mark.as_bytes()).is_none(), "{mark}");
        }
        let newer =
            "Signature: 8a477f597d28d172789f06886806bc55\n# lowtide cache, version 2: anything at all\n";
        let error = Geometry::from_mark(Path::new("x"), newer.as_bytes()).unwrap().unwrap_err();
        assert!(error.to_string().contains("version 2"), "{error}");
        assert!(Geometry::of(Geometry::LEAST - 1).is_err() && Geometry::of(u64::MAX).is_err());
        assert_eq!(Geometry::of(Geometry::LEAST).unwrap().slots, 1);
    }
}
