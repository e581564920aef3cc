"""``lowtide.shuffle`` and ``lowtide shuffle``: what ``shuffled(seed)`` gives, written down."""

import contextlib
import json
import os
import re
import shutil
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
ROWS = 30_000


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
@settings(max_examples=12)
def test_the_result_is_the_shuffled_iteration(folder, rows, width, budget, seed, npy):
    rows = min(rows, (4 << 20) // width)
    folder = folder / "shuffled"  # other tests have files beside it
    folder.mkdir(exist_ok=True)
    path, out = folder / "in.npy", folder / ("out.npy" if npy else "out.bin")
    np.save(path, (np.arange(rows * width) * 7 % 251).astype("u1").reshape(rows, width))
    made = lowtide.shuffle(path, out, seed=seed, budget=budget, overwrite=True)
    want = expected(path, seed)
    assert made == {
        "files": [out],
        "rows": rows,
        "bytes": rows * width,
        "passes": made["passes"],
        "written_before": 0,
    }
    assert made["passes"] in (2, 3)
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
    """Rows of 400 bytes, 12 MB; row i holds i."""
    return save(np.repeat(np.arange(ROWS, dtype="<i4")[:, None], 100, axis=1))


def test_several_arrays_by_the_same_permutation(rows, save, tmp_path):
    labels = save(np.arange(ROWS, dtype="<u8"), "labels.npy")
    done = run(rows, labels, "-o", tmp_path / "out", "--seed", 3, "--budget", "4MiB", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == ROWS
    x, y = np.load(tmp_path / "out/rows.npy"), np.load(tmp_path / "out/labels.npy")
    assert (x[:, 9] == y).all()
    np.testing.assert_array_equal(x, expected(rows, 3))
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["labels.npy", "rows.npy"]


@pytest.mark.parametrize("names", [["x", "none"], ["none", "x"]])
def test_rows_without_bytes_take_nothing_from_those_beside_them(save, tmp_path, names):
    x = np.arange(1, 5001, dtype="f8").reshape(-1, 5)
    paths = {"x": save(x, "x.npy"), "none": save(np.zeros((1000, 0), "f4"), "none.npy")}
    lowtide.shuffle([paths[name] for name in names], tmp_path / "out", seed=3, budget="4MiB")
    np.testing.assert_array_equal(np.load(tmp_path / "out/x.npy"), expected(paths["x"], 3))
    assert (tmp_path / "out/none.npy").read_bytes() == paths["none"].read_bytes()


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
    assert np.load(out).shape == (ROWS, 100)


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
    assert seen[-1]["total"] == 2 * ROWS * 400
    again = lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB")
    assert again["written_before"] >= ROWS * 400, "it went on"
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


def stopped(rows, out, when="rows"):
    """What a run leaves that is stopped at a step."""

    def stop(at):
        if at["step"] == when and at["written"]:
            raise LookupError

    with pytest.raises(LookupError):
        lowtide.shuffle(rows, out, seed=1, budget="4MiB", progress=stop)
    work = out.with_name(f".{out.name}.shuffling")
    assert work.is_dir()
    return work


@pytest.mark.parametrize(("budget", "passes"), [("2MiB", 2), ("1MiB", 3)])
def test_stopped_again_and_again_it_goes_on_from_where_it_was(rows, tmp_path, budget, passes):
    out, rng, before = tmp_path / "out.npy", np.random.default_rng(0), [0]

    def after(calls):
        left = iter(range(calls))
        return lambda at: next(left)  # StopIteration ends it

    while not out.exists():
        try:
            made = lowtide.shuffle(rows, out, seed=1, budget=budget, progress=after(int(rng.integers(2, 9))))
            before.append(made["written_before"])
        except StopIteration:
            state = json.loads((tmp_path / ".out.npy.shuffling/state.json").read_text())
            before.append((state["next"] + state["merged"] + state["buckets"] * state["batch"]) * 400)
    assert before == sorted(before)
    for number in range(passes):
        part = [n for n in before if 0 < n - number * ROWS * 400 < ROWS * 400]
        assert len(part) > 2, f"in pass {number + 1} of {passes}"
    np.testing.assert_array_equal(np.load(out), expected(rows, 1))


def damage(path):
    os.truncate(path, path.stat().st_size // 5)


@pytest.mark.parametrize("name", ["0.runs", "0.new"])
@pytest.mark.parametrize("harm", [Path.unlink, damage])
def test_leftovers_that_are_not_what_the_state_says_are_not_taken_up(rows, tmp_path, name, harm):
    work = stopped(rows, tmp_path / "out.npy")
    if name == "0.new":  # so that some of it was written
        state = json.loads((work / "state.json").read_text())
        assert state["next"] == ROWS
        (work / "state.json").write_text(json.dumps(state | {"buckets": 12}))
    harm(work / name)
    made = lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB")
    assert made["written_before"] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 1))


@pytest.mark.parametrize(
    "lie",
    [{"next": 10**9}, {"buckets": 10**9}, {"batch": 0}, {"whole": [[1, 2]]}],
)
def test_a_state_that_lies_is_not_believed(rows, tmp_path, lie):
    work = stopped(rows, tmp_path / "out.npy")
    state = json.loads((work / "state.json").read_text())
    (work / "state.json").write_text(json.dumps(state | lie))
    lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 1))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npy", "rows.npy"]


