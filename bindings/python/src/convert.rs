//! `lowtide.convert`: files into other files that say the same.

use crate::argument::{self, Flag, Name, Word};
use crate::error::unlocked;
use crate::number::{Number, optional};
use crate::progress::{Facts, Told};
use crate::{budget, dtype, prepare, storage};
use lowtide::convert::{Conversion, Loss};
use lowtide::format::Order;
use lowtide::write::Existing;
use lowtide::{CacheWish, Error};
use lowtide_cli::convert::TokenFacts;
use lowtide_text::convert::{Input, OF_THE_INPUT, Output, Wish};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::time::Instant;

/// Writes an array, or tokens, into other files that say the same, inside a fixed amount of memory.
///
/// Arrays go between `.npy` and raw files, byte orders, element types, C and Fortran order; with `format=`,
/// token files become those of another format. The output appears whole or not at all; killed at any moment,
/// it leaves nothing that the next call does not take away. What would be lost is an error that names it.
///
/// Args:
///     inputs: A path as for `lowtide.open`, or for `lowtide.tokens` with `format=`: a file, a folder, a
///         glob, or a list of files whose rows or tokens follow each other.
///     output: The file to write: a `.npy` file if it is called so, else one without a header. With `format=`
///         a folder, with a manifest, as `lowtide.prepare` makes it. An address such as `s3://bucket/rows.npy`
///         is written to in parts that are put together at the end; the order of the axes stays then.
///     dtype: Its element type; the input's if not given. Every value has to survive: 3.0 becomes the int8 3,
///         3.5 and 300.0 are errors.
///     byte_order: "little", "big" or "native"; that of the dtype if not given.
///     order: "C", or "F" for Fortran order; the input's if not given, and "C" for files without a header.
///     format: Makes token files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
///         Documents are kept; where the new format has no index of them, `end_of_text` stands between them.
///     end_of_text: The token between documents, for files without an index of them. A prepared folder knows.
///     shard_tokens: A file of tokens ends with the document that reaches this: a number, or "100M".
///     lossy: Lets be lost what the output cannot hold: values become what `astype` makes of them.
///     overwrite: Replaces an output of that name, once the new one is whole.
///     in_dtype: The element type of an input without a header.
///     in_shape: Its shape; one size may be -1.
///     in_offset: The byte where its elements begin.
///     in_order: The order of its elements: "C" if not given, or "F".
///     in_format: What input tokens are written in, instead of what they look like: see `lowtide.tokens`.
///     budget: How much memory is used, dirty pages included: a size like "64MiB" or a `lowtide.Budget`. The
///         default is the smaller of 256 MiB and a quarter of the room.
///     cache: What the page cache keeps of both files: "keep", "drop", or "auto", which keeps what fits in
///         half the room.
///     progress: A function that is called with a dict now and then: `written` and `total`, in bytes. What it
///         raises ends the work. By default a line on the terminal; False for silence.
///     storage_options: How object stores are reached, as for `lowtide.open`: those of inputs and output.
///     work: A folder of this machine in which token files are made that go to an object store; the system's
///         for temporary files, if not given.
///
/// Returns:
///     A dict: `path`, `shape`, `dtype`, `order` and `bytes` of the new file; of tokens `path`, `format`,
///     `dtype`, `tokens`, `documents` and `files`.
///
/// Raises:
///     ValueError: Something would be lost; or a header is damaged.
///     FileExistsError: There is a file of that name, and `overwrite` is not set.
///     OSError: The disk has no room for the new file, which is said before anything is written.
///     MemoryError: The budget is too small.
///
/// Examples:
///     >>> made = lowtide.convert("rows.npy", "columns.npy", order="F")
///     >>> made["shape"], made["dtype"], made["order"]
///     ((1000, 128), '<f4', 'F')
///     >>> raw = {"in_dtype": "float32", "in_shape": (-1, 128)}
///     >>> made = lowtide.convert("rows.bin", "wide.npy", dtype=">f8", **raw)
///     >>> lowtide.convert("rows.npy", "small.npy", dtype="float16")
///     Traceback (most recent call last):
///         ...
///     ValueError: ...rows.npy: at byte 8324: expected a value that float16 can hold, found 2049.0 at [16, 1]
///     hint: lossy=True converts it all the same, as astype does
///     >>> made = lowtide.convert("train.bin", "shards", format="llmc", shard_tokens=100_000)
///     >>> made["tokens"], [file.name for file in made["files"]]
///     (200000, ['train-00000.bin', 'train-00001.bin'])
///     >>> bool(lowtide.verify("shards"))
///     True
#[pyfunction]
#[pyo3(
    signature = (inputs, output, *, dtype=None, byte_order=None, order=None, format=None, end_of_text=None, shard_tokens=None, lossy=Flag::OFF, overwrite=Flag::OFF, in_dtype=None, in_shape=None, in_offset=None, in_order=None, in_format=None, budget=None, cache=Word::auto(), progress=None, storage_options=None, work=None),
    text_signature = "(inputs, output, *, dtype=None, byte_order=None, order=None, format=None, end_of_text=None, shard_tokens=None, lossy=False, overwrite=False, in_dtype=None, in_shape=None, in_offset=None, in_order=None, in_format=None, budget=None, cache='auto', progress=None, storage_options=None, work=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn convert<'py>(
    py: Python<'py>,
    inputs: &Bound<'py, PyAny>,
    output: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    byte_order: Option<Word>,
    order: Option<Word>,
    format: Option<Word>,
    end_of_text: Option<Number>,
    shard_tokens: Option<&Bound<'py, PyAny>>,
    lossy: Flag,
    overwrite: Flag,
    in_dtype: Option<&Bound<'py, PyAny>>,
    in_shape: Option<&Bound<'py, PyAny>>,
    in_offset: Option<Number>,
    in_order: Option<Word>,
    in_format: Option<Word>,
    budget: Option<&Bound<'py, PyAny>>,
    cache: Word,
    progress: Option<&Bound<'py, PyAny>>,
    storage_options: Option<&Bound<'py, PyAny>>,
    work: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let far = storage::far(storage_options, work)?;
    let wish = Wish {
        input: Input {
            dtype: in_dtype.map(|given| dtype::from_python(given, "in_dtype")).transpose()?,
            shape: in_shape.map(|given| argument::shape(given, "in_shape")).transpose()?,
            offset: optional(py, in_offset, "in_offset", 0)?,
            order: in_order.map(|word| word.parse_renamed("in_order", &OF_THE_INPUT)).transpose()?,
            format: in_format.map(|word| word.parse_renamed("in_format", &OF_THE_INPUT)).transpose()?,
        },
        array: Conversion {
            dtype: dtype.map(|given| dtype::from_python(given, "dtype")).transpose()?,
            byte_order: byte_order.map(|word| word.parse("byte_order")).transpose()?,
            order: order.map(|word| word.parse("order")).transpose()?,
            loss: if lossy.parse("lossy")? { Loss::Allowed } else { Loss::Refused },
            existing: if overwrite.parse("overwrite")? { Existing::Replace } else { Existing::Refuse },
            ..Conversion::default()
        },
        format: format.map(|word| word.parse("format")).transpose()?,
        end_of_text: optional(py, end_of_text, "end_of_text", 0)?,
        shard_tokens: shard_tokens.map(prepare::tokens).transpose()?,
        cache: cache.parse::<CacheWish>("cache")?,
        budget: budget::argument(budget)?,
        far,
    };
    let inputs = argument::paths(inputs, "files")?;
    let output = argument::path(output, "output")?;
    let (told, began) = (Told::new(py, progress, "converting")?, Instant::now());
    let made = unlocked(py, |interrupt| {
        let mut tell = |written: u64, total: u64| {
            told.tell(
                &lowtide_cli::convert::words(written, total, began.elapsed()),
                &Written { written, total },
            );
        };
        lowtide_text::convert::convert(&inputs, &output, &wish, &mut tell, &|| {
            if told.has_raised() { Err(Error::Interrupted) } else { interrupt() }
        })
    });
    let raised = told.end(py);
    let made = made.map_err(|error| raised.unwrap_or(error))?;
    let facts = PyDict::new(py);
    match made {
        Output::Array(made) => {
            facts.set_item("path", Name(made.path))?;
            facts.set_item("shape", PyTuple::new(py, made.shape)?)?;
            facts.set_item("dtype", made.dtype.numpy_str())?;
            facts.set_item("order", if made.order == Order::C { "C" } else { "F" })?;
            facts.set_item("bytes", made.bytes)?;
        }
        Output::Tokens(made) => {
            let TokenFacts { tokens, documents, files } = TokenFacts::of(&made);
            facts.set_item("path", Name(made.folder.clone()))?;
            facts.set_item("format", made.manifest.format)?;
            facts.set_item("dtype", made.manifest.dtype)?;
            facts.set_item("tokens", tokens)?;
            facts.set_item("documents", documents)?;
            facts.set_item("files", files.into_iter().map(Name).collect::<Vec<_>>())?;
        }
    }
    Ok(facts)
}

/// How far it is.
struct Written {
    written: u64,
    total: u64,
}

impl Facts for Written {
    fn fill(&self, facts: &Bound<'_, PyDict>) -> PyResult<()> {
        facts.set_item("written", self.written)?;
        facts.set_item("total", self.total)
    }
}
