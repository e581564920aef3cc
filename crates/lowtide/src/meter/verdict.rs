//! What the samples mean: which kind of memory grows, if any.
//!
//! A pure function: samples and surroundings in, a verdict out. The kinds are looked at worst first, and
//! the first that grows is the verdict. File pages have one more way to grow: a file that came in whole
//! stopped only because there was no more of it.

use std::time::Duration;

use super::cgroup::Room;
use super::ending::Killed;
use super::series::Sample;
use super::trend::{Shape, Trend, trend};
use super::words;

/// The verdict in one word, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// Anonymous memory keeps growing.
    Leak,
    /// Shared memory keeps growing.
    Shared,
    /// Mapped file pages grow.
    Mapped,
    /// Only the page cache of the watched files grows.
    Cache,
    /// Nothing grows.
    Flat,
    /// The run was too short to tell, or the kernel killed a process before it could be told.
    Unknown,
}

impl Word {
    /// As it is written in JSON and in tests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Shared => "shared",
            Self::Mapped => "mapped",
            Self::Cache => "cache",
            Self::Flat => "flat",
            Self::Unknown => "unknown",
        }
    }
}

/// What is known besides the samples.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The room left, and what decided it.
    pub room: Room,
    /// The size of the watched files on disk.
    pub files_bytes: u64,
    /// How much of them came into the page cache while they were watched.
    pub files_rise: u64,
    /// How much of them one process came to have mapped, as far as that was looked at.
    pub mapped_rise: u64,
    /// Who ended the run or a part of it, if anybody did.
    pub killed: Option<Killed>,
    /// What several processes share.
    pub sharing: Sharing,
    /// Growth of a curve up to this many bytes is none; `None` for 4 MiB or 2 % of its level.
    pub tolerance: Option<u64>,
}

/// What is known about pages that several processes share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sharing {
    /// There was one process at a time.
    Alone,
    /// They count once, but for what came since they were last told apart.
    Told {
        /// When that was, in seconds since the start.
        at: f64,
        /// How much of the largest figure of mapped pages may count more than once.
        doubt: u64,
    },
    /// The kernel did not tell, so they count once for each process.
    Untold,
}

/// What the samples mean.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// In one word.
    pub word: Word,
    /// What grows, how fast, whether the kernel can take it back, when it meets the limit.
    pub sentence: String,
    /// What to do.
    pub advice: String,
    /// How each kind went; `None` when the run was too short, or nothing is known about it.
    pub growth: Growth,
    /// When the limit that applies here would be met at this rate.
    pub limit_in: Option<Duration>,
}

/// How each kind of memory went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Growth {
    /// Anonymous memory.
    pub anon: Option<Trend>,
    /// Shared memory.
    pub shmem: Option<Trend>,
    /// Mapped file pages.
    pub file: Option<Trend>,
    /// Page cache of the watched files.
    pub cache: Option<Trend>,
}

impl Verdict {
    /// Whether nothing grew.
    pub fn is_flat(&self) -> bool {
        self.word == Word::Flat
    }
}

/// Below this a file that came in whole is no finding.
pub(super) const WHOLE_FILE: u64 = 64 << 20;