def test_a_file_that_appears_meanwhile_is_not_replaced_and_the_work_not_lost(rows, tmp_path):
    out = tmp_path / "out.npy"
    with pytest.raises(FileExistsError, match="what was written is whole"):
        lowtide.shuffle(rows, out, seed=1, budget="4MiB", progress=lambda at: out.write_bytes(b"mine"))
    assert out.read_bytes() == b"mine"
    out.unlink()
    shutil.copytree(tmp_path / ".out.npy.shuffling", tmp_path / "kept")
    made = lowtide.shuffle(rows, out, seed=1, budget="4MiB")
    assert made["written_before"] == 2 * made["bytes"], "it only got its name"
    np.testing.assert_array_equal(np.load(out), expected(rows, 1))
    # As if it had been killed before the folder was taken away, and somebody has taken the result away.
    out.unlink()
    (tmp_path / "kept/0.new").unlink()
    (tmp_path / "kept").rename(tmp_path / ".out.npy.shuffling")
    assert lowtide.shuffle(rows, out, seed=1, budget="4MiB")["written_before"] == 0
    np.testing.assert_array_equal(np.load(out), expected(rows, 1))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npy", "rows.npy"]


def test_a_file_that_is_changed_meanwhile_is_an_error(rows, tmp_path):
    def write(at):
        with rows.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"x")

    with pytest.raises(ValueError, match="written to meanwhile"):
        lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB", progress=write)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.npy"]


def test_a_file_that_was_replaced_after_a_kill_is_shuffled_anew(rows, save, tmp_path):
    stopped(rows, tmp_path / "out.npy")
    other = save(np.load(rows)[::-1].copy(), "other.npy")
    os.utime(other, ns=(rows.stat().st_atime_ns, rows.stat().st_mtime_ns))
    other.replace(rows)
    assert lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="4MiB")["written_before"] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 1))


def test_a_link_in_the_place_of_its_folder_is_not_followed(rows, tmp_path):
    dear = tmp_path / "dear"
    dear.mkdir()
    (dear / "0.runs").write_bytes(b"mine")
    (tmp_path / ".out.npy.shuffling").symlink_to(dear)
    with pytest.raises(OSError, match="is in the way"):
        lowtide.shuffle(rows, tmp_path / "out.npy")
    assert (dear / "0.runs").read_bytes() == b"mine"


def test_a_small_budget_is_spoken_of_where_it_is_the_reason(save, tmp_path):
    save(np.zeros((1000, 8), "f4"), "little.npy")
    save(np.zeros((1 << 20, 2), "f4"), "large.npy")
    for name, budget, said in [("little.npy", "256MiB", False), ("large.npy", "1MiB", True)]:
        done = run(name, f"new-{name}", "--budget", budget, cwd=tmp_path, check=True)
        assert ("in this budget, " in done.stdout) == said, done


def test_many_files_as_one(save, tmp_path):
    (tmp_path / "parts").mkdir()
    whole = np.arange(9000, dtype="<u4").reshape(-1, 3)
    for n in range(10):
        np.save(tmp_path / f"parts/{n}.npy", whole[n * 300 : n * 300 + 300])
    lowtide.shuffle(tmp_path / "parts", tmp_path / "out.npy", seed=1, budget="200KiB")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(save(whole, "whole.npy"), 1))
    with pytest.raises(FileExistsError, match="another name"):
        lowtide.shuffle(tmp_path / "parts", tmp_path / "parts/7.npy", overwrite=True)


def test_the_replaced_file_stays_until_the_end_and_its_permissions_are_kept(rows, tmp_path):
    out = tmp_path / "out.npy"
    out.write_bytes(b"old")
    out.chmod(0o640)
    lowtide.shuffle(
        rows, out, overwrite=True, budget="4MiB", progress=lambda at: out.read_bytes() == b"old" or 1 / 0
    )
    assert out.stat().st_mode & 0o777 == 0o640
    with pytest.raises(OSError, match="no regular file"):
        lowtide.shuffle(rows, "/dev/null", overwrite=True)


