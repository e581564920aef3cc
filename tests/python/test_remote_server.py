"""Object stores, by a real server: SeaweedFS, and moto as a second opinion. The oracles are local files."""

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from test_remote import datatrove, megatron
from token_streams import llmc
from weed import Weed, free_port

import lowtide

pytestmark = pytest.mark.heavy

DIALECTS = ["nano.bin", "llmc.bin", "numpy.npy", "mega", "trove.ds"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What is put into the bucket."""
    folder = tmp_path_factory.mktemp("files")
    rows = np.random.default_rng(0).random(
        (60_000, 64), dtype=np.float32
    )  # 15 MiB: several chunks of the server's
    np.save(folder / "rows.npy", rows)
    tokens = np.random.default_rng(1).integers(0, 50_000, 3_000_000).astype(np.uint16)
    tokens[::100] = 50256
    tokens.tofile(folder / "nano.bin")
    llmc(folder / "llmc.bin", tokens)
    np.save(folder / "numpy.npy", tokens)
    megatron(folder / "mega", tokens, [100] * 30_000)
    datatrove(folder / "trove.ds", tokens, [100] * 30_000)
    (folder / "shards").mkdir()
    for i, part in enumerate(np.array_split(tokens, 30)):
        llmc(folder / "shards" / f"train_{i:03}.bin", part)
    (folder / "odd names").mkdir()
    rows[:100].tofile(folder / "odd names" / "a b+c=d&é.bin")
    return folder


@pytest.fixture(scope="module")
def weed(tmp_path_factory, files):
    server = Weed(tmp_path_factory.mktemp("weed"))
    server.upload(files)
    yield server
    server.close()


@pytest.fixture(scope="module")
def moto(tmp_path_factory, files):
    import boto3

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(200):
        try:
            urllib.request.urlopen(url, timeout=1).close()
            break
        except OSError:
            time.sleep(0.1)
    options = {
        "endpoint_url": url,
        "aws_access_key_id": "x",
        "aws_secret_access_key": "y",
        "aws_region": "us-east-1",
    }
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="x", aws_secret_access_key="y", region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    for path in sorted(files.rglob("*")):
        if path.is_file():
            client.put_object(Bucket="bucket", Key=str(path.relative_to(files)), Body=path.read_bytes())
    yield options
    process.send_signal(signal.SIGTERM)
    process.wait(10)


@pytest.fixture(params=["weed", "moto"])
def options(request):
    """How each server is reached."""
    server = request.getfixturevalue(request.param)
    return server if isinstance(server, dict) else server.options


def test_arrays(files, options):
    rows = np.load(files / "rows.npy")
    a = lowtide.open("s3://bucket/rows.npy", budget="32MiB", storage_options=options)
    for key in [5, slice(100, 9000), slice(None, None, 77), [3, 59_999, 1], (slice(50), slice(7))]:
        np.testing.assert_array_equal(a[key], rows[key])
    np.testing.assert_array_equal(np.concatenate(list(a.chunks(1000))), rows)
    local = lowtide.open(files / "rows.npy", budget="32MiB")
    for how in [{}, {"blocks": 512}]:
        for mine, other in zip(
            a.shuffled(4096, seed=1, **how), local.shuffled(4096, seed=1, **how), strict=True
        ):
            np.testing.assert_array_equal(mine, other)
    odd = lowtide.open(
        "s3://bucket/odd names/a b+c=d&é.bin", dtype="float32", shape=(-1, 64), storage_options=options
    )
    np.testing.assert_array_equal(odd[:], rows[:100])


@pytest.mark.parametrize("name", DIALECTS)
def test_tokens(files, options, name):
    remote = lowtide.tokens(f"s3://bucket/{name}", end_of_text=50256, storage_options=options)
    local = lowtide.tokens(files / name, end_of_text=50256)
    assert (remote.format, remote.dtype, len(remote)) == (local.format, local.dtype, len(local))
    assert remote.documents == local.documents
    for number in [0, 1, 15_000, remote.documents - 1]:
        np.testing.assert_array_equal(remote.document(number), local.document(number))
    for order in ["shuffled", "sequential", "with_replacement"]:
        loaders = [t.loader(batch_size=12, block_size=1024, order=order, seed=3) for t in (remote, local)]
        for _, mine, other in zip(range(40), *loaders, strict=False):
            np.testing.assert_array_equal(mine[0], other[0])


@pytest.mark.parametrize("name", ["shards/", "shards", "shards/*.bin", "*/train_0?[0-9].bin"])
def test_prefixes_and_globs(files, options, name):
    remote = lowtide.tokens(f"s3://bucket/{name}", storage_options=options)
    local = lowtide.tokens(files / "shards")
    assert len(remote.files) == 30
    np.testing.assert_array_equal(remote[:], local[:])


def test_a_replaced_object(files, weed):
    rows = np.load(files / "rows.npy")
    weed.client.put_object(Bucket="bucket", Key="replaced.npy", Body=(files / "rows.npy").read_bytes())
    a = lowtide.open("s3://bucket/replaced.npy", storage_options=weed.options)
    chunks = a.chunks(100)
    np.testing.assert_array_equal(next(chunks), rows[:100])
    with open(files / "rows.npy", "rb") as file:
        data = bytearray(file.read())
    data[-4:] = b"\0\0\0\0"
    weed.client.put_object(Bucket="bucket", Key="replaced.npy", Body=bytes(data))
    with pytest.raises(ValueError, match="the object that was opened"):
        a[30_000:]


def test_errors(weed):
    with pytest.raises(FileNotFoundError):
        lowtide.open("s3://bucket/none.npy", storage_options=weed.options)
    with pytest.raises(FileNotFoundError):
        lowtide.open("s3://no-such-bucket/none.npy", storage_options=weed.options)
    wrong = {**weed.options, "aws_secret_access_key": "wrong"}
    with pytest.raises(PermissionError, match="credentials"):
        lowtide.open("s3://bucket/rows.npy", storage_options=wrong)


def test_the_environment(files, weed):
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL_S3": weed.url,
        "AWS_ACCESS_KEY_ID": weed.options["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": weed.options["aws_secret_access_key"],
    }
    said = subprocess.run(
        [sys.executable, "-m", "lowtide", "info", "s3://bucket/rows.npy", "s3://bucket/shards/"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "(60000, 64)" in said.stdout
    assert "30, train_000.bin to train_029.bin" in said.stdout


def client(options):
    """An S3 client that is not ours."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
        region_name="us-east-1",
    )


