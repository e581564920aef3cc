"""The kernel's own numbers while rows are taken: RssAnon and RssFile stay within the budget, `map` grows."""

import contextlib
import dataclasses
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

GIB = 1 << 30
MIB = 1 << 20
ROW = 512
BOUNDED = ["remap", "advise", "read", "direct", "auto"]

# Takes 49 chunks of 4,096 rows (200,704 rows) and checks each. It waits before, so that whoever samples it
# knows the baseline, and after, so that the last sample is not of a process that goes away.
TAKE = """if True:
    import itertools, os, sys, lowtide, numpy as np
    path, access, budget, cold, chunks, rows = sys.argv[1:7]
    chunks, rows, numbered = int(chunks), int(rows), os.stat(path).st_blocks > 0  # a hole has no numbers
    if cold == "cold":
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    words = {} if budget == "default" else {"budget": int(budget)}
    check = np.zeros(rows, bool)  # touched before the baseline, as are the modules' pages
    a = lowtide.open(path, dtype="<i8", shape=(-1, 64), access=access, **words)
    warm = lowtide.open(path, dtype="<i8", shape=(64, 64), access="read", budget="1MiB")
    list(warm.shuffled(8, with_rows=True))
    warm.close()
    print("go", flush=True)
    sys.stdin.readline()
    count = 0
    for at, chunk in itertools.islice(a.shuffled(rows, seed=1, with_rows=True), chunks):
        np.equal(chunk[:, 0], at * numbered, out=check)
        assert check.all()
        count += len(at)
    print(count, a.budget.limit, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="session")
def rows(tmp_path_factory):
    """2 GiB of rows of 512 bytes: each begins with its number. Written, not sparse; removed at the end."""
    path = tmp_path_factory.mktemp("rows") / "rows.bin"
    block = np.empty((1 << 17, ROW // 8), "<i8")  # 64 MiB
    block[:] = np.arange(ROW // 8)
    with path.open("wb") as file:
        for start in range(0, 2 * GIB // ROW, len(block)):
            block[:, 0] = np.arange(start, start + len(block))
            file.write(block)
        file.flush()
        os.fsync(file.fileno())  # a dirty page cannot be dropped from the page cache
    yield path
    path.unlink()


@dataclasses.dataclass
class Taken:
    """What was seen while a child took its rows: the most that each number rose above the baseline."""

    anon: int = 0
    file: int = 0
    total: int = 0
    tables: int = 0
    samples: int = 0
    count: int = 0
    limit: int = 0

    def look(self, base, now):
        anon, file = now["RssAnon"] - base["RssAnon"], now["RssFile"] - base["RssFile"]
        self.anon, self.file = max(self.anon, anon), max(self.file, file)
        self.total = max(self.total, anon + file)
        self.tables = max(self.tables, now["VmPTE"] - base["VmPTE"])
        self.samples += 1


@pytest.fixture(scope="session")
def take(memory):
    """Runs a child that takes rows and samples the kernel's numbers of it, some thousand times a second."""

    def take(path, access, budget="default", cold="warm", chunks=49, size=4096, before=None):
        command = [sys.executable, "-c", TAKE, *map(str, [path, access, budget, cold, chunks, size])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, text=True, preexec_fn=before) as process:
            try:
                assert process.stdout.readline() == "go\n"
                base, taken = memory(process.pid), Taken()
                process.stdin.write("\n")
                process.stdin.flush()
                while not select.select([process.stdout], [], [], 0.0005)[0]:
                    taken.look(base, memory(process.pid))
                said = process.stdout.readline()
                assert said, "the child failed: see its stderr"
                taken.count, taken.limit = map(int, said.split())
                return taken
            finally:
                process.kill()

    return take


HAND = 2 * MIB  # the chunk in the caller's hand is the caller's
SLACK = 2 * MIB  # code of ours that is touched for the first time


COLD = pytest.param("cold", marks=pytest.mark.heavy)  # some 10 s each


@pytest.mark.parametrize("cold", ["warm", COLD])
def test_map_is_seen_to_grow(rows, take, cold):
    """The problem that all the others solve."""
    taken = take(rows, "map", cold=cold)
    assert taken.count == 49 * 4096
    assert taken.file > 512 * MIB, taken


@pytest.mark.parametrize("cold", ["warm", COLD])
@pytest.mark.parametrize("budget", ["default", 32 * MIB])
@pytest.mark.parametrize("access", BOUNDED)
def test_the_others_stay_within_the_budget(rows, take, access, budget, cold):
    taken = take(rows, access, budget, cold)
    assert taken.count == 49 * 4096
    assert taken.samples > 20, taken
    assert taken.total <= taken.limit + HAND, taken
    if access == "read":
        assert taken.file <= SLACK, taken


# A cgroup with a hard limit


