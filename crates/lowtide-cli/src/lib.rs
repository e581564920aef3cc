//! The `lowtide` command, as a library: the Python package's console script calls [`main`], and so does
//! the binary. One file a subcommand; [`draw`] is how all of them look.
//!
//! What a command answers goes to stdout, as a table or with `--json`; progress and errors go to stderr.
//! Exit codes: 0 it worked, 1 it failed, 2 it was called wrongly.

mod bench;
pub mod convert;
mod demo;
pub mod draw;
mod headerless;
mod info;
pub mod prepare;
mod save;
pub mod shuffle;
mod signals;
mod trial;
mod verify;
mod watch;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
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
    #[arg(long, short, global = true)]
    quiet: bool,
    /// When to use colours (`NO_COLOR` is heard too)
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: Color,
}

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
    let cli = match Cli::try_parse_from(arguments) {
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
        Command::Demo(args) => demo::run(&args, &context),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "lowtide", &mut std::io::stdout());
            Ok(())
        }
    };
    match answer {
        Ok(()) => 0,
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
