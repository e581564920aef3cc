//! An array on disk.
//!
//! [`Array`] is a handle on an opened file and what its bytes mean. It answers for rows and selections
//! of them, and makes the iterators of [`crate::chunks`]. It holds no data: every answer is a fresh
//! [`Batch`] of the caller's, and nothing ever points into a map.

use crate::batch::Batch;
use crate::budget::Budget;
use crate::choose::{self, CacheWish, Visit};
use crate::chunks::{Chunks, Shuffle, Zip};
use crate::error::{Error, Result};
use crate::format::{self, Dtype, Extent, Layout, Order, byte_len};
use crate::plan::{self, Interrupt};
use crate::pool::Block;
use crate::selection::{Axis, Runs};
use crate::store::{
    Access, AdviseStore, Cache, DirectStore, Engine, MapStore, Read, ReadStore, RemapStore, Source, Store,
    window_for,
};
use crate::{meter, sys};
use std::fmt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// How many runs of a selection are planned at once: 1.5 MiB of plan.
const PLAN_RUNS: usize = 1 << 16;

/// How to open an array: `np.memmap`'s words for files without a header, and how to read.
///
/// ```no_run
/// use lowtide::{Access, Budget, Options};
/// let array = Options::new()
///     .dtype("float32".parse()?)
///     .shape(&[-1, 128])?
///     .access(Access::Read)
///     .budget(Budget::new(64 << 20)?)
///     .open("rows.bin")?;
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Options {
    access: Access,
    cache: CacheWish,
    budget: Option<Budget>,
    dtype: Option<Dtype>,
    shape: Option<Vec<Extent>>,
    offset: Option<u64>,
    order: Option<Order>,
}

impl Options {
    /// The defaults: what the file's header says, `auto` access, the default budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// How to read.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// What happens to what we bring into the page cache.
    pub fn cache(mut self, cache: CacheWish) -> Self {
        self.cache = cache;
        self
    }

    /// How much memory to use.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The element type of a file without a header.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// The shape of a file without a header; one size may be −1, for as many as the file has.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other negative size.
    pub fn shape(mut self, shape: &[i64]) -> Result<Self> {
        let size = |&n: &i64| match usize::try_from(n) {
            Ok(n) => Ok(Extent::Exactly(n)),
            Err(_) if n == -1 => Ok(Extent::Rest),
            Err(_) => {
                Err(Error::argument(format!("shape has a negative size, {n}"), "only one -1 is allowed"))
            }
        };
        self.shape = Some(shape.iter().map(size).collect::<Result<_>>()?);
        Ok(self)
    }

    /// Where the elements of a file without a header begin, in bytes.
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// The order of the elements of a file without a header; C if not said.
    pub fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// Opens the array.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Array> {
        if self.access == Access::Map && self.cache == CacheWish::Drop {
            return Err(Error::argument(
                "access=\"map\" holds its pages, and what is mapped cannot be dropped from the page cache",
                "access=\"advise\" or \"remap\" with cache=\"drop\" let go of both",
            ));
        }
        let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
        let source = Source::open(&path)?;
        let layout = self.layout(&source)?;
        let budget = self.budget.unwrap_or_else(|| Budget::default_for(meter::room().bytes));
        if matches!(self.access, Access::Remap | Access::Advise) {
            window_for(budget.limit())?; // refuse now, not at the first row
        }
        let opened = Opened { source: Arc::new(source), stores: Mutex::default(), random: Mutex::default() };
        Ok(Array(Arc::new(Inner {
            path,
            layout,
            access: self.access,
            cache: self.cache,
            budget,
            opened: Mutex::new(Some(Arc::new(opened))),
            fingerprint: OnceLock::new(),
        })))
    }

    fn layout(&self, source: &Source) -> Result<Layout> {
        let path = source.path();
        let head = read_head(source)?;
        match (self.dtype, format::npy::is_npy(&head)) {
            (Some(dtype), npy) => {
                if npy && self.offset.is_none() {
                    return Err(Error::argument(
                        format!(
                            "{}: the file has a .npy header, but dtype= says to read it as raw",
                            path.display()
                        ),
                        "leave dtype out to use the header, or give offset= to read it as raw all the same",
                    ));
                }
                let offset = self.offset.unwrap_or(0);
                let mut layout =
                    format::raw_layout(path, dtype, self.shape.as_deref(), offset, source.len())?;
                layout.order = self.order.unwrap_or(Order::C);
                Ok(layout)
            }
            (None, true) if self.shape.is_some() || self.offset.is_some() => Err(Error::argument(
                format!("{}: the file's own header says its shape and offset", path.display()),
                "leave shape= and offset= out, or give dtype= too to read it as raw",
            )),
            (None, true) => format::npy::parse(path, &head, source.len()),
            (None, false) => Err(Error::Format {
                path: path.to_owned(),
                offset: 0,
                expected: "a .npy header".into(),
                found: if head.is_empty() { "an empty file".into() } else { format!("bytes {}", hex(&head)) },
                hint: "a file without a header needs dtype= (and shape=, offset=), as for np.memmap".into(),
            }),
        }
    }
}

