//! JSON lines: a document is the text at a path of each object.
//!
//! A line that fits in the room is parsed at once; a longer one is read piece by piece, so that its text may be
//! larger than memory. Where a name stands twice in an object, the first one counts.

use super::{PIECE, Sink, Stream, pieces, skip};
use crate::says::FIELD;
use crate::window::Window;
use lowtide::door::Words;
use lowtide::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::io::{self, Read};
use struson::reader::{JsonReader, JsonStreamReader, ReaderSettings, ValueType};

/// How deep values may be nested in a line that is read piece by piece, each level a byte or two. At once, as deep as
/// there is room for.
const DEEPEST: u32 = 1 << 20;

fn hint() -> Words {
    Words::from("each line is an object with the text in it; ") + FIELD + " says where; " + skip()
}

pub fn read(mut stream: Stream<'_>, path: &[String], room: u64, sink: &mut dyn Sink) -> Result<()> {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let mut text = String::new();
    let first = stream.window.offset() == 0;
    if first && stream.window.fill(3).is_ok_and(|head| head.starts_with("\u{feff}".as_bytes())) {
        stream.window.take(3);
    }
    loop {
        let line = match line(stream.window, room) {
            Ok(line) => line,
            Err(error) => return sink.bad(stream.broken(&error)),
        };
        match line {
            Line::None => return Ok(()),
            Line::Long => long(&mut stream, path, room, sink)?,
            Line::Whole(len) => {
                let bytes = stream.window.fill(len).unwrap_or_default();
                let bytes = bytes[..len.min(bytes.len())].trim_ascii();
                if bytes.is_empty() {
                    stream.window.take(len);
                    continue;
                }
                text.clear();
                if let Err(found) = extract(bytes, path, &mut text) {
                    let error = stream.wrong(0, "a line of JSON with text", &found, hint());
                    stream.window.take(len);
                    sink.bad(error)?;
                    continue;
                }
                pieces(&text).try_for_each(|piece| sink.push(piece))?;
                stream.window.take(len);
                sink.end(stream.mark())?;
            }
        }
    }
}

enum Line {
    /// So many bytes, the line feed included.
    Whole(usize),
    /// More than there is room for.
    Long,
    None,
}

fn line(window: &mut Window, room: usize) -> io::Result<Line> {
    // Where the stream has broken, lines before that are whole.
    if let Some(at) = memchr::memchr(b'\n', window.held()) {
        return Ok(Line::Whole(at + 1));
    }
    let (mut want, mut looked) = (PIECE, window.held().len());
    loop {
        let filled = window.fill(want).map(<[u8]>::len);
        let bytes = window.held();
        if let Some(at) = memchr::memchr(b'\n', &bytes[looked..]) {
            return Ok(Line::Whole(looked + at + 1));
        }
        let len = filled?;
        if len < want {
            return Ok(if len == 0 { Line::None } else { Line::Whole(len) });
        }
        if len >= room {
            return Ok(Line::Long);
        }
        looked = len;
        want = (len * 2).min(room.max(PIECE));
    }
}

/// Puts the text at `path` into `text`, or says what is wrong.
fn extract(line: &[u8], path: &[String], text: &mut String) -> Result<(), String> {
    let mut json = serde_json::Deserializer::from_slice(line);
    let found = Field { path, text }.deserialize(&mut json).map_err(|error| said(&error))?;
    json.end().map_err(|error| said(&error))?;
    match found {
        Found::Text => Ok(()),
        Found::Nothing(names) => Err(missing(path, &names)),
    }
}

/// What the parser says. It knows only this line, and calls it the first.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = if error.is_data() { "" } else { "no JSON: " };
    match text.strip_suffix(&place) {
        Some(text) => format!("{what}{text} in column {}", error.column()),
        None => format!("{what}{text}"),
    }
}

fn missing(path: &[String], names: &[String]) -> String {
    let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    format!("no {}, but {names}", path.join("."))
}

/// Looks for the text at a path, and passes over the rest.
struct Field<'a> {
    path: &'a [String],
    text: &'a mut String,
}

