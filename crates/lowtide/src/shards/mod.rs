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
mod shelf;
mod unseen;

pub use arrays::{ArrayFile, ArrayWish, find_arrays, first_array, first_array_in};
pub(crate) use arrays::{check_array, find_arrays_unseen, hex, joined, names_one_array, read_head};
pub(crate) use detect::disagree;
pub use detect::{TokenFile, TokenWish};
pub use documents::{BLOCK as DOCUMENTS_BLOCK, BUFFER as DOCUMENTS_BUFFER, Documents};
pub(crate) use find::check_tokens;
pub use find::{Found, find_tokens};
pub(crate) use names::foreign_folder;
pub use prepared::{Prepared, load as load_manifest, load_from as load_manifest_from};
pub(crate) use unseen::list_parent;
