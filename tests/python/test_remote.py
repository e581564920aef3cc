"""Object stores: arrays and tokens behind a server on loopback, with NumPy and local files as oracles."""

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from range_server import RangeServer
from token_streams import llmc

import lowtide

ROWS = np.random.default_rng(0).integers(0, 1 << 30, (5000, 64), dtype=np.int32)


def megatron(path, tokens, lengths):
    """Megatron's pair, written by hand."""
    tokens.tofile(f"{path}.bin")
    lengths, count = np.array(lengths, "<i4"), len(lengths)
    starts = (np.cumsum(lengths) - lengths).astype("<i8") * 2
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
    index = head + lengths.tobytes() + starts.tobytes() + np.arange(count + 1, dtype="<i8").tobytes()
    Path(f"{path}.idx").write_bytes(index)


def datatrove(path, tokens, lengths):
    """datatrove's three files, written by hand."""
    tokens.tofile(path)
    np.cumsum(lengths).astype("<u8").tofile(f"{path}.index")
    Path(f"{path}.metadata").write_text(f"gpt2|2\n{len(tokens)}\n")


@pytest.fixture
def server(tmp_path):
    (tmp_path / "bucket").mkdir()
    server = RangeServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def bucket(server):
    return server.root / "bucket"


def save(path, array):
    path.parent.mkdir(exist_ok=True, parents=True)
    np.save(path, array)


def test_every_index_is_numpys(server, bucket):
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open(f"{server.url}/bucket/rows.npy", budget="16MiB")
    assert (a.shape, a.dtype) == (ROWS.shape, ROWS.dtype)
    assert a.path == f"{server.url}/bucket/rows.npy"
    mask = ROWS[:, 0] % 3 == 0
    for key in [
        5,
        -1,
        slice(5, 9),
        slice(None, None, 7),
        [3, 1, 1],
        mask,
        (slice(5, 9), slice(4)),
        (..., 0),
        ...,
    ]:
        np.testing.assert_array_equal(a[key], ROWS[key])
    np.testing.assert_array_equal(np.concatenate(list(a.chunks(700))), ROWS)
    np.testing.assert_array_equal(a.astype("float64")[::11], ROWS[::11].astype("float64"))
    np.testing.assert_array_equal(a.astype("int16")[7:900], ROWS[7:900].astype("int16"))


def test_other_headers_and_none(server, bucket):
    save(bucket / "fortran.npy", np.asfortranarray(ROWS[:500]))
    ROWS.tofile(bucket / "rows.bin")
    np.testing.assert_array_equal(lowtide.open(f"{server.url}/bucket/fortran.npy")[:], ROWS[:500])
    raw = lowtide.open("s3://bucket/rows.bin", dtype="int32", shape=(-1, 64), storage_options=server.s3)
    np.testing.assert_array_equal(raw[100:200], ROWS[100:200])
    save(bucket / "empty.npy", ROWS[:0])
    assert lowtide.open("s3://bucket/empty.npy", storage_options=server.s3)[:].shape == (0, 64)


def test_the_order_is_that_of_a_local_file(server, bucket):
    save(bucket / "rows.npy", ROWS)
    local = lowtide.open(bucket / "rows.npy", budget="16MiB")
    remote = lowtide.open("s3://bucket/rows.npy", budget="16MiB", storage_options=server.s3)
    for how in [{}, {"blocks": 50}, {"rank": 1, "world_size": 3}, {"start": 1000, "epoch": 2}]:
        ours, theirs = remote.shuffled(333, seed=7, **how), local.shuffled(333, seed=7, **how)
        assert ours.access == "range"
        assert "object store" in ours.why
        assert "requests" in ours.why
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
    state = remote.shuffled(333, seed=7).state_dict()
    assert state["fingerprint"] == local.shuffled(333, seed=7).state_dict()["fingerprint"]


