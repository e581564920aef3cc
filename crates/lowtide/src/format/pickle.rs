//! Whether bytes are a Python pickle of protocol 2 or newer, by its instructions. Pure; nothing is ever unpickled.
//!
//! In: the beginning of a file behind the two bytes of the protocol, and how many bytes follow those in all. Tokens 640,
//! 896, 1152 and 1408 of a vocabulary are the same two bytes, so one instruction that is possible is not enough: all of the beginning has
//! to be instructions that Python writes, with as many things on the stack as each takes, what is remembered numbered one
//! after another, and the end at the end of the file.

/// Deeper than this is no nested list, but one byte that is repeated.
const DEEP: usize = 64;

/// So many bytes of a text that goes on behind the beginning must be text.
const ENOUGH_TEXT: usize = 64;

/// Longer names than this are one byte that is repeated.
const NAMES: usize = 200;

/// What may stand behind something long that is the whole pickle: it is remembered, and the end.
const END: [u64; 3] = [1, 3, 6];

/// What an instruction does to the stack.
enum Effect {
    /// Takes so many things, and leaves so many.
    Turns(usize, usize),
    /// Takes all down to the mark, and leaves so many.
    Collects(usize),
    Mark,
    /// Remembers the last thing, by this number or by the next one.
    Remember(Option<u64>),
    /// What was remembered.
    Recall(u64),
    Stop,
}
use Effect::{Collects, Mark, Recall, Remember, Stop, Turns};

/// Something with its length in front: how many bytes that length has, and whether it is text.
struct Long {
    header: usize,
    len: u64,
    text: bool,
}

/// Whether `body`, of `len` bytes of which the first are here, is the rest of a pickle.
pub(super) fn goes_on(body: &[u8], len: u64) -> bool {
    let (mut at, mut remembered) = (0_usize, 0_u64);
    // How many things are there above each mark.
    let mut stack = vec![0_usize];
    while let Some(&code) = body.get(at) {
        let rest = &body[at + 1..];
        if let Some(long) = long(code, rest) {
            let Some(begin) = rest.get(long.header..) else { break };
            let begins = (at + 1 + long.header) as u64;
            let Some(end) = begins.checked_add(long.len).filter(|&end| end < len) else { return false };
            let here = &begin[..begin.len().min(usize::try_from(long.len).unwrap_or(usize::MAX))];
            if long.text && !is_text(here, here.len() as u64 == long.len) {
                return false;
            }
            if end > body.len() as u64 {
                return long.text && here.len() >= ENOUGH_TEXT || END.contains(&(len - end));
            }
            at = usize::try_from(end).unwrap_or(usize::MAX);
            if !push(&mut stack) {
                return false;
            }
            continue;
        }
        let Some((argument, effect)) = instruction(code, rest) else { return false };
        at += 1 + argument;
        let Some(top) = stack.last_mut() else { return false };
        match effect {
            Turns(takes, leaves) => {
                let Some(left) = top.checked_sub(takes) else { return false };
                *top = left;
                if !(0..leaves).all(|_| push(&mut stack)) {
                    return false;
                }
            }
            Collects(leaves) => {
                if stack.len() < 2 {
                    return false;
                }
                stack.pop();
                // A list, a dict or a set is below the mark, and what was collected goes into it.
                if leaves == 0 && stack.last() == Some(&0) || !(0..leaves).all(|_| push(&mut stack)) {
                    return false;
                }
            }
            Mark => {
                stack.push(0);
                if stack.len() > DEEP {
                    return false;
                }
            }
            Remember(number) => {
                if number.is_some_and(|number| number != remembered) || *top == 0 {
                    return false;
                }
                remembered += 1;
            }
            Recall(number) => {
                if number >= remembered || !push(&mut stack) {
                    return false;
                }
            }
            Stop => return at as u64 == len && stack == [1],
        }
    }
    // The end is not here: then more of it has to be, and all that was here was possible.
    len > body.len() as u64 && body.len() >= 2 * ENOUGH_TEXT
}

/// One more thing; whether that can be. A tuple between marks may have any number of them.
fn push(stack: &mut [usize]) -> bool {
    let marked = stack.len() > 1;
    let Some(top) = stack.last_mut() else { return false };
    *top += 1;
    marked || *top <= DEEP
}

/// Padding is valid UTF-8, too, but no text.
fn is_text(bytes: &[u8], whole: bool) -> bool {
    let utf8 =
        std::str::from_utf8(bytes).map_or_else(|error| !whole && error.error_len().is_none(), |_| true);
    utf8 && !bytes.contains(&0)
}

fn long(code: u8, rest: &[u8]) -> Option<Long> {
    let (header, text) = match code {
        b'X' => (4, true),
        b'B' | b'T' | 0x8b => (4, false),
        0x8c => (1, true),
        b'C' | b'U' | 0x8a => (1, false),
        _ => return None,
    };
    let mut bytes = [0; 8];
    let told = &rest[..rest.len().min(header)];
    bytes[..told.len()].copy_from_slice(told);
    Some(Long { header, len: u64::from_le_bytes(bytes), text })
}

