//! What the engine does on a disk that is not there.

use super::*;
use crate::engine::choose::Visit;
use crate::engine::lane::Lane;
use crate::engine::tuning::LARGE_ROW;
use crate::order::{Blocks, Mix, Order, Permutation, Sequential};
use std::collections::HashMap;

const MIB: u64 = 1 << 20;
const GO_ON: crate::Interrupt<'static> = &|| Ok(());

/// From a stick to an object store. They make as many requests a second as real ones do, however many hands ask: SATA at
/// most 100,000, what comes after it 800,000. Filesystems over far stores read a megabyte ahead.
const DISKS: [(&str, Speed); 5] = [
    ("USB stick", Speed { latency: 1_000_000, bandwidth: 40, depth: 1, seeks: true, ahead: 128 << 10 }),
    ("hard disk", Speed { latency: 8_000_000, bandwidth: 180, depth: 4, seeks: true, ahead: 128 << 10 }),
    ("SATA SSD", Speed { latency: 100_000, bandwidth: 500, depth: 10, seeks: false, ahead: 128 << 10 }),
    ("NVMe", Speed { latency: 80_000, bandwidth: 3_000, depth: 64, seeks: false, ahead: 128 << 10 }),
    (
        "object store",
        Speed { latency: 30_000_000, bandwidth: 1_000, depth: 64, seeks: false, ahead: 1 << 20 },
    ),
];

fn order(visit: Visit, count: u64, seed: u64) -> Pass {
    match visit {
        Visit::Sequential => Pass::Sequential(Sequential::new(count)),
        Visit::Blocks => Pass::Blocks(Blocks::new(count, seed, 0, Mix::new(16, 64).unwrap())),
        Visit::Shuffled | Visit::Random => Pass::Exact(Permutation::new(count, seed, 0)),
    }
}

/// That a chunk is what its positions say, by the order alone.
fn is_right(order: &dyn Order, positions: Range<u64>, row: usize, bytes: &[u8]) -> bool {
    let mut rows = vec![0; usize::try_from(positions.end - positions.start).unwrap()];
    order.fill(positions.start, &mut rows);
    rows.len() * row == bytes.len()
        && rows.iter().zip(bytes.chunks_exact(row)).all(|(&n, bytes)| {
            let first = n * row as u64;
            bytes[..8] == word(first) && bytes[row - 8..] == word(first + row as u64 - 8)
        })
}

/// Goes through everything; says how long that took, in simulated seconds, and by which ways. A shuffled pass of
/// small rows brings a file in for the next one, so there are two of them.
fn run(disk: &Disk, ask: Ask, visit: Visit, budget: &Budget) -> Result<(f64, Vec<Way>)> {
    let began = disk.now();
    let mut ways = Vec::new();
    for epoch in 0..if visit == Visit::Shuffled && ask.row < LARGE_ROW { 2 } else { 1 } {
        let pass = order(visit, disk.len / ask.row as u64, epoch);
        let data = opened_in(disk, ask.access, budget.clone())?;
        let mut ahead = chunks_of(data, disk.len, ask, pass.clone(), Shard::default())?.alone();
        while let Some(positions) = ahead.job().steps.range(ahead.taken()) {
            let blocks = ahead.next(GO_ON).unwrap()?;
            assert!(is_right(pass.order(), positions, ask.row, &blocks[0]));
            if ways.last() != Some(&ahead.choice().way) {
                ways.push(ahead.choice().way);
            }
        }
    }
    Ok(((disk.now() - began) as f64 * 1e-9, ways))
}

/// Four hands wait for a far disk side by side: sixteen megabytes are there when it has answered once.
#[test]
fn hands_wait_together() {
    let budget = Budget::new(256 * MIB).unwrap();
    let ask = Ask { access: Access::Direct, budget: budget.limit(), row: 1 << 20, chunk: 1 };
    let time = || run(&Disk::new(16 * MIB, DISKS[4].1, 64 * MIB), ask, Visit::Blocks, &budget).unwrap().0;
    let first = time();
    assert!((0.030..0.031).contains(&first), "{first}");
    assert!((0..20).all(|_| time().to_bits() == first.to_bits()), "whoever comes first");
}

