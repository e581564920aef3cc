//! The files whose page cache is watched.
//!
//! They are named, matched by a glob, found in a folder, or found by themselves: what the watched
//! processes have mapped or open. Finding may allocate and happens now and then; measuring opens each
//! file anew, so that nothing deleted is kept alive and a replaced file is seen, and allocates nothing.
//!
//! Asking is not always cheap: 2 GiB in large folios take 0.1 ms, the same in single pages (after
//! `FADV_RANDOM`, or through a map) 10 to 37 ms. So a file is asked about in stripes, as many at a time as
//! there is processor time for, and each stripe's number is exact as of when it was last asked for.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::cache::{Resident, of_range};
use super::cpu_time;
use super::maps::{Extents, data_files, parts, resident_bytes};

/// Files found by themselves below this size are locales, byte code and logs.
const SMALLEST_FOUND: u64 = 8 << 20;
/// So many files at most are found by themselves.
const MOST_FOUND: usize = 64;
/// A folder or a glob stops here.
const MOST_NAMED: usize = 4096;
const TMPFS: u64 = 0x0102_1994;
/// A stripe is at least this large, and a multiple of the largest folio.
const STRIPE: u64 = 8 << 20;
/// A file starts with at most this many stripes.
const STRIPES: u64 = 128;
const NOT_YET: &str = "not measured yet";

/// One watched file.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Where it is.
    pub path: PathBuf,
    /// Its size when last seen.
    pub size: u64,
    /// Whether it lives in memory altogether (`/dev/shm`): then the kernel cannot take its pages back.
    pub in_memory: bool,
    /// How much of it is in the page cache.
    pub now: Resident,
    /// How much of it was when it was first measured.
    pub first: Option<u64>,
    /// The most that it was.
    pub peak: u64,
    /// How much of it one process had mapped when the watch began.
    pub mapped_first: u64,
    /// The most of it that one process was seen to have mapped, if that was looked at.
    pub mapped_peak: Option<u64>,
    /// What the maps of several processes cover of it.
    shared: u64,
    name: CString,
    stripe: u64,
    /// What was found in each stripe; `None` before it was first asked for.
    stripes: Vec<Option<u64>>,
    next: usize,
}

/// All watched files.
#[derive(Debug, Default)]
pub struct Files {
    list: Vec<Watched>,
    known: HashSet<PathBuf>,
    wanted: Vec<String>,
    by_themselves: bool,
    next: usize,
    /// What the processes have mapped besides, at the most; `None` where that is not known.
    others: Option<AtMost>,
}

/// The most that some processes can have mapped together, each file counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtMost {
    /// Of files on disk.
    pub file: u64,
    /// Of files that live in memory.
    pub shmem: u64,
}

/// What is in the page cache of all watched files together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Of files on disk; `None` when nothing is known about any.
    pub on_disk: Option<u64>,
    /// Of files that live in memory.
    pub in_memory: u64,
}

impl Files {
    /// Watches `wanted`: paths, folders, globs, and `auto` for what the processes have mapped or open.
    pub fn new(wanted: &[String]) -> Self {
        let mut files = Self {
            wanted: wanted.iter().filter(|name| *name != "auto").cloned().collect(),
            by_themselves: wanted.iter().any(|name| name == "auto"),
            ..Self::default()
        };
        files.find_named();
        files
    }

    /// The files, in the order in which they were found.
    pub fn list(&self) -> &[Watched] {
        &self.list
    }

    /// The names asked for that lead to no file now.
    pub fn missing(&self) -> Vec<&str> {
        let found = |name: &&String| {
            Path::new(name.as_str()).exists()
                || glob::glob(name).is_ok_and(|mut paths| paths.next().is_some())
        };
        self.wanted.iter().filter(|name| !found(name)).map(String::as_str).collect()
    }

