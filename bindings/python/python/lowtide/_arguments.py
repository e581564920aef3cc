"""What ``lowtide.watch`` and the helpers for torch are given: another kind is refused by its argument's name.

A path has a length, and a NumPy array can be indexed: they would fail later, and about something else.
"""

from __future__ import annotations

import operator
import os
from typing import Any

from lowtide._lowtide import Array, Tokens, Zip


def check_tokens(tokens: Any) -> None:
    """Refuse what is not tokens of ours."""
    if not isinstance(tokens, Tokens):
        raise TypeError(
            f"tokens must be what lowtide.tokens(...) returned, not {type(tokens).__name__}{_hint(tokens)}"
        )


def check_rows(rows: Any) -> None:
    """Refuse what is no array of ours, and no zip of such."""
    if not isinstance(rows, Array | Zip):
        raise TypeError(
            "rows must be what lowtide.open(...) or lowtide.zip(...) returned, "
            f"not {type(rows).__name__}{_hint(rows)}"
        )


def whole(number: Any, name: str) -> int:
    """Give the whole number that is the argument ``name``."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name}={number!r} must be a whole number") from None


def check_draw(tokens: Any, batch_size: Any, block_size: Any) -> None:
    """Refuse what ``get_batch`` cannot draw from, or not so often, or not so much."""
    check_tokens(tokens)
    number = whole(batch_size, "batch_size")
    whole(block_size, "block_size")
    if number < 1:
        raise ValueError(f"batch_size is {number}\nhint: a batch has one window or more")


def names(files: Any) -> list[str]:
    """Give the names of the files to watch: of one, or of several. ``~`` is the user's home."""
    several = [files] if isinstance(files, str | bytes | os.PathLike) else files
    try:
        return [os.path.expanduser(os.fsdecode(file)) for file in several]
    except TypeError:
        raise TypeError(f"files={files!r} must be a path or a list of paths") from None


def _hint(given: Any) -> str:
    if isinstance(given, Tokens):
        return "\nhint: lowtide.torch.WindowDataset takes tokens"
    if isinstance(given, Array | Zip):
        return "\nhint: lowtide.torch.RowDataset takes arrays"
    return ""
