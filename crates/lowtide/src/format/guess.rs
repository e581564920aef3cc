//! What bare tokens look like where uint16 is only our guess.
//!
//! In: a sample of the file's bytes. Out: the type that they look like, if not like uint16. A guess of the wrong
//! width or byte order trains on noise without a word, so everything here ends in a warning, never in an error.
//!
//! A stream of tokens is the same whether it is counted from an odd token or from an even one. So where all of
//! the odd ones are 0 and many of the even ones are not, these are halves of something wider; that holds however
//! much of it is padding. The two bytes of a token are not alike: the lower one is any, the upper one is bounded
//! by the vocabulary and mostly small. Where it is the other way round, the bytes are swapped; where both are
//! alike, each is a token of its own.

/// So many numbers must speak for a width: a chance of 2^-24 that they do by accident.
const ENOUGH: usize = 24;

/// So few are enough in a long sample that is padding else. The tokens of a document stand beside each other: in uint16
/// they are in odd places, too.
const FEW: usize = 3;

/// A sample of so many numbers is long.
const LONG: usize = 512;

/// No vocabulary has a million tokens: the upper half of 32 bits is below this.
const SMALL: u16 = 16;

/// The least number of tokens whose bytes are compared. Of real GPT-2 tokens in samples of 512, the two bytes
/// differ in 0.63 of the cases or more (half the sum of the differences of their frequencies), those of a
/// text's characters as uint8 in 0.35 or fewer.
const LEAST: usize = 512;

/// The name of the type that `sample`, from a file of `len` bytes that is read as uint16, looks like. Whole groups
/// of 8 bytes are looked at, and the sample begins at a multiple of 8 in the file.
pub(crate) fn other_than_uint16(sample: &[u8], len: u64) -> Option<&'static str> {
    let groups: &[[u8; 8]] = sample.as_chunks().0;
    // Reversed, numbers of 2, 4 and 8 bytes all stand as a little-endian machine writes them.
    let swapped = groups.iter().map(|group| halves(u64::from_be_bytes(*group)));
    wider(groups.iter().map(|group| halves(u64::from_le_bytes(*group))), len)
        .map(|width| width.names()[0])
        .or_else(|| wider(swapped, len).map(|width| width.names()[1]))
        .or_else(|| by_bytes(groups.as_flattened().as_chunks().0))
        .or_else(|| is_plain_text(groups.as_flattened()).then_some("uint8"))
}

/// Whether a file of `len` bytes begins like numbers wider than uint16: what its first bytes tell, which are read anyway.
pub(crate) fn begins_wider(head: &[u8], len: u64) -> bool {
    let groups: &[[u8; 8]] = head.as_chunks().0;
    wider(groups.iter().map(|group| halves(u64::from_le_bytes(*group))), len).is_some()
        || wider(groups.iter().map(|group| halves(u64::from_be_bytes(*group))), len).is_some()
}

/// Text that is too short or too monotonous to be refused: letters, and what stands between words or lines. One token that
/// is repeated can be two letters, several hardly: in a vocabulary of 50,257, one of 5 tokens is two such bytes.
fn is_plain_text(sample: &[u8]) -> bool {
    let letter = |byte: u8| byte.is_ascii_graphic() || matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let mut tokens = sample.as_chunks::<2>().0.to_vec();
    tokens.sort_unstable();
    tokens.dedup();
    tokens.len() >= 3
        && sample.iter().all(|&byte| letter(byte))
        && sample.iter().any(u8::is_ascii_whitespace)
        && sample.iter().any(u8::is_ascii_alphabetic)
}

/// The lowest first.
#[allow(clippy::cast_possible_truncation)] // that is what a half is
fn halves(group: u64) -> [u16; 4] {
    [0, 16, 32, 48].map(|bits| (group >> bits) as u16)
}

enum Width {
    Four { negative: bool },
    Eight,
}

impl Width {
    /// Little-endian and big-endian.
    fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Four { negative: false } => ["uint32", ">u4"],
            Self::Four { negative: true } => ["int32", ">i4"],
            Self::Eight => ["int64", ">i8"],
        }
    }
}

/// What speaks for numbers of a width, and whether something speaks against it.
#[derive(Default)]
struct Tally {
    impossible: bool,
    /// Whether an upper half is not 0: the vocabulary is large, or this is not the width.
    large: bool,
    negative: bool,
    numbers: usize,
    /// Numbers that are not 0, and those that are not small.
    not_zero: usize,
    not_small: usize,
}

