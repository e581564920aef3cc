//! Tokens a second out of a file's bytes that are in the cache, on one core:
//! `cargo bench -p lowtide --bench widen`.
//!
//! The floor is 4.6 billion for u16 → i64. Plain timing, best of several: what disturbs a run only makes it
//! slower.

use lowtide::format::{ByteOrder, Dtype, Kind};
use lowtide::widen::{Token, widen, widen_pair};
use std::hint::black_box;
use std::time::{Duration, Instant};

const REPEATS: usize = 15;
/// Passes of one repeat.
const PASSES: usize = 300;
const BLOCK: usize = 1_024;

fn main() {
    println!("{:<48} {:>14}", "", "G tokens/s");
    let (uint16, uint32) = (Dtype::native(Kind::UInt16), Dtype::native(Kind::UInt32));
    one::<i64>("u16 → i64", uint16);
    one::<i32>("u16 → i32", uint16);
    one::<u16>("u16 → u16", uint16);
    one::<i64>("u32 → i64", uint32);
    one::<u16>("u32 → u16, checked", uint32);
    one::<i64>("i64 → i64", Dtype::native(Kind::Int64));
    one::<i64>("u64 → i64, checked", Dtype::native(Kind::UInt64));
    one::<u16>("i64 → u16, checked", Dtype::native(Kind::Int64));
    one::<i64>("big-endian u16 → i64", Dtype::new(Kind::UInt16, ByteOrder::Big));
    for (batch, block) in [(12, 1_024), (64, 256)] {
        pair::<i64>("u16 → i64", uint16, batch, block);
    }
    pair::<i32>("u16 → i32", uint16, 12, BLOCK);
    pair::<i64>("u32 → i64", uint32, 12, BLOCK);
}

/// One window, again and again: all of it in the first-level cache.
fn one<T: Token>(name: &str, dtype: Dtype) {
    let from = vec![0; BLOCK * dtype.itemsize()];
    for off in OFFSETS {
        let mut room = room::<T>(BLOCK);
        let to = at(&mut room, off, BLOCK);
        let time = best(|| widen(dtype, black_box(&from), black_box(&mut *to)).expect("zero fits"));
        report(&format!("{name}, {BLOCK} tokens, output at {off}"), BLOCK, time);
    }
}

/// x and y of a batch of windows into the same outputs, which the caller gave back: in the second-level
/// cache. A token is one of a window, whether it comes out once or twice.
fn pair<T: Token>(name: &str, dtype: Dtype, batch: usize, block: usize) {
    let window = (block + 1) * dtype.itemsize();
    let from = vec![0; batch * window];
    for off in OFFSETS {
        let (mut x, mut y) = (room::<T>(batch * block), room::<T>(batch * block));
        let (x, y) = (at(&mut x, off, batch * block), at(&mut y, off, batch * block));
        let time = best(|| {
            let outputs = x.chunks_exact_mut(block).zip(y.chunks_exact_mut(block));
            for (from, (x, y)) in from.chunks_exact(window).zip(outputs) {
                widen_pair(dtype, black_box(from), black_box(x), black_box(y)).expect("zero fits");
            }
        });
        report(&format!("{name}, x and y of {batch} × {block}, outputs at {off}"), batch * block, time);
    }
}

/// Bytes after a multiple of 64: the pool's outputs and torch's, and NumPy's own.
const OFFSETS: [usize; 2] = [0, 16];

fn room<T: Token>(len: usize) -> Vec<T> {
    vec![T::default(); len + 128 / size_of::<T>()]
}

fn at<T: Token>(room: &mut [T], off: usize, len: usize) -> &mut [T] {
    let first = room.as_ptr().align_offset(64) + off / size_of::<T>();
    &mut room[first..first + len]
}

fn best(mut work: impl FnMut()) -> Duration {
    let time = |()| {
        let start = Instant::now();
        for _ in 0..PASSES {
            work();
        }
        start.elapsed()
    };
    std::iter::repeat_n((), REPEATS).map(time).min().unwrap_or_default()
}

fn report(name: &str, tokens: usize, time: Duration) {
    println!("{name:<48} {:>14.2}", (tokens * PASSES) as f64 / time.as_secs_f64() / 1e9);
}
