//! Here: that all ways agree, and the numbers of half precision, against the crate `half`. That every pair of types
//! gives NumPy's bits is tested from Python, with NumPy.

use super::*;
use crate::format::ByteOrder::{Big, Little};
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
    Kind::Float32,
    Kind::Float64,
    Kind::BFloat16,
    Kind::Complex64,
    Kind::Complex128,
];

fn dtypes() -> impl Strategy<Value = Dtype> {
    (0..KINDS.len(), any::<bool>())
        .prop_map(|(kind, big)| Dtype::new(KINDS[kind], if big { Big } else { Little }))
}

proptest! {
    /// Any bytes at any address, with vectors and without, beside the elements and at their end: the same bits.
    #[test]
    fn all_ways_agree(
        from in dtypes(), to in dtypes(), count in prop_oneof![0usize..40, 1000usize..3000], skip in 0usize..3, seed: u64,
    ) {
        let Ok(cast) = Cast::new(from, to) else { return Ok(()) };
        let mut state = seed | 1;
        let bytes: Vec<u8> = (0..skip + count * from.itemsize())
            .map(|_| {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                (state >> 56) as u8
            })
            .collect();
        let raw = &bytes[skip..];
        let mut out = vec![0xAA; skip + count * to.itemsize()];
        cast.convert(raw, &mut out[skip..]);
        let whole = &out[skip..];
        let mut plain = vec![0; whole.len()];
        cast.by(Vectors::Baseline).convert(raw, &mut plain);
        prop_assert_eq!(whole, &plain[..], "{:?}", cast);
        if from.itemsize() <= to.itemsize() {
            for vectors in [Vectors::best(), Vectors::Baseline] {
                let mut memory = vec![0; whole.len()];
                let start = memory.len() - raw.len();
                memory[start..].copy_from_slice(raw);
                cast.by(vectors).convert_at_end(&mut memory);
                prop_assert_eq!(whole, &memory[..], "{:?}", cast);
            }
        }
    }
}

#[test]
#[allow(clippy::float_cmp)] // they are the same or they are not
fn every_half_is_the_number_that_it_is() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
    let (single, double) = (Dtype::native(Kind::Float32), Dtype::native(Kind::Float64));
    let half = Dtype::native(Kind::Float16);
    let mut out = vec![0; all.len() * 2];
    Cast::new(half, single).unwrap().convert(&all, &mut out);
    for (bits, cell) in (0..=u16::MAX).zip(out.as_chunks().0) {
        let (got, expected) = (f32::from_ne_bytes(*cell), ::half::f16::from_bits(bits).to_f32_const());
        assert!(got == expected || got.is_nan() && expected.is_nan(), "{bits:#x}: {got}");
        assert_eq!(got.is_sign_negative(), bits >= 0x8000);
        assert!(super::half::double(bits) == f64::from(got) || got.is_nan());
    }
    let mut back = vec![0; all.len()];
    Cast::new(single, half).unwrap().convert(&out, &mut back);
    assert_eq!(back, all, "single and back");
    let mut out = vec![0; all.len() * 4];
    Cast::new(half, double).unwrap().convert(&all, &mut out);
    Cast::new(double, half).unwrap().convert(&out, &mut back);
    assert_eq!(back, all, "double and back");
}

#[test]
fn the_nearest_half_and_the_even_one_of_two() {
    // Between any two neighbours: just below the middle, the middle, and just above it.
    for bits in 0..0x7bff_u16 {
        let (low, high) = (super::half::double(bits), super::half::double(bits + 1));
        let middle = f64::midpoint(low, high);
        let even = bits + (bits & 1);
        for (value, expected) in [(middle.next_down(), bits), (middle, even), (middle.next_up(), bits + 1)] {
            assert_eq!(super::half::of_double(value), expected, "{value:e}");
            assert_eq!(super::half::of_double(-value), expected | 0x8000, "{value:e}");
        }
    }
    for (value, expected) in
        [(65_519.9, 0x7bff), (65_520.0, 0x7c00), (f64::INFINITY, 0x7c00), (1e300, 0x7c00)]
    {
        assert_eq!(super::half::of_double(value), expected);
    }
    assert_eq!(super::half::of_double(f64::MIN_POSITIVE), 0);
}

#[test]
fn what_would_lose_its_nature_is_refused_by_name() {
    let cast = |from, to| Cast::new(Dtype::native(from), Dtype::native(to));
    for (from, to, says) in [
        (Kind::Float32, Kind::Int32, "float32 cannot be read as int32, which would lose the fraction"),
        (Kind::Int8, Kind::UInt64, "the sign"),
        (Kind::Complex64, Kind::Float64, "the imaginary part"),
        (Kind::UInt8, Kind::Bool, "all but whether it is zero"),
    ] {
        let message = cast(from, to).unwrap_err().to_string();
        assert!(message.contains(says) && message.contains("same_kind"), "{message}");
    }
    // A step that rounds and another one are not one step.
    let rounds = cast(Kind::Float64, Kind::Float32).unwrap();
    assert!(rounds.then(Dtype::native(Kind::Float64)).is_none());
    let widens = cast(Kind::Float16, Kind::Float32).unwrap();
    assert_eq!(widens.then(Dtype::native(Kind::Float64)).unwrap().unwrap().from(), widens.from());
    assert!(widens.then(Dtype::native(Kind::Int8)).unwrap().is_err());
}
