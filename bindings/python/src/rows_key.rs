//! The key of `w[start:stop] = chunk`: which rows are written.

use pyo3::exceptions::{PyIndexError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PySlice, PySliceMethods, PyTuple};

/// Neighbouring rows.
pub struct Chosen {
    pub start: usize,
    pub rows: usize,
    /// Whether it was a number: the value has no axis for it.
    pub single: bool,
}

/// Which rows of an array of this shape, whose rows go along `axis`, a key means.
pub fn parse(key: &Bound<'_, PyAny>, shape: &[usize], axis: usize) -> PyResult<Chosen> {
    let keys: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    // What an ellipsis stands for, one at most: the axes that are not named.
    let dots = keys.iter().position(|key| key.is_instance_of::<PyEllipsis>());
    let named = keys.len() - usize::from(dots.is_some());
    if named > shape.len() {
        return Err(PyIndexError::new_err(format!("{named} indices for an array of {} axes", shape.len())));
    }
    let at = |i: usize| match dots {
        Some(dots) if i < dots => Some(&keys[i]),
        Some(dots) => i.checked_sub(shape.len() - named).filter(|&i| i >= dots).map(|i| &keys[i + 1]),
        None => keys.get(i),
    };
    for (i, &size) in shape.iter().enumerate().filter(|&(i, _)| i != axis) {
        let whole = at(i).is_none_or(|key| all(key, size));
        if !whole {
            return Err(refused(axis, shape.len()));
        }
    }
    let size = shape[axis];
    let Some(key) = at(axis) else { return Ok(Chosen { start: 0, rows: size, single: false }) };
    if let Ok(slice) = key.cast::<PySlice>() {
        let indices = slice.indices(isize::try_from(size).unwrap_or(isize::MAX))?;
        if indices.step != 1 {
            return Err(refused(axis, shape.len()));
        }
        let start = usize::try_from(indices.start).unwrap_or(0);
        return Ok(Chosen { start, rows: indices.slicelength, single: false });
    }
    let Ok(index) = key.extract::<i128>() else { return Err(refused(axis, shape.len())) };
    let counted = if index < 0 { index + size as i128 } else { index };
    match usize::try_from(counted) {
        Ok(start) if start < size => Ok(Chosen { start, rows: 1, single: true }),
        _ => Err(PyIndexError::new_err(format!(
            "index {index} is out of bounds for axis {axis} with size {size}"
        ))),
    }
}

/// Whether a key means all of an axis.
fn all(key: &Bound<'_, PyAny>, size: usize) -> bool {
    let size = isize::try_from(size).unwrap_or(isize::MAX);
    let slice = key.cast::<PySlice>().ok().and_then(|slice| slice.indices(size).ok());
    slice.is_some_and(|slice| (slice.start, slice.step, slice.slicelength) == (0, 1, size.unsigned_abs()))
}

fn refused(axis: usize, count: usize) -> PyErr {
    let hint =
        if axis == 0 { "w[start:stop] = chunk" } else { "w[..., start:stop] = chunk, in Fortran order" };
    let axis = if axis + 1 == count && count > 1 { "last" } else { "first" };
    PyNotImplementedError::new_err(format!(
        "only whole rows that are neighbours can be written, along the {axis} axis\nhint: {hint}"
    ))
}