@pytest.mark.parametrize(
    ("width", "budget"),
    [(16, 8 << 20), (16, 2 << 20), pytest.param(5000, 8 << 20, marks=pytest.mark.heavy)],
)
def test_memory_stays_within_the_budget(tmp_path, save, width, budget, peak):
    small = save(np.zeros((10, width), "u1"), "small.npy")
    large = save(np.ones(((48 << 20) // width, width), "u1"), "large.npy")
    base = peak([COMMAND, "shuffle", small, tmp_path / "a.npy", "--budget", "1MiB"])
    most = peak([COMMAND, "shuffle", large, tmp_path / "b.npy", "--budget", budget])
    # What only the larger one runs of our own code is mapped then: 0.4 MiB (RssFile), whatever the budget.
    code = 1 << 20
    assert budget / 4 < most - base <= budget + code
    large.unlink()
    (tmp_path / "b.npy").unlink()


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("budget", ["2MiB", "1MiB"])  # two passes, and three
def test_killed_and_run_again_it_goes_on(rows, tmp_path, kills, budget):
    whole = tmp_path / "whole.npy"
    began = time.monotonic()
    assert run(rows, whole, "--seed", 7, "--budget", budget).returncode == 0
    took = time.monotonic() - began
    out, rng, runs = tmp_path / "out.npy", np.random.default_rng(0), 0
    for _ in range(kills):
        child = subprocess.Popen(
            [COMMAND, "shuffle", rows, out, "--seed", "7", "--budget", budget, "--quiet"]
        )
        time.sleep(rng.uniform(0, took))
        child.send_signal(signal.SIGKILL)
        runs += child.wait() != 0
        if out.exists():
            assert out.read_bytes() == whole.read_bytes()
            out.unlink()
    assert runs
    if not out.exists():
        done = run(rows, out, "--seed", 7, "--budget", budget)
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
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", small]).returncode
    ):
        pytest.skip("mounting a filesystem takes root")
    try:
        with pytest.raises(OSError, match=r"are needed, .* are free there"):
            lowtide.shuffle(rows, small / "out.npy", budget="4MiB")
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)


def test_what_a_small_budget_costs_is_said_beforehand(tmp_path, caplog):
    path, out = tmp_path / "in.npy", tmp_path / "out.npy"
    np.save(path, np.arange(400_000 * 16, dtype="i4").reshape(-1, 16))

    def said(budget, *more):
        done = run(path, out, "--budget", budget, "--overwrite", *more)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(out), want)
        return " ".join(done.stdout.split())

    want = expected(path, 0)
    third = re.search(r"read and written three times, .*; with --budget (\w+), twice is enough", said("1MiB"))
    short = re.search(
        r"the second pass makes about ([\d,]+) reads of ([\d.]+ \w+); --budget (\w+) makes them long",
        said(third[1]),
    )
    assert int(short[1].replace(",", "")) > 500
    assert "in this budget" not in said(short[3])
    assert "in this budget" not in said("1MiB", "--quiet")
    for budget, words in [
        ("1MiB", f"with budget={third[1]}, twice is enough"),
        (third[1], f"budget={short[3]} makes them long"),
    ]:
        passes = set()
        with caplog.at_level("WARNING", "lowtide"):
            lowtide.shuffle(
                path,
                out,
                budget=budget,
                overwrite=True,
                progress=lambda at, passes=passes: passes.add(at["passes"]),
            )
        assert words in caplog.text
        assert passes == {3 if budget == "1MiB" else 2}


def test_three_passes_in_order_and_what_they_write(rows, tmp_path):
    seen = []
    made = lowtide.shuffle(rows, tmp_path / "out.npy", seed=1, budget="1MiB", progress=seen.append)
    steps = [at["step"] for at in seen]
    assert list(dict.fromkeys(steps)) == ["runs", "merging", "rows"]
    assert steps == sorted(steps, key=("runs", "merging", "rows").index)
    written = [at["written"] for at in seen]
    assert written == sorted(written)
    assert written[-1] == seen[-1]["total"] == 3 * made["bytes"]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected(rows, 1))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.npy", "rows.npy"]


def test_a_terminal_sees_a_line_that_goes_away_and_false_says_nothing(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(400_000 * 16, dtype="<f4").reshape(-1, 16))
    for words, some in (("", True), (", progress=False", False)):
        program = (
            f"import lowtide; lowtide.shuffle({str(tmp_path / 'rows.npy')!r}, "
            f"{str(tmp_path / 'out.npy')!r}, overwrite=True{words})"
        )
        ours, theirs = os.openpty()
        running = subprocess.Popen([sys.executable, "-c", program], stderr=theirs)
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(ours, 65536):
                said += piece
        os.close(ours)
        assert running.wait() == 0
        lines = said.split(b"\r\x1b[K")
        assert lines[0] == lines[-1] == b"", lines
        assert any(re.match(rb"(sorting|writing) .*: \d+ % of 48.8 MiB", line) for line in lines) == some
    with pytest.raises(TypeError, match="progress=3 cannot be called"):
        lowtide.shuffle(tmp_path / "rows.npy", tmp_path / "out.npy", progress=3)
