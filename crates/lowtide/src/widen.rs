//! From the token ids of a file to the integers that the caller wants: 2 bytes in, 8 bytes out, mostly.
//!
//! In: raw bytes of some [`Dtype`], at any address. Out: [`Token`]s in the caller's own memory. A value that
//! the output cannot hold is an error and never wraps: a wrapped id trains a model on noise.
//!
//! The loops are plain. The compiler makes vector code of them: once for any CPU of the architecture and
//! once for AVX2, which is asked for at run time. On an EPYC (Zen 3), u16 → i64, billion tokens a second,
//! without AVX2 and with it: one window of 1,024 tokens in the first-level cache 5.8 and 12.1; x and y of 12 such
//! windows, in the second, 2.8 and 4.3.

use crate::error::{Error, Result};
use crate::format::{ByteOrder, Dtype, Element, Kind};
use sealed::Int;

/// An integer that tokens can come out as: `i8` to `i64`, `u8` to `u64`.
pub trait Token: Int {}

impl<T: Int> Token for T {}

/// Converts `from`, tokens of `dtype` in its byte order, into `to`. `from` need not be aligned.
///
/// After an error `to` holds nothing of use.
///
/// ```
/// use lowtide::{format::{Dtype, Kind}, widen::widen};
///
/// let mut ids = [0_i64; 2];
/// widen(Dtype::native(Kind::UInt16), &[198, 0, 80, 196], &mut ids)?;
/// assert_eq!(ids, [198, 50_256]);
/// # Ok::<(), lowtide::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] if a value does not fit, if the lengths disagree, or if `dtype` has no integers.
pub fn widen<T: Token>(dtype: Dtype, from: &[u8], to: &mut [T]) -> Result<()> {
    widen_by(Vectors::best(), dtype, from, to)
}

/// The inputs and the targets of a window at once: `from` holds one token more than `x` and `y`; `x` gets
/// all but the last, `y` all but the first.
///
/// Two passes over `from`, which lies in the first-level cache for the second. Loading each token once is no
/// faster, because stores are what it waits for: in a trial of the bare loops on 12 × 1,024, billion tokens
/// a second, 4.5 in two passes, 4.4 in one, 4.1 when `y` is copied from `x`.
///
/// # Errors
/// As [`widen`].
pub fn widen_pair<T: Token>(dtype: Dtype, from: &[u8], x: &mut [T], y: &mut [T]) -> Result<()> {
    widen_pair_by(Vectors::best(), dtype, from, x, y)
}

fn widen_by<T: Token>(vectors: Vectors, dtype: Dtype, from: &[u8], to: &mut [T]) -> Result<()> {
    check_len(dtype, from, Some(to.len()))?;
    if convert(vectors, dtype, from, to)? { Ok(()) } else { Err(misfit::<T>(dtype, from)) }
}

fn widen_pair_by<T: Token>(
    vectors: Vectors,
    dtype: Dtype,
    from: &[u8],
    x: &mut [T],
    y: &mut [T],
) -> Result<()> {
    if x.len() != y.len() {
        return Err(Error::argument(format!("x has {} tokens and y has {}", x.len(), y.len()), ""));
    }
    check_len(dtype, from, x.len().checked_add(1))?;
    let one = dtype.itemsize();
    let fits =
        convert(vectors, dtype, &from[..from.len() - one], x)? && convert(vectors, dtype, &from[one..], y)?;
    if fits { Ok(()) } else { Err(misfit::<T>(dtype, from)) }
}

fn check_len(dtype: Dtype, from: &[u8], tokens: Option<usize>) -> Result<()> {
    if tokens.and_then(|tokens| tokens.checked_mul(dtype.itemsize())) == Some(from.len()) {
        return Ok(());
    }
    let tokens = tokens.map_or("too many".to_owned(), |tokens| tokens.to_string());
    Err(Error::argument(format!("{} bytes are not {tokens} tokens of {dtype}", from.len()), ""))
}

/// Which instructions to use.
#[derive(Clone, Copy, Debug)]
enum Vectors {
    /// What every CPU of this architecture has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// Only ever made where the CPU said that it has AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Vectors {
    fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Baseline
    }
}

