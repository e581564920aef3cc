//! What a benchmark found, as a table and as JSON. [`page`](super::page) draws the same as a page.

use super::Order;
use super::compare::{Pass, Ratio};
use super::machine::Machine;
use super::start::Start;
use super::subject::{Subject, Unit};
use crate::draw::{self, BOLD, Cell, DIM, GREEN, RED, thousands};
use lowtide::budget::human;
use serde_json::{Value, json};

/// Everything there is to say.
#[derive(Debug)]
pub struct Report {
    pub subject: Subject,
    pub seconds: f64,
    pub rounds: u64,
    pub cache: &'static str,
    pub start: Start,
    pub machine: Machine,
    /// Versions of Python and NumPy.
    pub versions: Option<(String, String)>,
    pub ways: Vec<Way>,
    pub notes: Vec<String>,
}

/// One way to read, and what came of it: figures, or why there are none.
#[derive(Debug)]
pub struct Way {
    pub name: String,
    pub kind: Kind,
    pub result: Result<Figures, String>,
}

/// Whose way it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lowtide,
    NumPy,
    Disk,
}

/// What one way reached and took.
#[derive(Debug)]
pub struct Figures {
    pub rows: u64,
    /// What had come in half of the time.
    pub half_rows: u64,
    pub seconds: f64,
    /// Bytes fetched from the disk.
    pub read: Option<u64>,
    /// `None` for fio, whose memory is not what is measured.
    pub memory: Option<Memory>,
    /// The way of access that was taken, and why.
    pub access: Option<(String, String)>,
}

/// Bytes added at the highest.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub anon: u64,
    pub file: u64,
    pub cache: Option<u64>,
}

impl Figures {
    /// Rows a second.
    pub fn rate(&self) -> f64 {
        self.rows as f64 / self.seconds.max(1e-9)
    }

    /// Of two rounds the faster one, with the memory of the hungrier one.
    #[must_use]
    pub fn or_better(self, other: Self) -> Self {
        let most = |a: Memory, b: Memory| Memory {
            anon: a.anon.max(b.anon),
            file: a.file.max(b.file),
            cache: a.cache.max(b.cache),
        };
        let memory = self.memory.zip(other.memory).map(|(a, b)| most(a, b));
        let faster = if other.rate() > self.rate() { other } else { self };
        Self { memory, ..faster }
    }
}

