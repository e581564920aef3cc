//! A `tokenizer.json` of Hugging Face, read by their own crate.
//!
//! Ids are those of `tokenizer.encode(text, add_special_tokens=False)` in Python with `encode_special_tokens` set:
//! special words are ordinary text, and truncation and padding, which a file may ask for, are off. Where a document may
//! be cut is said by `huggingface_cut`, for the ways of splitting that are known; with others a document is encoded as a
//! whole. Encoding takes a hundred times its size in memory for that time.
//!
//! The file is the user's, so it is hostile until it is read: its size is checked before, its regular expressions
//! before they are compiled, and a panic inside that crate is an error here.

use super::classes::Classes;
use super::huggingface_cut::Cuts;
use super::{Memory, Tokenizer};
use lowtide::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer as Inner;

/// Far above the files that are published.
const LARGEST_FILE: u64 = 128 << 20;
/// The longest regular expression, and the deepest: far above those that are published. A parser
/// that calls itself for every parenthesis would use up the stack, which ends the process.
const LONGEST_PATTERN: usize = 16 << 10;
const DEEPEST_PATTERN: usize = 64;

/// What ends a text, where nothing else says so.
const ENDS: [&str; 6] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>", "[EOS]"];

/// A tokenizer of Hugging Face.
#[derive(Debug)]
pub struct HuggingFace {
    path: PathBuf,
    name: String,
    inner: Inner,
    fingerprint: String,
    vocabulary: u32,
    end_of_text: Option<u32>,
    json: String,
    cuts: Cuts,
    classes: Classes,
}

/// The parts of the file that hold regular expressions, and those that say where a text may be cut.
#[derive(Deserialize, Serialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    added_tokens: Value,
    #[serde(default)]
    model: Model,
}

/// Of the model only what would make its ids differ from time to time.
#[derive(Default, Deserialize, Serialize)]
struct Model {
    #[serde(default)]
    dropout: Value,
}

/// The one thing of `tokenizer_config.json` that matters here.
#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    eos_token: Value,
}

impl HuggingFace {
    /// Opens a `tokenizer.json`. Where `tokenizer_config.json` beside it names an `eos_token`, that is the end of text.
    pub fn open(path: &Path) -> Result<Self> {
        let config = path.with_file_name("tokenizer_config.json");
        let config = if config.is_file() {
            let bytes = super::read_limited(&config, LARGEST_FILE, "a tokenizer_config.json")?;
            serde_json::from_slice(&bytes).unwrap_or_default()
        } else {
            Config::default()
        };
        let said = config.eos_token.as_str().or_else(|| config.eos_token.get("content")?.as_str());
        Self::read(path, |inner| match said {
            Some(word) => inner.token_to_id(word),
            None => ENDS.iter().find_map(|word| inner.token_to_id(word)),
        })
    }

    /// Opens a copy of which it is known what the end of text is.
    pub fn open_again(path: &Path, end_of_text: Option<u64>) -> Result<Self> {
        Self::read(path, |_| end_of_text.and_then(|id| u32::try_from(id).ok()))
    }

