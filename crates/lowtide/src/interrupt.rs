//! The question whether to go on, asked during long work.

use crate::error::Result;

/// Asked every now and then during long work; an error ends the work and is passed on.
pub type Interrupt<'a> = &'a (dyn Fn() -> Result<()> + Sync);
