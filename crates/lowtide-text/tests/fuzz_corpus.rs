//! What the fuzzer once found worth keeping, against its own property: a crash that was fixed stays fixed.

#[path = "properties/state.rs"]
mod state;

use std::path::Path;

#[test]
fn state() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/state");
    let files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 10, "{} has few files", folder.display());
    for file in files {
        println!("{}", file.display()); // shown by the test runner only where the check panics
        state::check(&std::fs::read(&file).unwrap());
    }
}
