//! What one token file is: by what the user said, else by its content, else by its name.
//!
//! In: a path and a [`TokenWish`]. Out: a [`TokenFile`], or an error that names the candidates where the
//! content fits more than one dialect. This is the shell of I/O around the parsers: it reads the first
//! bytes of the file and of the index beside it, and nothing is allocated by what a header says before
//! the file's real size agrees. No other path is ever followed.

use super::unseen::Alike;
use crate::door::{DTYPE, FORMAT, OFFSET, Words};
use crate::error::{Error, Result};
use crate::format::{
    CUT, Dialect, Dtype, FOREIGN_HEAD_LEN, Foreign, Kind, Wanted, check_token, datatrove, guess, is_token,
    little, llmc, megatron, npy, shape_text, token_dtypes,
};
use crate::store::{One, Storage};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Enough of a file's beginning to tell every dialect, and what is none.
const HEAD: usize = FOREIGN_HEAD_LEN;

/// How much is read in each place where a sample is taken.
const PIECE: u64 = 4096;

/// The hint about a `.bin` with an `.idx` beside it that is not Megatron's.
fn strange_index() -> Words {
    Words::from(
        "the .bin beside it is \"megatron\" with a damaged index, or \"nanogpt\" with an .idx of something else: ",
    ) + FORMAT.is("nanogpt")
        + " reads it as raw uint16, "
        + DTYPE
        + " as any other type"
}

/// One file of tokens: where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile {
    /// The file with the tokens.
    pub path: PathBuf,
    /// The file that says where documents are, for the dialects that have one.
    pub index: Option<PathBuf>,
    /// What it is written in.
    pub dialect: Dialect,
    /// The type of a token.
    pub dtype: Dtype,
    /// The byte where the tokens begin.
    pub offset: u64,
    /// How many there are.
    pub tokens: u64,
    /// The bytes of the whole file when it was looked at.
    pub len: u64,
}

/// What the caller said about the files: both can be left to the files themselves where those tell.
#[derive(Clone, Debug, Default)]
pub struct TokenWish {
    /// `dtype=`: needed for files that do not say it, and must agree with those that do.
    pub dtype: Option<Dtype>,
    /// `format=`: the files are taken for this and nothing else.
    pub dialect: Option<Dialect>,
    /// How object stores are reached; as the environment says, unless said.
    pub storage: Option<Storage>,
}

impl TokenWish {
    pub(super) fn storage(&self) -> Storage {
        self.storage.clone().unwrap_or_default()
    }

    /// Refuses what no file could fulfil.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(dtype) = self.dtype.filter(|&dtype| !is_token(dtype)) {
            return Err(Error::argument(
                DTYPE.is(dtype.name()) + " is no type for tokens",
                format!("one of {}", token_dtypes()),
            ));
        }
        match self.dialect {
            Some(dialect @ (Dialect::Raw | Dialect::Olmo)) if self.dtype.is_none() => Err(Error::argument(
                FORMAT.is(dialect.name()) + " has no header and needs " + DTYPE,
                Words::from("such as ") + DTYPE.is("uint16"),
            )),
            _ => Ok(()),
        }
    }
}

/// A file to look at, and what is known about it from how it was named.
#[derive(Debug)]
pub(super) struct Candidate {
    pub path: PathBuf,
    /// Whether `NAME.idx` is beside it.
    pub index: Sibling,
    /// What it must be: `megatron`, where its index or its prefix was named.
    pub dialect: Option<Dialect>,
}

/// Whether a file is beside another one: a listing of the folder tells without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sibling {
    Unknown,
    Absent,
    Present,
}

/// What was found, and what the user should hear about it.
#[derive(Debug)]
pub(super) struct Seen {
    pub file: TokenFile,
    pub remark: Option<Remark>,
    /// Whether uint16 is only our guess, and its first bytes are those of something wider.
    pub begins_wider: bool,
}

/// Not wrong, but worth a word.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// `format=` reads a header as if it were tokens.
    HeaderAsTokens(Dialect),
    /// Megatron's sequences end before the data does.
    Uncovered { end: u64, len: u64 },
    /// It begins like something that is no tokens, and `dtype=` says to read it.
    Foreign(Foreign),
}

