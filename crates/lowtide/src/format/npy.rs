//! NumPy's `.npy` header: which elements, which shape, and where they begin.
//!
//! In: the first bytes of a file and its size. Out: a [`Layout`] that describes exactly the rest of the
//! file, or an error that says where the header is wrong. The header is a Python dict; it is read by
//! a strict parser and never evaluated, and its length is checked before anybody allocates for it.
//!
//! ```text
//! \x93NUMPY  major minor  length (2 bytes in version 1, 4 in 2 and 3)  {'descr': '<f4', …}  elements
//! 0          6     7      8                                            10 or 12             header_len
//! ```
//!
//! A caller reads the first few KiB, asks [`header_len`] whether they are enough, reads more if not, and
//! calls [`parse`].

use super::literal::{Literals, Wrong};
use super::{CUT, Container, Dtype, Foreign, Layout, Order, Wanted, shape_text};
use crate::door::{DTYPE, OFFSET, SHAPE, Words};
use crate::error::{Error, Result};
use crate::size::human;
use std::borrow::Cow;
use std::path::Path;

/// The first bytes of every `.npy` file.
pub const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header that is read. Ours take under 2 KiB; only a structured dtype of thousands of
/// fields, which is refused by name, comes near this.
pub const MAX_HEADER_LEN: usize = 1 << 20;

/// What to do about a damaged header.
fn damaged() -> Words {
    Words::from("the header is damaged or was not written by NumPy; ")
        + DTYPE
        + ", "
        + SHAPE
        + " and "
        + OFFSET
        + " read the file as raw"
}

