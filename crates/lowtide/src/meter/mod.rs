//! Where memory went: what the kernel says a process, its children and the files it reads are using.
//!
//! Numbers come in from `/proc`, from `cachestat` and from the control groups; samples, a verdict and
//! a report go out. The meter shares no code with the readers it measures: a bug there cannot hide
//! itself here.
//!
//! - [`process`]: one process: heap, mapped pages, page tables, faults, bytes read.
//! - [`cache`]: the page cache of one file, or the honest answer that nobody may know.
//! - [`cgroup`]: the limits that apply here, and the [`room`](cgroup::room) that is left.

pub mod cache;
pub mod cgroup;
mod fields;
pub mod files;
mod json;
pub mod process;
pub mod recording;
pub mod sampler;
pub mod series;
pub mod tree;
pub mod trend;
pub mod verdict;
pub mod words;

pub use cache::Resident;
pub use cgroup::{Room, room};

/// Processor time of this thread.
fn cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}
