//! `lowtide.Array`.

use crate::argument::{Flag, Name, Word};
use crate::batch::{self, Out};
use crate::chunk_shape::ChunksMethod;
use crate::chunks::{self, Chunks};
use crate::error::{raise, unlocked};
use crate::index::{self, Mode, Selected};
use crate::number::{Number, Real, optional};
use crate::open::{AS_TYPE, CUTS, FILES, FINGERPRINT, sent};
use crate::{budget, dtype, fold, notebook, parts, storage};
use lowtide::format::{Container, Order};
use lowtide::order::Cut;
use lowtide::{Access, Axis};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyMemoryError, PyRuntimeWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyList, PyTuple};

/// An array on disk, as `lowtide.open` opens it. It is indexed as NumPy's arrays are.
///
/// Indexing reads what was asked for into a fresh NumPy array, never a view of the file. `chunks` and
/// `shuffled` go through all rows inside the budget. It is read-only, pickles as its path and its
/// settings, may be used from several threads and after a fork, and closes as a context manager.
///
/// `np.asarray(a)` and `a == b` read all of it, and raise `MemoryError` where that is more than the
/// budget; `a[...]` reads it anyway.
///
/// Examples:
///     >>> a = lowtide.open("rows.npy")
///     >>> a
///     <lowtide.Array "...rows.npy" shape=(1000, 128) dtype=float32 access=auto>
///     >>> a[5].shape, a[-100:].shape, a[::7, :4].shape, a[[3, 1, 1]].shape
///     ((128,), (100, 128), (143, 4), (3, 128))
///     >>> for chunk in a.shuffled(256, seed=0):
///     ...     print(chunk.shape)
///     (256, 128)
///     (256, 128)
///     (256, 128)
///     (232, 128)
#[pyclass(frozen, module = "lowtide")]
pub struct Array {
    pub inner: lowtide::Array,
    descr: Py<PyArrayDescr>,
    /// What `open` was given, for pickle.
    arguments: Py<PyDict>,
}

impl Array {
    pub fn new(py: Python<'_>, inner: lowtide::Array, access: Access) -> PyResult<Self> {
        let descr = dtype::to_numpy(py, inner.dtype())?.unbind();
        let layout = inner.layout();
        let arguments = PyDict::new(py);
        arguments.set_item("dtype", layout.dtype.numpy_str())?;
        arguments.set_item("shape", &layout.shape)?;
        arguments.set_item("offset", layout.offset)?;
        arguments.set_item("fortran", layout.order == Order::Fortran)?;
        arguments.set_item("access", access.name())?;
        arguments.set_item("cache", inner.cache().name())?;
        arguments.set_item("budget", inner.budget().limit())?;
        arguments.set_item("npy", matches!(layout.container, Container::Npy { .. }))?;
        if inner.files().is_none() {
            arguments.set_item("size", inner.file_len().map_err(raise)?)?;
        }
        Ok(Self { descr, arguments: arguments.unbind(), inner })
    }

    /// What is in the file may change at any time, and that is meant: a copy does not ask.
    pub fn never_compare(&self, py: Python<'_>) -> PyResult<()> {
        self.arguments.bind(py).set_item(FINGERPRINT, py.None())
    }

    /// How object stores are reached, for a pickle.
    pub fn keep_options(
        &self,
        py: Python<'_>,
        storage: &lowtide::store::Storage,
        cache_size: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        storage::keep(storage, cache_size, self.arguments.bind(py))
    }

    /// An array that was made from this one: a part of it.
    pub fn derived(&self, py: Python<'_>, inner: lowtide::Array) -> PyResult<Self> {
        let arguments = self.arguments.bind(py).copy()?;
        let cut = |Cut { seed, rows }: Cut| (seed, rows.start, rows.end);
        arguments.set_item(CUTS, inner.part().cuts().map(cut).collect::<Vec<_>>())?;
        Ok(Self { descr: self.descr.clone_ref(py), arguments: arguments.unbind(), inner })
    }

