//! `lowtide bench`: every way of access side by side, on the user's own file and disk. Each way runs in a
//! process of its own and is watched from outside; np.memmap and fio are the references. The file is only ever
//! read.

mod fio;
pub mod machine;
mod page;
mod report;
pub mod start;

use crate::draw::Progress;
use crate::headerless::Headerless;
use crate::trial::{Outcome, Place, Trial};
use crate::{Context, Failure, save};
use clap::ValueEnum;
use lowtide::budget::{human, parse_size};
use lowtide::format::{Container, Kind as Number, Order as Layout, shape_text};
use lowtide::{Access, Array, Budget, CacheWish, Error, Result, Shuffle};
use machine::Machine;
use report::{Figures, HELD, Kind, Memory, Report, Way};
use serde_json::{Value, json};
use start::{Start, Wish};
use std::path::{Path, PathBuf};

/// What runs in each process.
const WORKER: &str = include_str!("bench/worker.py");
/// A chunk is so many rows, or so many bytes where that is less.
const CHUNK_ROWS: u64 = 4096;
const CHUNK_BYTES: u64 = 2 << 20;

/// Measure every way of access on a file of yours: rows a second, bytes read, and the three kinds of memory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file is only read. A cold start drops it from the page cache before each way, so other programs
that read it have to fetch it from the disk again; --warm does not.

Columns: MB/s counts the rows delivered. read/used is what came from the disk for each byte of them,
reading ahead included. RssAnon, RssFile and page cache are the most that was added while the way
ran. pass is how far it got: a way that did not finish was measured on the part that it reached, and
--seconds gives it longer. The disk of a shared machine swings, --rounds takes the best of several.

Examples:
  lowtide bench rows.npy
  lowtide bench rows.npy --order sequential --budget 64MiB --html bench.html
  lowtide bench rows.bin --dtype float32 --shape -1,128 --warm")]
pub struct Args {
    /// The file
    path: PathBuf,
    /// In which order rows are read
    #[arg(long, default_value = "shuffled")]
    order: Order,
    /// Rows in a chunk [default: 4096, fewer where that is more than 2 MiB]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,
    /// How long each way may take
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: f64,
    /// How often all of them run, one after the other; the best round of each counts
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
    /// The memory that Lowtide may use, such as 64MiB [default: 256 MiB, less where there is little room]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget: Option<u64>,
    /// What Lowtide does with what it brings into the page cache: auto, keep or drop
    #[arg(long, default_value = "auto", value_parser = cache)]
    cache: CacheWish,
    /// Drop the file from the page cache before each way, and fail where that cannot be [default: where the
    /// file is yours]
    #[arg(long, conflicts_with = "warm")]
    cold: bool,
    /// Read the file into the page cache first
    #[arg(long)]
    warm: bool,
    #[command(flatten)]
    headerless: Headerless,
    /// Write one self-contained page with the charts
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    Shuffled,
    Sequential,
}

pub fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.01 and 3600 seconds".into()) }
}

fn cache(text: &str) -> Result<CacheWish> {
    text.parse()
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let bench = Bench::new(args)?;
    if let Some(page) = &args.html {
        save::check(page)?;
        if same_file(page, &args.path) {
            let what = format!("{}: the page would replace the file that is measured", page.display());
            return Err(Error::argument(what, "give --html another name").into());
        }
    }
    let progress = Progress::new(context.quiet || args.json);
    let report = bench.run(context, &progress)?;
    drop(progress);
    if let Some(page) = &args.html {
        save::save(page, page::draw(&report).as_bytes())?;
    }
    if args.json {
        println!("{:#}", report.json());
    } else {
        report.print();
        if let Some(page) = args.html.as_ref().filter(|_| !context.quiet) {
            anstream::println!("page: {}", page.display());
        }
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    let number = |path| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    number(a).is_some_and(|a| Some(a) == number(b))
}

/// An array and how it is to be read.
struct Bench<'a> {
    args: &'a Args,
    array: Array,
    chunk_rows: u64,
}

