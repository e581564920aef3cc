"""``lowtide.shuffle`` and ``lowtide shuffle``: what ``shuffled(seed)`` gives, written down."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lowtide

COMMAND = Path(sys.executable).with_name("lowtide")


def run(*arguments, **words):
    return subprocess.run([COMMAND, "shuffle", *map(str, arguments)], capture_output=True, text=True, **words)


def expected(array, seed, epoch=0):
    """By the row numbers of an iteration, and NumPy."""
    with_numbers = lowtide.open(array).shuffled(1000, seed=seed, epoch=epoch, with_rows=True)
    numbers = np.concatenate([at for at, _ in with_numbers] or [np.zeros(0, int)])
    return np.load(array)[numbers]


@given(
    rows=st.integers(0, 15).flatmap(lambda k: st.sampled_from([2**k - 1, 2**k, 2**k + 1])),
    width=st.integers(1, 700),
    budget=st.sampled_from([96 << 10, 1 << 20, 64 << 20]),
    seed=st.integers(0, 2**64 - 1),
    npy=st.booleans(),
)
@settings(max_examples=25)
def test_the_result_is_the_shuffled_iteration(folder, rows, width, budget, seed, npy):
    rows = min(rows, (4 << 20) // width)
    path, out = folder / "in.npy", folder / ("out.npy" if npy else "out.bin")
    np.save(path, (np.arange(rows * width) * 7 % 251).astype("u1").reshape(rows, width))
    made = lowtide.shuffle(path, out, seed=seed, budget=budget, overwrite=True)
    want = expected(path, seed)
    assert made == {"files": [out], "rows": rows, "bytes": rows * width, "written_before": 0}
    assert out.read_bytes()[-want.nbytes :] == want.tobytes() or not want.nbytes
    if npy:
        np.save(folder / "numpy.npy", want)
        assert out.read_bytes() == (folder / "numpy.npy").read_bytes(), "byte for byte what np.save writes"
    else:
        assert out.stat().st_size == want.nbytes
    assert {entry.name for entry in folder.iterdir()} <= {
        "in.npy",
        "out.npy",
        "out.bin",
        "numpy.npy",
        "hypothesis.npy",
    }


@pytest.fixture
def rows(save):
    """100,000 rows of 400 bytes, 38 MiB; row i holds i."""
    return save(np.repeat(np.arange(100_000, dtype="<i4")[:, None], 100, axis=1))


def test_several_arrays_by_the_same_permutation(rows, save, tmp_path):
    labels = save(np.arange(100_000, dtype="<u8"), "labels.npy")
    done = run(rows, labels, "-o", tmp_path / "out", "--seed", 3, "--budget", "4MiB", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 100_000
    x, y = np.load(tmp_path / "out/rows.npy"), np.load(tmp_path / "out/labels.npy")
    assert (x[:, 9] == y).all()
    np.testing.assert_array_equal(x, expected(rows, 3))
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["labels.npy", "rows.npy"]


def test_raw_rows(tmp_path):
    raw = np.arange(30_000, dtype="<u2").reshape(-1, 3)
    (tmp_path / "raw.bin").write_bytes(b"header" + raw.tobytes())
    words = {"dtype": "uint16", "shape": (-1, 3), "offset": 6}
    lowtide.shuffle(tmp_path / "raw.bin", tmp_path / "out.bin", seed=1, budget="200KiB", **words)
    want = np.concatenate(list(lowtide.open(tmp_path / "raw.bin", **words).shuffled(999, seed=1)))
    assert (tmp_path / "out.bin").read_bytes() == want.tobytes()
    done = run(tmp_path / "raw.bin", tmp_path / "out.npy", "--dtype", "uint16", "--shape=-1,3", "--offset", 6)
    assert done.returncode == 0, done.stderr


def test_what_is_refused(rows, save, tmp_path):
    out = tmp_path / "out.npy"
    out.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        lowtide.shuffle(rows, out)
    with pytest.raises(FileExistsError, match="another name"):
        lowtide.shuffle(rows, rows, overwrite=True)
    with pytest.raises(ValueError, match="different lengths"):
        lowtide.shuffle([rows, save(np.arange(5), "five.npy")], tmp_path / "both")
    with pytest.raises(NotImplementedError, match="Fortran"):
        lowtide.shuffle(save(np.asfortranarray(np.ones((9, 9))), "fortran.npy"), tmp_path / "c.npy")
    with pytest.raises(MemoryError, match="sorting rows of this size"):
        lowtide.shuffle(save(np.zeros((4, 1 << 20)), "wide.npy"), tmp_path / "c.npy", budget="4MiB")
    assert out.read_bytes() == b"mine"
    assert not list(tmp_path.glob(".*"))
    assert run(rows).returncode == 2
    assert run(rows, out).returncode == 1
    assert run(rows, out, "--overwrite", "--quiet").returncode == 0
    assert np.load(out).shape == (100_000, 100)


def test_progress_and_an_exception_that_stops_it(rows, tmp_path):
    seen = []

    def stop(at):
        seen.append(at)
        if at["step"] == "rows":
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB", progress=stop)
    assert not (tmp_path / "out.npy").exists()
    written = [at["written"] for at in seen]
    assert written == sorted(written)
    assert seen[-1]["total"] == 2 * 40_000_000
    again = lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB")
    assert again["written_before"] >= 40_000_000, "it went on"
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 1))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npy", "rows.npy"]


def test_what_an_earlier_run_did_of_something_else_is_not_taken_up(rows, tmp_path):
    def stop(at):
        if at["step"] == "rows":
            raise LookupError

    with pytest.raises(LookupError):
        lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB", progress=stop)
    made = lowtide.shuffle(rows, tmp_path / "out.npy", seed=2, budget="4MiB")
    assert made["written_before"] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 2))


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.heavy)])
def test_killed_and_run_again_it_goes_on(rows, tmp_path, kills):
    whole = tmp_path / "whole.npy"
    began = time.monotonic()
    assert run(rows, whole, "--seed", 7, "--budget", "2MiB").returncode == 0
    took = time.monotonic() - began
    out, rng, runs = tmp_path / "out.npy", np.random.default_rng(0), 0
    for _ in range(kills):
        child = subprocess.Popen(
            [COMMAND, "shuffle", rows, out, "--seed", "7", "--budget", "2MiB", "--quiet"]
        )
        time.sleep(rng.uniform(0, took))
        child.send_signal(signal.SIGKILL)
        runs += child.wait() != 0
        if out.exists():
            assert out.read_bytes() == whole.read_bytes()
            out.unlink()
    assert runs
    if not out.exists():
        done = run(rows, out, "--seed", 7, "--budget", "2MiB")
        assert done.returncode == 0, done.stderr
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npy", "rows.npy", "whole.npy"]


def test_two_at_once(rows, tmp_path):
    def second(at):
        if at["step"] == "rows":
            with pytest.raises(OSError, match="another process is shuffling into it"):
                lowtide.shuffle(rows, tmp_path / "out.npy", seed=1)

    lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="16MiB", progress=second)


def test_a_full_disk_is_an_error_beforehand(rows, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", small]).returncode
    ):
        pytest.skip("mounting a filesystem takes root")
    try:
        with pytest.raises(OSError, match=r"are needed, .* are free there"):
            lowtide.shuffle(rows, small / "out.npy", budget="4MiB")
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
