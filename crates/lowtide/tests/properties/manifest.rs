//! What must hold for any bytes at all that are read as a manifest.
//!
//! One definition for all who ask: the fuzz target and the stored corpus in `cargo test`.

use super::message;
use lowtide::format::manifest::Manifest;
use std::path::Path;

/// Panics if a manifest of these bytes leads out of its folder, does not add up, or is refused in words that harm.
pub fn check(bytes: &[u8]) {
    let manifest = match Manifest::parse(Path::new("some/lowtide.json"), bytes) {
        Ok(manifest) => manifest,
        Err(error) => return message::check(&error, "some/lowtide.json"),
    };
    assert_eq!(manifest.lowtide, 1);
    assert!(manifest.dialect().is_ok());
    for split in &manifest.splits {
        let sum = |of: fn(u64, u64) -> u64| {
            split.shards.iter().map(|s| u128::from(of(s.tokens, s.documents))).sum()
        };
        assert_eq!(u128::from(split.tokens), sum(|tokens, _| tokens));
        assert_eq!(u128::from(split.documents), sum(|_, documents| documents));
        for file in split.shards.iter().flat_map(|shard| std::iter::once(&shard.file).chain(&shard.beside)) {
            // By another way than the parser's: joined, it is one step below the folder.
            let path = Path::new("/some/folder").join(&file.file);
            assert_eq!(path.parent(), Some(Path::new("/some/folder")), "{:?}", file.file);
            assert!(!path.ends_with(".."), "{:?}", file.file);
        }
    }
    let again = serde_json::to_vec(&manifest).expect("it can be written");
    assert_eq!(Manifest::parse(Path::new("x"), &again).expect("and read again"), manifest);
    for name in [None, Some("train"), Some("val"), Some("\u{1b}[31m")] {
        if let Err(error) = manifest.split(name) {
            assert!(error.to_string().len() < 4096);
        }
    }
}
