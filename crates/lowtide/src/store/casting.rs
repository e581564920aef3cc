//! The elements of another store, as elements of another type: a store like any other.
//!
//! Its bytes are those of the converted elements, and begin with the first one. A read becomes a read of the file and a
//! conversion, in memory that there is anyway: elements that become larger, or stay as large, are read into the end of
//! where they go, and converted from there to its beginning. Only those that become smaller need memory of their own.
//! From the page cache it goes in pieces, which are still in the processor's cache when they are converted; from a
//! disk all reads of a call are in flight together, as they would be without. What nobody looks at for a while is
//! converted in the cache, too, and goes around it to its place.

use super::{Cost, How, Manner, Nature, Read, Report, Store};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::cast::{Cast, Converter};
use crate::error::Result;
use crate::sys::far::Far;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece from memory, of the larger type: it stays in a core's second-level cache.
const PIECE: usize = 256 << 10;
/// The same from a disk, where elements become smaller: so much is in flight at once.
const PIECE_COLD: usize = 4 << 20;
/// The same where what was converted goes around the cache, of the smaller type.
const PIECE_FAR: usize = 64 << 10;
/// Where the budget has nothing left.
const LEAST: usize = 16 << 10;
/// What goes around the cache at once.
const FAR: usize = 4 << 10;
/// Nanoseconds to convert an element, in cache.
const CONVERT: f64 = 0.1;

/// What the elements of a file become, and where the first of them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AsType {
    pub(crate) cast: Cast,
    pub(crate) first: u64,
}

impl AsType {
    /// The byte of the file with which the element begins, or ends, that begins or ends with this one of ours.
    pub(crate) fn in_file(&self, at: u64) -> u64 {
        self.first + at / self.cast.to().itemsize() as u64 * self.cast.from().itemsize() as u64
    }

    /// The same of what is coming.
    pub(crate) fn all_in_file(&self, bytes: &[Range<u64>]) -> Vec<Range<u64>> {
        bytes.iter().map(|bytes| self.in_file(bytes.start)..self.in_file(bytes.end)).collect()
    }
}

/// Another store's elements, converted.
#[derive(Debug)]
pub(crate) struct Casting {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) as_type: AsType,
    pub(crate) budget: Budget,
}

/// A part of a read: its first byte in the file, and where it goes.
type Part<'a> = (u64, &'a mut [u8]);

/// Memory that elements are read into.
enum Memory {
    /// The end of where they go, as they become no smaller.
    Theirs,
    Counted(Block),
    /// The budget has nothing left.
    Least(Vec<u8>),
}

impl Casting {
    /// Memory for so many of our bytes, and how many of them go through it at once.
    fn memory(&self, total: usize, flies: bool, far: bool) -> Result<(Memory, usize)> {
        let (from, to) = (self.as_type.cast.from().itemsize(), self.as_type.cast.to().itemsize());
        if from <= to && (flies || !far) {
            return Ok((Memory::Theirs, if flies { usize::MAX / to * to } else { PIECE }));
        }
        let most = match (flies, far) {
            (true, _) => shares(self.budget.limit()),
            (false, true) => PIECE_FAR,
            (false, false) => PIECE,
        };
        let wanted = self.as_type.cast.raw_len(total).clamp(from, most);
        let (memory, len) = match Block::counted(&self.budget, wanted)? {
            Some(block) => (Memory::Counted(block), wanted),
            None => (Memory::Least(vec![0; LEAST]), LEAST),
        };
        Ok((memory, len / from * to))
    }

