//! The files of one array, from what a user names, and what each of them holds.
//!
//! In: names and an [`ArrayWish`]. Out: every file in its order, with its [`Layout`]; [`joined`] says what they are
//! together. Thousands of files are looked at in parallel, each opened once and closed again.

use super::each::each;
use super::names;
use super::shelf::{self, Place};
use super::unseen::{self, Alike};
use crate::door::{DTYPE, OFFSET, SHAPE, Words};
use crate::error::{Error, Result};
use crate::format::{
    self, Container, Dtype, Extent, Foreign, INTO_C_ORDER, Layout, Order, Wanted, byte_len, npy, shape_text,
};
use crate::store::{Check, One, Storage, is_url};
use std::path::{Path, PathBuf};

/// What a user says about files without a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrayWish {
    /// The element type.
    pub dtype: Option<Dtype>,
    /// The shape, of each file.
    pub shape: Option<Vec<Extent>>,
    /// Where the elements begin, in bytes.
    pub offset: Option<u64>,
    /// The order of the elements.
    pub order: Option<Order>,
    /// How object stores are reached; as the environment says, unless said.
    pub storage: Option<Storage>,
}

/// One file of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayFile {
    /// The file, as an absolute path.
    pub path: PathBuf,
    /// What its bytes mean.
    pub layout: Layout,
    /// How many there are.
    pub len: u64,
}

impl ArrayFile {
    /// What an object is taken for that is like this one, by its size: more or fewer rows behind the same header. `None`
    /// where its size does not fit.
    fn presumed(&self, path: &Path, storage: &Storage) -> Option<Self> {
        let len = storage.open(path).ok()?.len(); // as it was listed
        let Layout { dtype, shape, offset, .. } = &self.layout;
        let row = byte_len(shape.get(1..)?, dtype.itemsize())?;
        let bytes = len.checked_sub(*offset).filter(|bytes| row > 0 && bytes.is_multiple_of(row))?;
        let mut layout = self.layout.clone();
        *layout.shape.first_mut()? = usize::try_from(bytes / row).ok()?;
        Some(Self { path: path.to_owned(), layout, len })
    }

    /// Looks at a file, and closes it again.
    pub(crate) fn look(path: &Path, wish: &ArrayWish) -> Result<Self> {
        let source = One::open(path, &wish.storage())?;
        Ok(Self { path: path.to_owned(), layout: wish.look(&source)?, len: source.len() })
    }
}

/// From names (files, folders, globs) to the files of one array, in the order given; a folder and a glob are sorted
/// by the bytes of their names.
///
/// # Errors
/// As the system has it, and where there is no file or one of them is no array.
pub fn find_arrays(names: &[PathBuf], wish: &ArrayWish) -> Result<Vec<ArrayFile>> {
    Ok(find_arrays_unseen(names, wish)?.0)
}

/// The same; of many objects, of which only some were looked at, which ones were not.
pub(crate) fn find_arrays_unseen(names: &[PathBuf], wish: &ArrayWish) -> Result<(Vec<ArrayFile>, Vec<bool>)> {
    if names.is_empty() {
        return Err(Error::argument("no files are named", "name a file, a folder, a glob or a list"));
    }
    let mut paths = Vec::new();
    let storage = wish.storage();
    unseen::list_parent(names, &storage);
    for name in names {
        paths.extend(names::arrays(name, wish.dtype.is_some(), &storage)?);
    }
    if !unseen::are_presumable(&paths) {
        storage.fetch_heads(&paths.iter().filter(|path| is_url(path)).cloned().collect::<Vec<_>>())?;
        let files = each(&paths, |path| ArrayFile::look(path, wish))?;
        return Ok((files, vec![false; paths.len()]));
    }
    unseen::presume(&paths, |path| ArrayFile::look(path, wish), |path, like| like.presumed(path, &storage))
}

/// The first of the `.npy` files that a folder or a glob stands for, if there is any.
pub fn first_array(name: &Path) -> Option<PathBuf> {
    first_array_in(name, &Storage::default())
}

/// The same, wherever it is.
pub fn first_array_in(name: &Path, storage: &Storage) -> Option<PathBuf> {
    names::arrays(name, false, storage)
        .ok()?
        .into_iter()
        .next()
        .filter(|path| path.extension().is_some_and(|end| end == "npy"))
}

/// Whether a name is that of one file, or of none: not of a folder or a glob. A folder of another program is one, so
/// that it is refused under its own name.
pub(crate) fn names_one_array(name: &Path, storage: &Storage) -> bool {
    match shelf::place(name, storage) {
        Ok(Place::File) => true,
        Ok(Place::Folder) => names::foreign_folder(name, storage).is_some(),
        Ok(Place::Missing(_)) | Err(_) => !names::is_glob(name),
    }
}

