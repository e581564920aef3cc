"""``lowtide.convert`` between the formats of token files: what Lowtide reads back, and what NumPy does."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

import lowtide

COMMAND = [sys.executable, "-m", "lowtide", "convert"]
FORMATS = ["nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"]
SAY_THEIR_TYPE = FORMATS[:5]  # where nobody says it; and nanoGPT's are taken to be of one
INDEXED = ["megatron", "datatrove"]
EOT = 300
CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


# Files written and read by hand: nothing of Lowtide's is in here.


def write(path, format, documents, dtype="<u2"):
    """Documents without marks: in the formats without an index, EOT stands between them."""
    path.mkdir(exist_ok=True)
    if format == "llmc":
        documents = [[EOT, *document] for document in documents]
    else:
        documents = [[*document, EOT] for document in documents]
    tokens = np.array([token for document in documents for token in document], dtype)
    lengths = [len(document) for document in documents]
    name = path / "in.bin"
    if format == "nanogpt":
        tokens.tofile(name)
    elif format == "llmc":
        magic = {"<u2": (20240520, 1), "<u4": (20240801, 7)}[dtype]
        header = np.zeros(256, "<i4")
        header[:3] = *magic, len(tokens)
        name.write_bytes(header.tobytes() + tokens.tobytes())
    elif format == "npy":
        name = path / "in.npy"
        np.save(name, tokens)
    elif format == "datatrove":
        name = path / "in.ds"
        tokens.tofile(name)
        np.cumsum(lengths, dtype="<u8").tofile(path / "in.ds.index")
        (path / "in.ds.metadata").write_text(f"gpt2|{tokens.itemsize}\n{len(tokens)}\n{len(tokens)} tokens")
    else:
        tokens.tofile(name)
        write_index(path / "in.idx", dtype, lengths)
    return name


def write_index(path, dtype, lengths, documents=None, modes=None):
    code = next(code for code, name in CODES.items() if np.dtype(name) == np.dtype(dtype))
    documents = list(range(len(lengths) + 1)) if documents is None else documents
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * np.dtype(dtype).itemsize
    parts = [b"MMIDIDX\0\0", struct.pack("<QBQQ", 1, code, len(lengths), len(documents))]
    parts += [np.array(lengths, "<i4").tobytes(), pointers.astype("<i8").tobytes()]
    parts += [np.array(documents, "<i8").tobytes(), b"" if modes is None else np.array(modes, "i1").tobytes()]
    path.write_bytes(b"".join(parts))


def read(folder, split="train"):
    """Documents with their marks, as the format has them, by its manifest's names alone."""
    manifest = json.loads((folder / "lowtide.json").read_text())
    format, found = manifest["format"], []
    shards = [part for one in manifest["splits"] if one["name"] == split for part in one["shards"]]
    for shard in shards:
        path = folder / shard["file"]
        if format == "npy":
            tokens = np.load(path)
        elif format == "llmc":
            magic, version, count = np.fromfile(path, "<i4", 3)
            tokens = np.fromfile(
                path, {(20240520, 1): "<u2", (20240801, 7): "<u4"}[magic, version], offset=1024
            )
            assert len(tokens) == count
        elif format == "megatron":
            index = path.with_suffix(".idx").read_bytes()
            version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
            assert (version, entries) == (1, sequences + 1)
            tokens = np.fromfile(path, CODES[code])
            lengths = np.frombuffer(index, "<i4", sequences, 34)
            pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
            assert (pointers == (np.cumsum(lengths) - lengths) * tokens.itemsize).all()
            assert (np.frombuffer(index, "<i8", entries, 34 + 12 * sequences) == np.arange(entries)).all()
            assert len(index) == 34 + 12 * sequences + 8 * entries
            ends = np.cumsum(lengths)
        else:
            tokens = np.fromfile(path, np.dtype(manifest["dtype"]).newbyteorder("<"))
        if format == "datatrove":
            ends = np.fromfile(f"{path}.index", "<u8")
        elif format == "llmc":
            ends = np.append(np.flatnonzero(tokens == EOT)[1:], len(tokens))
        elif format in ("nanogpt", "npy", "olmo", "raw"):
            ends = np.flatnonzero(tokens == EOT) + 1
        assert ends[-1] == len(tokens) == shard["tokens"]
        found += [part.tolist() for part in np.split(tokens, ends[:-1].astype(int))]
    return found


