//! Loads of text into loads of tokens, as a file has them.

use crate::feed::{Fate, Load};
use crate::packing::Gauge;
use crate::tokenizer::Tokenizer;
use lowtide::{Error, Result};

/// Where the id between documents stands.
#[derive(Clone, Copy, Debug)]
pub enum Between {
    /// Nowhere.
    Nothing,
    /// Before each document: llm.c's.
    Before(u32),
    /// After each.
    After(u32),
}

/// What ids become.
#[derive(Clone, Copy, Debug)]
pub struct Encoding<'a> {
    pub tokenizer: &'a dyn Tokenizer,
    pub between: Between,
    /// Bytes of a token.
    pub width: usize,
}

impl Encoding<'_> {
    /// Makes the tokens of a load, or only some of them where nobody wants them any more: whether it made all. `ids` is
    /// only for its memory.
    pub fn encode(&self, load: &mut Load, ids: &mut Vec<u32>, gauge: &Gauge) -> bool {
        let Load { text, pieces, tokens, .. } = load;
        let mut start = 0;
        for piece in pieces {
            if gauge.stopped() {
                return false;
            }
            let part = &text[start..piece.text_end];
            start = piece.text_end;
            piece.tokens_end = tokens.len();
            if !matches!(piece.fate, Fate::Written) {
                continue;
            }
            ids.clear();
            if let (true, Between::Before(id)) = (piece.first, self.between) {
                ids.push(id);
            }
            let encoded = self.tokenizer.encode(part, ids);
            if let (true, Between::After(id)) = (piece.last, self.between) {
                ids.push(id);
            }
            let before = tokens.len();
            if let Err(error) = encoded.and_then(|()| self.put(ids, tokens)) {
                tokens.truncate(before);
                piece.fate = Fate::Failed(error);
            }
            piece.tokens_end = tokens.len();
        }
        true
    }

    fn put(&self, ids: &[u32], tokens: &mut Vec<u8>) -> Result<()> {
        let vocabulary = self.tokenizer.vocabulary();
        if let Some(id) = ids.iter().find(|&&id| id >= vocabulary) {
            let what = format!("the tokenizer gave the id {id}, its vocabulary has only {vocabulary}");
            return Err(Error::argument(what, "this is a bug: please report it"));
        }
        match self.width {
            // Below the vocabulary, which 16 bits hold where they were chosen.
            2 => tokens.extend(ids.iter().flat_map(|&id| u16::try_from(id).unwrap_or(0).to_le_bytes())),
            _ => tokens.extend(ids.iter().flat_map(|&id| id.to_le_bytes())),
        }
        Ok(())
    }
}
