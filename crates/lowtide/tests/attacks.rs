//! Hostile and damaged files, and what is said about each: `attacks/FORMAT/*` against `attacks/FORMAT.txt`.
//!
//! The whole message is compared, because it is part of the interface. After a message was changed on
//! purpose, `LOWTIDE_BLESS=1 cargo test --test attacks` writes the table anew; read the diff.

use lowtide::format::npy;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::Path;

#[test]
fn npy() {
    refuses("npy", |name, bytes| npy::parse(name, bytes, bytes.len() as u64));
}

/// Checks that `open` refuses every attack on a format, in the words of its table.
fn refuses<T: Debug>(format: &str, open: impl Fn(&Path, &[u8]) -> lowtide::Result<T>) {
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    let mut said = BTreeMap::new();
    for entry in attacks.join(format).read_dir().unwrap() {
        let file = entry.unwrap().path();
        let name = Path::new(file.file_name().unwrap());
        match open(name, &std::fs::read(&file).unwrap()) {
            Err(error) => said.insert(name.display().to_string(), error.to_string()),
            Ok(read) => panic!("{} was taken for {read:?}", name.display()),
        };
    }
    let mut table = String::new();
    for (name, message) in &said {
        assert!(message.contains(name), "the message does not name the file: {message}");
        writeln!(table, "{message}\n").unwrap();
    }
    let known = attacks.join(format).with_extension("txt");
    if std::env::var_os("LOWTIDE_BLESS").is_some() {
        std::fs::write(&known, &table).unwrap();
    }
    let known = std::fs::read_to_string(&known).unwrap();
    // Entry by entry first, so that a failure shows one message and not the whole table.
    for (said, known) in table.split("\n\n").zip(known.split("\n\n")) {
        assert_eq!(said, known);
    }
    assert_eq!(table, known);
}