/// Who is furthest behind goes on, and the end is that of the last.
#[test]
fn hands_take_turns() {
    let disk = Disk::new(MIB, DISKS[0].1, MIB);
    let store = disk.open(Way::Read, Cache::Keep, &Budget::new(MIB).unwrap()).unwrap();
    let (lane, clock) = (Lane::new(store, disk.clock()), &disk.clock);
    let (left, begun) = (Mutex::new(vec![1, 4, 2, 2, 5, 3]), Mutex::new(Vec::new()));
    lane.together(
        2,
        || (),
        |()| {
            let Some(nanos) = left.lock().unwrap().pop() else { return false };
            begun.lock().unwrap().push((disk.now(), nanos));
            clock.fetch_add(nanos, Ordering::Relaxed);
            true
        },
    );
    assert_eq!(begun.into_inner().unwrap(), [(0, 3), (0, 5), (3, 2), (5, 2), (5, 4), (7, 1)]);
    assert_eq!(disk.now(), 9);
}

/// An epoch over a file that the kernel has taken out of memory since the last one takes as long as one over a file that
/// was just opened: nothing that was learned of the page cache outlives it.
#[test]
fn a_file_that_was_dropped_between_two_epochs_is_cold_again() {
    let (len, row) = (64 * MIB, 512);
    for (name, speed) in DISKS {
        let ask = Ask { access: Access::Auto, budget: 32 * MIB, row, chunk: 4096 };
        let disk = Disk::new(len, speed, 4 * len);
        let data = opened(&disk, ask).unwrap();
        let epoch = |data: &Arc<Data>, seed: u64| {
            let began = disk.now();
            let pass = order(Visit::Shuffled, len / row as u64, seed);
            let mut ahead = chunks_of(data.clone(), len, ask, pass, Shard::default()).unwrap().alone();
            while ahead.next(GO_ON).transpose().unwrap().is_some() {}
            disk.now() - began
        };
        let (first, warm) = (epoch(&data, 0), epoch(&data, 1));
        disk.forget();
        let again = epoch(&data, 0);
        assert!(warm < first, "{name}: {warm} after {first}");
        assert!(again as f64 <= 1.1 * first as f64, "{name}: {again}, and {first} at first");
    }
}

/// Worlds to try: how much is in memory, how much can be, and how large rows and budgets are.
fn worlds() -> impl Iterator<Item = (String, Disk, Ask, Visit)> {
    let len = 32 * MIB;
    let visits = [Visit::Sequential, Visit::Shuffled, Visit::Blocks];
    let states = [(0, 4), (5, 4), (10, 4), (0, 0)]; // tenths that are there; files that fit
    DISKS.into_iter().flat_map(move |(name, speed)| {
        states.into_iter().flat_map(move |(tenths, room)| {
            [
                (2048, 4 * MIB),
                (2048, 32 * MIB),
                (2048, 4096 * MIB),
                (16 << 10, 256 * MIB),
                (1 << 20, 32 * MIB),
                (1 << 20, 4096 * MIB),
            ]
            .into_iter()
            .flat_map(move |(row, budget)| {
                visits.into_iter().map(move |visit| {
                    let mut disk = Disk::new(len, speed, (room * len).max(len / 4)).warmed(tenths);
                    disk.grain = Some(2048);
                    let chunk = (256 << 10) / row.min(256 << 10);
                    let ask = Ask { access: Access::Auto, budget, row, chunk };
                    let what =
                        format!("{name}, {tenths}/10 warm, room {room}, rows of {row}, {budget}, {visit:?}");
                    (what, disk, ask, visit)
                })
            })
        })
    })
}

