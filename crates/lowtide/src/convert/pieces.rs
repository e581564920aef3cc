//! How an output is cut that is made in two passes: pure geometry.
//!
//! One pass over tiles reads short runs or writes short ones. In two, all of them are long. The first takes slab after slab
//! of the input, which lies together in its file, and writes it in pieces, each of which lies together in the output: not
//! where its elements belong, but in the strip of the output that they belong to. The second takes strip after strip, which
//! lies together in the output, and puts its elements in order, in memory. So the output is its own scratch file. All axes
//! are the output's, the slowest first, as in `tiles`.

use super::tiles::{self, Tile};

/// Slabs on the last axis, strips on the first: a piece is what a slab and a strip have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    shape: Vec<usize>,
    /// Indices of the last axis in a slab, but perhaps the last one.
    slab: usize,
    /// Indices of the first axis in a strip, likewise.
    strip: usize,
}

impl Pieces {
    /// Slabs and strips of at most so many elements; `None` where one index is more than that.
    pub(super) fn new(shape: &[usize], slab: usize, strip: usize) -> Option<Self> {
        let (&[first, ..], &[.., last]) = (shape, shape) else { return None };
        let even =
            |size: usize, most: usize| (most > 0).then(|| size.div_ceil(size.div_ceil(most.min(size))));
        let all: usize = shape.iter().product();
        let (slab, strip) = (even(last, slab / (all / last))?, even(first, strip / (all / first))?);
        (shape.len() > 1).then(|| Self { shape: shape.to_vec(), slab, strip })
    }

    /// Elements of the largest slab.
    pub(super) fn slab_len(&self) -> usize {
        self.shape.iter().product::<usize>() / self.last() * self.slab
    }

    /// Elements of the largest strip.
    pub(super) fn strip_len(&self) -> usize {
        self.strip * self.row()
    }

    /// The slabs, in the order of the input.
    pub(super) fn slabs(&self) -> impl Iterator<Item = Tile> + use<> {
        let mut size = self.shape.clone();
        *size.last_mut().unwrap_or(&mut 0) = self.slab;
        tiles::tiles(&Tile::whole(&self.shape), &size)
    }

    /// The strips, in the order of the output: the first element of each, and how many.
    pub(super) fn strips(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (strip, row, first) = (self.strip, self.row(), self.shape[0]);
        (0..first).step_by(strip).map(move |at| (at as u64 * row as u64, strip.min(first - at) * row))
    }

    /// The pieces of a slab, and the element of the output where each begins between the passes.
    pub(super) fn of(&self, slab: &Tile) -> impl Iterator<Item = (Tile, u64)> + use<> {
        let mut size = slab.size.clone();
        size[0] = self.strip;
        let (row, middle) = (self.row() as u64, self.middle() as u64);
        tiles::tiles(slab, &size).map(move |piece| {
            let before = piece.start.last().map_or(0, |&at| at as u64) * middle * piece.size[0] as u64;
            let at = piece.start[0] as u64 * row + before;
            (piece, at)
        })
    }

    /// Puts elements of a strip in order: those from element `first` of it on, as many as `to` has room for. `from` is the
    /// strip, of `len` elements of `width` bytes, as the first pass has left it.
    pub(super) fn in_order(&self, len: usize, first: usize, width: usize, from: &[u8], to: &mut [u8]) {
        let last = self.last();
        let lines = len / last;
        let (mut line, mut column) = (first / last, first % last);
        let mut rest = to;
        while !rest.is_empty() {
            let start = column / self.slab * self.slab;
            let wide = self.slab.min(last - start);
            let at = (start * lines + line * wide + (column - start)) * width;
            let run = ((wide - (column - start)) * width).min(rest.len());
            let (into, others) = rest.split_at_mut(run);
            into.copy_from_slice(&from[at..at + run]);
            rest = others;
            column = start + wide;
            if column == last {
                (line, column) = (line + 1, 0);
            }
        }
    }

    fn last(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Elements of one index of the first axis.
    fn row(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// How many runs along the last axis that is.
    fn middle(&self) -> usize {
        self.row() / self.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Pieces are all places of the output once, and the second pass finds every element where the first has put it.
        #[test]
        fn two_passes_put_all_elements_in_order(
            shape in prop::collection::vec(2_usize..9, 2..5), slab in 1_usize..500, strip in 1_usize..500, part in 1_usize..50,
        ) {
            let Some(pieces) = Pieces::new(&shape, slab, strip) else {
                let all: usize = shape.iter().product();
                prop_assert!(slab < all / shape[shape.len() - 1] || strip < all / shape[0]);
                return Ok(());
            };
            prop_assert!(pieces.slab_len() <= slab && pieces.strip_len() <= strip);
            let count: usize = shape.iter().product();
            let mut between = vec![u16::MAX; count];
            for slab in pieces.slabs() {
                for (piece, at) in pieces.of(&slab) {
                    for n in 0..piece.len() {
                        let number = piece.index(n).iter().zip(&shape).fold(0, |sum, (&at, &size)| sum * size + at);
                        let place = &mut between[usize::try_from(at).unwrap() + n];
                        prop_assert_eq!(*place, u16::MAX, "twice in one place");
                        *place = number.try_into().unwrap();
                    }
                }
            }
            let mut next = 0;
            for (at, len) in pieces.strips() {
                let at = usize::try_from(at).unwrap();
                let from: Vec<u8> = between[at..at + len].iter().flat_map(|n| n.to_le_bytes()).collect();
                for first in (0..len).step_by(part) {
                    let mut to = vec![0; part.min(len - first) * 2];
                    pieces.in_order(len, first, 2, &from, &mut to);
                    for cell in to.chunks(2) {
                        prop_assert_eq!(u16::from_le_bytes([cell[0], cell[1]]), next);
                        next += 1;
                    }
                }
            }
            prop_assert_eq!(usize::from(next), count);
        }
    }

    #[test]
    fn slabs_and_strips_of_a_square_are_even() {
        let pieces = Pieces::new(&[1 << 15, 1 << 15], 14 << 20, 14 << 20).unwrap();
        assert_eq!((pieces.slab, pieces.strip), (443, 443));
        assert_eq!(Pieces::new(&[1 << 15, 1 << 15], (1 << 15) - 1, 14 << 20), None);
        assert_eq!(Pieces::new(&[1 << 15, 1 << 15], 14 << 20, (1 << 15) - 1), None);
    }
}
