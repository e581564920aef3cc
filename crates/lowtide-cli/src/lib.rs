//! The `lowtide` command, as a library.
