"""``a == 5`` and its like: NumPy's answers inside the budget, never a silent False."""

import functools
import operator

import numpy as np
import pytest

import lowtide

COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("how", COMPARE)
def test_arrays_compare_as_numpys(save, same, how):
    array = np.random.default_rng(0).integers(0, 9, (50, 4))
    a = lowtide.open(save(array))
    for other in (5, array, array[0], array.T[0, 0]):
        same(how(a, other), how(array, other))
        same(how(other, a), how(other, array))
    same(how(a, a), how(array, array))


@pytest.mark.parametrize("how", COMPARE)
def test_tokens_compare_as_numpys(tmp_path, same, how):
    numbers = np.random.default_rng(0).integers(0, 50_000, 1000).astype("<u2")
    (tmp_path / "train.bin").write_bytes(numbers.tobytes())
    tokens = lowtide.tokens(tmp_path / "train.bin")
    same(how(tokens, 7), how(numbers, 7))
    same(how(7, tokens), how(7, numbers))
    same(how(tokens, numbers), how(numbers, numbers))


def test_what_does_not_fit_in_the_budget_says_so(tmp_path):
    numbers = np.zeros(3 << 20, "<u2")
    (tmp_path / "train.bin").write_bytes(numbers.tobytes())
    a = lowtide.open(tmp_path / "train.bin", dtype="<u2", budget="2MiB")
    tokens = lowtide.tokens(tmp_path / "train.bin", dtype="<u2", budget="2MiB")
    for big, way in ((a, r"a\.chunks"), (tokens, r"tokens\[start:end\]")):
        for how in COMPARE:
            with pytest.raises(
                MemoryError, match=rf"would read all 6 MiB .* the budget is 2 MiB\nhint: .*{way}"
            ):
                how(big, 5)


def test_they_can_be_keys_and_members(save):
    """Python asks `is` before `==`: sets, dicts and caches work, as they did."""
    a, b = lowtide.open(save(np.arange(5))), lowtide.open(save(np.arange(5)))
    assert hash(a) == hash(a) != hash(b)
    assert {a: 1, b: 2}[b] == 2
    assert len({a, b, a}) == 2
    assert a in [a, b]
    assert [a, b].index(a) == 0
    calls = []
    cached = functools.lru_cache(lambda array: calls.append(array))
    cached(a), cached(a), cached(b)
    assert len(calls) == 2
    with pytest.raises(ValueError, match="truth value"):  # as with NumPy's own
        assert b in [a]
