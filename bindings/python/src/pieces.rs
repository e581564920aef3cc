//! An array of a caller's as bytes of a file: as they are, or converted piece by piece in little memory.

use crate::batch::In;
use lowtide::write::Part;
use lowtide::{Error, Interrupt};
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use pyo3::types::PySlice;

/// Writes an array piece by piece.
pub struct Pieces<'a, 'w> {
    /// The dtype of the file.
    pub descr: Py<PyArrayDescr>,
    /// How many bytes may be converted at once.
    pub scratch: usize,
    pub part: &'a mut Part<'w>,
    pub interrupt: Interrupt<'a>,
    /// What Python raised.
    pub raised: &'a mut Option<PyErr>,
}

/// What is done with an array.
enum Step {
    /// Its bytes are written as they are.
    Bytes(In),
    /// Pieces of so many along its first axis are taken one by one; one is taken without that axis.
    Split { len: usize, step: usize },
}

impl Pieces<'_, '_> {
    /// Called without the interpreter's lock.
    pub fn put(&mut self, array: Py<PyAny>) -> lowtide::Result<()> {
        let step = self.python(|py, pieces| pieces.step(array.bind(py)))?;
        match step {
            Step::Bytes(bytes) => {
                let written = self.part.write(bytes.bytes(), self.interrupt);
                // Here and not some time later: the next piece takes its memory.
                Python::attach(|_| drop((bytes, array)));
                written
            }
            Step::Split { len, step } => {
                for start in (0..len).step_by(step) {
                    let piece = self.python(|py, _| {
                        let array = array.bind(py);
                        let piece = if step == 1 {
                            array.get_item((start, py.Ellipsis()))?
                        } else {
                            let end = len.min(start.saturating_add(step));
                            array.get_item(PySlice::new(py, index(start), index(end), 1))?
                        };
                        Ok(piece.unbind())
                    })?;
                    self.put(piece)?;
                }
                Ok(())
            }
        }
    }

    fn step(&self, array: &Bound<'_, PyAny>) -> PyResult<Step> {
        let py = array.py();
        let descr = self.descr.bind(py);
        let contiguous = array.getattr("flags")?.getattr("c_contiguous")?.is_truthy()?;
        if contiguous && array.getattr("dtype")?.eq(descr)? {
            return Ok(Step::Bytes(In::new(array.cast()?)));
        }
        let (count, item): (usize, usize) =
            (array.getattr("size")?.extract()?, descr.getattr("itemsize")?.extract()?);
        let bytes = count.saturating_mul(item);
        if bytes <= self.scratch || count <= 1 {
            let array = py.import("numpy")?.call_method1("ascontiguousarray", (array, descr))?;
            return Ok(Step::Bytes(In::new(array.cast()?)));
        }
        let len = array.len()?;
        Ok(Step::Split { len, step: (self.scratch / (bytes / len)).max(1) })
    }

    /// Asks Python; what it raises is kept.
    fn python<R>(&mut self, f: impl FnOnce(Python<'_>, &mut Self) -> PyResult<R>) -> lowtide::Result<R> {
        Python::attach(|py| {
            f(py, self).map_err(|error| {
                *self.raised = Some(error);
                Error::Interrupted
            })
        })
    }
}

fn index(n: usize) -> isize {
    isize::try_from(n).unwrap_or(isize::MAX) // NumPy's own sizes fit
}
