//! Windows of tokens, epoch after epoch, as one order: look-ahead does not stop where an epoch ends.
//!
//! An epoch has K windows, whatever its phase, so that position e·K + p is position p of epoch e. What comes out is
//! where a window begins, in tokens.

use super::blocks::{Blocks, Mix, Mixes};
use super::{Draws, Order, Permutation, Sequential, Windows, check_bounds};
use crate::error::Result;
use crate::sys;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// In which order the windows of an epoch come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Independent draws, of all places where a window can begin.
    Draws,
    /// Every window once, anywhere.
    Shuffled,
    /// Every window once, in whole blocks of neighbours that are mixed.
    Blocks(Mix),
    /// Every window once, as they lie in the file.
    Sequential,
}

/// Where windows begin, epoch after epoch, without end: [`len`](Order::len) is as many whole epochs as 64 bits can count.
///
/// ```
/// use lowtide::order::{Order, Stream, Windows, Within};
///
/// let stream = Stream::new(/* tokens */ 1_000_000, /* block */ 1_024, /* seed */ 42, Within::Shuffled)?;
/// let mut starts = [0; 2];
/// stream.fill(974, &mut starts); // the last window of epoch 0, and the first of epoch 1
/// let phase = |epoch| Windows::new(1_000_000, 1_024, 42, epoch).map(|windows| windows.phase());
/// assert_eq!([starts[0] % 1_024, starts[1] % 1_024], [phase(0)? % 1_024, phase(1)? % 1_024]);
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    tokens: u64,
    block: u64,
    seed: u64,
    within: Within,
    count: u64,
    /// The epoch that stands first.
    first: u64,
    /// The epochs that were asked for last, even and odd ones: drawing one can take as long as reading a batch.
    known: Mutex<[Option<Arc<Epoch>>; 2]>,
}

/// One epoch.
#[derive(Debug)]
struct Epoch {
    number: u64,
    order: Inner,
    /// The first window, and how far it is to the next.
    phase: u64,
    block: u64,
}

#[derive(Debug)]
enum Inner {
    Draws(Draws),
    Shuffled(Permutation),
    Blocks(Blocks),
    Sequential(Sequential),
}

impl Epoch {
    fn order(&self) -> &dyn Order {
        match &self.order {
            Inner::Draws(order) => order,
            Inner::Shuffled(order) => order,
            Inner::Blocks(order) => order,
            Inner::Sequential(order) => order,
        }
    }

    fn start(&self, window: u64) -> u64 {
        self.phase + window * self.block
    }
}

impl Stream {
    /// The windows of `block` + 1 tokens in a stream of `tokens`, from epoch 0 on.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where an epoch has no windows: see [`Windows::new`]. To draw from, one that fits is enough.
    pub fn new(tokens: u64, block: u64, seed: u64, within: Within) -> Result<Self> {
        let count = match Windows::new(tokens, block, seed, 0) {
            Ok(windows) => windows.count(),
            // One window fits, if not a whole epoch's phases.
            Err(_) if within == Within::Draws && block > 0 && tokens > block => 1,
            Err(error) => return Err(error),
        };
        let known = Mutex::default();
        Ok(Self { tokens, block, seed, within, count, first: 0, known })
    }

    /// The same from epoch `first` on.
    #[must_use]
    pub fn from(self, first: u64) -> Self {
        Self { first, known: Mutex::default(), ..self }
    }

    /// How many windows an epoch has: the same in every one.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// In which order they come.
    pub fn within(&self) -> Within {
        self.within
    }

