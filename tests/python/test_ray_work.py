"""``lowtide.ray.prepare`` and ``shuffle`` on a real Ray: bytes of one machine, though workers are killed."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from test_ray import workers

import lowtide

ray = pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.filterwarnings("default"),  # Ray's are not ours
]

MIB = 1 << 20
WORDS = ["tide", "low", "the", "sea", "déjà", "shore", "42", "\t", "ebb;", "flow", "Wattenmeer"]


@pytest.fixture(scope="module")
def cluster():
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=256 * MIB,
        logging_level="error",
    )
    yield
    ray.shutdown()


@pytest.fixture
def work(cluster):
    import lowtide.ray

    return lowtide.ray


def text(draw, words):
    return " ".join(draw.choices(WORDS, k=words))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A large file of JSON lines, some of which are none, a packed one, a table, and many small ones."""
    folder, draw = tmp_path_factory.mktemp("corpus"), random.Random(1)
    with open(folder / "large.jsonl", "w") as file:
        for number in range(15_000):
            line = "{" if number % 2_500 == 77 else json.dumps({"text": text(draw, draw.randrange(60))})
            file.write(line + "\n")
    with gzip.open(folder / "packed.jsonl.gz", "wt") as file:
        for _ in range(2_000):
            file.write(json.dumps({"text": text(draw, 40)}) + "\n")
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    texts = [text(draw, draw.randrange(80)) for _ in range(3_000)]
    parquet.write_table(pyarrow.table({"text": texts}), folder / "table.parquet")
    (folder / "small").mkdir()
    for number in range(100):
        (folder / "small" / f"{number}.txt").write_text(text(draw, number))
    return folder


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Killer(threading.Thread):
    """Kills a worker of Ray's that is at a task, every now and then, until it is told to stop."""

    def __init__(self, seconds, most):
        super().__init__()
        self.seconds, self.most, self.killed, self.over = seconds, most, 0, threading.Event()

    def run(self):
        while self.killed < self.most and not self.over.wait(random.uniform(0.5, 1.5) * self.seconds):
            # A worker's title is that of its task, while it has one.
            busy = [
                int(entry.name)
                for entry in Path("/proc").iterdir()
                if entry.name.isdigit() and title(entry).startswith(b"ray::_task") and is_ours(entry)
            ]
            if busy:
                try:
                    os.kill(random.choice(busy), signal.SIGKILL)
                    self.killed += 1
                except ProcessLookupError:
                    pass

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def title(entry):
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def is_ours(entry):
    """Whether a process is a worker of this Ray: another one may run on the machine."""
    session = ray._private.worker._global_node.get_session_dir_path()
    try:
        return session.encode() in (entry / "environ").read_bytes() or any(
            session in os.readlink(file) for file in (entry / "fd").iterdir()
        )
    except OSError:
        return False


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer": "gpt2", "val": 0.05, "shard_tokens": 200_000, "format": "llmc"},
        {"tokenizer": "bytes", "shuffle_documents": 4, "format": "datatrove"},
        {"tokenizer": "chars", "format": "megatron", "val": 0.5},
    ],
    ids=lambda settings: settings["tokenizer"],
)
def test_tokens_are_those_of_one_machine_though_workers_are_killed(work, corpus, tmp_path, settings):
    settings = {**settings, "on_error": "skip", "cache": "keep"}
    one = tmp_path / "one"
    alone = lowtide.prepare(corpus, one, **settings, progress=False)
    assert alone.skipped == 6
    told = []
    for attempt in range(10):  # a quick machine may be done before anybody is killed
        many = tmp_path / f"many-{attempt}"
        with Killer(0.05, 2) as killer:
            made = work.prepare(
                corpus, many, **settings, part_bytes="256KiB", budget="64MiB", progress=told.append
            )
        if killer.killed:
            break
    print(f"{killer.killed} workers were killed")
    assert killer.killed > 0
    assert files(many) == files(one)
    assert (made.documents, made.tokens, made.skipped) == (alone.documents, alone.tokens, alone.skipped)
    assert {"encoding", "joining"} <= {at["step"] for at in told}
    assert lowtide.verify(many)
    # All of it is there: nothing is done again.
    before = time.monotonic()
    assert work.prepare(corpus, many, **settings, part_bytes="256KiB").tokens == made.tokens
    assert time.monotonic() - before < 5


