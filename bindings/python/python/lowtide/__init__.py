"""Read arrays and token files that are far larger than memory, in any order, inside a fixed memory budget.

>>> import lowtide
>>> a = lowtide.open("rows.npy")  # doctest: +SKIP
>>> for chunk in a.shuffled(4096, seed=0):  # doctest: +SKIP
...     ...
>>> tokens = lowtide.tokens("train.bin")  # doctest: +SKIP
>>> for x, y in tokens.loader(batch_size=12, block_size=1024):  # doctest: +SKIP
...     ...
"""

from lowtide._lowtide import (
    Array,
    Budget,
    Chunks,
    Loader,
    Tokens,
    Zip,
    __version__,
    open,
    release,
    tokens,
    zip,
)
from lowtide._watch import Report, Watch, watch

__all__ = [
    "Array",
    "Budget",
    "Chunks",
    "Loader",
    "Report",
    "Tokens",
    "Watch",
    "Zip",
    "__version__",
    "open",
    "release",
    "tokens",
    "watch",
    "zip",
]
