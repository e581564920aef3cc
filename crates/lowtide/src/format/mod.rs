//! What the bytes of a file mean.
//!
//! In: the first bytes of a file and its size, or the caller's words. Out: a [`Layout`]: element type,
//! shape, order and where the data begins. Everything here is a pure function of bytes that somebody
//! else wrote: sizes are checked against the file before anything is allocated, nothing is evaluated
//! and nothing is unpickled.
//!
//! Token files come in dialects. What each header and index says is read by a module of its own
//! ([`llmc`], [`megatron`], [`datatrove`], [`npy`]); the I/O around them, from the names that a user gives to
//! the files of one stream, is in [`shards`](crate::shards). [`Foreign`] knows the files that are none of these,
//! and the way out.

pub mod datatrove;
mod dialect;
mod dtype;
mod foreign;
pub(crate) mod guess;
mod literal;
pub mod llmc;
pub mod manifest;
pub mod megatron;
pub mod npy;
mod pickle;
mod raw;
mod text;

pub use dialect::Dialect;
pub(crate) use dialect::{check_token, is_token, little, token_dtypes};
pub use dtype::{ByteOrder, Dtype, Element, Kind};
pub use foreign::{Foreign, HEAD_LEN as FOREIGN_HEAD_LEN, LlmC, Wanted};
pub use raw::{Extent, layout as raw_layout};

use crate::door::{ORDER, SHAPE, Words};
use crate::error::{Error, Result};
use std::path::Path;

/// The hint where a file is shorter than it says.
pub(crate) const CUT: &str = "an interrupted copy or download?";

/// Fills a buffer with the bytes at an offset, all of it or an error.
pub type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]) -> Result<()>;

/// The way out for files in Fortran order, whatever their size.
pub(crate) const INTO_C_ORDER: &str =
    "lowtide convert IN OUT --order C, or lowtide.convert(IN, OUT, order=\"C\"), writes it in C order";

/// In which order the elements of a file follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last axis varies fastest: what NumPy calls `C`.
    C,
    /// The first axis varies fastest: what NumPy calls `F`.
    Fortran,
}

/// NumPy's letters: `C` and `F`.
impl std::str::FromStr for Order {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "C" => Ok(Self::C),
            "F" => Ok(Self::Fortran),
            _ => Err(Error::argument(
                ORDER.is(word.to_owned()) + " is not known",
                "\"C\", where the last axis varies fastest, or \"F\", where the first does",
            )),
        }
    }
}

/// Which kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// NumPy's `.npy`.
    Npy {
        /// The format's major version: 1, 2 or 3.
        version: u8,
    },
    /// Bare elements, described by the caller.
    Raw,
}

/// Where the elements of an array lie in a file, and what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which kind of file this was read from.
    pub container: Container,
    /// The element type.
    pub dtype: Dtype,
    /// The array's shape; empty for a single element.
    pub shape: Vec<usize>,
    /// The order of the elements in the file.
    pub order: Order,
    /// The first byte of the first element.
    pub offset: u64,
}

impl Layout {
    /// Builds a layout and checks that it can be: no overflow, and no byte past the end of the file.
    pub fn new(
        path: &Path,
        container: Container,
        dtype: Dtype,
        shape: Vec<usize>,
        order: Order,
        offset: u64,
        file_len: u64,
    ) -> Result<Self> {
        let bytes = byte_len(&shape, dtype.itemsize()).ok_or_else(|| Error::Format {
            path: path.to_owned(),
            offset,
            expected: "a shape whose size fits in 63 bits".into(),
            found: format!("{} of {dtype}", shape_text(&shape)),
            hint: Words::NONE,
        })?;
        let end = offset.checked_add(bytes).filter(|&e| i64::try_from(e).is_ok());
        if end.is_none_or(|end| end > file_len) {
            return Err(Error::Format {
                path: path.to_owned(),
                offset,
                expected: format!("{bytes} bytes for {} of {dtype}", shape_text(&shape)),
                found: format!("{} bytes (the file has {file_len})", file_len.saturating_sub(offset)),
                hint: match container {
                    Container::Npy { .. } => {
                        "the file is shorter than its header says: an interrupted copy or download?".into()
                    }
                    Container::Raw => SHAPE.sizes(["-1", "…"]) + " takes as many rows as the file has",
                },
            });
        }
        Ok(Self { container, dtype, shape, order, offset })
    }

    /// How many bytes the elements take. Cannot overflow: `new` checked it.
    pub fn nbytes(&self) -> u64 {
        byte_len(&self.shape, self.dtype.itemsize()).unwrap_or(u64::MAX)
    }
}

/// The bytes of an array of this shape, or `None` where that does not fit in 63 bits.
///
/// A zero anywhere makes an array empty, but the other sizes must not overflow by themselves: NumPy
/// multiplies the non-zero ones too, and so do we wherever strides are computed.
pub fn byte_len(shape: &[usize], itemsize: usize) -> Option<u64> {
    let mut nonzero = u64::try_from(itemsize).ok()?;
    for &n in shape.iter().filter(|&&n| n != 0) {
        nonzero = nonzero.checked_mul(u64::try_from(n).ok()?)?;
    }
    i64::try_from(nonzero).ok()?;
    Some(if shape.contains(&0) { 0 } else { nonzero })
}

/// A shape as Python writes it: `(3, 4)`, `(3,)`, `()`.
pub fn shape_text(shape: &[usize]) -> String {
    match shape {
        [one] => format!("({one},)"),
        _ => format!("({})", shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}
