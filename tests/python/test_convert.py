"""``lowtide.convert`` and ``lowtide convert`` of arrays, against NumPy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import lowtide

COMMAND = [sys.executable, "-m", "lowtide", "convert"]
MIB = 1 << 20
KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def numbers(shape, dtype, seed=0):
    """Small whole numbers, which every type of more than a bit can hold."""
    high = 2 if np.dtype(dtype) == bool else 100
    return np.random.default_rng(seed).integers(0, high, shape).astype(dtype)


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def astype(array, to):
    """NumPy's, without a word about what is lost."""
    with warnings.catch_warnings(action="ignore"):
        return array.astype(to)


def in_order(array, order):
    return np.asfortranarray(array) if order == "F" else np.ascontiguousarray(array)


@pytest.fixture(scope="module")
def home():
    """In memory, where there is such a place: hundreds of files are synced."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


# The numbers are NumPy's

SIZES = st.sampled_from([0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65])
SHAPES = st.lists(SIZES, min_size=1, max_size=3).map(tuple)


@examples(max_examples=120)
@given(
    SHAPES,
    st.sampled_from(KINDS),
    st.sampled_from(KINDS[1:]),
    st.sampled_from("<>"),
    st.sampled_from("<>"),
    st.sampled_from("CF"),
    st.sampled_from("CF"),
    st.sampled_from(["npy", "bin"]),
    st.sampled_from(["npy", "bin"]),
)
def test_files_are_those_of_numpy(home, shape, kind, to, end, to_end, order, to_order, inside, outside):
    old = in_order(numbers(shape, end + kind), order)
    path, out = home / f"in.{inside}", home / f"out.{outside}"
    words = {}
    if inside == "npy":
        np.save(path, old)
    else:
        path.write_bytes(old.tobytes("A"))
        words = {"in_dtype": old.dtype, "in_shape": shape, "in_order": order}
    if 0 in shape and inside == "bin":
        return  # an empty file has no dtype of its own to be read by
    words |= {"dtype": to_end + to, "order": to_order, "budget": "4MiB", "overwrite": True, "progress": False}
    made = lowtide.convert(path, out, **words)
    new = in_order(astype(old, to_end + to), to_order)
    assert out.read_bytes() == (saved(new) if outside == "npy" else new.tobytes("A"))
    assert made["shape"] == shape
    assert np.dtype(made["dtype"]) == new.dtype
    assert made["bytes"] == new.nbytes
    assert lowtide.convert(path, out, **words | {"dtype": None, "byte_order": "big"})["dtype"] in (
        old.dtype.newbyteorder(">").str,
        old.dtype.str,
    )


@pytest.mark.parametrize("dtype", ["u1", "f4", "c16"])
@pytest.mark.parametrize("shape", [(800_001, 3), (3, 800_001), (1_500, 1_600), (7, 70_000, 5)])
def test_axes_turn_out_of_core(home, shape, dtype):
    old = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    for order, other in ("FC", "CF"):
        np.save(home / "in.npy", in_order(old, order))
        lowtide.convert(
            home / "in.npy", home / "out.npy", order=other, budget="4MiB", overwrite=True, cache="drop"
        )
        assert (home / "out.npy").read_bytes() == saved(in_order(old, other))


def test_several_files_become_one(tmp_path):
    rows = np.random.default_rng(0).integers(0, 99, (1000, 7)).astype("f8")
    (tmp_path / "parts").mkdir()
    for n in range(10):
        np.save(tmp_path / "parts" / f"{n}.npy", rows[n * 100 : n * 100 + 100])
    parts = sorted((tmp_path / "parts").iterdir())
    for n, name in enumerate([tmp_path / "parts", tmp_path / "parts" / "*.npy", parts]):
        out = tmp_path / f"{n}.npy"
        lowtide.convert(name, out, order="F" if n == 1 else None)
        assert out.read_bytes() == saved(np.asfortranarray(rows) if n == 1 else rows)
    np.save(parts[3], np.full((100, 7), 1e300))
    with pytest.raises(
        ValueError, match=r"parts/3\.npy: at byte 128: .* can hold, found 1e\+?300 at \[300, 0\]"
    ):
        lowtide.convert(parts, tmp_path / "lost.npy", dtype="f4")


# What is lost

EDGES = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    2047,
    2049,
    65504,
    65505,
    65535,
    65536,
    2**24,
    2**24 + 1,
    2**31,
    2**53 + 1,
]
EDGES += [2**63 - 1, 2**63, 2**64 - 1, 0.5, 0.1, 1e10, 1e300, float("inf"), float("nan")]


def survives(value, to):
    """Whether NumPy brings it back, exactly."""
    there = astype(np.array([value]), to)[0]
    if not np.isfinite(value):
        return there.dtype.kind in "fc"
    if there.dtype.kind in "iu" and not np.iinfo(to).min <= np.real(value).item() <= np.iinfo(to).max:
        return False
    # Python's numbers are exact, and so are their comparisons.
    parts = (
        [(there.real, value.real), (there.imag, value.imag)] if there.dtype.kind != "b" else [(there, value)]
    )
    return all(made.item() == old.item() for made, old in parts)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_what_would_be_lost_is_refused_with_its_place(home, kind):
    edges = [np.float64(edge) for edge in EDGES] + [
        np.uint64(edge) for edge in EDGES if isinstance(edge, int)
    ]
    values = [astype(edge * one, kind) for edge in edges for one in (edge.dtype.type(1), np.float64(-1))]
    lossy = 0
    for to in KINDS:
        kept = np.array([value for value in values if survives(value, to)], kind)
        np.save(home / "in.npy", kept)
        lowtide.convert(home / "in.npy", home / "out.npy", dtype=to, overwrite=True)
        np.testing.assert_array_equal(np.load(home / "out.npy"), kept)
        for lost in [value for value in values if not survives(value, to)][:6]:
            lossy += 1
            rows = np.zeros((70, 33), kind)
            rows[41, 17] = lost
            np.save(home / "in.npy", rows)
            order = "CF"[lossy % 2]
            words = {"dtype": to, "overwrite": True, "order": order}
            # NumPy calls these safe.
            assert not np.can_cast(kind, to) or (kind in ("i8", "u8") and to[0] in "fc")
            place = re.escape(f"at byte {128 + (41 * 33 + 17) * rows.itemsize}: ")
            found = rf"{place}.* can hold, found .* at \[41, 17\]\nhint: lossy=True"
            with pytest.raises(ValueError, match=found):
                lowtide.convert(home / "in.npy", home / "out.npy", **words)
            if np.isfinite(lost) and (np.dtype(kind).kind in "iu" or np.dtype(to).kind in "fc"):
                lowtide.convert(home / "in.npy", home / "out.npy", lossy=True, **words)
                assert (home / "out.npy").read_bytes() == saved(in_order(astype(rows, to), order))
    assert lossy > 10


def test_bfloat16_goes_both_ways(tmp_path):
    floats = np.random.default_rng(0).standard_normal((100, 5)).astype("f4")
    cut = (floats.view("u4") & 0xFFFF0000).view("f4")
    np.save(tmp_path / "f4.npy", cut)
    with pytest.raises(ValueError, match=r"NumPy has no bfloat16\nhint: write it as raw"):
        lowtide.convert(tmp_path / "f4.npy", tmp_path / "no.npy", dtype="bfloat16")
    lowtide.convert(tmp_path / "f4.npy", tmp_path / "b.bin", dtype="bfloat16")
    assert (np.fromfile(tmp_path / "b.bin", "u2") == (cut.view("u4") >> 16).ravel()).all()
    lowtide.convert(
        tmp_path / "b.bin", tmp_path / "back.npy", dtype="f4", in_dtype="bfloat16", in_shape=(-1, 5)
    )
    assert (tmp_path / "back.npy").read_bytes() == saved(cut)
    np.save(tmp_path / "f4.npy", floats)
    with pytest.raises(ValueError, match="a value that bfloat16 can hold"):
        lowtide.convert(tmp_path / "f4.npy", tmp_path / "c.bin", dtype="bfloat16")


# Whole or not at all


def test_an_output_that_exists_is_kept_until_the_new_one_is_whole(tmp_path):
    np.save(tmp_path / "in.npy", np.asfortranarray(np.arange(600.0).reshape(20, 30)))
    before = (tmp_path / "in.npy").read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "in.npy", order="C")
    with pytest.raises(ValueError, match="can hold"):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "in.npy", dtype="i1", overwrite=True)

    def stop(at):
        raise KeyError(at["total"])

    with pytest.raises(KeyError, match="4800"):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "in.npy", order="C", overwrite=True, progress=stop)
    assert (tmp_path / "in.npy").read_bytes() == before
    told = []
    lowtide.convert(tmp_path / "in.npy", tmp_path / "in.npy", order="C", overwrite=True, progress=told.append)
    assert (tmp_path / "in.npy").read_bytes() == saved(np.arange(600.0).reshape(20, 30))
    assert told[-1] == {"written": 4800, "total": 4800}
    assert [path.name for path in tmp_path.iterdir()] == ["in.npy"]


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path):
    disk = os.statvfs(tmp_path)
    size = disk.f_bavail * disk.f_frsize // 8 + MIB
    with open(tmp_path / "in.bin", "wb") as file:
        file.truncate(size)  # a hole
    with pytest.raises(OSError, match=r"hint: it needs .*; nothing was written"):
        lowtide.convert(tmp_path / "in.bin", tmp_path / "out.npy", dtype="f8", in_dtype="u1")
    assert [path.name for path in tmp_path.iterdir()] == ["in.bin"]


KILLED = """if True:
    import sys, lowtide
    print("ready", flush=True)
    for n in range(10_000):
        words = {"order": "FC"[n % 2], "budget": "8MiB", "overwrite": True, "progress": False}
        lowtide.convert(sys.argv[1], sys.argv[2], **words)
