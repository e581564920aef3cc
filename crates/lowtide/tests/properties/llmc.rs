//! What must hold for any bytes at all that are opened as llm.c's.
//!
//! One definition for all who ask: the fuzz target, the stored corpus in `cargo test`, and proptest.

use super::message;
use lowtide::format::llmc;
use std::path::Path;

/// Panics if the parser does something wrong with a file of these bytes, or with a file that begins with
/// them and is far larger.
pub fn check(bytes: &[u8]) {
    let own = bytes.len() as u64;
    // What the header would need, if it is one.
    let word = |at: usize| bytes.get(at..at + 4).map(|word| i32::from_le_bytes(word.try_into().unwrap()));
    let count = word(8).map_or(0, |count| u64::from(count.unsigned_abs()));
    for file_len in
        [own, own + 1, 1024, 1024 + 2 * count, 1024 + 4 * count, 1 << 40, i64::MAX as u64, u64::MAX]
    {
        // Read aloud: magic, version, a count that fits, and as many bytes.
        let width = match (word(0), word(4)) {
            (Some(20_240_520), Some(1)) => 2_u8,
            (Some(20_240_801), Some(7)) => 4,
            _ => 0,
        };
        let fits = width != 0
            && word(8).is_some_and(|count| {
                count >= 0 && 1024 + i128::from(count) * i128::from(width) == i128::from(file_len)
            });
        match llmc::parse(Path::new("some.bin"), bytes, file_len) {
            Ok(header) => {
                assert!(fits && llmc::is_llmc(bytes), "{header:?}");
                assert_eq!((header.tokens, header.dtype.itemsize()), (count, width.into()));
            }
            Err(error) => {
                assert!(!fits, "{error}");
                message::check(&error, "some.bin");
            }
        }
    }
}
