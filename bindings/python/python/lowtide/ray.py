"""Ray: arrays and token files as datasets, and tokens and shuffled files made by many machines.

``read_array`` and ``read_tokens`` give rows that many machines process, each task reading only its own.
``prepare`` and ``shuffle`` make the files that ``lowtide.prepare`` and ``lowtide.shuffle`` make, by tasks.
What is sent to a task of a dataset is a path, settings and a range of rows; the task opens the file itself.
It reads one block inside the budget and hands it to Ray, so that no task holds more than its block, however
large the file is. Ray is an optional extra: nothing else in ``lowtide`` imports it.

Training needs no Ray dataset: ``tokens.loader`` inside ``train_loop_per_worker`` knows its rank, reads ahead,
and has a state for checkpoints, which a Ray dataset does not have (docs/ray.md).

>>> import lowtide.ray
>>> rows = lowtide.ray.read_array("rows.npy")
>>> rows.count()
1000
>>> rows.map_batches(lambda batch: {"mean": batch["data"].mean(axis=1)}).take(1)
[{'mean': ...63.5...}]
"""

from __future__ import annotations

import functools
import itertools
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import numpy as np
import ray
import ray.data
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.context import DataContext
from ray.data.datasource import Datasource, ReadTask

from lowtide._arguments import whole
from lowtide._lowtide import Array, Budget, Tokens
from lowtide._lowtide import open as _open
from lowtide._lowtide import tokens as _tokens
from lowtide._ray_tasks import prepare, shuffle

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import DTypeLike, NDArray

    from lowtide._lowtide import _Format

__all__ = ["prepare", "read_array", "read_tokens", "shuffle"]

_Path = str | bytes | PathLike[str] | PathLike[bytes]
_Access = Literal["auto", "map", "remap", "advise", "read", "direct"]
_Cache = Literal["auto", "keep", "drop"]

_BLOCK = 128 << 20  # Ray's own target for a block: larger ones make its scheduler and its object store suffer
_STEP = 4 << 20  # bytes of tokens that are read at a time, beside the block of windows that they become
_SENT = 64 << 10  # bytes that go with every task at most


def read_array(
    path: _Path | Sequence[_Path] | NDArray[Any] | Array,
    *,
    column: str = "data",
    dtype: DTypeLike | Literal["bfloat16"] | None = None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    offset: int | None = None,
    astype: DTypeLike | Literal["bfloat16"] | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: int | str | Budget | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    num_cpus: float | None = None,
    memory: float | None = None,
) -> ray.data.Dataset:
    """Gives the rows of an array as a Ray dataset of one column.

    Blocks are in file order. Ray hands out whichever is ready first, unless
    ``DataContext.get_current().execution_options.preserve_order`` is set.

    Only headers are read here; how many rows there are, their size and their type are known without a task.
    Each task opens the file on its node, by the same path, and gives one block: as many rows as fit in 128
    MiB, in Ray's ``target_max_block_size`` and in the budget.

    Args:
        path: What ``lowtide.open`` takes: a file, a list of them, a folder, a glob, an ``np.memmap``. Or an
            array that is open already, or a part of one (``a.rows(...)``, ``a.split(...)``): what it was
            opened with holds, and is not given here.
        column: The name of the column: a tensor for each row, or a number where the array has one axis.
        dtype: The type of an element, for files without a header, as for ``lowtide.open``.
        shape: The shape, for files without a header.
        offset: The byte where the elements begin, for files without a header.
        astype: The type that elements become as they are read. Another byte order becomes this machine's
            anyway: Ray's columns have no other.
        access: How bytes come from the file, as for ``lowtide.open``.
        cache: What becomes of the file's pages in the page cache of each node.
        budget: How much memory the buffers of a task take at most. Each task has a budget of its own.
        override_num_blocks: How many tasks share the rows. If not given, one for each block. If there are
            fewer, each gives several blocks, and Ray gathers up to ``target_max_block_size`` of them.
        concurrency: How many tasks run at once at most.
        num_cpus: How many CPUs Ray reserves for a task.
        memory: How many bytes of memory Ray reserves for a task.

    Returns:
        A ``ray.data.Dataset``.

    Raises:
        OSError: The file cannot be opened here. If it is missing on a node, the same error comes from the
            dataset, and names the node.
        ValueError: As for ``lowtide.open``; or the array is a single element, which has no rows. From the
            dataset: the file on a node is another one than here.
        TypeError: Ray has no columns of such elements, or an open array came with settings.
        MemoryError: A row does not fit in the budget.

    >>> import lowtide, lowtide.ray
    >>> rows = lowtide.ray.read_array("rows.npy", budget="64MiB")
    >>> for batch in rows.iter_batches(batch_size=500):
    ...     print(batch["data"].shape, batch["data"].dtype)
    (500, 128) float32
    (500, 128) float32
    >>> train, val = lowtide.open("rows.npy").split(0.9, seed=0)
    >>> lowtide.ray.read_array(val).count()
    100
    """
    settings = {"dtype": dtype, "shape": shape, "offset": offset, "astype": astype, "budget": budget}
    given = _given(settings, access, cache)
    array = _unless_given(path, given) if isinstance(path, Array) else _open(path, **given)
    if array.ndim == 0:
        raise ValueError(f"{array.path}: a single element has no rows\nhint: array[()] reads it")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    source = _Rows(
        "Array", array, _array_blocks, (column,), column, (len(array), *array.shape[1:]), array.dtype
    )
    source.least = _least(array, source.most)
    return source.dataset(override_num_blocks, concurrency, num_cpus, memory)


