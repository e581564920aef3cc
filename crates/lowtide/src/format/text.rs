//! Whether bytes are text, and in which encoding: by all of a sample, or nearly all of a longer one. Pure.
//!
//! In: bytes from somewhere in a file, which may begin and end in the middle of a character. Out: what can be said of
//! them. A stream of bare tokens can look like a few letters: so a sample is long, and of more than a few different bytes.

/// Less than this is no sample of a text: a few tokens can look like one.
pub(super) const LEAST_TEXT: usize = 64;

/// What stands between words.
pub(super) const APART: [char; 7] = [' ', '\n', '\t', ',', '，', '。', '、'];

/// A sample as UTF-8, without what is cut off at both ends.
pub(super) fn utf8(sample: &[u8]) -> Option<&str> {
    let sample = sample.get(sample.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count()..)?;
    match std::str::from_utf8(sample) {
        Ok(text) => Some(text),
        // Cut in the middle of the last character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&sample[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// What a text has besides letters.
fn is_printed(c: char) -> bool {
    !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c')
}

/// A sample as text, if that is what it is: UTF-8 without control characters.
pub(super) fn printed(sample: &[u8]) -> Option<&str> {
    utf8(sample).filter(|text| text.chars().all(is_printed))
}

/// Whether there are more than a few different bytes. A token that is repeated can look like two letters.
pub(super) fn is_varied(sample: &[u8]) -> bool {
    const DIFFERENT: usize = 8;
    let mut seen = [false; 256];
    for &byte in sample {
        seen[usize::from(byte)] = true;
    }
    seen.into_iter().filter(|&seen| seen).count() >= DIFFERENT
}

/// An object of JSON with a name in it, whole or cut. Names, colons and quotes in their places are no coincidence, so
/// it may be the same few bytes again and again.
pub(super) fn begins_with_object(text: &str) -> bool {
    let inside = text[1..].trim_start();
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let first = values.next();
    inside.starts_with('"')
        && inside.contains("\":")
        && first.is_some_and(|value| value.map_or_else(|error| error.is_eof(), |_| true))
}

/// Text by most of its bytes: printed letters of UTF-8, or ASCII, where nothing is zero and the rest is little; it may be
/// more where all of it is Latin-1's letters. Of tokens of two bytes every other is below 0x20, as far as they are of
/// words that are used. Less is sure here than of text that is all text, so the sample has to be longer.
pub(super) fn is_nearly_printed(sample: &[u8]) -> bool {
    let ascii = |byte: u8| byte.is_ascii() && is_printed(byte.into());
    let (printed, least) = match utf8(sample) {
        Some(text) => (text.chars().filter(|&c| is_printed(c)).map(char::len_utf8).sum(), 95),
        None if sample.iter().all(|&byte| ascii(byte) || byte >= 0xa0) => (letters(sample, ascii), 80),
        None => (letters(sample, ascii), 95),
    };
    sample.len() >= 2 * LEAST_TEXT
        && printed * 100 >= sample.len() * least
        && !sample.contains(&0)
        && sample.iter().any(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b','))
}

fn letters(sample: &[u8], is_one: impl Fn(u8) -> bool) -> usize {
    sample.iter().filter(|&&byte| is_one(byte)).count()
}

/// The order of the bytes in a UTF-16 text that begins with its mark.
pub(super) fn utf16_order(sample: &[u8]) -> Option<fn([u8; 2]) -> u16> {
    match sample {
        [0xff, 0xfe, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => Some(u16::from_be_bytes),
        _ => None,
    }
}

/// Whether a sample is text in UTF-16: no half of a pair alone, no control characters, and nearly all letters, digits,
/// spaces and ASCII. Half of a pair may be cut off at both ends.
pub(super) fn is_utf16(order: fn([u8; 2]) -> u16, sample: &[u8]) -> bool {
    let units: Vec<u16> = sample.as_chunks::<2>().0.iter().map(|&unit| order(unit)).collect();
    let mut units = &units[..];
    if let [0xdc00..=0xdfff, rest @ ..] = units {
        units = rest;
    }
    if let [rest @ .., 0xd800..=0xdbff] = units {
        units = rest;
    }
    let (mut all, mut usual) = (0_usize, 0_usize);
    for character in char::decode_utf16(units.iter().copied()) {
        let Ok(c) = character else { return false };
        if !is_printed(c) {
            return false;
        }
        all += 1;
        usual += usize::from(
            c.is_ascii() || c.is_alphanumeric() || c.is_whitespace() || "\u{feff}，。、".contains(c),
        );
    }
    usual * 100 >= all * 95 && is_varied(sample)
}
