//! What the fuzzers once found worth keeping, and all hostile and valid files, against the fuzzers' own
//! properties: a crash that was fixed stays fixed without a fuzzer at hand.

#[path = "properties/datatrove.rs"]
mod datatrove;
#[path = "properties/llmc.rs"]
mod llmc;
#[path = "properties/megatron.rs"]
mod megatron;
#[path = "properties/message.rs"]
mod message;
#[path = "properties/npy.rs"]
mod npy;

use std::path::Path;

#[test]
fn npy() {
    feed("npy", "npy", npy::check);
}

#[test]
fn llmc() {
    feed("llmc", "tokens/llmc", llmc::check);
}

#[test]
fn megatron() {
    feed("megatron", "tokens/megatron", megatron::check);
}

#[test]
fn datatrove() {
    feed("datatrove", "tokens/datatrove", datatrove::check);
}

fn feed(target: &str, valid: &str, check: impl Fn(&[u8])) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let kept = tests.join("../../../fuzz/corpus").join(target);
    for folder in [kept, tests.join("attacks").join(target), tests.join("valid").join(valid)] {
        let files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            println!("{}", file.display()); // shown by the test runner only where the check panics
            check(&std::fs::read(&file).unwrap());
        }
    }
}
