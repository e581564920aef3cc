//! The Python module `lowtide._lowtide`: the core crate's nouns with Python's manners.
//!
//! Each file here has the name of what it brings to Python. The package `lowtide` re-exports what is
//! public; nothing here decides anything that the core crate should decide.

#![allow(clippy::needless_pass_by_value)] // Python passes values
// What is written for Python's help is plain text with examples, not Markdown.
#![allow(clippy::doc_markdown, clippy::doc_link_with_quotes)]
#![allow(clippy::redundant_closure_for_method_calls)] // PyO3's methods are often not general enough in their lifetimes

mod apart;
mod argument;
mod array;
mod batch;
mod budget;
mod chunk_shape;
mod chunks;
mod command;
mod convert;
mod dtype;
mod error;
mod fold;
mod foreseen;
mod index;
mod iteration;
mod loader;
mod memmap;
mod notebook;
mod number;
mod open;
mod parts;
mod pieces;
mod prepare;
mod progress;
mod ranks;
mod rows_key;
mod shuffle;
mod state;
mod storage;
mod store;
mod text;
mod tokens;
mod turns;
mod verify;
mod watch;
mod windows;
mod writer;
mod zip;

use pyo3::prelude::*;

#[pymodule]
fn _lowtide(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<apart::Preparing>()?;
    module.add_class::<apart::Shuffling>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<budget::Budget>()?;
    module.add_class::<chunks::Chunks>()?;
    module.add_class::<foreseen::Foreseen>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<prepare::Prepared>()?;
    module.add_class::<tokens::Tokens>()?;
    module.add_class::<verify::Verified>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<zip::Zip>()?;
    module.add_class::<watch::Watching>()?;
    module.add_class::<watch::Recorded>()?;
    module.add_function(wrap_pyfunction!(apart::prepare_portion, module)?)?;
    module.add_function(wrap_pyfunction!(apart::shuffle_unit, module)?)?;
    module.add_function(wrap_pyfunction!(open::open, module)?)?;
    module.add_function(wrap_pyfunction!(open::reopen, module)?)?;
    module.add_function(wrap_pyfunction!(memmap::release, module)?)?;
    module.add_function(wrap_pyfunction!(prepare::prepare, module)?)?;
    module.add_function(wrap_pyfunction!(prepare::reopen, module)?)?;
    module.add_function(wrap_pyfunction!(convert::convert, module)?)?;
    module.add_function(wrap_pyfunction!(verify::verify, module)?)?;
    module.add_function(wrap_pyfunction!(verify::again, module)?)?;
    module.add_function(wrap_pyfunction!(shuffle::shuffle, module)?)?;
    module.add_function(wrap_pyfunction!(shuffle::shuffle_documents, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::tokens, module)?)?;
    module.add_function(wrap_pyfunction!(tokens::reopen, module)?)?;
    module.add_function(wrap_pyfunction!(writer::append, module)?)?;
    module.add_function(wrap_pyfunction!(writer::create, module)?)?;
    module.add_function(wrap_pyfunction!(zip::zip, module)?)?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(watch::parse_interval, module)?)?;
    module.add_function(wrap_pyfunction!(watch::parse_size, module)?)?;
    Ok(())
}
