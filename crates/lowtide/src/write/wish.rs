//! How an array is to be written, and the beginning of it: the words of whoever writes become a [`Writer`].
//!
//! In: a name, a type and a shape, with what was said of memory, page cache and what is there already. Out: a file under
//! another name, or an upload, whose memory is leased. What cannot be is refused here, before a byte comes.

use super::growth::Growth;
use super::home::Home;
use super::out::Out;
use super::paced::{Paced, WINDOW, WINDOWS};
use super::{Writer, wrong};
use crate::budget::{Budget, Lease};
use crate::door::{BUDGET, Words};
use crate::error::{Error, Result};
use crate::format::{Dtype, Order};
use crate::meter;
use crate::options::{Cache, CacheWish, Existing};
use crate::store::{SCRATCH, Storage, Upload, is_url};
use crate::sys;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The smallest window: below this a disk does little else than begin.
const LEAST_WINDOW: u64 = 64 << 10;
/// One more window than may be dirty, for whoever has to convert what comes.
pub(super) const PARTS: u64 = WINDOWS + 1;

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
    storage: Storage,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            order: Order::C,
            cache: CacheWish::Auto,
            budget: None,
            existing: Existing::Refuse,
            storage: Storage::default(),
        }
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

    /// How object stores are reached.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Begins a new array: a `.npy` file if it is called so, else bare elements. One size of the shape may be `None`:
    /// the first in C order, the last in Fortran order. A known size is reserved on the disk. An address such as
    /// `s3://bucket/rows.npy` is written to in order, and appears when it is closed.
    ///
    /// # Errors
    /// [`Error::Argument`] for a shape that cannot be; [`Error::Io`] as the system has it: a full disk, a file that
    /// exists, another writer.
    pub fn create(self, path: impl AsRef<Path>, dtype: Dtype, shape: &[Option<usize>]) -> Result<Writer> {
        let growth = Growth::new(dtype, shape, self.order)?;
        let far = is_url(path.as_ref());
        let path = if far { path.as_ref().to_owned() } else { resolved(path.as_ref())? };
        let npy = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("npy"));
        let header = if npy { growth.header(growth.known.unwrap_or(0))? } else { Vec::new() };
        if far {
            return self.create_object(path, growth, &header);
        }
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

    /// Begins an object: its header comes last where the number of rows is not known before.
    fn create_object(self, path: PathBuf, growth: Growth, header: &[u8]) -> Result<Writer> {
        let data_at = header.len() as u64;
        let (row, rows) = (growth.row_bytes(), growth.known.map(|rows| growth.bytes(rows)).transpose()?);
        let total = rows.map(|bytes| bytes.saturating_add(data_at));
        let budget = self.budget.unwrap_or_else(|| Budget::default_for(meter::room().bytes));
        let later = if total.is_none() { header.len() } else { 0 };
        let mut upload = Upload::begin(&self.storage, &path, self.existing, &budget, later, total)?;
        if later == 0 {
            upload.write(header, &|| Ok(()))?;
        }
        Ok(Writer {
            path,
            growth,
            data_at,
            rows: 0,
            next: 0,
            appended: row > 0,
            keep_until: u64::MAX,
            window: SCRATCH,
            open: Some(Out::Object(upload)),
        })
    }

    /// Goes on with a `.npy` file: rows are added to it. What was added is part of the file from
    /// [`flush`](Writer::flush) or [`close`](Writer::close) on, whatever happens before: the file is what it was until
    /// then, and what a killed writer left behind is taken away here.
    ///
    /// # Errors
    /// [`Error::Io`] as the system has it; [`Error::Format`] and [`Error::Unsupported`] for what is no `.npy` file that
    /// can grow.
    pub fn append(self, path: impl AsRef<Path>) -> Result<Writer> {
        if is_url(path.as_ref()) {
            return Err(Error::unsupported(
                format!("{}: an object cannot grow", path.as_ref().display()),
                "create a new one, and extend it with the chunks of the old",
            ));
        }
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
        out.go_past(lease.budget());
        Ok(Writer {
            path,
            growth,
            data_at,
            rows,
            next: rows,
            appended: false,
            keep_until,
            window,
            open: Some(Out::File { out: Box::new(out), home, _lease: lease }),
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
pub(super) fn window(available: u64) -> u64 {
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
        // Asked before: a filesystem would fill itself up before it said no, and everybody on it would notice.
        if end > sys::free_space(file).unwrap_or(u64::MAX) {
            break Err(Errno::NOSPC);
        }
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
