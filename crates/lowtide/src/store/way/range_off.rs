//! What stands for range requests where the feature `remote` is off: there are no objects to make any to.

// Everything here has the face of what it stands for.
#![allow(clippy::unused_self, clippy::unnecessary_wraps, clippy::needless_pass_by_value)]

use crate::budget::Budget;
use crate::error::Result;
use crate::store::{How, Nature, Objects, Read, Report, Store};
use std::sync::Arc;

/// Never made: without the feature `remote` there are no objects.
#[derive(Debug)]
pub struct RangeStore(Arc<Objects>);

impl RangeStore {
    /// Over no objects.
    pub fn new(objects: Arc<Objects>, _: &Budget) -> Self {
        Self(objects)
    }
}

impl Store for RangeStore {
    fn nature(&self) -> Nature {
        super::map::nature()
    }

    fn read(&self, reads: &mut [Read<'_>], _: How<'_>) -> Result<Report> {
        for read in reads.iter_mut().filter(|read| !read.into.is_empty()) {
            let bytes = read.offset..read.end();
            self.0.wanted(&bytes, std::slice::from_mut(read))?;
        }
        Ok(Report::default())
    }
}

/// Never made either.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) ranges: Arc<RangeStore>,
    pub(super) cached: Arc<dyn Store>,
}

impl Store for Looked {
    fn nature(&self) -> Nature {
        self.cached.nature()
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        self.ranges.read(reads, how)
    }
}
