//! Many small reads become few large ones: pure.
//!
//! In: reads in any order, each with its place in somebody's buffer. They are sorted by offset, and neighbours
//! are merged while reading the gap between them is cheaper than one more request, by what requests cost.

use super::tuning::{CAP, CAP_WARM, LONG, SCATTER, SCRATCH_WARM, WHOLE};
pub use crate::store::Extent;
use crate::store::{Cost, Nature, Read, sort};
use std::ops::Range;

impl Extent {
    /// Whether it has to be scattered: one read goes straight to its place.
    pub(crate) fn is_merged(&self) -> bool {
        self.reads.len() > 1
    }

    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(usize::MAX)
    }
}

/// Groups reads, given by their byte ranges sorted by start, into requests. Lazily: memory does not grow.
pub fn extents(
    sorted: impl ExactSizeIterator<Item = Range<u64>>,
    cost: Cost,
) -> impl Iterator<Item = Extent> {
    merged(sorted, cost, Merge { cap: if cost.waits { CAP } else { CAP_WARM }, scatter: SCATTER, fill: true })
}

/// The same for a store that scatters by itself: requests of up to `cap` bytes.
pub(crate) fn ranges(
    sorted: impl ExactSizeIterator<Item = Range<u64>>,
    cost: Cost,
    cap: usize,
) -> impl Iterator<Item = Extent> {
    merged(sorted, cost, Merge { cap: cap as u64, scatter: 0.0, fill: false })
}

/// What merging is bounded by, and costs.
#[derive(Clone, Copy)]
struct Merge {
    cap: u64,
    /// Nanoseconds to copy a byte to its place.
    scatter: f64,
    /// Whether a gap is read too where the cap ends a request: kernels like streams, servers are paid for bytes.
    fill: bool,
}

fn merged(
    sorted: impl ExactSizeIterator<Item = Range<u64>>,
    cost: Cost,
    Merge { cap, scatter, fill }: Merge,
) -> impl Iterator<Item = Extent> {
    let mut sorted = sorted.enumerate().peekable();
    std::iter::from_fn(move || {
        let (index, bytes) = sorted.next()?;
        let mut extent = Extent { bytes, reads: index..index + 1 };
        let mut scatter_first = (extent.bytes.end - extent.bytes.start) as f64 * scatter;
        while let Some((_, next)) = sorted.peek() {
            let end = extent.bytes.end.max(next.end);
            let gap = next.start.saturating_sub(extent.bytes.end) as f64;
            let overlap = extent.bytes.end.min(next.end).saturating_sub(next.start) as f64;
            let extra =
                (gap - overlap) * cost.byte + (next.end - next.start) as f64 * scatter + scatter_first;
            // Where requests cost nothing there is no scratch to merge in, whatever two reads have in common.
            if extra >= cost.request || cost.request <= 0.0 {
                break;
            }
            if end - extent.bytes.start > cap {
                // The next extent goes on where this one ends: a gap that is cheap to read is cheaper still when it
                // does not make the kernel think that we jump about. As far as the cap: a scratch holds no more.
                let capped = next.start.min(extent.bytes.start.saturating_add(cap));
                extent.bytes.end = extent.bytes.end.max(if fill { capped } else { 0 });
                break;
            }
            scatter_first = 0.0;
            extent.bytes.end = end;
            extent.reads.end += 1;
            sorted.next();
        }
        Some(extent)
    })
}

/// Cuts `reads` into parts of about `share`, each of them a stretch of the file. What is sorted stays so; other
/// parts are sorted by whoever takes them: sorting all at once would keep one thread busy and the rest waiting.
pub(crate) fn parts<'r, 'b>(reads: &'r mut [Read<'b>], share: usize) -> Vec<&'r mut [Read<'b>]> {
    if reads.is_sorted_by_key(|r| r.offset) || reads.len() <= share {
        return reads.chunks_mut(share).collect();
    }
    let counts = deal(reads, reads.len().div_ceil(share));
    if counts.iter().any(|&count| count > 4 * share) {
        // All in one corner of the file: stretches of equal length share nothing.
        sort(reads);
        return reads.chunks_mut(share).collect();
    }
    let (mut rest, mut parts) = (reads, Vec::with_capacity(counts.len()));
    for count in counts.into_iter().filter(|&count| count > 0) {
        let (part, others) = rest.split_at_mut(count);
        rest = others;
        parts.push(part);
    }
    parts
}

