//! Against plain loops, and with vectors as without; against NumPy it is tested from Python.

use super::kernel::Vectors;
use super::*;
use crate::format::Kind;
use proptest::prelude::*;

fn folded(task: Task, raw: &[u8], width: usize, piece: usize) -> Folded {
    let mut parts = raw.chunks(piece * width * task.kind.itemsize()).map(|raw| task.part(raw, width));
    let mut all = parts.next().unwrap();
    parts.for_each(|part| task.join(&mut all, part));
    all.finish()
}

proptest! {
    #[test]
    fn a_fold_is_the_plain_loop_however_it_is_cut(
        values in prop::collection::vec(-1000i32..1000, 1..800), width in 1usize..9, piece in 1usize..20, best: bool,
    ) {
        prop_assume!(values.len() >= width);
        let values = &values[..values.len() / width * width];
        let vectors = if best { Vectors::best() } else { Vectors::Baseline };
        let rows = values.len() / width;
        let floats: Vec<f32> = values.iter().map(|&value| value as f32 / 4.0).collect();
        let column = |c: usize| floats.iter().skip(c).step_by(width).map(|&x| f64::from(x));
        let of_floats = |fold| {
            let task = Task { fold, kind: Kind::Float32, vectors };
            folded(task, &floats.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), width, piece)
        };
        // Quarters of small whole numbers: every sum is exact.
        let sums: Vec<f64> = (0..width).map(|c| column(c).sum()).collect();
        prop_assert_eq!(of_floats(Fold::Sum), Folded::Sum(sums.clone()));
        let Folded::Moments(means, squares) = of_floats(Fold::Moments) else { panic!() };
        for c in 0..width {
            let mean = sums[c] / rows as f64;
            let square: f64 = column(c).map(|x| (x - mean) * (x - mean)).sum();
            prop_assert!((means[c] - mean).abs() < 1e-9 && (squares[c] - square).abs() < 1e-6 * square.max(1.0));
        }
        let least: Vec<u8> =
            (0..width).flat_map(|c| floats.iter().skip(c).step_by(width).copied().fold(f32::INFINITY, f32::min).to_ne_bytes()).collect();
        prop_assert_eq!(of_floats(Fold::Least), Folded::Extreme(least));
        let task = Task { fold: Fold::WholeSum, kind: Kind::Int32, vectors };
        let raw: Vec<u8> = values.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let whole: Vec<u64> =
            (0..width).map(|c| values.iter().skip(c).step_by(width).map(|&x| i64::from(x)).sum::<i64>().cast_unsigned()).collect();
        prop_assert_eq!(folded(task, &raw, width, piece), Folded::WholeSum(whole.clone()));
        // Several rows as one, and back.
        if rows.is_multiple_of(2) {
            let Folded::WholeSum(narrow) = task.narrowed(&task.part(&raw, width * 2), width).finish() else { panic!() };
            prop_assert_eq!(narrow, whole);
        }
    }
}

#[test]
fn a_nan_is_the_least_and_the_greatest_and_stays() {
    let raw = |values: &[f64]| values.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<u8>>();
    for fold in [Fold::Least, Fold::Greatest] {
        for vectors in [Vectors::best(), Vectors::Baseline] {
            let task = Task { fold, kind: Kind::Float64, vectors };
            let values = raw(&[1.0, f64::NAN, 2.0, 3.0, 0.0, 5.0, 4.0, 9.0, f64::INFINITY]);
            let Folded::Extreme(best) = folded(task, &values, 3, 1) else { panic!() };
            let best: Vec<f64> = best.as_chunks().0.iter().map(|cell| f64::from_ne_bytes(*cell)).collect();
            assert!(best[1].is_nan() && !best[0].is_nan() && !best[2].is_nan(), "{best:?}");
            assert_eq!(
                (best[0], best[2]),
                if fold == Fold::Least { (1.0, 2.0) } else { (4.0, f64::INFINITY) }
            );
        }
    }
}

#[test]
fn what_rounding_takes_is_given_back() {
    let task = Task::new(Fold::Sum, Kind::Float64);
    let raw: Vec<u8> = [1e16, 1.0, 1.0, -1e16].iter().flat_map(|x: &f64| x.to_ne_bytes()).collect();
    assert_eq!(folded(task, &raw, 1, 1), Folded::Sum(vec![2.0]));
}
