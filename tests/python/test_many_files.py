"""Several files as one array: rows end to end, every way of access, and what is wrong named by its file."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowtide


def write(folder, arrays, name="part-{:05}.npy"):
    folder.mkdir(exist_ok=True)
    for i, array in enumerate(arrays):
        np.save(folder / name.format(i), array)
    return sorted(folder.iterdir())


@given(
    sizes=st.lists(st.integers(0, 9), min_size=2, max_size=6),
    inner=st.sampled_from([(), (3,), (2, 2), (0,)]),
    dtype=st.sampled_from(["u1", ">i4", "<f8", "?"]),
    data=st.data(),
)
def test_rows_follow_each_other(tmp_path_factory, sizes, inner, dtype, data):
    folder = tmp_path_factory.mktemp("many")
    whole = np.random.default_rng(0).integers(0, 100, (sum(sizes), *inner)).astype(dtype)
    parts = np.split(whole, np.cumsum(sizes)[:-1])
    paths = write(folder, parts)
    for named in (paths, [str(p) for p in paths], folder, folder / "part-*.npy"):
        a = lowtide.open(named)
        assert (a.shape, a.dtype, len(a.files)) == (whole.shape, whole.dtype, len(sizes))
    assert a.files == tuple(paths)
    assert a.path == paths[0]
    n = len(whole)
    index = st.integers(-n, max(n - 1, 0))
    keys = [..., slice(None, None, -3), slice(*sorted(data.draw(st.tuples(index, index)))), whole == 7]
    keys.append(data.draw(st.lists(index, max_size=6 if n else 0)))
    for key in keys:
        assert np.array_equal(a[key], whole[key])
    for part, expected in [(a, whole), (a.rows(1, -1), whole[1:-1]), (a.split(1.0, seed=1)[0], None)]:
        got = np.concatenate([whole[:0], *part.chunks(4)])
        assert np.array_equal(got, part[...] if expected is None else expected)
        for at, chunk in part.shuffled(4, with_rows=True):
            assert np.array_equal(chunk, part[...][at])
    copy = pickle.loads(pickle.dumps(a.rows(1)))
    assert np.array_equal(copy[...], whole[1:])
    assert copy.files == a.files


def test_every_way_of_access_is_one_files(tmp_path, access):
    whole = np.arange(300_000, dtype="f4").reshape(-1, 30)
    folder = tmp_path / "many"
    write(folder, np.array_split(whole, 7))
    np.save(tmp_path / "one.npy", whole)
    a, one = lowtide.open(folder, access=access), lowtide.open(tmp_path / "one.npy", access=access)
    for make in (
        lambda a: a.chunks(999),
        lambda a: a.shuffled(999, seed=3),
        lambda a: a.shuffled(99, blocks=50),
    ):
        got, expected = list(make(a)), list(make(one))
        assert all(np.array_equal(x, y) for x, y in zip(got, expected, strict=True))
    y = lowtide.open(tmp_path / "one.npy")
    for x1, x2 in lowtide.zip(a, y).shuffled(1000):
        assert np.array_equal(x1, x2)
    it = a.shuffled(1000, seed=1)
    next(it)
    state = json.loads(json.dumps(it.state_dict()))
    again = lowtide.open(folder).shuffled(1000)
    again.load_state_dict(state)
    assert all(np.array_equal(x, y) for x, y in zip(it, again, strict=True))
    with pytest.raises(ValueError, match="other data"):
        lowtide.open(sorted(folder.iterdir(), reverse=True)).shuffled(1000).load_state_dict(state)


def test_raw_files_too(tmp_path):
    whole = np.arange(1200, dtype="<i2").reshape(-1, 4)
    for i, part in enumerate(np.array_split(whole, 3)):
        (tmp_path / f"{i}.bin").write_bytes(b"head" + part.tobytes())
    a = lowtide.open(tmp_path, dtype="<i2", shape=(-1, 4), offset=4)
    assert np.array_equal(a[:], whole)
    assert np.array_equal(pickle.loads(pickle.dumps(a))[:], whole)
    first = lowtide.open(tmp_path / "?.bin", dtype="<i2", shape=(10, 4), offset=4)  # of each
    assert np.array_equal(first[:], np.concatenate([p[:10] for p in np.array_split(whole, 3)]))
    with pytest.raises(ValueError, match=r"0\.bin.*whole number of rows"):
        lowtide.open(tmp_path, dtype="<i2", shape=(-1, 4), offset=2)


def test_one_of_them_is_that_file(tmp_path, save):
    array = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    path = save(array)
    for named in ([path], (path,), tmp_path, tmp_path / "*.npy"):
        a = lowtide.open(named)
        assert np.array_equal(a[...], array)
        assert repr(a) == repr(lowtide.open(path))


def test_what_does_not_go_together_is_named(tmp_path):
    def refused(*arrays, error=ValueError):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        paths = write(folder, arrays)
        with pytest.raises(error) as raised:
            lowtide.open(folder)
        return str(raised.value), [str(p) for p in paths]

    rows = np.zeros((5, 3))
    said, (a, _, c) = refused(rows, rows, rows.astype("f4"))
    assert a in said
    assert c in said
    assert "<f8 in rows of (3,)" in said
    assert "<f4 in rows of (3,)" in said
    said, (a, b) = refused(rows, np.zeros((5, 4)))
    assert a in said
    assert b in said
    said, _ = refused(rows, rows.astype(">f8"))
    assert ">f8" in said
    said, (_, b) = refused(rows, np.asfortranarray(np.ones((5, 3))))
    assert said.startswith(b)
    assert "Fortran order" in said
    said, (_, b) = refused(rows, np.float64(1))
    assert said.startswith(b)
    refused(rows, np.array([{}, {}], dtype=object), error=NotImplementedError)

    with pytest.raises(ValueError, match="no files are named"):
        lowtide.open([])
    with pytest.raises(TypeError, match="the list is flat"):
        lowtide.open([["a.npy"]])
    with pytest.raises(ValueError, match="no file matches"):
        lowtide.open(tmp_path / "none*.npy")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"no files of an array in this folder\nhint: they end in \.npy"):
        lowtide.open(empty)
    (empty / "x.bin").write_bytes(b"12")
    with pytest.raises(ValueError, match=r"token files are for lowtide\.tokens"):
        lowtide.open(empty)
    write(empty, [rows, rows], "x_{}.npy")
    (empty / "x_0.npy").rename(empty / "x_train.npy")
    (empty / "x_1.npy").rename(empty / "x_test.npy")
    with pytest.raises(ValueError, match=r"x_train\.npy and x_test\.npy, which are not meant as one array"):
        lowtide.open(empty)


def test_a_missing_a_cut_and_a_replaced_file_are_named(tmp_path):
    whole = np.arange(60_000).reshape(-1, 6)
    paths = write(tmp_path / "many", np.array_split(whole, 10))
    with pytest.raises(FileNotFoundError, match=r"gone\.npy"):
        lowtide.open([*paths, tmp_path / "gone.npy"])
    a = lowtide.open(paths, access="read")
    sent = pickle.dumps(a)
    size = paths[4].stat().st_size
    os.truncate(paths[4], size - 1)
    with pytest.raises(ValueError, match=r"(?s)part-00004\.npy.*shorter than its header"):
        lowtide.open(paths)
    with pytest.raises(OSError, match=r"part-00004\.npy"):
        list(a.chunks(1000))
    with pytest.raises(ValueError, match=r"part-00004\.npy.*as when this was pickled"):
        pickle.loads(sent)
    np.save(paths[4], np.array_split(whole, 10)[4].astype("f8"))  # as long, other bytes
    with pytest.raises(ValueError, match=r"part-00004\.npy.*as when this was pickled"):
        pickle.loads(sent)
    paths[4].unlink()
    with pytest.raises(FileNotFoundError, match=r"part-00004\.npy"):
        pickle.loads(sent)
    late = lowtide.open(paths[5:])  # its files are opened when they are needed
    paths[7].unlink()
    with pytest.raises(FileNotFoundError, match=r"part-00007\.npy"):
        list(late.shuffled(500))


def test_hostile_headers_are_refused_by_their_file(tmp_path):
    rows = np.zeros((4, 2), "f4")
    good = write(tmp_path / "many", [rows])[0]
    bad = tmp_path / "many" / "z.npy"
    huge = "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387903, 2), }"
    for header in (huge, huge.replace("4611686018427387903", "-4"), "{'descr': '<f4'}", "\x00" * 40):
        text = header.encode() + b" " * (117 - len(header)) + b"\n"
        bad.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + rows.tobytes())
        with pytest.raises((ValueError, OSError), match=r"z\.npy"):
            lowtide.open([good, bad])
    for junk in (b"", b"\x93NUM", b"not an array at all"):
        bad.write_bytes(junk)
        with pytest.raises(ValueError, match=r"z\.npy"):
            lowtide.open(tmp_path / "many")


MANY = """if True:
    import os, resource, sys, pickle, lowtide, numpy as np
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    a = lowtide.open(sys.argv[1], budget="32MiB")
    assert a.shape == (30_000, 4), a.shape
    most = 0
    def look():
        global most
        most = max(most, len(os.listdir("/proc/self/fd")))
    for copy in (a, pickle.loads(pickle.dumps(a))):
        seen = []
        for at, chunk in copy.shuffled(1000, seed=1, with_rows=True):
            assert (chunk == at[:, None]).all()
            seen.extend(at)
            look()
        assert sorted(seen) == list(range(30_000))
    at = 0
    for chunk in a.chunks(1000):
        assert (chunk[:, 0] == np.arange(at, at + len(chunk))).all()
        at += len(chunk)
        look()
    assert (a[[29_999, 0, 15_000]][:, 0] == [29_999, 0, 15_000]).all()
    print(most)
