"""One side of a benchmark of arrays and what is made of them, in a process of its own: bytes of the file a second."""

from __future__ import annotations

import glob
import json
import os
import sys
import time

import numpy as np  # noqa: F401 - before the clock starts
from harness import go, tell

CHUNK = 4096


def opened(path: str, settings: dict):
    """A file or a folder of them, as `open` was told."""
    import lowtide

    return lowtide.open(path, **{k: settings[k] for k in ("astype", "cache", "budget") if k in settings})


def size(path: str) -> int:
    """Bytes of a file, or of those of a folder."""
    return sum(map(os.path.getsize, glob.glob(path + "/*") if os.path.isdir(path) else [path]))


def go_through(path: str, settings: dict) -> None:
    """All chunks, in file order or shuffled, for so long at most; a value of each is looked at."""
    import lowtide  # noqa: F401 - before the clock starts

    total, began, seen = size(path), go(), 0
    array = opened(path, settings)
    chunks = array.shuffled(CHUNK, seed=1) if settings.get("shuffled") else array.chunks(CHUNK)
    for chunk in chunks:
        assert chunk[0, 0] == chunk[0, -1]
        seen += len(chunk)
        if time.perf_counter() - began > settings.get("seconds", 1e9):
            break
    tell(began, total * seen / len(array), "bytes/s", note=chunks.access)


def reduce(path: str, settings: dict) -> None:
    """A reduction of all of it."""
    import lowtide  # noqa: F401 - before the clock starts

    total, began = size(path), go()
    array = opened(path, settings)
    answer = getattr(array, settings["name"])(axis=settings["axis"])
    tell(began, total, "bytes/s", note=f"{float(answer.ravel()[0]):g}")


def verify(path: str, settings: dict) -> None:
    """What `lowtide verify` does."""
    import lowtide

    total, began = size(path), go()
    verified = lowtide.verify(path, **settings)
    assert verified, verified
    tell(began, total, "bytes/s")


if __name__ == "__main__":
    sides = {"go_through": go_through, "reduce": reduce, "verify": verify}
    sides[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))
