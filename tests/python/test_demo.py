"""``lowtide demo``: like is compared with like, in a limit that the kernel confirms, and nothing stays."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MIB = 1 << 20
COMMAND = [sys.executable, "-m", "lowtide", "demo", "--size", "256MiB"]
ROWS = 256 * MIB // 512


def own_group():
    """The folder of this process's memory controller, if it is version 1's."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if ":memory:" in line:
            return Path("/sys/fs/cgroup/memory" + line.split(":")[2])
    return None


GROUP = own_group()
CAN_LIMIT = GROUP is not None and os.access(GROUP, os.W_OK) and os.geteuid() == 0
needs_groups = pytest.mark.skipif(not CAN_LIMIT, reason="no rights to make a control group (version 1) here")


def left_over(folder, pid):
    return [*folder.iterdir(), *(GROUP.glob(f"lowtide-demo-{pid}") if GROUP else ())]


def demo(folder, *arguments, before=()):
    """Runs the command to its end; it leaves nothing behind."""
    command = [*before, *COMMAND, "--seconds", "0.5", "--dir", str(folder), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert left_over(folder, process.pid) == []
    return said


def check(answer):
    """What must be true of every answer."""
    assert [way["name"] for way in answer["ways"]] == ["np.memmap held", "np.memmap per chunk", "Lowtide"]
    assert (answer["bytes"], answer["rows"]) == (256 * MIB, ROWS)
    for way in answer["ways"]:
        assert 0 < way["rows"] <= ROWS
        assert way["finished"] == (way["rows"] == ROWS)
        assert way["pass_seconds"] == pytest.approx(way["seconds"] * ROWS / way["rows"])
    held, _, ours = answer["ways"]
    assert answer["factor"] == pytest.approx(held["pass_seconds"] / ours["pass_seconds"])
    assert answer["machine"]["read_ahead_kb"] is None or answer["machine"]["read_ahead_kb"] >= 0


@needs_groups
def test_in_a_limit_nothing_exceeds_it_and_the_sentence_says_the_factor(tmp_path):
    answer = json.loads(demo(tmp_path, "--json"))
    check(answer)
    assert answer["limit"] == {"kind": "cgroup", "bytes": 64 * MIB, "why": None}
    for way in answer["ways"]:
        # The kernel's own counts: with the interpreter, nothing can have had more than the group.
        assert way["added_anon_bytes"] + way["added_cache_bytes"] < 64 * MIB
    sentence = (
        r"In 64 MiB of memory, Lowtide (went|would go) through a 256 MiB file in shuffled order in [\d.]+ s;"
    )
    sentence += r" np.memmap (took|would have taken) [\w. ]+: [\d.,]+ ×\."
    assert re.fullmatch(sentence, answer["sentence"])


@needs_groups
def test_people_get_a_plan_a_table_and_the_sentence_last(tmp_path):
    text = demo(tmp_path)
    assert re.search(r"1\. write 256 MiB to .*about 1 s", text)
    assert re.search(r"2\. np.memmap held.*0.5 s, or a whole pass", text)
    assert re.search(r"^  Lowtide +[\d,]+ +[\d.]+ s", text, re.M)
    assert text.splitlines()[-1].endswith("×.")
    assert "\x1b" not in text


@needs_groups
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing(tmp_path, signal_):
    command = [*COMMAND, "--dir", str(tmp_path), "--seconds", "60"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not any(group.read_text() for group in GROUP.glob(f"lowtide-demo-{process.pid}/cgroup.procs")):
            assert process.poll() is None
            assert time.monotonic() < deadline, "it does not come to work"
            time.sleep(0.05)
        process.send_signal(signal_)
        assert process.wait(20) == 128 + signal_
        assert process.stderr.read() == b""
    assert left_over(tmp_path, process.pid) == []


def without_rights(tmp_path, systemd=""):
    """A command that runs another where no control group can be made, and maybe with a systemd-run."""
    bin_folder, elsewhere = tmp_path / "bin", tmp_path / "groups"
    bin_folder.mkdir()
    elsewhere.mkdir()
    if systemd:
        script = bin_folder / "systemd-run"
        script.write_text(systemd)
        script.chmod(0o755)
    prepare = f"mount --bind /sys/fs/cgroup/memory {elsewhere}"
    prepare += " && mount -o remount,bind,ro /sys/fs/cgroup/memory"
    prepare += f" && export GROUPS_AT={elsewhere / GROUP.relative_to('/sys/fs/cgroup/memory')}"
    prepare += f' && export PATH={bin_folder}:$PATH && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", prepare, "sh"]


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_without_rights_it_says_what_could_not_be_shown(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    before = without_rights(tmp_path)
    answer = json.loads(demo(folder, "--json", before=before))
    check(answer)
    assert answer["limit"]["kind"] == "none"
    assert "no control group can be made here: Read-only file system" in answer["limit"]["why"]
    assert answer["sentence"].startswith("With memory to spare, Lowtide ")
    text = re.sub(r"\s+", " ", demo(folder, before=before))
    assert "could not be shown: no control group can be made here" in text


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_in_a_container_that_is_smaller_than_the_file_its_own_limit_is_enough(tmp_path):
    folder, group = tmp_path / "data", GROUP / f"lowtide-test-{os.getpid()}"
    folder.mkdir()
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(128 * MIB))
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        answer = json.loads(demo(folder, "--json", before=[*inside, *without_rights(tmp_path)]))
    finally:
        group.rmdir()
    check(answer)
    assert answer["limit"]["kind"] == "room"
    assert 0 < answer["limit"]["bytes"] <= 128 * MIB
    assert re.match(r"In [\d.]+ MiB of memory, Lowtide ", answer["sentence"])


# What systemd-run does: a group with the limit that was asked for, and the command in its place.
SYSTEMD = """#!/bin/sh
while [ "$1" != -- ]; do case "$1" in MemoryMax=*) limit=${1#*=};; esac; shift; done; shift
group=$GROUPS_AT/lowtide-demo-scope-$$
mkdir "$group" && echo "$limit" > "$group/memory.limit_in_bytes" && echo $$ > "$group/cgroup.procs"
exec "$@"
"""


@needs_groups
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
@pytest.mark.parametrize("honest", [True, False])
def test_a_systemd_of_the_user_limits_it_and_is_not_just_believed(tmp_path, honest):
    folder = tmp_path / "data"
    folder.mkdir()
    systemd = SYSTEMD if honest else SYSTEMD.replace('echo "$limit"', "echo -1")
    try:
        answer = json.loads(demo(folder, "--json", before=without_rights(tmp_path, systemd)))
    finally:
        for group in GROUP.glob("lowtide-demo-scope-*"):
            group.rmdir()
    check(answer)
    assert answer["limit"]["kind"] == ("cgroup" if honest else "none")


def test_a_place_or_size_that_cannot_show_it_is_refused(tmp_path):
    def refused(*arguments):
        command = [sys.executable, "-m", "lowtide", "demo", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, text = refused("--size", "1MiB")
    assert (code, "at least 256 MiB" in text) == (2, True)
    code, text = refused("--dir", "/dev/shm")
    assert (code, "is memory itself" in text) == (1, True), text
    code, text = refused("--dir", str(tmp_path / "none"))
    assert (code, "there is no place" in text) == (1, True)
    assert list(tmp_path.iterdir()) == []
