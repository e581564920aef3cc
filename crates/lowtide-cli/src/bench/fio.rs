//! The disk's own limit, as fio measures it: unbuffered reads by `io_uring` with a deep queue, which is all that
//! any reader of a cold file can hope for. The page cache is neither used nor changed, and nothing is written.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// How many files fio is given at most: their names stand in one argument.
const FILES: usize = 64;

/// What fio reads.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// `read` or `randread`.
    pub pattern: &'static str,
    /// Bytes of one read.
    pub block: u64,
    /// How many are in flight.
    pub depth: u32,
}

/// What it reached.
#[derive(Debug)]
pub struct Limit {
    pub reads: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl Job {
    /// In file order: what a disk likes best.
    pub fn sequential() -> Self {
        Self { pattern: "read", block: 1 << 20, depth: 16 }
    }

    /// One read a row, as small as the disk can.
    pub fn random(row: u64, disk_block: Option<u64>) -> Self {
        Self {
            pattern: "randread",
            block: row.next_multiple_of(disk_block.unwrap_or(4096).max(512)),
            depth: 64,
        }
    }

    /// Runs fio; the error is a note for people.
    pub fn run(self, paths: &[PathBuf], seconds: f64) -> Result<Limit, String> {
        // A colon separates two names. Some files stand for all where there are many.
        let names: Option<Vec<_>> = paths.iter().take(FILES).map(|path| path.to_str()).collect();
        let names = names.ok_or("fio cannot be given a name that is not UTF-8")?;
        let name = names.iter().map(|name| name.replace(':', "\\:")).collect::<Vec<_>>().join(":");
        let output = Command::new("fio")
            .args([
                "--name=limit",
                "--readonly",
                "--allow_file_create=0",
                "--invalidate=0",
                "--fadvise_hint=0",
            ])
            .args([
                "--direct=1",
                "--ioengine=io_uring",
                "--norandommap",
                "--time_based",
                "--output-format=json",
            ])
            .arg(format!("--filename={name}"))
            .arg(format!("--rw={}", self.pattern))
            .arg(format!("--bs={}", self.block))
            .arg(format!("--iodepth={}", self.depth))
            .arg(format!("--runtime={:.0}ms", seconds * 1e3))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => {
                    "fio is not installed: without it the disk's own limit is not known".to_owned()
                }
                _ => format!("fio cannot be started: {e}"),
            })?;
        parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("fio could not measure the disk: {}", said.lines().next().unwrap_or("it did not say why"))
        })
    }
}

/// fio's answer: warnings may stand before it.
fn parse(text: &str) -> Option<Limit> {
    let answer: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = answer["jobs"].get(0).filter(|job| job["error"] == 0)?;
    let limit = Limit {
        reads: job["read"]["total_ios"].as_u64()?,
        bytes: job["read"]["io_bytes"].as_u64()?,
        seconds: job["read"]["runtime"].as_f64()? / 1e3,
    };
    (limit.reads > 0 && limit.seconds > 0.0).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_found_behind_warnings_and_errors_are_none() {
        let read = r#""read": {"total_ios": 10, "io_bytes": 40960, "runtime": 500}"#;
        let limit = parse(&format!("fio: a warning\n{{\"jobs\": [{{\"error\": 0, {read}}}]}}")).unwrap();
        assert_eq!((limit.reads, limit.bytes), (10, 40960));
        assert!((limit.seconds - 0.5).abs() < 1e-9);
        assert!(parse(&format!("{{\"jobs\": [{{\"error\": 22, {read}}}]}}")).is_none());
        for text in ["", "{", "fio: failed", "{\"jobs\": []}"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_row_is_read_in_whole_blocks() {
        for (row, block, read) in
            [(1, Some(512), 512), (513, Some(512), 1024), (512, Some(4096), 4096), (5000, None, 8192)]
        {
            assert_eq!(Job::random(row, block).block, read);
        }
    }
}
