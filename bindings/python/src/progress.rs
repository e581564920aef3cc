//! How far long work is, for whoever waits: a function of the caller's, a line on a terminal, or the logger.

use lowtide_text::{Progress, Step};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long nothing is said to the logger, and how long between two of its messages.
const FIRST_WORD: Duration = Duration::from_millis(500);
const NEXT_WORD: Duration = Duration::from_secs(5);

/// What a function of the caller's is told.
pub trait Facts {
    fn fill(&self, facts: &Bound<'_, PyDict>) -> PyResult<()>;
}

/// Whoever is told, and what went wrong with that.
pub struct Told {
    who: Who,
    /// What is being done, for the logger.
    doing: &'static str,
    raised: Mutex<Option<PyErr>>,
}

enum Who {
    Nobody,
    /// A function.
    Function(Py<PyAny>),
    /// A terminal.
    Line(Py<PyAny>),
    /// The logger `lowtide`, next at this time.
    Logger(Mutex<Instant>),
}

impl Told {
    /// From the argument `progress` of what is `doing` something.
    pub fn new(py: Python<'_>, given: Option<&Bound<'_, PyAny>>, doing: &'static str) -> PyResult<Self> {
        let who = match given {
            Some(given) if given.is_callable() => Who::Function(given.clone().unbind()),
            Some(given) if given.cast::<PyBool>().is_ok_and(|given| !given.is_true()) => Who::Nobody,
            Some(given) if !given.is_none() => {
                let shown = given.repr().map_or_else(|_| "that".into(), |text| text.to_string());
                return Err(PyTypeError::new_err(format!(
                    "progress={shown} cannot be called\nhint: a function of a dict, or False for silence"
                )));
            }
            _ => {
                let stderr = py.import("sys")?.getattr("stderr")?;
                // There may be none, or one that has been closed.
                let terminal =
                    stderr.call_method0("isatty").is_ok_and(|answer| answer.is_truthy().unwrap_or(false));
                if terminal {
                    Who::Line(stderr.unbind())
                } else {
                    Who::Logger(Mutex::new(Instant::now() + FIRST_WORD))
                }
            }
        };
        Ok(Self { who, doing, raised: Mutex::default() })
    }

    /// Says how far it is, in a line and as facts. Called without the interpreter lock.
    pub fn tell(&self, line: &str, at: &impl Facts) {
        match &self.who {
            Who::Nobody => {}
            Who::Function(function) => {
                let called = Python::attach(|py| {
                    let facts = PyDict::new(py);
                    at.fill(&facts)?;
                    function.call1(py, (facts,)).map(|_| ())
                });
                if let Err(error) = called {
                    *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
            Who::Line(stderr) => write(stderr, line),
            Who::Logger(next) => {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                if Instant::now() < *next {
                    return;
                }
                *next = Instant::now() + NEXT_WORD;
                // A logger that raises is no reason to stop.
                let _ = Python::attach(|py| {
                    let logger = py.import("logging")?.call_method1("getLogger", ("lowtide",))?;
                    logger.call_method1("info", ("%s", format!("{}: {line}", self.doing))).map(|_| ())
                });
            }
        }
    }

    /// Whether the function has raised: then the work ends.
    pub fn has_raised(&self) -> bool {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Clears the line; gives what the function raised.
    pub fn end(self, py: Python<'_>) -> Option<PyErr> {
        if let Who::Line(stderr) = &self.who {
            py.detach(|| write(stderr, ""));
        }
        self.raised.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the line of a terminal. One that is gone is no reason to stop.
fn write(stderr: &Py<PyAny>, line: &str) {
    let _ = Python::attach(|py| {
        let line = lowtide_cli::draw::fitted(line, columns(py, stderr).ok());
        stderr.call_method1(py, "write", (format!("\r\x1b[K{line}"),))?;
        stderr.call_method0(py, "flush")
    });
}

/// How many columns a terminal has.
fn columns(py: Python<'_>, terminal: &Py<PyAny>) -> PyResult<usize> {
    let number = terminal.call_method0(py, "fileno")?;
    py.import("os")?.call_method1("get_terminal_size", (number,))?.getattr("columns")?.extract()
}

/// Tells the logger `lowtide` what should be known, such as documents that were passed over, each in a line. A logger that
/// raises is no reason to fail.
pub fn warn(py: Python<'_>, said: &[String]) {
    let _ = py.import("logging").and_then(|logging| {
        let logger = logging.call_method1("getLogger", ("lowtide",))?;
        said.iter().try_for_each(|one| logger.call_method1("warning", ("%s", one)).map(|_| ()))
    });
}

impl Facts for Progress {
    fn fill(&self, facts: &Bound<'_, PyDict>) -> PyResult<()> {
        let step = match self.step {
            Step::Looking => "looking",
            Step::Encoding => "encoding",
            Step::Joining => "joining",
            Step::Dealing => "dealing",
            Step::Sending => "sending",
        };
        facts.set_item("step", step)?;
        facts.set_item("bytes_read", self.read)?;
        facts.set_item("bytes", self.bytes)?;
        facts.set_item("documents", self.documents)?;
        facts.set_item("tokens", self.tokens)?;
        facts.set_item("skipped", self.skipped)
    }
}
