"""Datasets that are asked for items by number: rows of arrays, and windows of tokens.

A sampler says which, and a trainer may share them out over ranks as it likes. ``DataLoader`` asks for all
items of a batch at once, so that they are read together.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np
import torch
from torch.utils.data import Dataset

from lowtide._arguments import check_rows, check_tokens, whole
from lowtide._lowtide import Zip

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lowtide._lowtide import Array, Tokens


class RowDataset(Dataset[Any]):
    """The rows of an array as tensors; of a ``lowtide.zip``, tuples of them.

    Args:
        rows: What ``lowtide.open`` or ``lowtide.zip`` gave.

    Raises:
        TypeError: Torch has no tensors of such elements; or it is something else.

    >>> import lowtide, lowtide.torch
    >>> from torch.utils.data import DataLoader
    >>> rows = lowtide.torch.RowDataset(lowtide.open("rows.npy"))
    >>> for x in DataLoader(rows, batch_size=250, shuffle=True):
    ...     assert x.shape == (250, 128)
    """

    def __init__(self, rows: Array | Zip) -> None:
        """Check that torch has tensors of such elements."""
        check_rows(rows)
        self._arrays: tuple[Array, ...] = rows.arrays if isinstance(rows, Zip) else (rows,)
        self._together = isinstance(rows, Zip)
        len(self)
        for array in self._arrays:
            try:
                _tensor(np.empty(0, array.dtype))
            except TypeError:
                raise TypeError(f"{array.path}: torch has no tensors of dtype {array.dtype}") from None

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._arrays[0])

    def __getitem__(self, key: Any) -> Any:
        """Give a row, or several as NumPy would index them."""
        parts = tuple(_tensor(array[key]) for array in self._arrays)
        return parts if self._together else parts[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Give the rows of a batch, read together."""
        parts = [_tensor(array.take(rows)).unbind() for array in self._arrays]
        return list(zip(*parts, strict=True)) if self._together else list(parts[0])

    def __repr__(self) -> str:
        """Say of which arrays."""
        return f"<lowtide.torch.RowDataset rows={len(self)} of {', '.join(map(repr, self._arrays))}>"


class WindowDataset(Dataset[Any]):
    """The windows of a stream of tokens by number: window k begins at token k × ``block_size``.

    ``items`` says what one is:

    - ``"pairs"``: ``(x, y)``, int64 tensors of ``block_size`` tokens, y shifted by one;
    - ``"transformers"``: ``{"input_ids": x, "labels": x}``, for Hugging Face's models, which shift labels
      themselves.

    Of N tokens there are ⌊(N − 1) / ``block_size``⌋ windows, the same in every epoch; a sampler shuffles them
    and deals them out to ranks. ``TokenDataset`` does that by itself, reads ahead, and moves the cuts from
    epoch to epoch.

    Args:
        tokens: What ``lowtide.tokens`` opened.
        block_size: How many tokens a window has.
        items: What one item is, as above.

    Raises:
        ValueError: There are fewer tokens than a window takes, or a word is not known.
        TypeError: It is something else than tokens.

    >>> import lowtide, lowtide.torch
    >>> windows = lowtide.torch.WindowDataset(lowtide.tokens("train.bin"), block_size=1024)
    >>> len(windows)
    195
    >>> x, y = windows[0]
    >>> x.shape
    torch.Size([1024])
    """

    def __init__(
        self, tokens: Tokens, block_size: int, *, items: Literal["pairs", "transformers"] = "pairs"
    ) -> None:
        """Check the arguments: nothing is read."""
        check_tokens(tokens)
        if items not in ("pairs", "transformers"):
            raise ValueError(f'items={items!r} is not known\nhint: one of "pairs", "transformers"')
        self.tokens = tokens
        self.block_size = whole(block_size, "block_size")
        self._items = items
        if self.block_size < 1:
            raise ValueError(f"block_size is {block_size}\nhint: a window has one token or more")
        if len(self) == 0:
            raise ValueError(
                f"a window is {block_size} tokens and the one after them, there are only {len(tokens)} tokens"
                "\nhint: a smaller block_size"
            )

    def __len__(self) -> int:
        """How many windows there are."""
        return (len(self.tokens) - 1) // self.block_size

    def __getitem__(self, number: SupportsIndex) -> Any:
        """Give one window; negative numbers count from the end."""
        return self.__getitems__([operator.index(number)])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Give the windows of a batch, read together."""
        x, y = self.tokens.windows([self._start(number) for number in numbers], self.block_size)
        inputs = torch.from_numpy(x).unbind()
        if self._items == "transformers":
            return [{"input_ids": window, "labels": window} for window in inputs]
        return list(zip(inputs, torch.from_numpy(y).unbind(), strict=True))

    def _start(self, number: int) -> int:
        count = len(self)
        if not -count <= number < count:
            raise IndexError(f"window {number} is out of range: there are {count}")
        return number % count * self.block_size

    def __repr__(self) -> str:
        """Say which windows of what."""
        return (
            f"<lowtide.torch.WindowDataset windows={len(self)} block_size={self.block_size} "
            f"items={self._items} of {self.tokens!r}>"
        )


def _tensor(array: NDArray[Any] | np.generic) -> torch.Tensor:
    """Give a tensor over the same memory."""
    array = np.asarray(array)
    if array.dtype.name == "bfloat16":  # which is not one of NumPy's own
        return torch.from_numpy(array.view("uint16")).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except ValueError as error:  # another byte order
        raise TypeError(str(error)) from None


for _class in (RowDataset, WindowDataset):
    _class.__module__ = "lowtide.torch"  # where users find it, and pickle too
