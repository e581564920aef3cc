//! `lowtide demo`: the whole story on this machine, and a page that tells it. Makes a file, limits memory to a part
//! of it, goes through it shuffled in three ways, each in a process of its own; takes batches of tokens from it;
//! prepares a small corpus and trains a small GPT on it. Everything that it makes but the page is removed, also when
//! it is stopped.

mod chart;
mod corpus;
mod file;
mod lines;
mod memory;
mod page;
mod story;
mod tokens;
mod training;
mod ways;

use crate::bench::machine::Machine;
use crate::draw::{self, BOLD, Cell, DIM, Progress};
use crate::{Context, Failure, save, signals};
use corpus::Corpus;
use file::{LEAST, ROW};
use lowtide::budget::{human, parse_size};
use lowtide::{Error, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use story::{Limit, Story};
use tokens::TokensPart;
use training::{Task, Training};
use ways::{Setting, Watch};

/// Rows in a chunk.
const CHUNK: u64 = 4096;
/// The ways, as the program and as people call them.
const WAYS: [(&str, &str); 3] =
    [("memmap", "np.memmap held"), ("recreate", "np.memmap per chunk"), ("lowtide", "Lowtide")];
/// Lowtide goes through all of the file if it can, and may take so many times as long as the others for it.
const PATIENCE: f64 = 3.0;
/// Batches are taken for such a part of that time, each way.
const BATCHES: f64 = 0.2;
/// Training is stopped after so many times that time: a machine a third as fast as two usual cores finishes.
const TRAINING: f64 = 9.0;
/// What to do next, and why.
const NEXT: [(&str, &str); 3] = [
    ("lowtide watch -- python train.py", "where does the memory of a program of yours go?"),
    ("lowtide bench rows.npy", "how fast is each way on a file of yours?"),
    ("lowtide prepare texts/ -o data --val 0.01", "make token files of texts of yours"),
];

/// Show on this machine what a shuffled pass costs where the file does not fit in memory, train a small GPT, and
/// write one page that tells it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Three ways go through one file in the same shuffled order: np.memmap held, np.memmap made anew for
each chunk (nanoGPT's way), and Lowtide. Their memory is limited to about a sixth of the file by a
control group, page cache included. Where none can be made (it takes root, or a systemd of yours),
the file is made larger than the room that there is, if the disk allows it in a demo's time.

Then: batches of tokens from the same file, nanoGPT's way and from Lowtide's loader; the sources of
Python's standard library as a small corpus; and a small GPT trained on it, by the example program
lowtide-gpt where there is one. All of it takes about three minutes on two cores.")]
pub struct Args {
    /// The size of the file to make [default: 1 GiB, less on a small disk]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Where to make it; it is removed afterwards [default: the first of the temporary folder, /var/tmp and here
    /// that is on a disk with room]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How long np.memmap may take, each way, in seconds; Lowtide up to three times that [default: 20]
    #[arg(long, value_parser = crate::bench::seconds)]
    seconds: Option<f64>,
    /// A small file, a second for each way and a few steps of training
    #[arg(long)]
    quick: bool,
    /// The program that trains [default: lowtide-gpt beside this command or on the path]
    #[arg(long, value_name = "PROGRAM")]
    gpt: Option<PathBuf>,
    /// Where to write the page; an older one is replaced
    #[arg(long, value_name = "PATH", default_value = "lowtide-demo.html")]
    html: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text) {
        Ok(bytes) if bytes < LEAST => Err(format!("at least {} are needed to show anything", human(LEAST))),
        Ok(bytes) if bytes / ROW > u64::from(u32::MAX) => Err("at most 2 TiB".into()),
        Ok(bytes) => Ok(bytes / ROW * ROW),
        Err(error) => Err(error.to_string()),
    }
}

impl Args {
    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.quick { 1.0 } else { 20.0 })
    }

    fn size(&self) -> Option<u64> {
        self.size.or(self.quick.then_some(LEAST))
    }

    /// Steps of training.
    fn steps(&self) -> u64 {
        if self.quick { 20 } else { 300 }
    }

    /// The most that is read of the standard library.
    fn corpus(&self) -> u64 {
        if self.quick { 4 << 20 } else { 64 << 20 }
    }

    /// What gives the same again.
    fn command(&self) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        let size = self.size.map_or_else(String::new, |bytes| format!(" --size {bytes}"));
        let seconds = self.seconds.map_or_else(String::new, |seconds| format!(" --seconds {seconds}"));
        let gpt = self.gpt.as_ref().map_or_else(String::new, |path| format!(" --gpt {}", path.display()));
        format!("lowtide demo{quick}{size}{seconds}{gpt}")
    }
}

