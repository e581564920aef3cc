"""What a user is told: files of other programs, wrong arguments, sizes, progress, completions."""

import errno
import json
import logging
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import lowtide
from lowtide import _lowtide

FOREIGN = sorted((Path(__file__).parents[2] / "crates/lowtide/tests/attacks/foreign").iterdir())
# Where the command comes with the module: no other `lowtide` on the PATH is meant.
COMMAND = [sys.executable, "-m", "lowtide"]


def tokens(path, dtype="<u2", count=5_000):
    """Numbers as a text has them: small ones more often."""
    rng = np.random.default_rng(0)
    (50_000 ** rng.random(count)).astype(dtype).tofile(path)
    return path


@pytest.mark.parametrize("path", FOREIGN, ids=[path.stem for path in FOREIGN])
def test_files_of_other_programs_are_refused_by_name(path):
    with pytest.raises(ValueError, match=r"expected tokens, found [\s\S]*\nhint: ") as refused:
        lowtide.tokens(path)
    assert "needs dtype=" not in str(refused.value)
    with pytest.raises(ValueError, match=r"expected a \.npy header, found [\s\S]*\nhint: ") as refused:
        lowtide.open(path)
    assert "needs dtype=" not in str(refused.value)


MORE = [{}, b"bytes", bytes(3000), Path("folder"), [np.float32(1.5)] * 9, list(range(5000)), 10**400]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "thing",
    [
        None,
        5,
        1.5,
        "words",
        "long words " * 500,
        (1, 2),
        [[1], [2]],
        [None, 1.5],
        {1, 2},
        {"a": [True]},
        [],
        *MORE,
    ],
    ids=lambda thing: repr(thing)[:12],
)
def test_pickles_of_anything_are_refused(tmp_path, protocol, thing):
    path = tmp_path / "train.bin"
    path.write_bytes(pickle.dumps(thing, protocol))
    with pytest.raises(ValueError, match="expected tokens, found a Python pickle"):
        lowtide.tokens(path)


def test_tokens_that_begin_like_a_pickle_are_tokens(tmp_path):
    path, rest = tmp_path / "train.bin", np.fromfile(tokens(tmp_path / "rest"), "<u2")
    for first in (640, 896, 1152, 1408):  # the same bytes as protocols 2 to 5
        np.append([first], rest).astype("<u2").tofile(path)
        assert lowtide.tokens(path)[:3].tolist() == [first, *rest[:2]]


def test_who_insists_gets_the_bytes(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(1000, dtype="<u2"))
    raw = np.fromfile(tmp_path / "x.npz", "u1")
    assert (lowtide.tokens(tmp_path / "x.npz", format="raw", dtype="uint8")[:] == raw).all()
    with pytest.warns(UserWarning, match=r"looks like a \.npz archive.* because of dtype=; .*format=\"raw\""):
        t = lowtide.tokens(tmp_path / "x.npz", dtype="uint8")
    assert (t[:] == raw).all()
    assert (lowtide.open(tmp_path / "x.npz", dtype="uint8")[:] == raw).all()


@pytest.mark.parametrize(
    ("written", "named"),
    [("<u4", "uint32"), (">u4", ">u4"), ("<i8", "int64"), (">i8", ">i8"), (">u2", ">u2")],
)
def test_a_wrong_guess_of_the_type_is_warned_of(tmp_path, written, named):
    path = tokens(tmp_path / "train.bin", written)
    with pytest.warns(UserWarning, match=f'looks like {named}: say dtype="{named}"'):
        lowtide.tokens(path)
    said = subprocess.run([*COMMAND, "info", path], capture_output=True, text=True, check=True)
    assert f"say --dtype {named}, or --dtype uint16 if" in re.sub(r"\s+", " ", said.stdout)
    assert lowtide.tokens(path, dtype=named)[:].tolist() == np.fromfile(path, written).tolist()


