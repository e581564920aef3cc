"""``a.mean(axis=0)`` and the like: NumPy's answers in one pass, inside the budget.

Rows are folded in Rust, on all cores, into one row (``fold``), and NumPy reduces that over the other axes.
What Rust does not fold (complex numbers, files in Fortran order) is reduced by NumPy itself, chunk by chunk
while it is in the processor's cache, and joined here. Either way sums are made in double precision with the
rounding errors kept, and variances by the formula of Chan, Golub and LeVeque. So the answers are NumPy's to
rounding, and nearer to the true ones where NumPy adds a million rows in single precision. Where the rows are
not reduced, each answer is NumPy's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

if TYPE_CHECKING:
    from lowtide._lowtide import Array

# Bytes of a piece: it stays in a second-level cache. 128 KiB took a tenth longer, 512 no less.
AT_ONCE = 256 << 10

Axis = int | tuple[int, ...] | None


def reduce(
    array: Array, name: str, axis: Axis, dtype: Any, out: Any, keepdims: bool, ddof: float | None
) -> Any:
    """Give what NumPy's method of this name gives."""
    if out is not None and not isinstance(out, np.ndarray):
        raise TypeError(f"out={out!r} must be an array")
    words: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
    if ddof is not None:
        words["ddof"] = ddof
    method = getattr(np, name)
    if array.size == 0 or array.ndim == 0:  # NumPy has its own answers and warnings
        return method(array[...], axis=axis, out=out, keepdims=keepdims, **words)
    axes = None if axis is None else normalize_axis_tuple(axis, array.ndim)
    if axes is not None and 0 not in axes:
        parts = [method(chunk, axis=axes, keepdims=keepdims, **words) for chunk in chunks(array)]
        return finish(np.concatenate(parts), out)
    axes = tuple(range(array.ndim)) if axes is None else axes
    # One element says which type NumPy answers in.
    one = words | {"ddof": 0} if "ddof" in words else words
    kind = method(np.ones((1,) * array.ndim, array.dtype), axis=axes, **one)
    with np.errstate(all="ignore"):
        answer = JOINED[name](array, axes, kind.dtype, words)
        answer = np.asarray(answer).astype(kind.dtype)
    shape = [1 if i in axes else n for i, n in enumerate(array.shape) if keepdims or i not in axes]
    return finish(answer.reshape(shape), out)


def finish(answer: Any, out: Any) -> Any:
    """Give it as NumPy does: in ``out``, or as a scalar where it has no axes."""
    if out is None:
        return answer[()]
    if out.shape != answer.shape:
        raise ValueError(f"out has shape {out.shape}, the answer has shape {answer.shape}")
    out[...] = answer
    return out


