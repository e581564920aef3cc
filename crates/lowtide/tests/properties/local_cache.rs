//! What must hold for any bytes at all, read as the mark of a local cache and as entries of its index.

use lowtide::store::local_cache::Geometry;
use lowtide::store::local_cache::layout::{ENTRY, Entry, SLOT};
use std::path::Path;

pub fn check(bytes: &[u8]) {
    match Geometry::from_mark(Path::new("CACHEDIR.TAG"), bytes) {
        None => {}
        Some(Ok(geometry)) => {
            assert!(geometry.slots >= 1 && geometry.data_len() + geometry.index_len() < geometry.size);
            let again = Geometry::from_mark(Path::new("CACHEDIR.TAG"), geometry.mark().as_bytes());
            assert_eq!(again.and_then(Result::ok), Some(geometry), "what was read can be written");
        }
        Some(Err(error)) => super::message::check(&error, "CACHEDIR.TAG"),
    }
    for entry in bytes.chunks(ENTRY) {
        let mut whole = [0; ENTRY];
        whole[..entry.len()].copy_from_slice(entry);
        look(&whole);
        // The same with a checksum that is right: whoever damages an index can do that, too.
        let sum = crc32c::crc32c(&whole[..ENTRY - 4]);
        whole[ENTRY - 4..].copy_from_slice(&sum.to_le_bytes());
        look(&whole);
    }
}

fn look(bytes: &[u8; ENTRY]) {
    let Some(entry) = Entry::from_bytes(bytes) else { return };
    assert!(entry.stamp != 0 && entry.len > 0 && u64::from(entry.len) <= SLOT);
    let again = Entry::from_bytes(&entry.to_bytes()).expect("what was read can be written");
    assert_eq!(
        (again.key, again.stamp, again.len, again.sums),
        (entry.key, entry.stamp, entry.len, entry.sums)
    );
}
