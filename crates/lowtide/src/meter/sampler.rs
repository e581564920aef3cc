//! Looks at a process tree again and again, cheaply.
//!
//! A tree, files and an interval come in; a [`Series`] of samples goes out. [`Sampler::sample`] never
//! allocates, and each part of it paces itself by its own processor time: what turns out dear on this
//! machine (many processes, huge files, large page tables) is done less often, so that all of it stays
//! under one per cent of one core at the default interval.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::cgroup::{self, Level, Room, Version};
use super::cpu_time;
use super::ending::{self, Counts, Ended, Killed, Who};
use super::fields::number;
use super::files::{Cached, Files};
use super::pace::Pace;
use super::process::Proc;
use super::series::{FILE_CURVES, Sample, Series};
use super::tree::{Root, Totals, Tree};
use super::verdict::WHOLE_FILE;
use crate::error::Result;

/// How often a process tree is looked at unless told otherwise.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// So few processes are looked at at two thirds of the usual rate at least: some 0.1 ms each.
const FEW: u32 = 8;
/// How often the kernel is asked what several processes share, at most,
const SHARES: Duration = Duration::from_secs(1);
/// and how often for one alone.
const SHARES_ALONE: Duration = Duration::from_secs(5);
/// Asking for the page cache of the files takes at most this part of a core,
const FILES_SHARE: f64 = 0.003;
/// and so much once, because without a first full look nothing is known about a file,
const FILES_AT_FIRST: Duration = Duration::from_millis(8);
/// and so much at the end, when nobody is disturbed any more.
const FILES_AT_LAST: Duration = Duration::from_millis(250);

/// How often new files and maps are looked for, at most.
const FINDING: Duration = Duration::from_millis(250);

/// Looks at a process tree.
#[derive(Debug)]
pub struct Sampler {
    proc: Proc,
    tree: Tree,
    files: Files,
    series: Series,
    started: Instant,
    interval: Interval,
    group: Option<Group>,
    room: Room,
    room_read: Instant,
    counts: Counts,
    cached: Cached,
    peaks: Peaks,
    latest: Sample,
    taken: u64,
    cpu: Duration,
    ticks_per_second: f64,
    tree_pace: Pace,
    files_spent: Duration,
    shares_pace: Pace,
    machine_pace: Pace,
    mapped_pace: Pace,
    /// How many times page tables were walked for the watched files.
    mapped_looks: u32,
    finding_pace: Pace,
    /// What is mapped with shared pages counted as if they were not, now and when maps were last read.
    unbounded: u64,
    unbounded_then: u64,
    begun: bool,
}

/// How often to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// Every [`INTERVAL`], less often where that would cost a noticeable part of a core.
    Auto,
    /// Exactly this often.
    Every(Duration),
}

/// The largest values at full rate, before the series folds anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Anonymous memory.
    pub anon: u64,
    /// Mapped file pages.
    pub file: u64,
    /// Shared memory.
    pub shmem: u64,
    /// Page cache of the watched files.
    pub cache: Option<u64>,
    /// RSS added up over the processes.
    pub rss: u64,
    /// Processes alive at once.
    pub processes: u32,
    /// How much of the peak of mapped file pages may be pages that count more than once.
    pub file_doubt: u64,
}

/// The control group whose limit is nearest, held open.
#[derive(Debug)]
struct Group {
    usage: File,
    level: Level,
}

