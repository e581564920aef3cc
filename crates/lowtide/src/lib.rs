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
//! | step | module | in → out |
//! |---|---|---|
//! | which rows, when | [`order`] | position → row number, pure arithmetic |
//! | look-ahead | [`chunks`], [`loader`] | row numbers → reads, as many as the budget allows |
//! | few reads | [`plan`] | reads → sorted, merged requests |
//! | bytes | [`store`] | requests → bytes in somebody's buffer |
//! | what they mean | [`mod@format`] | header → element type, shape, offset, documents |
//! | wider integers | [`widen`] | tokens as they stand in a file → those that a model wants |
//!
//! [`budget`] counts what all of them hold; [`meter`] asks the kernel whether that is true and shares no
//! code with them.

mod again;
pub mod array;
pub mod batch;
pub mod budget;
pub mod choose;
pub mod chunks;
mod data;
pub mod door;
pub mod error;
pub mod format;
pub mod iteration;
pub mod loader;
pub mod meter;
pub mod order;
pub mod plan;
pub mod pool;
pub mod prefetch;
mod reader;
mod resident;
pub mod selection;
pub mod store;
pub mod sys;
pub mod tokens;
pub mod widen;
pub mod write;

pub use again::{Was, same_print, same_sizes};
pub use array::{Array, Options};
pub use batch::Batch;
pub use budget::Budget;
pub use choose::CacheWish;
pub use chunks::{BlockWish, Chunks, Shuffle, State, Zip};
pub use error::{Error, Result};
pub use iteration::{Again, Standing};
pub use loader::{Loader, LoaderOptions, LoaderState, WindowOrder};
pub use selection::Axis;
pub use store::{Access, Store};
pub use tokens::{TokenOptions, Tokens};

use std::path::Path;

/// Opens an array by its header, with the default options.
pub fn open(path: impl AsRef<Path>) -> Result<Array> {
    Options::new().open(path)
}

/// Opens a stream of tokens, with the default options: a file, a folder, a glob or a Megatron prefix.
pub fn tokens(name: impl AsRef<Path>) -> Result<Tokens> {
    TokenOptions::new().open([name])
}
