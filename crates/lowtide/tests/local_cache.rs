//! The local cache: the one suite over it, cold and warm, too small, shared; a model; kills; damage. The oracle is what
//! is behind it, and for its size what the system says.

use lowtide::store::local_cache::{Geometry, layout};
use lowtide::store::{
    Cache, Cached, Cost, How, LocalCache, Nature, OneFile, Read, ReadStore, Report, Store, Version,
    conformance,
};
use lowtide::{Budget, Error, Result};
use proptest::prelude::*;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Three slots.
const SMALL: u64 = 13 * MIB;
/// Sixteen slots: room for all that the suite reads.
const LARGE: u64 = 65 * MIB;

fn budget() -> Budget {
    Budget::new(64 * MIB).unwrap()
}

/// A file as one object, or as three end to end, cut where nothing is aligned.
fn over(path: &Path, cache: &Arc<LocalCache>, wish: Cache, budget: &Budget, parts: usize) -> Result<Cached> {
    let file = Arc::new(OneFile::open(path)?);
    let len = file.len();
    let cuts = if parts == 1 { vec![0, len] } else { vec![0, len / 3, len / 3 + len.min(1001) / 2, len] };
    let version = |pair: &[u64]| Version::new(&path.to_string_lossy(), "1", pair[0]..pair[1]);
    let versions = cuts.windows(2).map(version).collect();
    let inner = Arc::new(ReadStore::new(file, Cache::Keep));
    Ok(Cached::new(inner, cache.clone(), versions, wish, budget))
}

/// What all files in a folder take, and the folder.
fn du(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    files.chain([fs::metadata(dir).unwrap()]).map(|meta| meta.blocks() * 512).sum()
}

#[test]
fn what_makes_a_cache_is_said_where_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    for dir in [folder.path().to_owned(), folder.path().join("new")] {
        let said = LocalCache::open_existing(&dir).unwrap_err().to_string();
        assert!(
            said.contains("hint: a cache is made where a size is given with the folder: local_cache_size="),
            "{said}"
        );
    }
    assert!(!folder.path().join("new").exists());
}

#[test]
fn the_suite_over_a_cold_cache() {
    for wish in [Cache::Keep, Cache::Drop] {
        let folder = TempDir::new().unwrap();
        let (count, budget) = (AtomicUsize::new(0), budget());
        conformance::run_unchanging(&|path| {
            OneFile::open(path)?;
            let dir = folder.path().join(count.fetch_add(1, Ordering::Relaxed).to_string());
            Ok(Arc::new(over(path, &LocalCache::open(dir, LARGE)?, wish, &budget, 1)?))
        });
    }
}

#[test]
fn the_suite_over_a_warm_cache() {
    for (wish, parts) in [(Cache::Keep, 1), (Cache::Drop, 3)] {
        let folder = TempDir::new().unwrap();
        let dir = folder.path().join("cache");
        let budget = budget();
        conformance::run_unchanging(&|path| {
            let mut all = vec![0; usize::try_from(OneFile::open(path)?.len()).unwrap()];
            let first = over(path, &LocalCache::open(&dir, LARGE)?, wish, &budget, parts)?;
            first.read(&mut [Read { offset: 0, into: &mut all }], How::default())?;
            let again = over(path, &LocalCache::open(&dir, LARGE)?, wish, &budget, parts)?;
            let (held, blocks) = again.held();
            assert_eq!(held, blocks, "all of it is there: {:#?}", LocalCache::open(&dir, LARGE)?.facts());
            Ok(Arc::new(again))
        });
    }
}

/// Two instances, as two processes have them, and every read goes to the other one.
#[derive(Debug)]
struct InTurn(Cached, Cached, AtomicUsize);

impl Store for InTurn {
    fn nature(&self) -> Nature {
        self.0.nature()
    }

    fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
        let first = self.2.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if first { self.0.read(reads, how) } else { self.1.read(reads, how) }
    }
}

