//! How one input is read in a group of chunks: what its choice means for how much is read at once.

use super::choose::{Choice, Visit};
use super::fill::PLAN_BYTES;
use super::job::Input;
use super::lane::Lane;
use super::shares::Shares;
use super::tactics::{Gap, threads};
use super::tuning::{AHEAD_COLD, AHEAD_WARM, GROWTH, GROWTH_UNSORTED, LARGE_ROW, LEAST_SWEEP, SWEEPS};
use crate::budget::pool::Block;
use crate::error::Result;
use crate::options::{Cache, Way};
use crate::store::{Cost, WINDOWS, window_for};
use crate::sys;
use std::sync::Arc;

/// How one input is read in a group: asked once, so that all of the group sees the same answer.
#[derive(Debug)]
pub(super) struct Outlook {
    pub(super) choice: Choice,
    pub(super) lane: Arc<Lane>,
    pub(super) cost: Cost,
    /// Bytes that may be mapped at once.
    pub(super) windows: u64,
    /// What is read comes from a disk and may stay in the page cache: later groups will find it there.
    pub(super) brings_in: bool,
    /// So many chunks, read at once, keep whoever reads them busy; `None` where more is always better, because
    /// they are sorted.
    enough: Option<u64>,
    /// What of the budget is for chunks.
    room: u64,
    /// Chunks are stretches of the file that come around the page cache: straight to their place, where they can.
    pub(super) straight: bool,
    /// What planning a row takes; nothing where chunks are long reads in file order.
    plan: u64,
    /// What lies between rows, where it is not wanted.
    pub(super) gap: Gap,
}

impl Outlook {
    pub(super) fn new(input: &Input, choice: Choice, visit: Visit, gap: Gap) -> Result<Self> {
        let lane = input.lane(&choice)?;
        let (cost, nature, limit) = (lane.cost(), lane.nature(), input.budget().limit());
        let windows = if choice.way.has_windows() { window_for(limit).unwrap_or(0) * WINDOWS } else { 0 };
        let sorted =
            !matches!(visit, Visit::Sequential | Visit::Random) && input.rows.row_bytes() < LARGE_ROW;
        let enough = (!sorted).then_some(match visit {
            // As much as there is room for: it takes hundreds of megabytes in flight to fill a network.
            Visit::Sequential if nature.extent.is_some() => u64::MAX,
            _ if cost.waits => AHEAD_COLD,
            Visit::Random => AHEAD_WARM,
            _ => 0,
        });
        let room = Shares::new(limit, windows, threads(&nature, cost, usize::MAX)).ahead;
        let brings_in = choice.cache == Cache::Keep && cost.waits;
        let runs = visit == Visit::Sequential && input.rows.is_dense();
        let plan = if runs { 0 } else { PLAN_BYTES };
        let straight = runs && choice.way == Way::Direct && input.as_type.is_none();
        Ok(Self { choice, lane, cost, windows, brings_in, enough, room, straight, plan, gap })
    }

    /// How many chunks of so many rows to read at once, of `sharing` inputs that share one budget; while the caller
    /// works on one group and the next is being read, `groups` is two.
    pub(super) fn most(&self, input: &Input, rows: u64, groups: u64, sharing: u64) -> u64 {
        let room = (self.room / groups).min(input.budget().available().saturating_sub(self.windows));
        let lead = if self.straight { sys::page() as u64 } else { 0 };
        let chunk = Block::cost(input.rows.bytes(rows)).saturating_add(rows * self.plan + lead).max(1);
        let most = room / sharing / chunk;
        match self.enough {
            Some(enough) => most.min(enough / chunk),
            // One row in eight is wanted of every sweep through memory: more gains nothing.
            None if !self.cost.waits || self.brings_in => {
                most.min((input.rows.span() / SWEEPS).max(LEAST_SWEEP) / chunk)
            }
            None => most,
        }
    }

    /// From one chunk, which comes at once, to all there is room for. Where the page cache may keep what is read,
    /// without steps between: the first sweep brings the whole file in.
    pub(super) fn growth(&self) -> u64 {
        match (self.enough, self.brings_in) {
            (Some(_), _) => GROWTH_UNSORTED,
            (None, true) => u64::MAX,
            (None, false) => GROWTH,
        }
    }
}
