//! Several arrays with the same rows, and one by itself: how they are gone through.

use crate::array::Array;
use crate::chunks::Chunks;
use crate::door::START;
use crate::engine::job::Pass;
use crate::error::{Error, Result};
use crate::format::Order as AxisOrder;
use crate::order::{LastStep, Sequential, Shard};
use crate::resident;
use crate::shuffle::{Many, Shuffle, at_least_one, fits, never_empty, of_rows, pass};

/// An eighth of a page: below it a pass over a Fortran-ordered file reads it more than eight times.
const SHORTEST_RUN: usize = 512;

/// Several arrays with the same rows: their chunks come together.
#[derive(Clone, Debug)]
pub struct Zip {
    arrays: Vec<Array>,
}

impl Zip {
    /// Arrays of equally many rows.
    ///
    /// # Errors
    /// [`Error::Argument`] where their lengths differ, or there is none.
    pub fn new(arrays: Vec<Array>) -> Result<Self> {
        let Some(first) = arrays.first() else {
            return Err(Error::argument("zip needs at least one array", ""));
        };
        if let Some(array) = arrays.iter().find(|a| a.shape().is_empty()) {
            return Err(Error::argument(
                format!("{}: a single element has no rows", array.path().display()),
                "",
            ));
        }
        if let Some(other) = arrays.iter().find(|a| a.rows() != first.rows()) {
            return Err(Error::argument(
                format!(
                    "the arrays have different lengths: {} has {} rows, {} has {}",
                    first.path().display(),
                    first.rows(),
                    other.path().display(),
                    other.rows()
                ),
                "zip takes arrays whose rows belong together",
            ));
        }
        Ok(Self { arrays })
    }

    /// The arrays.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.arrays.first().map_or(0, Array::rows)
    }

    /// Rows one after another, `rows` at a time, in file order.
    pub fn chunks(&self, rows: usize) -> Result<Chunks> {
        self.chunks_of(rows, Shard::ALONE, LastStep::Split)
    }

    /// The same of one rank: its share of every step, as of a shuffled pass.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step.
    pub fn chunks_of(&self, rows: usize, shard: Shard, last: LastStep) -> Result<Chunks> {
        let shuffle = Shuffle { shard, last, ..Shuffle::default() };
        let steps = shard.steps(self.rows(), 0, at_least_one(rows)?, last).map_err(of_rows)?;
        never_empty(&steps, self.rows(), &shuffle)?;
        self.arrays.iter().try_for_each(|array| fits(array, Many::Rows(rows)))?;
        let pass = Pass::Sequential(Sequential::new(self.rows()));
        Chunks::new(self.in_rows(Some(rows))?, shuffle, pass, steps)
    }

    /// Every row exactly once, in the order of a keyed permutation, `rows` at a time.
    pub fn shuffled(&self, rows: usize, shuffle: Shuffle) -> Result<Chunks> {
        let whole = shuffle.shard.steps(self.rows(), 0, at_least_one(rows)?, shuffle.last);
        let whole = whole.map_err(of_rows)?;
        never_empty(&whole, self.rows(), &shuffle)?;
        if shuffle.start > self.rows() {
            return Err(Error::argument(
                START.number(shuffle.start) + format!(" is behind the last row: there are {}", self.rows()),
                "it counts the rows of all ranks that were taken before, from 0 on",
            ));
        }
        let steps = whole.restart(self.rows(), shuffle.start).map_err(of_rows)?;
        self.arrays.iter().try_for_each(|array| fits(array, Many::Rows(rows)))?;
        let pass = pass(&self.arrays, &shuffle)?;
        Chunks::new(self.in_rows(None)?, shuffle, pass, steps)
    }

    /// The arrays, those held in memory of whose files a pass would read every page many times: files in Fortran order,
    /// in chunks of so many rows (`None`: shuffled).
    fn in_rows(&self, rows: Option<usize>) -> Result<Vec<Array>> {
        let in_rows = |array: &Array| {
            let rows = rows.filter(|_| !array.part().is_dealt());
            let run = rows.map_or(0, |rows| rows.saturating_mul(array.dtype().itemsize()));
            let whole = rows.is_some_and(|rows| rows as u64 >= array.rows());
            if array.layout().order == AxisOrder::C || run >= SHORTEST_RUN || whole {
                return Ok(array.clone());
            }
            if let Some(held) = resident::hold(array)? {
                return Ok(held);
            }
            let Some(rows) = rows else {
                let what = "a shuffled pass over a Fortran-ordered file would read every page once a row";
                return Err(resident::refused(array, what, "chunks() reads it in file order; "));
            };
            // A chunk is one short run in every column.
            let what = format!(
                "the file is in Fortran order, so that chunks of {rows} rows are runs of {run} bytes: a pass would \
                 read the file {} times over",
                4096 / run.max(1)
            );
            let enough = SHORTEST_RUN / array.dtype().itemsize();
            Err(resident::refused(array, &what, &format!("take chunks of {enough} rows or more; ")))
        };
        self.arrays.iter().map(in_rows).collect()
    }
}

impl Array {
    /// Rows one after another, `rows` at a time, in file order.
    pub fn chunks(&self, rows: usize) -> Result<Chunks> {
        Zip { arrays: vec![self.clone()] }.chunks(rows)
    }

    /// The same of one rank: its share of every step, as of a shuffled pass.
    ///
    /// # Errors
    /// [`Error::Argument`] where some rank would get nothing of the last step.
    pub fn chunks_of(&self, rows: usize, shard: Shard, last: LastStep) -> Result<Chunks> {
        Zip { arrays: vec![self.clone()] }.chunks_of(rows, shard, last)
    }

    /// Every row exactly once, in the order of a keyed permutation, `rows` at a time.
    pub fn shuffled(&self, rows: usize, shuffle: Shuffle) -> Result<Chunks> {
        Zip { arrays: vec![self.clone()] }.shuffled(rows, shuffle)
    }
}
