//! A run that is over: its samples, its verdict, and the two files that can be made of it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::cache::Resident;
use super::cgroup::Level;
use super::ending::{By, Ended, Killed, Who, signal_name};
use super::json::Json;
use super::sampler::{Peaks, Sampler};
use super::series::{FILE_CURVES, Sample};
use super::tree::Member;
use super::verdict::{Sharing, Surroundings, Verdict, judge};
use crate::error::{Error, Result};

/// The page that the data is put into; it asks the network for nothing.
const PAGE: &str = include_str!("report.html");
/// The largest processes are listed, the rest is a number.
const PROCESSES: usize = 100;

/// What was watched, and what came of it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The command and its arguments, or what was watched instead.
    pub command: Vec<String>,
    /// How the command ended. `None` if it was not ours.
    pub ended: Option<Ended>,
    /// Who ended it or one of its processes, if anybody did.
    pub killed: Option<Killed>,
    /// The samples, folded where the run was long.
    pub samples: Vec<Sample>,
    /// The largest values, at full rate.
    pub peaks: Peaks,
    /// What it means.
    pub verdict: Verdict,
    /// How long it was watched.
    pub elapsed: Duration,
    /// How many times it was looked at.
    pub taken: u64,
    /// Processor time that looking cost.
    pub cost: Duration,
    processes: Vec<Member>,
    processes_seen: u64,
    shares_known: bool,
    shares_at: Option<f64>,
    files: Vec<FileRow>,
    limits: Vec<(String, u64)>,
    group: Option<Level>,
    machine: String,
    at: SystemTime,
}

#[derive(Clone, Debug)]
struct FileRow {
    path: PathBuf,
    size: u64,
    first: Option<u64>,
    last: Resident,
    peak: u64,
    mapped: Option<u64>,
}

impl Recording {
    /// Ends a run. Growth of up to `tolerance` bytes counts as none; `None` leaves that to the verdict.
    pub fn new(
        mut sampler: Sampler,
        command: Vec<String>,
        ended: Option<Ended>,
        tolerance: Option<u64>,
    ) -> Self {
        let (cost, elapsed) = (sampler.cost(), sampler.elapsed());
        sampler.sample_last();
        let killed = sampler.killed(ended);
        let surroundings = Surroundings { killed: killed.clone(), ..surroundings(&sampler, tolerance) };
        let mut processes: Vec<_> = sampler.tree().members().copied().collect();
        processes.sort_by_key(|member| std::cmp::Reverse(member.peak_rss));
        processes.truncate(PROCESSES);
        let files = sampler.files().list().iter().map(|file| FileRow {
            path: file.path.clone(),
            size: file.size,
            first: file.first,
            last: file.now,
            peak: file.peak,
            mapped: file.mapped_peak,
        });
        let mut limits = Vec::new();
        let group = sampler.limit().and_then(Level::again);
        if let Some((level, limit)) = group.as_ref().and_then(|level| Some((level, level.limit?))) {
            limits.push((format!("limit of control group {}", level.path.display()), limit));
        }
        let total = super::process::Proc::open().ok().and_then(|mut proc| proc.total());
        limits.extend(total.map(|bytes| ("memory of this machine".to_owned(), bytes)));
        let mut recording = Self {
            command,
            ended,
            killed,
            peaks: sampler.peaks(),
            verdict: judge(&[], &surroundings),
            elapsed,
            taken: sampler.taken(),
            cost,
            processes,
            processes_seen: sampler.tree().seen,
            shares_known: sampler.tree().shares_known,
            shares_at: sampler.tree().shares_at,
            files: files.collect(),
            limits,
            group,
            machine: machine(),
            at: SystemTime::now(),
            samples: Vec::new(),
        };
        recording.samples = sampler.into_series();
        recording.verdict = judge(&recording.samples, &surroundings);
        recording
    }

    /// The verdict if the run ended now.
    pub fn so_far(sampler: &Sampler) -> Verdict {
        judge(sampler.series(), &surroundings(sampler, None))
    }

