//! The encodings of OpenAI and others that are inside the package: nothing is downloaded.
//!
//! The words come from the crate `tiktoken`; splitting and merging are ours: quicker, in the memory that
//! `memory` says, linear on any text, and as Python's tiktoken splits where that crate does not.

use super::classes::Classes;
use super::cut::cut;
use super::memo::{Key, LONGEST, Memo};
use super::merge::merge;
use super::ranks::{NONE, Ranks};
use super::split::{Cased, Pattern, Words};
use super::{Memory, Tokenizer};
use lowtide::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tiktoken::CoreBpe;
use tiktoken::encoding as made;

/// What one byte of a piece takes while it is merged: 20 to 44 bytes, by the sizes of what `merge` holds, and its id.
const IN_MERGE: u64 = 48;

/// What an encoding is.
#[derive(Debug)]
struct Spec {
    name: &'static str,
    make: fn() -> CoreBpe,
    pattern: Pattern,
    /// Ids of words, as (first, one past the last).
    ranks: &'static [(u32, u32)],
    end_of_text: u32,
    /// One past the last special word.
    vocabulary: u32,
}

const CL100K: Pattern = Pattern::Words(Words { digits: 3, last_spaces_are_one: true });
const LLAMA3: Pattern = Pattern::Words(Words { digits: 3, last_spaces_are_one: false });
const QWEN2: Pattern = Pattern::Words(Words { digits: 1, last_spaces_are_one: false });
const O200K: Pattern =
    Pattern::Cased(Cased { digits: 3, contractions: true, slashes: true, han_apart: false });
const TEKKEN: Pattern =
    Pattern::Cased(Cased { digits: 1, contractions: false, slashes: true, han_apart: false });
const KIMI: Pattern =
    Pattern::Cased(Cased { digits: 3, contractions: true, slashes: false, han_apart: true });

macro_rules! spec {
    ($name:ident, $pattern:expr, $ranks:expr, $end:expr, $vocabulary:expr) => {
        Spec {
            name: stringify!($name),
            make: made::$name,
            pattern: $pattern,
            ranks: $ranks,
            end_of_text: $end,
            vocabulary: $vocabulary,
        }
    };
}

/// Every encoding. The id between documents is the one that each was trained with.
const SPECS: &[Spec] = &[
    spec!(gpt2, Pattern::Gpt2, &[(0, 50_256)], 50_256, 50_257),
    spec!(r50k_base, Pattern::Gpt2, &[(0, 50_256)], 50_256, 50_257),
    spec!(p50k_base, Pattern::Gpt2, &[(0, 50_256), (50_257, 50_281)], 50_256, 50_281),
    spec!(p50k_edit, Pattern::Gpt2, &[(0, 50_256), (50_257, 50_281)], 50_256, 50_284),
    spec!(cl100k_base, CL100K, &[(0, 100_256)], 100_257, 100_277),
    spec!(o200k_base, O200K, &[(0, 199_998)], 199_999, 200_019),
    spec!(o200k_harmony, O200K, &[(0, 199_998)], 199_999, 201_088),
    spec!(llama3, LLAMA3, &[(0, 128_000)], 128_001, 128_011),
    spec!(deepseek_v3, Pattern::DeepSeek, &[(0, 128_000)], 1, 128_815),
    spec!(deepseek_v4, Pattern::DeepSeek, &[(0, 128_000)], 1, 129_280),
    spec!(qwen2, QWEN2, &[(0, 151_643)], 151_643, 151_665),
    spec!(mistral_v3, TEKKEN, &[(0, 131_072)], 2, 131_072),
    spec!(kimi_k2, KIMI, &[(0, 163_584)], 163_585, 163_840),
    spec!(kimi_k3, KIMI, &[(0, 163_584)], 163_585, 163_840),
    spec!(glm4, LLAMA3, &[(0, 151_329)], 151_329, 151_365),
    spec!(glm5, LLAMA3, &[(0, 154_820)], 154_820, 154_856),
    spec!(minimax_m2, O200K, &[(0, 200_000)], 200_020, 200_054),
];

/// The names of the encodings.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SPECS.iter().map(|spec| spec.name)
}

/// An encoding that is inside the package.
#[derive(Debug)]
pub struct Encoding {
    spec: &'static Spec,
    ranks: Ranks,
    /// Special words, which decode and are never encoded.
    special: Vec<(u32, Vec<u8>)>,
    classes: Classes,
    fingerprint: String,
    /// One for every thread that encodes now; those not in use.
    memos: Memos,
}

#[derive(Default)]
struct Memos(Mutex<Vec<Memo>>);

impl std::fmt::Debug for Memos {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memos")
    }
}

impl Memos {
    /// Runs `work` with a memo that no other thread has.
    fn with(&self, work: impl FnOnce(&mut Memo)) {
        let free = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = free().pop();
        let mut memo = taken.unwrap_or_else(Memo::new);
        work(&mut memo);
        free().push(memo);
    }
}