impl Remark {
    pub fn words(&self) -> Words {
        match self {
            Self::HeaderAsTokens(dialect) => {
                Words::from("begins with the header of ")
                    + FORMAT.is(dialect.name())
                    + ", which is read as tokens here"
            }
            Self::Uncovered { end, len } => {
                format!("the index ends at byte {end} of {len}; the rest is in no document").into()
            }
            Self::Foreign(kind) => {
                Words::from(format!("this looks like {}, and is read as tokens because of ", kind.name()))
                    + DTYPE
                    + "; if it is tokens, "
                    + FORMAT.is("raw")
                    + " says so without this warning"
            }
        }
    }
}

/// Looks at one file.
pub(super) fn look(candidate: &Candidate, wish: &TokenWish) -> Result<Seen> {
    let file = match Opened::new(&candidate.path, &wish.storage()) {
        Err(error @ Error::Io { .. }) if candidate.dialect == Some(Dialect::Megatron) => {
            return Err(error.with_hint("Megatron's index is there, and the tokens belong beside it"));
        }
        opened => opened?,
    };
    match candidate.dialect.or(wish.dialect) {
        Some(dialect) => file.read_as(dialect, wish),
        None => file.detect(candidate, wish),
    }
}

/// What an object is taken for that is called like another one and lies beside it, by its size. `None` where that does not
/// tell.
pub(super) fn presumed(candidate: &Candidate, like: &Seen, storage: &Storage) -> Option<Seen> {
    let (path, like) = (&candidate.path, &like.file);
    if path.extension() != like.path.extension() || candidate.dialect.is_some() {
        return None;
    }
    let len = storage.open(path).ok()?.len(); // as it was listed
    let width = like.dtype.itemsize() as u64;
    let bytes = len.checked_sub(like.offset).filter(|bytes| bytes.is_multiple_of(width))?;
    let index = match like.dialect {
        Dialect::Megatron if candidate.index == Sibling::Present => Some(path.with_extension("idx")),
        Dialect::Megatron => return None,
        Dialect::Datatrove => Some(appended(path, "index")).filter(|index| storage.is_object(index)),
        _ if candidate.index == Sibling::Present => return None,
        _ => None,
    };
    if index.is_some() != like.index.is_some() {
        return None;
    }
    let file = TokenFile { path: path.clone(), index, tokens: bytes / width, len, ..like.clone() };
    Some(Seen { file, remark: None, begins_wider: false })
}

