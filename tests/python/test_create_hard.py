"""What ``lowtide.create`` promises, tried: the kernel's numbers, kills, full disks, a small cgroup."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from test_memory import limited

import lowtide

MIB = 1 << 20


def cachestat(file):
    """Pages of a file: cached, dirty, being written back."""
    answer = (ctypes.c_uint64 * 5)()
    if ctypes.CDLL(None).syscall(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0) != 0:
        raise OSError("no cachestat")
    return list(answer)[:3]


@pytest.fixture
def real_disk(tmp_path):
    """A folder whose pages are not the files themselves."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        pytest.skip(f"pages of {kind} are the files")
    with open(tmp_path / "x", "wb") as file:
        try:
            cachestat(file)
        except OSError:
            pytest.skip("this kernel does not tell what is dirty (Linux 6.5)")
    (tmp_path / "x").unlink()
    return tmp_path


# The kernel's numbers

WRITE = """if True:
    import ctypes, json, os, re, sys, threading, lowtide, numpy as np
    path, way, budget, cache = sys.argv[1:]
    part = os.path.join(os.path.dirname(path), "." + os.path.basename(path) + ".lowtide")
    call, page = ctypes.CDLL(None).syscall, os.sysconf("SC_PAGESIZE")
    status = open("/proc/self/status")
    def anon():
        status.seek(0)
        return int(re.search(r"RssAnon:\\s+(\\d+)", status.read())[1]) << 10
    rows = 192
    shape = (None, 1 << 18) if way != "random" else (rows, 1 << 18)
    chunk = np.ones((4, 1 << 18), "f4")
    w = lowtide.create(path, "f4" if way != "cast" else "f8", shape, budget=int(budget), cache=cache)
    file = open(part, "rb")
    base, peak, over = anon(), {"both": 0, "dirty": 0, "cached": 0, "looks": 0}, threading.Event()
    def look():
        while not over.wait(0.002):
            answer = (ctypes.c_uint64 * 5)()
            call(451, file.fileno(), (ctypes.c_uint64 * 2)(0, 0), answer, 0)
            dirty = (answer[1] + answer[2]) * page
            peak["both"] = max(peak["both"], anon() - base + dirty)
            peak["cached"] = max(peak["cached"], answer[0] * page)
            peak["dirty"] = max(peak["dirty"], dirty)
            peak["looks"] += 1
    thread = threading.Thread(target=look)
    thread.start()
    if way == "append":
        for _ in range(rows // 4): w.append(chunk)
    elif way == "cast":
        w.append(np.broadcast_to(np.float32(1), (rows // 2, 1 << 18)))
    else:
        for at in np.random.default_rng(0).permutation(rows // 4): w.write(at * 4, chunk)
    w.close()
    over.set()
    thread.join()
    print(json.dumps(peak))
"""


@pytest.mark.parametrize("way", ["append", "random", "cast"])
@pytest.mark.parametrize("cache", ["keep", "drop"])
def test_memory_and_dirty_pages_stay_in_the_budget(real_disk, python, way, cache):
    budget, path = 10 * MIB, real_disk / "a.npy"
    peak = json.loads(python(WRITE, path, way, budget, cache))
    assert peak["looks"] > 3
    assert peak["both"] <= budget + MIB, peak
    assert peak["both"] > MIB, "something was really looked at"
    if cache == "keep":
        assert peak["dirty"] > MIB, peak
    else:  # past the page cache, but for the beginning of the file and the ends of pages
        assert peak["cached"] <= budget, peak
    with open(path, "rb") as file:
        cached, dirty, _ = cachestat(file)
        assert dirty == 0
        assert (cached == 0) == (cache == "drop")
    assert (lowtide.open(path)[:, ::4096] == 1).all()
    assert path.stat().st_size == 128 + 192 * MIB


