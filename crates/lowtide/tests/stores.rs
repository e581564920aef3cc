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

fn run_remap(cache: Cache) {
    conformance::run(&|path| Ok(Arc::new(RemapStore::new(Arc::new(Source::open(path)?), WINDOW, cache))));
}

#[test]
fn remap() {
    run_remap(Cache::Keep);
}

#[test]
fn remap_leaving_the_page_cache() {
    run_remap(Cache::Drop);
}

fn run_advise(cache: Cache) {
    conformance::run(&|path| Ok(Arc::new(AdviseStore::new(&Arc::new(Source::open(path)?), WINDOW, cache)?)));
}

#[test]
fn advise() {
    run_advise(Cache::Keep);
}

#[test]
fn advise_leaving_the_page_cache() {
    run_advise(Cache::Drop);
}

fn run_read(cache: Cache) {
    conformance::run(&|path| Ok(Arc::new(ReadStore::new(Arc::new(Source::open(path)?), cache))));
}

#[test]
fn read() {
    run_read(Cache::Keep);
}

#[test]
fn read_leaving_the_page_cache() {
    run_read(Cache::Drop);
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
