//! What a source is, by its name and its first bytes: text, JSON lines or a table.
//!
//! In: a source that was opened, and what was asked for. Out: its kind, or an error that names the settings which decide
//! it. A name that tells is believed, whatever is in the file. Standard input, `part-00001` and `dump.zst` tell nothing:
//! there the first line does. It is looked at in the stream and put back, for a pipe cannot be rewound; no more than
//! [`LINE`] bytes of it are ever held.

use super::{Reading, skip};
use crate::inputs::Source;
use crate::job::{InputKind, Settings};
use crate::packing::Opened;
use crate::says::{FIELD, INPUT, SEPARATOR, SPLIT_LINES};
use lowtide::door::Words;
use lowtide::format::{Foreign, Wanted};
use lowtide::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// So much of a first line is looked at.
const LINE: usize = 64 << 10;

/// What a Parquet file begins with.
const PARQUET: &[u8; 4] = b"PAR1";

/// What a name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Jsonl,
    Table,
    Text,
    /// `.json`: an object as a whole, or one in each line, as C4 has them.
    Json,
    Nothing,
}

impl Name {
    /// Of a path, without what says how the file is packed. A number at the end, as of a part, tells nothing.
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = [".gz", ".zst", ".zstd"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        match Path::new(name).extension().and_then(|end| end.to_str()) {
            Some("jsonl" | "ndjson" | "jsonlines") => Self::Jsonl,
            Some("parquet") => Self::Table,
            Some("json") => Self::Json,
            Some(end) if !end.bytes().all(|byte| byte.is_ascii_digit()) => Self::Text,
            _ => Self::Nothing,
        }
    }
}

/// That the settings about documents are of use for what the inputs are, as far as their names tell: nothing that was
/// asked for is passed over without a word.
pub fn fit(settings: &Settings, sources: &[Source]) -> Result<()> {
    let name = |source: &Source| Name::of(source.path());
    let rows = |source: &&Source| matches!(name(source), Name::Jsonl | Name::Table);
    match settings.input {
        Some(InputKind::Lines) => match sources.iter().find(rows) {
            Some(source) => Err(not_lines(source.path(), name(source) == Name::Table)),
            None => Ok(()),
        },
        None if settings.separator.is_some() && sources.iter().all(|source| rows(&source)) => {
            Err(no_separator(sources.first().map_or(Path::new("-"), Source::path)))
        }
        None if settings.asks_for_field()
            && sources.iter().all(|source| name(source) == Name::Text && !is_table(source.path())) =>
        {
            Err(no_field(sources.first().map_or(Path::new("-"), Source::path), &settings.field))
        }
        _ => Ok(()),
    }
}

/// Whether a file is a table, whatever it is called. One that cannot be read says so later.
fn is_table(path: &Path) -> bool {
    let mut head = [0; PARQUET.len()];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head == *PARQUET
}

/// What a source is, by what was asked for, its first unpacked bytes and its name. An archive, or another file that is
/// no text, is refused by name: some of them are text enough to become tokens.
pub fn kind(source: &Source, opened: &mut Opened, how: &Reading) -> Result<InputKind> {
    let path = source.path();
    let name = Name::of(path);
    if let Some(kind) = how.kind {
        // Who names a file otherwise, or says so, has lines that happen to be JSON.
        if kind == InputKind::Lines
            && name == Name::Nothing
            && first(opened, &how.field) == (First::Object { field: true })
        {
            return Err(not_lines(path, false));
        }
        return Ok(kind);
    }
    if opened.head.starts_with(PARQUET) {
        return Ok(InputKind::Parquet);
    }
    if let (Some(other), false) = (Foreign::of(&opened.head, source.bytes()), is_text(&opened.head)) {
        return Err(Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: "text, JSON lines or Parquet, plain or as gzip or zstd".into(),
            found: other.name().into(),
            hint: if other.is_packed() { other.way_out(Wanted::Tokens) } else { skip() },
        });
    }
    let first = match name {
        Name::Jsonl => return Ok(InputKind::Jsonl),
        Name::Text | Name::Table => return Ok(InputKind::Text),
        Name::Json | Name::Nothing => first(opened, &how.field),
    };
    match first {
        First::Object { .. } if how.separator.is_some() => Err(no_separator(path)),
        First::Object { field: true } => Ok(InputKind::Jsonl),
        // One object and no more is a document of JSON, as a folder of sources has them.
        First::Only if name == Name::Json => Ok(InputKind::Text),
        First::Object { field: false } | First::Only => Err(Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: format!("text, or JSON lines with {}", how.field.join(".")),
            found: "a JSON object without it (line 1)".into(),
            hint: INPUT.is("jsonl")
                + " with "
                + FIELD
                + " says where the text is; "
                + INPUT.is("text")
                + " takes the JSON itself for text",
        }),
        First::Other if how.field_needed => Err(no_field(path, &how.field.join("."))),
        First::Other => Ok(InputKind::Text),
    }
}

