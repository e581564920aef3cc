//! `lowtide demo`: the whole story on this machine. Makes a file, limits memory to a part of it, goes through it
//! shuffled in three ways, each in a process of its own, and shows what the kernel says about each. Everything
//! that it makes is removed, also when it is stopped.

mod file;
mod memory;
mod story;

use crate::bench::machine::Machine;
use crate::bench::start::Start;
use crate::draw::{self, BOLD, Cell, DIM, Progress};
use crate::trial::{Outcome, Trial};
use crate::{Context, Failure, signals};
use file::{LEAST, Place, ROW, SEED};
use lowtide::budget::{human, parse_size};
use lowtide::{Error, Result, meter};
use memory::Cage;
use serde_json::json;
use std::path::{Path, PathBuf};
use story::{Limit, Side, Story};

/// Rows in a chunk.
const CHUNK: u64 = 4096;
/// What runs in each process.
const WORKER: &str = include_str!("demo/worker.py");
/// The ways, as the program and as people call them.
const WAYS: [(&str, &str); 3] =
    [("memmap", "np.memmap held"), ("recreate", "np.memmap per chunk"), ("lowtide", "Lowtide")];
/// Lowtide goes through all of the file if it can, and may take so many times as long as the others for it.
const PATIENCE: f64 = 3.0;