@pytest.mark.parametrize("written", ["<u4", ">u4", "<i8"])
def test_one_shard_of_another_type_is_warned_of(tmp_path, written):
    for number in range(40):
        tokens(tmp_path / f"{number:02}.bin", "<u2")
    lowtide.tokens(tmp_path)  # no warning
    tokens(tmp_path / "33.bin", written)
    tokens(tmp_path / "37.bin", written)
    name = {"<u4": "uint32", ">u4": ">u4", "<i8": "int64"}[written]
    says = (
        rf"33\.bin: read as uint16, as .*00\.bin is, but a sample looks like {name} \(and 1 more like it\): "
        'leave it out, or say dtype="uint16" if it is that$'
    )
    with pytest.warns(UserWarning, match=says) as caught:
        lowtide.tokens(tmp_path)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowtide.tokens(tmp_path, dtype="uint16")


def test_padding_and_letters_are_seen_too(tmp_path):
    padded = np.fromfile(tokens(tmp_path / "ids", "<u2"), "<u2").reshape(-1, 50).astype("<i4")
    padded[:, 10:] = -100
    sparse = np.zeros(1000, "<u4")
    sparse[10:13] = 464, 2068, 7586
    sparse.tofile(tmp_path / "sparse.bin")
    with pytest.warns(UserWarning, match="looks like uint32"):
        lowtide.tokens(tmp_path / "sparse.bin")
    sparse.astype("<u2").tofile(tmp_path / "sparse2.bin")
    lowtide.tokens(tmp_path / "sparse2.bin")  # no warning
    padded.tofile(tmp_path / "labels.bin")
    with pytest.warns(UserWarning, match="looks like int32"):
        lowtide.tokens(tmp_path / "labels.bin")
    letters = np.unique(np.frombuffer(Path(__file__).read_bytes(), "u1"), return_inverse=True)[1]
    letters[: len(letters) // 2 * 2].astype("u1").tofile(tmp_path / "letters.bin")
    with pytest.warns(UserWarning, match="looks like uint8"):
        lowtide.tokens(tmp_path / "letters.bin")
    letters.astype("<u2").tofile(tmp_path / "shakespeare_char.bin")  # nanoGPT's own way: no warning
    lowtide.tokens(tmp_path / "shakespeare_char.bin")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["shuffle", "rows.npy", "out.npy", "--seed", "-1"],
            "--seed <SEED>': expected a whole number from 0",
        ),
        (
            ["shuffle", "rows.npy", "out.npy", "--epoch", "x"],
            "--epoch <EPOCH>': expected a whole number",
        ),
        (["info", "rows.npy", "--offset", "-1"], "--offset <OFFSET>': expected a whole number from 0 on"),
        (["info", "rows.npy", "--offset", "9" * 20], "expected a smaller number: it has to fit in 64 bits"),
        (["verify", "rows.npy", "--vocab", "-5"], "expected a whole number from 0 on"),
        (["info", "rows.npy", "--show", "x"], "--show <N>': expected a whole number from 1 on"),
        (["bench", "rows.npy", "--rows", "0"], "--rows <ROWS>': expected a whole number from 1 on"),
        (["bench", "rows.npy", "--rounds", "x"], "--rounds <ROUNDS>': between 1 and 100"),
        (
            ["info", "rows.npy", "--shape", "(-1,4)"],
            "expected whole numbers with commas between them, such as -1,128",
        ),
        (["convert", "rows.npy", "x.npy", "--in-shape", "x"], "expected whole numbers with commas"),
        (["info", "rows.npy", "--dtype", "float33"], '--dtype <DTYPE>\': dtype "float33" is not supported'),
        (["watch", "--pid=x"], "--pid <PID>': expected the number of a process"),
        (["prepare", "x", "-o", "out", "--val", "x"], "expected a share of the documents, such as 0.0005"),
        (["bench", "rows.npy", "--format", "x"], "possible values: nanogpt, llmc"),
        (["shuffle", "rows.npy"], "one path is named, and no folder to write into"),
        (["info", "rows.npy", "--dtype", "f4"], "hint: leave --dtype out to use the header"),
    ],
)
def test_a_wrong_call_at_a_shell_is_told_in_its_words(tmp_path, arguments, says):
    np.save(tmp_path / "rows.npy", np.zeros((10, 4)))
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert says in re.sub(r"\s+", " ", done.stderr), done.stderr


