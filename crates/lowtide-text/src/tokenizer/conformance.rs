//! What every tokenizer must do, as one suite that all of them run, a user's own included.

use super::Tokenizer;

/// Texts that tokenizers have got wrong.
pub const TEXTS: &[&str] = &[
    "",
    " ",
    "\n",
    "hello world",
    "Hello,  world!\n\n\tindented\r\n  twice \n ",
    "it's we'll THEY'VE I'D 'ſ x'S '' 'q don't",
    "1 12 123 1234 12345.678 ¼ Ⅷ ٣٤٥٦ 一二三 〇〇〇〇",
    "a\u{301}\u{302}b \u{301} \u{301}x ǅx ªº",
    "HTTPServer camelCase ABCdef 世A 世AB A世 ａＢ",
    "日本語のテキスト、「引用」と句読点。　次の文。",
    "👩‍👩‍👧‍👦🏽 🇩🇪 ❤️\u{200d}🔥",
    "//\n/ .\n/x ;\r\n\r\n/// a/b/c",
    "\u{feff}bom \0 nul \u{85} nel \u{a0}nbsp \u{2028} \u{3000}wide",
    "<|endoftext|> <|fim_prefix|> </s>",
    "   \t \u{a0} x \n \n\n  y",
    "🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// Checks the promises of the trait on these texts, and panics with the one that is broken.
///
/// # Panics
/// Where a promise is broken.
pub fn check<'a>(tokenizer: &dyn Tokenizer, texts: impl IntoIterator<Item = &'a str>) {
    assert!(!tokenizer.name().is_empty(), "it has a name");
    assert_eq!(tokenizer.fingerprint().len(), 32, "a fingerprint is 32 digits");
    assert!(tokenizer.end_of_text().is_none_or(|id| id < tokenizer.vocabulary()), "the end of text is an id");
    if let Some(end) = tokenizer.end_of_text() {
        assert!(!tokenizer.decode(&[end]).expect("the end of text decodes").is_empty());
    }
    assert!(tokenizer.decode(&[u32::MAX]).is_err(), "an id that is none is an error");
    for text in texts {
        let whole = ids(tokenizer, text);
        assert!(
            whole.iter().all(|&id| id < tokenizer.vocabulary()),
            "ids are below the vocabulary: {text:?}"
        );
        assert_eq!(whole, ids(tokenizer, text), "the same text has the same ids: {text:?}");
        let mut after = vec![7];
        tokenizer.encode(text, &mut after).expect("it encodes");
        assert_eq!(after[0], 7, "ids are appended: {text:?}");
        assert_eq!(after[1..], whole, "ids are appended: {text:?}");
        check_cuts(tokenizer, text);
    }
}

/// Checks that decoding gives the text back, which tokenizers that normalize do not promise.
///
/// # Panics
/// Where it does not.
pub fn check_round_trip<'a>(tokenizer: &dyn Tokenizer, texts: impl IntoIterator<Item = &'a str>) {
    for text in texts {
        let bytes = tokenizer.decode(&ids(tokenizer, text)).expect("its own ids decode");
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    }
}

/// Checks the cut of every beginning of a text: the parts have the ids of the whole, whatever follows.
///
/// # Panics
/// Where they do not.
pub fn check_cuts(tokenizer: &dyn Tokenizer, text: &str) {
    let whole = ids(tokenizer, text);
    for end in (1..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        if let Some(at) = tokenizer.cut(&text[..end]) {
            assert!(
                0 < at && at < end && text.is_char_boundary(at),
                "a cut is inside: {at} of {:?}",
                &text[..end]
            );
            let mut parts = ids(tokenizer, &text[..at]);
            tokenizer.encode(&text[at..], &mut parts).expect("it encodes");
            assert_eq!(
                parts,
                whole,
                "cut at {at} of {:?}: {:?} + {:?}",
                &text[..end],
                &text[..at],
                &text[at..]
            );
        }
    }
}

fn ids(tokenizer: &dyn Tokenizer, text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode(text, &mut ids).expect("it encodes");
    ids
}