#[test]
fn the_suite_over_a_cache_that_is_too_small_and_shared() {
    for (wish, size, memory) in
        [(Cache::Keep, SMALL, 64 * MIB), (Cache::Drop, Geometry::LEAST, 64 * MIB), (Cache::Drop, SMALL, MIB)]
    {
        let folder = TempDir::new().unwrap();
        let dir = folder.path().join("cache");
        let budget = Budget::new(memory).unwrap();
        conformance::run_unchanging(&|path| {
            OneFile::open(path)?;
            let one = || over(path, &LocalCache::open(&dir, size)?, wish, &budget, 3);
            Ok(Arc::new(InTurn(one()?, one()?, AtomicUsize::new(0))))
        });
        assert!(du(&dir) <= size, "{} of {size}", du(&dir));
        assert!(budget.used() <= memory);
    }
}

/// An object whose byte i is a function of i and of its version, and how many bytes were fetched of it.
#[derive(Debug)]
struct Remote {
    len: u64,
    version: u64,
    fetched: AtomicU64,
    requests: AtomicU64,
}

impl Remote {
    fn new(len: u64, version: u64) -> Arc<Self> {
        Arc::new(Self { len, version, fetched: AtomicU64::new(0), requests: AtomicU64::new(0) })
    }

    /// Eight bytes at a time: a test reads gigabytes of it.
    fn fill(&self, offset: u64, into: &mut [u8]) {
        let word = |at: u64| {
            let mixed = (at / 8 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.version << 32);
            (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_le_bytes()
        };
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let bytes = &word(at)[usize::try_from(at % 8).unwrap()..];
            let len = bytes.len().min(rest.len());
            let (now, others) = rest.split_at_mut(len);
            now.copy_from_slice(&bytes[..len]);
            (at, rest) = (at + len as u64, others);
        }
    }

    fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    fn through(self: &Arc<Self>, cache: &Arc<LocalCache>, wish: Cache, budget: &Budget) -> Cached {
        let object = vec![Version::new("s3://bucket/object.bin", &self.version.to_string(), 0..self.len)];
        Cached::new(self.clone(), cache.clone(), object, wish, budget)
    }

    /// Reads so many bytes and says whether they are right.
    #[track_caller]
    fn check(&self, store: &dyn Store, offset: u64, len: usize) {
        let (mut got, mut expected) = (vec![1; len], vec![0; len]);
        store.read(&mut [Read { offset, into: &mut got }], How::default()).unwrap();
        self.fill(offset, &mut expected);
        assert!(got == expected, "wrong bytes in {offset}..{}", offset + len as u64);
    }

    #[track_caller]
    fn check_all(&self, store: &dyn Store) {
        let step = 3 * MIB + 12_345;
        for offset in (0..self.len).step_by(usize::try_from(step).unwrap()) {
            self.check(store, offset, usize::try_from(step.min(self.len - offset)).unwrap());
        }
    }
}

impl Store for Remote {
    fn nature(&self) -> Nature {
        Nature {
            prior: Cost { request: 3e7, byte: 1.0, waits: true },
            learns: true,
            align: 1,
            end: self.len,
            hands: 2,
            waiting: 16,
            in_flight: 0,
            together: false,
            keeps: false,
            extent: None,
        }
    }

    fn read(&self, reads: &mut [Read<'_>], _how: How<'_>) -> Result<Report> {
        for read in reads {
            if read.end() > self.len {
                let (path, offset, end) = (PathBuf::from("remote"), read.offset, read.end());
                return Err(Error::Truncated { path, offset, end, found: self.len });
            }
            self.fill(read.offset, read.into);
            self.fetched.fetch_add(read.into.len() as u64, Ordering::Relaxed);
            self.requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Report::default())
    }
}

fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below.max(1)
    }
}

