//! The `lowtide` command, as a library.

pub mod child;
pub mod dock;
pub mod panel;
pub mod watch;

#[derive(Debug, clap::Parser)]
#[command(name = "lowtide", version)]
struct Cli {
    /// Say errors only
    #[arg(long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Watch(watch::Args),
}

/// Runs the command line and returns the exit code.
pub fn main(arguments: Vec<String>, _python: Option<std::path::PathBuf>) -> i32 {
    use clap::Parser as _;
    use std::io::IsTerminal as _;
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return error.exit_code();
        }
    };
    let talk = if cli.quiet { watch::Talk::Quiet } else { watch::Talk::Normal };
    let paint = if std::io::stderr().is_terminal() { panel::Paint::Colour } else { panel::Paint::Plain };
    let Command::Watch(args) = cli.command;
    match watch::run(&args, talk, paint) {
        Ok(code) => i32::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}
