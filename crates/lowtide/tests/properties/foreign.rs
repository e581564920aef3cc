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
    if let Some(kind) = Foreign::of_text(bytes) {
        said(kind);
        // Read once more, by what text is not: cut characters at both ends aside, nothing of it is replaced, and
        // nothing moves a terminal's cursor.
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_matches('\u{fffd}');
        let strange = |c: char| c == '\u{fffd}' || c < ' ' && !"\t\n\r\u{c}".contains(c) || c == '\u{7f}';
        assert!(!text.contains(strange) || bytes.windows(3).any(|c| c == "\u{fffd}".as_bytes()), "{text:?}");
    }
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