def test_many_small_rows_are_few_requests(server, bucket):
    save(bucket / "rows.npy", np.zeros((400_000, 16), np.int32))  # 24 MiB
    a = lowtide.open("s3://bucket/rows.npy", budget="64MiB", storage_options=server.s3)
    server.asked()
    assert sum(len(chunk) for chunk in a.chunks(1000)) == 400_000
    assert len(server.asked()) <= 24 / 2 + 6  # ranges of 2 MiB; the first chunks come by themselves
    assert sum(len(chunk) for chunk in a.shuffled(1000, blocks="auto")) == 400_000
    assert len(server.asked()) <= 24 + 8  # blocks of 1 MiB
    assert server.most_at_once <= 16


@pytest.fixture
def files(bucket):
    """Token files of all dialects."""
    tokens = np.random.default_rng(1).integers(0, 50_000, 60_000).astype(np.uint16)
    tokens[::100] = 50256
    tokens.tofile(bucket / "nano.bin")
    llmc(bucket / "llmc.bin", tokens)
    save(bucket / "numpy.npy", tokens)
    lengths = [100] * 600
    megatron(bucket / "mega", tokens, lengths)
    datatrove(bucket / "trove.ds", tokens, lengths)
    tokens.tofile(bucket / "olmo.npy")
    return tokens


@pytest.mark.parametrize(
    "name", ["nano.bin", "llmc.bin", "numpy.npy", "mega", "mega.bin", "mega.idx", "trove.ds"]
)
def test_every_dialect(server, bucket, files, name):
    remote = lowtide.tokens(f"s3://bucket/{name}", end_of_text=50256, storage_options=server.s3)
    local = lowtide.tokens(bucket / name, end_of_text=50256)
    assert (remote.format, remote.dtype, len(remote)) == (local.format, local.dtype, len(local))
    np.testing.assert_array_equal(remote[:], files)
    assert remote.documents == local.documents
    np.testing.assert_array_equal(remote.document(17), local.document(17))
    for order in ["shuffled", "sequential", "with_replacement"]:
        loaders = [t.loader(batch_size=4, block_size=64, order=order, seed=3) for t in (remote, local)]
        for _, mine, other in zip(range(30), *loaders, strict=False):
            np.testing.assert_array_equal(mine[0], other[0])
            np.testing.assert_array_equal(mine[1], other[1])


def test_over_plain_http(server, files):
    for name in ["nano.bin", "llmc.bin", "numpy.npy", "mega.bin", "trove.ds"]:
        np.testing.assert_array_equal(lowtide.tokens(f"{server.url}/bucket/{name}")[:], files)
    olmo = lowtide.tokens(f"{server.url}/bucket/olmo.npy", dtype="uint16")
    np.testing.assert_array_equal(olmo[:], files)
    with pytest.raises(NotImplementedError, match="does not say which files are in a folder"):
        lowtide.tokens(f"{server.url}/bucket/")


def test_a_folder_a_glob_and_a_list(server, bucket):
    parts = [np.full(1000 + i, i, np.uint16) for i in range(5)]
    for i, part in enumerate(parts):
        (bucket / "shards").mkdir(exist_ok=True)
        part.tofile(bucket / "shards" / f"train_{i}.bin")
    whole = np.concatenate(parts)
    names = [f"s3://bucket/shards/train_{i}.bin" for i in range(5)]
    for name in [
        "s3://bucket/shards/",
        "s3://bucket/shards",
        "s3://bucket/shards/*.bin",
        "s3://bucket/*/train_?.bin",
        names,
    ]:
        np.testing.assert_array_equal(
            lowtide.tokens(name, dtype="uint16", storage_options=server.s3)[:], whole
        )
    with pytest.raises(ValueError, match="no file matches"):
        lowtide.tokens("s3://bucket/shards/*.npy", storage_options=server.s3)
    with pytest.raises(FileNotFoundError):
        lowtide.tokens("s3://bucket/nothing/", storage_options=server.s3)
    (bucket / "shards" / "val_0.bin").write_bytes(b"\0\0")
    with pytest.raises(ValueError, match="not meant as one stream"):
        lowtide.tokens("s3://bucket/shards/", storage_options=server.s3)


