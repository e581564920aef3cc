//! What must hold for whatever is said about a hostile file.

use lowtide::Error;

/// Panics if the message does not name the file, floods a log, or can steer a terminal.
pub fn check(error: &Error, path: &str) {
    let message = error.to_string();
    assert!(message.contains(path), "no path: {message}");
    assert!(message.len() < 4096, "a hostile file floods the log: {message}");
    assert!(!message.contains(|c: char| c.is_control() && c != '\n'), "a terminal obeys this: {message:?}");
}
