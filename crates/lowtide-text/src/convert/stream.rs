//! The tokens of a stream, document by document, into shards: one pass, inside the budget.

use super::marks::{Edit, Ends, Side};
use super::refused;
use crate::shards::{Out, Shards};

use lowtide::convert::{Checked, Loss};
use lowtide::door::Words;
use lowtide::format::{Dtype, Kind};
use lowtide::widen::widen;
use lowtide::{Error, Interrupt, Result, Tokens};
use std::ops::Range;

/// Tokens that are read at once.
const CHUNK: usize = 1 << 17;

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub documents: u64,
    pub longest: u64,
    /// The largest id.
    pub largest: i64,
}

/// What a stream becomes.
pub struct Stream<'a> {
    pub tokens: &'a Tokens,
    pub ends: Ends,
    pub edit: Edit,
    pub dtype: Dtype,
    pub shard_tokens: u64,
    pub loss: Loss,
}

/// A stream on its way.
struct Pass<'a, 's> {
    stream: &'a Stream<'a>,
    out: &'a mut Shards<'s>,
    seen: Seen,
    /// How many tokens of the stream are done.
    at: u64,
    /// The document that is open: how many tokens of it were written, and whether its mark was left out.
    open: Option<(u64, bool)>,
}

impl Stream<'_> {
    /// Writes all of it; `step` is told how many tokens more are done.
    ///
    /// # Errors
    /// [`Error::Format`] with the first place where something would be lost, and as the system has it.
    pub fn write(
        &self,
        out: &mut Shards<'_>,
        step: &mut dyn FnMut(u64),
        interrupt: Interrupt<'_>,
    ) -> Result<Seen> {
        let width = self.dtype.itemsize();
        let cast = Checked::new(Dtype::native(Kind::Int64), self.dtype);
        let mut pass = Pass { stream: self, out, seen: Seen::default(), at: 0, open: None };
        let (mut ids, mut made) = (vec![0_i64; CHUNK], vec![0; CHUNK * width]);
        let mut next = Next::new(self, interrupt)?;
        let mut chunks = self.tokens.array().chunks(CHUNK)?;
        while let Some(chunk) = chunks.next_chunk(interrupt) {
            let chunk = chunk?;
            let count = chunk.bytes().len() / self.tokens.dtype().itemsize();
            let (ids, made) = (&mut ids[..count], &mut made[..count * width]);
            widen(self.tokens.dtype(), chunk.bytes(), ids)?;
            pass.ids(cast, ids, made)?;
            pass.documents(ids, made, &mut next, interrupt)?;
            step(count as u64);
            interrupt()?;
        }
        pass.finish(&mut next, interrupt)?;
        Ok(pass.seen)
    }
}

/// Where the next document of an index ends.
struct Next {
    documents: u64,
    number: u64,
    range: Option<Range<u64>>,
}

impl Next {
    fn new(stream: &Stream<'_>, interrupt: Interrupt<'_>) -> Result<Self> {
        let documents = match stream.ends {
            Ends::Index => stream.tokens.documents(interrupt)?.unwrap_or(0),
            _ => 0,
        };
        let mut next = Self { documents, number: 0, range: None };
        next.look(stream, interrupt)?;
        Ok(next)
    }

    fn look(&mut self, stream: &Stream<'_>, interrupt: Interrupt<'_>) -> Result<()> {
        self.range = (self.number < self.documents)
            .then(|| stream.tokens.document_range(self.number, interrupt, &|_| {}))
            .transpose()?;
        Ok(())
    }

    fn go_on(&mut self, stream: &Stream<'_>, interrupt: Interrupt<'_>) -> Result<()> {
        self.number += 1;
        self.look(stream, interrupt)
    }
}

