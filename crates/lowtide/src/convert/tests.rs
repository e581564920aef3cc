//! Arrays with turned axes, against the number of every element, in budgets of all sizes.

use super::passes::Passes;
use super::*;
use crate::open::Options;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where there is a disk: past the page cache is no way to what is in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// A file in the other order than `order`, whose elements are numbered as that order has them.
fn numbered(path: &Path, shape: &[usize], order: Order, dtype: Dtype) {
    let count: usize = shape.iter().product();
    // As the output has its axes: the file has them the other way round.
    let sizes: Vec<usize> =
        if order == Order::C { shape.to_vec() } else { shape.iter().rev().copied().collect() };
    let mut bytes = Vec::with_capacity(count * dtype.itemsize());
    let mut index = vec![0; sizes.len()];
    for _ in 0..count {
        let number = index.iter().zip(&sizes).fold(0, |number, (&at, &size)| number * size + at);
        bytes.extend_from_slice(&number.to_le_bytes()[..dtype.itemsize()]);
        for (at, &size) in index.iter_mut().zip(&sizes) {
            *at += 1;
            if *at < size {
                break;
            }
            *at = 0;
        }
    }
    std::fs::write(path, bytes).unwrap();
    std::fs::File::open(path).unwrap().sync_all().unwrap(); // else it cannot be forgotten
}

/// Takes a file out of the page cache.
fn forget(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Read past the page cache: what does that takes memory of the budget, too.
fn opened(path: &Path, shape: &[usize], order: Order, dtype: Dtype, budget: u64) -> Array {
    let other = if order == Order::C { Order::Fortran } else { Order::C };
    let options =
        Options::new().budget(Budget::new(budget).unwrap()).dtype(dtype).order(other).cache(CacheWish::Drop);
    let shape: Vec<i64> = shape.iter().map(|&size| i64::try_from(size).unwrap()).collect();
    options.shape(&shape).unwrap().open(path).unwrap()
}

/// That a file ends with the numbers from 0 on.
fn is_numbered(path: &Path, count: usize, width: usize) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let elements = bytes[bytes.len() - count * width..].chunks_exact(width);
    elements.enumerate().all(|(number, element)| *element == number.to_le_bytes()[..width])
}

/// What a budget is divided into leaves room for all of it, whatever is rounded up.
#[test]
fn every_budget_is_enough() {
    let (folder, shape, dtype) = (folder(), [2001, 2003], Dtype::parse("<u4").unwrap());
    let (path, made) = (folder.path().join("in.bin"), folder.path().join("made.npy"));
    numbered(&path, &shape, Order::C, dtype);
    for budget in (4 << 20..20 << 20).step_by(1 << 20).chain((4 << 20..20 << 20).step_by(2_234_567)) {
        for to in ["<u4", "<i4"] {
            let to = Dtype::parse(to).unwrap();
            forget(&path);
            let array = opened(&path, &shape, Order::C, dtype, budget);
            turned(to, Order::C).run(&array, &made, &mut |_, _| {}, &|| Ok(())).unwrap();
            assert!(is_numbered(&made, 2001 * 2003, to.itemsize()), "{budget}, {to}");
        }
    }
}

