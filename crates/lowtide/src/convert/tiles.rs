//! Which elements of an array are turned at once: pure geometry.
//!
//! An array is to be written with its axes the other way round: what varies fastest in one file varies slowest in the
//! other. All axes here are the output's, the slowest first; the input has them in the opposite order. A [`Tile`] is a box
//! of elements. In the input it is runs along the first axes, in the output runs along the last ones, and the shorter the
//! runs, the dearer. So tiles are as even as they may be: of a table of any size, 56 MiB of float32 are runs of 7 KiB to
//! read and 32 KiB to write, and whole rows or columns where those are shorter.

use std::ops::Range;

/// By how much runs of the output are longer than those of the input: short reads are many in flight, while the kernel
/// has few writes on their way at a time. Of 2 GiB in 256 MiB, beside other work, with 1: 18 s, 4: 14 s, 16: 13 s, of
/// which more are for reading.
const LONGER: usize = 8;

/// A box of elements: on each axis of the output, which ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) start: Vec<usize>,
    pub(super) size: Vec<usize>,
}

/// Which runs are made longer, while there is room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grow {
    /// Those of the input up to an eighth of the output's, and no more than so many of them in a tile.
    Even { runs: usize },
    /// Those of the input up to so many elements, then those of the output.
    Output { least: usize },
}

/// The size of tiles of at most so many elements, or of one: all of about the same.
pub(super) fn sizes(shape: &[usize], most: usize, grow: Grow) -> Vec<usize> {
    let largest = largest(shape, most, grow);
    shape.iter().zip(largest).map(|(&n, size)| n.div_ceil(n.div_ceil(size))).collect()
}

fn largest(shape: &[usize], most: usize, grow: Grow) -> Vec<usize> {
    let mut size = vec![1; shape.len()];
    let is_open = |size: &[usize], axis: &usize| size[*axis] < shape[*axis];
    loop {
        let front = (0..shape.len()).find(|axis| is_open(&size, axis));
        let back = (0..shape.len()).rev().find(|axis| is_open(&size, axis));
        let (Some(front), Some(back)) = (front, back) else { return size };
        let input: usize = size[..=front].iter().product();
        let output: usize = size[back..].iter().product();
        let runs = size.iter().product::<usize>() / output;
        let first = match grow {
            Grow::Even { runs: most } => LONGER * input <= output && runs * 2 <= most,
            Grow::Output { least } => input < least,
        };
        let axis = if first { front } else { back };
        let others: usize = size.iter().product::<usize>() / size[axis];
        let twice = (2 * size[axis]).min(shape[axis]);
        let fits = (most / others).min(shape[axis]);
        if fits >= twice {
            size[axis] = twice;
        } else if fits > size[axis] {
            size[axis] = fits;
        } else {
            return size;
        }
    }
}

/// The tiles of this size that a box consists of, in the order of the output.
pub(super) fn tiles(whole: &Tile, size: &[usize]) -> impl Iterator<Item = Tile> + use<> {
    tiles_from(whole, size, Cut { axis: 0, first: 0 })
}

/// The same, of which the first on one axis may be smaller.
pub(super) fn tiles_from(whole: &Tile, size: &[usize], cut: Cut) -> impl Iterator<Item = Tile> + use<> {
    let (whole, size) = (whole.clone(), size.to_vec());
    let lead = move |axis: usize| if axis == cut.axis { cut.first } else { 0 };
    let count = |axis: usize| {
        usize::from(lead(axis) > 0) + whole.size[axis].saturating_sub(lead(axis)).div_ceil(size[axis])
    };
    let counts: Vec<usize> = (0..size.len()).map(count).collect();
    let count: usize = counts.iter().product();
    (0..count).map(move |mut number| {
        let mut tile = Tile { start: whole.start.clone(), size: size.clone() };
        for axis in (0..counts.len()).rev() {
            let index = number % counts[axis];
            number /= counts[axis];
            let (from, to) = match lead(axis) {
                0 => (index * size[axis], (index + 1) * size[axis]),
                lead if index == 0 => (0, lead),
                lead => (lead + (index - 1) * size[axis], lead + index * size[axis]),
            };
            tile.start[axis] += from;
            tile.size[axis] = to.min(whole.size[axis]) - from;
        }
        tile
    })
}

