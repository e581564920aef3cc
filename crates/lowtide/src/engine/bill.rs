//! What a pass over an object store takes in requests, in bytes, and in money: pure arithmetic.

use super::choose::{Choice, Visit};
use super::job::Input;
use super::tuning::LARGE_ROW;
use crate::error::Result;
use crate::options::Way;
use crate::size::human;
use crate::store::{Cost, Nature};

/// Dollars for a request: what S3 takes for a GET in most regions, 0.40 a million. Bytes inside a region cost nothing.
const DOLLARS: f64 = 0.4e-6;
/// From this factor on, the other way is named.
const MUCH: f64 = 4.0;

/// What a pass takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bill {
    /// Requests, about.
    pub requests: f64,
    /// Bytes that come, wanted or not.
    pub bytes: f64,
    /// Requests of the same pass in blocks, where it is a shuffle in exact order.
    pub in_blocks: Option<f64>,
}

impl Bill {
    /// What the requests cost, in dollars.
    pub fn dollars(&self) -> f64 {
        self.requests * DOLLARS
    }

    /// In words.
    pub fn words(&self) -> String {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // about so many
        let bytes = human(self.bytes as u64);
        let mut said = format!("a pass takes about {} for {bytes}", cost(self.requests));
        if let Some(blocks) = self.in_blocks.filter(|blocks| blocks * MUCH < self.requests) {
            said = format!("{said}; in exact order, that is: blocks=\"auto\" takes {}", cost(blocks));
        }
        said
    }
}

fn cost(requests: f64) -> String {
    let dollars = requests * DOLLARS;
    let price = if dollars < 0.01 { "less than $0.01".into() } else { format!("${dollars:.2}") };
    match requests.ceil() {
        one if one <= 1.0 => format!("1 request ({price})"),
        some if some < 1e4 => format!("{some:.0} requests ({price})"),
        many if many < 1e6 => format!("{:.0} thousand requests ({price})", many / 1e3),
        most => format!("{:.1} million requests ({price})", most / 1e6),
    }
}

/// The rows of one array that a pass goes through.
#[derive(Clone, Copy, Debug)]
struct Through {
    /// Bytes of all of them.
    span: f64,
    /// Those of this rank, and bytes of one.
    rows: f64,
    row: f64,
    /// Rows that are read at once.
    group: f64,
    /// The largest request, and the longest gap that is read for nothing.
    extent: f64,
    gap: f64,
}

impl Through {
    fn in_order(&self) -> (f64, f64) {
        let bytes = self.rows * self.row;
        (bytes / self.extent, bytes)
    }

    /// Blocks lie apart: each is a request.
    fn in_blocks(&self, block: f64) -> (f64, f64) {
        let bytes = self.rows * self.row;
        (bytes / block.min(self.extent).max(self.row), bytes)
    }

    /// Groups of rows that are sorted: with short gaps all of the file is read for each of them.
    fn exact(&self) -> (f64, f64) {
        let group = self.group.min(self.rows).max(1.0);
        let groups = (self.rows / group).ceil();
        if self.row < LARGE_ROW as f64 && self.span / group - self.row < self.gap {
            return (groups * (self.span / self.extent).max(1.0), groups * self.span);
        }
        (self.rows * (self.row / self.extent).max(1.0), self.rows * self.row)
    }
}

/// What a pass over `rows` of these inputs takes; `None` where one is not in an object store.
pub(crate) fn bill(
    inputs: &[Input],
    choices: &[Choice],
    visit: Visit,
    rows: u64,
    block: u64,
) -> Result<Option<Bill>> {
    let (mut sum, mut in_blocks) = ((0.0, 0.0), 0.0);
    for (input, choice) in inputs.iter().zip(choices) {
        if choice.way != Way::Range {
            return Ok(None);
        }
        let nature = input.lane(choice)?.nature();
        let (row, rows) = (input.rows.row_bytes() as f64, rows as f64);
        let Nature { prior: Cost { request, byte, .. }, .. } = nature;
        let group = input.group_rows(inputs, &nature, nature.prior);
        let extent = nature.extent.unwrap_or(1 << 20) as f64;
        let span = input.rows.count as f64 * (input.rows.stride as f64).min(row) * input.rows.columns as f64;
        let through = Through { span, rows, row, group, extent, gap: request / byte };
        let (requests, bytes) = match visit {
            Visit::Sequential => through.in_order(),
            Visit::Blocks => through.in_blocks(block as f64),
            Visit::Shuffled => through.exact(),
            Visit::Random => (rows, rows * row),
        };
        sum = (sum.0 + requests, sum.1 + bytes);
        in_blocks += through.in_blocks(block as f64).0;
    }
    let exact = matches!(visit, Visit::Shuffled).then_some(in_blocks);
    Ok(Some(Bill { requests: sum.0, bytes: sum.1, in_blocks: exact }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures that everybody quotes: a terabyte in 8 MiB ranges, and in windows of 2 KiB.
    #[test]
    fn a_terabyte_costs_what_it_costs() {
        let through = |row: f64, rows: f64| Through {
            span: 1e12,
            rows,
            row,
            group: 90_000.0,
            extent: f64::from(8 << 20),
            gap: 2.7e6,
        };
        let dollars = |(requests, bytes)| Bill { requests, bytes, in_blocks: None }.dollars();
        let windows = through(2048.0, 1e12 / 2048.0);
        assert!((0.04..0.06).contains(&dollars(windows.in_order())));
        assert!((150.0..220.0).contains(&dollars(windows.exact())));
        let said =
            Bill { requests: windows.exact().0, bytes: 1e12, in_blocks: Some(windows.in_blocks(1e6).0) };
        assert!(
            said.words().contains("blocks=\"auto\" takes 1.0 million requests ($0.40)"),
            "{}",
            said.words()
        );
        // What the budget holds in a few groups is read once for each.
        let small = Through { span: 1e9, rows: 1e9 / 2048.0, ..windows };
        assert!((small.exact().0 - 6.0 * (1e9 / f64::from(8 << 20))).abs() < 1e-6);
    }
}
