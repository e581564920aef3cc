//! `storage_options=`: how object stores are reached, in the words of pandas, polars and fsspec.

use lowtide::Error;
use lowtide::store::{LocalCache, Storage};
use lowtide::write::Far;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What a pickle calls the options.
pub const OPTIONS: &str = "storage_options";

/// What a signal's handler raised while an answer was waited for: who asked for it gets it.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// The exception of a signal's handler, if there was one.
pub fn raised() -> Option<PyErr> {
    RAISED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
}

/// What was given, as words and values. fsspec has a dictionary inside the dictionary.
pub fn words(given: &Bound<'_, PyDict>, into: &mut BTreeMap<String, String>) -> PyResult<()> {
    for (word, value) in given {
        let Ok(word) = word.cast::<PyString>() else {
            return Err(PyTypeError::new_err(format!("storage_options: {} is not a word", word.repr()?)));
        };
        let word = word.to_str()?.to_owned();
        if value.is_none() {
            continue;
        }
        if let Ok(inner) = value.cast::<PyDict>() {
            if word != "client_kwargs" {
                return Err(PyTypeError::new_err(format!(
                    "storage_options: the value of {word:?} is a dictionary\nhint: values are strings"
                )));
            }
            words(inner, into)?;
        } else if let Ok(flag) = value.cast::<PyBool>() {
            into.insert(word, if flag.is_true() { "true".into() } else { "false".into() });
        } else {
            into.insert(word, value.str()?.to_str()?.to_owned());
        }
    }
    Ok(())
}

/// How object stores are reached: as `given`, which may be nothing, and as the environment says.
pub fn argument(given: Option<&Bound<'_, PyAny>>) -> PyResult<Storage> {
    let mut options = BTreeMap::new();
    if let Some(given) = given.filter(|given| !given.is_none()) {
        let Ok(given) = given.cast::<PyDict>() else {
            return Err(PyTypeError::new_err(format!(
                "storage_options={} is not a dictionary\nhint: such as {{\"aws_region\": \"eu-central-1\"}}",
                given.repr()?
            )));
        };
        words(given, &mut options)?;
    }
    with(options)
}

/// The same with these words and values.
pub fn with(options: BTreeMap<String, String>) -> PyResult<Storage> {
    let storage = Storage::new(options).map_err(crate::error::raise)?;
    Ok(storage.interrupted_by(|| {
        // Once something was raised, nothing is waited for any more until somebody has got it.
        let pending = || RAISED.lock().is_ok_and(|raised| raised.is_some());
        if pending() {
            return Err(Error::Interrupted);
        }
        Python::attach(|py| py.check_signals()).map_err(|exception| {
            *RAISED.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(exception);
            Error::Interrupted
        })
    }))
}

/// How an object store is reached that something is made for, and where it is made.
pub fn far(options: Option<&Bound<'_, PyAny>>, work: Option<&Bound<'_, PyAny>>) -> PyResult<Far> {
    let work =
        work.filter(|work| !work.is_none()).map(|work| crate::argument::path(work, "work")).transpose()?;
    Ok(Far { storage: argument(options)?, work })
}

/// What came of opening something, unless a signal's handler raised meanwhile.
pub fn opened<T>(answer: lowtide::Result<T>) -> PyResult<T> {
    match (answer, raised()) {
        (_, Some(exception)) => Err(exception),
        (answer, None) => answer.map_err(crate::error::raise),
    }
}

/// What a pickle calls the folder of a local cache, and its size.
pub const LOCAL_CACHE: &str = "local_cache";
pub const LOCAL_CACHE_SIZE: &str = "local_cache_size";

/// The same through a cache in a folder of this machine.
pub fn through(
    py: Python<'_>,
    storage: Storage,
    folder: Option<&Bound<'_, PyAny>>,
    size: Option<&Bound<'_, PyAny>>,
) -> PyResult<Storage> {
    let (folder, size) = (folder.filter(|folder| !folder.is_none()), size.filter(|size| !size.is_none()));
    let Some(folder) = folder else {
        return match size {
            Some(_) => Err(PyValueError::new_err(
                "local_cache_size= is the size of local_cache=, which is not given",
            )),
            None => Ok(storage),
        };
    };
    let folder = crate::argument::path(folder, LOCAL_CACHE)?;
    let size = size.map(|size| crate::budget::size(size, LOCAL_CACHE_SIZE, 1)).transpose()?;
    let cache = py.detach(|| match size {
        Some(size) => LocalCache::open(&folder, size),
        None => LocalCache::open_existing(&folder),
    });
    Ok(storage.cached_in(cache.map_err(crate::error::raise)?))
}

/// The options for a pickle, where there are any.
pub fn keep(
    storage: &Storage,
    cache_size: Option<&Bound<'_, PyAny>>,
    arguments: &Bound<'_, PyDict>,
) -> PyResult<()> {
    if !storage.options().is_empty() {
        let options = PyDict::new(arguments.py());
        for (word, value) in storage.options() {
            options.set_item(word, value)?;
        }
        arguments.set_item(OPTIONS, options)?;
    }
    if let Some(cache) = storage.cache() {
        arguments.set_item(LOCAL_CACHE, cache.dir())?;
        arguments.set_item(LOCAL_CACHE_SIZE, cache_size)?;
    }
    Ok(())
}
