//! What users say about how bytes are read.

use crate::budget::Budget;
use crate::door::{ACCESS, CACHE, Words};
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The ways of access, as users name them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Access {
    /// One memory map, held: what `np.memmap` does, and what grows.
    Map,
    /// A new map for every window of the file it walks: nanoGPT's fix.
    Remap,
    /// One map, its pages dropped behind the reader: the other well-known fix.
    Advise,
    /// Positioned reads: no map at all.
    Read,
    /// Unbuffered reads, many in flight, the page cache left alone.
    Direct,
    /// Range requests: what is in an object store comes by nothing else.
    Range,
    /// Chosen for each iteration, with a reason.
    #[default]
    Auto,
}

impl Access {
    /// Every way that reads files by itself.
    pub const MANUAL: [Self; 5] = [Self::Map, Self::Remap, Self::Advise, Self::Read, Self::Direct];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Remap => "remap",
            Self::Advise => "advise",
            Self::Read => "read",
            Self::Direct => "direct",
            Self::Range => "range",
            Self::Auto => "auto",
        }
    }

    /// The way that was asked for; `None` where it is ours to choose.
    pub const fn way(self) -> Option<Way> {
        match self {
            Self::Map => Some(Way::Map),
            Self::Remap => Some(Way::Remap),
            Self::Advise => Some(Way::Advise),
            Self::Read => Some(Way::Read),
            Self::Direct => Some(Way::Direct),
            Self::Range => Some(Way::Range),
            Self::Auto => None,
        }
    }

    /// Whether it looks at the file through a memory map, and so can be hit by SIGBUS.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Map | Self::Remap | Self::Advise)
    }

    /// That it can read from where the bytes are.
    pub(crate) fn fits(self, remote: bool) -> Result<()> {
        match self {
            Self::Auto => Ok(()),
            Self::Range if remote => Ok(()),
            Self::Range => Err(Error::argument(
                ACCESS.is("range") + " is for object stores, and this is a file",
                "leave it out",
            )),
            _ if remote => Err(Error::argument(
                ACCESS.is(self.name()) + " is for files: an object store is read by range requests",
                Words::from("leave it out, or say ") + ACCESS.is("auto"),
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Access {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::MANUAL.into_iter().chain([Self::Range, Self::Auto]).find(|a| a.name() == word).ok_or_else(
            || {
                Error::argument(
                    ACCESS.is(word.to_owned()) + " is not a way of access",
                    "one of \"auto\", \"map\", \"remap\", \"advise\", \"read\", \"direct\"",
                )
            },
        )
    }
}

/// What the caller wants of the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheWish {
    /// Keep while the file fits in half the room, else drop.
    #[default]
    Auto,
    /// As the kernel likes.
    Keep,
    /// What we bring in goes; what was there before us stays.
    Drop,
}

impl CacheWish {
    const ALL: [Self; 3] = [Self::Auto, Self::Keep, Self::Drop];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Keep => "keep",
            Self::Drop => "drop",
        }
    }
}

impl fmt::Display for CacheWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheWish {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|c| c.name() == word).ok_or_else(|| {
            Error::argument(
                CACHE.is(word.to_owned()) + " is not known",
                "one of \"auto\", \"keep\", \"drop\"",
            )
        })
    }
}

/// What happens to pages of the file that we bring into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// They stay, as the kernel likes.
    Keep,
    /// They go; what was there before us stays.
    Drop,
}

/// How bytes come: what [`Access`] says, and what `auto` chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// One memory map, held.
    Map,
    /// A new map for every window.
    Remap,
    /// One map, its pages dropped behind the reader.
    Advise,
    /// Positioned reads through the page cache.
    Read,
    /// Unbuffered reads, many in flight.
    Direct,
    /// Range requests to an object store, many in flight.
    Range,
}

impl Way {
    /// Every one for files.
    pub const ALL: [Self; 5] = [Self::Map, Self::Remap, Self::Advise, Self::Read, Self::Direct];

    /// Whether it looks at the file through a memory map, and so can be hit by SIGBUS.
    pub const fn is_mapped(self) -> bool {
        matches!(self, Self::Map | Self::Remap | Self::Advise)
    }

    /// Whether what is mapped is a window, and no more.
    pub const fn has_windows(self) -> bool {
        matches!(self, Self::Remap | Self::Advise)
    }
}

impl From<Way> for Access {
    fn from(way: Way) -> Self {
        match way {
            Way::Map => Self::Map,
            Way::Remap => Self::Remap,
            Way::Advise => Self::Advise,
            Way::Read => Self::Read,
            Way::Direct => Self::Direct,
            Way::Range => Self::Range,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Access::from(*self).name())
    }
}

/// How the caller wants bytes to be read, whatever they mean: what all options have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) access: Access,
    pub(crate) cache: CacheWish,
    pub(crate) budget: Option<Budget>,
}

impl Wish {
    /// That the way of access can do what is wished of the page cache: before any file is touched.
    pub(crate) fn check(&self) -> Result<()> {
        if self.access == Access::Map && self.cache == CacheWish::Drop {
            return Err(Error::argument(
                ACCESS.is("map")
                    + " holds its pages, and what is mapped cannot be dropped from the page cache",
                ACCESS.is("advise") + " or \"remap\" with " + CACHE.is("drop") + " let go of both",
            ));
        }
        Ok(())
    }
}

/// What is done about a file, or an object, that has the name already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It is an error: at the beginning, and where it appeared meanwhile, at the end.
    #[default]
    Refuse,
    /// It stays until the new one is whole, and is replaced by it.
    Replace,
}
