//! A small real corpus that every machine with a Python has: the sources of its standard library, prepared as
//! `lowtide prepare` does it.

use crate::draw::{self, Progress, thousands};
use crate::prepare::Meter;
use crate::signals;
use lowtide::budget::human;
use lowtide::{Error, Result};
use lowtide_text::{InputKind, OnError, Settings, prepare};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Folders of a standard library that have other people's programs.
const NOT_ITS_OWN: [&str; 3] = ["site-packages", "dist-packages", "__pycache__"];
/// The share of documents for validation.
const VAL: f64 = 0.05;

/// The same work, for whoever wants to do it.
pub const COMMAND: &str = "lowtide prepare \"$(python -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))')\" \
                           --include '*.py' --tokenizer bytes --val 0.05 --on-error skip -o data";

/// What was made of it.
#[derive(Debug)]
pub struct Corpus {
    /// The token files.
    pub folder: PathBuf,
    pub documents: u64,
    pub skipped: u64,
    pub train_tokens: u64,
    pub val_tokens: u64,
    pub text_bytes: u64,
    pub seconds: f64,
}

impl Corpus {
    /// Prepares the `*.py` files of `stdlib`, at most `most` bytes of them, into `folder`.
    pub fn make(stdlib: &Path, most: u64, folder: &Path, progress: &Progress) -> Result<Self> {
        let names = sources(stdlib, most);
        if names.is_empty() {
            let what = format!("{}: there are no *.py files of a standard library here", stdlib.display());
            return Err(Error::unsupported(what, ""));
        }
        let settings = Settings {
            tokenizer: "bytes".into(),
            val: VAL,
            input: Some(InputKind::Text),
            // Some sources are not UTF-8, to test Python's own parser.
            on_error: OnError::Skip,
            ..Settings::default()
        };
        let (mut meter, began) = (Meter::default(), Instant::now());
        let stopped = || if signals::asked().is_some() { Err(Error::Interrupted) } else { Ok(()) };
        let mut say = |at: &_| progress.say(&format!("the standard library: {}", meter.words(at)));
        let manifest = prepare(&names, folder, &settings, &mut say, &stopped)?;
        let tokens =
            |name| manifest.splits.iter().find(|split| split.name == name).map_or(0, |split| split.tokens);
        Ok(Self {
            folder: folder.to_owned(),
            documents: manifest.counts.documents,
            skipped: manifest.counts.skipped,
            train_tokens: tokens("train"),
            val_tokens: tokens("val"),
            text_bytes: manifest.counts.text_bytes,
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// Megabytes of text a second.
    pub fn rate(&self) -> f64 {
        self.text_bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        format!(
            "{} of Python's standard library, {} documents, became {} tokens for training and {} for validation \
             in {:.1} s: {:.0} MB/s",
            human(self.text_bytes),
            thousands(self.documents),
            thousands(self.train_tokens),
            thousands(self.val_tokens),
            self.seconds,
            self.rate()
        )
    }

    pub fn json(&self) -> Value {
        json!({ "documents": self.documents, "skipped": self.skipped,
            "train_tokens": self.train_tokens, "val_tokens": self.val_tokens, "text_bytes": self.text_bytes,
            "seconds": self.seconds, "megabytes_per_second": self.rate() })
    }

    pub fn print(&self) {
        draw::paragraph(&self.words(), anstyle::Style::new());
    }
}

/// The sources of a standard library, in a fixed order: no links, nothing that was installed into it, and no more
/// than `most` bytes.
fn sources(stdlib: &Path, most: u64) -> Vec<PathBuf> {
    let (mut found, mut bytes, mut folders) = (Vec::new(), 0, vec![stdlib.to_owned()]);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut entries: Vec<_> = entries.filter_map(std::result::Result::ok).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && NOT_ITS_OWN.iter().all(|other| name != *other) {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|end| end == "py") {
                bytes += entry.metadata().map_or(0, |meta| meta.len());
                if bytes > most {
                    return found;
                }
                found.push(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_s_own_sources_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.py", "a.py", "json/c.py", "site-packages/d.py", "json/__pycache__/e.py", "f.txt"] {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::write(root.join(name), "x = 1\n").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("again")).unwrap();
        let names = |most| -> Vec<String> {
            let names = sources(root, most);
            names.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(u64::MAX), ["a.py", "b.py", "json/c.py"]);
        assert_eq!(names(12), ["a.py", "b.py"]);
    }
}
