//! `lowtide.prepare`: text to token files, as the command does it.

use crate::argument::{self, Flag, Name, Word};
use crate::error::{raise, unlocked};
use crate::number::{Number, Real, optional};
use crate::progress::{Told, warn};
use crate::{budget, dtype, storage};
use lowtide::format::manifest::{self, Manifest};
use lowtide::store::{Storage, is_url};
use lowtide::{CacheWish, Error};
use lowtide_cli::prepare::Meter;
use lowtide_text::{InputKind, Progress, Settings};
use numpy::PyArrayDescr;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::path::PathBuf;

/// Turns text, JSON lines or Parquet into token files, in bounded memory and on all cores.
///
/// What the command `lowtide prepare` does. Killed or interrupted, the same call goes on where it was; once
/// it is done, it does nothing. The files appear whole, beside `lowtide.json`, which says what they are:
/// `lowtide.tokens(output)` needs no more.
///
/// Args:
///     inputs: A file, a folder (searched to the bottom), a glob, "-" for standard input, or a list of them.
///         gzip and zstd are unpacked.
///     output: The folder to write into; it is made, if need be. An address such as `s3://bucket/data/`:
///         files are made in `work`, and sent when all of them are whole, the manifest last.
///     tokenizer: "gpt2", "cl100k_base", "o200k_base", ..., "bytes", "chars", or the path of a Hugging Face
///         tokenizer.json.
///     format: Which files to write: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
///     val: The share of documents for validation, such as 0.0005.
///     seed: Which documents are for validation.
///     shard_tokens: Ends a shard with the document that reaches this many tokens: a number, or "100M".
///     input: What the inputs are: "text", "lines", "jsonl" or "parquet"; by content and name, if not given.
///     field: Where the text is in a line of JSON, or in a table: "text", or "document.body".
///     split_lines: Makes every line of a text a document: the same as input="lines".
///     separator: What stands between the documents of a text.
///     include: Which files of a folder to read, such as "*.py"; or a list of such patterns.
///     on_error: What to do about a document that cannot be read: "stop", or "skip" and count it. The logger
///         "lowtide" is warned of the first twenty, by file, line and byte.
///     shuffle_documents: Deals the documents in another order, by this seed, exactly and out of core.
///     threads: How many threads make tokens; one for each core, if not given.
///     budget: Memory for all of it, such as "256MiB".
///     cache: What the page cache keeps of inputs and outputs: "auto", "keep" or "drop".
///     progress: Is called with a dict several times a second. If not given, there is a line on stderr where
///         that is a terminal, and elsewhere the logger "lowtide" is told; False says nothing.
///     storage_options: How the object store of the output is reached, as for `lowtide.open`.
///     work: A folder of this machine for files that go to an object store; the system's for temporary files,
///         if not given. What was done stays there, should the call be killed.
///
/// Returns:
///     A `lowtide.Prepared`.
///
/// Raises:
///     FileNotFoundError: There is no such input; other errors of the system are an `OSError` likewise.
///     ValueError: A document cannot be read (the message names the file, the line and the byte), an
///         argument makes no sense, or the folder holds something else already.
///     MemoryError: The budget is too small for so many threads.
///     KeyboardInterrupt: Ctrl-C, within a tenth of a second. The same call goes on.
///
/// Examples:
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> made
///     <lowtide.Prepared "...data" tokens=50 documents=2 skipped=0 splits=train>
///     >>> t = lowtide.tokens("data")
///     >>> t.text(0)
///     'Once upon a time'
///     >>> x, y = t.windows([0], 16)
#[pyfunction]
#[pyo3(
    signature = (inputs, output, *, tokenizer=None, format=Word::said("nanogpt"), val=Real::Fits(0.0), seed=Number::Fits(0), shard_tokens=None, input=None, field=Word::said("text"), split_lines=Flag::OFF, separator=None, include=None, on_error=Word::said("stop"), shuffle_documents=None, threads=None, budget=None, cache=Word::auto(), progress=None, storage_options=None, work=None),
    text_signature = "(inputs, output, *, tokenizer='gpt2', format='nanogpt', val=0.0, seed=0, shard_tokens=None, input=None, field='text', split_lines=False, separator=None, include=None, on_error='stop', shuffle_documents=None, threads=None, budget=None, cache='auto', progress=None, storage_options=None, work=None)"
)]
#[allow(clippy::too_many_arguments)] // they are keywords
pub fn prepare(
    py: Python<'_>,
    inputs: &Bound<'_, PyAny>,
    output: &Bound<'_, PyAny>,
    tokenizer: Option<&Bound<'_, PyAny>>,
    format: Word,
    val: Real,
    seed: Number,
    shard_tokens: Option<&Bound<'_, PyAny>>,
    input: Option<Word>,
    field: Word,
    split_lines: Flag,
    separator: Option<Word>,
    include: Option<&Bound<'_, PyAny>>,
    on_error: Word,
    shuffle_documents: Option<Number>,
    threads: Option<Number>,
    budget: Option<&Bound<'_, PyAny>>,
    cache: Word,
    progress: Option<&Bound<'_, PyAny>>,
    storage_options: Option<&Bound<'_, PyAny>>,
    work: Option<&Bound<'_, PyAny>>,
) -> PyResult<Prepared> {
    let far = storage::far(storage_options, work)?;
    let given = Given {
        tokenizer,
        format,
        val,
        seed,
        shard_tokens,
        input,
        field,
        split_lines,
        separator,
        include,
        on_error,
        shuffle_documents,
        threads,
        budget,
        cache,
    };
    let settings = given.settings(py)?;
    let inputs = argument::paths(inputs, "inputs")?;
    let output = argument::path(output, "output")?;
    let told = Told::new(py, progress, "preparing tokens")?;
    let (mut meter, mut said) = (Meter::default(), Vec::new());
    let made = unlocked(py, |interrupt| {
        let mut tell = |at: &Progress| {
            told.tell(&meter.words(at), at);
            said.clone_from(&at.said);
        };
        let stop = || if told.has_raised() { Err(Error::Interrupted) } else { interrupt() };
        if is_url(&output) {
            lowtide_text::prepare_far(&inputs, &output, &far, &settings, &mut tell, &stop)
        } else {
            lowtide_text::prepare(&inputs, &output, &settings, &mut tell, &stop)
        }
    });
    let raised = told.end(py);
    let manifest = made.map_err(|error| raised.unwrap_or(error))?;
    warn(py, &said);
    Ok(Prepared { storage: far.storage, ..Prepared::new(output, manifest) })
}

