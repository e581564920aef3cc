//! How the command looks: tables, errors with their hints, and a line of progress.

use anstyle::{AnsiColor, Style};
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// Prints a line of the answer, as `println!` does, but never panics: see [`unheard`].
macro_rules! say {
    () => { $crate::draw::line(format_args!("")) };
    ($($words:tt)+) => { $crate::draw::line(format_args!($($words)+)) };
}

/// The first thing that went wrong with the answer.
static UNHEARD: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on stdout.
pub fn line(words: fmt::Arguments<'_>) {
    put(&mut anstream::stdout(), format!("{words}\n").as_bytes());
}

/// Prints bytes on stdout, as they are.
pub fn raw(bytes: &[u8]) {
    put(&mut io::stdout(), bytes);
}

fn put(stdout: &mut impl Write, bytes: &[u8]) {
    if UNHEARD.get().is_some() {
        return;
    }
    if let Err(error) = stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        let _ = UNHEARD.set(error);
    }
}

/// Prints a line on stderr. Nobody need hear it.
pub fn remark(words: fmt::Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{words}");
}

/// Why the answer could not be printed, if it could not: nobody reads any more (`| head`), or a disk is full. The
/// command itself goes on to its end, so that it leaves nothing behind.
pub fn unheard() -> Option<&'static io::Error> {
    UNHEARD.get()
}

/// For what matters.
pub const BOLD: Style = Style::new().bold();
/// For what does not.
pub const DIM: Style = Style::new().dimmed();
/// For errors.
pub const RED: Style = AnsiColor::Red.on_default().bold();
/// For warnings.
pub const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
/// For hints.
pub const CYAN: Style = AnsiColor::Cyan.on_default().bold();
/// For what is well.
pub const GREEN: Style = AnsiColor::Green.on_default().bold();

/// Says what went wrong, and what to do: `error: …`, then `hint: …`.
pub fn error(message: &str) {
    let (what, hint) = message.split_once("\nhint: ").unwrap_or((message, ""));
    remark(format_args!("{RED}error{RED:#}: {what}"));
    if !hint.is_empty() {
        remark(format_args!("{CYAN}hint{CYAN:#}: {hint}"));
    }
}

/// Says what went wrong and did not stop the work.
pub fn warning(message: &str) {
    remark(format_args!("{YELLOW}warning{YELLOW:#}: {message}"));
}

/// Prints names and values in two columns.
pub fn pairs(title: &str, pairs: &[(&str, String)]) {
    say!("{BOLD}{title}{BOLD:#}");
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        say!("  {DIM}{name:width$}{DIM:#}  {value}");
    }
}

/// A note under a table.
pub fn note(text: &str) {
    say!("{DIM}{}{DIM:#}", fold(&format!("note: {text}"), 6, width()));
}

/// Text in lines as wide as the command's help, or as the terminal where that is narrower.
pub fn paragraph(text: &str, style: Style) {
    say!("{style}{}{style:#}", fold(text, 0, width()));
}

/// How wide text may be.
fn width() -> usize {
    columns(io::stdout()).map_or(100, |columns| columns.min(100))
}

/// How many columns a terminal has; none where it is none, or does not know.
fn columns(terminal: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// As much of a line as a terminal of so many columns shows: a line that it breaks is not replaced by the next one.
/// The last column stays free, for there some terminals break already.
pub fn fitted(line: &str, columns: Option<usize>) -> &str {
    let Some(columns) = columns.filter(|&columns| columns > 0) else { return line };
    let end = line.char_indices().nth(columns - 1).map_or(line.len(), |(at, _)| at);
    &line[..end]
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
    let (shown, missing) = fitting(&widths(head, rows), spare, columns(io::stdout()).unwrap_or(usize::MAX));
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
    say!("{}", line(&mut head.iter().map(|&h| Cell::from(h).styled(DIM))));
    for row in rows {
        say!("{}", line(&mut row.iter().cloned()));
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
        Self { shown: !quiet && io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub fn say(&self, text: &str) {
        if self.shown {
            let mut stderr = io::stderr().lock();
            let text = fitted(text, columns(&stderr));
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

/// Text that a terminal only shows: what moves the cursor, colours, or turns the direction of writing is spelled out.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => out.push_str("\\r"),
            _ if c.is_control() => {
                let _ = fmt::Write::write_fmt(&mut out, format_args!("\\x{:02x}", u32::from(c)));
            }
            _ if turns || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                let _ = fmt::Write::write_fmt(&mut out, format_args!("\\u{{{:x}}}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out
}

/// So many of something: `1 token`, `1,234 tokens`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
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
    fn a_line_of_progress_is_cut_before_it_breaks() {
        assert_eq!(super::fitted("dös é", None), "dös é");
        assert_eq!(super::fitted("dös é", Some(6)), "dös é");
        assert_eq!(super::fitted("dös é", Some(5)), "dös ");
        assert_eq!(super::fitted("dös é", Some(1)), "");
        assert_eq!(super::fitted("dös é", Some(0)), "dös é", "a terminal that does not know");
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

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(super::safe("a\n\tb é 𝄞 👩\u{200d}🚀"), "a\n\tb é 𝄞 👩\u{200d}🚀");
        assert_eq!(super::safe("\x1b]0;owned\x07\r\u{9b}2J\0"), "\\x1b]0;owned\\x07\\r\\x9b2J\\x00");
        assert_eq!(super::safe("x\u{202e}y\u{2028}\u{feff}"), "x\\u{202e}y\\u{2028}\\u{feff}");
        assert_eq!(super::safe("\x7f"), "\\x7f");
    }
}
