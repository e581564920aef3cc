"""Opening: by header, as raw, from a memmap; what is refused, and in which words."""

import os
import pickle
import re
import signal
import struct
import warnings

import ml_dtypes
import numpy as np
import pytest

import lowtide

ROWS = np.arange(24, dtype="<f4").reshape(6, 4)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_version_of_the_header(tmp_path, same, version, order):
    path = tmp_path / "rows.npy"
    with path.open("wb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy says that version 2 needs a newer NumPy than 1.9
        np.lib.format.write_array(file, np.array(ROWS, order=order), version=version)
    same(lowtide.open(path)[...], ROWS)
    same(lowtide.open(str(path))[1:, 2], ROWS[1:, 2])
    same(lowtide.open(os.fsencode(path))[-1], ROWS[-1])


@pytest.mark.parametrize(
    "shape", [None, -1, 5, (5,), (-1,), (2, -1), (-1, 4), (3, 4), (), (2, 0, 3), [-1, 2]]
)
@pytest.mark.parametrize("offset", [None, 0, 8, 16, 3])
def test_raw_files_have_np_memmaps_words(tmp_path, same, shape, offset):
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(range(96)) * 2 + b"...."[: (offset or 0) % 8])
    if offset == 3:
        path.write_bytes(path.read_bytes()[:-3] + b"123")  # 192 + 3 bytes: a whole number of elements follows
    data = path.read_bytes()[offset or 0 :]
    sizes = (-1,) if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    words = {k: v for k, v in {"shape": shape, "offset": offset}.items() if v is not None}
    flat = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    if -1 in sizes:
        rest = len(data) // 4 // max(1, -int(np.prod(sizes)))
        whole = len(data) % (4 * -int(np.prod(sizes))) == 0
    else:
        rest, whole = 0, True
    if not whole:
        with pytest.raises(ValueError, match="expected a whole number of rows of"):
            lowtide.open(path, dtype="<i4", **words)
        return
    sizes = tuple(rest if n == -1 else n for n in sizes)
    got = lowtide.open(path, dtype="<i4", **words)
    same(got[...], flat[: int(np.prod(sizes))].reshape(sizes))


def test_raw_is_what_np_memmap_reads(tmp_path, same):
    path = tmp_path / "rows.bin"
    path.write_bytes(np.random.default_rng(0).bytes(10_000))
    for dtype in ["u1", ">u2", "<i4", "f8", "c16", np.float16, float, int, "bool", "uint16", np.dtype(">f4")]:
        want = np.memmap(path, dtype=dtype, mode="r", shape=(5, 30), offset=1234)
        if np.dtype(dtype) != bool:
            same(lowtide.open(path, dtype=dtype, shape=(5, 30), offset=1234)[...], np.asarray(want))


def test_bfloat16(tmp_path, access, least):
    numbers = np.array([1.5, -2.0, 3e38, np.nan], ml_dtypes.bfloat16)
    path = tmp_path / "rows.bin"
    path.write_bytes(numbers.tobytes() * 3)
    for dtype in ["bfloat16", ml_dtypes.bfloat16, numbers.dtype]:
        a = lowtide.open(path, dtype=dtype, shape=(-1, 4), access=access, budget=least)
        assert a.dtype == numbers.dtype
        assert a[2].tobytes() == numbers.tobytes()
        assert a[2, 0] == 1.5
        assert next(a.shuffled(3)).dtype == numbers.dtype
    again = pickle.loads(pickle.dumps(a))
    assert again.dtype == numbers.dtype
    assert again[1].tobytes() == numbers.tobytes()


def test_bfloat16_without_ml_dtypes_says_what_to_do(tmp_path, python):
    path = tmp_path / "rows.bin"
    path.write_bytes(bytes(8))
    code = """if True:
        import sys, lowtide
        sys.modules["ml_dtypes"] = None  # as if it were not installed
        try:
            lowtide.open(sys.argv[1], dtype="bfloat16")
        except ImportError as error:
            print(error)
    """
    said = python(code, path)
    assert "hint: pip install ml_dtypes, or open with dtype=" in said