/// The keywords of `prepare`, as they were given.
pub struct Given<'a, 'py> {
    pub tokenizer: Option<&'a Bound<'py, PyAny>>,
    pub format: Word,
    pub val: Real,
    pub seed: Number,
    pub shard_tokens: Option<&'a Bound<'py, PyAny>>,
    pub input: Option<Word>,
    pub field: Word,
    pub split_lines: Flag,
    pub separator: Option<Word>,
    pub include: Option<&'a Bound<'py, PyAny>>,
    pub on_error: Word,
    pub shuffle_documents: Option<Number>,
    pub threads: Option<Number>,
    pub budget: Option<&'a Bound<'py, PyAny>>,
    pub cache: Word,
}

impl Given<'_, '_> {
    /// What they mean.
    pub fn settings(self, py: Python<'_>) -> PyResult<Settings> {
        let input = self.input.map(|word| word.parse::<InputKind>("input")).transpose()?;
        let separator = self.separator.map(|text| text.text("separator")).transpose()?;
        let usual = Settings::default();
        Ok(Settings {
            tokenizer: match self.tokenizer {
                Some(name) => named(name)?,
                None => usual.tokenizer,
            },
            format: self.format.parse("format")?,
            val: self.val.named("val")?,
            seed: self.seed.named(py, "seed", 0)?,
            shard_tokens: self.shard_tokens.map(tokens).transpose()?,
            input: lines(self.split_lines.parse("split_lines")?, input, separator.as_deref())?,
            field: self.field.text("field")?,
            separator,
            include: self.include.map_or_else(|| Ok(Vec::new()), patterns)?,
            on_error: self.on_error.parse("on_error")?,
            shuffle_documents: optional(py, self.shuffle_documents, "shuffle_documents", 0)?,
            threads: self.threads.map(|number| number.size(py, "threads")).transpose()?,
            budget: budget::argument(self.budget)?.map(|budget| budget.limit()),
            cache: self.cache.parse::<CacheWish>("cache")?,
            checkpoint: usual.checkpoint,
        })
    }
}

