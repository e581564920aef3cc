//! The documents of a source: text, lines, JSON lines or Parquet, piece by piece.
//!
//! A reader pushes pieces of any size, at most [`PIECE`] bytes, so that a document of gigabytes needs no more memory
//! than a small one. What is wrong with a document is told to the sink, which stops or goes on with the next one.

mod guarded;
mod json;
mod parquet;
mod range;
mod text;
mod thrift;
mod told;

pub use range::{divisible, read_range};
pub use told::fit;

use crate::inputs::Source;
use crate::job::InputKind;
use crate::packing::{self, Gauge, Packing};
use crate::says::{BUDGET, ON_ERROR};
use crate::window::Window;
use lowtide::door::Words;
use lowtide::store::Cache;
use lowtide::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The largest piece of text that is pushed at once.
pub const PIECE: usize = 64 << 10;

/// Where the next document of a plain source begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The byte.
    pub offset: u64,
    /// The line.
    pub line: u64,
}

/// What takes the documents.
pub trait Sink {
    /// More of the document.
    fn push(&mut self, text: &str) -> Result<()>;
    /// The document is whole. The next one begins at `mark`, where one can begin to read there.
    fn end(&mut self, mark: Option<Mark>) -> Result<()>;
    /// The document cannot be read: what was pushed of it is to be forgotten.
    fn bad(&mut self, error: Error) -> Result<()>;
}

/// How sources are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What they are; by their content and name where it is not said.
    pub kind: Option<InputKind>,
    /// The path to the text, in JSON or among a table's columns.
    pub field: Vec<String>,
    /// Whether the path was asked for and there is one source only: then that has to have it.
    pub field_needed: bool,
    /// What stands between the documents of a text.
    pub separator: Option<String>,
    pub cache: Cache,
    /// Bytes that one line of JSON may take before it is read piece by piece, and that unpacking may take.
    pub room: u64,
    /// Bytes that one page of a table may take.
    pub page: u64,
    pub gauge: Gauge,
}

/// Reads all documents of a source, from `from` on. A source that changes meanwhile is an error, not a document.
pub fn read(source: &Source, how: &Reading, from: Option<Mark>, sink: &mut dyn Sink) -> Result<()> {
    source.unchanged()?;
    read_all(source, how, from, sink)?;
    source.unchanged()
}

fn read_all(source: &Source, how: &Reading, from: Option<Mark>, sink: &mut dyn Sink) -> Result<()> {
    match open(source, how, from) {
        Ok(Documents::Table(file)) => parquet::read(source.path(), &file, how, sink),
        Ok(Documents::Stream(kind, mut window, marks)) => {
            let stream = Stream { path: source.path(), window: &mut window, marks };
            match kind {
                InputKind::Text => text::read(stream, how.separator.as_deref(), text::Ends::Exact, sink),
                InputKind::Lines => text::read(stream, Some("\n"), text::Ends::Lines, sink),
                InputKind::Jsonl => json::read(stream, &how.field, how.room, sink),
                InputKind::Parquet => Err(Error::unsupported(
                    format!("{}: a Parquet file has to be read at any place", source.path().display()),
                    "unpack it, or write it to a file first",
                )),
            }
        }
        // What was asked for makes no sense for this source: no document of it is bad.
        Err(error @ Error::Argument { .. }) => Err(error),
        Err(error) => sink.bad(error),
    }
}

enum Documents {
    Table(std::fs::File),
    Stream(InputKind, Window, bool),
}

/// A stream of bytes, and whether documents can be found again by their place in it.
struct Stream<'a> {
    path: &'a Path,
    window: &'a mut Window,
    marks: bool,
}

impl Stream<'_> {
    fn mark(&self) -> Option<Mark> {
        self.marks.then(|| Mark { offset: self.window.offset(), line: self.window.line() })
    }

    /// What is wrong, and where: `at` bytes behind the window's beginning.
    fn wrong(&self, at: usize, expected: &str, found: &str, hint: Words) -> Error {
        let before = self.window.held();
        let lines = memchr::memchr_iter(b'\n', &before[..at.min(before.len())]).count() as u64;
        Error::Format {
            path: self.path.to_owned(),
            offset: self.window.offset() + at as u64,
            expected: expected.to_owned(),
            found: format!("{found} (line {})", self.window.line() + lines),
            hint,
        }
    }

    /// An error of the stream itself: a damaged archive, a disk that fails.
    fn broken(&self, error: &std::io::Error) -> Error {
        // So zstd says that the frame has a window of more than it was allowed.
        let window = error.to_string().contains("too much memory");
        let held = self.window.held();
        let lines = memchr::memchr_iter(b'\n', held).count() as u64;
        Error::Format {
            path: self.path.to_owned(),
            offset: self.window.offset() + held.len() as u64,
            expected: "more of the file".into(),
            found: format!("{error} (line {})", self.window.line() + lines),
            hint: if window {
                Words::from("it was packed with a large window: a larger ") + BUDGET + " reads it"
            } else {
                Words::from("is it cut, or damaged? ") + skip()
            },
        }
    }
}

fn open(source: &Source, how: &Reading, from: Option<Mark>) -> Result<Documents> {
    let mut opened = packing::open(source, how.cache, &how.gauge, how.room)?;
    let kind = told::kind(source, &mut opened, how)?;
    if kind == InputKind::Parquet
        && let (Some(file), Packing::Plain) = (&opened.file, opened.packing)
    {
        let file = file.try_clone().map_err(|error| Error::io(source.path(), "read the file", error))?;
        return Ok(Documents::Table(file));
    }
    let marks = opened.file.is_some() && opened.packing == Packing::Plain;
    let window = match from {
        Some(Mark { offset, line }) if marks => {
            drop(opened.stream);
            Window::at(packing::open_at(source, offset, how.cache, &how.gauge)?, offset, line)
        }
        _ => Window::new(opened.stream),
    };
    Ok(Documents::Stream(kind, window, marks))
}

/// What can be done about a document that cannot be read.
fn skip() -> Words {
    ON_ERROR.is("skip") + " passes over what cannot be read, and counts it"
}

/// A text in pieces of a size that a sink takes.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, others) = rest.split_at(rest.floor_char_boundary(PIECE));
        rest = others;
        Some(piece)
    })
}

#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
