//! What a character is to the patterns that split text: a letter of some case, a mark, a number, a space.
//!
//! The tables come from `regex-syntax`, which Python's tiktoken uses as well, so that both have the same Unicode.

use regex_syntax::hir::{Class as HirClass, HirKind};
use std::sync::LazyLock;

/// What a character is: some of the bits below, or 0 for everything else, such as control characters.
pub(super) type Class = u8;

/// `\p{Lu}` and `\p{Lt}`.
pub(super) const UPPER: Class = 1;
/// `\p{Ll}`.
pub(super) const LOWER: Class = 2;
/// `\p{Lm}` and `\p{Lo}`: letters without case.
pub(super) const UNCASED: Class = 4;
/// `\p{L}`.
pub(super) const LETTER: Class = UPPER | LOWER | UNCASED;
/// `\p{M}`.
pub(super) const MARK: Class = 8;
/// `\p{N}`.
pub(super) const NUMBER: Class = 16;
/// `\s`.
pub(super) const SPACE: Class = 32;
/// `\p{P}` and `\p{S}`.
pub(super) const SIGN: Class = 64;
/// `\p{Han}`, besides one of the others.
pub(super) const HAN: Class = 128;

/// 64 characters a block; most of the 17 planes are the same few blocks.
const BLOCK: usize = 64;

struct Table {
    blocks: Vec<u16>,
    classes: Vec<[Class; BLOCK]>,
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl Table {
    fn new() -> Self {
        let mut flat = vec![0; 0x11_0000];
        for (pattern, class) in [
            (r"[\p{Lu}\p{Lt}]", UPPER),
            (r"\p{Ll}", LOWER),
            (r"[\p{Lm}\p{Lo}]", UNCASED),
            (r"\p{M}", MARK),
            (r"\p{N}", NUMBER),
            (r"\s", SPACE),
            (r"[\p{P}\p{S}]", SIGN),
            (r"\p{Han}", HAN),
        ] {
            let Ok(hir) = regex_syntax::parse(pattern) else { unreachable!("a constant pattern") };
            let HirKind::Class(HirClass::Unicode(ranges)) = hir.kind() else {
                unreachable!("a class of characters")
            };
            for range in ranges.iter() {
                for slot in &mut flat[range.start() as usize..=range.end() as usize] {
                    *slot |= class;
                }
            }
        }
        let mut table = Self { blocks: Vec::new(), classes: Vec::new() };
        for block in flat.as_chunks::<BLOCK>().0 {
            let at = table.classes.iter().position(|known| known == block).unwrap_or_else(|| {
                table.classes.push(*block);
                table.classes.len() - 1
            });
            table.blocks.push(u16::try_from(at).unwrap_or(u16::MAX));
        }
        table
    }
}

/// Classes by character: hold one where many are looked up.
#[derive(Clone, Copy)]
pub(super) struct Classes {
    table: &'static Table,
    ascii: &'static [Class; 128],
}

static ASCII: LazyLock<[Class; 128]> = LazyLock::new(|| {
    let mut ascii = [0; 128];
    for (slot, c) in ascii.iter_mut().zip('\0'..) {
        *slot = TABLE.classes[TABLE.blocks[c as usize / BLOCK] as usize][c as usize % BLOCK];
    }
    ascii
});

impl std::fmt::Debug for Classes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Classes")
    }
}

impl Classes {
    pub(super) fn new() -> Self {
        Self { table: &TABLE, ascii: &ASCII }
    }

    /// The class of a character.
    pub(super) fn of(self, c: char) -> Class {
        self.table.classes[self.table.blocks[c as usize / BLOCK] as usize][c as usize % BLOCK]
    }

    /// The class of the character at a byte of valid UTF-8, and the byte after it.
    #[inline]
    pub(super) fn at(self, text: &[u8], at: usize) -> Option<(Class, usize)> {
        let first = *text.get(at)?;
        if first < 0x80 {
            return Some((self.ascii[first as usize], at + 1));
        }
        Some(self.at_wide(text, at))
    }

    fn at_wide(self, text: &[u8], at: usize) -> (Class, usize) {
        let (c, next) = wide(text, at);
        let block = self.table.blocks.get(c / BLOCK).map_or(0, |&block| block as usize);
        (self.table.classes[block][c % BLOCK], next)
    }

    /// The end of the run of characters of any of these classes.
    #[inline]
    pub(super) fn run(self, text: &[u8], mut at: usize, of: Class) -> usize {
        while let Some((class, next)) = self.at(text, at) {
            if class & of == 0 {
                break;
            }
            at = next;
        }
        at
    }
}

/// The character of two bytes or more that begins at `at`, and the byte after it.
fn wide(text: &[u8], at: usize) -> (usize, usize) {
    let byte = |i: usize| text.get(at + i).map_or(0, |&byte| usize::from(byte) & 0x3F);
    match text[at] {
        first @ ..0xE0 => ((usize::from(first) & 0x1F) << 6 | byte(1), at + 2),
        first @ ..0xF0 => ((usize::from(first) & 0x0F) << 12 | byte(1) << 6 | byte(2), at + 3),
        first => ((usize::from(first) & 0x07) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3), at + 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_is_read_from_its_bytes() {
        let classes = Classes::new();
        for c in '\0'..=char::MAX {
            let mut bytes = [0; 4];
            let text = c.encode_utf8(&mut bytes);
            assert_eq!(classes.at(text.as_bytes(), 0), Some((classes.of(c), text.len())), "{c:?}");
        }
    }

    #[test]
    fn the_standard_library_agrees() {
        // Rust's own tables are of about the same version; each of these is stable since long.
        let classes = Classes::new();
        for c in ('\0'..='\u{2FFF}').chain('\u{4E00}'..='\u{9FFF}') {
            assert_eq!(classes.of(c) & SPACE != 0, c.is_whitespace(), "{c:?}");
            assert_eq!(classes.of(c) & NUMBER != 0, c.is_numeric(), "{c:?}");
        }
        for (c, class) in [
            ('a', LOWER),
            ('Z', UPPER),
            ('ǅ', UPPER),
            ('ª', UNCASED),
            ('世', UNCASED | HAN),
            ('\u{301}', MARK),
        ] {
            assert_eq!(classes.of(c), class, "{c:?}");
        }
        assert_eq!(classes.of('〇'), NUMBER | HAN);
        assert_eq!(classes.of('\u{200D}'), 0);
    }

    #[test]
    fn the_table_is_small() {
        let bytes = TABLE.blocks.len() * 2 + TABLE.classes.len() * BLOCK;
        assert!(bytes < 128 << 10, "{bytes}");
    }
}
