//! `lowtide.Tokens` and `lowtide.tokens`.

use crate::batch::{self, Out};
use crate::error::{raise, unlocked};
use crate::loader::{Loader, Wanted};
use crate::{budget, chunks, dtype};
use lowtide::format::{Dtype, Kind};
use lowtide::order::{LastStep, Turn};
use lowtide::{Access, CacheWish, LoaderOptions, TokenOptions};
use numpy::{PyArrayDescr, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;
use std::path::PathBuf;

/// A stream of tokens on disk: windows of them, documents, and loaders that go through all of it.
#[pyclass(frozen, module = "lowtide")]
pub struct Tokens {
    pub inner: lowtide::Tokens,
    descr: Py<PyArrayDescr>,
    /// NumPy's int64, made once.
    int64: Py<PyArrayDescr>,
    /// What `tokens` was given, for pickle.
    arguments: Py<PyDict>,
}

/// Calls a generic function with the integer type of a kind; `None` for what is no integer.
macro_rules! with_integer {
    ($kind:expr, $T:ident => $body:expr) => {
        match $kind {
            Kind::Int8 => {
                type $T = i8;
                Some($body)
            }
            Kind::Int16 => {
                type $T = i16;
                Some($body)
            }
            Kind::Int32 => {
                type $T = i32;
                Some($body)
            }
            Kind::Int64 => {
                type $T = i64;
                Some($body)
            }
            Kind::UInt8 => {
                type $T = u8;
                Some($body)
            }
            Kind::UInt16 => {
                type $T = u16;
                Some($body)
            }
            Kind::UInt32 => {
                type $T = u32;
                Some($body)
            }
            Kind::UInt64 => {
                type $T = u64;
                Some($body)
            }
            _ => None,
        }
    };
}
pub(crate) use with_integer;

/// Opens a stream of tokens: a file, a folder, a glob, a Megatron prefix, or a list of them. The dialect is
/// told from the content; `format` says it instead.
#[pyfunction]
#[pyo3(signature = (path, *, dtype=None, format=None, end_of_text=None, access="auto", cache="auto", budget=None))]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn tokens(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    format: Option<&str>,
    end_of_text: Option<u64>,
    access: &str,
    cache: &str,
    budget: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tokens> {
    py.import("numpy")?;
    let access: Access = access.parse().map_err(raise)?;
    let cache: CacheWish = cache.parse().map_err(raise)?;
    let mut options = TokenOptions::new().access(access).cache(cache);
    let arguments = PyDict::new(py);
    arguments.set_item("access", access.name())?;
    arguments.set_item("cache", cache.name())?;
    if let Some(budget) = budget::argument(budget)? {
        options = options.budget(budget);
    }
    if let Some(given) = dtype {
        let dtype = dtype::from_python(given)?;
        options = options.dtype(dtype);
    }
    if let Some(word) = format {
        options = options.dialect(word.parse().map_err(raise)?);
    }
    if let Some(token) = end_of_text {
        arguments.set_item("end_of_text", token)?;
        options = options.end_of_text(token);
    }
    let names = names(path)?;
    let inner = py.detach(|| options.open(&names)).map_err(raise)?;
    for warning in inner.warnings() {
        let message = CString::new(warning.replace('\0', "?")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?;
    }
    arguments.set_item("budget", inner.budget().limit())?;
    arguments.set_item("dtype", inner.dtype().numpy_str())?; // said, so that nobody is warned again
    if let Some(file) = inner.files().first() {
        arguments.set_item("format", file.dialect.name())?;
    }
    let descr = dtype::to_numpy(py, inner.dtype())?.unbind();
    let int64 = dtype::to_numpy(py, Dtype::native(Kind::Int64))?.unbind();
    Ok(Tokens { inner, descr, int64, arguments: arguments.unbind() })
}

/// What pickle calls.
#[pyfunction]
#[pyo3(name = "_reopen_tokens")]
pub fn reopen<'py>(
    py: Python<'py>,
    files: &Bound<'py, PyTuple>,
    arguments: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("lowtide._lowtide")?.getattr("tokens")?.call((files,), Some(arguments))
}

/// One path, or several.
fn names(given: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    let decode = |path: &Bound<'_, PyAny>| -> PyResult<PathBuf> {
        given.py().import("os")?.call_method1("fsdecode", (path,))?.extract()
    };
    match given.cast::<PyList>() {
        Ok(list) => list.iter().map(|path| decode(&path)).collect(),
        Err(_) => match given.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().map(|path| decode(&path)).collect(),
            Err(_) => Ok(vec![decode(given)?]),
        },
    }
}

