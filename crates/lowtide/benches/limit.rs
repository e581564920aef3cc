//! The limit for random windows of tokens: one thread, one pread a window, x and y widened into outputs that
//! are used again. bench/tokens.py builds and runs it; nothing here but the widening is Lowtide's.
//!
//! `limit PATH BATCH BLOCK SECONDS SEED warm|cold` prints "ready", waits for a line, and says how many batches
//! a second it made. On a cold file the kernel is told not to read ahead, so that this is the best that one
//! pread at a time can do.

use lowtide::format::{Dtype, Kind};
use lowtide::widen::widen_pair;
use rustix::fs::{Advice, fadvise};
use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::{Write, stdin, stdout};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [path, batch, block, seconds, seed, state] = &arguments[..] else {
        println!("limit PATH BATCH BLOCK SECONDS SEED warm|cold: run by bench/tokens.py");
        return Ok(());
    };
    let (batch, block): (usize, usize) = (batch.parse()?, block.parse()?);
    let (limit, mut seed) = (Duration::from_secs_f64(seconds.parse()?), seed.parse::<u64>()?);
    let file = File::open(path)?;
    if state == "cold" {
        fadvise(&file, 0, None, Advice::Random)?;
    }
    let starts = (file.metadata()?.len() / 2).checked_sub(block as u64).ok_or("the file is too short")?;
    let mut raw = vec![0; (block + 1) * 2];
    let (mut x, mut y) = (vec![0_i64; batch * block], vec![0_i64; batch * block]);
    let dtype = Dtype::native(Kind::UInt16);

    println!("ready");
    stdout().flush()?;
    stdin().read_line(&mut String::new())?;
    let (began, mut batches) = (Instant::now(), 0_u64);
    while began.elapsed() < limit {
        for (x, y) in x.chunks_exact_mut(block).zip(y.chunks_exact_mut(block)) {
            let start = random(&mut seed) % starts;
            file.read_exact_at(&mut raw, start * 2)?;
            widen_pair(dtype, &raw, x, y)?;
        }
        black_box((&mut x, &mut y));
        batches += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = batches as f64 / seconds;
    println!(r#"{{"rate": {rate}, "unit": "batch/s", "seconds": {seconds}, "batches": {batches}}}"#);
    stdin().read_line(&mut String::new())?; // stay to be looked at
    Ok(())
}

/// `SplitMix64`: a multiplication or two, so that drawing costs nothing beside reading.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
