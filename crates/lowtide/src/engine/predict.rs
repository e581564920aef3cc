//! How long a shuffled pass over rows on a disk will take, and how long it would take in other ways: pure arithmetic
//! over what reads cost.
//!
//! In exact order a group of rows, as many as the budget holds, is read in file order: a request for each, or the file
//! from end to end, whichever is less. Sorted in a scratch folder first, the file is read, written and read again. In
//! blocks it is read once.

use super::choose::Choice;
use super::job::Input;
use super::tuning::{CAP, LARGE_ROW, PIECE};
use crate::error::Result;
use crate::options::{Cache, Way};
use crate::store::Cost;
use std::time::Duration;

/// What an unbuffered read of a small row takes at least.
const PAGE: f64 = 4096.0;
/// From this factor on, other ways are named.
const MUCH: u32 = 4;

/// What a shuffled pass is predicted to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// In exact order, as it is.
    pub exact: Duration,
    /// In exact order, sorted in a scratch folder on such a disk first.
    pub scratch: Duration,
    /// In blocks.
    pub blocks: Duration,
}

impl Predicted {
    /// Whether another way takes less than a quarter of the time.
    pub fn is_slow(&self) -> bool {
        self.exact > MUCH * self.scratch.min(self.blocks)
    }

    /// The times, in words, where another way takes less than a quarter of it.
    pub fn advice(&self) -> Option<String> {
        let Self { exact, scratch, blocks } = *self;
        self.is_slow().then(|| {
            format!(
                "a pass in exact order is predicted to take {} like this, {} with scratch=DIR, {} with blocks=\"auto\"",
                about(exact),
                about(scratch),
                about(blocks)
            )
        })
    }
}

/// The rows of one array that a pass goes through.
#[derive(Clone, Copy, Debug)]
struct Through {
    /// Bytes of the file.
    span: f64,
    /// Those of this rank, and bytes of one.
    rows: f64,
    row: f64,
    /// Rows that are read at once.
    group: f64,
    cost: Cost,
}

impl Through {
    /// Nanoseconds of reading so many bytes in order, in requests of that size.
    fn in_order(&self, bytes: f64, request: f64) -> f64 {
        bytes * self.cost.byte + bytes / request * self.cost.request
    }

    fn exact(&self) -> f64 {
        let alone = self.group.min(self.rows) * (self.cost.request + self.row.max(PAGE) * self.cost.byte);
        (self.rows / self.group).ceil() * alone.min(self.in_order(self.span, CAP as f64))
    }

    fn scratch(&self) -> f64 {
        let mine = self.rows * self.row;
        self.in_order(self.span, PIECE as f64) + 2.0 * self.in_order(mine, PIECE as f64)
    }

    fn blocks(&self) -> f64 {
        self.in_order(self.rows * self.row, PIECE as f64)
    }
}

/// What a shuffled pass over `rows` of these inputs will take; `None` where they come from memory, or are as large
/// as what a disk likes to read.
pub(crate) fn predict(inputs: &[Input], choices: &[Choice], rows: u64) -> Result<Option<Predicted>> {
    let mut sums = [0.0; 3];
    for (input, choice) in inputs.iter().zip(choices) {
        let from_disk = choice.cache == Cache::Drop && matches!(choice.way, Way::Direct | Way::Read);
        let row = input.rows.row_bytes();
        if !from_disk || input.dealt.is_some() || input.rows.columns > 1 || row == 0 || row >= LARGE_ROW {
            return Ok(None);
        }
        let lane = input.lane(choice)?;
        let cost = lane.cost();
        if !cost.waits {
            return Ok(None);
        }
        let group = input.group_rows(inputs, &lane.nature(), cost);
        let (rows, row) = (rows as f64, row as f64);
        let through = Through { span: input.rows.span() as f64, rows, row, group, cost };
        let times = [through.exact(), through.scratch(), through.blocks()];
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
    }
    let [exact, scratch, blocks] = sums.map(|nanos| Duration::from_secs_f64((nanos / 1e9).min(1e12)));
    Ok(Some(Predicted { exact, scratch, blocks }))
}

/// A time as people estimate it.
fn about(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 100.0 => format!("{seconds:.0} s"),
        seconds if seconds < 6000.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 2e5 => format!("{:.0} h", seconds / 3600.0),
        seconds => format!("{:.0} days", seconds / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Cost = Cost { request: 14_000.0, byte: 0.5, waits: true };

    fn times(bytes: f64, row: f64, group: f64) -> [f64; 3] {
        let through = Through { span: bytes, rows: bytes / row, row, group, cost: DISK };
        [through.exact(), through.scratch(), through.blocks()].map(|nanos| nanos / 1e9)
    }

    /// 36 GiB in rows of 512 bytes, 256 MiB, on the machine of BENCHMARKS.md: 17 minutes, against two that the disk
    /// would need.
    #[test]
    fn a_file_larger_than_memory_takes_what_it_took() {
        let [exact, scratch, blocks] = times(36.0 * 1024.0_f64.powi(3), 512.0, 400_000.0);
        assert!((14.0..24.0).contains(&(exact / 60.0)), "{exact}");
        assert!((50.0..80.0).contains(&scratch) && (15.0..30.0).contains(&blocks), "{scratch} {blocks}");
        let predicted = Predicted {
            exact: Duration::from_secs_f64(exact),
            scratch: Duration::from_secs_f64(scratch),
            blocks: Duration::from_secs_f64(blocks),
        };
        let said = predicted.advice().unwrap();
        assert!(said.contains(" min like this, ") && said.contains(" s with scratch=DIR, "), "{said}");
    }

    /// What the budget holds is read once, in order; and large rows are read as quickly in any order.
    #[test]
    fn nothing_is_said_where_nothing_is_gained() {
        for (bytes, row, group) in [(1e8, 512.0, 400_000.0), (4e10, 60_000.0, 4_000.0)] {
            let [exact, scratch, blocks] = times(bytes, row, group).map(Duration::from_secs_f64);
            assert_eq!(Predicted { exact, scratch, blocks }.advice(), None);
        }
    }
}
