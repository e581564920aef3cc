//! `lowtide.zip`: several arrays, the same rows.

use crate::array::Array;
use crate::chunks::{self, Chunks, Yields};
use crate::number::Number;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Several arrays with the same rows: their chunks come together, as tuples.
#[pyclass(frozen, module = "lowtide")]
pub struct Zip {
    arrays: Vec<Py<Array>>,
}

/// Several arrays of equally many rows, read together.
#[pyfunction]
#[pyo3(signature = (*arrays))]
pub fn zip(arrays: &Bound<'_, PyTuple>) -> PyResult<Zip> {
    let arrays: Vec<Bound<'_, Array>> = arrays
        .iter()
        .map(|array| array.cast_into::<Array>())
        .collect::<Result<_, _>>()
        .map_err(|_| PyTypeError::new_err("lowtide.zip takes arrays that lowtide.open returned"))?;
    chunks::zipped(&arrays)?;
    Ok(Zip { arrays: arrays.into_iter().map(Bound::unbind).collect() })
}

impl Zip {
    fn bound<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, Array>> {
        self.arrays.iter().map(|a| a.bind(py).clone()).collect()
    }
}

#[pymethods]
impl Zip {
    /// The arrays.
    #[getter]
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.arrays)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.arrays[0].bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<lowtide.Zip of {} arrays, {} rows>", self.arrays.len(), self.__len__(py)?))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let parts: Vec<_> = self.arrays.iter().map(|a| a.bind(py).get_item(key)).collect::<PyResult<_>>()?;
        PyTuple::new(py, parts)
    }

    /// The same rows of every array.
    fn take<'py>(&self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let take = |a: &Py<Array>| a.bind(py).call_method1("take", (rows,));
        PyTuple::new(py, self.arrays.iter().map(take).collect::<PyResult<Vec<_>>>()?)
    }

    /// For torch's `DataLoader`: these rows as a list of tuples, read together.
    fn __getitems__<'py>(&self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let columns = self.take(py, rows)?;
        let builtins = py.import("builtins")?;
        let rows = builtins.getattr("zip")?.call1(columns)?;
        builtins.getattr("list")?.call1((rows,))
    }

    /// Rows in file order, `rows` at a time, as tuples.
    fn chunks(slf: &Bound<'_, Self>, rows: Number) -> PyResult<Chunks> {
        chunks::sequential(slf, &slf.get().bound(slf.py()), Yields::Tuple, rows)
    }

    /// Every row exactly once, in shuffled order, `rows` at a time, as tuples.
    #[pyo3(
        text_signature = "($self, rows, seed=0, *, epoch=0, start=0, repeat=False, rank=None, world_size=None, blocks=None, with_rows=False, drop_last=False)"
    )]
    #[pyo3(signature = (rows, seed=Some(Number::Fits(0)), *, epoch=Number::Fits(0), start=Number::Fits(0), repeat=false, rank=None, world_size=None, blocks=None, with_rows=false, drop_last=false))]
    #[allow(clippy::too_many_arguments)] // they are keywords
    fn shuffled(
        slf: &Bound<'_, Self>,
        rows: Number,
        seed: Option<Number>,
        epoch: Number,
        start: Number,
        repeat: bool,
        rank: Option<Number>,
        world_size: Option<Number>,
        blocks: Option<&Bound<'_, PyAny>>,
        with_rows: bool,
        drop_last: bool,
    ) -> PyResult<Chunks> {
        let py = slf.py();
        let shuffle = chunks::shuffle(py, seed, epoch, start, repeat, rank, world_size, blocks, drop_last)?;
        let yields = if with_rows { Yields::RowsAndTuple } else { Yields::Tuple };
        chunks::shuffled(slf, &slf.get().bound(py), yields, rows, shuffle)
    }

    /// Pickles as its arrays.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((py.import("lowtide._lowtide")?.getattr("zip")?, self.arrays(py)?))
    }
}
