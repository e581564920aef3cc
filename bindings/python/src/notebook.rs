//! What notebooks show of an array and of tokens: a small table.
//!
//! Facts come in as names and texts, HTML goes out. Texts are escaped here: a file may have any name. Nothing is
//! fetched from anywhere, and colours are the notebook's own, light or dark.

use lowtide::budget::human;
use lowtide::meter::escape;
use std::fmt::Write;
use std::path::Path;

/// Of so many files the first are named.
const NAMED: usize = 3;

/// A table of facts under a title.
pub fn table(title: &str, facts: &[(&str, String)]) -> String {
    let cell = "text-align: left; padding: 2px 12px 2px 0; vertical-align: top; background: none";
    let mut html = format!(
        "<div style=\"font-size: 0.9em\"><strong>{}</strong><table style=\"border-collapse: collapse\">",
        escape(title)
    );
    for (name, value) in facts {
        // Writing to a String cannot fail.
        let _ = write!(
            html,
            "<tr><th scope=\"row\" style=\"{cell}; font-weight: normal; opacity: 0.7\">{}</th>\
             <td style=\"{cell}; overflow-wrap: anywhere\">{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    html + "</table></div>"
}

/// The settings that arrays and tokens share, after a size.
pub fn settings(array: &lowtide::Array) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("size", human(array.nbytes())),
        ("access", array.access().name().to_owned()),
        ("cache", array.cache().name().to_owned()),
        ("budget", human(array.budget().limit())),
    ];
    if array.is_closed() {
        facts.push(("closed", "yes".to_owned()));
    }
    facts
}

/// The names of files, and how many more there are.
pub fn names<'a>(paths: impl ExactSizeIterator<Item = &'a Path>) -> String {
    let more = paths.len().saturating_sub(NAMED);
    let mut names: Vec<String> = paths.take(NAMED).map(|path| path.display().to_string()).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
