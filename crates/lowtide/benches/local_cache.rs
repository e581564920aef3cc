//! The second epoch over a local cache, against the same bytes as a local file: sequential, and windows of 2 KiB at
//! random. Warm, cold through the page cache, and cold around it; sides interleaved, the best of several rounds.
//!
//! ```sh
//! cargo bench -p lowtide --bench local_cache -- [FOLDER] [MIB]
//! ```
//!
//! `first` is the first pass of a process, which looks at checksums; `later` is every one after it.

use lowtide::Budget;
use lowtide::store::{
    Cache, Cached, DirectStore, Engine, How, LocalCache, Manner, OneFile, Read, ReadStore, Source, Store,
    Version,
};
use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 3;
const THREADS: usize = 2;
const PIECE: usize = 1 << 20;
const WINDOW: usize = 2048;
/// Windows in a call.
const CALL: usize = 512;

/// Drops what the page cache has of a file, and says whether it did.
fn drop_pages(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let left = lowtide::sys::cached_bytes(&file, 0, 0).unwrap_or(0);
    assert!(left < 64 << 20, "{} is not cold: {left} bytes", path.display());
}

fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Sequential,
    Windows,
}

/// What one thread reads, call by call: its part of the bytes in order, or windows anywhere.
fn calls(pass: Pass, thread: usize, len: u64) -> Vec<Vec<Range<u64>>> {
    match pass {
        Pass::Sequential => {
            let share = len / THREADS as u64 / PIECE as u64;
            let first = thread as u64 * share;
            let pieces: Vec<u64> = (first..first + share).map(|piece| piece * PIECE as u64).collect();
            pieces.chunks(8).map(|call| call.iter().map(|&at| at..at + PIECE as u64).collect()).collect()
        }
        Pass::Windows => {
            let mut draw = draws(7 + thread as u64);
            let windows = len / 8 / WINDOW as u64 / THREADS as u64;
            let mut one = || {
                let at = draw((len - WINDOW as u64) / 2) * 2;
                at..at + WINDOW as u64
            };
            (0..windows / CALL as u64)
                .map(|_| {
                    let mut call: Vec<_> = (0..CALL).map(|_| one()).collect();
                    call.sort_unstable_by_key(|range| range.start);
                    call
                })
                .collect()
        }
    }
}

