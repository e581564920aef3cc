//! `lowtide.shuffle`: files whose rows are those of others in shuffled order.

use crate::argument::{self, Flag, Name, Word};
use crate::array::Array;
use crate::budget;
use crate::dtype;
use crate::error::{raise, unlocked};
use crate::number::{Number, optional};
use crate::progress::{self, Facts, Told};
use crate::storage;
use lowtide::store::{Storage, is_url};
use lowtide::write::Existing;
use lowtide::{
    CacheWish, Error, Interrupt, Options, ShuffleFiles, Shuffled, SortStep, Sorting, TokenOptions,
};
use lowtide_text::ShuffleDocuments;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::path::PathBuf;
use std::time::Instant;

/// Writes the rows of a file in shuffled order into another, inside a fixed amount of memory.
///
/// The result is what `lowtide.open(path).shuffled(n, seed=seed)` gives, bit for bit. Data is read twice and
/// written twice; three times where the budget is small for it, which the logger `lowtide` is told before.
/// Until the new file is whole, a folder beside it holds what was done; killed at any moment, the same call
/// goes on with it, and the result is the same. It appears whole or not at all.
///
/// Args:
///     inputs: A path as for `lowtide.open`; or a list of them, all with the same rows, which are shuffled
///         alike.
///     output: The file to write: `.npy` by its name, else rows and nothing before them. For a list, a folder
///         for files of the same names. An address such as `s3://bucket/rows.npy`: the file is made in
///         `work`, sent when it is whole, and taken away there.
///     seed: Which order, as for `shuffled`.
///     epoch: Which epoch of it.
///     dtype: The type of an element, for files without a header.
///     shape: Their shape; one size may be -1.
///     offset: The byte where their elements begin.
///     budget: How much memory is used at most: a size like "64MiB", or a number of bytes. The default is the
///         smaller of 256 MiB and a quarter of the room.
///     overwrite: Replaces files that are there already, once the new ones are whole.
///     progress: A function that is called with a dict now and then: `step` ("runs" or "rows"; of three
///         passes the second is "merging"), `written` and `total` in bytes, what was written `before`, and
///         how many `passes` there are; `step` is "sending" while files go to an object store. By default a
///         line on the terminal; False for silence.
///     storage_options: How object stores are reached, those of the inputs and of the output, as for
///         `lowtide.open`.
///     work: A folder of this machine for files that go to an object store: twice the data. The system's for
///         temporary files, if not given. What was done stays there, should the call be killed.
///
/// Returns:
///     A dict: the new `files`, their `rows`, the `bytes` of all rows, how many `passes` wrote them, and how
///     many bytes of all passes were `written_before`, by an earlier call.
///
/// Raises:
///     FileExistsError: The output is there already.
///     OSError: The disk has no room for twice the data, or a file cannot be read or written.
///     ValueError: The inputs have different lengths.
///     MemoryError: A row is too large for the budget.
///
/// Examples:
///     >>> made = lowtide.shuffle("labels.npy", "shuffled.npy", seed=1)
///     >>> made["rows"]
///     1000
///     >>> first = next(lowtide.open("labels.npy").shuffled(1000, seed=1))
///     >>> bool((lowtide.open("shuffled.npy")[...] == first).all())
///     True
#[pyfunction]
#[pyo3(
    signature = (inputs, output, *, seed=Number::Fits(0), epoch=Number::Fits(0), dtype=None, shape=None, offset=None, budget=None, overwrite=Flag::OFF, progress=None, storage_options=None, work=None),
    text_signature = "(inputs, output, *, seed=0, epoch=0, dtype=None, shape=None, offset=None, budget=None, overwrite=False, progress=None, storage_options=None, work=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn shuffle<'py>(
    py: Python<'py>,
    inputs: &Bound<'py, PyAny>,
    output: &Bound<'py, PyAny>,
    seed: Number,
    epoch: Number,
    dtype: Option<&Bound<'py, PyAny>>,
    shape: Option<&Bound<'py, PyAny>>,
    offset: Option<Number>,
    budget: Option<&Bound<'py, PyAny>>,
    overwrite: Flag,
    progress: Option<&Bound<'py, PyAny>>,
    storage_options: Option<&Bound<'py, PyAny>>,
    work: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let far = storage::far(storage_options, work)?;
    let storage = far.storage.clone();
    let overwrite = overwrite.parse("overwrite")?;
    let asked = Asked { inputs, output, seed, epoch, dtype, shape, offset, budget, overwrite, storage };
    let shuffle = asked.files(py)?;
    if let Some(words) = lowtide_cli::shuffle::small_budget(&shuffle, "budget=") {
        progress::warn(py, &[words]);
    }
    let to_store = shuffle.outputs.first().is_some_and(|output| is_url(output));
    let made = told(py, progress, |tell, stop| {
        if to_store { shuffle.run_far(&far, tell, stop) } else { shuffle.run(tell, stop) }
    })?;
    summary(py, made)
}

