//! A character is a token, as in nanoGPT's `shakespeare_char`: ids are the places in the sorted set of characters.
//!
//! The table is learned from the text first (`CharsBuilder`) and kept as JSON: `{"chars": ["\n", " ", "!"]}`. A text
//! with a character that the table lacks is an error. There is no id between documents.

use super::{Memory, Tokenizer};
use lowtide::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A table larger than all of Unicode, escaped, is none.
const LARGEST_FILE: u64 = 32 << 20;

/// Characters as tokens.
#[derive(Debug)]
pub struct Chars {
    /// Sorted, without repetition.
    sorted: Vec<char>,
    /// Ids of characters below this many, by character; `u32::MAX` for none.
    common: Vec<u32>,
    fingerprint: String,
    json: String,
}

/// Characters up to here have a table; most text has no others.
const COMMON: u32 = 0x3000;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    chars: Vec<char>,
}

impl Chars {
    /// The tokenizer of these characters, in any order.
    pub fn from_chars(chars: impl IntoIterator<Item = char>) -> Self {
        let mut sorted: Vec<char> = chars.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut common = vec![u32::MAX; COMMON as usize];
        for (&c, id) in sorted.iter().zip(0..) {
            if let Some(slot) = common.get_mut(c as usize) {
                *slot = id;
            }
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"chars 1;");
        for &c in &sorted {
            hasher.update(&u32::from(c).to_le_bytes());
        }
        let saved = Saved { chars: sorted };
        // Characters as JSON cannot fail.
        let json = serde_json::to_string(&saved).unwrap_or_default();
        let fingerprint = hasher.finalize().to_hex()[..32].to_owned();
        Self { sorted: saved.chars, common, fingerprint, json }
    }

    /// The table as JSON.
    pub fn to_json(&self) -> &str {
        &self.json
    }

    /// Reads a table that `to_json` made.
    pub fn open(path: &Path) -> Result<Self> {
        let text = super::read_limited(path, LARGEST_FILE, "a table of characters")?;
        Self::from_json(path, &text)
    }

    /// A table of which the JSON is at hand; `path` is for what goes wrong.
    pub fn from_json(path: &Path, json: &[u8]) -> Result<Self> {
        let wrong = |found: String| Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: "a table of characters, {\"chars\": [...]}, sorted by code point".to_owned(),
            found,
            hint: "".into(),
        };
        let saved: Saved = serde_json::from_slice(json).map_err(|error| wrong(error.to_string()))?;
        // Another order would be other ids: nothing is sorted here in silence.
        if let Some((a, b)) = saved.chars.iter().zip(saved.chars.iter().skip(1)).find(|(a, b)| a >= b) {
            return Err(wrong(format!("{a:?} before {b:?}")));
        }
        Ok(Self::from_chars(saved.chars))
    }

    /// The characters, in the order of their ids.
    pub fn chars(&self) -> &[char] {
        &self.sorted
    }

    fn id(&self, c: char) -> Option<u32> {
        match self.common.get(c as usize) {
            Some(&u32::MAX) => None,
            Some(&id) => Some(id),
            None => self.sorted.binary_search(&c).ok().and_then(|id| u32::try_from(id).ok()),
        }
    }
}

impl Tokenizer for Chars {
    fn name(&self) -> &'static str {
        "chars"
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn vocabulary(&self) -> u32 {
        u32::try_from(self.sorted.len()).unwrap_or(u32::MAX)
    }

    fn end_of_text(&self) -> Option<u32> {
        None
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let before = ids.len();
        for (at, c) in text.char_indices() {
            let Some(id) = self.id(c) else {
                ids.truncate(before);
                return Err(Error::argument(
                    format!("the character {c:?} (U+{:04X}) at byte {at} is not in the table", u32::from(c)),
                    "make the table from all of the text that it is for",
                ));
            };
            ids.push(id);
        }
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut text = String::with_capacity(ids.len());
        for &id in ids {
            let Some(&c) = self.sorted.get(id as usize) else {
                return Err(Error::argument(
                    format!("the table of characters has no token {id}"),
                    format!("its ids are below {}", self.sorted.len()),
                ));
            };
            text.push(c);
        }
        Ok(text.into_bytes())
    }

