//! What several machines do together: the private half of `lowtide.ray`, which hands out the tasks.
//!
//! One process has the output ([`Preparing`], [`Shuffling`]); whoever has a task calls [`prepare_portion`] or
//! [`shuffle_unit`], on whichever machine, and as often as need be.

use crate::argument::{self, Flag, Word};
use crate::error::{raise, unlocked};
use crate::number::{Number, Real};
use crate::prepare::{Given, Prepared};
use crate::progress::{Told, warn};
use crate::shuffle::{Asked, summary};
use lowtide::store::{Storage, is_url};
use lowtide::{Error, Interrupt, Shared, Unit};
use lowtide_cli::prepare::Meter;
use lowtide_text::{Begun, Made, PORTION, Preparation, Progress};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Tokens that are prepared in portions. Until it is finished or closed, nobody else has the folder.
#[pyclass(frozen, module = "lowtide._lowtide", name = "_Preparing")]
pub struct Preparing {
    output: PathBuf,
    /// All of it, where it was done before.
    done: Mutex<Option<Prepared>>,
    work: Mutex<Option<Box<Preparation>>>,
    told: Mutex<Option<Told>>,
    meter: Mutex<Meter>,
    budget: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn over() -> PyErr {
    PyRuntimeError::new_err("this was finished or closed")
}

/// Refuses an output that is no folder of a filesystem.
fn seen_by_all(output: &Path) -> PyResult<()> {
    if !is_url(output) {
        return Ok(());
    }
    Err(raise(Error::unsupported(
        format!("{}: Ray's tasks write into a folder that all machines see", output.display()),
        "a shared filesystem; or do it on one machine, which sends what it has made",
    )))
}

/// Documents, tokens, and documents that were passed over.
type Counted = (u64, u64, u64);

fn counted(made: &Made) -> Counted {
    (made.counts.documents, made.tokens, made.counts.skipped)
}

#[pymethods]
impl Preparing {
    #[new]
    #[pyo3(signature = (inputs, output, *, tokenizer=None, format=Word::said("nanogpt"), val=Real::Fits(0.0), seed=Number::Fits(0), shard_tokens=None, input=None, field=Word::said("text"), split_lines=Flag::OFF, separator=None, include=None, on_error=Word::said("stop"), shuffle_documents=None, budget=None, cache=Word::auto(), part_bytes=None, progress=None), text_signature = "(inputs, output, *, tokenizer=None, format='nanogpt', val=0.0, seed=0, shard_tokens=None, input=None, field='text', split_lines=False, separator=None, include=None, on_error='stop', shuffle_documents=None, budget=None, cache='auto', part_bytes=None, progress=None)")]
    #[allow(clippy::too_many_arguments)] // they are keywords
    fn new(
        py: Python<'_>,
        inputs: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        tokenizer: Option<&Bound<'_, PyAny>>,
        format: Word,
        val: Real,
        seed: Number,
        shard_tokens: Option<&Bound<'_, PyAny>>,
        input: Option<Word>,
        field: Word,
        split_lines: Flag,
        separator: Option<Word>,
        include: Option<&Bound<'_, PyAny>>,
        on_error: Word,
        shuffle_documents: Option<Number>,
        budget: Option<&Bound<'_, PyAny>>,
        cache: Word,
        part_bytes: Option<u64>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let given = Given {
            tokenizer,
            format,
            val,
            seed,
            shard_tokens,
            input,
            field,
            split_lines,
            separator,
            include,
            on_error,
            shuffle_documents,
            threads: None,
            budget,
            cache,
        };
        let mut settings = given.settings(py)?;
        // Every task has as much, however much room there is where it runs.
        let usual = || lowtide::Budget::default_for(lowtide::meter::room().bytes).limit();
        let budget = *settings.budget.get_or_insert_with(usual);
        // No more is done at a time here than in a task, so the same budget holds.
        settings.threads = Some(1);
        if part_bytes == Some(0) {
            return Err(PyValueError::new_err("part_bytes is 0\nhint: a size such as \"128MiB\""));
        }
        let inputs = argument::paths(inputs, "inputs")?;
        let output = argument::path(output, "output")?;
        seen_by_all(&output)?;
        let told = Told::new(py, progress, "preparing tokens")?;
        let mut meter = Meter::default();
        let begun = unlocked(py, |interrupt| {
            let mut tell = |at: &Progress| told.tell(&meter.words(at), at);
            let stop = || if told.has_raised() { Err(Error::Interrupted) } else { interrupt() };
            Preparation::begin(&inputs, &output, &settings, part_bytes.unwrap_or(PORTION), &mut tell, &stop)
        });
        let (done, work, told) = match begun {
            Err(error) => return Err(told.end(py).unwrap_or(error)),
            Ok(Begun::Done(manifest)) => {
                told.end(py);
                (Some(Prepared::new(output.clone(), *manifest)), None, None)
            }
            Ok(Begun::ToDo(work)) => (None, Some(work), Some(told)),
        };
        let (done, work, told, meter) =
            (Mutex::new(done), Mutex::new(work), Mutex::new(told), Mutex::new(meter));
        Ok(Self { output, done, work, told, meter, budget })
    }