/// What was made, for whoever asked.
pub fn summary(py: Python<'_>, made: Shuffled) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("files", made.files.into_iter().map(Name).collect::<Vec<_>>())?;
    dict.set_item("rows", made.rows)?;
    dict.set_item("bytes", made.bytes)?;
    dict.set_item("passes", made.passes)?;
    dict.set_item("written_before", made.before)?;
    Ok(dict)
}

/// The arguments of `shuffle`, as they were given.
pub struct Asked<'a, 'py> {
    pub inputs: &'a Bound<'py, PyAny>,
    pub output: &'a Bound<'py, PyAny>,
    pub seed: Number,
    pub epoch: Number,
    pub dtype: Option<&'a Bound<'py, PyAny>>,
    pub shape: Option<&'a Bound<'py, PyAny>>,
    pub offset: Option<Number>,
    pub budget: Option<&'a Bound<'py, PyAny>>,
    pub overwrite: bool,
    pub storage: Storage,
}

impl Asked<'_, '_> {
    /// What is to be shuffled, opened.
    pub fn files(self, py: Python<'_>) -> PyResult<ShuffleFiles> {
        let Self { inputs, output, seed, epoch, dtype, shape, offset, budget, overwrite, storage } = self;
        let budget = match budget::argument(budget)? {
            Some(budget) => budget,
            None => lowtide::Budget::default_for(lowtide::meter::room().bytes),
        };
        let mut options = Options::new().cache(CacheWish::Drop).budget(budget).storage(storage);
        if let Some(given) = dtype {
            options = options.dtype(dtype::from_python(given, "dtype")?);
        }
        if let Some(given) = shape {
            options = options.shape(&argument::shape(given, "shape")?).map_err(raise)?;
        }
        if let Some(offset) = offset {
            options = options.offset(offset.named(py, "offset", 0)?);
        }
        let (inputs, outputs) = names(inputs, argument::path(output, "output")?)?;
        let open = || inputs.iter().map(|path| options.clone().open(path)).collect();
        Ok(ShuffleFiles {
            arrays: storage::opened(py.detach(open))?,
            outputs,
            seed: seed.named(py, "seed", 0)?,
            epoch: epoch.named(py, "epoch", 0)?,
            existing: if overwrite { Existing::Replace } else { Existing::Refuse },
        })
    }
}

