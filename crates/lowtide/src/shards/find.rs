//! The shards of one stream, from what a user names.
//!
//! In: names and a [`TokenWish`]. Out: every file in its order, all of one type, and what the user should
//! be warned of. Thousands of shards are looked at in parallel, each opened once and closed again.

use super::detect::{self, Candidate, Remark, Seen, Sibling};
use super::each::each;
use super::names::{self, Named};
use super::unseen;
use super::{TokenFile, TokenWish};
use crate::door::{DTYPE, FORMAT, Words};
use crate::error::{Error, Result};
use crate::format::{Dialect, guess};
use crate::store::{Check, One, is_url};
use std::fmt::Display;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The shards of the stream, in its order. All tokens are of one type; there is at least one file.
    pub files: Vec<TokenFile>,
    /// What is not wrong but may not be what the user meant, a sentence each.
    pub warnings: Vec<Words>,
    /// Of many objects, which ones nobody has looked at yet.
    pub(crate) unseen: Vec<bool>,
}

/// From names (files, folders, globs, Megatron's prefixes) to the shards of one stream, in the order
/// given; a folder and a glob are sorted by the bytes of their names.
///
/// ```no_run
/// use lowtide::shards::{TokenWish, find_tokens};
/// let found = find_tokens(&["data/fineweb_train_*.bin".into()], &TokenWish::default())?;
/// let tokens: u64 = found.files.iter().map(|file| file.tokens).sum();
/// # Ok::<(), lowtide::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a wish that no file could fulfil, and for files that do not go together;
/// [`Error::Format`] and [`Error::Unsupported`] for files that are no token files, or could be of several
/// dialects; [`Error::Io`] as the system has it.
pub fn find_tokens(names: &[PathBuf], wish: &TokenWish) -> Result<Found> {
    wish.check()?;
    if names.is_empty() {
        return Err(Error::argument("no token files are named", "name a file, a folder, a glob or a list"));
    }
    let storage = wish.storage();
    unseen::list_parent(names, &storage);
    let mut meant = names::expand(names, wish)?;
    let mut warnings: Vec<Words> = meant.iter_mut().filter_map(|one| one.warning.take()).collect();
    let groups: Vec<(usize, bool)> = meant.iter().map(|one| (one.files.len(), one.each_by_name)).collect();
    let candidates: Vec<_> = meant.into_iter().flat_map(|Named { files, .. }| files).collect();
    let paths: Vec<PathBuf> = candidates.iter().map(|candidate| candidate.path.clone()).collect();
    let (seen, unseen) = if unseen::are_presumable(&paths) {
        let like = |candidate: &Candidate, like: &Seen| detect::presumed(candidate, like, &storage);
        unseen::presume(&candidates, |candidate| detect::look(candidate, wish), like)?
    } else {
        storage.fetch_heads(&paths.into_iter().filter(|path| is_url(path)).collect::<Vec<_>>())?;
        let seen = each(&candidates, |candidate| detect::look(candidate, wish))?;
        let unseen = vec![false; seen.len()];
        (seen, unseen)
    };
    drop(candidates);
    let mut rest = &seen[..];
    for (len, each_by_name) in groups {
        let (group, others) = rest.split_at(len);
        rest = others;
        if !each_by_name {
            same(group, "dialects", |file| file.dialect)?;
        }
    }
    same(&seen, "types", |file| file.dtype)?;
    count(&seen)?;
    warnings.extend(looks_other(&seen, wish)?);
    warnings.extend(remarks(&seen));
    Ok(Found { files: seen.into_iter().map(|seen| seen.file).collect(), warnings, unseen })
}

/// The look at an object that was put off when it was opened.
pub(crate) fn check_tokens(file: &TokenFile, wish: &TokenWish) -> Check {
    let (wish, has_index) = (wish.clone(), file.index.is_some());
    let look = move |path: &Path| {
        let index = if has_index { Sibling::Present } else { Sibling::Unknown };
        let candidate = Candidate { path: path.to_owned(), index, dialect: None };
        detect::look(&candidate, &wish).map(|seen| seen.file)
    };
    let words = |file: &TokenFile| {
        format!(
            "format {}, {} tokens of {} from byte {} on",
            file.dialect, file.tokens, file.dtype, file.offset
        )
    };
    unseen::check(file.clone(), look, words)
}

