//! A block shuffle: every row once, nearly shuffled, read in large pieces.
//!
//! A shuffle of rows much smaller than a page reads a page for each. Here the rows are cut into *blocks*
//! of consecutive rows, the blocks are shuffled, and runs of shuffled blocks make a *mix*, inside which
//! the rows are shuffled. Reading a mix is reading its blocks whole, and only one mix has to be in memory.
//!
//! ```text
//!  file       │head│ block 0 │ block 1 │ block 2 │ block 3 │ block 4 │tail│
//!  positions  │ rows of blocks 3, 0 and 4, shuffled │ rows of 1, 2, head and tail, shuffled │
//!             └──────────────── mix 0 ──────────────┴───────────────── mix 1 ───────────────┘
//! ```
//!
//! The rows that fill no block are some at the head and some at the tail of the file. How many at which
//! end, and which mix takes them, is drawn for each epoch, so that no row is always last or always in a
//! small piece. Blocks are dealt to the mixes evenly, not to a full mix each and what remains to the
//! last: a last mix of one block would be a stretch that is hardly shuffled at all.
//!
//! All of it is arithmetic on the position. Making the shuffle of a mix costs less than a microsecond, or
//! some where the mix is small, so that a fill can make it each time and nothing need be remembered.

mod inner;
mod mix;
mod spread;

#[cfg(test)]
pub(super) use inner::SMALL_ROUNDS;
pub use mix::Mix;

use super::hash::Bits;
use super::permutation::Permutation;
use super::{Order, check_bounds};
use inner::Inner;
use std::fmt;
use std::ops::Range;

/// Names our keys apart from all other uses of BLAKE3. Changing it changes every block shuffle.
const PURPOSE: &str = "lowtide order blocks v1";

/// Rows worked on at once, in memory that need not be allocated.
const STRETCH: usize = 64;

/// Every row once, in blocks that are shuffled, mixed with others and shuffled again.
///
/// ```
/// use lowtide::order::{Blocks, Mix, Order};
///
/// // 10^12 rows in blocks of 512, a thousand blocks at a time.
/// let epoch = Blocks::new(1_000_000_000_000, /* seed */ 42, /* epoch */ 0, Mix::new(512, 1_000)?);
/// let mut rows = [0; 4];
/// epoch.fill(999_999_999_000, &mut rows); // far into the epoch, at once
///
/// // What to hold in memory at once, and what that does to batches of 256 if the file is sorted by label.
/// let mix = epoch.mix_range(999_999_999_000);
/// assert!(mix.end - mix.start <= epoch.largest_mix());
/// assert!((epoch.predicted_spread(256) - 1.12).abs() < 0.01);
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone)]
pub struct Blocks {
    len: u64,
    mix: Mix,
    /// Of the shuffles inside the mixes.
    key: [u8; 32],
    /// The order of the full blocks.
    shuffled: Permutation,
    /// How many mixes the blocks are dealt to.
    mixes: u64,
    /// The rows before the first full block, and after the last.
    head: u64,
    tail: u64,
    /// The mix that takes both.
    takes_rest: u64,
}

/// What is read mix by mix.
pub(crate) trait Mixes: Order {
    /// The positions of the mix that holds `position`; empty past the end.
    fn mix_range(&self, position: u64) -> Range<u64>;

    /// The rows at spans of positions that all lie in one mix, in the order in which they lie in the file, each with
    /// its index among the positions.
    fn in_file_order(&self, spans: &[Range<u64>]) -> Vec<(u64, u32)>;
}

impl Mixes for Blocks {
    fn mix_range(&self, position: u64) -> Range<u64> {
        self.mix_range(position)
    }

    fn in_file_order(&self, spans: &[Range<u64>]) -> Vec<(u64, u32)> {
        self.in_file_order(spans)
    }
}

/// One mix: its place among the positions, and its blocks' among the shuffled blocks.
#[derive(Debug)]
struct Piece {
    number: u64,
    positions: Range<u64>,
    blocks: Range<u64>,
}

