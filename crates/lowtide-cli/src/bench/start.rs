//! In which state the page cache is when a way begins: cold and proven so, warm, or as it was found.

use crate::draw::Progress;
use crate::trial;
use lowtide::budget::human;
use lowtide::meter::{self, Resident};
use lowtide::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing: cold where that can be.
    None,
    Cold,
    Warm,
}

/// What it will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing of the file is in the page cache.
    Cold,
    /// All of it is.
    Warm,
    /// Nobody knows, or nobody can change it.
    AsFound,
}

/// Pages on their way from one list of the kernel to another escape a drop: it is tried again, so often.
const DROPS: usize = 5;

impl Start {
    /// Decides, brings the page cache there once, and says in a note what could not be.
    pub fn decide(wish: Wish, paths: &[PathBuf], progress: &Progress) -> Result<(Self, Option<String>)> {
        if wish == Wish::Warm {
            let (size, room) = (size(paths)?, meter::room());
            if size > room.bytes {
                return Err(Error::unsupported(
                    format!(
                        "{}: {} cannot be warm, there is room for {}: {}",
                        named(paths),
                        human(size),
                        human(room.bytes),
                        room.because
                    ),
                    "--cold measures what a file larger than memory costs",
                ));
            }
            let unproven = match (Self::Warm.prepare(paths, progress)?, trial::cached(paths)) {
                (Some(left), _) => Some(left),
                (None, Resident::Unknown(why)) => {
                    Some(format!("the file was read in first; whether it stayed is unknown: {why}"))
                }
                (None, Resident::Bytes(_)) => None,
            };
            return Ok((Self::Warm, unproven));
        }
        // Who may not ask about the page cache does not own the file, and leaves it alone.
        let why = match trial::cached(paths) {
            Resident::Bytes(_) => Self::Cold.prepare(paths, progress)?,
            Resident::Unknown(why) => Some(format!("its page cache is unknown: {why}")),
        };
        match why {
            None => Ok((Self::Cold, None)),
            Some(why) if wish == Wish::Cold => Err(Error::unsupported(
                format!("{}: the file cannot be made cold: {why}", named(paths)),
                "leave --cold out to measure with the page cache as it is, or use --warm",
            )),
            Some(why) => Ok((
                Self::AsFound,
                Some(format!("not a cold start, the page cache is as it was found: {why}")),
            )),
        }
    }

    /// Brings the page cache there, and says what could not be.
    pub fn prepare(self, paths: &[PathBuf], progress: &Progress) -> Result<Option<String>> {
        match self {
            Self::Cold => {
                let mut left = 0;
                for _ in 0..DROPS {
                    match trial::chill(paths)? {
                        Resident::Bytes(0) => return Ok(None),
                        Resident::Bytes(bytes) => left = bytes,
                        Resident::Unknown(why) => {
                            return Ok(Some(format!("its page cache is unknown: {why}")));
                        }
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                Ok(Some(format!(
                    "{} stay in the page cache: another process has them mapped, or it is a tmpfs",
                    human(left)
                )))
            }
            Self::Warm => {
                let size = size(paths)?;
                let missing = || trial::cached(paths).bytes().map(|cached| size.saturating_sub(cached));
                if missing() != Some(0) {
                    progress.say("reading the file into the page cache …");
                    paths.iter().try_for_each(|path| read_all(path))?;
                }
                let gone = missing().filter(|&bytes| bytes > 0);
                Ok(gone.map(|bytes| format!("{} of it left the page cache at once", human(bytes))))
            }
            Self::AsFound => Ok(None),
        }
    }

    /// For people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
            Self::AsFound => "as found",
        }
    }
}

fn size(paths: &[PathBuf]) -> Result<u64> {
    let size = |path: &PathBuf| {
        Ok(std::fs::metadata(path).map_err(|e| Error::io(path, "ask for the file's size", e))?.len())
    };
    paths.iter().map(size).sum()
}

/// The files in a message: the first, and how many more.
fn named(paths: &[PathBuf]) -> String {
    match paths {
        [] => String::new(),
        [one] => one.display().to_string(),
        [first, more @ ..] => format!("{} and {} more", first.display(), more.len()),
    }
}

fn read_all(path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::io(path, "read the file", e);
    let mut file = File::open(path).map_err(failed)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).map_err(failed)? > 0 {}
    Ok(())
}
