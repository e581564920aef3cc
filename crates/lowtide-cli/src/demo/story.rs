//! What the demo found: who was how fast in how much memory, and one sentence that says it.

use super::file::ROW;
use crate::draw::{self, BOLD, Cell, RED};
use crate::trial::Outcome;
use anstyle::Style;
use lowtide::budget::human;
use lowtide::meter::Sample;
use lowtide::meter::words::duration;
use serde_json::{Value, json};
use std::time::Duration;

/// One way to go through the file.
#[derive(Debug)]
pub struct Side {
    pub name: &'static str,
    pub rows: u64,
    pub seconds: f64,
    /// The most that was added.
    pub anon: u64,
    pub file: u64,
    pub cache: Option<u64>,
    /// What the interpreter had when it was ready.
    pub own: u64,
    /// Memory over time, as far as it was added.
    pub curve: Vec<Sample>,
}

/// How much memory a side could have, everything included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A control group's, made for the demo.
    Given(u64),
    /// The room that there is, which is less than the file.
    Found(u64),
    /// More than the file: why it is not less.
    Ample(String),
}

/// Everything there is to say.
#[derive(Debug)]
pub struct Story {
    pub bytes: u64,
    pub limit: Limit,
    /// `np.memmap` held, the same made anew, Lowtide.
    pub sides: [Side; 3],
}

impl Side {
    pub fn new(name: &'static str, outcome: &Outcome) -> Self {
        let Outcome { rows, seconds, anon, file, cache_added, own, .. } = *outcome;
        Self { name, rows, seconds, anon, file, cache: cache_added, own, curve: outcome.curve.clone() }
    }

    /// Rows a second.
    pub fn rate(&self) -> f64 {
        self.rows as f64 / self.seconds.max(1e-9)
    }

    pub fn json(&self) -> Value {
        let column = |pick: fn(&Sample) -> Value| self.curve.iter().map(pick).collect::<Value>();
        json!({ "name": self.name, "rows": self.rows, "seconds": self.seconds, "rows_per_second": self.rate(),
            "added_anon_bytes": self.anon, "added_file_bytes": self.file, "added_cache_bytes": self.cache,
            "own_anon_bytes": self.own,
            "curve": { "seconds": column(|at| ((at.seconds * 1e3).round() / 1e3).into()),
                "added_anon_bytes": column(|at| at.anon.into()), "added_file_bytes": column(|at| at.file.into()),
                "added_cache_bytes": column(|at| at.cache.into()) } })
    }
}

impl Limit {
    /// How much it is, where there is one.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Given(bytes) | Self::Found(bytes) => Some(*bytes),
            Self::Ample(_) => None,
        }
    }

    /// The same for people.
    pub fn memory(&self) -> Option<String> {
        self.bytes().map(human)
    }
}

impl Story {
    pub fn rows(&self) -> u64 {
        self.bytes / ROW
    }

    pub fn finished(&self, side: &Side) -> bool {
        side.rows >= self.rows()
    }

    /// The time of a whole pass: measured, or at the rate of the part that was.
    pub fn pass(&self, side: &Side) -> f64 {
        side.seconds * self.rows() as f64 / side.rows.max(1) as f64
    }

    /// How many times as fast Lowtide was as a held map.
    pub fn factor(&self) -> f64 {
        let [held, _, lowtide] = &self.sides;
        self.pass(held) / self.pass(lowtide)
    }

    /// What a newcomer can repeat.
    pub fn sentence(&self) -> String {
        let [held, _, lowtide] = &self.sides;
        let file = human(self.bytes);
        let took = |side: &Side, finished: &str, not: &str| {
            format!("{} {}", if self.finished(side) { finished } else { not }, time(self.pass(side)))
        };
        let ours = took(lowtide, "went through", "would go through").replacen(
            "through ",
            &format!("through a {file} file in shuffled order in "),
            1,
        );
        let theirs = took(held, "took", "would have taken");
        match &self.limit {
            Limit::Given(bytes) | Limit::Found(bytes) => {
                format!(
                    "In {} of memory, Lowtide {ours}; np.memmap {theirs}: {}.",
                    human(*bytes),
                    multiple(self.factor())
                )
            }
            Limit::Ample(_) => format!(
                "With memory to spare, Lowtide {ours}, with {} of RssAnon + RssFile; np.memmap {theirs}, with {}.",
                human(lowtide.anon + lowtide.file),
                human(held.anon + held.file),
            ),
        }
    }

    /// Why the sentence is not the one that the demo is there for.
    pub fn excuse(&self) -> Option<String> {
        let Limit::Ample(why) = &self.limit else { return None };
        let file = human(self.bytes);
        Some(format!(
            "what happens to np.memmap where the file does not fit could not be shown: {why}. This file of {file} \
             fits in memory, where a held map is as fast as it gets and grows to the size of the file"
        ))
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let (kind, limit, why) = match &self.limit {
            Limit::Given(bytes) => ("cgroup", Some(bytes), None),
            Limit::Found(bytes) => ("room", Some(bytes), None),
            Limit::Ample(why) => ("none", None, Some(why)),
        };
        let ways: Vec<Value> = self
            .sides
            .iter()
            .map(|side| {
                let mut way = side.json();
                way["finished"] = self.finished(side).into();
                way["pass_seconds"] = self.pass(side).into();
                way
            })
            .collect();
        json!({ "bytes": self.bytes, "row_bytes": ROW, "rows": self.rows(),
            "limit": { "kind": kind, "bytes": limit, "why": why }, "ways": ways,
            "factor": self.factor(), "sentence": self.sentence() })
    }