def test_one_is_not_several(tmp_path):
    np.save(tmp_path / "row.npy", np.zeros((1, 4)))
    a = lowtide.open(tmp_path / "row.npy")
    assert repr(lowtide.zip(a)) == "<lowtide.Zip of 1 array, 1 row>"
    assert repr(lowtide.zip(a, a)) == "<lowtide.Zip of 2 arrays, 1 row>"


@pytest.mark.parametrize("text", [b"hello world\n", b"hello " * 500, b"a\r\nb\r\n" * 300])
def test_short_and_monotonous_text_is_warned_of(tmp_path, text):
    (tmp_path / "train.bin").write_bytes(text)
    with pytest.warns(UserWarning, match='looks like uint8: say dtype="uint8"'):
        lowtide.tokens(tmp_path / "train.bin")


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "rows.npy", np.arange(10))
    for name in ["a", "b"]:
        tokens(tmp_path / f"{name}.bin")
    assert lowtide.open("~/rows.npy").shape == (10,)
    assert lowtide.open(Path("~/rows.npy")).path == tmp_path / "rows.npy"
    assert len(lowtide.tokens("~/a.bin")) == 5_000
    assert len(lowtide.tokens("~/?.bin")) == len(lowtide.tokens(["~/a.bin", b"~/b.bin"])) == 10_000
    said = subprocess.run([*COMMAND, "info", "~/?.bin"], capture_output=True, text=True, check=True).stdout
    assert "10,000" in said


def test_home_is_expanded_by_every_command_that_takes_a_path(tmp_path, monkeypatch):
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    np.save(home / "rows.npy", np.arange(1000, dtype="f4").reshape(-1, 4))
    (home / "text.txt").write_text("Ebb and flow.\n" * 50)
    tokens(home / "a.bin")

    def run(*arguments):
        command = [*COMMAND, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=here, timeout=120)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    run("verify", "~/rows.npy")
    run("convert", "~/rows.npy", "~/converted.npy")
    run("shuffle", "~/rows.npy", "~/shuffled.npy")
    run("shuffle", "~/converted.npy", "--output=~/folder")
    run("prepare", "~/text.txt", "-o", "~/prepared", "--tokenizer", "bytes")
    run("bench", "~/rows.npy", "--seconds", "0.05", "--html=~/bench.html")
    run("watch", "--file=~/a.bin", "--html=~/watch.html", "--json=~/watch.json", "--", "sleep", "0.3")
    for name in ["converted.npy", "shuffled.npy", "folder/converted.npy"]:
        assert sorted(np.load(home / name)[:, 0]) == list(range(0, 1000, 4)), name
    assert (home / "prepared" / "lowtide.json").exists()
    assert (home / "bench.html").exists()
    assert (home / "watch.html").exists()
    watched = json.loads((home / "watch.json").read_text())
    assert [file["path"] for file in watched["files"]] == [str(home / "a.bin")]
    assert list(here.iterdir()) == [], "nothing is written into a folder that is called ~"
    with lowtide.watch(files=["~/a.bin"]) as w:
        pass
    assert [file["path"] for file in w.report.files] == [str(home / "a.bin")]
    w.report.to_json("~/report.json")
    assert (home / "report.json").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", ""],
        ["shuffle", "rows.npy", "--output="],
        ["prepare", "text.txt", "-o", ""],
        ["watch", "--html=", "--", "true"],
    ],
)
def test_an_empty_path_is_refused_before_anything_is_done(tmp_path, arguments):
    """What a shell makes of a variable that is not set."""
    np.save(tmp_path / "rows.npy", np.arange(7))
    (tmp_path / "text.txt").write_text("Ebb and flow.\n")
    before = sorted(tmp_path.iterdir())
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_what_is_called_like_home_is_meant_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
    (tmp_path / "~").mkdir()
    np.save(tmp_path / "~" / "rows.npy", np.arange(7))
    said = subprocess.run([*COMMAND, "info", "~/rows.npy"], capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "7" in said.stdout


@pytest.mark.parametrize("open_", [lowtide.open, lowtide.tokens])
@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (
            {"access": None},
            TypeError,
            r"access=None is not a word\nhint: one of \"auto\", \"map\", .*\"direct\"",
        ),
        ({"access": 3}, TypeError, r"access=3 is not a word\nhint: one of \"auto\""),
        ({"access": "fast"}, ValueError, r"access=\"fast\" is not a way of access\nhint: one of \"auto\""),
        ({"cache": None}, TypeError, r"cache=None is not a word\nhint: one of \"auto\", \"keep\", \"drop\""),
        ({"cache": True}, TypeError, r"cache=True is not a word\nhint: one of \"auto\", \"keep\", \"drop\""),
    ],
)
def test_words_that_are_none_are_named(tmp_path, open_, arguments, error, says):
    with pytest.raises(error, match=f"^{says}"):
        open_(tmp_path / "nothing.bin", **arguments)  # before the file is touched


