//! Windows that a caller is about to ask for, read before he does.
//!
//! Whoever draws the starts of windows from a generator can tell what a copy of it will draw next.
//! [`Foreseen::expect`] takes those starts, a thread reads their windows, and [`Foreseen::take`] gives a batch to
//! whoever asks for those very starts. Nothing is believed: for other starts there is nothing, and the caller reads
//! them as ever. Groups of batches begin small and grow, so that a wrong expectation costs little.

use crate::batch::Batch;
use crate::budget::pool::Block;
use crate::engine::tuning::{FORESEEN, FORESEEN_SHARE};
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::prefetch::{Pace, Prefetch, Produce};
use crate::sys;
use crate::tokens::{Tokens, widen_windows};
use crate::widen::Token;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// So many groups are known beforehand: one is being read when another is taken.
const GROUPS: usize = 2;

/// Batches of windows that are expected to be asked for, one after the other.
#[derive(Debug)]
pub struct Foreseen {
    tokens: Tokens,
    shape: Shape,
    /// Starts of groups that nobody reads yet.
    coming: Arc<Mutex<VecDeque<Vec<u64>>>>,
    reading: Prefetch<GroupReader>,
    /// The group that batches are taken from.
    group: Option<Group>,
    /// Groups that are expected, and not taken.
    expected: usize,
    /// How many batches the next group has, and how many it may have.
    size: usize,
    most: usize,
}

/// How many windows a batch has, and how many tokens a window.
#[derive(Clone, Copy, Debug)]
struct Shape {
    batch: usize,
    block: usize,
}

/// Windows as they stand in the files, end to end, and how many of them were taken.
#[derive(Debug)]
struct Group {
    starts: Vec<u64>,
    raw: Block,
    taken: usize,
}

impl Foreseen {
    /// For batches of so many windows of `block` tokens; `None` where the budget has no room to read them ahead.
    pub fn new(tokens: &Tokens, batch: usize, block: usize) -> Option<Self> {
        let window = block.checked_add(1)?.checked_mul(tokens.dtype().itemsize())?;
        // One is taken from, one is ready, one is being read.
        let room = tokens.budget().limit() / FORESEEN_SHARE / (GROUPS as u64 + 1);
        let most = room.checked_div(Block::cost(batch.checked_mul(window)?))?;
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(FORESEEN);
        if batch == 0 || most == 0 {
            return None;
        }
        let shape = Shape { batch, block };
        let coming = Arc::<Mutex<VecDeque<_>>>::default();
        let reader = GroupReader { tokens: tokens.clone(), block, coming: coming.clone() };
        let reading = Prefetch::new(reader);
        Some(Self { tokens: tokens.clone(), shape, coming, reading, group: None, expected: 0, size: 1, most })
    }

    /// Of how many windows the starts are wanted now, in one or several calls of [`expect`](Self::expect).
    pub fn wanted(&self) -> usize {
        if self.expected < GROUPS { self.size * self.shape.batch } else { 0 }
    }

    /// Says where the windows begin that will be asked for after all that were expected before: as many as are
    /// [`wanted`](Self::wanted).
    ///
    /// # Errors
    /// [`Error::Argument`] where they are not so many; [`Error::Start`] for a window outside the tokens.
    pub fn expect(&mut self, starts: &[u64]) -> Result<()> {
        if starts.len() != self.wanted() {
            let what = format!("{} starts were given, {} are wanted", starts.len(), self.wanted());
            return Err(Error::argument(what, ""));
        }
        if starts.is_empty() {
            return Ok(());
        }
        self.tokens.check(starts, self.shape.block)?;
        sys::locked(&self.coming, |coming| coming.push_back(starts.to_vec()));
        self.expected += 1;
        self.size = (2 * self.size).min(self.most);
        Ok(())
    }