impl Alike for ArrayFile {
    fn is_alike(&self, other: &Self) -> bool {
        let (mine, other) = (&self.layout, &other.layout);
        let row = |layout: &Layout| layout.shape.get(1..).map(<[usize]>::to_vec);
        (mine.container, mine.dtype, mine.order, mine.offset)
            == (other.container, other.dtype, other.order, other.offset)
            && row(mine).is_some()
            && row(mine) == row(other)
    }
}

/// The look at an object that was put off when it was opened.
pub(crate) fn check_array(file: &ArrayFile, wish: &ArrayWish) -> Check {
    let (wish, container) = (wish.clone(), file.layout.container);
    let words = |file: &ArrayFile| {
        let Layout { dtype, shape, offset, .. } = &file.layout;
        format!("{dtype} of shape {} from byte {offset} on", shape_text(shape))
    };
    let look = move |path: &Path| {
        let mut found = ArrayFile::look(path, &wish)?;
        if let (Container::Npy { .. }, Container::Npy { .. }) = (container, found.layout.container) {
            found.layout.container = container; // the version of a header is nobody's business
        }
        Ok(found)
    };
    unseen::check(file.clone(), look, words)
}

/// What files are together: rows that follow each other.
///
/// # Errors
/// [`Error::Argument`] where they do not go together, with two that differ.
pub(crate) fn joined(files: &[ArrayFile]) -> Result<Layout> {
    let Some(first) = files.first() else { return Err(Error::argument("no files are named", "")) };
    let wrong = |file: &ArrayFile, what: &str, hint: &str| {
        Err(Error::argument(format!("{}: {what}", file.path.display()), hint.to_owned()))
    };
    let mut rows = 0_usize;
    for file in files {
        let Layout { dtype, shape, order, .. } = &file.layout;
        let [count, row @ ..] = &shape[..] else {
            return wrong(file, "a single element has no rows to follow others", "");
        };
        // With one axis, or none that is longer than 1, both orders are the same.
        if *order == Order::Fortran && row.iter().product::<usize>() > 1 {
            return wrong(
                file,
                "the file is in Fortran order, so that its rows cannot follow those of other files",
                INTO_C_ORDER,
            );
        }
        let others = &first.layout;
        if (dtype, row) != (&others.dtype, &others.shape[1..]) {
            let what = |layout: &Layout| {
                format!("{} in rows of {}", layout.dtype.numpy_str(), shape_text(&layout.shape[1..]))
            };
            return Err(Error::argument(
                format!(
                    "the files are not of one array: {} has {}, {} has {}",
                    first.path.display(),
                    what(others),
                    file.path.display(),
                    what(&file.layout)
                ),
                "name the files that belong together: a glob, or a list",
            ));
        }
        rows = rows.checked_add(*count).ok_or_else(|| {
            Error::argument("the files together have more rows than this machine can count", "")
        })?;
    }
    let Layout { container, dtype, shape, .. } = first.layout.clone();
    let shape: Vec<usize> = std::iter::once(rows).chain(shape[1..].iter().copied()).collect();
    let len =
        files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.layout.nbytes())).unwrap_or(u64::MAX);
    Layout::new(&first.path, container, dtype, shape, Order::C, 0, len)
}

impl ArrayWish {
    pub(crate) fn storage(&self) -> Storage {
        self.storage.clone().unwrap_or_default()
    }

    /// What an open file holds, by its header or by what was said.
    pub(crate) fn look(&self, source: &One) -> Result<Layout> {
        let path = source.path();
        let head = read_head(source)?;
        match (self.dtype, npy::is_npy(&head)) {
            (Some(dtype), npy) => {
                if npy && self.offset.is_none() {
                    return Err(Error::argument(
                        Words::from(format!("{}: the file has a .npy header, but ", path.display()))
                            + DTYPE
                            + " says to read it as raw",
                        Words::from("leave ")
                            + DTYPE
                            + " out to use the header, or give "
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
            (None, true) => match npy::parse(path, &head, source.len()) {
                // Rows behind those of the header are not whole yet.
                Err(_) if !is_url(path) && crate::write::is_being_appended_to(path) => {
                    npy::parse_first(path, &head, source.len())
                }
                layout => layout,
            },
            (None, false) => Err(no_header(path, &head, source.len())),
        }
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

/// The beginning of a file: all of its header if it is a `.npy` file, else a few bytes.
pub(crate) fn read_head(source: &One) -> Result<Vec<u8>> {
    let read = |want: usize| -> Result<Vec<u8>> {
        let want = usize::try_from(source.len()).map_or(want, |len| len.min(want));
        let mut head = vec![0; want];
        source.read_exact(0, &mut head)?;
        Ok(head)
    };
    let head = read(4096)?;
    if !npy::is_npy(&head) {
        return Ok(head);
    }
    match npy::header_len(source.path(), &head, source.len())? {
        len if len > head.len() => read(len),
        _ => Ok(head),
    }
}

/// The first bytes of a file, for a message.
pub(crate) fn hex(head: &[u8]) -> String {
    head.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}
