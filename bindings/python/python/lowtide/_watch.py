"""``lowtide.watch``: see where memory went while some Python ran."""

from __future__ import annotations

import functools
import html
import json
import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast, overload

from lowtide import _lowtide
from lowtide._arguments import names

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Report:
    """What a run used, and what that means. Shows itself as a page in a notebook.

    Attributes:
        verdict: ``"leak"``, ``"shared"``, ``"mapped"``, ``"cache"``, ``"flat"``, or ``"unknown"`` when the
            run was too short to tell, or when the kernel killed a process for want of memory and nothing else
            grew.
        sentence: What grew, and how fast.
        advice: What to do about it.
        seconds: How long the run took.
        peak_anon_bytes: The most that the heap was.
        peak_file_bytes: The most that was mapped of files.
        peak_shmem_bytes: The most that was shared memory.
        peak_cache_bytes: The most of the watched files that was in the page cache; ``None`` when nothing is
            known about any.
        peak_rss_bytes: The most that was resident, of all kinds together.
        growth_bytes_per_second: Of ``"anon"``, ``"shmem"``, ``"file"`` and ``"cache"``.
        growth_interval: The ends of the 95 % confidence interval of each.
        samples: What was seen, one dict for each moment.
        processes: The processes that were watched.
        files: The files that were watched.
        killed: Who was killed by what, such as the kernel for want of memory, or ``None``.
        watching_cpu_seconds: Processor time that watching cost.

    >>> import lowtide, time
    >>> with lowtide.watch(files=()) as w:
    ...     time.sleep(0.3)
    >>> w.report
    <lowtide.Report: unknown, The run was too short to tell: ...>
    >>> w.report.peak_anon_bytes > 0, w.report.peak_cache_bytes
    (True, None)
    >>> len(w.report.samples) > 1
    True
    """

    def __init__(self, recording: _lowtide.Recording) -> None:
        """Read a recording."""
        self._recording = recording
        data: dict[str, Any] = json.loads(recording.json())
        self.verdict: str = data["verdict"]
        self.sentence: str = data["sentence"]
        self.advice: str = data["advice"]
        self.seconds: float = data["seconds"]
        self.peak_anon_bytes: int = data["peak_anon_bytes"]
        self.peak_file_bytes: int = data["peak_file_bytes"]
        self.peak_shmem_bytes: int = data["peak_shmem_bytes"]
        self.peak_cache_bytes: int | None = data["peak_cache_bytes"]
        self.peak_rss_bytes: int = data["peak_rss_bytes"]
        self.growth_bytes_per_second: dict[str, float | None] = data["growth_bytes_per_second"]
        self.growth_interval: dict[str, list[float] | None] = data["growth_interval"]
        self.samples: list[dict[str, Any]] = data["samples"]
        self.processes: list[dict[str, Any]] = data["processes"]
        self.files: list[dict[str, Any]] = data["files"]
        self.killed: dict[str, Any] | None = data["killed"]
        self.watching_cpu_seconds: float = data["watching_cpu_seconds"]

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew: the verdict is ``"flat"``.

        >>> import lowtide, time
        >>> with lowtide.watch(files=()) as w:
        ...     time.sleep(0.1)
        >>> w.report.is_flat  # nobody can tell after a tenth of a second
        False
        """
        return self.verdict == "flat"

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write the report as one self-contained page, or return it without a path.

        Args:
            path: Where to write it; ``None`` returns it instead.

        Returns:
            The page as text, if there is no path; else ``None``.

        Raises:
            OSError: It cannot be written; what was there before stays then.

        >>> import lowtide
        >>> with lowtide.watch(files=()) as w:
        ...     pass
        >>> w.report.to_html("mem.html")
        >>> w.report.to_html()[:15]
        '<!doctype html>'
        """
        if path is None:
            return self._recording.html()
        self._recording.save_html(path)
        return None

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write everything as JSON, or return it without a path.

        Args:
            path: Where to write it; ``None`` returns it instead.

        Returns:
            The JSON as text, if there is no path; else ``None``.

        Raises:
            OSError: It cannot be written; what was there before stays then.

        >>> import json, lowtide
        >>> with lowtide.watch(files=()) as w:
        ...     pass
        >>> w.report.to_json("mem.json")
        >>> json.loads(w.report.to_json())["verdict"]
        'unknown'
        """
        if path is None:
            return self._recording.json()
        self._recording.save_json(path)
        return None

    def __reduce__(self) -> tuple[type[Report], tuple[_lowtide.Recording]]:
        # Everything else is read from the recording, which pickles as its JSON and its page.
        return Report, (self._recording,)

    def __repr__(self) -> str:
        return f"<lowtide.Report: {self.verdict}, {self.sentence}>"

    def __str__(self) -> str:
        return f"{self.verdict}: {self.sentence}"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style and script away from the notebook's.
        page = html.escape(self._recording.html(), quote=True)
        style = "width: 100%; height: 780px; border: 0; border-radius: 8px"
        return (
            f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts" '
            f'title="Memory: {html.escape(self.verdict)}"></iframe>'
        )


class Watched(Protocol[P, R_co]):
    """A function that is watched: called as before, and its ``report`` is that of the last call.

    >>> import lowtide
    >>> @lowtide.watch
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double(21)
    42
    >>> double.report.verdict
    'unknown'
    """

    #: The report of the last call that is over; ``AttributeError`` before the first.
    report: Report
    __name__: str
    __qualname__: str

    @property
    def __wrapped__(self) -> Callable[P, R_co]: ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function and watch it."""
        ...

    @overload
    def __get__(self, instance: None, owner: type[Any], /) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None, /) -> Callable[..., R_co]: ...


