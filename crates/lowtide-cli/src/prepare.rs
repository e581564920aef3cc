//! `lowtide prepare`: text to token files.

use crate::draw::{self, Progress as Line, counted, thousands};
use crate::headerless::one_of;
use crate::home::word_at_home;
use crate::number::whole;
use crate::storage::{FarArgs, stop};
use crate::{Context, Failure, signals};
use lowtide::budget::human;
use lowtide::format::Dialect;
use lowtide::format::manifest::Manifest;
use lowtide::meter::words::duration;
use lowtide::store::is_url;
use lowtide::{CacheWish, Error, Result};
use lowtide_text::{InputKind, OnError, Progress, Settings, Step, prepare, prepare_far};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Turn text, JSON lines or Parquet into token files: in bounded memory, on all cores; killed and run again, it goes on
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders (searched to the bottom), globs, or - for standard input; gzip and zstd are unpacked
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// The folder to write into; it is made, if need be. s3://…/ is one in an object store: made in --work, sent when whole
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    // Not a doc comment: those want back quotes, which would be printed.
    #[arg(
        long,
        short,
        default_value = "gpt2",
        value_name = "NAME",
        help = "gpt2, cl100k_base, o200k_base, …, bytes, chars, or the path of a Hugging Face tokenizer.json"
    )]
    tokenizer: String,
    /// Which files to write
    #[arg(long, short, default_value = "nanogpt", value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Dialect,
    /// The share of documents for validation, such as 0.0005
    #[arg(long, default_value_t = 0.0, value_name = "SHARE", value_parser = share)]
    val: f64,
    /// Which documents are for validation
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// End a shard with the document that reaches this many tokens, such as 100M [default: one file]
    #[arg(long, value_name = "N", value_parser = count)]
    shard_tokens: Option<u64>,
    /// What the inputs are [default: by name; by the first line where the name does not tell]
    #[arg(long, value_name = "KIND", value_parser = one_of::<InputKind>(InputKind::ALL.map(InputKind::name)))]
    input: Option<InputKind>,
    /// Where the text is in a line of JSON, or in a table: text, or document.body [default: text]
    #[arg(long, visible_alias = "column", value_name = "PATH")]
    field: Option<String>,
    /// Every line of a text is a document
    #[arg(long, conflicts_with_all = ["input", "separator"])]
    split_lines: bool,
    /// What stands between the documents of a text; \n, \t and \\ are understood
    #[arg(long, value_name = "TEXT")]
    separator: Option<String>,
    /// Which files of a folder to read, such as '*.py'; can be given again
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// On a document that cannot be read: stop, or skip and count it
    #[arg(long, default_value = "stop", value_name = "WHAT", value_parser = one_of::<OnError>(["stop", "skip"]))]
    on_error: OnError,
    /// Deal the documents in another order, exactly and out of core
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>)]
    shuffle_documents: Option<u64>,
    /// Threads that make tokens [default: one for each core]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    threads: Option<usize>,
    /// Memory for all of it, such as 64MiB [default: 256 MiB, or a quarter of the room]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    /// What happens to the page cache of inputs and outputs
    #[arg(long, default_value = "auto", value_name = "HOW", value_parser = one_of::<CacheWish>(["auto", "keep", "drop"]))]
    cache: CacheWish,
    /// Share the work among the machines of a cluster; the files are the same. All of them see inputs and DIR
    #[arg(long, value_name = "CLUSTER", value_parser = ["ray"], conflicts_with = "threads")]
    on: Option<String>,
    /// Bytes of input for one task of a cluster, such as 64MiB [default: 128 MiB]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size, requires = "on")]
    part_bytes: Option<u64>,
    /// Seconds between the points that a killed run goes on from
    #[arg(long, default_value_t = 5.0, hide = true)]
    checkpoint: f64,
    #[command(flatten)]
    far: FarArgs,
    /// Answer with the manifest, in JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let (settings, began) = (settings(args)?, Instant::now());
    let manifest = if args.on.is_some() {
        on_ray(args, &settings, context)?
    } else {
        let (line, mut meter) = (Line::new(context.quiet), Meter::default());
        // Ctrl-C ends the process as any kill does: the next run goes on.
        let mut said = Vec::new();
        let mut tell = |at: &Progress| {
            line.say(&meter.words(at));
            said.clone_from(&at.said);
        };
        let answer = if is_url(&args.output) {
            signals::catch(); // parts of an object are taken away there
            prepare_far(&args.inputs, &args.output, &args.far.far(stop)?, &settings, &mut tell, &stop)
        } else {
            prepare(&args.inputs, &args.output, &settings, &mut tell, &|| Ok(()))
        };
        drop(line);
        let manifest = answer?;
        for one in &said {
            draw::warning(one);
        }
        manifest
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&manifest).unwrap_or_default());
    } else {
        summary(&manifest, args, began.elapsed());
        if !context.quiet {
            draw::note(&format!(
                "look at it: lowtide info --show 3 {0}; train on it: lowtide.tokens(\"{0}\")",
                args.output.display()
            ));
        }
    }
    Ok(())
}

