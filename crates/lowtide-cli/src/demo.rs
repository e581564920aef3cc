//! `lowtide demo`: the whole story on this machine. Makes a file, goes through it shuffled in three ways,
//! each in a process of its own, and shows what the kernel says about each.

use crate::draw::{self, BOLD, Cell, DIM, GREEN, Progress, RED};
use crate::trial::{self, Outcome, Trial};
use crate::{Context, Failure};
use lowtide::budget::{human, parse_size};
use lowtide::{Error, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

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
        outcomes.push((name, measure(way, name, &path, args, context, &progress)?));
    }
    drop(progress);
    if args.json {
        println!(
            "{:#}",
            json!({ "bytes": args.size, "row_bytes": ROW, "chunk_rows": CHUNK,
            "ways": outcomes.iter().map(|(name, outcome)| json(name, outcome)).collect::<Vec<_>>() })
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
    name: &str,
    path: &Path,
    args: &Args,
    context: &Context,
    progress: &Progress,
) -> Result<Outcome> {
    trial::chill(path)?;
    let trial = Trial {
        whose: "the demo",
        program: WORKER,
        arguments: vec![way.into(), path.into(), CHUNK.to_string().into(), args.seconds.to_string().into()],
        path,
    };
    trial.run(context, |time, mapped| {
        progress.say(&format!("{name}: {:.0} s, mapped {}", time.as_secs_f64(), human(mapped)));
    })
}

fn json(name: &str, outcome: &Outcome) -> Value {
    json!({ "name": name, "rows": outcome.rows, "seconds": outcome.seconds, "rows_per_second": outcome.rate(),
        "added_anon_bytes": outcome.anon, "added_file_bytes": outcome.file, "cache_bytes": outcome.cached.bytes() })
}

fn print(outcomes: &[(&str, Outcome)], bytes: u64) {
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
        .map(|(name, o)| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate, for people
            let rate = draw::thousands(o.rate() as u64);
            let whole = if o.rows * ROW >= bytes {
                String::new()
            } else {
                format!(" ({} %)", o.rows * ROW * 100 / bytes)
            };
            vec![
                Cell::from(*name).styled(BOLD),
                rate.into(),
                format!("{:.1} s{whole}", o.seconds).into(),
                human(o.anon).into(),
                mapped(o),
                o.cached.bytes().map_or_else(|| "unknown".into(), human).into(),
            ]
        })
        .collect();
    draw::table(&["", "rows/s", "time", "RssAnon", "RssFile", "page cache"], &rows);
    anstream::println!(
        "\n{DIM}RssAnon: the process's own memory. RssFile: pages of the file mapped into it, which Slurm counts.\n\
         Page cache: what the kernel keeps of the file, which Kubernetes counts.{DIM:#}"
    );
}
