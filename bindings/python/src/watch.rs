//! `lowtide.watch`: the meter beside Python's work, and the report of a run.
//!
//! The classes here are what `_watch.py` is made of; the context manager, the decorator and the notebook
//! view are Python there.

use crate::error::raise;
use lowtide::meter::{Files, Interval, Meter, Recording, Root};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::PathBuf;
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
        let interval = match interval.map(Duration::try_from_secs_f64) {
            None => Interval::Auto,
            Some(Ok(every)) if every >= Duration::from_millis(1) => Interval::Every(every),
            Some(_) => {
                let hint = "seconds between samples, at least 0.001";
                return Err(raise(lowtide::Error::argument("interval makes no sense", hint)));
            }
        };
        let root = Root::Process(std::process::id());
        let meter = py.detach(|| Meter::start(root, Files::new(&files), interval)).map_err(raise)?;
        Ok(Self { meter: Mutex::new(Some(meter)) })
    }

    /// Stops and returns the recording.
    #[pyo3(signature = (command, tolerance=None))]
    fn stop(&self, py: Python<'_>, command: Vec<String>, tolerance: Option<u64>) -> PyResult<Recorded> {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner).take();
        let meter = meter.ok_or_else(|| PyRuntimeError::new_err("this watch has been stopped"))?;
        py.detach(|| meter.stop(command, tolerance)).map(Recorded).map_err(raise)
    }
}

/// A run that is over.
#[pyclass(frozen, module = "lowtide._lowtide", name = "Recording")]
pub struct Recorded(Recording);

#[pymethods]
impl Recorded {
    #[getter]
    fn verdict(&self) -> &'static str {
        self.0.verdict.word.as_str()
    }

    /// Everything as JSON.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    /// The page.
    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_html())
    }

    /// Writes the page to a temporary name, syncs and renames.
    fn save_html(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save_html(&path)).map_err(raise)
    }

    /// Writes the JSON likewise.
    fn save_json(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save_json(&path)).map_err(raise)
    }
}

/// A size such as `"64MiB"` in bytes.
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    lowtide::budget::parse_size(text).map_err(raise)
}
