//! `lowtide.create`, `lowtide.append` and the `lowtide.Writer` that both give.

use crate::argument::{self, Flag, Name, Word};
use crate::error::unlocked;
use crate::number::Number;
use crate::pieces::Pieces;
use crate::progress::{Facts, Told};
use crate::turns::Turns;
use crate::{budget, dtype, rows_key, storage};
use lowtide::budget::human;
use lowtide::format::{Order, shape_text};
use lowtide::write::{Existing, Place, WriteOptions};
use lowtide::{CacheWish, Interrupt};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyResourceWarning, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt, PyTuple};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often progress is told.
const TELL: Duration = Duration::from_millis(100);

/// Makes an array on disk, of any size, inside a fixed amount of memory.
///
/// The file is what `np.save` would have written, byte for byte, or bare elements. It appears whole, and on
/// the disk, when the writer is closed; until then it has another name beside it, and whatever goes wrong,
/// the old file is there or none. What a killed process has left is taken away by the next writer of the
/// same file.
///
/// An address such as `s3://bucket/rows.npy` is written in parts, several on their way inside the budget, and
/// put together when the writer is closed. Rows of an object come in order: `append` and `extend`, or `write`
/// where the next ones go.
///
/// Args:
///     path: The file: a `.npy` file if it is called so, else one without a header. `s3://`, `gs://` or
///         `az://` for an object.
///     dtype: The type of an element: whatever NumPy or torch takes for one.
///     shape: The shape. With None for the first axis, rows are appended as they come; a known number of
///         rows is reserved on the disk at once, and they may be written in any order. Rows of a known
///         number that are never written are zeros.
///     order: "C", or "F" for Fortran order, where the last axis may be None, and is written along.
///     budget: How much memory is used, pages that wait to be written to the disk included: a size like
///         "64MiB" or a `lowtide.Budget`. The default is the smaller of 256 MiB and a quarter of the room.
///     cache: What the page cache keeps of the file: "keep", "drop", or "auto", which keeps while it fits
///         in half the room.
///     overwrite: Replaces a file of that name, once the new one is whole.
///     storage_options: How an object store is reached, as for `lowtide.open`.
///
/// Returns:
///     A `lowtide.Writer`.
///
/// Raises:
///     FileExistsError: There is a file of that name, and `overwrite` is not set.
///     OSError: The disk is too full for the shape, another writer is at the same file, or the folder is
///         not there.
///     ValueError: The shape cannot be.
///     NotImplementedError: The dtype is not one that `lowtide.open` reads.
///     MemoryError: The budget is too small.
///
/// Examples:
///     >>> import numpy as np
///     >>> with lowtide.create("new.npy", dtype="float32", shape=(None, 128)) as w:
///     ...     for n in range(10):
///     ...         w.append(np.full((100, 128), n, "float32"))
///     >>> np.load("new.npy").shape
///     (1000, 128)
///     >>> with lowtide.create("known.npy", "int64", (1000, 4), budget="64MiB") as w:
///     ...     w[500:1000] = np.ones((500, 4), "int64")
///     ...     w[0:500] = 0
///     >>> int(lowtide.open("known.npy")[499:501].sum())
///     4
#[pyfunction]
#[pyo3(
    signature = (path, dtype, shape, *, order=Word::said("C"), budget=None, cache=Word::auto(), overwrite=Flag::OFF, storage_options=None),
    text_signature = "(path, dtype, shape, *, order='C', budget=None, cache='auto', overwrite=False, storage_options=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn create(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    dtype: &Bound<'_, PyAny>,
    shape: &Bound<'_, PyAny>,
    order: Word,
    budget: Option<&Bound<'_, PyAny>>,
    cache: Word,
    overwrite: Flag,
    storage_options: Option<&Bound<'_, PyAny>>,
) -> PyResult<Writer> {
    py.import("numpy")?;
    let dtype = dtype::from_python(dtype, "dtype")?;
    let shape = open_shape(shape)?;
    let existing = if overwrite.parse("overwrite")? { Existing::Replace } else { Existing::Refuse };
    let options = options(budget, &cache)?.order(order.parse("order")?).existing(existing);
    let options = options.storage(storage::argument(storage_options)?);
    let path = argument::path(path, "path")?;
    Writer::new(py, unlocked(py, |_| options.create(&path, dtype, &shape))?, Began::New)
}

