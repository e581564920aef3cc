"""``a.rows`` and ``a.split``: parts of an array are arrays over the same file, made without reading."""

import functools
import json
import os
import pickle
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide


def written(path, array):
    np.save(path, array)
    return lowtide.open(path)


@functools.cache
def permutation(rows, seed):
    """The rows in the order of the permutation, by the only other way to see it."""
    with tempfile.TemporaryDirectory() as folder:
        a = written(f"{folder}/n.npy", np.zeros(rows, "u1"))
        got = [at for at, _ in a.shuffled(4096, seed=seed, with_rows=True)]
        return np.concatenate([np.empty(0, int), *got])


limits = st.one_of(st.none(), st.integers(-40, 40))


@given(
    rows=st.integers(0, 30),
    order=st.sampled_from("CF"),
    cuts=st.lists(st.tuples(limits, limits, st.one_of(st.none(), st.integers(0, 2))), max_size=3),
    data=st.data(),
)
def test_a_part_is_what_numpy_would_have(folder, rows, order, cuts, data):
    whole = np.asarray(np.arange(rows * 6, dtype=">i4").reshape(rows, 3, 2), order=order)
    a = written(folder / "a.npy", whole)
    part, expected = a, whole
    for start, stop, seed in cuts:
        if seed is not None:
            part, rest = part.split([1.0, 0.0], seed=seed)
            assert len(rest) == 0
            expected = expected[permutation(len(expected), seed)]
        part, expected = part.rows(start, stop), expected[start:stop]
    assert part.shape == expected.shape
    assert len(part) == len(expected)
    assert part.dtype == expected.dtype
    assert (part.nbytes, part.size, part.ndim) == (expected.nbytes, expected.size, 3)

    n = len(expected)
    index = st.integers(-n, max(n - 1, 0))
    keys = [..., slice(None), slice(None, None, -2), (slice(None), 1), (..., 0), expected[..., 0] > 40]
    keys += [data.draw(st.lists(index, max_size=5 if n else 0)), expected > 20]
    if n:
        some = data.draw(st.lists(index, min_size=1, max_size=4))
        keys += [data.draw(index), (some, [1] * len(some))]
    for key in keys:
        assert np.array_equal(part[key], expected[key]), key
        assert part[key].dtype == expected[key].dtype
    flat = data.draw(st.lists(st.integers(0, expected.size - 1), max_size=5)) if n else []
    assert np.array_equal(part.take(flat, axis=None), expected.ravel()[np.array(flat, int)])
    assert np.array_equal(np.asarray(part), expected)

    for size in (1, 4, 100):
        chunks = list(part.chunks(size))
        assert all(len(c) == size for c in chunks[:-1])
        assert np.array_equal(np.concatenate([expected[:0], *chunks]), expected)
        seen = []
        for at, chunk in part.shuffled(size, seed=5, with_rows=True):
            assert np.array_equal(chunk, expected[at])
            seen.extend(at)
        assert sorted(seen) == list(range(n))

    for copy in (pickle.loads(pickle.dumps(part)), pickle.loads(pickle.dumps(part)).rows()):
        assert np.array_equal(copy[...], expected)
        assert repr(copy) == repr(part)


@pytest.mark.parametrize("rows", [1, 2, 10, 1000, 65_535, 65_536, 65_537, 100_003])
@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
def test_a_split_is_disjoint_complete_and_the_same_again(tmp_path, rows, seed):
    numbers = np.arange(rows, dtype="i4")
    a = written(tmp_path / "a.npy", numbers)
    first = rows // 10
    for sizes in (first, [first, rows - first], [0.5, 0.3, 0.2] if rows > 9 else [1.0, 0.0]):
        parts = a.split(sizes, seed=seed)
        got = [np.concatenate([numbers[:0], *part.chunks(4096)]) for part in parts]
        assert [len(g) for g in got] == [len(part) for part in parts]
        assert sum(map(len, got)) == rows
        order = numbers if seed is None else permutation(rows, seed)
        assert np.array_equal(np.concatenate(got), order)
        again = lowtide.open(tmp_path / "a.npy").split(sizes, seed=seed)
        assert all(np.array_equal(p[:], g) for p, g in zip(again, got, strict=True))


