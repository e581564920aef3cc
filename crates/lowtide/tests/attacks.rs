//! Hostile, damaged and foreign files, and what is said about each: `attacks/FORMAT/*` against `attacks/FORMAT.txt`.
//!
//! The whole message is compared, because it is part of the interface. After a message was changed on
//! purpose, `LOWTIDE_BLESS=1 cargo test --test attacks` writes the table anew; read the diff.

use lowtide::door::Door;
use lowtide::format::{Dialect, npy};
use lowtide::shards::{Documents, Found, TokenWish, find_tokens};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::Path;

#[test]
fn npy() {
    refuses("npy", |file| {
        let bytes = std::fs::read(file).unwrap();
        npy::parse(Path::new(file.file_name().unwrap()), &bytes, bytes.len() as u64)
    });
}

#[test]
fn llmc() {
    refuses("llmc", tokens);
}

#[test]
fn megatron() {
    refuses("megatron", tokens);
}

#[test]
fn datatrove() {
    refuses("datatrove", tokens);
}

#[test]
fn headerless() {
    refuses("headerless", tokens);
}

/// Files of other programs, called `.bin` as people call them.
#[test]
fn foreign_files_as_tokens() {
    refuses("foreign", tokens);
}

#[test]
fn foreign_files_as_arrays() {
    refuses_in("foreign", "foreign-arrays", |file| lowtide::open(file));
}

/// Who says what the bytes are gets them: a dialect without a word, a type with a warning.
#[test]
fn foreign_files_are_read_by_who_insists() {
    for entry in Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks/foreign").read_dir().unwrap() {
        let file = entry.unwrap().path();
        if file.is_dir() {
            continue;
        }
        let (dtype, len) = (Some("uint8".parse().unwrap()), file.metadata().unwrap().len());
        let find = |wish| find_tokens(std::slice::from_ref(&file), &wish).unwrap();
        for dialect in [Dialect::Raw, Dialect::NanoGpt] {
            let found = find(TokenWish { dtype, dialect: Some(dialect), storage: None });
            assert_eq!((found.files[0].tokens, found.warnings), (len, vec![]));
        }
        let found = find(TokenWish { dtype, dialect: None, storage: None });
        let [warning] = &found.warnings[..] else { panic!("{found:?}") };
        assert_eq!(found.files[0].tokens, len);
        assert!(warning.to_string().contains(": this looks like "), "{warning}");
        assert!(
            warning
                .at(Door::Shell)
                .to_string()
                .ends_with("if it is tokens, --format raw says so without this warning"),
            "{warning}"
        );
        let array = lowtide::Options::new().dtype("uint8".parse().unwrap()).open(&file).unwrap();
        assert_eq!(array.rows(), len);
    }
}

/// Finds a file of tokens, and all the documents that its index knows.
fn tokens(file: &Path) -> lowtide::Result<Found> {
    let format = file.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap();
    let forced = file.file_name().unwrap().to_str().unwrap().starts_with("forced-");
    let dialect = forced.then(|| format.parse().unwrap());
    let found = find_tokens(&[file.to_owned()], &TokenWish { dtype: None, dialect, storage: None })?;
    if let Some(documents) = Documents::from_index(&found.files)? {
        for i in 0..documents.len() {
            documents.range(i, &|_, _| panic!("the tokens were read"))?;
        }
    }
    Ok(found)
}

/// Checks that `open` refuses every attack on a format, in the words of its table.
fn refuses<T: Debug>(format: &str, open: impl Fn(&Path) -> lowtide::Result<T>) {
    refuses_in(format, format, open);
}

fn refuses_in<T: Debug>(format: &str, table_of: &str, open: impl Fn(&Path) -> lowtide::Result<T>) {
    let attacks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks");
    let folder = format!("{}/", attacks.join(format).display());
    let mut said = BTreeMap::new();
    for entry in attacks.join(format).read_dir().unwrap() {
        let file = entry.unwrap().path();
        // What belongs to another file is opened with it.
        if file
            .extension()
            .is_some_and(|end| ["idx", "index", "metadata"].iter().any(|beside| end == *beside))
        {
            continue;
        }
        let name = Path::new(file.file_name().unwrap());
        match open(&file) {
            Err(error) => said.insert(name.display().to_string(), error.to_string().replace(&folder, "")),
            Ok(read) => panic!("{} was taken for {read:?}", name.display()),
        };
    }
    let mut table = String::new();
    for (name, message) in &said {
        let stem = Path::new(name).file_stem().unwrap().display().to_string();
        assert!(message.contains(&stem), "the message does not name the file: {message}");
        let clean = !message.contains(|c: char| c.is_control() && c != '\n');
        assert!(clean && message.len() < 1000, "not for a terminal: {message:?}");
        writeln!(table, "{message}\n").unwrap();
    }
    let known = attacks.join(table_of).with_extension("txt");
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
