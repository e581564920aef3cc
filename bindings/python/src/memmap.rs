//! `np.memmap`: adopting one, and giving its mapped pages back.

use crate::dtype;
use crate::error::raise;
use lowtide::Options;
use lowtide::format::{Dtype, Order};
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::ops::Range;
use std::path::PathBuf;

/// Where the elements of a memmap lie in its file.
pub struct Adopted {
    path: PathBuf,
    dtype: Dtype,
    shape: Vec<i64>,
    offset: u64,
    order: Order,
    /// Whether the memmap can be written to.
    written: bool,
    /// The inode of what is mapped: the path may mean another file by now.
    inode: Option<u64>,
}

impl Adopted {
    /// Whether somebody may write to the file through the memmap.
    pub fn is_written(&self) -> bool {
        self.written
    }

    /// Opens the file that is mapped.
    pub fn open(self, options: Options) -> PyResult<lowtide::Array> {
        let array = options
            .dtype(self.dtype)
            .shape(&self.shape)
            .map_err(raise)?
            .offset(self.offset)
            .order(self.order)
            .open(&self.path)
            .map_err(raise)?;
        let meta = array.source().map_err(raise)?.file().metadata()?;
        let now = std::os::unix::fs::MetadataExt::ino(&meta);
        if self.inode.is_some_and(|then| then != now) {
            return Err(PyValueError::new_err(format!(
                "{}: the file has been replaced since the memmap was made\nhint: open it by its path",
                self.path.display()
            )));
        }
        Ok(array)
    }
}

/// What `given` is, if it is a memmap; `None` for paths.
pub fn adopt(given: &Bound<'_, PyAny>) -> PyResult<Option<Adopted>> {
    let py = given.py();
    if !given.is_instance_of::<PyUntypedArray>() {
        return Ok(None);
    }
    let map = base_memmap(given)?;
    refuse_private(&map, "what was written to it is not in the file")?;
    let filename = map.getattr("filename")?;
    if filename.is_none() {
        return Err(PyValueError::new_err(
            "this memmap has no file name: it was made from an open file object\nhint: open the file by its path",
        ));
    }
    let array = given.cast::<PyUntypedArray>()?;
    let flags = given.getattr("flags")?;
    let order = if flags.getattr("c_contiguous")?.is_truthy()? {
        Order::C
    } else if flags.getattr("f_contiguous")?.is_truthy()? {
        Order::Fortran
    } else {
        return Err(PyValueError::new_err(
            "a view with gaps cannot be adopted\nhint: adopt the whole memmap, then index",
        ));
    };
    // A view has its parent's `offset`, not its own, so we count from where the map begins. An empty array
    // has no bytes, and its address means nothing.
    let mapped = map.getattr("_mmap")?;
    let (start, len) = address(&mapped)?;
    let granularity: u64 = py.import("mmap")?.getattr("ALLOCATIONGRANULARITY")?.extract()?;
    let offset: u64 = map.getattr("offset")?.extract()?;
    let at = data(array);
    let distance = at.checked_sub(start).filter(|&d| d <= len).unwrap_or(0);
    Ok(Some(Adopted {
        path: filename.extract()?,
        dtype: dtype::from_python(array.dtype().as_any(), "dtype")?,
        shape: array.shape().iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect(),
        offset: offset / granularity * granularity + distance as u64,
        order,
        written: map.getattr("mode")?.extract::<String>()? != "r",
        inode: mapped_inode(start),
    }))
}

