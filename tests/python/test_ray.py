"""``lowtide.ray`` on a real Ray of two workers: rows are NumPy's, and no worker holds more than its block."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_cache import cached, forget
from token_streams import llmc

import lowtide

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytest.importorskip("ray.data", reason="Ray's datasets are not installed")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("default"),  # Ray's are not ours
]

TRAIN = Path(__file__).parents[2] / "examples" / "ray" / "train.py"
MIB = 1 << 20
ROWS = 20_000
WANT = np.arange(ROWS * 32, dtype="float32").reshape(ROWS, 32)


@pytest.fixture(scope="module")
def cluster():
    """Two workers, which hand on what they read in its order."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=512 * MIB,
        logging_level="error",
    )
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture
def read(cluster):
    """The module, once there is a Ray."""
    import lowtide.ray

    return lowtide.ray


@pytest.fixture
def source(monkeypatch):
    """Makes a dataset's tasks without a Ray: what ``lowtide.ray`` hands to it."""
    import lowtide.ray

    monkeypatch.setattr("ray.data.read_datasource", lambda source, **settings: source)
    return lowtide.ray


def all_rows(dataset, column="data"):
    return np.concatenate([batch[column] for batch in dataset.iter_batches(batch_size=None)])


def in_fortran_order(folder):
    np.save(folder / "rows.npy", np.asfortranarray(WANT))
    return {"path": folder / "rows.npy"}


def in_several_files(folder):
    (folder / "parts").mkdir()
    for number, (start, stop) in enumerate([(0, 7), (7, 12_345), (12_345, ROWS)]):
        np.save(folder / "parts" / f"{number}.npy", WANT[start:stop])
    return {"path": folder / "parts"}


def without_a_header(folder):
    (folder / "rows.bin").write_bytes(b"head" + WANT.tobytes())
    return {"path": folder / "rows.bin", "dtype": "float32", "shape": (-1, 32), "offset": 4}


def of_another_byte_order(folder, **settings):
    np.save(folder / "rows.npy", WANT.astype(">f4"))
    return {"path": folder / "rows.npy", **settings}


def as_part(folder):
    np.save(folder / "rows.npy", np.vstack([WANT[:5], WANT, WANT[:9]]))
    return {"path": lowtide.open(folder / "rows.npy", budget="1MiB").rows(5, -9)}


@pytest.mark.parametrize(
    "make",
    [
        in_fortran_order,
        in_several_files,
        without_a_header,
        of_another_byte_order,
        functools.partial(of_another_byte_order, astype="float64"),
        as_part,
    ],
    ids=["fortran", "files", "raw", "swapped", "astype", "part"],
)
def test_the_rows_are_numpys(read, tmp_path, same, make):
    settings = make(tmp_path)
    budget = {} if isinstance(settings["path"], lowtide.Array) else {"budget": "1MiB"}
    rows = read.read_array(**settings, **budget)
    assert rows.count() == ROWS
    said = rows.size_bytes()
    kept = rows.materialize()
    assert kept.num_blocks() >= 3  # 2.5 MiB or more, in blocks of 1 MiB at most
    assert kept.size_bytes() == said
    assert kept.schema() == rows.schema()
    same(all_rows(kept), WANT.astype(settings.get("astype", "f4")))


def test_the_rows_of_a_split_come_as_they_were_dealt(read, tmp_path, same):
    np.save(tmp_path / "rows.npy", WANT)
    _, val = lowtide.open(tmp_path / "rows.npy").split(0.9, seed=3)
    same(all_rows(read.read_array(val)), val[:])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "int64"])
