//! `lowtide.Loader`: batches of windows of tokens.

use crate::array::warn_unguarded;
use crate::error::raise;
use crate::ranks::{Moment, RankWish};
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
                "batches of tokens are integers of this machine, which dtype={wanted} is not\n\
                 hint: torch's embeddings and losses take int64, the default"
            )));
        }
        Ok(Self { kind: wanted.kind(), descr: dtype::to_numpy(py, wanted)?.unbind() })
    }
}

/// Batches of windows, as `tokens.loader` makes it: (x, y), y shifted by one.
///
/// `iter()` goes on from where the state stands: after the last batch, with the next epochs.
#[pyclass(frozen, module = "lowtide")]
pub struct Loader {
    inner: Turns<lowtide::Loader>,
    wanted: Wanted,
    ranks: RankWish,
}

impl Loader {
    pub fn new(
        py: Python<'_>,
        tokens: &lowtide::Tokens,
        options: LoaderOptions,
        ranks: RankWish,
        wanted: Wanted,
    ) -> PyResult<Self> {
        let inner = py.detach(|| lowtide::Loader::new(tokens, options)).map_err(raise)?;
        warn_unguarded(py, tokens.array())?;
        let loader = Self { inner: Turns::new(inner), wanted, ranks };
        chunks::log_choice(py, tokens.array().path(), loader.access(py)?, &loader.why(py)?)?;
        Ok(loader)
    }

    /// Goes on as the rank that this process is by now, if it has become another one.
    fn settle(&self, py: Python<'_>, moment: Moment) -> PyResult<()> {
        match self.ranks.ask(py, moment)? {
            Some(shard) => self.inner.with(py, |loader, _| loader.set_shard(shard)),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Loader {
    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().ranks.begin();
        slf.get().inner.with(slf.py(), |loader, _| {
            loader.begin();
            Ok(())
        })?;
        Ok(slf)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.settle(py, Moment::FirstBatch)?;
        let pair = self.inner.with(py, |loader, interrupt| {
            with_integer!(self.wanted.kind, T => loader.next_batch::<T>(interrupt)).flatten().transpose()
        })?;
        let Some((x, y)) = pair else { return Ok(None) };
        let descr = self.wanted.descr.bind(py);
        PyTuple::new(py, [batch::ndarray(py, x, descr)?, batch::ndarray(py, y, descr)?]).map(Some)
    }

    /// How many batches one whole iteration has, of all its epochs.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.settle(py, Moment::Early)?;
        let len = self.inner.with(py, |loader, _| loader.len())?;
        let len =
            len.ok_or_else(|| PyTypeError::new_err("a loader with epochs=None has no end, and no length"))?;
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
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| Ok(self.ranks.with(loader.options().shard).after(loader.why())))
    }

    /// Which rank's share it gives.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| Ok(loader.options().shard.rank()))
    }

    /// Of how many.
    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| Ok(loader.options().shard.world_size()))
    }

    /// Where it stands, as the caller saw it (what is only read ahead does not count): a small dict that JSON
    /// takes, the same on every rank, and good for any number of ranks and any `batch_size`.
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

    /// Goes on from where a `state_dict` was taken, with the state's seed and this loader's ranks and `batch_size`.
    /// The files, the order and the `block_size` must be those of the state.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let get = |key: &str| chunks::from_state(state, key);
        let wrong = |key: &str| {
            let value =
                get(key).and_then(|value| value.repr()).map_or_else(|_| String::new(), |r| r.to_string());
            PyValueError::new_err(format!(
                "the state has {key:?}: {value}: is it from a loader's state_dict()?"
            ))
        };
        let number = |key: &str| get(key)?.extract::<u64>().map_err(|_| wrong(key));
        let text = |key: &str| get(key)?.extract::<String>().map_err(|_| wrong(key));
        let turn = match state.get_item("turn")? {
            Some(turn) => {
                let [first, of] = turn.extract().map_err(|_| wrong("turn"))?;
                Turn::new(first, of).map_err(raise)?
            }
            None => Turn::ALL,
        };
        let state = LoaderState {
            order: text("order")?.parse().map_err(raise)?,
            seed: number("seed")?,
            epoch: number("epoch")?,
            position: number("position")?,
            turn,
            block_size: number("block_size")?,
            fingerprint: text("fingerprint")?,
        };
        self.inner.with(py, |loader, _| loader.load(&state))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| {
            let LoaderOptions { batch_size, block_size, order, seed, shard, .. } = *loader.options();
            let ranks = self.ranks.with(shard).shown();
            let (epoch, position) = loader.place();
            Ok(format!(
                "<lowtide.Loader batch_size={batch_size} block_size={block_size} order={order} seed={seed} {ranks} \
                 epoch={epoch} position={position} access={}>",
                loader.access()
            ))
        })
    }

    /// Not pickled: what it reads ahead belongs to this process.
    #[allow(clippy::unused_self)] // a method to Python
    fn __reduce__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "a Loader cannot be pickled\nhint: the Tokens and state_dict() can; make a loader of them over there",
        ))
    }
}
