//! How reads of an object become blocks: pure.

use crate::store::Read;
use crate::store::local_cache::layout::{SLOT, UNIT};

/// Parts of objects, end to end, and their blocks: those of each part are counted from its own beginning, so that they
/// are the same whatever stands before it.
#[derive(Debug)]
pub(super) struct Grid {
    /// Where each part ends.
    ends: Vec<u64>,
    /// How many blocks there are up to the end of each part.
    blocks: Vec<u64>,
}

/// A block of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Its number among all.
    pub(super) block: u64,
    /// Its first byte.
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Grid {
    pub(super) fn new(lens: impl Iterator<Item = u64>) -> Self {
        let (mut ends, mut blocks): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for len in lens {
            ends.push(ends.last().unwrap_or(&0) + len);
            blocks.push(blocks.last().unwrap_or(&0) + len.div_ceil(SLOT));
        }
        Self { ends, blocks }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.last().copied().unwrap_or(0)
    }

    /// Whether blocks are at multiples of their size.
    pub(super) fn is_aligned(&self) -> bool {
        self.ends.len() <= 1
    }

    /// What comes before a part: bytes, blocks.
    fn before(&self, part: usize) -> (u64, u64) {
        part.checked_sub(1).map_or((0, 0), |last| (self.ends[last], self.blocks[last]))
    }

    /// The block of a byte, which is before the end.
    pub(super) fn at(&self, offset: u64) -> Spot {
        let part = self.ends.partition_point(|&end| end <= offset).min(self.ends.len().saturating_sub(1));
        let (bytes, blocks) = self.before(part);
        let inside = (offset - bytes) / SLOT;
        let start = bytes + inside * SLOT;
        Spot { block: blocks + inside, start, len: self.ends[part].saturating_sub(start).min(SLOT) }
    }

    /// Which part a block is of, its number there, and its length.
    pub(super) fn part_of(&self, block: u64) -> (usize, u64, u64) {
        let part = self.blocks.partition_point(|&end| end <= block).min(self.blocks.len().saturating_sub(1));
        let (bytes, blocks) = self.before(part);
        let (inside, len) = (block - blocks, self.ends[part] - bytes);
        (part, inside, len.saturating_sub(inside.saturating_mul(SLOT)).min(SLOT))
    }
}

/// A read, or the part of one that lies in one block.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    pub(super) spot: Spot,
    pub(super) read: Read<'a>,
}

impl Piece<'_> {
    /// Where in its block it begins and ends.
    pub(super) fn inside(&self) -> (u64, u64) {
        let start = self.read.offset - self.spot.start;
        (start, start + self.read.into.len() as u64)
    }
}

/// Cuts reads, which are inside the grid, where blocks end. Empty ones are left out.
pub(super) fn pieces<'a>(reads: &'a mut [Read<'_>], grid: &Grid) -> Vec<Piece<'a>> {
    let mut pieces = Vec::with_capacity(reads.len());
    let mut spot = Spot { block: 0, start: 0, len: 0 };
    for read in reads {
        let (mut offset, mut into) = (read.offset, &mut *read.into);
        while !into.is_empty() {
            if offset < spot.start || offset - spot.start >= spot.len {
                spot = grid.at(offset);
            }
            let here = usize::try_from(spot.start + spot.len - offset).unwrap_or(usize::MAX).min(into.len());
            let (mine, rest) = into.split_at_mut(here);
            pieces.push(Piece { spot, read: Read { offset, into: mine } });
            (offset, into) = (offset + here as u64, rest);
        }
    }
    pieces
}

/// A block that is not in the cache, and what is wanted of it, in order.
#[derive(Debug)]
pub(super) struct Missing<'a> {
    pub(super) spot: Spot,
    pub(super) pieces: Vec<Piece<'a>>,
}

impl Missing<'_> {
    /// Whether what is wanted is the whole block, each byte once: then it needs no memory of its own.
    pub(super) fn is_tiled(&self) -> bool {
        let mut at = 0;
        let follows = |piece: &Piece<'_>| {
            let (start, end) = piece.inside();
            start == std::mem::replace(&mut at, end)
        };
        self.pieces.iter().all(follows) && at == self.spot.len
    }

    /// How many bytes of it are wanted.
    pub(super) fn wanted(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.read.into.len() as u64).sum()
    }
}

