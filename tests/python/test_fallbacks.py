"""What a kernel or a filesystem lacks: the next best way is taken, and said.

Old kernels are played by seccomp, as containers play them: a system call is refused with the error that the
old kernel would give.
"""

import ctypes
import errno
import os
import platform
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest

import lowtide

PREADV2, IO_URING_SETUP, IO_URING_ENTER, CACHESTAT = 327, 425, 426, 451
RWF_NOWAIT, RWF_DONTCACHE = 0x08, 0x80

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the filters know x86-64's numbers only"
)


def refuse(*rules):
    """A function for the child to call before it becomes Python: refuses system calls from then on.

    Each rule is a number, an error, and None or flags of the sixth argument that must be set.
    """
    load, equal, any_set, answer = 0x20, 0x15, 0x45, 0x06
    program = []
    for number, error, flags in rules:
        program += [(load, 0, 0, 0), (equal, 0, 1 if flags is None else 3, number)]
        if flags is not None:
            program += [(load, 0, 0, 16 + 8 * 5), (any_set, 0, 1, flags)]
        program += [(answer, 0, 0, 0x50000 | error)]
    program += [(answer, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    whole = Program(len(program), ctypes.addressof(code))

    def before():
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(whole), 0, 0):
            os._exit(77)

    before.keep = code, whole
    return before


READ = """if True:
    import ctypes, itertools, os, sys, lowtide, numpy as np
    path, access, cache, chunks = sys.argv[1:5]
    def cached():
        with open(path, "rb") as file:
            answer = (ctypes.c_uint64 * 5)()
            span = (ctypes.c_uint64 * 2)(0, 0)
            failed = ctypes.CDLL(None).syscall(451, file.fileno(), span, answer, 0)
            return -1 if failed else answer[0] * 4096
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        np.frombuffer(os.pread(file.fileno(), 1 << 20, 64 << 20), "u1")  # somebody else's pages
    before = cached()
    a = lowtide.open(path, access=access, cache=cache, budget="16MiB")
    seen = np.zeros(len(a), bool)
    for rows, chunk in itertools.islice(a.shuffled(2048, seed=3, with_rows=True), int(chunks)):
        assert (chunk[:, 0] == rows).all() and (chunk[:, -1] == rows).all()
        seen[rows] = True
    assert seen.sum() == min(len(a), int(chunks) * 2048)
    for start in range(0, len(a), 50_000):
        assert (a[start : start + 100][:, 0] == np.arange(start, min(start + 100, len(a)))).all()
    print(before, cached(), a.shuffled(2048).access)
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("fallbacks") / "rows.npy"
    np.save(path, np.repeat(np.arange(200_000, dtype="float32")[:, None], 128, axis=1))  # 98 MiB
    with path.open("rb") as file:
        os.fsync(file.fileno())  # dirty pages cannot be dropped
    return path


def test_the_filters_refuse_what_they_should(python, rows):
    """Otherwise the tests below would test nothing."""
    code = """if True:
        import ctypes, os, sys
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(sys.argv[1], os.O_RDONLY)
        def error(*call):
            ctypes.set_errno(0)
            libc.syscall(*call)
            return ctypes.get_errno()
        buffers = [bytearray(8)]
        print(error(425, 1, 0), error(451, fd, 0, 0, 0), end=" ")
        for flags in (0, os.RWF_NOWAIT, 0x80):
            try:
                os.preadv(fd, buffers, 0, flags)
                print("ok", end=" ")
            except OSError as e:
                print(e.errno, end=" ")
    """
    before = refuse(
        (IO_URING_SETUP, errno.EPERM, None),
        (CACHESTAT, errno.ENOSYS, None),
        (PREADV2, errno.EOPNOTSUPP, RWF_DONTCACHE),
    )
    wanted = f"{errno.EPERM} {errno.ENOSYS} ok ok {errno.EOPNOTSUPP}"
    assert python(code, rows, before=before) == wanted


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOSYS])
def test_without_io_uring_threads_read_unbuffered(python, rows, error):
    before, after, access = python(
        READ, rows, "direct", "drop", 100, before=refuse((IO_URING_SETUP, error, None))
    ).split()
    assert access == "direct"
    assert int(after) <= int(before) + (16 << 20)


@pytest.mark.parametrize(
    "rule",
    [
        (IO_URING_SETUP, errno.EPERM, None),
        (PREADV2, errno.EOPNOTSUPP, RWF_NOWAIT),
        (IO_URING_ENTER, errno.EPERM, None),
    ],
)
def test_reads_that_the_page_cache_may_keep_come_without_a_ring_too(python, rows, rule):
    before, after, access = python(READ, rows, "read", "keep", 100, before=refuse(rule)).split()
    assert access == "read"
    assert int(after) > int(before) + (64 << 20)


@pytest.mark.parametrize("access", ["read", "advise", "remap"])
def test_without_dontcache_what_was_absent_is_dropped_again(python, rows, access):
    before, after, _ = python(
        READ,
        rows,
        access,
        "drop",
        100 if access == "read" else 8,
        before=refuse((PREADV2, errno.EOPNOTSUPP, RWF_DONTCACHE)),
    ).split()
    assert int(before) > 0
    assert int(after) <= int(before) + (16 << 20)
    assert int(after) >= int(before) * 0.9, "somebody else's pages stay"


def test_without_dontcache_and_cachestat_nothing_is_dropped_blindly(python, rows):
    before = refuse((PREADV2, errno.EOPNOTSUPP, RWF_DONTCACHE), (CACHESTAT, errno.ENOSYS, None))
    code = """if True:
        import sys, lowtide
        a = lowtide.open(sys.argv[1], access="read", cache="drop")
        try:
            a[0]
        except OSError as error:
            print(error)
        print(lowtide.open(sys.argv[1], cache="drop").shuffled(100).access)
    """
    said = python(code, rows, before=before)
    assert "leave the page cache as found" in said
    assert 'access="direct"' in said
    assert said.endswith("direct"), "auto goes around the page cache instead"


@pytest.mark.parametrize("access", ["auto", "read", "advise", "remap", "map", "direct"])
def test_an_old_kernel_reads_all_the_same(python, rows, access):
    """Without io_uring, cachestat, RWF_DONTCACHE and RWF_NOWAIT: Linux 4.13, say."""
    before = refuse(
        (IO_URING_SETUP, errno.ENOSYS, None),
        (CACHESTAT, errno.ENOSYS, None),
        (PREADV2, errno.EOPNOTSUPP, RWF_DONTCACHE | RWF_NOWAIT),
    )
    assert python(READ, rows, access, "keep", 100, before=before)


@pytest.fixture
def in_memory():
    """A file on a tmpfs, which has neither unbuffered reads nor a page cache apart from itself."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, np.repeat(np.arange(20_000, dtype="float32")[:, None], 128, axis=1))
        yield path


@pytest.mark.parametrize("cache", ["keep", "drop", "auto"])
def test_a_filesystem_in_memory_is_read_by_what_it_can(in_memory, every_access, cache):
    for access in every_access:
        if (access, cache) == ("map", "drop"):
            continue
        a = lowtide.open(in_memory, access=access, cache=cache, budget="16MiB")
        refused = ""
        try:
            chunks = a.shuffled(1000, seed=2, with_rows=True)
        except NotImplementedError as error:
            refused = str(error)
        if refused:  # before Linux 6.6
            assert access == "direct"
            assert "unbuffered reads are not possible" in refused
            assert 'access="read"' in refused
            continue
        seen = np.zeros(len(a), int)
        for rows, chunk in chunks:
            assert (chunk[:, 5] == rows).all()
            seen[rows] += 1
        assert (seen == 1).all()
        if access == "auto":
            assert chunks.access in ("read", "advise")


@pytest.mark.parametrize("access", ["read", "direct"])
def test_a_sandbox_that_comes_later_is_an_error_and_no_wait_for_ever(python, rows, access):
    code = """if True:
        import errno, os, sys, lowtide
        path, access, tests = sys.argv[1:]
        sys.path.insert(0, tests)
        from test_fallbacks import IO_URING_ENTER, refuse
        def take():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return a.take(range(0, 200_000, 1000))[:, 0].tolist()
        a = lowtide.open(path, access=access, cache="keep" if access == "read" else "drop")
        assert take() == list(range(0, 200_000, 1000))
        refuse((IO_URING_ENTER, errno.EPERM, None))()
        try:
            assert take() == list(range(0, 200_000, 1000))
            print("read")
        except PermissionError as error:
            print(error.filename)
    """
    assert python(code, rows, access, Path(__file__).parent) == str(rows)
