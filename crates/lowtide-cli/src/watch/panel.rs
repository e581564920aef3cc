//! The live picture: a stacked chart of memory against time, docked at the bottom of the terminal.
//!
//! Drawing is pure: samples in, lines out. The command's own output scrolls above it.

use std::fmt::Write as _;

use lowtide::budget::human;
use lowtide::meter::sampler::Peaks;
use lowtide::meter::series::Sample;

/// The kinds from the bottom of the stack to its top: name, colour, and letter shade without colours.
const KINDS: [(&str, u8, char); 4] =
    [("anonymous", 34, '█'), ("shared", 35, '▓'), ("mapped", 33, '▒'), ("cache", 36, '░')];
/// The colour of a limit.
const LIMIT: u8 = 31;
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

/// The figures of the legend.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    title: &'static str,
    /// Bottom of the stack first.
    values: [Option<u64>; 4],
    limit: Option<u64>,
}

impl Figures {
    /// Those of one moment.
    pub fn now(sample: &Sample, limit: Option<u64>) -> Self {
        let values = [Some(sample.anon), Some(sample.shmem), Some(sample.file), sample.cache];
        Self { title: "now", values, limit }
    }

    /// The largest of a run.
    pub fn peaks(peaks: &Peaks, limit: Option<u64>) -> Self {
        let values = [Some(peaks.anon), Some(peaks.shmem), Some(peaks.file), peaks.cache];
        Self { title: "peak", values, limit }
    }
}

