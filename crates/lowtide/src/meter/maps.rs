//! What processes have mapped at all, from `/proc/PID/maps`.
//!
//! The kernel tells that without a walk through the page tables, so it is cheap. It does not tell which
//! pages are there; but a file that six processes have mapped cannot take six times its size, and what
//! nobody has mapped needs no dear look.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::fields::number;

/// One line of `maps` that is about a file:
/// `7f00-7f01 r--s 00000000 fe:00 1234    /data/train.bin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    rights: &'a [u8],
    length: u64,
    offset: u64,
    device: &'a [u8],
    inode: u64,
    pub(super) path: &'a [u8],
}

/// The parts of files in `maps`, in its order.
pub(super) fn parts(text: &[u8]) -> impl Iterator<Item = Part<'_>> {
    text.split(|byte| *byte == b'\n').filter_map(part)
}

fn part(line: &[u8]) -> Option<Part<'_>> {
    let path = &line[line.iter().position(|byte| *byte == b'/')?..];
    let mut words = line.split(|byte| *byte == b' ');
    let (range, rights, offset, device) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let inode = number(words.next()?)?;
    let middle = range.iter().position(|byte| *byte == b'-')?;
    let length = hex(&range[middle + 1..])?.checked_sub(hex(&range[..middle])?)?;
    Some(Part { rights, length, offset: hex(offset)?, device, inode, path })
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The data files in `maps`. A file with an executable part is a program.
pub(super) fn data_files(text: &[u8]) -> Vec<PathBuf> {
    let (mut data, mut programs) = (Vec::new(), HashSet::new());
    for part in parts(text) {
        if part.path.ends_with(b" (deleted)") || part.path.windows(3).any(|part| part == b".so") {
            continue;
        }
        if part.rights.contains(&b'x') {
            programs.insert(part.path);
        } else if !data.contains(&part.path) {
            data.push(part.path);
        }
    }
    data.retain(|path| !programs.contains(path));
    data.into_iter().map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path))).collect()
}

/// The `Rss` of every part of a file in `/proc/PID/smaps`: a line as in `maps`, then lines `Name:   17 kB`.
pub(super) fn resident_bytes(text: &[u8]) -> Vec<(&[u8], u64)> {
    let mut found = Vec::new();
    let mut path = None;
    for line in text.split(|byte| *byte == b'\n') {
        if line.first().is_some_and(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)) {
            path = line.iter().position(|byte| *byte == b'/').map(|start| &line[start..]);
        } else if let (Some(path), Some(rest)) = (path, line.strip_prefix(b"Rss:")) {
            found.push((path, number(rest).unwrap_or(0).saturating_mul(1024)));
        }
    }
    found
}

/// How much of one file several processes have mapped, at the most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) path: PathBuf,
    /// Whether it may live in memory: on a device without a number of its own, as a tmpfs is.
    pub(super) may_be_memory: bool,
    /// How many processes have some of it.
    pub(super) processes: u32,
    added: u64,
    end: u64,
    last: usize,
}

impl Extent {
    /// So many bytes of it can be in memory through these maps: what they cover together, and not more
    /// than the file has up to their end.
    pub(super) fn bytes(&self) -> u64 {
        self.added.min(self.end)
    }
}

/// All files that some processes have mapped, each one once however many have it.
#[derive(Debug, Default)]
pub(super) struct Extents {
    files: HashMap<(u64, u64), Extent>,
    processes: usize,
}

impl Extents {
    /// Adds one more process by its `maps`.
    pub(super) fn add(&mut self, text: &[u8]) {
        self.processes += 1;
        for part in parts(text) {
            // `fe:00` names a disk, `00:1f` a filesystem without one.
            let mut device = part.device.split(|byte| *byte == b':').map(|digits| hex(digits).unwrap_or(0));
            let (major, minor) = (device.next().unwrap_or(0), device.next().unwrap_or(0));
            let extent = self.files.entry((major << 32 | minor, part.inode)).or_insert_with(|| Extent {
                path: std::ffi::OsStr::from_bytes(part.path).into(),
                may_be_memory: major == 0,
                ..Extent::default()
            });
            if extent.last != self.processes {
                extent.last = self.processes;
                extent.processes += 1;
            }
            extent.added = extent.added.saturating_add(part.length);
            extent.end = extent.end.max(part.offset.saturating_add(part.length));
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Extent> {
        self.files.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_data_segments_are_not_data() {
        let maps = b"\
5500-5501 r--p 00000000 fe:00 1  /usr/bin/python3.11
5501-5502 r-xp 00001000 fe:00 1  /usr/bin/python3.11
7f00-7f01 r--p 00000000 fe:00 2  /usr/lib/libc.so.6
7f02-7f03 r--s 00000000 fe:00 3  /data/my train.bin
7f04-7f05 rw-s 00000000 00:01 4  /dev/shm/torch_1
7f06-7f07 r--s 00000000 fe:00 5  /data/old.bin (deleted)
7f08-7f09 rw-p 00000000 00:00 0  [heap]
7f0a-7f0b rw-p 00000000 00:00 0
";
        let found = data_files(maps);
        assert_eq!(found, [PathBuf::from("/data/my train.bin"), PathBuf::from("/dev/shm/torch_1")]);
    }

    #[test]
    fn what_is_mapped_of_a_file_is_added_up() {
        let smaps = b"\
7f00-7f01 r--s 00000000 fe:00 3  /data/my train.bin
Size:                 64 kB
Rss:                  12 kB
Pss:                   4 kB
7f02-7f03 r--s 00010000 fe:00 3  /data/my train.bin
Rss:                   8 kB
af04-af05 rw-p 00000000 00:00 0
Rss:                 999 kB
";
        let path = &b"/data/my train.bin"[..];
        assert_eq!(resident_bytes(smaps), [(path, 12 << 10), (path, 8 << 10)]);
        assert_eq!(resident_bytes(b"Rss: 5 kB\n\nRss:\n7f"), []);
    }

    #[test]
    fn a_file_of_several_processes_counts_once_and_only_what_their_maps_cover() {
        let whole = b"7f000000-7f100000 r--s 00000000 fe:00 3  /data/train.bin\n";
        let window = b"7f000000-7f001000 r--s 40000000 fe:00 4  /data/far.bin\n";
        let memory = b"7f000000-7f002000 rw-s 00000000 00:1f 4  /dev/shm/x (deleted)\n";
        let mut extents = Extents::default();
        for text in [&whole[..], whole, whole, window, memory] {
            extents.add(text);
        }
        let mut found: Vec<_> = extents
            .files()
            .map(|extent| {
                (extent.path.display().to_string(), extent.bytes(), extent.processes, extent.may_be_memory)
            })
            .collect();
        found.sort();
        let wanted = [
            ("/data/far.bin".to_owned(), 0x1000, 1, false),
            ("/data/train.bin".to_owned(), 0x0010_0000, 3, false),
            ("/dev/shm/x (deleted)".to_owned(), 0x2000, 1, true),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn junk_is_no_part() {
        for junk in
            [&b""[..], b"/", b"7f /x", b"7f00-zz r-- 0 fe:00 1 /x", b"9-1 r--s 0 fe:00 1 /x", b"- - - - - /"]
        {
            assert_eq!(parts(junk).count(), 0, "{}", String::from_utf8_lossy(junk));
        }
    }
}