def test_a_key_with_brackets_is_no_glob_where_it_is_there(server, bucket):
    save(bucket / "run[1]" / "rows[1].npy", ROWS)
    save(bucket / "run[1]" / "rows1.npy", ROWS[:5])
    ROWS.tofile(bucket / "raw[1].bin")
    tokens = np.arange(1000, dtype=np.uint16)
    megatron(bucket / "pair[1]", tokens, [400, 600])
    for name in ["s3://bucket/run[1]/rows[1].npy", ["s3://bucket/run[1]/rows[1].npy"]]:
        a = lowtide.open(name, storage_options=server.s3)
        assert a.shape == ROWS.shape
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(a))[4990:], ROWS[4990:])
    for folder in ["s3://bucket/run[1]", "s3://bucket/run[1]/"]:
        assert len(lowtide.open(folder, storage_options=server.s3)) == len(ROWS) + 5
    raw = lowtide.open("s3://bucket/raw[1].bin", dtype="int32", shape=(-1, 64), storage_options=server.s3)
    np.testing.assert_array_equal(raw[:5], ROWS[:5])
    for name in ["s3://bucket/pair[1]", "s3://bucket/pair[1].bin", "s3://bucket/pair[1].idx"]:
        t = lowtide.tokens(name, storage_options=server.s3)
        assert (t.format, t[:].tolist()) == ("megatron", tokens.tolist())
    # Where it is not, it is one.
    assert len(lowtide.open("s3://bucket/run[[]1]/rows[0-9].npy", storage_options=server.s3)) == 5


def test_arrays_of_a_folder(server, bucket):
    for i in range(20):
        save(bucket / "parts" / f"{i:02}.npy", ROWS[i * 250 : (i + 1) * 250])
    for name in ["s3://bucket/parts/", "s3://bucket/parts/*.npy"]:
        a = lowtide.open(name, storage_options=server.s3)
        assert (len(a.files), a.shape) == (20, ROWS.shape)
        np.testing.assert_array_equal(a[:], ROWS)
    again = pickle.loads(pickle.dumps(a))
    np.testing.assert_array_equal(again[777:1000], ROWS[777:1000])


def test_a_prepared_folder(server, bucket, tmp_path):
    (tmp_path / "story.txt").write_text("once upon a time\n" * 1000)
    lowtide.prepare(tmp_path / "story.txt", bucket / "data", tokenizer="bytes", split_lines=True)
    local = lowtide.tokens(bucket / "data")
    remote = lowtide.tokens("s3://bucket/data/", storage_options=server.s3)
    assert (remote.split, remote.end_of_text, len(remote)) == (local.split, local.end_of_text, len(local))
    np.testing.assert_array_equal(remote[:], local[:])
    assert lowtide.verify("s3://bucket/data/", storage_options=server.s3).ok


def test_a_thousand_shards_are_one_listing_and_two_requests_a_shard_touched(server, bucket):
    (bucket / "many").mkdir()
    for i in range(1000):
        np.full(2000, i, np.uint16).tofile(bucket / "many" / f"{i:04}.bin")
    server.asked()
    began = time.monotonic()
    t = lowtide.tokens("s3://bucket/many/", dtype="uint16", storage_options=server.s3)
    loader = iter(t.loader(batch_size=8, block_size=128, seed=1, prefetch=0))
    x, _ = next(loader)
    took = time.monotonic() - began
    asked = server.asked()
    listings = [key for _, key, span in asked if span is None]
    touched = {key for _, key, span in asked if span}
    assert listings == ["bucket"]
    assert {int(key[-8:-4]) for key in touched} >= set(x[:, 0].tolist())
    assert len(asked) <= 1 + 2 * len(touched)
    assert took < 5  # a second on a quiet machine
    assert len(t) == 2_000_000


