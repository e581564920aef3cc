"""``lowtide bench`` on token files: every dialect, nanoGPT's get_batch as the reference, whole figures."""

import json
import os
import struct

import numpy as np
import pytest
from test_bench_command import OURS, Page, bench, by_name
from token_streams import llmc

NANOGPT = ["nanoGPT's get_batch", "get_batch map held"]
TOKENS, BATCH, BLOCK = 3_000_000, 8, 256
WINDOWS = (TOKENS - BLOCK) // BLOCK // BATCH * BATCH
SHAPE = ["--batch-size", BATCH, "--block-size", BLOCK]


def tokens(count=TOKENS, dtype="<u2"):
    return np.random.default_rng(0).integers(0, 50_257, count).astype(dtype)


def settled(path):
    """On disk: what is not written yet could not be dropped from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return path


@pytest.fixture(scope="module")
def nanogpt(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokens") / "train.bin"
    tokens().tofile(path)
    return settled(path)


def check(answer, windows=WINDOWS, width=2):
    """What must be true of every answer."""
    ways = by_name(answer)
    assert list(ways)[:8] == OURS + NANOGPT
    assert (answer["kind"], answer["unit"], answer["rows"]) == ("tokens", "windows", windows)
    assert (answer["batch_size"], answer["block_size"], answer["row_bytes"]) == (BATCH, BLOCK, BLOCK * width)
    for name in OURS + NANOGPT:
        way = ways[name]
        assert "error" not in way, way
        assert way["rows"] % BATCH == 0 < way["rows"]
        assert way["batches_per_second"] == pytest.approx(way["rows"] / BATCH / way["seconds"])
    return ways


@pytest.mark.heavy
def test_shuffled_windows_of_a_cold_file(nanogpt):
    page = nanogpt.with_name("bench.html")
    answer = json.loads(bench(nanogpt, *SHAPE, "--seconds", 0.5, "--json", "--html", page))
    ways = check(answer)
    assert (answer["format"], answer["tokens"], answer["files"]) == ("nanogpt", TOKENS, 1)
    text = page.read_text()
    parsed = Page()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    assert "Windows a second" in text
    assert "{{" not in text
    if answer["start"] != "cold":
        pytest.skip("the temporary folder's filesystem does not let go of its page cache")
    # The kernel's counts: who holds its map keeps all pages that it touched, a map per batch few.
    anew, held = (ways[name] for name in NANOGPT)
    assert held["added_file_bytes"] > min(held["rows"], WINDOWS) * BLOCK * 2 / 2
    # Code that runs for the first time is mapped, too, some 4 MiB of it in either: the file is not.
    mapped = ways["lowtide map"]["added_file_bytes"] - ways["lowtide read"]["added_file_bytes"]
    assert mapped > WINDOWS * BLOCK * 2 / 2
    for way in ways.values():
        if way["kind"] != "disk":
            # A cold shuffled file fits in memory here: only a whole pass counts.
            assert way["rate_of_a_pass"] == (way["rows"] == WINDOWS)
    ours = ways["lowtide auto"]
    if ours["rows"] == anew["rows"] == WINDOWS:
        assert " × the windows/s of nanoGPT's get_batch" in answer["sentence"]
    elif WINDOWS not in (ours["rows"], anew["rows"]):
        assert "no fair ratio to nanoGPT's get_batch" in answer["sentence"]
        assert any("--seconds" in note for note in answer["notes"])


@pytest.mark.heavy
def test_draws_from_a_folder_of_shards(tmp_path):
    counts = [1_000_000, 300, BLOCK, 900_000]  # the second has few windows, the third none
    for i, count in enumerate(counts):
        settled(llmc(tmp_path / f"train_{i}.bin", tokens(count)))
    arguments = ["--order", "with_replacement", "--warm", "--seconds", 0.1, "--json"]
    answer = json.loads(bench(tmp_path, *SHAPE, *arguments))
    check(answer, (sum(counts) - BLOCK) // BLOCK // BATCH * BATCH)
    assert (answer["format"], answer["files"], answer["tokens"]) == ("llmc", 4, sum(counts))
    assert (answer["start"], answer["order"]) == ("warm", "with_replacement")


def megatron(path):
    data = tokens(TOKENS, "<i4")
    data.tofile(path.with_suffix(".bin"))
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 1, 2)
    path.with_suffix(".idx").write_bytes(head + struct.pack("<iqqq", TOKENS, 0, 0, 1))
    return [path], 4


def datatrove(path):
    tokens().tofile(path.with_suffix(".ds"))
    path.with_suffix(".ds.index").write_bytes(struct.pack("<Q", TOKENS))
    return [path.with_suffix(".ds")], 2


def npy(path):
    np.save(path, tokens(TOKENS, ">u4"))
    return [path.with_suffix(".npy"), "--format", "npy"], 4


def olmo(path):
    tokens(TOKENS, "<u4").tofile(path.with_suffix(".npy"))
    return [path.with_suffix(".npy"), "--dtype", "uint32"], 4


@pytest.mark.heavy  # seconds each, and the same code as above
@pytest.mark.parametrize("dialect", [megatron, datatrove, npy, olmo])
def test_every_dialect(tmp_path, dialect):
    arguments, width = dialect(tmp_path / "stream")
    order = ["--order", "sequential", "--seconds", 0.05, "--json"]
    answer = json.loads(bench(*arguments, *SHAPE, *order))
    check(answer, width=width)
    assert answer["format"] == dialect.__name__


@pytest.mark.heavy
def test_with_torch_it_is_nanogpt_s_own_work(nanogpt):
    pytest.importorskip("torch")
    arguments = ["--order", "with_replacement", "--warm", "--seconds", 0.2, "--json"]
    answer = json.loads(bench(nanogpt, *SHAPE, *arguments))
    check(answer)
    assert not any("torch is not installed" in note for note in answer["notes"])


def test_the_table_says_windows(nanogpt):
    text = bench(nanogpt, *SHAPE, "--order", "sequential", "--seconds", 0.05)
    assert f"{WINDOWS:,} windows of 256 tokens" in text
    assert "windows/s" in text.splitlines()[4]
    for name in OURS + NANOGPT:
        assert f"\n  {name} " in text


def test_what_fits_the_other_kind_is_refused(nanogpt, save):
    rows = save(np.zeros((100, 3)))
    assert "--rows is for arrays" in bench(nanogpt, "--rows", 5, code=2)
    assert "are for token files" in bench(rows, "--batch-size", 5, code=2)
    assert "is for token files" in bench(rows, "--order", "with_replacement", code=2)
    assert "from 1 on" in bench(nanogpt, "--batch-size", 0, code=2)
    text = bench(nanogpt, "--block-size", 10 * TOKENS, code=1)
    assert "hint: a smaller --batch-size or --block-size" in text
    assert "would replace the file" in bench(nanogpt, "--html", nanogpt, code=2)
