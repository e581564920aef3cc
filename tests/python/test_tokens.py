"""Windows of tokens against NumPy, over every way of access, one file or many."""

from __future__ import annotations

import itertools
import os
import pickle
import resource
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lowtide

ACCESSES = ["auto", "map", "remap", "advise", "read", "direct"]


def llmc(path, tokens: np.ndarray):
    """An llm.c file: the header says how many tokens there are, and of which width."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = (20240520, 1, len(tokens)) if tokens.dtype.itemsize == 2 else (20240801, 7, len(tokens))
    path.write_bytes(header.tobytes() + tokens.astype(f"<u{tokens.dtype.itemsize}").tobytes())
    return path


def expected(tokens: np.ndarray, starts, block: int):
    x = np.stack([tokens[s : s + block] for s in starts]).astype(np.int64)
    y = np.stack([tokens[s + 1 : s + 1 + block] for s in starts]).astype(np.int64)
    return x, y


@pytest.fixture(scope="module")
def stream() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 50257, 100_000).astype("<u2")


@pytest.fixture(scope="module")
def train(tmp_path_factory, stream):
    path = tmp_path_factory.mktemp("tokens") / "train.bin"
    stream.tofile(path)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory, stream):
    """The same stream in llm.c shards of awkward sizes, one of them empty and one shorter than a window."""
    folder = tmp_path_factory.mktemp("shards")
    cuts = [0, 1, 30_000, 30_000, 30_007, 64_321, 99_999, 100_000]
    for i, (start, end) in enumerate(itertools.pairwise(cuts)):
        llmc(folder / f"shard_{i:03}.bin", stream[start:end])
    return folder


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("source", ["train", "shards"])
def test_windows_are_numpys(access, source, stream, request):
    with lowtide.tokens(request.getfixturevalue(source), access=access) as t:
        assert len(t) == len(stream)
        assert t.dtype == np.uint16
        starts = np.random.default_rng(1).integers(0, len(stream) - 1024, 64)
        starts[:3] = 0, len(stream) - 1025, 29_999
        for given_starts in (starts, starts.tolist(), starts.astype("uint64"), starts.astype("int32")):
            x, y = t.windows(given_starts, 1024)
            assert x.dtype == y.dtype == np.int64
            assert x.shape == y.shape == (64, 1024)
            wanted = expected(stream, starts, 1024)
            np.testing.assert_array_equal(x, wanted[0])
            np.testing.assert_array_equal(y, wanted[1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_windows_of_any_shards(data, tmp_path_factory):
    sizes = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(lambda s: sum(s) > 2))
    folder = tmp_path_factory.mktemp("some")
    stream = np.arange(sum(sizes), dtype="<u4") * 3
    ends = np.cumsum([0, *sizes])
    paths = [llmc(folder / f"{i}.bin", stream[ends[i] : ends[i + 1]]) for i in range(len(sizes))]
    block = data.draw(st.integers(1, len(stream) - 1))
    starts = data.draw(st.lists(st.integers(0, len(stream) - block - 1), min_size=1, max_size=9))
    t = lowtide.tokens(paths, access=data.draw(st.sampled_from(ACCESSES)))
    x, y = t.windows(starts, block)
    wanted = expected(stream, starts, block)
    np.testing.assert_array_equal(x, wanted[0])
    np.testing.assert_array_equal(y, wanted[1])


def test_out_is_filled_in_place_in_its_own_integers(train, stream):
    t = lowtide.tokens(train)
    for dtype in ("int64", "int32", "uint16", "uint64"):
        x, y = np.empty((2, 100), dtype), np.empty((2, 100), dtype)
        answer = t.windows([5, 50_000], 100, out=(x, y))
        assert answer[0] is x
        assert answer[1] is y
        wanted = expected(stream, [5, 50_000], 100)
        np.testing.assert_array_equal(x, wanted[0])
        np.testing.assert_array_equal(y, wanted[1])
    good = np.empty((2, 100), "int64")
    backing = np.empty(2 * 100 * 8 + 1, "u1")[1:].view("i8").reshape(2, 100)
    frozen = good.copy()
    frozen.flags.writeable = False
    for out in (
        (good, good[:1]),
        (good, good.astype("float64")),
        (good, good.astype("int32")),
        (good, good.T.copy().T),
        (good, frozen),
        (good, good.astype(">i8")),
        (good, backing),
        good,
        (good, None),
        (good,) * 3,
    ):
        with pytest.raises((ValueError, TypeError)):
            t.windows([5, 50_000], 100, out=out)


def test_starts_out_of_range_are_named(train):
    t = lowtide.tokens(train)
    for start in (100_000 - 1024, 10**12, -1):
        with pytest.raises(IndexError, match=f"start {start} is out of range"):
            t.windows([0, start], 1024)
    with pytest.raises(IndexError, match=str(2**64 - 1)):
        t.windows(np.array([0, 2**64 - 1], "uint64"), 1024)
    with pytest.raises(IndexError, match="100000 tokens"):
        t.windows([0], 100_000)
    x, y = t.windows([], 8)
    assert x.shape == y.shape == (0, 8)
    with pytest.raises(ValueError, match="0 tokens"):
        t.windows([0], 0)
    with pytest.raises(TypeError):
        t.windows([0.5], 8)
    with pytest.raises(TypeError):
        t.windows([[0, 1]], 8)


def test_ids_that_do_not_fit_are_an_error_not_another_token(tmp_path):
    path = llmc(tmp_path / "big.bin", np.array([1, 2, 70_000, 4], dtype="<u4"))
    t = lowtide.tokens(path)
    out = np.empty((1, 3), "uint16"), np.empty((1, 3), "uint16")
    with pytest.raises(ValueError, match="70000"):
        t.windows([0], 3, out=out)
    np.testing.assert_array_equal(t.windows([0], 3)[1], [[2, 70_000, 4]])


def test_a_headerless_bin_that_looks_like_uint32_is_warned_about_once(tmp_path):
    path = tmp_path / "train.bin"
    np.random.default_rng(0).integers(0, 50_000, 5_000).astype("<u4").tofile(path)
    with pytest.warns(UserWarning, match="uint32"):
        t = lowtide.tokens(path)
    assert t.dtype == np.uint16
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(t))
        assert lowtide.tokens(path, dtype="uint32").dtype == np.uint32
    assert again.dtype == np.uint16


def test_a_pickle_is_the_paths_and_the_settings(shards, stream):
    t = lowtide.tokens(shards, access="read", cache="drop", budget="32MiB")
    again = pickle.loads(pickle.dumps(t))
    assert (again.files, again.access, again.cache, again.budget.limit) == (t.files, "read", "drop", 32 << 20)
    np.testing.assert_array_equal(again.windows([29_990], 20)[0], expected(stream, [29_990], 20)[0])
    assert len(pickle.dumps(t)) < 4096


def test_closing_ends_it(train):
    t = lowtide.tokens(train)
    loader = t.loader(4, 16)
    kept, _ = next(loader)
    copy = kept.copy()
    t.close()
    assert t.closed
    with pytest.raises(ValueError, match="closed"):
        t.windows([0], 4)
    with pytest.raises(ValueError, match="closed"):
        for _ in loader:
            pass
    np.testing.assert_array_equal(kept, copy)


def test_documents_by_end_of_text(tmp_path):
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, 1000, 50_000).astype("<u2")
    tokens[rng.integers(0, 50_000, 200)] = 999
    ends = [0, *(np.flatnonzero(tokens == 999) + 1).tolist()]
    if ends[-1] != len(tokens):
        ends.append(len(tokens))
    path = tmp_path / "val.bin"
    tokens.tofile(path)
    assert lowtide.tokens(path).documents is None
    with pytest.raises(ValueError, match="end_of_text"):
        lowtide.tokens(path).document(0)
    t = lowtide.tokens(path, end_of_text=999)
    assert t.documents == len(ends) - 1
    for i in [0, 1, 57, len(ends) - 2, -1]:
        j = i % (len(ends) - 1)
        np.testing.assert_array_equal(t.document(i), tokens[ends[j] : ends[j + 1]])
    for i in (len(ends) - 1, -len(ends)):
        with pytest.raises(IndexError):
            t.document(i)
    remembered = t.remember_documents()
    assert remembered.parent == tmp_path
    assert lowtide.tokens(path, end_of_text=999).documents == len(ends) - 1
    # A file that has changed since is scanned again.
    tokens[:] = 1
    tokens.tofile(path)
    assert lowtide.tokens(path, end_of_text=999).documents == 1


def test_llmc_documents_begin_with_the_token(tmp_path):
    tokens = np.array([9, 1, 2, 9, 9, 3], dtype="<u2")
    t = lowtide.tokens(llmc(tmp_path / "x.bin", tokens), end_of_text=9)
    assert [t.document(i).tolist() for i in range(t.documents)] == [[9, 1, 2], [9], [9, 3]]


@pytest.fixture
def few_descriptors():
    """So few descriptors that shards are closed and opened again."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 12, limit[1]))
    yield highest + 12
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize("access", ACCESSES)
def test_at_most_half_the_descriptors_stay_open(tmp_path, few_descriptors, access):
    paths = [llmc(tmp_path / f"{i:03}.bin", np.full(100, i, "<u2")) for i in range(150)]
    t = lowtide.tokens(paths, access=access)
    before = len(os.listdir("/proc/self/fd"))
    x, _ = t.windows(np.arange(150)[::-1] * 100, 50)
    assert x[:, 0].tolist() == list(range(150))[::-1]
    for x, _ in t.loader(4, 30):
        assert x.shape == (4, 30)
    # The rings of unbuffered reads have descriptors of their own.
    assert len(os.listdir("/proc/self/fd")) - before <= few_descriptors // 2 + 2


def test_a_shard_that_is_replaced_is_noticed(tmp_path, few_descriptors):
    paths = [llmc(tmp_path / f"{i:03}.bin", np.full(100, i, "<u2")) for i in range(150)]
    t = lowtide.tokens(paths, access="read")
    for i in range(150):
        assert (t.windows([i * 100], 50)[0] == i).all()
    llmc(tmp_path / "other", np.full(100, 77, "<u2")).rename(paths[0])
    with pytest.raises(ValueError, match=r"000\.bin.*another one in its place"):
        t.windows([0], 50)
    paths[2].unlink()
    with pytest.raises(FileNotFoundError, match=r"002\.bin"):
        t.windows([250], 40)


def test_a_shard_that_is_cut_is_an_error(tmp_path):
    paths = [llmc(tmp_path / f"{i}.bin", np.full(10_000, i, "<u2")) for i in range(3)]
    for access in ACCESSES:
        t = lowtide.tokens(paths, access=access)
        t.windows([15_000], 100)
        with open(paths[1], "r+b") as file:
            file.truncate(1024 + 10_000)
        with pytest.raises(OSError, match=r"1\.bin.*cut while it was being read"):
            t.windows([18_000], 100)
        llmc(paths[1], np.full(10_000, 1, "<u2"))
