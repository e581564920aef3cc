//! One way of reading files, tried in a process of its own and watched from outside.
//!
//! In: a Python program, what to tell it, the files that it will read, and where its memory is limited. Out:
//! what it says it delivered, and what the kernel says it took. The program prints `ready` once all is imported,
//! waits for a line, works, prints one line of JSON with `rows` and `seconds` (or with `error`) and stays until
//! its input closes. What it took is never asked of the program itself.

use crate::{Context, signals};
use lowtide::meter::{self, Resident, Sample, process::Proc, series::Series};
use lowtide::{Error, Result};
use rustix::fs::Advice;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What to try.
pub struct Trial<'a> {
    /// Who tries, for errors: "the demo".
    pub whose: &'static str,
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The files that it reads.
    pub paths: &'a [PathBuf],
    /// Where it runs.
    pub place: Place<'a>,
}

/// Where a process runs, which decides how much memory it can have.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Wherever we are.
    Here,
    /// In the control group of this folder.
    Group(&'a Path),
    /// Through a command that takes the program and its arguments as its last ones, and becomes it.
    Through(&'a [String]),
}

/// What came of it. Memory is the highest that was seen, over what the process had when it was ready.
#[derive(Debug)]
pub struct Outcome {
    /// Rows delivered.
    pub rows: u64,
    /// When the last of them came.
    pub seconds: f64,
    /// `RssAnon`.
    pub anon: u64,
    /// `RssFile`.
    pub file: u64,
    /// The most that was in the page cache of the files, over what was there before.
    pub cache_added: Option<u64>,
    /// `RssAnon` of the process when it was ready: the interpreter and what it had imported.
    pub own: u64,
    /// Memory over time: `RssAnon` and `RssFile` over what they were then, the page cache over what was there before.
    pub curve: Vec<Sample>,
    /// What the control group of the process allowed, page cache included: the least of all above it.
    pub limit: Option<u64>,
    /// Bytes fetched from the disk until the last row came.
    pub read: Option<u64>,
    /// All that the program said.
    pub said: Value,
}

/// How often the kernel is asked: more often at first, because a small file is read in no time.
const FIRST: Duration = Duration::from_millis(200);
const FIRST_INTERVAL: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(10);
/// Asking about the page cache costs 0.25 ms on 2 GB: at most one part in so many of the time goes there.
const CACHE_SHARE: u32 = 50;

impl Trial<'_> {
    /// Runs it to its end. `each` hears, every few milliseconds, the time and the bytes mapped.
    pub fn run(&self, context: &Context, each: impl FnMut(Duration, u64)) -> Result<Outcome> {
        let python = context.python.clone().unwrap_or_else(|| "python3".into());
        let mut command = match self.place {
            Place::Through([program, arguments @ ..]) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&python);
                command
            }
            _ => Command::new(&python),
        };
        command.args(["-c", self.program]).args(&self.arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|e| {
            Error::io(&python, "start Python", e).with_hint(format!(
                "{} compares with NumPy: it needs a Python with numpy and lowtide",
                self.whose
            ))
        })?;
        let answer = self.join(child.id()).and_then(|()| self.watch(&mut child, each));
        let _ = child.kill(); // it waits for its standard input to close; a failed one may still run
        let _ = child.wait();
        // A terminal's Ctrl-C ends a Python that is still importing: that is no failure of it.
        if signals::asked().is_some() { Err(Error::Interrupted) } else { answer }
    }

    /// Puts a process into its group, before it has imported anything.
    fn join(&self, pid: u32) -> Result<()> {
        let Place::Group(folder) = self.place else { return Ok(()) };
        std::fs::write(folder.join("cgroup.procs"), pid.to_string())
            .map_err(|e| Error::io(folder, "move a process into the control group", e))
    }

    fn watch(&self, child: &mut Child, mut each: impl FnMut(Duration, u64)) -> Result<Outcome> {
        let broken = || {
            Error::unsupported(
                format!("{}'s Python process ended early: its message is above", self.whose),
                "it needs numpy and lowtide: run the `lowtide` that pip installed",
            )
        };
        let named = self.paths.first().map_or(Path::new(""), PathBuf::as_path);
        let failed = |e: std::io::Error| Error::io(named, "watch a process that reads the file", e);
        let pid = child.id();
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(broken());
        };
        let mut lines = BufReader::new(stdout).lines();
        if lines.next().and_then(std::io::Result::ok).as_deref() != Some("ready") {
            return Err(broken());
        }
        let mut proc = Proc::open()?;
        let mut cache = CacheWatch::new(self.paths);
        let groups = meter::cgroup::levels(Path::new("/"), &pid.to_string());
        let limit = groups.iter().filter_map(|group| group.limit).min();
        let before = proc.process(pid).ok_or_else(broken)?;
        let read_before = proc.io(pid);
        let (done, answer) = channel();
        let reader = std::thread::spawn(move || done.send(lines.next().and_then(std::io::Result::ok)));
        writeln!(stdin).map_err(failed)?;
        let started = Instant::now();
        let (mut anon, mut file, mut reads, mut curve) = (0, 0, Vec::new(), Series::default());
        let line = loop {
            let interval = if started.elapsed() < FIRST { FIRST_INTERVAL } else { INTERVAL };
            let answer = answer.recv_timeout(interval);
            if let Some(now) = proc.process(pid) {
                let added = Sample {
                    seconds: started.elapsed().as_secs_f64(),
                    anon: now.anon.saturating_sub(before.anon),
                    file: now.file.saturating_sub(before.file),
                    cache: cache.last,
                    ..Sample::default()
                };
                (anon, file) = (anon.max(added.anon), file.max(added.file));
                curve.push(&added);
                each(started.elapsed(), now.file);
            }
            if let (Some(now), Some(before)) = (proc.io(pid), read_before) {
                reads.push((started.elapsed().as_secs_f64(), now.from_disk.saturating_sub(before.from_disk)));
            }
            if signals::asked().is_some() {
                return Err(Error::Interrupted);
            }
            match answer {
                Ok(line) => break line,
                Err(RecvTimeoutError::Timeout) => cache.look(),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let _ = reader.join();
        cache.look_now();
        let said: Value = line.and_then(|line| serde_json::from_str(&line).ok()).ok_or_else(broken)?;
        if let Some(error) = said["error"].as_str() {
            return Err(Error::unsupported(error, ""));
        }
        let seconds = said["seconds"].as_f64().ok_or_else(broken)?;
        Ok(Outcome {
            rows: said["rows"].as_u64().ok_or_else(broken)?,
            seconds,
            anon,
            file,
            own: before.anon,
            curve: curve.finish(),
            limit,
            cache_added: cache.added(),
            // What was fetched after the last row came is for rows that nobody waited for.
            read: reads.iter().find(|(when, _)| *when >= seconds).or(reads.last()).map(|&(_, bytes)| bytes),
            said,
        })
    }
}

