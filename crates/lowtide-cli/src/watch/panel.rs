//! The live picture: a stacked chart of memory against time, docked at the bottom of the terminal.
//!
//! Drawing is pure: samples in, lines out. The command's own output scrolls above it.

use std::fmt::Write as _;

use lowtide::budget::human;
use lowtide::meter::series::Sample;

/// The kinds from the bottom of the stack to its top: name, colour, and letter shade without colours.
const KINDS: [(&str, u8, char); 4] =
    [("anonymous", 34, '█'), ("shared", 35, '▓'), ("mapped", 33, '▒'), ("cache", 36, '░')];
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Width of the axis on the left.
const AXIS: usize = 10;
/// Width of the legend on the right.
const LEGEND: usize = 24;

/// Whether escape sequences for colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Yes.
    Colour,
    /// No: shades instead.
    Plain,
}

/// The four kinds of a sample, bottom first. Mapped pages are page cache too, so only the rest of the cache
/// is stacked on them.
fn kinds(sample: &Sample) -> [u64; 4] {
    let rest = sample.cache.unwrap_or(0).saturating_sub(sample.file);
    [sample.anon, sample.shmem, sample.file, rest]
}

/// The chart with its axis and legend: `height` lines of at most `width` columns.
pub fn chart(samples: &[Sample], width: usize, height: usize, paint: Paint) -> Vec<String> {
    let columns = width.saturating_sub(AXIS + LEGEND + 3);
    if columns < 8 || height < 3 || samples.is_empty() {
        return vec![String::new(); height];
    }
    let stacks = columns_of(samples, columns);
    let top = stacks.iter().map(|stack| stack.iter().sum()).max().unwrap_or(0).max(1 << 20);
    let rows = height - 1;
    let mut lines = Vec::with_capacity(height);
    for row in 0..rows {
        let mut line = axis(row, rows, top);
        for stack in &stacks {
            cell(&mut line, stack, top, rows, rows - 1 - row, paint);
        }
        if paint == Paint::Colour {
            line.push_str("\x1b[0m");
        }
        let _ = write!(line, "  {}", legend(samples, row, paint));
        lines.push(line);
    }
    lines.push(time_axis(samples, columns));
    lines
}

/// The highest stack within each column's stretch of time; a column without a sample repeats the last one.
fn columns_of(samples: &[Sample], columns: usize) -> Vec<[u64; 4]> {
    let end = samples.last().map_or(1.0, |sample| sample.seconds).max(1e-3);
    let mut stacks = vec![None; columns];
    for sample in samples {
        // Between 0 and columns − 1 by the clamp.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let column = (sample.seconds / end * columns as f64).clamp(0.0, columns as f64 - 1.0) as usize;
        let now = kinds(sample);
        let best: &mut Option<[u64; 4]> = &mut stacks[column];
        if best.is_none_or(|best| best.iter().sum::<u64>() < now.iter().sum()) {
            *best = Some(now);
        }
    }
    let mut last = kinds(&samples[0]);
    stacks
        .into_iter()
        .map(|stack| {
            last = stack.unwrap_or(last);
            last
        })
        .collect()
}

fn axis(row: usize, rows: usize, top: u64) -> String {
    let label = match row {
        0 => human(top),
        _ if row == rows / 2 => human(top - top / rows as u64 * row as u64),
        _ => String::new(),
    };
    format!("{label:>AXIS$} ")
}

/// One character of the chart: the kind that fills the cell, or where two meet, an eighth block of the lower
/// one on the upper one's colour.
fn cell(line: &mut String, stack: &[u64; 4], top: u64, rows: usize, row: usize, paint: Paint) {
    let eighths = rows as u64 * 8;
    let (low, high) = (row as u64 * 8, row as u64 * 8 + 8);
    let mut ends = [0; 4];
    let mut sum = 0_u128;
    for (end, part) in ends.iter_mut().zip(stack) {
        sum += u128::from(*part);
        // Rounded up, so that a kind that is there is seen.
        *end = u64::try_from((sum * u128::from(eighths)).div_ceil(u128::from(top))).unwrap_or(eighths);
    }
    let Some(kind) = (0..4).find(|kind| ends[*kind] > low) else {
        line.push_str(if paint == Paint::Colour { "\x1b[0m " } else { " " });
        return;
    };
    let filled = usize::try_from(ends[kind].min(high) - low).unwrap_or(8);
    // A cell has two colours: of what lies above, the thickest gets the second, or nothing does.
    let thick = |other: usize| ends[other].min(high).saturating_sub(ends[other - 1].max(low));
    let empty = high.saturating_sub(ends[3]);
    let above = (kind + 1..4).max_by_key(|other| thick(*other)).filter(|other| thick(*other) > empty);
    let (_, colour, shade) = KINDS[kind];
    match (paint, above) {
        (Paint::Plain, _) if filled >= 4 => line.push(shade),
        (Paint::Plain, above) => line.push(above.map_or(' ', |above| KINDS[above].2)),
        (Paint::Colour, None) => {
            let _ = write!(line, "\x1b[0;{colour}m{}", EIGHTHS[filled]);
        }
        (Paint::Colour, Some(above)) => {
            let _ = write!(line, "\x1b[0;{colour};{}m{}", KINDS[above].1 + 10, EIGHTHS[filled]);
        }
    }
}

