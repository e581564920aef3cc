//! `lowtide watch`: runs a command, or looks at a process, and says where its memory goes.
//!
//! The command comes first: nothing that goes wrong here (a full disk, a vanished terminal) may stop it,
//! and its exit code is ours unless all that failed is what the user asked of us.

mod child;
mod dock;
mod panel;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide::budget::human;
use lowtide::error::{Error, Result};
use lowtide::meter::files::Files;
use lowtide::meter::recording::Recording;
use lowtide::meter::sampler::{Interval, Sampler};
use lowtide::meter::tree::Root;
use lowtide::meter::verdict::{Verdict, Word};

use crate::{Context, Failure, draw};
use child::{Child, Event};
use dock::Dock;
use panel::{Paint, chart, wrap};

/// Run a command and see where its memory goes
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Verdicts, worst first: leak (anonymous memory keeps growing), shared (/dev/shm grows), mapped (mapped file \
pages grow: reclaimable, but Slurm counts them), cache (only the page cache of the watched files grows), \
flat; unknown when the run was too short.

Examples:
  lowtide watch -- python train.py
  lowtide watch --file 'data/*.bin' --html mem.html -- python train.py
  lowtide watch --assert-flat -- pytest -x tests/test_loader.py
  lowtide watch --pid 4242")]
pub struct Args {
    /// A file, folder or glob whose page cache to watch; `auto` (the default) finds the large files that the
    /// processes have mapped or open, `none` watches no file
    #[arg(long, value_name = "FILE")]
    pub file: Vec<String>,

    /// Time between samples, like 50ms or 1s [default: 100ms, longer where that would cost 1 % of a core]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// Write the report as one self-contained page
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,

    /// Write the samples and the verdict as JSON, to standard output without a path
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Exit with 1 unless memory stayed flat; growth up to SIZE (like 64MiB) counts as flat
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, value_parser = lowtide::budget::parse_size)]
    #[allow(clippy::option_option)] // clap's way to say: absent, without a size, with one
    pub assert_flat: Option<Option<u64>>,

    /// Look at a running process and its children instead of running a command
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,

    /// The command to run and its arguments
    #[arg(last = true, required_unless_present = "pid", value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The live view: a title, the chart with its axis, and two lines of verdict.
const ROWS: usize = 12;

/// Runs the command, says where its memory went, and ends with its code.
pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let paint = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => Paint::Plain,
        _ => Paint::Colour,
    };
    let wanted = match args.file.as_slice() {
        [] => vec!["auto".to_owned()],
        [none] if none == "none" => Vec::new(),
        names => names.to_vec(),
    };
    let files = Files::new(&wanted);
    for name in files.missing() {
        if !context.quiet {
            anstream::eprintln!("note: {name}: no such file yet; it is watched from when it appears");
        }
    }
    let before = our_cpu();
    let interval = args.interval.map_or(Interval::Auto, Interval::Every);
    let (child, root) = start(args)?;
    let mut sampler = Sampler::new(root, files, interval)?;
    let mut dock = if context.quiet { None } else { Dock::open(ROWS) };
    let code = watch(&child, root, &mut sampler, dock.as_mut(), paint);
    drop(dock);
    // Drawing and waiting are ours too; what is done from here on disturbs nobody.
    let cost = our_cpu().saturating_sub(before);
    let command = match args.pid {
        Some(pid) => vec![format!("process {pid}")],
        None => args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
    };
    let exit_code = if args.pid.is_some() { None } else { Some(code) };
    let mut recording = Recording::new(sampler, command, exit_code, args.assert_flat.flatten());
    recording.cost = cost;
    finish(args, context, paint, &recording, code)
}

fn start(args: &Args) -> Result<(Child, Root)> {
    if let Some(pid) = args.pid {
        if !std::path::Path::new("/proc").join(pid.to_string()).exists() {
            return Err(Error::argument(format!("there is no process {pid}"), ""));
        }
        let child =
            Child::none().map_err(|source| Error::io("/proc".as_ref(), "watch for signals", source))?;
        return Ok((child, Root::Process(pid)));
    }
    let program = args.command.first().cloned().unwrap_or_default();
    let child = Child::spawn(&args.command)
        .map_err(|source| Error::io(program.as_ref(), "run the command", source))?;
    Ok((child, Root::Below(std::process::id())))
}

/// Samples and draws until the command, or the process looked at, has ended. Returns its code.
fn watch(child: &Child, root: Root, sampler: &mut Sampler, mut dock: Option<&mut Dock>, paint: Paint) -> i32 {
    const FRAME: Duration = Duration::from_millis(250);
    const JUDGED: Duration = Duration::from_secs(1);
    let mut drawn = Instant::now();
    let mut next = Instant::now();
    let mut verdict = None;
    loop {
        let now = Instant::now();
        if now >= next {
            let alive = sampler.sample().processes > 0;
            if !alive && matches!(root, Root::Process(_)) {
                return 0;
            }
            sampler.look_around();
            next = now + sampler.pause();
            if let Some(dock) = dock.as_deref_mut()
                && drawn.elapsed() >= FRAME
            {
                drawn = Instant::now();
                let (judged, verdict) = verdict.get_or_insert_with(|| (drawn, Recording::so_far(sampler)));
                if judged.elapsed() >= JUDGED {
                    (*judged, *verdict) = (drawn, Recording::so_far(sampler));
                }
                dock.draw(&picture(sampler, verdict, dock.width(), paint));
            }
        }
        match child.wait(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(code)) => return code,
            Ok(Event::Interrupted(_)) => return 0,
            Ok(Event::Stop) => {
                if let Some(dock) = dock.as_deref_mut() {
                    dock.release();
                }
                child::stop();
                if let Some(dock) = dock.as_deref_mut() {
                    dock.retake();
                }
            }
            Ok(Event::Timeout) => {}
            // Without signals we would not see the end; a plain sleep still samples until the process goes.
            Err(_) => std::thread::sleep(sampler.pause()),
        }
    }
}

