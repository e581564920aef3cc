//! Where a text may be cut for a `tokenizer.json`, by what the file says it does.
//!
//! In: the JSON. Out: [`Cuts`]. A cut stands between a letter and the space (or line end) behind it, and is safe where
//! 1. normalizing one side does not depend on the other: so it is for all that work character by character, and for
//!    Unicode's normal forms, for nothing composes with a space or a line end;
//! 2. the first step of splitting that matters ends a piece at that letter, whatever comes before and after; the steps
//!    before it touch digits or Han only, and those behind it see the same pieces;
//! 3. no word of the added ones has a space in it, or takes those behind it;
//! 4. nothing is put before the text: what is, is put there only where the text does not begin with a space.
//!
//! What is not known to be so is [`Cuts::Never`]: documents are then encoded as a whole, and limited by the budget.

use super::classes::{Classes, LETTER};
use serde_json::Value;

/// Behind a letter, before which characters a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cuts {
    Never,
    Space,
    SpaceOrLine,
}

impl Cuts {
    /// What the file allows.
    pub(super) fn of(file: &Value) -> Self {
        let words = file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
        let plain = |word: &Value| {
            word["content"].as_str().is_some_and(|word| !word.contains(char::is_whitespace))
                && word["rstrip"] != Value::Bool(true)
        };
        if !normalizes_apart(&file["normalizer"]) || !words.iter().all(plain) {
            return Self::Never;
        }
        let steps = match &file["pre_tokenizer"] {
            steps if steps["type"] == "Sequence" => match &steps["pretokenizers"] {
                Value::Array(steps) => &steps[..],
                _ => return Self::Never,
            },
            only => std::slice::from_ref(only),
        };
        let Some(first) = steps.iter().position(|step| !is_aside(step)) else { return Self::Never };
        // Behind it, a text that begins is told from one that goes on only by Metaspace, and not where a space begins it.
        let metaspace = steps[first..].iter().any(|step| step["type"] == "Metaspace");
        match splits(&steps[first]) {
            Self::SpaceOrLine if metaspace => Self::Space,
            cuts => cuts,
        }
    }

    /// The last cut of a text: more than 0, less than its length.
    pub(super) fn last(self, classes: Classes, text: &str) -> Option<usize> {
        let allowed = |byte: u8| match self {
            Self::Never => false,
            Self::Space => byte == b' ',
            Self::SpaceOrLine => byte == b' ' || byte == b'\n',
        };
        let places = text.bytes().enumerate().rev().filter(|&(_, byte)| allowed(byte));
        let after_letter =
            |at: &usize| text[..*at].chars().next_back().is_some_and(|c| classes.of(c) & LETTER != 0);
        places.map(|(at, _)| at).find(after_letter)
    }
}

fn normalizes_apart(normalizer: &Value) -> bool {
    match normalizer["type"].as_str() {
        None => normalizer.is_null(),
        Some("NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "StripAccents" | "BertNormalizer") => true,
        Some("Sequence") => {
            normalizer["normalizers"].as_array().is_some_and(|steps| steps.iter().all(normalizes_apart))
        }
        Some(_) => false,
    }
}

/// Whether a step splits at digits or Han only, and so never at or over a letter and a space.
fn is_aside(step: &Value) -> bool {
    const ASIDE: [&str; 5] = [r"\p{N}", r"\p{N}{1,3}", r"\p{N}+", r"\d", r"[一-龥぀-ゟ゠-ヿ]+"];
    step["type"] == "Digits" || isolated(step).is_some_and(|pattern| ASIDE.contains(&pattern))
}

/// The regular expression of a step that makes every match a piece.
fn isolated(step: &Value) -> Option<&str> {
    let all =
        step["type"] == "Split" && step["behavior"] == "Isolated" && step["invert"] != Value::Bool(true);
    step["pattern"]["Regex"].as_str().filter(|_| all)
}

/// Where this step always ends a piece.
fn splits(step: &Value) -> Cuts {
    match step["type"].as_str() {
        Some("BertPreTokenizer" | "Whitespace" | "WhitespaceSplit") => Cuts::SpaceOrLine,
        Some("Metaspace") if step["split"] != Value::Bool(false) => Cuts::Space,
        Some("ByteLevel") if step["use_regex"] != Value::Bool(false) => {
            if step["add_prefix_space"] == Value::Bool(false) { Cuts::SpaceOrLine } else { Cuts::Space }
        }
        Some("Split") if isolated(step).is_some_and(ends_words) => Cuts::SpaceOrLine,
        _ => Cuts::Never,
    }
}

/// Whether a pattern has only alternatives that are known, and every letter is in one of those for words.
///
/// In none of them is a letter followed by whitespace, none looks back, and none that can end with a letter looks ahead.
fn ends_words(pattern: &str) -> bool {
    const WORDS: [&str; 5] = [
        r" ?\p{L}+",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"[^\r\n\p{L}\p{N}]?+\p{L}+",
        r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
        r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    ];
    // Both are needed to have all letters.
    const CASED: [&str; 2] = [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    ];
    const CONTRACTION: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)";
    const OTHERS: [&str; 24] = [
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        CONTRACTION,
        r"'(?i:[sdmt]|ll|ve|re)",
        r" ?\p{N}+",
        r"\p{N}+",
        r"\p{N}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
        r" ?[\p{P}\p{S}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s+",
        r"\s",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    ];
    let cased = |part: &str| {
        let bare = part.strip_suffix('?').and_then(|part| part.strip_suffix(CONTRACTION)).unwrap_or(part);
        CASED.iter().position(|word| *word == bare)
    };
    let parts = alternatives(pattern);
    let words = parts.iter().any(|part| WORDS.contains(part))
        || [0, 1].iter().all(|which| parts.iter().any(|part| cased(part) == Some(*which)));
    words && parts.iter().all(|part| WORDS.contains(part) || OTHERS.contains(part) || cased(part).is_some())
}

/// The alternatives of a pattern, those inside of groups and classes aside.
fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut class, mut escaped) = (Vec::new(), 0, 0_u32, false, false);
    for (at, byte) in pattern.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b']' => class = false,
            b'[' => class = true,
            _ if class => {}
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'|' if depth == 0 => {
                parts.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&pattern[start..]);
    parts
}