/// Judges a run.
pub fn judge(samples: &[Sample], around: &Surroundings) -> Verdict {
    let curve = |pick: &dyn Fn(&Sample) -> Option<u64>| {
        let points: Vec<_> =
            samples.iter().filter_map(|sample| Some((sample.seconds, pick(sample)?))).collect();
        let mut levels: Vec<_> = points.iter().map(|point| point.1).collect();
        levels.sort_unstable();
        let level = levels.get(levels.len() / 2).copied().unwrap_or(0);
        trend(&points, around.tolerance.unwrap_or_else(|| (level / 50).max(4 << 20)))
    };
    let growth = Growth {
        anon: curve(&|sample| Some(sample.anon)),
        shmem: curve(&|sample| Some(sample.shmem)),
        file: curve(&|sample| Some(sample.file)),
        cache: curve(&|sample| sample.cache),
    };
    let grows = |trend: Option<Trend>| trend.is_some_and(|trend| trend.shape == Shape::Growing);
    let whole = |rise: u64| {
        around.files_bytes >= WHOLE_FILE
            && rise >= around.files_bytes / 5 * 4
            && rise >= around.tolerance.unwrap_or(0)
    };
    let out_of_memory = around.killed.as_ref().is_some_and(|killed| killed.by.is_out_of_memory());
    let word = if growth.anon.is_none() {
        Word::Unknown
    } else if grows(growth.anon) {
        Word::Leak
    } else if grows(growth.shmem) {
        Word::Shared
    } else if grows(growth.file) || whole(around.mapped_rise) {
        Word::Mapped
    } else if grows(growth.cache) || whole(around.files_rise) {
        Word::Cache
    } else if out_of_memory {
        // The process that filled the memory is gone, often between two samples. The rest says nothing of it.
        Word::Unknown
    } else {
        Word::Flat
    };
    let rate = match word {
        // What was killed at the limit does not grow towards it any more.
        _ if out_of_memory => None,
        Word::Leak => growth.anon,
        Word::Shared => growth.shmem,
        _ => None,
    };
    let limit_in = rate
        .filter(|trend| trend.per_second >= 1.0)
        .map(|trend| Duration::from_secs_f64((around.room.bytes as f64 / trend.per_second).min(1e12)));
    Verdict {
        word,
        sentence: words::sentence(word, &growth, samples, around, limit_in),
        advice: words::advice(word, around.killed.as_ref()),
        growth,
        limit_in,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::cgroup::Because;
    use crate::meter::ending::{By, Who};

    const MIB: u64 = 1 << 20;

    fn around() -> Surroundings {
        Surroundings {
            room: Room { bytes: 1000 * MIB, because: Because::Machine },
            files_bytes: 0,
            files_rise: 0,
            mapped_rise: 0,
            killed: None,
            sharing: Sharing::Alone,
            tolerance: None,
        }
    }

    /// Ten seconds of samples, in MiB.
    fn run(make: impl Fn(f64) -> [f64; 4]) -> Vec<Sample> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = |mib: f64| (mib * MIB as f64) as u64;
        (0..100)
            .map(|index| {
                let seconds = f64::from(index) / 10.0;
                let [anon, shmem, file, cache] = make(seconds).map(bytes);
                Sample { seconds, processes: 1, anon, shmem, file, cache: Some(cache), ..Sample::default() }
            })
            .collect()
    }

    fn word(make: impl Fn(f64) -> [f64; 4]) -> Word {
        judge(&run(make), &around()).word
    }

    #[test]
    fn the_worst_kind_that_grows_is_the_verdict() {
        let up = |t: f64| 50.0 + 20.0 * t;
        assert_eq!(word(|t| [up(t), up(t), up(t), up(t)]), Word::Leak);
        assert_eq!(word(|t| [100.0, up(t), up(t), up(t)]), Word::Shared);
        assert_eq!(word(|t| [100.0, 0.0, up(t), up(t)]), Word::Mapped);
        assert_eq!(word(|t| [100.0, 0.0, 30.0, up(t)]), Word::Cache);
        assert_eq!(word(|_| [100.0, 0.0, 30.0, 70.0]), Word::Flat);
        assert!(Word::Leak < Word::Shared && Word::Cache < Word::Flat);
    }

    #[test]
    fn too_short_is_unknown_however_steep() {
        let short: Vec<_> = run(|t| [5000.0 * t, 0.0, 0.0, 0.0]).into_iter().take(12).collect();
        let verdict = judge(&short, &around());
        assert_eq!(verdict.word, Word::Unknown);
        assert!(verdict.sentence.contains("too short"), "{}", verdict.sentence);
        assert_eq!(judge(&[], &around()).word, Word::Unknown);
        let one = judge(&short[..1], &around()).sentence;
        assert!(one.contains("too short to tell: 1 sample in 0.0 s."), "{one}");
    }

    #[test]
    fn a_file_mapped_whole_is_mapped_although_it_stopped_growing() {
        let samples = run(|t| [100.0, 0.0, 30.0 + 900.0 * (t / 1.5).min(1.0), 900.0]);
        let known = Surroundings { files_bytes: 900 * MIB, ..around() };
        assert_eq!(judge(&samples, &known).word, Word::Flat, "something else was mapped, libraries perhaps");
        let mapped = Surroundings { mapped_rise: 890 * MIB, ..known.clone() };
        assert_eq!(judge(&samples, &mapped).word, Word::Mapped);
        let window = Surroundings { mapped_rise: 500 * MIB, ..known };
        assert_eq!(judge(&samples, &window).word, Word::Flat, "a bounded window of a larger file");
    }

    #[test]
    fn a_file_read_whole_is_cache_unless_it_was_cached_before() {
        let samples = run(|_| [100.0, 0.0, 30.0, 900.0]);
        let cold = Surroundings { files_bytes: 900 * MIB, files_rise: 890 * MIB, ..around() };
        assert_eq!(judge(&samples, &cold).word, Word::Cache);
        let warm = Surroundings { files_bytes: 900 * MIB, files_rise: 0, ..around() };
        assert_eq!(judge(&samples, &warm).word, Word::Flat);
    }

    #[test]
    fn the_time_to_the_limit_is_room_over_rate() {
        let verdict = judge(&run(|t| [100.0 + 10.0 * t, 0.0, 0.0, 0.0]), &around());
        let seconds = verdict.limit_in.unwrap().as_secs_f64();
        assert!((95.0..105.0).contains(&seconds), "1000 MiB at 10 MiB/s, not {seconds}");
        assert_eq!(judge(&run(|_| [100.0, 0.0, 0.0, 0.0]), &around()).limit_in, None);
    }

    #[test]
    fn the_tolerance_decides_what_counts() {
        let samples = run(|t| [100.0 + 2.0 * t, 0.0, 0.0, 0.0]);
        assert_eq!(judge(&samples, &around()).word, Word::Leak);
        let lenient = Surroundings { tolerance: Some(64 * MIB), ..around() };
        assert_eq!(judge(&samples, &lenient).word, Word::Flat);
    }

    #[test]
    fn the_words_name_the_number_the_rate_and_what_the_kernel_can_do() {
        let leak = judge(&run(|t| [100.0 + 10.0 * t, 0.0, 0.0, 0.0]), &around());
        assert_eq!(
            leak.sentence,
            "Anonymous memory (RssAnon, the program's own heap) kept growing by 10 MiB/s, and reached 199 MiB. \
             The kernel cannot take it back. At this rate it fills this machine's available \
             memory (1000 MiB left) in 1 min 40 s."
        );
        let mapped = judge(&run(|t| [100.0, 0.0, 30.0 + 50.0 * t, 0.0]), &around());
        assert!(mapped.sentence.contains("RssFile") && mapped.sentence.contains("takes them back"));
        assert!(mapped.advice.contains("lowtide.open"));
    }

    #[test]
    fn who_was_killed_by_what_comes_first_and_nothing_is_foretold_any_more() {
        let limit = By::Limit { path: "/sys/fs/cgroup/job".into(), limit: 200 * MIB };
        let killed = Killed { who: Who::Command { pid: 42 }, by: limit.clone() };
        let samples = run(|t| [100.0 + 10.0 * t, 0.0, 0.0, 0.0]);
        let verdict = judge(&samples, &Surroundings { killed: Some(killed), ..around() });
        assert_eq!(verdict.word, Word::Leak);
        let wanted = "The kernel killed the command (process 42) with SIGKILL for want of memory: control group \
                      /sys/fs/cgroup/job had reached its limit of 200 MiB. Anonymous memory (RssAnon, the \
                      program's own heap) kept growing by 10 MiB/s, and reached 199 MiB. The kernel cannot take \
                      it back.";
        assert_eq!(verdict.sentence, wanted);
        assert_eq!(verdict.limit_in, None);
        let worker = Who::Probably { pid: 43, name: "python worker.py".into(), rss: 150 * MIB };
        let killed = Killed { who: worker, by: limit };
        let verdict = judge(&samples[..5], &Surroundings { killed: Some(killed), ..around() });
        assert_eq!(verdict.word, Word::Unknown);
        assert!(verdict.sentence.starts_with(
            "The kernel killed a process with SIGKILL for want of memory, by its size probably process 43 \
             (python worker.py, 150 MiB): control group /sys/fs/cgroup/job had reached its limit of 200 MiB."
        ));
        assert!(verdict.advice.contains("limit"), "{}", verdict.advice);
        let by = By::Signal { number: 9, counted: true };
        let killed = Killed { who: Who::Command { pid: 42 }, by };
        let verdict = judge(&samples, &Surroundings { killed: Some(killed), ..around() });
        assert!(
            verdict
                .sentence
                .starts_with("The command (process 42) was ended by SIGKILL. The kernel counted no")
        );
        assert!(verdict.limit_in.is_some());
    }

    #[test]
    fn a_run_with_a_kill_for_want_of_memory_is_never_flat() {
        let samples = run(|_| [100.0, 0.0, 30.0, 70.0]);
        let after = |by| {
            let killed = Some(Killed { who: Who::Someone, by });
            judge(&samples, &Surroundings { killed, tolerance: Some(1 << 40), ..around() })
        };
        for by in [By::Machine, By::Limit { path: "/sys/fs/cgroup/job".into(), limit: 200 * MIB }] {
            let verdict = after(by);
            assert_eq!(verdict.word, Word::Unknown);
            assert!(verdict.sentence.starts_with("The kernel killed a process"), "{}", verdict.sentence);
            assert!(
                verdict.sentence.ends_with(
                    "What was seen of the rest stayed flat (anonymous around 100 MiB, mapped around 30 MiB), which \
                     does not tell how the killed process grew."
                ),
                "{}",
                verdict.sentence
            );
            assert!(verdict.advice.starts_with("Raise the limit"), "{}", verdict.advice);
        }
        assert_eq!(after(By::Signal { number: 9, counted: true }).word, Word::Flat, "somebody's signal");
    }

    #[test]
    fn what_may_count_twice_is_said_where_it_is_much() {
        let samples = run(|t| [100.0, 0.0, 30.0 + 50.0 * t, 0.0]);
        let words = |sharing| judge(&samples, &Surroundings { sharing, ..around() }).sentence;
        assert!(!words(Sharing::Told { at: 1.0, doubt: 10 * MIB }).contains("share"));
        let doubtful = words(Sharing::Told { at: 1.2, doubt: 400 * MIB });
        assert!(
            doubtful.contains("Up to 400 MiB") && doubtful.contains("1.2 s after the start"),
            "{doubtful}"
        );
        assert!(words(Sharing::Untold).contains("count once for each"));
    }
}
