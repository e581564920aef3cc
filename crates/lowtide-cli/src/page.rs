//! Pages that need nothing else: one file, nothing loaded, no script, light and dark, wide and narrow.
//!
//! The head, the colours and the shapes of cards, legends and tables are the same for all of them; a command
//! brings its body, and a few rules of its own. Whatever is put into a template is escaped by whoever has it.

use lowtide::meter::escape;
use lowtide::{Error, Result};
use std::io::Read as _;
use std::path::Path;

const SHELL: &str = include_str!("page/shell.html");
const STYLE: &str = include_str!("page/style.css");

/// A whole page: who made it, its title, rules of its own, and its body, which is markup.
pub fn whole(generator: &str, title: &str, style: &str, body: &str) -> String {
    fill(
        SHELL,
        &[
            ("GENERATOR", escape(generator)),
            ("TITLE", escape(title)),
            ("STYLE", format!("{STYLE}{style}")),
            ("BODY", body.to_owned()),
        ],
    )
}

/// Puts values into a template, in one walk: what a file's name says is never taken for a place.
pub fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut page =
        String::with_capacity(template.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, place)) = rest.split_once("{{") {
        let (name, after) = place.split_once("}}").unwrap_or((place, ""));
        page.push_str(before);
        page.extend(values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str()));
        rest = after;
    }
    page + rest
}

/// Names and values, for a list of class `machine`.
pub fn pairs(pairs: &[(&str, String)]) -> String {
    let lines = pairs.iter().map(|(name, value)| format!("    <dt>{name}</dt><dd>{}</dd>\n", escape(value)));
    lines.collect()
}

/// That a page would replace nothing but an older one of the same command.
pub fn check(path: &Path, generator: &str) -> Result<()> {
    let refused = |what: &str| {
        let what = format!("{}: {what}", path.display());
        Err(Error::argument(what, "--html names another place for the page"))
    };
    let Ok(meta) = std::fs::metadata(path) else { return Ok(()) };
    if !meta.is_file() {
        return refused("this is not a file");
    }
    let mut head = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(2048).read_to_end(&mut head));
    let ours = format!("<meta name=\"generator\" content=\"{}\">", escape(generator));
    if read.is_err() || !String::from_utf8_lossy(&head).contains(&ours) {
        return refused("there is a file already, which this command has not made");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_markup_or_a_place() {
        let body = fill(
            "<p>{{PATH}}</p>{{TABLE}}",
            &[("PATH", escape("<b>\"{{TABLE}}&{{BODY}}")), ("TABLE", "rows".into())],
        );
        assert_eq!(body, "<p>&lt;b&gt;&quot;{{TABLE}}&amp;{{BODY}}</p>rows");
        let page = whole("a test", "</title>{{BODY}}", "", &body);
        assert_eq!(page.matches(&body).count(), 1);
        assert!(page.contains("<title>&lt;/title&gt;{{BODY}}</title>"));
    }

    #[test]
    fn only_a_page_of_the_same_command_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        assert!(check(&path, "lowtide demo").is_ok());
        std::fs::write(&path, whole("lowtide demo", "", "", "")).unwrap();
        assert!(check(&path, "lowtide demo").is_ok());
        std::fs::write(&path, whole("lowtide bench", "", "", "")).unwrap();
        assert!(check(&path, "lowtide demo").unwrap_err().to_string().contains("has not made"));
        assert!(check(Path::new("/dev/null"), "lowtide demo").is_err());
    }
}
