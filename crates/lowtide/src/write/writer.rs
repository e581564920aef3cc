//! An array that is being written: rows in, a file or an object that appears whole or not at all.
//!
//! In: bytes of whole rows, as they lie in the file, at its end or, where the number of rows is known, anywhere. Out: a
//! `.npy` file that is what `np.save` would have written, or bare elements. Memory: the windows of `Paced`, or the parts of
//! an upload, leased from the budget; no other byte of a caller's is held.

use super::growth::Growth;
use super::out::Out;
use super::wish::{PARTS, window};
use super::wrong;
use crate::error::{Error, Result};
use crate::format::{Dtype, Order};
use crate::interrupt::Interrupt;
use crate::options::Cache;
use crate::store::OneFile;
use crate::sys;
use rustix::fs::OFlags;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An array that is being written. Dropped before [`close`](Self::close), it leaves nothing.
pub struct Writer {
    pub(super) path: PathBuf,
    pub(super) growth: Growth,
    /// Where the elements begin.
    pub(super) data_at: u64,
    /// How many rows there are; of a known number, all of them.
    pub(super) rows: u64,
    /// Where the next ones go that are appended.
    pub(super) next: u64,
    /// Whether any were.
    pub(super) appended: bool,
    /// So many bytes may stay in the page cache, where that was ours to say.
    pub(super) keep_until: u64,
    pub(super) window: u64,
    pub(super) open: Option<Out>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Growth { dtype, .. } = self.growth;
        write!(f, "Writer({:?}, shape={:?}, dtype={dtype}, rows={})", self.path, self.shape(), self.rows())
    }
}

