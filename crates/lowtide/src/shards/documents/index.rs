//! Documents by the index files of Megatron and datatrove, read an entry at a time.
//!
//! Kept for each shard: where its index is and how many documents it has. A few index files stay open, not
//! all of them: a stream can have more shards than a process may have descriptors.

use super::super::TokenFile;
use super::super::each::each;
use crate::door::{END_OF_TEXT, Words};
use crate::error::{Error, Result};
use crate::format::{Dialect, datatrove, megatron};
use crate::store::{One, Storage, is_url};
use crate::sys;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// How many index files stay open.
const OPEN: usize = 8;

/// Where the documents of all shards are.
#[derive(Debug)]
pub(super) struct Indexed {
    /// Those that have documents.
    shards: Vec<Shard>,
    documents: u64,
    /// Open index files, the one used last at the end.
    open: Mutex<Vec<(usize, Arc<One>)>>,
    storage: Storage,
}

#[derive(Debug)]
struct Shard {
    index: PathBuf,
    /// The size of the index when it was opened.
    len: u64,
    kind: Kind,
    /// Its first document in the stream.
    first: u64,
    /// Its first token in the stream.
    start: u64,
    /// How many tokens, and the bytes of the file.
    tokens: u64,
    data_len: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Megatron(megatron::Index),
    Datatrove(datatrove::Index),
}

impl Kind {
    fn documents(self) -> u64 {
        match self {
            Self::Megatron(index) => index.documents,
            Self::Datatrove(index) => index.documents,
        }
    }
}

impl Indexed {
    /// `None` where no file has an index.
    pub fn open(files: &[TokenFile], storage: &Storage) -> Result<Option<Self>> {
        let Some(with) = files.iter().find(|file| file.index.is_some()) else { return Ok(None) };
        // A file without tokens has no documents, whether it says so or not.
        if let Some(without) = files.iter().find(|file| file.index.is_none() && file.tokens > 0) {
            return Err(Error::argument(
                format!(
                    "{} has an index of its documents, {} has none",
                    with.path.display(),
                    without.path.display()
                ),
                Words::from("documents need an index beside every file, or ")
                    + END_OF_TEXT
                    + " and no index at all",
            ));
        }
        storage.fetch_heads(
            &files
                .iter()
                .filter_map(|file| file.index.clone())
                .filter(|index| is_url(index))
                .collect::<Vec<_>>(),
        )?;
        let look =
            |file: &TokenFile| file.index.as_deref().map(|index| look(file, index, storage)).transpose();
        let indexes = each(files, look)?;
        let (mut shards, mut first, mut start) = (Vec::new(), 0, 0);
        for (file, found) in files.iter().zip(indexes) {
            if let (Some(index), Some((kind, len))) = (&file.index, found)
                && kind.documents() > 0
            {
                let (index, tokens, data_len) = (index.clone(), file.tokens, file.len);
                shards.push(Shard { index, len, kind, first, start, tokens, data_len });
                first += kind.documents();
            }
            start += file.tokens;
        }
        Ok(Some(Self { shards, documents: first, open: Mutex::default(), storage: storage.clone() }))
    }

    pub fn len(&self) -> u64 {
        self.documents
    }

    /// The tokens of document `i`, which must be there.
    pub fn range(&self, i: u64) -> Result<Range<u64>> {
        let at = self.shards.partition_point(|shard| shard.first <= i) - 1;
        let shard = &self.shards[at];
        let source = self.source(at)?;
        let read = |offset, out: &mut [u8]| source.read_exact(offset, out);
        let i = i - shard.first;
        let tokens = match shard.kind {
            Kind::Megatron(index) => index.document(&shard.index, &read, i, shard.data_len)?,
            Kind::Datatrove(index) => index.document(&shard.index, &read, i, shard.tokens)?,
        };
        Ok(shard.start + tokens.start..shard.start + tokens.end)
    }

    /// The open index of a shard.
    fn source(&self, at: usize) -> Result<Arc<One>> {
        let known = sys::locked(&self.open, |open| {
            let place = open.iter().position(|(shard, _)| *shard == at)?;
            let found = open.remove(place);
            open.push(found.clone());
            Some(found.1)
        });
        if let Some(source) = known {
            return Ok(source);
        }
        let shard = &self.shards[at];
        let source = Arc::new(One::open(&shard.index, &self.storage)?);
        if source.len() != shard.len {
            return Err(Error::Format {
                path: shard.index.clone(),
                offset: 0,
                expected: format!("an index of {} bytes, as when it was opened", shard.len),
                found: format!("{} bytes", source.len()),
                hint: "the file has changed since: open it again".into(),
            });
        }
        let closed = sys::locked(&self.open, |open| {
            open.push((at, source.clone()));
            (open.len() > OPEN).then(|| open.remove(0))
        });
        drop(closed); // not under the lock: closing is I/O
        Ok(source)
    }
}

/// Opens an index and checks its totals.
fn look(file: &TokenFile, index: &Path, storage: &Storage) -> Result<(Kind, u64)> {
    let source = One::open(index, storage)?;
    let read = |offset, out: &mut [u8]| source.read_exact(offset, out);
    let kind = if file.dialect == Dialect::Megatron {
        let mut head = [0; megatron::HEADER_LEN];
        let len = usize::try_from(source.len()).map_or(head.len(), |len| len.min(head.len()));
        read(0, &mut head[..len])?;
        let found = megatron::Index::parse(index, &head[..len], source.len())?;
        if found.dtype != file.dtype {
            return Err(Error::Format {
                path: index.to_owned(),
                offset: 17,
                expected: format!("{}, as when it was found", file.dtype),
                found: found.dtype.to_string(),
                hint: "the file has changed since: open it again".into(),
            });
        }
        found.covered(index, &read, file.len)?;
        found.check_documents(index, &read)?;
        Kind::Megatron(found)
    } else {
        let found = datatrove::Index::parse(index, source.len())?;
        let tokens = found.tokens(&read)?;
        if tokens != file.tokens {
            return Err(Error::Format {
                path: index.to_owned(),
                offset: source.len().saturating_sub(8),
                expected: format!("documents that end with the last of {} tokens", file.tokens),
                found: format!("an end at {tokens}"),
                hint: "the index is damaged, or not of this file".into(),
            });
        }
        Kind::Datatrove(found)
    };
    Ok((kind, source.len()))
}
