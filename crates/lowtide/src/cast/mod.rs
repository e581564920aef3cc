//! From the elements of a file to those that the caller wants: `float16` to `float32`, big-endian to native.
//!
//! In: raw bytes of one [`Dtype`], at any address. Out: the same values as another, bit for bit what NumPy's
//! `astype` gives, NaNs included. What may become what is NumPy's `same_kind`: nothing turns a fraction into a whole
//! number, a complex number into a real one, or a sign into none.
//!
//! Elements go through in pieces that stay in the first-level cache: bytes are swapped there first, where they have
//! to be, then values are converted. So every loop knows native numbers only. The loops are plain, and the compiler
//! makes vector code of them, for any CPU of the architecture and for AVX2; half precision has instructions of its
//! own: see `half`.

mod half;
pub(crate) mod number;

use crate::error::{Error, Result};
use crate::format::{ByteOrder, Dtype, Kind};
use crate::sys::{self, crew};
use number::{Bool, Brain, Half, Number, To};
use std::sync::Mutex;

/// Bytes of a piece, of the larger of the two types: it stays in the first-level cache with its copies.
const PIECE: usize = 4 << 10;

/// Bytes that one core converts at a time where several do, of what comes of it: 10 µs and more, against 5 to wake one.
const SHARE: usize = 128 << 10;

/// What a file's elements become as they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cast {
    from: Dtype,
    to: Dtype,
}

impl Cast {
    /// From one type to another.
    ///
    /// # Errors
    /// [`Error::Argument`] where NumPy's `same_kind` does not allow it.
    pub fn new(from: Dtype, to: Dtype) -> Result<Self> {
        if rank(from.kind()) <= rank(to.kind()) {
            return Ok(Self { from, to });
        }
        let loses = match (rank(from.kind()), rank(to.kind())) {
            (4, _) => "the imaginary part",
            (_, 0) => "all but whether it is zero",
            (3, _) => "the fraction",
            _ => "the sign",
        };
        Err(Error::argument(
            format!("{from} cannot be read as {to}, which would lose {loses}"),
            format!(
                "NumPy's casting=\"same_kind\" allows it neither; chunk.astype(\"{}\") does it chunk by chunk",
                to.name()
            ),
        ))
    }

    /// What the file has.
    pub fn from(&self) -> Dtype {
        self.from
    }

    /// What the caller gets.
    pub fn to(&self) -> Dtype {
        self.to
    }

    /// What comes of it where another follows; `None` where that is no longer one step, because this one rounds.
    pub fn then(self, next: Dtype) -> Option<Result<Self>> {
        self.is_exact().then(|| Self::new(self.to, next).and_then(|_| Self::new(self.from, next)))
    }

    /// Whether every value stays what it is.
    fn is_exact(self) -> bool {
        // Bits of a whole number that a type holds exactly, and whether it has a sign.
        let bits = |kind: Kind| match kind {
            Kind::Bool => 1,
            Kind::Float16 | Kind::BFloat16 => 8, // of bfloat16: exactly, and float16's fractions not at all
            Kind::Float32 | Kind::Complex64 => 24,
            Kind::Float64 | Kind::Complex128 => 53,
            Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64 => 8 * kind.itemsize() - 1,
            _ => 8 * kind.itemsize(),
        };
        let (from, to) = (self.from.kind(), self.to.kind());
        let halves = [Kind::Float16, Kind::BFloat16];
        from == to || (bits(from) <= bits(to) && !(halves.contains(&from) && halves.contains(&to)))
    }

    /// Converts `raw`, elements of the file, into `out`. Neither need be aligned.
    ///
    /// ```
    /// use lowtide::{cast::Cast, format::Dtype};
    ///
    /// let mut single = [0; 4];
    /// Cast::new(Dtype::parse("<f2")?, Dtype::parse("<f4")?)?.convert(&[0, 0x3c], &mut single);
    /// assert_eq!(f32::from_le_bytes(single), 1.0);
    /// # Ok::<(), lowtide::Error>(())
    /// ```
    ///
    /// # Panics
    /// Where they are not the same number of whole elements.
    pub fn convert(&self, raw: &[u8], out: &mut [u8]) {
        self.converter().convert(raw, out);
    }

