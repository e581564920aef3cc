//! What the user says about files that have no header: `--dtype`, `--shape`, `--offset`, np.memmap's words.

use lowtide::format::{Dtype, Kind};
use lowtide::{Options, Result};

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
    #[arg(long)]
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

/// A message of the library in the words of the command: `dtype="uint16"` becomes `--dtype uint16`. Paths stay
/// what they are: a word of one stands behind a `/`.
pub fn as_flags(message: &str) -> String {
    let mut rest = message;
    let mut text = String::with_capacity(message.len());
    while !rest.is_empty() {
        let begins = text.is_empty() || text.ends_with([' ', '(', '\n']);
        let flag = ["dtype", "shape", "offset", "format"].into_iter().find_map(|word| {
            let value = rest.strip_prefix(word)?.strip_prefix('=')?;
            begins.then_some((word, value))
        });
        let Some((word, value)) = flag else {
            let next = rest.char_indices().nth(1).map_or(rest.len(), |(at, _)| at);
            text.push_str(&rest[..next]);
            rest = &rest[next..];
            continue;
        };
        text.push_str("--");
        text.push_str(word);
        rest = value;
        // A value in quotes, or a shape as Python writes it: both are given after a space.
        if let Some((quoted, after)) = value.strip_prefix('"').and_then(|value| value.split_once('"')) {
            text.push(' ');
            text.push_str(quoted);
            rest = after;
        } else if value.starts_with('(') {
            text.push(' ');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::as_flags;

    #[test]
    fn keywords_become_flags_and_paths_stay() {
        for (message, flags) in [
            ("needs dtype=, such as dtype=\"uint16\"", "needs --dtype, such as --dtype uint16"),
            ("(and shape=, offset=)", "(and --shape, --offset)"),
            ("shape=(-1, …) takes", "--shape (-1, …) takes"),
            ("/data/dtype=\"x\"/é.bin: format=\"raw\"", "/data/dtype=\"x\"/é.bin: --format raw"),
            ("leave dtype out", "leave dtype out"),
            ("", ""),
        ] {
            assert_eq!(as_flags(message), flags);
        }
    }
}
