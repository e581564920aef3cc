"""The pytest fixture ``lowtide_flat``: a test that asks for it fails when its memory is not flat.

It is registered when Lowtide is installed; tests that do not ask for it pay for its import only.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lowtide._watch import Report, Watch

NAME = "lowtide_flat"


class Flat:
    """What the fixture gives to the test: settings, and a way to judge something short by repeating it.

    >>> from lowtide.pytest_plugin import Flat
    >>> flat = Flat()
    >>> flat.tolerance, flat.allow = "32MiB", {"cache"}
    >>> flat
    <lowtide_flat: files 'auto', tolerance 32MiB, allowed flat or cache: no report yet>
    """

    def __init__(self) -> None:
        """Start with the defaults."""
        #: Paths, folders or globs whose page cache to watch. The watch begins before the test does, so a
        #: fixture sets them; ``lowtide_flat(function)`` takes them as they are then.
        self.files: Any = "auto"
        #: Growth up to this size counts as flat; ``None`` for 4 MiB or 2 % of the level.
        self.tolerance: str | int | None = None
        #: Verdicts that pass besides ``"flat"``, such as ``{"cache"}``.
        self.allow: set[str] = set()
        #: The last report.
        self.report: Report | None = None
        self.repeated = False

    def __call__(self, function: Callable[[], object], *, seconds: float = 3.0) -> Report:
        """Call ``function`` again and again for some ``seconds``, and fail unless memory stays flat.

        Args:
            function: What to call, without arguments.
            seconds: For how long; two are too short to judge.

        Returns:
            The report.

        >>> import time
        >>> from lowtide.pytest_plugin import Flat
        >>> report = Flat()(lambda: time.sleep(0.01), seconds=2.5)
        >>> report.verdict
        'flat'
        """
        self.repeated = True
        with self.watch() as watch:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                function()
        self.judge(watch.report)
        return watch.report

    def watch(self) -> Watch:
        """A watch with these settings.

        Returns:
            A ``lowtide.Watch``, not started.

        >>> from lowtide.pytest_plugin import Flat
        >>> Flat().watch()
        <lowtide.Watch of auto: not started>
        """
        import lowtide

        return lowtide.watch(self.files, tolerance=self.tolerance)

    def judge(self, report: Report) -> None:
        """Fail the test unless the report is flat, or allowed. Too short to tell is a warning.

        A process that the kernel killed for want of memory fails it, whatever is allowed.

        Args:
            report: That of a watch that is over.

        >>> import time, lowtide
        >>> from lowtide.pytest_plugin import Flat
        >>> with lowtide.watch(files=()) as w:
        ...     time.sleep(2.5)
        >>> Flat().judge(w.report)
        """
        __tracebackhide__ = True
        self.report = report
        _nobody_was_killed(report)
        if report.verdict == "unknown":
            hint = "repeat it: lowtide_flat(function) calls a function until its memory can be judged"
            warnings.warn(f"{report.sentence} {hint}.", stacklevel=2)
        elif report.verdict != "flat" and report.verdict not in self.allow:
            pytest.fail(f"memory is not flat: {report}\nhint: {report.advice}", pytrace=False)

    def __repr__(self) -> str:
        """The settings and the verdict, if there is one."""
        tolerance = "" if self.tolerance is None else f", tolerance {self.tolerance}"
        allowed = " or ".join(["flat", *sorted(self.allow)])
        state = "no report yet" if self.report is None else self.report.verdict
        return f"<lowtide_flat: files {self.files!r}{tolerance}, allowed {allowed}: {state}>"


def _nobody_was_killed(report: Report) -> None:
    """How a process grew that the kernel killed, nobody has seen."""
    __tracebackhide__ = True
    if report.killed is not None and report.killed["out_of_memory"]:
        pytest.fail(
            f"a process was killed for want of memory: {report}\nhint: {report.advice}", pytrace=False
        )


@pytest.fixture
def lowtide_flat() -> Flat:
    """Fail the test unless its memory stays flat.

    The test fails if memory grows while it runs; ``lowtide_flat(step)`` judges one step by repeating it::

        def test_loader(lowtide_flat):
            lowtide_flat.tolerance = "32MiB"
            for batch in loader: ...

        def test_step(lowtide_flat):
            lowtide_flat.allow = {"cache"}
            lowtide_flat(step)
    """
    return Flat()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch the call of a test that asked for the fixture, so that it fails as a test does."""
    flat = getattr(item, "funcargs", {}).get(NAME)
    if not isinstance(flat, Flat):
        return (yield)
    with flat.watch() as watch:
        try:
            answer = yield
        finally:
            # The test may have set it meanwhile.
            watch.tolerance = flat.tolerance
    try:
        if flat.repeated:
            _nobody_was_killed(watch.report)
        else:
            flat.judge(watch.report)
    finally:
        report = flat.report or watch.report
        item.user_properties.append(("lowtide_verdict", report.verdict))
        item.add_report_section("call", "memory", str(report))
    return answer
