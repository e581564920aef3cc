//! One object as it was when it was first seen, and requests for ranges of it.
//!
//! Every request is conditional on what was seen then, and every answer is compared with it: whoever replaces the object
//! meanwhile gets a named error into the reader's hands, never a mixture of two. A body that breaks is taken up where it
//! ended; what has no hope, or no time left, is an error.

use super::attempts::{SLOWEST, attempts, patience};
use super::client::Client;
use super::runtime::{wait, within};
use super::trouble::Trouble;
use super::{HEAD, Stop};
use crate::error::{Error, Result};
use crate::sys;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};
use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// What tells an object from another one in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    etag: Option<String>,
    /// Seconds and nanoseconds since 1970, where there is no tag.
    modified: (i64, u32),
    version: Option<String>,
}

impl Mark {
    fn of(meta: &ObjectMeta) -> Self {
        let modified = (meta.last_modified.timestamp(), 0);
        Self { etag: meta.e_tag.clone(), modified, version: meta.version.clone() }
    }

    /// Whether a server can be asked for this very object: tags that are called weak match nothing there.
    fn condition(&self) -> Option<String> {
        self.etag.clone().filter(|tag| !tag.starts_with("W/"))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.etag, &other.etag) {
            (Some(mine), Some(other)) => bare(mine) == bare(other),
            _ => self.modified == other.modified,
        }
    }

    fn words(&self) -> String {
        match &self.etag {
            Some(tag) => format!("ETag {tag}"),
            None => format!("last modified {} s after 1970", self.modified.0),
        }
    }
}

/// A listing writes the quotes around a tag as another server may not.
fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// An object in a store, opened for reading.
#[derive(Debug)]
pub struct Object {
    url: PathBuf,
    client: Arc<Client>,
    key: Key,
    len: u64,
    mark: Mark,
    /// Its first bytes, where they came already.
    head: OnceLock<Bytes>,
    stop: Stop,
}

/// Takes the bytes of a body as they come: the first byte's place, and some of them.
pub(in crate::store) type Sink<'a> = &'a mut (dyn FnMut(u64, &[u8]) + Send);

impl Object {
    /// As a listing tells it.
    pub(super) fn listed(url: PathBuf, client: Arc<Client>, meta: &ObjectMeta, stop: Stop) -> Self {
        let (key, len, mark) = (meta.location.clone(), meta.size, Mark::of(meta));
        Self { url, client, key, len, mark, head: OnceLock::new(), stop }
    }

    /// Opened by its name: one request for its first bytes, which tells its size and its tag too.
    pub(super) async fn open(url: &Path, client: &Arc<Client>, key: &Key, stop: &Stop) -> Result<Self> {
        let what = "open the object";
        attempts(client, url, what, client.timeout, &Cell::new(0), async |left| {
            let options =
                GetOptions { range: Some(GetRange::Bounded(0..HEAD as u64)), ..GetOptions::default() };
            let answer = within(left, async {
                let store = client.store().map_err(Trouble::Final)?;
                match store.get_opts(key, options).await {
                    Ok(got) => {
                        let meta = got.meta.clone();
                        let range = got.range.clone();
                        let bytes = got.bytes().await.map_err(|error| Trouble::of(url, what, error))?;
                        Ok((meta, range, Some(bytes)))
                    }
                    Err(error) => match Trouble::of(url, what, error) {
                        // No byte of an empty object can be asked for, and some servers answer 200 to that.
                        Trouble::Nonsense(why) => {
                            let meta =
                                store.head(key).await.map_err(|error| Trouble::of(url, what, error))?;
                            if meta.size == 0 { Ok((meta, 0..0, None)) } else { Err(Trouble::Nonsense(why)) }
                        }
                        trouble => Err(trouble),
                    },
                }
            });
            let (meta, range, bytes) = answer.await.unwrap_or(Err(Trouble::Slow))?;
            let head = bytes.unwrap_or_default();
            let expected = meta.size.min(HEAD as u64);
            if range != (0..expected) || head.len() as u64 != expected {
                return Err(Trouble::Short { got: head.len() as u64, expected });
            }
            let object = Self::listed(url.to_owned(), client.clone(), &meta, stop.clone());
            let _ = object.head.set(head);
            Ok(Self { key: key.clone(), ..object })
        })
        .await
    }

    /// Its address.
    pub fn path(&self) -> &Path {
        &self.url
    }

    /// Its size when it was first seen.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it was empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What stands for this very object: its address, and its tag.
    pub fn identity(&self) -> String {
        format!("{}\n{}\n{}", self.url.display(), self.len, self.mark.words())
    }

    pub(in crate::store) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// That `range` lies past the end.
    pub(in crate::store) fn cut(&self, range: &Range<u64>) -> Error {
        Error::Truncated { path: self.url.clone(), offset: range.start, end: range.end, found: self.len }
    }

