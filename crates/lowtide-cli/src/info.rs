//! `lowtide info`: what files are, what of them is in memory, and how they would be read.
//!
//! An array or a stream of tokens: [`kind`] decides, by the flags, then by the first bytes, then by the name.
//! Each is shown by a module of its own; [`here`] is what the machine can do for both.

mod array;
mod here;
mod show;
mod tokens;

use crate::draw::{self, GREEN};
use crate::headerless::{Headerless, is_integer, one_of};
use crate::number::{positive, whole};
use crate::storage::StorageArgs;
use crate::{Context, Failure, info::here::Here};
use lowtide::budget::{Budget, human};
use lowtide::door::Door;
use lowtide::format::{Dialect, llmc, megatron, npy};
use lowtide::meter::{self, Resident};
use lowtide::shards::first_array_in;
use lowtide::store::{Storage, is_url};
use lowtide::{Access, Options, Result};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Say what files are: an array's shape or a stream's tokens, what of them is in the page cache, and how they
/// would be read
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders, globs ('data/*.bin', quoted, is one stream or one array); for tokens also Megatron prefixes
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    headerless: Headerless,
    #[command(flatten)]
    storage: StorageArgs,
    /// The dialect of token files, instead of what they look like
    #[arg(long, conflicts_with_all = ["shape", "offset"], value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Option<Dialect>,
    /// The token between documents (50256 for GPT-2): where there is no index, all tokens are read to count them
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["shape", "offset"], value_parser = whole::<u64>)]
    end_of_text: Option<u64>,
    /// Which split of a folder that lowtide prepare has made [default: train]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["shape", "offset"])]
    split: Option<String>,
    /// Print the first N documents of tokens as text
    #[arg(long, value_name = "N", conflicts_with_all = ["shape", "offset"], value_parser = positive::<u64>)]
    show: Option<u64>,
    /// What made the tokens: gpt2, another name, or a tokenizer.json [default: what lowtide prepare has used]
    #[arg(long, value_name = "NAME", requires = "show")]
    tokenizer: Option<String>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What there is to say, as names and values, for people and for programs.
struct Answer {
    title: String,
    pairs: Vec<(&'static str, String)>,
    notes: Vec<String>,
    documents: Vec<show::Document>,
    json: Value,
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let _ = args.headerless.options()?; // what no file could fulfil is a wrong call
    let mut failed = false;
    let mut answers = Vec::new();
    for path in &args.paths {
        match look(path, args, context.quiet) {
            Ok(answer) if args.json => answers.push(answer.json),
            Ok(answer) => {
                draw::pairs(&answer.title, &answer.pairs);
                answer.notes.iter().for_each(|note| draw::note(note));
                show::print(&answer.documents);
            }
            Err(error) => {
                failed = true;
                let message = error.at(Door::Shell).to_string();
                if args.json {
                    answers.push(json!({ "path": path.to_string_lossy(), "error": message }));
                }
                draw::error(&message);
            }
        }
    }
    if args.json {
        say!("{:#}", Value::Array(answers));
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Array,
    Tokens,
}

fn look(path: &Path, args: &Args, quiet: bool) -> Result<Answer> {
    let storage = args.storage.storage()?;
    match kind(path, &args.headerless, args.format, &storage) {
        _ if args.end_of_text.is_some() || args.split.is_some() || args.show.is_some() => {
            tokens::look(path, args, quiet)
        }
        Kind::Array => array::look(path, args.headerless.options()?.storage(storage)),
        Kind::Tokens => tokens::look(path, args, quiet),
    }
}

/// Whether `path` is an array or tokens, where both could be meant. A `.bin` of integers is tokens, unless it is
/// given a shape; NumPy's own header makes an array, whatever else reads it.
pub fn kind(path: &Path, headerless: &Headerless, format: Option<Dialect>, storage: &Storage) -> Kind {
    let dtype = headerless.dtype();
    if format.is_some() {
        return Kind::Tokens;
    }
    if headerless.has_place() || dtype.is_some_and(|dtype| !is_integer(dtype)) {
        return Kind::Array;
    }
    if !path.is_file() {
        // A folder, a glob, a prefix, or nothing at all.
        return if dtype.is_none() && are_arrays(path, storage) { Kind::Array } else { Kind::Tokens };
    }
    let mut head = [0; llmc::HEAD_LEN];
    let len = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let head = &head[..len];
    let ends = |ends: &[&str]| path.extension().is_some_and(|end| ends.iter().any(|known| end == *known));
    let tokens = !npy::is_npy(head) && {
        let named = ends(&["bin", "ds", "idx", "index", "metadata"]) || ends(&["npy"]) && dtype.is_some();
        named || llmc::is_llmc(head) || megatron::is_megatron(head)
    };
    if tokens { Kind::Tokens } else { Kind::Array }
}

/// Whether the files of a folder or a glob are of an array and cannot be tokens: the first decides.
fn are_arrays(path: &Path, storage: &Storage) -> bool {
    let Some(first) = first_array_in(&absolute(path), storage) else { return false };
    let Ok(array) = Options::new().storage(storage.clone()).open(&first) else { return false };
    first == *path || array.shape().len() != 1 || !is_integer(array.dtype())
}

/// A name that still means the same in another folder. An address does.
fn absolute(path: &Path) -> PathBuf {
    if is_url(path) {
        return path.to_owned();
    }
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// What both have: memory, room, budget, the ways of access and their reasons, and this machine.
fn common(
    cached: Resident,
    budget: &Budget,
    access: &[(&'static str, Access, String)],
    here: &Here,
) -> (Vec<(&'static str, String)>, Map<String, Value>) {
    let room = meter::room();
    let (memory, unknown) = match cached {
        Resident::Bytes(bytes) => (format!("{} in the page cache", human(bytes)), None),
        Resident::Unknown(why) => (format!("unknown: {why}"), Some(why)),
    };
    let mut pairs = vec![
        ("memory", memory),
        ("room", format!("{}: {}", human(room.bytes), room.because)),
        ("budget", human(budget.limit())),
    ];
    pairs.extend(
        access.iter().map(|(order, access, why)| (*order, format!("{GREEN}{access}{GREEN:#}: {why}"))),
    );
    pairs.push(("here", here.words()));
    let chosen = access
        .iter()
        .map(|(order, access, why)| ((*order).to_owned(), json!({ "access": access.name(), "why": why })));
    let chosen: Map<String, Value> = chosen.collect();
    let json = json!({
        "cached_bytes": cached.bytes(),
        "cached_unknown": unknown,
        "room_bytes": room.bytes,
        "room_because": room.because.to_string(),
        "budget_bytes": budget.limit(),
        "access": chosen,
        "here": here.json(),
    });
    let Value::Object(json) = json else { return (pairs, Map::new()) };
    (pairs, json)
}
