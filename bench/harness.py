"""What every benchmark stands on: each side in a process of its own, watched from outside by the kernel's
numbers; sides in turns; warm and cold proven; the best of several; ratios, and whether they are what was asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent


def cached(path) -> int:
    """Bytes of a file in the page cache (cachestat, Linux 6.5)."""
    with open(path, "rb") as file:
        answer = (ctypes.c_uint64 * 5)()
        if ctypes.CDLL(None).syscall(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0) != 0:
            raise OSError("cachestat is needed to prove that cold is cold")
        return answer[0] * os.sysconf("SC_PAGESIZE")


def forget(path) -> None:
    """Drops a file from the page cache, and proves it. A page that the kernel is just looking at stays for a moment."""
    for _ in range(10):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached(path) == 0:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{path} is still in the page cache")


def warm(path) -> None:
    """Brings a file into the page cache, and proves it: some kernels take pages away by themselves.

    The first read is of a page: the kernel's folios grow from piece to piece, and its first piece follows from the
    first read. Behind longer ones the first megabytes of each file are in small folios, and 64 files of 32 MiB are another
    thing than one of 2 GiB: a shuffled pass over them took 171,000 page faults behind a first read of a mebibyte, 38,000
    behind 16 KiB and 23,000 behind a page, over the one file 15,000 each time (counted by hand, 2026-11-19).
    """
    size, buffer, tries = os.path.getsize(path), bytearray(1 << 20), 0
    while cached(path) < 0.99 * size:
        if (tries := tries + 1) > 5:
            raise RuntimeError(
                f"{path} does not stay in the page cache: {cached(path)} of {size} bytes are there"
            )
        with open(path, "rb", buffering=0) as file:
            file.readinto(memoryview(buffer)[: 4 << 10])
            while file.readinto(buffer):
                pass


def settle(size: int) -> None:
    """Has the host of a virtual machine give us memory again that it took back while we did not use it.

    First touches of such memory went at 0.25 GB/s here, of other memory at 10: a side that comes after a pause would
    be measured by its luck. A process of its own touches so many bytes and ends; the kernel hands them out next.
    """
    words = Path("/proc/meminfo").read_text().split()
    available = int(words[words.index("MemAvailable:") + 1]) << 10
    size = min(size, available // 4 * 3)  # nobody is killed for it
    touch = "import mmap, sys; m = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE)"
    touch += "; m.madvise(mmap.MADV_HUGEPAGE); m[::1 << 16] = bytes(len(m) >> 16)"
    subprocess.run([sys.executable, "-c", touch, str(size >> 16 << 16)], check=True)


def go() -> float:
    """Everything is set up: wait for the word."""
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter()


def tell(began: float, count: float, unit: str, **more) -> None:
    """Say how fast it was, and stay to be looked at."""
    seconds = time.perf_counter() - began
    print(json.dumps({"rate": count / seconds, "unit": unit, "seconds": seconds, **more}), flush=True)
    sys.stdin.readline()


def read_ahead_kb(path: Path) -> str:
    device = path.stat().st_dev
    node = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for place in (node / "queue", node.resolve().parent / "queue"):
        if (place / "read_ahead_kb").exists():
            return (place / "read_ahead_kb").read_text().strip()
    return "unknown"


@contextlib.contextmanager
def cgroup(limit: int):
    """A control group with a hard limit, or None where it cannot be made (v1 here)."""
    own = next(
        (x.split(":")[2] for x in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in x), None
    )
    folder = Path(f"/sys/fs/cgroup/memory{own}/lowtide-bench-{os.getpid()}") if own is not None else None
    try:
        if folder is None:
            raise OSError("no cgroup v1 memory controller")
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(limit))
    except OSError as error:
        print(f"  (no cgroup: {error})")
        yield None
        return
    try:
        yield folder
    finally:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def python(program: str, side: str, path: Path, settings: dict) -> list[str]:
    """The command of a side that is written in Python."""
    return [sys.executable, str(HERE / program), side, str(path), json.dumps(settings)]


def run(side: str, path: Path, command: list[str], group: Path | None = None, watch_cache=True) -> dict:
    """One side in a process of its own: what it says, and the peaks of RssAnon, RssFile and page cache added.

    Asking for the page cache of 8 GiB that are in it takes a millisecond of one core: not where that counts.
    """
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdin is not None
    if group is not None:
        (group / "cgroup.procs").write_text(str(child.pid))
    if child.stdout.readline() != "ready\n":
        return {"side": side, "rate": 0.0, "died": child.wait()}

    def memory() -> dict[str, int]:
        lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        return {
            k: int(v.split()[0]) << 10
            for k, _, v in (x.partition(":") for x in lines)
            if k in ("RssAnon", "RssFile")
        }

    def page_cache() -> int:
        return cached(path) if path.is_file() else 0

    base, peak, done = memory(), {"RssAnon": 0, "RssFile": 0, "sum": 0, "cache": 0}, threading.Event()
    cache0 = page_cache()

    def look(cache: bool) -> None:
        with contextlib.suppress(OSError):
            now = {k: v - base[k] for k, v in memory().items()}
            now["sum"] = sum(now.values())
            now["cache"] = page_cache() - cache0 if cache else 0
            for key, value in now.items():
                peak[key] = max(peak[key], value)

    def watch() -> None:
        # Counting 4 GiB in single pages keeps a core busy for 20 ms: not more often than that is nothing.
        asked = 0.0
        while not done.wait(0.03):
            due = time.perf_counter() - asked > 0.5
            asked = time.perf_counter() if due else asked
            look(watch_cache and due)

    watcher = threading.Thread(target=watch)
    watcher.start()
    child.stdin.write("go\n")
    child.stdin.flush()
    line = child.stdout.readline()
    done.set()
    watcher.join()
    if line:
        look(True)
    child.stdin.close()
    child.wait()
    if not line:
        return {"side": side, "rate": 0.0, "died": child.returncode}
    return {"side": side, **json.loads(line), **{f"peak_{k}": v for k, v in peak.items()}}


def fio(path: Path, rw: str, size: str, depth: int, seconds: float, batches: bool = False) -> float | None:
    """What fio reads in bytes a second (sequential) or requests a second (random), unbuffered, by io_uring.

    In batches, `depth` requests are handed over at once, and all of them are waited for before the next.
    """
    if shutil.which("fio") is None:
        return None
    forget(path)
    command = [
        "fio",
        "--name=x",
        f"--filename={path}",
        "--readonly",
        "--direct=1",
        f"--rw={rw}",
        f"--bs={size}",
    ]
    command += ["--ioengine=io_uring", f"--iodepth={depth}", f"--runtime={seconds}", "--time_based"]
    if batches:
        command += [f"--iodepth_batch_submit={depth}", "--iodepth_low=1"]
        command += [f"--iodepth_batch_complete_min={depth}", f"--iodepth_batch_complete_max={depth}"]
    # Other places every time: what the host of a virtual disk has just read for us, it reads faster.
    command += ["--randrepeat=0", "--norandommap", "--output-format=json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    job = json.loads(answer)["jobs"][0]["read"]
    return job["iops"] if rw == "randread" else job["bw_bytes"]


class Bench:
    """Runs sides in turn and remembers all of it."""

    def __init__(self, folder: Path, rounds: int, seconds: float = 2.0) -> None:
        self.folder, self.rounds, self.seconds = folder, rounds, seconds
        self.raw: list[dict] = []
        self.lines: list[str] = []
        self.missed: list[str] = []
        self.met = 0

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def turns(
        self, name: str, what: str, sides: dict[str, Callable[[int], dict]], cold: bool, path: Path
    ) -> dict[str, dict]:
        """Every side once a round, given the round's number; prints the best of each and the ratio of the first to it."""
        best: dict[str, dict] = {}
        for number in range(self.rounds):
            for label, side in sides.items():
                if cold:
                    forget(path)
                settle((512 << 20) + (path.stat().st_size if cold else 0))
                result = side(number)
                result |= {"bench": name, "label": label, "cold": cold, "round": number}
                self.raw.append(result)
                if result["rate"] >= best.get(label, {"rate": -1})["rate"]:
                    best[label] = result
        state = f"cold, read_ahead_kb {read_ahead_kb(path)}" if cold else "warm"
        self.say(f"\n{name}: {what} ({state}, best of {self.rounds})")
        first = next(iter(best.values()))
        for label, result in best.items():
            if "died" in result:
                self.say(f"  {label:34} died: {result['died']}")
                continue
            if not result["rate"]:
                self.say(f"  {label:34} not measured: {result.get('note', '')}")
                continue
            rate = f"{result['rate']:14,.0f}" if result["rate"] >= 100 else f"{result['rate']:14,.1f}"
            peaks = (f"{k} {result[f'peak_{k}'] / 2**20:6.0f}" for k in ("RssAnon", "RssFile", "cache"))
            memory = f"MiB: {'  '.join(peaks)}" if "peak_cache" in result else ""
            ratio = f"{first['rate'] / result['rate']:7.2f}×"
            self.say(f"  {label:34} {rate} {result['unit']:7} {ratio}   {memory}   {result.get('note', '')}")
        return best

    def compare(
        self, name: str, what: str, sides: dict[str, dict], cold: bool, path: Path, group=None
    ) -> dict[str, dict]:
        """Turns of sides of bench/side.py, by their settings."""

        def one(settings: dict) -> Callable[[int], dict]:
            rest = {k: v for k, v in settings.items() if k != "side"}
            command = python("side.py", settings["side"], path, rest)
            return lambda _: run(settings["side"], path, command, group)

        return self.turns(name, what, {label: one(s) for label, s in sides.items()}, cold, path)

    def check(
        self, name: str, what: str, value: float | None, floor: float | None = None, ceiling=None
    ) -> None:
        """Say whether a figure is what was asked for: at least the floor, or at most the ceiling."""
        asked = f"at least {floor:g}" if floor is not None else f"at most {ceiling:g}"
        if value is None:
            self.say(f"    {what:60} not measured, {asked} asked for")
            return
        good = value >= floor if floor is not None else value <= ceiling
        self.raw.append({"bench": name, "check": what, "value": value, "asked": asked, "met": good})
        self.say(f"    {what:60} {value:9.2f}  {asked:14} {'met' if good else 'MISSED'}")
        self.met += good
        if not good:
            self.missed.append(f"{name}: {what}: {value:.2f}, {asked} asked for")

    def fio(self, name: str, path: Path, ours: float, *arguments) -> None:
        rates = [r for r in (fio(path, *arguments) for _ in range(self.rounds)) if r]
        if rates:
            self.raw.append({"bench": name, "label": f"fio {arguments}", "rates": rates})
            self.say(
                f"  {'fio ' + ' '.join(map(str, arguments[:3])):34} {max(rates):14,.0f}         {ours / max(rates):7.2f} of fio"
            )
        else:
            self.say("  fio is not installed")