#[test]
fn every_byte_is_fetched_once_however_small_the_reads() {
    let folder = TempDir::new().unwrap();
    let cache = LocalCache::open(folder.path().join("cache"), LARGE).unwrap();
    let remote = Remote::new(30 * MIB + 777, 1);
    for wish in [Cache::Keep, Cache::Drop] {
        let store = remote.through(&cache, wish, &budget());
        let mut draw = draws(3);
        for _ in 0..2000 {
            remote.check(&store, draw(30 * MIB), 2048);
        }
        remote.check_all(&store);
        assert_eq!(remote.fetched(), remote.len, "once, and whole blocks");
        assert_eq!(remote.requests.load(Ordering::Relaxed), 8);
    }
    let facts = cache.facts();
    assert_eq!((facts.blocks, facts.bytes, facts.counts.stored), (8, remote.len, 8));
    assert_eq!(facts.counts.fetched_bytes, remote.len);
    assert_eq!(
        facts.counts.hit_bytes,
        2 * (2000 * 2048 + remote.len) - (facts.counts.fetched_bytes - missed(&facts))
    );
    assert_eq!(facts.objects.len(), 1);
    assert_eq!(facts.objects[0].label, "s3://bucket/object.bin");
    // Another process finds them, and another version does not.
    let again = LocalCache::open_existing(folder.path().join("cache")).unwrap();
    remote.check_all(&remote.through(&again, Cache::Keep, &budget()));
    assert_eq!(remote.fetched(), remote.len);
    let newer = Remote::new(30 * MIB + 777, 2);
    newer.check_all(&newer.through(&again, Cache::Keep, &budget()));
    assert_eq!(newer.fetched(), newer.len);
}

/// Of what was fetched, the bytes that nobody had asked for: eight windows brought a block each.
fn missed(facts: &lowtide::store::local_cache::Facts) -> u64 {
    facts.counts.fetched_bytes - 8 * 2048
}

/// A pass over more than the cache holds: what stays is of use in the next one, and little is written.
#[test]
fn a_pass_over_twice_the_cache_finds_some_of_it() {
    let folder = TempDir::new().unwrap();
    let cache = LocalCache::open(folder.path().join("cache"), 65 * MIB).unwrap();
    let remote = Remote::new(128 * MIB, 1);
    let store = remote.through(&cache, Cache::Drop, &budget());
    let mut block = vec![0; 4 << 20];
    for _ in 0..6 {
        for offset in (0..128 * MIB).step_by(4 << 20) {
            store.read(&mut [Read { offset, into: &mut block }], How::default()).unwrap();
        }
    }
    let share = 1.0 - (remote.fetched() - remote.len) as f64 / (5 * remote.len) as f64;
    assert!(share > 0.25, "{share} of the later passes came from half of the data");
}

