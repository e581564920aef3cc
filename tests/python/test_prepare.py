"""``lowtide.prepare``, ``lowtide.verify`` and what is seen of their files, against ids made by hand."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import logging
import operator
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lowtide

COMMAND = [sys.executable, "-m", "lowtide"]
ROOT = Path(__file__).parents[2]
TEXTS = ["Once upon a time", "é𝄞\u200d\n\ttwo lines", "x" * 5000, "", "the end", "naïve\r\n"]
FORMATS = ["nanogpt", "llmc", "megatron", "datatrove", "npy"]


def by_bytes(texts, before=False):
    """The ids of the tokenizer "bytes": each byte is its own id, 256 is between documents."""
    documents = [list(text.encode()) for text in texts if text]
    return functools.reduce(operator.iadd, ([256, *ids] if before else [*ids, 256] for ids in documents), [])


def jsonl(path, texts, wrap=lambda text: {"text": text}):
    path.write_text("".join(json.dumps(wrap(text)) + "\n" for text in texts))
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def many(count=400):
    """Documents of all lengths, some empty, one long."""
    texts = [f"document {n} é " * (n % 37) for n in range(count)]
    texts[count // 2] = "long " * 60_000
    return texts


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shard_tokens", [None, 4000])
def test_every_format_is_read_back(tmp_path, format, shard_tokens):
    source = jsonl(tmp_path / "in.jsonl", TEXTS)
    made = lowtide.prepare(
        source, tmp_path / "out", tokenizer="bytes", format=format, shard_tokens=shard_tokens
    )
    expected = by_bytes(TEXTS, before=format == "llmc")
    texts = [text for text in TEXTS if text]
    t = lowtide.tokens(tmp_path / "out")
    assert t[:].tolist() == expected
    assert (t.format, t.dtype, t.end_of_text, t.split) == (format, np.uint16, 256, "train")
    assert (t.vocabulary, t.documents) == (257, len(texts))
    assert [t.text(i) for i in range(len(texts))] == texts
    assert t.text(-1) == texts[-1]
    assert t.document(0).tolist() == by_bytes(texts[:1], before=format == "llmc")
    assert len(t.files) == (1 if shard_tokens is None else 2)
    assert (made.tokens, made.documents, made.empty, made.skipped) == (len(expected), len(texts), 1, 0)
    assert (made.format, made.dtype, made.vocabulary, made.tokenizer) == (format, np.uint16, 257, "bytes")
    assert made.text_bytes == sum(len(text.encode()) for text in texts)
    assert made.longest == 5001
    assert made.bytes == sum(path.stat().st_size for path in made.splits["train"]["files"])
    assert made.splits["train"]["files"] == list(t.files)
    assert made.manifest == tmp_path / "out" / "lowtide.json"
    assert lowtide.verify(tmp_path / "out").ok


def test_nanogpt_s_own_way_of_reading(tmp_path):
    """What nanoGPT's train.py does with the files."""
    lowtide.prepare(jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out", tokenizer="bytes")
    assert np.memmap(tmp_path / "out" / "train.bin", dtype=np.uint16, mode="r").tolist() == by_bytes(TEXTS)


def test_the_npy_is_numpy_s(tmp_path):
    lowtide.prepare(jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out", tokenizer="bytes", format="npy")
    assert np.load(tmp_path / "out" / "train.npy").tolist() == by_bytes(TEXTS)


def test_chars_are_nanogpt_s(tmp_path):
    text = "".join(TEXTS)
    (tmp_path / "in.txt").write_bytes(text.encode())
    made = lowtide.prepare(tmp_path / "in.txt", tmp_path / "out", tokenizer="chars")
    ids = {char: i for i, char in enumerate(sorted(set(text)))}
    t = lowtide.tokens(tmp_path / "out")
    assert t[:].tolist() == [ids[char] for char in text]
    assert made.vocabulary == len(ids)
    assert made.end_of_text is t.end_of_text is None
    assert json.loads((tmp_path / "out" / "chars.json").read_text()) == {"chars": list(ids)}
    assert t.decode(t[:40]) == text[:40]
    assert t.decode(t[:40], tokenizer="chars") == text[:40]
    with pytest.raises(ValueError, match="nothing says where documents end"):
        t.text(0)


GOLDEN = (ROOT / "crates/lowtide-text/tests/valid/tiktoken.jsonl").read_text("utf-8")


@pytest.mark.parametrize(("name", "end"), [("gpt2", 50256), ("cl100k_base", 100257), ("o200k_base", 199999)])
def test_the_ids_are_tiktoken_s(tmp_path, name, end):
    """Python's tiktoken has written them down."""
    golden = [json.loads(line) for line in GOLDEN.split("\n") if line]
    golden = [one for one in golden if one["encoding"] == name and one["text"]]
    assert len(golden) > 10
    source = jsonl(tmp_path / "in.jsonl", [one["text"] for one in golden])
    made = lowtide.prepare(source, tmp_path / "out", tokenizer=name)
    t = lowtide.tokens(tmp_path / "out")
    assert t[:].tolist() == functools.reduce(operator.iadd, ([*one["ids"], end] for one in golden), [])
    assert t.dtype == made.dtype == (np.uint16 if end < 65536 else np.uint32)
    assert t.end_of_text == made.end_of_text == end
    assert [t.text(i) for i in range(len(golden))] == [one["text"] for one in golden]


def test_the_dtype_follows_the_vocabulary(tmp_path):
    """uint16 as far as ids go to 65,535, then uint32: by characters, of which there can be any number."""
    codes = [code for code in range(0x10000, 0x10000 + 65_537)]
    for count, dtype in [(65_535, "uint16"), (65_536, "uint16"), (65_537, "uint32")]:
        source, out = tmp_path / f"{count}.txt", tmp_path / str(count)
        source.write_text("".join(map(chr, codes[:count])))
        made = lowtide.prepare(source, out, tokenizer="chars")
        assert (made.vocabulary, made.dtype) == (count, np.dtype(dtype))
        assert lowtide.tokens(out).dtype == np.dtype(dtype)
        assert lowtide.tokens(out)[:].tolist() == list(range(count))
    made = lowtide.prepare(source, tmp_path / "idx", tokenizer="chars", format="megatron")
    assert made.dtype == np.int32  # Megatron has no uint32
    assert lowtide.tokens(tmp_path / "idx")[-1] == 65_536


def test_packed_inputs_and_nested_fields(tmp_path):
    lines = "".join(json.dumps({"id": 1, "a": {"b": text}}) + "\n" for text in TEXTS).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines[:200]) + gzip.compress(lines[200:]))
    (tmp_path / "b.data").write_bytes(gzip.compress(lines))  # told by its content
    for name, kind in [("a.jsonl.gz", None), ("b.data", "jsonl")]:
        out = tmp_path / f"{name}.out"
        lowtide.prepare(tmp_path / name, out, tokenizer="bytes", field="a.b", input=kind)
        assert lowtide.tokens(out)[:].tolist() == by_bytes(TEXTS)


