//! An array that is being written: rows in, a file that appears whole or not at all.
//!
//! In: bytes of whole rows, as they lie in the file, at its end or, where the number of rows is known, anywhere. Out: a
//! `.npy` file that is what `np.save` would have written, or bare elements. Memory: the windows of [`Paced`], leased from
//! the budget; no byte of a caller's is held.

use super::draft::Existing;
use super::growth::Growth;
use super::home::Home;
use super::paced::{Paced, WINDOW, WINDOWS};
use super::wrong;
use crate::budget::{Budget, Lease};
use crate::door::{BUDGET, Words};
use crate::error::{Error, Result};
use crate::format::{Dtype, Order};
use crate::interrupt::Interrupt;
use crate::meter;
use crate::options::{Cache, CacheWish};
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The smallest window: below this a disk does little else than begin.
const LEAST_WINDOW: u64 = 64 << 10;
/// One more window than may be dirty, for whoever has to convert what comes.
const PARTS: u64 = WINDOWS + 1;

/// How an array is written: order, page cache, memory, and what happens to a file that has the name.
///
/// ```
/// # fn main() -> lowtide::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("lowtide-doc-write-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("rows.npy");
/// use lowtide::write::WriteOptions;
///
/// let mut writer = WriteOptions::new().create(&path, "float32".parse()?, &[None, Some(2)])?;
/// for n in 0..1000 {
///     let row = [n as f32, 0.5].map(f32::to_ne_bytes).concat();
///     writer.append(&row, &|| Ok(()))?;
/// }
/// writer.close()?; // the file appears now
/// assert_eq!(lowtide::open(&path)?.shape(), [1000, 2]);
///
/// let mut writer = WriteOptions::new().append(&path)?;
/// writer.append(&[0; 8], &|| Ok(()))?;
/// writer.close()?;
/// assert_eq!(lowtide::open(&path)?.shape(), [1001, 2]);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct WriteOptions {
    order: Order,
    cache: CacheWish,
    budget: Option<Budget>,
    existing: Existing,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { order: Order::C, cache: CacheWish::Auto, budget: None, existing: Existing::Refuse }
    }
}

impl WriteOptions {
    /// C order, `auto` for the page cache, the default budget, and no file is replaced.
    pub fn new() -> Self {
        Self::default()
    }

    /// The order of the elements in the file.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What the page cache keeps of what is written.
    pub fn cache(mut self, cache: CacheWish) -> Self {
        self.cache = cache;
        self
    }

    /// How much memory to use, dirty pages included.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// What is done about a file that has the name already.
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Begins a new array: a `.npy` file if it is called so, else bare elements. One size of the shape may be `None`:
    /// the first in C order, the last in Fortran order. A known size is reserved on the disk.
    ///
    /// # Errors
    /// [`Error::Argument`] for a shape that cannot be; [`Error::Io`] as the system has it: a full disk, a file that
    /// exists, another writer.
    pub fn create(self, path: impl AsRef<Path>, dtype: Dtype, shape: &[Option<usize>]) -> Result<Writer> {
        let growth = Growth::new(dtype, shape, self.order)?;
        let path = resolved(path.as_ref())?;
        let npy = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("npy"));
        let header = if npy { growth.header(growth.known.unwrap_or(0))? } else { Vec::new() };
        let (lease, window) = self.lease()?;
        let home = Home::create(&path, self.existing)?;
        let data_at = header.len() as u64;
        let total = growth.known.map(|rows| growth.bytes(rows)).transpose()?;
        if let Some(total) = total {
            let end = data_at.checked_add(total).filter(|&end| i64::try_from(end).is_ok());
            let end = end.ok_or_else(|| {
                Error::argument("the array is too large: its size does not fit in 63 bits", "")
            })?;
            reserve(home.file(), &path, end)?;
        }
        self.writer(path, home, growth, data_at, 0, (lease, window), total)
    }

    /// Goes on with a `.npy` file: rows are added to it. What was added is part of the file from
    /// [`flush`](Writer::flush) or [`close`](Writer::close) on, whatever happens before: the file is what it was until
    /// then, and what a killed writer left behind is taken away here.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Format`] and [`Error::Unsupported`] for what is no `.npy` file that
    /// can grow.
    pub fn append(self, path: impl AsRef<Path>) -> Result<Writer> {
        let path = resolved(path.as_ref())?;
        let (lease, window) = self.lease()?;
        let (home, layout) = Home::append(&path)?;
        let growth = Growth::of(&layout)?;
        let rows = layout.shape[growth.axis()] as u64;
        self.writer(path, home, growth, layout.offset, rows, (lease, window), None)
    }

    #[allow(clippy::too_many_arguments)] // the two above are the only callers
    fn writer(
        self,
        path: PathBuf,
        home: Home,
        growth: Growth,
        data_at: u64,
        rows: u64,
        (lease, window): (Lease, u64),
        total: Option<u64>,
    ) -> Result<Writer> {
        let half = meter::room().bytes / 2;
        let (cache, keep_until) = match (self.cache, total) {
            (CacheWish::Keep, _) => (Cache::Keep, u64::MAX),
            (CacheWish::Auto, Some(total)) if total <= half => (Cache::Keep, u64::MAX),
            (CacheWish::Auto, None) => (Cache::Keep, half),
            (CacheWish::Drop | CacheWish::Auto, _) => (Cache::Drop, u64::MAX),
        };
        let file = home.file().try_clone().map_err(|error| wrong(&path, "make the file", error))?;
        let mut out = Paced::new(file, &path, cache, window, home.is_new());
        if total.is_none() {
            out.reserve_ahead();
        }
        Ok(Writer {
            path,
            growth,
            data_at,
            rows,
            next: rows,
            appended: false,
            keep_until,
            window,
            open: Some(Open { out, home, _lease: lease }),
        })
    }

    /// The memory of the writer, and how much of the file it lets be dirty at once.
    fn lease(&self) -> Result<(Lease, u64)> {
        let budget = self.budget.clone().unwrap_or_else(|| Budget::default_for(meter::room().bytes));
        let window = window(budget.available());
        let lease = if window == 0 { None } else { budget.lease(PARTS * window) };
        let lease = lease.ok_or_else(|| Error::Budget {
            what: "writing an array".into(),
            needs: PARTS * LEAST_WINDOW,
            limit: budget.limit().min(budget.available()),
            hint: Words::from("a larger ") + BUDGET + ", such as " + BUDGET.is("64MiB"),
        })?;
        Ok((lease, window))
    }
}

