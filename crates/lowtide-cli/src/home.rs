//! `~` at the beginning of a path is the user's home, for every argument of every command that is a path.
//!
//! A shell expands it only where it stands bare: not in a quoted glob, nor behind the `=` of an option.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::any::TypeId;
use std::path::{Path, PathBuf};

/// The command, with every argument that is a path expanded.
pub fn expanded(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        if argument.get_value_parser().type_id() == TypeId::of::<PathBuf>() {
            argument.value_parser(PathBufValueParser::new().map(|given| at_home(&given)))
        } else {
            argument
        }
    })
}

/// A path as people write it. What is there by that very name is meant itself.
pub fn at_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) if !path.exists() => home.join(rest),
        _ => path.to_owned(),
    }
}

/// The same of a word that may be a path or something else, such as the name of a tokenizer.
pub fn word_at_home(word: &str) -> String {
    match at_home(Path::new(word)).into_os_string().into_string() {
        Ok(path) => path,
        Err(_) => word.to_owned(), // the home is no text
    }
}
