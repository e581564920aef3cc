//! `lowtide.Tokens` and `lowtide.tokens`.

use crate::argument::{self, Flag, Name, Word, shown};
use crate::array::{identity, warn_unguarded, whole};
use crate::batch::{self, Out};
use crate::error::{raise, unlocked};
use crate::foreseen::Foreseen;
use crate::loader::{Loader, Wanted};
use crate::number::{Number, optional};
use crate::open::FINGERPRINT;
use crate::ranks::RankWish;
use crate::text::{Reader, out_of_range};
use crate::{budget, chunks, dtype, index, notebook, prepare, storage, store, windows};
use lowtide::Interrupt;
use lowtide::format::{Dtype, Kind};
use lowtide::order::Turn;
use lowtide::{Access, CacheWish, LoaderOptions, TokenOptions};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyTypeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A stream of tokens on disk, as `lowtide.tokens` opens it.
///
/// `windows` reads windows where you say, a `loader` goes through all of them, `document` gives one
/// document, and `tokens[start:end]` a part in the files' own dtype. `len` is the number of tokens. It is
/// read-only, pickles as its paths and settings, and closes as a context manager.
///
/// Examples:
///     >>> t = lowtide.tokens("train.bin")
///     >>> t
///     <lowtide.Tokens "...train.bin" tokens=200000 dtype=uint16 format=nanogpt access=auto>
///     >>> len(t)
///     200000
///     >>> t[:4]
///     array([    0,  7919, 15838, 23757], dtype=uint16)
#[pyclass(frozen, module = "lowtide")]
pub struct Tokens {
    pub inner: lowtide::Tokens,
    descr: Py<PyArrayDescr>,
    /// NumPy's int64, made once.
    int64: Py<PyArrayDescr>,
    /// What `tokens` was given, for pickle.
    arguments: Py<PyDict>,
    text: Reader,
    /// What `lowtide.torch` knows of who draws windows of it.
    foresight: Mutex<Option<Py<PyAny>>>,
}

/// Calls a generic function with the integer type of a kind; `None` for what is no integer.
macro_rules! with_integer {
    ($kind:expr, $T:ident => $body:expr) => {
        match $kind {
            Kind::Int8 => {
                type $T = i8;
                Some($body)
            }
            Kind::Int16 => {
                type $T = i16;
                Some($body)
            }
            Kind::Int32 => {
                type $T = i32;
                Some($body)
            }
            Kind::Int64 => {
                type $T = i64;
                Some($body)
            }
            Kind::UInt8 => {
                type $T = u8;
                Some($body)
            }
            Kind::UInt16 => {
                type $T = u16;
                Some($body)
            }
            Kind::UInt32 => {
                type $T = u32;
                Some($body)
            }
            Kind::UInt64 => {
                type $T = u64;
                Some($body)
            }
            _ => None,
        }
    };
}
pub(crate) use with_integer;

