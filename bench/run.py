"""The benchmarks behind BENCHMARKS.md: both sides in one run, cold proven cold, best of several, ratios.

`make bench` runs all of it; `python bench/run.py --only shuffled_warm --rounds 5` a part. Each side runs in a
process of its own (bench/side.py), watched from outside by the kernel's numbers, and the sides take turns. The
raw figures and the machine's description are kept in bench/runs/DATE-NAME/.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from side import cached, forget

HERE = Path(__file__).parent
ROW = 512


def make(path: Path, size: int) -> None:
    """A .npy of float32 rows of 512 bytes, each number the row's own, written as people write files."""
    rows = size // ROW
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, ROW // 4)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, 1 << 15):
            ids = np.arange(start, min(start + (1 << 15), rows), dtype="float32")
            np.repeat(ids[:, None], ROW // 4, axis=1).tofile(file)
        file.flush()
        os.fsync(file.fileno())


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


def run(side: str, path: Path, group: Path | None = None, **settings) -> dict:
    """One side in a process of its own: what it says, and the peaks of RssAnon, RssFile and page cache added."""
    command = [sys.executable, str(HERE / "side.py"), side, str(path), json.dumps(settings)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdin is not None
    if group is not None:
        (group / "cgroup.procs").write_text(str(child.pid))
    assert child.stdout.readline() == "ready\n", f"{side} did not start"

    def memory() -> dict[str, int]:
        lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        return {
            k: int(v.split()[0]) << 10
            for k, _, v in (x.partition(":") for x in lines)
            if k in ("RssAnon", "RssFile")
        }

    base, peak, done = memory(), {"RssAnon": 0, "RssFile": 0, "sum": 0, "cache": 0}, threading.Event()
    cache0 = cached(path)

    def watch() -> None:
        while not done.wait(0.01):
            with contextlib.suppress(OSError):
                now = {k: v - base[k] for k, v in memory().items()}
                now["sum"] = sum(now.values())
                now["cache"] = cached(path) - cache0
                for key, value in now.items():
                    peak[key] = max(peak[key], value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    child.stdin.write("go\n")
    child.stdin.flush()
    line = child.stdout.readline()
    done.set()
    watcher.join()
    child.stdin.close()
    child.wait()
    if not line:
        return {"side": side, "rate": 0.0, "died": child.returncode}
    return {"side": side, **json.loads(line), **{f"peak_{k}": v for k, v in peak.items()}}


def fio(path: Path, rw: str, size: str, depth: int, seconds: float) -> float | None:
    """What fio reads in bytes a second (sequential) or requests a second (random), unbuffered, by io_uring."""
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
    command += [
        "--ioengine=io_uring",
        f"--iodepth={depth}",
        f"--runtime={seconds}",
        "--time_based",
        "--output-format=json",
    ]
    job = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["jobs"][0][
        "read"
    ]
    return job["iops"] if rw == "randread" else job["bw_bytes"]


class Bench:
    """Runs sides in turn and remembers all of it."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder, self.rounds, self.raw, self.lines = folder, rounds, [], []

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def compare(
        self, name: str, what: str, sides: dict[str, dict], cold: bool, path: Path, group=None
    ) -> dict[str, dict]:
        """Every side once a round; prints the best of each and the ratio of the first to it."""
        best: dict[str, dict] = {}
        for _ in range(self.rounds):
            for label, settings in sides.items():
                if cold:
                    forget(path)
                result = run(
                    settings["side"], path, group, **{k: v for k, v in settings.items() if k != "side"}
                )
                result |= {"bench": name, "label": label, "cold": cold}
                self.raw.append(result)
                if result["rate"] >= best.get(label, {"rate": -1})["rate"]:
                    best[label] = result
        self.say(f"\n{name}: {what} ({'cold' if cold else 'warm'}, best of {self.rounds})")
        first = next(iter(best.values()))
        for label, result in best.items():
            if "died" in result:
                self.say(f"  {label:34} died: {result['died']}")
                continue
            peaks = "  ".join(
                f"{k} {result[f'peak_{k}'] / 2**20:6.0f}" for k in ("RssAnon", "RssFile", "cache")
            )
            ratio = f"{first['rate'] / result['rate']:7.2f}×" if result["rate"] else ""
            self.say(
                f"  {label:34} {result['rate']:14,.0f} {result['unit']:7} {ratio}   MiB: {peaks}   {result.get('note', '')}"
            )
        return best

    def fio(self, name: str, path: Path, ours: float, *arguments) -> None:
        rates = [r for r in (fio(path, *arguments) for _ in range(self.rounds)) if r]
        if rates:
            self.raw.append({"bench": name, "label": f"fio {arguments}", "rates": rates})
            self.say(
                f"  {'fio ' + ' '.join(map(str, arguments[:3])):34} {max(rates):14,.0f}         {ours / max(rates):7.2f} of fio"
            )
        else:
            self.say("  fio is not installed")


def sequential_cold(b: Bench, path: Path) -> None:
    sides = {"lowtide": {"side": "chunks"}, "np.memmap held": {"side": "np_chunks"}}
    sides |= {
        "np.memmap recreated": {"side": "np_chunks", "recreate": True},
        "readinto": {"side": "readinto"},
    }
    best = b.compare("sequential_cold", "chunks of 4,096 rows, bytes a second", sides, True, path)
    b.fio("sequential_cold", path, best["lowtide"]["rate"], "read", "1M", 16, 4)


def sequential_warm(b: Bench, path: Path) -> None:
    sides = {f"lowtide {a}": {"side": "chunks", "access": a} for a in ("read", "auto", "advise")}
    b.compare(
        "sequential_warm",
        "chunks of 4,096 rows, bytes a second",
        sides | {"np.memmap, copied": {"side": "np_chunks"}},
        False,
        path,
    )


def shuffled_warm(b: Bench, path: Path) -> None:
    sides = {"lowtide": {"side": "shuffled"}, "lowtide read": {"side": "shuffled", "access": "read"}}
    sides |= {"np.memmap recreated": {"side": "np_shuffled", "recreate": True, "seconds": 4}}
    b.compare(
        "shuffled_warm",
        "exact order, rows a second",
        sides | {"np.memmap held": {"side": "np_shuffled"}},
        False,
        path,
    )


def rows_warm(b: Bench, path: Path) -> None:
    sides = {"lowtide read, take": {"side": "take", "access": "read", "seconds": 3}}
    b.compare(
        "rows_warm",
        "4,096 random rows at a time, rows a second",
        sides | {"np.memmap recreated": {"side": "np_take", "seconds": 3}},
        False,
        path,
    )


def shuffled_cold(b: Bench, path: Path) -> None:
    sides = {"lowtide": {"side": "shuffled"}, "np.memmap held": {"side": "np_shuffled"}}
    b.compare(
        "shuffled_cold",
        "exact order, room for the file, first chunk included, rows a second",
        sides,
        True,
        path,
    )


def shuffled_cgroup(b: Bench, path: Path) -> None:
    limit = path.stat().st_size // 10
    with cgroup(limit) as group:
        if group is None:
            return
        rounds, b.rounds = b.rounds, 1
        sides = {
            "lowtide": {"side": "shuffled"},
            "np.memmap held, 2 chunks": {"side": "np_shuffled", "chunks": 2},
        }
        b.compare(
            "shuffled_cgroup",
            f"exact order in a cgroup of {limit >> 20} MiB, rows a second",
            sides,
            True,
            path,
            group,
        )
        b.rounds = rounds


def blocks_cold(b: Bench, path: Path) -> None:
    sides = {"lowtide blocks='auto'": {"side": "shuffled", "blocks": "auto", "access": "direct"}}
    sides |= {"lowtide sequential": {"side": "chunks", "rows_a_second": True}}
    b.compare(
        "blocks_cold", "block shuffle against our own sequential pass, rows a second", sides, True, path
    )


def random_cold(b: Bench, path: Path) -> None:
    sides = {
        "lowtide direct": {"side": "random", "access": "direct"},
        "one pread at a time": {"side": "preads", "seconds": 3},
    }
    best = b.compare("random_cold", "random 2 KiB reads, reads a second", sides, True, path)
    for depth in (64, 128):
        b.fio("random_cold", path, best["lowtide direct"]["rate"], "randread", "2k", depth, 3)


def auto_is_right(b: Bench, path: Path) -> None:
    """`auto` against the best manual way, over warm and cold, orders, row sizes and budgets."""
    b.say("\nauto_is_right: rows a second of auto over those of the best manual way")
    worst = 9.0
    for cold in (False, True):
        for side, width in (("chunks", 128), ("shuffled", 128), ("shuffled", 1 << 14)):
            for budget in ("32MiB", "256MiB"):
                rates: dict[str, float] = {}
                for _ in range(2):
                    for access in ("auto", "advise", "read", "direct"):
                        if cold:
                            forget(path)
                        settings = {
                            "access": access,
                            "budget": budget,
                            "width": width,
                            "seconds": 4,
                            "rows_a_second": True,
                        }
                        result = run(side, path, **settings)
                        b.raw.append(result | {"bench": "auto_is_right", "cold": cold, **settings})
                        rates[access] = max(rates.get(access, 0), result["rate"])
                best = max((r, a) for a, r in rates.items() if a != "auto")
                worst = min(worst, rates["auto"] / best[0])
                what = f"{'cold' if cold else 'warm'} {side} rows of {width * 4} bytes, {budget}"
                b.say(
                    f"  {what:52} {rates['auto'] / best[0]:5.2f} of {best[1]:7} { ({k: round(v) for k, v in rates.items()}) }"
                )
    b.say(f"  worst: {worst:.2f}")


def opening(b: Bench, path: Path) -> None:
    b.say("\nopening: open and first shuffled chunk of a sparse .npy, best of 5")
    for size, name in ((1 << 30, "1 GiB"), (8 << 40, "8 TiB")):
        sparse = b.folder / "sparse.npy"
        with sparse.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (size // ROW, ROW // 4)}
            )
            file.truncate(file.tell() + size)
        results = [run("first", sparse) for _ in range(5)]
        b.raw += [r | {"bench": "opening", "label": name} for r in results]
        seconds, memory = min(1 / r["rate"] for r in results), min(r["peak_sum"] for r in results)
        b.say(f"  {name:34} {seconds * 1000:10.1f} ms   {memory / 2**20:6.1f} MiB")
        sparse.unlink()


ALL = [sequential_warm, rows_warm, shuffled_warm, sequential_cold, blocks_cold, random_cold, shuffled_cold]
ALL += [shuffled_cgroup, opening, auto_is_right]


def main() -> None:
    """Run what was asked for and keep the run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[f.__name__ for f in ALL])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=4 << 30, help="bytes of the file")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--keep", default="all", help="name of the run; '' keeps nothing")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lowtide-bench-", dir=arguments.dir))
    try:
        path = folder / "rows.npy"
        make(path, arguments.size)
        bench = Bench(folder, arguments.rounds)
        bench.say(
            f"file {arguments.size >> 20} MiB, rows of {ROW} bytes; read_ahead_kb {read_ahead_kb(path)}; load {os.getloadavg()[0]:.1f}"
        )
        for part in ALL:
            if not arguments.only or part.__name__ in arguments.only:
                part(bench, path)
        if arguments.keep:
            kept = HERE / "runs" / f"{datetime.date.today()}-{arguments.keep}"
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "raw.json").write_text("\n".join(json.dumps(r) for r in bench.raw) + "\n")
            machine = {
                "command": "python bench/run.py " + " ".join(sys.argv[1:]),
                "kernel": platform.release(),
            }
            machine |= {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
            machine |= {"memory_bytes": os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")}
            (kept / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
            (kept / "summary.txt").write_text("\n".join(bench.lines) + "\n")
            print(f"\nkept in {kept.relative_to(HERE.parent)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
