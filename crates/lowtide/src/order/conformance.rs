//! What every [`Order`] promises, as a suite that all of them run, and that yours can.
//!
//! Two suites: [`check`] for what holds of all orders, and [`check_each_row_once`], which adds what holds of
//! those that are permutations. One that is not, such as [`Draws`](super::Draws), or that is too long to
//! walk, runs the first.

use super::Order;

/// Seeking anywhere gives what walking there would have given, however the walk is cut into fills.
///
/// Looks at the first, the last and some positions between; works at any length.
///
/// # Panics
///
/// If the order breaks a promise.
pub fn check(order: &dyn Order) {
    let len = order.len();
    assert_eq!(order.is_empty(), len == 0, "is_empty disagrees with a length of {len}");
    order.fill(0, &mut []);
    order.fill(len, &mut []);
    let window = len.min(333);
    for start in [0, 1, len / 3, len / 2, len.saturating_sub(window + 1), len - window] {
        check_window(order, start.min(len - window), size(window));
    }
}

fn check_window(order: &dyn Order, start: u64, window: usize) {
    let mut whole = vec![u64::MAX; window];
    order.fill(start, &mut whole);
    for piece in [1, 2, 3, 7, 8, 9, 16, 31, 64, 100] {
        // What lies in `out` before must not matter.
        let mut pieces = vec![piece as u64; window];
        for (at, out) in pieces.chunks_mut(piece).enumerate() {
            order.fill(start + (at * piece) as u64, out);
        }
        assert!(pieces == whole, "{order:?}: fills of {piece} from {start} differ from one of {window}");
    }
    let mut last_first = vec![u64::MAX; window];
    for (at, out) in last_first.iter_mut().enumerate().rev() {
        order.fill(start + at as u64, std::slice::from_mut(out));
    }
    assert!(
        last_first == whole,
        "{order:?}: walking back from {start} + {window} differs from walking there"
    );
}

/// [`check`], and every row below `len` stands at exactly one position.
///
/// Walks the whole order, with one bit a row.
///
/// # Panics
///
/// If the order breaks a promise.
pub fn check_each_row_once(order: &dyn Order) {
    check(order);
    let len = order.len();
    let mut seen = vec![0_u64; size(len.div_ceil(64))];
    let mut rows = [0; 1_000];
    for start in (0..len).step_by(rows.len()) {
        let rows = &mut rows[..size((len - start).min(1_000))];
        order.fill(start, rows);
        for &row in &*rows {
            assert!(row < len, "{order:?}: row {row} after position {start} is past the end, {len}");
            let (word, bit) = (size(row / 64), 1 << (row % 64));
            assert!(seen[word] & bit == 0, "{order:?}: row {row} after position {start} came before");
            seen[word] |= bit;
        }
    }
}

fn size(count: u64) -> usize {
    usize::try_from(count).expect("an order that is walked fits in memory, bit by bit")
}
