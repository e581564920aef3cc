//! Tokens as text again.

use crate::tokenizer::{self, Tokenizer};
use lowtide::plan::Interrupt;
use lowtide::{Batch, Error, Result, Tokens};
use std::sync::Arc;

/// The tokenizer of this name, or else the one that made the tokens, by their manifest.
///
/// # Errors
/// [`Error::Argument`] where nothing says which it is.
pub fn tokenizer_of(tokens: &Tokens, name: Option<&str>) -> Result<Arc<dyn Tokenizer>> {
    match (name, tokens.prepared()) {
        (Some(name), _) => tokenizer::named(name),
        (None, Some(prepared)) => tokenizer::of_manifest(&prepared.folder, &prepared.manifest.tokenizer),
        (None, None) => Err(Error::argument(
            "nothing says which tokenizer made these tokens",
            "name it, as in tokenizer=\"gpt2\"",
        )),
    }
}

/// The text of a document, its end-of-text word included. Bytes that are no text are replaced.
///
/// # Errors
/// As [`Tokens::document`]; [`Error::Argument`] for an id that the tokenizer does not have.
pub fn text(
    tokens: &Tokens,
    document: u64,
    tokenizer: &dyn Tokenizer,
    interrupt: Interrupt<'_>,
) -> Result<String> {
    let ids = ids(&tokens.document(document, interrupt)?)?;
    Ok(String::from_utf8_lossy(&tokenizer.decode(&ids)?).into_owned())
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
