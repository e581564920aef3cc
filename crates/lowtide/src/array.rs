//! An array on disk.
//!
//! [`Array`] is a handle on an opened file and what its bytes mean. It answers for rows and selections
//! of them, and makes the iterators of [`crate::chunks`]. It holds no data: every answer is a fresh
//! [`Batch`] of the caller's, and nothing ever points into a map.

use crate::batch::Batch;
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::door::{DTYPE, OFFSET, SHAPE, Words};
use crate::engine::Rows;
use crate::engine::bytes::Data;
use crate::engine::choose::{Choice, Visit};
use crate::engine::fetch::fetch;
use crate::engine::job::Input;
use crate::engine::lane::Lane;
use crate::engine::tactics::Gap;
use crate::engine::tuning::PLAN_RUNS;
use crate::error::{Error, Result};
use crate::format::{self, Dtype, Extent, Foreign, Layout, Order, Wanted, byte_len};
use crate::interrupt::Interrupt;
use crate::options::{Access, CacheWish, Wish};
use crate::selection::{Axis, Runs};
use crate::shards;
use crate::store::{OneFile, Read, Source};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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
    pub(crate) wish: Wish,
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
        self.wish.access = access;
        self
    }

    /// What happens to what we bring into the page cache.
    pub fn cache(mut self, cache: CacheWish) -> Self {
        self.wish.cache = cache;
        self
    }

    /// How much memory to use.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.wish.budget = Some(budget);
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
        self.wish.check()?;
        let path = std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned());
        let source = OneFile::open(&path).map_err(|error| match shards::foreign_folder(&path) {
            Some(kind) => kind.refused(&path, Wanted::Array),
            None => error,
        })?;
        let layout = self.layout(&source)?;
        Ok(Array::over(Data::open(Source::File(Arc::new(source)), self.wish)?, layout))
    }

    fn layout(&self, source: &OneFile) -> Result<Layout> {
        let path = source.path();
        let head = read_head(source)?;
        match (self.dtype, format::npy::is_npy(&head)) {
            (Some(dtype), npy) => {
                if npy && self.offset.is_none() {
                    return Err(Error::argument(
                        Words::from(format!("{}: the file has a .npy header, but ", path.display()))
                            + DTYPE
                            + " says to read it as raw",
                        Words::from("leave dtype out to use the header, or give ")
                            + OFFSET
                            + " to read it as raw all the same",
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
                Words::from("leave ")
                    + SHAPE
                    + " and "
                    + OFFSET
                    + " out, or give "
                    + DTYPE
                    + " too to read it as raw",
            )),
            (None, true) => format::npy::parse(path, &head, source.len()),
            (None, false) => Err(Self::no_header(path, &head, source.len())),
        }
    }

    /// What is said of a file without a header that nobody described.
    fn no_header(path: &Path, head: &[u8], len: u64) -> Error {
        match Foreign::of(head, len).or_else(|| Foreign::of_text(head)) {
            Some(kind) => kind.refused(path, Wanted::Array),
            None => Error::Format {
                path: path.to_owned(),
                offset: 0,
                expected: "a .npy header".into(),
                found: if head.is_empty() { "an empty file".into() } else { format!("bytes {}", hex(head)) },
                hint: Words::from("a file without a header needs ")
                    + DTYPE
                    + " (and "
                    + SHAPE
                    + ", "
                    + OFFSET
                    + "), as for np.memmap",
            },
        }
    }
}

/// The beginning of a file: all of its header if it is a `.npy` file, else a few bytes.
pub(crate) fn read_head(source: &OneFile) -> Result<Vec<u8>> {
    let read = |want: usize| -> Result<Vec<u8>> {
        let want = usize::try_from(source.len()).map_or(want, |len| len.min(want));
        let mut head = vec![0; want];
        source.read_exact(0, &mut head)?;
        Ok(head)
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
pub(crate) fn hex(head: &[u8]) -> String {
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
    layout: Layout,
    /// From the beginning of one row to that of the next: less than a row where rows overlap.
    stride: u64,
    data: Arc<Data>,
    /// Where its elements are held in memory: how they are read from there, and how they came.
    held: Option<(Arc<Lane>, Choice)>,
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = format::shape_text(&self.0.layout.shape);
        write!(f, "Array({:?}, shape={shape}, dtype={})", self.path(), self.dtype())
    }
}

impl Array {
    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        self.data().path()
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

    /// An array over opened bytes.
    pub(crate) fn over(data: Arc<Data>, layout: Layout) -> Self {
        let inner = layout.shape.get(1..).unwrap_or_default();
        let stride = byte_len(inner, layout.dtype.itemsize()).unwrap_or(u64::MAX);
        Self(Arc::new(Inner { layout, stride, data, held: None }))
    }

    /// The same array, held in memory in C order.
    pub(crate) fn held(&self, lane: Lane, choice: Choice) -> Self {
        let layout = Layout { order: Order::C, offset: 0, ..self.0.layout.clone() };
        let (stride, data) = (self.row_bytes() as u64, self.0.data.clone());
        Self(Arc::new(Inner { layout, stride, data, held: Some((Arc::new(lane), choice)) }))
    }

    /// Its rows, as the engine knows them.
    pub(crate) fn input(&self) -> Input {
        let Inner { layout, stride, data, held } = &*self.0;
        let (count, first) = (self.rows(), layout.offset);
        let rows = match layout.order {
            Order::C => Rows::whole(first, *stride, self.row_bytes(), count),
            Order::Fortran => {
                let item = layout.dtype.itemsize();
                let columns = (self.row_bytes() / item.max(1)) as u64;
                Rows { columns, apart: count * item as u64, ..Rows::whole(first, item as u64, item, count) }
            }
        };
        Input { rows, data: data.clone(), held: held.clone() }
    }

    /// The same bytes as rows of `len` elements of one axis, the next one `stride` elements after the last:
    /// `rows` of them. The caller checked that they are all there.
    pub(crate) fn overlapping(&self, stride: u64, len: usize, rows: usize) -> Self {
        let item = self.dtype().itemsize() as u64;
        let mut layout = self.0.layout.clone();
        layout.shape = vec![rows, len];
        Self(Arc::new(Inner { layout, stride: stride * item, data: self.0.data.clone(), held: None }))
    }

    /// The same bytes with some neighbouring axes as one, in the order in which they lie in the file; an axis of size
    /// 1 where none are named.
    #[must_use]
    pub fn joined(&self, axes: Range<usize>) -> Self {
        let mut layout = self.0.layout.clone();
        let size = layout.shape[axes.clone()].iter().product(); // 63 bits hold it: the layout was checked
        layout.shape.splice(axes, [size]);
        Self::over(self.0.data.clone(), layout)
    }

    /// The opened bytes.
    pub(crate) fn data(&self) -> &Data {
        &self.0.data
    }

    /// The way of access that was asked for; iterators say which one they took.
    pub fn access(&self) -> Access {
        self.data().access()
    }

    /// What was asked for about the page cache.
    pub fn cache(&self) -> CacheWish {
        self.data().cache()
    }

    /// The budget that this array and all made from it share.
    pub fn budget(&self) -> &Budget {
        self.data().budget()
    }

    /// The open file, for those who want to ask the kernel about it; of many, the first.
    pub fn source(&self) -> Result<Arc<OneFile>> {
        self.data().source()?.first()
    }

    /// Which way of access its rows would come by now, visited like this, and why.
    ///
    /// # Errors
    /// Where the array was closed, or the way that was asked for is not possible here.
    pub fn choose(&self, visit: Visit) -> Result<Choice> {
        self.input().choose(visit)
    }

    /// Lets go of the file and its maps. Whatever is made from this array fails from now on; batches that
    /// were delivered stay what they are.
    pub fn close(&self) {
        self.data().close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.data().is_closed()
    }

    /// The way to rows that somebody asks for, chosen on first use.
    pub(crate) fn random(&self) -> Result<Arc<Lane>> {
        self.data().random(self.row_bytes() as u64)
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
        let mut block = Block::for_caller(self.budget(), usize::try_from(bytes).map_err(|_| too_large())?)?;
        self.select_into(axes, &mut block, interrupt)?;
        Ok(Batch::new(block, self.dtype(), shape, self.0.layout.order))
    }

    /// The same into a buffer of the caller's, which has exactly the selection's size. The elements come in
    /// the file's order of axes: reversed for a Fortran-ordered file.
    pub fn select_into(&self, axes: Vec<Axis>, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        self.check(&axes)?;
        self.fill(axes, &*self.random()?, out, interrupt)
    }

    fn fill(&self, mut axes: Vec<Axis>, lane: &Lane, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        let stop = || self.data().stop(interrupt);
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
            fetch(lane, self.budget(), &mut reads, Gap::Lost, &stop)?;
            reads = reuse(reads);
        }
        Ok(())
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

    /// What this file is, in a few hexadecimal digits: element type, size, first and last 4 KiB.
    pub fn fingerprint(&self) -> Result<String> {
        self.data().fingerprint(&self.dtype().numpy_str())
    }
}

/// An empty vector with the memory of an old one, for borrows of another lifetime.
pub(crate) fn reuse<'b>(mut old: Vec<Read<'_>>) -> Vec<Read<'b>> {
    old.clear();
    // Collecting in place: nothing is left to convert, so this only renames the lifetime.
    old.into_iter().map(|_| Read { offset: 0, into: Default::default() }).collect()
}
