//! `lowtide prepare`: text to token files.

use crate::draw::{self, Progress as Line, thousands};
use crate::headerless::one_of;
use crate::{Context, Failure};
use lowtide::budget::human;
use lowtide::format::Dialect;
use lowtide::format::manifest::Manifest;
use lowtide::meter::words::duration;
use lowtide::{CacheWish, Error, Result};
use lowtide_text::{InputKind, OnError, Progress, Settings, Step, prepare};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Turn text, JSON lines or Parquet into token files: in bounded memory, on all cores; killed and run again, it goes on
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders (searched to the bottom), globs, or - for standard input; gzip and zstd are unpacked
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// The folder to write into; it is made, if need be
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
    #[arg(long, short, default_value = "nanogpt", value_parser = one_of::<Dialect>(WRITTEN))]
    format: Dialect,
    /// The share of documents for validation, such as 0.0005
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    val: f64,
    /// Which documents are for validation
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// End a shard with the document that reaches this many tokens, such as 100M [default: one file]
    #[arg(long, value_name = "N", value_parser = count)]
    shard_tokens: Option<u64>,
    /// What the inputs are [default: by content and name]
    #[arg(long, value_name = "KIND", value_parser = one_of::<InputKind>(InputKind::ALL.map(InputKind::name)))]
    input: Option<InputKind>,
    /// Where the text is in a line of JSON, or in a table: text, or document.body
    #[arg(long, visible_alias = "column", default_value = "text", value_name = "PATH")]
    field: String,
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
    #[arg(long, value_name = "SEED")]
    shuffle_documents: Option<u64>,
    /// Threads that make tokens [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Memory for all of it, such as 64MiB [default: 256 MiB, or a quarter of the room]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    /// What happens to the page cache of inputs and outputs
    #[arg(long, default_value = "auto", value_name = "HOW", value_parser = one_of::<CacheWish>(["auto", "keep", "drop"]))]
    cache: CacheWish,
    /// Seconds between the points that a killed run goes on from
    #[arg(long, default_value_t = 5.0, hide = true)]
    checkpoint: f64,
    /// Answer with the manifest, in JSON
    #[arg(long)]
    json: bool,
}

/// The dialects that can be written.
pub const WRITTEN: [&str; 5] = ["nanogpt", "llmc", "megatron", "datatrove", "npy"];

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let settings = settings(args)?;
    let (line, mut meter, began) = (Line::new(context.quiet), Meter::default(), Instant::now());
    // Ctrl-C ends the process as any kill does: the next run goes on.
    let answer =
        prepare(&args.inputs, &args.output, &settings, &mut |at| line.say(&meter.words(at)), &|| Ok(()));
    drop(line);
    let manifest = answer?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&manifest).unwrap_or_default());
    } else {
        summary(&manifest, args, began.elapsed());
    }
    Ok(())
}

fn settings(args: &Args) -> Result<Settings> {
    let input = if args.split_lines { Some(InputKind::Lines) } else { args.input };
    Ok(Settings {
        tokenizer: args.tokenizer.clone(),
        format: args.format,
        val: args.val,
        seed: args.seed,
        shard_tokens: args.shard_tokens,
        input,
        field: args.field.clone(),
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
    let Progress { step, bytes, read, documents, tokens, skipped, resumed, .. } = *progress;
    let share = if bytes == 0 { 0.0 } else { read as f64 / bytes as f64 };
    let done = read.saturating_sub(resumed) as f64;
    let left =
        if done > 0.0 && bytes > 0 { bytes.saturating_sub(read) as f64 * seconds / done } else { f64::NAN };
    let milliseconds = Duration::try_from_secs_f64(seconds).map_or(1, |time| time.as_millis().max(1));
    let rate =
        human(u64::try_from(u128::from(read.saturating_sub(resumed)) * 1000 / milliseconds).unwrap_or(0));
    let time = if left.is_finite() {
        format!(", {} left", duration(Duration::from_secs_f64(left.min(1e9))))
    } else {
        String::new()
    };
    let skipped = if skipped > 0 { format!(", {} skipped", thousands(skipped)) } else { String::new() };
    match step {
        Step::Looking => format!("looking for characters: {:.0} %, {rate}/s{time}", share * 100.0),
        Step::Encoding => format!(
            "{:.0} %  {} documents, {} tokens{skipped}, {rate}/s{time}",
            share * 100.0,
            thousands(documents),
            thousands(tokens)
        ),
        Step::Dealing => format!("dealing documents in another order: {} tokens", thousands(tokens)),
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
            format!("{} tokens, {} documents: {files}", thousands(split.tokens), thousands(split.documents)),
        ));
    }
    if args.val > 0.0 && manifest.splits.iter().all(|split| split.name != "val") {
        pairs.push(("val", "nothing: of so few documents none was drawn".into()));
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
        ("longest", format!("{} tokens", thousands(counts.longest))),
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
    draw::note(&format!(
        "look at it: lowtide info --show 3 {0}; train on it: lowtide.tokens(\"{0}\")",
        args.output.display()
    ));
}

#[cfg(test)]
mod tests {
    use super::{count, unescape};

    #[test]
    fn counts_and_separators_are_read_as_they_are_typed() {
        assert_eq!(count("100M"), Ok(100_000_000));
        assert_eq!(count("5_000"), Ok(5_000));
        assert!(count("0").is_err() && count("M").is_err() && count("1e6").is_err() && count("").is_err());
        assert_eq!(unescape(r"\n---\t\\").unwrap(), "\n---\t\\");
        assert!(unescape(r"\x").is_err() && unescape(r"\").is_err());
    }
}