enum Found {
    Text,
    /// What stands there instead.
    Nothing(Vec<String>),
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Found, D::Error> {
        if self.path.is_empty() { json.deserialize_str(self) } else { json.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Found;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str("text")
        } else {
            write!(f, "an object with {:?}", self.path[0])
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<Found, E> {
        self.text.push_str(text);
        Ok(Found::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Found, A::Error> {
        let (mut found, mut names) = (None, Vec::new());
        while let Some(name) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            if found.is_none() && self.path.first().is_some_and(|wanted| *wanted == *name) {
                found = Some(map.next_value_seed(Field { path: &self.path[1..], text: self.text })?);
            } else {
                if names.len() < 8 && found.is_none() {
                    names.push(name.into_owned());
                }
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found.unwrap_or(Found::Nothing(names)))
    }
}

/// The rest of a line as a stream.
struct Rest<'a> {
    window: &'a mut Window,
    over: bool,
    /// Bytes that may be read yet: names are read as a whole, so there is an end to them.
    left: &'a Cell<usize>,
}

impl Read for Rest<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.over || into.is_empty() {
            return Ok(0);
        }
        if self.left.get() == 0 {
            return Err(io::Error::other("a name that is larger than the room for a line"));
        }
        let bytes = self.window.fill(1)?;
        let bytes = &bytes[..bytes.len().min(into.len()).min(self.left.get())];
        let len = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
        into[..len].copy_from_slice(&bytes[..len]);
        self.over = len < bytes.len() || bytes.is_empty();
        let taken = len + usize::from(len < bytes.len());
        self.window.take(taken);
        self.left.set(self.left.get() - taken);
        Ok(len)
    }
}

/// A line that is larger than the room, piece by piece.
fn long(stream: &mut Stream<'_>, path: &[String], room: usize, sink: &mut dyn Sink) -> Result<()> {
    let beginning = stream.wrong(0, "a line of JSON with text", "", hint());
    let left = Cell::new(usize::MAX);
    let mut rest = Rest { window: stream.window, over: false, left: &left };
    let answer = walk(&mut rest, path, &Names { left: &left, room }, sink);
    left.set(usize::MAX);
    let drained = io::copy(&mut rest, &mut io::sink());
    match (answer, drained) {
        (Ok(()), Ok(_)) => sink.end(stream.mark()),
        (Err(Wrong::Sink(error)), _) => Err(error),
        (_, Err(error)) => sink.bad(stream.broken(&error)),
        (Err(Wrong::Line(said)), _) => {
            let error = match beginning {
                Error::Format { path, offset, expected, found, hint } => {
                    Error::Format { path, offset, expected, found: said + &found, hint }
                }
                other => other,
            };
            sink.bad(error)
        }
    }
}

enum Wrong {
    Line(String),
    Sink(Error),
}

/// Reads names, which are held as a whole: none is larger than a line may be.
struct Names<'a> {
    left: &'a Cell<usize>,
    room: usize,
}

impl Names<'_> {
    fn next<R: Read>(&self, json: &mut JsonStreamReader<R>) -> Result<String, Wrong> {
        self.left.set(self.room);
        let name = json.next_name_owned().map_err(|error| Wrong::Line(error.to_string()))?;
        self.left.set(usize::MAX);
        Ok(name)
    }
}

fn walk(line: &mut Rest<'_>, path: &[String], of: &Names<'_>, sink: &mut dyn Sink) -> Result<(), Wrong> {
    let wrong = |error: &dyn fmt::Display| Wrong::Line(error.to_string());
    let settings =
        ReaderSettings { max_nesting_depth: Some(DEEPEST), track_path: false, ..ReaderSettings::default() };
    let mut json = JsonStreamReader::new_custom(line, settings);
    let mut names = Vec::new();
    for wanted in path {
        if json.peek().map_err(|e| wrong(&e))? != ValueType::Object {
            return Err(Wrong::Line(format!("no object where {wanted:?} should be")));
        }
        json.begin_object().map_err(|e| wrong(&e))?;
        names.clear();
        loop {
            if !json.has_next().map_err(|e| wrong(&e))? {
                return Err(Wrong::Line(missing(path, &names)));
            }
            let mut name = of.next(&mut json)?;
            if name == *wanted {
                break;
            }
            if names.len() < 8 {
                name.truncate(name.floor_char_boundary(100));
                names.push(name);
            }
            json.skip_value().map_err(|e| wrong(&e))?;
        }
    }
    if json.peek().map_err(|e| wrong(&e))? != ValueType::String {
        return Err(Wrong::Line(format!("no text at {}", path.join("."))));
    }
    let mut string = json.next_string_reader().map_err(|e| wrong(&e))?;
    let (mut buffer, mut kept) = (vec![0; PIECE], 0);
    loop {
        let got = string.read(&mut buffer[kept..]).map_err(|e| wrong(&e))?;
        let (text, len) = whole_characters(&buffer[..kept + got]);
        sink.push(text).map_err(Wrong::Sink)?;
        buffer.copy_within(len..kept + got, 0);
        kept = kept + got - len;
        if got == 0 {
            break;
        }
    }
    drop(string);
    for _ in path {
        while json.has_next().map_err(|e| wrong(&e))? {
            of.next(&mut json)?;
            json.skip_value().map_err(|e| wrong(&e))?;
        }
        json.end_object().map_err(|e| wrong(&e))?;
    }
    json.consume_trailing_whitespace().map_err(|e| wrong(&e))
}

/// The text at the beginning of bytes that may be cut inside a character, and its length.
fn whole_characters(bytes: &[u8]) -> (&str, usize) {
    let len = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    (std::str::from_utf8(&bytes[..len]).unwrap_or_default(), len)
}
