//! Messages in the language of the door through which the reader came.
//!
//! The same setting is `dtype="uint16"` in Python and `--dtype uint16` at a shell. So a message is not text
//! but [`Words`]: text, and [`Setting`]s among it. Whoever prints it says at which [`Door`] the reader stands;
//! nothing ever searches a message for something to replace.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::ops::Add;

/// Where the reader of a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// In Python, or in another program: settings are keywords.
    Python,
    /// At a shell: settings are flags.
    Shell,
}

/// The element type.
pub const DTYPE: Setting = Setting::named("dtype");
/// The shape of a file without a header.
pub const SHAPE: Setting = Setting::named("shape");
/// The order of the elements in a file.
pub const ORDER: Setting = Setting::named("order");
/// The order of the bytes of a number.
pub const BYTE_ORDER: Setting = Setting::named("byte_order");
/// Where the elements of a file without a header begin.
pub const OFFSET: Setting = Setting::named("offset");
/// The dialect of token files.
pub const FORMAT: Setting = Setting::named("format");
/// The token between documents.
pub const END_OF_TEXT: Setting = Setting::named("end_of_text");
/// The way of access.
pub const ACCESS: Setting = Setting::named("access");
/// What happens to the page cache.
pub const CACHE: Setting = Setting::named("cache");
/// How much memory to use.
pub const BUDGET: Setting = Setting::named("budget");
/// How many windows a batch has, or how many rows: those of an array call it `rows`.
pub const BATCH_SIZE: Setting = Setting::named("batch_size");
/// How many rows of an epoch were taken before.
pub const START: Setting = Setting::named("start");
/// The split of a prepared folder.
pub const SPLIT: Setting = Setting::named("split");
/// What made the ids of tokens.
pub const TOKENIZER: Setting = Setting::named("tokenizer");
/// Whether something may be lost.
pub const LOSSY: Setting = Setting::named("lossy");
/// Whether a file is replaced.
pub const OVERWRITE: Setting = Setting::named("overwrite");

/// A setting that a message names, with a value or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    name: &'static str,
    value: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// In quotes in Python, as it is at a shell.
    Word(Cow<'static, str>),
    Number(u64),
    /// A shape: `(3, 4)` in Python, `3,4` at a shell.
    Sizes(Vec<String>),
    /// What both write alike.
    Plain(String),
    /// Not given: `None` in Python, no flag at a shell.
    Absent,
    /// What is on or off: `lossy=True` in Python, `--lossy` at a shell.
    On,
}

impl Setting {
    /// A setting by the name that Python has for it; at a shell it is a flag, with `-` for `_`.
    pub const fn named(name: &'static str) -> Self {
        Self { name, value: None }
    }

    /// With a word as its value.
    #[must_use]
    pub fn is(self, word: impl Into<Cow<'static, str>>) -> Self {
        Self { value: Some(Value::Word(word.into())), ..self }
    }

    /// With a number as its value.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        Self { value: Some(Value::Number(number)), ..self }
    }

    /// With sizes as its value; `…` is one too.
    #[must_use]
    pub fn sizes(self, sizes: impl IntoIterator<Item = impl ToString>) -> Self {
        let sizes = sizes.into_iter().map(|size| size.to_string()).collect();
        Self { value: Some(Value::Sizes(sizes)), ..self }
    }

    /// With a value that both doors write alike, such as 0.5.
    #[must_use]
    pub fn plain(self, value: &impl ToString) -> Self {
        Self { value: Some(Value::Plain(value.to_string())), ..self }
    }

    /// Without a value, where it may have one.
    #[must_use]
    pub fn absent(self) -> Self {
        Self { value: Some(Value::Absent), ..self }
    }

    /// Of what is on or off: on.
    #[must_use]
    pub fn on(self) -> Self {
        Self { value: Some(Value::On), ..self }
    }

    fn write(&self, door: Door, f: &mut Formatter<'_>) -> fmt::Result {
        match door {
            Door::Python => {
                write!(f, "{}=", self.name)?;
                match &self.value {
                    None => Ok(()),
                    Some(Value::Word(word)) => write!(f, "{word:?}"),
                    Some(Value::Number(number)) => write!(f, "{number}"),
                    Some(Value::Plain(value)) => f.write_str(value),
                    Some(Value::Absent) => f.write_str("None"),
                    Some(Value::On) => f.write_str("True"),
                    Some(Value::Sizes(sizes)) => match &sizes[..] {
                        [one] => write!(f, "({one},)"),
                        sizes => write!(f, "({})", sizes.join(", ")),
                    },
                }
            }
            Door::Shell => {
                if self.value == Some(Value::Absent) {
                    f.write_str("no ")?;
                }
                write!(f, "--{}", self.name.replace('_', "-"))?;
                match &self.value {
                    None | Some(Value::Absent | Value::On) => Ok(()),
                    Some(Value::Word(word)) => write!(f, " {word}"),
                    Some(Value::Number(number)) => write!(f, " {number}"),
                    Some(Value::Plain(value)) => write!(f, " {value}"),
                    Some(Value::Sizes(sizes)) => write!(f, " {}", sizes.join(",")),
                }
            }
        }
    }
}

