//! The memory limits that apply to a process, and the room that they leave.
//!
//! Containers, Slurm and Kubernetes limit memory through control groups, which form a tree: a limit
//! anywhere above a process applies to it. Version 1 and version 2 differ in names and places, and a
//! container may see only a part of the tree; what is mounted where is read from `mountinfo`. Reading
//! the tree is the only effect here, and its root can be any folder, so that captured trees are tests.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use super::fields::{kib, number, value};

/// Which of the two interfaces a group speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `memory.limit_in_bytes` and friends.
    V1,
    /// `memory.max` and friends.
    V2,
}

/// One group on the way from a process to the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Where its files are.
    pub path: PathBuf,
    /// Which interface it speaks.
    pub version: Version,
    /// The most it may use, if it is limited. In version 2 the smaller of `memory.max` (killed beyond)
    /// and `memory.high` (slowed down beyond).
    pub limit: Option<u64>,
    /// What it uses, page cache included.
    pub usage: u64,
    /// What of that is page cache on the file lists, which the kernel takes back when it must.
    pub reclaimable: u64,
    /// The most that it ever used, where the kernel remembers.
    pub peak: Option<u64>,
}

impl Level {
    /// The same group now.
    pub fn again(&self) -> Option<Self> {
        level(&self.path, self.version)
    }

    /// What may still be allocated here before something is killed: page cache gives way.
    pub fn headroom(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.usage.saturating_sub(self.reclaimable)))
    }
}

/// How much memory can be had here, and what decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many bytes.
    pub bytes: u64,
    /// What set the number.
    pub because: Because,
}

/// What decided how much room there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// A control group on the way to the root.
    Cgroup {
        /// The group's folder.
        path: PathBuf,
        /// Its limit.
        limit: u64,
    },
    /// The machine's `MemAvailable`.
    Machine,
    /// Half the machine's memory, because nothing better is known (not Linux, or no `/proc`).
    HalfOfMemory,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup { path, limit } => {
                write!(f, "the {} of control group {}", crate::size::human(*limit), path.display())
            }
            Self::Machine => f.write_str("this machine's available memory"),
            Self::HalfOfMemory => f.write_str("half of this machine's memory"),
        }
    }
}

/// How much memory this process can still have: the smallest of what its control groups leave, up the
/// tree, and the machine's `MemAvailable`.
pub fn room() -> Room {
    room_at(Path::new("/"), "self")
}

/// [`room`] for the process `pid` (or `self`) on a machine whose root folder is `root`.
pub fn room_at(root: &Path, pid: &str) -> Room {
    let machine = std::fs::read(root.join("proc/meminfo"))
        .ok()
        .and_then(|text| kib(&text, b"MemAvailable:"))
        .map(|bytes| Room { bytes, because: Because::Machine });
    let groups = levels(root, pid).into_iter().filter_map(|level| {
        Some(Room {
            bytes: level.headroom()?,
            because: Because::Cgroup { limit: level.limit?, path: level.path },
        })
    });
    groups
        .chain(machine)
        .min_by_key(|room| room.bytes)
        .unwrap_or_else(|| Room { bytes: physical() / 2, because: Because::HalfOfMemory })
}

/// The groups of the process `pid` (or `self`) from its own to the highest one that can be seen, on a
/// machine whose root folder is `root`. Empty where there are none.
pub fn levels(root: &Path, pid: &str) -> Vec<Level> {
    let read = |name: &str| std::fs::read_to_string(root.join("proc").join(pid).join(name)).ok();
    let (Some(groups), Some(mounts)) = (read("cgroup"), read("mountinfo")) else { return Vec::new() };
    let mut found = Vec::new();
    for (version, group) in memberships(&groups) {
        let Some((mount, mounted)) = mount_of(&mounts, version) else { continue };
        let top = root.join(mount.strip_prefix("/").unwrap_or(&mount));
        let mut folder = top.join(below(&group, &mounted));
        // A group that this mount does not show (another namespace's, or gone): the top still applies.
        if !folder.is_dir() {
            folder.clone_from(&top);
        }
        loop {
            found.extend(level(&folder, version));
            if folder == top || !folder.pop() {
                break;
            }
        }
    }
    found
}

