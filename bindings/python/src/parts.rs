//! `rows` and `split`: what is said about parts of arrays, and how arrays show which files and rows they are.

use lowtide::Sizes;
use lowtide::order::Order;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PySlice;
use std::fmt::Write;
use std::ops::Range;

/// The rows of a slice, of so many.
pub fn range(
    py: Python<'_>,
    start: Option<&Bound<'_, PyAny>>,
    stop: Option<&Bound<'_, PyAny>>,
    rows: u64,
) -> PyResult<Range<u64>> {
    // Python's own slice knows what negative numbers and None mean.
    let slice = py.get_type::<PySlice>().call1((start, stop))?;
    let (start, stop, _): (u64, u64, i64) = slice.call_method1("indices", (rows,))?.extract()?;
    Ok(start..stop.max(start))
}

/// The sizes of the parts of so many rows.
pub fn sizes(given: &Bound<'_, PyAny>, rows: u64) -> PyResult<Sizes> {
    if let Ok(first) = given.extract::<u64>() {
        return Ok(Sizes::Rows(vec![first, rows.saturating_sub(first)]));
    }
    if let Ok(share) = given.extract::<f64>() {
        return Ok(Sizes::Shares(vec![share, 1.0 - share]));
    }
    if let Ok(parts) = given.extract::<Vec<u64>>() {
        return Ok(Sizes::Rows(parts));
    }
    match given.extract::<Vec<f64>>() {
        Ok(shares) => Ok(Sizes::Shares(shares)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "sizes must be a share such as 0.9, a number of rows, or a list of either, not {}",
            given.repr()?
        ))),
    }
}

/// How many files there are besides the first, for a repr; nothing where there are none.
fn more(array: &lowtide::Array) -> String {
    match array.files().map_or(0, |files| files.len() - 1) {
        0 => String::new(),
        1 => " and 1 more file".into(),
        more => format!(" and {more} more files"),
    }
}

/// Which files besides the first, and which part of the rows, for a repr; nothing where it is all of one file.
pub fn shown(array: &lowtide::Array) -> String {
    let mut shown = String::new();
    if array.is_whole() {
        return more(array);
    }
    let whole = array.layout().shape.first().map_or(1, |&n| n as u64);
    let mut of = whole;
    for cut in array.part().cuts() {
        let (start, end) = (cut.rows.start, cut.rows.end);
        if cut.seed.is_none() && (start, end) == (0, of) {
            continue;
        }
        let _ = write!(shown, "{} {start}:{end} of {of}", if shown.is_empty() { " rows" } else { "," });
        if let Some(seed) = cut.seed {
            let _ = write!(shown, " dealt by seed {seed}");
        }
        of = end - start;
    }
    debug_assert_eq!(of, array.part().len());
    more(array) + &shown
}
