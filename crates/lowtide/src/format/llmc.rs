//! The header of llm.c and modded-nanogpt: which tokens, and how many.
//!
//! In: the first bytes of a file and its size. Out: the element type and the number of tokens, which
//! take exactly the rest of the file, or an error that says what does not agree.
//!
//! ```text
//! magic  version  tokens  0 …    tokens
//! 0      4        8       12     1024      (three int32, little-endian)
//! ```

use super::dialect::little;
use super::{CUT, Dtype, Kind};
use crate::error::{Error, Result};
use std::path::Path;

/// Where the tokens begin.
pub const HEADER_LEN: u64 = 1024;

/// How much of the header says something.
pub const HEAD_LEN: usize = 12;

/// Magic, version, and what follows: GPT-2's tokens and Llama 3's.
const VARIANTS: [(i32, i32, Kind); 2] = [(20_240_520, 1, Kind::UInt16), (20_240_801, 7, Kind::UInt32)];

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type of a token.
    pub dtype: Dtype,
    /// How many there are.
    pub tokens: u64,
}

/// Whether a file that begins with `head` begins as llm.c's do. Raw tokens may do that too: GPT-2's do
/// not, since half of the magic is beyond its vocabulary, but larger vocabularies can.
pub fn is_llmc(head: &[u8]) -> bool {
    word(head, 0).is_some_and(|magic| VARIANTS.iter().any(|variant| variant.0 == magic))
}

/// Reads the header. `head` is the beginning of the file, at least [`HEAD_LEN`] bytes of it.
pub fn parse(path: &Path, head: &[u8], file_len: u64) -> Result<Header> {
    let wrong = |offset, expected: String, found: String, hint: &'static str| {
        Err(Error::Format { path: path.to_owned(), offset, expected, found, hint: hint.into() })
    };
    let begins = "llm.c's header, which begins with 20240520 or 20240801";
    let variant = word(head, 0).map(|magic| (magic, VARIANTS.iter().find(|variant| variant.0 == magic)));
    let (version, kind) = match variant {
        Some((_, Some(&(_, version, kind)))) => (version, kind),
        Some((magic, None)) => return wrong(0, begins.into(), magic.to_string(), ""),
        None => return wrong(0, begins.into(), format!("a file of {file_len} bytes"), CUT),
    };
    if file_len < HEADER_LEN {
        let expected = format!("a header of {HEADER_LEN} bytes");
        return wrong(0, expected, format!("a file of {file_len} bytes"), CUT);
    }
    let (Some(said), Some(count)) = (word(head, 4), word(head, 8)) else {
        let (end, found) = (HEAD_LEN as u64, head.len() as u64);
        return Err(Error::Truncated { path: path.to_owned(), offset: 0, end, found });
    };
    if said != version {
        return wrong(4, format!("version {version} after this magic"), format!("version {said}"), "");
    }
    let dtype = little(kind);
    let Ok(tokens) = u64::try_from(count) else {
        return wrong(8, "a number of tokens".into(), count.to_string(), "");
    };
    let (width, rest) = (dtype.itemsize() as u64, file_len - HEADER_LEN);
    // Both factors are far below 32 bits.
    if tokens * width != rest {
        return wrong(
            8,
            format!("{} bytes after the header for {tokens} tokens of {dtype}", tokens * width),
            format!("{rest} bytes"),
            if rest < tokens * width { CUT } else { "" },
        );
    }
    Ok(Header { dtype, tokens })
}

/// The int32 at `at`.
fn word(head: &[u8], at: usize) -> Option<i32> {
    head.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// The header of a file of `tokens` tokens, uint16 or uint32: what [`parse`] reads.
///
/// # Errors
/// [`Error::Argument`] for another type, and for more tokens than the header can say.
pub fn header(dtype: Dtype, tokens: u64) -> Result<Vec<u8>> {
    let variant = VARIANTS.iter().find(|variant| little(variant.2) == dtype);
    let Some(&(magic, version, _)) = variant else {
        return Err(Error::argument(
            format!("llm.c has no files of {dtype}"),
            "its tokens are uint16 or uint32",
        ));
    };
    let count = i32::try_from(tokens).map_err(|_| {
        Error::argument(format!("{tokens} tokens are more than llm.c's header can say"), "use smaller shards")
    })?;
    let mut header: Vec<u8> = [magic, version, count].map(i32::to_le_bytes).concat();
    header.resize(1024, 0);
    Ok(header)
}
