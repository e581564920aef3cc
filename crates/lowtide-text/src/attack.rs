//! Doors for the fuzzer to what is read from files that others may have written. Nobody else needs them.

use crate::job::Job;
use crate::state::State;
use lowtide::Result;
use lowtide::format::manifest::SourceFile;
use std::path::Path;

/// Takes these bytes for the state of a job of two inputs; the largest number that goes on with it would begin from.
///
/// # Errors
/// What is wrong with them.
pub fn state(bytes: &[u8]) -> Result<u64> {
    let source = |bytes| SourceFile { path: "in.jsonl".into(), bytes, modified: 0 };
    let job = Job { settings: serde_json::Map::new(), sources: vec![source(1000), source(1 << 40)] };
    let state = State::parse(Path::new("some/state.json"), bytes, &job)?;
    let place = state.place;
    let seen =
        [place.number, place.documents, state.counts.skipped, state.counts.text_bytes, state.tokens(1)];
    Ok(seen.into_iter().max().unwrap_or(0))
}
