"""What networks and servers do: bytes are equal, or a named error comes within the deadline. Nothing hangs.

The proxy stands between us and the small server of these tests here, and a real one in the heavy tests.
"""

import re
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from fault_proxy import (
    Drip,
    FaultProxy,
    NewTag,
    ResetAfter,
    ShortBody,
    ShortButSaidSo,
    SlowFirstByte,
    Status,
    WholeForRange,
    WrongRange,
)
from range_server import RangeServer
from weed import Weed

import lowtide

ROWS = np.random.default_rng(0).integers(0, 1 << 30, (40_000, 64), dtype=np.int32)  # 10 MiB

# What happens to every third request, for a while.
PASSING = {
    "slow first byte": SlowFirstByte(0.5),
    "reset at once": ResetAfter(0),
    "reset after a while": ResetAfter(100_000),
    "short body": ShortBody(1),
    "very short body": ShortBody(1 << 20),
    "short body that says so": ShortButSaidSo(1000),
    "200 for 206": WholeForRange(),
    "wrong Content-Range": WrongRange(),
    "503": Status(503),
    "503 with Retry-After": Status(503, {"Retry-After": "1"}),
    "429": Status(429),
    "500": Status(500),
}
# What happens to every request from some moment on, and what is said of it.
LASTING = {
    "slow first byte": (SlowFirstByte(60), TimeoutError, "did not come in time"),
    "reset at once": (ResetAfter(0), ConnectionError, "the connection broke"),
    "short body": (ShortButSaidSo(1 << 30), OSError, "and said that this was all"),
    "200 for 206": (WholeForRange(), OSError, "none to a request for a range"),
    "wrong Content-Range": (
        WrongRange(),
        OSError,
        "none to a request for a range|the object that was opened",
    ),
    "503": (Status(503), TimeoutError, "the server answers 503, slow down"),
    "429": (Status(429), TimeoutError, "the server answers 429, slow down"),
    "500": (Status(500), OSError, "the server answers 500"),
    "403": (Status(403), PermissionError, "403"),
    "404": (Status(404), FileNotFoundError, "no such object"),
    "a new tag": (NewTag(), ValueError, "the object that was opened"),
    "one byte a second": (Drip(), TimeoutError, "did not come in time"),
}


class Behind:
    """A server behind the proxy, and how it is reached."""

    def __init__(self, server, options):
        self.server, self.proxy = server, FaultProxy(server.port)
        self.options = {**options, "endpoint_url": self.proxy.url}

    def open(self, timeout, budget="32MiB"):
        return lowtide.open(
            "s3://bucket/rows.npy", budget=budget, storage_options={**self.options, "timeout": timeout}
        )

    def close(self):
        self.proxy.close()
        self.server.close()


@pytest.fixture(scope="module", params=["small", pytest.param("weed", marks=pytest.mark.heavy)])
def behind(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    if request.param == "small":
        (folder / "bucket").mkdir()
        np.save(folder / "bucket" / "rows.npy", ROWS)
        server = RangeServer(folder)
        found = Behind(server, server.s3)
    else:
        (folder / "weed").mkdir()
        (folder / "files").mkdir()
        np.save(folder / "files" / "rows.npy", ROWS)
        server = Weed(folder / "weed")
        server.upload(folder / "files")
        found = Behind(server, server.options)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def whole(behind):
    """Every test begins with a proxy that does nothing."""
    behind.proxy.plan = lambda number, key, span: None
    behind.proxy.forget()


QUICK = {"reset after a while", "short body that says so", "200 for 206", "403", "404", "a new tag"}


def each(faults):
    """Each of them; those that take their time are heavy."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.heavy) for name in faults]


@pytest.mark.parametrize("name", each(PASSING))
def test_what_passes_is_not_seen(behind, name):
    a = behind.open("60s")
    behind.proxy.plan = lambda number, key, span: PASSING[name] if number % 3 == 1 and number < 12 else None
    np.testing.assert_array_equal(np.concatenate(list(a.chunks(2000))), ROWS)
    rows = np.arange(0, 40_000, 999)
    np.testing.assert_array_equal(a[rows], ROWS[rows])


@pytest.mark.parametrize("name", each(LASTING))
def test_what_lasts_is_a_named_error_within_the_deadline(behind, name):
    fault, kind, words = LASTING[name]
    a = behind.open("2s")
    np.testing.assert_array_equal(a[:100], ROWS[:100])
    behind.proxy.plan = lambda number, key, span: fault
    began = time.monotonic()
    with pytest.raises(kind, match=words) as raised:
        a[1000:20_000]
    assert time.monotonic() - began < 30
    assert "s3://bucket/rows.npy" in str(raised.value)
    behind.proxy.plan = lambda number, key, span: None
    np.testing.assert_array_equal(a[1000:20_000], ROWS[1000:20_000])  # and it goes on where it can


def test_an_error_in_the_middle_of_an_epoch_comes_with_its_chunk(behind):
    a = behind.open("2s", budget="16MiB")
    chunks, taken = a.chunks(1000), 0
    for chunk in chunks:
        np.testing.assert_array_equal(chunk, ROWS[taken : taken + 1000])
        taken += 1000
        if taken == 3000:
            behind.proxy.plan = lambda number, key, span: Status(403)
            break
    failed = False
    while not failed:
        try:
            chunk = next(chunks)
        except PermissionError:
            failed = True
        else:
            np.testing.assert_array_equal(chunk, ROWS[taken : taken + 1000])
            taken += 1000
    behind.proxy.plan = lambda number, key, span: None
    rest = list(chunks)
    np.testing.assert_array_equal(np.concatenate(rest), ROWS[taken:])


def test_a_name_that_cannot_be_looked_up():
    began = time.monotonic()
    with pytest.raises(OSError, match="cannot be reached"):
        lowtide.open("http://no-such-host.invalid/rows.npy", storage_options={"timeout": "5s"})
    assert time.monotonic() - began < 30


def test_requests_are_no_more_than_the_plan(behind):
    a = behind.open("60s", budget="64MiB")
    behind.proxy.forget()
    assert sum(len(chunk) for chunk in a.chunks(1000)) == 40_000
    assert len(behind.proxy.forget()) <= 10 / 2 + 5


def test_memory_stays_in_the_budget_under_faults(behind):
    """The kernel's number, in a fresh process, while one answer in three breaks."""
    program = textwrap.dedent("""
        import json, re, sys, lowtide
        def anon():
            return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
        a = lowtide.open("s3://bucket/rows.npy", budget="16MiB", storage_options=json.loads(sys.argv[1]))
        a[0]
        before = most = anon()
        for chunk in a.chunks(1000):
            most = max(most, anon())
        print("added", most - before)
    """)
    import json

    fault = ResetAfter(200_000)
    behind.proxy.plan = lambda number, key, span: fault if number % 3 == 1 else None
    options = json.dumps({**behind.options, "timeout": "60s"})
    said = subprocess.run(
        [sys.executable, "-c", program, options], capture_output=True, text=True, check=True
    )
    assert int(re.search(r"added (\d+)", said.stdout)[1]) <= 17 << 20
