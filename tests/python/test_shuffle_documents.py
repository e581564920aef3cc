"""Documents of token files, whole, in the order of the permutation."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from token_streams import llmc

import lowtide

COMMAND = Path(sys.executable).with_name("lowtide")
END = 50256


def order(count, seed, epoch=0):
    """Which document stands at each position: the numbers of rows that a shuffled pass gives."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"lowtide-order-{os.getpid()}.npy"
    np.save(path, np.zeros(count, "u1"))
    try:
        passes = lowtide.open(path).shuffled(1000, seed=seed, epoch=epoch, with_rows=True)
        return np.concatenate([rows for rows, _ in passes] or [np.zeros(0, int)])
    finally:
        path.unlink()


def documents(count, seed=0, longest=300):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, END, rng.integers(1, longest), dtype="<u2") for _ in range(count)]


def ends(lengths):
    return np.cumsum(lengths).astype("<u8")


def nanogpt(folder, documents):
    bodies = [np.append(document, np.uint16(END)) for document in documents]
    (folder / "all.bin").write_bytes(b"".join(map(bytes, map(np.ndarray.tobytes, bodies))))
    return folder / "all.bin", bodies, {"end_of_text": END}


def llm_c(folder, documents):
    bodies = [np.insert(document, 0, np.uint16(END)) for document in documents]
    return llmc(folder / "all.bin", np.concatenate(bodies)), bodies, {"end_of_text": END}


def npy(folder, documents):
    bodies = [np.append(document, np.uint16(END)) for document in documents]
    np.save(folder / "all.npy", np.concatenate(bodies))
    return folder / "all.npy", bodies, {"end_of_text": END, "format": "npy"}


def datatrove(folder, documents):
    (folder / "all.ds").write_bytes(np.concatenate(documents).tobytes())
    (folder / "all.ds.index").write_bytes(ends([len(document) for document in documents]).tobytes())
    return folder / "all.ds", documents, {"dtype": "uint16"}


def megatron(folder, documents):
    lengths = np.array([len(document) for document in documents], "<i4")
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype("<i8") * 2
    head = b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + bytes([8])
    head += len(lengths).to_bytes(8, "little") + (len(lengths) + 1).to_bytes(8, "little")
    index = head + lengths.tobytes() + pointers.tobytes() + np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    (folder / "all.bin").write_bytes(np.concatenate(documents).tobytes())
    (folder / "all.idx").write_bytes(index)
    return folder / "all.bin", documents, {}


def read(files, **words):
    """The documents of token files, by Lowtide's own reader, as it is tested elsewhere."""
    t = lowtide.tokens(files, **words)
    return [np.asarray(t.document(n)) for n in range(t.documents or 0)]


@pytest.mark.parametrize("write", [nanogpt, llm_c, npy, datatrove, megatron])
def test_documents_come_whole_in_the_order_of_the_permutation(tmp_path, write):
    path, bodies, words = write(tmp_path, documents(1500))
    made = lowtide.shuffle_documents(path, tmp_path / "out", seed=7, epoch=2, budget="48MiB", **words)
    assert (made["documents"], made["end_of_text_added"]) == (1500, 0)
    assert made["tokens"] == sum(map(len, bodies))
    expected = [bodies[n] for n in order(1500, 7, 2)]
    opened = {name: word for name, word in words.items() if name == "end_of_text"}
    found = read(tmp_path / "out", **opened)
    assert len(found) == len(expected)
    assert all((x == y).all() for x, y in zip(found, expected, strict=True))
    assert np.concatenate(expected).tobytes() in made["files"][0].read_bytes(), "as they stand in the file"
    again = lowtide.shuffle_documents(path, tmp_path / "out", seed=7, epoch=2, budget="64MiB", **words)
    assert again["written_before"] == 2 * again["bytes"], "all of it was there"
    with pytest.raises(ValueError, match="made in another way"):
        lowtide.shuffle_documents(path, tmp_path / "out", seed=8, **words)


def test_one_file_of_the_same_documents_is_the_same_bytes(tmp_path):
    """megatron's index and datatrove's, written by hand for the shuffled documents."""
    for write in (megatron, datatrove):
        (tmp_path / write.__name__).mkdir()
        (tmp_path / "want").mkdir(exist_ok=True)
        path, bodies, words = write(tmp_path / write.__name__, documents(300))
        lowtide.shuffle_documents(path, tmp_path / f"{write.__name__}-out", seed=1, **words)
        want, _, _ = write(tmp_path / "want", [bodies[n] for n in order(300, 1)])
        for name in {"megatron": ["bin", "idx"], "datatrove": ["ds", "ds.index"]}[write.__name__]:
            made = tmp_path / f"{write.__name__}-out" / f"train.{name}"
            assert made.read_bytes() == want.with_name(f"all.{name}").read_bytes()


def test_a_document_without_its_token_gets_one(tmp_path):
    """The last one of each file: else it would run into the next."""
    first, second = np.array([1, 2, END, 3], "<u2"), np.array([4, END, 5, 6], "<u2")
    (tmp_path / "a.bin").write_bytes(first.tobytes())
    (tmp_path / "b.bin").write_bytes(second.tobytes())
    words = {"dtype": "uint16", "end_of_text": END}
    made = lowtide.shuffle_documents([tmp_path / "a.bin", tmp_path / "b.bin"], tmp_path / "out", **words)
    assert (made["documents"], made["end_of_text_added"]) == (4, 2)
    found = sorted(document.tolist() for document in read(tmp_path / "out"))
    assert found == [[1, 2, END], [3, END], [4, END], [5, 6, END]]


