//! The iterators of `chunks` and `shuffled`.

use crate::argument::{self, Flag};
use crate::array::{Array, warn_unguarded};
use crate::batch;
use crate::error::raise;
use crate::iteration::Iteration;
use crate::number::{Number, optional};
use crate::parts;
use crate::ranks::{Moment, RankWish, Ranks};
use crate::state::{self, Entries};
use crate::turns::Turns;
use lowtide::order::{LastStep, Mix, Shard};
use lowtide::{Again, BlockWish, Shuffle, Standing, State};
use numpy::{IntoPyArray, PyArrayDescr};
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple, PyType};
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What each step yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yields {
    Array,
    Tuple,
    RowsAndArray,
    RowsAndTuple,
}

/// Chunks of rows, as `chunks` and `shuffled` of an array or a zip make them.
///
/// They are read ahead in a thread. It is an iterator that can be left half way, gone on with, pickled,
/// and used from several threads. After the last chunk the next iteration is the next epoch; it begins
/// again where rows come in file order, and with `repeat=True`. `len` is the number of chunks of a whole
/// iteration, on this rank.
///
/// Examples:
///     >>> a = lowtide.open("rows.npy")
///     >>> it = a.shuffled(256, seed=0)
///     >>> len(it)
///     4
///     >>> first = next(it)
///     >>> state = it.state_dict()  # small: JSON takes it
///     >>> again = a.shuffled(256, seed=0)
///     >>> again.load_state_dict(state)
///     >>> bool((next(again) == next(it)).all())
///     True
#[pyclass(frozen, module = "lowtide")]
pub struct Chunks {
    inner: Turns<lowtide::Chunks>,
    descrs: Vec<Py<PyArrayDescr>>,
    yields: Yields,
    /// The array or the zip that made it, for pickle.
    source: Py<PyAny>,
    /// Whose share of which shuffle it is; `None` in file order, which is shared only among given ranks.
    shared: Option<(RankWish, Seed)>,
}

