//! Three passes: what comes out is what the permutation says, whenever they are stopped, and wherever.

use super::*;
use crate::format::npy;
use crate::order::{Order as _, Permutation};
use crate::{Budget, CacheWish, Options};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files of as many rows, to be shuffled inside one budget into an `.npy` and into bare bytes.
fn files(folder: &Path, rows: usize, sizes: &[usize], budget: u64) -> ShuffleFiles {
    for (index, &size) in sizes.iter().enumerate() {
        let mut bytes = npy::header("u1".parse().unwrap(), &[rows, size], AxisOrder::C).unwrap();
        bytes.extend((0..rows * size).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 11).to_le_bytes()[0]));
        fs::write(folder.join(format!("in{index}")), bytes).unwrap();
    }
    opened(folder, sizes.len(), budget)
}

/// The same files in another budget.
fn opened(folder: &Path, count: usize, budget: u64) -> ShuffleFiles {
    let budget = Budget::new(budget).unwrap();
    let options = || Options::new().cache(CacheWish::Drop).budget(budget.clone());
    let arrays = (0..count).map(|index| options().open(folder.join(format!("in{index}"))).unwrap()).collect();
    let outputs = (0..count).map(|index| folder.join(["one.npy", "two.bin"][index])).collect();
    ShuffleFiles { arrays, outputs, seed: 5, epoch: 1, existing: Existing::Refuse }
}

/// Row by row, by the permutation alone.
fn expected(shuffle: &ShuffleFiles) -> Vec<Vec<u8>> {
    let mut order = vec![0; usize::try_from(shuffle.arrays[0].rows()).unwrap()];
    Permutation::new(order.len() as u64, shuffle.seed, shuffle.epoch).fill(0, &mut order);
    let of = |(array, output): (&Array, &PathBuf)| {
        let bytes = fs::read(array.path()).unwrap();
        let (header, rows) = bytes.split_at(usize::try_from(array.layout().offset).unwrap());
        let npy = output.extension().is_some_and(|extension| extension == "npy");
        let mut want = if npy { header.to_vec() } else { Vec::new() };
        for &row in &order {
            let size = array.row_bytes();
            want.extend_from_slice(&rows[usize::try_from(row).unwrap() * size..][..size]);
        }
        want
    };
    shuffle.arrays.iter().zip(&shuffle.outputs).map(of).collect()
}

fn taken(shuffle: &ShuffleFiles) -> Vec<Vec<u8>> {
    let take = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    };
    shuffle.outputs.iter().map(take).collect()
}

/// Not on tmpfs, where nothing is written past the page cache.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

fn state(shuffle: &ShuffleFiles) -> PathBuf {
    let output = &shuffle.outputs[0];
    output.with_file_name(format!(".{}.shuffling", output.file_name().unwrap().to_str().unwrap()))
}

