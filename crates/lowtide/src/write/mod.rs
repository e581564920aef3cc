//! Files that are made: whole or not at all, with few dirty pages.
//!
//! | for | there is |
//! |---|---|
//! | a file that is made at once | [`replace`] |
//! | a file that grows, and is taken up again at a length that was synced | [`Append`] |
//! | an array: `.npy` or bare elements, whose rows come one after another or in any order | [`WriteOptions`], [`Writer`] |
//! | the same in an object store, whose rows come one after another | the same, for an address such as `s3://…` |
//! | files that are made here, and go to an object store when they are whole | [`Staged`] |
//!
//! All but the first let few pages be dirty at a time (`paced`); an array goes past the page cache where that is to keep
//! nothing: in order (`past`), or turned (`scattered`). An array that is being written has another name and a lock until it
//! is whole (`draft`), or lies behind the end of a file that keeps its old header until then (`home`).

mod append;
mod draft;
mod growth;
mod home;
mod out;
mod paced;
mod past;
mod scattered;
mod staged;
mod whole;
mod wish;
mod writer;

pub use crate::options::Existing;
pub use append::Append;
pub(crate) use draft::hidden;
pub(crate) use home::is_being_appended_to;
pub(crate) use scattered::Scattered;
pub use staged::{Far, Staged};
pub(crate) use whole::name_as;
pub use whole::{rename, replace, sync_folder};
pub use wish::WriteOptions;
pub use writer::{Part, Place, Writer};

use crate::error::Error;
use std::io;
use std::path::Path;

/// What the system said, and what that means for a file that is being written.
fn wrong(path: &Path, what: &'static str, error: io::Error) -> Error {
    let hint = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full",
        Some(libc::EDQUOT) => "your share of the disk, its quota, is used up",
        Some(libc::EFBIG) => "a limit on the size of files is in the way: ulimit -f, or the filesystem's own",
        Some(libc::EROFS) => "the filesystem cannot be written to",
        Some(libc::ENOENT) => "is the folder there?",
        _ => "",
    };
    Error::io(path, what, error).with_hint(hint)
}

#[cfg(test)]
mod tests;
