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

/// As `small`, with merges over the end of a word, which only a split keeps from happening, and other steps before it.
fn with_steps(normalizer: Value, pre_tokenizer: Value) -> Value {
    let mut file = small();
    (file["normalizer"], file["pre_tokenizer"]) = (normalizer, pre_tokenizer);
    let mut id = 300;
    for (a, b) in
        [("e", "Ġ"), ("t", "Ċ"), ("a", "Ġ"), ("Ġ", "Ġ"), ("e", "▁"), ("▁", "h"), ("l", "l"), ("1", "2")]
    {
        for word in [a.to_owned(), b.to_owned(), format!("{a}{b}")] {
            if file["model"]["vocab"][&word].is_null() {
                file["model"]["vocab"][word] = json!(id);
                id += 1;
            }
        }
        file["model"]["merges"].as_array_mut().unwrap().push(json!([a, b]));
    }
    file
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn steps(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn byte_level(prefix: bool, regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex})
}

/// The ways of splitting of the families that people have, under their names.
fn families() -> Vec<(&'static str, Value)> {
    let han = split("[一-龥぀-ゟ゠-ヿ]+");
    let bytes = byte_level(false, false);
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let bert = json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                      "strip_accents": null, "lowercase": true});
    let nfc = json!({"type": "NFC"});
    vec![
        ("GPT-2", with_steps(json!(null), byte_level(false, true))),
        ("RoBERTa", with_steps(json!(null), byte_level(true, true))),
        ("Llama 3", with_steps(json!(null), steps(&[split(LLAMA3), bytes.clone()]))),
        ("Qwen", with_steps(nfc, steps(&[split(&LLAMA3.replace("{1,3}", "")), bytes.clone()]))),
        ("o200k", with_steps(json!(null), steps(&[split(O200K), bytes.clone()]))),
        ("DeepSeek", with_steps(json!(null), steps(&[split(r"\p{N}{1,3}"), han, split(DEEPSEEK), bytes]))),
        ("Metaspace", with_steps(json!(null), metaspace)),
        ("BERT", with_steps(bert, json!({"type": "BertPreTokenizer"}))),
    ]
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

#[test]
fn where_a_text_is_cut_no_id_changes() {
    let folder = tempfile::tempdir().unwrap();
    for (family, file) in families() {
        let it = HuggingFace::open(&write(folder.path(), &file.to_string())).unwrap();
        conformance::check(&it, conformance::TEXTS.iter().copied());
        assert_eq!(it.cut("the tale t"), Some(8), "{family}");
        assert_eq!(it.cut("tale  \t 12 !? 3 "), Some(4), "{family}: only behind letters");
        assert_eq!(it.cut("thetalethe"), None, "{family}");
    }
}

#[test]
fn what_could_change_an_id_is_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let word = |content: &str, rstrip: bool| {
        let mut file = with_steps(json!(null), byte_level(false, true));
        let added = json!({"id": 400, "content": content, "single_word": false, "lstrip": false,
                           "rstrip": rstrip, "normalized": false, "special": false});
        file["added_tokens"].as_array_mut().unwrap().push(added);
        file
    };
    let prepend = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    for (what, file) in [
        ("bytes without a split", with_steps(json!(null), byte_level(false, false))),
        ("nothing that splits", with_steps(json!(null), json!(null))),
        ("a word put before the text", with_steps(prepend, json!(null))),
        ("a pattern of its own", with_steps(json!(null), split("[a-z ]+"))),
        ("half a pattern", with_steps(json!(null), split(r"\s+(?!\S)|\s+"))),
        ("digits only", with_steps(json!(null), split(r"\p{N}"))),
        ("a word with a space", word("to be", false)),
        ("a word that takes spaces", word("the", true)),
    ] {
        let it = HuggingFace::open(&write(folder.path(), &file.to_string())).unwrap();
        assert_eq!(it.cut("the tale told the tale told"), None, "{what}");
    }
    // One that has neither does not matter.
    let it = HuggingFace::open(&write(folder.path(), &word("<tool>", false).to_string())).unwrap();
    assert_eq!(it.cut("the <tool> tale told"), Some(15));
    conformance::check_cuts(&it, "the <tool> tale<tool> told the<tool>  <tool>a b");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn cuts_of_any_text_change_no_id(text in "[ \\n\\ta-eht'1é世\u{301}.\u{a0}<>]{0,24}") {
        static FILES: std::sync::LazyLock<Vec<HuggingFace>> = std::sync::LazyLock::new(|| {
            let folder = tempfile::tempdir().unwrap();
            let open = |file: Value| HuggingFace::open(&write(folder.path(), &file.to_string())).unwrap();
            families().into_iter().map(|(_, file)| open(file)).collect()
        });
        for it in FILES.iter() {
            conformance::check_cuts(it, &text);
        }
    }
}

#[test]
fn a_file_that_gives_other_ids_every_time_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = small();
    file["model"]["dropout"] = json!(0.1);
    let message = HuggingFace::open(&write(folder.path(), &file.to_string())).unwrap_err().to_string();
    assert!(message.contains("a dropout of 0.1: other ids every time"), "{message}");
}
