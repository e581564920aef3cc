//! `lowtide demo`: the whole story on this machine. Makes a file, goes through it shuffled in three ways,
//! each in a process of its own, and shows what the kernel says about each.

use crate::draw::{self, BOLD, Cell, DIM, GREEN, Progress, RED};
use crate::{Context, Failure};
use lowtide::budget::{human, parse_size};
use lowtide::meter::{self, process::Proc};
use lowtide::{Error, Result};
use rustix::fs::Advice;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of one row: 128 float32.
const ROW: u64 = 512;
/// Rows in a chunk.
const CHUNK: u64 = 4096;
/// What runs in each process.
const WORKER: &str = include_str!("demo.py");

/// Show on this machine what a shuffled pass costs: np.memmap, a map per chunk, and Lowtide
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The size of the file to make
    #[arg(long, default_value = "2GiB", value_parser = size)]
    size: u64,
    /// Where to make it; it is removed afterwards
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How long each way may take, in seconds
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text) {
        Ok(bytes) if bytes >= ROW * CHUNK => Ok(bytes / ROW * ROW),
        Ok(_) => Err(format!("at least {} are needed for one chunk", human(ROW * CHUNK))),
        Err(error) => Err(error.to_string()),
    }
}

/// What one way cost.
struct Outcome {
    name: &'static str,
    rows: u64,
    seconds: f64,
    anon: u64,
    file: u64,
    cache: Option<u64>,
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let folder = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let made = tempfile::Builder::new().prefix("lowtide-demo-").tempdir_in(&folder);
    let made = made.map_err(|e| Error::io(&folder, "make a folder for the demo", e))?;
    let path = made.path().join("rows.npy");
    let progress = Progress::new(context.quiet || args.json);
    write(&path, args.size, &progress)?;

    let mut outcomes = Vec::new();
    for (way, name) in [
        ("memmap", "np.memmap, held"),
        ("recreate", "np.memmap, a new one per chunk"),
        ("lowtide", "lowtide"),
    ] {
        progress.say(&format!("{name} …"));
        outcomes.push(measure(way, name, &path, args, context, &progress)?);
    }
    drop(progress);
    if args.json {
        println!(
            "{:#}",
            json!({ "bytes": args.size, "row_bytes": ROW, "chunk_rows": CHUNK,
            "ways": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() })
        );
    } else {
        print(&outcomes, args.size);
    }
    Ok(())
}

/// Writes rows whose every number is the row's number.
fn write(path: &Path, bytes: u64, progress: &Progress) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::io(path, "write the demo's file", e)
            .with_hint("--dir and --size choose another place and size")
    };
    let rows = bytes / ROW;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {}), }}", ROW / 4);
    file.write_all(b"\x93NUMPY\x01\x00\x76\x00").map_err(failed)?;
    writeln!(file, "{header:117}").map_err(failed)?;
    for row in 0..rows {
        #[allow(clippy::cast_precision_loss)] // the data is only an example
        let number = (row as f32).to_le_bytes();
        file.write_all(&number.repeat(usize::try_from(ROW / 4).unwrap_or(128))).map_err(failed)?;
        if row % (1 << 16) == 0 {
            progress.say(&format!("writing {}: {} %", human(bytes), row * 100 / rows));
        }
    }
    file.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)
}

