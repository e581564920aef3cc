//! The `lowtide` command: the module's own `main`, called by the console script.

use pyo3::prelude::*;

/// Runs the command and returns its exit code.
#[pyfunction]
pub fn main(py: Python<'_>, arguments: Vec<String>, python: Option<std::path::PathBuf>) -> i32 {
    py.detach(|| lowtide_cli::main(arguments, python))
}
