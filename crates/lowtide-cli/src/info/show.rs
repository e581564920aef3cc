//! The first documents as text: `lowtide info --show 3`.
//!
//! A document may be of any length and of any bytes: its beginning is read, and nothing that a terminal would obey is
//! printed.

use crate::draw::{DIM, safe, thousands};
use crate::home::word_at_home;
use lowtide::{Result, Tokens};
use lowtide_text::show::{self, Shown};
use serde_json::{Value, json};

/// Tokens of a document that are shown: about a page.
const MOST: u64 = 256;

/// A document, or the beginning of all where nothing says where documents end.
#[derive(Debug)]
pub(super) struct Document {
    number: Option<u64>,
    shown: Shown,
}

/// The first `count` documents, by the tokenizer of this name or the manifest's.
pub(super) fn first(tokens: &Tokens, count: u64, tokenizer: Option<&str>) -> Result<Vec<Document>> {
    let tokenizer = show::tokenizer_of(tokens, tokenizer.map(word_at_home).as_deref())?;
    let tokens = show::with_documents(tokens, &*tokenizer)?;
    let go_on = || Ok(());
    if tokens.end_of_text().is_none() && tokens.known_documents()?.is_none() {
        let shown = show::part(&tokens, 0..tokens.len(), &*tokenizer, MOST, &go_on)?;
        return Ok(vec![Document { number: None, shown }]);
    }
    let mut documents = Vec::new();
    for number in 0..count {
        match show::document(&tokens, number, &*tokenizer, MOST, &go_on) {
            Ok(shown) => documents.push(Document { number: Some(number), shown }),
            Err(lowtide::Error::Index { .. }) => break, // there are fewer
            Err(error) => return Err(error),
        }
    }
    Ok(documents)
}

pub(super) fn print(documents: &[Document]) {
    for Document { number, shown } in documents {
        let tokens = format!("{} token{}", thousands(shown.tokens), if shown.tokens == 1 { "" } else { "s" });
        let title = match number {
            Some(number) => format!("document {number}, {tokens}"),
            None => format!("the beginning of {tokens}; nothing says where documents end"),
        };
        say!("\n{DIM}{title}{DIM:#}");
        for line in safe(&shown.text).lines() {
            say!("  {line}");
        }
        if shown.left_out > 0 {
            say!("{DIM}… and {} more tokens{DIM:#}", thousands(shown.left_out));
        }
    }
}

pub(super) fn json(documents: &[Document]) -> Value {
    let one = |Document { number, shown }: &Document| json!({ "document": number, "tokens": shown.tokens, "text": shown.text, "left_out": shown.left_out });
    documents.iter().map(one).collect()
}
