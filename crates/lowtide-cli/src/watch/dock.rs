//! The bottom rows of a terminal, kept for us while a command's output scrolls above them.
//!
//! The terminal itself does the keeping: its scroll region ends above our rows. Everything is one write a
//! picture, so that the command's output is never cut in two, and dropping the dock gives the rows back.
//! Where the cursor is we never know, because only the command may read what the terminal answers: so after a
//! resize, which moves everything, our rows are whatever is below the cursor.

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

/// Whether the terminal on standard error can have a dock at all.
pub fn is_possible() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !dumb && io::stderr().is_terminal()
}

/// Who uses the terminal now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// A program that prints lines: there is room for both of us.
    Printing,
    /// A program that wants every key, as editors, pagers and prompts do: the screen is its own.
    Interactive,
    /// Another process group: we are in the background.
    Others,
}

/// Who uses the terminal now. Programs that take the whole screen also take the keyboard, and the terminal's
/// settings are shared, so that can be seen from here.
pub fn user() -> User {
    use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
    let ours = rustix::process::getpgrp();
    match (tcgetattr(io::stderr()), tcgetpgrp(io::stderr())) {
        (Ok(modes), _) if !modes.local_modes.contains(LocalModes::ICANON) => User::Interactive,
        (_, Ok(group)) if group != ours => User::Others,
        _ => User::Printing,
    }
}

impl Dock {
    /// Takes the last `rows` rows, if the terminal has some to spare.
    pub fn open(rows: usize) -> Option<Self> {
        let size = terminal_size().filter(|size| fits(*size, rows))?;
        let dock = Self { rows, size };
        dock.reserve();
        Some(dock)
    }

    /// How many columns a picture may take: see [`width`].
    pub fn width(&self) -> usize {
        width(self.size, self.rows)
    }

    /// Scrolls our rows free and fences them off, the cursor staying where the command left it: an index
    /// moves down, and scrolls at the end, without leaving the column.
    fn reserve(&self) {
        let room = "\x1bD".repeat(self.rows);
        show(&format!("{room}\x1b[{}A\x1b7\x1b[1;{}r\x1b8", self.rows, self.size.1 - self.rows));
    }

    /// Shows `lines` in our rows. The fence is set again, because a command may have reset the terminal, and
    /// lines are cut rather than wrapped, because the terminal may just have become narrower.
    pub fn draw(&self, lines: &[String]) {
        let mut picture = format!("\x1b7\x1b[?25l\x1b[?7l\x1b[1;{}r", self.size.1 - self.rows);
        for index in 0..self.rows {
            let row = self.size.1 - self.rows + 1 + index;
            let line = lines.get(index).map_or("", String::as_str);
            let _ = write!(picture, "\x1b[{row};1H\x1b[0m\x1b[2K{line}");
        }
        picture.push_str("\x1b[0m\x1b[?7h\x1b8\x1b[?25h");
        show(&picture);
    }

    /// Moves to the new end of a terminal that was resized. `None` where there is no room any more.
    pub fn resized(self) -> Option<Self> {
        let rows = self.rows;
        let size = terminal_size()?;
        if size == self.size {
            return Some(self);
        }
        drop(self);
        Self::open(rows)
    }

    /// Leaves the rows to a program that has taken the screen, and makes it draw itself anew. Dropping the dock
    /// later erases what such a program brings back when it leaves, which was us.
    pub fn give_way(&self) {
        self.erase();
        if let Ok(group) = rustix::termios::tcgetpgrp(io::stderr()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::WINCH);
        }
    }
}

impl Dock {
    fn erase(&self) {
        // Row by row: tmux keeps what is cleared from the first row on as if it had scrolled away.
        let now = terminal_size().unwrap_or(self.size);
        if now != self.size {
            let below = "\x1b[B\x1b[2K".repeat(now.1); // moving down stops at the last row
            show(&format!("\x1b7\x1b[r\x1b8\x1b7\x1b[K{below}\x1b8"));
            return;
        }
        let mut text = String::from("\x1b7\x1b[r");
        for row in self.size.1 - self.rows + 1..=self.size.1 {
            let _ = write!(text, "\x1b[{row};1H\x1b[2K");
        }
        show(&(text + "\x1b8"));
    }
}

impl Drop for Dock {
    /// Gives the rows back.
    fn drop(&mut self) {
        self.erase();
    }
}

fn fits(size: (usize, usize), rows: usize) -> bool {
    size.0 >= SMALLEST.0 && size.1 >= SMALLEST.1.max(rows + 6)
}

/// How many columns `rows` rows may take on a screen of this size. A terminal that becomes narrower wraps them before we
/// hear of it, and what does not fit on the screen then is scrolled away, among the command's output, where nobody can
/// erase it. So they fit even on the narrowest screen that has a dock.
fn width(size: (usize, usize), rows: usize) -> usize {
    size.0.min(SMALLEST.0 * (size.1 / rows))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_is_wrapped_still_fits_on_the_screen() {
        for columns in SMALLEST.0..300 {
            for rows in SMALLEST.1..100 {
                let wide = width((columns, rows), 12);
                assert!(wide >= SMALLEST.0);
                for narrower in SMALLEST.0..columns {
                    assert!(12 * wide.div_ceil(narrower) <= rows, "{columns} × {rows} to {narrower}");
                }
            }
        }
        assert_eq!(width((80, 24), 12), 80);
        assert_eq!(width((100, 30), 12), 100);
    }
}
