//! `lowtide verify`: whether files are what they say.

use crate::draw::{self, GREEN, Progress as Line};
use crate::headerless::{Type, one_of};
use crate::number::{size, whole};
use crate::storage::StorageArgs;
use crate::{Context, Failure};
use lowtide::budget::{Budget, human};
use lowtide::door::Door;
use lowtide::format::{Dialect, Dtype};
use lowtide::{Error, Result};
use lowtide_text::verify::{Finding, Verified, Wish, verify};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Check files: a folder that prepare has made against its manifest, byte by byte; token files against their headers and
/// indexes, arrays against theirs; and that every byte can be read
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders that lowtide prepare has made, token files, or arrays
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How many ids the tokenizer has (50257 for GPT-2): a token that is none is found [default: as prepare wrote it down]
    #[arg(long, value_name = "IDS", value_parser = whole::<u64>)]
    vocab: Option<u64>,
    /// The type of tokens, or of an array without a header, such as uint32
    #[arg(long, hide_possible_values = true, value_parser = Type)]
    dtype: Option<Dtype>,
    /// The shape of an array without a header, such as -1,128
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, value_parser = size, requires = "dtype")]
    shape: Option<Vec<i64>>,
    /// The dialect of token files, instead of what they look like
    #[arg(long, conflicts_with = "shape", value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Option<Dialect>,
    /// How much memory to use, such as 64MiB
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    #[command(flatten)]
    storage: StorageArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn wish(&self) -> Result<Wish> {
        Ok(Wish {
            vocabulary: self.vocab,
            dtype: self.dtype,
            dialect: self.format,
            shape: self.shape.clone(),
            budget: self.budget.map(Budget::new).transpose()?,
            storage: self.storage.storage()?,
        })
    }
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut answers = Vec::new();
    let (mut well, wish) = (true, args.wish()?);
    for path in &args.paths {
        let line = Line::new(context.quiet);
        let verified = look(path, &wish, &line);
        drop(line);
        let verified = match verified {
            Ok(verified) => verified,
            // Too little memory, or Ctrl-C, is about all of it; what cannot be opened is about this path, and others follow.
            // With one path alone, an argument that does not fit it is a wrong call.
            Err(error @ (Error::Budget { .. } | Error::Interrupted)) => return Err(error.into()),
            Err(error @ Error::Argument { .. }) if args.paths.len() == 1 => return Err(error.into()),
            Err(error) => {
                well = false;
                let error = error.at(Door::Shell).to_string();
                if args.json {
                    answers.push(answer(path, &Verified::default(), &[json!({ "file": "", "what": error })]));
                } else {
                    draw::error(&error);
                }
                continue;
            }
        };
        well &= verified.findings.is_empty();
        if args.json {
            answers.push(json(path, &verified));
        } else {
            say(path, &verified);
        }
    }
    if args.json {
        say!("{:#}", Value::Array(answers));
    }
    if well { Ok(()) } else { Err(Failure::Said) }
}

fn look(path: &Path, wish: &Wish, line: &Line) -> Result<Verified> {
    let began = Instant::now();
    let shown = RefCell::new(began);
    let mut show = |done: u64, total: u64| {
        if shown.borrow().elapsed().as_millis() < 100 {
            return;
        }
        *shown.borrow_mut() = Instant::now();
        let left = began.elapsed().as_secs_f64() * (total.saturating_sub(done) as f64 / done.max(1) as f64);
        line.say(&format!("{}: {} of {}, {left:.0} s left", path.display(), human(done), human(total)));
    };
    verify(path, wish, &mut show, &|| Ok::<(), Error>(()))
}

fn say(path: &Path, verified: &Verified) {
    for Finding { file, what } in &verified.findings {
        let file = match inside(path, file) {
            "" => String::new(), // it need not be named twice
            file => format!("{file}: "),
        };
        draw::error(&format!("{}: {file}{}", path.display(), what.at(Door::Shell)));
    }
    if verified.findings.is_empty() {
        let (files, bytes) = (verified.files, human(verified.bytes));
        let noun = if files == 1 { "file" } else { "files" };
        say!("{}: {GREEN}well{GREEN:#}: {files} {noun}, {bytes}", path.display());
    }
}

/// The name of a file in the folder that was named; empty for what was named itself.
fn inside<'a>(path: &Path, file: &'a Path) -> &'a str {
    let whole = std::path::absolute(path).unwrap_or_default();
    let rest = file.strip_prefix(path).or_else(|_| file.strip_prefix(whole)).unwrap_or(file);
    rest.to_str().unwrap_or("a file")
}

fn json(path: &Path, verified: &Verified) -> Value {
    let findings: Vec<Value> = verified
        .findings
        .iter()
        .map(|Finding { file, what }| {
            json!({ "file": inside(path, file), "what": what.at(Door::Shell).to_string() })
        })
        .collect();
    answer(path, verified, &findings)
}

fn answer(path: &Path, verified: &Verified, findings: &[Value]) -> Value {
    json!({ "path": path.to_string_lossy(), "files": verified.files, "bytes": verified.bytes, "findings": findings })
}