/// Moves reads so that those of each of `stretches` equal stretches of the file come together, in the order
/// of the stretches. Says how many there are of each.
fn deal(reads: &mut [Read<'_>], stretches: usize) -> Vec<usize> {
    let offsets = || reads.iter().map(|r| r.offset);
    let (first, last) = (offsets().min().unwrap_or(0), offsets().max().unwrap_or(0));
    let length = (last - first) / stretches as u64 + 1;
    let of = |read: &Read<'_>| usize::try_from((read.offset - first) / length).unwrap_or(0);
    let mut counts = vec![0; stretches];
    for read in &*reads {
        counts[of(read)] += 1;
    }
    let ends: Vec<usize> = counts
        .iter()
        .scan(0, |end, count| {
            *end += count;
            Some(*end)
        })
        .collect();
    let mut next: Vec<usize> = ends.iter().zip(&counts).map(|(end, count)| end - count).collect();
    for mine in 0..stretches {
        while next[mine] < ends[mine] {
            // Each swap brings one read to where it belongs.
            let at = next[mine];
            let theirs = of(&reads[at]);
            if theirs != mine {
                reads.swap(at, next[theirs]);
            }
            next[theirs] += 1;
        }
    }
    counts
}

/// As many extents as fit in one call: `most` of them at most, and merged ones in `room` bytes of scratch.
pub(crate) fn next_call(
    nature: &Nature,
    rest: &[Read<'_>],
    cost: Cost,
    (most, largest): (usize, usize),
    room: usize,
) -> Vec<Extent> {
    let (mut bytes, mut scratch) = (0, 0);
    let mut call = Vec::new();
    for mut extent in extents(rest.iter().map(|r| r.offset..r.end()), cost) {
        if extent.is_merged() {
            // A disk reads whole sectors, and cutting them costs a copy. To whole pages of memory it writes faster.
            let long = nature.align > 1 && extent.len() >= LONG;
            let align = nature.align.max(if long { WHOLE } else { 1 });
            let whole = extent.bytes.start / align * align..extent.bytes.end.next_multiple_of(align);
            if whole.end <= nature.end && whole.end - whole.start <= SCRATCH_WARM as u64 {
                extent.bytes = whole;
            }
        }
        bytes += extent.len();
        scratch += if extent.is_merged() { extent.len() } else { 0 };
        if !call.is_empty() && (bytes > largest || scratch > room || call.len() == most) {
            break;
        }
        call.push(extent);
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_strangers_do_not() {
        let cost = Cost { request: 500.0, byte: 0.1, waits: false };
        let of = |ranges: &[Range<u64>]| -> Vec<(usize, usize)> {
            extents(ranges.iter().cloned(), cost).map(|e| (e.reads.start, e.reads.end)).collect()
        };
        assert_eq!(of(&[0..512, 512..1024, 1024..1536]), [(0, 3)]);
        assert_eq!(of(&[0..512, 0..512, 100..200]), [(0, 3)]);
        assert_eq!(of(&[0..512, 1_000_000..1_000_512]), [(0, 1), (1, 2)]);
        assert_eq!(
            of(&[0..(1 << 20), (1 << 20)..(2 << 20)]),
            [(0, 1), (1, 2)],
            "large reads go straight to their place"
        );
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn ranges_grow_to_their_cap_and_read_no_gap_for_nothing() {
        let cost = Cost { request: 1e6, byte: 1.0, waits: true };
        let of = |sorted: &[Range<u64>]| -> Vec<(Range<u64>, usize)> {
            ranges(sorted.iter().cloned(), cost, 100).map(|e| (e.bytes, e.reads.len())).collect()
        };
        assert_eq!(of(&[0..40, 40..80, 80..120, 120..160]), [(0..80, 2), (80..160, 2)]);
        assert_eq!(of(&[0..40, 50..60, 120..130]), [(0..60, 2), (120..130, 1)]);
        assert_eq!(of(&[0..300, 10..20]), [(0..300, 1), (10..20, 1)], "what is longer stays by itself");
    }
}
