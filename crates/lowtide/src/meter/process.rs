//! What one process uses, as the kernel counts it.
//!
//! [`Proc`] is an open `/proc` and one buffer. Reading a process opens two or three small files,
//! parses them in place and allocates nothing, so that watching does not change what is watched.
//! A process may vanish between any two reads: then the answer is `None`, never an error.

use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::fields::{kib, number, value};
use crate::error::{Error, Result};

/// One process at one moment. Bytes, unless the name says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// When it started, in clock ticks since boot: with `pid` it names a process for good, because
    /// the kernel uses numbers again.
    pub started: u64,
    /// Heap, stacks and private copies of file pages: `RssAnon`.
    pub anon: u64,
    /// Pages of files mapped into it: `RssFile`.
    pub file: u64,
    /// Shared memory mapped into it, `/dev/shm` included: `RssShmem`.
    pub shmem: u64,
    /// What the page tables themselves take: `VmPTE`.
    pub page_tables: u64,
    /// What was swapped out: `VmSwap`.
    pub swap: u64,
    /// Threads.
    pub threads: u64,
    /// Faults served without I/O, children that were waited for included.
    pub minor_faults: u64,
    /// Faults that had to read from disk, children that were waited for included.
    pub major_faults: u64,
    /// User and system time in clock ticks, children that were waited for included.
    pub cpu_ticks: u64,
}

impl Process {
    /// What `top` calls RES and memory_profiler plots: heap, mapped and shared pages in one number.
    #[allow(clippy::doc_markdown)] // memory_profiler is a name, not code
    pub fn rss(&self) -> u64 {
        self.anon + self.file + self.shmem
    }
}

/// What a process has read. Children that were waited for are included: the kernel adds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Bytes fetched from disk for it, faults on maps included.
    pub from_disk: u64,
    /// Bytes that its `read` calls returned, wherever they came from. Maps do not count.
    pub by_calls: u64,
}

/// The proportional share of a process: a page in n processes counts 1/n in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// All of it.
    pub total: u64,
    /// Its anonymous part; after a fork, parent and child share it.
    pub anon: u64,
    /// Its mapped files.
    pub file: u64,
    /// Its shared memory.
    pub shmem: u64,
}

/// `/proc`, open, with the buffer that every read goes through.
#[derive(Debug)]
pub struct Proc {
    root: OwnedFd,
    buffer: Vec<u8>,
}

/// `/proc/PID/status` is some 1.5 KiB and `mountinfo`-sized files are never read here; a list of
/// children is 8 bytes a child.
const BUFFER: usize = 64 << 10;
/// Well short of a page of 4 KiB.
const SHORT: usize = 2 << 10;

impl Proc {
    /// Opens the machine's `/proc`.
    pub fn open() -> Result<Self> {
        Self::at(Path::new("/proc"))
    }

