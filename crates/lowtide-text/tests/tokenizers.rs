//! All tokenizers of the package: the suite, their cuts on hostile text, the crate that their words come from.

use lowtide_text::tokenizer::{Bytes, Chars, Tokenizer, conformance, named, names};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

/// Every encoding inside the package, opened once.
static ALL: LazyLock<Vec<Arc<dyn Tokenizer>>> =
    LazyLock::new(|| names().map(|name| named(name).unwrap()).collect());

/// One for every way to split.
const WAYS: [&str; 7] =
    ["gpt2", "cl100k_base", "o200k_base", "qwen2", "mistral_v3", "kimi_k2", "deepseek_v3"];

fn ways() -> impl Iterator<Item = &'static dyn Tokenizer> {
    ALL.iter().map(|it| &**it).filter(|it| WAYS.contains(&it.name()))
}

/// One of them, held: made anew for every text it took most of a test's time.
fn of(name: &str) -> &'static dyn Tokenizer {
    ALL.iter().map(|it| &**it).find(|it| it.name() == name).unwrap()
}

fn ids(tokenizer: &dyn Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids).unwrap();
    ids
}

/// Text in which every rule of the patterns meets every other.
fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        8 => "[ \t\r\n]{1,3}",
        4 => "['’]?(s|S|ſ|ll|LL|ve|re|rE|d|t|m|x)",
        6 => "[a-cA-C]{1,4}",
        3 => "[0-9]{1,7}",
        4 => "[/!.,'(){}\"-]{1,3}",
        3 => "[世界〇々⺀ぁア゠龥龦\u{3099}한]{1,4}",
        3 => "[\u{301}\u{20e3}ǅªéÉßŉ]{1,3}",
        2 => "[\u{85}\u{a0}\u{2028}\u{3000}\u{200b}\u{200d}\u{feff}\0]{1,2}",
        2 => "[¼Ⅷ٣１𝟘]{1,4}",
        2 => "[🙂👩🏽🇩]{1,3}",
        1 => any::<char>().prop_map(String::from),
        1 => "[a]{60,70}|[ ]{14,18}|[🙂]{17}",
    ];
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

#[test]
fn all_conform() {
    for it in ALL.iter() {
        conformance::check(&**it, conformance::TEXTS.iter().copied());
        conformance::check_round_trip(&**it, conformance::TEXTS.iter().copied());
    }
    let chars = Chars::from_chars(conformance::TEXTS.concat().chars());
    conformance::check(&chars, conformance::TEXTS.iter().copied());
    conformance::check_round_trip(&chars, conformance::TEXTS.iter().copied());
}

#[test]
fn fingerprints_differ_where_ids_do() {
    let mut seen = std::collections::HashMap::new();
    for it in ALL.iter() {
        if let Some(other) = seen.insert(it.fingerprint(), it.name()) {
            assert_eq!((other, it.name()), ("gpt2", "r50k_base"));
        }
    }
}

/// The crate that the words come from splits with regular expressions and merges in its own way: a second opinion.
/// On purpose, `cl100k_base` differs where Python's tiktoken does: spaces at the end of a text (`\s++$`).
#[test]
fn the_crate_agrees() {
    for text in conformance::TEXTS {
        for it in ALL.iter().filter(|it| it.name() != "bytes") {
            assert_eq!(
                ids(&**it, text),
                tiktoken::get_encoding(it.name()).unwrap().encode(text),
                "{} {text:?}",
                it.name()
            );
        }
    }
}

/// `DeepSeek` splits in three stages. The crate joins them in one expression, in which a sign of the second stage belongs
/// to a run of signs before it ("⺀゠'ve" has no "'ve" there), so it is asked only for the ids of single pieces; the
/// stages are run by Hugging Face's own code.
#[cfg(feature = "huggingface")]
fn deepseek(text: &str) -> Vec<u32> {
    use tokenizers::tokenizer::{OffsetReferential::Original, OffsetType::Byte, SplitDelimiterBehavior};
    use tokenizers::{PreTokenizedString, PreTokenizer, pre_tokenizers::split};

    static STAGES: LazyLock<Vec<split::Split>> = LazyLock::new(|| {
        [
            r"\p{N}{1,3}",
            "[一-龥\u{3040}-ゟ゠-ヿ]+",
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
        ]
        .map(|it| {
            let pattern = split::SplitPattern::Regex(it.to_owned());
            split::Split::new(pattern, SplitDelimiterBehavior::Isolated, false).unwrap()
        })
        .into()
    });
    let mut pieces = PreTokenizedString::from(text);
    STAGES.iter().for_each(|stage| stage.pre_tokenize(&mut pieces).unwrap());
    let bpe = tiktoken::get_encoding("deepseek_v3").unwrap();
    pieces.get_splits(Original, Byte).iter().flat_map(|(piece, ..)| bpe.encode(piece)).collect()
}

