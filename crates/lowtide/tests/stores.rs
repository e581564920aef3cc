//! Every store passes the one suite.

use lowtide::store::{AdviseStore, MapStore, ReadStore, RemapStore, Source, conformance};
use std::sync::Arc;

/// The smallest window there is: the suite's files span several of them.
const WINDOW: u64 = 2 << 20;

#[test]
fn map() {
    conformance::run(&|path| Ok(Arc::new(MapStore::new(&Arc::new(Source::open(path)?))?)));
}

#[test]
fn remap() {
    conformance::run(&|path| Ok(Arc::new(RemapStore::new(Arc::new(Source::open(path)?), WINDOW))));
}

#[test]
fn advise() {
    conformance::run(&|path| Ok(Arc::new(AdviseStore::new(&Arc::new(Source::open(path)?), WINDOW)?)));
}

#[test]
fn read() {
    conformance::run(&|path| Ok(Arc::new(ReadStore::new(Arc::new(Source::open(path)?)))));
}
