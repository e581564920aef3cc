//! One iteration over something that begins anew with every `iter`.

use pyo3::prelude::*;
use pyo3::types::PyIterator;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `iter` gives of a loader or of chunks with `repeat=True`. They begin again with every `iter`; this does
/// not, so that `it = iter(loader); next(it); list(it)` gives the rest, as with any iterator.
#[pyclass(frozen, module = "lowtide")]
pub struct Iteration {
    of: Py<PyIterator>,
    over: AtomicBool,
}

impl Iteration {
    pub fn over<'py>(of: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, of) = (of.py(), of.cast::<PyIterator>()?.clone().unbind());
        Ok(Bound::new(py, Self { of, over: AtomicBool::new(false) })?.into_any())
    }
}

#[pymethods]
impl Iteration {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let next = self.of.bind(py).clone().next().transpose()?;
        self.over.store(next.is_none(), Ordering::Relaxed);
        Ok(next)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let over = if self.over.load(Ordering::Relaxed) { ", at its end" } else { "" };
        Ok(format!("<lowtide.Iteration of {}{over}>", self.of.bind(py).repr()?))
    }

    /// What it iterates over stands where it does, and goes on from there: `_go_on` of that is such an iteration.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Py<PyIterator>,))> {
        let go_on = py.import("operator")?.getattr("methodcaller")?.call1(("_go_on",))?;
        Ok((go_on, (self.of.clone_ref(py),)))
    }
}
