//! Arrays with turned axes, against the number of every element, in budgets of all sizes.

use super::*;
use crate::open::Options;

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

fn opened(path: &Path, shape: &[usize], order: Order, dtype: Dtype, budget: u64) -> Array {
    let other = if order == Order::C { Order::Fortran } else { Order::C };
    let options = Options::new().budget(Budget::new(budget).unwrap()).dtype(dtype).order(other);
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
    for budget in (4 << 20..33 << 20).step_by(1_234_567) {
        for to in ["<u4", "<i4"] {
            let to = Dtype::parse(to).unwrap();
            forget(&path);
            let array = opened(&path, &shape, Order::C, dtype, budget);
            let conversion = Conversion {
                dtype: Some(to),
                order: Some(Order::C),
                cache: CacheWish::Drop,
                existing: Existing::Replace,
                ..Conversion::default()
            };
            conversion.run(&array, &made, &mut |_, _| {}, &|| Ok(())).unwrap();
            assert!(is_numbered(&made, 2001 * 2003, to.itemsize()), "{budget}, {to}");
        }
    }
}