/// Whether a file that begins with `head` says that it is a `.npy` file.
pub fn is_npy(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// How many bytes the magic, the version, the length and the header take together: where the elements
/// begin. Needs the first 12 bytes of the file (or all of them, if there are fewer).
pub fn header_len(path: &Path, head: &[u8], file_len: u64) -> Result<usize> {
    Prefix::read(path, head, file_len).map(|prefix| prefix.header_len)
}

/// Reads the header. `head` is the beginning of the file, at least [`header_len`] bytes of it.
pub fn parse(path: &Path, head: &[u8], file_len: u64) -> Result<Layout> {
    let layout = parse_first(path, head, file_len)?;
    let (end, dtype) = (layout.offset + layout.nbytes(), layout.dtype);
    if end < file_len {
        let data = format!("{} bytes for {} of {dtype}", layout.nbytes(), shape_text(&layout.shape));
        return Err(Error::Format {
            path: path.to_owned(),
            offset: end,
            expected: format!("the end of the file after {data}"),
            found: format!("{} more bytes", file_len - end),
            hint: Words::from("several np.save calls into one file? to read only the first array: ")
                + raw_words(dtype.numpy_str(), &layout.shape, layout.order, layout.offset),
        });
    }
    Ok(layout)
}

/// The same, whatever comes behind the elements.
pub fn parse_first(path: &Path, head: &[u8], file_len: u64) -> Result<Layout> {
    let prefix = Prefix::read(path, head, file_len)?;
    let Some(header) = head.get(prefix.text_at..prefix.header_len) else {
        return Err(short_read(path, head, prefix.header_len));
    };
    let text = Text::decode(path, header, &prefix)?;
    let header = Header::read(&text.text).map_err(|wrong| text.error(path, wrong))?;
    let offset = prefix.header_len as u64;
    let dtype = header.dtype(path, &text, offset)?;
    let Header { shape, order, .. } = header;
    let container = Container::Npy { version: prefix.version };
    Layout::new(path, container, dtype, shape, order, offset, file_len).map_err(hinted)
}

/// A shape that overflows gets a hint here: what wrote it is known only to a format.
fn hinted(error: Error) -> Error {
    match &error {
        Error::Format { hint, .. } if hint.is_empty() => error.with_hint(damaged()),
        _ => error,
    }
}

/// What stands before the dict.
struct Prefix {
    version: u8,
    /// Where the dict begins.
    text_at: usize,
    /// Where the elements begin: never past the end of the file, nor past [`MAX_HEADER_LEN`].
    header_len: usize,
}

impl Prefix {
    fn read(path: &Path, head: &[u8], file_len: u64) -> Result<Self> {
        let wrong = |offset, expected: &str, found: String, hint: Words| {
            let expected = expected.to_owned();
            Err(Error::Format { path: path.to_owned(), offset, expected, found, hint })
        };
        let cut = |needed: usize, expected: &str| {
            if file_len >= needed as u64 {
                return Err(short_read(path, head, needed));
            }
            wrong(file_len, expected, "the end of the file".into(), CUT.into())
        };
        if file_len == 0 {
            return wrong(0, "a .npy file, which begins with \\x93NUMPY", "an empty file".into(), CUT.into());
        }
        let start = &head[..head.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            let found = format!("\"{}\"", start.escape_ascii());
            return wrong(0, "a .npy file, which begins with \\x93NUMPY", found, what_else(head, file_len));
        }
        if start.len() < MAGIC.len() {
            return cut(MAGIC.len(), "the rest of \\x93NUMPY");
        }
        let &[_, _, _, _, _, _, version, minor, ..] = head else {
            return cut(8, "two bytes for the version of the .npy format");
        };
        let width = match (version, minor) {
            (1, 0) => 2,
            (2 | 3, 0) => 4,
            _ => {
                let found = format!("version {version}.{minor}");
                return wrong(6, "version 1.0, 2.0 or 3.0 of the .npy format", found, damaged());
            }
        };
        let text_at = 8 + width;
        let Some(length) = head.get(8..text_at) else {
            return cut(text_at, &format!("{width} bytes for the length of the header"));
        };
        let length = length.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let left = file_len.saturating_sub(text_at as u64);
        if length > left {
            let expected = format!("a header of {length} bytes");
            return wrong(8, &expected, format!("{left} bytes before the end of the file"), CUT.into());
        }
        match usize::try_from(length).ok().and_then(|length| length.checked_add(text_at)) {
            Some(header_len) if header_len <= MAX_HEADER_LEN => Ok(Self { version, text_at, header_len }),
            _ => wrong(
                8,
                &format!("a header of at most {}", human(MAX_HEADER_LEN as u64)),
                format!("a length of {length} bytes"),
                damaged(),
            ),
        }
    }
}

/// The caller holds fewer bytes of the file than `file_len` promised.
fn short_read(path: &Path, head: &[u8], needed: usize) -> Error {
    Error::Truncated { path: path.to_owned(), offset: 0, end: needed as u64, found: head.len() as u64 }
}

/// A hint for files that carry the name `.npy` (or were taken for one) and are something else.
fn what_else(head: &[u8], file_len: u64) -> Words {
    match Foreign::of(head, file_len) {
        Some(kind) => Words::from(format!("this is {}; ", kind.name())) + kind.way_out(Wanted::Array),
        None => {
            Words::from("a file without a header needs ")
                + DTYPE
                + ", and "
                + SHAPE
                + " and "
                + OFFSET
                + " where they matter"
        }
    }
}

/// The header as text, and how to find its bytes again.
struct Text<'a> {
    text: Cow<'a, str>,
    /// Where in the file it begins.
    at: usize,
}

impl<'a> Text<'a> {
    /// Versions 1 and 2 are Latin-1, version 3 is UTF-8.
    fn decode(path: &Path, header: &'a [u8], prefix: &Prefix) -> Result<Self> {
        let text = match std::str::from_utf8(header) {
            Ok(text) if prefix.version == 3 || header.is_ascii() => Cow::Borrowed(text),
            Err(bad) if prefix.version == 3 => {
                return Err(Error::Format {
                    path: path.to_owned(),
                    offset: (prefix.text_at + bad.valid_up_to()) as u64,
                    expected: "UTF-8, as version 3 of the .npy format has it".into(),
                    found: format!("\"{}\"", header[bad.valid_up_to()..][..1].escape_ascii()),
                    hint: damaged(),
                });
            }
            _ => Cow::Owned(header.iter().map(|&byte| char::from(byte)).collect()),
        };
        Ok(Self { text, at: prefix.text_at })
    }

