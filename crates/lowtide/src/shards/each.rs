//! The same small piece of I/O for thousands of files, on a few threads.

use crate::error::{Error, Result};
use crate::sys::crew;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below this many files a thread gains less than it costs: looking at a file takes some 10 µs.
const SHARE: usize = 64;
/// More than cores, because a network's file system lets each of them wait.
const THREADS: usize = 16;

/// Calls `work` on every item. The answers come in the items' order; of several errors it is the first
/// item's, whichever thread was faster.
pub(super) fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let threads = (items.len() / SHARE).clamp(1, THREADS);
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let share = items.len().div_ceil(threads);
    let first_bad = AtomicUsize::new(usize::MAX);
    let part = |at: usize, items: &[T]| {
        let mut answers = Vec::with_capacity(items.len());
        for (i, item) in (at..).zip(items) {
            if first_bad.load(Ordering::Relaxed) < i {
                return Err(Error::Interrupted); // nobody will see it: an earlier item has an error
            }
            match work(item) {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    first_bad.fetch_min(i, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(answers)
    };
    let mut all = Vec::with_capacity(items.len());
    for answers in
        crew::each(threads - 1, items.chunks(share).enumerate(), |(n, items)| part(n * share, items))
    {
        all.extend(answers?);
    }
    // Forked in the middle of it: the others are in another process.
    if all.len() == items.len() { Ok(all) } else { Err(Error::Interrupted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_their_order_and_the_first_error_wins() {
        for len in [0, 1, 63, 64, 200, 5_000] {
            let items: Vec<usize> = (0..len).collect();
            assert_eq!(each(&items, |i| Ok(i * 2)).unwrap(), items.iter().map(|i| i * 2).collect::<Vec<_>>());
        }
        let items: Vec<usize> = (0..5_000).collect();
        for _ in 0..20 {
            let bad = |i: &usize| {
                if *i >= 700 { Err(Error::argument(i.to_string(), "")) } else { Ok(()) }
            };
            assert_eq!(each(&items, bad).unwrap_err().to_string(), "700");
        }
    }
}
