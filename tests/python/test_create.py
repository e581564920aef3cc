"""``lowtide.create`` and ``lowtide.append``: the file is np.save's, byte for byte, whole or not there."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import lowtide

DTYPES = ["?", "i1", "<i2", ">i4", "<i8", "u1", ">u2", "<u4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]


def saved(array, order="C"):
    """What np.save writes."""
    file = io.BytesIO()
    np.save(file, np.asarray(array, order=order))
    return file.getvalue()


def numbers(shape, dtype, seed=0):
    """Arbitrary bits of this shape and dtype, but bools, which have two."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    bits = np.random.default_rng(seed).integers(0, 2 if dtype.kind == "b" else 256, count, dtype="u1")
    return bits.view(dtype).reshape(shape)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@st.composite
def arrays(draw):
    shape = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple))
    return numbers(shape, draw(st.sampled_from(DTYPES)), draw(st.integers(0, 99)))


# The bytes


@examples(max_examples=60)
@given(array=arrays(), order=st.sampled_from("CF"), data=st.data())
def test_appended_it_is_what_np_save_writes(tmp_path_factory, array, order, data):
    folder = tmp_path_factory.mktemp("a")
    axis = 0 if order == "C" else array.ndim - 1
    shape = [*array.shape]
    shape[axis] = None
    cuts = sorted(data.draw(st.lists(st.integers(0, array.shape[axis]), max_size=3)))
    pieces = np.split(array, cuts, axis)
    later = data.draw(st.integers(0, len(pieces)))
    for name in ("a.npy", "a.bin"):
        with lowtide.create(folder / name, array.dtype, shape, order=order) as w:
            for piece in pieces:
                w.append(piece)
            assert len(w) == array.shape[axis]
            assert w.shape == array.shape
    assert (folder / "a.npy").read_bytes() == saved(array, order)
    assert (folder / "a.bin").read_bytes() == array.tobytes(order)
    assert names(folder) == ["a.bin", "a.npy"]
    # The same in two goes, where the first part says the order that it will have.
    first = (
        np.concatenate(pieces[:later], axis, dtype=array.dtype)
        if later
        else array[:0]
        if axis == 0
        else array[..., :0]
    )
    np.save(folder / "b.npy", np.asarray(first, order=order))
    if order == "C" or b"'fortran_order': True" in (folder / "b.npy").read_bytes()[:128]:
        with lowtide.append(folder / "b.npy") as w:
            w.extend(pieces[later:], progress=False)
        assert (folder / "b.npy").read_bytes() == saved(array, order)


@examples(max_examples=40)
@given(array=arrays(), order=st.sampled_from("CF"), data=st.data())
def test_rows_in_any_order_as_np_memmap_has_them(tmp_path_factory, array, order, data):
    """np.memmap("w+") is the oracle: what is never written is zeros."""
    folder = tmp_path_factory.mktemp("b")
    axis = 0 if order == "C" else array.ndim - 1
    count = array.shape[axis]
    want = (
        np.lib.format.open_memmap(folder / "want.npy", "w+", array.dtype, array.shape, order == "F")
        if array.size
        else None
    )
    with lowtide.create(folder / "got.npy", array.dtype, array.shape, order=order) as w:
        for start, stop in data.draw(
            st.lists(st.tuples(st.integers(-1, count), st.integers(0, count)), max_size=5)
        ):
            key = slice(start, stop) if axis == 0 else (..., slice(start, stop))
            w[key] = array[key]
            if want is not None:
                want[key] = array[key]
        if count and array.ndim > 1:
            key = count // 2 if axis == 0 else (..., count // 2)
            w[key] = array[key]
            if want is not None:
                want[key] = array[key]
    whole = np.zeros_like(array) if want is None else np.array(want)
    assert (folder / "got.npy").read_bytes() == saved(whole, order)


