"""Arrays that are written: `lowtide.create` against `dd … conv=fsync` and `np.memmap("w+")` with flush, each to a new file
of the same size, from the first byte until all of it is on the disk; and in a cgroup that is a fraction of the file.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from harness import Bench, cgroup, python, run, settle


def make(path: Path, size: int) -> None:
    """Nothing is read: a file that says the size."""
    with path.open("wb") as file:
        file.truncate(size)


def side(b: Bench, name: str, size: int, group: Path | None = None, **settings) -> Callable[[int], dict]:
    """One of bench/write_side.py, whose file goes afterwards."""

    def one(_: int) -> dict:
        settle(size)  # the page cache of the file is new memory, and that is slow at its first touch
        out, part = b.folder / "out.npy", b.folder / ".out.npy.lowtide"
        command = python("write_side.py", name, out, {"size": size, **settings})
        try:
            return run(name, part if name == "create" else out, command, group)
        finally:
            out.unlink(missing_ok=True)
            part.unlink(missing_ok=True)

    return one


def dd(b: Bench, size: int) -> Callable[[int], dict]:
    def one(_: int) -> dict:
        settle(size)
        out = b.folder / "out.npy"
        command = ["dd", "if=/dev/zero", f"of={out}", "bs=1M", f"count={size >> 20}", "conv=fsync"]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        out.unlink()
        return {"side": "dd", "rate": size / seconds, "unit": "bytes/s", "seconds": seconds}

    return one


def write_append(b: Bench, path: Path) -> None:
    """Rows of a mebibyte, one chunk of four after another."""
    size = path.stat().st_size
    sides = {"lowtide create, append": side(b, "create", size)}
    sides |= {"lowtide create, append, drop": side(b, "create", size, cache="drop")}
    sides |= {"dd conv=fsync": dd(b, size), 'np.memmap("w+"), flush': side(b, "np_memmap", size)}
    best = b.turns(
        "write_append", f"{size >> 20} MiB, until it is on the disk, bytes a second", sides, False, path
    )
    ours = best["lowtide create, append"]["rate"]
    b.check("write_append", "against dd conv=fsync", ours / best["dd conv=fsync"]["rate"], floor=0.9)
    b.check(
        "write_append", "against np.memmap and flush", ours / best['np.memmap("w+"), flush']["rate"], floor=2
    )


def write_random(b: Bench, path: Path) -> None:
    """The same chunks in a random order, into a known shape."""
    size = path.stat().st_size
    sides = {"lowtide create, write": side(b, "create", size, random=True)}
    sides |= {'np.memmap("w+"), flush': side(b, "np_memmap", size, random=True)}
    b.turns("write_random", "4 MiB at a time in a random order, bytes a second", sides, False, path)


def write_cgroup(b: Bench, path: Path) -> None:
    """In a cgroup of 128 MiB: one writes all of it, the other for half a minute, if it lives so long."""
    size = 2 * path.stat().st_size
    with cgroup(128 << 20) as group:
        if group is None:
            return
        rounds, b.rounds = b.rounds, 1
        sides = {"lowtide create, append": side(b, "create", size, group)}
        sides |= {'np.memmap("w+"), flush': side(b, "np_memmap", size, group, seconds=30)}
        best = b.turns(
            "write_cgroup", f"{size >> 20} MiB in a cgroup of 128 MiB, bytes a second", sides, False, path
        )
        b.rounds = rounds
        ours, theirs = (best[label] for label in sides)
        b.check("write_cgroup", "whether we lived", float("died" not in ours), floor=1)
        if theirs["rate"]:
            b.check("write_cgroup", "against np.memmap", ours["rate"] / theirs["rate"], floor=2)


ALL = [write_append, write_random, write_cgroup]
