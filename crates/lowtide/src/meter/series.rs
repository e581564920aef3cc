//! What was sampled, in a fixed amount of memory however long the run.
//!
//! When the series is full, neighbours are folded into one and from then on twice as many samples make
//! one entry. The entry is the one with the larger footprint, so that a short peak stays visible.

/// How many watched files have a curve of their own; the others are counted in the sum.
pub const FILE_CURVES: usize = 12;

/// At ten samples a second the first 3½ minutes are kept whole; an hour has an entry every 3 seconds.
const CAPACITY: usize = 2048;

/// A process tree, its files and its surroundings at one moment. Bytes, unless the name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the start.
    pub seconds: f64,
    /// Processes alive.
    pub processes: u32,
    /// Anonymous memory of the tree: `RssAnon`; with several processes what they share counts once,
    /// where the kernel tells (`PSS`).
    pub anon: u64,
    /// Mapped file pages of the tree, counted likewise: `RssFile`.
    pub file: u64,
    /// Shared memory of the tree, counted likewise: `RssShmem`, or the watched files on a tmpfs if they
    /// are larger.
    pub shmem: u64,
    /// `VmRSS` added up over the processes, which counts shared pages once for each: what Slurm adds up.
    pub rss: u64,
    /// Proportional share of the tree, in which a page of n processes counts 1/n, as last measured;
    /// `None` where the kernel does not tell.
    pub pss: Option<u64>,
    /// Page tables.
    pub page_tables: u64,
    /// Swapped out.
    pub swap: u64,
    /// Page cache of the watched files; `None` while nothing is known about any of them.
    pub cache: Option<u64>,
    /// Page cache of the first [`FILE_CURVES`] of them.
    pub files: [Option<u64>; FILE_CURVES],
    /// What the control group uses that limits us.
    pub group: Option<u64>,
    /// The machine's `MemAvailable`.
    pub available: Option<u64>,
    /// Faults that had to wait for the disk, since the processes started.
    pub major_faults: u64,
    /// Bytes read from disk, since the processes started.
    pub read_bytes: u64,
    /// Processor time used, since the processes started, in seconds.
    pub cpu_seconds: f64,
    /// Microseconds that some task of the machine waited for memory since boot (PSI).
    pub pressure_us: Option<u64>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            seconds: 0.0,
            processes: 0,
            anon: 0,
            file: 0,
            shmem: 0,
            rss: 0,
            pss: None,
            page_tables: 0,
            swap: 0,
            cache: None,
            files: [None; FILE_CURVES],
            group: None,
            available: None,
            major_faults: 0,
            read_bytes: 0,
            cpu_seconds: 0.0,
            pressure_us: None,
        }
    }
}

impl Sample {
    /// Everything in memory because of this tree. Mapped pages are page cache too, so the cache counts
    /// as far as it exceeds them.
    pub fn footprint(&self) -> u64 {
        self.anon + self.shmem + self.file.max(self.cache.unwrap_or(0))
    }
}

/// Samples in order of time.
#[derive(Clone, Debug)]
pub struct Series {
    entries: Vec<Sample>,
    /// So many samples make one entry.
    stride: u32,
    /// The entry being made, and how many samples are in it.
    open: Option<(Sample, u32)>,
}

impl Default for Series {
    fn default() -> Self {
        Self { entries: Vec::with_capacity(CAPACITY), stride: 1, open: None }
    }
}

impl Series {
    /// Adds a sample; never allocates.
    pub fn push(&mut self, sample: &Sample) {
        let (kept, count) = match self.open.take() {
            Some((kept, count)) => (larger(&kept, sample), count + 1),
            None => (*sample, 1),
        };
        if count < self.stride {
            self.open = Some((kept, count));
            return;
        }
        if self.entries.len() == CAPACITY {
            for index in 0..CAPACITY / 2 {
                self.entries[index] = larger(&self.entries[2 * index], &self.entries[2 * index + 1]);
            }
            self.entries.truncate(CAPACITY / 2);
            self.stride *= 2;
        }
        self.entries.push(kept);
    }

    /// The entries that are complete.
    pub fn entries(&self) -> &[Sample] {
        &self.entries
    }

    /// All entries, the last one as it is.
    pub fn finish(mut self) -> Vec<Sample> {
        self.entries.extend(self.open.map(|(sample, _)| sample));
        self.entries
    }
}

fn larger(a: &Sample, b: &Sample) -> Sample {
    if b.footprint() > a.footprint() { *b } else { *a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_stays_small_in_order_and_keeps_its_peak() {
        let mut series = Series::default();
        for index in 0..1_000_000_u32 {
            let anon = if index == 777_777 { 99_999 } else { u64::from(index % 100) };
            series.push(&Sample { seconds: f64::from(index), anon, ..Sample::default() });
        }
        assert!(series.entries().len() <= CAPACITY && series.entries().len() >= CAPACITY / 4);
        let all = series.finish();
        assert!(all.is_sorted_by(|a, b| a.seconds < b.seconds));
        assert!(all.iter().any(|sample| sample.anon == 99_999), "the peak was folded away");
        assert!(all[all.len() - 1].seconds > 998_000.0);
    }

    #[test]
    fn mapped_pages_and_their_cache_count_once() {
        let sample = Sample { anon: 1, shmem: 2, file: 40, cache: Some(100), ..Sample::default() };
        assert_eq!(sample.footprint(), 103);
        assert_eq!(Sample { cache: None, ..sample }.footprint(), 43);
    }
}
