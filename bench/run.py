"""The benchmarks behind BENCHMARKS.md: both sides in one run, cold proven cold, best of several, ratios.

`make bench` runs all of it; `python bench/run.py --only shuffled_warm --rounds 5` a part; `--only tokens` all
that has to do with tokens (bench/tokens.py), `--only text` what makes them (bench/text.py), `--only write` what makes
arrays (bench/write.py), `--only shuffle_` what shuffles them on a disk (bench/shuffle.py), `--only parts` what is made
of them (bench/parts.py). Each side runs in a
process of its own (bench/side.py), watched from outside by the kernel's numbers, and the sides take turns
(bench/harness.py). The raw figures and the machine's description are kept in bench/runs/DATE-NAME/.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import itertools
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import parts
import shuffle
import text
import tokens
import write
from harness import HERE, Bench, cgroup, forget, python, read_ahead_kb, run, settle, warm

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
    """In both states that a file is found in: large folios after it was written, single pages after np.memmap."""
    sides = {"lowtide read, take": {"side": "take", "access": "read", "seconds": 3}}
    sides |= {"np.memmap recreated": {"side": "np_take", "seconds": 3}}
    what = "4,096 random rows at a time, rows a second, a file"
    b.compare("rows_warm_written", f"{what} that was just written", sides, False, path)
    forget(path)
    run("np_shuffled", path, python("side.py", "np_shuffled", path, {"seconds": 60}))
    b.compare("rows_warm_mapped", f"{what} that np.memmap brought in", sides, False, path)
    forget(path)
    warm(path)


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
    limit = max(path.stat().st_size // 10, 64 << 20)  # Python itself must start in it
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


def dataloader_cold(b: Bench, path: Path) -> None:
    sides = {
        label: {"side": "dataloader", "over": over, "rows": 400 * 256}
        for label, over in (
            ("lowtide", "array"),
            ("lowtide RowDataset", "RowDataset"),
            ("np.memmap", "np.memmap"),
        )
    }
    what = "DataLoader(a, batch_size=256, shuffle=True), the first 102,400 rows, rows a second"
    best = b.compare("dataloader_cold", what, sides, True, path)
    ratio = best["lowtide"]["rate"] / best["np.memmap"]["rate"]
    b.check("dataloader_cold", "DataLoader over an array against np.memmap", ratio, floor=1.2)


def auto_is_right_warm(b: Bench, path: Path) -> None:
    """`auto` against the best manual way: file in memory, over orders, row sizes and budgets."""
    auto_is_right(b, path, cold=False)


def auto_is_right_cold(b: Bench, path: Path) -> None:
    """The same from the disk. A shuffled pass is run to its end: what is brought in at first pays off later."""
    auto_is_right(b, path, cold=True)


def auto_is_right(b: Bench, path: Path, cold: bool) -> None:
    name, rounds = f"auto_is_right_{'cold' if cold else 'warm'}", b.rounds
    b.say(f"\n{name}: rows a second of auto over those of the best manual way, best of {rounds}")
    stream, luck = b.folder / "windows.bin", random.Random(1)
    tokens.make(stream, 1 << 30)
    jobs = [
        ("chunks", 128, path),
        ("shuffled", 128, path),
        ("shuffled", 1 << 14, path),
        ("windows", 512, stream),
    ]
    worst = 9.0
    for (side, width, file), budget in itertools.product(jobs, ("32MiB", "256MiB")):
        rates: dict[str, float] = {}
        ways = ["auto", "advise", "read", "direct"]
        whole = cold and side == "shuffled" and width == 128
        for _ in range(rounds):
            luck.shuffle(ways)
            for access in ways:
                # What the host of a virtual machine keeps of the disk is the same for all sides then.
                warm(file)
                if cold:
                    forget(file)
                settle((512 << 20) + (file.stat().st_size if cold else 0))
                settings = {
                    "access": access,
                    "budget": budget,
                    "width": width,
                    "seconds": 15 if whole and access != "direct" else 3,
                    "again": not cold,
                    "rows_a_second": True,
                }
                result = run(side, file, python("side.py", side, file, settings))
                b.raw.append(result | {"bench": name, "cold": cold, **settings})
                rates[access] = max(rates.get(access, 0), result["rate"])
        best = max((r, a) for a, r in rates.items() if a != "auto")
        worst = min(worst, rates["auto"] / best[0])
        what = f"{side} rows of {width * 4} bytes, {budget}"
        rounded = {k: round(rates[k]) for k in ("auto", "advise", "read", "direct")}
        b.say(f"  {what:48} {rates['auto'] / best[0]:5.2f} of {best[1]:7} {rounded}")
    stream.unlink()
    b.check(name, "the worst of them", worst, floor=0.8)


def opening(b: Bench, path: Path) -> None:
    b.say("\nopening: open and first shuffled chunk of a sparse .npy, best of 5")
    for size, name in ((1 << 30, "1 GiB"), (8 << 40, "8 TiB")):
        sparse = b.folder / "sparse.npy"
        with sparse.open("wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (size // ROW, ROW // 4)}
            )
            file.truncate(file.tell() + size)
        results = [run("first", sparse, python("side.py", "first", sparse, {})) for _ in range(5)]
        b.raw += [r | {"bench": "opening", "label": name} for r in results]
        seconds, memory = min(1 / r["rate"] for r in results), min(r["peak_sum"] for r in results)
        b.say(f"  {name:34} {seconds * 1000:10.1f} ms   {memory / 2**20:6.1f} MiB")
        sparse.unlink()


def soak(b: Bench, path: Path) -> None:
    """Ten minutes each at full speed under `lowtide watch --assert-flat`, warm and through unbuffered reads."""
    for access, seconds in (("auto", 600), ("direct", 600)):
        warm(path)
        recording = b.folder / "soak.json"
        settings = {"access": access, "seconds": seconds}
        command = [
            Path(sys.executable).with_name("lowtide"),
            "watch",
            "--assert-flat",
            "--json",
            recording,
            "--",
        ]
        command += python("side.py", "epochs", path, settings)
        done = subprocess.run(command, input="go\n", capture_output=True, text=True)
        line = next((x for x in done.stdout.splitlines() if x.startswith("{")), "{}")
        report = json.loads(recording.read_text()) if recording.exists() else {}
        peaks = {k: v for k, v in report.items() if k in ("verdict", "peak_anon_bytes", "peak_file_bytes")}
        b.raw.append(json.loads(line) | peaks | {"bench": "soak", "exit": done.returncode, **settings})
        b.say(f"\nsoak: {access}, {seconds} s: {line} {peaks}")
        b.check("soak", f"{access}: exit status of lowtide watch --assert-flat", done.returncode, ceiling=0)


ALL = [sequential_warm, shuffled_warm, rows_warm, sequential_cold, blocks_cold, random_cold, shuffled_cold]
ALL += [dataloader_cold, shuffled_cgroup, opening, auto_is_right_warm, auto_is_right_cold, soak]


def keep(bench: Bench, name: str) -> None:
    """Keep the run, and what it ran on."""
    kept = HERE / "runs" / f"{datetime.date.today()}-{name}"
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "raw.json").write_text("\n".join(json.dumps(r) for r in bench.raw) + "\n")
    words = [Path(word).name for word in sys.argv[1:]]  # which folders this machine has is nobody's business
    machine = {"command": " ".join(["python bench/run.py", *words]), "kernel": platform.release()}
    machine |= {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}
    for package in ("torch", "tiktoken", "datasets"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            machine[package] = importlib.metadata.version(package)
    machine |= {"memory_bytes": os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")}
    (kept / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    (kept / "summary.txt").write_text("\n".join(bench.lines) + "\n")
    print(f"\nkept in {kept.relative_to(HERE.parent)}")


def main() -> None:
    """Run what was asked for and keep the run."""
    groups = [("rows.npy", make, 4 << 30, ALL, "rows of 512 bytes")]
    groups += [("tokens.bin", tokens.make, 8 << 30, tokens.ALL, "tokens of 2 bytes")]
    groups += [("corpus.jsonl", text.make, 256 << 20, text.ALL, "JSON lines of Python's standard library")]
    groups += [("parts.npy", parts.make, 2 << 30, parts.ALL, "rows of 512 bytes")]
    groups += [("size", write.make, 4 << 30, write.ALL, "are written")]
    groups += [("lines.bin", shuffle.make, 4 << 30, shuffle.ALL, "lines of 512 bytes")]
    names = [part.__name__ for *_, all_parts, _ in groups for part in all_parts]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", default=[""], metavar="PART", help="how names begin: " + ", ".join(names)
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of a side, in the token benchmarks")
    parser.add_argument(
        "--size",
        type=int,
        help="bytes of the file: 4 GiB of rows (2 for parts), 8 GiB of tokens, 256 MiB of text, 4 GiB written",
    )
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--tokens", type=Path, help="a raw uint16 file to read instead of making one; it stays"
    )
    parser.add_argument("--keep", default="all", help="name of the run; '' keeps nothing")
    arguments = parser.parse_args()
    for word in arguments.only:
        if not any(name.startswith(word) for name in names):
            parser.error(f"no part begins with {word!r}: there are {', '.join(names)}")
    folder = Path(tempfile.mkdtemp(prefix="lowtide-bench-", dir=arguments.dir))
    try:
        bench = Bench(folder, arguments.rounds, arguments.seconds)
        for name, maker, usual, all_parts, what in groups:
            chosen = [part for part in all_parts if part.__name__.startswith(tuple(arguments.only))]
            if not chosen:
                continue
            made = folder / name
            path = arguments.tokens if arguments.tokens and maker is tokens.make else made
            if path is made:
                maker(path, arguments.size or usual)
            size = path.stat().st_size >> 20
            bench.say(
                f"file {size} MiB, {what}; read_ahead_kb {read_ahead_kb(path)}; load {os.getloadavg()[0]:.1f}"
            )
            for part in chosen:
                part(bench, path)
            made.unlink(missing_ok=True)
        if bench.met or bench.missed:
            bench.say(f"\ntargets: {bench.met} met, {len(bench.missed)} missed")
            for line in bench.missed:
                bench.say(f"  {line}")
        if arguments.keep:
            keep(bench, arguments.keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