def test_a_prepared_folder_stays_one(tmp_path):
    lines = "".join(f"{n} " * (n % 90 + 1) + "\n" for n in range(2000))
    (tmp_path / "text.txt").write_text(lines)
    lowtide.prepare(
        [tmp_path / "text.txt"],
        tmp_path / "in",
        input="lines",
        tokenizer="gpt2",
        shard_tokens=50_000,
        val=0.1,
    )
    done = subprocess.run(
        [COMMAND, "shuffle", tmp_path / "in", "-o", tmp_path / "out", "--seed", "5", "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    source, shuffled = lowtide.tokens(tmp_path / "in"), lowtide.tokens(tmp_path / "out")
    assert told["documents"] == source.documents == shuffled.documents
    assert len(source) == len(shuffled) == told["tokens"]
    assert len(told["files"]) >= 3
    numbers = order(source.documents, 5)
    for position in range(0, len(numbers), 97):
        np.testing.assert_array_equal(
            np.asarray(shuffled.document(position)), np.asarray(source.document(int(numbers[position])))
        )
    assert lowtide.verify(tmp_path / "out")
    val = lowtide.shuffle_documents(tmp_path / "in", tmp_path / "val", split="val")
    assert [file.name for file in val["files"]] == ["val-00000.bin"] or val["files"][0].name == "val.bin"


def test_what_is_refused(tmp_path):
    path, _, words = nanogpt(tmp_path, documents(20))
    with pytest.raises(ValueError, match="end_of_text"):
        lowtide.shuffle_documents(path, tmp_path / "out")
    with pytest.raises(ValueError, match="holds what is read"):
        lowtide.shuffle_documents(path, tmp_path, **words)
    with pytest.raises(MemoryError, match="shuffling documents"):
        lowtide.shuffle_documents(path, tmp_path / "out", budget="8MiB", **words)
    index = bytearray(megatron(tmp_path, documents(20))[0].with_suffix(".idx").read_bytes())
    index[26:34] = (20).to_bytes(8, "little")  # one end of documents fewer
    del index[-8:]
    index[-8:] = (20).to_bytes(8, "little")
    (tmp_path / "all.idx").write_bytes(index)
    with pytest.raises(NotImplementedError, match="19 documents have 20 sequences"):
        lowtide.shuffle_documents(tmp_path / "all.bin", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "rows").mkdir()
    np.save(tmp_path / "rows/a.npy", np.arange(10))
    done = subprocess.run([COMMAND, "shuffle", tmp_path / "rows", tmp_path / "out.npy"], capture_output=True)
    assert done.returncode == 0, "numbers in NumPy's files are rows"


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.heavy)])
def test_killed_and_run_again_it_is_the_same(tmp_path, kills):
    path, _, _ = nanogpt(tmp_path, documents(10_000 if kills < 10 else 30_000, longest=400))
    command = [COMMAND, "shuffle", path, "--seed", "3", "--end-of-text", str(END), "--budget", "40MiB", "-o"]
    began = time.monotonic()
    subprocess.run([*command, tmp_path / "whole"], check=True, capture_output=True)
    took, rng, killed = time.monotonic() - began, np.random.default_rng(0), 0
    for _ in range(kills):
        child = subprocess.Popen([*command, tmp_path / "out", "--quiet"], stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, took))
        child.kill()
        killed += child.wait() != 0
    assert killed
    subprocess.run([*command, tmp_path / "out"], check=True, capture_output=True)
    names = sorted(file.name for file in (tmp_path / "whole").iterdir())
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == names
    for name in names:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.heavy
def test_spools_that_are_larger_than_memory_and_long_documents(tmp_path, peak):
    """512 MiB in 40 MiB, with documents of 30 MiB."""
    rng, lengths = np.random.default_rng(0), []
    with (tmp_path / "all.ds").open("wb") as file:
        while sum(lengths) < 1 << 28:
            length = 15 << 20 if len(lengths) % 10_000 == 0 else int(rng.integers(1, 5000))
            np.full(length, len(lengths) % 65536, "<u2").tofile(file)
            lengths.append(length)
    (tmp_path / "all.ds.index").write_bytes(ends(lengths).tobytes())
    command = [COMMAND, "shuffle", tmp_path / "all.ds", "-o", tmp_path / "out", "--dtype", "uint16"]
    command += ["--format", "datatrove", "--seed", "1", "--budget", "40MiB", "--quiet"]
    assert peak(command) <= (40 << 20) + (12 << 20), "the program itself has some"
    t = lowtide.tokens(tmp_path / "out", dtype="uint16")
    numbers = order(len(lengths), 1)
    for position in range(0, len(lengths), 501):
        found = np.asarray(t.document(position))
        assert len(found) == lengths[numbers[position]]
        assert (found == numbers[position] % 65536).all()
    for file in [*(tmp_path / "out").iterdir(), tmp_path / "all.ds"]:
        file.unlink()