def test_a_shard_that_is_not_like_the_others_is_an_error_when_it_is_touched(server, bucket):
    (bucket / "many").mkdir()
    for i in range(40):
        tokens = np.full(2000, i, np.uint16)
        path = bucket / "many" / f"{i:02}.bin"
        if i == 20:
            llmc(path, tokens)
        else:
            tokens.tofile(path)
    cache = {"local_cache": bucket.parent / "cache", "local_cache_size": "32MiB"}
    as_raw = lowtide.tokens("s3://bucket/many/", format="nanogpt", storage_options=server.s3, **cache)
    assert as_raw[2000 * 20 + 512 + 1000] == 20  # a header is read as tokens; and now it is in the cache
    for how in [{}, cache]:
        look_at_the_odd_one(lowtide.tokens("s3://bucket/many/", storage_options=server.s3, **how))


def look_at_the_odd_one(t):
    assert t[1000] == 0
    assert t[2000 * 19] == 19
    with pytest.raises(ValueError, match=r"20\.bin.*expected format nanogpt.*found format llmc"):
        t[2000 * 20 + 1000]


def test_a_replaced_object_is_a_named_error(server, bucket):
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open("s3://bucket/rows.npy", storage_options=server.s3)
    chunks = a.chunks(100)
    next(chunks)
    (bucket / "new.npy").write_bytes((bucket / "rows.npy").read_bytes())
    (bucket / "new.npy").rename(bucket / "rows.npy")
    for conditional in [True, False]:  # a server that does not know If-Match is seen through
        server.conditional = conditional
        with pytest.raises(
            ValueError, match=r"(?s)rows\.npy.*the object that was opened \(ETag.*open it again"
        ):
            a[4000:]
    np.testing.assert_array_equal(lowtide.open(a.path, storage_options=server.s3)[:], ROWS)


def test_without_tags_the_time_tells(server, bucket):
    server.tagged = False
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open(f"{server.url}/bucket/rows.npy")
    np.testing.assert_array_equal(a[:], ROWS)
    os.utime(bucket / "rows.npy", (1, 1))
    with pytest.raises(ValueError, match="last modified"):
        a[3000:]


def test_a_server_without_ranges_is_named(server, bucket):
    save(bucket / "rows.npy", ROWS)
    server.ranged = False
    with pytest.raises(OSError, match="none to a request for a range"):
        lowtide.open(f"{server.url}/bucket/rows.npy", storage_options={"timeout": "5s"})


def test_errors_are_pythons_own(server, bucket):
    options = server.s3
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/none\.npy"):
        lowtide.open("s3://bucket/none.npy", storage_options=options)
    with pytest.raises(FileNotFoundError, match="no such bucket"):
        lowtide.open("s3://other/none.npy", storage_options=options)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = {**options, "endpoint_url": f"http://127.0.0.1:{nobody.getsockname()[1]}"}
        with pytest.raises(ConnectionRefusedError, match="cannot be reached"):
            lowtide.open("s3://bucket/none.npy", storage_options=endpoint)
    with pytest.raises(ValueError, match='"acess_key" is not an option for S3'):
        lowtide.open("s3://bucket/x", storage_options={**options, "acess_key": "x"})
    with pytest.raises(ValueError, match='access="map" is for files'):
        lowtide.open("s3://bucket/x", access="map", storage_options=options)
    with pytest.raises(ValueError, match='access="range" is for object stores'):
        lowtide.open(__file__, access="range", dtype="uint8")
    with pytest.raises(TypeError, match="is not a dictionary"):
        lowtide.open("s3://bucket/x", storage_options="x")
    with pytest.raises(ValueError, match="no bucket"):
        lowtide.open("s3:///x", storage_options=options)


def test_options_in_the_words_of_others(server, bucket):
    save(bucket / "rows.npy", ROWS)
    for options in [
        {"client_kwargs": {"endpoint_url": server.url, "region_name": "us-east-1"}, "anon": True},
        {"aws_endpoint_url": server.url, "aws_access_key_id": "x", "aws_secret_access_key": "y"},
        {"endpoint_url": server.url, "key": "x", "secret": "y", "timeout": 30},
    ]:
        np.testing.assert_array_equal(
            lowtide.open("s3://bucket/rows.npy", storage_options=options)[9], ROWS[9]
        )
    a = lowtide.open(Path("s3://bucket/rows.npy"), storage_options=server.s3)
    assert a.path == "s3://bucket/rows.npy"