/// The chart with its axis and legend: `height` lines of at most `width` columns. A limit that is not far
/// above the curve is a line.
pub fn chart(
    samples: &[Sample],
    width: usize,
    height: usize,
    figures: &Figures,
    paint: Paint,
) -> Vec<String> {
    let columns = width.saturating_sub(AXIS + LEGEND + 3);
    if columns < 8 || height < 3 || samples.is_empty() {
        return vec![String::new(); height];
    }
    let stacks = columns_of(samples, columns);
    let highest = stacks.iter().map(|stack| stack.iter().sum()).max().unwrap_or(0).max(1 << 20);
    let limit = figures.limit.filter(|limit| *limit / 2 <= highest);
    let top = highest.max(limit.unwrap_or(0));
    let rows = height - 1;
    // The row whose lower edge is not above the limit.
    let limit = limit.map(|limit| {
        let below = u128::from(top - limit) * rows as u128 / u128::from(top);
        usize::try_from(below).unwrap_or(0).min(rows - 1)
    });
    let mut lines = Vec::with_capacity(height);
    for row in 0..rows {
        let mut line = axis(row, rows, top);
        for stack in &stacks {
            cell(
                &mut line,
                stack,
                top,
                rows,
                rows - 1 - row,
                if limit == Some(row) { '┄' } else { ' ' },
                paint,
            );
        }
        if paint == Paint::Colour {
            line.push_str("\x1b[0m");
        }
        let _ = write!(line, "  {}", legend(figures, row, paint));
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
/// Where there is nothing, it is `empty`.
fn cell(line: &mut String, stack: &[u64; 4], top: u64, rows: usize, row: usize, empty: char, paint: Paint) {
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
        let colour = if empty == ' ' { 0 } else { LIMIT };
        match paint {
            Paint::Colour => drop(write!(line, "\x1b[0;{colour}m{empty}")),
            Paint::Plain => line.push(empty),
        }
        return;
    };
    let filled = usize::try_from(ends[kind].min(high) - low).unwrap_or(8);
    // A cell has two colours: of what lies above, the thickest gets the second, or nothing does.
    let thick = |other: usize| ends[other].min(high).saturating_sub(ends[other - 1].max(low));
    let blank = high.saturating_sub(ends[3]);
    let above = (kind + 1..4).max_by_key(|other| thick(*other)).filter(|other| thick(*other) > blank);
    let (_, colour, shade) = KINDS[kind];
    match (paint, above) {
        (Paint::Plain, _) if filled >= 4 => line.push(shade),
        (Paint::Plain, above) => line.push(above.map_or(empty, |above| KINDS[above].2)),
        (Paint::Colour, None) => {
            let _ = write!(line, "\x1b[0;{colour}m{}", EIGHTHS[filled]);
        }
        (Paint::Colour, Some(above)) => {
            let _ = write!(line, "\x1b[0;{colour};{}m{}", KINDS[above].1 + 10, EIGHTHS[filled]);
        }
    }
}

/// The legend: a title, the kinds, top of the stack first, as the chart shows it, and the limit.
fn legend(figures: &Figures, row: usize, paint: Paint) -> String {
    let (name, colour, shade, value) = match (row, figures.limit) {
        (0, _) => return format!("{:>22}", figures.title),
        (1..5, _) => {
            let (name, colour, shade) = KINDS[4 - row];
            (name, colour, shade, figures.values[4 - row])
        }
        (5, Some(limit)) => ("limit", LIMIT, '┄', Some(limit)),
        _ => return String::new(),
    };
    let value = value.map_or("–".to_owned(), human);
    let mark = if shade == '┄' { '┄' } else { '█' };
    match paint {
        Paint::Colour => format!("\x1b[{colour}m{mark}\x1b[0m {name:<9} {value:>10}"),
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
        let now = Figures::now(&growing()[40], None);
        let lines = chart(&growing(), 60, 7, &now, Paint::Plain).join("\n");
        let wanted = "
   600 MiB ░░░░░░░░░░░░░░░░░░░░░░░                     now
           ░░░░░░░░░░░░░░░░░░░▒▒▒▒  ░ cache        500 MiB
           ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒  ▒ mapped       400 MiB
   300 MiB ░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  ▓ shared           0 B
           ░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  █ anonymous    100 MiB
           ███████████████████████
           0 s                10 s";
        let trimmed: Vec<_> = lines.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n"), wanted.trim_start_matches('\n'));
    }

    #[test]
    fn a_limit_that_is_not_far_is_a_line_and_the_legend_has_the_peaks() {
        let peaks = Peaks { anon: 128 << 20, file: 400 << 20, cache: Some(500 << 20), ..Peaks::default() };
        let figures = Figures::peaks(&peaks, Some(1000 << 20));
        let lines = chart(&growing(), 60, 8, &figures, Paint::Plain).join("\n");
        let wanted = "
  1000 MiB ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄                    peak
                                    ░ cache        500 MiB
                                    ▒ mapped       400 MiB
   571 MiB ░░░░░░░░░░░░░░░░░░░░░░▒  ▓ shared           0 B
           ░░░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒  █ anonymous    128 MiB
           ░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒  ┄ limit       1000 MiB
           ███████████████████████
           0 s                10 s";
        let trimmed: Vec<_> = lines.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n"), wanted.trim_start_matches('\n'));
        let far = Figures::now(&growing()[0], Some(1 << 40));
        let lines = chart(&growing(), 60, 8, &far, Paint::Plain);
        assert!(lines[0].contains("600 MiB") && lines[5].contains("limit          1 TiB"), "{lines:#?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_at_any_size() {
        for width in 0..140 {
            for height in 0..20 {
                for paint in [Paint::Colour, Paint::Plain] {
                    let now = Figures::now(&growing()[3], Some(900 << 20));
                    let lines = chart(&growing(), width, height, &now, paint);
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
        for limit in [None, Some(0), Some(u64::MAX)] {
            let (now, none) = (Figures::now(&huge, limit), Figures::now(&Sample::default(), limit));
            assert_eq!(chart(&[huge], 80, 8, &now, Paint::Colour).len(), 8);
            assert_eq!(chart(&[Sample::default()], 80, 8, &none, Paint::Plain).len(), 8);
        }
    }
}
