"""Descriptors: an open array is one, as the kernel counts, and where there are too many that is said."""

import os
import resource

import numpy as np
import pytest

import lowtide


def descriptors():
    return len(os.listdir("/proc/self/fd"))


USES = {
    "only opened": lambda a: None,
    "a row": lambda a: a[3],
    "many rows": lambda a: a[::7],
    "rows anywhere": lambda a: a.take(np.random.default_rng(0).integers(0, len(a), 500)),
    "a chunk": lambda a: next(a.chunks(100)),
    "all chunks": lambda a: list(a.chunks(100)),
    "compared": lambda a: a == 5,
}


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_an_array_is_one_descriptor(tmp_path, how, warm):
    paths = []
    for i in range(40):
        path = tmp_path / f"{i}.npy"
        np.save(path, np.full((1000, 64), i, "f4"))  # 250 KiB
        with path.open("r+b") as file:
            os.fsync(file.fileno())
            if not warm:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        paths.append(path)
    with lowtide.open(paths[0]) as first:
        USES[how](first)  # threads and rings are for all of them
    before = descriptors()
    arrays = [lowtide.open(path) for path in paths]
    for array in arrays:
        USES[how](array)
    spare = 4  # rings, which are shared
    assert len(paths) <= descriptors() - before <= len(paths) + spare
    for array in arrays:
        array.close()
    assert descriptors() <= before + spare


def test_too_many_are_refused_in_plain_words(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros(5))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    arrays = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors() + 20, hard))
    try:
        with pytest.raises(
            OSError, match=r"Too many open files .*hint: this process may have \d+ files open"
        ):
            arrays.extend(lowtide.open(tmp_path / "rows.npy") for _ in range(100))
        while len(arrays) < 100:
            try:
                arrays.append(lowtide.open(tmp_path / "rows.npy"))
            except OSError:
                break
        assert len(arrays) >= 15
        assert all(array[3] == 0 for array in arrays), "what is open can still be read"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