    /// How many portions there are; none, where all was done before.
    fn __len__(&self) -> usize {
        locked(&self.work).as_ref().map_or(0, |work| work.portions())
    }

    /// Bytes that a task may hold.
    #[getter]
    fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes of all inputs.
    #[getter]
    fn bytes(&self) -> u64 {
        locked(&self.work).as_ref().map_or(0, |work| work.bytes())
    }

    /// Bytes of a portion, its task, and what is known of it, if it was made before.
    fn portion(&self, number: usize) -> PyResult<(u64, String, Option<Counted>)> {
        let work = locked(&self.work);
        let work = work.as_ref().filter(|work| number < work.portions()).ok_or_else(over)?;
        let made = work.made(number).map_err(raise)?;
        Ok((work.bytes_of(number), work.task(number).map_err(raise)?, made.as_ref().map(counted)))
    }

    /// Says how far it is.
    fn tell(
        &self,
        py: Python<'_>,
        read: u64,
        documents: u64,
        tokens: u64,
        skipped: u64,
        resumed: u64,
    ) -> PyResult<()> {
        let bytes = self.bytes();
        let at = Progress { bytes, read, documents, tokens, skipped, resumed, ..Progress::default() };
        let line = locked(&self.meter).words(&at);
        py.detach(|| {
            let told = locked(&self.told);
            told.as_ref().into_iter().for_each(|told| told.tell(&line, &at));
        });
        let raised = locked(&self.told).as_ref().is_some_and(Told::has_raised);
        if raised { Err(self.end(py).unwrap_or_else(over)) } else { Ok(()) }
    }

    /// Puts all portions together.
    fn finish(&self, py: Python<'_>) -> PyResult<Prepared> {
        if let Some(done) = locked(&self.done).take() {
            return Ok(done);
        }
        let work = locked(&self.work).take().ok_or_else(over)?;
        let told = locked(&self.told).take().ok_or_else(over)?;
        let (mut meter, mut said) = (Meter::default(), Vec::new());
        let made = unlocked(py, |interrupt| {
            let mut tell = |at: &Progress| {
                told.tell(&meter.words(at), at);
                said.clone_from(&at.said);
            };
            work.finish(&mut tell, &|| if told.has_raised() { Err(Error::Interrupted) } else { interrupt() })
        });
        let raised = told.end(py);
        let manifest = made.map_err(|error| raised.unwrap_or(error))?;
        warn(py, &said);
        Ok(Prepared::new(self.output.clone(), manifest))
    }