/// The legend, top of the stack first, as the chart shows it.
fn legend(samples: &[Sample], row: usize, paint: Paint) -> String {
    let Some(kind) = 3_usize.checked_sub(row) else { return String::new() };
    let Some(sample) = samples.last() else { return String::new() };
    let values = [Some(sample.anon), Some(sample.shmem), Some(sample.file), sample.cache];
    let value = values[kind].map_or("–".to_owned(), human);
    let (name, colour, shade) = KINDS[kind];
    match paint {
        Paint::Colour => format!("\x1b[{colour}m█\x1b[0m {name:<9} {value:>10}"),
        Paint::Plain => format!("{shade} {name:<9} {value:>10}"),
    }
}

fn time_axis(samples: &[Sample], columns: usize) -> String {
    let end = samples.last().map_or(0.0, |sample| sample.seconds);
    let end = format!("{end:.0} s");
    format!("{:>AXIS$} 0 s{:>rest$}", "", end, rest = columns.saturating_sub(3))
}

/// Breaks a text between words into lines of at most `width` columns.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = &lines[lines.len() - 1];
        if !line.is_empty() && columns(line) + 1 + columns(word) > width {
            lines.push(String::new());
        }
        let last = lines.len() - 1;
        if !lines[last].is_empty() {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
    }
    lines
}

/// How many columns a line takes on the terminal: escape sequences take none.
pub fn columns(line: &str) -> usize {
    let mut count = 0;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\x1b' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing() -> Vec<Sample> {
        let mib = |value: u64| value << 20;
        (0..=40_u32)
            .map(|index| Sample {
                seconds: f64::from(index) / 4.0,
                anon: mib(100),
                shmem: 0,
                file: mib(u64::from(index) * 10),
                cache: Some(mib(500)),
                ..Sample::default()
            })
            .collect()
    }

    #[test]
    fn the_plain_chart_shows_the_stack() {
        let lines = chart(&growing(), 60, 7, Paint::Plain).join("\n");
        let wanted = "
   600 MiB ░░░░░░░░░░░░░░░░░░░░░░░  ░ cache        500 MiB
           ░░░░░░░░░░░░░░░░░░░▒▒▒▒  ▒ mapped       400 MiB
           ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒  ▓ shared           0 B
   300 MiB ░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  █ anonymous    100 MiB
           ░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
           ███████████████████████
           0 s                10 s";
        let trimmed: Vec<_> = lines.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n"), wanted.trim_start_matches('\n'));
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_at_any_size() {
        for width in 0..140 {
            for height in 0..20 {
                for paint in [Paint::Colour, Paint::Plain] {
                    let lines = chart(&growing(), width, height, paint);
                    assert_eq!(lines.len(), height);
                    assert!(lines.iter().all(|line| columns(line) <= width), "{width}×{height}");
                }
            }
        }
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("\x1b[31mone\x1b[0m two", 7), ["\x1b[31mone\x1b[0m two"]);
        assert_eq!(wrap("longer than that", 3), ["longer", "than", "that"]);
        assert_eq!(wrap("", 3), [""]);
    }

    #[test]
    fn extreme_values_are_no_overflow() {
        let huge =
            Sample { anon: u64::MAX / 4, file: u64::MAX / 4, cache: Some(u64::MAX / 2), ..Sample::default() };
        assert_eq!(chart(&[huge], 80, 8, Paint::Colour).len(), 8);
        assert_eq!(chart(&[Sample::default()], 80, 8, Paint::Plain).len(), 8);
    }
}
