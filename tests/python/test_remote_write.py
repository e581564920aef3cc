"""Writing to an object store: a server on loopback, with np.save's bytes as the oracle."""

import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from range_server import RangeServer

import lowtide
from lowtide._lowtide import _Preparing, _Shuffling

ROWS = np.random.default_rng(0).random((50_000, 64), dtype=np.float32)  # 12 MiB: two parts


@pytest.fixture
def server(tmp_path):
    (tmp_path / "bucket").mkdir()
    server = RangeServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def bucket(server):
    return server.root / "bucket"


def saved(array):
    """What np.save writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("rows", [0, 1, 100, 50_000])
@pytest.mark.parametrize("known", [False, True])
def test_an_array_is_what_np_save_writes(server, bucket, rows, known):
    shape = (rows if known else None, 64)
    with lowtide.create(
        "s3://bucket/a/rows.npy", "float32", shape, budget="32MiB", storage_options=server.s3
    ) as w:
        assert w.path == "s3://bucket/a/rows.npy"
        w.extend(ROWS[i : min(i + 7001, rows)] for i in range(0, rows, 7001))
        assert not (bucket / "a/rows.npy").exists()
    assert (bucket / "a/rows.npy").read_bytes() == saved(ROWS[:rows])
    assert server.uploads == {}
    a = lowtide.open("s3://bucket/a/rows.npy", storage_options=server.s3)
    np.testing.assert_array_equal(a[:], ROWS[:rows])


def test_many_parts_bare_elements_and_fortran_order(server, bucket):
    rows = np.arange(5_000_000).reshape(-1, 50)  # 38 MiB
    with lowtide.create(
        "s3://bucket/bare.bin", "int64", (None, 50), budget="64MiB", storage_options=server.s3
    ) as w:
        w.append(rows)
    assert (bucket / "bare.bin").read_bytes() == rows.tobytes()
    with lowtide.create(
        "s3://bucket/f.npy", "int64", (50, None), order="F", budget="64MiB", storage_options=server.s3
    ) as w:
        w.append(rows.T)
    assert (bucket / "f.npy").read_bytes() == saved(rows.T)


def test_rows_come_in_order(server, bucket):
    with lowtide.create(
        "s3://bucket/r.npy", "float32", (100, 64), budget="32MiB", storage_options=server.s3
    ) as w:
        w.write(0, ROWS[:50])
        with pytest.raises(NotImplementedError, match="row 50 comes next, not row 60"):
            w.write(60, ROWS[60:100])
        with pytest.raises(NotImplementedError, match="row 50 comes next, not row 0"):
            w[0:10] = 0
        w[50:100] = ROWS[50:100]
    assert (bucket / "r.npy").read_bytes() == saved(ROWS[:100])
    with (
        pytest.raises(ValueError, match="50 of 100 rows were appended"),
        lowtide.create("s3://bucket/s.npy", "float32", (100, 64), storage_options=server.s3) as w,
    ):
        w.append(ROWS[:50])
    assert not (bucket / "s.npy").exists()


def test_what_is_there_is_kept_or_replaced(server, bucket):
    (bucket / "r.npy").write_bytes(b"precious")
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        lowtide.create("s3://bucket/r.npy", "float32", (None, 64), storage_options=server.s3)
    for rows in (10, 50_000):
        with lowtide.create(
            "s3://bucket/r.npy",
            "float32",
            (None, 64),
            budget="32MiB",
            overwrite=True,
            storage_options=server.s3,
        ) as w:
            w.append(ROWS[:rows])
        assert (bucket / "r.npy").read_bytes() == saved(ROWS[:rows])


@pytest.mark.parametrize("rows", [10, 50_000])
def test_what_appears_meanwhile_is_left_alone(server, bucket, rows):
    w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3)
    w.append(ROWS[:rows])
    (bucket / "r.npy").write_bytes(b"theirs")
    with pytest.raises(FileExistsError, match="appeared meanwhile"):
        w.close()
    w.discard()
    assert (bucket / "r.npy").read_bytes() == b"theirs"
    assert server.uploads == {}


@pytest.mark.parametrize("rows", [10, 50_000])
def test_the_condition_is_the_servers(server, bucket, rows):
    """What appears between our last look and the end is seen by the server alone."""

    def appears(method, key, query):
        if (method == "POST" and "uploadId" in query) or (method == "PUT" and not query):
            (bucket / "r.npy").write_bytes(b"theirs")

    server.fault = appears
    w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3)
    w.append(ROWS[:rows])
    with pytest.raises(FileExistsError, match="appeared meanwhile"):
        w.close()
    w.discard()
    assert (bucket / "r.npy").read_bytes() == b"theirs"


def test_an_exception_leaves_nothing(server, bucket):
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        lowtide.create(
            "s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3
        ) as w,
    ):
        w.append(ROWS)
        w.flush()
        assert len(server.uploads) == 1
        1 / 0  # noqa: B018
    assert server.uploads == {}
    w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3)
    w.append(ROWS)
    with pytest.warns(ResourceWarning):
        del w
    assert server.uploads == {}
    assert os.listdir(bucket) == []


def test_a_server_that_fails_is_asked_again(server, bucket):
    failed = []

    def fault(method, key, query):
        what = method, *sorted(query)
        if method in ("PUT", "POST") and what not in failed:
            failed.append(what)
            return 503
        return None

    server.fault = fault
    with lowtide.create(
        "s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3
    ) as w:
        w.append(ROWS)
    assert len(failed) == 3  # the beginning, a part, the end
    assert (bucket / "r.npy").read_bytes() == saved(ROWS)


def test_a_lost_answer_to_the_end(server, bucket):
    """The object is there, and the server said 500: it is looked at, and is ours."""
    server.lost = [True]
    with lowtide.create(
        "s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3
    ) as w:
        w.append(ROWS)
    assert (bucket / "r.npy").read_bytes() == saved(ROWS)


@pytest.mark.heavy  # it waits for ten tries
def test_a_server_that_goes_on_failing(server, bucket):
    server.fault = lambda method, key, query: 500 if "partNumber" in query else None
    options = {**server.s3, "timeout": "1s"}
    began = time.monotonic()
    with (  # noqa: PT012
        pytest.raises(OSError, match="cannot write the object: the server answers 500"),
        lowtide.create(
            "s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=options
        ) as w,
    ):
        for _ in range(20):
            w.append(ROWS)
    assert time.monotonic() - began < 60
    assert server.uploads == {}
    assert os.listdir(bucket) == []


def test_bad_calls(server):
    for url, error, says in [
        ("s3://bucket", ValueError, "names no object"),
        ("s3://bucket/folder/", ValueError, "names no object"),
        (server.url + "/bucket/r.npy", NotImplementedError, "not written to"),
    ]:
        options = None if url.startswith("http") else server.s3
        with pytest.raises(error, match=says):
            lowtide.create(url, "float32", (None, 64), storage_options=options)
    with pytest.raises(MemoryError, match="writing an object"):
        lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="8MiB", storage_options=server.s3)
    with pytest.raises(MemoryError, match="writing an object"):
        lowtide.create("s3://bucket/r.npy", "uint8", (5 << 40,), budget="256MiB", storage_options=server.s3)
    with pytest.raises(NotImplementedError, match="an object cannot grow"):
        lowtide.append("s3://bucket/r.npy")


def test_what_ray_makes_goes_into_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text("a story")
    np.save("rows.npy", ROWS[:10])
    for begin, source in ((_Preparing, "story.txt"), (_Shuffling, "rows.npy")):
        with pytest.raises(NotImplementedError, match=r"s3://bucket/out.*a folder that all machines see"):
            begin(source, "s3://bucket/out")
    assert sorted(os.listdir(tmp_path)) == ["rows.npy", "story.txt"]


def test_ctrl_c_while_the_server_hangs(server):
    """A wait for a part that nobody takes ends within a tenth of a second, and says goodbye."""
    hangs = threading.Event()
    server.fault = lambda method, key, query: hangs.wait(30) and None if "partNumber" in query else None
    program = textwrap.dedent(f"""
        import numpy as np, signal, time, lowtide
        rows = np.zeros((1 << 16, 64), "float32")
        w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB",
                           storage_options={server.s3!r})
        print("ready", flush=True)
        try:
            while True:
                w.append(rows)
        except KeyboardInterrupt:
            print(time.time(), flush=True)
        w.discard()
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(1.5)
        sent = time.time()
        child.send_signal(signal.SIGINT)
        assert float(child.stdout.readline()) - sent < 0.3  # a busy machine
        assert child.wait(20) == 0
    hangs.set()
    assert server.uploads == {}


