//! A `tokenizer.json` of Hugging Face: what it says, and hostile ones. That its ids are Python's is for
//! `tests/python/test_tokenizers.py`.
#![cfg(feature = "huggingface")]

use lowtide_text::tokenizer::{HuggingFace, Tokenizer, conformance, named};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A byte-level BPE of 256 bytes, two merges and an end of text.
fn small() -> Value {
    let mut vocab = serde_json::Map::new();
    // GPT-2's letters for bytes: printable ones are themselves, the others come after U+0100.
    let mut others = 256;
    for byte in 0..=255u32 {
        let printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let letter = if printable { byte } else { others };
        others += u32::from(!printable);
        vocab.insert(char::from_u32(letter).unwrap().to_string(), json!(byte));
    }
    vocab.insert("he".to_owned(), json!(256));
    vocab.insert("Ġhe".to_owned(), json!(257));
    json!({
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                    "pad_id": 0, "pad_type_id": 0, "pad_token": "!"},
        "added_tokens": [{"id": 258, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
                          "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocab, "merges": [["h", "e"], ["Ġ", "he"]]}
    })
}

fn write(folder: &Path, content: &str) -> PathBuf {
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_folder_or_a_file_is_a_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &small().to_string());
    let it = named(path.to_str().unwrap()).unwrap();
    assert_eq!(named(folder.path().to_str().unwrap()).unwrap().fingerprint(), it.fingerprint());
    assert_eq!((it.vocabulary(), it.end_of_text()), (259, Some(258)));
    let mut ids = Vec::new();
    // Neither the truncation nor the padding of the file, and special words are text.
    it.encode("he he<|endoftext|>", &mut ids).unwrap();
    let text: Vec<u32> = b"<|endoftext|>".iter().map(|&byte| u32::from(byte)).collect();
    assert_eq!(ids, [&[256, 257][..], &text].concat());
    assert_eq!(it.decode(&[256, 258]).unwrap(), b"he<|endoftext|>");
    conformance::check(&*it, conformance::TEXTS.iter().copied());
    conformance::check_round_trip(&*it, conformance::TEXTS.iter().copied());
}

#[test]
fn the_configuration_beside_it_names_the_end_of_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), &small().to_string());
    let before = HuggingFace::open(&path).unwrap().fingerprint();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": {"content": "he"}}"#)
        .unwrap();
    let it = HuggingFace::open(&path).unwrap();
    assert_eq!(it.end_of_text(), Some(256));
    assert_ne!(it.fingerprint(), before);
}

#[test]
fn hostile_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let with = |key: &str, value: Value| {
        let mut file = small();
        file[key] = value;
        file.to_string()
    };
    let split = |pattern: String| {
        with(
            "pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}),
        )
    };
    let mut nested = json!({"type": "Lowercase"});
    for _ in 0..60 {
        nested = json!({"type": "Sequence", "normalizers": [nested]});
    }
    let mut far = small();
    far["model"]["vocab"]["far"] = json!(u32::MAX);
    let mut lost = small();
    lost["model"]["merges"] = json!([["h", "nowhere"]]);
    let deep = "[".repeat(1 << 20);
    for (what, file) in [
        ("empty", String::new()),
        ("not JSON", "tokenizer".to_owned()),
        ("another JSON", "{}".to_owned()),
        ("deep JSON", deep.clone()),
        ("deep normalizer", format!("{{\"normalizer\": {deep}")),
        ("normalizers in normalizers", with("normalizer", nested).replace("Lowercase", "Nothing")),
        ("deep pattern", split("(".repeat(100_000) + &")".repeat(100_000))),
        ("rather deep pattern", split("(".repeat(1000) + &")".repeat(1000))),
        ("long pattern", split("a|".repeat(1 << 20))),
        ("broken pattern", split("(".to_owned())),
        ("huge pattern", split("((a{1000}){1000}){1000}".to_owned())),
        ("an id past all", far.to_string()),
        ("a merge of nothing", lost.to_string()),
        ("no model", with("model", json!(null))),
        ("a model of another kind", with("model", json!({"type": "Telepathy"}))),
        (
            "broken charsmap",
            with("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"})),
        ),
        (
            "unknown word of a Unigram",
            with("model", json!({"type": "Unigram", "unk_id": 7, "vocab": [["a", 0.0]]})),
        ),
    ] {
        let path = write(folder.path(), &file);
        let message = HuggingFace::open(&path).expect_err(what).to_string();
        assert!(
            message.contains("tokenizer.json: at byte 0: expected a tokenizer.json of Hugging Face"),
            "{what}: {message}"
        );
        println!("{what}: {message:.200}");
    }
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "");
    std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let message = HuggingFace::open(&path).unwrap_err().to_string();
    assert!(message.contains("expected a tokenizer.json of at most 128 MiB, found 1048576 MiB"), "{message}");
}