/// Opens a stream of tokens: one file or many, read as one.
///
/// What the files are is told from their content; `lowtide info` shows it.
///
/// Args:
///     path: A file, a folder, a glob, a Megatron prefix, or a list of them, in the order of the stream. A
///         folder that `lowtide.prepare` has made says by itself what its files are. Any of them may be in an
///         object store: "s3://bucket/shards/" is a folder there.
///     split: Which split of such a folder: "train", unless said, or "val".
///     dtype: The type of a token, for files that do not say. A bare `.bin` is uint16 without it.
///     format: The dialect, instead of what the files look like: "nanogpt", "llmc", "megatron",
///         "datatrove", "npy", "olmo" or "raw".
///     end_of_text: The token between documents, for files without an index of them; 50256 is GPT-2's.
///     access: How to read, as for `lowtide.open`.
///     cache: What becomes of the page cache, as for `lowtide.open`.
///     budget: Inside how much memory, as for `lowtide.open`.
///     storage_options: How object stores are reached, as for `lowtide.open`.
///     local_cache: A folder in which what comes from an object store is kept, as for `lowtide.open`.
///     local_cache_size: Its size, as for `lowtide.open`.
///     store: A store of obstore's that `path` is in, as for `lowtide.open`.
///
/// Returns:
///     A `lowtide.Tokens`.
///
/// Raises:
///     OSError: A file cannot be opened; `FileNotFoundError` and `PermissionError` are such errors.
///     ValueError: What a file is cannot be told, or it is damaged, or files do not belong together. The
///         message says what was expected, what was found, and the way out.
///     NotImplementedError: The numbers in a file are no integers.
///     TypeError: `path` is neither a path nor a list of paths.
///
/// Warns:
///     UserWarning: A bare `.bin` looks like another type than it is read as; `dtype=` says which it is.
///
/// Examples:
///     >>> t = lowtide.tokens("train.bin", budget="64MiB")
///     >>> x, y = t.windows([0, 7, 1000], 64)
///     >>> for x, y in t.loader(batch_size=12, block_size=1024, seed=0):
///     ...     assert x.shape == (12, 1024)
///     >>> len(lowtide.tokens(["train.bin", "val.bin"]))
///     400000
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> lowtide.tokens("data")
///     <lowtide.Tokens "...train.bin" split=train tokens=50 dtype=uint16 format=nanogpt access=auto>
#[pyfunction]
#[pyo3(
    signature = (path, *, split=None, dtype=None, format=None, end_of_text=None, access=Word::auto(), cache=Word::auto(), budget=None, storage_options=None, local_cache=None, local_cache_size=None, store=None),
    text_signature = "(path, *, split=None, dtype=None, format=None, end_of_text=None, access='auto', cache='auto', budget=None, storage_options=None, local_cache=None, local_cache_size=None, store=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn tokens(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    split: Option<Word>,
    dtype: Option<&Bound<'_, PyAny>>,
    format: Option<Word>,
    end_of_text: Option<Number>,
    access: Word,
    cache: Word,
    budget: Option<&Bound<'_, PyAny>>,
    storage_options: Option<&Bound<'_, PyAny>>,
    local_cache: Option<&Bound<'_, PyAny>>,
    local_cache_size: Option<&Bound<'_, PyAny>>,
    store: Option<&Bound<'_, PyAny>>,
) -> PyResult<Tokens> {
    py.import("numpy")?;
    let access: Access = access.parse("access")?;
    let cache: CacheWish = cache.parse("cache")?;
    let (storage, given) = store::argument(store, storage_options)?;
    let storage = storage::through(py, storage, local_cache, local_cache_size)?;
    let mut options = TokenOptions::new().access(access).cache(cache).storage(storage.clone());
    let arguments = PyDict::new(py);
    storage::keep(&storage, local_cache_size, &arguments)?;
    arguments.set_item("access", access.name())?;
    arguments.set_item("cache", cache.name())?;
    if let Some(budget) = budget::argument(budget)? {
        options = options.budget(budget);
    }
    if let Some(given) = dtype {
        let dtype = dtype::from_python(given, "dtype")?;
        options = options.dtype(dtype);
    }
    if let Some(word) = format {
        options = options.dialect(word.parse("format")?);
    }
    if let Some(token) = optional(py, end_of_text, "end_of_text", 0)? {
        options = options.end_of_text(token);
    }
    if let Some(name) = split {
        options = options.split(name.text("split")?);
    }
    let names = argument::paths(path, "tokens")?;
    let names = names.into_iter().map(|name| given.name(name)).collect::<PyResult<Vec<_>>>()?;
    let inner = storage::opened(py.detach(|| options.open(&names)))?;
    for warning in inner.warnings() {
        let message = CString::new(warning.to_string().replace('\0', "?")).unwrap_or_default();
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &message, 1)?;
    }
    arguments.set_item("budget", inner.budget().limit())?;
    arguments.set_item("end_of_text", inner.end_of_text())?; // the manifest's too
    arguments.set_item("dtype", inner.dtype().numpy_str())?; // said, so that nobody is warned again
    if let Some(file) = inner.files().first() {
        arguments.set_item("format", file.dialect.name())?;
    }
    let descr = dtype::to_numpy(py, inner.dtype())?.unbind();
    let int64 = dtype::to_numpy(py, Dtype::native(Kind::Int64))?.unbind();
    Ok(Tokens {
        inner,
        descr,
        int64,
        arguments: arguments.unbind(),
        text: Reader::default(),
        foresight: Mutex::default(),
    })
}