@pytest.mark.heavy
@pytest.mark.parametrize("packing", ["zstd", "snappy", "gzip", "NONE"])
def test_parquet_and_zstd_of_pyarrow(tmp_path, packing):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"n": list(range(len(TEXTS))), "body": [text or None for text in TEXTS]})
    parquet.write_table(table, tmp_path / "in.parquet", compression=packing, row_group_size=2)
    made = lowtide.prepare(tmp_path / "in.parquet", tmp_path / "out", tokenizer="bytes", field="body")
    assert lowtide.tokens(tmp_path / "out")[:].tolist() == by_bytes(TEXTS)
    assert made.empty == 1
    with pytest.raises(ValueError, match=r'a column of text, "text", found the columns n, body'):
        lowtide.prepare(tmp_path / "in.parquet", tmp_path / "other", tokenizer="bytes")
    lines = jsonl(tmp_path / "in.jsonl", TEXTS).read_bytes()
    (tmp_path / "in.jsonl.zst").write_bytes(pyarrow.compress(lines, codec="zstd", asbytes=True))
    lowtide.prepare(tmp_path / "in.jsonl.zst", tmp_path / "zst", tokenizer="bytes")
    assert lowtide.tokens(tmp_path / "zst")[:].tolist() == by_bytes(TEXTS)


def test_text_in_files_lines_and_between_separators(tmp_path):
    folder = tmp_path / "in"
    for name, text in [("b.txt", "bee"), ("a/c.txt", "sea"), ("a/d.md", "no"), (".hidden.txt", "no")]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    made = lowtide.prepare(folder, tmp_path / "files", tokenizer="bytes", include="*.txt")
    t = lowtide.tokens(tmp_path / "files")
    assert [t.text(i) for i in range(made.documents)] == ["sea", "bee"]
    lowtide.prepare(folder, tmp_path / "both", tokenizer="bytes", include=["*.txt", "*.md"])
    assert lowtide.tokens(tmp_path / "both").documents == 3
    (tmp_path / "lines.txt").write_bytes(b"one\r\ntwo\n\nthree")
    lowtide.prepare(str(tmp_path / "l*.txt"), tmp_path / "lines", tokenizer="bytes", split_lines=True)
    assert lowtide.tokens(tmp_path / "lines")[:].tolist() == by_bytes(["one", "two", "three"])
    lowtide.prepare(tmp_path / "lines.txt", tmp_path / "parts", tokenizer="bytes", separator="\n\n")
    assert lowtide.tokens(tmp_path / "parts")[:].tolist() == by_bytes(["one\r\ntwo", "three"])