/// That all files have the same of something, or the first two that differ.
fn same<T: PartialEq + Display>(seen: &[Seen], what: &str, of: impl Fn(&TokenFile) -> T) -> Result<()> {
    let Some(first) = seen.first().map(|seen| &seen.file) else { return Ok(()) };
    match seen.iter().map(|seen| &seen.file).find(|file| of(file) != of(first)) {
        None => Ok(()),
        Some(other) => Err(Error::argument(
            format!(
                "one stream of two {what}: {} is {}, {} is {}",
                first.path.display(),
                of(first),
                other.path.display(),
                of(other)
            ),
            Words::from("name the files that belong together, or say ")
                + FORMAT
                + " or "
                + DTYPE
                + " for all of them",
        )),
    }
}

/// That the tokens of all files together can be counted in bytes.
fn count(seen: &[Seen]) -> Result<()> {
    let bytes: u128 =
        seen.iter().map(|seen| u128::from(seen.file.tokens) * seen.file.dtype.itemsize() as u128).sum();
    match i64::try_from(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::argument("the files together are larger than 63 bits can say", "")),
    }
}

/// Where uint16 is only our guess: whether a sample of the first file looks like something else, or one of another file
/// that begins so. One shard of another type among many would be read as noise.
fn looks_other(seen: &[Seen], wish: &TokenWish) -> Result<Option<Words>> {
    let guessed = |seen: &&Seen| seen.file.dialect == Dialect::NanoGpt && seen.file.tokens > 0;
    if wish.dtype.is_some() {
        return Ok(None);
    }
    let mut bare = seen.iter().filter(guessed);
    let Some(first) = bare.next() else { return Ok(None) };
    if let Some(dtype) = looks_like(&first.file, wish)? {
        let but =
            format!("{}: read as uint16, but a sample looks like {dtype}: say ", first.file.path.display());
        return Ok(Some(
            Words::from(but) + DTYPE.is(dtype) + ", or " + DTYPE.is("uint16") + " if it is that",
        ));
    }
    let others: Vec<&Seen> = bare.filter(|seen| seen.begins_wider).collect();
    let Some(other) = others.first() else { return Ok(None) };
    let more =
        if others.len() == 1 { String::new() } else { format!(" (and {} more like it)", others.len() - 1) };
    Ok(looks_like(&other.file, wish)?.map(|dtype| {
        let but = format!(
            "{}: read as uint16, as {} is, but a sample looks like {dtype}{more}: leave it out, or say ",
            other.file.path.display(),
            first.file.path.display()
        );
        Words::from(but) + DTYPE.is("uint16") + " if it is that"
    }))
}

/// The type that a sample of a file looks like, if not like uint16.
fn looks_like(file: &TokenFile, wish: &TokenWish) -> Result<Option<&'static str>> {
    let source = One::open(&file.path, &wish.storage())?;
    let mut sample = Vec::new();
    for mut piece in detect::sample(&source)? {
        piece.truncate(piece.len() / 8 * 8);
        sample.append(&mut piece);
    }
    Ok(guess::other_than_uint16(&sample, file.len))
}

/// What is to be said about single files; where many are alike, the first speaks for them.
fn remarks(seen: &[Seen]) -> Vec<Words> {
    let mut said: Vec<(&TokenFile, &Remark, usize)> = Vec::new();
    for Seen { file, remark, .. } in seen {
        let Some(remark) = remark else { continue };
        match said.iter_mut().find(|(_, known, _)| discriminant(*known) == discriminant(remark)) {
            Some((.., more)) => *more += 1,
            None => said.push((file, remark, 0)),
        }
    }
    let words = said.into_iter().map(|(file, remark, more)| {
        let more = if more == 0 { String::new() } else { format!(" (and {more} more like it)") };
        Words::from(format!("{}: ", file.path.display())) + remark.words() + more
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Dtype, Kind};

    #[test]
    fn more_bytes_than_63_bits_can_count_are_refused() {
        let file = |tokens| Seen {
            file: TokenFile {
                path: "x.bin".into(),
                index: None,
                dialect: Dialect::NanoGpt,
                dtype: Dtype::native(Kind::UInt16),
                offset: 0,
                tokens,
                len: 0,
            },
            remark: None,
            begins_wider: false,
        };
        assert!(count(&[file(1 << 61), file((1 << 61) - 1)]).is_ok());
        assert!(count(&[file(1 << 61), file(1 << 61)]).is_err());
        assert!(count(&[file(i64::MAX as u64), file(i64::MAX as u64), file(i64::MAX as u64)]).is_err());
    }
}
