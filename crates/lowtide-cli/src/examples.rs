//! Every `lowtide` command that the README, the pages of docs/ and the help of the commands show is one that can be
//! called: each is parsed as a shell and the command itself would do it. Nothing is run.

use super::Cli;
use clap::{CommandFactory, Parser};
use std::fs;
use std::path::{Path, PathBuf};

/// The words of a line as a shell sees them: quotes go, and so does a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The commands of ours in a page: those in blocks that are for a shell, wherever they stand in their line.
fn commands(page: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut language: Option<&str> = None;
    for line in page.replace("\\\n", " ").lines() {
        match (line.strip_prefix("```"), language) {
            (Some(name), None) => {
                language = Some(if matches!(name, "" | "sh" | "bash") { "shell" } else { "other" });
            }
            (Some(_), Some(_)) => language = None,
            (None, Some("shell")) => found.extend(ours(line)),
            (None, _) => {}
        }
    }
    found
}

/// What of a line is a command of ours, up to a pipe.
fn ours(line: &str) -> Option<Vec<String>> {
    let words = words(line);
    let at = words.iter().position(|word| word == "lowtide")?;
    let command: Vec<_> = words[at..].iter().take_while(|word| *word != "|").cloned().collect();
    (command.len() > 1).then_some(command)
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    docs.filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .chain([root.join("README.md")])
        .collect()
}

#[test]
fn every_command_that_a_page_shows_can_be_called() {
    let mut looked_at = 0;
    for page in pages() {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            if let Err(error) = Cli::try_parse_from(&command) {
                panic!("{}: {}\n{error}", page.display(), command.join(" "));
            }
            looked_at += 1;
        }
    }
    assert!(looked_at >= 40, "the commands of the pages are found: {looked_at}");
}

#[test]
fn every_command_that_the_help_shows_can_be_called() {
    let mut looked_at = 0;
    for command in Cli::command().get_subcommands() {
        let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in said.lines().filter(|line| line.starts_with("  lowtide ")) {
            if let Err(error) = Cli::try_parse_from(words(line)) {
                panic!("{line}\n{error}");
            }
            looked_at += 1;
        }
    }
    assert!(looked_at >= 8, "examples are found: {looked_at}");
}

#[test]
fn a_line_is_read_as_a_shell_does() {
    assert_eq!(
        words("lowtide watch --file 'data/*.bin' -- x # why"),
        ["lowtide", "watch", "--file", "data/*.bin", "--", "x"]
    );
    assert_eq!(words("a \"\" 'b c'd#e"), ["a", "", "b cd#e"]);
    assert_eq!(
        ours("zcat x | lowtide prepare - -o d | cat").unwrap(),
        ["lowtide", "prepare", "-", "-o", "d"]
    );
    assert_eq!(ours("cd lowtide"), None);
    let page = "```python\nlowtide info\n```\ntext lowtide info\n```\nlowtide info \\\n  a.npy\n```\n";
    assert_eq!(commands(page), [["lowtide", "info", "a.npy"]]);
    assert!(Cli::try_parse_from(["lowtide", "info", "--no-such-flag", "a"]).is_err(), "a mistake is one");
}
