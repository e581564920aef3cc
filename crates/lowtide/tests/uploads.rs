//! Objects that are written: into a store in memory, which takes parts as the real ones do. The oracle is a local file.
#![cfg(feature = "remote")]

use lowtide::store::Storage;
use lowtide::write::{Existing, Place, WriteOptions};
use lowtide::{Budget, Error};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use std::sync::Arc;

/// A store in memory holds what it was sent, memory of ours included: all of it has to fit.
const BUDGET: u64 = 256 << 20;

#[allow(clippy::unnecessary_wraps)] // it is asked whether to go on
fn go_on() -> lowtide::Result<()> {
    Ok(())
}

struct Bucket {
    memory: Arc<InMemory>,
    runtime: tokio::runtime::Runtime,
}

impl Bucket {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { memory: Arc::new(InMemory::new()), runtime }
    }

    fn options(&self) -> WriteOptions {
        let storage = Storage::default().with_writable_store("s3://memory", &self.memory).unwrap();
        WriteOptions::new().storage(storage).budget(Budget::new(BUDGET).unwrap())
    }

    fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        let got = self.runtime.block_on(async { self.memory.get(&Key::from(key)).await?.bytes().await });
        got.ok().map(|bytes| bytes.to_vec())
    }
}

fn rows(count: usize) -> Vec<u8> {
    let count = u32::try_from(count).unwrap();
    (0..count).flat_map(|row| [row, 7, 8, 9].map(u32::to_ne_bytes)).flatten().collect()
}

#[test]
fn objects_are_what_files_are() {
    let (bucket, folder) = (Bucket::new(), tempfile::tempdir().unwrap());
    let dtype = "uint32".parse().unwrap();
    // None, one, less than a part, a part and its header exactly, two parts and more.
    for count in [0, 1, 1000, (8 << 20) / 16 - 8, (8 << 20) / 16, 1_500_000] {
        for name in ["rows.npy", "rows.bin"] {
            for known in [None, Some(count)] {
                let bytes = rows(count);
                let path = folder.path().join(name);
                let mut here = WriteOptions::new()
                    .existing(Existing::Replace)
                    .create(&path, dtype, &[known, Some(4)])
                    .unwrap();
                let options = bucket.options().existing(Existing::Replace);
                let mut there =
                    options.create(format!("s3://memory/{name}"), dtype, &[known, Some(4)]).unwrap();
                for chunk in bytes.chunks(16 * 99_991) {
                    here.append(chunk, &go_on).unwrap();
                    there.append(chunk, &go_on).unwrap();
                }
                here.close().unwrap();
                there.close().unwrap();
                assert!(
                    bucket.bytes(name).unwrap() == std::fs::read(&path).unwrap(),
                    "{name} {count} {known:?}"
                );
            }
        }
    }
}

#[test]
fn an_object_appears_at_the_end_or_never() {
    let bucket = Bucket::new();
    let dtype = "uint32".parse().unwrap();
    let create = || bucket.options().create("s3://memory/a.npy", dtype, &[None, Some(4)]);
    let mut writer = create().unwrap();
    writer.append(&rows(1_500_000), &go_on).unwrap();
    writer.flush().unwrap();
    assert_eq!(bucket.bytes("a.npy"), None);
    drop(writer);
    assert_eq!(bucket.bytes("a.npy"), None);
    let mut writer = create().unwrap();
    writer.append(&rows(10), &go_on).unwrap();
    writer.close().unwrap();
    assert!(create().unwrap_err().to_string().contains("File exists"));
}

#[test]
fn rows_that_failed_are_written_again_while_they_are_here() {
    let bucket = Bucket::new();
    let dtype = "uint32".parse().unwrap();
    let mut writer = bucket.options().create("s3://memory/a.bin", dtype, &[None, Some(4)]).unwrap();
    let bytes = rows(1000);
    // The caller had no more.
    writer.part(Place::End, 1000).unwrap().write(&bytes[..160], &go_on).unwrap();
    writer.append(&bytes, &go_on).unwrap();
    // What is on its way cannot be taken back.
    writer.part(Place::End, 2_000_000).unwrap().write(&rows(1_000_000), &go_on).unwrap();
    let told = writer.append(&bytes, &go_on).unwrap_err().to_string();
    assert!(told.contains("was sent already"), "{told}");
    assert!(writer.close().unwrap_err().to_string().contains("was sent already"));
    drop(writer);
    assert_eq!(bucket.bytes("a.bin"), None);
}

#[test]
fn whoever_is_asked_to_stop_does() {
    let bucket = Bucket::new();
    let mut writer = bucket.options().create("s3://memory/a.bin", "uint8".parse().unwrap(), &[None]).unwrap();
    let answer = writer.append(&vec![0; 64 << 20], &|| Err(Error::Interrupted));
    assert!(matches!(answer, Err(Error::Interrupted)), "{answer:?}");
}