/// The name of a tokenizer, or its path.
pub fn named(given: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(name) = given.cast::<PyString>() {
        return Ok(name.to_str()?.to_owned());
    }
    let path = argument::path(given, "tokenizer").map_err(|_| {
        let kind = given.get_type().name().map_or_else(|_| "that".into(), |name| name.to_string());
        PyTypeError::new_err(format!(
            "tokenizer is a name or a path, not {kind}\n\
             hint: \"gpt2\", or tokenizer.save(\"tokenizer.json\") and the path of that"
        ))
    })?;
    Ok(path.to_string_lossy().into_owned())
}

/// How many tokens: a number, or a text such as "100M".
pub fn tokens(given: &Bound<'_, PyAny>) -> PyResult<u64> {
    match given.cast::<PyString>() {
        Ok(text) => lowtide_cli::prepare::count(text.to_str()?)
            .map_err(|error| PyValueError::new_err(format!("shard_tokens={error}"))),
        Err(_) => given.extract::<Number>()?.named(given.py(), "shard_tokens", 1),
    }
}

fn lines(
    split_lines: bool,
    input: Option<InputKind>,
    separator: Option<&str>,
) -> PyResult<Option<InputKind>> {
    match (split_lines, input, separator) {
        (false, input, _) => Ok(input),
        (true, None | Some(InputKind::Lines), None) => Ok(Some(InputKind::Lines)),
        (true, Some(other), _) => {
            Err(PyValueError::new_err(format!("split_lines=True is input=\"lines\", not input=\"{other}\"")))
        }
        (true, _, Some(_)) => {
            Err(PyValueError::new_err("a document ends with its line or with a separator=, not both"))
        }
    }
}

/// A pattern, or a list of them.
fn patterns(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(one) = given.extract::<String>() {
        return Ok(vec![one]);
    }
    given.extract().map_err(|_| {
        PyTypeError::new_err(
            "include is a pattern or a list of patterns\nhint: \"*.py\", or [\"*.py\", \"*.md\"]",
        )
    })
}

