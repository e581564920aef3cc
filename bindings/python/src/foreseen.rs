//! `lowtide._lowtide.Foreseen`: windows that are read before they are asked for, for `lowtide.torch.get_batch`.

use crate::batch;
use crate::error::{raise, unlocked};
use crate::tokens::Tokens;
use crate::windows;
use numpy::PyArrayDescr;
use pyo3::prelude::*;
use std::sync::Mutex;

/// Batches of windows of a `lowtide.Tokens` that are expected to be asked for.
#[pyclass(frozen, module = "lowtide._lowtide")]
pub struct Foreseen {
    inner: Mutex<lowtide::Foreseen>,
    tokens: lowtide::Tokens,
    block: usize,
    int64: Py<PyArrayDescr>,
}

impl Foreseen {
    /// `None` where the budget has no room for reading ahead.
    pub fn new(py: Python<'_>, tokens: &Tokens, batch: usize, block: usize) -> Option<Self> {
        let (inner, int64) = (lowtide::Foreseen::new(&tokens.inner, batch, block)?, tokens.int64(py));
        Some(Self { inner: Mutex::new(inner), tokens: tokens.inner.clone(), block, int64 })
    }
}

type Pair<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, usize);

// Who waits for this lock would hold the interpreter's, which the one who has it may be waiting for: nobody waits. There
// is nothing for a second thread to take.
#[pymethods]
impl Foreseen {
    /// Of how many windows the starts are wanted.
    #[getter]
    fn wanted(&self) -> usize {
        self.inner.try_lock().map_or(0, |inner| inner.wanted())
    }

    /// Says where the windows begin that will be asked for next.
    ///
    /// Args:
    ///     starts: As many as are wanted.
    fn expect(&self, starts: &Bound<'_, PyAny>) -> PyResult<()> {
        let starts = windows::starts(starts, &self.tokens, self.block)?;
        self.inner.try_lock().map_or(Ok(()), |mut inner| inner.expect(&starts)).map_err(raise)
    }

    /// Gives the batch of these starts, if it is the next one expected.
    ///
    /// Args:
    ///     starts: Where its windows begin.
    ///
    /// Returns:
    ///     x and y, and how many further starts are wanted.
    fn take<'py>(&self, py: Python<'py>, starts: &Bound<'py, PyAny>) -> PyResult<Option<Pair<'py>>> {
        let starts = windows::starts(starts, &self.tokens, self.block)?;
        let found = unlocked(py, |interrupt| {
            let Ok(mut inner) = self.inner.try_lock() else { return Ok(None) };
            Ok(inner.take::<i64>(&starts, interrupt)?.map(|pair| (pair, inner.wanted())))
        })?;
        let Some(((x, y), wanted)) = found else { return Ok(None) };
        let descr = self.int64.bind(py);
        Ok(Some((batch::ndarray(py, x, descr)?, batch::ndarray(py, y, descr)?, wanted)))
    }
}
