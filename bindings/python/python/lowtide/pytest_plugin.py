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
    """What the fixture gives to the test: settings, and a way to judge something short by repeating it."""

    def __init__(self) -> None:
        """Start with the defaults."""
        #: Paths, folders or globs whose page cache to watch.
        self.files: Any = "auto"
        #: Growth up to this size counts as flat; ``None`` for 4 MiB or 2 % of the level.
        self.tolerance: str | int | None = None
        #: Verdicts that pass besides ``"flat"``, such as ``{"cache"}``.
        self.allow: set[str] = set()
        #: The last report.
        self.report: Report | None = None
        self.repeated = False

    def __call__(self, function: Callable[[], object], *, seconds: float = 3.0) -> Report:
        """Call ``function`` again and again for some ``seconds``, and fail unless memory stays flat."""
        self.repeated = True
        with self.watch() as watch:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                function()
        self.judge(watch.report)
        return watch.report

    def watch(self) -> Watch:
        """A watch with these settings."""
        import lowtide

        return lowtide.watch(self.files, tolerance=self.tolerance)

    def judge(self, report: Report) -> None:
        """Fail the test unless the report is flat, or allowed."""
        __tracebackhide__ = True
        self.report = report
        if report.verdict == "unknown":
            hint = "repeat it: lowtide_flat(function) calls a function until its memory can be judged"
            warnings.warn(f"{report.sentence} {hint}.", stacklevel=2)
        elif report.verdict != "flat" and report.verdict not in self.allow:
            pytest.fail(f"memory is not flat: {report!r}\nhint: {report.advice}", pytrace=False)


@pytest.fixture
def lowtide_flat() -> Flat:
    """Fail the test unless its memory stays flat."""
    return Flat()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch the call of a test that asked for the fixture, so that it fails as a test does."""
    flat = getattr(item, "funcargs", {}).get(NAME)
    if not isinstance(flat, Flat):
        return (yield)
    with flat.watch() as watch:
        answer = yield
    if not flat.repeated:
        flat.judge(watch.report)
    assert flat.report is not None
    item.user_properties.append(("lowtide_verdict", flat.report.verdict))
    item.add_report_section("call", "memory", repr(flat.report))
    return answer
