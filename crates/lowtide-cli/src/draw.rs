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

/// A note under a table.
pub fn note(text: &str) {
    anstream::println!("{DIM}{}{DIM:#}", fold(&format!("note: {text}"), 6, width()));
}

/// Text in lines as wide as the command's help, or as the terminal where that is narrower.
pub fn paragraph(text: &str, style: Style) {
    anstream::println!("{style}{}{style:#}", fold(text, 0, width()));
}

/// How wide text may be.
fn width() -> usize {
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout()).ok().map(|size| usize::from(size.ws_col));
    terminal.filter(|&columns| columns > 0).map_or(100, |columns| columns.min(100))
}

/// Cuts between words; all lines but the first are indented.
fn fold(text: &str, indent: usize, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines.join("\n")
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

/// Prints a table as [`table`] does, without the columns of `spare`, one after the other, where the terminal is
/// too narrow for them. Says which are missing.
pub fn table_that_fits<'a>(head: &[&'a str], rows: &[Vec<Cell>], spare: &[usize]) -> Vec<&'a str> {
    let terminal =
        rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let (shown, missing) =
        fitting(&widths(head, rows), spare, if terminal == 0 { usize::MAX } else { terminal });
    let pick = |row: &Vec<Cell>| shown.iter().filter_map(|&i| row.get(i).cloned()).collect();
    table(&shown.iter().map(|&i| head[i]).collect::<Vec<_>>(), &rows.iter().map(pick).collect::<Vec<_>>());
    missing.into_iter().map(|i| head[i]).collect()
}

/// Which columns fit, and which had to go.
fn fitting(widths: &[usize], spare: &[usize], terminal: usize) -> (Vec<usize>, Vec<usize>) {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let mut missing = Vec::new();
    for &column in spare {
        if shown.iter().map(|&i| 2 + widths[i]).sum::<usize>() <= terminal {
            break;
        }
        shown.retain(|&i| i != column);
        missing.push(column);
    }
    (shown, missing)
}

fn widths(head: &[&str], rows: &[Vec<Cell>]) -> Vec<usize> {
    let width = |i: usize| {
        let cells = rows.iter().map(|row| row.get(i).map_or(0, |c| c.text.chars().count()));
        cells.chain([head[i].chars().count()]).max().unwrap_or(0)
    };
    (0..head.len()).map(width).collect()
}

/// Prints a table: the first column to the left, numbers to the right.
pub fn table(head: &[&str], rows: &[Vec<Cell>]) {
    let widths = widths(head, rows);
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
    fn text_is_cut_between_words() {
        assert_eq!(super::fold("note: one two  three", 6, 13), "note: one two\n      three");
        assert_eq!(super::fold("unbreakable", 0, 5), "unbreakable");
        assert_eq!(super::fold("", 0, 5), "");
    }

    #[test]
    fn a_narrow_terminal_loses_the_spare_columns_first() {
        let widths = [10, 5, 5, 5]; // with the spaces between them 33
        assert_eq!(super::fitting(&widths, &[2, 1], 33), (vec![0, 1, 2, 3], vec![]));
        assert_eq!(super::fitting(&widths, &[2, 1], 32), (vec![0, 1, 3], vec![2]));
        assert_eq!(super::fitting(&widths, &[2, 1], 5), (vec![0, 3], vec![2, 1]));
    }

    #[test]
    fn thousands_stand_apart() {
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(super::thousands(n), text);
        }
    }
}
