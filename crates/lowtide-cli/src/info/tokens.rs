//! What there is to say about a stream of tokens. Documents are counted by an index; by a scan only where that is
//! asked for.

use super::here::{self, Here};
use super::{Answer, Args, absolute, common, show};
use crate::draw::{self, thousands};
use lowtide::budget::human;
use lowtide::door::Door;
use lowtide::format::Dialect;
use lowtide::format::manifest::Split;
use lowtide::meter::{self, Resident};
use lowtide::shards::{Prepared, TokenFile};
use lowtide::{Access, Loader, LoaderOptions, Result, TokenOptions, Tokens, WindowOrder};
use lowtide::{Choice, Visit};
use serde_json::{Value, json};
use std::cell::Cell;
use std::fmt::Write as _;
use std::path::Path;

/// The windows that ways of access are chosen for, where there are as many tokens.
const BLOCK: usize = 1024;

pub(super) fn look(path: &Path, args: &Args, quiet: bool) -> Result<Answer> {
    let mut options = TokenOptions::new().storage(args.storage.storage()?);
    options = args.headerless.dtype().into_iter().fold(options, TokenOptions::dtype);
    options = args.format.into_iter().fold(options, TokenOptions::dialect);
    options = args.end_of_text.into_iter().fold(options, TokenOptions::end_of_text);
    options = args.split.iter().fold(options, TokenOptions::split);
    let tokens = options.open([path])?;
    let files = tokens.files();
    let cached = if tokens.array().is_remote() { Resident::Bytes(0) } else { cached(files) };
    let access = ways(&tokens)?;
    let here = Here::at(tokens.array())?;
    let name = absolute(path);
    let dialect = files.first().map_or(Dialect::Raw, |file| file.dialect);
    let (documents, by, unknown) = match documents(&tokens, quiet) {
        Ok(Some((documents, by))) => (Some(documents), by, None),
        Ok(None) => (None, "", Some("no index; --end-of-text finds them by reading all tokens".into())),
        Err(error) => {
            let said = error.at(Door::Shell).to_string();
            (None, "", Some(said.lines().next().unwrap_or_default().to_owned()))
        }
    };
    let shown = args.show.map(|count| show::first(&tokens, count, args.tokenizer.as_deref())).transpose()?;
    let shown = shown.unwrap_or_default();
    let (shared_pairs, shared) = common(cached, tokens.budget(), &access, &here);
    let mut pairs = vec![
        ("format", format!("{dialect}: {}", words(dialect))),
        ("dtype", tokens.dtype().to_string()),
        ("tokens", thousands(tokens.len())),
        (
            "documents",
            match (documents, &unknown) {
                (Some(documents), _) => format!("{}, {by}", thousands(documents)),
                (None, why) => format!("unknown: {}", why.as_deref().unwrap_or_default()),
            },
        ),
        ("files", names(files)),
        ("size", human(tokens.array().nbytes())),
    ];
    pairs.extend(tokens.prepared().into_iter().flat_map(made));
    pairs.extend(shared_pairs);
    let bills = here::bills(tokens.array(), &[("sequential", Visit::Sequential)])?;
    pairs.extend(bills.iter().map(|(_, words, _)| ("requests", words.clone())));
    let warnings: Vec<String> =
        tokens.warnings().iter().map(|warning| warning.at(Door::Shell).to_string()).collect();
    let mut json = json!({
        "path": name.to_string_lossy(),
        "kind": "tokens",
        "format": dialect.name(),
        "dtype": tokens.dtype().name(),
        "numpy_dtype": tokens.dtype().numpy_str(),
        "tokens": tokens.len(),
        "documents": documents,
        "documents_unknown": unknown,
        "files": files.len(),
        "bytes": tokens.array().nbytes(),
        "block_size": BLOCK,
        "requests": here::bills_json(&bills),
        "warnings": warnings,
        "prepared": tokens.prepared().map(made_json),
        "shown": show::json(&shown),
    });
    if let Value::Object(json) = &mut json {
        json.extend(shared);
    }
    Ok(Answer { title: name.display().to_string(), pairs, notes: warnings, documents: shown, json })
}

