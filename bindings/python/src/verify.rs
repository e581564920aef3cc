//! `lowtide.verify`: whether token files are what they say.

use crate::argument;
use crate::error::unlocked;
use lowtide_text::verify as text;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Checks token files: a folder that `lowtide.prepare` has made against its manifest, byte by byte.
///
/// Sizes, checksums, and that every id is in the vocabulary; nothing is changed. Any other token files are
/// opened, and what their header or index does not agree with is an error; what looks odd is found.
///
/// Args:
///     paths: A prepared folder, a token file, or a list of them.
///
/// Returns:
///     A `lowtide.Verified`: look at `ok` and `findings`.
///
/// Raises:
///     FileNotFoundError: There is no such file or folder.
///     ValueError: A manifest is damaged, a file is no token file, or none is named.
///
/// Examples:
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> lowtide.verify("data")
///     <lowtide.Verified ok files=1 bytes=100>
///     >>> lowtide.verify("data").findings
///     []
#[pyfunction]
pub fn verify(py: Python<'_>, paths: &Bound<'_, PyAny>) -> PyResult<Verified> {
    let paths = argument::paths(paths, "token files")?;
    if paths.is_empty() {
        let what = "no token files are named\nhint: name a prepared folder, a token file, or a list of them";
        return Err(PyValueError::new_err(what)); // nothing is not well
    }
    unlocked(py, |interrupt| {
        let mut all = Verified { files: 0, bytes: 0, findings: Vec::new() };
        for path in &paths {
            let found = text::verify(path, &mut |_, _| {}, interrupt)?;
            all.files += found.files;
            all.bytes += found.bytes;
            let place = |file: &str| if path.is_dir() { path.join(file) } else { path.clone() };
            all.findings.extend(found.findings.iter().map(|one| (place(&one.file), one.what.to_string())));
        }
        Ok(all)
    })
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
