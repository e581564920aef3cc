//! What stands for object stores where the feature `remote` is off: every address is refused by name.

// Everything here has the face of what it stands for.
#![allow(clippy::unused_self, clippy::unnecessary_wraps, clippy::needless_pass_by_value)]

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Existing;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How object stores would be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {}

/// An object: without the feature `remote` there is none.
#[derive(Debug)]
pub enum Object {}

impl Object {
    /// Its address.
    pub fn path(&self) -> &Path {
        match *self {}
    }

    /// Its size.
    pub fn len(&self) -> u64 {
        match *self {}
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        match *self {}
    }

    /// What stands for this very object.
    pub fn identity(&self) -> String {
        match *self {}
    }

    pub(crate) fn read_exact(&self, _: u64, _: &mut [u8]) -> Result<()> {
        match *self {}
    }

    pub(in crate::store) fn cut(&self, _: &Range<u64>) -> Error {
        match *self {}
    }
}

/// An object that would be written.
#[derive(Debug)]
pub(crate) enum Upload {}

pub(crate) const SCRATCH: u64 = 0;

impl Upload {
    pub(crate) fn least() -> u64 {
        0
    }

    pub(crate) fn begin(
        _: &Storage,
        url: &Path,
        _: Existing,
        _: &Budget,
        _: usize,
        _: Option<u64>,
    ) -> Result<Self> {
        Err(refused(url))
    }

    pub(crate) fn at(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn is_ours(&self) -> bool {
        match *self {}
    }

    pub(crate) fn back_to(&mut self, _: u64) -> Result<()> {
        match *self {}
    }

    pub(crate) fn write(&mut self, _: &[u8], _: Interrupt<'_>) -> Result<()> {
        match *self {}
    }

    pub(crate) fn settle(&mut self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn finish(&mut self, _: &[u8]) -> Result<Option<String>> {
        match *self {}
    }
}

/// What would be in a folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<String>,
    pub(crate) folders: bool,
}

impl Storage {
    /// # Errors
    /// Always.
    pub fn new(_: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Result<Self> {
        Err(refused(Path::new("storage_options")))
    }

    /// The options: none.
    pub fn options(&self) -> &[(String, String)] {
        &[]
    }

    /// The same.
    #[must_use]
    pub fn interrupted_by(self, _: impl Fn() -> Result<()> + Send + Sync + 'static) -> Self {
        self
    }

    pub(crate) fn cache(&self) -> Option<Arc<crate::store::LocalCache>> {
        None
    }

    pub(crate) fn afresh(&self) -> Self {
        self.clone()
    }

    pub(crate) fn open(&self, url: &Path) -> Result<Arc<Object>> {
        Err(refused(url))
    }

    pub(crate) fn is_object(&self, _: &Path) -> bool {
        false
    }

    pub(crate) fn fetch_heads(&self, _: &[PathBuf]) -> Result<()> {
        Ok(())
    }

    pub(crate) fn list(&self, folder: &Path) -> Result<Arc<Listing>> {
        Err(refused(folder))
    }

    pub(crate) fn is_folder(&self, folder: &Path) -> Result<bool> {
        Err(refused(folder))
    }

    pub(crate) fn below(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        Err(refused(folder))
    }
}

fn refused(url: &Path) -> Error {
    Error::unsupported(
        format!("{}: this build of Lowtide knows no object stores", url.display()),
        "build it with the feature `remote`, or read a local copy",
    )
}