# Adopting a memmap


@pytest.fixture
def numbers(tmp_path):
    """A file of 100,000 numbers behind three bytes."""
    path = tmp_path / "numbers.bin"
    path.write_bytes(b"abc" + np.arange(100_000, dtype="<u4").tobytes())
    return path


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("offset", [3, 4096 + 3, 12_291])
def test_a_memmap_is_adopted(numbers, same, mode, order, offset):
    m = np.memmap(numbers, dtype="<u4", mode=mode, offset=offset, shape=(100, 200), order=order)
    a = lowtide.open(m)
    assert (a.shape, a.dtype) == (m.shape, m.dtype)
    assert a.path == numbers
    same(a[...], np.array(m))
    same(a[7, 3:], np.array(m[7, 3:]))
    # A view's `offset` is its parent's: ours is counted from the view's own first element.
    views = (
        [m[10:], m[10:20], m[99], m.view("u1"), m[5:6], m[:0]] if order == "C" else [m[:, 3:], m.T, m[:, 7]]
    )
    for view in views:
        same(lowtide.open(view)[...], np.array(view, order=order))
        same(lowtide.open(np.asarray(view))[...], np.array(view, order=order))
    for gaps in [m[::2], m[:, ::2], m[::-1]]:
        with pytest.raises(ValueError, match="hint: adopt the whole memmap, then index"):
            lowtide.open(gaps)


def test_a_written_memmap_is_adopted_with_what_was_written(tmp_path, same):
    m = np.memmap(tmp_path / "new.bin", dtype="f8", mode="w+", shape=(50, 3))
    m[:] = np.arange(150).reshape(50, 3)
    same(lowtide.open(m)[...], np.array(m))


def test_np_loads_memmap_is_adopted(save, same):
    for array in [ROWS, np.asfortranarray(ROWS), np.zeros((0, 4)), np.arange(5), ROWS.astype(">f4")]:
        m = np.load(save(array), mmap_mode="r")
        a = lowtide.open(m, access="read", budget="1MiB")
        same(a[...], array)
        assert (a.access, a.budget.limit) == ("read", 1 << 20)


def test_what_cannot_be_adopted_says_why(numbers, save):
    private = np.memmap(numbers, dtype="u1", mode="c")
    with pytest.raises(ValueError, match="copy-on-write memmap is private"):
        lowtide.open(private)
    for array in [np.arange(3), np.memmap(numbers, dtype="u1", mode="r")[[1, 2]]]:
        with pytest.raises(TypeError, match=r"in memory, not an np\.memmap\nhint: "):
            lowtide.open(array)
    with pytest.raises(ValueError, match="brings its own dtype, shape and offset"):
        lowtide.open(np.memmap(numbers, dtype="u1", mode="r"), shape=(3,))
    with numbers.open("rb") as file:
        assert lowtide.open(np.memmap(file, dtype="u1", mode="r", shape=(5,))).shape == (5,)
    structured = np.memmap(numbers, dtype=[("a", "u1"), ("b", "u2")], mode="r", shape=(5,))
    with pytest.raises(NotImplementedError, match=r"structured dtypes .*\nhint: give each field a file"):
        lowtide.open(structured)


def test_a_file_that_was_replaced_is_not_adopted(numbers, tmp_path):
    m = np.memmap(numbers, dtype="u1", mode="r")
    other = tmp_path / "other.bin"
    other.write_bytes(numbers.read_bytes())
    other.rename(numbers)
    with pytest.raises(
        ValueError, match="has been replaced since the memmap was made\nhint: open it by its path"
    ):
        lowtide.open(m)
    numbers.unlink()
    with pytest.raises(FileNotFoundError):
        lowtide.open(m)


# Release