    /// The nearest limit of a control group, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.group.as_ref()?.limit
    }

    /// What looking cost, as a part of one core.
    pub fn cost_of_a_core(&self) -> f64 {
        self.cost.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The whole run as JSON, one object a sample.
    pub fn to_json(&self) -> String {
        let samples = self.samples.iter().map(sample_object);
        let mut pairs = self.summary();
        pairs.push(("samples", samples.collect()));
        Json::Object(pairs).to_string()
    }

    /// The run as one self-contained page.
    pub fn to_html(&self) -> String {
        let mut pairs = self.summary();
        pairs.push(("columns", self.columns()));
        pairs.push(("machine", self.machine.as_str().into()));
        let title = self.command.join(" ");
        // The data comes last: nothing in it is looked through again.
        PAGE.replace("{{WORD}}", self.verdict.word.as_str())
            .replace("{{TITLE}}", &escape(&title))
            .replace("{{SENTENCE}}", &escape(&self.verdict.sentence))
            .replace("{{ADVICE}}", &escape(&self.verdict.advice))
            .replacen("{{DATA}}", &Json::Object(pairs).to_string(), 1)
    }

    /// Writes [`to_json`](Self::to_json) to a file.
    pub fn save_json(&self, path: &Path) -> Result<()> {
        save(path, (self.to_json() + "\n").as_bytes())
    }

    /// Writes [`to_html`](Self::to_html) to a file.
    pub fn save_html(&self, path: &Path) -> Result<()> {
        save(path, self.to_html().as_bytes())
    }

    fn summary(&self) -> Vec<(&'static str, Json)> {
        let growth = &self.verdict.growth;
        let kinds =
            [("anon", growth.anon), ("shmem", growth.shmem), ("file", growth.file), ("cache", growth.cache)];
        let rates = kinds.map(|(kind, trend)| (kind, Json::from(trend.map(|trend| trend.per_second))));
        let intervals = kinds.map(|(kind, trend)| {
            (kind, trend.map_or(Json::Null, |trend| [trend.low, trend.high].into_iter().collect()))
        });
        let limits = self.limits.iter().map(|(label, bytes)| {
            Json::Object(vec![("label", label.as_str().into()), ("bytes", (*bytes).into())])
        });
        let group = self.group.as_ref().map_or(Json::Null, |level| {
            Json::Object(vec![
                ("path", level.path.to_string_lossy().as_ref().into()),
                ("limit_bytes", level.limit.into()),
                ("usage_bytes", level.usage.into()),
                ("reclaimable_bytes", level.reclaimable.into()),
                ("peak_bytes", level.peak.into()),
            ])
        });
        let ended = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        vec![
            ("version", 1_u64.into()),
            ("verdict", self.verdict.word.as_str().into()),
            ("sentence", self.verdict.sentence.as_str().into()),
            ("advice", self.verdict.advice.as_str().into()),
            ("command", self.command.iter().map(String::as_str).collect()),
            ("exit_code", self.ended.map(|ended| f64::from(ended.exit.code())).into()),
            ("killed", self.killed.as_ref().map_or(Json::Null, killed_object)),
            ("ended_at", ended.as_secs_f64().into()),
            ("seconds", self.elapsed.as_secs_f64().into()),
            ("peak_anon_bytes", self.peaks.anon.into()),
            ("peak_file_bytes", self.peaks.file.into()),
            ("peak_shmem_bytes", self.peaks.shmem.into()),
            ("peak_cache_bytes", self.peaks.cache.into()),
            ("peak_rss_bytes", self.peaks.rss.into()),
            ("peak_processes", u64::from(self.peaks.processes).into()),
            ("growth_bytes_per_second", Json::Object(rates.into())),
            ("growth_interval", Json::Object(intervals.into())),
            ("limit_in_seconds", self.verdict.limit_in.map(|time| time.as_secs_f64()).into()),
            ("processes", self.processes.iter().map(process_object).collect()),
            ("processes_seen", self.processes_seen.into()),
            ("shares_known", Json::Bool(self.shares_known)),
            ("shares_measured_at", self.shares_at.into()),
            ("peak_file_doubt_bytes", self.peaks.file_doubt.into()),
            ("files", self.files.iter().map(FileRow::object).collect()),
            ("limits", limits.collect()),
            ("cgroup", group),
            ("samples_taken", self.taken.into()),
            ("watching_cpu_seconds", self.cost.as_secs_f64().into()),
        ]
    }

    fn columns(&self) -> Json {
        let whole = |pick: fn(&Sample) -> u64| self.samples.iter().map(pick).collect::<Json>();
        let curves = (0..FILE_CURVES.min(self.files.len()))
            .map(|file| self.samples.iter().map(|sample| sample.files[file]).collect::<Json>());
        Json::Object(vec![
            ("seconds", self.samples.iter().map(|sample| sample.seconds).collect()),
            ("anon", whole(|sample| sample.anon)),
            ("shmem", whole(|sample| sample.shmem)),
            ("file", whole(|sample| sample.file)),
            ("cache", self.samples.iter().map(|sample| sample.cache).collect()),
            ("rss", whole(|sample| sample.rss)),
            ("pss", self.samples.iter().map(|sample| sample.pss).collect()),
            ("processes", whole(|sample| u64::from(sample.processes))),
            ("read", whole(|sample| sample.read_bytes)),
            ("faults", whole(|sample| sample.major_faults)),
            ("files", Json::List(curves.collect())),
        ])
    }
}

