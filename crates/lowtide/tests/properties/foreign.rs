//! What must hold for any bytes at all that are asked what they are.
//!
//! One definition for all who ask: the fuzz target, the stored corpus in `cargo test`, and proptest.

use lowtide::door::Door;
use lowtide::format::{FOREIGN_HEAD_LEN, Foreign, Wanted, llmc, megatron, npy};

/// Panics if something wrong is said of a file that begins with these bytes, whatever its size.
pub fn check(bytes: &[u8]) {
    let own = bytes.len() as u64;
    for file_len in [own, own + 1, 1 << 40, u64::MAX] {
        let kind = Foreign::of(bytes, file_len);
        // What is read here is not foreign.
        let ours = npy::is_npy(bytes) || llmc::is_llmc(bytes) || megatron::is_megatron(bytes);
        assert!(kind.is_none() || !ours, "{kind:?}");
        // No more is looked at than is asked for.
        assert_eq!(kind, Foreign::of(&bytes[..bytes.len().min(FOREIGN_HEAD_LEN)], file_len));
        kind.into_iter().for_each(said);
    }
    let kind = Foreign::of_text(bytes);
    kind.into_iter().for_each(said);
    match kind {
        // Read once more, by another decoder.
        Some(Foreign::Utf16) => {
            let big = bytes.starts_with(b"\xfe\xff");
            let unit = |pair: &[u8]| if big { [pair[0], pair[1]] } else { [pair[1], pair[0]] };
            let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes(unit(pair))).collect();
            assert!(units[0] == 0xfeff && !units.contains(&0));
            let text = String::from_utf16_lossy(&units);
            let cut = usize::from((0xd800..0xdc00).contains(units.last().unwrap()));
            let own = units.iter().filter(|&&unit| unit == 0xfffd).count();
            assert!(text.matches('\u{fffd}').count() <= cut + own, "{text:?}");
        }
        // Most of it is letters that a person could read, and tokens of few ids have zeros.
        Some(Foreign::OldText | Foreign::Text | Foreign::Json) => {
            let strange = |byte: &u8| *byte < b' ' && !b"\t\n\r\x0c".contains(byte);
            assert!(!bytes.contains(&0));
            assert!(bytes.iter().filter(|byte| strange(byte)).count() * 20 <= bytes.len());
            // Cut characters at both ends aside, nothing of UTF-8 is replaced.
            let text = String::from_utf8_lossy(bytes);
            let replaced = text.trim_matches('\u{fffd}').contains('\u{fffd}');
            let own = bytes.windows(3).any(|c| c == "\u{fffd}".as_bytes());
            assert!(kind == Some(Foreign::OldText) || !replaced || own, "{text:?}");
        }
        other => assert_eq!(other, None),
    }
    // The same piece again and again is what it is alone.
    assert_eq!(Foreign::of_samples(&[bytes.to_vec()]), kind);
}

/// That a reader at either door can use what is said.
fn said(kind: Foreign) {
    assert!(!kind.name().is_empty());
    for wanted in [Wanted::Array, Wanted::Tokens] {
        for door in [Door::Python, Door::Shell] {
            let words = kind.way_out(wanted).at(door).to_string();
            assert!(!words.is_empty() && !words.contains('\n'), "{kind:?}");
        }
    }
}
