//! What is measured: the rows of an array or the windows of a stream of tokens, as one kind of job. All that is
//! particular to either is decided here; the rest of the benchmark knows a number of rows of a number of bytes.

use super::{Args, Order};
use crate::draw::thousands;
use crate::info::{Kind, kind};
use lowtide::budget::{Budget, human};
use lowtide::door::Door;
use lowtide::format::{Container, Dialect, Dtype, Kind as Number, Order as Layout, shape_text};
use lowtide::store::{Storage, is_url};
use lowtide::{Error, Loader, LoaderOptions, Options, Result, Shuffle, TokenOptions, WindowOrder};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A chunk of an array is so many rows, or so many bytes where that is less.
const CHUNK_ROWS: u64 = 4096;
const CHUNK_BYTES: u64 = 2 << 20;
/// nanoGPT's own.
const BATCH: usize = 12;
const BLOCK: usize = 1024;

/// Something to read, piece by piece.
#[derive(Debug)]
pub struct Subject {
    /// As the user named it.
    pub path: String,
    /// The files that are read.
    pub paths: Vec<PathBuf>,
    pub unit: Unit,
    /// Elements and shape, for people.
    pub dtype: String,
    pub shape: String,
    /// Rows or windows of one pass.
    pub rows: u64,
    /// Bytes of one of them in the file.
    pub row_bytes: u64,
    /// How many come at once.
    pub chunk_rows: u64,
    /// The bytes that one chunk has in the caller's hands.
    pub chunk_bytes: u64,
    pub order: Order,
    pub budget: u64,
    /// Whether it is in an object store.
    pub far: bool,
    /// What the worker is told, except for the way.
    pub job: Value,
    /// What only this kind says about itself, for programs.
    pub json: Value,
    pub warnings: Vec<String>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Rows,
    Windows,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Windows => "windows",
        }
    }

    /// NumPy's two ways: as the worker and as people call them. The first is what all others are compared with.
    pub fn references(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Rows => [("memmap", "np.memmap held"), ("recreate", "np.memmap per chunk")],
            Self::Windows => [("recreate", "nanoGPT's get_batch"), ("memmap", "get_batch map held")],
        }
    }
}

impl Subject {
    /// Opens what the user named and refuses what no way could do.
    pub fn open(args: &Args) -> Result<Self> {
        let storage = args.storage.storage()?;
        let mut subject = match kind(&args.path, &args.headerless, args.format, &storage) {
            Kind::Array => Self::array(args, storage.clone())?,
            Kind::Tokens => Self::tokens(args, storage.clone())?,
        };
        let options = storage.options().iter().map(|(word, value)| (word.clone(), value.clone().into()));
        subject.job["storage_options"] = Value::Object(options.collect());
        Ok(subject)
    }

    fn array(args: &Args, storage: Storage) -> Result<Self> {
        let wrong = |what: &'static str, hint: &'static str| Err(Error::argument(what, hint));
        if args.batch_size.is_some() || args.block_size.is_some() {
            return wrong(
                "--batch-size and --block-size are for token files",
                "--rows is a chunk of an array",
            );
        }
        if args.order == Order::WithReplacement {
            return wrong("--order with_replacement is for token files", "shuffled or sequential");
        }
        let mut options: Options = args.headerless.options()?.storage(storage);
        if let Some(budget) = args.budget {
            options = options.budget(Budget::new(budget)?);
        }
        let array = options.open(&args.path)?;
        if let Some(files) = array.files() {
            let what = format!("{}: an array of {} files; one is compared", args.path.display(), files.len());
            return Err(Error::unsupported(what, format!("name one of them: {}", array.path().display())));
        }
        let row = array.row_bytes() as u64;
        if array.shape().is_empty() || array.nbytes() == 0 {
            let shape = shape_text(array.shape());
            let what =
                format!("{}: there are no rows to read in an array of shape {shape}", array.path().display());
            return Err(Error::unsupported(what, ""));
        }
        let chunk_rows =
            args.rows.unwrap_or_else(|| CHUNK_ROWS.min(CHUNK_BYTES / row).max(1)).min(array.rows());
        // Fails now, with the reason, where a chunk does not fit the budget or the order cannot be.
        let rows = usize::try_from(chunk_rows).unwrap_or(usize::MAX);
        match args.order {
            Order::Sequential => drop(array.chunks(rows)?),
            _ => drop(array.shuffled(rows, Shuffle::default())?),
        }
        let layout = array.layout();
        // NumPy itself has no bfloat16; for reading, any two bytes are the same.
        let dtype = match layout.dtype.kind() {
            Number::BFloat16 => "<u2".to_owned(),
            _ => layout.dtype.numpy_str(),
        };
        let budget = array.budget().limit();
        let job = json!({ "unit": Unit::Rows.name(), "order": args.order.name(), "chunk_rows": chunk_rows,
            "rows": array.rows(), "row_bytes": row, "budget": budget, "shape": layout.shape, "dtype": dtype,
            "offset": layout.offset, "raw": layout.container == Container::Raw,
            "memory_order": if layout.order == Layout::C { "C" } else { "F" } });
        Ok(Self {
            path: args.path.display().to_string(),
            paths: vec![array.path().to_owned()],
            unit: Unit::Rows,
            dtype: array.dtype().to_string(),
            shape: format!("{} of {}, {}", shape_text(array.shape()), array.dtype(), human(array.nbytes())),
            rows: array.rows(),
            row_bytes: row,
            chunk_rows,
            chunk_bytes: chunk_rows * row,
            order: args.order,
            budget,
            far: is_url(&args.path),
            job,
            json: json!({ "kind": "array", "dtype": array.dtype().to_string(), "shape": shape_text(array.shape()) }),
            warnings: Vec::new(),
        })
    }

