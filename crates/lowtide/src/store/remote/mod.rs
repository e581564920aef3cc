//! Object stores: `s3://`, `gs://`, `az://`, `http(s)://`, by range requests and uploads through the `object_store` crate.
//!
//! [`Storage`] is how they are reached (the user's options, credentials from the environment) and what was listed there;
//! an [`Object`] is one as it was first seen; what several are end to end is a source like any other
//! ([`Objects`](crate::store::Objects)), and [`Way::Range`](crate::store::Way) the way to it. An `upload` is an object
//! that is being written: its requests are in `target`, the sizes of its parts in `parts`. Waiting is in `runtime`, the
//! clients in `client` and `watched`, what may be tried again in `attempts` and `trouble`, how much is in flight in `pace`.

mod attempts;
mod client;
mod object;
mod pace;
mod parts;
mod runtime;
mod target;
mod trouble;
mod upload;
mod watched;

pub use object::Object;
pub(crate) use pace::CONNECTION;
pub(crate) use upload::{SCRATCH, Upload};

use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::store::LocalCache;
use crate::sys;
use client::{Client, Home, Options, home};
use futures_util::{StreamExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::path::Path as Key;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The first bytes of an object, which every look at it begins with.
pub(crate) const HEAD: usize = 8 << 10;
/// So many heads are fetched at once.
const AT_ONCE: usize = 32;
/// A listing of more keys than this is a mistake, and would take gigabytes.
const MOST_KEYS: usize = 10_000_000;

/// Asked while something is waited for: an error ends it.
#[derive(Clone)]
pub(crate) struct Stop(Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

impl Deref for Stop {
    type Target = dyn Fn() -> Result<()> + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// How object stores are reached, and what is known of them.
///
/// ```no_run
/// use lowtide::store::Storage;
/// let storage = Storage::new([("aws_region", "eu-central-1"), ("timeout", "60s")])?;
/// let array = lowtide::Options::new().storage(storage).open("s3://bucket/rows.npy")?;
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Storage {
    options: Options,
    stop: Stop,
    cache: Option<Arc<LocalCache>>,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    clients: HashMap<Home, Arc<Client>>,
    objects: HashMap<PathBuf, Arc<Object>>,
    /// Folders whose contents are known, by their addresses with a `/` at the end.
    folders: HashMap<PathBuf, Arc<Listing>>,
}

/// What is in a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The names of the objects in it, sorted.
    pub(crate) files: Vec<String>,
    /// Whether there are folders in it.
    pub(crate) folders: bool,
}

impl Default for Storage {
    fn default() -> Self {
        Self { options: Arc::from([]), stop: Stop(Arc::new(|| Ok(()))), cache: None, known: Arc::default() }
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options
    }
}

impl Eq for Storage {}

impl Storage {
    /// With these options, in the words of pandas, polars and `object_store`; `timeout` is how long a read may take with
    /// all its attempts. Credentials that are not among them come from the environment.
    ///
    /// # Errors
    /// None now: an option that a store does not know is named when something is opened there.
    pub fn new(options: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Result<Self> {
        let options: Vec<_> = options.into_iter().map(|(word, value)| (word.into(), value.into())).collect();
        Ok(Self { options: options.into(), ..Self::default() })
    }

    /// The same; `stop` is asked several times a second while an answer is waited for, and its error ends that.
    #[must_use]
    pub fn interrupted_by(self, stop: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        Self { stop: Stop(Arc::new(stop)), ..self }
    }

    /// The same; what is read goes through a cache on a local disk, and comes from there the next time.
    #[must_use]
    pub fn cached_in(self, cache: Arc<LocalCache>) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// The local cache, where there is one.
    pub fn cache(&self) -> Option<Arc<LocalCache>> {
        self.cache.clone()
    }

    /// The options that it was made with.
    pub fn options(&self) -> &[(String, String)] {
        &self.options
    }

    /// The same for something new: what is known is asked for again.
    pub(crate) fn afresh(&self) -> Self {
        let known = sys::locked(&self.known, |known| known.clients.clone());
        let known = Known { clients: known, ..Known::default() };
        Self { known: Arc::new(Mutex::new(known)), ..self.clone() }
    }

    /// A store that there is already, as if `bucket` were its address: `s3://bucket`.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is no address.
    pub fn with_store(self, bucket: &str, store: Arc<dyn ObjectStore>) -> Result<Self> {
        let (home, _) = home(Path::new(bucket))?;
        let client = Arc::new(Client::over(store, bucket));
        sys::locked(&self.known, |known| known.clients.insert(home, client));
        Ok(self)
    }

    /// The same, for a store that can be written to in parts.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is no address.
    pub fn with_writable_store<S>(self, bucket: &str, store: &Arc<S>) -> Result<Self>
    where
        S: ObjectStore + object_store::multipart::MultipartStore,
    {
        let (home, _) = home(Path::new(bucket))?;
        let client = Arc::new(Client::over_writable(store, bucket));
        sys::locked(&self.known, |known| known.clients.insert(home, client));
        Ok(self)
    }

    fn client(&self, url: &Path) -> Result<(Arc<Client>, Key)> {
        let (home, key) = home(url)?;
        if let Some(client) = sys::locked(&self.known, |known| known.clients.get(&home).cloned()) {
            return Ok((client, key));
        }
        let new = Arc::new(Client::new(home.clone(), self.options.clone())?);
        Ok((sys::locked(&self.known, |known| known.clients.entry(home).or_insert(new).clone()), key))
    }

    /// The object at an address: as it was listed, or as it is now.
    ///
    /// # Errors
    /// As the system has them for files: not found, permission denied, timed out.
    pub(crate) fn open(&self, url: &Path) -> Result<Arc<Object>> {
        let (known, absent) = sys::locked(&self.known, |known| {
            let folder = folder_of(url).and_then(|folder| known.folders.get(&folder));
            (known.objects.get(url).cloned(), folder.is_some())
        });
        match known {
            Some(object) => return Ok(object),
            None if absent => return Err(missing(url)),
            None => {}
        }
        let (client, key) = self.client(url)?;
        if key.as_ref().is_empty() {
            return Err(missing(url).with_hint("name an object in it, or a folder with a / at its end"));
        }
        let object = Arc::new(wait(&*self.stop, || Object::open(url, &client, &key, &self.stop))?);
        Ok(sys::locked(&self.known, |known| known.objects.entry(url.to_owned()).or_insert(object).clone()))
    }

    /// Whether there is an object at an address. What cannot be known is as good as absent.
    pub(crate) fn is_object(&self, url: &Path) -> bool {
        self.open(url).is_ok()
    }

    /// Fetches the first bytes of many objects at once, where nobody has them yet.
    pub(crate) fn fetch_heads(&self, urls: &[PathBuf]) -> Result<()> {
        if urls.is_empty() {
            return Ok(()); // files need no threads that wait for a network
        }
        let known: Vec<Option<Arc<Object>>> = sys::locked(&self.known, |known| {
            urls.iter().map(|url| known.objects.get(url).cloned()).collect()
        });
        let mut new = Vec::new();
        for (url, _) in urls.iter().zip(&known).filter(|(_, known)| known.is_none()) {
            new.push((url, self.client(url)?));
        }
        let heads = || async {
            let fetched = futures_util::stream::iter(known.iter().flatten())
                .map(|object| async { object.fetch_head().await.map(|_| ()) })
                .buffer_unordered(AT_ONCE);
            fetched.try_collect::<()>().await?;
            // What is not there is told by whoever opens it.
            let opened = futures_util::stream::iter(&new)
                .map(|(url, (client, key))| async {
                    (*url, Object::open(url, client, key, &self.stop).await)
                })
                .buffer_unordered(AT_ONCE);
            Ok(opened
                .filter_map(|(url, object)| async { Some((url.clone(), object.ok()?)) })
                .collect::<Vec<_>>()
                .await)
        };
        let opened = wait(&*self.stop, heads)?;
        sys::locked(&self.known, |known| {
            known.objects.extend(opened.into_iter().map(|(url, object)| (url, Arc::new(object))));
        });
        Ok(())
    }

    /// What is in a folder: one listing, after which sizes and tags are known.
    pub(crate) fn list(&self, folder: &Path) -> Result<Arc<Listing>> {
        let folder = with_slash(folder);
        if let Some(known) = sys::locked(&self.known, |known| known.folders.get(&folder).cloned()) {
            return Ok(known);
        }
        Self::can_list(&folder)?;
        let (client, key) = self.client(&folder)?;
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let found = self.listing(&folder, &client, || async {
            let store = client.store()?;
            Ok(store.list_with_delimiter(prefix).await)
        })?;
        let folders = !found.common_prefixes.is_empty();
        let files = self.keep(&folder, &key, &client, found.objects);
        let files = files.into_iter().filter(|name| !name.contains('/')).collect();
        let listing = Arc::new(Listing { files, folders });
        Ok(sys::locked(&self.known, |known| known.folders.entry(folder).or_insert(listing).clone()))
    }

    /// Whether anything is in a folder.
    pub(crate) fn is_folder(&self, folder: &Path) -> Result<bool> {
        let listing = self.list(folder)?;
        Ok(!listing.files.is_empty() || listing.folders)
    }

    /// The addresses of all objects below a folder, however deep, sorted.
    pub(crate) fn below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let folder = with_slash(folder);
        Self::can_list(&folder)?;
        let (client, key) = self.client(&folder)?;
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let found = self.listing(&folder, &client, || async {
            let keys = client.store()?.list(prefix).take(MOST_KEYS + 1);
            Ok(keys.try_collect::<Vec<_>>().await)
        })?;
        if found.len() > MOST_KEYS {
            return Err(Error::argument(
                format!("{}: there are more than {MOST_KEYS} objects in this folder", folder.display()),
                "name a folder further down",
            ));
        }
        Ok(self.keep(&folder, &key, &client, found).into_iter().map(|name| joined(&folder, &name)).collect())
    }

    fn listing<T: Send, F: Future<Output = Result<object_store::Result<T>>>>(
        &self,
        folder: &Path,
        client: &Client,
        ask: impl Fn() -> F + Sync,
    ) -> Result<T> {
        let what = "list the folder";
        wait(&*self.stop, || async {
            attempts::attempts(client, folder, what, client.timeout, &Cell::new(0), async |left| {
                let answer = runtime::within(left, ask()).await.ok_or(trouble::Trouble::Slow)?;
                let answer = answer.map_err(trouble::Trouble::Final)?;
                answer.map_err(|error| trouble::Trouble::of(folder, what, error))
            })
            .await
        })
    }

    /// Remembers what was listed; the names below the folder, sorted. A key is a name here and never a path: it is handed
    /// back to the server that it came from, and to nobody else.
    fn keep(
        &self,
        folder: &Path,
        prefix: &Key,
        client: &Arc<Client>,
        found: Vec<object_store::ObjectMeta>,
    ) -> Vec<String> {
        let mut names = BTreeMap::new();
        for meta in found {
            let key = meta.location.as_ref();
            let below =
                if prefix.as_ref().is_empty() { Some(key) } else { key.strip_prefix(prefix.as_ref()) };
            let Some(name) = below.map(|name| name.trim_start_matches('/')).filter(|name| !name.is_empty())
            else {
                continue; // a marker of the folder itself, or a server that lists what it was not asked for
            };
            names.insert(name.to_owned(), meta);
        }
        let objects = names.iter().map(|(name, meta)| {
            let url = joined(folder, name);
            (url.clone(), Arc::new(Object::listed(url, client.clone(), meta, self.stop.clone())))
        });
        let objects: Vec<_> = objects.collect();
        sys::locked(&self.known, |known| known.objects.extend(objects));
        names.into_keys().collect()
    }

    fn can_list(folder: &Path) -> Result<()> {
        if super::source::is_web(folder) {
            return Err(Error::unsupported(
                format!("{}: a web server does not say which files are in a folder", folder.display()),
                "name the files, in a list",
            ));
        }
        Ok(())
    }
}

/// Waits in the caller's thread for requests of ours.
pub(super) fn wait_for<T: Send, F: Future<Output = Result<T>>>(
    stop: Interrupt<'_>,
    work: impl FnOnce() -> F + Send,
) -> Result<T> {
    wait(stop, work)
}

use runtime::wait;

fn missing(url: &Path) -> Error {
    Error::io(
        url,
        "open the object",
        std::io::Error::new(std::io::ErrorKind::NotFound, "there is no such object"),
    )
}

/// The folder that an object is in.
fn folder_of(url: &Path) -> Option<PathBuf> {
    let text = url.to_str()?;
    Some(PathBuf::from(&text[..=text.rfind('/')?]))
}

fn with_slash(folder: &Path) -> PathBuf {
    let mut text = folder.as_os_str().to_owned();
    if !text.as_encoded_bytes().ends_with(b"/") {
        text.push("/");
    }
    text.into()
}

/// A name in a folder that ends with a `/`.
fn joined(folder: &Path, name: &str) -> PathBuf {
    let mut text = folder.as_os_str().to_owned();
    text.push(name);
    text.into()
}