/// Converts, and says whether every value fitted. Lengths are right.
fn convert<T: Int>(vectors: Vectors, dtype: Dtype, from: &[u8], to: &mut [T]) -> Result<bool> {
    let big = dtype.byte_order() == ByteOrder::Big;
    Ok(match (dtype.kind(), big) {
        (Kind::UInt8, _) => convert_from::<u8, T, false>(vectors, from, to),
        (Kind::Int8, _) => convert_from::<i8, T, false>(vectors, from, to),
        (Kind::UInt16, false) => convert_from::<u16, T, false>(vectors, from, to),
        (Kind::UInt16, true) => convert_from::<u16, T, true>(vectors, from, to),
        (Kind::Int16, false) => convert_from::<i16, T, false>(vectors, from, to),
        (Kind::Int16, true) => convert_from::<i16, T, true>(vectors, from, to),
        (Kind::UInt32, false) => convert_from::<u32, T, false>(vectors, from, to),
        (Kind::UInt32, true) => convert_from::<u32, T, true>(vectors, from, to),
        (Kind::Int32, false) => convert_from::<i32, T, false>(vectors, from, to),
        (Kind::Int32, true) => convert_from::<i32, T, true>(vectors, from, to),
        (Kind::UInt64, false) => convert_from::<u64, T, false>(vectors, from, to),
        (Kind::UInt64, true) => convert_from::<u64, T, true>(vectors, from, to),
        (Kind::Int64, false) => convert_from::<i64, T, false>(vectors, from, to),
        (Kind::Int64, true) => convert_from::<i64, T, true>(vectors, from, to),
        _ => return Err(not_tokens(dtype)),
    })
}

fn not_tokens(dtype: Dtype) -> Error {
    Error::argument(
        format!("{dtype} is not a type of tokens"),
        "token ids are integers: uint16, or one of uint8, uint32, uint64, int8, int16, int32, int64",
    )
}

fn convert_from<S: Int, T: Int, const BIG: bool>(vectors: Vectors, from: &[u8], to: &mut [T]) -> bool {
    /// The same loop, compiled for AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn each_avx2<S: Int, T: Int, const BIG: bool>(from: &[u8], to: &mut [T]) -> bool {
        each::<S, T, BIG>(from, to)
    }
    match vectors {
        Vectors::Baseline => each::<S, T, BIG>(from, to),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the function is safe but for needing AVX2, and this variant is made only where the CPU has it.
        Vectors::Avx2 => unsafe { each_avx2::<S, T, BIG>(from, to) },
    }
}

/// Bytes of the file that one run of the loop takes. Where both types have one size the compiler makes a
/// `memcpy` of it, and above 2,112 bytes glibc's is a `rep movsb`, which on Zen 3 drops from 50 GB/s to 2
/// when the output lies up to 64 bytes after the input, modulo 4,096. Below, it is 65 wherever they lie.
const PIECE: usize = 2_048;

/// The loop. Whether values fit costs nothing where all of them do, and elsewhere one OR a value: the bits
/// that the output lacks are looked at once, at the end.
#[expect(clippy::inline_always, reason = "has to become part of the function that enables AVX2")]
#[inline(always)]
fn each<S: Int, T: Int, const BIG: bool>(from: &[u8], to: &mut [T]) -> bool {
    let mut seen = S::default();
    let pieces = S::cells(from).chunks(const { PIECE / size_of::<S>() });
    for (from, to) in pieces.zip(to.chunks_mut(const { PIECE / size_of::<S>() })) {
        for (to, &cell) in to.iter_mut().zip(from) {
            let value = if BIG { S::from_be(cell) } else { S::from_le(cell) };
            if const { S::MIN < T::MIN || S::MAX > T::MAX } {
                seen = seen | if const { T::MIN < 0 } { value.fold() } else { value };
            }
            *to = T::truncate(value.extend());
        }
    }
    // What no value may have set: the bits above the output's largest, and the sign. A sign that is allowed
    // has been folded away.
    let sign = if const { S::MIN < 0 } { i64::MIN } else { 0 };
    seen.extend() & (!T::LARGEST | sign) == 0
}

