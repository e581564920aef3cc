//! Files without a manifest: token files by their headers, indexes and ids; arrays by their headers.

use super::pieces::{Ids, each_piece};
use super::{Finding, Verified, Wish};
use lowtide::format::{Kind, npy};
use lowtide::{Error, Interrupt, Options, Result, TokenOptions, Tokens};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How many documents are looked up before somebody is asked whether to go on.
const DOCUMENTS: u64 = 4096;

/// A file to be read from its first byte to its last.
struct Whole {
    path: PathBuf,
    bytes: u64,
    ids: Option<Ids>,
}

/// Opens what there is, and reads all of it.
pub fn check(
    path: &Path,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Verified> {
    let mut verified = Verified::default();
    let files = if is_array(path, wish) {
        arrays(path, wish)?
    } else {
        let tokens = tokens(path, wish)?;
        let odd = tokens.warnings().iter().map(|what| Finding { file: path.to_owned(), what: what.clone() });
        verified.findings.extend(odd);
        verified.findings.extend(documents(&tokens, path, interrupt)?);
        whole(&tokens, wish)
    };
    let total = files.iter().map(|file| file.bytes).sum();
    for file in files {
        let mut outside = None;
        let unread = each_piece(&file.path, wish, interrupt, &mut |offset, bytes| {
            if let (None, Some(ids)) = (&outside, &file.ids) {
                outside = ids.outside(offset, bytes);
            }
            progress(verified.bytes + offset + bytes.len() as u64, total);
            Ok(())
        })?;
        verified.files += 1;
        verified.bytes += file.bytes;
        let found = unread.or(outside).map(|what| Finding { file: file.path, what: what.into() });
        verified.findings.extend(found);
    }
    Ok(verified)
}

/// Whether an array is meant: by what is said of it, or by NumPy's own headers, unless it could as well be tokens.
fn is_array(path: &Path, wish: &Wish) -> bool {
    use Kind::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let is_token = |kind| matches!(kind, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64);
    if wish.shape.is_some() || wish.dtype.is_some_and(|dtype| !is_token(dtype.kind())) {
        return true;
    }
    let mut head = [0; 16];
    let read = File::open(path).and_then(|mut file| file.read(&mut head)).unwrap_or(0);
    let opened = Options::new().storage(wish.storage.clone()).open(path); // no more than headers
    let could_be = opened.as_ref().is_ok_and(|a| a.shape().len() == 1 && is_token(a.dtype().kind()));
    wish.dialect.is_none() && (npy::is_npy(&head[..read]) || opened.is_ok()) && !could_be
}

/// The files of an array, one or several.
fn arrays(path: &Path, wish: &Wish) -> Result<Vec<Whole>> {
    let mut options = wish.options(Options::new());
    if let Some(dtype) = wish.dtype {
        options = options.dtype(dtype);
    }
    if let Some(shape) = &wish.shape {
        options = options.shape(shape)?;
    }
    let array = options.open(path)?; // sizes are as the headers say
    let whole = |path: &Path, bytes| Whole { path: path.to_owned(), bytes, ids: None };
    Ok(match array.files() {
        Some(files) => files.iter().map(|file| whole(&file.path, file.len)).collect(),
        None => vec![whole(path, array.file_len()?)],
    })
}

fn tokens(path: &Path, wish: &Wish) -> Result<Tokens> {
    let mut options = TokenOptions::new().storage(wish.storage.clone());
    if let Some(dtype) = wish.dtype {
        options = options.dtype(dtype);
    }
    if let Some(dialect) = wish.dialect {
        options = options.dialect(dialect);
    }
    if let Some(budget) = &wish.budget {
        options = options.budget(budget.clone());
    }
    options.open([path])
}

/// The files of a stream, and where their ids are.
fn whole(tokens: &Tokens, wish: &Wish) -> Vec<Whole> {
    let one = |file: &lowtide::shards::TokenFile| {
        let (first, dtype) = (file.offset, file.dtype);
        let end = first.saturating_add(file.tokens.saturating_mul(dtype.itemsize() as u64));
        let ids = wish.vocabulary.map(|vocabulary| Ids { first, end, dtype, vocabulary });
        Whole { path: file.path.clone(), bytes: file.len, ids }
    };
    tokens.files().iter().map(one).collect()
}

/// What is wrong with an index of documents: each entry is looked at.
fn documents(tokens: &Tokens, path: &Path, interrupt: Interrupt<'_>) -> Result<Option<Finding>> {
    let wrong = |error: Error| {
        let what = format!("its index of documents: {error}");
        Ok(Some(Finding { file: path.to_owned(), what: what.into() }))
    };
    if tokens.files().iter().all(|file| file.index.is_none()) {
        return Ok(None);
    }
    let count = match tokens.known_documents() {
        Ok(count) => count.unwrap_or(0),
        Err(error) => return wrong(error),
    };
    for number in 0..count {
        if number % DOCUMENTS == 0 {
            interrupt()?;
        }
        match tokens.document_range(number, interrupt, &|_| {}) {
            Ok(_) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => return wrong(error),
        }
    }
    Ok(None)
}
