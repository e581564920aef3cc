"""One side of a benchmark, in a process of its own: prints "ready", waits, does the work, says how fast."""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from harness import go, tell

CHUNK = 4096


def opened(path, settings):
    """Lowtide's array; another width reads the same file as longer rows."""
    import lowtide

    chosen = {k: settings[k] for k in ("access", "cache", "budget") if k in settings}
    if settings.get("width", 128) == 128:
        return lowtide.open(path, **chosen)
    rows = (os.path.getsize(path) - 128) // 4 // settings["width"]
    return lowtide.open(path, dtype="float32", shape=(rows, settings["width"]), offset=128, **chosen)


def iterate(path, settings, make):
    """Go through an iterator, for a limited time or number of chunks."""
    import lowtide  # noqa: F401 - before the clock starts

    began = go()
    array = opened(path, settings)
    rows = max(1, CHUNK * 128 // settings.get("width", 128))
    number, seen, first, over = 0, 0, None, False
    while not over:
        chunks = make(array, rows)
        for chunk in chunks:
            number += 1
            first = first or time.perf_counter() - began
            assert chunk[0, 0] == chunk[0, -1] or settings.get("width")
            seen += len(chunk)
            over = number == settings.get("chunks") or time.perf_counter() - began > settings.get(
                "seconds", 1e9
            )
            if over:
                break
        over = over or not settings.get("again")
    bytes_wanted = (
        chunks.access in ("read", "advise", "direct")
        and make is sequential
        and not settings.get("rows_a_second")
    )
    count = seen * chunk.nbytes // len(chunk) if bytes_wanted else seen
    tell(began, count, "bytes/s" if bytes_wanted else "rows/s", note=chunks.access, first=first, rows=seen)


def epochs(path, settings):
    """Shuffled epochs, one after another, as fast as they come."""
    array, seen, epoch = opened(path, settings), 0, 0
    began = go()
    while time.perf_counter() - began < settings["seconds"]:
        for chunk in array.shuffled(CHUNK, seed=1, epoch=epoch):
            seen += len(chunk)
            if time.perf_counter() - began > settings["seconds"]:
                break
        epoch += 1
    tell(began, seen, "rows/s", epochs=epoch)


def windows(path, settings):
    """Random windows of 1,024 tokens of a raw file."""
    import lowtide

    chosen = {k: settings[k] for k in ("access", "budget")}
    began, seen, first = go(), 0, None
    loader = lowtide.tokens(path, dtype="uint16", **chosen).loader(12, 1024, seed=1, order="with_replacement")
    for x, _ in loader:
        first = first or time.perf_counter() - began
        seen += len(x)
        if time.perf_counter() - began > settings["seconds"]:
            break
    tell(began, seen, "windows/s", first=first)


def sequential(array, rows):
    return array.chunks(rows)


def np_order(rows, settings):
    if not settings.get("chunks"):
        return np.random.default_rng(1).permutation(rows)
    return np.random.default_rng(1).choice(rows, settings["chunks"] * CHUNK, replace=False)


def np_pass(path, settings, orders):
    """np.memmap, held or recreated for every chunk."""
    array = np.load(path, mmap_mode="r")
    order = orders(len(array), settings)
    began, seen = go(), 0
    for start in range(0, len(array) if order is None else len(order), CHUNK):
        if settings.get("recreate"):
            array = np.load(path, mmap_mode="r")
        chunk = (
            np.array(array[start : start + CHUNK]) if order is None else array[order[start : start + CHUNK]]
        )
        seen += len(chunk)
        if time.perf_counter() - began > settings.get("seconds", 1e9):
            break
    tell(began, seen * 512 if order is None else seen, "bytes/s" if order is None else "rows/s")


def readinto(path, settings):
    buffer = np.empty((CHUNK, 128), dtype="float32")
    began, seen = go(), 0
    with open(path, "rb", buffering=0) as file:
        file.seek(128)
        while got := file.readinto(buffer):
            seen += got
    tell(began, seen, "bytes/s")


def take(path, settings):
    array, rng, seen = opened(path, settings), np.random.default_rng(1), 0
    rows = [rng.integers(0, len(array), CHUNK) for _ in range(64)]
    began = go()
    while time.perf_counter() - began < settings["seconds"]:
        seen += len(array.take(rows[seen // CHUNK % 64]))
    tell(began, seen, "rows/s")


def np_take(path, settings):
    rng, seen = np.random.default_rng(1), 0
    rows = [rng.integers(0, len(np.load(path, mmap_mode="r")), CHUNK) for _ in range(64)]
    began = go()
    while time.perf_counter() - began < settings["seconds"]:
        seen += len(np.load(path, mmap_mode="r")[rows[seen // CHUNK % 64]])
    tell(began, seen, "rows/s")


def random(path, settings):
    """Random aligned 2 KiB rows, many at a time: no two near each other."""
    import lowtide

    rows = (os.path.getsize(path) - 128) // 2048
    array = lowtide.open(path, dtype="float32", shape=(rows, 512), offset=0, access=settings["access"])
    wanted = np.random.default_rng(1).choice(rows, min(rows, 150_000), replace=False)
    began = go()
    for start in range(0, len(wanted), 30_000):
        array.take(wanted[start : start + 30_000])
    tell(began, len(wanted), "reads/s")


def preads(path, settings):
    file, rng, seen = os.open(path, os.O_RDONLY), np.random.default_rng(2), 0
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    places = os.path.getsize(path) // 2048 - 1
    offsets = rng.choice(places, min(places, 200_000), replace=False) * 2048
    began = go()
    while seen < len(offsets) and time.perf_counter() - began < settings["seconds"]:
        os.pread(file, 2048, int(offsets[seen]))
        seen += 1
    tell(began, seen, "reads/s")


def dataloader(path, settings):
    """torch's DataLoader over rows, shuffled by its sampler: as many batches for every side."""
    import warnings

    import torch

    import lowtide.torch

    warnings.filterwarnings("ignore", "The given NumPy array is not writable")
    makes = {
        "array": lambda: opened(path, settings),
        "RowDataset": lambda: lowtide.torch.RowDataset(opened(path, settings)),
        "np.memmap": lambda: np.load(path, mmap_mode="r"),
    }
    torch.manual_seed(1)
    began, seen = go(), 0
    batches = torch.utils.data.DataLoader(makes[settings["over"]](), batch_size=256, shuffle=True)
    for batch in batches:
        assert batch[0, 0] == batch[0, -1]
        seen += len(batch)
        if seen >= settings["rows"]:
            break
    tell(began, seen, "rows/s")


def first(path, settings):
    import lowtide

    began = go()
    next(lowtide.open(path).shuffled(CHUNK, seed=1))
    tell(began, 1, "opens/s")


def main() -> None:
    """Do what the command line says."""
    side, path, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    sides = {
        "chunks": lambda: iterate(path, settings, sequential),
        "shuffled": lambda: iterate(
            path, settings, lambda a, n: a.shuffled(n, seed=1, blocks=settings.get("blocks"))
        ),
        "np_chunks": lambda: np_pass(path, settings, lambda *_: None),
        "np_shuffled": lambda: np_pass(path, settings, np_order),
    }
    direct = {
        "readinto": readinto,
        "windows": windows,
        "epochs": epochs,
        "take": take,
        "np_take": np_take,
        "random": random,
        "preads": preads,
        "first": first,
        "dataloader": dataloader,
    }
    sides[side]() if side in sides else direct[side](path, settings)


if __name__ == "__main__":
    main()
