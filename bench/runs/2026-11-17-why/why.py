"""Why does np.memmap's memory grow? Every figure of docs/why.md: the ways to read, and what is said of them.

    python bench/why.py [FOLDER]        makes the file there, measures, keeps the run in bench/runs/DATE-why; as root
    python bench/why.py SIDE PATH {}    one side, in a process of its own

The job is the one of the well-known question: 3,000,000 rows of 162 float32 (1.94 GB), rows in random order, each
looked at once, 1,000 at a time. Memory is the kernel's: RssAnon and RssFile of /proc/self/status, the page cache of the
file by cachestat, what came from the disk by /proc/self/io. Every side begins with the file out of the page cache, proven,
unless it is called warm.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import functools
import gc
import json
import mmap
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np

ROWS, WIDTH = 3_000_000, 162
ROW = WIDTH * 4
MIB = 1 << 20
MADV_COLD, MADV_PAGEOUT = 20, 21


def look(path: str) -> dict[str, float]:
    """What the kernel says now, in MiB."""
    status = dict(x.split(":", 1) for x in Path("/proc/self/status").read_text().splitlines())
    kinds = {kind: int(status[kind].split()[0]) / 1024 for kind in ("RssAnon", "RssFile", "VmPTE")}
    return {**kinds, "cache": harness.cached(path) / MIB, "dirty": dirty(path) / MIB}


def dirty(path: str) -> int:
    """Bytes of a file that are changed in the page cache and not on the disk yet."""
    with open(path, "rb") as file:
        answer = (ctypes.c_uint64 * 5)()
        ctypes.CDLL(None).syscall(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0)
        return (answer[1] + answer[2]) * os.sysconf("SC_PAGESIZE")


@functools.cache
def order() -> np.ndarray:
    """Row numbers in random order, none of them twice; made before anything is measured."""
    return np.random.default_rng(0).permutation(ROWS)[:50_000].copy()


def batches(count: int = 50_000, size: int = 1_000):
    yield from order()[:count].reshape(-1, size)


def open_map(path: str, mode: str = "r") -> np.memmap:
    return np.memmap(path, "float32", mode, shape=(ROWS, WIDTH))


# The ways: each goes through the same rows and says how many there were.


def held(path, advice=None, after=None, count=50_000):
    rows = open_map(path)
    if advice is not None:
        rows._mmap.madvise(advice)
    file = os.open(path, os.O_RDONLY)
    for batch in batches(count):
        rows[batch]
        if after is not None:
            rows._mmap.madvise(after)
        if after == mmap.MADV_DONTNEED and advice == mmap.MADV_RANDOM:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return rows


def recreated(path, advice=None):
    for batch in batches():
        rows = open_map(path)
        if advice is not None:
            rows._mmap.madvise(advice)
        rows[batch]


def pread(path, drop):
    file = os.open(path, os.O_RDONLY)
    if drop:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    chunk = np.empty((1_000, WIDTH), "float32")
    for batch in batches():
        for row, number in zip(chunk, batch.tolist(), strict=True):
            os.preadv(file, [row], number * ROW)
        if drop:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def direct(path):
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    page = memoryview(mmap.mmap(-1, 8192))
    chunk = np.empty((1_000, WIDTH), "float32")
    for batch in batches():
        for row, number in zip(chunk, batch.tolist(), strict=True):
            start = number * ROW // 4096 * 4096
            stop = -(-(number + 1) * ROW // 4096) * 4096
            os.preadv(file, [page[: stop - start]], start)
            row[:] = np.frombuffer(page[number * ROW - start :][:ROW], "float32")


def lowtide(path, **settings):
    import lowtide

    rows = lowtide.open(path, dtype="float32", shape=(ROWS, WIDTH), **settings)
    for batch in batches():
        rows.take(batch)


WAYS = {
    "held": lambda path: held(path),
    "held, MADV_RANDOM": lambda path: held(path, mmap.MADV_RANDOM),
    "held, MADV_SEQUENTIAL": lambda path: held(path, mmap.MADV_SEQUENTIAL),
    "held, MADV_COLD after each batch": lambda path: held(path, after=MADV_COLD),
    "held, MADV_DONTNEED after each batch": lambda path: held(path, after=mmap.MADV_DONTNEED),
    "held, MADV_RANDOM, MADV_PAGEOUT after each batch": lambda path: held(
        path, mmap.MADV_RANDOM, MADV_PAGEOUT
    ),
    "held, MADV_RANDOM, MADV_DONTNEED and FADV_DONTNEED": lambda path: held(
        path, mmap.MADV_RANDOM, mmap.MADV_DONTNEED
    ),
    "a new map for each batch": lambda path: recreated(path),
    "a new map for each batch, MADV_RANDOM": lambda path: recreated(path, mmap.MADV_RANDOM),
    "pread, row by row": lambda path: pread(path, drop=False),
    "pread, FADV_RANDOM, FADV_DONTNEED": lambda path: pread(path, drop=True),
    "pread, O_DIRECT": lambda path: direct(path),
    "lowtide, take": lambda path: lowtide(path),
    'lowtide, take, cache="drop"': lambda path: lowtide(path, cache="drop"),
}


def way(path: str, name: str) -> None:
    read = int(Path("/proc/self/io").read_text().split("\nread_bytes: ")[1].split("\n")[0])
    if name.startswith("lowtide"):
        import lowtide  # noqa: F401  its import is not what is measured
    order()
    began = harness.go()
    kept = WAYS[name](path)
    now = int(Path("/proc/self/io").read_text().split("\nread_bytes: ")[1].split("\n")[0])
    harness.tell(began, 50_000, "rows/s", disk=(now - read) / MIB, pte=look(path)["VmPTE"])
    del kept


# What is said of it: each gives what the kernel says before and after.


def said_del(path):
    """`del` and gc.collect(), with and without a row that is still held."""
    rows = held(path)
    kept = rows[7]
    steps = {"after 50,000 rows": look(path)}
    gc.collect()
    steps["after gc.collect()"] = look(path)
    del rows
    gc.collect()
    steps["after del, one row (a view) still held"] = look(path)
    del kept
    gc.collect()
    steps["after del of that row too"] = look(path)
    return steps


def said_flush(path):
    """flush() of a map that is read, and of one that is written."""
    rows = held(path)
    steps = {'"r": after 50,000 rows': look(path)}
    rows.flush()
    steps['"r": after flush()'] = look(path)
    del rows
    rows = open_map(path, "r+")
    for batch in batches():
        rows[batch] = rows[batch]
    steps['"r+": after writing 50,000 rows'] = look(path)
    rows.flush()
    steps['"r+": after flush()'] = look(path)
    return steps


def said_dontneed(path):
    """MADV_DONTNEED, and FADV_DONTNEED with and without the map."""
    rows = held(path)
    steps = {"after 50,000 rows": look(path)}
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    steps["after FADV_DONTNEED, the pages still mapped"] = look(path)
    rows._mmap.madvise(mmap.MADV_DONTNEED)
    steps["after MADV_DONTNEED"] = look(path)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    steps["after FADV_DONTNEED, nothing mapped"] = look(path)
    return steps


def said_folios(path):
    """A warm file, brought in by a stream: what one batch of a new map maps."""
    steps = {"warm, before": look(path)}
    rows = open_map(path)
    rows[next(batches(1_000))]
    steps["after one batch of 1,000 rows (0.6 MiB)"] = look(path)
    return steps


def said_copy(path):
    """Rows that are copied at once: the pages were touched all the same."""
    rows = open_map(path)
    copies = [np.array(rows[number]) for number in next(batches(10_000, 10_000))]
    steps = {"after np.array(rows[i]) of 10,000 rows": look(path)}
    del copies
    gc.collect()
    steps["after the copies are gone"] = look(path)
    return steps


def said_leak(path):
    """In a control group smaller than the file: who pays?"""
    base = look(path)
    rows = open_map(path)
    peak, began = base, time.perf_counter()
    for batch in batches(3_000, 50):
        rows[batch]
        peak = {kind: max(peak[kind], value) for kind, value in look(path).items()}
    rate = 3_000 / (time.perf_counter() - began)
    return {"before": base, "the most of each, over 3,000 rows": peak | {"rows/s": rate}}


def said_reads(path, cold: bool):
    """Maps against reads, in rows or MB a second: random rows, and file order."""
    import lowtide

    def forget():
        harness.forget(path) if cold else harness.warm(path)

    def clocked(work, count):
        forget()
        began = time.perf_counter()
        work()
        return count / (time.perf_counter() - began)

    random = list(batches(20_000))
    ours = {
        way: lowtide.open(path, dtype="float32", shape=(ROWS, WIDTH), access=way)
        for way in ("read", "direct")
    }
    file = os.open(path, os.O_RDONLY)
    chunk = np.empty((1_000, WIDTH), "float32")

    def map_random():
        rows = open_map(path)
        for batch in random:
            rows[batch]

    resident = open_map(path)

    def map_random_again():
        for batch in random:
            resident[batch]

    def map_random_recreated():
        for batch in random:
            open_map(path)[batch]

    def pread_random():
        for batch in random:
            for row, number in zip(chunk, batch.tolist(), strict=True):
                os.preadv(file, [row], number * ROW)

    def take(way):
        return lambda: [ours[way].take(batch) for batch in random] and None

    size = ROWS * ROW / 1e6
    part = 100_000  # rows of a part for what is too slow for all

    def map_order(rows=ROWS, advice=None):
        whole = open_map(path)
        if advice is not None:
            whole._mmap.madvise(advice)
        for start in range(0, rows, 4_096):
            whole[start : min(start + 4_096, rows)].copy()

    def read_order():
        buffer = np.empty((4_096, WIDTH), "float32")
        with open(path, "rb", buffering=0) as stream:
            while stream.readinto(buffer):
                buffer.copy()

    def chunks():
        for _ in lowtide.open(path, dtype="float32", shape=(ROWS, WIDTH)).chunks(4_096):
            pass

    rates = {
        "random: np.memmap held, rows/s": (map_random, 20_000),
        "random: np.memmap made anew for each batch, rows/s": (map_random_recreated, 20_000),
        **(
            {}
            if cold
            else {"random: np.memmap held, rows that are mapped already, rows/s": (map_random_again, 20_000)}
        ),
        "random: os.preadv in a Python loop, rows/s": (pread_random, 20_000),
        'random: lowtide access="read", rows/s': (take("read"), 20_000),
        "in order: np.memmap, slices of 4,096 rows, MB/s": (map_order, size),
        "in order: readinto, MB/s": (read_order, size),
        "in order: lowtide chunks, MB/s": (chunks, size),
    }
    if cold:
        rates['random: lowtide access="direct", rows/s'] = (take("direct"), 20_000)
        rates["in order: np.memmap with MADV_RANDOM, the first 65 MB, MB/s"] = (
            lambda: map_order(part, mmap.MADV_RANDOM),
            part * ROW / 1e6,
        )
    best: dict[str, float] = {}
    for _ in range(1 if cold else 2):
        for name, (work, count) in rates.items():
            best[name] = max(best.get(name, 0.0), clocked(work, count))
    return best


def said_reads_warm(path):
    """Maps against reads, the file in memory: rows a second at random, MB a second in file order."""
    return said_reads(path, cold=False)


def said_reads_cold(path):
    """Maps against reads, the file on the disk: rows a second at random, MB a second in file order."""
    return said_reads(path, cold=True)


SAID = {
    "del": said_del,
    "flush": said_flush,
    "dontneed": said_dontneed,
    "folios": said_folios,
    "copy": said_copy,
    "leak": said_leak,
    "reads, warm": said_reads_warm,
    "reads, cold": said_reads_cold,
}


def said(path: str, name: str) -> None:
    order()
    base = look(path)
    print(json.dumps({"base": base, "steps": SAID[name](path)}))


def make(path: Path) -> None:
    """Write the file, as random as noise: no filesystem folds it."""
    with path.open("wb") as file:
        for _ in range(ROWS // 10_000):
            file.write(os.urandom(10_000 * ROW))
        file.flush()
        os.fsync(file.fileno())


def ask(path: Path, name: str, group: Path | None = None) -> dict:
    """What one saying comes to, in a process of its own, in a control group if one is given."""
    command = [sys.executable, __file__, "said", str(path), json.dumps(name)]
    if group is not None:
        command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *command]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        return {"died": answer.returncode, "error": answer.stderr[-500:]}
    return json.loads(answer.stdout)


@contextlib.contextmanager
def read_ahead(path: Path, kib: int):
    """The device's read_ahead_kb for a while; root may do that."""
    device = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    places = [p / "queue" / "read_ahead_kb" for p in (node, node.resolve().parent)]
    place = next(p for p in places if p.exists())
    was = place.read_text()
    try:
        place.write_text(str(kib))
        yield
    finally:
        place.write_text(was)