def test_standard_input(tmp_path):
    texts = many()
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    command = [*COMMAND, "prepare", "-", "-o", tmp_path / "out", "--input", "jsonl", "--tokenizer", "bytes"]
    said = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    assert lowtide.tokens(tmp_path / "out")[:].tolist() == by_bytes(texts)


def test_the_split_is_of_the_seed_not_of_the_threads(tmp_path):
    texts = many()
    source = jsonl(tmp_path / "in.jsonl", texts)
    seen = []
    for threads, budget in [(1, "64MiB"), (2, "256MiB"), (5, "48MiB")]:
        out = tmp_path / f"out{threads}"
        made = lowtide.prepare(
            source,
            out,
            tokenizer="bytes",
            val=0.2,
            seed=3,
            threads=threads,
            budget=budget,
            shard_tokens="50k",
        )
        seen.append(contents(out))
    assert seen[0] == seen[1] == seen[2]
    train, val = lowtide.tokens(out), lowtide.tokens(out, split="val")
    parts = [[t.text(i) for i in range(t.documents)] for t in (train, val)]
    assert sorted(parts[0] + parts[1]) == sorted(text for text in texts if text)
    order = {text: i for i, text in enumerate(texts)}
    assert all([order[text] for text in part] == sorted(order[text] for text in part) for part in parts)
    assert 0.1 < len(parts[1]) / (len(parts[0]) + len(parts[1])) < 0.3
    assert made.splits["val"]["documents"] == len(parts[1])
    other = tmp_path / "other"
    lowtide.prepare(source, other, tokenizer="bytes", val=0.2, seed=4)
    assert lowtide.tokens(other, split="val")[:100].tolist() != val[:100].tolist()


def test_documents_in_another_order(tmp_path):
    texts = [text for text in many() if text]
    source = jsonl(tmp_path / "in.jsonl", texts)
    orders = []
    for out, seed in [("a", 1), ("b", 1), ("c", 2)]:
        lowtide.prepare(source, tmp_path / out, tokenizer="bytes", shuffle_documents=seed)
        t = lowtide.tokens(tmp_path / out)
        orders.append([t.text(i) for i in range(t.documents)])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(texts)


def test_what_was_made_is_pickled_as_its_folder(tmp_path):
    made = lowtide.prepare(jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out", tokenizer="bytes", val=0.5)
    copy = pickle.loads(pickle.dumps(made))
    assert repr(copy) == repr(made)
    assert copy.path == made.path
    (tmp_path / "out" / "lowtide.json").unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(made))


def test_what_an_open_split_says_and_keeps(tmp_path):
    lowtide.prepare(jsonl(tmp_path / "in.jsonl", many()), tmp_path / "out", tokenizer="bytes", val=0.3)
    train, val = lowtide.tokens(tmp_path / "out"), lowtide.tokens(tmp_path / "out", split="val")
    assert (train.split, val.split) == ("train", "val")
    assert re.search(r'val\.bin" split=val tokens=\d+ dtype=uint16', repr(val))
    page = val._repr_html_()
    assert all("<td" in page and word in page for word in ["split", "val", "tokenizer", "bytes", "documents"])
    again = pickle.loads(pickle.dumps(val))
    assert (again.split, again.end_of_text, again.documents, len(again)) == (
        "val",
        256,
        val.documents,
        len(val),
    )
    assert again.text(3) == val.text(3)
    # By their own names, or a glob, files bring what the manifest says.
    assert lowtide.tokens(tmp_path / "out" / "val.bin").split == "val"
    assert lowtide.tokens(str(tmp_path / "out" / "va*.bin")).end_of_text == 256
    both = lowtide.tokens([tmp_path / "out" / "train.bin", tmp_path / "out" / "val.bin"])
    assert (both.split, both.end_of_text, both.documents) == (None, 256, train.documents + val.documents)
    with pytest.raises(ValueError, match='there is no split "test" here\nhint: one of "train", "val"'):
        lowtide.tokens(tmp_path / "out", split="test")
    np.arange(100, dtype="<u2").tofile(tmp_path / "plain.bin")
    with pytest.raises(ValueError, match='split="val" is for a folder that lowtide prepare has made'):
        lowtide.tokens(tmp_path / "plain.bin", split="val")
    plain = lowtide.tokens(tmp_path / "plain.bin")
    assert (plain.split, plain.end_of_text, plain.vocabulary) == (None, None, None)


def test_a_manifest_tells_the_dtype_of_bare_tokens(tmp_path):
    """Small ids in uint32 look like anything; nobody is warned, nothing is misread, by any name."""
    (tmp_path / "in.txt").write_text("hello")
    lowtide.prepare(tmp_path / "in.txt", tmp_path / "out", tokenizer="o200k_base")
    for name in [tmp_path / "out", tmp_path / "out" / "train.bin", str(tmp_path / "out" / "*.bin")]:
        t = lowtide.tokens(name)
        assert t.dtype == np.uint32
        assert t[:].tolist() == [24912, 199999]
        assert t.text(0) == "hello"


