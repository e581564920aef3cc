//! Documents of every kind of source, against what was written into it.

use super::{Mark, PIECE, Reading, Sink, fit, read};
use crate::inputs::{self, Source};
use crate::job::{InputKind, Settings};
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
        field_needed: false,
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
fn json_lines_without_a_name_are_told_by_their_first_line() {
    let long = "é".repeat(100_000);
    for first in ["one", &long] {
        let lines = format!("{{\"id\": 1, \"text\": \"{first}\"}}\n\n{{\"text\": \"two\"}}\n");
        let packed =
            [lines.as_bytes(), &gzip(lines.as_bytes()), &zstd::encode_all(lines.as_bytes(), 1).unwrap()];
        for bytes in packed {
            for name in ["a", "a.zst", "part-00001.gz", "a.0001", "c4.json", "c4.json.gz", "a.jsonl"] {
                assert_eq!(texts(&kept(name, bytes, &reading(None))), [first, "two"], "{name}");
            }
            for name in ["a.txt", "a.py.gz", "a.md"] {
                assert_eq!(texts(&kept(name, bytes, &reading(None))), [&*lines], "{name}");
            }
            assert_eq!(texts(&kept("a", bytes, &reading(Some(InputKind::Text)))), [&*lines]);
        }
    }
    // One object and no more is a file of JSON; so is one in several lines, and a text may begin like one.
    for (name, text) in [
        ("package.json", "{\"name\": \"x\"}\n"),
        ("package.json", "{\n  \"text\": \"x\"\n}\n{\"text\": 1}\n"),
        ("a", "{ text }\n{\"text\": \"x\"}\n"),
        ("a", "{"),
        ("a", ""),
        ("LICENSE", "text\n{\"text\": \"x\"}\n"),
    ] {
        assert_eq!(texts(&kept(name, text.as_bytes(), &reading(None))), [text], "{name} {text}");
    }
}

#[test]
fn json_lines_without_the_field_are_asked_about() {
    for (name, text) in [
        ("a", "{\"body\": \"one\"}"),
        ("a.zst", "{\"body\": \"one\"}\n{\"body\": \"two\"}\n"),
        ("c4.json", "{\"body\": \"one\"}\n{\"body\": \"two\"}\n"),
    ] {
        let found = kept(name, text.as_bytes(), &reading(None)).documents;
        let [Err(said)] = &found[..] else { panic!("{name}: {found:?}") };
        let (what, hint) = said.split_once("\nhint: ").unwrap();
        assert!(
            what.ends_with("expected text, or JSON lines with text, found a JSON object without it (line 1)")
        );
        assert_eq!(
            hint,
            "input=\"jsonl\" with field= says where the text is; input=\"text\" takes the JSON itself for text"
        );
    }
    let body = Reading { field: vec!["body".into()], field_needed: true, ..reading(None) };
    assert_eq!(texts(&kept("a", b"{\"body\": \"one\"}", &body)), ["one"]);
}

