//! From one element type to another, and whether every value survives that.
//!
//! In: elements of any [`Dtype`], at any address. Out: the same numbers in another type, and the first that is not the
//! same any more. A number survives where both are equal: of an integer no digit is lost, a fraction does not become an
//! integer, and what is not a number stays that. What does not survive becomes what NumPy's `astype` makes of it: integers
//! lose their upper bits, fractions are rounded or cut, and a float outside of all integers becomes the nearest one.
//!
//! Every number goes through the widest of its class (u64, i64, f64), some thousand at a time, so that what lies between
//! stays in the nearest cache: 51 small loops instead of 169.

use crate::format::{ByteOrder, Dtype, Kind};
use half::{bf16, f16};

/// Elements that are converted at once.
const PIECE: usize = 1024;

/// How elements of one type become those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    from: Dtype,
    to: Dtype,
}

/// Numbers of the widest type of their class. Kept from piece to piece.
struct Desk {
    native: [u8; PIECE * 16],
    unsigned: [u64; 2 * PIECE],
    signed: [i64; 2 * PIECE],
    floats: [f64; 2 * PIECE],
}

/// The numbers of a piece.
#[derive(Clone, Copy)]
enum Wide<'a> {
    Unsigned(&'a [u64]),
    Signed(&'a [i64]),
    Floats(&'a [f64]),
}

impl Checked {
    /// From one type to another.
    pub const fn new(from: Dtype, to: Dtype) -> Self {
        Self { from, to }
    }

    /// Whether the bytes stay what they are.
    pub fn is_copy(self) -> bool {
        self.from == self.to
    }

    /// Whether every value of the first type is one of the second. Stricter than NumPy's `safe`, which takes float64 for
    /// good enough to hold any int64.
    pub fn is_certain(self) -> bool {
        use Kind::{BFloat16, Bool, Complex64, Complex128, Float16, Float32, Float64};
        let (from, to) = (self.from.kind(), self.to.kind());
        // The bits of a whole number that each can hold, the sign apart.
        let digits = |kind| match kind {
            BFloat16 => 8,
            Float16 => 11,
            Float32 | Complex64 => 24,
            Float64 | Complex128 => 53,
            Bool => 1,
            kind if is_signed(kind) => 8 * kind.itemsize() - 1,
            kind => 8 * kind.itemsize(),
        };
        let exponent = |kind| match kind {
            Float16 => 5,
            BFloat16 | Float32 | Complex64 => 8,
            Float64 | Complex128 => 11,
            _ => 0,
        };
        from == to
            || digits(from) <= digits(to)
                && exponent(from) <= exponent(to)
                && (is_complex(to) || !is_complex(from))
                && (to != Bool && (is_signed(to) || exponent(to) > 0 || !is_signed(from)))
    }

    /// Converts all of `from` into `to`, which has as many elements.
    ///
    /// # Errors
    /// The number of the first element that does not survive; all of `to` is made all the same.
    pub fn run(self, from: &[u8], to: &mut [u8]) -> Result<(), usize> {
        if self.is_copy() {
            to.copy_from_slice(from);
            return Ok(());
        }
        let (kind, size) = (self.from.kind(), self.from.itemsize());
        if kind == self.to.kind() {
            to.copy_from_slice(from);
            swap(kind, to);
            return Ok(());
        }
        let mut desk = Desk {
            native: [0; PIECE * 16],
            unsigned: [0; 2 * PIECE],
            signed: [0; 2 * PIECE],
            floats: [0.0; 2 * PIECE],
        };
        let mut first = None;
        let pieces = from.chunks(PIECE * size).zip(to.chunks_mut(PIECE * self.to.itemsize()));
        for (number, (from, to)) in pieces.enumerate() {
            if !self.piece(&mut desk, from, to) && first.is_none() {
                let mut one = [0; 16];
                let one = &mut one[..self.to.itemsize()];
                let lost = from.chunks_exact(size).position(|element| !self.piece(&mut desk, element, one));
                first = Some(number * PIECE + lost.unwrap_or(0));
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// One piece; whether all of it survives.
    fn piece(self, desk: &mut Desk, from: &[u8], to: &mut [u8]) -> bool {
        let (kind, target) = (self.from.kind(), self.to.kind());
        let native = &mut desk.native[..from.len()];
        native.copy_from_slice(from);
        if self.from.byte_order() != ByteOrder::NATIVE {
            swap(kind, native);
        }
        let mut survives = true;
        let wide = match kind {
            Kind::Bool | Kind::UInt8 | Kind::UInt16 | Kind::UInt32 | Kind::UInt64 => {
                Wide::Unsigned(load_unsigned(kind, native, &mut desk.unsigned))
            }
            Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64 => {
                Wide::Signed(load_signed(kind, native, &mut desk.signed))
            }
            Kind::Complex64 | Kind::Complex128 if !is_complex(target) => {
                let part = if kind == Kind::Complex64 { Kind::Float32 } else { Kind::Float64 };
                let count = load_floats(part, native, &mut desk.floats).len() / 2;
                for n in 0..count {
                    // Twice as much as there are elements: what is read comes after what is written.
                    let [real, imaginary] = [desk.floats[2 * n], desk.floats[2 * n + 1]];
                    survives &= imaginary == 0.0;
                    desk.floats[n] = real;
                }
                Wide::Floats(&desk.floats[..count])
            }
            _ => Wide::Floats(load_floats(kind, native, &mut desk.floats)),
        };
        if is_complex(target) && !is_complex(kind) {
            let part = if target == Kind::Complex64 { Kind::Float32 } else { Kind::Float64 };
            let half = &mut desk.native[..to.len() / 2];
            survives &= wide.store(part, half);
            let size = part.itemsize();
            for (to, part) in to.chunks_exact_mut(2 * size).zip(half.chunks_exact(size)) {
                to[..size].copy_from_slice(part);
                to[size..].fill(0);
            }
        } else {
            survives &= wide.store(target, to);
        }
        if self.to.byte_order() != ByteOrder::NATIVE {
            swap(target, to);
        }
        survives
    }

    /// An element of the first type, for people.
    pub fn shown(self, element: &[u8]) -> String {
        let mut native = element.to_vec();
        if self.from.byte_order() != ByteOrder::NATIVE {
            swap(self.from.kind(), &mut native);
        }
        let (kind, mut unsigned, mut signed, mut floats) = (self.from.kind(), [0], [0], [0.0; 2]);
        match kind {
            Kind::Bool | Kind::UInt8 | Kind::UInt16 | Kind::UInt32 | Kind::UInt64 => {
                load_unsigned(kind, &native, &mut unsigned)[0].to_string()
            }
            Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64 => {
                load_signed(kind, &native, &mut signed)[0].to_string()
            }
            Kind::Complex64 | Kind::Complex128 => {
                let parts = load_floats(kind, &native, &mut floats);
                format!("{:?}{:+?}j", parts[0], parts[1])
            }
            // Not all the digits of 1e300.
            _ => format!("{:?}", load_floats(kind, &native, &mut floats)[0]),
        }
    }
}

fn is_complex(kind: Kind) -> bool {
    matches!(kind, Kind::Complex64 | Kind::Complex128)
}

fn is_signed(kind: Kind) -> bool {
    matches!(kind, Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64)
}

/// Swaps the bytes of every number.
fn swap(kind: Kind, elements: &mut [u8]) {
    fn each<const N: usize>(elements: &mut [u8]) {
        for number in elements.as_chunks_mut::<N>().0 {
            number.reverse();
        }
    }
    match (kind.itemsize(), is_complex(kind)) {
        (2, _) => each::<2>(elements),
        (4, _) | (8, true) => each::<4>(elements),
        (8 | 16, _) => each::<8>(elements),
        _ => {}
    }
}

/// Native numbers of `$number`, each made wide by `$wide`.
macro_rules! load {
    ($from:expr, $to:expr, $number:ty, $wide:expr) => {{
        let cells = $from.as_chunks::<{ size_of::<$number>() }>().0;
        for (to, cell) in $to.iter_mut().zip(cells) {
            *to = $wide(<$number>::from_ne_bytes(*cell));
        }
        &$to[..cells.len()]
    }};
}

fn load_unsigned<'a>(kind: Kind, from: &[u8], to: &'a mut [u64]) -> &'a [u64] {
    match kind {
        Kind::Bool => load!(from, to, u8, |byte| u64::from(byte != 0)),
        Kind::UInt8 => load!(from, to, u8, u64::from),
        Kind::UInt16 => load!(from, to, u16, u64::from),
        Kind::UInt32 => load!(from, to, u32, u64::from),
        _ => load!(from, to, u64, u64::from),
    }
}

fn load_signed<'a>(kind: Kind, from: &[u8], to: &'a mut [i64]) -> &'a [i64] {
    match kind {
        Kind::Int8 => load!(from, to, i8, i64::from),
        Kind::Int16 => load!(from, to, i16, i64::from),
        Kind::Int32 => load!(from, to, i32, i64::from),
        _ => load!(from, to, i64, i64::from),
    }
}

fn load_floats<'a>(kind: Kind, from: &[u8], to: &'a mut [f64]) -> &'a [f64] {
    match kind {
        Kind::Float16 => load!(from, to, f16, f64::from),
        Kind::BFloat16 => load!(from, to, bf16, f64::from),
        Kind::Float32 | Kind::Complex64 => load!(from, to, f32, f64::from),
        _ => load!(from, to, f64, f64::from),
    }
}