def test_rows_are_those_of_one_machine_though_workers_are_killed(work, tmp_path):
    rows = np.random.default_rng(0).integers(0, 1 << 30, (200_000, 37), dtype="i4")
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "labels.npy", np.arange(len(rows)))
    inputs = [tmp_path / "rows.npy", tmp_path / "labels.npy"]
    lowtide.shuffle(inputs, tmp_path / "one", seed=3, budget="16MiB")
    told = []
    with Killer(0.05, 4) as killer:
        made = work.shuffle(inputs, tmp_path / "many", seed=3, budget="16MiB", progress=told.append)
    print(f"{killer.killed} workers were killed, {len(told)} tasks")
    assert killer.killed > 0
    assert files(tmp_path / "many") == files(tmp_path / "one")  # and no folder beside them
    assert made["rows"] == len(rows)
    steps = [at["step"] for at in told]
    assert {"runs", "rows"} == set(steps)
    assert steps == sorted(steps, key=("runs", "rows").index)
    assert told[-1]["written"] == told[-1]["total"] == 2 * made["bytes"]
    np.testing.assert_array_equal(
        np.load(tmp_path / "many" / "labels.npy"),
        np.concatenate(list(lowtide.open(tmp_path / "labels.npy").shuffled(50_000, seed=3))),
    )


DRIVER = """
import sys, threading, ray, lowtide.ray
ray.init("auto", log_to_driver=False)
corpus, tokens, rows, shuffled = sys.argv[1:]
def prepare():
    settings = {"tokenizer": "gpt2", "on_error": "skip", "cache": "keep", "part_bytes": "256KiB"}
    lowtide.ray.prepare(corpus, tokens, **settings, progress=lambda at: at["tokens"] and begun("tokens"))
def begun(what, seen=set()):
    if what not in seen:
        seen.add(what)
        print(what, flush=True)
threading.Thread(target=prepare).start()
lowtide.ray.shuffle(rows, shuffled, seed=3, budget="8MiB", concurrency=1, progress=lambda at: begun("rows"))
"""


def test_a_killed_driver_is_gone_on_with(work, corpus, tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(2_000_000, dtype="i8").reshape(-1, 4))
    lowtide.prepare(corpus, tmp_path / "one", tokenizer="gpt2", on_error="skip", cache="keep", progress=False)
    lowtide.shuffle(tmp_path / "rows.npy", tmp_path / "one.npy", seed=3)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, corpus, "many", "rows.npy", "many.npy"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address},
    )
    assert {driver.stdout.readline(), driver.stdout.readline()} == {b"rows\n", b"tokens\n"}
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert not (tmp_path / "many" / "lowtide.json").exists()
    assert not (tmp_path / "many.npy").exists()
    again = []
    work.prepare(
        corpus,
        tmp_path / "many",
        tokenizer="gpt2",
        on_error="skip",
        cache="keep",
        part_bytes="256KiB",
        progress=again.append,
    )
    assert again[0]["bytes_read"] > 0  # parts of the first driver's
    assert files(tmp_path / "many") == files(tmp_path / "one")
    made = work.shuffle(tmp_path / "rows.npy", tmp_path / "many.npy", seed=3, budget="8MiB")
    assert (tmp_path / "many.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()
    assert made["rows"] == 500_000
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"rows.npy", "one", "many", "one.npy", "many.npy"}


def most(run):
    """The most that any worker of ours has held meanwhile, by the kernel."""
    peak, ours, over = [0], {}, threading.Event()

    def look():
        while not over.wait(0.005):
            for pid, size in workers().items():
                if pid not in ours:
                    ours[pid] = is_ours(Path("/proc", pid))
                if ours[pid]:
                    peak[0] = max(peak[0], size)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        run()
    finally:
        over.set()
        thread.join()
    return peak[0]


