//! Folds of all rows for `lowtide._reduce`, which makes NumPy's answers of them.

use crate::array::warn_unguarded;
use crate::error::unlocked;
use lowtide::{Fold, Folded};
use numpy::{IntoPyArray, PyArrayDescr};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// The columns of a fold, as a tuple of arrays; None where a fold is not possible.
pub fn fold<'py>(
    py: Python<'py>,
    array: &lowtide::Array,
    descr: &Bound<'py, PyArrayDescr>,
    name: &str,
    piece: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let fold = match name {
        "sum" => Fold::Sum,
        "whole" => Fold::WholeSum,
        "moments" => Fold::Moments,
        "min" => Fold::Least,
        "max" => Fold::Greatest,
        _ => return Err(PyValueError::new_err(format!("{name:?} is not a fold"))),
    };
    warn_unguarded(py, array)?;
    let Some(folded) = unlocked(py, |interrupt| array.fold(fold, piece, interrupt))? else {
        return Ok(py.None().into_bound(py));
    };
    let columns = match folded {
        Folded::Sum(sums) => PyTuple::new(py, [sums.into_pyarray(py)])?,
        Folded::WholeSum(sums) => PyTuple::new(py, [sums.into_pyarray(py)])?,
        Folded::Moments(means, squares) => {
            PyTuple::new(py, [means.into_pyarray(py), squares.into_pyarray(py)])?
        }
        Folded::Extreme(best) => {
            let bytes = PyBytes::new(py, &best);
            PyTuple::new(py, [py.import("numpy")?.call_method1("frombuffer", (bytes, descr))?])?
        }
    };
    Ok(columns.into_any())
}