/// The beginning of a file: all of its header if it is a `.npy` file, else a few bytes.
fn read_head(source: &Source) -> Result<Vec<u8>> {
    let read = |want: usize| {
        let want = usize::try_from(source.len()).map_or(want, |len| len.min(want));
        let mut head = vec![0; want];
        match source.file().read_exact_at(&mut head, 0) {
            Ok(()) => Ok(head),
            Err(e) => Err(Error::io(source.path(), "read the header", e)),
        }
    };
    let head = read(4096)?;
    if !format::npy::is_npy(&head) {
        return Ok(head);
    }
    match format::npy::header_len(source.path(), &head, source.len())? {
        len if len > head.len() => read(len),
        _ => Ok(head),
    }
}

/// The first bytes of a file, for a message.
fn hex(head: &[u8]) -> String {
    head.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// An array on disk: shape and element type, and ways to read it inside a budget. Clones share the file.
///
/// ```no_run
/// let array = lowtide::open("rows.npy")?;
/// for chunk in array.shuffled(4096, lowtide::Shuffle { seed: 1, ..Default::default() })? {
///     let rows: Vec<f32> = chunk?.to_vec()?;
/// }
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone)]
pub struct Array(Arc<Inner>);

struct Inner {
    path: PathBuf,
    layout: Layout,
    access: Access,
    cache: CacheWish,
    budget: Budget,
    opened: Mutex<Option<Arc<Opened>>>,
    fingerprint: OnceLock<String>,
}

/// A store that was made, and for what.
type Made = (Access, Cache, Arc<dyn Store>);

/// What `close` lets go.
#[derive(Debug)]
struct Opened {
    source: Arc<Source>,
    /// Made on first use.
    stores: Mutex<Vec<Made>>,
    /// The one for rows that somebody asks for.
    random: Mutex<Option<Arc<dyn Store>>>,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = format::shape_text(&self.0.layout.shape);
        write!(f, "Array({:?}, shape={shape}, dtype={})", self.0.path, self.dtype())
    }
}

