//! Which files are meant, and what each is: the I/O around the parsers of [`format`](mod@crate::format).
//!
//! In: names that a user gives (files, folders, globs, prefixes). Out: the [`TokenFile`]s of one stream or the
//! [`ArrayFile`]s of one array, in order.
//! [`Documents`] says where documents begin and end in it, [`Prepared`] what a manifest beside the files says.

mod arrays;
mod detect;
pub(crate) mod documents;
mod each;
mod find;
mod names;
mod prepared;

pub use arrays::{ArrayFile, ArrayWish, find_arrays, first_array};
pub(crate) use arrays::{hex, joined, names_one_array, read_head};
pub use detect::{TokenFile, TokenWish};
pub use documents::{BLOCK as DOCUMENTS_BLOCK, BUFFER as DOCUMENTS_BUFFER, Documents};
pub use find::{Found, find_tokens};
pub(crate) use names::foreign_folder;
pub use prepared::{Prepared, load as load_manifest};