    /// The same rows as elements of another type.
    pub fn cast(&self, py: Python<'_>, dtype: lowtide::format::Dtype) -> PyResult<Self> {
        let descr = dtype::to_numpy(py, dtype)?.unbind();
        let arguments = self.arguments.bind(py).copy()?;
        arguments.set_item(AS_TYPE, dtype.numpy_str())?;
        Ok(Self { descr, arguments: arguments.unbind(), inner: self.inner.astype(dtype).map_err(raise)? })
    }

    /// What the file has, for a repr, where that is not what is read.
    fn in_file(&self) -> String {
        match self.inner.layout().dtype {
            dtype if dtype == self.inner.dtype() => String::new(),
            dtype => format!(" ({dtype} in the file)"),
        }
    }

    /// NumPy's dtype of its batches.
    pub fn descr<'py>(&self, py: Python<'py>) -> &Bound<'py, PyArrayDescr> {
        self.descr.bind(py)
    }

    /// Reads a selection: into a caller's array if there is one, else into a fresh one.
    fn select<'py>(
        &self,
        py: Python<'py>,
        selected: Selected,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(out) = out else { return index::fresh(py, &self.inner, self.descr(py), selected) };
        let shape = selected.shape();
        let array = self.check_out(py, out, &shape)?;
        if self.inner.layout().order == Order::Fortran {
            // The file's order is not out's: NumPy transposes.
            out.set_item(py.Ellipsis(), index::fresh(py, &self.inner, self.descr(py), selected)?)?;
        } else {
            warn_unguarded(py, &self.inner)?;
            let (inner, axes) = selected.over(&self.inner)?;
            let mut bytes = Out::new(array, array.len() * self.inner.dtype().itemsize());
            unlocked(py, move |interrupt| inner.select_into(axes, bytes.bytes(), interrupt))?;
        }
        Ok(out.clone())
    }

    /// That `out` can be filled: the right type and shape, C-contiguous, writable.
    fn check_out<'a, 'py>(
        &self,
        py: Python<'py>,
        out: &'a Bound<'py, PyAny>,
        shape: &[usize],
    ) -> PyResult<&'a Bound<'py, PyUntypedArray>> {
        let array =
            out.cast::<PyUntypedArray>().map_err(|_| PyTypeError::new_err("out must be a NumPy array"))?;
        let flags = out.getattr("flags")?;
        if array.shape() != shape || !array.dtype().is_equiv_to(self.descr(py)) {
            return Err(PyValueError::new_err(format!(
                "out has shape {} and dtype {}, the answer has shape {} and dtype {}",
                out.getattr("shape")?,
                array.dtype(),
                lowtide::format::shape_text(shape),
                self.descr(py),
            )));
        }
        if !flags.getattr("c_contiguous")?.is_truthy()? || !flags.getattr("writeable")?.is_truthy()? {
            return Err(PyValueError::new_err("out must be C-contiguous and writable"));
        }
        Ok(array)
    }
}

/// What a reduction is asked for: its name, axis, dtype, out, keepdims and ddof.
type Reduction<'a, 'py> = (
    &'static str,
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
    Option<&'a Bound<'py, PyAny>>,
    Flag,
    Option<Real>,
);

fn reduced<'py>(array: &Bound<'py, Array>, asked: Reduction<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    let (name, axis, dtype, out, keepdims, ddof) = asked;
    let keepdims = keepdims.parse("keepdims")?;
    let ddof = ddof.map(|number| number.named("ddof")).transpose()?;
    let reduce = array.py().import("lowtide._reduce")?.getattr("reduce")?;
    reduce.call1((array, name, axis, dtype, out, keepdims, ddof))
}

