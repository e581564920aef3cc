//! Arguments that are words, flags, shapes and paths: what is said of a wrong one names it and lists what is allowed.

use crate::error::raise;
use lowtide::Error;
use lowtide::store::is_url;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use std::path::PathBuf;
use std::str::FromStr;

/// A word such as `access="auto"`, or whatever was given instead of one, as Python shows it.
#[derive(Debug)]
pub enum Word {
    Said(String),
    Other(String),
}

impl Word {
    /// The default of most arguments.
    pub fn auto() -> Self {
        Self::said("auto")
    }

    /// The default of an argument.
    pub fn said(word: &str) -> Self {
        Self::Said(word.into())
    }

    /// What it means as the argument `name`.
    pub fn parse<T: FromStr<Err = Error>>(&self, name: &str) -> PyResult<T> {
        self.parse_renamed(name, &[])
    }

    /// The same where the call has other names for settings than the core: pairs of the core's and its own.
    pub fn parse_renamed<T: FromStr<Err = Error>>(
        &self,
        name: &str,
        names: &[(&str, &'static str)],
    ) -> PyResult<T> {
        match self {
            Self::Said(word) => word.parse().map_err(|error: Error| raise(error.renamed(names))),
            Self::Other(shown) => {
                let allowed = "".parse::<T>().err().map(|error| error.hint().to_string()).unwrap_or_default();
                Err(PyTypeError::new_err(format!("{name}={shown} is not a word\nhint: {allowed}")))
            }
        }
    }

    /// As the argument `name`, of which any text is good.
    pub fn text(self, name: &str) -> PyResult<String> {
        match self {
            Self::Said(text) => Ok(text),
            Self::Other(shown) => Err(PyTypeError::new_err(format!("{name}={shown} must be a str"))),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Word {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(match given.cast::<PyString>() {
            Ok(word) => Self::Said(word.to_str()?.to_owned()),
            Err(_) => Self::Other(shown(&given)?),
        })
    }
}

/// `True` or `False` (NumPy's too), or whatever was given instead, as Python shows it.
#[derive(Debug)]
pub enum Flag {
    Said(bool),
    Other(String),
}

impl Flag {
    /// The defaults of arguments.
    pub const ON: Self = Self::Said(true);
    pub const OFF: Self = Self::Said(false);

    /// What it means as the argument `name`.
    pub fn parse(self, name: &str) -> PyResult<bool> {
        match self {
            Self::Said(flag) => Ok(flag),
            Self::Other(shown) => Err(PyTypeError::new_err(format!("{name}={shown} must be True or False"))),
        }
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Flag {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        given.extract().map_or_else(|_: PyErr| Ok(Self::Other(shown(&given)?)), |flag| Ok(Self::Said(flag)))
    }
}

/// The sizes of a shape, the argument `name`: a number, or a sequence of them.
pub fn shape(given: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<i64>> {
    let sizes = match given.extract::<i64>() {
        Ok(size) => Ok(vec![size]),
        Err(_) => given.extract::<Vec<i64>>(),
    };
    match sizes {
        Ok(sizes) => Ok(sizes),
        Err(_) => Err(PyTypeError::new_err(format!(
            "{name}={} is not a shape\nhint: a whole number or a tuple of them, such as (-1, 128)",
            shown(given)?
        ))),
    }
}

/// The path that is the argument `name`.
pub fn path(given: &Bound<'_, PyAny>, name: &str) -> PyResult<PathBuf> {
    decoded(given).map_err(|error| match shown(given) {
        Ok(shown) if error.is_instance_of::<PyTypeError>(given.py()) => {
            PyTypeError::new_err(format!("{name}={shown} is not a path"))
        }
        _ => error,
    })
}

/// A path as people write it: `~` is their home. Bytes are paths too. `pathlib` makes one slash of the two in an address.
fn decoded(given: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let os = given.py().import("os")?;
    let name = os.call_method1("fsdecode", (given,))?;
    let path: PathBuf = os.getattr("path")?.call_method1("expanduser", (name,))?.extract()?;
    let address =
        path.to_str().and_then(|text| text.split_once(":/")).filter(|(_, rest)| !rest.starts_with('/'));
    if let Some((scheme, rest)) = address
        && !given.is_instance_of::<PyString>()
    {
        let address = PathBuf::from(format!("{scheme}://{rest}"));
        if is_url(&address) {
            return Ok(address);
        }
    }
    Ok(path)
}

/// A name as Python gets it: a `pathlib.Path`, or a `str` where it is an address.
pub struct Name(pub PathBuf);

impl<'py> IntoPyObject<'py> for Name {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if is_url(&self.0) {
            Ok(self.0.into_os_string().into_pyobject(py)?.into_any())
        } else {
            Ok(self.0.into_pyobject(py)?.into_any())
        }
    }
}

/// One path, or several, of what is called `noun` in messages.
pub fn paths(given: &Bound<'_, PyAny>, noun: &str) -> PyResult<Vec<PathBuf>> {
    let py = given.py();
    let decode = |path: &Bound<'_, PyAny>| -> PyResult<PathBuf> {
        decoded(path).map_err(|error| {
            if error.is_instance_of::<PyTypeError>(py) { no_path(path, noun) } else { error }
        })
    };
    match given.cast::<PyList>() {
        Ok(list) => list.iter().map(|path| decode(&path)).collect(),
        Err(_) => match given.cast::<PyTuple>() {
            Ok(tuple) => tuple.iter().map(|path| decode(&path)).collect(),
            Err(_) => Ok(vec![decode(given)?]),
        },
    }
}

/// That something is no path. An iterator or a set is not made into a list here: the order of files is the
/// order of the stream, and theirs may be another one tomorrow.
fn no_path(given: &Bound<'_, PyAny>, noun: &str) -> PyErr {
    let name = given.get_type().name().map_or_else(|_| "this".into(), |name| name.to_string());
    let has = |name: &str| given.hasattr(name).unwrap_or(false);
    let hint = if has("filename") {
        "\nhint: name its file: lowtide.tokens(array.filename, dtype=array.dtype)"
    } else if has("read") {
        "\nhint: give the file's name"
    } else if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        "\nhint: the list is flat"
    } else if given.try_iter().is_ok() {
        "\nhint: sorted(paths) makes a list, in an order that stays the same"
    } else {
        ""
    };
    PyTypeError::new_err(format!("{noun} are named by a path or a list of paths, not by {name}{hint}"))
}

/// As Python shows it, in at most 60 characters.
pub fn shown(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let whole = given.repr()?.to_string();
    let mut short: String = whole.chars().take(60).collect();
    if short.len() < whole.len() {
        short.push('…');
    }
    Ok(short)
}