fn surroundings(sampler: &Sampler, tolerance: Option<u64>) -> Surroundings {
    let on_disk = || sampler.files().on_disk();
    Surroundings {
        room: sampler.room().clone(),
        files_bytes: on_disk().map(|file| file.size).sum(),
        files_rise: on_disk().map(super::files::Watched::rise).sum(),
        mapped_rise: on_disk().map(super::files::Watched::mapped_rise).sum(),
        killed: None,
        sharing: sharing(sampler),
        tolerance,
    }
}

fn sharing(sampler: &Sampler) -> Sharing {
    let peaks = sampler.peaks();
    match sampler.tree().shares_at {
        _ if peaks.processes <= 1 => Sharing::Alone,
        Some(at) if sampler.tree().shares_known => Sharing::Told { at, doubt: peaks.file_doubt },
        _ => Sharing::Untold,
    }
}

fn killed_object(killed: &Killed) -> Json {
    let (pid, command) = match &killed.who {
        Who::Command { pid } => (Some(*pid), None),
        Who::Probably { pid, name, .. } => (Some(*pid), Some(name.as_str())),
        Who::Someone => (None, None),
    };
    let (by, number, group) = match &killed.by {
        By::Limit { path, limit } => ("cgroup limit", 9, Some((path, *limit))),
        By::Machine => ("machine out of memory", 9, None),
        By::Signal { number, .. } => ("signal", *number, None),
    };
    Json::Object(vec![
        ("by", by.into()),
        ("signal", signal_name(number).as_str().into()),
        ("out_of_memory", Json::Bool(killed.by.is_out_of_memory())),
        ("is_the_command", Json::Bool(matches!(killed.who, Who::Command { .. }))),
        ("pid", pid.map(u64::from).into()),
        ("command", command.into()),
        ("cgroup", group.as_ref().map_or(Json::Null, |(path, _)| path.to_string_lossy().as_ref().into())),
        ("limit_bytes", group.map(|(_, limit)| limit).into()),
    ])
}

impl FileRow {
    fn object(&self) -> Json {
        let reason = match self.last {
            Resident::Bytes(_) => None,
            Resident::Unknown(reason) => Some(reason),
        };
        Json::Object(vec![
            ("path", self.path.to_string_lossy().as_ref().into()),
            ("size_bytes", self.size.into()),
            ("cache_first_bytes", self.first.into()),
            ("cache_last_bytes", self.last.bytes().into()),
            ("cache_peak_bytes", self.first.map(|_| self.peak).into()),
            ("mapped_peak_bytes", self.mapped.into()),
            ("unknown", reason.into()),
        ])
    }
}

fn process_object(member: &Member) -> Json {
    Json::Object(vec![
        ("pid", u64::from(member.last.pid).into()),
        ("parent", u64::from(member.last.parent).into()),
        ("command", member.name().as_str().into()),
        ("first_seen", member.first_seen.into()),
        ("last_seen", member.last_seen.into()),
        ("peak_anon_bytes", member.peak_anon.into()),
        ("peak_file_bytes", member.peak_file.into()),
        ("peak_shmem_bytes", member.peak_shmem.into()),
        ("peak_rss_bytes", member.peak_rss.into()),
        ("page_table_bytes", member.last.page_tables.into()),
        ("major_faults", member.last.major_faults.into()),
        ("read_bytes", member.read_bytes.into()),
    ])
}

fn sample_object(sample: &Sample) -> Json {
    Json::Object(vec![
        ("seconds", sample.seconds.into()),
        ("processes", u64::from(sample.processes).into()),
        ("anon_bytes", sample.anon.into()),
        ("file_bytes", sample.file.into()),
        ("shmem_bytes", sample.shmem.into()),
        ("rss_bytes", sample.rss.into()),
        ("pss_bytes", sample.pss.into()),
        ("page_table_bytes", sample.page_tables.into()),
        ("swap_bytes", sample.swap.into()),
        ("cache_bytes", sample.cache.into()),
        ("cgroup_bytes", sample.group.into()),
        ("available_bytes", sample.available.into()),
        ("major_faults", sample.major_faults.into()),
        ("read_bytes", sample.read_bytes.into()),
        ("cpu_seconds", sample.cpu_seconds.into()),
        ("pressure_us", sample.pressure_us.into()),
    ])
}

/// What a reader of a report needs to know about the machine, and no name of it.
fn machine() -> String {
    let system = rustix::system::uname();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    format!("{} {}, {}, {cores}", text(system.sysname()), text(system.release()), text(system.machine()))
}

/// Text as it stands in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Writes to a temporary name beside `path`, syncs, renames, and syncs the folder: a reader sees the old
/// file or the whole new one.
pub fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or(OsStr::new("report")).to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // Some filesystems cannot sync a folder; the file itself is safe by now.
        let _ = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    });
    written.map_err(|source| {
        let _ = std::fs::remove_file(&temporary);
        Error::io(path, "write the report", source)
    })
}