def test_no_worker_holds_more_than_its_budget(work, tmp_path):
    line = json.dumps({"text": text(random.Random(2), 2_000)}) + "\n"
    (tmp_path / "large.jsonl").write_text(line * (32 * MIB // len(line)))
    np.save(tmp_path / "rows.npy", np.full((96 * MIB // 512, 512), 7, "u1"))
    budget = 48 * MIB

    def fresh():
        """What a worker holds before its first task: those that had one go, and others come."""
        import lowtide._ray_tasks  # noqa: F401

        time.sleep(0.2)
        return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) << 10

    task = ray.remote(max_calls=1, num_cpus=1)(fresh)
    before = min(ray.get([task.remote() for _ in range(4)]))
    shuffled = most(lambda: work.shuffle(tmp_path / "rows.npy", tmp_path / "new.npy", budget=budget)) - before
    settings = {"tokenizer": "gpt2", "budget": budget, "part_bytes": "8MiB"}
    prepared = most(lambda: work.prepare(tmp_path / "large.jsonl", tmp_path / "out", **settings)) - before
    print(f"of {budget >> 20} MiB: prepare {prepared >> 20} MiB, shuffle {shuffled >> 20} MiB")
    assert budget // 8 < prepared < budget  # it is seen, and it is within
    assert budget // 8 < shuffled < budget


def test_what_goes_wrong_on_a_node_is_said_with_its_name(work, tmp_path):
    lines = "".join(json.dumps({"text": f"line {n}"}) + "\n" for n in range(3_000))
    (tmp_path / "bad.jsonl").write_text(lines.replace('"line 2000"', "2000"))
    with pytest.raises(ValueError, match=r"on node .*bad.jsonl.*\(line 2001\)"):
        work.prepare(tmp_path / "bad.jsonl", tmp_path / "out", tokenizer="bytes", part_bytes="4KiB")
    with pytest.raises(ValueError, match="it comes to one machine only"):
        work.prepare("-", tmp_path / "stdin", tokenizer="bytes")
    with pytest.raises(MemoryError, match="no node of this Ray has more than"):
        work.prepare(tmp_path / "bad.jsonl", tmp_path / "out", tokenizer="bytes", budget="9TiB")
    np.save(tmp_path / "rows.npy", np.arange(3))
    with pytest.raises(NotImplementedError, match=r"s3://bucket/rows.npy: .*a folder that all machines see"):
        work.shuffle(tmp_path / "rows.npy", "s3://bucket/rows.npy")
    with pytest.raises(ZeroDivisionError):
        work.prepare(
            tmp_path / "bad.jsonl",
            tmp_path / "out2",
            tokenizer="bytes",
            on_error="skip",
            progress=lambda at: 1 / 0,
        )
    made = work.prepare(tmp_path / "bad.jsonl", tmp_path / "out2", tokenizer="bytes", on_error="skip")
    assert (made.documents, made.skipped) == (2_999, 1)
    np.save(tmp_path / "rows.npy", np.arange(1000))
    (tmp_path / "there.npy").touch()
    with pytest.raises(FileExistsError):
        work.shuffle(tmp_path / "rows.npy", tmp_path / "there.npy")
    with pytest.raises(TypeError, match="progress= cannot be called"):
        work.shuffle(tmp_path / "rows.npy", tmp_path / "new.npy", progress=3)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_command(work, corpus, tmp_path):
    address = ray.get_runtime_context().gcs_address
    here = {**os.environ, "RAY_ADDRESS": address}
    command = [sys.executable, "-m", "lowtide", "prepare", str(corpus / "large.jsonl"), "-t", "bytes"]
    command += ["--on-error", "skip", "--json"]
    ours = subprocess.run(
        [*command, "-o", "many", "--on", "ray", "--part-bytes", "256KiB"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=here,
    )
    assert ours.returncode == 0, ours.stderr
    alone = subprocess.run([*command, "-o", "one"], capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(ours.stdout) == json.loads(alone.stdout)
    assert files(tmp_path / "many") == files(tmp_path / "one")
    wrong = subprocess.run(
        [*command, "-o", "other", "--on", "ray", "--val", "7"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=here,
    )
    assert wrong.returncode == 2
    assert "is no share of the documents" in wrong.stderr
    threads = subprocess.run(
        [*command, "-o", "x", "--on", "ray", "--threads", "2"], capture_output=True, text=True
    )
    assert threads.returncode == 2
    assert "cannot be used with" in threads.stderr
