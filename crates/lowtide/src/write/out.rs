//! Where the bytes of an array go that is being written: into a file, at any place, or into an object, in order.

use super::growth::Growth;
use super::home::Home;
use super::paced::Paced;
use crate::budget::Lease;
use crate::error::{Error, Result};
use crate::interrupt::Interrupt;
use crate::options::Cache;
use crate::store::Upload;
use std::fs::File;

/// What a writer has until it is closed.
pub(super) enum Out {
    File { out: Box<Paced>, home: Home, _lease: Lease },
    Object(Upload),
}

impl Out {
    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Whether this process began it.
    pub(super) fn is_ours(&self) -> bool {
        match self {
            Self::File { home, .. } => home.is_ours(),
            Self::Object(upload) => upload.is_ours(),
        }
    }

    pub(super) fn file(&self) -> Option<&File> {
        match self {
            Self::File { out, .. } => Some(out.file()),
            Self::Object(_) => None,
        }
    }

    /// What the page cache keeps: of an object nothing.
    pub(super) fn cache(&self) -> Cache {
        match self {
            Self::File { out, .. } => out.cache(),
            Self::Object(_) => Cache::Drop,
        }
    }

    pub(super) fn drop_from_now_on(&mut self) {
        if let Self::File { out, .. } = self {
            out.drop_from_now_on();
        }
    }

    /// That the header has room for so many rows.
    pub(super) fn check(&self, growth: &Growth, rows: u64) -> Result<()> {
        match self {
            Self::File { home, .. } => home.check(growth, rows),
            Self::Object(_) => Ok(()),
        }
    }

    /// What is written next goes to `at`. Of an object that is its end, where the last write may have failed.
    pub(super) fn turn_to(&mut self, at: u64) -> Result<()> {
        match self {
            Self::File { out, .. } => {
                out.turn_to(at);
                Ok(())
            }
            Self::Object(upload) if at > upload.at() => Err(Error::unsupported(
                "elements of an object are written in order",
                "write a file, and convert that to the address",
            )),
            Self::Object(upload) => upload.back_to(at),
        }
    }

    pub(super) fn write_at(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        match self {
            Self::File { out, .. } => out.write_at(at, bytes, interrupt),
            Self::Object(upload) if at == upload.at() => upload.write(bytes, interrupt),
            Self::Object(_) => Err(Error::Bug { what: format!("byte {at} is not the next of an object") }),
        }
    }

    /// The same, of a file through the page cache.
    pub(super) fn write_through(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        match self {
            Self::File { out, .. } => out.write_through(at, bytes, interrupt),
            Self::Object(_) => self.write_at(at, bytes, interrupt),
        }
    }

    /// Waits until the disk, or the server, has what was written.
    pub(super) fn flush(&mut self, growth: &Growth, rows: u64, end: u64) -> Result<()> {
        match self {
            Self::File { out, home, .. } => {
                out.forget_behind(end);
                out.sync()?;
                home.flushed(out, growth, rows, end)
            }
            Self::Object(upload) => upload.settle(),
        }
    }

    /// Ends it: the file, or the object, appears.
    pub(super) fn finish(&mut self, growth: &Growth, rows: u64, end: u64, data_at: u64) -> Result<()> {
        match self {
            Self::File { out, home, .. } => {
                out.cut(end)?;
                out.sync()?;
                home.finish(out, growth, rows, data_at)
            }
            Self::Object(upload) => {
                upload.back_to(end)?;
                let grown = data_at > 0 && growth.known.is_none();
                upload.finish(&if grown { growth.header(rows)? } else { Vec::new() }).map(drop)
            }
        }
    }
}