impl<'a> Bench<'a> {
    /// Opens the file and refuses what no way could do.
    fn new(args: &'a Args) -> Result<Self> {
        let mut options = args.headerless.options()?;
        if let Some(budget) = args.budget {
            options = options.budget(Budget::new(budget)?);
        }
        let array = options.open(&args.path)?;
        let row = array.row_bytes() as u64;
        if array.shape().is_empty() || array.nbytes() == 0 {
            return Err(Error::unsupported(
                format!(
                    "{}: there are no rows to read in an array of shape {}",
                    array.path().display(),
                    shape_text(array.shape())
                ),
                "",
            ));
        }
        let chunk_rows =
            args.rows.unwrap_or_else(|| CHUNK_ROWS.min(CHUNK_BYTES / row).max(1)).min(array.rows());
        // Fails now, with the reason, where a chunk does not fit the budget or the order cannot be.
        let rows = usize::try_from(chunk_rows).unwrap_or(usize::MAX);
        match args.order {
            Order::Shuffled => drop(array.shuffled(rows, Shuffle::default())?),
            Order::Sequential => drop(array.chunks(rows)?),
        }
        Ok(Self { args, array, chunk_rows })
    }

    fn run(&self, context: &Context, progress: &Progress) -> Result<Report> {
        let (array, path) = (&self.array, self.array.path());
        let wish = match (self.args.cold, self.args.warm) {
            (true, _) => Wish::Cold,
            (_, true) => Wish::Warm,
            _ => Wish::None,
        };
        let (start, note) = Start::decide(wish, &[path.to_owned()], progress)?;
        let mut report = Report {
            path: self.args.path.display().to_string(),
            dtype: array.dtype().to_string(),
            shape: shape_text(array.shape()),
            rows: array.rows(),
            row_bytes: array.row_bytes() as u64,
            order: self.order_name(),
            chunk_rows: self.chunk_rows,
            seconds: self.args.seconds,
            rounds: self.args.rounds,
            budget: array.budget().limit(),
            cache: self.args.cache.name(),
            start,
            machine: Machine::of(path),
            versions: None,
            ways: Vec::new(),
            notes: note.into_iter().collect(),
        };
        if report.machine.disk.filesystem.as_deref() == Some("tmpfs") {
            report.note("a tmpfs is memory itself: what is mapped of it is RssShmem, not RssFile".into());
        }
        for round in 0..self.args.rounds {
            self.round(round, &mut report, context, progress)?;
        }
        note_choice(&mut report);
        Ok(report)
    }

    /// Runs every way once, and keeps what is better than before.
    fn round(&self, round: u64, report: &mut Report, context: &Context, progress: &Progress) -> Result<()> {
        let ours = Access::MANUAL.into_iter().chain([Access::Auto]);
        let ours = ours.map(|access| (access.name(), format!("lowtide {access}"), Kind::Lowtide));
        let theirs = [("memmap", HELD), ("recreate", "np.memmap per chunk")];
        let theirs = theirs.map(|(way, name)| (way, name.to_owned(), Kind::NumPy));
        let again = if self.args.rounds > 1 { format!("round {}: ", round + 1) } else { String::new() };
        let mut first_error = None;
        for (way, name, kind) in ours.chain(theirs) {
            let shown = format!("{again}{name}");
            progress.say(&format!("{shown} …"));
            if let Some(left) = report.start.prepare(&[self.array.path().to_owned()], progress)? {
                report.notes.push(format!("{shown} did not start {}: {left}", report.start.name()));
            }
            let result = self.measure(way, &shown, report.start, context, progress);
            if let Ok(outcome) = &result {
                report.versions = versions(outcome).or(report.versions.take());
            }
            let result = result.map(|outcome| figures(&outcome)).map_err(|error| {
                let text = error.to_string().replace("\nhint: ", "; ");
                first_error.get_or_insert(error);
                text
            });
            report.add(Way { name, kind, result });
        }
        if let Some(error) = first_error.filter(|_| report.measured().next().is_none()) {
            return Err(error);
        }
        self.disk(report, progress);
        Ok(())
    }