impl Tally {
    /// One number, by its two lowest halves, and by those above them, which are all the same.
    fn add(&mut self, low: u16, high: u16, above: Option<u16>) {
        self.numbers += 1;
        // Small ones, such as the -100 that a loss ignores.
        if high == u16::MAX && above.is_none_or(|above| above == u16::MAX) && low >= 0xff00 {
            self.negative = true;
            // -1 is all ones in every width, and says nothing.
            self.not_zero += usize::from(low != u16::MAX);
            self.not_small += usize::from(low != u16::MAX);
            return;
        }
        self.impossible |= high >= SMALL || above.is_some_and(|above| above != 0);
        self.large |= high != 0;
        self.not_zero += usize::from(low != 0);
        self.not_small += usize::from(low >= SMALL);
    }

    /// Whether it is the width. Where upper halves are not 0, only those that are not small count below: a small
    /// vocabulary has small numbers in both places.
    fn is_it(&self) -> bool {
        let (speak, enough) = match self {
            Self { large: true, .. } => (self.not_small, ENOUGH),
            Self { negative: false, numbers: LONG.., .. } => (self.not_zero, FEW),
            _ => (self.not_zero, ENOUGH),
        };
        !self.impossible && speak >= enough
    }
}

/// The width of numbers whose halves these are, if more than 2 bytes.
fn wider(groups: impl Iterator<Item = [u16; 4]>, len: u64) -> Option<Width> {
    let (mut four, mut eight) = (Tally::default(), Tally::default());
    for [a, b, c, d] in groups {
        four.add(a, b, None);
        four.add(c, d, None);
        eight.impossible |= c != d;
        eight.add(a, b, Some(c));
    }
    match len {
        len if len.is_multiple_of(8) && eight.is_it() => Some(Width::Eight),
        len if len.is_multiple_of(4) && four.is_it() => Some(Width::Four { negative: four.negative }),
        _ => None,
    }
}

/// uint8 or big-endian uint16, by how often each byte is the lower and the upper one of a token.
fn by_bytes(tokens: &[[u8; 2]]) -> Option<&'static str> {
    let (mut lower, mut upper) = ([0_usize; 256], [0_usize; 256]);
    let padding = most_common(tokens)?;
    for [low, high] in tokens.iter().filter(|&&token| token != padding) {
        lower[usize::from(*low)] += 1;
        upper[usize::from(*high)] += 1;
    }
    let count: usize = lower.iter().sum();
    if count < LEAST {
        return None;
    }
    let sum =
        |of: fn(usize, usize) -> usize| lower.iter().zip(&upper).map(|(&l, &u)| of(l, u)).sum::<usize>();
    let different = |bytes: &[usize; 256]| bytes.iter().filter(|&&n| n > 0).count();
    // Half the sum of the differences, against 0.4 of all. Numbers that are drawn evenly are alike in both bytes and
    // nothing is known of them: those that people say are as if there were fewer than 100.
    let alike = sum(usize::abs_diff) * 10 < 2 * count * 4;
    let uneven = sum(|l, u| (l + u) * (l + u)) * 100 >= (2 * count) * (2 * count);
    if alike && uneven && different(&upper) >= 8 {
        return Some("uint8");
    }
    // In samples of real tokens there are at least as many different lower bytes as upper ones; swapped, at most
    // 0.84 times as many in 1,024 tokens.
    (!alike && different(&upper) >= 8 && different(&lower) * 10 < different(&upper) * 9).then_some(">u2")
}

