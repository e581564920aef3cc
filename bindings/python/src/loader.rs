//! `lowtide.Loader`: batches of windows of tokens.

use crate::array::warn_unguarded;
use crate::error::raise;
use crate::iteration::Iteration;
use crate::ranks::{Moment, RankWish};
use crate::state::{self, Entries};
use crate::tokens::{Tokens, with_integer};
use crate::turns::Turns;
use crate::{batch, chunks, dtype};
use lowtide::format::{Dtype, Kind};
use lowtide::order::{LastStep, Turn};
use lowtide::{Again, BlockWish, LoaderOptions, LoaderState, Standing};
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
        let wanted = match given {
            Some(given) => dtype::from_python(given, "dtype")?,
            None => Dtype::native(Kind::Int64),
        };
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

/// Batches of windows of tokens, as `tokens.loader` makes it: (x, y), y shifted by one.
///
/// An iteration goes on from where the state stands: after the last batch, with the next epochs. With
/// `repeat=True` it begins the same epochs again. `len` is the number of batches of a whole iteration, on
/// this rank; with `epochs=None` there is none, a `TypeError`.
///
/// Examples:
///     >>> loader = lowtide.tokens("train.bin").loader(batch_size=12, block_size=1024, seed=0)
///     >>> len(loader)
///     16
///     >>> for x, y in loader:
///     ...     assert x.shape == y.shape == (12, 1024)
///     >>> loader.state_dict()["epoch"]  # the next iteration is the next epoch
///     1
#[pyclass(frozen, module = "lowtide")]
pub struct Loader {
    inner: Turns<lowtide::Loader>,
    wanted: Wanted,
    /// What made it, for pickle.
    tokens: Py<Tokens>,
    ranks: RankWish,
    seed: chunks::Seed,
}

impl Loader {
    pub fn new(
        tokens: &Bound<'_, Tokens>,
        options: LoaderOptions,
        seed: chunks::Seed,
        ranks: RankWish,
        wanted: Wanted,
    ) -> PyResult<Self> {
        let (py, data) = (tokens.py(), &tokens.get().inner);
        let inner = py.detach(|| lowtide::Loader::new(data, options)).map_err(raise)?;
        warn_unguarded(py, data.array())?;
        let tokens = tokens.clone().unbind();
        let loader = Self { inner: Turns::new(inner), wanted, tokens, ranks, seed };
        chunks::log_choice(py, data.array().path(), loader.access(py)?, &loader.why(py)?)?;
        Ok(loader)
    }

    /// Goes on as the rank that this process is by now, if it has become another one.
    fn settle(&self, py: Python<'_>, moment: Moment) -> PyResult<()> {
        let Some(shard) = self.ranks.ask(py, moment)? else { return Ok(()) };
        self.seed.good_for(shard)?;
        self.inner.with(py, |loader, _| loader.set_shard(shard))
    }

    fn load(&self, state: &Bound<'_, PyDict>, standing: Standing) -> PyResult<()> {
        let entries = Entries::of(state, "a loader's")?;
        let turn = match state.get_item("turn")? {
            Some(turn) => {
                let [first, of] = turn.extract().map_err(|_| entries.wrong("turn"))?;
                Turn::new(first, of).map_err(raise)?
            }
            None => Turn::ALL,
        };
        let parsed = LoaderState {
            order: entries.text("order")?.parse().map_err(raise)?,
            seed: entries.number("seed")?,
            epoch: entries.number("epoch")?,
            position: entries.number("position")?,
            turn,
            block_size: entries.number("block_size")?,
            fingerprint: entries.text("fingerprint")?,
            mix: chunks::mix(&entries, state.get_item("blocks")?)?,
        };
        self.inner.with(state.py(), |loader, _| loader.load_as(&parsed, standing))?;
        self.seed.is_the_states();
        Ok(())
    }
}