/// The same by Ray, which is Python's: `lowtide.ray` does it in a process of its own, and says itself what goes wrong.
fn on_ray(args: &Args, settings: &Settings, context: &Context) -> Result<Manifest, Failure> {
    let Some(python) = &context.python else {
        return Err(Failure::Error(Error::unsupported(
            "--on ray: this command was built without Python, and Ray is Python's",
            "run the `lowtide` that pip install \"lowtide[ray]\" brings",
        )));
    };
    if is_url(&args.output) {
        return Err(Failure::Error(Error::unsupported(
            format!("{}: --on ray writes into a folder that all machines see", args.output.display()),
            "a shared filesystem; or prepare on one machine, which sends what it has made",
        )));
    }
    let text = |path: &PathBuf| {
        path.to_str()
            .map(str::to_owned)
            .ok_or_else(|| Error::argument(format!("{}: --on ray takes names in UTF-8", path.display()), ""))
    };
    let inputs = args.inputs.iter().map(text).collect::<Result<Vec<_>>>()?;
    let keywords = serde_json::json!({
        "inputs": inputs,
        "output": text(&args.output)?,
        "tokenizer": settings.tokenizer,
        "format": settings.format.name(),
        "val": settings.val,
        "seed": settings.seed,
        "shard_tokens": settings.shard_tokens,
        "input": settings.input.map(InputKind::name),
        "field": settings.field,
        "separator": settings.separator,
        "include": settings.include,
        "on_error": settings.on_error.name(),
        "shuffle_documents": settings.shuffle_documents,
        "budget": settings.budget,
        "cache": settings.cache.name(),
        "part_bytes": args.part_bytes,
        "quiet": context.quiet,
    });
    let program = "import sys; from lowtide._ray_tasks import command; sys.exit(command(sys.argv[1]))";
    let mut child = Command::new(python);
    child.args(["-c", program]).arg(keywords.to_string()).stdin(Stdio::null());
    // What the command answers is ours to say.
    let status = child.stdout(std::io::stderr()).status();
    let status = status.map_err(|error| Error::io(python, "start Python", error))?;
    match status.code() {
        Some(0) => Ok(lowtide::shards::load_manifest(&args.output)?),
        Some(code) => Err(Failure::Exit(code)),
        None => Err(Failure::Exit(1)),
    }
}

fn settings(args: &Args) -> Result<Settings> {
    let input = if args.split_lines { Some(InputKind::Lines) } else { args.input };
    // Python cannot tell a field="text" that was given from none, a shell can.
    if let (Some(field), Some(InputKind::Text | InputKind::Lines)) = (&args.field, input) {
        return Err(Error::argument(
            format!("--field {field} is for JSON lines and tables, not for text"),
            "leave it out, or --input jsonl",
        ));
    }
    Ok(Settings {
        tokenizer: word_at_home(&args.tokenizer),
        format: args.format,
        val: args.val,
        seed: args.seed,
        shard_tokens: args.shard_tokens,
        input,
        field: args.field.clone().unwrap_or_else(|| Settings::default().field),
        separator: args.separator.as_deref().map(unescape).transpose()?,
        include: args.include.clone(),
        on_error: args.on_error,
        shuffle_documents: args.shuffle_documents,
        threads: args.threads,
        budget: args.budget,
        cache: args.cache,
        checkpoint: Duration::try_from_secs_f64(args.checkpoint)
            .map_err(|_| Error::argument("--checkpoint is no time", "seconds, such as 5"))?,
    })
}

