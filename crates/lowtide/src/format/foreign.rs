//! Files that people have and that are neither arrays nor tokens as they lie there: known by their first bytes.
//!
//! In: the beginning of a file and its size, or the names in a folder. Out: which kind it is, what it is called,
//! and the way from there to a file that can be read. One table for arrays and for tokens.
//!
//! A stream of bare tokens can begin with any bytes, so every kind is known by more than a coincidence: four
//! bytes that say nothing else, or fewer and what must follow them. Text has no magic: all of a sample must be
//! text, or nearly all of a longer one. Of 12 million beginnings in real GPT-2 tokens (Python and Markdown), none is taken for anything, not even
//! in the shortest sample that is judged (`LOWTIDE_TOKENS`, in `tests/fuzz_corpus.rs`).

use super::text::{
    APART, LEAST_TEXT, begins_with_object, is_nearly_printed, is_utf16, is_varied, printed, utf8, utf16_order,
};
use crate::door::{DTYPE, OFFSET, SHAPE, Words};
use crate::error::Error;
use std::ffi::OsStr;
use std::path::Path;

/// So much of a file's beginning tells every kind.
pub const HEAD_LEN: usize = 512;

/// A kind of file that is known and not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Foreign {
    /// NumPy's `.npz`: a zip archive of `.npy` files.
    Npz,
    /// What `torch.save` writes, as a zip archive or in the older way.
    Torch,
    /// Any other zip archive.
    Zip,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
    /// bzip2.
    Bzip2,
    /// xz.
    Xz,
    /// lz4.
    Lz4,
    /// A tar archive.
    Tar,
    /// Safetensors.
    Safetensors,
    /// A Python pickle, of protocol 0, or 2 or newer.
    Pickle,
    /// Parquet.
    Parquet,
    /// Arrow's files and streams, and Feather.
    Arrow,
    /// HDF5.
    Hdf5,
    /// MATLAB's `.mat`.
    Matlab,
    /// `NetCDF`, the classic formats.
    NetCdf,
    /// GGUF.
    Gguf,
    /// `SQLite`.
    Sqlite,
    /// llm.c's files that are not tokens.
    LlmC(LlmC),
    /// JSON, or a line of JSON after another.
    Json,
    /// Any other text.
    Text,
    /// Text in UTF-16, with its mark.
    Utf16,
    /// What is nearly all printed letters and no UTF-8: Latin-1, or text with something else in it.
    OldText,
    /// A folder that is a Zarr array or group.
    Zarr,
    /// A folder that Hugging Face's datasets saved.
    HuggingFace,
}

/// What llm.c writes besides tokens. Its header is the same: 256 int32, the first of them a magic number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LlmC {
    /// The weights of a model.
    Weights,
    /// Activations to compare with.
    DebugState,
    /// A tokenizer.
    Tokenizer,
    /// An evaluation: contexts with several completions.
    Evaluation,
    /// The optimizer's state of a training run.
    TrainingState,
}

/// What the file is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An array.
    Array,
    /// Tokens.
    Tokens,
}

/// llm.c's magic numbers that are not of tokens.
const LLMC: [(i32, LlmC); 6] = [
    (20_240_326, LlmC::Weights),
    (20_240_327, LlmC::DebugState),
    (20_240_328, LlmC::Tokenizer),
    (20_240_522, LlmC::Evaluation),
    (20_240_527, LlmC::TrainingState),
    (20_240_803, LlmC::Weights), // Llama 3's
];

/// Kinds that their first bytes name beyond doubt.
const MAGIC: [(&[u8], Foreign); 15] = [
    (b"\x28\xb5\x2f\xfd", Foreign::Zstd),
    (b"\xfd7zXZ\0", Foreign::Xz),
    (b"\x04\x22\x4d\x18", Foreign::Lz4),
    (b"PAR1", Foreign::Parquet),
    (b"PARE", Foreign::Parquet),
    (b"ARROW1\0\0", Foreign::Arrow),
    (b"FEA1", Foreign::Arrow),
    (b"\x89HDF\r\n\x1a\n", Foreign::Hdf5),
    (b"MATLAB 5.0 MAT-file", Foreign::Matlab),
    (b"MATLAB 7.3 MAT-file", Foreign::Matlab),
    (b"CDF\x01", Foreign::NetCdf),
    (b"CDF\x02", Foreign::NetCdf),
    (b"CDF\x05", Foreign::NetCdf),
    (b"GGUF", Foreign::Gguf),
    (b"SQLite format 3\0", Foreign::Sqlite),
];

