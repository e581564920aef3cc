//! Every way over every source passes the one suite.

use lowtide::store::{
    Cache, DirectStore, Engine, Files, OneFile, Part, Source, Store, Way, conformance, open,
};
use lowtide::{Budget, Result};
use std::path::Path;
use std::sync::Arc;

/// Small: windows are 2 MiB, so that the suite's files span several of them.
const BUDGET: u64 = 16 << 20;

fn one(path: &Path) -> Result<Source> {
    Ok(Source::File(Arc::new(OneFile::open(path)?)))
}

/// The same bytes as three files: parts of one file, cut where nothing is aligned, the middle one small.
fn many(path: &Path) -> Result<Source> {
    let len = OneFile::open(path)?.len();
    let (first, second) = (len / 3, len / 3 + len.min(1001) / 2);
    let part = |bytes| Part { path: path.to_owned(), bytes };
    let parts = vec![part(0..first), part(first..second), part(second..len)];
    Ok(Source::Files(Arc::new(Files::new(parts)?)))
}

fn run(way: Way, cache: Cache) {
    let budget = Budget::new(BUDGET).unwrap();
    conformance::run(&|path| open(&one(path)?, way, cache, &budget));
    conformance::run_lazy(&|path| open(&many(path)?, way, cache, &budget));
}

#[test]
fn map() {
    run(Way::Map, Cache::Keep);
}

#[test]
fn remap() {
    run(Way::Remap, Cache::Keep);
}

#[test]
fn remap_leaving_the_page_cache() {
    run(Way::Remap, Cache::Drop);
}

#[test]
fn advise() {
    run(Way::Advise, Cache::Keep);
}

#[test]
fn advise_leaving_the_page_cache() {
    run(Way::Advise, Cache::Drop);
}

#[test]
fn read() {
    run(Way::Read, Cache::Keep);
}

#[test]
fn read_leaving_the_page_cache() {
    run(Way::Read, Cache::Drop);
}

const LARGE: u64 = 256 << 20;
/// Few and short pieces in flight.
const SMALL: u64 = 512 << 10;

fn run_direct(engine: Engine, limit: u64) {
    let budget = Budget::new(limit).unwrap();
    let direct = |source: Source| -> Result<Arc<dyn Store>> {
        Ok(Arc::new(DirectStore::new(&source, &budget, engine)?))
    };
    conformance::run(&|path| direct(one(path)?));
    conformance::run_lazy(&|path| direct(many(path)?));
}

/// Where io_uring is refused, run the others.
fn ring() -> Engine {
    assert_eq!(Engine::available(), Engine::Uring, "this test needs io_uring");
    Engine::Uring
}

#[test]
fn direct_by_uring() {
    run_direct(ring(), LARGE);
}

#[test]
#[ignore = "slow: make test-all runs it"]
fn direct_by_uring_in_a_small_budget() {
    run_direct(ring(), SMALL);
}

#[test]
fn direct_by_threads() {
    run_direct(Engine::Threads, LARGE);
}

#[test]
#[ignore = "slow: make test-all runs it"]
fn direct_by_threads_in_a_small_budget() {
    run_direct(Engine::Threads, SMALL);
}
