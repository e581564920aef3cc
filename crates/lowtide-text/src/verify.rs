//! Whether token files are what they say: a prepared folder by its manifest (sizes, checksums, ids), any other file by
//! its own header and index.

use crate::state::read_manifest;
use lowtide::Interrupt;
use lowtide::door::Words;
use lowtide::format::Dialect;
use lowtide::format::manifest::{Checked, Manifest, Shard};
use lowtide::{Error, Result, TokenOptions};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What is read at once: whole tokens of any width.
const PIECE: usize = 1 << 20;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub file: String,
    /// What is wrong, and where.
    pub what: Words,
}

/// What was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many files.
    pub files: u64,
    /// How many bytes.
    pub bytes: u64,
    /// What is wrong; empty where all is well.
    pub findings: Vec<Finding>,
}

/// Compares the files of a prepared folder with its manifest, byte by byte; opens any other token files, and says what
/// looks odd about them. `progress` is told how many of how many bytes.
///
/// # Errors
/// [`Error::Format`] where a manifest or a header is damaged, and whatever [`TokenOptions::open`] says.
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64), interrupt: Interrupt<'_>) -> Result<Verified> {
    match read_manifest(path)? {
        Some(manifest) => by_manifest(path, &manifest, progress, interrupt),
        None => by_themselves(path),
    }
}

/// What opens has the size that its header and index say.
fn by_themselves(path: &Path) -> Result<Verified> {
    let tokens = TokenOptions::new().open([path])?;
    let name = path.display().to_string();
    let findings = tokens.warnings().iter().map(|what| Finding { file: name.clone(), what: what.clone() });
    let bytes = tokens.files().iter().map(|file| file.len).sum();
    Ok(Verified { files: tokens.files().len() as u64, bytes, findings: findings.collect() })
}

fn by_manifest(
    folder: &Path,
    manifest: &Manifest,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Verified> {
    let shards = || manifest.splits.iter().flat_map(|split| &split.shards);
    let files = || shards().flat_map(|shard| std::iter::once(&shard.file).chain(&shard.beside));
    let total = files().map(|file| file.bytes).fold(0, u64::saturating_add);
    let mut verified = Verified::default();
    for shard in shards() {
        for (file, ids) in
            std::iter::once((&shard.file, Some(shard))).chain(shard.beside.iter().map(|b| (b, None)))
        {
            let ids = ids.map(|shard| Ids::new(manifest, shard)).transpose()?;
            let mut step = |bytes| {
                progress(verified.bytes + bytes, total);
                interrupt()
            };
            let found = check(folder, file, ids.as_ref(), &mut step)?;
            verified.files += 1;
            verified.bytes += file.bytes;
            verified
                .findings
                .extend(found.map(|what| Finding { file: file.file.clone(), what: what.into() }));
        }
    }
    Ok(verified)
}

/// Which ids a shard may have, and where they begin.
struct Ids {
    header: u64,
    width: usize,
    vocabulary: u64,
}

impl Ids {
    fn new(manifest: &Manifest, shard: &Shard) -> Result<Self> {
        let width = manifest.dtype.parse::<lowtide::format::Dtype>()?.itemsize();
        let tokens = shard.tokens.saturating_mul(width as u64);
        let header = match manifest.dialect()? {
            Dialect::LlmC | Dialect::Npy => shard.file.bytes.saturating_sub(tokens),
            _ => 0,
        };
        Ok(Self { header, width, vocabulary: manifest.tokenizer.vocabulary })
    }

    /// The first id in `bytes` that is none, and its place. They begin at `offset` of the file.
    fn outside(&self, offset: u64, bytes: &[u8]) -> Option<(u64, u64)> {
        let skip = usize::try_from(self.header.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let (first, tokens) = (offset + skip as u64, &bytes[skip..]);
        let at = |index: usize, id: u64| (first + (index * self.width) as u64, id);
        let limit = self.vocabulary;
        if self.width == 2 {
            let mut ids = tokens.as_chunks::<2>().0.iter().map(|b| u64::from(u16::from_le_bytes(*b)));
            return ids
                .position(|id| id >= limit)
                .map(|index| at(index, u64::from(u16::from_le_bytes(tokens.as_chunks::<2>().0[index]))));
        }
        let mut ids = tokens.as_chunks::<4>().0.iter().map(|b| u64::from(u32::from_le_bytes(*b)));
        ids.position(|id| id >= limit)
            .map(|index| at(index, u64::from(u32::from_le_bytes(tokens.as_chunks::<4>().0[index]))))
    }
}

/// What is wrong with a file, if anything.
fn check(
    folder: &Path,
    file: &Checked,
    ids: Option<&Ids>,
    step: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<String>> {
    let path = folder.join(&file.file);
    let mut open = match File::open(&path) {
        Ok(open) => open,
        Err(error) => return Ok(Some(format!("it cannot be opened: {error}"))),
    };
    let len = open.metadata().map_err(|error| Error::io(&path, "look at the file", error))?.len();
    if len != file.bytes {
        return Ok(Some(format!("it has {len} bytes, {} were written", file.bytes)));
    }
    let (mut buffer, mut offset, mut crc) = (vec![0; PIECE], 0_u64, 0);
    let mut outside = None;
    loop {
        let mut len = 0;
        while len < PIECE {
            match open.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(got) => len += got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Ok(Some(format!("it cannot be read at byte {offset}: {error}"))),
            }
        }
        if len == 0 {
            break;
        }
        crc = crc32c::crc32c_append(crc, &buffer[..len]);
        if outside.is_none()
            && let Some(ids) = ids
        {
            outside = ids.outside(offset, &buffer[..len]);
        }
        offset += len as u64;
        step(offset)?;
    }
    if let (Some((at, id)), Some(ids)) = (outside, ids) {
        return Ok(Some(format!("at byte {at}: the id {id}, the vocabulary has {}", ids.vocabulary)));
    }
    if crc != file.crc32c {
        return Ok(Some(format!(
            "its checksum is {crc:08x}, {:08x} was written: its bytes have changed",
            file.crc32c
        )));
    }
    Ok(None)
}
