"""Where the system has no threads left (`ulimit -u`, a container's pids), the caller does it all himself."""

import os

import numpy as np
import pytest
from test_memory import limited

import lowtide


@pytest.fixture
def alone(python):
    """Runs code in a fresh interpreter that can start no thread, and gives what it printed."""

    def run(code, *args, **environment):
        with limited(1, "pids") as group:
            # NumPy's own threads are not what is tried.
            code = f"""if True:
            import os, sys, numpy as np, lowtide, threading
            from pathlib import Path
            Path({str(group)!r}, "cgroup.procs").write_text(str(os.getpid()))
            try:
                threading.Thread(target=print).start()
                sys.exit("threads can be started")
            except RuntimeError:
                pass
            {code}"""
            return python(code, *args, OPENBLAS_NUM_THREADS="1", **environment)

    return run


@pytest.fixture
def rows(save):
    path = save(np.arange(60_000 * 32, dtype="<f4").reshape(-1, 32))
    with path.open("rb") as file:
        os.fsync(file.fileno())  # an unbuffered read of dirty pages waits for them, in a thread of io_uring's
    return path


def test_what_the_ring_gives_up_is_read_all_the_same(save, alone):
    """Of a file that is dirty it wants a thread for every read, tries for a while, and cancels the read."""
    path = save(np.arange(20_000 * 32, dtype="<f4").reshape(-1, 32))
    code = """
            with open(sys.argv[1], "r+b") as file:
                data = file.read()
                file.seek(0)
                file.write(data)
            a = lowtide.open(sys.argv[1], access="direct", budget="16MiB")
            assert (a[::7] == np.load(sys.argv[1])[::7]).all()
            print("read")
    """
    assert alone(code, path) == "read"


def test_every_order_by_every_way(rows, alone):
    code = """
            path = sys.argv[1]
            whole = np.load(path)
            for access in ("map", "remap", "advise", "read", "direct", "auto"):
                a = lowtide.open(path, access=access, budget="16MiB")
                for it in (a.chunks(1000), a.shuffled(1000, seed=1), a.shuffled(1000, seed=1, blocks=64)):
                    found = np.concatenate(list(it))
                    assert (found[np.argsort(found[:, 0])] == whole).all()
                    assert len(list(it)) == 60, "and the next epoch"
                assert (a[::7] == whole[::7]).all()
                assert np.allclose(a.mean(axis=0), whole.mean(axis=0, dtype="f8"))
                print(access, end=" " if access != "auto" else "")
    """
    assert alone(code, rows) == "map remap advise read direct auto"


def test_what_is_sorted_on_a_disk(rows, alone, tmp_path):
    code = """
            a = lowtide.open(sys.argv[1], budget="2MiB")
            plain, it = a.shuffled(1000, seed=1), a.shuffled(1000, seed=1, scratch=sys.argv[2])
            for epoch in range(3):
                for x, y in zip(plain, it, strict=True):
                    assert (x == y).all()
            lowtide.shuffle(sys.argv[1], sys.argv[2] + "/out.npy", seed=1)
            assert (np.load(sys.argv[2] + "/out.npy") == np.concatenate(list(a.shuffled(1000, seed=1)))).all()
            print("same")
    """
    assert alone(code, rows, tmp_path) == "same"


def test_many_files_and_tokens(alone, tmp_path):
    for i in range(200):
        np.save(tmp_path / f"{i:03}.npy", np.full((10, 4), i))
        np.arange(i, i + 1000, dtype="<u2").tofile(tmp_path / f"{i:03}.bin")
    code = """
            a = lowtide.open(sys.argv[1] + "/*.npy")
            assert (a[:, 0] == np.repeat(np.arange(200), 10)).all()
            t = lowtide.tokens(sys.argv[1] + "/*.bin")
            loader = t.loader(4, 64, seed=1)
            batches = list(loader)
            assert len(batches) == len(loader) > 700
            assert all((x[:, 1:] == y[:, :-1]).all() for x, y in batches)
            assert all(x.shape == (4, 64) for x, y in t.loader(4, 64, order="sequential"))
            print("all")
    """
    assert alone(code, tmp_path) == "all"


def test_writers_say_that_they_need_one(rows, alone, tmp_path):
    """Those that cannot do without are told so, and leave nothing behind."""
    np.save(tmp_path / "f.npy", np.asfortranarray(np.load(rows)))
    (tmp_path / "text.txt").write_text("some words\n" * 1000)
    before = sorted(os.listdir(tmp_path))
    code = """
            folder = sys.argv[1]
            for write in (
                lambda: lowtide.convert(folder + "/f.npy", folder + "/c.npy", order="C"),
                lambda: lowtide.prepare(folder + "/text.txt", folder + "/tokens", tokenizer="bytes"),
                lambda: lowtide.watch().__enter__(),
            ):
                try:
                    write()
                except BlockingIOError as error:
                    assert "ulimit -u" in str(error), error
                    print(str(error).partition(":")[0])
            with lowtide.create(folder + "/new.npy", "<f4", (None, 32)) as w:
                w.extend(lowtide.open(folder + "/f.npy").chunks(500))
    """
    said = alone(code, tmp_path).splitlines()
    assert said == [
        "[Errno 11] cannot start a thread to write from",
        "[Errno 11] cannot start a thread",
        "[Errno 11] cannot start a thread to watch from",
    ]
    assert sorted({*os.listdir(tmp_path)} - {"tokens"}) == sorted([*before, "new.npy"])
    assert (np.load(tmp_path / "new.npy") == np.load(rows)).all()
    assert lowtide.open(tmp_path / "new.npy").shape == (60_000, 32)
