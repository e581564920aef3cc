//! `lowtide.Budget`, and sizes as people write them.

use crate::argument::shown;
use crate::error::raise;
use crate::number::Number;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A limit in bytes that several arrays can share.
///
/// Every byte of read buffers, read-ahead and mapped windows comes out of it. Batches that were handed
/// out are the caller's and do not count.
///
/// Args:
///     limit: A size like "1GiB", "1.5GB", or a number of bytes.
///
/// Raises:
///     ValueError: The size cannot be read, or is 0.
///     TypeError: It is neither a text nor a number.
///
/// Examples:
///     >>> budget = lowtide.Budget("64MiB")
///     >>> a = lowtide.open("rows.npy", budget=budget)
///     >>> labels = lowtide.open("labels.npy", budget=budget)
///     >>> budget.limit
///     67108864
///     >>> a.budget
///     Budget("64 MiB")
#[pyclass(frozen, module = "lowtide")]
pub struct Budget(pub lowtide::Budget);

#[pymethods]
impl Budget {
    #[new]
    fn new(limit: &Bound<'_, PyAny>) -> PyResult<Self> {
        lowtide::Budget::new(size(limit, "limit", 1)?).map(Self).map_err(raise)
    }

    /// The limit in bytes.
    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit()
    }

    /// Bytes in use now, free slabs included; batches that were delivered are not.
    #[getter]
    fn used(&self) -> u64 {
        self.0.used()
    }

    /// Pickles as its limit; what is used belongs to a process.
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, (u64,)) {
        (py.get_type::<Self>().into_any(), (self.0.limit(),))
    }

    fn __repr__(&self) -> String {
        format!("Budget({:?})", lowtide::budget::human(self.0.limit()))
    }
}

/// The argument `name`: a number of bytes, `least` or more, or a text such as `"64MiB"`.
pub fn size(given: &Bound<'_, PyAny>, name: &str, least: u64) -> PyResult<u64> {
    if let Ok(text) = given.extract::<String>() {
        // The message begins with the text in quotes.
        let named = |error| PyValueError::new_err(format!("{name}={error}"));
        return lowtide::budget::parse_size(&text).map_err(named);
    }
    let number: Number = given.extract()?;
    number.named(given.py(), name, least).or_else(|error| {
        // A number that is too small or too large has its words.
        if error.is_instance_of::<PyValueError>(given.py()) {
            return Err(error);
        }
        Err(PyTypeError::new_err(format!(
            "{name}={} is not a size\nhint: a number of bytes or a text like \"512MiB\"",
            shown(given)?
        )))
    })
}

/// The `budget=` argument: a size, or a budget to share.
pub fn argument(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<lowtide::Budget>> {
    let Some(given) = given else { return Ok(None) };
    if let Ok(shared) = given.cast::<Budget>() {
        return Ok(Some(shared.get().0.clone()));
    }
    lowtide::Budget::new(size(given, "budget", 1)?).map(Some).map_err(raise)
}