    /// The same by all cores, where that is worth waking them.
    pub(crate) fn convert_together(self, raw: &[u8], out: &mut [u8]) {
        let parts = raw.chunks(SHARE / self.to.itemsize() * self.from.itemsize()).zip(out.chunks_mut(SHARE));
        let helpers = (parts.len() / 2).min(sys::cores() - 1);
        let parts = Mutex::new(parts);
        crew::together(helpers, &|| {
            let mut converter = self.converter();
            while let Some((raw, out)) = sys::locked(&parts, Iterator::next) {
                converter.convert(raw, out);
            }
        });
    }

    /// Something that converts many times: it has the memory for it.
    pub(crate) fn converter(self) -> Converter {
        self.by(Vectors::best())
    }

    fn by(self, vectors: Vectors) -> Converter {
        let Self { from, to } = self;
        Converter { from, to, vectors, pieces: None }
    }

    /// Bytes of the file for so many of ours.
    pub(crate) fn raw_len(self, len: usize) -> usize {
        len / self.to.itemsize() * self.from.itemsize()
    }
}

/// What a piece of elements goes through.
pub(crate) struct Converter {
    from: Dtype,
    to: Dtype,
    vectors: Vectors,
    /// Memory for what few casts need: made with the first piece that does, for a converter is made for every few rows.
    pieces: Option<Box<[[u8; PIECE]; 3]>>,
}

impl Converter {
    /// Converts `raw`, elements of the file, into `out`.
    ///
    /// # Panics
    /// Where they are not the same number of whole elements.
    pub(crate) fn convert(&mut self, raw: &[u8], out: &mut [u8]) {
        let (from, to) = (self.from.itemsize(), self.to.itemsize());
        assert!(raw.len().is_multiple_of(from) && raw.len() / from * to == out.len(), "as many elements");
        let many = PIECE / from.max(to);
        for (raw, out) in raw.chunks(many * from).zip(out.chunks_mut(many * to)) {
            self.piece(raw, out);
        }
    }

    /// Converts elements that stand at the end of the memory in which they become larger ones, or as large.
    ///
    /// # Panics
    /// Where `memory` is not a whole number of elements, or elements become smaller.
    pub(crate) fn convert_at_end(&mut self, memory: &mut [u8]) {
        let (from, to) = (self.from.itemsize(), self.to.itemsize());
        assert!(from <= to && memory.len().is_multiple_of(to), "whole elements, and no smaller ones");
        if self.from == self.to {
            return;
        }
        if self.from.kind() == self.to.kind() {
            return self.vectors.turn(number_size(self.from.kind()), memory);
        }
        let (elements, many) = (memory.len() / to, PIECE / to);
        let start = memory.len() - elements * from;
        // What is written never reaches what is still to be read: that lies the nearer to the end the less it is.
        for first in (0..elements).step_by(many) {
            let count = many.min(elements - first);
            let (raw, end) = (start + first * from, (first + count) * to);
            if end <= raw {
                let (out, rest) = memory.split_at_mut(raw);
                self.piece(&rest[..count * from], &mut out[first * to..end]);
            } else {
                let mut copy = [0; PIECE];
                let copy = &mut copy[..count * from];
                copy.copy_from_slice(&memory[raw..raw + count * from]);
                self.piece(copy, &mut memory[first * to..end]);
            }
        }
    }

