//! Files that are made: whole or not at all, with few dirty pages.
//!
//! [`replace`] is for a file that is made at once; [`Append`] for one that grows, whose writer holds a buffer and
//! lets the kernel hold a few windows of dirty pages, and that can be taken up again at a length that was synced.

mod append;
mod whole;

pub use append::Append;
pub use whole::{rename, replace, sync_folder};
