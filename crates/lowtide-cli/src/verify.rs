//! `lowtide verify`: whether token files are what they say.

use crate::draw::{self, GREEN, Progress as Line};
use crate::{Context, Failure};
use lowtide::Result;
use lowtide::budget::human;
use lowtide::door::Door;
use lowtide_text::verify::{Finding, Verified, verify};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Check token files: a folder that prepare has made against its manifest, byte by byte; any other file against its
/// own header and index
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folders that lowtide prepare has made, or token files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut answers = Vec::new();
    let mut well = true;
    for path in &args.paths {
        let line = Line::new(context.quiet);
        let verified = look(path, &line);
        drop(line);
        let verified = verified?;
        well &= verified.findings.is_empty();
        if args.json {
            answers.push(json(path, &verified));
        } else {
            say(path, &verified);
        }
    }
    if args.json {
        println!("{:#}", Value::Array(answers));
    }
    if well { Ok(()) } else { Err(Failure::Said) }
}

fn look(path: &Path, line: &Line) -> Result<Verified> {
    let mut show = |done: u64, total: u64| {
        line.say(&format!("{}: {} of {}", path.display(), human(done), human(total)));
    };
    verify(path, &mut show, &|| Ok(()))
}

fn say(path: &Path, verified: &Verified) {
    for Finding { file, what } in &verified.findings {
        // A file that was named by itself need not be named twice.
        let file = if Path::new(file) == path { String::new() } else { format!("{file}: ") };
        draw::error(&format!("{}: {file}{}", path.display(), what.at(Door::Shell)));
    }
    if verified.findings.is_empty() {
        let (files, bytes) = (verified.files, human(verified.bytes));
        let noun = if files == 1 { "file" } else { "files" };
        anstream::println!("{}: {GREEN}well{GREEN:#}: {files} {noun}, {bytes}", path.display());
    }
}

fn json(path: &Path, verified: &Verified) -> Value {
    let findings: Vec<Value> = verified
        .findings
        .iter()
        .map(|Finding { file, what }| json!({ "file": file, "what": what.at(Door::Shell).to_string() }))
        .collect();
    json!({ "path": path, "files": verified.files, "bytes": verified.bytes, "findings": findings })
}
