//! A way to one bucket, container or web server, with the user's options: built when it is needed, and built again after
//! a fork, because connections belong to the process that made them.

use super::pace::Pace;
use super::watched::{Purpose, Watched};
use crate::door::Words;
use crate::error::{Error, Result};
use crate::options::Existing;
use crate::sys;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What users say of object stores, as words and values.
pub(super) type Options = Arc<[(String, String)]>;

/// How long a read may take with all its attempts, unless said.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
/// Our own word among the options.
pub(super) const TIMEOUT_WORD: &str = "timeout";

/// What fsspec and s3fs call them.
const OTHERS: [(&str, &str); 5] = [
    ("key", "access_key_id"),
    ("secret", "secret_access_key"),
    ("anon", "skip_signature"),
    ("region_name", "region"),
    ("use_ssl", "use_ssl"),
];

/// Which kind of store, and which one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Home {
    S3(String),
    Google(String),
    /// The whole address up to the key: it may name an account.
    Azure(String),
    /// The scheme and the host, and what stands behind a `?`.
    Web(String),
    #[cfg_attr(not(test), allow(dead_code))]
    Given(String),
}

/// A store that can be written to in parts.
pub(super) trait Writable: ObjectStore + MultipartStore {}

impl<S: ObjectStore + MultipartStore> Writable for S {}

/// A store of this process: built when it is needed, for this [`sys::generation`].
#[derive(Debug)]
struct Mine<S: ?Sized>(Mutex<Option<(u64, Arc<S>)>>);

impl<S: ?Sized> Default for Mine<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<S: ?Sized> Mine<S> {
    /// One that there is already.
    fn given(store: Arc<S>) -> Self {
        Self(Mutex::new(Some((u64::MAX, store))))
    }

    fn get(&self, build: impl FnOnce() -> Result<Arc<S>>) -> Result<Arc<S>> {
        let known = sys::locked(&self.0, |built| match built.take() {
            Some((generation, store)) if generation == sys::generation() || generation == u64::MAX => {
                *built = Some((generation, store.clone()));
                Some(store)
            }
            parents => {
                std::mem::forget(parents); // even saying goodbye on its connections is not ours
                None
            }
        });
        if let Some(store) = known {
            return Ok(store);
        }
        let new = build()?;
        Ok(sys::locked(&self.0, |built| built.get_or_insert((sys::generation(), new)).1.clone()))
    }
}

