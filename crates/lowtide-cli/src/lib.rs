//! The `lowtide` command, as a library: the Python package's console script calls [`main`], and so does
//! the binary. One file a subcommand; [`draw`] is how all of them look.
//!
//! What a command answers goes to stdout, as a table or with `--json`; progress and errors go to stderr.
//! Exit codes: 0 it worked, 1 it failed, 2 it was called wrongly.

// First: all others print with its `say!`.
#[macro_use]
pub mod draw;

mod bench;
mod cache;
pub mod convert;
mod demo;
#[cfg(test)]
mod examples;
mod headerless;
mod home;
mod info;
mod number;
mod page;
pub mod prepare;
mod save;
pub mod shuffle;
mod signals;
mod storage;
mod trial;
mod verify;
mod watch;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use lowtide::door::Door;
use std::ffi::OsString;
use std::path::PathBuf;

/// Read arrays on disk that are larger than memory, in any order, inside a fixed memory budget.
#[derive(Debug, Parser)]
#[command(name = "lowtide", version, max_term_width = 100, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say nothing but the answer
    #[arg(long, short, global = true, display_order = LAST)]
    quiet: bool,
    /// When to use colours (`NO_COLOR` is heard too)
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", display_order = LAST + 1)]
    color: Color,
}

/// What every command has stands below what is its own.
const LAST: usize = 900;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Args),
    Bench(bench::Args),
    Watch(watch::Args),
    Prepare(Box<prepare::Args>),
    Verify(verify::Args),
    Shuffle(shuffle::Args),
    Convert(Box<convert::Args>),
    Cache(cache::Args),
    Demo(demo::Args),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What every subcommand is told besides its own arguments.
#[derive(Debug)]
pub struct Context {
    /// Say nothing but the answer.
    pub quiet: bool,
    /// A Python with Lowtide in it, if we were called from one.
    pub python: Option<PathBuf>,
}

/// Runs the command and returns its exit code.
pub fn main(
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    python: Option<PathBuf>,
) -> i32 {
    let cli = match parse(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            let _ = answer.print(); // help and version too
            return answer.exit_code();
        }
    };
    match cli.color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    let context = Context { quiet: cli.quiet, python };
    let answer = match cli.command {
        Command::Info(args) => info::run(&args, &context),
        Command::Bench(args) => bench::run(&args, &context),
        Command::Watch(args) => watch::run(&args, &context),
        Command::Prepare(args) => prepare::run(&args, &context),
        Command::Verify(args) => verify::run(&args, &context),
        Command::Shuffle(args) => shuffle::run(&args, &context),
        Command::Convert(args) => convert::run(&args, &context),
        Command::Cache(args) => cache::run(&args),
        Command::Demo(args) => demo::run(&args, &context),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "lowtide", &mut script);
            draw::raw(&script);
            Ok(())
        }
    };
    match answer {
        Ok(()) => draw::unheard().map_or(0, unheard),
        Err(Failure::Said) => 1,
        Err(Failure::Exit(code)) => code,
        // As a shell says it: nothing is left to tell whoever pressed Ctrl-C.
        Err(Failure::Error(lowtide::Error::Interrupted)) => 128 + signals::asked().unwrap_or(libc::SIGINT),
        Err(Failure::Error(error)) => {
            draw::error(&error.at(Door::Shell).to_string());
            i32::from(matches!(error, lowtide::Error::Argument { .. })) + 1
        }
    }
}

/// What was asked for. A negative number is a value: `--seed -1` is told what is wrong with it, not that there is no
/// option of this name. What `watch` runs has options of its own. `~` is the user's home.
fn parse(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let command = Cli::command().mut_subcommands(|command| {
        let numbers = command.get_name() != "watch";
        home::expanded(command).allow_negative_numbers(numbers)
    });
    Cli::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// The exit code where the answer could not be printed. Whoever closed a pipe knows it, as after any command that a
/// closed pipe kills; a full disk is an error.
fn unheard(error: &std::io::Error) -> i32 {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return 128 + libc::SIGPIPE;
    }
    draw::error(&format!("cannot print the answer: {error}"));
    1
}

/// Why a command did not work.
#[derive(Debug)]
pub enum Failure {
    /// It was said already.
    Said,
    /// A command that we ran ended with this code.
    Exit(i32),
    /// To be said.
    Error(lowtide::Error),
}

impl From<lowtide::Error> for Failure {
    fn from(error: lowtide::Error) -> Self {
        Self::Error(error)
    }
}
