"""Work that Ray's tasks share: ``lowtide.ray.prepare`` and ``lowtide.ray.shuffle``.

A task is told what to do in a few kilobytes, writes to a place of its own in a folder that every node sees,
syncs, and answers with a few numbers. Done again, or twice at once, it writes the same bytes: so a worker may
be killed at any moment, and Ray starts its task again. One process, the driver, has the output, keeps few
tasks in flight, and gives the files their names when all is done.
"""

from __future__ import annotations

import collections
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

import ray
import ray.exceptions

from lowtide._lowtide import (
    Budget,
    Prepared,
    __version__,
    _prepare_portion,
    _Preparing,
    _shuffle_unit,
    _Shuffling,
    parse_size,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_Path = str | bytes | PathLike[str] | PathLike[bytes]
_Size = int | str

# What a disk or a network may say once and not again. All else is said to the user at once: Ray would start a
# task for a file that is missing again and again.
_PASSING = {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EINTR,
    errno.ECONNRESET,
    errno.EREMOTEIO,
}
_TRIES = 5


def prepare(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    tokenizer: str | PathLike[str] = "gpt2",
    format: Literal["nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"] = "nanogpt",
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
    budget: _Size | Budget | None = None,
    cache: Literal["auto", "keep", "drop"] = "auto",
    part_bytes: _Size | None = None,
    concurrency: int | None = None,
    progress: Callable[[Any], object] | Literal[False] | None = None,
) -> Prepared:
    """Turns text, JSON lines or Parquet into token files, by Ray's tasks on all nodes.

    The files are those of ``lowtide.prepare``, byte for byte, the manifest included. A task makes tokens of a
    part of the input: some small files, a large one, or a range of a large one that has a document in each
    line or between separators. The driver puts them together. Workers may be killed at any moment. So may the
    driver: the same call goes on with the parts that are there.

    Every node sees the inputs and the output under the same paths, as on a shared filesystem, and has the
    same version of Lowtide. Until all is done, the output holds the tokens twice.

    Args:
        inputs: A file, a folder, a glob, or a list of them, as for ``lowtide.prepare``. Standard input comes
            to one machine only, and is refused.
        output: The folder to write into; it is made, if need be.
        tokenizer: As for ``lowtide.prepare``. For "chars" the driver reads all inputs once, first.
        format: Which files to write: "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo" or "raw".
        val: The share of documents for validation.
        seed: Which documents are for validation.
        shard_tokens: Ends a shard with the document that reaches this many tokens: a number, or "100M".
        input: What the inputs are: "text", "lines", "jsonl" or "parquet"; by content and name, if not given.
        field: Where the text is in a line of JSON, or in a table.
        split_lines: Makes every line of a text a document.
        separator: What stands between the documents of a text.
        include: Which files of a folder to read, such as "*.py"; or a list of such patterns.
        on_error: What to do about a document that cannot be read: "stop", or "skip" and count it.
        shuffle_documents: Deals the documents in another order, by this seed. The driver does that, on its
            disk.
        budget: Memory for each task, and for the driver. Ray is told to reserve it.
        cache: What the page cache of each node keeps of inputs and outputs: "auto", "keep" or "drop".
        part_bytes: How many bytes of input a task has, such as "64MiB"; 128 MiB if not given. That is what
            a killed worker loses.
        concurrency: How many tasks are in flight at most; twice the CPUs of the cluster, if not given.
        progress: As for ``lowtide.prepare``. The step is "encoding" while tasks run, then "joining".

    Returns:
        A ``lowtide.Prepared``.

    Raises:
        OSError: A file cannot be read or written. If that was on a node, the message names it.
        ValueError: A document cannot be read, an argument makes no sense, or the folder holds something else.
        MemoryError: The budget is too small for the tokenizer, or no node has that much memory.

    >>> import lowtide.ray
    >>> made = lowtide.ray.prepare("story.txt", "on-ray", tokenizer="bytes", split_lines=True)
    >>> made.documents, made.tokens
    (2, 50)
    >>> lowtide.tokens("on-ray").text(0)
    'Once upon a time'
    """
    _connect()
    work = _Preparing(
        inputs,
        output,
        tokenizer=tokenizer,
        format=format,
        val=val,
        seed=seed,
        shard_tokens=shard_tokens,
        input=input,
        field=field,
        split_lines=split_lines,
        separator=separator,
        include=include,
        on_error=on_error,
        shuffle_documents=shuffle_documents,
        budget=budget,
        cache=cache,
        part_bytes=None if part_bytes is None else parse_size(part_bytes, "part_bytes"),
        progress=progress,
    )
    try:
        seen = {"read": 0, "documents": 0, "tokens": 0, "skipped": 0, "resumed": 0}

        def count(read: int, made: tuple[int, int, int]) -> None:
            documents, tokens, skipped = made
            seen["read"] += read
            seen["documents"] += documents
            seen["tokens"] += tokens
            seen["skipped"] += skipped

        def missing() -> Iterable[tuple[int, tuple[str]]]:
            for number in range(len(work)):
                size, task, made = work.portion(number)
                if made is None:
                    yield size, (task,)
                else:
                    count(size, made)
                    seen["resumed"] += size

        _share(_portion, missing(), work.budget, concurrency, count, lambda: work.tell(**seen))
        made: Prepared = work.finish()
        return made
    finally:
        work.close()


def shuffle(
    inputs: _Path | Sequence[_Path],
    output: _Path,
    *,
    seed: int = 0,
    epoch: int = 0,
    dtype: DTypeLike | Literal["bfloat16"] | None = None,
    shape: SupportsIndex | Sequence[SupportsIndex] | None = None,
    offset: int | None = None,
    budget: _Size | Budget | None = None,
    overwrite: bool = False,
    concurrency: int | None = None,
    progress: Callable[[Mapping[str, Any]], object] | None = None,
) -> dict[str, Any]:
    """Writes the rows of a file in shuffled order into another, by Ray's tasks on all nodes.

    The result is that of ``lowtide.shuffle``, byte for byte: what ``shuffled(seed=seed)`` gives. Tasks sort
    stretches of the rows first, then each gathers a stretch of the new file; all of them write into a folder
    beside it, which every node sees under the same path, as on a shared filesystem. Workers may be killed at
    any moment. So may the driver: the same call goes on. The new file appears whole or not at all.

    Args:
        inputs: A path as for ``lowtide.open``; or a list of them, all with the same rows, which are shuffled
            alike.
        output: The file to write: ``.npy`` by its name, else rows and nothing before them. For a list, a
            folder for files of the same names.
        seed: Which order, as for ``shuffled``.
        epoch: Which epoch of it.
        dtype: The type of an element, for files without a header.
        shape: Their shape; one size may be -1.
        offset: The byte where their elements begin.
        budget: How much memory each task has. Ray is told to reserve it. A larger one makes fewer tasks.
        overwrite: Replaces files that are there already, once the new ones are whole.
        concurrency: How many tasks are in flight at most; twice the CPUs of the cluster, if not given.
        progress: A function that is called with a dict after each task, as that of ``lowtide.shuffle``.

    Returns:
        A dict: the new ``files``, their ``rows``, the ``bytes`` of all rows, how many ``passes`` wrote
        them, and how many bytes of all passes were ``written_before``.

    Raises:
        FileExistsError: The output is there already.
        OSError: The disk has no room for twice the data, or a file cannot be read or written.
        ValueError: The inputs have different lengths, or are others on a node.
        MemoryError: A row is too large for the budget, or no node has that much memory.

    >>> import lowtide.ray
    >>> made = lowtide.ray.shuffle("labels.npy", "on-ray.npy", seed=1)
    >>> made["rows"]
    1000
    >>> first = next(lowtide.open("labels.npy").shuffled(1000, seed=1))
    >>> bool((lowtide.open("on-ray.npy")[...] == first).all())
    True
    """
    if progress is not None and not callable(progress):
        raise TypeError("progress= cannot be called\nhint: a function of a dict, or None")
    _connect()
    there = [_absolute(path) for path in inputs] if isinstance(inputs, list | tuple) else _absolute(inputs)
    place = _absolute(output)
    order: dict[str, Any] = {"seed": seed, "epoch": epoch, "dtype": dtype, "shape": shape, "offset": offset}
    work = _Shuffling(there, place, budget=budget, overwrite=overwrite, **order)
    try:
        described = work.described()
        passed: list[str] = []
        while (to_do := work.to_do())[1]:
            step, units = to_do
            if step in passed:
                raise RuntimeError(f"{step} were done, and some are missing")  # a loop would have no end
            passed.append(step)

            def count(number: int, _: None, step: str = step) -> None:
                written, total, before = work.done(step, number)
                if progress is not None:
                    progress(
                        {"step": step, "written": written, "total": total, "before": before, "passes": 2}
                    )

            settings = {**order, "budget": work.budget}
            tasks = ((number, (described, step, number, there, place, settings)) for number in units)
            _share(_unit, tasks, work.budget, concurrency, count, lambda: None)
        made: dict[str, Any] = work.finish()
        return made
    finally:
        work.close()


def _portion(task: str) -> tuple[int, int, int]:
    return _prepare_portion(task)


def _unit(
    described: str, step: str, number: int, inputs: Any, output: Any, settings: Mapping[str, Any]
) -> None:
    _shuffle_unit(described, step, number, inputs, output, **settings)


def _absolute(path: Any) -> Any:
    """Name a file as every node would: the folder that the driver is in is nobody else's."""
    try:
        return path if "://" in os.fsdecode(path) else os.path.abspath(path)
    except TypeError:
        return path  # what it is is told where it is opened


def _connect() -> None:
    if not ray.is_initialized():
        ray.init(logging_level=logging.ERROR, log_to_driver=False)


def _share(
    function: Callable[..., Any],
    tasks: Iterable[tuple[Any, tuple[Any, ...]]],
    budget: int,
    concurrency: int | None,
    done: Callable[[Any, Any], None],
    beat: Callable[[], None],
) -> None:
    """Run a function once for all arguments, in tasks; ``done`` is told what each was, and what came of it.

    Few are in flight: Ray holds what waits in memory. A task whose worker dies is started again by Ray, as
    often as need be. What a disk says once is tried again, a few times.
    """
    most = concurrency or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    coming, again = iter(tasks), collections.deque[tuple[Any, tuple[Any, ...], int]]()
    flying: dict[Any, tuple[Any, tuple[Any, ...], int]] = {}
    remote = _remote(budget)
    try:
        while True:
            while len(flying) < most:
                one = again.popleft() if again else next(((*task, 1) for task in coming), None)
                if one is None:
                    break
                flying[remote.remote(__version__, function, *one[1])] = one
            beat()
            if not flying:
                return
            ready, _ = ray.wait(list(flying), num_returns=1, timeout=0.2)
            for reference in ready:
                what, arguments, tries = flying.pop(reference)
                failed, answer = ray.get(reference)
                if not failed:
                    done(what, answer)
                elif isinstance(answer, OSError) and answer.errno in _PASSING and tries < _TRIES:
                    again.append((what, arguments, tries + 1))
                else:
                    raise answer
    finally:
        for reference in flying:
            ray.cancel(reference)
        if flying:
            ray.wait(list(flying), num_returns=len(flying), timeout=5)


def _remote(budget: int) -> Any:
    """Make a task of so much memory; refuse what no node has, for which Ray would wait without end."""
    nodes = [node.get("Resources", {}) for node in ray.nodes() if node.get("Alive")]
    if not any(node.get("CPU", 0) >= 1 for node in nodes):
        raise ValueError("no node of this Ray has a CPU for tasks\nhint: ray.init(num_cpus=…)")
    room = max((int(node.get("memory", 0)) for node in nodes if node.get("CPU", 0) >= 1), default=0)
    if budget > room:
        raise MemoryError(
            f"a task takes a budget of {budget} bytes, and no node of this Ray has more than {room} for tasks"
            "\nhint: a smaller budget"
        )
    return ray.remote(num_cpus=1, memory=budget, max_retries=-1, scheduling_strategy="SPREAD")(_task)


def _task(version: str, function: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Run on a node: whether it failed, and the answer or the error, which names the node."""
    node = f"node {socket.gethostname()} ({ray.util.get_node_ip_address()})"
    if version != __version__:
        hint = "every node needs the same version"
        return True, ValueError(f"on {node}: Lowtide is {__version__}, the driver's {version}\nhint: {hint}")
    try:
        return False, function(*arguments)
    except OSError as error:
        said = f"on {node}: {error.strerror or error}"
        return True, type(error)(error.errno, said, error.filename) if error.errno else OSError(said)
    except (ValueError, MemoryError, NotImplementedError, RuntimeError) as error:
        return True, type(error)(f"on {node}: {error}")


def command(keywords: str) -> int:
    """Run ``lowtide prepare --on ray``, which has said in JSON what to do. Errors are said here."""
    given = json.loads(keywords)
    quiet, inputs, output = given.pop("quiet"), given.pop("inputs"), given.pop("output")
    try:
        prepare(inputs, output, progress=False if quiet else None, **given)
    except KeyboardInterrupt:
        return 130
    except (OSError, ValueError, MemoryError, NotImplementedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if type(error) is ValueError and "on node" not in str(error) else 1
    return 0
