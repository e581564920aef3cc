//! Lowtide reads rows and token windows from files that are far larger than memory, in any order, inside
//! a fixed memory budget.
//!
//! ```
//! # fn main() -> lowtide::Result<()> {
//! # let path = std::env::temp_dir().join(format!("lowtide-doc-{}.bin", std::process::id()));
//! # std::fs::write(&path, vec![0u8; 4 * 8 * 1000]).unwrap();
//! use lowtide::{Options, Shuffle};
//!
//! // 1,000 rows of eight numbers; `lowtide::open` does for files that have a header.
//! let array = Options::new().dtype("float32".parse()?).shape(&[-1, 8])?.open(&path)?;
//! let mut rows = 0;
//! for chunk in array.shuffled(64, Shuffle { seed: 1, ..Shuffle::default() })? {
//!     let chunk = chunk?;
//!     let numbers: &[f32] = chunk.as_slice()?;
//!     assert_eq!(numbers.len(), chunk.rows() * 8);
//!     rows += chunk.rows();
//! }
//! assert_eq!(rows, 1_000);
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! Token files of every dialect (nanoGPT's, llm.c's, Megatron's, datatrove's, `OLMo`'s, NumPy's) are one stream,
//! in one file or many, and a [`Loader`] goes through its windows epoch after epoch, under any number of ranks:
//!
//! ```
//! # fn main() -> lowtide::Result<()> {
//! # let path = std::env::temp_dir().join(format!("lowtide-doc-tokens-{}.bin", std::process::id()));
//! # std::fs::write(&path, (0..10_000_u16).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
//! use lowtide::{Loader, LoaderOptions};
//!
//! let tokens = lowtide::tokens(&path)?; // a file, a folder, a glob or a Megatron prefix
//! let options = LoaderOptions { batch_size: 4, block_size: 64, seed: 1, ..Default::default() };
//! let mut loader = Loader::new(&tokens, options)?;
//! while let Some(batch) = loader.next_batch::<i64>(&|| Ok(())) {
//!     let (x, y) = batch?; // 4 windows of 64 tokens, y shifted by one
//!     assert_eq!(x.as_slice::<i64>()?[1..64], y.as_slice::<i64>()?[..63]);
//! }
//! assert_eq!(loader.state()?.epoch, 1); // all that there is to keep: an epoch and a position
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! Data moves one way, and each step knows only the step to its right:
//!
//! | step | where | in → out |
//! |---|---|---|
//! | which rows, when | [`order`] | position → row number, pure arithmetic |
//! | which bytes row n is | `engine/rows` | row number → offset and length |
//! | which way, and why | `engine/choose` | facts → [`Choice`], the one home of `auto` |
//! | look-ahead | `engine/group`, `engine/ahead` | the coming chunks, as many as the budget allows |
//! | every row its place | `engine/fill` | positions of those chunks → reads |
//! | few requests | `engine/plan`, `engine/fetch` | reads → sorted, merged requests, by several threads |
//! | bytes | [`store`]: source × way | requests → bytes in somebody's buffer, and a report of what it cost |
//! | what they mean | [`mod@format`], [`shards`] | header → element type, shape, offset, documents |
//! | another type | [`cast`] | elements as they stand in a file → those that the caller wants |
//! | wider integers | [`widen`] | tokens as they stand in a file → those that a model wants |
//! | other files | [`mod@write`], [`convert`] | elements → a file that appears whole or not at all |
//!
//! [`budget`] counts what all of them hold; [`meter`] asks the kernel whether that is true and shares no
//! code with them. [`Array`], [`Zip`], [`Chunks`], [`Tokens`] and [`Loader`] are thin faces over this.

mod again;
mod array;
mod astype;
mod batch;
pub mod budget;
pub mod cast;
mod chunks;
pub mod convert;
pub mod door;
mod engine;
pub mod error;
mod fold;
mod foreseen;
pub mod format;
mod interrupt;
mod iteration;
mod loader;
pub mod meter;
mod open;
mod options;
pub mod order;
mod parts;
mod prefetch;
mod resident;
mod selection;
pub mod shards;
mod shuffle;
mod shuffle_files;
mod size;
mod sort;
pub mod store;
pub mod sys;
mod tokens;
pub mod widen;
pub mod write;
mod zip;

pub use again::{Was, same_print, same_sizes};
pub use array::Array;
pub use batch::Batch;
pub use budget::Budget;
pub use budget::pool;
pub use chunks::{Chunk, Chunks, State};
pub use engine::bill::Bill;
pub use engine::choose::{Choice, Sure, Visit};
pub use engine::predict::Predicted;
pub use error::{Error, Result};
pub use fold::{Fold, Folded};
pub use foreseen::Foreseen;
pub use interrupt::Interrupt;
pub use iteration::{Again, Standing};
pub use loader::{Loader, LoaderOptions, LoaderState, WindowOrder};
pub use open::Options;
pub use options::{Access, Cache, CacheWish, Way};
pub use parts::Sizes;
pub use selection::Axis;
pub use shuffle::{BlockWish, Shuffle};
pub use shuffle_files::{Shared, ShortReads, ShuffleFiles, Shuffled, SortStep, Sorting, Unit};
pub use store::Store;
pub use tokens::{TokenOptions, Tokens};
pub use zip::Zip;

use std::path::Path;

/// Opens an array by its header, with the default options: a file, or the files of a folder or a glob.
pub fn open(path: impl AsRef<Path>) -> Result<Array> {
    Options::new().open(path)
}

/// Opens a stream of tokens, with the default options: a file, a folder, a glob or a Megatron prefix.
pub fn tokens(name: impl AsRef<Path>) -> Result<Tokens> {
    TokenOptions::new().open([name])
}