impl Foreign {
    /// The kind of a file that begins with `head` and has `len` bytes. Text is not looked for: see
    /// [`of_text`](Self::of_text).
    pub fn of(head: &[u8], len: u64) -> Option<Self> {
        let named = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)).map(|&(_, kind)| kind);
        named
            .or_else(|| zip(head))
            .or_else(|| is_gzip(head).then_some(Self::Gzip))
            .or_else(|| is_bzip2(head).then_some(Self::Bzip2))
            .or_else(|| is_tar(head).then_some(Self::Tar))
            .or_else(|| is_safetensors(head, len).then_some(Self::Safetensors))
            .or_else(|| is_arrow_stream(head, len).then_some(Self::Arrow))
            .or_else(|| pickle(head, len))
            .or_else(|| llmc(head))
    }

    /// The kind of a file of which this is a sample, if all of it is text. The sample may begin and end in the
    /// middle of a character.
    pub fn of_text(sample: &[u8]) -> Option<Self> {
        if sample.len() < LEAST_TEXT {
            return None;
        }
        if let Some(order) = utf16_order(sample) {
            return is_utf16(order, sample).then_some(Self::Utf16);
        }
        let Some(text) = printed(sample) else {
            let kind = if utf8(sample).is_some() { Self::Text } else { Self::OldText };
            return (is_varied(sample) && is_nearly_printed(sample)).then_some(kind);
        };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        match text.bytes().next() {
            Some(b'{') if begins_with_object(text) => Some(Self::Json),
            _ if !is_varied(sample) || !text.contains(APART) => None,
            Some(b'{' | b'[') => Some(Self::Json),
            _ => Some(Self::Text),
        }
    }

    /// The same by samples of several places, of which the first is the file's beginning: a few tokens can look like
    /// text, those in other places hardly.
    pub fn of_samples(samples: &[Vec<u8>]) -> Option<Self> {
        let (first, others) = samples.split_first()?;
        let kind = Self::of_text(first)?;
        let goes_on = |sample: &Vec<u8>| match kind {
            Self::Utf16 => utf16_order(first).is_some_and(|order| is_utf16(order, sample)),
            // An object may be the same again and again.
            Self::Json => printed(sample).is_some(),
            // Text may have its first letter that is no UTF-8 anywhere.
            _ => matches!(Self::of_text(sample), Some(Self::Text | Self::Json | Self::OldText)),
        };
        others.iter().all(goes_on).then_some(kind)
    }

    /// The kind of a folder with files and folders of these names.
    pub fn of_folder<'a>(names: impl IntoIterator<Item = &'a OsStr>) -> Option<Self> {
        let mut kind = None;
        for name in names {
            let name = Path::new(name);
            let is = |known: &[&str]| known.iter().any(|known| name == Path::new(known));
            let ends = |end: &str| name.extension() == Some(OsStr::new(end));
            if is(&["zarr.json", ".zarray", ".zgroup", ".zmetadata"]) {
                return Some(Self::Zarr);
            }
            kind = match kind {
                _ if is(&["dataset_info.json", "dataset_dict.json"]) => Some(Self::HuggingFace),
                None if ends("parquet") => Some(Self::Parquet),
                None if ends("arrow") || ends("feather") => Some(Self::Arrow),
                known => known,
            };
        }
        kind
    }

    /// Whether it holds other files, or another one made smaller.
    pub const fn is_packed(self) -> bool {
        matches!(self, Self::Zip | Self::Gzip | Self::Zstd | Self::Bzip2 | Self::Xz | Self::Lz4 | Self::Tar)
    }

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Npz => "a .npz archive, which is a zip of .npy files",
            Self::Torch => "a file that torch.save wrote",
            Self::Zip => "a zip archive",
            Self::Gzip => "a gzip file",
            Self::Zstd => "a zstd file",
            Self::Bzip2 => "a bzip2 file",
            Self::Xz => "an xz file",
            Self::Lz4 => "an lz4 file",
            Self::Tar => "a tar archive",
            Self::Safetensors => "a safetensors file",
            Self::Pickle => "a Python pickle",
            Self::Parquet => "a Parquet file",
            Self::Arrow => "an Arrow file",
            Self::Hdf5 => "an HDF5 file",
            Self::Matlab => "a MATLAB file",
            Self::NetCdf => "a NetCDF file",
            Self::Gguf => "a GGUF file, the weights of a model",
            Self::Sqlite => "an SQLite database",
            Self::LlmC(LlmC::Weights) => "llm.c's weights of a model",
            Self::LlmC(LlmC::DebugState) => "llm.c's debug state of a model",
            Self::LlmC(LlmC::Tokenizer) => "llm.c's tokenizer",
            Self::LlmC(LlmC::Evaluation) => "llm.c's evaluation, contexts with their completions",
            Self::LlmC(LlmC::TrainingState) => "llm.c's optimizer state",
            Self::Json => "JSON text",
            Self::Text => "plain text",
            Self::Utf16 => "text in UTF-16",
            Self::OldText => "text, but not in UTF-8",
            Self::Zarr => "a Zarr folder",
            Self::HuggingFace => "a folder of Hugging Face's datasets",
        }
    }

    /// That a file of this kind cannot be read, and the way out.
    pub(crate) fn refused(self, path: &Path, wanted: Wanted) -> Error {
        Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: match wanted {
                Wanted::Array => "a .npy header".into(),
                Wanted::Tokens => "tokens".into(),
            },
            found: self.name().into(),
            hint: self.way_out(wanted),
        }
    }

    /// The way from there to a file that can be read.
    pub fn way_out(self, wanted: Wanted) -> Words {
        let name = match wanted {
            Wanted::Array => "rows.npy",
            Wanted::Tokens => "tokens.npy",
        };
        let save =
            |array: &str| Words::from(format!("np.save({name:?}, {array}) makes a file that can be opened"));
        // What need not fit in memory.
        let copy = |from: &str| {
            Words::from(format!(
                "copy it once, a part at a time, from {from} into np.lib.format.open_memmap({name:?}, \"w+\", dtype, \
                 shape)"
            ))
        };
        let weights = Words::from(match wanted {
            Wanted::Array => "",
            Wanted::Tokens => "most of these are the weights of a model; where tokens are in it: ",
        });
        let unpack = |command: &'static str| Words::from("unpack it first: ") + command;
        match self {
            Self::Npz => save("np.load(FILE)[NAME]"),
            Self::Torch => weights + save("torch.load(FILE)[NAME].numpy()"),
            Self::Safetensors => weights + save("safetensors.numpy.load_file(FILE)[NAME]"),
            Self::Pickle => {
                Words::from("nothing is ever unpickled here; where you trust it: ")
                    + save("pickle.load(open(FILE, \"rb\"))")
            }
            Self::Gguf if wanted == Wanted::Array => save("gguf.GGUFReader(FILE).tensors[I].data"),
            Self::Zip => unpack("unzip FILE"),
            Self::Gzip => unpack("gzip -dc FILE > NEW"),
            Self::Zstd => unpack("zstd -dc FILE > NEW"),
            Self::Bzip2 => unpack("bzip2 -dc FILE > NEW"),
            Self::Xz => unpack("xz -dc FILE > NEW"),
            Self::Lz4 => unpack("lz4 -dc FILE > NEW"),
            Self::Tar => unpack("tar -xf FILE"),
            Self::Parquet if wanted == Wanted::Tokens => {
                Words::from("lowtide prepare FILE -o FOLDER makes tokens of text in it; where numbers are: ")
                    + copy("pyarrow.parquet.ParquetFile(FILE).iter_batches()")
            }
            Self::Parquet => copy("pyarrow.parquet.ParquetFile(FILE).iter_batches()"),
            Self::Arrow => copy("the batches of pyarrow.ipc.open_file(FILE) (or open_stream)"),
            Self::HuggingFace => copy("datasets.load_from_disk(FOLDER).with_format(\"numpy\")"),
            Self::Hdf5 if wanted == Wanted::Array => {
                copy("h5py.File(FILE)[NAME]")
                    + "; a contiguous dataset can be opened where it lies, with "
                    + DTYPE
                    + ", "
                    + SHAPE
                    + " and the "
                    + OFFSET
                    + " that its id.get_offset() says"
            }
            Self::Hdf5 => copy("h5py.File(FILE)[NAME]"),
            Self::Zarr => copy("zarr.open(FOLDER)"),
            Self::Matlab => save("scipy.io.loadmat(FILE)[NAME]"),
            Self::NetCdf => save("scipy.io.netcdf_file(FILE).variables[NAME][:]"),
            Self::Json | Self::Text if wanted == Wanted::Tokens => {
                Words::from("tokens are numbers: lowtide prepare FILE -o FOLDER makes them of text; ")
                    + DTYPE.is("uint8")
                    + " takes every byte for a token"
            }
            Self::Utf16 | Self::OldText if wanted == Wanted::Tokens => {
                let from = if self == Self::Utf16 { "UTF-16" } else { "LATIN1" };
                Words::from(format!(
                    "tokens are numbers: iconv -f {from} -t UTF-8 FILE > NEW makes UTF-8 of it, "
                )) + "lowtide prepare NEW -o FOLDER tokens of that; "
                    + DTYPE.is("uint8")
                    + " takes every byte for a token"
            }
            Self::Utf16 => save("np.loadtxt(FILE, encoding=\"utf-16\")"),
            Self::OldText => save("np.loadtxt(FILE, encoding=\"latin1\")"),
            Self::Json => save("the numbers in it"),
            Self::Text => save("np.loadtxt(FILE)"),
            Self::LlmC(LlmC::Evaluation) => {
                "train on the files whose first number is 20240520 or 20240801".into()
            }
            Self::Gguf | Self::LlmC(_) => "tokens are in other files: is it the right one?".into(),
            Self::Sqlite => "export the numbers first".into(),
        }
    }
}