/// The starts of windows, as NumPy or anything that it understands has them.
fn starts(given: &Bound<'_, PyAny>, tokens: &lowtide::Tokens, block: usize) -> PyResult<Vec<u64>> {
    let py = given.py();
    let one = |&start: &i64| {
        u64::try_from(start).map_err(|_| {
            let (block, tokens) = (block as u64, tokens.len());
            let last = (i128::from(tokens) - i128::from(block) - 1).max(-1);
            raise(lowtide::Error::Start { start: start.into(), block, last, tokens })
        })
    };
    let from = |array: PyReadonlyArray1<'_, i64>| array.as_array().iter().map(one).collect();
    if given.is_exact_instance_of::<PyList>()
        && let Ok(list) = given.extract::<Vec<i64>>()
    {
        return list.iter().map(one).collect();
    }
    if let Ok(array) = given.extract::<PyReadonlyArray1<'_, i64>>() {
        return from(array);
    }
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (given,))?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let empty = array.getattr("size")?.extract::<usize>()? == 0;
    if array.getattr("ndim")?.extract::<usize>()? != 1 || !(empty || kind == "i" || kind == "u") {
        return Err(PyTypeError::new_err(format!(
            "starts must be a list of integers, not {} of {} axes",
            array.getattr("dtype")?,
            array.getattr("ndim")?
        )));
    }
    if array.getattr("dtype")?.getattr("str")?.extract::<String>()?.ends_with("u8") {
        return array.extract::<Vec<u64>>(); // a uint64 need not fit in an int64
    }
    from(array.call_method1("astype", ("int64",))?.extract()?)
}

/// One of the two arrays of `out=`: C-contiguous, writable, integers, of the right shape.
fn check_out<'a, 'py>(
    out: &'a Bound<'py, PyAny>,
    shape: [usize; 2],
) -> PyResult<(&'a Bound<'py, PyUntypedArray>, Kind)> {
    let array =
        out.cast::<PyUntypedArray>().map_err(|_| PyTypeError::new_err("out must be two NumPy arrays"))?;
    let flags = out.getattr("flags")?;
    let found = dtype::from_python(array.dtype().as_any())?;
    let is_integer = with_integer!(found.kind(), T => size_of::<T>()).is_some();
    if array.shape() != shape || !is_integer || found != Dtype::native(found.kind()) {
        return Err(PyValueError::new_err(format!(
            "out has shape {} and dtype {}, the windows have shape ({}, {}) and are native integers",
            out.getattr("shape")?,
            array.dtype(),
            shape[0],
            shape[1],
        )));
    }
    for flag in ["c_contiguous", "writeable", "aligned"] {
        if !flags.getattr(flag)?.is_truthy()? {
            return Err(PyValueError::new_err("out must be C-contiguous, aligned and writable"));
        }
    }
    Ok((array, found.kind()))
}

