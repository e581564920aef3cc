//! How far the work is, on disk: enough to go on after a kill at any moment.
//!
//! What is being made lies in a folder of its own inside the output, `.lowtide-prepare`, until it is whole. Now and
//! then all open files are synced and their lengths written down together with the place in the input. A second run
//! cuts the files to those lengths and reads on from that place: the bytes are those of a run that was left alone.

use crate::deal::{HEAD, SPOOLS};
use crate::documents::Mark;
use crate::job::Job;
use lowtide::door::Words;
use lowtide::format::manifest::{self, Counts, Manifest, Shard};
use lowtide::store::Storage;
use lowtide::{Error, Result, write};
use rustix::fs::{FlockOperation, OFlags};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = ".lowtide-prepare";
/// Flags of `open`: neither a link nor a pipe of the name of a file of ours is followed or waited for.
#[expect(clippy::cast_possible_wrap, reason = "two bits of flags, as the standard library wants them")]
const NOFOLLOW: i32 = OFlags::NOFOLLOW.bits() as i32;
#[expect(clippy::cast_possible_wrap, reason = "two bits of flags, as the standard library wants them")]
pub const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;
/// A state has a line for each shard.
const MAX_STATE: u64 = 256 << 20;

/// Where reading stands: `documents` of a source are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub source: usize,
    pub documents: u64,
    pub mark: Option<Mark>,
    /// Documents of all sources, those that were passed over included.
    pub number: u64,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Whether all documents are in the spools, and are being dealt.
    pub dealing: bool,
    pub place: Place,
    pub counts: Counts,
    /// What was wrong with the first documents that were passed over.
    pub said: Vec<String>,
    /// The shards that are being written.
    pub open: Vec<OpenShard>,
    /// Those that are whole, of each split.
    pub done: [Vec<Shard>; 2],
    /// The lengths of the spools.
    pub spools: Vec<u64>,
}

impl State {
    /// Reads and checks what `path` contains.
    pub fn parse(path: &Path, bytes: &[u8], job: &Job) -> Result<Self> {
        let state: Self = serde_json::from_slice(bytes).map_err(|error| damaged(path, &error.to_string()))?;
        match state.nonsense(job) {
            Some(what) => Err(damaged(path, what)),
            None => Ok(state),
        }
    }

    /// Tokens that are written already, of `width` bytes.
    pub fn tokens(&self, width: u64) -> u64 {
        self.done.iter().flatten().map(|shard| shard.tokens).sum::<u64>()
            + self.open.iter().map(|open| open.tokens).sum::<u64>()
            + self.spooled(width)
    }

    /// Tokens that are in the spools, to be dealt.
    pub fn spooled(&self, width: u64) -> u64 {
        let heads = HEAD as u64 * self.counts.documents;
        self.spools.iter().sum::<u64>().saturating_sub(heads) / width
    }

    /// What cannot be so, in words: the file may have been damaged, or be somebody else's.
    fn nonsense(&self, job: &Job) -> Option<&'static str> {
        let Place { source, documents, mark, number } = self.place;
        let marked = mark.is_none_or(|mark| {
            // A pipe has no size that could be known.
            job.sources.get(source).is_some_and(|file| file.bytes == 0 || mark.offset <= file.bytes)
                && (1..1 << 62).contains(&mark.line)
        });
        let Counts { documents: written, skipped, empty, text_bytes, longest } = self.counts;
        let small = |numbers: &[u64]| numbers.iter().all(|&number| number < 1 << 62);
        let shards = self.done.iter().flatten().flat_map(|shard| [shard.tokens, shard.documents]);
        let open =
            self.open.iter().flat_map(|open| [open.bytes, open.index_bytes, open.tokens, open.documents]);
        let sums = [shards.fold(0, u64::saturating_add), open.fold(0, u64::saturating_add)];
        let wrong = [
            (source > job.sources.len() || !marked, "a place that is not in the input"),
            (
                !small(&[documents, number, written, skipped, empty, text_bytes, longest])
                    || !small(&sums)
                    || !small(&[self.spools.iter().copied().fold(0, u64::saturating_add)]),
                "numbers that nothing could be counted to",
            ),
            (![0, SPOOLS].contains(&self.spools.len()), "another number of spools"),
            (self.open.iter().any(|open| open.split >= self.done.len()), "a split that there is not"),
        ];
        wrong.into_iter().find_map(|(wrong, what)| wrong.then_some(what))
    }
}

