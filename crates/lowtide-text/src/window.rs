//! A window that moves over a stream of bytes, and knows where it is: at which byte, in which line.

use std::io::{self, Read};

/// How much is asked of the stream at once.
const STEP: usize = 64 << 10;

/// The bytes that were read and not yet taken.
pub struct Window {
    stream: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    offset: u64,
    line: u64,
}

impl Window {
    pub fn new(stream: Box<dyn Read + Send>) -> Self {
        Self { stream, buffer: Vec::new(), start: 0, ended: false, offset: 0, line: 1 }
    }

    /// The same, of a stream that begins at `offset`, in line `line`.
    pub fn at(stream: Box<dyn Read + Send>, offset: u64, line: u64) -> Self {
        Self { offset, line, ..Self::new(stream) }
    }

    /// The byte of the stream at which the window begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The line in which it begins; the first is 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads on until there are `want` bytes or the stream has ended; all that there is.
    pub fn fill(&mut self, want: usize) -> io::Result<&[u8]> {
        while !self.ended && self.buffer.len() - self.start < want {
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
            self.ended = got? == 0;
        }
        Ok(&self.buffer[self.start..])
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
}
