//! The manifest that `lowtide prepare` writes beside its shards: what they are, where they come from, and how to
//! check them.
//!
//! In: the bytes of a `lowtide.json`, which somebody else may have written. Out: a [`Manifest`] whose names stay in
//! its folder and whose sums are right, or an error that says what is wrong.

use super::{Dialect, Dtype};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};

/// What it is called.
pub const NAME: &str = "lowtide.json";

/// The largest that is read: a line for each shard and each source.
pub const MAX_LEN: u64 = 256 << 20;

const VERSION: u32 = 1;

/// What a folder of shards is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this file, 1.
    pub lowtide: u32,
    /// The dialect of the shards.
    pub format: String,
    /// The type of a token.
    pub dtype: String,
    /// What made the ids.
    pub tokenizer: TokenizerId,
    /// The streams of the folder, `train` first.
    pub splits: Vec<Split>,
    /// What was counted on the way.
    pub counts: Counts,
    /// Every setting that the bytes depend on, as the command has them.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// What was read, in this order.
    pub sources: Vec<SourceFile>,
}

/// A tokenizer by its name and what it gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenizerId {
    /// `gpt2`, `bytes`, `chars`, or the path of a `tokenizer.json`.
    pub name: String,
    /// Stands for every id that it can give.
    pub fingerprint: String,
    /// Every id is below this.
    pub vocabulary: u64,
    /// The id between documents.
    pub end_of_text: Option<u64>,
    /// The file beside the manifest that it can be made from again, where its name does not suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// One stream of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// `train` or `val`.
    pub name: String,
    /// Tokens in all shards.
    pub tokens: u64,
    /// Documents in all shards.
    pub documents: u64,
    /// The shards, in their order.
    pub shards: Vec<Shard>,
}

/// One file of tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// The file and its checksum.
    #[serde(flatten)]
    pub file: Checked,
    /// Its tokens.
    pub tokens: u64,
    /// Its documents.
    pub documents: u64,
    /// What its format has beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Checked>,
}

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Its name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// The CRC-32C of all its bytes.
    pub crc32c: u32,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Documents that were written.
    pub documents: u64,
    /// Documents that could not be read, and were passed over.
    pub skipped: u64,
    /// Documents without any text.
    pub empty: u64,
    /// Bytes of text in the documents that were written.
    pub text_bytes: u64,
    /// Tokens of the longest document.
    pub longest: u64,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Where it was.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i128,
}

impl Manifest {
    /// The version that is written.
    pub const VERSION: u32 = VERSION;

    /// Reads and checks what `path` contains.
    ///
    /// # Errors
    /// [`Error::Format`] with what is wrong.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let wrong = |expected: &str, found: String| Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: expected.into(),
            found: calm(&found),
            hint: "the manifest is damaged: name the token files themselves, or prepare them again".into(),
        };
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| wrong("the manifest of a prepared folder", error.to_string()))?;
        if manifest.lowtide != VERSION {
            return Err(wrong("version 1 of the manifest", format!("version {}", manifest.lowtide)));
        }
        if manifest.dialect().is_err() {
            return Err(wrong("a format of token files", format!("{:?}", manifest.format)));
        }
        if manifest.dtype.parse::<Dtype>().is_err() {
            return Err(wrong("a type of tokens", format!("{:?}", manifest.dtype)));
        }
        let names = manifest.splits.iter().flat_map(|split| &split.shards);
        let names = names.flat_map(|shard| std::iter::once(&shard.file).chain(&shard.beside));
        let names = names.map(|checked| &checked.file).chain(&manifest.tokenizer.file);
        for name in names {
            if !is_plain(name) {
                return Err(wrong("names of files in this folder", format!("{name:?}")));
            }
        }
        for split in &manifest.splits {
            let sum =
                |of: fn(&Shard) -> u64| split.shards.iter().try_fold(0_u64, |n, s| n.checked_add(of(s)));
            if sum(|shard| shard.tokens) != Some(split.tokens)
                || sum(|shard| shard.documents) != Some(split.documents)
            {
                return Err(wrong(
                    "shards that sum to what their split says",
                    format!("another sum in {:?}", split.name),
                ));
            }
        }
        Ok(manifest)
    }

    /// The dialect of the shards. Always known: [`parse`](Self::parse) has seen to it.
    pub fn dialect(&self) -> Result<Dialect> {
        self.format.parse()
    }

    /// A split by its name; `train`, or the only one, where none is named.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists what there is.
    pub fn split(&self, name: Option<&str>) -> Result<&Split> {
        let found = match name {
            Some(name) => self.splits.iter().find(|split| split.name == name),
            None => self.splits.iter().find(|split| split.name == "train").or_else(|| match &*self.splits {
                [only] => Some(only),
                _ => None,
            }),
        };
        found.ok_or_else(|| {
            let names: Vec<_> = self.splits.iter().map(|split| format!("{:?}", split.name)).collect();
            Error::argument(
                format!("there is no split {:?} here", name.unwrap_or("train")),
                format!("one of {}", names.join(", ")),
            )
        })
    }
}