    fn tokens(args: &Args, storage: Storage) -> Result<Self> {
        if args.rows.is_some() {
            return Err(Error::argument("--rows is for arrays", "--batch-size is a batch of windows"));
        }
        let dtype = args.headerless.dtype();
        let mut options = TokenOptions::new().storage(storage);
        options = dtype.into_iter().fold(options, TokenOptions::dtype);
        options = args.format.into_iter().fold(options, TokenOptions::dialect);
        if let Some(budget) = args.budget {
            options = options.budget(Budget::new(budget)?);
        }
        let tokens = options.open([&args.path])?;
        let (batch_size, block_size) = (args.batch_size.unwrap_or(BATCH), args.block_size.unwrap_or(BLOCK));
        let order = match args.order {
            Order::Shuffled => WindowOrder::Shuffled,
            Order::Sequential => WindowOrder::Sequential,
            Order::WithReplacement => WindowOrder::WithReplacement,
        };
        let options = LoaderOptions { batch_size, block_size, order, ..LoaderOptions::default() };
        let loader = Loader::new(&tokens, options).map_err(in_flags)?;
        let chunk_rows = batch_size as u64;
        let rows = loader.len()?.unwrap_or(0) * chunk_rows;
        let files = tokens.files();
        let row = block_size as u64 * tokens.dtype().itemsize() as u64;
        let budget = tokens.budget().limit();
        let dialect = files.first().map_or("raw", |file| file.dialect.name());
        let described = files.iter().map(|file| {
            // The ways run in other processes, which are told in JSON what to read.
            let path = file.path.to_str().ok_or_else(|| {
                let name = file.path.display();
                Error::unsupported(
                    format!("{name}: the name is not UTF-8"),
                    "give it another name, or a link",
                )
            })?;
            Ok(json!([path, file.offset, file.tokens]))
        });
        let described = described.collect::<Result<Vec<Value>>>()?;
        let job = json!({ "unit": Unit::Windows.name(), "order": args.order.name(), "chunk_rows": chunk_rows,
            "rows": rows, "row_bytes": row, "budget": budget, "block_size": block_size, "files": described,
            "dtype": tokens.dtype().numpy_str(), "given_dtype": dtype.map(Dtype::numpy_str),
            "format": args.format.map(Dialect::name) });
        let many = if files.len() == 1 {
            String::new()
        } else {
            format!(" in {} files", thousands(files.len() as u64))
        };
        Ok(Self {
            path: args.path.display().to_string(),
            paths: files.iter().map(|file| file.path.clone()).collect(),
            unit: Unit::Windows,
            dtype: format!("{}, {dialect}", tokens.dtype()),
            shape: format!("{} tokens of {}{many}, {dialect}", thousands(tokens.len()), tokens.dtype()),
            rows,
            row_bytes: row,
            chunk_rows,
            // x and y, as int64.
            chunk_bytes: chunk_rows * block_size as u64 * 16,
            order: args.order,
            budget,
            far: is_url(&args.path),
            job,
            json: json!({ "kind": "tokens", "dtype": tokens.dtype().to_string(), "format": dialect, "tokens": tokens.len(),
                "files": files.len(), "batch_size": batch_size, "block_size": block_size }),
            warnings: tokens.warnings().iter().map(|warning| warning.at(Door::Shell).to_string()).collect(),
        })
    }

    /// Bytes of one pass.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// What there is, in a line.
    pub fn words(&self) -> String {
        let size = human(self.bytes());
        match self.unit {
            Unit::Rows => {
                format!(
                    "{} rows of {}, {size} of {}",
                    thousands(self.rows),
                    human(self.row_bytes),
                    self.dtype
                )
            }
            Unit::Windows => {
                let tokens = thousands(self.json["block_size"].as_u64().unwrap_or(0));
                format!("{} windows of {tokens} tokens, {size} of {}", thousands(self.rows), self.dtype)
            }
        }
    }

    /// How it is read, in a line.
    pub fn reading(&self) -> String {
        let chunks = match self.unit {
            Unit::Rows => "chunks",
            Unit::Windows => "batches",
        };
        // Of an object the orders are what is compared.
        let order = if self.far { "" } else { self.order.name() };
        let words = format!("{order} {chunks} of {} {}", thousands(self.chunk_rows), self.unit.name());
        words.trim_start().to_owned()
    }
}

/// A loader's message in the words of the command.
fn in_flags(error: Error) -> Error {
    match error {
        Error::Argument { what, .. } => {
            let what = what.at(Door::Shell).to_string().replace("block_size", "--block-size");
            Error::unsupported(what, "a smaller --batch-size or --block-size")
        }
        other => other,
    }
}
