from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import (
    Any,
    Generic,
    Literal,
    NoReturn,
    NotRequired,
    Self,
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
    "Foreseen",
    "Loader",
    "Meter",
    "Prepared",
    "Recording",
    "Tokens",
    "Verified",
    "Writer",
    "Zip",
    "_Preparing",
    "_Shuffling",
    "__version__",
    "_prepare_portion",
    "_reopen",
    "_reopen_prepared",
    "_reopen_tokens",
    "_shuffle_unit",
    "_verified",
    "append",
    "convert",
    "create",
    "main",
    "open",
    "parse_interval",
    "parse_size",
    "prepare",
    "release",
    "shuffle",
    "shuffle_documents",
    "tokens",
    "verify",
    "zip",
]

_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_Access: TypeAlias = Literal["auto", "map", "remap", "advise", "read", "direct", "range"]
_StorageOptions: TypeAlias = Mapping[str, Any]
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
    """A limit in bytes that several arrays can share.

    Every byte of read buffers, read-ahead and mapped windows comes out of it. Batches that were handed
    out are the caller's and do not count.

    Args:
        limit: A size like "1GiB", "1.5GB", or a number of bytes.

    Raises:
        ValueError: The size cannot be read, or is 0.
        TypeError: It is neither a text nor a number.

    Examples:
        >>> budget = lowtide.Budget("64MiB")
        >>> a = lowtide.open("rows.npy", budget=budget)
        >>> labels = lowtide.open("labels.npy", budget=budget)
        >>> budget.limit
        67108864
        >>> a.budget
        Budget("64 MiB")
    """

    def __new__(cls, limit: _Size) -> Budget: ...
    @property
    def limit(self) -> int:
        """The limit in bytes."""
    @property
    def used(self) -> int:
        """Bytes in use now, free slabs included; batches that were delivered are not."""

