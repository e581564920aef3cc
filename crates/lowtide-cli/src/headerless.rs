//! What the user says about files that have no header: `--dtype`, `--shape`, `--offset`, np.memmap's words.

use crate::number::{size, whole};
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use lowtide::format::{Dtype, Kind};
use lowtide::{Error, Options, Result};
use std::ffi::OsStr;
use std::str::FromStr;

/// The arguments, for every command that opens arrays.
#[derive(Debug, clap::Args)]
pub struct Headerless {
    /// The element type of files without a header, such as float32
    #[arg(long, hide_possible_values = true, value_parser = Type)]
    dtype: Option<Dtype>,
    /// Their shape, such as -1,128
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, value_parser = size)]
    shape: Option<Vec<i64>>,
    /// Where their elements begin, in bytes
    #[arg(long, value_parser = whole::<u64>)]
    offset: Option<u64>,
}

impl Headerless {
    /// The same as options to open with.
    pub fn options(&self) -> Result<Options> {
        let mut options = Options::new();
        if let Some(dtype) = self.dtype {
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
    pub fn dtype(&self) -> Option<Dtype> {
        self.dtype
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

/// An element type. A shell's completion offers the names; NumPy's shorter words, such as `<f4`, are taken too.
#[derive(Clone)]
pub struct Type;

impl TypedValueParser for Type {
    type Value = Dtype;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Dtype, clap::Error> {
        StringValueParser::new().try_map(|word| Dtype::parse(&word)).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Dtype::NAMES.into_iter().map(PossibleValue::new)))
    }
}
