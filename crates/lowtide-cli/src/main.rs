//! The `lowtide` command.

fn main() -> std::process::ExitCode {
    let code = lowtide_cli::main(std::env::args().collect(), None);
    std::process::ExitCode::from(u8::try_from(code).unwrap_or(1))
}
