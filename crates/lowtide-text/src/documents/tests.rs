//! Documents of every kind of source, against what was written into it.

use super::{Mark, Reading, Sink, read};
use crate::inputs::{self, Source};
use crate::job::InputKind;
use lowtide::store::Cache;
use lowtide::{Error, Result};
use std::io::Write;
use std::path::Path;

/// Keeps the documents, and what is said of bad ones.
#[derive(Default)]
pub(super) struct Kept {
    now: String,
    pub(super) documents: Vec<Result<String, String>>,
    marks: Vec<Option<Mark>>,
    largest: usize,
}

impl Sink for Kept {
    fn push(&mut self, text: &str) -> Result<()> {
        self.largest = self.largest.max(text.len());
        self.now.push_str(text);
        Ok(())
    }

    fn end(&mut self, mark: Option<Mark>) -> Result<()> {
        self.documents.push(Ok(std::mem::take(&mut self.now)));
        self.marks.push(mark);
        Ok(())
    }

    fn bad(&mut self, error: Error) -> Result<()> {
        self.now.clear();
        self.documents.push(Err(error.to_string()));
        self.marks.push(None);
        Ok(())
    }
}

pub(super) fn reading(kind: Option<InputKind>) -> Reading {
    Reading {
        kind,
        field: vec!["text".into()],
        separator: None,
        cache: Cache::Keep,
        room: 1 << 20,
        page: 1 << 20,
        gauge: super::Gauge::default(),
    }
}

fn source(path: &Path) -> Source {
    inputs::find(&[path.to_owned()], &[], Path::new("/nowhere")).unwrap().remove(0)
}

pub(super) fn kept(name: &str, bytes: &[u8], how: &Reading) -> Kept {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let mut kept = Kept::default();
    read(&source(&path), how, None, &mut kept).unwrap();
    assert!(kept.largest <= super::PIECE);
    // From every mark the rest comes again.
    for (n, mark) in kept.marks.iter().enumerate().filter(|(_, mark)| mark.is_some()).step_by(7) {
        let mut rest = Kept::default();
        read(&source(&path), how, *mark, &mut rest).unwrap();
        assert_eq!(rest.documents, kept.documents[n + 1..], "from {mark:?}");
    }
    kept
}