def test_the_environment_is_asked(server, bucket, monkeypatch):
    save(bucket / "rows.npy", ROWS)
    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_REGION": "x",
    }.items():
        monkeypatch.setenv(name, value)
    np.testing.assert_array_equal(lowtide.open("s3://bucket/rows.npy")[9], ROWS[9])


@pytest.mark.parametrize("word", ["endpoint_url", "endpoint", "aws_endpoint_url", "aws_endpoint_url_s3"])
def test_the_user_s_server_is_above_the_environment_s(server, bucket, monkeypatch, word):
    save(bucket / "rows.npy", ROWS)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    options = {word: server.url, "skip_signature": "true", "region": "x"}
    np.testing.assert_array_equal(lowtide.open("s3://bucket/rows.npy", storage_options=options)[9], ROWS[9])


def test_a_pickle_sends_the_address_and_the_options(server, bucket, files):
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open("s3://bucket/rows.npy", storage_options=server.s3, budget="32MiB")
    b = pickle.loads(pickle.dumps(a))
    assert (b.path, b.shape) == (a.path, a.shape)
    np.testing.assert_array_equal(b[5:50], ROWS[5:50])
    t = lowtide.tokens("s3://bucket/mega", storage_options=server.s3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(t))[:100], files[:100])
    save(bucket / "rows.npy", ROWS[::-1])
    with pytest.raises(ValueError, match="4 KiB"):
        pickle.loads(pickle.dumps(a))


def test_a_fork_reads_and_so_does_its_parent(server, bucket):
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open("s3://bucket/rows.npy", storage_options=server.s3)
    chunks = a.shuffled(100, seed=1)
    first = next(chunks)
    assert len(first) == 100
    expected = [chunk.copy() for chunk in a.shuffled(100, seed=1)]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            rest = list(chunks)
            code = 0 if (a[10:20] == ROWS[10:20]).all() and (rest[-1] == expected[-1]).all() else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    np.testing.assert_array_equal(np.concatenate([first, *chunks]), np.concatenate(expected))