    fn cut(&self, text: &str) -> Option<usize> {
        super::last_character(text)
    }

    fn table(&self) -> Option<(&'static str, &str)> {
        Some(("chars.json", &self.json))
    }

    fn memory(&self) -> Memory {
        let held = (self.sorted.capacity() * 4 + self.common.capacity() * 4 + self.json.capacity()) as u64;
        Memory { held, thread: 0, byte: 4 }
    }
}

/// Collects the characters of a text that comes in pieces: 136 KiB, however much that is.
#[derive(Clone, Debug)]
pub struct CharsBuilder {
    /// A bit a code point.
    seen: Vec<u64>,
}

impl Default for CharsBuilder {
    fn default() -> Self {
        Self { seen: vec![0; 0x11_0000 / 64] }
    }
}

impl CharsBuilder {
    /// Bytes that one holds.
    pub const MEMORY: u64 = 0x11_0000 / 8;

    /// Adds the characters of a piece of text.
    pub fn add(&mut self, text: &str) {
        for c in text.chars() {
            self.seen[c as usize / 64] |= 1 << (c as usize % 64);
        }
    }

    /// Adds what another has seen, such as that of another thread.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.seen.iter_mut().zip(&other.seen) {
            *mine |= theirs;
        }
    }

    /// The tokenizer of all characters that were added.
    pub fn build(&self) -> Chars {
        Chars::from_chars(
            ('\0'..=char::MAX).filter(|&c| self.seen[c as usize / 64] >> (c as usize % 64) & 1 == 1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_nanogpts() {
        // chars = sorted(list(set(data))); stoi = {ch: i for i, ch in enumerate(chars)}
        let mut builder = CharsBuilder::default();
        builder.add("hello ");
        let mut other = CharsBuilder::default();
        other.add("wörld\n𝄞");
        builder.merge(&other);
        let chars = builder.build();
        assert_eq!(chars.chars(), ['\n', ' ', 'd', 'e', 'h', 'l', 'o', 'r', 'w', 'ö', '𝄞']);
        let mut ids = vec![9];
        chars.encode("hö𝄞\n", &mut ids).unwrap();
        assert_eq!(ids, [9, 4, 9, 10, 0]);
        assert_eq!(chars.decode(&ids[1..]).unwrap(), "hö𝄞\n".as_bytes());
    }

    #[test]
    fn a_character_that_is_not_there_is_named() {
        let chars = Chars::from_chars("abc".chars());
        let mut ids = vec![1];
        let message = chars.encode("ab\u{301}", &mut ids).unwrap_err().to_string();
        assert!(
            message.starts_with("the character '\\u{301}' (U+0301) at byte 2 is not in the table"),
            "{message}"
        );
        assert_eq!(ids, [1]);
        assert!(chars.decode(&[3]).unwrap_err().to_string().contains("no token 3"));
    }

    #[test]
    fn a_table_comes_back_from_its_json_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chars.json");
        let chars = Chars::from_chars("\"\\\u{0}\u{2028}é𝄞 z".chars());
        std::fs::write(&path, chars.to_json()).unwrap();
        let again = Chars::open(&path).unwrap();
        assert_eq!(again.chars(), chars.chars());
        assert_eq!(again.fingerprint(), chars.fingerprint());
        for (json, found) in [
            (r#"{"chars": ["b", "a"]}"#, "'b' before 'a'"),
            (r#"{"chars": ["a", "a"]}"#, "'a' before 'a'"),
            (r#"{"chars": ["ab"]}"#, "ab"),
            (r#"{"chars": [], "more": 1}"#, "more"),
            ("[]", "0"),
            ("", "EOF"),
        ] {
            std::fs::write(&path, json).unwrap();
            let message = Chars::open(&path).unwrap_err().to_string();
            assert!(message.contains("chars.json") && message.contains(found), "{message}");
        }
    }
}