/// Writes the documents of token files in shuffled order into others, inside a fixed amount of memory.
///
/// Documents stay whole. Their order is that of rows in a shuffled pass: the document at position k is the
/// one whose number `shuffled(seed=seed)` over as many rows has there. The format stays the same, and so does
/// the type of a token. Killed at any moment, the same call goes on, and the result is the same.
///
/// Args:
///     inputs: As for `lowtide.tokens`: a file, a folder, a glob, a prefix, or a list of them: one stream.
///     output: A folder for the new files; it is made, if need be. An address such as `s3://bucket/shuffled/`:
///         files are made in `work`, and sent when all of them are whole.
///     seed: Which order, as for `shuffled`.
///     epoch: Which epoch of it.
///     split: Which split of a folder that `lowtide.prepare` has made; `train` if not given.
///     dtype: The type of a token, for files that do not say it.
///     format: The dialect of the files, instead of what they look like.
///     end_of_text: The token between documents, for files without an index of them; 50256 is GPT-2's.
///         Documents that have none, as the last of a file may, get one: else they would run into the next.
///     budget: How much memory is used at most: a size like "64MiB", or a number of bytes. The default is the
///         smaller of 256 MiB and a quarter of the room.
///     progress: A function that is called with a dict now and then: `step` ("runs" or "rows"), `written` and
///         `total` in bytes, what was written `before`, and how many `passes` there are. By default a line on
///         the terminal; False for silence.
///     storage_options: How object stores are reached, those of the inputs and of the output, as for
///         `lowtide.open`.
///     work: A folder of this machine for files that go to an object store, as for `lowtide.shuffle`.
///
/// Returns:
///     A dict: the new `files`, their `documents` and `tokens`, how many `end_of_text_added`, the `bytes` of
///     all tokens that were read, and how many were `written_before`.
///
/// Raises:
///     ValueError: Nothing says where documents end, or the folder holds something else.
///     OSError: The disk has no room for twice the data, or a file cannot be read or written.
///     MemoryError: The budget is too small.
///
/// Examples:
///     >>> made = lowtide.shuffle_documents("train.bin", "shuffled", seed=1, end_of_text=50256)
///     >>> made["documents"] == lowtide.tokens("train.bin", end_of_text=50256).documents
///     True
#[pyfunction]
#[pyo3(
    signature = (inputs, output, *, seed=Number::Fits(0), epoch=Number::Fits(0), split=None, dtype=None, format=None, end_of_text=None, budget=None, progress=None, storage_options=None, work=None),
    text_signature = "(inputs, output, *, seed=0, epoch=0, split=None, dtype=None, format=None, end_of_text=None, budget=None, progress=None, storage_options=None, work=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn shuffle_documents<'py>(
    py: Python<'py>,
    inputs: &Bound<'py, PyAny>,
    output: &Bound<'py, PyAny>,
    seed: Number,
    epoch: Number,
    split: Option<Word>,
    dtype: Option<&Bound<'py, PyAny>>,
    format: Option<Word>,
    end_of_text: Option<Number>,
    budget: Option<&Bound<'py, PyAny>>,
    progress: Option<&Bound<'py, PyAny>>,
    storage_options: Option<&Bound<'py, PyAny>>,
    work: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let far = storage::far(storage_options, work)?;
    let budget = match budget::argument(budget)? {
        Some(budget) => budget.limit(),
        None => lowtide::Budget::default_for(lowtide::meter::room().bytes).limit(),
    };
    let mut options = TokenOptions::new().storage(far.storage.clone());
    if let Some(given) = dtype {
        options = options.dtype(dtype::from_python(given, "dtype")?);
    }
    if let Some(word) = format {
        options = options.dialect(word.parse("format")?);
    }
    if let Some(token) = optional(py, end_of_text, "end_of_text", 0)? {
        options = options.end_of_text(token);
    }
    if let Some(name) = split {
        options = options.split(name.text("split")?);
    }
    let names = argument::paths(inputs, "tokens")?;
    let (seed, epoch) = (seed.named(py, "seed", 0)?, epoch.named(py, "epoch", 0)?);
    let shuffle = ShuffleDocuments { names, options, seed, epoch, budget };
    let output = argument::path(output, "output")?;
    let made = told(py, progress, |tell, stop| {
        if is_url(&output) {
            shuffle.run_far(&output, &far, tell, stop)
        } else {
            shuffle.run(&output, tell, stop)
        }
    })?;
    let splits = &made.manifest.splits;
    let files: Vec<Name> = splits
        .iter()
        .flat_map(|split| split.shards.iter().map(|shard| Name(output.join(&shard.file.file))))
        .collect();
    let dict = PyDict::new(py);
    dict.set_item("files", files)?;
    dict.set_item("documents", splits.iter().map(|split| split.documents).sum::<u64>())?;
    dict.set_item("tokens", splits.iter().map(|split| split.tokens).sum::<u64>())?;
    dict.set_item("end_of_text_added", made.marked)?;
    dict.set_item("bytes", made.bytes)?;
    dict.set_item("written_before", made.before)?;
    Ok(dict)
}

/// Runs `work`, which tells `progress` how far it is; what that raises ends the work.
fn told<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&mut dyn FnMut(Sorting), Interrupt<'_>) -> lowtide::Result<T> + Send,
) -> PyResult<T> {
    let (told, began) = (Told::new(py, progress, "shuffling")?, Instant::now());
    let answer = unlocked(py, |interrupt| {
        let stop = || if told.has_raised() { Err(Error::Interrupted) } else { interrupt() };
        let mut tell = |at: Sorting| told.tell(&lowtide_cli::shuffle::words(&at, began.elapsed()), &at);
        work(&mut tell, &stop)
    });
    told.end(py).map_or(answer, Err)
}

/// What is read, and what is written.
fn names(inputs: &Bound<'_, PyAny>, output: PathBuf) -> PyResult<(Vec<PathBuf>, Vec<PathBuf>)> {
    if inputs.cast::<Array>().is_ok() {
        return Err(PyTypeError::new_err("shuffle takes paths\nhint: the array's own is array.path"));
    }
    if !inputs.is_instance_of::<PyList>() && !inputs.is_instance_of::<PyTuple>() {
        return Ok((vec![argument::path(inputs, "inputs")?], vec![output]));
    }
    let inputs = argument::paths(inputs, "arrays")?;
    let name = |path: &PathBuf| {
        let nothing = || PyValueError::new_err(format!("{} has no name", path.display()));
        path.file_name().map(|name| output.join(name)).ok_or_else(nothing)
    };
    let outputs = inputs.iter().map(name).collect::<PyResult<Vec<_>>>()?;
    if is_url(&output) {
        return Ok((inputs, outputs));
    }
    std::fs::create_dir_all(&output).map_err(|error| raise(Error::io(&output, "make the folder", error)))?;
    Ok((inputs, outputs))
}

impl Facts for Sorting {
    fn fill(&self, facts: &Bound<'_, PyDict>) -> PyResult<()> {
        let step = match self.step {
            SortStep::Runs => "runs",
            SortStep::Merging => "merging",
            SortStep::Rows => "rows",
            SortStep::Sending => "sending",
        };
        facts.set_item("step", step)?;
        facts.set_item("written", self.written)?;
        facts.set_item("total", self.total)?;
        facts.set_item("before", self.before)?;
        facts.set_item("passes", self.passes)
    }
}
