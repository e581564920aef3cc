//! The command without Python around it. `lowtide demo` then looks for a `python3` of its own.

fn main() -> std::process::ExitCode {
    let code = lowtide_cli::main(std::env::args_os(), None);
    u8::try_from(code).map_or(std::process::ExitCode::FAILURE, Into::into)
}