pub(super) fn texts(kept: &Kept) -> Vec<&str> {
    kept.documents.iter().map(|document| document.as_deref().unwrap()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_file_is_a_document_however_it_is_packed() {
    let text = "äöü €\r\n".repeat(50_000);
    let packed =
        [text.clone().into_bytes(), gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 1).unwrap()];
    for bytes in packed {
        assert_eq!(texts(&kept("a.txt", &bytes, &reading(None))), [&text]);
    }
    let two = [gzip(b"one "), gzip(b"two")].concat();
    assert_eq!(texts(&kept("a.txt", &two, &reading(None))), ["one two"]);
    assert_eq!(texts(&kept("a.txt", b"", &reading(None))), [""]);
    assert!(kept("a.txt", b"", &reading(Some(InputKind::Lines))).documents.is_empty());
}

#[test]
fn lines_and_separators_end_documents() {
    let long = "x".repeat(200_000);
    let text = format!("one\r\n\n{long}\r\ntwo\rthree\n{long}");
    let lines = kept("a.txt", text.as_bytes(), &reading(Some(InputKind::Lines)));
    assert_eq!(texts(&lines), ["one", "", &long, "two\rthree", &long]);
    for separator in ["<|end|>", "\n---\n", "€€"] {
        for len in [0, 1, super::PIECE - 3, super::PIECE - 1, super::PIECE, super::PIECE + 1, 200_000] {
            let how = Reading { separator: Some(separator.into()), ..reading(Some(InputKind::Text)) };
            let first = "é".repeat(len / 2);
            let text = [&*first, "", "last"].join(separator);
            assert_eq!(
                texts(&kept("a.txt", text.as_bytes(), &how)),
                [&*first, "", "last"],
                "{separator} {len}"
            );
        }
    }
}

#[test]
fn what_is_not_utf8_is_named_and_passed_over() {
    let how = reading(Some(InputKind::Lines));
    let found = kept("a.txt", b"good\nb\xffad\ngood\ncut \xe2\x82\ngood\n", &how);
    let words: Vec<_> =
        found.documents.iter().map(|d| d.as_ref().map_or_else(String::as_str, String::as_str)).collect();
    assert!(
        words[1].contains("at byte 6: expected text in UTF-8, found the byte 0xff (line 2)"),
        "{}",
        words[1]
    );
    assert!(
        words[3].contains("at byte 19: expected text in UTF-8, found the byte 0xe2 (line 4)"),
        "{}",
        words[3]
    );
    assert_eq!((words[0], words[2], words[4]), ("good", "good", "good"));
    let cut = &gzip("text ".repeat(100_000).as_bytes())[..200];
    let found = kept("a.gz", cut, &reading(None));
    assert_eq!(found.documents.len(), 1);
    assert!(found.documents[0].as_ref().unwrap_err().contains("is it cut, or damaged?"));
}

#[test]
fn json_lines_have_their_text_at_a_path() {
    let long = "text with \"quotes\" and ünïcode, ".repeat(100_000); // 3 MB: more than the room
    let line = |text: &str| {
        format!(
            "{{\"id\": 1, \"text\": {}, \"more\": [1, {{\"text\": 2}}]}}\n",
            serde_json::to_string(text).unwrap()
        )
    };
    let all =
        format!("\u{feff}{}\n{}  \n{}{}", line("a\nb\u{1f600}"), line(&long), line(""), line("last").trim());
    let how = reading(None);
    for bytes in [all.clone().into_bytes(), gzip(all.as_bytes())] {
        let name = if bytes[0] == 0x1f { "a.jsonl.gz" } else { "a.jsonl" };
        assert_eq!(texts(&kept(name, &bytes, &how)), ["a\nb\u{1f600}", &long, "", "last"]);
    }
    let deep = Reading { field: vec!["a".into(), "b".into()], ..reading(Some(InputKind::Jsonl)) };
    let text = format!(
        "{{\"a\": {{\"x\": 0, \"b\": \"one\"}}}}\n{{\"a\": {{\"b\": {:?}, \"b\": 5}}}}",
        long.replace('ü', "u").replace('ï', "i")
    );
    assert_eq!(texts(&kept("a", text.as_bytes(), &deep))[0], "one");
}

#[test]
fn bad_lines_of_json_are_named_whether_short_or_long() {
    let pad = "p".repeat(2 << 20);
    for pad in ["", &pad] {
        let bad = [
            (format!("{{\"url\": \"{pad}\", \"body\": \"x\"}}"), "no text, but url, body"),
            (format!("{{\"pad\": \"{pad}\", \"text\": 7}}"), ""),
            (format!("{{\"pad\": \"{pad}\", \"text\": \"x\""), ""),
            (format!("[\"{pad}\"]"), ""),
            (format!("{{\"text\": \"{pad}\\ud800\"}}"), ""),
            (format!("{{\"text\": \"x\"}} {pad}x"), ""),
        ];
        for (line, said) in bad {
            let text = format!("{{\"text\": \"before\"}}\n{line}\n{{\"text\": \"after\"}}\n");
            let found = kept("a.jsonl", text.as_bytes(), &reading(None));
            assert_eq!(found.documents.len(), 3, "{}", &line[..20]);
            let error = found.documents[1].as_ref().unwrap_err();
            assert!(
                error.contains(said) && error.contains("line 2") && error.contains("at byte 19"),
                "{error}"
            );
            assert_eq!(found.documents[2].as_deref(), Ok("after"));
        }
    }
}

#[test]
fn a_name_longer_than_the_room_is_an_error_and_not_held() {
    let name = "n".repeat(3 << 20);
    let text = format!("{{\"{name}\": 1, \"text\": \"x\"}}\n{{\"text\": \"after\"}}\n");
    let found = kept("a.jsonl", text.as_bytes(), &reading(None));
    assert!(found.documents[0].as_ref().unwrap_err().contains("a name that is larger than the room"));
    assert_eq!(found.documents[1].as_deref(), Ok("after"));
}

#[test]
fn a_window_larger_than_the_room_is_an_error_that_says_so() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(24).unwrap();
    std::io::Write::write_all(&mut encoder, &b"some text ".repeat(2 << 20)).unwrap();
    let found = kept("a.zst", &encoder.finish().unwrap(), &reading(None));
    let error = found.documents.last().unwrap().as_ref().unwrap_err();
    assert!(error.contains("a larger budget= reads it"), "{error}");
}