/// The arrays as one.
pub fn zipped(arrays: &[Bound<'_, Array>]) -> PyResult<lowtide::Zip> {
    lowtide::Zip::new(arrays.iter().map(|a| a.get().inner.clone()).collect()).map_err(raise)
}

pub fn sequential(
    source: &Bound<'_, PyAny>,
    arrays: &[Bound<'_, Array>],
    yields: Yields,
    rows: Number,
    (shard, last): (Shard, LastStep),
) -> PyResult<Chunks> {
    let (zip, rows) = (zipped(arrays)?, rows.size(source.py(), "rows")?);
    let inner = source.py().detach(|| zip.chunks_of(rows, shard, last)).map_err(raise)?;
    Chunks::new(source, arrays, yields, inner, None)
}

/// Whose share `chunks` gives: all of it where nobody says a rank, whoever started the process.
pub fn share(
    py: Python<'_>,
    rank: Option<Number>,
    world_size: Option<Number>,
    drop_last: Flag,
) -> PyResult<(Shard, LastStep)> {
    let (rank, world_size) = (optional(py, rank, "rank", 0)?, optional(py, world_size, "world_size", 1)?);
    let shard = match (rank, world_size) {
        (None, None) => Shard::ALONE,
        given => RankWish::new(py, given.0, given.1)?.1,
    };
    Ok((shard, last(drop_last)?))
}

pub fn shuffled(
    source: &Bound<'_, PyAny>,
    arrays: &[Bound<'_, Array>],
    yields: Yields,
    rows: Number,
    (shuffle, ranks, seed): (Shuffle, RankWish, Seed),
) -> PyResult<Chunks> {
    let (zip, rows) = (zipped(arrays)?, rows.size(source.py(), "rows")?);
    let py = source.py();
    let inner = py.detach(|| zip.shuffled(rows, shuffle)).map_err(raise)?;
    if let Some(warning) = inner.warning() {
        let message = CString::new(warning.replace('\0', "?")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?;
    }
    Chunks::new(source, arrays, yields, inner, Some((ranks, seed)))
}

/// The arguments of `shuffled`.
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn shuffle(
    py: Python<'_>,
    seed: Option<Number>,
    epoch: Number,
    start: Number,
    repeat: Flag,
    rank: Option<Number>,
    world_size: Option<Number>,
    blocks: Option<&Bound<'_, PyAny>>,
    drop_last: Flag,
    scratch: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Shuffle, RankWish, Seed)> {
    let (rank, world_size) = (optional(py, rank, "rank", 0)?, optional(py, world_size, "world_size", 1)?);
    let (ranks, shard) = RankWish::new(py, rank, world_size)?;
    let seed = Seed::new(py, seed, shard)?;
    let shuffle = Shuffle {
        seed: seed.number,
        epoch: epoch.named(py, "epoch", 0)?,
        start: start.named(py, "start", 0)?,
        again: again(repeat)?,
        shard,
        last: last(drop_last)?,
        blocks: block_wish(blocks, "rows")?,
        scratch: scratch.map(|given| argument::path(given, "scratch")).transpose()?.map(Into::into),
    };
    Ok((shuffle, ranks, seed))
}

/// `repeat=`.
pub fn again(repeat: Flag) -> PyResult<Again> {
    Ok(if repeat.parse("repeat")? { Again::SameEpoch } else { Again::NextEpoch })
}

/// `drop_last=`.
pub fn last(drop_last: Flag) -> PyResult<LastStep> {
    Ok(if drop_last.parse("drop_last")? { LastStep::Drop } else { LastStep::Split })
}

/// `seed=`: as given; None draws one, on which several ranks would not agree.
pub struct Seed {
    pub number: u64,
    /// Whether it is known to this process alone.
    drawn: AtomicBool,
}

impl Seed {
    pub fn new(py: Python<'_>, given: Option<Number>, shard: Shard) -> PyResult<Self> {
        if let Some(given) = given {
            return Ok(Self { number: given.named(py, "seed", 0)?, drawn: AtomicBool::new(false) });
        }
        let random: [u8; 8] = py.import("os")?.call_method1("urandom", (8,))?.extract()?;
        // So that it fits where JSON's integers are signed.
        let seed = Self { number: u64::from_le_bytes(random) >> 1, drawn: AtomicBool::new(true) };
        seed.good_for(shard)?;
        Ok(seed)
    }

    /// Refuses to let ranks read orders of their own.
    pub fn good_for(&self, shard: Shard) -> PyResult<()> {
        if shard.world_size() == 1 || !self.drawn.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "seed=None is another seed in every process, and all {} ranks must have the same\nhint: pass a seed",
            shard.world_size()
        )))
    }

    /// A state was loaded: its seed is the one of all ranks that load it.
    pub fn is_the_states(&self) {
        self.drawn.store(false, Ordering::Relaxed);
    }
}

/// `blocks=`: None, "auto", or how many `rows` (or windows) a block has.
pub fn block_wish(blocks: Option<&Bound<'_, PyAny>>, rows: &str) -> PyResult<BlockWish> {
    let Some(blocks) = blocks else { return Ok(BlockWish::Exact) };
    if blocks.extract::<String>().is_ok_and(|word| word == "auto") {
        return Ok(BlockWish::Auto);
    }
    // True is no number here: who says it hardly means blocks of one row.
    match blocks.extract::<u64>().ok().filter(|_| !blocks.is_instance_of::<PyBool>()) {
        Some(0) => Err(PyValueError::new_err(format!(
            "blocks=0: a block of 0 {rows} holds nothing\nhint: give the number of {rows} in a block"
        ))),
        Some(number) => Ok(BlockWish::Rows(number)),
        None => Err(PyValueError::new_err(format!(
            "blocks={} is not known\nhint: None for an exact shuffle, \"auto\", or the number of {rows} in a block",
            blocks.repr()?
        ))),
    }
}

/// Says in Python's log which way of access was taken, and why.
pub fn log_choice(py: Python<'_>, path: &Path, access: &str, why: &str) -> PyResult<()> {
    // Where nobody has imported logging nobody listens, and importing it takes longer than the first chunk.
    let modules = py.import("sys")?.getattr("modules")?;
    if modules.contains("logging")? {
        let arguments = ("%s: access %s because %s", path, access, why);
        let logger = modules.get_item("logging")?.call_method1("getLogger", ("lowtide",))?;
        logger.call_method1("debug", arguments)?;
    }
    Ok(())
}

impl Chunks {
    fn new(
        source: &Bound<'_, PyAny>,
        arrays: &[Bound<'_, Array>],
        yields: Yields,
        inner: lowtide::Chunks,
        shared: Option<(RankWish, Seed)>,
    ) -> PyResult<Self> {
        let py = source.py();
        for array in arrays {
            warn_unguarded(py, &array.get().inner)?;
        }
        let descrs = arrays.iter().map(|a| a.get().descr(py).clone().unbind()).collect();
        let source = source.clone().unbind();
        let chunks = Self { inner: Turns::new(inner), descrs, yields, source, shared };
        log_choice(py, arrays[0].get().inner.path(), chunks.access(py)?, &chunks.why(py)?)?;
        Ok(chunks)
    }

    /// Goes on as the rank that this process is by now, if it has become another one.
    fn settle(&self, py: Python<'_>, moment: Moment) -> PyResult<()> {
        let Some((ranks, seed)) = &self.shared else { return Ok(()) };
        let Some(shard) = ranks.ask(py, moment)? else { return Ok(()) };
        seed.good_for(shard)?;
        self.inner.with(py, |chunks, _| chunks.set_shard(shard))
    }

    fn load(&self, state: &Bound<'_, PyDict>, standing: Standing) -> PyResult<()> {
        let entries = Entries::of(state, "an array's")?;
        let mix = mix(&entries, Some(entries.get("blocks")?))?;
        let parsed = State {
            order: entries.text("order")?,
            seed: entries.number("seed")?,
            epoch: entries.number("epoch")?,
            position: entries.number("position")?,
            fingerprint: entries.text("fingerprint")?,
            mix,
        };
        self.inner.with(state.py(), |chunks, _| chunks.load_as(&parsed, standing))?;
        if let Some((_, seed)) = &self.shared {
            seed.is_the_states();
        }
        Ok(())
    }
}

/// The blocks that a state has, if any.
pub fn mix(entries: &Entries<'_, '_>, blocks: Option<Bound<'_, PyAny>>) -> PyResult<Option<Mix>> {
    let Some(blocks) = blocks else { return Ok(None) };
    let blocks: Option<[u64; 2]> = blocks.extract().map_err(|_| entries.wrong("blocks"))?;
    blocks.map(|[rows, blocks]| Mix::new(rows, blocks).map_err(raise)).transpose()
}

#[pymethods]
impl Chunks {
    /// Begins an iteration: the next epoch after the last chunk, else where it was left; with `repeat=True` from
    /// the beginning.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some((ranks, _)) = &slf.get().shared {
            ranks.begin();
        }
        let again = slf.get().inner.with(slf.py(), |chunks, _| {
            chunks.begin()?;
            Ok(chunks.shuffle().again)
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

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.settle(py, Moment::FirstBatch)?;
        let with_rows = matches!(self.yields, Yields::RowsAndArray | Yields::RowsAndTuple);
        let step = self.inner.with(py, |chunks, interrupt| {
            let Some(chunk) = chunks.next_chunk(interrupt).transpose()? else { return Ok(None) };
            let rows = with_rows.then(|| chunks.rows_at(chunk.positions()));
            Ok(Some((chunk, rows)))
        })?;
        let Some((chunk, rows)) = step else { return Ok(None) };
        let mut arrays = Vec::with_capacity(self.descrs.len());
        for (batch, descr) in chunk.into_batches().into_iter().zip(&self.descrs) {
            arrays.push(batch::ndarray(py, batch, descr.bind(py))?);
        }
        let value = match self.yields {
            Yields::Array | Yields::RowsAndArray => arrays.swap_remove(0),
            Yields::Tuple | Yields::RowsAndTuple => PyTuple::new(py, arrays)?.into_any(),
        };
        let Some(rows) = rows else { return Ok(Some(value)) };
        let rows: Vec<i64> = rows.into_iter().map(u64::cast_signed).collect();
        Ok(Some(PyTuple::new(py, [rows.into_pyarray(py).into_any(), value])?.into_any()))
    }

    /// How many chunks a whole iteration has, on this rank.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.settle(py, Moment::Early)?;
        let len = self.inner.with(py, |chunks, _| chunks.len())?;
        usize::try_from(len).map_err(|_| PyValueError::new_err("more chunks than len() can say"))
    }

    /// The way of access that is taken: where "auto" was asked for, which one it chose.
    #[getter]
    fn access(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.inner.with(py, |chunks, _| Ok(chunks.access().name()))
    }

    /// Why that way of access, in words, and whose share it is.
    #[getter]
    fn why(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        let (why, shard) = self.inner.with(py, |chunks, _| Ok((chunks.why().to_owned(), chunks.shard())))?;
        Ok(match &self.shared {
            Some((ranks, _)) => ranks.with(shard).after(&why),
            None => Ranks::given(shard).map_or_else(|| why.clone(), |ranks| ranks.after(&why)),
        })
    }

    /// Which rank's share it is; 0 where it is not shared.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| Ok(chunks.shard().rank()))
    }

    /// Over how many ranks the rows are shared out.
    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| Ok(chunks.shard().world_size()))
    }

    /// Rows in a block, and blocks that are mixed; None for an exact shuffle.
    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let mix = self.inner.with(py, |chunks, _| Ok(chunks.mix()))?;
        Ok(mix.map(|mix| (mix.block_rows.get(), mix.buffer_blocks.get())))
    }

    /// How far the shares of classes in a chunk spread if the file is sorted by class.
    ///
    /// It is a ratio of standard deviations, against a perfect shuffle: 1.0 is perfect, and an exact shuffle
    /// is.
    #[getter]
    fn predicted_spread(&self, py: Python<'_>) -> PyResult<f64> {
        self.inner.with(py, |chunks, _| Ok(chunks.predicted_spread()))
    }

    /// Lets go of what was read ahead, and of the space in `scratch`, at once.
    ///
    /// It stands where it stood: going on is fine, and reads, or sorts, the rest again. Dropping it
    /// lets go, too, and so does a generator that is left in the middle of `yield from` it.
    ///
    /// Examples:
    ///     >>> it = lowtide.open("rows.npy").shuffled(256, seed=0, scratch=".")
    ///     >>> chunk = next(it)
    ///     >>> it.close()
    ///     >>> it.state_dict()["position"]
    ///     256
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.with(py, |chunks, _| chunks.let_go())
    }

    /// Says where the pass stands, as the caller saw it; what is only read ahead does not count.
    ///
    /// Returns:
    ///     A small dict that JSON takes, the same on every rank, and good for any number of ranks. After the
    ///     last chunk it is the beginning of the next epoch.
    ///
    /// Examples:
    ///     >>> it = lowtide.open("rows.npy").shuffled(256, seed=7)
    ///     >>> chunk = next(it)
    ///     >>> state = it.state_dict()
    ///     >>> state["seed"], state["epoch"], state["position"]
    ///     (7, 0, 256)
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.inner.with(py, |chunks, _| chunks.state())?;
        let dict = PyDict::new(py);
        dict.set_item("version", 1)?;
        dict.set_item("order", state.order)?;
        dict.set_item("seed", state.seed)?;
        dict.set_item("epoch", state.epoch)?;
        dict.set_item("position", state.position)?;
        dict.set_item("fingerprint", state.fingerprint)?;
        dict.set_item("blocks", state.mix.map(|mix| [mix.block_rows.get(), mix.buffer_blocks.get()]))?;
        Ok(dict)
    }

    /// Goes on from where a `state_dict` was taken, at once, under any number of ranks.
    ///
    /// The next iteration begins there, with the state's seed.
    ///
    /// Args:
    ///     state: What `state_dict` gave, also after JSON.
    ///
    /// Raises:
    ///     ValueError: The state is of other data or of another order, or is no state.
    ///
    /// Examples:
    ///     >>> a = lowtide.open("rows.npy")
    ///     >>> it = a.shuffled(256, seed=7)
    ///     >>> chunk = next(it)
    ///     >>> again = a.shuffled(100)
    ///     >>> again.load_state_dict(it.state_dict())
    ///     >>> again.state_dict()["position"]
    ///     256
    fn load_state_dict(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        self.load(state::dict(state)?, Standing::Ready)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| {
            let paths: Vec<String> = chunks.arrays().iter().map(|a| format!("\"{}\"{}", a.path().display(), parts::shown(a))).collect();
            let (order, rows, access) = (chunks.order(), chunks.batch_rows(), chunks.access());
            let given = |shard| Ranks::given(shard).map_or_else(String::new, |ranks| format!(" {}", ranks.shown()));
            let settings = self.shared.as_ref().map_or_else(|| given(chunks.shard()), |(ranks, _)| {
                let mix = chunks.mix().map(|mix| format!(" blocks=({}, {})", mix.block_rows, mix.buffer_blocks));
                let repeat = if chunks.shuffle().again == Again::SameEpoch { " repeat=True" } else { "" };
                let ranks = ranks.with(chunks.shard()).shown();
                format!(" seed={}{}{repeat} {ranks}", chunks.seed(), mix.unwrap_or_default())
            });
            let (epoch, position) = chunks.place();
            Ok(format!(
                "<lowtide.Chunks {} rows={rows} order={order}{settings} epoch={epoch} position={position} access={access}>",
                paths.join(", ")
            ))
        })
    }

    /// Pickles as the arrays, the settings and the state: the copy goes on with the very next chunk.
    #[allow(clippy::type_complexity)] // what pickle wants: a function, its arguments, and the state
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Py<PyAny>,), Bound<'py, PyDict>)> {
        self.settle(py, Moment::Early)?;
        let (shuffle, rows, first, standing) = self
            .inner
            .with(py, |c, _| Ok((c.shuffle().clone(), c.batch_rows(), c.first_epoch(), c.standing())))?;
        let keywords = PyDict::new(py);
        let method = if self.shared.is_none() { "chunks" } else { "shuffled" };
        if let Some((ranks, _)) = &self.shared {
            keywords.set_item("seed", shuffle.seed)?;
            keywords.set_item("epoch", first)?;
            keywords.set_item("repeat", shuffle.again == Again::SameEpoch)?;
            keywords.set_item("drop_last", shuffle.last == LastStep::Drop)?;
            keywords
                .set_item("with_rows", matches!(self.yields, Yields::RowsAndArray | Yields::RowsAndTuple))?;
            if let Some(folder) = &shuffle.scratch {
                keywords.set_item("scratch", &**folder)?;
            }
            match shuffle.blocks {
                BlockWish::Exact => {}
                BlockWish::Auto => keywords.set_item("blocks", "auto")?,
                BlockWish::Rows(rows) => keywords.set_item("blocks", rows)?,
                BlockWish::Mix(mix) => keywords.set_item("blocks", mix.block_rows.get())?,
            }
            ranks.send(shuffle.shard, &keywords)?;
        } else if shuffle.shard != Shard::ALONE || shuffle.last == LastStep::Drop {
            keywords.set_item("rank", shuffle.shard.rank())?;
            keywords.set_item("world_size", shuffle.shard.world_size())?;
            keywords.set_item("drop_last", shuffle.last == LastStep::Drop)?;
        }
        let again = py.import("operator")?.getattr("methodcaller")?.call((method, rows), Some(&keywords))?;
        let state = self.state_dict(py)?;
        state.set_item("standing", standing.name())?;
        Ok((again, (self.source.clone_ref(py),), state))
    }

    /// What pickle calls.
    fn __setstate__(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        self.load(state, standing(state)?)
    }

    /// `lowtide.Chunks[…]` in annotations: what a step yields.
    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }
}

/// How a pickled iterator stood.
pub fn standing(state: &Bound<'_, PyDict>) -> PyResult<Standing> {
    let entries = Entries::of(state, "a pickled iterator's")?;
    Standing::named(&entries.text("standing")?).ok_or_else(|| entries.wrong("standing"))
}
