//! Arrays that are written: what is in the file, and what is there when it went wrong.

use super::{Existing, Place, WriteOptions, Writer};
use crate::budget::Budget;
use crate::error::Error;
use crate::format::{Dtype, Order, npy};
use crate::options::CacheWish;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

#[allow(clippy::unnecessary_wraps)] // what an interrupt is
fn go() -> crate::error::Result<()> {
    Ok(())
}

fn bytes_of(dtype: Dtype, shape: &[usize], order: Order, data: &[u8]) -> Vec<u8> {
    [npy::header(dtype, shape, npy::saved_order(shape, order)).unwrap(), data.to_vec()].concat()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn growing(path: &Path) -> Writer {
    WriteOptions::new().create(path, "uint8".parse().unwrap(), &[None, Some(4)]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Rows in chunks of any size, and a second writer that goes on.
    #[test]
    fn rows_are_in_the_file(
        row in prop::collection::vec(1_usize..4, 0..3),
        chunks in prop::collection::vec(0_usize..50, 0..8),
        more in prop::collection::vec(0_usize..50, 0..4),
        fortran: bool,
        raw: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(if raw { "rows.bin" } else { "rows.npy" });
        let dtype: Dtype = ">i2".parse().unwrap();
        let order = if fortran { Order::Fortran } else { Order::C };
        let axis = if fortran { row.len() } else { 0 };
        let mut shape: Vec<Option<usize>> = row.iter().copied().map(Some).collect();
        shape.insert(axis, None);
        let row_bytes = 2 * row.iter().product::<usize>();
        let data: Vec<u8> = (0..251).cycle().take((chunks.iter().sum::<usize>() + more.iter().sum::<usize>()) * row_bytes).collect();
        let mut rest = &data[..];
        let mut writer = WriteOptions::new().order(order).create(&path, dtype, &shape).unwrap();
        for rows in &chunks {
            writer.append(rest.split_off(..rows * row_bytes).unwrap(), &go).unwrap();
        }
        prop_assert!(!path.exists(), "not before it is whole");
        writer.close().unwrap();
        if raw {
            prop_assert!(fs::read(&path).unwrap() == data[..data.len() - rest.len()]);
            return Ok(());
        }
        let file = |rows: usize| {
            let mut sizes = row.clone();
            sizes.insert(axis, rows);
            bytes_of(dtype, &sizes, order, &data[..rows * row_bytes])
        };
        let first: usize = chunks.iter().sum();
        prop_assert!(fs::read(&path).unwrap() == file(first));
        // Of few rows both orders are the same, and the file says C: it grows along the first axis then.
        let said = npy::parse(&path, &fs::read(&path).unwrap(), fs::metadata(&path).unwrap().len()).unwrap();
        if said.order != order {
            return Ok(());
        }
        let mut writer = WriteOptions::new().append(&path).unwrap();
        for rows in &more {
            writer.append(rest.split_off(..rows * row_bytes).unwrap(), &go).unwrap();
        }
        prop_assert_eq!(crate::open(&path).unwrap().shape()[axis], first, "the old one until it is closed");
        writer.close().unwrap();
        prop_assert!(fs::read(&path).unwrap() == file(first + more.iter().sum::<usize>()));
        prop_assert_eq!(names(folder.path()), ["rows.npy"]);
    }

    /// Rows anywhere, some twice, some never: zeros, as in a file that was made longer.
    #[test]
    fn rows_of_a_known_number_go_anywhere(
        writes in prop::collection::vec((0_u64..100, 1_usize..40, any::<u8>()), 0..30),
        drops: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.npy");
        let dtype: Dtype = "float32".parse().unwrap();
        let cache = if drops { CacheWish::Drop } else { CacheWish::Keep };
        let options = WriteOptions::new().cache(cache).budget(Budget::new(400 << 10).unwrap());
        let mut writer = options.create(&path, dtype, &[Some(100), Some(3000)]).unwrap();
        let mut wanted = vec![0; 100 * 12_000];
        for (start, rows, byte) in writes {
            let rows = rows.min(100 - usize::try_from(start).unwrap());
            let at = usize::try_from(start).unwrap() * 12_000;
            wanted[at..at + rows * 12_000].fill(byte);
            writer.write(start, &vec![byte; rows * 12_000], &go).unwrap();
        }
        writer.close().unwrap();
        prop_assert!(fs::read(&path).unwrap() == bytes_of(dtype, &[100, 3000], Order::C, &wanted));
    }
}

#[test]
fn given_up_it_was_never_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let mut writer = growing(&path);
    writer.append(&[1; 8], &go).unwrap();
    drop(writer);
    assert!(names(folder.path()).is_empty());
    growing(&path).close().unwrap();
    let old = fs::read(&path).unwrap();
    let mut writer = WriteOptions::new().append(&path).unwrap();
    writer.append(&[1; 8], &go).unwrap();
    assert_eq!(names(folder.path()), [".rows.npy.lowtide", "rows.npy"]);
    writer.discard();
    assert!(matches!(writer.append(&[1; 8], &go), Err(Error::Closed { .. })));
    assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["rows.npy".into()], old));
}

/// Room on the disk, in bytes.
fn taken(path: impl AsRef<Path>) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap()) * 512
}

