//! One token among many, found at the speed of memory: plain loops that compilers turn into vector code.

use crate::door::END_OF_TEXT;
use crate::error::{Error, Result};
use crate::format::{ByteOrder, Dtype, Kind, is_token};

/// The token to look for, as it stands in a file of its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Byte(u8),
    Short(u16),
    Word(u32),
    Long(u64),
}

macro_rules! each_width {
    ($self:expr, $mark:ident => $call:expr) => {
        match $self {
            Mark::Byte($mark) => $call,
            Mark::Short($mark) => $call,
            Mark::Word($mark) => $call,
            Mark::Long($mark) => $call,
        }
    };
}

impl Mark {
    /// `token` in files of `dtype`.
    pub fn new(token: u64, dtype: Dtype) -> Result<Self> {
        let width = dtype.itemsize();
        let signed = matches!(dtype.kind(), Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64);
        let bits = 8 * u32::try_from(width).unwrap_or(0) - u32::from(signed);
        if !is_token(dtype) || token.checked_shr(bits).unwrap_or(0) != 0 {
            return Err(Error::argument(
                END_OF_TEXT.number(token) + format!(" cannot be among tokens of {dtype}"),
                "is it the token of this vocabulary, and the dtype the file's?",
            ));
        }
        let mut bytes = token.to_le_bytes();
        if dtype.byte_order() == ByteOrder::Big {
            bytes[..width].reverse();
        }
        let [a, b, c, d, ..] = bytes;
        Ok(match width {
            1 => Self::Byte(a),
            2 => Self::Short(u16::from_ne_bytes([a, b])),
            4 => Self::Word(u32::from_ne_bytes([a, b, c, d])),
            _ => Self::Long(u64::from_ne_bytes(bytes)),
        })
    }

    /// Bytes of one token.
    pub const fn width(self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Short(_) => 2,
            Self::Word(_) => 4,
            Self::Long(_) => 8,
        }
    }

    /// How often it is among `tokens`.
    pub fn count(self, tokens: &[u8]) -> u64 {
        each_width!(self, mark => mark.count(tokens))
    }

    /// Calls `found` with the place of each, in tokens.
    pub fn each(self, tokens: &[u8], found: &mut dyn FnMut(usize)) {
        each_width!(self, mark => mark.each(tokens, found));
    }
}

trait Number: Copy {
    fn count(self, tokens: &[u8]) -> u64;
    fn each(self, tokens: &[u8], found: &mut dyn FnMut(usize));
}

/// Tokens that are asked at once whether the mark is among them.
const GROUP: usize = 128;

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            fn count(self, tokens: &[u8]) -> u64 {
                // A lane counts as far as its own type can; wrapping, because a check for overflow in every step
                // would keep this from becoming vector code.
                const LANE: usize = if size_of::<$number>() == 1 { 255 } else { 1 << 12 };
                let tokens = tokens.as_chunks().0;
                let count = |part: &[[u8; size_of::<$number>()]]| {
                    let sum = part.iter().fold(0, |sum: $number, token| {
                        sum.wrapping_add(<$number>::from(<$number>::from_ne_bytes(*token) == self))
                    });
                    u64::from(sum)
                };
                tokens.chunks(LANE).map(count).sum()
            }

            fn each(self, tokens: &[u8], found: &mut dyn FnMut(usize)) {
                for (group, bytes) in tokens.chunks(GROUP * size_of::<$number>()).enumerate() {
                    if self.count(bytes) == 0 {
                        continue;
                    }
                    for (i, token) in bytes.as_chunks().0.iter().enumerate() {
                        if <$number>::from_ne_bytes(*token) == self {
                            found(group * GROUP + i);
                        }
                    }
                }
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPES: [&str; 14] =
        ["|u1", "<u2", ">u2", "<u4", ">u4", "<u8", ">u8", "|i1", "<i2", ">i2", "<i4", ">i4", "<i8", ">i8"];

    /// The bytes of a token in a file, written again by hand.
    fn written(token: u64, dtype: Dtype) -> Vec<u8> {
        let mut bytes = token.to_le_bytes()[..dtype.itemsize()].to_vec();
        if dtype.byte_order() == ByteOrder::Big {
            bytes.reverse();
        }
        bytes
    }

    proptest! {
        #[test]
        fn every_mark_is_found_in_every_type(
            dtype in prop::sample::select(TYPES.to_vec()),
            tokens in prop::collection::vec(0_u64..5, 0..3_000),
            shift in 0_u32..7,
        ) {
            let dtype = Dtype::parse(dtype).unwrap();
            // Neighbours of the mark differ from it in one byte only, whichever that is.
            let shift = (8 * shift) % (8 * u32::try_from(dtype.itemsize()).unwrap());
            let token = |t: u64| t << shift;
            let bytes: Vec<u8> = tokens.iter().flat_map(|&t| written(token(t), dtype)).collect();
            let mark = Mark::new(token(3), dtype).unwrap();
            let expected: Vec<usize> = (0..tokens.len()).filter(|&i| tokens[i] == 3).collect();
            let mut found = Vec::new();
            mark.each(&bytes, &mut |i| found.push(i));
            prop_assert_eq!(mark.count(&bytes), expected.len() as u64);
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn many_marks_do_not_overflow_a_lane() {
        for dtype in TYPES.map(|text| Dtype::parse(text).unwrap()) {
            let bytes = vec![1; 100_000 * dtype.itemsize()];
            let token = bytes[..dtype.itemsize()].iter().fold(0, |token, &byte| token << 8 | u64::from(byte));
            assert_eq!(Mark::new(token, dtype).unwrap().count(&bytes), 100_000);
        }
    }

    #[test]
    fn tokens_beyond_a_type_are_refused() {
        for (dtype, largest) in [
            ("uint8", u64::from(u8::MAX)),
            ("int8", 127),
            (">u2", u64::from(u16::MAX)),
            ("int16", 32_767),
            ("uint32", u64::from(u32::MAX)),
            ("int64", i64::MAX as u64),
        ] {
            let dtype = Dtype::parse(dtype).unwrap();
            assert_eq!(Mark::new(largest, dtype).unwrap().width(), dtype.itemsize());
            let message = Mark::new(largest + 1, dtype).unwrap_err().to_string();
            assert!(message.contains(&format!("end_of_text={} cannot be among", largest + 1)), "{message}");
        }
        assert!(Mark::new(u64::MAX, Dtype::parse(">u8").unwrap()).is_ok());
    }
}