def test_auto_keeps_what_fits_in_half_the_room_and_then_lets_go_of_all(real_disk, python):
    with limited(128 * MIB) as group:

        def join():
            (group / "cgroup.procs").write_text(str(os.getpid()))

        code = """if True:
            import lowtide, sys, numpy as np
            with lowtide.create(sys.argv[1], "u1", (None, 1 << 20)) as w:
                for _ in range(int(sys.argv[2])): w.append(np.ones((1, 1 << 20), "u1"))
        """
        for name, rows in (("small.npy", 16), ("large.npy", 512)):
            python(code, real_disk / name, rows, before=join)
        with open(real_disk / "small.npy", "rb") as small, open(real_disk / "large.npy", "rb") as large:
            assert cachestat(small)[0] * 4096 >= 8 * MIB
            assert cachestat(large)[0] == 0
        assert (np.load(real_disk / "large.npy", mmap_mode="r")[-1] == 1).all()


@pytest.mark.parametrize(
    ("size", "limit"), [(512 * MIB, 64 * MIB), pytest.param(2048 * MIB, 128 * MIB, marks=pytest.mark.heavy)]
)
def test_many_times_a_cgroups_limit_is_written_and_nobody_is_killed(real_disk, python, size, limit):
    with limited(limit) as group:

        def join():
            (group / "cgroup.procs").write_text(str(os.getpid()))

        code = """if True:
            import lowtide, sys, numpy as np
            chunk = np.ones((16, 1 << 18), "f4")
            with lowtide.create(sys.argv[1], "f4", (None, 1 << 18)) as w:
                for _ in range(int(sys.argv[2]) >> 24): w.append(chunk)
        """
        python(code, real_disk / "a.npy", size, before=join, timeout=300)
        assert (real_disk / "a.npy").stat().st_size == 128 + size
        for peak in (group / "memory.max_usage_in_bytes", group / "memory.peak"):
            if peak.exists():
                assert int(peak.read_text()) > 16 * MIB, "the group was really used"


# Kills

WRITERS = """if True:
    import sys, os, lowtide, numpy as np
    folder, first = sys.argv[1], int(sys.argv[2])
    os.chdir(folder)
    print("ready", flush=True)
    for n in range(first, first + 100000):
        rows = 1000 + n % 7 * 1000
        with lowtide.create("grows.npy", "i8", (None, 4), overwrite=True, budget="1MiB") as w:
            for _ in range(rows // 1000): w.append(np.full((1000, 4), n))
        with lowtide.create("known.npy", "i4", (64, 512), overwrite=True) as w:
            for row in np.random.default_rng(n).permutation(64): w[row] = np.int32(n)
        with lowtide.append("appended.npy") as w:
            for _ in range(3):
                w.append(np.arange(len(w), len(w) + 5000))
                if n % 2: w.flush()
"""


def judge(folder):
    """Every file is whole: one number all over, of one run; or numbers that follow each other."""
    seen = 0
    for read in (np.load, lambda path: lowtide.open(path)[...]):
        with contextlib.suppress(FileNotFoundError):
            grows = read(folder / "grows.npy")
            n = int(grows[0, 0])
            assert grows.shape == (1000 + n % 7 * 1000, 4)
            assert (grows == n).all()
            seen = max(seen, n)
        with contextlib.suppress(FileNotFoundError):
            known = read(folder / "known.npy")
            assert known.shape == (64, 512)
            assert (known == known[0, 0]).all()
        appended = read(folder / "appended.npy")
        assert len(appended) % 5000 == 0
        assert (appended == np.arange(len(appended))).all()
    return seen, len(appended)


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.heavy)])
def test_killed_at_any_moment_nothing_is_lost_nothing_half_no_litter(tmp_path, kills):
    luck, litter, was = random.Random(kills), 0, (0, 0)
    np.save(tmp_path / "appended.npy", np.arange(0))
    for number in range(kills):
        command = [sys.executable, "-c", WRITERS, tmp_path, str(1 + number * 1000)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(luck.random() * 0.08)
        child.kill()
        assert child.wait() == -signal.SIGKILL, "it was at work"
        child.stdout.close()
        now = judge(tmp_path)
        assert now[0] >= was[0], "the file of an earlier run came back"
        assert now[1] >= was[1], "rows that were on the disk are gone"
        was = now
        names = {path.name for path in tmp_path.iterdir()}
        assert names <= {
            f"{dot}{name}.npy{end}"
            for name in ("grows", "known", "appended")
            for dot, end in (("", ""), (".", ".lowtide"))
        }
        litter += len([name for name in names if name.startswith(".")])
    assert litter > 0, "some were killed in the midst of it"
    assert was[0] > 0
    for name in ("grows", "known"):
        lowtide.create(tmp_path / f"{name}.npy", "i4", (1,), overwrite=True).close()
    lowtide.append(tmp_path / "appended.npy").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["appended.npy", "grows.npy", "known.npy"]
    assert len(np.load(tmp_path / "appended.npy")) == was[1]


# A disk that is full


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request, tmp_path):
    """A filesystem of its own of 24 MiB; root only."""
    mount, image = tmp_path / "disk", tmp_path / "image"
    mount.mkdir()
    if request.param == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", "size=24m", "none", mount]
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        with open(image, "wb") as file:
            file.truncate(24 * MIB)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
        command = ["mount", "-o", "loop", image, mount]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)


