//! What this kernel and the filesystem under a file can do: what `auto` and the stores fall back from.

use crate::bench::machine::Disk;
use lowtide::store::Engine;
use lowtide::{Array, Bill, Result, Visit, sys};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;

/// What a pass takes in an object store, in each of these orders: nothing where it is in files.
pub(super) fn bills(
    array: &Array,
    orders: &[(&'static str, Visit)],
) -> Result<Vec<(&'static str, String, Bill)>> {
    let one = |&(name, visit): &(&'static str, Visit)| {
        let bill = array.bill(visit)?;
        Ok(bill.map(|bill| (name, format!("{name}: {}", bill.words()), bill)))
    };
    orders.iter().filter_map(|order| one(order).transpose()).collect()
}

pub(super) fn bills_json(bills: &[(&'static str, String, Bill)]) -> Value {
    let one = |(name, _, bill): &(&'static str, String, Bill)| {
        let numbers =
            json!({ "requests": bill.requests.ceil(), "bytes": bill.bytes, "dollars": bill.dollars() });
        ((*name).to_owned(), numbers)
    };
    if bills.is_empty() { Value::Null } else { Value::Object(bills.iter().map(one).collect()) }
}

/// What can be done here.
#[derive(Debug)]
pub(super) struct Here {
    kernel: Option<String>,
    filesystem: Option<String>,
    io_uring: bool,
    /// What unbuffered reads are aligned to, where there are any.
    direct: Option<usize>,
    dontcache: bool,
    cachestat: Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Yes,
    No,
    /// The kernel tells, but only the file's owner.
    NotUs,
}

impl Here {
    /// The kernel, and the filesystem under an array; of many files, under the first.
    pub(super) fn at(array: &Array) -> Result<Self> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        let kernel = release.ok().map(|text| text.trim().to_owned());
        if array.is_remote() {
            let (filesystem, io_uring) =
                (Some("an object store".into()), Engine::available() == Engine::Uring);
            return Ok(Self {
                kernel,
                filesystem,
                io_uring,
                direct: None,
                dontcache: false,
                cachestat: Told::No,
            });
        }
        let source = array.source()?;
        let unbuffered = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(source.path());
        Ok(Self {
            kernel,
            filesystem: Disk::under(source.path()).filesystem,
            io_uring: Engine::available() == Engine::Uring,
            direct: unbuffered.ok().and_then(|file| sys::direct_alignment(&file)),
            dontcache: sys::read_uncached(&*source, &mut [0], 0).is_ok(),
            cachestat: match sys::cached_bytes(&*source, 0, 1) {
                Ok(_) => Told::Yes,
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => Told::NotUs,
                Err(_) => Told::No,
            },
        })
    }

    /// In one line.
    pub(super) fn words(&self) -> String {
        let can = |can: bool, what: &str| if can { what.to_owned() } else { format!("no {what}") };
        let direct =
            self.direct.map_or_else(|| "no O_DIRECT".into(), |align| format!("O_DIRECT by {align} bytes"));
        let cachestat = match self.cachestat {
            Told::NotUs => "cachestat (for this file's owner)".into(),
            told => can(told == Told::Yes, "cachestat"),
        };
        format!(
            "Linux {} on {}: {}, {direct}, {}, {cachestat}",
            self.kernel.as_deref().unwrap_or("?"),
            self.filesystem.as_deref().unwrap_or("an unknown filesystem"),
            can(self.io_uring, "io_uring"),
            can(self.dontcache, "RWF_DONTCACHE"),
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "kernel": self.kernel,
            "filesystem": self.filesystem,
            "io_uring": self.io_uring,
            "direct_alignment": self.direct,
            "dontcache": self.dontcache,
            "cachestat": self.cachestat == Told::Yes,
        })
    }
}