/// What a hostile file has us say: not without end, and nothing that a terminal obeys.
fn calm(said: &str) -> String {
    let few: String = said.chars().take(200).collect();
    let end = if few.len() < said.len() { "…" } else { "" };
    few.replace(char::is_control, "?") + end
}

/// Whether a name is that of a file in the folder itself.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
        && !name.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::Manifest;
    use std::path::Path;

    const GOOD: &str = r#"{"lowtide": 1, "format": "nanogpt", "dtype": "uint16",
        "tokenizer": {"name": "gpt2", "fingerprint": "00", "vocabulary": 50257, "end_of_text": 50256},
        "splits": [{"name": "train", "tokens": 3, "documents": 1, "shards": [
            {"file": "train.bin", "bytes": 6, "crc32c": 7, "tokens": 3, "documents": 1}]}],
        "counts": {"documents": 1, "skipped": 0, "empty": 0, "text_bytes": 9, "longest": 2},
        "settings": {}, "sources": []}"#;

    #[test]
    fn a_manifest_is_read() {
        let manifest = Manifest::parse(Path::new("x"), GOOD.as_bytes()).unwrap();
        assert_eq!(manifest.split(None).unwrap().shards[0].file.file, "train.bin");
        assert!(manifest.split(Some("val")).unwrap_err().to_string().contains("one of \"train\""));
        let again = serde_json::to_vec(&manifest).unwrap();
        assert_eq!(Manifest::parse(Path::new("x"), &again).unwrap(), manifest);
    }

    #[test]
    fn what_is_hostile_is_refused() {
        let attacks = [
            ("train.bin", "../train.bin", "names of files in this folder"),
            ("train.bin", "/etc/passwd", "names of files in this folder"),
            ("train.bin", "a/b.bin", "names of files in this folder"),
            ("train.bin", "..", "names of files in this folder"),
            ("train.bin", "", "names of files in this folder"),
            ("train.bin", "a\\u0000b", "names of files in this folder"),
            ("\"lowtide\": 1", "\"lowtide\": 2", "version 2"),
            (
                "\"tokens\": 3, \"documents\": 1, \"shards\"",
                "\"tokens\": 4, \"documents\": 1, \"shards\"",
                "another sum",
            ),
            ("\"bytes\": 6", "\"bytes\": -6", "invalid value"),
            ("nanogpt", "pickle", "a format of token files, found \"pickle\""),
            ("uint16", "object", "a type of tokens, found \"object\""),
        ];
        for (good, bad, said) in attacks {
            assert!(GOOD.contains(good), "{good}");
            let error = Manifest::parse(Path::new("x"), GOOD.replacen(good, bad, 1).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(said), "{bad}: {error}");
        }
        let deep = "[".repeat(1 << 20);
        assert!(Manifest::parse(Path::new("x"), deep.as_bytes()).is_err());
    }
}
