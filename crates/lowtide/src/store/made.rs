//! Things that are made on first use, and found again by what they are for.

use crate::error::Result;
use crate::sys;
use std::sync::{Arc, Mutex};

/// What was made so far.
#[derive(Debug)]
pub(crate) struct Made<K, T: ?Sized>(Mutex<Vec<(K, Arc<T>)>>);

impl<K, T: ?Sized> Default for Made<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + PartialEq, T: ?Sized> Made<K, T> {
    /// The one for this, made where there is none yet.
    pub(crate) fn get(&self, which: K, make: impl FnOnce() -> Result<Arc<T>>) -> Result<Arc<T>> {
        let known = |all: &mut Vec<(K, Arc<T>)>| {
            all.iter().find(|(known, _)| *known == which).map(|(_, one)| one.clone())
        };
        if let Some(known) = sys::locked(&self.0, known) {
            return Ok(known);
        }
        let new = make()?;
        // Two threads may have made one at the same time: the first stays.
        Ok(sys::locked(&self.0, |all| {
            known(all).unwrap_or_else(|| {
                all.push((which, new.clone()));
                new
            })
        }))
    }
}
