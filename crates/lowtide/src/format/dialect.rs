//! The dialects of token files, and which element types a token can have.

use super::{ByteOrder, Dtype, Kind};
use crate::door::FORMAT;
use crate::error::{Error, Result};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Which dialect a token file is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// nanoGPT's `.bin`: bare tokens, uint16 unless the user says otherwise.
    NanoGpt,
    /// llm.c's and modded-nanogpt's header of 1,024 bytes, then uint16 or uint32.
    LlmC,
    /// Megatron's `.bin` with its `.idx`.
    Megatron,
    /// datatrove's `.ds`, with `.ds.index` and `.ds.metadata` where they were kept.
    Datatrove,
    /// NumPy's `.npy`.
    Npy,
    /// `OLMo`'s files, which are called `.npy` and have no header.
    Olmo,
    /// Any other file of bare tokens.
    Raw,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::NanoGpt, Self::LlmC, Self::Megatron, Self::Datatrove, Self::Npy, Self::Olmo, Self::Raw];

    /// The word for it, as in `format="nanogpt"`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NanoGpt => "nanogpt",
            Self::LlmC => "llmc",
            Self::Megatron => "megatron",
            Self::Datatrove => "datatrove",
            Self::Npy => "npy",
            Self::Olmo => "olmo",
            Self::Raw => "raw",
        }
    }

    /// Whether its files are tokens and nothing else, so that something else has to say of which type.
    pub const fn is_bare(self) -> bool {
        matches!(self, Self::NanoGpt | Self::Olmo | Self::Raw)
    }

    /// Whether the end-of-text token stands *before* each document: llm.c's does, all others' ends one.
    pub const fn marks_beginnings(self) -> bool {
        matches!(self, Self::LlmC)
    }

    /// How the names of its data files end, in a folder.
    pub(crate) const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::NanoGpt | Self::LlmC | Self::Megatron => &["bin"],
            Self::Datatrove => &["ds"],
            Self::Npy | Self::Olmo => &["npy"],
            Self::Raw => &["bin", "npy", "ds"],
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == word).ok_or_else(|| {
            let words = Self::ALL.map(|dialect| format!("{:?}", dialect.name())).join(", ");
            Error::argument(FORMAT.is(word.to_owned()) + " is not a token format", format!("one of {words}"))
        })
    }
}

/// The element types of tokens, in the order in which they are listed to a user.
const TOKENS: [Kind; 8] = [
    Kind::UInt8,
    Kind::UInt16,
    Kind::UInt32,
    Kind::UInt64,
    Kind::Int8,
    Kind::Int16,
    Kind::Int32,
    Kind::Int64,
];

/// Whether tokens can have this type.
pub(crate) fn is_token(dtype: Dtype) -> bool {
    TOKENS.contains(&dtype.kind())
}

/// The types that tokens can have, for a message.
pub(crate) fn token_dtypes() -> String {
    TOKENS.map(|kind| Dtype::native(kind).name()).join(", ")
}

/// Refuses the element type of a file if tokens cannot have it.
pub(crate) fn check_token(path: &Path, dtype: Dtype) -> Result<()> {
    if is_token(dtype) {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("{}: {dtype} is no type for tokens", path.display()),
        format!("tokens are whole numbers: {}; lowtide.open reads other arrays", token_dtypes()),
    ))
}

/// The files of all dialects but NumPy's own are little-endian.
pub(crate) const fn little(kind: Kind) -> Dtype {
    Dtype::new(kind, ByteOrder::Little)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_and_others_are_refused_with_the_list() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.to_string().parse::<Dialect>().unwrap(), dialect);
        }
        assert_eq!(
            "nanoGPT".parse::<Dialect>().unwrap_err().to_string(),
            "format=\"nanoGPT\" is not a token format\nhint: one of \"nanogpt\", \"llmc\", \"megatron\", \
             \"datatrove\", \"npy\", \"olmo\", \"raw\""
        );
    }
}
