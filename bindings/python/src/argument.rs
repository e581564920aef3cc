//! Arguments that are words, shapes and paths: what is said of a wrong one names it and lists what is allowed.

use crate::error::raise;
use lowtide::Error;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::path::PathBuf;
use std::str::FromStr;

/// A word such as `access="auto"`, or whatever was given instead of one, as Python shows it.
#[derive(Debug)]
pub enum Word {
    Said(String),
    Other(String),
}

impl Word {
    /// The default of the arguments that have one.
    pub fn auto() -> Self {
        Self::Said("auto".into())
    }

    /// What it means as the argument `name`.
    pub fn parse<T: FromStr<Err = Error>>(&self, name: &str) -> PyResult<T> {
        match self {
            Self::Said(word) => word.parse().map_err(raise),
            Self::Other(shown) => {
                let allowed = "".parse::<T>().err().map(|error| error.hint().to_string()).unwrap_or_default();
                Err(PyTypeError::new_err(format!("{name}={shown} is not a word\nhint: {allowed}")))
            }
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Word {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(match given.cast::<PyString>() {
            Ok(word) => Self::Said(word.to_str()?.to_owned()),
            Err(_) => Self::Other(shown(&given)?),
        })
    }
}

/// The sizes of `shape=`: a number, or a sequence of them.
pub fn shape(given: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let sizes = match given.extract::<i64>() {
        Ok(size) => Ok(vec![size]),
        Err(_) => given.extract::<Vec<i64>>(),
    };
    match sizes {
        Ok(sizes) => Ok(sizes),
        Err(_) => Err(PyTypeError::new_err(format!(
            "shape={} is not a shape\nhint: a whole number or a tuple of them, such as (-1, 128)",
            shown(given)?
        ))),
    }
}

/// A path as people write it: `~` is their home. Bytes are paths too.
pub fn path(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let os = given.py().import("os")?;
    let name = os.call_method1("fsdecode", (given,))?;
    os.getattr("path")?.call_method1("expanduser", (name,))?.extract()
}

/// As Python shows it, in at most 60 characters.
fn shown(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let whole = given.repr()?.to_string();
    let mut short: String = whole.chars().take(60).collect();
    if short.len() < whole.len() {
        short.push('…');
    }
    Ok(short)
}