/// Goes on with a `.npy` file: rows are added to its end.
///
/// The file is what it was until `flush` or `close`: killed before that, it is as if nothing had been added,
/// and it can be read all the time. Rows go along the first axis, or the last of a file in Fortran order.
///
/// Args:
///     path: A `.npy` file that `np.save`, `lowtide.create` or another program has written.
///     budget: As for `lowtide.create`.
///     cache: As for `lowtide.create`.
///
/// Returns:
///     A `lowtide.Writer`.
///
/// Raises:
///     FileNotFoundError: There is no such file.
///     OSError: Another writer is at it, or the system says no.
///     NotImplementedError: It is no `.npy` file, or its header, from an old NumPy, has no room for a
///         larger number.
///     ValueError: The header is damaged, or there is something behind the elements.
///
/// Examples:
///     >>> import numpy as np
///     >>> with lowtide.append("rows.npy") as w:
///     ...     w.append(np.zeros((24, 128), "float32"))
///     >>> lowtide.open("rows.npy").shape
///     (1024, 128)
#[pyfunction]
#[pyo3(
    signature = (path, *, budget=None, cache=Word::auto()),
    text_signature = "(path, *, budget=None, cache='auto')"
)]
pub fn append(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    budget: Option<&Bound<'_, PyAny>>,
    cache: Word,
) -> PyResult<Writer> {
    py.import("numpy")?;
    let options = options(budget, &cache)?;
    let path = argument::path(path, "path")?;
    Writer::new(py, unlocked(py, |_| options.append(&path))?, Began::Old)
}

fn options(given: Option<&Bound<'_, PyAny>>, cache: &Word) -> PyResult<WriteOptions> {
    let options = WriteOptions::new().cache(cache.parse::<CacheWish>("cache")?);
    Ok(match budget::argument(given)? {
        Some(budget) => options.budget(budget),
        None => options,
    })
}

/// A shape, of which sizes may be None.
fn open_shape(given: &Bound<'_, PyAny>) -> PyResult<Vec<Option<usize>>> {
    let sizes = match given.extract::<Option<i64>>() {
        Ok(size) => Ok(vec![size]),
        Err(_) => given.extract::<Vec<Option<i64>>>(),
    };
    let shown = || given.repr().map_or_else(|_| "that".into(), |text| text.to_string());
    let sizes = sizes.map_err(|_| {
        PyTypeError::new_err(format!(
            "shape={} is not a shape\nhint: whole numbers, and None for the axis that grows: (None, 128)",
            shown()
        ))
    })?;
    let size = |size: Option<i64>| {
        size.map(usize::try_from).transpose().map_err(|_| {
            PyValueError::new_err(format!(
                "shape={} has a negative size\nhint: None stands for the axis that grows: (None, 128)",
                shown()
            ))
        })
    };
    sizes.into_iter().map(size).collect()
}

/// An array that is being written, as `lowtide.create` and `lowtide.append` give it.
///
/// As a context manager it closes at the end, and the file appears; an exception discards it. Chunks are
/// arrays of whole rows, of the same dtype or of one that NumPy casts to it safely; they are not held.
/// Several threads may write; a forked child may not.
///
/// Examples:
///     >>> import numpy as np
///     >>> w = lowtide.create("new.npy", "float32", (None, 128))
///     >>> w.append(np.zeros((3, 128), "float32"))
///     >>> w
///     <lowtide.Writer "...new.npy" shape=(3, 128) dtype=float32 grows>
///     >>> len(w), w.closed
///     (3, False)
///     >>> w.close()
///     >>> w
///     <lowtide.Writer "...new.npy" shape=(3, 128) dtype=float32 closed>
#[pyclass(frozen, module = "lowtide")]
pub struct Writer {
    inner: Turns<lowtide::write::Writer>,
    path: PathBuf,
    descr: Py<PyArrayDescr>,
    order: Order,
    axis: usize,
    grows: bool,
    began: Began,
    /// What the last call left; the writer itself may be in use.
    shape: Mutex<Vec<usize>>,
    closed: AtomicBool,
    process: u32,
}

/// With which file it began.
#[derive(Clone, Copy)]
enum Began {
    New,
    /// One that there was, which grows.
    Old,
}

impl Writer {
    fn new(py: Python<'_>, inner: lowtide::write::Writer, began: Began) -> PyResult<Self> {
        Ok(Self {
            path: inner.path().to_owned(),
            descr: dtype::to_numpy(py, inner.dtype())?.unbind(),
            order: inner.order(),
            axis: inner.axis(),
            grows: inner.grows(),
            began,
            shape: Mutex::new(inner.shape()),
            closed: AtomicBool::new(false),
            process: std::process::id(),
            inner: Turns::new(inner),
        })
    }

