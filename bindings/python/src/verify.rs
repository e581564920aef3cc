//! `lowtide.verify`: whether files are what they say.

use crate::argument::{self, Word};
use crate::error::unlocked;
use crate::number::{Number, optional};
use crate::{budget, dtype, storage};
use lowtide_text::verify as text;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Mutex;

/// Checks files: a folder that `lowtide.prepare` has made against its manifest, byte by byte.
///
/// Sizes, checksums, and that every id is in the vocabulary; nothing is changed. Token files without a
/// manifest are checked against their headers and indexes, arrays against their headers, and every byte is
/// read: at the speed of the disk, inside the budget.
///
/// Args:
///     paths: A prepared folder, a token file, an array, or a list of them.
///     vocab: How many ids the tokenizer has: a token that is none is found. A prepared folder knows.
///     dtype: The type of tokens, or of an array without a header.
///     shape: The shape of an array without a header; one size may be -1.
///     format: What token files are written in, instead of what they look like: see `lowtide.tokens`.
///     budget: How much memory to use.
///     progress: A function of bytes done and bytes in all, called now and then; what it raises ends it.
///     storage_options: How object stores are reached, as for `lowtide.open`.
///
/// Returns:
///     A `lowtide.Verified`: look at `ok` and `findings`.
///
/// Raises:
///     FileNotFoundError: There is no such file or folder.
///     ValueError: A manifest or a header is damaged, a file is neither tokens nor an array, or there is
///         none.
///
/// Examples:
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> lowtide.verify("data")
///     <lowtide.Verified ok files=1 bytes=100>
///     >>> lowtide.verify("data").findings
///     []
///     >>> bool(lowtide.verify("rows.npy"))
///     True
#[pyfunction]
#[pyo3(signature = (paths, *, vocab=None, dtype=None, shape=None, format=None, budget=None, progress=None, storage_options=None))]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn verify(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    vocab: Option<Number>,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    format: Option<Word>,
    budget: Option<&Bound<'_, PyAny>>,
    progress: Option<&Bound<'_, PyAny>>,
    storage_options: Option<&Bound<'_, PyAny>>,
) -> PyResult<Verified> {
    let paths = argument::paths(paths, "files")?;
    if paths.is_empty() {
        let what =
            "no files are named\nhint: name a prepared folder, a token file, an array, or a list of them";
        return Err(PyValueError::new_err(what)); // nothing is not well
    }
    if let Some(given) = progress
        && !given.is_callable()
    {
        return Err(PyTypeError::new_err(format!(
            "progress={} cannot be called\nhint: a function of two numbers, bytes done and bytes in all",
            given.repr()?
        )));
    }
    let wish = text::Wish {
        vocabulary: optional(py, vocab, "vocab", 1)?,
        dtype: dtype.map(|given| dtype::from_python(given, "dtype")).transpose()?,
        dialect: format.map(|word| word.parse("format")).transpose()?,
        shape: shape.map(|given| argument::shape(given, "shape")).transpose()?,
        budget: budget::argument(budget)?,
        storage: storage::argument(storage_options)?,
    };
    let (told, raised) = (progress.map(|told| told.clone().unbind()), Mutex::new(None));
    let mut tell = |done: u64, total: u64| {
        let Some(told) = &told else { return };
        if let Err(error) = Python::attach(|py| told.call1(py, (done, total))) {
            raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
        }
    };
    let stop = || raised.lock().is_ok_and(|raised| raised.is_some());
    let found = unlocked(py, |interrupt| {
        let mut all = Verified { files: 0, bytes: 0, findings: Vec::new() };
        for path in &paths {
            let interrupt = || if stop() { Err(lowtide::Error::Interrupted) } else { interrupt() };
            let found = text::verify(path, &wish, &mut tell, &interrupt)?;
            all.files += found.files;
            all.bytes += found.bytes;
            all.findings.extend(found.findings.into_iter().map(|one| (one.file, one.what.to_string())));
        }
        Ok(all)
    });
    match raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => found,
    }
}

/// What `lowtide.verify` has looked at, and what it found wrong. It is true if nothing is.
///
/// Examples:
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> checked = lowtide.verify("data")
///     >>> checked.ok, checked.files, checked.bytes
///     (True, 1, 100)
#[pyclass(frozen, module = "lowtide")]
pub struct Verified {
    files: u64,
    bytes: u64,
    findings: Vec<(PathBuf, String)>,
}

#[pymethods]
impl Verified {
    /// Whether nothing is wrong.
    #[getter]
    fn ok(&self) -> bool {
        self.findings.is_empty()
    }

    /// How many files were looked at.
    #[getter]
    fn files(&self) -> u64 {
        self.files
    }

    /// How many bytes they have.
    #[getter]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is wrong: a list of pairs, the path of a file and a sentence.
    #[getter]
    fn findings(&self) -> Vec<(PathBuf, String)> {
        self.findings.clone()
    }

    /// As `ok`: who writes `assert lowtide.verify(path)` means that.
    fn __bool__(&self) -> bool {
        self.ok()
    }

    #[allow(clippy::type_complexity)] // what pickle wants: a function and its arguments
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (u64, u64, Vec<(PathBuf, String)>))> {
        let again = py.import("lowtide._lowtide")?.getattr("_verified")?;
        Ok((again, (self.files, self.bytes, self.findings.clone())))
    }

    fn __repr__(&self) -> String {
        let how = match self.findings.len() {
            0 => "ok".to_owned(),
            n => format!("findings={n}"),
        };
        format!("<lowtide.Verified {how} files={} bytes={}>", self.files, self.bytes)
    }
}

/// What was found before: what a pickle is.
#[pyfunction]
#[pyo3(name = "_verified")]
pub fn again(files: u64, bytes: u64, findings: Vec<(PathBuf, String)>) -> Verified {
    Verified { files, bytes, findings }
}
