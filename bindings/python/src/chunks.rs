//! The iterators of `chunks` and `shuffled`.

use crate::array::{Array, warn_unguarded};
use crate::batch;
use crate::error::raise;
use crate::turns::Turns;
use lowtide::order::{LastStep, Mix, Shard};
use lowtide::{Access, BlockWish, Shuffle, State};
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
    Chunks::new(py, arrays, yields, inner)
}

pub fn shuffled(
    py: Python<'_>,
    arrays: &[Bound<'_, Array>],
    yields: Yields,
    rows: usize,
    shuffle: Shuffle,
) -> PyResult<Chunks> {
    let zip = zipped(arrays)?;
    let inner = py.detach(|| zip.shuffled(rows, shuffle)).map_err(raise)?;
    Chunks::new(py, arrays, yields, inner)
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
) -> PyResult<Shuffle> {
    let blocks = block_wish(blocks)?;
    let shard = shard(py, rank, world_size)?;
    let last = if drop_last { LastStep::Drop } else { LastStep::Split };
    Ok(Shuffle { seed, epoch, start, shard, last, blocks })
}

/// Which rank of how many: as given, else what torchrun sets, else the only one.
pub fn shard(py: Python<'_>, rank: Option<u64>, world_size: Option<u64>) -> PyResult<Shard> {
    let (rank, world_size) = match (rank, world_size) {
        (Some(rank), Some(world_size)) => (rank, world_size),
        (None, None) => match (from_environment(py, "RANK")?, from_environment(py, "WORLD_SIZE")?) {
            (Some(rank), Some(world_size)) => (rank, world_size),
            (None, None) => (0, 1),
            _ => {
                return Err(PyValueError::new_err(
                    "only one of RANK and WORLD_SIZE is in the environment\nhint: torchrun sets both; or pass rank= and world_size=",
                ));
            }
        },
        _ => return Err(PyValueError::new_err("rank and world_size go together: give both or none")),
    };
    Shard::new(rank, world_size).map_err(raise)
}

/// Python's own view of the environment: `os.environ` can differ from the process's.
fn from_environment(py: Python<'_>, name: &str) -> PyResult<Option<u64>> {
    let value = py.import("os")?.getattr("environ")?.call_method1("get", (name,))?;
    if value.is_none() {
        return Ok(None);
    }
    let text: String = value.extract()?;
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => {
            Err(PyValueError::new_err(format!("the environment has {name}={text:?}, which is not a number")))
        }
    }
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
pub fn log_choice(py: Python<'_>, path: &Path, access: Access, why: &str) -> PyResult<()> {
    // Where nobody has imported logging nobody listens, and importing it takes longer than the first chunk.
    let modules = py.import("sys")?.getattr("modules")?;
    if modules.contains("logging")? {
        let arguments = ("%s: access %s because %s", path, access.name(), why);
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
    ) -> PyResult<Self> {
        for array in arrays {
            warn_unguarded(py, &array.get().inner)?;
        }
        log_choice(py, arrays[0].get().inner.path(), inner.access(), inner.why())?;
        let descrs = arrays.iter().map(|a| a.get().descr(py).clone().unbind()).collect();
        Ok(Self { inner: Turns::new(inner), descrs, yields })
    }
}

#[pymethods]
impl Chunks {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
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
        self.inner.with(py, |chunks, _| Ok(chunks.why().to_owned()))
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
