//! Where an array that is being written lives until it is whole: under another name, or behind the end of a file that
//! there is.
//!
//! A file that grows in place keeps its old header until the new rows are on the disk: data, sync, header, sync. Killed
//! before that, it is what it was, with bytes behind its elements that nobody vouches for. A mark beside it, which is the
//! writer's lock too, says so to whoever opens the file: they are passed over. The next writer takes them away.

use super::draft::{Draft, part_path};
use super::growth::Growth;
use super::paced::Paced;
use super::wrong;
use crate::door::OVERWRITE;
use crate::error::{Error, Result};
use crate::format::{Container, Layout, npy};
use crate::options::Existing;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What the mark begins with; the rest is for people.
const MARK: &[u8] = b"lowtide append\n";

/// Where it lives.
pub(super) enum Home {
    /// Under another name.
    New { draft: Draft, existing: Existing },
    /// Behind the end of a file, which `mark` says.
    Old { mark: Draft, file: File, path: PathBuf, version: u8, header_len: usize, end: u64 },
}

impl Home {
    /// Another name for a new file.
    pub(super) fn create(path: &Path, existing: Existing) -> Result<Self> {
        let cannot = |kind: rustix::io::Errno| wrong(path, "make the file", kind.into());
        match std::fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                return Err(cannot(rustix::io::Errno::ISDIR).with_hint("name the file: a folder has no rows"));
            }
            Ok(meta) if !meta.is_file() => {
                return Err(cannot(rustix::io::Errno::INVAL)
                    .with_hint("this is no regular file, and cannot be replaced"));
            }
            Ok(_) if existing == Existing::Refuse => {
                return Err(cannot(rustix::io::Errno::EXIST)
                    .with_hint(OVERWRITE.on() + " replaces it, once the new one is whole"));
            }
            _ => {}
        }
        let draft = Draft::begin(path)?;
        // The mark of an append that was killed would vanish under the new file's bytes.
        if is_mark(draft.file())
            && let Ok(file) = File::options().read(true).write(true).open(path)
        {
            let _ = layout(&file, path).and_then(|layout| cut(&file, path, &layout));
        }
        draft.file().set_len(0).map_err(|error| wrong(path, "make the file", error))?;
        draft.take_permissions();
        Ok(Self::New { draft, existing })
    }

    /// The end of a file that there is.
    pub(super) fn append(path: &Path) -> Result<(Self, Layout)> {
        let cannot = |error| wrong(path, "open the file", error);
        let file = File::options().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => cannot(error).with_hint("lowtide.create makes a new one"),
            _ => cannot(error),
        })?;
        let len = file.metadata().map_err(cannot)?.len();
        let head = read_head(&file, path, len)?;
        if !npy::is_npy(&head) {
            return Err(Error::unsupported(
                format!("{}: only .npy files can be appended to", path.display()),
                "a file without a header cannot say how many of its rows are whole: a kill would leave half of one",
            ));
        }
        let mut mark = Draft::begin(path)?;
        // Under the lock: another writer may have been at it.
        let len = file.metadata().map_err(cannot)?.len();
        let head = read_head(&file, path, len)?;
        let was_marked = is_mark(mark.file());
        if was_marked {
            mark.leave();
        }
        let layout = match npy::parse(path, &head, len) {
            Err(_) if was_marked => npy::parse_first(path, &head, len)?,
            layout => layout?,
        };
        let Container::Npy { version } = layout.container else { unreachable!("it was parsed as one") };
        // A killed writer's bytes go before its mark does, and ours come after ours is there.
        cut(&file, path, &layout)?;
        let words = b"Rows behind those of the header may not be whole; lowtide.append goes on, and takes them away.\n";
        let marked =
            mark.file().set_len(0).and_then(|()| mark.file().write_all_at(&[MARK, words].concat(), 0));
        marked.and_then(|()| mark.file().sync_all()).map_err(|error| wrong(path, "mark the file", error))?;
        mark.sync_folder();
        let header_len = usize::try_from(layout.offset).unwrap_or(usize::MAX);
        let end = layout.offset + layout.nbytes();
        // Once its bytes come, a mark may stay: only `Drop` and `finish` take it away.
        mark.leave();
        Ok((Self::Old { mark, file, path: path.to_owned(), version, header_len, end }, layout))
    }

    pub(super) fn file(&self) -> &File {
        match self {
            Self::New { draft, .. } => draft.file(),
            Self::Old { file, .. } => file,
        }
    }

    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }

    /// Whether this process began it.
    pub(super) fn is_ours(&self) -> bool {
        match self {
            Self::New { draft, .. } | Self::Old { mark: draft, .. } => draft.is_ours(),
        }
    }

    /// That a file which grows still has its name: rows in one that was replaced or removed would be nobody's.
    fn has_its_name(&self) -> Result<()> {
        let Self::Old { mark, file, path, .. } = self else { return Ok(()) };
        let cannot = |error| wrong(path, "go on with the file", error);
        if mark.is_beside(file).map_err(cannot)? {
            return Ok(());
        }
        Err(cannot(rustix::io::Errno::STALE.into())
            .with_hint("another file has its name by now; lowtide.append goes on with that one"))
    }

    /// That the header has room for so many rows.
    pub(super) fn check(&self, growth: &Growth, rows: u64) -> Result<()> {
        match self {
            Self::New { .. } => Ok(()),
            Self::Old { .. } => self.header(growth, rows).map(|_| ()),
        }
    }

    fn header(&self, growth: &Growth, rows: u64) -> Result<Vec<u8>> {
        match self {
            Self::New { .. } => growth.header(rows),
            Self::Old { path, version, header_len, .. } => {
                let usual = growth.header(rows)?;
                if usual.len() == *header_len && *version == 1 {
                    return Ok(usual);
                }
                let fitted = npy::header_of_len(
                    growth.dtype,
                    &growth.shape(rows),
                    growth.order,
                    *version,
                    *header_len,
                )?;
                fitted.ok_or_else(|| {
                    Error::unsupported(
                        format!("{}: its header has no room for {rows} rows", path.display()),
                        "an old NumPy wrote it; lowtide.create and extend(lowtide.open(path).chunks(4096)) make a copy that grows",
                    )
                })
            }
        }
    }

    /// All data is on the disk: rows of a file that there is are its own from now on.
    pub(super) fn flushed(
        &mut self,
        out: &mut Paced,
        growth: &Growth,
        rows: u64,
        new_end: u64,
    ) -> Result<()> {
        if self.is_new() {
            return Ok(());
        }
        self.has_its_name()?;
        let header = self.header(growth, rows)?;
        out.write_at(0, &header, &|| Ok(()))?;
        out.sync()?;
        if let Self::Old { end, .. } = self {
            *end = new_end;
        }
        Ok(())
    }

    /// All data is on the disk: the header, and the name.
    pub(super) fn finish(&mut self, out: &mut Paced, growth: &Growth, rows: u64, data_at: u64) -> Result<()> {
        self.has_its_name()?;
        if data_at > 0 {
            let header = self.header(growth, rows)?;
            out.write_at(0, &header, &|| Ok(()))?;
            out.sync()?;
        }
        match self {
            Self::New { draft, existing } => draft.name(*existing),
            Self::Old { mark, end, .. } => {
                *end = out.file().metadata().map_or(*end, |meta| meta.len());
                mark.take_away();
                Ok(())
            }
        }
    }
}