fn u16_at(head: &[u8], at: usize) -> Option<u16> {
    head.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(head: &[u8], at: usize) -> Option<u32> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(head: &[u8], at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The first entry of a zip archive says whose it is.
fn zip(head: &[u8]) -> Option<Foreign> {
    if head.starts_with(b"PK\x05\x06\0\0\0\0\0\0\0\0") {
        return Some(Foreign::Zip); // an archive of nothing
    }
    // The newest version of the format is 6.3; the methods are those that archivers write.
    let (version, method) = (u16_at(head, 4)?, u16_at(head, 8)?);
    let name_len = usize::from(u16_at(head, 26)?);
    let name = head.get(30..)?;
    let name = &name[..name.len().min(name_len)];
    let possible = version <= 63 && matches!(method, 0 | 8 | 9 | 12 | 14 | 93 | 95);
    if !head.starts_with(b"PK\x03\x04")
        || !possible
        || name.is_empty()
        || name.iter().any(|&byte| byte < b' ')
    {
        return None;
    }
    Some(match name {
        name if name.ends_with(b".npy") => Foreign::Npz,
        name if [&b"/data.pkl"[..], b"/.format_version", b"/byteorder", b"/version"]
            .iter()
            .any(|end| name.ends_with(end)) =>
        {
            Foreign::Torch
        }
        _ => Foreign::Zip,
    })
}

/// Magic, deflate, no reserved flags, and what compressors write as the level and the system.
fn is_gzip(head: &[u8]) -> bool {
    matches!(head, [0x1f, 0x8b, 8, flags, _, _, _, _, 0 | 2 | 4, 0..=13 | 255, ..] if flags & 0xe0 == 0)
}

/// Magic, level, and the first block, or the end of an empty stream.
fn is_bzip2(head: &[u8]) -> bool {
    matches!(head, [b'B', b'Z', b'h', b'1'..=b'9', block @ ..]
        if block.starts_with(b"1AY&SY") || block.starts_with(b"\x17rE8P\x90"))
}

fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar") && matches!(head.get(262), Some(0 | b' '))
}

/// The length of a JSON header, which is inside the file, and its first two characters.
fn is_safetensors(head: &[u8], len: u64) -> bool {
    let header = u64_at(head, 0).unwrap_or(0);
    let inside = (2..=100_000_000).contains(&header) && header <= len.saturating_sub(8);
    inside && matches!(head.get(8..10), Some([b'{', b'"' | b'}' | b' ' | b'\n' | b'\t']))
}

/// A message that is not the end, its length, and a flatbuffer's root inside of it: what Hugging Face's datasets
/// keep in `.arrow` files.
fn is_arrow_stream(head: &[u8], len: u64) -> bool {
    let (Some(u32::MAX), Some(metadata), Some(root)) = (u32_at(head, 0), u32_at(head, 4), u32_at(head, 8))
    else {
        return false;
    };
    let inside = (16..1 << 28).contains(&metadata) && u64::from(metadata) <= len.saturating_sub(8);
    inside
        && metadata.is_multiple_of(8)
        && (4..metadata).contains(&root)
        && root.is_multiple_of(4)
        && root < 1024
}

/// A protocol and what can follow it. Tokens 640, 896, 1152 and 1408 are the same two bytes.
fn pickle(head: &[u8], len: u64) -> Option<Foreign> {
    /// What torch.save wrote before it wrote zip archives: a magic number as a pickle of its own.
    const TORCH: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
    if head.starts_with(TORCH) {
        return Some(Foreign::Torch);
    }
    let follows = match head {
        // Protocol 0, in lines: a list or a dict that is remembered as the first thing, and filled.
        [b'(', b'l' | b'd', b'p', b'0' | b'1', b'\n', next, ..] => b"(FILNSVcg.".contains(next),
        // The same of an object: how it is made, and that this is remembered.
        [b'c', names @ ..] => is_remembered_global(names),
        // A frame that is inside the file.
        [0x80, 4 | 5, 0x95, ..] => {
            u64_at(head, 3).is_some_and(|frame| frame > 0 && frame <= len.saturating_sub(11))
        }
        // An empty container, remembered as the first thing, and filled.
        [0x80, 2..=5, b'}' | b']' | b')', b'q', 0, b'(' | b'X' | b'K' | b'c' | b'.' | b'a' | b's', ..] => {
            true
        }
        // A class or a function, by its module and its name.
        [0x80, 2 | 3, b'c', names @ ..] => is_global(names),
        // A text, with its length.
        [0x80, 2 | 3, b'X', ..] => u32_at(head, 3).is_some_and(|text| {
            let end = usize::try_from(text).ok().and_then(|text| text.checked_add(7));
            end.is_some_and(|end| head.get(end..end + 2) == Some(b"q\0"))
        }),
        _ => false,
    };
    let follows = follows
        || matches!(head, [0x80, 2..=5, body @ ..] if super::pickle::goes_on(body, len.saturating_sub(2)));
    follows.then_some(Foreign::Pickle)
}

/// `module\nname\n`, as Python writes names.
fn is_global(names: &[u8]) -> bool {
    let mut lines = names.split(|&byte| byte == b'\n');
    let name = |line: &[u8]| {
        line.len() >= 2 && line.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte))
    };
    let (module, class, more) = (lines.next(), lines.next(), lines.next());
    more.is_some() && module.is_some_and(name) && class.is_some_and(name)
}

/// The same, remembered as the first thing, or with its arguments behind it.
fn is_remembered_global(names: &[u8]) -> bool {
    let behind = names.splitn(3, |&byte| byte == b'\n').nth(2);
    is_global(names) && behind.is_some_and(|rest| rest.starts_with(b"p0\n(") || rest.starts_with(b"p1\n("))
}

/// llm.c's magic and a version that it could have.
fn llmc(head: &[u8]) -> Option<Foreign> {
    let magic = u32_at(head, 0)?.cast_signed();
    let (_, kind) = LLMC.iter().find(|(known, _)| *known == magic)?;
    u32_at(head, 4).is_some_and(|version| version < 64).then_some(Foreign::LlmC(*kind))
}
