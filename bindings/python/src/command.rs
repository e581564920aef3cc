//! The `lowtide` command: the module's own `main`, called by the console script.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command and returns its exit code.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<OsString>, python: Option<std::path::PathBuf>) -> i32 {
    py.detach(|| lowtide_cli::main(arguments, python))
}