# What a.chunks is: a method, and the shape of the pieces that are best read as one.
class _ArrayChunks(Sequence[int]):
    def __call__(
        self,
        rows: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> Chunks[NDArray[Any]]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[int, ...]: ...

class _ChunksMethod:
    def __init__(self, method: Callable[..., Chunks[NDArray[Any]]], /) -> None: ...
    @overload
    def __get__(self, array: None, kind: type[Array], /) -> Callable[..., Chunks[NDArray[Any]]]: ...
    @overload
    def __get__(self, array: Array, kind: type[Array] | None = None, /) -> _ArrayChunks: ...

@final
class Array:
    """An array on disk, as `lowtide.open` opens it. It is indexed as NumPy's arrays are.

    Indexing reads what was asked for into a fresh NumPy array, never a view of the file. `chunks` and
    `shuffled` go through all rows inside the budget. It is read-only, pickles as its path and its
    settings, may be used from several threads and after a fork, and closes as a context manager.

    `np.asarray(a)` and `a == b` read all of it, and raise `MemoryError` where that is more than the
    budget; `a[...]` reads it anyway.

    Examples:
        >>> a = lowtide.open("rows.npy")
        >>> a
        <lowtide.Array "...rows.npy" shape=(1000, 128) dtype=float32 access=auto>
        >>> a[5].shape, a[-100:].shape, a[::7, :4].shape, a[[3, 1, 1]].shape
        ((128,), (100, 128), (143, 4), (3, 128))
        >>> for chunk in a.shuffled(256, seed=0):
        ...     print(chunk.shape)
        (256, 128)
        (256, 128)
        (256, 128)
        (232, 128)
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as NumPy's."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of the elements, as they are read."""
    @property
    def ndim(self) -> int:
        """The number of axes."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
    @property
    def path(self) -> Path | str:
        """The file, as an absolute path; of several, the first. An object's address is a str."""
    @property
    def files(self) -> tuple[Path | str, ...]:
        """The files, in the order of the rows, as absolute paths."""
    @property
    def access(self) -> _Access:
        """The way of access that was asked for; iterators say which one they took."""
    @property
    def cache(self) -> str:
        """What was asked for about the page cache: "auto", "keep" or "drop"."""
    @property
    def budget(self) -> Budget:
        """The budget that this array and everything made from it share."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...
    def take(
        self,
        rows: ArrayLike,
        axis: int | None = 0,
        out: NDArray[Any] | None = None,
        mode: Literal["raise", "wrap", "clip"] = "raise",
    ) -> NDArray[Any]:
        """Reads the rows with these numbers, in this order, as `np.take` does.

        Args:
            rows: Their numbers, in an array or list of any shape; negative ones count from the end.
            axis: What the numbers count: rows, or another axis. None counts elements as of one axis.
            out: An array of the answer's shape and dtype to be filled, C-contiguous.
            mode: What becomes of a number outside: "raise" an error, "wrap" counts round, "clip" takes the
                first or the last.

        Returns:
            A fresh array, or `out`.

        Raises:
            IndexError: A number is out of bounds.
            ValueError: `out` has another shape or dtype, or the axis or the mode is not known.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.take([3, 1, -1])
            array([  3,   1, 999])
            >>> labels.take([1001], mode="wrap")
            array([1])
        """
    def __getitems__(self, rows: Sequence[int]) -> list[Any]: ...
    def _fold(self, name: str, piece: int) -> tuple[Any, ...] | None: ...
    def astype(self, dtype: DTypeLike | Literal["bfloat16"]) -> Array:
        """Gives the same array with its elements as another type, converted whenever they are read.

        Nothing is read now: it is an array like any other, over the same file and inside the same budget. The
        elements are, bit for bit, those of NumPy's `astype`. They are converted while they are read, by the
        threads that read.

        Args:
            dtype: The type, as NumPy or torch says it. All that NumPy's `casting="same_kind"` allows: to more
                or fewer bits, from either byte order, from whole numbers to floats and from those to complex
                ones. No warning is given where a number becomes infinite.

        Returns:
            A `lowtide.Array` of that `dtype`. `lowtide.open(path, astype=dtype)` gives the same.

        Raises:
            ValueError: The type is of another kind: fractions, signs or imaginary parts would be lost. Or the
                elements were rounded by an `astype` before.

        Examples:
            >>> a = lowtide.open("rows.npy").astype("float64")
            >>> a
            <lowtide.Array "...rows.npy" shape=(1000, 128) dtype=float64 (float32 in the file) access=auto>
            >>> a[:10].dtype, next(a.shuffled(100, seed=0)).dtype
            (dtype('float64'), dtype('float64'))
        """
    def rows(self, start: int | None = None, stop: int | None = None) -> Array:
        """Gives a part of the rows as an array of its own, without reading it.

        It has all methods that the array has, over the same file and inside the same budget; closing one
        closes both. Parts of parts are parts.

        Args:
            start, stop: Which rows, as in a slice: negative numbers count from the end, None is the end.

        Returns:
            A `lowtide.Array` of the rows `start` to `stop`.

        Raises:
            ValueError: The array is a single element, which has no rows.
            TypeError: A number is not a whole one.

        Examples:
            >>> a = lowtide.open("rows.npy")
            >>> a.rows(100, 200)
            <lowtide.Array "...rows.npy" rows 100:200 of 1000 shape=(100, 128) dtype=float32 access=auto>
            >>> head, tail = a.rows(None, -100), a.rows(-100)
            >>> len(head), len(tail), bool((tail[0] == a[900]).all())
            (900, 100, True)
            >>> for chunk in tail.shuffled(50, seed=0):
            ...     print(chunk.shape)
            (50, 128)
            (50, 128)
        """
    def split(self, sizes: float | Sequence[float], *, seed: int | None = 0) -> tuple[Array, ...]:
        """Divides the rows among several parts, without reading them: for training and validation, say.

        Every row is in exactly one part. With a seed the rows are dealt one by one: every split is as likely
        as any other, and the same seed gives the same one, everywhere. Nothing is stored: a part is positions
        of the permutation that `shuffled(seed=seed)` goes through in its epoch 0, and has its rows in that
        order, which is also the order in which its `chunks` come. With `seed=None` the parts are neighbouring
        rows in file order, as `rows` gives them: a slow disk reads them faster, and `blocks=` works.

        Args:
            sizes: The share of the first part, such as 0.9, the rest being the second; or the number of rows
                of the first; or a list of all shares, which make 1, or of all numbers of rows.
            seed: Which split; None cuts the rows in file order.

        Returns:
            A tuple of `lowtide.Array`s, each with all methods, over the same file and inside the same budget.

        Raises:
            ValueError: The sizes are not all rows together, or a part with a share would have no rows.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> train, val = labels.split(0.9, seed=0)
            >>> val
            <lowtide.Array "...labels.npy" rows 900:1000 of 1000 dealt by seed 0 shape=(100,) ...>
            >>> train[:5], next(labels.shuffled(5, seed=0))
            (array([800,  38, 982, 574, 325]), array([800,  38, 982, 574, 325]))
            >>> sorted(set(train[:]) | set(val[:])) == list(range(1000))
            True
            >>> [len(part) for part in labels.split([0.8, 0.1, 0.1], seed=None)]
            [800, 100, 100]
        """
    def sum(
        self,
        axis: int | tuple[int, ...] | None = None,
        dtype: DTypeLike | None = None,
        out: NDArray[Any] | None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the sum of elements in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            dtype: The type of the answer; NumPy's choice if not given.
            out: An array of the answer's shape to be filled.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.sum(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.sum()
            np.int64(499500)
        """
    def mean(
        self,
        axis: int | tuple[int, ...] | None = None,
        dtype: DTypeLike | None = None,
        out: NDArray[Any] | None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the mean of elements in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            dtype: The type of the answer; NumPy's choice if not given.
            out: An array of the answer's shape to be filled.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.mean(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.mean()
            np.float64(499.5)
        """
    def var(
        self,
        axis: int | tuple[int, ...] | None = None,
        dtype: DTypeLike | None = None,
        out: NDArray[Any] | None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the variance of elements in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            dtype: The type of the answer; NumPy's choice if not given.
            out: An array of the answer's shape to be filled.
            ddof: What is taken off the number of elements before it divides.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.var(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.var()
            np.float64(83333.25)
        """
    def std(
        self,
        axis: int | tuple[int, ...] | None = None,
        dtype: DTypeLike | None = None,
        out: NDArray[Any] | None = None,
        ddof: float = 0,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the standard deviation in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            dtype: The type of the answer; NumPy's choice if not given.
            out: An array of the answer's shape to be filled.
            ddof: What is taken off the number of elements before it divides.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.std(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.std()
            np.float64(288.6749902572095)
        """
    def min(
        self,
        axis: int | tuple[int, ...] | None = None,
        out: NDArray[Any] | None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the smallest element in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            out: An array of the answer's shape to be filled.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.min(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.min()
            np.int64(0)
        """
    def max(
        self,
        axis: int | tuple[int, ...] | None = None,
        out: NDArray[Any] | None = None,
        *,
        keepdims: bool = False,
    ) -> Any:
        """Gives the largest element in one pass inside the budget: NumPy's answer, to rounding.

        Args:
            axis: Over which axis or axes, a number or a tuple; None is all of them.
            out: An array of the answer's shape to be filled.
            keepdims: Leaves the axes in the answer, with size 1.

        Returns:
            An array, a scalar, or `out`; `np.max(a)` gives the same.

        Raises:
            MemoryError: A row does not fit in the budget.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> labels.max()
            np.int64(999)
        """
    @_ChunksMethod
    def chunks(
        self,
        rows: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> Chunks[NDArray[Any]]:
        """Gives all rows in file order, `rows` at a time.

        Args:
            rows: How many rows a chunk has; the last one may have fewer.
            rank, world_size: Which share of each step: of every `world_size` chunks that follow each other,
                rank 0 takes the first. If not given, all rows: unlike for `shuffled`, no launcher is asked.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.

        Returns:
            A `lowtide.Chunks`. It begins again with every iteration.

        Raises:
            MemoryError: A chunk does not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, only one of `rank` and `world_size` is given, or the last
                step has fewer rows than there are ranks.

        Without a call, `a.chunks` is the shape of the pieces that are best read as one, as dask wants it.

        Examples:
            >>> a = lowtide.open("rows.npy")
            >>> for chunk in a.chunks(400):
            ...     print(chunk.shape)
            (400, 128)
            (400, 128)
            (200, 128)
            >>> [len(chunk) for chunk in a.chunks(400, rank=1, world_size=2)]
            [400, 100]
            >>> tuple(a.chunks)
            (1000, 128)
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[NDArray[Any]]:
        """Gives every row exactly once, in shuffled order, `rows` at a time.

        The order is a permutation that is computed, not stored: it takes no memory however many rows there
        are, and any position is reached at once. The next iteration is the next epoch, in another order.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks of the file and
                mixes them inside the budget, as fast as a disk reads; `predicted_spread` says how random.
            with_rows: Gives (row numbers, chunk) instead of the chunk.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: A chunk does not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> epoch = labels.shuffled(5, seed=0)
            >>> next(epoch)
            array([800,  38, 982, 574, 325])
            >>> for numbers, chunk in labels.shuffled(400, seed=1, with_rows=True):
            ...     print(len(chunk), (chunk == numbers).all())
            400 True
            400 True
            200 True
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[tuple[_Rows, NDArray[Any]]]:
        """Gives every row exactly once, in shuffled order, `rows` at a time.

        The order is a permutation that is computed, not stored: it takes no memory however many rows there
        are, and any position is reached at once. The next iteration is the next epoch, in another order.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks of the file and
                mixes them inside the budget, as fast as a disk reads; `predicted_spread` says how random.
            with_rows: Gives (row numbers, chunk) instead of the chunk.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: A chunk does not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> epoch = labels.shuffled(5, seed=0)
            >>> next(epoch)
            array([800,  38, 982, 574, 325])
            >>> for numbers, chunk in labels.shuffled(400, seed=1, with_rows=True):
            ...     print(len(chunk), (chunk == numbers).all())
            400 True
            400 True
            200 True
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[Any]:
        """Gives every row exactly once, in shuffled order, `rows` at a time.

        The order is a permutation that is computed, not stored: it takes no memory however many rows there
        are, and any position is reached at once. The next iteration is the next epoch, in another order.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks of the file and
                mixes them inside the budget, as fast as a disk reads; `predicted_spread` says how random.
            with_rows: Gives (row numbers, chunk) instead of the chunk.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: A chunk does not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> labels = lowtide.open("labels.npy")
            >>> epoch = labels.shuffled(5, seed=0)
            >>> next(epoch)
            array([800,  38, 982, 574, 325])
            >>> for numbers, chunk in labels.shuffled(400, seed=1, with_rows=True):
            ...     print(len(chunk), (chunk == numbers).all())
            400 True
            400 True
            200 True
        """
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
    def _repr_html_(self) -> str: ...
    def close(self) -> None:
        """Lets go of the file and its maps. Arrays that were returned stay what they are.

        Examples:
            >>> with lowtide.open("rows.npy") as a:
            ...     first = a[0]
            >>> a.closed
            True
            >>> a.close()  # a second time does nothing
        """
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
    """Chunks of rows, as `chunks` and `shuffled` of an array or a zip make them.

    They are read ahead in a thread. It is an iterator that can be left half way, gone on with, pickled,
    and used from several threads. After the last chunk the next iteration is the next epoch; it begins
    again where rows come in file order, and with `repeat=True`. `len` is the number of chunks of a whole
    iteration, on this rank.

    Examples:
        >>> a = lowtide.open("rows.npy")
        >>> it = a.shuffled(256, seed=0)
        >>> len(it)
        4
        >>> first = next(it)
        >>> state = it.state_dict()  # small: JSON takes it
        >>> again = a.shuffled(256, seed=0)
        >>> again.load_state_dict(state)
        >>> bool((next(again) == next(it)).all())
        True
    """

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def __iter__(self) -> Iterator[_Step]: ...
    def __next__(self) -> _Step: ...
    def __len__(self) -> int: ...
    @property
    def access(self) -> _Access:
        """The way of access that is taken: where "auto" was asked for, which one it chose."""
    @property
    def why(self) -> str:
        """Why that way of access, in words, and whose share it is."""
    @property
    def rank(self) -> int:
        """Which rank's share it is; 0 where it is not shared."""
    @property
    def world_size(self) -> int:
        """Over how many ranks the rows are shared out."""
    @property
    def blocks(self) -> tuple[int, int] | None:
        """Rows in a block, and blocks that are mixed; None for an exact shuffle."""
    @property
    def predicted_spread(self) -> float:
        """How far the shares of classes in a chunk spread if the file is sorted by class.

        It is a ratio of standard deviations, against a perfect shuffle: 1.0 is perfect, and an exact shuffle
        is.
        """
    def close(self) -> None:
        """Lets go of what was read ahead, and of the space in `scratch`, at once.

        It stands where it stood: going on is fine, and reads, or sorts, the rest again. Dropping it
        lets go, too, and so does a generator that is left in the middle of `yield from` it.

        Examples:
            >>> it = lowtide.open("rows.npy").shuffled(256, seed=0, scratch=".")
            >>> chunk = next(it)
            >>> it.close()
            >>> it.state_dict()["position"]
            256
        """
    def state_dict(self) -> _State:
        """Says where the pass stands, as the caller saw it; what is only read ahead does not count.

        Returns:
            A small dict that JSON takes, the same on every rank, and good for any number of ranks. After the
            last chunk it is the beginning of the next epoch.

        Examples:
            >>> it = lowtide.open("rows.npy").shuffled(256, seed=7)
            >>> chunk = next(it)
            >>> state = it.state_dict()
            >>> state["seed"], state["epoch"], state["position"]
            (7, 0, 256)
        """
    def load_state_dict(self, state: _State | dict[str, Any]) -> None:
        """Goes on from where a `state_dict` was taken, at once, under any number of ranks.

        The next iteration begins there, with the state's seed.

        Args:
            state: What `state_dict` gave, also after JSON.

        Raises:
            ValueError: The state is of other data or of another order, or is no state.

        Examples:
            >>> a = lowtide.open("rows.npy")
            >>> it = a.shuffled(256, seed=7)
            >>> chunk = next(it)
            >>> again = a.shuffled(100)
            >>> again.load_state_dict(it.state_dict())
            >>> again.state_dict()["position"]
            256
        """

_Order: TypeAlias = Literal["shuffled", "sequential", "with_replacement"]
_Format: TypeAlias = Literal["nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"]

@final
class Foreseen:
    """Batches of windows of a `lowtide.Tokens` that are expected to be asked for."""

    @property
    def wanted(self) -> int:
        """Of how many windows the starts are wanted."""

    def expect(self, starts: NDArray[Any]) -> None:
        """Says where the windows begin that will be asked for next.

        Args:
            starts: As many as are wanted.
        """

    def take(self, starts: list[int]) -> tuple[NDArray[Any], NDArray[Any], int] | None:
        """Gives the batch of these starts, if it is the next one expected.

        Args:
            starts: Where its windows begin.

        Returns:
            x and y, and how many further starts are wanted.
        """

@final
class Tokens:
    """A stream of tokens on disk, as `lowtide.tokens` opens it.

    `windows` reads windows where you say, a `loader` goes through all of them, `document` gives one
    document, and `tokens[start:end]` a part in the files' own dtype. `len` is the number of tokens. It is
    read-only, pickles as its paths and settings, and closes as a context manager.

    Examples:
        >>> t = lowtide.tokens("train.bin")
        >>> t
        <lowtide.Tokens "...train.bin" tokens=200000 dtype=uint16 format=nanogpt access=auto>
        >>> len(t)
        200000
        >>> t[:4]
        array([    0,  7919, 15838, 23757], dtype=uint16)
    """

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of a token in the files."""
    @property
    def files(self) -> tuple[Path | str, ...]:
        """The files, in the order of the stream, as absolute paths."""
    @property
    def format(self) -> _Format:
        """The dialect of the files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw"."""
    @property
    def split(self) -> str | None:
        """The split of a folder that `lowtide.prepare` has made; None for other files."""
    @property
    def end_of_text(self) -> int | None:
        """The token between documents, as given or as the manifest says; None where nothing says it."""
    @property
    def vocabulary(self) -> int | None:
        """Every token is below this, where `lowtide.prepare` has made the files; None for other files."""
    @property
    def access(self) -> _Access:
        """The way of access that was asked for; loaders say which one they took."""
    @property
    def cache(self) -> str:
        """What was asked for about the page cache: "auto", "keep" or "drop"."""
    @property
    def budget(self) -> Budget:
        """The budget that this and everything made from it share."""
    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
    @property
    def documents(self) -> int | None:
        """How many documents there are; None where nothing says where they end.

        They are counted by the index beside the files, by the manifest of `lowtide.prepare`, or by
        `end_of_text`, for which all tokens are read once (see `remember_documents`).
        """
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
    def _repr_html_(self) -> str: ...
    def text(self, number: int, tokenizer: str | PathLike[str] | None = None) -> str:
        """Reads one document as text, without the end-of-text token.

        Args:
            number: Which one; negative numbers count from the end.
            tokenizer: What made the tokens: a name such as "gpt2", or the path of a tokenizer.json. Where
                `lowtide.prepare` has made them, that is known.

        Returns:
            The text. Bytes that are no UTF-8 are replaced.

        Raises:
            IndexError: There are not so many.
            ValueError: Nothing says which tokenizer it was, or where documents end; or the tokenizer does not
                have one of the tokens.

        Examples:
            >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
            >>> lowtide.tokens("data").text(-1)
            'there was a tide, and it was low'
            >>> lowtide.tokens("train.bin").text(0, tokenizer="gpt2")[:9]
            '!prise ps'
        """
    def decode(self, ids: ArrayLike, tokenizer: str | PathLike[str] | None = None) -> str:
        """Gives the text of ids: of a part of the tokens, or of a row of a batch.

        Args:
            ids: A list or an array of integers, of one axis.
            tokenizer: As for `text`.

        Returns:
            The text, end-of-text words included. Bytes that are no UTF-8 are replaced.

        Raises:
            ValueError: As for `text`.
            TypeError: The ids are no integers, or have several axes.

        Examples:
            >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
            >>> t = lowtide.tokens("data")
            >>> x, y = t.windows([9], 12)
            >>> t.decode(x[0])
            ' a time<|endoftext|>ther'
        """
    def document(self, number: int) -> NDArray[Any]:
        """Reads one document, the end-of-text token included, in the files' own dtype.

        Args:
            number: Which one; negative numbers count from the end.

        Returns:
            A fresh array of one axis.

        Raises:
            IndexError: There are not so many.
            ValueError: Nothing says where documents end: give `lowtide.tokens` the `end_of_text`.

        Examples:
            >>> t = lowtide.tokens("train.bin", end_of_text=50256)
            >>> t.documents
            5
            >>> t.document(0)[-1]
            np.uint16(50256)
        """
    def remember_documents(self) -> Path:
        """Writes down where documents are, so that all tokens need not be read for it again.

        What the scan for `end_of_text` found goes into NAME.lowtide-documents beside the first file. From
        then on documents are known at once, until a file changes.

        Returns:
            The path of what was written.

        Raises:
            ValueError: There is nothing to scan for: the files have an index, or there is no `end_of_text`.
            OSError: It cannot be written.

        Examples:
            >>> lowtide.tokens("train.bin", end_of_text=50256).remember_documents().name
            'train.bin.lowtide-documents'
        """
    def windows(
        self, starts: ArrayLike, block_size: int, out: Sequence[NDArray[Any]] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Reads the windows that begin at `starts`: (x, y), where y is x shifted by one.

        A window takes `block_size` + 1 tokens, so the last one begins at `len(tokens) - block_size - 1`.

        Args:
            starts: A list or an array of integers, in any order.
            block_size: How many tokens a row of x has.
            out: Two arrays of `len(starts)` rows of `block_size`, of any integers, to be filled: (x, y).

        Returns:
            Two fresh int64 arrays of `len(starts)` rows of `block_size` tokens, or `out`.

        Raises:
            IndexError: A window would reach beyond the first or the last token.
            TypeError: `starts` are no integers, or `out` is not two arrays.
            ValueError: `out` has another shape, or no integers.

        Examples:
            >>> t = lowtide.tokens("train.bin")
            >>> x, y = t.windows([0, 7, 1000], 64)
            >>> x.shape, x.dtype
            ((3, 64), dtype('int64'))
            >>> bool((x[:, 1:] == y[:, :-1]).all())
            True
        """
    _foresight: Any
    def _foresee(self, batch_size: int, block_size: int) -> Foreseen | None: ...
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
        blocks: Literal["auto"] | int | None = None,
        _turn: tuple[int, int] | None = None,
    ) -> Loader:
        """Gives batches of windows, read ahead in a thread: `for x, y in tokens.loader(12, 1024)`.

        Args:
            batch_size: How many windows a batch has, on each rank.
            block_size: How many tokens a window has: x and y are arrays of `batch_size` rows of `block_size`.
            order: "shuffled", every window of an epoch once; "sequential", the same in file order;
                "with_replacement", independent draws, as nanoGPT's.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            epochs: How many epochs one iteration has; None has no end.
            repeat: Every iteration begins the same epochs again, from their beginning: for validation.
                Otherwise the next one is the next epochs, or goes on where an iteration was left half way.
            dtype: The integers of x and y.
            rank, world_size: Which share of the batches; if not given, torch.distributed's, torchrun's,
                Slurm's or MPI's, asked at the first batch at the latest (docs/trainers.md).
            prefetch: How many batches to read ahead at most; 0 does without a thread.
            drop_last: Leaves out the last windows of an epoch, which do not fill a batch on every rank.
            blocks: With order "shuffled": None is an exact shuffle. "auto" or a number of windows reads whole
                blocks of neighbours and mixes them inside the budget, as fast as a disk reads;
                `predicted_spread` says how random.

        Returns:
            A `lowtide.Loader`.

        Raises:
            ValueError: The tokens are too few for a window or a batch, a word or a number makes no sense, or
                only one of `rank` and `world_size` is given.
            MemoryError: A batch does not fit in the budget.

        Examples:
            >>> t = lowtide.tokens("train.bin")
            >>> for x, y in t.loader(batch_size=12, block_size=1024, seed=0):
            ...     assert x.shape == y.shape == (12, 1024)
            >>> len(t.loader(12, 1024, rank=1, world_size=4))
            4
        """
    def close(self) -> None:
        """Lets go of the files. Arrays that were returned stay what they are.

        Examples:
            >>> with lowtide.tokens("train.bin") as t:
            ...     start = t[:10]
            >>> t.closed
            True
        """
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
    blocks: NotRequired[list[int]]
    turn: NotRequired[list[int]]

@final
class Loader:
    """Batches of windows of tokens, as `tokens.loader` makes it: (x, y), y shifted by one.

    An iteration goes on from where the state stands: after the last batch, with the next epochs. With
    `repeat=True` it begins the same epochs again. `len` is the number of batches of a whole iteration, on
    this rank; with `epochs=None` there is none, a `TypeError`.

    Examples:
        >>> loader = lowtide.tokens("train.bin").loader(batch_size=12, block_size=1024, seed=0)
        >>> len(loader)
        16
        >>> for x, y in loader:
        ...     assert x.shape == y.shape == (12, 1024)
        >>> loader.state_dict()["epoch"]  # the next iteration is the next epoch
        1
    """

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]: ...
    def __next__(self) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def __len__(self) -> int: ...
    @property
    def access(self) -> _Access:
        """The way of access that is taken now: where "auto" was asked for, which one it chose."""
    @property
    def why(self) -> str:
        """Why that way of access, in words, and whose share it is."""
    @property
    def rank(self) -> int:
        """Which rank's share it gives."""
    @property
    def world_size(self) -> int:
        """Over how many ranks the batches are shared out."""
    @property
    def blocks(self) -> tuple[int, int] | None:
        """Windows in a block, and blocks that are mixed; None without blocks."""
    @property
    def predicted_spread(self) -> float:
        """How far the shares of classes in a batch spread if the files are sorted by class.

        It is a ratio of standard deviations, against a perfect shuffle: 1.0 is perfect, and it is without
        `blocks`.
        """
    def state_dict(self) -> _LoaderState:
        """Says where it stands, as the caller saw it; what is only read ahead does not count.

        Returns:
            A small dict that JSON takes, the same on every rank, and good for any number of ranks and any
            `batch_size`. After the last batch it is the beginning of the next epoch.

        Examples:
            >>> loader = lowtide.tokens("train.bin").loader(batch_size=12, block_size=1024, seed=7)
            >>> x, y = next(loader)
            >>> state = loader.state_dict()
            >>> state["seed"], state["epoch"], state["position"]
            (7, 0, 12)
        """
    def load_state_dict(self, state: _LoaderState | dict[str, Any]) -> None:
        """Goes on from where a `state_dict` was taken, at once: the next iteration begins there.

        The seed is the state's; ranks and `batch_size` are this loader's.

        Args:
            state: What `state_dict` gave, also after JSON.

        Raises:
            ValueError: The files, the order or the `block_size` are not the state's, or it is no state.

        Examples:
            >>> import json
            >>> t = lowtide.tokens("train.bin")
            >>> loader = t.loader(batch_size=12, block_size=1024, seed=7)
            >>> x, y = next(loader)
            >>> saved = json.dumps(loader.state_dict())
            >>> again = t.loader(batch_size=4, block_size=1024)
            >>> again.load_state_dict(json.loads(saved))
            >>> bool((next(again)[0] == next(loader)[0][:4]).all())
            True
        """

class _Progress(TypedDict):
    step: Literal["looking", "encoding", "dealing", "sending"]
    bytes_read: int
    bytes: int
    documents: int
    tokens: int
    skipped: int

class _Split(TypedDict):
    tokens: int
    documents: int
    files: list[Path | str]

@final
class Prepared:
    """What `lowtide.prepare` has made, or had made before.

    Examples:
        >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
        >>> made.tokens, made.documents, made.skipped
        (50, 2, 0)
        >>> made.splits["train"]["files"]
        [...Path('...train.bin')]
        >>> made.end_of_text
        256
    """

    @property
    def path(self) -> Path | str:
        """The folder, as an absolute path; an address in an object store, as a string."""
    @property
    def manifest(self) -> Path | str:
        """The path of the manifest: `lowtide.json`, which has all of this and more."""
    @property
    def tokens(self) -> int:
        """How many tokens there are, in all splits."""
    @property
    def documents(self) -> int:
        """How many documents were written."""
    @property
    def skipped(self) -> int:
        """How many documents could not be read, and were passed over."""
    @property
    def empty(self) -> int:
        """How many documents had no text, and were not written."""
    @property
    def longest(self) -> int:
        """How many tokens the longest document has, its end of text included."""
    @property
    def text_bytes(self) -> int:
        """How many bytes of text became tokens."""
    @property
    def bytes(self) -> int:
        """How many bytes the token files have."""
    @property
    def splits(self) -> dict[str, _Split]:
        """The splits by their names, each a dict of "tokens", "documents" and "files"."""
    @property
    def tokenizer(self) -> str:
        """The tokenizer's name, or the path of its tokenizer.json."""
    @property
    def vocabulary(self) -> int:
        """Every id is below this."""
    @property
    def end_of_text(self) -> int | None:
        """The token between documents; None where the tokenizer has none."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype of a token in the files."""
    @property
    def format(self) -> str:
        """The dialect of the files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw"."""

@final
class Verified:
    """What `lowtide.verify` has looked at, and what it found wrong. It is true if nothing is.

    Examples:
        >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
        >>> checked = lowtide.verify("data")
        >>> checked.ok, checked.files, checked.bytes
        (True, 1, 100)
    """

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
    @property
    def files(self) -> int:
        """How many files were looked at."""
    @property
    def bytes(self) -> int:
        """How many bytes they have."""
    def __bool__(self) -> bool: ...
    @property
    def findings(self) -> list[tuple[Path, str]]:
        """What is wrong: a list of pairs, the path of a file and a sentence."""

@final
class Zip:
    """Several arrays with the same rows, as `lowtide.zip` makes it: their chunks come together, as tuples.

    Indexing gives a tuple too, the same index of every array. `len` is the number of rows.

    Examples:
        >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
        >>> both
        <lowtide.Zip of 2 arrays, 1000 rows>
        >>> x, label = both[5]
        >>> x.shape, label
        ((128,), np.int64(5))
    """

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays, in their order."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> tuple[Any, ...]: ...
    def take(self, rows: ArrayLike) -> tuple[NDArray[Any], ...]:
        """Reads the same rows of every array.

        Args:
            rows: Their numbers, in this order; negative ones count from the end.

        Returns:
            A tuple of fresh arrays, one for each array.

        Raises:
            IndexError: A number is out of bounds.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> x, y = both.take([3, 1, -1])
            >>> x.shape, y
            ((3, 128), array([  3,   1, 999]))
        """
    def __getitems__(self, rows: Sequence[int]) -> list[tuple[Any, ...]]: ...
    def rows(self, start: int | None = None, stop: int | None = None) -> Zip:
        """Gives the same part of all arrays, without reading it: see `lowtide.Array.rows`.

        Args:
            start, stop: Which rows, as in a slice.

        Returns:
            A `lowtide.Zip` of the rows `start` to `stop`.

        Raises:
            TypeError: A number is not a whole one.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> both.rows(-100)
            <lowtide.Zip of 2 arrays, 100 rows>
        """
    def split(self, sizes: float | Sequence[float], *, seed: int | None = 0) -> tuple[Zip, ...]:
        """Divides the rows among several parts, without reading them: see `lowtide.Array.split`.

        Rows that belong together stay together.

        Args:
            sizes: The share of the first part, such as 0.9, or its number of rows; or a list of either.
            seed: Which split; None cuts the rows in file order.

        Returns:
            A tuple of `lowtide.Zip`s.

        Raises:
            ValueError: The sizes are not all rows together, or a part with a share would have no rows.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> train, val = both.split(0.9, seed=0)
            >>> train, val
            (<lowtide.Zip of 2 arrays, 900 rows>, <lowtide.Zip of 2 arrays, 100 rows>)
        """
    def chunks(
        self,
        rows: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> Chunks[tuple[NDArray[Any], ...]]:
        """Gives all rows in file order, `rows` at a time, as tuples of one chunk for each array.

        Args:
            rows: How many rows a chunk has; the last one may have fewer.
            rank, world_size: Which share of each step, as of `shuffled`; all rows if not given.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.

        Returns:
            A `lowtide.Chunks`. It begins again with every iteration.

        Raises:
            MemoryError: The chunks do not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> for x, y in both.chunks(600):
            ...     print(x.shape, y.shape)
            (600, 128) (600,)
            (400, 128) (400,)
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[tuple[NDArray[Any], ...]]:
        """Gives every row exactly once, in shuffled order, `rows` at a time, as tuples.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks and mixes them, as
                `Array.shuffled` does.
            with_rows: Gives (row numbers, tuple) instead of the tuple.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: The chunks do not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> for numbers, (x, y) in both.shuffled(500, seed=0, with_rows=True):
            ...     print(x.shape, (y == numbers).all())
            (500, 128) True
            (500, 128) True
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[tuple[_Rows, tuple[NDArray[Any], ...]]]:
        """Gives every row exactly once, in shuffled order, `rows` at a time, as tuples.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks and mixes them, as
                `Array.shuffled` does.
            with_rows: Gives (row numbers, tuple) instead of the tuple.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: The chunks do not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> for numbers, (x, y) in both.shuffled(500, seed=0, with_rows=True):
            ...     print(x.shape, (y == numbers).all())
            (500, 128) True
            (500, 128) True
        """
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
        scratch: _Path | None = None,
    ) -> Chunks[Any]:
        """Gives every row exactly once, in shuffled order, `rows` at a time, as tuples.

        Args:
            rows: How many rows a chunk has on each rank; the last one may have fewer.
            seed: Which order; None draws one, which `state_dict` holds.
            epoch: The epoch with which the first iteration begins.
            start: The position, in rows over all ranks, where the first iteration begins.
            repeat: Every iteration is the same epoch again, from its beginning.
            rank, world_size: Which share of each step; if not given, torch.distributed's, torchrun's, Slurm's
                or MPI's, asked at the first chunk at the latest.
            blocks: None is an exact shuffle. "auto" or a number of rows reads whole blocks and mixes them, as
                `Array.shuffled` does.
            with_rows: Gives (row numbers, tuple) instead of the tuple.
            drop_last: Leaves out the last rows, which do not fill a chunk on every rank.
            scratch: A folder on a disk with room for the rows of this rank. They are sorted there first, in
                files without a name: the same rows in the same order, for two reads and one write of the file
                instead of a random read for each row. For small rows of files that are larger than memory.

        Returns:
            A `lowtide.Chunks`.

        Raises:
            MemoryError: The chunks do not fit in the budget; the message says how many rows do.
            ValueError: A number makes no sense, or only one of `rank` and `world_size` is given.

        Examples:
            >>> both = lowtide.zip(lowtide.open("rows.npy"), lowtide.open("labels.npy"))
            >>> for numbers, (x, y) in both.shuffled(500, seed=0, with_rows=True):
            ...     print(x.shape, (y == numbers).all())
            (500, 128) True
            (500, 128) True
        """

@final
class Meter:
    """Watches this process and its children from a thread of its own, until `stop`."""

    def __new__(cls, files: Sequence[str], interval: float | None = None) -> Meter: ...
    def stop(self, command: Sequence[str], tolerance: int | None = None) -> Recording:
        """Stops and returns the recording."""

@final
class Recording:
    """A run that is over: its JSON and its page.

    Args:
        json: Everything, as a pickle has it.
        html: The page.
    """

    def __new__(cls, json: str, html: str) -> Self: ...
    def json(self) -> str:
        """Everything as JSON."""
    def html(self) -> str:
        """The page."""
    def save_html(self, path: str | PathLike[str]) -> None:
        """Writes the page to a temporary name, syncs and renames."""
    def save_json(self, path: str | PathLike[str]) -> None:
        """Writes the JSON likewise."""

class _Converting(TypedDict):
    written: int
    total: int

class _Written(TypedDict):
    rows: int
    bytes: int
    total: int | None

@final
class Writer:
    """An array that is being written, as `lowtide.create` and `lowtide.append` give it.

    As a context manager it closes at the end, and the file appears; an exception discards it. Chunks are
    arrays of whole rows, of the same dtype or of one that NumPy casts to it safely; they are not held.
    Several threads may write; a forked child may not.

    Examples:
        >>> import numpy as np
        >>> w = lowtide.create("new.npy", "float32", (None, 128))
        >>> w.append(np.zeros((3, 128), "float32"))
        >>> w
        <lowtide.Writer "...new.npy" shape=(3, 128) dtype=float32 grows>
        >>> len(w), w.closed
        (3, False)
        >>> w.close()
        >>> w
        <lowtide.Writer "...new.npy" shape=(3, 128) dtype=float32 closed>
    """

    def append(self, chunk: ArrayLike) -> None:
        """Adds rows behind those that were appended before.

        Args:
            chunk: An array of rows, of the array's dtype or of one that NumPy casts to it safely.

        Raises:
            TypeError: Its dtype cannot be cast without loss.
            ValueError: Its rows have another shape, there is no place left for them, or the writer is closed.
            OSError: The disk is full, or fails. The rows are not counted then, and can be appended again.
                Where an object store fails, for longer than `timeout`, the upload is given up.

        Examples:
            >>> import numpy as np
            >>> with lowtide.create("new.npy", "float64", (None, 2)) as w:
            ...     w.append(np.ones((3, 2)))
            ...     w.append(np.ones((2, 2), "float32"))  # every float32 is a float64
            >>> lowtide.open("new.npy").shape
            (5, 2)
        """
    def write(self, start: SupportsIndex, chunk: ArrayLike) -> None:
        """Writes rows from `start` on, of an array whose number of rows is known.

        It is what `w[start:stop] = chunk` does.

        Args:
            start: The first row.
            chunk: An array of rows, as for `append`.

        Raises:
            IndexError: Some of them would be outside the array.
            ValueError: The array grows, or the rows have another shape.
            NotImplementedError: It is an object, and `start` is not where the next rows go.
            TypeError: The dtype cannot be cast without loss.
            OSError: The disk fails.

        Examples:
            >>> import numpy as np
            >>> with lowtide.create("new.npy", "int64", (4,)) as w:
            ...     w.write(2, np.array([3, 4]))
            ...     w.write(0, np.array([1, 2]))
            >>> np.load("new.npy")
            array([1, 2, 3, 4])
        """
    def extend(
        self,
        iterable: Iterable[ArrayLike],
        progress: Callable[[_Written], object] | Literal[False] | None = None,
    ) -> None:
        """Appends every chunk of an iterable.

        Args:
            iterable: Chunks, as for `append`: a generator, or the `chunks` of another array.
            progress: Is called with a dict several times a second. If not given, there is a line on stderr
                where that is a terminal, and elsewhere the logger "lowtide" is told; False says nothing.

        Raises:
            TypeError: As for `append`; or it is not iterable.
            ValueError: As for `append`.
            OSError: As for `append`. What was appended before stays.

        Examples:
            >>> a = lowtide.open("rows.npy")
            >>> with lowtide.create("sorted.npy", a.dtype, (None, 128)) as w:
            ...     w.extend(2 * chunk for chunk in a.chunks(256))
            >>> lowtide.open("sorted.npy").shape
            (1000, 128)
        """
    def flush(self) -> None:
        """Waits until all that was written is on the disk.

        With `lowtide.append` it is part of the file from now on, whatever happens later.

        Raises:
            OSError: The disk is full, or fails.

        Examples:
            >>> import numpy as np
            >>> with lowtide.append("rows.npy") as w:
            ...     w.append(np.zeros((24, 128), "float32"))
            ...     w.flush()
            ...     print(lowtide.open("rows.npy").shape)
            (1024, 128)
        """
    def close(self) -> None:
        """Ends it: the file appears, whole and on the disk. Closed once, it stays closed.

        Raises:
            OSError: The disk is full, the folder is gone, or there is a file of that name by now. The writer
                is still open.
            ValueError: Fewer rows were appended than the shape says.

        Examples:
            >>> w = lowtide.create("new.npy", "uint8", (100,))
            >>> w.close()
            >>> w.closed
            True
        """
    def discard(self) -> None:
        """Gives it up: there is no new file, and an old one is what it was.

        Examples:
            >>> import os
            >>> w = lowtide.create("new.npy", "uint8", (100,))
            >>> w.discard()
            >>> os.path.exists("new.npy")
            False
        """
    @property
    def path(self) -> Path | str:
        """The file, as an absolute path; the address of an object, as a string."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape so far; of a known number of rows, the whole."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
    @property
    def order(self) -> Literal["C", "F"]:
        """The order of the elements in the file: "C" or "F"."""
    @property
    def closed(self) -> bool:
        """Whether it was closed or discarded."""
    def __setitem__(self, key: Any, value: ArrayLike, /) -> None: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Writer: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
        /,
    ) -> None: ...

def append(path: _Path, *, budget: _Size | Budget | None = None, cache: _Cache = "auto") -> Writer:
    """Goes on with a `.npy` file: rows are added to its end.

    The file is what it was until `flush` or `close`: killed before that, it is as if nothing had been added,
    and it can be read all the time. Rows go along the first axis, or the last of a file in Fortran order.

    Args:
        path: A `.npy` file that `np.save`, `lowtide.create` or another program has written.
        budget: As for `lowtide.create`.
        cache: As for `lowtide.create`.

    Returns:
        A `lowtide.Writer`.

    Raises:
        FileNotFoundError: There is no such file.
        OSError: Another writer is at it, or the system says no.
        NotImplementedError: It is no `.npy` file, or its header, from an old NumPy, has no room for a
            larger number.
        ValueError: The header is damaged, or there is something behind the elements.

    Examples:
        >>> import numpy as np
        >>> with lowtide.append("rows.npy") as w:
        ...     w.append(np.zeros((24, 128), "float32"))
        >>> lowtide.open("rows.npy").shape
        (1024, 128)
    """

def create(
    path: _Path,
    dtype: DTypeLike | Literal["bfloat16"],
    shape: SupportsIndex | Sequence[SupportsIndex | None] | None,
    *,
    order: Literal["C", "F"] = "C",
    budget: _Size | Budget | None = None,
    cache: _Cache = "auto",
    overwrite: bool = False,
    storage_options: _StorageOptions | None = None,
) -> Writer:
    """Makes an array on disk, of any size, inside a fixed amount of memory.

    The file is what `np.save` would have written, byte for byte, or bare elements. It appears whole, and on
    the disk, when the writer is closed; until then it has another name beside it, and whatever goes wrong,
    the old file is there or none. What a killed process has left is taken away by the next writer of the
    same file.

    An address such as `s3://bucket/rows.npy` is written in parts, several on their way inside the budget, and
    put together when the writer is closed. Rows of an object come in order: `append` and `extend`, or `write`
    where the next ones go.

    Args:
        path: The file: a `.npy` file if it is called so, else one without a header. `s3://`, `gs://` or
            `az://` for an object.
        dtype: The type of an element: whatever NumPy or torch takes for one.
        shape: The shape. With None for the first axis, rows are appended as they come; a known number of
            rows is reserved on the disk at once, and they may be written in any order. Rows of a known
            number that are never written are zeros.
        order: "C", or "F" for Fortran order, where the last axis may be None, and is written along.
        budget: How much memory is used, pages that wait to be written to the disk included: a size like
            "64MiB" or a `lowtide.Budget`. The default is the smaller of 256 MiB and a quarter of the room.
        cache: What the page cache keeps of the file: "keep", "drop", or "auto", which keeps while it fits
            in half the room.
        overwrite: Replaces a file of that name, once the new one is whole.
        storage_options: How an object store is reached, as for `lowtide.open`.

    Returns:
        A `lowtide.Writer`.

    Raises:
        FileExistsError: There is a file of that name, and `overwrite` is not set.
        OSError: The disk is too full for the shape, another writer is at the same file, or the folder is
            not there.
        ValueError: The shape cannot be.
        NotImplementedError: The dtype is not one that `lowtide.open` reads.
        MemoryError: The budget is too small.

    Examples:
        >>> import numpy as np
        >>> with lowtide.create("new.npy", dtype="float32", shape=(None, 128)) as w:
        ...     for n in range(10):
        ...         w.append(np.full((100, 128), n, "float32"))
        >>> np.load("new.npy").shape
        (1000, 128)
        >>> with lowtide.create("known.npy", "int64", (1000, 4), budget="64MiB") as w:
        ...     w[500:1000] = np.ones((500, 4), "int64")
        ...     w[0:500] = 0
        >>> int(lowtide.open("known.npy")[499:501].sum())
        4
    """

def open(
    path: _Path | Sequence[_Path] | NDArray[Any],
    *,
    dtype: DTypeLike | Literal["bfloat16"] | None = None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    offset: int | None = None,
    astype: DTypeLike | Literal["bfloat16"] | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: _Size | Budget | None = None,
    storage_options: _StorageOptions | None = None,
    local_cache: _Path | None = None,
    local_cache_size: _Size | None = None,
    store: Any = None,
) -> Array:
    """Opens an array on disk, to be read inside a fixed amount of memory.

    No more than the header of the file is read here. The settings hold for everything that is made from
    the array.

    Args:
        path: A `.npy` file, which says its own dtype and shape; any other file, with `dtype`, `shape` and
            `offset` as for `np.memmap`; or an `np.memmap`, whose file, dtype, shape and offset are taken.
            Any of them may be in an object store: "s3://bucket/rows.npy", "gs://…", "az://…", "https://…".
            Several files are one array whose rows follow each other, all of the same dtype and the same
            shape of a row: a list of paths, in its order; a folder (its `.npy` files; with `dtype`, those
            that end in .bin, .raw or .dat) or a glob, sorted by the bytes of the names.
        dtype: The type of an element, for files without a header: whatever NumPy or torch takes for one.
        shape: The shape, for files without a header; one size may be -1. One axis if not given. Of several
            files it is the shape of each.
        offset: The byte where the elements begin, for files without a header; 0 if not given.
        astype: The type that elements become as they are read, "float32" for a file of float16, say, or for
            one of big-endian float32; as `lowtide.Array.astype` has it. The file's own if not given.
        access: How bytes come from the file.
            "auto": chooses for each iteration, whose `access` and `why` say which and why.
            "map": one memory map, held, as `np.memmap` has it; pages that were touched stay.
            "remap": a new map for every window of the file that is walked, as nanoGPT does for a batch.
            "advise": one map, and its pages are dropped behind the reader.
            "read": positioned reads, many in flight where a disk has to be waited for; no map at all.
            "direct": unbuffered reads, many in flight, past the page cache: for cold files larger than
            memory.
        cache: What becomes of the file's pages in the kernel's page cache, which control groups and
            Kubernetes count.
            "keep": they stay as long as the kernel likes.
            "drop": what we add stays within the budget; what was there before us is left alone.
            "auto": keeps while the file fits in half the room that the machine or its control group has,
            else drops.
        budget: How much memory read buffers, read-ahead and mapped windows take together at most: a size
            like "64MiB", a number of bytes, or a `lowtide.Budget` that several arrays share. The default
            is the smaller of 256 MiB and a quarter of the room. Arrays that were handed out are the
            caller's and do not count; `access="map"` is not bounded by it.
        storage_options: How object stores are reached, in the words of pandas and polars:
            {"aws_region": "eu-central-1", "endpoint_url": "http://localhost:9000"}, say. What is not said
            comes from the environment. "timeout" is how long a read may take with all its attempts, "120s"
            if not given.
        local_cache: A folder of this machine in which what comes from an object store is kept: a second pass
            comes from there. Lowtide makes it and marks it; several processes may share it.
        local_cache_size: Its size, "200GiB" say, which it never exceeds; set aside when it is made. Of one
            that is there already it need not be given.
        store: A store of obstore's, such as `obstore.store.S3Store("bucket")`, instead of `storage_options`:
            `path` is a key in it. Its bucket, prefix and settings are taken; connections are made anew, and
            one that fetches credentials by a function of Python's is refused.

    Returns:
        A `lowtide.Array`.

    Raises:
        OSError: The file cannot be opened; `FileNotFoundError` and `PermissionError` are such errors.
        ValueError: The file has no header and there is no `dtype`, the shape does not fit in the file,
            files do not go together, elements cannot become `astype`, or a word or a size is not known. The
            message says what was expected and what was found.
        NotImplementedError: The elements are objects or structures.
        TypeError: `path` is neither a path, nor a list of them, nor an `np.memmap`.

    Examples:
        >>> a = lowtide.open("rows.npy", budget="64MiB")
        >>> a.shape, a.dtype
        ((1000, 128), dtype('float32'))
        >>> b = lowtide.open("rows.bin", dtype="float32", shape=(-1, 128), access="read", cache="drop")
        >>> bool((a[:10] == b[:10]).all())
        True
        >>> twice = lowtide.open(["rows.npy", "rows.npy"])
        >>> twice
        <lowtide.Array "...rows.npy" and 1 more file shape=(2000, 128) dtype=float32 access=auto>
        >>> import numpy as np
        >>> old = np.memmap("rows.bin", dtype="float32", mode="r", shape=(1000, 128))
        >>> lowtide.open(old).shape
        (1000, 128)
    """

def parse_interval(given: float) -> float:
    """The argument `interval`, in seconds."""

def parse_size(given: _Size, name: str, least: int = 1) -> int:
    """The argument `name`, a size such as `"64MiB"` or a number, in bytes."""

def prepare(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    tokenizer: str | PathLike[str] = "gpt2",
    format: _Format = "nanogpt",
    val: float = 0.0,
    seed: int = 0,
    shard_tokens: int | str | None = None,
    input: Literal["text", "lines", "jsonl", "parquet"] | None = None,
    field: str = "text",
    split_lines: bool = False,
    separator: str | None = None,
    include: str | Sequence[str] | None = None,
    on_error: Literal["stop", "skip"] = "stop",
    shuffle_documents: int | None = None,
    threads: int | None = None,
    budget: _Size | Budget | None = None,
    cache: _Cache = "auto",
    progress: Callable[[_Progress], object] | Literal[False] | None = None,
    storage_options: _StorageOptions | None = None,
    work: _Path | None = None,
) -> Prepared:
    """Turns text, JSON lines or Parquet into token files, in bounded memory and on all cores.

    What the command `lowtide prepare` does. Killed or interrupted, the same call goes on where it was; once
    it is done, it does nothing. The files appear whole, beside `lowtide.json`, which says what they are:
    `lowtide.tokens(output)` needs no more.

    Args:
        inputs: A file, a folder (searched to the bottom), a glob, "-" for standard input, or a list of them.
            gzip and zstd are unpacked.
        output: The folder to write into; it is made, if need be. An address such as `s3://bucket/data/`:
            files are made in `work`, and sent when all of them are whole, the manifest last.
        tokenizer: "gpt2", "cl100k_base", "o200k_base", ..., "bytes", "chars", or the path of a Hugging Face
            tokenizer.json.
        format: Which files to write: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
        val: The share of documents for validation, such as 0.0005.
        seed: Which documents are for validation.
        shard_tokens: Ends a shard with the document that reaches this many tokens: a number, or "100M".
        input: What the inputs are: "text", "lines", "jsonl" or "parquet"; by content and name, if not given.
        field: Where the text is in a line of JSON, or in a table: "text", or "document.body".
        split_lines: Makes every line of a text a document: the same as input="lines".
        separator: What stands between the documents of a text.
        include: Which files of a folder to read, such as "*.py"; or a list of such patterns.
        on_error: What to do about a document that cannot be read: "stop", or "skip" and count it. The logger
            "lowtide" is warned of the first twenty, by file, line and byte.
        shuffle_documents: Deals the documents in another order, by this seed, exactly and out of core.
        threads: How many threads make tokens; one for each core, if not given.
        budget: Memory for all of it, such as "256MiB".
        cache: What the page cache keeps of inputs and outputs: "auto", "keep" or "drop".
        progress: Is called with a dict several times a second. If not given, there is a line on stderr where
            that is a terminal, and elsewhere the logger "lowtide" is told; False says nothing.
        storage_options: How the object store of the output is reached, as for `lowtide.open`.
        work: A folder of this machine for files that go to an object store; the system's for temporary files,
            if not given. What was done stays there, should the call be killed.

    Returns:
        A `lowtide.Prepared`.

    Raises:
        FileNotFoundError: There is no such input; other errors of the system are an `OSError` likewise.
        ValueError: A document cannot be read (the message names the file, the line and the byte), an
            argument makes no sense, or the folder holds something else already.
        MemoryError: The budget is too small for so many threads.
        KeyboardInterrupt: Ctrl-C, within a tenth of a second. The same call goes on.

    Examples:
        >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
        >>> made
        <lowtide.Prepared "...data" tokens=50 documents=2 skipped=0 splits=train>
        >>> t = lowtide.tokens("data")
        >>> t.text(0)
        'Once upon a time'
        >>> x, y = t.windows([0], 16)
    """

def release(memmap_array: NDArray[Any]) -> None:
    """Drops the mapped pages of an `np.memmap` in place.

    The array goes on working: pages come back when they are touched. What was written to it stays.

    Args:
        memmap_array: An `np.memmap`, or a view of one, whose part alone is dropped then.

    Raises:
        TypeError: It is not an `np.memmap`.
        ValueError: It is copy-on-write (mode "c"): what was written to it would be lost.

    Examples:
        >>> import numpy as np
        >>> rows = np.memmap("rows.bin", dtype="float32", mode="r", shape=(1000, 128))
        >>> total = rows.sum()  # now all of it counts as memory of this process
        >>> lowtide.release(rows)
        >>> bool(rows.sum() == total)
        True
    """

def tokens(
    path: _Path | Sequence[_Path],
    *,
    split: str | None = None,
    dtype: DTypeLike | None = None,
    format: _Format | None = None,
    end_of_text: int | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: _Size | Budget | None = None,
    storage_options: _StorageOptions | None = None,
    local_cache: _Path | None = None,
    local_cache_size: _Size | None = None,
    store: Any = None,
) -> Tokens:
    """Opens a stream of tokens: one file or many, read as one.

    What the files are is told from their content; `lowtide info` shows it.

    Args:
        path: A file, a folder, a glob, a Megatron prefix, or a list of them, in the order of the stream. A
            folder that `lowtide.prepare` has made says by itself what its files are. Any of them may be in an
            object store: "s3://bucket/shards/" is a folder there.
        split: Which split of such a folder: "train", unless said, or "val".
        dtype: The type of a token, for files that do not say. A bare `.bin` is uint16 without it.
        format: The dialect, instead of what the files look like: "nanogpt", "llmc", "megatron",
            "datatrove", "npy", "olmo" or "raw".
        end_of_text: The token between documents, for files without an index of them; 50256 is GPT-2's.
        access: How to read, as for `lowtide.open`.
        cache: What becomes of the page cache, as for `lowtide.open`.
        budget: Inside how much memory, as for `lowtide.open`.
        storage_options: How object stores are reached, as for `lowtide.open`.
        local_cache: A folder in which what comes from an object store is kept, as for `lowtide.open`.
        local_cache_size: Its size, as for `lowtide.open`.
        store: A store of obstore's that `path` is in, as for `lowtide.open`.

    Returns:
        A `lowtide.Tokens`.

    Raises:
        OSError: A file cannot be opened; `FileNotFoundError` and `PermissionError` are such errors.
        ValueError: What a file is cannot be told, or it is damaged, or files do not belong together. The
            message says what was expected, what was found, and the way out.
        NotImplementedError: The numbers in a file are no integers.
        TypeError: `path` is neither a path nor a list of paths.

    Warns:
        UserWarning: A bare `.bin` looks like another type than it is read as; `dtype=` says which it is.

    Examples:
        >>> t = lowtide.tokens("train.bin", budget="64MiB")
        >>> x, y = t.windows([0, 7, 1000], 64)
        >>> for x, y in t.loader(batch_size=12, block_size=1024, seed=0):
        ...     assert x.shape == (12, 1024)
        >>> len(lowtide.tokens(["train.bin", "val.bin"]))
        400000
        >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
        >>> lowtide.tokens("data")
        <lowtide.Tokens "...train.bin" split=train tokens=50 dtype=uint16 format=nanogpt access=auto>
    """

def shuffle(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    seed: int = 0,
    epoch: int = 0,
    dtype: DTypeLike | None = None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    offset: int | None = None,
    budget: _Size | Budget | None = None,
    overwrite: bool = False,
    progress: Callable[[dict[str, Any]], object] | Literal[False] | None = None,
    storage_options: _StorageOptions | None = None,
    work: _Path | None = None,
) -> dict[str, Any]:
    """Writes the rows of a file in shuffled order into another, inside a fixed amount of memory.

    The result is what `lowtide.open(path).shuffled(n, seed=seed)` gives, bit for bit. Data is read twice and
    written twice; three times where the budget is small for it, which the logger `lowtide` is told before.
    Until the new file is whole, a folder beside it holds what was done; killed at any moment, the same call
    goes on with it, and the result is the same. It appears whole or not at all.

    Args:
        inputs: A path as for `lowtide.open`; or a list of them, all with the same rows, which are shuffled
            alike.
        output: The file to write: `.npy` by its name, else rows and nothing before them. For a list, a folder
            for files of the same names. An address such as `s3://bucket/rows.npy`: the file is made in
            `work`, sent when it is whole, and taken away there.
        seed: Which order, as for `shuffled`.
        epoch: Which epoch of it.
        dtype: The type of an element, for files without a header.
        shape: Their shape; one size may be -1.
        offset: The byte where their elements begin.
        budget: How much memory is used at most: a size like "64MiB", or a number of bytes. The default is the
            smaller of 256 MiB and a quarter of the room.
        overwrite: Replaces files that are there already, once the new ones are whole.
        progress: A function that is called with a dict now and then: `step` ("runs" or "rows"; of three
            passes the second is "merging"), `written` and `total` in bytes, what was written `before`, and
            how many `passes` there are; `step` is "sending" while files go to an object store. By default a
            line on the terminal; False for silence.
        storage_options: How object stores are reached, those of the inputs and of the output, as for
            `lowtide.open`.
        work: A folder of this machine for files that go to an object store: twice the data. The system's for
            temporary files, if not given. What was done stays there, should the call be killed.

    Returns:
        A dict: the new `files`, their `rows`, the `bytes` of all rows, how many `passes` wrote them, and how
        many bytes of all passes were `written_before`, by an earlier call.

    Raises:
        FileExistsError: The output is there already.
        OSError: The disk has no room for twice the data, or a file cannot be read or written.
        ValueError: The inputs have different lengths.
        MemoryError: A row is too large for the budget.

    Examples:
        >>> made = lowtide.shuffle("labels.npy", "shuffled.npy", seed=1)
        >>> made["rows"]
        1000
        >>> first = next(lowtide.open("labels.npy").shuffled(1000, seed=1))
        >>> bool((lowtide.open("shuffled.npy")[...] == first).all())
        True
    """

def shuffle_documents(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    seed: int = 0,
    epoch: int = 0,
    split: str | None = None,
    dtype: DTypeLike | None = None,
    format: str | None = None,
    end_of_text: int | None = None,
    budget: _Size | Budget | None = None,
    progress: Callable[[dict[str, Any]], object] | Literal[False] | None = None,
    storage_options: _StorageOptions | None = None,
    work: _Path | None = None,
) -> dict[str, Any]:
    """Writes the documents of token files in shuffled order into others, inside a fixed amount of memory.

    Documents stay whole. Their order is that of rows in a shuffled pass: the document at position k is the
    one whose number `shuffled(seed=seed)` over as many rows has there. The format stays the same, and so does
    the type of a token. Killed at any moment, the same call goes on, and the result is the same.

    Args:
        inputs: As for `lowtide.tokens`: a file, a folder, a glob, a prefix, or a list of them: one stream.
        output: A folder for the new files; it is made, if need be. An address such as `s3://bucket/shuffled/`:
            files are made in `work`, and sent when all of them are whole.
        seed: Which order, as for `shuffled`.
        epoch: Which epoch of it.
        split: Which split of a folder that `lowtide.prepare` has made; `train` if not given.
        dtype: The type of a token, for files that do not say it.
        format: The dialect of the files, instead of what they look like.
        end_of_text: The token between documents, for files without an index of them; 50256 is GPT-2's.
            Documents that have none, as the last of a file may, get one: else they would run into the next.
        budget: How much memory is used at most: a size like "64MiB", or a number of bytes. The default is the
            smaller of 256 MiB and a quarter of the room.
        progress: A function that is called with a dict now and then: `step` ("runs" or "rows"), `written` and
            `total` in bytes, what was written `before`, and how many `passes` there are. By default a line on
            the terminal; False for silence.
        storage_options: How object stores are reached, those of the inputs and of the output, as for
            `lowtide.open`.
        work: A folder of this machine for files that go to an object store, as for `lowtide.shuffle`.

    Returns:
        A dict: the new `files`, their `documents` and `tokens`, how many `end_of_text_added`, the `bytes` of
        all tokens that were read, and how many were `written_before`.

    Raises:
        ValueError: Nothing says where documents end, or the folder holds something else.
        OSError: The disk has no room for twice the data, or a file cannot be read or written.
        MemoryError: The budget is too small.

    Examples:
        >>> made = lowtide.shuffle_documents("train.bin", "shuffled", seed=1, end_of_text=50256)
        >>> made["documents"] == lowtide.tokens("train.bin", end_of_text=50256).documents
        True
    """

def convert(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    dtype: DTypeLike | None = None,
    byte_order: Literal["little", "big", "native"] | None = None,
    order: Literal["C", "F"] | None = None,
    format: _Format | None = None,
    end_of_text: int | None = None,
    shard_tokens: int | str | None = None,
    lossy: bool = False,
    overwrite: bool = False,
    in_dtype: DTypeLike | None = None,
    in_shape: int | Sequence[int] | None = None,
    in_offset: int | None = None,
    in_order: Literal["C", "F"] | None = None,
    in_format: str | None = None,
    budget: _Size | Budget | None = None,
    cache: _Cache = "auto",
    progress: Callable[[_Converting], object] | Literal[False] | None = None,
    storage_options: _StorageOptions | None = None,
    work: _Path | None = None,
) -> dict[str, Any]:
    """Writes an array, or tokens, into other files that say the same, inside a fixed amount of memory.

    Arrays go between `.npy` and raw files, byte orders, element types, C and Fortran order; with `format=`,
    token files become those of another format. The output appears whole or not at all; killed at any moment,
    it leaves nothing that the next call does not take away. What would be lost is an error that names it.

    Args:
        inputs: A path as for `lowtide.open`, or for `lowtide.tokens` with `format=`: a file, a folder, a
            glob, or a list of files whose rows or tokens follow each other.
        output: The file to write: a `.npy` file if it is called so, else one without a header. With `format=`
            a folder, with a manifest, as `lowtide.prepare` makes it. An address such as `s3://bucket/rows.npy`
            is written to in parts that are put together at the end; the order of the axes stays then.
        dtype: Its element type; the input's if not given. Every value has to survive: 3.0 becomes the int8 3,
            3.5 and 300.0 are errors.
        byte_order: "little", "big" or "native"; that of the dtype if not given.
        order: "C", or "F" for Fortran order; the input's if not given, and "C" for files without a header.
        format: Makes token files: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
            Documents are kept; where the new format has no index of them, `end_of_text` stands between them.
        end_of_text: The token between documents, for files without an index of them. A prepared folder knows.
        shard_tokens: A file of tokens ends with the document that reaches this: a number, or "100M".
        lossy: Lets be lost what the output cannot hold: values become what `astype` makes of them.
        overwrite: Replaces an output of that name, once the new one is whole.
        in_dtype: The element type of an input without a header.
        in_shape: Its shape; one size may be -1.
        in_offset: The byte where its elements begin.
        in_order: The order of its elements: "C" if not given, or "F".
        in_format: What input tokens are written in, instead of what they look like: see `lowtide.tokens`.
        budget: How much memory is used, dirty pages included: a size like "64MiB" or a `lowtide.Budget`. The
            default is the smaller of 256 MiB and a quarter of the room.
        cache: What the page cache keeps of both files: "keep", "drop", or "auto", which keeps what fits in
            half the room.
        progress: A function that is called with a dict now and then: `written` and `total`, in bytes. What it
            raises ends the work. By default a line on the terminal; False for silence.
        storage_options: How object stores are reached, as for `lowtide.open`: those of inputs and output.
        work: A folder of this machine in which token files are made that go to an object store; the system's
            for temporary files, if not given.

    Returns:
        A dict: `path`, `shape`, `dtype`, `order` and `bytes` of the new file; of tokens `path`, `format`,
        `dtype`, `tokens`, `documents` and `files`.

    Raises:
        ValueError: Something would be lost; or a header is damaged.
        FileExistsError: There is a file of that name, and `overwrite` is not set.
        OSError: The disk has no room for the new file, which is said before anything is written.
        MemoryError: The budget is too small.

    Examples:
        >>> made = lowtide.convert("rows.npy", "columns.npy", order="F")
        >>> made["shape"], made["dtype"], made["order"]
        ((1000, 128), '<f4', 'F')
        >>> raw = {"in_dtype": "float32", "in_shape": (-1, 128)}
        >>> made = lowtide.convert("rows.bin", "wide.npy", dtype=">f8", **raw)
        >>> lowtide.convert("rows.npy", "small.npy", dtype="float16")
        Traceback (most recent call last):
            ...
        ValueError: ...rows.npy: at byte 8324: expected a value that float16 can hold, found 2049.0 at [16, 1]
        hint: lossy=True converts it all the same, as astype does
        >>> made = lowtide.convert("train.bin", "shards", format="llmc", shard_tokens=100_000)
        >>> made["tokens"], [file.name for file in made["files"]]
        (200000, ['train-00000.bin', 'train-00001.bin'])
        >>> bool(lowtide.verify("shards"))
        True
    """

def verify(
    paths: _Path | Sequence[_Path],
    *,
    vocab: int | None = None,
    dtype: DTypeLike | None = None,
    shape: int | Sequence[int] | None = None,
    format: str | None = None,
    budget: _Size | Budget | None = None,
    progress: Callable[[int, int], object] | None = None,
    storage_options: _StorageOptions | None = None,
) -> Verified:
    """Checks files: a folder that `lowtide.prepare` has made against its manifest, byte by byte.

    Sizes, checksums, and that every id is in the vocabulary; nothing is changed. Token files without a
    manifest are checked against their headers and indexes, arrays against their headers, and every byte is
    read: at the speed of the disk, inside the budget.

    Args:
        paths: A prepared folder, a token file, an array, or a list of them.
        vocab: How many ids the tokenizer has: a token that is none is found. A prepared folder knows.
        dtype: The type of tokens, or of an array without a header.
        shape: The shape of an array without a header; one size may be -1.
        format: What token files are written in, instead of what they look like: see `lowtide.tokens`.
        budget: How much memory to use.
        progress: A function of bytes done and bytes in all, called now and then; what it raises ends it.
        storage_options: How object stores are reached, as for `lowtide.open`.

    Returns:
        A `lowtide.Verified`: look at `ok` and `findings`.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: A manifest or a header is damaged, a file is neither tokens nor an array, or there is
            none.

    Examples:
        >>> made = lowtide.prepare("story.txt", "data", tokenizer="bytes", split_lines=True)
        >>> lowtide.verify("data")
        <lowtide.Verified ok files=1 bytes=100>
        >>> lowtide.verify("data").findings
        []
        >>> bool(lowtide.verify("rows.npy"))
        True
    """

def zip(*arrays: Array) -> Zip:
    """Reads several arrays together, row by row.

    Args:
        arrays: Arrays that `lowtide.open` returned, of equally many rows.

    Returns:
        A `lowtide.Zip`.

    Raises:
        ValueError: The arrays have different lengths, or there is none.
        TypeError: Something is not an array of ours.

    Examples:
        >>> rows, labels = lowtide.open("rows.npy"), lowtide.open("labels.npy")
        >>> for x, y in lowtide.zip(rows, labels).shuffled(500, seed=0):
        ...     print(x.shape, y.shape)
        (500, 128) (500,)
        (500, 128) (500,)
    """

def main(arguments: Sequence[str], python: str | PathLike[str] | None) -> int:
    """Runs the command and returns its exit code."""

def _reopen(path: _Path, arguments: dict[str, Any]) -> Array: ...
def _reopen_prepared(folder: _Path, storage_options: _StorageOptions | None = None) -> Prepared: ...
def _verified(files: int, bytes: int, findings: list[tuple[Path, str]]) -> Verified: ...
def _reopen_tokens(files: tuple[_Path, ...], arguments: dict[str, Any]) -> Tokens: ...

@final
class _Preparing:
    def __new__(
        cls,
        inputs: _Path | Sequence[_Path],
        output: _Path,
        *,
        tokenizer: str | PathLike[str] | None = None,
        format: str = "nanogpt",
        val: float = 0.0,
        seed: int = 0,
        shard_tokens: int | str | None = None,
        input: str | None = None,
        field: str = "text",
        split_lines: bool = False,
        separator: str | None = None,
        include: str | Sequence[str] | None = None,
        on_error: str = "stop",
        shuffle_documents: int | None = None,
        budget: _Size | Budget | None = None,
        cache: str = "auto",
        part_bytes: int | None = None,
        progress: Callable[[Any], object] | Literal[False] | None = None,
    ) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def portion(self, number: int) -> tuple[int, str, tuple[int, int, int] | None]: ...
    def tell(self, read: int, documents: int, tokens: int, skipped: int, resumed: int) -> None: ...
    def finish(self) -> Prepared: ...
    def close(self) -> None: ...

@final
class _Shuffling:
    def __new__(
        cls,
        inputs: _Path | Sequence[_Path],
        output: _Path,
        *,
        seed: int = 0,
        epoch: int = 0,
        dtype: Any = None,
        shape: Any = None,
        offset: int | None = None,
        budget: _Size | Budget | None = None,
        overwrite: bool = False,
    ) -> Self: ...
    @property
    def budget(self) -> int: ...
    def described(self) -> str: ...
    def to_do(self) -> tuple[str, list[int]]: ...
    def done(self, step: str, number: int) -> tuple[int, int, int]: ...
    def finish(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

def _prepare_portion(task: str) -> tuple[int, int, int]: ...
def _shuffle_unit(
    described: str,
    step: str,
    number: int,
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    seed: int = 0,
    epoch: int = 0,
    dtype: Any = None,
    shape: Any = None,
    offset: int | None = None,
    budget: _Size | Budget | None = None,
) -> None: ...