@pytest.mark.parametrize("shape", ["128", (2, "3"), [1.5], {"rows": 3}, 2**70])
def test_a_shape_that_is_none_is_named(tmp_path, shape):
    with pytest.raises(TypeError, match=r"^shape=.* is not a shape\nhint: .*such as \(-1, 128\)"):
        lowtide.open(tmp_path / "nothing.bin", dtype="uint8", shape=shape)


@pytest.fixture
def opened(tmp_path, save):
    """Tokens, an array, and a zip of it."""
    a = lowtide.open(save(np.arange(1000.0)))
    return lowtide.tokens(tokens(tmp_path / "train.bin")), a, lowtide.zip(a, a)


def test_flags_that_are_none_are_named(opened, tmp_path):
    t, a, both = opened
    nothing, out = tmp_path / "nothing", tmp_path / "out.npy"
    calls = [
        ("drop_last", lambda flag: t.loader(4, 64, drop_last=flag)),
        ("repeat", lambda flag: t.loader(4, 64, repeat=flag)),
        ("keepdims", lambda flag: a.mean(keepdims=flag)),
        ("drop_last", lambda flag: a.chunks(10, drop_last=flag)),
        ("drop_last", lambda flag: type(a).chunks(a, 10, drop_last=flag)),
        ("drop_last", lambda flag: both.chunks(10, drop_last=flag)),
    ]
    for rows in (a, both):
        calls += [
            ("drop_last", lambda flag, rows=rows: rows.shuffled(10, drop_last=flag)),
            ("repeat", lambda flag, rows=rows: rows.shuffled(10, repeat=flag)),
            ("with_rows", lambda flag, rows=rows: rows.shuffled(10, with_rows=flag)),
        ]
    for _, call in calls:
        for flag in (True, False, np.True_, np.False_):
            call(flag)
    calls += [  # before a file is touched: there is none
        ("overwrite", lambda flag: lowtide.create(out, "f4", (5,), overwrite=flag)),
        ("overwrite", lambda flag: lowtide.shuffle(nothing, out, overwrite=flag)),
        ("overwrite", lambda flag: lowtide.convert(nothing, out, overwrite=flag)),
        ("lossy", lambda flag: lowtide.convert(nothing, out, lossy=flag)),
        ("split_lines", lambda flag: lowtide.prepare(nothing, out, split_lines=flag)),
    ]
    for name, call in calls:
        for flag in ("x", 1, None, np.array([True])):
            with pytest.raises(TypeError, match=f"^{re.escape(f'{name}={flag!r}')} must be True or False$"):
                call(flag)
    assert not out.exists()