/// Finds the value that did not fit, to name it.
#[cold]
fn misfit<T: Int>(dtype: Dtype, from: &[u8]) -> Error {
    let (size, big) = (dtype.itemsize(), dtype.byte_order() == ByteOrder::Big);
    let signed = matches!(dtype.kind(), Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64);
    let values = from.chunks_exact(size).map(|cell| {
        let append = |value: i128, &byte: &u8| value << 8 | i128::from(byte);
        let value = if big { cell.iter().fold(0, append) } else { cell.iter().rev().fold(0, append) };
        let span = 1_i128 << (8 * size);
        if signed && value >= span / 2 { value - span } else { value }
    });
    let (at, value) =
        values.enumerate().find(|(_, value)| !(T::MIN..=T::MAX).contains(value)).unwrap_or_default();
    let (name, to) = (dtype.name(), Dtype::native(T::KIND).name());
    Error::argument(
        format!("token {value}, number {at} of those read, does not fit in {to}"),
        format!("ask for {name}, which holds every value of this file, if its tokens are {name} at all"),
    )
}

mod sealed {
    use super::Element;
    use std::ops::BitOr;

    /// What the loops need to know of an integer. Bits travel in an `i64`, which costs nothing: the
    /// compiler sees through it.
    pub trait Int: Element + BitOr<Output = Self> {
        /// The smallest value.
        const MIN: i128;
        /// The largest value.
        const MAX: i128;
        /// The bits of the largest value.
        const LARGEST: i64;
        /// Its bytes.
        type Cell: Copy + 'static;

        /// Cuts bytes, a whole number of cells.
        fn cells(bytes: &[u8]) -> &[Self::Cell];
        fn from_le(cell: Self::Cell) -> Self;
        fn from_be(cell: Self::Cell) -> Self;
        /// The same value in 64 bits; of a `u64`, the same bits.
        fn extend(self) -> i64;
        /// The lowest bits.
        fn truncate(bits: i64) -> Self;
        /// Maps a negative value to the one that needs as many bits, −1 to 0 and −128 to 127.
        fn fold(self) -> Self;
    }

    macro_rules! ints {
        ($($int:ident),*) => {$(
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
            #[allow(clippy::cast_lossless, unused_comparisons)] // one macro for all of them
            impl Int for $int {
                const MIN: i128 = $int::MIN as i128;
                const MAX: i128 = $int::MAX as i128;
                const LARGEST: i64 = $int::MAX as i64;
                type Cell = [u8; size_of::<$int>()];

                #[inline]
                fn cells(bytes: &[u8]) -> &[Self::Cell] {
                    bytes.as_chunks().0
                }
                #[inline]
                fn from_le(cell: Self::Cell) -> Self {
                    $int::from_le_bytes(cell)
                }
                #[inline]
                fn from_be(cell: Self::Cell) -> Self {
                    $int::from_be_bytes(cell)
                }
                #[inline]
                fn extend(self) -> i64 {
                    self as i64
                }
                #[inline]
                fn truncate(bits: i64) -> Self {
                    bits as $int
                }
                #[inline]
                fn fold(self) -> Self {
                    // The sign in every bit; an unsigned number has none.
                    self ^ if $int::MIN < 0 { self >> ($int::BITS - 1) } else { 0 }
                }
            }
        )*};
    }

