//! `lowtide.Loader`: batches of windows of tokens.

use crate::error::raise;
use crate::tokens::with_integer;
use crate::turns::Turns;
use crate::{batch, chunks, dtype};
use lowtide::format::{Dtype, Kind};
use lowtide::order::Turn;
use lowtide::{LoaderOptions, LoaderState};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The integers that batches come in.
pub struct Wanted {
    kind: Kind,
    descr: Py<PyArrayDescr>,
}

impl Wanted {
    /// `dtype=`: whatever NumPy takes for one of its integers; int64 if not said.
    pub fn from_python(py: Python<'_>, given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let wanted = given.map_or(Ok(Dtype::native(Kind::Int64)), dtype::from_python)?;
        let is_integer = with_integer!(wanted.kind(), T => size_of::<T>()).is_some();
        if !is_integer || wanted != Dtype::native(wanted.kind()) {
            return Err(PyValueError::new_err(format!(
                "dtype={wanted} is not what tokens can come in\nhint: native integers, int64 or int32 mostly"
            )));
        }
        Ok(Self { kind: wanted.kind(), descr: dtype::to_numpy(py, wanted)?.unbind() })
    }
}

/// Batches of windows: x, and y shifted by one. `iter()` goes on from where the state stands.
#[pyclass(frozen, module = "lowtide")]
pub struct Loader {
    inner: Turns<lowtide::Loader>,
    wanted: Wanted,
}

impl Loader {
    pub fn new(
        py: Python<'_>,
        tokens: &lowtide::Tokens,
        options: LoaderOptions,
        wanted: Wanted,
    ) -> PyResult<Self> {
        let inner = py.detach(|| lowtide::Loader::new(tokens, options)).map_err(raise)?;
        chunks::log_choice(py, tokens.array().path(), inner.access(), inner.why())?;
        Ok(Self { inner: Turns::new(inner), wanted })
    }
}

#[pymethods]
impl Loader {
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().inner.with(slf.py(), |loader, _| {
            loader.begin();
            Ok(())
        })?;
        Ok(slf)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let pair = self.inner.with(py, |loader, interrupt| {
            with_integer!(self.wanted.kind, T => loader.next_batch::<T>(interrupt)).flatten().transpose()
        })?;
        let Some((x, y)) = pair else { return Ok(None) };
        let descr = self.wanted.descr.bind(py);
        PyTuple::new(py, [batch::ndarray(py, x, descr)?, batch::ndarray(py, y, descr)?]).map(Some)
    }

    /// How many batches one whole iteration has.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.inner.with(py, |loader, _| loader.len())?;
        let len = len.ok_or_else(|| PyTypeError::new_err("a loader with epochs=None has no end"))?;
        usize::try_from(len).map_err(|_| PyValueError::new_err("more batches than len() can say"))
    }

    /// The way of access that is taken now.
    #[getter]
    fn access(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.inner.with(py, |loader, _| Ok(loader.access().name()))
    }

    /// Why that one, in words.
    #[getter]
    fn why(&self, py: Python<'_>) -> PyResult<String> {
        self.inner.with(py, |loader, _| Ok(loader.why().to_owned()))
    }

    /// Where it stands, as the caller saw it: small, JSON-able, and good for any number of ranks.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.inner.with(py, |loader, _| loader.state())?;
        let dict = PyDict::new(py);
        dict.set_item("version", 1)?;
        dict.set_item("order", state.order.name())?;
        dict.set_item("seed", state.seed)?;
        dict.set_item("epoch", state.epoch)?;
        dict.set_item("position", state.position)?;
        dict.set_item("block_size", state.block_size)?;
        dict.set_item("fingerprint", state.fingerprint)?;
        if state.turn != Turn::ALL {
            dict.set_item("turn", [state.turn.first(), state.turn.of()])?;
        }
        Ok(dict)
    }

    /// Goes on from where a `state_dict` was taken, under any number of ranks.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let get = |key: &str| chunks::from_state(state, key);
        let turn = match state.get_item("turn")? {
            Some(turn) => {
                let [first, of] = turn.extract()?;
                Turn::new(first, of).map_err(raise)?
            }
            None => Turn::ALL,
        };
        let state = LoaderState {
            order: get("order")?.extract::<String>()?.parse().map_err(raise)?,
            seed: get("seed")?.extract()?,
            epoch: get("epoch")?.extract()?,
            position: get("position")?.extract()?,
            turn,
            block_size: get("block_size")?.extract()?,
            fingerprint: get("fingerprint")?.extract()?,
        };
        self.inner.with(py, |loader, _| loader.load(&state))
    }
}
