//! Tokenizers: text to ids and back. One trait, one conformance suite.
//!
//! `named` knows those inside the package. `Chars` has a table that is made from the text, and a Hugging Face
//! `tokenizer.json` is a file of the user's.

mod bytes;
mod chars;
mod classes;
pub mod conformance;
mod cut;
#[cfg(feature = "huggingface")]
mod huggingface;
#[cfg(feature = "huggingface")]
mod huggingface_cut;
mod memo;
mod merge;
mod ranks;
mod split;
mod tiktoken;

pub use bytes::Bytes;
pub use chars::{Chars, CharsBuilder};
#[cfg(feature = "huggingface")]
pub use huggingface::HuggingFace;
pub use tiktoken::Encoding;

use crate::says::TOKENIZER;
use lowtide::door::Words;
use lowtide::format::manifest::TokenizerId;
use lowtide::{Error, Result};
use std::fmt::Debug;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Turns text into ids and back.
pub trait Tokenizer: Debug + Send + Sync {
    /// What a manifest calls it: `gpt2`, `bytes`, or the name of a `tokenizer.json`.
    fn name(&self) -> &str;

    /// Stands for every id that it can give: two tokenizers of one fingerprint give the same ids.
    fn fingerprint(&self) -> String;

    /// Every id, the end of text included, is below this.
    fn vocabulary(&self) -> u32;

    /// The id between documents, if it has one.
    fn end_of_text(&self) -> Option<u32>;

    /// Appends the ids of `text`. Words such as `<|endoftext|>` are ordinary text here. After an error, `ids` are as
    /// before.
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()>;

    /// The bytes that ids stand for; the end of text stands for its own word. Ids need not end at a character.
    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>>;

    /// The last place at which `text` may be cut without changing any id, whatever follows: the ids of both parts,
    /// one after the other, are those of the whole. Neither 0 nor the end; `None` where there is no such place.
    fn cut(&self, text: &str) -> Option<usize>;

    /// What it has to be made from again, where its name does not suffice: the name of a file, and the JSON in it.
    fn table(&self) -> Option<(&'static str, &str)> {
        None
    }

    /// What it takes, for the budget.
    fn memory(&self) -> Memory;
}

/// Bytes that a tokenizer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// It holds these all the time.
    pub held: u64,
    /// Each thread that encodes holds these besides.
    pub thread: u64,
    /// Encoding takes these for each byte of a text that has no cut in it, at worst; the ids are among them.
    pub byte: u64,
}

/// The names that `named` knows, besides paths.
pub fn names() -> impl Iterator<Item = &'static str> {
    tiktoken::names().chain(["bytes"])
}

/// The tokenizer of a name, or of a Hugging Face `tokenizer.json`, or of a folder with one in it.
pub fn named(name: &str) -> Result<Arc<dyn Tokenizer>> {
    if name == "bytes" {
        return Ok(Arc::new(Bytes));
    }
    if let Some(encoding) = Encoding::named(name) {
        return Ok(encoding);
    }
    if name == "chars" {
        return Err(Error::argument(
            "the table of chars lies beside the tokens that it made, and there is none here",
            "name the folder that lowtide prepare has made",
        ));
    }
    let path = Path::new(name);
    if !name.is_empty() && path.join("tokenizer.json").is_file() {
        return from_file(&path.join("tokenizer.json"));
    }
    if path.is_file() || path.extension().is_some_and(|extension| extension == "json") {
        return from_file(path);
    }
    Err(Error::argument(
        format!("there is no tokenizer {name:?}"),
        format!(
            "one of {}, chars, or the path of a Hugging Face tokenizer.json",
            names().collect::<Vec<_>>().join(", ")
        ),
    ))
}

/// The tokenizer of a manifest, which still gives the ids that it gave.
///
/// # Errors
/// As [`named`]; [`Error::Argument`] where another tokenizer has the name now.
pub fn of_manifest(folder: &Path, id: &TokenizerId) -> Result<Arc<dyn Tokenizer>> {
    let found: Arc<dyn Tokenizer> = match &id.file {
        Some(table) if id.name == "chars" => Arc::new(Chars::open(&folder.join(table))?),
        Some(table) => from_manifest(&folder.join(table), id)?,
        None => named(&id.name)?,
    };
    if found.fingerprint() == id.fingerprint {
        return Ok(found);
    }
    Err(Error::argument(
        format!("the tokenizer {:?} is not the one that made these tokens: it gives other ids", id.name),
        Words::from("say ") + TOKENIZER + ", the tokenizer.json that they were made with",
    ))
}

#[cfg(feature = "huggingface")]
fn from_file(path: &Path) -> Result<Arc<dyn Tokenizer>> {
    Ok(Arc::new(HuggingFace::open(path)?))
}

/// The copy of a `tokenizer.json` beside its tokens. What stood beside the original is not there any more.
#[cfg(feature = "huggingface")]
fn from_manifest(path: &Path, id: &TokenizerId) -> Result<Arc<dyn Tokenizer>> {
    Ok(Arc::new(HuggingFace::open_again(path, id.end_of_text)?))
}

#[cfg(not(feature = "huggingface"))]
fn from_manifest(path: &Path, _: &TokenizerId) -> Result<Arc<dyn Tokenizer>> {
    from_file(path)
}

#[cfg(not(feature = "huggingface"))]
fn from_file(path: &Path) -> Result<Arc<dyn Tokenizer>> {
    Err(Error::unsupported(
        format!("{}: this build cannot read a Hugging Face tokenizer.json", path.display()),
        "build lowtide-text with the feature `huggingface`, or use the Python package, which has it",
    ))
}

/// A whole file, of which the size is checked before any of it is read.
fn read_limited(path: &Path, most: u64, what: &str) -> Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| Error::io(path, "open the file", error))?;
    let size = file.metadata().map_err(|error| Error::io(path, "see its size", error))?.len();
    let mut bytes = Vec::new();
    if size <= most {
        // A pipe has no size, and a file may grow: what is read is limited as well.
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io(path, "read the file", error))?;
    }
    if size.max(bytes.len() as u64) > most {
        return Err(Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: format!("{what} of at most {} MiB", most >> 20),
            found: format!("{} MiB", size.max(bytes.len() as u64) >> 20),
            hint: "".into(),
        });
    }
    Ok(bytes)
}

/// The place before the last character, where any character is a token, or several.
fn last_character(text: &str) -> Option<usize> {
    text.char_indices().next_back().map(|(at, _)| at).filter(|&at| at > 0)
}