@pytest.mark.parametrize("shape", [(1003,), (1003, 3), (17, 2, 5)])
def test_every_block_is_what_was_said_of_it(source, save, same, dtype, shape):
    """Read in this process: sizes and types are Ray's own count, and all of it can be pickled."""
    want = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
    rows = source.read_array(save(want), column="x", override_num_blocks=7)
    got = []
    for task in pickle.loads(pickle.dumps(rows)).get_read_tasks(7):
        assert len(pickle.dumps(task)) < 4096
        (block,) = pickle.loads(pickle.dumps(task))()
        block = ray.data.block.BlockAccessor.for_block(block)
        assert block.num_rows() == task.metadata.num_rows
        assert block.size_bytes() == task.metadata.size_bytes
        assert block.schema() == task.schema
        got.append(block.to_numpy("x"))
    same(np.concatenate(got), want)
    assert len(got) == 7


def test_no_block_is_larger_than_said(source, tmp_path):
    """Of a file of 64 GiB, which is not read: 128 MiB, Ray's own target, or the budget."""
    path = tmp_path / "rows.bin"
    with open(path, "wb") as file:
        file.truncate(64 << 30)

    def largest(tasks=1, limit=None, context=None, **settings):
        rows = source.read_array(path, dtype="uint8", shape=(-1, 4096), **settings)
        tasks = rows.get_read_tasks(tasks, limit, context)
        assert tasks[0].metadata.input_files == (str(path),)
        assert sum(task.metadata.num_rows for task in tasks) <= 16 << 20
        return max(task.metadata.size_bytes for task in tasks), len(tasks)

    most, tasks = largest()
    assert 127 * MIB < most <= 128 * MIB
    assert 512 < tasks < 520
    assert largest(budget="16MiB")[0] <= 16 * MIB
    context = ray.data.DataContext.get_current().copy()
    context.target_max_block_size = MIB
    assert largest(context=context)[0] <= MIB
    assert largest(tasks=2000)[1] == 2000
    assert largest(tasks=2, override_num_blocks=2)[1] == 2
    assert largest(limit=3)[0] == 3 * (4096 + 8)
    blocks = source.read_array(path, dtype="uint8", shape=(-1, 4096), override_num_blocks=2)
    first = next(iter(blocks.get_read_tasks(2)[1]()))
    assert first.nbytes <= 32 * MIB  # a quarter


def test_an_array_without_rows_has_a_type(read, save):
    rows = read.read_array(save(WANT[:0]))
    assert rows.count() == 0
    assert rows.schema().names == ["data"]
    assert rows.take_all() == []


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_limit(read, save, same, order):
    rows = read.read_array(save(np.asarray(WANT, order=order)), budget="1MiB").limit(10)
    assert rows.count() == 10
    same(all_rows(rows), WANT[:10])


def test_fortran_order_has_blocks_that_are_worth_a_pass(source, save):
    """Rows of 40,000 bytes, in 200 tasks: 5 rows each would be runs of 20 bytes."""
    rows = source.read_array(save(np.asfortranarray(np.zeros((1000, 10_000), "f4"))), budget="8MiB")
    tasks = rows.get_read_tasks(200)
    assert min(task.metadata.num_rows for task in tasks) > 50
    (block,) = tasks[-1]()
    assert block.num_rows == tasks[-1].metadata.num_rows


