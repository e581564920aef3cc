"""What ``lowtide.prepare`` reads: pipes, what is in its own folder, what was passed over by name."""

import contextlib
import gzip
import json
import logging
import os
import re
import subprocess
import sys
import threading
import time

import pytest

import lowtide

COMMAND = [sys.executable, "-m", "lowtide"]

INTERRUPTED = """if True:
    import os, signal, sys, threading, time, lowtide
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pressed = []
    def press():
        time.sleep(0.3)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()
    try:
        lowtide.prepare(sys.argv[1], sys.argv[2], tokenizer="bytes")
    except KeyboardInterrupt:
        print(time.monotonic() - pressed[0])
"""


@pytest.mark.parametrize("writer", ["none", "silent"])
def test_ctrl_c_while_a_pipe_is_silent(tmp_path, python, writer):
    """Also while nobody has opened the pipe to write into it: opening it would wait."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR) if writer == "silent" else None
    try:
        # Alive or not after so long: waiting would be for ever.
        assert float(python(INTERRUPTED, pipe, tmp_path / "out", timeout=30)) < 5
    finally:
        if end is not None:
            os.close(end)


def test_a_pipe_is_read_to_its_end(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    texts = [f"text {n} " * 500 for n in range(100)]

    def feed():
        time.sleep(0.2)  # the reader is there first
        with pipe.open("w") as file:
            for text in texts:
                file.write(json.dumps({"text": text}) + "\n")
                file.flush()
                time.sleep(0.001)

    feeder = threading.Thread(target=feed)
    feeder.start()
    lowtide.prepare(pipe, tmp_path / "out", tokenizer="bytes", input="jsonl")
    feeder.join()
    t = lowtide.tokens(tmp_path / "out")
    assert [t.text(i) for i in range(t.documents)] == texts
    # bash's <(command) is a pipe without a name, which may have ended before it is opened.
    reader, writer = os.pipe()
    os.write(writer, b"some words")
    os.close(writer)
    lowtide.prepare(f"/dev/fd/{reader}", tmp_path / "unnamed", tokenizer="bytes")
    os.close(reader)
    assert lowtide.tokens(tmp_path / "unnamed").text(0) == "some words"
    with pytest.raises(ValueError, match=r'"chars" reads its input twice, and .*pipe comes only once'):
        lowtide.prepare(pipe, tmp_path / "chars", tokenizer="chars")


def test_the_same_glob_means_the_same_files_again(tmp_path, monkeypatch):
    """Also where it would find what was written meanwhile."""
    monkeypatch.chdir(tmp_path)
    os.makedirs("a/data")
    for name in ("a/one.txt", "a/data/mine.txt"):
        with open(name, "w") as file:
            file.write(name)
    for _ in range(2):
        made = lowtide.prepare("a/**/*", "a/data", tokenizer="bytes")
        assert made.documents == 1
        assert lowtide.tokens("a/data").text(0) == "a/one.txt"
    for name in ("a", "a/*", "."):
        with pytest.raises(
            ValueError, match=r"no files are meant by this\nhint: what is in the folder that is"
        ):
            lowtide.prepare(name, "a" if name != "." else ".", tokenizer="bytes")
    assert sorted(os.listdir("a")) == ["data", "one.txt"]


BAD = b'{"text": "one"}\n{"body": 1}\n{"text": "two"}\n{"text": nothing}\n'


def test_what_was_passed_over_is_named(tmp_path, caplog):
    """By file, line and byte, at a shell and in Python; twenty of many."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(BAD + b"x\n" * 100)
    wanted = [
        "in.jsonl: at byte 16: expected a line of JSON with text, found no text, but body (line 2)",
        "in.jsonl: at byte 44: expected a line of JSON with text, "
        "found no JSON: expected ident in column 11 (line 4)",
        "in.jsonl: at byte 62: expected a line of JSON with text, "
        "found no JSON: expected value in column 1 (line 5)",
    ]
    with caplog.at_level(logging.WARNING, "lowtide"):
        made = lowtide.prepare(source, tmp_path / "python", tokenizer="bytes", on_error="skip")
    assert (made.documents, made.skipped) == (2, 102)
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 20
    command = [*COMMAND, "prepare", source, "-o", tmp_path / "shell", "-t", "bytes", "--on-error", "skip"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"skipped +102 that could not be read, 0 empty", done.stdout)
    at_shell = re.findall("^warning: (.*)$", done.stderr, re.M)
    assert len(at_shell) == 20
    for lines in (said, at_shell):
        assert [line[line.index("in.jsonl") :] for line in lines[:3]] == wanted
    # Where nothing is left, too.
    (tmp_path / "bad.jsonl").write_bytes(b"x\ny\n")
    with pytest.raises(ValueError, match=r"2 documents could not be read\nhint: the first .*line 1"):
        lowtide.prepare(tmp_path / "bad.jsonl", tmp_path / "none", tokenizer="bytes", on_error="skip")


