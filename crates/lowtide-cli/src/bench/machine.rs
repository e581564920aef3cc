//! Where a benchmark ran: the processor, the kernel, the memory, and the disk under the file with its
//! `read_ahead_kb`, which decides what a fault on a cold map reads. All of it is for people: what the kernel
//! does not tell is left out.

use lowtide::budget::human;
use lowtide::meter;
use rustix::fs::{major, minor};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// This machine.
#[derive(Debug)]
pub struct Machine {
    pub when: String,
    pub processor: Option<String>,
    pub cores: usize,
    pub kernel: Option<String>,
    pub memory: Option<u64>,
    pub room: u64,
    pub disk: Disk,
}

/// The disk that a file is on.
#[derive(Debug, Default)]
pub struct Disk {
    pub filesystem: Option<String>,
    pub device: Option<String>,
    pub read_ahead_kb: Option<u64>,
    /// The least that an unbuffered read can ask for.
    pub block: Option<u64>,
}

impl Machine {
    /// The machine, and the disk under `path`.
    pub fn of(path: &Path) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            when: date(now),
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: text(Path::new("/proc/sys/kernel/osrelease")),
            memory: field("/proc/meminfo", "MemTotal")
                .and_then(|kib| kib.strip_suffix(" kB")?.parse::<u64>().ok())
                .map(|kib| kib << 10),
            room: meter::room().bytes,
            disk: Disk::under(path),
        }
    }

    /// What a page says of it, the date last. The versions are those of Python and NumPy.
    pub fn pairs(&self, versions: Option<&(String, String)>) -> Vec<(&'static str, String)> {
        let unknown = || "unknown".to_owned();
        let cores = if self.cores == 1 { "1 core".into() } else { format!("{} cores", self.cores) };
        let versions = versions.map(|(python, numpy)| format!(", Python {python}, NumPy {numpy}"));
        let memory = self.memory.map_or_else(unknown, human);
        vec![
            ("disk", self.disk.words()),
            ("processor", format!("{}, {cores}", self.processor.clone().unwrap_or_else(unknown))),
            ("memory", format!("{memory}, room for {}", human(self.room))),
            ("kernel", format!("Linux {}", self.kernel.clone().unwrap_or_else(unknown))),
            ("versions", format!("lowtide {}{}", env!("CARGO_PKG_VERSION"), versions.unwrap_or_default())),
            ("measured", self.when.clone()),
        ]
    }

    pub fn json(&self) -> Value {
        json!({ "when": self.when, "processor": self.processor, "cores": self.cores, "kernel": self.kernel,
            "memory_bytes": self.memory, "room_bytes": self.room, "filesystem": self.disk.filesystem,
            "device": self.disk.device, "read_ahead_kb": self.disk.read_ahead_kb })
    }
}

impl Disk {
    /// The disk under `path`.
    pub fn under(path: &Path) -> Self {
        let filesystem = std::fs::read_to_string("/proc/self/mountinfo")
            .ok()
            .zip(std::fs::canonicalize(path).ok())
            .and_then(|(mounts, path)| filesystem(&mounts, &path));
        let Ok(stat) = rustix::fs::stat(path) else { return Self { filesystem, ..Self::default() } };
        let number = format!("{}:{}", major(stat.st_dev), minor(stat.st_dev));
        let device = PathBuf::from("/sys/dev/block").join(&number);
        // A partition has no queue of its own; network and overlay filesystems have no device, at most a bdi.
        let queues =
            [device.join("queue"), device.join("../queue"), Path::new("/sys/class/bdi").join(&number)];
        let setting = |name| queues.iter().find_map(|queue| text(&queue.join(name))?.parse().ok());
        Self {
            filesystem,
            device: std::fs::canonicalize(&device)
                .ok()
                .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
            read_ahead_kb: setting("read_ahead_kb"),
            block: setting("logical_block_size"),
        }
    }

    /// In a few words: `vda (ext4), read_ahead_kb 128`.
    pub fn words(&self) -> String {
        let device = self.device.as_deref().unwrap_or("unknown device");
        let filesystem = self.filesystem.as_deref().unwrap_or("unknown filesystem");
        let ahead = self.read_ahead_kb.map_or_else(|| "unknown".into(), |kb| kb.to_string());
        format!("{device} ({filesystem}), read_ahead_kb {ahead}")
    }
}

/// The type of the filesystem that holds `path`: that of the longest mount point above it, the last one where
/// several are mounted over each other.
fn filesystem(mounts: &str, path: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        path.starts_with(&point).then(|| (point.len(), source.split(' ').next().unwrap_or_default()))
    });
    mounts.max_by_key(|&(length, _)| length).map(|(_, kind)| kind.to_owned())
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The first line `name: value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = |line: &str| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned());
    text.lines().find_map(value)
}

/// Seconds since 1970 as a date in UTC. Years are counted from March, so that the leap day comes last
/// (Howard Hinnant's civil_from_days).
#[allow(clippy::doc_markdown)]
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (year + era * 400, month + 3) } else { (year + era * 400 + 1, month - 9) };
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3_600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_the_calendar_s() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn the_nearest_mount_is_the_filesystem() {
        let mounts = "22 1 254:0 / / rw - ext4 /dev/root rw\n\
                      30 22 0:25 / /data rw shared:1 - xfs /dev/b rw\n\
                      31 22 0:26 / /my\\040data rw - btrfs /dev/c rw\n\
                      32 22 0:27 / /data rw - nfs4 host:/x rw\n";
        for (path, kind) in
            [("/a", "ext4"), ("/data/a", "nfs4"), ("/database", "ext4"), ("/my data/a", "btrfs")]
        {
            assert_eq!(filesystem(mounts, Path::new(path)).as_deref(), Some(kind), "{path}");
        }
    }
}