/// Threads that want parts of one block: one of them fetches it.
#[test]
fn a_block_is_fetched_by_one_thread() {
    #[derive(Debug)]
    struct Slow(Arc<Remote>);
    impl Store for Slow {
        fn nature(&self) -> Nature {
            self.0.nature()
        }
        fn read(&self, reads: &mut [Read<'_>], how: How<'_>) -> Result<Report> {
            std::thread::sleep(Duration::from_millis(30));
            self.0.read(reads, how)
        }
    }
    let folder = TempDir::new().unwrap();
    let cache = LocalCache::open(folder.path().join("cache"), LARGE).unwrap();
    let remote = Remote::new(16 * MIB, 1);
    let object = vec![Version::new("s3://b/o", "e", 0..remote.len)];
    let store = Cached::new(Arc::new(Slow(remote.clone())), cache, object, Cache::Keep, &budget());
    std::thread::scope(|scope| {
        for quarter in 0..8 {
            let (remote, store) = (&remote, &store);
            scope.spawn(move || remote.check(store, quarter * 2 * MIB, 2 << 20));
        }
    });
    assert_eq!(remote.fetched(), remote.len);
}

/// A failing server is the caller's error, and leaves nothing behind: not a block, not a lock.
#[test]
fn a_fetch_that_fails_is_an_error_and_the_next_one_works() {
    let folder = TempDir::new().unwrap();
    let cache = LocalCache::open(folder.path().join("cache"), LARGE).unwrap();
    let path = folder.path().join("object");
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|i| (i % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    let store = over(&path, &cache, Cache::Keep, &budget(), 1).unwrap();
    let mut got = vec![0; 100];
    let mut read =
        |offset| store.read(&mut [Read { offset, into: &mut got }], How::default()).map(|_| got.clone());
    assert_eq!(read(100).unwrap(), bytes[100..200]);
    File::options().write(true).open(&path).unwrap().set_len(1000).unwrap();
    assert!(matches!(read(5_000_000), Err(Error::Truncated { .. })));
    assert!(
        matches!(read(5_000_000), Err(Error::Truncated { .. })),
        "and nobody waits for the one that failed"
    );
    assert_eq!(read(4_000_000).unwrap(), bytes[4_000_000..4_000_100], "what was stored is there");
    fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.write_all_at(&bytes, 0)).unwrap();
    assert_eq!(read(5_000_000).unwrap(), bytes[5_000_000..5_000_100]);
}

#[test]
fn folders_of_others_are_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    let refused = |dir: &Path, size: u64, says: &str| match LocalCache::open(dir, size) {
        Err(error) => assert!(error.to_string().contains(says), "{error}"),
        Ok(_) => panic!("{says}: should be refused"),
    };
    let others = folder.path().join("others");
    fs::create_dir(&others).unwrap();
    fs::write(others.join("data"), "mine").unwrap();
    refused(&others, LARGE, "not empty: it holds data");
    fs::write(others.join("CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n# cargo\n").unwrap();
    refused(&others, LARGE, "not empty: it holds CACHEDIR.TAG and 1 more");
    assert!(LocalCache::remove(&others).is_err() && LocalCache::open_existing(&others).is_err());
    assert_eq!(fs::read(others.join("data")).unwrap(), b"mine");
    refused(&folder.path().join("no/such"), LARGE, "make the folder above it first");
    refused(&folder.path().join("tiny"), MIB, "8 MiB is the smallest size");
    refused(&folder.path().join("huge"), 1 << 52, "are free on this disk");
    assert!(!folder.path().join("tiny").exists() && !folder.path().join("huge").exists(), "nothing is left");
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    refused(&file, LARGE, "open the cache");
    // An empty folder will do, and one that was killed before its mark was written.
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(LocalCache::open_existing(&empty).is_err());
    fs::write(empty.join("CACHEDIR.TAG"), "").unwrap();
    LocalCache::open(&empty, LARGE).unwrap();
    refused(&empty, LARGE + 1, "this cache has 65 MiB (68157440 bytes)");
    // Beside it, somebody's file: taken away is what we made, and no more.
    fs::write(empty.join("theirs"), "x").unwrap();
    LocalCache::open(&empty, LARGE).unwrap();
    assert!(!LocalCache::remove(&empty).unwrap());
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 1);
    let made = folder.path().join("made");
    LocalCache::open(&made, LARGE).unwrap();
    assert_eq!(
        fs::metadata(&made).unwrap().permissions().mode() & 0o777,
        0o700,
        "what is in it may be private"
    );
    assert!(LocalCache::remove(&made).unwrap() && !made.exists());
}

