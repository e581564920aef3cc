//! Any bytes at all, asked what they are. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/foreign.rs"]
mod foreign;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| foreign::check(bytes));