impl Report {
    /// Adds what one round of a way brought, or keeps what was better before.
    pub fn add(&mut self, way: Way) {
        if let Err(why) = &way.result {
            self.note(format!("{}: {why}", way.name));
        }
        let Some(known) = self.ways.iter_mut().find(|known| known.name == way.name) else {
            self.ways.push(way);
            return;
        };
        let before = std::mem::replace(&mut known.result, Err(String::new()));
        known.result = match (before, way.result) {
            (Ok(before), Ok(now)) => Ok(before.or_better(now)),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(why), Err(_)) => Err(why),
        };
    }

    /// Adds a note, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The ways that have figures.
    pub fn measured(&self) -> impl Iterator<Item = (&Way, &Figures)> {
        self.ways.iter().filter_map(|way| Some((way, way.result.as_ref().ok()?)))
    }

    /// What all ways are measured by.
    pub fn pass(&self) -> Pass {
        let settled = self.start == Start::Warm
            || self.subject.order == Order::Sequential
            || self.subject.bytes() > self.machine.room;
        Pass { rows: self.subject.rows, settled }
    }

    /// The ways whose rate is that of a part: the disk's limit has no pass.
    pub fn partial(&self) -> impl Iterator<Item = (&Way, &Figures)> {
        self.measured().filter(|(way, figures)| way.kind != Kind::Disk && !self.pass().is_known(figures))
    }

    /// The fastest way over a whole pass.
    pub fn best(&self) -> Option<&str> {
        let ways = self.measured().filter(|(way, f)| way.kind != Kind::Disk && self.pass().is_known(f));
        ways.max_by(|a, b| a.1.rate().total_cmp(&b.1.rate())).map(|(way, _)| way.name.as_str())
    }

    /// Whether `RssAnon` and `RssFile` together are more than was allowed. Chunks that were handed out are the
    /// caller's: it has one in its hands while the next one comes. An interpreter's own heap moves by a few MiB.
    pub fn exceeds(&self, memory: Memory) -> bool {
        memory.anon + memory.file > self.subject.budget + 2 * self.subject.chunk_bytes + (4 << 20)
    }

    /// `RssAnon` and `RssFile`, and which of them is to blame where they exceed the budget.
    pub fn parts(&self, memory: Memory) -> [(u64, bool); 2] {
        let (anon, over) = (memory.anon > memory.file, self.exceeds(memory));
        [(memory.anon, over && anon), (memory.file, over && !anon)]
    }

    /// Bytes fetched from the disk for each byte of the rows that were delivered.
    pub fn read_per_byte(&self, figures: &Figures) -> Option<f64> {
        Some(figures.read? as f64 / (figures.rows * self.subject.row_bytes).max(1) as f64)
    }

    /// How far a way got, in passes over the file.
    pub fn passes(&self, figures: &Figures) -> f64 {
        figures.rows as f64 / self.subject.rows.max(1) as f64
    }

    /// How the rows were read.
    pub fn reading(&self) -> String {
        let start = match self.start {
            _ if self.subject.far => "by range requests",
            Start::Cold => "from a cold page cache, proven before each way",
            Start::Warm => "from a warm page cache",
            Start::AsFound => "with the page cache as it was found",
        };
        format!("{}, {start}", self.subject.reading())
    }

    /// Within which limits.
    pub fn limits(&self) -> String {
        let rounds =
            if self.rounds > 1 { format!("the best of {} rounds, ", self.rounds) } else { String::new() };
        format!("budget {}, {rounds}at most {} s a way", human(self.subject.budget), self.seconds)
    }

    /// The default way against the way that everybody knows, over a whole pass.
    pub fn sentence(&self) -> Option<String> {
        let (_, reference) = self.subject.unit.references()[0];
        let figures =
            |name: &str| self.measured().find(|(way, _)| way.name == name).map(|(_, figures)| figures);
        let (ours, theirs) = (figures("lowtide auto")?, figures(reference)?);
        let unit = self.subject.unit.name();
        let ratio = match self.pass().compare(ours, theirs) {
            Ratio::Is(ratio) => format!("{} the {unit}/s of {reference}", times(ratio)),
            Ratio::AtLeast(ratio) => format!("at least {} the {unit}/s of {reference}", times(ratio)),
            Ratio::AtMost(ratio) => format!("at most {} the {unit}/s of {reference}", times(ratio)),
            Ratio::Unknown => format!("no fair ratio to {reference} (not both came to the end of a pass)"),
        };
        let memory = |f: &Figures| f.memory.map_or(0, |m| m.anon + m.file);
        Some(format!(
            "lowtide auto: {ratio}, with {} of RssAnon + RssFile against {}",
            human(memory(ours)),
            human(memory(theirs))
        ))
    }

    /// What would let everybody finish a pass.
    fn longer(&self) -> Option<String> {
        let names: Vec<&str> = self.partial().map(|(way, _)| way.name.as_str()).collect();
        let most = self.partial().map(|(_, figures)| 1.2 * self.pass().seconds(figures)).reduce(f64::max)?;
        let all = self.measured().filter(|(way, _)| way.kind != Kind::Disk).count() == names.len();
        let names = if all { "all ways".to_owned() } else { names.join(", ") };
        let hint = if most <= 3600.0 {
            format!("--seconds {} should be enough", most.ceil())
        } else {
            "a whole one would take more than an hour".to_owned()
        };
        Some(format!(
            "{names}: not at the end of a pass in {} s. The first part of a pass says little about the rest, so these \
             rates are not compared; {hint}",
            self.seconds
        ))
    }

    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let ways: Vec<Value> = self.ways.iter().map(|way| self.way_json(way)).collect();
        let mut machine = self.machine.json();
        machine["lowtide"] = env!("CARGO_PKG_VERSION").into();
        if let Some((python, numpy)) = &self.versions {
            machine["python"] = python.as_str().into();
            machine["numpy"] = numpy.as_str().into();
        }
        let subject = &self.subject;
        let mut answer = json!({ "path": subject.path, "unit": subject.unit.name(), "rows": subject.rows,
            "row_bytes": subject.row_bytes, "bytes": subject.bytes(), "order": subject.order.name(),
            "chunk_rows": subject.chunk_rows, "seconds": self.seconds, "rounds": self.rounds,
            "budget_bytes": subject.budget, "cache": self.cache, "start": self.start.name(), "machine": machine,
            "ways": ways, "sentence": self.sentence(), "notes": self.notes() });
        if let (Value::Object(answer), Value::Object(more)) = (&mut answer, subject.json.clone()) {
            answer.extend(more);
        }
        answer
    }

    fn way_json(&self, way: &Way) -> Value {
        let kind = match way.kind {
            Kind::Lowtide => "lowtide",
            Kind::NumPy => "numpy",
            Kind::Disk => "disk",
        };
        let f = match &way.result {
            Err(error) => return json!({ "name": way.name, "kind": kind, "error": error }),
            Ok(figures) => figures,
        };
        let mut answer = json!({ "name": way.name, "kind": kind, "rows": f.rows, "seconds": f.seconds,
            "rows_per_second": f.rate(), "bytes_per_second": f.rate() * self.subject.row_bytes as f64,
            "passes": self.passes(f), "rate_of_a_pass": way.kind != Kind::Disk && self.pass().is_known(f),
            "read_bytes": f.read, "read_per_byte_used": self.read_per_byte(f),
            "added_anon_bytes": f.memory.map(|m| m.anon), "added_file_bytes": f.memory.map(|m| m.file),
            "added_cache_bytes": f.memory.and_then(|m| m.cache),
            "access": f.access.as_ref().map(|(access, _)| access), "why": f.access.as_ref().map(|(_, why)| why) });
        if self.subject.unit == Unit::Windows {
            answer["batches_per_second"] = (f.rate() / self.subject.chunk_rows as f64).into();
        }
        answer
    }

    /// All notes, with what would make the comparison whole.
    pub fn notes(&self) -> Vec<String> {
        self.longer().into_iter().chain(self.notes.iter().cloned()).collect()
    }

    /// The table, for people.
    pub fn print(&self) {
        say!("{BOLD}{}{BOLD:#}: {}", self.subject.path, self.subject.words());
        draw::paragraph(&self.reading(), DIM);
        let disk = if self.subject.far { String::new() } else { format!("; {}", self.machine.disk.words()) };
        draw::paragraph(&format!("{}{disk}", self.limits()), DIM);
        say!();
        let best = self.best();
        let rows: Vec<Vec<Cell>> =
            self.ways.iter().map(|way| self.line(way, best == Some(&way.name))).collect();
        let rate = format!("{}/s", self.subject.unit.name());
        let head = ["", &rate, "MB/s", "read/used", "RssAnon", "RssFile", "page cache", "pass"];
        let missing = draw::table_that_fits(&head, &rows, &[2, 3, 6, 4]);
        say!();
        if let Some(sentence) = self.sentence() {
            draw::paragraph(&sentence, BOLD);
        }
        for note in self.notes() {
            draw::note(&note);
        }
        if !missing.is_empty() {
            draw::note(&format!("a wider terminal also shows {}", missing.join(", ")));
        }
    }

    fn line(&self, way: &Way, best: bool) -> Vec<Cell> {
        let name = if way.kind == Kind::Lowtide { BOLD } else { DIM };
        let mut line = vec![Cell::from(way.name.as_str()).styled(name)];
        let Ok(figures) = &way.result else {
            line.push(Cell::from("none").styled(DIM)); // the reason is a note
            return line;
        };
        let rate = Cell::from(whole(figures.rate()));
        line.push(if best { rate.styled(GREEN) } else { rate });
        line.push(decimal(figures.rate() * self.subject.row_bytes as f64 / 1e6).into());
        line.push(self.read_per_byte(figures).map_or_else(|| "unknown".into(), decimal).into());
        if let Some(memory) = figures.memory {
            for (bytes, over) in self.parts(memory) {
                let cell = Cell::from(human(bytes));
                line.push(if over { cell.styled(RED) } else { cell });
            }
            line.push(memory.cache.map_or_else(|| "unknown".into(), human).into());
            line.push(percent(self.passes(figures)).into());
        }
        line
    }
}