def test_a_number_fills_rows_and_arrays_are_broadcast(tmp_path):
    with lowtide.create(tmp_path / "a.npy", "float32", (6, 3)) as w:
        w[...] = 7
        w[1] = 0.5
        w[2:4] = np.array([[1], [2]], "i2")
        w[-1:] = np.float32(4)
        with pytest.raises(TypeError, match="int64 cannot be cast to float32 without loss"):
            w[0:1] = np.int64(4)
        with pytest.raises(TypeError, match="without loss"):
            w[0:1] = 1j
        with pytest.raises(
            ValueError, match=r"a value of shape \(2, 3\) does not fit into rows of shape \(4, 3\)"
        ):
            w[0:4] = np.zeros((2, 3), "f4")
    want = np.full((6, 3), 7, "f4")
    want[1], want[2], want[3], want[-1] = 0.5, 1, 2, 4
    assert (np.load(tmp_path / "a.npy") == want).all()


def test_a_header_from_an_old_numpy_grows_as_far_as_it_can(tmp_path):
    """Without the room that NumPy leaves since 1.23, and in the versions 2 and 3 of the format."""
    rows = np.arange(36, dtype="<f4").reshape(9, 4)
    for version in (1, 2, 3):
        text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n"
        length = len(text).to_bytes(2 if version == 1 else 4, "little")
        path = tmp_path / f"{version}.npy"
        path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + length + text + rows[:3].tobytes())
        with lowtide.append(path) as w:
            w.append(rows[3:])
            with pytest.raises(
                NotImplementedError, match=r"no room for 10 rows\nhint: an old NumPy wrote it"
            ):
                w.append(rows[:1])
        assert (np.load(path) == rows).all()


# What is cast, and what is refused


@pytest.mark.parametrize("budget", ["400KiB", "64MiB"])
def test_what_numpy_casts_safely_is_cast_in_pieces(tmp_path, budget):
    big = np.arange(600_000, dtype=">i4").reshape(300, 2, 1000)
    for order in "CF":
        shape = (None, 2, 1000) if order == "C" else (300, 2, None)
        with lowtide.create(
            tmp_path / "a.npy", "<f8", shape, order=order, budget=budget, overwrite=True
        ) as w:
            w.append(big)
        assert (tmp_path / "a.npy").read_bytes() == saved(big.astype("<f8"), order)
    strided = np.arange(4_000_000, dtype="i2").reshape(4, 1000, 1000)[::-2, :, ::3]
    with lowtide.create(tmp_path / "b.npy", "i2", (None, 1000, 334), budget=budget) as w:
        w.append(strided)
        w.append(strided.tolist() and strided[:1])
    assert (np.load(tmp_path / "b.npy") == np.concatenate([strided, strided[:1]])).all()


@examples(max_examples=60)
@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_numpy_decides_what_is_safe(tmp_path_factory, give, take):
    path = tmp_path_factory.mktemp("c") / "a.npy"
    array = numbers((7,), give)
    with lowtide.create(path, take, (None,)) as w:
        if np.can_cast(give, take, "safe"):
            with np.errstate(all="ignore"):
                w.append(array)
                want = array.astype(take)
        else:
            with pytest.raises(TypeError, match=r"without loss\nhint: chunk.astype\("):
                w.append(array)
            want = np.zeros(0, take)
    assert path.read_bytes() == saved(want)


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    path = tmp_path / "a.npy"
    with lowtide.create(path, "f4", (None, 3)) as w:
        with pytest.raises(
            ValueError, match=r"a chunk of shape \(2, 4\) does not fit: its rows are those of \(n, 3\)"
        ):
            w.append(np.zeros((2, 4), "f4"))
        with pytest.raises(ValueError, match=r"hint: chunk\[None\] is one row"):
            w.append(np.zeros(3, "f4"))
        with pytest.raises(ValueError, match="rows of an array that grows are written at its end"):
            w.write(0, np.zeros((1, 3), "f4"))
        with pytest.raises(TypeError, match="object cannot be cast"):
            w.append(np.array([[None] * 3]))
        assert len(w) == 0
    with lowtide.create(path, "f4", (4, 3), overwrite=True) as w:
        with pytest.raises(NotImplementedError, match=r"whole rows .*\nhint: w\[start:stop\] = chunk"):
            w[:, 1] = np.zeros(4, "f4")
        with pytest.raises(NotImplementedError, match="whole rows"):
            w[::2] = 0
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
            w[4] = 0
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            w.write(3, np.zeros((2, 3), "f4"))
        with pytest.raises(ValueError, match="start is -1: it must be a whole number"):
            w.write(-1, np.zeros((2, 3), "f4"))
    with lowtide.create(path, "f4", (3, 4), order="F", overwrite=True) as w:
        with pytest.raises(NotImplementedError, match=r"along the last axis\nhint: w\[..., start:stop\]"):
            w[0:2] = 0
        w[:, 1:3] = 1
    for shape, order, words in [
        ((), "C", r"shape=\(\) has no axis to write along\nhint: np.save"),
        ((3, None), "C", r"axis 1 cannot grow: with order=\"C\" .* first axis\nhint: None goes first"),
        ((None, 3), "F", r"axis 0 cannot grow: with order=\"F\" .* last axis"),
        ((-1, 3), "C", r"negative size\nhint: None stands for the axis that grows"),
        ((None, 3), "K", r"order=\"K\" is not known\nhint: \"C\""),
        ((1 << 62, 8), "C", "63 bits"),
    ]:
        with pytest.raises(ValueError, match=words):
            lowtide.create(tmp_path / "b.npy", "f4", shape, order=order)
    with pytest.raises(TypeError, match="is not a shape"):
        lowtide.create(tmp_path / "b.npy", "f4", "rows")
    for wrong in ("O", "U5", [("a", "f4")], "M8[s]"):
        with pytest.raises(NotImplementedError):
            lowtide.create(tmp_path / "b.npy", wrong, (None,))
    with pytest.raises(ValueError, match="NumPy has no bfloat16\nhint: write it as raw"):
        lowtide.create(tmp_path / "b.npy", "bfloat16", (None,))
    with pytest.raises(MemoryError, match="writing an array needs 320 KiB, the budget is 1000 B"):
        lowtide.create(tmp_path / "b.npy", "f4", (None,), budget=1000)
    assert names(tmp_path) == ["a.npy"]


