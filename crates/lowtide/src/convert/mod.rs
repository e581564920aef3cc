//! Arrays into other files: another container, order, byte order or element type, inside the budget.
//!
//! In: an opened [`Array`], of one file or many. Out: a file that appears whole or not at all, with the same numbers. Data
//! moves one way: the engine reads, [`Checked`] changes the type and says what would be lost, [`Writer`] writes by ranges with
//! few dirty pages. Where the order of the axes stays, elements stream through in the order of the file. Where it does not,
//! tiles of them are read, turned in memory and written: see `turning`. Where those would be too short for the disk, all
//! of it is written twice, in long requests: see `pieces` and `passes`.

mod checked;
mod edges;
mod passes;
mod pieces;
mod plan;
mod strips;
mod tiles;
mod turn;
mod turning;
mod writing;

pub use checked::Checked;

use crate::array::Array;
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::door::{BUDGET, LOSSY, Words};
use crate::error::{Error, Result};
use crate::format::{ByteOrder, Dtype, Order, byte_len, npy};
use crate::interrupt::Interrupt;
use crate::options::CacheWish;
use crate::store::{Storage, Upload, is_url};
use crate::write::{Existing, WriteOptions, Writer};
use passes::How;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are cast and written at once: they stay in the processor's cache from one to the other.
const PIECE: usize = 1 << 20;
/// The least that anything of this is done in.
const LEAST: u64 = 4 << 20;
/// The same, to an object store.
const FAR_LEAST: u64 = 24 << 20;
/// How often somebody is told how far it is.
const TELL: Duration = Duration::from_millis(50);

/// What happens to a value that the new type cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// It is an error that names the first.
    #[default]
    Refused,
    /// It becomes what NumPy's `astype` makes of it.
    Allowed,
}

/// How an array is converted.
///
/// ```no_run
/// use lowtide::convert::Conversion;
/// use lowtide::format::Order;
/// let array = lowtide::open("fortran.npy")?;
/// let conversion = Conversion { order: Some(Order::C), ..Conversion::default() };
/// let made = conversion.run(&array, "rows.npy".as_ref(), &mut |_, _| {}, &|| Ok(()))?;
/// assert_eq!(made.shape, array.shape());
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Conversion {
    /// The element type; the input's, if not said.
    pub dtype: Option<Dtype>,
    /// The byte order; that of the type, if not said.
    pub byte_order: Option<ByteOrder>,
    /// The order of the elements; the input's, if not said, and C for a file without a header, which cannot say it.
    pub order: Option<Order>,
    /// What happens to what the type cannot hold.
    pub loss: Loss,
    /// What the page cache keeps of the output; of the input the array knows.
    pub cache: CacheWish,
    /// What is done about a file that has the name already.
    pub existing: Existing,
    /// How object stores are reached, for an output that is an address.
    pub storage: Storage,
}

/// What was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// Its element type.
    pub dtype: Dtype,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The order of its elements.
    pub order: Order,
    /// Bytes of all elements.
    pub bytes: u64,
}