def marked(documents, format):
    return [[EOT, *one] if format == "llmc" else [*one, EOT] for one in documents]


@pytest.fixture(scope="module")
def home():
    """In memory, where there is such a place: hundreds of files are synced."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


# Every pair

DOCUMENTS = st.lists(st.lists(st.integers(0, EOT - 1), max_size=40), min_size=1, max_size=30)


@examples(max_examples=6)
@given(DOCUMENTS, st.sampled_from([None, 1, 50]))
@pytest.mark.parametrize(("old", "new"), list(itertools.product(SAY_THEIR_TYPE, FORMATS)))
def test_every_format_becomes_every_other_and_comes_back(home, old, new, documents, shard_tokens):
    source, there, back = home / "source", home / "there", home / "back"
    for path in source.glob("*"):
        path.unlink()
    write(source, old, documents)
    words = {"end_of_text": EOT, "overwrite": True, "progress": False}
    made = lowtide.convert(source, there, format=new, shard_tokens=shard_tokens, **words)
    assert read(there) == marked(documents, new)
    assert (made["format"], made["documents"], made["dtype"]) == (new, len(documents), "uint16")
    assert lowtide.verify(there)
    tokens = lowtide.tokens(there)
    assert (tokens.format, tokens.documents) == (new, len(documents))
    assert [tokens.document(n).tolist() for n in range(len(documents))] == marked(documents, new)
    if shard_tokens == 1:
        assert len(made["files"]) == len(documents)
    lowtide.convert(there, back, format=old, overwrite=True, progress=False)
    name = {"npy": "npy", "datatrove": "ds"}.get(old, "bin")
    numbered = "-00000" if old == "llmc" else ""
    for end in ["bin", "idx", "npy", "ds", "ds.index"]:
        if (source / f"in.{end}").exists():
            assert (back / f"train{numbered}.{end}").read_bytes() == (source / f"in.{end}").read_bytes(), name


@pytest.mark.parametrize("tokenizer", [pytest.param("gpt2", marks=pytest.mark.heavy), "chars"])
def test_what_is_converted_is_what_would_have_been_prepared(home, tokenizer):
    tmp_path = home / tokenizer
    tmp_path.mkdir()
    lines = "".join(
        json.dumps({"text": f"Document {n}: " + "low tide " * (n % 7)}) + "\n" for n in range(200)
    )
    (tmp_path / "in.jsonl").write_text(lines)
    words = {"tokenizer": tokenizer, "val": 0.2, "shard_tokens": 500, "progress": False}
    for format in FORMATS:
        lowtide.prepare(tmp_path / "in.jsonl", tmp_path / format, format=format, **words)
    ends = [lowtide.tokens(tmp_path / format).end_of_text for format in FORMATS]
    for old, new in itertools.permutations(FORMATS, 2):
        if ends[0] is None and old not in INDEXED and new in INDEXED:
            continue  # characters have no token between documents
        out = tmp_path / f"{old}-{new}"
        words = {"lossy": True} if ends[0] is None else {}
        lowtide.convert(tmp_path / old, out, format=new, shard_tokens=500, progress=False, **words)
        assert lowtide.verify(out)
        names = sorted(path.name for path in (tmp_path / new).iterdir())
        assert sorted(path.name for path in out.iterdir()) == names
        if ends[0] is None:
            continue
        for name in names:
            if name != "lowtide.json":
                assert (out / name).read_bytes() == (tmp_path / new / name).read_bytes(), (old, name)
        for split in ("train", "val"):
            assert lowtide.tokens(out, split=split).text(3) == lowtide.tokens(
                tmp_path / new, split=split
            ).text(3)


# What would be lost


def test_documents_are_not_lost_without_a_word(tmp_path):
    documents = [[1, 2], [], [3]]
    for old in INDEXED:
        write(tmp_path / old, old, documents)
        for new in ("nanogpt", "llmc", "npy"):
            with pytest.raises(ValueError, match="where documents end would be lost: format=") as caught:
                lowtide.convert(tmp_path / old, tmp_path / "out", format=new)
            assert "give end_of_text=" in str(caught.value)
            assert "lossy=True" in str(caught.value)
        lowtide.convert(tmp_path / old, tmp_path / "out", format="npy", lossy=True, overwrite=True)
        assert np.load(tmp_path / "out" / "train.npy").tolist() == [1, 2, EOT, EOT, 3, EOT]
        assert lowtide.verify(tmp_path / "out")
    plain = write(tmp_path / "plain", "nanogpt", documents)
    with pytest.raises(ValueError, match="nothing says where documents end, and format="):
        lowtide.convert(plain, tmp_path / "no", format="megatron")
    made = lowtide.convert(plain, tmp_path / "one", format="megatron", lossy=True)
    assert (made["documents"], made["tokens"]) == (1, 6)
    lowtide.convert(plain, tmp_path / "same", format="llmc")  # nobody said that there are documents
    assert np.fromfile(tmp_path / "same" / "train-00000.bin", "<u2", offset=1024).tolist() == [
        1,
        2,
        EOT,
        EOT,
        3,
        EOT,
    ]
    assert not (tmp_path / "no").exists()


def test_a_token_that_would_end_a_document_within_it_is_refused(tmp_path):
    write(tmp_path / "in", "datatrove", [[1, 2], [3, EOT, 4]])
    with pytest.raises(
        ValueError, match=r"in\.ds: at byte 8: expected documents without 300, .* found 300, token 4"
    ):
        lowtide.convert(tmp_path / "in", tmp_path / "out", format="nanogpt", end_of_text=EOT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_marks_are_put_where_there_are_none(tmp_path):
    (tmp_path / "in").mkdir()
    np.array([1, 2, 3], "<i4").tofile(tmp_path / "in" / "in.bin")
    write_index(tmp_path / "in" / "in.idx", "<i4", [2, 0, 1])  # as Megatron writes without --append-eod
    lowtide.convert(tmp_path / "in", tmp_path / "a", format="nanogpt", end_of_text=EOT)
    assert read(tmp_path / "a") == [[1, 2, EOT], [EOT], [3, EOT]]
    lowtide.convert(tmp_path / "in", tmp_path / "b", format="llmc", end_of_text=EOT)
    assert read(tmp_path / "b") == [[EOT, 1, 2], [EOT], [EOT, 3]]
    lowtide.convert(tmp_path / "in", tmp_path / "c", format="datatrove", end_of_text=EOT)
    assert read(tmp_path / "c") == [[1, 2], [], [3]]


def test_a_document_that_was_cut_to_fill_shards_is_one_again(tmp_path):
    shards = [[EOT, 1, 2], [3, EOT, 4], [5, 6]]
    for n, shard in enumerate(shards):
        header = np.zeros(256, "<i4")
        header[:3] = 20240520, 1, len(shard)
        (tmp_path / f"{n}.bin").write_bytes(header.tobytes() + np.array(shard, "<u2").tobytes())
    lowtide.convert(tmp_path / "*.bin", tmp_path / "out", format="nanogpt", end_of_text=EOT)
    assert read(tmp_path / "out") == [[1, 2, 3, EOT], [4, 5, 6, EOT]]


def test_ids_that_do_not_fit_are_named(tmp_path):
    ids = np.arange(300_000) % 50_000
    ids[[200_001, 250_000]] = 70_000
    np.save(tmp_path / "in.npy", ids)
    words = {"format": "nanogpt", "dtype": "uint16"}
    place = 128 + 8 * 200_001
    with pytest.raises(
        ValueError, match=f"at byte {place}: expected an id that uint16 can hold, found 70000, token 200001"
    ):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "out", **words)
    lowtide.convert(tmp_path / "in.npy", tmp_path / "out", lossy=True, **words)
    assert (np.fromfile(tmp_path / "out" / "train.bin", "<u2") == ids.astype("<u2")).all()
    made = lowtide.convert(tmp_path / "in.npy", tmp_path / "wide", format="nanogpt")
    assert made["dtype"] == "uint32"
    assert (lowtide.tokens(tmp_path / "wide")[:] == ids).all()
    ids[7] = -100
    np.save(tmp_path / "in.npy", ids)
    with pytest.raises(ValueError, match="expected an id, which is 0 or more, found -100, token 7"):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "no", format="npy")
    with pytest.raises(
        ValueError, match=r"format=\"llmc\" has no files of dtype=\"<i8\"\nhint: one of uint16, uint32"
    ):
        lowtide.convert(tmp_path / "in.npy", tmp_path / "no", format="llmc", dtype="int64")
    big = np.arange(100).astype(">u4")
    np.save(tmp_path / "big.npy", big)
    assert lowtide.convert(tmp_path / "big.npy", tmp_path / "little", format="npy")["dtype"] == "uint32"
    assert np.load(tmp_path / "little" / "train.npy").dtype == np.dtype("<u4")


def test_what_only_megatron_says_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    np.arange(6, dtype="<u2").tofile(tmp_path / "in" / "in.bin")
    for words, says in (
        ({"modes": [0, 0, 1]}, r"in\.idx: modes would be lost: sequence 2 has mode 1"),
        (
            {"documents": [0, 2, 3]},
            r"in\.idx: where 3 sequences end would be lost: only its 2 documents are kept",
        ),
    ):
        write_index(tmp_path / "in" / "in.idx", "<u2", [1, 2, 3], **words)
        with pytest.raises(ValueError, match=says):
            lowtide.convert(tmp_path / "in", tmp_path / "out", format="datatrove")
        made = lowtide.convert(
            tmp_path / "in", tmp_path / "out", format="datatrove", lossy=True, overwrite=True
        )
        assert made["documents"] == (3 if "modes" in words else 2)
    write_index(tmp_path / "in" / "in.idx", "<u2", [1, 2, 3], modes=[0, 0, 0])
    assert lowtide.convert(tmp_path / "in", tmp_path / "zero", format="megatron")["documents"] == 3
    write_index(tmp_path / "in" / "in.idx", "<u2", [1, 2])
    with pytest.raises(ValueError, match="the tokens from 3 on are in no document, and would be lost"):
        lowtide.convert(tmp_path / "in", tmp_path / "no", format="datatrove")


def test_what_makes_no_sense_is_refused(tmp_path):
    plain = write(tmp_path / "plain", "nanogpt", [[1]])
    for words, says in (
        ({"in_format": "nanogpt"}, "token files are meant, and no format= says which to make"),
        ({"format": "npy", "order": "F"}, "order= is for arrays"),
        ({"format": "npy", "byte_order": "big"}, 'byte_order="big" is for arrays'),
        ({"format": "npy", "shard_tokens": 0}, "such a shard is full at once"),
        ({"format": "npy", "in_format": "raw"}, r"in_format=\"raw\" has no header and needs in_dtype="),
    ):
        with pytest.raises(ValueError, match=says):
            lowtide.convert(plain, tmp_path / "out", **words)
    assert not (tmp_path / "out").exists()


# Whole or not at all


def test_a_folder_is_replaced_once_the_new_one_is_whole(tmp_path):
    source = write(tmp_path / "in", "nanogpt", [[1, 2], [3]])
    out = tmp_path / "out"
    words = {"format": "megatron", "end_of_text": EOT}
    lowtide.convert(source, out, **words)
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        lowtide.convert(source, out, **words)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def stop(at):
        raise KeyError("enough")

    with pytest.raises(KeyError):
        lowtide.convert(source, out, overwrite=True, progress=stop, **words)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    lowtide.convert(source, out, overwrite=True, format="npy")
    assert sorted(path.name for path in out.iterdir()) == ["lowtide.json", "train.npy"]
    (out / "mine.txt").write_text("")
    with pytest.raises(FileExistsError, match=r"it holds mine\.txt, which is not of its manifest"):
        lowtide.convert(source, out, overwrite=True, **words)
    (out / "mine.txt").unlink()
    (out / "lowtide.json").unlink()
    with pytest.raises(FileExistsError, match="it was not made by Lowtide"):
        lowtide.convert(source, out, overwrite=True, **words)
    (out / "train.npy").unlink()
    lowtide.convert(source, out, **words)  # an empty folder is as good as none
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_disk_without_room_is_said_before_anything_is_written(tmp_path):
    disk = os.statvfs(tmp_path)
    with open(tmp_path / "in.bin", "wb") as file:
        file.truncate((disk.f_bavail * disk.f_frsize // 4 + (1 << 20)) & ~1)  # a hole
    with pytest.raises(OSError, match="are free; nothing was written"):
        lowtide.convert(tmp_path / "in.bin", tmp_path / "out", format="npy", dtype="int64", in_dtype="uint16")
    assert [path.name for path in tmp_path.iterdir()] == ["in.bin"]


KILLED = """if True:
    import sys, lowtide
    print("ready", flush=True)
    for n in range(int(sys.argv[3]), 10_000):
        words = {"end_of_text": 300, "shard_tokens": 100_000, "overwrite": True, "progress": False}
        lowtide.convert(sys.argv[1], sys.argv[2], format=["megatron", "datatrove", "llmc"][n % 3], **words)