/// Encodings in use: opening one takes up to half a second, and the second user shares it.
static OPEN: Mutex<Vec<Weak<Encoding>>> = Mutex::new(Vec::new());

impl Encoding {
    /// The encoding of a name, if there is one.
    pub fn named(name: &str) -> Option<Arc<Self>> {
        let spec = SPECS.iter().find(|spec| spec.name == name)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|weak| weak.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|known| known.spec.name == name) {
            return Some(known);
        }
        let made = Arc::new(Self::new(spec));
        open.push(Arc::downgrade(&made));
        Some(made)
    }

    fn new(spec: &'static Spec) -> Self {
        let bpe = (spec.make)();
        let has_rank = |id: &u32| spec.ranks.iter().any(|&(first, end)| (first..end).contains(id));
        let end = spec.ranks.iter().map(|&(_, end)| end).max().unwrap_or(0);
        let list: Vec<Vec<u8>> =
            (0..end).map(|id| if has_rank(&id) { bpe.decode(&[id]) } else { Vec::new() }).collect();
        let special: Vec<(u32, Vec<u8>)> = (0..spec.vocabulary)
            .filter(|id| !has_rank(id))
            .map(|id| (id, bpe.decode(&[id])))
            .filter(|(_, word)| !word.is_empty())
            .collect();
        let mut hasher = blake3::Hasher::new();
        // What the ids follow from, each part with its length before it: the rules of splitting, which a change of
        // `split.rs` must count up, the words, the special words.
        hasher.update(
            format!("tiktoken 1 {:?} {} {};", spec.pattern, spec.end_of_text, spec.vocabulary).as_bytes(),
        );
        let special_words = special.iter().map(|(id, word)| (*id, word));
        for (id, word) in (0..).zip(&list).chain(special_words) {
            hasher.update(&id.to_le_bytes()).update(&(word.len() as u64).to_le_bytes()).update(word);
        }
        Self {
            spec,
            ranks: Ranks::new(&list),
            special,
            classes: Classes::new(),
            fingerprint: hasher.finalize().to_hex()[..32].to_owned(),
            memos: Memos::default(),
        }
    }

    /// Every id that text can become, with its bytes: the lowest rank first.
    pub fn words(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..self.ranks.len()).map(|id| (id, self.ranks.word(id))).filter(|(_, word)| !word.is_empty())
    }

    fn encode_piece(&self, text: &[u8], start: usize, end: usize, memo: &mut Memo, ids: &mut Vec<u32>) {
        if end - start > LONGEST {
            let piece = &text[start..end];
            match self.ranks.get(piece) {
                NONE => merge(&self.ranks, piece, ids),
                id => ids.push(id),
            }
            return;
        }
        let key = Key::new(text, start, end);
        if !memo.get(key, ids) {
            let before = ids.len();
            let piece = &text[start..end];
            match self.ranks.get(piece) {
                NONE => merge(&self.ranks, piece, ids),
                id => ids.push(id),
            }
            memo.put(key, &ids[before..]);
        }
    }
}

impl Tokenizer for Encoding {
    fn name(&self) -> &str {
        self.spec.name
    }

    fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn vocabulary(&self) -> u32 {
        self.spec.vocabulary
    }

    fn end_of_text(&self) -> Option<u32> {
        Some(self.spec.end_of_text)
    }

    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let text = text.as_bytes();
        if u32::try_from(text.len()).is_err() {
            return Err(Error::unsupported(
                format!("a text of {} bytes at once: the most is 4 GiB", text.len()),
                "cut it where the tokenizer allows it, and encode the parts",
            ));
        }
        self.memos.with(|memo| {
            self.spec.pattern.split(self.classes, text, |start, end| {
                self.encode_piece(text, start, end, memo, ids);
            });
        });
        Ok(())
    }

    fn decode(&self, ids: &[u32]) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            let mut word = self.ranks.word(id);
            if word.is_empty()
                && let Ok(at) = self.special.binary_search_by_key(&id, |&(id, _)| id)
            {
                word = &self.special[at].1;
            }
            if word.is_empty() {
                return Err(Error::argument(
                    format!("{} has no token {id}", self.spec.name),
                    format!("its ids are below {}", self.spec.vocabulary),
                ));
            }
            bytes.extend_from_slice(word);
        }
        Ok(bytes)
    }

    fn cut(&self, text: &str) -> Option<usize> {
        cut(self.spec.pattern, self.classes, text)
    }

    fn memory(&self) -> Memory {
        let special: usize =
            self.special.iter().map(|(_, word)| word.len() + size_of::<(u32, Vec<u8>)>()).sum();
        let held = self.ranks.memory() + special as u64;
        Memory { held, thread: Memo::BYTES as u64, byte: IN_MERGE }
    }
}
