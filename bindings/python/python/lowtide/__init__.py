"""Read arrays and token files that are far larger than memory, in any order, inside a fixed memory budget.

>>> import lowtide
>>> a = lowtide.open("rows.npy", budget="64MiB")
>>> for chunk in a.shuffled(256, seed=0):
...     assert chunk.shape[1] == 128
>>> tokens = lowtide.tokens("train.bin")
>>> for x, y in tokens.loader(batch_size=12, block_size=1024):
...     assert x.shape == y.shape == (12, 1024)

``help(lowtide.open)`` explains access, cache and budget.
"""

from lowtide._lowtide import (
    Array,
    Budget,
    Chunks,
    Loader,
    Prepared,
    Tokens,
    Verified,
    Writer,
    Zip,
    __version__,
    append,
    convert,
    create,
    open,
    prepare,
    release,
    shuffle,
    shuffle_documents,
    tokens,
    verify,
    zip,
)
from lowtide._watch import Report, Watch, watch

__all__ = [
    "Array",
    "Budget",
    "Chunks",
    "Loader",
    "Prepared",
    "Report",
    "Tokens",
    "Verified",
    "Watch",
    "Writer",
    "Zip",
    "__version__",
    "append",
    "convert",
    "create",
    "open",
    "prepare",
    "release",
    "shuffle",
    "shuffle_documents",
    "tokens",
    "verify",
    "watch",
    "zip",
]