"""


@pytest.mark.heavy
def test_killed_at_any_moment_the_old_or_the_new_folder_is_there(tmp_path):
    ids = np.random.default_rng(0).integers(0, 301, 1_000_000).astype("<u2")
    ids[-1] = 300
    ids.tofile(tmp_path / "in.bin")
    luck, litter, seen = random.Random(0), 0, set()
    for n in range(24):
        command = [sys.executable, "-c", KILLED, tmp_path / "in.bin", tmp_path / "out", str(n)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(luck.random() * 0.4)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
        names = {path.name for path in tmp_path.iterdir()}
        assert names <= {"in.bin", "out", ".out.lowtide"}
        litter += ".out.lowtide" in names
        if "out" in names:
            assert lowtide.verify(tmp_path / "out")
            seen.add(json.loads((tmp_path / "out" / "lowtide.json").read_text())["format"])
    assert litter > 0
    assert len(seen) > 1
    lowtide.convert(tmp_path / "in.bin", tmp_path / "out", format="nanogpt", end_of_text=300, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {"in.bin", "out"}
    assert (np.fromfile(tmp_path / "out" / "train.bin", "<u2") == ids).all()


# The command


def test_the_command_converts_tokens(tmp_path):
    source = write(tmp_path / "in", "nanogpt", [[1, 2], [3]])
    words = ["--format", "datatrove", "--eot", str(EOT), "--json"]
    done = subprocess.run([*COMMAND, source, tmp_path / "out", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made.pop("seconds") >= 0
    assert made == {
        "path": str(tmp_path / "out"),
        "format": "datatrove",
        "dtype": "uint16",
        "tokens": 5,
        "documents": 2,
        "files": [str(tmp_path / "out" / "train.ds")],
    }
    done = subprocess.run(
        [*COMMAND, tmp_path / "out" / "train.ds", tmp_path / "b", "-f", "llmc"], capture_output=True
    )
    assert done.returncode == 0, "the manifest beside it knows the token between documents"
    (tmp_path / "out" / "lowtide.json").unlink()
    done = subprocess.run(
        [*COMMAND, tmp_path / "out", tmp_path / "c", "-f", "llmc"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: where documents end would be lost: --format llmc has no index of them\n"
        "hint: give --end-of-text, the token that is to stand between them; "
        "--lossy converts all the same\n",
    )
    done = subprocess.run(
        [*COMMAND, "--help"], capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert max(map(len, done.stdout.splitlines())) <= 80