"""


@pytest.mark.heavy
def test_killed_at_any_moment_the_old_or_the_new_is_there(tmp_path):
    rows = np.random.default_rng(0).integers(0, 1 << 30, (2000, 3000))
    np.save(tmp_path / "in.npy", rows)
    luck, litter, whole = random.Random(0), 0, {saved(rows), saved(np.asfortranarray(rows))}
    for _ in range(24):
        command = [sys.executable, "-c", KILLED, tmp_path / "in.npy", tmp_path / "out.npy"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(luck.random() * 0.4)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        names = {path.name for path in tmp_path.iterdir()}
        assert names <= {"in.npy", "out.npy", ".out.npy.lowtide"}
        litter += ".out.npy.lowtide" in names
        if "out.npy" in names:
            assert (tmp_path / "out.npy").read_bytes() in whole
    assert litter > 0
    lowtide.convert(tmp_path / "in.npy", tmp_path / "out.npy", overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"in.npy", "out.npy"}


@pytest.fixture
def slow_disk():
    """A folder on a disk, not in memory, and a group that may send it few requests a second; root only."""
    group = Path("/sys/fs/cgroup/blkio") / f"lowtide-test-{os.getpid()}"
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        disk = os.stat(name).st_dev
        try:
            group.mkdir()
        except OSError:
            pytest.skip("no group for a slow disk can be made: that takes root, and version 1 of cgroups")
        try:
            for what in ("read", "write"):
                limit = f"{os.major(disk)}:{os.minor(disk)} 1500"
                (group / f"blkio.throttle.{what}_iops_device").write_text(limit)
            yield Path(name), group / "cgroup.procs"
        except OSError:
            pytest.skip("this disk cannot be slowed down")
        finally:
            group.rmdir()


def written_by(process):
    """Bytes that a process has sent to disks."""
    return int(re.search(r"^write_bytes: (\d+)", Path(f"/proc/{process.pid}/io").read_text(), re.M)[1])


@pytest.mark.heavy
def test_killed_in_either_of_two_passes_the_old_is_there(slow_disk):
    """On a disk that is bound by requests a second, where two passes are the faster way; by the command."""
    folder, group = slow_disk
    rows = np.random.default_rng(0).integers(0, 1 << 30, (4096, 5000), "i4")
    np.save(folder / "in.npy", rows)
    whole, old, out = saved(np.asfortranarray(rows)), b"what was there", folder / "out.npy"
    words = [
        "in.npy",
        "out.npy",
        "--order",
        "F",
        "--budget",
        "8MiB",
        "--cache",
        "drop",
        "--overwrite",
        "--quiet",
    ]

    def begin():
        join = lambda: group.write_text(str(os.getpid()))  # noqa: E731
        return subprocess.Popen([*COMMAND, *words], cwd=folder, preexec_fn=join, stdout=subprocess.DEVNULL)

    luck, first, second = random.Random(0), 0, 0
    for _ in range(20):
        out.write_bytes(old)
        child, until = begin(), luck.uniform(0, 2.1) * len(whole)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while child.poll() is None and (sent := written_by(child)) < until:
                time.sleep(0.002)
        child.kill()
        ended = child.wait()
        assert out.read_bytes() == (whole if ended == 0 else old)
        assert {path.name for path in folder.iterdir()} <= {"in.npy", "out.npy", ".out.npy.lowtide"}
        first += ended != 0 and sent < 0.9 * len(whole)
        second += ended != 0 and sent > 1.3 * len(whole)  # one pass and all that was tried is less
    assert begin().wait() == 0
    assert out.read_bytes() == whole
    assert sorted(path.name for path in folder.iterdir()) == ["in.npy", "out.npy"]
    assert first > 0
    if second == 0:
        pytest.skip("one pass was the faster way here, every time")


MEASURED = """if True:
    import ctypes, json, os, re, sys, threading, lowtide, numpy as np
    source, path, budget = sys.argv[1:]
    part = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".lowtide")
    call, page = ctypes.CDLL(None).syscall, os.sysconf("SC_PAGESIZE")
    status = open("/proc/self/status")
    def resident():
        status.seek(0)
        text = status.read()
        return [int(re.search(name + r":\\s+(\\d+)", text)[1]) << 10 for name in ("RssAnon", "RssFile")]
    np.save(path + ".small.npy", np.asfortranarray(np.ones((300, 200), "f4")))
    lowtide.convert(path + ".small.npy", path + ".small.out", order="C", budget=int(budget), progress=False)
    for end in (".npy", ".out"):
        os.remove(path + ".small" + end)
    base, over = resident(), threading.Event()
    peak = {"memory": 0, "dirty": 0, "cached": 0, "read": 0, "looks": 0}
    def cached(file):
        answer = (ctypes.c_uint64 * 5)()
        call(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0)
        return answer[0] * page, (answer[1] + answer[2]) * page
    def look():
        file, old = None, open(source, "rb")
        while not over.wait(0.002):
            if file is None and os.path.exists(part):
                file = open(part, "rb")
            if file is None:
                continue
            kept, dirty = cached(file)
            now = resident()
            peak["memory"] = max(peak["memory"], sum(now) - sum(base) + dirty)
            peak["cached"] = max(peak["cached"], kept)
            peak["read"] = max(peak["read"], cached(old)[0])
            peak["dirty"] = max(peak["dirty"], dirty)
            peak["looks"] += 1
    thread = threading.Thread(target=look)
    thread.start()
    lowtide.convert(source, path, order="C", budget=int(budget), cache="drop", progress=False)
    over.set()
    thread.join()
    print(json.dumps(peak))
