//! Files whose rows are those of others in shuffled order: what `shuffled(seed)` gives, written down.
//!
//! Two reads and two writes of the data; three where the budget is small for it. All that is written stays in a folder
//! beside the result until that is whole: the runs, the new files, and a state that says how far both are. Killed at any
//! moment, the next call goes on. What comes out is a function of the rows and the seed alone, so it is the same, byte for
//! byte.

mod pages;
mod planned;
mod shared;
#[cfg(test)]
mod tests;
mod work;

pub use shared::{Shared, Unit};

use crate::array::Array;
use crate::door::{OVERWRITE, Words};
use crate::error::{Error, Result};
use crate::format::{INTO_C_ORDER, Order as AxisOrder};
use crate::interrupt::Interrupt;
use crate::sort::Folder;
use crate::sort::plan::SHORT;
use crate::store::{Original, is_url};
use crate::write::{Existing, Far, Staged, name_as};
use crate::zip::Zip;
use planned::Planned;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use work::Files;

/// Rows of some files, to be written in shuffled order.
#[derive(Clone, Debug)]
pub struct ShuffleFiles {
    /// The files, all of them by the same permutation. Everything stays inside the budget that they were opened with.
    pub arrays: Vec<Array>,
    /// What to write, a file for each, all in one folder: `.npy` by its name, else rows and nothing before them.
    pub outputs: Vec<PathBuf>,
    /// Another seed, another order: that of a [`Shuffle`](crate::Shuffle).
    pub seed: u64,
    /// Another epoch, another order.
    pub epoch: u64,
    /// What happens to files that are there already.
    pub existing: Existing,
}

/// How far a shuffle of files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// What is being written.
    pub step: SortStep,
    /// Bytes that were written, in runs, in merged ones and in the new files.
    pub written: u64,
    /// How many there will be: the data as often as there are passes.
    pub total: u64,
    /// How many of them an earlier call has written, which was killed.
    pub before: u64,
    /// How often all of it is read and written: twice, or more where the budget is small for it.
    pub passes: u32,
}

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortStep {
    /// Runs: rows, sorted by where they go.
    Runs,
    /// Longer runs, made of those; where there are three passes.
    Merging,
    /// The new files.
    Rows,
    /// What is whole goes to an object store.
    Sending,
}

/// The second pass of a shuffle in a budget that is small for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortReads {
    /// About how many reads there are.
    pub reads: u64,
    /// About how many bytes each of them is.
    pub bytes: u64,
    /// A budget in which they are long.
    pub enough: u64,
}

/// What a shuffle of files has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shuffled {
    /// The new files.
    pub files: Vec<PathBuf>,
    /// Rows of each.
    pub rows: u64,
    /// Bytes of all rows.
    pub bytes: u64,
    /// How often they were read and written.
    pub passes: u32,
    /// How many of so many times as many bytes an earlier call had written.
    pub before: u64,
}

impl ShuffleFiles {
    /// Does it, or goes on with it.
    ///
    /// # Errors
    /// [`Error::Argument`] where the arrays do not have the same rows, [`Error::Io`] where a file is there already, the
    /// disk has no room, or something cannot be read or written, [`Error::Format`] where a file was changed meanwhile.
    pub fn run(&self, progress: &mut dyn FnMut(Sorting), interrupt: Interrupt<'_>) -> Result<Shuffled> {
        self.check()?;
        let first = self.outputs.first().ok_or_else(|| Error::argument("there is nothing to shuffle", ""))?;
        if is_url(first) {
            return self.run_far(&Far::default(), progress, interrupt);
        }
        let (folder, print) = (Folder::beside(first)?, self.print()?);
        let answer = self.run_in(&folder, &print, progress, interrupt);
        if answer.is_ok() || !folder.has_state() {
            folder.remove()?; // whole, or refused before anything was done
        }
        answer
    }

