"""One side of a writing benchmark, in a process of its own: prints "ready", waits, writes, says how fast."""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from harness import go, tell

ROW = 1 << 18  # float32: a mebibyte
CHUNK = 4


def content(rows: int) -> np.ndarray:
    return np.random.default_rng(0).random((rows, ROW), dtype="float32")


def create(path: str, settings: dict) -> None:
    """Rows appended to an array whose number of rows is open, or written in a random order to one where it is known."""
    import lowtide

    rows, chunk = settings["size"] >> 20, content(CHUNK)
    chosen = {k: settings[k] for k in ("cache", "budget") if k in settings}
    order = np.random.default_rng(1).permutation(rows // CHUNK) * CHUNK
    began = go()
    if settings.get("random"):
        with lowtide.create(path, "float32", (rows, ROW), **chosen) as w:
            for start in order:
                w.write(start, chunk)
    else:
        with lowtide.create(path, "float32", (None, ROW), **chosen) as w:
            for _ in range(rows // CHUNK):
                w.append(chunk)
    tell(began, settings["size"], "bytes/s")


def np_memmap(path: str, settings: dict) -> None:
    """np.memmap("w+") and flush, for so long; the rate is that of what reached the disk."""
    rows, chunk = settings["size"] >> 20, content(CHUNK)
    order = np.random.default_rng(1).permutation(rows // CHUNK) * CHUNK
    began = go()
    array = np.lib.format.open_memmap(path, "w+", "float32", (rows, ROW))
    done = 0
    for start in order if settings.get("random") else range(0, rows, CHUNK):
        array[start : start + CHUNK] = chunk
        done += CHUNK
        if time.perf_counter() - began > settings.get("seconds", 1e9):
            break
    array.flush()
    os.fsync(os.open(path, os.O_RDONLY))
    tell(began, done << 20, "bytes/s", note="" if done == rows else f"{done} of {rows} MiB")


if __name__ == "__main__":
    {"create": create, "np_memmap": np_memmap}[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))
