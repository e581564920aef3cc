//! Numbers that callers give: what does not fit is refused under the argument's name.
//!
//! Python's own conversion says "can't convert negative int to unsigned", and not of what. A [`Number`] takes
//! whatever was given and is judged where its name is known.

use crate::argument::shown;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A whole number as a caller gave it: an int, one of NumPy's, anything with `__index__`.
pub enum Number {
    Fits(u64),
    /// Negative, too large, or no whole number.
    Other(Py<PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(given.extract().map_or_else(|_| Self::Other(given.to_owned().unbind()), Self::Fits))
    }
}

impl Number {
    /// The number of an argument that goes from `least` on. (A 0 where `least` is 1 is let through: the core has
    /// better words for it.)
    pub fn named(self, py: Python<'_>, name: &str, least: u64) -> PyResult<u64> {
        match self {
            Self::Fits(number) => Ok(number),
            Self::Other(given) => Err(refused(given.bind(py), name, least)),
        }
    }

    /// The same for what is counted in memory.
    pub fn size(self, py: Python<'_>, name: &str) -> PyResult<usize> {
        let number = self.named(py, name, 1)?;
        usize::try_from(number).map_err(|_| PyValueError::new_err(format!("{name} is {number}: too large")))
    }
}

/// The numbers of arguments that need not be given.
pub fn optional(py: Python<'_>, given: Option<Number>, name: &str, least: u64) -> PyResult<Option<u64>> {
    given.map(|number| number.named(py, name, least)).transpose()
}

/// A number that need not be whole, or whatever was given instead, as Python shows it.
pub enum Real {
    Fits(f64),
    Other(String),
}

impl<'py> FromPyObject<'_, 'py> for Real {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        given
            .extract()
            .map_or_else(|_: PyErr| Ok(Self::Other(shown(&given)?)), |number| Ok(Self::Fits(number)))
    }
}

impl Real {
    /// The number of an argument.
    pub fn named(self, name: &str) -> PyResult<f64> {
        match self {
            Self::Fits(number) => Ok(number),
            Self::Other(shown) => Err(PyTypeError::new_err(format!("{name}={shown} must be a number"))),
        }
    }
}

/// What is wrong with a number.
fn refused(given: &Bound<'_, PyAny>, name: &str, least: u64) -> PyErr {
    let kind = given.get_type();
    let kind = kind.name().map_or_else(|_| "that".into(), |name| name.to_string());
    let Ok(whole) = given.py().import("operator").and_then(|module| module.call_method1("index", (given,)))
    else {
        // Python does not print integers of thousands of digits; other things may be as long.
        let shown = given.repr().map_or_else(|_| String::new(), |text| text.to_string());
        let shown = if shown.is_empty() || shown.len() > 60 { kind } else { format!("{shown} ({kind})") };
        return PyTypeError::new_err(format!("{name} must be a whole number, not {shown}"));
    };
    let shown = whole.str().map_or_else(|_| String::new(), |text| text.to_string());
    let negative = whole.lt(0).unwrap_or(false);
    let shown = match (shown.len(), negative) {
        (1..=40, _) => shown,
        (_, true) => "far below 0".into(),
        (_, false) => "far above 2**64".into(),
    };
    PyValueError::new_err(format!("{name} is {shown}: it must be a whole number from {least} to 2**64 - 1"))
}
