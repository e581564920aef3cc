//! The iterators of `chunks` and `shuffled`.

use crate::array::{Array, warn_unguarded};
use crate::batch;
use crate::error::raise;
use crate::ranks::{Moment, RankWish};
use crate::turns::Turns;
use lowtide::order::{LastStep, Mix};
use lowtide::{BlockWish, Shuffle, State};
use numpy::{IntoPyArray, PyArrayDescr};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::path::Path;

/// What each step yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yields {
    Array,
    Tuple,
    RowsAndArray,
    RowsAndTuple,
}

/// Chunks of rows: an iterator that can be left half way, and used from several threads.
#[pyclass(frozen, module = "lowtide")]
pub struct Chunks {
    inner: Turns<lowtide::Chunks>,
    descrs: Vec<Py<PyArrayDescr>>,
    yields: Yields,
    /// Whose share it is; `None` in file order, which is not shared.
    ranks: Option<RankWish>,
}

/// The arrays as one.
pub fn zipped(arrays: &[Bound<'_, Array>]) -> PyResult<lowtide::Zip> {
    lowtide::Zip::new(arrays.iter().map(|a| a.get().inner.clone()).collect()).map_err(raise)
}

pub fn sequential(
    py: Python<'_>,
    arrays: &[Bound<'_, Array>],
    yields: Yields,
    rows: usize,
) -> PyResult<Chunks> {
    let zip = zipped(arrays)?;
    let inner = py.detach(|| zip.chunks(rows)).map_err(raise)?;
    Chunks::new(py, arrays, yields, inner, None)
}

pub fn shuffled(
    py: Python<'_>,
    arrays: &[Bound<'_, Array>],
    yields: Yields,
    rows: usize,
    (shuffle, ranks): (Shuffle, RankWish),
) -> PyResult<Chunks> {
    let zip = zipped(arrays)?;
    let inner = py.detach(|| zip.shuffled(rows, shuffle)).map_err(raise)?;
    Chunks::new(py, arrays, yields, inner, Some(ranks))
}

/// The arguments of `shuffled`.
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn shuffle(
    py: Python<'_>,
    seed: u64,
    epoch: u64,
    start: u64,
    rank: Option<u64>,
    world_size: Option<u64>,
    blocks: Option<&Bound<'_, PyAny>>,
    drop_last: bool,
) -> PyResult<(Shuffle, RankWish)> {
    let blocks = block_wish(blocks)?;
    let (ranks, shard) = RankWish::new(py, rank, world_size)?;
    let last = if drop_last { LastStep::Drop } else { LastStep::Split };
    Ok((Shuffle { seed, epoch, start, shard, last, blocks }, ranks))
}

/// An entry of a state, whose version we know.
pub fn from_state<'py>(state: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    let missing =
        |key: &str| PyValueError::new_err(format!("the state has no {key:?}: is it from state_dict()?"));
    let get = |key: &str| state.get_item(key)?.ok_or_else(|| missing(key));
    let version: u64 = get("version")?.extract()?;
    if version != 1 {
        return Err(PyValueError::new_err(format!(
            "the state has version {version}, this Lowtide knows version 1"
        )));
    }
    get(key)
}

/// `blocks=`: None, "auto", or the number of rows in a block.
fn block_wish(blocks: Option<&Bound<'_, PyAny>>) -> PyResult<BlockWish> {
    let Some(blocks) = blocks else { return Ok(BlockWish::Exact) };
    if blocks.extract::<String>().is_ok_and(|word| word == "auto") {
        return Ok(BlockWish::Auto);
    }
    match blocks.extract::<u64>() {
        Ok(rows) => Ok(BlockWish::Rows(rows)),
        Err(_) => Err(PyValueError::new_err(format!(
            "blocks={} is not known\nhint: None for an exact shuffle, \"auto\", or the number of rows in a block",
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
        py: Python<'_>,
        arrays: &[Bound<'_, Array>],
        yields: Yields,
        inner: lowtide::Chunks,
        ranks: Option<RankWish>,
    ) -> PyResult<Self> {
        for array in arrays {
            warn_unguarded(py, &array.get().inner)?;
        }
        let descrs = arrays.iter().map(|a| a.get().descr(py).clone().unbind()).collect();
        let chunks = Self { inner: Turns::new(inner), descrs, yields, ranks };
        log_choice(py, arrays[0].get().inner.path(), chunks.access(py)?, &chunks.why(py)?)?;
        Ok(chunks)
    }

    /// Goes on as the rank that this process is by now, if it has become another one.
    fn settle(&self, py: Python<'_>, moment: Moment) -> PyResult<()> {
        let Some(ranks) = &self.ranks else { return Ok(()) };
        match ranks.ask(py, moment)? {
            Some(shard) => self.inner.with(py, |chunks, _| chunks.set_shard(shard)),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Chunks {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        if let Some(ranks) = &slf.get().ranks {
            ranks.begin();
        }
        slf
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

    /// How many chunks are left.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.settle(py, Moment::Early)?;
        let left = self.inner.with(py, |chunks, _| Ok(chunks.remaining()))?;
        usize::try_from(left).map_err(|_| PyValueError::new_err("more chunks than len() can say"))
    }

    /// The way of access that was taken.
    #[getter]
    fn access(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.inner.with(py, |chunks, _| Ok(chunks.access().name()))
    }

    /// Why that one, in words.
    #[getter]
    fn why(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        let (why, shard) = self.inner.with(py, |chunks, _| Ok((chunks.why().to_owned(), chunks.shard())))?;
        Ok(self.ranks.as_ref().map_or_else(|| why.clone(), |ranks| ranks.with(shard).after(&why)))
    }

    /// Which rank's share it is; 0 in file order, which is not shared.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| Ok(chunks.shard().rank()))
    }

    /// Of how many.
    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| Ok(chunks.shard().world_size()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.settle(py, Moment::Early)?;
        self.inner.with(py, |chunks, _| {
            let (order, rows, access) = (chunks.order(), chunks.batch_rows(), chunks.access());
            let (epoch, position) = chunks.place();
            let shuffle = self.ranks.as_ref().map_or_else(String::new, |ranks| {
                format!("seed={} epoch={epoch} {} ", chunks.seed(), ranks.with(chunks.shard()).shown())
            });
            Ok(format!(
                "<lowtide.Chunks rows={rows} order={order} {shuffle}position={position} access={access}>"
            ))
        })
    }

    /// Rows in a block, and blocks that are mixed; None for an exact shuffle.
    #[getter]
    fn blocks(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let mix = self.inner.with(py, |chunks, _| Ok(chunks.mix()))?;
        Ok(mix.map(|mix| (mix.block_rows.get(), mix.buffer_blocks.get())))
    }

    /// How far the shares of classes in a chunk spread if the file is sorted by class, against a perfect
    /// shuffle (a ratio of standard deviations): 1.0 is perfect, and an exact shuffle is.
    #[getter]
    fn predicted_spread(&self, py: Python<'_>) -> PyResult<f64> {
        self.inner.with(py, |chunks, _| Ok(chunks.predicted_spread()))
    }

    /// Where the pass stands, as the caller saw it: small, JSON-able, and good for any number of ranks.
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

    /// Goes on from where a `state_dict` was taken, under any number of ranks.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyDict>) -> PyResult<()> {
        let get = |key: &str| from_state(state, key);
        let state = State {
            order: get("order")?.extract()?,
            seed: get("seed")?.extract()?,
            epoch: get("epoch")?.extract()?,
            position: get("position")?.extract()?,
            fingerprint: get("fingerprint")?.extract()?,
            mix: match get("blocks")?.extract::<Option<[u64; 2]>>()? {
                Some([block_rows, buffer_blocks]) => {
                    Some(Mix::new(block_rows, buffer_blocks).map_err(raise)?)
                }
                None => None,
            },
        };
        self.inner.with(py, |chunks, _| chunks.load(&state))
    }
}