/// Given up: a file that there was is what it was, or what the last flush made it.
impl Drop for Home {
    fn drop(&mut self) {
        if let Self::Old { mark, file, end, .. } = self
            && mark.is_ours()
            && file.set_len(*end).is_ok()
        {
            mark.take_away();
        }
    }
}

/// Whether somebody is appending to the file at `path`, or was and has been killed.
pub(crate) fn is_being_appended_to(path: &Path) -> bool {
    part_path(path).and_then(|part| File::open(part).ok()).is_some_and(|part| is_mark(&part))
}

fn is_mark(file: &File) -> bool {
    let mut start = [0; MARK.len()];
    file.read_exact_at(&mut start, 0).is_ok() && start == MARK
}

/// What the header says, whatever is behind the elements.
fn layout(file: &File, path: &Path) -> Result<Layout> {
    let len = file.metadata().map_err(|error| wrong(path, "open the file", error))?.len();
    npy::parse_first(path, &read_head(file, path, len)?, len)
}

/// Takes away what is behind the elements.
fn cut(file: &File, path: &Path, layout: &Layout) -> Result<()> {
    file.set_len(layout.offset + layout.nbytes()).map_err(|error| wrong(path, "go on with the file", error))
}

fn read_head(file: &File, path: &Path, len: u64) -> Result<Vec<u8>> {
    let read = |want: usize| -> io::Result<Vec<u8>> {
        let mut head = vec![0; usize::try_from(len).map_or(want, |len| len.min(want))];
        file.read_exact_at(&mut head, 0).map(|()| head)
    };
    let cannot = |error| wrong(path, "read the header", error);
    let head = read(4096).map_err(cannot)?;
    match npy::is_npy(&head).then(|| npy::header_len(path, &head, len)).transpose()? {
        Some(needed) if needed > head.len() => read(needed).map_err(cannot),
        _ => Ok(head),
    }
}
