"""Files in another order than they have: `shuffled(scratch=)` and `lowtide.shuffle` of a file that is larger than the
cgroup it happens in, against reading and copying it as a disk likes it, and against terashuf's algorithm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import HERE, Bench, cgroup, python, run

ROW = 512
BUDGET = 256 << 20


def make(path: Path, size: int) -> None:
    """Lines of 511 letters: rows for us, and lines for those who want them. Each begins with its number."""
    letters = np.random.default_rng(0).integers(ord("a"), ord("z") + 1, (1 << 14, ROW), dtype="u1")
    letters[:, -1] = ord("\n")
    with path.open("wb") as file:
        for start in range(0, size // ROW, len(letters)):
            for digit in range(9):
                numbers = np.arange(start, start + len(letters)) // 10 ** (8 - digit) % 10
                letters[:, digit] = numbers + ord("0")
            file.write(letters[: size // ROW - start])
        file.flush()
        os.fsync(file.fileno())


def side(b: Bench, name: str, path: Path, group: Path | None, **settings) -> Callable[[int], dict]:
    """One of bench/shuffle_side.py in a folder of its own, which goes afterwards; and the page cache of its group."""

    def one(_: int) -> dict:
        folder = b.folder / "made"
        folder.mkdir()
        words = {"folder": str(folder), "budget": BUDGET, **settings}
        peak, done = 0, threading.Event()

        def watch() -> None:
            nonlocal peak
            while group is not None and not done.wait(0.05):
                stat = (group / "memory.stat").read_text().split()
                peak = max(peak, int(stat[stat.index("cache") + 1]))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            result = run(name, path, python("shuffle_side.py", name, path, words), group, watch_cache=False)
            if "died" not in result and group is not None:
                result["peak_cache"] = peak
            return result
        finally:
            done.set()
            watcher.join()
            shutil.rmtree(folder)

    return one


def shuffle_scratch(b: Bench, path: Path) -> None:
    """A pass in exact order, first chunk included, in a cgroup a quarter as large as the file."""
    size = path.stat().st_size
    with cgroup(size // 4) as group:
        words = {"scratch": str(b.folder), "cache": "drop"}
        sides = {"lowtide shuffled(scratch=)": side(b, "scratch", path, group, **words)}
        sides |= {"two reads and a write": side(b, "read_write_read", path, group)}
        sides |= {"without scratch": side(b, "scratch", path, group, cache="drop", seconds=20)}
        what = f"{size >> 20} MiB in a cgroup of a quarter, exact order, bytes a second"
        best = b.turns("shuffle_scratch", what, sides, True, path)
        ours, disk, without = (best[label] for label in sides)
        b.check("shuffle_scratch", "against two reads and a write", ours["rate"] / disk["rate"], floor=0.8)
        b.check("shuffle_scratch", "against no scratch", ours["rate"] / without["rate"], floor=5)
        b.check("shuffle_scratch", "RssAnon + RssFile of the budget", ours["peak_sum"] / BUDGET, ceiling=1)
        cache = ours["peak_cache"] / BUDGET if group is not None else None
        b.check("shuffle_scratch", "page cache of the budget", cache, ceiling=1)


def shuffle_larger(b: Bench, path: Path) -> None:
    """The same of a file that is larger than memory, once, where the disk has room for it twice; and whether a larger budget
    is any slower there."""
    memory = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
    size, large = (memory + (memory >> 3) >> 30) << 30, b.folder / "larger.bin"
    if shutil.disk_usage(b.folder).free < 2 * size + (8 << 30):
        b.say(f"\nshuffle_larger: the disk has no room for {size >> 30} GiB twice")
        return
    make(large, size)
    rounds, b.rounds = b.rounds, 1
    exact = {"cache": "drop", "seconds": 40}
    sides = {
        "lowtide shuffled(scratch=)": side(b, "scratch", large, None, scratch=str(b.folder), cache="drop")
    }
    sides |= {"two reads and a write": side(b, "read_write_read", large, None)}
    sides |= {"without scratch": side(b, "scratch", large, None, **exact)}
    sides |= {"without scratch, 2 GiB": side(b, "scratch", large, None, **exact | {"budget": 2 << 30})}
    what = f"{size >> 20} MiB in {memory >> 20} MiB of memory, exact order, bytes a second"
    best = b.turns("shuffle_larger", what, sides, True, large)
    b.rounds = rounds
    ours, disk, without, more = (best[label] for label in sides)
    b.check("shuffle_larger", "against two reads and a write", ours["rate"] / disk["rate"], floor=0.8)
    b.check("shuffle_larger", "against no scratch", ours["rate"] / without["rate"], floor=5)
    b.check("shuffle_larger", "RssAnon + RssFile of the budget", ours["peak_sum"] / BUDGET, ceiling=1)
    b.check("shuffle_larger", "a larger budget, without scratch", more["rate"] / without["rate"], floor=0.9)
    large.unlink()


def shuffle_file(b: Bench, path: Path) -> None:
    """Into another file, in a cgroup of 400 MiB."""
    program = b.folder / "terashuf"
    subprocess.run(["cc", "-O2", "-o", program, HERE / "terashuf.c"], check=True)
    size = path.stat().st_size
    with cgroup(400 << 20) as group:
        sides = {"lowtide shuffle": side(b, "shuffle", path, group)}
        sides |= {"copied twice": side(b, "copy_twice", path, group)}
        sides |= {"copied twice, by cp": side(b, "copy_twice", path, group, cp=True)}
        sides |= {"terashuf's algorithm": side(b, "terashuf", path, group, program=str(program))}
        what = f"{size >> 20} MiB in a cgroup of 400 MiB, bytes a second"
        best = b.turns("shuffle_file", what, sides, True, path)
        ours, *copies, terashuf = (best[label] for label in sides)
        fastest = max(copy["rate"] for copy in copies)
        b.check("shuffle_file", "against the faster copying", ours["rate"] / fastest, floor=0.8)
        if terashuf["rate"]:
            b.check("shuffle_file", "against terashuf's algorithm", ours["rate"] / terashuf["rate"], floor=5)
        b.check("shuffle_file", "RssAnon + RssFile of the budget", ours["peak_sum"] / BUDGET, ceiling=1)
    program.unlink()


ALL = [shuffle_scratch, shuffle_larger, shuffle_file]