def test_release_gives_mapped_pages_back(tmp_path, memory):
    path = tmp_path / "rows.bin"
    path.write_bytes(np.arange(16 << 20, dtype="<u4").tobytes())  # 64 MiB
    m = np.memmap(path, dtype="<u4", mode="r")
    total = int(m.sum(dtype="u8"))
    before = memory()["RssFile"]
    lowtide.release(m)
    after = memory()["RssFile"]
    assert before - after > 60 << 20
    assert int(m.sum(dtype="u8")) == total, "it goes on working"
    # A view gives back its own half, not the other one.
    before = memory()["RssFile"]
    lowtide.release(np.asarray(m[8 << 20 :][::-3]))
    dropped = before - memory()["RssFile"]
    assert 30 << 20 < dropped < 40 << 20
    assert int(m.sum(dtype="u8")) == total


def test_release_keeps_what_was_written(tmp_path):
    m = np.memmap(tmp_path / "new.bin", dtype="u1", mode="w+", shape=(1 << 20,))
    m[:] = 7
    lowtide.release(m)
    assert (m == 7).all()
    m[5] = 9
    lowtide.release(m[3:8])
    assert m[:8].tolist() == [7, 7, 7, 7, 7, 9, 7, 7]


def test_release_believes_the_kernel(numbers):
    """Whatever a memmap says of itself: memory that is not shared with a file is nobody's to drop."""
    private = np.memmap(numbers, dtype="u1", mode="c")
    private[:] = 7
    private.mode = "r+"
    with pytest.raises(ValueError, match="private: dropping its pages would lose"):
        lowtide.release(private)
    assert (private == 7).all()
    heap = np.full(4 << 20, 7, "u1")
    posing = heap.view(np.memmap)
    posing.mode, posing._mmap = "r", heap
    with pytest.raises(ValueError, match="private: dropping its pages would lose"):
        lowtide.release(posing)
    assert (heap == 7).all()


def test_release_refuses_what_it_would_lose(numbers):
    private = np.memmap(numbers, dtype="u1", mode="c")
    private[0] = 1
    with pytest.raises(ValueError, match="would lose what was written"):
        lowtide.release(private)
    with pytest.raises(ValueError, match="would lose what was written"):
        lowtide.release(np.asarray(private[1:]))
    assert private[0] == 1
    for wrong in [np.arange(3), "numbers.bin", None]:
        with pytest.raises(TypeError):
            lowtide.release(wrong)
    lowtide.release(np.memmap(numbers, dtype="u1", mode="r")[:0])


# Refusals


def test_system_errors_are_pythons_own(tmp_path):
    missing = tmp_path / "missing.npy"
    with pytest.raises(FileNotFoundError) as refused:
        lowtide.open(missing)
    assert (
        str(refused.value) == f"[Errno 2] cannot open the file: No such file or directory: {str(missing)!r}"
    )
    assert refused.value.filename == str(missing)
    with pytest.raises(ValueError, match="no files of an array in this folder"):
        lowtide.open(tmp_path)
    with pytest.raises(NotADirectoryError):
        lowtide.open("/dev/null/rows.npy")
    with pytest.raises(NotImplementedError, match=r"/dev/zero: not a regular file\nhint: "):
        lowtide.open("/dev/zero", dtype="u1")
    for wrong in [5, None, 1.5, object()]:
        with pytest.raises(TypeError):
            lowtide.open(wrong)
    with pytest.raises(OSError, match="Invalid argument"):
        lowtide.open("rows\0.npy")


def test_a_file_that_is_not_ours_to_read(tmp_path, python):
    path = tmp_path / "secret.npy"
    np.save(path, ROWS)
    path.chmod(0)
    code = """if True:
        import os, sys, lowtide, numpy
        os.chdir("/")
        # Reached by its descriptor: the folders above may be private.
        folder = os.open(os.path.dirname(sys.argv[1]), os.O_PATH)
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        try:
            lowtide.open(f"/proc/self/fd/{folder}/secret.npy")
        except PermissionError as error:
            print(error.errno, error)
    """
    tmp_path.chmod(0o755)
    said = python(code, path)
    assert said.startswith("13 [Errno 13] cannot open the file: Permission denied: ")


