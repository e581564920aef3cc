//! Any bytes at all, read as how far an earlier run was. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide-text/tests/properties/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| state::check(bytes));
