//! Rows on their way into a new file, from page to page: the file is written past the page cache, one stretch of rows
//! while the next one is made.

use crate::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::sort::Scratch;
use crate::sys::crew;
use std::ops::Range;

/// A file that is being made.
pub(super) struct Output {
    pub(super) file: Scratch,
    /// What stands before the rows.
    pub(super) header: Vec<u8>,
    pub(super) row: usize,
    /// Whoever writes rows writes from one multiple of this to another.
    pub(super) align: u64,
}

impl Output {
    /// Bytes of the whole file.
    pub(super) fn len(&self, rows: u64) -> u64 {
        self.at(rows)
    }

    /// Where a row begins.
    pub(super) fn at(&self, row: u64) -> u64 {
        self.header.len() as u64 + row * self.row as u64
    }

    /// What stands on the page of a row before it; whole pages before that are written, if they are the header's.
    pub(super) fn head(&self, row: u64) -> Result<Vec<u8>> {
        let (at, align) = (self.at(row), self.align);
        let first = at / align * align;
        let lead = usize::try_from(at - first).unwrap_or(0);
        if row > 0 {
            let mut head = vec![0; lead];
            self.file.source()?.read_exact(first, &mut head)?;
            return Ok(head);
        }
        let (pages, head) = self.header.split_at(self.header.len() - lead);
        self.file.write(pages, 0, &|| Ok(()))?;
        Ok(head.to_vec())
    }

    pub(super) fn only_header(&self) -> Result<()> {
        self.file.write(&self.header, 0, &|| Ok(()))
    }

    /// Memory for so many rows, wherever they begin on a page.
    pub(super) fn sheet(&self, budget: &Budget, rows: u64) -> Result<Sheet> {
        let align = usize::try_from(self.align).unwrap_or(1);
        let len = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(self.row));
        let len = len.and_then(|len| len.checked_next_multiple_of(align)?.checked_add(align));
        let len = len.ok_or(Error::Memory { needs: u64::MAX })?;
        let block = match Block::counted(budget, len)? {
            Some(block) => block,
            None => Block::for_caller(budget, len)?,
        };
        Ok(Sheet { block, first: 0, lead: 0, len: 0 })
    }
}

/// Rows that follow each other in a file, in memory from the page on that the first of them begins on.
pub(super) struct Sheet {
    block: Block,
    /// Where that page is in the file.
    pub(super) first: u64,
    /// Bytes before the rows.
    lead: usize,
    /// Bytes of the rows.
    len: usize,
}

impl Sheet {
    /// Turns to other rows: where they go.
    pub(super) fn turn(&mut self, output: &Output, row: u64, rows: usize) -> &mut [u8] {
        let (at, align) = (output.at(row), output.align);
        self.first = at / align * align;
        self.lead = usize::try_from(at - self.first).unwrap_or(0);
        self.len = rows * output.row;
        &mut self.block[self.lead..self.lead + self.len]
    }

    /// What stands before the rows on their first page.
    pub(super) fn begin_with(&mut self, head: &[u8]) {
        self.block[..self.lead].copy_from_slice(&head[..self.lead]);
    }

    /// What it has from a byte of the file on.
    pub(super) fn end_from(&self, offset: u64) -> &[u8] {
        let from = usize::try_from(offset - self.first).unwrap_or(usize::MAX);
        &self.block[from..self.lead + self.len]
    }

    /// Writes whole pages; what is behind the rows on the last one is written over by those that follow, or cut.
    pub(super) fn write(&self, output: &Output, interrupt: Interrupt<'_>) -> Result<()> {
        let align = usize::try_from(output.align).unwrap_or(1);
        let len = (self.lead + self.len).next_multiple_of(align).min(self.block.len());
        output.file.write(&self.block[..len], self.first, interrupt)
    }

    /// Writes the pages that the rows fill to their end; the last one is for whoever has the rows that follow.
    pub(super) fn write_full(&self, output: &Output, interrupt: Interrupt<'_>) -> Result<()> {
        let align = usize::try_from(output.align).unwrap_or(1);
        let len = (self.lead + self.len) / align * align;
        output.file.write(&self.block[..len], self.first, interrupt)
    }
}

/// Fills the places of some rows, one in each output.
pub(super) type Make<'m> = dyn FnMut(&Range<u64>, &mut [&mut [u8]]) -> Result<()> + Send + 'm;

/// Makes rows, stretch after stretch, each while the one before it is written. Two lists of sheets are taken in turns, a
/// sheet for every output. `written` is told of every row up to which all are in the files.
pub(super) fn write(
    outputs: &[Output],
    [one, other]: [Vec<Sheet>; 2],
    stretches: impl Iterator<Item = Range<u64>>,
    make: &mut Make<'_>,
    written: &mut dyn FnMut(u64) -> Result<()>,
    interrupt: Interrupt<'_>,
) -> Result<()> {
    let (mut free, mut heads) = (vec![one, other], Vec::new());
    let mut stretches = stretches.peekable();
    if let Some(first) = stretches.peek() {
        heads = outputs.iter().map(|output| output.head(first.start)).collect::<Result<Vec<_>>>()?;
    }
    let mut full: Option<(Vec<Sheet>, u64)> = None;
    loop {
        let coming = stretches.next();
        if coming.is_none() && full.is_none() {
            return Ok(());
        }
        let sheets = if coming.is_some() { free.pop() } else { None };
        let mut filling = sheets.zip(coming);
        let take = || {
            let Some((sheets, rows)) = &mut filling else { return Ok(()) };
            let count = usize::try_from(rows.end - rows.start).unwrap_or(usize::MAX);
            let places = sheets.iter_mut().zip(outputs);
            let mut into: Vec<&mut [u8]> =
                places.map(|(sheet, output)| sheet.turn(output, rows.start, count)).collect();
            make(rows, &mut into)
        };
        let put = || {
            let mut sheets = full.iter().flat_map(|(sheets, _)| sheets).zip(outputs);
            sheets.try_for_each(|(sheet, output)| sheet.write(output, interrupt))
        };
        let (filled, on_disk) = crew::both(take, put);
        on_disk.unwrap_or(Err(Error::Interrupted))?;
        if let Some((_, end)) = &full {
            written(*end)?;
        }
        filled.unwrap_or(Err(Error::Interrupted))?;
        for (index, sheet) in filling.iter_mut().flat_map(|(sheets, _)| sheets).enumerate() {
            match &full {
                Some((last, _)) => sheet.begin_with(last[index].end_from(sheet.first)),
                None => sheet.begin_with(&heads[index]),
            }
        }
        free.extend(full.take().map(|(sheets, _)| sheets));
        full = filling.map(|(sheets, rows)| (sheets, rows.end));
    }
}
