//! Thousands of objects, of which only a few are looked at when they are opened.
//!
//! A listing tells the size of every object. What is in them is told by their heads, and to fetch a thousand of those
//! takes as many requests, for shards that a rank may never touch. So of many objects the first and the last are looked
//! at; if they are alike, the others are taken to be like them as far as their sizes fit, and each is looked at before
//! the first byte of it is handed out: what turns out to be otherwise is an error then, never wrong rows.

use crate::error::{Error, Result};
use crate::store::{Check, Storage, is_url, is_web};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Up to so many, each is looked at when it is opened.
const FEW: usize = 16;

/// Whether these are so many objects that not all are looked at, and can be listed.
pub(super) fn are_presumable(paths: &[PathBuf]) -> bool {
    paths.len() > FEW && paths.iter().all(|path| is_url(path) && !is_web(path))
}

/// Where many objects of one folder are named one by one: lists that folder, which is one request instead of many. Where
/// that is not allowed, each is asked for by itself.
pub(crate) fn list_parent(names: &[PathBuf], storage: &Storage) {
    if let Some(parent) = names.first().and_then(|name| name.parent())
        && are_presumable(names)
        && names.iter().all(|name| name.parent() == Some(parent))
    {
        let _ = storage.list(parent);
    }
}

/// What all of them are: the first and the last by a look, the others by their size where they are alike. And which ones
/// nobody has looked at.
pub(super) fn presume<P: AsRef<Path>, T: Alike>(
    paths: &[P],
    look: impl Fn(&P) -> Result<T>,
    like: impl Fn(&P, &T) -> Option<T>,
) -> Result<(Vec<T>, Vec<bool>)> {
    let (Some(first), Some(last)) = (paths.first(), paths.last()) else {
        return Ok((Vec::new(), Vec::new()));
    };
    let (first, last) = (look(first)?, look(last)?);
    let alike = first.is_alike(&last);
    let (mut files, mut unseen) = (vec![first], vec![false]);
    for path in &paths[1..paths.len() - 1] {
        let presumed = if alike { like(path, &files[0]) } else { None };
        unseen.push(presumed.is_some());
        files.push(presumed.map_or_else(|| look(path), Ok)?);
    }
    files.push(last);
    unseen.push(false);
    Ok((files, unseen))
}

/// Whether two are of one kind.
pub(super) trait Alike {
    fn is_alike(&self, other: &Self) -> bool;
}

/// The look that was put off.
pub(super) fn check<T: PartialEq + Debug + Send + Sync + 'static>(
    expected: T,
    look: impl Fn(&Path) -> Result<T> + Send + Sync + 'static,
    words: impl Fn(&T) -> String + Send + Sync + 'static,
) -> Check {
    Arc::new(move |path| {
        let found = look(path)?;
        if found == expected {
            return Ok(());
        }
        Err(Error::Format {
            path: path.to_owned(),
            offset: 0,
            expected: format!("{}, like the first and the last of its folder", words(&expected)),
            found: words(&found),
            hint: "name the files that belong together: a glob, or a list".into(),
        })
    })
}