def own_cgroup(controller="memory"):
    """The folder of our cgroup and the name of its limit, in v2 or v1; None where there is none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            root = Path("/sys/fs/cgroup") / path.lstrip("/")
            if controller in (root / "cgroup.subtree_control").read_text().split() if root.is_dir() else ():
                return root, f"{controller}.max"
        elif controller in controllers.split(","):
            name = "limit_in_bytes" if controller == "memory" else "max"
            return Path("/sys/fs/cgroup") / controller / path.lstrip("/"), f"{controller}.{name}"
    return None


@contextlib.contextmanager
def limited(limit, controller="memory"):
    """A cgroup below our own with a hard limit: of bytes, or with "pids" of processes and threads."""
    own = own_cgroup(controller)
    if own is None:
        pytest.skip(f"no {controller} controller for this process")
    root, name = own
    group = root / f"lowtide-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        (group / name).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        yield group
    finally:
        for _ in range(50):  # until the kernel has buried the last process
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@pytest.mark.heavy
@pytest.mark.parametrize(("access", "chunks"), [(access, 49) for access in BOUNDED])
def test_in_a_cgroup_of_a_quarter_of_the_file(rows, take, access, chunks):
    with limited(512 * MIB) as group:
        # A page of the page cache belongs to the group that brought it in: cold, that is this one.
        def join():
            (group / "cgroup.procs").write_text(str(os.getpid()))

        taken = take(rows, access, cold="cold", chunks=chunks, before=join)
        assert taken.count == chunks * 4096
        assert 96 * MIB < taken.limit <= 128 * MIB, "the default budget is a quarter of the room"
        assert taken.total <= taken.limit + HAND, taken
        for peak in (group / "memory.max_usage_in_bytes", group / "memory.peak"):
            if peak.exists():
                assert int(peak.read_text()) > 64 * MIB, "the group was really used"


# Sizes

OPEN = """if True:
    import json, re, sys, time, lowtide, numpy
    def anon():
        text = open("/proc/self/status").read()
        return sum(int(v) << 10 for v in re.findall(r"^Rss(?:Anon|File):\\s+(\\d+) kB", text, re.M))
    before, start = anon(), time.perf_counter()
    a = lowtide.open(sys.argv[1])
    chunk = next(a.shuffled(4096, seed=0))
    print(json.dumps([time.perf_counter() - start, anon() - before]))
"""


def sparse(path, total):
    """A .npy file of `total` bytes of rows, all of it a hole."""
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (total // ROW, ROW // 4)}
        np.lib.format.write_array_header_1_0(file, header)
        os.truncate(file.fileno(), file.tell() + total)
    return path


def test_eight_tebibytes_open_like_one_gibibyte(tmp_path, python):
    small, large = sparse(tmp_path / "small.npy", GIB), sparse(tmp_path / "large.npy", 8 << 40)
    best = {}
    for _ in range(5):
        for path in (small, large):
            seconds, added = json.loads(python(OPEN, path))
            old = best.get(path, (9e9, 9e18))
            best[path] = (min(old[0], seconds), min(old[1], added))
    assert best[large][0] <= 2 * best[small][0], best
    assert best[large][1] <= best[small][1] + 8 * MIB, best


def test_page_tables_of_advise_are_bounded(take):
    """Page tables stay when pages go, 4 KiB for each 2 MiB that was touched: 128 MiB of 64 GiB."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs /dev/shm: a hole on a disk is read ahead, megabytes for each row")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.truncate(64 << 30)
        taken = take(file.name, "advise", 32 * MIB, chunks=16)
    assert taken.count == 16 * 4096
    assert taken.tables <= 16 * MIB, taken
    assert taken.total <= taken.limit + HAND, taken


@pytest.mark.parametrize(
    "access", [pytest.param(a, marks=pytest.mark.heavy if a in ("remap", "advise") else ()) for a in BOUNDED]
)
def test_ten_thousand_small_chunks_are_flat(rows, take, access):
    taken = take(rows, access, 32 * MIB, chunks=10_000, size=16)
    assert taken.count == 160_000
    assert taken.total <= taken.limit + HAND, taken


def test_the_budget_is_not_filled_because_it_is_there(tmp_path):
    """A shuffled pass over 256 MiB in memory, with 256 MiB to spend: more look-ahead would gain nothing."""
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(256 * MIB))
    code = """if True:
        import re, sys, lowtide
        def anon():
            return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10
        a = lowtide.open(sys.argv[1], dtype="<i8", shape=(-1, 64), budget="256MiB", cache="keep")
        list(lowtide.open(sys.argv[1], dtype="<i8", shape=(64, 64)).shuffled(8))
        before, most = anon(), 0
        for i, chunk in enumerate(a.shuffled(4096, seed=1)):
            most = max(most, anon() - before)
        print(i + 1, most)
    """
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    chunks, most = map(int, done.stdout.split())
    assert chunks == 128
    assert most < 96, "MiB: a quarter of the file, and what threads take; it was 248"