/// Whatever a kill left of making it: the next one makes it whole.
#[test]
fn a_folder_that_was_half_made_is_made_whole() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("cache");
    let remote = Remote::new(20 * MIB, 1);
    let cut = |name: &'static str, len: u64| {
        let dir = dir.clone();
        move || File::options().write(true).open(dir.join(name)).unwrap().set_len(len).unwrap()
    };
    let gone = |name: &'static str| {
        let dir = dir.clone();
        move || fs::remove_file(dir.join(name)).unwrap()
    };
    let steps: [Box<dyn Fn()>; 7] = [
        Box::new(|| ()),
        Box::new(cut("data", 5 * MIB)),
        Box::new(cut("index", 100)),
        Box::new(gone("data")),
        Box::new(gone("index")),
        Box::new(cut("data", 500 * MIB)),
        Box::new(cut("index", MIB)),
    ];
    for (number, step) in steps.iter().enumerate() {
        LocalCache::open(&dir, LARGE).unwrap();
        step();
        let cache = LocalCache::open(&dir, LARGE).unwrap();
        assert!(
            du(&dir) <= LARGE && du(&dir) > LARGE - 5 * MIB,
            "step {number}: all of its room is set aside"
        );
        remote.check_all(&remote.through(&cache, Cache::Keep, &budget()));
        assert_eq!(cache.facts().blocks, 5, "step {number}");
        assert_eq!(cache.trouble(), None);
    }
}

/// Files cut under a process that reads: right bytes, and no crash.
#[test]
fn files_that_are_cut_under_a_reader() {
    let folder = TempDir::new().unwrap();
    let remote = Remote::new(20 * MIB, 1);
    for (number, name) in ["data", "index"].into_iter().enumerate() {
        for wish in [Cache::Keep, Cache::Drop] {
            let dir = folder.path().join(format!("cache-{number}-{wish:?}"));
            let store = remote.through(&LocalCache::open(&dir, LARGE).unwrap(), wish, &budget());
            remote.check_all(&store);
            File::options().write(true).open(dir.join(name)).unwrap().set_len(0).unwrap();
            remote.check_all(&store);
            remote.check_all(&store);
            assert!(du(&dir) <= LARGE);
        }
    }
}

/// Any byte of the index or the data may be anything: bytes are right, or fetched again.
#[test]
fn damage_is_a_miss() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("cache");
    let remote = Remote::new(16 * MIB, 1);
    let mut draw = draws(11);
    let use_it = || {
        let cache = LocalCache::open(&dir, 25 * MIB).unwrap();
        remote.check_all(&remote.through(&cache, Cache::Drop, &budget()));
    };
    use_it();
    let index_len = fs::metadata(dir.join("index")).unwrap().len();
    let mut noticed = 0;
    for round in 0..48 {
        let (name, len) = if round % 3 == 0 { ("data", 16 * MIB) } else { ("index", index_len) };
        let file = File::options().read(true).write(true).open(dir.join(name)).unwrap();
        let before = remote.fetched();
        // A bit, some bytes, a page of zeros.
        for _ in 0..3 {
            let at = draw(len - 4096);
            let mut bytes = vec![0; [1, 16, 4096][usize::try_from(draw(3)).unwrap()]];
            file.read_exact_at(&mut bytes, at).unwrap();
            let flip = 1 << draw(8);
            for byte in &mut bytes {
                *byte = if draw(2) == 0 { *byte ^ flip } else { 0 };
            }
            bytes[0] ^= 1;
            file.write_all_at(&bytes, at).unwrap();
        }
        let cache = LocalCache::open(&dir, 25 * MIB).unwrap();
        remote.check_all(&remote.through(&cache, [Cache::Keep, Cache::Drop][round % 2], &budget()));
        noticed += usize::from(name == "data" && remote.fetched() > before);
    }
    // Of some slots nothing was in use.
    assert!(noticed >= 8, "damaged data is noticed: {noticed} of 16 times");
    // An index of nothing but noise, under a process that is reading.
    let cache = LocalCache::open(&dir, 25 * MIB).unwrap();
    let store = remote.through(&cache, Cache::Keep, &budget());
    for _ in 0..8 {
        let noise: Vec<u8> = (0..index_len - 4096).map(|_| u8::try_from(draw(256)).unwrap()).collect();
        let file = File::options().write(true).open(dir.join("index")).unwrap();
        file.write_all_at(&noise, if draw(2) == 0 { 4096 } else { 40 }).unwrap();
        remote.check_all(&store);
    }
}