/// Wide numbers as `$number`, made by `$make`; whether all `$survives`. Nothing is skipped, so that it is vector code.
macro_rules! store {
    ($from:expr, $to:expr, $number:ty, $make:expr, $survives:expr) => {{
        let mut survives = true;
        for (to, &wide) in $to.as_chunks_mut::<{ size_of::<$number>() }>().0.iter_mut().zip($from) {
            let made: $number = $make(wide);
            survives &= $survives(wide, made);
            *to = made.to_ne_bytes();
        }
        survives
    }};
}

/// 2^63 and 2^64: the first floats that are too large.
const SIGNED_END: f64 = 9_223_372_036_854_775_808.0;
const UNSIGNED_END: f64 = 18_446_744_073_709_551_616.0;

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
#[allow(clippy::cast_lossless, clippy::float_cmp)] // what is lost is what this is about
impl Wide<'_> {
    /// Writes them as native numbers of a kind; whether all survive.
    fn store(self, kind: Kind, to: &mut [u8]) -> bool {
        match self {
            Self::Unsigned(from) => store_unsigned(from, kind, to),
            Self::Signed(from) => store_signed(from, kind, to),
            Self::Floats(from) => store_floats(from, kind, to),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
fn store_unsigned(from: &[u64], kind: Kind, to: &mut [u8]) -> bool {
    let same = |wide: u64, made: f64| made < UNSIGNED_END && made as u64 == wide;
    macro_rules! signed {
        ($int:ty) => {
            store!(from, to, $int, |wide: u64| wide as $int, |wide, made: $int| made >= 0
                && made as u64 == wide)
        };
    }
    macro_rules! unsigned {
        ($int:ty) => {
            store!(from, to, $int, |wide: u64| wide as $int, |wide, made: $int| u64::from(made) == wide)
        };
    }
    match kind {
        Kind::Bool => store!(from, to, u8, |wide| u8::from(wide != 0), |wide, made| u64::from(made) == wide),
        Kind::UInt8 => unsigned!(u8),
        Kind::UInt16 => unsigned!(u16),
        Kind::UInt32 => unsigned!(u32),
        Kind::UInt64 => unsigned!(u64),
        Kind::Int8 => signed!(i8),
        Kind::Int16 => signed!(i16),
        Kind::Int32 => signed!(i32),
        Kind::Int64 => signed!(i64),
        Kind::Float16 => {
            store!(from, to, f16, |wide| f16::from_f64(wide as f64), |wide, made| same(wide, f64::from(made)))
        }
        Kind::BFloat16 => {
            store!(from, to, bf16, |wide| bf16::from_f64(wide as f64), |wide, made| same(
                wide,
                f64::from(made)
            ))
        }
        Kind::Float32 | Kind::Complex64 => {
            store!(from, to, f32, |wide| wide as f32, |wide, made| same(wide, f64::from(made)))
        }
        Kind::Float64 | Kind::Complex128 => store!(from, to, f64, |wide| wide as f64, same),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn store_signed(from: &[i64], kind: Kind, to: &mut [u8]) -> bool {
    let same = |wide: i64, made: f64| (-SIGNED_END..SIGNED_END).contains(&made) && made as i64 == wide;
    macro_rules! int {
        ($int:ty) => {
            store!(from, to, $int, |wide: i64| wide as $int, |wide, made: $int| i64::from(made) == wide)
        };
    }
    match kind {
        Kind::Bool => store!(from, to, u8, |wide| u8::from(wide != 0), |wide, made| i64::from(made) == wide),
        Kind::UInt8 => int!(u8),
        Kind::UInt16 => int!(u16),
        Kind::UInt32 => int!(u32),
        Kind::UInt64 => store!(from, to, u64, |wide: i64| wide as u64, |wide, _| wide >= 0),
        Kind::Int8 => int!(i8),
        Kind::Int16 => int!(i16),
        Kind::Int32 => int!(i32),
        Kind::Int64 => int!(i64),
        Kind::Float16 => {
            store!(from, to, f16, |wide| f16::from_f64(wide as f64), |wide, made| same(wide, f64::from(made)))
        }
        Kind::BFloat16 => {
            store!(from, to, bf16, |wide| bf16::from_f64(wide as f64), |wide, made| same(
                wide,
                f64::from(made)
            ))
        }
        Kind::Float32 | Kind::Complex64 => {
            store!(from, to, f32, |wide| wide as f32, |wide, made| same(wide, f64::from(made)))
        }
        Kind::Float64 | Kind::Complex128 => store!(from, to, f64, |wide| wide as f64, same),
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::float_cmp)]
fn store_floats(from: &[f64], kind: Kind, to: &mut [u8]) -> bool {
    let same = |wide: f64, made: f64| made == wide || wide.is_nan();
    macro_rules! int {
        ($int:ty) => {
            store!(from, to, $int, |wide: f64| wide as $int, |wide, made: $int| f64::from(made) == wide)
        };
    }
    match kind {
        Kind::Bool => {
            store!(from, to, u8, |wide| u8::from(wide != 0.0), |wide, made| f64::from(made) == wide)
        }
        Kind::UInt8 => int!(u8),
        Kind::UInt16 => int!(u16),
        Kind::UInt32 => int!(u32),
        Kind::UInt64 => store!(from, to, u64, |wide: f64| wide as u64, |wide, made: u64| {
            wide < UNSIGNED_END && made as f64 == wide
        }),
        Kind::Int8 => int!(i8),
        Kind::Int16 => int!(i16),
        Kind::Int32 => int!(i32),
        Kind::Int64 => store!(from, to, i64, |wide: f64| wide as i64, |wide, made: i64| {
            wide < SIGNED_END && made as f64 == wide
        }),
        Kind::Float16 => store!(from, to, f16, f16::from_f64, |wide, made| same(wide, f64::from(made))),
        Kind::BFloat16 => store!(from, to, bf16, bf16::from_f64, |wide, made| same(wide, f64::from(made))),
        Kind::Float32 | Kind::Complex64 => {
            store!(from, to, f32, |wide| wide as f32, |wide, made| same(wide, f64::from(made)))
        }
        Kind::Float64 | Kind::Complex128 => store!(from, to, f64, |wide| wide, same),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KINDS: [Kind; 15] = [
        Kind::Bool,
        Kind::Int8,
        Kind::Int16,
        Kind::Int32,
        Kind::Int64,
        Kind::UInt8,
        Kind::UInt16,
        Kind::UInt32,
        Kind::UInt64,
        Kind::Float16,
        Kind::BFloat16,
        Kind::Float32,
        Kind::Float64,
        Kind::Complex64,
        Kind::Complex128,
    ];

    fn checked(from: Kind, to: Kind) -> Checked {
        Checked::new(Dtype::native(from), Dtype::native(to))
    }

    proptest! {
        /// What survives comes back as the same bytes, and what does not is not told to.
        #[test]
        fn what_survives_comes_back(
            from in 0..KINDS.len(), to in 0..KINDS.len(), bytes in prop::collection::vec(any::<u8>(), 16), small: bool,
        ) {
            let (from, to) = (KINDS[from], KINDS[to]);
            let mut element = bytes[..from.itemsize()].to_vec();
            if from == Kind::Bool {
                element[0] &= 1;
            } else if small {
                element.iter_mut().skip(1).for_each(|byte| *byte = 0);
            }
            let (mut there, mut back) = (vec![0; to.itemsize()], vec![0; from.itemsize()]);
            let survives = checked(from, to).run(&element, &mut there).is_ok();
            let returns = checked(to, from).run(&there, &mut back).is_ok();
            let shown = |element: &[u8]| checked(from, to).shown(element).replace("-0", "0");
            if survives {
                prop_assert!(returns);
                prop_assert_eq!(shown(&element), shown(&back), "{:?} to {:?}", from, to);
            } else {
                prop_assert!(!returns || shown(&element) != shown(&back), "{:?} to {:?}: {}", from, to, shown(&element));
                prop_assert!(!checked(from, to).is_certain());
            }
        }
    }

    #[test]
    fn the_edges_of_64_bits_are_seen() {
        let lost = |from: Kind, to: Kind, element: &[u8]| {
            checked(from, to).run(element, &mut vec![0; to.itemsize()]).is_err()
        };
        for float in [Kind::Float16, Kind::BFloat16, Kind::Float32, Kind::Float64] {
            assert!(lost(Kind::Int64, float, &i64::MAX.to_ne_bytes()), "{float:?}");
            assert!(lost(Kind::UInt64, float, &u64::MAX.to_ne_bytes()), "{float:?}");
            assert_eq!(lost(Kind::Int64, float, &i64::MIN.to_ne_bytes()), float == Kind::Float16);
        }
        assert!(lost(Kind::Float64, Kind::Int64, &SIGNED_END.to_ne_bytes()));
        assert!(!lost(Kind::Float64, Kind::Int64, &(-SIGNED_END).to_ne_bytes()));
        assert!(lost(Kind::Float64, Kind::UInt64, &UNSIGNED_END.to_ne_bytes()));
        assert!(lost(Kind::Float64, Kind::Int32, &f64::NAN.to_ne_bytes()));
        assert!(!lost(Kind::Float64, Kind::Float16, &f64::NAN.to_ne_bytes()));
        assert!(!lost(Kind::Float64, Kind::Float16, &f64::INFINITY.to_ne_bytes()));
        assert!(lost(Kind::Float64, Kind::Float32, &1e300_f64.to_ne_bytes()));
    }

    #[test]
    fn the_first_is_named_wherever_it_lies() {
        for place in [0, 1, PIECE - 1, PIECE, 5 * PIECE + 17] {
            let mut numbers = vec![7_i32; 6 * PIECE];
            numbers[place] = -1;
            *numbers.last_mut().unwrap() = -1;
            let big: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
            let checked = Checked::new(
                Dtype::new(Kind::Int32, ByteOrder::Big),
                Dtype::new(Kind::UInt16, ByteOrder::Big),
            );
            let mut made = vec![0; 2 * numbers.len()];
            assert_eq!(checked.run(&big, &mut made), Err(place));
            assert_eq!(checked.shown(&big[4 * place..4 * place + 4]), "-1");
            assert_eq!(made[..4], if place < 2 { made[..4].to_vec() } else { vec![0, 7, 0, 7] });
        }
    }
}
