//! What can go wrong, said so that the reader knows what to do next.
//!
//! One enum for the whole crate. Every variant carries what a person needs: the path, the offset,
//! what was expected, what was found, and a hint where there is one. The Python package turns each
//! variant into the exception that Python users expect; that table lives with the bindings.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: no such file, permission denied, a full disk.
    #[error("{path}: cannot {what}: {source}{hint}", path = .path.display(), hint = Hint(.hint))]
    Io {
        /// The file.
        path: PathBuf,
        /// What we were about to do, as in "cannot *open the file*".
        what: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to do about it, or empty.
        hint: String,
    },
    /// The bytes do not mean what they should: a damaged or hostile header, a shape that does not fit.
    #[error(
        "{path}: at byte {offset}: expected {expected}, found {found}{hint}",
        path = .path.display(), hint = Hint(.hint)
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
        /// What to do about it, or empty.
        hint: String,
    },
    /// The file became shorter after it was opened.
    #[error(
        "{path}: the file was cut while it was being read: bytes {offset}..{end} were asked for, it now has {found} bytes\n\
         hint: something truncated or rewrote the file; write a new file and rename it into place instead",
        path = .path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first byte that was asked for.
        offset: u64,
        /// One past the last byte that was asked for.
        end: u64,
        /// The file's size now.
        found: u64,
    },
    /// A row or an index outside the array.
    #[error("index {index} is out of bounds for axis {axis} with size {size}")]
    Index {
        /// The index as the caller gave it, negative if it was.
        index: i128,
        /// Which axis.
        axis: usize,
        /// How many there are.
        size: u64,
    },
    /// A window that does not lie inside the stream of tokens.
    #[error("start {start} is out of range: {}", inside(*.block, *.last, *.tokens))]
    Start {
        /// The start as the caller gave it, negative if it was.
        start: i128,
        /// Tokens of x, one fewer than are read.
        block: u64,
        /// The last possible start, or −1.
        last: i128,
        /// How many tokens there are.
        tokens: u64,
    },
    /// An argument that makes no sense, found before any file is touched.
    #[error("{what}{hint}", hint = Hint(.hint))]
    Argument {
        /// What is wrong with it.
        what: String,
        /// What to do about it, or empty.
        hint: String,
    },
    /// Something that could make sense and that we do not do.
    #[error("{what}{hint}", hint = Hint(.hint))]
    Unsupported {
        /// What is not done.
        what: String,
        /// What to do instead, or empty.
        hint: String,
    },
    /// A plan that does not fit the budget.
    #[error("{what} needs {needs}, the budget is {limit}{hint}",
        needs = crate::budget::human(*.needs), limit = crate::budget::human(*.limit), hint = Hint(.hint))]
    Budget {
        /// What does not fit.
        what: String,
        /// How many bytes it needs.
        needs: u64,
        /// How many bytes there are.
        limit: u64,
        /// What to do about it, or empty.
        hint: String,
    },
    /// The caller asked for the work to end: Ctrl-C, a signal.
    #[error("interrupted")]
    Interrupted,
    /// The object was closed.
    #[error("{path}: this has been closed", path = .path.display())]
    Closed {
        /// The file.
        path: PathBuf,
    },
}

/// Where windows can start, in words.
fn inside(block: u64, last: i128, tokens: u64) -> String {
    let window = format!("windows of {block} tokens and the one after them");
    if last < 0 {
        format!("no {window} fit into a stream of {tokens}")
    } else {
        format!("{window} start at 0 to {last}, there are {tokens} tokens")
    }
}

/// Prints as `\nhint: …`, or as nothing.
struct Hint<'a>(&'a str);

impl std::fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", self.0) }
    }
}

impl Error {
    /// A system error on `path` while trying to `what`.
    pub fn io(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), what, source: source.into(), hint: String::new() }
    }

    /// Whether the process, or the machine, has no descriptor left to open a file with.
    pub(crate) fn is_for_want_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))
    }

    /// A bad argument, with what to do about it (or an empty hint).
    pub fn argument(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Argument { what: what.into(), hint: hint.into() }
    }

    /// Something we do not do, with what to do instead.
    pub fn unsupported(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into(), hint: hint.into() }
    }

    /// Replaces the hint of the variants that carry one.
    #[must_use]
    pub fn with_hint(mut self, new: impl Into<String>) -> Self {
        match &mut self {
            Self::Io { hint, .. }
            | Self::Format { hint, .. }
            | Self::Argument { hint, .. }
            | Self::Unsupported { hint, .. }
            | Self::Budget { hint, .. } => *hint = new.into(),
            Self::Truncated { .. }
            | Self::Index { .. }
            | Self::Start { .. }
            | Self::Closed { .. }
            | Self::Interrupted => {}
        }
        self
    }
}