    /// Lets others have the folder. What was made stays, and is gone on with.
    fn close(&self, py: Python<'_>) {
        locked(&self.work).take();
        self.end(py);
    }
}

impl Preparing {
    /// Clears the line of progress; gives what a function of the caller's has raised.
    fn end(&self, py: Python<'_>) -> Option<PyErr> {
        let told = locked(&self.told).take();
        told.and_then(|told| told.end(py))
    }
}

/// Makes tokens of a portion, unless that was done: documents, tokens, documents that were passed over.
#[pyfunction]
#[pyo3(name = "_prepare_portion")]
pub fn prepare_portion(py: Python<'_>, task: &str) -> PyResult<Counted> {
    unlocked(py, |interrupt| lowtide_text::prepare_portion(task, interrupt)).map(|made| counted(&made))
}

/// Rows that are shuffled in units. Until it is finished or closed, nobody else has the folder.
#[pyclass(frozen, module = "lowtide._lowtide", name = "_Shuffling")]
pub struct Shuffling {
    work: Mutex<Option<Shared>>,
    #[pyo3(get)]
    budget: u64,
}

fn unit(step: &str, number: u64) -> Unit {
    if step == "runs" { Unit::Run(number) } else { Unit::Bucket(number) }
}

#[pymethods]
impl Shuffling {
    #[new]
    #[pyo3(signature = (inputs, output, *, seed=Number::Fits(0), epoch=Number::Fits(0), dtype=None, shape=None, offset=None, budget=None, overwrite=Flag::OFF), text_signature = "(inputs, output, *, seed=0, epoch=0, dtype=None, shape=None, offset=None, budget=None, overwrite=False)")]
    #[allow(clippy::too_many_arguments)] // they are keywords
    fn new(
        py: Python<'_>,
        inputs: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        seed: Number,
        epoch: Number,
        dtype: Option<&Bound<'_, PyAny>>,
        shape: Option<&Bound<'_, PyAny>>,
        offset: Option<Number>,
        budget: Option<&Bound<'_, PyAny>>,
        overwrite: Flag,
    ) -> PyResult<Self> {
        let overwrite = overwrite.parse("overwrite")?;
        let asked = Asked {
            inputs,
            output,
            seed,
            epoch,
            dtype,
            shape,
            offset,
            budget,
            overwrite,
            storage: Storage::default(),
        };
        let shuffle = asked.files(py)?;
        shuffle.outputs.first().map_or(Ok(()), |output| seen_by_all(output))?;
        let budget = shuffle.arrays.first().map_or(0, |array| array.budget().limit());
        let work = py.detach(|| Shared::begin(shuffle)).map_err(raise)?;
        Ok(Self { work: Mutex::new(Some(work)), budget })
    }

    /// What a task needs to know.
    fn described(&self) -> PyResult<String> {
        locked(&self.work).as_ref().ok_or_else(over)?.described().map_err(raise)
    }

    /// The step, "runs" or "rows", and its units that are not done.
    fn to_do(&self) -> PyResult<(&'static str, Vec<u64>)> {
        let units = locked(&self.work).as_ref().ok_or_else(over)?.to_do();
        let step = if matches!(units.first(), Some(Unit::Run(_))) { "runs" } else { "rows" };
        let number = |unit| match unit {
            Unit::Run(number) | Unit::Bucket(number) => number,
        };
        Ok((step, units.into_iter().map(number).collect()))
    }

    /// Notes that a unit is done: bytes that were written so far, of how many, and what was written before.
    fn done(&self, py: Python<'_>, step: &str, number: u64) -> PyResult<(u64, u64, u64)> {
        let mut work = locked(&self.work);
        let work = work.as_mut().ok_or_else(over)?;
        py.detach(|| work.done(unit(step, number))).map_err(raise)?;
        Ok((work.written(), work.total(), work.before()))
    }

    /// Gives the new files their names.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let work = locked(&self.work).take().ok_or_else(over)?;
        let made = py.detach(|| work.finish()).map_err(raise)?;
        summary(py, made)
    }

    /// Lets others have the folder. What was done stays, and is gone on with.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let work = locked(&self.work).take();
        py.detach(|| work.map_or(Ok(()), |mut work| work.save())).map_err(raise)
    }
}

/// Does a unit of a shuffle.
#[pyfunction]
#[pyo3(name = "_shuffle_unit", signature = (described, step, number, inputs, output, *, seed=Number::Fits(0), epoch=Number::Fits(0), dtype=None, shape=None, offset=None, budget=None), text_signature = "(described, step, number, inputs, output, *, seed=0, epoch=0, dtype=None, shape=None, offset=None, budget=None)")]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn shuffle_unit(
    py: Python<'_>,
    described: &str,
    step: &str,
    number: u64,
    inputs: &Bound<'_, PyAny>,
    output: &Bound<'_, PyAny>,
    seed: Number,
    epoch: Number,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<&Bound<'_, PyAny>>,
    offset: Option<Number>,
    budget: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let asked = Asked {
        inputs,
        output,
        seed,
        epoch,
        dtype,
        shape,
        offset,
        budget,
        overwrite: true,
        storage: Storage::default(),
    };
    let shuffle = asked.files(py)?;
    let work = |interrupt: Interrupt<'_>| unit(step, number).work(&shuffle, described, interrupt);
    unlocked(py, work)
}
