//! `lowtide info`: what a file is, what of it is in memory, and how it would be read.

use crate::draw::{self, thousands};
use crate::headerless::Headerless;
use crate::{Failure, draw::GREEN};
use lowtide::budget::human;
use lowtide::choose::{Choice, Visit, access};
use lowtide::format::{Container, Order, shape_text};
use lowtide::meter::{self, Resident};
use lowtide::{Array, Options, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Say what files are: format, type, shape, what of them is in the page cache, and how they would be read
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    headerless: Headerless,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// What there is to say about one file.
struct Info {
    array: Array,
    cached: Resident,
    sequential: Choice,
    shuffled: Choice,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let options = args.headerless.options()?;
    let mut failed = false;
    let mut answers = Vec::new();
    for path in &args.paths {
        match look(path, options.clone()) {
            Ok(info) if args.json => answers.push(info.json()),
            Ok(info) => info.print(),
            Err(error) => {
                failed = true;
                if args.json {
                    answers.push(json!({ "path": path, "error": error.to_string() }));
                }
                draw::error(&error.to_string());
            }
        }
    }
    if args.json {
        println!("{:#}", Value::Array(answers));
    }
    if failed { Err(Failure::Said) } else { Ok(()) }
}

fn look(path: &Path, options: Options) -> Result<Info> {
    let array = options.open(path)?;
    Ok(Info {
        cached: meter::cache::of_path(path),
        sequential: access(&array, Visit::Sequential)?,
        shuffled: access(&array, Visit::Shuffled)?,
        array,
    })
}

impl Info {
    fn format(&self) -> String {
        match self.array.layout().container {
            Container::Npy { version } => format!("npy (version {version})"),
            Container::Raw => "raw".into(),
        }
    }

    fn order(&self) -> &'static str {
        match self.array.layout().order {
            Order::C => "C",
            Order::Fortran => "Fortran",
        }
    }

    fn print(&self) {
        let array = &self.array;
        let cached = match self.cached {
            Resident::Bytes(bytes) => format!("{} in the page cache", human(bytes)),
            Resident::Unknown(why) => format!("unknown: {why}"),
        };
        let room = meter::room();
        draw::pairs(
            &array.path().display().to_string(),
            &[
                ("format", self.format()),
                ("dtype", array.dtype().to_string()),
                ("shape", format!("{}, {} order", shape_text(array.shape()), self.order())),
                ("rows", format!("{} of {}", thousands(array.rows()), human(array.row_bytes() as u64))),
                ("size", format!("{} from byte {}", human(array.nbytes()), array.layout().offset)),
                ("memory", cached),
                ("room", format!("{}: {}", human(room.bytes), room.because)),
                ("budget", human(array.budget().limit())),
                ("chunks", format!("{GREEN}{}{GREEN:#}: {}", self.sequential.access, self.sequential.why)),
                ("shuffled", format!("{GREEN}{}{GREEN:#}: {}", self.shuffled.access, self.shuffled.why)),
            ],
        );
    }

    fn json(&self) -> Value {
        let array = &self.array;
        let room = meter::room();
        json!({
            "path": array.path(),
            "format": self.format(),
            "dtype": array.dtype().name(),
            "numpy_dtype": array.dtype().numpy_str(),
            "shape": array.shape(),
            "order": self.order(),
            "offset": array.layout().offset,
            "rows": array.rows(),
            "row_bytes": array.row_bytes(),
            "bytes": array.nbytes(),
            "cached_bytes": self.cached.bytes(),
            "cached_unknown": if let Resident::Unknown(why) = self.cached { Some(why.to_string()) } else { None },
            "room_bytes": room.bytes,
            "room_because": room.because.to_string(),
            "budget_bytes": array.budget().limit(),
            "access": {
                "chunks": { "access": self.sequential.access.name(), "why": self.sequential.why },
                "shuffled": { "access": self.shuffled.access.name(), "why": self.shuffled.why },
            },
        })
    }
}