    /// Looks again for the files that were asked for: a folder may have got new ones.
    pub fn find_named(&mut self) {
        for name in self.wanted.clone() {
            let path = Path::new(&name);
            // A file may well be called `a[1].bin`, so the name itself comes first.
            if path.is_dir() {
                self.add_folder(path);
            } else if path.exists() {
                self.add(path);
            } else if let Ok(paths) = glob::glob(&name) {
                for path in paths.flatten() {
                    if path.is_dir() { self.add_folder(&path) } else { self.add(&path) }
                }
            }
        }
    }

    fn add_folder(&mut self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        for path in paths {
            if path.is_file() {
                self.add(&path);
            } else if path.is_dir() && !path.is_symlink() && self.list.len() < MOST_NAMED {
                self.add_folder(&path);
            }
        }
    }

    /// Looks at what the processes have mapped or open. Adds the regular files of some size that are not
    /// programs, if files are to be found by themselves, and learns how much can be mapped at the most.
    pub fn look_at(&mut self, pids: impl Iterator<Item = u32>) {
        let mut extents = Extents::default();
        let mut all_read = true;
        for pid in pids {
            let Ok(text) = std::fs::read(format!("/proc/{pid}/maps")) else {
                // It has ended, or it is somebody else's.
                all_read &= !Path::new(&format!("/proc/{pid}")).exists();
                continue;
            };
            extents.add(&text);
            if self.by_themselves {
                for path in open_files(pid).into_iter().chain(data_files(&text)) {
                    let large = std::fs::metadata(&path)
                        .is_ok_and(|meta| meta.is_file() && meta.size() >= SMALLEST_FOUND);
                    if large && self.list.len() < MOST_FOUND {
                        self.add(&path);
                    }
                }
            }
        }
        self.others = all_read.then(|| self.cover(&extents));
    }

    /// Notes what several processes cover of each watched file, and returns the rest.
    fn cover(&mut self, extents: &Extents) -> AtMost {
        let mut others = AtMost::default();
        let places: HashMap<PathBuf, usize> =
            self.list.iter_mut().enumerate().map(|(place, file)| (file.path.clone(), place)).collect();
        for file in &mut self.list {
            file.shared = 0;
        }
        for extent in extents.files() {
            match places.get(&extent.path) {
                // Of a file that one process has mapped alone nothing counts twice, and what is cached may
                // be known a little late.
                Some(place) if extent.processes > 1 => self.list[*place].shared = extent.bytes(),
                _ => {
                    others.file += extent.bytes();
                    others.shmem += if extent.may_be_memory { extent.bytes() } else { 0 };
                }
            }
        }
        others
    }

    /// The most that the processes last looked at can have mapped together: a page of a file that several
    /// have mapped is in the page cache once. `None` where their maps could not be read.
    pub fn at_most(&self) -> Option<AtMost> {
        let mut most = self.others?;
        for file in self.list.iter().filter(|file| file.shared > 0) {
            let bytes = file.now.bytes().map_or(file.shared, |cached| cached.min(file.shared));
            *(if file.in_memory { &mut most.shmem } else { &mut most.file }) += bytes;
        }
        Some(most)
    }

    /// Notes what a process has mapped of the files as the watch begins, and returns the sum of those on
    /// disk. The page tables are walked only where one of them is mapped at all.
    pub fn begin_with(&mut self, pid: u32) -> u64 {
        let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let watched = |path: &[u8]| self.known.contains(Path::new(OsStr::from_bytes(path)));
        if !parts(&text).any(|part| watched(part.path)) {
            return 0;
        }
        let sum = self.measure_mapped(pid);
        for file in &mut self.list {
            file.mapped_first = file.mapped_peak.unwrap_or(0);
        }
        sum
    }