fn not_lines(path: &Path, table: bool) -> Error {
    if table {
        return Error::argument(
            Words::from(format!("{}: ", path.display())) + SPLIT_LINES.on() + " is for text, not for a table",
            Words::from("leave it out: each row is a document"),
        );
    }
    Error::argument(
        Words::from(format!("{}: ", path.display())) + SPLIT_LINES.on() + " is for text, not for JSON lines",
        Words::from("leave it out: each line is a document already; ")
            + INPUT.is("text")
            + " with a line feed as "
            + SEPARATOR
            + " takes the JSON itself for text",
    )
}

fn no_separator(path: &Path) -> Error {
    Error::argument(
        Words::from(format!("{}: ", path.display()))
            + SEPARATOR
            + " is for text, not for JSON lines or tables",
        Words::from("leave it out: lines and rows have their own ends; ")
            + INPUT.is("text")
            + " takes the JSON itself for text",
    )
}

fn no_field(path: &Path, field: &str) -> Error {
    Error::argument(
        Words::from(format!("{}: ", path.display()))
            + FIELD.is(field.to_owned())
            + " is for JSON lines and tables, not for text",
        Words::from("leave it out, or say what the input is: ") + INPUT.is("jsonl"),
    )
}

/// Whether a file that begins so can be text: a few letters can be the first bytes of other files, too.
fn is_text(head: &[u8]) -> bool {
    let utf8 = std::str::from_utf8(head).map_or_else(|error| error.error_len().is_none(), |_| true);
    utf8 && !head.contains(&0)
}

/// What the first line that is not blank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A JSON object, or the beginning of one that goes on; and whether the field was in it.
    Object {
        field: bool,
    },
    /// A JSON object without the field, and nothing behind it.
    Only,
    Other,
}

fn first(opened: &mut Opened, field: &[String]) -> First {
    let begins = |bytes: &[u8]| matches!(content(bytes).first(), None | Some(b'{'));
    // Most texts are told from JSON by their first letter: no more of them is waited for.
    if !begins(&opened.head) {
        return First::Other;
    }
    // One letter of the second line says that there is one.
    let enough = |bytes: &[u8]| {
        let line = content(bytes);
        let end = memchr::memchr(b'\n', line);
        !begins(bytes) || end.is_some_and(|end| !line[end..].trim_ascii().is_empty())
    };
    let ended = opened.look(LINE, &enough);
    judge(&opened.head, ended, field)
}

/// What stands behind a mark of UTF-8 and blank lines.
fn content(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start()
}