    fn read(path: &Path, end_of_text: impl FnOnce(&Inner) -> Option<u32>) -> Result<Self> {
        let bytes = super::read_limited(path, LARGEST_FILE, "a tokenizer.json")?;
        let wrong = |found: String| Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: "a tokenizer.json of Hugging Face".to_owned(),
            found,
            hint: "".into(),
        };
        let parts: Parts = serde_json::from_slice(&bytes).map_err(|error| wrong(format!("this: {error}")))?;
        for part in [&parts.normalizer, &parts.pre_tokenizer, &parts.decoder] {
            check_patterns(part).map_err(wrong)?;
        }
        if parts.model.dropout.as_f64().is_some_and(|share| share > 0.0) {
            return Err(wrong(format!("a dropout of {}: other ids every time", parts.model.dropout)));
        }
        let cuts = serde_json::to_value(&parts).map_or(Cuts::Never, |parts| Cuts::of(&parts));
        let mut inner = unharmed(|| Inner::from_bytes(&bytes)).map_err(|found| {
            wrong(found.unwrap_or_else(|| "something that its reader cannot take".to_owned()))
        })?;
        unharmed(|| inner.with_truncation(None).map(|_| ()))
            .map_err(|_| wrong("a truncation that cannot be undone".to_owned()))?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(true);
        let last = inner.get_vocab(true).into_values().max();
        let vocabulary = match last.map(|last| last.checked_add(1)) {
            Some(Some(vocabulary)) => vocabulary,
            Some(None) => return Err(wrong(format!("a token of id {}", u32::MAX))),
            None => return Err(wrong("no tokens".to_owned())),
        };
        let end_of_text = end_of_text(&inner);
        let mut hasher = blake3::Hasher::new();
        hasher.update(format!("huggingface 1 {end_of_text:?};").as_bytes()).update(&bytes);
        Ok(Self {
            name: path.display().to_string(),
            path: path.to_owned(),
            inner,
            fingerprint: hasher.finalize().to_hex()[..32].to_owned(),
            vocabulary,
            end_of_text,
            json: String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?,
            cuts,
            classes: Classes::new(),
        })
    }

    fn failed(&self, what: &str, said: Option<String>) -> Error {
        let said = said.unwrap_or_else(|| "its crate gave up".to_owned());
        Error::argument(format!("{}: cannot {what}: {said}", self.path.display()), "")
    }
}

impl Tokenizer for HuggingFace {
    fn name(&self) -> &str {
        &self.name
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let encoding = unharmed(|| self.inner.encode_fast(text, false))
            .map_err(|said| self.failed("encode this text", said))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        if let Some(id) = ids.iter().find(|&&id| self.inner.id_to_token(id).is_none()) {
            return Err(Error::argument(
                format!("{} has no token {id}", self.name),
                format!("its ids are below {}", self.vocabulary),
            ));
        }
        let text = unharmed(|| self.inner.decode(ids, false))
            .map_err(|said| self.failed("decode these ids", said))?;
        Ok(text.into_bytes())
    }

    fn cut(&self, text: &str) -> Option<usize> {
        self.cuts.last(self.classes, text)
    }

    fn memory(&self) -> Memory {
        let words = IN_OPENING * self.inner.get_vocab_size(true) as u64;
        let held = words + self.json.len() as u64 + CACHE;
        Memory { held, thread: 0, byte: IN_ENCODING }
    }

    fn table(&self) -> Option<(&'static str, &str)> {
        Some(("lowtide.tokenizer.json", &self.json))
    }
}

/// What opening a file takes for each word of its vocabulary, at its peak: 98 MiB were measured for 100,000 words.
const IN_OPENING: u64 = 1100;
/// Its cache of words: 10,000 of at most 256 bytes each, and their tokens.
const CACHE: u64 = 8 << 20;
/// What encoding holds for each byte of text that is not cut: 57 to 178 were measured, by the kind of text.
const IN_ENCODING: u64 = 200;

/// Runs code of others: a panic there is an error without words.
fn unharmed<T, E: ToString>(work: impl FnOnce() -> Result<T, E>) -> Result<T, Option<String>> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| Some(error.to_string())),
        Err(_) => Err(None),
    }
}

/// Looks at every regular expression. Recursion ends at the depth that the reader of JSON allows.
fn check_patterns(part: &Value) -> Result<(), String> {
    match part {
        Value::Array(parts) => parts.iter().try_for_each(check_patterns),
        Value::Object(parts) => parts.iter().try_for_each(|(key, value)| match value {
            Value::String(pattern) if key == "Regex" => check_pattern(pattern),
            _ => check_patterns(value),
        }),
        _ => Ok(()),
    }
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > LONGEST_PATTERN {
        return Err(format!(
            "a regular expression of {} bytes, the most is {LONGEST_PATTERN}",
            pattern.len()
        ));
    }
    // Escaped ones are counted as well, and closing ones in a class: the limit is far from any real pattern.
    let mut depth = 0usize;
    for byte in pattern.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST_PATTERN {
            return Err(format!("a regular expression nested deeper than {DEEPEST_PATTERN}"));
        }
    }
    Ok(())
}
