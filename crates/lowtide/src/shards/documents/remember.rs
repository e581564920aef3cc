//! What a scan found, kept beside the first file as `NAME.lowtide-documents`.
//!
//! It is believed only if it is whole (a checksum), of this version, and of these very files: their names,
//! sizes, times of change and order, what their tokens are, and which token was looked for. Anything else
//! is as if there were no such file. Little-endian:
//!
//! ```text
//! LOWTDOCS  version 1  tokens a block  end of text  fingerprint  blocks n  documents  checksum
//! 0         8          12              16           24           56        64 (u32·n) (32 bytes)
//! ```

use super::super::TokenFile;
use super::super::detect::appended;
use super::super::each::each;
use super::scan::{BLOCK, Scanned};
use crate::error::{Error, Result};
use crate::store::{OneFile, is_url};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const MAGIC: &[u8; 8] = b"LOWTDOCS";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 64;
const CHECKSUM_LEN: usize = 32;

/// Stands for the files as they were, and for the token.
pub(super) type Fingerprint = [u8; 32];

/// The fingerprint of the files as they are now.
pub(super) fn fingerprint(files: &[TokenFile], end_of_text: u64) -> Result<Fingerprint> {
    let times = each(files, |file| {
        let meta = file.path.metadata().map_err(|error| Error::io(&file.path, "look at the file", error))?;
        Ok((meta.len(), meta.mtime(), meta.mtime_nsec()))
    })?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&end_of_text.to_le_bytes());
    for (file, (len, seconds, nanoseconds)) in files.iter().zip(times) {
        let name = file.path.file_name().unwrap_or_default().as_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(&[len, file.offset, file.tokens].map(u64::to_le_bytes).concat());
        hasher.update(&[seconds, nanoseconds].map(i64::to_le_bytes).concat());
        hasher.update(&[u8::from(file.dialect.marks_beginnings())]);
        let dtype = file.dtype.numpy_str();
        hasher.update(&(dtype.len() as u64).to_le_bytes());
        hasher.update(dtype.as_bytes());
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Where it is kept.
fn place(files: &[TokenFile]) -> Option<PathBuf> {
    files.first().map(|first| appended(&first.path, "lowtide-documents"))
}

pub(super) fn save(scanned: &Scanned, files: &[TokenFile]) -> Result<PathBuf> {
    let Some(path) = place(files) else {
        return Err(Error::argument("there are no files to keep documents beside", ""));
    };
    if is_url(&path) {
        return Err(Error::unsupported(
            format!("{}: nothing is written beside an object", path.display()),
            "documents that were found stay known for as long as this is open",
        ));
    }
    let now = fingerprint(files, scanned.end_of_text)?;
    if scanned.fingerprint != Some(now) {
        return Err(Error::Format {
            path: files[0].path.clone(),
            offset: 0,
            expected: "the files as they were when they were scanned".into(),
            found: "other names, sizes or times of change".into(),
            hint: "open them again".into(),
        });
    }
    let counts = scanned.counts();
    let mut bytes = Vec::with_capacity(HEADER_LEN + 4 * counts.len() + CHECKSUM_LEN);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(u32::try_from(BLOCK).unwrap_or(0).to_le_bytes());
    bytes.extend(scanned.end_of_text.to_le_bytes());
    bytes.extend(now);
    bytes.extend((counts.len() as u64).to_le_bytes());
    // At most a block's tokens.
    bytes.extend(counts.flat_map(|count| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes()));
    bytes.extend(blake3::hash(&bytes).as_bytes());
    crate::write::replace(&path, &bytes)?;
    Ok(path)
}

pub(super) fn load(files: &[TokenFile], end_of_text: u64) -> Option<Scanned> {
    let path = place(files).filter(|path| !is_url(path))?;
    let source = OneFile::open(&path).ok()?;
    let blocks = files.iter().map(|file| u128::from(file.tokens.div_ceil(BLOCK))).sum::<u128>();
    // By the files themselves, not by what it says: nothing is allocated for one that cannot be.
    if u128::from(source.len()) != (HEADER_LEN + CHECKSUM_LEN) as u128 + 4 * blocks {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(source.len()).ok()?];
    source.read_exact(0, &mut bytes).ok()?;
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
    if blake3::hash(content).as_bytes() != checksum {
        return None;
    }
    let mut expected = MAGIC.to_vec();
    expected.extend(VERSION.to_le_bytes());
    expected.extend(u32::try_from(BLOCK).ok()?.to_le_bytes());
    expected.extend(end_of_text.to_le_bytes());
    let now = fingerprint(files, end_of_text).ok()?;
    expected.extend(now);
    expected.extend(u64::try_from(blocks).ok()?.to_le_bytes());
    let counts = content.strip_prefix(&expected[..])?.as_chunks().0;
    let counts = counts.iter().map(|count| u32::from_le_bytes(*count).into());
    Scanned::from_counts(files, end_of_text, now, counts)
}
