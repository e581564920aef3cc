//! What the user says about files that have no header: `--dtype`, `--shape`, `--offset`, np.memmap's words.

use crate::number::whole;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide::format::{Dtype, Kind};
use lowtide::{Error, Options, Result};
use std::str::FromStr;

/// The arguments, for every command that opens arrays.
#[derive(Debug, clap::Args)]
pub struct Headerless {
    /// The element type of files without a header, such as float32
    #[arg(long)]
    dtype: Option<String>,
    /// Their shape, such as -1,128
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    shape: Option<Vec<i64>>,
    /// Where their elements begin, in bytes
    #[arg(long, value_parser = whole::<u64>)]
    offset: Option<u64>,
}

impl Headerless {
    /// The same as options to open with.
    pub fn options(&self) -> Result<Options> {
        let mut options = Options::new();
        if let Some(dtype) = self.dtype()? {
            options = options.dtype(dtype);
        }
        if let Some(shape) = &self.shape {
            options = options.shape(shape)?;
        }
        if let Some(offset) = self.offset {
            options = options.offset(offset);
        }
        Ok(options)
    }

    /// The element type.
    pub fn dtype(&self) -> Result<Option<Dtype>> {
        self.dtype.as_deref().map(str::parse).transpose()
    }

    /// Whether it says more than a type: then an array is meant.
    pub fn has_place(&self) -> bool {
        self.shape.is_some() || self.offset.is_some()
    }
}

/// Whether numbers of this type can be tokens.
pub fn is_integer(dtype: Dtype) -> bool {
    use Kind::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    matches!(dtype.kind(), Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
}

/// A value that is one of a few words: a shell's completion offers them.
pub fn one_of<T>(words: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = Error> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}