def test_shares_are_rounded_to_rows(save):
    a = lowtide.open(save(np.arange(100)))
    assert [len(p) for p in a.split(0.29)] == [29, 71]
    assert [len(p) for p in a.split(np.float32(0.5))] == [50, 50]
    assert [len(p) for p in a.split([1 / 3, 1 / 3, 1 / 3])] == [33, 34, 33]
    assert [len(p) for p in a.split(100)] == [100, 0]
    assert [len(p) for p in a.split(np.int64(3), seed=None)] == [3, 97]
    for wrong in (101, -1, 1.5, [0.9, 0.2], [50, 51], [], float("nan"), 0.001):
        with pytest.raises(ValueError, match=r"rows|share"):
            a.split(wrong)
    for wrong in ("0.9", None, [0.5, "x"]):
        with pytest.raises(TypeError, match="sizes must be"):
            a.split(wrong)
    for wrong in ("x", 1.5):
        with pytest.raises(TypeError):
            a.rows(wrong)
    with pytest.raises(ValueError, match="a single element has no rows"):
        lowtide.open(save(np.float64(3), "one.npy")).rows()


def test_a_part_of_each_rank_and_a_state(save):
    a = lowtide.open(save(np.arange(5000)))
    train, val = a.split(0.8, seed=3)
    ranks = [np.concatenate(list(train.shuffled(100, seed=1, rank=r, world_size=4))) for r in range(4)]
    assert np.array_equal(np.sort(np.concatenate(ranks)), np.sort(train[:]))
    assert not set(train[:]) & set(val[:])

    for part in (train, a.rows(100, 900), a.rows(100, 900).split(0.5, seed=1)[1]):
        for start in (lambda p: p.shuffled(64, seed=2), lambda p: p.chunks(64)):
            it = start(part)
            next(it), next(it)
            state = json.loads(json.dumps(it.state_dict()))
            again = start(pickle.loads(pickle.dumps(part)))
            again.load_state_dict(state)
            copy = pickle.loads(pickle.dumps(it))
            rest = [list(other) for other in (it, again, copy)]
            assert len(rest[0]) > 2
            for other in rest[1:]:
                assert all(np.array_equal(x, y) for x, y in zip(rest[0], other, strict=True))
            # Of another part, of the same size or not, and of the whole it is not loaded.
            for other in (a, val, a.rows(101, 901), a.split(0.8, seed=4)[0], a.split(0.8, seed=None)[0]):
                with pytest.raises(ValueError, match="take the same part"):
                    start(other).load_state_dict(state)
            with pytest.raises(ValueError, match="take the same part"):
                start(part).load_state_dict(start(a).state_dict())
    # All rows, in their order, are no part.
    start(a.rows()).load_state_dict(start(a).state_dict())
    assert repr(a.rows()) == repr(a)


def test_the_state_of_a_small_fortran_part_knows_its_part(save):
    a = lowtide.open(save(np.asfortranarray(np.arange(4000.0).reshape(1000, 4))))
    it = a.rows(0, 500).shuffled(10)
    assert "Fortran" in it.why
    next(it)
    for other in (a, a.rows(500)):
        with pytest.raises(ValueError, match="take the same part"):
            other.shuffled(10).load_state_dict(it.state_dict())
    train, _ = a.split(0.9, seed=0)
    at, chunk = next(train.chunks(10)), train[:10]
    assert np.array_equal(at, chunk)


def test_zip_keeps_rows_together(save):
    x, y = np.arange(3000).reshape(1000, 3), np.arange(1000) * 3
    both = lowtide.zip(lowtide.open(save(x, "x.npy")), lowtide.open(save(y, "y.npy")))
    train, val = both.split(0.9, seed=0)
    assert (len(train), len(val)) == (900, 100)
    seen = []
    for part in (train, val, both.rows(10, -10).rows(5)):
        for (a, b), at in zip(part.chunks(64), range(0, len(part), 64), strict=True):
            assert (a[:, 0] == b).all()
            assert np.array_equal(a, part[at : at + 64][0])
        for numbers, (a, b) in part.shuffled(64, seed=1, with_rows=True):
            assert (a[:, 0] == b).all()
            assert np.array_equal(b, part.take(numbers)[1])
            seen.extend(b)
    assert sorted(seen[:1000]) == list(y)
    copy = pickle.loads(pickle.dumps(val))
    assert all(np.array_equal(p, q) for p, q in zip(copy[:], val[:], strict=True))
    # An array and a part of another that is as long: each its own rows.
    mixed = lowtide.zip(lowtide.open(save(y[:100], "z.npy")), val.arrays[0])
    (z, v) = next(iter(mixed.chunks(100)))
    assert np.array_equal(z, y[:100])
    assert np.array_equal(v, val[:][0])
    with pytest.raises(ValueError, match="different lengths"):
        lowtide.zip(train.arrays[0], val.arrays[1])


