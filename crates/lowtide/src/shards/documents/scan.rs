//! Documents by their end-of-text token: how many begin in each block, and a block at a time where.
//!
//! In: bytes of the stream through a callback. Kept: one number a block. A shard is cut into blocks by
//! itself, since its first token begins a document whatever stands before it. Everything else follows from
//! one rule: in a shard, token s > 0 begins a document if token s − 1 is the mark (nanoGPT), or if it is
//! the mark itself (llm.c).

use super::super::TokenFile;
use super::marks::Mark;
use super::remember::{Fingerprint, fingerprint};
use crate::error::{Error, Result};
use crate::format::ReadAt;
use crate::interrupt::Interrupt;
use crate::sys;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Tokens of a block: asking for a document scans one or two, a fraction of a millisecond each.
pub const BLOCK: u64 = 1 << 20;

/// Bytes that a scan reads at once, and all that it allocates besides 8 for each block: large enough for a
/// disk to have many requests in flight.
pub const BUFFER: usize = 4 << 20;

/// How often somebody is asked whether to go on.
const ASK: Duration = Duration::from_millis(50);

/// Where documents begin, as far as it is kept.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) end_of_text: u64,
    mark: Mark,
    /// Tokens of a block: [`BLOCK`], but for tests.
    block: u64,
    shards: Vec<Shard>,
    /// How many documents begin before each block, and after the last: all of them.
    before: Vec<u64>,
    /// The tokens of all shards.
    tokens: u64,
    /// What the files were when the scan began, if they could be looked at.
    pub(super) fingerprint: Option<Fingerprint>,
    /// The block that was asked for last, and where documents begin in it: those who walk through documents
    /// scan each block once. Some KiB; 4 MiB if every token were the mark.
    last: Mutex<Option<(usize, Arc<[u32]>)>>,
}

/// A file with tokens in it.
#[derive(Debug)]
struct Shard {
    path: PathBuf,
    /// Its tokens in the stream.
    tokens: Range<u64>,
    first_block: usize,
    /// How far a beginning is behind its mark: 1 where the mark ends a document.
    behind: u64,
}

/// A block of a shard.
struct Block {
    /// Its tokens in the stream.
    tokens: Range<u64>,
    /// Whether the shard begins with it.
    first: bool,
    behind: u64,
}

impl Block {
    /// The tokens that say where documents begin in this block, its very first aside.
    fn marks(&self) -> Range<u64> {
        self.tokens.start + u64::from(self.first) - self.behind..self.tokens.end - self.behind
    }
}

