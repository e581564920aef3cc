//! Any bytes at all, opened as datatrove's index and metadata. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/datatrove.rs"]
mod datatrove;
#[path = "../../crates/lowtide/tests/properties/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| datatrove::check(bytes));