class Watch:
    """What :func:`watch` returns: a context manager and a decorator. ``report`` is there when it is over.

    >>> import lowtide
    >>> w = lowtide.watch(files=["train.bin"], tolerance="64MiB")
    >>> w
    <lowtide.Watch of train.bin, tolerance 67108864: not started>
    >>> with w:
    ...     w
    <lowtide.Watch of train.bin, tolerance 67108864: running>
    >>> w
    <lowtide.Watch of train.bin, tolerance 67108864: unknown>
    """

    def __init__(self, files: Paths, interval: float | None, tolerance: str | int | None) -> None:
        """Take the arguments of :func:`watch`."""
        self._files = names(files)
        self._interval = None if interval is None else _lowtide.parse_interval(interval)
        self.tolerance = tolerance
        self._meter: _lowtide.Meter | None = None
        self._report: Report | None = None

    @property
    def tolerance(self) -> int | None:
        """Growth of up to this many bytes counts as none; set it until the block ends.

        >>> import lowtide
        >>> w = lowtide.watch()
        >>> w.tolerance = "1MiB"
        >>> w.tolerance
        1048576
        """
        return self._tolerance

    @tolerance.setter
    def tolerance(self, size: str | int | None) -> None:
        self._tolerance = None if size is None else _lowtide.parse_size(size, "tolerance", 0)

    def __getstate__(self) -> dict[str, Any]:
        if self._meter is not None:
            raise TypeError(
                "a watch that is running cannot be pickled\nhint: its report can, when the block has ended"
            )
        return self.__dict__.copy()

    def __repr__(self) -> str:
        files = ", ".join(self._files) or "no files"
        interval = "" if self._interval is None else f", every {self._interval:g} s"
        tolerance = "" if self._tolerance is None else f", tolerance {self._tolerance}"
        if self._meter is not None:
            state = "running"
        else:
            state = "not started" if self._report is None else self._report.verdict
        return f"<lowtide.Watch of {files}{interval}{tolerance}: {state}>"

    @property
    def report(self) -> Report:
        """The report of the last run that is over.

        Raises:
            RuntimeError: None is over yet.

        >>> import lowtide
        >>> with lowtide.watch() as w:
        ...     total = sum(range(1000))
        >>> w.report.verdict
        'unknown'
        """
        if self._report is None:
            raise RuntimeError("there is no report before the watched block has ended")
        return self._report

    def __enter__(self) -> Watch:
        if self._meter is not None:
            raise RuntimeError("this watch is running already; make another one with lowtide.watch()")
        self._meter = _lowtide.Meter(self._files, self._interval)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop([" ".join(sys.argv) or "python"])

    def _stop(self, command: list[str]) -> None:
        meter, self._meter = self._meter, None
        if meter is None:
            raise RuntimeError("this watch is not running")
        self._report = Report(meter.stop(command, self._tolerance))

    def __call__(self, function: Callable[P, R]) -> Watched[P, R]:
        """Watch every call of a function; its ``report`` attribute is that of the last call.

        >>> import lowtide
        >>> @lowtide.watch(files=(), interval=0.01)
        ... def work():
        ...     return "done"
        >>> work()
        'done'
        >>> work.report.seconds < 60
        True
        """

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            # One of its own, so that calls may be nested and come from several threads.
            run = Watch(self._files, self._interval, self._tolerance)
            run.__enter__()
            try:
                return function(*args, **kwargs)
            finally:
                run._stop([f"{function.__module__}.{function.__qualname__}"])
                answer.report = self._report = run.report

        answer = cast("Watched[P, R]", watched)
        return answer


@overload
def watch(files: Callable[P, R], /) -> Watched[P, R]: ...
@overload
def watch(
    files: Paths = "auto", *, interval: float | None = None, tolerance: str | int | None = None
) -> Watch: ...
def watch(files: Any = "auto", *, interval: float | None = None, tolerance: str | int | None = None) -> Any:
    """Watch the memory of this process and its children, and the page cache of ``files``.

    As a decorator, with or without arguments, it watches every call; the function's ``report`` is that of
    the last one.

    Args:
        files: Paths, folders and globs; ``"auto"`` finds the large files that are mapped or open.
        interval: Seconds between samples, ``None`` for 0.1, or longer where that would cost 1 % of a core.
        tolerance: Growth of up to this size, like ``"64MiB"``, counts as flat.

    Returns:
        A ``lowtide.Watch``, for ``with``; its ``report`` is there when the block has ended.

    Raises:
        ValueError: The size or the interval makes no sense.
        TypeError: They are no numbers, or the files are not named by paths.

    >>> import lowtide, time
    >>> held = []
    >>> with lowtide.watch(files=()) as w:
    ...     for _ in range(130):
    ...         held.append(bytearray(1 << 20))
    ...         time.sleep(0.02)
    >>> w.report.verdict
    'leak'
    >>> w.report.growth_bytes_per_second["anon"] > 10 << 20
    True
    """
    if callable(files) and not isinstance(files, str | os.PathLike):
        return Watch("auto", interval, tolerance)(files)
    return Watch(files, interval, tolerance)