/// A message, or a part of one.
///
/// ```
/// use lowtide::door::{DTYPE, Door, Words};
/// let hint = Words::from("a file without a header needs ") + DTYPE + ", such as " + DTYPE.is("uint16");
/// assert_eq!(hint.to_string(), "a file without a header needs dtype=, such as dtype=\"uint16\"");
/// assert_eq!(hint.at(Door::Shell).to_string(), "a file without a header needs --dtype, such as --dtype uint16");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Cow<'static, str>),
    Setting(Setting),
}

impl Words {
    /// Nothing at all.
    pub const NONE: Self = Self(Vec::new());

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a setting is named, with whatever value.
    pub fn names(&self, setting: &Setting) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Setting(named) if named.name == setting.name))
    }

    /// The same with other names for some settings: what `lowtide.open` calls `dtype` may be another function's `in_dtype`.
    #[must_use]
    pub fn renamed(mut self, names: &[(&str, &'static str)]) -> Self {
        for piece in &mut self.0 {
            if let Piece::Setting(setting) = piece
                && let Some((_, other)) = names.iter().find(|(name, _)| *name == setting.name)
            {
                setting.name = other;
            }
        }
        self
    }

    /// The same for a reader at `door`.
    pub fn at(&self, door: Door) -> impl Display + '_ {
        At(self, door)
    }
}

struct At<'a>(&'a Words, Door);

impl Display for At<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Setting(setting) => setting.write(self.1, f),
        })
    }
}

/// For a reader in Python.
impl Display for Words {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.at(Door::Python).fmt(f)
    }
}

impl From<&'static str> for Words {
    fn from(text: &'static str) -> Self {
        Self(if text.is_empty() { Vec::new() } else { vec![Piece::Text(text.into())] })
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(if text.is_empty() { Vec::new() } else { vec![Piece::Text(text.into())] })
    }
}

impl From<Setting> for Words {
    fn from(setting: Setting) -> Self {
        Self(vec![Piece::Setting(setting)])
    }
}

impl<T: Into<Words>> Add<T> for Words {
    type Output = Self;

    fn add(mut self, more: T) -> Self {
        self.0.extend(more.into().0);
        self
    }
}

impl<T: Into<Words>> Add<T> for Setting {
    type Output = Words;

    fn add(self, more: T) -> Words {
        Words::from(self) + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_is_said_at_both_doors() {
        for (setting, python, shell) in [
            (DTYPE, "dtype=", "--dtype"),
            (DTYPE.is("<u2"), "dtype=\"<u2\"", "--dtype <u2"),
            (END_OF_TEXT.number(50_256), "end_of_text=50256", "--end-of-text 50256"),
            (SHAPE.sizes(["-1", "…"]), "shape=(-1, …)", "--shape -1,…"),
            (SHAPE.sizes([5]), "shape=(5,)", "--shape 5"),
            (BUDGET.plain(&0.5), "budget=0.5", "--budget 0.5"),
            (SPLIT.absent(), "split=None", "no --split"),
            (LOSSY.on(), "lossy=True", "--lossy"),
        ] {
            let words = Words::from(setting);
            assert_eq!([Door::Python, Door::Shell].map(|door| words.at(door).to_string()), [python, shell]);
        }
    }

    #[test]
    fn settings_have_other_names_elsewhere() {
        let words =
            (Words::from("dtype needs ") + DTYPE.is("<u2") + FORMAT).renamed(&[("dtype", "in_dtype")]);
        assert_eq!(words.at(Door::Shell).to_string(), "dtype needs --in-dtype <u2--format");
    }

    /// What no replacement of text can promise.
    #[test]
    fn a_path_that_looks_like_a_setting_stays_what_it_is() {
        let words = Words::from("dtype=x/format=\"raw\".bin: say ".to_owned()) + FORMAT.is("npy");
        assert_eq!(words.at(Door::Shell).to_string(), "dtype=x/format=\"raw\".bin: say --format npy");
        assert!(words.names(&FORMAT) && !words.names(&DTYPE));
    }
}
