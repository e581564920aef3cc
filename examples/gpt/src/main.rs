//! A small GPT, trained on the CPU from a token file that may be far larger than memory.
//!
//! This file has the command; then read `train` (the loop), `model`, `optimizer`, `checkpoint`, `sample`.

#![allow(clippy::cast_possible_truncation)] // the numbers of a model are f32

mod checkpoint;
mod model;
mod optimizer;
mod sample;
#[cfg(test)]
mod tests;
mod train;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use lowtide::door::{Door, Words};
use std::{env, os::unix::process::CommandExt as _, process};

/// A small GPT, trained from Lowtide's loader
#[derive(Debug, Parser)]
#[command(name = "lowtide-gpt", version, max_term_width = 100)]
enum Cli {
    Train(train::Args),
    Sample(sample::Args),
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A wrong flag or file, and what to do about it.
fn wrong<T>(what: impl Into<Words>, hint: impl Into<Words>) -> Result<T> {
    Err(lowtide::Error::argument(what, hint).into())
}

fn main() -> process::ExitCode {
    let matches = Cli::command().get_matches();
    let flags = matches.subcommand().map_or(&matches, |(_, flags)| flags);
    let done = match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()) {
        Cli::Train(args) => with_threads(args.threads).and_then(|()| train::run(&args, flags)),
        Cli::Sample(args) => with_threads(None).and_then(|()| sample::run(&args)),
    };
    let Err(error) = done else { return process::ExitCode::SUCCESS };
    let known = error.downcast_ref::<lowtide::Error>();
    let said = known.map_or_else(|| error.to_string(), |error| error.at(Door::Shell).to_string());
    eprintln!("error: {said}");
    process::ExitCode::from(if matches!(known, Some(lowtide::Error::Argument { .. })) { 2 } else { 1 })
}

/// candle reads from the environment how many threads it may have, and a program cannot safely change its own: this
/// one starts again in its own place.
fn with_threads(threads: Option<usize>) -> Result<()> {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // For products of matrices; and one for all else, where two that wait for each other are slower on busy cores.
    let threads = [threads.unwrap_or_else(cores).to_string(), "1".to_owned()];
    let wanted = ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS"].into_iter().zip(threads);
    if wanted.clone().all(|(name, value)| env::var(name) == Ok(value)) {
        return Ok(());
    }
    Err(process::Command::new(env::current_exe()?).args(env::args_os().skip(1)).envs(wanted).exec().into())
}
