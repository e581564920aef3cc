//! The verdict for people: what grows, how fast, whether the kernel can take it back, what to do.

use std::time::Duration;

use super::ending::{By, Killed, Who, signal_name};
use super::series::Sample;
use super::trend::{Shape, Trend};
use super::verdict::{Growth, Sharing, Surroundings, Word};
use crate::size::human;

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
    let ending = around.killed.as_ref().map_or(String::new(), ending);
    let verdict = match word {
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
        Word::Unknown if growth.anon.is_some() => format!(
            "What was seen of the rest stayed flat (anonymous {}, mapped {}), which does not tell how the killed \
             process grew.",
            level(growth.anon),
            level(growth.file)
        ),
        Word::Unknown => format!(
            "The run was too short to tell: {} sample{} in {:.1} s. Anonymous memory reached {}, mapped file \
             pages {}.",
            samples.len(),
            if samples.len() == 1 { "" } else { "s" },
            last.seconds,
            human(peak(samples, |sample| sample.anon)),
            human(peak(samples, |sample| sample.file))
        ),
    };
    let sharing = match word {
        Word::Mapped | Word::Flat => sharing(around.sharing, peak(samples, |sample| sample.file)),
        _ => String::new(),
    };
    ending + &verdict + &sharing
}

/// Who was killed by what, as a sentence of its own.
fn ending(killed: &Killed) -> String {
    let who = match &killed.who {
        Who::Command { pid } => format!("the command (process {pid})"),
        Who::Probably { .. } | Who::Someone => "a process".to_owned(),
    };
    let probably = match &killed.who {
        Who::Probably { pid, name, rss } => {
            format!(", by its size probably process {pid} ({name}, {})", human(*rss))
        }
        Who::Command { .. } | Who::Someone => String::new(),
    };
    match &killed.by {
        By::Limit { path, limit } => format!(
            "The kernel killed {who} with SIGKILL for want of memory{probably}: control group {} had reached its \
             limit of {}. ",
            path.display(),
            human(*limit)
        ),
        By::Machine => format!(
            "The kernel killed {who} with SIGKILL for want of memory{probably}: this machine had none left. "
        ),
        By::Signal { number, counted } => {
            let name = signal_name(*number);
            let why = match (*number, counted) {
                (9, true) => {
                    " The kernel counted no kill for want of memory here, so somebody sent it: a person, a \
                     scheduler, or a guard like systemd-oomd."
                }
                (9, false) => " Whether that was for want of memory is not known here.",
                _ => "",
            };
            format!("T{} was ended by {name}.{why} ", &who[1..])
        }
    }
}

/// What may count more than once, where that is a good part of the figure.
fn sharing(sharing: Sharing, peak: u64) -> String {
    match sharing {
        // Libraries of a few megabytes are not worth a sentence.
        Sharing::Told { at, doubt } if doubt > (peak / 4).max(32 << 20) => format!(
            " Up to {} of that may be pages that several processes share: the kernel was last asked {at:.1} s \
             after the start.",
            human(doubt)
        ),
        Sharing::Untold => {
            " The kernel does not tell what these processes share, so shared pages count once for each."
                .to_owned()
        }
        Sharing::Told { .. } | Sharing::Alone => String::new(),
    }
}

pub(super) fn advice(word: Word, killed: Option<&Killed>) -> String {
    match word {
        Word::Flat | Word::Cache | Word::Unknown if killed.is_some_and(|killed| killed.by.is_out_of_memory()) => {
            "Raise the limit, or hold less at a time: the peaks say which kind of memory filled it. A burst shorter \
             than a sample is not in them."
        }
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