def chunks(array: Array) -> Iterator[Any]:
    """All rows, in pieces that stay in the cache. In Fortran order a chunk is a piece of every column."""
    row = max(1, array.nbytes // max(1, len(array)))
    rows = max(1, AT_ONCE // row)
    if is_fortran(array):
        rows = max(rows, min(len(array), array.budget.limit // 8 // row))
    yield from array.chunks(rows)


def is_fortran(array: Array) -> bool:
    """Whether elements come in Fortran order: asked of four of them, for a row may be larger than memory."""
    axes = [axis for axis, size in enumerate(array.shape) if size > 1][:2]
    few = array[tuple(slice(2 if axis in axes else 1) for axis in range(array.ndim))]
    return bool(few.flags.f_contiguous and not few.flags.c_contiguous)


def fold(array: Array, name: str) -> tuple[Any, ...] | None:
    """Fold all rows into one, whose elements are answers; None where that takes NumPy."""
    if array.dtype.kind not in "buif":
        return None
    small = {"b1": "u1", "f2": "f4"}.get(array.dtype.kind + str(array.dtype.itemsize))
    try:
        plain = array.astype(small or array.dtype.newbyteorder("="))
    except ValueError:  # it is rounded as it is read, and no further step is possible
        return None
    columns = plain._fold(name, AT_ONCE)
    return columns and tuple(column.reshape(1, *array.shape[1:]) for column in columns)


def wide(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which sums of this one are made."""
    if kind.kind in "bui":
        return kind  # wraps as NumPy's do, in any order
    return np.dtype("c16") if kind.kind == "c" else np.dtype("f8")


def total(array: Array, axes: tuple[int, ...], kind: np.dtype[Any], words: dict[str, Any]) -> Any:
    """The sum, with the rounding errors of joining kept aside (Neumaier)."""
    by = wide(kind)
    if by.kind == "f" or (by.kind in "ui" and array.dtype.kind in "bui"):
        folded = fold(array, "sum" if by.kind == "f" else "whole")
        if folded is not None:
            return np.add.reduce(folded[0], axis=axes).astype(by)
    whole = lost = np.zeros((), by)
    for chunk in chunks(array):
        part = np.add.reduce(chunk, axis=axes, dtype=by)
        new = whole + part
        if by.kind in "fc":
            larger = np.abs(whole) >= np.abs(part)
            lost = lost + np.where(larger, (whole - new) + part, (part - new) + whole)
        whole = new
    return np.where(np.isfinite(lost), whole + lost, whole) if by.kind in "fc" else whole


def mean(array: Array, axes: tuple[int, ...], kind: np.dtype[Any], words: dict[str, Any]) -> Any:
    """The sum by the number."""
    return total(array, axes, kind, words) / count(array, axes)


def count(array: Array, axes: tuple[int, ...]) -> int:
    """How many elements make one of the answer."""
    return int(np.prod([array.shape[i] for i in axes], dtype=object))


def var(array: Array, axes: tuple[int, ...], kind: np.dtype[Any], words: dict[str, Any]) -> Any:
    """Chunk by chunk: how many, their mean, and their squared distances from it."""
    by = np.dtype("c16") if array.dtype.kind == "c" else np.dtype("f8")
    folded = fold(array, "moments")
    if folded is not None:
        means, squares = folded
        centre = np.mean(means, axis=axes, keepdims=True)
        squares = np.add.reduce(squares + len(array) * (means - centre) ** 2, axis=axes)
        return by_free(squares, count(array, axes), words)
    seen, middle, squares = 0, np.zeros((), by), np.zeros(())
    for chunk in chunks(array):
        wider = chunk.astype(by)
        here = count_of(wider, axes)
        centre = np.mean(wider, axis=axes, keepdims=True)
        wider -= centre
        part = np.add.reduce((wider * wider.conj()).real, axis=axes)
        away = np.squeeze(centre, axis=axes) - middle
        new = seen + here
        middle = middle + away * (here / new)
        squares = squares + part + (away * np.conj(away)).real * (seen / new * here)
        seen = new
    return by_free(squares, seen, words)


def by_free(squares: Any, seen: int, words: dict[str, Any]) -> Any:
    """Divide by the degrees of freedom."""
    free = seen - words.get("ddof", 0)
    if free <= 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=5)
    return squares / max(free, 0)


def count_of(chunk: Any, axes: tuple[int, ...]) -> int:
    return int(np.prod([chunk.shape[i] for i in axes]))


def std(array: Array, axes: tuple[int, ...], kind: np.dtype[Any], words: dict[str, Any]) -> Any:
    """The square root of the variance."""
    return np.sqrt(var(array, axes, kind, words))


def least(ufunc: np.ufunc) -> Callable[..., Any]:
    """The smallest or the largest; a NaN is both."""

    def found(array: Array, axes: tuple[int, ...], kind: np.dtype[Any], words: dict[str, Any]) -> Any:
        folded = fold(array, "min" if ufunc is np.minimum else "max")
        if folded is not None:
            return ufunc.reduce(folded[0], axis=axes)
        best = None
        for chunk in chunks(array):
            part = ufunc.reduce(chunk, axis=axes)
            best = part if best is None else ufunc(best, part)
        return best

    return found


JOINED: dict[str, Callable[..., Any]] = {
    "sum": total,
    "mean": mean,
    "var": var,
    "std": std,
    "min": least(np.minimum),
    "max": least(np.maximum),
}
