"""Reductions in one pass: NumPy's answers, with its words and its dispatch."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide
from lowtide import _reduce

NAMES = ["sum", "mean", "var", "std", "min", "max"]
KINDS = ["?", "i1", ">i2", "i4", "u8", "f2", ">f4", "f4", "f8", "c8", "c16"]


def same(got, expected, scale=1.0):
    """Equal in type and shape, and in value to some last places of the answer's type."""
    assert np.shape(got) == np.shape(expected)
    assert np.asarray(got).dtype == np.asarray(expected).dtype
    if np.asarray(expected).dtype.kind in "bui":
        assert np.array_equal(got, expected)
    else:
        eps = np.finfo(np.asarray(expected).dtype).eps
        if (
            np.asarray(expected).dtype == "f2"
        ):  # NumPy's squares overflow where ours, in double precision, do not
            got = np.where(np.isinf(expected), expected, got)
        assert np.allclose(got, expected, rtol=64 * eps, atol=64 * eps * scale, equal_nan=True)


@given(
    rows=st.integers(1, 60),
    kind=st.sampled_from(KINDS),
    order=st.sampled_from("CF"),
    axis=st.sampled_from([None, 0, 1, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]),
    keepdims=st.booleans(),
    name=st.sampled_from(NAMES),
    ddof=st.sampled_from([0, 1]),
    at_once=st.sampled_from([1, 200, 1 << 20]),
    special=st.sampled_from([None, np.nan, np.inf]),
)
def test_numpys_answers(folder, rows, kind, order, axis, keepdims, name, ddof, at_once, special):
    rng = np.random.default_rng(rows)
    whole = np.asarray((rng.random((rows, 3, 4)) * 90).astype(kind), order=order)
    if (
        special is not None
        and whole.dtype.kind in "fc"
        and not (name in ("var", "std") and special == np.inf)
    ):
        whole[rows // 2, 1, 2] = special
    np.save(folder / "r.npy", whole)
    a = lowtide.open(folder / "r.npy")
    words = {"axis": axis, "keepdims": keepdims} | ({"ddof": ddof} if name in ("var", "std") else {})
    old, _reduce.AT_ONCE = _reduce.AT_ONCE, at_once
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            got, expected = getattr(a, name)(**words), getattr(np, name)(whole, **words)
            same(got, expected, 8000)
            same(getattr(np, name)(a, **words), expected, 8000)  # NumPy finds the method
            for part in (a.rows(rows // 2), a.split(1.0)[0]):
                same(getattr(part, name)(**words), getattr(np, name)(part[...], **words), 8000)
    finally:
        _reduce.AT_ONCE = old


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std"])
@pytest.mark.parametrize("kind", ["i4", "f2", "f4", "?"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16"])
def test_in_another_type(save, name, kind, dtype):
    whole = (np.random.default_rng(1).random((500, 6)) * 50).astype(kind)
    a = lowtide.open(save(whole))
    for axis in (None, 0, 1):
        got, expected = getattr(a, name)(axis, dtype=dtype), getattr(whole, name)(axis, dtype=dtype)
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        assert np.allclose(got, expected, rtol=1e-5)
    out = np.empty(6, dtype)
    assert getattr(a, name)(axis=0, out=out, dtype=dtype) is out
    assert np.allclose(out, getattr(whole, name)(axis=0, dtype=dtype), rtol=1e-5)
    with pytest.raises(ValueError, match="shape"):
        getattr(a, name)(axis=0, out=np.empty(5, dtype))


def test_nearer_to_the_truth_than_single_precision(save):
    whole = np.full((1 << 18, 2), 0.1, "f4") + np.arange(2, dtype="f4") * 1000
    a = lowtide.open(save(whole))
    truth = whole.astype("f8")
    for name in ("sum", "mean", "var"):
        got, expected = getattr(a, name)(axis=0), getattr(truth, name)(axis=0)
        assert np.allclose(got, expected, rtol=2e-7, atol=1e-6), name
    assert np.array_equal(lowtide.open(save(np.full(10, 2**62), "i.npy")).sum(), np.full(10, 2**62).sum())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (), (1,)])
def test_what_has_no_elements_and_what_has_one(save, name, shape):
    whole = np.ones(shape)
    a = lowtide.open(save(whole))
    for axis in (None, 0, 1):
        results = []
        for array in (a, whole):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                try:
                    results.append(getattr(array, name)(axis=axis))
                except (ValueError, IndexError) as error:
                    results.append(type(error))
        assert (
            np.array_equal(*results, equal_nan=True)
            if not isinstance(results[1], type)
            else (results[0] is results[1])
        )
    if shape == (1,):
        with pytest.warns(RuntimeWarning, match="Degrees of freedom"):
            assert np.isnan(a.var(ddof=1))


def test_of_many_files_and_inside_the_budget(tmp_path):
    whole = np.random.default_rng(0).random((70_000, 16))
    for i, part in enumerate(np.array_split(whole, 3)):
        np.save(tmp_path / f"{i}.npy", part)
    a = lowtide.open(tmp_path, budget="2MiB")
    assert np.allclose(a.mean(axis=0), whole.mean(axis=0), rtol=1e-14)
    assert np.array_equal(np.max(a, axis=1), whole.max(axis=1))
    with pytest.raises(MemoryError, match="budget"):
        lowtide.open(tmp_path / "0.npy", budget=100).sum()


def test_rows_that_do_not_fit_are_refused_before_they_are_read(tmp_path, python):
    with open(tmp_path / "wide.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (4, 1 << 26)}
        )
        file.truncate(file.tell() + (4 << 28))  # a hole
    code = """if True:
        import re, sys, lowtide
        peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
        a = lowtide.open(sys.argv[1], budget="4MiB")
        a.astype("f8")[0, :2].mean()
        before = peak()
        for name in ("sum", "mean", "std", "max"):
            try:
                getattr(a, name)(axis=0)
            except MemoryError as error:
                assert "budget" in str(error)
            else:
                raise AssertionError(name)
        print(peak() - before)
    """
    assert int(python(code, tmp_path / "wide.npy")) < 64, "MiB, of rows of 256"
