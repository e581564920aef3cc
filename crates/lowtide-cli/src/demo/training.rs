//! The small GPT: `lowtide-gpt`, a program of its own, trained on the prepared corpus and followed by what it logs.
//!
//! The program is whatever somebody named: it may say nonsense, fail, or never end. It runs in a process group of
//! its own, which is ended with it; its log is read up to a limit.

use super::lines::{Run, clean};
use crate::bench::report::{percent, whole};
use crate::draw::{self, DIM, Progress, thousands};
use crate::{Context, signals};
use lowtide::{Error, Result};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What the program is called.
const NAME: &str = "lowtide-gpt";
/// How to get it.
pub const HINT: &str = "cargo build --release -p lowtide-gpt in Lowtide's repository makes it, --gpt names it; \
                        make demo does both";
/// How often its log is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The most that is read of its log: a hundred thousand steps.
const LOG: u64 = 32 << 20;
/// The longest line.
const LINE: usize = 1 << 20;
/// What is kept of its errors.
const ERRORS: usize = 2048;

/// What came of it.
#[derive(Debug)]
pub struct Training {
    pub run: Run,
    /// Why there is no run, or only a part of one.
    pub problem: Option<String>,
}

/// What to train.
pub struct Task<'a> {
    pub program: &'a Path,
    pub data: &'a Path,
    /// For its log and its checkpoint.
    pub folder: &'a Path,
    pub steps: u64,
    pub seed: u64,
    /// It is stopped after this.
    pub patience: Duration,
}

/// The program: the one that was named, or one beside the command, or one on the path.
pub fn find(asked: Option<&Path>, context: &Context) -> Result<Option<PathBuf>> {
    let runs = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    if let Some(asked) = asked {
        let bare = asked.components().count() == 1;
        let named = std::path::absolute(asked).ok().filter(|path| runs(path));
        let found =
            named.or_else(|| folders.find(|folder| bare && runs(&folder.join(asked))).map(|f| f.join(asked)));
        return found.map(Some).ok_or_else(|| {
            Error::argument(format!("--gpt {}: there is no such program", asked.display()), HINT)
        });
    }
    // Called from Python, the executable is Python's.
    let beside = [context.python.clone(), std::env::current_exe().ok()];
    let beside = beside.into_iter().flatten().filter_map(|program| Some(program.parent()?.to_owned()));
    let mut places = beside.chain(folders).map(|folder| folder.join(NAME));
    Ok(places.find(|place| runs(place)))
}

impl Training {
    /// There is none.
    pub fn left_out(why: impl Into<String>) -> Self {
        Self { run: Run::default(), problem: Some(why.into()) }
    }

    /// Trains; only being asked to end is an error.
    pub fn run(task: &Task<'_>, progress: &Progress) -> Result<Self> {
        match Running::start(task) {
            Ok(running) => running.follow(task, progress),
            Err(error) => {
                Ok(Self::left_out(format!("{} could not be started: {error}", task.program.display())))
            }
        }
    }

    /// In a few words, if anything was trained.
    pub fn words(&self) -> Option<String> {
        let (run, (step, loss)) = (&self.run, *self.run.losses.last()?);
        let first = run.losses.first().map_or(loss, |&(_, loss)| loss);
        let model = run
            .parameters
            .map_or_else(|| "A model".into(), |n| format!("A GPT of {} parameters", thousands(n)));
        let rate = run.rate().map_or_else(String::new, |rate| format!(", {} tokens a second", whole(rate)));
        let val = run
            .validation
            .last()
            .map_or_else(String::new, |(_, loss)| format!(", {loss:.2} on the validation split"));
        let share = run.loader_share();
        let share =
            share.map_or_else(String::new, |share| format!(". The loader took {} of the time", small(share)));
        let steps = thousands(step + 1);
        Some(format!(
            "{model} went from a loss of {first:.2} to {loss:.2}{val} in {steps} steps{rate}{share}."
        ))
    }

    pub fn json(&self) -> Value {
        let mut answer = self.run.json();
        answer["problem"] = self.problem.as_deref().into();
        answer
    }

    pub fn print(&self) {
        if let Some(words) = self.words() {
            draw::paragraph(&words, anstyle::Style::new());
        }
        if let Some(sample) = &self.run.sample {
            say!();
            for line in sample.lines().take(8) {
                say!("  {DIM}{line}{DIM:#}");
            }
        }
        if let Some(problem) = &self.problem {
            draw::note(&format!("training: {problem}"));
        }
    }
}

/// A share of the time, which is small: `0.08 %`.
pub fn small(share: f64) -> String {
    if share < 0.000_95 {
        format!("{:.3} %", share * 100.0)
    } else if share < 0.01 {
        format!("{:.2} %", share * 100.0)
    } else {
        percent(share)
    }
}

/// The program at work. Its process group is ended with this.
struct Running {
    child: Child,
    errors: Receiver<Vec<u8>>,
    log: Log,
}

