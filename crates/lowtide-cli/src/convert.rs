//! `lowtide convert`: files into other files that say the same.

use crate::draw::{self, Progress as Line, thousands};
use crate::headerless::{Type, one_of};
use crate::number::{size, whole};
use crate::prepare::count;
use crate::storage::{FarArgs, stop};
use crate::{Context, Failure, signals};
use lowtide::budget::{Budget, human};
use lowtide::convert::{Conversion, Converted, Loss};
use lowtide::format::{ByteOrder, Dialect, Dtype, Order, shape_text};
use lowtide::meter::words::duration;
use lowtide::write::Existing;
use lowtide::{CacheWish, Error, Result};
use lowtide_text::convert::{Input, Made, Output, Wish, convert};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Convert arrays (.npy and raw, byte orders, C and Fortran order, element types) and token files
///
/// Inside the budget, whatever the size; the output appears whole or not at all. What would be lost, such as a value
/// that the new type cannot hold, is an error that names its place, unless --lossy says otherwise. With --format,
/// token files become those of another format, in a folder with a manifest, as lowtide prepare makes it.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lowtide convert [OPTIONS] <IN>... <OUT>")]
pub struct Args {
    /// IN: a file; or several, a folder or a glob, whose rows or tokens follow each other. OUT, the last one: the file to
    /// write, .npy by its name, else bare elements; with --format, a folder. Both may be in an object store: s3://…
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>, // one list: flags may stand between the two
    /// The element type of the output [default: the input's]
    #[arg(long, hide_possible_values = true, value_parser = Type)]
    dtype: Option<Dtype>,
    /// Its byte order [default: that of its type]
    #[arg(long, value_name = "WHICH", value_parser = one_of::<ByteOrder>(["little", "big", "native"]))]
    byte_order: Option<ByteOrder>,
    /// C: the last axis varies fastest; F: the first [default: the input's; C for raw]
    #[arg(long, value_parser = one_of::<Order>(["C", "F"]))]
    order: Option<Order>,
    /// Make token files of this format
    #[arg(long, short, value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    format: Option<Dialect>,
    /// The token between documents: 50256 for GPT-2 [default: as prepare wrote it down]
    #[arg(long, visible_alias = "eot", value_name = "ID", value_parser = whole::<u64>)]
    end_of_text: Option<u64>,
    /// End a shard with the document that reaches this many tokens, such as 100M
    #[arg(long, value_name = "N", value_parser = count)]
    shard_tokens: Option<u64>,
    /// Let be lost what the output cannot hold
    #[arg(long)]
    lossy: bool,
    /// Replace an output that is there already, once the new one is whole
    #[arg(long)]
    overwrite: bool,
    /// The element type of an input without a header, such as float32
    #[arg(long, value_name = "DTYPE", hide_possible_values = true, value_parser = Type)]
    in_dtype: Option<Dtype>,
    /// Its shape, such as -1,128
    #[arg(
        long,
        value_name = "SHAPE",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = size,
        requires = "in_dtype"
    )]
    in_shape: Option<Vec<i64>>,
    /// Where its elements begin, in bytes
    #[arg(long, value_name = "BYTES", requires = "in_dtype", value_parser = whole::<u64>)]
    in_offset: Option<u64>,
    /// The order of its elements [default: C]
    #[arg(long, value_name = "ORDER", requires = "in_dtype", value_parser = one_of::<Order>(["C", "F"]))]
    in_order: Option<Order>,
    /// The format of input tokens, instead of what they look like
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<Dialect>(Dialect::ALL.map(Dialect::name)))]
    in_format: Option<Dialect>,
    /// Memory for all of it, such as 64MiB [default: 256 MiB, or a quarter of the room]
    #[arg(long, value_name = "SIZE", value_parser = lowtide::budget::parse_size)]
    budget: Option<u64>,
    /// What happens to the page cache of input and output
    #[arg(long, default_value = "auto", value_name = "HOW", value_parser = one_of::<CacheWish>(["auto", "keep", "drop"]))]
    cache: CacheWish,
    #[command(flatten)]
    far: FarArgs,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn wish(&self) -> Result<Wish> {
        Ok(Wish {
            input: Input {
                dtype: self.in_dtype,
                shape: self.in_shape.clone(),
                offset: self.in_offset,
                order: self.in_order,
                format: self.in_format,
            },
            array: Conversion {
                dtype: self.dtype,
                byte_order: self.byte_order,
                order: self.order,
                loss: if self.lossy { Loss::Allowed } else { Loss::Refused },
                existing: if self.overwrite { Existing::Replace } else { Existing::Refuse },
                ..Conversion::default()
            },
            format: self.format,
            end_of_text: self.end_of_text,
            shard_tokens: self.shard_tokens,
            cache: self.cache,
            budget: self.budget.map(Budget::new).transpose()?,
            far: self.far.far(stop)?,
        })
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let wish = args.wish()?;
    let [inputs @ .., output] = &*args.paths else { return Ok(()) }; // one at least is asked for
    if inputs.is_empty() {
        let what = format!("{} is to be converted, and nothing says into what", output.display());
        return Err(Error::argument(what, "lowtide convert IN OUT").into());
    }
    let (line, began) = (Line::new(context.quiet), Instant::now());
    let mut show = |done: u64, total: u64| line.say(&words(done, total, began.elapsed()));
    // Ctrl-C and the like are noted, so that what is not whole is taken away.
    signals::catch();
    let answer = convert(inputs, output, &wish, &mut show, &stop);
    drop(line);
    let made = answer?;
    if args.json {
        say!("{:#}", json(&made, began.elapsed()));
    } else {
        match &made {
            Output::Array(made) => array(made, began.elapsed()),
            Output::Tokens(made) => tokens(made, began.elapsed()),
        }
    }
    Ok(())
}