def test_what_an_archive_had_before_it_was_cut_is_kept(tmp_path):
    texts = [f"{n} {hash((n,))}" for n in range(3000)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    source = tmp_path / "in.jsonl.gz"
    source.write_bytes(gzip.compress(lines)[:-2000])
    with pytest.raises(
        ValueError, match=r"in\.jsonl\.gz: at byte (\d+): expected more.*\(line (\d+)\)"
    ) as raised:
        lowtide.prepare(source, tmp_path / "stop", tokenizer="bytes")
    byte, line = map(int, re.search(r"at byte (\d+).*\(line (\d+)\)", str(raised.value)).groups())
    # Python's own unpacker gets as far.
    whole = 0
    with gzip.open(source) as file, contextlib.suppress(EOFError):
        for one in file:
            whole += one.endswith(b"\n")
    assert abs(line - 1 - whole) <= 64  # it may give less of the last block
    assert lines[:byte].count(b"\n") == line - 1
    made = lowtide.prepare(source, tmp_path / "skip", tokenizer="bytes", on_error="skip")
    assert (made.documents, made.skipped) == (line - 1, 1)
    t = lowtide.tokens(tmp_path / "skip")
    assert [t.text(i) for i in range(t.documents)] == texts[: line - 1]


@pytest.mark.parametrize("documents", [3, 30_000])
def test_what_the_error_hints_at_can_be_done(tmp_path, documents):
    """``on_error="skip"`` goes on in the folder of a run that stopped, and makes what it would make anew."""
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": f"text {n} " * 40}) for n in range(documents)]
    lines.insert(documents - 1, "{nonsense")
    source.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r'on_error="skip" passes over'):
        lowtide.prepare(source, tmp_path / "out", tokenizer="bytes")
    made = lowtide.prepare(source, tmp_path / "out", tokenizer="bytes", on_error="skip")
    fresh = lowtide.prepare(source, tmp_path / "fresh", tokenizer="bytes", on_error="skip")
    assert (made.documents, made.skipped) == (fresh.documents, fresh.skipped) == (documents, 1)
    for name in ("train.bin", "lowtide.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()
    with pytest.raises(ValueError, match=r'made with on_error="skip", this is on_error="stop"'):
        lowtide.prepare(source, tmp_path / "out", tokenizer="bytes")


LINES = "".join(json.dumps({"id": n, "text": f"text {n}"}) + "\n" for n in range(30))


def texts(folder):
    t = lowtide.tokens(folder)
    return [t.text(i) for i in range(t.documents)]


def prepared(tmp_path, *words, stdin=None):
    command = [*COMMAND, "prepare", *map(str, words), "-o", tmp_path / "out", "--tokenizer", "bytes"]
    return subprocess.run(command, input=stdin, capture_output=True, text=True)


def test_json_lines_are_told_by_their_first_line_where_no_name_tells(tmp_path):
    done = prepared(tmp_path, "-", stdin=LINES)
    assert done.returncode == 0, done.stderr
    wanted = [f"text {n}" for n in range(30)]
    assert texts(tmp_path / "out") == wanted
    for name in ("d", "d.zst", "part-00001", "c4.json.gz"):
        (tmp_path / name).write_bytes(gzip.compress(LINES.encode()))  # its content tells how it is packed
        lowtide.prepare(tmp_path / name, tmp_path / f"{name}.out", tokenizer="bytes")
        assert texts(tmp_path / f"{name}.out") == wanted
    # A name that tells is believed, and so is the user.
    (tmp_path / "d.txt").write_text(LINES)
    lowtide.prepare(tmp_path / "d.txt", tmp_path / "txt", tokenizer="bytes")
    lowtide.prepare(tmp_path / "d", tmp_path / "raw", tokenizer="bytes", input="text")
    assert texts(tmp_path / "txt") == texts(tmp_path / "raw") == [LINES]


def test_json_lines_without_the_field_are_asked_about(tmp_path):
    done = prepared(tmp_path, "-", stdin='{"body": "x"}\n' * 3)
    assert done.returncode != 0
    assert "expected text, or JSON lines with text, found a JSON object without it (line 1)" in done.stderr
    assert "--input jsonl with --field says where the text is; --input text takes" in done.stderr
    # What it hints at can be done, in the same folder.
    done = prepared(tmp_path, "-", "--input", "jsonl", "--field", "body", stdin='{"body": "x"}\n' * 3)
    assert done.returncode == 0, done.stderr
    assert texts(tmp_path / "out") == ["x"] * 3


def test_what_is_asked_for_and_of_no_use_is_refused(tmp_path):
    (tmp_path / "d.jsonl").write_text(LINES)
    (tmp_path / "d").write_text(LINES)
    (tmp_path / "d.txt").write_text("words")
    for name, words, said in [
        ("d.jsonl", {"split_lines": True}, r"d\.jsonl: split_lines=True is for text, not for JSON lines"),
        ("d", {"split_lines": True}, r"d: split_lines=True is for text, not for JSON lines"),
        ("d.jsonl", {"separator": "x"}, r"d\.jsonl: separator= is for text, not for JSON lines or tables"),
        ("d", {"separator": "x"}, r"d: separator= is for text"),
        ("d.txt", {"field": "body"}, r'd\.txt: field="body" is for JSON lines and tables, not for text'),
        ("d.txt", {"field": "body", "input": "text"}, r'field="body" is for .* not for input="text"'),
    ]:
        with pytest.raises(ValueError, match=said):
            lowtide.prepare(tmp_path / name, tmp_path / "out", tokenizer="bytes", on_error="skip", **words)
    done = prepared(tmp_path, tmp_path / "d.jsonl", "--input", "text", "--field", "text")
    assert "--field text is for JSON lines and tables, not for text" in done.stderr
    done = prepared(tmp_path, tmp_path / "d.jsonl", "--split-lines")
    assert "--split-lines is for text, not for JSON lines" in done.stderr
    # What is of use for one of them is not refused.
    lowtide.prepare(
        [tmp_path / "d.jsonl", tmp_path / "d.txt"], tmp_path / "both", tokenizer="bytes", separator="r"
    )
    assert texts(tmp_path / "both")[30:] == ["wo", "ds"]


def test_inputs_are_on_filesystems(tmp_path):
    with pytest.raises(ValueError, match=r"^s3://bkt/d\.jsonl: text is read from filesystems only"):
        lowtide.prepare("s3://bkt/d.jsonl", tmp_path / "out", tokenizer="bytes")


@pytest.mark.parametrize("format", ["nanogpt", "llmc", "npy"])
def test_characters_have_no_token_between_documents(tmp_path, format):
    (tmp_path / "d.txt").write_text("some words")
    lowtide.prepare(tmp_path / "d.txt", tmp_path / "out", tokenizer="chars", format=format)
    t = lowtide.tokens(tmp_path / "out")
    assert t.documents is None
    with pytest.raises(ValueError, match=r't\.decode\(t\[:200\]\).*format="megatron"') as raised:
        t.text(0)
    assert "50256" not in str(raised.value)
    assert t.decode(t[:200]) == "some words"
    lowtide.prepare(tmp_path / "d.txt", tmp_path / "kept", tokenizer="chars", format="megatron")
    assert lowtide.tokens(tmp_path / "kept").text(0) == "some words"