    /// Reads exactly these bytes, and waits for them.
    pub(crate) fn read_exact(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(into.len() as u64);
        if end > self.len {
            return Err(self.cut(&(offset..end)));
        }
        if into.is_empty() {
            return Ok(());
        }
        if end <= HEAD as u64 {
            let wanted = usize::try_from(offset).unwrap_or(0);
            into.copy_from_slice(&self.head()?[wanted..wanted + into.len()]);
            return Ok(());
        }
        let mut sink = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at - offset).unwrap_or(usize::MAX);
            into[at..at + bytes.len()].copy_from_slice(bytes);
        };
        wait(&*self.stop, || self.fill(offset..end, &mut sink))
    }

    /// Its first bytes: as many as it has, or [`HEAD`].
    fn head(&self) -> Result<Bytes> {
        match self.head.get() {
            Some(head) => Ok(head.clone()),
            None => wait(&*self.stop, || self.fetch_head()),
        }
    }

    pub(in crate::store) async fn fetch_head(&self) -> Result<Bytes> {
        let mut head = vec![0; usize::try_from(self.len).unwrap_or(usize::MAX).min(HEAD)];
        if self.head.get().is_none() && !head.is_empty() {
            let end = head.len() as u64;
            let mut sink = |at: u64, bytes: &[u8]| {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                head[at..at + bytes.len()].copy_from_slice(bytes);
            };
            self.fill(0..end, &mut sink).await?;
        }
        Ok(self.head.get_or_init(|| head.into()).clone())
    }

    /// Hands the bytes of a range to `sink`, each once and in their order, from as many attempts as it takes.
    ///
    /// # Errors
    /// [`Error::Format`] where another object is in its place, [`Error::Io`] where the bytes did not come.
    pub(in crate::store) async fn fill(&self, range: Range<u64>, sink: Sink<'_>) -> Result<()> {
        let mut at = range.start;
        let timeout = self.client.timeout + Duration::from_secs((range.end - range.start) / SLOWEST);
        let progress = Cell::new(at);
        attempts(&self.client, &self.url, "read the object", timeout, &progress, async |left| {
            let patience = patience(range.end - at).min(left);
            let answer =
                within(patience, self.attempt(&mut at, range.end, sink)).await.unwrap_or(Err(Trouble::Slow));
            progress.set(at);
            answer
        })
        .await
    }

    /// One request: what comes of it is taken, even if not all does.
    async fn attempt(
        &self,
        at: &mut u64,
        end: u64,
        sink: &mut (dyn FnMut(u64, &[u8]) + Send),
    ) -> Result<(), Trouble> {
        let of = |error| self.refused(error, *at);
        let begins = *at;
        let range = Some(GetRange::Bounded(begins..end));
        let options = GetOptions { range, if_match: self.mark.condition(), ..GetOptions::default() };
        let store = self.client.store().map_err(Trouble::Final)?;
        let began = Instant::now();
        let got = match store.get_opts(&self.key, options).await {
            Ok(got) => got,
            Err(error) => return Err(of(error)),
        };
        let first = began.elapsed();
        let now = Mark::of(&got.meta);
        if !self.mark.is_same(&now) || got.meta.size != self.len {
            return Err(Trouble::Final(
                self.replaced(begins, &format!("{}, {} bytes", now.words(), got.meta.size)),
            ));
        }
        if got.range != (begins..end) {
            return Err(Trouble::Nonsense(format!(
                "bytes {begins}..{end} were asked for, {:?} came",
                got.range
            )));
        }
        self.client.answered();
        let mut frames = got.into_stream();
        while let Some(frame) = frames.next().await {
            let frame = frame.map_err(|error| Trouble::of(&self.url, "read the object", error))?;
            if frame.len() as u64 > end - *at {
                return Err(Trouble::Nonsense(format!(
                    "more than the {} bytes that were asked for",
                    end - begins
                )));
            }
            sink(*at, &frame);
            *at += frame.len() as u64;
        }
        if *at < end {
            return Err(Trouble::Short { got: *at - begins, expected: end - begins });
        }
        sys::locked(&self.client.pace, |pace| pace.saw(end - begins, first, began.elapsed()));
        Ok(())
    }

    fn refused(&self, error: object_store::Error, at: u64) -> Trouble {
        match error {
            object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
                Trouble::Final(self.replaced(at, "another one in its place"))
            }
            error => Trouble::of(&self.url, "read the object", error),
        }
    }

    fn replaced(&self, at: u64, found: &str) -> Error {
        Error::Format {
            path: self.url.clone(),
            offset: at,
            expected: format!("the object that was opened ({}, {} bytes)", self.mark.words(), self.len),
            found: found.to_owned(),
            hint: "it was replaced while it was being read: open it again".into(),
        }
    }
}