/// Where the first cut of an axis is; 0 where tiles begin as the box does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) axis: usize,
    pub(super) first: usize,
}

/// Cuts runs of the output where pages of the file end, if that is the same place in all of them: then no page belongs to
/// two tiles. `size` becomes smaller for it where need be. Elements have `width` bytes and begin at byte `data_at`.
pub(super) fn at_pages(shape: &[usize], size: &mut [usize], width: usize, data_at: u64, page: usize) -> Cut {
    let nothing = Cut { axis: 0, first: 0 };
    // The axis that is cut into runs: those behind it are whole.
    let Some(axis) = (0..shape.len()).rev().find(|&axis| size[axis] < shape[axis]) else { return nothing };
    let step = shape[axis + 1..].iter().product::<usize>() * width;
    let lead = (page as u64 - data_at % page as u64) % page as u64;
    let Some(lead) = usize::try_from(lead).ok().filter(|lead| lead.is_multiple_of(step)) else {
        return nothing;
    };
    let (pages, first) = (page / step.min(page), lead / step);
    let row = shape[axis] * step;
    if !page.is_multiple_of(step) || !row.is_multiple_of(page) || size[axis] < pages || first >= size[axis] {
        return nothing;
    }
    size[axis] -= size[axis] % pages;
    Cut { axis, first }
}

impl Tile {
    /// All of an array.
    pub(super) fn whole(shape: &[usize]) -> Self {
        Self { start: vec![0; shape.len()], size: shape.to_vec() }
    }

    /// The same elements, as a box that has them counts them.
    pub(super) fn within(&self, other: &Self) -> Self {
        let start = self.start.iter().zip(&other.start).map(|(at, first)| at - first).collect();
        Self { start, size: self.size.clone() }
    }

    /// How many elements.
    pub(super) fn len(&self) -> usize {
        self.size.iter().product()
    }

    /// The runs that it is in an array of this shape: where each begins, and how many elements all of them have.
    pub(super) fn runs(&self, shape: &[usize]) -> (usize, impl Iterator<Item = u64> + use<>) {
        let axes = shape.len();
        let mut inner = axes; // axes from here on lie together
        while inner > 0 && (inner == axes || self.size[inner] == shape[inner]) {
            inner -= 1;
        }
        let len = self.size[inner..].iter().product();
        let strides: Vec<u64> = (0..axes).map(|axis| product(&shape[axis + 1..])).collect();
        let first: u64 = self.start.iter().zip(&strides).map(|(&at, stride)| at as u64 * stride).sum();
        let outer: Vec<(usize, u64)> = self.size[..inner].iter().copied().zip(strides).collect();
        let count: usize = outer.iter().map(|(size, _)| size).product();
        let offset = move |mut number: usize| {
            outer.iter().rev().fold(first, |offset, &(size, stride)| {
                let at = number % size;
                number /= size;
                offset + at as u64 * stride
            })
        };
        (len, (0..count).map(offset))
    }

    /// Where element `n` of the tile, in the order of the output, is in the array.
    pub(super) fn index(&self, mut n: usize) -> Vec<usize> {
        let mut index = self.start.clone();
        for axis in (0..index.len()).rev() {
            index[axis] += n % self.size[axis];
            n /= self.size[axis];
        }
        index
    }

    /// Which ones on an axis.
    pub(super) fn range(&self, axis: usize) -> Range<usize> {
        self.start[axis]..self.start[axis] + self.size[axis]
    }
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().map(|&size| size as u64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every element is in one tile, and in one run of it; runs begin where the tile's elements are.
        #[test]
        fn tiles_are_all_elements_once(
            shape in prop::collection::vec(1_usize..9, 1..5), most in 1_usize..200, even: bool, least in 1_usize..20, runs in 1_usize..30,
        ) {
            let grow = if even { Grow::Even { runs } } else { Grow::Output { least } };
            let size = sizes(&shape, most, grow);
            prop_assert!(size.iter().product::<usize>() <= most.max(1));
            let mut seen = vec![0; shape.iter().product()];
            for tile in tiles(&Tile::whole(&shape), &size) {
                let (len, runs) = tile.runs(&shape);
                let elements: Vec<u64> = runs.flat_map(|at| at..at + len as u64).collect();
                prop_assert_eq!(elements.len(), tile.len());
                for (n, &element) in elements.iter().enumerate() {
                    let index = tile.index(n);
                    let number = index.iter().zip(&shape).fold(0, |number, (&at, &size)| number * size + at);
                    prop_assert_eq!(number as u64, element);
                    seen[number] += 1;
                }
            }
            prop_assert!(seen.iter().all(|&times| times == 1));
        }
    }

