//! Which rows of which bytes, in which order: all that a reader needs to know, and that never changes.

use super::bill::bill;
use super::bytes::Data;
use super::choose::{Choice, Visit};
use super::fill::planned_row_bytes;
use super::lane::Lane;
use super::predict::predict;
use super::rows::Rows;
use super::shares::Shares;
use super::tactics::threads;
use super::tuning::{REMOTE_BLOCK, SORTED};
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::cast::Cast;
use crate::error::Result;
use crate::options::Access;
use crate::order::{Blocks, Mix, Mixes, Order, Part, Permutation, Sequential, Steps, Stream, Within};
use crate::store::{AsType, Cost, Nature};
use std::sync::Arc;

/// Which rows, when.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    /// In file order.
    Sequential(Sequential),
    /// Every row anywhere.
    Exact(Permutation),
    /// Whole blocks, mixed.
    Blocks(Blocks),
    /// Windows of tokens, epoch after epoch.
    Windows(Arc<Stream>),
}

impl Pass {
    pub(crate) fn order(&self) -> &dyn Order {
        match self {
            Self::Sequential(order) => order,
            Self::Exact(order) => order,
            Self::Blocks(order) => order,
            Self::Windows(order) => &**order,
        }
    }

    /// The order inside of an epoch.
    fn within(&self) -> Within {
        match self {
            Self::Sequential(_) => Within::Sequential,
            Self::Exact(_) => Within::Shuffled,
            Self::Blocks(order) => Within::Blocks(order.mix()),
            Self::Windows(order) => order.within(),
        }
    }

    pub(crate) fn visit(&self) -> Visit {
        match self.within() {
            Within::Sequential => Visit::Sequential,
            Within::Shuffled => Visit::Shuffled,
            Within::Blocks(_) => Visit::Blocks,
            Within::Draws => Visit::Random,
        }
    }

    /// The blocks of a block shuffle.
    pub(crate) fn mix(&self) -> Option<Mix> {
        match self.within() {
            Within::Blocks(mix) => Some(mix),
            _ => None,
        }
    }

    /// The order where it is read mix by mix.
    pub(crate) fn mixes(&self) -> Option<&dyn Mixes> {
        match self {
            Self::Blocks(order) => Some(order),
            Self::Windows(order) if self.mix().is_some() => Some(&**order),
            _ => None,
        }
    }
}

/// Memory for rows as the caller gets them, and how they become that.
pub(crate) type Place = (Cast, Block);

/// Rows of some bytes.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) rows: Rows,
    /// Where a pass goes through rows that were dealt: which of `rows` they are.
    pub(crate) dealt: Option<Part>,
    pub(crate) data: Arc<Data>,
    /// What the elements become as they are read; `rows` are bytes of that.
    pub(crate) as_type: Option<AsType>,
    /// What they become when a chunk is handed out; `rows` are bytes of the file.
    pub(crate) at_last: Option<Cast>,
    /// Where the bytes are held in memory: how they are read from there, and how they came.
    pub(crate) held: Option<(Arc<Lane>, Choice)>,
}

impl Input {
    pub(crate) fn budget(&self) -> &Budget {
        &self.data.budget
    }

    /// The chosen way to the bytes.
    pub(crate) fn lane(&self, choice: &Choice) -> Result<Arc<Lane>> {
        match &self.held {
            Some((lane, _)) => Ok(lane.clone()),
            None => self.data.lane(choice.way, choice.cache, self.as_type),
        }
    }

    /// How they are read now.
    pub(crate) fn choose(&self, visit: Visit) -> Result<Choice> {
        if let Some((_, choice)) = &self.held {
            return Ok(choice.clone());
        }
        let mut choice = self.data.choose(visit, self.rows.row_bytes() as u64)?;
        let casts = [
            (self.as_type.map(|as_type| as_type.cast), "as it is read"),
            (self.at_last, "as it is handed out"),
        ];
        for (cast, when) in casts {
            if let Some(cast) = cast {
                choice.also(&format!("{} becomes {} {when}", cast.from(), cast.to()));
            }
        }
        Ok(choice)
    }