    /// Runs `f`, and remembers what became of it.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl Send + FnOnce(&mut lowtide::write::Writer, Interrupt<'_>) -> lowtide::Result<R>,
    ) -> PyResult<R> {
        self.inner.with(py, |writer, interrupt| {
            let answer = f(writer, interrupt);
            self.closed.store(writer.is_closed(), Ordering::Relaxed);
            lowtide::sys::locked(&self.shape, |shape| *shape = writer.shape());
            answer
        })
    }

    fn sizes(&self) -> Vec<usize> {
        lowtide::sys::locked(&self.shape, |shape| shape.clone())
    }

    /// The size along which rows are counted.
    fn rows(&self) -> usize {
        self.sizes()[self.axis]
    }

    /// A chunk as an array whose rows fit, and how many there are.
    fn chunk<'py>(&self, given: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let array = self.array(given)?;
        let (mut want, found) = (self.sizes(), array.getattr("shape")?.extract::<Vec<usize>>()?);
        let rows = found.get(self.axis).copied().unwrap_or(0);
        want[self.axis] = rows;
        if want == found {
            return Ok((array, rows));
        }
        let mut sizes: Vec<String> = want.iter().map(usize::to_string).collect();
        sizes[self.axis] = "n".into();
        let comma = if sizes.len() == 1 { "," } else { "" };
        let mut text = format!(
            "a chunk of shape {} does not fit: its rows are those of ({}{comma})",
            shape_text(&found),
            sizes.join(", ")
        );
        want.remove(self.axis);
        if want == found {
            text += if self.axis == 0 {
                "\nhint: chunk[None] is one row"
            } else {
                "\nhint: chunk[..., None] is one row"
            };
        }
        Err(PyValueError::new_err(text))
    }

    /// What was given as an array of a dtype that can become ours.
    fn array<'py>(&self, given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = given.py();
        let numpy = py.import("numpy")?;
        let array = numpy.call_method1("asarray", (given,))?;
        let (found, wanted) = (array.getattr("dtype")?, self.descr.bind(py));
        if found.eq(wanted)? || numpy.call_method1("can_cast", (&found, wanted, "safe"))?.is_truthy()? {
            return Ok(array);
        }
        Err(PyTypeError::new_err(format!(
            "a chunk of {found} cannot be cast to {wanted} without loss\nhint: chunk.astype(\"{wanted}\") says that it is meant"
        )))
    }

    /// Writes an array, the bytes of a place in the file, in pieces that fit in the scratch memory where they have to
    /// be converted.
    fn put(&self, py: Python<'_>, place: Place, rows: usize, array: Bound<'_, PyAny>) -> PyResult<()> {
        let array = if self.order == Order::C { array } else { array.getattr("T")? };
        let (array, descr) = (array.unbind(), self.descr.clone_ref(py));
        let mut raised = None;
        let answer = self.with(py, |writer, interrupt| {
            let scratch = writer.scratch();
            let mut part = writer.part(place, rows as u64)?;
            let mut pieces = Pieces { descr, scratch, part: &mut part, interrupt, raised: &mut raised };
            pieces.put(array)?;
            part.done()
        });
        answer.map_err(|error| raised.unwrap_or(error))
    }
}

