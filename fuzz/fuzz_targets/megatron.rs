//! Any bytes at all, opened as Megatron's index. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/megatron.rs"]
mod megatron;
#[path = "../../crates/lowtide/tests/properties/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| megatron::check(bytes));
