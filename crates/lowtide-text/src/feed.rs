//! Pieces of documents into loads: portions of text of about one size, which threads can work on by themselves.
//!
//! A document that does not fit in a load is cut, only where the tokenizer says that no id changes by it. Loads are
//! few and used again and again: while none is free, reading waits.

use crate::documents::{Mark, Sink};
use crate::job::OnError;
use crate::packing::Gauge;
use crate::room::Room;
use crate::says::BUDGET;
use crate::state::Place;
use crate::tokenizer::Tokenizer;
use lowtide::door::Words;
use lowtide::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};

/// How many errors are told in words.
pub const SAID: usize = 20;

/// An error in one line: what to do about it was decided when it was passed over.
pub fn said(error: &Error) -> String {
    let text = error.to_string();
    text.split_once("\nhint: ").map_or(&*text, |(what, _)| what).to_owned()
}

/// A portion of text, and what became of it.
#[derive(Debug, Default)]
pub struct Load {
    /// Its place among all loads.
    pub number: u64,
    pub text: String,
    pub pieces: Vec<Piece>,
    /// The tokens of all pieces, as a file has them.
    pub tokens: Vec<u8>,
    /// What has been read when all of it is written; `None` where a document goes on in the next load.
    pub after: Option<After>,
}

/// A document, or a part of one.
#[derive(Debug)]
pub struct Piece {
    /// Its number in the input.
    pub document: u64,
    /// Where it ends in the text, and in the tokens.
    pub text_end: usize,
    pub tokens_end: usize,
    pub first: bool,
    pub last: bool,
    pub fate: Fate,
}

/// What becomes of a piece.
#[derive(Debug)]
pub enum Fate {
    /// It is written.
    Written,
    /// Its document could not be read: counted already.
    PassedOver,
    /// It has no tokens.
    Failed(Error),
}

/// How far reading is.
#[derive(Clone, Debug, Default)]
pub struct After {
    pub place: Place,
    pub empty: u64,
    /// Documents that reading has passed over, and what was wrong with the first of them.
    pub skipped: u64,
    pub said: Vec<String>,
}

/// Fills loads.
pub struct Feeder<'a> {
    tokenizer: &'a dyn Tokenizer,
    on_error: OnError,
    free: Receiver<Load>,
    full: Sender<Load>,
    load: Option<Load>,
    /// All loads there are, and those that were called back to have the room for a large one.
    loads: usize,
    back: Vec<Load>,
    next: u64,
    /// The text of a load, and of a piece that cannot be cut.
    size: usize,
    most: usize,
    /// Documents of this source that an earlier run has done.
    skip: u64,
    after: After,
    /// What is being read, for messages.
    path: PathBuf,
    /// Says whether nobody wants any more: asked also where no load is.
    gauge: Gauge,
    /// Where the piece begins in the load; whether it is its document's first; when a cut is tried again.
    start: usize,
    first: bool,
    try_at: usize,
    /// Whether the rest of this document is passed over.
    lost: bool,
}

impl<'a> Feeder<'a> {
    pub fn new(
        tokenizer: &'a dyn Tokenizer,
        on_error: OnError,
        (free, full): (Receiver<Load>, Sender<Load>),
        room: &Room,
        (after, gauge): (After, Gauge),
    ) -> Self {
        Self {
            tokenizer,
            on_error,
            free,
            full,
            load: None,
            loads: room.loads,
            back: Vec::new(),
            next: 0,
            size: room.load,
            most: room.piece,
            skip: 0,
            after,
            path: PathBuf::new(),
            gauge,
            start: 0,
            first: true,
            try_at: room.load,
            lost: false,
        }
    }

    /// A source begins, of which `done` documents are done: they come again, or reading begins at a mark behind them.
    pub fn begin_source(&mut self, source: usize, path: &Path, done: u64, mark: Option<Mark>) {
        path.clone_into(&mut self.path);
        let number = self.after.place.number;
        self.after.place = Place { source, documents: done, mark, number };
        self.skip = if mark.is_none() { done } else { 0 };
    }

    /// A source has been read to its end.
    pub fn end_source(&mut self) {
        let Place { source, number, .. } = self.after.place;
        self.after.place = Place { source: source + 1, documents: 0, mark: None, number };
    }

    /// Sends what there is.
    pub fn finish(mut self) -> Result<()> {
        self.load()?;
        self.send(true)
    }

