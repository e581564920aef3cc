//! `lowtide.open`, and what a pickle of an array is: how it is opened again.

use crate::argument::{self, Name, Word};
use crate::array::Array;
use crate::error::raise;
use crate::number::Number;
use crate::{budget, dtype, memmap, storage, store};
use lowtide::format::{Container, Layout, Order};
use lowtide::order::Cut;
use lowtide::shards::ArrayFile;
use lowtide::{Access, CacheWish, Options, Was};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::path::PathBuf;

/// Opens an array on disk, to be read inside a fixed amount of memory.
///
/// No more than the header of the file is read here. The settings hold for everything that is made from
/// the array.
///
/// Args:
///     path: A `.npy` file, which says its own dtype and shape; any other file, with `dtype`, `shape` and
///         `offset` as for `np.memmap`; or an `np.memmap`, whose file, dtype, shape and offset are taken.
///         Any of them may be in an object store: "s3://bucket/rows.npy", "gs://…", "az://…", "https://…".
///         Several files are one array whose rows follow each other, all of the same dtype and the same
///         shape of a row: a list of paths, in its order; a folder (its `.npy` files; with `dtype`, those
///         that end in .bin, .raw or .dat) or a glob, sorted by the bytes of the names.
///     dtype: The type of an element, for files without a header: whatever NumPy or torch takes for one.
///     shape: The shape, for files without a header; one size may be -1. One axis if not given. Of several
///         files it is the shape of each.
///     offset: The byte where the elements begin, for files without a header; 0 if not given.
///     astype: The type that elements become as they are read, "float32" for a file of float16, say, or for
///         one of big-endian float32; as `lowtide.Array.astype` has it. The file's own if not given.
///     access: How bytes come from the file.
///         "auto": chooses for each iteration, whose `access` and `why` say which and why.
///         "map": one memory map, held, as `np.memmap` has it; pages that were touched stay.
///         "remap": a new map for every window of the file that is walked, as nanoGPT does for a batch.
///         "advise": one map, and its pages are dropped behind the reader.
///         "read": positioned reads, many in flight where a disk has to be waited for; no map at all.
///         "direct": unbuffered reads, many in flight, past the page cache: for cold files larger than
///         memory.
///     cache: What becomes of the file's pages in the kernel's page cache, which control groups and
///         Kubernetes count.
///         "keep": they stay as long as the kernel likes.
///         "drop": what we add stays within the budget; what was there before us is left alone.
///         "auto": keeps while the file fits in half the room that the machine or its control group has,
///         else drops.
///     budget: How much memory read buffers, read-ahead and mapped windows take together at most: a size
///         like "64MiB", a number of bytes, or a `lowtide.Budget` that several arrays share. The default
///         is the smaller of 256 MiB and a quarter of the room. Arrays that were handed out are the
///         caller's and do not count; `access="map"` is not bounded by it.
///     storage_options: How object stores are reached, in the words of pandas and polars:
///         {"aws_region": "eu-central-1", "endpoint_url": "http://localhost:9000"}, say. What is not said
///         comes from the environment. "timeout" is how long a read may take with all its attempts, "120s"
///         if not given.
///     local_cache: A folder of this machine in which what comes from an object store is kept: a second pass
///         comes from there. Lowtide makes it and marks it; several processes may share it.
///     local_cache_size: Its size, "200GiB" say, which it never exceeds; set aside when it is made. Of one
///         that is there already it need not be given.
///     store: A store of obstore's, such as `obstore.store.S3Store("bucket")`, instead of `storage_options`:
///         `path` is a key in it. Its bucket, prefix and settings are taken; connections are made anew, and
///         one that fetches credentials by a function of Python's is refused.
///
/// Returns:
///     A `lowtide.Array`.
///
/// Raises:
///     OSError: The file cannot be opened; `FileNotFoundError` and `PermissionError` are such errors.
///     ValueError: The file has no header and there is no `dtype`, the shape does not fit in the file,
///         files do not go together, elements cannot become `astype`, or a word or a size is not known. The
///         message says what was expected and what was found.
///     NotImplementedError: The elements are objects or structures.
///     TypeError: `path` is neither a path, nor a list of them, nor an `np.memmap`.
///
/// Examples:
///     >>> a = lowtide.open("rows.npy", budget="64MiB")
///     >>> a.shape, a.dtype
///     ((1000, 128), dtype('float32'))
///     >>> b = lowtide.open("rows.bin", dtype="float32", shape=(-1, 128), access="read", cache="drop")
///     >>> bool((a[:10] == b[:10]).all())
///     True
///     >>> twice = lowtide.open(["rows.npy", "rows.npy"])
///     >>> twice
///     <lowtide.Array "...rows.npy" and 1 more file shape=(2000, 128) dtype=float32 access=auto>
///     >>> import numpy as np
///     >>> old = np.memmap("rows.bin", dtype="float32", mode="r", shape=(1000, 128))
///     >>> lowtide.open(old).shape
///     (1000, 128)
#[pyfunction]
#[pyo3(
    signature = (path, *, dtype=None, shape=None, offset=None, astype=None, access=Word::auto(), cache=Word::auto(), budget=None, storage_options=None, local_cache=None, local_cache_size=None, store=None),
    text_signature = "(path, *, dtype=None, shape=None, offset=None, astype=None, access='auto', cache='auto', budget=None, storage_options=None, local_cache=None, local_cache_size=None, store=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn open(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    offset: Option<Number>,
    astype: Option<&Bound<'_, PyAny>>,
    access: Word,
    cache: Word,
    budget: Option<&Bound<'_, PyAny>>,
    storage_options: Option<&Bound<'_, PyAny>>,
    local_cache: Option<&Bound<'_, PyAny>>,
    local_cache_size: Option<&Bound<'_, PyAny>>,
    store: Option<&Bound<'_, PyAny>>,
) -> PyResult<Array> {
    py.import("numpy")?; // as an exception of Python's: the numpy crate panics where NumPy cannot be imported
    let access: Access = access.parse("access")?;
    let cache: CacheWish = cache.parse("cache")?;
    let astype = astype.map(|given| dtype::from_python(given, "astype")).transpose()?;
    let read_as = |array: Array| match astype {
        Some(dtype) => array.cast(py, dtype),
        None => Ok(array),
    };
    let mut options = Options::new().access(access).cache(cache);
    if let Some(budget) = budget::argument(budget)? {
        options = options.budget(budget);
    }
    let (storage, given) = store::argument(store, storage_options)?;
    let storage = storage::through(py, storage, local_cache, local_cache_size)?;
    if let Some(adopted) = memmap::adopt(path)? {
        if dtype.is_some() || shape.is_some() || offset.is_some() {
            return Err(PyValueError::new_err("a memmap brings its own dtype, shape and offset"));
        }
        let written = adopted.is_written();
        let array = Array::new(py, adopted.open(options)?, access)?;
        if written {
            array.never_compare(py)?;
        }
        return read_as(array);
    }
    if let Some(given) = dtype {
        options = options.dtype(dtype::from_python(given, "dtype")?);
    }
    if let Some(given) = shape {
        options = options.shape(&argument::shape(given, "shape")?).map_err(raise)?;
    }
    if let Some(offset) = offset {
        options = options.offset(offset.named(py, "offset", 0)?);
    }
    options = options.storage(storage.clone());
    let inner = if path.is_instance_of::<PyList>() || path.is_instance_of::<PyTuple>() {
        let paths = argument::paths(path, "files")?;
        let paths = paths.into_iter().map(|path| given.name(path)).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| options.open_all(&paths))
    } else {
        let path = given.name(argument::path(path, "path")?)?;
        py.detach(|| options.open(&path))
    };
    let array = Array::new(py, storage::opened(inner)?, access)?;
    array.keep_options(py, &storage, local_cache_size)?;
    read_as(array)
}