def test_texts_and_numbers_that_are_none_are_named(opened, tmp_path):
    t, a, _ = opened
    nothing, out = tmp_path / "nothing", tmp_path / "out"
    orders = r'is not a word\nhint: one of "shuffled", "sequential", "with_replacement"$'
    for wrong in (None, 5):
        with pytest.raises(TypeError, match=f"^order={wrong} {orders}"):
            t.loader(4, 64, order=wrong)
    for name, wrong, call in [
        ("field", 5, lambda text: lowtide.prepare(nothing, out, field=text)),
        ("field", None, lambda text: lowtide.prepare(nothing, out, field=text)),
        ("separator", 5, lambda text: lowtide.prepare(nothing, out, separator=text)),
        ("split", 5, lambda text: lowtide.tokens(nothing, split=text)),
        ("split", 5, lambda text: lowtide.shuffle_documents(nothing, out, split=text)),
        ("mode", 5, lambda text: a.take([1], mode=text)),
    ]:
        with pytest.raises(TypeError, match=f"^{name}={wrong} must be a str$"):
            call(wrong)
    for call in (lowtide.tokens, lambda path, **words: lowtide.shuffle_documents(path, out, **words)):
        with pytest.raises(TypeError, match=r'^format=5 is not a word\nhint: one of "nanogpt", .*"raw"$'):
            call(nothing, format=5)
    for wrong in ("x", None):
        with pytest.raises(TypeError, match=f"^val={wrong!r} must be a number$"):
            lowtide.prepare(nothing, out, val=wrong)
        with pytest.raises(TypeError, match=f"^ddof={wrong!r} must be a number$"):
            a.var(ddof=wrong)
    assert a.var(ddof=np.float32(1)) == pytest.approx(np.arange(1000.0).var(ddof=1))
    for it in (t.loader(4, 64), a.shuffled(10), a.chunks(10)):
        for wrong in (None, [1]):
            says = rf"^state={re.escape(repr(wrong))} must be a dict that state_dict\(\) gave$"
            with pytest.raises(TypeError, match=says):
                it.load_state_dict(wrong)


def test_sizes_that_are_none_are_named(opened, tmp_path):
    nothing = tmp_path / "nothing"
    for name, call in [
        ("budget", lambda size: lowtide.open(nothing, budget=size)),
        ("budget", lambda size: lowtide.tokens(nothing, budget=size)),
        ("budget", lambda size: lowtide.create(nothing, "f4", (5,), budget=size)),
        ("budget", lambda size: lowtide.convert(nothing, tmp_path / "out", budget=size)),
        ("limit", lowtide.Budget),
    ]:
        for wrong in (-1, 2**70, np.int64(-7)):
            says = rf"^{name} is {int(wrong)}: it must be a whole number from 1 to 2\*\*64 - 1$"
            with pytest.raises(ValueError, match=says):
                call(wrong)
        with pytest.raises(ValueError, match=f'^{name}="lots" is not a size\nhint: write it like 512MiB'):
            call("lots")
        for wrong in (1.5, [1]):
            says = f"^{name}={re.escape(repr(wrong))} is not a size\nhint: a number of bytes or a text"
            with pytest.raises(TypeError, match=says):
                call(wrong)


def test_a_tolerance_may_be_nothing_but_not_less():
    for wrong in (-1, 2**70):
        with pytest.raises(ValueError, match=rf"^tolerance is {wrong}: it must be a whole number from 0 to "):
            lowtide.watch(tolerance=wrong)


def test_paths_that_are_none_are_named(opened, tmp_path):
    _, a, both = opened
    nothing, out = tmp_path / "nothing", tmp_path / "out"
    calls = [
        ("scratch", lambda path: a.shuffled(10, scratch=path)),
        ("scratch", lambda path: both.shuffled(10, scratch=path)),
        ("path", lowtide.open),
        ("local_cache", lambda path: lowtide.open(nothing, local_cache=path)),
        ("local_cache", lambda path: lowtide.tokens(nothing, local_cache=path)),
        ("path", lambda path: lowtide.create(path, "f4", (5,))),
        ("inputs", lambda path: lowtide.shuffle(path, out)),
        ("output", lambda path: lowtide.prepare(nothing, path)),
    ]
    for call in (lowtide.shuffle, lowtide.shuffle_documents, lowtide.convert):
        calls += [
            ("output", lambda path, call=call: call(nothing, path)),
            ("work", lambda path, call=call: call(nothing, out, work=path)),
        ]
    with lowtide.watch(files=()) as w:
        pass
    calls += [("path", w.report.to_html), ("path", w.report.to_json)]
    for name, call in calls:
        for wrong in (5, 1.5, {}):
            with pytest.raises(TypeError, match=f"^{name}={wrong!r} is not a path$"):
                call(wrong)
    assert len(list(a.shuffled(10, scratch=os.fsencode(tmp_path)))) == 100
    for wrong in (5, None, [5]):
        with pytest.raises(TypeError, match=rf"^files={re.escape(repr(wrong))} must be a path or a list of "):
            lowtide.watch(files=wrong)


