"""``for row in array``: rows one by one, read many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide._lowtide import Array


def rows(array: Array) -> Iterator[Any]:
    """Yield the rows of an array in order, as NumPy does."""
    if array.ndim == 0:
        raise TypeError("iteration over a 0-d array")
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    at_once = max(1, min(array.budget.limit // 4, 1 << 20) // row_bytes)
    if array.nbytes == 0 or row_bytes > array.budget.limit // 4:
        yield from (array[i] for i in range(len(array)))
        return
    for start in range(0, len(array), at_once):
        yield from array[start : start + at_once]
