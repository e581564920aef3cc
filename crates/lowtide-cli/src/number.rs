//! Numbers as arguments: what is no such number is told in the user's words, not in the parser's.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

const TOO_LARGE: &str = "expected a smaller number: it has to fit in 64 bits";

/// A whole number from 0 on.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => TOO_LARGE.to_owned(),
        _ => "expected a whole number from 0 on".to_owned(),
    })
}

/// A whole number from 1 on.
pub fn positive<T: FromStr<Err = ParseIntError> + From<u8> + PartialOrd>(text: &str) -> Result<T, String> {
    match text.parse::<T>() {
        Ok(number) if number >= T::from(1) => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Err(TOO_LARGE.to_owned()),
        _ => Err("expected a whole number from 1 on".to_owned()),
    }
}

/// One of the sizes of a shape.
pub fn size(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "expected whole numbers with commas between them, such as -1,128".to_owned())
}