#[test]
fn three_passes_make_what_two_make() {
    let worlds: [(usize, &[usize], u64); 7] = [
        (300_000, &[64], 1 << 20),
        (1_500_000, &[8], 1 << 20),
        (30_000, &[513, 7], 1 << 20),
        (200_000, &[64, 0], 1 << 20),
        (200_000, &[0, 64], 1 << 20),
        (48_001, &[1000], 2 << 20),
        (70_001, &[24], 96 << 10),
    ];
    for (rows, sizes, budget) in worlds {
        let folder = folder();
        let shuffle = files(folder.path(), rows, sizes, budget);
        let bytes = (rows * sizes.iter().sum::<usize>()) as u64;
        assert_eq!((shuffle.passes(), shuffle.short_reads()), (3, None), "{rows} rows of {sizes:?}");
        let (mut steps, mut written) = (Vec::new(), 0);
        let mut tell = |at: Sorting| {
            assert_eq!((at.passes, at.total, at.before), (3, 3 * bytes, 0));
            assert!(at.written >= written);
            written = at.written;
            if steps.last() != Some(&at.step) {
                steps.push(at.step);
            }
        };
        let made = shuffle.run(&mut tell, &|| Ok(())).unwrap();
        assert_eq!(steps, [SortStep::Runs, SortStep::Merging, SortStep::Rows]);
        assert_eq!((written, made.passes, made.before), (3 * bytes, 3, 0));
        let got = taken(&shuffle);
        assert!(got == expected(&shuffle), "{rows} rows of {sizes:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), sizes.len(), "only the inputs are left");
        assert_eq!(shuffle.arrays[0].budget().available(), budget);
        let enough = shuffle.third_pass().unwrap();
        let large = opened(folder.path(), sizes.len(), enough);
        assert_eq!((large.passes(), large.third_pass()), (2, None));
        let mut tell = |at: Sorting| assert_eq!((at.passes, at.total), (2, 2 * bytes));
        assert_eq!(large.run(&mut tell, &|| Ok(())).unwrap().passes, 2);
        assert!(taken(&large) == got, "{rows} rows of {sizes:?} in {enough}");
    }
}

#[test]
fn it_is_made_where_others_hold_the_budget() {
    let folder = folder();
    let shuffle = files(folder.path(), 200_000, &[64], 1 << 20);
    for held in [300 << 10, 700 << 10, 1 << 20] {
        let _held = shuffle.arrays[0].budget().lease(held).unwrap();
        assert_eq!(shuffle.run(&mut |_| {}, &|| Ok(())).unwrap().passes, 3);
        assert!(taken(&shuffle) == expected(&shuffle), "{held}");
    }
}

#[test]
fn stopped_again_and_again_in_every_pass_it_goes_on() {
    let folder = folder();
    let shuffle = files(folder.path(), 30_000, &[513, 7], 1 << 20);
    let bytes = 30_000 * 520;
    let (mut number, mut last, mut began) = (1_usize, 0, BTreeSet::new());
    let made = loop {
        number = number.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let (left, mut before) = (AtomicUsize::new(10 + (number >> 33) % 400), 0);
        let stop = || {
            let stopped = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            stopped.map(|_| ()).map_err(|_| Error::Interrupted)
        };
        let answer = shuffle.run(&mut |at| before = at.before, &stop);
        assert!(before >= last, "it went back from {last} to {before}");
        last = before;
        began.insert((before > 0, before / bytes, before.is_multiple_of(bytes)));
        match answer {
            Ok(made) => break made,
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
    };
    assert!(taken(&shuffle) == expected(&shuffle));
    assert!((0..3).all(|pass| began.contains(&(true, pass, false))), "in the middle of each: {began:?}");
    assert_eq!((made.passes, made.before), (3, last));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Killed, nothing is written down any more: the state is that of some time ago, and files have what came after.
#[test]
fn what_a_kill_leaves_is_gone_on_with() {
    let folder = folder();
    let shuffle = files(folder.path(), 300_000, &[64], 1 << 20);
    let (work, bytes) = (state(&shuffle), 300_000 * 64);
    let moments = [bytes / 2, bytes, bytes * 7 / 5, bytes * 19 / 10, bytes * 2, bytes * 5 / 2, bytes * 3];
    let kept = |at: usize| folder.path().join(format!("kept{at}"));
    let mut next = 0;
    let mut tell = |at: Sorting| {
        if moments.get(next).is_some_and(|&moment| at.written >= moment) {
            copy(&work, &kept(next));
            next += 1;
        }
    };
    shuffle.run(&mut tell, &|| Ok(())).unwrap();
    assert_eq!(next, moments.len());
    let want = taken(&shuffle);
    assert!(want == expected(&shuffle));
    let mut went_on = Vec::new();
    for at in 0..moments.len() {
        fs::rename(kept(at), &work).unwrap();
        went_on.push(shuffle.run(&mut |_| {}, &|| Ok(())).unwrap().before / bytes);
        assert!(taken(&shuffle) == want, "killed at {}", moments[at]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), moments.len() - at);
    }
    assert!(went_on.is_sorted() && went_on[2] == 1 && went_on[5] == 2, "{went_on:?}");
}

#[test]
fn a_state_that_lies_is_not_believed_and_one_of_another_budget_only_where_it_fits() {
    let folder = folder();
    let shuffle = files(folder.path(), 300_000, &[64], 1 << 20);
    let path = state(&shuffle).join("state.json");
    let stopped = |shuffle: &ShuffleFiles, part: u64| {
        let at_end = std::sync::atomic::AtomicBool::new(false);
        let stop = || if at_end.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        let mut tell = |at: Sorting| at_end.store(at.written > part, Ordering::Relaxed);
        shuffle.run(&mut tell, &stop).unwrap_err();
        serde_json::from_slice::<serde_json::Value>(&fs::read(&path).unwrap()).unwrap()
    };
    let bytes = 300_000 * 64;
    let lies = [
        ("each", 0),
        ("each", 1_000_000),
        ("each", u64::MAX),
        ("merged", 300_001),
        ("merged", u64::MAX),
        ("buckets", 1),
        ("buckets", u64::MAX),
        ("next", 299_999),
        ("next", u64::MAX),
        ("version", 1),
    ];
    for (name, lie) in lies {
        let mut state = stopped(&shuffle, bytes * 3 / 2);
        assert!(state["each"].as_u64().unwrap() > 1 && state["merged"].as_u64().unwrap() > 0);
        state[name] = lie.into();
        fs::write(&path, state.to_string()).unwrap();
        assert_eq!(shuffle.run(&mut |_| {}, &|| Ok(())).unwrap().before, 0, "{name}: {lie}");
        assert!(taken(&shuffle) == expected(&shuffle), "{name}: {lie}");
    }
    // What was begun in a small budget is ended in a large one as it was begun; in a smaller one, it is begun anew.
    for (budget, goes_on) in [(64 << 20, true), (512 << 10, false)] {
        stopped(&shuffle, bytes * 3 / 2);
        let other = opened(folder.path(), 1, budget);
        let mut seen = BTreeSet::new();
        let made = other.run(&mut |at| _ = seen.insert((at.passes, at.before > 0)), &|| Ok(())).unwrap();
        assert_eq!(Vec::from_iter(seen), [(3, goes_on)], "{budget}");
        assert_eq!(made.before >= bytes, goes_on);
        assert!(taken(&other) == expected(&other), "{budget}");
    }
    assert_eq!((opened(folder.path(), 1, 64 << 20).passes(), shuffle.passes()), (2, 3));
}
