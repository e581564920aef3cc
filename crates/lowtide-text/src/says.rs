//! The settings that messages name, in the language of the reader: `on_error="skip"` in Python, `--on-error skip` at
//! a shell.

use lowtide::door::Setting;

pub use lowtide::door::{BUDGET, END_OF_TEXT, FORMAT, TOKENIZER};

/// Which epoch of an order.
pub const EPOCH: Setting = Setting::named("epoch");
/// Where the text is in a line of JSON, or in a table.
pub const FIELD: Setting = Setting::named("field");
/// Which files of a folder are read.
pub const INCLUDE: Setting = Setting::named("include");
/// What the inputs contain.
pub const INPUT: Setting = Setting::named("input");
/// What happens where a document cannot be read.
pub const ON_ERROR: Setting = Setting::named("on_error");
/// Which documents are for validation.
pub const SEED: Setting = Setting::named("seed");
/// What stands between the documents of a text.
pub const SEPARATOR: Setting = Setting::named("separator");
/// How large shards are.
pub const SHARD_TOKENS: Setting = Setting::named("shard_tokens");
/// Documents in another order.
pub const SHUFFLE_DOCUMENTS: Setting = Setting::named("shuffle_documents");
/// Whether every line of a text is a document.
pub const SPLIT_LINES: Setting = Setting::named("split_lines");
/// How many threads make tokens.
pub const THREADS: Setting = Setting::named("threads");
/// The share of documents for validation.
pub const VAL: Setting = Setting::named("val");