/// What the first line of these bytes is, which are all that there are where the stream has `ended`.
fn judge(bytes: &[u8], ended: bool, field: &[String]) -> First {
    let bytes = content(bytes);
    let (line, cut, more) = match memchr::memchr(b'\n', bytes) {
        Some(end) => (&bytes[..end], false, !ended || !bytes[end..].trim_ascii().is_empty()),
        None => (bytes, !ended, !ended),
    };
    if line.first() != Some(&b'{') {
        return First::Other;
    }
    let mut found = false;
    let mut json = serde_json::Deserializer::from_slice(line);
    let parsed = Names { path: field, found: &mut found }.deserialize(&mut json).and_then(|()| json.end());
    match parsed {
        Ok(()) if found || more => First::Object { field: found },
        Ok(()) => First::Only,
        // All of it is JSON as far as it was looked at. The last character or number may be cut, too.
        Err(error) if cut && (error.is_eof() || error.column() + 4 > line.len()) => {
            First::Object { field: found }
        }
        Err(_) => First::Other,
    }
}

/// Looks whether there is something at a path of names. What is no object is passed over.
struct Names<'a> {
    path: &'a [String],
    found: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            // Before its value: that may be cut.
            *self.found = true;
            return json.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            match self.path {
                [wanted, rest @ ..] if *wanted == *name => {
                    map.next_value_seed(Names { path: rest, found: &mut *self.found })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{First, LINE, Name, judge};
    use std::path::Path;

    #[test]
    fn a_name_that_tells_is_believed() {
        for (path, name) in [
            ("-", Name::Nothing),
            ("d", Name::Nothing),
            ("/dev/fd/63", Name::Nothing),
            ("d.zst", Name::Nothing),
            ("v1.5/part-00001", Name::Nothing),
            ("d.00001.GZ", Name::Nothing),
            ("c4.json.gz", Name::Json),
            ("d.JSONL.zst", Name::Jsonl),
            ("d.ndjson", Name::Jsonl),
            ("d.parquet", Name::Table),
            ("d.txt.gz", Name::Text),
            ("a.py", Name::Text),
            ("README.md", Name::Text),
        ] {
            assert_eq!(Name::of(Path::new(path)), name, "{path}");
        }
    }

    #[test]
    fn the_first_line_is_a_json_object_or_it_is_not() {
        let (with, without) = (First::Object { field: true }, First::Object { field: false });
        let deep = ["a".to_owned(), "b".to_owned()];
        for (bytes, ended, wanted) in [
            ("{\"a\":{\"b\":\"x\"}}\n{\"a\"", true, with),
            ("\u{feff}\r\n\n {\"a\":{\"b\":\"x\"}}", true, with),
            ("{\"z\":[{}],\"a\":{\"b\":5},\"y\":null}\n", true, with),
            ("{\"z\":1,\"a\":{\"b\":\"cut", false, with),
            ("{\"a\":{\"b\":\"cut \u{20ac}", false, with),
            ("{\"a\":{\"b\":\"cut", true, First::Other),
            ("{\"b\":{\"a\":\"x\"}}\n{}", true, without),
            ("{\"a\":\"x\"}\n{}", true, without),
            ("{\"a\":[1, 2.5, true]}\n", false, without),
            ("{\"z\": \"long", false, without),
            ("{\"z\": 1}\n\n", true, First::Only),
            ("{}", true, First::Only),
            ("{\n  \"a\": {\"b\": 1}\n}\n", true, First::Other),
            ("{ if (x) return; }\n", true, First::Other),
            ("{\"a\":{\"b\":1}} and more\n", true, First::Other),
            ("{% block %}", false, First::Other),
            ("[{\"a\":{\"b\":1}}]", true, First::Other),
            ("\"a\"\n", true, First::Other),
            ("words", true, First::Other),
            ("", true, First::Other),
        ] {
            assert_eq!(judge(bytes.as_bytes(), ended, &deep), wanted, "{bytes}");
        }
        // Wherever it is cut, in whichever character.
        let line = "{\"a\":{\"b\":\"\u{1f600}é\\u00e9x\",\"c\":[1.5e3,true,null]},\"d\":\"\u{20ac}\"}";
        for cut in 1..line.len() {
            let first = judge(&line.as_bytes()[..cut], false, &deep);
            assert_eq!(first, if cut < 10 { without } else { with }, "{cut}");
        }
        assert_eq!(judge(&vec![b' '; LINE], false, &deep), First::Other);
    }
}
