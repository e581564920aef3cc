//! `lowtide.zip`: several arrays, the same rows.

use crate::argument::Flag;
use crate::array::Array;
use crate::chunks::{self, Chunks, Yields};
use crate::error::raise;
use crate::number::{Number, optional};
use crate::parts;
use lowtide::order::Cut;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Several arrays with the same rows, as `lowtide.zip` makes it: their chunks come together, as tuples.
///
/// Indexing gives a tuple too, the same index of every array. `len` is the number of rows.
///
/// Examples:
///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
///     >>> both
///     <lowtide.Zip of 2 arrays, 1000 rows>
///     >>> x, label = both[5]
///     >>> x.shape, label
///     ((128,), np.int64(5))
#[pyclass(frozen, module = "lowtide")]
pub struct Zip {
    arrays: Vec<Py<Array>>,
}

/// Reads several arrays together, row by row.
///
/// Args:
///     arrays: Arrays that `lowtide.open` returned, of equally many rows.
///
/// Returns:
///     A `lowtide.Zip`.
///
/// Raises:
///     ValueError: The arrays have different lengths, or there is none.
///     TypeError: Something is not an array of ours.
///
/// Examples:
///     >>> rows, labels = lowtide.open("rows.npy"), lowtide.open("labels.npy")
///     >>> for x, y in lowtide.zip(rows, labels).shuffled(500, seed=0):
///     ...     print(x.shape, y.shape)
///     (500, 128) (500,)
///     (500, 128) (500,)
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

    fn inner(&self, py: Python<'_>) -> PyResult<lowtide::Zip> {
        chunks::zipped(&self.bound(py))
    }

    /// The same arrays, with other rows.
    fn derived(&self, py: Python<'_>, zip: lowtide::Zip) -> PyResult<Self> {
        let arrays = self.arrays.iter().zip(zip.arrays());
        let derived = |(array, part): (&Py<Array>, &lowtide::Array)| {
            Py::new(py, array.get().derived(py, part.clone())?)
        };
        Ok(Self { arrays: arrays.map(derived).collect::<PyResult<_>>()? })
    }
}