def test_what_has_another_name_in_a_call_has_it_in_its_messages(opened, tmp_path):
    t, a, _ = opened
    nothing, out = tmp_path / "nothing", tmp_path / "out"
    for words, error, says in [
        ({"in_shape": "x"}, TypeError, "in_shape='x' is not a shape"),
        ({"in_order": "x"}, ValueError, 'in_order="x" is not known'),
        ({"in_format": "x"}, ValueError, 'in_format="x" is not a token format'),
        ({"shard_tokens": "x"}, ValueError, 'shard_tokens="x" is no number of tokens'),
    ]:
        with pytest.raises(error, match=f"^{says}"):
            lowtide.convert(nothing, out, **words)
    with pytest.raises(TypeError, match=r"^shape='x' is not a shape"):
        lowtide.verify(nothing, shape="x")
    for wrong in ("x", 2**70, 1.5):
        with pytest.raises(TypeError, match=f"^number={wrong!r} is not one of a document$"):
            t.text(wrong)
    for wrong in ("x", 5):
        with pytest.raises(TypeError, match=f"^out={wrong!r} must be an array$"):
            a.mean(out=wrong)
    with pytest.raises(TypeError, match=r"^interval='x' must be a number$"):
        lowtide.watch(interval="x")
    for wrong in (-1.0, 0.0, float("inf")):
        with pytest.raises(ValueError, match=f"^interval={wrong:g} makes no sense\nhint: seconds between"):
            lowtide.watch(interval=wrong)


def test_dtypes_that_are_none_are_named(opened, tmp_path):
    t, a, _ = opened
    nothing, out = tmp_path / "nothing", tmp_path / "out"
    for name, call in [
        ("dtype", lambda dtype: t.loader(4, 64, dtype=dtype)),
        ("dtype", lambda dtype: lowtide.create(out, dtype, (5,))),
        ("dtype", lambda dtype: lowtide.convert(nothing, out, dtype=dtype)),
        ("in_dtype", lambda dtype: lowtide.convert(nothing, out, in_dtype=dtype)),
        ("dtype", lambda dtype: lowtide.open(nothing, dtype=dtype)),
        ("astype", lambda dtype: lowtide.open(nothing, astype=dtype)),
        ("dtype", a.astype),
        ("dtype", lambda dtype: lowtide.tokens(nothing, dtype=dtype)),
        ("dtype", lambda dtype: lowtide.verify(nothing, dtype=dtype)),
    ]:
        for wrong in ("x", 5, [1]):
            try:
                np.dtype(wrong)
            except (TypeError, ValueError) as error:
                kind, said = type(error), str(error)
            with pytest.raises(kind, match=f"^{re.escape(f'{name}={wrong!r}: {said}')}$"):
                call(wrong)


def test_hints_are_in_the_words_of_the_call(opened, tmp_path):
    t, a, both = opened
    few = "^the last step is enough for 1000 of 1001 ranks, so that the others would have one batch fewer"
    for rows in (a, both):
        for call in (rows.shuffled, rows.chunks):
            with pytest.raises(ValueError, match=rf"{few}\nhint: .*, or choose another number for rows=$"):
                call(1, rank=1000, world_size=1001)
        with pytest.raises(ValueError, match=r"^blocks=0: a block of 0 rows holds nothing\nhint: .* of rows"):
            rows.shuffled(10, blocks=0)
    with pytest.raises(
        ValueError, match=r"enough for \d+ of 1001 ranks.*\n.* another number for batch_size=$"
    ):
        t.loader(1, 64, drop_last=False, rank=1000, world_size=1001)
    with pytest.raises(
        ValueError, match=r"^blocks=0: a block of 0 windows holds nothing\nhint: .* of windows"
    ):
        t.loader(4, 64, blocks=0)
    with pytest.raises(
        ValueError, match=r"^blocks='x' is not known\nhint: .*the number of windows in a block$"
    ):
        t.loader(4, 64, blocks="x")
    formats = 'one of "nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"$'
    for call in (lowtide.prepare, lowtide.convert, lambda path, _, **words: lowtide.tokens(path, **words)):
        with pytest.raises(ValueError, match=f'^format="x" is not a token format\nhint: {formats}'):
            call(tmp_path / "train.bin", tmp_path / "out", format="x")


