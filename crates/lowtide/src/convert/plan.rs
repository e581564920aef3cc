//! How an array is cut whose axes are turned, in one pass or in two: pure.

use super::pieces::Pieces;
use super::strips::Strips;
use super::tiles::{self, Cut, Grow, Tile};
use super::writing::Memory;

/// How an array is cut.
pub(super) struct Plan {
    /// The array's axes in the order of the output, the slowest first, those of size 1 left out; and their sizes.
    pub(super) axes: Vec<usize>,
    pub(super) shape: Vec<usize>,
    /// Tiles of one pass.
    pub(super) size: Vec<usize>,
    pub(super) cut: Cut,
    /// Slabs and strips of two, where they fit.
    pub(super) pieces: Option<Pieces>,
    /// Elements of a part, at most.
    pub(super) most: usize,
    /// Bytes of an element of the input, and of the output.
    item: usize,
    width: usize,
}

impl Plan {
    /// In a budget of so many bytes, for a file whose elements begin at byte `data_at`.
    pub(super) fn new(
        (axes, shape): (Vec<usize>, Vec<usize>),
        (item, width): (usize, usize),
        limit: usize,
        (data_at, page): (u64, usize),
    ) -> Self {
        // The writer has a quarter of it at most, and what reads and merges needs an eighth.
        let room = limit / 32 * 7;
        // Both ends of every run wait.
        let mut size = tiles::sizes(&shape, room / item, Grow::Even { runs: Memory::held(limit) / 2 });
        let cut = tiles::at_pages(&shape, &mut size, width, data_at, page);
        let pieces = Pieces::new(&shape, room / item, room.saturating_sub(Strips::room(0)) / width);
        let most = (Memory::part(room) / item.max(width)).max(1);
        Self { axes, shape, size, cut, pieces, most, item, width }
    }

    /// Bytes of the largest tile, slab or strip.
    pub(super) fn largest(&self) -> usize {
        let tile = self.size.iter().product::<usize>() * self.item;
        let two = |pieces: &Pieces| {
            (pieces.slab_len() * self.item).max(Strips::room(pieces.strip_len() * self.width))
        };
        self.pieces.as_ref().map_or(tile, |pieces| tile.max(two(pieces)))
    }

    /// The tiles of one pass.
    pub(super) fn tiles(&self) -> impl Iterator<Item = Tile> + use<> {
        tiles::tiles_from(&Tile::whole(&self.shape), &self.size, self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_read_at_once_has_its_room() {
        for (shape, item, width) in
            [([1 << 15, 1 << 15], 4, 4), ([1 << 15, 1 << 15], 8, 2), ([100, 1 << 20], 2, 8)]
        {
            let plan = Plan::new((vec![0, 1], shape.to_vec()), (item, width), 256 << 20, (128, 4096));
            assert!(plan.pieces.is_some() && plan.largest() <= 56 << 20, "{shape:?}");
        }
        // One index of an axis is more than that.
        let plan = Plan::new((vec![0, 1], vec![100, 1 << 24]), (4, 4), 256 << 20, (128, 4096));
        assert!(plan.pieces.is_none());
    }
}