/// A text as it is typed: `\n` is a line feed.
fn unescape(text: &str) -> Result<String> {
    let mut out = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('\\') => out.push('\\'),
            _ => {
                return Err(Error::argument(
                    format!("--separator {text:?}: only \\n, \\r, \\t and \\\\ are known"),
                    "",
                ));
            }
        }
    }
    Ok(out)
}

/// A count such as 100M.
///
/// # Errors
/// What is wrong with it, in words.
pub fn count(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no number of tokens: 100M, 5000000");
    let (digits, factor) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1_000),
        Some('M') => (&text[..text.len() - 1], 1_000_000),
        Some('G' | 'B') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.replace('_', "").parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|&n| n > 0).ok_or_else(wrong)
}

/// A share of the documents. Whether it is one is judged with the rest.
fn share(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a share of the documents, such as 0.0005".to_owned())
}

/// Knows how long a step takes, for a line of progress.
#[derive(Debug, Default)]
pub struct Meter {
    /// The step that is being done, and when it began.
    step: Option<(Step, Instant)>,
}

impl Meter {
    /// How far it is, how fast, and how long it will take, in one line.
    pub fn words(&mut self, progress: &Progress) -> String {
        let begun = match self.step {
            Some((step, begun)) if step == progress.step => begun,
            _ => Instant::now(),
        };
        self.step = Some((progress.step, begun));
        words(progress, begun.elapsed().as_secs_f64())
    }
}

/// How far it is, how fast, and how long it will take.
fn words(progress: &Progress, seconds: f64) -> String {
    let &Progress { step, documents, tokens, skipped, .. } = progress;
    let read = Pace { done: progress.read, of: progress.bytes, before: progress.resumed, seconds };
    let made = Pace { done: tokens, of: progress.to_deal, before: progress.resumed_tokens, seconds };
    let (bytes, per_second) = (human(read.rate()), thousands(made.rate()));
    let skipped = if skipped > 0 { format!(", {} skipped", thousands(skipped)) } else { String::new() };
    match step {
        Step::Looking => {
            format!("looking for characters: {}{bytes}/s{}", read.share(), read.left())
        }
        Step::Encoding => format!(
            "{}{} documents, {} tokens{skipped}, {bytes}/s, {per_second} tokens/s{}",
            read.share(),
            thousands(documents),
            thousands(tokens),
            read.left()
        ),
        Step::Joining => {
            format!("putting the parts together: {} tokens, {per_second} tokens/s", thousands(tokens))
        }
        Step::Sending => format!("sending: {}{bytes}/s{}", read.share(), read.left()),
        Step::Dealing => format!(
            "dealing documents in another order: {}{} tokens, {per_second} tokens/s{}",
            made.share(),
            thousands(tokens),
            made.left()
        ),
    }
}

/// How far something is, and how fast: `before` was done by an earlier run.
#[derive(Clone, Copy, Debug)]
struct Pace {
    done: u64,
    /// 0 where it is not known.
    of: u64,
    before: u64,
    seconds: f64,
}

