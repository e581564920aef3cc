//! Megatron's `NAME.idx`: which tokens `NAME.bin` holds, and where its documents lie.
//!
//! In: the first bytes of the index and the sizes of both files. Out: an [`Index`], which knows where its
//! arrays are and reads single entries of them when asked. Nothing is held and nothing allocated: an
//! index can be larger than memory. Entries are checked when they are read.
//!
//! ```text
//! MMIDIDX\0\0  version 1  dtype  S   E   lengths    pointers   documents  modes, perhaps
//! 0            9          17     18  26  34 (i32·S) (i64·S)    (i64·E)    (i8·S)
//! ```
//!
//! A sequence is a run of tokens, by a length and a byte of `NAME.bin`; document d is the sequences
//! `documents[d]..documents[d + 1]`, so that there are E − 1 documents.

use super::dialect::{little, token_dtypes};
use super::{CUT, Dtype, Kind, ReadAt};
use crate::door::{DTYPE, FORMAT, Words};
use crate::error::{Error, Result};
use std::ops::Range;
use std::path::Path;

/// The first bytes of every index.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// Where the arrays begin.
pub const HEADER_LEN: usize = 34;

/// How many sequences of a document are looked at in one read.
const PIECE: usize = 512;

/// What to do about a damaged index.
fn damaged() -> Words {
    Words::from("the index is damaged, or not of this .bin; ") + without_it()
}

fn without_it() -> Words {
    FORMAT.is("nanogpt") + " and " + DTYPE + " read the .bin without it"
}

/// What Megatron's codes for types stand for.
const CODES: [(u8, Kind); 8] = [
    (1, Kind::UInt8),
    (2, Kind::Int8),
    (3, Kind::Int16),
    (4, Kind::Int32),
    (5, Kind::Int64),
    (6, Kind::Float64),
    (7, Kind::Float32),
    (8, Kind::UInt16),
];

/// Where everything lies in an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The type of a token.
    pub dtype: Dtype,
    /// How many sequences there are.
    pub sequences: u64,
    /// How many documents there are.
    pub documents: u64,
}

