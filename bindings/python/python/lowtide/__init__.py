"""Read arrays on disk that are far larger than memory, in any order, inside a fixed memory budget.

>>> import lowtide
>>> a = lowtide.open("rows.npy")  # doctest: +SKIP
>>> for chunk in a.shuffled(4096, seed=0):  # doctest: +SKIP
...     ...
"""

from lowtide._lowtide import Array, Budget, Chunks, Zip, __version__, open, release, zip
from lowtide._watch import Report, Watch, watch

__all__ = [
    "Array",
    "Budget",
    "Chunks",
    "Report",
    "Watch",
    "Zip",
    "__version__",
    "open",
    "release",
    "watch",
    "zip",
]
