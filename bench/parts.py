"""What is made of arrays, against going through them: many files as one, sums and means, elements of another type,
`verify`. All in bytes of the file a second. Blocks of windows are in bench/tokens.py: tokens_blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Bench, forget, python, run, warm

ROW = 512
FILES = 64


def files(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def make(path: Path, size: int, kind: str = "<f4") -> None:
    """A .npy of rows of 512 bytes, each the row's number over and over, as far as its type goes."""
    width, rows = ROW // np.dtype(kind).itemsize, size // ROW
    with path.open("wb") as file:
        header = {"descr": kind, "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, 1 << 15):
            ids = (np.arange(start, min(start + (1 << 15), rows)) % 2048).astype(kind)
            np.repeat(ids[:, None], width, axis=1).tofile(file)
        file.flush()
        os.fsync(file.fileno())  # dirty pages cannot be forgotten


def side(name: str, path: Path, cold: bool, /, **settings) -> Callable[[int], dict]:
    """One of bench/parts_side.py, over files that are in memory, or are not: proven."""

    def one(_: int) -> dict:
        for file in files(path):
            forget(file) if cold else warm(file)
        return run(name, path, python("parts_side.py", name, path, settings), watch_cache=False)

    return one


def rate(best: dict[str, dict], one: str, other: str) -> float:
    return best[one]["rate"] / best[other]["rate"]


def parts_files(b: Bench, path: Path) -> None:
    """The same rows in one file and in 64."""
    folder = b.folder / "many"
    folder.mkdir()
    whole = np.load(path, mmap_mode="r")
    for i, rows in enumerate(np.array_split(np.arange(len(whole)), FILES)):
        np.save(folder / f"{i:03}.npy", whole[rows[0] : rows[-1] + 1])
    del whole
    os.sync()
    for file in [path, *files(folder)]:
        forget(file)  # how it was written is how it lies in memory: `warm` brings both in alike
    for cold in (False, True):
        for shuffled in (False, True):
            words = {"shuffled": shuffled}
            sides = {f"{FILES} files": side("go_through", folder, cold, **words)}
            sides |= {"one file": side("go_through", path, cold, **words)}
            order = "shuffled" if shuffled else "in file order"
            name = f"parts_files_{'cold' if cold else 'warm'}"
            best = b.turns(name, f"chunks of 4,096 rows, {order}, bytes a second", sides, cold, path)
            b.check(name, f"many files against one, {order}", rate(best, *sides), floor=0.9)
    for file in files(folder):
        file.unlink()
    folder.rmdir()


def parts_reduce(b: Bench, path: Path) -> None:
    """Reductions against going through the chunks and doing nothing with them."""
    for cold in (False, True):
        name = f"parts_reduce_{'cold' if cold else 'warm'}"
        sides = {"mean(axis=0)": side("reduce", path, cold, name="mean", axis=0)}
        sides |= {"std(axis=0)": side("reduce", path, cold, name="std", axis=0)}
        sides |= {"max()": side("reduce", path, cold, name="max", axis=None)}
        sides |= {"chunks": side("go_through", path, cold)}
        best = b.turns(name, "bytes a second", sides, cold, path)
        b.check(name, "mean(axis=0) against chunks", rate(best, "mean(axis=0)", "chunks"), floor=0.8)


def parts_astype(b: Bench, path: Path) -> None:
    """Elements as another type, against the same file as it is."""
    for kind, wanted in (("<f2", "<f4"), (">f4", "<f4")):
        other = b.folder / "other.npy"
        make(other, path.stat().st_size, kind)
        for cold in (False, True):
            for shuffled in (False, True):
                name = f"parts_astype_{'cold' if cold else 'warm'}"
                words = {"shuffled": shuffled}
                sides = {f"{kind} as {wanted}": side("go_through", other, cold, astype=wanted, **words)}
                sides |= {f"{kind} as it is": side("go_through", other, cold, **words)}
                order = "shuffled" if shuffled else "in file order"
                what = f"chunks of 4,096 rows, {order}, bytes of the file a second"
                best = b.turns(name, what, sides, cold, other)
                b.check(name, f"{kind} to {wanted} against without, {order}", rate(best, *sides), floor=0.7)
        other.unlink()


def parts_verify(b: Bench, path: Path) -> None:
    """`verify` reads every byte once."""
    for cold in (False, True):
        name = f"parts_verify_{'cold' if cold else 'warm'}"
        sides = {"verify": side("verify", path, cold), "chunks": side("go_through", path, cold)}
        best = b.turns(name, "bytes a second", sides, cold, path)
        b.check(name, "verify against chunks", rate(best, *sides), floor=0.8)


ALL = [parts_files, parts_reduce, parts_astype, parts_verify]
