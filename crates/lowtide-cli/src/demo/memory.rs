//! How the demo is given less memory than the file has: a control group of its own where one can be made, the
//! user's systemd where that makes one, else whatever limit there is already.

use lowtide::meter::cgroup::{Level, Version, levels};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::trial::Place;

/// What keeps the demo's processes in bounds.
#[derive(Debug)]
pub enum Cage {
    /// A control group that we made.
    Group(Group),
    /// `systemd-run`, which makes one for each process.
    Systemd(Vec<String>),
    /// Nothing of ours, and why.
    None(String),
}

impl Cage {
    /// A cage of `bytes`, where one can be had.
    pub fn new(bytes: u64) -> Self {
        match Group::make(bytes) {
            Ok(group) => Self::Group(group),
            Err(why) => match systemd(bytes) {
                Some(command) => Self::Systemd(command),
                None => Self::None(why),
            },
        }
    }

    /// Where a process runs in it.
    pub fn place(&self) -> Place<'_> {
        match self {
            Self::Group(group) => Place::Group(&group.folder),
            Self::Systemd(command) => Place::Through(command),
            Self::None(_) => Place::Here,
        }
    }
}

/// A control group with a limit of its own; it is removed with this.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
}

impl Group {
    /// Makes it; the error is for people.
    fn make(bytes: u64) -> Result<Self, String> {
        let mut why = "there is no memory controller here".to_owned();
        for level in levels(Path::new("/"), "self") {
            match Self::under(&level, bytes) {
                Ok(group) => return Ok(group),
                Err(error) => why = format!("no control group can be made here: {error}"),
            }
            // Version 1 allows groups under the own one: whoever may not make one there may not anywhere.
            if level.version == Version::V1 {
                break;
            }
        }
        Err(why)
    }

    fn under(level: &Level, bytes: u64) -> std::io::Result<Self> {
        let limit = match level.version {
            Version::V1 => "memory.limit_in_bytes",
            Version::V2 => {
                // A group that has processes itself cannot hand the controller on: one further up does.
                let handed_on = std::fs::read_to_string(level.path.join("cgroup.subtree_control"))?;
                if !handed_on.split_whitespace().any(|name| name == "memory") {
                    return Err(std::io::Error::other("the memory controller is not handed on"));
                }
                "memory.max"
            }
        };
        let folder = level.path.join(format!("lowtide-demo-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let group = Self { folder };
        std::fs::write(group.folder.join(limit), bytes.to_string())?;
        let _ = std::fs::write(group.folder.join("memory.swap.max"), "0"); // version 2, with swap
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be counted for a moment.
        for _ in 0..100 {
            match std::fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                _ => return,
            }
        }
    }
}

/// The command that runs another in a scope of the user's systemd, if it works. Whether the limit holds is
/// seen when a process runs in it.
fn systemd(bytes: u64) -> Option<Vec<String>> {
    let limit = format!("MemoryMax={bytes}");
    let words = ["systemd-run", "--user", "--scope", "--quiet", "-p", &limit, "-p", "MemorySwapMax=0", "--"];
    let command: Vec<String> = words.map(str::to_owned).into();
    let mut trial = Command::new(&command[0]);
    trial.args(&command[1..]).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    trial.status().is_ok_and(|status| status.success()).then_some(command)
}
