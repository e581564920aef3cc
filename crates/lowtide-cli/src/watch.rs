//! `lowtide watch`: runs a command, or looks at a process, and says where its memory goes.
//!
//! The command comes first: nothing that goes wrong here (a full disk, a vanished terminal) may stop it,
//! and its exit code is ours unless all that failed is what the user asked of us.

mod call;
mod child;
mod dock;
mod live;
mod panel;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lowtide::budget::human;
use lowtide::error::{Error, Result};
use lowtide::meter::ending::{Ended, Exit};
use lowtide::meter::files::Files;
use lowtide::meter::recording::Recording;
use lowtide::meter::sampler::{Interval, Sampler};
use lowtide::meter::tree::Root;
use lowtide::meter::verdict::Word;

use crate::home::word_at_home;
use crate::{Context, Failure, draw};
use child::{Child, Event};
use live::Live;
use panel::{Figures, Paint, chart, wrap};

/// Run a command and see where its memory goes
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Verdicts, worst first: leak (anonymous memory keeps growing), shared (/dev/shm grows), mapped (mapped file \
pages grow: reclaimable, but Slurm counts them), cache (only the page cache of the watched files grows), \
flat; unknown when the run was too short, or when the kernel killed one of the processes for want of memory and \
nothing else grew.

Examples:
  lowtide watch -- python train.py
  lowtide watch --file 'data/*.bin' --html mem.html -- python train.py
  lowtide watch --assert-flat=64MiB -- pytest -x tests/test_loader.py
  lowtide watch --pid 4242")]
pub struct Args {
    /// A file, folder or glob whose page cache to watch; `auto` (the default) finds the large files that the
    /// processes have mapped or open, `none` watches no file
    #[arg(long, value_name = "FILE")]
    pub file: Vec<String>,

    /// Time between samples, like 50ms or 1s [default: 100ms, longer where that would cost 1 % of a core]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// Write the report as one self-contained page, to standard output if the path is -
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,

    /// Write the samples and the verdict as JSON, to standard output without a path
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Exit with 1 unless memory stayed flat and the kernel killed nobody for want of it; growth up to SIZE (like
    /// 64MiB) counts as flat
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, value_parser = lowtide::budget::parse_size)]
    #[allow(clippy::option_option)] // clap's way to say: absent, without a size, with one
    pub assert_flat: Option<Option<u64>>,

    /// Look at a running process and its children instead of running a command
    #[arg(long, value_name = "PID", conflicts_with = "command", value_parser = parse_pid)]
    pub pid: Option<u32>,

    /// Draw no chart, neither below the command's output nor at the end
    #[arg(long)]
    pub no_chart: bool,

    /// The command to run and its arguments; options of `watch` come before it
    #[arg(trailing_var_arg = true, required_unless_present = "pid", value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Runs the command, says where its memory went, and ends with its code.
pub fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let paint = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => Paint::Plain,
        _ => Paint::Colour,
    };
    let wanted = match args.file.as_slice() {
        [] => vec!["auto".to_owned()],
        [none] if none == "none" => Vec::new(),
        names => names.iter().map(|name| word_at_home(name)).collect(),
    };
    let files = Files::new(&wanted);
    for name in files.missing() {
        if !context.quiet {
            draw::remark(format_args!("note: {name}: no such file yet; it is watched from when it appears"));
        }
    }
    call::check(args)?;
    let before = our_cpu();
    let interval = args.interval.map_or(Interval::Auto, Interval::Every);
    let (child, root) = start(args)?;
    let mut sampler = Sampler::new(root, files, interval)?;
    if let (Some(pid), false) = (args.pid, context.quiet) {
        // The first look is what all later ones are compared with.
        sampler.sample();
        sampler.look_around();
        draw::remark(format_args!("watching process {pid} until it ends; Ctrl-C ends the watching"));
    }
    let mut live = Live::new(!context.quiet && !args.no_chart, paint);
    let exit = watch(&child, root, &mut sampler, &mut live);
    drop(live);
    // Drawing and waiting are ours too; what is done from here on disturbs nobody.
    let cost = our_cpu().saturating_sub(before);
    let command = match args.pid {
        Some(pid) => vec![format!("process {pid}")],
        None => args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect(),
    };
    let ended = child.pid().zip(exit).map(|(pid, exit)| Ended { pid, exit });
    let mut recording = Recording::new(sampler, command, ended, args.assert_flat.flatten());
    recording.cost = cost;
    finish(args, context, paint, &recording, exit.map_or(0, Exit::code))
}