/// Drops the mapped pages of an `np.memmap` in place.
///
/// The array goes on working: pages come back when they are touched. What was written to it stays.
///
/// Args:
///     memmap_array: An `np.memmap`, or a view of one, whose part alone is dropped then.
///
/// Raises:
///     TypeError: It is not an `np.memmap`.
///     ValueError: It is copy-on-write (mode "c"): what was written to it would be lost.
///
/// Examples:
///     >>> import numpy as np
///     >>> rows = np.memmap("rows.bin", dtype="float32", mode="r", shape=(1000, 128))
///     >>> total = rows.sum()  # now all of it counts as memory of this process
///     >>> lowtide.release(rows)
///     >>> bool(rows.sum() == total)
///     True
#[pyfunction]
pub fn release(memmap_array: &Bound<'_, PyAny>) -> PyResult<()> {
    memmap_array.py().import("numpy")?;
    let array = memmap_array
        .cast::<PyUntypedArray>()
        .map_err(|_| PyTypeError::new_err("lowtide.release takes an np.memmap, or a view of one"))?;
    let map = base_memmap(memmap_array)?;
    refuse_private(&map, "dropping its pages would lose what was written to it")?;
    let mapped = map.getattr("_mmap")?;
    let (start, len) = address(&mapped)?;
    let itemsize = array.dtype().itemsize();
    // The bytes between the lowest and the highest element; strides may be negative.
    let (mut low, mut high) = (0isize, itemsize.cast_signed());
    for (&n, &stride) in array.shape().iter().zip(array.strides()) {
        let reach = stride.saturating_mul(n.saturating_sub(1).cast_signed());
        low += reach.min(0);
        high += reach.max(0);
    }
    let at = data(array);
    let page = lowtide::sys::page();
    let from = at.wrapping_add_signed(low).max(start) / page * page;
    let to = at.wrapping_add_signed(high).min(start + len);
    if array.len() > 0 && from < to {
        // `mode` and `_mmap` are attributes that anybody can set: the kernel knows.
        if !is_shared(from, to) {
            return Err(private("dropping its pages would lose what was written to it"));
        }
        // Neighbours on the first and last page are dropped with them; they come back by a fault.
        // SAFETY: the kernel said that all of it is shared. It stays so: the array is alive and holds the buffer of
        // its `mmap`, which Python neither closes nor resizes then.
        memmap_array.py().detach(|| unsafe { lowtide::sys::drop_mapped(from, to - from) })?;
    }
    Ok(())
}

/// The memmap that an array is, or is a view of.
fn base_memmap<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let memmap = given.py().import("numpy")?.getattr("memmap")?;
    let mut at = given.clone();
    while !at.is_none() {
        if at.is_instance(&memmap)? && !at.getattr("_mmap")?.is_none() {
            return Ok(at);
        }
        at = at.getattr_opt("base")?.unwrap_or_else(|| given.py().None().into_bound(given.py()));
    }
    Err(PyTypeError::new_err(
        "this NumPy array is in memory, not an np.memmap\nhint: lowtide reads files; give it a path",
    ))
}

fn refuse_private(map: &Bound<'_, PyAny>, because: &str) -> PyResult<()> {
    match map.getattr("mode")?.extract::<String>()?.as_str() {
        "c" | "copyonwrite" => Err(private(because)),
        _ => Ok(()),
    }
}

fn private(because: &str) -> PyErr {
    PyValueError::new_err(format!("a copy-on-write memmap is private: {because}"))
}

/// Where an array's first element is.
fn data(array: &Bound<'_, PyUntypedArray>) -> usize {
    // SAFETY: a live array object; only the address is taken.
    unsafe { (*array.as_array_ptr()).fields.data as usize }
}

/// Where a Python `mmap` is mapped, and how long it is.
fn address(mapped: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let view = mapped.py().import("numpy")?.call_method1("frombuffer", (mapped, "uint8"))?;
    let view = view.cast_into::<PyUntypedArray>()?;
    Ok((data(&view), view.len()))
}

/// What the kernel says is mapped: where, how, and the inode of the file.
fn mappings() -> Vec<(Range<usize>, String, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let hex = |text: &str| usize::from_str_radix(text, 16).ok();
        Some((hex(from)?..hex(to)?, fields.next()?.to_owned(), fields.nth(2)?.parse().ok()?))
    };
    maps.lines().filter_map(parse).collect()
}

/// The inode of the file that is mapped at `address`. Not its device: btrfs has another one in `stat`.
fn mapped_inode(address: usize) -> Option<u64> {
    mappings().into_iter().find_map(|(range, _, inode)| range.contains(&address).then_some(inode))
}

/// Whether every byte of `from..to` is mapped, and shared with the file: dropping it loses nothing.
fn is_shared(from: usize, to: usize) -> bool {
    let mut at = from;
    for (range, how, _) in mappings() {
        if range.contains(&at) && how.ends_with('s') {
            at = range.end;
        }
    }
    at >= to
}