/// What is dirty at once, of so much memory.
fn window(available: u64) -> u64 {
    (available / PARTS).min(WINDOW) / LEAST_WINDOW * LEAST_WINDOW
}

/// The absolute path; of a link, that of what it leads to, which is what is written.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match std::fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_symlink() => {
            std::fs::canonicalize(&path).map_err(|error| wrong(&path, "follow the link", error))
        }
        _ => Ok(path),
    }
}

/// Has the disk keep room for a file of `end` bytes: a full one is an error now and not after hours.
fn reserve(file: &File, path: &Path, end: u64) -> Result<()> {
    use rustix::io::Errno;
    let answer = loop {
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, end.max(1)) {
            Err(Errno::INTR) => {}
            answer => break answer,
        }
    };
    match answer {
        // Not on every filesystem: the size at least is known then.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            file.set_len(end).map_err(|error| wrong(path, "make the file", error))
        }
        Err(error) => {
            let needs = crate::size::human(end);
            Err(wrong(path, "make the file", error.into())
                .with_hint(format!("it needs {needs}; nothing was written")))
        }
    }
}

/// An array that is being written. Dropped before [`close`](Self::close), it leaves nothing.
pub struct Writer {
    path: PathBuf,
    growth: Growth,
    /// Where the elements begin.
    data_at: u64,
    /// How many rows there are; of a known number, all of them.
    rows: u64,
    /// Where the next ones go that are appended.
    next: u64,
    /// Whether any were.
    appended: bool,
    /// So many bytes may stay in the page cache, where that was ours to say.
    keep_until: u64,
    window: u64,
    open: Option<Open>,
}

/// What a writer has until it is closed.
struct Open {
    out: Paced,
    home: Home,
    _lease: Lease,
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
        self.open.as_ref().map(|open| open.out.cache())
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
        self.opened()?;
        let place = self.data_at.checked_add(at);
        let end = place.and_then(|place| place.checked_add(bytes.len() as u64));
        let (Some(place), Some(_)) = (place, end.filter(|&end| !self.grows() && end <= self.end())) else {
            return Err(Error::Bug { what: format!("{} bytes at {at} are not in the array", bytes.len()) });
        };
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        open.out.write_at(place, bytes, interrupt)
    }

    fn count(&self, bytes: &[u8]) -> Result<u64> {
        let (row, len) = (self.row_bytes(), bytes.len() as u64);
        match len.checked_rem(row) {
            Some(0) => Ok(len / row),
            Some(_) => Err(Error::argument(format!("{len} bytes are no whole number of rows of {row}"), "")),
            None => Err(Error::argument("rows without bytes cannot be counted by them", "")),
        }
    }

    /// Begins to write so many rows, whose bytes then come in pieces.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`Error::Closed`].
    pub fn part(&mut self, place: Place, rows: u64) -> Result<Part<'_>> {
        self.opened()?;
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
            self.opened()?.home.check(&self.growth, end)?;
        }
        let row = self.row_bytes();
        let (at, end_at) = (self.data_at + start * row, self.data_at + end * row);
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
        open.out.sync()?;
        open.home.flushed(&mut open.out, growth, rows, end)
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
        // What an append that failed left behind.
        let cut = open.out.file().set_len(end);
        cut.map_err(|error| wrong(open.out.path(), "write the file", error))?;
        open.out.sync()?;
        open.home.finish(&mut open.out, growth, rows, data_at)?;
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

    fn opened(&self) -> Result<&Open> {
        let open = self.open.as_ref().ok_or_else(|| Error::Closed { path: self.path.clone() })?;
        if open.home.is_ours() {
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
        open.out.write_at(self.at, bytes, interrupt)?;
        self.at += bytes.len() as u64;
        if self.at > writer.keep_until {
            writer.keep_until = u64::MAX;
            open.out.drop_from_now_on();
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