/// Warns of mapped access without our SIGBUS handler in place: a file that is cut would end the process. And of a local
/// cache that cannot keep what comes: each epoch would be fetched again, and nobody would know why it takes so long.
pub fn warn_unguarded(py: Python<'_>, array: &lowtide::Array) -> PyResult<()> {
    if lowtide::store::sigbus::unguarded(array.access()) {
        let message =
            c"another SIGBUS handler has replaced Lowtide's: a file that is truncated while it is read \
            through a map may end the process; access=\"read\" is safe";
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), message, 1)?; // we have no frame: 1 is the caller
    }
    if let Some(trouble) = array.cache_trouble() {
        let message = std::ffi::CString::new(trouble)?;
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)?;
    }
    Ok(())
}

/// The hash that Python gives to objects that are equal to themselves only.
pub fn identity(object: &Bound<'_, PyAny>) -> isize {
    (object.as_ptr().addr() >> 4).cast_signed()
}

/// All of it for `np.asarray`, if that fits in the budget: otherwise it is usually an accident. `too_large` says
/// so, given what it would take and what there is.
pub fn whole<'py>(
    py: Python<'py>,
    array: &lowtide::Array,
    descr: &Bound<'py, PyArrayDescr>,
    dtype: Option<&Bound<'py, PyAny>>,
    too_large: impl FnOnce(String, String) -> String,
) -> PyResult<Bound<'py, PyAny>> {
    let (needs, limit) = (array.nbytes(), array.budget().limit());
    if needs > limit {
        let human = lowtide::budget::human;
        return Err(PyMemoryError::new_err(too_large(human(needs), human(limit))));
    }
    warn_unguarded(py, array)?;
    let axes = array.shape().iter().map(|&n| Axis::all(n)).collect();
    let batch = unlocked(py, |interrupt| array.select(axes, interrupt))?;
    let all = batch::ndarray(py, batch, descr)?;
    match dtype {
        Some(dtype) => all.call_method1("astype", (dtype,)),
        None => Ok(all),
    }
}

#[pymethods]
impl Array {
    /// The shape, as NumPy's.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    /// NumPy's dtype of the elements, as they are read.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.descr.clone_ref(py)
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.inner.shape().len()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> u64 {
        self.inner.nbytes() / self.inner.dtype().itemsize() as u64
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.nbytes()
    }

