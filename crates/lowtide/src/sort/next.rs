//! The next epoch's rows, sorted while this one's are taken.
//!
//! Whether there will be a next epoch is not known while the first one is taken: then all of the budget is for that. Who
//! has begun a second one is taken to begin a third: from then on the budget is divided between the runs that are read
//! and those that are made, and whoever ends an epoch finds the next one sorted, or nearly.

use super::distribute::{Runs, Task, distribute};
use super::plan::{SHORT, Share};
use super::{Portion, layout, needs, scratch};
use crate::engine::job::Job;
use crate::error::Result;
use crate::interrupt::Interrupt;
use crate::prefetch::{Pace, Prefetch, Produce};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of sixteen parts of the budget, so many are for the runs that are read, where others are made meanwhile.
const READ: u64 = 10;
/// And so many for those that are made.
const MADE: u64 = 6;

impl Portion {
    /// Its part of a budget.
    pub(super) fn of(self, share: Share) -> Share {
        let parts = match self {
            Self::All => return share,
            Self::Read => READ,
            Self::Made => MADE,
        };
        Share { limit: share.limit / 16 * parts, ..share }
    }
}

/// An epoch that is being sorted, and the thread that does it.
#[derive(Debug)]
pub(crate) struct NextEpoch {
    task: Arc<Task>,
    sorting: Prefetch<Sorting>,
    bytes: u64,
}

impl NextEpoch {
    /// Begins; `None` where it cannot be done well: where pieces would be short, and where the disk has no room for it.
    pub(super) fn begin(job: Job, folder: &Path) -> Option<Self> {
        let (order, layout) = layout(&job, 0, Portion::Read, Portion::Made)?;
        let task = Arc::new(Task::new(Arc::new(job), order, 0, layout));
        let bytes = needs(&task);
        if super::piece(&task) < SHORT || scratch::has_room(folder, bytes).is_err() {
            return None;
        }
        let mut sorting =
            Prefetch::new(Sorting { task: task.clone(), folder: folder.to_owned(), over: false });
        sorting.begin().then_some(Self { task, sorting, bytes })
    }

    pub(super) fn task(&self) -> &Arc<Task> {
        &self.task
    }

    /// How much space it takes on the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its runs, once all of them are there; `None` where they could not be made.
    ///
    /// # Errors
    /// That of `interrupt`.
    pub(super) fn runs(&mut self, interrupt: Interrupt<'_>) -> Result<Option<Runs>> {
        if self.sorting.is_parents() {
            return Ok(None);
        }
        match self.sorting.next(Pace::OnDemand, interrupt) {
            Some(Ok(runs)) => Ok(Some(runs)),
            // Whoever sorts it himself is told what is wrong; a signal is heard here.
            Some(Err(_)) => interrupt().map(|()| None),
            None => Ok(None),
        }
    }
}

/// Makes the runs of an epoch, once.
#[derive(Debug)]
struct Sorting {
    task: Arc<Task>,
    folder: PathBuf,
    over: bool,
}

impl Produce for Sorting {
    type Item = Runs;

    fn produce(&mut self, interrupt: Interrupt<'_>) -> Option<Result<Runs>> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let closed = || self.task.job.inputs.iter().try_for_each(|input| input.data.stop(interrupt));
        Some(Runs::new(&self.task, &self.folder).and_then(|mut runs| {
            distribute(&self.task, &mut runs, &mut |_| Ok(()), &closed)?;
            Ok(runs)
        }))
    }
}
