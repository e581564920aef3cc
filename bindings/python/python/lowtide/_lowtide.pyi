from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, SupportsIndex, TypeAlias, TypedDict, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "Array",
    "Budget",
    "Chunks",
    "Zip",
    "__version__",
    "_reopen",
    "main",
    "open",
    "release",
    "zip",
]

_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Access: TypeAlias = Literal["auto", "map", "remap", "advise", "read", "direct"]
_Cache: TypeAlias = Literal["auto", "keep", "drop"]
_Size: TypeAlias = int | str

class _State(TypedDict):
    version: int
    seed: int
    epoch: int
    position: int
    fingerprint: str

__version__: str

@final
class Budget:
    def __new__(cls, limit: _Size) -> Budget: ...
    @property
    def limit(self) -> int: ...
    @property
    def used(self) -> int: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def path(self) -> Path: ...
    @property
    def access(self) -> _Access: ...
    @property
    def cache(self) -> str: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def closed(self) -> bool: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def take(self, rows: ArrayLike, axis: int = 0, out: NDArray[Any] | None = None) -> NDArray[Any]: ...
    def chunks(self, rows: int) -> Chunks: ...
    def shuffled(
        self,
        rows: int,
        seed: int = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: None = None,
        with_rows: bool = False,
        drop_last: bool = False,
    ) -> Chunks: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Array: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class Chunks:
    def __iter__(self) -> Chunks: ...
    # An array, or with several arrays a tuple of them; before it the row numbers where they were asked for.
    def __next__(self) -> Any: ...
    def __len__(self) -> int: ...
    @property
    def access(self) -> _Access: ...
    @property
    def why(self) -> str: ...
    def state_dict(self) -> _State: ...
    def load_state_dict(self, state: _State | dict[str, Any]) -> None: ...

@final
class Zip:
    @property
    def arrays(self) -> tuple[Array, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> tuple[Any, ...]: ...
    def take(self, rows: ArrayLike) -> tuple[NDArray[Any], ...]: ...
    def chunks(self, rows: int) -> Chunks: ...
    def shuffled(
        self,
        rows: int,
        seed: int = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: None = None,
        with_rows: bool = False,
        drop_last: bool = False,
    ) -> Chunks: ...

def open(
    path: _Path | NDArray[Any],
    *,
    dtype: DTypeLike | Literal["bfloat16"] | None = None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    offset: int | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: _Size | Budget | None = None,
) -> Array: ...
def release(memmap_array: NDArray[Any]) -> None: ...
def zip(*arrays: Array) -> Zip: ...
def main(arguments: Sequence[str], python: str | PathLike[str] | None) -> int: ...
def _reopen(path: _Path, arguments: dict[str, Any]) -> Array: ...
