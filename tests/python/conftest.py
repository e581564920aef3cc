"""What the tests share: files to read, fresh interpreters, and the kernel's numbers."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from token_streams import llmc

import lowtide

# The same examples every time: a change is judged by what it changed. HYPOTHESIS_RANDOM=1 draws others.
settings.register_profile(
    "lowtide", deadline=None, print_blob=True, derandomize="HYPOTHESIS_RANDOM" not in os.environ
)
settings.load_profile("lowtide")

# In a shell's background Ctrl-C is ignored, also by all that is started from here: no test could send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ACCESS = ["map", "remap", "advise", "read", "direct", "auto"]


@pytest.fixture(params=ACCESS)
def access(request):
    """Each way of access."""
    return request.param


@pytest.fixture(scope="session")
def every_access():
    """All of them, for tests that open a file several times."""
    return ACCESS


@pytest.fixture(scope="session")
def least():
    """The smallest budget that mapped access takes: one page fault can map 2 MiB, a window is an eighth."""
    return 16 << 20


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """One folder for files that hypothesis writes over and over."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def save(tmp_path):
    """Writes an array as a .npy file."""

    def save(array, name="rows.npy"):
        np.save(tmp_path / name, array)
        return tmp_path / name

    return save


@pytest.fixture(scope="session")
def python():
    """Runs code in a fresh interpreter and gives what it printed."""

    def run(code, *args, timeout=60, before=None, **environment):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            preexec_fn=before,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def memory():
    """The kernel's numbers of a process, in bytes: RssAnon, RssFile, VmPTE."""

    def read(pid="self"):
        text = Path(f"/proc/{pid}/status").read_text()
        return {name: int(kib) << 10 for name, kib in re.findall(r"^(Rss\w+|VmPTE):\s+(\d+) kB", text, re.M)}

    return read


@pytest.fixture
def peak():
    """The most memory that a command ever had, by the kernel's own account, and how it ended.

    Not by getrusage: there a child begins with what its parent had.
    """

    def run(command):
        most = 0
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as child:
            while child.poll() is None:
                status = Path(f"/proc/{child.pid}/status").read_text()
                name = status.split("Name:")[1].split()[0]
                if "VmHWM:" in status and name == Path(command[0]).name[:15]:
                    most = max(most, int(status.split("VmHWM:")[1].split()[0]) << 10)
                time.sleep(0.005)
        assert child.returncode == 0
        return most

    return run


def _same(got, want):
    """Values, shape, dtype and kind (scalar or array) are NumPy's; NaNs are compared by their bits."""
    assert np.shape(got) == np.shape(want)
    assert got.dtype == want.dtype
    assert got.dtype.byteorder == want.dtype.byteorder
    assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    assert isinstance(got, np.ndarray) == isinstance(want, np.ndarray)


@pytest.fixture(scope="session")
def same():
    """Compares an answer with NumPy's."""
    return _same


@pytest.fixture(scope="session")
def counting(tmp_path_factory):
    """A function from a number of tokens, and of files, to a stream of the numbers from 0 on."""
    folder = tmp_path_factory.mktemp("counting")

    def make(tokens: int, files: int = 1, **settings):
        cuts = [tokens * i // files for i in range(files + 1)]
        paths = [folder / f"{tokens}-{files}-{i:03}.bin" for i in range(files)]
        for path, (start, end) in zip(paths, itertools.pairwise(cuts), strict=True):
            if not path.exists():
                llmc(path, np.arange(start, end, dtype="<u4"))
        return lowtide.tokens(paths, **settings)

    return make
