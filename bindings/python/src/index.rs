//! `a[...]`: NumPy's index as a selection of ours. What is not supported says so; nothing is guessed.

use crate::batch::Shown;
use crate::error::raise;
use lowtide::{Axis, Error};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyIndexError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyList, PySlice, PyTuple};

/// What an index selects, and how the answer's axes are shown.
pub struct Selected {
    /// One entry for each axis of the array.
    pub axes: Vec<Axis>,
    /// One entry for each axis of the array.
    pub shown: Vec<Shown>,
    /// Whether the answer is a single element, which NumPy gives as a scalar.
    pub scalar: bool,
}

/// Reads an index for an array of `shape`.
pub fn parse(key: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<Selected> {
    let entries: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    let ellipses = entries.iter().filter(|e| e.is_instance_of::<PyEllipsis>()).count();
    let named = entries.len() - ellipses;
    if ellipses > 1 {
        return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
    }
    if entries.iter().any(|e| e.is_none()) {
        return Err(PyNotImplementedError::new_err(
            "np.newaxis is not supported here\nhint: index first, then reshape the answer",
        ));
    }
    for entry in &entries {
        if is_bool(entry)? {
            return Err(PyNotImplementedError::new_err(
                "a single True or False as an index adds an axis in NumPy; that is not supported here\n\
                 hint: a mask has one entry for each row",
            ));
        }
    }
    if named > shape.len() {
        return Err(PyIndexError::new_err(format!(
            "too many indices for array: array is {}-dimensional, but {named} were indexed",
            shape.len()
        )));
    }
    // Before any of them is looked into: NumPy broadcasts them, and where that leaves nothing it checks no bounds.
    if entries.iter().filter(|e| is_list(e)).count() > 1 {
        return Err(PyNotImplementedError::new_err(
            "lists and masks are supported on the first axis only, one at a time\n\
             hint: index the answer: a[rows][:, columns], or a[rows][np.arange(len(rows)), columns] for pairs",
        ));
    }
    let mut selected = Selected {
        axes: Vec::with_capacity(shape.len()),
        shown: Vec::with_capacity(shape.len()),
        scalar: ellipses == 0,
    };
    for entry in &entries {
        if entry.is_instance_of::<PyEllipsis>() {
            for _ in named..shape.len() {
                selected.whole(shape);
            }
        } else {
            selected.push(entry, shape)?;
        }
    }
    while selected.axes.len() < shape.len() {
        selected.whole(shape);
    }
    selected.scalar &= selected.shown.iter().all(|s| matches!(s, Shown::Dropped));
    Ok(selected)
}

impl Selected {
    /// All of the next axis.
    fn whole(&mut self, shape: &[usize]) {
        self.axes.push(Axis::all(shape[self.axes.len()]));
        self.shown.push(Shown::Kept);
    }

    /// What `entry` takes of the next axis.
    fn push(&mut self, entry: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<()> {
        let axis = self.axes.len();
        let n = shape[axis];
        if let Ok(slice) = entry.cast::<PySlice>() {
            let length = isize::try_from(n).unwrap_or(isize::MAX);
            let at = slice.indices(length)?;
            let start = usize::try_from(at.start).unwrap_or(0); // -1 only where nothing is selected
            self.axes.push(Axis::Range { start, step: at.step, count: at.slicelength });
            self.shown.push(Shown::Kept);
            return Ok(());
        }
        if !entry.is_instance_of::<PyList>() {
            // Anything with __index__, which includes NumPy's integers and 0-d arrays of them.
            if let Ok(index) = entry.call_method0("__index__") {
                let index = index.extract::<i128>().unwrap_or(i128::MAX);
                let start = inside(index, axis, n)?;
                self.axes.push(Axis::Range { start, step: 1, count: 1 });
                self.shown.push(Shown::Dropped);
                return Ok(());
            }
        }
        let (list, sizes) = list(entry, axis, shape)?;
        if axis > 0 {
            return Err(PyNotImplementedError::new_err(format!(
                "lists and masks are supported on the first axis only, not on axis {axis}\n\
                 hint: a.take(indices, axis={axis}), or index the answer: a[rows][:, columns]"
            )));
        }
        self.axes.push(Axis::List(list));
        self.shown.push(Shown::Shaped(sizes));
        Ok(())
    }
}

/// A list, or an array that is no single number.
fn is_list(entry: &Bound<'_, PyAny>) -> bool {
    entry.is_instance_of::<PyList>() || entry.cast::<PyUntypedArray>().is_ok_and(|array| array.ndim() > 0)
}

/// True, False, and NumPy's: a scalar or an array without axes.
fn is_bool(entry: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(array) = entry.cast::<PyUntypedArray>() {
        return Ok(array.ndim() == 0 && array.dtype().kind() == b'b');
    }
    let numpy = entry.py().import("numpy")?;
    Ok(entry.is_instance_of::<PyBool>() || entry.is_instance(&numpy.getattr("bool_")?)?)
}

/// An index as a row number: negative ones count from the end.
fn inside(index: i128, axis: usize, n: usize) -> PyResult<usize> {
    let from_start = if index < 0 { index + n as i128 } else { index };
    match usize::try_from(from_start) {
        Ok(row) if row < n => Ok(row),
        _ => Err(raise(Error::Index { index, axis, size: n as u64 })),
    }
}

/// A list, an array of integers or a mask, as row numbers, with the shape it had.
pub fn list(given: &Bound<'_, PyAny>, axis: usize, shape: &[usize]) -> PyResult<(Vec<usize>, Vec<usize>)> {
    let n = shape[axis];
    let numpy = given.py().import("numpy")?;
    let array = numpy.call_method1("asarray", (given,))?;
    let sizes: Vec<usize> = array.getattr("shape")?.extract()?;
    let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
    let empty = sizes.contains(&0);
    match kind.as_str() {
        "b" => {
            check_mask(&sizes, axis, shape)?;
            let rows = array.call_method0("nonzero")?.get_item(0)?;
            let rows = integers(&rows, axis, n)?;
            let count = rows.len();
            Ok((rows, vec![count]))
        }
        "i" | "u" => Ok((integers(&array, axis, n)?, sizes)),
        // np.asarray([]) is an array of floats; NumPy takes an empty list (tuple, range) all the same.
        "f" if empty && !given.is_instance_of::<PyUntypedArray>() => Ok((Vec::new(), sizes)),
        _ => Err(PyIndexError::new_err("arrays used as indices must be of integer (or boolean) type")),
    }
}

/// That a mask of these sizes can select on `axis`. NumPy's refusals come before ours.
fn check_mask(sizes: &[usize], axis: usize, shape: &[usize]) -> PyResult<()> {
    if sizes.len() > shape.len() - axis {
        return Err(PyIndexError::new_err(format!(
            "too many indices for array: array is {}-dimensional, but {} were indexed",
            shape.len(),
            axis + sizes.len()
        )));
    }
    for (i, (size, n)) in sizes.iter().zip(&shape[axis..]).enumerate() {
        if size != n {
            return Err(PyIndexError::new_err(format!(
                "boolean index did not match indexed array along axis {}; size of axis is {n} but size of \
                 corresponding boolean axis is {size}",
                axis + i
            )));
        }
    }
    match sizes.len() {
        1 => Ok(()),
        _ => Err(PyNotImplementedError::new_err(
            "masks over several axes are not supported\nhint: a mask has one entry for each row",
        )),
    }
}

fn integers(array: &Bound<'_, PyAny>, axis: usize, n: usize) -> PyResult<Vec<usize>> {
    use numpy::{PyArray1, PyArrayMethods};
    let numpy = array.py().import("numpy")?;
    let flat = array.call_method0("ravel")?;
    // A uint64 above 2^63 would come out negative: and mean another row.
    let wide = if flat.getattr("dtype")?.getattr("str")?.extract::<String>()?.ends_with("u8") {
        "uint64"
    } else {
        "int64"
    };
    let flat = numpy.call_method1("ascontiguousarray", (flat, wide))?;
    if wide == "uint64" {
        let flat = flat.cast_into::<PyArray1<u64>>()?.readonly();
        return flat.as_slice()?.iter().map(|&i| inside(i.into(), axis, n)).collect();
    }
    let flat = flat.cast_into::<PyArray1<i64>>()?.readonly();
    flat.as_slice()?.iter().map(|&i| inside(i.into(), axis, n)).collect()
}
