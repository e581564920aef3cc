"""The token benchmarks: nanoGPT's get_batch, torch's DataLoader, one pread at a time and fio against our own.

Called by bench/run.py, which makes the file: raw uint16 of random content, nanoGPT's `.bin`. Every part says
which of its targets (DESIGN.md section 6) are met.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import statistics
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import HERE, Bench, cached, fio, forget, python, read_ahead_kb, run, warm

SHAPES = [(12, 1024), (64, 256)]
BUDGET = 64 << 20
# Our rings: two of 64, one a thread.
DEPTH = 128


def make(path: Path, size: int) -> None:
    """Random tokens of GPT-2's vocabulary: no filesystem can fold them, and nobody takes them for uint32."""
    random, left = np.random.default_rng(0), size // 2
    with path.open("wb") as file:
        while left:
            count = min(left, 1 << 23)
            random.integers(0, 50_257, count, dtype=np.uint16).tofile(file)
            left -= count
        file.flush()
        os.fsync(file.fileno())


@functools.cache
def limit() -> str:
    """The Rust program of crates/lowtide/benches/limit.rs, built."""
    command = ["cargo", "build", "--release", "--quiet", "--package", "lowtide", "--bench", "limit"]
    command += ["--message-format", "json-render-diagnostics"]
    lines = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    built = (json.loads(line).get("executable") for line in lines.splitlines())
    return next(name for name in built if name)


def side(b: Bench, name: str, path: Path, cold: bool, **settings) -> Callable[[int], dict]:
    """A side of bench/token_side.py: in each round other places of the file, which no host has read for us."""

    def one(number: int) -> dict:
        if not cold:
            warm(path)
        chosen = {"seed": 1 + number, "seconds": b.seconds, **settings}
        result = run(name, path, python("token_side.py", name, path, chosen), watch_cache=cold)
        return result | ({} if cold else {"cached_after": cached(path) / path.stat().st_size})

    return one


def preads(b: Bench, path: Path, batch: int, block: int, cold: bool) -> Callable[[int], dict]:
    """One thread, one pread at a time, outputs used again: warm, the limit."""

    def one(number: int) -> dict:
        if not cold:
            warm(path)
        words = [
            str(path),
            str(batch),
            str(block),
            str(b.seconds),
            str(1001 + number),
            "cold" if cold else "warm",
        ]
        return run("limit", path, [limit(), *words], watch_cache=cold)

    return one