    /// A piece of at most [`PIECE`] bytes of either type.
    fn piece(&mut self, raw: &[u8], out: &mut [u8]) {
        let (from, to, vectors) = (self.from.kind(), self.to.kind(), self.vectors);
        let foreign = |dtype: Dtype| dtype.byte_order() != ByteOrder::NATIVE;
        if from == to && self.from == self.to {
            return out.copy_from_slice(raw);
        }
        if from == to {
            return vectors.swap(number_size(from), raw, out);
        }
        let halves = (component(from), component(to));
        if !foreign(self.from) && !foreign(self.to) && !matches!(halves, (None, Some(_))) {
            let (from, to) = (halves.0.unwrap_or(from), halves.1.unwrap_or(to)); // twice as many real numbers
            return vectors.numbers(from, to, raw, out);
        }
        let [native, real, swapped] = &mut **self.pieces.get_or_insert_with(|| Box::new([[0; PIECE]; 3]));
        let raw = if foreign(self.from) {
            vectors.swap(number_size(from), raw, &mut native[..raw.len()]);
            &native[..raw.len()]
        } else {
            raw
        };
        match halves {
            (None, Some(part)) => {
                let real = &mut real[..out.len() / 2];
                if from == part {
                    real.copy_from_slice(raw);
                } else {
                    vectors.numbers(from, part, raw, real);
                }
                match part {
                    Kind::Float32 => with_nothing::<4>(real, out),
                    _ => with_nothing::<8>(real, out),
                }
            }
            _ => vectors.numbers(halves.0.unwrap_or(from), halves.1.unwrap_or(to), raw, out),
        }
        if foreign(self.to) {
            let swapped = &mut swapped[..out.len()];
            vectors.swap(number_size(to), out, swapped);
            out.copy_from_slice(swapped);
        }
    }
}

/// NumPy's order of kinds: a type may become one of a kind that does not come before its own.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Bool => 0,
        Kind::UInt8 | Kind::UInt16 | Kind::UInt32 | Kind::UInt64 => 1,
        Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64 => 2,
        Kind::Float16 | Kind::BFloat16 | Kind::Float32 | Kind::Float64 => 3,
        Kind::Complex64 | Kind::Complex128 => 4,
    }
}

/// The two halves of a complex number.
fn component(kind: Kind) -> Option<Kind> {
    match kind {
        Kind::Complex64 => Some(Kind::Float32),
        Kind::Complex128 => Some(Kind::Float64),
        _ => None,
    }
}

/// Bytes that belong to one number, and are swapped together.
fn number_size(kind: Kind) -> usize {
    component(kind).unwrap_or(kind).itemsize()
}

/// Real numbers as complex ones.
fn with_nothing<const N: usize>(real: &[u8], out: &mut [u8]) {
    let pairs = out.as_chunks_mut::<N>().0.as_chunks_mut::<2>().0;
    for (pair, &real) in pairs.iter_mut().zip(real.as_chunks::<N>().0) {
        *pair = [real, [0; N]];
    }
}

