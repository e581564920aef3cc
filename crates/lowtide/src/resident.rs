//! A small file in Fortran order, held in memory in C order, so that its rows can be taken in any order.
//!
//! In the file a row is scattered over all of it: a shuffled pass would read every page once a row. Where the whole
//! array fits in half the budget, it is read once, in file order, and turned round.

use crate::array::Array;
use crate::budget::pool::Block;
use crate::door::{BUDGET, Words};
use crate::engine::choose::{Sure, Visit};
use crate::engine::lane::{Clock, Lane};
use crate::error::{Error, Result};
use crate::format::INTO_C_ORDER;
use crate::selection::Axis;
use crate::store::Resident;
use std::sync::Arc;

/// Elements are turned round in tiles of this size, which stay in the processor's cache.
const TILE: usize = 1 << 20;
/// Rows of a tile: as long a read as is worth it.
const TILE_ROWS: usize = 1 << 15;

/// The array in memory, in C order; `None` where the budget has no room for it, or for the rows from which it was
/// dealt.
pub(crate) fn hold(array: &Array) -> Result<Option<Array>> {
    let whole = array.undealt();
    let Ok(len) = usize::try_from(whole.nbytes()) else { return Ok(None) };
    if Block::cost(len) > array.budget().limit() / 2 {
        return Ok(None);
    }
    let mut choice = array.choose(Visit::Sequential)?;
    choice.sure = Sure::Certain;
    choice.why = "the file is in Fortran order and small: it was read into memory once".into();
    let Some(mut block) = Block::counted(array.budget(), len)? else { return Ok(None) };
    turn(&whole, &mut block)?;
    let store = Arc::new(Resident { path: array.path().to_owned(), block });
    Ok(Some(array.held(Lane::new(store, Clock::default()), choice)))
}

/// Fills `out` with the elements of a Fortran-ordered array, in C order.
fn turn(array: &Array, out: &mut [u8]) -> Result<()> {
    let (item, shape) = (array.dtype().itemsize(), array.shape());
    let rows = shape.first().map_or(1, |&n| n);
    let inner = shape.get(1..).unwrap_or_default();
    let columns: usize = inner.iter().product();
    let flat = array.flat();
    let tall = rows.clamp(1, TILE_ROWS);
    let wide = (TILE / (tall * item)).clamp(1, columns.max(1));
    let mut tile = vec![0; tall * wide * item];
    for left in (0..columns).step_by(wide) {
        let width = wide.min(columns - left);
        let places: Vec<usize> = (left..left + width).map(|column| c_order(column, inner)).collect();
        for top in (0..rows).step_by(tall) {
            let height = tall.min(rows - top);
            let tile = &mut tile[..height * width * item];
            let part = |start, count| Axis::Range { start, step: 1, count };
            flat.select_into(vec![part(top, height), part(left, width)], tile, &|| Ok(()))?;
            for row in 0..height {
                let to = &mut out[(top + row) * columns * item..][..columns * item];
                for (column, &place) in places.iter().enumerate() {
                    let from = (column * height + row) * item;
                    to[place * item..][..item].copy_from_slice(&tile[from..from + item]);
                }
            }
        }
    }
    Ok(())
}

/// The number in C order of the element with this number in Fortran order.
fn c_order(mut number: usize, shape: &[usize]) -> usize {
    let mut place = 0;
    let mut stride: usize = shape.iter().product();
    for &n in shape {
        stride /= n; // there is an element: no size is 0
        place += number % n * stride;
        number /= n;
    }
    place
}

/// That a Fortran-ordered file cannot be gone through like this, and what can be done.
pub(crate) fn refused(array: &Array, what: &str, hint: &str) -> Error {
    let needs =
        usize::try_from(array.undealt().nbytes()).map_or(u64::MAX, |len| Block::cost(len).saturating_mul(2));
    Error::unsupported(
        format!("{}: {what}", array.path().display()),
        Words::from(format!("{hint}with "))
            + BUDGET.is(format!("{}MiB", needs.div_ceil(1 << 20)))
            + " it is held in memory; "
            + INTO_C_ORDER,
    )
}
