"""``a[...]`` and ``a.take`` against NumPy, for every dtype, order and way of access."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide

KINDS = ["b1", *(f"{k}{n}" for k in "iu" for n in (1, 2, 4, 8)), "f2", "f4", "f8", "c8", "c16"]
DTYPES = sorted({np.dtype(e + k).str for k in KINDS for e in "<>"})
INTEGERS = [np.dtype(f"{k}{n}") for k in "iu" for n in (1, 2, 4, 8)]


@st.composite
def arrays(draw):
    """An array in memory: any dtype, up to four axes, some of them empty, C or Fortran order."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    count = int(np.prod(shape))
    if dtype.kind == "b":
        array = rng.integers(0, 2, count).astype(dtype)
    else:
        array = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)  # all bit patterns, NaNs too
    return np.array(array.reshape(shape), order=draw(st.sampled_from("CF")))


def integers_of(n):
    """One place of an axis, as any kind of integer."""
    plain = st.integers(-n, n - 1) if n else st.just(0)
    return st.one_of(plain, plain.map(np.int64), plain.map(np.int8), plain.map(np.array))


def slices_of(n):
    end = st.one_of(st.none(), st.integers(-n - 2, n + 2), st.integers(-(2**70), 2**70))
    step = st.one_of(
        st.none(), st.integers(-n - 2, n + 2).filter(bool), st.sampled_from([-(2**63), 2**63 - 1])
    )
    return st.builds(slice, end, end, step)