/// A shard that is being written, as far as it was synced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenShard {
    pub split: usize,
    pub bytes: u64,
    pub index_bytes: u64,
    pub tokens: u64,
    pub documents: u64,
    pub crc: u32,
    pub index_crc: u32,
}

/// What was found in the output folder.
#[derive(Debug)]
pub enum Found {
    /// Nothing of ours.
    New,
    /// The beginning of this very job.
    Begun(Box<State>),
    /// All of it.
    Done(Box<Manifest>),
}

/// The folder of what is being made. One process at a time has it.
#[derive(Debug)]
pub struct Work {
    output: PathBuf,
    folder: PathBuf,
    _lock: File,
}

impl Work {
    /// Takes the folder for `job`.
    ///
    /// # Errors
    /// [`Error::Argument`] where it holds another job's files, or another process is at work in it.
    pub fn open(output: &Path, job: &Job) -> Result<(Self, Found)> {
        Self::open_for(output, output, job)
    }

    /// The same of a folder whose files go to `address`, which is what messages name.
    pub fn open_for(address: &Path, output: &Path, job: &Job) -> Result<(Self, Found)> {
        let folder = output.join(FOLDER);
        let begun = fs::symlink_metadata(&folder).is_ok();
        if !begun && !output.join(manifest::NAME).exists() {
            strangers(output)?;
        }
        let work = Self::lock(output, folder)?;
        if let Some(manifest) = read_manifest(output)? {
            let earlier = Job { settings: manifest.settings.clone(), sources: manifest.sources.clone() };
            if let Some(difference) = job.difference(&earlier) {
                if !begun {
                    work.clear()?;
                }
                let what = "holds tokens that were made in another way";
                return Err(other(address, what, difference, "give another folder"));
            }
            return Ok((work, Found::Done(Box::new(manifest))));
        }
        let Some(earlier) = work.load::<Job>("job.json")? else {
            work.save("job.json", job)?;
            return Ok((work, Found::New));
        };
        if let Some(difference) = job.difference(&earlier) {
            // It stopped at once: whoever does what the message hinted at loses nothing.
            if work.has_made_nothing() && strangers(output).is_ok() {
                work.save("job.json", job)?;
                return Ok((work, Found::New));
            }
            let what = "holds the beginning of something else";
            let hint = "give another folder, or what was asked for then, to finish it";
            return Err(other(address, what, difference, hint));
        }
        if *job != earlier {
            work.save("job.json", job)?; // from now on some may be skipped
        }
        let path = work.folder.join("state.json");
        let Some(bytes) = read_small(&path, MAX_STATE)? else { return Ok((work, Found::New)) };
        let state = State::parse(&path, &bytes, job)?;
        Ok((work, Found::Begun(Box::new(state))))
    }

    /// Takes a folder that has nothing in it, for work that begins anew after a kill.
    pub fn fresh(output: &Path) -> Result<Self> {
        Self::lock(output, output.join(FOLDER))
    }

