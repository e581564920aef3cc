//! A window that moves over a stream of bytes, and knows where it is: at which byte, in which line.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How much is asked of the stream at once.
const STEP: usize = 64 << 10;

/// The bytes that were read and not yet taken.
pub struct Window {
    stream: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// What is wrong with the stream: a broken one is not asked again.
    broken: Option<(io::ErrorKind, String)>,
    offset: u64,
    line: u64,
    before: Option<Before>,
}

/// What stands in a file before the first byte of the stream: its lines are counted when somebody asks.
struct Before {
    path: PathBuf,
    bytes: u64,
    lines: OnceCell<u64>,
}

impl Before {
    fn lines(&self) -> u64 {
        *self.lines.get_or_init(|| self.count().unwrap_or(0))
    }

    fn count(&self) -> io::Result<u64> {
        let (mut rest, mut buffer, mut lines) = (File::open(&self.path)?.take(self.bytes), vec![0; STEP], 0);
        loop {
            match rest.read(&mut buffer)? {
                0 => return Ok(lines),
                got => lines += memchr::memchr_iter(b'\n', &buffer[..got]).count() as u64,
            }
        }
    }
}

impl Window {
    pub fn new(stream: Box<dyn Read + Send>) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            ended: false,
            broken: None,
            offset: 0,
            line: 1,
            before: None,
        }
    }

    /// The same, of a stream that begins at `offset`, in line `line`.
    pub fn at(stream: Box<dyn Read + Send>, offset: u64, line: u64) -> Self {
        Self { offset, line, ..Self::new(stream) }
    }

    /// The same, of a stream that begins at `offset` of a file, in whichever line that is.
    pub fn behind(stream: Box<dyn Read + Send>, offset: u64, path: &Path) -> Self {
        let before = Before { path: path.to_owned(), bytes: offset, lines: OnceCell::new() };
        Self { before: Some(before), ..Self::at(stream, offset, 1) }
    }

    /// The byte of the stream at which the window begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The line in which it begins; the first is 1.
    pub fn line(&self) -> u64 {
        self.line + self.before.as_ref().map_or(0, Before::lines)
    }

    /// The bytes that were read and not yet taken. They are whole even where the stream has broken behind them.
    pub fn held(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Reads on until there are `want` bytes or the stream has ended; all that there is. Where it breaks before that,
    /// an error: what was read until then is [`held`](Self::held).
    pub fn fill(&mut self, want: usize) -> io::Result<&[u8]> {
        while !self.ended && self.buffer.len() - self.start < want {
            if let Some((kind, text)) = &self.broken {
                return Err(io::Error::new(*kind, text.clone()));
            }
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let len = self.buffer.len();
            self.buffer.resize(len + STEP.max(want.min(1 << 20).saturating_sub(len)), 0);
            let got = loop {
                match self.stream.read(&mut self.buffer[len..]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    answer => break answer,
                }
            };
            self.buffer.truncate(len + got.as_ref().map_or(0, |&got| got));
            match got {
                Ok(got) => self.ended = got == 0,
                Err(error) => self.broken = Some((error.kind(), error.to_string())),
            }
        }
        Ok(self.held())
    }

    /// Takes the first `n` bytes of what [`fill`](Self::fill) showed.
    pub fn take(&mut self, n: usize) {
        let taken = &self.buffer[self.start..self.start + n];
        self.line += memchr::memchr_iter(b'\n', taken).count() as u64;
        self.offset += n as u64;
        self.start += n;
    }
}

#[cfg(test)]
mod tests {
    use super::Window;
    use std::io::Cursor;

    #[test]
    fn knows_where_it_is() {
        let text: Vec<u8> = (0..300_000_u32).map(|n| if n % 1000 == 999 { b'\n' } else { b'x' }).collect();
        let mut window = Window::new(Box::new(Cursor::new(text)));
        assert!(window.fill(10).unwrap().len() >= 10);
        window.take(2_500);
        assert_eq!((window.offset(), window.line()), (2_500, 3));
        assert_eq!(window.fill(usize::MAX).unwrap().len(), 297_500);
        window.take(297_500);
        assert_eq!((window.offset(), window.line()), (300_000, 301));
        assert!(window.fill(1).unwrap().is_empty());
    }

    #[test]
    fn what_came_before_a_stream_broke_is_kept() {
        struct Breaks(u8);
        impl std::io::Read for Breaks {
            fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
                self.0 += 1;
                assert!(self.0 < 3, "a broken stream is asked again");
                if self.0 == 2 {
                    return Err(std::io::Error::other("broken"));
                }
                into[..4].copy_from_slice(b"a\nb\n");
                Ok(4)
            }
        }
        let mut window = Window::new(Box::new(Breaks(0)));
        for _ in 0..2 {
            assert_eq!(window.fill(100).unwrap_err().to_string(), "broken");
        }
        assert_eq!(window.fill(3).unwrap(), b"a\nb\n");
        window.take(2);
        assert_eq!((window.held(), window.line()), (&b"b\n"[..], 2));
    }
}
