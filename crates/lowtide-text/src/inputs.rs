//! Which files are meant, in which order.
//!
//! In: names of files, folders and globs, or `-`. Out: every file once for each time it is meant: names in the order
//! given, what is in a folder or a glob sorted by the bytes of its path. The order decides every byte of the output.

use crate::says::INCLUDE;
use lowtide::door::Words;
use lowtide::store::is_url;
use lowtide::{Error, Result};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File {
        /// Its path, as it was named.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// When it was last changed, in nanoseconds since 1970.
        modified: i128,
    },
    /// Standard input.
    Stdin,
}

impl Source {
    /// What it is called in messages.
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } => path,
            Self::Stdin => Path::new("-"),
        }
    }

    /// That it is still the file that was found: tokens of two states of a file are never mixed.
    ///
    /// # Errors
    /// [`Error::Io`] where it is gone, [`Error::Format`] where it has changed.
    pub fn unchanged(&self) -> Result<()> {
        let Self::File { path, bytes, modified } = self else { return Ok(()) };
        let meta = path.metadata().map_err(|error| Error::io(path, "find the file again", error))?;
        let (now, time) = size_and_time(&meta);
        if (now, time) == (*bytes, *modified) {
            return Ok(());
        }
        let found = if now == *bytes { "a later time of change".into() } else { format!("{now} bytes") };
        Err(Error::Format {
            path: path.clone(),
            offset: 0,
            expected: format!("the {bytes} bytes that it had when the work began"),
            found,
            hint: "it was changed while it was read: begin again, in another folder".into(),
        })
    }

    /// Whether it can be read only once: standard input, a pipe.
    pub fn comes_once(&self) -> bool {
        match self {
            Self::File { path, .. } => path.metadata().is_ok_and(|meta| !meta.is_file()),
            Self::Stdin => true,
        }
    }

    /// What a list of sources holds in memory, for each of the three that there are: here, in the job, in the manifest.
    pub(crate) fn memory(sources: &[Self]) -> u64 {
        sources.iter().map(|source| 3 * (source.path().as_os_str().len() as u64 + 160)).sum()
    }

    /// Its size, where that is known.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Stdin => 0,
        }
    }
}

/// Finds the files that `names` mean. Of a folder only those that one of the patterns of `include` matches (their
/// names; or their paths below the folder, for a pattern with a slash); hidden ones are passed over. What is in
/// `output` is passed over in folders and globs, so that the same words mean the same files again once it is written.
///
/// # Errors
/// [`Error::Argument`] for a pattern that is none, for names that mean no file; [`Error::Io`] as the system has it.
pub fn find(names: &[PathBuf], include: &[String], output: &Path) -> Result<Vec<Source>> {
    if names.is_empty() {
        return Err(Error::argument("no input is named", "name files, folders or globs, or - for stdin"));
    }
    let include = include.iter().map(|text| pattern(text)).collect::<Result<Vec<_>>>()?;
    let output = output.canonicalize().ok();
    let in_output = |path: &Path| {
        output.as_ref().is_some_and(|output| path.canonicalize().is_ok_and(|path| path.starts_with(output)))
    };
    let mut sources = Vec::new();
    for name in names {
        let before = sources.len();
        if name.as_os_str() == OsStr::new("-") {
            if sources.contains(&Source::Stdin) {
                return Err(Error::argument("standard input is named twice", "it can be read only once"));
            }
            sources.push(Source::Stdin);
        } else if is_url(name) {
            return Err(Error::argument(
                format!("{}: text is read from filesystems only, not from object stores", name.display()),
                "copy it to a disk first, or pipe it in: - is standard input. The folder to write into can be an address",
            ));
        } else if name.is_dir() {
            walk(name, name, &include, output.as_deref(), &mut sources)?;
        } else if !name.exists() && name.to_str().is_some_and(|text| text.contains(['*', '?', '['])) {
            for path in globbed(name)? {
                if path.is_file() && !in_output(&path) {
                    sources.push(file(path)?);
                }
            }
        } else {
            sources.push(file(name.clone())?);
        }
        if sources.len() == before {
            let parent = name.parent().filter(|parent| !parent.as_os_str().is_empty());
            let hint = if in_output(name) || in_output(parent.unwrap_or(Path::new("."))) {
                "what is in the folder that is written into is not read: give another one to write into"
                    .into()
            } else if include.is_empty() {
                Words::NONE
            } else {
                Words::from("is ") + INCLUDE + " what you meant? It is asked about the files in a folder"
            };
            return Err(Error::argument(format!("{}: no files are meant by this", name.display()), hint));
        }
    }
    Ok(sources)
}