    /// Makes the folder, and takes it for this process alone.
    fn lock(output: &Path, folder: PathBuf) -> Result<Self> {
        let wrong = |error| Error::io(&folder, "make the folder", error);
        fs::create_dir_all(output).map_err(|error| Error::io(output, "make the folder", error))?;
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(wrong)?,
        }
        // What is in it will be removed: that must not be another folder that a link leads to.
        if !fs::symlink_metadata(&folder).map_err(wrong)?.is_dir() {
            return Err(Error::argument(
                format!("{}: this is no folder of ours", folder.display()),
                "remove it, or give another folder",
            ));
        }
        let path = folder.join("lock");
        let wrong = |error| Error::io(&path, "make the file", error);
        loop {
            let mut options = File::options();
            options.write(true).create(true).truncate(false).custom_flags(NOFOLLOW);
            let file = options.open(&path).map_err(wrong)?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
                Error::argument(
                    format!("{}: another process is preparing tokens in this folder", output.display()),
                    "wait for it, or give another folder",
                )
            })?;
            // Whoever had it may have removed it since it was opened: then it keeps nobody else out.
            let ours = file.metadata().map_err(wrong)?;
            if fs::symlink_metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino()))
            {
                return Ok(Self { output: output.to_owned(), folder, _lock: file });
            }
        }
    }

    /// Whether nothing is there but what was asked for.
    fn has_made_nothing(&self) -> bool {
        let known = |name: &OsStr| name == "lock" || name == "job.json";
        fs::read_dir(&self.folder)
            .is_ok_and(|mut names| names.all(|entry| entry.is_ok_and(|entry| known(&entry.file_name()))))
    }

    /// Where a file of this name is while it is being made.
    pub fn part(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.part"))
    }

    /// Where it is when it is whole.
    pub fn whole(&self, name: &str) -> PathBuf {
        self.output.join(name)
    }

    /// The folder itself.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Takes away what an earlier run has written down, so that nobody goes on from there.
    pub fn forget_state(&self) -> Result<()> {
        let path = self.folder.join("state.json");
        fs::remove_file(&path).map_err(|error| Error::io(&path, "remove the file", error))
    }

    /// Writes down how far it is. All that it speaks of is synced by then.
    pub fn save_state(&self, state: &State) -> Result<()> {
        self.save("state.json", state)
    }

    fn save(&self, name: &str, what: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec_pretty(what)
            .map_err(|error| Error::io(&self.folder, "write down the state", error))?;
        write::replace(&self.folder.join(name), &bytes)
    }

    fn load<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<Option<T>> {
        let path = self.folder.join(name);
        let Some(bytes) = read_small(&path, MAX_STATE)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| damaged(&path, &error.to_string()))
    }

    /// Writes the manifest, and takes away what was only for the work.
    pub fn finish(self, manifest: &Manifest) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(manifest)
            .map_err(|error| Error::io(&self.output, "write the manifest", error))?;
        bytes.push(b'\n');
        self.place(manifest::NAME, &bytes)?;
        self.clear()
    }

    /// A small file of the output: made where what is not whole lies, so that a kill leaves nothing beside the shards.
    pub fn place(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let part = self.part(name);
        write::replace(&part, bytes)?;
        write::rename(&part, &self.whole(name))
    }

    /// Takes away the work folder and what we made in it, nothing else.
    pub fn clear(self) -> Result<()> {
        let wrong = |error| Error::io(&self.folder, "clear the folder", error);
        for entry in fs::read_dir(&self.folder).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            let ours = path.extension().is_some_and(|end| end == "part" || end == "json" || end == "tmp")
                || path.file_name().is_some_and(|name| name == "lock");
            if ours {
                fs::remove_file(&path).map_err(wrong)?;
            }
        }
        let _ = fs::remove_dir(&self.folder); // what is not ours keeps it
        Ok(())
    }
}

fn damaged(path: &Path, found: &str) -> Error {
    let few: String = found.chars().take(200).map(|c| if c.is_control() { '?' } else { c }).collect();
    Error::Format {
        path: path.to_owned(),
        offset: 0,
        expected: "how far an earlier run was".into(),
        found: few,
        hint: "give another folder, or empty this one, to begin again".into(),
    }
}

/// The manifest of a folder, if it has one.
pub fn read_manifest(folder: &Path) -> Result<Option<Manifest>> {
    read_manifest_from(folder, &Storage::default())
}

/// The same, wherever it is.
pub fn read_manifest_from(folder: &Path, storage: &Storage) -> Result<Option<Manifest>> {
    match lowtide::shards::load_manifest_from(folder, storage) {
        Err(Error::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        answer => answer.map(Some),
    }
}

/// A file of a limited size, if there is one.
fn read_small(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let wrong = |error| Error::io(path, "read the file", error);
    // A pipe of that name would have us wait for ever.
    let file = match File::options().read(true).custom_flags(NOFOLLOW | NONBLOCK).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        answer => answer.map_err(wrong)?,
    };
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(wrong)?;
    Ok(Some(bytes))
}

fn other(output: &Path, what: &str, difference: Words, hint: &'static str) -> Error {
    Error::argument(Words::from(format!("{}: the folder {what}: ", output.display())) + difference, hint)
}

/// That a folder has no files that ours could be taken for, or could replace.
fn strangers(output: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(output) else { return Ok(()) };
    let ours = |name: &str| {
        (name.starts_with("train") || name.starts_with("val"))
            && [".bin", ".idx", ".ds", ".npy"].iter().any(|end| name.contains(end))
    };
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    match names.find(|name| ours(name)) {
        Some(name) => Err(Error::argument(
            format!("{}: the folder has a {name} already, of which nothing is known here", output.display()),
            "give another folder, or move it away",
        )),
        None => Ok(()),
    }
}