/// How far it is, for people.
pub fn words(done: u64, total: u64, took: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let left = match took.as_secs_f64() * (1.0 - share) / share.max(1e-9) {
        seconds if took > Duration::from_millis(500) && done > 0 => {
            format!(", {} left", duration(Duration::from_secs_f64(seconds.min(1e9))))
        }
        _ => String::new(),
    };
    format!("{:.0} % of {}{left}", share * 100.0, human(total))
}

fn array(made: &Converted, took: Duration) {
    let order = if made.order == Order::C { "C" } else { "Fortran" };
    let pairs = [
        ("shape", format!("{} of {}, {order} order", shape_text(&made.shape), made.dtype.numpy_str())),
        ("size", human(made.bytes)),
        ("took", duration(took)),
    ];
    draw::pairs(&made.path.display().to_string(), &pairs);
}

fn tokens(made: &Made, took: Duration) {
    let facts = TokenFacts::of(made);
    let manifest = &made.manifest;
    let files = if facts.files.len() == 1 { "1 file".into() } else { format!("{} files", facts.files.len()) };
    let mut pairs = vec![
        (
            "tokens",
            format!("{} of {}, {}, {files}", thousands(facts.tokens), manifest.dtype, manifest.format),
        ),
        ("took", duration(took)),
    ];
    if facts.documents > 0 {
        pairs.insert(1, ("documents", thousands(facts.documents)));
    }
    draw::pairs(&made.folder.display().to_string(), &pairs);
}

/// What is said of token files that were made.
#[derive(Debug)]
pub struct TokenFacts {
    /// All of them.
    pub tokens: u64,
    /// All of them, as far as they are known.
    pub documents: u64,
    /// Where the tokens are.
    pub files: Vec<PathBuf>,
}

impl TokenFacts {
    /// Of what was made.
    pub fn of(made: &Made) -> Self {
        let splits = &made.manifest.splits;
        let shards = splits.iter().flat_map(|split| &split.shards);
        Self {
            tokens: splits.iter().map(|split| split.tokens).sum(),
            documents: splits.iter().map(|split| split.documents).sum(),
            files: shards.map(|shard| made.folder.join(&shard.file.file)).collect(),
        }
    }
}

fn json(made: &Output, took: Duration) -> Value {
    let seconds = took.as_secs_f64();
    match made {
        Output::Array(made) => json!({
            "path": made.path.to_string_lossy(),
            "shape": made.shape,
            "dtype": made.dtype.numpy_str(),
            "order": if made.order == Order::C { "C" } else { "F" },
            "bytes": made.bytes,
            "seconds": seconds,
        }),
        Output::Tokens(made) => {
            let TokenFacts { tokens, documents, files } = TokenFacts::of(made);
            json!({
                "path": made.folder.to_string_lossy(),
                "format": made.manifest.format,
                "dtype": made.manifest.dtype,
                "tokens": tokens,
                "documents": documents,
                "files": files,
                "seconds": seconds,
            })
        }
    }
}
