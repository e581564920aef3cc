"""``.access`` says what was executed: strace watches the system calls of every chunk, the first one too."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed"),
]

CALLS = "open,openat,close,pread64,preadv,preadv2,io_uring_enter,mmap,write"
MAPPED = {"map", "remap", "advise"}


@dataclass
class Step:
    """What was done between a chunk's beginning and its end, and what the iterator said of it."""

    said: str
    buffered: int = 0  # reads through the page cache
    unbuffered: int = 0
    ring: int = 0  # calls that hand reads to a ring
    maps: int = 0  # maps of the file that were made so far
    direct: bool = False  # whether a descriptor for unbuffered reads was open


def watch(tmp_path, data, script):
    """Runs a script that marks its chunks, and sorts the calls that concern the file."""
    program, log = tmp_path / "program.py", tmp_path / "calls"
    program.write_text("import os, sys, lowtide\n" + textwrap.dedent(script))
    command = ["strace", "-f", "-y", "-s", "40", "-e", f"trace={CALLS}", "-o", log, sys.executable, program]
    done = subprocess.run([*command, data], capture_output=True, text=True)
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("this machine forbids ptrace")
    assert done.returncode == 0, done.stderr
    steps, now, direct, maps = [], None, set(), 0
    for call in whole_calls(log):
        if said := re.search(r'write\(1\S* "(begin|end)(?: (\w+))?', call):
            if said[1] == "begin":
                now = Step("")
            elif now:
                now.said, now.maps, now.direct = said[2], maps, bool(direct)
                steps.append(now)
                now = None
        elif opened := re.match(rf"open\w*\(.*O_DIRECT.*= (\d+)<{re.escape(str(data))}>", call):
            direct.add(opened[1])
        elif closed := re.match(r"close\((\d+)<", call):
            direct.discard(closed[1])
        elif re.match(r"mmap\(", call) and f"<{data}>" in call:
            maps += 1
        elif now and (read := re.match(rf"pread\w*\((\d+)<{re.escape(str(data))}>", call)):
            if read[1] in direct:
                now.unbuffered += 1
            else:
                now.buffered += 1
        elif now and re.match(r"io_uring_enter\(\d+\S*, [1-9]", call):
            now.ring += 1
    return steps


def whole_calls(log):
    """Gives the calls in the order of their ends: strace cuts those that another thread's come between."""
    begun = {}
    for line in log.read_text().splitlines():
        thread, call = line.split(maxsplit=1)
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
        elif resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", call):
            yield begun.pop(thread, "") + resumed[1]
        else:
            yield call


def agrees(step):
    """Whether what was said is what was done."""
    if step.said in MAPPED:
        return step.maps > 0 and step.buffered + step.unbuffered + step.ring == 0
    if step.said == "direct":
        return step.direct and step.buffered == 0
    return step.said == "read" and step.unbuffered == 0


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).random((8192, 512), dtype="float32"))  # 16 MiB, rows of 2 KiB
    return path


def forget(path):
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


CHUNKS = """
    a = lowtide.open(sys.argv[1], access={access!r}, cache={cache!r})
    it = a.{method}
    for _ in range(6):
        os.write(1, b"begin\\n")
        next(it)
        os.write(1, f"end {{it.access}}\\n".encode())
"""


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("method", ["chunks(64)", "shuffled(64)", 'shuffled(64, blocks="auto")'])
@pytest.mark.parametrize("access", ["map", "remap", "advise", "read", "direct"])
def test_a_way_that_was_asked_for_is_taken(tmp_path, rows, access, method, cold):
    if cold:
        forget(rows)
    steps = watch(tmp_path, rows, CHUNKS.format(access=access, cache="auto", method=method))
    assert len(steps) == 6
    for step in steps:
        assert step.said == access
        assert agrees(step), step
    first = steps[0]
    if access == "direct":
        assert first.ring + first.unbuffered > 0, first
    elif access == "read":
        assert first.ring + first.buffered > 0, first
        assert not first.direct


@pytest.mark.parametrize("cache", ["auto", "keep", "drop"])
@pytest.mark.parametrize("method", ["chunks(64)", "shuffled(64)", 'shuffled(64, blocks="auto")'])
@pytest.mark.parametrize("cold", [False, True])
def test_auto_says_what_it_does(tmp_path, rows, method, cache, cold):
    if cold:
        forget(rows)
    steps = watch(tmp_path, rows, CHUNKS.format(access="auto", cache=cache, method=method))
    # The first chunk is read by whoever asks for it; while later ones are handed out, others may be read.
    first = steps[0]
    assert agrees(first), first
    assert first.said in MAPPED or first.ring + first.buffered + first.unbuffered > 0, first
    if cold and cache == "drop":
        assert {step.said for step in steps} == {"direct"}
        assert all(agrees(step) for step in steps), steps
    if not cold:
        assert all(not step.direct or step.said != "direct" for step in steps), steps


@pytest.mark.parametrize("cold", [False, True])
def test_a_loader_says_what_it_does(tmp_path, cold):
    path = tmp_path / "train.bin"
    np.random.default_rng(0).integers(0, 50_000, 8 << 20, dtype="<u2").tofile(path)
    if cold:
        forget(path)
    steps = watch(
        tmp_path,
        path,
        """
        it = lowtide.tokens(sys.argv[1], dtype="uint16").loader(12, 1024)
        for _ in range(6):
            os.write(1, b"begin\\n")
            next(it)
            os.write(1, f"end {it.access}\\n".encode())
        """,
    )
    assert agrees(steps[0]), steps[0]
    assert steps[0].said == ("direct" if cold else "advise")
