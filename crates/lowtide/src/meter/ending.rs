//! How a run ended, and whether the kernel ended it for want of memory.
//!
//! Nobody tells a program that it was killed for its memory: its parent sees signal 9 and no reason. But the
//! kernel counts such kills in the control group of the victim and for the whole machine. Reading those
//! counts before and after is the only effect here; what they mean is a function of the two.

use std::path::{Path, PathBuf};

use super::cgroup::{Level, Version, levels};
use super::fields::{number, value};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The code as a shell gives it: 128 and the signal's number for a signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 + number,
        }
    }

    /// The signal's number, if one ended it.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal(number) => Some(number),
        }
    }
}

/// The process that a command was, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its number.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
}

/// Somebody ended a process of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Which process.
    pub who: Who,
    /// What for.
    pub by: By,
}

/// Which process was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The command itself.
    Command {
        /// Its number.
        pid: u32,
    },
    /// Some other process; by its size probably this one.
    Probably {
        /// Its number.
        pid: u32,
        /// Its command line.
        name: String,
        /// What it used when it was last seen.
        rss: u64,
    },
    /// Some process of the control group, none that was seen.
    Someone,
}

/// What a process was killed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// By the kernel, because a control group had reached its limit.
    Limit {
        /// The group's folder.
        path: PathBuf,
        /// Its limit.
        limit: u64,
    },
    /// By the kernel, because the machine had no memory left.
    Machine,
    /// By a signal; and whether it is known that the kernel did not send it for want of memory.
    Signal {
        /// Its number.
        number: i32,
        /// Whether the kernel's counts could be read.
        counted: bool,
    },
}

impl By {
    /// Whether the kernel did it for want of memory.
    pub fn is_out_of_memory(&self) -> bool {
        !matches!(self, Self::Signal { .. })
    }
}

/// What the kernel has counted so far in the groups of a run and on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// From the innermost group outwards.
    groups: Vec<Count>,
    machine: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    path: PathBuf,
    version: Version,
    limit: Option<u64>,
    /// Processes killed for want of memory: in this very group (version 1), or in and below it (version 2).
    kills: Option<u64>,
    /// How often this group's own limit was met.
    met: Option<u64>,
}

impl Counts {
    /// The counts of the process `pid` (or `self`) on a machine whose root folder is `root`.
    pub fn read(root: &Path, pid: &str) -> Self {
        let groups = levels(root, pid).iter().map(Count::of).collect();
        Self { groups, machine: machine(root) }
    }

    /// Takes in the groups of another process that are not known yet.
    pub fn include(&mut self, other: Self) {
        for group in other.groups {
            if self.groups.iter().all(|known| known.path != group.path) {
                self.groups.push(group);
            }
        }
    }

    /// The same groups now.
    #[must_use]
    pub fn again(&self, root: &Path) -> Self {
        let groups = self.groups.iter().map(Count::again).collect();
        Self { groups, machine: machine(root) }
    }
}

impl Count {
    fn of(level: &Level) -> Self {
        Self { path: level.path.clone(), version: level.version, limit: level.limit, kills: None, met: None }
            .again()
    }

    fn again(&self) -> Self {
        let read = |name: &str| std::fs::read(self.path.join(name)).ok();
        let (kills, met) = match self.version {
            Version::V1 => (
                read("memory.oom_control").and_then(|text| value(&text, b"oom_kill ")),
                read("memory.failcnt").and_then(|text| number(&text)),
            ),
            Version::V2 => {
                let events = read("memory.events").unwrap_or_default();
                (value(&events, b"oom_kill "), value(&events, b"oom "))
            }
        };
        Self { kills, met, ..self.clone() }
    }
}

fn machine(root: &Path) -> Option<u64> {
    value(&std::fs::read(root.join("proc/vmstat")).ok()?, b"oom_kill ")
}

