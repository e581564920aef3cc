//! Text to tokens: documents in, token files out, in bounded memory, on all cores, and it can be killed at any
//! moment.
//!
//! ```no_run
//! use lowtide_text::{Settings, prepare};
//! let settings = Settings { val: 0.0005, ..Settings::default() };
//! let manifest = prepare(&["corpus/".into()], "data/".as_ref(), &settings, &mut |_| {}, &|| Ok(()))?;
//! println!("{} documents", manifest.counts.documents);
//! # Ok::<(), lowtide::Error>(())
//! ```
//!
//! | step | module | in → out |
//! |---|---|---|
//! | which files | [`inputs`] | names → sources, in one order |
//! | which text | `packing`, `window`, `documents` | bytes, perhaps compressed → pieces of documents |
//! | few, equal portions | `feed` | pieces → loads of text, cut only where no id changes |
//! | ids | [`tokenizer`] | loads → tokens as a file has them, on all cores |
//! | files | `shards`, `deal` | loads in their order → shards; or documents in another order, dealt out of core |
//! | several machines | `apart`, `portion` | a portion of the input → its tokens in a file; all of them → what one machine writes |
//! | other orders | `shuffle` | documents of token files → token files of the same format, in shuffled order |
//! | object stores | `far` | a folder here, whole → a folder there, its manifest last |
//! | memory of it all | `job`, `state` | what was asked for, and how far it is: enough to go on after a kill |

mod apart;
#[doc(hidden)]
pub mod attack;
pub mod convert;
mod deal;
mod documents;
mod encode;
mod far;
mod feed;
pub mod inputs;
mod job;
mod packing;
mod portion;
mod prepare;
mod room;
mod says;
mod shards;
pub mod show;
mod shuffle;
mod split;
mod state;
pub mod tokenizer;
pub mod verify;
mod window;

pub use apart::{Begun, PORTION, Preparation, prepare_portion};
pub use far::prepare_far;
pub use job::{InputKind, OnError, Settings};
pub use portion::Made;
pub use prepare::{Progress, Step, prepare};
pub use shuffle::{ShuffleDocuments, ShuffledDocuments};
pub use tokenizer::Tokenizer;