/// The token that is there most often: padding, where there is any.
fn most_common(tokens: &[[u8; 2]]) -> Option<[u8; 2]> {
    let mut sorted = tokens.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).max_by_key(|run| run.len())?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The types that a stream is written in.
    const TYPES: [&str; 9] = ["uint8", "uint16", "uint32", "int32", "int64", ">u2", ">u4", ">i4", ">i8"];

    /// Numbers as a file of a type has them.
    fn written(tokens: &[i64], dtype: &str) -> Vec<u8> {
        let width = match dtype {
            "uint8" => 1,
            "uint16" | ">u2" => 2,
            "uint32" | "int32" | ">u4" | ">i4" => 4,
            _ => 8,
        };
        let bytes = tokens.iter().flat_map(|token| {
            let mut bytes = token.to_le_bytes()[..width].to_vec();
            if dtype.starts_with('>') {
                bytes.reverse();
            }
            bytes
        });
        bytes.collect()
    }

    /// As people's tokens are: the number k about as often as 1/k, in an order that the vocabulary mixes a little,
    /// with runs of padding between documents.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
    fn stream(vocabulary: i64, padding: Option<i64>, padded: f64, seed: u64, len: usize) -> Vec<i64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1_u64 << 24) as f64
        };
        let mut tokens = Vec::new();
        while tokens.len() < len {
            let document = 20 + (next() * 200.0) as usize;
            for _ in 0..document {
                let rank = (vocabulary as f64).powf(next()) as i64;
                tokens.push((rank * 7 + rank / 3) % vocabulary);
            }
            if let Some(padding) = padding {
                let run = document as f64 * padded / (1.0 - padded);
                tokens.extend(std::iter::repeat_n(padding, run as usize));
            }
        }
        tokens.truncate(len);
        tokens
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// uint16 is never taken for anything else, whatever the vocabulary and the padding.
        #[test]
        fn true_uint16_is_left_alone(
            vocabulary in prop::sample::select(vec![2, 4, 17, 20, 65, 100, 255, 256, 300, 1_000, 8_192, 32_000, 50_257, 65_536]),
            padding in prop::option::of(prop::sample::select(vec![0, 1, 8_224, 16_705, 50_256, 65_535])),
            padded in 0.0..0.97,
            seed in any::<u64>(),
            len in 1_usize..8_000,
        ) {
            let sample = written(&stream(vocabulary, padding, padded, seed, len), "uint16");
            prop_assert_eq!(other_than_uint16(&sample, sample.len() as u64), None);
        }

        /// The others are seen, however much is padding, where there is enough to see.
        #[test]
        fn other_types_are_seen(
            dtype in prop::sample::select(TYPES.to_vec()),
            vocabulary in prop::sample::select(vec![32_i64, 65, 100, 1_000, 32_000, 50_257, 128_256, 256_000]),
            padding in prop::sample::select(vec![None, Some(0), Some(-100), Some(-1), Some(2)]),
            padded in 0.0..0.9,
            seed in any::<u64>(),
        ) {
            let most = match dtype { "uint8" => 256, "uint16" | ">u2" => 65_536, _ => i64::MAX };
            let signed = dtype.contains('i') && !dtype.starts_with('u');
            prop_assume!(vocabulary <= most && (signed || padding.is_none_or(|id| id >= 0)));
            let tokens = stream(vocabulary, padding, padded, seed, 12_288);
            let sample = written(&tokens, dtype);
            let len = sample.len() as u64;
            let sample = &sample[..sample.len().min(12_288)];
            let seen = other_than_uint16(sample, len);
            let negative = tokens.iter().take(sample.len() / 4).any(|&id| id < 0);
            let expected = match dtype {
                "uint16" => None,
                "int32" if !negative => Some("uint32"), // the same bytes
                ">i4" if !negative => Some(">u4"),
                dtype => Some(dtype),
            };
            prop_assert_eq!(seen, expected);
        }

        /// Any bytes at all are an answer or none, and never a panic.
        #[test]
        fn any_bytes(sample in prop::collection::vec(any::<u8>(), 0..4_096), len in any::<u64>()) {
            other_than_uint16(&sample, len);
        }
    }

    #[test]
    fn a_few_numbers_among_padding_are_seen() {
        for (dtype, named) in [("uint32", "uint32"), ("int64", "int64"), (">u4", ">u4"), (">i8", ">i8")] {
            let mut tokens = vec![0; 1_000];
            tokens[500..503].copy_from_slice(&[464, 2068, 7586]);
            let sample = written(&tokens, dtype);
            assert_eq!(other_than_uint16(&sample, sample.len() as u64), Some(named), "three");
            tokens[501..503].fill(0);
            let sample = written(&tokens, dtype);
            assert_eq!(other_than_uint16(&sample, sample.len() as u64), None, "one could be any token");
        }
        // A document of three tokens in uint16, wherever it begins.
        for at in 500..504 {
            let mut tokens = vec![0; 2_000];
            tokens[at..at + 3].copy_from_slice(&[464, 2068, 7586]);
            let sample = written(&tokens, "uint16");
            assert_eq!(other_than_uint16(&sample, sample.len() as u64), None, "at {at}");
        }
    }

    #[test]
    fn short_and_monotonous_text_is_seen() {
        for (text, times) in [("hello world\n", 1), ("hello ", 500), ("a\r\nb\r\n", 300), ("ab cd ", 2)] {
            let sample = text.repeat(times).into_bytes();
            let sample = &sample[..sample.len() / 8 * 8];
            assert_eq!(other_than_uint16(sample, sample.len() as u64), Some("uint8"), "{text:?}");
        }
        // Two letters again and again may be one token, and padding behind it another.
        let padded = [b"ab".repeat(40), b"  ".repeat(40)].concat();
        assert_eq!(other_than_uint16(&padded, padded.len() as u64), None);
    }

    #[test]
    fn what_says_nothing_is_left_alone() {
        for (tokens, why) in [
            (vec![0; 4_096], "a sparse file"),
            (vec![0x4141; 4_096], "one token"),
            (vec![0xffff; 4_096], "one token that is all ones"),
        ] {
            let sample = written(&tokens, "uint16");
            assert_eq!(other_than_uint16(&sample, sample.len() as u64), None, "{why}");
        }
        let llama = written(&stream(128_256, None, 0.0, 1, 4_096), "uint32");
        assert_eq!(other_than_uint16(&llama[..64], llama.len() as u64), None, "too little to tell");
        assert_eq!(other_than_uint16(&llama, llama.len() as u64 + 2), None, "no whole number of them");
    }
}
