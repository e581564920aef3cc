//! A prepared folder against its manifest: sizes, checksums, ids.

use super::pieces::{Ids, each_piece};
use super::{Finding, Verified, Wish};
use lowtide::format::manifest::{Checked, Manifest, Shard};
use lowtide::format::{Dialect, Dtype, Kind};
use lowtide::store::is_url;
use lowtide::{Interrupt, Options, Result};
use std::path::Path;

/// Compares the files of a folder with its manifest: sizes, checksums, ids.
pub fn check(
    folder: &Path,
    manifest: &Manifest,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Verified> {
    let shards = || manifest.splits.iter().flat_map(|split| &split.shards);
    let files = || shards().flat_map(|shard| std::iter::once(&shard.file).chain(&shard.beside));
    let total = files().map(|file| file.bytes).fold(0, u64::saturating_add);
    let mut verified = Verified::default();
    for shard in shards() {
        let ids = ids(manifest, shard, wish)?;
        let files = std::iter::once((&shard.file, Some(&ids))).chain(shard.beside.iter().map(|b| (b, None)));
        for (file, ids) in files {
            let mut step = |bytes| progress(verified.bytes + bytes, total);
            let found = one(folder, file, ids, wish, &mut step, interrupt)?;
            verified.files += 1;
            verified.bytes += file.bytes;
            verified
                .findings
                .extend(found.map(|what| Finding { file: folder.join(&file.file), what: what.into() }));
        }
    }
    Ok(verified)
}

/// Which ids a shard may have, and where they begin.
fn ids(manifest: &Manifest, shard: &Shard, wish: &Wish) -> Result<Ids> {
    let dtype = manifest.dtype.parse::<Dtype>()?;
    let tokens = shard.tokens.saturating_mul(dtype.itemsize() as u64);
    let first = match manifest.dialect()? {
        Dialect::LlmC | Dialect::Npy => shard.file.bytes.saturating_sub(tokens),
        _ => 0,
    };
    let vocabulary = wish.vocabulary.unwrap_or(manifest.tokenizer.vocabulary);
    Ok(Ids { first, end: first.saturating_add(tokens), dtype, vocabulary })
}

/// How many bytes a file or an object has.
fn len(path: &Path, wish: &Wish) -> std::result::Result<u64, String> {
    if is_url(path) {
        let bytes = wish.options(Options::new()).dtype(Dtype::native(Kind::UInt8)).offset(0).open(path);
        return bytes.and_then(|bytes| bytes.file_len()).map_err(|error| error.to_string());
    }
    std::fs::metadata(path).map(|meta| meta.len()).map_err(|error| error.to_string())
}

/// What is wrong with a file, if anything.
fn one(
    folder: &Path,
    file: &Checked,
    ids: Option<&Ids>,
    wish: &Wish,
    step: &mut dyn FnMut(u64),
    interrupt: Interrupt<'_>,
) -> Result<Option<String>> {
    let path = folder.join(&file.file);
    let len = match len(&path, wish) {
        Ok(len) => len,
        Err(error) => return Ok(Some(format!("it cannot be opened: {error}"))),
    };
    if len != file.bytes {
        return Ok(Some(format!("it has {len} bytes, {} were written", file.bytes)));
    }
    let (mut crc, mut outside) = (0, None);
    let unread = each_piece(&path, wish, interrupt, &mut |offset, bytes| {
        crc = crc32c::crc32c_append(crc, bytes);
        if let (None, Some(ids)) = (&outside, ids) {
            outside = ids.outside(offset, bytes);
        }
        step(offset + bytes.len() as u64);
        Ok(())
    })?;
    Ok(unread.or(outside).or_else(|| {
        let changed = "its bytes have changed";
        (crc != file.crc32c)
            .then(|| format!("its checksum is {crc:08x}, {:08x} was written: {changed}", file.crc32c))
    }))
}