impl AsRef<Path> for Candidate {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Alike for Seen {
    fn is_alike(&self, other: &Self) -> bool {
        let (mine, other) = (&self.file, &other.file);
        let index = mine.index.is_some() == other.index.is_some();
        index && (mine.dialect, mine.dtype, mine.offset) == (other.dialect, other.dtype, other.offset)
    }
}

/// Pieces of a file from its beginning, its middle and its end, each from a multiple of 8 on: a file may begin with
/// padding.
pub(super) fn sample(source: &One) -> Result<Vec<Vec<u8>>> {
    let (len, piece) = (source.len(), source.len().min(PIECE));
    let read = |at: u64| {
        let at = at / 8 * 8;
        let mut bytes = vec![0; usize::try_from(piece.min(len - at)).unwrap_or(0)];
        source.read_exact(at, &mut bytes)?;
        Ok(bytes)
    };
    [0, len / 2, len - piece].into_iter().map(read).collect()
}

/// `NAME.ds` and `index` make `NAME.ds.index`.
pub(super) fn appended(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// A file and its first bytes.
struct Opened {
    source: One,
    head: [u8; HEAD],
    head_len: usize,
}

impl Opened {
    fn new(path: &Path, storage: &Storage) -> Result<Self> {
        let source = One::open(path, storage)?;
        let mut head = [0; HEAD];
        let head_len = usize::try_from(source.len()).map_or(HEAD, |len| len.min(HEAD));
        source.read_exact(0, &mut head[..head_len])?;
        Ok(Self { source, head, head_len })
    }

    /// The file at `path`, or none where no file is.
    fn beside(path: &Path, storage: &Storage) -> Result<Option<Self>> {
        use io::ErrorKind::{IsADirectory, NotFound};
        match Self::new(path, storage) {
            Err(Error::Io { source, .. }) if matches!(source.kind(), NotFound | IsADirectory) => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    fn path(&self) -> &Path {
        self.source.path()
    }

    fn len(&self) -> u64 {
        self.source.len()
    }

    fn has_extension(&self, extension: &str) -> bool {
        self.path().extension() == Some(OsStr::new(extension))
    }

    /// What it is, where nobody said so.
    fn detect(&self, candidate: &Candidate, wish: &TokenWish) -> Result<Seen> {
        let bin = self.has_extension("bin");
        if bin && candidate.index != Sibling::Absent {
            let index = Self::beside(&self.path().with_extension("idx"), &wish.storage())?;
            if let Some(index) = index {
                match self.megatron(&index, wish) {
                    // An index that nobody can read means that the tokens are not nanoGPT's: they may be of any
                    // width. With a dtype there is nothing left to guess.
                    Err(error) if !megatron::is_megatron(index.head()) => {
                        if wish.dtype.is_none() {
                            return Err(error.with_hint(strange_index()));
                        }
                    }
                    seen => return seen,
                }
            }
        }
        let raw = if bin { Dialect::NanoGpt } else { Dialect::Raw };
        if npy::is_npy(self.head()) {
            return self.npy(wish);
        }
        if llmc::is_llmc(self.head()) {
            return self.llmc(wish).map_err(|error| match error {
                Error::Format { .. } => {
                    let name = raw.name();
                    let either =
                        format!("this is \"llmc\" and damaged, or {name:?} and begins like it by chance: ");
                    let hint = Words::from(either) + FORMAT.is(name) + " reads it as raw";
                    error.with_hint(if bin { hint } else { hint + ", with " + DTYPE })
                }
                error => error,
            });
        }
        if megatron::is_megatron(self.head()) {
            return Err(Error::Format {
                path: self.path().to_owned(),
                offset: 0,
                expected: "tokens".into(),
                found: "Megatron's index".into(),
                hint: "name it NAME.idx, beside the tokens in NAME.bin".into(),
            });
        }
        if self.has_extension("ds") {
            return self.datatrove(wish);
        }
        let dialect = if self.has_extension("npy") { Dialect::Olmo } else { raw };
        let remark = match (self.foreign()?, wish.dtype) {
            (Some(kind), None) => return Err(kind.refused(self.path(), Wanted::Tokens)),
            (kind, _) => kind.map(Remark::Foreign),
        };
        let begins_wider = wish.dtype.is_none()
            && dialect == Dialect::NanoGpt
            && guess::begins_wider(self.head(), self.len());
        Ok(Seen { remark, begins_wider, ..self.raw(dialect, wish)? })
    }

    /// Which kind of file it is that has no tokens in it, as far as can be known.
    fn foreign(&self) -> Result<Option<Foreign>> {
        let known = Foreign::of(self.head(), self.len());
        if known.is_some() || Foreign::of_text(self.head()).is_none() {
            return Ok(known);
        }
        Ok(Foreign::of_samples(&sample(&self.source)?))
    }

    /// As `dialect`, or an error.
    fn read_as(&self, dialect: Dialect, wish: &TokenWish) -> Result<Seen> {
        match dialect {
            Dialect::LlmC => self.llmc(wish),
            Dialect::Npy => self.npy(wish),
            Dialect::Datatrove => self.datatrove(wish),
            Dialect::Megatron => {
                let index = self.path().with_extension("idx");
                if !self.has_extension("bin") {
                    return Err(Error::argument(
                        format!("{}: Megatron's tokens are in a file NAME.bin", self.path().display()),
                        "name that, its .idx, or NAME alone",
                    ));
                }
                let index = Self::new(&index, &wish.storage()).map_err(|error| match error {
                    Error::Io { .. } => {
                        error.with_hint(FORMAT.is("megatron") + " needs the index beside the tokens")
                    }
                    error => error,
                })?;
                self.megatron(&index, wish)
            }
            Dialect::Olmo if npy::is_npy(self.head()) => Err(Error::Format {
                path: self.path().to_owned(),
                offset: 0,
                expected: "tokens without a header, as OLMo's are".into(),
                found: "NumPy's header".into(),
                hint: FORMAT.is("npy") + " reads it; " + FORMAT.is("raw") + " takes the header for tokens",
            }),
            Dialect::Olmo | Dialect::Raw => self.raw(dialect, wish),
            Dialect::NanoGpt => {
                let mut seen = self.raw(dialect, wish)?;
                if npy::is_npy(self.head()) {
                    seen.remark = Some(Remark::HeaderAsTokens(Dialect::Npy));
                } else if llmc::parse(self.path(), self.head(), self.len()).is_ok() {
                    seen.remark = Some(Remark::HeaderAsTokens(Dialect::LlmC));
                }
                Ok(seen)
            }
        }
    }

    fn seen(&self, dialect: Dialect, dtype: Dtype, offset: u64, tokens: u64) -> Seen {
        let (path, len) = (self.path().to_owned(), self.len());
        let file = TokenFile { path, index: None, dialect, dtype, offset, tokens, len };
        Seen { file, remark: None, begins_wider: false }
    }

    /// Bare tokens from the first byte to the last.
    fn raw(&self, dialect: Dialect, wish: &TokenWish) -> Result<Seen> {
        let dtype = match (wish.dtype, dialect) {
            (Some(dtype), _) => dtype,
            (None, Dialect::NanoGpt) => little(Kind::UInt16),
            (None, _) => {
                let bytes: Vec<_> = self.head().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
                return Err(Error::Format {
                    path: self.path().to_owned(),
                    offset: 0,
                    expected: "a header that says what the tokens are".into(),
                    found: match bytes.len() {
                        0 => "an empty file".into(),
                        _ => format!("bytes {}", bytes.join(" ")),
                    },
                    hint: Words::from("a file without a header needs ")
                        + DTYPE
                        + ", such as "
                        + DTYPE.is("uint16"),
                });
            }
        };
        let tokens = self.whole_tokens(dtype)?;
        Ok(self.seen(dialect, dtype, 0, tokens))
    }

    /// How many tokens the whole file is.
    fn whole_tokens(&self, dtype: Dtype) -> Result<u64> {
        let width = dtype.itemsize() as u64;
        if self.len().is_multiple_of(width) {
            return Ok(self.len() / width);
        }
        Err(Error::Format {
            path: self.path().to_owned(),
            offset: self.len() / width * width,
            expected: format!("whole tokens of {dtype}, {width} bytes each"),
            found: format!("a file of {} bytes", self.len()),
            hint: format!("is {dtype} right? or {CUT}").into(),
        })
    }

    fn npy(&self, wish: &TokenWish) -> Result<Seen> {
        let (path, len) = (self.path(), self.len());
        let layout = npy::header_len(path, self.head(), len).and_then(|header_len| {
            // At most a megabyte, and inside the file.
            let mut head = vec![0; header_len];
            self.source.read_exact(0, &mut head)?;
            npy::parse(path, &head, len)
        });
        let layout = layout.map_err(|error| match &error {
            // There is no offset for tokens.
            Error::Format { hint, .. } | Error::Unsupported { hint, .. } if hint.names(&OFFSET) => error
                .with_hint(
                    Words::from("a damaged header, or not one array of tokens; ")
                        + FORMAT.is("raw")
                        + " and "
                        + DTYPE
                        + " read every byte as tokens",
                ),
            _ => error,
        })?;
        check_token(path, layout.dtype)?;
        let [tokens] = layout.shape[..] else {
            return Err(Error::unsupported(
                format!("{}: tokens are in one row, here the shape is {}", path.display(), {
                    shape_text(&layout.shape)
                }),
                "np.save(path, array.reshape(-1)) makes one row of them",
            ));
        };
        self.agree(layout.dtype, wish)?;
        Ok(self.seen(Dialect::Npy, layout.dtype, layout.offset, tokens as u64))
    }

    fn llmc(&self, wish: &TokenWish) -> Result<Seen> {
        let header = llmc::parse(self.path(), self.head(), self.len())?;
        self.agree(header.dtype, wish)?;
        Ok(self.seen(Dialect::LlmC, header.dtype, llmc::HEADER_LEN, header.tokens))
    }

    fn megatron(&self, index: &Self, wish: &TokenWish) -> Result<Seen> {
        let header = megatron::Index::parse(index.path(), index.head(), index.len())?;
        index.agree(header.dtype, wish)?;
        let tokens = self.whole_tokens(header.dtype)?;
        let read = |offset, out: &mut [u8]| index.source.read_exact(offset, out);
        let end = header.covered(index.path(), &read, self.len())?;
        let mut seen = self.seen(Dialect::Megatron, header.dtype, 0, tokens);
        seen.file.index = Some(index.path().to_owned());
        seen.remark = (end < self.len()).then_some(Remark::Uncovered { end, len: self.len() });
        Ok(seen)
    }

    fn datatrove(&self, wish: &TokenWish) -> Result<Seen> {
        let path = self.path();
        let index = match Self::beside(&appended(path, "index"), &wish.storage())? {
            Some(index) => {
                let ends = datatrove::Index::parse(index.path(), index.len())?;
                let tokens = ends.tokens(&|offset, out| index.source.read_exact(offset, out))?;
                Some((index, tokens))
            }
            None => None,
        };
        let said = match Self::beside(&appended(path, "metadata"), &wish.storage())? {
            Some(metadata) => {
                let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX).min(datatrove::METADATA_LEN);
                let mut text = vec![0; len];
                metadata.source.read_exact(0, &mut text)?;
                datatrove::metadata(metadata.path(), &text)?
            }
            None => None,
        };
        let dtype = match (wish.dtype, said) {
            // The metadata knows the width alone.
            (Some(dtype), Some(said)) if dtype.itemsize() != said.itemsize() => {
                return Err(disagree(&appended(path, "metadata"), said, dtype));
            }
            (Some(dtype), _) | (None, Some(dtype)) => dtype,
            (None, None) => {
                let guess = index.as_ref().map(|(_, tokens)| datatrove::Index::guess(*tokens, self.len()));
                guess.flatten().ok_or_else(|| Error::Format {
                    path: path.to_owned(),
                    offset: 0,
                    expected:
                        "a .metadata, or an .index that fits one width only, to say what the tokens are"
                            .into(),
                    found: match &index {
                        Some((_, tokens)) => {
                            format!("an index of {tokens} tokens and a file of {} bytes", self.len())
                        }
                        None => "neither beside it".into(),
                    },
                    hint: Words::from("say ") + DTYPE.is("uint16") + " or " + DTYPE.is("uint32"),
                })?
            }
        };
        let tokens = self.whole_tokens(dtype)?;
        let mut seen = self.seen(Dialect::Datatrove, dtype, 0, tokens);
        if let Some((index, said)) = index {
            if said != tokens {
                return Err(Error::Format {
                    path: index.path().to_owned(),
                    offset: index.len().saturating_sub(8),
                    expected: format!("documents that end with the last of {tokens} tokens of {dtype}"),
                    found: format!("an end at {said}"),
                    hint: Words::from("the index or the metadata is not of this file, or one was cut; ")
                        + FORMAT.is("raw")
                        + " and "
                        + DTYPE
                        + " read the .ds without them",
                });
            }
            seen.file.index = Some(index.path().to_owned());
        }
        Ok(seen)
    }

    /// That what this file says about its tokens is what the user said.
    fn agree(&self, said: Dtype, wish: &TokenWish) -> Result<()> {
        match wish.dtype.filter(|&wished| wished != said) {
            Some(wished) => Err(disagree(self.path(), said, wished)),
            None => Ok(()),
        }
    }
}

/// That a file says another type than the user.
pub(crate) fn disagree(path: &Path, said: Dtype, wished: Dtype) -> Error {
    Error::argument(
        Words::from(format!("{}: the file says {said}, ", path.display()))
            + DTYPE
            + format!(" says {wished}"),
        Words::from("leave ") + DTYPE + " out; " + FORMAT.is("raw") + " reads the bytes as any type",
    )
}