    /// The table and the sentence, for people.
    pub fn print(&self, read_ahead_kb: Option<u64>) {
        let rows: Vec<Vec<Cell>> = self.sides.iter().map(|side| self.line(side)).collect();
        let head = ["", "rows/s", "a whole pass", "RssAnon", "RssFile", "page cache"];
        draw::table_that_fits(&head, &rows, &[5, 3]);
        say!();
        for note in self.notes(read_ahead_kb) {
            draw::note(&note);
        }
        say!();
        draw::paragraph(&self.sentence(), BOLD);
    }

    /// What has to be known to read the table.
    pub fn notes(&self, read_ahead_kb: Option<u64>) -> Vec<String> {
        let unfinished = self.sides.iter().filter(|side| !self.finished(side));
        let mut notes: Vec<String> = unfinished
            .map(|side| {
                let share = 100.0 * side.rows as f64 / self.rows() as f64;
                let rows = draw::thousands(side.rows);
                let (name, seconds) = (side.name, side.seconds);
                format!("* {name}: {rows} rows in {seconds:.0} s, {share:.2} % of a pass; the rest at the same rate")
            })
            .collect();
        notes.push(
            "memory is what the kernel counts, the most that was added. RssAnon: the process's own. RssFile: pages \
             of the file mapped into it, which Slurm counts. Page cache: what the kernel keeps of the file, which \
             Kubernetes counts"
                .into(),
        );
        notes.extend(self.excuse().or_else(|| {
            let kib = read_ahead_kb?;
            Some(format!(
                "a row that is not in memory makes the kernel read around it for np.memmap, as far as the disk's \
                 read_ahead_kb says: {kib} here. The less that is, the less np.memmap crawls"
            ))
        }));
        notes
    }

    fn line(&self, side: &Side) -> Vec<Cell> {
        let mark = if self.finished(side) { "" } else { " *" };
        let mapped = if side.file > self.bytes / 4 { RED } else { Style::new() };
        vec![
            Cell::from(side.name).styled(BOLD),
            draw::thousands(rounded(side.rate())).into(),
            format!("{}{mark}", time(self.pass(side))).into(),
            human(side.anon).into(),
            Cell::from(human(side.file)).styled(mapped),
            side.cache.map_or_else(|| "unknown".into(), human).into(),
        ]
    }
}

/// A factor, in three figures: a disk does not repeat itself better.
pub fn multiple(factor: f64) -> String {
    match factor {
        n if n >= 99.95 => {
            let unit = 10_f64.powf((n.log10() - 2.0).floor());
            format!("{} ×", draw::thousands(rounded((n / unit).round() * unit)))
        }
        n if n >= 9.95 => format!("{n:.0} ×"),
        n => format!("{n:.1} ×"),
    }
}

/// A time for people: `4.2 s`, `19 s`, `5 h 6 min`.
pub fn time(seconds: f64) -> String {
    if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else {
        duration(Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX))
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a figure, for people
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const ALL: u64 = GIB / ROW;

    fn side(name: &'static str, rows: u64, seconds: f64) -> Side {
        Side { name, rows, seconds, anon: 1 << 20, file: 2 << 20, cache: None, own: 0, curve: Vec::new() }
    }

    fn story(limit: Limit, held: (u64, f64), lowtide: (u64, f64)) -> Story {
        let sides =
            [side("held", held.0, held.1), side("anew", 1, 1.0), side("lowtide", lowtide.0, lowtide.1)];
        Story { bytes: GIB, limit, sides }
    }

    #[test]
    fn the_sentence_says_what_was_measured_and_what_was_not() {
        for (story, sentence) in [
            (
                // 2,184 rows in 20 s are 109.2 a second: 19,204.7 s for 2,097,152.
                story(Limit::Given(160 << 20), (2184, 20.0), (ALL, 20.0)),
                "In 160 MiB of memory, Lowtide went through a 1 GiB file in shuffled order in 20 s; np.memmap would \
                 have taken 5 h 20 min: 960 ×.",
            ),
            (
                // A 1,358.06th of the pass in the time of all of it.
                story(Limit::Given(160 << 20), (1280, 20.227_814), (ALL, 24.403_445)),
                "In 160 MiB of memory, Lowtide went through a 1 GiB file in shuffled order in 24 s; np.memmap would \
                 have taken 9 h 12 min: 1,360 ×.",
            ),
            (
                story(Limit::Found(512 << 20), (ALL, 18.0), (ALL, 4.0)),
                "In 512 MiB of memory, Lowtide went through a 1 GiB file in shuffled order in 4.0 s; np.memmap took \
                 18 s: 4.5 ×.",
            ),
            (
                story(Limit::Given(160 << 20), (ALL / 8, 20.0), (ALL / 2, 60.0)),
                "In 160 MiB of memory, Lowtide would go through a 1 GiB file in shuffled order in 2 min 0 s; \
                 np.memmap would have taken 2 min 40 s: 1.3 ×.",
            ),
            (
                story(Limit::Ample("no rights".into()), (ALL, 2.5), (ALL, 4.5)),
                "With memory to spare, Lowtide went through a 1 GiB file in shuffled order in 4.5 s, with 3 MiB of \
                 RssAnon + RssFile; np.memmap took 2.5 s, with 3 MiB.",
            ),
        ] {
            assert_eq!(story.sentence(), sentence);
        }
    }

    #[test]
    fn only_a_story_without_a_limit_needs_an_excuse() {
        assert!(story(Limit::Given(1), (1, 1.0), (1, 1.0)).excuse().is_none());
        let excuse = story(Limit::Ample("no rights".into()), (1, 1.0), (1, 1.0)).excuse().unwrap();
        assert!(excuse.contains("could not be shown: no rights"), "{excuse}");
    }
}
