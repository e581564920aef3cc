from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import (
    Any,
    Generic,
    Literal,
    NoReturn,
    NotRequired,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
    final,
    overload,
)

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "Array",
    "Budget",
    "Chunks",
    "Loader",
    "Meter",
    "Recording",
    "Tokens",
    "Zip",
    "__version__",
    "_reopen",
    "_reopen_tokens",
    "main",
    "open",
    "parse_size",
    "release",
    "tokens",
    "zip",
]

_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Access: TypeAlias = Literal["auto", "map", "remap", "advise", "read", "direct"]
_Cache: TypeAlias = Literal["auto", "keep", "drop"]
_Size: TypeAlias = int | str
_Blocks: TypeAlias = Literal["auto"] | int | None
_Rows: TypeAlias = NDArray[np.int64]
_Step = TypeVar("_Step", covariant=True)

class _State(TypedDict):
    version: int
    order: Literal["sequential", "shuffled"]
    seed: int
    epoch: int
    position: int
    fingerprint: str
    blocks: list[int] | None

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
    def take(
        self,
        rows: ArrayLike,
        axis: int | None = 0,
        out: NDArray[Any] | None = None,
        mode: Literal["raise", "wrap", "clip"] = "raise",
    ) -> NDArray[Any]: ...
    def __getitems__(self, rows: Sequence[int]) -> list[Any]: ...
    def chunks(self, rows: int) -> Chunks[NDArray[Any]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: Literal[False] = False,
        drop_last: bool = False,
    ) -> Chunks[NDArray[Any]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: Literal[True],
        drop_last: bool = False,
    ) -> Chunks[tuple[_Rows, NDArray[Any]]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: bool,
        drop_last: bool = False,
    ) -> Chunks[Any]: ...
    def __eq__(self, value: object, /) -> NDArray[np.bool_]: ...  # type: ignore[override]
    def __ne__(self, value: object, /) -> NDArray[np.bool_]: ...  # type: ignore[override]
    def __lt__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __le__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __gt__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __ge__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __hash__(self) -> int: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Array: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

# A step is an array, or with several arrays a tuple; before it the row numbers where they were asked for.
@final
class Chunks(Generic[_Step]):
    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def __iter__(self) -> Iterator[_Step]: ...
    def __next__(self) -> _Step: ...
    def __len__(self) -> int: ...
    @property
    def access(self) -> _Access: ...
    @property
    def why(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, int] | None: ...
    @property
    def predicted_spread(self) -> float: ...
    def state_dict(self) -> _State: ...
    def load_state_dict(self, state: _State | dict[str, Any]) -> None: ...

_Order: TypeAlias = Literal["shuffled", "sequential", "with_replacement"]
_Format: TypeAlias = Literal["nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"]

@final
class Tokens:
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def files(self) -> tuple[Path, ...]: ...
    @property
    def format(self) -> _Format: ...
    @property
    def access(self) -> _Access: ...
    @property
    def cache(self) -> str: ...
    @property
    def budget(self) -> Budget: ...
    @property
    def closed(self) -> bool: ...
    @property
    def documents(self) -> int | None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> NoReturn: ...
    def __eq__(self, value: object, /) -> NDArray[np.bool_]: ...  # type: ignore[override]
    def __ne__(self, value: object, /) -> NDArray[np.bool_]: ...  # type: ignore[override]
    def __lt__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __le__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __gt__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __ge__(self, value: ArrayLike, /) -> NDArray[np.bool_]: ...
    def __hash__(self) -> int: ...
    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def document(self, number: int) -> NDArray[Any]: ...
    def remember_documents(self) -> Path: ...
    def windows(
        self, starts: ArrayLike, block_size: int, out: Sequence[NDArray[Any]] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def loader(
        self,
        batch_size: int,
        block_size: int,
        *,
        order: _Order = "shuffled",
        seed: int | None = 0,
        epoch: int = 0,
        epochs: int | None = 1,
        repeat: bool = False,
        dtype: DTypeLike | None = "int64",
        rank: int | None = None,
        world_size: int | None = None,
        prefetch: int | None = None,
        drop_last: bool = True,
        _turn: tuple[int, int] | None = None,
    ) -> Loader: ...
    def close(self) -> None: ...
    def __enter__(self) -> Tokens: ...
    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

class _LoaderState(TypedDict):
    version: int
    order: _Order
    seed: int
    epoch: int
    position: int
    block_size: int
    fingerprint: str
    turn: NotRequired[list[int]]

@final
class Loader:
    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]: ...
    def __next__(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def __len__(self) -> int: ...
    @property
    def access(self) -> _Access: ...
    @property
    def why(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def state_dict(self) -> _LoaderState: ...
    def load_state_dict(self, state: _LoaderState | dict[str, Any]) -> None: ...

@final
class Zip:
    @property
    def arrays(self) -> tuple[Array, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> tuple[Any, ...]: ...
    def take(self, rows: ArrayLike) -> tuple[NDArray[Any], ...]: ...
    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, ...]]: ...
    def chunks(self, rows: int) -> Chunks[tuple[NDArray[Any], ...]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: Literal[False] = False,
        drop_last: bool = False,
    ) -> Chunks[tuple[NDArray[Any], ...]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: Literal[True],
        drop_last: bool = False,
    ) -> Chunks[tuple[_Rows, tuple[NDArray[Any], ...]]]: ...
    @overload
    def shuffled(
        self,
        rows: int,
        seed: int | None = 0,
        *,
        epoch: int = 0,
        start: int = 0,
        repeat: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        blocks: _Blocks = None,
        with_rows: bool,
        drop_last: bool = False,
    ) -> Chunks[Any]: ...

@final
class Meter:
    def __new__(cls, files: Sequence[str], interval: float | None = None) -> Meter: ...
    def stop(self, command: Sequence[str], tolerance: int | None = None) -> Recording: ...

@final
class Recording:
    @property
    def verdict(self) -> str: ...
    def json(self) -> str: ...
    def html(self) -> str: ...
    def save_html(self, path: str | PathLike[str]) -> None: ...
    def save_json(self, path: str | PathLike[str]) -> None: ...

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
def parse_size(text: str) -> int: ...
def release(memmap_array: NDArray[Any]) -> None: ...
def tokens(
    path: _Path | Sequence[_Path],
    *,
    dtype: DTypeLike | None = None,
    format: _Format | None = None,
    end_of_text: int | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: _Size | Budget | None = None,
) -> Tokens: ...
def zip(*arrays: Array) -> Zip: ...
def main(arguments: Sequence[str], python: str | PathLike[str] | None) -> int: ...
def _reopen(path: _Path, arguments: dict[str, Any]) -> Array: ...
def _reopen_tokens(files: tuple[_Path, ...], arguments: dict[str, Any]) -> Tokens: ...