def test_too_few_rows_are_no_whole_file(tmp_path):
    words = r"2 of 3 rows were appended\nhint: append the rest, or say None"
    with pytest.raises(ValueError, match=words), lowtide.create(tmp_path / "a.npy", "f4", (3,)) as w:
        w.append([np.float32(1)] * 2)
    assert names(tmp_path) == []


# Whole or not at all


def test_an_exception_discards(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(5))
    old = path.read_bytes()
    for writer in (lambda: lowtide.create(path, "i8", (None,), overwrite=True), lambda: lowtide.append(path)):
        with pytest.raises(ZeroDivisionError), writer() as w:  # noqa: PT012
            w.append(np.arange(3))
            raise ZeroDivisionError
        assert w.closed
        assert "closed" in repr(w)
        with pytest.raises(ValueError, match="this has been closed"):
            w.append(np.arange(3))
        assert path.read_bytes() == old
        assert names(tmp_path) == ["a.npy"]


def test_what_is_forgotten_is_said_and_leaves_nothing(tmp_path):
    w = lowtide.create(tmp_path / "a.npy", "i8", (None,))
    w.append(np.arange(3))
    with pytest.warns(
        ResourceWarning, match=r"a.npy: the writer was never closed, and the file was not made"
    ):
        del w
    assert names(tmp_path) == []


def test_a_forgotten_append_is_not_called_a_file_that_was_not_made(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    w = lowtide.append(tmp_path / "a.npy")
    w.append(np.arange(3))
    with pytest.warns(ResourceWarning, match=r"rows since the last flush were not added\nhint: .*append"):
        del w
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]


def test_a_folder_that_is_called_otherwise_takes_its_file_along(tmp_path):
    (tmp_path / "run1").mkdir()
    (tmp_path / "current").symlink_to("run1")
    np.save(tmp_path / "run1" / "a.npy", np.arange(3))
    with lowtide.append(tmp_path / "current" / "a.npy") as w:
        w.append(np.arange(3))
        (tmp_path / "current").unlink()
        w.flush()
        (tmp_path / "run1").rename(tmp_path / "run2")
        w.append(np.arange(2))
    assert np.load(tmp_path / "run2" / "a.npy").tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert names(tmp_path / "run2") == ["a.npy"]


@pytest.mark.parametrize("end", ["close", "flush"])
def test_rows_for_a_file_that_lost_its_name_are_not_lost_silently(tmp_path, end):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    for become in ("another", "nothing"):
        w = lowtide.append(path)
        w.append(np.arange(3))
        if become == "another":
            np.save(tmp_path / "b.npy", np.arange(9))
            (tmp_path / "b.npy").replace(path)
        else:
            path.unlink()
        with pytest.raises(OSError, match=r"another file has its name|No such file"):
            getattr(w, end)()
        w.discard()
        assert names(tmp_path) == (["a.npy"] if become == "another" else [])
        if become == "another":
            assert np.load(path).tolist() == list(range(9))