/// Puts the pieces of one block together.
pub(super) fn by_block(mut pieces: Vec<Piece<'_>>) -> Vec<Missing<'_>> {
    pieces.sort_by_key(|piece| piece.read.offset);
    let mut blocks: Vec<Missing<'_>> = Vec::new();
    for piece in pieces {
        match blocks.last_mut() {
            Some(last) if last.spot == piece.spot => last.pieces.push(piece),
            _ => blocks.push(Missing { spot: piece.spot, pieces: vec![piece] }),
        }
    }
    blocks
}

/// Whether a block is fetched whole for `wanted` bytes of it, where not all the data fits in the cache.
///
/// Where it does fit, always: every block will be wanted again, and one request for 4 MiB costs what
/// one for 2 KiB costs (an epoch of a terabyte in windows of 2 KiB: $215, in blocks: $0.10). Where not, a block
/// is likely to make way before it is wanted again: then only for an eighth of it and more, which passes in file order
/// and in blocks want, and windows in exact order do not.
pub(super) fn is_worth_it(wanted: u64, block_len: u64) -> bool {
    wanted.saturating_mul(8) >= block_len
}

/// A part of a piece that is to be checked: whole units, or a part of one.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Which piece.
    pub(super) piece: usize,
    /// Where in the block.
    pub(super) start: u64,
    pub(super) into: &'a mut [u8],
}

impl Part<'_> {
    /// Which unit it begins in.
    pub(super) fn unit(&self) -> usize {
        usize::try_from(self.start / UNIT).unwrap_or(usize::MAX)
    }
}