@pytest.mark.parametrize("settings", [{}, {"dtype": None}, {"dtype": "int32", "budget": "1MiB"}])
def test_windows_are_those_of_windows(read, tmp_path, same, settings):
    paths = [tmp_path / f"{number}.bin" for number in range(3)]
    for number, path in enumerate(paths):
        llmc(path, np.arange(number * 70_000, (number + 1) * 70_000 - number, dtype="u4"))
    tokens = lowtide.tokens(paths)
    windows = read.read_tokens(paths, 96, **settings)
    starts = np.arange((len(tokens) - 1) // 96) * 96
    assert windows.count() == len(starts)
    assert len(tokens) - starts[-1] - 97 < 96
    x, y = tokens.windows(starts, 96)
    got = all_rows(windows, "tokens")
    kind = settings.get("dtype", "int64") or tokens.dtype
    same(got[:, :-1], x.astype(kind))
    same(got[:, 1:], y.astype(kind))
    same(all_rows(read.read_tokens(tokens, 96), "tokens")[:, 1:], y)
    assert windows.materialize().size_bytes() == windows.size_bytes()


def workers():
    """The processes of Ray's workers: their RssAnon, by the kernel."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ray::"):
                status = (entry / "status").read_text()
                found[entry.name] = int(status.split("RssAnon:")[1].split()[0]) << 10
        except (OSError, IndexError):
            continue  # it has ended
    return found


def grown(run):
    """How much the largest worker had at its peak, above what the largest had before."""
    before, peak, over = max(workers().values()), {}, threading.Event()

    def look():
        while not over.is_set():
            for pid, size in workers().items():
                peak[pid] = max(peak.get(pid, 0), size)
            time.sleep(0.002)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        run()
    finally:
        over.set()
        thread.join()
    return max(peak.values()) - before


def passed(dataset):
    """Reads all of it, and keeps nothing."""
    assert sum(len(batch["data"]) for batch in dataset.iter_batches(batch_size=None)) == 256 * MIB // 1024


@pytest.mark.parametrize("tasks", [18, 2])
def test_no_worker_holds_more_than_its_block(read, tmp_path, tasks):
    """A file of 256 MiB and a budget of 16 MiB: one block a task, or many, one after the other."""
    path = tmp_path / "rows.npy"
    rows = np.lib.format.open_memmap(path, mode="w+", dtype="u1", shape=(256 * MIB // 1024, 1024))
    rows[:] = 7
    del rows
    small = tmp_path / "small.npy"
    np.save(small, np.zeros((100, 1024), "u1"))
    read.read_array(small, override_num_blocks=8).materialize()  # both workers have imported everything
    context = ray.data.DataContext.get_current()
    target, context.target_max_block_size = context.target_max_block_size, 16 * MIB
    try:
        # With positioned reads, which are those that leave pages behind.
        settings = {"access": "read", "cache": "drop", "budget": "16MiB"}
        rows = read.read_array(path, **settings, override_num_blocks=tasks)
    finally:
        context.target_max_block_size = target
    forget(path)
    most, over = [0], threading.Event()

    def look():
        while not over.wait(0.002):
            most[0] = max(most[0], cached(path))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        held = grown(lambda: passed(rows))
    finally:
        over.set()
        thread.join()
    print(f"held {held >> 20} MiB, page cache {most[0] >> 20} MiB")
    # The block of 14 to 20 MiB, what is read ahead meanwhile, and what Ray's serialization takes.
    assert held < 64 * MIB
    assert most[0] <= 2 * 16 * MIB  # two tasks
    if tasks == 2:
        control = grown(lambda: passed(ray.data.read_numpy(str(path))))
        assert control > 200 * MIB  # what a worker holds is seen, and so is the page cache
        assert cached(path) > 200 * MIB


def test_a_killed_worker_loses_nothing(read, save, tmp_path, same):
    """It kills itself in the midst of its range, once; Ray reads the range again."""
    marker = tmp_path / "killed"

    def kill_once(batch):
        if batch["data"][0, 0] >= WANT[ROWS // 4, 0]:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return batch
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    rows = read.read_array(save(WANT), budget="256KiB", override_num_blocks=2)
    same(all_rows(rows.map_batches(kill_once, batch_size=1000)), WANT)
    assert marker.exists()


def test_a_file_that_is_missing_on_a_node(read, save):
    path = save(WANT)
    rows = read.read_array(path)
    path.rename(path.with_name("elsewhere.npy"))
    with pytest.raises(Exception, match="cannot open the file") as caught:
        rows.materialize()
    assert isinstance(caught.value, FileNotFoundError)
    assert f"'{path}'" in str(caught.value)
    assert f"on node {socket.gethostname()}" in str(caught.value)
    assert "hint: every node opens the file itself" in str(caught.value)


def test_another_file_on_a_node(read, save):
    rows = read.read_array(save(WANT))
    path = save(WANT[::-1])
    with pytest.raises(ValueError, match="as when this was pickled") as caught:
        rows.materialize()
    assert str(path) in str(caught.value)
    assert "on node" in str(caught.value)


def test_what_cannot_be_is_refused_at_the_call(source, save, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        source.read_array(tmp_path / "nowhere.npy")
    with pytest.raises(TypeError, match="Ray has no columns of dtype complex64"):
        source.read_array(save(WANT.astype("complex64")))
    path = save(WANT)
    with pytest.raises(TypeError, match=r"budget, access: <lowtide.Array .* is open already"):
        source.read_array(lowtide.open(path), access="read", budget="1MiB")
    with pytest.raises(MemoryError, match="budget"):
        source.read_array(save(np.zeros((2, 10 * MIB), "u1")), budget="1MiB")
    with pytest.raises(ValueError, match="a single element has no rows"):
        source.read_array(save(np.float32(1)))
    np.arange(100, dtype="<u2").tofile(tmp_path / "few.bin")
    with pytest.raises(ValueError, match="there are only 100 tokens"):
        source.read_tokens(tmp_path / "few.bin", 100)
    with pytest.raises(ValueError, match="tokens are integers, which dtype=float32 is not"):
        source.read_tokens(tmp_path / "few.bin", 10, dtype="float32")
    small = source.read_tokens(tmp_path / "few.bin", 10, dtype="uint8")
    assert len(list(small.get_read_tasks(1)[0]())) == 1
    np.arange(200, 300, dtype="<u2").tofile(tmp_path / "large.bin")
    small = source.read_tokens(tmp_path / "large.bin", 10, dtype="uint8")
    with pytest.raises(ValueError, match="token 256, number 56 of the stream, does not fit in uint8"):
        list(small.get_read_tasks(1)[0]())
    with pytest.raises(ValueError, match="block_size is 0"):
        source.read_tokens(tmp_path / "few.bin", 0)


def test_many_files_are_sent_once(read, tmp_path, same):
    """The names of 1,000 files do not go with each of the tasks."""
    for number in range(1000):
        np.save(tmp_path / f"{number:04}-{'x' * 60}.npy", WANT[number * 20 : number * 20 + 20])
    rows = read.read_array(tmp_path, override_num_blocks=4)
    assert len(rows.input_files()) == 1000
    same(all_rows(rows), WANT)


def test_ray_is_imported_only_when_asked_for():
    code = "import lowtide, sys; assert 'ray' not in sys.modules; import ray; assert ray.init"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_training_goes_on_with_another_number_of_workers(cluster, tmp_path):
    """The example: three steps on two workers, the other three of the epoch on one. Every window once."""
    pytest.importorskip("ray.train.torch", reason="torch is not installed")
    block, windows = 64, 96
    np.arange(block * (windows + 1), dtype="<u2").tofile(tmp_path / "train.bin")
    seen = {}
    for workers, steps in [(2, 3), (1, 6)]:
        folder = tmp_path / f"seen-{workers}"
        folder.mkdir()
        settings = {
            "workers": workers,
            "steps": steps,
            "block-size": block,
            "vocabulary": 8192,
            "name": "run",
        }
        settings |= {"trace": folder, "storage": tmp_path / "runs", "batch-size": 16, "save-every": 2}
        command = [
            sys.executable,
            TRAIN,
            tmp_path / "train.bin",
            *(f"--{k}={v}" for k, v in settings.items()),
        ]
        here = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=200, env=here)
        assert done.returncode == 0, done.stderr[-3000:]
        assert f"'step': {steps}" in done.stdout
        files = list(folder.iterdir())
        assert len(files) == workers
        for file in files:
            for step, start in (map(int, line.split()) for line in file.read_text().splitlines()):
                seen.setdefault(step, []).append(start)
    assert [len(seen[step]) for step in range(6)] == [16] * 6
    starts = sorted(start for step in seen.values() for start in step)
    assert starts == list(range(starts[0], starts[0] + windows * block, block))
