//! Numbers out of the kernel's text files, without allocating.
//!
//! The sampler reads the same few files ten times a second, so nothing here makes a `String`: bytes in,
//! integers out, `None` where the kernel wrote something else than expected.

/// The digits at the start of `text`, after blanks.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    text[..digits]
        .iter()
        .try_fold(0_u64, |sum, byte| sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')))
}

/// What follows `key` on the line that starts with it: `b"RssAnon:"` in `/proc/PID/status`.
pub(super) fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(key))
}

/// The number on the line that starts with `key`.
pub(super) fn value(text: &[u8], key: &[u8]) -> Option<u64> {
    number(after(text, key)?)
}

/// The number on the line that starts with `key`, which the kernel gives in kB, in bytes.
pub(super) fn kib(text: &[u8], key: &[u8]) -> Option<u64> {
    value(text, key)?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_the_digits_end() {
        assert_eq!(number(b"  17 kB"), Some(17));
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"max"), None);
        assert_eq!(number(b""), None);
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None, "too large is not a wrapped number");
    }

    #[test]
    fn a_key_matches_whole_lines_only() {
        let text = b"total_cache 5\ncache 7\n";
        assert_eq!(value(text, b"cache "), Some(7));
        assert_eq!(value(text, b"rss "), None);
        assert_eq!(kib(b"VmPTE:\t      52 kB\n", b"VmPTE:"), Some(52 * 1024));
    }
}