/// Cuts a piece into whole units and parts of units at its ends: a checksum is of a whole one. The last unit of a block
/// is whole where it reaches its end.
pub(super) fn parts<'a>(
    number: usize,
    piece: &'a mut Piece<'_>,
    whole: &mut Vec<Part<'a>>,
    partial: &mut Vec<Part<'a>>,
) {
    let (start, end) = piece.inside();
    let first = start.next_multiple_of(UNIT).min(end);
    let last = if end == piece.spot.len { end } else { (end / UNIT * UNIT).max(first) };
    let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let (head, rest) = piece.read.into.split_at_mut(at(first - start));
    let (middle, tail) = rest.split_at_mut(at(last - first));
    if !middle.is_empty() {
        whole.push(Part { piece: number, start: first, into: middle });
    }
    for (start, into) in [(start, head), (last, tail)] {
        if !into.is_empty() {
            partial.push(Part { piece: number, start, into });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Part<'_> {
        fn end(&self) -> u64 {
            self.start + self.into.len() as u64
        }
    }

    proptest! {
        /// Against a list of all blocks of all parts.
        #[test]
        fn a_byte_has_the_block_that_a_list_says(
            lens in prop::collection::vec(prop_oneof![0u64..10, 0u64..20 << 20, Just(8u64 << 20)], 1..6),
            at in any::<prop::sample::Index>(),
        ) {
            let grid = Grid::new(lens.iter().copied());
            let mut list = Vec::new();
            let mut start = 0;
            for (part, len) in lens.iter().enumerate() {
                for (inside, from) in (0..*len).step_by(4 << 20).enumerate() {
                    let spot = Spot { block: list.len() as u64, start: start + from, len: (len - from).min(SLOT) };
                    list.push((part, inside as u64, spot));
                }
                start += len;
            }
            prop_assert_eq!((grid.len(), grid.blocks()), (start, list.len() as u64));
            for (part, inside, spot) in &list {
                prop_assert_eq!(grid.part_of(spot.block), (*part, *inside, spot.len));
                prop_assert_eq!(grid.at(spot.start), *spot);
                prop_assert_eq!(grid.at(spot.start + spot.len - 1), *spot);
            }
            if start > 0 {
                let at = at.index(usize::try_from(start).unwrap()) as u64;
                let spot = grid.at(at);
                prop_assert!(spot.start <= at && at < spot.start + spot.len);
            }
        }

        #[test]
        fn pieces_are_the_reads(
            lens in prop::collection::vec(0u64..30 << 20, 1..4),
            reads in prop::collection::vec((0u64..40 << 20, 0usize..10 << 20), 0..6),
        ) {
            let grid = Grid::new(lens.into_iter());
            let inside = |(offset, len): (u64, usize)| {
                let offset = offset.min(grid.len());
                (offset, len.min(usize::try_from(grid.len() - offset).unwrap()))
            };
            let reads: Vec<_> = reads.into_iter().map(inside).collect();
            let mut memory: Vec<Vec<u8>> = reads.iter().map(|(_, len)| vec![0; *len]).collect();
            let mut wanted: Vec<Read<'_>> =
                reads.iter().zip(&mut memory).map(|(&(offset, _), into)| Read { offset, into }).collect();
            let mut ranges = Vec::new();
            for piece in pieces(&mut wanted, &grid) {
                let (start, end) = piece.inside();
                prop_assert!(start < end && end <= piece.spot.len);
                prop_assert_eq!(grid.at(piece.read.offset), piece.spot);
                ranges.push(piece.read.offset..piece.read.end());
            }
            // End to end they are the reads, in their order.
            let join = |next: &mut std::ops::Range<u64>, last: &mut std::ops::Range<u64>| {
                let follows = next.start == last.end;
                last.end = if follows { next.end } else { last.end };
                follows
            };
            let mut expected: Vec<_> =
                reads.iter().filter(|(_, len)| *len > 0).map(|&(offset, len)| offset..offset + len as u64).collect();
            ranges.dedup_by(join);
            expected.dedup_by(join);
            prop_assert_eq!(ranges, expected);
        }

        #[test]
        fn parts_are_the_piece_and_whole_ones_are_whole(start in 0u64..SLOT, len in 1u64..=SLOT, block in 1u64..=SLOT) {
            let (start, end) = (start.min(block - 1), (start + len).min(block));
            prop_assume!(start < end);
            let mut memory = vec![0; usize::try_from(end - start).unwrap()];
            let spot = Spot { block: 3, start: 777, len: block };
            let mut piece = Piece { spot, read: Read { offset: 777 + start, into: &mut memory } };
            let (mut whole, mut partial) = (Vec::new(), Vec::new());
            parts(7, &mut piece, &mut whole, &mut partial);
            for part in &whole {
                prop_assert!(part.start % UNIT == 0 && (part.end() % UNIT == 0 || part.end() == block));
            }
            for part in &partial {
                prop_assert!(part.start / UNIT == (part.end() - 1) / UNIT, "in one unit");
            }
            let mut all: Vec<_> = whole.iter().chain(&partial).map(|part| (part.start, part.end())).collect();
            all.sort_unstable();
            prop_assert_eq!(all.first().unwrap().0, start);
            prop_assert_eq!(all.last().unwrap().1, end);
            prop_assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
    }

    #[test]
    fn a_tiled_block_needs_no_memory() {
        let mut memory = vec![0; 10 << 20];
        let tiled = |ranges: &[(u64, usize)], memory: &mut [u8]| {
            let mut rest = memory;
            let mut reads = Vec::new();
            for &(offset, len) in ranges {
                let (mine, others) = std::mem::take(&mut rest).split_at_mut(len);
                rest = others;
                reads.push(Read { offset, into: mine });
            }
            let grid = Grid::new(std::iter::once(9 << 20));
            by_block(pieces(&mut reads, &grid)).iter().map(Missing::is_tiled).collect::<Vec<_>>()
        };
        assert_eq!(tiled(&[(0, 9 << 20)], &mut memory), [true, true, true]);
        assert_eq!(tiled(&[(2 << 20, 7 << 20), (0, 2 << 20)], &mut memory), [true, true, true]);
        assert_eq!(tiled(&[(1, (9 << 20) - 1)], &mut memory), [false, true, true]);
        assert_eq!(tiled(&[(0, 4 << 20), (0, 1)], &mut memory), [false], "a byte that is wanted twice");
        assert!(is_worth_it(SLOT / 8, SLOT) && !is_worth_it(SLOT / 8 - 1, SLOT) && is_worth_it(1, 8));
    }
}
