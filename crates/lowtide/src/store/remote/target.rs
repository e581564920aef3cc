//! Where an object is written to, and the requests of that: begin, a part, put together, give up.
//!
//! An object appears when its parts are put together, or when all of it is sent at once: whole or not at all, by
//! construction. What must be new is looked for before, and S3 is asked to take it only if nothing is there. An answer
//! that was lost leaves open whether it was taken: then the object itself is looked at.

use super::attempts::{Attempts, SLOWEST, attempts, patience};
use super::client::{Client, Writable};
use super::runtime::within;
use super::trouble::Trouble;
use crate::door::OVERWRITE;
use crate::error::{Error, Result};
use crate::options::Existing;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{MultipartId, ObjectMeta, ObjectStoreExt, PutMode, PutOptions};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What is done, for messages.
const WHAT: &str = "write the object";
/// How long a server is asked to forget what it has: whoever gives up does not want to wait.
const GOODBYE: Duration = Duration::from_secs(3);
/// Putting parts together takes a server longer, the more there are.
const PER_PART: Duration = Duration::from_millis(20);

/// Where an object goes.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: PathBuf,
    client: Arc<Client>,
    key: Key,
    existing: Existing,
    /// The tag of what was there at first.
    before: Option<String>,
}

/// All of an object, or its parts that the server has.
#[derive(Clone, Debug)]
pub(super) enum All {
    Bytes(Bytes),
    Parts(MultipartId, Vec<PartId>),
}

impl Target {
    /// A place where something may be written.
    ///
    /// # Errors
    /// [`Error::Io`] where an object is there that is not to be replaced.
    pub(super) async fn new(url: &Path, client: Arc<Client>, key: Key, existing: Existing) -> Result<Self> {
        client.store_to_write(existing)?; // what cannot be written to is said now
        let mut new = Self { url: url.to_owned(), client, key, existing, before: None };
        let looked = attempts(&new.client, url, WHAT, new.client.timeout, &Cell::new(0), async |left| {
            within(left, new.look()).await.unwrap_or(Err(Trouble::Slow))
        })
        .await;
        match (looked, existing) {
            (Ok(Some(_)), Existing::Refuse) => {
                let hint = OVERWRITE.on() + " replaces it, once the new one is whole";
                return Err(new.is_there().with_hint(hint));
            }
            (Ok(found), _) => new.before = found.and_then(|meta| meta.e_tag),
            // Some may write, and not look.
            (Err(Error::Io { source, .. }), Existing::Replace)
                if source.kind() == std::io::ErrorKind::PermissionDenied => {}
            (Err(error), _) => return Err(error),
        }
        Ok(new)
    }