/// Which instructions to use.
#[derive(Clone, Copy, Debug)]
enum Vectors {
    /// What every CPU of this architecture has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// Only ever made where the CPU said that it has AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Vectors {
    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c") {
            return Self::Avx2;
        }
        Self::Baseline
    }

    /// Turns the bytes of every number round.
    fn swap(self, size: usize, from: &[u8], to: &mut [u8]) {
        match size {
            2 => self.each::<u16, Swapped<u16>>(from, to),
            4 => self.each::<u32, Swapped<u32>>(from, to),
            8 => self.each::<u64, Swapped<u64>>(from, to),
            _ => to.copy_from_slice(from),
        }
    }

    /// The same where they stand.
    fn turn(self, size: usize, memory: &mut [u8]) {
        /// The loop, compiled for AVX2.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn turn_avx2(size: usize, memory: &mut [u8]) {
            number::turn(size, memory);
        }
        match self {
            Self::Baseline => number::turn(size, memory),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the function is safe but for needing AVX2, and this variant is made only where the CPU has it.
            Self::Avx2 => unsafe { turn_avx2(size, memory) },
        }
    }

    /// Real numbers of one kind as another.
    fn numbers(self, from: Kind, to: Kind, raw: &[u8], out: &mut [u8]) {
        match from {
            Kind::Bool => self.whole::<Bool>(to, raw, out),
            Kind::UInt8 => self.whole::<u8>(to, raw, out),
            Kind::UInt16 => self.whole::<u16>(to, raw, out),
            Kind::UInt32 => self.whole::<u32>(to, raw, out),
            Kind::UInt64 => self.whole::<u64>(to, raw, out),
            Kind::Int8 => self.whole::<i8>(to, raw, out),
            Kind::Int16 => self.whole::<i16>(to, raw, out),
            Kind::Int32 => self.whole::<i32>(to, raw, out),
            Kind::Int64 => self.whole::<i64>(to, raw, out),
            Kind::Float16 if to == Kind::Float32 => self.half_to_single(raw, out),
            Kind::Float16 => self.real::<Half>(to, raw, out),
            Kind::BFloat16 => self.real::<Brain>(to, raw, out),
            Kind::Float32 | Kind::Complex64 if to == Kind::Float16 => self.single_to_half(raw, out),
            Kind::Float32 | Kind::Complex64 => self.real::<f32>(to, raw, out),
            Kind::Float64 | Kind::Complex128 => self.real::<f64>(to, raw, out),
        }
    }

    fn real<S>(self, to: Kind, raw: &[u8], out: &mut [u8])
    where
        S: Number + To<Half> + To<Brain> + To<f32> + To<f64>,
    {
        match to {
            Kind::Float16 => self.each::<S, Half>(raw, out),
            Kind::BFloat16 => self.each::<S, Brain>(raw, out),
            Kind::Float64 => self.each::<S, f64>(raw, out),
            _ => self.each::<S, f32>(raw, out),
        }
    }

    /// Whole numbers: those of less bits keep the lowest ones, so that signs do not matter.
    fn whole<S>(self, to: Kind, raw: &[u8], out: &mut [u8])
    where
        S: Number + To<u8> + To<u16> + To<u32> + To<u64> + To<Half> + To<Brain> + To<f32> + To<f64>,
    {
        match to {
            Kind::Bool | Kind::Int8 | Kind::UInt8 => self.each::<S, u8>(raw, out),
            Kind::Int16 | Kind::UInt16 => self.each::<S, u16>(raw, out),
            Kind::Int32 | Kind::UInt32 => self.each::<S, u32>(raw, out),
            Kind::Int64 | Kind::UInt64 => self.each::<S, u64>(raw, out),
            _ => self.real::<S>(to, raw, out),
        }
    }

    fn each<S: To<T>, T: Number>(self, raw: &[u8], out: &mut [u8]) {
        /// The same loop, compiled for AVX2.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn each_avx2<S: To<T>, T: Number>(raw: &[u8], out: &mut [u8]) {
            number::each::<S, T>(raw, out);
        }
        match self {
            Self::Baseline => number::each::<S, T>(raw, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the function is safe but for needing AVX2, and this variant is made only where the CPU has it.
            Self::Avx2 => unsafe { each_avx2::<S, T>(raw, out) },
        }
    }

    fn half_to_single(self, raw: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function is safe but for needing AVX2 and F16C, and the CPU has them.
        if matches!(self, Self::Avx2) && unsafe { half::to_single(raw, out) } {
            return;
        }
        self.each::<Half, f32>(raw, out);
    }

    fn single_to_half(self, raw: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function is safe but for needing AVX2 and F16C, and the CPU has them.
        if matches!(self, Self::Avx2) && unsafe { half::from_single(raw, out) } {
            return;
        }
        self.each::<f32, Half>(raw, out);
    }
}

/// A number with its bytes turned round.
#[derive(Clone, Copy)]
struct Swapped<T>(T);

macro_rules! swapped {
    ($($int:ident),*) => {$(
        impl Number for Swapped<$int> {
            type Cell = <$int as Number>::Cell;
            #[inline]
            fn cells(bytes: &[u8]) -> &[Self::Cell] {
                $int::cells(bytes)
            }
            #[inline]
            fn cells_mut(bytes: &mut [u8]) -> &mut [Self::Cell] {
                $int::cells_mut(bytes)
            }
            #[inline]
            fn read(cell: Self::Cell) -> Self {
                Self($int::read(cell))
            }
            #[inline]
            fn write(self) -> Self::Cell {
                self.0.write()
            }
        }
        impl To<Swapped<$int>> for $int {
            #[inline]
            fn to(self) -> Swapped<$int> {
                Swapped(self.swap_bytes())
            }
        }
    )*};
}

swapped! { u16, u32, u64 }

#[cfg(test)]
mod tests;
