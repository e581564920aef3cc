//! Text to pieces: what the regular expressions of GPT-2 and its successors say, as code.
//!
//! Every piece begins where the one before it ended, and no character is left out. Each function reads a text from
//! `at`, which is not its end, and says where the piece ends. Time is linear in the text: no run of characters is
//! read more than three times. The patterns stand as they do in Python's tiktoken; where the end of the text
//! changes a piece (`\s++$`, `(?!\S)`), that is said, for `cut` depends on it.

use super::classes::{Class, Classes, HAN, LETTER, LOWER, MARK, NUMBER, SIGN, SPACE, UNCASED, UPPER};

/// How an encoding splits text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// `'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`
    Gpt2,
    /// As `cl100k_base`:
    /// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`
    Words(Words),
    /// As `o200k_base`, with U = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, L = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]` and
    /// C = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`:
    /// `[^\r\n\p{L}\p{N}]?U*L+C?|[^\r\n\p{L}\p{N}]?U+L*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Cased(Cased),
    /// `\p{N}{1,3}|H+|[!-/:-@\[-\x60{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|[\s\S]`
    /// with H = `[一-龥\x{3040}-\x{30FF}]`; for `(?!\S)`, a number or a character of H is as good as the end.
    DeepSeek,
}

/// What differs between the encodings that split as `cl100k_base` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// Digits of a piece, at most.
    pub(super) digits: usize,
    /// Whether whitespace at the end of the text is one piece (`\s++$`), line ends or not. Only Python's tiktoken
    /// has it, and only for `cl100k_base`.
    pub(super) last_spaces_are_one: bool,
}

/// What differs between the encodings that split as `o200k_base` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cased {
    /// Digits of a piece, at most.
    pub(super) digits: usize,
    /// Whether `C?` is there.
    pub(super) contractions: bool,
    /// Whether signs take slashes after line ends (`[\r\n/]*`) or line ends only.
    pub(super) slashes: bool,
    /// Whether `[\p{Han}]+` comes first, and U and L are without Han.
    pub(super) han_apart: bool,
}

impl Pattern {
    /// Calls `piece` with the bounds of every piece.
    #[inline]
    pub(super) fn split(self, classes: Classes, text: &[u8], mut piece: impl FnMut(usize, usize)) {
        match self {
            Self::Gpt2 => each(text, |at| gpt2(classes, text, at), &mut piece),
            Self::Words(words) => each(text, |at| words.next(classes, text, at), &mut piece),
            Self::Cased(cased) => each(text, |at| cased.next(classes, text, at), &mut piece),
            Self::DeepSeek => each(text, |at| deepseek(classes, text, at), &mut piece),
        }
    }
}

#[inline]
fn each(text: &[u8], next: impl Fn(usize) -> usize, piece: &mut impl FnMut(usize, usize)) {
    let mut at = 0;
    while at < text.len() {
        let end = next(at);
        piece(at, end);
        at = end;
    }
}

