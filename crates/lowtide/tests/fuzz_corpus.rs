//! What the fuzzers once found worth keeping, and all hostile and valid files, against the fuzzers' own
//! properties: a crash that was fixed stays fixed without a fuzzer at hand.

#[path = "properties/datatrove.rs"]
mod datatrove;
#[path = "properties/foreign.rs"]
mod foreign;
#[path = "properties/llmc.rs"]
mod llmc;
#[path = "properties/local_cache.rs"]
mod local_cache;
#[path = "properties/manifest.rs"]
mod manifest;
#[path = "properties/megatron.rs"]
mod megatron;
#[path = "properties/message.rs"]
mod message;
#[path = "properties/npy.rs"]
mod npy;

use lowtide::format::Foreign;
use std::path::Path;

#[test]
fn npy() {
    feed("npy", "npy", npy::check);
}

#[test]
fn llmc() {
    feed("llmc", "tokens/llmc", llmc::check);
}

#[test]
fn megatron() {
    feed("megatron", "tokens/megatron", megatron::check);
}

#[test]
fn datatrove() {
    feed("datatrove", "tokens/datatrove", datatrove::check);
}

#[test]
fn manifest() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/manifest");
    let files: Vec<_> = kept.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 10, "{} has few files", kept.display());
    for file in files {
        println!("{}", file.display());
        manifest::check(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn local_cache() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/local_cache");
    let files: Vec<_> = kept.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5, "{} has few files", kept.display());
    for file in files {
        println!("{}", file.display());
        local_cache::check(&std::fs::read(&file).unwrap());
    }
}

/// Whatever is kept of the others too: nothing of it is foreign, and all of it is hostile.
#[test]
fn foreign() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut folders = vec![tests.join("attacks"), tests.join("valid"), tests.join("../../../fuzz/corpus")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in folder.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                println!("{}", path.display());
                foreign::check(&std::fs::read(&path).unwrap());
                files += 1;
            }
        }
    }
    assert!(files > 100, "{files}");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_an_index_or_not(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..1200)) {
        local_cache::check(&bytes);
    }

    #[test]
    fn any_bytes_are_foreign_or_not(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600)) {
        foreign::check(&bytes);
    }

    /// Tokens of two bytes, of vocabularies that are used evenly, of those that look most like letters, and of bytes as
    /// `prepare` writes them, also behind the mark of UTF-16: none are text.
    #[test]
    fn tokens_are_no_text(
        tokens in proptest::prop_oneof![
            proptest::collection::vec(0_u16..50_257, 64..256),
            proptest::collection::vec(0_u16..32_000, 64..256),
            proptest::collection::vec(0x2020_u16..0x7f7f, 128..256),
            proptest::collection::vec(0_u16..257, 64..256),
            proptest::collection::vec(0_u16..=u16::MAX, 64..256),
        ],
        mark in proptest::prop_oneof![proptest::strategy::Just(None), proptest::strategy::Just(Some(0xfeff_u16)), proptest::strategy::Just(Some(0xfffe))],
    ) {
        let bytes: Vec<u8> = mark.into_iter().chain(tokens).flat_map(u16::to_le_bytes).collect();
        foreign::check(&bytes);
        assert_eq!(Foreign::of_text(&bytes), None);
    }

    /// The bytes of a text in Latin-1, and of one in UTF-16, wherever a sample is taken.
    #[test]
    fn text_in_other_encodings_is_text(words in proptest::collection::vec("[a-zA-ZäöüßéàçÄÖÜ]{2,9}", 40..90), cut in 0_usize..8) {
        let text = words.join(" wird, oder ");
        let latin: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap()).collect();
        foreign::check(&latin[cut..]);
        let kind = Foreign::of_text(&latin[cut..]);
        assert!(kind == Some(Foreign::OldText) || kind == Some(Foreign::Text) && text.is_ascii() || !mostly_ascii(&latin[cut..]), "{text}");
        let wide: Vec<u8> = std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        foreign::check(&wide);
        assert_eq!(Foreign::of_samples(&[wide.clone(), wide[cut / 2 * 2..].to_vec()]), Some(Foreign::Utf16));
    }

    /// Text and pieces of it, with strange characters here and there.
    #[test]
    fn any_text_is_foreign_or_not(text in "[a-z ,.\\n\u{0}-\u{a0}\u{3040}-\u{30ff}\u{1f600}]{0,200}", cut in 0_usize..8) {
        foreign::check(text.as_bytes().get(cut..).unwrap_or_default());
    }
}

/// Real tokens of GPT-2 (of our own README and sources), from every place in them: none begins like something
/// else. `LOWTIDE_TOKENS` names a larger file of uint16 tokens to look at.
#[test]
fn real_tokens_are_never_foreign() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpt2-tokens.bin");
    let bytes = std::fs::read(std::env::var_os("LOWTIDE_TOKENS").map_or(own, Into::into)).unwrap();
    for at in (0..bytes.len()).step_by(2) {
        let head = &bytes[at..bytes.len().min(at + 512)];
        assert_eq!(Foreign::of(head, bytes.len() as u64), None, "at byte {at}");
        // Of a sample as short as any that is judged.
        for short in [64, 128, 512] {
            assert_eq!(Foreign::of_text(&head[..head.len().min(short)]), None, "at byte {at}");
        }
    }
}

/// The same with the first bytes of every kind that could be tokens: a coincidence is not enough.
#[test]
fn tokens_that_begin_like_something_else_by_chance_are_tokens() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpt2-tokens.bin");
    let tokens = std::fs::read(own).unwrap();
    let begin = [
        &b"\x80\x02"[..],
        b"\x80\x03",
        b"\x80\x04",
        b"\x80\x04\x95\x20",
        b"\x80\x02}q",
        b"\x80\x02c ",
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x20",
        b"PK",
        b"PK\x03\x04",
        b"{\"",
        b"BZh9",
        b"\xff\xff\xff\xff",
        b"Call me Ishmael.",
        b"\x10\0\0\0\0\0\0\0",
        b"\xc6\xd7\x34\x01",
    ];
    for begin in begin {
        for at in (0..4096).step_by(2) {
            let head = [begin, &tokens[at..at + 512 - begin.len()]].concat();
            assert_eq!(
                Foreign::of(&head, 1 << 20).or(Foreign::of_text(&head)),
                None,
                "{begin:?} before byte {at}"
            );
        }
    }
}

fn mostly_ascii(text: &[u8]) -> bool {
    text.iter().filter(|byte| byte.is_ascii()).count() * 5 >= text.len() * 4
}

fn feed(target: &str, valid: &str, check: impl Fn(&[u8])) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let kept = tests.join("../../../fuzz/corpus").join(target);
    for folder in [kept, tests.join("attacks").join(target), tests.join("valid").join(valid)] {
        let files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            println!("{}", file.display()); // shown by the test runner only where the check panics
            check(&std::fs::read(&file).unwrap());
        }
    }
}