def test_what_does_not_fit_is_refused_without_filling_the_disk(tmp_path):
    free, least, done = os.statvfs(tmp_path), [], threading.Event()

    def watch():
        while not done.wait(0.001):
            least.append(os.statvfs(tmp_path).f_bavail)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(OSError, match="nothing was written") as caught:
            lowtide.create(tmp_path / "rows.npy", "u1", (2 * free.f_bavail * free.f_frsize // MIB, MIB))
    finally:
        done.set()
        watcher.join()
    assert caught.value.errno == errno.ENOSPC
    assert min(least, default=free.f_bavail) > free.f_bavail // 2
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("cache", ["auto", "drop"])
def test_a_full_disk_is_said_at_once_or_with_the_chunk_and_nothing_is_lost(small_disk, cache):
    chunk = np.random.default_rng(0).integers(0, 256, (1, MIB), "u1")
    old = np.arange(10)
    np.save(small_disk / "old.npy", old)
    for path, overwrite in (("new.npy", False), ("old.npy", True)):
        with pytest.raises(
            OSError, match=r"No space left on device \(hint: it needs 1 GiB; nothing was written\)"
        ) as caught:
            lowtide.create(small_disk / path, "u1", (1024, MIB), overwrite=overwrite)
        assert caught.value.errno == errno.ENOSPC
    assert (np.load(small_disk / "old.npy") == old).all()
    (small_disk / "filler").write_bytes(bytes(8 * MIB))
    with lowtide.create(small_disk / "new.npy", "u1", (None, MIB), cache=cache) as w:
        many = itertools.repeat(chunk)
        with pytest.raises(OSError, match=r"No space left on device \(hint: the disk is full\)"):
            w.extend(many, progress=False)
        rows = len(w)
        assert 4 < rows < 24
        (small_disk / "filler").unlink()
        w.append(chunk)
    assert (np.load(small_disk / "new.npy") == np.repeat(chunk, rows + 1, 0)).all()
    with pytest.raises(OSError, match="the disk is full"), lowtide.append(small_disk / "new.npy") as w:
        w.append(np.repeat(chunk, 24, 0))
    assert (np.load(small_disk / "new.npy") == np.repeat(chunk, rows + 1, 0)).all()
    assert sorted(path.name for path in small_disk.iterdir() if path.name != "lost+found") == [
        "new.npy",
        "old.npy",
    ]


def test_a_limit_on_the_size_of_files_is_named(tmp_path, python):
    code = """if True:
        import lowtide, sys, numpy as np
        for shape in ((None, 1 << 20), (64, 1 << 20)):
            try:
                with lowtide.create(sys.argv[1], "u1", shape) as w:
                    for _ in range(64): w.append(np.ones((1, 1 << 20), "u1"))
            except OSError as error:
                print(error)
    """
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))  # noqa: E731
    said = python(code, tmp_path / "a.npy", before=limit).splitlines()
    assert len(said) == 2
    assert "ulimit -f" in said[0]
    assert list(tmp_path.iterdir()) == []