/// Attempts are ours: they look for signals, go on where the last one ended, and count "slow down".
fn once() -> RetryConfig {
    // Another library in this process may have chosen one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

#[allow(clippy::needless_pass_by_value)] // it is what map_err hands over
fn wrong_options(error: object_store::Error) -> Error {
    Error::argument(format!("storage_options: {error}"), "")
}

fn gone(name: &str) -> Error {
    Error::unsupported(format!("{name}: this store is only read from"), "")
}

/// A way to a bucket.
#[derive(Debug)]
pub(crate) struct Client {
    home: Home,
    options: Options,
    pub(super) timeout: Duration,
    built: Mine<dyn ObjectStore>,
    replacing: Mine<dyn Writable>,
    creating: Mine<dyn Writable>,
    pub(crate) pace: Mutex<Pace>,
    /// Whether it ever answered: a wrong address is told from a network that fails.
    reached: AtomicBool,
}

impl Client {
    pub(super) fn new(home: Home, options: Options) -> Result<Self> {
        let timeout = match options.iter().find(|(word, _)| word == TIMEOUT_WORD) {
            Some((_, time)) => duration(time)?,
            None => TIMEOUT,
        };
        let new = Self { timeout, ..Self::unbuilt(home, options) };
        new.store()?; // what is wrong with the options is said now
        Ok(new)
    }

    /// Over a store that there is already, which does not mind a fork.
    pub(super) fn over(store: Arc<dyn ObjectStore>, name: &str) -> Self {
        Self { built: Mine::given(store), ..Self::unbuilt(Home::Given(name.to_owned()), Arc::from([])) }
    }

    /// The same, for one that can be written to.
    pub(super) fn over_writable<S: Writable>(store: &Arc<S>, name: &str) -> Self {
        let (replacing, creating) = (
            Mine::given(store.clone() as Arc<dyn Writable>),
            Mine::given(store.clone() as Arc<dyn Writable>),
        );
        Self { replacing, creating, ..Self::over(store.clone(), name) }
    }

    fn unbuilt(home: Home, options: Options) -> Self {
        Self {
            home,
            options,
            timeout: TIMEOUT,
            built: Mine::default(),
            replacing: Mine::default(),
            creating: Mine::default(),
            pace: Mutex::default(),
            reached: AtomicBool::new(false),
        }
    }

    /// The store, of this process.
    pub(super) fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        self.built.get(|| self.build())
    }

    /// The same for writing, with connections of its own: they may be silent for as long as a part takes to be sent.
    pub(super) fn store_to_write(&self, existing: Existing) -> Result<Arc<dyn Writable>> {
        match existing {
            Existing::Replace => self.replacing.get(|| self.build_to_write(Purpose::Replacing)),
            Existing::Refuse => self.creating.get(|| self.build_to_write(Purpose::Creating)),
        }
    }

    /// It answered.
    pub(super) fn answered(&self) {
        self.reached.store(true, Ordering::Relaxed);
    }

    pub(super) fn was_reached(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }

    fn build(&self) -> Result<Arc<dyn ObjectStore>> {
        Ok(match &self.home {
            Home::S3(bucket) => Arc::new(self.s3(bucket, Purpose::Reading)?),
            Home::Google(bucket) => Arc::new(self.google(bucket, Purpose::Reading)?),
            Home::Azure(url) => Arc::new(self.azure(url, Purpose::Reading)?),
            Home::Web(url) => Arc::new(self.web(url)?),
            Home::Given(name) => return Err(gone(name)),
        })
    }

    fn build_to_write(&self, purpose: Purpose) -> Result<Arc<dyn Writable>> {
        Ok(match &self.home {
            Home::S3(bucket) => Arc::new(self.s3(bucket, purpose)?),
            Home::Google(bucket) => Arc::new(self.google(bucket, purpose)?),
            Home::Azure(url) => Arc::new(self.azure(url, purpose)?),
            Home::Web(url) => {
                return Err(Error::unsupported(
                    format!("{url}: a web server is read from, and not written to"),
                    "s3://, gs:// and az:// are written to; endpoint_url names another server of S3's kind",
                ));
            }
            Home::Given(name) => return Err(gone(name)),
        })
    }

    fn s3(&self, bucket: &str, purpose: Purpose) -> Result<AmazonS3> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let settings = self.settings("S3", purpose)?;
        // `AWS_ENDPOINT_URL_S3` of the environment would win over `endpoint_url` of the user's.
        let at = |wanted| settings.iter().rev().find(|(key, _)| *key == wanted).map(|(_, url)| url.clone());
        let server = at(AmazonS3ConfigKey::S3Endpoint).or_else(|| at(AmazonS3ConfigKey::Endpoint));
        let server = server.map(|url| (AmazonS3ConfigKey::S3Endpoint, url));
        for (key, value) in settings.into_iter().chain(server) {
            builder = builder.with_config(key, value);
        }
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
            .iter()
            .find_map(|key| builder.get_config_value(key));
        if endpoint.is_some_and(|url| url.starts_with("http://")) {
            builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp), "true");
        }
        builder.with_retry(once()).with_http_connector(Watched(purpose)).build().map_err(wrong_options)
    }

    fn google(&self, bucket: &str, purpose: Purpose) -> Result<GoogleCloudStorage> {
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
        for (key, value) in self.settings::<GoogleConfigKey>("Google Cloud Storage", purpose)? {
            builder = builder.with_config(key, value);
        }
        let watched = Watched(purpose.without_condition());
        builder.with_retry(once()).with_http_connector(watched).build().map_err(wrong_options)
    }

    fn azure(&self, url: &str, purpose: Purpose) -> Result<MicrosoftAzure> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_url(url);
        for (key, value) in self.settings::<AzureConfigKey>("Azure", purpose)? {
            builder = builder.with_config(key, value);
        }
        let watched = Watched(purpose.without_condition());
        builder.with_retry(once()).with_http_connector(watched).build().map_err(wrong_options)
    }

    fn web(&self, url: &str) -> Result<HttpStore> {
        let mut options = ClientOptions::new().with_allow_http(true);
        for (key, value) in self.settings::<ClientConfigKey>("a web server", Purpose::Reading)? {
            options = options.with_config(key, value);
        }
        let builder = HttpBuilder::new().with_url(url).with_client_options(options);
        let watched = Watched(Purpose::Reading);
        builder.with_retry(once()).with_http_connector(watched).build().map_err(wrong_options)
    }

    /// The options as the crate's own, those for connections first, which the user's may overrule.
    fn settings<K: std::str::FromStr + From<Own>>(
        &self,
        store: &str,
        purpose: Purpose,
    ) -> Result<Vec<(K, String)>> {
        let mut settings: Vec<(K, String)> =
            Own::ALL.into_iter().map(|(own, value)| (own.into(), value.into())).collect();
        if purpose != Purpose::Reading {
            // Nothing comes back while a part is sent, however long that takes: our own patience ends it.
            settings.push((Own::Silence.into(), "1 day".into()));
        }
        for (word, value) in self.options.iter().filter(|(word, _)| word != TIMEOUT_WORD) {
            let lower = word.to_ascii_lowercase();
            let known = OTHERS.iter().find(|(other, _)| *other == lower).map_or(&*lower, |(_, known)| known);
            let key = known.parse().map_err(|_| {
                Error::argument(
                    format!("storage_options: {word:?} is not an option for {store}"),
                    Words::from(
                        "such as \"aws_access_key_id\", \"aws_secret_access_key\", \"aws_region\", \"endpoint_url\", \
                         \"skip_signature\", \"timeout\"; docs/remote.md lists them",
                    ),
                )
            })?;
            settings.push((key, value.clone()));
        }
        Ok(settings)
    }
}