@st.composite
def selections_of(draw, n):
    """A list of rows, an index array of any integer type and up to two axes, or a mask."""
    kind = draw(st.sampled_from(["list", "array", "2-d", "mask", "mask list", "empty", "range"]))
    rows = draw(st.lists(st.integers(-n, n - 1), max_size=9)) if n else []
    mask = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    match kind:
        case "list":
            return rows
        case "array":
            dtype = draw(st.sampled_from(INTEGERS)).newbyteorder(draw(st.sampled_from("<>")))
            return np.array([abs(r) % n for r in rows] if dtype.kind == "u" else rows, dtype)
        case "2-d":
            return np.array(rows[: len(rows) // 2 * 2], int).reshape(2, -1, order=draw(st.sampled_from("CF")))
        case "mask":
            return np.array(mask, bool)
        case "mask list":
            return mask
        case "empty":
            return draw(st.sampled_from([[], [[]], np.zeros((0, 3), int), range(0)]))
        case _:
            return range(n)[:: draw(st.sampled_from([1, 2, -1]))]


@st.composite
def lists_of(draw, sizes):
    """Lists for neighbouring axes, which NumPy broadcasts, or one mask over all of them."""
    if draw(st.integers(0, 3)) == 0:
        count = int(np.prod(sizes))
        mask = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return [np.array(mask, bool).reshape(sizes)]
    shapes = draw(st.sampled_from([[(3,)], [(1,), (3,)], [(2, 1), (3,)], [(2, 3), (1, 3)], [(0,)], [(4, 0)]]))
    picks = st.sampled_from(shapes)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if 0 in sizes:
        return [np.zeros(draw(st.sampled_from([(0,), (1, 0)])), int) for n in sizes]
    return [rng.integers(-n, n, draw(picks)) for n in sizes]


@st.composite
def supported(draw, shape):
    """Basic indexing and np.newaxis, with lists or masks on one axis or on several that follow each other."""
    ndim = len(shape)
    named = draw(st.integers(0, ndim))
    listed = draw(st.integers(0, min(named, 3)))
    ellipsis = draw(st.booleans())
    # An ellipsis may stand for the axes in the middle: entries after it count from the end.
    split = draw(st.integers(0, named)) if ellipsis else named
    axis_of = [i if i < split else ndim - named + i for i in range(named)]
    first = draw(st.integers(0, named - listed)) if listed else named
    if ellipsis and first < split < first + listed and ndim > named:
        listed = split - first  # axes in between: not neighbours
    entries, i = [], 0
    while i < named:
        if ellipsis and i >= split:
            entries.append(...)
            ellipsis = False
        n = shape[axis_of[i]]
        if i == first and listed == 1:
            entries.append(draw(selections_of(n)))
            i += 1
        elif i == first and listed:
            entries += draw(lists_of([shape[axis] for axis in axis_of[i : i + listed]]))
            i += listed
        else:
            entries.append(draw(slices_of(n) if n == 0 else st.one_of(integers_of(n), slices_of(n))))
            i += 1
    if ellipsis:
        entries.append(...)
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if len(entries) == 1 and draw(st.booleans()):
        return entries[0]
    return tuple(entries)


@st.composite
def anything(draw, shape):
    """Whatever someone might write between the brackets, much of it wrong."""
    n = max(shape, default=0)
    wrong = st.sampled_from(
        [
            None,
            True,
            False,
            np.True_,
            np.array(True),
            1.0,
            np.float64(1),
            [0.5],
            np.array([1.0]),
            np.array([]),
            "0",
            [None],
            n,
            -n - 1,
            2**63,
            -(2**63) - 1,
            10**30,
            np.uint64(2**63),
            np.uint64(2**64 - 1),
            np.array([2**64 - 1], np.uint64),
            np.array([2**63], ">u8"),
            [n],
            [-n - 1],
            np.zeros(shape, bool),
            np.ones(shape, bool),
            np.ones((n + 1,), bool),
            np.ones((n, n + 1), bool),
            np.array([0], object),
            np.array(["0"]),
            ...,
        ]
    )
    fine = st.one_of(
        st.integers(-2, 2), slices_of(3), st.sampled_from([[0], [0, 0], np.array([0, -1]), [True], []])
    )
    entries = draw(st.lists(st.one_of(wrong, fine), min_size=1, max_size=len(shape) + 2))
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


@contextlib.contextmanager
def on_disk(folder, array, access, budget):
    path = folder / "array.npy"
    np.save(path, array)
    with lowtide.open(path, access=access, budget=budget) as opened:
        yield opened


@settings(max_examples=200)
@given(data=st.data(), array=arrays())
def test_indexing_is_numpys(folder, every_access, least, same, data, array):
    access = data.draw(st.sampled_from(every_access))
    with on_disk(folder, array, access, least) as opened:
        assert (opened.shape, opened.dtype, opened.ndim) == (array.shape, array.dtype, array.ndim)
        assert (opened.size, opened.nbytes, opened.itemsize) == (array.size, array.nbytes, array.itemsize)
        for _ in range(4):
            key = data.draw(supported(array.shape))
            got = opened[key]
            same(got, array[key])
            if isinstance(got, np.ndarray):
                assert got.flags.writeable
                assert got.flags.aligned


@settings(max_examples=100)
@given(data=st.data(), array=arrays())
def test_what_is_not_supported_is_refused_never_wrong(folder, least, same, data, array):
    with on_disk(folder, array, "read", least) as opened:
        for _ in range(4):
            key = data.draw(anything(array.shape))
            try:
                want = array[key]
            except Exception as error:
                wrong = error
            else:
                try:
                    got = opened[key]
                except NotImplementedError as error:
                    assert "hint: " in str(error)  # noqa: PT017 - an equal answer is as good
                except IndexError:
                    assert wraps(key)
                else:
                    same(got, want)
                continue
            # Where NumPy refuses, so do we, as IndexError even where it says OverflowError; what is both
            # wrong and not supported may say either.
            with pytest.raises((type(wrong), IndexError, NotImplementedError)) as refused:
                opened[key]
            if simple(key):
                assert isinstance(refused.value, (type(wrong), IndexError)), refused.value


def test_lists_that_are_apart_are_refused_before_their_bounds(tmp_path):
    with on_disk(tmp_path, np.zeros((3, 3, 3)), "read", "16MiB") as opened:
        for key in ([9], slice(2), []), ([0], slice(None), [0]), (np.array([7]), ..., [True, False, False]):
            with pytest.raises(
                NotImplementedError, match="not on axes 0 and 2\nhint: take one after the other"
            ):
                opened[key]


def test_columns_as_a_list_are_columns_as_a_slice(save, same):
    """Evenly apart, which is read as a slice is, or not."""
    array = np.arange(4000.0).reshape(100, 40)
    opened = lowtide.open(save(array))
    for columns in [[3, 4, 5], [5, 4, 3], [7], [2, 2], [0, 10, 20, 30], [1, 2, 4]]:
        same(opened[:, columns], array[:, columns])
        same(opened[5:9, columns], array[5:9, columns])
        same(opened[-1, columns], array[-1, columns])


def wraps(key):
    """An index array of uint64 beyond 2^63: NumPy lets it wrap to a negative row, we refuse it."""
    entries = key if isinstance(key, tuple) else (key,)
    return any(isinstance(e, np.ndarray) and e.dtype.kind == "u" and (e >= 2**63).any() for e in entries)


def simple(key):
    """An index in which nothing is unsupported: only wrong."""
    entries = key if isinstance(key, tuple) else (key,)
    return all(
        (isinstance(e, (int, np.integer, slice)) and not isinstance(e, bool)) or e is ... for e in entries
    )


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        (5, IndexError, "index 5 is out of bounds for axis 0 with size 5"),
        (-6, IndexError, "index -6 is out of bounds for axis 0 with size 5"),
        ((0, [9]), IndexError, "index 9 is out of bounds for axis 1 with size 4"),
        (np.uint64(2**64 - 1), IndexError, "18446744073709551615"),
        ([2**64 - 1], IndexError, "18446744073709551615"),
        (np.array([2**63], np.uint64), IndexError, "9223372036854775808"),
        (10**40, IndexError, "out of bounds"),
        (-(10**40), IndexError, "out of bounds"),
        ((0, 0, 0), IndexError, "too many indices"),
        ((..., ...), IndexError, "single ellipsis"),
        (1.0, IndexError, "integer"),
        ([1.0], IndexError, "integer"),
        ("0", IndexError, "integer"),
        (np.ones(4, bool), IndexError, "size of axis is 5"),
        (np.ones((5, 3), bool), IndexError, "boolean"),
        (np.ones((5, 4, 1), bool), IndexError, "too many indices"),
        (slice(None, None, 0), ValueError, "step"),
        (True, NotImplementedError, "hint: a mask has one entry for each row"),
        (np.True_, NotImplementedError, "hint: a mask"),
        (([0, 1], [0, 1, 2]), IndexError, "shape mismatch: indexing arrays could not be broadcast"),
        (([0, 5], [0, 1]), IndexError, "index 5 is out of bounds for axis 0 with size 5"),
    ],
    ids=repr,
)
def test_refusals_say_why(save, key, error, says):
    array = np.arange(20.0).reshape(5, 4)
    with pytest.raises(error) as refused:
        lowtide.open(save(array))[key]
    assert says in str(refused.value)


