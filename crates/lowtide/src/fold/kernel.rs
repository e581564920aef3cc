//! The inner loops of reductions: elements of a piece of rows, column by column, into accumulators.
//!
//! Pure: native elements at any address in, accumulators out. Floats and what becomes a float are added in double
//! precision, eight rows at a time before they meet the sum; whole numbers are added as they wrap. The loops are plain,
//! and the compiler makes vector code of them, for any CPU of the architecture and for AVX2.

use crate::cast::number::{Number, To};

/// The instructions that are used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Vectors {
    /// What every CPU of this architecture has.
    Baseline,
    /// Only ever made where the CPU said that it has AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Vectors {
    pub(super) fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Baseline
    }
}

/// A loop for every set of instructions.
macro_rules! compiled_twice {
    ($(#[$doc:meta])* $name:ident, $loop:ident, <$($generic:ident: $bound:path $(, + $more:path)?),*>, ($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(super) fn $name<$($generic: $bound $(+ $more)?),*>(vectors: Vectors, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn with_avx2<$($generic: $bound $(+ $more)?),*>($($argument: $type),*) {
                $loop::<$($generic),*>($($argument),*);
            }
            match vectors {
                Vectors::Baseline => $loop::<$($generic),*>($($argument),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the function is safe but for needing AVX2, and this variant is made only where the CPU has it.
                Vectors::Avx2 => unsafe { with_avx2::<$($generic),*>($($argument),*) },
            }
        }
    };
}

compiled_twice! {
    /// Adds elements to the sums of their columns.
    add, add_loop, <S: To<f64>>, (raw: &[u8], sums: &mut [f64])
}
compiled_twice! {
    /// Adds the squares of the distances from the means of their columns.
    add_squares, squares_loop, <S: To<f64>>, (raw: &[u8], means: &[f64], squares: &mut [f64])
}
compiled_twice! {
    /// Adds whole numbers, which wrap.
    add_whole, whole_loop, <S: Wraps>, (raw: &[u8], sums: &mut [u64])
}
compiled_twice! {
    /// Keeps the least of every column; a NaN is less than anything.
    least, least_loop, <S: Ordered>, (raw: &[u8], best: &mut [u8])
}
compiled_twice! {
    /// The same, the greatest.
    greatest, greatest_loop, <S: Ordered>, (raw: &[u8], best: &mut [u8])
}

/// A number that is added as whole ones are: in 64 bits that hold its sign. Nobody asks it of a float.
pub(super) trait Wraps: Number {
    fn wide(self) -> u64;
}

macro_rules! wraps {
    ($($int:ident),*) => {$(
        impl Wraps for $int {
            #[inline]
            #[allow(clippy::cast_lossless, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
            #[allow(clippy::unnecessary_cast)] // one macro for all of them
            fn wide(self) -> u64 {
                self as u64
            }
        }
    )*};
}

wraps! { u8, u16, u32, u64, i8, i16, i32, i64, f32, f64 }

/// A number that can be less than another.
pub(super) trait Ordered: Number + PartialOrd {
    /// What nothing is greater than.
    const GREATEST: Self;
    /// What nothing is less than.
    const LEAST: Self;
}

macro_rules! ordered {
    ($($number:ident, $least:expr, $greatest:expr;)*) => {$(
        impl Ordered for $number {
            const GREATEST: Self = $greatest;
            const LEAST: Self = $least;
        }
    )*};
}

ordered! {
    u8, u8::MIN, u8::MAX;
    u16, u16::MIN, u16::MAX;
    u32, u32::MIN, u32::MAX;
    u64, u64::MIN, u64::MAX;
    i8, i8::MIN, i8::MAX;
    i16, i16::MIN, i16::MAX;
    i32, i32::MIN, i32::MAX;
    i64, i64::MIN, i64::MAX;
    f32, f32::NEG_INFINITY, f32::INFINITY;
    f64, f64::NEG_INFINITY, f64::INFINITY;
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
#[allow(clippy::many_single_char_names)] // eight rows
fn add_loop<S: To<f64>>(raw: &[u8], sums: &mut [f64]) {
    let width = sums.len();
    let value = |cell: S::Cell| S::read(cell).to();
    let mut eights = S::cells(raw).chunks_exact(8 * width);
    for rows in &mut eights {
        let mut rows = rows.chunks_exact(width);
        let [a, b, c, d, e, f, g, h] = std::array::from_fn(|_| rows.next().unwrap_or_default());
        let (upper, lower) = (a.iter().zip(b).zip(c).zip(d), e.iter().zip(f).zip(g).zip(h));
        for ((sum, (((a, b), c), d)), (((e, f), g), h)) in sums.iter_mut().zip(upper).zip(lower) {
            let upper = (value(*a) + value(*b)) + (value(*c) + value(*d));
            let lower = (value(*e) + value(*f)) + (value(*g) + value(*h));
            *sum += upper + lower;
        }
    }
    for row in eights.remainder().chunks(width) {
        for (sum, cell) in sums.iter_mut().zip(row) {
            *sum += value(*cell);
        }
    }
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
fn squares_loop<S: To<f64>>(raw: &[u8], means: &[f64], squares: &mut [f64]) {
    let width = squares.len();
    let square = |cell: S::Cell, mean: f64| {
        let away = S::read(cell).to() - mean;
        away * away
    };
    let mut twos = S::cells(raw).chunks_exact(2 * width);
    for rows in &mut twos {
        let (a, b) = rows.split_at(width);
        for (((sum, mean), a), b) in squares.iter_mut().zip(means).zip(a).zip(b) {
            *sum += square(*a, *mean) + square(*b, *mean);
        }
    }
    for row in twos.remainder().chunks(width) {
        for ((sum, mean), cell) in squares.iter_mut().zip(means).zip(row) {
            *sum += square(*cell, *mean);
        }
    }
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
fn whole_loop<S: Wraps>(raw: &[u8], sums: &mut [u64]) {
    for row in S::cells(raw).chunks(sums.len()) {
        for (sum, cell) in sums.iter_mut().zip(row) {
            *sum = sum.wrapping_add(S::read(*cell).wide());
        }
    }
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
fn least_loop<S: Ordered>(raw: &[u8], best: &mut [u8]) {
    extreme_loop::<S>(raw, best, |value, best| value < best);
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
fn greatest_loop<S: Ordered>(raw: &[u8], best: &mut [u8]) {
    extreme_loop::<S>(raw, best, |value, best| value > best);
}

#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
#[allow(clippy::eq_op)] // only a NaN is not itself
#[allow(clippy::needless_bitwise_bool)] // vectors have no branches
fn extreme_loop<S: Ordered>(raw: &[u8], best: &mut [u8], better: impl Fn(S, S) -> bool) {
    let best = S::cells_mut(best);
    let width = best.len();
    let of = |value: S, known: S| if better(value, known) | (value != value) { value } else { known };
    let mut fours = S::cells(raw).chunks_exact(4 * width);
    for rows in &mut fours {
        let (upper, lower) = rows.split_at(2 * width);
        let ((a, b), (c, d)) = (upper.split_at(width), lower.split_at(width));
        for ((((best, a), b), c), d) in best.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            let (upper, lower) = (of(S::read(*a), S::read(*b)), of(S::read(*c), S::read(*d)));
            *best = of(of(upper, lower), S::read(*best)).write();
        }
    }
    for row in fours.remainder().chunks(width) {
        for (best, cell) in best.iter_mut().zip(row) {
            *best = of(S::read(*cell), S::read(*best)).write();
        }
    }
}