    proptest! {
        /// Where cuts are at pages, every run begins and ends at one, but for the first and last of a row; all elements are
        /// there once all the same.
        #[test]
        fn cuts_are_where_pages_end(
            rows in 1_usize..9, pages in 1_usize..9, odd in 0_usize..3, inner in prop::sample::select(vec![1_usize, 2, 4]),
            width in prop::sample::select(vec![1_usize, 2, 4]), most in 1_usize..2000, data_at in prop::sample::select(vec![0_u64, 16, 64, 72]),
        ) {
            let page = 64;
            let shape = [rows, pages * page / width / inner + odd, inner];
            let mut size = sizes(&shape, most, Grow::Even { runs: 30 });
            let before = size.clone();
            let cut = at_pages(&shape, &mut size, width, data_at, page);
            prop_assert!(size.iter().zip(&before).all(|(now, before)| now <= before && *now > 0));
            let mut seen = vec![0; shape.iter().product()];
            for tile in tiles_from(&Tile::whole(&shape), &size, cut) {
                prop_assert!(tile.len() > 0 && tile.len() <= before.iter().product());
                let (len, runs) = tile.runs(&shape);
                for at in runs {
                    let byte = |n: u64| (data_at + n * width as u64) % page as u64;
                    let row = (shape[1] * inner) as u64;
                    if cut.first > 0 || size != before {
                        prop_assert!(at % row == 0 || byte(at) == 0);
                    }
                    (at..at + len as u64).for_each(|n| seen[usize::try_from(n).unwrap()] += 1);
                }
            }
            prop_assert!(seen.iter().all(|&times| times == 1));
        }
    }

    #[test]
    fn a_square_is_cut_at_pages_behind_the_header() {
        let mut size = vec![1821, 8192];
        let cut = at_pages(&[1 << 15, 1 << 15], &mut size, 4, 128, 4096);
        assert_eq!((cut, &size[..]), (Cut { axis: 1, first: 992 }, &[1821, 8192][..]));
        // Rows that end within a page, and whole rows, are cut as they were.
        for shape in [[1 << 15, (1 << 15) + 1], [1 << 15, 8192]] {
            assert_eq!(at_pages(&shape, &mut size, 4, 128, 4096).first, 0);
        }
    }

    #[test]
    fn tiles_are_even_and_whole_rows_where_they_are_short() {
        let m = 1 << 20;
        for (shape, wanted) in [
            (&[1 << 20, 1 << 20][..], &[512, 2048][..]),
            (&[1 << 20, 16], &[1 << 16, 16]),
            (&[16, 1 << 20], &[16, 1 << 16]),
            (&[1 << 10, 1 << 10], &[1024, 1024]),
            (&[10, 1 << 30, 10], &[10, 10_485, 10]),
            (&[10_000, 10_000], &[500, 2_000]),
            (&[1 << 30], &[1 << 20]),
        ] {
            assert_eq!(sizes(shape, m, Grow::Even { runs: usize::MAX / 2 }), wanted, "{shape:?}");
        }
        assert_eq!(sizes(&[1 << 20, 1 << 20], m, Grow::Even { runs: 64 }), [64, 1 << 14]);
        assert_eq!(sizes(&[1 << 20, 16], m, Grow::Even { runs: 64 }), [1 << 16, 16], "all of it is one run");
        assert_eq!(sizes(&[5000, 5000], 1 << 18, Grow::Output { least: 32 }), [52, 5000]);
        assert_eq!(sizes(&[16, 1 << 21], 1 << 18, Grow::Output { least: 32 }), [16, 1 << 14]);
    }
}