    /// The byte of the file that a place in the text came from.
    fn offset(&self, at: usize) -> u64 {
        let inside = match &self.text {
            Cow::Borrowed(_) => at,
            // Latin-1: each character was one byte.
            Cow::Owned(text) => text.char_indices().take_while(|&(i, _)| i < at).count(),
        };
        (self.at + inside) as u64
    }

    fn error(&self, path: &Path, Wrong { at, expected, found }: Wrong) -> Error {
        Error::Format { path: path.to_owned(), offset: self.offset(at), expected, found, hint: damaged() }
    }
}

/// What the dict says.
struct Header {
    descr: Descr,
    descr_at: usize,
    shape: Vec<usize>,
    order: Order,
}

/// The element type as the header has it.
enum Descr {
    Word(String),
    Structured,
    SubArray,
}

impl Header {
    fn read(text: &str) -> Result<Self, Wrong> {
        let mut literals = Literals::new(text);
        let (mut descr, mut order, mut shape) = (None, None, None);
        literals.take('{', "a dict with the keys 'descr', 'fortran_order' and 'shape'")?;
        let mut more = !literals.eat('}');
        while more {
            let key_at = literals.here();
            let key = literals.string("a key in quotes, or }")?;
            literals.take(':', "a colon after the key")?;
            let at = literals.here();
            let twice = match key.as_str() {
                "descr" => descr.replace((read_descr(&mut literals)?, at)).is_some(),
                "fortran_order" => order.replace(literals.truth()?).is_some(),
                "shape" => shape.replace(literals.sizes()?).is_some(),
                _ => {
                    let expected = "only the keys 'descr', 'fortran_order' and 'shape'".into();
                    let shown: String = key.chars().take(40).collect();
                    return Err(Wrong { at: key_at, expected, found: format!("{shown:?}") });
                }
            };
            if twice {
                let expected = "each key once".into();
                return Err(Wrong { at: key_at, expected, found: format!("{key:?} a second time") });
            }
            more = literals.more('}')?;
        }
        let missing = |key: &str| Wrong {
            at: 0,
            expected: format!("the key {key:?}"),
            found: "a dict without it".into(),
        };
        let (descr, descr_at) = descr.ok_or_else(|| missing("descr"))?;
        let fortran = order.ok_or_else(|| missing("fortran_order"))?;
        let shape = shape.ok_or_else(|| missing("shape"))?;
        literals.end()?;
        let order = if fortran { saved_order(&shape, Order::Fortran) } else { Order::C };
        Ok(Self { descr, descr_at, shape, order })
    }

    fn dtype(&self, path: &Path, text: &Text<'_>, offset: u64) -> Result<Dtype> {
        let at = text.offset(self.descr_at);
        let place = format!("{}: at byte {at}", path.display());
        match &self.descr {
            Descr::Structured => Err(Error::unsupported(
                format!("{place}: structured dtypes are not supported"),
                "save each field as an array of its own: np.save(\"x.npy\", a[\"x\"])",
            )),
            Descr::SubArray => Err(Error::unsupported(
                format!("{place}: sub-array dtypes are not supported"),
                "save the array with a plain dtype and one more axis",
            )),
            Descr::Word(word) => Dtype::parse(word).map_err(|error| match error {
                Error::Unsupported { hint, .. } if matches!(word.as_str(), "<V2" | "|V2" | "V2") => {
                    Error::unsupported(
                        format!("{place}: dtype {word:?} is not supported"),
                        Words::from("ml_dtypes saves bfloat16 as V2; if it is that: ")
                            + raw_words("bfloat16", &self.shape, self.order, offset)
                            + "; "
                            + hint,
                    )
                }
                Error::Unsupported { what, hint } => Error::unsupported(format!("{place}: {what}"), hint),
                Error::Argument { hint, .. } => Error::Format {
                    path: path.to_owned(),
                    offset: at,
                    expected: "a dtype".into(),
                    found: format!("{:?}", word.chars().take(40).collect::<String>()),
                    hint,
                },
                other => other,
            }),
        }
    }
}

