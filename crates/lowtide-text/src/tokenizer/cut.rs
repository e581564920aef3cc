//! Where a text may be cut so that both parts, split one after the other, give the pieces of the whole.
//!
//! No pattern looks back, so the second part splits as it would in the whole if a piece *begins* at the cut whatever
//! comes before and after. So a cut between the characters a and b is safe if
//! 1. no alternative of the pattern can match ab inside of one piece: then some piece ends at the cut; and
//! 2. the first part, now followed by the end of the text, splits as before. Only three things look ahead: runs of a
//!    class, for which the end is as good as b by (1); contractions (`'ll`), of which a cut never takes a letter off,
//!    for it never stands before a letter that can follow an apostrophe; and spaces (`\s++$`, `(?!\S)`), for which the
//!    end of the text is not as good as b.
//!
//! So where a is no space, (1) is a table of pairs (`certain`), and (2) holds: all spaces of the first part are
//! followed by the same character as before. Where a is a space, the whole run of spaces has to be seen (`in_spaces`).

use super::classes::{Class, Classes, HAN, LETTER, MARK, NUMBER, SPACE};
use super::split::{Pattern, is_deepseek_han};

/// A character and its class.
#[derive(Clone, Copy)]
struct Char {
    c: char,
    class: Class,
}

impl Char {
    fn is(self, class: Class) -> bool {
        self.class & class != 0
    }

    fn is_line_end(self) -> bool {
        self.c == '\n' || self.c == '\r'
    }
}

/// The last safe cut: more than 0 and less than the length.
pub(super) fn cut(pattern: Pattern, classes: Classes, text: &str) -> Option<usize> {
    let read = |c: char| Char { c, class: classes.of(c) };
    let mut end = text.len();
    let mut after: Option<Char> = None;
    while let Some(c) = text[..end].chars().next_back() {
        let a = read(c);
        let mut start = end - c.len_utf8();
        match after {
            Some(b) if !a.is(SPACE) && certain(pattern, a, b) => return Some(end),
            Some(b) if a.is(SPACE) && !b.is(SPACE) => {
                start = text[..end].trim_end_matches(|c| read(c).is(SPACE)).len();
                if let Some(at) = in_spaces(pattern, &text[start..end], b).filter(|at| start + at > 0) {
                    return Some(start + at);
                }
                after = text[start..].chars().next().map(read);
                end = start;
                continue;
            }
            None if a.is(NUMBER) => {
                start = text[..end].trim_end_matches(|c| read(c).is(NUMBER)).len();
                if let Some(at) = in_numbers(pattern, &text[start..end]) {
                    return Some(start + at);
                }
                after = text[start..].chars().next().map(read);
                end = start;
                continue;
            }
            _ => {}
        }
        after = Some(a);
        end = start;
    }
    None
}

/// Whether a piece ends between a and b, where a is no space.
fn certain(pattern: Pattern, a: Char, b: Char) -> bool {
    match pattern {
        // In a piece, a letter is followed by letters only, a number by numbers, a sign by signs; and an
        // apostrophe, which is a sign, by the letters of a contraction.
        Pattern::Gpt2 => {
            if a.is(LETTER) {
                !b.is(LETTER)
            } else if a.is(NUMBER) {
                !b.is(NUMBER)
            } else {
                b.is(NUMBER | SPACE) || (b.is(LETTER) && a.c != '\'')
            }
        }
        // Here a sign is followed by a letter, too (`[^\r\n\p{L}\p{N}]?\p{L}+`), and by line ends.
        Pattern::Words(_) => {
            if a.is(LETTER) {
                !b.is(LETTER)
            } else if a.is(NUMBER) {
                !b.is(NUMBER)
            } else {
                b.is(NUMBER) || (b.is(SPACE) && !b.is_line_end())
            }
        }
        // Han letters are only ever in a piece of Han. What is Han and no letter is a sign or a number as well.
        Pattern::Cased(cased) if cased.han_apart && (a.class | b.class) & HAN != 0 => {
            let letter = |x: Char| x.is(HAN) && x.is(LETTER);
            (letter(a) && !b.is(HAN)) || (letter(b) && !a.is(HAN))
        }
        // Marks are signs and letters at once. A word takes the apostrophe of a contraction after it.
        Pattern::Cased(_) => {
            if a.is(LETTER) {
                !b.is(LETTER | MARK) && b.c != '\''
            } else if a.is(NUMBER) {
                !b.is(NUMBER)
            } else {
                b.is(NUMBER) || (b.is(SPACE) && !b.is_line_end())
            }
        }
        // Numbers and Han are apart from everything. Letters and marks are followed by letters and marks only.
        Pattern::DeepSeek => {
            (is_han(a) != is_han(b))
                || (a.is(NUMBER) != b.is(NUMBER))
                || (a.is(LETTER | MARK) && !is_han(a) && b.is(SPACE))
        }
    }
}

fn is_han(c: Char) -> bool {
    is_deepseek_han(c.c.encode_utf8(&mut [0; 4]).as_bytes(), 0)
}

/// Where a run of spaces that is followed by b, which is none, may be cut.
fn in_spaces(pattern: Pattern, run: &str, b: Char) -> Option<usize> {
    let last = run.char_indices().next_back()?.0;
    // With b after it, the run is a piece of all but its last character, which then is alone or begins a word:
    // `\s+(?!\S)`. With the end of the text after those, `\s++$` and `\s+(?!\S)` take them all.
    if pattern == Pattern::Gpt2 {
        return Some(last);
    }
    // Other patterns end a piece at the last line end of a run, whatever follows; so does `\s++$` where the text ends
    // with it. Signs before the run may have taken its first line ends, here and there.
    if let Some(line_end) = run.rfind(['\r', '\n']) {
        let slash = matches!(pattern, Pattern::Cased(cased) if cased.slashes) && b.c == '/';
        return (line_end < last || !slash).then_some(line_end + 1);
    }
    // Without line ends, as GPT-2. DeepSeek's stages make numbers and Han the end of the text for the spaces before.
    if pattern == Pattern::DeepSeek && (b.is(NUMBER) || is_han(b)) { Some(run.len()) } else { Some(last) }
}

/// Where a run of numbers, of which the end is not known, may be cut: after so many as are in a piece.
fn in_numbers(pattern: Pattern, run: &str) -> Option<usize> {
    let digits = match pattern {
        Pattern::Gpt2 => return None,
        Pattern::Words(words) => words.digits,
        // Numbers that are Han as well may have been taken by either.
        Pattern::Cased(cased) if cased.han_apart => return None,
        Pattern::Cased(cased) => cased.digits,
        Pattern::DeepSeek => 3,
    };
    run.char_indices().map(|(at, _)| at).step_by(digits).last().filter(|&at| at > 0)
}
