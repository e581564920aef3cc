"""``lowtide watch`` is right about programs that really do what they are called, through every door."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import watch_programs
from watch_programs import MIB, VERDICTS, WARM, warm

PROGRAMS = Path(__file__).with_name("watch_programs.py")
SIZE = 512 * MIB
NAMES = [program.__name__ for program in VERDICTS]
WATCH = [sys.executable, "-m", "lowtide", "watch"]


def on_disk(folder: Path) -> bool:
    """Whether a folder is on a disk: the page cache of a tmpfs is the file itself."""
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    mounts = [mount for mount in kinds if folder.resolve().is_relative_to(mount)]
    return kinds[max(mounts, key=len)] != "tmpfs"


def run(command: list, **settings) -> int:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **settings)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode


def command(name: str, data: Path, report: Path) -> None:
    """``lowtide watch -- CMD``, with the file named."""
    options = ["--quiet", "--file", data, "--json", report]
    assert run([*WATCH, *options, "--", sys.executable, PROGRAMS, name, data]) == 0


def pid(name: str, data: Path, report: Path) -> None:
    """``lowtide watch --pid``, with the file named; the program begins once it is watched."""
    program = [sys.executable, PROGRAMS, name, data, "wait"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, text=True) as running:
        options = ["--file", data, "--json", report, "--pid", str(running.pid)]
        with subprocess.Popen([*WATCH, *options], stderr=subprocess.PIPE, text=True) as watching:
            assert "watching process" in watching.stderr.readline()
            running.communicate("go\n", timeout=300)
            said = watching.stderr.read()
        assert (running.returncode, watching.returncode) == (0, 0), said


def files(name: str, data: Path) -> str:
    """Warm files are found by themselves. What of a cold one came in before it was found is not known."""
    return repr("auto" if name in {program.__name__ for program in WARM} else [str(data)])


def block(name: str, data: Path, report: Path) -> None:
    """``with lowtide.watch():``."""
    program = f"""if True:
        import lowtide, watch_programs
        with lowtide.watch({files(name, data)}) as w:
            watch_programs.{name}({str(data)!r})
        w.report.to_json({str(report)!r})
    """
    assert run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}) == 0


def fixture(name: str, data: Path, report: Path) -> None:
    """A test that asks for ``lowtide_flat``."""
    test = data.with_name(f"test_{data.stem.replace('-', '_')}.py")
    test.write_text(f"""if True:
        import pytest, watch_programs

        @pytest.fixture
        def kept(lowtide_flat):
            lowtide_flat.files = {files(name, data)}
            yield
            lowtide_flat.report.to_json({str(report)!r})

        def test_it(lowtide_flat, kept):
            watch_programs.{name}({str(data)!r})
    """)
    code = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:zarr",
            "--rootdir",
            data.parent,
            test,
        ],
        cwd=data.parent,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS.parent)},
    )
    verdict = json.loads(report.read_text())["verdict"]
    assert code == (0 if verdict in ("flat", "unknown") else 1), verdict


DOORS = [command, pid, block, fixture]


def watch(program, folder: Path, door=command, number: int = 0) -> dict:
    name = program.__name__
    data = folder / f"{name}-{door.__name__}-{number}.bin"
    with data.open("wb") as file:
        file.truncate(SIZE)  # holes are cached as any page is, and cost no disk
    if program in WARM:
        warm(str(data))
    report = data.with_suffix(".json")
    try:
        door(name, data, report)
    finally:
        data.unlink()
    return json.loads(report.read_text())


def is_right(program, report: dict) -> bool:
    # A machine with ten times the work that it can do makes half a second long enough to be judged.
    long = program is watch_programs.short and report["seconds"] > 1.8
    return report["verdict"] in {VERDICTS[program], "flat" if long else VERDICTS[program]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    if not on_disk(folder):
        pytest.skip("the temporary folder is a tmpfs: set TMPDIR to a folder on disk")
    return folder


#: In the fast tests every program goes through one door, and these go through all of them.
EVERYWHERE = [watch_programs.shuffled_pass_warm, watch_programs.quiet]


@pytest.fixture(scope="module")
def all_reports(folder) -> dict:
    runs = [(program, command) for program in VERDICTS]
    runs += [(program, door) for program in EVERYWHERE for door in DOORS if door is not command]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(runs, pool.map(lambda run: watch(run[0], folder, run[1]), runs), strict=True))


@pytest.fixture(scope="module")
def reports(all_reports) -> dict:
    return {program: report for (program, door), report in all_reports.items() if door is command}


@pytest.mark.parametrize("program", VERDICTS, ids=NAMES)
def test_verdict(reports, program):
    report = reports[program]
    assert is_right(program, report), report["sentence"]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("program", EVERYWHERE, ids=lambda program: program.__name__)
def test_every_door_says_the_same(all_reports, program, door):
    report = all_reports[program, door]
    assert report["verdict"] == VERDICTS[program], report["sentence"]


def test_the_figures_are_those_of_the_program(reports):
    by_name = {program.__name__: report for program, report in reports.items()}
    assert 100 * MIB < by_name["quiet"]["peak_anon_bytes"] < 130 * MIB
    # Three forks share 200 MiB with their parent: it counts once, while RSS added up counts it four times.
    forked = by_name["forked_workers"]
    assert forked["peak_processes"] == 4
    assert forked["peak_rss_bytes"] > 800 * MIB
    assert forked["samples"][-5]["anon_bytes"] < 300 * MIB
    rate = by_name["growing_list"]["growth_bytes_per_second"]["anon"]
    low, high = by_name["growing_list"]["growth_interval"]["anon"]
    assert 20 * MIB < low <= rate <= high < 60 * MIB
    assert by_name["held_memmap_warm"]["peak_file_bytes"] > SIZE * 0.8
    assert by_name["plain_reads"]["peak_cache_bytes"] > 100 * MIB
    assert by_name["lowtide_shuffled"]["peak_file_bytes"] < 100 * MIB


def test_watching_is_cheap(reports):
    long = [report for report in reports.values() if report["seconds"] > 3]
    costs = sorted(report["watching_cpu_seconds"] / report["seconds"] for report in long)
    # Four programs at a time on few cores: the middle one is not disturbed by that.
    assert costs[len(costs) // 2] < 0.02


def test_what_was_mapped_before_the_watch_is_no_rise(folder):
    data = folder / "before.bin"
    with data.open("wb") as file:
        file.truncate(SIZE)
    program = f"""if True:
        import time, lowtide, watch_programs
        held = watch_programs.touch({str(data)!r})
        with lowtide.watch() as w:
            time.sleep(3)
        print(w.report.verdict, w.report.files[0]["mapped_peak_bytes"], w.report)
    """
    env = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    data.unlink()
    assert done.stdout.startswith(f"flat {SIZE} "), done.stdout + done.stderr


def test_what_six_processes_map_counts_once(folder):
    programs = [watch_programs.six_map_one, watch_programs.six_map_their_own, watch_programs.six_share_memory]
    with ThreadPoolExecutor(3) as pool:
        one, own, memory = pool.map(lambda program: watch(program, folder), programs)
    for report in (one, own, memory):
        assert report["peak_processes"] >= 7
        assert report["shares_known"]
        assert report["shares_measured_at"] is not None
    # The libraries of a bare Python are some 10 MiB.
    assert one["peak_rss_bytes"] > 5 * SIZE
    assert SIZE <= one["peak_file_bytes"] < SIZE + 40 * MIB, one["sentence"]
    assert one["verdict"] == "mapped", one["sentence"]
    # What is not shared counts in full.
    assert 6 * 48 * MIB <= own["peak_file_bytes"] < 6 * 48 * MIB + 60 * MIB, own["sentence"]
    assert 64 * MIB <= memory["peak_shmem_bytes"] < 80 * MIB, memory["sentence"]


# Twenty times take half an hour on two cores: LOWTIDE_VERDICTS=20 pytest -m heavy -k again_and_again
TIMES = int(os.environ.get("LOWTIDE_VERDICTS", "3"))


@pytest.mark.heavy
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_verdicts_again_and_again(folder, door):
    runs = [(program, number) for number in range(TIMES) for program in VERDICTS]
    with ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1) + 1)) as pool:
        found = list(pool.map(lambda run: watch(run[0], folder, door, run[1] + 1), runs))
    wrong = [
        f"{program.__name__}: {report['verdict']}: {report['sentence']}"
        for (program, _), report in zip(runs, found, strict=True)
        if not is_right(program, report)
    ]
    assert not wrong, f"{len(wrong)} of {len(runs)}:\n" + "\n".join(wrong)
