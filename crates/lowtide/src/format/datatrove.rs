//! datatrove's `NAME.ds`: bare tokens, and what the files beside it say about them.
//!
//! `NAME.ds.metadata` is a text whose first line ends in the width of a token; `NAME.ds.index` holds the
//! exclusive end of every document, in tokens, as u64 without a header. Either can be missing: a width
//! that only one file size agrees with is found without metadata.

use super::dialect::little;
use super::{CUT, Dtype, Kind, ReadAt};
use crate::door::{DTYPE, Words};
use crate::error::{Error, Result};
use std::ops::Range;
use std::path::Path;

/// The widths that datatrove writes, in bytes.
const WIDTHS: [(u64, Kind); 2] = [(2, Kind::UInt16), (4, Kind::UInt32)];

/// How much of the metadata is read: the name of a tokenizer, which may be a path, and a number.
pub const METADATA_LEN: usize = 8192;

/// Bytes of one entry of the index.
const ENTRY: u64 = 8;

/// The type of a token by the beginning of `NAME.ds.metadata`; `None` where an older version did not say.
pub fn metadata(path: &Path, text: &[u8]) -> Result<Option<Dtype>> {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let Some(bar) = line.iter().rposition(|&byte| byte == b'|') else { return Ok(None) };
    let word = &line[bar + 1..];
    let width = std::str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok());
    match WIDTHS.iter().find(|(known, _)| Some(*known) == width) {
        Some(&(_, kind)) => Ok(Some(little(kind))),
        None => Err(Error::Format {
            path: path.to_owned(),
            offset: bar as u64 + 1,
            expected: "2 or 4 bytes for a token, as in \"tokenizer|2\"".into(),
            found: format!("\"{}\"", word[..word.len().min(40)].escape_ascii()),
            hint: Words::from("move the damaged metadata away and say ") + DTYPE,
        }),
    }
}

/// The ends of documents, as far as the size of the file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// How many documents there are.
    pub documents: u64,
}

impl Index {
    /// The index is nothing but its entries.
    pub fn parse(path: &Path, index_len: u64) -> Result<Self> {
        if !index_len.is_multiple_of(ENTRY) {
            return Err(Error::Format {
                path: path.to_owned(),
                offset: index_len / ENTRY * ENTRY,
                expected: "whole entries of 8 bytes".into(),
                found: format!("{} bytes at the end", index_len % ENTRY),
                hint: CUT.into(),
            });
        }
        Ok(Self { documents: index_len / ENTRY })
    }

    /// How many tokens the documents have together: the last end.
    pub fn tokens(&self, read: ReadAt<'_>) -> Result<u64> {
        match self.documents.checked_sub(1) {
            Some(last) => entry(read, last),
            None => Ok(0),
        }
    }

    /// The type of a token by the size of the data file alone, if exactly one width agrees.
    pub fn guess(tokens: u64, data_len: u64) -> Option<Dtype> {
        let mut fits = WIDTHS.iter().filter(|(width, _)| tokens.checked_mul(*width) == Some(data_len));
        match (fits.next(), fits.next()) {
            (Some(&(_, kind)), None) => Some(little(kind)),
            _ => None,
        }
    }

    /// The tokens of document `i`, which must be one of [`documents`](Self::documents); the file has
    /// `tokens` of them.
    pub fn document(&self, path: &Path, read: ReadAt<'_>, i: u64, tokens: u64) -> Result<Range<u64>> {
        let start = if i == 0 { 0 } else { entry(read, i - 1)? };
        let end = entry(read, i)?;
        if start <= end && end <= tokens {
            return Ok(start..end);
        }
        let expected = if end > tokens {
            format!("an end among the {tokens} tokens")
        } else {
            format!("an end that is not before the last one, {start},")
        };
        Err(Error::Format {
            path: path.to_owned(),
            offset: i * ENTRY,
            expected: format!("{expected} for document {i}"),
            found: end.to_string(),
            hint: "the index is damaged, or not of this file".into(),
        })
    }
}

/// Entry `i` of the index.
fn entry(read: ReadAt<'_>, i: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    read(i * ENTRY, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
