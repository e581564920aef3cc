//! Rows that are sorted on a disk first are the rows that come without: the same, in the same order.

use lowtide::order::{LastStep, Shard};
use lowtide::{Budget, Chunks, Options, Shuffle, Zip};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Rows of `row` bytes, in which the row's number can be seen.
fn make(path: &Path, rows: u64, row: usize) {
    let bytes = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes().into_iter().cycle().take(row);
    fs::write(path, (0..rows).flat_map(bytes).collect::<Vec<u8>>()).unwrap();
}

/// All chunks of what is left of an iteration.
fn taken(chunks: &mut Chunks) -> Vec<Vec<Vec<u8>>> {
    chunks
        .map(|chunk| chunk.unwrap().into_batches().iter().map(|batch| batch.bytes().to_vec()).collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_same_rows_in_the_same_order(
        (bits, off) in (0_u32..17, -1_i64..=1),
        row in prop_oneof![1_usize..9, 1_usize..700],
        batch in 1_usize..3_000,
        budget in prop::sample::select(vec![48_u64 << 10, 256 << 10, 2 << 20, 64 << 20]),
        (rank, ranks) in (0_u64..5, 1_u64..6),
        (start, seed) in (0_u64..100, 0_u64..4),
        labels in any::<bool>(),
    ) {
        let rows = u64::try_from((1_i64 << bits) + off).unwrap();
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let open = |name: &str, row: usize| {
            let path = folder.path().join(name);
            make(&path, rows, row);
            let shape = [-1, i64::try_from(row).unwrap()];
            let options = Options::new().dtype("uint8".parse().unwrap()).shape(&shape).unwrap();
            options.budget(Budget::new(budget).unwrap()).open(path)
        };
        let mut arrays = vec![open("rows", row)];
        if labels {
            arrays.push(open("labels", 3));
        }
        let Ok(arrays) = arrays.into_iter().collect::<Result<Vec<_>, _>>() else { return Ok(()) };
        let zip = Zip::new(arrays).unwrap();
        let plain = Shuffle {
            seed,
            start: rows * start / 100,
            shard: Shard::new(rank % ranks, ranks).unwrap(),
            last: LastStep::Drop,
            ..Shuffle::default()
        };
        let sorted = Shuffle { scratch: Some(Arc::from(folder.path())), ..plain.clone() };
        let Ok(mut expected) = zip.shuffled(batch, plain) else {
            prop_assert!(zip.shuffled(batch, sorted).is_err());
            return Ok(());
        };
        let mut found = zip.shuffled(batch, sorted).unwrap();
        for _epoch in 0..2 {
            let (expected, found) = (taken(&mut expected), taken(&mut found));
            prop_assert!(expected == found, "{} and {} chunks", expected.len(), found.len());
        }
        prop_assert_eq!(found.state().unwrap(), expected.state().unwrap());
        expected.begin().unwrap();
        found.begin().unwrap();
        prop_assert!(taken(&mut expected) == taken(&mut found), "the next epoch");
        drop(found);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1 + usize::from(labels), "nothing is left");
    }
}

/// Several iterations over an array share its budget, and one of them may have all of it at the moment.
#[test]
fn rows_are_sorted_while_others_hold_the_budget() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("rows");
    make(&path, 20_000, 100);
    let budget = Budget::new(1 << 20).unwrap();
    let options = Options::new().dtype("uint8".parse().unwrap()).shape(&[-1, 100]).unwrap();
    let array = options.budget(budget.clone()).open(&path).unwrap();
    let scratch = Some(Arc::from(folder.path()));
    let expected = taken(&mut array.shuffled(500, Shuffle::default()).unwrap());
    for left in [0, 1, 200] {
        let mut found =
            array.shuffled(500, Shuffle { scratch: scratch.clone(), ..Shuffle::default() }).unwrap();
        let mut held: Vec<_> = std::iter::from_fn(|| budget.lease(1 << 10)).collect();
        assert!(held.len() > 500, "the budget was free: {} KiB", held.len());
        held.truncate(held.len() - left);
        assert!(taken(&mut found) == expected, "{left} KiB were left");
        drop(held);
        assert!(budget.lease(1 << 20).is_some(), "what is over, and still there, holds nothing");
    }
}