impl Sampler {
    /// Prepares to look at `root` and `files`.
    pub fn new(root: Root, files: Files, interval: Interval) -> Result<Self> {
        cpu_time(); // before Linux 6.4 the first look for the clock allocates
        let mut proc = Proc::open()?;
        let (Root::Process(pid) | Root::Below(pid)) = root;
        let pid = pid.to_string();
        let tree = Tree::new(root, &mut proc);
        Ok(Self {
            tree,
            proc,
            files,
            series: Series::default(),
            started: Instant::now(),
            interval,
            group: nearest_group(&pid),
            room: cgroup::room_at(Path::new("/"), &pid),
            room_read: Instant::now(),
            counts: Counts::read(Path::new("/"), &pid),
            cached: Cached::default(),
            peaks: Peaks::default(),
            latest: Sample::default(),
            taken: 0,
            cpu: Duration::ZERO,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            tree_pace: Pace::new(INTERVAL, 0.0025),
            files_spent: Duration::ZERO,
            shares_pace: Pace::new(SHARES, 0.001),
            mapped_looks: 0,
            mapped_pace: Pace::new(Duration::from_secs(1), 0.0008),
            machine_pace: Pace::new(Duration::from_secs(1), 0.0005),
            finding_pace: Pace::new(FINDING, 0.001),
            unbounded: 0,
            unbounded_then: 0,
            // A command that we started had mapped nothing before.
            begun: matches!(root, Root::Below(_)),
        })
    }

    /// Looks once. Never allocates.
    pub fn sample(&mut self) -> &Sample {
        let begin = cpu_time();
        let seconds = self.started.elapsed().as_secs_f64();
        let totals = self.tree.sample(&mut self.proc, seconds);
        let looked = cpu_time();
        self.tree_pace.spent(looked.saturating_sub(begin));
        if self.shares_are_due(&totals) {
            self.tree.measure_shares(&mut self.proc, seconds);
            self.shares_pace.spent(cpu_time().saturating_sub(looked));
        }
        let allowed = FILES_AT_FIRST + self.started.elapsed().mul_f64(FILES_SHARE);
        self.measure_files(allowed.saturating_sub(self.files_spent));
        let (file, shmem) = self.counted_once(&totals);
        self.unbounded = totals.file;
        let before = self.latest;
        let (available, pressure_us) = if self.machine_pace.is_due() {
            let begin = cpu_time();
            let machine = (self.proc.available(), self.proc.pressure());
            self.machine_pace.spent(cpu_time().saturating_sub(begin));
            machine
        } else {
            (before.available, before.pressure_us)
        };
        self.latest = Sample {
            seconds,
            processes: totals.processes,
            anon: totals.anon,
            file,
            shmem: shmem.max(self.cached.in_memory),
            rss: totals.rss,
            pss: self.tree.pss,
            page_tables: totals.page_tables,
            swap: totals.swap,
            cache: self.cached.on_disk,
            files: self.file_curves(),
            group: self.group.as_ref().and_then(Group::usage),
            available,
            // A process that ends unwaited takes its counters with it; what was counted stays counted.
            major_faults: totals.major_faults.max(before.major_faults),
            read_bytes: totals.read_bytes.max(before.read_bytes),
            cpu_seconds: (totals.cpu_ticks as f64 / self.ticks_per_second).max(before.cpu_seconds),
            pressure_us,
        };
        // After the last process has gone there is nothing to say about memory.
        if totals.processes > 0 {
            // A peak that lasts may become certain.
            if self.latest.file > self.peaks.file {
                self.peaks.file_doubt = self.doubt();
            } else if self.latest.file >= self.peaks.file / 50 * 49 {
                self.peaks.file_doubt = self.peaks.file_doubt.min(self.doubt());
            }
            self.peaks.include(&self.latest);
            self.series.push(&self.latest);
            self.taken += 1;
        }
        self.cpu += cpu_time().saturating_sub(begin);
        &self.latest
    }

    /// Mapped and shared pages of the tree. What came since the shares were measured is taken for each
    /// process's own, so it is bounded by what all of them can have mapped; and one process has what it has.
    fn counted_once(&self, totals: &Totals) -> (u64, u64) {
        let [file, shmem] = totals.largest;
        match self.files.at_most() {
            Some(most) if totals.processes > 1 => {
                (totals.file.min(most.file).max(file), totals.shmem.min(most.shmem).max(shmem))
            }
            _ => (totals.file, totals.shmem),
        }
    }

