"""Windows of tokens against NumPy, over every way of access, one file or many."""

from __future__ import annotations

import inspect
import itertools
import os
import pickle
import resource
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_streams import llmc

import lowtide

ACCESSES = ["auto", "map", "remap", "advise", "read", "direct"]


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


@pytest.fixture(params=[4, 12])
def few_descriptors(request):
    """So few descriptors that shards are closed and opened again: four, or twelve, and none between."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    while taken[-1] <= highest:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    few = taken[-1] + 1 + request.param
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limit[1]))
    yield request.param
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    for fd in taken:
        os.close(fd)


@pytest.mark.parametrize("access", ACCESSES)
def test_at_most_half_the_descriptors_stay_open(tmp_path, few_descriptors, access):
    paths = [llmc(tmp_path / f"{i:03}.bin", np.full(100, i, "<u2")) for i in range(150)]
    t = lowtide.tokens(paths, access=access)

    def shards_open():  # not the rings of unbuffered reads, which have descriptors of their own
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # to look needs one, too
        try:
            links = [Path("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return sum(link.is_symlink() and link.readlink().is_relative_to(tmp_path) for link in links)

    x, _ = t.windows(np.arange(150)[::-1] * 100, 50)
    assert x[:, 0].tolist() == list(range(150))[::-1]
    most = max(few_descriptors // 2, 2)  # one is open twice
    assert 0 < shards_open() <= most
    for x, _ in t.loader(4, 30):
        assert x.shape == (4, 30)
    assert 0 < shards_open() <= most


@pytest.mark.parametrize("access", ACCESSES)
def test_descriptors_that_others_take_are_given_up(tmp_path, few_descriptors, access):
    paths = [llmc(tmp_path / f"{i:03}.bin", np.full(100, i, "<u2")) for i in range(50)]
    t = lowtide.tokens(paths, access=access)
    t.windows(np.arange(50) * 100, 50)
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        # Nothing is free but what the open shards hold.
        x, _ = t.windows(np.arange(50)[::-1] * 100, 50)
        assert x[:, 0].tolist() == list(range(50))[::-1]
    finally:
        for fd in taken:
            os.close(fd)


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


def test_tokens_are_indexed_as_numpy_would(train):
    t, whole = lowtide.tokens(train, budget="1MiB"), np.fromfile(train, "<u2")
    for key in (5, -1, slice(5, 9), slice(None, None, 7), [3, 1, 1], ..., slice(0, 0)):
        np.testing.assert_array_equal(t[key], whole[key])
        assert t[key].dtype == whole.dtype
    np.testing.assert_array_equal(np.asarray(t), whole)
    assert np.asarray(t, dtype="int64").dtype == np.int64
    with pytest.raises(IndexError, match="index 100000 is out of bounds"):
        t[100_000]
    with pytest.raises(TypeError, match=r"one by one\nhint: tokens.loader"):
        iter(t)
    with pytest.raises(MemoryError, match=r"all tokens would take .*\nhint: tokens\[...\] does it anyway"):
        np.asarray(lowtide.tokens(train, budget="64KiB"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "not by NoneType$"),
        ((name for name in ["train.bin"]), r"not by generator\nhint: sorted\(paths\)"),
        ({"train.bin"}, r"not by set\nhint: sorted\(paths\)"),
        ([["train.bin"]], r"not by list\nhint: the list is flat"),
        (np.zeros(3), "not by ndarray"),
    ],
)
def test_what_is_no_path_is_refused_with_a_way_out(wrong, says):
    with pytest.raises(TypeError, match=says):
        lowtide.tokens(wrong)


def test_files_and_memmaps_have_names_of_their_own(train):
    with open(train, "rb") as file, pytest.raises(TypeError, match="hint: give the file's name"):
        lowtide.tokens(file)
    with pytest.raises(TypeError, match=r"hint: .*lowtide.tokens\(array.filename, dtype=array.dtype\)"):
        lowtide.tokens(np.memmap(train, dtype="uint16", mode="r"))


@pytest.mark.parametrize(
    ("starts", "error", "says"),
    [
        (0, TypeError, r"a single int64\nhint: \[start\]"),
        ((i for i in [0]), TypeError, r"not generator\nhint: list\(starts\)"),
        (None, TypeError, "not NoneType$"),
        ("abc", TypeError, "not a single <U3"),
        ([0.5], TypeError, r"not float64\nhint: starts.astype"),
        ([[0, 1]], TypeError, r"2 axes of them\nhint: starts.reshape"),
        ([0, 2**70], IndexError, f"start {2**70} is out of range"),
        ([-(2**70)], IndexError, f"start {-(2**70)} is out of range"),
    ],
)
def test_starts_that_are_none_are_refused_with_a_way_out(train, starts, error, says):
    with pytest.raises(error, match=says):
        lowtide.tokens(train).windows(starts, 8)


def test_a_window_longer_than_the_stream_says_so(train):
    with pytest.raises(
        IndexError, match="no windows of 100000 tokens and the one after them fit into a stream of 100000"
    ):
        lowtide.tokens(train).windows([0], 100_000)


def test_out_can_be_a_list_too(train):
    t = lowtide.tokens(train)
    out = [np.empty((1, 8), "int32"), np.empty((1, 8), "int32")]
    x, y = t.windows([3], 8, out=out)
    assert x is out[0]
    assert y is out[1]
    np.testing.assert_array_equal(x, t.windows([3], 8)[0])
    for wrong in (out[0], out[:1], (None, None), ([], [])):
        with pytest.raises(TypeError, match=r"two NumPy arrays, \(x, y\)\nhint: tensor.numpy\(\)"):
            t.windows([3], 8, out=wrong)


def test_mistakes_are_found_at_once(train, tmp_path):
    with pytest.raises(ValueError, match="end_of_text=70000 cannot be among tokens of uint16"):
        lowtide.tokens(train, end_of_text=70_000)
    with pytest.raises(
        FileNotFoundError, match=r'hint: format="megatron" needs the index beside the tokens\): '
    ):
        lowtide.tokens(train, format="megatron")
    t = lowtide.tokens(train, end_of_text=0)
    for number in (10**6, -(10**6)):
        with pytest.raises(IndexError, match=f"document {number} is out of range: there are {t.documents}"):
            t.document(number)
    for number in (0, -1):
        with pytest.raises(ValueError, match="nothing says where documents end"):
            lowtide.tokens(train).document(number)


def test_tokens_and_loaders_say_what_they_are(train):
    t = lowtide.tokens(train)
    assert repr(t) == f'<lowtide.Tokens "{train}" tokens=100000 dtype=uint16 format=nanogpt access=auto>'
    assert repr(lowtide.tokens([train, train])).startswith(
        f'<lowtide.Tokens "{train}" and 1 more tokens=200000 '
    )
    loader = t.loader(4, 100, seed=3, rank=1, world_size=2)
    next(loader)
    said = "batch_size=4 block_size=100 order=shuffled seed=3 rank=1 world_size=2 (given) epoch=0 position=8 "
    assert said in repr(loader)
    assert said in repr(pickle.loads(pickle.dumps(loader)))
    t.close()
    assert repr(t).endswith(", closed>")


def test_help_shows_the_defaults():
    signature = inspect.signature(lowtide.Tokens.loader).parameters
    assert signature["epochs"].default == 1
    assert signature["dtype"].default == "int64"
