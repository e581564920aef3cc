//! A stretch of a large file: the documents that begin in a range of its bytes, so that several machines share one file.
//!
//! A document begins behind a separator. Whoever reads from the first byte on finds separators one after the other, and
//! none inside another; from any other byte on, one counts for sure only where no other overlaps it from the left. So
//! every cut is moved on to the end of the first such separator: a function of the file and the cut alone. Two ranges
//! that touch agree on it, and together they have every document once.

use super::{PIECE, Reading, Sink, Stream, json, text, told};
use crate::inputs::Source;
use crate::job::InputKind;
use crate::packing::{self, Packing};
use crate::window::Window;
use lowtide::{Error, Result};
use memchr::memmem::Finder;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// What a source is and what stands between its documents, where it can be read in ranges: a plain file with documents
/// in it that end with something. A table, a packed file or a file that is one document is read as a whole.
pub fn divisible(source: &Source, how: &Reading) -> Result<Option<(InputKind, Vec<u8>)>> {
    let mut opened = packing::open(source, how.cache, &how.gauge, how.room)?;
    if opened.file.is_none() || opened.packing != Packing::Plain {
        return Ok(None);
    }
    let kind = told::kind(source, &mut opened, how)?;
    let separator = match kind {
        InputKind::Lines | InputKind::Jsonl => Some("\n"),
        InputKind::Text => how.separator.as_deref(),
        InputKind::Parquet => None,
    };
    Ok(separator.map(|text| (kind, text.as_bytes().to_vec())))
}

/// Reads the documents of a source that begin in a range, moved on as every cut is.
pub fn read_range(source: &Source, how: &Reading, range: &Range<u64>, sink: &mut dyn Sink) -> Result<()> {
    source.unchanged()?;
    let path = source.path();
    let Some((kind, separator)) = divisible(source, how)? else {
        return Err(Error::Bug { what: format!("{} cannot be read in ranges", path.display()) });
    };
    let file = File::open(path).map_err(|error| Error::io(path, "open the file", error))?;
    let cut = |at, most| {
        cut(&|at, into| file.read_at(into, at), source.bytes(), &separator, at, most)
            .map_err(|error| Error::io(path, "read the file", error))
    };
    if let Some(start) = cut(range.start, Some(range.end))?
        && let Some(end) = cut(range.end, None)?
        && start < end
    {
        let stream = packing::open_at(source, start, how.cache, &how.gauge)?.take(end - start);
        let mut window = Window::behind(Box::new(stream), start, path);
        let stream = Stream { path, window: &mut window, marks: false };
        match kind {
            InputKind::Jsonl => json::read(stream, &how.field, how.room, sink)?,
            InputKind::Lines => text::read(stream, Some("\n"), text::Ends::Lines, sink)?,
            _ => text::read(stream, how.separator.as_deref(), text::Ends::Exact, sink)?,
        }
    }
    source.unchanged()
}

/// Where a cut at byte `at` is moved to, in a file of `len` bytes: where a document begins, or the end. `None` where that
/// is no earlier than for a cut at `most`: then nothing begins between them.
fn cut(
    read: &dyn Fn(u64, &mut [u8]) -> io::Result<usize>,
    len: u64,
    separator: &[u8],
    at: u64,
    most: Option<u64>,
) -> io::Result<Option<u64>> {
    if at == 0 || at >= len {
        return Ok(most.is_none_or(|most| at < most).then_some(at.min(len)));
    }
    let (finder, size) = (Finder::new(separator), separator.len() as u64);
    // Separators from here on are seen, those from `first` on count.
    let (mut base, first) = (at.saturating_sub(2 * size), at.saturating_sub(size));
    let most = most.filter(|&most| most < len).map(|most| most.saturating_sub(size));
    let (mut bytes, mut last) = (Vec::new(), None::<u64>);
    loop {
        let held = bytes.len();
        bytes.resize(held + PIECE, 0);
        let got = loop {
            match read(base + held as u64, &mut bytes[held..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                answer => break answer?,
            }
        };
        bytes.truncate(held + got);
        let mut from = 0;
        while let Some(found) = finder.find(&bytes[from..]) {
            let place = base + (from + found) as u64;
            if most.is_some_and(|most| place >= most) {
                return Ok(None);
            }
            let alone = last.is_none_or(|last| place - last >= size);
            if place >= first && alone {
                return Ok(Some(place + size));
            }
            last = Some(place);
            from += found + 1;
        }
        if got == 0 {
            return Ok(most.is_none().then_some(len));
        }
        // A separator may begin in what is left.
        let kept = bytes.len().saturating_sub(separator.len() - 1).max(from);
        bytes.drain(..kept);
        base += kept as u64;
        if most.is_some_and(|most| base >= most) {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cut;
    use proptest::prelude::*;

    /// Where documents begin, as a reader from the first byte on finds them, and the end.
    fn beginnings(text: &[u8], separator: &[u8]) -> Vec<u64> {
        let (mut all, mut from) = (vec![0], 0);
        while let Some(at) = memchr::memmem::find(&text[from..], separator) {
            from += at + separator.len();
            all.push(from as u64);
        }
        all.push(text.len() as u64);
        all
    }

    proptest! {
        #[test]
        fn cuts_are_where_documents_begin(
            text in "[ab\n]{0,200}",
            separator in prop_oneof![Just("\n"), Just("\n\n"), Just("aba"), Just("aa"), Just("ab\nab")],
            step in 1_u64..40,
        ) {
            let (text, separator) = (text.as_bytes(), separator.as_bytes());
            // Few bytes at a time, as a slow disk gives them.
            let read = |at: u64, into: &mut [u8]| {
                let rest = text.get(usize::try_from(at).unwrap()..).unwrap_or_default();
                let some = rest.len().min(into.len()).min(7);
                into[..some].copy_from_slice(&rest[..some]);
                Ok(some)
            };
            let len = text.len() as u64;
            let begins = beginnings(text, separator);
            let mut before = 0;
            for at in (0..len + step).step_by(usize::try_from(step).unwrap()) {
                let here = cut(&read, len, separator, at, None).unwrap().unwrap();
                prop_assert!(begins.contains(&here) && here >= before, "{at}: {here} of {begins:?}");
                prop_assert!(at == 0 || here >= at.min(len), "{at} is moved on to {here}");
                let next = cut(&read, len, separator, at + step, None).unwrap().unwrap();
                let bounded = cut(&read, len, separator, at, Some(at + step)).unwrap();
                prop_assert_eq!(bounded.filter(|&start| start < next), (here < next).then_some(here));
                before = here;
            }
            // Where separators cannot overlap, no document is further than its own length from a cut.
            if separator == b"\n" {
                for &begin in &begins {
                    prop_assert_eq!(cut(&read, len, separator, begin, None).unwrap(), Some(begin));
                }
            }
        }
    }
}
