//! `lowtide bench`: every way of access side by side, on the user's own files and disk. Each way runs in a
//! process of its own and is watched from outside; np.memmap, nanoGPT's function and fio are the references.
//! Files are only ever read.

mod compare;
mod fio;
pub mod machine;
mod page;
pub mod report;
pub mod start;
mod subject;

use crate::draw::Progress;
use crate::headerless::{Headerless, one_of};
use crate::number::positive;
use crate::storage::StorageArgs;
use crate::trial::{Outcome, Place, Trial};
use crate::{Context, Failure, save};
use clap::ValueEnum;
use lowtide::budget::{human, parse_size};
use lowtide::format::Dialect;
use lowtide::{Access, CacheWish, Error, Result};
use machine::Machine;
use report::{Figures, Kind, Memory, Report, Way};
use serde_json::Value;
use start::{Start, Wish};
use std::path::{Path, PathBuf};
use subject::{Subject, Unit};

/// What runs in each process.
const WORKER: &str = include_str!("bench/worker.py");

/// Measure every way of access on files of yours: rows or windows a second, bytes read, and the three kinds of
/// memory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Files are only read. Of an object in a store (s3://…) the orders are compared: exact, whole blocks that
are mixed, and sequential; what each takes in requests stands below the table. A cold start drops them from the page cache before each way, so other programs
that read them have to fetch them from the disk again; --warm does not.

Columns: MB/s counts what was delivered, as it is in the file. read/used is what came from the disk
for each byte of that, reading ahead included. RssAnon, RssFile and page cache are the most that
was added while the way ran. pass is how far it got. The last line compares whole passes: where a
way did not finish one, it says what is known, and --seconds gives it longer. The disk of a shared
machine swings, --rounds takes the best of several.

Examples:
  lowtide bench rows.npy
  lowtide bench rows.npy --order sequential --budget 64MiB --html bench.html
  lowtide bench rows.bin --dtype float32 --shape -1,128 --warm
  lowtide bench train.bin --order with_replacement --batch-size 12 --block-size 1024
  lowtide bench s3://bucket/rows.npy --storage-option aws_region=eu-central-1")]
pub struct Args {
    /// The file; for tokens also a folder, a glob ('data/*.bin', quoted) or a Megatron prefix
    path: PathBuf,
    /// In which order rows or windows are read; draws with replacement, as nanoGPT's, are for tokens
    #[arg(long, default_value = "shuffled")]
    order: Order,
    /// Windows in a batch of tokens [default: 12]
    #[arg(long, value_name = "WINDOWS", value_parser = positive::<usize>)]
    batch_size: Option<usize>,
    /// Tokens in a window [default: 1024]
    #[arg(long, value_name = "TOKENS", value_parser = positive::<usize>)]
    block_size: Option<usize>,
    /// The dialect of token files, instead of what they look like
    #[arg(long, conflicts_with_all = ["shape", "offset"], value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Option<Dialect>,
    /// Rows in a chunk of an array [default: 4096, fewer where that is more than 2 MiB]
    #[arg(long, value_parser = positive::<u64>)]
    rows: Option<u64>,
    /// How long each way may take
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: f64,
    /// How often all of them run, one after the other; the best round of each counts
    #[arg(long, default_value = "1", value_parser = rounds)]
    rounds: u64,
    /// The memory that Lowtide may use, such as 64MiB [default: 256 MiB, less where there is little room]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    budget: Option<u64>,
    /// What Lowtide does with what it brings into the page cache
    #[arg(long, default_value = "auto", value_parser = one_of::<CacheWish>(["auto", "keep", "drop"]))]
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
    #[command(flatten)]
    storage: StorageArgs,
    /// Write one self-contained page with the charts
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    Shuffled,
    Sequential,
    #[value(name = "with_replacement", alias = "with-replacement")]
    WithReplacement,
}

impl Order {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shuffled => "shuffled",
            Self::Sequential => "sequential",
            Self::WithReplacement => "with_replacement",
        }
    }
}

fn rounds(text: &str) -> std::result::Result<u64, String> {
    text.parse().ok().filter(|number| (1..=100).contains(number)).ok_or_else(|| "between 1 and 100".into())
}