    /// The epoch `ahead` of the first one.
    fn epoch(&self, ahead: u64) -> Arc<Epoch> {
        let number = self.first.wrapping_add(ahead);
        let slot = usize::from(number % 2 == 1);
        let known = sys::locked(&self.known, |known| known[slot].clone());
        if let Some(epoch) = known.filter(|epoch| epoch.number == number) {
            return epoch;
        }
        let Self { tokens, block, seed, count, .. } = *self;
        let order = match self.within {
            Within::Draws => Inner::Draws(Draws::new(tokens - block, seed).from(number.wrapping_mul(count))),
            Within::Shuffled => Inner::Shuffled(Permutation::new(count, seed, number)),
            Within::Blocks(mix) => Inner::Blocks(Blocks::new(count, seed, number, mix)),
            Within::Sequential => Inner::Sequential(Sequential::new(count)),
        };
        let (phase, block) = match (&order, Windows::new(tokens, block, seed, number)) {
            (Inner::Draws(_), _) | (_, Err(_)) => (0, 1), // an error was one when this was made
            (_, Ok(windows)) => (windows.phase(), block),
        };
        let epoch = Arc::new(Epoch { number, order, phase, block });
        sys::locked(&self.known, |known| known[slot] = Some(epoch.clone()));
        epoch
    }

    /// Cuts positions where epochs end: which epoch, and the positions in it.
    fn place(&self, position: u64) -> (u64, u64) {
        (position / self.count, position % self.count)
    }
}

impl Order for Stream {
    fn len(&self) -> u64 {
        u64::MAX / self.count * self.count
    }

    fn fill(&self, mut start: u64, mut out: &mut [u64]) {
        check_bounds(self.len(), start, out.len());
        while !out.is_empty() {
            let (ahead, position) = self.place(start);
            let left = usize::try_from(self.count - position).unwrap_or(usize::MAX);
            let (part, rest) = out.split_at_mut(left.min(out.len()));
            let epoch = self.epoch(ahead);
            epoch.order().fill(position, part);
            for row in &mut *part {
                *row = epoch.start(*row);
            }
            (start, out) = (start + part.len() as u64, rest);
        }
    }
}

impl Mixes for Stream {
    fn mix_range(&self, position: u64) -> Range<u64> {
        let (ahead, inner) = self.place(position);
        let base = position - inner;
        match &self.epoch(ahead).order {
            Inner::Blocks(order) => {
                let mix = order.mix_range(inner);
                base + mix.start..base + mix.end
            }
            _ => position..position,
        }
    }

    fn in_file_order(&self, spans: &[Range<u64>]) -> Vec<(u64, u32)> {
        let Some((ahead, base)) = spans.first().map(|span| {
            let (ahead, inner) = self.place(span.start);
            (ahead, span.start - inner)
        }) else {
            return Vec::new();
        };
        let epoch = self.epoch(ahead);
        let Inner::Blocks(order) = &epoch.order else { return Vec::new() };
        let spans: Vec<_> = spans.iter().map(|span| span.start - base..span.end - base).collect();
        let mut rows = order.in_file_order(&spans);
        for (row, _) in &mut rows {
            *row = epoch.start(*row);
        }
        rows
    }
}

impl Stream {
    /// How far the shares of classes in a batch spread, against a perfect shuffle: see [`Blocks::predicted_spread`].
    pub fn predicted_spread(&self, batch: u64) -> f64 {
        match &self.epoch(0).order {
            Inner::Blocks(order) => order.predicted_spread(batch),
            _ => 1.0,
        }
    }

