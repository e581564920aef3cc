//! `lowtide shuffle`: rows in another order, out of core.

use crate::draw::{self, Progress as Line, thousands};
use crate::headerless::{Headerless, one_of};
use crate::info::{Kind, kind};
use crate::number::whole;
use crate::storage::{FarArgs, stop};
use crate::{Context, Failure, signals};
use lowtide::budget::human;
use lowtide::format::Dialect;
use lowtide::format::manifest::Split;
use lowtide::meter::words::duration;
use lowtide::shards::first_array;
use lowtide::store::{Storage, is_url};
use lowtide::write::Existing;
use lowtide::write::Far;
use lowtide::{
    Budget, CacheWish, Error, Result, ShortReads, ShuffleFiles, Shuffled, SortStep, Sorting, TokenOptions,
};
use lowtide_text::ShuffleDocuments;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Write the rows of arrays, or the documents of tokens, in shuffled order: exactly, in bounded memory; killed and run
/// again, it goes on
///
/// The result is what shuffled(seed=S) gives, bit for bit. Data is read twice and written twice, three times where the
/// budget is small for it, and until it is whole the disk holds it twice more. lowtide shuffle IN OUT makes one file;
/// several arrays of the same rows are shuffled alike into a folder: lowtide shuffle x.npy y.npy -o DIR. Of token files
/// the documents are shuffled, whole, into token files of the same format: lowtide shuffle data/ -o DIR. All of them may be
/// in object stores: what goes there is made in --work, and sent when it is whole.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// IN OUT, or with -o all the inputs
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// A folder for files of the same names; it is made, if need be
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Which order
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// Which epoch of it
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>)]
    epoch: u64,
    /// Replace files that are there already, once the new ones are whole
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    headerless: Headerless,
    /// The dialect of token files, instead of what they look like
    #[arg(long, conflicts_with_all = ["shape", "offset"], value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Option<Dialect>,
    /// The token between documents (50256 for GPT-2), for token files that have no index of them
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["shape", "offset"], value_parser = whole::<u64>)]
    end_of_text: Option<u64>,
    /// Which split of a folder that lowtide prepare has made [default: train]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["shape", "offset"])]
    split: Option<String>,
    /// Memory for all of it, such as 64MiB [default: 256 MiB, or a quarter of the room]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    #[command(flatten)]
    far: FarArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let far = args.far.far(stop)?;
    if let Some((documents, output)) = documents(args, &far.storage)? {
        return run_documents(args, context, &far, (&documents, &output));
    }
    let shuffle = shuffle(args, &far.storage)?;
    if let Some(words) = small_budget(&shuffle, "--budget ").filter(|_| !context.quiet && !args.json) {
        draw::note(&words);
    }
    let (line, began) = (Line::new(context.quiet), Instant::now());
    // Ctrl-C ends the process as any kill does: the next run goes on.
    let mut tell = |at: Sorting| line.say(&words(&at, began.elapsed()));
    let answer = if shuffle.outputs.first().is_some_and(|output| is_url(output)) {
        signals::catch(); // parts of an object are taken away there
        shuffle.run_far(&far, &mut tell, &stop)
    } else {
        shuffle.run(&mut tell, &|| Ok(()))
    };
    drop(line);
    let made = answer?;
    if args.json {
        say!("{:#}", json(&made, began.elapsed()));
    } else {
        summary(&made, args.seed, began.elapsed());
    }
    Ok(())
}

fn run_documents(
    args: &Args,
    context: &Context,
    far: &Far,
    (documents, output): (&ShuffleDocuments, &Path),
) -> Result<(), Failure> {
    let (line, began) = (Line::new(context.quiet), Instant::now());
    let mut said = context.quiet || args.json;
    let mut tell = |at: Sorting| {
        if at.passes > 2 && !std::mem::replace(&mut said, true) {
            draw::note(&format!("in this budget, all of it is read and written {} times", at.passes));
        }
        line.say(&words(&at, began.elapsed()));
    };
    let answer = if is_url(output) {
        signals::catch();
        documents.run_far(output, far, &mut tell, &stop)
    } else {
        documents.run(output, &mut tell, &|| Ok(()))
    };
    drop(line);
    let (made, took) = (answer?, began.elapsed());
    let sum = |of: fn(&Split) -> u64| made.manifest.splits.iter().map(of).sum::<u64>();
    let (count, tokens) = (sum(|split| split.documents), sum(|split| split.tokens));
    if args.json {
        let files = made.manifest.splits.iter().flat_map(|split| &split.shards);
        let files: Vec<_> = files.map(|shard| output.join(&shard.file.file).display().to_string()).collect();
        say!(
            "{:#}",
            json!({
                "files": files,
                "documents": count,
                "tokens": tokens,
                "end_of_text_added": made.marked,
                "bytes": made.bytes,
                "written_before": made.before,
                "seconds": took.as_secs_f64(),
            })
        );
        return Ok(());
    }
    let mut pairs = vec![
        ("documents", format!("{}, {} tokens, {}", thousands(count), thousands(tokens), human(made.bytes))),
        ("order", format!("that of rows in shuffled(seed={})", args.seed)),
    ];
    if made.marked > 0 {
        let what = "end-of-text tokens, for documents that had none, as at the end of a file";
        pairs.push(("added", format!("{} {what}", thousands(made.marked))));
    }
    pairs.extend(went_on(made.before, 2 * made.bytes));
    pairs.push(("took", duration(took)));
    draw::pairs(&output.display().to_string(), &pairs);
    Ok(())
}