    /// What is there now.
    async fn look(&self) -> Result<Option<ObjectMeta>, Trouble> {
        match self.client.store().map_err(Trouble::Final)?.head(&self.key).await {
            Ok(meta) => Ok(Some(meta)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(Trouble::of(&self.url, WHAT, error)),
        }
    }

    fn is_there(&self) -> Error {
        Error::io(&self.url, WHAT, std::io::Error::from_raw_os_error(libc::EEXIST))
    }

    fn appeared(&self) -> Trouble {
        Trouble::Final(self.is_there().with_hint("it appeared meanwhile, and was left alone"))
    }

    /// Begins an upload in parts.
    pub(super) async fn begin(&self) -> Result<MultipartId> {
        attempts(&self.client, &self.url, WHAT, self.client.timeout, &Cell::new(0), async |left| {
            let store = self.client.store_to_write(self.existing).map_err(Trouble::Final)?;
            let answer = within(left, store.create_multipart(&self.key)).await.ok_or(Trouble::Untaken)?;
            answer.map_err(|error| Trouble::of_sent(&self.url, WHAT, error))
        })
        .await
    }

    /// Sends a part, as often as it takes.
    pub(super) async fn send(
        self: Arc<Self>,
        id: MultipartId,
        index: usize,
        part: Bytes,
    ) -> Result<(usize, PartId)> {
        let len = part.len() as u64;
        let timeout = self.client.timeout + Duration::from_secs(len / SLOWEST);
        let mut attempts = Attempts::new(&self.client, &self.url, WHAT, timeout);
        loop {
            let store = self.client.store_to_write(self.existing)?;
            let sent = store.put_part(&self.key, &id, index, part.clone().into());
            let trouble = match within(patience(len).min(attempts.left()), sent).await {
                Some(Ok(id)) => {
                    self.client.answered();
                    return Ok((index, id));
                }
                Some(Err(error)) => Trouble::of_sent(&self.url, WHAT, error),
                None => Trouble::Untaken,
            };
            attempts.failed(trouble, 0).await?;
        }
    }

    /// Makes it an object of `len` bytes, and gives its tag.
    pub(super) async fn finish(&self, all: All, len: u64) -> Result<Option<String>> {
        let more = match &all {
            All::Bytes(bytes) => Duration::from_secs(bytes.len() as u64 / SLOWEST),
            All::Parts(_, parts) => PER_PART.saturating_mul(u32::try_from(parts.len()).unwrap_or(u32::MAX)),
        };
        // Whether it may be there already, and whether the server knows conditions.
        let (unsure, mut how) = (Cell::new(false), self.existing);
        let timeout = self.client.timeout + more;
        attempts(&self.client, &self.url, WHAT, timeout, &Cell::new(0), async |left| {
            let there = match (unsure.get(), self.existing) {
                (false, Existing::Replace) => None,
                _ => within(left, self.look()).await.unwrap_or(Err(Trouble::Slow))?,
            };
            // Nobody else's is of this length, and came in these seconds.
            let ours = |meta: &ObjectMeta| unsure.get() && meta.size == len && meta.e_tag != self.before;
            match there {
                Some(meta) if ours(&meta) => return Ok(meta.e_tag),
                Some(_) if self.existing == Existing::Refuse => return Err(self.appeared()),
                _ => {}
            }
            let store = self.client.store_to_write(how).map_err(Trouble::Final)?;
            let answer = within(left, self.take(&*store, all.clone(), how)).await;
            let trouble = match answer {
                Some(Ok(tag)) => return Ok(tag),
                Some(Err(
                    object_store::Error::AlreadyExists { .. }
                    | object_store::Error::Precondition { .. }
                    | object_store::Error::NotModified { .. },
                )) if self.existing == Existing::Refuse && !unsure.get() => self.appeared(),
                Some(Err(object_store::Error::NotImplemented { .. })) => Trouble::Server(501),
                Some(Err(error)) => Trouble::of_sent(&self.url, WHAT, error),
                None => Trouble::Untaken,
            };
            match &trouble {
                Trouble::Server(501) => how = Existing::Replace, // it knows no conditions
                Trouble::Final(_) if !unsure.get() => {}
                _ => unsure.set(true),
            }
            Err(trouble)
        })
        .await
    }

    async fn take(
        &self,
        store: &dyn Writable,
        all: All,
        how: Existing,
    ) -> object_store::Result<Option<String>> {
        let put = match all {
            All::Bytes(bytes) => {
                let mode = if how == Existing::Refuse { PutMode::Create } else { PutMode::Overwrite };
                store.put_opts(&self.key, bytes.into(), PutOptions::from(mode)).await?
            }
            All::Parts(id, parts) => store.complete_multipart(&self.key, &id, parts).await?,
        };
        Ok(put.e_tag)
    }

    /// Has the server forget the parts that it has.
    pub(super) async fn give_up(&self, id: MultipartId) {
        let progress = Cell::new(0);
        let asked = attempts(&self.client, &self.url, WHAT, GOODBYE, &progress, async |left| {
            let store = self.client.store_to_write(self.existing).map_err(Trouble::Final)?;
            match within(left, store.abort_multipart(&self.key, &id)).await.ok_or(Trouble::Untaken)? {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(Trouble::of_sent(&self.url, WHAT, error)),
            }
        });
        if let Err(error) = asked.await {
            log::warn!("{}: parts of it are left in the store: {error}", self.url.display());
        }
    }
}