/// What the manifest of a prepared folder says.
fn made(Prepared { manifest, split, .. }: &Prepared) -> Vec<(&'static str, String)> {
    let (tokenizer, counts) = (&manifest.tokenizer, &manifest.counts);
    let ends = tokenizer.end_of_text.map_or("nothing".into(), |id| id.to_string());
    let mut pairs = vec![(
        "tokenizer",
        format!("{}, {} ids, {ends} between documents", tokenizer.name, thousands(tokenizer.vocabulary)),
    )];
    for Split { name, tokens, documents, .. } in &manifest.splits {
        let here = if split.as_ref() == Some(name) { ": this one" } else { "" };
        let counts = format!("{} tokens, {} documents", thousands(*tokens), thousands(*documents));
        pairs.push(("split", format!("{name}, {counts}{here}")));
    }
    let all: u64 = manifest.splits.iter().map(|split| split.tokens).sum();
    let mut text = format!(
        "{}, {:.2} bytes a token",
        human(counts.text_bytes),
        counts.text_bytes as f64 / all.max(1) as f64
    );
    if counts.skipped > 0 {
        let _ = write!(text, ", {} documents could not be read", thousands(counts.skipped));
    }
    pairs.push(("text", text));
    pairs
}

fn made_json(Prepared { folder, manifest, split }: &Prepared) -> Value {
    let one = |split: &Split| {
        json!({
            "name": split.name,
            "tokens": split.tokens,
            "documents": split.documents,
            "shards": split.shards.len(),
        })
    };
    json!({
        "folder": folder.to_string_lossy(),
        "split": split,
        "tokenizer": manifest.tokenizer,
        "splits": manifest.splits.iter().map(one).collect::<Vec<_>>(),
        "counts": manifest.counts,
    })
}

/// How many documents there are, and who says so, where that is known or was asked for.
fn documents(tokens: &Tokens, quiet: bool) -> Result<Option<(u64, &'static str)>> {
    if let Some(known) = tokens.known_documents()? {
        let indexed = tokens.files().iter().any(|file| file.index.is_some());
        let by = match tokens.prepared() {
            _ if indexed => "by the index",
            Some(_) => "by the manifest",
            None => "by the end of each",
        };
        return Ok(Some((known, by)));
    }
    let (progress, all) = (draw::Progress::new(quiet), tokens.len().max(1));
    let said = Cell::new(None);
    let found = tokens.find_documents(&|| Ok(()), &|done| {
        let percent = u128::from(done) * 100 / u128::from(all);
        if said.replace(Some(percent)) != Some(percent) {
            progress.say(&format!("looking for documents: {percent} % of {} tokens", thousands(all)));
        }
    })?;
    Ok(found.map(|documents| (documents, "by the end of each")))
}

/// How windows would be read: those that somebody asks for, and the two orders of a loader.
fn ways(tokens: &Tokens) -> Result<Vec<(&'static str, Access, String)>> {
    let Choice { way, why, .. } = tokens.array().choose(Visit::Random)?;
    let mut ways = vec![("windows", way.into(), why)];
    let half = usize::try_from(tokens.len() / 2).unwrap_or(usize::MAX);
    if half > 0 {
        for order in [WindowOrder::Shuffled, WindowOrder::Sequential] {
            let options = LoaderOptions {
                batch_size: 1,
                block_size: BLOCK.min(half),
                order,
                ..LoaderOptions::default()
            };
            let loader = Loader::new(tokens, options)?;
            ways.push((order.name(), loader.access(), loader.why().to_owned()));
        }
    }
    Ok(ways)
}

/// What of all files is in the page cache: unknown if it is of one.
fn cached(files: &[TokenFile]) -> Resident {
    let mut sum = 0_u64;
    for file in files {
        match meter::cache::of_path(&file.path) {
            Resident::Bytes(bytes) => sum = sum.saturating_add(bytes),
            unknown @ Resident::Unknown(_) => return unknown,
        }
    }
    Resident::Bytes(sum)
}

/// How many files, and of many the first and the last.
fn names(files: &[TokenFile]) -> String {
    let name = |file: &TokenFile| file.path.file_name().unwrap_or_default().display().to_string();
    match files {
        [first, .., last] => format!("{}, {} to {}", thousands(files.len() as u64), name(first), name(last)),
        _ => files.len().to_string(),
    }
}

/// What a dialect is, for those who do not know its name.
fn words(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::NanoGpt => "bare tokens in a .bin",
        Dialect::LlmC => "llm.c's header, then tokens",
        Dialect::Megatron => "Megatron's .bin with its .idx",
        Dialect::Datatrove => "datatrove's .ds",
        Dialect::Npy => "NumPy's .npy",
        Dialect::Olmo => "bare tokens in a file called .npy",
        Dialect::Raw => "bare tokens",
    }
}