/// The inputs, and the folder for what is made of them, where they are tokens.
fn documents(args: &Args, storage: &Storage) -> Result<Option<(ShuffleDocuments, PathBuf)>> {
    let (names, output) = match (&args.output, &*args.paths) {
        (Some(folder), names) => (names.to_vec(), folder.clone()),
        (None, [input, output]) => (vec![input.clone()], output.clone()),
        _ => return Ok(None), // it is said there
    };
    let told = args.format.is_some() || args.end_of_text.is_some() || args.split.is_some();
    let tokens = |path: &PathBuf| {
        // The files of a folder may be taken for both: NumPy's own are arrays here.
        let tokens = kind(path, &args.headerless, None, storage) == Kind::Tokens;
        Ok(tokens && (args.headerless.dtype().is_none() && !is_npy(path)))
    };
    if !told && !names.iter().map(tokens).collect::<Result<Vec<_>>>()?.contains(&true) {
        return Ok(None);
    }
    let mut options = TokenOptions::new().storage(storage.clone());
    if let Some(dtype) = args.headerless.dtype() {
        options = options.dtype(dtype);
    }
    if let Some(format) = args.format {
        options = options.dialect(format);
    }
    if let Some(token) = args.end_of_text {
        options = options.end_of_text(token);
    }
    if let Some(split) = &args.split {
        options = options.split(split);
    }
    let budget = args.budget.unwrap_or_else(|| Budget::default_for(lowtide::meter::room().bytes).limit());
    let documents = ShuffleDocuments { names, options, seed: args.seed, epoch: args.epoch, budget };
    Ok(Some((documents, output)))
}

/// Whether a folder or a glob is of NumPy's files.
fn is_npy(path: &Path) -> bool {
    let first = std::path::absolute(path).ok().and_then(|path| first_array(&path));
    first.is_some_and(|first| lowtide::open(first).is_ok())
}

fn shuffle(args: &Args, storage: &Storage) -> Result<ShuffleFiles> {
    let (inputs, outputs) = match (&args.output, &*args.paths) {
        (Some(folder), inputs) => {
            let name = |input: &PathBuf| {
                let nothing = || Error::argument(format!("{} has no name", input.display()), "");
                Ok(folder.join(input.file_name().ok_or_else(nothing)?))
            };
            let outputs = inputs.iter().map(name).collect::<Result<Vec<_>>>()?;
            if !is_url(folder) {
                let made = std::fs::create_dir_all(folder);
                made.map_err(|error| Error::io(folder, "make the folder", error))?;
            }
            (inputs.to_vec(), outputs)
        }
        (None, [input, output]) => (vec![input.clone()], vec![output.clone()]),
        (None, paths) => {
            let named = match paths.len() {
                1 => "one path is named".to_owned(),
                several => format!("{several} paths are named"),
            };
            let what = named + ", and no folder to write into";
            return Err(Error::argument(what, "lowtide shuffle IN OUT, or lowtide shuffle IN… -o DIR"));
        }
    };
    let budget = match args.budget {
        Some(bytes) => Budget::new(bytes)?,
        None => Budget::default_for(lowtide::meter::room().bytes),
    };
    let open = |path: &PathBuf| {
        let options = args.headerless.options()?.budget(budget.clone()).cache(CacheWish::Drop);
        options.storage(storage.clone()).open(path)
    };
    Ok(ShuffleFiles {
        arrays: inputs.iter().map(open).collect::<Result<_>>()?,
        outputs,
        seed: args.seed,
        epoch: args.epoch,
        existing: if args.overwrite { Existing::Replace } else { Existing::Refuse },
    })
}

/// What a small budget costs, said before the work begins; `budget` is how one is given.
pub fn small_budget(shuffle: &ShuffleFiles, budget: &str) -> Option<String> {
    let size = |bytes| human(bytes).replace(' ', "");
    if let Some(enough) = shuffle.third_pass() {
        let enough = size(enough);
        return Some(format!(
            "in this budget, all of it is read and written three times, for long reads; with {budget}{enough}, twice is enough"
        ));
    }
    let ShortReads { reads, bytes, enough } = shuffle.short_reads()?;
    let (reads, bytes, enough) = (thousands(reads), human(bytes), size(enough));
    Some(format!(
        "in this budget, the second pass makes about {reads} reads of {bytes}; {budget}{enough} makes them long, and it faster"
    ))
}

/// How far it is, for people.
pub fn words(at: &Sorting, took: Duration) -> String {
    let step = match at.step {
        SortStep::Runs => "sorting into runs",
        SortStep::Merging => "merging runs",
        SortStep::Rows => "writing in order",
        SortStep::Sending => "sending",
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
    pairs.extend(went_on(made.before, u64::from(made.passes) * made.bytes));
    pairs.push(("took", duration(took)));
    draw::pairs(&names.join(", "), &pairs);
}

/// What an earlier call has done of all that is written.
fn went_on(before: u64, total: u64) -> Option<(&'static str, String)> {
    let what = || format!("{} of {} were written before", human(before), human(total));
    (before > 0).then(|| ("went on", what()))
}

fn json(made: &Shuffled, took: Duration) -> serde_json::Value {
    json!({
        "files": made.files.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
        "rows": made.rows,
        "bytes": made.bytes,
        "passes": made.passes,
        "written_before": made.before,
        "seconds": took.as_secs_f64(),
    })
}
