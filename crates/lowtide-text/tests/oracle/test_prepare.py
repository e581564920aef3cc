"""``lowtide prepare`` and ``lowtide.prepare``, as a user calls them; the oracle is tokens made here, by hand."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import lowtide


def command(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "lowtide", "prepare", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout)


def texts(count: int, seed: int = 0) -> list[str]:
    numbers = random.Random(seed)
    alphabet = "abcde  \n\tÄß€😀" + "".join(chr(n) for n in range(0x4E00, 0x4E20))
    return ["".join(numbers.choices(alphabet, k=numbers.randrange(1, 3000))) for _ in range(count)]


def write_jsonl(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def as_bytes(documents: list[str]) -> np.ndarray:
    parts = [np.append(np.frombuffer(text.encode(), np.uint8).astype(np.uint16), 256) for text in documents]
    return np.concatenate(parts).astype(np.uint16)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_corpus_becomes_tokens_that_become_text_again(tmp_path):
    documents = texts(300)
    source = write_jsonl(tmp_path / "corpus.jsonl", documents)
    manifest = lowtide.prepare(source, tmp_path / "data", tokenizer="bytes", val=0.2, seed=3)
    train, val = (lowtide.tokens(tmp_path / "data", split=split) for split in ("train", "val"))
    assert train.documents + val.documents == 300
    found = [tokens.text(i) for tokens in (train, val) for i in range(tokens.documents)]
    assert sorted(found) == sorted(text + "<|endoftext|>" for text in documents)
    assert manifest["counts"]["documents"] == 300
    assert [split["name"] for split in manifest["splits"]] == ["train", "val"]
    assert 30 <= val.documents <= 90
    assert lowtide.tokens(tmp_path / "data").files == train.files  # train is what is meant
    assert lowtide.tokens(tmp_path / "data" / "val.bin").documents == val.documents  # by the manifest beside it
    with pytest.raises(ValueError, match='one of "train", "val"'):
        lowtide.tokens(tmp_path / "data", split="test")


def test_the_command_gives_the_bytes_of_the_function(tmp_path):
    documents = texts(50)
    source = write_jsonl(tmp_path / "corpus.jsonl", documents)
    done = command(source, "-o", tmp_path / "a", "--tokenizer", "bytes", "--json")
    assert done.returncode == 0, done.stderr
    manifest = lowtide.prepare([source], tmp_path / "b", tokenizer="bytes")
    assert json.loads(done.stdout) == manifest
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert np.array_equal(np.fromfile(tmp_path / "a" / "train.bin", np.uint16), as_bytes(documents))
    again = command(source, "-o", tmp_path / "a", "--tokenizer", "bytes")
    assert again.returncode == 0 and "50 documents" in again.stdout


def test_lines_gzip_separators_and_stdin(tmp_path):
    plain = tmp_path / "lines.txt"
    plain.write_bytes(b"one\r\ntwo\n\nthree")
    packed = tmp_path / "lines.txt.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    for n, source in enumerate([plain, packed]):
        lowtide.prepare(source, tmp_path / f"out{n}", tokenizer="bytes", input="lines")
        found = np.fromfile(tmp_path / f"out{n}" / "train.bin", np.uint16)
        assert np.array_equal(found, as_bytes(["one", "two", "three"]))
    (tmp_path / "parts.txt").write_text("a<|end|>b\nc<|end|>")
    lowtide.prepare(tmp_path / "parts.txt", tmp_path / "parts", tokenizer="bytes", separator="<|end|>")
    found = np.fromfile(tmp_path / "parts" / "train.bin", np.uint16)
    assert np.array_equal(found, as_bytes(["a", "b\nc"]))
    line = [sys.executable, "-m", "lowtide", "prepare", "-", "-o", str(tmp_path / "std"), "-t", "bytes", "--split-lines"]
    assert subprocess.run(line, input=plain.read_bytes(), capture_output=True).returncode == 0
    assert contents(tmp_path / "std")["train.bin"] == contents(tmp_path / "out0")["train.bin"]


def test_characters_as_nanogpt_numbers_them(tmp_path):
    text = "hello there, General Kenobi\n"
    (tmp_path / "input.txt").write_text(text)
    lowtide.prepare(tmp_path / "input.txt", tmp_path / "data", tokenizer="chars")
    table = sorted(set(text))
    assert json.loads((tmp_path / "data" / "chars.json").read_text()) == {"chars": table}
    found = np.fromfile(tmp_path / "data" / "train.bin", np.uint16)
    assert found.tolist() == [table.index(letter) for letter in text]


def test_errors_name_the_file_the_line_and_the_byte(tmp_path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "fine"}\n{"body": "x"}\n')
    done = command(bad, "-o", tmp_path / "out", "-t", "bytes")
    assert done.returncode == 1
    assert "bad.jsonl: at byte 17" in done.stderr and "no text, but body (line 2)" in done.stderr
    assert not list((tmp_path / "out").glob("*.bin"))
    skipped = lowtide.prepare(bad, tmp_path / "skip", tokenizer="bytes", on_error="skip")
    assert skipped["counts"]["skipped"] == 1
    for arguments, code, said in [
        (["/no/such/file", "-o", tmp_path / "x"], 1, "No such file"),
        ([bad, "-o", tmp_path / "x", "-t", "gpt5000"], 2, "there is no tokenizer"),
        ([bad, "-o", tmp_path / "x", "--val", "1.5"], 2, "no share of the documents"),
        ([bad, "-o", tmp_path / "x", "--format", "raw"], 2, "read, not written"),
        ([bad, "-o", tmp_path / "skip", "-t", "bytes"], 2, "on-error was"),
        ([bad, "-o", tmp_path / "x", "--budget", "1MiB"], 1, "needs"),
    ]:
        done = command(*arguments)
        assert done.returncode == code, done.stderr
        assert said in done.stderr


def test_a_folder_is_checked_and_what_is_wrong_is_named(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(20))
    lowtide.prepare(source, tmp_path / "data", tokenizer="bytes")
    line = [sys.executable, "-m", "lowtide", "verify", str(tmp_path / "data")]
    assert subprocess.run(line, capture_output=True).returncode == 0
    with open(tmp_path / "data" / "train.bin", "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1
    assert "train.bin: at byte 100: the id 65535, the vocabulary has 257" in done.stderr


def kill_and_finish(tmp_path: Path, arguments: list[object], kills: int, expected: dict[str, bytes], seed: int) -> int:
    """Kill a run at random moments until it is done; how often it was killed."""
    numbers = random.Random(seed)
    output = tmp_path / f"killed-{seed}"
    killed = 0
    line = [sys.executable, "-m", "lowtide", "prepare", *map(str, arguments), "-o", str(output), "--checkpoint", "0.02"]
    while killed < kills:
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(numbers.uniform(0.05, 1.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.wait()
        if process.returncode == 0:
            break
        whole = {path.name for path in output.glob("*.*") if path.name != "lowtide.json"} if output.exists() else set()
        for name in whole:  # nothing half under a name of its own
            assert (output / name).read_bytes() == expected[name], name
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert contents(output) == expected
    return killed


@pytest.mark.parametrize("shape", [["--format", "megatron"], ["--shuffle-documents", "5"]], ids=["megatron", "shuffled"])
def test_killed_at_any_moment_it_goes_on(tmp_path, shape):
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(6000))
    arguments = [source, "-t", "bytes", "--val", "0.1", "--shard-tokens", "2M", "--threads", "1", *shape]
    assert command(*arguments, "-o", tmp_path / "whole").returncode == 0
    kill_and_finish(tmp_path, arguments, 6, contents(tmp_path / "whole"), seed=1)


@pytest.mark.heavy
def test_a_hundred_kills(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(20_000))
    shapes = [["--format", name] for name in ("nanogpt", "llmc", "megatron", "datatrove", "npy")]
    killed = 0
    for n, shape in enumerate([*shapes, ["--shuffle-documents", "5"]]):
        arguments = [source, "-t", "bytes", "--val", "0.1", "--shard-tokens", "5M", "--threads", "1", *shape]
        assert command(*arguments, "-o", tmp_path / f"whole-{n}").returncode == 0
        for seed in range(3):
            killed += kill_and_finish(tmp_path, arguments, 6, contents(tmp_path / f"whole-{n}"), seed=100 * n + seed)
    assert killed >= 100


def peak_anon(process: subprocess.Popen[bytes]) -> int:
    """The most anonymous memory of a process, by the kernel's count, in bytes."""
    most = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for row in status.splitlines():
            if row.startswith("RssAnon:"):
                most = max(most, int(row.split()[1]) << 10)
        time.sleep(0.005)
    return most


