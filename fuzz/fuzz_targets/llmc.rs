//! Any bytes at all, opened as llm.c's. What must hold is written once, with the tests.
#![no_main]

#[path = "../../crates/lowtide/tests/properties/llmc.rs"]
mod llmc;
#[path = "../../crates/lowtide/tests/properties/message.rs"]
mod message;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| llmc::check(bytes));