#[pymethods]
impl Zip {
    /// The arrays, in their order.
    #[getter]
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.arrays)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.arrays[0].bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let (arrays, rows) = (counted(self.arrays.len(), "array"), counted(self.__len__(py)?, "row"));
        Ok(format!("<lowtide.Zip of {arrays}, {rows}>"))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let parts: Vec<_> = self.arrays.iter().map(|a| a.bind(py).get_item(key)).collect::<PyResult<_>>()?;
        PyTuple::new(py, parts)
    }

    /// Reads the same rows of every array.
    ///
    /// Args:
    ///     rows: Their numbers, in this order; negative ones count from the end.
    ///
    /// Returns:
    ///     A tuple of fresh arrays, one for each array.
    ///
    /// Raises:
    ///     IndexError: A number is out of bounds.
    ///
    /// Examples:
    ///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
    ///     >>> x, y = both.take([3, 1, -1])
    ///     >>> x.shape, y
    ///     ((3, 128), array([  3,   1, 999]))
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

    /// Gives the same part of all arrays, without reading it: see `lowtide.Array.rows`.
    ///
    /// Args:
    ///     start, stop: Which rows, as in a slice.
    ///
    /// Returns:
    ///     A `lowtide.Zip` of the rows `start` to `stop`.
    ///
    /// Raises:
    ///     TypeError: A number is not a whole one.
    ///
    /// Examples:
    ///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
    ///     >>> both.rows(-100)
    ///     <lowtide.Zip of 2 arrays, 100 rows>
    #[pyo3(signature = (start=None, stop=None), text_signature = "($self, start=None, stop=None)")]
    fn rows(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let rows = parts::range(py, start, stop, self.inner(py)?.rows())?;
        self.derived(py, self.inner(py)?.cut(&Cut { seed: None, rows }).map_err(raise)?)
    }

    /// Divides the rows among several parts, without reading them: see `lowtide.Array.split`.
    ///
    /// Rows that belong together stay together.
    ///
    /// Args:
    ///     sizes: The share of the first part, such as 0.9, or its number of rows; or a list of either.
    ///     seed: Which split; None cuts the rows in file order.
    ///
    /// Returns:
    ///     A tuple of `lowtide.Zip`s.
    ///
    /// Raises:
    ///     ValueError: The sizes are not all rows together, or a part with a share would have no rows.
    ///
    /// Examples:
    ///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
    ///     >>> train, val = both.split(0.9, seed=0)
    ///     >>> train, val
    ///     (<lowtide.Zip of 2 arrays, 900 rows>, <lowtide.Zip of 2 arrays, 100 rows>)
    #[pyo3(
        signature = (sizes, *, seed=Some(Number::Fits(0))),
        text_signature = "($self, sizes, *, seed=0)"
    )]
    fn split<'py>(
        &self,
        py: Python<'py>,
        sizes: &Bound<'py, PyAny>,
        seed: Option<Number>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let inner = self.inner(py)?;
        let (sizes, seed) = (parts::sizes(sizes, inner.rows())?, optional(py, seed, "seed", 0)?);
        let parts = inner.split(&sizes, seed).map_err(raise)?;
        let parts = parts.into_iter().map(|part| self.derived(py, part)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, parts)
    }

    /// Gives all rows in file order, `rows` at a time, as tuples of one chunk for each array.
    ///
    /// Args:
    ///     rows: How many rows a chunk has; the last one may have fewer.
    ///     rank, world_size: Which share of each step, as of `shuffled`; all rows if not given.
    ///     drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
    ///
    /// Returns:
    ///     A `lowtide.Chunks`. It begins again with every iteration.
    ///
    /// Raises:
    ///     MemoryError: The chunks do not fit in the budget; the message says how many rows do.
    ///     ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.
    ///
    /// Examples:
    ///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
    ///     >>> for x, y in both.chunks(600):
    ///     ...     print(x.shape, y.shape)
    ///     (600, 128) (600,)
    ///     (400, 128) (400,)
    #[pyo3(
        signature = (rows, *, rank=None, world_size=None, drop_last=Flag::OFF),
        text_signature = "($self, rows, *, rank=None, world_size=None, drop_last=False)"
    )]
    fn chunks(
        slf: &Bound<'_, Self>,
        rows: Number,
        rank: Option<Number>,
        world_size: Option<Number>,
        drop_last: Flag,
    ) -> PyResult<Chunks> {
        let share = chunks::share(slf.py(), rank, world_size, drop_last)?;
        chunks::sequential(slf, &slf.get().bound(slf.py()), Yields::Tuple, rows, share)
    }

    /// Gives every row exactly once, in shuffled order, `rows` at a time, as tuples.
    ///
    /// Args:
    ///     rows: How many rows a chunk has on each rank; the last one may have fewer.
    ///     seed: Which order; None draws one, which `state_dict` holds.
    ///     epoch: The epoch with which the first iteration begins.
    ///     start: The position, in rows over all ranks, where the first iteration begins.
    ///     repeat: Every iteration is the same epoch again, from its beginning.
    ///     rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
    ///         or MPI's, asked at the first chunk at the latest.
    ///     blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks and mixes them, as
    ///         `Array.shuffled` does.
    ///     with_rows: Gives (row numbers, tuple) instead of the tuple.
    ///     drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
    ///     scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
    ///         files without a name: the same rows in the same order, for two reads and one write of the file
    ///         instead of a random read for each row. For small rows of files that are larger than memory.
    ///
    /// Returns:
    ///     A `lowtide.Chunks`.
    ///
    /// Raises:
    ///     MemoryError: The chunks do not fit in the budget; the message says how many rows do.
    ///     ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.
    ///
    /// Examples:
    ///     >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
    ///     >>> for numbers, (x, y) in both.shuffled(500, seed=0, with_rows=True):
    ///     ...     print(x.shape, (y == numbers).all())
    ///     (500, 128) True
    ///     (500, 128) True
    #[pyo3(
        text_signature = "($self, rows, seed=0, *, epoch=0, start=0, repeat=False, rank=None, world_size=None, blocks=None, with_rows=False, drop_last=False, scratch=None)"
    )]
    #[pyo3(signature = (rows, seed=Some(Number::Fits(0)), *, epoch=Number::Fits(0), start=Number::Fits(0), repeat=Flag::OFF, rank=None, world_size=None, blocks=None, with_rows=Flag::OFF, drop_last=Flag::OFF, scratch=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords
    fn shuffled(
        slf: &Bound<'_, Self>,
        rows: Number,
        seed: Option<Number>,
        epoch: Number,
        start: Number,
        repeat: Flag,
        rank: Option<Number>,
        world_size: Option<Number>,
        blocks: Option<&Bound<'_, PyAny>>,
        with_rows: Flag,
        drop_last: Flag,
        scratch: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Chunks> {
        let py = slf.py();
        let shuffle =
            chunks::shuffle(py, seed, epoch, start, repeat, rank, world_size, blocks, drop_last, scratch)?;
        let yields = if with_rows.parse("with_rows")? { Yields::RowsAndTuple } else { Yields::Tuple };
        chunks::shuffled(slf, &slf.get().bound(py), yields, rows, shuffle)
    }

    /// Pickles as its arrays.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        Ok((py.import("lowtide._lowtide")?.getattr("zip")?, self.arrays(py)?))
    }
}