/// Show on this machine what a shuffled pass costs where the file does not fit in memory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Three ways go through one file in the same shuffled order: np.memmap held, np.memmap made anew for
each chunk (nanoGPT's way), and Lowtide. Their memory is limited to about a sixth of the file by a
control group, page cache included. Where none can be made (it takes root, or a systemd of yours),
the file is made larger than the room that there is, if the disk allows it in a demo's time.")]
pub struct Args {
    /// The size of the file to make [default: 1 GiB, less on a small disk]
    #[arg(long, value_parser = size)]
    size: Option<u64>,
    /// Where to make it; it is removed afterwards [default: the first of the temporary folder, /var/tmp and here
    /// that is on a disk with room]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// How long np.memmap may take, each way, in seconds; Lowtide up to three times that
    #[arg(long, default_value = "20", value_parser = crate::bench::seconds)]
    seconds: f64,
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

pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    signals::catch();
    let demo = Demo::plan(args)?;
    let folder = &demo.place.folder;
    let made = tempfile::Builder::new().prefix("lowtide-demo-").tempdir_in(folder);
    let made = made.map_err(|e| Error::io(folder, "make a folder for the demo", e))?;
    let (rows, order) = (made.path().join("rows.npy"), made.path().join("order.npy"));
    if !args.json && !context.quiet {
        demo.announce(args);
    }
    let progress = Progress::new(context.quiet || args.json);
    file::write(&rows, &order, demo.bytes, &progress)?;
    let mut outcomes = Vec::new();
    for (way, name) in WAYS {
        outcomes.push(demo.measure(way, name, &rows, &order, args, context, &progress)?);
    }
    drop(progress);
    same_rows(&outcomes)?;
    let machine = Machine::of(&rows);
    let story = demo.tell(&outcomes);
    if args.json {
        let mut answer = story.json();
        answer["chunk_rows"] = CHUNK.into();
        answer["seconds"] = args.seconds.into();
        answer["machine"] = machine.json();
        println!("{answer:#}");
    } else {
        story.print(machine.disk.read_ahead_kb);
    }
    Ok(())
}

/// What will be done.
struct Demo {
    bytes: u64,
    place: Place,
    cage: Cage,
    limit: Limit,
}

impl Demo {
    /// Decides how much memory there will be, and how large a file shows what that means.
    fn plan(args: &Args) -> Result<Self> {
        let mut place = Place::find(args.dir.as_deref(), args.size.unwrap_or(LEAST))?;
        let mut bytes = file::usual(args.size, place.free);
        // 160 MiB for 1 GiB: a Python with NumPy and the order are in it, too.
        let allowed = bytes / 32 * 5;
        let cage = Cage::new(allowed.max(LEAST / 4));
        let limit = match &cage {
            Cage::None(why) => {
                let room = meter::room().bytes;
                if args.size.is_none()
                    && bytes < room / 8 * 9
                    && let Some(more) = file::beyond(room, place.free)
                {
                    bytes = more;
                    place = Place::find(args.dir.as_deref(), bytes)?;
                }
                if bytes > room {
                    Limit::Found(room)
                } else {
                    let need = human((room / 4 * 5).next_multiple_of(1 << 30));
                    Limit::Ample(format!(
                        "{why}, and a file larger than the {} that are available takes long to make \
                         (`lowtide demo --size {}` does)",
                        human(room),
                        need.replace(' ', "")
                    ))
                }
            }
            _ => Limit::Given(allowed.max(LEAST / 4)),
        };
        Ok(Self { bytes, place, cage, limit })
    }

    /// Says what is going to happen, and how long it takes.
    fn announce(&self, args: &Args) {
        let file = human(self.bytes);
        let memory = match &self.limit {
            Limit::Given(bytes) => {
                format!("{} of memory, by a control group, page cache included", human(*bytes))
            }
            Limit::Found(bytes) => format!("the {} of memory that are available here", human(*bytes)),
            Limit::Ample(_) => "memory that is not limited here".to_owned(),
        };
        anstream::println!("{BOLD}A shuffled pass over a file of {file}, in three ways{BOLD:#}");
        draw::paragraph(
            &format!(
                "each in a process of its own, the same rows in the same order, from a cold page cache, in {memory}"
            ),
            DIM,
        );
        anstream::println!();
        let once = format!("{} s, or a whole pass", args.seconds);
        let ours = format!("a whole pass, at most {} s", args.seconds * PATIENCE);
        let writing = format!("write {file} to {}", self.place.folder.display());
        let lines: Vec<Vec<Cell>> = [
            (writing.as_str(), format!("about {} s", (self.bytes >> 28).max(1))),
            ("np.memmap held: one map for all", once.clone()),
            ("np.memmap per chunk: nanoGPT's way", once),
            ("Lowtide, with its defaults", ours),
        ]
        .into_iter()
        .enumerate()
        .map(|(i, (what, time))| vec![Cell::from(format!("{}. {what}", i + 1)), Cell::from(time).styled(DIM)])
        .collect();
        draw::table(&["what", "how long"], &lines);
        anstream::println!();
    }

    /// Runs one way in a process of its own and watches it from outside.
    #[allow(clippy::too_many_arguments)]
    fn measure(
        &self,
        way: &str,
        name: &str,
        rows: &Path,
        order: &Path,
        args: &Args,
        context: &Context,
        progress: &Progress,
    ) -> Result<Outcome> {
        let paths = [rows.to_owned()];
        progress.say(&format!("{name} …"));
        Start::Cold.prepare(&paths, progress)?;
        let seconds = if way == "lowtide" { args.seconds * PATIENCE } else { args.seconds };
        let numbers = [CHUNK.to_string(), SEED.to_string(), seconds.to_string()];
        let mut arguments = vec![way.into(), rows.into(), order.into()];
        arguments.extend(numbers.into_iter().map(Into::into));
        let trial =
            Trial { whose: "the demo", program: WORKER, arguments, paths: &paths, place: self.cage.place() };
        trial.run(context, |time, mapped| {
            progress.say(&format!(
                "{name}: {:.0} s of {seconds}, mapped {}",
                time.as_secs_f64(),
                human(mapped)
            ));
        })
    }

    fn tell(&self, outcomes: &[Outcome]) -> Story {
        let mut sides = WAYS.iter().zip(outcomes).map(|((_, name), outcome)| Side::new(name, outcome));
        let mut side = || sides.next().expect("a way has an outcome");
        let sides = [side(), side(), side()];
        // What the kernel says of the processes themselves, whoever promised to limit them.
        let limit = match &self.limit {
            Limit::Given(bytes) if outcomes.iter().any(|o| o.limit.is_none_or(|limit| limit > *bytes)) => {
                Limit::Ample("the control group that was made does not limit them".into())
            }
            limit => limit.clone(),
        };
        Story { bytes: self.bytes, limit, sides }
    }
}

/// All ways read the same rows first, or there is nothing to compare.
fn same_rows(outcomes: &[Outcome]) -> Result<()> {
    let mut first = outcomes.iter().map(|outcome| &outcome.said["first"]);
    let one = first.next();
    if first.all(|other| Some(other) == one) {
        return Ok(());
    }
    let found: Vec<String> =
        outcomes.iter().map(|outcome| json!(outcome.said["first"]).to_string()).collect();
    Err(Error::unsupported(
        format!("the ways did not read the same rows: {}", found.join(", ")),
        "this is a bug",
    ))
}
