//! `store=`: a store of obstore's, as a way of ours to the same place.
//!
//! Lowtide makes its own connections, with its own attempts, conditions and signals. So nothing of the store is used but
//! what it says of itself: which bucket, below which prefix, with which settings. One that fetches its credentials by a
//! function of Python's is refused.

use crate::storage;
use lowtide::store::{Storage, is_url};
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a store says of itself.
#[derive(Debug, Default)]
pub struct Given {
    /// What names are below: an address, or a folder of this machine.
    base: Option<String>,
}

impl Given {
    /// A name as it is in the store.
    pub fn name(&self, name: PathBuf) -> PyResult<PathBuf> {
        let Some(base) = &self.base else { return Ok(name) };
        if is_url(&name) {
            return Err(PyValueError::new_err(format!(
                "{}: with store= names are keys in the store\nhint: such as \"rows.npy\"",
                name.display()
            )));
        }
        let key = name.to_string_lossy();
        let slash = if base.ends_with('/') || key.is_empty() { "" } else { "/" };
        Ok(PathBuf::from(format!("{base}{slash}{}", key.trim_start_matches('/'))))
    }
}

/// How object stores are reached: by `store`, or as `options` say.
pub fn argument(
    store: Option<&Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Storage, Given)> {
    let Some(store) = store.filter(|store| !store.is_none()) else {
        return Ok((storage::argument(options)?, Given::default()));
    };
    if options.is_some_and(|options| !options.is_none()) {
        return Err(PyValueError::new_err("store= brings its own settings: storage_options= is not for it"));
    }
    let (base, options) = read(store)?;
    Ok((storage::with(options)?, Given { base: Some(base) }))
}

/// The address of a store, and its settings.
fn read(store: &Bound<'_, PyAny>) -> PyResult<(String, BTreeMap<String, String>)> {
    let kind = kind(store)?;
    let mut options = BTreeMap::new();
    let address = match &*kind {
        "LocalStore" => {
            let prefix = store.getattr("prefix")?;
            let folder = if prefix.is_none() { "/".to_owned() } else { prefix.str()?.to_str()?.to_owned() };
            return Ok((folder, options));
        }
        "HTTPStore" => store.getattr("url")?.str()?.to_str()?.to_owned(),
        "S3Store" | "GCSStore" | "AzureStore" => {
            if store.getattr("credential_provider").is_ok_and(|provider| !provider.is_none()) {
                return Err(PyNotImplementedError::new_err(format!(
                    "store=: this {kind} fetches its credentials by a function of Python's\n\
                     hint: keys in its config, or those of the environment: {kind}(bucket)"
                )));
            }
            settings(&store.getattr("config")?, &mut options)?;
            let (scheme, bucket) = match &*kind {
                "S3Store" => ("s3", "bucket"),
                "GCSStore" => ("gs", "bucket"),
                _ => ("az", "container_name"),
            };
            let bucket = options.remove(bucket).ok_or_else(|| unknown(&kind))?;
            format!("{scheme}://{bucket}")
        }
        _ => return Err(unknown(&kind)),
    };
    let connections = store.getattr("client_options")?;
    if !connections.is_none() {
        settings(&connections, &mut options)?;
    }
    // That of one request: ours depends on how long it is.
    options.remove("timeout");
    let retry = store.getattr("retry_config")?;
    if !retry.is_none() {
        let seconds: f64 = retry.get_item("retry_timeout")?.call_method0("total_seconds")?.extract()?;
        options.insert("timeout".into(), format!("{}ms", (seconds * 1e3).max(1.0).round()));
    }
    let prefix = store.getattr("prefix").ok().filter(|prefix| !prefix.is_none());
    let prefix = prefix.map(|prefix| Ok::<_, PyErr>(prefix.str()?.to_str()?.trim_matches('/').to_owned()));
    match prefix.transpose()?.filter(|prefix| !prefix.is_empty()) {
        Some(prefix) => Ok((format!("{address}/{prefix}"), options)),
        None => Ok((address, options)),
    }
}

/// Which of obstore's classes it is, or is made of.
fn kind(store: &Bound<'_, PyAny>) -> PyResult<String> {
    let classes: Bound<'_, PyTuple> = store.get_type().mro();
    for class in classes.iter() {
        let class = class.cast_into::<PyType>()?;
        if class.module()?.to_str()?.starts_with("obstore") {
            return Ok(class.name()?.to_str()?.to_owned());
        }
    }
    Err(PyTypeError::new_err(format!(
        "store={} is no store of obstore's\nhint: obstore.store.S3Store(\"bucket\"), or storage_options= with an address",
        store.repr()?
    )))
}

fn unknown(kind: &str) -> PyErr {
    PyNotImplementedError::new_err(format!(
        "store=: what is in a {kind} cannot be reached from here\n\
         hint: S3Store, GCSStore, AzureStore, HTTPStore and LocalStore can"
    ))
}

fn settings(given: &Bound<'_, PyAny>, into: &mut BTreeMap<String, String>) -> PyResult<()> {
    let copy = PyDict::new(given.py());
    copy.call_method1("update", (given,))?;
    storage::words(&copy, into)
}