fn read_descr(literals: &mut Literals<'_>) -> Result<Descr, Wrong> {
    match literals.peek() {
        Some('[') => literals.skip().map(|()| Descr::Structured),
        Some('(') => literals.skip().map(|()| Descr::SubArray),
        // np.dtype knows words for both: "f4,i4" and "(2,)f4".
        _ => literals.string("a dtype in quotes").map(|word| match word.contains(',') {
            true if word.starts_with('(') => Descr::SubArray,
            true => Descr::Structured,
            false => Descr::Word(word),
        }),
    }
}

/// How to open the same elements without the header.
fn raw_words(dtype: impl Into<Cow<'static, str>>, shape: &[usize], order: Order, offset: u64) -> Words {
    let (shape, then) = match order {
        Order::C => (SHAPE.sizes(shape), ""),
        Order::Fortran => (SHAPE.sizes(shape.iter().rev()), ", and transpose it"),
    };
    DTYPE.is(dtype) + ", " + shape + ", " + OFFSET.number(offset) + then
}

/// The order that `np.save` writes down for an array: with at most one axis longer than 1, or no elements at all, both
/// are the same bytes, and it says C.
pub fn saved_order(shape: &[usize], order: Order) -> Order {
    let one_way = shape.contains(&0) || shape.iter().filter(|&&n| n > 1).count() < 2;
    if one_way { Order::C } else { order }
}

/// The header that `np.save` writes. Its length does not depend on the size of the axis that can grow, which is the
/// first in C order and the last in Fortran order: it can be written before that is known, and written over when it is.
///
/// # Errors
/// [`Error::Argument`] for a type that NumPy does not have, and for a shape of thousands of axes.
pub fn header(dtype: Dtype, shape: &[usize], order: Order) -> Result<Vec<u8>> {
    let mut text = dict(dtype, shape, order)?;
    let grows = if order == Order::C { shape.first() } else { shape.last() };
    if let Some(grows) = grows {
        text.push_str(&" ".repeat(21_usize.saturating_sub(grows.to_string().len())));
    }
    let padding = 64 - (MAGIC.len() + 4 + text.len() + 1) % 64;
    let len = MAGIC.len() + 4 + text.len() + padding + 1;
    padded(&text, 1, len).ok_or_else(|| Error::argument("a shape with too many axes for one header", ""))
}

/// A header of exactly `len` bytes, to write over one of this version; `None` where that one has no room for it.
///
/// # Errors
/// As [`header`].
pub fn header_of_len(
    dtype: Dtype,
    shape: &[usize],
    order: Order,
    version: u8,
    len: usize,
) -> Result<Option<Vec<u8>>> {
    Ok(padded(&dict(dtype, shape, order)?, version, len))
}

/// The dict of a header, as Python writes it.
fn dict(dtype: Dtype, shape: &[usize], order: Order) -> Result<String> {
    if dtype.kind() == super::Kind::BFloat16 {
        return Err(Error::argument(
            "NumPy has no bfloat16",
            "write it as raw: a name that does not end in .npy",
        ));
    }
    let (descr, sizes) = (dtype.numpy_str(), shape_text(shape));
    let fortran = if order == Order::C { "False" } else { "True" };
    Ok(format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {sizes}, }}"))
}