def read_tokens(
    path: _Path | Sequence[_Path] | Tokens,
    block_size: int,
    *,
    column: str = "tokens",
    dtype: DTypeLike | None = "int64",
    split: str | None = None,
    file_dtype: DTypeLike | None = None,
    format: _Format | None = None,
    access: _Access = "auto",
    cache: _Cache = "auto",
    budget: int | str | Budget | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    num_cpus: float | None = None,
    memory: float | None = None,
) -> ray.data.Dataset:
    """Gives the windows of a stream of tokens as a Ray dataset of one column.

    Row k is the ``block_size`` + 1 tokens from token k × ``block_size`` on: ``x`` is all but the last of
    them, ``y`` all but the first, and the last token of a row is the first of the next. Of N tokens there are
    ⌊(N − 1) / ``block_size``⌋ rows, and fewer than ``block_size`` tokens at the end are in none. These are
    the windows of ``lowtide.torch.WindowDataset``. A loader's sequential epoch has such cuts too, moved by an
    offset that differs from epoch to epoch. About order, see ``read_array``.

    Args:
        path: What ``lowtide.tokens`` takes: a file, a folder, a glob, a Megatron prefix, or a list of them.
            Or tokens that are open already: what they were opened with holds, and is not given here.
        block_size: How many tokens ``x`` has.
        column: The name of the column.
        dtype: The integers of the column; None has those of the files, which take the least memory.
        split: Which split of a folder that ``lowtide.prepare`` has made.
        file_dtype: The type of a token in files that do not say: ``dtype`` of ``lowtide.tokens``.
        format: The dialect, instead of what the files look like.
        access: How bytes come from the files, as for ``lowtide.open``.
        cache: What becomes of the files' pages in the page cache of each node.
        budget: How large a block is at most, if that is less than 128 MiB.
        override_num_blocks: How many tasks share the windows, as for ``read_array``.
        concurrency: How many tasks run at once at most.
        num_cpus: How many CPUs Ray reserves for a task.
        memory: How many bytes of memory Ray reserves for a task.

    Returns:
        A ``ray.data.Dataset``.

    Raises:
        OSError: A file cannot be opened, here or on a node, as for ``read_array``.
        ValueError: As for ``lowtide.tokens``; or there are fewer tokens than a window takes. From the
            dataset: a token does not fit in ``dtype``, or the files on a node are others than here.
        TypeError: Open tokens came with settings.

    >>> import lowtide.ray
    >>> windows = lowtide.ray.read_tokens("train.bin", block_size=1024)
    >>> windows.count()
    195
    >>> for batch in windows.iter_batches(batch_size=64):
    ...     x, y = batch["tokens"][:, :-1], batch["tokens"][:, 1:]
    ...     assert x.shape == y.shape
    """
    settings = {"split": split, "dtype": file_dtype, "format": format, "budget": budget}
    given = _given(settings, access, cache)
    stream = _unless_given(path, given) if isinstance(path, Tokens) else _tokens(path, **given)
    size = whole(block_size, "block_size")
    if size < 1:
        raise ValueError(f"block_size is {size}\nhint: a window has one token or more")
    count = (len(stream) - 1) // size
    if count < 1:
        raise ValueError(
            f"a window is {size} tokens and the one after them, there are only {len(stream)} tokens"
            "\nhint: a smaller block_size"
        )
    kind = (stream.dtype if dtype is None else np.dtype(dtype)).newbyteorder("=")
    if kind.kind not in "iu":
        raise ValueError(f"tokens are integers, which dtype={kind} is not\nhint: int64, the default")
    source = _Rows("Tokens", stream, _token_blocks, (column, size, kind), column, (count, size + 1), kind)
    return source.dataset(override_num_blocks, concurrency, num_cpus, memory)


