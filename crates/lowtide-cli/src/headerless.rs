//! What the user says about files that have no header: `--dtype`, `--shape`, `--offset`, np.memmap's words.

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
        if let Some(dtype) = &self.dtype {
            options = options.dtype(dtype.parse()?);
        }
        if let Some(shape) = &self.shape {
            options = options.shape(shape)?;
        }
        if let Some(offset) = self.offset {
            options = options.offset(offset);
        }
        Ok(options)
    }
}