    ints! { u8, u16, u32, u64, i8, i16, i32, i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Debug;

    const KINDS: [Kind; 8] = [
        Kind::UInt8,
        Kind::Int8,
        Kind::UInt16,
        Kind::Int16,
        Kind::UInt32,
        Kind::Int32,
        Kind::UInt64,
        Kind::Int64,
    ];

    /// Every way this machine has.
    fn ways() -> [Vectors; 2] {
        [Vectors::best(), Vectors::Baseline]
    }

    /// `values` as a file of `dtype` has them, after `skip` bytes that put them at an odd address.
    fn file(dtype: Dtype, values: &[i128], skip: usize) -> Vec<u8> {
        let mut bytes = vec![0xAA; skip];
        for value in values {
            let whole = value.to_le_bytes();
            let cell = &whole[..dtype.itemsize()];
            match dtype.byte_order() {
                ByteOrder::Little => bytes.extend(cell),
                ByteOrder::Big => bytes.extend(cell.iter().rev()),
            }
        }
        bytes
    }

    /// The oracle: the standard library's conversion, value by value.
    fn agrees<T>(dtype: Dtype, values: &[i128], skip: usize)
    where
        T: Token + TryFrom<i128> + PartialEq + Debug,
    {
        let bytes = file(dtype, values, skip);
        let expected: Option<Vec<T>> = values.iter().map(|&value| T::try_from(value).ok()).collect();
        for way in ways() {
            let mut got = vec![T::default(); values.len()];
            let result = widen_by(way, dtype, &bytes[skip..], &mut got);
            match &expected {
                Some(expected) => {
                    result.unwrap();
                    assert_eq!(&got, expected, "{way:?} {dtype:?}");
                }
                None => names_the_first::<T>(&result.unwrap_err(), values),
            }
            let Some(block) = values.len().checked_sub(1) else { continue };
            let (mut x, mut y) = (vec![T::default(); block], vec![T::default(); block]);
            let result = widen_pair_by(way, dtype, &bytes[skip..], &mut x, &mut y);
            match &expected {
                Some(expected) => {
                    result.unwrap();
                    assert_eq!((&x[..], &y[..]), (&expected[..block], &expected[1..]), "{way:?} {dtype:?}");
                }
                // A window of no tokens has one in the file, which nobody asked for.
                None if block == 0 => result.unwrap(),
                None => names_the_first::<T>(&result.unwrap_err(), values),
            }
        }
    }

    fn names_the_first<T: TryFrom<i128>>(error: &Error, values: &[i128]) {
        let at = values.iter().position(|&value| T::try_from(value).is_err()).unwrap();
        let (message, says) = (error.to_string(), format!("token {}, number {at} of", values[at]));
        assert!(message.contains(&says), "{message}: {says}");
    }

    fn agrees_for_every_output(dtype: Dtype, values: &[i128], skip: usize) {
        agrees::<u8>(dtype, values, skip);
        agrees::<i8>(dtype, values, skip);
        agrees::<u16>(dtype, values, skip);
        agrees::<i16>(dtype, values, skip);
        agrees::<u32>(dtype, values, skip);
        agrees::<i32>(dtype, values, skip);
        agrees::<u64>(dtype, values, skip);
        agrees::<i64>(dtype, values, skip);
    }

    /// Brings any number into the range of `kind`, by losing its high bits.
    fn within(kind: Kind, value: i128) -> i128 {
        let span = 1 << (8 * kind.itemsize());
        let value = value.rem_euclid(span);
        let signed = matches!(kind, Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64);
        if signed && value >= span / 2 { value - span } else { value }
    }

    fn dtypes() -> impl Strategy<Value = Dtype> {
        (0..KINDS.len(), any::<bool>()).prop_map(|(kind, big)| {
            Dtype::new(KINDS[kind], if big { ByteOrder::Big } else { ByteOrder::Little })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The values of a file are as wide as `bits`, so that narrow outputs hold all of them often; one of
        /// them is any value, sometimes, so that it is the one that does not fit.
        #[test]
        fn as_one_by_one(
            dtype in dtypes(), bits in 0..=64_u32, down in 0..2_i128, odd in proptest::option::of(any::<i64>()),
            raw in proptest::collection::vec(any::<u64>(), 0..300), skip in 0_usize..9,
        ) {
            let (span, kind) = (1_i128 << bits, dtype.kind());
            let mut values: Vec<i128> = raw
                .iter()
                .map(|&raw| within(kind, i128::from(raw) % span - down * (span / 2)))
                .collect();
            if let (Some(odd), true) = (odd, values.len() > 1) {
                let at = usize::try_from(raw[0] % values.len() as u64).unwrap();
                values[at] = within(kind, i128::from(odd));
            }
            agrees_for_every_output(dtype, &values, skip);
        }
    }

    /// Each limit of each type and its neighbours, alone and at the end of a long row, in every file.
    #[test]
    fn the_limits() {
        for kind in KINDS {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let dtype = Dtype::new(kind, order);
                let limits = [7, 8, 15, 16, 31, 32, 63, 64].map(|bits| 1_i128 << bits);
                let near = limits.iter().flat_map(|&limit| [limit, -limit]).chain([0]);
                for value in near.flat_map(|limit| [limit - 1, limit, limit + 1]) {
                    if within(kind, value) == value {
                        agrees_for_every_output(dtype, &[value], 0);
                        for len in [2, 33, 64, 257] {
                            let mut values = vec![1; len];
                            values[len - 1] = value;
                            agrees_for_every_output(dtype, &values, 1);
                        }
                    }
                }
            }
        }
    }

    /// For the first lines of this file: `cargo test --release vectors_compared -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement, not a test"]
    fn vectors_compared() {
        const BLOCK: usize = 1_024;
        let dtype = Dtype::native(Kind::UInt16);
        let from = vec![0; 12 * (BLOCK + 1) * 2];
        let (mut x, mut y) = (vec![0_i64; 12 * BLOCK + 8], vec![0_i64; 12 * BLOCK + 8]);
        let (at_x, at_y) = (x.as_ptr().align_offset(64), y.as_ptr().align_offset(64));
        for (name, windows) in [("one window", 1), ("x and y of 12", 12)] {
            // Turn by turn, because somebody else's work on this machine comes and goes.
            let mut best = [f64::INFINITY; 2];
            for turn in 0..400 {
                let start = std::time::Instant::now();
                for _ in 0..200 / windows {
                    let outputs = x[at_x..].chunks_exact_mut(BLOCK).zip(y[at_y..].chunks_exact_mut(BLOCK));
                    for (from, (x, y)) in from.chunks_exact((BLOCK + 1) * 2).zip(outputs).take(windows) {
                        let from = std::hint::black_box(from);
                        if windows == 1 {
                            widen_by(ways()[turn % 2], dtype, &from[2..], x).unwrap();
                        } else {
                            widen_pair_by(ways()[turn % 2], dtype, from, x, y).unwrap();
                        }
                    }
                }
                let tokens = (200 / windows * windows * BLOCK) as f64;
                best[turn % 2] = best[turn % 2].min(start.elapsed().as_secs_f64() * 1e9 / tokens);
            }
            println!("{name}: {:?} {:.1}, {:?} {:.1}", ways()[1], 1.0 / best[1], ways()[0], 1.0 / best[0]);
        }
    }

    #[track_caller]
    fn refused(result: Result<()>, message: &str) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error:?}");
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let little = |kind| Dtype::new(kind, ByteOrder::Little);
        refused(
            widen(little(Kind::UInt32), &[1, 0, 0, 0, 0x70, 0x11, 1, 0], &mut [0_u16; 2]),
            "token 70000, number 1 of those read, does not fit in uint16\n\
             hint: ask for uint32, which holds every value of this file, if its tokens are uint32 at all",
        );
        refused(
            widen_pair(little(Kind::Int16), &[1, 0, 2, 0, 0xFF, 0xFF], &mut [0_u64; 2], &mut [0; 2]),
            "token -1, number 2 of those read, does not fit in uint64\n\
             hint: ask for int16, which holds every value of this file, if its tokens are int16 at all",
        );
        refused(
            widen(Dtype::new(Kind::UInt64, ByteOrder::Big), &[128, 0, 0, 0, 0, 0, 0, 1], &mut [0_i64]),
            "token 9223372036854775809, number 0 of those read, does not fit in int64\n\
             hint: ask for uint64, which holds every value of this file, if its tokens are uint64 at all",
        );
        for kind in [Kind::Bool, Kind::Float16, Kind::BFloat16, Kind::Float32, Kind::Float64, Kind::Complex64]
        {
            let message = widen::<i64>(little(kind), &[], &mut []).unwrap_err().to_string();
            assert!(message.contains("is not a type of tokens"), "{message}");
        }
    }

    #[test]
    fn lengths_have_to_agree() {
        let dtype = Dtype::native(Kind::UInt16);
        refused(widen(dtype, &[0; 5], &mut [0_i64; 2]), "5 bytes are not 2 tokens of uint16");
        refused(widen(dtype, &[0; 2], &mut [0_i64; 2]), "2 bytes are not 2 tokens of uint16");
        let pair =
            |bytes: &[u8], x: usize, y: usize| widen_pair(dtype, bytes, &mut vec![0_i64; x], &mut vec![0; y]);
        refused(pair(&[0; 6], 2, 1), "x has 2 tokens and y has 1");
        refused(pair(&[0; 4], 2, 2), "4 bytes are not 3 tokens of uint16");
        refused(pair(&[], 0, 0), "0 bytes are not 1 tokens of uint16");
        pair(&[0; 2], 0, 0).unwrap();
    }
}