impl Blocks {
    /// The order of `len` rows in this epoch under this seed.
    ///
    /// Orders of different seeds, epochs, lengths or mixes have nothing to do with each other.
    pub fn new(len: u64, seed: u64, epoch: u64, mix: Mix) -> Self {
        let (block_rows, buffer_blocks) = (mix.block_rows.get(), mix.buffer_blocks.get());
        let (blocks, rest) = (len / block_rows, len % block_rows);
        // Rows that make no block at all are a mix too.
        let mixes = blocks.div_ceil(buffer_blocks).max(1);
        let mut bits = Bits::new(PURPOSE, &[len, block_rows, buffer_blocks, seed, epoch]);
        let head = bits.below(rest + 1);
        let takes_rest = bits.below(mixes);
        let key = bits.key();
        let shuffled = Permutation::draw(blocks, &mut bits);
        Self { len, mix, key, shuffled, mixes, head, tail: rest - head, takes_rest }
    }

    /// The sizes it was made with.
    pub fn mix(&self) -> Mix {
        self.mix
    }

    /// The positions of the mix that holds `position`: what to read at once, so that each block is read
    /// once. Empty past the end.
    pub fn mix_range(&self, position: u64) -> Range<u64> {
        if position < self.len { self.piece(self.mix_of(position)).positions } else { self.len..self.len }
    }

    /// The rows at spans of positions that all lie in one mix, in the order in which they lie in the file, each with
    /// its index among the positions. Without a comparison: whoever knows the blocks knows the place of every row.
    pub(crate) fn in_file_order(&self, spans: &[Range<u64>]) -> Vec<(u64, u32)> {
        const NOBODY: u32 = u32::MAX;
        let count = |range: &Range<u64>| usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let Some(piece) = spans.first().map(|span| self.piece(self.mix_of(span.start))) else {
            return Vec::new();
        };
        let block_rows = self.mix.block_rows.get();
        let mut blocks: Vec<(u64, u64)> = vec![(0, 0); count(&piece.blocks)];
        let mut numbers = vec![0; blocks.len()];
        self.shuffled.fill(piece.blocks.start, &mut numbers);
        for (block, (here, number)) in blocks.iter_mut().zip((0..).zip(numbers)) {
            *block = (number, here);
        }
        blocks.sort_unstable();
        // Where the rows of each block begin, among all rows of this mix in file order.
        let head = if piece.number == self.takes_rest { self.head } else { 0 };
        let mut begins = vec![0; blocks.len()];
        for (rank, &(_, here)) in (0..).zip(&blocks) {
            begins[usize::try_from(here).unwrap_or(0)] = head + rank * block_rows;
        }
        let in_blocks = blocks.len() as u64 * block_rows;
        let mut positions = vec![NOBODY; count(&piece.positions)];
        let inner = Inner::draw(piece.rows(), &mut Bits::keyed(&self.key, piece.number));
        let (mut some, mut indices) = ([0; 8 * STRETCH], 0..);
        for span in spans {
            for start in span.clone().step_by(some.len()) {
                let some = &mut some[..count(&(start..span.end)).min(8 * STRETCH)];
                inner.fill(start - piece.positions.start, some);
                for (&mut place, index) in some.iter_mut().zip(&mut indices) {
                    let at = if place < in_blocks {
                        begins[usize::try_from(place / block_rows).unwrap_or(0)] + place % block_rows
                    } else if place - in_blocks < head {
                        place - in_blocks
                    } else {
                        place // the tail is behind all blocks, as it is in the file
                    };
                    positions[usize::try_from(at).unwrap_or(0)] = index;
                }
            }
        }
        let first = |(number, _): &(u64, u64)| self.head + number * block_rows;
        let rows = (0..head)
            .chain(blocks.iter().flat_map(|block| first(block)..first(block) + block_rows))
            .chain(self.len - self.tail..self.len);
        rows.zip(positions).filter(|&(_, index)| index != NOBODY).collect()
    }

    /// How many rows a mix has at most, in this and every other epoch: what the budget has to hold.
    pub fn largest_mix(&self) -> u64 {
        self.shuffled.len().div_ceil(self.mixes) * self.mix.block_rows.get() + self.rest()
    }

    /// The rows that fill no block.
    fn rest(&self) -> u64 {
        self.head + self.tail
    }

    /// The number of blocks in every mix, and the number of mixes that have one more: the first ones.
    fn deal(&self) -> (u64, u64) {
        (self.shuffled.len() / self.mixes, self.shuffled.len() % self.mixes)
    }

    /// Mix `number`, which is below `mixes`.
    fn piece(&self, number: u64) -> Piece {
        let (each, more) = self.deal();
        let block = |number: u64| number * each + number.min(more);
        let position = |number: u64| {
            block(number) * self.mix.block_rows.get() + if number > self.takes_rest { self.rest() } else { 0 }
        };
        Piece {
            number,
            positions: position(number)..position(number + 1),
            blocks: block(number)..block(number + 1),
        }
    }

