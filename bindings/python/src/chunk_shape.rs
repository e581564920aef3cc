//! `a.chunks`: a method that also answers as the attribute of that name does elsewhere.
//!
//! h5py, zarr and the like have an *attribute* `chunks`: the shape of the pieces that an array is best read in. dask
//! looks at it to cut an array, and could do nothing with a method. So `a.chunks` is both: call it for an iterator, or
//! take it for such a shape.

use crate::argument::Flag;
use crate::array::Array;
use crate::chunks::{self, Chunks};
use crate::number::Number;
use lowtide::format::Order;
use lowtide::order::{LastStep, Shard};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Pieces of this size: long reads, and few enough to choose among.
const PIECE: u64 = 16 << 20;
/// dask writes all of them down.
const PIECES: u64 = 1 << 14;

/// Gives all rows in file order, `rows` at a time.
///
/// Args:
///     rows: How many rows a chunk has; the last one may have fewer.
///     rank, world_size: Which share of each step: of every `world_size` chunks that follow each other,
///         rank 0 takes the first. If not given, all rows: unlike for `shuffled`, no launcher is asked.
///     drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
///
/// Returns:
///     A `lowtide.Chunks`. It begins again with every iteration.
///
/// Raises:
///     MemoryError: A chunk does not fit in the budget; the message says how many rows do.
///     ValueError: A number makes no sense, only one of `rank` and `world_size` is given, or the last
///         step has fewer rows than there are ranks.
///
/// Without a call, `a.chunks` is the shape of the pieces that are best read as one, as dask wants it.
///
/// Examples:
///     >>> a = lowtide.open("rows.npy")
///     >>> for chunk in a.chunks(400):
///     ...     print(chunk.shape)
///     (400, 128)
///     (400, 128)
///     (200, 128)
///     >>> [len(chunk) for chunk in a.chunks(400, rank=1, world_size=2)]
///     [400, 100]
///     >>> tuple(a.chunks)
///     (1000, 128)
#[pyclass(frozen, module = "lowtide._lowtide")]
pub struct ChunksMethod;

/// Gives all rows in file order, `rows` at a time: see `lowtide.Array.chunks`.
#[pyclass(frozen, sequence, module = "lowtide._lowtide")]
pub struct BoundChunks {
    array: Py<Array>,
}

/// The signature, which Python cannot see in an object of ours.
fn signature<'py>(py: Python<'py>, names: &[&str]) -> PyResult<Bound<'py, PyAny>> {
    let inspect = py.import("inspect")?;
    let parameter = inspect.getattr("Parameter")?;
    let kind = parameter.getattr("POSITIONAL_OR_KEYWORD")?;
    let mut parameters: Vec<_> =
        names.iter().map(|name| parameter.call1((*name, &kind))).collect::<PyResult<_>>()?;
    let keyword = parameter.getattr("KEYWORD_ONLY")?;
    for (name, default) in [("rank", None), ("world_size", None), ("drop_last", Some(false))] {
        let words = PyDict::new(py);
        words.set_item("default", default)?;
        parameters.push(parameter.call((name, &keyword), Some(&words))?);
    }
    inspect.getattr("Signature")?.call1((parameters,))
}

#[pymethods]
#[allow(clippy::unused_self)] // they are methods to Python
impl ChunksMethod {
    fn __get__<'py>(
        slf: Bound<'py, Self>,
        array: &Bound<'py, PyAny>,
        _class: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match array.cast::<Array>() {
            Ok(array) => Ok(Bound::new(slf.py(), BoundChunks { array: array.clone().unbind() })?.into_any()),
            Err(_) => Ok(slf.into_any()), // of the class
        }
    }

    #[pyo3(signature = (*arguments, **named))]
    fn __call__<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Named::call(arguments, named)
    }

    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        signature(py, &["self", "rows"])
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        "chunks"
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        "Array.chunks"
    }
}