@pytest.mark.parametrize("change", [-2, 2])
def test_a_shard_of_another_size_than_it_had_is_refused(tmp_path, change):
    """Bare tokens do not say how many they are: half a copy would be trained on."""
    source = jsonl(tmp_path / "in.jsonl", TEXTS)
    lowtide.prepare(source, tmp_path / "out", tokenizer="bytes", shard_tokens=1000)
    t = lowtide.tokens(tmp_path / "out")
    path, size = t.files[1], t.files[1].stat().st_size
    with path.open("r+b") as file:
        file.truncate(size + change)
    said = rf"{path.name}: .*expected {size} bytes, as lowtide.json has it, found {size + change} bytes"
    for name in [tmp_path / "out", str(tmp_path / "out" / "*.bin"), list(t.files)]:
        with pytest.raises(ValueError, match=said):
            lowtide.tokens(name)
    assert len(lowtide.tokens(tmp_path / "out", format="nanogpt", dtype="uint16")) == len(t) + change // 2
    assert not lowtide.verify(tmp_path / "out").ok


def test_a_dtype_that_is_not_the_manifest_s_is_refused(tmp_path):
    lowtide.prepare(jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out", tokenizer="bytes")
    assert lowtide.tokens(tmp_path / "out", dtype="uint16").dtype == np.uint16
    for name in [tmp_path / "out", tmp_path / "out" / "train.bin"]:
        with pytest.raises(ValueError, match=r"lowtide\.json: the file says uint16, dtype= says uint32"):
            lowtide.tokens(name, dtype="uint32")


def test_a_split_that_turns_out_empty(tmp_path):
    made = lowtide.prepare(
        jsonl(tmp_path / "in.jsonl", ["a", "b"]), tmp_path / "out", tokenizer="bytes", val=1e-9
    )
    assert list(made.splits) == ["train"]
    assert not (tmp_path / "out" / "val.bin").exists()
    with pytest.raises(ValueError, match=r'there is no split "val" here\nhint: one of "train"$'):
        lowtide.tokens(tmp_path / "out", split="val")


def test_a_file_without_text_and_none_with_any(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("")
    (tmp_path / "in" / "b.txt").write_text("text")
    made = lowtide.prepare(tmp_path / "in", tmp_path / "out", tokenizer="bytes")
    assert (made.documents, made.empty, made.tokens) == (1, 1, 5)
    with pytest.raises(ValueError, match="there is no text in the input"):
        lowtide.prepare(tmp_path / "in" / "a.txt", tmp_path / "none", tokenizer="bytes")
    assert not (tmp_path / "none" / "lowtide.json").exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="no files are meant by this"):
        lowtide.prepare(tmp_path / "folder", tmp_path / "none", tokenizer="bytes")


def test_what_cannot_be_read_is_named_or_counted(tmp_path):
    good = [json.dumps({"text": text}).encode() for text in ["one", "two"]]
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\n".join([good[0], b"not json", good[1], b'{"body": 1}']) + b"\n")
    place = f"at byte {len(good[0]) + 1}: expected a line of JSON with text, found .*line 2"
    with pytest.raises(ValueError, match=rf"in\.jsonl: {place}[\s\S]*hint: .*field=.*on_error=\"skip\""):
        lowtide.prepare(source, tmp_path / "stop", tokenizer="bytes")
    made = lowtide.prepare(source, tmp_path / "skip", tokenizer="bytes", on_error="skip")
    assert (made.documents, made.skipped) == (2, 2)
    assert lowtide.tokens(tmp_path / "skip")[:].tolist() == by_bytes(["one", "two"])
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"first\nna\xefve\n")
    with pytest.raises(
        ValueError, match=r"latin\.txt: at byte 8: expected text in UTF-8, found the byte 0xef \(line 2\)"
    ):
        lowtide.prepare(latin, tmp_path / "latin", tokenizer="bytes")
    made = lowtide.prepare(latin, tmp_path / "lines", tokenizer="bytes", split_lines=True, on_error="skip")
    assert (made.documents, made.skipped) == (1, 1)
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(jsonl(tmp_path / "whole.jsonl", many()).read_bytes())[:-500])
    with pytest.raises(ValueError, match=r"cut\.jsonl\.gz: at byte \d+: expected more of the file"):
        lowtide.prepare(cut, tmp_path / "cut", tokenizer="bytes")