    /// The batch of these very starts, if it is the next one that was expected: x, and y shifted by one. Where it is
    /// not, or could not be read, there is nothing, now and later.
    ///
    /// # Errors
    /// That of `interrupt`, and where there is no memory for the batch.
    pub fn take<T: Token>(
        &mut self,
        starts: &[u64],
        interrupt: Interrupt<'_>,
    ) -> Result<Option<(Batch, Batch)>> {
        let usable = !self.reading.is_parents() && !self.tokens.array().is_closed();
        if starts.len() != self.shape.batch || !usable || !self.has_next(interrupt)? {
            return Ok(None);
        }
        let Some(group) = &mut self.group else { return Ok(None) };
        let Shape { batch, block } = self.shape;
        let windows = group.taken..group.taken + batch;
        if group.starts[windows.clone()] != *starts {
            return Ok(None);
        }
        let window = (block + 1) * self.tokens.dtype().itemsize();
        let raw = &group.raw[windows.start * window..windows.end * window];
        let shape = vec![batch, block];
        let mut x = Batch::blank::<T>(self.tokens.budget(), shape.clone())?;
        let mut y = Batch::blank::<T>(self.tokens.budget(), shape)?;
        widen_windows(self.tokens.dtype(), raw, block, x.as_mut_slice::<T>(), y.as_mut_slice::<T>())?;
        group.taken = windows.end;
        if group.taken == group.starts.len() {
            self.group = None;
        }
        Ok(Some((x, y)))
    }

    /// Whether there is a group to take from: waits for the next one.
    fn has_next(&mut self, interrupt: Interrupt<'_>) -> Result<bool> {
        while self.group.is_none() && self.expected > 0 {
            let stopped = AtomicBool::new(false);
            let ask = || interrupt().inspect_err(|_| stopped.store(true, Ordering::Relaxed));
            match self.reading.next(Pace::Ahead, &ask) {
                Some(Ok(group)) => {
                    self.expected -= 1;
                    self.group = Some(group);
                }
                Some(Err(error)) if stopped.load(Ordering::Relaxed) => return Err(error),
                // Whoever reads it himself is told what is wrong.
                Some(Err(_)) => self.expected = 0,
                // It came to the end of what was known then.
                None => {}
            }
        }
        Ok(self.group.is_some())
    }
}

/// Reads the groups that are expected.
#[derive(Debug)]
struct GroupReader {
    tokens: Tokens,
    block: usize,
    coming: Arc<Mutex<VecDeque<Vec<u64>>>>,
}

