//! What there is to say about a stream of tokens. Documents are counted by an index; by a scan only where that is
//! asked for.

use super::here::Here;
use super::{Answer, Args, common};
use crate::draw::{self, thousands};
use lowtide::budget::human;
use lowtide::choose::{Choice, Visit, access};
use lowtide::door::Door;
use lowtide::format::{Dialect, TokenFile};
use lowtide::meter::{self, Resident};
use lowtide::{Access, Loader, LoaderOptions, Result, TokenOptions, Tokens, WindowOrder};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;

/// The windows that ways of access are chosen for, where there are as many tokens.
const BLOCK: usize = 1024;

pub(super) fn look(path: &Path, args: &Args, quiet: bool) -> Result<Answer> {
    let mut options = TokenOptions::new();
    options = args.headerless.dtype()?.into_iter().fold(options, TokenOptions::dtype);
    options = args.format.into_iter().fold(options, TokenOptions::dialect);
    options = args.end_of_text.into_iter().fold(options, TokenOptions::end_of_text);
    let tokens = options.open([path])?;
    let files = tokens.files();
    let cached = cached(files);
    let access = ways(&tokens)?;
    let here = Here::at(tokens.array())?;
    let name = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let indexed = files.iter().any(|file| file.index.is_some());
    let dialect = files.first().map_or(Dialect::Raw, |file| file.dialect);
    let (documents, unknown) = match documents(&tokens, quiet) {
        Ok(Some(documents)) => (Some(documents), None),
        Ok(None) => (None, Some("no index; --end-of-text finds them by reading all tokens".into())),
        Err(error) => {
            (None, Some(error.at(Door::Shell).to_string().lines().next().unwrap_or_default().to_owned()))
        }
    };
    let (shared_pairs, shared) = common(cached, tokens.budget(), &access, &here);
    let mut pairs = vec![
        ("format", format!("{dialect}: {}", words(dialect))),
        ("dtype", tokens.dtype().to_string()),
        ("tokens", thousands(tokens.len())),
        (
            "documents",
            match (documents, &unknown) {
                (Some(documents), _) if indexed => format!("{}, by the index", thousands(documents)),
                (Some(documents), _) => format!("{}, by the end of each", thousands(documents)),
                (None, why) => format!("unknown: {}", why.as_deref().unwrap_or_default()),
            },
        ),
        ("files", names(files)),
        ("size", human(tokens.array().nbytes())),
    ];
    pairs.extend(shared_pairs);
    let warnings: Vec<String> =
        tokens.warnings().iter().map(|warning| warning.at(Door::Shell).to_string()).collect();
    let mut json = json!({
        "path": name,
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
        "warnings": warnings,
    });
    if let Value::Object(json) = &mut json {
        json.extend(shared);
    }
    Ok(Answer { title: name.display().to_string(), pairs, notes: warnings, json })
}

/// How many documents there are, where that is known or was asked for.
fn documents(tokens: &Tokens, quiet: bool) -> Result<Option<u64>> {
    let (progress, all) = (draw::Progress::new(quiet), tokens.len().max(1));
    let said = Cell::new(None);
    tokens.find_documents(&|| Ok(()), &|done| {
        let percent = u128::from(done) * 100 / u128::from(all);
        if said.replace(Some(percent)) != Some(percent) {
            progress.say(&format!("looking for documents: {percent} % of {} tokens", thousands(all)));
        }
    })
}

/// How windows would be read: those that somebody asks for, and the two orders of a loader.
fn ways(tokens: &Tokens) -> Result<Vec<(&'static str, Access, String)>> {
    let Choice { access, why, .. } = access(tokens.array(), Visit::Random)?;
    let mut ways = vec![("windows", access, why)];
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
