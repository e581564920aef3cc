//! The bottom rows of a terminal, kept for us while a command's output scrolls above them.
//!
//! The terminal itself does the keeping: its scroll region ends above our rows. Everything is one write a
//! picture, so that the command's output is never cut in two, and dropping the dock gives the rows back.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

/// A terminal smaller than this keeps all its rows for the command.
const SMALLEST: (usize, usize) = (60, 18);

/// Rows of the terminal on standard error.
#[derive(Debug)]
pub struct Dock {
    rows: usize,
    size: (usize, usize),
}

impl Dock {
    /// Takes the last `rows` rows, if standard error is a terminal with some to spare.
    pub fn open(rows: usize) -> Option<Self> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !io::stderr().is_terminal() {
            return None;
        }
        let size = terminal_size()?;
        if size.0 < SMALLEST.0 || size.1 < SMALLEST.1.max(rows + 6) {
            return None;
        }
        let dock = Self { rows, size };
        dock.reserve();
        Some(dock)
    }

    /// How many columns there are.
    pub fn width(&self) -> usize {
        self.size.0
    }

    /// Scrolls our rows free and fences them off, the cursor staying where the command left it.
    fn reserve(&self) {
        let room = "\n".repeat(self.rows);
        show(&format!("{room}\x1b[{}A\x1b7\x1b[1;{}r\x1b8", self.rows, self.size.1 - self.rows));
    }

    /// Shows `lines` in our rows.
    pub fn draw(&mut self, lines: &[String]) {
        if let Some(size) = terminal_size()
            && size != self.size
            && size.1 > self.rows + 6
        {
            self.release();
            self.size = size;
            self.reserve();
        }
        let mut picture = String::from("\x1b7\x1b[?25l");
        for (index, line) in lines.iter().take(self.rows).enumerate() {
            let row = self.size.1 - self.rows + 1 + index;
            let _ = write!(picture, "\x1b[{row};1H\x1b[0m\x1b[2K{line}");
        }
        picture.push_str("\x1b[0m\x1b8\x1b[?25h");
        show(&picture);
    }

    /// Gives the rows back, for as long as we are stopped.
    pub fn release(&self) {
        let first = self.size.1.saturating_sub(self.rows) + 1;
        show(&format!("\x1b7\x1b[r\x1b[{first};1H\x1b[J\x1b8"));
    }

    /// Takes the rows again.
    pub fn retake(&mut self) {
        self.size = terminal_size().unwrap_or(self.size);
        self.reserve();
    }
}

impl Drop for Dock {
    fn drop(&mut self) {
        self.release();
    }
}

/// Columns and rows.
fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

fn show(text: &str) {
    // A terminal that has gone away is no reason to stop watching.
    let _ = io::stderr().write_all(text.as_bytes());
}