impl Pass<'_, '_> {
    /// As the output has them, and whether all of them are ids that it can hold.
    fn ids(&mut self, cast: Checked, ids: &[i64], made: &mut [u8]) -> Result<()> {
        let (least, most) = ids.iter().fold((0, 0), |(least, most), &id| (least.min(id), most.max(id)));
        self.seen.largest = self.seen.largest.max(most);
        let mut lost = None;
        for (number, (ids, made)) in
            ids.chunks(512).zip(made.chunks_mut(512 * self.stream.dtype.itemsize())).enumerate()
        {
            let mut bytes = [0; 8 * 512];
            for (bytes, id) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(ids) {
                *bytes = id.to_ne_bytes();
            }
            if let (Err(at), None) = (cast.run(&bytes[..8 * ids.len()], made), lost) {
                lost = Some(512 * number + at);
            }
        }
        if self.stream.loss == Loss::Allowed {
            return Ok(());
        }
        let name = self.stream.dtype.name();
        if least < 0 {
            let at = ids.iter().position(|&id| id < 0).unwrap_or(0);
            return Err(self.lost(at, ids[at], "an id, which is 0 or more".into()));
        }
        match lost {
            Some(at) => Err(self.lost(at, ids[at], format!("an id that {name} can hold"))),
            None => Ok(()),
        }
    }

    /// That an id of this chunk would be lost.
    fn lost(&self, at: usize, id: i64, expected: String) -> Error {
        let mut place = self.at + at as u64;
        let files = self.stream.tokens.files();
        let number = place;
        let file = files.iter().find(|file| {
            let here = place < file.tokens;
            if !here {
                place -= file.tokens;
            }
            here
        });
        let (path, offset) = file.map_or_else(Default::default, |file| {
            (file.path.clone(), file.offset + place * file.dtype.itemsize() as u64)
        });
        let found = format!("{id}, token {number}");
        let hint = lowtide::door::LOSSY.on() + " converts it all the same";
        Error::Format { path, offset, expected, found, hint }
    }

    /// The documents of a chunk: `ids`, and the same as the output has them.
    fn documents(
        &mut self,
        ids: &[i64],
        made: &[u8],
        next: &mut Next,
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let (mut at, count) = (0, ids.len());
        while at < count {
            let from = at;
            let ended = match self.stream.ends {
                Ends::Unknown => {
                    let written = self.open.map_or(0, |(written, _)| written);
                    let left = usize::try_from(self.stream.shard_tokens - written).unwrap_or(usize::MAX);
                    at = count.min(at.saturating_add(left));
                    at - from == left
                }
                Ends::Mark(id, Side::Back) => {
                    let found = ids[at..].iter().position(|&token| token == id);
                    at = found.map_or(count, |found| at + found + 1);
                    found.is_some()
                }
                Ends::Mark(id, Side::Front) => {
                    if ids[at] == id {
                        self.end()?;
                    }
                    at = ids[at + 1..]
                        .iter()
                        .position(|&token| token == id)
                        .map_or(count, |found| at + 1 + found);
                    false
                }
                Ends::Index => {
                    self.empty(next, interrupt)?;
                    let Some(range) = next.range.clone() else {
                        return self.outside(self.at..self.at + (count - at) as u64);
                    };
                    if range.start > self.at && self.open.is_none() {
                        let left = (range.start - self.at).min((count - at) as u64);
                        self.outside(self.at..self.at + left)?;
                        at += usize::try_from(left).unwrap_or(count);
                        self.at += left;
                        continue;
                    }
                    if range.start < self.at && self.open.is_none() {
                        return Err(scattered(self.stream.tokens, next.number));
                    }
                    at = usize::try_from(range.end - self.at)
                        .map_or(count, |left| count.min(at.saturating_add(left)));
                    self.at + (at - from) as u64 == range.end
                }
            };
            self.piece(&ids[from..at], &made[from * (made.len() / count)..at * (made.len() / count)], ended)?;
            self.at += (at - from) as u64;
            if ended {
                self.end()?;
                if self.stream.ends == Ends::Index {
                    next.go_on(self.stream, interrupt)?;
                }
            }
        }
        Ok(())
    }