impl Conversion {
    /// Writes the numbers of `array` to a new file: a `.npy` file if it is called so, else bare elements. Memory is that
    /// of the array's budget. `progress` is told how many of how many bytes of the output are written; of two passes, each
    /// counts half.
    ///
    /// # Errors
    /// [`Error::Format`] with the first place where a value would be lost; [`Error::Io`] as the system has it: a full
    /// disk, before anything is written, or a file that exists; [`Error::Budget`]. In every case the output is what it was.
    pub fn run(
        &self,
        array: &Array,
        output: &Path,
        progress: &mut dyn FnMut(u64, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<Converted> {
        self.run_by(How::Tried(passes::choose), array, output, progress, interrupt)
    }

    /// The same; where axes are turned, in as many passes as `how` decides.
    fn run_by(
        &self,
        how: How,
        array: &Array,
        output: &Path,
        progress: &mut dyn FnMut(u64, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<Converted> {
        if !array.is_whole() || array.dtype() != array.layout().dtype {
            return Err(Error::argument(
                "a part of an array, or one that is read as another type, is not converted",
                "take its file, or create and extend",
            ));
        }
        let npy = output.extension().is_some_and(|end| end.eq_ignore_ascii_case("npy"));
        let order = self.order.unwrap_or(if npy { array.layout().order } else { Order::C });
        let dtype = self.dtype.unwrap_or(array.dtype());
        let dtype = Dtype::new(dtype.kind(), self.byte_order.unwrap_or(dtype.byte_order()));
        let shape = array.shape().to_vec();
        let bytes = byte_len(&shape, dtype.itemsize())
            .ok_or_else(|| Error::argument("the array is too large: its size does not fit in 63 bits", ""))?;
        let budget = array.budget();
        let one_way = npy::saved_order(&shape, array.layout().order) == npy::saved_order(&shape, order);
        let far = is_url(output);
        if far && !one_way {
            return Err(Error::unsupported(
                format!("{}: an object is written in order, and turned axes are not", output.display()),
                "convert to a file first, and then that file to the address",
            ));
        }
        // Parts of an object are in memory until the server has them.
        let limit = budget.limit();
        let (written, needs) = if far {
            ((limit / 2).max(Upload::least()), FAR_LEAST)
        } else {
            (Writer::share(limit / 4), LEAST)
        };
        let lease = budget.lease(written).filter(|_| limit >= needs).ok_or_else(|| Error::Budget {
            what: "converting an array".into(),
            needs,
            limit,
            hint: Words::from("a larger ") + BUDGET + ", such as " + BUDGET.is("64MiB"),
        })?;
        let sizes: Vec<Option<usize>> = shape.iter().copied().map(Some).collect();
        let options = WriteOptions::new().order(order).cache(self.cache).existing(self.existing);
        let options = options.storage(self.storage.clone());
        let mut writer = options.budget(Budget::new(written)?).create(output, dtype, &sizes)?;
        let path = writer.path().to_owned();
        let cast = Checked::new(array.dtype(), dtype);
        let mut work = Work {
            array,
            cast,
            dtype,
            loss: self.loss,
            done: 0,
            total: bytes,
            passes: 1,
            shown: 0,
            progress,
            told: None,
        };
        match bytes {
            0 => {}
            _ if one_way => work.stream(&mut writer, interrupt)?,
            _ => turning::turn(&mut work, &mut writer, order, how, interrupt)?,
        }
        writer.close()?;
        (work.progress)(bytes, bytes);
        drop(lease);
        Ok(Converted { path, dtype, shape, order: npy::saved_order(array.shape(), order), bytes })
    }
}

/// A conversion under way.
struct Work<'a> {
    array: &'a Array,
    cast: Checked,
    /// What its elements become.
    dtype: Dtype,
    loss: Loss,
    done: u64,
    total: u64,
    /// How often all of it is written.
    passes: u64,
    /// What was told last: it never goes back, even where the work does.
    shown: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    told: Option<Instant>,
}

impl Work<'_> {
    /// All elements in the order in which they lie in the file.
    fn stream(&mut self, writer: &mut Writer, interrupt: Interrupt<'_>) -> Result<()> {
        let item = self.array.dtype().itemsize();
        let width = self.dtype.itemsize();
        let stored = self.array.stored();
        let mut made = self.block(PIECE / width * width)?;
        let mut first = 0;
        let mut chunks = stored.chunks(PIECE / item.max(width))?;
        while let Some(chunk) = chunks.next_chunk(interrupt) {
            let chunk = chunk?;
            let from = chunk.bytes();
            let count = from.len() / item;
            let at = first as u64 * width as u64;
            if self.cast.is_copy() {
                writer.put(at, from, interrupt)?;
            } else {
                let to = &mut made[..count * width];
                if let (Err(lost), Loss::Refused) = (self.cast.run(from, to), self.loss) {
                    let element = &from[lost * item..(lost + 1) * item];
                    let mut number = first + lost;
                    let mut index = vec![0; self.array.shape().len()];
                    let axes = 0..index.len();
                    let from_fastest: Vec<usize> = match self.array.layout().order {
                        Order::C => axes.rev().collect(),
                        Order::Fortran => axes.collect(),
                    };
                    for axis in from_fastest {
                        index[axis] = number % self.array.shape()[axis];
                        number /= self.array.shape()[axis];
                    }
                    return Err(self.lost(&index, element));
                }
                writer.put(at, to, interrupt)?;
            }
            first += count;
            self.step((count * width) as u64, interrupt)?;
        }
        Ok(())
    }

    fn block(&self, len: usize) -> Result<Block> {
        let budget = self.array.budget();
        Block::counted(budget, len)?.ok_or_else(|| Error::Budget {
            what: "converting an array".into(),
            needs: Block::cost(len),
            limit: budget.available(),
            hint: Words::from("a larger ") + BUDGET,
        })
    }

    /// So many bytes more are written; whoever is told may want it to end.
    fn step(&mut self, bytes: u64, interrupt: Interrupt<'_>) -> Result<()> {
        self.done += bytes;
        if self.told.is_none_or(|told| told.elapsed() > TELL) {
            self.shown = self.shown.max(self.done / self.passes);
            (self.progress)(self.shown, self.total);
            self.told = Some(Instant::now());
            interrupt()?;
        }
        Ok(())
    }

    /// That a value would be lost.
    fn lost(&self, index: &[usize], element: &[u8]) -> Error {
        let (path, offset) = self.place(index);
        let sizes: Vec<String> = index.iter().map(usize::to_string).collect();
        Error::Format {
            path,
            offset,
            expected: format!("a value that {} can hold", self.dtype.name()),
            found: format!("{} at [{}]", self.cast.shown(element), sizes.join(", ")),
            hint: LOSSY.on() + " converts it all the same, as astype does",
        }
    }

    /// The file and the byte where an element is.
    fn place(&self, index: &[usize]) -> (PathBuf, u64) {
        let layout = self.array.layout();
        let number = |shape: &[usize], index: &[usize]| -> u64 {
            let add = |number: u64, (&size, &at): (&usize, &usize)| number * size as u64 + at as u64;
            let axes = shape.iter().zip(index);
            if layout.order == Order::C { axes.fold(0, add) } else { axes.rev().fold(0, add) }
        };
        let item = layout.dtype.itemsize() as u64;
        let (mut row, files) = (index[0], self.array.files().unwrap_or_default());
        for file in files {
            let rows = file.layout.shape[0];
            if row < rows {
                let index: Vec<usize> = std::iter::once(row).chain(index[1..].iter().copied()).collect();
                return (file.path.clone(), file.layout.offset + number(&file.layout.shape, &index) * item);
            }
            row -= rows;
        }
        (self.array.path().to_owned(), layout.offset + number(&layout.shape, index) * item)
    }
}

#[cfg(test)]
mod tests;
