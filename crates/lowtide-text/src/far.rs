//! Folders of token files in an object store: made on a local disk as ever, sent when they are whole, the manifest last.
//!
//! So whoever reads the folder sees all of it or no manifest; a kill at any moment is gone on from as on a disk, and what
//! was sent is not sent again. What is there already of the same work is not made again.

use crate::prepare::{Progress, Step, prepare_for};
use crate::{Settings, ShuffleDocuments, ShuffledDocuments};
use lowtide::format::manifest::{self, Manifest};
use lowtide::write::{Existing, Far, Staged};
use lowtide::{Budget, Error, Interrupt, Result, SortStep, Sorting, meter};
use std::fs;
use std::path::{Path, PathBuf};

/// Makes token files of text in a folder of an object store, as [`prepare`](crate::prepare()) does on a disk.
///
/// # Errors
/// As [`prepare`](crate::prepare()), and as the store has it.
pub fn prepare_far(
    names: &[PathBuf],
    output: &Path,
    far: &Far,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
    interrupt: Interrupt<'_>,
) -> Result<Manifest> {
    let folder = Folder::open(far, output, settings.budget)?;
    let mut last = Progress::default();
    let mut keep = |at: &Progress| {
        last.clone_from(at);
        progress(at);
    };
    let manifest =
        folder.made(prepare_for(output, names, &folder.files(), settings, &mut keep, interrupt))?;
    folder.send(
        &mut |sent, total| {
            let (step, bytes, read) = (Step::Sending, total, sent);
            progress(&Progress { step, bytes, read, resumed: 0, ..last.clone() });
        },
        interrupt,
    )?;
    Ok(manifest)
}

impl ShuffleDocuments {
    /// The same in a folder of an object store.
    ///
    /// # Errors
    /// As [`run`](Self::run), and as the store has it.
    pub fn run_far(
        &self,
        output: &Path,
        far: &Far,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<ShuffledDocuments> {
        let folder = Folder::open(far, output, Some(self.budget))?;
        let made = folder.made(self.run(&folder.files(), progress, interrupt))?;
        let mut tell = |written, total| {
            progress(Sorting { step: SortStep::Sending, written, total, before: 0, passes: 2 });
        };
        folder.send(&mut tell, interrupt)?;
        Ok(made)
    }
}

/// A folder here that becomes one there.
pub struct Folder {
    staged: Staged,
    url: PathBuf,
    /// Whether all of it is there already: then there is nothing here but its manifest.
    is_there: bool,
}

impl Folder {
    /// For files that go to `url`, made by work that finds out itself whether what is there is its own.
    ///
    /// # Errors
    /// [`Error::Argument`] where something else is there.
    fn open(far: &Far, url: &Path, budget: Option<u64>) -> Result<Self> {
        let new = Self::begin(far, url, budget.map(Budget::new).transpose()?)?;
        let there = new.url.join(manifest::NAME);
        let Err(refused) = new.staged.may_write(&there, Existing::Refuse) else {
            return match new.staged.stranger(&new.url)? {
                None => Ok(new),
                Some(stranger) => Err(Error::argument(
                    format!(
                        "{}: there is something else in this folder: {}",
                        url.display(),
                        stranger.display()
                    ),
                    "give a folder that has nothing in it",
                )),
            };
        };
        let is_empty = fs::read_dir(new.files()).is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty || !new.staged.fetch(&there, &new.files().join(manifest::NAME))? {
            return Err(refused.with_hint("give another folder"));
        }
        Ok(Self { is_there: true, ..new })
    }

    /// For files that go to `url`.
    ///
    /// # Errors
    /// As the system has it.
    pub fn begin(far: &Far, url: &Path, budget: Option<Budget>) -> Result<Self> {
        let budget = budget.unwrap_or_else(|| Budget::default_for(meter::room().bytes));
        let staged = Staged::open(far, url, &budget)?;
        Ok(Self { staged, url: url.to_owned(), is_there: false })
    }

    /// Where files are made.
    pub fn files(&self) -> PathBuf {
        self.staged.files()
    }

    /// That the folder there may be written.
    ///
    /// # Errors
    /// [`Error::Io`] where there is one that is not to be replaced.
    pub fn may_write(&self, existing: Existing) -> Result<()> {
        self.staged.may_write(&self.url.join(manifest::NAME), existing)
    }

    /// What became of the work. A manifest that came from there goes where the work is another.
    fn made<T>(&self, made: Result<T>) -> Result<T> {
        if self.is_there && made.is_err() {
            let _ = fs::remove_dir_all(self.files());
        }
        made
    }

    /// Sends all files, the manifest last, and takes them away here.
    fn send(self, progress: &mut dyn FnMut(u64, u64), interrupt: Interrupt<'_>) -> Result<()> {
        if !self.is_there {
            let files = self.files();
            self.send_from(&files, Existing::Replace, progress, interrupt)?;
        }
        self.staged.remove()
    }

    /// Sends all files of a folder, the manifest last.
    ///
    /// # Errors
    /// As the store has it.
    pub fn send_from(
        &self,
        folder: &Path,
        existing: Existing,
        progress: &mut dyn FnMut(u64, u64),
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let wrong = |error| Error::io(folder, "look at the folder", error);
        let mut pairs = Vec::new();
        for entry in fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                pairs.push((entry.path(), self.url.join(entry.file_name())));
            }
        }
        pairs.sort_by_key(|(path, _)| (path.ends_with(manifest::NAME), path.clone()));
        self.staged.send(&pairs, existing, progress, interrupt)
    }

    /// All is there: what is here goes.
    ///
    /// # Errors
    /// As the system has it.
    pub fn remove(self) -> Result<()> {
        self.staged.remove()
    }
}
