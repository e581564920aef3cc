"""``lowtide.verify`` and ``lowtide verify`` of arrays and of token files that others have made."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import lowtide

COMMAND = [sys.executable, "-m", "lowtide", "verify"]


def test_arrays_are_read_whole(tmp_path):
    rows = np.random.default_rng(0).random((5_000, 300), dtype="float32")
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    told = []
    checked = lowtide.verify(path, budget="8MiB", progress=lambda done, total: told.append((done, total)))
    assert (checked.ok, checked.files, checked.bytes) == (True, 1, path.stat().st_size)
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    np.save(tmp_path / "f.npy", np.asfortranarray(rows))
    rows.tofile(tmp_path / "raw.bin")
    np.save(tmp_path / "empty.npy", rows[:0])
    assert lowtide.verify([tmp_path / "f.npy", tmp_path / "empty.npy"]).files == 2
    assert lowtide.verify(tmp_path / "raw.bin", dtype="float32", shape=(-1, 300))
    with pytest.raises(ValueError, match="rows of 1204 bytes"):
        lowtide.verify(tmp_path / "raw.bin", dtype="float32", shape=(-1, 301))
    (tmp_path / "parts").mkdir()
    for part in range(3):
        np.save(tmp_path / "parts" / f"{part}.npy", rows[:100])
    several = lowtide.verify(tmp_path / "parts")
    assert (several.ok, several.files) == (True, 3)
    assert lowtide.verify(tmp_path / "parts" / "*.npy").files == 3
    for wrong in (path.read_bytes()[:-1], path.read_bytes() + b"x"):
        path.write_bytes(wrong)
        with pytest.raises((ValueError, OSError), match=r"rows\.npy"):
            lowtide.verify(path)
        said = subprocess.run([*COMMAND, path], capture_output=True, text=True)
        assert said.returncode == 1
        assert "rows.npy" in said.stderr


def test_a_file_that_cannot_be_opened_keeps_nobody_from_the_others(tmp_path):
    rows = np.arange(3_000, dtype="uint16").reshape(-1, 3)
    for name in ("cut.npy", "well.npy", "long.npy"):
        np.save(tmp_path / name, rows)
    whole = (tmp_path / "well.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-1])
    (tmp_path / "long.npy").write_bytes(whole + b"x")
    (tmp_path / "empty").mkdir()
    names = ["cut.npy", "missing.npy", "empty", "well.npy", "long.npy"]
    said = subprocess.run([*COMMAND, *names], capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 1
    assert "well.npy: well" in said.stdout
    for name in (
        "cut.npy: at byte 128",
        "missing.npy: cannot open",
        "in this folder",
        "long.npy: at byte 6128",
    ):
        assert name in said.stderr
    said = subprocess.run([*COMMAND, *names, "--json"], capture_output=True, text=True, cwd=tmp_path)
    answers = json.loads(said.stdout)
    assert (said.returncode, [answer["path"] for answer in answers]) == (1, names)
    assert [len(answer["findings"]) for answer in answers] == [1, 1, 1, 0, 1]
    assert "at byte 128" in answers[0]["findings"][0]["what"]


@pytest.mark.parametrize("dtype", ["<u2", "<u4", ">u2", "<i8"])
def test_an_id_outside_the_vocabulary_is_named_with_its_place(tmp_path, dtype):
    ids = np.arange(700_000) % 500
    path = tmp_path / "train.bin"
    for place in (0, 4_096, 699_999):
        ids[place] = 500
        ids.astype(dtype).tofile(path)
        if dtype in ("<u2", "<u4"):
            assert lowtide.verify(path, dtype=dtype, vocab=501)
        checked = lowtide.verify(path, dtype=dtype, vocab=500)
        at = place * np.dtype(dtype).itemsize
        assert checked.findings[-1] == (path, f"at byte {at}: the id 500, the vocabulary has 500")
        ids[place] = 0
    said = subprocess.run([*COMMAND, path, "--dtype", dtype, "--vocab", "500", "--json"], capture_output=True)
    (answer,) = json.loads(said.stdout)
    assert answer["bytes"] == path.stat().st_size
    assert (said.returncode, answer["findings"][-1:]) == (
        1,
        [{"file": "", "what": f"at byte {at}: the id 500, the vocabulary has 500"}],
    )


def test_an_index_of_documents_is_looked_through(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(50)))
    made = lowtide.prepare(source, tmp_path / "out", tokenizer="bytes", format="datatrove", shard_tokens=100)
    assert len(list((tmp_path / "out").glob("*.index"))) > 2
    (made.path / "lowtide.json").unlink()  # as datatrove leaves its files
    assert lowtide.verify(made.path)
    index = sorted(made.path.glob("*.index"))[1]
    ends = np.fromfile(index, "<u8")
    ends[[1, 2]] = ends[[2, 1]]
    ends.tofile(index)
    ((path, what),) = lowtide.verify(made.path).findings
    assert path == made.path
    assert index.name in what
    said = subprocess.run([*COMMAND, made.path], capture_output=True, text=True)
    assert said.returncode == 1
    assert index.name in said.stderr


def test_what_progress_raises_ends_it(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((4_000, 1_000)))
    calls = []

    def stop(done, total):
        calls.append(done)
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        lowtide.verify(path, progress=stop)
    assert len(calls) <= 2
    with pytest.raises(TypeError, match="progress=3 cannot be called"):
        lowtide.verify(path, progress=3)
