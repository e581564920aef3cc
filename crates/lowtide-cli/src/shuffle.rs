//! `lowtide shuffle`: rows in another order, out of core.

use crate::draw::{self, Progress as Line, thousands};
use crate::headerless::Headerless;
use crate::{Context, Failure};
use lowtide::budget::human;
use lowtide::meter::words::duration;
use lowtide::write::Existing;
use lowtide::{Budget, CacheWish, Error, Result, ShuffleFiles, Shuffled, SortStep, Sorting};
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Write the rows of arrays in shuffled order: exactly, in bounded memory, on all cores; killed and run again, it goes on
///
/// The result is what shuffled(seed=S) gives, bit for bit. Data is read twice and written twice, and until it is whole
/// the disk holds it twice more. lowtide shuffle IN OUT makes one file; several arrays of the same rows are shuffled
/// alike into a folder: lowtide shuffle x.npy y.npy -o DIR.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// IN OUT, or with -o all the inputs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A folder for files of the same names; it is made, if need be
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Which order
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Which epoch of it
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// Replace files that are there already, once the new ones are whole
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    headerless: Headerless,
    /// Memory for all of it, such as 64MiB [default: 256 MiB, or a quarter of the room]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let shuffle = shuffle(args)?;
    let (line, began) = (Line::new(context.quiet), Instant::now());
    // Ctrl-C ends the process as any kill does: the next run goes on.
    let answer = shuffle.run(&mut |at| line.say(&words(&at, began.elapsed())), &|| Ok(()));
    drop(line);
    let made = answer?;
    if args.json {
        println!("{:#}", json(&made, began.elapsed()));
    } else {
        summary(&made, args.seed, began.elapsed());
    }
    Ok(())
}

fn shuffle(args: &Args) -> Result<ShuffleFiles> {
    let (inputs, outputs) = match (&args.output, &*args.paths) {
        (Some(folder), inputs) => {
            let name = |input: &PathBuf| {
                let nothing = || Error::argument(format!("{} has no name", input.display()), "");
                Ok(folder.join(input.file_name().ok_or_else(nothing)?))
            };
            let outputs = inputs.iter().map(name).collect::<Result<Vec<_>>>()?;
            std::fs::create_dir_all(folder).map_err(|error| Error::io(folder, "make the folder", error))?;
            (inputs.to_vec(), outputs)
        }
        (None, [input, output]) => (vec![input.clone()], vec![output.clone()]),
        (None, paths) => {
            let what = format!("{} paths are named, and no folder to write into", paths.len());
            return Err(Error::argument(what, "lowtide shuffle IN OUT, or lowtide shuffle IN… -o DIR"));
        }
    };
    let budget = match args.budget {
        Some(bytes) => Budget::new(bytes)?,
        None => Budget::default_for(lowtide::meter::room().bytes),
    };
    let open =
        |path: &PathBuf| args.headerless.options()?.budget(budget.clone()).cache(CacheWish::Drop).open(path);
    Ok(ShuffleFiles {
        arrays: inputs.iter().map(open).collect::<Result<_>>()?,
        outputs,
        seed: args.seed,
        epoch: args.epoch,
        existing: if args.overwrite { Existing::Replace } else { Existing::Refuse },
    })
}

/// How far it is, for people.
pub fn words(at: &Sorting, took: Duration) -> String {
    let step = match at.step {
        SortStep::Runs => "sorting into runs",
        SortStep::Rows => "writing rows in order",
    };
    let share = at.written as f64 / at.total.max(1) as f64;
    let rate = at.written.saturating_sub(at.before) as f64 / took.as_secs_f64().max(1e-3);
    let left = match at.total.saturating_sub(at.written) as f64 / rate.max(1.0) {
        seconds if took > Duration::from_millis(500) && rate > 0.0 => {
            format!(", {} left", duration(Duration::from_secs_f64(seconds.min(1e9))))
        }
        _ => String::new(),
    };
    format!("{step}: {:.0} % of {}{left}", share * 100.0, human(at.total))
}

fn summary(made: &Shuffled, seed: u64, took: Duration) {
    let names: Vec<String> = made.files.iter().map(|file| file.display().to_string()).collect();
    let mut pairs = vec![
        ("rows", format!("{}, {}", thousands(made.rows), human(made.bytes))),
        ("order", format!("shuffled(seed={seed})")),
    ];
    if made.before > 0 {
        pairs.push((
            "went on",
            format!("{} of {} were written before", human(made.before), human(2 * made.bytes)),
        ));
    }
    pairs.push(("took", duration(took)));
    draw::pairs(&names.join(", "), &pairs);
}

fn json(made: &Shuffled, took: Duration) -> serde_json::Value {
    json!({
        "files": made.files,
        "rows": made.rows,
        "bytes": made.bytes,
        "written_before": made.before,
        "seconds": took.as_secs_f64(),
    })
}