/// How long something may take.
pub fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.01 and 3600 seconds".into()) }
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let subject = Subject::open(args)?;
    if let Some(page) = &args.html {
        save::check(page)?;
        if subject.paths.iter().any(|path| same_file(page, path)) {
            let what = format!("{}: the page would replace the file that is measured", page.display());
            return Err(Error::argument(what, "give --html another name").into());
        }
    }
    let progress = Progress::new(context.quiet || args.json);
    let report = measure(args, subject, context, &progress)?;
    drop(progress);
    if let Some(page) = &args.html {
        save::save(page, page::draw(&report).as_bytes())?;
    }
    if args.json {
        say!("{:#}", report.json());
    } else {
        report.print();
        if let Some(page) = args.html.as_ref().filter(|_| !context.quiet) {
            say!("page: {}", page.display());
        }
    }
    Ok(())
}

fn same_file(a: &Path, b: &Path) -> bool {
    let number = |path| rustix::fs::stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino));
    number(a).is_some_and(|a| Some(a) == number(b))
}

/// Runs every way, in rounds.
fn measure(args: &Args, subject: Subject, context: &Context, progress: &Progress) -> Result<Report> {
    let wish = match (args.cold, args.warm) {
        (true, _) => Wish::Cold,
        (_, true) => Wish::Warm,
        _ => Wish::None,
    };
    let (start, note) = match (subject.far, wish) {
        (false, _) => Start::decide(wish, &subject.paths, progress)?,
        (true, Wish::None) => (Start::AsFound, None),
        (true, _) => {
            let what = "--cold and --warm are for files: an object store has no page cache here";
            return Err(Error::argument(what, ""));
        }
    };
    let named = subject.paths.first().map_or(args.path.as_path(), PathBuf::as_path);
    let mut report = Report {
        seconds: args.seconds,
        rounds: args.rounds,
        cache: args.cache.name(),
        start,
        machine: Machine::of(named),
        versions: None,
        ways: Vec::new(),
        notes: subject.warnings.iter().cloned().chain(note).collect(),
        subject,
    };
    if report.machine.disk.filesystem.as_deref() == Some("tmpfs") {
        report.note("a tmpfs is memory itself: what is mapped of it is RssShmem, not RssFile".into());
    }
    for number in 0..args.rounds {
        round(number, args, &mut report, context, progress)?;
    }
    note_choice(&mut report);
    Ok(report)
}

/// Runs every way once, and keeps what is better than before.
fn round(
    number: u64,
    args: &Args,
    report: &mut Report,
    context: &Context,
    progress: &Progress,
) -> Result<()> {
    let ways = ways(args, &report.subject);
    let again =
        if args.rounds > 1 { format!("round {} of {}, ", number + 1, args.rounds) } else { String::new() };
    let mut first_error = None;
    for (i, (way, name, kind)) in ways.iter().enumerate() {
        let shown = format!("{again}{} of {}: {name}", i + 1, ways.len());
        progress.say(&format!("{shown} …"));
        if let Some(left) = report.start.prepare(&report.subject.paths, progress)? {
            report.notes.push(format!("{name} did not start {}: {left}", report.start.name()));
        }
        let result = run_way(way, &shown, args, report, context, progress);
        if let Ok(outcome) = &result {
            report.versions = versions(outcome).or(report.versions.take());
            if *kind == Kind::NumPy && report.subject.unit == Unit::Windows && outcome.said["torch"].is_null()
            {
                report.note("torch is not installed: nanoGPT's get_batch does the same work in NumPy".into());
            }
        }
        let far = report.subject.far;
        let result = result.map(|outcome| figures(&outcome, far)).map_err(|error| {
            let text = error.to_string().replace("\nhint: ", "; ");
            first_error.get_or_insert(error);
            text
        });
        report.add(Way { name: name.clone(), kind: *kind, result });
    }
    if let Some(error) = first_error.filter(|_| report.measured().next().is_none()) {
        return Err(error);
    }
    if !report.subject.far {
        disk(args, report, progress);
    }
    Ok(())
}

