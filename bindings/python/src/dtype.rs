//! NumPy's dtypes for ours, and back.

use crate::argument::shown;
use crate::error::raise;
use lowtide::format::{Dtype, Kind};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyImportError, PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Our dtype for whatever `np.dtype` takes as the argument `name`, and for `"bfloat16"` and torch's dtypes, which it does
/// not.
pub fn from_python(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Dtype> {
    if let Ok(text) = given.cast::<PyString>()
        && let Ok(dtype) = Dtype::parse(text.to_str()?)
    {
        return Ok(dtype);
    }
    let py = given.py();
    // torch.int64 and the like, which NumPy does not know.
    if let Some(word) = given.str()?.to_str()?.strip_prefix("torch.")
        && let Ok(dtype) = Dtype::parse(word)
    {
        return Ok(dtype);
    }
    let numpys = py.import("numpy")?.getattr("dtype")?;
    let descr = numpys.call1((given,)).map_err(|error| named(given, name, error))?;
    if !descr.getattr("fields")?.is_none() || !descr.getattr("subdtype")?.is_none() {
        return Err(PyNotImplementedError::new_err(format!(
            "structured dtypes such as {descr} are not supported\nhint: give each field a file of its own, and lowtide.zip them"
        )));
    }
    let word: String = descr.getattr("name")?.extract()?;
    if word == "bfloat16" {
        return Ok(Dtype::native(Kind::BFloat16));
    }
    Dtype::parse(&descr.getattr("str")?.extract::<String>()?).map_err(raise)
}

/// What NumPy says of a dtype that is none, and of which argument.
fn named(given: &Bound<'_, PyAny>, name: &str, error: PyErr) -> PyErr {
    let py = given.py();
    let said = |shown: String| format!("{name}={shown}: {}", error.value(py));
    match shown(given).map(said) {
        Ok(said) if error.is_instance_of::<PyTypeError>(py) => PyTypeError::new_err(said),
        Ok(said) if error.is_instance_of::<PyValueError>(py) => PyValueError::new_err(said),
        _ => error,
    }
}

/// NumPy's dtype for ours. bfloat16 comes from `ml_dtypes`, which torch and JAX users often have.
pub fn to_numpy(py: Python<'_>, dtype: Dtype) -> PyResult<Bound<'_, PyArrayDescr>> {
    if dtype.kind() == Kind::BFloat16 {
        let module = py.import("ml_dtypes").map_err(|cause| {
            let error = PyImportError::new_err(
                "NumPy has no bfloat16 of its own\nhint: pip install ml_dtypes, or open with dtype=\"uint16\" and view the batches \
                 with torch.from_numpy(batch).view(torch.bfloat16)",
            );
            error.set_cause(py, Some(cause));
            error
        })?;
        let descr = PyArrayDescr::new(py, module.getattr("bfloat16")?)?;
        return if dtype == Dtype::native(Kind::BFloat16) {
            Ok(descr)
        } else {
            Err(PyNotImplementedError::new_err("big-endian bfloat16 is not supported"))
        };
    }
    PyArrayDescr::new(py, dtype.numpy_str())
}
