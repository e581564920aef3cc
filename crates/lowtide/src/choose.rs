//! `auto`: which way of access, and why. Pure but for what it asks the kernel about the file.

use crate::array::Array;
use crate::error::Result;
use crate::store::{Access, sigbus};

/// A way of access and the reason for it, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Access::Auto`].
    pub access: Access,
    /// For people.
    pub why: String,
}

/// The way of access for an iteration over `array`.
pub fn access(array: &Array, shuffled: bool) -> Result<Choice> {
    let choice = match array.access() {
        Access::Auto => Choice { access: Access::Read, why: automatic(shuffled).into() },
        manual => Choice { access: manual, why: format!("access={:?} was asked for", manual.name()) },
    };
    if choice.access.is_mapped() {
        array.store(choice.access)?; // fails now where it cannot be mapped
    }
    log::debug!("{}: access {} because {}", array.path().display(), choice.access, choice.why);
    Ok(choice)
}

fn automatic(shuffled: bool) -> &'static str {
    if shuffled {
        "rows are read in file order, a budget's worth of look-ahead at a time, with nothing mapped"
    } else {
        "chunks in file order are long reads, with nothing mapped"
    }
}

/// Whether a mapped way of access could end in SIGBUS because somebody put a handler over ours.
pub fn unguarded(access: Access) -> bool {
    access.is_mapped() && !sigbus::in_place()
}