/// What pickle calls.
#[pyfunction]
#[pyo3(name = "_reopen_tokens")]
pub fn reopen<'py>(
    py: Python<'py>,
    files: &Bound<'py, PyTuple>,
    arguments: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    let words = arguments.copy()?;
    let take = |key: &str| -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = words.get_item(key)?;
        if value.is_some() {
            words.del_item(key)?;
        }
        Ok(value.filter(|value| !value.is_none()))
    };
    if let Some(sizes) = take("sizes")? {
        let (paths, sizes) = (argument::paths(files.as_any(), "tokens")?, sizes.extract::<Vec<u64>>()?);
        let storage = storage::argument(words.get_item(storage::OPTIONS)?.as_ref())?;
        py.detach(|| lowtide::same_sizes(paths.iter().zip(sizes), &storage)).map_err(raise)?;
    }
    let print: Option<String> = take(FINGERPRINT)?.map(|print| print.extract()).transpose()?;
    let tokens = py.import("lowtide._lowtide")?.getattr("tokens")?.call((files,), Some(&words))?;
    let inner = &tokens.cast::<Tokens>()?.get().inner;
    let path = inner.array().path();
    unlocked(py, |_| lowtide::same_print(path, print.as_deref(), || inner.fingerprint()))?;
    Ok(tokens)
}

/// How long a scan is silent before it says how far it is, and how long between two of its messages.
const FIRST_WORD: Duration = Duration::from_millis(500);
const NEXT_WORD: Duration = Duration::from_secs(5);

impl Tokens {
    /// NumPy's int64.
    pub fn int64(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.int64.clone_ref(py)
    }

    /// How many documents there are.
    fn find_documents(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.scanning(py, |interrupt, progress| self.inner.find_documents(interrupt, progress))
    }

    /// Runs what may scan all tokens. A long scan says how far it is to Python's logger `lowtide`, as INFO.
    fn scanning<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(Interrupt<'_>, &dyn Fn(u64)) -> lowtide::Result<T>,
    ) -> PyResult<T> {
        let (begin, tokens) = (Instant::now(), self.inner.len());
        let next = Mutex::new(begin + FIRST_WORD);
        let progress = |done: u64| {
            let Ok(mut next) = next.lock() else { return };
            if Instant::now() < *next {
                return;
            }
            *next = Instant::now() + NEXT_WORD;
            let part = done as f64 / tokens.max(1) as f64;
            let left = begin.elapsed().as_secs_f64() / part.max(1e-9) * (1.0 - part);
            let path = self.inner.array().path().display();
            let message = format!(
                "{path}: looking for documents: {:.0} % of {tokens} tokens, {left:.0} s left",
                part * 100.0
            );
            // A logger that raises is no reason to stop.
            let _ = Python::attach(|py| {
                let logger = py.import("logging")?.call_method1("getLogger", ("lowtide",))?;
                logger.call_method1("info", ("%s", message)).map(|_| ())
            });
        };
        unlocked(py, |interrupt| work(interrupt, &progress))
    }
}

