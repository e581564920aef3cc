//! The few Python literals that a `.npy` header is made of, read and never evaluated.
//!
//! In: the text of a header. Out: one value after another, as the caller asks for them; there is no
//! tree, so a hostile header costs no memory, and nesting is counted, so it costs no stack. Stricter
//! than Python wherever leniency would be a guess: `(3)` is no tuple, `0x10` no size, `True` no 1.

/// How deep tuples and lists may nest. A structured dtype needs three levels for each of its own.
const MAX_DEPTH: usize = 32;

/// NumPy's own limit on the number of axes.
const MAX_AXES: usize = 64;

/// What is wrong with a text, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// The byte of the text, always between two characters.
    pub at: usize,
    pub expected: String,
    pub found: String,
}

/// Reads values off the front of a text.
pub(super) struct Literals<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Literals<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Where the next value begins.
    pub fn here(&mut self) -> usize {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.at
    }

    /// The first character of the next value.
    pub fn peek(&mut self) -> Option<char> {
        self.here();
        self.rest().chars().next()
    }

    /// Takes `mark` if it is next.
    pub fn eat(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Some(mark);
        if is_next {
            self.at += mark.len_utf8();
        }
        is_next
    }

    /// Takes `mark`, which must be next.
    pub fn take(&mut self, mark: char, expected: &str) -> Result<(), Wrong> {
        if self.eat(mark) { Ok(()) } else { Err(self.wrong(expected)) }
    }

    /// After an item: a comma, then perhaps more (`true`), or the closing mark (`false`).
    pub fn more(&mut self, close: char) -> Result<bool, Wrong> {
        if self.eat(',') {
            return Ok(!self.eat(close));
        }
        self.take(close, &format!("a comma or {close}"))?;
        Ok(false)
    }

    /// Nothing but white space may follow.
    pub fn end(&mut self) -> Result<(), Wrong> {
        if self.peek().is_none() { Ok(()) } else { Err(self.wrong("only spaces after the closing }")) }
    }

    /// `'text'` or `"text"`.
    pub fn string(&mut self, expected: &str) -> Result<String, Wrong> {
        let Some(quote @ ('\'' | '"')) = self.peek() else { return Err(self.wrong(expected)) };
        self.at += 1;
        let mut string = String::new();
        loop {
            let Some(next) = self.rest().chars().next().filter(|c| !c.is_ascii_control()) else {
                return Err(self.wrong(&format!("the closing {quote} of a string")));
            };
            if next == '\\' {
                string.push(self.escape()?);
                continue;
            }
            self.at += next.len_utf8();
            if next == quote {
                return Ok(string);
            }
            string.push(next);
        }
    }

    /// Python's backslash escapes, without `\N{name}` and without those that Python only warns about.
    fn escape(&mut self) -> Result<char, Wrong> {
        let wrong = self.wrong("a backslash escape that Python knows");
        let mut rest = self.rest().chars().skip(1);
        let (taken, code) = match rest.next() {
            Some(same @ ('\\' | '\'' | '"')) => (2, u32::from(same)),
            Some('a') => (2, 7),
            Some('b') => (2, 8),
            Some('t') => (2, 9),
            Some('n') => (2, 10),
            Some('v') => (2, 11),
            Some('f') => (2, 12),
            Some('r') => (2, 13),
            Some('0'..='7') => {
                let digits = self.rest().chars().skip(1).take(3).take_while(|c| c.is_digit(8));
                let (count, code) =
                    digits.fold((0, 0), |(n, code), c| (n + 1, code * 8 + c.to_digit(8).unwrap_or(0)));
                (1 + count, code)
            }
            Some(width @ ('x' | 'u' | 'U')) => {
                let count = match width {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let digits: String = rest.take(count).take_while(char::is_ascii_hexdigit).collect();
                match u32::from_str_radix(&digits, 16) {
                    Ok(code) if digits.len() == count => (2 + count, code),
                    _ => return Err(wrong),
                }
            }
            _ => return Err(wrong),
        };
        // Everything taken is ASCII: as many bytes as characters.
        self.at += taken;
        char::from_u32(code).ok_or(wrong)
    }

    /// `True` or `False`.
    pub fn truth(&mut self) -> Result<bool, Wrong> {
        self.here();
        let word = self.word();
        let truth = match word {
            "True" => true,
            "False" => false,
            _ => return Err(self.wrong("True or False")),
        };
        self.at += word.len();
        Ok(truth)
    }

    /// A tuple of sizes: `()`, `(3,)`, `(3, 4)`, `(3L, 4L)`.
    pub fn sizes(&mut self) -> Result<Vec<usize>, Wrong> {
        let begin = self.here();
        self.take('(', "a tuple of sizes such as (3, 4)")?;
        let mut sizes = Vec::new();
        let mut more = !self.eat(')');
        while more {
            if sizes.len() == MAX_AXES {
                return Err(self.wrong(&format!("at most {MAX_AXES} axes, as in NumPy")));
            }
            sizes.push(self.size()?);
            if sizes.len() == 1 && self.peek() == Some(')') {
                self.at = begin;
                let expected = format!("a tuple, which for one axis is ({},)", sizes[0]);
                return Err(Wrong {
                    at: begin,
                    expected,
                    found: format!("({}), which is a number", sizes[0]),
                });
            }
            more = self.more(')')?;
        }
        Ok(sizes)
    }

    /// A size of an axis. Python 2 on Windows wrote `10L`.
    fn size(&mut self) -> Result<usize, Wrong> {
        self.here();
        let word = self.word();
        let digits = integer(word).ok_or_else(|| self.wrong("a size such as 10"))?;
        if digits.starts_with('-') {
            return Err(self.wrong("a size of 0 or more"));
        }
        let size =
            digits.parse().map_err(|_| self.wrong(&format!("a size that fits in {} bits", usize::BITS)))?;
        self.at += word.len();
        Ok(size)
    }

    /// Checks any value and leaves it: text, number, truth, tuple or list.
    pub fn skip(&mut self) -> Result<(), Wrong> {
        self.skip_at(0)
    }

    fn skip_at(&mut self, depth: usize) -> Result<(), Wrong> {
        let close = match self.peek() {
            Some('\'' | '"') => return self.string("").map(drop),
            Some('(') => ')',
            Some('[') => ']',
            _ => {
                let word = self.word();
                if !matches!(word, "True" | "False") && integer(word).is_none() {
                    return Err(self.wrong("a string, a number, a tuple or a list"));
                }
                self.at += word.len();
                return Ok(());
            }
        };
        if depth == MAX_DEPTH {
            return Err(self.wrong(&format!("at most {MAX_DEPTH} brackets inside each other")));
        }
        self.at += 1;
        let mut more = !self.eat(close);
        while more {
            self.skip_at(depth + 1)?;
            more = self.more(close)?;
        }
        Ok(())
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The letters, digits and signs that come next, not yet taken.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_+-.".contains(c)));
        &rest[..end.unwrap_or(rest.len())]
    }

    /// What is next is not what it should be.
    fn wrong(&self, expected: &str) -> Wrong {
        let next = match (self.word(), self.rest().chars().next()) {
            ("", None) => return self.found(expected, "the end of the header".into()),
            ("", Some('\'' | '"')) => self.rest().split_inclusive(['\'', '"']).take(2).collect(),
            ("", Some(mark)) => mark.to_string(),
            (word, _) => word.to_owned(),
        };
        let mut shown: String = next.chars().take(40).collect();
        if shown.len() < next.len() {
            shown.push('…');
        }
        self.found(expected, format!("{shown:?}"))
    }

    fn found(&self, expected: &str, found: String) -> Wrong {
        Wrong { at: self.at, expected: expected.to_owned(), found }
    }
}

