//! The three ways through the file: how much memory they get, each in a process of its own, and what they did.

use super::file::{self, LEAST, Place, SEED};
use super::memory::Cage;
use super::story::{Limit, Side, Story};
use super::tokens::{self, TokensPart};
use super::{CHUNK, PATIENCE, WAYS};
use crate::Context;
use crate::bench::start::Start;
use crate::draw::Progress;
use crate::trial::{Outcome, Trial};
use lowtide::budget::human;
use lowtide::{Error, Result, meter};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What runs in each process.
const WORKER: &str = include_str!("worker.py");

/// How large the file is, where it goes, and in how much memory it is read.
pub struct Setting {
    pub bytes: u64,
    pub place: Place,
    pub limit: Limit,
    cage: Cage,
}

/// Who watches, and how long a way may take.
pub struct Watch<'a> {
    pub context: &'a Context,
    pub progress: &'a Progress,
    pub seconds: f64,
}

impl Setting {
    /// Decides how much memory there will be, and how large a file shows what that means.
    pub fn plan(size: Option<u64>, folder: Option<&Path>) -> Result<Self> {
        let mut place = Place::find(folder, size.unwrap_or(LEAST))?;
        let mut bytes = file::usual(size, place.free);
        // 160 MiB for 1 GiB: a Python with NumPy and the order are in it, too.
        let allowed = bytes / 32 * 5;
        let cage = Cage::new(allowed.max(LEAST / 4));
        let limit = match &cage {
            Cage::None(why) => {
                let room = meter::room().bytes;
                if size.is_none()
                    && bytes < room / 8 * 9
                    && let Some(more) = file::beyond(room, place.free)
                {
                    bytes = more;
                    place = Place::find(folder, bytes)?;
                }
                if bytes > room {
                    Limit::Found(room)
                } else {
                    let need = human((room / 4 * 5).next_multiple_of(1 << 30));
                    Limit::Ample(format!(
                        "{why}, and a file larger than the {} that are available takes long to make \
                         (`lowtide demo --size {}` does)",
                        human(room),
                        need.replace(' ', "")
                    ))
                }
            }
            _ => Limit::Given(allowed.max(LEAST / 4)),
        };
        Ok(Self { bytes, place, limit, cage })
    }

    /// Goes through the file in all ways, and says where Python's standard library is and which versions there are.
    pub fn compare(&self, rows: &Path, order: &Path, watch: &Watch<'_>) -> Result<(Story, Vec<Outcome>)> {
        let mut outcomes = Vec::new();
        for (way, name) in WAYS {
            let seconds = if way == "lowtide" { watch.seconds * PATIENCE } else { watch.seconds };
            let numbers = [CHUNK.to_string(), SEED.to_string(), seconds.to_string()];
            let mut arguments: Vec<OsString> = vec![way.into(), rows.into(), order.into()];
            arguments.extend(numbers.into_iter().map(Into::into));
            outcomes.push(self.measure(WORKER, name, rows, arguments, seconds, watch)?);
        }
        same_rows(&outcomes)?;
        let mut sides = WAYS.iter().zip(&outcomes).map(|((_, name), outcome)| Side::new(name, outcome));
        let mut side = || sides.next().expect("a way has an outcome");
        let sides = [side(), side(), side()];
        // What the kernel says of the processes themselves, whoever promised to limit them.
        let limit = match &self.limit {
            Limit::Given(bytes) if outcomes.iter().any(|o| o.limit.is_none_or(|limit| limit > *bytes)) => {
                Limit::Ample("the control group that was made does not limit them".into())
            }
            limit => limit.clone(),
        };
        Ok((Story { bytes: self.bytes, limit, sides }, outcomes))
    }

    /// Takes batches of token windows from the same file, in the same memory.
    pub fn batches(&self, rows: &Path, limit: &Limit, watch: &Watch<'_>) -> Result<TokensPart> {
        let one = |(way, name): (&str, &'static str)| -> Result<Side> {
            let numbers = [tokens::BATCH, tokens::BLOCK, SEED].map(|number| number.to_string());
            let mut arguments: Vec<OsString> = vec![way.into(), rows.into()];
            arguments.extend(numbers.into_iter().map(Into::into));
            arguments.push(watch.seconds.to_string().into());
            let outcome = self.measure(tokens::WORKER, name, rows, arguments, watch.seconds, watch)?;
            Ok(Side::new(name, &outcome))
        };
        let sides = [one(tokens::WAYS[0])?, one(tokens::WAYS[1])?];
        Ok(TokensPart { bytes: self.bytes, limit: limit.clone(), sides })
    }

    /// Runs one way in a process of its own and watches it from outside.
    fn measure(
        &self,
        program: &'static str,
        name: &str,
        rows: &Path,
        arguments: Vec<OsString>,
        seconds: f64,
        watch: &Watch<'_>,
    ) -> Result<Outcome> {
        let paths: [PathBuf; 1] = [rows.to_owned()];
        watch.progress.say(&format!("{name} …"));
        Start::Cold.prepare(&paths, watch.progress)?;
        let trial = Trial { whose: "the demo", program, arguments, paths: &paths, place: self.cage.place() };
        trial.run(watch.context, |time, mapped| {
            let mapped = human(mapped);
            watch.progress.say(&format!("{name}: {:.0} s of {seconds}, mapped {mapped}", time.as_secs_f64()));
        })
    }
}

/// All ways read the same rows first, or there is nothing to compare.
fn same_rows(outcomes: &[Outcome]) -> Result<()> {
    let mut first = outcomes.iter().map(|outcome| &outcome.said["first"]);
    let one = first.next();
    if first.all(|other| Some(other) == one) {
        return Ok(());
    }
    let found: Vec<String> =
        outcomes.iter().map(|outcome| json!(outcome.said["first"]).to_string()).collect();
    Err(Error::unsupported(
        format!("the ways did not read the same rows: {}", found.join(", ")),
        "this is a bug",
    ))
}
