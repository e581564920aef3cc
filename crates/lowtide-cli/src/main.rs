//! The `lowtide` command.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(lowtide_cli::main(std::env::args_os()))
}