"""


def test_ten_thousand_files_with_few_descriptors(tmp_path, python):
    folder = tmp_path / "many"
    folder.mkdir()
    rows = np.repeat(np.arange(30_000, dtype="i4")[:, None], 4, axis=1)
    np.save(folder / "first.npy", rows[:3])
    head = (folder / "first.npy").read_bytes()[:128]
    (folder / "first.npy").unlink()
    for i in range(10_000):
        (folder / f"{i:05}.npy").write_bytes(head + rows[3 * i : 3 * i + 3].tobytes())
    assert int(python(MANY, folder, timeout=120)) < 256


def test_info_says_what_a_folder_is(tmp_path):
    def info(path):
        command = [sys.executable, "-m", "lowtide", "info", "--json", str(path)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]

    write(tmp_path / "rows", np.array_split(np.zeros((100, 8), "f4"), 5))
    for path in (tmp_path / "rows", tmp_path / "rows" / "*.npy"):
        said = info(path)
        assert (said["kind"], said["shape"], said["files"]) == ("array", [100, 8], 5)
        assert said["path"] == str(path)
    write(tmp_path / "tokens", [np.arange(3000, dtype="u2")] * 2)
    said = info(tmp_path / "tokens")
    assert (said["kind"], said["tokens"]) == ("tokens", 6000)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_chunks_of_ranks(tmp_path, world_size, monkeypatch):
    whole = np.arange(1000)
    np.save(tmp_path / "a.npy", whole)
    a = lowtide.open(tmp_path / "a.npy")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert np.array_equal(np.concatenate(list(a.chunks(64))), whole)  # everything, whoever started us
    ranks = [a.chunks(64, rank=r, world_size=world_size) for r in range(world_size)]
    assert [(it.rank, it.world_size) for it in ranks] == [(r, world_size) for r in range(world_size)]
    copies = [pickle.loads(pickle.dumps(it)) for it in ranks]
    assert len({len(it) for it in ranks}) == 1
    got = [chunk for step in zip(*ranks, strict=True) for chunk in step]
    assert np.array_equal(np.concatenate(got), whole)  # one step after another, in the order of the ranks
    assert np.array_equal(np.concatenate([c for step in zip(*copies, strict=True) for c in step]), whole)
    # A state is everybody's, and loads under another number of ranks.
    it = a.chunks(50, rank=0, world_size=2)
    next(it)
    others = [a.chunks(30, rank=r, world_size=3) for r in range(3)]
    for other in others:
        other.load_state_dict(it.state_dict())
    rest = [chunk for step in zip(*others, strict=True) for chunk in step]
    assert np.array_equal(np.concatenate(rest), whole[100:])


def test_chunks_of_ranks_refuse_what_cannot_be(save):
    a = lowtide.open(save(np.arange(101)))
    with pytest.raises(ValueError, match="world_size"):
        a.chunks(10, rank=0)
    with pytest.raises(ValueError, match="rank 2 is out of range"):
        a.chunks(10, rank=2, world_size=2)
    with pytest.raises(ValueError, match="drop_last=True"):
        a.chunks(10, rank=0, world_size=2)
    got = [list(a.chunks(10, rank=r, world_size=2, drop_last=True)) for r in range(2)]
    assert [len(g) for g in got] == [5, 5]
    second = a.chunks(10, rank=1, world_size=2, drop_last=True)
    assert " rank=1 world_size=2 (given) " in repr(second)
    assert second.why.endswith("; rank 1 of 2: given")
    assert "rank" not in a.chunks(10).why
    both = lowtide.zip(a, a).chunks(10, rank=1, world_size=2, drop_last=True)
    assert np.array_equal(next(both)[0], np.arange(10, 20))


@pytest.mark.parametrize("head", [0, 64, 100, 128, 4032])
@pytest.mark.parametrize("files", [1, 3])
def test_long_chunks_around_the_page_cache(tmp_path, head, files):
    """Unbuffered, chunks of 2 MiB and more go straight to memory that lies as they do in their files."""
    rows = np.random.default_rng(1).integers(0, 256, (20_011, 512), dtype="uint8")
    paths = [tmp_path / f"{n}.bin" for n in range(files)]
    for path, part in zip(paths, np.array_split(rows, files), strict=True):
        path.write_bytes(bytes(head) + part.tobytes())
    a = lowtide.open(paths, dtype="uint8", shape=(-1, 512), offset=head, access="direct")
    for size in (4096, 5000, 20_011):
        it, seen = a.chunks(size), 0
        for chunk in it:
            np.testing.assert_array_equal(chunk, rows[seen : seen + size])
            assert chunk.ctypes.data % 64 == 0
            seen += len(chunk)
        assert seen == len(rows)
        assert it.access == "direct"