/// A folder that cannot be written: a warning, and everything is read.
#[test]
fn failing_to_store_is_a_warning() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("cache");
    let cache = LocalCache::open(&dir, LARGE).unwrap();
    let remote = Remote::new(20 * MIB, 1);
    let store = remote.through(&cache, Cache::Keep, &budget());
    // No file may grow or be written past its first megabyte: as a quota or a full disk would have it.
    let code = in_child(|| {
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
        // SAFETY: changes only this child's limits and what it does about a signal.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        remote.check_all(&store);
        remote.check_all(&store);
        assert!(cache.trouble().unwrap().contains("cannot store a block in the cache: File too large"));
        assert!(remote.fetched() >= 2 * remote.len);
    });
    assert_eq!(code, 0);
}

/// Runs `f` in a forked child, and gives its exit code.
fn in_child(f: impl FnOnce()) -> i32 {
    // SAFETY: the child runs `f` and leaves by `_exit`: no destructors, no second run of the test harness.
    unsafe {
        let pid = libc::fork();
        assert!(pid >= 0);
        if pid == 0 {
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            libc::_exit(i32::from(answer.is_err()));
        }
        let mut status = 0;
        libc::waitpid(pid, &raw mut status, 0);
        status
    }
}

const ENV: &str = "LOWTIDE_TEST_CACHE_WRITER";

/// No test by itself: the process that the next ones start, and kill.
#[test]
fn a_writer_for_other_tests() {
    let Ok(dir) = std::env::var(ENV) else { return };
    let cache = LocalCache::open(dir, 22 * MIB).unwrap();
    // Each of them fits, so that whatever is read is stored; together they do not.
    let remotes = [7, 8, 9].map(|version| Remote::new(17 * MIB + 5, version));
    let wishes = [Cache::Keep, Cache::Drop, Cache::Keep];
    std::thread::scope(|scope| {
        for (number, wish) in wishes.into_iter().enumerate() {
            let (cache, remotes, budget) = (&cache, &remotes, budget());
            scope.spawn(move || {
                let stores = remotes.each_ref().map(|remote| remote.through(cache, wish, &budget));
                let mut draw = draws(u64::from(std::process::id()) * 10 + number as u64);
                loop {
                    let (which, len) = (draw(3), [2048, 100_000, 5 << 20][usize::try_from(draw(3)).unwrap()]);
                    let which = usize::try_from(which).unwrap();
                    remotes[which].check(&stores[which], draw(17 * MIB - len as u64), len);
                }
            });
        }
    });
}