def _least(array: Array, most: int) -> int:
    """Give the fewest rows that are read as a block, up to a factor of two.

    That is one, but for a file in Fortran order: few of its rows at a time are a pass over the file each.
    What cannot be read in blocks at all is refused here, not in a task.
    """
    least = 1
    while len(array) > 0:
        try:
            array.chunks(min(least, most))
            break
        except NotImplementedError:
            if least >= most:
                raise
            least *= 2
    return min(least, most)


def _given(settings: Mapping[str, Any], access: str, cache: str) -> dict[str, Any]:
    """Leave out what was not said."""
    words = {name: word for name, word in (("access", access), ("cache", cache)) if word != "auto"}
    return {name: value for name, value in settings.items() if value is not None} | words


def _unless_given(opened: Any, given: Mapping[str, Any]) -> Any:
    """Give what is open already, which has its settings."""
    if given:
        raise TypeError(
            f"{', '.join(given)}: {opened!r} is open already\n"
            "hint: give a path, or open it with these settings"
        )
    return opened


class _Rows(Datasource):
    """What Ray asks for tasks: rows of one column, in ranges."""

    def __init__(
        self,
        name: str,
        opened: Array | Tokens,
        blocks: Callable[..., Iterator[Any]],
        arguments: tuple[Any, ...],
        column: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        if not (dtype.kind in "biuf" and dtype.itemsize <= 8):
            raise TypeError(
                f"{opened.files[0]}: Ray has no columns of dtype {dtype}\n"
                'hint: astype="float32", or another type that Arrow has'
            )
        self._name = name
        self._files = tuple(map(str, opened.files))
        self._pickle = pickle.dumps(opened)
        self._budget = opened.budget.limit
        self._blocks = functools.partial(blocks, *arguments)
        self._rows = shape[0]
        row = np.zeros((1, *shape[1:]), dtype)
        block = _block(column, row)
        self._schema = block.schema
        # Arrow's booleans are bits. To a tensor it adds the place where the next one begins.
        self._row_bits: int = row.size * (1 if dtype.kind == "b" else 8 * dtype.itemsize)
        self._row_extra: int = block.nbytes - -(-self._row_bits // 8)
        self._row_bytes: int = max(row.nbytes, block.nbytes)
        self._fixed = False
        self.least = 1

    @property
    def most(self) -> int:
        """The most rows of a block, unless Ray says less."""
        return self._most(_BLOCK)

    def _most(self, target: int) -> int:
        return max(1, min(_BLOCK, target, self._budget) // max(1, self._row_bytes))

    def _size(self, rows: int) -> int:
        """Count the bytes of a block of so many rows."""
        return rows * self._row_extra - -(rows * self._row_bits) // 8

    def dataset(
        self,
        override_num_blocks: int | None,
        concurrency: int | None,
        num_cpus: float | None,
        memory: float | None,
    ) -> ray.data.Dataset:
        """Give the dataset."""
        self._fixed = override_num_blocks is not None
        dataset: ray.data.Dataset = ray.data.read_datasource(
            self,
            override_num_blocks=override_num_blocks,
            concurrency=concurrency,
            num_cpus=num_cpus,
            memory=memory,
        )
        return dataset

    def get_name(self) -> str:
        """Name it in Ray's progress and statistics, after the word "Read"."""
        return self._name

    def estimate_inmemory_data_size(self) -> int:
        """Say how many bytes all rows are, exactly."""
        return self._size(self._rows)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        """Give tasks of one block each; with ``override_num_blocks``, that many."""
        target = (data_context or DataContext.get_current()).target_max_block_size
        most = max(self.least, self._most(target or _BLOCK))
        tasks = parallelism if self._fixed else max(parallelism, -(-self._rows // most))
        tasks = min(tasks, self._rows // self.least)
        # A long list of files goes into Ray's store once, not with every task.
        sent = self._pickle if len(self._pickle) <= _SENT else ray.put(self._pickle)
        read: list[ReadTask] = []
        for start, stop in _ranges(self._rows, tasks):
            if per_task_row_limit is not None:
                stop = min(stop, start + max(self.least, per_task_row_limit))
            # Ray waits for more than its target before it takes blocks out of a task that gives several: two
            # whole ones, copied into one. Of quarters it takes five.
            step = stop - start if stop - start <= most else max(self.least, most // 4)
            metadata = BlockMetadata(
                num_rows=stop - start,
                size_bytes=self._size(stop - start),
                # Those of all tasks: a thousand names need not go with every one.
                input_files=() if read else self._files,
                exec_stats=None,
            )
            task = functools.partial(_read, sent, self._blocks, start, stop, step)
            read.append(ReadTask(task, metadata, self._schema, per_task_row_limit))
        return read


def _ranges(rows: int, tasks: int) -> list[tuple[int, int]]:
    """Divide rows among tasks: in order, none more than one row larger than another, none empty."""
    tasks = max(1, min(rows, tasks))
    return list(itertools.pairwise(rows * task // tasks for task in range(tasks + 1)))


def _read(
    sent: bytes | ray.ObjectRef[Any], blocks: Callable[..., Iterator[Any]], start: int, stop: int, step: int
) -> Iterator[pyarrow.Table]:
    """Read a range of rows in a task, as blocks of ``step`` rows."""
    # Opened here and not while Ray unpickles the task: there an error would hide in one of Ray's own.
    data = sent if isinstance(sent, bytes) else ray.get(sent)
    try:
        opened = pickle.loads(data)
    except (OSError, ValueError) as error:
        node = f"node {socket.gethostname()} ({ray.util.get_node_ip_address()})"
        if not isinstance(error, OSError):
            raise ValueError(f"on {node}: {error}") from None
        hint = "every node opens the file itself: it must be there under this path"
        raise type(error)(f"on {node}: {error}\nhint: {hint}") from None
    with opened:
        yield from blocks(opened, start, stop, step)


def _array_blocks(column: str, array: Array, start: int, stop: int, step: int) -> Iterator[pyarrow.Table]:
    if start == stop:  # an array without rows: Ray learns the type of its column
        empty = np.zeros((1, *array.shape[1:]), array.dtype)
        return iter([_block(column, empty).slice(0, 0)])
    # No variable here holds a chunk while the next one is read.
    return map(functools.partial(_block, column), array.rows(start, stop).chunks(step))


def _token_blocks(
    column: str, size: int, dtype: np.dtype[Any], tokens: Tokens, start: int, stop: int, step: int
) -> Iterator[pyarrow.Table]:
    for first in range(start, stop, step):
        yield _block(column, _windows(tokens, size, dtype, first, min(stop, first + step)))


def _windows(tokens: Tokens, size: int, dtype: np.dtype[Any], start: int, stop: int) -> NDArray[Any]:
    """Read windows that follow each other, as one run of tokens a step."""
    windows = np.empty((stop - start, size + 1), dtype)
    step = max(1, _STEP // (size * tokens.dtype.itemsize))
    for first in range(start, stop, step):
        last = min(stop, first + step)
        run = tokens[first * size : last * size + 1]
        if not np.can_cast(run.dtype, dtype) and (large := run > np.iinfo(dtype).max).any():
            place = int(large.argmax())
            raise ValueError(
                f"token {run[place]}, number {first * size + place} of the stream, does not fit in {dtype}\n"
                f"hint: dtype=None gives {run.dtype}, which holds every token of these files"
            )
        windows[first - start : last - start] = np.lib.stride_tricks.sliding_window_view(run, size + 1)[
            ::size
        ]
    return windows


def _block(column: str, rows: NDArray[Any]) -> pyarrow.Table:
    """Make a block of Ray's over the same memory."""
    return BlockAccessor.batch_to_arrow_block({column: rows})
