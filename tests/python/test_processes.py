"""Pickle, fork, spawn, threads and signals: whatever a training job does to its process."""

import itertools
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import lowtide

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@pytest.fixture
def array():
    """300,000 rows of 16 bytes; row i holds i."""
    return np.repeat(np.arange(300_000, dtype="<i4")[:, None], 4, axis=1)


def in_child(work, seconds=20):
    """Runs `work` in a forked child; what it raises, or its not ending, is our failure."""
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(seconds)  # a deadlock ends in SIGALRM
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"


# Pickle


@pytest.mark.parametrize("kind", ["npy", "raw", "fortran", "adopted", "big-endian"])
def test_an_array_pickles_as_its_path(save, tmp_path, same, kind, array):
    array = array[:1000]
    words = {"access": "advise", "budget": "20MiB"}
    match kind:
        case "npy":
            a = lowtide.open(save(array), **words)
        case "raw":
            (tmp_path / "raw.bin").write_bytes(b"head" + array.tobytes())
            a = lowtide.open(tmp_path / "raw.bin", dtype="<i4", shape=(-1, 4), offset=4, **words)
        case "fortran":
            array = np.asfortranarray(array)
            a = lowtide.open(save(array), **words)
        case "adopted":
            a = lowtide.open(np.load(save(array), mmap_mode="r")[10:], **words)
            array = array[10:]
        case _:
            array = array.astype(">i4")
            a = lowtide.open(save(array), **words)
    sent = pickle.dumps(a)
    assert len(sent) < 1000, "never data"
    b = pickle.loads(sent)
    same(b[...], array)
    assert (b.shape, b.dtype, b.path, b.access, b.budget.limit) == (
        a.shape,
        a.dtype,
        a.path,
        "advise",
        20 << 20,
    )
    assert next(b.chunks(500)).tolist() == array[:500].tolist()
    a.close()
    assert pickle.loads(pickle.dumps(a))[3].tolist() == array[3].tolist()


def test_a_pickle_is_checked_against_the_file(save, array):
    path = save(array)
    sent = pickle.dumps(lowtide.open(path))
    os.truncate(path, 1000)
    with pytest.raises(ValueError, match=r"rows\.npy.* bytes, as when this was pickled, found 1000 bytes"):
        pickle.loads(sent)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(sent)


def test_a_file_that_is_another_one_by_now_is_refused(save, array):
    """Of the same size: by its header, or where that is the same by its first and last 4 KiB."""
    array = array[:1000]
    for other, says in [
        (array.astype("<f4"), r"\(1000, 4\) int32 in C order .*, found .* \(1000, 4\) float32"),
        (array.reshape(4, 1000), r"\(1000, 4\) .* found .* \(4, 1000\)"),
        (np.asfortranarray(array), "in C order .* found .* in Fortran order"),
        (array + 1, "the first and last 4 KiB that it had"),
        (b"x" * os.path.getsize(save(array)), "found no .npy header but bytes 78 78"),
    ]:
        path = save(array)
        a = lowtide.open(path)
        sent = pickle.dumps(a)
        a.close()
        sent_closed = pickle.dumps(a)  # knows the header and the size
        assert pickle.loads(sent)[5].tolist() == pickle.loads(sent_closed)[5].tolist() == [5] * 4
        if isinstance(other, bytes):
            path.write_bytes(other)
        else:
            assert save(other) == path
        with pytest.raises(ValueError, match=rf"{path}.*as when this was pickled.*\nhint: ") as refused:
            pickle.loads(sent)
        assert re.search(says, str(refused.value)), refused.value
        if "header" in says or "order" in says:
            with pytest.raises(ValueError, match="as when this was pickled"):
                pickle.loads(sent_closed)


def test_a_raw_file_is_checked_too(tmp_path, array):
    path = tmp_path / "rows.bin"
    path.write_bytes(array.tobytes())
    sent = pickle.dumps(lowtide.open(path, dtype="<i4", shape=(-1, 4)))
    path.write_bytes(array.tobytes() + bytes(16))
    with pytest.raises(ValueError, match="4800000 bytes, as when this was pickled, found 4800016 bytes"):
        pickle.loads(sent)
    path.write_bytes(array[::-1].tobytes())
    with pytest.raises(ValueError, match="first and last 4 KiB"):
        pickle.loads(sent)