def test_a_selection_over_many_windows(save, access, least, same):
    """12 MiB is six windows of the smallest budget: runs cross them, lists jump between them."""
    rng = np.random.default_rng(1)
    array = rng.integers(0, 2**32, (3001, 1031), np.uint32)
    with lowtide.open(save(array), access=access, budget=least) as opened:
        for key in [
            ...,
            slice(None, None, -1),
            slice(None, None, 7),
            rng.integers(-3001, 3001, 2000),
            rng.random(3001) < 0.3,
            (slice(None), 1030),
            (rng.integers(0, 3001, 500), slice(5, None, 17)),
            (slice(None, None, -3), slice(None, None, -2)),
            (slice(100, 2900), slice(1, -1)),
        ]:
            same(opened[key], array[key])


def test_iterating_gives_rows(save, access, least, same):
    for array in [np.arange(7), np.arange(600_000.0).reshape(-1, 2), np.zeros((3, 0)), np.zeros((0, 3))]:
        with lowtide.open(save(array), access=access, budget=least) as opened:
            rows = list(opened)
            assert len(rows) == len(array) == len(opened)
            for got, want in zip(rows[:: len(rows) // 50 + 1], array[:: len(rows) // 50 + 1], strict=True):
                same(got, want)


def test_a_single_element_is_like_numpys(save, same):
    array = np.array(7.5)
    opened = lowtide.open(save(array))
    same(opened[()], array[()])
    same(opened[...], array[...])
    with pytest.raises(IndexError):
        opened[0]
    with pytest.raises(TypeError, match="unsized"):
        len(opened)
    with pytest.raises(TypeError, match="0-d"):
        list(opened)
    with pytest.raises(ValueError, match="no rows"):
        opened.chunks(1)


@settings(max_examples=150)
@given(data=st.data(), array=arrays().filter(lambda a: a.ndim > 0))
def test_take_is_numpys(folder, every_access, least, same, data, array):
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    n = array.shape[axis]
    rows = data.draw(
        st.one_of(integers_of(n), selections_of(n)) if n else st.sampled_from([[], np.zeros((0, 2), int)])
    )
    if np.asarray(rows).dtype == bool:
        rows = np.flatnonzero(rows)
    with on_disk(folder, array, data.draw(st.sampled_from(every_access)), least) as opened:
        flat = data.draw(st.lists(st.integers(-array.size, array.size - 1), max_size=9)) if array.size else []
        same(opened.take(flat, axis=None), array.take(np.array(flat, int)))
        mode = data.draw(st.sampled_from(["wrap", "clip"]))
        # Not far: NumPy wraps by subtracting the size again and again.
        far = np.array(data.draw(st.lists(st.integers(-9999, 9999), max_size=9)) if n else [], int)
        same(opened.take(far, axis=axis, mode=mode), array.take(far, axis=axis, mode=mode))
        # np.take refuses an empty list because that is an array of floats, and uint64 because it may not fit.
        want = np.take(array, np.asarray(rows).astype(int), axis)
        same(opened.take(rows, axis=axis).astype(want.dtype), want)
        out = np.empty(want.shape, array.dtype)
        assert opened.take(rows, axis, out) is out
        same(out, np.asarray(want, array.dtype))


def test_take_refuses_what_np_take_would_read_differently(save):
    array = np.arange(20.0).reshape(5, 4)
    opened = lowtide.open(save(array))
    # np.take reads [True, False, …] as rows 1, 0, …; as an index it would be a mask.
    with pytest.raises(NotImplementedError, match=r"hint: a\[mask\]"):
        opened.take([True, False, True, False, True])
    for axis in (2, -3):
        with pytest.raises(ValueError, match=f"axis {axis} is out of bounds for array of dimension 2"):
            opened.take([0], axis=axis)
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
        opened.take([4], axis=1)
    with pytest.raises(ValueError, match='mode="round" is not known\nhint: one of'):
        opened.take([4], mode="round")
    with pytest.raises(IndexError, match="cannot do a non-empty take from an empty axes"):
        lowtide.open(save(np.zeros((0, 3)))).take([1], mode="clip")


@pytest.mark.parametrize("order", ["C", "F"])
def test_np_take_reads_what_it_takes(save, same, order):
    """np.take calls our take with NumPy's own words: nothing else is read, whatever the budget."""
    array = np.arange(1 << 19, dtype="f8").reshape(-1, 8).copy(order)  # 4 MiB
    opened = lowtide.open(save(array), budget="1MiB")
    rows = np.random.default_rng(0).integers(0, len(array), 100)
    same(np.take(opened, rows, axis=0), np.take(array, rows, axis=0))
    same(np.take(opened, [1, -1], axis=1), np.take(array, [1, -1], axis=1))
    same(np.take(opened, rows), np.take(array, rows))
    same(np.take(opened, 5), np.take(array, 5))
    same(np.take(opened, rows * 99, mode="wrap"), np.take(array, rows * 99, mode="wrap"))
    same(np.take(opened, rows * 99, axis=0, mode="clip"), np.take(array, rows * 99, axis=0, mode="clip"))
    out = np.empty((100, 8))
    assert np.take(opened, rows, axis=0, out=out) is out
    same(out, array[rows])


def test_out_must_be_the_answers_own_shape(save):
    array = np.arange(20.0).reshape(5, 4)
    frozen = np.empty((2, 4))
    frozen.flags.writeable = False
    opened = lowtide.open(save(array))
    for out, error, says in [
        (
            np.empty((2, 3)),
            ValueError,
            r"out has shape \(2, 3\) and dtype float64, the answer has shape \(2, 4\)",
        ),
        (np.empty((2, 4), "f4"), ValueError, "dtype float32"),
        (np.empty((2, 4), ">f8"), ValueError, "dtype >f8"),
        (np.empty((2, 4), order="F"), ValueError, "C-contiguous and writable"),
        (np.empty((2, 8))[:, ::2], ValueError, "C-contiguous and writable"),
        (frozen, ValueError, "C-contiguous and writable"),
        ([[0.0] * 4] * 2, TypeError, "NumPy array"),
    ]:
        with pytest.raises(error, match=says):
            opened.take([0, 1], out=out)


def test_out_can_be_unaligned(save, access, least):
    array = np.arange(20.0).reshape(5, 4)
    out = np.zeros(65, np.uint8)[1:].view(np.float64).reshape(2, 4)
    assert not out.flags.aligned
    lowtide.open(save(array), access=access, budget=least).take([4, 0], out=out)
    assert out.tolist() == array[[4, 0]].tolist()


def test_asarray_stays_inside_the_budget(save):
    array = np.arange(1 << 18)  # 2 MiB
    path = save(array)
    small, large = lowtide.open(path, budget="1MiB"), lowtide.open(path, budget="3MiB")
    with pytest.raises(MemoryError) as refused:
        np.asarray(small)
    for words in [str(path), "2 MiB", "1 MiB", "hint: a[...] does it anyway"]:
        assert words in str(refused.value)
    assert (small[...] == array).all()
    assert (np.asarray(large) == array).all()
    assert np.asarray(large, dtype="f4").dtype == np.float32
    assert np.array(large, copy=True).base is not None
    with pytest.raises(ValueError, match="copy"):
        np.array(large, copy=False)
    assert np.sum(large) == array.sum()