/// The page cache of the files, asked for as often as is cheap.
struct CacheWatch<'a> {
    paths: &'a [PathBuf],
    before: Resident,
    peak: u64,
    /// What was last seen, over what was there before.
    last: Option<u64>,
    next: Instant,
}

impl<'a> CacheWatch<'a> {
    fn new(paths: &'a [PathBuf]) -> Self {
        let before = cached(paths);
        Self {
            paths,
            before,
            peak: before.bytes().unwrap_or(0),
            last: before.bytes().map(|_| 0),
            next: Instant::now(),
        }
    }

    fn look(&mut self) {
        if Instant::now() >= self.next {
            self.look_now();
        }
    }

    fn look_now(&mut self) {
        let began = Instant::now();
        let now = cached(self.paths).bytes();
        self.peak = self.peak.max(now.unwrap_or(0));
        self.last = now.zip(self.before.bytes()).map(|(now, before)| now.saturating_sub(before));
        self.next = Instant::now() + began.elapsed() * CACHE_SHARE;
    }

    fn added(&self) -> Option<u64> {
        Some(self.peak - self.before.bytes()?)
    }
}

/// What of all files is in the page cache: unknown if it is of one.
pub fn cached(paths: &[PathBuf]) -> Resident {
    let mut sum = 0_u64;
    for path in paths {
        match meter::cache::of_path(path) {
            Resident::Bytes(bytes) => sum = sum.saturating_add(bytes),
            unknown @ Resident::Unknown(_) => return unknown,
        }
    }
    Resident::Bytes(sum)
}

/// Drops files from the page cache, for every reader of them, and says what is left: the kernel keeps what
/// somebody has mapped.
pub fn chill(paths: &[PathBuf]) -> Result<Resident> {
    for path in paths {
        let failed = |e: std::io::Error| Error::io(path, "drop the file from the page cache", e);
        let file = File::open(path).map_err(failed)?;
        file.sync_data().map_err(failed)?; // what is not on disk yet cannot be dropped
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| failed(e.into()))?;
    }
    Ok(cached(paths))
}
