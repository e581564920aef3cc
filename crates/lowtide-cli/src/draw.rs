//! How the command looks: tables, errors with their hints, and a line of progress.

use anstyle::{AnsiColor, Style};
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};

/// For what matters.
pub const BOLD: Style = Style::new().bold();
/// For what does not.
pub const DIM: Style = Style::new().dimmed();
/// For errors.
pub const RED: Style = AnsiColor::Red.on_default().bold();
/// For hints.
pub const CYAN: Style = AnsiColor::Cyan.on_default().bold();
/// For what is well.
pub const GREEN: Style = AnsiColor::Green.on_default().bold();

/// Says what went wrong, and what to do: `error: …`, then `hint: …`.
pub fn error(message: &str) {
    let (what, hint) = message.split_once("\nhint: ").unwrap_or((message, ""));
    anstream::eprintln!("{RED}error{RED:#}: {what}");
    if !hint.is_empty() {
        anstream::eprintln!("{CYAN}hint{CYAN:#}: {hint}");
    }
}

/// Prints names and values in two columns.
pub fn pairs(title: &str, pairs: &[(&str, String)]) {
    anstream::println!("{BOLD}{title}{BOLD:#}");
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        anstream::println!("  {DIM}{name:width$}{DIM:#}  {value}");
    }
}

/// A note under a table, in lines no wider than the command's help, cut between words.
pub fn note(text: &str) {
    let mut lines = vec!["note:".to_owned()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("      {word}")),
        }
    }
    anstream::println!("{DIM}{}{DIM:#}", lines.join("\n"));
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

impl Cell {
    /// The same text in a style.
    #[must_use]
    pub fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// Prints a table: the first column to the left, numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<Cell>]) {
    let width = |i: usize| {
        let cells = rows.iter().map(|row| row.get(i).map_or(0, |c| c.text.chars().count()));
        cells.chain([head[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = Cell>| {
        let mut text = String::new();
        for (i, (cell, &width)) in cells.zip(&widths).enumerate() {
            let space = " ".repeat(width - cell.text.chars().count());
            let (before, after) = if i == 0 { ("", &*space) } else { (&*space, "") };
            let Cell { text: content, style } = cell;
            let _ = write!(text, "  {before}{style}{content}{style:#}{after}");
        }
        text.trim_end().to_owned()
    };
    anstream::println!("{}", line(&mut head.iter().map(|&h| Cell::from(h).styled(DIM))));
    for row in rows {
        anstream::println!("{}", line(&mut row.iter().cloned()));
    }
}

/// A line of progress on stderr: only on a terminal, and only where nobody asked for quiet.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shows nothing where `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { shown: !quiet && std::io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub fn say(&self, text: &str) {
        if self.shown {
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.say("");
    }
}

/// A number with its thousands apart: `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_stand_apart() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(super::thousands(n), text);
        }
    }
}
