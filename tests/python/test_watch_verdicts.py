"""``lowtide watch`` is right about programs that really do what they are called."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from watch_programs import MIB, VERDICTS, WARM, warm

PROGRAMS = Path(__file__).with_name("watch_programs.py")
SIZE = 512 * MIB
NAMES = [program.__name__ for program in VERDICTS]


def on_disk(folder: Path) -> bool:
    """Whether a folder is on a disk: the page cache of a tmpfs is the file itself."""
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    mounts = [mount for mount in kinds if folder.resolve().is_relative_to(mount)]
    return kinds[max(mounts, key=len)] != "tmpfs"


def watch(program, folder: Path, number: int = 0) -> dict:
    name = program.__name__
    data = folder / f"{name}-{number}.bin"
    with data.open("wb") as file:
        file.truncate(SIZE)  # holes are cached as any page is, and cost no disk
    if program in WARM:
        warm(str(data))
    report = folder / f"{name}-{number}.json"
    command = [sys.executable, "-m", "lowtide", "watch", "--quiet", "--file", str(data)]
    command += ["--json", str(report), "--", sys.executable, str(PROGRAMS), name, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    data.unlink()
    return json.loads(report.read_text())


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("watch")
    if not on_disk(folder):
        pytest.skip("the temporary folder is a tmpfs: set TMPDIR to a folder on disk")
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(VERDICTS, pool.map(lambda program: watch(program, folder), VERDICTS), strict=True))


@pytest.mark.parametrize(("program", "verdict"), VERDICTS.items(), ids=NAMES)
def test_verdict(reports, program, verdict):
    report = reports[program]
    assert report["verdict"] == verdict, report["sentence"]


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


# Twenty times take ten minutes on two cores: LOWTIDE_VERDICTS=20 pytest -m heavy -k again_and_again
TIMES = int(os.environ.get("LOWTIDE_VERDICTS", "5"))


@pytest.mark.heavy
@pytest.mark.parametrize(("program", "verdict"), VERDICTS.items(), ids=NAMES)
def test_verdict_again_and_again(tmp_path, program, verdict):
    if not on_disk(tmp_path):
        pytest.skip("the temporary folder is a tmpfs: set TMPDIR to a folder on disk")
    with ThreadPoolExecutor(max(2, min(4, os.cpu_count() or 1))) as pool:
        found = list(pool.map(lambda number: watch(program, tmp_path, number), range(TIMES)))
    wrong = [report["sentence"] for report in found if report["verdict"] != verdict]
    assert not wrong, f"{len(wrong)} of {TIMES}: {wrong[0]}"
