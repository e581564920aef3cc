"""dask over our arrays, with its defaults and without: NumPy's numbers, in bounded memory."""

import numpy as np
import pytest

import lowtide

da = pytest.importorskip("dask.array")
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """600 MiB of float32, 40 KiB a row."""
    path = tmp_path_factory.mktemp("dask") / "rows.npy"
    rng = np.random.default_rng(0)
    out = np.lib.format.open_memmap(path, "w+", "f4", (15_360, 10_240))
    for start in range(0, len(out), 1024):
        out[start : start + 1024] = rng.random((1024, 10_240), "f4")
    out.flush()
    del out
    yield path
    path.unlink()


@pytest.mark.parametrize(
    "words", [{}, {"chunks": "auto"}, {"chunks": (1000, -1, -1)}, {"chunks": "10MiB"}], ids=str
)
@pytest.mark.parametrize("scheduler", ["threads", "processes", "synchronous"])
def test_from_array_gives_numpys_numbers(tmp_path, words, scheduler):
    array = np.random.default_rng(1).normal(size=(3000, 40, 5)).astype("f4")
    for order in "CF":
        np.save(tmp_path / "a.npy", np.array(array, order=order))
        a = lowtide.open(tmp_path / "a.npy")
        d = da.from_array(a, **words)
        assert (d.shape, d.dtype) == (array.shape, array.dtype)
        got = d.mean(axis=0).compute(scheduler=scheduler)
        assert np.allclose(got, array.mean(axis=0), atol=1e-5)
        assert (d[5:9, ::3].compute(scheduler=scheduler) == array[5:9, ::3]).all()
        assert (d[[3, 1, 2]].compute(scheduler=scheduler) == array[[3, 1, 2]]).all()


def test_blocks_are_whole_rows(rows):
    """A block that is a piece of every row would be a read for each."""
    a = lowtide.open(rows)
    d = da.from_array(a)
    assert d.chunks[1] == (a.shape[1],)
    assert 1 < len(d.chunks[0]) < 40
    assert sum(d.chunks[0]) == len(a)


def test_one_token_for_one_file(rows):
    a, b = lowtide.open(rows), lowtide.open(rows)
    assert da.from_array(a).name == da.from_array(a).name
    assert da.from_array(a).name == da.from_array(b).name


def test_a_mean_stays_in_bounded_memory(rows, python):
    code = """if True:
        import resource, sys, dask.array as da, lowtide
        a = lowtide.open(sys.argv[1], budget="64MiB")
        d = da.from_array(a, chunks="16MiB")
        d[:10].mean().compute(scheduler="threads")  # what dask itself takes
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        mean = d.mean().compute(scheduler="threads", num_workers=2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(float(mean), grown >> 10)
    """
    mean, grown = python(code, rows).split()
    assert abs(float(mean) - 0.5) < 0.01
    assert int(grown) < 200, "MiB, of 600"
