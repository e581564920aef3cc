//! JSON out, nothing in: some sixty lines instead of a dependency that every user would compile.

use std::fmt::{self, Write as _};

/// A JSON value.
#[derive(Clone, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Whole(u64),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl From<u64> for Json {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Json {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Json>> FromIterator<T> for Json {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Whole(value) => write!(f, "{value}"),
            // JSON has no infinity; a millionth of a second or of a byte is finer than anything measured.
            Self::Number(value) if !value.is_finite() => f.write_str("null"),
            Self::Number(value) => write!(f, "{}", (value * 1e6).round() / 1e6),
            Self::Text(value) => text(f, value),
            Self::List(values) => list(f, ['[', ']'], values, |f, value| write!(f, "{value}")),
            Self::Object(pairs) => {
                list(f, ['{', '}'], pairs, |f, (name, value)| write!(f, "\"{name}\":{value}"))
            }
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    around: [char; 2],
    items: &[T],
    one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char(around[0])?;
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_char(',')?;
        }
        one(f, item)?;
    }
    f.write_char(around[1])
}

/// `<` and `&` are escaped too, so that no file name can end the script element that holds the data.
fn text(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    f.write_char('"')?;
    for letter in value.chars() {
        match letter {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\0'..='\x1f' | '\x7f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(f, "\\u{:04x}", u32::from(letter))?;
            }
            _ => f.write_char(letter)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let value = Json::Object(vec![
            ("a", [1_u64, 2].into_iter().collect()),
            ("b", None::<u64>.into()),
            ("c", 0.1.into()),
            ("d", f64::NAN.into()),
            ("e", Json::Bool(true)),
            ("f", u64::MAX.into()),
        ]);
        let wanted = r#"{"a":[1,2],"b":null,"c":0.1,"d":null,"e":true,"f":18446744073709551615}"#;
        assert_eq!(value.to_string(), wanted);
    }

    #[test]
    fn no_text_can_leave_its_script_element() {
        let hostile = Json::from("</script><!--\"\\\n\u{1}\u{2028}&");
        assert_eq!(hostile.to_string(), r#""\u003c/script\u003e\u003c!--\"\\\n\u0001\u2028\u0026""#);
    }
}