/// What we set for connections, unless the user does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// Of a whole body: ours depends on how long it is.
    Whole,
    /// Without a byte.
    Silence,
    Connect,
}

impl Own {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Whole, "1 day"), (Self::Silence, "15 seconds"), (Self::Connect, "5 seconds")];

    fn key(self) -> ClientConfigKey {
        match self {
            Self::Whole => ClientConfigKey::Timeout,
            Self::Silence => ClientConfigKey::ReadTimeout,
            Self::Connect => ClientConfigKey::ConnectTimeout,
        }
    }
}

impl From<Own> for ClientConfigKey {
    fn from(own: Own) -> Self {
        own.key()
    }
}

impl From<Own> for AmazonS3ConfigKey {
    fn from(own: Own) -> Self {
        Self::Client(own.key())
    }
}

impl From<Own> for GoogleConfigKey {
    fn from(own: Own) -> Self {
        Self::Client(own.key())
    }
}

impl From<Own> for AzureConfigKey {
    fn from(own: Own) -> Self {
        Self::Client(own.key())
    }
}

/// A time as users write it: `30`, `30s`, `500ms`, `2m`.
fn duration(text: &str) -> Result<Duration> {
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let scale = match unit.trim() {
        "" | "s" | "sec" | "seconds" => 1.0,
        "ms" => 1e-3,
        "m" | "min" | "minutes" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().map_or(f64::NAN, |number| number * scale);
    if seconds > 0.0 && seconds < 1e7 {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Error::argument(format!("storage_options: timeout {text:?} is no time"), "such as \"30s\" or \"5m\""))
}

/// Where an address leads, and the key in it.
pub(super) fn home(url: &Path) -> Result<(Home, object_store::path::Path)> {
    let wrong =
        |what: String| Error::argument(format!("{}: {what}", url.display()), "such as s3://bucket/key");
    let text = url.to_str().ok_or_else(|| wrong("an address must be UTF-8".into()))?;
    let (scheme, _) = crate::store::source::scheme(url).ok_or_else(|| wrong("this is no address".into()))?;
    let (start, rest) = text.split_at(scheme.len() + "://".len());
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(wrong("the address names no bucket".into()));
    }
    let key_of = |key: &str| {
        object_store::path::Path::parse(key)
            .map_err(|error| wrong(format!("this is no key of an object: {error}")))
    };
    Ok(match scheme {
        "s3" | "s3a" => (Home::S3(authority.to_owned()), key_of(key)?),
        "gs" => (Home::Google(authority.to_owned()), key_of(key)?),
        "http" | "https" => {
            let key = key.split('#').next().unwrap_or_default();
            let (key, query) =
                key.split_once('?').map_or((key, String::new()), |(key, query)| (key, format!("?{query}")));
            let key = object_store::path::Path::from_url_path(key)
                .map_err(|error| wrong(format!("this is no address of an object: {error}")))?;
            (Home::Web(format!("{start}{authority}/{query}")), key)
        }
        _ => (Home::Azure(format!("{start}{authority}")), key_of(key)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_home() {
        let of = |url: &str| home(Path::new(url)).map(|(home, key)| (home, key.to_string()));
        assert_eq!(of("s3://b/a/c d.npy").unwrap(), (Home::S3("b".into()), "a/c d.npy".into()));
        assert_eq!(of("gs://b").unwrap(), (Home::Google("b".into()), String::new()));
        assert_eq!(of("az://c@acc/x").unwrap(), (Home::Azure("az://c@acc".into()), "x".into()));
        let (home, key) = of("https://h:8080/a/b%20c.bin?sig=1#x").unwrap();
        assert_eq!((home, &*key), (Home::Web("https://h:8080/?sig=1".into()), "a/b c.bin"));
        for bad in ["s3:///k", "s3://b/a//c", "s3://b/../x", "x"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("30", 30.0), ("30s", 30.0), ("0.5 s", 0.5), ("500ms", 0.5), ("2m", 120.0)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs_f64(seconds));
        }
        for text in ["", "s", "-1", "0", "1 week", "inf", "1e3"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_option_is_named() {
        for home in [Home::S3("b".into()), Home::Web("http://h/".into())] {
            let options: Options = Arc::from([("acess_key".to_owned(), "x".to_owned())]);
            let said = Client::new(home, options).unwrap_err().to_string();
            assert!(said.contains("\"acess_key\" is not an option for"), "{said}");
        }
    }
}