fn start_writer(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_writer_for_other_tests", "--nocapture"])
        .env(ENV, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Writers that are killed at random moments, while others go on: every byte that is read is right, the size never
/// changes, and nothing is held up.
#[test]
fn killed_at_any_moment() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("cache");
    let remotes = [7, 8, 9].map(|version| Remote::new(17 * MIB + 5, version));
    let mut draw = draws(u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    let mut other = start_writer(&dir);
    let mut hits = 0;
    for round in 0..16 {
        let mut writer = start_writer(&dir);
        std::thread::sleep(Duration::from_micros(2000 + draw(50_000)));
        assert_eq!(writer.try_wait().unwrap(), None, "no writer has seen a wrong byte");
        writer.kill().unwrap();
        writer.wait().unwrap();
        if round % 6 == 5 {
            // Now and then all of them: what is left is nobody's.
            other.kill().unwrap();
            other.wait().unwrap();
        }
        if dir.join("CACHEDIR.TAG").exists() {
            assert!(du(&dir) <= 22 * MIB, "{}", du(&dir));
            let cache = LocalCache::open(&dir, 22 * MIB).unwrap();
            for remote in &remotes {
                let store = remote.through(&cache, [Cache::Keep, Cache::Drop][round % 2], &budget());
                let before = remote.fetched();
                for offset in (0..remote.len).step_by(4 << 20) {
                    remote.check(
                        &store,
                        offset,
                        usize::try_from((remote.len - offset).min(4 * MIB)).unwrap(),
                    );
                }
                hits += remote.len - (remote.fetched() - before);
            }
            assert_eq!(cache.trouble(), None);
        }
        if round % 6 == 5 {
            other = start_writer(&dir);
        }
    }
    assert_eq!(other.try_wait().unwrap(), None, "it has not seen a wrong byte");
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(hits > 40 * MIB, "some of it came from the cache: {hits}");
    // And slots are not lost: all of them can be filled.
    let cache = LocalCache::open(&dir, 22 * MIB).unwrap();
    let fits = Remote::new(20 * MIB, 10);
    let began = Instant::now();
    while cache.facts().objects.iter().all(|held| held.blocks < 5) {
        fits.check_all(&fits.through(&cache, Cache::Keep, &budget()));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", cache.facts());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read { who: usize, what: usize, offset: u64, len: usize },
    Clear,
    Reopen(usize),
    Damage { index: bool, at: u64, flip: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![1usize..3000, 1usize..9_000_000, Just(4 << 20)];
    prop_oneof![
        12 => (0usize..2, 0usize..3, 0..20 * MIB, lens)
            .prop_map(|(who, what, offset, len)| Step::Read { who, what, offset, len }),
        1 => Just(Step::Clear),
        2 => (0usize..2).prop_map(Step::Reopen),
        2 => (any::<bool>(), any::<u64>(), 1u8..).prop_map(|(index, at, flip)| Step::Damage { index, at, flip }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 50, ..ProptestConfig::default() })]

    /// Two processes, three objects, a cache that holds a fifth of them: whatever they do, and whatever happens to the
    /// files between two openings, what is read is what is behind it.
    #[test]
    fn what_is_read_is_what_is_behind_it(steps in prop::collection::vec(step(), 1..40), drop: bool) {
        let folder = TempDir::new().unwrap();
        let dir = folder.path().join("cache");
        let wish = if drop { Cache::Drop } else { Cache::Keep };
        let remotes = [1, 2, 3].map(|version| Remote::new(20 * MIB + version * 1000, version));
        let budget = budget();
        let open = || {
            let cache = LocalCache::open(&dir, SMALL).unwrap();
            let stores = remotes.each_ref().map(|remote| remote.through(&cache, wish, &budget));
            (cache, stores)
        };
        let mut both = [open(), open()];
        for step in steps {
            match step {
                Step::Read { who, what, offset, len } => {
                    let remote = &remotes[what];
                    let offset = offset.min(remote.len - 1);
                    let len = len.min(usize::try_from(remote.len - offset).unwrap());
                    remote.check(&both[who].1[what], offset, len);
                }
                Step::Clear => {
                    both[0].0.clear().unwrap();
                    prop_assert_eq!(both[1].0.facts().blocks, 0);
                }
                Step::Reopen(who) => both[who] = open(),
                Step::Damage { index, at, flip } => {
                    let path = dir.join(if index { "index" } else { "data" });
                    let file = File::options().read(true).write(true).open(path).unwrap();
                    let at = at % file.metadata().unwrap().len();
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, at).unwrap();
                    file.write_all_at(&[byte[0] ^ flip], at).unwrap();
                    // A disk that changes what a process has seen to be right is beyond what any reader can tell.
                    if !index {
                        both = [open(), open()];
                    }
                }
            }
            prop_assert!(du(&dir) <= SMALL);
            prop_assert!(both[0].0.facts().blocks <= 3);
        }
        prop_assert!(budget.used() <= budget.limit());
    }
}

#[test]
fn slots_are_as_large_as_they_say() {
    assert_eq!(layout::SLOT, 4 * MIB);
    assert_eq!(Geometry::of(SMALL).unwrap().slots, 3);
    assert_eq!(Geometry::of(LARGE).unwrap().slots, 16);
}