/// Who ended what, if anybody did. `largest` is the largest process that has ended besides the command:
/// the kernel picks by size.
pub fn judge(ended: Option<Ended>, largest: Option<Who>, before: &Counts, after: &Counts) -> Option<Killed> {
    let rose = |then: Option<u64>, now: Option<u64>| then.zip(now).is_some_and(|(then, now)| now > then);
    let pairs = || before.groups.iter().zip(&after.groups);
    // In version 2 a group counts what was killed below it, in groups of others too: where one of ours below it has counted
    // by itself, that says it.
    let told_below = |above: &Count| {
        above.version == Version::V2
            && pairs().any(|(then, now)| {
                let below = then.path != above.path && then.path.starts_with(&above.path);
                below && then.kills.is_some() && now.kills.is_some()
            })
    };
    let killed_here = pairs().any(|(then, now)| rose(then.kills, now.kills) && !told_below(then));
    let counted = pairs().any(|(then, now)| then.kills.is_some() && now.kills.is_some());
    let signal = ended.and_then(|ended| ended.exit.signal());
    // Without counts of a group of ours the machine's may be of somebody else, but a signal 9 of ours fits.
    let killed = killed_here || (!counted && signal == Some(9) && rose(before.machine, after.machine));
    if !killed {
        let by = By::Signal { number: signal?, counted: counted || before.machine.is_some() };
        return Some(Killed { who: Who::Command { pid: ended?.pid }, by });
    }
    // Innermost first, so that this is the group whose limit was in the way.
    let limit = pairs().find(|(then, now)| rose(then.met, now.met) && now.limit.is_some());
    let by = match limit.and_then(|(_, group)| Some((group.path.clone(), group.limit?))) {
        Some((path, limit)) => By::Limit { path, limit },
        None => By::Machine,
    };
    let who = match ended {
        Some(Ended { pid, exit: Exit::Signal(9) }) => Who::Command { pid },
        _ => largest.unwrap_or(Who::Someone),
    };
    Some(Killed { who, by })
}