def ways(path: Path, names) -> tuple[dict[str, dict], list[str]]:
    """Each way in a process of its own, from a cold file."""
    raw, lines = {}, [f"{'way':52} {'RssAnon':>8} {'RssFile':>8} {'cache':>8} {'disk':>8} {'seconds':>8}"]
    for name in names:
        harness.forget(path)
        got = raw[name] = harness.run(
            name, path, [sys.executable, __file__, "way", str(path), json.dumps(name)]
        )
        got["cache_end"] = harness.cached(path)
        kinds = [got["peak_RssAnon"] / MIB, got["peak_RssFile"] / MIB, got["cache_end"] / MIB, got["disk"]]
        # /proc/self/io misses what the kernel's own threads read for io_uring.
        peaks = ["?" if name.startswith("lowtide") and x is got["disk"] else f"{x:,.0f}" for x in kinds]
        lines.append(f"{name:52} " + " ".join(f"{x:>8}" for x in peaks) + f" {got['seconds']:8.1f}")
        print(lines[-1], flush=True)
    return raw, lines


def sayings(path: Path, names) -> tuple[dict[str, dict], list[str]]:
    """What is said of maps, each in a process of its own."""
    raw, lines = {}, []
    for name in names:
        harness.warm(path) if name in ("folios", "reads, warm") else harness.forget(path)
        if name == "leak":
            with harness.cgroup(512 * MIB) as group:
                got = ask(path, name, group) if group else {"died": "no control group"}
        else:
            got = ask(path, name)
        raw[name] = got
        lines += ["", f"{name}: {' '.join((SAID[name].__doc__ or '').split())}"]
        if "died" in got:
            lines.append(f"  died: {got}")
        for step, value in got.get("steps", {}).items():
            if isinstance(value, dict):
                shown = "  ".join(f"{kind} {number:8,.1f}" for kind, number in value.items())
            else:
                shown = f"{value:12,.0f}"
            lines.append(f"  {step:62} {shown}")
        print("\n".join(lines[-len(got.get("steps", {})) - 1 :]), flush=True)
    return raw, lines


