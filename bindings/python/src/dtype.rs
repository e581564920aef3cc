//! NumPy's dtypes for ours, and back.

use crate::error::raise;
use lowtide::format::{Dtype, Kind};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyImportError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Our dtype for whatever `np.dtype` takes, and for `"bfloat16"` and torch's dtypes, which it does not.
pub fn from_python(given: &Bound<'_, PyAny>) -> PyResult<Dtype> {
    if let Ok(text) = given.cast::<PyString>()
        && let Ok(dtype) = Dtype::parse(text.to_str()?)
    {
        return Ok(dtype);
    }
    let py = given.py();
    // torch.int64 and the like, which NumPy does not know.
    if let Some(name) = given.str()?.to_str()?.strip_prefix("torch.")
        && let Ok(dtype) = Dtype::parse(name)
    {
        return Ok(dtype);
    }
    let descr = py.import("numpy")?.getattr("dtype")?.call1((given,))?;
    if !descr.getattr("fields")?.is_none() || !descr.getattr("subdtype")?.is_none() {
        return Err(PyNotImplementedError::new_err(format!(
            "structured dtypes such as {descr} are not supported\nhint: give each field a file of its own, and lowtide.zip them"
        )));
    }
    let name: String = descr.getattr("name")?.extract()?;
    if name == "bfloat16" {
        return Ok(Dtype::native(Kind::BFloat16));
    }
    Dtype::parse(&descr.getattr("str")?.extract::<String>()?).map_err(raise)
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
