//! How an array is opened: one file, or several whose rows follow each other.

use crate::array::Array;
use crate::budget::Budget;
use crate::engine::bytes::Data;
use crate::error::{Error, Result};
use crate::format::{Dtype, Extent, Order, Wanted};
use crate::options::{Access, CacheWish, Wish};
use crate::shards::{self, ArrayFile, ArrayWish, find_arrays, names_one_array};
use crate::store::{Files, OneFile, Part, Source};
use std::path::{Path, PathBuf};
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
    file: ArrayWish,
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
        self.file.dtype = Some(dtype);
        self
    }

    /// The shape of a file without a header; one size may be −1, for as many as the file has. Of several files it is
    /// the shape of each.
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
        self.file.shape = Some(shape.iter().map(size).collect::<Result<_>>()?);
        Ok(self)
    }

    /// Where the elements of a file without a header begin, in bytes.
    pub fn offset(mut self, offset: u64) -> Self {
        self.file.offset = Some(offset);
        self
    }

    /// The order of the elements of a file without a header; C if not said.
    pub fn order(mut self, order: Order) -> Self {
        self.file.order = Some(order);
        self
    }

    /// Opens the array: a file, or the files of a folder or a glob as one.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Array> {
        self.wish.check()?;
        let path = absolute(path.as_ref());
        if !names_one_array(&path) {
            return self.open_all([path]);
        }
        let source = OneFile::open(&path).map_err(|error| match shards::foreign_folder(&path) {
            Some(kind) => kind.refused(&path, Wanted::Array),
            None => error,
        })?;
        let layout = self.file.look(&source)?;
        Ok(Array::over(Data::open(Source::File(Arc::new(source)), self.wish)?, layout))
    }

    /// Opens several files as one array: their rows follow each other, in the order of the names; a folder and a
    /// glob are sorted by the bytes of their names. All have the same element type and the same size of a row.
    ///
    /// ```no_run
    /// let array = lowtide::Options::new().open_all(["part-0.npy", "part-1.npy"])?;
    /// # Ok::<(), lowtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where they do not go together: it names two that differ.
    pub fn open_all(self, names: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Array> {
        self.wish.check()?;
        let names: Vec<PathBuf> = names.into_iter().map(|name| absolute(name.as_ref())).collect();
        let found = find_arrays(&names, &self.file)?;
        match &*found {
            [file] if names_one_array(&file.path) => self.open(&file.path),
            _ => self.join(found),
        }
    }

    /// Files that were looked at, as one array.
    pub(crate) fn join(self, files: Vec<ArrayFile>) -> Result<Array> {
        let layout = shards::joined(&files)?;
        let part = |file: &ArrayFile| {
            let bytes = file.layout.offset..file.layout.offset + file.layout.nbytes();
            Part { path: file.path.clone(), bytes }
        };
        let source = Files::new(files.iter().map(part).collect())?;
        Ok(Array::of_files(Data::open(Source::Files(Arc::new(source)), self.wish)?, layout, files))
    }
}

/// A name that still means the same in another folder.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