@pytest.mark.parametrize("files", [1, 3])
def test_pickled_tokens_are_checked_against_the_files(tmp_path, files):
    paths = [tmp_path / f"{i}.bin" for i in range(files)]
    numbers = np.arange(1000, dtype="<u2")
    for path in paths:
        path.write_bytes(numbers.tobytes())
    tokens = lowtide.tokens(paths)
    sent = pickle.dumps(tokens)
    tokens.close()
    for again in (pickle.loads(sent), pickle.loads(pickle.dumps(tokens))):
        assert (again[:1000] == numbers).all()
    paths[-1].write_bytes((numbers[:500].astype("<u4") + 1).tobytes())  # the same size, another type
    with pytest.raises(ValueError, match=r"bin.*the first and last 4 KiB that it had"):
        pickle.loads(sent)
    paths[-1].write_bytes(numbers[:-1].tobytes())
    with pytest.raises(
        ValueError, match=rf"{paths[-1]}.*2000 bytes, as when this was pickled, found 1998 bytes"
    ):
        pickle.loads(sent)


def test_a_pickle_goes_where_a_copy_of_the_file_is(save, array, tmp_path):
    """Another node, another inode, another time: the content counts."""
    path = save(array)
    sent = pickle.dumps(lowtide.open(path))
    shutil.copy(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    os.utime(path, (1, 1))
    assert (pickle.loads(sent)[::1000] == array[::1000]).all()


def test_a_memmap_that_is_written_to_may_change(tmp_path):
    m = np.memmap(tmp_path / "rows.bin", dtype="<i4", mode="w+", shape=(100, 4))
    a = lowtide.open(m)
    again = pickle.loads(pickle.dumps(a))
    sent = pickle.dumps(again)
    m[:] = 7
    m.flush()
    assert (pickle.loads(sent)[5] == 7).all()


# Fork and spawn


def test_a_child_goes_on_by_itself(save, access, least, array):
    a = lowtide.open(save(array), access=access, budget=least)
    it = a.shuffled(1000, seed=1, with_rows=True)
    held = [next(it) for _ in range(5)]
    state = it.state_dict()

    def child():
        seen = list(itertools.chain(*(at.tolist() for at, _ in held)))
        for at, chunk in held:
            assert (chunk[:, 0] == at).all()  # memory of the parent's batches
            chunk[:] = -1  # and its own copy of them
        assert it.state_dict() == state
        for at, chunk in it:
            assert (chunk[:, 0] == at).all()
            seen += at.tolist()
        assert sorted(seen) == list(range(len(array)))
        assert (a[::777] == array[::777]).all()
        held.clear()
        a.close()

    in_child(child)
    assert it.state_dict() == state
    for at, chunk in held:
        assert (chunk[:, 0] == at).all()
    assert sum(len(at) for at, _ in it) == len(array) - 5000


def first_and_last(a):
    return int(a[0, 0]), int(a[-1, 0]), int(next(a.shuffled(1000, seed=3))[0, 0])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_pool_of_processes(save, method, array):
    a = lowtide.open(save(array), access="auto")
    want = first_and_last(a)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(first_and_last, [a] * 6).get(60) == [want] * 6


@pytest.mark.parametrize("forks", [10, pytest.param(200, marks=pytest.mark.heavy)])
def test_fork_while_other_threads_read(save, access, least, array, forks):
    """A lock that another thread held at the fork stays locked in the child for ever."""
    a = lowtide.open(save(array), access=access, budget=least)
    shared = a.shuffled(500, seed=2, with_rows=True)
    begin = shared.state_dict()
    stop = threading.Event()

    def read(seed):
        while not stop.is_set():
            for chunk in itertools.islice(a.shuffled(2000, seed=seed), 20):
                assert (chunk[:, 0] == chunk[:, 1]).all()
            a[seed::997], a[[3, 1, 2]]
            if next(shared, None) is None:
                shared.load_state_dict(begin)

    def child():
        assert (a[:: len(array) // 100] == array[:: len(array) // 100]).all()
        order = [n for c in itertools.islice(a.shuffled(1000, seed=5), 20) for n in c[:, 0].tolist()]
        assert len(set(order)) == 20_000
        with lowtide.open(a.path, access=a.access, budget=least) as again:
            assert again[7, 0] == 7
        try:
            for at, chunk in itertools.islice(shared, 1):  # none if it was at its end
                assert (chunk[:, 0] == at).all()
        except RuntimeError as error:  # it was in another thread's hands: that is said, not waited for
            assert "hint: make a new one" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    [t.start() for t in threads]
    try:
        for _ in range(forks):
            in_child(child)
    finally:
        stop.set()
        [t.join() for t in threads]


# Signals

LONG = {
    "a column of a huge file": "a[:, 0]",
    "a huge selection": "a[:(8 << 30) // a.shape[1]]",
    "one long pass": "[None for chunk in b.shuffled(1, seed=1)]",
    "one chunk of many rows": "next(b.shuffled(1 << 20, seed=1))",
}


@pytest.mark.parametrize("what", LONG)
@pytest.mark.parametrize("access", ["read", "advise"])
def test_ctrl_c_ends_long_work(tmp_path, what, access):
    wide, narrow = tmp_path / "wide.bin", tmp_path / "narrow.bin"
    for path in (wide, narrow):
        path.touch()
        os.truncate(path, 1 << 40)
    code = f"""if True:
        import sys, lowtide
        a = lowtide.open(sys.argv[1], dtype="u1", shape=(-1, 1 << 16), access={access!r}, budget="64MiB")
        b = lowtide.open(sys.argv[2], dtype="u1", shape=(-1, 8), access={access!r}, budget="64MiB")
        print("go", flush=True)
        try:
            {LONG[what]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", code, wide, narrow], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout.readline() == "go\n"
            time.sleep(0.3)
            assert process.poll() is None
            asked = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - asked < 2
        finally:
            process.kill()


def test_ctrl_c_while_another_thread_has_the_iterator(tmp_path):
    path = tmp_path / "huge.bin"
    path.touch()
    os.truncate(path, 1 << 42)
    code = """if True:
        import os, sys, threading, time, lowtide
        a = lowtide.open(sys.argv[1], dtype="u1", shape=(-1, 1), access="advise", budget="1GiB")
        it = a.shuffled(1 << 26, seed=1)  # a chunk of minutes
        threading.Thread(target=next, args=(it,), daemon=True).start()
        time.sleep(0.2)
        print("go", flush=True)
        try:
            next(it)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            os._exit(0)
    """
    process = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout.readline() == "go\n"
            time.sleep(0.2)
            asked = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - asked < 2
        finally:
            process.kill()


def test_a_handler_over_ours_is_warned_about(save, array, python):
    """faulthandler (and torch's workers) take SIGBUS: then a file that is cut would end the process."""
    code = """if True:
        import faulthandler, sys, warnings, lowtide
        words = {"budget": "16MiB"}
        a = lowtide.open(sys.argv[1], access="map", **words)
        a[0]
        faulthandler.enable()
        for use in (lambda: a[0], lambda: a.chunks(5), lambda: a.shuffled(5), lambda: a.take([1])):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                use()
            assert [w.category for w in seen] == [RuntimeWarning], seen
            assert 'access="read" is safe' in str(seen[0].message)
            assert seen[0].filename == "<string>", seen[0].filename
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for access in ("read", "auto"):
                b = lowtide.open(sys.argv[1], access=access)
                b[0], next(b.shuffled(5))
                assert b.shuffled(5).access == "read"
        faulthandler.disable()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            a[0]
        print("done")
    """
    assert python(code, save(array)) == "done"


def test_a_handler_that_is_gone_is_put_back(save, array, python):
    """Whoever sets the default takes ours away: a file that is cut is still an error."""
    code = """if True:
        import os, signal, sys, warnings, lowtide
        warnings.simplefilter("error")
        a = lowtide.open(sys.argv[1], access="map", budget="16MiB")
        a[0]
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        os.truncate(sys.argv[1], 4096)
        try:
            a[200_000]
        except OSError as error:
            print(error)
    """
    assert "rows.npy" in python(code, save(array))


def test_a_fault_that_is_not_ours_goes_to_who_was_there(save, array):
    """Our handler chains: another map's SIGBUS still ends the process, by the handler installed before."""
    code = """if True:
        import faulthandler, mmap, os, sys, lowtide
        faulthandler.enable()
        a = lowtide.open(sys.argv[1], access="map")
        a[0]
        with open(sys.argv[2], "w+b") as file:
            file.truncate(8192)
            m = mmap.mmap(file.fileno(), 8192)
            os.truncate(sys.argv[2], 0)
            m[5000]
    """
    path = save(array)
    done = subprocess.run(
        [sys.executable, "-c", code, path, path.with_name("cut.bin")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr
