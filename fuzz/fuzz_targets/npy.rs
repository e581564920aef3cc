//! Any bytes at all, opened as `.npy`. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/npy.rs"]
mod npy;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| npy::check(bytes));
