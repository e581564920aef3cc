//! The first documents as text: `lowtide info --show 3`.
//!
//! A document may be of any length and of any bytes: its beginning is read, and nothing that a terminal would obey is
//! printed.

use crate::draw::{DIM, thousands};
use lowtide::{Result, Tokens};
use lowtide_text::show::{self, Shown};
use serde_json::{Value, json};
use std::fmt::Write as _;

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
    let tokenizer = show::tokenizer_of(tokens, tokenizer)?;
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
        anstream::println!("\n{DIM}{title}{DIM:#}");
        for line in safe(&shown.text).lines() {
            anstream::println!("  {line}");
        }
        if shown.left_out > 0 {
            anstream::println!("{DIM}… and {} more tokens{DIM:#}", thousands(shown.left_out));
        }
    }
}

pub(super) fn json(documents: &[Document]) -> Value {
    let one = |Document { number, shown }: &Document| json!({ "document": number, "tokens": shown.tokens, "text": shown.text, "left_out": shown.left_out });
    documents.iter().map(one).collect()
}

/// Text that a terminal only shows: what moves the cursor, colours, or turns the direction of writing is spelled out.
fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => out.push_str("\\r"),
            _ if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            _ if turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(super::safe("a\n\tb é 𝄞 👩\u{200d}🚀"), "a\n\tb é 𝄞 👩\u{200d}🚀");
        assert_eq!(super::safe("\x1b]0;owned\x07\r\u{9b}2J\0"), "\\x1b]0;owned\\x07\\r\\x9b2J\\x00");
        assert_eq!(super::safe("x\u{202e}y\u{2028}\u{feff}"), "x\\u{202e}y\\u{2028}\\u{feff}");
        assert_eq!(super::safe("\x7f"), "\\x7f");
    }
}
