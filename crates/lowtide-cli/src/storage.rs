//! How object stores are reached: `--storage-option KEY=VALUE`, for every command that reads or writes there.

use crate::signals;
use lowtide::store::Storage;
use lowtide::write::Far;
use lowtide::{Error, Result};
use std::path::PathBuf;

/// The arguments of a command that makes files, of which some may go to an object store.
#[derive(Debug, clap::Args)]
pub struct FarArgs {
    #[command(flatten)]
    storage: StorageArgs,
    /// A folder of this machine for files that go to an object store when they are whole [default: $TMPDIR]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

impl FarArgs {
    /// What they mean; `stop` is asked while an answer is waited for.
    pub fn far(&self, stop: impl Fn() -> Result<()> + Send + Sync + 'static) -> Result<Far> {
        Ok(Far { storage: self.storage.storage()?.interrupted_by(stop), work: self.work.clone() })
    }
}

/// The arguments.
#[derive(Debug, clap::Args)]
pub struct StorageArgs {
    /// How an object store is reached, such as aws_region=eu-central-1; what is not said comes from the environment
    #[arg(long = "storage-option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

impl StorageArgs {
    /// The same as a way to open with.
    pub fn storage(&self) -> Result<Storage> {
        let pair = |option: &String| match option.split_once('=') {
            Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
            None => Err(Error::argument(
                format!("--storage-option {option} has no value"),
                "such as --storage-option aws_region=eu-central-1",
            )),
        };
        let pairs = self.options.iter().map(pair).collect::<Result<Vec<_>>>()?;
        if pairs.is_empty() { Ok(Storage::default()) } else { Storage::new(pairs) }
    }
}

/// Whether somebody wants it to end.
pub fn stop() -> Result<()> {
    if signals::asked().is_some() { Err(Error::Interrupted) } else { Ok(()) }
}