    /// The kernel walks every page table for the shares, so what that will cost is known before. Several
    /// processes need a first look, or what they share counts several times; one alone can wait for it.
    fn shares_are_due(&self, totals: &Totals) -> bool {
        // Measured: 34 ns a page of a mapped file.
        const WALK: Duration = Duration::from_nanos(50);
        // Where most of what is counted may be shared, a better answer is worth more.
        const DOUBTFUL: f64 = 5.0;
        let pages = u32::try_from(totals.rss / 4096).unwrap_or(u32::MAX);
        let least = if totals.processes > 1 { SHARES } else { SHARES_ALONE };
        let share = self.shares_pace.share * if self.doubt() > self.latest.file / 2 { DOUBTFUL } else { 1.0 };
        let pause = least.max((WALK * pages).div_f64(share));
        match self.shares_pace.last {
            Some(then) => totals.processes > 0 && then.elapsed() >= pause.mul_f64(0.9),
            None => {
                totals.processes > 1
                    || (totals.processes == 1 && self.started.elapsed() >= pause.min(least * 12))
            }
        }
    }

    fn measure_files(&mut self, time: Duration) {
        if !time.is_zero() {
            let begin = cpu_time();
            self.cached = self.files.measure(time);
            self.files_spent += cpu_time().saturating_sub(begin);
        }
    }

    /// Looks a last time, with some time to spare for the files: what they end with should be exact.
    pub fn sample_last(&mut self) {
        self.measure_files(FILES_AT_LAST);
        self.peaks.cache = self.peaks.cache.max(self.cached.on_disk);
        self.sample();
    }

    /// Looks for new files and at the limits, when it is time to. May allocate.
    pub fn look_around(&mut self) {
        if self.tree.live().is_empty() {
            return;
        }
        if self.finding_pace.is_due() || self.maps_are_old() {
            let begin = cpu_time();
            self.files.find_named();
            self.files.look_at(self.tree.live().iter().map(|member| member.last.pid));
            self.unbounded_then = self.unbounded;
            if self.room_read.elapsed() > Duration::from_secs(1) {
                let pid = self.tree.live()[0].last.pid.to_string();
                self.room = cgroup::room_at(Path::new("/"), &pid);
                // A command may have moved into a group of its own.
                self.counts.include(Counts::read(Path::new("/"), &pid));
                self.room_read = Instant::now();
            }
            let spent = cpu_time().saturating_sub(begin);
            self.finding_pace.spent(spent);
            self.cpu += spent;
        }
        let begin = cpu_time();
        if self.begun {
            self.measure_mapped();
        } else {
            self.begin();
        }
        self.cpu += cpu_time().saturating_sub(begin);
    }

    /// Whether so much was mapped since maps were last read that they may be others by now.
    fn maps_are_old(&self) -> bool {
        let old = self.finding_pace.last.is_none_or(|last| last.elapsed() >= FINDING);
        old && self.unbounded > self.latest.file && self.unbounded / 3 > self.unbounded_then / 2
    }

    /// Notes what processes that were there before us have mapped already: only what comes is a rise.
    fn begin(&mut self) {
        self.begun = true;
        for place in 0..self.tree.live().len() {
            let pid = self.tree.live()[place].last.pid;
            let found = self.files.begin_with(pid);
            self.tree.looked_at(pid, found);
        }
    }

    /// How much of the files one process has mapped matters once it may be most of them, which the cheap
    /// counters tell, and again while that may be a twentieth more. So the page tables are walked a handful
    /// of times in a run, less often where that is dear.
    fn measure_mapped(&mut self) {
        const DEAR: Duration = Duration::from_millis(10);
        const AT_ONCE: u32 = 3;
        let (mut size, mut known) = (0, 0);
        for file in self.files.on_disk() {
            size += file.size;
            known += file.mapped_peak.unwrap_or(0);
        }
        let Some(most) = self.tree.live().iter().max_by_key(|member| member.mapped_at_most()) else { return };
        let (pid, possible) = (most.last.pid, most.mapped_at_most().min(size));
        if size < WHOLE_FILE
            || possible < (size / 5 * 4).max(known + size / 20)
            || (self.mapped_looks >= AT_ONCE && self.mapped_pace.cost > DEAR && !self.mapped_pace.is_due())
        {
            return;
        }
        let begin = cpu_time();
        let found = self.files.measure_mapped(pid);
        self.tree.looked_at(pid, found);
        self.mapped_looks += 1;
        self.mapped_pace.spent(cpu_time().saturating_sub(begin));
    }