impl Pace {
    /// In a second.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float as large as it gets"
    )]
    fn rate(self) -> u64 {
        (self.done.saturating_sub(self.before) as f64 / self.seconds.max(1e-3)) as u64
    }

    /// `43 %`, and a space; nothing where the end is not known.
    fn share(self) -> String {
        if self.of == 0 {
            return String::new();
        }
        format!("{:.0} %  ", self.done.min(self.of) as f64 / self.of as f64 * 100.0)
    }

    /// `, 3 s left`, where that can be told.
    fn left(self) -> String {
        let done = self.done.saturating_sub(self.before) as f64;
        if self.of == 0 || done == 0.0 {
            return String::new();
        }
        let left = self.of.saturating_sub(self.done) as f64 * self.seconds / done;
        format!(", {} left", duration(Duration::from_secs_f64(left.min(1e9))))
    }
}

fn summary(manifest: &Manifest, args: &Args, took: Duration) {
    let counts = &manifest.counts;
    let tokens: u64 = manifest.splits.iter().map(|split| split.tokens).sum();
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for split in &manifest.splits {
        let files = match &*split.shards {
            [only] => only.file.file.clone(),
            [first, .., last] => format!("{} to {}", first.file.file, last.file.file),
            [] => String::new(),
        };
        let name = if split.name == "val" { "val" } else { "train" };
        pairs.push((
            name,
            format!("{}, {}: {files}", counted(split.tokens, "token"), counted(split.documents, "document")),
        ));
    }
    for name in if args.val > 0.0 { &["train", "val"][..] } else { &[] } {
        if manifest.splits.iter().all(|split| split.name != *name) {
            pairs.push((name, "nothing: of so few documents none was drawn".into()));
        }
    }
    let end = manifest.tokenizer.end_of_text;
    pairs.extend([
        (
            "tokenizer",
            format!(
                "{}, {} ids, {}",
                manifest.tokenizer.name,
                thousands(manifest.tokenizer.vocabulary),
                end.map_or("nothing between documents".into(), |id| format!("{id} between documents"))
            ),
        ),
        ("format", format!("{}, {}", manifest.format, manifest.dtype)),
        (
            "text",
            format!(
                "{}, {:.2} bytes a token",
                human(counts.text_bytes),
                counts.text_bytes as f64 / tokens.max(1) as f64
            ),
        ),
        ("longest", counted(counts.longest, "token")),
        (
            "skipped",
            format!(
                "{} that could not be read, {} empty",
                thousands(counts.skipped),
                thousands(counts.empty)
            ),
        ),
        ("took", duration(took)),
    ]);
    draw::pairs(&args.output.display().to_string(), &pairs);
}

#[cfg(test)]
mod tests {
    use super::{count, unescape, words};
    use lowtide_text::{Progress, Step};

    #[test]
    fn progress_says_how_far_how_fast_and_how_long() {
        let at = Progress { bytes: 300 << 20, read: 150 << 20, resumed: 50 << 20, ..Progress::default() };
        let at = Progress { documents: 1_200, tokens: 40_000_000, resumed_tokens: 10_000_000, ..at };
        assert_eq!(
            words(&at, 10.0),
            "50 %  1,200 documents, 40,000,000 tokens, 10 MiB/s, 3,000,000 tokens/s, 15 s left"
        );
        let at = Progress { step: Step::Dealing, to_deal: 160_000_000, ..at };
        assert_eq!(
            words(&Progress { resumed_tokens: 0, ..at.clone() }, 20.0),
            "dealing documents in another order: 25 %  40,000,000 tokens, 2,000,000 tokens/s, 1 min 0 s left"
        );
        // A pipe has no size, and at first nothing is known.
        let begun = Progress { skipped: 3, ..Progress::default() };
        assert_eq!(words(&begun, 0.0), "0 documents, 0 tokens, 3 skipped, 0 B/s, 0 tokens/s");
    }

    #[test]
    fn counts_and_separators_are_read_as_they_are_typed() {
        assert_eq!(count("100M"), Ok(100_000_000));
        assert_eq!(count("5_000"), Ok(5_000));
        assert!(count("0").is_err() && count("M").is_err() && count("1e6").is_err() && count("").is_err());
        assert_eq!(unescape(r"\n---\t\\").unwrap(), "\n---\t\\");
        assert!(unescape(r"\x").is_err() && unescape(r"\").is_err());
    }
}
