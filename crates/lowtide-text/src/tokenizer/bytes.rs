//! A byte is a token: 256 ids, and 256 itself for the end of text.

use super::{Memory, Tokenizer};
use lowtide::{Error, Result};

/// The id between documents.
const END_OF_TEXT: u32 = 256;

/// Bytes as tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bytes;

impl Tokenizer for Bytes {
    fn name(&self) -> &'static str {
        "bytes"
    }

    fn fingerprint(&self) -> String {
        blake3::hash(b"bytes 1: 0..=255, end of text 256").to_hex()[..32].to_owned()
    }

    fn vocabulary(&self) -> u32 {
        END_OF_TEXT + 1
    }

    fn end_of_text(&self) -> Option<u32> {
        Some(END_OF_TEXT)
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        ids.extend(text.bytes().map(u32::from));
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(ids.len());
        for &id in ids {
            match u8::try_from(id) {
                Ok(byte) => bytes.push(byte),
                Err(_) if id == END_OF_TEXT => bytes.extend_from_slice(b"<|endoftext|>"),
                Err(_) => {
                    return Err(Error::argument(format!("bytes has no token {id}"), "its ids are below 257"));
                }
            }
        }
        Ok(bytes)
    }

    fn cut(&self, text: &str) -> Option<usize> {
        super::last_character(text)
    }

    fn memory(&self) -> Memory {
        Memory { byte: 4, ..Memory::default() }
    }
}