impl Writer {
    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.growth.dtype
    }

    /// The order of the elements in the file.
    pub fn order(&self) -> Order {
        self.growth.order
    }

    /// The axis along which rows are written: the first in C order, the last in Fortran order.
    pub fn axis(&self) -> usize {
        self.growth.axis()
    }

    /// The shape so far; of a known number of rows, the whole.
    pub fn shape(&self) -> Vec<usize> {
        self.growth.shape(self.rows())
    }

    /// How many rows there are so far; where the number was given, that one.
    pub fn rows(&self) -> u64 {
        self.growth.known.unwrap_or(self.rows)
    }

    /// Whether the number of rows is open.
    pub fn grows(&self) -> bool {
        self.growth.known.is_none()
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.growth.row_bytes()
    }

    /// The byte of the file where elements begin.
    pub(crate) fn data_at(&self) -> u64 {
        self.data_at
    }

    /// How much of so many bytes of memory a writer would use.
    pub(crate) fn share(available: u64) -> u64 {
        PARTS * window(available)
    }

    /// How many bytes a caller who has to convert rows may hold at a time: they are leased.
    pub fn scratch(&self) -> usize {
        usize::try_from(self.window).unwrap_or(usize::MAX)
    }

    /// What the page cache keeps now; `None` once it is closed.
    pub fn cache(&self) -> Option<Cache> {
        self.open.as_ref().map(Out::cache)
    }

    /// Whether it was closed or discarded.
    pub fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    /// Adds rows: their bytes, as they lie in the file.
    ///
    /// # Errors
    /// [`Error::Argument`] where they are no whole rows, or more than there is place for; [`Error::Io`] as the system
    /// has it, such as a full disk: the rows do not count then, and may be written again.
    pub fn append(&mut self, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let rows = self.count(bytes)?;
        let mut part = self.part(Place::End, rows)?;
        part.write(bytes, interrupt)?;
        part.done()
    }

    /// Writes rows from `start` on, of an array whose number of rows is known.
    ///
    /// # Errors
    /// As [`append`](Self::append); [`Error::Index`] outside the array.
    pub fn write(&mut self, start: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let rows = self.count(bytes)?;
        let mut part = self.part(Place::Row(start), rows)?;
        part.write(bytes, interrupt)?;
        part.done()
    }

    /// Writes elements anywhere in an array whose number of rows is known, whole rows or not: `at` bytes after the first.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        self.put_by(Out::write_at, at, bytes, interrupt)
    }

    /// The same through the page cache: whoever reads the file before it is whole finds them.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(super) fn put_through(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        self.put_by(Out::write_through, at, bytes, interrupt)
    }

    fn put_by(
        &mut self,
        write: impl FnOnce(&mut Out, u64, &[u8], Interrupt<'_>) -> Result<()>,
        at: u64,
        bytes: &[u8],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let place = self.place(at, bytes.len())?;
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        write(open, place, bytes, interrupt)?;
        if open.is_object() {
            self.next = (place + bytes.len() as u64 - self.data_at) / self.growth.row_bytes().max(1);
        }
        Ok(())
    }

    /// The byte of the file `at` so many bytes after the first element, if `len` more are in the array.
    pub(super) fn place(&self, at: u64, len: usize) -> Result<u64> {
        self.opened()?;
        let place = self.data_at.checked_add(at);
        let end = place.and_then(|place| place.checked_add(len as u64));
        match (place, end.filter(|&end| !self.grows() && end <= self.end())) {
            (Some(place), Some(_)) => Ok(place),
            _ => Err(Error::Bug { what: format!("{len} bytes at {at} are not in the array") }),
        }
    }

    /// The file, while it is written; `None` of an object.
    pub(super) fn file(&self) -> Option<&File> {
        self.open.as_ref().and_then(Out::file)
    }

    /// The file as it is so far, to be read.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Unsupported`] of an object.
    pub(crate) fn source(&self) -> Result<OneFile> {
        let nothing = || Error::unsupported("an object is not read before it is whole", "");
        let file = self.file().ok_or_else(nothing)?;
        let opened = sys::reopen(file, OFlags::RDONLY).and_then(|file| OneFile::over(file, &self.path));
        opened.map_err(|error| wrong(&self.path, "read the file", error))
    }

    fn count(&self, bytes: &[u8]) -> Result<u64> {
        let (row, len) = (self.row_bytes(), bytes.len() as u64);
        match len.checked_rem(row) {
            Some(0) => Ok(len / row),
            Some(_) => Err(Error::argument(format!("{len} bytes are no whole number of rows of {row}"), "")),
            None => Err(Error::argument("rows without bytes cannot be counted by them", "")),
        }
    }

    /// Where rows go: those of an object only to its end.
    fn in_order(&self, place: Place) -> Result<Place> {
        let Place::Row(start) = place else { return self.opened().map(|_| place) };
        if !self.opened()?.is_object() || self.grows() {
            return Ok(place);
        }
        if start == self.next {
            return Ok(Place::End);
        }
        let (path, next) = (self.path.display(), self.next);
        Err(Error::unsupported(
            format!("{path}: an object is written in order: row {next} comes next, not row {start}"),
            "write rows in order, or a file, and convert that to the address",
        ))
    }

    /// Begins to write so many rows, whose bytes then come in pieces.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`Error::Closed`].
    pub fn part(&mut self, place: Place, rows: u64) -> Result<Part<'_>> {
        let place = self.in_order(place)?;
        let start = match (place, self.growth.known) {
            (Place::End, None) => self.rows,
            (Place::End, Some(known)) => {
                if rows > known - self.next {
                    let left = known - self.next;
                    return Err(Error::argument(
                        format!("{rows} rows do not fit: of {known}, {left} are left to append"),
                        "the first size of the shape as None lets the array grow",
                    ));
                }
                self.next
            }
            (Place::Row(_), None) => {
                return Err(Error::argument(
                    "rows of an array that grows are written at its end",
                    "append, or give the number of rows as the size of the axis",
                ));
            }
            (Place::Row(start), Some(known)) => {
                if start.checked_add(rows).is_none_or(|end| end > known) {
                    let index = i128::from(start) + i128::from(rows.max(1)) - 1;
                    return Err(Error::Index { index, axis: self.axis(), size: known });
                }
                start
            }
        };
        let end = start.checked_add(rows).ok_or_else(|| Error::argument("too many rows", ""))?;
        if self.grows() {
            let fits = self.growth.bytes(end)?.checked_add(self.data_at);
            fits.filter(|&end| i64::try_from(end).is_ok()).ok_or_else(|| {
                Error::argument("the file is too large: its size does not fit in 63 bits", "")
            })?;
            self.opened()?.check(&self.growth, end)?;
        }
        let row = self.row_bytes();
        let (at, end_at) = (self.data_at + start * row, self.data_at + end * row);
        if let Some(open) = self.open.as_mut() {
            open.turn_to(at)?;
        }
        Ok(Part { writer: self, place, rows, at, end: end_at })
    }

    /// Waits until all of it is on the disk. What was added to a file that there was is part of it from now on.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it.
    pub fn flush(&mut self) -> Result<()> {
        let (rows, end) = (self.rows(), self.end());
        self.opened()?;
        let growth = &self.growth;
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        open.flush(growth, rows, end)
    }

    /// Ends it: the file appears, whole and on the disk.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it, and [`Error::Argument`] where rows are missing that were to be appended: then
    /// it is still open.
    pub fn close(&mut self) -> Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        if let (true, Some(known)) = (self.appended && self.next < self.rows(), self.growth.known) {
            return Err(Error::argument(
                format!("{}: {} of {known} rows were appended", self.path.display(), self.next),
                "append the rest, or say None for the number of rows",
            ));
        }
        let (rows, end, data_at) = (self.rows(), self.end(), self.data_at);
        self.opened()?;
        let growth = &self.growth;
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        open.finish(growth, rows, end, data_at)?;
        self.open = None;
        Ok(())
    }

    /// Gives it up: what there was before is there again.
    pub fn discard(&mut self) {
        self.open = None;
    }

    /// Where the file ends.
    fn end(&self) -> u64 {
        self.data_at + self.rows() * self.row_bytes()
    }

    fn opened(&self) -> Result<&Out> {
        let open = self.open.as_ref().ok_or_else(|| Error::Closed { path: self.path.clone() })?;
        if open.is_ours() {
            return Ok(open);
        }
        Err(Error::argument(
            format!(
                "{}: the writer belongs to the process that this one was forked from",
                self.path.display()
            ),
            "give every process a file of its own",
        ))
    }
}

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind those that were appended before.
    End,
    /// At this row and behind it.
    Row(u64),
}

