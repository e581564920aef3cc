//! Plain text: a file is a document, or what lies between separators is.

use super::{PIECE, Sink, Stream, skip};
use lowtide::Result;
use lowtide::door::Words;

/// What belongs to the end of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Nothing but the separator.
    Exact,
    /// A carriage return before the line feed too.
    Lines,
}

pub fn read(mut stream: Stream<'_>, separator: Option<&str>, ends: Ends, sink: &mut dyn Sink) -> Result<()> {
    let separator = separator.unwrap_or_default().as_bytes();
    loop {
        match document(&mut stream, separator, ends, sink) {
            Ok(Document::Whole) => sink.end(stream.mark())?,
            Ok(Document::Last) => return sink.end(None),
            Ok(Document::None) => return Ok(()),
            Err(Wrong::Text(error)) => {
                sink.bad(error)?;
                if !pass(&mut stream, separator)? {
                    return Ok(());
                }
            }
            Err(Wrong::Stream(error)) => return sink.bad(error),
            Err(Wrong::Sink(error)) => return Err(error),
        }
    }
}

enum Document {
    Whole,
    Last,
    None,
}

enum Wrong {
    Text(lowtide::Error),
    Stream(lowtide::Error),
    Sink(lowtide::Error),
}

/// Pushes one document, up to the separator or the end of the stream.
fn document(
    stream: &mut Stream<'_>,
    separator: &[u8],
    ends: Ends,
    sink: &mut dyn Sink,
) -> Result<Document, Wrong> {
    let mut begun = false;
    loop {
        let want = PIECE + separator.len() + 4;
        let broken = stream.window.fill(want).err();
        let bytes = stream.window.held();
        let bytes = &bytes[..bytes.len().min(want)];
        let found = if separator.is_empty() { None } else { memchr::memmem::find(bytes, separator) };
        // Where the stream has broken, documents before that are whole.
        if let (Some(error), None) = (broken, found) {
            return Err(Wrong::Stream(stream.broken(&error)));
        }
        let last = found.is_none() && bytes.len() < want;
        if last && !begun && bytes.is_empty() && !separator.is_empty() {
            return Ok(Document::None); // behind the last separator; a whole file is a document though it be empty
        }
        let len = match found {
            Some(at) => at,
            None if last => bytes.len(),
            // The separator may begin in what is left.
            None => PIECE,
        };
        let mut text = &bytes[..len];
        if ends == Ends::Lines && text.last() == Some(&b'\r') {
            text = &text[..len - 1]; // where more follows, it comes again with the next piece
        }
        let (text, invalid) = valid(text, found.is_some() || last);
        sink.push(text).map_err(Wrong::Sink)?;
        let taken = text.len();
        if let Some(byte) = invalid {
            let expected = "text in UTF-8";
            let hint = Words::from("convert it to UTF-8; ") + skip();
            return Err(Wrong::Text(stream.wrong(taken, expected, &format!("the byte {byte:#04x}"), hint)));
        }
        begun = true;
        match found {
            Some(at) => {
                stream.window.take(at + separator.len());
                return Ok(Document::Whole);
            }
            None if last => {
                stream.window.take(len);
                return Ok(Document::Last);
            }
            None => stream.window.take(taken),
        }
    }
}

/// As much of `bytes` as is text, and the first byte that is none. A character that is cut at the end is left for
/// the next piece, unless there is none.
fn valid(bytes: &[u8], whole: bool) -> (&str, Option<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (text, rest) = bytes.split_at(error.valid_up_to());
            let cut = error.error_len().is_none() && !whole;
            (std::str::from_utf8(text).unwrap_or_default(), if cut { None } else { rest.first().copied() })
        }
    }
}

/// Passes over the rest of a document; whether another can follow.
fn pass(stream: &mut Stream<'_>, separator: &[u8]) -> Result<bool> {
    if separator.is_empty() {
        return Ok(false);
    }
    loop {
        let broken = stream.window.fill(PIECE + separator.len()).is_err();
        let bytes = stream.window.held();
        if let Some(at) = memchr::memmem::find(bytes, separator) {
            stream.window.take(at + separator.len());
            return Ok(true);
        }
        if broken {
            return Ok(true); // the next document says it
        }
        if bytes.len() < PIECE + separator.len() {
            return Ok(false);
        }
        let all = bytes.len() - (separator.len() - 1);
        stream.window.take(all);
    }
}