/// `SIGKILL` for 9, and so on.
pub fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pod with a container in it, as version 2 shows them; the numbers are filled in by the tests.
    fn machine_with(version: Version, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        match version {
            Version::V2 => {
                write("proc/self/cgroup", "0::/pod/box\n");
                write("proc/self/mountinfo", "30 1 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
                for group in ["pod", "pod/box"] {
                    write(&format!("sys/fs/cgroup/{group}/memory.current"), "1000\n");
                    write(&format!("sys/fs/cgroup/{group}/memory.max"), "max\n");
                    write(&format!("sys/fs/cgroup/{group}/memory.events"), V2_QUIET);
                }
            }
            Version::V1 => {
                write("proc/self/cgroup", "4:memory:/job/step\n");
                write("proc/self/mountinfo", "30 1 0:25 / /cg rw - cgroup cgroup rw,memory\n");
                for group in ["job", "job/step"] {
                    write(&format!("cg/{group}/memory.usage_in_bytes"), "1000\n");
                    write(&format!("cg/{group}/memory.limit_in_bytes"), "9223372036854771712\n");
                    write(&format!("cg/{group}/memory.failcnt"), "0\n");
                    write(
                        &format!("cg/{group}/memory.oom_control"),
                        "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
                    );
                }
            }
        }
        write("proc/vmstat", "pgfault 7\noom_kill 3\n");
        for (path, text) in files {
            write(path, text);
        }
        root
    }

    const V2_QUIET: &str = "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n";

    /// What is said when `changes` happen to a machine during the run.
    fn after(
        version: Version,
        at_first: &[(&str, &str)],
        changes: &[(&str, &str)],
        ended: Option<Ended>,
    ) -> Option<Killed> {
        let root = machine_with(version, at_first);
        let before = Counts::read(root.path(), "self");
        for (path, text) in changes {
            std::fs::write(root.path().join(path), text).unwrap();
        }
        let mut killed = judge(ended, None, &before, &before.again(root.path()));
        if let Some(Killed { by: By::Limit { path, .. }, .. }) = &mut killed {
            *path = path.strip_prefix(root.path()).unwrap().to_owned();
        }
        killed
    }

    const KILLED: Option<Ended> = Some(Ended { pid: 7, exit: Exit::Signal(9) });
    const MINE: Who = Who::Command { pid: 7 };

    #[test]
    fn version_2_names_the_group_whose_limit_was_met() {
        // The pod is limited, and the kernel counts the kill in the container too.
        let limit = [("sys/fs/cgroup/pod/memory.max", "1048576\n")];
        let events = [
            ("sys/fs/cgroup/pod/memory.events", "max 99\noom 1\noom_kill 1\n"),
            ("sys/fs/cgroup/pod/box/memory.events", "max 0\noom 0\noom_kill 1\n"),
            ("proc/vmstat", "oom_kill 4\n"),
        ];
        let by = By::Limit { path: "sys/fs/cgroup/pod".into(), limit: 1 << 20 };
        assert_eq!(after(Version::V2, &limit, &events, KILLED), Some(Killed { who: MINE, by: by.clone() }));
        let code = Some(Ended { pid: 7, exit: Exit::Code(1) });
        assert_eq!(
            after(Version::V2, &limit, &events, code),
            Some(Killed { who: Who::Someone, by: by.clone() }),
            "the command went on without its worker"
        );
        assert_eq!(after(Version::V2, &limit, &events, None), Some(Killed { who: Who::Someone, by }));
    }

    #[test]
    fn version_1_names_the_group_above_whose_limit_was_met() {
        let limit = [("cg/job/memory.limit_in_bytes", "1048576\n")];
        let events = [
            ("cg/job/step/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
            ("cg/job/memory.failcnt", "31\n"),
        ];
        let by = By::Limit { path: "cg/job".into(), limit: 1 << 20 };
        assert_eq!(after(Version::V1, &limit, &events, KILLED), Some(Killed { who: MINE, by }));
    }

    #[test]
    fn a_kill_without_a_limit_met_is_the_machines() {
        let events = [("sys/fs/cgroup/pod/box/memory.events", "oom 0\noom_kill 1\n")];
        assert_eq!(after(Version::V2, &[], &events, KILLED), Some(Killed { who: MINE, by: By::Machine }));
        // Without groups only the machine counts, and what it counts may be about somebody else.
        let gone = [("proc/self/cgroup", "")];
        let machine = [("proc/vmstat", "oom_kill 4\n")];
        assert_eq!(after(Version::V2, &gone, &machine, KILLED), Some(Killed { who: MINE, by: By::Machine }));
        let code = Some(Ended { pid: 7, exit: Exit::Code(0) });
        assert_eq!(after(Version::V2, &gone, &machine, code), None);
    }

    #[test]
    fn a_signal_that_nobody_counted_was_sent_by_somebody() {
        let by = |number, counted| Some(Killed { who: MINE, by: By::Signal { number, counted } });
        assert_eq!(after(Version::V2, &[], &[("proc/vmstat", "oom_kill 9\n")], KILLED), by(9, true));
        let fault = Some(Ended { pid: 7, exit: Exit::Signal(11) });
        assert_eq!(after(Version::V1, &[], &[], fault), by(11, true));
        let nothing = [("proc/self/cgroup", ""), ("proc/vmstat", "")];
        assert_eq!(after(Version::V1, &nothing, &[], KILLED), by(9, false));
        assert_eq!(after(Version::V1, &[], &[], Some(Ended { pid: 7, exit: Exit::Code(137) })), None);
    }

    #[test]
    fn a_kill_in_another_group_of_the_same_pod_is_not_ours() {
        let events = [("sys/fs/cgroup/pod/memory.events", "max 99\noom 1\noom_kill 1\n")];
        let code = Some(Ended { pid: 7, exit: Exit::Code(0) });
        assert_eq!(after(Version::V2, &[], &events, code), None);
        // Where our own group cannot be read, the one above it is all that there is.
        let unread = [("sys/fs/cgroup/pod/box/memory.events", "")];
        let someone = Some(Killed { who: Who::Someone, by: By::Machine });
        assert_eq!(after(Version::V2, &unread, &events, code), someone);
    }

    #[test]
    fn a_group_that_went_away_is_no_kill() {
        let root = machine_with(Version::V2, &[]);
        let before = Counts::read(root.path(), "self");
        std::fs::remove_dir_all(root.path().join("sys")).unwrap();
        assert_eq!(judge(None, None, &before, &before.again(root.path())), None);
    }
}