def test_the_same_call_again_does_nothing_and_another_is_refused(tmp_path):
    source, out = jsonl(tmp_path / "in.jsonl", TEXTS), tmp_path / "out"
    made = lowtide.prepare(source, out, tokenizer="bytes")
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = lowtide.prepare(source, out, tokenizer="bytes", threads=1, budget="64MiB")
    assert repr(again) == repr(made)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    for more, said in [
        ({"val": 0.5}, "it was made with val=0.0, this is val=0.5"),
        ({"format": "npy"}, 'it was made with format="nanogpt", this is format="npy"'),
        ({"shuffle_documents": 3}, "it was made with shuffle_documents=None, this is shuffle_documents=3"),
        ({"tokenizer": "gpt2"}, 'it was made with tokenizer="bytes", this is tokenizer="gpt2"'),
    ]:
        with pytest.raises(ValueError, match=said):
            lowtide.prepare(source, out, **{"tokenizer": "bytes", **more})
    said = subprocess.run(
        [*COMMAND, "prepare", source, "-o", out, "--tokenizer", "bytes", "--shard-tokens", "5k"],
        capture_output=True,
        text=True,
    )
    assert said.returncode == 2
    assert "it was made with no --shard-tokens, this is --shard-tokens 5000" in said.stderr
    jsonl(source, TEXTS[:2])
    with pytest.raises(ValueError, match=r"in\.jsonl has changed since"):
        lowtide.prepare(source, out, tokenizer="bytes")
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    np.arange(9, dtype="<u2").tofile(tmp_path / "train.bin")
    with pytest.raises(ValueError, match=r"has a train\.bin already"):
        lowtide.prepare(source, tmp_path, tokenizer="bytes")


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (
            {"tokenizer": "gpt5"},
            ValueError,
            r'there is no tokenizer "gpt5"\nhint: one of gpt2, .*cl100k_base',
        ),
        ({"tokenizer": 3}, TypeError, "tokenizer is a name or a path, not int"),
        ({"tokenizer": "no/tokenizer.json"}, FileNotFoundError, "tokenizer.json"),
        ({"format": "hdf5"}, ValueError, "not a token format"),
        ({"val": 1.5}, ValueError, r"val=1.5 is no share of the documents"),
        ({"val": float("nan")}, ValueError, r"no share of the documents"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"shard_tokens": 0}, ValueError, "shard_tokens=0"),
        ({"shard_tokens": "many"}, ValueError, '"many" is no number of tokens'),
        ({"input": "csv"}, ValueError, r'input="csv" is no kind of input\nhint: one of "text", "lines"'),
        ({"on_error": "ignore"}, ValueError, r'on_error="ignore".*\nhint: one of "stop", "skip"'),
        ({"on_error": None}, TypeError, r"on_error=None is not a word"),
        ({"threads": 0}, ValueError, "threads=0"),
        (
            {"budget": "1MiB"},
            MemoryError,
            r"needs .* the budget is 1 MiB\nhint: a larger budget=, or fewer threads=",
        ),
        ({"cache": "none"}, ValueError, "cache"),
        ({"field": "a..b"}, ValueError, r'field="a..b" is no path'),
        ({"separator": ""}, ValueError, "separator= is empty"),
        ({"separator": "x", "input": "jsonl"}, ValueError, r'separator= is for text, not for input="jsonl"'),
        ({"split_lines": True, "input": "jsonl"}, ValueError, r'split_lines=True is input="lines"'),
        ({"split_lines": True, "separator": "x"}, ValueError, "not both"),
        ({"include": "*.md"}, ValueError, r"no files are meant by this\nhint: is include= what you meant"),
        ({"include": 3}, TypeError, "include is a pattern"),
        ({"progress": 5}, TypeError, "progress=5 cannot be called"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_made(tmp_path, arguments, error, said):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("text")
    with pytest.raises(error, match=said):
        lowtide.prepare(tmp_path / "in", tmp_path / "out", **{"tokenizer": "bytes", **arguments})
    assert not (tmp_path / "out").exists()


def test_errors_of_the_system_are_pythons_own(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        lowtide.prepare(tmp_path / "gone.txt", tmp_path / "out", tokenizer="bytes")
    assert caught.value.filename == str(tmp_path / "gone.txt")
    (tmp_path / "in.txt").write_text("text")
    with pytest.raises(FileExistsError) as caught:
        lowtide.prepare(tmp_path / "in.txt", tmp_path / "in.txt", tokenizer="bytes")
    assert caught.value.filename == str(tmp_path / "in.txt")  # not the folder that would be in it
    with pytest.raises(TypeError, match="inputs are named by a path or a list of paths, not by generator"):
        lowtide.prepare((name for name in ["x"]), tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        lowtide.verify(tmp_path / "gone")
    with pytest.raises(ValueError, match="no files are named"):
        lowtide.verify([])


def test_progress_is_told_and_can_stop_it(tmp_path):
    source, out = jsonl(tmp_path / "in.jsonl", many()), tmp_path / "out"
    seen = []
    made = lowtide.prepare(source, out, tokenizer="bytes", progress=seen.append)
    assert seen[-1] == {
        "step": "encoding",
        "bytes_read": source.stat().st_size,
        "bytes": source.stat().st_size,
        "documents": made.documents,
        "tokens": made.tokens,
        "skipped": 0,
    }

    def stop(at):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        lowtide.prepare(source, tmp_path / "stopped", tokenizer="bytes", progress=stop)
    assert not (tmp_path / "stopped" / "lowtide.json").exists()
    lowtide.prepare(source, tmp_path / "stopped", tokenizer="bytes", progress=False)
    assert contents(tmp_path / "stopped") == contents(out)


def test_a_long_run_tells_the_logger(tmp_path, caplog):
    """Where stderr is no terminal: as other long work does."""
    source = tmp_path / "in.txt"
    os.mkfifo(source)

    def feed():
        with source.open("wb") as pipe:
            for _ in range(14):
                pipe.write(b"word " * 1000)
                pipe.flush()
                time.sleep(0.05)

    feeder = threading.Thread(target=feed)
    feeder.start()
    with caplog.at_level(logging.INFO, "lowtide"):
        lowtide.prepare(source, tmp_path / "out", tokenizer="bytes")
    feeder.join()
    assert any("preparing tokens: " in record.getMessage() for record in caplog.records)


def test_other_threads_run_meanwhile(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("all work and no play " * 400_000)
    ticks, over = [], threading.Event()

    def tick():
        while not over.wait(0.005):
            ticks.append(time.monotonic())

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.monotonic()
    lowtide.prepare(source, tmp_path / "out", threads=1)
    took = time.monotonic() - begin
    over.set()
    ticker.join()
    assert len(ticks) > took / 0.005 / 10, (len(ticks), took)


INTERRUPTED = """
import os, signal, sys, threading, time, lowtide
source, out, arguments = sys.argv[1], sys.argv[2], eval(sys.argv[3])
begun = threading.Event()
pressed = []

def press():
    begun.wait()
    time.sleep(float(sys.argv[4]))
    pressed.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    lowtide.prepare(source, out, progress=lambda at: begun.set(), **arguments)
    print("done")
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - pressed[0])
"""


def interrupt(source, out, arguments, after, **how):
    command = [sys.executable, "-c", INTERRUPTED, source, out, repr(arguments), str(after)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, **how
    ).stdout.split()


@pytest.mark.parametrize(
    "arguments",
    [
        {"shuffle_documents": 1, "val": 0.1},
        pytest.param({}, marks=pytest.mark.heavy),
        pytest.param({"tokenizer": "chars"}, marks=pytest.mark.heavy),
    ],
)
def test_ctrl_c_ends_it_at_once_and_the_same_call_goes_on(tmp_path, arguments):
    numbers = np.random.default_rng(0).integers(0, 100_000, 1_500_000)
    source = tmp_path / "in.txt"
    text = "".join(f"{number}\n" if i % 9 == 0 else f"{number} " for i, number in enumerate(numbers.tolist()))
    quick = arguments.get("tokenizer") == "chars"  # a tenth of a second for one of them
    source.write_text(text * (8 if quick else 1))
    arguments = {"split_lines": True, "threads": 1, **arguments}
    said = []
    for after in [0.0, 0.1, 0.3]:
        said.append(interrupt(source, tmp_path / "out", arguments, after))
    waits = [float(words[1]) for words in said if words[0] == "interrupted"]
    assert waits, said
    # A tenth of a second where the machine is free, which it need not be: all of it takes seconds.
    assert max(waits) < 1, waits
    lowtide.prepare(source, tmp_path / "out", **arguments)
    lowtide.prepare(source, tmp_path / "whole", **arguments)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_ctrl_c_while_standard_input_is_silent(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"some words\n")
    try:
        said = interrupt("-", tmp_path / "out", {"tokenizer": "bytes"}, 0.2, stdin=reader)
    finally:
        os.close(reader)
        os.close(writer)
    assert said[0] == "interrupted"
    assert float(said[1]) < 1


def test_a_killed_command_goes_on(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("".join(f"line {n} of many words\n" * 20 for n in range(20_000)))
    command = [*COMMAND, "prepare", source, "-o", tmp_path / "out", "--split-lines", "--checkpoint", "0"]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.4)
    running.send_signal(signal.SIGKILL)
    running.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lowtide.prepare(source, tmp_path / "whole", split_lines=True)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_verify_finds_what_has_changed(tmp_path):
    out = tmp_path / "out"
    lowtide.prepare(jsonl(tmp_path / "in.jsonl", many()), out, tokenizer="bytes", val=0.2)
    checked = lowtide.verify(out)
    assert (checked.ok, checked.files, checked.findings) == (True, 2, [])
    assert checked
    assert checked.bytes == sum(path.stat().st_size for path in out.glob("*.bin"))
    good = (out / "val.bin").read_bytes()
    for bad, said in [
        (good[:-2], "it has .* bytes, .* were written"),
        (good[:10] + bytes([good[10] ^ 1]) + good[11:], "its bytes have changed"),
        (good[:10] + b"\x01\x01" + good[12:], "at byte 10: the id 257, the vocabulary has 257"),
    ]:
        (out / "val.bin").write_bytes(bad)
        checked = lowtide.verify([out])
        ((path, what),) = checked.findings
        assert not checked.ok
        assert not checked
        again = pickle.loads(pickle.dumps(checked))
        assert (again.files, again.bytes, again.findings) == (2, checked.bytes, checked.findings)
        assert path == out / "val.bin"
        assert re.search(said, what), what
        said = subprocess.run([*COMMAND, "verify", out], capture_output=True, text=True)
        assert said.returncode == 1
        assert "val.bin: " in said.stderr
        assert "findings=1" in repr(checked)
    (out / "val.bin").unlink()
    assert "cannot be opened" in lowtide.verify(out).findings[0][1]
    manifest = json.loads((out / "lowtide.json").read_text())
    (out / "lowtide.json").write_text(json.dumps(manifest | {"lowtide": 9}))
    with pytest.raises(ValueError, match="version 9"):
        lowtide.verify(out)
    plain = tmp_path / "plain.bin"
    (50_000 ** np.random.default_rng(0).random(5_000)).astype("<u4").tofile(plain)
    ((path, what),) = lowtide.verify(plain).findings
    assert path == plain
    assert 'looks like uint32: say dtype="uint32"' in what


def test_a_tokenizer_json_lies_beside_its_tokens(tmp_path, monkeypatch):
    """A word-level tokenizer, whose ids can be told by hand; the folder can be moved, and still be read."""
    words = {"[UNK]": 0, "low": 1, "tide": 2, "</s>": 3}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
    monkeypatch.chdir(tmp_path)
    Path("tok").mkdir()
    Path("tok/tokenizer.json").write_text(json.dumps(tokenizer))
    Path("in.txt").write_text("low tide high tide")
    made = lowtide.prepare("in.txt", "out", tokenizer=Path("tok/tokenizer.json"))
    assert (made.vocabulary, made.end_of_text, made.tokenizer) == (4, 3, "tok/tokenizer.json")
    assert lowtide.tokens("out")[:].tolist() == [1, 2, 0, 2, 3]
    Path("tok/tokenizer.json").unlink()
    Path("out").rename("moved")
    assert lowtide.tokens("moved").text(0) == "low tide [UNK] tide"
    (tmp_path / "moved" / "lowtide.tokenizer.json").write_text(
        json.dumps(tokenizer).replace("high", "hi") + " "
    )
    with pytest.raises(ValueError, match="is not the one that made these tokens"):
        lowtide.tokens("moved").text(0)


def test_plain_files_are_read_with_the_tokenizer_that_is_named(tmp_path):
    """nanoGPT's own files: no manifest, and nobody has said where documents end."""
    path = tmp_path / "train.bin"
    np.array([31373, 995, 50256, 31373, 50256], "<u2").tofile(path)
    t = lowtide.tokens(path, dtype="uint16")
    with pytest.raises(
        ValueError, match='which tokenizer made these tokens\nhint: say it, as in tokenizer="gpt2"'
    ):
        t.text(0)
    assert [t.text(i, tokenizer="gpt2") for i in (0, 1, -1)] == ["hello world", "hello", "hello"]
    assert t.documents is None  # that was only for looking
    with pytest.raises(ValueError, match="the table of chars lies beside the tokens that it made"):
        t.text(0, tokenizer="chars")
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"document {number} is out of range: there are 2"):
            t.text(number, "gpt2")
    assert t.decode([31373, 50256], "gpt2") == "hello<|endoftext|>"
    x, _ = t.windows([0], 3)
    assert t.decode(x[0], "gpt2") == "hello world<|endoftext|>"
    with pytest.raises(TypeError, match=r"hint: a row of a batch is x\[0\]"):
        t.decode(x, "gpt2")
    with pytest.raises(ValueError, match=r"-100 is no id"):
        t.decode([-100], "gpt2")
    with pytest.raises(ValueError, match=r"gpt2 has no token 60000\nhint: its ids are below 50257"):
        t.decode([60000], "gpt2")
    said = subprocess.run([*COMMAND, "info", "--show", "3", path], capture_output=True, text=True)
    assert said.returncode == 1
    assert "--tokenizer gpt2" in said.stderr
    command = [*COMMAND, "info", "--show", "3", "--tokenizer", "gpt2", path]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"\ndocument 0, 2 tokens\n  hello world\n\ndocument 1, 1 token\n  hello\n$", said)


def test_what_is_shown_is_safe_and_short(tmp_path):
    texts = ["\x1b]0;owned\x07 \x9b2J\rover\u202ewrite", "word " * 1_000_000, "é" * 1000, "last"]
    source, out = jsonl(tmp_path / "in.jsonl", texts), tmp_path / "out"
    lowtide.prepare(source, out, tokenizer="bytes")
    said = subprocess.run(
        [*COMMAND, "info", "--show", "3", out], capture_output=True, check=True
    ).stdout.decode()
    shown = said.split("\ndocument 0, ")[1]
    assert "\\x1b]0;owned\\x07 \\x9b2J\\rover\\u{202e}write" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "document 1, 5,000,000 tokens" in shown
    assert "… and 4,999,744 more tokens" in shown
    assert "é" * 128 + "\n" in shown
    assert "last" not in shown
    assert len(shown) < 2_000
    said = subprocess.run(
        [*COMMAND, "info", "--show", "9", "--json", out], capture_output=True, check=True
    ).stdout
    answer = json.loads(said)[0]
    assert [one["document"] for one in answer["shown"]] == [0, 1, 2, 3]
    assert answer["shown"][0] == {
        "document": 0,
        "tokens": len(texts[0].encode()),
        "text": texts[0],
        "left_out": 0,
    }
    assert answer["prepared"]["tokenizer"]["end_of_text"] == 256
    assert answer["documents"] == 4


def test_info_shows_the_manifest(tmp_path):
    source, out = jsonl(tmp_path / "in.jsonl", many()), tmp_path / "out"
    made = lowtide.prepare(source, out, tokenizer="bytes", val=0.2)
    said = subprocess.run([*COMMAND, "info", out], capture_output=True, text=True, check=True).stdout
    train, val = made.splits["train"], made.splits["val"]
    for line in [
        f"  tokens {train['tokens']:,}",
        f"  documents {train['documents']:,}, by the manifest",
        "  tokenizer bytes, 257 ids, 256 between documents",
        f"  split train, {train['tokens']:,} tokens, {train['documents']:,} documents: this one",
        f"  split val, {val['tokens']:,} tokens, {val['documents']:,} documents",
    ]:
        assert line in re.sub(r"(?m)(?<=\S) +", " ", said), (line, said)
    command = [*COMMAND, "info", out, "--split", "val", "--show", "1", "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[0]
    assert answer["tokens"] == val["tokens"]
    assert answer["shown"][0]["text"] == lowtide.tokens(out, split="val").text(0)


def test_a_terminal_sees_a_line_that_goes_away(tmp_path):
    source = tmp_path / "in.txt"
    source.write_text("all work and no play " * 200_000)
    program = f"import lowtide; lowtide.prepare({str(source)!r}, {str(tmp_path / 'out')!r})"
    ours, theirs = os.openpty()
    running = subprocess.Popen([sys.executable, "-c", program], stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert running.wait() == 0
    lines = said.split(b"\r\x1b[K")
    assert lines[0] == lines[-1] == b""
    assert re.search(rb"\d+ %  \d+ documents, [\d,]+ tokens, .*/s", lines[-2])


def test_the_manifest_is_the_same_for_the_same_call(tmp_path):
    source = jsonl(tmp_path / "in.jsonl", many())
    digests = set()
    for out in ["a", "b"]:
        lowtide.prepare(source, tmp_path / out, tokenizer="bytes", val=0.1, format="datatrove")
        files = sorted(contents(tmp_path / out).items())
        digests.add(hashlib.sha256(repr(files).encode()).hexdigest())
    assert len(digests) == 1


def test_the_command_says_what_it_takes_and_what_it_made(tmp_path):
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    command = [*COMMAND, "prepare", tmp_path / "in.txt", "-o", tmp_path / "out"]
    for flag, wrong, words in [
        ("--input", "csv", "text, lines, jsonl, parquet"),
        ("--format", "hdf5", "nanogpt, llmc, megatron, datatrove, npy, olmo, raw"),
        ("--on-error", "ignore", "stop, skip"),
        ("--cache", "none", "auto, keep, drop"),
    ]:
        said = subprocess.run([*command, flag, wrong], capture_output=True, text=True)
        assert said.returncode == 2
        assert f"[possible values: {words}]" in said.stderr
    assert not (tmp_path / "out").exists()
    said = subprocess.run([*command, "--val", "1e-9"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"train +\d+ tokens, 1 document: train\.bin", said)
    assert re.search(r"val +nothing: of so few documents none was drawn", said)
    assert (
        "`"
        not in subprocess.run([*COMMAND, "prepare", "--help"], capture_output=True, text=True).stdout.split(
            "--color"
        )[0]
    )