/// Everything that was found.
struct Told {
    story: Story,
    tokens: TokensPart,
    corpus: Result<Corpus, String>,
    training: Training,
    machine: Machine,
    /// Versions of Python and NumPy.
    versions: Option<(String, String)>,
    /// What was done, and how long it took.
    steps: Vec<(String, f64)>,
    command: String,
}

impl Told {
    fn json(&self) -> Value {
        let mut answer = self.story.json();
        answer["chunk_rows"] = CHUNK.into();
        answer["tokens"] = self.tokens.json();
        answer["corpus"] = match &self.corpus {
            Ok(corpus) => corpus.json(),
            Err(why) => json!({ "problem": why }),
        };
        answer["training"] = self.training.json();
        let steps = self.steps.iter().map(|(what, took)| json!({ "what": what, "seconds": took }));
        answer["steps"] = steps.collect();
        answer["machine"] = self.machine.json();
        answer
    }
}

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    save::check(&args.html)?;
    crate::page::check(&args.html, page::GENERATOR)?;
    let gpt = training::find(args.gpt.as_deref(), context)?;
    signals::catch();
    let setting = Setting::plan(args.size(), args.dir.as_deref())?;
    let folder = &setting.place.folder;
    let made = tempfile::Builder::new().prefix("lowtide-demo-").tempdir_in(folder);
    let made = made.map_err(|e| Error::io(folder, "make a folder for the demo", e))?;
    let talks = !args.json && !context.quiet;
    if talks {
        announce(args, &setting, gpt.as_deref());
    }
    let told = tell(args, context, &setting, gpt.as_deref(), made.path())?;
    save::save(&args.html, page::draw(&told).as_bytes())?;
    if args.json {
        let mut answer = told.json();
        answer["seconds"] = args.seconds().into();
        answer["html"] = args.html.to_string_lossy().into();
        say!("{answer:#}");
    } else if talks {
        say!("\n{BOLD}The page: {}{BOLD:#}", args.html.display());
        say!("Next, on your own data:");
        for (command, what) in NEXT {
            say!("  {command:44} {DIM}# {what}{DIM:#}");
        }
    }
    Ok(())
}

