//! The entries of a `state_dict`, each refused under its own name.

use crate::argument::shown;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What `load_state_dict` was given, if it is a dict.
pub fn dict<'a, 'py>(state: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyDict>> {
    if let Ok(state) = state.cast() {
        return Ok(state);
    }
    Err(PyTypeError::new_err(format!("state={} must be a dict that state_dict() gave", shown(state)?)))
}

/// A state whose version we know, and whose it should be: "a loader's".
pub struct Entries<'a, 'py> {
    state: &'a Bound<'py, PyDict>,
    whose: &'static str,
}

impl<'a, 'py> Entries<'a, 'py> {
    pub fn of(state: &'a Bound<'py, PyDict>, whose: &'static str) -> PyResult<Self> {
        let entries = Self { state, whose };
        match entries.number("version")? {
            1 => Ok(entries),
            version => Err(PyValueError::new_err(format!(
                "the state has version {version}, this Lowtide knows version 1"
            ))),
        }
    }

    pub fn get(&self, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || {
            PyValueError::new_err(format!(
                "the state has no {key:?}: is it from {} state_dict()?",
                self.whose
            ))
        };
        self.state.get_item(key)?.ok_or_else(missing)
    }

    pub fn number(&self, key: &str) -> PyResult<u64> {
        self.get(key)?.extract().map_err(|_| self.wrong(key))
    }

    pub fn text(&self, key: &str) -> PyResult<String> {
        self.get(key)?.extract().map_err(|_| self.wrong(key))
    }

    /// That an entry is not what it should be.
    pub fn wrong(&self, key: &str) -> PyErr {
        let value =
            self.get(key).and_then(|value| value.repr()).map_or_else(|_| String::new(), |r| r.to_string());
        PyValueError::new_err(format!(
            "the state has {key:?}: {value}: is it from {} state_dict()?",
            self.whose
        ))
    }
}