def main(folder: Path) -> None:
    path = folder / "rows.bin"
    if not path.exists() or path.stat().st_size != ROWS * ROW:
        make(path)
    job = f"50,000 random rows of {ROW} bytes, 1,000 at a time, of {ROWS * ROW / 1e9:.2f} GB, cold"
    kinds = "Peaks added, page cache at the end and bytes from the disk, in MiB."
    raw: dict[str, dict] = {}
    raw["ways"], lines = ways(path, WAYS)
    lines = [f"{job}, read_ahead_kb {harness.read_ahead_kb(path)}. {kinds}", "", *lines]
    raw["said"], said = sayings(path, SAID)
    lines += said
    with read_ahead(path, 128):
        some = [
            "held",
            "held, MADV_DONTNEED after each batch",
            "a new map for each batch",
            "pread, row by row",
        ]
        raw["ways, read_ahead_kb 128"], more = ways(path, some)
        raw["said, read_ahead_kb 128"], said = sayings(path, ["leak"])
    lines += ["", f"The same with read_ahead_kb 128, the kernel's default. {kinds}", "", *more, *said]
    run = harness.HERE / "runs" / f"{datetime.date.today()}-why"
    run.mkdir(parents=True, exist_ok=True)
    (run / "summary.txt").write_text("\n".join(lines) + "\n")
    (run / "raw.json").write_text(json.dumps(raw, indent=1) + "\n")
    machine = {
        "command": "python bench/why.py",
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load": os.getloadavg(),
    }
    (run / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    (run / "why.py").write_text(Path(__file__).read_text())


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if len(sys.argv) == 4:
        {"way": way, "said": said}[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="lowtide-why-", dir="/var/tmp") as made:
            main(Path(made))