/// The digits of a Python integer, with its minus and without its `L`; `None` for anything else, and for
/// `010`, which is 8 to Python 2 and an error to Python 3.
fn integer(word: &str) -> Option<&str> {
    let number = word.strip_suffix('L').unwrap_or(word);
    let digits = number.strip_prefix('-').unwrap_or(number);
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    (plain && (digits == "0" || !digits.starts_with('0'))).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_pythons() {
        for (text, means) in [
            (r"'descr'", "descr"),
            (r#""descr""#, "descr"),
            (r#" "it's" "#, "it's"),
            (r"'\x64\145\163\u0063\U00000072'", "descr"),
            (r#"'\\\'\"\a\b\t\n\v\f\r\0'"#, "\\'\"\x07\x08\t\n\x0b\x0c\r\0"),
            (r"'\1234'", "S4"),
            ("'é\u{10ffff}'", "é\u{10ffff}"),
        ] {
            assert_eq!(Literals::new(text).string("").as_deref(), Ok(means), "{text}");
        }
        for text in [
            "",
            "descr",
            "'",
            "'a",
            "'a\"",
            "'a\n'",
            "'\\",
            "'\\'",
            r"'\x6'",
            r"'\xé'",
            r"'\u12'",
            r"'\ud800'",
            r"'\U00110000'",
            r"'\N{DASH}'",
            r"'\q'",
            "'\\\n'",
            "'\0'",
        ] {
            assert!(Literals::new(text).string("").is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_a_tuple_of_plain_numbers() {
        for (text, sizes) in [
            ("()", &[][..]),
            ("( )", &[]),
            ("(3,)", &[3]),
            ("(3 ,\n)", &[3]),
            ("(3L, 4L)", &[3, 4]),
            ("(0,1,2,)", &[0, 1, 2]),
            ("(18446744073709551615,)", &[usize::MAX]),
        ] {
            assert_eq!(Literals::new(text).sizes().as_deref(), Ok(sizes), "{text}");
        }
        for (text, expected) in [
            ("3", "a tuple of sizes such as (3, 4)"),
            ("[3]", "a tuple of sizes such as (3, 4)"),
            ("(3)", "a tuple, which for one axis is (3,)"),
            ("(,)", "a size such as 10"),
            ("(3,,)", "a size such as 10"),
            ("(3 4)", "a comma or )"),
            ("(3, 4", "a comma or )"),
            ("(3,", "a size such as 10"),
            ("(True,)", "a size such as 10"),
            ("(0x10,)", "a size such as 10"),
            ("(1_0,)", "a size such as 10"),
            ("(1e3,)", "a size such as 10"),
            ("(+1,)", "a size such as 10"),
            ("(1LL,)", "a size such as 10"),
            ("(L,)", "a size such as 10"),
            ("(010,)", "a size such as 10"),
            ("((3,),)", "a size such as 10"),
            ("(-1,)", "a size of 0 or more"),
            ("(18446744073709551616,)", "a size that fits in 64 bits"),
        ] {
            assert_eq!(Literals::new(text).sizes().unwrap_err().expected, expected, "{text}");
        }
    }

    #[test]
    fn axes_are_counted() {
        let axes = |n| format!("({})", "1,".repeat(n));
        assert_eq!(Literals::new(&axes(64)).sizes().unwrap().len(), 64);
        assert_eq!(Literals::new(&axes(65)).sizes().unwrap_err().expected, "at most 64 axes, as in NumPy");
    }

    #[test]
    fn nesting_is_counted() {
        let nested = |n| "[".repeat(n) + &"]".repeat(n);
        assert_eq!(Literals::new(&nested(32)).skip(), Ok(()));
        let wrong = Literals::new(&nested(100_000)).skip().unwrap_err();
        assert_eq!((wrong.at, wrong.expected.as_str()), (32, "at most 32 brackets inside each other"));
    }

    #[test]
    fn what_is_skipped_is_checked() {
        for text in
            ["[('x', '<f4'), (('title', 'y'), '<i8', (2, 3L))]", "()", "(1)", "-3", "True", "[[], [()]]"]
        {
            let mut literals = Literals::new(text);
            assert_eq!(literals.skip().and_then(|()| literals.end()), Ok(()), "{text}");
        }
        for text in ["", "[", "[1", "[1)", "[1 2]", "[,]", "{}", "x", "None", "1.5", "#", "é"] {
            assert!(Literals::new(text).skip().is_err(), "{text}");
        }
    }

    #[test]
    fn long_finds_are_shortened() {
        let text = "9".repeat(1 << 20);
        let wrong = Literals::new(&format!("({text},)")).sizes().unwrap_err();
        assert_eq!(wrong.found, format!("\"{}…\"", &text[..40]));
    }
}
