//! A batch as a NumPy array, without a copy: the array owns the batch's memory.

use lowtide::Batch;
use lowtide::format::{Element, Order};
use lowtide::pool::Block;
use numpy::npyffi::{
    NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE, NpyTypes, PY_ARRAY_API, get_type_object, npy_intp,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::ffi::c_int;

/// What keeps a batch's memory while NumPy looks at it, and returns it to the pool afterwards.
#[pyclass(frozen, module = "lowtide._lowtide")]
struct BatchMemory {
    block: Block,
}

/// An axis of the answer, or several. What an integer index takes is not among them.
#[derive(Clone, Debug)]
pub enum Shown {
    /// This axis of the batch, as it is.
    Kept(usize),
    /// This axis of the batch, as an index array of this shape.
    Shaped(usize, Vec<usize>),
    /// `np.newaxis`.
    New,
}

/// The batch as an array of its own shape.
pub fn ndarray<'py>(
    py: Python<'py>,
    batch: Batch,
    descr: &Bound<'py, PyArrayDescr>,
) -> PyResult<Bound<'py, PyAny>> {
    let shown: Vec<Shown> = (0..batch.shape().len()).map(Shown::Kept).collect();
    shaped(py, batch, descr, &shown)
}

/// The batch as an array whose axes are shown as `shown` says.
pub fn shaped<'py>(
    py: Python<'py>,
    batch: Batch,
    descr: &Bound<'py, PyArrayDescr>,
    shown: &[Shown],
) -> PyResult<Bound<'py, PyAny>> {
    let (dims, strides) = view(batch.shape(), batch.order(), batch.dtype().itemsize(), shown);
    let memory = Bound::new(py, BatchMemory { block: batch.into_block() })?;
    let data = memory.get().block.as_ptr();
    let rank = c_int::try_from(dims.len()).map_err(|_| PyMemoryError::new_err("too many axes"))?;
    // SAFETY: dims and strides describe exactly the block's bytes, which are aligned to 64 and initialised. The
    // new array holds a reference to `memory`, so the block outlives it, and nobody else ever writes to the
    // block: a block goes back to the pool only when `memory` is dropped. NewFromDescr steals one reference
    // to the descr and SetBaseObject one to the memory, also when they fail.
    unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            get_type_object(py, NpyTypes::PyArray_Type),
            descr.clone().into_ptr().cast(),
            rank,
            dims.as_ptr().cast_mut(),
            strides.as_ptr().cast_mut(),
            data.cast(),
            NPY_ARRAY_WRITEABLE | NPY_ARRAY_ALIGNED,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, array)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), memory.into_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(array)
    }
}

/// Sizes and byte strides of the shown axes.
fn view(shape: &[usize], order: Order, itemsize: usize, shown: &[Shown]) -> (Vec<npy_intp>, Vec<npy_intp>) {
    let intp = |n: usize| npy_intp::try_from(n).unwrap_or(npy_intp::MAX); // sizes fit in 63 bits: checked when opened
    let mut strides = vec![0; shape.len()];
    let mut stride = itemsize;
    let mut set = |axis: usize| {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis].max(1));
    };
    match order {
        Order::C => (0..shape.len()).rev().for_each(&mut set),
        Order::Fortran => (0..shape.len()).for_each(&mut set),
    }
    let (mut dims, mut steps) = (Vec::new(), Vec::new());
    for shown in shown {
        match shown {
            Shown::New => {
                dims.push(1);
                steps.push(0);
            }
            Shown::Kept(axis) => {
                dims.push(intp(shape[*axis]));
                steps.push(intp(strides[*axis]));
            }
            Shown::Shaped(axis, sizes) => {
                for i in 0..sizes.len() {
                    dims.push(intp(sizes[i]));
                    steps.push(intp(strides[*axis].saturating_mul(sizes[i + 1..].iter().product())));
                }
            }
        }
    }
    (dims, steps)
}

/// The bytes of a caller's array, to be filled while the interpreter lock is released.
pub struct Out {
    start: *mut u8,
    len: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: the bytes stay where they are as long as `_array` is referenced; see `bytes` for who may touch them.
unsafe impl Send for Out {}

impl Out {
    /// Of an array that is C-contiguous and writable: the caller of this function checked that.
    pub fn new(array: &Bound<'_, PyUntypedArray>, len: usize) -> Self {
        // SAFETY: a live array object.
        let start = unsafe { (*array.as_array_ptr()).fields.data.cast() };
        Self { start, len, _array: array.clone().unbind() }
    }

    /// The bytes. Like NumPy itself, which also releases the lock, we rely on the caller not to use an
    /// array that is being filled from another thread.
    pub fn bytes(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: contiguous, writable, `len` bytes long, alive through `_array`; not ours, so no other `&mut`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The bytes as numbers of the array's own type, which the caller of this function checked.
    pub fn numbers<T: Element>(&mut self) -> &mut [T] {
        // SAFETY: `Element` is sealed: plain numbers, of which every bit pattern is one.
        let (before, numbers, after) = unsafe { self.bytes().align_to_mut::<T>() };
        debug_assert!(before.is_empty() && after.is_empty(), "NumPy's own arrays are aligned");
        numbers
    }
}

/// The bytes of a caller's array, to be read while the interpreter lock is released.
pub struct In {
    start: *const u8,
    len: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: the bytes stay where they are as long as `_array` is referenced, and nothing here writes to them.
unsafe impl Send for In {}

impl In {
    /// Of an array that is C-contiguous: the caller of this function checked that.
    pub fn new(array: &Bound<'_, PyUntypedArray>) -> Self {
        let len = PyUntypedArrayMethods::len(array) * array.dtype().itemsize();
        // SAFETY: a live array object.
        let start = unsafe { (*array.as_array_ptr()).fields.data.cast_const().cast() };
        Self { start, len, _array: array.clone().unbind() }
    }

    /// The bytes. Like NumPy's own `tofile`, which also releases the lock, we rely on the caller not to write to the
    /// array from another thread meanwhile.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: contiguous, `len` bytes long, alive through `_array`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}