    /// The same for outputs that are addresses: files are made in a folder of this machine, and sent when all are whole.
    /// Killed at any moment, the next call goes on, and sends nothing twice.
    ///
    /// # Errors
    /// As [`run`](Self::run), and as the store has it.
    pub fn run_far(
        &self,
        far: &Far,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<Shuffled> {
        self.check()?;
        let first = self.outputs.first().ok_or_else(|| Error::argument("there is nothing to shuffle", ""))?;
        self.outputs.iter().try_for_each(|url| self.is_another(url))?;
        let staged = Staged::open(far, first, self.arrays[0].budget())?;
        self.outputs.iter().try_for_each(|url| staged.may_write(url, self.existing))?;
        let local = |url: &PathBuf| Some(staged.files().join(url.file_name()?));
        let nameless = || Error::argument("an address names no object", "such as s3://bucket/rows.npy");
        let outputs = self.outputs.iter().map(local).collect::<Option<Vec<_>>>().ok_or_else(nameless)?;
        let here = Self { outputs, existing: Existing::Replace, ..self.clone() };
        let print = here.print()?;
        let bytes = self.arrays.iter().map(Array::nbytes).sum();
        let (rows, mut passes) = (self.arrays[0].rows(), self.passes());
        let mut before = u64::from(passes) * bytes;
        if !staged.has_made(&print, &here.outputs) {
            Shuffled { passes, before, .. } = here.run(progress, interrupt)?;
            staged.note_made(&print)?;
        }
        let pairs: Vec<_> = here.outputs.into_iter().zip(self.outputs.clone()).collect();
        let mut tell = |written, total| {
            progress(Sorting { step: SortStep::Sending, written, total, before: 0, passes });
        };
        staged.send(&pairs, self.existing, &mut tell, interrupt)?;
        staged.remove()?;
        Ok(Shuffled { files: self.outputs.clone(), rows, bytes, passes, before })
    }

    fn run_in(
        &self,
        folder: &Folder,
        print: &str,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<Shuffled> {
        let (rows, bytes) = (self.arrays[0].rows(), self.arrays.iter().map(Array::nbytes).sum());
        let state = folder.state(print);
        let names: Vec<PathBuf> = (0..self.outputs.len()).map(|index| folder.file(index, "new")).collect();
        let whole = state.as_ref().filter(|state| self.is_whole(&names, state.whole.as_ref()));
        let (passes, before) = if let Some(whole) = whole {
            (whole.passes(), u64::from(whole.passes()) * bytes)
        } else {
            self.outputs.iter().try_for_each(|output| self.may_write(output))?;
            let state = state.filter(|state| state.whole.is_none());
            let files = Files::new(self, folder, state, print.to_owned())?;
            let (passes, before) = (files.passes(), files.written());
            files.run(&|| self.unchanged(folder, print), progress, interrupt)?;
            (passes, before)
        };
        self.name(&names)?;
        Ok(Shuffled { files: self.outputs.clone(), rows, bytes, passes, before })
    }

    /// Gives the new files their names.
    fn name(&self, made: &[PathBuf]) -> Result<()> {
        for (made, output) in made.iter().zip(&self.outputs) {
            // One that has its name already got it from an earlier call.
            if made.exists() {
                name_as(made, output, self.existing)?;
            }
        }
        Ok(())
    }

    /// Whether an earlier call has made all files, and each of them is there, under its name or waiting for it.
    fn is_whole(&self, made: &[PathBuf], ids: Option<&Vec<(u64, u64)>>) -> bool {
        let Some(ids) = ids else { return false };
        let is = |path: &Path, id| {
            std::fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == id)
        };
        let all = ids.iter().zip(made).zip(&self.outputs);
        ids.len() == self.outputs.len()
            && all.into_iter().all(|((&id, made), output)| is(made, id) || is(output, id))
    }

    /// Bytes that are needed on the disk beside what is there: the new files, and as much again until they are whole.
    pub fn space(&self) -> u64 {
        self.arrays.iter().map(|array| 2 * array.nbytes()).sum()
    }

    /// How often all of it is read and written, where no earlier call has begun with it: twice, or three times.
    pub fn passes(&self) -> u32 {
        if self.third_pass().is_some() { 3 } else { 2 }
    }

    /// A budget in which two passes are enough, where this one is so small for the data that there are three: the reads of
    /// the second one would be so short that moving all of it once more, for longer ones, takes less time.
    pub fn third_pass(&self) -> Option<u64> {
        let merges = |times| Planned::of(&self.arrays, times).is_some_and(|planned| planned.each > 1);
        merges(1).then(|| self.enough(&|times| !merges(times)).unwrap_or(u64::MAX))
    }

    /// What the second of two passes costs where the budget is small for the data: reads so short that a disk takes longer
    /// to find them than to read them. `None` where they are long, or no budget makes them longer, or there are three.
    pub fn short_reads(&self) -> Option<ShortReads> {
        let data: u64 = self.arrays.iter().map(Array::nbytes).sum();
        let Planned { piece: bytes, each, .. } = Planned::of(&self.arrays, 1)?;
        let is_long = |times| Planned::of(&self.arrays, times).is_some_and(|planned| planned.piece >= SHORT);
        let enough = self.enough(&is_long)?;
        let is_short = each == 1 && 0 < bytes && bytes < SHORT.min(data);
        is_short.then(|| ShortReads { reads: data / bytes, bytes, enough })
    }

    /// The budget, doubled until so many times of it are enough.
    fn enough(&self, is_enough: &dyn Fn(u64) -> bool) -> Option<u64> {
        let times = (1..40).map(|power| 1 << power).find(|&times| is_enough(times))?;
        Some(self.arrays[0].budget().limit().saturating_mul(times))
    }

    fn check(&self) -> Result<()> {
        Zip::new(self.arrays.clone())?;
        if self.arrays.len() != self.outputs.len() {
            return Err(Error::argument(
                format!("{} files are to be made of {}", self.outputs.len(), self.arrays.len()),
                "as many as there are",
            ));
        }
        let folder = self.outputs[0].parent();
        if self.outputs.iter().any(|output| output.parent() != folder) {
            return Err(Error::argument("files that are made together belong in one folder", ""));
        }
        for (at, output) in self.outputs.iter().enumerate() {
            if self.outputs[..at].contains(output) {
                return Err(Error::argument(format!("{} would be made twice", output.display()), ""));
            }
        }
        let fortran = |array: &&Array| array.layout().order == AxisOrder::Fortran;
        if let Some(array) = self.arrays.iter().find(fortran) {
            return Err(Error::unsupported(
                format!("{}: a row of a Fortran-ordered file is all over it", array.path().display()),
                INTO_C_ORDER,
            ));
        }
        Ok(())
    }

    /// That an output is none of what is read: half written, that would be lost; replaced, it would be shuffled twice by
    /// whoever goes on after a kill.
    fn is_another(&self, output: &Path) -> Result<()> {
        let there = std::fs::metadata(output);
        let (mut same, id) = (false, |meta: &Metadata| (meta.dev(), meta.ino()));
        self.each_original(&mut |path, original| {
            same |= match original {
                Original::File(meta) => there.as_ref().is_ok_and(|there| id(&meta) == id(there)),
                Original::Object(_) => path == output,
            };
        })?;
        if !same {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(libc::EEXIST);
        let hint = "the result takes another name than what it is made of";
        Err(Error::io(output, "write the file", error).with_hint(Words::from(hint)))
    }

    fn may_write(&self, output: &Path) -> Result<()> {
        let refused = |error, hint: Words| {
            let error = std::io::Error::from_raw_os_error(error);
            Err(Error::io(output, "write the file", error).with_hint(hint))
        };
        let refuse = |error, hint: &'static str| refused(error, hint.into());
        self.is_another(output)?;
        match (std::fs::metadata(output), std::fs::symlink_metadata(output), self.existing) {
            (Ok(meta), ..) if meta.is_dir() => refuse(libc::EISDIR, "name a file in it"),
            (Ok(meta), ..) if !meta.is_file() => {
                refuse(libc::EINVAL, "this is no regular file, and cannot be replaced")
            }
            (_, Ok(_), Existing::Refuse) => {
                refused(libc::EEXIST, OVERWRITE.on() + " replaces it, once the new one is whole")
            }
            _ => Ok(()),
        }
    }

    /// All that is read, as it is now.
    fn each_original(&self, f: &mut dyn FnMut(&Path, Original)) -> Result<()> {
        self.arrays.iter().try_for_each(|array| array.data().source()?.each_original(f))
    }

    /// Stands for what is made: the files as they are now, the order, and the names.
    fn print(&self) -> Result<String> {
        let mut print = blake3::Hasher::new();
        let mut text = |text: &str| {
            print.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        };
        text(&format!("seed {} epoch {}", self.seed, self.epoch));
        for (array, output) in self.arrays.iter().zip(&self.outputs) {
            let (shape, dtype) = (array.shape(), array.dtype().numpy_str());
            text(&format!(
                "{} {shape:?} {dtype} {} {}",
                output.display(),
                array.layout().offset,
                array.fingerprint()?
            ));
        }
        self.each_original(&mut |path, original| match original {
            Original::File(meta) => {
                let (size, changed) = (meta.len(), (meta.mtime(), meta.mtime_nsec()));
                text(&format!("{} {} {} {size} {changed:?}", path.display(), meta.dev(), meta.ino()));
            }
            Original::Object(identity) => text(&identity),
        })?;
        Ok(print.finalize().to_hex()[..32].to_owned())
    }

    /// That the files which were read are what they were at the beginning.
    fn unchanged(&self, folder: &Folder, print: &str) -> Result<()> {
        if self.print()? == print {
            return Ok(());
        }
        folder.forget()?;
        Err(Error::Format {
            path: self.arrays[0].path().to_owned(),
            offset: 0,
            expected: "the file as it was when the shuffle began".into(),
            found: "one that was written to meanwhile".into(),
            hint: "run it again when nobody writes".into(),
        })
    }
}