/// What a pickle is: who makes it again, and of what.
type Again<'py> = (Bound<'py, PyAny>, (Name, Option<Bound<'py, PyDict>>));

/// What `lowtide.prepare` has made, or had made before.
///
/// Examples:
///     >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
///     >>> made.tokens, made.documents, made.skipped
///     (50, 2, 0)
///     >>> made.splits["train"]["files"]
///     [...Path('...train.bin')]
///     >>> made.end_of_text
///     256
#[pyclass(frozen, module = "lowtide")]
pub struct Prepared {
    folder: PathBuf,
    manifest: Manifest,
    storage: Storage,
}

impl Prepared {
    pub fn new(output: PathBuf, manifest: Manifest) -> Self {
        let folder = if is_url(&output) { output } else { std::path::absolute(&output).unwrap_or(output) };
        Self { folder, manifest, storage: Storage::default() }
    }

    fn sum(&self, of: impl Fn(&manifest::Split) -> u64) -> u64 {
        self.manifest.splits.iter().map(of).sum()
    }
}

#[pymethods]
impl Prepared {
    /// The folder, as an absolute path; an address in an object store, as a string.
    #[getter]
    fn path(&self) -> Name {
        Name(self.folder.clone())
    }

    /// The path of the manifest: `lowtide.json`, which has all of this and more.
    #[getter]
    fn manifest(&self) -> Name {
        Name(self.folder.join(manifest::NAME))
    }

    /// How many tokens there are, in all splits.
    #[getter]
    fn tokens(&self) -> u64 {
        self.sum(|split| split.tokens)
    }

    /// How many documents were written.
    #[getter]
    fn documents(&self) -> u64 {
        self.manifest.counts.documents
    }

    /// How many documents could not be read, and were passed over.
    #[getter]
    fn skipped(&self) -> u64 {
        self.manifest.counts.skipped
    }

    /// How many documents had no text, and were not written.
    #[getter]
    fn empty(&self) -> u64 {
        self.manifest.counts.empty
    }

    /// How many tokens the longest document has, its end of text included.
    #[getter]
    fn longest(&self) -> u64 {
        self.manifest.counts.longest
    }

    /// How many bytes of text became tokens.
    #[getter]
    fn text_bytes(&self) -> u64 {
        self.manifest.counts.text_bytes
    }

    /// How many bytes the token files have.
    #[getter]
    fn bytes(&self) -> u64 {
        self.sum(|split| split.shards.iter().map(|shard| shard.file.bytes).sum())
    }

    /// The splits by their names, each a dict of "tokens", "documents" and "files".
    #[getter]
    fn splits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let splits = PyDict::new(py);
        for split in &self.manifest.splits {
            let one = PyDict::new(py);
            one.set_item("tokens", split.tokens)?;
            one.set_item("documents", split.documents)?;
            let files = split.shards.iter().map(|shard| Name(self.folder.join(&shard.file.file)));
            one.set_item("files", files.collect::<Vec<_>>())?;
            splits.set_item(&split.name, one)?;
        }
        Ok(splits)
    }

    /// The tokenizer's name, or the path of its tokenizer.json.
    #[getter]
    fn tokenizer(&self) -> &str {
        &self.manifest.tokenizer.name
    }

    /// Every id is below this.
    #[getter]
    fn vocabulary(&self) -> u64 {
        self.manifest.tokenizer.vocabulary
    }

    /// The token between documents; None where the tokenizer has none.
    #[getter]
    fn end_of_text(&self) -> Option<u64> {
        self.manifest.tokenizer.end_of_text
    }

    /// NumPy's dtype of a token in the files.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        dtype::to_numpy(py, self.manifest.dtype.parse().map_err(raise)?)
    }

    /// The dialect of the files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
    #[getter]
    fn format(&self) -> &str {
        &self.manifest.format
    }

    /// Pickles as the folder: what stands in it then is what comes back.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Again<'py>> {
        let options = (!self.storage.options().is_empty()).then(|| PyDict::new(py));
        for (word, value) in self.storage.options() {
            options.as_ref().map_or(Ok(()), |options| options.set_item(word, value))?;
        }
        let again = py.import("lowtide._lowtide")?.getattr("_reopen_prepared")?;
        Ok((again, (Name(self.folder.clone()), options)))
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.manifest.splits.iter().map(|split| &*split.name).collect();
        format!(
            "<lowtide.Prepared \"{}\" tokens={} documents={} skipped={} splits={}>",
            self.folder.display(),
            self.tokens(),
            self.documents(),
            self.skipped(),
            names.join(",")
        )
    }
}

/// A folder that was prepared before: what a pickle is.
#[pyfunction]
#[pyo3(name = "_reopen_prepared", signature = (folder, storage_options=None))]
pub fn reopen(
    py: Python<'_>,
    folder: PathBuf,
    storage_options: Option<&Bound<'_, PyAny>>,
) -> PyResult<Prepared> {
    let storage = storage::argument(storage_options)?;
    let loaded = py.detach(|| lowtide::shards::load_manifest_from(&folder, &storage));
    let manifest = storage::opened(loaded)?;
    Ok(Prepared { folder, manifest, storage })
}
