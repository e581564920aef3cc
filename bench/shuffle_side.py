"""One side of a shuffling benchmark, in a process of its own: prints "ready", waits, shuffles or copies, says how fast.

The copies are loops as `dd bs=8M iflag=direct oflag=direct` has them: one request after another, past the page cache as
our own runs are.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import time

from harness import go, tell

ROW = 512
CHUNK = 4096
PIECE = 8 << 20


def scratch(path: str, settings: dict) -> None:
    """A whole shuffled pass, or as much of it as so many seconds allow."""
    import lowtide

    chosen = {"cache": settings["cache"], "budget": settings["budget"]}
    array = lowtide.open(path, dtype="u1", shape=(-1, ROW), **chosen)
    began, seen = go(), 0
    for chunk in array.shuffled(CHUNK, seed=1, scratch=settings.get("scratch")):
        seen += chunk.nbytes
        if time.perf_counter() - began > settings.get("seconds", 1e9):
            break
    tell(began, seen, "bytes/s", note="" if seen == array.nbytes else f"of {seen / array.nbytes:.1%} of it")


def shuffle(path: str, settings: dict) -> None:
    """The file in another order, in another file."""
    import lowtide

    out = f"{settings['folder']}/out.bin"
    began = go()
    made = lowtide.shuffle(path, out, dtype="u1", shape=(-1, ROW), seed=1, budget=settings["budget"])
    tell(began, made["bytes"], "bytes/s")


def direct(path: str, flags: int = os.O_RDONLY) -> int:
    return os.open(path, flags | os.O_DIRECT, 0o600)


def copy(source: str, target: str, buffer: mmap.mmap) -> None:
    size = os.path.getsize(source)
    reading, writing = direct(source), direct(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.posix_fallocate(writing, 0, size)
    for offset in range(0, size, PIECE):
        got = os.preadv(reading, [buffer], offset)
        os.pwritev(writing, [memoryview(buffer)[:got]], offset)
    os.fdatasync(writing)
    os.close(reading)
    os.close(writing)


def read_write_read(path: str, settings: dict) -> None:
    """Two sequential reads and one write of the file."""
    buffer, target = mmap.mmap(-1, PIECE), f"{settings['folder']}/copy"
    began = go()
    copy(path, target, buffer)
    reading = direct(target)
    for offset in range(0, os.path.getsize(target), PIECE):
        os.preadv(reading, [buffer], offset)
    tell(began, os.path.getsize(path), "bytes/s")


def copy_twice(path: str, settings: dict) -> None:
    """The file copied, and the copy copied; on the disk at the end."""
    buffer, names = mmap.mmap(-1, PIECE), [f"{settings['folder']}/{name}" for name in ("copy", "again")]
    began = go()
    for source, target in zip([path, *names], names, strict=False):
        if settings.get("cp"):
            shutil.copyfile(source, target)
            os.fsync(os.open(target, os.O_RDONLY))
        else:
            copy(source, target, buffer)
    tell(began, os.path.getsize(path), "bytes/s")


def terashuf(path: str, settings: dict) -> None:
    """terashuf's algorithm, as bench/terashuf.c has it."""
    command = [settings["program"], str(settings["budget"]), settings["folder"]]
    with open(path, "rb") as source, tempfile.NamedTemporaryFile(dir=settings["folder"]) as target:
        began = go()
        subprocess.run(command, stdin=source, stdout=target, check=True)
        os.fsync(target.fileno())
        tell(began, os.path.getsize(target.name), "bytes/s")


ALL = [scratch, shuffle, read_write_read, copy_twice, terashuf]

if __name__ == "__main__":
    {side.__name__: side for side in ALL}[sys.argv[1]](sys.argv[2], json.loads(sys.argv[3]))
