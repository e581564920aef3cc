//! Objects end to end, as one stream of bytes: one, or thousands.
//!
//! A shard that was taken to be like the others, because nobody had looked at its head, is looked at when its first byte
//! is asked for: see [`ObjectPart::check`].

#![cfg_attr(not(feature = "remote"), allow(dead_code))]

use super::joined::Joined;
use crate::error::Result;
use crate::store::{LocalCache, Object, Read, Version};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks at an object before its first byte is handed out, and says what is wrong with it.
pub(crate) type Check = Arc<dyn Fn(&Path) -> Result<()> + Send + Sync>;

/// What one object adds to the stream.
#[derive(Clone)]
pub struct ObjectPart {
    /// The object.
    pub object: Arc<Object>,
    /// Which bytes of it.
    pub bytes: Range<u64>,
    /// Asked once, before its first byte is read.
    pub(crate) check: Option<Check>,
}

impl ObjectPart {
    /// All bytes of an object.
    pub fn whole(object: Arc<Object>) -> Self {
        let bytes = 0..object.len();
        Self { object, bytes, check: None }
    }
}

impl fmt::Debug for ObjectPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectPart({:?}, {:?})", self.object.path(), self.bytes)
    }
}

/// Objects, end to end.
#[derive(Debug)]
pub struct Objects {
    parts: Vec<ObjectPart>,
    joined: Joined,
    /// Which of them were looked at.
    checked: Vec<AtomicBool>,
    /// Through which they are read.
    cache: Option<Arc<LocalCache>>,
}

/// Bytes of one object that are asked for at once, and the reads that they are for.
#[derive(Debug)]
pub(in crate::store) struct Wanted<'a> {
    pub(in crate::store) index: usize,
    pub(in crate::store) bytes: Range<u64>,
    pub(in crate::store) reads: Vec<Read<'a>>,
}

impl Objects {
    /// Of these parts; empty ones are fine.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) where they have more bytes than 63 bits can count,
    /// [`Error::Truncated`](crate::Error::Truncated) where an object has fewer bytes than its part.
    pub fn new(parts: Vec<ObjectPart>) -> Result<Self> {
        if let Some(part) = parts.iter().find(|part| part.bytes.end > part.object.len()) {
            return Err(part.object.cut(&part.bytes));
        }
        let joined = Joined::new(parts.iter().map(|part| &part.bytes))?;
        let checked = parts.iter().map(|part| AtomicBool::new(part.check.is_none())).collect();
        Ok(Self { parts, joined, checked, cache: None })
    }

    /// The same, read through a local cache where there is one.
    #[must_use]
    pub fn through(self, cache: Option<Arc<LocalCache>>) -> Self {
        Self { cache, ..self }
    }

    /// The local cache that they are read through.
    pub fn cache(&self) -> Option<&Arc<LocalCache>> {
        self.cache.as_ref()
    }

    /// What each part is, for a cache: this version of this object, and no other.
    pub(in crate::store) fn versions(&self) -> Vec<Version> {
        let one = |part: &ObjectPart| {
            let address = part.object.path().to_string_lossy();
            Version::new(&address, &part.object.identity(), part.bytes.clone())
        };
        self.parts.iter().map(one).collect()
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[ObjectPart] {
        &self.parts
    }

    /// Bytes of the stream.
    pub fn len(&self) -> u64 {
        self.joined.len()
    }

    /// Whether the stream has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first object's address, for messages.
    pub fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), |part| part.object.path())
    }

    /// What an extent of the stream is in the objects, and which of the reads each piece of it serves.
    pub(in crate::store) fn wanted<'a>(
        &self,
        extent: &Range<u64>,
        reads: &'a mut [Read<'_>],
    ) -> Result<Vec<Wanted<'a>>> {
        self.joined.check(self.path(), reads)?;
        let pieces = self.joined.pieces(extent.clone());
        let mut wanted: Vec<Wanted<'a>> =
            pieces.map(|(index, bytes)| Wanted { index, bytes, reads: Vec::new() }).collect();
        for (index, reads) in self.joined.split(reads) {
            if let Some(piece) = wanted.iter_mut().find(|piece| piece.index == index) {
                piece.reads.extend(reads);
            }
        }
        wanted.retain(|piece| !piece.reads.is_empty());
        Ok(wanted)
    }

    /// Which parts reads touch that nobody has looked at yet.
    pub(in crate::store) fn untouched(&self, reads: &[Read<'_>]) -> Vec<usize> {
        if self.checked.iter().all(|checked| checked.load(Ordering::Relaxed)) {
            return Vec::new();
        }
        let ranges = reads.iter().map(|read| read.offset..read.end());
        self.unchecked(ranges.flat_map(|range| self.joined.pieces(range).map(|(index, _)| index)))
    }

    /// The object at `index`.
    pub(in crate::store) fn object(&self, index: usize) -> &Object {
        &self.parts[index].object
    }

    /// Which of these nobody has looked at yet.
    pub(in crate::store) fn unchecked(&self, indexes: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut found: Vec<usize> = indexes.filter(|&i| !self.checked[i].load(Ordering::Relaxed)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Looks at one, and remembers that nothing was wrong with it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(in crate::store) fn check(&self, index: usize) -> Result<()> {
        if let Some(check) = &self.parts[index].check {
            check(self.parts[index].object.path())?;
        }
        self.checked[index].store(true, Ordering::Relaxed);
        Ok(())
    }
}