#[pymethods]
impl Loader {
    /// Begins an iteration: the next epochs after the last batch, else where it was left; with `repeat=True` from
    /// the beginning.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().ranks.begin();
        let again = slf.get().inner.with(slf.py(), |loader, _| {
            loader.begin()?;
            Ok(loader.options().again)
        })?;
        match again {
            Again::NextEpoch => Ok(slf.clone().into_any()),
            Again::SameEpoch => Iteration::over(slf),
        }
    }

    /// The iteration that is under way with `repeat=True`: what a pickle of one becomes.
    fn _go_on<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Iteration::over(slf)
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

    /// The way of access that is taken now: where "auto" was asked for, which one it chose.
    #[getter]
    fn access(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.inner.with(py, |loader, _| Ok(loader.access().name()))
    }

    /// Why that way of access, in words, and whose share it is.
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

    /// Over how many ranks the batches are shared out.
    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| Ok(loader.options().shard.world_size()))
    }

    /// Windows in a block, and blocks that are mixed; None without blocks.
    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let blocks = self.inner.with(py, |loader, _| Ok(loader.options().blocks))?;
        Ok(match blocks {
            BlockWish::Mix(mix) => Some((mix.block_rows.get(), mix.buffer_blocks.get())),
            _ => None,
        })
    }

    /// How far the shares of classes in a batch spread if the files are sorted by class.
    ///
    /// It is a ratio of standard deviations, against a perfect shuffle: 1.0 is perfect, and it is without
    /// `blocks`.
    #[getter]
    fn predicted_spread(&self, py: Python<'_>) -> PyResult<f64> {
        self.inner.with(py, |loader, _| Ok(loader.predicted_spread()))
    }

    /// Says where it stands, as the caller saw it; what is only read ahead does not count.
    ///
    /// Returns:
    ///     A small dict that JSON takes, the same on every rank, and good for any number of ranks and any
    ///     `batch_size`. After the last batch it is the beginning of the next epoch.
    ///
    /// Examples:
    ///     >>> loader = lowtide.tokens("train.bin").loader(batch_size=12, block_size=1024, seed=7)
    ///     >>> x, y = next(loader)
    ///     >>> state = loader.state_dict()
    ///     >>> state["seed"], state["epoch"], state["position"]
    ///     (7, 0, 12)
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
        if let Some(mix) = state.mix {
            dict.set_item("blocks", [mix.block_rows.get(), mix.buffer_blocks.get()])?;
        }
        if state.turn != Turn::ALL {
            dict.set_item("turn", [state.turn.first(), state.turn.of()])?;
        }
        Ok(dict)
    }

    /// Goes on from where a `state_dict` was taken, at once: the next iteration begins there.
    ///
    /// The seed is the state's; ranks and `batch_size` are this loader's.
    ///
    /// Args:
    ///     state: What `state_dict` gave, also after JSON.
    ///
    /// Raises:
    ///     ValueError: The files, the order or the `block_size` are not the state's, or it is no state.
    ///
    /// Examples:
    ///     >>> import json
    ///     >>> t = lowtide.tokens("train.bin")
    ///     >>> loader = t.loader(batch_size=12, block_size=1024, seed=7)
    ///     >>> x, y = next(loader)
    ///     >>> saved = json.dumps(loader.state_dict())
    ///     >>> again = t.loader(batch_size=4, block_size=1024)
    ///     >>> again.load_state_dict(json.loads(saved))
    ///     >>> bool((next(again)[0] == next(loader)[0][:4]).all())
    ///     True
    fn load_state_dict(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load(state::dict(state)?, Standing::Ready)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |loader, _| {
            let LoaderOptions { batch_size, block_size, order, seed, again, shard, blocks, .. } = *loader.options();
            let blocks = match blocks {
                BlockWish::Mix(mix) => format!(" blocks=({}, {})", mix.block_rows, mix.buffer_blocks),
                _ => String::new(),
            };
            let repeat = if again == Again::SameEpoch { " repeat=True" } else { "" };
            let ranks = self.ranks.with(shard).shown();
            let (epoch, position) = loader.place();
            Ok(format!(
                "<lowtide.Loader batch_size={batch_size} block_size={block_size} order={order}{blocks} seed={seed}{repeat} {ranks} \
                 epoch={epoch} position={position} access={}>",
                loader.access()
            ))
        })
    }

    /// Pickles as the tokens, the settings and the state: the copy goes on with the very next batch.
    #[allow(clippy::type_complexity)] // what pickle wants: a function, its arguments, and the state
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Py<Tokens>,), Bound<'py, PyDict>)> {
        self.settle(py, Moment::Early)?;
        let (options, standing) =
            self.inner.with(py, |loader, _| Ok((*loader.options(), loader.standing())))?;
        let keywords = PyDict::new(py);
        keywords.set_item("order", options.order.name())?;
        keywords.set_item("seed", options.seed)?;
        keywords.set_item("epoch", options.epoch)?;
        keywords.set_item("epochs", options.epochs)?;
        keywords.set_item("repeat", options.again == Again::SameEpoch)?;
        keywords.set_item("dtype", self.wanted.descr.bind(py))?;
        keywords.set_item("prefetch", options.prefetch)?;
        keywords.set_item("drop_last", options.last == LastStep::Drop)?;
        if let BlockWish::Mix(mix) = options.blocks {
            keywords.set_item("blocks", mix.block_rows.get())?; // and the state has the rest
        }
        if options.turn != Turn::ALL {
            keywords.set_item("_turn", (options.turn.first(), options.turn.of()))?;
        }
        self.ranks.send(options.shard, &keywords)?;
        let arguments = ("loader", options.batch_size, options.block_size);
        let again = py.import("operator")?.getattr("methodcaller")?.call(arguments, Some(&keywords))?;
        let state = self.state_dict(py)?;
        state.set_item("standing", standing.name())?;
        Ok((again, (self.tokens.clone_ref(py),), state))
    }

    /// What pickle calls.
    fn __setstate__(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        self.load(state, chunks::standing(state)?)
    }
}