/// What a pickle calls the fingerprint of a file.
pub const FINGERPRINT: &str = "fingerprint";
/// What it calls the files, where there are several.
pub const FILES: &str = "files";
/// What it calls the type that elements become.
pub const AS_TYPE: &str = "astype";
/// What it calls the steps that lead from all rows to a part of them.
pub const CUTS: &str = "cuts";

/// What a pickle says about one of several files.
type Sent = (PathBuf, u64, usize, u64);

pub fn sent(file: &ArrayFile) -> (Name, u64, usize, u64) {
    let rows = file.layout.shape.first().map_or(1, |&n| n);
    (Name(file.path.clone()), file.len, rows, file.layout.offset)
}

/// The file that it was, if it had its rows like the array.
fn received((path, len, rows, offset): Sent, whole: &Layout) -> ArrayFile {
    let mut layout = Layout { offset, ..whole.clone() };
    if let Some(size) = layout.shape.first_mut() {
        *size = rows;
    }
    ArrayFile { path, layout, len }
}

/// What pickle calls: the file must still be the one that it was.
#[pyfunction]
#[pyo3(name = "_reopen")]
pub fn reopen(py: Python<'_>, path: PathBuf, arguments: &Bound<'_, PyDict>) -> PyResult<Array> {
    py.import("numpy")?;
    let get = |key: &str| {
        arguments.get_item(key)?.ok_or_else(|| PyValueError::new_err(format!("no {key} in the pickle")))
    };
    // Older pickles know less.
    let known = |key: &str| Ok::<_, PyErr>(arguments.get_item(key)?.filter(|value| !value.is_none()));
    let access: Access = get("access")?.extract::<String>()?.parse().map_err(raise)?;
    let cache: CacheWish = get("cache")?.extract::<String>()?.parse().map_err(raise)?;
    let order = if get("fortran")?.is_truthy()? { Order::Fortran } else { Order::C };
    let npy = known("npy")?.is_some_and(|npy| npy.is_truthy().unwrap_or(false));
    let was = Was {
        layout: Layout {
            container: if npy { Container::Npy { version: 1 } } else { Container::Raw },
            dtype: get("dtype")?.extract::<String>()?.parse().map_err(raise)?,
            shape: get("shape")?.extract()?,
            order,
            offset: get("offset")?.extract()?,
        },
        len: known("size")?.map(|size| size.extract()).transpose()?,
        fingerprint: known(FINGERPRINT)?.map(|print| print.extract()).transpose()?,
    };
    let options = Options::new()
        .access(access)
        .cache(cache)
        .budget(lowtide::Budget::new(get("budget")?.extract()?).map_err(raise)?);
    let storage = storage::argument(known(storage::OPTIONS)?.as_ref())?;
    let (folder, size) = (known(storage::LOCAL_CACHE)?, known(storage::LOCAL_CACHE_SIZE)?);
    let storage = storage::through(py, storage, folder.as_ref(), size.as_ref())?;
    let options = options.storage(storage.clone());
    let files: Option<Vec<Sent>> = known(FILES)?.map(|files| files.extract()).transpose()?;
    let files =
        files.map(|files| files.into_iter().map(|file| received(file, &was.layout)).collect::<Vec<_>>());
    let inner = py.detach(|| match files {
        Some(files) => options.open_all_again(files, was.fingerprint.as_deref()),
        None => options.open_again(&path, &was),
    });
    let inner = storage::opened(inner)?;
    let mut array = Array::new(py, inner, access)?;
    array.keep_options(py, &storage, size.as_ref())?;
    if was.fingerprint.is_none() && arguments.contains(FINGERPRINT)? {
        array.never_compare(py)?;
    }
    if let Some(dtype) = known(AS_TYPE)? {
        array = array.cast(py, dtype.extract::<String>()?.parse().map_err(raise)?)?;
    }
    let Some(cuts) = known(CUTS)? else { return Ok(array) };
    let cuts: Vec<(Option<u64>, u64, u64)> = cuts.extract()?;
    let cut = |part: lowtide::Array, (seed, start, end)| part.cut(&Cut { seed, rows: start..end });
    let part = cuts.into_iter().try_fold(array.inner.clone(), cut).map_err(raise)?;
    array.derived(py, part)
}