/// How many bytes an instruction has behind it, and what it does. Only those that protocols from 2 on are written with.
fn instruction(code: u8, rest: &[u8]) -> Option<(usize, Effect)> {
    let byte = || u64::from(rest.first().copied().unwrap_or(0));
    let four = || u64::from(rest.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
    Some(match code {
        b'N' | b']' | b'}' | b')' | 0x88 | 0x89 | 0x8f => (0, Turns(0, 1)),
        b'K' => (1, Turns(0, 1)),
        b'M' => (2, Turns(0, 1)),
        b'J' => (4, Turns(0, 1)),
        b'G' => (8, Turns(0, 1)),
        b'c' => (names(rest)?, Turns(0, 1)),
        b'(' => (0, Mark),
        b'e' | b'u' | 0x90 => (0, Collects(0)),
        b't' | 0x91 => (0, Collects(1)),
        b'Q' | 0x85 => (0, Turns(1, 1)),
        b'a' | b'b' | b'R' | 0x81 | 0x86 | 0x93 => (0, Turns(2, 1)),
        b's' | 0x87 | 0x92 => (0, Turns(3, 1)),
        b'q' => (1, Remember(Some(byte()))),
        b'r' => (4, Remember(Some(four()))),
        0x94 => (0, Remember(None)),
        b'h' => (1, Recall(byte())),
        b'j' => (4, Recall(four())),
        b'.' => (0, Stop),
        _ => return None,
    })
}

/// `module\nname\n`, as Python writes names, here or cut where the beginning of the file ends.
fn names(rest: &[u8]) -> Option<usize> {
    let mut ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.\n<>".contains(byte);
    let end = match ends.nth(1) {
        Some(end) => end,
        None if rest.len() <= NAMES => rest.len(),
        None => return None,
    };
    rest[..end].iter().all(name).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_pickle(body: &[u8]) -> bool {
        goes_on(body, body.len() as u64)
    }

    #[test]
    fn what_python_writes_is_known() {
        for body in [
            &b"N."[..],
            b"K\x05.",
            b"]\x94.",
            b"]q\0.",
            b"]q\0]q\x01K\x01aa.",
            b"K\x01K\x02\x86q\0.",
            b"G?\xf8\0\0\0\0\0\0.",
            b"C\x03abcq\0.",
            b"]q\0(K\x01K\x02K\x03e.",
            b"}q\0(X\x01\0\0\0aq\x01K\x01X\x01\0\0\0bq\x02h\x01u.",
        ] {
            assert!(is_pickle(body), "{body:?}");
        }
    }

    #[test]
    fn what_no_pickle_can_be_is_left_alone() {
        for (body, why) in [
            (&b"N"[..], "no end"),
            (b"N.N.", "the end before the end"),
            (b"a.", "nothing to append to"),
            (b"NN.", "two things"),
            (b"]q\x01.", "remembered as the second thing"),
            (b"]q\0h\x01a.", "what was never remembered"),
            (b"e.", "no mark"),
            (b"X\x10\0\0\0a.", "longer than the file"),
        ] {
            assert!(!is_pickle(body), "{why}");
        }
        for repeated in [&b"N"[..], b"K", b"(", b"c", b"N0", b"(N", b"\x80\x02"] {
            let body = repeated.repeat(510 / repeated.len());
            assert!(!goes_on(&body, 1 << 20), "{repeated:?}, repeated");
        }
        let padded = [&b"X\x10\x27\0\0"[..], &[0; 500]].concat();
        assert!(!goes_on(&padded, 1 << 20), "a token and padding");
        // The beginning of a large file.
        assert!(!goes_on(b"B\0\x10\0\0", 1 << 30), "nothing speaks for it");
        let long = [&b"B\0\0\x10\0"[..], &[7; 500]].concat();
        assert!(!goes_on(&long, 1 << 30), "bytes of any length could be anywhere");
        assert!(goes_on(&long, 5 + (1 << 20) + 3), "and up to the end of the file they are no coincidence");
    }

    /// Streams of small and large vocabularies that begin with the token 640 or 896.
    #[test]
    fn tokens_are_left_alone() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1_u64 << 24) as f64
        };
        for round in 0..100_000 {
            let vocabulary = [1_000_f64, 8_192.0, 50_257.0, 65_536.0][round % 4];
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a token
            let tokens = (0..255).map(|_| vocabulary.powf(next()) as u16);
            let body: Vec<u8> = tokens.flat_map(u16::to_le_bytes).collect();
            assert!(!goes_on(&body, 1 << 20), "{body:?}");
            let few = 4 + round % 16;
            assert!(!is_pickle(&body[..few]), "{:?}", &body[..few]);
        }
    }
}
