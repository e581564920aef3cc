//! The core crate's errors as the exceptions that Python users expect, and signals during long work.

use crate::storage;
use lowtide::Error;
use pyo3::exceptions::{
    PyIndexError, PyKeyboardInterrupt, PyMemoryError, PyNotImplementedError, PyOSError, PyRuntimeError,
    PyValueError,
};
use pyo3::prelude::*;
use std::io;
use std::sync::Mutex;

/// The exception for an error.
pub fn raise(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        // Three arguments let Python choose the subclass: FileNotFoundError, PermissionError, … The path is a
        // str, as in Python's own: a Path would print as PosixPath('…').
        Error::Io { path, what, source, hint } => {
            let mut text = format!("cannot {what}: {}", without_number(&source));
            if !hint.is_empty() {
                text = format!("{text} (hint: {hint})"); // on one line: Python puts the path behind it
            }
            PyOSError::new_err((number(&source), text, path.into_os_string()))
        }
        Error::Truncated { path, .. } => PyOSError::new_err((5, message, path.into_os_string())),
        Error::Index { .. } | Error::Start { .. } => PyIndexError::new_err(message),
        Error::Unsupported { .. } => PyNotImplementedError::new_err(message),
        Error::Budget { .. } | Error::Memory { .. } => PyMemoryError::new_err(message),
        Error::Bug { .. } => PyRuntimeError::new_err(message),
        Error::Interrupted => storage::raised().unwrap_or_else(|| PyKeyboardInterrupt::new_err(())),
        _ => PyValueError::new_err(message),
    }
}

/// The system's number of an error, by which Python chooses the exception; of what a server said, one that fits.
fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::NotConnected => libc::EHOSTUNREACH,
        _ => libc::EIO,
    })
}

/// `io::Error` prints its number too, and so does Python: once is enough.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Runs `work` without the interpreter lock, and ends it if a signal handler raises, as for Ctrl-C.
pub fn unlocked<T: Send>(
    py: Python<'_>,
    work: impl Send + FnOnce(lowtide::Interrupt<'_>) -> lowtide::Result<T>,
) -> PyResult<T> {
    let raised = Mutex::new(None);
    let answer = py.detach(|| {
        #[allow(clippy::redundant_closure_for_method_calls)]
        // the method is not general enough in its lifetime
        let signals = || Python::attach(|py| py.check_signals());
        work(&|| match signals() {
            Ok(()) => Ok(()),
            Err(exception) => {
                *raised.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(exception);
                Err(Error::Interrupted)
            }
        })
    });
    match (answer, raised.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)) {
        (Err(Error::Interrupted), Some(exception)) => Err(exception),
        (answer, _) => answer.map_err(raise),
    }
}
