//! Lowtide reads rows from arrays on disk that are far larger than memory, in any order, inside a
//! fixed memory budget.

pub mod budget;
pub mod error;
pub mod format;
pub mod order;

pub use error::{Error, Result};
