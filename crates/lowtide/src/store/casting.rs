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
use std::ops::{DerefMut, Range};
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

/// Memory that elements are read into; none where they are read into the end of where they go, as they become no smaller.
type Memory = Option<Box<dyn DerefMut<Target = [u8]>>>;

impl Casting {
    /// Memory for so many of our bytes, and how many of them go through it at once.
    fn memory(&self, total: usize, flies: bool, far: bool) -> Result<(Memory, usize)> {
        let (from, to) = (self.as_type.cast.from().itemsize(), self.as_type.cast.to().itemsize());
        if from <= to && (flies || !far) {
            return Ok((None, if flies { usize::MAX / to * to } else { PIECE }));
        }
        let most = match (flies, far) {
            (true, _) => {
                usize::try_from(self.budget.limit() / 32).unwrap_or(usize::MAX).clamp(LEAST, PIECE_COLD)
            }
            (false, true) => PIECE_FAR,
            (false, false) => PIECE,
        };
        let wanted = self.as_type.cast.raw_len(total).clamp(from, most);
        Ok(match Block::counted(&self.budget, wanted)? {
            Some(block) => (Some(Box::new(block)), wanted / from * to),
            // The budget has nothing left.
            None => (Some(Box::new(vec![0; LEAST])), LEAST / from * to),
        })
    }

    /// Reads and converts some parts of reads, by their places in the file, which are no more than the memory is for.
    fn read_parts(&self, parts: &mut [Read<'_>], memory: &mut Memory, how: How<'_>) -> Result<Report> {
        let raw_len = |len| self.as_type.cast.raw_len(len);
        let mut free = memory.as_deref_mut().map(|memory| &mut **memory);
        let mut reads = Vec::with_capacity(parts.len());
        for Read { offset, into } in &mut *parts {
            let raw = raw_len(into.len());
            let into = if let Some(bytes) = free.take() {
                let (mine, others) = bytes.split_at_mut(raw);
                free = Some(others);
                mine
            } else {
                let lead = into.len() - raw;
                &mut into[lead..]
            };
            reads.push(Read { offset: *offset, into });
        }
        // Converted at once: not around the processor's caches.
        let report = self.store.read(&mut reads, How { far: false, ..how })?;
        let mut places = Places::new(Some(self.as_type.cast), how.far && memory.is_some());
        let mut used = 0;
        for Read { into, .. } in parts {
            match memory {
                Some(memory) => places.take(&memory[used..][..raw_len(into.len())], into),
                None => places.take_end(into),
            }
            used += raw_len(into.len());
        }
        Ok(report)
    }
}

/// Puts elements in their places: as they are or converted, and where nobody looks at them for a while, around the
/// processor's caches.
pub(crate) struct Places {
    cast: Option<(Cast, Converter)>,
    far: Option<Far>,
    /// What was just converted, before it goes around the caches.
    near: Vec<u8>,
}

impl Places {
    pub(crate) fn new(cast: Option<Cast>, far: bool) -> Self {
        let near = vec![0; if far && cast.is_some() { FAR } else { 0 }];
        Self { cast: cast.map(|cast| (cast, cast.converter())), far: far.then(Far::default), near }
    }

    /// What was read somewhere else.
    pub(crate) fn take(&mut self, raw: &[u8], into: &mut [u8]) {
        match (&mut self.cast, &self.far) {
            (None, None) => into.copy_from_slice(raw),
            (None, Some(far)) => far.copy(raw, into),
            (Some((_, converter)), None) => converter.convert(raw, into),
            (Some((cast, converter)), Some(far)) => {
                for (raw, into) in raw.chunks(cast.raw_len(FAR)).zip(into.chunks_mut(FAR)) {
                    let near = &mut self.near[..into.len()];
                    converter.convert(raw, near);
                    far.copy(near, into);
                }
            }
        }
    }

    /// What was read into the end of its place.
    pub(crate) fn take_end(&mut self, into: &mut [u8]) {
        if let Some((_, converter)) = &mut self.cast {
            converter.convert_at_end(into);
        }
    }
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
                parts.push(Read { offset: in_file(at), into: part });
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