def fios(
    b: Bench, path: Path, batch: int, block: int, depth: int, batches: bool = False
) -> Callable[[int], dict]:
    """fio, a read a window: as many whole pages as its bytes fill, though most windows touch one page more."""
    size = -(-(block + 1) * 2 // 4096) * 4096

    def one(_: int) -> dict:
        reads = fio(path, "randread", str(size), depth, b.seconds, batches)
        note = f"{size} bytes a window" if reads else "fio is not installed"
        return {"side": "fio", "rate": (reads or 0) / batch, "unit": "batch/s", "note": note}

    return one


def ratio(best: dict[str, dict], ours: str, theirs: str) -> float | None:
    return best[ours]["rate"] / best[theirs]["rate"] if best[theirs]["rate"] else None


def tokens_warm(b: Bench, path: Path, batch: int, block: int) -> None:
    name = f"tokens_warm_{batch}x{block}"
    shape = {"batch": batch, "block": block}
    limit()
    sides = {
        "lowtide.torch.get_batch": side(b, "get_batch", path, False, **shape),
        "lowtide loader, with_replacement": side(b, "loader", path, False, order="with_replacement", **shape),
        "nanoGPT's get_batch": side(b, "nanogpt", path, False, **shape),
        "the limit: pread, outputs reused": preads(b, path, batch, block, False),
    }
    best = b.turns(name, f"random windows, {batch} × {block}, batches a second", sides, False, path)
    ours, loader, theirs, most = sides
    b.check(name, "get_batch / nanoGPT's", ratio(best, ours, theirs), 15)
    b.check(name, "get_batch / the limit", ratio(best, ours, most), 0.8)
    b.check(name, "loader / nanoGPT's", ratio(best, loader, theirs), 25)


def tokens_cold(b: Bench, path: Path, batch: int, block: int) -> None:
    name = f"tokens_cold_{batch}x{block}"
    shape = {"batch": batch, "block": block, "cache": "drop"}
    limit()
    sides = {
        "lowtide loader, with_replacement": side(b, "loader", path, True, order="with_replacement", **shape),
        "lowtide.torch.get_batch": side(b, "get_batch", path, True, **shape),
        "nanoGPT's get_batch": side(b, "nanogpt", path, True, **shape),
        "one pread at a time": preads(b, path, batch, block, True),
        f"fio, depth {DEPTH}": fios(b, path, batch, block, DEPTH),
        f"fio, depth {batch}": fios(b, path, batch, block, batch),
        # What a caller who waits for each batch can have: the slowest of its reads is waited for.
        f"fio, in batches of {batch}": fios(b, path, batch, block, batch, batches=True),
    }
    what = f'random windows, {batch} × {block}, cache="drop", batches a second'
    best = b.turns(name, what, sides, True, path)
    loader, ours, theirs, one, deep, shallow, apart = sides
    ahead = read_ahead_kb(path)
    times = {"8192": 100, "128": 20}.get(ahead, 20)
    b.check(name, f"get_batch / {apart}", ratio(best, ours, apart), 0.9)
    for label, who, depth in (("loader", loader, deep), ("get_batch", ours, shallow)):
        b.check(name, f"{label} / nanoGPT's (read_ahead_kb {ahead})", ratio(best, who, theirs), times)
        b.check(name, f"{label} / one pread at a time", ratio(best, who, one), 3)
        b.check(name, f"{label} / {depth}", ratio(best, who, depth), 0.7)
        cache = max(r.get("peak_cache", 0) for r in b.raw if r.get("bench") == name and r.get("label") == who)
        b.check(name, f"{label}: page cache added / budget of 256 MiB", cache / (256 << 20), ceiling=1)


def tokens_epoch(b: Bench, path: Path) -> None:
    """One shuffled epoch over an eighth of the file's size: 1 GiB of 8."""
    name, small = "tokens_epoch", b.folder / "epoch.bin"
    make(small, path.stat().st_size // 8)
    shape = {"batch": 12, "block": 1024}
    whole = {"order": "shuffled", "epochs": 1, "seconds": 1e9, **shape}
    sides = {
        "lowtide loader, all of it": side(b, "loader", small, False, **whole),
        "DataLoader, RandomSampler, 0 workers": side(b, "dataloader", small, False, workers=0, **shape),
        "DataLoader, RandomSampler, 2 workers": side(b, "dataloader", small, False, workers=2, **shape),
    }
    size = small.stat().st_size >> 20
    what = f"one shuffled epoch of 1,024-token windows over {size} MiB, int64 x and y, 12 a batch, batches a second"
    best = b.turns(name, what, sides, False, small)
    ours, none, two = sides
    b.check(name, "loader / DataLoader without workers", ratio(best, ours, none), 6)
    b.check(name, "loader / DataLoader with 2 workers", ratio(best, ours, two), 20)
    small.unlink()


def tokens_blocks(b: Bench, path: Path) -> None:
    """Shuffled windows in whole blocks, from a disk, against the same in file order and against an exact shuffle."""
    name = "tokens_blocks"
    # A mix is read before its first window comes: so long that there are many of them, the first one included.
    shape = {"batch": 12, "block": 1024, "cache": "drop", "seconds": max(b.seconds, 4)}
    sides = {
        'lowtide loader, blocks="auto"': side(
            b, "loader", path, True, order="shuffled", blocks="auto", **shape
        ),
        "lowtide loader, sequential": side(b, "loader", path, True, order="sequential", **shape),
        "lowtide loader, shuffled exactly": side(b, "loader", path, True, order="shuffled", **shape),
    }
    best = b.turns(name, 'windows of 12 × 1024, cache="drop", batches a second', sides, True, path)
    blocks, sequential, exact = sides
    b.check(name, "blocks / sequential", ratio(best, blocks, sequential), 0.7)
    b.check(name, "blocks / an exact shuffle", ratio(best, blocks, exact), 1)


def tokens_memory(b: Bench, path: Path, cold: bool) -> None:
    """Every way of access but `map`: what 10,000 batches add, by the kernel's count, over what they may."""
    name, batches = f"tokens_memory_{'cold' if cold else 'warm'}", 10_000
    cache = "drop" if cold else "auto"
    state = f"cold, read_ahead_kb {read_ahead_kb(path)}" if cold else "warm"
    b.say(f'\n{name}: peaks over {batches:,} batches of 12 × 1024, budget 64 MiB, cache="{cache}" ({state})')
    for order in ("shuffled", "with_replacement"):
        for access in ("auto", "remap", "advise", "read", "direct"):
            forget(path) if cold else warm(path)
            settings = {"batch": 12, "block": 1024, "seed": 1, "order": order, "access": access}
            # Mapped windows of a cold file are slow in the kernel's hands: what was done by then is said.
            settings |= {"budget": BUDGET, "cache": cache, "batches": batches, "seconds": 10 * b.seconds}
            result = run("loader", path, python("token_side.py", "loader", path, settings))
            b.raw.append(result | {"bench": name, "label": f"{order} {access}", "cold": cold})
            if "died" in result:
                b.check(name, f"{order} {access}: died", float("inf"), ceiling=1)
                continue
            peaks = "  ".join(
                f"{k} {result[f'peak_{k}'] / 2**20:6.1f}" for k in ("RssAnon", "RssFile", "cache")
            )
            took = result["note"] if access == "auto" else ""
            b.say(f"  {order:17}{access:7}{took:8}{result['batches']:8,} batches   MiB: {peaks}")
            b.check(
                name, f"{order} {access}: RssAnon + RssFile / budget", result["peak_sum"] / BUDGET, ceiling=1
            )
            if cold:
                b.check(
                    name, f"{order} {access}: page cache / budget", result["peak_cache"] / BUDGET, ceiling=1
                )


@contextlib.contextmanager
def shards(b: Bench, count: int, header: bool):
    """A folder of sparse shards of 100 million tokens: llm.c's with their header, or raw."""
    folder, tokens = b.folder / "shards", 100_000_000
    folder.mkdir()
    for number in range(count):
        with open(folder / f"train_{number:06}.bin", "wb") as file:
            if header:
                file.write(struct.pack("<256i", 20240520, 1, tokens, *[0] * 253))
            file.truncate((1024 if header else 0) + 2 * tokens)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def tokens_startup(b: Bench, path: Path) -> None:
    """Opening many shards, the first batch, and taking up a run again: in milliseconds."""
    name, rounds = "tokens_startup", 5

    def times(what: str, of: Path, key: str, sides: dict[str, dict]) -> dict[str, float]:
        """The best of each side, in turns."""
        seen: dict[str, list[float]] = {label: [] for label in sides}
        for _ in range(rounds):
            for label, settings in sides.items():
                result = run(what, of, python("token_side.py", what, of, {"seed": 1, **settings}))
                b.raw.append(result | {"bench": name, "label": label})
                seen[label].append(1e3 * (result[key] if key in result else float("inf")))
        for label, took in seen.items():
            b.say(f"  {label:60} {min(took):9.1f} ms, half of them within {statistics.median(took):.1f}")
        return {label: min(took) for label, took in seen.items()}

    b.say(f"\n{name}: sparse shards of 100 M tokens, just made, best of {rounds}")
    for header, dialect in ((True, "llm.c"), (False, "raw")):
        with shards(b, 1_000, header) as folder:
            sides = {
                f"1,000 shards, {dialect}: open, first batch of the loader": {"what": "loader"},
                f"1,000 shards, {dialect}: open, 12 windows anywhere": {"what": "windows"},
            }
            for label, took in times("first", folder, "seconds", sides).items():
                b.check(name, f"{label}, ms", took, ceiling=100)
    for header, dialect in ((True, "llm.c"), (False, "raw")):
        with shards(b, 10_000, header) as folder:
            sides = {f"10,000 shards, {dialect}: open": {"what": "open"}}
            for label, took in times("first", folder, "opened", sides).items():
                b.check(name, f"{label}, ms", took, ceiling=1000)
    sparse = b.folder / "sparse.bin"
    with sparse.open("wb") as file:
        file.truncate(8 << 40)
    for order in ("shuffled", "with_replacement"):
        sides = {
            f"resume, {order}, step {step:,}": {"step": step, "order": order, "batch": 4, "block": 1024}
            for step in (10, 10**9)
        }
        few, many = times("resume", sparse, "took", sides).values()
        b.check(name, f"resume, {order}: step 10^9 / step 10", many / few, ceiling=2)
    sparse.unlink()


def named(part: Callable, suffix: str, *arguments) -> Callable[[Bench, Path], None]:
    """One part of several, with a name for the command line."""

    def run_it(b: Bench, path: Path) -> None:
        part(b, path, *arguments)

    run_it.__name__ = f"{part.__name__}_{suffix}"
    return run_it


ALL = [named(tokens_warm, f"{batch}x{block}", batch, block) for batch, block in SHAPES]
ALL += [named(tokens_cold, f"{batch}x{block}", batch, block) for batch, block in SHAPES]
ALL += [tokens_epoch, tokens_blocks, named(tokens_memory, "cold", True), named(tokens_memory, "warm", False)]
ALL += [tokens_startup]
