//! Tokens as text again, for people: the first thing anyone does is look.

use crate::says::TOKENIZER;
use crate::tokenizer::{self, Tokenizer};
use lowtide::Interrupt;
use lowtide::door::Words;
use lowtide::{Batch, Error, Result, Tokens};
use std::ops::Range;
use std::sync::Arc;

/// The tokenizer of this name, or else the one that made the tokens, by their manifest.
///
/// # Errors
/// [`Error::Argument`] where nothing says which it is.
pub fn tokenizer_of(tokens: &Tokens, name: Option<&str>) -> Result<Arc<dyn Tokenizer>> {
    match (name, tokens.prepared()) {
        // The table of `chars` lies beside the tokens; there is no other.
        (Some(name), Some(prepared)) if name == "chars" && prepared.manifest.tokenizer.name == name => {
            tokenizer::of_manifest(&prepared.folder, &prepared.manifest.tokenizer)
        }
        (Some(name), _) => tokenizer::named(name),
        (None, Some(prepared)) => tokenizer::of_manifest(&prepared.folder, &prepared.manifest.tokenizer),
        (None, None) => Err(Error::argument(
            "nothing says which tokenizer made these tokens",
            Words::from("say it, as in ") + TOKENIZER.is("gpt2"),
        )),
    }
}

/// The same tokens, knowing where documents end: where nothing else says so, the tokenizer does.
///
/// # Errors
/// [`Error::Argument`] for an end of text that the type of the tokens cannot hold.
pub fn with_documents(tokens: &Tokens, tokenizer: &dyn Tokenizer) -> Result<Tokens> {
    let indexed = tokens.files().iter().any(|file| file.index.is_some());
    match tokenizer.end_of_text() {
        Some(id) if tokens.end_of_text().is_none() && !indexed => tokens.with_end_of_text(id.into()),
        _ => Ok(tokens.clone()),
    }
}

/// A document, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The text, without the end-of-text word. Bytes that are no text are replaced.
    pub text: String,
    /// The tokens of the whole document, the end of text not counted.
    pub tokens: u64,
    /// How many of them are not in the text.
    pub left_out: u64,
}

/// The text of a document, of which at most `most` tokens are read.
///
/// # Errors
/// As [`Tokens::document`]; [`Error::Argument`] for an id that the tokenizer does not have.
pub fn document(
    tokens: &Tokens,
    number: u64,
    tokenizer: &dyn Tokenizer,
    most: u64,
    interrupt: Interrupt<'_>,
) -> Result<Shown> {
    let indexed = tokens.files().iter().any(|file| file.index.is_some());
    if !indexed && tokens.end_of_text().is_none() && tokenizer.end_of_text().is_none() {
        return Err(tokens.no_documents());
    }
    let range = tokens.document_range(number, interrupt, &|_| {})?;
    let end_of_text = tokens.end_of_text().or(tokenizer.end_of_text().map(u64::from));
    let range = without(tokens, range, end_of_text, interrupt)?;
    part(tokens, range, tokenizer, most, interrupt)
}

/// The text of a range of tokens likewise.
///
/// # Errors
/// As [`document`].
pub fn part(
    tokens: &Tokens,
    range: Range<u64>,
    tokenizer: &dyn Tokenizer,
    most: u64,
    interrupt: Interrupt<'_>,
) -> Result<Shown> {
    let all = range.end - range.start;
    let read = all.min(most);
    let ids = ids(&tokens.part(range.start..range.start + read, interrupt)?)?;
    Ok(Shown { text: text(tokenizer, &ids, read < all)?, tokens: all, left_out: all - read })
}

/// Ids as text. Where they were `cut`, the last character may lack bytes: it is left out.
///
/// # Errors
/// [`Error::Argument`] for an id that the tokenizer does not have.
pub fn text(tokenizer: &dyn Tokenizer, ids: &[u32], cut: bool) -> Result<String> {
    let mut bytes = tokenizer.decode(ids)?;
    if cut && let Some(last) = bytes.utf8_chunks().last() {
        // A character has at most three bytes before its last one.
        let lacking = last.invalid().len();
        let begun = lacking > 0
            && lacking < 4
            && std::str::from_utf8(last.invalid()).is_err_and(|e| e.error_len().is_none());
        if begun {
            bytes.truncate(bytes.len() - lacking);
        }
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()))
}

/// A document without the end-of-text token at its end, or at its beginning in the formats that have it there.
fn without(
    tokens: &Tokens,
    range: Range<u64>,
    end_of_text: Option<u64>,
    interrupt: Interrupt<'_>,
) -> Result<Range<u64>> {
    let Some(end_of_text) = end_of_text.filter(|_| !range.is_empty()) else { return Ok(range) };
    let before = tokens.files().first().is_some_and(|file| file.dialect.marks_beginnings());
    let at = if before { range.start } else { range.end - 1 };
    let there = ids(&tokens.part(at..at + 1, interrupt)?)?.first().map(|&id| u64::from(id));
    Ok(match there == Some(end_of_text) {
        true if before => range.start + 1..range.end,
        true => range.start..range.end - 1,
        false => range,
    })
}

/// Tokens of any width as ids.
fn ids(tokens: &Batch) -> Result<Vec<u32>> {
    let (width, big) = (tokens.dtype().itemsize(), tokens.dtype().numpy_str().starts_with('>'));
    let id = |bytes: &[u8]| {
        let mut whole = [0; 8];
        for (at, &byte) in bytes.iter().enumerate() {
            whole[if big { width - 1 - at } else { at }] = byte;
        }
        u32::try_from(u64::from_le_bytes(whole))
            .map_err(|_| Error::argument("a token that is no id of any vocabulary", ""))
    };
    tokens.bytes().chunks_exact(width).map(id).collect()
}