def body(options, key):
    return client(options).get_object(Bucket="bucket", Key=key)["Body"].read()


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("rows", [0, 100, 150_000])
def test_created(options, rows):
    array = np.random.default_rng(2).random((rows, 64), dtype=np.float32)  # up to 37 MiB: five parts
    key = f"created/{rows}.npy"
    how = {"budget": "64MiB", "storage_options": options}
    with lowtide.create(f"s3://bucket/{key}", "float32", (None, 64), **how) as w:
        w.extend(array[i : i + 9_973] for i in range(0, rows, 9_973))
    assert body(options, key) == saved(array)
    with pytest.raises(FileExistsError):
        lowtide.create(f"s3://bucket/{key}", "float32", (None, 64), **how)
    with lowtide.create(f"s3://bucket/{key}", "float32", (rows, 64), overwrite=True, **how) as w:
        w.append(2 * array)
    assert body(options, key) == saved(2 * array)
    assert not client(options).list_multipart_uploads(Bucket="bucket").get("Uploads")


def test_two_writers(options):
    """Of two that find nothing at first, one makes the object."""
    array = np.zeros((60_000, 64), np.float32)
    how = {"budget": "64MiB", "storage_options": options}
    writers = [lowtide.create("s3://bucket/two.npy", "float32", (None, 64), **how) for _ in range(2)]
    for number, w in enumerate(writers):
        w.append(array + number)
    writers[1].close()
    with pytest.raises(FileExistsError):
        writers[0].close()
    writers[0].discard()
    assert body(options, "two.npy") == saved(array + 1)
    assert not client(options).list_multipart_uploads(Bucket="bucket").get("Uploads")


def test_an_exception_and_a_kill_leave_no_object(weed):
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        lowtide.create(
            "s3://bucket/none.npy", "float32", (None, 64), budget="64MiB", storage_options=weed.options
        ) as w,
    ):
        w.append(np.zeros((150_000, 64), np.float32))
        w.flush()
        assert weed.client.list_multipart_uploads(Bucket="bucket").get("Uploads")
        1 / 0  # noqa: B018
    assert not weed.client.list_multipart_uploads(Bucket="bucket").get("Uploads")
    program = f"""
import numpy as np, lowtide
with lowtide.create("s3://bucket/none.npy", "float32", (None, 64), budget="64MiB",
                    storage_options={weed.options!r}) as w:
    w.append(np.zeros((150_000, 64), np.float32))
    print("ready", flush=True)
    while True:
        w.append(np.zeros((10_000, 64), np.float32))
"""
    for wait in (0.0, 0.1, 0.5):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            time.sleep(wait)
            child.kill()
        keys = weed.client.list_objects_v2(Bucket="bucket", Prefix="none").get("Contents", [])
        assert keys == []
    for upload in weed.client.list_multipart_uploads(Bucket="bucket").get("Uploads", []):
        weed.client.abort_multipart_upload(Bucket="bucket", Key=upload["Key"], UploadId=upload["UploadId"])


