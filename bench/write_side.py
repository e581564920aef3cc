"""One side of a writing benchmark, in a process of its own: prints "ready", waits, writes, says how fast."""

from __future__ import annotations

import json
import mmap
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


def convert(path: str, settings: dict) -> None:
    """A file in Fortran order, in C order."""
    import lowtide

    began = go()
    lowtide.convert(settings["source"], path, order="C", budget=settings["budget"], progress=False)
    tell(began, settings["size"], "bytes/s")


def copy(path: str, settings: dict) -> None:
    """The same file, as it is: a loop like that of `dd bs=8M iflag=direct oflag=direct conv=fsync`."""
    piece, page = 8 << 20, 4096
    buffer, size = mmap.mmap(-1, piece), os.path.getsize(settings["source"])
    began = go()
    reading = os.open(settings["source"], os.O_RDONLY | os.O_DIRECT)
    writing = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT, 0o600)
    os.posix_fallocate(writing, 0, size)
    for offset in range(0, size, piece):
        got = os.preadv(reading, [buffer], offset)
        os.pwritev(
            writing, [memoryview(buffer)[: -(-got // page) * page]], offset
        )  # the last page is whole, too
    os.ftruncate(writing, size)
    os.fsync(writing)
    tell(began, settings["size"], "bytes/s")


if __name__ == "__main__":
    {"create": create, "np_memmap": np_memmap, "convert": convert, "copy": copy}[sys.argv[1]](
        sys.argv[2], json.loads(sys.argv[3])
    )
