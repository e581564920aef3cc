"""What every command does alike: names of any bytes, answers that nobody hears, numbers, narrow terminals."""

import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import numpy as np
import pyte
import pytest

COMMAND = [sys.executable, "-m", "lowtide"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.zeros((4, 2)))
    return path


def test_a_name_may_have_any_bytes(tmp_path):
    source, out = os.fsencode(tmp_path) + b"/\xff.txt", os.fsencode(tmp_path) + b"/out\xfe"
    with open(source, "w") as file:
        file.write("text")
    for words in (
        [b"prepare", source, b"-o", out, b"-t", b"bytes"],
        [b"verify", out],
        [b"info", b"--show", b"1", out],
        [b"info", b"--json", out],
    ):
        done = subprocess.run([*COMMAND, *words], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b""), words
    assert np.fromfile(out + b"/train.bin", "<u2").tolist() == [*b"text", 256]


ANSWERS = {
    "a table": ["info", "rows.npy"],
    "JSON": ["info", "--json", "rows.npy"],
    "a script": ["completions", "bash"],
    "a word": ["verify", "rows.npy"],
}


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_nobody_hears_is_no_panic(rows, words):
    """As ``lowtide ... | head``: the command ends as others do that a closed pipe kills."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, *words], cwd=rows.parent, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_could_not_be_written_is_an_error(rows, words):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *words], cwd=rows.parent, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot print the answer: {os.strerror(errno.ENOSPC)}")
    assert "panicked" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prepare", "rows.npy", "-o", "out", "--seed", "-1"], "invalid value '-1' for '--seed <SEED>'"),
        (["prepare", "rows.npy", "-o", "out", "--val", "-0.1"], "--val -0.1 is no share of the documents"),
        (["shuffle", "rows.npy", "out.npy", "--seed", "-1"], "invalid value '-1' for '--seed <SEED>'"),
        (["bench", "rows.npy", "--seconds", "-1"], "seconds"),
        (["prepare", "rows.npy", "-o", "out", "-t", ""], 'there is no tokenizer ""'),
    ],
)
def test_a_number_below_nothing_is_named(rows, words, said):
    done = subprocess.run([*COMMAND, *words], cwd=rows.parent, capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert "unexpected argument" not in done.stderr


def test_what_all_commands_have_stands_last_in_their_help():
    for name in ("info", "bench", "prepare", "verify", "shuffle", "convert", "cache", "demo"):
        said = subprocess.run([*COMMAND, name, "--help"], capture_output=True, text=True, check=True).stdout
        options = re.findall(r"^ +(?:-\w, )?(--[\w-]+)", said, re.M)
        assert options[-4:] == ["--quiet", "--color", "--help", "--version"], (name, options)


def screen(command, columns):
    """What a terminal of so many columns shows when a command has ended, and all that was written to it."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 8, columns, 0, 0))
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown, said = pyte.HistoryScreen(columns, 8, history=1000), b""
    stream = pyte.ByteStream(shown)
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
        stream.feed(piece)
    os.close(ours)
    assert running.wait() == 0
    return shown, said


@pytest.mark.parametrize("columns", [20, 200])
@pytest.mark.parametrize("door", ["a shell", "Python"])
def test_progress_stays_on_its_line_however_narrow_the_terminal(tmp_path, columns, door):
    source, out = tmp_path / "in.txt", tmp_path / "out"
    source.write_text("all work and no play " * 100_000)
    program = f"import lowtide; lowtide.prepare({str(source)!r}, {str(out)!r})"
    command = (
        [sys.executable, "-c", program] if door == "Python" else [*COMMAND, "prepare", source, "-o", out]
    )
    shown, said = screen(command, columns)
    lines = [line for line in said.decode().split("\r\x1b[K") if line]
    assert lines
    assert max(map(len, lines)) < columns
    if columns == 200:
        assert re.search(r"^100 %  1 documents, [\d,]+ tokens, .*B/s, [\d,]+ tokens/s, 0 s left$", lines[-1])
    # Nothing is left of it, and nothing has scrolled.
    assert "".join(shown.display).strip() == ""
    assert not shown.history.top