fn start(args: &Args) -> Result<(Child, Root), Failure> {
    if let Some(pid) = args.pid {
        if !std::path::Path::new("/proc").join(pid.to_string()).exists() {
            return Err(Error::argument(format!("there is no process {pid}"), "").into());
        }
        let child =
            Child::none().map_err(|source| Error::io("/proc".as_ref(), "watch for signals", source))?;
        return Ok((child, Root::Process(pid)));
    }
    let child = Child::spawn(&args.command).map_err(|source| {
        let (error, code) = call::cannot_run(&args.command, source);
        draw::error(&error.to_string());
        Failure::Exit(code)
    })?;
    Ok((child, Root::Below(std::process::id())))
}

/// Samples and draws until the command, or the process looked at, has ended. Returns its end, if it was ours.
fn watch(child: &Child, root: Root, sampler: &mut Sampler, live: &mut Live) -> Option<Exit> {
    let mut next = Instant::now();
    loop {
        let now = Instant::now();
        if now >= next {
            let alive = sampler.sample().processes > 0;
            if !alive && matches!(root, Root::Process(_)) {
                return None;
            }
            sampler.look_around();
            next = now + sampler.pause();
            live.show(sampler);
        }
        match child.wait(next.saturating_duration_since(Instant::now())) {
            Ok(Event::Ended(exit)) => return Some(exit),
            Ok(Event::Interrupted) => return None,
            Ok(Event::Stop) => {
                live.hide();
                child::stop();
            }
            Ok(Event::Resized) => live.resized(),
            Ok(Event::Timeout) => {}
            // Without signals we would not see the end; a plain sleep still samples until the process goes.
            Err(_) => std::thread::sleep(sampler.pause()),
        }
    }
}

/// Processor time of this process, all of which is spent on watching.
fn our_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Writes the reports, says the verdict, and decides the exit code.
fn finish(
    args: &Args,
    context: &Context,
    paint: Paint,
    recording: &Recording,
    code: i32,
) -> Result<(), Failure> {
    type Text = fn(&Recording) -> String;
    type Save = fn(&Recording, &std::path::Path) -> Result<()>;
    let mut ours_failed = false;
    let mut written = Vec::new();
    for (path, text, save) in [
        (&args.html, Recording::to_html as Text, Recording::save_html as Save),
        (&args.json, Recording::to_json, Recording::save_json),
    ] {
        let Some(path) = path else { continue };
        let saved = if path.as_os_str() == "-" {
            let text = text(recording);
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
        let _ = io::stderr().write_all(summary(args, recording, &written, paint).as_bytes());
    }
    if args.assert_flat.is_some() && !recording.verdict.is_flat() {
        ours_failed = true;
        let verdict = &recording.verdict;
        let killed = recording.killed.as_ref().is_some_and(|killed| killed.by.is_out_of_memory());
        let why = if killed { ", a process was killed for want of memory" } else { "" };
        draw::error(&format!("memory is not flat: {}{why}", verdict.word.as_str()));
        if context.quiet {
            draw::remark(format_args!("{}", verdict.sentence));
            if killed {
                draw::remark(format_args!("hint: {}", verdict.advice));
            }
        }
    }
    match code {
        0 if ours_failed => Err(Failure::Said),
        0 => Ok(()),
        code => Err(Failure::Exit(code)),
    }
}

fn summary(args: &Args, recording: &Recording, written: &[String], paint: Paint) -> String {
    let (verdict, peaks) = (&recording.verdict, &recording.peaks);
    let mut lines = Vec::new();
    let mut width = usize::MAX;
    if io::stderr().is_terminal() {
        width = rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
        if recording.samples.len() > 3 && !args.no_chart {
            let figures = Figures::peaks(peaks, recording.limit());
            lines = chart(&recording.samples, width.min(110), 9, &figures, paint);
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
        "watched: {:.1} s, {}, {:.2} % of a core",
        recording.elapsed.as_secs_f64(),
        draw::counted(recording.taken, "sample"),
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

/// The number of a process.
fn parse_pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected the number of a process".to_owned())
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