/// Rows whose bytes come in pieces. They count once all of them are there and [`done`](Self::done) is called.
#[derive(Debug)]
pub struct Part<'w> {
    writer: &'w mut Writer,
    place: Place,
    rows: u64,
    at: u64,
    end: u64,
}

impl Part<'_> {
    /// The next bytes.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Argument`] for more than was said; what `interrupt` says.
    pub fn write(&mut self, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        if bytes.len() as u64 > self.end - self.at {
            return Err(Error::argument("more bytes than the rows have that were announced", ""));
        }
        let writer = &mut *self.writer;
        let open = writer.open.as_mut().ok_or_else(|| Error::Closed { path: writer.path.clone() })?;
        open.write_at(self.at, bytes, interrupt)?;
        self.at += bytes.len() as u64;
        if self.at > writer.keep_until {
            writer.keep_until = u64::MAX;
            open.drop_from_now_on();
        }
        Ok(())
    }

    /// All of them are there.
    ///
    /// # Errors
    /// [`Error::Argument`] where some are not.
    pub fn done(self) -> Result<()> {
        if self.at < self.end {
            let missing = self.end - self.at;
            return Err(Error::argument(
                format!("{missing} bytes of the rows that were announced are missing"),
                "",
            ));
        }
        if self.place == Place::End {
            self.writer.next += self.rows;
            self.writer.rows = self.writer.next;
            self.writer.appended = true;
        }
        Ok(())
    }
}
