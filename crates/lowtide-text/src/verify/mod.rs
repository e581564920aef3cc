//! Whether files are what they say: a prepared folder by its manifest (sizes, checksums, ids), token files by their
//! headers, indexes and ids, arrays by their headers; and that every byte can be read.

mod files;
mod manifest;
mod pieces;

use crate::state::read_manifest_from;
use lowtide::door::Words;
use lowtide::format::{Dialect, Dtype};
use lowtide::store::Storage;
use lowtide::{Budget, Interrupt, Options, Result};
use std::path::{Path, PathBuf};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it is; the folder that was named, where it is about all of it.
    pub file: PathBuf,
    /// What is wrong, and where.
    pub what: Words,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many files.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong; empty where all is well.
    pub findings: Vec<Finding>,
}

/// What is known of the files, and how much memory to use.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// How many ids there are: a larger one is found. A prepared folder knows by itself.
    pub vocabulary: Option<u64>,
    /// The type of tokens, or of an array without a header.
    pub dtype: Option<Dtype>,
    /// What token files are written in.
    pub dialect: Option<Dialect>,
    /// The shape of an array without a header.
    pub shape: Option<Vec<i64>>,
    /// How much memory.
    pub budget: Option<Budget>,
    /// How object stores are reached.
    pub storage: Storage,
}

impl Wish {
    fn options(&self, options: Options) -> Options {
        let options = options.storage(self.storage.clone());
        match &self.budget {
            Some(budget) => options.budget(budget.clone()),
            None => options,
        }
    }
}

/// Compares the files of a prepared folder with its manifest, byte by byte; opens any others, reads all of them, and says
/// what is wrong with them or looks odd. `progress` is told how many of how many bytes.
///
/// # Errors
/// [`Error::Format`](lowtide::Error::Format) where a manifest or a header is damaged, and whatever opening them says.
pub fn verify(
    path: &Path,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Verified> {
    match read_manifest_from(path, &wish.storage)? {
        Some(manifest) => manifest::check(path, &manifest, wish, progress, interrupt),
        None => files::check(path, wish, progress, interrupt),
    }
}
