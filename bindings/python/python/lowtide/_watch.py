"""``lowtide.watch``: see where memory went while some Python ran."""

from __future__ import annotations

import functools
import html
import json
import os
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from lowtide import _lowtide

P = ParamSpec("P")
R = TypeVar("R")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Report:
    """What a run used, and what that means. Shows itself as a page in a notebook.

    ``verdict`` is ``"leak"``, ``"shared"``, ``"mapped"``, ``"cache"``, ``"flat"``, or ``"unknown"`` when the
    run was too short to tell.
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
        #: ``None`` when nothing is known about any watched file.
        self.peak_cache_bytes: int | None = data["peak_cache_bytes"]
        self.peak_rss_bytes: int = data["peak_rss_bytes"]
        #: Bytes a second of ``"anon"``, ``"shmem"``, ``"file"`` and ``"cache"``.
        self.growth_bytes_per_second: dict[str, float | None] = data["growth_bytes_per_second"]
        #: The ends of the 95 % confidence interval of each.
        self.growth_interval: dict[str, list[float] | None] = data["growth_interval"]
        self.samples: list[dict[str, Any]] = data["samples"]
        self.processes: list[dict[str, Any]] = data["processes"]
        self.files: list[dict[str, Any]] = data["files"]
        #: Processor time that watching cost.
        self.watching_cpu_seconds: float = data["watching_cpu_seconds"]

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew."""
        return self.verdict == "flat"

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write the report as one self-contained page, or return it without a path."""
        if path is None:
            return self._recording.html()
        self._recording.save_html(os.fspath(path))
        return None

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write everything as JSON, or return it without a path."""
        if path is None:
            return self._recording.json()
        self._recording.save_json(os.fspath(path))
        return None

    def __repr__(self) -> str:
        return f"{self.verdict}: {self.sentence}"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style and script away from the notebook's.
        page = html.escape(self._recording.html(), quote=True)
        style = "width: 100%; height: 780px; border: 0; border-radius: 8px"
        return (
            f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts" '
            f'title="Memory: {html.escape(self.verdict)}"></iframe>'
        )


class Watch:
    """What :func:`watch` returns: a context manager and a decorator. ``report`` is there when it is over."""

    def __init__(self, files: Paths, interval: float | None, tolerance: str | int | None) -> None:
        """Take the arguments of :func:`watch`."""
        names = [files] if isinstance(files, str | os.PathLike) else files
        self._files = [os.fspath(name) for name in names]
        self._interval = interval
        self._tolerance = _lowtide.parse_size(tolerance) if isinstance(tolerance, str) else tolerance
        self._meter: _lowtide.Meter | None = None
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The report of the last run that is over."""
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

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Watch every call of a function; its ``report`` attribute is that of the last call."""

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            # One of its own, so that calls may be nested and come from several threads.
            run = Watch(self._files, self._interval, self._tolerance)
            run.__enter__()
            try:
                return function(*args, **kwargs)
            finally:
                run._stop([f"{function.__module__}.{function.__qualname__}"])
                watched.report = self._report = run.report  # type: ignore[attr-defined]

        return watched


@overload
def watch(files: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def watch(
    files: Paths = "auto", *, interval: float | None = None, tolerance: str | int | None = None
) -> Watch: ...
def watch(files: Any = "auto", *, interval: float | None = None, tolerance: str | int | None = None) -> Any:
    """Watch the memory of this process and its children, and the page cache of ``files``.

    >>> with lowtide.watch(files=["train.bin"]) as w:  # doctest: +SKIP
    ...     train()
    >>> w.report.verdict  # doctest: +SKIP
    'flat'

    As a decorator, with or without arguments, it watches every call; the function's ``report`` is that of
    the last one. ``files`` are paths, folders and globs; ``"auto"`` finds the large files that are mapped or
    open. ``interval`` is in seconds, ``None`` for 0.1, or longer where that would cost 1 % of a core. Growth
    of up to ``tolerance``, like ``"64MiB"``, counts as flat.
    """
    if callable(files) and not isinstance(files, str | os.PathLike):
        return Watch("auto", interval, tolerance)(files)
    return Watch(files, interval, tolerance)
