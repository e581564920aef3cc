//! `lowtide.shuffle`: files whose rows are those of others in shuffled order.

use crate::argument;
use crate::array::Array;
use crate::budget;
use crate::dtype;
use crate::error::{raise, unlocked};
use crate::number::Number;
use lowtide::write::Existing;
use lowtide::{CacheWish, Error, Options, ShuffleFiles, SortStep, Sorting};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Writes the rows of a file in shuffled order into another, inside a fixed amount of memory.
///
/// The result is what `lowtide.open(path).shuffled(n, seed=seed)` gives, bit for bit. Data is read twice and
/// written twice. Until the new file is whole, a folder beside it holds what was done; killed at any moment,
/// the same call goes on with it, and the result is the same. It appears whole or not at all.
///
/// Args:
///     inputs: A path as for `lowtide.open`; or a list of them, all with the same rows, which are shuffled
///         alike.
///     output: The file to write: `.npy` by its name, else rows and nothing before them. For a list, a folder
///         for files of the same names.
///     seed: Which order, as for `shuffled`.
///     epoch: Which epoch of it.
///     dtype: The type of an element, for files without a header.
///     shape: Their shape; one size may be -1.
///     offset: The byte where their elements begin.
///     budget: How much memory is used at most: a size like "64MiB", or a number of bytes. The default is the
///         smaller of 256 MiB and a quarter of the room.
///     overwrite: Replaces files that are there already, once the new ones are whole.
///     progress: A function that is called with a dict now and then: `step` ("runs" or "rows"), `written` and
///         `total` in bytes, and what was written `before`.
///
/// Returns:
///     A dict: the new `files`, their `rows`, the `bytes` of all rows, and how many were `written_before`.
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
    signature = (inputs, output, *, seed=Number::Fits(0), epoch=Number::Fits(0), dtype=None, shape=None, offset=None, budget=None, overwrite=false, progress=None),
    text_signature = "(inputs, output, *, seed=0, epoch=0, dtype=None, shape=None, offset=None, budget=None, overwrite=False, progress=None)"
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
    overwrite: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    if let Some(progress) = &progress
        && !progress.bind(py).is_callable()
    {
        return Err(PyTypeError::new_err("progress= cannot be called\nhint: a function of a dict, or None"));
    }
    let budget = match budget::argument(budget)? {
        Some(budget) => budget,
        None => lowtide::Budget::default_for(lowtide::meter::room().bytes),
    };
    let mut options = Options::new().cache(CacheWish::Drop).budget(budget);
    if let Some(given) = dtype {
        options = options.dtype(dtype::from_python(given)?);
    }
    if let Some(given) = shape {
        options = options.shape(&argument::shape(given)?).map_err(raise)?;
    }
    if let Some(offset) = offset {
        options = options.offset(offset.named(py, "offset", 0)?);
    }
    let (inputs, outputs) = names(inputs, argument::path(output)?)?;
    let arrays = inputs.iter().map(|path| options.clone().open(path)).collect::<lowtide::Result<_>>();
    let shuffle = ShuffleFiles {
        arrays: arrays.map_err(raise)?,
        outputs,
        seed: seed.named(py, "seed", 0)?,
        epoch: epoch.named(py, "epoch", 0)?,
        existing: if overwrite { Existing::Replace } else { Existing::Refuse },
    };
    let raised = Mutex::new(None);
    let answer = unlocked(py, |interrupt| {
        let stop = || match *raised.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(_) => Err(Error::Interrupted),
            None => interrupt(),
        };
        let mut tell = |at: Sorting| {
            let Some(progress) = &progress else { return };
            let called = Python::attach(|py| progress.call1(py, (facts(py, &at)?,)).map(|_| ()));
            if let Err(error) = called {
                *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        shuffle.run(&mut tell, &stop)
    });
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let made = answer?;
    let dict = PyDict::new(py);
    dict.set_item("files", made.files)?;
    dict.set_item("rows", made.rows)?;
    dict.set_item("bytes", made.bytes)?;
    dict.set_item("written_before", made.before)?;
    Ok(dict)
}

/// What is read, and what is written.
fn names(inputs: &Bound<'_, PyAny>, output: PathBuf) -> PyResult<(Vec<PathBuf>, Vec<PathBuf>)> {
    if inputs.cast::<Array>().is_ok() {
        return Err(PyTypeError::new_err("shuffle takes paths\nhint: the array's own is array.path"));
    }
    if !inputs.is_instance_of::<PyList>() && !inputs.is_instance_of::<PyTuple>() {
        return Ok((vec![argument::path(inputs)?], vec![output]));
    }
    let inputs = argument::paths(inputs, "arrays")?;
    let name = |path: &PathBuf| {
        let nothing = || PyValueError::new_err(format!("{} has no name", path.display()));
        path.file_name().map(|name| output.join(name)).ok_or_else(nothing)
    };
    let outputs = inputs.iter().map(name).collect::<PyResult<Vec<_>>>()?;
    std::fs::create_dir_all(&output).map_err(|error| raise(Error::io(&output, "make the folder", error)))?;
    Ok((inputs, outputs))
}

fn facts<'py>(py: Python<'py>, at: &Sorting) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("step", if at.step == SortStep::Runs { "runs" } else { "rows" })?;
    facts.set_item("written", at.written)?;
    facts.set_item("total", at.total)?;
    facts.set_item("before", at.before)?;
    Ok(facts)
}
