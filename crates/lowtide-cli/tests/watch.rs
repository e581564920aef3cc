//! `lowtide watch` around real commands: it must not be noticed by them, and must be right about them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn watch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lowtide"));
    command.arg("watch");
    command
}

fn shell(options: &[&str], script: &str) -> Output {
    watch().args(options).args(["--", "sh", "-c", script]).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The report as a JSON parser that is not ours reads it.
fn json(options: &[&str], command: &[&str]) -> (Output, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    let output = watch().args(options).arg("--json").arg(&path).arg("--").args(command).output().unwrap();
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{error}: {}: {}", output.status, said(&output)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    (output, serde_json::from_str(&text).unwrap())
}

/// This test binary as one of the programs below.
fn program(name: &str) -> Vec<String> {
    let path = std::env::current_exe().unwrap().display().to_string();
    ["--exact", name, "--ignored", "--nocapture", "--test-threads=1"].iter().fold(
        vec![path],
        |mut command, part| {
            command.push((*part).to_owned());
            command
        },
    )
}

#[test]
fn the_exit_code_is_the_commands() {
    assert_eq!(shell(&[], "exit 0").status.code(), Some(0));
    assert_eq!(shell(&[], "exit 7").status.code(), Some(7));
    assert_eq!(shell(&[], "kill -9 $$").status.code(), Some(137), "128 and the signal");
    assert_eq!(shell(&["--assert-flat"], "exit 3").status.code(), Some(3), "its failure comes before ours");
}

#[test]
fn called_wrongly_is_2_and_a_command_that_cannot_run_is_what_shells_say() {
    assert_eq!(watch().output().unwrap().status.code(), Some(2));
    assert_eq!(watch().args(["--interval", "soon", "--", "true"]).output().unwrap().status.code(), Some(2));
    assert_eq!(watch().args(["--pid", "1", "--", "true"]).output().unwrap().status.code(), Some(2));
    assert_eq!(watch().args(["--no-such-option", "true"]).output().unwrap().status.code(), Some(2));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
        path.display().to_string()
    };
    let plain = file("plain.py", 0o644, "print()");
    let script = file("script", 0o755, "#!/no/such/interpreter\n");
    let here = folder.path().display().to_string();
    for (command, code, wanted) in [
        ("/nonexistent/program", 127, "error: /nonexistent/program: there is no such command"),
        ("lowtide-no-such", 127, "error: lowtide-no-such: there is no such command in PATH"),
        ("python train.py", 127, "hint: give the command and its arguments as separate words"),
        (&script, 127, "the interpreter that its first line names is missing"),
        (&plain, 126, "this file is not executable\nhint: name its interpreter, like python FILE"),
        (&here, 126, "this is a folder, not a command"),
    ] {
        let output = watch().args(["--", command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{command}: {}", said(&output));
    }
    let output = watch().args(["--pid", "4194303"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn the_command_needs_no_dashes_and_what_follows_it_is_its_own() {
    let output = watch().args(["--quiet", "echo", "--quiet", "--json", "-x", "--", "y"]).output().unwrap();
    assert_eq!(output.stdout, b"--quiet --json -x -- y\n");
    assert_eq!(said(&output), "");
}

#[test]
fn a_size_or_a_program_in_the_wrong_place_is_told() {
    for command in [&["--assert-flat", "1GiB", "true"][..], &["--assert-flat", "1GiB", "--", "true"]] {
        let output = watch().args(command).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(
            said(&output).contains("hint: join it to the option: --assert-flat=1GiB"),
            "{}",
            said(&output)
        );
    }
    let output = watch().args(["--json", "sh", "script.sh"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("hint: --json=- sh"), "{}", said(&output));
}

#[test]
fn input_and_output_are_the_commands() {
    let mut child = watch()
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"through\n");
}

#[test]
fn signals_are_passed_on() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, name) in
        [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::USR1, "USR1")]
    {
        let script = format!("trap 'exit 5' {name}; echo ready; while :; do sleep 0.05; done");
        // A shell cannot trap what was ignored when it began, as SIGINT is in the background of another shell.
        let mut child = watch()
            .args(["--", "env", "--default-signal", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5), "SIG{name}");
    }
}

#[test]
fn a_command_that_dies_of_the_signal_is_reported_as_that() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut child = watch().args(["--", "sleep", "30"]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn orphans_do_not_hold_us_up() {
    let begin = Instant::now();
    let output = shell(&[], "sleep 20 >/dev/null 2>&1 </dev/null & exit 4");
    assert_eq!(output.status.code(), Some(4));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn thousands_of_short_lived_children_are_counted() {
    let script = "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done; exit 6";
    let (output, report) = json(&["--interval", "2ms"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(6), "{}", said(&output));
    assert!(report["processes_seen"].as_u64().unwrap() > 30, "{}", report["processes_seen"]);
    assert!(report["processes"].as_array().unwrap().len() <= 100);
}

#[test]
fn a_page_to_standard_output_is_a_page() {
    let output = shell(&["--quiet", "--html", "-"], "sleep 0.2");
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"<!doctype html>"), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn the_json_has_what_was_promised() {
    let (output, report) = json(&[], &["sleep", "0.5"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(report["verdict"], "unknown", "too short");
    assert_eq!(report["command"], serde_json::json!(["sleep", "0.5"]));
    assert_eq!(report["exit_code"], 0);
    for key in ["peak_anon_bytes", "peak_file_bytes"] {
        assert!(report[key].as_u64().unwrap() > 0, "{key}");
    }
    assert!(report["peak_cache_bytes"].is_null(), "no file, no figure");
    for kind in ["anon", "shmem", "file", "cache"] {
        assert!(report["growth_bytes_per_second"].get(kind).is_some(), "{kind}");
    }
    assert!(report["samples"].as_array().unwrap().len() >= 3);
    assert!(report["samples"][1]["anon_bytes"].as_u64().is_some());
    let output = shell(&["--quiet", "--json"], "sleep 0.2");
    let stdout: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stdout["exit_code"], 0);
    assert_eq!(said(&output), "", "--quiet");
}

#[test]
fn a_report_that_could_not_be_written_is_told_before_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--html", "--json"] {
        for (path, wanted) in [
            ("/nonexistent/x.html", "/nonexistent/x.html: there is no such folder to write into"),
            (folder.path().to_str().unwrap(), "this is a folder"),
        ] {
            let output = shell(&[option, path], "echo done");
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{option} {path}: it ran");
            assert_eq!(output.status.code(), Some(2), "{}", said(&output));
            assert!(said(&output).contains(wanted), "{option} {path}: {}", said(&output));
        }
    }
}

#[test]
fn a_disk_that_may_only_be_read_is_told_before_the_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o ro none {0} && {1} watch --html {0}/x.html -- echo done",
        folder.path().display(),
        env!("CARGO_BIN_EXE_lowtide")
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    if said(&output).contains("not permitted") || said(&output).contains("permission denied") {
        eprintln!("skipped: only root may mount a disk");
        return;
    }
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b""[..], Some(2)), "{}", said(&output));
    assert!(
        said(&output).contains("cannot write into this folder: Read-only file system"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_full_disk_is_an_error_that_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8k none {0} && {1} watch --html {0}/x.html -- sh -c 'echo done; exit 0'; \
         code=$?; ls {0}; exit $code",
        folder.path().display(),
        env!("CARGO_BIN_EXE_lowtide")
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    if said(&output).contains("not permitted") || said(&output).contains("permission denied") {
        eprintln!("skipped: only root may mount a small disk");
        return;
    }
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done\n",
        "the report or its temporary file was left"
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
}

#[test]
fn a_running_process_can_be_looked_at() {
    let mut child = Command::new("sleep").arg("1").spawn().unwrap();
    let output = watch().args(["--json", "-", "--quiet", "--pid", &child.id().to_string()]).output().unwrap();
    child.wait().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["exit_code"].is_null());
    assert_eq!(report["processes_seen"], 1);
}

#[test]
fn a_leak_fails_the_assertion_and_flat_memory_passes_it() {
    let leak = program("program_leaks");
    let output = watch().arg("--assert-flat").arg("--").args(&leak).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("error: memory is not flat: leak"), "{}", said(&output));
    let lenient = watch().arg("--assert-flat=4GiB").arg("--").args(&leak).output().unwrap();
    assert_eq!(lenient.status.code(), Some(0), "{}", said(&lenient));
    let flat = watch().arg("--assert-flat").args(["--", "sleep", "3"]).output().unwrap();
    assert_eq!(flat.status.code(), Some(0), "{}", said(&flat));
    let short = watch().arg("--assert-flat").args(["--", "true"]).output().unwrap();
    assert_eq!(short.status.code(), Some(1), "too short to tell is not flat");
}

/// A control group of version 1 with a limit, gone when it is dropped.
struct Group(std::path::PathBuf);

impl Group {
    fn with_limit(name: &str, bytes: u64) -> Option<Self> {
        let name = format!("lowtide-watch-test-{name}-{}", std::process::id());
        let group = std::path::Path::new("/sys/fs/cgroup/memory").join(name);
        if std::fs::create_dir(&group).is_err() {
            eprintln!("skipped: no control group of version 1 that we may make groups in");
            return None;
        }
        std::fs::write(group.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
        Some(Self(group))
    }

    /// The report of a command that was watched inside the group. While a killed process still gives its
    /// memory back, the kernel may kill the next one that needs a page, be it the watcher or a shell (seen 1
    /// in 30): then the command is run again.
    fn watch(&self, command: &str) -> (Output, Value) {
        self.watch_with("", command)
    }

    /// The same with options of `lowtide watch`.
    fn watch_with(&self, options: &str, command: &str) -> (Output, Value) {
        let mut tries = 0;
        loop {
            tries += 1;
            let kills = self.kills();
            let report = tempfile::NamedTempFile::new().unwrap();
            let script = format!(
                "echo $$ > {}/cgroup.procs; exec {} watch {options} --json={} -- {command}",
                self.0.display(),
                env!("CARGO_BIN_EXE_lowtide"),
                report.path().display(),
            );
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            if self.kills() > kills + 1 && tries < 5 {
                continue;
            }
            let text = std::fs::read_to_string(report.path()).unwrap();
            let report = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{error}: {}: {}", output.status, said(&output)));
            return (output, report);
        }
    }

    /// How many processes the kernel has killed in the group.
    fn kills(&self) -> u64 {
        let counts = std::fs::read_to_string(self.0.join("memory.oom_control")).unwrap();
        counts.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel may take a moment to see that the last process has left.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The limit of a control group is found, and is what the words are about.
#[test]
fn a_limit_is_named() {
    let Some(group) = Group::with_limit("limit", 2 << 30) else { return };
    let (output, report) = group.watch(&program("program_leaks").join(" "));
    let wanted = format!("the 2 GiB of control group {}", group.0.display());
    assert!(said(&output).contains(&wanted), "{}", said(&output));
    assert_eq!(report["cgroup"]["limit_bytes"], 2_147_483_648_u64);
    assert!(report["cgroup"]["peak_bytes"].as_u64().unwrap() > 140 << 20, "{}", report["cgroup"]);
    assert!(report["samples"][20]["cgroup_bytes"].as_u64().unwrap() > 10 << 20);
    assert!(report["killed"].is_null());
}

/// A kill at the limit has a name: of the command itself, and of a worker of a command that goes on.
#[test]
fn a_kill_for_want_of_memory_is_named() {
    let Some(group) = Group::with_limit("kill", 64 << 20) else { return };
    let leak = program("program_leaks").join(" ");
    let wanted = format!("control group {} had reached its limit of 64 MiB.", group.0.display());

    let (output, report) = group.watch(&leak);
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    assert!(said(&output).contains("The kernel killed the command (process "), "{}", said(&output));
    assert!(said(&output).contains(&wanted) && !said(&output).contains("At this rate"), "{}", said(&output));
    let killed = &report["killed"];
    assert_eq!((&killed["by"], &killed["signal"]), (&"cgroup limit".into(), &"SIGKILL".into()), "{killed}");
    assert_eq!(killed["cgroup"].as_str(), group.0.to_str());
    assert_eq!((&killed["limit_bytes"], &killed["out_of_memory"]), (&(64 << 20).into(), &true.into()));
    assert!(report["limit_in_seconds"].is_null());

    let (output, report) = group.watch(&format!("sh -c '{leak}; sleep 0.5; exit 3'"));
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("The kernel killed a process with SIGKILL"), "{}", said(&output));
    assert!(said(&output).contains(&wanted), "{}", said(&output));
    assert_eq!(report["killed"]["is_the_command"], false);
    assert!(report["killed"]["command"].as_str().unwrap().contains("program_leaks"), "{}", report["killed"]);
}

/// A command that goes on without a worker that was killed has not stayed flat, however calm the rest is.
#[test]
fn a_run_with_a_kill_for_want_of_memory_does_not_pass_as_flat() {
    let Some(group) = Group::with_limit("flat", 64 << 20) else { return };
    let burst = program("program_takes_all_at_once").join(" ");
    let command = format!("sh -c '{burst}; sleep 3; exit 0'");
    for options in ["--assert-flat=1GiB", "--assert-flat=1GiB --quiet"] {
        let (output, report) = group.watch_with(options, &command);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{options}: {said}");
        assert_eq!(report["verdict"], "unknown", "{options}: {said}");
        assert!(
            said.contains("memory is not flat: unknown, a process was killed for want of memory"),
            "{said}"
        );
        assert!(said.contains("The kernel killed a process with SIGKILL for want of memory"), "{said}");
        assert!(said.contains("hint: Raise the limit"), "{said}");
    }
}

#[test]
fn a_kill_by_somebody_is_no_want_of_memory() {
    let (output, report) = json(&[], &["sh", "-c", "sleep 0.3; kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert!(said(&output).contains("was ended by SIGKILL"), "{}", said(&output));
    assert_eq!(
        (&report["killed"]["by"], &report["killed"]["out_of_memory"]),
        (&"signal".into(), &false.into())
    );
    let (_, report) = json(&[], &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(report["killed"]["signal"], "SIGSEGV");
    let (_, report) = json(&[], &["sh", "-c", "exit 137"]);
    assert!(report["killed"].is_null());
}

#[test]
#[ignore = "a program for the tests above"]
fn program_takes_all_at_once() {
    std::hint::black_box(vec![1_u8; 150 << 20]);
}

#[test]
#[ignore = "a program for the tests above"]
fn program_leaks() {
    let mut held = Vec::new();
    for _ in 0..150 {
        held.push(vec![1_u8; 1 << 20]);
        std::thread::sleep(Duration::from_millis(20));
    }
    std::hint::black_box(&held);
}