impl Array {
    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What the file's bytes mean.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.layout.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.0.layout.shape
    }

    /// The number of rows: the size of the first axis, or 1 for a single element.
    pub fn rows(&self) -> u64 {
        self.shape().first().map_or(1, |&n| n as u64)
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        let inner = self.shape().get(1..).unwrap_or_default();
        byte_len(inner, self.dtype().itemsize()).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
    }

    /// Bytes of all elements.
    pub fn nbytes(&self) -> u64 {
        self.0.layout.nbytes()
    }

    /// The way of access that was asked for; iterators say which one they took.
    pub fn access(&self) -> Access {
        self.0.access
    }

    /// What was asked for about the page cache.
    pub fn cache(&self) -> CacheWish {
        self.0.cache
    }

    /// The budget that this array and all made from it share.
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// The open file, for those who want to ask the kernel about it.
    pub fn source(&self) -> Result<Arc<Source>> {
        self.opened().map(|o| o.source.clone())
    }

    /// Lets go of the file and its maps. Whatever is made from this array fails from now on; batches that
    /// were delivered stay what they are.
    pub fn close(&self) {
        let Some(opened) = sys::locked(&self.0.opened, Option::take) else { return };
        // A thread that reads ahead holds on to the file until it notices: a moment.
        for _ in 0..2_000 {
            if Arc::strong_count(&opened) == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.opened().is_err()
    }

    fn opened(&self) -> Result<Arc<Opened>> {
        let opened = sys::locked(&self.0.opened, |opened| opened.clone());
        opened.ok_or_else(|| Error::Closed { path: self.0.path.clone() })
    }

    /// The store for a manual way of access, made on first use.
    pub(crate) fn store(&self, access: Access, cache: Cache) -> Result<Arc<dyn Store>> {
        let opened = self.opened()?;
        let known = |stores: &mut Vec<Made>| {
            stores.iter().find(|(a, c, _)| (*a, *c) == (access, cache)).map(|(.., store)| store.clone())
        };
        if let Some(store) = sys::locked(&opened.stores, known) {
            return Ok(store);
        }
        let (source, budget) = (&opened.source, &self.0.budget);
        let window = || window_for(budget.limit());
        let store: Arc<dyn Store> = match access {
            Access::Map => Arc::new(MapStore::new(source)?),
            Access::Remap => Arc::new(RemapStore::new(source.clone(), window()?, cache)),
            Access::Advise => Arc::new(AdviseStore::new(source, window()?, cache)?),
            Access::Direct => Arc::new(DirectStore::new(source.clone(), budget, Engine::available())?),
            Access::Read | Access::Auto => Arc::new(ReadStore::new(source.clone(), cache)),
        };
        // Two threads may have made one at the same time: the first stays.
        Ok(sys::locked(&opened.stores, |stores| {
            known(stores).unwrap_or_else(|| {
                stores.push((access, cache, store.clone()));
                store
            })
        }))
    }

    /// The elements that `axes` select, one entry for each axis, as a fresh batch of the caller's.
    ///
    /// This may exceed the budget: the caller asked for exactly this.
    pub fn select(&self, axes: Vec<Axis>, interrupt: Interrupt<'_>) -> Result<Batch> {
        let shape: Vec<usize> = axes.iter().map(Axis::count).collect();
        let too_large =
            || Error::argument("the selection is too large: its size does not fit in 63 bits", "");
        let bytes = byte_len(&shape, self.dtype().itemsize()).ok_or_else(too_large)?;
        self.check(&axes)?;
        let mut block = Block::for_caller(&self.0.budget, usize::try_from(bytes).map_err(|_| too_large())?)?;
        self.select_into(axes, &mut block, interrupt)?;
        Ok(Batch::new(block, self.dtype(), shape, self.0.layout.order))
    }

    /// The same into a buffer of the caller's, which has exactly the selection's size. The elements come in
    /// the file's order of axes: reversed for a Fortran-ordered file.
    pub fn select_into(&self, axes: Vec<Axis>, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        self.check(&axes)?;
        let opened = self.opened()?;
        let store = sys::locked(&opened.random, |known| known.clone());
        let store = if let Some(store) = store {
            store
        } else {
            let choice = choose::access(self, Visit::Random)?;
            let store = self.store(choice.access, choice.cache)?;
            sys::locked(&opened.random, |known| *known = Some(store.clone()));
            store
        };
        self.fill(axes, &*store, out, interrupt)
    }

    fn fill(
        &self,
        mut axes: Vec<Axis>,
        store: &dyn Store,
        out: &mut [u8],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let stop = || match self.opened() {
            Ok(_) => interrupt(),
            Err(closed) => Err(closed),
        };
        let Layout { order, offset, dtype, .. } = self.0.layout;
        let mut shape = self.shape().to_vec();
        if order == Order::Fortran {
            axes.reverse();
            shape.reverse();
        }
        let runs = Runs::new(&axes, &shape, dtype.itemsize(), offset)?;
        let len = runs.run_len();
        if len == 0 {
            return Ok(());
        }
        let expected = usize::try_from(runs.count()).ok().and_then(|n| n.checked_mul(len));
        if expected != Some(out.len()) {
            return Err(Error::argument(
                format!(
                    "out has {} bytes, the selection has {}",
                    out.len(),
                    runs.count().saturating_mul(len as u64)
                ),
                "",
            ));
        }
        let mut offsets = runs.offsets();
        let mut reads = Vec::new();
        for part in out.chunks_mut(len.saturating_mul(PLAN_RUNS)) {
            reads.extend(
                part.chunks_exact_mut(len).zip(&mut offsets).map(|(into, offset)| Read { offset, into }),
            );
            plan::fetch(store, &self.0.budget, &mut reads, &stop)?;
            reads = reuse(reads);
        }
        Ok(())
    }

    /// Rows that follow each other, from a given store.
    pub(crate) fn rows_into(
        &self,
        rows: Range<u64>,
        store: &dyn Store,
        out: &mut [u8],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (start, end) = (usize::try_from(rows.start), usize::try_from(rows.end));
        let (Ok(start), Ok(end)) = (start, end) else {
            return Err(Error::Index { index: rows.end.into(), axis: 0, size: self.rows() });
        };
        let mut axes: Vec<Axis> = self.shape().iter().map(|&n| Axis::all(n)).collect();
        axes[0] = Axis::Range { start, step: 1, count: end - start };
        self.fill(axes, store, out, interrupt)
    }

    fn check(&self, axes: &[Axis]) -> Result<()> {
        if axes.len() != self.shape().len() {
            return Err(Error::argument(
                format!("the array has {} axes, the selection {}", self.shape().len(), axes.len()),
                "",
            ));
        }
        axes.iter().zip(self.shape()).enumerate().try_for_each(|(i, (axis, &n))| axis.check(i, n))
    }

    /// Rows one after another, `rows` at a time, in file order.
    pub fn chunks(&self, rows: usize) -> Result<Chunks> {
        Zip::one(self).chunks(rows)
    }

    /// Every row exactly once, in the order of a keyed permutation, `rows` at a time.
    pub fn shuffled(&self, rows: usize, shuffle: Shuffle) -> Result<Chunks> {
        Zip::one(self).shuffled(rows, shuffle)
    }

    /// What this file is, in a few hexadecimal digits: element type, size, first and last 4 KiB.
    pub fn fingerprint(&self) -> Result<String> {
        if let Some(known) = self.0.fingerprint.get() {
            return Ok(known.clone());
        }
        let source = self.source()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.dtype().numpy_str().as_bytes());
        hasher.update(&source.len().to_le_bytes());
        let part = usize::try_from(source.len()).unwrap_or(usize::MAX).min(4096);
        for offset in [0, source.len() - part as u64] {
            let mut bytes = vec![0; part];
            let read = source.file().read_exact_at(&mut bytes, offset);
            read.map_err(|e| Error::io(source.path(), "read the file", e))?;
            hasher.update(&bytes);
        }
        let digest = hasher.finalize().to_hex()[..32].to_owned();
        Ok(self.0.fingerprint.get_or_init(|| digest).clone())
    }
}

/// An empty vector with the memory of an old one, for borrows of another lifetime.
pub(crate) fn reuse<'b>(mut old: Vec<Read<'_>>) -> Vec<Read<'b>> {
    old.clear();
    // Collecting in place: nothing is left to convert, so this only renames the lifetime.
    old.into_iter().map(|_| Read { offset: 0, into: Default::default() }).collect()
}