def test_writing_stays_within_the_budget(weed):
    program = f"""
import re, numpy as np, lowtide
def anon():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
rows = np.ones((1 << 14, 64), np.float32)  # 4 MiB
how = {{"dtype": "float32", "shape": (None, 64), "storage_options": {weed.options!r}}}
with lowtide.create("s3://bucket/warm.npy", budget="32MiB", **how) as w:
    w.append(rows[:1])
before, most = anon(), 0
with lowtide.create("s3://bucket/large.npy", budget="64MiB", **how) as w:
    for _ in range(96):
        w.append(rows)
        most = max(most, anon())
print(most - before)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(said.stdout) < 64 << 20
    size = weed.client.head_object(Bucket="bucket", Key="large.npy")["ContentLength"]
    assert size == 128 + (384 << 20)


def test_converted_shuffled_and_prepared(files, weed, tmp_path):
    rows = np.load(files / "rows.npy")
    how = {"storage_options": weed.options}
    lowtide.convert("s3://bucket/rows.npy", "s3://bucket/wide.npy", dtype="float64", **how)
    assert body(weed.options, "wide.npy") == saved(rows.astype("float64"))
    how["work"] = tmp_path / "work"
    lowtide.shuffle(files / "rows.npy", "s3://bucket/shuffled.npy", seed=5, **how)
    expected = next(lowtide.open(files / "rows.npy").shuffled(len(rows), seed=5))
    assert body(weed.options, "shuffled.npy") == saved(expected)
    (tmp_path / "story.txt").write_text("".join(f"line {n} of a story\n" for n in range(20_000)))
    settings = {"tokenizer": "bytes", "split_lines": True, "shard_tokens": 100_000}
    lowtide.prepare(tmp_path / "story.txt", "s3://bucket/prepared/", **settings, **how)
    lowtide.prepare(tmp_path / "story.txt", tmp_path / "data", **settings)
    for path in (tmp_path / "data").iterdir():
        assert body(weed.options, f"prepared/{path.name}") == path.read_bytes()
    assert lowtide.verify("s3://bucket/prepared/", storage_options=weed.options)


@pytest.mark.parametrize("name", ["rows.npy", "shards/"])
def test_bench(weed, name):
    command = [sys.executable, "-m", "lowtide", "bench", f"s3://bucket/{name}", "--seconds", "1", "--json"]
    for key, value in weed.options.items():
        command += ["--storage-option", f"{key}={value}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    report = json.loads(said.stdout)
    assert [way["name"] for way in report["ways"]] == [
        "lowtide exact",
        "lowtide blocks",
        "lowtide sequential",
    ]
    assert all(way["rows"] > 0 for way in report["ways"])
    assert any("requests" in note for note in report["notes"])


def test_a_store_of_obstores(files, weed, tmp_path):
    from obstore.store import LocalStore, MemoryStore, S3Store

    settings = {key.removeprefix("aws_"): value for key, value in weed.options.items() if key != "timeout"}
    settings["endpoint"] = settings.pop("endpoint_url")
    how = {"client_options": {"allow_http": True}, "virtual_hosted_style_request": False}
    rows = np.load(files / "rows.npy")
    a = lowtide.open("rows.npy", store=S3Store("bucket", **settings, **how))
    np.testing.assert_array_equal(a[:100], rows[:100])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a))[-1], rows[-1])
    below = S3Store("bucket", prefix="shards", **settings, **how)
    np.testing.assert_array_equal(
        lowtide.tokens("train_*.bin", store=below)[:], lowtide.tokens(files / "shards")[:]
    )
    np.testing.assert_array_equal(
        lowtide.tokens(["train_000.bin", "train_001.bin"], store=below)[:],
        lowtide.tokens([files / "shards/train_000.bin", files / "shards/train_001.bin"])[:],
    )
    assert lowtide.open("rows.npy", store=LocalStore(files)).shape == rows.shape

    def provider():
        raise AssertionError

    for store, error, says in [
        (S3Store("bucket", credential_provider=provider), NotImplementedError, "credentials by a function"),
        (MemoryStore(), NotImplementedError, "cannot be reached from here"),
        (object(), TypeError, "no store of obstore's"),
    ]:
        with pytest.raises(error, match=says):
            lowtide.open("rows.npy", store=store)
    with pytest.raises(ValueError, match="names are keys"):
        lowtide.open("s3://bucket/rows.npy", store=below)
    with pytest.raises(ValueError, match="brings its own settings"):
        lowtide.open("rows.npy", store=below, storage_options={})