    /// Runs one way in a process of its own.
    fn measure(
        &self,
        way: &str,
        name: &str,
        start: Start,
        context: &Context,
        progress: &Progress,
    ) -> Result<Outcome> {
        let layout = self.array.layout();
        // NumPy itself has no bfloat16; for reading, any two bytes are the same.
        let dtype = match layout.dtype.kind() {
            Number::BFloat16 => "<u2".to_owned(),
            _ => layout.dtype.numpy_str(),
        };
        // A held map cannot let go of the page cache, and says so: it is here as the baseline.
        let cache = if way == Access::Map.name() { CacheWish::Auto } else { self.args.cache };
        let job = json!({ "way": way, "shuffled": self.args.order == Order::Shuffled, "chunk_rows": self.chunk_rows,
            "seconds": self.args.seconds, "again": start == Start::Warm, "shape": layout.shape, "dtype": dtype,
            "offset": layout.offset, "raw": layout.container == Container::Raw,
            "memory_order": if layout.order == Layout::C { "C" } else { "F" }, "row_bytes": self.array.row_bytes(),
            "budget": self.array.budget().limit(), "cache": cache.name() });
        let trial = Trial {
            whose: "the benchmark",
            program: WORKER,
            arguments: vec![self.array.path().into(), job.to_string().into()],
            paths: &[self.array.path().to_owned()],
            place: Place::Here,
        };
        trial.run(context, |time, mapped| {
            progress.say(&format!("{name}: {:.0} s, mapped {}", time.as_secs_f64(), human(mapped)));
        })
    }

    /// The disk's own limit, where fio can tell.
    fn disk(&self, report: &mut Report, progress: &Progress) {
        let row = report.row_bytes;
        let (job, rows): (_, fn(&fio::Limit, u64) -> u64) = match self.args.order {
            Order::Shuffled => (fio::Job::random(row, report.machine.disk.block), |limit, _| limit.reads),
            Order::Sequential => (fio::Job::sequential(), |limit, row| limit.bytes / row),
        };
        progress.say("fio …");
        match job.run(self.array.path(), self.args.seconds) {
            Ok(limit) => {
                let figures = Figures {
                    rows: rows(&limit, row),
                    seconds: limit.seconds,
                    read: Some(limit.bytes),
                    memory: None,
                    access: None,
                };
                report.add(Way { name: "fio, the disk".into(), kind: Kind::Disk, result: Ok(figures) });
                let what = match self.args.order {
                    Order::Shuffled => "one a row; sweeps in file order can exceed it",
                    Order::Sequential => "in file order",
                };
                report.note(format!(
                    "fio: unbuffered reads of {}, {} in flight, {what}",
                    human(job.block),
                    job.depth
                ));
            }
            Err(why) => report.note(why),
        }
    }

    fn order_name(&self) -> &'static str {
        match self.args.order {
            Order::Shuffled => "shuffled",
            Order::Sequential => "sequential",
        }
    }
}

/// What `auto` took, and why.
fn note_choice(report: &mut Report) {
    let auto = report.measured().find(|(way, _)| way.name == "lowtide auto");
    if let Some((access, why)) = auto.and_then(|(_, figures)| figures.access.clone()) {
        report.notes.push(format!("auto took {access}: {why}"));
    }
}

fn figures(outcome: &Outcome) -> Figures {
    let said = |name: &str| outcome.said[name].as_str().map(str::to_owned);
    Figures {
        rows: outcome.rows,
        seconds: outcome.seconds,
        read: outcome.read,
        memory: Some(Memory { anon: outcome.anon, file: outcome.file, cache: outcome.cache_added }),
        access: outcome.said["access"].as_array().map(|taken| names(taken)).zip(said("why")),
    }
}

/// What was taken, one after the other: `read, then advise`.
fn names(taken: &[Value]) -> String {
    taken.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", then ")
}

fn versions(outcome: &Outcome) -> Option<(String, String)> {
    Some((outcome.said["python"].as_str()?.to_owned(), outcome.said["numpy"].as_str()?.to_owned()))
}