"""


@pytest.mark.parametrize("columns", [64, 8192])
def test_memory_dirty_pages_and_page_cache_stay_in_the_budget(tmp_path, python, columns):
    from test_create_hard import cachestat

    budget, rows = 16 * MIB, 16 * MIB // columns
    old = np.arange(rows * columns, dtype="f4").reshape(columns, rows).T
    with open(tmp_path / "in.npy", "wb") as file:
        np.save(file, old)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            cachestat(file)
        except OSError:
            pytest.skip("this kernel does not tell what is dirty (Linux 6.5)")
    peak = json.loads(python(MEASURED, tmp_path / "in.npy", tmp_path / "out.npy", budget))
    assert peak["looks"] > 3
    assert peak["memory"] <= budget + MIB, peak
    assert max(peak["cached"], peak["read"]) <= budget, peak
    assert (np.load(tmp_path / "out.npy", mmap_mode="r") == old).all()


# The command


def test_the_command_says_what_it_made_and_what_is_wrong(tmp_path):
    rows = np.asfortranarray(np.arange(60, dtype="i4").reshape(12, 5))
    rows.T.tofile(tmp_path / "in.bin")
    words = ["--in-dtype", "int32", "--in-shape", "-1,5", "--in-order", "F"]
    done = subprocess.run(
        [*COMMAND, "in.bin", "out.npy", *words, "--dtype", "u1", "--order", "C", "--json"],
        capture_output=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made.pop("seconds") >= 0
    assert made == {
        "path": str(tmp_path / "out.npy"),
        "shape": [12, 5],
        "dtype": "|u1",
        "order": "C",
        "bytes": 60,
    }
    assert (tmp_path / "out.npy").read_bytes() == saved(np.ascontiguousarray(rows.astype("u1")))

    def said(*arguments):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, cwd=tmp_path, text=True)
        return done.returncode, done.stderr.replace(str(tmp_path) + "/", "")

    assert said("out.npy", "out.npy") == (
        1,
        "error: out.npy: cannot make the file: File exists (os error 17)\n"
        "hint: --overwrite replaces it, once the new one is whole\n",
    )
    assert said("out.npy", "b.npy", "--dtype", "bool") == (
        1,
        "error: out.npy: at byte 130: expected a value that bool can hold, found 2 at [0, 2]\n"
        "hint: --lossy converts it all the same, as astype does\n",
    )
    code, text = said("in.bin", "b.npy")
    assert code == 1
    assert (
        "hint: a file without a header needs --in-dtype (and --in-shape, --in-offset), as for np.memmap"
        in text
    )
    assert said("out.npy", "b.npy", "--budget", "1MiB")[0] == 1
    assert said("out.npy")[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.bin", "out.npy"]
    text = subprocess.run(
        [*COMMAND, "out.npy", "f.npy", "--order", "F"], capture_output=True, cwd=tmp_path, text=True
    )
    assert "(12, 5) of |u1, Fortran order" in text.stdout