/// Does all of it, and says what each part has found as soon as it is known.
fn tell(
    args: &Args,
    context: &Context,
    setting: &Setting,
    gpt: Option<&Path>,
    folder: &Path,
) -> Result<Told> {
    let progress = Progress::new(context.quiet || args.json);
    let mut steps = Vec::new();
    let mut began = Instant::now();
    let mut done = |what: String| {
        progress.say("");
        steps.push((what, began.elapsed().as_secs_f64()));
        began = Instant::now();
    };
    let (rows, order) = (folder.join("rows.npy"), folder.join("order.npy"));
    file::write(&rows, &order, setting.bytes, &progress)?;
    done(format!(
        "Wrote {} rows of 128 float32, {}.",
        draw::thousands(setting.bytes / ROW),
        human(setting.bytes)
    ));
    let machine = Machine::of(&rows);

    let watch = Watch { context, progress: &progress, seconds: args.seconds() };
    let (story, outcomes) = setting.compare(&rows, &order, &watch)?;
    done(format!(
        "Went through them in one shuffled order: np.load(…, mmap_mode=\"r\") held, the same made anew for each \
         chunk of {CHUNK} rows, and lowtide.open(…).shuffled({CHUNK}, seed={}).",
        file::SEED
    ));
    say(args, || story.print(machine.disk.read_ahead_kb));

    let seconds = args.seconds() * BATCHES;
    let tokens = setting.batches(&rows, &story.limit, &Watch { seconds, ..watch })?;
    done(format!(
        "Took batches of {} × {} tokens from the same file: a new np.memmap for each, and \
         lowtide.tokens(…).loader(…, order=\"with_replacement\").",
        tokens::BATCH,
        tokens::BLOCK
    ));
    say(args, || tokens.print());
    for path in [&rows, &order] {
        let _ = std::fs::remove_file(path); // its folder goes anyway; a disk may have little room left
    }

    let stdlib = outcomes.last().and_then(|outcome| outcome.said["stdlib"].as_str()).unwrap_or_default();
    let corpus = Corpus::make(Path::new(stdlib), args.corpus(), &folder.join("tokens"), &progress);
    let corpus = match corpus {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        other => other.map_err(|error| error.to_string().replace("\nhint: ", "; ")),
    };
    if let Ok(corpus) = &corpus {
        done(format!("Made token files of Python's own sources: {}", corpus::COMMAND));
        say(args, || corpus.print());
    }

    let training = match (&corpus, gpt) {
        (Err(_), _) => Training::left_out("there is nothing to learn from"),
        (_, None) => Training::left_out("there is no lowtide-gpt beside this command or on the path"),
        (Ok(corpus), Some(program)) => {
            let patience = Duration::from_secs_f64(args.seconds() * TRAINING);
            let (data, steps, seed) = (corpus.folder.as_path(), args.steps(), file::SEED);
            Training::run(&Task { program, data, folder, steps, seed, patience }, &progress)?
        }
    };
    if !training.run.losses.is_empty() {
        let steps = args.steps();
        done(format!("Trained a small GPT on them: lowtide-gpt train data --steps {steps} --out model."));
    }
    say(args, || training.print());
    let versions = outcomes.last().and_then(crate::bench::versions);
    Ok(Told { story, tokens, corpus, training, machine, versions, steps, command: args.command() })
}

/// Prints a part of the story, for people.
fn say(args: &Args, print: impl FnOnce()) {
    if !args.json {
        print();
        say!();
    }
}

/// Says what is going to happen, and how long it takes.
fn announce(args: &Args, setting: &Setting, gpt: Option<&Path>) {
    let file = human(setting.bytes);
    let memory = match &setting.limit {
        Limit::Given(bytes) => {
            format!("{} of memory, by a control group, page cache included", human(*bytes))
        }
        Limit::Found(bytes) => format!("the {} of memory that are available here", human(*bytes)),
        Limit::Ample(_) => "memory that is not limited here".to_owned(),
    };
    say!("{BOLD}A shuffled pass over a file of {file}, in three ways; then a small GPT{BOLD:#}");
    draw::paragraph(
        &format!(
            "the ways each in a process of its own, the same rows in the same order, from a cold page cache, in {memory}"
        ),
        DIM,
    );
    say!();
    let seconds = args.seconds();
    let once = format!("{seconds} s, or a whole pass");
    let writing = format!("write {file} to {}", setting.place.folder.display());
    let training = match gpt {
        Some(_) if args.quick => "some seconds".to_owned(),
        Some(_) => format!("about a minute, at most {} s", seconds * TRAINING),
        None => "left out: there is no lowtide-gpt".to_owned(),
    };
    let lines: Vec<Vec<Cell>> = [
        (writing.as_str(), format!("about {} s", (setting.bytes >> 28).max(1))),
        ("np.memmap held: one map for all", once.clone()),
        ("np.memmap per chunk: nanoGPT's way", once),
        ("Lowtide, with its defaults", format!("a whole pass, at most {} s", seconds * PATIENCE)),
        ("batches of tokens: get_batch and a loader", format!("{} s each", seconds * BATCHES)),
        ("prepare the sources of Python's library", "some seconds".to_owned()),
        ("train a small GPT on them", training),
    ]
    .into_iter()
    .enumerate()
    .map(|(i, (what, time))| vec![Cell::from(format!("{}. {what}", i + 1)), Cell::from(time).styled(DIM)])
    .collect();
    draw::table(&["what", "how long"], &lines);
    if gpt.is_none() {
        draw::note(&format!("to train too: {}", training::HINT));
    }
    say!();
}
