//! `lowtide cache` of a cache that was used, of folders that are none, and of one that lies about itself.

use lowtide::Budget;
use lowtide::store::{Cache, Cached, How, LocalCache, OneFile, Read, ReadStore, Store, Version};
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

fn cache(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowtide")).arg("cache").arg(dir).args(arguments).output().unwrap()
}

fn json(dir: &Path, arguments: &[&str]) -> Value {
    let output = cache(dir, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Reads 9 MB of an object through a cache, twice.
fn used(folder: &Path, dir: &Path, address: &str) {
    let path = folder.join("object");
    std::fs::write(&path, vec![7; 9_000_000]).unwrap();
    let inner = Arc::new(ReadStore::new(Arc::new(OneFile::open(&path).unwrap()), Cache::Keep));
    let object = vec![Version::new(address, "etag", 0..9_000_000)];
    let cache = LocalCache::open(dir, 30 << 20).unwrap();
    let store = Cached::new(inner, cache, object, Cache::Keep, &Budget::new(64 << 20).unwrap());
    for _ in 0..2 {
        let mut all = vec![0; 9_000_000];
        store.read(&mut [Read { offset: 0, into: &mut all }], How::default()).unwrap();
        assert!(all.iter().all(|&byte| byte == 7));
    }
}

#[test]
fn a_cache_is_shown_emptied_and_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cache");
    used(folder.path(), &dir, "https://me:secret@host/a.bin?signature=secret");
    let shown = json(&dir, &[]);
    for (name, value) in [
        ("size", 30 << 20),
        ("slots", 7),
        ("slot_size", 4 << 20),
        ("blocks", 3),
        ("bytes", 9_000_000),
        ("hit_bytes", 9_000_000),
        ("fetched_bytes", 9_000_000),
        ("stored_blocks", 3),
        ("evicted_blocks", 0),
    ] {
        assert_eq!(shown[name], value, "{name} of {shown:#}");
    }
    assert!(shown["on_disk"].as_u64().unwrap() <= 30 << 20);
    assert_eq!(shown["objects"][0]["address"], "https://host/a.bin");
    let output = cache(&dir, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "size",
        "30 MiB",
        "8.58 MiB, 3 blocks of 7 slots, of 4 MiB each",
        "(50 % from it)",
        "https://host/a.bin",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("secret"));
    let output = cache(&dir, &["--clear"]);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{}: emptied; it held 8.58 MiB, 3 blocks\n", dir.display())
    );
    let shown = json(&dir, &[]);
    assert_eq!((shown["blocks"].as_u64(), shown["size"].as_u64()), (Some(0), Some(30 << 20)));
    assert_eq!(json(&dir, &["--remove"])["done"], "removed");
    assert!(!dir.exists());
}

#[test]
fn what_is_not_a_cache_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "mine").unwrap();
    for arguments in [&[][..], &["--clear"], &["--remove"], &["--json"]] {
        let output = cache(folder.path(), arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("not a local cache, and not empty: it holds data"), "{text}");
        assert_eq!(std::fs::read(folder.path().join("data")).unwrap(), b"mine");
    }
    let output = cache(&folder.path().join("none"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!folder.path().join("none").exists(), "nothing is made");
    assert_eq!(cache(folder.path(), &["--clear", "--remove"]).status.code(), Some(2));
}

/// An address is somebody's text: nothing of it is obeyed.
#[test]
fn an_index_that_lies_is_shown_without_harm() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cache");
    used(folder.path(), &dir, "s3://b/\u{1b}]0;owned\u{7}x");
    let text = String::from_utf8(cache(&dir, &[]).stdout).unwrap();
    assert!(text.contains("s3://b/\\x1b]0;owned\\x07x"), "{text}");
    let index = std::fs::File::options().write(true).open(dir.join("index")).unwrap();
    index.write_all_at(&[0xFF; 12_000], 40).unwrap();
    assert_eq!(json(&dir, &[])["blocks"], 0);
}