#[pymethods]
impl Tokens {
    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.inner.len()).map_err(|_| PyValueError::new_err("more tokens than len() can say"))
    }

    /// NumPy's dtype of a token in the files.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.descr.clone_ref(py)
    }

    /// The files, in the order of the stream, as absolute paths.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.files().iter().map(|file| file.path.clone()))
    }

    /// The dialect of the files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
    #[getter]
    fn format(&self) -> &'static str {
        self.inner.files().first().map_or("raw", |file| file.dialect.name())
    }

    /// The way of access that was asked for; loaders say which one they took.
    #[getter]
    fn access(&self) -> &'static str {
        self.inner.array().access().name()
    }

    /// What was asked for about the page cache.
    #[getter]
    fn cache(&self) -> &'static str {
        self.inner.array().cache().name()
    }

    /// The budget that this and everything made from it share.
    #[getter]
    fn budget(&self) -> budget::Budget {
        budget::Budget(self.inner.budget().clone())
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.array().is_closed()
    }

    /// How many documents there are: from the index, or by `end_of_text`, which reads all tokens the first
    /// time; None where neither is there.
    #[getter]
    fn documents(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        unlocked(py, |interrupt| self.inner.documents(interrupt))
    }

    /// The tokens of document `number`, as they stand in the file; negative numbers count from the end.
    fn document<'py>(&self, py: Python<'py>, number: i64) -> PyResult<Bound<'py, PyAny>> {
        let batch = unlocked(py, |interrupt| {
            let count = self.inner.documents(interrupt)?.unwrap_or(0);
            let from_end = i128::from(number) + if number < 0 { i128::from(count) } else { 0 };
            let Ok(index) = u64::try_from(from_end) else {
                return Err(lowtide::Error::Index { index: number.into(), axis: 0, size: count });
            };
            self.inner.document(index, interrupt)
        })?;
        batch::ndarray(py, batch, self.descr.bind(py))
    }

    /// Writes what a scan for `end_of_text` found beside the first file, so that the next time it is only read.
    fn remember_documents(&self, py: Python<'_>) -> PyResult<PathBuf> {
        unlocked(py, |interrupt| self.inner.remember_documents(interrupt))
    }

    /// The windows that begin at `starts`: x, and y shifted by one, as int64 arrays of `len(starts)` rows of
    /// `block_size` tokens, or in the two arrays of `out`, of whichever integers they are.
    #[pyo3(signature = (starts, block_size, out=None))]
    fn windows<'py>(
        &self,
        py: Python<'py>,
        starts: &Bound<'py, PyAny>,
        block_size: usize,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let starts = self::starts(starts, &self.inner, block_size)?;
        let Some(out) = out else {
            let (x, y) = unlocked(py, |interrupt| self.inner.windows::<i64>(&starts, block_size, interrupt))?;
            let descr = self.int64.bind(py);
            return PyTuple::new(py, [batch::ndarray(py, x, descr)?, batch::ndarray(py, y, descr)?]);
        };
        let wrong = |_| PyTypeError::new_err("out must be two NumPy arrays, (x, y)");
        let (x, y): (Bound<'py, PyAny>, Bound<'py, PyAny>) = out.extract().map_err(wrong)?;
        let shape = [starts.len(), block_size];
        let ((x_array, kind), (y_array, other)) = (check_out(&x, shape)?, check_out(&y, shape)?);
        if kind != other {
            return Err(PyValueError::new_err("x and y of out must have the same dtype"));
        }
        let bytes = shape[0] * shape[1] * kind.itemsize();
        let (mut to_x, mut to_y) = (Out::new(x_array, bytes), Out::new(y_array, bytes));
        with_integer!(kind, T => unlocked(py, move |interrupt| {
            self.inner.windows_into::<T>(&starts, block_size, to_x.numbers(), to_y.numbers(), interrupt)
        }))
        .unwrap_or(Ok(()))?;
        PyTuple::new(py, [x, y])
    }

    /// Batches of windows, epoch after epoch, under any number of ranks.
    #[pyo3(signature = (batch_size, block_size, *, order="shuffled", seed=0, epochs=Some(1), dtype=None, rank=None, world_size=None, prefetch=None, drop_last=true, _turn=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords
    #[allow(clippy::used_underscore_binding)] // a keyword that is not for users, as Python marks it
    fn loader(
        &self,
        py: Python<'_>,
        batch_size: usize,
        block_size: usize,
        order: &str,
        seed: u64,
        epochs: Option<u64>,
        dtype: Option<&Bound<'_, PyAny>>,
        rank: Option<u64>,
        world_size: Option<u64>,
        prefetch: Option<u64>,
        drop_last: bool,
        _turn: Option<(u64, u64)>, // for lowtide.torch: this worker, of how many
    ) -> PyResult<Loader> {
        let options = LoaderOptions {
            batch_size,
            block_size,
            order: order.parse().map_err(raise)?,
            seed,
            epochs,
            shard: chunks::shard(py, rank, world_size)?,
            turn: _turn.map_or(Ok(Turn::ALL), |(first, of)| Turn::new(first, of)).map_err(raise)?,
            last: if drop_last { LastStep::Drop } else { LastStep::Split },
            prefetch,
        };
        Loader::new(py, &self.inner, options, Wanted::from_python(py, dtype)?)
    }

    /// Lets go of the files. Arrays that were returned stay what they are.
    fn close(&self) {
        self.inner.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let files = self.inner.files();
        let name = files.first().map_or_else(String::new, |file| format!("\"{}\"", file.path.display()));
        let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
        format!("Tokens({name}{more}, {} tokens of {})", self.inner.len(), self.inner.dtype())
    }

    /// Pickles as the paths and the settings, never as data.
    #[allow(clippy::type_complexity)] // what pickle wants: a function and its arguments
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>, Py<PyDict>))> {
        let again = py.import("lowtide._lowtide")?.getattr("_reopen_tokens")?;
        Ok((again, (self.files(py)?, self.arguments.clone_ref(py))))
    }
}
