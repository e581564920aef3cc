//! Bare elements: `np.memmap`'s words, `dtype`, `shape` with at most one −1, and `offset`.

use super::{Container, Dtype, Layout, Order, byte_len};
use crate::door::Words;
use crate::error::{Error, Result};
use std::path::Path;

/// The size of one axis as the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many.
    Exactly(usize),
    /// As many as the file has: NumPy's −1.
    Rest,
}

/// The layout of a file without a header.
///
/// `shape` of `None` means one axis with all the elements there are, as for `np.memmap`.
pub fn layout(
    path: &Path,
    dtype: Dtype,
    shape: Option<&[Extent]>,
    offset: u64,
    file_len: u64,
) -> Result<Layout> {
    let shape = shape.unwrap_or(&[Extent::Rest]);
    if shape.iter().filter(|&&e| e == Extent::Rest).count() > 1 {
        return Err(Error::argument("only one axis of shape can be -1", "give the other sizes as numbers"));
    }
    if offset > file_len {
        return Err(Error::Format {
            path: path.to_owned(),
            offset,
            expected: "an offset inside the file".into(),
            found: format!("a file of {file_len} bytes"),
            hint: Words::NONE,
        });
    }
    let fixed: Vec<usize> =
        shape.iter().filter_map(|e| if let Extent::Exactly(n) = e { Some(*n) } else { None }).collect();
    let rest = if fixed.len() == shape.len() { 0 } else { rest(path, dtype, &fixed, offset, file_len)? };
    let shape = shape.iter().map(|e| if let Extent::Exactly(n) = e { *n } else { rest }).collect();
    Layout::new(path, Container::Raw, dtype, shape, Order::C, offset, file_len)
}

/// How many rows the −1 stands for; the file must hold a whole number of them.
fn rest(path: &Path, dtype: Dtype, fixed: &[usize], offset: u64, file_len: u64) -> Result<usize> {
    let left = file_len - offset;
    let Some(row) = byte_len(fixed, dtype.itemsize()) else {
        return Err(Error::argument("shape is too large: its size does not fit in 63 bits", ""));
    };
    if row == 0 {
        return Err(Error::argument(
            "shape with -1 and a zero has no meaning: any number of empty rows fits the file",
            "give the number of rows",
        ));
    }
    if !left.is_multiple_of(row) {
        return Err(Error::Format {
            path: path.to_owned(),
            offset,
            expected: format!("a whole number of rows of {row} bytes"),
            found: format!("{left} bytes: {} rows and {} bytes", left / row, left % row),
            hint: "is the dtype or the shape right, or does a header need an offset?".into(),
        });
    }
    usize::try_from(left / row)
        .map_err(|_| Error::argument("the file has more rows than this machine can count", ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Extent::{Exactly, Rest};

    fn of(shape: Option<&[Extent]>, offset: u64, len: u64) -> Result<Vec<usize>> {
        layout(Path::new("x.bin"), Dtype::parse("float32")?, shape, offset, len).map(|l| l.shape)
    }

    #[test]
    fn minus_one_takes_the_rest() {
        assert_eq!(of(None, 0, 40).unwrap(), [10]);
        assert_eq!(of(Some(&[Rest, Exactly(5)]), 0, 40).unwrap(), [2, 5]);
        assert_eq!(of(Some(&[Exactly(5), Rest]), 20, 40).unwrap(), [5, 1]);
        assert_eq!(of(Some(&[Rest, Exactly(5)]), 40, 40).unwrap(), [0, 5]);
        assert_eq!(of(Some(&[Exactly(3)]), 4, 40).unwrap(), [3]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (shape, offset, len, says) in [
            (Some(&[Rest, Rest][..]), 0, 40, "only one axis"),
            (Some(&[Rest, Exactly(3)]), 0, 40, "3 rows and 4 bytes"),
            (Some(&[Rest, Exactly(0)]), 0, 40, "any number of empty rows"),
            (Some(&[Exactly(11)]), 0, 40, "expected 44 bytes"),
            (Some(&[Exactly(usize::MAX), Exactly(0)]), 0, 40, "63 bits"),
            (Some(&[Exactly(1 << 40), Exactly(1 << 40)]), 0, 40, "63 bits"),
            (None, 41, 40, "an offset inside the file"),
            (None, 0, 41, "10 rows and 1 bytes"),
        ] {
            let message = of(shape, offset, len).unwrap_err().to_string();
            assert!(message.contains(says), "{shape:?}: {message}");
        }
    }
}