/// The twelve lines of the live view.
fn picture(sampler: &Sampler, verdict: &Verdict, width: usize, paint: Paint) -> Vec<String> {
    let elapsed = sampler.elapsed().as_secs_f64();
    let cost = our_cpu().as_secs_f64() / elapsed * 100.0;
    let latest = sampler.latest();
    let files = match sampler.files().list() {
        [] => String::new(),
        [one] => format!(" · {}", one.path.file_name().unwrap_or_default().to_string_lossy()),
        many => format!(" · {} files", many.len()),
    };
    let title = format!(
        "─── lowtide watch · {elapsed:.0} s · {} process{}{files} · watching costs {cost:.1} % of a core ",
        latest.processes,
        if latest.processes == 1 { "" } else { "es" },
    );
    let mut lines = vec![cut(&format!("{title:─<width$}"), width)];
    lines.extend(chart(sampler.series(), width, 9, paint));
    let verdict = format!("so far {}: {}", said(verdict.word, paint), verdict.sentence);
    lines.extend(wrap(&verdict, width).into_iter().take(ROWS - lines.len()));
    lines
}

/// Processor time of this process, all of which is spent on watching.
fn our_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).collect()
}

/// Writes the reports, says the verdict, and decides the exit code.
fn finish(
    args: &Args,
    context: &Context,
    paint: Paint,
    recording: &Recording,
    code: i32,
) -> Result<(), Failure> {
    let mut ours_failed = false;
    let mut written = Vec::new();
    for (path, save) in [
        (&args.html, Recording::save_html as fn(&Recording, &std::path::Path) -> Result<()>),
        (&args.json, Recording::save_json),
    ] {
        let Some(path) = path else { continue };
        let saved = if path.as_os_str() == "-" {
            let text = recording.to_json();
            writeln!(io::stdout(), "{text}").map_err(|source| Error::io(path, "write the report", source))
        } else {
            save(recording, path)
        };
        match saved {
            Ok(()) if path.as_os_str() != "-" => written.push(path.display().to_string()),
            Ok(()) => {}
            Err(error) => {
                ours_failed = true;
                draw::error(&error.to_string());
            }
        }
    }
    if !context.quiet {
        let _ = io::stderr().write_all(summary(recording, &written, paint).as_bytes());
    }
    if args.assert_flat.is_some() && !recording.verdict.is_flat() {
        ours_failed = true;
        let verdict = &recording.verdict;
        draw::error(&format!("memory is not flat: {}", verdict.word.as_str()));
        if context.quiet {
            anstream::eprintln!("{}", verdict.sentence);
        }
    }
    match code {
        0 if ours_failed => Err(Failure::Said),
        0 => Ok(()),
        code => Err(Failure::Exit(code)),
    }
}

fn summary(recording: &Recording, written: &[String], paint: Paint) -> String {
    let (verdict, peaks) = (&recording.verdict, &recording.peaks);
    let mut lines = Vec::new();
    let mut width = usize::MAX;
    if io::stderr().is_terminal() {
        width = rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        if recording.samples.len() > 3 {
            lines = chart(&recording.samples, width.min(110), 9, paint);
        }
    }
    let cache =
        peaks.cache.map_or(String::new(), |bytes| format!(" · page cache of the files {}", human(bytes)));
    let shared = if peaks.shmem > 0 { format!(" · shared {}", human(peaks.shmem)) } else { String::new() };
    lines.push(format!("verdict: {}", said(verdict.word, paint)));
    lines.extend(wrap(&verdict.sentence, width));
    lines.push(format!(
        "peaks: anonymous {} · mapped {}{shared}{cache}",
        human(peaks.anon),
        human(peaks.file)
    ));
    lines.push(format!(
        "watched: {:.1} s, {} samples, {:.2} % of a core",
        recording.elapsed.as_secs_f64(),
        recording.taken,
        recording.cost_of_a_core() * 100.0
    ));
    lines.extend(written.iter().map(|path| format!("report: {path}")));
    if !verdict.is_flat() {
        lines.extend(wrap(&format!("hint: {}", verdict.advice), width));
    }
    lines.join("\n") + "\n"
}

fn said(word: Word, paint: Paint) -> String {
    let colour = match word {
        Word::Leak | Word::Shared => 31,
        Word::Mapped | Word::Cache => 33,
        Word::Flat => 32,
        Word::Unknown => 2,
    };
    match paint {
        Paint::Colour => format!("\x1b[1;{colour}m{}\x1b[0m", word.as_str()),
        Paint::Plain => word.as_str().to_owned(),
    }
}

/// A time like `50ms`, `0.5s`, `2`, in seconds without a unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds =
        number.trim().parse::<f64>().map_err(|_| "expected a time like 50ms or 1s".to_owned())? * unit;
    if (0.001..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("a sensible interval is between 1ms and 3600s".to_owned())
    }
}
