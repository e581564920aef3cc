//! What can go wrong, said so that the reader knows what to do next.
//!
//! One enum for the whole crate. Every variant carries what a person needs: the path, the offset,
//! what was expected, what was found, and a hint where there is one. The Python package turns each
//! variant into the exception that Python users expect; that table lives with the bindings. What is said
//! of settings is said in the language of the reader: see [`Door`].

use crate::door::{Door, Words};
use crate::size::human;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused: no such file, permission denied, a full disk.
    Io {
        /// The file.
        path: PathBuf,
        /// What we were about to do, as in "cannot *open the file*".
        what: &'static str,
        /// What the system said.
        source: io::Error,
        /// What to do about it, or empty.
        hint: Words,
    },
    /// The bytes do not mean what they should: a damaged or hostile header, a shape that does not fit.
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
        hint: Words,
    },
    /// The file became shorter after it was opened.
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
    Index {
        /// The index as the caller gave it, negative if it was.
        index: i128,
        /// Which axis.
        axis: usize,
        /// How many there are.
        size: u64,
    },
    /// A window that does not lie inside the stream of tokens.
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
    Argument {
        /// What is wrong with it.
        what: Words,
        /// What to do about it, or empty.
        hint: Words,
    },
    /// Something that could make sense and that we do not do.
    Unsupported {
        /// What is not done.
        what: String,
        /// What to do instead, or empty.
        hint: Words,
    },
    /// A plan that does not fit the budget.
    Budget {
        /// What does not fit.
        what: Words,
        /// How many bytes it needs.
        needs: u64,
        /// How many bytes there are.
        limit: u64,
        /// What to do about it, or empty.
        hint: Words,
    },
    /// Memory that the system did not give, whatever the budget.
    Memory {
        /// How many bytes were asked for.
        needs: u64,
    },
    /// Something of ours is wrong, and nothing that the caller did.
    Bug {
        /// What happened.
        what: String,
    },
    /// The caller asked for the work to end: Ctrl-C, a signal.
    Interrupted,
    /// The object was closed.
    Closed {
        /// The file.
        path: PathBuf,
    },
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// For a reader in Python.
impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.at(Door::Python).fmt(f)
    }
}

/// An error as it is said at a door.
struct At<'a>(&'a Error, Door);

impl Display for At<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let door = self.1;
        match self.0 {
            Error::Io { path, what, source, .. } => write!(f, "{}: cannot {what}: {source}", path.display()),
            Error::Format { path, offset, expected, found, .. } => {
                write!(f, "{}: at byte {offset}: expected {expected}, found {found}", path.display())
            }
            Error::Truncated { path, offset, end, found } => write!(
                f,
                "{}: the file was cut while it was being read: bytes {offset}..{end} were asked for, it now has \
                 {found} bytes",
                path.display()
            ),
            Error::Index { index, axis, size } => {
                write!(f, "index {index} is out of bounds for axis {axis} with size {size}")
            }
            Error::Start { start, block, last, tokens } => {
                write!(f, "start {start} is out of range: {}", inside(*block, *last, *tokens))
            }
            Error::Argument { what, .. } => what.at(door).fmt(f),
            Error::Unsupported { what, .. } | Error::Bug { what } => f.write_str(what),
            Error::Budget { what, needs, limit, .. } => {
                write!(f, "{} needs {}, the budget is {}", what.at(door), human(*needs), human(*limit))
            }
            Error::Memory { needs } => {
                write!(f, "the system has no memory left: {} could not be had", human(*needs))
            }
            Error::Interrupted => f.write_str("interrupted"),
            Error::Closed { path } => write!(f, "{}: this has been closed", path.display()),
        }?;
        let hint = self.0.hint();
        if hint.is_empty() { Ok(()) } else { write!(f, "\nhint: {}", hint.at(door)) }
    }
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

impl Error {
    /// A system error on `path` while trying to `what`.
    pub fn io(path: &Path, what: &'static str, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), what, source: source.into(), hint: Words::NONE }
    }

    /// The system starts no thread that `what` cannot do without.
    pub fn no_thread(path: &Path, what: &'static str, source: io::Error) -> Self {
        let hint =
            "the process may have no more threads: see ulimit -u, and the pids limit of the container or job";
        Self::io(path, what, source).with_hint(hint)
    }

    /// Whether the process, or the machine, has no descriptor left to open a file with.
    pub(crate) fn is_for_want_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)))
    }

    /// Whether a server was waited for in vain.
    pub(crate) fn is_unreachable(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, NotConnected, TimedOut};
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), ConnectionRefused | ConnectionReset | NotConnected | TimedOut))
    }

    /// A bad argument, with what to do about it (or an empty hint).
    pub fn argument(what: impl Into<Words>, hint: impl Into<Words>) -> Self {
        Self::Argument { what: what.into(), hint: hint.into() }
    }

    /// Something we do not do, with what to do instead.
    pub fn unsupported(what: impl Into<String>, hint: impl Into<Words>) -> Self {
        Self::Unsupported { what: what.into(), hint: hint.into() }
    }

    /// The same for a reader at `door`.
    pub fn at(&self, door: Door) -> impl Display + '_ {
        At(self, door)
    }

    /// What to do about it, or nothing.
    pub fn hint(&self) -> Words {
        match self {
            Self::Io { hint, .. }
            | Self::Format { hint, .. }
            | Self::Argument { hint, .. }
            | Self::Unsupported { hint, .. }
            | Self::Budget { hint, .. } => hint.clone(),
            Self::Truncated { .. } => Words::from(
                "something truncated or rewrote the file; write a new file and rename it into place instead",
            ),
            Self::Memory { .. } => Words::from(
                "read fewer rows at a time; a memory limit (ulimit -v, a control group) may be in the way",
            ),
            Self::Bug { .. } => Words::from("this is a bug in Lowtide, please report it with this message"),
            Self::Index { .. } | Self::Start { .. } | Self::Closed { .. } | Self::Interrupted => Words::NONE,
        }
    }

    /// The same with other names for settings: see [`Words::renamed`].
    #[must_use]
    pub fn renamed(self, names: &[(&str, &'static str)]) -> Self {
        let hint = self.hint().renamed(names);
        match self {
            Self::Argument { what, .. } => Self::Argument { what: what.renamed(names), hint },
            other => other.with_hint(hint),
        }
    }

    /// Replaces the hint of the variants that carry one.
    #[must_use]
    pub fn with_hint(mut self, new: impl Into<Words>) -> Self {
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
            | Self::Memory { .. }
            | Self::Bug { .. }
            | Self::Interrupted => {}
        }
        self
    }
}