def test_threads_read_side_by_side(server, bucket):
    save(bucket / "rows.npy", ROWS)
    a = lowtide.open("s3://bucket/rows.npy", storage_options=server.s3, budget="16MiB")
    wrong = []

    def work(seed):
        rows = np.random.default_rng(seed).integers(0, 5000, 200)
        if not (a[rows] == ROWS[rows]).all():
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("what", ["lowtide.open(url)", "a[:]"])
def test_ctrl_c_ends_a_wait(what, tmp_path):
    """A server that takes a question and never answers, or only the first."""
    program = textwrap.dedent("""
        import socket, sys, threading, time, lowtide
        import numpy as np, io
        listener = socket.create_server(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/x.npy"
        file = io.BytesIO(); np.save(file, np.zeros((4000, 64), np.int32)); data = file.getvalue()
        first = data[:8192]
        head = f"HTTP/1.1 206 OK\\r\\nContent-Length: {len(first)}\\r\\nETag: \\"1\\"\\r\\n"
        head += f"Content-Range: bytes 0-8191/{len(data)}\\r\\n\\r\\n"
        def serve():
            kept, answers = [], WHAT != "lowtide.open(url)"
            while True:
                connection, _ = listener.accept()
                kept.append(connection)
                if answers:
                    connection.recv(65536)
                    connection.sendall(head.encode() + first)
                    answers = False
        WHAT = sys.argv[1]
        threading.Thread(target=serve, daemon=True).start()
        a = lowtide.open(url) if WHAT != "lowtide.open(url)" else None
        print("ready", flush=True)
        try:
            eval(WHAT)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program, what], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - began < 1  # 100 ms on a quiet machine
        finally:
            process.kill()


def test_the_command_says_what_it_is_and_what_it_costs(server, bucket, files):
    save(bucket / "rows.npy", ROWS)
    options = [f"--storage-option={key}={value}" for key, value in server.s3.items()]

    def run(*args):
        command = [sys.executable, "-m", "lowtide", *args, *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    said = run("info", "s3://bucket/rows.npy")
    assert said.returncode == 0, said.stderr
    assert "(5000, 64)" in said.stdout
    assert "range: the data is in an object store" in said.stdout
    assert "exact: a pass takes about" in said.stdout
    said = run("info", "s3://bucket/llmc.bin")
    assert "llmc: llm.c's header" in said.stdout
    assert "requests" in said.stdout
    assert run("verify", "s3://bucket/llmc.bin", "s3://bucket/rows.npy").returncode == 0
    assert run("info", "s3://bucket/none.npy").returncode == 1


def test_a_cache_that_cannot_be_written_is_warned_of(server, bucket, tmp_path, python):
    """Everything is read all the same: without a word, each epoch would be fetched again for ever."""
    rows = np.arange(3 << 20, dtype="int32").reshape(-1, 256)
    save(bucket / "rows.npy", rows)
    code = """if True:
        import resource, signal, sys, warnings, lowtide
        url, folder = sys.argv[1:]
        a = lowtide.open(url, local_cache=folder, local_cache_size="32MiB")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))  # as a quota would have it
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            total = sum(int(chunk.sum(dtype="int64")) for chunk in a.chunks(1024))
            a[0]
        assert [w.category for w in seen] == [RuntimeWarning], seen
        assert "cannot store a block in the cache" in str(seen[0].message), seen[0].message
        print(total)
    """
    url = f"{server.url}/bucket/rows.npy"
    assert int(python(code, url, tmp_path / "cache")) == rows.sum(dtype="int64")


def test_the_second_epoch_comes_from_the_local_cache(server, bucket, files, tmp_path):
    save(bucket / "rows.npy", ROWS)
    how = {"local_cache": tmp_path / "cache", "local_cache_size": "64MiB", "storage_options": server.s3}
    for opened in range(3):
        a = lowtide.open("s3://bucket/rows.npy", budget="32MiB", **how)
        for _ in range(2):
            np.testing.assert_array_equal(np.concatenate(list(a.chunks(700))), ROWS)
            np.testing.assert_array_equal(a[[7, 4000, 7]], ROWS[[7, 4000, 7]])
        fetched = [asked for asked in server.asked() if asked[2] != "bytes=0-8191"]
        assert bool(fetched) == (opened == 0)
    assert "local cache" in a.shuffled(100).why
    b = pickle.loads(pickle.dumps(a))
    server.asked()
    local = lowtide.open(bucket / "rows.npy", budget="32MiB")
    for mine, other in zip(b.shuffled(333, seed=3), local.shuffled(333, seed=3), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert not server.asked()
    for _ in range(2):
        t = lowtide.tokens("s3://bucket/llmc.bin", **how)
        np.testing.assert_array_equal(t[:], files)
    save(bucket / "rows.npy", ROWS[::-1])
    np.testing.assert_array_equal(lowtide.open("s3://bucket/rows.npy", **how)[:], ROWS[::-1])
    with pytest.raises(ValueError, match="local_cache_size= is the size of local_cache="):
        lowtide.open("s3://bucket/rows.npy", local_cache_size="1GiB", storage_options=server.s3)


def test_memory_stays_in_the_budget(server, bucket):
    """The kernel's number, in a fresh process: 200 MiB come in 32 MiB."""
    np.save(bucket / "large.npy", np.zeros((200, 1 << 18), np.float32))
    program = textwrap.dedent("""
        import sys, re, lowtide, json
        def anon():
            return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
        a = lowtide.open("s3://bucket/large.npy", budget="32MiB", storage_options=json.loads(sys.argv[1]))
        a[0]
        before = most = anon()
        for chunk in a.chunks(1):
            most = max(most, anon())
        print(most - before)
    """)
    import json

    said = subprocess.run(
        [sys.executable, "-c", program, json.dumps(server.s3)], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) <= 36 << 20  # and a chunk in the caller's hand