/// What is compared: of files the ways of access, of objects the orders, of which requests depend.
fn ways(args: &Args, subject: &Subject) -> Vec<(&'static str, String, Kind)> {
    if subject.far {
        let orders: &[&'static str] = match args.order {
            Order::Shuffled => &["exact", "blocks", "sequential"],
            Order::Sequential => &["sequential"],
            Order::WithReplacement => &["with_replacement", "sequential"],
        };
        return orders.iter().map(|&order| (order, format!("lowtide {order}"), Kind::Lowtide)).collect();
    }
    let ours = Access::MANUAL.into_iter().chain([Access::Auto]);
    let ours = ours.map(|access| (access.name(), format!("lowtide {access}"), Kind::Lowtide));
    let theirs = subject.unit.references();
    ours.chain(theirs.map(|(way, name)| (way, name.to_owned(), Kind::NumPy))).collect()
}

/// Runs one way in a process of its own.
fn run_way(
    way: &str,
    name: &str,
    args: &Args,
    report: &Report,
    context: &Context,
    progress: &Progress,
) -> Result<Outcome> {
    // A held map cannot let go of the page cache, and says so: it is here as the baseline.
    let cache = if way == Access::Map.name() { CacheWish::Auto } else { args.cache };
    let mut job = report.subject.job.clone();
    job["way"] = way.into();
    job["cache"] = cache.name().into();
    job["seconds"] = args.seconds.into();
    job["again"] = (report.start == Start::Warm).into();
    // A glob or a folder of tokens is one stream by the name that the user gave.
    let path = match report.subject.unit {
        Unit::Rows => report.subject.paths.first().unwrap_or(&args.path),
        Unit::Windows => &args.path,
    };
    let trial = Trial {
        whose: "the benchmark",
        program: WORKER,
        arguments: vec![path.into(), job.to_string().into()],
        paths: &report.subject.paths,
        place: Place::Here,
    };
    trial.run(context, |time, mapped| {
        progress.say(&format!("{name}: {:.0} s, mapped {}", time.as_secs_f64(), human(mapped)));
    })
}

/// The disk's own limit, where fio can tell.
fn disk(args: &Args, report: &mut Report, progress: &Progress) {
    let row = report.subject.row_bytes;
    let (job, rows): (_, fn(&fio::Limit, u64) -> u64) = match args.order {
        Order::Sequential => (fio::Job::sequential(), |limit, row| limit.bytes / row),
        _ => (fio::Job::random(row, report.machine.disk.block), |limit, _| limit.reads),
    };
    progress.say("fio …");
    match job.run(&report.subject.paths, args.seconds) {
        Ok(limit) => {
            let figures = Figures {
                rows: rows(&limit, row),
                half_rows: 0,
                seconds: limit.seconds,
                read: Some(limit.bytes),
                memory: None,
                access: None,
            };
            report.add(Way { name: "fio, the disk".into(), kind: Kind::Disk, result: Ok(figures) });
            let what = match (args.order, report.subject.unit) {
                (Order::Sequential, _) => "in file order",
                (_, Unit::Rows) => "one a row; sweeps in file order can exceed it",
                (_, Unit::Windows) => "one a window",
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

/// What `auto` took, and why.
fn note_choice(report: &mut Report) {
    if report.subject.far {
        let why =
            |(way, figures): (&Way, &Figures)| Some(format!("{}: {}", way.name, figures.access.clone()?.1));
        let notes: Vec<String> = report.measured().filter_map(why).collect();
        report.notes.extend(notes);
        return;
    }
    let auto = report.measured().find(|(way, _)| way.name == "lowtide auto");
    if let Some((access, why)) = auto.and_then(|(_, figures)| figures.access.clone()) {
        report.notes.push(format!("auto took {access}: {why}"));
    }
}

fn figures(outcome: &Outcome, far: bool) -> Figures {
    let said = |name: &str| outcome.said[name].as_str().map(str::to_owned);
    Figures {
        rows: outcome.rows,
        half_rows: outcome.said["half_rows"].as_u64().unwrap_or(0),
        seconds: outcome.seconds,
        read: outcome.read.filter(|_| !far), // a disk has nothing to do with it
        memory: Some(Memory { anon: outcome.anon, file: outcome.file, cache: outcome.cache_added }),
        access: outcome.said["access"].as_array().map(|taken| names(taken)).zip(said("why")),
    }
}

/// What was taken, one after the other: `read, then advise`.
fn names(taken: &[Value]) -> String {
    taken.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", then ")
}

/// Versions of Python and NumPy, as a program said them.
pub fn versions(outcome: &Outcome) -> Option<(String, String)> {
    Some((outcome.said["python"].as_str()?.to_owned(), outcome.said["numpy"].as_str()?.to_owned()))
}