    /// Reads and converts some parts, which are no more than the memory is for.
    fn read_parts(&self, parts: &mut [Part<'_>], memory: &mut Memory, how: How<'_>) -> Result<Report> {
        let far = how.far.then(|| FarConverter::new(self.as_type.cast));
        let how = How { far: false, ..how }; // converted at once: not around the processor's caches
        match memory {
            Memory::Theirs => self.read_at_end(parts, how),
            Memory::Counted(block) => self.read_through(parts, block, how, far),
            Memory::Least(bytes) => self.read_through(parts, bytes, how, far),
        }
    }

    fn read_at_end(&self, parts: &mut [Part<'_>], how: How<'_>) -> Result<Report> {
        let mut reads: Vec<Read<'_>> = parts
            .iter_mut()
            .map(|(offset, into)| {
                let start = into.len() - self.as_type.cast.raw_len(into.len());
                Read { offset: *offset, into: &mut into[start..] }
            })
            .collect();
        let report = self.store.read(&mut reads, how)?;
        let mut converter = self.as_type.cast.converter();
        for (_, into) in parts {
            converter.convert_at_end(into);
        }
        Ok(report)
    }

    fn read_through(
        &self,
        parts: &mut [Part<'_>],
        memory: &mut [u8],
        how: How<'_>,
        mut far: Option<FarConverter>,
    ) -> Result<Report> {
        let mut rest = &mut *memory;
        let mut reads = Vec::with_capacity(parts.len());
        for (offset, into) in &*parts {
            let (mine, others) = rest.split_at_mut(self.as_type.cast.raw_len(into.len()));
            rest = others;
            reads.push(Read { offset: *offset, into: mine });
        }
        let report = self.store.read(&mut reads, how)?;
        let mut rest = &*memory;
        let mut converter = self.as_type.cast.converter();
        for (_, into) in parts {
            let (mine, others) = rest.split_at(self.as_type.cast.raw_len(into.len()));
            rest = others;
            match &mut far {
                Some(far) => far.convert(mine, into),
                None => converter.convert(mine, into),
            }
        }
        Ok(report)
    }
}

/// Converts, and copies what comes of it around the processor's caches.
pub(crate) struct FarConverter {
    converter: Converter,
    cast: Cast,
    far: Far,
    /// What was just converted.
    near: [u8; FAR],
}

impl FarConverter {
    pub(crate) fn new(cast: Cast) -> Self {
        Self { converter: cast.converter(), cast, far: Far::default(), near: [0; FAR] }
    }

    pub(crate) fn convert(&mut self, raw: &[u8], into: &mut [u8]) {
        for (raw, into) in raw.chunks(self.cast.raw_len(FAR)).zip(into.chunks_mut(FAR)) {
            let near = &mut self.near[..into.len()];
            self.converter.convert(raw, near);
            self.far.copy(near, into);
        }
    }
}

/// What may be in flight of a budget.
fn shares(limit: u64) -> usize {
    usize::try_from(limit / 32).unwrap_or(usize::MAX).clamp(LEAST, PIECE_COLD)
}

impl Store for Casting {
    fn nature(&self) -> Nature {
        let nature = self.store.nature();
        let (from, to) = (self.as_type.cast.from().itemsize(), self.as_type.cast.to().itemsize());
        let Cost { request, byte, waits } = nature.prior;
        let prior = Cost { request, byte: (byte * from as f64 + CONVERT) / to as f64, waits };
        let end = nature.end.saturating_sub(self.as_type.first) / from as u64;
        // Whole pages of the file are no whole pages of ours.
        Nature { prior, align: 1, end: end.saturating_mul(to as u64), extent: None, ..nature }
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        let in_file = |at| self.as_type.in_file(at);
        let coming = self.as_type.all_in_file(how.coming);
        let flies = how.manner == Manner::Together || !coming.is_empty() || !self.store.nature().keeps;
        let total = reads.iter().map(|read| read.into.len()).sum();
        let (mut memory, most) = self.memory(total, flies, how.far)?;
        let mut how = How { coming: &coming, ..how };
        let (mut parts, mut held) = (Vec::with_capacity(reads.len()), 0);
        let mut report = Report::default();
        for Read { offset, into } in reads {
            let (mut at, mut into) = (*offset, &mut **into);
            while !into.is_empty() {
                if held == most {
                    report += self.read_parts(&mut parts, &mut memory, how)?;
                    how.coming = &[]; // said once
                    parts.clear();
                    held = 0;
                }
                let len = into.len().min(most - held);
                let (part, rest) = into.split_at_mut(len);
                parts.push((in_file(at), part));
                (at, held, into) = (at + len as u64, held + len, rest);
            }
        }
        report += self.read_parts(&mut parts, &mut memory, how)?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Dtype;
    use proptest::prelude::*;

    /// Bytes in memory, that are or are not kept in a page cache.
    #[derive(Debug)]
    struct Held(Vec<u8>, bool);

    impl Store for Held {
        fn nature(&self) -> Nature {
            let prior = Cost { request: 0.0, byte: 0.1, waits: false };
            Nature { end: self.0.len() as u64, keeps: self.1, ..Nature::plain(prior, 1) }
        }

        fn read(&self, reads: &mut [Read<'_>], _how: How<'_>) -> Result<Report> {
            for Read { offset, into } in reads {
                let start = usize::try_from(*offset).unwrap();
                into.copy_from_slice(&self.0[start..start + into.len()]);
            }
            Ok(Report::default())
        }
    }

    proptest! {
        /// However the reads lie, from memory or from a disk, near or far, with much budget or with none.
        #[test]
        fn a_read_gives_the_elements_converted(
            (from, to) in prop::sample::select(vec![("<f2", "<f4"), (">f4", "<f4"), ("<f8", "<f4"), ("|u1", "<i8")]),
            reads in prop::collection::vec((0u64..100_000, 0usize..60_000), 1..6),
            first in 0u64..9,
            keeps: bool,
            far: bool,
            budget in prop::sample::select(vec![1u64, 64 << 20]),
        ) {
            let cast = Cast::new(Dtype::parse(from).unwrap(), Dtype::parse(to).unwrap()).unwrap();
            let (item, own) = (cast.from().itemsize(), cast.to().itemsize());
            let bytes: Vec<u8> = (0..9 + 160_000 * item).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
            let start = usize::try_from(first).unwrap();
            let mut whole = vec![0; 160_000 * own];
            cast.convert(&bytes[start..start + 160_000 * item], &mut whole);
            let store = Casting {
                store: Arc::new(Held(bytes, keeps)),
                as_type: AsType { cast, first },
                budget: Budget::new(budget).unwrap(),
            };
            let mut out: Vec<Vec<u8>> = reads.iter().map(|(_, len)| vec![0; len * own]).collect();
            let mut wanted: Vec<Read<'_>> = reads.iter().zip(&mut out)
                .map(|((at, _), into)| Read { offset: at * own as u64, into }).collect();
            store.read(&mut wanted, How { far, ..How::default() }).unwrap();
            for ((at, len), out) in reads.iter().zip(&out) {
                let at = usize::try_from(*at).unwrap();
                prop_assert!(out[..] == whole[at * own..(at + len) * own]);
            }
        }
    }
}