/// All of a header of `len` bytes: spaces and a new line behind the text.
fn padded(text: &str, version: u8, len: usize) -> Option<Vec<u8>> {
    let mut header = MAGIC.to_vec();
    header.extend([version, 0]);
    if version == 1 {
        header.extend(u16::try_from(len.checked_sub(10)?).ok()?.to_le_bytes());
    } else {
        header.extend(u32::try_from(len.checked_sub(12)?).ok()?.to_le_bytes());
    }
    header.extend(text.as_bytes());
    if header.len() >= len {
        return None;
    }
    header.resize(len - 1, b' ');
    header.push(b'\n');
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 1 with this dict and so many bytes of data.
    fn file(dict: &str, data: usize) -> Vec<u8> {
        let length = u16::try_from(dict.len()).unwrap().to_le_bytes();
        [&MAGIC[..], &[1, 0], &length, dict.as_bytes(), &vec![0; data]].concat()
    }

    fn read(bytes: &[u8]) -> Result<Layout> {
        parse(Path::new("x.npy"), bytes, bytes.len() as u64)
    }

    #[test]
    fn keys_come_in_any_order_and_spacing() {
        for dict in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n",
            "{'shape': (3, 4), 'fortran_order': False, 'descr': '<f4'}",
            "{\"shape\":(3L,4L),\"descr\":\"<f4\",\"fortran_order\":False}\n\n",
            "\t {\n'fortran_order' :False ,'shape': ( 3 ,4, ),\r\n'descr': '\\x3cf4' , } ",
        ] {
            let layout = read(&file(dict, 48)).unwrap();
            assert_eq!(
                (layout.dtype.numpy_str().as_str(), &layout.shape[..]),
                ("<f4", &[3, 4][..]),
                "{dict}"
            );
            assert_eq!((layout.order, layout.offset), (Order::C, 10 + dict.len() as u64), "{dict}");
        }
    }

    #[test]
    fn fortran_order_is_kept_only_where_it_matters() {
        for (shape, order) in [
            ("()", Order::C),
            ("(5,)", Order::C),
            ("(1, 5, 1)", Order::C),
            ("(0, 5, 5)", Order::C),
            ("(2, 3)", Order::Fortran),
            ("(2, 1, 3)", Order::Fortran),
        ] {
            let dict = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {shape}}}");
            let elements = [0, 1, 5, 6].into_iter().find_map(|n| read(&file(&dict, n)).ok());
            assert_eq!(elements.unwrap().order, order, "{shape}");
        }
    }

    #[test]
    fn a_header_length_is_checked_before_it_is_believed() {
        let path = Path::new("x.npy");
        let head = *b"\x93NUMPY\x02\x00\xff\xff\xff\xff";
        let says = |file_len| header_len(path, &head, file_len).unwrap_err().to_string();
        assert!(says(4096).contains("a header of 4294967295 bytes, found 4084 bytes before the end"));
        assert!(says(u64::MAX).contains("at most 1 MiB, found a length of 4294967295 bytes"));
        let most = *b"\x93NUMPY\x02\x00\xf4\xff\x0f\x00";
        assert_eq!(header_len(path, &most, u64::MAX).unwrap(), MAX_HEADER_LEN);
        let more = *b"\x93NUMPY\x02\x00\xf5\xff\x0f\x00";
        assert!(header_len(path, &more, u64::MAX).is_err());
    }

    #[test]
    fn too_few_bytes_are_never_taken_for_a_short_file() {
        let bytes = file("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4);
        let header_len = bytes.len() - 4;
        for n in 0..header_len {
            let error = parse(Path::new("x.npy"), &bytes[..n], bytes.len() as u64).unwrap_err();
            assert!(matches!(error, Error::Truncated { found, .. } if found == n as u64), "{n}: {error}");
        }
        assert!(parse(Path::new("x.npy"), &bytes[..header_len], bytes.len() as u64).is_ok());
    }

    #[test]
    fn offsets_count_bytes_in_both_encodings() {
        let dict = "{'descr': [('\u{e9}\u{e9}', '<f4')], 'shape': oops}";
        let latin: Vec<u8> = dict.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let at = |needle: &[u8], bytes: &[u8]| bytes.windows(4).position(|w| w == needle).unwrap();
        for (version, header) in [(2, &latin[..]), (3, dict.as_bytes())] {
            let length = u32::try_from(header.len()).unwrap().to_le_bytes();
            let bytes = [&MAGIC[..], &[version, 0], &length, header].concat();
            let Error::Format { offset, found, .. } = read(&bytes).unwrap_err() else { panic!() };
            assert_eq!((offset, found.as_str()), (at(b"oops", &bytes) as u64, "\"oops\""));
        }
    }

    /// What `np.save` of NumPy 2.4 writes before the elements; a list of sizes, the text up to its padding, the length.
    #[test]
    fn headers_are_those_of_np_save() {
        for (sizes, text, len) in [
            (&[3_usize, 162][..], "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 162), }", 128),
            (&[1_000_000], "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }", 128),
            (&[0], "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", 128),
            (&[], "{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 128),
        ] {
            let made = header("float32".parse().unwrap(), sizes, Order::C).unwrap();
            assert_eq!(made.len(), len);
            let mut wanted = MAGIC.to_vec();
            wanted.extend([1, 0]);
            wanted.extend(u16::try_from(len - 10).unwrap().to_le_bytes());
            wanted.extend(text.bytes());
            wanted.resize(len - 1, b' ');
            wanted.push(b'\n');
            assert_eq!(made, wanted, "{sizes:?}");
        }
    }

    proptest::proptest! {
        /// What is written is what is read, and its length is that of the same array with other rows.
        #[test]
        fn a_header_reads_back(
            sizes in proptest::collection::vec(0_usize..5000, 1..5),
            other in 0_usize..1_000_000_000,
            fortran: bool,
            big: bool,
            kind in 0_usize..4,
        ) {
            let kind = [super::super::Kind::Bool, super::super::Kind::Int16, super::super::Kind::Float64,
                super::super::Kind::Complex64][kind];
            let byte_order = if big { super::super::ByteOrder::Big } else { super::super::ByteOrder::Little };
            let (dtype, order) = (Dtype::new(kind, byte_order), if fortran { Order::Fortran } else { Order::C });
            let made = header(dtype, &sizes, order).unwrap();
            let nbytes = super::super::byte_len(&sizes, dtype.itemsize()).unwrap();
            let path = Path::new("x.npy");
            let layout = parse(path, &made, made.len() as u64 + nbytes).unwrap();
            proptest::prop_assert_eq!(&layout.shape, &sizes);
            proptest::prop_assert_eq!(layout.dtype, dtype);
            proptest::prop_assert_eq!(layout.order, saved_order(&sizes, order));
            proptest::prop_assert_eq!((layout.offset % 64, layout.offset), (0, made.len() as u64));
            let axis = if fortran { sizes.len() - 1 } else { 0 };
            let mut grown = sizes.clone();
            grown[axis] = other;
            let again = header(dtype, &grown, order).unwrap();
            proptest::prop_assert_eq!(again.len(), made.len());
            let same = header_of_len(dtype, &grown, order, 1, made.len()).unwrap();
            proptest::prop_assert_eq!(same, Some(again));
        }
    }

    #[test]
    fn a_header_without_room_is_not_written_over() {
        let dtype = "float32".parse().unwrap();
        let dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n";
        for (version, prefix) in [(1, 10), (2, 12), (3, 12)] {
            let len = prefix + dict.len();
            let fits = header_of_len(dtype, &[9, 4], Order::C, version, len).unwrap().unwrap();
            let read = parse_first(Path::new("x.npy"), &fits, 1 << 20).unwrap();
            assert_eq!((&read.shape[..], read.offset), (&[9, 4][..], len as u64));
            assert_eq!(header_of_len(dtype, &[10, 4], Order::C, version, len).unwrap(), None);
        }
    }
}
