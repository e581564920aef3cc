"""``cache=``: what we add to the page cache, by cachestat's count."""

import ctypes
import itertools
import os

import numpy as np
import pytest

import lowtide

ROWS, WIDTH = 400_000, 128  # 195 MiB
BUDGET = 32 << 20


def cached(path, offset=0, length=0):
    """Bytes of the file in the page cache, from the kernel itself."""
    with open(path, "rb") as file:
        span = (ctypes.c_uint64 * 2)(offset, length)
        answer = (ctypes.c_uint64 * 5)()
        if ctypes.CDLL(None, use_errno=True).syscall(451, file.fileno(), span, answer, 0) != 0:
            pytest.skip(f"cachestat: {os.strerror(ctypes.get_errno())} (Linux 6.5 has it)")
        return answer[0] * os.sysconf("SC_PAGESIZE")


def forget(path):
    """Drops the file from the page cache, and proves it."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached(path) == 0


# A new map for every window takes longest, and goes through the same code as one that is held.
ACCESSES = [pytest.param("remap", marks=pytest.mark.heavy), "advise", "read", "direct", "auto"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("cache") / "rows.npy"
    np.save(path, np.repeat(np.arange(ROWS, dtype="float32")[:, None], WIDTH, axis=1))
    return path


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("way", ["shuffled", "chunks", "take"])
def test_drop_adds_no_more_than_the_budget(large, access, way):
    forget(large)
    with lowtide.open(large, access=access, cache="drop", budget=BUDGET) as a:
        most = most_cached(large, a, way)
    assert max(most, cached(large)) <= BUDGET


def most_cached(large, a, way):
    most = 0
    if way == "take":
        rng = np.random.default_rng(0)
        chunks = (a.take(np.sort(rng.integers(0, ROWS, 1000))) for _ in range(40))
    else:
        chunks = a.shuffled(4096, seed=1) if way == "shuffled" else a.chunks(4096)
        if a.access in ("remap", "advise"):
            chunks = itertools.islice(chunks, 12)  # cold and one at a time: slow
    for i, chunk in enumerate(chunks):
        assert chunk[0, 0] == chunk[0, -1]
        if i % 8 == 0:
            most = max(most, cached(large))
    return most


@pytest.mark.parametrize("access", ACCESSES)
def test_drop_leaves_what_others_had_cached(large, access):
    forget(large)
    ours = 64 << 20
    with open(large, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing but what is read
        for offset in range(0, ours, 1 << 20):
            os.pread(file.fileno(), 1 << 20, offset)
        for offset in range(100 << 20, 150 << 20, 1 << 20):
            os.pread(file.fileno(), 4096, offset)  # single pages, too
    before = cached(large)
    assert cached(large, 0, ours) > 0.99 * ours  # DAMON may be at it already
    with lowtide.open(large, access=access, cache="drop", budget=BUDGET) as a:
        chunks = a.shuffled(4096, seed=2, with_rows=True)
        for at, chunk in itertools.islice(chunks, 8 if access in ("remap", "advise") else None):
            assert (chunk[:, 5] == at).all()
    # All but what the kernel may have reclaimed meanwhile by itself (DAMON does, on some machines).
    assert cached(large, 0, ours) > 0.95 * ours
    assert 0.95 * before < cached(large) <= before + BUDGET


def test_keep_keeps(large):
    forget(large)
    a = lowtide.open(large, access="read", cache="keep", budget=BUDGET)
    for _ in a.chunks(4096):
        pass
    assert cached(large) > 0.9 * a.nbytes


def test_auto_keeps_what_fits_and_says_so(large):
    a = lowtide.open(large)
    it = a.shuffled(4096)
    assert "half the room" in it.why or it.access == "direct"


def test_a_held_map_cannot_drop(large):
    with pytest.raises(ValueError, match="what is mapped cannot be dropped"):
        lowtide.open(large, access="map", cache="drop")


def test_access_says_what_was_done_with_the_first_chunk(large):
    """The kernel's count is the witness: unbuffered reads leave nothing behind, the sweep after them does."""
    forget(large)
    a = lowtide.open(large, budget="64MiB")
    it, header = a.shuffled(256, seed=1), cached(large)
    if it.access != "read":
        pytest.skip(f"this machine has no room for the file: {it.why}")
    next(it)
    if it.access == "read":
        pytest.skip("this filesystem has no unbuffered reads")
    assert (it.access, cached(large)) == ("direct", header), it.why
    assert "first chunk" in it.why
    next(it)
    assert it.access == "read"
    assert cached(large) > 1 << 20