def test_a_killed_writer_leaves_no_object(server, bucket):
    program = textwrap.dedent(f"""
        import numpy as np, lowtide
        rows = np.zeros((1 << 16, 64), "float32")
        w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB",
                           storage_options={server.s3!r})
        for _ in range(3):
            w.append(rows)
        w.flush()
        print("ready", flush=True)
        input()
    """)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as child:
        assert child.stdout.readline() == "ready\n"
        child.kill()
    assert os.listdir(bucket) == []
    assert len(server.uploads) == 1  # the bucket's own rule takes it away


def test_a_forked_child_does_not_touch_it(server, bucket):
    w = lowtide.create("s3://bucket/r.npy", "float32", (None, 64), budget="32MiB", storage_options=server.s3)
    w.append(ROWS)
    child = os.fork()
    if child == 0:
        try:
            w.append(ROWS[:10])
        except ValueError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        del w
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    w.append(ROWS[:10])
    w.close()
    assert (bucket / "r.npy").read_bytes() == saved(np.concatenate([ROWS, ROWS[:10]]))


def test_convert(server, bucket, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    made = lowtide.convert(
        tmp_path / "rows.npy", "s3://bucket/wide.npy", dtype=">f8", storage_options=server.s3
    )
    assert made["path"] == "s3://bucket/wide.npy"
    assert (bucket / "wide.npy").read_bytes() == saved(ROWS.astype(">f8"))
    # And from one object to another.
    lowtide.convert("s3://bucket/wide.npy", "s3://bucket/raw.bin", storage_options=server.s3)
    assert (bucket / "raw.bin").read_bytes() == ROWS.astype(">f8").tobytes()
    with pytest.raises(NotImplementedError, match="convert to a file first"):
        lowtide.convert(tmp_path / "rows.npy", "s3://bucket/f.npy", order="F", storage_options=server.s3)
    with pytest.raises(ValueError, match="a value that int8 can hold"):
        lowtide.convert(tmp_path / "rows.npy", "s3://bucket/i.npy", dtype="int8", storage_options=server.s3)
    assert sorted(os.listdir(bucket)) == ["raw.bin", "wide.npy"]
    assert server.uploads == {}


def test_shuffle(server, bucket, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    np.save(tmp_path / "labels.npy", np.arange(len(ROWS)))
    work = tmp_path / "work"
    how = {"seed": 3, "budget": "64MiB", "storage_options": server.s3, "work": work}
    steps = []
    made = lowtide.shuffle(
        tmp_path / "rows.npy", "s3://bucket/s.npy", progress=lambda at: steps.append(at["step"]), **how
    )
    assert made["files"] == ["s3://bucket/s.npy"]
    assert steps[-1] == "sending"
    expected = next(lowtide.open(tmp_path / "rows.npy").shuffled(len(ROWS), seed=3))
    assert (bucket / "s.npy").read_bytes() == saved(expected)
    assert list(work.iterdir()) == []
    with pytest.raises(FileExistsError):
        lowtide.shuffle(tmp_path / "rows.npy", "s3://bucket/s.npy", **how)
    made = lowtide.shuffle([tmp_path / "rows.npy", tmp_path / "labels.npy"], "s3://bucket/both/", **how)
    assert made["files"] == ["s3://bucket/both/rows.npy", "s3://bucket/both/labels.npy"]
    assert (bucket / "both/rows.npy").read_bytes() == saved(expected)
    labels = np.load(bucket / "both/labels.npy")
    np.testing.assert_array_equal(ROWS[labels], expected)


@pytest.mark.parametrize("output", ["s3://bucket/out/", "here"])
def test_shuffle_from_an_object_store(server, bucket, tmp_path, output):
    np.save(bucket / "rows.npy", ROWS)
    np.save(bucket / "labels.npy", np.arange(len(ROWS)))
    np.save(tmp_path / "rows.npy", ROWS)
    expected = next(lowtide.open(tmp_path / "rows.npy").shuffled(len(ROWS), seed=3))
    made_in = bucket / "out" if "://" in output else tmp_path / output
    output = output if "://" in output else made_in
    how = {"seed": 3, "budget": "64MiB", "storage_options": server.s3, "work": tmp_path / "work"}
    lowtide.shuffle(["s3://bucket/rows.npy", "s3://bucket/labels.npy"], output, **how)
    assert (made_in / "rows.npy").read_bytes() == saved(expected)
    np.testing.assert_array_equal(ROWS[np.load(made_in / "labels.npy")], expected)


def test_an_object_is_not_shuffled_onto_itself(server, bucket, tmp_path):
    """Killed after it was replaced and run again, it would be shuffled twice."""
    np.save(bucket / "rows.npy", ROWS)
    how = {"overwrite": True, "budget": "64MiB", "storage_options": server.s3, "work": tmp_path / "work"}
    with pytest.raises(FileExistsError, match="another name than what it is made of"):
        lowtide.shuffle("s3://bucket/rows.npy", "s3://bucket/rows.npy", **how)
    assert (bucket / "rows.npy").read_bytes() == saved(ROWS)
    assert not (tmp_path / "work").exists()


def test_a_shuffle_begins_anew_where_an_object_was_replaced(server, bucket, tmp_path):
    np.save(bucket / "rows.npy", ROWS)
    seen = []

    def stop(at):
        if at["step"] == "rows" and at["written"] < at["total"]:
            raise RuntimeError("far enough")
        seen.append(at["before"])

    def run(progress):
        url, out = "s3://bucket/rows.npy", tmp_path / "out.npy"
        return lowtide.shuffle(url, out, seed=3, budget="32MiB", storage_options=server.s3, progress=progress)

    def order():
        np.save(tmp_path / "rows.npy", np.load(bucket / "rows.npy"))
        return next(lowtide.open(tmp_path / "rows.npy").shuffled(len(ROWS), seed=3))

    with pytest.raises(RuntimeError, match="far enough"):
        run(stop)
    changed = ROWS.copy()
    changed[1000:2000] += 1  # in the middle: the same length, the same beginning and end
    np.save(bucket / "rows.npy", changed)
    made = run(None)
    assert made["written_before"] == 0
    assert (tmp_path / "out.npy").read_bytes() == saved(order())


def test_a_shuffle_goes_on_and_sends_nothing_twice(server, bucket, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    np.save(tmp_path / "labels.npy", np.arange(len(ROWS)))
    how = {"seed": 3, "budget": "64MiB", "work": tmp_path / "work"}
    both = [tmp_path / "rows.npy", tmp_path / "labels.npy"]
    options = {**server.s3, "timeout": "1s"}
    server.fault = lambda method, key, query: 500 if "labels" in key and method == "PUT" else None
    with pytest.raises(OSError, match="500"):
        lowtide.shuffle(both, "s3://bucket/both/", storage_options=options, **how)
    assert (bucket / "both/rows.npy").exists()
    server.fault = None
    server.asked()
    steps = []
    lowtide.shuffle(
        both,
        "s3://bucket/both/",
        storage_options=server.s3,
        progress=lambda at: steps.append(at["step"]),
        **how,
    )
    assert set(steps) == {"sending"}
    sent = {key for method, key, _ in server.asked() if method in ("PUT", "POST")}
    assert sent == {"bucket/both/labels.npy"}
    np.testing.assert_array_equal(
        ROWS[np.load(bucket / "both/labels.npy")], np.load(bucket / "both/rows.npy")
    )
    assert list((tmp_path / "work").iterdir()) == []


def test_prepare(server, bucket, tmp_path):
    (tmp_path / "story.txt").write_text("".join(f"line {n} of a story\n" for n in range(20_000)))
    how = {"tokenizer": "bytes", "split_lines": True, "shard_tokens": 100_000}
    there = {**how, "storage_options": server.s3, "work": tmp_path / "work"}
    made = lowtide.prepare(tmp_path / "story.txt", "s3://bucket/data/", **there)
    local = lowtide.prepare(tmp_path / "story.txt", tmp_path / "data", **how)
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(names) > 3
    assert sorted(os.listdir(bucket / "data")) == names
    for name in names:
        assert (bucket / "data" / name).read_bytes() == (tmp_path / "data" / name).read_bytes()
    assert made.path == "s3://bucket/data/"
    assert made.tokens == local.tokens
    assert pickle.loads(pickle.dumps(made)).tokens == local.tokens
    sent = [key for method, key, _ in server.asked() if method in ("PUT", "POST")]
    assert sent[-1] == "bucket/data/lowtide.json"
    t = lowtide.tokens("s3://bucket/data/", storage_options=server.s3)
    np.testing.assert_array_equal(t[:], lowtide.tokens(tmp_path / "data")[:])
    # Once it is done, nothing is done; and nothing of another kind.
    again = lowtide.prepare(tmp_path / "story.txt", "s3://bucket/data/", **there)
    assert again.tokens == local.tokens
    assert not [key for method, key, _ in server.asked() if method in ("PUT", "POST")]
    with pytest.raises(ValueError, match=r"^s3://bucket/data/: the folder holds .* made in another way"):
        lowtide.prepare(tmp_path / "story.txt", "s3://bucket/data/", **{**there, "shard_tokens": 50_000})
    (bucket / "other").mkdir()
    (bucket / "other/precious").write_text("x")
    with pytest.raises(ValueError, match="something else in this folder"):
        lowtide.prepare(tmp_path / "story.txt", "s3://bucket/other/", **there)
    assert list((tmp_path / "work").iterdir()) == []


def test_prepare_goes_on_after_a_server_that_failed(server, bucket, tmp_path):
    (tmp_path / "story.txt").write_text("".join(f"line {n} of a story\n" for n in range(20_000)))
    how = {"tokenizer": "bytes", "split_lines": True, "shard_tokens": 100_000, "work": tmp_path / "work"}
    server.fault = lambda method, key, query: 500 if "00002" in key and method == "PUT" else None
    options = {**server.s3, "timeout": "1s"}
    with pytest.raises(OSError, match="500"):
        lowtide.prepare(tmp_path / "story.txt", "s3://bucket/data/", storage_options=options, **how)
    assert "lowtide.json" not in os.listdir(bucket / "data")
    server.fault = None
    server.asked()
    made = lowtide.prepare(tmp_path / "story.txt", "s3://bucket/data/", storage_options=server.s3, **how)
    sent = [key for method, key, _ in server.asked() if method in ("PUT", "POST")]
    assert "bucket/data/train-00000.bin" not in sent
    t = lowtide.tokens("s3://bucket/data/", storage_options=server.s3)
    assert len(t) == made.tokens


def test_tokens_into_another_format_and_shuffled(server, bucket, tmp_path):
    tokens = np.random.default_rng(1).integers(0, 50_000, 300_000).astype(np.uint16)
    tokens[99::100] = 50256
    tokens.tofile(tmp_path / "train.bin")
    there = {"storage_options": server.s3, "work": tmp_path / "work"}
    how = {"format": "llmc", "shard_tokens": 100_000, "end_of_text": 50256}
    made = lowtide.convert(tmp_path / "train.bin", "s3://bucket/llmc/", **how, **there)
    assert made["path"] == "s3://bucket/llmc/"
    lowtide.convert(tmp_path / "train.bin", tmp_path / "llmc", **how)
    for path in (tmp_path / "llmc").iterdir():
        assert (bucket / "llmc" / path.name).read_bytes() == path.read_bytes()
    with pytest.raises(FileExistsError):
        lowtide.convert(tmp_path / "train.bin", "s3://bucket/llmc/", **how, **there)
    made = lowtide.shuffle_documents(
        tmp_path / "train.bin", "s3://bucket/mixed/", seed=1, end_of_text=50256, **there
    )
    lowtide.shuffle_documents(tmp_path / "train.bin", tmp_path / "mixed", seed=1, end_of_text=50256)
    assert made["documents"] == 3000
    for path in (tmp_path / "mixed").iterdir():
        assert (bucket / "mixed" / path.name).read_bytes() == path.read_bytes()
    (bucket / "train.bin").write_bytes((tmp_path / "train.bin").read_bytes())
    how = {"seed": 1, "dtype": "uint16", "end_of_text": 50256, "storage_options": server.s3}
    lowtide.shuffle_documents("s3://bucket/train.bin", tmp_path / "from", **how)
    assert (tmp_path / "from/train.bin").read_bytes() == (tmp_path / "mixed/train.bin").read_bytes()


def test_the_command(server, bucket, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    options = [word for key, value in server.s3.items() for word in ("--storage-option", f"{key}={value}")]

    def run(*words):
        command = [sys.executable, "-m", "lowtide", *words, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    said = run("convert", str(tmp_path / "rows.npy"), "s3://bucket/c.npy", "--dtype", "float64")
    assert said.returncode == 0, said.stderr
    assert (bucket / "c.npy").read_bytes() == saved(ROWS.astype("float64"))
    said = run("convert", str(tmp_path / "rows.npy"), "s3://bucket/c.npy")
    assert said.returncode == 1
    assert "--overwrite replaces it" in said.stderr
    work = ["--work", str(tmp_path / "work")]
    said = run("shuffle", str(tmp_path / "rows.npy"), "s3://bucket/s.npy", "--seed", "3", *work)
    assert said.returncode == 0, said.stderr
    expected = next(lowtide.open(tmp_path / "rows.npy").shuffled(len(ROWS), seed=3))
    assert (bucket / "s.npy").read_bytes() == saved(expected)
    said = run("shuffle", "s3://bucket/c.npy", str(tmp_path / "from.npy"), "--seed", "3")
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "from.npy").read_bytes() == saved(expected.astype("float64"))
    (tmp_path / "story.txt").write_text("a story\n" * 100)
    said = run("prepare", str(tmp_path / "story.txt"), "-o", "s3://bucket/data/", "-t", "bytes", *work)
    assert said.returncode == 0, said.stderr
    assert sorted(os.listdir(bucket / "data")) == ["lowtide.json", "train.bin"]