    fn load(&mut self) -> Result<&mut Load> {
        if self.load.is_none() {
            let mut load = match self.back.pop() {
                Some(load) => load,
                None => self.free.recv().map_err(|_| Error::Interrupted)?,
            };
            load.text.clear();
            load.text.shrink_to(2 * self.size); // one that could not be cut was larger
            load.pieces.clear();
            load.tokens.clear();
            load.tokens.shrink_to(8 * self.size);
            load.number = self.next;
            self.next += 1;
            self.load = Some(load);
        }
        self.load.as_mut().ok_or(Error::Interrupted)
    }

    fn send(&mut self, at_end: bool) -> Result<()> {
        let Some(mut load) = self.load.take() else { return Ok(()) };
        load.after = at_end.then(|| self.after.clone());
        self.start = 0;
        self.full.send(load).map_err(|_| Error::Interrupted)
    }

    /// Ends the piece at `end` of the load's text.
    fn piece(&mut self, end: usize, last: bool, fate: Fate) -> Result<()> {
        let (document, first) = (self.after.place.number, self.first);
        let piece = Piece { document, text_end: end, tokens_end: 0, first, last, fate };
        self.load()?.pieces.push(piece);
        (self.start, self.first) = (end, last);
        self.try_at = self.size;
        Ok(())
    }

    /// Waits until all other loads are written: there is room for one large piece, not for one in each.
    fn call_back(&mut self) -> Result<()> {
        while self.back.len() + 1 < self.loads {
            let mut load = self.free.recv().map_err(|_| Error::Interrupted)?;
            load.text.shrink_to(2 * self.size);
            load.tokens.clear();
            load.tokens.shrink_to(8 * self.size);
            self.back.push(load);
        }
        Ok(())
    }

    /// Sends the load with the first part of a document that goes on.
    fn cut(&mut self) -> Result<()> {
        let (tokenizer, start) = (self.tokenizer, self.start);
        let text = &self.load()?.text;
        let part = &text[start..];
        let Some(at) = tokenizer.cut(part) else {
            let len = part.len();
            if len > self.most {
                let (path, number) = (self.path.display(), self.after.place.documents + 1);
                let text = format!(
                    "{path}: document {number} has {len} bytes without a place where it could be cut"
                );
                let hint = Words::from("a larger ") + BUDGET + " has room for it";
                return self.give_up(Error::argument(text, hint));
            }
            self.try_at = self.try_at.saturating_mul(2);
            return self.call_back();
        };
        let end = start + at;
        let rest = text[end..].to_owned();
        self.load()?.text.truncate(end);
        self.piece(end, false, Fate::Written)?;
        self.send(false)?;
        self.load()?.text.push_str(&rest);
        Ok(())
    }

    /// Forgets the document. What follows of it is passed over.
    fn give_up(&mut self, error: Error) -> Result<()> {
        if self.on_error == OnError::Stop {
            return Err(error);
        }
        let start = self.start;
        self.load()?.text.truncate(start);
        self.after.skipped += 1;
        if self.after.said.len() < SAID {
            self.after.said.push(said(&error));
        }
        if !self.first {
            self.piece(start, true, Fate::PassedOver)?;
        }
        self.lost = true;
        Ok(())
    }

    /// The document is over, for good or not.
    fn over(&mut self, mark: Option<Mark>) -> Result<()> {
        (self.first, self.lost) = (true, false);
        self.try_at = self.size;
        self.after.place.number += 1;
        self.after.place.documents += 1;
        self.after.place.mark = mark;
        let size = self.size;
        if self.load.as_ref().is_some_and(|load| load.text.len() >= size) { self.send(true) } else { Ok(()) }
    }

    /// Whether an earlier run has done this document.
    fn done(&mut self) -> bool {
        let done = self.skip > 0;
        self.skip -= u64::from(done);
        done
    }
}

impl Sink for Feeder<'_> {
    fn push(&mut self, text: &str) -> Result<()> {
        if self.skip > 0 || self.lost {
            return if self.gauge.stopped() { Err(Error::Interrupted) } else { Ok(()) };
        }
        let (start, try_at) = (self.start, self.try_at);
        let load = self.load()?;
        load.text.push_str(text);
        if load.text.len() - start >= try_at { self.cut() } else { Ok(()) }
    }

    fn end(&mut self, mark: Option<Mark>) -> Result<()> {
        if self.done() {
            return Ok(());
        }
        let start = self.start;
        let end = self.load()?.text.len();
        match (self.lost, end == start && self.first) {
            (true, _) => {}
            (false, true) => self.after.empty += 1,
            (false, false) => self.piece(end, true, Fate::Written)?,
        }
        self.over(mark)
    }

    fn bad(&mut self, error: Error) -> Result<()> {
        if self.done() {
            return Ok(());
        }
        if !self.lost {
            self.give_up(error)?;
        }
        self.over(None)
    }
}
