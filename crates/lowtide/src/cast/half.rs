//! Half precision and bfloat16: bits that Rust has no number for.
//!
//! Everything rounds to the nearest, to the even one of two. NaNs keep their sign and the highest bits of what they
//! carry, as NumPy's do. The processor's own instructions (F16C) agree but for signalling NaNs, which they make quiet:
//! so they are for pieces without a NaN.

/// The value of a number in half precision. Without a branch: the compiler makes vectors of it.
#[inline]
pub(super) fn single(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let bits = u32::from(half & 0x7fff) << 13;
    let exponent = bits & (0x1f << 23);
    // The exponent's zero is 15 in a half, 127 in a single; what is smaller than normal has lost its leading 1.
    let normal = bits + (112 << 23);
    let infinite = bits + (224 << 23);
    let tiny = (f32::from_bits(bits + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let special = exponent == 0x1f << 23;
    let magnitude = if special { infinite } else { normal };
    f32::from_bits(sign | if exponent == 0 { tiny } else { magnitude })
}

/// The same in double precision.
#[inline]
pub(super) fn double(half: u16) -> f64 {
    let value = f64::from(single(half));
    // The processor makes a signalling NaN quiet as it becomes wider.
    let nan = u64::from(half & 0x8000) << 48 | 0x7ff << 52 | u64::from(half & 0x3ff) << 42;
    if half & 0x7fff > 0x7c00 { f64::from_bits(nan) } else { value }
}

/// The nearest number in half precision.
#[inline]
pub(super) fn of_single(value: f32) -> u16 {
    let bits = value.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return nan((bits >> 16) & 0x8000, (bits >> 13) & 0x3ff);
    }
    of_double(f64::from(value))
}

/// The same of a number in double precision, rounded once.
#[inline]
pub(super) fn of_double(value: f64) -> u16 {
    const INFINITE: u64 = 0x7ff << 52;
    let sign = u16::from(value.is_sign_negative()) << 15;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let half = if bits > INFINITE {
        return nan(u32::from(sign), low(bits >> 42) & 0x3ff);
    } else if magnitude >= 65_536.0 {
        0x7c00
    } else if magnitude < f64::from_bits((1023 - 14) << 52) {
        // A whole number of the smallest steps there are: 2^-24.
        whole((magnitude * f64::from_bits((1023 + 24) << 52)).round_ties_even())
    } else {
        let half = bits - ((1023 - 15) << 52);
        low((half + ((1 << 41) - 1) + ((half >> 42) & 1)) >> 42) // up to infinity, where it has to be
    };
    sign | u16::try_from(half).unwrap_or(0x7c00)
}

fn low(bits: u64) -> u32 {
    u32::try_from(bits & 0xffff_ffff).unwrap_or(0)
}

fn nan(sign: u32, carried: u32) -> u16 {
    u16::try_from(sign | 0x7c00 | carried.max(1)).unwrap_or(0x7e00)
}

/// A small whole number, as an integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // it is one, and not negative
fn whole(number: f64) -> u32 {
    number as u32
}

/// The value of a bfloat16: the upper half of a single.
#[inline]
pub(super) fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bfloat16. All NaNs are one, but for their sign, as in `ml_dtypes`.
#[inline]
pub(super) fn brain_of_single(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
    let nan = (bits >> 16) & 0x8000 | 0x7fc0;
    u16::try_from(if value.is_nan() { nan } else { rounded }).unwrap_or(0)
}

/// Eight at a time. Says whether there was no NaN: otherwise they are to be converted again, one by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn to_single(raw: &[u8], out: &mut [u8]) -> bool {
    use std::arch::x86_64::{
        _mm_and_si128, _mm_cmpgt_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi16,
        _mm_setzero_si128, _mm256_cvtph_ps, _mm256_storeu_ps,
    };
    let (eights, rest) = raw.as_chunks::<16>();
    let (outs, last) = out.as_chunks_mut::<32>();
    let (magnitude, infinite, mut nans) =
        (_mm_set1_epi16(0x7fff), _mm_set1_epi16(0x7c00), _mm_setzero_si128());
    for (out, eight) in outs.iter_mut().zip(eights) {
        // SAFETY: both are arrays of a vector's size, and need not be aligned.
        unsafe {
            let halves = _mm_loadu_si128(eight.as_ptr().cast());
            nans = _mm_or_si128(nans, _mm_cmpgt_epi16(_mm_and_si128(halves, magnitude), infinite));
            _mm256_storeu_ps(out.as_mut_ptr().cast(), _mm256_cvtph_ps(halves));
        }
    }
    super::number::each::<super::Half, f32>(rest, last);
    _mm_movemask_epi8(nans) == 0
}

/// Eight at a time. Says whether there was no NaN: otherwise they are to be converted again, one by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
pub(super) fn from_single(raw: &[u8], out: &mut [u8]) -> bool {
    use std::arch::x86_64::{
        _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cmp_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_movemask_ps, _mm256_or_ps, _mm256_setzero_ps,
    };
    let (eights, rest) = raw.as_chunks::<32>();
    let (outs, last) = out.as_chunks_mut::<16>();
    let mut nans = _mm256_setzero_ps();
    for (out, eight) in outs.iter_mut().zip(eights) {
        // SAFETY: both are arrays of a vector's size, and need not be aligned.
        unsafe {
            let singles = _mm256_loadu_ps(eight.as_ptr().cast());
            nans = _mm256_or_ps(nans, _mm256_cmp_ps::<_CMP_UNORD_Q>(singles, singles));
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(singles));
        }
    }
    super::number::each::<f32, super::Half>(rest, last);
    _mm256_movemask_ps(nans) == 0
}
