//! Where memory went: what the kernel says a process, its children and the files it reads are using.
//!
//! Numbers come in from `/proc`, from `cachestat` and from the control groups; samples, a verdict and
//! a report go out. The meter shares no code with the readers it measures: a bug there cannot hide
//! itself here.
//!
//! | file | what it knows |
//! |---|---|
//! | [`process`] | one process: heap, mapped pages, page tables, faults, bytes read |
//! | [`tree`] | a process and all that it starts |
//! | [`cache`] | the page cache of one file, or the honest answer that nobody may know |
//! | [`files`], `maps` | which files are watched, how much of each is cached, how much is mapped at the most |
//! | [`cgroup`] | the limits that apply here, and the [`room`] that is left |
//! | [`sampler`], [`series`] | all of it again and again, in a fixed amount of memory |
//! | [`ending`] | how a run ended, and whether the kernel ended it for want of memory |
//! | [`trend`], [`verdict`], [`words`] | what the samples mean: pure functions |
//! | [`recording`] | a run that is over, as JSON and as a page |
//! | [`background`] | [`Meter`]: all of it from a thread beside the work |

pub mod background;
pub mod cache;
pub mod cgroup;
pub mod ending;
mod fields;
pub mod files;
mod json;
mod maps;
mod pace;
pub mod process;
pub mod recording;
pub mod sampler;
pub mod series;
pub mod tree;
pub mod trend;
pub mod verdict;
pub mod words;

pub use background::Meter;
pub use cache::Resident;
pub use cgroup::{Room, room};
pub use ending::{Ended, Exit};
pub use files::Files;
pub use recording::{Recording, escape, save};
pub use sampler::{Interval, Sampler};
pub use series::Sample;
pub use tree::Root;
pub use verdict::{Verdict, Word};

/// Processor time of this thread.
fn cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    std::time::Duration::try_from(time).unwrap_or_default()
}