    /// How much of the mapped pages counted now may count more than once: what is beyond the largest
    /// process, and beyond what was left when shared pages were last told apart.
    pub fn doubt(&self) -> u64 {
        let largest = self.tree.live().iter().map(|member| member.last.file).max().unwrap_or(0);
        self.latest.file.saturating_sub(largest.max(self.tree.pss_file))
    }

    /// How long to wait before the next sample.
    pub fn pause(&self) -> Duration {
        match self.interval {
            Interval::Every(interval) => interval,
            // Interrupts of a busy machine count as ours; a verdict still wants its samples.
            Interval::Auto if self.latest.processes <= FEW => self.tree_pace.pause().min(INTERVAL * 3 / 2),
            Interval::Auto => self.tree_pace.pause(),
        }
    }

    fn file_curves(&self) -> [Option<u64>; FILE_CURVES] {
        let list = self.files.list();
        std::array::from_fn(|index| list.get(index).and_then(|file| file.now.bytes()))
    }

    /// Everything sampled so far, folded where it got long.
    pub fn series(&self) -> &[Sample] {
        self.series.entries()
    }

    /// The last sample.
    pub fn latest(&self) -> &Sample {
        &self.latest
    }

    /// The largest values so far.
    pub fn peaks(&self) -> Peaks {
        self.peaks
    }

    /// The processes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The files.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The room that there was when a process was last alive, and what decided it.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Who ended the command or another process of the tree, if anybody did.
    pub fn killed(&self, ended: Option<Ended>) -> Option<Killed> {
        let largest = self.tree.largest_ended().map(|member| Who::Probably {
            pid: member.last.pid,
            name: member.name(),
            rss: member.last.rss(),
        });
        ending::judge(ended, largest, &self.counts, &self.counts.again(Path::new("/")))
    }

    /// The nearest limit of a control group.
    pub fn limit(&self) -> Option<&Level> {
        self.group.as_ref().map(|group| &group.level)
    }

    /// How many times it looked.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// What looking has cost: processor time of this thread.
    pub fn cost(&self) -> Duration {
        self.cpu
    }

    /// How long it has been looking.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The samples, by value.
    pub fn into_series(self) -> Vec<Sample> {
        self.series.finish()
    }
}

impl Peaks {
    fn include(&mut self, sample: &Sample) {
        self.anon = self.anon.max(sample.anon);
        self.file = self.file.max(sample.file);
        self.shmem = self.shmem.max(sample.shmem);
        self.cache = self.cache.max(sample.cache);
        self.rss = self.rss.max(sample.rss);
        self.processes = self.processes.max(sample.processes);
    }
}

impl Group {
    fn usage(&self) -> Option<u64> {
        let mut text = [0; 32];
        let length = self.usage.read_at(&mut text, 0).ok()?;
        number(&text[..length])
    }
}

/// The group with the least headroom, or without any limit the process's own.
fn nearest_group(pid: &str) -> Option<Group> {
    let levels = cgroup::levels(Path::new("/"), pid);
    let own = levels.first().cloned();
    let limited = levels.into_iter().filter(|level| level.limit.is_some());
    let level = limited.min_by_key(Level::headroom).or(own)?;
    let name = match level.version {
        Version::V1 => "memory.usage_in_bytes",
        Version::V2 => "memory.current",
    };
    Some(Group { usage: File::open(level.path.join(name)).ok()?, level })
}
