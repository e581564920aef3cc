//! What `windows` is given: where they start, and the caller's own memory for them.

use crate::error::raise;
use lowtide::format::Kind;
use numpy::npyffi::{NPY_ARRAY_ALIGNED, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyReadonlyArray1, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// That something does not say where windows start.
fn no_starts(given: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<PyErr> {
    let (axes, dtype) = (array.getattr("ndim")?.extract::<usize>()?, array.getattr("dtype")?);
    let is_object = dtype.getattr("kind")?.extract::<char>()? == 'O';
    let (what, hint) = match axes {
        0 if is_object && given.try_iter().is_ok() => {
            (given.get_type().name()?.to_string(), "\nhint: list(starts) makes one")
        }
        0 if is_object => (given.get_type().name()?.to_string(), ""),
        0 => (format!("a single {dtype}"), "\nhint: [start] is a list of one"),
        1 => (dtype.to_string(), "\nhint: starts.astype(\"int64\"), if they are whole numbers"),
        _ => (format!("{axes} axes of them"), "\nhint: starts.reshape(-1) has one axis"),
    };
    Ok(PyTypeError::new_err(format!("starts must be a list or an array of integers, not {what}{hint}")))
}

/// The starts of windows, as NumPy or anything that it understands has them.
pub fn starts(given: &Bound<'_, PyAny>, tokens: &lowtide::Tokens, block: usize) -> PyResult<Vec<u64>> {
    let py = given.py();
    let one = |start: i128| {
        u64::try_from(start).map_err(|_| {
            let (block, tokens) = (block as u64, tokens.len());
            let last = (i128::from(tokens) - i128::from(block) - 1).max(-1);
            raise(lowtide::Error::Start { start, block, last, tokens })
        })
    };
    let from = |array: PyReadonlyArray1<'_, i64>| -> PyResult<Vec<u64>> {
        array.as_array().iter().map(|&start| one(start.into())).collect()
    };
    if given.is_exact_instance_of::<PyList>()
        && let Ok(list) = given.extract::<Vec<i64>>()
    {
        return list.into_iter().map(|start| one(start.into())).collect();
    }
    if let Ok(array) = given.extract::<PyReadonlyArray1<'_, i64>>() {
        return from(array);
    }
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (given,))?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let empty = array.getattr("size")?.extract::<usize>()? == 0;
    let one_axis = array.getattr("ndim")?.extract::<usize>()? == 1;
    if one_axis
        && kind == "O"
        && let Ok(numbers) = given.extract::<Vec<i128>>()
    {
        return numbers.into_iter().map(one).collect(); // one is too large for NumPy's integers
    }
    if !one_axis || !(empty || kind == "i" || kind == "u") {
        return Err(no_starts(given, &array)?);
    }
    if array.getattr("dtype")?.getattr("str")?.extract::<String>()?.ends_with("u8") {
        return array.extract::<Vec<u64>>(); // a uint64 need not fit in an int64
    }
    from(array.call_method1("astype", ("int64",))?.extract()?)
}

pub fn no_out() -> PyErr {
    PyTypeError::new_err(
        "out must be two NumPy arrays, (x, y)\nhint: tensor.numpy() is an array over a torch tensor's own memory",
    )
}

/// One of the two arrays of `out=`: C-contiguous, writable, native integers, of the right shape. Looked up in NumPy's own
/// structures: by their Python names it takes as long as reading six windows.
pub fn check_out<'a, 'py>(
    out: &'a Bound<'py, PyAny>,
    shape: [usize; 2],
) -> PyResult<(&'a Bound<'py, PyUntypedArray>, Kind)> {
    const WANTED: i32 = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED;
    let array = out.cast::<PyUntypedArray>().map_err(|_| no_out())?;
    let Some(kind) = native_integer(&array.dtype()).filter(|_| array.shape() == shape) else {
        return Err(PyValueError::new_err(format!(
            "out has shape {} and dtype {}, the windows have shape ({}, {}) and are native integers",
            out.getattr("shape")?,
            array.dtype(),
            shape[0],
            shape[1],
        )));
    };
    // SAFETY: a live array object.
    let flags = unsafe { (*array.as_array_ptr()).fields.flags };
    if flags & WANTED != WANTED {
        return Err(PyValueError::new_err("out must be C-contiguous, aligned and writable"));
    }
    Ok((array, kind))
}

/// Which integer a dtype is, in the byte order of this machine.
fn native_integer(descr: &Bound<'_, PyArrayDescr>) -> Option<Kind> {
    if descr.is_native_byteorder() == Some(false) {
        return None;
    }
    Some(match (descr.kind(), descr.itemsize()) {
        (b'i', 1) => Kind::Int8,
        (b'i', 2) => Kind::Int16,
        (b'i', 4) => Kind::Int32,
        (b'i', 8) => Kind::Int64,
        (b'u', 1) => Kind::UInt8,
        (b'u', 2) => Kind::UInt16,
        (b'u', 4) => Kind::UInt32,
        (b'u', 8) => Kind::UInt64,
        _ => return None,
    })
}