    /// Asks how much of each file one process has mapped, and returns the sum of those on disk. The kernel
    /// walks its page tables for that, some milliseconds for a large one.
    pub fn measure_mapped(&mut self, pid: u32) -> u64 {
        let Ok(text) = std::fs::read(format!("/proc/{pid}/smaps")) else { return 0 };
        let mapped = resident_bytes(&text);
        let mut sum = 0;
        for file in &mut self.list {
            let parts = mapped.iter().filter(|(path, _)| *path == file.path.as_os_str().as_bytes());
            let bytes = parts.map(|(_, bytes)| bytes).sum();
            file.mapped_peak = file.mapped_peak.max(Some(bytes));
            sum += if file.in_memory { 0 } else { bytes };
        }
        sum
    }

    /// The files that are on a disk: pages of the others are not a cache.
    pub fn on_disk(&self) -> impl Iterator<Item = &Watched> {
        self.list.iter().filter(|file| !file.in_memory)
    }

    fn add(&mut self, path: &Path) {
        let Ok(path) = path.canonicalize() else { return };
        if self.known.contains(&path) || self.list.len() >= MOST_NAMED || !path.is_file() {
            return;
        }
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
        self.known.insert(path.clone());
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.size());
        let stripe = (size / STRIPES).next_power_of_two().max(STRIPE);
        self.list.push(Watched {
            path,
            size,
            in_memory: false,
            now: Resident::Unknown(NOT_YET),
            first: None,
            peak: 0,
            mapped_first: 0,
            mapped_peak: None,
            shared: 0,
            name,
            stripe,
            // Twice as many as now, because files that are being written grow.
            stripes: Vec::with_capacity(usize::try_from(size / stripe * 2 + 2).unwrap_or(2)),
            next: 0,
        });
    }

    /// Asks for the page cache of as many stripes as `time` allows, where it stopped the last time, at
    /// most once around. Does not allocate unless a file has doubled.
    pub fn measure(&mut self, time: Duration) -> Cached {
        let begin = cpu_time();
        for _ in 0..self.list.len() {
            let file = &mut self.list[self.next];
            if !file.measure(|| cpu_time().saturating_sub(begin) < time) {
                break;
            }
            self.next = (self.next + 1) % self.list.len();
        }
        let mut cached = Cached::default();
        for file in &self.list {
            let Some(bytes) = file.now.bytes() else { continue };
            if file.in_memory {
                cached.in_memory += bytes;
            } else {
                cached.on_disk = Some(cached.on_disk.unwrap_or(0) + bytes);
            }
        }
        cached
    }
}

impl Watched {
    /// Asks for stripes while there is time. Whether it came around to its last one.
    fn measure(&mut self, has_time: impl Fn() -> bool) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(self.name.as_c_str(), flags, Mode::empty()) {
            Ok(file) => file,
            // Deleted: what was cached went with it, unless somebody has it open still, which we cannot see.
            Err(rustix::io::Errno::NOENT) => {
                self.stripes.clear();
                self.now = Resident::Bytes(0);
                return true;
            }
            Err(_) => {
                self.now = Resident::Unknown("not your file");
                return true;
            }
        };
        self.size = rustix::fs::fstat(&file).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        self.in_memory = rustix::fs::fstatfs(&file).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(TMPFS));
        self.stripes.resize(usize::try_from(self.size.div_ceil(self.stripe)).unwrap_or(0), None);
        while self.next < self.stripes.len() {
            let start = self.next as u64 * self.stripe;
            match of_range(file.as_fd(), start..start + self.stripe) {
                Resident::Bytes(bytes) => self.stripes[self.next] = Some(bytes),
                unknown @ Resident::Unknown(_) => {
                    self.now = unknown;
                    return true;
                }
            }
            self.next += 1;
            if !has_time() {
                break;
            }
        }
        if let Some(bytes) = self.stripes.iter().copied().sum() {
            self.now = Resident::Bytes(bytes);
            self.first.get_or_insert(bytes);
            self.peak = self.peak.max(bytes);
        }
        let around = self.next >= self.stripes.len();
        if around {
            self.next = 0;
        }
        around && has_time()
    }

    /// How much more of it one process came to have mapped while it was watched, as far as that was looked at.
    pub fn mapped_rise(&self) -> u64 {
        self.mapped_peak.unwrap_or(0).saturating_sub(self.mapped_first)
    }

    /// How much of it came into the cache while it was watched, at the most.
    pub fn rise(&self) -> u64 {
        self.peak.saturating_sub(self.first.unwrap_or(self.peak))
    }
}