/// The method itself. What is wrong with its arguments is said by the names of a class and of a method, so both have
/// those that the user knows.
#[pyclass(frozen, module = "lowtide._lowtide", name = "Array")]
struct Named;

#[pymethods]
impl Named {
    #[staticmethod]
    #[pyo3(signature = (array, rows, *, rank=None, world_size=None, drop_last=Flag::OFF))]
    fn chunks(
        array: &Bound<'_, Array>,
        rows: Number,
        rank: Option<Number>,
        world_size: Option<Number>,
        drop_last: Flag,
    ) -> PyResult<Chunks> {
        sequential(array, rows, chunks::share(array.py(), rank, world_size, drop_last)?)
    }
}

impl Named {
    fn call<'py>(
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        arguments.py().get_type::<Self>().getattr("chunks")?.call(arguments, named)
    }
}

fn sequential(array: &Bound<'_, Array>, rows: Number, share: (Shard, LastStep)) -> PyResult<Chunks> {
    chunks::sequential(array, std::slice::from_ref(array), chunks::Yields::Array, rows, share)
}

/// The shape of pieces that are read as one: whole rows, or whole columns of a file in Fortran order.
fn pieces(shape: &[usize], order: Order, itemsize: usize) -> Vec<usize> {
    let bytes =
        |shape: &[usize]| shape.iter().fold(itemsize as u64, |n, &size| n.saturating_mul(size as u64));
    let most = PIECE.max(bytes(shape) / PIECES);
    let mut piece = shape.to_vec();
    let slowest = |i: usize| if order == Order::C { i } else { shape.len() - 1 - i };
    for axis in (0..shape.len()).map(slowest) {
        let whole = std::mem::replace(&mut piece[axis], 1);
        let fitting = usize::try_from(most / bytes(&piece).max(1)).unwrap_or(usize::MAX);
        piece[axis] = fitting.clamp(1, whole.max(1));
        if fitting > 0 {
            break;
        }
    }
    piece
}

impl BoundChunks {
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let array = &self.array.get().inner;
        let order = array.layout().order;
        PyTuple::new(py, pieces(array.shape(), order, array.dtype().itemsize()))
    }
}

#[pymethods]
#[allow(clippy::unused_self)] // they are methods to Python
impl BoundChunks {
    #[pyo3(signature = (*arguments, **named))]
    fn __call__<'py>(
        &self,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.array.bind(arguments.py()).as_any().clone();
        let all: Vec<_> = std::iter::once(array).chain(arguments.iter()).collect();
        Named::call(&PyTuple::new(arguments.py(), all)?, named)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.shape(py)?.into_any().try_iter()?.into_any())
    }

    fn __len__(&self) -> usize {
        self.array.get().inner.shape().len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.shape(py)?.into_any().get_item(key)
    }

    /// As a tuple has it.
    fn count<'py>(&self, py: Python<'py>, size: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.shape(py)?.into_any().call_method1("count", (size,))
    }

    /// As a tuple has it.
    #[pyo3(signature = (*arguments))]
    fn index<'py>(&self, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        self.shape(arguments.py())?.into_any().call_method1("index", arguments)
    }

    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let other = match other.cast::<Self>() {
            Ok(other) => other.get().shape(py)?.into_any(),
            Err(_) => other.clone(),
        };
        self.shape(py)?.into_any().rich_compare(other, how)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.shape(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<method chunks of {}, and the shape {}>", self.array.bind(py).repr()?, self.shape(py)?))
    }

    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        signature(py, &["rows"])
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        "chunks"
    }

    /// As Python's methods pickle.
    #[allow(clippy::type_complexity)] // what pickle wants: a function and its arguments
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Py<Array>, &'static str))> {
        Ok((py.import("builtins")?.getattr("getattr")?, (self.array.clone_ref(py), "chunks")))
    }

    #[getter]
    fn __self__(&self, py: Python<'_>) -> Py<Array> {
        self.array.clone_ref(py)
    }
}