    /// Bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.inner.dtype().itemsize()
    }

    /// The file, as an absolute path; of several, the first. An object's address is a str.
    #[getter]
    fn path(&self) -> Name {
        Name(self.inner.path().to_owned())
    }

    /// The files, in the order of the rows, as absolute paths.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self.inner.files() {
            Some(files) => PyTuple::new(py, files.iter().map(|file| Name(file.path.clone()))),
            None => PyTuple::new(py, [self.path()]),
        }
    }

    /// The way of access that was asked for; iterators say which one they took.
    #[getter]
    fn access(&self) -> &'static str {
        self.inner.access().name()
    }

    /// What was asked for about the page cache: "auto", "keep" or "drop".
    #[getter]
    fn cache(&self) -> &'static str {
        self.inner.cache().name()
    }

    /// The budget that this array and everything made from it share.
    #[getter]
    fn budget(&self) -> budget::Budget {
        budget::Budget(self.inner.budget().clone())
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.inner.shape().first() {
            Some(&n) => Ok(n),
            None => Err(PyTypeError::new_err("len() of unsized object")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = lowtide::format::shape_text(self.inner.shape());
        let (path, access) = (self.inner.path().display(), self.inner.access());
        let closed = if self.inner.is_closed() { ", closed" } else { "" };
        Ok(format!(
            "<lowtide.Array {path:?}{} shape={shape} dtype={}{} access={access}{closed}>",
            parts::shown(&self.inner),
            self.descr(py).str()?,
            self.in_file()
        ))
    }

    /// What a notebook shows.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let mut facts = vec![
            ("path", format!("{}{}", self.inner.path().display(), parts::shown(&self.inner))),
            ("shape", lowtide::format::shape_text(self.inner.shape())),
            ("dtype", format!("{}{}", self.descr(py).str()?, self.in_file())),
        ];
        facts.extend(notebook::settings(&self.inner));
        Ok(notebook::table("lowtide.Array", &facts))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let selected = index::parse(key, self.inner.shape(), self.inner.layout().order)?;
        self.select(py, selected, None)
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        slf.py().import("lowtide._rows")?.call_method1("rows", (slf,))
    }

    /// Reads the rows with these numbers, in this order, as `np.take` does.
    ///
    /// Args:
    ///     rows: Their numbers, in an array or list of any shape; negative ones count from the end.
    ///     axis: What the numbers count: rows, or another axis. None counts elements as of one axis.
    ///     out: An array of the answer's shape and dtype to be filled, C-contiguous.
    ///     mode: What becomes of a number outside: "raise" an error, "wrap" counts round, "clip" takes the
    ///         first or the last.
    ///
    /// Returns:
    ///     A fresh array, or `out`.
    ///
    /// Raises:
    ///     IndexError: A number is out of bounds.
    ///     ValueError: `out` has another shape or dtype, or the axis or the mode is not known.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.take([3, 1, -1])
    ///     array([  3,   1, 999])
    ///     >>> labels.take([1001], mode="wrap")
    ///     array([1])
    #[pyo3(text_signature = "($self, rows, axis=0, out=None, mode='raise')")]
    #[pyo3(signature = (rows, axis=Some(0), out=None, mode=Word::said("raise")))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        rows: &Bound<'py, PyAny>,
        axis: Option<isize>,
        out: Option<&Bound<'py, PyAny>>,
        mode: Word,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (shape, mode) = (self.inner.shape(), Mode::from_word(&mode.text("mode")?)?);
        let ndim = shape.len().cast_signed();
        let Some(axis) = axis else {
            let order = self.inner.layout().order;
            return self.select(py, Selected::elements(rows, shape, order, mode, out.is_none())?, out);
        };
        let from_start = if axis < 0 { axis + ndim } else { axis };
        let Some(axis) = usize::try_from(from_start).ok().filter(|&axis| axis < shape.len()) else {
            return Err(PyValueError::new_err(format!(
                "axis {axis} is out of bounds for array of dimension {ndim}"
            )));
        };
        self.select(py, Selected::places(rows, axis, shape, mode, out.is_none())?, out)
    }

    /// Gives a part of the rows as an array of its own, without reading it.
    ///
    /// It has all methods that the array has, over the same file and inside the same budget; closing one
    /// closes both. Parts of parts are parts.
    ///
    /// Args:
    ///     start, stop: Which rows, as in a slice: negative numbers count from the end, None is the end.
    ///
    /// Returns:
    ///     A `lowtide.Array` of the rows `start` to `stop`.
    ///
    /// Raises:
    ///     ValueError: The array is a single element, which has no rows.
    ///     TypeError: A number is not a whole one.
    ///
    /// Examples:
    ///     >>> a = lowtide.open("rows.npy")
    ///     >>> a.rows(100, 200)
    ///     <lowtide.Array "...rows.npy" rows 100:200 of 1000 shape=(100, 128) dtype=float32 access=auto>
    ///     >>> head, tail = a.rows(None, -100), a.rows(-100)
    ///     >>> len(head), len(tail), bool((tail[0] == a[900]).all())
    ///     (900, 100, True)
    ///     >>> for chunk in tail.shuffled(50, seed=0):
    ///     ...     print(chunk.shape)
    ///     (50, 128)
    ///     (50, 128)
    #[pyo3(signature = (start=None, stop=None), text_signature = "($self, start=None, stop=None)")]
    fn rows(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let rows = parts::range(py, start, stop, self.inner.rows())?;
        self.derived(py, self.inner.cut(&Cut { seed: None, rows }).map_err(raise)?)
    }

    /// Divides the rows among several parts, without reading them: for training and validation, say.
    ///
    /// Every row is in exactly one part. With a seed the rows are dealt one by one: every split is as likely
    /// as any other, and the same seed gives the same one, everywhere. Nothing is stored: a part is positions
    /// of the permutation that `shuffled(seed=seed)` goes through in its epoch 0, and has its rows in that
    /// order, which is also the order in which its `chunks` come. With `seed=None` the parts are neighbouring
    /// rows in file order, as `rows` gives them: a slow disk reads them faster, and `blocks=` works.
    ///
    /// Args:
    ///     sizes: The share of the first part, such as 0.9, the rest being the second; or the number of rows
    ///         of the first; or a list of all shares, which make 1, or of all numbers of rows.
    ///     seed: Which split; None cuts the rows in file order.
    ///
    /// Returns:
    ///     A tuple of `lowtide.Array`s, each with all methods, over the same file and inside the same budget.
    ///
    /// Raises:
    ///     ValueError: The sizes are not all rows together, or a part with a share would have no rows.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> train, val = labels.split(0.9, seed=0)
    ///     >>> val
    ///     <lowtide.Array "...labels.npy" rows 900:1000 of 1000 dealt by seed 0 shape=(100,) ...>
    ///     >>> train[:5], next(labels.shuffled(5, seed=0))
    ///     (array([800,  38, 982, 574, 325]), array([800,  38, 982, 574, 325]))
    ///     >>> sorted(set(train[:]) | set(val[:])) == list(range(1000))
    ///     True
    ///     >>> [len(part) for part in labels.split([0.8, 0.1, 0.1], seed=None)]
    ///     [800, 100, 100]
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
        let (sizes, seed) = (parts::sizes(sizes, self.inner.rows())?, optional(py, seed, "seed", 0)?);
        let parts = self.inner.split(&sizes, seed).map_err(raise)?;
        let parts = parts.into_iter().map(|part| self.derived(py, part)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, parts)
    }

    /// Gives the same array with its elements as another type, converted whenever they are read.
    ///
    /// Nothing is read now: it is an array like any other, over the same file and inside the same budget. The
    /// elements are, bit for bit, those of NumPy's `astype`. They are converted while they are read, by the
    /// threads that read.
    ///
    /// Args:
    ///     dtype: The type, as NumPy or torch says it. All that NumPy's `casting="same_kind"` allows: to more
    ///         or fewer bits, from either byte order, from whole numbers to floats and from those to complex
    ///         ones. No warning is given where a number becomes infinite.
    ///
    /// Returns:
    ///     A `lowtide.Array` of that `dtype`. `lowtide.open(path, astype=dtype)` gives the same.
    ///
    /// Raises:
    ///     ValueError: The type is of another kind: fractions, signs or imaginary parts would be lost. Or the
    ///         elements were rounded by an `astype` before.
    ///
    /// Examples:
    ///     >>> a = lowtide.open("rows.npy").astype("float64")
    ///     >>> a
    ///     <lowtide.Array "...rows.npy" shape=(1000, 128) dtype=float64 (float32 in the file) access=auto>
    ///     >>> a[:10].dtype, next(a.shuffled(100, seed=0)).dtype
    ///     (dtype('float64'), dtype('float64'))
    fn astype(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.cast(py, dtype::from_python(dtype, "dtype")?)
    }

    /// Gives the sum of elements in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     dtype: The type of the answer; NumPy's choice if not given.
    ///     out: An array of the answer's shape to be filled.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.sum(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.sum()
    ///     np.int64(499500)
    #[pyo3(signature = (axis=None, dtype=None, out=None, *, keepdims=Flag::OFF), text_signature = "($self, axis=None, dtype=None, out=None, *, keepdims=False)")]
    fn sum<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("sum", axis, dtype, out, keepdims, None))
    }

    /// Gives the mean of elements in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     dtype: The type of the answer; NumPy's choice if not given.
    ///     out: An array of the answer's shape to be filled.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.mean(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.mean()
    ///     np.float64(499.5)
    #[pyo3(signature = (axis=None, dtype=None, out=None, *, keepdims=Flag::OFF), text_signature = "($self, axis=None, dtype=None, out=None, *, keepdims=False)")]
    fn mean<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("mean", axis, dtype, out, keepdims, None))
    }

    /// Gives the variance of elements in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     dtype: The type of the answer; NumPy's choice if not given.
    ///     out: An array of the answer's shape to be filled.
    ///     ddof: What is taken off the number of elements before it divides.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.var(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.var()
    ///     np.float64(83333.25)
    #[pyo3(signature = (axis=None, dtype=None, out=None, ddof=Real::Fits(0.0), *, keepdims=Flag::OFF), text_signature = "($self, axis=None, dtype=None, out=None, ddof=0, *, keepdims=False)")]
    fn var<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        ddof: Real,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("var", axis, dtype, out, keepdims, Some(ddof)))
    }

    /// Gives the standard deviation in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     dtype: The type of the answer; NumPy's choice if not given.
    ///     out: An array of the answer's shape to be filled.
    ///     ddof: What is taken off the number of elements before it divides.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.std(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.std()
    ///     np.float64(288.6749902572095)
    #[pyo3(signature = (axis=None, dtype=None, out=None, ddof=Real::Fits(0.0), *, keepdims=Flag::OFF), text_signature = "($self, axis=None, dtype=None, out=None, ddof=0, *, keepdims=False)")]
    fn std<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        dtype: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        ddof: Real,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("std", axis, dtype, out, keepdims, Some(ddof)))
    }

    /// Gives the smallest element in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     out: An array of the answer's shape to be filled.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.min(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.min()
    ///     np.int64(0)
    #[pyo3(signature = (axis=None, out=None, *, keepdims=Flag::OFF), text_signature = "($self, axis=None, out=None, *, keepdims=False)")]
    fn min<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("min", axis, None, out, keepdims, None))
    }

    /// Gives the largest element in one pass inside the budget: NumPy's answer, to rounding.
    ///
    /// Args:
    ///     axis: Over which axis or axes, a number or a tuple; None is all of them.
    ///     out: An array of the answer's shape to be filled.
    ///     keepdims: Leaves the axes in the answer, with size 1.
    ///
    /// Returns:
    ///     An array, a scalar, or `out`; `np.max(a)` gives the same.
    ///
    /// Raises:
    ///     MemoryError: A row does not fit in the budget.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> labels.max()
    ///     np.int64(999)
    #[pyo3(signature = (axis=None, out=None, *, keepdims=Flag::OFF), text_signature = "($self, axis=None, out=None, *, keepdims=False)")]
    fn max<'py>(
        slf: &Bound<'py, Self>,
        axis: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        keepdims: Flag,
    ) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf, ("max", axis, None, out, keepdims, None))
    }

    /// For `lowtide._reduce`: what a pass over all rows gives, column by column; None where it takes NumPy.
    fn _fold<'py>(&self, py: Python<'py>, name: &str, piece: usize) -> PyResult<Bound<'py, PyAny>> {
        fold::fold(py, &self.inner, self.descr(py), name, piece)
    }

    #[classattr]
    fn chunks() -> ChunksMethod {
        ChunksMethod
    }

    /// Gives every row exactly once, in shuffled order, `rows` at a time.
    ///
    /// The order is a permutation that is computed, not stored: it takes no memory however many rows there
    /// are, and any position is reached at once. The next iteration is the next epoch, in another order.
    ///
    /// Args:
    ///     rows: How many rows a chunk has on each rank; the last one may have fewer.
    ///     seed: Which order; None draws one, which `state_dict` holds.
    ///     epoch: The epoch with which the first iteration begins.
    ///     start: The position, in rows over all ranks, where the first iteration begins.
    ///     repeat: Every iteration is the same epoch again, from its beginning.
    ///     rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
    ///         or MPI's, asked at the first chunk at the latest.
    ///     blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks of the file and
    ///         mixes them inside the budget, as fast as a disk reads; `predicted_spread` says how random.
    ///     with_rows: Gives (row numbers, chunk) instead of the chunk.
    ///     drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
    ///     scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
    ///         files without a name: the same rows in the same order, for two reads and one write of the file
    ///         instead of a random read for each row. For small rows of files that are larger than memory.
    ///
    /// Returns:
    ///     A `lowtide.Chunks`.
    ///
    /// Raises:
    ///     MemoryError: A chunk does not fit in the budget; the message says how many rows do.
    ///     ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.
    ///
    /// Examples:
    ///     >>> labels = lowtide.open("labels.npy")
    ///     >>> epoch = labels.shuffled(5, seed=0)
    ///     >>> next(epoch)
    ///     array([800,  38, 982, 574, 325])
    ///     >>> for numbers, chunk in labels.shuffled(400, seed=1, with_rows=True):
    ///     ...     print(len(chunk), (chunk == numbers).all())
    ///     400 True
    ///     400 True
    ///     200 True
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
        let yields =
            if with_rows.parse("with_rows")? { chunks::Yields::RowsAndArray } else { chunks::Yields::Array };
        chunks::shuffled(slf, std::slice::from_ref(slf), yields, rows, shuffle)
    }

    /// Element by element, as NumPy's arrays compare, if the whole array fits in the budget.
    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let all = whole(py, &self.inner, self.descr(py), None, |needs, limit| {
            format!(
                "comparing {} element by element would read all {needs} of it, the budget is {limit}\n\
                 hint: compare chunk by chunk: a.chunks(n); `is` asks whether two names mean the same array",
                self.inner.path().display(),
            )
        })?;
        all.rich_compare(other, how)
    }

    /// Which object it is, not what is in it: an array can be a key, and NumPy's `==` is no answer to that.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        identity(slf.as_any())
    }

    /// For NumPy: the whole array, if it fits in the budget.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("an array on disk cannot become a NumPy array without a copy"));
        }
        whole(py, &self.inner, self.descr(py), dtype, |needs, limit| {
            format!(
                "turning {} into a NumPy array would read all {needs} of it, the budget is {limit}\n\
                 hint: a[...] does it anyway; a.chunks(n) goes through it in the budget",
                self.inner.path().display(),
            )
        })
    }

    /// For `torch.as_tensor(a)`, which would ask for element after element, and `np.from_dlpack(a)`: the whole array,
    /// if it fits in the budget.
    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.__array__(py, None, None)?.call_method("__dlpack__", (), options)
    }

    /// The CPU, in the numbers of `DLPack`.
    #[allow(clippy::unused_self)] // a method to Python
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// For torch's `DataLoader`, which asks for the rows of a batch at once: as a list, read together.
    fn __getitems__<'py>(&self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.take(py, rows, Some(0), None, Word::said("raise"))?
            .try_iter()?
            .collect::<PyResult<Vec<_>>>()
            .and_then(|rows| PyList::new(py, rows))
    }

    /// Lets go of the file and its maps. Arrays that were returned stay what they are.
    ///
    /// Examples:
    ///     >>> with lowtide.open("rows.npy") as a:
    ///     ...     first = a[0]
    ///     >>> a.closed
    ///     True
    ///     >>> a.close()  # a second time does nothing
    fn close(&self) {
        self.inner.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) {
        self.close();
    }

    /// Pickles as the path, the settings and what the file is, never as data.
    #[allow(clippy::type_complexity)] // what pickle wants: a function and its arguments
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Name, Bound<'py, PyDict>))> {
        let reopen = py.import("lowtide._lowtide")?.getattr("_reopen")?;
        let arguments = self.arguments.bind(py).copy()?;
        if let Some(files) = self.inner.files() {
            arguments.set_item(FILES, files.iter().map(sent).collect::<Vec<_>>())?;
        }
        if !arguments.contains(FINGERPRINT)? && !self.inner.is_closed() {
            arguments.set_item(FINGERPRINT, unlocked(py, |_| self.inner.whole().fingerprint())?)?;
        }
        Ok((reopen, (self.path(), arguments)))
    }
}
