"""Elements as another type: to the bit what NumPy's ``astype`` gives, through every door."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide

KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
TYPES = [order + kind for kind in KINDS for order in ("<", ">") if kind[1:] != "1" or order == "<"]
TYPES.remove(">?")
PAIRS = [(one, other) for one in TYPES for other in TYPES if np.can_cast(one, other, "same_kind")]


def numpys(array, dtype):
    """NumPy's answer, without its warnings of what overflows and of NaNs."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def any_bits(count, dtype, seed=0):
    """Elements of random bytes, NaNs that signal and numbers that overflow among them."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype == "?":
        return rng.integers(0, 2, count).astype("?")
    bits = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
    if dtype.kind in "fc":  # random bytes are mostly very large or very small
        bits[: count // 2] = numpys(rng.standard_normal(count // 2) * 300, dtype)
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520, 2**-24, 2**-25, 2.0**-149])
        bits[: min(count, 10)] = numpys(special, dtype)[: min(count, 10)]
    return bits


def test_every_pair_of_types_is_numpys_to_the_bit_or_is_refused(folder, same):
    """All pairs: also those that only swap bytes, those that become smaller, and those that round."""
    for one in TYPES:
        whole = any_bits(3000, one)
        np.save(folder / "one.npy", whole)
        with lowtide.open(folder / "one.npy") as a:
            for other in TYPES:
                if (one, other) in PAIRS:
                    same(a.astype(other)[...], numpys(whole, other))
                else:
                    with pytest.raises(ValueError, match="would lose"):
                        a.astype(other)


def test_every_half_and_everything_between_two(save, same):
    halves = np.arange(1 << 16, dtype="u2").view("f2")
    path = save(halves)
    for dtype in ("f4", "f8", ">f4", "c8"):
        same(lowtide.open(path, astype=dtype)[...], numpys(halves, dtype))
    # What lies just below and just above the middle of two halves; a piece without a NaN, and one with it.
    finite = np.sort(halves[np.isfinite(halves)]).astype("f8")
    middle = (finite[1:] + finite[:-1]) / 2
    for kind in ("f4", "f8"):
        between = np.concatenate([np.nextafter(middle.astype(kind), way) for way in (-np.inf, np.inf)])
        for whole in (between, np.append(between, [np.nan])):
            same(lowtide.open(save(whole), astype="f2")[...], numpys(whole, "f2"))


@given(
    pair=st.sampled_from(PAIRS),
    shape=st.sampled_from([(0,), (7,), (0, 3), (50, 0), (300, 5), (61, 3, 4), (1, 1)]),
    order=st.sampled_from("CF"),
    access=st.sampled_from(["map", "remap", "advise", "read", "direct", "auto"]),
    offset=st.sampled_from([0, 1, 24]),
    data=st.data(),
)
@settings(max_examples=60)
def test_through_every_door(folder, same, pair, shape, order, access, offset, data):
    one, other = pair
    whole = np.asarray(any_bits(int(np.prod(shape)), one).reshape(shape), order=order)
    if order == "C" and offset:  # elements at any byte of the file
        (folder / "raw.bin").write_bytes(b"x" * offset + whole.tobytes())
        a = lowtide.open(
            folder / "raw.bin", dtype=one, shape=shape, offset=offset, access=access, astype=other
        )
    else:
        np.save(folder / "some.npy", whole)
        a = lowtide.open(folder / "some.npy", access=access).astype(other)
    want = numpys(whole, other)
    assert (a.dtype, a.itemsize, a.nbytes, a.shape) == (want.dtype, want.itemsize, want.nbytes, want.shape)
    same(np.asarray(a), want)
    rows = data.draw(st.lists(st.integers(-len(want), len(want) - 1), max_size=9)) if len(want) else []
    same(a[rows] if len(rows) else a[:0], want[rows] if len(rows) else want[:0])
    same(a[1::3], want[1::3])
    same(a[..., ::-1], want[..., ::-1])
    same(a.rows(2, -1)[...], want[2:-1])
    same(pickle.loads(pickle.dumps(a))[...], want)
    if not len(want):
        return
    out = np.empty(want[1:3].shape, want.dtype)
    same(a.take(range(1, min(3, len(want))), out=out[: min(3, len(want)) - 1]), want[1:3])
    size = data.draw(st.integers(1, 70))
    for got, start in zip(a.chunks(size), itertools.count(0, size), strict=False):
        same(np.ascontiguousarray(got), np.ascontiguousarray(want[start : start + size]))
    for part in a.split(len(a) // 2):
        for numbers, got in lowtide.zip(part, part).shuffled(size, seed=3, with_rows=True):
            same(np.ascontiguousarray(got[1]), np.ascontiguousarray(part[numbers]))


def test_many_files_scratch_blocks_states_and_reductions(tmp_path, same):
    whole = any_bits(40_000 * 8, "<f2").reshape(40_000, 8)
    whole[~np.isfinite(whole)] = 1
    for i, part in enumerate(np.array_split(whole, 5)):
        np.save(tmp_path / f"{i}.npy", part)
    want = numpys(whole, "f8")
    files = lowtide.open(tmp_path, budget="2MiB")
    a = files.astype("f8")
    assert np.allclose(a.mean(axis=0), want.mean(axis=0))
    assert a.max() == want.max()
    assert a.mean().dtype == want.mean().dtype
    for words in ({}, {"scratch": tmp_path}, {"blocks": 64}):
        rows = 0
        for numbers, got in a.shuffled(1000, seed=1, with_rows=True, **words):
            same(got, want[numbers])
            rows += len(got)
        assert rows == len(a)
    # What a pass has taken does not depend on the type: a state of one is a state of the other.
    it, other = files.shuffled(1000, seed=1), a.shuffled(1000, seed=1)
    first = next(it)
    other.load_state_dict(it.state_dict())
    same(next(other), numpys(next(it), "f8"))
    again = pickle.loads(pickle.dumps(other))
    same(next(again), numpys(next(it), "f8"))
    assert len(first) == 1000


def test_what_it_says(save):
    a = lowtide.open(save(np.ones((300, 4), ">f4")))
    b = a.astype("float32")
    assert "dtype=float32 (float32 (big-endian) in the file)" in repr(b)
    assert "(float32 (big-endian) in the file)" in b._repr_html_()
    assert b.chunks(10).why.endswith("; float32 (big-endian) becomes float32 as it is read")
    assert "becomes" not in a.chunks(10).why
    # What becomes larger waits as it is in the file: there is room for twice as many rows.
    half = lowtide.open(save(np.ones((300, 4), "f2"), "half.npy")).astype("float32")
    assert half.chunks(10).why.endswith("; float16 becomes float32 as it is read")
    assert "; float16 becomes float32 as it is handed out;" in half.shuffled(10).why
    assert "; float32 (big-endian) becomes float32 as it is read;" in b.shuffled(10).why
    assert b.astype(">f4").dtype == a.dtype
    assert "in the file" not in repr(b.astype(">f4"))
    assert (b.files, b.path, b.cache, b.access) == (a.files, a.path, a.cache, a.access)
    b.close()
    assert a.closed


def test_what_is_refused(save):
    path = save(np.ones(3, "f8"))
    a = lowtide.open(path)
    with pytest.raises(ValueError, match=r"rows\.npy: float64 cannot be read as int32, .*fraction\nhint"):
        lowtide.open(path, astype="int32")
    with pytest.raises(ValueError, match="float64 is read as float32, which rounds"):
        a.astype("f4").astype("f8")
    with pytest.raises(NotImplementedError, match="structured"):
        a.astype([("x", "f4")])
    with pytest.raises((NotImplementedError, ValueError), match="not supported"):
        a.astype("U7")
    ints = lowtide.open(save(np.arange(5, dtype="i2"), "i.npy"))
    assert ints.astype("i4").astype("f8").dtype == "f8", "what was not rounded is one step"


def test_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = np.arange(1 << 16, dtype="u2")
    (tmp_path / "b.bin").write_bytes(bits.tobytes())
    a = lowtide.open(tmp_path / "b.bin", dtype="bfloat16")
    want = bits.view(ml_dtypes.bfloat16).astype("f4")
    assert np.array_equal(a.astype("f4")[...].view("u4"), want.view("u4"))
    singles = any_bits(4000, "f4")
    np.save(tmp_path / "s.npy", singles)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = singles.astype(ml_dtypes.bfloat16)
    assert lowtide.open(tmp_path / "s.npy", astype="bfloat16")[...].tobytes() == want.tobytes()


@pytest.mark.parametrize(("one", "other"), [("<f2", "<f4"), (">f4", "<f4"), ("<f8", "<f4")])
@pytest.mark.parametrize("order", ["chunks", "shuffled"])
def test_memory_stays_within_the_budget(tmp_path, python, one, other, order):
    """RssAnon, as the kernel counts it, over a file of eight times the budget."""
    path = tmp_path / "rows.bin"
    with path.open("wb") as file:
        for _ in range(16):
            file.write(np.ones(4 << 20, "u1").view(one).tobytes())
    grown = python(
        """if True:
        import sys, re, lowtide
        path, one, other, order = sys.argv[1:]
        def anon():
            return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
        a = lowtide.open(path, dtype=one, shape=(-1, 64), astype=other, budget="8MiB")
        next(iter(a.rows(0, 100).chunks(10)))
        before, most = anon(), 0
        for chunk in getattr(a, order)(512):
            assert chunk.dtype == other
            most = max(most, anon())
        print(most - before)
        """,
        path,
        one,
        other,
        order,
    )
    # The chunk in the caller's hand, stacks of threads and what the C library keeps for each are beside it:
    # with threads that come and go, half a megabyte more was seen in one run of five.
    assert int(grown) < (8 << 20) + (3 << 19)


@pytest.mark.parametrize("made", ["complex128", "float32", "float16"])
@pytest.mark.parametrize("odd", [1, 8])
def test_long_reads_into_memory_of_any_address(tmp_path, made, odd):
    """A long read is cut in pieces, at pages of memory: never inside an element, wherever that begins."""
    rows = (np.arange(600_000, dtype="float32") % 1000).reshape(-1, 3)
    np.save(tmp_path / "a.npy", rows)
    a = lowtide.open(tmp_path / "a.npy").astype(made)
    memory = np.empty(rows.size * np.dtype(made).itemsize + odd, "u1")
    out = memory[odd:].view(made).reshape(rows.shape)
    a.take(np.arange(len(rows)), out=out)
    np.testing.assert_array_equal(out, rows.astype(made))