#[pymethods]
impl Writer {
    /// Adds rows behind those that were appended before.
    ///
    /// Args:
    ///     chunk: An array of rows, of the array's dtype or of one that NumPy casts to it safely.
    ///
    /// Raises:
    ///     TypeError: Its dtype cannot be cast without loss.
    ///     ValueError: Its rows have another shape, there is no place left for them, or the writer is closed.
    ///     OSError: The disk is full, or fails. The rows are not counted then, and can be appended again.
    ///         Where an object store fails, for longer than `timeout`, the upload is given up.
    ///
    /// Examples:
    ///     >>> import numpy as np
    ///     >>> with lowtide.create("new.npy", "float64", (None, 2)) as w:
    ///     ...     w.append(np.ones((3, 2)))
    ///     ...     w.append(np.ones((2, 2), "float32"))  # every float32 is a float64
    ///     >>> lowtide.open("new.npy").shape
    ///     (5, 2)
    fn append(&self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<()> {
        let (array, rows) = self.chunk(chunk)?;
        self.put(py, Place::End, rows, array)
    }

    /// Writes rows from `start` on, of an array whose number of rows is known.
    ///
    /// It is what `w[start:stop] = chunk` does.
    ///
    /// Args:
    ///     start: The first row.
    ///     chunk: An array of rows, as for `append`.
    ///
    /// Raises:
    ///     IndexError: Some of them would be outside the array.
    ///     ValueError: The array grows, or the rows have another shape.
    ///     NotImplementedError: It is an object, and `start` is not where the next rows go.
    ///     TypeError: The dtype cannot be cast without loss.
    ///     OSError: The disk fails.
    ///
    /// Examples:
    ///     >>> import numpy as np
    ///     >>> with lowtide.create("new.npy", "int64", (4,)) as w:
    ///     ...     w.write(2, np.array([3, 4]))
    ///     ...     w.write(0, np.array([1, 2]))
    ///     >>> np.load("new.npy")
    ///     array([1, 2, 3, 4])
    fn write(&self, py: Python<'_>, start: Number, chunk: &Bound<'_, PyAny>) -> PyResult<()> {
        let start = start.named(py, "start", 0)?;
        let (array, rows) = self.chunk(chunk)?;
        self.put(py, Place::Row(start), rows, array)
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let shape = self.sizes();
        let chosen = rows_key::parse(key, &shape, self.axis)?;
        let numpy = py.import("numpy")?;
        let simple = value.is_instance_of::<PyBool>()
            || value.is_exact_instance_of::<PyInt>()
            || value.is_exact_instance_of::<PyFloat>()
            || value.is_exact_instance_of::<PyComplex>();
        let value = if simple {
            // Python's numbers have no dtype of their own: the smallest that holds it decides.
            self.array(&numpy.call_method1("empty", (0, numpy.call_method1("min_scalar_type", (value,))?))?)?;
            numpy.call_method1("asarray", (value, self.descr.bind(py)))?
        } else {
            self.array(value)?
        };
        let mut target = shape.clone();
        target[self.axis] = chosen.rows;
        let mut shown = target.clone();
        if chosen.single {
            shown.remove(self.axis);
        }
        let value =
            numpy.call_method1("broadcast_to", (&value, PyTuple::new(py, &shown)?)).map_err(|_| {
                let found = value.getattr("shape").and_then(|shape| shape.extract::<Vec<usize>>());
                PyValueError::new_err(format!(
                    "a value of shape {} does not fit into rows of shape {}",
                    found.map_or_else(|_| "()".into(), |found| shape_text(&found)),
                    shape_text(&shown)
                ))
            })?;
        let value = value.call_method1("reshape", (PyTuple::new(py, &target)?,))?;
        self.put(py, Place::Row(chosen.start as u64), chosen.rows, value)
    }

    /// Appends every chunk of an iterable.
    ///
    /// Args:
    ///     iterable: Chunks, as for `append`: a generator, or the `chunks` of another array.
    ///     progress: Is called with a dict several times a second. If not given, there is a line on stderr
    ///         where that is a terminal, and elsewhere the logger "lowtide" is told; False says nothing.
    ///
    /// Raises:
    ///     TypeError: As for `append`; or it is not iterable.
    ///     ValueError: As for `append`.
    ///     OSError: As for `append`. What was appended before stays.
    ///
    /// Examples:
    ///     >>> a = lowtide.open("rows.npy")
    ///     >>> with lowtide.create("sorted.npy", a.dtype, (None, 128)) as w:
    ///     ...     w.extend(2 * chunk for chunk in a.chunks(256))
    ///     >>> lowtide.open("sorted.npy").shape
    ///     (1000, 128)
    #[pyo3(signature = (iterable, progress=None), text_signature = "($self, iterable, progress=None)")]
    fn extend(
        &self,
        py: Python<'_>,
        iterable: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let told = Told::new(py, progress, "writing")?;
        let (begun, mut last) = (Instant::now(), Instant::now());
        let row = self.with(py, |writer, _| Ok(writer.row_bytes()))?;
        let mut rows = 0;
        let tell = |rows: usize| {
            let at = Written { rows: rows as u64, bytes: rows as u64 * row, total: self.total() };
            py.detach(|| told.tell(&at.words(begun.elapsed()), &at));
        };
        let answer = iterable.try_iter().and_then(|chunks| {
            for chunk in chunks {
                let (array, more) = self.chunk(&chunk?)?;
                self.put(py, Place::End, more, array)?;
                rows += more;
                if last.elapsed() >= TELL {
                    last = Instant::now();
                    tell(rows);
                    if told.has_raised() {
                        return Ok(());
                    }
                }
            }
            tell(rows); // whoever draws a bar sees its end
            Ok(())
        });
        match told.end(py) {
            Some(raised) => Err(raised),
            None => answer,
        }
    }

    /// Waits until all that was written is on the disk.
    ///
    /// With `lowtide.append` it is part of the file from now on, whatever happens later.
    ///
    /// Raises:
    ///     OSError: The disk is full, or fails.
    ///
    /// Examples:
    ///     >>> import numpy as np
    ///     >>> with lowtide.append("rows.npy") as w:
    ///     ...     w.append(np.zeros((24, 128), "float32"))
    ///     ...     w.flush()
    ///     ...     print(lowtide.open("rows.npy").shape)
    ///     (1024, 128)
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |writer, _| writer.flush())
    }

    /// Ends it: the file appears, whole and on the disk. Closed once, it stays closed.
    ///
    /// Raises:
    ///     OSError: The disk is full, the folder is gone, or there is a file of that name by now. The writer
    ///         is still open.
    ///     ValueError: Fewer rows were appended than the shape says.
    ///
    /// Examples:
    ///     >>> w = lowtide.create("new.npy", "uint8", (100,))
    ///     >>> w.close()
    ///     >>> w.closed
    ///     True
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |writer, _| writer.close())
    }

    /// Gives it up: there is no new file, and an old one is what it was.
    ///
    /// Examples:
    ///     >>> import os
    ///     >>> w = lowtide.create("new.npy", "uint8", (100,))
    ///     >>> w.discard()
    ///     >>> os.path.exists("new.npy")
    ///     False
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |writer, _| {
            writer.discard();
            Ok(())
        })
    }

    /// The file, as an absolute path; the address of an object, as a string.
    #[getter]
    fn path(&self) -> Name {
        Name(self.path.clone())
    }

    /// The shape so far; of a known number of rows, the whole.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.sizes())
    }

    /// The dtype.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDescr> {
        self.descr.bind(py).clone()
    }

    /// The order of the elements in the file: "C" or "F".
    #[getter]
    fn order(&self) -> &'static str {
        if self.order == Order::C { "C" } else { "F" }
    }

    /// Whether it was closed or discarded.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// How many rows there are so far, along the axis that is written.
    fn __len__(&self) -> usize {
        self.rows()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !kind.is_none() {
            return self.discard(py);
        }
        let closed = self.close(py);
        if closed.is_err() {
            self.discard(py)?; // whoever wants to try again does not leave the block
        }
        closed
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match (self.closed(), self.grows) {
            (true, _) => "closed",
            (false, true) => "grows",
            (false, false) => "open",
        };
        let (path, shape) = (self.path.display(), shape_text(&self.sizes()));
        format!("<lowtide.Writer \"{path}\" shape={shape} dtype={} {state}>", self.descr.bind(py))
    }
}