def test_memory_that_cannot_be_had_is_not_a_budget_of_nothing(tmp_path):
    path = tmp_path / "sparse.bin"
    with path.open("wb") as file:
        file.truncate(1 << 43)
    a = lowtide.open(path, dtype="uint8")
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 42, limit[1]))
    try:
        with pytest.raises(MemoryError, match=r"no memory left: 8 TiB could not be had\nhint: ") as refused:
            a[...]
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert "budget" not in str(refused.value)


def test_a_batch_of_a_terabyte_needs_a_terabyte(tmp_path):
    t = lowtide.tokens(tokens(tmp_path / "train.bin", count=1 << 20), budget="1MiB")
    for order in ["shuffled", "with_replacement"]:
        with pytest.raises(MemoryError) as refused:
            t.loader(1 << 29, 1023, order=order, drop_last=False)  # windows of 1,024 tokens of 2 bytes
        said = str(refused.value)
        assert said.startswith(
            "a batch of 536870912 windows of 1023 tokens needs 1 TiB, the budget is 1 MiB\n"
        )
        assert re.search(r"hint: batches of \d+ windows fit, or open with a larger budget=$", said)


def test_a_file_of_somebody_else_may_be_in_memory(tmp_path, python):
    """As another user, who may read the file and not ask what of it is cached."""
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((1000, 128), "f4"))
    ours = [folder for folder in path.parents if folder.is_relative_to(Path(tempfile.gettempdir()))]
    for folder in [path, *ours[:-1]]:
        folder.chmod(0o755)
    code = """if True:
        import ctypes, datetime, os, sys
        import numpy, lowtide  # before the files of this environment are out of reach
        path = sys.argv[1]
        fd = os.open(path, os.O_RDONLY)
        if sys.argv[2] == "other":
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        libc = ctypes.CDLL(None, use_errno=True)
        told = libc.syscall(451, fd, (ctypes.c_uint64 * 2)(0, 4096), (ctypes.c_uint64 * 5)(), 0)
        print(ctypes.get_errno() if told else 0)
        a = lowtide.open(path)
        print(a.chunks(100).why)
        print(a.shuffled(100).why)
    """
    told, *own = python(code, path, "owner").splitlines()
    if told != "0":
        pytest.skip("this kernel does not tell what is cached")
    assert not any("unknown" in why for why in own)
    told, *whys = python(code, path, "other").splitlines()
    if told != str(errno.EPERM):
        pytest.skip("this kernel tells everybody what is cached")
    for why in whys:
        assert why.startswith("whether the file is in memory is unknown, and "), why


def test_a_long_look_for_documents_says_how_far_it_is(tmp_path, caplog):
    path = tmp_path / "long.bin"
    for gib in (6, 24, 96, 384):  # zeros, which cost no disk; a quick machine needs more
        with path.open("wb") as file:
            file.truncate(gib << 30)
        t = lowtide.tokens(path, end_of_text=7, format="nanogpt", cache="drop")
        with caplog.at_level(logging.INFO, "lowtide"):
            assert t.documents == 1
        messages = [record.getMessage() for record in caplog.records if record.name == "lowtide"]
        if messages:
            break
    said = rf"^{path}: looking for documents: \d+ % of {gib << 29} tokens, \d+ s left$"
    assert re.search(said, messages[0])
    caplog.clear()
    assert t.documents == 1  # known by now
    assert not caplog.records


