//! Elements of an array that are written at places far apart: whole pages of them past the page cache, many at a time.
//!
//! Through the page cache, pieces of 32 KiB cost the processor twice what the disk takes: a page is found, filled, marked,
//! written back, waited for and dropped, one by one. Here they wait in a buffer until there are enough of them, and go to
//! the disk together. What is no whole page, or is to stay in the page cache, goes through it.

use super::writer::Writer;
use super::wrong;
use crate::budget::pool::Block;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::options::Cache;
use crate::store;
use crate::sys;
use rustix::fs::OFlags;
use std::fs::File;
use std::ops::Range;

/// A writer of pieces that are far apart. What was put is in the file once [`finish`](Self::finish) is called.
pub(crate) struct Scattered<'w> {
    writer: &'w mut Writer,
    waiting: Option<Waiting>,
}

/// Whole pages on their way past the page cache.
struct Waiting {
    file: File,
    page: usize,
    buffer: Block,
    used: usize,
    /// How far after the first element each goes, and where it is in the buffer.
    pieces: Vec<(u64, Range<usize>)>,
}

impl<'w> Scattered<'w> {
    /// Over an array whose number of rows is known; with a buffer, where there is one.
    pub(crate) fn new(writer: &'w mut Writer, buffer: Option<Block>) -> Self {
        let waiting = buffer.and_then(|buffer| Waiting::new(writer, buffer));
        Self { writer, waiting }
    }

    /// Puts elements `at` so many bytes after the first.
    ///
    /// # Errors
    /// As [`Writer::put_through`].
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let place = self.writer.place(at, bytes.len())?;
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.takes(place, bytes)) else {
            return self.writer.put_through(at, bytes, interrupt);
        };
        if !waiting.has_room(bytes) {
            self.flush(interrupt)?;
        }
        match &mut self.waiting {
            Some(waiting) => waiting.take(at, bytes),
            None => self.writer.put_through(at, bytes, interrupt)?, // it was found that this cannot be done here
        }
        Ok(())
    }

    /// Writes what still waits.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn finish(mut self, interrupt: Interrupt<'_>) -> Result<()> {
        self.flush(interrupt)
    }

    fn flush(&mut self, interrupt: Interrupt<'_>) -> Result<()> {
        interrupt()?;
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        let first = self.writer.data_at();
        let pieces: Vec<(u64, &[u8])> =
            waiting.pieces.iter().map(|(at, range)| (first + at, &waiting.buffer[range.clone()])).collect();
        match store::write_deep(&waiting.file, &pieces) {
            Ok(()) => {
                waiting.pieces.clear();
                waiting.used = 0;
                Ok(())
            }
            // A device that does not like memory or places so, or a sandbox that forbids it by now.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM | libc::EACCES)) => {
                let Some(Waiting { buffer, pieces, .. }) = self.waiting.take() else { return Ok(()) };
                pieces
                    .into_iter()
                    .try_for_each(|(at, range)| self.writer.put_through(at, &buffer[range], interrupt))
            }
            Err(error) => Err(wrong(self.writer.path(), "write the file", error)),
        }
    }
}

impl Waiting {
    /// `None` where pages are to stay in the page cache, or cannot go past it.
    fn new(writer: &Writer, buffer: Block) -> Option<Self> {
        let file = writer.file().filter(|_| writer.cache() == Some(Cache::Drop))?;
        let page = sys::direct_alignment(file)?.max(sys::page());
        let file = sys::reopen(file, OFlags::RDWR | OFlags::DIRECT).ok()?;
        let fits = buffer.len() >= page && buffer.as_ptr().addr().is_multiple_of(page);
        fits.then_some(Self { file, page, buffer, used: 0, pieces: Vec::new() })
    }

    /// Whether it is whole pages, and no more of them than the buffer has.
    fn takes(&self, place: u64, bytes: &[u8]) -> bool {
        let page = self.page;
        place.is_multiple_of(page as u64)
            && bytes.len().is_multiple_of(page)
            && bytes.len() <= self.buffer.len()
    }

    fn has_room(&self, bytes: &[u8]) -> bool {
        bytes.len() <= self.buffer.len() - self.used
    }

    /// Keeps bytes until they are written. What goes on where the last piece ended belongs to it.
    fn take(&mut self, at: u64, bytes: &[u8]) {
        let range = self.used..self.used + bytes.len();
        self.buffer[range.clone()].copy_from_slice(bytes);
        self.used = range.end;
        match self.pieces.last_mut() {
            Some((from, last)) if *from + last.len() as u64 == at => last.end = range.end,
            _ => self.pieces.push((at, range)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::format::Dtype;
    use crate::options::CacheWish;
    use crate::write::WriteOptions;
    use proptest::prelude::*;

    const LEN: usize = 1 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Pieces of any size in any order are where they belong, whole pages or not, with a buffer or without.
        #[test]
        fn pieces_are_where_they_were_put(
            cuts in prop::collection::btree_set(prop_oneof![1_usize..LEN, (1_usize..256).prop_map(|n| n * 4096 - 128)], 0..80),
            buffer in prop::sample::select(vec![0, 4096, 10_000, 64 << 10, 300_000]), keep: bool, seed: u64,
        ) {
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(); // not on tmpfs
            let path = folder.path().join("made.npy");
            let cuts: Vec<usize> = [0].into_iter().chain(cuts).chain([LEN]).collect();
            let mut runs: Vec<Range<usize>> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let mut random = seed | 1;
            for i in (1..runs.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                runs.swap(i, usize::try_from(random >> 33).unwrap() % (i + 1));
            }
            let content: Vec<u8> = (0..LEN).map(|n| u8::try_from((n % 251) ^ (n >> 14)).unwrap()).collect();
            let cache = if keep { CacheWish::Keep } else { CacheWish::Drop };
            let dtype = Dtype::parse("|u1").unwrap();
            let mut writer = WriteOptions::new().cache(cache).create(&path, dtype, &[Some(LEN)]).unwrap();
            let block = Block::for_caller(&Budget::new(1 << 22).unwrap(), buffer).unwrap();
            let mut scattered = Scattered::new(&mut writer, Some(block));
            for run in runs {
                scattered.put(run.start as u64, &content[run], &|| Ok(())).unwrap();
            }
            scattered.finish(&|| Ok(())).unwrap();
            writer.close().unwrap();
            let made = std::fs::read(&path).unwrap();
            prop_assert!(made[made.len() - LEN..] == content);
        }
    }

    #[test]
    fn what_is_outside_of_the_array_is_refused_and_whole_pages_leave_no_page_behind() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dtype = Dtype::parse("|u1").unwrap();
        let options = WriteOptions::new().cache(CacheWish::Drop);
        let mut writer = options.create(folder.path().join("made.bin"), dtype, &[Some(LEN)]).unwrap();
        let block = Block::for_caller(&Budget::new(1 << 22).unwrap(), 64 << 10).unwrap();
        let mut scattered = Scattered::new(&mut writer, Some(block));
        assert!(scattered.put(LEN as u64 - 4096, &[0; 8192], &|| Ok(())).is_err());
        let direct = scattered.waiting.is_some();
        for at in (0..LEN).step_by(32 << 10) {
            scattered.put(at as u64, &[7; 16 << 10], &|| Ok(())).unwrap();
        }
        scattered.finish(&|| Ok(())).unwrap();
        let cached = sys::cached_and_dirty(writer.file().unwrap());
        assert!(!direct || cached.is_err() || cached.is_ok_and(|(cached, dirty)| (cached, dirty) == (0, 0)));
    }
}