/// A rate for people: `12,345`.
pub fn whole(number: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a figure, for people
    thousands(number.round() as u64)
}

/// Three figures: `1,234`, `123`, `12.3`, `1.23`, `0`.
pub fn decimal(number: f64) -> String {
    match number {
        n if n >= 99.95 => whole(n),
        n if n >= 9.995 => format!("{n:.1}"),
        n if n >= 0.005 => format!("{n:.2}"),
        _ => "0".into(),
    }
}

/// A share: `100 %`, `12 %`, `0.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        n if n >= 9.95 => format!("{} %", whole(n)),
        n => format!("{n:.1} %"),
    }
}

/// A ratio: `12.3 ×`.
fn times(ratio: f64) -> String {
    format!("{} ×", decimal(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(rows: u64, anon: u64, cache: Option<u64>) -> Figures {
        let memory = Some(Memory { anon, file: 7, cache });
        Figures { rows, half_rows: rows / 2, seconds: 2.0, read: Some(rows), memory, access: None }
    }

    #[test]
    fn of_two_rounds_the_faster_counts_and_the_hungrier_one_s_memory() {
        for (first, second) in [(10, 30), (30, 10)] {
            let best = round(first, first, Some(1)).or_better(round(second, second, None));
            let memory = best.memory.unwrap();
            assert_eq!((best.rows, best.read, memory.anon, memory.cache), (30, Some(30), 30, Some(1)));
        }
        let (slow, fast) = (round(10, 500, None), round(30, 3, None));
        let best = slow.or_better(fast);
        assert_eq!((best.rows, best.memory.unwrap().anon), (30, 500));
    }

    #[test]
    fn figures_are_short() {
        for (number, text) in
            [(1234.4, "1,234"), (99.96, "100"), (12.34, "12.3"), (1.0, "1.00"), (0.004, "0")]
        {
            assert_eq!(decimal(number), text);
        }
        for (share, text) in [(2.0, "200 %"), (0.996, "100 %"), (0.12, "12 %"), (0.003, "0.3 %")] {
            assert_eq!(percent(share), text);
        }
    }
}