    /// Which mix holds `position`, which is below `len`.
    fn mix_of(&self, position: u64) -> u64 {
        let rest = self.piece(self.takes_rest).positions;
        if rest.contains(&position) {
            return self.takes_rest;
        }
        let full = if position < rest.start { position } else { position - self.rest() };
        let block = full / self.mix.block_rows;
        let (each, more) = self.deal();
        let in_larger = (each + 1) * more;
        if block < in_larger { block / (each + 1) } else { more + (block - in_larger) / each }
    }

    /// Writes the places at the positions of a mix, from its position `skip` on.
    ///
    /// A *place* is a row number in the file as it would be with its blocks shuffled, and the rest at its
    /// end.
    fn fill_places(&self, piece: &Piece, skip: u64, out: &mut [u64]) {
        Inner::draw(piece.rows(), &mut Bits::keyed(&self.key, piece.number)).fill(skip, out);
        let first = piece.blocks.start * self.mix.block_rows.get();
        // The rest comes after all blocks, not only after those of this mix.
        let in_blocks = piece.blocks.end * self.mix.block_rows.get() - first;
        let later = self.len - self.rest() - in_blocks;
        for place in out {
            *place = place.wrapping_add(if *place < in_blocks { first } else { later });
        }
    }

    /// Replaces places by the rows that stand there: `blocks` are the shuffled blocks that they are in.
    fn replace_places(&self, blocks: Range<u64>, places: &mut [u64]) {
        let block_rows = self.mix.block_rows.get();
        let count = blocks.end - blocks.start;
        // Where each block is met more than once, it pays to compute it once.
        let mut known = Vec::new();
        if count <= places.len() as u64 {
            known.resize(usize::try_from(count).unwrap_or(0), 0);
            self.shuffled.fill(blocks.start, &mut known);
        }
        let in_blocks = self.len - self.rest();
        for places in places.chunks_mut(STRETCH) {
            let (mut block, mut row) = ([0; STRETCH], [0; STRETCH]);
            for (lane, &place) in places.iter().enumerate() {
                (block[lane], row[lane]) = (place / block_rows, place % block_rows);
            }
            if count > 0 {
                let block = &mut block[..places.len()];
                for block in &mut *block {
                    // Any block will do for the rest, which is in none.
                    *block = (*block).min(blocks.end - 1);
                }
                if known.is_empty() {
                    self.shuffled.replace(block);
                } else {
                    for block in block {
                        *block = known[usize::try_from(*block - blocks.start).unwrap_or(0)];
                    }
                }
            }
            for (place, (block, row)) in places.iter_mut().zip(block.into_iter().zip(row)) {
                *place = if *place < in_blocks {
                    block.wrapping_mul(block_rows).wrapping_add(row).wrapping_add(self.head)
                } else {
                    self.row_of_rest(row)
                };
            }
        }
    }

    /// The rows that fill no block, in file order.
    fn row_of_rest(&self, at: u64) -> u64 {
        if at < self.head { at } else { self.len - self.rest() + at }
    }
}

impl Piece {
    fn rows(&self) -> u64 {
        self.positions.end - self.positions.start
    }
}

impl Order for Blocks {
    fn len(&self) -> u64 {
        self.len
    }

    fn fill(&self, start: u64, out: &mut [u64]) {
        check_bounds(self.len, start, out.len());
        if out.is_empty() {
            return;
        }
        let mut piece = self.piece(self.mix_of(start));
        let mut blocks = piece.blocks.clone();
        let (mut at, mut rest) = (start, &mut *out);
        loop {
            let here = usize::try_from(piece.positions.end - at).unwrap_or(usize::MAX).min(rest.len());
            let (now, later) = rest.split_at_mut(here);
            self.fill_places(&piece, at - piece.positions.start, now);
            blocks.end = piece.blocks.end;
            if later.is_empty() {
                break;
            }
            (at, rest) = (piece.positions.end, later);
            piece = self.piece(piece.number + 1);
        }
        self.replace_places(blocks, out);
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, mix, mixes, head, tail, takes_rest, .. } = self;
        f.debug_struct("Blocks")
            .field("len", len)
            .field("mix", mix)
            .field("mixes", mixes)
            .field("head", head)
            .field("tail", tail)
            .field("takes_rest", takes_rest)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