/// Whether a file that begins with `head` says that it is Megatron's index.
pub fn is_megatron(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

impl Index {
    /// Reads the header. `head` is the beginning of the file, at least [`HEADER_LEN`] bytes of it.
    pub fn parse(path: &Path, head: &[u8], index_len: u64) -> Result<Self> {
        let wrong = |offset, expected: &str, found: String, hint: Words| {
            let expected = expected.to_owned();
            Err(Error::Format { path: path.to_owned(), offset, expected, found, hint })
        };
        let begins = "Megatron's index, which begins with MMIDIDX";
        if index_len == 0 {
            return wrong(0, begins, "an empty file".into(), CUT.into());
        }
        let start = &head[..head.len().min(MAGIC.len())];
        if start != &MAGIC[..start.len()] {
            return wrong(0, begins, format!("\"{}\"", start.escape_ascii()), what_else(start).into());
        }
        if index_len < HEADER_LEN as u64 {
            return wrong(index_len, "a header of 34 bytes", "the end of the file".into(), CUT.into());
        }
        let (Some(version), Some(&code), Some(sequences), Some(entries)) =
            (number(head, 9), head.get(17), number(head, 18), number(head, 26))
        else {
            let (end, found) = (HEADER_LEN as u64, head.len() as u64);
            return Err(Error::Truncated { path: path.to_owned(), offset: 0, end, found });
        };
        if version != 1 {
            return wrong(9, "version 1 of Megatron's index", format!("version {version}"), damaged());
        }
        let Some((_, kind)) = CODES.iter().find(|(known, _)| *known == code) else {
            return wrong(17, "a code for a type, from 1 to 8", code.to_string(), damaged());
        };
        if matches!(kind, Kind::Float32 | Kind::Float64) {
            return Err(Error::unsupported(
                format!("{}: at byte 17: {} is no type for tokens", path.display(), Dtype::native(*kind)),
                format!("tokens are whole numbers: {}", token_dtypes()),
            ));
        }
        // 128 bits: what the header says is believed only once the file's size agrees.
        let (s, e) = (u128::from(sequences), u128::from(entries));
        let bare = HEADER_LEN as u128 + 12 * s + 8 * e;
        if ![bare, bare + s].contains(&u128::from(index_len)) {
            let fairseq = 26 + 12 * s == u128::from(index_len);
            return wrong(
                18,
                &format!("{bare} bytes for {sequences} sequences and {entries} ends of documents"),
                format!("a file of {index_len} bytes"),
                match u128::from(index_len) {
                    _ if fairseq => {
                        Words::from("this looks like fairseq's index, which knows no documents; ")
                            + without_it()
                    }
                    len if len < bare && bare <= i64::MAX as u128 => CUT.into(),
                    _ => damaged(),
                },
            );
        }
        let Some(documents) = entries.checked_sub(1) else {
            return wrong(26, "at least one end of documents, the 0 before the first", "0".into(), damaged());
        };
        Ok(Self { dtype: little(*kind), sequences, documents })
    }

    /// Where the entries begin. None of these can overflow: the file is that long.
    fn length_at(i: u64) -> u64 {
        HEADER_LEN as u64 + 4 * i
    }

    fn pointer_at(&self, i: u64) -> u64 {
        Self::length_at(self.sequences) + 8 * i
    }

    fn document_at(&self, i: u64) -> u64 {
        self.pointer_at(self.sequences) + 8 * i
    }

    /// The end of the last sequence in a data file of `data_len` bytes. It must not be past the end; a data
    /// file may go on behind it.
    pub fn covered(&self, path: &Path, read: ReadAt<'_>, data_len: u64) -> Result<u64> {
        let last = self.sequences.saturating_sub(1)..self.sequences;
        Ok(self.bytes_of(path, read, last, data_len)?.map_or(0, |bytes| bytes.end))
    }

    /// That the documents begin at the first sequence and end with the last.
    pub fn check_documents(&self, path: &Path, read: ReadAt<'_>) -> Result<()> {
        let (first, last) = (self.document_start(read, 0)?, self.document_start(read, self.documents)?);
        let wrong = |i, expected, found: i64| Error::Format {
            path: path.to_owned(),
            offset: self.document_at(i),
            expected,
            found: found.to_string(),
            hint: "some versions of Megatron's merge forgot the documents; windows need none of them".into(),
        };
        if first != 0 {
            return Err(wrong(0, "documents that begin at sequence 0".into(), first));
        }
        if u64::try_from(last) != Ok(self.sequences) {
            let expected = format!("documents that end with the last of {} sequences", self.sequences);
            return Err(wrong(self.documents, expected, last));
        }
        Ok(())
    }

    /// The tokens of document `i`, which must be one of [`documents`](Self::documents), in a data file of
    /// `data_len` bytes.
    pub fn document(&self, path: &Path, read: ReadAt<'_>, i: u64, data_len: u64) -> Result<Range<u64>> {
        let mut pair = [0; 16];
        read(self.document_at(i), &mut pair)?;
        let [said, then] = [0, 8].map(|at| number(&pair, at).map_or(-1, u64::cast_signed));
        let sequences = match (u64::try_from(said), u64::try_from(then)) {
            (Ok(first), Ok(end)) if first <= end && end <= self.sequences => first..end,
            _ => {
                return Err(Error::Format {
                    path: path.to_owned(),
                    offset: self.document_at(i),
                    expected: format!("document {i} to be some of {} sequences", self.sequences),
                    found: format!("{said} to {then}"),
                    hint: damaged(),
                });
            }
        };
        let bytes = if let Some(bytes) = self.bytes_of(path, read, sequences.clone(), data_len)? {
            bytes
        } else {
            // No sequences have a place all the same: where the next one begins, or the last one ends.
            let next = sequences.start..self.sequences.min(sequences.start + 1);
            let at = match self.bytes_of(path, read, next, data_len)? {
                Some(next) => next.start,
                None => self.covered(path, read, data_len)?,
            };
            at..at
        };
        let width = self.dtype.itemsize() as u64;
        Ok(bytes.start / width..bytes.end / width)
    }

    /// Entry `i` of the documents: the first sequence of document `i`.
    fn document_start(&self, read: ReadAt<'_>, i: u64) -> Result<i64> {
        let mut bytes = [0; 8];
        read(self.document_at(i), &mut bytes)?;
        Ok(i64::from_le_bytes(bytes))
    }

    /// The bytes of sequences, which must follow each other in the data file; `None` of no sequences.
    fn bytes_of(
        &self,
        path: &Path,
        read: ReadAt<'_>,
        sequences: Range<u64>,
        data_len: u64,
    ) -> Result<Option<Range<u64>>> {
        let (mut lengths, mut pointers) = ([0; 4 * PIECE], [0; 8 * PIECE]);
        let mut whole: Option<Range<u64>> = None;
        let mut first = sequences.start;
        while first < sequences.end {
            let count = (sequences.end - first).min(PIECE as u64);
            let n = usize::try_from(count).unwrap_or(PIECE);
            read(Self::length_at(first), &mut lengths[..4 * n])?;
            read(self.pointer_at(first), &mut pointers[..8 * n])?;
            let entries = lengths.as_chunks().0.iter().zip(pointers.as_chunks().0);
            for (i, (length, pointer)) in (first..first + count).zip(entries) {
                let (length, pointer) = (i32::from_le_bytes(*length), i64::from_le_bytes(*pointer));
                let bytes = self.sequence(path, i, length, pointer, data_len)?;
                let start = match &whole {
                    None => bytes.start,
                    Some(before) if before.end == bytes.start => before.start,
                    Some(before) => {
                        return Err(Error::Format {
                            path: path.to_owned(),
                            offset: self.pointer_at(i),
                            expected: format!("sequence {i} to follow the last one at byte {}", before.end),
                            found: format!("byte {}", bytes.start),
                            hint: "the parts of this document are scattered: it is not one range of tokens"
                                .into(),
                        });
                    }
                };
                whole = Some(start..bytes.end);
            }
            first += count;
        }
        Ok(whole)
    }

    /// The bytes of one sequence, checked against the data file.
    fn sequence(&self, path: &Path, i: u64, length: i32, pointer: i64, data_len: u64) -> Result<Range<u64>> {
        let wrong = |offset, expected: &str, found: String, hint: Words| {
            let expected = format!("{expected} for sequence {i}");
            Err(Error::Format { path: path.to_owned(), offset, expected, found, hint })
        };
        let width = self.dtype.itemsize() as u64;
        let Ok(length) = u64::try_from(length) else {
            return wrong(Self::length_at(i), "a length", length.to_string(), damaged());
        };
        let Some(start) = u64::try_from(pointer).ok().filter(|at| at.is_multiple_of(width)) else {
            let expected = format!("a byte where a token of {} can begin", self.dtype);
            return wrong(self.pointer_at(i), &expected, pointer.to_string(), damaged());
        };
        // Below 2^63 + 2^34: no overflow.
        let end = start + length * width;
        if end > data_len {
            let expected = format!("bytes inside the .bin, which has {data_len},");
            return wrong(self.pointer_at(i), &expected, format!("{start} to {end}"), CUT.into());
        }
        Ok(start..end)
    }
}

/// The u64 at `at`.
fn number(head: &[u8], at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// A hint for files that are called `.idx` and are something else.
fn what_else(start: &[u8]) -> &'static str {
    if start.starts_with(b"TNTIDX") { "this is fairseq's old index, which is not read" } else { "" }
}

/// The header of an index of `documents` documents of one sequence each: what [`Index::parse`] reads. The lengths,
/// the byte pointers and `documents` + 1 ends follow.
///
/// # Errors
/// [`Error::Argument`] for a type that Megatron has no code for.
pub fn header(dtype: Dtype, documents: u64) -> Result<Vec<u8>> {
    let Some((code, _)) = CODES.iter().find(|(_, kind)| little(*kind) == dtype) else {
        return Err(Error::argument(
            format!("Megatron has no files of {dtype}"),
            "its tokens are uint16 or int32",
        ));
    };
    let mut header = MAGIC.to_vec();
    header.extend(1_u64.to_le_bytes());
    header.push(*code);
    header.extend(documents.to_le_bytes());
    header.extend((documents + 1).to_le_bytes());
    Ok(header)
}
