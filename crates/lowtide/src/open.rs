//! How an array is opened: one file, or several whose rows follow each other.

use crate::array::Array;
use crate::budget::Budget;
use crate::engine::bytes::Data;
use crate::error::{Error, Result};
use crate::format::{Dtype, Extent, Order, Wanted};
use crate::options::{Access, CacheWish, Wish};
use crate::shards::{self, ArrayFile, ArrayWish, check_array, find_arrays_unseen, names_one_array};
use crate::store::{Check, Files, ObjectPart, Objects, One, Part, Source, Storage, is_url, unknown_scheme};
use std::ops::Range;
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

    /// How object stores are reached: what is opened may have an address, `s3://bucket/rows.npy`.
    #[allow(clippy::needless_pass_by_value)] // as the other options are given
    pub fn storage(mut self, storage: Storage) -> Self {
        self.file.storage = Some(storage.afresh());
        self
    }

    /// Opens the array: a file, or the files of a folder or a glob as one.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Array> {
        let path = absolute(path.as_ref());
        let storage = self.begin([&path])?;
        if !names_one_array(&path, &storage) {
            return self.open_all([path]);
        }
        let local = |error| match shards::foreign_folder(&path, &storage).filter(|_| !is_url(&path)) {
            Some(kind) => kind.refused(&path, Wanted::Array),
            None => error,
        };
        let source = One::open(&path, &storage).map_err(local)?;
        let layout = self.file.look(&source)?;
        Ok(Array::over(Data::open(whole(source, &storage)?, self.wish)?, layout))
    }

    /// What can be told of a call before any file is touched, and how object stores are reached.
    pub(crate) fn begin<'a>(&mut self, names: impl IntoIterator<Item = &'a PathBuf>) -> Result<Storage> {
        self.wish.check()?;
        names.into_iter().try_for_each(|name| self.wish.access.fits(is_url(name)))?;
        Ok(self.file.storage.get_or_insert_default().clone())
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
    pub fn open_all(mut self, names: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Array> {
        let names: Vec<PathBuf> = names.into_iter().map(|name| absolute(name.as_ref())).collect();
        let storage = self.begin(&names)?;
        let (found, unseen) = find_arrays_unseen(&names, &self.file)?;
        match &*found {
            [file] if names_one_array(&file.path, &storage) => self.open(&file.path),
            _ => self.join(found, &unseen),
        }
    }

    /// Files as one array; those of `unseen` are looked at when they are first read.
    pub(crate) fn join(self, files: Vec<ArrayFile>, unseen: &[bool]) -> Result<Array> {
        let layout = shards::joined(&files)?;
        let storage = self.file.storage();
        let parts = files.iter().zip(unseen).map(|(file, &unseen)| {
            let bytes = file.layout.offset..file.layout.offset + file.layout.nbytes();
            (&file.path, bytes, unseen.then(|| check_array(file, &self.file)))
        });
        let source = end_to_end(parts, &storage)?;
        Ok(Array::of_files(Data::open(source, self.wish)?, layout, files))
    }
}

/// All bytes of what was opened.
pub(crate) fn whole(one: One, storage: &Storage) -> Result<Source> {
    Ok(match one {
        One::File(file) => Source::File(file),
        One::Object(object) => {
            let objects = Objects::new(vec![ObjectPart::whole(object)])?;
            Source::Objects(Arc::new(objects.through(storage.cache())))
        }
    })
}

/// Bytes of several files or objects, end to end; those that have a check are looked at when they are first read.
///
/// # Errors
/// [`Error::Unsupported`] for files of this machine among objects.
pub(crate) fn end_to_end<'a>(
    parts: impl Iterator<Item = (&'a PathBuf, Range<u64>, Option<Check>)>,
    storage: &Storage,
) -> Result<Source> {
    let parts: Vec<_> = parts.collect();
    let remote = parts.iter().filter(|(path, ..)| is_url(path)).count();
    if remote == 0 {
        let part = |(path, bytes, _): (&PathBuf, _, _)| Part { path: path.clone(), bytes };
        return Ok(Source::Files(Arc::new(Files::new(parts.into_iter().map(part).collect())?)));
    }
    if let Some((file, ..)) = parts.iter().find(|(path, ..)| !is_url(path)) {
        return Err(Error::unsupported(
            format!("{}: a file of this machine among objects of a store", file.display()),
            "keep all of them in one place",
        ));
    }
    let part =
        |(path, bytes, check): (&PathBuf, _, _)| Ok(ObjectPart { object: storage.open(path)?, bytes, check });
    let parts = parts.into_iter().map(part).collect::<Result<_>>()?;
    Ok(Source::Objects(Arc::new(Objects::new(parts)?.through(storage.cache()))))
}

/// A name that still means the same in another folder. An address does.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    // Of an address that is not known, the name is said as it was given.
    if is_url(path) || unknown_scheme(path).is_some() && !path.exists() {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