@pytest.mark.parametrize("tokenizer", ["bytes", "gpt2"])
def test_a_document_far_larger_than_the_budget(tmp_path, tokenizer):
    """200 MiB of text in one line of JSON, in 96 MiB of memory."""
    sentence = "It was the best of times, it was the worst of times; 1859 or so. "
    source = tmp_path / "long.jsonl"
    with source.open("w") as file:
        file.write('{"id": 7, "text": "')
        for _ in range(200):
            file.write(sentence * ((1 << 20) // len(sentence)))
        file.write('"}\n')
    line = [sys.executable, "-m", "lowtide", "prepare", str(source), "-o", str(tmp_path / "out"), "-t", tokenizer]
    line += ["--budget", "96MiB", "--quiet"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most = peak_anon(process)
    assert process.wait() == 0, process.stderr.read()
    assert most <= 96 << 20, f"{most >> 20} MiB"
    t = lowtide.tokens(tmp_path / "out")
    assert t.documents == 1
    if tokenizer == "bytes":
        assert len(t) == 200 * ((1 << 20) // len(sentence)) * len(sentence) + 1


@pytest.mark.heavy
def test_parquet_as_another_writer_has_it(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    documents = texts(5000)
    column = [None if n % 97 == 0 else text for n, text in enumerate(documents)]
    wanted = [text for text in column if text is not None]
    for compression in ["none", "snappy", "gzip", "zstd", "lz4"]:
        for struct in (False, True):
            values = pa.array(column, pa.string())
            table = pa.table({"id": list(range(5000)), "text": values})
            if struct:
                table = pa.table({"doc": pa.StructArray.from_arrays([values], names=["text"])})
            path = tmp_path / f"{compression}-{struct}.parquet"
            pq.write_table(table, path, compression=compression, row_group_size=700)
            output = tmp_path / f"out-{compression}-{struct}"
            lowtide.prepare(path, output, tokenizer="bytes", field="doc.text" if struct else "text")
            found = np.fromfile(output / "train.bin", np.uint16)
            assert np.array_equal(found, as_bytes(wanted)), path.name
    damaged = tmp_path / "damaged.parquet"
    good = path.read_bytes()
    for n in range(50):
        at = random.Random(n).randrange(4, len(good))
        damaged.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        with contextlib.suppress(ValueError):  # what was lost may be all of it; nothing crashes
            lowtide.prepare(damaged, tmp_path / f"d{n}", tokenizer="bytes", field="doc.text", on_error="skip")


def test_a_full_disk_is_an_error_and_what_is_whole_stays(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk takes root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        source = write_jsonl(tmp_path / "corpus.jsonl", texts(3000))
        done = command(source, "-o", disk / "out", "-t", "bytes", "--shard-tokens", "1M")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert command(source, "-o", disk / "out", "-t", "bytes", "--shard-tokens", "1M").returncode == 0
        lowtide.prepare(source, tmp_path / "whole", tokenizer="bytes", shard_tokens=1_000_000)
        assert contents(disk / "out") == contents(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(disk)], check=False)