impl Running {
    fn start(task: &Task<'_>) -> std::io::Result<Self> {
        let log = task.folder.join("log.jsonl");
        let mut command = Command::new(task.program);
        command.arg("train").arg(task.data);
        command.args(["--steps", &task.steps.to_string(), "--seed", &task.seed.to_string()]);
        command.arg("--out").arg(task.folder.join("model")).arg("--log").arg(&log);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let (send, errors) = channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || send.send(last(stderr)));
        }
        Ok(Self { child, errors, log: Log { path: log, file: None, line: Vec::new(), read: 0 } })
    }

    fn follow(mut self, task: &Task<'_>, progress: &Progress) -> Result<Training> {
        let (mut run, began) = (Run::default(), Instant::now());
        let problem = loop {
            let ended = self.has_ended();
            self.log.read(&mut run);
            progress.say(&match (run.losses.last(), run.planned) {
                (Some((step, loss)), Some(all)) => {
                    format!(
                        "training: step {} of {all}, loss {loss:.2}, {:.0} s",
                        step + 1,
                        began.elapsed().as_secs_f64()
                    )
                }
                _ => "training …".into(),
            });
            if signals::asked().is_some() {
                return Err(Error::Interrupted);
            }
            if ended {
                break self.farewell();
            }
            if self.log.read > LOG {
                break Some("it was stopped: it has logged more than anybody can read".to_owned());
            }
            if began.elapsed() > task.patience {
                break Some(format!(
                    "it was stopped after {:.0} s, before its end",
                    task.patience.as_secs_f64()
                ));
            }
            std::thread::sleep(LOOK);
        };
        drop(self);
        let problem = problem.or_else(|| {
            run.losses.is_empty().then(|| "the program has ended without any step in its log".to_owned())
        });
        Ok(Training { run, problem })
    }

    /// Whether it has ended; it stays for [`Self::end`] to take.
    fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), how).is_ok_and(|status| status.is_some())
    }

    /// What was wrong at its end.
    fn farewell(&mut self) -> Option<String> {
        let status = self.end()?;
        if status.success() {
            return None;
        }
        // Its group is gone, so the pipe is closed, unless it left somebody behind in another group.
        let said = self.errors.recv_timeout(Duration::from_millis(500)).unwrap_or_default();
        let said = clean(&String::from_utf8_lossy(&said), ERRORS);
        let line = said.lines().rev().find(|line| !line.trim().is_empty());
        let line = line.map_or_else(String::new, |line| format!(": {}", line.trim()));
        Some(format!("the program ended with {status}{line}"))
    }

    /// Ends its group: a dead process keeps the group's number until it is waited for.
    fn end(&mut self) -> Option<ExitStatus> {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.end();
        }
    }
}

/// The last that a program says.
fn last(mut stderr: ChildStderr) -> Vec<u8> {
    let (mut kept, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stderr.read(&mut some) {
        kept.extend_from_slice(&some[..count]);
        kept.drain(..kept.len().saturating_sub(ERRORS));
    }
    kept
}

/// A log that somebody else is writing.
struct Log {
    path: PathBuf,
    file: Option<File>,
    /// The line that is not whole yet.
    line: Vec<u8>,
    read: u64,
}

impl Log {
    /// Reads what is new, and gives whole lines to `run`.
    fn read(&mut self, run: &mut Run) {
        if self.file.is_none() && std::fs::metadata(&self.path).is_ok_and(|meta| meta.is_file()) {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return };
        let mut some = vec![0; 1 << 16];
        while self.read <= LOG
            && let Ok(count @ 1..) = file.read(&mut some)
        {
            self.read += count as u64;
            for part in some[..count].split_inclusive(|&byte| byte == b'\n') {
                // Of a line that is too long only so much is kept that it cannot be taken for a whole one.
                let room = (LINE + 1).saturating_sub(self.line.len()).min(part.len());
                self.line.extend_from_slice(&part[..room]);
                if part.ends_with(b"\n") {
                    run.take(&self.line);
                    self.line.clear();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_log_is_read_in_whole_lines_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log { path: path.clone(), file: None, line: Vec::new(), read: 0 };
        let mut run = Run::default();
        log.read(&mut run);
        let mut file = File::create(&path).unwrap();
        file.write_all(br#"{"kind":"eval","step":1,"#).unwrap();
        log.read(&mut run);
        assert_eq!((run.validation.len(), run.unreadable), (0, 0), "half a line is none yet");
        file.write_all(b"\"loss\":2}\n").unwrap();
        let endless = format!("{{\"kind\":\"eval\",\"step\":2,\"loss\":2,\"x\":\"{}\"}}\n", "x".repeat(LINE));
        file.write_all(endless.as_bytes()).unwrap();
        file.write_all(b"{\"kind\":\"eval\",\"step\":3,\"loss\":3}\n").unwrap();
        log.read(&mut run);
        assert_eq!((run.validation.as_slice(), run.unreadable), (&[(1, 2.0), (3, 3.0)][..], 1));
        assert!(log.line.is_empty());
    }

    #[test]
    fn shares_are_short() {
        for (share, text) in [(0.0, "0.000 %"), (0.000_071, "0.007 %"), (0.0042, "0.42 %"), (0.031, "3.1 %")]
        {
            assert_eq!(small(share), text);
        }
    }
}
