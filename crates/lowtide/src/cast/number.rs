//! Native numbers, and how one becomes another.

use super::half;

/// A number of a file in this machine's byte order.
pub(crate) trait Number: Copy {
    /// Its bytes.
    type Cell: Copy + 'static;

    /// Cuts bytes, a whole number of cells.
    fn cells(bytes: &[u8]) -> &[Self::Cell];
    fn cells_mut(bytes: &mut [u8]) -> &mut [Self::Cell];
    fn read(cell: Self::Cell) -> Self;
    fn write(self) -> Self::Cell;
}

/// A number that becomes another.
pub(crate) trait To<T>: Number {
    fn to(self) -> T;
}

/// The loop.
#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
pub(super) fn each<S: To<T>, T: Number>(raw: &[u8], out: &mut [u8]) {
    for (out, &raw) in T::cells_mut(out).iter_mut().zip(S::cells(raw)) {
        *out = S::read(raw).to().write();
    }
}

/// Turns the bytes of every number of so many round, where it stands.
#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
pub(super) fn turn(size: usize, memory: &mut [u8]) {
    match size {
        2 => memory.as_chunks_mut::<2>().0.iter_mut().for_each(|cell| cell.reverse()),
        4 => memory.as_chunks_mut::<4>().0.iter_mut().for_each(|cell| cell.reverse()),
        8 => memory.as_chunks_mut::<8>().0.iter_mut().for_each(|cell| cell.reverse()),
        _ => {}
    }
}

/// A truth value: a byte, true unless it is 0.
#[derive(Clone, Copy)]
pub(super) struct Bool(u8);

/// A number in half precision: its bits.
#[derive(Clone, Copy)]
pub(super) struct Half(u16);

/// A bfloat16: its bits.
#[derive(Clone, Copy)]
pub(super) struct Brain(u16);

macro_rules! numbers {
    ($($number:ty, $bits:ty, |$cell:ident| $read:expr, |$value:ident| $write:expr;)*) => {$(
        impl Number for $number {
            type Cell = [u8; size_of::<$bits>()];

            #[inline]
            fn cells(bytes: &[u8]) -> &[Self::Cell] {
                bytes.as_chunks().0
            }
            #[inline]
            fn cells_mut(bytes: &mut [u8]) -> &mut [Self::Cell] {
                bytes.as_chunks_mut().0
            }
            #[inline]
            fn read($cell: Self::Cell) -> Self {
                $read
            }
            #[inline]
            fn write(self) -> Self::Cell {
                let $value = self;
                $write
            }
        }
    )*};
}

numbers! {
    Bool, u8, |cell| Self(cell[0]), |value| [value.0];
    Half, u16, |cell| Self(u16::from_ne_bytes(cell)), |value| value.0.to_ne_bytes();
    Brain, u16, |cell| Self(u16::from_ne_bytes(cell)), |value| value.0.to_ne_bytes();
    u8, u8, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    u16, u16, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    u32, u32, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    u64, u64, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    i8, i8, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    i16, i16, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    i32, i32, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    i64, i64, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    f32, f32, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
    f64, f64, |cell| Self::from_ne_bytes(cell), |value| value.to_ne_bytes();
}

macro_rules! become_each {
    ($from:ty: $($to:ty, |$value:ident| $made:expr;)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
        #[allow(clippy::cast_lossless, clippy::cast_precision_loss)] // NumPy's casts are C's
        #[allow(clippy::unnecessary_cast)] // one macro for all of them
        impl To<$to> for $from {
            #[inline]
            fn to(self) -> $to {
                let $value = self;
                $made
            }
        }
    )*};
}

/// Whole numbers as C casts them. Half precision comes by way of single, as NumPy has it.
macro_rules! whole {
    ($($int:ident),*) => {$(
        become_each! { $int:
            u8, |value| value as u8;
            u16, |value| value as u16;
            u32, |value| value as u32;
            u64, |value| value as u64;
            f32, |value| value as f32;
            f64, |value| value as f64;
            Half, |value| Half(half::of_single(value as f32));
            Brain, |value| Brain(half::brain_of_single(value as f32));
        }
    )*};
}

whole! { u8, u16, u32, u64, i8, i16, i32, i64 }

become_each! { Bool:
    u8, |value| u8::from(value.0 != 0);
    u16, |value| u16::from(value.0 != 0);
    u32, |value| u32::from(value.0 != 0);
    u64, |value| u64::from(value.0 != 0);
    f32, |value| f32::from(value.0 != 0);
    f64, |value| f64::from(value.0 != 0);
    Half, |value| Half(if value.0 == 0 { 0 } else { 0x3c00 });
    Brain, |value| Brain(if value.0 == 0 { 0 } else { 0x3f80 });
}

become_each! { Half:
    Half, |value| value;
    Brain, |value| Brain(half::brain_of_single(half::single(value.0)));
    f32, |value| half::single(value.0);
    f64, |value| half::double(value.0);
}

become_each! { Brain:
    Brain, |value| value;
    Half, |value| Half(half::of_single(half::brain(value.0)));
    f32, |value| half::brain(value.0);
    f64, |value| half::brain(value.0) as f64;
}

become_each! { f32:
    f32, |value| value;
    f64, |value| value as f64;
    Half, |value| Half(half::of_single(value));
    Brain, |value| Brain(half::brain_of_single(value));
}

become_each! { f64:
    f64, |value| value;
    f32, |value| value as f32;
    Half, |value| Half(half::of_double(value));
    Brain, |value| Brain(half::brain_of_single(value as f32));
}
