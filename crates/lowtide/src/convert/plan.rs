//! How an array is cut whose axes are turned, in one pass or in two, and what either asks of a disk: pure.

use super::passes::Load;
use super::pieces::Pieces;
use super::strips::Strips;
use super::tiles::{self, Cut, Grow, Tile};
use super::writing::Memory;

/// One in so many runs of a tile is read to see what short reads cost.
const SAMPLE: usize = 8;
/// Longer runs are several requests.
const LONG: f64 = 524_288.0;

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

    /// Parts of tiles whose runs are as long as those of all of it: not at the beginning, where slabs were just read.
    pub(super) fn samples(&self) -> [Tile; 2] {
        let last = self.shape.len() - 1;
        [self.shape[last] / 2, self.shape[last] / 4 * 3].map(|at| {
            let mut sample = Tile { start: vec![0; self.shape.len()], size: self.size.clone() };
            sample.start[last] = at;
            sample.size[last] = self.size[last].div_ceil(SAMPLE).min(self.shape[last] - at);
            sample
        })
    }

    /// What reading a tile asks for.
    pub(super) fn reading(&self, tile: &Tile) -> Load {
        load(tile.len(), run(tile.size.iter().zip(&self.shape)), self.item)
    }

    /// What one pass asks for, and two: each time that all of it is read or written.
    pub(super) fn loads(&self, pieces: &Pieces) -> ([Load; 2], [Load; 4]) {
        let all = self.shape.iter().product();
        let sizes = || self.size.iter().zip(&self.shape);
        let (input, output) = (load(all, run(sizes()), self.item), load(all, run(sizes().rev()), self.width));
        let slabs = load(all, pieces.slab_len(), self.item);
        let written = load(all, pieces.piece_len(), self.width);
        let strips = load(all, pieces.strip_len(), self.width);
        ([input, output], [slabs, written, strips, strips])
    }
}

/// So many elements in runs of one length.
fn load(elements: usize, run: usize, width: usize) -> Load {
    let bytes = elements as f64 * width as f64;
    Load { requests: bytes / (run as f64 * width as f64).min(LONG), bytes }
}

/// Elements that lie together, of axes from the fastest on: how many are taken of each, and how many there are.
fn run<'a>(axes: impl Iterator<Item = (&'a usize, &'a usize)>) -> usize {
    let mut len = 1;
    for (&taken, &size) in axes {
        len *= taken;
        if taken < size {
            break;
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_square_has_short_runs_in_one_pass_and_long_ones_in_two() {
        let side = 1 << 15;
        let plan = Plan::new((vec![0, 1], vec![side, side]), (4, 4), 256 << 20, (128, 4096));
        let (one, two) = plan.loads(plan.pieces.as_ref().unwrap());
        let length = |load: &Load| load.bytes / load.requests;
        assert!(length(&one[0]) < 7500.0 && length(&one[1]) < 33_000.0, "{one:?}");
        assert!(two.iter().all(|load| (length(load) - LONG).abs() < 1.0), "{two:?}");
        let [sample, other] = plan.samples();
        assert_eq!((sample.start[1], sample.size[1]), (side / 2, plan.size[1] / SAMPLE));
        assert!(other.start[1] >= sample.start[1] + sample.size[1]);
        assert!((plan.reading(&sample).requests - sample.size[1] as f64).abs() < 1.0);
        assert!(plan.largest() <= 56 << 20);
    }
}
