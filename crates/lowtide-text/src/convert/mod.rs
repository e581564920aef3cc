//! Files into other files that say the same: arrays by [`lowtide::convert`], token files by their documents.
//!
//! | step | module | in → out |
//! |---|---|---|
//! | what is done to documents | `marks` | how input and output tell them apart → where marks go; pure |
//! | documents of a stream | `stream` | chunks of tokens → documents in shards |
//! | a folder | `folder` | files and a manifest → a folder that appears whole or not at all |

mod folder;
mod marks;
mod stream;
mod tokens;

pub use tokens::Made;

use crate::far;
use crate::says::FORMAT;
use lowtide::convert::{Conversion, Converted};
use lowtide::door::{LOSSY, Words};
use lowtide::format::{Dialect, Dtype, Order};
use lowtide::store::is_url;
use lowtide::write::{Existing, Far};
use lowtide::{Budget, CacheWish, Error, Interrupt, Options, Result};
use std::path::{Path, PathBuf};

/// What is known of the input: `np.memmap`'s words, for files without a header, and what token files are.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The element type.
    pub dtype: Option<Dtype>,
    /// The shape.
    pub shape: Option<Vec<i64>>,
    /// The byte where elements begin.
    pub offset: Option<u64>,
    /// The order of the elements.
    pub order: Option<Order>,
    /// What token files are written in.
    pub format: Option<Dialect>,
}

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// What is known of the input.
    pub input: Input,
    /// How an array is to be; of token files, the type, what may be lost, and what exists.
    pub array: Conversion,
    /// Which token files to make; `None` for an array.
    pub format: Option<Dialect>,
    /// The token between documents, in input and output.
    pub end_of_text: Option<u64>,
    /// A shard ends with the document that reaches this; `None` is one file, or what the format can hold.
    pub shard_tokens: Option<u64>,
    /// What happens to the page cache of what is read and written.
    pub cache: CacheWish,
    /// How much memory.
    pub budget: Option<Budget>,
    /// How object stores are reached, and where token files are made that go there.
    pub far: Far,
}

/// What became of the input.
#[derive(Clone, Debug)]
pub enum Output {
    /// An array.
    Array(Converted),
    /// Token files.
    Tokens(Box<Made>),
}

/// What a message about the input calls the settings of `lowtide.open`: here those without `in_` are the output's.
pub const OF_THE_INPUT: [(&str, &str); 5] = [
    ("dtype", "in_dtype"),
    ("shape", "in_shape"),
    ("offset", "in_offset"),
    ("order", "in_order"),
    ("format", "in_format"),
];

/// Converts files, and says what they have become: token files where [`Wish::format`] says which, else an array.
/// `progress` is told how many of how many bytes are written.
///
/// # Errors
/// [`Error::Format`] and [`Error::Argument`] where something would be lost; [`Error::Io`] as the system has it; whatever
/// opening the input says. In every case the output is what it was.
pub fn convert(
    inputs: &[PathBuf],
    output: &Path,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Output> {
    if let Some(format) = wish.format {
        let made = if is_url(output) {
            tokens_far(inputs, output, format, wish, progress, interrupt)?
        } else {
            tokens::convert(inputs, output, format, wish, progress, interrupt)?
        };
        return Ok(Output::Tokens(Box::new(made)));
    }
    if wish.input.format.is_some() || wish.end_of_text.is_some() || wish.shard_tokens.is_some() {
        return Err(Error::argument(
            Words::from("token files are meant, and no ") + FORMAT + " says which to make",
            Words::from("such as ") + FORMAT.is("llmc"),
        ));
    }
    let array = open(inputs, wish).map_err(|error| error.renamed(&OF_THE_INPUT))?;
    let storage = wish.far.storage.clone();
    let conversion = Conversion { cache: wish.cache, storage, ..wish.array.clone() };
    conversion.run(&array, output, progress, interrupt).map(Output::Array)
}

/// Token files in a folder of an object store: made here, and sent when they are whole.
fn tokens_far(
    inputs: &[PathBuf],
    output: &Path,
    format: Dialect,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Made> {
    let folder = far::Folder::begin(&wish.far, output, wish.budget.clone())?;
    let existing = wish.array.existing;
    folder.may_write(existing)?;
    // What an earlier call has left here is made again.
    let array = Conversion { existing: Existing::Replace, ..wish.array.clone() };
    let here = folder.files().join("tokens");
    let wish = Wish { array, ..wish.clone() };
    let made = tokens::convert(inputs, &here, format, &wish, progress, interrupt)?;
    folder.send_from(&here, existing, progress, interrupt)?;
    folder.remove()?;
    Ok(Made { folder: output.to_owned(), ..made })
}

fn open(inputs: &[PathBuf], wish: &Wish) -> Result<lowtide::Array, Error> {
    let mut options = Options::new().cache(wish.cache).storage(wish.far.storage.clone());
    let Input { dtype, shape, offset, order, .. } = &wish.input;
    if let Some(dtype) = dtype {
        options = options.dtype(*dtype);
    }
    if let Some(shape) = shape {
        options = options.shape(shape)?;
    }
    if let Some(offset) = offset {
        options = options.offset(*offset);
    }
    if let Some(order) = order {
        options = options.order(*order);
    }
    if let Some(budget) = &wish.budget {
        options = options.budget(budget.clone());
    }
    options.open_all(inputs)
}

/// That something would be lost, and how to say that it may be.
fn refused(what: Words, hint: Words) -> Error {
    Error::argument(what, hint + LOSSY.on() + " converts all the same")
}
