//! Any bytes at all, read as a manifest. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/manifest.rs"]
mod manifest;
#[path = "../../crates/lowtide/tests/properties/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manifest::check(bytes));
