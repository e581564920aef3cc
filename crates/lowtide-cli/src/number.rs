//! Whole numbers as arguments: what is no such number is told in the user's words, not in the parser's.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

/// A whole number from 0 on.
pub fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "expected a smaller number: it has to fit in 64 bits".to_owned(),
        _ => "expected a whole number from 0 on".to_owned(),
    })
}