    /// Opens a folder that looks like `/proc`.
    pub fn at(root: &Path) -> Result<Self> {
        let fd = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| {
                Error::io(root, "open the folder", source)
                    .with_hint("the meter reads /proc, which only Linux has; is it mounted?")
            })?;
        Ok(Self { root: fd, buffer: vec![0; BUFFER] })
    }

    /// Reads `/proc/PID/stat` and `/proc/PID/status`. `None` when the process is gone or is only
    /// waiting to be reaped: then it has no memory any more.
    pub fn process(&mut self, pid: u32) -> Option<Process> {
        let mut process = parse_stat(self.read(pid, "stat")?)?;
        parse_status(self.read(pid, "status")?, &mut process)?;
        Some(process)
    }

    /// Reads `/proc/PID/io`. `None` when the process is gone or somebody else's.
    pub fn io(&mut self, pid: u32) -> Option<Read> {
        let text = self.read(pid, "io")?;
        Some(Read { from_disk: value(text, b"read_bytes:")?, by_calls: value(text, b"rchar:")? })
    }

    /// Reads `/proc/PID/smaps_rollup` (Linux 4.14; its parts 5.4). The kernel walks every page table
    /// for it, 0.6 to 11 ms: ask at most once a second. `None` when the process is gone or somebody
    /// else's.
    pub fn share(&mut self, pid: u32) -> Option<Share> {
        let text = self.read(pid, "smaps_rollup")?;
        Some(Share {
            total: kib(text, b"Pss:")?,
            anon: kib(text, b"Pss_Anon:")?,
            file: kib(text, b"Pss_File:")?,
            shmem: kib(text, b"Pss_Shmem:")?,
        })
    }

    /// Calls `each` with every child that the threads of `pid` have now. `false` when this kernel
    /// does not list children (built without `CONFIG_PROC_CHILDREN`) or the process is gone.
    pub fn children(&mut self, pid: u32, threads: u64, mut each: impl FnMut(u32)) -> bool {
        if threads <= 1 {
            return self.children_of_thread(pid, pid, &mut each);
        }
        // A child hangs on the thread that forked it, so a pool's threads are all asked.
        let mut name = [0; 32];
        let Some(name) = path(&mut name, format_args!("{pid}/task\0")) else { return false };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::openat(&self.root, name, flags, Mode::empty()) else { return false };
        let mut entries = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut entries = rustix::fs::RawDir::new(folder, &mut entries);
        let mut listed = false;
        while let Some(Ok(entry)) = entries.next() {
            if let Some(thread) = number(entry.file_name().to_bytes()).and_then(|id| u32::try_from(id).ok()) {
                listed |= self.children_of_thread(pid, thread, &mut each);
            }
        }
        listed
    }

    fn children_of_thread(&mut self, pid: u32, thread: u32, each: &mut impl FnMut(u32)) -> bool {
        let mut name = [0; 64];
        let Some(name) = path(&mut name, format_args!("{pid}/task/{thread}/children\0")) else {
            return false;
        };
        let Some(length) = self.read_path(name) else { return false };
        for word in self.buffer[..length].split(|byte| *byte == b' ') {
            if let Some(child) = number(word).and_then(|id| u32::try_from(id).ok()) {
                each(child);
            }
        }
        true
    }

    /// Calls `each` with every process of the machine: the slow way to find children.
    pub fn everyone(&mut self, mut each: impl FnMut(u32)) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::openat(&self.root, c".", flags, Mode::empty()) else { return };
        let mut entries = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut entries = rustix::fs::RawDir::new(folder, &mut entries);
        while let Some(Ok(entry)) = entries.next() {
            if let Some(pid) = number(entry.file_name().to_bytes()).and_then(|id| u32::try_from(id).ok()) {
                each(pid);
            }
        }
    }

    /// The parent of `pid`.
    pub fn parent(&mut self, pid: u32) -> Option<u32> {
        Some(parse_stat(self.read(pid, "stat")?)?.parent)
    }

    /// Puts the command line of `pid` into `name`, blanks for the zeros between arguments, or its bare
    /// name where it has none, and returns the length.
    pub fn command_into(&mut self, pid: u32, name: &mut [u8]) -> Option<usize> {
        let mut line = self.read(pid, "cmdline")?;
        if line.is_empty() {
            line = self.read(pid, "comm")?;
        }
        let line = line.trim_ascii_end();
        let line = &line[..line.len() - line.iter().rev().take_while(|byte| **byte == 0).count()];
        let length = line.len().min(name.len());
        for (to, from) in name.iter_mut().zip(line) {
            *to = if from.is_ascii_control() { b' ' } else { *from };
        }
        Some(length)
    }

    /// What the kernel could still give away on this machine without swapping: `MemAvailable`.
    pub fn available(&mut self) -> Option<u64> {
        let length = self.read_path(c"meminfo")?;
        kib(&self.buffer[..length], b"MemAvailable:")
    }

    /// The machine's memory: `MemTotal`.
    pub fn total(&mut self) -> Option<u64> {
        let length = self.read_path(c"meminfo")?;
        kib(&self.buffer[..length], b"MemTotal:")
    }

    /// Microseconds that some task of this machine has waited for memory since boot (PSI, Linux 4.20).
    pub fn pressure(&mut self) -> Option<u64> {
        let length = self.read_path(c"pressure/memory")?;
        parse_pressure(&self.buffer[..length])
    }

    fn read(&mut self, pid: u32, file: &str) -> Option<&[u8]> {
        let mut name = [0; 48];
        let name = path(&mut name, format_args!("{pid}/{file}\0"))?;
        let length = self.read_path(name)?;
        Some(&self.buffer[..length])
    }

    fn read_path(&mut self, name: &CStr) -> Option<usize> {
        let file =
            rustix::fs::openat(&self.root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut length = 0;
        // The kernel hands out a page at a time, cut between records: a read well short of one was the last.
        while length < self.buffer.len() {
            match rustix::io::read(&file, &mut self.buffer[length..]) {
                Ok(0) => break,
                Ok(count) => {
                    length += count;
                    if count < SHORT {
                        break;
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(length)
    }
}

/// A name under `/proc` in a buffer on the stack: formatting a number does not allocate.
fn path<'a>(buffer: &'a mut [u8], name: std::fmt::Arguments<'_>) -> Option<&'a CStr> {
    let mut rest: &mut [u8] = buffer;
    rest.write_fmt(name).ok()?;
    CStr::from_bytes_until_nul(buffer).ok()
}

/// `/proc/PID/stat`. The name in parentheses may hold blanks and parentheses of its own, so fields
/// are counted from the last one.
fn parse_stat(text: &[u8]) -> Option<Process> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let mut process = Process { pid: u32::try_from(number(text)?).ok()?, ..Process::default() };
    // proc(5) numbers from 1; the state, which comes first here, is field 3.
    for (field, word) in (3..).zip(text[name_end + 1..].trim_ascii_start().split(|byte| *byte == b' ')) {
        // Priorities and terminals may be negative, so not every word is a number that we can read.
        match field {
            3 if matches!(word, b"Z" | b"X" | b"x") => return None,
            4 => process.parent = u32::try_from(number(word)?).ok()?,
            10 | 11 => process.minor_faults += number(word)?,
            12 | 13 => process.major_faults += number(word)?,
            14..=17 => process.cpu_ticks += number(word)?,
            20 => process.threads = number(word)?,
            22 => {
                process.started = number(word)?;
                return Some(process);
            }
            _ => {}
        }
    }
    None
}

/// `/proc/PID/status`. A process on its way out has no memory lines: `None`.
fn parse_status(text: &[u8], process: &mut Process) -> Option<()> {
    process.anon = kib(text, b"RssAnon:")?;
    process.file = kib(text, b"RssFile:")?;
    process.shmem = kib(text, b"RssShmem:")?;
    process.page_tables = kib(text, b"VmPTE:")?;
    process.swap = kib(text, b"VmSwap:").unwrap_or(0);
    Some(())
}

/// The `some` line of a pressure file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=17`.
fn parse_pressure(text: &[u8]) -> Option<u64> {
    let line = super::fields::after(text, b"some ")?;
    line.split(|byte| *byte == b' ').find_map(|word| number(word.strip_prefix(b"total=")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let text = b"42 (a ) (b) R 7 42 42 0 -1 4194304 10 20 3 4 5 6 7 8 20 0 9 0 71193 3133440 363 1";
        let process = parse_stat(text).unwrap();
        assert_eq!((process.pid, process.parent, process.threads, process.started), (42, 7, 9, 71193));
        assert_eq!((process.minor_faults, process.major_faults, process.cpu_ticks), (30, 7, 26));
    }

    #[test]
    fn a_zombie_has_no_memory() {
        assert_eq!(parse_stat(b"42 (x) Z 7 42 42 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 71193 0 0"), None);
        assert_eq!(parse_status(b"Name:\tx\nState:\tZ (zombie)\n", &mut Process::default()), None);
    }

    #[test]
    fn cut_and_strange_text_is_none_and_never_a_panic() {
        let text = b"42 (x) R 7 42 42 0 -1 4194304 10 20 3 4 5 6 7 8 20 0 9 0 71193 3133440";
        for end in 0..text.len() {
            let _ = parse_stat(&text[..end]);
        }
        for junk in [&b""[..], b")", b"42 (x)", b"99999999999 (x) R 1", b"\xff\xfe"] {
            assert_eq!(parse_stat(junk), None);
        }
    }

    #[test]
    fn pressure_is_the_total_of_the_some_line() {
        let text = b"some avg10=0.00 avg60=1.50 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(parse_pressure(text), Some(1234));
        assert_eq!(parse_pressure(b"nothing"), None);
    }

    /// dd's buffer is the oracle: 64 MiB of heap that it touches all the time. In a process of its own,
    /// because the tests beside this one free and take memory too.
    #[test]
    fn what_a_process_touches_is_its_heap() {
        let mut proc = Proc::open().unwrap();
        let mut dd = std::process::Command::new("dd")
            .args(["if=/dev/zero", "of=/dev/null", "bs=64M"])
            .spawn()
            .unwrap();
        // It is there once all of it was touched, however busy the machine is.
        let touched = |proc: &mut Proc| {
            proc.process(dd.id()).is_some_and(|seen| seen.anon >= 64 << 20)
                && proc.io(dd.id()).is_some_and(|read| read.by_calls >= 64 << 20)
        };
        for _ in 0..1000 {
            if touched(&mut proc) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let seen = proc.process(dd.id()).unwrap();
        let share = proc.share(dd.id()).unwrap();
        let read = proc.io(dd.id()).unwrap();
        dd.kill().unwrap();
        dd.wait().unwrap();
        for (name, bytes) in [("RssAnon", seen.anon), ("Pss_Anon", share.anon)] {
            assert!((64 << 20..70 << 20).contains(&bytes), "64 MiB touched, {name} is {bytes}");
        }
        assert!(seen.page_tables >= (64 << 20) / 512 && seen.file > 0 && seen.shmem == 0, "{seen:?}");
        assert!(read.by_calls >= 64 << 20, "{read:?}");
        assert_eq!((seen.pid, seen.parent), (dd.id(), std::process::id()));
    }

    #[test]
    fn a_child_is_listed_and_gone_when_reaped() {
        let mut proc = Proc::open().unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let me = proc.process(std::process::id()).unwrap();
        let mut found = Vec::new();
        if proc.children(me.pid, me.threads, |pid| found.push(pid)) {
            assert!(found.contains(&child.id()), "{found:?} lacks {}", child.id());
        }
        let mut all = Vec::new();
        proc.everyone(|pid| all.push(pid));
        assert!(all.contains(&child.id()));
        assert_eq!(proc.parent(child.id()), Some(me.pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(proc.process(child.id()), None);
        assert_eq!(proc.command_into(child.id(), &mut [0; 8]), None);
    }
}