    /// How many windows a mix has at most: what the budget has to hold. None without blocks.
    pub fn largest_mix(&self) -> Option<u64> {
        match &self.epoch(0).order {
            Inner::Blocks(order) => Some(order.largest_mix()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::conformance;
    use proptest::prelude::*;

    fn all(mix: Mix) -> [Within; 4] {
        [Within::Draws, Within::Shuffled, Within::Blocks(mix), Within::Sequential]
    }

    proptest! {
        /// Each epoch by itself, as it was before there was a stream.
        #[test]
        fn epochs_lie_end_to_end(
            block in 1_u64..20, more in 0_u64..400, seed: u64, first in prop::sample::select(vec![0, 1, 7, u64::MAX - 1]),
            mix in (1_u64..9, 1_u64..9),
        ) {
            let tokens = 2 * block + more;
            let mix = Mix::new(mix.0, mix.1).unwrap();
            for within in all(mix) {
                let stream = Stream::new(tokens, block, seed, within).unwrap().from(first);
                let count = stream.count();
                let mut got = vec![0; usize::try_from(3 * count).unwrap()];
                stream.fill(0, &mut got);
                for (ahead, got) in (0..).zip(got.chunks(usize::try_from(count).unwrap())) {
                    let epoch = first.wrapping_add(ahead);
                    let windows = Windows::new(tokens, block, seed, epoch).unwrap();
                    let mut rows = vec![0; got.len()];
                    match within {
                        Within::Draws => Draws::new(tokens - block, seed).from(epoch.wrapping_mul(count)).fill(0, &mut rows),
                        Within::Shuffled => Permutation::new(count, seed, epoch).fill(0, &mut rows),
                        Within::Blocks(mix) => Blocks::new(count, seed, epoch, mix).fill(0, &mut rows),
                        Within::Sequential => Sequential::new(count).fill(0, &mut rows),
                    }
                    if within != Within::Draws {
                        for row in &mut rows {
                            *row = windows.start(*row);
                        }
                    }
                    prop_assert_eq!(got, &rows[..], "{:?} in epoch {}", within, epoch);
                }
                conformance::check(&stream);
            }
        }

        /// Mixes cover the positions without a gap, stay in their epoch, and in file order have the same windows.
        #[test]
        fn mixes_end_with_their_epoch(
            block in 1_u64..9, more in 0_u64..300, seed: u64, mix in (1_u64..9, 1_u64..9),
        ) {
            let mix = Mix::new(mix.0, mix.1).unwrap();
            let stream = Stream::new(2 * block + more, block, seed, Within::Blocks(mix)).unwrap();
            let (count, mut position) = (stream.count(), 0);
            while position < 3 * count {
                let range = stream.mix_range(position);
                prop_assert_eq!(range.start, position);
                prop_assert!(range.end > position && range.start / count == (range.end - 1) / count);
                prop_assert!(range.end - range.start <= stream.largest_mix().unwrap());
                let mut expected = vec![0; usize::try_from(range.end - range.start).unwrap()];
                stream.fill(position, &mut expected);
                let rows = stream.in_file_order(std::slice::from_ref(&range));
                prop_assert!(rows.is_sorted());
                let got: Vec<u64> = {
                    let mut got = vec![0; expected.len()];
                    for &(row, index) in &rows {
                        got[index as usize] = row;
                    }
                    got
                };
                prop_assert_eq!(got, expected);
                position = range.end;
            }
        }
    }

    #[test]
    fn a_stream_that_is_too_short_for_an_epoch_can_be_drawn_from() {
        let stream = Stream::new(1_500, 1_024, 0, Within::Draws).unwrap();
        let mut starts = [0; 100];
        stream.fill(1 << 40, &mut starts);
        assert!(starts.iter().all(|&start| start < 476) && starts.iter().any(|&start| start != starts[0]));
        assert!(Stream::new(1_500, 1_024, 0, Within::Shuffled).is_err());
        assert!(Stream::new(1_024, 1_024, 0, Within::Draws).is_err());
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        for (tokens, block) in [(u64::MAX, 1), (u64::MAX, u64::MAX / 2), (i64::MAX as u64, 1_024)] {
            for within in all(Mix::new(64, 1_000).unwrap()) {
                let stream = Stream::new(tokens, block, 1, within).unwrap().from(u64::MAX);
                let (mut starts, len) = ([0; 3], stream.len());
                for position in [0, stream.count() - 1, len / 2, len - 3] {
                    stream.fill(position.min(len - 3), &mut starts);
                    assert!(starts.iter().all(|&start| start < tokens - block));
                }
            }
        }
    }
}