/// `auto` against the best of the ways that keep to the budget: all but one map, held. What is simulated of windows is the
/// same for `remap` and `advise`.
#[test]
fn auto_is_never_far_from_the_best_way() {
    const MANUAL: [Access; 3] = [Access::Advise, Access::Read, Access::Direct];
    let tried = AtomicU64::new(0);
    let judge = |budgets: &mut HashMap<u64, Budget>, (what, disk, ask, visit): (String, Disk, Ask, Visit)| {
        let budget = budgets.entry(ask.budget).or_insert_with(|| Budget::new(ask.budget).unwrap());
        let (auto, ways) = match run(&disk.fresh(), ask, visit, budget) {
            // A mix that this budget cannot hold is refused before anything is read, in whatever way.
            Err(Error::Budget { .. }) => return None,
            answer => answer.unwrap(),
        };
        let manual = MANUAL.into_iter().filter_map(|access| {
            let time = run(&disk.fresh(), Ask { access, ..ask }, visit, budget).ok()?.0;
            Some((time, access))
        });
        let (best, access) = manual.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        tried.fetch_add(1, Ordering::Relaxed);
        let ratio = best / auto;
        (ratio < 0.8).then(|| format!("{ratio:.2} of {access} ({best:.3} s), by {ways:?}: {what}"))
    };
    let worlds = Mutex::new(worlds());
    let next = || worlds.lock().unwrap().next();
    let worst: Vec<String> = std::thread::scope(|scope| {
        let work = || {
            let mut budgets = HashMap::new();
            std::iter::from_fn(next).filter_map(|world| judge(&mut budgets, world)).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..crate::sys::cores()).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let tried = tried.into_inner();
    assert!(worst.is_empty(), "{} of {tried}:\n{}", worst.len(), worst.join("\n"));
    assert!(tried > 200, "{tried}");
}

/// A larger budget never costs more than a tenth.
#[test]
fn more_memory_is_never_slower() {
    let mut worst = Vec::new();
    for (name, speed) in DISKS {
        for room in [16, 48 * 4] {
            let mut before = f64::MAX;
            for budget in [4, 8, 16, 32, 64, 128, 4096] {
                let mut disk = Disk::new(48 * MIB, speed, room * MIB);
                disk.grain = Some(2048);
                let ask = Ask { access: Access::Auto, budget: budget * MIB, row: 2048, chunk: 128 };
                let memory = Budget::new(ask.budget).unwrap();
                let (time, ways) = run(&disk, ask, Visit::Shuffled, &memory).unwrap();
                if time > before / 0.9 {
                    worst.push(format!(
                        "{name}, room {room}, {budget} MiB: {time:.3} s after {before:.3}, {ways:?}"
                    ));
                }
                before = before.min(time);
            }
        }
    }
    assert!(worst.is_empty(), "{}", worst.join("\n"));
}

/// A small generator: what a seed means must not change with a library.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D) % below.max(1)
    }
}

