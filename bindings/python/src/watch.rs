//! `lowtide.watch`: the meter beside Python's work, and the report of a run.
//!
//! The classes here are what `_watch.py` is made of; the context manager, the decorator and the notebook
//! view are Python there.

use crate::error::raise;
use crate::number::Real;
use crate::{argument, budget};
use lowtide::meter::{Files, Interval, Meter, Recording, Root, save};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Watches this process and its children from a thread of its own, until `stop`.
#[pyclass(frozen, module = "lowtide._lowtide", name = "Meter")]
pub struct Watching {
    meter: Mutex<Option<Meter>>,
}

#[pymethods]
impl Watching {
    #[new]
    #[pyo3(signature = (files, interval=None))]
    fn new(py: Python<'_>, files: Vec<String>, interval: Option<f64>) -> PyResult<Self> {
        let interval = interval.map_or(Ok(Interval::Auto), |seconds| every(seconds).map(Interval::Every))?;
        let root = Root::Process(std::process::id());
        let meter = py.detach(|| Meter::start(root, Files::new(&files), interval)).map_err(raise)?;
        Ok(Self { meter: Mutex::new(Some(meter)) })
    }

    /// Stops and returns the recording.
    #[pyo3(signature = (command, tolerance=None))]
    fn stop(&self, py: Python<'_>, command: Vec<String>, tolerance: Option<u64>) -> PyResult<Recorded> {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let meter = meter.ok_or_else(|| PyRuntimeError::new_err("this watch has been stopped"))?;
        let recording = py.detach(|| meter.stop(command, tolerance)).map_err(raise)?;
        Ok(Recorded(Kept::Run(Box::new(recording))))
    }
}

/// A run that is over: its JSON and its page.
///
/// Args:
///     json: Everything, as a pickle has it.
///     html: The page.
#[pyclass(frozen, module = "lowtide._lowtide", name = "Recording")]
pub struct Recorded(Kept);

enum Kept {
    Run(Box<Recording>),
    /// Of a pickle, which has both as text: the page has more in it than the JSON.
    Text {
        json: String,
        html: String,
    },
}

#[pymethods]
impl Recorded {
    #[new]
    fn new(json: String, html: String) -> Self {
        Self(Kept::Text { json, html })
    }

    /// Everything as JSON.
    fn json(&self, py: Python<'_>) -> String {
        match &self.0 {
            Kept::Run(recording) => py.detach(|| recording.to_json()),
            Kept::Text { json, .. } => json.clone(),
        }
    }

    /// The page.
    fn html(&self, py: Python<'_>) -> String {
        match &self.0 {
            Kept::Run(recording) => py.detach(|| recording.to_html()),
            Kept::Text { html, .. } => html.clone(),
        }
    }

    /// Writes the page to a temporary name, syncs and renames.
    fn save_html(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (path, page) = (argument::path(path, "path")?, self.html(py));
        py.detach(|| save(&path, page.as_bytes())).map_err(raise)
    }

    /// Writes the JSON likewise.
    fn save_json(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (path, text) = (argument::path(path, "path")?, self.json(py) + "\n");
        py.detach(|| save(&path, text.as_bytes())).map_err(raise)
    }

    #[allow(clippy::type_complexity)] // what pickle wants: a class and its arguments
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyType>, (String, String)) {
        let (py, kept) = (slf.py(), slf.get());
        (slf.get_type(), (kept.json(py), kept.html(py)))
    }
}

fn every(seconds: f64) -> PyResult<Duration> {
    let every = Duration::try_from_secs_f64(seconds).ok();
    every.filter(|every| *every >= Duration::from_millis(1)).ok_or_else(|| {
        let what = format!("interval={seconds} makes no sense");
        raise(lowtide::Error::argument(what, "seconds between samples, at least 0.001"))
    })
}

/// The argument `interval`, in seconds.
#[pyfunction]
pub fn parse_interval(given: Real) -> PyResult<f64> {
    every(given.named("interval")?).map(|every| every.as_secs_f64())
}

/// The argument `name`, a size such as `"64MiB"` or a number, in bytes.
#[pyfunction]
#[pyo3(signature = (given, name, least=1))]
pub fn parse_size(given: &Bound<'_, PyAny>, name: &str, least: u64) -> PyResult<u64> {
    budget::size(given, name, least)
}
