//! What went wrong with a request, whether another attempt may help, and how it is said.
//!
//! `object_store` hides the status of an answer in its errors. So answers that mean "not now" are turned into an error of
//! our own ([`Busy`]) before it sees them, and found again in the chain of causes.

use crate::door::Words;
use crate::error::Error;
use object_store::Error as Refused;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as Cause;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// An answer that means "not now".
#[derive(Debug)]
pub(super) struct Busy {
    pub(super) status: u16,
    /// What the server said in `Retry-After`.
    pub(super) wait: Option<Duration>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.status)
    }
}

impl Cause for Busy {}

/// What went wrong with one attempt.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another attempt would say the same.
    Final(Error),
    /// The server has too much to do; it may have said for how long.
    Throttled(u16, Option<Duration>),
    /// The server, or something before it, failed.
    Server(u16),
    /// It could not be reached: the name, the route, the port, the handshake.
    Unreached(String),
    /// Nothing came for too long.
    Slow,
    /// What was sent was not taken, or not answered, for too long.
    Untaken,
    /// The connection broke in the middle.
    Broken(String),
    /// Fewer bytes came than were said to.
    Short { got: u64, expected: u64 },
    /// An answer that is no answer to the question: 200 for a range, another range.
    Nonsense(String),
    /// It does not take what was sent.
    Refused(String),
}

impl Trouble {
    /// Of an error of the crate's, of a request for `what`.
    #[allow(clippy::needless_pass_by_value)] // it is what map_err hands over
    pub(super) fn of(url: &Path, what: &'static str, refused: Refused) -> Self {
        let mut cause: Option<&(dyn Cause + 'static)> = Some(&refused);
        while let Some(error) = cause {
            if let Some(Busy { status, wait }) = error.downcast_ref::<Busy>() {
                return match status {
                    429 | 503 => Self::Throttled(*status, *wait),
                    status => Self::Server(*status),
                };
            }
            if let Some(http) = error.downcast_ref::<HttpError>()
                && !chain(http).any(<dyn Cause>::is::<Busy>)
            {
                return match http.kind() {
                    HttpErrorKind::Timeout => Self::Slow,
                    HttpErrorKind::Connect => Self::Unreached(deepest(http)),
                    _ => Self::Broken(deepest(http)),
                };
            }
            cause = error.source();
        }
        let said = |kind, text: &str| Self::Final(named(url, what, kind, text, &refused.to_string()));
        match &refused {
            Refused::NotFound { .. } => said(ErrorKind::NotFound, "there is no such object"),
            Refused::PermissionDenied { .. } => {
                said(ErrorKind::PermissionDenied, "the server says 403, forbidden")
            }
            Refused::Unauthenticated { .. } => {
                said(ErrorKind::PermissionDenied, "the server says 401, unauthorized")
            }
            _ => Self::Nonsense(last_line(&refused.to_string())),
        }
    }

    /// Of an error of the crate's, of a request that sent something.
    pub(super) fn of_sent(url: &Path, what: &'static str, refused: Refused) -> Self {
        if let Refused::NotFound { .. } = &refused {
            let text = "the server knows no such bucket, or the upload was ended there";
            return Self::Final(named(url, what, ErrorKind::NotFound, text, &refused.to_string()));
        }
        match Self::of(url, what, refused) {
            Self::Nonsense(why) => Self::Refused(why),
            Self::Slow => Self::Untaken,
            trouble => trouble,
        }
    }

    /// What is said when there is no time left for another attempt, or no hope.
    pub(super) fn given_up(self, url: &Path, what: &'static str, attempts: u32, after: Duration) -> Error {
        let tried = match attempts {
            1 => String::new(),
            n => format!(" ({n} attempts in {:.1} s)", after.as_secs_f64()),
        };
        let (kind, text, hint) = match self {
            Self::Final(error) => return error,
            Self::Throttled(status, _) => (
                ErrorKind::TimedOut,
                format!("the server answers {status}, slow down"),
                "fewer readers at once, or a longer storage_options={\"timeout\": …}",
            ),
            Self::Server(status) => (ErrorKind::Other, format!("the server answers {status}"), ""),
            Self::Unreached(why) => (
                if why.contains("refused") { ErrorKind::ConnectionRefused } else { ErrorKind::NotConnected },
                format!("the server cannot be reached: {why}"),
                "is the address right, and the endpoint (endpoint_url, AWS_ENDPOINT_URL)?",
            ),
            Self::Slow => (
                ErrorKind::TimedOut,
                "the bytes did not come in time".into(),
                "a longer storage_options={\"timeout\": \"300s\"} waits longer",
            ),
            Self::Untaken => (
                ErrorKind::TimedOut,
                "the server did not take the bytes in time".into(),
                "a longer storage_options={\"timeout\": \"300s\"} waits longer",
            ),
            Self::Broken(why) => (ErrorKind::ConnectionReset, format!("the connection broke: {why}"), ""),
            Self::Short { got, expected } => (
                ErrorKind::UnexpectedEof,
                format!("the server sent {got} of {expected} bytes and said that this was all"),
                "",
            ),
            Self::Nonsense(why) => (
                ErrorKind::InvalidData,
                format!("the server's answer is none to a request for a range: {why}"),
                "it, or a proxy before it, does not do range requests: a local copy, or another server",
            ),
            Self::Refused(why) => (ErrorKind::Other, format!("the server refuses it: {why}"), ""),
        };
        Error::Io {
            path: url.to_owned(),
            what,
            source: io::Error::new(kind, format!("{text}{tried}")),
            hint: Words::from(hint),
        }
    }

    /// Whether the server asked for fewer requests.
    pub(super) fn is_throttled(&self) -> bool {
        matches!(self, Self::Throttled(..))
    }
}

/// An error of the kind that Python has a name for, with what the server said in its hint.
fn named(url: &Path, what: &'static str, kind: ErrorKind, text: &str, said: &str) -> Error {
    let hint = match kind {
        _ if said.contains("NoSuchBucket") => "there is no such bucket",
        ErrorKind::PermissionDenied => {
            "credentials come from the environment (AWS_ACCESS_KEY_ID, …) or storage_options=; \
             {\"skip_signature\": \"true\"} is for public objects; where keys may not be listed, S3 says 403 for one that \
             is not there"
        }
        _ => "",
    };
    Error::Io {
        path: url.to_owned(),
        what,
        source: io::Error::new(kind, text.to_owned()),
        hint: Words::from(hint),
    }
}

fn chain<'a>(error: &'a (dyn Cause + 'static)) -> impl Iterator<Item = &'a (dyn Cause + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Cause + 'static)| (*error).source())
}

/// The innermost cause: those around it only repeat that something failed.
fn deepest(error: &(dyn Cause + 'static)) -> String {
    let text = chain(error).last().map(ToString::to_string).unwrap_or_default();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The end of a message of nested causes, without what stands for the layers above.
fn last_line(text: &str) -> String {
    let text = text
        .strip_prefix("Generic ")
        .and_then(|rest| rest.split_once("error: "))
        .map_or(text, |(_, rest)| rest);
    let mut short: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