/// One life from a seed: whatever goes wrong, what is delivered is right, and every error comes with its chunk.
fn live(seed: u64) {
    let mut draw = draws(seed);
    let row = 8 << draw(8);
    let count = 1 + draw(3000);
    let chunk = usize::try_from(1 + draw(200)).unwrap();
    let len = count * row as u64;
    let visit = [Visit::Sequential, Visit::Shuffled, Visit::Blocks][usize::try_from(draw(3)).unwrap()];
    let access = [Access::Auto, Access::Auto, Access::Read, Access::Advise, Access::Direct, Access::Map]
        [usize::try_from(draw(6)).unwrap()];
    let mut disk = Disk::new(len, DISKS[2].1, if draw(2) == 0 { len / 3 } else { 4 * len }).warmed(draw(11));
    disk.faults = Faults {
        bad: (draw(3) == 0).then(|| {
            let at = draw(len);
            at..at + 1 + draw(64)
        }),
        // A chunk takes up to 64 calls, by up to 16 hands.
        one_in: (draw(3) == 0).then(|| 16 + draw(64)),
        cut: (draw(5) == 0).then(|| draw(len)),
        no_direct: access != Access::Direct && draw(4) == 0,
        replaced: draw(10) == 0,
        from: [0, draw(8), draw(80)][usize::try_from(draw(3)).unwrap()],
    };
    let pass = order(visit, count, seed);
    let ask = Ask { access, budget: 16 * MIB, row, chunk };
    let mut ahead = chunks(&disk, ask, pass.clone(), Shard::default()).unwrap();
    if draw(4) == 0 {
        ahead = ahead.alone(); // as where no thread can be started
    }
    let steps = ahead.job().steps;
    let bytes = |n: u64| n * row as u64..(n + 1) * row as u64;
    // Rows that can never be read, and those that cannot be read once the file is cut.
    let bad = |n: &u64| {
        let bad = disk.faults.bad.as_ref();
        bad.is_some_and(|bad| bytes(*n).start < bad.end && bytes(*n).end > bad.start)
    };
    let lost = |n: &u64| disk.faults.cut.is_some_and(|cut| bytes(*n).end > cut);
    let mut failures = 0;
    while let Some(positions) = steps.range(ahead.taken()) {
        let mut rows = vec![0; usize::try_from(positions.end - positions.start).unwrap()];
        pass.order().fill(positions.start, &mut rows);
        let (bad, lost) = (rows.iter().any(bad), rows.iter().any(lost));
        match ahead.next(GO_ON).expect("there is more") {
            Ok(blocks) => {
                let before = disk.faults.from > 0;
                assert!(!bad && (!lost || before), "seed {seed}: a chunk came that cannot be read");
                assert!(is_right(pass.order(), positions, row, &blocks[0]), "seed {seed}: wrong rows");
                failures = 0;
            }
            Err(Error::Io { .. } | Error::Truncated { .. }) => {
                failures += 1;
                if bad || lost {
                    return; // its own error, and none of those behind it
                }
                assert!(disk.faults.one_in.is_some(), "seed {seed}: an error that is another chunk's");
                assert!(failures < 50, "seed {seed}: never comes through");
            }
            Err(Error::Format { .. }) => {
                assert!(disk.faults.replaced, "seed {seed}: it is the file that it was");
                return;
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(ahead.next(GO_ON).is_none());
}

/// `LOWTIDE_SEED=n` runs one of them again.
#[test]
fn whatever_goes_wrong_what_is_delivered_is_right() {
    if let Some(seed) = std::env::var("LOWTIDE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return live(seed);
    }
    (0..4000).for_each(live);
}

/// The path of a row costs the same at 10^13 rows and 1,024 ranks as at 10^6 and one.
#[test]
fn the_path_of_a_row_does_not_depend_on_how_many_there_are() {
    let time = |count: u64, shard: Shard| {
        let disk = Disk::new(count * 512, DISKS[3].1, MIB);
        let ask = Ask { access: Access::Direct, budget: 4 * MIB, row: 512, chunk: 1024 };
        let pass = order(Visit::Shuffled, count, 3);
        // Of this thread alone, which does all of it: other tests run beside it.
        let processor = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
        };
        let began = processor();
        let mut ahead = chunks(&disk, ask, pass, shard).unwrap().alone();
        (0..64).for_each(|_| drop(ahead.next(GO_ON).unwrap().unwrap()));
        processor() - began
    };
    let (mut small, mut large) = (f64::MAX, f64::MAX);
    for _ in 0..7 {
        small = small.min(time(1_000_000, Shard::default()));
        large = large.min(time(10_000_000_000_000, Shard::new(777, 1024).unwrap()));
    }
    assert!(large < 3.0 * small, "{large} s against {small}");
}
