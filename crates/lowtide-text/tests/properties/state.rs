//! What must hold for any bytes at all that are read as how far an earlier run was.
//!
//! One definition for all who ask: the fuzz target and the stored corpus in `cargo test`.

/// Panics if a state of these bytes is taken that could not be so, or is refused in words that harm.
pub fn check(bytes: &[u8]) {
    let said = match lowtide_text::attack::state(bytes) {
        Ok(most) => return assert!(most < 1 << 63, "sums of a state that was taken are far from any limit"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains("some/state.json"), "no path: {said}");
    assert!(said.len() < 4096, "a hostile file floods the log: {said}");
    assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "a terminal obeys this: {said:?}");
}