def test_blocks_of_neighbours_but_not_of_what_was_permutation(save):
    a = lowtide.open(save(np.arange(10_000)))
    part = a.rows(1000, 9000)
    got = np.concatenate(list(part.shuffled(500, blocks=100)))
    assert np.array_equal(np.sort(got), np.arange(1000, 9000))
    with pytest.raises(ValueError, match=r"dealt one by one: it has no blocks\nhint: .*seed=None"):
        a.split(0.5)[0].shuffled(500, blocks="auto")


def test_closing_one_closes_all(save):
    a = lowtide.open(save(np.arange(100)))
    train, val = a.split(0.5)
    chunks = val.chunks(10)
    next(chunks)
    with train:
        pass
    assert a.closed
    assert val.closed
    with pytest.raises(ValueError, match="closed"):
        next(chunks)


def test_reads_nothing_and_takes_no_memory(tmp_path, access):
    """8 TiB that are not there: a split of 2^37 rows at once, and the first chunk of each part."""
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(8 << 40)
    if access in ("map", "advise"):
        access = "read"  # 8 TiB of address range are not everywhere to be had
    a = lowtide.open(path, dtype="u1", shape=(-1, 64), access=access, budget="32MiB")
    train, val = a.split(0.9, seed=1)
    assert len(train) + len(val) == len(a) == 1 << 37
    assert next(val.chunks(1000)).shape == (1000, 64)
    assert next(val.shuffled(1000)).shape == (1000, 64)
    assert val[-1].sum() == 0
    assert a.rows(-5)[-1].shape == (64,)


def test_memory_of_a_dealt_pass(tmp_path, python):
    """A pass over a dealt part of 256 MiB in 32 MiB: what the kernel counts."""
    path = tmp_path / "rows.bin"
    np.tile(np.arange(1 << 19, dtype="<i8")[:, None], (1, 64)).tofile(path)
    code = """if True:
        import sys, lowtide, numpy as np
        def now():
            lines = (line.split() for line in open("/proc/self/status"))
            return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "RssFile:"))
        a = lowtide.open(sys.argv[1], dtype="<i8", shape=(-1, 64), budget="32MiB")
        train, val = a.split(0.75, seed=1)
        before, peak, rows = now(), 0, 0
        for part in (train, val):
            for chunk in part.chunks(4096):
                assert (chunk[:, 0] == chunk[:, -1]).all()
                rows += len(chunk)
                peak = max(peak, now() - before)
        print(rows, peak)
    """
    rows, peak = map(int, python(code, path).split())
    path.unlink()
    assert rows == 1 << 19
    assert peak < (32 + 12) << 10  # and the chunk in hand, and code that was not touched before


def test_a_fork_goes_on(save):
    a = lowtide.open(save(np.arange(10_000)))
    it = a.split(0.9)[0].chunks(100)
    first = [next(it) for _ in range(3)]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, np.concatenate(list(it)).tobytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        rest = np.frombuffer(pipe.read(), int)
    os.waitpid(pid, 0)
    assert np.array_equal(np.concatenate([*first, rest]), permutation(10_000, 0)[:9000])


def test_a_file_cut_under_a_part(save):
    path = save(np.arange(100_000))
    a = lowtide.open(path, access="read")
    head, tail = a.rows(None, 1000), a.rows(1000)
    os.truncate(path, 128 + 8 * 50_000)
    assert np.array_equal(np.concatenate(list(head.chunks(100))), np.arange(1000))
    with pytest.raises(OSError, match=r"rows\.npy"):
        list(tail.chunks(100))
    with pytest.raises(OSError, match="bytes"):
        pickle.loads(pickle.dumps(head))