    /// Documents of an index without any token.
    fn empty(&mut self, next: &mut Next, interrupt: Interrupt<'_>) -> Result<()> {
        while self.open.is_none()
            && next.range.as_ref().is_some_and(|range| range.is_empty() && range.start <= self.at)
        {
            self.begin()?;
            self.end()?;
            next.go_on(self.stream, interrupt)?;
        }
        Ok(())
    }

    /// Tokens that no document has.
    fn outside(&self, range: Range<u64>) -> Result<()> {
        if self.stream.loss == Loss::Allowed || range.is_empty() {
            return Ok(());
        }
        let path = self.stream.tokens.array().path().display();
        Err(refused(
            Words::from(format!(
                "{path}: the tokens from {} on are in no document, and would be lost",
                range.start
            )),
            Words::NONE,
        ))
    }

    fn begin(&mut self) -> Result<()> {
        if self.open.is_some() {
            return Ok(());
        }
        self.open = Some((0, false));
        self.out.begin(self.seen.documents)?;
        // Where a mark was is not known yet: one that only moves, moves to the end.
        match self.stream.edit.before(false) {
            Some(id) => self.mark(id),
            None => Ok(()),
        }
    }

    fn mark(&mut self, id: i64) -> Result<()> {
        let mut made = [0; 8];
        let made = &mut made[..self.stream.dtype.itemsize()];
        let cast = Checked::new(Dtype::native(Kind::Int64), self.stream.dtype);
        cast.run(&id.to_ne_bytes(), made).map_err(|_| {
            let name = self.stream.dtype.name();
            Error::argument(format!("the token between documents, {id}, does not fit in {name}"), "")
        })?;
        self.put(made)
    }

    fn put(&mut self, made: &[u8]) -> Result<()> {
        let tokens = (made.len() / self.stream.dtype.itemsize()) as u64;
        if let Some((written, _)) = &mut self.open {
            *written += tokens;
        }
        self.out.write(made)
    }

    /// More of the open document, or a new one; `last` where it ends with this.
    fn piece(&mut self, ids: &[i64], made: &[u8], last: bool) -> Result<()> {
        let (width, first) = (self.stream.dtype.itemsize(), self.open.is_none());
        self.begin()?;
        let (mut from, mut to) = (0, ids.len());
        if let Some((id, side)) = self.stream.edit.leaves_out() {
            let there = match side {
                Side::Front => first && ids.first() == Some(&id),
                Side::Back => last && ids.last() == Some(&id),
            };
            match side {
                Side::Front if there => from = 1,
                Side::Back if there => to -= 1,
                _ => {}
            }
            if let Some(open) = &mut self.open {
                open.1 |= there;
            }
            if self.stream.ends == Ends::Index
                && self.stream.loss == Loss::Refused
                && let Some(inside) = ids[from..to].iter().position(|&token| token == id)
            {
                let expected = format!("documents without {id}, which is to stand between them");
                return Err(self.lost(from + inside, id, expected));
            }
        }
        self.put(&made[from * width..to * width])
    }

    /// The open document ends.
    fn end(&mut self) -> Result<()> {
        let Some((_, had)) = self.open else { return Ok(()) };
        if let Some(id) = self.stream.edit.behind(had) {
            self.mark(id)?;
        }
        let written = self.open.take().map_or(0, |(written, _)| written);
        self.seen.documents += 1;
        self.seen.longest = self.seen.longest.max(written);
        self.out.end()
    }

    fn finish(&mut self, next: &mut Next, interrupt: Interrupt<'_>) -> Result<()> {
        self.end()?;
        self.empty(next, interrupt)?;
        if next.range.is_some() {
            return Err(scattered(self.stream.tokens, next.number));
        }
        Ok(())
    }
}

/// That an index has its documents in another order than the tokens, or the same tokens twice.
fn scattered(tokens: &Tokens, number: u64) -> Error {
    let path = tokens.array().path().display();
    Error::unsupported(
        format!("{path}: document {number} does not follow the last one in the file"),
        "documents that share tokens, or lie in another order, are not converted",
    )
}