impl Produce for GroupReader {
    type Item = Group;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Group>> {
        let starts = sys::locked(&self.coming, VecDeque::pop_front)?;
        let raw = self.tokens.raw_windows(&starts, self.block, interrupt);
        Some(raw.map(|raw| Group { starts, raw, taken: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Draws, Order};
    use crate::{Budget, TokenOptions};

    const BATCH: usize = 3;
    const BLOCK: usize = 8;
    const GO_ON: Interrupt<'_> = &|| Ok(());

    fn tokens(folder: &tempfile::TempDir, budget: u64) -> Tokens {
        let path = folder.path().join("train.bin");
        let bytes: Vec<u8> = (0..5_000_u16).flat_map(|n| (n * 7).to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        TokenOptions::new().budget(Budget::new(budget).unwrap()).open([path]).unwrap()
    }

    /// What will be drawn, and how far the copy of the generator is.
    struct Drawn(Draws, u64);

    impl Drawn {
        fn next(&mut self, count: usize) -> Vec<u64> {
            let mut starts = vec![0; count];
            self.0.fill(self.1, &mut starts);
            self.1 += count as u64;
            starts
        }
    }

    fn drawn() -> Drawn {
        Drawn(Draws::new(4_000, 7), 0)
    }

    fn supply(foreseen: &mut Foreseen, copy: &mut Drawn) {
        while foreseen.wanted() > 0 {
            foreseen.expect(&copy.next(foreseen.wanted())).unwrap();
        }
    }

    fn taken(foreseen: &mut Foreseen, starts: &[u64]) -> Option<(Vec<i64>, Vec<i64>)> {
        let (x, y) = foreseen.take::<i64>(starts, GO_ON).unwrap()?;
        Some((x.to_vec().unwrap(), y.to_vec().unwrap()))
    }

    #[test]
    fn what_was_expected_comes_as_it_would_be_read_and_more_of_it_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, 16 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        let (mut own, mut copy) = (drawn(), drawn());
        let mut wanted = Vec::new();
        for _ in 0..200 {
            if foreseen.wanted() > 0 {
                wanted.push(foreseen.wanted() / BATCH);
            }
            supply(&mut foreseen, &mut copy);
            let starts = own.next(BATCH);
            let (x, y) = taken(&mut foreseen, &starts).unwrap();
            let (read_x, read_y) = tokens.windows::<i64>(&starts, BLOCK, GO_ON).unwrap();
            assert_eq!((x, y), (read_x.to_vec().unwrap(), read_y.to_vec().unwrap()));
        }
        assert_eq!(wanted[..6], [1, 4, 8, 16, 32, 64], "the first two are asked for at once");
        assert!(tokens.budget().used() <= tokens.budget().limit());
    }

    #[test]
    fn other_starts_get_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, 16 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_none(), "nothing was expected");
        foreseen.expect(&[1, 2, 3]).unwrap();
        assert!(taken(&mut foreseen, &[1, 2, 4]).is_none());
        assert!(taken(&mut foreseen, &[1, 2]).is_none());
        assert!(taken(&mut foreseen, &[1, 2, 3, 4]).is_none());
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_some());
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_none(), "once");
    }

    #[test]
    fn starts_outside_the_tokens_and_too_few_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, 16 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        assert!(matches!(foreseen.expect(&[1, 2]), Err(Error::Argument { .. })));
        assert!(matches!(foreseen.expect(&[1, 2, 4_992]), Err(Error::Start { .. })));
        foreseen.expect(&[1, 2, 4_991]).unwrap();
    }

    #[test]
    fn a_budget_without_room_foresees_nothing_and_a_closed_file_gives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Foreseen::new(&tokens(&folder, 1_000), BATCH, BLOCK).is_none());
        assert!(Foreseen::new(&tokens(&folder, 1 << 20), 0, BLOCK).is_none());
        assert!(Foreseen::new(&tokens(&folder, 1 << 20), usize::MAX, BLOCK).is_none());
        assert!(Foreseen::new(&tokens(&folder, 1 << 20), BATCH, usize::MAX).is_none());
        let tokens = tokens(&folder, 1 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        tokens.close();
        foreseen.expect(&[1, 2, 3]).unwrap();
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_none(), "who reads it himself is told why");
    }

    #[test]
    fn what_cannot_be_read_is_nothing_and_the_next_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, 1 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&tokens.files()[0].path).unwrap();
        file.set_len(100).unwrap();
        foreseen.expect(&[1, 2, 4_000]).unwrap();
        assert!(taken(&mut foreseen, &[1, 2, 4_000]).is_none(), "who reads it himself is told why");
        foreseen.expect(&[1, 2, 3, 4, 5, 6]).unwrap();
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_some());
    }

    #[test]
    fn waiting_can_be_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = tokens(&folder, 1 << 20);
        let mut foreseen = Foreseen::new(&tokens, BATCH, BLOCK).unwrap();
        // Nobody reads while this is held, so that the taker has to wait.
        let held = foreseen.coming.clone();
        foreseen.expect(&[1, 2, 3]).unwrap();
        let coming = held.lock().unwrap();
        let answer = foreseen.take::<i64>(&[1, 2, 3], &|| Err(Error::Interrupted));
        drop(coming);
        assert!(matches!(answer, Err(Error::Interrupted)));
        assert!(taken(&mut foreseen, &[1, 2, 3]).is_some(), "the batch is not lost");
    }
}