fn turned(dtype: Dtype, order: Order) -> Conversion {
    Conversion {
        dtype: Some(dtype),
        order: Some(order),
        cache: CacheWish::Drop,
        existing: Existing::Replace,
        ..Conversion::default()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Shapes of some megabytes, of which one index of any axis has room in a budget of 4 MiB.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        (600_usize..1500, 600_usize..1500).prop_map(|(a, b)| vec![a, b]),
        (30_usize..100, 1_usize..20, 500_usize..900).prop_map(|(a, b, c)| vec![a, b, c]),
        (20_usize..60, 5_usize..20, 2_usize..20, 30_usize..60).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In one pass or two, of any type to any, with a header or without: all elements are where the other order has them,
    /// and nothing else is left in the folder.
    #[test]
    fn both_ways_put_all_elements_where_they_belong(
        shape in shapes(), fortran: bool, from in prop::sample::select(vec!["<u4", "<u8"]),
        to in prop::sample::select(vec!["<u4", "<i4", "<u8", "<u4"]), name in prop::sample::select(vec!["made.npy", "made.bin"]),
        budget in 4_u64 << 20..12 << 20,
    ) {
        let order = if fortran && name == "made.npy" { Order::Fortran } else { Order::C };
        let (from, to, count) = (Dtype::parse(from).unwrap(), Dtype::parse(to).unwrap(), shape.iter().product());
        let folder = folder();
        let (path, made) = (folder.path().join("in.bin"), folder.path().join(name));
        numbered(&path, &shape, order, from);
        for passes in [Passes::One, Passes::Two] {
            forget(&path);
            let array = opened(&path, &shape, order, from, budget);
            let mut told = 0;
            let total = (count * to.itemsize()) as u64;
            let mut progress = |done, of| {
                assert!(done >= told && done <= of && of == total, "{told}, {done} of {of}");
                told = done;
            };
            turned(to, order).run_by(How::Said(passes), &array, &made, &mut progress, &|| Ok(())).unwrap();
            prop_assert_eq!(told, total);
            prop_assert!(is_numbered(&made, count, to.itemsize()), "{:?}", passes);
            prop_assert_eq!(names(folder.path()), ["in.bin", name]);
            prop_assert!(array.budget().used() <= budget);
        }
    }
}

/// Whatever ends it, in either pass, leaves what was there.
#[test]
fn what_fails_leaves_nothing() {
    let (folder, shape, dtype) = (folder(), [1501, 1403], Dtype::parse("<u4").unwrap());
    let (path, made) = (folder.path().join("in.bin"), folder.path().join("made.npy"));
    numbered(&path, &shape, Order::C, dtype);
    for passes in [Passes::One, Passes::Two] {
        let array = opened(&path, &shape, Order::C, dtype, 4 << 20);
        let narrow = turned(Dtype::parse("<u2").unwrap(), Order::C);
        let told = narrow.run_by(How::Said(passes), &array, &made, &mut |_, _| {}, &|| Ok(())).unwrap_err();
        assert!(told.to_string().contains("a value that uint16 can hold"), "{told}");
        for until in [0.0, 0.3, 0.8] {
            let stop = AtomicBool::new(false);
            let mut progress = |done: u64, total: u64| {
                stop.fetch_or(done as f64 >= until * total as f64, Ordering::Relaxed);
            };
            let interrupt = || if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
            let answer =
                turned(dtype, Order::C).run_by(How::Said(passes), &array, &made, &mut progress, &interrupt);
            // A quick machine may be done before anybody is asked.
            if answer.is_ok() {
                std::fs::remove_file(&made).unwrap();
            }
            assert_eq!(names(folder.path()), ["in.bin"]);
        }
    }
}

/// After a trial of both ways, either is gone on with as if there had been none, in budgets that hold both.
#[test]
fn a_trial_leaves_no_trace() {
    static TRIED: AtomicUsize = AtomicUsize::new(0);
    let (folder, shape, dtype) = (folder(), [2503, 2609], Dtype::parse("<u4").unwrap());
    let (path, made) = (folder.path().join("in.bin"), folder.path().join("made.npy"));
    numbered(&path, &shape, Order::C, dtype);
    let one = |_, _| {
        TRIED.fetch_add(1, Ordering::Relaxed);
        Passes::One
    };
    let two = |_, _| {
        TRIED.fetch_add(1, Ordering::Relaxed);
        Passes::Two
    };
    let mut rounds = 0;
    for budget in (4 << 20..25 << 18).step_by(345_678) {
        for (how, to) in
            [(How::Tried(one), "<u4"), (How::Tried(two), "<i4"), (How::Tried(passes::choose), "<u4")]
        {
            forget(&path);
            let array = opened(&path, &shape, Order::C, dtype, budget);
            let (mut told, to) = (0, Dtype::parse(to).unwrap());
            let mut progress = |done, total| {
                assert!(done >= told && done <= total, "{told}, {done} of {total}");
                told = done;
            };
            turned(to, Order::C).run_by(how, &array, &made, &mut progress, &|| Ok(())).unwrap();
            assert!(is_numbered(&made, 2503 * 2609, 4), "{budget}, {how:?}");
            rounds += 1;
        }
    }
    // Where the filesystem cannot go past the page cache, nothing is tried.
    let direct = crate::sys::direct_alignment(&std::fs::File::open(&path).unwrap()).is_some();
    assert_eq!(TRIED.load(Ordering::Relaxed), if direct { rounds / 3 * 2 } else { 0 });
}