#[cfg(feature = "huggingface")]
#[test]
fn deepseek_splits_as_hugging_face_does() {
    for text in conformance::TEXTS.iter().copied().chain(["⺀゠'ve", "!ア!a", "゠゠'s 々'd", "1゠2'x"])
    {
        assert_eq!(ids(of("deepseek_v3"), text), deepseek(text), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_crate_agrees_on_hostile_text(text in hostile()) {
        for it in ways().filter(|it| it.name() != "bytes" && it.name() != "deepseek_v3") {
            let text = if it.name() == "cl100k_base" { format!("{text}.") } else { text.clone() };
            let theirs = tiktoken::get_encoding(it.name()).unwrap().encode(&text);
            prop_assert_eq!(ids(it, &text), theirs, "{} {:?}", it.name(), text);
        }
    }

    #[cfg(feature = "huggingface")]
    #[test]
    fn deepseek_splits_as_hugging_face_does_on_hostile_text(text in hostile()) {
        prop_assert_eq!(ids(of("deepseek_v3"), &text), deepseek(&text), "{:?}", text);
    }

    #[test]
    fn cuts_change_no_id(text in hostile()) {
        for it in ways() {
            conformance::check_cuts(it, &text);
        }
        conformance::check_cuts(&Bytes, &text);
    }

    #[test]
    fn cuts_change_no_id_of_spaces(text in "[ \n\r\t\u{a0}a'/.1世\u{301}]{0,24}") {
        for it in ways() {
            conformance::check_cuts(it, &text);
        }
    }

    #[test]
    fn cuts_change_no_id_of_any_text(text in any::<String>()) {
        for it in ways() {
            conformance::check_cuts(it, &text);
        }
    }
}

#[test]
fn ordinary_text_has_cuts_everywhere() {
    for (text, most) in [
        ("The quick brown fox jumps over the lazy dog. It isn't amused!\n".repeat(20), 16),
        ("    if x[i] == 12345:\n        return self.value(\"key\")\n\n".repeat(20), 40),
        ("日本語のテキスト、「引用」と句読点。次の文です。".repeat(20), 60),
        ("1234567890".repeat(50), 600),
        ("{\"a\":1,\"b\":[2,3]},".repeat(40), 12),
    ] {
        for it in ALL.iter() {
            for end in (text.len() / 2..text.len()).filter(|&end| text.is_char_boundary(end)) {
                let cut = it.cut(&text[..end]).unwrap_or(0);
                assert!(
                    end - cut <= most,
                    "{}: {} before the end of {:?}",
                    it.name(),
                    end - cut,
                    &text[..end]
                );
            }
        }
    }
}

/// What this thread has used of the processor: other load on the machine does not count. Not by `schedstat`, which the kernel
/// brings up to date only at its ticks: some milliseconds late.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[test]
fn time_is_linear_on_hostile_text() {
    for it in ways() {
        for unit in [
            " ", "a", "A", "🙂", "ab", "\n", " \n", "'", "0", "世", "世A", "\u{301}", "\u{301}A", "/\n", "x ",
        ] {
            let time = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                let start = processor_seconds();
                assert!(!ids(it, &text).is_empty());
                processor_seconds() - start
            };
            let (quick, slow) = (time(1 << 15).max(2e-3), time(1 << 18));
            // Eight times the text; quadratic would be 64 times.
            assert!(slow < quick * 32.0, "{} {unit:?}: {quick} s, then {slow} s", it.name());
        }
    }
}

/// Megabytes of one thing, of the three that people use: four times the text takes about four times as long.
#[test]
fn a_megabyte_of_one_thing_takes_as_long_as_another() {
    for name in ["gpt2", "cl100k_base", "o200k_base"] {
        let it = named(name).unwrap();
        for unit in [" ", "a", "🙂", "e\u{301}\u{302}"] {
            let time = |bytes: usize| {
                let text = unit.repeat(bytes / unit.len());
                let start = processor_seconds();
                assert!(!ids(&*it, &text).is_empty());
                processor_seconds() - start
            };
            // A millisecond is soon lost to a machine that is busy: the best of some.
            let time = |bytes| (0..4).map(|_| time(bytes)).fold(f64::MAX, f64::min);
            let (one, four) = (time(1 << 20), time(4 << 20));
            assert!(four < one * 10.0, "{name} {unit:?}: {one} s, then {four} s");
        }
    }
}

#[test]
fn threads_give_the_same_ids() {
    let it = named("o200k_base").unwrap();
    let text = conformance::TEXTS.concat();
    let one = ids(&*it, &text);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(ids(&*it, &text), one)));
        }
    });
}

#[test]
fn an_unknown_name_is_told_what_there_is() {
    let message = named("gpt3").unwrap_err().to_string();
    assert!(message.starts_with("there is no tokenizer \"gpt3\"\nhint: one of gpt2, "), "{message}");
    assert!(
        message.contains("o200k_base") && message.contains("bytes") && message.contains("tokenizer.json")
    );
    assert!(named("no/such/tokenizer.json").unwrap_err().to_string().contains("no/such/tokenizer.json"));
}

/// What Python's tiktoken says: see valid/README.md.
#[test]
fn ids_are_those_of_pythons_tiktoken() {
    let golden = include_str!("valid/tiktoken.jsonl");
    for line in golden.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let (name, text) = (line["encoding"].as_str().unwrap(), line["text"].as_str().unwrap());
        let theirs: Vec<u32> = serde_json::from_value(line["ids"].clone()).unwrap();
        assert_eq!(ids(&*named(name).unwrap(), text), theirs, "{name} {text:?}");
    }
    assert!(golden.lines().count() > 80);
}
