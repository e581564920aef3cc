//! The verdict for people: what grows, how fast, whether the kernel can take it back, what to do.

use std::time::Duration;

use super::series::Sample;
use super::trend::{Shape, Trend};
use super::verdict::{Growth, Surroundings, Word};
use crate::budget::human;

pub(super) fn sentence(
    word: Word,
    growth: &Growth,
    samples: &[Sample],
    around: &Surroundings,
    limit_in: Option<Duration>,
) -> String {
    let last = samples.last().copied().unwrap_or_default();
    let limit = limit_in.map_or(String::new(), |time| {
        format!(
            " At this rate it fills {} ({} left) in {}.",
            around.room.because,
            human(around.room.bytes),
            duration(time)
        )
    });
    match word {
        Word::Leak => format!(
            "Anonymous memory (RssAnon, the program's own heap) {}, and reached {}. \
             The kernel cannot take it back.{limit}",
            how(growth.anon, "kept growing"),
            human(peak(samples, |sample| sample.anon))
        ),
        Word::Shared => format!(
            "Shared memory (RssShmem, /dev/shm) {}, and reached {}. \
             The kernel cannot take it back while anyone holds it.{limit}",
            how(growth.shmem, "kept growing"),
            human(peak(samples, |sample| sample.shmem))
        ),
        Word::Mapped => format!(
            "Mapped file pages (RssFile) {}, up to {}; the heap stayed flat. The kernel takes them back when \
             it needs the memory, but top, memory_profiler and Slurm count them as the program's own.",
            how(growth.file, "grew until the files were mapped whole"),
            human(peak(samples, |sample| sample.file))
        ),
        Word::Cache => format!(
            "Only the page cache of the watched files {}, up to {}; the program's own memory stayed flat. \
             The kernel takes it back when it needs the memory, but control groups and Kubernetes' working \
             set count it.",
            how(growth.cache, "grew until the files were in it whole"),
            human(peak(samples, |sample| sample.cache.unwrap_or(0)))
        ),
        Word::Flat => format!(
            "Memory stayed flat: anonymous {}, mapped {}{}.",
            level(growth.anon),
            level(growth.file),
            growth.cache.map_or(String::new(), |cache| format!(
                ", page cache of the watched files {}",
                level(Some(cache))
            ))
        ),
        Word::Unknown => format!(
            "The run was too short to tell: {} samples in {:.1} s. Anonymous memory reached {}, mapped file \
             pages {}.",
            samples.len(),
            last.seconds,
            human(peak(samples, |sample| sample.anon)),
            human(peak(samples, |sample| sample.file))
        ),
    }
}

pub(super) fn advice(word: Word) -> String {
    match word {
        Word::Leak => {
            "Look for what keeps references: a list that is appended to, a cache without a bound, tensors kept \
             with their graph (use loss.item()). In Python, tracemalloc names the line."
        }
        Word::Shared => {
            "Look for workers that pass arrays through /dev/shm faster than they are consumed or freed: fewer \
             workers, a smaller prefetch, or threads instead of processes."
        }
        Word::Mapped => {
            "If a scheduler counts RSS, do not keep a large map: lowtide.open(path) reads the same rows within a \
             budget, and lowtide.release(array) drops the pages of a np.memmap in place."
        }
        Word::Cache => {
            "Usually nothing to do. Where page cache counts against you, read with lowtide.open(path, cache=\"drop\"), \
             which leaves the cache as it was."
        }
        Word::Flat => "Nothing to do.",
        Word::Unknown => "Let it run for a few seconds more, or sample more often with --interval.",
    }
    .to_owned()
}

/// "kept growing by 10 MiB/s (95 % sure: 9 to 11)", or what it did instead.
fn how(trend: Option<Trend>, otherwise: &str) -> String {
    match trend {
        Some(trend) if trend.shape == Shape::Growing => {
            let [low, rate, high] = [trend.low, trend.per_second, trend.high].map(rate);
            if low == high {
                format!("kept growing by {rate}/s")
            } else {
                format!("kept growing by {rate}/s (95 % sure: between {low} and {high})")
            }
        }
        _ => otherwise.to_owned(),
    }
}

// A rate is shown as whole bytes, and a shown growth is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rate(bytes: f64) -> String {
    human(bytes.max(0.0).round() as u64)
}

fn level(trend: Option<Trend>) -> String {
    match trend {
        Some(Trend { shape: Shape::Levelled, level, .. }) => format!("levelled off near {}", human(level)),
        Some(Trend { level, .. }) => format!("around {}", human(level)),
        None => "unknown".to_owned(),
    }
}

fn peak(samples: &[Sample], pick: impl Fn(&Sample) -> u64) -> u64 {
    samples.iter().map(pick).max().unwrap_or(0)
}

/// A time for people: `1 min 40 s`, `3 h 5 min`, `12 days`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..172_800 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        172_800..63_072_000 => format!("{} days", seconds / 86400),
        _ => "years".to_owned(),
    }
}