/// The files behind the descriptors of a process.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let paths = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    paths
        .filter(|path| path.is_absolute() && !path.starts_with("/proc") && !path.starts_with("/sys"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_folders_and_globs_are_found_once_each() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("deep")).unwrap();
        for name in ["a.bin", "b.bin", "c[1].bin", "deep/d.bin"] {
            std::fs::write(root.join(name), vec![1; 10_000]).unwrap();
        }
        let ask = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| root.join(name).display().to_string()).collect();
            let files = Files::new(&names);
            let found: Vec<_> = files.list().iter().map(|file| file.path.clone()).collect();
            found
                .iter()
                .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(ask(&["a.bin"]), ["a.bin"]);
        assert_eq!(ask(&["?.bin", "a.bin"]), ["a.bin", "b.bin"]);
        assert_eq!(ask(&["c[1].bin"]), ["c[1].bin"]);
        assert_eq!(ask(&["."]), ["a.bin", "b.bin", "c[1].bin", "deep/d.bin"]);
        assert_eq!(ask(&["nothing"]), [""; 0]);
        let files = Files::new(&[root.join("nothing").display().to_string(), root.display().to_string()]);
        assert_eq!(files.missing(), [root.join("nothing").to_str().unwrap()]);
    }

    #[test]
    fn a_file_that_is_deleted_has_nothing_cached_and_one_that_is_replaced_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let mut files = Files::new(&[path.display().to_string()]);
        files.measure(Duration::from_secs(1));
        assert_eq!(files.list()[0].now, Resident::Bytes(1 << 20), "just written");
        std::fs::write(folder.path().join("new"), vec![1; 2 << 20]).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        files.measure(Duration::from_secs(1));
        assert_eq!((files.list()[0].size, files.list()[0].now), (2 << 20, Resident::Bytes(2 << 20)));
        std::fs::remove_file(&path).unwrap();
        files.measure(Duration::from_secs(1));
        assert_eq!(files.list()[0].now, Resident::Bytes(0));
        assert_eq!(files.list()[0].peak, 2 << 20);
    }

    #[test]
    fn without_time_a_file_is_unknown_until_all_of_it_was_seen_and_exact_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        std::fs::write(&path, vec![1; 40 << 20]).unwrap();
        let mut files = Files::new(&[path.display().to_string()]);
        for _ in 0..4 {
            assert_eq!(files.measure(Duration::ZERO).on_disk.or(files.list()[0].now.bytes()), None);
        }
        files.measure(Duration::ZERO);
        assert_eq!(files.list()[0].now, Resident::Bytes(40 << 20));
        // It may be cut and grow again meanwhile.
        std::fs::write(&path, vec![1; 10 << 20]).unwrap();
        files.measure(Duration::from_secs(1));
        files.measure(Duration::from_secs(1));
        assert_eq!(files.list()[0].now, Resident::Bytes(10 << 20));
        std::fs::write(&path, vec![1; 90 << 20]).unwrap();
        files.measure(Duration::from_secs(1));
        assert_eq!(files.list()[0].now, Resident::Bytes(90 << 20));
    }

    #[test]
    fn what_we_have_open_is_found_by_itself() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SMALLEST_FOUND).unwrap();
        let mut files = Files::new(&["auto".into()]);
        files.look_at(std::iter::once(std::process::id()));
        let path = file.path().canonicalize().unwrap();
        assert!(files.list().iter().any(|watched| watched.path == path));
        let mut nothing = Files::new(&[]);
        nothing.look_at(std::iter::once(std::process::id()));
        assert!(nothing.list().is_empty());
    }
}