fn pattern(text: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(text)
        .map_err(|error| Error::argument(format!("the pattern {text:?} is none: {error}"), "such as '*.py'"))
}

fn globbed(name: &Path) -> Result<Vec<PathBuf>> {
    let text = name.to_str().unwrap_or_default();
    // A shell's star finds no hidden files either.
    let how = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let paths = glob::glob_with(text, how)
        .map_err(|error| Error::argument(format!("the pattern {text:?} is none: {error}"), ""))?;
    let paths = paths.map(|path| {
        path.map_err(|error| {
            let folder = error.path().to_owned();
            Error::io(&folder, "look into the folder", error)
        })
    });
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    Ok(paths)
}

fn file(path: PathBuf) -> Result<Source> {
    let meta = path.metadata().map_err(|error| Error::io(&path, "look at the file", error))?;
    let (bytes, modified) = size_and_time(&meta);
    Ok(Source::File { path, bytes, modified })
}

/// A pipe is read as it comes, and is as large as it turns out to be.
fn size_and_time(meta: &Metadata) -> (u64, i128) {
    if !meta.is_file() {
        return (0, 0);
    }
    (meta.len(), i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()))
}

/// All files below `folder`, sorted; links to folders are not followed, so that there is no circle.
fn walk(
    root: &Path,
    folder: &Path,
    include: &[glob::Pattern],
    output: Option<&Path>,
    sources: &mut Vec<Source>,
) -> Result<()> {
    if output.is_some() && folder.canonicalize().ok().as_deref() == output {
        return Ok(());
    }
    let wrong = |error| Error::io(folder, "look into the folder", error);
    let entries = std::fs::read_dir(folder).map_err(wrong)?;
    let mut entries = entries.collect::<std::io::Result<Vec<_>>>().map_err(wrong)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        if entry.file_type().map_err(wrong)?.is_dir() {
            walk(root, &path, include, output, sources)?;
        } else if path.is_file() && wanted(root, &path, &name, include) {
            sources.push(file(path)?);
        }
    }
    Ok(())
}

fn wanted(root: &Path, path: &Path, name: &OsStr, include: &[glob::Pattern]) -> bool {
    let below = path.strip_prefix(root).unwrap_or(path);
    include.is_empty()
        || include.iter().any(|pattern| {
            let subject = if pattern.as_str().contains('/') { below.as_os_str() } else { name };
            pattern.matches(&subject.to_string_lossy())
        })
}

#[cfg(test)]
mod tests {
    use super::{Source, find};
    use std::fs;
    use std::path::Path;

    #[test]
    fn folders_are_walked_in_one_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.py", "a/z.py", "a/c.txt", "B.py", ".hidden/x.py", "out/y.py", "a.py"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("circle")).unwrap();
        let names = |include: &[&str]| -> Vec<String> {
            let include: Vec<_> = include.iter().map(ToString::to_string).collect();
            let found = find(&[root.to_owned()], &include, &root.join("out")).unwrap();
            let below = |s: &Source| s.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.iter().map(below).collect()
        };
        assert_eq!(names(&[]), ["B.py", "a/c.txt", "a/z.py", "a.py", "b.py"]);
        assert_eq!(names(&["*.py"]), ["B.py", "a/z.py", "a.py", "b.py"]);
        assert_eq!(names(&["a/*.txt"]), ["a/c.txt"]);
        let none = Path::new("/nowhere");
        assert!(find(&[root.join("*.md")], &[], none).unwrap_err().to_string().contains("no files"));
        assert!(find(&[root.join("gone.txt")], &[], none).unwrap_err().to_string().contains("cannot look"));
        assert!(find(&["-".into(), "-".into()], &[], none).unwrap_err().to_string().contains("twice"));
        let said = find(&["s3://bucket/d.jsonl".into()], &[], none).unwrap_err().to_string();
        assert!(said.starts_with("s3://bucket/d.jsonl: text is read from filesystems only"), "{said}");
        assert_eq!(find(&[root.join("?.py")], &[], none).unwrap().len(), 3);
        assert!(find(&[root.join("*n/*.py")], &[], none).is_err(), "a hidden folder");
        // A glob finds nothing in the folder that is written into either: it would find more the next time.
        assert_eq!(find(&[root.join("[ao]*/*.py")], &[], &root.join("out")).unwrap().len(), 1);
        for name in [root.to_owned(), root.join("*")] {
            let said = find(&[name], &[], root).unwrap_err().to_string();
            assert!(said.contains("no files") && said.contains("is not read"), "{said}");
        }
        assert_eq!(find(&[root.join("b.py")], &[], root).unwrap().len(), 1, "who names a file means it");
    }
}