#[test]
fn room_that_was_kept_ahead_is_given_back() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap(); // not on tmpfs
    let path = folder.path().join("rows.npy");
    let dtype: Dtype = "uint8".parse().unwrap();
    let (row, near) = (vec![7; 1 << 20], 1 << 20);
    let mut writer = WriteOptions::new().create(&path, dtype, &[None, Some(row.len())]).unwrap();
    (0..20).for_each(|_| writer.append(&row, &go).unwrap());
    let ahead = taken(folder.path().join(&names(folder.path())[0]));
    writer.close().unwrap();
    let len = 20 * row.len() as u64 + 128;
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    assert!(taken(&path) < len + near, "{}", taken(&path));

    // A file that there was, and a writer that gives up.
    let mut writer = WriteOptions::new().append(&path).unwrap();
    (0..20).for_each(|_| writer.append(&row, &go).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 2 * len - 128, "others see how long this one is");
    assert!(taken(&path) > 2 * len + near && ahead > len + near, "room was kept");
    drop(writer);
    assert!(taken(&path) < len + near, "{}", taken(&path));
}

#[test]
fn what_was_flushed_stays_and_what_a_killed_writer_left_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    growing(&path).close().unwrap();
    let mut writer = WriteOptions::new().append(&path).unwrap();
    writer.append(&[1; 8], &go).unwrap();
    writer.flush().unwrap();
    writer.append(&[2; 400], &go).unwrap();
    let killed = (fs::read(&path).unwrap(), fs::read(folder.path().join(".rows.npy.lowtide")).unwrap());
    drop(writer);
    assert_eq!(crate::open(&path).unwrap().shape(), [2, 4]);
    let put_back = || {
        fs::write(&path, &killed.0).unwrap();
        fs::write(folder.path().join(".rows.npy.lowtide"), &killed.1).unwrap();
    };
    put_back();
    assert!(killed.0.len() > 500, "the rows were behind the end");
    assert_eq!(crate::open(&path).unwrap().shape(), [2, 4]);
    let mut writer = WriteOptions::new().append(&path).unwrap();
    writer.append(&[3; 4], &go).unwrap();
    writer.close().unwrap();
    let wanted = [[1; 8].as_slice(), &[3; 4]].concat();
    let uint8 = "uint8".parse().unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes_of(uint8, &[3, 4], Order::C, &wanted));
    // A new file that is given up: the old one is still what it was.
    put_back();
    drop(WriteOptions::new().existing(Existing::Replace).create(&path, uint8, &[None]).unwrap());
    assert_eq!(crate::open(&path).unwrap().shape(), [2, 4]);
    assert_eq!(names(folder.path()), ["rows.npy"]);
    // Without the mark it is somebody else's file with something behind its elements.
    put_back();
    fs::remove_file(folder.path().join(".rows.npy.lowtide")).unwrap();
    assert!(WriteOptions::new().append(&path).unwrap_err().to_string().contains("400 more bytes"));
    assert_eq!(fs::read(&path).unwrap(), killed.0);
}

#[test]
fn what_cannot_be_is_said_before_anything_happens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let uint8: Dtype = "uint8".parse().unwrap();
    let says = |told: Error, words: &str| assert!(told.to_string().contains(words), "{told}");
    let create = |path: &Path| WriteOptions::new().create(path, uint8, &[None, Some(4)]);
    says(create(folder.path()).unwrap_err(), "hint: name the file");
    says(create(&folder.path().join("no/such.npy")).unwrap_err(), "hint: is the folder there?");
    says(WriteOptions::new().append(&path).unwrap_err(), "hint: lowtide.create makes a new one");
    fs::write(&path, b"old").unwrap();
    says(create(&path).unwrap_err(), "overwrite=True replaces it");
    says(WriteOptions::new().append(&path).unwrap_err(), "only .npy files can be appended to");
    let tiny = WriteOptions::new().budget(Budget::new(1000).unwrap());
    says(tiny.create(folder.path().join("b"), uint8, &[None]).unwrap_err(), "writing an array needs 320 KiB");
    let bfloat16 = "bfloat16".parse().unwrap();
    says(
        WriteOptions::new().existing(Existing::Replace).create(&path, bfloat16, &[None]).unwrap_err(),
        "no bfloat16",
    );
    assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["rows.npy".into()], b"old".into()));
}

#[test]
fn rows_are_whole_and_inside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let says = |told: Error, words: &str| assert!(told.to_string().contains(words), "{told}");
    let mut writer = growing(&path);
    says(writer.append(&[0; 7], &go).unwrap_err(), "7 bytes are no whole number of rows of 4");
    says(writer.write(0, &[0; 4], &go).unwrap_err(), "written at its end");
    let mut part = writer.part(Place::End, 2).unwrap();
    part.write(&[0; 4], &go).unwrap();
    says(part.done().unwrap_err(), "4 bytes of the rows that were announced are missing");
    assert_eq!(writer.rows(), 0);
    drop(writer);
    let uint8: Dtype = "uint8".parse().unwrap();
    let mut writer = WriteOptions::new().create(&path, uint8, &[Some(3), Some(4)]).unwrap();
    writer.append(&[1; 8], &go).unwrap();
    says(writer.append(&[1; 8], &go).unwrap_err(), "2 rows do not fit: of 3, 1 are left");
    says(writer.write(2, &[0; 8], &go).unwrap_err(), "index 3 is out of bounds for axis 0 with size 3");
    says(writer.close().unwrap_err(), "2 of 3 rows were appended");
    writer.append(&[1; 4], &go).unwrap();
    writer.close().unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes_of(uint8, &[3, 4], Order::C, &[1; 12]));
}

#[test]
fn the_budget_is_leased_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let budget = Budget::new(64 << 20).unwrap();
    let options = WriteOptions::new().budget(budget.clone());
    let mut writer = options.create(folder.path().join("a"), "uint8".parse().unwrap(), &[None]).unwrap();
    assert_eq!(budget.used(), 40 << 20);
    writer.close().unwrap();
    assert_eq!(budget.used(), 0);
}
