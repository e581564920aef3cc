//! An array on disk.
//!
//! [`Array`] is a handle on opened files and what their bytes mean. It answers for rows and selections
//! of them, and makes the iterators of [`crate::chunks`]. It holds no data: every answer is a fresh
//! [`Batch`] of the caller's, and nothing ever points into a map.

use crate::batch::Batch;
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::cast::Cast;
use crate::engine::Rows;
use crate::engine::bill::{Bill, bill};
use crate::engine::bytes::Data;
use crate::engine::choose::{Choice, Visit};
use crate::engine::fetch::Fetch;
use crate::engine::job::Input;
use crate::engine::lane::Lane;
use crate::engine::predict::{Predicted, predict};
use crate::engine::tactics::Gap;
use crate::engine::tuning::{PLAN_RUNS, REMOTE_BLOCK};
use crate::error::{Error, Result};
use crate::format::{self, Dtype, Layout, Order, byte_len};
use crate::interrupt::Interrupt;
use crate::options::{Access, CacheWish};
use crate::order::{Cut, Order as _, Part};
use crate::selection::{Axis, Runs};
use crate::shards::ArrayFile;
use crate::store::{AsType, OneFile, Read};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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
    /// What the bytes mean: of the whole, where this is a part.
    layout: Layout,
    shape: Vec<usize>,
    /// Which rows of the whole.
    part: Part,
    /// The files, where there are several.
    files: Option<Arc<[ArrayFile]>>,
    /// From the beginning of one row to that of the next: less than a row where rows overlap.
    stride: u64,
    data: Arc<Data>,
    /// What the elements of the file become as they are read; the stride is of those, then.
    as_type: Option<AsType>,
    /// Where its elements are held in memory: how they are read from there, and how they came.
    held: Option<(Arc<Lane>, Choice)>,
}

impl Inner {
    /// The same, to be changed.
    fn again(&self) -> Self {
        let Self { layout, shape, part, files, stride, data, as_type, held } = self;
        Self {
            layout: layout.clone(),
            shape: shape.clone(),
            part: part.clone(),
            files: files.clone(),
            stride: *stride,
            data: data.clone(),
            as_type: *as_type,
            held: held.clone(),
        }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = format::shape_text(self.shape());
        write!(f, "Array({:?}, shape={shape}, dtype={})", self.path(), self.dtype())
    }
}

