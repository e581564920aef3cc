//! Every store passes the one suite.

use lowtide::Budget;
use lowtide::store::{
    AdviseStore, Cache, DirectStore, Engine, MapStore, ReadStore, RemapStore, Source, conformance,
};
use std::sync::Arc;

/// The smallest window there is: the suite's files span several of them.
const WINDOW: u64 = 2 << 20;

#[test]
fn map() {
    conformance::run(&|path| Ok(Arc::new(MapStore::new(&Arc::new(Source::open(path)?))?)));
}

#[test]
fn remap() {
    for cache in [Cache::Keep, Cache::Drop] {
        conformance::run(&|path| Ok(Arc::new(RemapStore::new(Arc::new(Source::open(path)?), WINDOW, cache))));
    }
}

#[test]
fn advise() {
    for cache in [Cache::Keep, Cache::Drop] {
        conformance::run(&|path| {
            Ok(Arc::new(AdviseStore::new(&Arc::new(Source::open(path)?), WINDOW, cache)?))
        });
    }
}

#[test]
fn read() {
    for cache in [Cache::Keep, Cache::Drop] {
        conformance::run(&|path| Ok(Arc::new(ReadStore::new(Arc::new(Source::open(path)?), cache))));
    }
}

/// A small budget too: few and short pieces in flight.
#[test]
fn direct_by_uring() {
    assert_eq!(
        Engine::available(),
        Engine::Uring,
        "this test needs io_uring; where it is refused, run the others"
    );
    for limit in [512 << 10, 256 << 20] {
        let budget = Budget::new(limit).unwrap();
        conformance::run(&|path| {
            Ok(Arc::new(DirectStore::new(Arc::new(Source::open(path)?), &budget, Engine::Uring)?))
        });
    }
}

#[test]
fn direct_by_threads() {
    for limit in [512 << 10, 256 << 20] {
        let budget = Budget::new(limit).unwrap();
        conformance::run(&|path| {
            Ok(Arc::new(DirectStore::new(Arc::new(Source::open(path)?), &budget, Engine::Threads)?))
        });
    }
}
