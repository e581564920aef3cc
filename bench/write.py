"""Arrays that are written: `lowtide.create` against `dd … conv=fsync` and `np.memmap("w+")` with flush, each to a new file
of the same size, from the first byte until all of it is on the disk; and in a cgroup that is a fraction of the file.
`lowtide.convert` from Fortran to C order against copying the file.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Bench, cgroup, forget, python, run, settle


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
            return run(name, part if name in ("create", "convert") else out, command, group)
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


def limit(b: Bench, size: int) -> Callable[[int], dict]:
    """What the disk takes at all: fio, unbuffered, a mebibyte at a time, eight in flight, into a file that has its room."""

    def one(_: int) -> dict:
        settle(size)
        out = b.folder / "out.npy"
        command = ["fio", "--name=w", f"--filename={out}", "--rw=write", "--bs=1M", "--direct=1"]
        command += ["--ioengine=io_uring", "--iodepth=8", f"--size={size}", "--end_fsync=1"]
        seconds = None
        if shutil.which("fio"):
            with out.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            answer = subprocess.run([*command, "--output-format=json"], check=True, capture_output=True)
            seconds = json.loads(answer.stdout)["jobs"][0]["job_runtime"] / 1000
            out.unlink()
        note = "" if seconds else "fio is not installed"
        return {"side": "fio", "rate": size / seconds if seconds else 0, "unit": "bytes/s", "note": note}

    return one


def write_append(b: Bench, path: Path) -> None:
    """Rows of a mebibyte, one chunk of four after another."""
    size = path.stat().st_size
    sides = {"lowtide create, append": side(b, "create", size)}
    sides |= {"lowtide create, append, drop": side(b, "create", size, cache="drop")}
    sides |= {"dd conv=fsync": dd(b, size), 'np.memmap("w+"), flush': side(b, "np_memmap", size)}
    sides |= {"fio, the disk itself": limit(b, size)}
    best = b.turns(
        "write_append", f"{size >> 20} MiB, until it is on the disk, bytes a second", sides, False, path
    )
    ours = best["lowtide create, append"]["rate"]
    b.check("write_append", "against dd conv=fsync", ours / best["dd conv=fsync"]["rate"], floor=0.9)
    past, mapped = (
        best[label]["rate"] for label in ("lowtide create, append, drop", 'np.memmap("w+"), flush')
    )
    b.check("write_append", "past the page cache, against np.memmap and flush", past / mapped, floor=2)
    if disk := best["fio, the disk itself"]["rate"]:
        b.check("write_append", "against fio", ours / disk, floor=0.7)


def write_larger(b: Bench, path: Path) -> None:
    """The same with a file that is larger than memory; where the disk has no room for it, than a cgroup."""
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    size = (memory + (memory >> 3) >> 30) << 30
    if shutil.disk_usage(b.folder).free > size + (8 << 30):
        sides = {"lowtide create, append": side(b, "create", size), "dd conv=fsync": dd(b, size)}
        sides |= {'np.memmap("w+"), flush': side(b, "np_memmap", size)}
        larger(b, f"{size >> 20} MiB in {memory >> 20} MiB of memory", sides, path)
        return
    size = path.stat().st_size
    with cgroup(size // 4) as group:
        if group is not None:
            sides = {"lowtide create, append": side(b, "create", size, group)}
            sides |= {'np.memmap("w+"), flush': side(b, "np_memmap", size, group)}
            larger(b, f"{size >> 20} MiB in a cgroup of {size >> 22} MiB", sides, path)


def larger(b: Bench, what: str, sides: dict[str, Callable[[int], dict]], path: Path) -> None:
    rounds, b.rounds = b.rounds, min(b.rounds, 2)
    best = b.turns("write_larger", f"{what}, until it is on the disk, bytes a second", sides, False, path)
    b.rounds = rounds
    ours = best["lowtide create, append"]["rate"]
    if "dd conv=fsync" in best:
        b.check("write_larger", "against dd conv=fsync", ours / best["dd conv=fsync"]["rate"], floor=0.9)
    mapped = best['np.memmap("w+"), flush']["rate"]
    b.check("write_larger", "against np.memmap and flush", ours / mapped if mapped else 99, floor=2)


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


def fortran(path: Path, shape: tuple[int, int]) -> None:
    """Float32 in Fortran order."""
    block, left = np.random.default_rng(0).random(1 << 22, dtype="f4").tobytes(), shape[0] * shape[1] * 4
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": True, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        while left > 0:
            left -= file.write(block[:left])
        file.flush()
        os.fsync(file.fileno())


def write_convert(b: Bench, path: Path) -> None:
    """From Fortran to C order in a budget of 256 MiB and a cgroup of 400 MiB: long rows as well as long columns."""
    size, source = path.stat().st_size, b.folder / "fortran.npy"
    for label, columns in (("512 columns", 512), ("a square", 1 << ((size // 4).bit_length() // 2))):
        fortran(source, (size // 4 // columns, columns))
        with cgroup(400 << 20) as group:

            def one(name: str, group: Path | None = group, **settings) -> Callable[[int], dict]:
                begin = side(b, name, size, group, source=str(source), **settings)

                def cold(n: int) -> dict:
                    forget(source)
                    return begin(n)

                return cold

            sides = {
                "lowtide convert": one("convert", budget=256 << 20),
                "copied past the page cache": one("copy"),
            }
            what = f"{size >> 20} MiB, {label}, Fortran to C order, bytes a second"
            best = b.turns(f"write_convert, {label}", what, sides, False, path)
            ours, copied = best.values()
            b.check(f"write_convert, {label}", "against copying it", ours["rate"] / copied["rate"], floor=0.5)
            part = ours["peak_sum"] / (256 << 20)
            b.check(f"write_convert, {label}", "RssAnon + RssFile of the budget", part, ceiling=1)
        source.unlink()


ALL = [write_append, write_larger, write_random, write_cgroup, write_convert]