/// Gigabytes a second, and a sum of what was read.
fn run(store: &dyn Store, pass: Pass, len: u64, warm: bool) -> (f64, u64) {
    let together = store.nature().together;
    let all: Vec<_> = (0..THREADS).map(|thread| calls(pass, thread, len)).collect();
    let bytes: u64 = all.iter().flatten().flatten().map(|range| range.end - range.start).sum();
    let began = Instant::now();
    let sum = std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .iter()
            .map(|calls| {
                scope.spawn(move || {
                    let mut sum = 0_u64;
                    let mut memory = vec![0; 8 << 20];
                    for (number, call) in calls.iter().enumerate() {
                        let mut rest = &mut memory[..];
                        let mut reads = Vec::with_capacity(call.len());
                        for range in call {
                            let (into, others) =
                                rest.split_at_mut(usize::try_from(range.end - range.start).unwrap());
                            rest = others;
                            reads.push(Read { offset: range.start, into });
                        }
                        // As the engine does it.
                        let (manner, coming) = match (pass, warm) {
                            (Pass::Windows, true) => (Manner::FromMemory, &[][..]),
                            (Pass::Windows, false) if together => (Manner::Together, &[][..]),
                            (Pass::Sequential, false) => {
                                (Manner::OneByOne, calls.get(number + 1).map_or(&[][..], |call| call))
                            }
                            _ => (Manner::OneByOne, &[][..]),
                        };
                        store.read(&mut reads, How { manner, coming, ..How::default() }).unwrap();
                        sum = reads.iter().fold(sum, |sum, read| sum.wrapping_add(u64::from(read.into[0])));
                    }
                    sum
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(0, u64::wrapping_add)
    });
    (bytes as f64 / began.elapsed().as_secs_f64() / 1e9, sum)
}

/// Brings all bytes in as a stream.
fn bring_in(store: &dyn Store, len: u64) {
    let mut memory = vec![0; 1 << 20];
    for offset in (0..len).step_by(1 << 20) {
        let how = How { manner: Manner::Stream, ..How::default() };
        store.read(&mut [Read { offset, into: &mut memory }], how).unwrap();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let folder = arguments.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("lowtide-bench-cache-{}", std::process::id()));
    let len: u64 = arguments.get(1).map_or(1024, |mib| mib.parse().unwrap()) << 20;
    fs::create_dir(&folder).unwrap();
    let path = folder.join("file");
    let mut file = File::create(&path).unwrap();
    let block: Vec<u8> =
        (0..8_u32 << 20).map(|i| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    for number in 0..len >> 23 {
        file.write_all(&number.to_le_bytes()).and_then(|()| file.write_all(&block[8..])).unwrap();
    }
    file.sync_all().unwrap();
    let dir = folder.join("cache");
    let budget = Budget::new(256 << 20).unwrap();
    let source = Arc::new(OneFile::open(&path).unwrap());
    let open = |wish| {
        let cache = LocalCache::open(&dir, len + len / 64 + (64 << 20)).unwrap();
        let inner = Arc::new(ReadStore::new(source.clone(), Cache::Drop));
        Cached::new(inner, cache, vec![Version::new("s3://bucket/file", "1", 0..len)], wish, &budget)
    };
    let began = Instant::now();
    let (_, expected) = run(&open(Cache::Drop), Pass::Sequential, len, false);
    println!("filling {} MiB: {:.2} GB/s", len >> 20, len as f64 / began.elapsed().as_secs_f64() / 1e9);
    println!(
        "{:<12} {:<22} {:>9} {:>9} {:>9} {:>7} {:>7}",
        "pass", "state", "file", "first", "later", "first", "later"
    );
    for (state, wish, warm) in [
        ("warm, keep", Cache::Keep, true),
        ("cold, keep", Cache::Keep, false),
        ("cold, drop", Cache::Drop, false),
    ] {
        for (name, pass) in [("sequential", Pass::Sequential), ("windows", Pass::Windows)] {
            let (mut on_file, mut first, mut later) = (0.0_f64, 0.0_f64, 0.0_f64);
            for _ in 0..ROUNDS {
                let ready = |store: &dyn Store| {
                    // Both sides come in alike: how the kernel holds a file decides what copying it costs.
                    drop_pages(&path);
                    drop_pages(&dir.join("data"));
                    if warm {
                        bring_in(store, len);
                    }
                };
                let direct = || DirectStore::new(&Source::File(source.clone()), &budget, Engine::available());
                let plain: Arc<dyn Store> = match wish {
                    Cache::Keep => Arc::new(ReadStore::new(source.clone(), wish)),
                    Cache::Drop => Arc::new(direct().unwrap()),
                };
                ready(&*plain);
                let (rate, sum) = run(&*plain, pass, len, warm);
                on_file = on_file.max(rate);
                ready(&ReadStore::new(Arc::new(OneFile::open(&dir.join("data")).unwrap()), wish));
                let cached = open(wish);
                let (rate, same) = run(&cached, pass, len, warm);
                assert!(same == sum && (pass == Pass::Windows || sum == expected), "the same bytes");
                first = first.max(rate);
                if pass == Pass::Windows {
                    run(&cached, Pass::Sequential, len, warm); // the rest of an epoch
                }
                if !warm {
                    drop_pages(&dir.join("data"));
                }
                later = later.max(run(&cached, pass, len, warm).0);
            }
            println!(
                "{name:<12} {state:<22} {on_file:>9.2} {first:>9.2} {later:>9.2} {:>7.2} {:>7.2}",
                first / on_file,
                later / on_file
            );
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
