//! What can be wrong with a call of `lowtide watch`, found before the command runs for ten hours.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use lowtide::budget::parse_size;
use lowtide::error::{Error, Result};

use super::Args;
use crate::save;

/// Whether the call makes sense and its reports could be written.
pub fn check(args: &Args) -> Result<()> {
    if let (Some(None), Some(first)) = (args.assert_flat, args.command.first())
        && first.to_str().is_some_and(|word| parse_size(word).is_ok())
        && !is_program(first)
    {
        let size = first.to_string_lossy();
        return Err(Error::argument(
            format!("{size} is a size, and would be run as a command here"),
            format!("join it to the option: --assert-flat={size}"),
        ));
    }
    if let Some(path) = &args.json
        && path.extension().is_none()
        && is_program(path.as_os_str())
    {
        let name = path.display();
        return Err(Error::argument(
            format!("--json would write its report to a file called {name}, which is the name of a program"),
            format!("--json=- {name} … for standard output, --json=./{name} for that file"),
        ));
    }
    let to_files = args.html.iter().chain(&args.json).filter(|path| path.as_os_str() != "-");
    to_files.into_iter().try_for_each(|path| save::check(path))
}

/// Why a command could not be started, and the code that shells give then.
pub fn cannot_run(command: &[OsString], source: io::Error) -> (Error, i32) {
    let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let path = Path::new(program);
    let named = program.as_bytes().contains(&b'/');
    let (what, hint, code) = match source.kind() {
        io::ErrorKind::NotFound if named && path.exists() => {
            ("the interpreter that its first line names is missing", "", 127)
        }
        io::ErrorKind::NotFound if command.len() == 1 && program.as_bytes().contains(&b' ') => (
            "there is no such command",
            "give the command and its arguments as separate words, or run a shell: sh -c '…'",
            127,
        ),
        io::ErrorKind::NotFound if named => ("there is no such command", "", 127),
        io::ErrorKind::NotFound => ("there is no such command in PATH", "", 127),
        io::ErrorKind::PermissionDenied if path.is_dir() => ("this is a folder, not a command", "", 126),
        io::ErrorKind::PermissionDenied => {
            ("this file is not executable", "name its interpreter, like python FILE, or chmod +x it", 126)
        }
        _ => return (Error::io(path, "run the command", source), 126),
    };
    (Error::argument(format!("{}: {what}", path.display()), hint), code)
}

/// Whether a bare word is a program that can be found.
fn is_program(name: &OsStr) -> bool {
    let found = |folder: &Path| {
        let path = folder.join(name);
        path.is_file() && rustix::fs::access(&path, rustix::fs::Access::EXEC_OK).is_ok()
    };
    !name.as_bytes().contains(&b'/')
        && std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| found(&folder)))
}
