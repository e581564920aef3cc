//! Loaders and chunks used a second time: exactly as many batches as `len` says, left half way, resumed, repeated.
//!
//! Token i of the file is the number i, so that a window tells where it began; row i of the array holds i.

use lowtide::order::{LastStep, Shard};
use lowtide::{Again, Chunks, Loader, LoaderOptions, Options, Shuffle, Standing, Zip};
use std::path::PathBuf;

const GO_ON: lowtide::Interrupt<'static> = &|| Ok(());

struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: Vec<u8>) -> Self {
        let path = std::env::temp_dir().join(format!("lowtide-iterations-{}-{name}.bin", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// 13 windows of 50 tokens: 6 batches of 2, and one window that does not fill a seventh.
fn tokens(name: &str) -> (File, lowtide::Tokens) {
    let file = File::new(name, (0..700_u16).flat_map(u16::to_le_bytes).collect());
    let tokens = lowtide::tokens(&file.0).unwrap();
    (file, tokens)
}

fn options() -> LoaderOptions {
    LoaderOptions { batch_size: 2, block_size: 50, seed: 3, ..Default::default() }
}

/// Where the windows of the next `count` batches begin; fewer where the iteration ends.
fn take(loader: &mut Loader, count: u64) -> Vec<i64> {
    let mut starts = Vec::new();
    for _ in 0..count {
        let Some(batch) = loader.next_batch::<i64>(GO_ON) else { break };
        starts.extend(batch.unwrap().0.as_slice::<i64>().unwrap().chunks(50).map(|window| window[0]));
    }
    starts
}

/// The windows of one epoch, from a loader of its own.
fn epoch(tokens: &lowtide::Tokens, epoch: u64) -> Vec<i64> {
    take(&mut Loader::new(tokens, LoaderOptions { epoch, ..options() }).unwrap(), 6)
}

#[test]
fn exactly_len_batches_are_an_epoch_and_the_next_iteration_is_the_next() {
    let (_file, tokens) = tokens("exactly");
    let mut loader = Loader::new(&tokens, options()).unwrap();
    assert_eq!(loader.len().unwrap(), Some(6));
    for number in 0..4 {
        loader.begin().unwrap();
        assert_eq!(take(&mut loader, 6), epoch(&tokens, number));
        assert_eq!(loader.standing(), Standing::Over);
        assert_eq!(loader.place(), (number + 1, 0));
        assert!(loader.next_batch::<i64>(GO_ON).is_none() && loader.next_batch::<i64>(GO_ON).is_none());
    }
    assert_eq!(epoch(&tokens, 0).len(), 12);
    assert_ne!(epoch(&tokens, 0), epoch(&tokens, 1));
}

#[test]
fn several_epochs_from_any_first_one() {
    let (_file, tokens) = tokens("several");
    let two = LoaderOptions { epoch: 3, epochs: Some(2), ..options() };
    let mut loader = Loader::new(&tokens, two).unwrap();
    for first in [3, 5] {
        loader.begin().unwrap();
        assert_eq!(take(&mut loader, 12), [epoch(&tokens, first), epoch(&tokens, first + 1)].concat());
        assert_eq!(take(&mut loader, 1), [0_i64; 0]);
    }
    // Taken up in its second epoch, an iteration has one left.
    let mut other = Loader::new(&tokens, two).unwrap();
    take(&mut other, 6);
    assert_eq!(other.standing(), Standing::UnderWay);
    loader.load(&other.state().unwrap()).unwrap();
    loader.begin().unwrap();
    assert_eq!(take(&mut loader, 12), epoch(&tokens, 4));
    loader.begin().unwrap();
    assert_eq!(take(&mut loader, 6), epoch(&tokens, 5));
}

#[test]
fn an_iteration_left_half_way_is_taken_up_or_begins_again() {
    let (_file, tokens) = tokens("half");
    let mut loader = Loader::new(&tokens, options()).unwrap();
    let mut repeating =
        Loader::new(&tokens, LoaderOptions { epoch: 5, again: Again::SameEpoch, ..options() }).unwrap();
    for round in 0..3 {
        loader.begin().unwrap();
        assert_eq!(take(&mut loader, 2), epoch(&tokens, 0)[round * 4..][..4]);
        repeating.begin().unwrap();
        assert_eq!(repeating.place(), (5, 0));
        assert_eq!(take(&mut repeating, 2), epoch(&tokens, 5)[..4]);
    }
    repeating.begin().unwrap();
    assert_eq!(take(&mut repeating, 9), epoch(&tokens, 5));
    assert_eq!(repeating.place(), (5, 0), "the next iteration is the same");
    // A state is gone on from once.
    let mut half = Loader::new(&tokens, LoaderOptions { epoch: 5, ..options() }).unwrap();
    take(&mut half, 4);
    repeating.load(&half.state().unwrap()).unwrap();
    for _ in 0..2 {
        repeating.begin().unwrap(); // asking twice changes nothing
    }
    assert_eq!(take(&mut repeating, 9), epoch(&tokens, 5)[8..]);
    repeating.begin().unwrap();
    assert_eq!(take(&mut repeating, 9), epoch(&tokens, 5));
}

#[test]
fn a_state_with_less_than_a_step_left_is_the_next_epoch() {
    let (_file, tokens) = tokens("rest");
    let mut ones = Loader::new(&tokens, LoaderOptions { batch_size: 1, ..options() }).unwrap();
    take(&mut ones, 12);
    assert_eq!(ones.place(), (0, 12));
    let mut loader = Loader::new(&tokens, options()).unwrap();
    loader.load(&ones.state().unwrap()).unwrap();
    assert_eq!(loader.place(), (1, 0));
    loader.begin().unwrap();
    assert_eq!(take(&mut loader, 6), epoch(&tokens, 1), "never an empty iteration");
}

#[test]
fn a_copy_stands_as_the_original_does() {
    let (_file, tokens) = tokens("copy");
    let mut loader = Loader::new(&tokens, options()).unwrap();
    take(&mut loader, 6);
    let mut copy = Loader::new(&tokens, options()).unwrap();
    copy.load_as(&loader.state().unwrap(), loader.standing()).unwrap();
    assert!(copy.next_batch::<i64>(GO_ON).is_none(), "it is over there too");
    copy.begin().unwrap();
    assert_eq!(take(&mut copy, 6), epoch(&tokens, 1));
}

fn array(name: &str, rows: u32) -> (File, lowtide::Array) {
    let file = File::new(name, (0..rows).flat_map(u32::to_le_bytes).collect());
    let array = Options::new().dtype("uint32".parse().unwrap()).shape(&[-1]).unwrap().open(&file.0).unwrap();
    (file, array)
}

fn rows(chunks: &mut Chunks, count: u64) -> Vec<u32> {
    let next = std::iter::from_fn(|| chunks.next_chunk(GO_ON)).take(usize::try_from(count).unwrap());
    next.flat_map(|chunk| chunk.unwrap().as_slice::<u32>().unwrap().to_vec()).collect()
}

#[test]
fn a_finished_shuffle_begins_the_next_epoch_and_finished_chunks_begin_again() {
    let (_file, array) = array("rows", 107);
    let whole = |epoch| rows(&mut array.shuffled(10, Shuffle { epoch, ..Shuffle::default() }).unwrap(), 99);
    let mut shuffled = array.shuffled(10, Shuffle::default()).unwrap();
    let mut in_order = array.chunks(10).unwrap();
    let mut repeating =
        array.shuffled(10, Shuffle { epoch: 7, again: Again::SameEpoch, ..Shuffle::default() }).unwrap();
    for epoch in 0..3 {
        for chunks in [&mut shuffled, &mut in_order, &mut repeating] {
            chunks.begin().unwrap();
            assert_eq!(chunks.len().unwrap(), 11);
        }
        assert_eq!(rows(&mut shuffled, 11), whole(epoch));
        assert_eq!(shuffled.place(), (epoch + 1, 0));
        assert_eq!(rows(&mut in_order, 11), (0..107).collect::<Vec<_>>());
        assert_eq!(rows(&mut repeating, 4), whole(7)[..40]);
        assert!(shuffled.next_chunk(GO_ON).is_none() && in_order.next_chunk(GO_ON).is_none());
    }
}

#[test]
fn the_first_iteration_begins_at_start_and_the_next_at_the_beginning() {
    let (_file, array) = array("start", 100);
    let whole = rows(&mut array.shuffled(10, Shuffle { epoch: 1, ..Shuffle::default() }).unwrap(), 99);
    for (start, left) in [(0, 10), (95, 1), (100, 0)] {
        let mut chunks = array.shuffled(10, Shuffle { start, ..Shuffle::default() }).unwrap();
        assert_eq!((chunks.len().unwrap(), chunks.remaining()), (10, left));
        chunks.begin().unwrap();
        assert_eq!(rows(&mut chunks, 99).len() as u64, 100 - start);
        chunks.begin().unwrap();
        assert_eq!(rows(&mut chunks, 10), whole);
    }
}

#[test]
fn what_would_never_give_a_chunk_is_refused_and_no_rows_are_no_chunks() {
    let (_file, ten) = array("never", 10);
    for (world_size, rows, says) in [
        (1, 11, "a chunk of 11 is never full: there are 10 rows"),
        (4, 3, "a step of 4 ranks with chunks of 3 is never full: there are 10 rows"),
    ] {
        let shard = Shard::new(0, world_size).unwrap();
        let shuffle = Shuffle { shard, last: LastStep::Drop, ..Shuffle::default() };
        let error = ten.shuffled(rows, shuffle.clone()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(ten.shuffled(2, shuffle).is_ok());
    }
    let (_file, none) = array("none", 0);
    let drop = Shuffle { last: LastStep::Drop, ..Shuffle::default() };
    for mut chunks in [none.chunks(5).unwrap(), none.shuffled(5, drop).unwrap()] {
        for _ in 0..2 {
            chunks.begin().unwrap();
            assert!(chunks.is_empty() && chunks.next_chunk(GO_ON).is_none());
        }
    }
    assert_eq!(Zip::new(vec![none]).unwrap().chunks(1).unwrap().len().unwrap(), 0);
}