impl Scanned {
    /// The shards of `files`, cut into blocks, and no block scanned yet.
    fn new(
        files: &[TokenFile],
        end_of_text: u64,
        block: u64,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Self> {
        let Some(first) = files.first() else {
            return Err(Error::argument("there are no files to look for documents in", ""));
        };
        let mark = Mark::new(end_of_text, first.dtype)?;
        let (mut shards, mut at, mut blocks) = (Vec::new(), 0_u64, 0_usize);
        for file in files.iter().filter(|file| file.tokens > 0) {
            let end = at.checked_add(file.tokens).filter(|_| file.dtype == first.dtype);
            let (Some(end), Ok(count)) = (end, usize::try_from(file.tokens.div_ceil(block))) else {
                return Err(Error::argument("the files do not make one stream of tokens", ""));
            };
            let behind = u64::from(!file.dialect.marks_beginnings());
            shards.push(Shard { path: file.path.clone(), tokens: at..end, first_block: blocks, behind });
            (at, blocks) = (end, blocks + count);
        }
        // Not sized by the blocks that there will be: a sparse file can have more than memory has room for.
        let before = vec![0];
        let last = Mutex::default();
        Ok(Self { end_of_text, mark, block, shards, before, tokens: at, fingerprint, last })
    }

    /// Counts in blocks of `block` tokens.
    pub fn scan(
        block: u64,
        files: &[TokenFile],
        end_of_text: u64,
        read: ReadAt<'_>,
        interrupt: Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<Self> {
        // Before the first read: what changes during the scan must not be remembered as scanned.
        let fingerprint = fingerprint(files, end_of_text).ok();
        let mut new = Self::new(files, end_of_text, block, fingerprint)?;
        new.count(new.blocks(), read, interrupt, progress)?;
        Ok(new)
    }

    /// Counts in the first `blocks` blocks, and no further.
    pub fn scan_front(
        block: u64,
        blocks: usize,
        files: &[TokenFile],
        end_of_text: u64,
        read: ReadAt<'_>,
    ) -> Result<Self> {
        let mut new = Self::new(files, end_of_text, block, None)?;
        new.count(blocks.min(new.blocks()), read, &|| Ok(()), &|_| {})?;
        Ok(new)
    }

    /// Whether the end of document `i` is known: of the last one only where all blocks are.
    pub fn knows(&self, i: u64) -> bool {
        let complete = self.before.len() == self.blocks() + 1;
        i < self.len() && (complete || i + 1 < self.len())
    }

    fn count(
        &mut self,
        blocks: usize,
        read: ReadAt<'_>,
        interrupt: Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<()> {
        let width = self.mark.width();
        let mut buffer = vec![0; self.buffer_len()];
        let mut asked = Instant::now();
        let mut sum = 0;
        for block in 0..blocks {
            let block = self.block(block);
            let mut count = u64::from(block.first);
            let mut marks = block.marks();
            while !marks.is_empty() {
                let piece = pieces(&marks, buffer.len() / width);
                let bytes = &mut buffer[..piece * width];
                read(marks.start * width as u64, bytes)?;
                count += self.mark.count(bytes);
                marks.start += piece as u64;
                if asked.elapsed() >= ASK {
                    interrupt()?;
                    progress(marks.start);
                    asked = Instant::now();
                }
            }
            sum += count;
            self.before.push(sum);
        }
        interrupt()?;
        progress(self.tokens);
        Ok(())
    }

    /// From how many documents begin in each block; `None` if that cannot be.
    pub(super) fn from_counts(
        files: &[TokenFile],
        end_of_text: u64,
        fingerprint: Fingerprint,
        counts: impl ExactSizeIterator<Item = u64>,
    ) -> Option<Self> {
        let mut new = Self::new(files, end_of_text, BLOCK, Some(fingerprint)).ok()?;
        if counts.len() != new.blocks() {
            return None;
        }
        let mut sum = 0;
        for (i, count) in counts.enumerate() {
            let Block { tokens, first, .. } = new.block(i);
            if count > tokens.end - tokens.start || count < u64::from(first) {
                return None;
            }
            sum += count;
            new.before.push(sum);
        }
        Some(new)
    }

    /// How many documents begin in each block.
    pub(super) fn counts(&self) -> impl ExactSizeIterator<Item = u64> {
        self.before.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// How many blocks the shards have.
    pub(super) fn blocks(&self) -> usize {
        self.shards.last().map_or(0, |shard| {
            let own = (shard.tokens.end - shard.tokens.start).div_ceil(self.block);
            shard.first_block + usize::try_from(own).unwrap_or(usize::MAX)
        })
    }

    pub fn len(&self) -> u64 {
        self.before.last().copied().unwrap_or(0)
    }

    fn shard_of(&self, block: usize) -> &Shard {
        &self.shards[self.shards.partition_point(|shard| shard.first_block <= block) - 1]
    }

    fn block(&self, block: usize) -> Block {
        let shard = self.shard_of(block);
        let start = shard.tokens.start + self.block * (block - shard.first_block) as u64;
        let tokens = start..shard.tokens.end.min(start + self.block);
        Block { tokens, first: block == shard.first_block, behind: shard.behind }
    }

    /// The tokens of document `i`, which must be there.
    pub fn range(&self, i: u64, read: ReadAt<'_>) -> Result<Range<u64>> {
        let block_of = |i: u64| self.before.partition_point(|&before| before <= i) - 1;
        let begin = |i: u64| {
            let block = block_of(i);
            let at = usize::try_from(i - self.before[block]).unwrap_or(usize::MAX);
            let Block { tokens, first, .. } = self.block(block);
            if first && at == 0 {
                return Ok(tokens.start);
            }
            let beginnings = self.beginnings(block, read)?;
            Ok(tokens.start + u64::from(beginnings[at]))
        };
        Ok(begin(i)?..if i + 1 == self.len() { self.tokens } else { begin(i + 1)? })
    }

    /// Where documents begin in a block, in tokens from its own beginning.
    fn beginnings(&self, block: usize, read: ReadAt<'_>) -> Result<Arc<[u32]>> {
        let known = sys::locked(&self.last, |last| last.clone());
        if let Some((_, beginnings)) = known.filter(|(known, _)| *known == block) {
            return Ok(beginnings);
        }
        let Block { tokens, first, behind } = self.block(block);
        let mut marks = Block { tokens: tokens.clone(), first, behind }.marks();
        let expected = self.before[block + 1] - self.before[block];
        // At most one for each token of a block.
        let mut found: Vec<u32> = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        found.extend(first.then_some(0));
        let width = self.mark.width();
        let mut buffer = vec![0; self.buffer_len().min(BUFFER / 16)];
        while !marks.is_empty() {
            let piece = pieces(&marks, buffer.len() / width);
            let bytes = &mut buffer[..piece * width];
            read(marks.start * width as u64, bytes)?;
            let from = marks.start + behind - tokens.start;
            self.mark.each(bytes, &mut |i| {
                // Less than a block.
                found.extend(u32::try_from(from + i as u64));
            });
            marks.start += piece as u64;
            if found.len() as u64 > expected {
                break;
            }
        }
        if found.len() as u64 != expected {
            return Err(self.changed(block));
        }
        let beginnings: Arc<[u32]> = found.into();
        sys::locked(&self.last, |last| *last = Some((block, beginnings.clone())));
        Ok(beginnings)
    }

    /// The largest read there is to make: no more memory than the stream has.
    fn buffer_len(&self) -> usize {
        usize::try_from(self.tokens).unwrap_or(usize::MAX).saturating_mul(self.mark.width()).min(BUFFER)
    }

    /// That a block does not hold what the scan found there.
    fn changed(&self, block: usize) -> Error {
        let (shard, tokens) = (self.shard_of(block), self.block(block).tokens);
        let width = self.mark.width() as u64;
        Error::Format {
            path: shard.path.clone(),
            offset: (tokens.start - shard.tokens.start) * width,
            expected: "the documents that an earlier scan found there".into(),
            found: "another number of them".into(),
            hint: "the file has changed since: open it again".into(),
        }
    }
}

/// How many tokens to read next.
fn pieces(marks: &Range<u64>, most: usize) -> usize {
    usize::try_from(marks.end - marks.start).unwrap_or(usize::MAX).min(most)
}