impl Writer {
    /// How many rows there will be, where that is known.
    fn total(&self) -> Option<u64> {
        (!self.grows).then(|| self.rows() as u64)
    }
}

/// Like a file of Python's that nobody closed, but nothing is there then.
impl Drop for Writer {
    fn drop(&mut self) {
        if self.closed() || self.process != std::process::id() {
            return;
        }
        let (what, door) = match self.began {
            Began::New => ("the file was not made", "create"),
            Began::Old => ("rows since the last flush were not added", "append"),
        };
        let message = format!(
            "{}: the writer was never closed, and {what}\nhint: with lowtide.{door}(...) as w:",
            self.path.display()
        );
        Python::try_attach(|py| {
            // A method that fails may leave nobody with the writer: its exception is on the way to the caller while this
            // runs, and whatever calls Python here would take it for its own.
            let pending = PyErr::take(py);
            // An upload says goodbye over the network: others may go on meanwhile.
            let _ = self.discard(py);
            if let Ok(message) = std::ffi::CString::new(message)
                && let Err(error) = PyErr::warn(py, &py.get_type::<PyResourceWarning>(), &message, 1)
            {
                error.write_unraisable(py, None);
            }
            if let Some(pending) = pending {
                pending.restore(py);
            }
        });
    }
}

/// How far `extend` is.
struct Written {
    rows: u64,
    bytes: u64,
    total: Option<u64>,
}

impl Written {
    fn words(&self, took: Duration) -> String {
        let seconds = took.as_secs_f64().max(1e-3);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate for people
        let rate = human((self.bytes as f64 / seconds) as u64);
        let done = format!("{} rows, {}, {rate}/s", self.rows, human(self.bytes));
        match self.total.filter(|&total| total > 0) {
            Some(total) => format!("{:.0} %  {done}", 100.0 * self.rows as f64 / total as f64),
            None => done,
        }
    }
}

impl Facts for Written {
    fn fill(&self, facts: &Bound<'_, pyo3::types::PyDict>) -> PyResult<()> {
        facts.set_item("rows", self.rows)?;
        facts.set_item("bytes", self.bytes)?;
        facts.set_item("total", self.total)
    }
}
