//! The shape of an array that is being written: which axis grows, and where its rows go. Pure.
//!
//! A *row* here is what lies together in the file at one index of that axis: a row of an array in C order, whose
//! first axis grows; a column, or whatever the other axes are, of one in Fortran order, whose last axis grows.

use crate::door::{ORDER, SHAPE, Words};
use crate::error::{Error, Result};
use crate::format::{Dtype, Layout, Order, byte_len, npy};

/// What an array that is being written is, and will be.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) dtype: Dtype,
    pub(super) order: Order,
    /// The sizes; that of the axis that grows is what it has at least.
    sizes: Vec<usize>,
    /// How many rows there will be, where that is known.
    pub(super) known: Option<u64>,
}

impl Growth {
    /// From the caller's words: at most one size is not known.
    pub(super) fn new(dtype: Dtype, shape: &[Option<usize>], order: Order) -> Result<Self> {
        let axis = axis(shape.len(), order).ok_or_else(|| {
            Error::argument(
                SHAPE.sizes([""; 0]) + " has no axis to write along",
                "np.save writes a single element",
            )
        })?;
        if let Some(other) = (0..shape.len()).find(|&i| i != axis && shape[i].is_none()) {
            let (name, hint) = match order {
                Order::C => ("C", Words::from("None goes first, as in ") + SHAPE.sizes(["None", "128"])),
                Order::Fortran => ("F", Words::from("None goes last, as in ") + SHAPE.sizes(["128", "None"])),
            };
            let what = Words::from(format!("axis {other} cannot grow: with ")) + ORDER.is(name);
            let which = if axis == 0 { "the first axis" } else { "the last axis" };
            return Err(Error::argument(what + " rows are added to " + which, hint));
        }
        let sizes: Vec<usize> = shape.iter().map(|size| size.unwrap_or(0)).collect();
        let known = shape[axis].map(|rows| rows as u64);
        let growth = Self { dtype, order, sizes, known };
        growth.bytes(known.unwrap_or(1))?;
        Ok(growth)
    }

    /// Of a file that there is; it goes on growing.
    pub(super) fn of(layout: &Layout) -> Result<Self> {
        let shape: Vec<Option<usize>> = layout.shape.iter().copied().map(Some).collect();
        Ok(Self { known: None, ..Self::new(layout.dtype, &shape, layout.order)? })
    }

    /// Which axis grows.
    pub(super) fn axis(&self) -> usize {
        axis(self.sizes.len(), self.order).unwrap_or(0)
    }

    /// The shape with so many rows.
    pub(super) fn shape(&self, rows: u64) -> Vec<usize> {
        let mut shape = self.sizes.clone();
        shape[self.axis()] = usize::try_from(rows).unwrap_or(usize::MAX);
        shape
    }

    /// Bytes of one row.
    pub(super) fn row_bytes(&self) -> u64 {
        byte_len(&self.shape(1), self.dtype.itemsize()).unwrap_or(u64::MAX) // `new` checked it
    }

    /// Bytes of so many rows, where they can be counted.
    pub(super) fn bytes(&self, rows: u64) -> Result<u64> {
        byte_len(&self.shape(rows), self.dtype.itemsize())
            .ok_or_else(|| Error::argument("the array is too large: its size does not fit in 63 bits", ""))
    }

    /// The `.npy` header of so many rows, of a length that does not depend on them.
    pub(super) fn header(&self, rows: u64) -> Result<Vec<u8>> {
        let order = npy::saved_order(&self.shape(self.known.unwrap_or(2)), self.order);
        let usual = npy::header(self.dtype, &self.shape(rows), order)?;
        // Of few rows both orders may be the same bytes, and `np.save` calls that C. Where that header has another
        // length the elements are elsewhere by now; the usual one is as true.
        let saved = npy::header(self.dtype, &self.shape(rows), npy::saved_order(&self.shape(rows), order))?;
        Ok(if saved.len() == usual.len() { saved } else { usual })
    }
}

/// The axis along which elements that are added lie behind all others.
fn axis(axes: usize, order: Order) -> Option<usize> {
    match order {
        Order::C => (axes > 0).then_some(0),
        Order::Fortran => axes.checked_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(shape: &[Option<usize>], order: Order) -> Result<Growth> {
        Growth::new("float32".parse().unwrap(), shape, order)
    }

    #[test]
    fn rows_go_along_the_axis_that_is_slowest_in_the_file() {
        let c = growth(&[None, Some(3), Some(5)], Order::C).unwrap();
        assert_eq!((c.axis(), c.row_bytes(), c.shape(7), c.bytes(7).unwrap()), (0, 60, vec![7, 3, 5], 420));
        let f = growth(&[Some(3), Some(5), None], Order::Fortran).unwrap();
        assert_eq!((f.axis(), f.row_bytes(), f.shape(7), f.bytes(7).unwrap()), (2, 60, vec![3, 5, 7], 420));
    }

    #[test]
    fn what_cannot_grow_is_refused_by_name() {
        for (shape, order, says) in [
            (&[][..], Order::C, "shape=() has no axis to write along"),
            (
                &[Some(3), None],
                Order::C,
                "axis 1 cannot grow: with order=\"C\" rows are added to the first axis",
            ),
            (&[None, None], Order::C, "hint: None goes first, as in shape=(None, 128)"),
            (
                &[None, Some(3)],
                Order::Fortran,
                "axis 0 cannot grow: with order=\"F\" rows are added to the last axis",
            ),
            (&[None, Some(1 << 40), Some(1 << 40)], Order::C, "63 bits"),
            (&[Some(1 << 62)], Order::C, "63 bits"),
        ] {
            let told = growth(shape, order).unwrap_err().to_string();
            assert!(told.contains(says), "{shape:?}: {told}");
        }
        assert!(growth(&[None, Some(1 << 30)], Order::C).unwrap().bytes(1 << 40).is_err());
    }

    #[test]
    fn headers_have_one_length_and_the_order_of_np_save() {
        for shape in [&[Some(3), None][..], &[Some(1), None], &[None]] {
            let growth = growth(shape, Order::Fortran).unwrap();
            let lens: Vec<usize> =
                (0..12).map(|digits| growth.header(10_u64.pow(digits)).unwrap().len()).collect();
            assert!(lens.iter().all(|len| *len == lens[0]), "{lens:?}");
            let said = |rows| {
                String::from_utf8_lossy(&growth.header(rows).unwrap()).contains("'fortran_order': True")
            };
            assert_eq!((said(0), said(1), said(2)), (false, false, shape == [Some(3), None]), "{shape:?}");
        }
    }
}
