//! Names that are addresses in an object store: pure.

use crate::error::Error;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What an address begins with.
const SCHEMES: [&str; 9] = ["s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https"];

/// Whether a name is the address of an object: `s3://…`, `gs://…`, `az://…`, `https://…`.
pub fn is_url(name: &Path) -> bool {
    scheme(name).is_some()
}

/// The scheme of an address, and what stands behind its `://`; `None` for a path.
pub(crate) fn scheme(name: &Path) -> Option<(&'static str, &[u8])> {
    let bytes = name.as_os_str().as_bytes();
    SCHEMES.into_iter().find_map(|scheme| {
        let rest = bytes.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme.as_bytes()));
        rest.and_then(|_| bytes[scheme.len()..].strip_prefix(b"://")).map(|rest| (scheme, rest))
    })
}

/// The scheme of what looks like an address, and is none that is known: `ftp` of `ftp://…`.
pub(crate) fn unknown_scheme(name: &Path) -> Option<&str> {
    let (scheme, _) = name.to_str()?.split_once("://")?;
    let word = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    let is_one = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(word);
    (is_one && !is_url(name)).then_some(scheme)
}

/// That nothing is known of such an address; `None` where it is a path after all.
pub(crate) fn unknown(name: &Path) -> Option<Error> {
    let scheme = unknown_scheme(name)?;
    let hint = match scheme {
        "file" => "leave file:// away: a path is enough",
        _ => "s3://, gs://, az://, abfss://, http:// and https:// are, and paths of this machine",
    };
    Some(Error::argument(format!("{}: addresses of {scheme}:// are not known", name.display()), hint))
}

/// Whether an address is of a plain web server, which can be asked for one object and for no list of them.
pub(crate) fn is_web(name: &Path) -> bool {
    matches!(scheme(name), Some(("http" | "https", _)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_not_known_is_named_as_it_was_given() {
        let opened = |name: &str| crate::open(name).unwrap_err().to_string();
        assert!(
            opened("ftp://b/x.npy")
                .starts_with("ftp://b/x.npy: addresses of ftp:// are not known\nhint: s3://")
        );
        assert!(opened("file:///x.npy").ends_with("hint: leave file:// away: a path is enough"));
        let tokens = crate::TokenOptions::new().open(["s4://b/train.bin"]).unwrap_err().to_string();
        assert!(tokens.starts_with("s4://b/train.bin: addresses of s4:// are not known"), "{tokens}");
    }

    #[test]
    fn addresses_are_told_from_paths() {
        for url in
            ["s3://b/k", "S3://b/k", "gs://b", "az://c/k", "https://h/x?y", "http://h", "abfss://c@a/k"]
        {
            assert!(is_url(Path::new(url)), "{url}");
        }
        for path in ["", "s3", "s3:/b/k", "/s3://b", "./s3://b", "s4://b", "file:///x", "s3b://x", "a/b.npy"]
        {
            assert!(!is_url(Path::new(path)), "{path}");
        }
        for (name, scheme) in [
            ("ftp://b/x", Some("ftp")),
            ("s4://b", Some("s4")),
            ("file:///x", Some("file")),
            ("s3://b/k", None),
            ("HTTPS://h", None),
            ("/ftp://b", None),
            ("a b://c", None),
            ("://x", None),
            ("data/a:b//c", None),
        ] {
            assert_eq!(unknown_scheme(Path::new(name)), scheme, "{name}");
        }
        assert!(is_web(Path::new("HTTPS://h/x")) && !is_web(Path::new("s3://b/x")));
    }
}