impl Array {
    /// The file, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.data().path
    }

    /// What the file's bytes mean: all of them, also where this is a part of its rows.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The element type of what is read: the file's, unless [`astype`](Self::astype) says another.
    pub fn dtype(&self) -> Dtype {
        self.0.as_type.map_or(self.0.layout.dtype, |as_type| as_type.cast.to())
    }

    /// The byte with which the first element begins, of the file or of what its elements become.
    fn first_byte(&self) -> u64 {
        if self.0.as_type.is_some() { 0 } else { self.layout().offset }
    }

    /// What the elements of the file become as they are read.
    pub(crate) fn as_type(&self) -> Option<AsType> {
        self.0.as_type
    }

    /// The same rows, their elements as they come.
    pub(crate) fn as_read(&self, as_type: Option<AsType>) -> Self {
        let as_type = as_type.filter(|AsType { cast, .. }| cast.from() != cast.to());
        let stride = self.0.stride / self.dtype().itemsize() as u64;
        let changed = Self(Arc::new(Inner { as_type, ..self.0.again() }));
        let stride = stride.saturating_mul(changed.dtype().itemsize() as u64);
        Self(Arc::new(Inner { stride, ..changed.0.again() }))
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Which rows of the file these are.
    pub fn part(&self) -> &Part {
        &self.0.part
    }

    /// Whether it has all rows of the file, in their order.
    pub fn is_whole(&self) -> bool {
        *self.part() == Part::whole(whole_rows(self.layout()))
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
        byte_len(self.shape(), self.dtype().itemsize()).unwrap_or(u64::MAX) // no larger than the whole
    }

    /// The files, in the order of the rows, where there are several.
    pub fn files(&self) -> Option<&[ArrayFile]> {
        self.0.files.as_deref()
    }

    /// An array over opened bytes.
    pub(crate) fn over(data: Arc<Data>, layout: Layout) -> Self {
        let inner = layout.shape.get(1..).unwrap_or_default();
        let stride = byte_len(inner, layout.dtype.itemsize()).unwrap_or(u64::MAX);
        let (shape, part) = (layout.shape.clone(), Part::whole(whole_rows(&layout)));
        Self(Arc::new(Inner { layout, shape, part, files: None, stride, data, as_type: None, held: None }))
    }

    /// An array over the opened bytes of several files.
    pub(crate) fn of_files(data: Arc<Data>, layout: Layout, files: Vec<ArrayFile>) -> Self {
        Self(Arc::new(Inner { files: Some(files.into()), ..Self::over(data, layout).0.again() }))
    }

    /// Other rows of the same file.
    fn with(&self, part: Part) -> Self {
        let mut shape = self.0.layout.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = usize::try_from(part.len()).unwrap_or(usize::MAX); // no more than there are
        }
        Self(Arc::new(Inner { shape, part, ..self.0.again() }))
    }

    /// Some of its rows, in their order or dealt by a seed: an array like any other, over the same file. Nothing is
    /// read, and it takes no memory to speak of.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are no such rows, and for a single element, which has none.
    pub fn cut(&self, cut: &Cut) -> Result<Self> {
        if self.shape().is_empty() {
            return Err(Error::argument(
                format!("{}: a single element has no rows", self.path().display()),
                "",
            ));
        }
        Ok(self.with(self.part().cut(cut)?))
    }

    /// All rows of the file.
    #[must_use]
    pub fn whole(&self) -> Self {
        self.with(Part::whole(whole_rows(self.layout())))
    }

    /// The rows from which these were dealt.
    pub(crate) fn undealt(&self) -> Self {
        self.with(self.part().undealt())
    }

    /// The same rows, of a C-ordered copy in memory of those from which they were dealt.
    pub(crate) fn held(&self, lane: Lane, choice: Choice) -> Self {
        Self(Arc::new(Inner { held: Some((Arc::new(lane), choice)), ..self.0.again() }))
    }

    /// The order of the axes of what comes: the file's, or that of the copy in memory.
    pub(crate) fn order(&self) -> Order {
        if self.0.held.is_some() { Order::C } else { self.layout().order }
    }

    /// Its rows, as the engine knows them.
    pub(crate) fn input(&self) -> Input {
        let Inner { layout, part, stride, data, as_type, held, .. } = &*self.0;
        let (range, row) = (part.range(), self.row_bytes());
        let (count, first) = (range.end - range.start, self.first_byte());
        let rows = match layout.order {
            _ if held.is_some() => Rows::whole(0, row as u64, row, count),
            Order::C => Rows::whole(first + range.start * stride, *stride, row, count),
            Order::Fortran => {
                let item = self.dtype().itemsize();
                let columns = (row / item.max(1)) as u64;
                let apart = whole_rows(layout) * item as u64;
                let first = first + range.start * item as u64;
                Rows { columns, apart, ..Rows::whole(first, item as u64, item, count) }
            }
        };
        let dealt = part.is_dealt().then(|| part.clone());
        Input { rows, dealt, data: data.clone(), as_type: *as_type, at_last: None, held: held.clone() }
    }

    /// The same for a pass that reads far ahead, where every byte that waits is a byte less of look-ahead: elements that
    /// become larger stay as the file has them until a chunk is handed out.
    pub(crate) fn input_ahead(&self) -> Input {
        let larger = |cast: &Cast| cast.from().itemsize() < cast.to().itemsize();
        match self.0.as_type.map(|as_type| as_type.cast).filter(larger) {
            Some(cast) if self.0.held.is_none() => {
                Input { at_last: Some(cast), ..self.as_read(None).input() }
            }
            _ => self.input(),
        }
    }

    /// The same bytes as rows of `len` elements of one axis, the next one `stride` elements after the last:
    /// `rows` of them. The caller checked that they are all there.
    pub(crate) fn overlapping(&self, stride: u64, len: usize, rows: usize) -> Self {
        let item = self.dtype().itemsize() as u64;
        let mut layout = self.0.layout.clone();
        layout.shape = vec![rows, len];
        let (shape, part) = (layout.shape.clone(), Part::whole(rows as u64));
        let (stride, data, as_type) = (stride * item, self.0.data.clone(), self.0.as_type);
        Self(Arc::new(Inner { layout, shape, part, files: None, stride, data, as_type, held: None }))
    }

    /// The same bytes with some neighbouring axes as one, in the order in which they lie in the file; an axis of size
    /// 1 where none are named. `axes` says what is taken of each, of the joined ones as of one; it comes back as what
    /// is to be taken of the answer.
    ///
    /// # Errors
    /// Where `axes` lie outside.
    pub fn joined(&self, join: Range<usize>, mut axes: Vec<Axis>) -> Result<(Self, Vec<Axis>)> {
        let size = |shape: &[usize]| shape[join.clone()].iter().product(); // 63 bits hold it: the layout was checked
        let mut layout = self.0.layout.clone();
        let whole = size(&layout.shape);
        let mut shape = self.shape().to_vec();
        shape.splice(join.clone(), [size(self.shape())]);
        check(&axes, &shape)?;
        let part = if join.contains(&0) && !self.is_whole() {
            // Rows are part of the joined numbers: from here on they are the file's.
            axes[0] = Axis::list(self.joined_numbers(&axes[0], join.end));
            Part::whole(whole as u64)
        } else if join.contains(&0) {
            Part::whole(whole as u64)
        } else {
            self.part().clone()
        };
        layout.shape.splice(join, [whole]);
        Ok((Self::over(self.0.data.clone(), layout).as_read(self.0.as_type).with(part), axes))
    }

    /// Numbers of elements of the axes up to `end`, taken as one, as numbers in the file.
    fn joined_numbers(&self, of: &Axis, end: usize) -> Vec<usize> {
        let order = self.layout().order;
        // How rows and the rest make a number: the rest varies fastest, or the rows do.
        let inner = self.shape()[1..end].iter().product::<usize>().max(1);
        let (rows, all) = (self.shape()[0].max(1), self.layout().shape[0]);
        let numbers = (0..of.count()).map(|i| of.get(i));
        let (mut row, rest): (Vec<u64>, Vec<usize>) = match order {
            Order::C => numbers.map(|n| ((n / inner) as u64, n % inner)).unzip(),
            Order::Fortran => numbers.map(|n| ((n % rows) as u64, n / rows)).unzip(),
        };
        self.part().replace(&mut row);
        let first = self.part().range().start;
        let row = row.into_iter().map(|row| usize::try_from(first + row).unwrap_or(usize::MAX));
        row.zip(rest)
            .map(|(row, rest)| match order {
                Order::C => row * inner + rest,
                Order::Fortran => rest * all + row,
            })
            .collect()
    }

    /// The same rows with all their other axes as one.
    pub(crate) fn flat(&self) -> Self {
        let mut layout = self.0.layout.clone();
        let columns = layout.shape.get(1..).unwrap_or_default().iter().product();
        layout.shape.truncate(1);
        layout.shape.resize(1, 1);
        layout.shape.push(columns);
        Self::over(self.0.data.clone(), layout).as_read(self.0.as_type).with(self.part().clone())
    }

    /// All elements of the files, along one axis, in the order in which they lie there.
    pub(crate) fn stored(&self) -> Self {
        let mut layout = self.0.layout.clone();
        layout.shape = vec![layout.shape.iter().product()]; // 63 bits hold it: the layout was checked
        layout.order = Order::C;
        Self::over(self.0.data.clone(), layout)
    }

    /// The opened bytes.
    pub(crate) fn data(&self) -> &Data {
        &self.0.data
    }

    /// The way of access that was asked for; iterators say which one they took.
    pub fn access(&self) -> Access {
        self.data().access
    }

    /// What went wrong with the local cache that it is read through, the first time; it is read all the same.
    pub fn cache_trouble(&self) -> Option<String> {
        self.data().source().ok()?.local_cache()?.trouble()
    }

    /// What was asked for about the page cache.
    pub fn cache(&self) -> CacheWish {
        self.data().cache
    }

    /// The budget that this array and all made from it share.
    pub fn budget(&self) -> &Budget {
        &self.data().budget
    }

    /// Whether it is in an object store.
    pub fn is_remote(&self) -> bool {
        self.data().source().is_ok_and(|source| source.is_remote())
    }

    /// Bytes of its file, header included; of several, those of their elements.
    ///
    /// # Errors
    /// Where the array was closed.
    pub fn file_len(&self) -> Result<u64> {
        Ok(self.data().source()?.len())
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

    /// What a pass over all rows takes in requests and money, visited like this; `None` where they are in files.
    ///
    /// # Errors
    /// Where the array was closed.
    pub fn bill(&self, visit: Visit) -> Result<Option<Bill>> {
        let input = self.input_ahead();
        let choice = input.choose(visit)?;
        bill(&[input], &[choice], visit, self.rows(), REMOTE_BLOCK)
    }

    /// What a shuffled pass over all rows is predicted to take, in exact order and otherwise; `None` where the rows come
    /// from memory or are as large as what a disk likes to read.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub fn predict(&self) -> Result<Option<Predicted>> {
        let input = self.input();
        let choice = input.choose(Visit::Shuffled)?;
        predict(&[input], &[choice], self.rows())
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
        self.data().random(self.row_bytes() as u64, self.0.as_type)
    }

    /// The elements that `axes` select, one entry for each axis, as a fresh batch of the caller's.
    ///
    /// This may exceed the budget: the caller asked for exactly this.
    pub fn select(&self, axes: Vec<Axis>, interrupt: Interrupt<'_>) -> Result<Batch> {
        let shape: Vec<usize> = axes.iter().map(Axis::count).collect();
        let too_large =
            || Error::argument("the selection is too large: its size does not fit in 63 bits", "");
        let bytes = byte_len(&shape, self.dtype().itemsize()).ok_or_else(too_large)?;
        check(&axes, self.shape())?;
        let mut block = Block::for_caller(self.budget(), usize::try_from(bytes).map_err(|_| too_large())?)?;
        self.select_into(axes, &mut block, interrupt)?;
        Ok(Batch::new(block, self.dtype(), shape, self.0.layout.order))
    }

    /// The same into a buffer of the caller's, which has exactly the selection's size. The elements come in
    /// the file's order of axes: reversed for a Fortran-ordered file.
    pub fn select_into(&self, axes: Vec<Axis>, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        check(&axes, self.shape())?;
        self.fill(self.in_file(axes), &*self.random()?, out, interrupt)
    }

    /// What is taken of the file, where this is a part of its rows.
    fn in_file(&self, mut axes: Vec<Axis>) -> Vec<Axis> {
        let part = self.part();
        let first = usize::try_from(part.range().start).unwrap_or(usize::MAX); // a row of the file
        match axes.first_mut() {
            Some(rows) if part.is_dealt() => {
                let mut numbers: Vec<u64> = (0..rows.count()).map(|i| rows.get(i) as u64).collect();
                part.replace(&mut numbers);
                let in_file = |row: u64| usize::try_from(row).map_or(usize::MAX, |row| first + row);
                *rows = Axis::list(numbers.into_iter().map(in_file).collect());
            }
            Some(Axis::Range { start, count, .. }) if *count > 0 => *start += first,
            Some(Axis::List(list)) => list.iter_mut().for_each(|row| *row += first),
            _ => {}
        }
        axes
    }

    fn fill(&self, mut axes: Vec<Axis>, lane: &Lane, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        let stop = || self.data().stop(interrupt);
        let order = self.layout().order;
        let mut shape = self.layout().shape.clone();
        if order == Order::Fortran {
            axes.reverse();
            shape.reverse();
        }
        let runs = Runs::new(&axes, &shape, self.dtype().itemsize(), self.first_byte())?;
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
        let fetch = Fetch { lane, budget: self.budget(), gap: Gap::Lost, interrupt: &stop };
        let mut offsets = runs.offsets();
        let mut reads = Vec::new();
        for part in out.chunks_mut(len.saturating_mul(PLAN_RUNS)) {
            reads.extend(
                part.chunks_exact_mut(len).zip(&mut offsets).map(|(into, offset)| Read { offset, into }),
            );
            fetch.reads(&mut reads)?;
            reads = reuse(reads);
        }
        Ok(())
    }

    /// What this is, in a few hexadecimal digits: element type, size, first and last 4 KiB of the file; and which
    /// part of it.
    pub fn fingerprint(&self) -> Result<String> {
        let whole = self.data().fingerprint(&self.layout().dtype.numpy_str())?;
        if self.is_whole() {
            return Ok(whole);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(whole.as_bytes());
        for Cut { seed, rows } in self.part().cuts() {
            for number in [u64::from(seed.is_some()), seed.unwrap_or(0), rows.start, rows.end] {
                hasher.update(&number.to_le_bytes());
            }
        }
        Ok(hasher.finalize().to_hex()[..32].to_owned())
    }
}

/// The rows of all of a file.
fn whole_rows(layout: &Layout) -> u64 {
    layout.shape.first().map_or(1, |&n| n as u64)
}

/// That what is taken of each axis is there.
fn check(axes: &[Axis], shape: &[usize]) -> Result<()> {
    if axes.len() != shape.len() {
        return Err(Error::argument(
            format!("the array has {} axes, the selection {}", shape.len(), axes.len()),
            "",
        ));
    }
    axes.iter().zip(shape).enumerate().try_for_each(|(i, (axis, &n))| axis.check(i, n))
}

/// An empty vector with the memory of an old one, for borrows of another lifetime.
pub(crate) fn reuse<'b>(mut old: Vec<Read<'_>>) -> Vec<Read<'b>> {
    old.clear();
    // Collecting in place: nothing is left to convert, so this only renames the lifetime.
    old.into_iter().map(|_| Read { offset: 0, into: Default::default() }).collect()
}
