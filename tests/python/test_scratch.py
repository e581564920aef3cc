"""``shuffled(scratch=)``: the same rows in the same order, sorted on a disk first; nothing is left behind."""

import ctypes
import importlib.util
import itertools
import json
import os
import pickle
import re
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

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")

REFERENCE = Path(__file__).parents[2] / "crates/lowtide/tests/reference/permutation.py"


def permutation(rows, seed, epoch):
    """The order in plain Python, with a BLAKE3 of its own."""
    spec = importlib.util.spec_from_file_location("reference", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    row = module.permutation(rows, seed, epoch)
    return np.array([row(position) for position in range(rows)])


def scratch_files(folder):
    """The files in a folder that we have open, as the kernel names them."""
    return [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if is_in(folder, link)]


@pytest.fixture
def rows(save):
    """200,000 rows of 64 bytes, 12 MiB; row i holds i."""
    return save(np.repeat(np.arange(200_000, dtype="<i4")[:, None], 16, axis=1))


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@given(
    rows=st.integers(0, 14).flatmap(lambda k: st.sampled_from([2**k - 1, 2**k, 2**k + 1])),
    width=st.integers(1, 90),
    chunk=st.integers(1, 5000),
    budget=st.sampled_from([64 << 10, 300 << 10, 4 << 20]),
    seed=st.integers(0, 2**64 - 1),
    start=st.floats(0, 1),
    shard=st.integers(1, 4).flatmap(lambda world: st.tuples(st.integers(0, world - 1), st.just(world))),
)
@settings(max_examples=20)
def test_it_gives_the_rows_that_come_without(folder, rows, width, chunk, budget, seed, start, shard):
    path = folder / "hypothesis.npy"
    np.save(path, np.arange(rows * width, dtype="<i2").reshape(rows, width))
    with lowtide.open(path, budget=budget) as a:
        words = {
            "seed": seed,
            "start": int(start * rows),
            "rank": shard[0],
            "world_size": shard[1],
            "drop_last": True,
        }
        try:
            plain = a.shuffled(chunk, with_rows=True, **words)
        except (ValueError, MemoryError) as error:
            with pytest.raises(type(error)):
                a.shuffled(chunk, scratch=folder, **words)
            return
        sorted_first = a.shuffled(chunk, scratch=folder, with_rows=True, **words)
        for (at, x), (there, y) in itertools.zip_longest(plain, sorted_first, fillvalue=(None, None)):
            np.testing.assert_array_equal(at, there)
            np.testing.assert_array_equal(x, y)
            np.testing.assert_array_equal(x[:, 0], (at * width).astype("<i2"))


def test_it_is_the_permutation(rows, disk):
    a = lowtide.open(rows, budget="2MiB")
    taken = np.concatenate([chunk[:, 3] for chunk in a.shuffled(777, seed=5, epoch=2, scratch=disk)])
    np.testing.assert_array_equal(taken, permutation(len(a), 5, 2))


def test_several_arrays_and_labels(rows, disk, save):
    a = lowtide.open(rows, budget="2MiB")
    labels = lowtide.open(save(np.arange(len(a), dtype="<u8"), "labels.npy"), budget="300KiB")
    count = 0
    both = lowtide.zip(a, labels).shuffled(1000, seed=1, scratch=disk, with_rows=True)
    for at, (x, y) in both:
        assert (x[:, 7] == at).all()
        assert (y == at).all()
        count += len(at)
    assert count == len(a)


def test_epochs_states_and_pickles(rows, disk):
    a = lowtide.open(rows, budget="2MiB")
    plain, it = a.shuffled(900, seed=1), a.shuffled(900, seed=1, scratch=disk)
    for epoch in range(2):
        for n, (x, y) in enumerate(zip(plain, it, strict=True)):
            assert (x == y).all()
            if n == 100:
                state = it.state_dict()
                assert state == plain.state_dict()
                assert state["epoch"] == epoch
                again = a.shuffled(500, seed=9, scratch=str(disk))
                again.load_state_dict(state)
                fresh = a.shuffled(500, seed=9)
                fresh.load_state_dict(state)
                assert all((x == y).all() for x, y in itertools.islice(zip(again, fresh, strict=True), 20))
                copy = pickle.loads(pickle.dumps(it))
                assert str(disk) in copy.why
                assert (next(copy) == next(iter(pickle.loads(pickle.dumps(plain))))).all()


def quiet(since=None):
    """Wait until this process has written nothing to a disk for a while."""
    same = 0
    for _ in range(100):
        now = Path("/proc/self/io").read_text().split("\nwrite_bytes: ")[1].split()[0]
        same = same + 1 if now == since else 0
        if same == 4:  # a busy machine may let it wait
            return
        since = now
        time.sleep(0.5)


def test_from_the_second_epoch_on_the_next_one_is_sorted_meanwhile(rows, disk):
    """Its rows come from what was sorted before the file was overwritten."""
    a = lowtide.open(rows, budget="8MiB")
    it, plain = a.shuffled(1000, seed=1, scratch=disk), a.shuffled(1000, seed=1)
    want = [[chunk.copy() for chunk in plain] for _ in range(4)]
    for epoch in range(2):
        for n, (chunk, expected) in enumerate(zip(it, want[epoch], strict=True)):
            assert (chunk == expected).all()
            # Nobody knows that there is a second one while the first is taken.
            assert ("the next epoch is sorted meanwhile" in it.why) == (epoch == 1), n
    quiet()
    head, whole = lowtide.open(rows).shape, rows.read_bytes()
    with rows.open("r+b") as file:
        file.seek(-head[0] * 64, os.SEEK_END)
        file.write(bytes(head[0] * 64))
    for chunk, expected in zip(it, want[2], strict=True):
        assert (chunk == expected).all()
    quiet()
    assert not next(iter(it)).any()  # of the fourth, which was sorted after that
    rows.write_bytes(whole)
    del it
    assert scratch_files(disk) == []


def test_who_changes_his_mind_gets_what_he_asks_for(rows, disk):
    """A state is loaded, ranks change, an epoch is left: while another one is being sorted."""
    a = lowtide.open(rows, budget="8MiB")
    it, plain = a.shuffled(1000, seed=1, scratch=disk), a.shuffled(1000, seed=1)
    for _ in range(2):
        assert sum(map(len, it)) == sum(map(len, plain)) == 200_000
    next(iter(it))
    next(iter(plain))
    state = plain.state_dict()
    state["epoch"] = 7
    for each in (it, plain):
        each.load_state_dict(state)
    for _ in range(3):
        assert all((x == y).all() for x, y in zip(it, plain, strict=True))


def test_it_says_what_it_does(rows, disk):
    a = lowtide.open(rows, budget="2MiB")
    it = a.shuffled(1000, scratch=disk)
    assert f"rows are sorted in {disk} first: 12.2 MiB are read and 12.2 MiB written" in it.why
    mine = a.shuffled(1000, scratch=disk, rank=1, world_size=4)
    assert "12.2 MiB are read and 3.05 MiB written" in mine.why
    with pytest.raises(ValueError, match="exclude each other"):
        a.shuffled(1000, scratch=disk, blocks="auto")
    with pytest.raises(FileNotFoundError, match="scratch= names a folder"):
        a.shuffled(1000, scratch=disk / "no")
    next(it)
    assert f"rows are sorted in {disk}" in it.why


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A terabyte in rows of 512 bytes, none of which is written."""
    path = tmp_path_factory.mktemp("huge") / "rows.bin"
    path.touch()
    os.truncate(path, 1 << 40)
    return path


def test_a_pass_that_would_be_much_faster_says_so(huge, rows):
    words = {"dtype": "uint8", "shape": (-1, 512)}
    a = lowtide.open(huge, **words)
    times = r"take (\d+) (h|days) like this, (\d+) min with scratch=DIR, (\d+) min with blocks"
    said = re.search(f"a pass in exact order is predicted to {times}", a.shuffled(4096).why)
    assert said, a.shuffled(4096).why
    assert int(said[3]) > 2 * int(said[4])
    for quick in (a.chunks(4096), a.shuffled(4096, blocks="auto"), lowtide.open(rows).shuffled(100)):
        assert "predicted to take" not in quick.why
    large = lowtide.open(huge, dtype="uint8", shape=(-1, 1 << 20))
    assert "predicted to take" not in large.shuffled(10).why
    share = a.shuffled(4096, rank=0, world_size=1000)
    assert share.why != a.shuffled(4096).why, "a rank reads only its own rows"
    command = [Path(sys.executable).with_name("lowtide"), "info", huge, "--dtype", "uint8", "--shape=-1,512"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "with scratch=DIR" in told
    done = subprocess.run([*command, "--json"], capture_output=True, check=True)
    times = json.loads(done.stdout)[0]["predicted_seconds"]
    assert times["exact"] > 4 * times["scratch"] > 4 * times["blocks"]


def test_short_pieces_are_said(disk, save):
    """In a budget that is small for the rows."""
    rows = save(np.zeros((400_000, 16), "<i4"), "many.npy")
    small = lowtide.open(rows, budget="1MiB").shuffled(1000, scratch=disk)
    assert re.search(r"in pieces of [\d.]+ KiB only: a larger budget", small.why)
    assert "in large requests" in lowtide.open(rows, budget="64MiB").shuffled(1000, scratch=disk).why


def test_its_files_have_no_names_and_their_space_goes_at_once(rows, disk):
    def held():
        return sum(os.stat(f"/proc/self/fd/{fd}").st_blocks for fd in ours) * 512

    a = lowtide.open(rows, budget="2MiB")
    it = a.shuffled(1000, seed=1, scratch=disk)
    assert scratch_files(disk) == [], "nothing before the first chunk is asked for"
    next(it)
    names = scratch_files(disk)
    assert names
    assert all(name.endswith("(deleted)") for name in names)
    assert list(disk.iterdir()) == []
    # A descriptor of our own, as a forked child would have it.
    ours = [open_again(disk)]
    assert held() > a.nbytes * 0.9
    del it
    assert held() == 0
    assert len(scratch_files(disk)) == 1
    os.close(ours[0])
    it = a.shuffled(1000, seed=1, scratch=disk)
    next(it)
    ours = [open_again(disk)]
    a.close()
    assert held() == 0
    with pytest.raises(ValueError, match="closed"):
        next(it)
    os.close(ours[0])
    assert scratch_files(disk) == []


def test_closed_it_gives_its_space_back_and_goes_on(rows, disk):
    a = lowtide.open(rows, budget="2MiB")
    want = list(a.shuffled(1000, seed=1))
    for scratch in (disk, None):
        it = a.shuffled(1000, seed=1, scratch=scratch)
        assert (next(it) == want[0]).all()
        state = it.state_dict()
        it.close()
        it.close()
        assert scratch_files(disk) == []
        assert it.state_dict() == state
        assert it.why.count("the next epoch is sorted") == 0
        rest = list(it)
        assert len(rest) == len(want) - 1
        assert all((one == other).all() for one, other in zip(rest, want[1:], strict=True))
        it.close()  # after the last chunk: the next loop is the next epoch
        assert (next(iter(it)) == next(a.shuffled(1000, seed=1, epoch=1))).all()
        it.close()
    it = a.shuffled(1000, scratch=disk)
    next(it)
    a.close()
    it.close()


def test_a_file_is_no_folder(rows, disk):
    with pytest.raises(NotADirectoryError, match="scratch= names a folder"):
        lowtide.open(rows).shuffled(10, scratch=rows)


def open_again(folder):
    link = next(link for link in Path("/proc/self/fd").iterdir() if is_in(folder, link))
    return os.open(link, os.O_RDONLY)


def is_in(folder, link):
    try:
        return os.readlink(link).startswith(f"{folder}/")
    except OSError:
        return False


def test_a_forked_child_goes_on_by_itself(rows, disk):
    a = lowtide.open(rows, budget="2MiB")
    it = a.shuffled(1000, seed=1, scratch=disk)
    expected = [chunk[:, 0].copy() for chunk in a.shuffled(1000, seed=1)]
    for n in range(3):
        assert (next(it)[:, 0] == expected[n]).all()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(30)
            rest = list(it)
            assert all((x[:, 0] == y).all() for x, y in zip(rest, expected[3:], strict=True))
            code = 0
        finally:
            os._exit(code)
    assert all((x[:, 0] == y).all() for x, y in zip(it, expected[3:], strict=True))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


LARGE = """if True:
    import sys, lowtide
    path, folder, budget, epochs = sys.argv[1:5]
    a = lowtide.open(path, dtype="<i4", shape=(-1, 16), budget=int(budget), cache="drop")
    warm = lowtide.open(path, dtype="<i4", shape=(4096, 16), budget="1MiB")
    for chunk in warm.shuffled(64, scratch=folder): pass
    warm.close()
    print("go", flush=True)
    sys.stdin.readline()
    it = a.shuffled(4096, seed=1, with_rows=True, scratch=folder)
    for _ in range(int(epochs)):
        for at, chunk in it:
            assert (chunk[:, 5] == at).all()
    print("done", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """256 MiB, rows of 64 bytes."""
    path = tmp_path_factory.mktemp("large") / "rows.bin"
    with path.open("wb") as file:
        for start in range(0, 1 << 22, 1 << 18):
            file.write(np.repeat(np.arange(start, start + (1 << 18), dtype="<i4")[:, None], 16, axis=1))
        file.flush()
        os.fsync(file.fileno())
    yield path
    path.unlink()


def start(large, disk, budget=32 << 20, epochs=1):
    command = [sys.executable, "-c", LARGE, str(large), str(disk), str(budget), str(epochs)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "go\n"
    return child


def size(path):
    try:
        return path.stat().st_size
    except OSError:
        return 0


def inode(path):
    try:
        return path.stat().st_ino
    except OSError:
        return None


def cached(path):
    """Bytes of a file in the page cache, or nothing where the kernel does not tell."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return 0
    span, answer = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    ctypes.CDLL(None, use_errno=True).syscall(451, file, span, answer, 0)
    os.close(file)
    return answer[0] * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("epochs", [1, 3])
def test_memory_and_page_cache_stay_within_the_budget(large, disk, memory, epochs):
    budget = 32 << 20
    with start(large, disk, budget, epochs) as child:
        base, most, pages, seen, together = memory(child.pid), 0, 0, 0, 0
        child.stdin.write("\n")
        child.stdin.flush()
        os.set_blocking(child.stdout.fileno(), False)
        while not child.stdout.readline():
            now = memory(child.pid)
            most = max(most, now["RssAnon"] + now["RssFile"] - base["RssAnon"] - base["RssFile"])
            folder = Path(f"/proc/{child.pid}/fd")
            files = [file for file in list(folder.iterdir()) if is_in(disk, file)]
            seen = max([seen, *map(size, files)])
            inodes = {inode(file): file for file in files}
            pages = max(pages, sum(map(cached, inodes.values())))
            together = max(together, len(inodes.keys() - {None}))
            time.sleep(0.002)
        child.stdin.write("\n")
        child.stdin.flush()
    assert seen >= 256 << 20, "the runs were seen"
    assert together == (1 if epochs == 1 else 2), "from the second epoch on, the next one's are there too"
    assert most <= budget + (2 << 20)  # a chunk in the caller's hand
    assert pages <= budget


@pytest.mark.parametrize("wait", [0.05, 0.3, pytest.param(None, marks=pytest.mark.heavy)])
def test_a_kill_leaves_nothing(large, disk, wait):
    waits = [wait] if wait else np.random.default_rng(0).uniform(0, 1.2, 40)
    for wait in waits:
        child = start(large, disk)
        child.stdin.write("\n")
        child.stdin.flush()
        time.sleep(wait)
        child.kill()
        child.communicate()
        assert list(disk.iterdir()) == []


def test_a_signal_is_heard_while_rows_are_sorted(large, disk):
    child = start(large, disk)
    child.stdin.write("\n")
    child.stdin.flush()
    time.sleep(0.1)
    began = time.monotonic()
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert child.returncode != 0
    assert list(disk.iterdir()) == []


def test_a_file_that_is_cut_is_an_error_and_goes_on_when_it_is_whole(rows, disk):
    whole = rows.read_bytes()
    a = lowtide.open(rows, budget="2MiB", access="read")
    it = a.shuffled(1000, seed=1, scratch=disk)
    os.truncate(rows, len(whole) // 2)
    with pytest.raises(OSError, match="the file was cut"):
        next(it)
    rows.write_bytes(whole)
    assert (next(it) == next(a.shuffled(1000, seed=1))).all()


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder]).returncode
    ):
        pytest.skip("mounting a filesystem takes root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_folder_in_memory_is_warned_of(save, small_disk):
    a = lowtide.open(save(np.zeros((1000, 16), "<i4"), "few.npy"), budget="2MiB")
    with pytest.warns(UserWarning, match=r"is in memory \(tmpfs\), not on a disk"):
        assert sum(map(len, a.shuffled(100, scratch=small_disk))) == 1000
    assert "tmpfs" not in a.shuffled(100, scratch=small_disk.parent).why


@pytest.mark.filterwarnings("ignore:scratch=:UserWarning")
def test_a_full_disk_is_an_error_before_anything_is_written(rows, small_disk, save):
    a = lowtide.open(rows, budget="2MiB")
    with pytest.raises(OSError, match=r"12\.\d MiB of scratch space are needed, 8 MiB are free there"):
        a.shuffled(1000, scratch=small_disk)
    fits = lowtide.open(save(np.zeros((100_000, 16), "<i4"), "fits.npy"), budget="2MiB")
    it = fits.shuffled(1000, scratch=small_disk)
    (small_disk / "other").write_bytes(bytes(4 << 20))  # meanwhile
    with pytest.raises(OSError, match="of scratch space are needed, 4 MiB are free there"):
        next(it)
    (small_disk / "other").unlink()
    assert sum(map(len, it)) == len(fits), "and it goes on when there is room"
    assert list(small_disk.iterdir()) == []