fn is_line_end(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// The end of the run of these bytes.
#[inline]
fn run_of(text: &[u8], mut at: usize, of: impl Fn(u8) -> bool) -> usize {
    while text.get(at).is_some_and(|&byte| of(byte)) {
        at += 1;
    }
    at
}

/// The end of the run of `[^\s\p{L}\p{N}]`.
#[inline]
fn signs(classes: Classes, text: &[u8], mut at: usize) -> usize {
    while let Some((class, next)) = classes.at(text, at) {
        if class & (SPACE | LETTER | NUMBER) != 0 {
            break;
        }
        at = next;
    }
    at
}

/// The end of `\p{N}{1,most}`.
#[inline]
fn numbers(classes: Classes, text: &[u8], mut at: usize, most: usize) -> usize {
    for _ in 0..most {
        match classes.at(text, at) {
            Some((class, next)) if class & NUMBER != 0 => at = next,
            _ => break,
        }
    }
    at
}

/// The byte at which the character before `end` begins.
fn before(text: &[u8], mut end: usize) -> usize {
    end -= 1;
    while end > 0 && text[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    end
}

/// `\s+(?!\S)|\s` for the run of spaces from `at` to `end`: all of it at the end of the text (or what stands
/// for it), else all but the last, else the only one.
#[inline]
fn spaces(text: &[u8], at: usize, end: usize, at_the_end: bool) -> usize {
    if at_the_end {
        return end;
    }
    let last = before(text, end);
    if last > at { last } else { end }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+` for the run of spaces from `at` to `end`.
#[inline]
fn lines(text: &[u8], at: usize, end: usize, at_the_end: bool) -> usize {
    match text[at..end].iter().rposition(|&byte| is_line_end(byte)) {
        Some(last) => at + last + 1,
        None => spaces(text, at, end, at_the_end),
    }
}

#[inline]
fn gpt2(classes: Classes, text: &[u8], at: usize) -> usize {
    let Some((mut class, mut next)) = classes.at(text, at) else { return text.len() };
    match text[at] {
        b'\'' => match text[next..] {
            [b's' | b'd' | b'm' | b't', ..] => return next + 1,
            [b'l', b'l', ..] | [b'v' | b'r', b'e', ..] => return next + 2,
            _ => {}
        },
        b' ' => {
            if let Some((after, end)) = classes.at(text, next)
                && after & SPACE == 0
            {
                (class, next) = (after, end);
            }
        }
        _ => {}
    }
    if class & SPACE != 0 {
        let end = classes.run(text, next, SPACE);
        return spaces(text, at, end, end == text.len());
    }
    if class & LETTER != 0 {
        classes.run(text, next, LETTER)
    } else if class & NUMBER != 0 {
        classes.run(text, next, NUMBER)
    } else {
        signs(classes, text, next)
    }
}

/// The end of `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at `at`, or `at`. A long s (ſ) is an s there.
#[inline]
fn contraction(text: &[u8], at: usize) -> usize {
    match text[at..] {
        [b'\'', a, ..] if matches!(a | 0x20, b's' | b'd' | b'm' | b't') => at + 2,
        [b'\'', a, b, ..] if matches!((a | 0x20, b | 0x20), (b'l', b'l') | (b'v' | b'r', b'e')) => at + 3,
        [b'\'', 0xC5, 0xBF, ..] => at + 3,
        _ => at,
    }
}

impl Words {
    #[inline]
    fn next(self, classes: Classes, text: &[u8], at: usize) -> usize {
        let Some((class, next)) = classes.at(text, at) else { return text.len() };
        if class & LETTER != 0 {
            return classes.run(text, next, LETTER);
        }
        if class & NUMBER != 0 {
            return numbers(classes, text, at, self.digits);
        }
        let first = text[at];
        if first == b'\'' {
            let end = contraction(text, at);
            if end > at {
                return end;
            }
        }
        let follower = classes.at(text, next);
        if let Some((after, end)) = follower
            && after & LETTER != 0
            && !is_line_end(first)
        {
            return classes.run(text, end, LETTER);
        }
        if class & SPACE == 0 {
            return run_of(text, signs(classes, text, next), is_line_end);
        }
        if first == b' '
            && let Some((after, end)) = follower
            && after & (SPACE | NUMBER) == 0
        {
            return run_of(text, signs(classes, text, end), is_line_end);
        }
        let end = classes.run(text, next, SPACE);
        if self.last_spaces_are_one && end == text.len() {
            return end;
        }
        lines(text, at, end, end == text.len())
    }
}

impl Cased {
    #[inline]
    fn next(self, classes: Classes, text: &[u8], at: usize) -> usize {
        let Some((class, next)) = classes.at(text, at) else { return text.len() };
        if self.han_apart && class & HAN != 0 {
            return classes.run(text, next, HAN);
        }
        let first = text[at];
        if class & LETTER != 0 {
            if let Some(end) = self.word(classes, text, at) {
                return end;
            }
        } else if class & NUMBER == 0 {
            if !is_line_end(first)
                && let Some(end) = self.small(classes, text, next)
            {
                return end;
            }
            // `[^\r\n\p{L}\p{N}]?` takes a mark first, and gives it back where no small letter follows.
            if class & MARK != 0
                && let Some(end) = self.small(classes, text, at)
            {
                return end;
            }
            if !is_line_end(first)
                && let Some(end) = self.capitals(classes, text, next)
            {
                return end;
            }
        }
        if class & NUMBER != 0 {
            return numbers(classes, text, at, self.digits);
        }
        if class & SPACE == 0 {
            return self.tail(text, signs(classes, text, next));
        }
        if first == b' '
            && let Some((after, end)) = classes.at(text, next)
            && after & (SPACE | NUMBER | LETTER) == 0
        {
            return self.tail(text, signs(classes, text, end));
        }
        let end = classes.run(text, next, SPACE);
        lines(text, at, end, end == text.len())
    }

    /// `U*L+C?|U+L*C?`
    #[inline]
    fn word(self, classes: Classes, text: &[u8], at: usize) -> Option<usize> {
        self.small(classes, text, at).or_else(|| self.capitals(classes, text, at))
    }

    fn has(self, class: Class, of: Class) -> bool {
        class & of != 0 && !(self.han_apart && class & HAN != 0)
    }

    /// `U*L+C?`: capitals, then small letters. Letters without case and marks are both, so that where no small
    /// letter comes after the run of U, it is given back to the last of them.
    #[inline]
    fn small(self, classes: Classes, text: &[u8], mut at: usize) -> Option<usize> {
        let mut last = None;
        while let Some((class, next)) = classes.at(text, at) {
            if self.has(class, LOWER) {
                at = next;
                while let Some((class, next)) = classes.at(text, at) {
                    if !self.has(class, LOWER | UNCASED | MARK) {
                        break;
                    }
                    at = next;
                }
                last = Some(at);
                break;
            }
            if !self.has(class, UPPER | UNCASED | MARK) {
                break;
            }
            at = next;
            if class & UPPER == 0 {
                last = Some(at);
            }
        }
        last.map(|end| self.contracted(text, end))
    }

    /// `U+L*C?` where `U*L+` is not: capitals only.
    #[inline]
    fn capitals(self, classes: Classes, text: &[u8], at: usize) -> Option<usize> {
        let mut end = at;
        while let Some((class, next)) = classes.at(text, end) {
            if !self.has(class, UPPER | UNCASED | MARK) {
                break;
            }
            end = next;
        }
        (end > at).then(|| self.contracted(text, end))
    }

    fn contracted(self, text: &[u8], at: usize) -> usize {
        if self.contractions { contraction(text, at) } else { at }
    }

    fn tail(self, text: &[u8], at: usize) -> usize {
        run_of(text, at, |byte| is_line_end(byte) || (self.slashes && byte == b'/'))
    }
}

/// Whether the second stage of [`Pattern::DeepSeek`] takes the character that begins here: `[一-龥\x{3040}-\x{30FF}]`.
pub(super) fn is_deepseek_han(text: &[u8], at: usize) -> bool {
    match text[at..] {
        [0xE3, b, ..] => (0x81..=0x83).contains(&b),
        [0xE4, b, ..] => b >= 0xB8,
        [0xE5..=0xE8, ..] => true,
        [0xE9, b, c, ..] => b < 0xBE || (b == 0xBE && c <= 0xA5),
        _ => false,
    }
}

fn deepseek(classes: Classes, text: &[u8], at: usize) -> usize {
    let Some((class, next)) = classes.at(text, at) else { return text.len() };
    if class & NUMBER != 0 {
        return numbers(classes, text, at, 3);
    }
    let han = |mut at: usize| {
        while at < text.len() && is_deepseek_han(text, at) {
            at += 3;
        }
        at
    };
    let end = han(at);
    if end > at {
        return end;
    }
    // `[\p{L}\p{M}]+`, which the second stage has cut at characters of H.
    let letters = |mut at: usize| {
        while let Some((class, next)) = classes.at(text, at) {
            if class & (LETTER | MARK) == 0 || is_deepseek_han(text, at) {
                break;
            }
            at = next;
        }
        at
    };
    let signs = |mut at: usize| {
        while let Some((class, next)) = classes.at(text, at) {
            if class & SIGN == 0 || is_deepseek_han(text, at) {
                break;
            }
            at = next;
        }
        at
    };
    let first = text[at];
    if first.is_ascii_punctuation() {
        let end = run_of(text, next, |byte| byte.is_ascii_alphabetic());
        if end > next {
            return end;
        }
    }
    if class & (LETTER | SIGN) == 0 && !is_line_end(first) {
        let end = letters(next);
        if end > next {
            return end;
        }
    }
    let end = letters(at);
    if end > at {
        return end;
    }
    let start = if first == b' ' { next } else { at };
    let end = signs(start);
    if end > start {
        return run_of(text, end, is_line_end);
    }
    if class & SPACE == 0 {
        return next;
    }
    let end = classes.run(text, next, SPACE);
    let at_the_end = match classes.at(text, end) {
        None => true,
        Some((class, _)) => class & NUMBER != 0 || is_deepseek_han(text, end),
    };
    lines(text, at, end, at_the_end)
}
