//! A command that runs as if we were not there: its signals, its terminal and its end are its own.
//!
//! Signals sent to us are passed on. A key like Ctrl-C is not: the terminal has sent that one to the whole
//! foreground group already, and twice would be once too often. Orphans of the command become our
//! children, so that they stay in the tree that is watched.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lowtide::meter::ending::Exit;
use rustix::process::{Pid, Signal, WaitOptions};

/// Signals that are ours to see: those passed on, the end of a child, and job control.
const SIGNALS: [i32; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    // Only so that it does not stop us: giving rows back to the terminal from the background is meant.
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGCHLD,
];

/// A running command.
#[derive(Debug)]
pub struct Child {
    pid: Option<Pid>,
    signals: OwnedFd,
}

/// What happened while waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The time is up.
    Timeout,
    /// The command ended.
    Ended(Exit),
    /// The terminal wants us to stop (Ctrl-Z); the command has been stopped.
    Stop,
    /// The terminal has another size.
    Resized,
    /// There is no command, only a process that we look at, and somebody asked us to end.
    Interrupted,
}

impl Child {
    /// Starts `command` with our own input, output and error.
    pub fn spawn(command: &[OsString]) -> io::Result<Self> {
        let signals = catch_signals()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments);
        // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe, and
        // nothing is allocated.
        unsafe { command.pre_exec(|| mask_signals(libc::SIG_UNBLOCK).map(|_| ())) };
        let child = command.spawn()?;
        let_it_go_first(child.id());
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self { pid, signals })
    }

    /// Waits beside a process that is not ours.
    pub fn none() -> io::Result<Self> {
        Ok(Self { pid: None, signals: catch_signals()? })
    }

    /// Waits until something happens, at most `time`.
    pub fn wait(&self, time: Duration) -> io::Result<Event> {
        let time = rustix::time::Timespec::try_from(time).unwrap_or_default();
        let mut ready = [rustix::event::PollFd::new(&self.signals, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut ready, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Event::Timeout),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some((number, from_terminal)) = self.next_signal()? {
            match number {
                libc::SIGCHLD => {
                    if let Some(exit) = self.reap() {
                        return Ok(Event::Ended(exit));
                    }
                }
                libc::SIGTSTP => {
                    if !from_terminal {
                        self.pass_on(number);
                    }
                    return Ok(Event::Stop);
                }
                // The terminal tells the command itself.
                libc::SIGWINCH => return Ok(Event::Resized),
                libc::SIGTTOU => {}
                _ if self.pid.is_none() => return Ok(Event::Interrupted),
                _ if from_terminal => {}
                _ => self.pass_on(number),
            }
        }
        Ok(Event::Timeout)
    }

    /// The command's number.
    pub fn pid(&self) -> Option<u32> {
        self.pid.and_then(|pid| u32::try_from(pid.as_raw_pid()).ok())
    }

    /// Collects every child that has ended, orphans too, and returns how the command did if it was one.
    fn reap(&self) -> Option<Exit> {
        let mut exit = None;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if Some(pid) == self.pid {
                let signal = || status.terminating_signal().map(Exit::Signal);
                exit = status.exit_status().map(Exit::Code).or_else(signal);
            }
        }
        exit
    }

    fn pass_on(&self, number: i32) {
        // It may have ended a moment ago; then there is nobody to tell.
        if let (Some(pid), Some(signal)) = (self.pid, Signal::from_named_raw(number)) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// The next signal that has arrived, and whether the terminal sent it.
    fn next_signal(&self) -> io::Result<Option<(i32, bool)>> {
        let mut bytes = [0_u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(self.signals.as_fd(), &mut bytes) {
            Ok(length) if length == bytes.len() => {
                let word =
                    |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                // signalfd_siginfo begins with the number, errno and the code; SI_KERNEL is the terminal.
                Ok(Some((word(0), word(8) == libc::SI_KERNEL)))
            }
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Stops ourselves, as the terminal asked, until we are continued.
pub fn stop() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// What we hold ourselves, and something above.
const OUR_SIZE: u64 = 8 << 20;

/// Makes the command the larger of the two in the eyes of the kernel, if memory is limited. We are in its
/// control group: while what a killed process held is being given back, the next one that needs a page can
/// be killed as well (seen 1 in 30), and the largest that is left may be the watcher, with all it has to say.
/// The kernel counts in thousandths of the limit.
fn let_it_go_first(pid: u32) {
    let path = format!("/proc/{pid}/oom_score_adj");
    let levels = lowtide::meter::cgroup::levels(Path::new("/"), "self");
    let Some(limit) = levels.iter().filter_map(|level| level.limit).min() else { return };
    let Ok(Ok(now)) = std::fs::read_to_string(&path).map(|text| text.trim().parse::<i64>()) else { return };
    let more = (OUR_SIZE * 1000).div_ceil(limit.max(1)).min(1000).cast_signed();
    // A command that may not be touched keeps what it has.
    let _ = std::fs::write(&path, (now + more).min(1000).to_string());
}

/// Blocks [`SIGNALS`] in this thread and makes them readable instead.
fn catch_signals() -> io::Result<OwnedFd> {
    let set = mask_signals(libc::SIG_BLOCK)?;
    // SAFETY: the set is initialised, and the descriptor that signalfd returns is new and ours alone.
    unsafe {
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Blocks or unblocks [`SIGNALS`] in this thread. A child inherits what is blocked, so it has to unblock.
fn mask_signals(how: libc::c_int) -> io::Result<libc::sigset_t> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything reads it, and all numbers are valid signals.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), number);
        }
        match libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut()) {
            0 => Ok(set.assume_init()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
