//! What was asked for, and whether a folder holds the beginning of just that.

use crate::inputs::Source;
use crate::says::{
    END_OF_TEXT, EPOCH, FIELD, FORMAT, INPUT, ON_ERROR, SEED, SEPARATOR, SHARD_TOKENS, SHUFFLE_DOCUMENTS,
    THREADS, TOKENIZER, VAL,
};
use crate::tokenizer::Tokenizer;
use lowtide::door::{Setting, Words};
use lowtide::format::manifest::SourceFile;
use lowtide::format::{Dialect, Dtype};
use lowtide::{CacheWish, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a source contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A file is a document, or what lies between separators is.
    Text,
    /// A line is a document.
    Lines,
    /// Each line is a JSON object.
    Jsonl,
    /// A table, of which one column is text.
    Parquet,
}

impl InputKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Text, Self::Lines, Self::Jsonl, Self::Parquet];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Lines => "lines",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}

impl fmt::Display for InputKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for InputKind {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            Error::argument(
                INPUT.is(word.to_owned()) + " is no kind of input",
                "one of \"text\", \"lines\", \"jsonl\", \"parquet\"",
            )
        })
    }
}

/// What happens where a document cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The work ends.
    #[default]
    Stop,
    /// It is passed over and counted.
    Skip,
}

impl OnError {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Skip => "skip",
        }
    }
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        [Self::Stop, Self::Skip].into_iter().find(|one| one.name() == word).ok_or_else(|| {
            Error::argument(
                ON_ERROR.is(word.to_owned()) + " is not what can be done about a document",
                "one of \"stop\", \"skip\"",
            )
        })
    }
}

/// Where text is looked for if nobody says where.
const FIELD_BY_DEFAULT: &str = "text";