def test_a_fifo_does_not_hang(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    signal.alarm(10)
    try:
        with pytest.raises(NotImplementedError, match=r"not a regular file\nhint: .*copy it into a file"):
            lowtide.open(path)
    finally:
        signal.alarm(0)


class Bomb:
    """Unpickling it leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (os.mkdir, (self.trace,))


def test_nothing_is_ever_unpickled(tmp_path):
    trace = tmp_path / "trace"
    path = tmp_path / "bomb.npy"
    np.save(path, np.array([Bomb(str(trace))], object), allow_pickle=True)
    with pytest.raises(NotImplementedError, match="object"):
        lowtide.open(path)
    path.write_bytes(pickle.dumps(Bomb(str(trace))))
    with pytest.raises(ValueError, match=r"expected a \.npy header"):
        lowtide.open(path)
    with pytest.raises(NotImplementedError, match="object"):
        lowtide.open(path, dtype=object)
    assert not trace.exists()
    np.load(tmp_path / "bomb.npy", allow_pickle=True)
    assert trace.exists(), "the trap works"


@pytest.mark.parametrize(
    ("dtype", "says"),
    [
        ([("x", "f4"), ("y", "i8")], "structured"),
        ("S5", "S5"),
        ("U3", "U3"),
        ("M8[s]", "M8"),
        ("m8[ns]", "m8"),
        ("V7", "V7"),
    ],
)
def test_other_dtypes_are_refused_by_name(save, tmp_path, dtype, says):
    path = save(np.zeros(3, dtype))
    with pytest.raises(NotImplementedError, match=says) as refused:
        lowtide.open(path)
    assert "hint: " in str(refused.value)
    raw = tmp_path / "raw.bin"
    raw.write_bytes(bytes(100))
    with pytest.raises(NotImplementedError, match=says) as refused:
        lowtide.open(raw, dtype=dtype)
    assert "hint: " in str(refused.value)


def test_a_file_that_is_shorter_than_its_header_says(save):
    path = save(ROWS)
    size = path.stat().st_size
    os.truncate(path, size - 1)
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the words are checked below
        lowtide.open(path)
    for words in [str(path), "expected", "96 bytes", "found", "95"]:
        assert words in str(refused.value)
    os.truncate(path, 9)
    with pytest.raises(ValueError, match=r"rows\.npy"):
        lowtide.open(path)
    os.truncate(path, 0)
    with pytest.raises(
        ValueError, match=r"expected a \.npy header, found an empty file\nhint: .*needs dtype="
    ):
        lowtide.open(path)


def test_a_hostile_header_is_refused_quickly(tmp_path):
    path = tmp_path / "hostile.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 100)
    with pytest.raises(ValueError, match=r"hostile\.npy"):
        lowtide.open(path)
    for shape in [
        "(18446744073709551616,)",
        "(4294967296, 4294967296)",
        "(-1,)",
        "(1.5,)",
        "(999999999999,)",
    ]:
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(64))
        with pytest.raises((ValueError, NotImplementedError), match=r"hostile\.npy"):
            lowtide.open(path)


def test_words_that_make_no_sense(save, tmp_path):
    path, raw = save(ROWS), tmp_path / "raw.bin"
    raw.write_bytes(bytes(64))
    for file, words, error, says in [
        (path, {"access": "fast"}, ValueError, 'hint: one of "auto", "map", "remap", "advise", "read"'),
        (path, {"cache": "none"}, ValueError, 'one of "auto", "keep", "drop"'),
        (path, {"budget": "lots"}, ValueError, "hint: write it like 512MiB"),
        (path, {"budget": -1}, ValueError, "^budget is -1: it must be a whole number from 1 to "),
        (path, {"budget": 0}, ValueError, "hint: "),
        (path, {"budget": 1.5}, TypeError, 'hint: a number of bytes or a text like "512MiB"'),
        (
            path,
            {"budget": "15MiB", "access": "advise"},
            MemoryError,
            "needs 16 MiB, the budget is 15 MiB\nhint: ",
        ),
        (
            path,
            {"budget": "15MiB", "access": "remap"},
            MemoryError,
            'hint: .*access="read" works in any budget',
        ),
        (path, {"dtype": "f4"}, ValueError, "hint: leave dtype= out to use the header"),
        (path, {"shape": (6, 4)}, ValueError, "hint: leave shape= and offset= out"),
        (path, {"offset": 128}, ValueError, "hint: leave shape= and offset= out"),
        (raw, {}, ValueError, "hint: a file without a header needs dtype="),
        (raw, {"shape": (2, 2)}, ValueError, "hint: a file without a header needs dtype="),
        (raw, {"dtype": "f4", "shape": (-1, -1)}, ValueError, "only one axis of shape can be -1\nhint: "),
        (raw, {"dtype": "f4", "shape": (-2, 4)}, ValueError, "negative size, -2"),
        (raw, {"dtype": "f4", "shape": (17,)}, ValueError, "expected 68 bytes"),
        (
            raw,
            {"dtype": "f4", "offset": 65},
            ValueError,
            "expected an offset inside the file, found a file of 64",
        ),
        (raw, {"dtype": "f4", "offset": -1}, (ValueError, OverflowError), ""),
        (raw, {"dtype": "nonsense"}, TypeError, "nonsense"),
        (raw, {"dtype": "f4", "shape": 1.5}, TypeError, ""),
        (raw, {"dtype": "f4", "wrong": 1}, TypeError, "wrong"),
    ]:
        with pytest.raises(error) as refused:
            lowtide.open(file, **words)
        assert re.search(says, str(refused.value), re.S), (words, refused.value)
    # A header may be read as raw if that is what one says.
    assert lowtide.open(path, dtype="f4", offset=128, shape=(6, 4))[...].tolist() == ROWS.tolist()


def test_the_handle_says_what_it_is(save):
    path = save(ROWS)
    with lowtide.open(path, access="read", budget="1.5MiB") as a:
        assert repr(a) == f'<lowtide.Array "{path}" shape=(6, 4) dtype=float32 access=read>'
        assert (a.path, a.access, a.closed) == (path, "read", False)
        assert repr(a.budget) == 'Budget("1.5 MiB")'
    assert a.closed
    assert repr(a).endswith(", closed>")
    assert (a.shape, len(a), a.dtype) == ((6, 4), 6, np.float32), "what is known without the file stays"
    for use in [
        lambda: a[0],
        lambda: a.take([0]),
        lambda: np.asarray(a),
        lambda: next(a.chunks(2)),
        lambda: list(a),
    ]:
        with pytest.raises(ValueError, match=f"{path}: this has been closed"):
            use()
    a.close()


def test_a_relative_path_survives_a_change_of_folder(save, monkeypatch, tmp_path):
    path = save(ROWS)
    monkeypatch.chdir(tmp_path)
    a = lowtide.open("rows.npy")
    monkeypatch.chdir("/")
    assert a.path == path
    assert pickle.loads(pickle.dumps(a))[0].tolist() == ROWS[0].tolist()


def test_a_name_that_is_not_unicode(tmp_path, same):
    path = os.path.join(os.fsencode(tmp_path), b"r\xff\xfe.npy")
    with open(path, "wb") as file:
        np.save(file, ROWS)
    a = lowtide.open(path)
    same(a[...], ROWS)
    assert os.fsencode(a.path) == path
    assert pickle.loads(pickle.dumps(a))[0].tolist() == ROWS[0].tolist()
    assert "shape=(6, 4)" in repr(a)


def test_without_numpy_it_is_an_import_error(save, python):
    code = """if True:
        import sys
        sys.modules["numpy"] = None
        import lowtide
        for use in (lambda: lowtide.open(sys.argv[1]), lambda: lowtide.release(b"")):
            try:
                use()
            except ImportError:
                print("said")
    """
    assert python(code, save(ROWS)).split() == ["said", "said"]
