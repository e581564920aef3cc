//! Byte-pair merges: the bytes of a piece become ids, the pair of lowest rank first, the leftmost of equals first.

use super::ranks::{NONE, Ranks};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pieces up to this many bytes are searched for the lowest pair from end to end: no allocation, and quicker
/// than a heap. Almost every piece of text is.
const SHORT: usize = 64;

/// Appends the ids of a piece that is not a word itself. Positions are `u32`: the caller keeps pieces below 4 GiB.
pub(super) fn merge(ranks: &Ranks, piece: &[u8], ids: &mut Vec<u32>) {
    if piece.len() <= SHORT { short(ranks, piece, ids) } else { long(ranks, piece, ids) }
}

/// A part of the piece, and the rank of it joined with the next.
#[derive(Clone, Copy)]
struct Part {
    start: u8,
    rank: u32,
}

fn short(ranks: &Ranks, piece: &[u8], ids: &mut Vec<u32>) {
    let mut space = [Part { start: 0, rank: NONE }; SHORT + 1];
    let mut len = piece.len();
    for (part, start) in space.iter_mut().zip(0..=u8::MAX).take(len + 1) {
        part.start = start;
    }
    for (part, pair) in space.iter_mut().zip(piece.windows(2)) {
        part.rank = ranks.pair(pair[0], pair[1]);
    }
    loop {
        let mut lowest = (NONE, 0);
        for (at, part) in space[..len].iter().enumerate() {
            if part.rank < lowest.0 {
                lowest = (part.rank, at);
            }
        }
        let (NONE, _) = lowest else {
            let at = lowest.1;
            space.copy_within(at + 2..=len, at + 1);
            len -= 1;
            // `space[len]` marks the end; a pair is two parts, so three marks.
            let joined = |at: usize| match space.get(at + 2) {
                Some(end) if at + 2 <= len => ranks.get(&piece[space[at].start.into()..end.start.into()]),
                _ => NONE,
            };
            let (here, before) = (joined(at), at.checked_sub(1).map(joined));
            space[at].rank = here;
            if let Some(rank) = before {
                space[at - 1].rank = rank;
            }
            continue;
        };
        break;
    }
    for pair in space[..=len].windows(2) {
        ids.push(ranks.get(&piece[pair[0].start.into()..pair[1].start.into()]));
    }
}

/// For pieces of any length, in n log n: a heap of the pairs, and a list of the parts that are left.
fn long(ranks: &Ranks, piece: &[u8], ids: &mut Vec<u32>) {
    let count = u32::try_from(piece.len()).unwrap_or(u32::MAX);
    let slice = |start: u32, end: u32| &piece[start as usize..end as usize];
    let mut next: Vec<u32> = (1..=count).collect();
    let mut previous: Vec<u32> = (0..count).map(|at| at.saturating_sub(1)).collect();
    // What the pair that begins here would become. Entries of the heap that say otherwise are of the past.
    let mut rank: Vec<u32> =
        piece.windows(2).map(|pair| ranks.pair(pair[0], pair[1])).chain([NONE]).collect();
    // One number, for it is compared twenty times: the rank above, the place below.
    let entry = |rank: u32, at: u32| Reverse(u64::from(rank) << 32 | u64::from(at));
    let mut heap: BinaryHeap<_> =
        rank.iter().zip(0..).filter(|&(&rank, _)| rank != NONE).map(|(&rank, at)| entry(rank, at)).collect();
    while let Some(Reverse(both)) = heap.pop() {
        #[expect(clippy::cast_possible_truncation, reason = "both halves")]
        let (lowest, at) = ((both >> 32) as u32, both as u32);
        if rank[at as usize] != lowest {
            continue;
        }
        let gone = next[at as usize];
        let after = next[gone as usize];
        rank[gone as usize] = NONE;
        next[at as usize] = after;
        if after < count {
            previous[after as usize] = at;
        }
        let here = if after < count { ranks.get(slice(at, next[after as usize])) } else { NONE };
        rank[at as usize] = here;
        if here != NONE {
            heap.push(entry(here, at));
        }
        if at > 0 {
            let before = previous[at as usize];
            let joined = ranks.get(slice(before, after));
            rank[before as usize] = joined;
            if joined != NONE {
                heap.push(entry(joined, before));
            }
        }
    }
    let mut at = 0;
    while at < count {
        ids.push(ranks.get(slice(at, next[at as usize])));
        at = next[at as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As Python's tiktoken teaches it (`_educational.py`): all pairs again after every merge.
    fn plainly(ranks: &Ranks, piece: &[u8]) -> Vec<u32> {
        let mut parts: Vec<Vec<u8>> = piece.iter().map(|&byte| vec![byte]).collect();
        loop {
            let lowest =
                (0..parts.len().saturating_sub(1)).map(|i| (ranks.get(&parts[i..i + 2].concat()), i)).min();
            let Some((rank, at)) = lowest.filter(|&(rank, _)| rank != NONE) else { break };
            assert_ne!(rank, NONE);
            let joined = parts[at..at + 2].concat();
            parts.splice(at..at + 2, [joined]);
        }
        parts.iter().map(|part| ranks.get(part)).collect()
    }

    /// All bytes, and words over three letters in an order that makes merges meet.
    fn small() -> Ranks {
        let mut list: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        for word in
            ["ab", "aa", "bc", "abc", "aab", "aaaa", "cab", "bcbc", "abab", "aabc", "cc", "abcabc", "ca"]
        {
            list.push(word.as_bytes().to_vec());
        }
        Ranks::new(&list)
    }

    proptest! {
        #[test]
        fn both_ways_are_the_plain_way(piece in "[abcd]{0,64}") {
            let ranks = small();
            let oracle = plainly(&ranks, piece.as_bytes());
            let mut ids = Vec::new();
            short(&ranks, piece.as_bytes(), &mut ids);
            prop_assert_eq!(&ids, &oracle);
            ids.clear();
            long(&ranks, piece.as_bytes(), &mut ids);
            prop_assert_eq!(&ids, &oracle);
        }

        #[test]
        fn long_pieces_are_the_plain_way(piece in "[abc]{65,300}") {
            let ranks = small();
            let mut ids = Vec::new();
            merge(&ranks, piece.as_bytes(), &mut ids);
            prop_assert_eq!(ids, plainly(&ranks, piece.as_bytes()));
        }
    }
}