#[pymethods]
impl Tokens {
    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.inner.len()).map_err(|_| PyValueError::new_err("more tokens than len() can say"))
    }

    /// NumPy's dtype of a token in the files.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyArrayDescr> {
        self.descr.clone_ref(py)
    }

    /// The files, in the order of the stream, as absolute paths.
    #[getter]
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.files().iter().map(|file| Name(file.path.clone())))
    }

    /// The dialect of the files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
    #[getter]
    fn format(&self) -> &'static str {
        self.inner.files().first().map_or("raw", |file| file.dialect.name())
    }

    /// The split of a folder that `lowtide.prepare` has made; None for other files.
    #[getter]
    fn split(&self) -> Option<&str> {
        self.inner.prepared()?.split.as_deref()
    }

    /// The token between documents, as given or as the manifest says; None where nothing says it.
    #[getter]
    fn end_of_text(&self) -> Option<u64> {
        self.inner.end_of_text()
    }

    /// Every token is below this, where `lowtide.prepare` has made the files; None for other files.
    #[getter]
    fn vocabulary(&self) -> Option<u64> {
        Some(self.inner.prepared()?.manifest.tokenizer.vocabulary)
    }

    /// The way of access that was asked for; loaders say which one they took.
    #[getter]
    fn access(&self) -> &'static str {
        self.inner.array().access().name()
    }

    /// What was asked for about the page cache: "auto", "keep" or "drop".
    #[getter]
    fn cache(&self) -> &'static str {
        self.inner.array().cache().name()
    }

    /// The budget that this and everything made from it share.
    #[getter]
    fn budget(&self) -> budget::Budget {
        budget::Budget(self.inner.budget().clone())
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.inner.array().is_closed()
    }

    /// How many documents there are; None where nothing says where they end.
    ///
    /// They are counted by the index beside the files, by the manifest of `lowtide.prepare`, or by
    /// `end_of_text`, for which all tokens are read once (see `remember_documents`).
    #[getter]
    fn documents(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        match py.detach(|| self.inner.known_documents()).map_err(raise)? {
            Some(known) => Ok(Some(known)),
            None => self.find_documents(py),
        }
    }

    /// Reads one document, the end-of-text token included, in the files' own dtype.
    ///
    /// Args:
    ///     number: Which one; negative numbers count from the end.
    ///
    /// Returns:
    ///     A fresh array of one axis.
    ///
    /// Raises:
    ///     IndexError: There are not so many.
    ///     ValueError: Nothing says where documents end: give `lowtide.tokens` the `end_of_text`.
    ///
    /// Examples:
    ///     >>> t = lowtide.tokens("train.bin", end_of_text=50256)
    ///     >>> t.documents
    ///     5
    ///     >>> t.document(0)[-1]
    ///     np.uint16(50256)
    fn document<'py>(&self, py: Python<'py>, number: i64) -> PyResult<Bound<'py, PyAny>> {
        let index = if let Ok(index) = u64::try_from(number) {
            index
        } else {
            // Where documents are not known, the first one says what is missing.
            let from_end = |count: u64| {
                count.checked_sub(number.unsigned_abs()).ok_or_else(|| out_of_range(number, count))
            };
            self.documents(py)?.map_or(Ok(0), from_end)?
        };
        let found = self.scanning(py, |interrupt, progress| {
            match self.inner.document_range(index, interrupt, progress) {
                Ok(range) => self.inner.part(range, interrupt).map(Ok),
                Err(lowtide::Error::Index { size, .. }) => Ok(Err(size)),
                Err(error) => Err(error),
            }
        })?;
        let batch = found.map_err(|count| out_of_range(number, count))?;
        batch::ndarray(py, batch, self.descr.bind(py))
    }

    /// Reads one document as text, without the end-of-text token.
    ///
    /// Args:
    ///     number: Which one; negative numbers count from the end.
    ///     tokenizer: What made the tokens: a name such as "gpt2", or the path of a tokenizer.json. Where
    ///         `lowtide.prepare` has made them, that is known.
    ///
    /// Returns:
    ///     The text. Bytes that are no UTF-8 are replaced.
    ///
    /// Raises:
    ///     IndexError: There are not so many.
    ///     ValueError: Nothing says which tokenizer it was, or where documents end; or the tokenizer does not
    ///         have one of the tokens.
    ///
    /// Examples:
    ///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
    ///     >>> lowtide.tokens("data").text(-1)
    ///     'there was a tide, and it was low'
    ///     >>> lowtide.tokens("train.bin").text(0, tokenizer="gpt2")[:9]
    ///     '!prise ps'
    #[pyo3(signature = (number, tokenizer=None))]
    fn text(
        &self,
        py: Python<'_>,
        number: &Bound<'_, PyAny>,
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let Ok(number) = number.extract() else {
            return Err(PyTypeError::new_err(format!("number={} is not one of a document", shown(number)?)));
        };
        let tokenizer = tokenizer.map(prepare::named).transpose()?;
        self.text.document(py, &self.inner, number, tokenizer.as_deref())
    }

    /// Gives the text of ids: of a part of the tokens, or of a row of a batch.
    ///
    /// Args:
    ///     ids: A list or an array of integers, of one axis.
    ///     tokenizer: As for `text`.
    ///
    /// Returns:
    ///     The text, end-of-text words included. Bytes that are no UTF-8 are replaced.
    ///
    /// Raises:
    ///     ValueError: As for `text`.
    ///     TypeError: The ids are no integers, or have several axes.
    ///
    /// Examples:
    ///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
    ///     >>> t = lowtide.tokens("data")
    ///     >>> x, y = t.windows([9], 12)
    ///     >>> t.decode(x[0])
    ///     ' a time<|endoftext|>ther'
    #[pyo3(signature = (ids, tokenizer=None))]
    fn decode(&self, ids: &Bound<'_, PyAny>, tokenizer: Option<&Bound<'_, PyAny>>) -> PyResult<String> {
        let tokenizer = tokenizer.map(prepare::named).transpose()?;
        self.text.decode(&self.inner, ids, tokenizer.as_deref())
    }

    /// Writes down where documents are, so that all tokens need not be read for it again.
    ///
    /// What the scan for `end_of_text` found goes into NAME.lowtide-documents beside the first file. From
    /// then on documents are known at once, until a file changes.
    ///
    /// Returns:
    ///     The path of what was written.
    ///
    /// Raises:
    ///     ValueError: There is nothing to scan for: the files have an index, or there is no `end_of_text`.
    ///     OSError: It cannot be written.
    ///
    /// Examples:
    ///     >>> lowtide.tokens("train.bin", end_of_text=50256).remember_documents().name
    ///     'train.bin.lowtide-documents'
    fn remember_documents(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.find_documents(py)?;
        unlocked(py, |interrupt| self.inner.remember_documents(interrupt))
    }

    /// Reads the windows that begin at `starts`: (x, y), where y is x shifted by one.
    ///
    /// A window takes `block_size` + 1 tokens, so the last one begins at `len(tokens) - block_size - 1`.
    ///
    /// Args:
    ///     starts: A list or an array of integers, in any order.
    ///     block_size: How many tokens a row of x has.
    ///     out: Two arrays of `len(starts)` rows of `block_size`, of any integers, to be filled: (x, y).
    ///
    /// Returns:
    ///     Two fresh int64 arrays of `len(starts)` rows of `block_size` tokens, or `out`.
    ///
    /// Raises:
    ///     IndexError: A window would reach beyond the first or the last token.
    ///     TypeError: `starts` are no integers, or `out` is not two arrays.
    ///     ValueError: `out` has another shape, or no integers.
    ///
    /// Examples:
    ///     >>> t = lowtide.tokens("train.bin")
    ///     >>> x, y = t.windows([0, 7, 1000], 64)
    ///     >>> x.shape, x.dtype
    ///     ((3, 64), dtype('int64'))
    ///     >>> bool((x[:, 1:] == y[:, :-1]).all())
    ///     True
    #[pyo3(signature = (starts, block_size, out=None))]
    fn windows<'py>(
        &self,
        py: Python<'py>,
        starts: &Bound<'py, PyAny>,
        block_size: Number,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        warn_unguarded(py, self.inner.array())?;
        let block_size = block_size.size(py, "block_size")?;
        let starts = windows::starts(starts, &self.inner, block_size)?;
        let Some(out) = out else {
            let (x, y) = unlocked(py, |interrupt| self.inner.windows::<i64>(&starts, block_size, interrupt))?;
            let descr = self.int64.bind(py);
            return PyTuple::new(py, [batch::ndarray(py, x, descr)?, batch::ndarray(py, y, descr)?]);
        };
        let [x, y]: [Bound<'py, PyAny>; 2] = out.extract().map_err(|_| windows::no_out())?;
        let shape = [starts.len(), block_size];
        let ((x_array, kind), (y_array, other)) =
            (windows::check_out(&x, shape)?, windows::check_out(&y, shape)?);
        if kind != other {
            return Err(PyValueError::new_err("x and y of out must have the same dtype"));
        }
        let bytes = shape[0] * shape[1] * kind.itemsize();
        let (mut to_x, mut to_y) = (Out::new(x_array, bytes), Out::new(y_array, bytes));
        with_integer!(kind, T => unlocked(py, move |interrupt| {
            self.inner.windows_into::<T>(&starts, block_size, to_x.numbers(), to_y.numbers(), interrupt)
        }))
        .unwrap_or(Ok(()))?;
        PyTuple::new(py, [x, y])
    }

    /// What `lowtide.torch` knows of who draws windows of it.
    #[getter]
    #[pyo3(name = "_foresight")]
    fn foresight(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.foresight.lock().ok()?.as_ref().map(|known| known.clone_ref(py))
    }

    #[setter]
    #[pyo3(name = "_foresight")]
    fn set_foresight(&self, known: Option<Py<PyAny>>) {
        // What was there is let go of outside the lock: it waits for its thread.
        let old = self.foresight.lock().map(|mut slot| std::mem::replace(&mut *slot, known));
        drop(old);
    }

    /// Something that reads batches of windows before they are asked for; None where the budget has no room for it.
    #[pyo3(name = "_foresee")]
    fn foresee(&self, py: Python<'_>, batch_size: usize, block_size: usize) -> Option<Foreseen> {
        Foreseen::new(py, self, batch_size, block_size)
    }

    /// Gives batches of windows, read ahead in a thread: `for x, y in tokens.loader(12, 1024)`.
    ///
    /// Args:
    ///     batch_size: How many windows a batch has, on each rank.
    ///     block_size: How many tokens a window has: x and y are arrays of `batch_size` rows of `block_size`.
    ///     order: "shuffled", every window of an epoch once; "sequential", the same in file order;
    ///         "with_replacement", independent draws, as nanoGPT's.
    ///     seed: Which order; None draws one, which `state_dict` holds.
    ///     epoch: The epoch with which the first iteration begins.
    ///     epochs: How many epochs one iteration has; None has no end.
    ///     repeat: Every iteration begins the same epochs again, from their beginning: for validation.
    ///         Otherwise the next one is the next epochs, or goes on where an iteration was left half way.
    ///     dtype: The integers of x and y.
    ///     rank, world_size: Which share of the batches; if not given, torch.distributed's, torchrun's,
    ///         Slurm's or MPI's, asked at the first batch at the latest (docs/trainers.md).
    ///     prefetch: How many batches to read ahead at most; 0 does without a thread.
    ///     drop_last: Leaves out the last windows of an epoch, which do not fill a batch on every rank.
    ///     blocks: With order "shuffled": None is an exact shuffle. "auto" or a number of windows reads whole
    ///         blocks of neighbours and mixes them inside the budget, as fast as a disk reads;
    ///         `predicted_spread` says how random.
    ///
    /// Returns:
    ///     A `lowtide.Loader`.
    ///
    /// Raises:
    ///     ValueError: The tokens are too few for a window or a batch, a word or a number makes no sense, or
    ///         only one of `rank` and `world_size` is given.
    ///     MemoryError: A batch does not fit in the budget.
    ///
    /// Examples:
    ///     >>> t = lowtide.tokens("train.bin")
    ///     >>> for x, y in t.loader(batch_size=12, block_size=1024, seed=0):
    ///     ...     assert x.shape == y.shape == (12, 1024)
    ///     >>> len(t.loader(12, 1024, rank=1, world_size=4))
    ///     4
    #[pyo3(
        text_signature = "($self, batch_size, block_size, *, order='shuffled', seed=0, epoch=0, epochs=1, repeat=False, dtype='int64', rank=None, world_size=None, prefetch=None, drop_last=True, blocks=None, _turn=None)"
    )]
    #[pyo3(signature = (batch_size, block_size, *, order=Word::said("shuffled"), seed=Some(Number::Fits(0)), epoch=Number::Fits(0), epochs=Some(Number::Fits(1)), repeat=Flag::OFF, dtype=None, rank=None, world_size=None, prefetch=None, drop_last=Flag::ON, blocks=None, _turn=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords
    #[allow(clippy::used_underscore_binding)] // a keyword that is not for users, as Python marks it
    fn loader(
        slf: &Bound<'_, Self>,
        batch_size: Number,
        block_size: Number,
        order: Word,
        seed: Option<Number>,
        epoch: Number,
        epochs: Option<Number>,
        repeat: Flag,
        dtype: Option<&Bound<'_, PyAny>>,
        rank: Option<Number>,
        world_size: Option<Number>,
        prefetch: Option<Number>,
        drop_last: Flag,
        blocks: Option<&Bound<'_, PyAny>>,
        _turn: Option<(u64, u64)>, // for lowtide.torch: this worker, of how many
    ) -> PyResult<Loader> {
        let py = slf.py();
        let (rank, world_size) = (optional(py, rank, "rank", 0)?, optional(py, world_size, "world_size", 1)?);
        let (ranks, shard) = RankWish::new(py, rank, world_size)?;
        let seed = chunks::Seed::new(py, seed, shard)?;
        let options = LoaderOptions {
            batch_size: batch_size.size(py, "batch_size")?,
            block_size: block_size.size(py, "block_size")?,
            order: order.parse("order")?,
            seed: seed.number,
            epoch: epoch.named(py, "epoch", 0)?,
            epochs: optional(py, epochs, "epochs", 1)?,
            again: chunks::again(repeat)?,
            shard,
            turn: _turn.map_or(Ok(Turn::ALL), |(first, of)| Turn::new(first, of)).map_err(raise)?,
            last: chunks::last(drop_last)?,
            prefetch: optional(py, prefetch, "prefetch", 0)?,
            blocks: chunks::block_wish(blocks, "windows")?,
        };
        Loader::new(slf, options, seed, ranks, Wanted::from_python(py, dtype)?)
    }

    /// Tokens as NumPy's index selects them, in the files' own dtype: `tokens[5]`, `tokens[5:9]`, `tokens[[3, 1]]`.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let array = self.inner.array();
        let selected = index::parse(key, array.shape(), array.layout().order)?;
        index::fresh(py, array, self.descr.bind(py), selected)
    }

    /// Token by token would be a read each.
    #[allow(clippy::unused_self)] // a method to Python
    fn __iter__(&self) -> PyResult<Py<PyAny>> {
        Err(PyTypeError::new_err(
            "tokens are not gone through one by one\n\
             hint: tokens.loader(batch_size, block_size) gives batches of windows, tokens[start:end] a part",
        ))
    }

    /// Token by token, as NumPy's arrays compare, if all of them fit in the budget.
    fn __richcmp__<'py>(
        &self,
        py: Python<'py>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let all = whole(py, self.inner.array(), self.descr.bind(py), None, |needs, limit| {
            format!(
                "comparing token by token would read all {needs} of them, the budget is {limit}\n\
                 hint: compare a part: tokens[start:end]; `is` asks whether two names mean the same tokens"
            )
        })?;
        all.rich_compare(other, how)
    }

    /// Which object it is, not what is in it: tokens can be a key.
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        identity(slf.as_any())
    }

    /// For NumPy, which would make an array of one object: all tokens, if they fit in the budget.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("tokens on disk cannot become a NumPy array without a copy"));
        }
        whole(py, self.inner.array(), self.descr.bind(py), dtype, |needs, limit| {
            format!(
                "a NumPy array of all tokens would take {needs}, the budget is {limit}\n\
                 hint: tokens[...] does it anyway; tokens.loader(...) goes through them in the budget"
            )
        })
    }

    /// For `torch.as_tensor(tokens)` and `np.from_dlpack(tokens)`: all tokens, if they fit in the budget.
    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.__array__(py, None, None)?.call_method("__dlpack__", (), options)
    }

    /// The CPU, in the numbers of `DLPack`.
    #[allow(clippy::unused_self)] // a method to Python
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// Lets go of the files. Arrays that were returned stay what they are.
    ///
    /// Examples:
    ///     >>> with lowtide.tokens("train.bin") as t:
    ///     ...     start = t[:10]
    ///     >>> t.closed
    ///     True
    fn close(&self) {
        self.inner.close();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, _kind: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        let files = self.inner.files();
        let name = files.first().map_or_else(String::new, |file| format!("\"{}\"", file.path.display()));
        let more = if files.len() > 1 { format!(" and {} more", files.len() - 1) } else { String::new() };
        let (tokens, dtype, format, access) =
            (self.inner.len(), self.inner.dtype(), self.format(), self.access());
        let closed = if self.closed() { ", closed" } else { "" };
        let split = self.split().map_or_else(String::new, |split| format!(" split={split}"));
        format!(
            "<lowtide.Tokens {name}{more}{split} tokens={tokens} dtype={dtype} format={format} access={access}{closed}>"
        )
    }

    /// What a notebook shows. Documents are counted where that takes no pass over the tokens.
    fn _repr_html_(&self, py: Python<'_>) -> String {
        let files = self.inner.files();
        let mut facts = vec![
            (
                if files.len() == 1 { "file" } else { "files" },
                notebook::names(files.iter().map(|file| &*file.path)),
            ),
            ("tokens", self.inner.len().to_string()),
            ("dtype", self.inner.dtype().to_string()),
            ("format", self.format().to_owned()),
        ];
        if let Some(prepared) = self.inner.prepared() {
            facts.extend(prepared.split.clone().map(|split| ("split", split)));
            facts.push(("tokenizer", prepared.manifest.tokenizer.name.clone()));
        }
        if let Ok(Some(documents)) = py.detach(|| self.inner.known_documents()) {
            facts.push(("documents", documents.to_string()));
        }
        facts.extend(notebook::settings(self.inner.array()));
        notebook::table("lowtide.Tokens", &facts)
    }

    /// Pickles as the paths, the settings and what the files are, never as data.
    #[allow(clippy::type_complexity)] // what pickle wants: a function and its arguments
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>, Bound<'py, PyDict>))> {
        let again = py.import("lowtide._lowtide")?.getattr("_reopen_tokens")?;
        let arguments = self.arguments.bind(py).copy()?;
        arguments.set_item("sizes", self.inner.files().iter().map(|file| file.len).collect::<Vec<_>>())?;
        if !self.closed() {
            arguments.set_item(FINGERPRINT, unlocked(py, |_| self.inner.fingerprint())?)?;
        }
        Ok((again, (self.files(py)?, arguments)))
    }
}
