//! The `lowtide` command, as a library.
/// Runs it.
pub fn main(_arguments: Vec<String>, _python: Option<std::path::PathBuf>) -> i32 { 0 }