/// The memory groups in `/proc/PID/cgroup`: lines like `4:memory:/a/b` (version 1) and `0::/a/b`
/// (version 2). Both may be there; only one of them has the controller.
fn memberships(text: &str) -> Vec<(Version, PathBuf)> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let version = if controllers.split(',').any(|name| name == "memory") {
                Version::V1
            } else if id == "0" && controllers.is_empty() {
                Version::V2
            } else {
                return None;
            };
            Some((version, PathBuf::from(path)))
        })
        .collect()
}

/// Where a version's tree is mounted, and which part of it is, from `mountinfo`:
/// `35 31 0:32 /part /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`.
fn mount_of(text: &str, version: Version) -> Option<(PathBuf, PathBuf)> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let fits = match version {
            Version::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
            Version::V2 => kind == "cgroup2",
        };
        let mut left = left.split(' ').skip(3).map(unescape);
        let (mounted, mount) = (left.next()?, left.next()?);
        fits.then_some((mount, mounted))
    })
}

/// `mountinfo` writes a blank as `\040`.
fn unescape(text: &str) -> PathBuf {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\").into()
}

/// The path of `group` below what is mounted. Without a namespace of its own a container's group is
/// `/docker/ID` and so is the part mounted: then nothing is left. Steps upwards lead out of the mount.
fn below(group: &Path, mounted: &Path) -> PathBuf {
    group
        .strip_prefix(mounted)
        .unwrap_or(group)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// The numbers of one group. `None` where the memory controller is not enabled, as in version 2's root.
fn level(folder: &Path, version: Version) -> Option<Level> {
    let read = |name: &str| std::fs::read(folder.join(name)).ok();
    let single = |name: &str| number(&read(name)?);
    let (limit, usage, peak, lists): (_, _, _, [&[u8]; 2]) = match version {
        Version::V1 => {
            // "No limit" is the largest page-aligned i64, 2^63 − 4096 with small pages.
            let limit = single("memory.limit_in_bytes").filter(|limit| *limit < 1 << 62);
            let names = [&b"total_inactive_file "[..], b"total_active_file "];
            (limit, single("memory.usage_in_bytes")?, single("memory.max_usage_in_bytes"), names)
        }
        Version::V2 => {
            let limit = [single("memory.max"), single("memory.high")].into_iter().flatten().min();
            let names = [&b"inactive_file "[..], b"active_file "];
            (limit, single("memory.current")?, single("memory.peak"), names)
        }
    };
    let stat = read("memory.stat").unwrap_or_default();
    let reclaimable = lists.iter().filter_map(|name| value(&stat, name)).sum();
    Some(Level { path: folder.to_owned(), version, limit, usage, reclaimable, peak })
}

/// The machine's memory, for systems without `/proc`.
fn physical() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::human;

    const MIB: u64 = 1 << 20;

    /// Unpacks a captured tree: `== path` lines, each followed by that file's text.
    fn tree(captured: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for part in captured.split("== ").skip(1) {
            let (path, text) = part.split_once('\n').unwrap();
            let path = root.path().join(path.trim());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn decided_by(root: &tempfile::TempDir) -> (u64, String) {
        let found = room_at(root.path(), "self");
        match found.because {
            Because::Cgroup { path, limit } => (
                found.bytes,
                format!("{} of {}", path.strip_prefix(root.path()).unwrap().display(), human(limit)),
            ),
            other => (found.bytes, other.to_string()),
        }
    }

    #[test]
    fn version_1_takes_the_smallest_limit_up_the_tree() {
        let root = tree(include_str!("../../tests/fixtures/cgroup/v1-slurm.txt"));
        // The step allows 8 GiB, the job above it 4 GiB and uses 3 GiB, of which 2 GiB is page cache.
        assert_eq!(
            decided_by(&root),
            (3072 * MIB, "sys/fs/cgroup/memory/slurm/uid_1000/job_7 of 4 GiB".into())
        );
        let levels = levels(root.path(), "self");
        assert_eq!(levels.len(), 5);
        assert_eq!(levels[0].limit, Some(8192 * MIB));
        assert_eq!(levels[1].peak, Some(3584 * MIB));
        assert_eq!(levels[4].limit, None, "the root is not limited");
    }

    #[test]
    fn version_1_in_docker_without_a_namespace_finds_its_own_mount() {
        let root = tree(include_str!("../../tests/fixtures/cgroup/v1-docker.txt"));
        assert_eq!(decided_by(&root), (412 * MIB, "sys/fs/cgroup/memory of 512 MiB".into()));
    }

    #[test]
    fn version_2_counts_memory_high_and_the_pod_above() {
        let root = tree(include_str!("../../tests/fixtures/cgroup/v2-kubernetes.txt"));
        let levels = levels(root.path(), "self");
        let limits: Vec<_> = levels.iter().map(|level| level.limit.map(human)).collect();
        assert_eq!(limits, [Some("2 GiB".into()), Some("1.5 GiB".into()), None]);
        assert_eq!(levels[0].peak, Some(1024 * MIB));
        assert_eq!(levels[1].peak, None, "memory.peak came with 5.19");
        // memory.high of the pod: 1.5 GiB − (1 GiB − 768 MiB of cache).
        assert_eq!(decided_by(&root), (1280 * MIB, "sys/fs/cgroup/kubepods.slice/pod1 of 1.5 GiB".into()));
    }

    #[test]
    fn a_namespace_shows_the_group_as_the_root() {
        let root = tree(include_str!("../../tests/fixtures/cgroup/v2-namespace.txt"));
        assert_eq!(decided_by(&root), (200 * MIB, "sys/fs/cgroup of 256 MiB".into()));
    }

    #[test]
    fn a_group_over_its_limit_leaves_nothing() {
        let root = tree(include_str!("../../tests/fixtures/cgroup/v2-namespace.txt"));
        std::fs::write(root.path().join("sys/fs/cgroup/memory.current"), "999999999999\n").unwrap();
        assert_eq!(room_at(root.path(), "self").bytes, 0);
    }

    #[test]
    fn without_groups_the_machine_decides_and_without_proc_half_of_it() {
        let root = tree("== proc/meminfo\nMemTotal:       100 kB\nMemAvailable:       64 kB\n");
        assert_eq!(room_at(root.path(), "self"), Room { bytes: 65536, because: Because::Machine });
        let nothing = tempfile::tempdir().unwrap();
        let found = room_at(nothing.path(), "self");
        assert_eq!(found.because, Because::HalfOfMemory);
        assert!(found.bytes > 64 * MIB);
    }

    #[test]
    fn junk_is_no_group_and_never_a_panic() {
        for junk in ["", ":::", "0", "4:memory", "x:memory:/a:b", "0::../../..", "\u{0}\n\n"] {
            for (_, path) in memberships(junk) {
                assert!(!below(&path, Path::new("/")).to_string_lossy().contains(".."));
            }
            assert_eq!(mount_of(junk, Version::V1), None);
        }
        assert_eq!(unescape("/a\\040b"), PathBuf::from("/a b"));
    }

    /// On the machine that runs the tests: the kernel's own hierarchical limit is the oracle.
    #[test]
    fn this_machine_agrees_with_its_kernel() {
        let found = levels(Path::new("/"), "self");
        for level in found.iter().filter(|level| level.version == Version::V1) {
            let stat = std::fs::read(level.path.join("memory.stat")).unwrap();
            let kernel = value(&stat, b"hierarchical_memory_limit ").unwrap();
            let ours = found
                .iter()
                .filter(|above| above.version == Version::V1 && level.path.starts_with(&above.path))
                .filter_map(|above| above.limit)
                .min();
            assert_eq!(ours, Some(kernel).filter(|limit| *limit < 1 << 62), "{}", level.path.display());
        }
        assert!(room().bytes > 0);
    }
}