    /// Memory for so many rows as the caller gets them, where that is not how they are read.
    pub(crate) fn place(&self, rows: usize) -> Result<Option<Place>> {
        let Some(cast) = self.at_last else { return Ok(None) };
        let raw = self.rows.bytes(rows as u64);
        let len = (raw / cast.from().itemsize()).saturating_mul(cast.to().itemsize());
        Ok(Some((cast, Block::for_caller(self.budget(), len)?)))
    }

    /// How many of `inputs`, of which it is one, share its budget.
    pub(super) fn sharing(&self, inputs: &[Self]) -> u64 {
        inputs.iter().filter(|other| other.budget().is(self.budget())).count() as u64
    }

    /// About how many rows are read at once, where they are sorted.
    pub(super) fn group_rows(&self, inputs: &[Self], nature: &Nature, cost: Cost) -> f64 {
        let ahead = Shares::new(self.budget().limit(), 0, threads(nature, cost, usize::MAX)).ahead;
        (ahead / self.sharing(inputs) / planned_row_bytes(self.rows.row_bytes())).max(1) as f64
    }

    /// Whether it is ours to choose how they are read.
    pub(crate) fn is_automatic(&self) -> bool {
        self.held.is_none() && self.data.access == Access::Auto
    }
}

/// Rows to be read, chunk by chunk.
#[derive(Debug)]
pub(crate) struct Job {
    /// Several arrays with the same rows.
    pub(crate) inputs: Vec<Input>,
    pub(crate) pass: Pass,
    pub(crate) steps: Steps,
    /// How many chunks may be read before they are asked for.
    pub(crate) ahead: u64,
}

impl Job {
    pub(crate) fn step_rows(&self, step: u64) -> usize {
        self.steps.range(step).map_or(0, |r| usize::try_from(r.end - r.start).unwrap_or(0))
    }

    /// In which order a pass goes through the file: rows that were dealt lie anywhere.
    pub(crate) fn path(&self) -> Visit {
        match self.pass.visit() {
            Visit::Sequential if self.inputs.iter().any(|input| input.dealt.is_some()) => Visit::Shuffled,
            visit => visit,
        }
    }

    /// In which order rows are visited. What is read ahead is sorted; without look-ahead there is nothing to sort.
    pub(crate) fn visit(&self) -> Visit {
        match self.path() {
            Visit::Shuffled if self.ahead < SORTED => Visit::Random,
            visit => visit,
        }
    }

    /// Bytes of a block of the pass; of one that has none, of what `blocks="auto"` would make.
    fn block_bytes(&self) -> u64 {
        let row = self.inputs.first().map_or(0, |input| input.rows.row_bytes() as u64);
        self.pass.mix().map_or(REMOTE_BLOCK, |mix| mix.block_rows.get().saturating_mul(row))
    }

    /// How each input is read now; and, of a pass that would take far less time in another way, what that is.
    pub(crate) fn choose(&self) -> Result<Vec<Choice>> {
        let choices = self.inputs.iter().map(|input| input.choose(self.visit()));
        let mut choices: Vec<Choice> = choices.collect::<Result<_>>()?;
        let (visit, rows) = (self.visit(), self.steps.taken(0, u64::MAX));
        let exact = matches!(self.pass, Pass::Exact(_)) && visit == Visit::Shuffled;
        let predicted = if exact { predict(&self.inputs, &choices, rows)? } else { None };
        let bill = bill(&self.inputs, &choices, visit, rows, self.block_bytes())?;
        let said = [predicted.and_then(|predicted| predicted.advice()), bill.map(|bill| bill.words())];
        if let Some(choice) = choices.first_mut() {
            said.into_iter().flatten().for_each(|said| choice.also(&said));
        }
        Ok(choices)
    }
}