def test_the_error_of_a_writer_that_nobody_else_has_is_not_lost(tmp_path):
    """It is let go of, and says that it was never closed, while its exception is on the way."""

    def breaks():
        yield np.zeros(2, "f4")
        raise ZeroDivisionError("of the generator")

    old = tmp_path / "old.npy"
    np.save(old, np.arange(5))

    def new():
        return lowtide.create(tmp_path / "new.npy", "f4", (5,))

    for fail, error, says in [  # in one expression each: a name would keep the writer
        (lambda: new().append(np.zeros(9, "f4")), ValueError, "9 rows do not fit"),
        (lambda: new().append("x"), TypeError, "cannot be cast to float32"),
        (lambda: new().extend(breaks()), ZeroDivisionError, "of the generator"),
        (lambda: new().write(-1, np.zeros(1, "f4")), ValueError, "start is -1"),
        (lambda: lowtide.append(old).append(np.zeros((2, 2), "i8")), ValueError, "does not fit"),
    ]:
        with pytest.warns(ResourceWarning, match="was never closed"), pytest.raises(error, match=says):
            fail()
    assert names(tmp_path) == ["old.npy"]
    assert np.load(tmp_path / "old.npy").tolist() == list(range(5))


def test_an_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(5))
    path.chmod(0o600)
    with pytest.raises(FileExistsError, match=r"File exists \(hint: overwrite=True replaces it"):
        lowtide.create(path, "i8", (None,))
    a = lowtide.open(path)
    with lowtide.create(path, "i8", (None,), overwrite=True) as w:
        w.extend((2 * chunk for chunk in a.chunks(2)), progress=False)  # of itself
        assert (np.load(path) == np.arange(5)).all()
    assert (np.load(path) == 2 * np.arange(5)).all()
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "link.npy").symlink_to("a.npy")
    with lowtide.append(tmp_path / "link.npy") as w:
        w.append([10])
    with lowtide.create(tmp_path / "link.npy", "i8", (1,), overwrite=True):
        pass
    assert (tmp_path / "link.npy").is_symlink()
    assert path.read_bytes() == saved(np.zeros(1, "i8"))


def test_a_second_writer_is_told(tmp_path, python):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(5))
    with lowtide.append(path):
        for again in (
            lambda: lowtide.append(path),
            lambda: lowtide.create(path, "i8", (None,), overwrite=True),
        ):
            with pytest.raises(
                OSError, match="another writer, of this process or of another, is at it"
            ) as caught:
                again()
            assert caught.value.errno == 16
        code = "import lowtide, sys\ntry: lowtide.append(sys.argv[1])\nexcept OSError as e: print(e.errno)"
        assert python(code, path) == "16"
    with lowtide.append(path) as w:
        w.append([5])
    assert path.read_bytes() == saved(np.arange(6))


def test_a_file_that_appeared_meanwhile_is_not_lost_and_neither_is_ours(tmp_path):
    w = lowtide.create(tmp_path / "a.npy", "i8", (None,))
    w.append(np.arange(3))
    (tmp_path / "a.npy").write_text("theirs")
    with pytest.raises(FileExistsError, match=r"what was written is whole, as \.a\.npy\.lowtide"):
        w.close()
    (tmp_path / "a.npy").unlink()
    w.close()
    assert (tmp_path / "a.npy").read_bytes() == saved(np.arange(3))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="cannot make the file"):
        lowtide.create(tmp_path / "a.npy", "i8", (None,))


def test_folders(tmp_path):
    with pytest.raises(IsADirectoryError, match="name the file"):
        lowtide.create(tmp_path, "i8", (None,))
    with pytest.raises(FileNotFoundError, match="is the folder there"):
        lowtide.create(tmp_path / "no" / "a.npy", "i8", (None,))
    with pytest.raises(FileNotFoundError, match=r"lowtide.create makes a new one"):
        lowtide.append(tmp_path / "a.npy")
    with pytest.raises(OSError, match="cannot make the file"):
        lowtide.create("/dev/full", "i8", (None,), overwrite=True)
    (tmp_path / "in").mkdir()
    w = lowtide.create(tmp_path / "in" / "a.npy", "i8", (None,))
    (tmp_path / "in").rename(tmp_path / "moved")
    w.close()
    assert names(tmp_path / "moved") == ["a.npy"]