def test_documents_can_be_counted_at_a_shell(tmp_path):
    np.array([5, 6, 50256, 7, 50256], "<u2").tofile(tmp_path / "train.bin")
    command = [*COMMAND, "info", tmp_path / "train.bin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--end-of-text finds them" in said
    done = subprocess.run([*command, "--end-of-text", "50256"], capture_output=True, text=True, check=True)
    assert re.search(r"documents +2, by the end of each", done.stdout)
    assert not done.stderr, "progress is for terminals"


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """What bash offers at the end of a line, with our own script loaded."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    folder = tmp_path_factory.mktemp("completion")
    script = subprocess.run(
        [*COMMAND, "completions", "bash"], capture_output=True, text=True, check=True
    ).stdout
    (folder / "lowtide.bash").write_text(script)
    for name in ["train.bin", "rows.npy"]:
        (folder / name).touch()

    def complete(*words):
        # As bash itself calls it: the function, with the words of the line and the place of the last one.
        program = """
            source ./lowtide.bash
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
            _lowtide lowtide "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\\n' "${COMPREPLY[@]}"
            # Where nothing is offered, names of files are, if the script says so.
            complete -p lowtide | grep -q -- '-o default' || exit
            [ ${#COMPREPLY[@]} -gt 0 ] || compgen -f -- "${@: -1}"
        """
        done = subprocess.run(
            ["bash", "-c", program, "bash", "lowtide", *words], capture_output=True, text=True, cwd=folder
        )
        assert done.returncode == 0, done.stderr
        return sorted(set(done.stdout.split()))

    return complete


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["inf"], ["info"]),
        (["info", "--color", ""], ["always", "auto", "never"]),
        (
            ["info", "--format", ""],
            sorted(["nanogpt", "llmc", "megatron", "datatrove", "npy", "olmo", "raw"]),
        ),
        (["info", "--format", "n"], ["nanogpt", "npy"]),
        (["bench", "--cache", ""], ["auto", "drop", "keep"]),
        (["bench", "--format", "n"], ["nanogpt", "npy"]),
        (["info", "--dtype", "float"], ["float16", "float32", "float64"]),
        (["convert", "--in-dtype", "bf"], ["bfloat16"]),
        (["verify", "--dtype", "uint1"], ["uint16"]),
        (["bench", "--order", "s"], ["sequential", "shuffled"]),
        (["info", "tr"], ["train.bin"]),
        (["bench", "ro"], ["rows.npy"]),
        (["bench", "x", "--html", "r"], ["rows.npy"]),
        (["completions", "z"], ["zsh"]),
    ],
)
def test_a_shell_offers_the_words_that_are_allowed(complete, words, offered):
    assert complete(*words) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_the_words_too(shell):
    done = subprocess.run([*COMMAND, "completions", shell], capture_output=True, text=True, check=True)
    for word in ["nanogpt", "datatrove", "keep", "sequential", "never"]:
        assert word in done.stdout, word


def test_every_size_has_three_digits():
    assert repr(lowtide.Budget(2_080_000_000)) == 'Budget("1.94 GiB")'
    assert _lowtide.parse_size("12.3 MiB", "size") == 12_897_484


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "Usage: lowtide"),
        (["inf"], 2, "info"),
        (["info"], 2, "<PATH>"),
        (["info", "nothing.bin"], 1, "error: .*nothing.bin: cannot open the file: No such file"),
        (["info", "folder"], 1, "no token files in this folder\nhint: they end in .bin"),
        (["info", "empty.npy"], 1, "found an empty file"),
        (["info", "secret.bin"], 1, "secret.bin: cannot open the file: Permission denied"),
        (["info", "x.npz"], 1, r"found a \.npz archive.*\nhint: np.save"),
        (["info", "train.bin", "--format", "gpt"], 2, "possible values: nanogpt, llmc"),
        (
            ["info", "train.bin", "--format", "raw"],
            1,
            "error: --format raw has no header and needs --dtype\n",
        ),
        (
            ["info", "train.bin", "--end-of-text", "70000"],
            1,
            "--end-of-text 70000 cannot be among tokens of uint16",
        ),
        (["info", "train.bin", "--shape", "x"], 2, "invalid value 'x' for '--shape"),
        (["bench", "nothing.npy"], 1, "nothing.npy: cannot open the file"),
        (["bench", "train.bin", "--cache", "maybe"], 2, "possible values: auto, keep, drop"),
        (["completions", "tcsh"], 2, "possible values: bash"),
    ],
)
def test_a_wrong_call_is_said_to_be_wrong(tmp_path, arguments, code, says):
    tokens(tmp_path / "train.bin")
    np.savez(tmp_path / "x.npz", x=np.arange(3))
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.npy").touch()
    (tmp_path / "secret.bin").touch(mode=0)
    if "secret.bin" in arguments and os.access(tmp_path / "secret.bin", os.R_OK):
        pytest.skip("nothing is secret from root")
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert re.search(says, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert not re.search(r"\b(dtype|format|shape|offset)=", done.stderr)
