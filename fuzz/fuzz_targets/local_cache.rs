//! Any bytes at all, read as the mark and as the index of a local cache. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/local_cache.rs"]
mod local_cache;
#[path = "../../crates/lowtide/tests/properties/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| local_cache::check(bytes));
