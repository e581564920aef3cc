//! The demo's file: where it goes, how large it is, and what is in it.

use crate::bench::machine::Disk;
use crate::draw::Progress;
use crate::signals;
use lowtide::budget::human;
use lowtide::order::{Order as _, Permutation};
use lowtide::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of one row: 128 float32.
pub const ROW: u64 = 512;
/// The file, where nobody says otherwise.
const USUAL: u64 = 1 << 30;
/// The least: in a quarter of it a Python with NumPy still runs.
pub const LEAST: u64 = 256 << 20;
/// The most that is written unasked to exceed the room: a slow disk takes most of a minute for it.
const MOST: u64 = 8 << 30;
/// What is left of a disk for everybody else.
const SPARE: u64 = 1 << 30;
/// The order's seed.
pub const SEED: u64 = 1;

/// A folder on a disk, and what is free there.
#[derive(Debug)]
pub struct Place {
    pub folder: PathBuf,
    pub free: u64,
}

impl Place {
    /// The first folder of `asked`, the temporary one, `/var/tmp` and the current one that has a disk under it,
    /// with room for a file.
    pub fn find(asked: Option<&Path>, bytes: u64) -> Result<Self> {
        let mut folders = vec![std::env::temp_dir(), "/var/tmp".into(), ".".into()];
        if let Some(asked) = asked {
            folders = vec![asked.to_owned()];
        }
        let mut refused = Vec::new();
        for folder in folders {
            match Self::at(folder.clone(), bytes) {
                Ok(place) => return Ok(place),
                Err(why) => refused.push(format!("{}: {why}", folder.display())),
            }
        }
        Err(Error::unsupported(
            format!("there is no place for a file of {}: {}", human(bytes), refused.join("; ")),
            "--dir names a folder on a disk, --size a smaller file",
        ))
    }

    fn at(folder: PathBuf, bytes: u64) -> Result<Self, String> {
        let disk = rustix::fs::statvfs(&folder).map_err(|e| e.to_string())?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        match Disk::under(&folder).filesystem.as_deref() {
            Some(memory @ ("tmpfs" | "ramfs")) => Err(format!("a {memory} is memory itself")),
            _ if free < bytes => Err(format!("{} are free", human(free))),
            _ => Ok(Self { folder, free }),
        }
    }
}

/// How large the file is, where memory can be limited to a part of it.
pub fn usual(asked: Option<u64>, free: u64) -> u64 {
    let possible = free.saturating_sub(SPARE.min(free / 4)) / LEAST * LEAST;
    asked.unwrap_or(USUAL.min(possible)).max(LEAST)
}

/// How large it is where nothing limits memory but the room that there is: larger than that, if that can be
/// written in a demo's time.
pub fn beyond(room: u64, free: u64) -> Option<u64> {
    let bytes = (room / 4 * 5).next_multiple_of(LEAST);
    (bytes <= MOST && bytes.saturating_add(SPARE) <= free).then_some(bytes)
}

/// Writes rows whose every number is the row's number, and beside them the order in which Lowtide will read
/// them, for whoever is to read the same.
pub fn write(rows_path: &Path, order_path: &Path, bytes: u64, progress: &Progress) -> Result<()> {
    let rows = bytes / ROW;
    let mut file = Npy::create(rows_path, "<f4", &format!("{rows}, {}", ROW / 4))?;
    for row in 0..rows {
        #[allow(clippy::cast_precision_loss)] // the data is only an example
        let number = (row as f32).to_le_bytes();
        file.write(&number.repeat(usize::try_from(ROW / 4).unwrap_or(128)))?;
        if row % (1 << 14) == 0 {
            progress.say(&format!("writing {}: {} %", human(bytes), row * 100 / rows));
            if signals::asked().is_some() {
                return Err(Error::Interrupted);
            }
        }
    }
    progress.say(&format!("writing {}: to the disk …", human(bytes)));
    file.finish()?;
    let mut file = Npy::create(order_path, "<u4", &format!("{rows},"))?;
    let order = Permutation::new(rows, SEED, 0);
    let mut some = vec![0; 1 << 12];
    for start in (0..rows).step_by(some.len()) {
        let count = usize::try_from(rows - start).unwrap_or(usize::MAX).min(some.len());
        order.fill(start, &mut some[..count]);
        for &row in &some[..count] {
            file.write(&u32::try_from(row).unwrap_or(u32::MAX).to_le_bytes())?;
        }
    }
    file.finish()
}

/// A `.npy` file that is being written.
struct Npy<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> Npy<'a> {
    fn create(path: &'a Path, dtype: &str, shape: &str) -> Result<Self> {
        let file = File::create(path).map_err(|e| failed(path, e))?;
        let mut npy = Self { path, file: BufWriter::with_capacity(1 << 20, file) };
        let header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({shape}), }}");
        npy.write(b"\x93NUMPY\x01\x00\x76\x00")?;
        npy.write(format!("{header:117}\n").as_bytes())?;
        Ok(npy)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| failed(self.path, e))
    }

    fn finish(self) -> Result<()> {
        let file = self.file.into_inner().map_err(|e| failed(self.path, e.into_error()))?;
        file.sync_all().map_err(|e| failed(self.path, e))
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::io(path, "write the demo's file", error)
        .with_hint("--dir and --size choose another place and size")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_file_leaves_the_disk_some_space() {
        assert_eq!(usual(None, 100 * GIB), GIB);
        assert_eq!(usual(None, GIB), 768 << 20);
        assert_eq!(usual(None, 300 << 20), LEAST);
        assert_eq!(usual(Some(5 * GIB), GIB), 5 * GIB, "what was asked for is tried");
    }

    #[test]
    fn a_file_exceeds_the_room_only_where_that_is_quick() {
        assert_eq!(beyond(2 * GIB, 100 * GIB), Some(5 * GIB / 2));
        assert_eq!(beyond(2 * GIB, 3 * GIB), None, "the disk is too small");
        assert_eq!(beyond(23 * GIB, 1000 * GIB), None, "it would take minutes");
    }
}