#[test]
fn what_is_asked_for_and_of_no_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, bytes: &[u8], how: &Reading| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        // Passing over bad documents does not pass over this.
        read(&source(&path), how, None, &mut Kept::default()).unwrap_err().to_string()
    };
    let line = b"{\"text\": \"x\"}\n";
    let separated = Reading { separator: Some("x".into()), ..reading(None) };
    assert!(refused("a", line, &separated).contains("a: separator= is for text, not for JSON lines"));
    let lines = reading(Some(InputKind::Lines));
    assert!(refused("a", line, &lines).contains("a: split_lines=True is for text, not for JSON lines"));
    let field = Reading { field: vec!["body".into()], field_needed: true, ..reading(None) };
    assert!(
        refused("a", b"text", &field)
            .contains("a: field=\"body\" is for JSON lines and tables, not for text")
    );
    // By names alone, before anything is read.
    let sources = |names: &[&str]| {
        let file = |name: &&str| {
            std::fs::write(folder.path().join(name), "PAR").unwrap();
            source(&folder.path().join(name))
        };
        names.iter().map(file).collect::<Vec<_>>()
    };
    let usual = Settings::default;
    let lines = Settings { input: Some(InputKind::Lines), ..usual() };
    let separated = Settings { separator: Some("x".into()), ..usual() };
    let field = Settings { field: "body".into(), ..usual() };
    for (settings, names, wanted) in [
        (
            &lines,
            &["b.txt", "b.jsonl"][..],
            Some("b.jsonl: split_lines=True is for text, not for JSON lines"),
        ),
        (&lines, &["b.parquet"], Some("b.parquet: split_lines=True is for text, not for a table")),
        (&lines, &["b.txt", "b"], None),
        (&separated, &["b.jsonl", "b.parquet"], Some("b.jsonl: separator= is for text, not")),
        // What is of use for one of them is not passed over.
        (&separated, &["b.jsonl", "b.txt"], None),
        (
            &field,
            &["b.txt", "b.md"],
            Some("b.txt: field=\"body\" is for JSON lines and tables, not for text"),
        ),
        (&field, &["b.txt", "b.jsonl"], None),
        (&field, &["b"], None),
        (&usual(), &["b.txt", "b.jsonl", "b.parquet"], None),
    ] {
        let said = fit(settings, &sources(names)).err().map(|error| error.to_string());
        match (&said, wanted) {
            (None, None) => {}
            (Some(said), Some(wanted)) if said.contains(wanted) => {}
            _ => panic!("{names:?}: {said:?}"),
        }
    }
    std::fs::write(folder.path().join("table.data"), "PAR1 and so on").unwrap();
    fit(&field, &[source(&folder.path().join("table.data"))]).unwrap();
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
fn documents_before_the_place_where_an_archive_is_cut_are_read() {
    let lines: Vec<String> = (0..20_000).map(|n| format!("{{\"text\": \"{n}\"}}\n")).collect();
    let lines = lines.concat();
    for packed in [gzip(lines.as_bytes()), zstd::encode_all(lines.as_bytes(), 1).unwrap()] {
        let half = &packed[..packed.len() / 2];
        for (name, kind) in [("a.jsonl", InputKind::Jsonl), ("a.txt", InputKind::Lines)] {
            let found = kept(name, half, &reading(Some(kind)));
            let (last, whole) = found.documents.split_last().unwrap();
            assert!(whole.len() > 1_000, "{name}: {}", whole.len());
            for (n, document) in whole.iter().enumerate() {
                let text =
                    if kind == InputKind::Jsonl { n.to_string() } else { format!("{{\"text\": \"{n}\"}}") };
                assert_eq!(document.as_ref(), Ok(&text));
            }
            // The line that is cut, and the byte where there is no more.
            let said = last.as_ref().unwrap_err();
            assert!(said.contains(&format!("(line {})", whole.len() + 1)), "{said}");
            let before: usize = lines.lines().take(whole.len()).map(|line| line.len() + 1).sum();
            let byte: usize =
                said.split("at byte ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
            assert!((before..before + 20).contains(&byte), "{said}: {before}");
        }
    }
    // A checksum that does not fit is not forgotten where the archive is so small that a first look sees all of it.
    let mut wrong = gzip(b"{\"text\": \"a\"}\n");
    let crc = wrong.len() - 8;
    wrong[crc] ^= 1;
    let found = kept("a.jsonl.gz", &wrong, &reading(None));
    assert!(
        found.documents.last().unwrap().as_ref().unwrap_err().contains("checksum"),
        "{:?}",
        found.documents
    );
    // Behind the end of an archive lies something else: all of the archive is read.
    let found =
        kept("a.jsonl.gz", &[gzip(b"{\"text\": \"a\"}\n"), b"garbage".to_vec()].concat(), &reading(None));
    assert_eq!(found.documents[0].as_deref(), Ok("a"));
    assert!(found.documents[1].as_ref().unwrap_err().contains("(line 2)"));
}

#[test]
fn a_frame_to_be_passed_over_comes_first() {
    let frame =
        [&b"\x52\x2a\x4d\x18\x05\0\0\0hello"[..], &zstd::encode_all(&b"text"[..], 1).unwrap()].concat();
    assert_eq!(texts(&kept("a.txt.zst", &frame, &reading(None))), ["text"]);
}

#[test]
fn files_that_are_no_text_are_refused_by_name() {
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"a.txt");
    tar[257..265].copy_from_slice(b"ustar\x0000");
    tar[512..516].copy_from_slice(b"text");
    for (name, bytes, said) in [
        ("a.tar", tar.clone(), "found a tar archive\nhint: unpack it first: tar -xf FILE"),
        ("a.tar.gz", gzip(&tar), "found a tar archive"),
        ("a.bz2", b"BZh91AY&SY\x01\x02\xff\xfe".to_vec(), "bzip2 -dc FILE > NEW"),
        ("a.txt", b"\xfd7zXZ\0\0\x04".to_vec(), "xz -dc FILE > NEW"),
        ("a.gz", gzip(&gzip(b"text")), "gzip -dc FILE > NEW"),
        ("a.db", b"SQLite format 3\0\x10\0".to_vec(), "found an SQLite database\nhint: on_error=\"skip\""),
    ] {
        let found = kept(name, &bytes, &reading(None));
        let error = found.documents[0].as_ref().unwrap_err();
        assert!(error.contains(said), "{name}: {error}");
        assert_eq!(found.documents.len(), 1);
    }
    // Text that only begins like one of them.
    for text in ["GGUF is a format.", "PK\u{3}\u{4} is a zip", "CDF\u{1}"] {
        assert_eq!(texts(&kept("a.txt", text.as_bytes(), &reading(None))), [text]);
    }
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

/// Lines that are read at once and piece by piece are the same documents: how much room there is changes nothing. But for
/// half a surrogate in a text that is not asked for, which only the longer way looks at.
#[test]
fn long_lines_are_what_short_ones_are() {
    let deep = format!(r#"{{"x":{}{},"text":"deep"}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let behind = format!(r#"{{"text":"deep","x":{}1{}}}"#, r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    for line in [
        r#"{"text":"a"}"#,
        r#" {"text" : "a" , "b":[1,{}]} "#,
        r#"{"text":"first","text":"second"}"#,
        r#"{"text":null,"text":"second"}"#,
        r#"{"a":1e999,"text":"x"}"#,
        r#"{"a":-0.0e-400,"text":"x"}"#,
        r#"{"a":01,"text":"x"}"#,
        r#"{"a":1.,"text":"x"}"#,
        r#"{"a":+1,"text":"x"}"#,
        r#"{"a":NaN,"text":"x"}"#,
        r#"{"text":"x","a":NaN}"#,
        r#"{"text":"\ud83d\ude42 \u0000 \/ \b"}"#,
        r#"{"text":"\ud800"}"#,
        r#"{"text":"\udc00\ud800"}"#,
        r#"{"text":"\x"}"#,
        r#"{"text":"a"}}"#,
        r#"{"text":"a"} {"text":"b"}"#,
        r#"{"text":"a",}"#,
        r#"{"text":"a" "b":1}"#,
        r#"{"text":"a""#,
        r#"{"text":"a"#,
        r#"{"text":["a"]}"#,
        r#"{"text":{"text":"a"}}"#,
        r#"["text"]"#,
        r#""text""#,
        "null",
        "nothing",
        r#"{"b":1}"#,
        "{}",
        r"{'text':'a'}",
        r#"{"te\u0078t":"a"}"#,
        "{\"text\":\"tab\there\"}",
        "{\"text\":\"nul\0here\"}",
        r#"{"text":""}"#,
        "{\"text\":\"\u{7f}\u{2028}é\"}",
        r#"{"\ud800":1,"text":"a"}"#,
        "/**/{\"text\":\"a\"}",
        "{\"text\":\"a\"}//",
        &deep,
        &behind,
    ] {
        let short = kept("a.jsonl", line.as_bytes(), &Reading { room: 1 << 30, ..reading(None) });
        let long = kept(
            "a.jsonl",
            format!("{}{line}", " ".repeat(PIECE * 2)).as_bytes(),
            &Reading { room: 1, ..reading(None) },
        );
        let (short, long) = (&short.documents[0], &long.documents[0]);
        assert_eq!(
            short.as_ref().ok(),
            long.as_ref().ok(),
            "{}: {short:?} {long:?}",
            &line[..line.len().min(60)]
        );
    }
}