/// What is to be made, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `gpt2`, `bytes`, `chars`, another name of [`tokenizer::names`](crate::tokenizer::names), or the path of a
    /// Hugging Face `tokenizer.json`.
    pub tokenizer: String,
    /// Which files are written.
    pub format: Dialect,
    /// The share of documents for validation.
    pub val: f64,
    /// Which documents those are.
    pub seed: u64,
    /// A shard ends with the document that reaches this; `None` is one file, or what the format can hold.
    pub shard_tokens: Option<u64>,
    /// What the inputs contain, where their names and first bytes do not tell.
    pub input: Option<InputKind>,
    /// Where the text is in a JSON object or a table: a path such as `text` or `document.body`.
    pub field: String,
    /// What stands between the documents of a text.
    pub separator: Option<String>,
    /// Which files of a folder are read; all, if empty.
    pub include: Vec<String>,
    /// What happens where a document cannot be read.
    pub on_error: OnError,
    /// Deal the documents in another order, by this seed.
    pub shuffle_documents: Option<u64>,
    /// How many threads make tokens; `None` is one for each core.
    pub threads: Option<usize>,
    /// Bytes that all of it may hold; `None` is the usual default.
    pub budget: Option<u64>,
    /// What happens to the page cache of what is read and written.
    pub cache: CacheWish,
    /// How often it is written down how far the work is: what a kill costs at most.
    pub checkpoint: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tokenizer: "gpt2".into(),
            format: Dialect::NanoGpt,
            val: 0.0,
            seed: 0,
            shard_tokens: None,
            input: None,
            field: FIELD_BY_DEFAULT.into(),
            separator: None,
            include: Vec::new(),
            on_error: OnError::Stop,
            shuffle_documents: None,
            threads: None,
            budget: None,
            cache: CacheWish::Auto,
            checkpoint: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// That they make sense, before any file is touched.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: Words, hint: &'static str| Err(Error::argument(what, hint));
        if !(0.0..1.0).contains(&self.val) {
            return wrong(
                VAL.plain(&self.val) + " is no share of the documents",
                "from 0, none, to less than 1; 0.0005 is one of 2,000",
            );
        }
        if self.shard_tokens == Some(0) {
            return wrong(
                SHARD_TOKENS.number(0) + ": such a shard is full at once",
                "leave it out for one file",
            );
        }
        if self.threads == Some(0) {
            return wrong(THREADS.number(0) + " do nothing", "leave it out for one on each core");
        }
        if self.separator.as_deref() == Some("") {
            return wrong(SEPARATOR + " is empty, and would be between all letters", "");
        }
        if let (Some(_), Some(kind)) = (&self.separator, self.input)
            && kind != InputKind::Text
        {
            return wrong(
                SEPARATOR + " is for text, not for " + INPUT.is(kind.name()),
                "lines and rows of a table have their own ends",
            );
        }
        if let Some(kind @ (InputKind::Text | InputKind::Lines)) = self.input
            && self.asks_for_field()
        {
            return wrong(
                FIELD.is(self.field.clone())
                    + " is for JSON lines and tables, not for "
                    + INPUT.is(kind.name()),
                "leave one of them out",
            );
        }
        if self.field.split('.').any(str::is_empty) {
            return wrong(
                FIELD.is(self.field.clone()) + " is no path to a field",
                "such as text, or document.body",
            );
        }
        Ok(())
    }

    /// Whether a field was asked for, and not the one that it is by default.
    pub(crate) fn asks_for_field(&self) -> bool {
        self.field != FIELD_BY_DEFAULT
    }

    /// The type of a token of a vocabulary: no id can overflow it.
    pub(crate) fn dtype(&self, vocabulary: u32) -> Result<Dtype> {
        match (vocabulary <= 1 << 16, self.format) {
            (true, _) => "<u2",
            (false, Dialect::Megatron) => "<i4",
            (false, _) => "<u4",
        }
        .parse()
    }

    /// Tokens after which a shard ends.
    pub(crate) fn shard_tokens(&self) -> u64 {
        // llm.c's header counts in an int32, and its own shards are of this size.
        let default = if self.format == Dialect::LlmC { 100_000_000 } else { u64::MAX };
        self.shard_tokens.unwrap_or(default)
    }

    /// Whether shards are numbered.
    pub(crate) fn numbered(&self) -> bool {
        self.shard_tokens() != u64::MAX
    }

    /// Everything that the bytes depend on, as the command has it.
    pub(crate) fn identity(&self, tokenizer: &dyn Tokenizer) -> Map<String, Value> {
        let pairs = [
            ("tokenizer", json!(tokenizer.name())),
            ("fingerprint", json!(tokenizer.fingerprint())),
            ("format", json!(self.format.name())),
            ("val", json!(self.val)),
            ("seed", json!(self.seed)),
            ("shard-tokens", json!(self.shard_tokens)),
            ("input", json!(self.input.map(InputKind::name))),
            ("field", json!(self.field)),
            ("separator", json!(self.separator)),
            ("on-error", json!(self.on_error.name())),
            ("shuffle-documents", json!(self.shuffle_documents)),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The settings of [`Settings::identity`] and of a shuffle of documents, as messages name them.
const SETTINGS: [(&str, Setting); 12] = [
    ("tokenizer", TOKENIZER),
    ("format", FORMAT),
    ("val", VAL),
    ("seed", SEED),
    ("shard-tokens", SHARD_TOKENS),
    ("input", INPUT),
    ("field", FIELD),
    ("separator", SEPARATOR),
    ("on-error", ON_ERROR),
    ("shuffle-documents", SHUFFLE_DOCUMENTS),
    ("epoch", EPOCH),
    ("end-of-text", END_OF_TEXT),
];

/// A job as a folder remembers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub settings: Map<String, Value>,
    pub sources: Vec<SourceFile>,
}

impl Job {
    pub fn new(settings: &Settings, tokenizer: &dyn Tokenizer, sources: &[Source]) -> Self {
        let sources = sources.iter().map(|source| {
            let (bytes, modified) = match source {
                Source::File { bytes, modified, .. } => (*bytes, *modified),
                Source::Stdin => (0, 0),
            };
            SourceFile { path: source.path().to_string_lossy().into_owned(), bytes, modified }
        });
        Self { settings: settings.identity(tokenizer), sources: sources.collect() }
    }

    /// What makes this job another than `earlier`, in words; `None` where it is the same.
    pub fn difference(&self, earlier: &Self) -> Option<Words> {
        for (name, now) in &self.settings {
            let then = earlier.settings.get(name).unwrap_or(&Value::Null);
            // What could be read is the same whatever happens to the rest, and so far all could be.
            let goes_on = name == "on-error" && then == OnError::Stop.name() && now == OnError::Skip.name();
            if then == now || goes_on {
                continue;
            }
            return Some(match SETTINGS.iter().find(|(known, _)| known == name) {
                Some((_, setting)) => {
                    let said = |value: &Value| match value {
                        Value::Null => setting.clone().absent(),
                        Value::String(word) => setting.clone().is(word.clone()),
                        other => setting.clone().plain(other),
                    };
                    Words::from("it was made with ") + said(then) + ", this is " + said(now)
                }
                None => Words::from("the tokenizer has changed since, it gives other ids"),
            });
        }
        if self.sources.len() != earlier.sources.len() {
            let (then, now) = (earlier.sources.len(), self.sources.len());
            return Some(format!("there were {then} inputs, now there are {now}").into());
        }
        let changed = earlier.sources.iter().zip(&self.sources).find(|(then, now)| then != now);
        changed.map(|(then, now)| {
            if then.path == now.path {
                format!("{} has changed since", now.path)
            } else {
                format!("{} was read where {} is now", then.path, now.path)
            }
            .into()
        })
    }
}