/// Runs one way in a process of its own and watches it from outside.
fn measure(
    way: &str,
    name: &'static str,
    path: &Path,
    args: &Args,
    context: &Context,
    progress: &Progress,
) -> Result<Outcome> {
    let failed = |e: std::io::Error| Error::io(path, "run the demo", e);
    let file = File::open(path).map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let mut child = Command::new(&python)
        .args(["-c", WORKER, way])
        .arg(path)
        .args([CHUNK.to_string(), args.seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| {
            Error::io(&python, "start Python", e)
                .with_hint("the demo compares with NumPy: it needs a Python with numpy and lowtide")
        })?;
    let answer = watch(&mut child, name, path, progress);
    let _ = child.kill(); // it waits for its standard input to close; a failed one may still run
    let _ = child.wait();
    answer
}

fn watch(child: &mut Child, name: &'static str, path: &Path, progress: &Progress) -> Result<Outcome> {
    let broken = || {
        Error::unsupported(
            "the demo's Python process ended early: its message is above",
            "it needs numpy and lowtide: run the `lowtide` that pip installed",
        )
    };
    let pid = child.id();
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(broken());
    };
    let mut lines = BufReader::new(stdout).lines();
    if lines.next().and_then(std::io::Result::ok).as_deref() != Some("ready") {
        return Err(broken());
    }
    let mut proc = Proc::open()?;
    let before = proc.process(pid).ok_or_else(broken)?;
    let (done, answer) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || done.send(lines.next().and_then(std::io::Result::ok)));
    writeln!(stdin).map_err(|e| Error::io(path, "run the demo", e))?;
    let started = Instant::now();
    let mut outcome = Outcome { name, rows: 0, seconds: 0.0, anon: 0, file: 0, cache: None };
    let line = loop {
        if let Some(now) = proc.process(pid) {
            outcome.anon = outcome.anon.max(now.anon.saturating_sub(before.anon));
            outcome.file = outcome.file.max(now.file.saturating_sub(before.file));
            progress.say(&format!(
                "{name}: {:.0} s, mapped {}",
                started.elapsed().as_secs_f64(),
                human(now.file)
            ));
        }
        match answer.recv_timeout(Duration::from_millis(10)) {
            Ok(line) => break line,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break None,
        }
    };
    let _ = reader.join();
    outcome.cache = meter::cache::of_path(path).bytes();
    let said: Value = line.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(broken)?;
    outcome.rows = said["rows"].as_u64().ok_or_else(broken)?;
    outcome.seconds = said["seconds"].as_f64().ok_or_else(broken)?;
    Ok(outcome)
}

impl Outcome {
    fn rate(&self) -> f64 {
        self.rows as f64 / self.seconds.max(1e-9)
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "rows": self.rows, "seconds": self.seconds, "rows_per_second": self.rate(),
            "added_anon_bytes": self.anon, "added_file_bytes": self.file, "cache_bytes": self.cache })
    }
}

fn print(outcomes: &[Outcome], bytes: u64) {
    let heading = format!("One shuffled pass over {}, rows of {ROW} bytes, chunks of {CHUNK}", human(bytes));
    anstream::println!("\n{BOLD}{heading}{BOLD:#}");
    anstream::println!(
        "{DIM}each way in a process of its own, from a cold page cache; memory as the kernel counts it, peak{DIM:#}\n"
    );
    let mapped = |o: &Outcome| {
        let style = if o.file > bytes / 4 { RED } else { GREEN };
        Cell::from(human(o.file)).styled(style)
    };
    let rows: Vec<Vec<Cell>> = outcomes
        .iter()
        .map(|o| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate, for people
            let rate = draw::thousands(o.rate() as u64);
            let whole = if o.rows * ROW >= bytes {
                String::new()
            } else {
                format!(" ({} %)", o.rows * ROW * 100 / bytes)
            };
            vec![
                Cell::from(o.name).styled(BOLD),
                rate.into(),
                format!("{:.1} s{whole}", o.seconds).into(),
                human(o.anon).into(),
                mapped(o),
                o.cache.map_or_else(|| "unknown".into(), human).into(),
            ]
        })
        .collect();
    draw::table(&["", "rows/s", "time", "RssAnon", "RssFile", "page cache"], &rows);
    anstream::println!(
        "\n{DIM}RssAnon: the process's own memory. RssFile: pages of the file mapped into it, which Slurm counts.\n\
         Page cache: what the kernel keeps of the file, which Kubernetes counts.{DIM:#}"
    );
}