def test_raw_files_are_not_appended_to(tmp_path):
    np.arange(5).tofile(tmp_path / "a.bin")
    with pytest.raises(
        NotImplementedError, match=r"only .npy files can be appended to\nhint: a file without a header"
    ):
        lowtide.append(tmp_path / "a.bin")
    with open(tmp_path / "two.npy", "wb") as file:
        np.save(file, np.arange(5))
        np.save(file, np.arange(5))
    with pytest.raises(ValueError, match=r"several np\.save calls"):
        lowtide.append(tmp_path / "two.npy")
    assert names(tmp_path) == ["a.bin", "two.npy"]


# Threads, forks, signals


def test_threads_take_turns(tmp_path):
    with lowtide.create(tmp_path / "a.npy", "i8", (64, 100)) as w:
        threads = [threading.Thread(target=w.write, args=(i, np.full((1, 100), i))) for i in range(64)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert (np.load(tmp_path / "a.npy") == np.arange(64)[:, None]).all()


def test_a_forked_child_leaves_it_alone(tmp_path, python):
    code = """if True:
        import os, sys, warnings, lowtide, numpy as np
        w = lowtide.create(sys.argv[1], "i8", (None,))
        w.append(np.arange(3))
        pid = os.fork()
        if pid == 0:
            try:
                w.append(np.arange(3))
            except ValueError as error:
                print(error, flush=True)
            del w
            os._exit(0)
        os.waitpid(pid, 0)
        w.close()
    """
    said = python(code, tmp_path / "a.npy")
    assert "the writer belongs to the process that this one was forked from" in said
    assert (tmp_path / "a.npy").read_bytes() == saved(np.arange(3))


def test_ctrl_c_is_answered(tmp_path):
    code = """if True:
        import sys, lowtide, numpy as np
        with lowtide.create(sys.argv[1], "f8", (None, 1 << 20), cache="drop") as w:
            print("ready", flush=True)
            chunk = np.broadcast_to(np.float32(1), (512, 1 << 20))  # 4 GiB, cast piece by piece
            w.append(chunk)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "a.npy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    begun = time.perf_counter()
    try:
        _, said = child.communicate(timeout=30)
    finally:
        child.kill()
    assert time.perf_counter() - begun < 10
    assert "KeyboardInterrupt" in said
    assert names(tmp_path) == []


# Progress


def test_extend_says_how_far_it_is(tmp_path, caplog):
    def slowly():
        for _ in range(4):
            time.sleep(0.15)
            yield np.zeros((10, 4))

    seen = []
    with lowtide.create(tmp_path / "a.npy", "f8", (40, 4)) as w:
        w.extend(slowly(), progress=seen.append)
    assert seen[0] == {"rows": 10, "bytes": 320, "total": 40}
    assert [at["rows"] for at in seen] == sorted(at["rows"] for at in seen)
    seen.clear()
    with lowtide.create(tmp_path / "quick.npy", "f8", (None, 4)) as w:
        w.extend([np.zeros((3, 4))] * 2, progress=seen.append)
    assert seen == [{"rows": 6, "bytes": 192, "total": None}], "the end is told, however quickly it came"
    with caplog.at_level("INFO", "lowtide"), lowtide.create(tmp_path / "b.npy", "f8", (None, 4)) as w:
        w.extend(slowly())
    assert "writing: " in caplog.text
    assert " rows, " in caplog.text

    def no(at):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), lowtide.create(tmp_path / "c.npy", "f8", (None, 4)) as w:
        w.extend(slowly(), progress=no)
    with (
        lowtide.create(tmp_path / "c.npy", "f8", (None, 4)) as w,
        pytest.raises(TypeError, match="progress=5"),
    ):
        w.extend(slowly(), progress=5)
    with lowtide.create(tmp_path / "d.npy", "f8", (None, 4)) as w, pytest.raises(TypeError, match="iterable"):
        w.extend(5)
